//! Reductions applied to their own elements: every function, by every plan, against f64.

use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    ElementType, ErrorKind, Operator, ReduceError, TensorDescription,
    cubecl::{prelude::*, std::tensor::TensorHandle},
    normalize::{AppliedReduction, group_norm, instance_norm},
    operator::{Apply, One},
    planner::{
        Access, AppliedKind, AppliedPlan, Combine, Direction, Plan, PlanError, Schedule,
        force_applied, row_major_strides, span,
    },
};

use crate::{
    case::Case,
    run::{POISON, capable_device, decode, encode, read, source, tensor, tensor_of},
};

/// A function of a slice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Function {
    Softmax,
    LogSoftmax,
    TemperedSoftmax,
    TemperedLogSoftmax,
    LayerNorm,
    RmsNorm,
    NormalizeL2,
    Standardize,
}

use Function::*;

pub(crate) const TEMPERATURE: f64 = 2.5;
pub(crate) const EPS: f64 = 1e-3;

impl Function {
    /// Whether it is tested with a weight and a bias.
    pub(crate) fn is_affine(self) -> bool {
        matches!(self, LayerNorm | RmsNorm)
    }

    /// The outputs of a slice in f64, and the error bound of each in units of the accumulator's
    /// epsilon.
    pub(crate) fn naive(self, x: &[f64], weight: &[f64], bias: &[f64]) -> Vec<(f64, f64)> {
        let n = x.len() as f64;
        let most = x.iter().fold(0f64, |most, value| most.max(value.abs()));
        let tempered = |temperature: f64, log: bool| -> Vec<(f64, f64)> {
            let scaled: Vec<f64> = x.iter().map(|value| value / temperature).collect();
            let max = scaled.iter().fold(f64::NEG_INFINITY, |a, &b| if b > a { b } else { a });
            let sum = total(scaled.iter().map(|value| (value - max).exp()));
            let share = |&value: &f64| match log {
                true => (value - max - sum.ln(), 16.0 * (1.0 + max - value + sum.ln() + most)),
                false => {
                    let share = (value - max).exp() / sum;
                    (share, share * (16.0 + 4.0 * (max - value) + most))
                }
            };
            scaled.iter().map(share).collect()
        };
        let affine = |shift: f64, factor: f64| -> Vec<(f64, f64)> {
            let outputs = x.iter().zip(weight.iter().zip(bias)).map(|(value, (weight, bias))| {
                let size = (value.abs() + shift.abs() + most) * factor;
                let exact = (value - shift) * factor;
                (exact * weight + bias, 8.0 * (size * weight.abs() + exact.abs() + bias.abs()))
            });
            outputs.collect()
        };
        let mean = total(x.iter().copied()) / n;
        let squares = |shift: f64| total(x.iter().map(|value| (value - shift).powi(2)));
        match self {
            Softmax => tempered(1.0, false),
            LogSoftmax => tempered(1.0, true),
            TemperedSoftmax => tempered(TEMPERATURE, false),
            TemperedLogSoftmax => tempered(TEMPERATURE, true),
            LayerNorm => affine(mean, (squares(mean) / n + EPS).sqrt().recip()),
            Standardize => affine(mean, (squares(mean) / (n - 1.0).max(0.0) + EPS).sqrt().recip()),
            RmsNorm => affine(0.0, (squares(0.0) / n + EPS).sqrt().recip()),
            NormalizeL2 => affine(0.0, squares(0.0).sqrt().max(EPS).recip()),
        }
    }
}

/// The sum of these values, with the rounding errors of its additions (Neumaier, 1974): the oracle
/// of f64 has no wider type.
fn total(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0f64, 0f64);
    for value in values {
        let next = sum + value;
        lost += match sum.abs() >= value.abs() {
            true => (sum - next) + value,
            false => (value - next) + sum,
        };
        sum = next;
    }
    sum + lost
}

/// How a plan is made.
#[derive(Clone, Copy, Debug)]
enum Way {
    Chosen,
    Forced(AppliedKind),
    Planned(AppliedPlan),
}

/// Where the output lies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    RowMajor,
    /// With a gap after each element.
    Gaps,
}

/// The elements of each slice: their offsets in the input and in the output, and their row-major
/// number.
pub(crate) fn slices(case: &Case, output: &[usize]) -> Vec<Vec<(usize, usize)>> {
    let rank = case.shape.len();
    let kept_strides = row_major_strides(&case.kept_shape());
    let mut slices = vec![Vec::new(); case.kept_shape().iter().product()];
    let row_major = row_major_strides(&case.shape);
    for number in 0..case.shape.iter().product() {
        let at = |axis: usize| number / row_major[axis] % case.shape[axis];
        let kept = (0..rank).filter(|axis| !case.axes.contains(axis));
        let slice: usize = kept.zip(&kept_strides).map(|(axis, stride)| at(axis) * stride).sum();
        let offset =
            |strides: &[usize]| -> usize { (0..rank).map(|axis| at(axis) * strides[axis]).sum() };
        slices[slice].push((offset(&case.strides), offset(output)));
    }
    slices
}

