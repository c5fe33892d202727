//! Problems, devices and plans made from arbitrary bytes, for property tests and fuzz targets.
//!
//! The same bytes always make the same values. Bytes that run out count as zeros, which make the
//! simplest values, so shorter inputs are simpler.
#![allow(dead_code, reason = "each test file uses a part of this one")]

pub(crate) mod walk;

use reduce_planner::{
    Access, AppliedProblem, AppliedSpec, Combine, Device, Direction, ElementCost, ElementType,
    InputSpec, Merge, OperatorClass, OutputSpec, Plan, Problem, ProblemError, Schedule, SecondSpec,
    row_major_strides,
};

/// Bytes that decide.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// The next bytes, as many as there are.
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    /// True one time in `times`.
    pub(crate) fn once_in(&mut self, times: u8) -> bool {
        self.byte() % times == times - 1
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        let number = u32::from_le_bytes([self.byte(), self.byte(), self.byte(), 0]);
        number as usize % end
    }

    /// A number that is small, beside a power of two, or anything.
    pub(crate) fn number(&mut self) -> u64 {
        match self.byte() % 4 {
            0 => u64::from(self.byte() % 9),
            1 => 1 << (self.byte() % 12),
            2 => (1u64 << (self.byte() % 64)).wrapping_add(u64::from(self.byte() % 3)) - 1,
            _ => {
                let mut bytes = [0; 8];
                let count = 1 + usize::from(self.byte() % 8);
                let taken = self.take(count);
                bytes[..taken.len()].copy_from_slice(taken);
                u64::from_le_bytes(bytes)
            }
        }
    }

    fn small(&mut self) -> u32 {
        self.number() as u32
    }
}

const NAMES: [&str; 6] = ["sum", "sum(4", "s m", "", "\"sum\"", "sum | kept 2:1:1"];

/// Any operator that a caller may describe.
pub(crate) fn operator(bytes: &mut Bytes<'_>) -> OperatorClass {
    let fields = 1 + bytes.below(6);
    let mut operator = match bytes.once_in(16) {
        true => OperatorClass::new(bytes.pick(&NAMES), bytes.number() as usize)
            .fields(bytes.number() as usize),
        false => OperatorClass::new(bytes.pick(&NAMES), 4 * fields).fields(fields),
    };
    let flags = bytes.byte();
    operator.positional = flags & 1 != 0;
    if flags & 2 != 0 {
        operator.element_cost = ElementCost::Exponential;
    }
    operator.blockwise = flags & 4 != 0;
    operator.defined_on_empty = flags & 8 == 0;
    operator.passes_bytes = (flags & 16 != 0).then_some(operator.accumulator_bytes);
    operator
}

fn element(bytes: &mut Bytes<'_>) -> ElementType {
    bytes.pick(&ElementType::ALL)
}

fn elements(bytes: &mut Bytes<'_>) -> Vec<ElementType> {
    let count = 1 + bytes.below(3);
    (0..count).map(|_| element(bytes)).collect()
}

/// Strides of a tensor of this shape with a random order of its axes, gaps between rows, and
/// repeated axes.
pub(crate) fn strides(bytes: &mut Bytes<'_>, shape: &[usize], repeats: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..shape.len()).collect();
    if bytes.flag() {
        for axis in (1..order.len()).rev() {
            order.swap(axis, bytes.below(axis + 1));
        }
    }
    let mut strides = vec![0usize; shape.len()];
    let mut step = if bytes.once_in(8) { 1 + bytes.below(4) } else { 1 };
    for &axis in order.iter().rev() {
        strides[axis] = step;
        step = step.saturating_mul(shape[axis].max(1));
        if bytes.once_in(10) {
            step = step.saturating_add(1 + bytes.below(9));
        }
        if repeats && bytes.once_in(12) {
            strides[axis] = 0;
        }
    }
    strides
}

const ALIGNMENTS: [usize; 8] = [256, 256, 256, 16, 8, 4, 2, 1];

