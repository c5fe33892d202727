//! Scans: every operator at every position, in plans of any shape, along any axes, from both ends.

use cubecl::{prelude::*, std::tensor::TensorHandle};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};
use reduce_kernels::{
    ArgMax, Device, ElementType, ErrorKind, Max, Mean, MeanVar, Operator, ReduceError, Sum,
    TensorDescription, Var, cubecl,
    operator::{Arity, InvalidParameter, Map, One, ParameterRule, Parameters},
    operators::{All, Any, ArgMin, CountNonzero, LogSumExp, MaxWithIndex, MinMax},
    planner::{
        Access, Combine, Direction, Illegal, Numerics, PlanError, ProblemError, ScanParts,
        ScanPlan, ScanProblem, ScheduleKind, choose_scan, force_scan, row_major_strides, span,
    },
    plans::{PlanStore, RecordedCall, TunedPlan},
    scan::{
        Compacted, Scan, compact, compact_positions, cumall, cumany, cummax, cummax_with_positions,
        cummean, cummean_var, cummin, cummin_with_positions, cumprod, cumsum, cumvar, logcumsumexp,
        scan,
    },
    storage_type,
};

use crate::{
    case::Case,
    operators::{Checked, for_each_operator},
    run::{
        Asked, POISON, capable_device, decode, encode, read, sample, source, tensor, tensor_of,
        tolerance,
    },
    segments::{position, ran, unravel},
};

/// From which end a scan goes, and whether it leaves out the element at a position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Way {
    pub(crate) exclusive: bool,
    pub(crate) reverse: bool,
}

const FORWARD: Way = Way { exclusive: false, reverse: false };

pub(crate) const WAYS: [Way; 4] = [
    FORWARD,
    Way { exclusive: true, reverse: false },
    Way { exclusive: false, reverse: true },
    Way { exclusive: true, reverse: true },
];

impl Way {
    pub(crate) fn of<O: Operator<Inputs = One>, T: reduce_kernels::Input>(
        self,
        scan: Scan<'_, O, T>,
    ) -> Scan<'_, O, T> {
        let scan = if self.exclusive { scan.exclusive() } else { scan };
        if self.reverse { scan.reverse() } else { scan }
    }
}

/// Runs a scan into poisoned outputs with gaps, and compares each result with that of the host.
/// Returns the bytes of the outputs.
fn check<O: Checked>(
    client: &Client,
    case: &Case,
    element: ElementType,
    way: Way,
    plan: Option<ScanPlan>,
) -> Result<Vec<u8>, ReduceError> {
    let dense = row_major_strides(&case.shape);
    let strides: Vec<usize> = dense.iter().map(|stride| 2 * stride).collect();
    check_into::<O>(client, case, element, way, plan, &strides)
}

/// [`check`] with outputs of these strides.
fn check_into<O: Checked>(
    client: &Client,
    case: &Case,
    element: ElementType,
    way: Way,
    plan: Option<ScanPlan>,
    strides: &[usize],
) -> Result<Vec<u8>, ReduceError> {
    let data = sample::<O>(case, element, 11);
    let input = tensor_of(client, element, &encode(element, &data), &case.shape, &case.strides);
    let held = (span(&case.shape, strides).unwrap() + 1).max(2);
    let device = capable_device(client);
    let mut scanned = way.of(scan(O::operator(), &input).over(case.axes.as_slice()));
    if let Some(plan) = plan {
        scanned = scanned.plan_for(&device).with_plan(plan);
    }
    let told = plan.map_or("as chosen".into(), |plan| plan.to_string());
    let types: Vec<ElementType> = O::Results::into_list(scanned.output_types()?);
    let poisoned = |output: &ElementType| {
        tensor_of(client, *output, &vec![POISON; held * output.bytes()], &case.shape, strides)
    };
    let outputs: Vec<TensorHandle> = types.iter().map(poisoned).collect();
    let bindings = O::Results::each(|nth| outputs[nth].clone().binding());
    scanned.run_into(client, bindings)?;

    let mut all = Vec::new();
    for (nth, (output, &of)) in outputs.iter().zip(&types).enumerate() {
        let bytes = client.read_one(output.handle.clone()).expect("the device answers");
        let bytes = &bytes[..held * of.bytes()];
        let scanned = Scanned { case, element, way, data: &data, told: &told };
        scanned.compare::<O>(nth, of, bytes, strides);
        all.extend_from_slice(bytes);
    }
    Ok(all)
}

/// What was scanned, for the host to scan it too.
pub(crate) struct Scanned<'a> {
    pub(crate) case: &'a Case,
    pub(crate) element: ElementType,
    pub(crate) way: Way,
    /// The elements of the input, at their offsets.
    pub(crate) data: &'a [f64],
    /// What a message says of the plan.
    pub(crate) told: &'a str,
}

impl Scanned<'_> {
    /// Compares result number `nth`, whose type is `of` and whose elements lie so in `bytes`, with
    /// that of the host. Bytes between them must be poison.
    pub(crate) fn compare<O: Checked>(
        &self,
        nth: usize,
        of: ElementType,
        bytes: &[u8],
        strides: &[usize],
    ) {
        let Scanned { case, element, way, data, told } = *self;
        let mut axes = case.axes.clone();
        axes.sort_unstable();
        let row: Vec<usize> = axes.iter().map(|&axis| case.shape[axis]).collect();
        let len: usize = row.iter().product();
        let kept: Vec<usize> = (0..case.shape.len()).filter(|axis| !axes.contains(axis)).collect();
        let kept_shape: Vec<usize> = kept.iter().map(|&axis| case.shape[axis]).collect();
        let found = decode(of, bytes);
        let mut written = vec![false; bytes.len() / of.bytes()];
        for outer in 0..kept_shape.iter().product() {
            let outer = unravel(outer, &kept_shape);
            let at = |strides: &[usize], position: usize| -> usize {
                let inner = unravel(position, &row);
                let kept = kept.iter().zip(&outer).map(|(&axis, index)| strides[axis] * index);
                let scanned = axes.iter().zip(&inner).map(|(&axis, index)| strides[axis] * index);
                kept.chain(scanned).sum()
            };
            let values: Vec<f64> = (0..len).map(|nth| data[at(&case.strides, nth)]).collect();
            for place in 0..len {
                let (first, end) = match (way.reverse, way.exclusive) {
                    (false, false) => (0, place + 1),
                    (false, true) => (0, place),
                    (true, false) => (place, len),
                    (true, true) => (place + 1, len),
                };
                let offset = at(strides, place);
                written[offset] = true;
                let own = &values[first..end];
                if own.is_empty() && !O::DEFINED_ON_EMPTY {
                    let result = &bytes[offset * of.bytes()..(offset + 1) * of.bytes()];
                    let is_written = result.iter().any(|&byte| byte != POISON);
                    assert!(is_written, "{} {told}", O::NAME);
                    continue;
                }
                let mut expected = O::naive(own)[nth];
                if position::<O>() == Some(nth) {
                    expected += first as f64;
                }
                let bound =
                    tolerance(element, of, Asked::default(), own.len(), O::scale(own), expected);
                let result = found[offset];
                let same = result == expected || (result.is_nan() && expected.is_nan());
                assert!(
                    same || (result - expected).abs() <= bound,
                    "{} of {element}: result {nth} at {place} of {outer:?} is {result}, expected \
                     {expected} within {bound}\n{case:?} {way:?}\n{told}",
                    O::NAME,
                );
            }
        }
        for (place, gap) in bytes.chunks(of.bytes()).enumerate() {
            let untouched = gap.iter().all(|&byte| byte == POISON);
            assert!(written[place] || untouched, "a gap is written: {case:?} {told}");
        }
    }
}

