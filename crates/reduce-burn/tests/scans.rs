//! Scans made of Burn's own operations on burn-flex, against the definition of each operator in
//! f64, and their gradients against finite differences. The device suite in `examples/burn`
//! compares devices with burn-flex.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn_dispatch::Dispatch;
use burn_tensor::{Bool, DType, Device, Int, Tensor, TensorData};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_burn::{backend::*, scan::*};

/// The shape in memory. The axes of the tensors are in another order.
const STORED: [usize; 3] = [5, 3, 4];

/// The shape of the tensors.
const SHAPE: [usize; 3] = [3, 4, 5];

/// Several axes, one, all and none.
const AXES: [&[i64]; 5] = [&[1], &[-1], &[2, 0], &[0, 1, 2], &[]];

/// From which end a scan goes, and whether it leaves out the element at a position.
#[derive(Clone, Copy, Debug)]
struct Way {
    exclusive: bool,
    reverse: bool,
}

const WAYS: [Way; 4] = [
    Way { exclusive: false, reverse: false },
    Way { exclusive: true, reverse: false },
    Way { exclusive: false, reverse: true },
    Way { exclusive: true, reverse: true },
];

impl Way {
    fn over(self, axes: &[i64]) -> ScanAxes {
        match (self.exclusive, self.reverse) {
            (false, false) => axes.into(),
            (true, false) => exclusive(axes),
            (false, true) => reverse(axes),
            (true, true) => exclusive(reverse(axes)),
        }
    }

    /// The elements of a row of which the result at a position is.
    fn elements(self, place: usize, len: usize) -> std::ops::Range<usize> {
        match (self.exclusive, self.reverse) {
            (false, false) => 0..place + 1,
            (true, false) => 0..place,
            (false, true) => place..len,
            (true, true) => place + 1..len,
        }
    }
}

/// All axes in all ways.
fn cases() -> impl Iterator<Item = (&'static [i64], Way)> {
    AXES.iter().flat_map(|&axes| WAYS.map(|way| (axes, way)))
}

/// A device whose tensors gradients can be asked for.
fn tracking() -> Device {
    Device::flex().autodiff()
}

fn stored(elements: &[f64]) -> Tensor<3> {
    let data = TensorData::new(elements.to_vec(), STORED);
    Tensor::from_data(data, (&tracking(), DType::F64))
}

fn permuted(x: Tensor<3>) -> Tensor<3> {
    x.permute([1, 2, 0])
}

fn random(seed: u64) -> Vec<f64> {
    let mut random = StdRng::seed_from_u64(seed);
    (0..STORED.iter().product()).map(|_| random.random_range(-2.0..2.0)).collect()
}

fn elements<const D: usize>(x: Tensor<D>) -> Vec<f64> {
    x.into_data().iter::<f64>().collect()
}

fn integers<const D: usize>(x: Tensor<D, Int>) -> Vec<f64> {
    x.into_data().iter::<i64>().map(|x| x as f64).collect()
}

fn truths<const D: usize>(x: Tensor<D, Bool>) -> Vec<f64> {
    x.into_data().iter::<bool>().map(|x| f64::from(u8::from(x))).collect()
}

/// A tensor of one row.
fn row(elements: &[f64]) -> Tensor<1> {
    let data = TensorData::new(elements.to_vec(), [elements.len()]);
    Tensor::from_data(data, (&tracking(), DType::F64))
}

/// The places of the elements of each row, in row-major order.
fn rows(axes: &[i64]) -> Vec<Vec<usize>> {
    let is_scanned = |axis: usize| axes.iter().any(|&own| own.rem_euclid(3) as usize == axis);
    let extent = |axis: usize, scanned: bool| match is_scanned(axis) == scanned {
        true => SHAPE[axis],
        false => 1,
    };
    let places = |scanned: bool| {
        let [a, b, c] = [0, 1, 2].map(|axis| extent(axis, scanned));
        let place = move |n: usize| (n / (b * c) * SHAPE[1] + n / c % b) * SHAPE[2] + n % c;
        (0..a * b * c).map(place).collect::<Vec<usize>>()
    };
    let of_row = places(true);
    places(false).iter().map(|first| of_row.iter().map(|own| first + own).collect()).collect()
}

/// The results of a function, as numbers.
type Function = fn(Tensor<3>, ScanAxes) -> Vec<Vec<f64>>;