/// Runs a function on a case by a plan and compares it with f64.
fn check(
    client: &Client,
    function: Function,
    case: &Case,
    element: ElementType,
    layout: Layout,
    plan: Way,
) -> Result<(), ReduceError> {
    let mut rng = StdRng::seed_from_u64(case.span() as u64);
    let mut draw = |len: usize, from: f64, to: f64| -> Vec<f64> {
        let values: Vec<f64> = (0..len).map(|_| rng.random_range(from..to)).collect();
        decode(element, &encode(element, &values))
    };
    let data = draw(case.span(), -3.0, 5.0);
    let mut axes = case.axes.clone();
    axes.sort_unstable();
    let of_axes: Vec<usize> = axes.iter().map(|&axis| case.shape[axis]).collect();
    let len = case.reduction_len();
    let (weight, bias) = match function.is_affine() {
        true => (draw(len, 0.5, 2.0), draw(len, -1.0, 1.0)),
        false => (vec![1.0; len], vec![0.0; len]),
    };
    let input = tensor_of(client, element, &encode(element, &data), &case.shape, &case.strides);
    let operand = |values: &[f64]| {
        let strides = row_major_strides(&of_axes);
        tensor_of(client, element, &encode(element, values), &of_axes, &strides)
    };
    let operands = [operand(&weight), operand(&bias)];
    let step = if layout == Layout::Gaps { 2 } else { 1 };
    let strides: Vec<usize> =
        row_major_strides(&case.shape).iter().map(|stride| step * stride).collect();
    let held = (span(&case.shape, &strides).unwrap() + 1).max(2);
    let output =
        tensor_of(client, element, &vec![POISON; held * element.bytes()], &case.shape, &strides);

    let plan = match function {
        Softmax => {
            launch(client, reduce_kernels::normalize::Softmax.of(&input, &axes[..]), plan, &output)?
        }
        LogSoftmax => launch(
            client,
            reduce_kernels::normalize::LogSoftmax.of(&input, &axes[..]),
            plan,
            &output,
        )?,
        TemperedSoftmax => {
            let tempered = reduce_kernels::normalize::TemperedSoftmax { temperature: TEMPERATURE };
            launch(client, tempered.of(&input, &axes[..]), plan, &output)?
        }
        TemperedLogSoftmax => {
            let tempered =
                reduce_kernels::normalize::TemperedLogSoftmax { temperature: TEMPERATURE };
            launch(client, tempered.of(&input, &axes[..]), plan, &output)?
        }
        LayerNorm => {
            let norm = reduce_kernels::normalize::LayerNorm { eps: EPS }.of(&input, &axes[..]);
            let norm = norm.operand(&operands[0], &axes[..]).operand(&operands[1], &axes[..]);
            launch(client, norm, plan, &output)?
        }
        RmsNorm => {
            let norm = reduce_kernels::normalize::RmsNorm { eps: EPS }.of(&input, &axes[..]);
            let norm = norm.operand(&operands[0], &axes[..]).operand(&operands[1], &axes[..]);
            launch(client, norm, plan, &output)?
        }
        NormalizeL2 => {
            let norm = reduce_kernels::normalize::NormalizeL2 { eps: EPS }.of(&input, &axes[..]);
            launch(client, norm, plan, &output)?
        }
        Standardize => {
            let norm = reduce_kernels::normalize::Standardize { correction: 1.0, eps: EPS };
            launch(client, norm.of(&input, &axes[..]), plan, &output)?
        }
    };

    let bytes = client.read_one(output.handle.clone()).expect("the device answers");
    let found = decode(element, &bytes[..held * element.bytes()]);
    let mut written = vec![false; held];
    for (nth, slice) in slices(case, &strides).iter().enumerate() {
        let values: Vec<f64> = slice.iter().map(|&(input, _)| data[input]).collect();
        let expected = function.naive(&values, &weight, &bias);
        for (at, (&(_, output), (expected, bound))) in slice.iter().zip(expected).enumerate() {
            written[output] = true;
            let bound = error_bound(element, bound, expected);
            assert!(
                (found[output] - expected).abs() <= bound,
                "{function:?} of {element}: element {at} of slice {nth} is {}, expected \
                 {expected} within {bound}\n{case:?} {layout:?}\n{plan}",
                found[output],
            );
        }
    }
    for (output, bytes) in bytes[..held * element.bytes()].chunks(element.bytes()).enumerate() {
        let poisoned = bytes.iter().all(|&byte| byte == POISON);
        assert!(written[output] || poisoned, "written at {output}: {case:?} {layout:?}\n{plan}");
    }
    Ok(())
}

/// The error of an element that is stored as this type, if what was stored is wrong by `units` of
/// the accumulator's epsilon.
pub(crate) fn error_bound(element: ElementType, units: f64, expected: f64) -> f64 {
    let epsilon = if element == ElementType::F64 { f64::EPSILON } else { f32::EPSILON.into() };
    let (rounding, least) = match element {
        ElementType::F16 => (2f64.powi(-10), 2f64.powi(-24)),
        // Vulkan leaves open whether conversions round to the nearest or towards 0.
        ElementType::BF16 => (2f64.powi(-7), 0.0),
        _ => (epsilon, 2f64.powi(-126)),
    };
    units * epsilon + expected.abs() * rounding + least
}