/// The problem of a case.
fn problem_of<O: Checked>(case: &Case, element: ElementType) -> ScanProblem {
    let x = TensorDescription::strided(element, case.shape.clone(), case.strides.clone());
    scan(O::operator(), &x).over(case.axes.as_slice()).problem().unwrap()
}

/// Plans of every kind for a problem: units alone, lanes of a plane, several planes, planes that
/// several rows share, units through shared memory, several rows in a cube, and several cubes for a
/// row. These look back where the device lets them, with chunks in registers, and with some of each
/// chunk in shared memory.
pub(crate) fn plans(problem: &ScanProblem, device: &Device) -> Vec<ScanPlan> {
    let chosen = choose_scan(problem, device).unwrap().plan;
    let plane = device.plane_size_min;
    let (shared, planes) = (Combine::Shared, Combine::Plane { lanes: plane });
    let shapes = [
        (1, 32, shared, 1, 2),
        (1, 32, shared, 3, 1),
        (2, plane, Combine::Plane { lanes: 2 }, 1, 4),
        (plane, 2, planes, 1, 1),
        (plane, 2, planes, 2, 2),
        (2 * plane, 2, planes, 1, 4),
        (4 * plane, 1, planes, 1, 2),
        (2 * plane, 1, planes, 4, 1),
        (plane, 4, Combine::Plane { lanes: plane / 4 }, 1, 4),
        (2 * plane, 2, Combine::Plane { lanes: plane / 2 }, 2, 2),
        (plane / 2, 2, Combine::Plane { lanes: plane / 2 }, 1, 2),
        (2, 8, shared, 1, 4),
        (16, 4, shared, 1, 1),
        (16, 2, shared, 5, 4),
        (64, 1, shared, 1, 2),
    ];
    let planned = shapes.into_iter().map(|(units, outputs, combine, cubes, loads)| {
        let mut plan = chosen;
        plan.access = plan.access.with_loads_in_flight(loads);
        (plan.units_per_output, plan.outputs_per_cube) = (units, outputs);
        (plan.combine, plan.cubes_per_output) = (combine, cubes);
        plan.parts = ScanParts::TwoLaunches;
        plan
    });
    let looking_back = planned.clone().map(|mut plan| {
        plan.parts = ScanParts::LookBack;
        plan
    });
    // Some of them are enough: every plan is a kernel to compile. These have chunks that a short
    // row has several of.
    let some = looking_back.clone().enumerate().skip(1).step_by(3);
    let in_shared = some.map(|(nth, mut plan)| {
        plan.in_shared = (1 + nth % 2) * plan.access.loads_in_flight;
        plan
    });
    let looking_back = looking_back.chain(in_shared).map(|mut plan| {
        plan.cubes_per_output = plan.chunks(problem).try_into().unwrap();
        plan
    });
    let all = planned.chain(looking_back);
    all.filter(|plan| plan.check(problem, device).is_ok()).collect()
}

/// Every operator along rows and across columns, as chosen.
pub(crate) fn every_operator(client: &Client) {
    for_each_operator!(O => {
        for case in [Case::contiguous(&[3, 260], &[1]), Case::contiguous(&[130, 4], &[0])] {
            ran::<O>(check::<O>(client, &case, ElementType::F32, FORWARD, None));
        }
    });
}

/// An operator in plans of every shape, from both ends. Chunks are many, and the last is not full.
fn in_every_plan<O: Checked>(client: &Client, case: &Case, way: Way) -> usize {
    let device = capable_device(client);
    let problem = problem_of::<O>(case, ElementType::F32);
    let plans = plans(&problem, &device);
    let kinds: Vec<ScheduleKind> = plans.iter().map(ScanPlan::kind).collect();
    for &plan in &plans {
        check::<O>(client, case, ElementType::F32, way, Some(plan)).unwrap();
    }
    for kind in [ScheduleKind::Unit, ScheduleKind::Cube, ScheduleKind::Split] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
    let exchange_elements = plans.iter().any(|plan| plan.transposes(&problem));
    let along = problem.problem().direction() == Direction::Along && !exchange_elements;
    if along && device.forward_progress && device.wide_atomics {
        assert!(plans.iter().any(|plan| plan.in_shared > 0), "{plans:?}");
    }
    plans.len()
}

/// Sums, several results, and accumulators of many fields, along rows by every plan.
pub(crate) fn rows_by_every_plan(client: &Client) {
    let rows = Case::contiguous(&[3, 1036], &[1]);
    for way in [WAYS[0], WAYS[3]] {
        assert!(in_every_plan::<Sum>(client, &rows, way) >= 12);
    }
    in_every_plan::<MaxWithIndex>(client, &rows, WAYS[2]);
    in_every_plan::<MeanVar>(client, &rows, WAYS[0]);
    in_every_plan::<LogSumExp>(client, &rows, WAYS[3]);
    // Single elements.
    in_every_plan::<Max>(client, &Case::contiguous(&[5, 333], &[1]), WAYS[1]);
}

