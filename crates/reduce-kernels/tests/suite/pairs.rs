//! Reductions of two inputs: every one of them against f64, through every schedule, with second
//! inputs of any layout that broadcast or not, of any types, and what they do at the edges.

use cubecl::{prelude::*, std::tensor::TensorHandle};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    ElementType, ErrorKind, Operator, ReduceError, Reduction, Sum, TensorDescription,
    by_name::{PairName, PairOptions, with_pair},
    cubecl,
    operator::{Fields, Two, rules},
    pairs::{Covariance, ElementwiseProduct, SumAndDot, WeightedMeanVar, reduce_pair},
    planner::{
        Access, Direction, Plan, PlanError, Schedule, ScheduleKind, force, row_major_strides, span,
    },
    reduce,
};

use crate::{
    case::Case,
    run::{capable_device, decode, encode, read, source, tensor, tensor_of},
};

const OPTIONS: PairOptions =
    PairOptions { delta: 0.7, eps: 1e-3, correction: 1.0, absolute: 0.1, relative: 0.05 };

/// The results of one slice in f64, and the error bound of each in units of the accumulator's
/// epsilon. A result that is exact has a bound of 0.
fn naive(pair: PairName, x: &[f64], y: &[f64]) -> Vec<(f64, f64)> {
    let n = x.len() as f64;
    let both = || x.iter().copied().zip(y.iter().copied());
    let sum = |term: &dyn Fn(f64, f64) -> f64| -> (f64, f64) {
        let terms = both().map(|(x, y)| term(x, y));
        (terms.clone().sum(), terms.map(f64::abs).sum())
    };
    let summed = |term: &dyn Fn(f64, f64) -> f64, of: f64| {
        let (sum, size) = sum(term);
        // A term is off by a few units of its own, and a chain of 512 adds as many.
        (sum / of, 64.0 * (size + n) / of)
    };
    let weights = sum(&|_, w| w).0;
    let mean = sum(&|x, w| w * x).0 / weights;
    match pair {
        PairName::Dot => vec![summed(&|x, y| x * y, 1.0)],
        PairName::MeanSquaredError => vec![summed(&|x, y| (x - y).powi(2), n)],
        PairName::MeanAbsoluteError => vec![summed(&|x, y| (x - y).abs(), n)],
        PairName::Huber => {
            let delta = OPTIONS.delta;
            let loss = |d: f64| if d <= delta { d * d / 2.0 } else { delta * (d - delta / 2.0) };
            vec![summed(&|x, y| loss((x - y).abs()), n)]
        }
        PairName::KlDivergence => {
            let (sum, _) = sum(&|p, q| if p == 0.0 { 0.0 } else { p * (p.ln() - q.ln()) });
            vec![(sum, 256.0 * n)]
        }
        PairName::CosineSimilarity => {
            let length = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>().sqrt().max(OPTIONS.eps);
            let (dot, size) = sum(&|x, y| x * y);
            let lengths = length(x) * length(y);
            vec![(dot / lengths, 64.0 * (size / lengths + 1.0))]
        }
        PairName::Accuracy => {
            vec![(both().filter(|(x, y)| x == y).count() as f64 / n, 4.0)]
        }
        PairName::CountEqual => vec![(both().filter(|(x, y)| x == y).count() as f64, 0.0)],
        PairName::MaxDifference => {
            let most = both().map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
            vec![(most, 4.0 * (1.0 + most))]
        }
        PairName::AllClose => {
            let tolerance = |y: f64| OPTIONS.absolute + OPTIONS.relative * y.abs();
            vec![(f64::from(u8::from(both().all(|(x, y)| (x - y).abs() <= tolerance(y)))), 0.0)]
        }
        PairName::WeightedMean => vec![(mean, 256.0 * (1.0 + mean.abs()))],
        PairName::WeightedMeanVar => {
            let variance = sum(&|x, w| w * (x - mean).powi(2)).0 / weights;
            vec![(mean, 256.0 * (1.0 + mean.abs())), (variance, 1024.0 * (1.0 + variance))]
        }
        PairName::Covariance => {
            let (mean_x, mean_y) = (sum(&|x, _| x).0 / n, sum(&|_, y| y).0 / n);
            let (sum, size) = sum(&|x, y| (x - mean_x) * (y - mean_y));
            let of = (n - OPTIONS.correction).max(0.0);
            vec![(sum / of, 1024.0 * (1.0 + size / of))]
        }
        PairName::SumAndDot => vec![summed(&|x, _| x, 1.0), summed(&|x, y| x * y, 1.0)],
        _ => panic!("{pair} needs a reference here"),
    }
}

