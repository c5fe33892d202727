//! What the program tells, in words and as JSON.

use std::{collections::BTreeMap, fmt};

use reduce_kernels::{
    Device, ElementType,
    planner::{Choice, Direction, Estimate, Plan, Problem},
};
use reduce_programs::Floor;
use serde::Serialize;

use crate::described::{Described, Tensor};

/// Everything about the plan of a reduction.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    op: &'static str,
    #[serde(flatten)]
    parameters: &'a BTreeMap<&'static str, f64>,
    #[serde(flatten)]
    input: &'a Tensor,
    #[serde(skip_serializing_if = "Option::is_none")]
    second: Option<&'a Tensor>,
    axes: &'a [usize],
    problem: Canonical,
    device: &'a str,
    /// `None` if there is nothing to launch.
    choice: Option<Choice>,
    plan_in_words: String,
    expected_microseconds: f64,
    floor: DeviceFloor,
    /// The floor over the expected time.
    #[serde(skip_serializing_if = "Option::is_none")]
    floor_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    every_schedule: Option<Vec<Estimated>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    given: Vec<Given>,
}

/// The problem in canonical form.
#[derive(Serialize)]
struct Canonical {
    results: Vec<ElementType>,
    direction: Direction,
    outputs: usize,
    reduction_len: usize,
    kept: Vec<Kept>,
    reduced: Vec<Reduced>,
    alignment: usize,
    accumulator_bytes: usize,
    accumulator_fields: usize,
    bytes: u64,
}

/// A dimension that the result keeps.
#[derive(Serialize)]
struct Kept {
    extent: usize,
    stride: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    second_stride: Option<usize>,
    output_stride: usize,
}

/// A dimension that is reduced.
#[derive(Serialize)]
struct Reduced {
    extent: usize,
    stride: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    second_stride: Option<usize>,
    position_stride: usize,
}

/// The least time per call in a stream of calls: the bytes over the bandwidth, or one launch if
/// that takes longer.
#[derive(Serialize)]
struct DeviceFloor {
    microseconds: f64,
    #[serde(flatten)]
    costs: Floor,
}

/// A plan and what it should take.
#[derive(Serialize)]
pub(crate) struct Estimated {
    plan: Plan,
    plan_in_words: String,
    expected_microseconds: f64,
    estimate: Estimate,
}

/// A plan from the command line.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Given {
    /// It may run.
    Legal(Estimated),
    /// It may not.
    Illegal { plan: Plan, refused: String },
}

impl Given {
    pub(crate) fn new(plan: Plan, problem: &Problem, device: &Device) -> Self {
        match plan.check(problem, device) {
            Ok(()) => Self::Legal(Estimated::new(plan, plan.estimate(problem, device))),
            Err(error) => Self::Illegal { plan, refused: error.to_string() },
        }
    }

    pub(crate) fn may_run(&self) -> bool {
        matches!(self, Self::Legal(_))
    }
}

impl Estimated {
    pub(crate) fn new(plan: Plan, estimate: Estimate) -> Self {
        let expected_microseconds = estimate.microseconds();
        Self { plan, plan_in_words: plan.to_string(), expected_microseconds, estimate }
    }
}

impl Canonical {
    fn new(problem: &Problem) -> Self {
        let second = problem.second().map(|second| second.strides());
        let kept = problem.kept().iter().enumerate().map(|(nth, dim)| Kept {
            extent: dim.extent,
            stride: dim.stride,
            second_stride: second.map(|strides| strides.kept[nth]),
            output_stride: dim.output_stride,
        });
        let reduced = problem.reduced().iter().enumerate().map(|(nth, dim)| Reduced {
            extent: dim.extent,
            stride: dim.stride,
            second_stride: second.map(|strides| strides.reduced[nth]),
            position_stride: dim.position_stride,
        });
        Self {
            results: problem.results().to_vec(),
            direction: problem.direction(),
            outputs: problem.outputs(),
            reduction_len: problem.reduction_len(),
            kept: kept.collect(),
            reduced: reduced.collect(),
            alignment: problem.alignment(),
            accumulator_bytes: problem.operator().accumulator_bytes,
            accumulator_fields: problem.operator().fields,
            bytes: problem.bytes(),
        }
    }
}

impl DeviceFloor {
    fn new(problem: &Problem, device: &Device) -> Self {
        let costs = Floor {
            read_gigabytes_per_second: device.profile.bandwidth.max(1) as f64 / 1e9,
            launch_microseconds: device.profile.launch_ns as f64 / 1e3,
        };
        // In a stream of calls, the host launches the next one while the device moves the bytes.
        let moving = problem.bytes() as f64 / costs.read_gigabytes_per_second / 1e3;
        Self { microseconds: moving.max(costs.launch_microseconds), costs }
    }
}