/// The same where rows begin and end inside vectors, of which others hold the rest.
pub(crate) fn rows_with_edges(client: &Client) {
    let device = capable_device(client);
    let rows = Case::contiguous(&[5, 517], &[1]);
    let access = choose_scan(&problem_of::<Sum>(&rows, ElementType::F32), &device).unwrap().plan;
    assert!(access.access.peeled, "{access}");
    for way in [WAYS[1], WAYS[2]] {
        in_every_plan::<Sum>(client, &rows, way);
    }
    // Positions, and an operator whose merges are loops.
    for (nth, plan) in
        plans(&problem_of::<MeanVar>(&rows, ElementType::F32), &device).into_iter().enumerate()
    {
        if nth % 3 == 0 {
            check::<MaxWithIndex>(client, &rows, ElementType::F32, WAYS[2], Some(plan)).unwrap();
        }
        if nth % 3 == 2 {
            check::<MeanVar>(client, &rows, ElementType::F32, WAYS[0], Some(plan)).unwrap();
        }
    }
    // Whole rows, and rows whose outputs lie elsewhere.
    for case in [Case::contiguous(&[1, 1029], &[1]), Case::pitched(&[4, 300], 301, &[1])] {
        check::<Sum>(client, &case, ElementType::F32, FORWARD, None).unwrap();
        let dense = row_major_strides(&case.shape);
        check_into::<ArgMin>(client, &case, ElementType::F32, WAYS[3], None, &dense).unwrap();
    }
    if device.has(ElementType::F16) {
        check::<Sum>(client, &Case::contiguous(&[3, 1031], &[1]), ElementType::F16, WAYS[2], None)
            .unwrap();
    }
}

/// The same across columns.
pub(crate) fn columns_by_every_plan(client: &Client) {
    let columns = Case::contiguous(&[517, 12], &[0]);
    for way in [WAYS[0], WAYS[3]] {
        in_every_plan::<Sum>(client, &columns, way);
    }
    in_every_plan::<ArgMin>(client, &columns, WAYS[2]);
    in_every_plan::<MeanVar>(client, &columns, WAYS[0]);
    in_every_plan::<LogSumExp>(client, &columns, WAYS[3]);
}

/// Any strides of the input and of the outputs, any axes.
pub(crate) fn every_layout(client: &Client) {
    let cases = [
        Case::contiguous(&[4, 6, 40], &[1]),
        Case::contiguous(&[4, 6, 40], &[0, 2]),
        Case::contiguous(&[4, 6, 40], &[2, 0, 1]),
        Case::pitched(&[7, 45], 48, &[1]),
        Case::pitched(&[45, 7], 8, &[0]),
        Case::permuted(&[6, 50], &[1, 0], &[0]),
        Case::permuted(&[6, 50], &[1, 0], &[0, 1]),
        Case::permuted(&[3, 8, 20], &[2, 0, 1], &[0, 2]),
        Case::sliced(&[9, 90], &[2, 3], &[1]),
        Case::broadcast(&[5, 33], &[1], &[1]),
        Case::broadcast(&[5, 33], &[0], &[0]),
        Case::broadcast(&[4, 5, 6], &[1], &[0, 1]),
    ];
    for (nth, case) in cases.iter().enumerate() {
        let way = WAYS[nth % WAYS.len()];
        check::<Sum>(client, case, ElementType::F32, way, None).unwrap();
        check::<ArgMax>(client, case, ElementType::F32, way, None).unwrap();
        // Outputs without gaps take vectors, and those whose last axis is the outermost do not.
        let dense = row_major_strides(&case.shape);
        check_into::<Sum>(client, case, ElementType::F32, way, None, &dense).unwrap();
        let reversed: Vec<usize> = case.shape.iter().rev().copied().collect();
        let reversed: Vec<usize> = row_major_strides(&reversed).into_iter().rev().collect();
        check_into::<Sum>(client, case, ElementType::F32, way, None, &reversed).unwrap();
    }
}

/// Random shapes, axes, layouts, ends and plans.
pub(crate) fn random_problems(client: &Client) {
    let device = capable_device(client);
    let mut rng = StdRng::seed_from_u64(5);
    for _ in 0..40 {
        let rank = rng.random_range(1..=4);
        let longest = [900, 60, 16, 9][rank - 1];
        let shape: Vec<usize> = (0..rank).map(|_| rng.random_range(1..=longest)).collect();
        let mut axes: Vec<usize> = (0..rank).collect();
        axes.shuffle(&mut rng);
        let order = axes.clone();
        axes.truncate(rng.random_range(1..=rank));
        let case = match rng.random_range(0..4) {
            0 => Case::permuted(&shape, &order, &axes),
            1 => Case::pitched(&shape, shape[rank - 1] + rng.random_range(0..5), &axes),
            _ => Case::contiguous(&shape, &axes),
        };
        let way = WAYS[rng.random_range(0..WAYS.len())];
        let plans = plans(&problem_of::<Sum>(&case, ElementType::F32), &device);
        let plan = plans[rng.random_range(0..plans.len())];
        check::<Sum>(client, &case, ElementType::F32, way, Some(plan)).unwrap();
        check::<ArgMax>(client, &case, ElementType::F32, way, None).unwrap();
    }
}

/// Types as reductions have them.
pub(crate) fn every_type(client: &Client) {
    let case = Case::contiguous(&[3, 200], &[1]);
    ran::<Sum>(check::<Sum>(client, &case, ElementType::F16, FORWARD, None));
    ran::<Mean>(check::<Mean>(client, &case, ElementType::BF16, FORWARD, None));
    ran::<Sum>(check::<Sum>(client, &case, ElementType::F64, WAYS[3], None));
    ran::<Sum>(check::<Sum>(client, &case, ElementType::I32, FORWARD, None));
    ran::<MinMax>(check::<MinMax>(client, &case, ElementType::I64, FORWARD, None));
    ran::<MaxWithIndex>(check::<MaxWithIndex>(client, &case, ElementType::U8, FORWARD, None));
    ran::<CountNonzero>(check::<CountNonzero>(client, &case, ElementType::Bool, WAYS[1], None));
    ran::<All>(check::<All>(client, &case, ElementType::I8, FORWARD, None));
}