/// Launches by a plan of this kind, or by the one that is chosen, and returns the plan.
fn launch<O: Operator, F: Apply<Results = O::Results, Outputs = One>>(
    client: &Client,
    mut applied: AppliedReduction<'_, O, F, TensorHandle>,
    way: Way,
    output: &TensorHandle,
) -> Result<String, ReduceError> {
    let device = capable_device(client);
    let (problem, reduction) = applied.problems()?;
    let plan = match way {
        Way::Chosen => None,
        Way::Forced(kind) => Some(force_applied(kind, &problem, &reduction, &device)?),
        Way::Planned(plan) => Some(plan),
    };
    let words = plan.map_or("as chosen".into(), |plan| plan.to_string());
    if let Some(plan) = plan {
        applied = applied.with_plan(plan);
    }
    let binding = output.clone().binding();
    // The plan may have plane operations that the device does not report.
    applied.plan_for(&device).run_into_with_results(client, binding)?;
    Ok(words)
}

/// Shapes that are held, and shapes that are not, along and across.
pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::contiguous(&[7, 64], &[1]),
        Case::contiguous(&[5, 1001], &[1]),
        Case::contiguous(&[3, 4096], &[1]),
        Case::contiguous(&[2, 40_001], &[1]),
        Case::contiguous(&[1, 200_000], &[1]),
        Case::contiguous(&[600, 3], &[1]),
        Case::contiguous(&[9, 1], &[1]),
        Case::contiguous(&[300], &[0]),
        Case::contiguous(&[3, 129, 24], &[1]),
        Case::contiguous(&[2, 70, 7], &[1]),
        Case::contiguous(&[5, 4, 77], &[0, 2]),
        Case::contiguous(&[4, 6, 10, 24], &[1, 3]),
        Case::pitched(&[6, 50], 64, &[1]),
        Case::pitched(&[60, 50], 64, &[0]),
        Case::permuted(&[24, 10, 12], &[2, 0, 1], &[1]),
        Case::sliced(&[9, 80], &[2, 2], &[1]),
    ]
}

/// Every case by every plan that applies to it.
pub(crate) fn every_plan(client: &Client) {
    let mut runs = [0; AppliedKind::ALL.len()];
    for case in cases() {
        for (nth, kind) in AppliedKind::ALL.into_iter().enumerate() {
            for layout in [Layout::RowMajor, Layout::Gaps] {
                let done =
                    check(client, Softmax, &case, ElementType::F32, layout, Way::Forced(kind));
                match done {
                    Ok(()) => runs[nth] += 1,
                    Err(error) if has_no_plan(&error) => {}
                    Err(other) => panic!("{case:?} {kind}: {other}"),
                }
            }
        }
        check(client, Softmax, &case, ElementType::F32, Layout::RowMajor, Way::Chosen).unwrap();
    }
    // Few devices have shared memory for tiles that are too long for registers.
    let [held, _, by_cubes, read_again, separately] = runs;
    assert!(held >= 26 && read_again >= 30 && separately >= 30, "{runs:?} runs by each kind");
    assert!(
        by_cubes >= 30 || !capable_device(client).forward_progress,
        "{runs:?} runs by each kind"
    );
}

/// A plan for peeled rows along the reduction, with these rows realigned. Other plans have none.
fn realigned(plan: AppliedPlan) -> Option<AppliedPlan> {
    let of = |access: Access| {
        // Rows that are held for two passes are read as they lie.
        let moved = access.with_in_passes(false).with_peeled(false).with_realigned(true);
        (access.direction == Direction::Along && access.peeled).then_some(moved)
    };
    let planned = |plan: Plan| Some(Plan::new(of(plan.access)?, plan.schedule));
    Some(match plan {
        AppliedPlan::Held { plan, in_shared, cubes_per_output } => {
            AppliedPlan::Held { plan: planned(plan)?, in_shared, cubes_per_output }
        }
        AppliedPlan::ReadAgain(plan) => AppliedPlan::ReadAgain(planned(plan)?),
        AppliedPlan::Separately { reduce, mut apply } => {
            apply.access = of(apply.access)?;
            // Short rows may be reduced in single elements, which have no edges.
            let reduce = if reduce.access.vector > 1 { planned(reduce)? } else { reduce };
            AppliedPlan::Separately { reduce, apply }
        }
        _ => return None,
    })
}

/// Realigned rows by every plan: whole and sliced, of several dimensions, with outputs that are
/// written in vectors and in single elements, and with operands.
pub(crate) fn realigned_rows(client: &Client) {
    let device = capable_device(client);
    let mut runs = [0; AppliedKind::ALL.len()];
    for case in [
        Case::contiguous(&[5, 1001], &[1]),
        Case::contiguous(&[5, 4, 77], &[0, 2]),
        Case::pitched(&[9, 131], 133, &[1]),
        // Rows of the output begin at vectors, and those of the input do not.
        Case::pitched(&[9, 1024], 1025, &[1]),
        Case::pitched(&[3, 5, 64], 65, &[0, 2]),
        Case::contiguous(&[2, 40_001], &[1]),
    ] {
        let description =
            TensorDescription::strided(ElementType::F32, case.shape.clone(), case.strides.clone());
        let softmax = reduce_kernels::normalize::Softmax.of(&description, &case.axes[..]);
        let (problem, reduction) = softmax.plan_for(&device).problems().unwrap();
        for (nth, kind) in AppliedKind::ALL.into_iter().enumerate() {
            let Ok(plan) = force_applied(kind, &problem, &reduction, &device) else { continue };
            let plan = realigned(plan).unwrap_or_else(|| panic!("{plan}"));
            for (function, layout) in [
                (Softmax, Layout::RowMajor),
                (LayerNorm, Layout::RowMajor),
                (LayerNorm, Layout::Gaps),
            ] {
                check(client, function, &case, ElementType::F32, layout, Way::Planned(plan))
                    .unwrap();
                runs[nth] += 1;
            }
        }
    }
    let [held, _, _, read_again, separately] = runs;
    assert!(held > 0 && read_again > 0 && separately > 0, "{runs:?} runs by each kind");
}