impl<'a> Report<'a> {
    pub(crate) fn new(
        described: &'a Described,
        problem: &Problem,
        device: &'a Device,
        choice: Option<Choice>,
        every_schedule: Option<Vec<Estimated>>,
        given: Vec<Given>,
    ) -> Self {
        let floor = DeviceFloor::new(problem, device);
        let expected = choice.as_ref().map(Choice::expected_microseconds);
        Self {
            op: described.operation.name(),
            parameters: &described.parameters,
            input: &described.input,
            second: described.second.as_ref(),
            axes: &described.axes,
            problem: Canonical::new(problem),
            device: &device.name,
            plan_in_words: match &choice {
                Some(choice) => choice.plan.to_string(),
                None => "nothing to launch: the result has no elements".into(),
            },
            expected_microseconds: expected.unwrap_or(0.0),
            floor_share: expected.map(|expected| floor.microseconds / expected),
            floor,
            choice,
            every_schedule,
            given,
        }
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, input: Tensor { dtype, shape, .. }, axes, problem, device, .. } = self;
        write!(f, "{op} of {dtype} {shape:?}")?;
        if let Some(Tensor { dtype, shape, .. }) = self.second {
            write!(f, " and {dtype} {shape:?}")?;
        }
        let results: Vec<&str> = problem.results.iter().map(|result| result.name()).collect();
        writeln!(f, " over axes {axes:?} gives {} on {device}", results.join(" and "))?;
        write!(f, "{problem}plan: {}", self.plan_in_words)?;
        if let (Some(choice), Some(share)) = (&self.choice, self.floor_share) {
            self.write_choice(f, choice, share)?;
        }
        for Estimated { plan_in_words, estimate, .. } in self.every_schedule.iter().flatten() {
            write!(f, "\nschedule {plan_in_words}\n  expected: {estimate}")?;
        }
        for given in &self.given {
            match given {
                Given::Legal(Estimated { plan_in_words, estimate, .. }) => {
                    write!(f, "\ngiven: {plan_in_words}\n  expected: {estimate}")?;
                }
                Given::Illegal { plan, refused } => {
                    write!(f, "\ngiven: {plan}\n  refused: {refused}")?;
                }
            }
        }
        Ok(())
    }
}

impl Report<'_> {
    fn write_choice(&self, f: &mut fmt::Formatter<'_>, choice: &Choice, share: f64) -> fmt::Result {
        let numbers = serde_json::to_string(&choice.plan).map_err(|_| fmt::Error)?;
        write!(f, "\nnumbers: {numbers}\nexpected: {}", choice.estimate)?;
        let DeviceFloor { microseconds, costs } = &self.floor;
        write!(
            f,
            "\nfloor: {microseconds:.1} us: {} bytes at {} GB/s, a launch {:.1} us; \
             {:.1} % of the expected time",
            self.problem.bytes,
            costs.read_gigabytes_per_second,
            costs.launch_microseconds,
            share * 100.0
        )?;
        for refusal in &choice.refused {
            write!(f, "\nnot {refusal}")?;
        }
        for runner_up in &choice.runners_up {
            write!(f, "\nrunner-up: {}\n  expected: {}", runner_up.plan, runner_up.estimate)?;
        }
        Ok(())
    }
}

impl fmt::Display for Canonical {
    /// A line for the problem and one for each dimension, from the largest stride to the smallest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read = match self.direction {
            Direction::Along => "along the reduction",
            Direction::Across => "across outputs",
        };
        writeln!(
            f,
            "problem: {} {} of {} elements, read {read}, with accumulators of {} bytes",
            self.outputs,
            if self.outputs == 1 { "output" } else { "outputs" },
            self.reduction_len,
            self.accumulator_bytes,
        )?;
        let second = |stride: Option<usize>| match stride {
            Some(stride) => format!(", of the second input {stride}"),
            None => String::new(),
        };
        for Kept { extent, stride, second_stride, output_stride } in &self.kept {
            let second = second(*second_stride);
            writeln!(
                f,
                "  kept: {extent}, stride {stride}{second}, of the output {output_stride}"
            )?;
        }
        for Reduced { extent, stride, second_stride, position_stride } in &self.reduced {
            write!(f, "  reduced: {extent}, stride {stride}{}", second(*second_stride))?;
            match position_stride {
                0 => writeln!(f)?,
                stride => writeln!(f, ", of positions {stride}")?,
            }
        }
        Ok(())
    }
}