/// What the functions compute, known without an oracle.
pub(crate) fn functions(client: &Client) {
    let x = tensor(client, &[1f32, -2.0, 4.0, 3.0], &[4], &[1]);
    let floats =
        |result: Result<TensorHandle, ReduceError>| read::<f32>(client, &result.unwrap(), 4);
    assert_eq!(floats(cumsum(client, &x, 0)), [1.0, -1.0, 3.0, 6.0]);
    assert_eq!(floats(cumprod(client, &x, 0)), [1.0, -2.0, -8.0, -24.0]);
    assert_eq!(floats(cummax(client, &x, 0)), [1.0, 1.0, 4.0, 4.0]);
    assert_eq!(floats(cummin(client, &x, 0)), [1.0, -2.0, -2.0, -2.0]);
    assert_eq!(floats(cummean(client, &x, 0)), [1.0, -0.5, 1.0, 1.5]);
    assert_eq!(floats(cumvar(client, &x, 0, 0.0)), [0.0, 2.25, 6.0, 5.25]);
    let (means, variances) = cummean_var(client, &x, 0, 0.0).unwrap();
    assert_eq!(floats(Ok(means)), [1.0, -0.5, 1.0, 1.5]);
    assert_eq!(floats(Ok(variances)), [0.0, 2.25, 6.0, 5.25]);
    let (values, positions) = cummax_with_positions(client, &x, 0).unwrap();
    assert_eq!(floats(Ok(values)), [1.0, 1.0, 4.0, 4.0]);
    assert_eq!(read::<u32>(client, &positions, 4), [0, 0, 2, 2]);
    let (values, positions) = cummin_with_positions(client, &x, 0).unwrap();
    assert_eq!(floats(Ok(values)), [1.0, -2.0, -2.0, -2.0]);
    assert_eq!(read::<u32>(client, &positions, 4), [0, 1, 1, 1]);
    let logarithms = floats(logcumsumexp(client, &x, 0));
    let expected = (1f64.exp() + (-2f64).exp()).ln() as f32;
    assert!((logarithms[1] - expected).abs() < 1e-6, "{logarithms:?}");
    let truths = tensor(client, &[0i32, 1, 0, 1], &[2, 2], &[2, 1]);
    let told = |result: Result<TensorHandle, ReduceError>| {
        let result = result.unwrap();
        let bytes = client.read_one(result.handle.clone()).unwrap();
        let of = reduce_kernels::element_type(result.dtype).unwrap();
        decode(of, &bytes[..4 * of.bytes()])
    };
    // WGSL has no bools in buffers.
    if capable_device(client).has(ElementType::Bool) {
        assert_eq!(told(cumany(client, &truths, ..)), [0.0, 1.0, 1.0, 1.0]);
        assert_eq!(told(cumall(client, &truths, 0)), [0.0, 1.0, 0.0, 1.0]);
    }
    let any = scan(Any, &truths).output_type(ElementType::I32).run(client).unwrap();
    assert_eq!(read::<i32>(client, &any, 4), [0, 1, 1, 1]);
    let all = scan(All, &truths).over(0).output_type(ElementType::I32).run(client).unwrap();
    assert_eq!(read::<i32>(client, &all, 4), [0, 1, 0, 1]);
    // A map of one's own.
    let squares = scan(Sum, &x).mapped(Square).exclusive().run(client).unwrap();
    assert_eq!(floats(Ok(squares)), [0.0, 1.0, 5.0, 21.0]);
    // Results before any element.
    let before = scan(Max, &x).exclusive().run(client).unwrap();
    assert_eq!(floats(Ok(before)), [f32::NEG_INFINITY, 1.0, 1.0, 4.0]);
    let means = floats(scan(Mean, &x).exclusive().reverse().run(client));
    assert!(means[3].is_nan() && means[1..3] == [3.5, 3.0], "{means:?}");
    // SPIR-V divides with an error of an ulp or two.
    assert!((means[0] - 5.0 / 3.0).abs() < 1e-6, "{means:?}");
}

/// The square of an element.
#[derive(Clone, Copy)]
pub(crate) struct Square;

#[cube]
impl Map for Square {
    type Inputs = One;

    const NAME: &'static str = "square";
    const TYPES: fn(ElementType) -> Option<ElementType> = Some;

    fn map<E: Float, N: Size>(value: Vector<E, N>, _parameters: &Parameters) -> Vector<E, N> {
        value * value
    }
}

/// Whether an element is above 0.
#[derive(Clone, Copy)]
struct IsPositive;

#[cube]
impl Map for IsPositive {
    type Inputs = One;

    const NAME: &'static str = "is positive";
    const TYPES: fn(ElementType) -> Option<ElementType> = |element| match element {
        ElementType::F64 | ElementType::I64 | ElementType::U64 => Some(element),
        element if element.is_float() => Some(ElementType::F32),
        element if element.is_signed() => Some(ElementType::I32),
        _ => Some(ElementType::U32),
    };

    fn map<E: Float, N: Size>(value: Vector<E, N>, _parameters: &Parameters) -> Vector<E, N> {
        let zero = Vector::from_int(0);
        select_many(value.greater_than(&zero), Vector::from_int(1), zero)
    }
}

/// Compacts a case, and compares what is kept and the positions with those of the host.
fn check_compacted<M: Map<Inputs = One>>(
    client: &Client,
    case: &Case,
    element: ElementType,
    predicate: M,
    keep: impl Fn(f64) -> bool,
) -> Result<(), ReduceError> {
    let data = sample::<Sum>(case, element, 23);
    let x = tensor_of(client, element, &encode(element, &data), &case.shape, &case.strides);
    let elements: usize = case.shape.iter().product();
    let value = |position: usize| {
        let index = unravel(position, &case.shape);
        data[index.iter().zip(&case.strides).map(|(index, stride)| index * stride).sum::<usize>()]
    };
    let positions: Vec<usize> = (0..elements).filter(|&position| keep(value(position))).collect();
    let expected: Vec<f64> = positions.iter().map(|&position| value(position)).collect();
    let what = format!("{} of {element} {case:?}", M::NAME);

    let Compacted { kept, count } = compact(client, &x, predicate)?;
    assert_eq!((&kept.shape()[..], &count.shape()[..]), (&[elements][..], &[1][..]), "{what}");
    assert_eq!((kept.dtype, count.dtype), (x.dtype, storage_type(ElementType::U32)), "{what}");
    assert_eq!(read::<u32>(client, &count, 1), [positions.len() as u32], "{what}");
    let bytes = client.read_one(kept.handle).expect("the device answers");
    let found = decode(element, &bytes[..positions.len() * element.bytes()]);
    let same = |(&found, &expected): (&f64, &f64)| found.to_bits() == expected.to_bits();
    assert!(found.iter().zip(&expected).all(same), "{what}");

    let Compacted { kept, count } = compact_positions(client, &x, predicate)?;
    assert_eq!((&kept.shape()[..], kept.dtype), (&[elements][..], count.dtype), "{what}");
    assert_eq!(read::<u32>(client, &count, 1), [positions.len() as u32], "{what}");
    let found = read::<u32>(client, &kept, positions.len());
    assert!(found.iter().map(|&at| at as usize).eq(positions), "{what}");
    Ok(())
}

/// Elements that satisfy a predicate, of every type that the device has.
pub(crate) fn compacted_of_every_type(client: &Client) {
    let case = Case::contiguous(&[3, 517], &[]);
    let mut types = 0;
    for element in ElementType::ALL {
        match check_compacted(client, &case, element, IsPositive, |value| value > 0.0) {
            Ok(()) => types += 1,
            Err(error) => {
                let cause = source::<PlanError>(&error);
                let lacks = cause.is_some_and(PlanError::is_unsupported_element);
                assert!(lacks, "{element}: {error}");
            }
        }
    }
    assert!(types >= 3, "{types} types");
}