/// A problem with extents from `extent`, of strides that a tensor library makes.
pub(crate) fn problem(
    bytes: &mut Bytes<'_>,
    operator: OperatorClass,
    mut extent: impl FnMut(&mut Bytes<'_>) -> usize,
) -> Result<Problem, ProblemError> {
    let rank = bytes.pick(&[0, 1, 1, 2, 2, 3, 3, 4, 4, 4]);
    let shape: Vec<usize> = (0..rank).map(|_| extent(bytes)).collect();
    // Every other axis, or any axes.
    let reduced = match bytes.byte() % 2 {
        0 => bytes.pick(&[0b0101, 0b1010]),
        _ => bytes.byte(),
    };
    let axes: Vec<usize> = (0..rank).filter(|&axis| reduced >> axis & 1 == 1).collect();
    let kept: Vec<usize> =
        (0..rank).filter(|axis| !axes.contains(axis)).map(|axis| shape[axis]).collect();
    let strides_of_input = strides(bytes, &shape, true);
    let alignment = bytes.pick(&ALIGNMENTS);
    let input =
        InputSpec { element: element(bytes), shape: &shape, strides: &strides_of_input, alignment };
    let second = bytes.once_in(4).then(|| {
        let alignment = bytes.pick(&ALIGNMENTS);
        (element(bytes), strides(bytes, &shape, true), alignment)
    });
    let second = second.as_ref().map(|(element, strides, alignment)| SecondSpec {
        element: *element,
        strides,
        alignment: *alignment,
    });
    let output_strides = bytes.once_in(4).then(|| strides(bytes, &kept, false));
    let results = elements(bytes);
    let output = OutputSpec { elements: &results, strides: output_strides.as_deref() };
    Problem::with_inputs(operator, &input, second.as_ref(), None, Some(&axes), &output)
}

/// A small row-major problem whose reduced axes lie between kept ones: a unit's loads go from one
/// reduced dimension to the next, and rows start anywhere.
fn interleaved(bytes: &mut Bytes<'_>, operator: OperatorClass) -> Option<Problem> {
    let shape: Vec<usize> = (0..4).map(|_| 1 + bytes.below(10)).collect();
    let input = InputSpec {
        element: bytes.pick(&[ElementType::F32, ElementType::F16, ElementType::U8]),
        shape: &shape,
        strides: &row_major_strides(&shape),
        alignment: 256,
    };
    let axes = bytes.pick(&[[0, 2], [1, 3]]);
    let output = OutputSpec { elements: &[ElementType::F32], strides: None };
    Problem::new(operator, &input, Some(&axes), &output).ok()
}

/// A problem of some thousand elements at most, and a device that may be.
pub(crate) fn small_case(bytes: &mut Bytes<'_>) -> Option<(Problem, Device)> {
    let device = device(bytes).filter(|device| device.check().is_ok());
    let mut device = device.unwrap_or_else(Device::h200);
    // Few and small cubes make the schedules of large problems.
    device.multiprocessors = bytes.pick(&[1, 2, 4, 132]);
    device.max_units_per_cube = bytes.pick(&[16, 64, 256, 1024]);
    let operator = operator(bytes);
    if bytes.once_in(3) {
        return Some((interleaved(bytes, operator)?, device));
    }
    let mut room = bytes.pick(&[64, 1000, 6000]);
    let extent = |bytes: &mut Bytes<'_>| {
        let extent = match bytes.byte() % 8 {
            0..4 => 1 + bytes.below(24),
            4 => 1 << bytes.below(9),
            5 if bytes.once_in(3) => 0,
            5 | 6 => bytes.below(200),
            _ => bytes.below(4000),
        };
        let extent = extent.min(room);
        room /= extent.max(1);
        extent
    };
    let problem = problem(bytes, operator, extent).ok()?;
    Some((problem, device))
}

/// A problem from arbitrary shapes, strides and axes, most of which are refused.
pub(crate) fn hostile_problem(bytes: &mut Bytes<'_>) -> Result<Problem, ProblemError> {
    let operator = operator(bytes);
    let numbers = |bytes: &mut Bytes<'_>, rank: usize| -> Vec<usize> {
        let rank = if bytes.once_in(16) { bytes.below(7) } else { rank };
        (0..rank).map(|_| bytes.number() as usize).collect()
    };
    let rank = bytes.below(6);
    let shape = numbers(bytes, rank);
    let strides = match bytes.flag() {
        true => row_major_strides(&shape),
        false => numbers(bytes, rank),
    };
    let alignment = bytes.number() as usize;
    let input = InputSpec { element: element(bytes), shape: &shape, strides: &strides, alignment };
    let axes = match bytes.byte() % 4 {
        0 => None,
        1 => Some((0..bytes.below(4)).map(|_| bytes.number() as usize).collect()),
        _ => Some((0..rank).filter(|_| bytes.flag()).collect::<Vec<_>>()),
    };
    let kept = rank.saturating_sub(axes.as_ref().map_or(rank, Vec::len));
    let output_strides = bytes.once_in(4).then(|| numbers(bytes, kept));
    let results: Vec<ElementType> = (0..bytes.below(9)).map(|_| element(bytes)).collect();
    let output = OutputSpec { elements: &results, strides: output_strides.as_deref() };
    let second_strides = bytes.once_in(4).then(|| numbers(bytes, rank));
    let second = second_strides.as_ref().map(|strides| SecondSpec {
        element: element(bytes),
        strides,
        alignment: bytes.number() as usize,
    });
    if bytes.once_in(8) {
        let spec = AppliedSpec {
            element: element(bytes),
            strides: second_strides.as_deref(),
            second: second.as_ref(),
            companions: &[],
            further: &[],
        };
        let applied = AppliedProblem::new(operator, &input, axes.as_deref(), &spec)?;
        return Ok(applied.problem().clone());
    }
    Problem::with_inputs(operator, &input, second.as_ref(), None, axes.as_deref(), &output)
}