/// What the elements of both inputs are drawn from.
fn ranges(pair: PairName) -> (std::ops::Range<f64>, std::ops::Range<f64>) {
    match pair {
        PairName::KlDivergence => (0.0..1.0, 0.1..1.0),
        PairName::WeightedMean | PairName::WeightedMeanVar => (-3.0..5.0, 0.1..2.0),
        PairName::Accuracy | PairName::CountEqual => (0.0..3.0, 0.0..3.0),
        // About half of the slices are close.
        PairName::AllClose => (2.0..2.205, 2.0..2.0),
        _ => (-3.0..5.0, -2.0..4.0),
    }
}

/// How the second input lies beside the first.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Second {
    /// Row-major, of the same shape.
    RowMajor,
    /// With its axes in the reverse order in memory.
    Reversed,
    /// With a gap after each element.
    Gaps,
    /// One row for all: the last axis alone.
    Row,
    /// One element for each index of all axes but the last.
    Column,
    /// A single element, without axes.
    Scalar,
}

const SECONDS: [Second; 6] =
    [Second::RowMajor, Second::Reversed, Second::Gaps, Second::Row, Second::Column, Second::Scalar];

impl Second {
    /// Shape and strides beside a tensor of this shape.
    fn layout(self, shape: &[usize]) -> (Vec<usize>, Vec<usize>) {
        let own = match self {
            Second::Row => shape[shape.len() - 1..].to_vec(),
            Second::Column => [&shape[..shape.len() - 1], &[1]].concat(),
            Second::Scalar => Vec::new(),
            _ => shape.to_vec(),
        };
        let strides = match self {
            Second::Reversed => {
                let reversed: Vec<usize> = own.iter().rev().copied().collect();
                row_major_strides(&reversed).into_iter().rev().collect()
            }
            Second::Gaps => row_major_strides(&own).iter().map(|stride| 2 * stride).collect(),
            _ => row_major_strides(&own),
        };
        (own, strides)
    }
}

/// How a plan is made.
#[derive(Clone, Copy, Debug)]
enum Way {
    Chosen,
    Forced(ScheduleKind),
    Planned(Plan),
}

/// Reduces two inputs of these types by a plan, and compares the results with f64.
fn check(
    client: &Client,
    pair: PairName,
    case: &Case,
    second: Second,
    elements: (ElementType, ElementType),
    way: Way,
) -> Result<(), ReduceError> {
    let mut rng = StdRng::seed_from_u64(case.span() as u64);
    let mut draw = |element: ElementType, len: usize, range: std::ops::Range<f64>| -> Vec<f64> {
        let values: Vec<f64> = (0..len)
            .map(|_| match range.is_empty() {
                true => range.start,
                false => rng.random_range(range.clone()),
            })
            .collect();
        let values = match element.is_float()
            && !matches!(pair, PairName::CountEqual | PairName::Accuracy)
        {
            true => values,
            false => values.iter().map(|value| value.abs().floor()).collect(),
        };
        decode(element, &encode(element, &values))
    };
    let (shape, strides) = second.layout(&case.shape);
    let (from_x, from_y) = ranges(pair);
    let x = draw(elements.0, case.span(), from_x);
    let y = draw(elements.1, span(&shape, &strides).unwrap(), from_y);
    let first = tensor_of(client, elements.0, &encode(elements.0, &x), &case.shape, &case.strides);
    let other = tensor_of(client, elements.1, &encode(elements.1, &y), &shape, &strides);

    // The pairs of each slice.
    let rank = case.shape.len();
    let row_major = row_major_strides(&case.shape);
    let kept: Vec<usize> = (0..rank).filter(|axis| !case.axes.contains(axis)).collect();
    let kept_strides = row_major_strides(&case.kept_shape());
    let mut slices = vec![(Vec::new(), Vec::new()); case.kept_shape().iter().product()];
    for number in 0..case.shape.iter().product() {
        let at = |axis: usize| number / row_major[axis] % case.shape[axis];
        let slice: usize =
            kept.iter().zip(&kept_strides).map(|(&axis, stride)| at(axis) * stride).sum();
        let in_first: usize = (0..rank).map(|axis| at(axis) * case.strides[axis]).sum();
        let missing = rank - shape.len();
        let in_second: usize = (0..shape.len())
            .map(|axis| if shape[axis] == 1 { 0 } else { at(missing + axis) * strides[axis] })
            .sum();
        slices[slice].0.push(x[in_first]);
        slices[slice].1.push(y[in_second]);
    }

    let (results, words) = with_pair!(pair, OPTIONS, operator => {
        launch(client, reduce_pair(operator, &first, &other).over(&case.axes[..]), way)?
    });
    let wide = [elements.0, elements.1].contains(&ElementType::F64);
    let epsilon = if wide { f64::EPSILON } else { f32::EPSILON.into() };
    for (nth, (xs, ys)) in slices.iter().enumerate() {
        for (result, (expected, bound)) in naive(pair, xs, ys).into_iter().enumerate() {
            let (element, found) = &results[result];
            let rounding = match element {
                ElementType::F16 => 2f64.powi(-10),
                ElementType::BF16 => 2f64.powi(-7),
                _ => 0.0,
            };
            let bound = bound * epsilon + expected.abs() * rounding;
            let same = (found[nth] - expected).abs() <= bound
                || found[nth].is_nan() && expected.is_nan()
                || found[nth] == expected;
            assert!(
                same,
                "{pair} of {elements:?}: result {result} of slice {nth} is {}, expected {expected} \
                 within {bound}\n{case:?} {second:?}\n{words}",
                found[nth],
            );
        }
    }
    Ok(())
}