/// Elements of tensors of any strides, of any number of axes, and of many cubes.
pub(crate) fn compacted_of_every_layout(client: &Client) {
    for case in [
        Case::contiguous(&[300_007], &[]),
        Case::contiguous(&[4, 1, 33, 5], &[]),
        Case::pitched(&[37, 100], 128, &[]),
        Case::permuted(&[5, 40, 33], &[2, 0, 1], &[]),
        Case::sliced(&[60, 70], &[2, 3], &[]),
        Case::broadcast(&[7, 6, 50], &[1], &[]),
        Case::contiguous(&[1], &[]),
        Case::contiguous(&[], &[]),
    ] {
        for element in [ElementType::F32, ElementType::I32] {
            check_compacted(client, &case, element, IsPositive, |value| value > 0.0).unwrap();
        }
    }
}

/// Nothing is kept, all is kept, NaN counts as kept, and there may be no elements.
pub(crate) fn compacted_at_the_edges(client: &Client) {
    for case in [
        Case::contiguous(&[1000], &[]),
        Case::contiguous(&[0], &[]),
        Case::contiguous(&[3, 0, 2], &[]),
    ] {
        let (element, never) = (ElementType::U32, IsBelow { limit: 0.0 });
        check_compacted(client, &case, element, never, |_| false).unwrap();
        let always = IsBelow { limit: f64::from(f32::MAX) };
        check_compacted(client, &case, element, always, |_| true).unwrap();
    }
    let x = tensor(client, &[0f32, f32::NAN, -0.0, f32::INFINITY, 1e-40], &[5], &[1]);
    let Compacted { kept, count } = compact_positions(client, &x, Same).unwrap();
    let count = read::<u32>(client, &count, 1)[0] as usize;
    let kept = read::<u32>(client, &kept, count);
    // Some devices have no numbers below 1e-38.
    assert!(kept == [1, 3, 4] || kept == [1, 3], "{kept:?}");

    // What is refused before any launch.
    let invalid = compact(client, &x, IsBelow { limit: f64::NAN }).unwrap_err();
    assert_eq!(invalid.kind(), ErrorKind::Parameter, "{invalid}");
    let refused = compact(client, &x, OfIntegers).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Type, "{refused}");
    let short =
        TensorHandle::new(x.handle.clone(), [4, 1000], [1000, 1], storage_type(ElementType::F32));
    assert_eq!(compact(client, &short, Same).unwrap_err().kind(), ErrorKind::Buffer);
}

/// Whether an element is below a parameter.
#[derive(Clone, Copy)]
struct IsBelow {
    limit: f64,
}

#[cube]
impl Map for IsBelow {
    type Inputs = One;

    const NAME: &'static str = "is below";
    const TYPES: fn(ElementType) -> Option<ElementType> = |_| Some(ElementType::F32);
    const PARAMETERS: ParameterRule<Self> = |below| match below.limit {
        value if value.is_nan() => {
            Err(InvalidParameter { name: "limit", value, expected: "a number" })
        }
        value => Ok(vec![value]),
    };
    const PARAMETER_COUNT: usize = 1;

    fn map<E: Float, N: Size>(value: Vector<E, N>, parameters: &Parameters) -> Vector<E, N> {
        let limit = Vector::new(parameters.get::<E>(0usize));
        select_many(value.less_than(&limit), Vector::from_int(1), Vector::from_int(0))
    }
}

/// The element itself.
#[derive(Clone, Copy)]
struct Same;

#[cube]
impl Map for Same {
    type Inputs = One;

    const NAME: &'static str = "same";
    const TYPES: fn(ElementType) -> Option<ElementType> = Some;

    fn map<E: Float, N: Size>(value: Vector<E, N>, _parameters: &Parameters) -> Vector<E, N> {
        value
    }
}

/// A map that has no floats.
#[derive(Clone, Copy)]
struct OfIntegers;

#[cube]
impl Map for OfIntegers {
    type Inputs = One;

    const NAME: &'static str = "of integers";
    const TYPES: fn(ElementType) -> Option<ElementType> =
        |element| (!element.is_float()).then_some(ElementType::I32);

    fn map<E: Float, N: Size>(value: Vector<E, N>, _parameters: &Parameters) -> Vector<E, N> {
        value
    }
}

/// The results may take the place of the elements, whatever plan reads these again.
pub(crate) fn in_place(client: &Client) {
    let device = capable_device(client);
    for (case, axis) in [
        (Case::contiguous(&[3, 1036], &[1]), 1),
        (Case::contiguous(&[3, 517], &[1]), 1),
        (Case::contiguous(&[517, 12], &[0]), 0),
    ] {
        let problem = problem_of::<Sum>(&case, ElementType::F32);
        for plan in plans(&problem, &device) {
            let data: Vec<f32> = (0..case.span()).map(|nth| (nth % 7) as f32 - 3.0).collect();
            let x = tensor(client, &data, &case.shape, &case.strides);
            let expected = scan(Sum, &x).over(axis).run(client).unwrap();
            let expected = read::<f32>(client, &expected, data.len());
            let scanned = scan(Sum, &x).over(axis).plan_for(&device).with_plan(plan);
            scanned.run_into(client, x.clone().binding()).unwrap();
            assert_eq!(read::<f32>(client, &x, data.len()), expected, "{plan}");
        }
    }
}

/// Rows of one element and of none, no axes, no dimensions.
pub(crate) fn at_the_edges(client: &Client) {
    for way in WAYS {
        for case in [
            Case::contiguous(&[3, 1], &[1]),
            Case::contiguous(&[1, 4], &[0]),
            Case::contiguous(&[5], &[]),
            Case::contiguous(&[], &[]),
            Case::contiguous(&[1], &[0]),
            Case::contiguous(&[2], &[0]),
        ] {
            check::<Sum>(client, &case, ElementType::F32, way, None).unwrap();
            check::<ArgMax>(client, &case, ElementType::F32, way, None).unwrap();
        }
        for case in [Case::contiguous(&[3, 0], &[1]), Case::contiguous(&[0, 3], &[1])] {
            // An extremum of no elements is an error of a reduction. Here, nothing is asked for.
            check::<Max>(client, &case, ElementType::F32, way, None).unwrap();
        }
    }
    let none = tensor::<f32>(client, &[], &[0, 4], &[4, 1]);
    assert_eq!(cummax(client, &none, 0).unwrap().shape()[..], [0, 4]);
}