const FUNCTIONS: [(OperatorName, Function); 12] = [
    (OperatorName::Sum, |x, axes| vec![elements(cumsum(x, axes))]),
    (OperatorName::Prod, |x, axes| vec![elements(cumprod(x, axes))]),
    (OperatorName::Max, |x, axes| vec![elements(cummax(x, axes))]),
    (OperatorName::Min, |x, axes| vec![elements(cummin(x, axes))]),
    (OperatorName::MaxWithIndex, |x, axes| {
        let (values, positions) = cummax_with_positions(x, axes);
        vec![elements(values), integers(positions)]
    }),
    (OperatorName::MinWithIndex, |x, axes| {
        let (values, positions) = cummin_with_positions(x, axes);
        vec![elements(values), integers(positions)]
    }),
    (OperatorName::LogSumExp, |x, axes| vec![elements(logcumsumexp(x, axes))]),
    (OperatorName::Mean, |x, axes| vec![elements(cummean(x, axes))]),
    (OperatorName::Var, |x, axes| vec![elements(cumvar(x, axes, 1.0))]),
    (OperatorName::MeanVar, |x, axes| {
        let (means, variances) = cummean_var(x, axes, 1.0);
        vec![elements(means), elements(variances)]
    }),
    (OperatorName::All, |x, axes| vec![truths(cumall(x, axes))]),
    (OperatorName::Any, |x, axes| vec![truths(cumany(x, axes))]),
];

/// The definition of each operator, of the elements of a row from number `from` on.
fn definition(operator: OperatorName, x: &[f64], from: usize) -> Vec<f64> {
    use OperatorName::*;

    let mean = x.iter().sum::<f64>() / x.len() as f64;
    let variance = || {
        let squares: f64 = x.iter().map(|x| (x - mean).powi(2)).sum();
        squares / (x.len() as f64 - 1.0).max(0.0)
    };
    let extremum = |sign: f64| match x.iter().position(|x| x.is_nan()) {
        Some(nan) => vec![f64::NAN, (from + nan) as f64],
        None if x.is_empty() => vec![-sign * f64::INFINITY, f64::NAN],
        None => {
            let beyond =
                |best: usize, n: usize| if x[n] * sign > x[best] * sign { n } else { best };
            let at = (0..x.len()).fold(0, beyond);
            vec![x[at], (from + at) as f64]
        }
    };
    let truth = |is_true: bool| vec![f64::from(u8::from(is_true))];
    match operator {
        Sum => vec![x.iter().sum::<f64>() + 0.0],
        Prod => vec![x.iter().product()],
        Max => vec![extremum(1.0)[0]],
        Min => vec![extremum(-1.0)[0]],
        MaxWithIndex => extremum(1.0),
        MinWithIndex => extremum(-1.0),
        LogSumExp => vec![x.iter().map(|x| x.exp()).sum::<f64>().ln()],
        Mean => vec![mean],
        Var if x.is_empty() => vec![f64::NAN],
        Var => vec![variance()],
        // The mean is computed from distances, which have no finite sum if an element is infinite.
        MeanVar if x.is_empty() || x.iter().any(|x| x.is_infinite()) => vec![f64::NAN; 2],
        MeanVar => vec![mean, variance()],
        All => truth(x.iter().all(|&x| x != 0.0)),
        Any => truth(x.iter().any(|&x| x != 0.0)),
        other => panic!("reduce-burn does not scan with `{other}`"),
    }
}

/// Random elements; ties, zeros and infinities; and with NaN too.
fn inputs() -> [Vec<f64>; 3] {
    let mut rounded: Vec<f64> = random(2).iter().map(|x| x.round()).collect();
    rounded.iter_mut().skip(4).step_by(17).for_each(|x| *x = f64::INFINITY);
    rounded[12] = f64::NEG_INFINITY;
    let mut with_nan = rounded.clone();
    with_nan.iter_mut().skip(1).step_by(11).for_each(|x| *x = f64::NAN);
    [random(1), rounded, with_nan]
}