/// The type and the elements of each result, and the plan in words.
type Found = (Vec<(ElementType, Vec<f64>)>, String);

fn launch<O: Operator<Inputs = Two>>(
    client: &Client,
    reduction: Reduction<'_, O, TensorHandle>,
    way: Way,
) -> Result<Found, ReduceError> {
    use reduce_kernels::operator::Arity;

    let device = capable_device(client);
    // WGSL has no bool.
    let reduction = match O::NAME {
        "all_close" => reduction.output_type(ElementType::U32),
        _ => reduction,
    };
    let problem = reduction.problem()?;
    let types = O::Results::into_list(reduction.output_types()?);
    let outputs = problem.outputs();
    let reduction = reduction.plan_for(&device);
    let plan = match way {
        Way::Chosen => None,
        Way::Forced(kind) => Some(force(kind, &problem, &device)?),
        Way::Planned(plan) => Some(plan),
    };
    let words = plan.map_or("as chosen".into(), |plan| plan.to_string());
    let reduction = match plan {
        Some(plan) => reduction.with_plan(plan),
        None => reduction,
    };
    let results = O::Results::into_list(reduction.run(client)?);
    let read = |(element, tensor): (ElementType, TensorHandle)| {
        let bytes = client.read_one(tensor.handle.clone()).expect("the device answers");
        (element, decode(element, &bytes[..outputs * element.bytes()]))
    };
    assert_eq!(types.len(), <O::Results as Fields>::COUNT);
    Ok((types.into_iter().zip(results).map(read).collect(), words))
}

const F32: (ElementType, ElementType) = (ElementType::F32, ElementType::F32);

/// Every reduction of two inputs through every schedule, along and across.
pub(crate) fn every_schedule(client: &Client) {
    let cases = [Case::contiguous(&[5, 1001], &[1]), Case::contiguous(&[3, 300, 24], &[1])];
    for &pair in PairName::ALL {
        for case in &cases {
            let mut runs = 0;
            for kind in ScheduleKind::ALL {
                match check(client, pair, case, Second::RowMajor, F32, Way::Forced(kind)) {
                    Ok(()) => runs += 1,
                    Err(error) if matches!(source(&error), Some(PlanError::NoSchedule { .. })) => {}
                    Err(other) => panic!("{pair} {case:?} {kind}: {other}"),
                }
            }
            assert!(runs >= 2, "{pair} {case:?}: {runs} schedules");
        }
    }
}