/// NaN and infinities hold from their position on, and nothing before it knows of them.
pub(crate) fn not_numbers(client: &Client) {
    let device = capable_device(client);
    let mut data = vec![1f32; 1036];
    (data[517], data[700]) = (f32::NAN, f32::INFINITY);
    let x = tensor(client, &data, &[1036], &[1]);
    let case = Case::contiguous(&[1036], &[0]);
    let mut all: Vec<Option<ScanPlan>> =
        plans(&problem_of::<Sum>(&case, ElementType::F32), &device).into_iter().map(Some).collect();
    all.push(None);
    for plan in all {
        let with = |plan: Option<ScanPlan>| {
            let sums = scan(Sum, &x);
            match plan {
                Some(plan) => sums.plan_for(&device).with_plan(plan),
                None => sums,
            }
        };
        let sums = read::<f32>(client, &with(plan).run(client).unwrap(), 1036);
        for (nth, &sum) in sums.iter().enumerate() {
            let expected = (nth + 1) as f32;
            assert!(if nth < 517 { sum == expected } else { sum.is_nan() }, "{nth}: {sum}");
        }
        let reverse = read::<f32>(client, &with(plan).reverse().run(client).unwrap(), 1036);
        for (nth, &sum) in reverse.iter().enumerate() {
            let expected = if nth > 700 { (1036 - nth) as f32 } else { f32::INFINITY };
            assert!(if nth > 517 { sum == expected } else { sum.is_nan() }, "{nth}: {sum}");
        }
    }
    // Operators that take neighbouring elements together stop at the first that is not finite.
    let (means, variances) = cummean_var(client, &x, 0, 0.0).unwrap();
    for (found, expected) in
        [(logcumsumexp(client, &x, 0).unwrap(), None), (means, Some(1.0)), (variances, Some(0.0))]
    {
        for (nth, value) in read::<f32>(client, &found, 1036).into_iter().enumerate() {
            let expected = expected.unwrap_or_else(|| 1.0 + ((nth + 1) as f32).ln());
            let right = (value - expected).abs() <= 2e-6 * expected;
            assert!(if nth < 517 { right } else { value.is_nan() }, "{nth}: {value}");
        }
    }
    let logarithms = scan(LogSumExp, &x).reverse().run(client).unwrap();
    for (nth, value) in read::<f32>(client, &logarithms, 1036).into_iter().enumerate() {
        let right = match nth {
            ..518 => value.is_nan(),
            518..701 => value == f32::INFINITY,
            _ => value.is_finite(),
        };
        assert!(right, "{nth}: {value}");
    }
    // A later element does not replace the first NaN, nor does a greater number.
    let (values, positions) = cummax_with_positions(client, &x, 0).unwrap();
    let values = read::<f32>(client, &values, 1036);
    let positions = read::<u32>(client, &positions, 1036);
    assert_eq!((values[516], positions[516]), (1.0, 0));
    assert!(values[517..].iter().all(|value| value.is_nan()));
    assert!(positions[517..].iter().all(|&position| position == 517));
}

/// Neighbouring elements that an operator cannot take together are taken one by one: sums of
/// exponentials that nearly vanish beside a later element, equal elements, and moments whose origin
/// is far from the elements.
pub(crate) fn elements_taken_apart(client: &Client) {
    let device = capable_device(client);
    let len = 3000;
    let value = |nth: usize| match nth % 1000 / 250 {
        0 => -200.0,
        1 => 200.0 + (nth % 7) as f32,
        2 => 1e4 * (nth % 3) as f32,
        _ => {
            if nth.is_multiple_of(2) {
                -200.0
            } else {
                300.0
            }
        }
    };
    for (shape, axis) in [([2, len], 1), ([len, 2], 0)] {
        let strides = row_major_strides(&shape);
        let place = |row: usize, nth: usize| row * strides[1 - axis] + nth * strides[axis];
        let mut data = vec![0f32; 2 * len];
        for nth in 0..2 * len {
            // Where one row is taken together, the other one may not be.
            data[place(nth / len, nth % len)] = value(nth % len + 125 * (nth / len));
        }
        let x = tensor(client, &data, &shape, &strides);
        let case = Case::contiguous(&shape, &[axis]);
        let chosen = |problem: &ScanProblem| choose_scan(problem, &device).unwrap().plan;
        let of_logarithms = chosen(&problem_of::<LogSumExp>(&case, ElementType::F32));
        let of_moments = chosen(&problem_of::<MeanVar>(&case, ElementType::F32));
        // Software adapters have too few loads of columns for runs.
        let [of_logarithms, of_moments] = [of_logarithms, of_moments].map(|plan| match axis {
            0 => with_runs_down_columns(plan),
            _ => plan,
        });
        for way in [WAYS[0], WAYS[2], WAYS[3]] {
            let logarithms = way.of(scan(LogSumExp, &x).over(axis)).plan_for(&device);
            let logarithms = logarithms.with_plan(of_logarithms).run(client).unwrap();
            let logarithms = read::<f32>(client, &logarithms, 2 * len);
            let moments = way.of(scan(MeanVar { correction: 0.0 }, &x).over(axis));
            let moments = moments.plan_for(&device).with_plan(of_moments);
            let (means, variances) = moments.run(client).unwrap();
            let means = read::<f32>(client, &means, 2 * len);
            let variances = read::<f32>(client, &variances, 2 * len);
            for row in 0..2 {
                let (mut most, mut sum) = (f64::NEG_INFINITY, 0.0);
                let (mut mean, mut squares) = (0.0, 0.0);
                for nth in 0..len {
                    let place = place(row, if way.reverse { len - 1 - nth } else { nth });
                    let near = |found: f32, expected: f64, scale: f64, what: &str| {
                        let off = (f64::from(found) - expected).abs();
                        assert!(
                            off <= 2e-5 * scale,
                            "{what} {found}, not {expected}, at {place} of {shape:?} {way:?}"
                        );
                    };
                    let compare = |most: f64, sum: f64, mean: f64, variance: f64| {
                        let logarithm = most + sum.ln();
                        near(logarithms[place], logarithm, logarithm.abs().max(1.0), "logarithm");
                        near(means[place], mean, mean.abs() + variance.sqrt(), "mean");
                        near(variances[place], variance, variance, "variance");
                    };
                    if way.exclusive && nth > 0 {
                        compare(most, sum, mean, squares / nth as f64);
                    }
                    let value = f64::from(data[place]);
                    let larger = f64::max(most, value);
                    sum = sum * (most - larger).exp() + (value - larger).exp();
                    most = larger;
                    let distance = value - mean;
                    mean += distance / (nth + 1) as f64;
                    squares += distance * (value - mean);
                    if !way.exclusive {
                        compare(most, sum, mean, squares / (nth + 1) as f64);
                    }
                }
            }
        }
        // In place, elements are read again before results replace them.
        for way in WAYS {
            let x = tensor(client, &data, &shape, &strides);
            let scanned = || {
                let scanned = way.of(scan(LogSumExp, &x).over(axis)).plan_for(&device);
                scanned.with_plan(of_logarithms)
            };
            let expected = read::<f32>(client, &scanned().run(client).unwrap(), 2 * len);
            scanned().run_into(client, x.clone().binding()).unwrap();
            assert_eq!(read::<f32>(client, &x, 2 * len), expected, "{shape:?} {way:?}");
        }
    }
    // The bits of a row do not depend on its neighbours, be they taken together or not.
    let columns = Case::contiguous(&[len, 2], &[0]);
    let problem = problem_of::<LogSumExp>(&columns, ElementType::F32);
    let mut plan = with_runs_down_columns(choose_scan(&problem, &device).unwrap().plan);
    plan.access = plan.access.with_vector(2);
    let rows = |second: fn(usize) -> f32| {
        let data: Vec<f32> = (0..len).flat_map(|nth| [(nth % 9) as f32, second(nth)]).collect();
        let x = tensor(client, &data, &[len, 2], &[2, 1]);
        let logarithms = scan(LogSumExp, &x).over(0).plan_for(&device).with_plan(plan);
        let variances = scan(Var { correction: 0.0 }, &x).over(0).plan_for(&device).with_plan(plan);
        let results = [logarithms.run(client).unwrap(), variances.run(client).unwrap()];
        let [logarithms, variances] = results.map(|each| read::<f32>(client, &each, 2 * len));
        let first = |results: Vec<f32>| results.into_iter().step_by(2).map(f32::to_bits);
        first(logarithms).chain(first(variances)).collect::<Vec<u32>>()
    };
    let beside = |nth: usize| (nth % 9) as f32;
    assert_eq!(rows(|_| f32::NAN), rows(beside));
    assert_eq!(rows(|nth| 1e30 * (nth % 2) as f32), rows(beside));
}