/// Whether the planner has no plan for what was asked.
pub(crate) fn has_no_plan(error: &ReduceError) -> bool {
    matches!(source(error), Some(PlanError::NoAppliedPlan { .. }))
}

/// Every function by every plan, with operands where it takes them.
pub(crate) fn every_function(client: &Client) {
    let functions = [
        LogSoftmax,
        TemperedSoftmax,
        TemperedLogSoftmax,
        LayerNorm,
        RmsNorm,
        NormalizeL2,
        Standardize,
    ];
    for function in functions {
        for kind in AppliedKind::ALL {
            for case in [Case::contiguous(&[5, 1001], &[1]), Case::contiguous(&[3, 40, 24], &[1])] {
                let layout = Layout::RowMajor;
                match check(client, function, &case, ElementType::F32, layout, Way::Forced(kind)) {
                    Ok(()) => {}
                    Err(error) if has_no_plan(&error) => {}
                    Err(other) => panic!("{case:?} {kind}: {other}"),
                }
            }
        }
    }
}

/// Every floating point type that the device has.
pub(crate) fn every_type(client: &Client) {
    let device = capable_device(client);
    for element in [ElementType::F16, ElementType::BF16, ElementType::F64] {
        if !device.has(element) {
            println!("{}: not run, the device has no {element}", client.name());
            continue;
        }
        for function in [Softmax, LayerNorm] {
            for case in [Case::contiguous(&[5, 1001], &[1]), Case::contiguous(&[3, 40, 24], &[1])] {
                check(client, function, &case, element, Layout::RowMajor, Way::Chosen).unwrap();
            }
        }
    }
}

/// Tiles that cubes hold together: many cubes, cubes without loads, edges of rows, every type, and
/// launches that find the numbers which earlier ones have left.
pub(crate) fn held_by_cubes(client: &Client) {
    let device = capable_device(client);
    if !device.forward_progress {
        println!("{}: not run, cubes may not wait for cubes", client.name());
        return;
    }
    let planned = |access: Access, units_per_output, outputs_per_cube, cubes_per_output| {
        let combine = Combine::Shared;
        let schedule = Schedule::Cube { units_per_output, outputs_per_cube, combine };
        let plan = Plan::new(access, schedule);
        Way::Planned(AppliedPlan::Held { plan, in_shared: 0, cubes_per_output })
    };
    let along = Access::new(Direction::Along);
    let across = Access::new(Direction::Across);
    let rows = Case::contiguous(&[70, 1001], &[1]);
    let columns = Case::contiguous(&[3, 300, 24], &[1]);
    let ways = [
        (&rows, planned(along.with_loads_in_flight(2), 64, 1, 8)),
        (&rows, planned(along.with_loads_in_flight(4), 128, 1, 2)),
        (&rows, planned(along.with_loads_in_flight(8), 64, 2, 7)),
        (&rows, planned(along.with_loads_in_flight(1), 64, 1, 21)),
        (&columns, planned(across.with_loads_in_flight(3), 16, 4, 7)),
        (&columns, planned(across.with_loads_in_flight(5), 64, 2, 4)),
        (&columns, planned(across.with_vector(2).with_loads_in_flight(5), 16, 4, 5)),
        (&columns, planned(across.with_vector(2).with_loads_in_flight(5), 16, 8, 4)),
    ];
    for _ in 0..3 {
        for (case, way) in ways {
            for function in [Softmax, LayerNorm] {
                check(client, function, case, ElementType::F32, Layout::RowMajor, way).unwrap();
            }
        }
    }
    for element in [ElementType::F16, ElementType::BF16, ElementType::F64] {
        if !device.has(element) {
            println!("{}: not run, the device has no {element}", client.name());
            continue;
        }
        let way = Way::Forced(AppliedKind::HeldByCubes);
        for function in [Softmax, LogSoftmax, LayerNorm, RmsNorm, NormalizeL2] {
            for case in
                [Case::contiguous(&[5, 10_001], &[1]), Case::contiguous(&[3, 900, 24], &[1])]
            {
                check(client, function, &case, element, Layout::RowMajor, way).unwrap();
            }
        }
    }
}