/// Short reductions, of which units and planes have several in flight.
pub(crate) fn several_outputs(client: &Client) {
    let lanes = Schedule::Plane { lanes_per_output: 8, units_per_cube: 64 };
    let unit = Schedule::Unit { units_per_cube: 32 };
    let in_flight = |access: Access, loads, outputs| {
        access.with_loads_in_flight(loads).with_outputs_in_flight(outputs)
    };
    let (along, across) = (Access::new(Direction::Along), Access::new(Direction::Across));
    let plans = [
        (Case::contiguous(&[37, 16], &[1]), Plan::new(in_flight(along, 2, 4), lanes)),
        (Case::contiguous(&[101, 4], &[1]), Plan::new(in_flight(along, 4, 4), unit)),
        (Case::contiguous(&[3, 4, 50], &[1]), Plan::new(in_flight(across, 4, 2), unit)),
    ];
    for (case, plan) in plans {
        for second in SECONDS {
            for pair in [PairName::Dot, PairName::CosineSimilarity] {
                check(client, pair, &case, second, F32, Way::Planned(plan)).unwrap();
            }
        }
    }
}

/// Inputs of any layout, the second of which broadcasts or not.
pub(crate) fn every_layout(client: &Client) {
    let cases = [
        Case::contiguous(&[7, 64], &[1]),
        Case::contiguous(&[600, 3], &[1]),
        Case::contiguous(&[300], &[0]),
        Case::contiguous(&[2, 70, 7], &[1]),
        Case::contiguous(&[2, 3, 20_001], &[2]),
        // Split on a device of two multiprocessors too.
        Case::contiguous(&[40_001], &[0]),
        Case::contiguous(&[5, 4, 77], &[0, 2]),
        Case::contiguous(&[4, 6, 10, 24], &[1, 3]),
        Case::pitched(&[6, 50], 64, &[1]),
        Case::pitched(&[60, 50], 64, &[0]),
        Case::permuted(&[24, 10, 12], &[2, 0, 1], &[1]),
        Case::sliced(&[9, 80], &[2, 2], &[1]),
        Case::broadcast(&[6, 40], &[0], &[1]),
    ];
    let mut split = 0;
    for case in &cases {
        for second in SECONDS {
            for pair in [PairName::Dot, PairName::SumAndDot] {
                check(client, pair, case, second, F32, Way::Chosen).unwrap();
            }
            match check(client, PairName::Dot, case, second, F32, Way::Forced(ScheduleKind::Split))
            {
                Ok(()) => split += 1,
                Err(error) if matches!(source(&error), Some(PlanError::NoSchedule { .. })) => {}
                Err(other) => panic!("{case:?} {second:?}: {other}"),
            }
        }
    }
    assert!(split > 0, "no case was split");
}

/// Inputs of two types.
pub(crate) fn every_type(client: &Client) {
    use ElementType::*;
    let device = capable_device(client);
    let (rows, columns) =
        (Case::contiguous(&[5, 1001], &[1]), Case::contiguous(&[3, 40, 24], &[1]));
    for elements in [(F16, F32), (BF16, BF16), (F64, F64), (F32, F64), (F16, BF16), (F32, I8)] {
        if !(device.has(elements.0) && device.has(elements.1)) {
            println!("{}: not run, the device lacks one of {elements:?}", client.name());
            continue;
        }
        for pair in [PairName::Dot, PairName::MeanSquaredError, PairName::CosineSimilarity] {
            for case in [&rows, &columns] {
                check(client, pair, case, Second::RowMajor, elements, Way::Chosen).unwrap();
            }
        }
    }
    for elements in [(I32, I32), (U8, I32), (Bool, U8), (I64, I64), (U32, F32)] {
        if !(device.has(elements.0) && device.has(elements.1)) {
            println!("{}: not run, the device lacks one of {elements:?}", client.name());
            continue;
        }
        for pair in [PairName::CountEqual, PairName::Accuracy, PairName::Dot] {
            check(client, pair, &rows, Second::RowMajor, elements, Way::Chosen).unwrap();
        }
    }
}