/// The plan with as many loads of columns as two runs have.
fn with_runs_down_columns(mut plan: ScanPlan) -> ScanPlan {
    assert_eq!(plan.access.direction, Direction::Across, "{plan}");
    plan.access = plan.access.with_loads_in_flight(8);
    (plan.units_per_output, plan.outputs_per_cube, plan.cubes_per_output) = (16, 1, 1);
    plan.combine = Combine::Shared;
    plan
}

/// Rounding errors grow with the logarithm of the length, in plans that take many chunks.
pub(crate) fn long_sums(client: &Client) {
    let device = capable_device(client);
    // Mesa's software adapter ends loops after 65535 turns, those of inner loops counted.
    let len = 1 << 17;
    let data: Vec<f32> = (0..len).map(|nth| 0.1 + (nth % 10) as f32 * 0.01).collect();
    let case = Case::contiguous(&[len], &[0]);
    let x = tensor(client, &data, &case.shape, &case.strides);
    let mut running = 0f64;
    let exact: Vec<f64> = data
        .iter()
        .map(|&value| {
            running += f64::from(value);
            running
        })
        .collect();
    let problem = problem_of::<Sum>(&case, ElementType::F32);
    let mut plan = choose_scan(&problem, &device).unwrap().plan;
    (plan.units_per_output, plan.outputs_per_cube, plan.cubes_per_output) = (16, 2, 1);
    (plan.combine, plan.parts) = (Combine::Shared, ScanParts::TwoLaunches);
    plan.access = Access::new(Direction::Along).with_vector(4);
    assert!(plan.chunks(&problem) >= 128 * u64::from(ScanPlan::CHUNKS_PER_TOTAL), "{plan}");
    let mut split = plan;
    split.cubes_per_output = 7;
    for plan in [plan, split] {
        let sums = scan(Sum, &x).plan_for(&device).with_plan(plan).run(client).unwrap();
        let sums = read::<f32>(client, &sums, len);
        for (nth, (&sum, &exact)) in sums.iter().zip(&exact).enumerate() {
            // Of a chain of 2048 chunks, the error would be hundreds of units.
            let bound = 24.0 * f64::from(f32::EPSILON) * exact;
            assert!((f64::from(sum) - exact).abs() <= bound, "{nth}: {sum} of {exact} by {plan}");
        }
    }
    // Means and variances far from zero.
    let shifted: Vec<f32> = (0..5000).map(|nth| 1e6 + (nth % 4) as f32).collect();
    let x = tensor(client, &shifted, &[5000], &[1]);
    let variances = read::<f32>(client, &cumvar(client, &x, 0, 0.0).unwrap(), 5000);
    assert!((variances[4999] - 1.25).abs() < 1e-4, "{}", variances[4999]);
}

/// Long rows and columns in one launch, whose cubes look back over one, two and three levels of
/// groups: the results are those of the host, and the bits the same on every run.
pub(crate) fn look_back(client: &Client) {
    let device = capable_device(client);
    let plane = device.plane_size_max;
    let promised = device.forward_progress && device.wide_atomics;
    for (shape, axis, levels, in_shared) in [
        ([3, 20_000], 1, 1, 0),
        ([3, 20_000], 1, 1, 8),
        ([3, 90_001], 1, 2, 0),
        ([70_000, 12], 0, 2, 0),
        ([1, 256 * 256 * 32 + 77], 1, 3, 0),
    ] {
        let case = Case::contiguous(&shape, &[axis]);
        let problem = problem_of::<Sum>(&case, ElementType::I32);
        let mut plan = choose_scan(&problem, &device).unwrap().plan;
        plan.access = plan
            .access
            .with_vector(1)
            .with_peeled(false)
            .with_loads_in_flight(if levels == 1 { 4 } else { 1 });
        (plan.units_per_output, plan.outputs_per_cube) =
            if axis == 1 { (plane, 1) } else { (16, 8) };
        plan.combine = Combine::Shared;
        plan.in_shared = in_shared;
        if in_shared > 0 {
            plan.units_per_output = 2 * plane;
            plan.combine = Combine::Plane { lanes: device.plane_size_min };
        }
        plan.cubes_per_output = plan.chunks(&problem).try_into().unwrap();
        plan.parts = ScanParts::LookBack;
        if !promised {
            let error = plan.check(&problem, &device).unwrap_err();
            assert!(matches!(error, PlanError::Unfit { .. }), "{error}");
            continue;
        }
        assert_eq!(plan.levels(), levels, "{plan}");
        let mut rng = StdRng::seed_from_u64(17);
        let count = shape[0] * shape[1];
        let data: Vec<i32> = (0..count).map(|_| rng.random_range(-1000..1000)).collect();
        let x = tensor(client, &data, &case.shape, &case.strides);
        let (rows, len) = (shape[1 - axis], shape[axis]);
        let (row, step) = (case.strides[1 - axis], case.strides[axis]);
        for way in [WAYS[0], WAYS[3]] {
            let sums = way.of(scan(Sum, &x).over(axis)).plan_for(&device).with_plan(plan);
            let found = read::<i32>(client, &sums.run(client).unwrap(), count);
            for nth in 0..rows {
                let mut running = 0i32;
                for position in 0..len {
                    let place = if way.reverse { len - 1 - position } else { position };
                    let at = nth * row + place * step;
                    let before = running;
                    running = running.wrapping_add(data[at]);
                    let expected = if way.exclusive { before } else { running };
                    assert_eq!(found[at], expected, "{place} of {nth} in {shape:?} by {plan}");
                }
            }
        }
        let floats: Vec<f32> = data.iter().map(|&value| value as f32 * 0.37).collect();
        let x = tensor(client, &floats, &case.shape, &case.strides);
        let bits = || {
            let sums = scan(Sum, &x).over(axis).plan_for(&device).with_plan(plan);
            read::<u32>(client, &sums.run(client).unwrap(), count)
        };
        let first = bits();
        for _ in 0..20 {
            assert!(bits() == first, "other bits in another run of {plan}");
        }
    }
}