/// Cases and plans whose tiles are in registers and shared memory, in cubes small enough for every
/// device.
pub(crate) fn in_shared_memory() -> [(Case, AppliedPlan); 4] {
    let cube = |access, units_per_output, outputs_per_cube| {
        let combine = Combine::Shared;
        let schedule = Schedule::Cube { units_per_output, outputs_per_cube, combine };
        AppliedPlan::Held { plan: Plan::new(access, schedule), in_shared: 6, cubes_per_output: 1 }
    };
    let along = Access::new(Direction::Along).with_vector(4).with_loads_in_flight(2);
    let across = Access::new(Direction::Across).with_vector(4).with_loads_in_flight(2);
    [
        (Case::contiguous(&[5, 1001], &[1]), cube(along.with_peeled(true), 32, 1)),
        (Case::contiguous(&[9, 700], &[1]), cube(along, 32, 2)),
        (Case::contiguous(&[3, 120, 24], &[1]), cube(across, 16, 4)),
        (Case::contiguous(&[2, 61, 13], &[0, 1]), cube(across.with_vector(1), 16, 8)),
    ]
}

/// Tiles in registers and shared memory.
pub(crate) fn held_in_shared_memory(client: &Client) {
    for (case, plan) in in_shared_memory() {
        for function in [Softmax, LayerNorm] {
            let way = Way::Planned(plan);
            check(client, function, &case, ElementType::F32, Layout::RowMajor, way).unwrap();
        }
    }
}

/// A mean and a reciprocal come back with the elements, by every plan.
pub(crate) fn results_come_back(client: &Client) {
    let device = capable_device(client);
    let (rows, columns) = (6, 1001);
    let data: Vec<f32> = (0..rows * columns).map(|i| ((i * 37) % 101) as f32 / 8.0).collect();
    let input = tensor(client, &data, &[rows, columns], &[columns, 1]);
    for kind in AppliedKind::ALL {
        let norm =
            reduce_kernels::normalize::LayerNorm { eps: EPS }.of(&input, 1).plan_for(&device);
        let (problem, reduction) = norm.problems().unwrap();
        let Ok(plan) = force_applied(kind, &problem, &reduction, &device) else { continue };
        let (output, (means, reciprocals)) = norm.with_plan(plan).run_with_results(client).unwrap();
        assert_eq!(output.shape()[..], [rows, columns]);
        assert_eq!(means.shape()[..], [rows, 1], "{kind}: reduced axes stay with size 1");
        let means = read::<f32>(client, &means, rows);
        let reciprocals = read::<f32>(client, &reciprocals, rows);
        for (row, values) in data.chunks(columns).enumerate() {
            let values: Vec<f64> = values.iter().map(|&value| value.into()).collect();
            let mean = values.iter().sum::<f64>() / columns as f64;
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            let reciprocal = (squares / columns as f64 + EPS).sqrt().recip();
            assert!((f64::from(means[row]) - mean).abs() < 1e-5 * mean, "{kind}: mean of {row}");
            let found = f64::from(reciprocals[row]);
            assert!((found - reciprocal).abs() < 1e-5 * reciprocal, "{kind}: reciprocal of {row}");
        }
    }
}

/// NaN, infinities and empty rows, by every plan: what the documentation of each function says.
pub(crate) fn at_the_edges(client: &Client) {
    const NAN: f32 = f32::NAN;
    const INF: f32 = f32::INFINITY;
    let columns = 40;
    let mut rows = vec![vec![1.0f32; columns]; 6];
    rows[1][3] = NAN;
    rows[2][39] = INF;
    rows[3].fill(-INF);
    rows[4][0] = -INF;
    rows[5].fill(0.0);
    let count = rows.len();
    let input = tensor(client, &rows.concat(), &[count, columns], &[columns, 1]);
    let device = capable_device(client);
    let same = |found: f32, expected: f32| {
        (found - expected).abs() <= 1e-5 || found == expected || found.is_nan() && expected.is_nan()
    };
    for kind in AppliedKind::ALL {
        // The first two elements of each row.
        macro_rules! expect {
            ($applied:expr, $rows:expr) => {{
                let applied = $applied.plan_for(&device);
                let (problem, reduction) = applied.problems().unwrap();
                if let Ok(plan) = force_applied(kind, &problem, &reduction, &device) {
                    let output = applied.with_plan(plan).run(client).unwrap();
                    let found = read::<f32>(client, &output, count * columns);
                    for (row, expected) in $rows.into_iter().enumerate() {
                        let expected: [f32; 2] = expected;
                        let found = &found[row * columns..][..2];
                        let fits = same(found[0], expected[0]) && same(found[1], expected[1]);
                        let function = stringify!($applied);
                        assert!(
                            fits,
                            "{function} {kind}: row {row} begins {found:?}, not {expected:?}"
                        );
                    }
                }
            }};
        }
        let (all, others) = (1.0 / 40.0, 1.0 / 39.0);
        let nan = [NAN; 2];
        expect!(
            reduce_kernels::normalize::Softmax.of(&input, 1),
            [[all; 2], nan, nan, nan, [0.0, others], [all; 2]]
        );
        let (log_all, log_others) = (-(40f32.ln()), -(39f32.ln()));
        expect!(
            reduce_kernels::normalize::LogSoftmax.of(&input, 1),
            [[log_all; 2], nan, nan, nan, [-INF, log_others], [log_all; 2]]
        );
        expect!(
            reduce_kernels::normalize::LayerNorm { eps: 1e-5 }.of(&input, 1),
            [[0.0; 2], nan, nan, nan, nan, [0.0; 2]]
        );
        expect!(
            reduce_kernels::normalize::RmsNorm { eps: 1e-5 }.of(&input, 1),
            [[1.0; 2], nan, [0.0; 2], nan, [NAN, 0.0], [0.0; 2]]
        );
        let unit = 1.0 / 40f32.sqrt();
        expect!(
            reduce_kernels::normalize::NormalizeL2 { eps: 1e-12 }.of(&input, 1),
            [[unit; 2], nan, [0.0; 2], nan, [NAN, 0.0], [0.0; 2]]
        );
    }
    let empty = tensor::<f32>(client, &[], &[3, 0], &[0, 1]);
    let output = reduce_kernels::normalize::softmax(client, &empty, 1).unwrap();
    assert_eq!(output.shape()[..], [3, 0]);
}