/// NaN, infinities, empty reductions, and integers that only their own type tells apart.
pub(crate) fn at_the_edges(client: &Client) {
    const NAN: f32 = f32::NAN;
    const INF: f32 = f32::INFINITY;
    let read = |output: TensorHandle, element: ElementType, len: usize| {
        let bytes = client.read_one(output.handle.clone()).expect("the device answers");
        decode(element, &bytes[..len * element.bytes()])
    };
    let of = |data: &[f32], shape: &[usize]| tensor(client, data, shape, &row_major_strides(shape));
    let x = of(&[1.0, NAN, 2.0, INF, INF, 1.0, INF, 0.0], &[4, 2]);
    let y = of(&[1.0, NAN, 2.0, INF, -INF, 1.0, 5.0, 0.0], &[4, 2]);
    let close =
        |equal_nan| reduce_kernels::pairs::AllClose { absolute: 0.0, relative: 0.1, equal_nan };
    let truth = match capable_device(client).has(ElementType::Bool) {
        true => ElementType::Bool,
        false => ElementType::U32,
    };
    let close = |equal_nan, x, y| {
        let close = reduce_pair(close(equal_nan), x, y).over(1).output_type(truth);
        read(close.run(client).unwrap(), truth, 4)
    };
    assert_eq!(close(false, &x, &y), [0.0, 1.0, 0.0, 0.0]);
    assert_eq!(close(true, &x, &y), [1.0, 1.0, 0.0, 0.0]);
    assert_eq!(close(false, &y, &x), [0.0, 1.0, 0.0, 0.0], "no finite is near infinity");
    let most = reduce_kernels::pairs::max_difference(client, &x, &y, 1).unwrap();
    let most = read(most, ElementType::F32, 4);
    assert!(most[0].is_nan() && most[1].is_nan() && most[2] == f64::INFINITY, "{most:?}");

    let none = of(&[], &[3, 0]);
    let dot = reduce_kernels::pairs::dot(client, &none, &none, 1).unwrap();
    assert_eq!(read(dot, ElementType::F32, 3), [0.0; 3]);
    let error = reduce_kernels::pairs::mean_squared_error(client, &none, &none, 1).unwrap();
    assert!(read(error, ElementType::F32, 3).iter().all(|mean| mean.is_nan()));
    assert!(reduce_kernels::pairs::max_difference(client, &none, &none, 1).is_err());

    let device = capable_device(client);
    if device.has(ElementType::I32) {
        let (a, b) = ([(1i32 << 24) + 1, 7], [1i32 << 24, 7]);
        let (a, b) = (tensor(client, &a, &[2], &[1]), tensor(client, &b, &[2], &[1]));
        let equal = reduce_kernels::pairs::accuracy(client, &a, &b, 0).unwrap();
        assert_eq!(read(equal, ElementType::F32, 1), [0.5], "f32 holds neither of the two");
    }
}

/// Tolerances are those of the elements' type: in f64, none is rounded to f32, and in f32, one that
/// is beyond its range takes every difference.
pub(crate) fn tolerances(client: &Client) {
    let close =
        |absolute| reduce_kernels::pairs::AllClose { absolute, relative: 0.0, equal_nan: false };
    let read = |output: TensorHandle| read::<u32>(client, &output, 3);
    // The largest difference of two f32 is larger than any f32.
    let x = tensor(client, &[1f32, f32::MAX, f32::INFINITY], &[3, 1], &[1, 1]);
    let y = tensor(client, &[2f32, -f32::MAX, 0.0], &[3, 1], &[1, 1]);
    let of = |close| reduce_pair(close, &x, &y).over(1).output_type(ElementType::U32);
    assert_eq!(read(of(close(1e300)).run(client).unwrap()), [1, 1, 0]);
    assert_eq!(read(of(close(f64::from(f32::MAX))).run(client).unwrap()), [1, 0, 0]);
    let scaled = reduce_kernels::pairs::AllClose { relative: 3.0, ..close(0.0) };
    assert_eq!(read(of(scaled).run(client).unwrap()), [1, 1, 0]);
    if !capable_device(client).has(ElementType::F64) {
        println!("{}: f64 not run, the device lacks it", client.name());
        return;
    }
    let x = tensor(client, &[0f64, 0.0, 1e-50], &[3, 1], &[1, 1]);
    let y = tensor(client, &[0.100_000_001, 1e300, 0.0], &[3, 1], &[1, 1]);
    let of = |close| reduce_pair(close, &x, &y).over(1).output_type(ElementType::U32);
    assert_eq!(read(of(close(0.1)).run(client).unwrap()), [0, 0, 1]);
    assert_eq!(read(of(close(f64::MAX)).run(client).unwrap()), [1, 1, 1]);
    assert_eq!(read(of(close(1e-50)).run(client).unwrap()), [0, 0, 1]);
}