/// A preset of which some numbers and flags are others, as in a file. [`Device::check`] may refuse
/// it. `None` if a number does not fit its field.
pub(crate) fn device(bytes: &mut Bytes<'_>) -> Option<Device> {
    let preset = if bytes.flag() { Device::software_adapter() } else { Device::h200() };
    let mut file = serde_json::to_value(preset).unwrap();
    let sparse = 2 + bytes.byte() % 40;
    alter(&mut file, bytes, sparse);
    serde_json::from_value(file).ok()
}

/// Alters one number or flag in `sparse`, most numbers to powers of two.
fn alter(value: &mut serde_json::Value, bytes: &mut Bytes<'_>, sparse: u8) {
    use serde_json::Value;

    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(|value| alter(value, bytes, sparse));
        }
        Value::Array(items) => {
            items.iter_mut().for_each(|value| alter(value, bytes, sparse));
            if bytes.once_in(sparse.max(8)) {
                items.pop();
            }
        }
        Value::Number(_) if bytes.once_in(sparse) => {
            let number = match bytes.byte() % 16 {
                0 => bytes.number(),
                1..4 => u64::from(bytes.byte() % 101),
                _ => 1 << (bytes.byte() % 13),
            };
            *value = number.into();
        }
        Value::Bool(flag) if bytes.once_in(sparse) => *flag = !*flag,
        _ => {}
    }
}

/// Any plan at all, often with powers of two.
pub(crate) fn plan(bytes: &mut Bytes<'_>) -> Plan {
    let direction = if bytes.flag() { Direction::Across } else { Direction::Along };
    let access = Access::new(direction)
        .with_vector(bytes.number() as usize)
        .with_peeled(bytes.flag())
        .with_realigned(bytes.once_in(4))
        .with_loads_in_flight(bytes.number() as usize)
        .with_outputs_in_flight(if bytes.flag() { 1 } else { bytes.number() as usize })
        .with_in_passes(bytes.once_in(4));
    let mut plan = Plan::new(access, schedule(bytes));
    if bytes.once_in(32) {
        plan.version = bytes.small();
    }
    plan
}

fn schedule(bytes: &mut Bytes<'_>) -> Schedule {
    let kind = bytes.byte() % 4;
    let combine = match bytes.flag() {
        true => Combine::Plane { lanes: bytes.small() },
        false => Combine::Shared,
    };
    match kind {
        0 => Schedule::Unit { units_per_cube: bytes.small() },
        1 => Schedule::Plane { lanes_per_output: bytes.small(), units_per_cube: bytes.small() },
        2 => Schedule::Cube {
            units_per_output: bytes.small(),
            outputs_per_cube: bytes.small(),
            combine,
        },
        _ => Schedule::Split {
            cubes_per_output: bytes.small(),
            units_per_output: bytes.small(),
            outputs_per_cube: bytes.small(),
            combine,
            merge: match bytes.flag() {
                true => Merge::SecondLaunch {
                    units_per_output: bytes.small(),
                    outputs_per_cube: bytes.small(),
                },
                false => Merge::LastCube,
            },
        },
    }
}