/// Elements far outside the range of squares keep their direction.
pub(crate) fn norms_do_not_overflow(client: &Client) {
    for size in [1e-30f32, 1e30] {
        let data: Vec<f32> = (0..700).map(|i| size * (1 + i % 5) as f32).collect();
        let input = tensor(client, &data, &[700], &[1]);
        let output = reduce_kernels::normalize::l2_normalize(client, &input, 0, 0.0).unwrap();
        let norm = data.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        for (found, &element) in read::<f32>(client, &output, 700).iter().zip(&data) {
            let expected = f64::from(element) / norm;
            assert!((f64::from(*found) - expected).abs() < 1e-5 * expected, "{found} {expected}");
        }
    }
}

/// Operands over kept and over all axes, of another type, with axes of size 1.
pub(crate) fn operands(client: &Client) {
    use reduce_kernels::normalize::LayerNorm;
    let shape = [3, 5, 24];
    let data: Vec<f32> = (0..360).map(|i| ((i * 29) % 83) as f32 / 16.0).collect();
    let input = tensor(client, &data, &shape, &[120, 24, 1]);
    let channels: Vec<f32> = (0..5).map(|i| 1.0 + i as f32).collect();
    let weight = tensor(client, &channels, &[5], &[1]);
    let residual: Vec<f32> = (0..360).map(|i| i as f32).collect();
    let residual_tensor = tensor(client, &residual, &shape, &[120, 24, 1]);
    let repeated = tensor(client, &[3.0f32], &[1, 1], &[1, 1]);
    let plain = LayerNorm { eps: EPS }.of(&input, [0, 2]).run(client).unwrap();
    let plain = read::<f32>(client, &plain, 360);
    let norm = LayerNorm { eps: EPS }.of(&input, [0, 2]);
    let both = norm.operand(&weight, 1).operand(&residual_tensor, ..).run(client).unwrap();
    let norm = LayerNorm { eps: EPS }.of(&input, [0, 2]);
    let scaled = norm.operand(&repeated, [2, 1]).run(client).unwrap();
    let both = read::<f32>(client, &both, 360);
    let scaled = read::<f32>(client, &scaled, 360);
    for i in 0..360 {
        let expected = plain[i] * channels[i / 24 % 5] + residual[i];
        assert!((both[i] - expected).abs() <= 1e-4 * expected.abs().max(1.0), "{i}");
        assert!((scaled[i] - 3.0 * plain[i]).abs() <= 1e-5, "{i}");
    }
}

/// The same bits in every run, and what is wrong is said before anything is launched.
pub(crate) fn contract(client: &Client) {
    use reduce_kernels::normalize::{LayerNorm, Softmax};
    let data: Vec<f32> = (0..5 * 3001).map(|i| ((i * 31) % 1009) as f32 / 64.0).collect();
    let input = tensor(client, &data, &[5, 3001], &[3001, 1]);
    let bits = |output: TensorHandle| -> Vec<u32> {
        read::<f32>(client, &output, data.len()).into_iter().map(f32::to_bits).collect()
    };
    let first = bits(Softmax.of(&input, 1).run(client).unwrap());
    for _ in 0..20 {
        assert_eq!(bits(Softmax.of(&input, 1).run(client).unwrap()), first);
    }

    let error = Softmax.of(&input, 2).run(client).unwrap_err();
    assert_eq!(error.to_string(), "axis 2 is out of range for a tensor of rank 2");
    let weight = tensor(client, &[1.0f32; 4], &[4], &[1]);
    let error = LayerNorm { eps: EPS }.of(&input, 1).operand(&weight, 1).run(client).unwrap_err();
    assert!(error.to_string().contains("operand 0 has shape [4]"), "{error}");
    let error = Softmax.of(&input, 1).operand(&input, ..).run(client).unwrap_err();
    assert_eq!(error.to_string(), "`exponential_share` takes 0 operands, and 1 were given");
    let error = LayerNorm { eps: -1.0 }.of(&input, 1).run(client).unwrap_err();
    assert_eq!(error.to_string(), "`mean_rstd`: eps is -1, but must be a finite number, 0 or more");
    let error = Softmax.of(&input, 1).output_type(ElementType::Bool).run(client).unwrap_err();
    assert_eq!(error.to_string(), "`exponential_share` does not give elements of bool");
    let short = TensorHandle::new(input.handle.clone(), [6, 3001], [3001, 1], input.dtype);
    let error = Softmax.of(&short, 1).run(client).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Buffer);
    assert!(error.to_string().starts_with("the input spans 72024 bytes, "), "{error}");
    let other = tensor(client, &[0.0f32; 9], &[3, 3], &[3, 1]);
    let error = Softmax.of(&input, 1).run_into(client, other.binding()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape);
    let message = "the result has shape [5, 3001], the supplied output [3, 3]";
    assert_eq!(error.to_string(), message);
    // A plan that holds less than a row.
    let access = Access::new(Direction::Along);
    let schedule = Schedule::Unit { units_per_cube: 64 };
    let plan =
        AppliedPlan::Held { plan: Plan::new(access, schedule), in_shared: 0, cubes_per_output: 1 };
    let error = Softmax.of(&input, 1).with_plan(plan).run(client).unwrap_err();
    assert!(error.to_string().contains("3001 loads, and its units hold 1"), "{error}");
}