/// Weighted variances and covariances of elements whose squares no f32 holds, and of elements whose
/// squares do not add up in f32, through every schedule.
pub(crate) fn large_magnitudes(client: &Client) {
    let len = 70_001;
    let shape = [1, len];
    let row = |value: &dyn Fn(usize) -> f64| -> TensorHandle {
        let row: Vec<f32> = (0..len).map(|i| value(i) as f32).collect();
        tensor(client, &row, &shape, &[len, 1])
    };
    let same = row(&|_| 2e19);
    let spread = row(&|i| if i % 2 == 0 { 1e18 } else { -1e18 });
    // Its square is above all f32, but not the variance of it and of one zero, which some unit of a
    // plan may merge first.
    let lone = row(&|i| if i == 60_000 { 3e19 } else { 0.0 });
    let light = row(&|i| if i == 0 { 1e9 } else { 0.0 });
    let light_weights = row(&|i| if i == 0 { 1e-9 } else { 1.0 });
    let weights = row(&|_| 0.5);
    let problem = reduce_pair(WeightedMeanVar, &same, &weights).over(1).problem().unwrap();
    let device = capable_device(client);
    let mut ways = vec![Way::Chosen];
    for kind in ScheduleKind::ALL {
        ways.extend(force(kind, &problem, &device).ok().map(Way::Planned));
    }
    assert!(ways.len() >= 3, "{ways:?}");
    for way in ways {
        let moments = |x| {
            let found = launch(client, reduce_pair(WeightedMeanVar, x, &weights).over(1), way);
            let (results, _) = found.unwrap();
            (results[0].1[0], results[1].1[0])
        };
        let covariance = |x| {
            let covariance = reduce_pair(Covariance { correction: 1.0 }, x, x).over(1);
            launch(client, covariance, way).unwrap().0[0].1[0]
        };
        assert_eq!(moments(&same), (f64::from(2e19f32), 0.0), "{way:?}");
        assert_eq!(covariance(&same), 0.0, "{way:?}");
        let (mean, variance) = moments(&spread);
        assert!(mean.abs() <= 1e14, "{way:?}: mean {mean}");
        assert!((variance / 1e36 - 1.0).abs() <= 3e-5, "{way:?}: variance {variance}");
        let found = covariance(&spread);
        assert!((found / 1e36 - 1.0).abs() <= 3e-5, "{way:?}: covariance {found}");
        let far = f64::from(3e19f32).powi(2) / len as f64;
        let (_, variance) = moments(&lone);
        assert!((variance / far - 1.0).abs() <= 5e-5, "{way:?}: variance {variance} of {far}");
        // A single element of a tiny weight has all of the variance.
        let (_, variance) =
            launch(client, reduce_pair(WeightedMeanVar, &light, &light_weights).over(1), way)
                .map(|(results, _)| (results[0].1[0], results[1].1[0]))
                .unwrap();
        let expected = 1e9 / (len - 1) as f64;
        assert!((variance / expected - 1.0).abs() <= 1e-4, "{way:?}: {variance}, not {expected}");
        let found = covariance(&lone);
        assert!((found / far - 1.0).abs() <= 5e-5, "{way:?}: covariance {found} of {far}");
    }
}