/// Bits of a row depend on nothing else where that is asked for, and are the same on every run.
pub(crate) fn same_bits(client: &Client) {
    let data: Vec<f32> = (0..8 * 3000).map(|nth| ((nth * 7919) % 1000) as f32 * 0.37).collect();
    let rows = |count: usize| -> Vec<u32> {
        let x = tensor(client, &data[..count * 3000], &[count, 3000], &[3000, 1]);
        let sums = scan(Sum, &x).over(1).numerics(Numerics::BatchInvariant);
        read::<u32>(client, &sums.run(client).unwrap(), count * 3000)
    };
    let all = rows(8);
    assert_eq!(all[..3000], rows(1));
    assert_eq!(all, rows(8));
    // Exact operators have the same bits in every plan, and so may be reproducible.
    let x = tensor(client, &data, &[8, 3000], &[3000, 1]);
    let exact = scan(Max, &x).over(1).numerics(Numerics::Reproducible).run(client).unwrap();
    let usual = cummax(client, &x, 1).unwrap();
    assert_eq!(read::<f32>(client, &exact, 24_000), read::<f32>(client, &usual, 24_000));
    let refused = scan(Sum, &x).numerics(Numerics::Reproducible).run(client).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
}

/// A thousand runs of rows of several cubes: whenever these arrive, the bits are the same.
pub(crate) fn many_runs(client: &Client) {
    let device = reduce_kernels::device_of(client);
    // On a software adapter, each run takes a while, and no cube waits for another.
    let runs = if device.plane_operations { 1000 } else { 3 };
    for (shape, axis) in [([2, 100_001], 1), ([9_001, 20], 0)] {
        let count = shape[0] * shape[1];
        let data: Vec<f32> = (0..count).map(|nth| ((nth * 7919) % 1000) as f32 * 0.37).collect();
        let x = tensor(client, &data, &shape, &[shape[1], 1]);
        let sums = scan(Sum, &x).over(axis);
        let plan = force_scan(ScheduleKind::Split, &sums.problem().unwrap(), &device).unwrap();
        let run = || {
            let result = sums.clone().with_plan(plan).run(client).unwrap();
            read::<u32>(client, &result, count)
        };
        let first = run();
        for nth in 1..runs {
            assert_eq!(run(), first, "run {nth} of {plan}");
        }
    }
}

/// What is refused before any launch, and what a scan tells of itself.
pub(crate) fn contract(client: &Client) {
    let x = tensor(client, &[1f32; 24], &[4, 6], &[6, 1]);
    let kind = |error: ReduceError| error.kind();
    assert_eq!(kind(cumsum(client, &x, 2).unwrap_err()), ErrorKind::Shape);
    assert_eq!(kind(cumsum(client, &x, [1, 1]).unwrap_err()), ErrorKind::Shape);
    let variances = cumvar(client, &x, 1, f64::NAN).unwrap_err();
    assert_eq!(variances.kind(), ErrorKind::Parameter, "{variances}");
    let into = |shape: &[usize], strides: &[usize], held: usize| {
        let output = tensor(client, &vec![0f32; held], shape, strides);
        scan(Sum, &x).over(1).run_into(client, output.binding()).unwrap_err()
    };
    assert_eq!(into(&[6, 4], &[4, 1], 24).kind(), ErrorKind::Shape);
    assert_eq!(into(&[4, 6], &[6, 1], 20).kind(), ErrorKind::Buffer);
    let overlapping = into(&[4, 6], &[0, 1], 24);
    let found = source::<ProblemError>(&overlapping);
    assert!(matches!(found, Some(ProblemError::OutputOverlaps { .. })), "{overlapping}");
    let short =
        TensorHandle::new(x.handle.clone(), [4, 1000], [1000, 1], storage_type(ElementType::F32));
    assert_eq!(scan(Sum, &short).check(client).unwrap_err().kind(), ErrorKind::Buffer);

    // Plans: chosen, forced, stored, refused.
    let scanned = scan(Sum, &x).over(1);
    let choice = scanned.choose(client).unwrap();
    assert_eq!(scanned.plan(client).unwrap().plan, choice.plan);
    let own = reduce_kernels::device_of(client);
    let problem = scanned.problem().unwrap();
    let mut forced = force_scan(choice.plan.kind(), &problem, &own).unwrap();
    let by_force = scanned.clone().with_plan(forced).run(client).unwrap();
    assert_eq!(read::<f32>(client, &by_force, 6), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    forced.access = forced.access.with_loads_in_flight(3);
    let unfit = scanned.clone().with_plan(forced).run(client).unwrap_err();
    let reason = Illegal::ScanAccess;
    assert!(
        matches!(source::<PlanError>(&unfit), Some(PlanError::Unfit { reason: r, .. })
        if *r == reason),
        "{unfit}"
    );
    let mut stored = choice.plan;
    stored.outputs_per_cube = (stored.outputs_per_cube / 2).max(1);
    let mut store = PlanStore::new(&own);
    store.insert(&problem, &own, TunedPlan::new(stored, 10, 20)).unwrap();
    assert_eq!(scanned.clone().with_plans(&store).plan(client).unwrap().plan, stored);

    // Without a tensor, and as data.
    let x = TensorDescription::row_major(ElementType::F16, [64, 1000]);
    let described = scan(MaxWithIndex, &x).over(1).exclusive().reverse();
    assert_eq!(described.output_types().unwrap(), (ElementType::F16, ElementType::U32));
    let line = described.record().unwrap().to_json();
    let RecordedCall::Scan(read) = RecordedCall::parse(&line).unwrap() else { panic!("{line}") };
    assert_eq!(read.problem::<MaxWithIndex>().unwrap(), described.problem().unwrap());
    assert!(read.problem::<Sum>().is_err());
    assert_eq!(read.to_string(), "exclusive reverse scan of max_with_index f16 [64, 1000] axis 1");
    let wide = scan(Sum, &x).output_type(ElementType::F32).accumulate_in(ElementType::F64);
    assert_eq!(wide.output_types().unwrap(), ElementType::F32);
}