/// An output in place of the input, by every plan. wgpu binds no buffer for reading and writing.
pub(crate) fn in_place(client: &Client) {
    if !matches!(client.name(), "cuda" | "hip") {
        println!("{}: not run", client.name());
        return;
    }
    let device = capable_device(client);
    let data: Vec<f32> = (0..9 * 5003).map(|i| ((i * 31) % 1009) as f32 / 64.0).collect();
    for (shape, axis) in [([9, 5003], 1), ([5003, 9], 0)] {
        let strides = row_major_strides(&shape);
        for kind in AppliedKind::ALL {
            let input = tensor(client, &data, &shape, &strides);
            let softmax = || reduce_kernels::normalize::Softmax.of(&input, axis).plan_for(&device);
            let (problem, reduction) = softmax().problems().unwrap();
            let Ok(plan) = force_applied(kind, &problem, &reduction, &device) else { continue };
            for plan in [Some(plan), realigned(plan)].into_iter().flatten() {
                let input = tensor(client, &data, &shape, &strides);
                let softmax = || reduce_kernels::normalize::Softmax.of(&input, axis);
                let softmax = || softmax().plan_for(&device).with_plan(plan);
                let apart = softmax().run(client).unwrap();
                let apart = read::<f32>(client, &apart, data.len());
                softmax().run_into(client, input.clone().binding()).unwrap();
                assert_eq!(read::<f32>(client, &input, data.len()), apart, "{plan}");
            }
        }
    }
}

/// The sum in place of the residual and its normalisation in place of the other input, by every
/// plan, as a layer updates its stream.
pub(crate) fn residual_in_place(client: &Client) {
    if !matches!(client.name(), "cuda" | "hip") {
        println!("{}: not run", client.name());
        return;
    }
    let device = capable_device(client);
    let (shape, strides) = ([9, 5003], [5003, 1]);
    let of = |seed: usize| -> Vec<f32> {
        (0..9 * 5003).map(|i| ((i * seed) % 1009) as f32 / 64.0 - 8.0).collect()
    };
    let (data, residual) = (of(31), of(57));
    let norm = reduce_kernels::normalize::AddRmsNorm { eps: EPS };
    let mut planned = 0;
    for kind in AppliedKind::ALL {
        let (x, r) =
            (tensor(client, &data, &shape, &strides), tensor(client, &residual, &shape, &strides));
        let applied = || norm.of(&x, &r, 1).plan_for(&device);
        let (problem, reduction) = applied().problems().unwrap();
        let Ok(plan) = force_applied(kind, &problem, &reduction, &device) else { continue };
        let (sum, normalized) = applied().with_plan(plan).run(client).unwrap();
        let apart = [sum, normalized].map(|output| read::<f32>(client, &output, data.len()));
        let outputs = (r.clone().binding(), x.clone().binding());
        applied().with_plan(plan).run_into(client, outputs).unwrap();
        let found = [&r, &x].map(|tensor| read::<f32>(client, tensor, data.len()));
        assert!(found == apart, "{plan}");
        planned += 1;
    }
    assert!(planned > 2, "plans of several kinds");
}