/// Long weighted variances and covariances are as exact as sums, under every schedule, one unit
/// alone included. Where there are planes, a share has more elements in each component than f32
/// counts one by one.
pub(crate) fn long_moments(client: &Client) {
    let software = !reduce_kernels::device_of(client).plane_operations;
    let device = capable_device(client);
    // All rows lie in the same memory.
    let broadcast = |len: usize, value: &dyn Fn(usize) -> f32| -> TensorHandle {
        let row: Vec<f32> = (0..1024).map(value).collect();
        tensor(client, &row, &[len / 1024, 1024], &[0, 1])
    };
    let check = |len: usize, all: bool| {
        let x = broadcast(len, &|i| (i * 7 % 16) as f32 * 0.1);
        let weights = broadcast(len, &|i| if i.is_multiple_of(3) { 0.1 } else { 0.3 });
        let exact = |value: &dyn Fn(f64, f64) -> f64| -> f64 {
            let x = |i: usize| f64::from((i * 7 % 16) as f32 * 0.1);
            let w = |i: usize| f64::from(if i.is_multiple_of(3) { 0.1f32 } else { 0.3 });
            (0..1024).map(|i| value(x(i), w(i))).sum::<f64>() / 1024.0
        };
        let weight = exact(&|_, w| w);
        let mean = exact(&|x, w| w * x) / weight;
        let variance = exact(&|x, w| w * (x - mean).powi(2)) / weight;
        let middle = exact(&|x, _| x);
        let covariance = exact(&|x, _| (x - middle).powi(2));
        let bound = (512.0 + 2.0 * (len as f64).log2()) * f64::from(f32::EPSILON) / 2.0;
        let problem = reduce_pair(WeightedMeanVar, &x, &weights).problem().unwrap();
        for kind in ScheduleKind::ALL {
            let Ok(plan) = force(kind, &problem, &device) else { continue };
            if !all && plan.schedule.units_per_output() > 1 {
                continue;
            }
            let way = Way::Planned(plan);
            let close = |found: f64, expected: f64, what: &str| {
                let off = (found / expected - 1.0).abs();
                assert!(off <= bound, "{what} is {found}, not {expected}: off by {off:e}, {plan}");
            };
            let (results, _) =
                launch(client, reduce_pair(WeightedMeanVar, &x, &weights), way).unwrap();
            close(results[0].1[0], mean, "mean");
            close(results[1].1[0], variance, "variance");
            let reduction = reduce_pair(Covariance { correction: 0.0 }, &x, &x);
            close(launch(client, reduction, way).unwrap().0[0].1[0], covariance, "covariance");
        }
    };
    check(if software { 1 << 16 } else { 1 << 20 }, true);
    if !software {
        check(1 << 27, false);
    }
}

/// Bad requests are named before anything is launched.
pub(crate) fn contract(client: &Client) {
    let of = |shape: &[usize]| {
        tensor(client, &vec![1f32; shape.iter().product()], shape, &row_major_strides(shape))
    };
    let (x, row, wrong) = (of(&[4, 6]), of(&[6]), of(&[4]));
    let error = reduce(Sum, &x).paired(&wrong, ElementwiseProduct).run(client).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape);
    assert_eq!(
        error.to_string(),
        "the second input has shape [4], which does not broadcast to that of the first, [4, 6]"
    );
    let error = reduce(Sum, &row).paired(&x, ElementwiseProduct).run(client).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape);
    assert_eq!(
        error.to_string(),
        "the second input has shape [4, 6], which does not broadcast to that of the first, [6]"
    );
    // Types rule it out, but for a recorded reduction.
    let recorded = reduce_pair(SumAndDot, &x, &row).record().unwrap();
    let alone = recorded.reduction(SumAndDot, &x, None).run(client).unwrap_err();
    assert_eq!(alone.kind(), ErrorKind::Arguments);
    assert_eq!(alone.to_string(), "`sum_and_dot` takes 2 inputs, and 1 were given");
    let error = reduce_kernels::pairs::huber(client, &x, &row, .., -1.0).unwrap_err().to_string();
    assert!(error.contains("delta is -1"), "{error}");
    let described = TensorDescription::row_major(ElementType::F16, [4, 6]);
    let other = TensorDescription::row_major(ElementType::F64, [1, 6]);
    let dot = reduce(Sum, &described).paired(&other, ElementwiseProduct).over(0).keep_dims(false);
    assert_eq!(dot.output_shape().unwrap(), [6]);
    assert_eq!(dot.output_types().unwrap(), ElementType::F64);
    assert_eq!(dot.problem().unwrap().bytes(), 24 * 2 + 6 * 8 + 6 * 8);
    // A buffer that ends before the second input does.
    let short = of(&[2]);
    let long = TensorHandle::new(short.handle.clone(), [6], [1], x.dtype);
    let reduction = reduce(Sum, &x).paired(&long, ElementwiseProduct);
    let checked = reduction.check(client).unwrap_err();
    let error = reduction.run(client).unwrap_err();
    assert_eq!(checked, error, "a check says what running would");
    assert_eq!(error.kind(), ErrorKind::Buffer);
    assert_eq!(error.to_string(), "the second input spans 24 bytes, but its buffer holds 8");
    assert_eq!(rules::common(ElementType::U8, ElementType::I8), ElementType::I16);
    assert_eq!(rules::common(ElementType::F16, ElementType::BF16), ElementType::F32);
    assert_eq!(rules::common(ElementType::Bool, ElementType::F16), ElementType::F16);
    assert_eq!(rules::common(ElementType::I64, ElementType::F32), ElementType::F64);
}