/// The plan with one of its numbers another one: often it may still run.
pub(crate) fn beside(bytes: &mut Bytes<'_>, plan: Plan) -> Plan {
    let number = bytes.number();
    let access = plan.access;
    let mut beside = plan;
    match bytes.byte() % 10 {
        0 => beside.access = access.with_vector(number as usize),
        1 => beside.access = access.with_peeled(!access.peeled),
        2 => beside.access = access.with_realigned(!access.realigned),
        3 => beside.access = access.with_loads_in_flight(number as usize),
        4 => beside.access = access.with_outputs_in_flight(number as usize),
        5 => {
            beside.access.direction = match access.direction {
                Direction::Along => Direction::Across,
                Direction::Across => Direction::Along,
            }
        }
        6 => beside.schedule = schedule(bytes),
        _ => {
            let number = number as u32;
            match &mut beside.schedule {
                Schedule::Unit { units_per_cube } => *units_per_cube = number,
                Schedule::Plane { lanes_per_output, units_per_cube } => {
                    *[lanes_per_output, units_per_cube][usize::from(bytes.flag())] = number;
                }
                Schedule::Cube { units_per_output, outputs_per_cube, .. } => {
                    *[units_per_output, outputs_per_cube][usize::from(bytes.flag())] = number;
                }
                Schedule::Split {
                    cubes_per_output, units_per_output, outputs_per_cube, ..
                } => {
                    let numbers = [cubes_per_output, units_per_output, outputs_per_cube];
                    *numbers.into_iter().nth(bytes.below(3)).unwrap() = number;
                }
                _ => {}
            }
        }
    }
    beside
}

/// The plan with another schedule of few units, and sometimes with several outputs in flight, or
/// with realigned or peeled rows.
pub(crate) fn resized(bytes: &mut Bytes<'_>, plan: Plan) -> Plan {
    let mut few = |most: usize| 1u32 << bytes.below(most + 1);
    let (units_per_output, outputs_per_cube) = (few(4), few(4));
    let cubes_per_output = 1 + few(3);
    let combine = Combine::Shared;
    let units_per_cube = units_per_output * outputs_per_cube;
    let mut access = plan.access;
    let mut kinds = 4;
    match bytes.byte() % 4 {
        0 => {
            let (loads, outputs) = bytes.pick(&[(1, 5), (2, 2), (4, 2), (4, 4), (8, 2)]);
            access = access.with_loads_in_flight(loads).with_outputs_in_flight(outputs);
            access = match bytes.once_in(4) {
                true => access.with_vector(2).with_peeled(true),
                false => access.with_peeled(false),
            };
            kinds = 2;
        }
        1 => {
            access = access.with_vector(bytes.pick(&[2, 4])).with_realigned(true);
            access = access.with_peeled(false);
        }
        2 => access = access.with_vector(bytes.pick(&[2, 4, 8])).with_peeled(true),
        _ => {}
    }
    let schedule = match bytes.byte() % kinds {
        0 => Schedule::Plane { lanes_per_output: units_per_output, units_per_cube },
        1 => Schedule::Unit { units_per_cube },
        2 => Schedule::Cube { units_per_output, outputs_per_cube, combine },
        _ => Schedule::Split {
            cubes_per_output,
            units_per_output,
            outputs_per_cube,
            combine,
            merge: Merge::SecondLaunch { units_per_output: 1, outputs_per_cube: 1 },
        },
    };
    Plan::new(access, schedule)
}

/// `text` with a few characters removed, replaced, repeated or inserted.
pub(crate) fn edited(bytes: &mut Bytes<'_>, text: &str) -> String {
    const PIECES: [&str; 12] =
        ["0", "1", "9", "-", ".", "\"", ":", ",", "{", "}", "[", "99999999999999999999"];
    let mut text: Vec<char> = text.chars().collect();
    for _ in 0..bytes.below(6) {
        let start = bytes.below(text.len() + 1);
        let end = (start + bytes.below(8)).min(text.len());
        match bytes.byte() % 8 {
            0 => drop(text.drain(start..end)),
            1 => text.truncate(start),
            2 => {
                let repeated = text[start..end].to_vec();
                drop(text.splice(start..start, repeated));
            }
            3 => drop(text.splice(start..end, bytes.pick(&PIECES).chars())),
            4 => drop(text.splice(start..start, [char::from(bytes.byte())])),
            _ => {
                // Another number in place of one leaves the text readable.
                let digit = char::from(b'0' + bytes.byte() % 10);
                let digits = text[start..].iter_mut().find(|old| old.is_ascii_digit());
                digits.into_iter().for_each(|old| *old = digit);
            }
        }
    }
    text.into_iter().collect()
}