/// A description of tensors has the plan and the errors of the tensors. A call is refused where its
/// launch would bind too many buffers, also those of the results.
pub(crate) fn descriptions(client: &Client) {
    let x = tensor(client, &[1f32; 24], &[6, 4], &[4, 1]);
    let row = tensor(client, &[2f32; 4], &[4], &[1]);
    let of_x = TensorDescription::row_major(ElementType::F32, [6, 4]);
    let of_row = TensorDescription::row_major(ElementType::F32, [4]);
    let norm = reduce_kernels::normalize::LayerNorm { eps: EPS };
    let tensors = || norm.of(&x, 1).operand(&row, 1).operand(&row, 1);
    let described = || norm.of(&of_x, 1).operand(&of_row, 1).operand(&of_row, 1);
    assert_eq!(tensors().problems(), described().problems());
    assert_eq!(tensors().choose(client), described().choose(client));
    for checked in [tensors().check(client), described().check(client)] {
        assert_eq!(checked, Ok(()));
    }
    for checked in [tensors().check_with_results(client), described().check_with_results(client)] {
        assert_eq!(checked, Ok(()));
    }
    let gradient = reduce_kernels::normalize::SoftmaxGradient.of(&of_x, &of_x, 1);
    assert_eq!(gradient.check(client), Ok(()));

    let with_bindings = |max_bindings: u32| {
        let mut device = capable_device(client);
        device.max_bindings = max_bindings;
        device
    };
    let devices = [3, 4, 5].map(with_bindings);
    let unfit = |checked: Result<(), ReduceError>| checked.is_err_and(|error| has_no_plan(&error));
    assert!(unfit(described().plan_for(&devices[0]).check(client)));
    assert_eq!(described().plan_for(&devices[1]).check(client), Ok(()));
    // The mean and the reciprocal are two buffers more.
    assert!(unfit(described().plan_for(&devices[2]).check_with_results(client)));

    let errors = [
        norm.of(&of_x, 2).check(client),
        norm.of(&of_x, 1).operand(&of_row, 0).check(client),
        described().operand(&of_row, 1).check(client),
        described().output_type(ElementType::Bool).check(client),
    ];
    let messages = ["axis 2 is out of range", "operand", "operands", "bool"];
    for (error, expected) in errors.into_iter().zip(messages) {
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    // A description has no buffer that could be too small.
    let beyond = TensorHandle::new(row.handle.clone(), [4], [100], row.dtype);
    let error = norm.of(&x, 1).operand(&beyond, 1).check(client).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Buffer);
    assert!(error.to_string().starts_with("the operand spans 1204 bytes, "), "{error}");
}

/// Elements are normalised by launches of as few buffers as WebGPU promises, where rows have edges
/// too.
pub(crate) fn few_bindings(client: &Client) {
    let mut few = capable_device(client);
    few.max_bindings = 7;
    let mut random = StdRng::seed_from_u64(11);
    for len in [64, 4099] {
        let x: Vec<f32> = (0..3 * len).map(|_| random.random_range(-2.0..2.0)).collect();
        let x = tensor(client, &x, &[3, len], &[len, 1]);
        let weight: Vec<f32> = (0..len).map(|n| 1.0 + n as f32 / len as f32).collect();
        let weight = tensor(client, &weight, &[len], &[1]);
        let norm = || {
            let norm = reduce_kernels::normalize::LayerNorm { eps: EPS }.of(&x, 1);
            norm.operand(&weight, 1).operand(&weight, 1)
        };
        let expected = read::<f32>(client, &norm().run(client).unwrap(), 3 * len);
        let alone = norm().plan_for(&few).run(client).unwrap();
        let (beside, _) = norm().plan_for(&few).run_with_results(client).unwrap();
        for found in [alone, beside].map(|found| read::<f32>(client, &found, 3 * len)) {
            let mut pairs = found.iter().zip(&expected);
            assert!(pairs.all(|(a, b)| (a - b).abs() < 1e-5), "rows of {len} elements");
        }
    }
}

/// Groups of channels, and channels of instances, with weights and biases: against f64.
pub(crate) fn groups(client: &Client) {
    const EPS: f64 = 1e-3;

    let shape = [3, 12, 5, 7];
    let mut rng = StdRng::seed_from_u64(8);
    let mut random =
        |count: usize| (0..count).map(|_| rng.random_range(-2.0f32..3.0)).collect::<Vec<_>>();
    let (values, weights, biases) = (random(3 * 12 * 35), random(12), random(12));
    let x = tensor(client, &values, &shape, &row_major_strides(&shape));
    let weight = tensor(client, &weights, &[12], &[1]);
    let bias = tensor(client, &biases, &[12], &[1]);
    let check = |found: TensorHandle, of_group: usize| {
        let found = read::<f32>(client, &found, values.len());
        for (first, group) in values.chunks(of_group * 35).enumerate() {
            let count = group.len() as f64;
            let mean = group.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
            let variance =
                group.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / count;
            for (nth, &x) in group.iter().enumerate() {
                let at = first * of_group * 35 + nth;
                let channel = at / 35 % 12;
                let normalized = (f64::from(x) - mean) / (variance + EPS).sqrt();
                let expected =
                    normalized * f64::from(weights[channel]) + f64::from(biases[channel]);
                let error = (f64::from(found[at]) - expected).abs();
                assert!(error < 1e-5, "groups of {of_group}: {} and not {expected}", found[at]);
            }
        }
    };
    for groups in [1, 4, 12] {
        let normalized = group_norm(client, &x, groups, &weight, &bias, EPS).unwrap();
        assert_eq!(normalized.shape()[..], shape);
        check(normalized, 12 / groups);
    }
    check(instance_norm(client, &x, &weight, &bias, EPS).unwrap(), 1);
    for groups in [0, 5] {
        let error = group_norm(client, &x, groups, &weight, &bias, EPS).unwrap_err();
        assert!(error.to_string().contains("groups"), "{error}");
    }
    for wrong in [3, 10] {
        let short = tensor(client, &random(wrong), &[wrong], &[1]);
        for [weight, bias] in [[&short, &bias], [&weight, &short]] {
            let error = group_norm(client, &x, 4, weight, bias, EPS).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Shape, "{error}");
        }
    }
    assert!(group_norm(client, &weight, 1, &weight, &bias, EPS).is_err());
    assert!(instance_norm(client, &weight, &weight, &bias, EPS).is_err());
}