#[test]
fn scans_are_those_of_their_definition() {
    for data in inputs() {
        let x = permuted(stored(&data));
        let numbers = elements(x.clone());
        for (operator, function) in FUNCTIONS {
            for (axes, way) in cases() {
                let found = function(x.clone(), way.over(axes));
                for places in rows(axes) {
                    let values: Vec<f64> = places.iter().map(|&place| numbers[place]).collect();
                    for (nth, &place) in places.iter().enumerate() {
                        let own = way.elements(nth, places.len());
                        let expected = definition(operator, &values[own.clone()], own.start);
                        assert_eq!(found.len(), expected.len());
                        let has_position = operator.name().ends_with("with_index");
                        // No elements have no position.
                        let meant = if has_position && own.is_empty() { 1 } else { found.len() };
                        for (found, &expected) in found.iter().zip(&expected).take(meant) {
                            let found = found[place];
                            let bound = 1e-12 * expected.abs().max(1.0);
                            assert!(
                                found == expected
                                    || found.is_nan() && expected.is_nan()
                                    || (found - expected).abs() <= bound,
                                "{operator} over {axes:?} {way:?}, element {nth} of {values:?}: \
                                 {found}, not {expected}"
                            );
                        }
                    }
                }
            }
        }
    }
}

/// Values of rows of lengths that are powers of two, and others.
#[test]
fn rows_of_every_length() {
    for len in (1..=9).chain([31, 32, 33, 100]) {
        let data: Vec<f64> = (0..len).map(|n| f64::from(n * 37 % 61) * 0.25 - 7.0).collect();
        let variances = elements(cumvar(row(&data), 0, 0.5));
        let logarithms = elements(logcumsumexp(row(&data), 0));
        for n in 0..data.len() {
            let own = &data[..=n];
            let mean = own.iter().sum::<f64>() / own.len() as f64;
            let squares: f64 = own.iter().map(|x| (x - mean).powi(2)).sum();
            let expected = squares / (own.len() as f64 - 0.5);
            assert!((variances[n] - expected).abs() <= 1e-12 * expected.max(1.0), "{n} of {len}");
            let expected = own.iter().map(|x| x.exp()).sum::<f64>().ln();
            assert!((logarithms[n] - expected).abs() <= 1e-12 * expected.abs().max(1.0));
        }
    }
}

/// Variances of numbers far from 0, and logarithms of sums that no f32 holds.
#[test]
fn nothing_is_lost_or_overflows_on_the_way() {
    let data: Vec<f32> = (0..1000).map(|n| 10000.0 + (n % 2) as f32).collect();
    let x = Tensor::<1>::from_data(&data[..], &Device::flex());
    let last = elements(cumvar(x, 0, 0.0))[999];
    assert!((last - 0.25).abs() < 1e-3, "{last}");
    let x = Tensor::<1>::from_data([1000f32, 1001.0, -2000.0], &Device::flex());
    let found = elements(logcumsumexp(x, 0));
    let expected = 1001.0 + (-1f64).exp().ln_1p();
    assert!(found[0] == 1000.0 && found[1..].iter().all(|x| (x - expected).abs() < 1e-3));
}

