//! What the program tells, in words and as JSON.

use std::{collections::BTreeMap, fmt};

use reduce_examples::Function;
use reduce_kernels::{
    Device, ElementType,
    planner::{Choice, Direction, Estimate, Explained, Planned, Problem},
    top_k::Over,
};
use reduce_programs::Floor;
use serde::Serialize;

use crate::described::{Described, Tensor};

/// Everything about the plan of a reduction.
#[derive(Serialize)]
#[serde(bound(serialize = "P: Serialize, P::Refusal: Serialize"))]
pub(crate) struct Report<'a, P: Explained> {
    #[serde(flatten)]
    function: Function,
    #[serde(flatten)]
    parameters: &'a BTreeMap<&'static str, f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    probabilities: Option<Over>,
    #[serde(flatten)]
    input: &'a Tensor,
    #[serde(skip_serializing_if = "Option::is_none")]
    second: Option<&'a Tensor>,
    axes: &'a [usize],
    problem: Canonical,
    device: &'a str,
    /// `None` if there is nothing to launch.
    choice: Option<Choice<P>>,
    plan_in_words: String,
    expected_microseconds: f64,
    floor: DeviceFloor,
    /// The floor over the expected time.
    #[serde(skip_serializing_if = "Option::is_none")]
    floor_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    every_schedule: Option<Vec<Estimated<P>>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    given: Vec<Given<P>>,
}

/// The problem in canonical form.
#[derive(Serialize)]
pub(crate) struct Canonical {
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
    /// Of a reduction.
    #[serde(skip_serializing_if = "Option::is_none")]
    position_stride: Option<usize>,
    /// Of an application or a scan.
    #[serde(skip_serializing_if = "Option::is_none")]
    output_stride: Option<usize>,
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
pub(crate) struct Estimated<P> {
    plan: P,
    plan_in_words: String,
    expected_microseconds: f64,
    estimate: Estimate,
}

/// A plan from the command line.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Given<P> {
    /// It may run.
    Legal(Estimated<P>),
    /// It may not.
    Illegal { plan: P, refused: String },
}

impl<P> Given<P> {
    pub(crate) fn new(plan: P, planned: &impl Planned<Plan = P>, device: &Device) -> Self {
        let told = planned
            .estimate(&plan, device)
            .and_then(|estimate| Ok((planned.sentence(&plan, device)?, estimate)));
        match told {
            Ok((sentence, estimate)) => Self::Legal(Estimated::new(plan, sentence, estimate)),
            Err(error) => Self::Illegal { plan, refused: error.to_string() },
        }
    }

    pub(crate) fn may_run(&self) -> bool {
        matches!(self, Self::Legal(_))
    }
}

impl<P> Estimated<P> {
    pub(crate) fn new(plan: P, plan_in_words: String, estimate: Estimate) -> Self {
        let expected_microseconds = estimate.microseconds();
        Self { plan, plan_in_words, expected_microseconds, estimate }
    }
}

impl Canonical {
    /// A problem with the types of its results and the bytes that must move. `output` has the
    /// strides of the reduced dimensions in the output, if it has them.
    pub(crate) fn new(
        problem: &Problem,
        results: &[ElementType],
        bytes: u64,
        output: Option<&[usize]>,
    ) -> Self {
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
            position_stride: output.is_none().then_some(dim.position_stride),
            output_stride: output.map(|strides| strides[nth]),
        });
        Self {
            results: results.to_vec(),
            direction: problem.direction(),
            outputs: problem.outputs(),
            reduction_len: problem.reduction_len(),
            kept: kept.collect(),
            reduced: reduced.collect(),
            alignment: problem.alignment(),
            accumulator_bytes: problem.operator().accumulator_bytes,
            accumulator_fields: problem.operator().fields,
            bytes,
        }
    }
}

impl DeviceFloor {
    fn new(bytes: u64, device: &Device) -> Self {
        let costs = Floor {
            read_gigabytes_per_second: device.profile.bandwidth.max(1) as f64 / 1e9,
            launch_microseconds: device.profile.launch_ns as f64 / 1e3,
        };
        // In a stream of calls, the host launches the next one while the device moves the bytes.
        let moving = bytes as f64 / costs.read_gigabytes_per_second / 1e3;
        Self { microseconds: moving.max(costs.launch_microseconds), costs }
    }
}

impl<'a, P: Explained> Report<'a, P> {
    /// The choice comes with a sentence about it.
    pub(crate) fn new(
        described: &'a Described,
        problem: Canonical,
        device: &'a Device,
        choice: Option<(Choice<P>, String)>,
        every_schedule: Option<Vec<Estimated<P>>>,
        given: Vec<Given<P>>,
    ) -> Self {
        let floor = DeviceFloor::new(problem.bytes, device);
        let (choice, plan_in_words) = choice.unzip();
        let expected = choice.as_ref().map(Choice::expected_microseconds);
        Self {
            function: described.function(),
            parameters: &described.parameters,
            probabilities: described.probabilities,
            input: &described.input,
            second: described.second.as_ref(),
            axes: &described.axes,
            problem,
            device: &device.name,
            plan_in_words: plan_in_words
                .unwrap_or_else(|| "nothing to launch: the result has no elements".into()),
            expected_microseconds: expected.unwrap_or(0.0),
            floor_share: expected.map(|expected| floor.microseconds / expected),
            floor,
            choice,
            every_schedule,
            given,
        }
    }
}

impl<P: Explained + fmt::Display + Serialize> fmt::Display for Report<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function, input: Tensor { dtype, shape, .. }, axes, problem, device, .. } = self;
        write!(f, "{function} of {dtype} {shape:?}")?;
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

impl<P: Explained + fmt::Display + Serialize> Report<'_, P> {
    fn write_choice(
        &self,
        f: &mut fmt::Formatter<'_>,
        choice: &Choice<P>,
        share: f64,
    ) -> fmt::Result {
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
        for dim in &self.reduced {
            let Reduced { extent, stride, second_stride, .. } = dim;
            write!(f, "  reduced: {extent}, stride {stride}{}", second(*second_stride))?;
            match (dim.position_stride, dim.output_stride) {
                (Some(stride @ 1..), _) => writeln!(f, ", of positions {stride}")?,
                (_, Some(stride)) => writeln!(f, ", of the output {stride}")?,
                _ => writeln!(f)?,
            }
        }
        Ok(())
    }
}