#[test]
fn integers_and_truth_values() {
    let x = Tensor::<2, Int>::from_data([[3, -7, 3, 9], [0, 5, -2, 5]], &Device::flex());
    assert_eq!(integers(cumsum(x.clone(), 1)), [3.0, -4.0, -1.0, 8.0, 0.0, 5.0, 3.0, 8.0]);
    let product = cumprod(x.clone(), reverse(0));
    assert_eq!(integers(product), [0.0, -35.0, -6.0, 45.0, 0.0, 5.0, -2.0, 5.0]);
    let (values, positions) = cummax_with_positions(x.clone(), [0, 1]);
    assert_eq!(integers(values), [3.0, 3.0, 3.0, 9.0, 9.0, 9.0, 9.0, 9.0]);
    assert_eq!(integers(positions), [0.0, 0.0, 0.0, 3.0, 3.0, 3.0, 3.0, 3.0]);
    let (values, positions) = cummin_with_positions(x.clone(), reverse(1));
    assert_eq!(integers(values), [-7.0, -7.0, 3.0, 9.0, -2.0, -2.0, -2.0, 5.0]);
    assert_eq!(integers(positions), [1.0, 1.0, 2.0, 3.0, 2.0, 2.0, 2.0, 3.0]);
    let (_, positions) = cummax_with_positions(x.clone(), reverse(1));
    assert_eq!(integers(positions), [3.0, 3.0, 3.0, 3.0, 1.0, 1.0, 3.0, 3.0]);
    assert_eq!(truths(cumall(x.clone(), reverse(1))), [1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0]);
    let truth = x.clone().equal_elem(5);
    let any = cumany(truth.clone(), exclusive(1));
    assert_eq!(truths(any), [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
    assert_eq!(truths(cumall(truth, exclusive(1))), [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
    // A result of no integers is where an extremum starts.
    for dtype in [DType::I8, DType::I32, DType::I64, DType::U8, DType::U64] {
        let x = Tensor::<1, Int>::from_data([1, 2], (&Device::flex(), dtype));
        let bits = dtype.size() * 8;
        let is_signed = dtype.is_int();
        let most = 2f64.powi(bits as i32 - i32::from(is_signed)) - 1.0;
        let least = if is_signed { -most - 1.0 } else { 0.0 };
        let first = |x: Tensor<1, Int>| {
            assert_eq!(x.dtype(), dtype);
            x.into_data().iter::<f64>().next().expect("there is an element")
        };
        assert_eq!(first(cummax(x.clone(), exclusive(0))), least, "{dtype:?}");
        assert_eq!(first(cummin(x, exclusive(0))), most, "{dtype:?}");
    }
}

/// A function whose result is floats.
type Differentiable = fn(Tensor<3>, ScanAxes) -> Tensor<3>;

/// The functions whose results are floats, as one tensor.
fn differentiable() -> [(&'static str, Differentiable); 10] {
    [
        ("cumsum", |x, axes| cumsum(x, axes)),
        ("cumprod", |x, axes| cumprod(x, axes)),
        ("cummax", |x, axes| cummax(x, axes)),
        ("cummin", |x, axes| cummin(x, axes)),
        ("cummax with positions", |x, axes| cummax_with_positions(x, axes).0),
        ("logcumsumexp", |x, axes| logcumsumexp(x, axes)),
        ("cummean", |x, axes| cummean(x, axes)),
        ("cumvar", |x, axes| cumvar(x, axes, 1.0)),
        ("cumvar with a correction of 0", |x, axes| cumvar(x, axes, 0.0)),
        ("cummean_var", |x, axes| {
            let (means, variances) = cummean_var(x, axes, 1.0);
            means * 0.5 + numbers(variances)
        }),
    ]
}

/// The finite elements, and 0 in place of others.
fn numbers(x: Tensor<3>) -> Tensor<3> {
    let is_wrong = x.clone().is_finite().bool_not();
    x.mask_fill(is_wrong, 0.0)
}

/// The sum of the finite elements of a result, each with a weight of its own.
fn weighted(result: Tensor<3>) -> Tensor<1> {
    let dtype = result.dtype();
    let count = result.shape().num_elements();
    let weights: Vec<f64> = (0..count).map(|n| (n % 7) as f64 * 0.25 - 0.625).collect();
    let weights = TensorData::new(weights, result.dims());
    (numbers(result) * Tensor::from_data(weights, (&Device::flex(), dtype))).sum()
}

#[test]
fn gradients_are_those_of_finite_differences() {
    const STEP: f64 = 1e-5;

    // Distinct elements, further apart than the step, of which one is 0.
    let data: Vec<f64> = (0..60).map(|n| f64::from(n * 37 % 60) * 0.05 - 1.5).collect();
    for (name, function) in differentiable() {
        for (nth, (axes, way)) in cases().enumerate() {
            let run = |x: Tensor<3>| weighted(function(permuted(x), way.over(axes)));
            let x = stored(&data).require_grad();
            let found = x.grad(&run(x.clone()).backward()).expect("the tensor is tracked");
            assert_eq!(found.dims(), STORED);
            // A third of the elements in each case.
            for (place, found) in elements(found).into_iter().enumerate().skip(nth % 3).step_by(3) {
                let value_at = |step: f64| {
                    let mut changed = data.clone();
                    changed[place] += step;
                    elements(run(stored(&changed)))[0]
                };
                let expected = (value_at(STEP) - value_at(-STEP)) / (2.0 * STEP);
                assert!(
                    (found - expected).abs() <= 1e-6 * expected.abs().max(1.0),
                    "{name} over {axes:?} {way:?}, element {place}: {found}, not {expected}"
                );
            }
        }
    }
}

/// The gradient of a row, from those of its results.
fn gradient_of(data: &[f64], upstream: &[f64], scan: impl Fn(Tensor<1>) -> Tensor<1>) -> Vec<f64> {
    let x = row(data).require_grad();
    let result = scan(x.clone());
    let is_used = row(upstream).equal_elem(0.0).bool_not();
    let used = result.mask_fill(is_used.bool_not(), 0.0) * row(upstream);
    elements(x.grad(&used.sum().backward()).expect("the tensor is tracked"))
}

/// Products with no zero, one, and several, in every way.
#[test]
fn gradients_of_products_with_zeros() {
    for zeros in [&[][..], &[0], &[3], &[5], &[1, 4], &[0, 1, 5], &[0, 1, 2, 3, 4, 5]] {
        let mut data = vec![2.0, -0.5, 3.0, 1.5, -4.0, 0.25];
        zeros.iter().for_each(|&at: &usize| data[at] = 0.0);
        let upstream = [1.0, -2.0, 0.5, 3.0, 1.25, -1.5];
        for way in WAYS {
            let found = gradient_of(&data, &upstream, |x| cumprod(x, way.over(&[0])));
            for (place, &found) in found.iter().enumerate() {
                let term = |result: usize| {
                    let own = way.elements(result, data.len());
                    if !own.contains(&place) {
                        return 0.0;
                    }
                    let others = own.filter(|&other| other != place).map(|other| data[other]);
                    upstream[result] * others.product::<f64>()
                };
                let expected: f64 = (0..data.len()).map(term).sum();
                assert!(
                    (found - expected).abs() <= 1e-12,
                    "zeros at {zeros:?} {way:?}, element {place}: {found}, not {expected}"
                );
            }
        }
    }
}

/// Where a derivative does not exist, and what is not finite.
#[test]
fn gradients_at_the_edges() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let ones = [1.0; 4];
    // The first of equal elements and the first NaN take it.
    let ties = |scan: fn(Tensor<1>) -> Tensor<1>| gradient_of(&[1.0, 3.0, 3.0, 2.0], &ones, scan);
    assert_eq!(ties(|x| cummax(x, 0)), [1.0, 3.0, 0.0, 0.0]);
    assert_eq!(ties(|x| cummax(x, reverse(0))), [0.0, 2.0, 1.0, 1.0]);
    assert_eq!(ties(|x| cummax(x, exclusive(0))), [1.0, 2.0, 0.0, 0.0]);
    assert_eq!(ties(|x| cummin(x, exclusive(reverse(0)))), [0.0, 0.0, 0.0, 3.0]);
    let found = gradient_of(&[1.0, nan, 5.0, nan], &ones, |x| cummax(x, 0));
    assert_eq!(found, [1.0, 3.0, 0.0, 0.0]);
    // No element of -inf has a share, and one that is infinite has none that is a number.
    let found = gradient_of(&[-inf, -inf, 0.0, 0.0], &ones, |x| logcumsumexp(x, 0));
    assert_eq!(found[..2], [0.0; 2]);
    assert!((found[2] - 1.5).abs() < 1e-12 && (found[3] - 0.5).abs() < 1e-12, "{found:?}");
    let found = gradient_of(&[1.0, inf, 2.0, 3.0], &ones, |x| logcumsumexp(x, 0));
    assert!(found[0] == 1.0 && found[1].is_nan() && found[2..] == [0.0; 2], "{found:?}");
    // Shares do not overflow, and gradients of both signs do not cancel each other.
    let found =
        gradient_of(&[-1e4, 1e4, 1e4, -1e4], &[1.0, -1.0, 1.0, -1.0], |x| logcumsumexp(x, 0));
    let expected = [1.0, -1.0, 0.0, 0.0];
    assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}");
    // A variance of too few elements has no gradient that is a number, unless it is not used.
    let data = [1.0, 2.0, 4.0, 8.0];
    let found = gradient_of(&data, &[0.0, 1.0, 1.0, 0.0], |x| cumvar(x, 0, 1.0));
    assert!(found.iter().all(|x| x.is_finite()) && found[3] == 0.0, "{found:?}");
    let x = row(&data).require_grad();
    let found = x.grad(&cumvar(x.clone(), 0, 1.0).sum().backward()).expect("it is tracked");
    let found = elements(found);
    assert!(found[0].is_nan() && found[1..].iter().all(|x| x.is_finite()), "{found:?}");
    // What is not finite and in no result changes nothing.
    let found = gradient_of(&[1.0, 3.0, inf], &[0.0, 0.0, 1.0], |x| cumvar(x, exclusive(0), 0.0));
    assert_eq!(found, [-1.0, 1.0, 0.0]);
}

/// Results and gradients of f16 and bf16 are those of f64, rounded once.
#[test]
fn narrow_types_are_rounded_once() {
    fn results(data: &TensorData, dtype: DType, nth: usize) -> [Vec<f64>; 2] {
        let data = data.clone().convert_dtype(dtype);
        let x = Tensor::<3>::from_data(data, (&tracking(), dtype)).require_grad();
        let (_, function) = differentiable()[nth];
        let result = function(x.clone(), exclusive(1));
        assert_eq!(result.dtype(), dtype);
        let found = x.grad(&weighted(result.clone()).backward()).expect("the tensor is tracked");
        assert_eq!(found.dtype(), dtype);
        [elements(result), elements(found)]
    }

    for (dtype, epsilon) in [(DType::F16, 2f64.powi(-11)), (DType::BF16, 2f64.powi(-8))] {
        // Sums and means that the narrow type cannot hold on the way.
        let data: Vec<f64> = (0..128).map(|n| 1.0 + f64::from(n * 7 % 61) / 64.0).collect();
        let data = TensorData::new(data, [1, 64, 2]).convert_dtype(dtype);
        for nth in 0..differentiable().len() {
            let (name, _) = differentiable()[nth];
            if name == "cumprod" || name == "cummean_var" {
                // Products exceed f16, and Burn's operations round between the two results.
                continue;
            }
            let (found, expected) = (results(&data, dtype, nth), results(&data, DType::F64, nth));
            for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
                assert!(
                    found == expected
                        || found.is_nan() && expected.is_nan()
                        || (found - expected).abs() <= epsilon * expected.abs() + 2e-5,
                    "{name} of {dtype:?}: {found}, not {expected}"
                );
            }
        }
    }
}

/// Rows of one element, of none, and no rows.
#[test]
fn scans_of_nothing() {
    for shape in [[0, 3], [3, 0], [3, 1]] {
        for way in WAYS {
            let x = Tensor::<2>::ones(shape, &tracking()).require_grad();
            let (values, positions) = cummax_with_positions(x.clone(), way.over(&[1]));
            assert_eq!((values.dims(), positions.dims()), (shape, shape));
            let (mean, _) = cummean_var(x.clone(), way.over(&[1]), 0.0);
            let result = if way.exclusive { cumsum(x.clone(), way.over(&[0])) } else { mean };
            let found = x.grad(&result.sum().backward()).expect("the tensor is tracked");
            assert_eq!(found.dims(), shape);
            assert_eq!(cumany(x, way.over(&[1])).dims(), shape);
        }
    }
    let x = Tensor::<2, Int>::empty([0, 4], &Device::flex());
    assert_eq!(cummin(x, ..).dims(), [0, 4]);
}

#[test]
fn what_scans_refuse() {
    let message = |call: &dyn Fn()| {
        let panicked = catch_unwind(AssertUnwindSafe(call)).expect_err("it is refused");
        panicked.downcast_ref::<String>().expect("there is a message").clone()
    };
    let x = || Tensor::<2>::ones([2, 3], &Device::flex());
    assert_eq!(
        message(&|| drop(cumsum(x(), 2))),
        "`cumsum` of a tensor of shape [2, 3]: axis 2 is out of range for a tensor of rank 2"
    );
    assert_eq!(
        message(&|| drop(cummean_var(x(), reverse([1, -1]), 1.0))),
        "`cummean_var` of a tensor of shape [2, 3]: axis -1 of a tensor of rank 2 is given more \
         than once"
    );
    let tensor = AnyTensor::<Dispatch>::Float(x().into_dispatch());
    let scan = |operator| Scan::new(operator, OperatorOptions::default(), &tensor, &1.into());
    let refused = scan(OperatorName::NormL2).unwrap_err();
    assert_eq!(refused.to_string(), "no function scans with `norm_l2`");
    let scan = scan(OperatorName::MaxWithIndex).unwrap();
    let outputs = Operation::Scan(scan.clone()).outputs();
    assert_eq!(outputs.len(), 2);
    assert!(outputs.iter().all(|(_, _, shape)| shape == scan.shape()));
    assert_eq!(Operation::Scan(scan).name(), "cummax_with_positions");
}

/// Gradients flow through scans that are computed again in the backward pass.
#[test]
fn checkpointing_changes_no_gradient() {
    fn gradient(device: Device) -> Vec<f64> {
        let data = TensorData::from([[0.5, -1.0, 2.0], [1.5, 0.25, -0.5]]);
        let x = Tensor::<2>::from_data(data, (&device, DType::F64)).require_grad();
        let y = cumprod(x.clone().exp(), 1) + logcumsumexp(x.clone() * 3.0, reverse(0));
        let gradients = (y.clone() * y).sum().backward();
        elements(x.grad(&gradients).expect("the tensor is tracked"))
    }
    assert_eq!(gradient(tracking()), gradient(tracking().gradient_checkpointing()));
}
