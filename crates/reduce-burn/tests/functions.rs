//! Every function, made of Burn's own operations on burn-flex, against its definition in f64.
//! The device suite in `examples/burn` compares devices with burn-flex.

use burn_dispatch::Dispatch;
use burn_tensor::{Bool, DType, Device, Int, Tensor, TensorData, bf16, f16};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_burn::{backend::*, pairs::*, *};

type Floats = Tensor<3>;

/// Shape of the tensors; axes 0 and 2 are reduced.
const SHAPE: [usize; 3] = [3, 4, 5];

/// The function of each operator, its results as numbers.
fn call(operator: OperatorName, x: Floats) -> Vec<TensorData> {
    use OperatorName::*;

    const AXES: [i32; 2] = [-1, 0];
    let one = |x: Floats| vec![x.into_data()];
    let index = |x: Tensor<3, Int>| vec![x.into_data()];
    let truth = |x: Tensor<3, Bool>| vec![x.into_data()];
    match operator {
        Sum => one(sum(x, AXES)),
        Prod => one(prod(x, AXES)),
        Mean => one(mean(x, AXES)),
        Min => one(min(x, AXES)),
        Max => one(max(x, AXES)),
        MinMax => {
            let (low, high) = min_max(x, AXES);
            vec![low.into_data(), high.into_data()]
        }
        ArgMin => index(argmin(x, AXES)),
        ArgMax => index(argmax(x, AXES)),
        MinWithIndex => {
            let (value, position) = min_with_index(x, AXES);
            vec![value.into_data(), position.into_data()]
        }
        MaxWithIndex => {
            let (value, position) = max_with_index(x, AXES);
            vec![value.into_data(), position.into_data()]
        }
        Any => truth(any(x, AXES)),
        All => truth(all(x, AXES)),
        CountNonzero => index(count_nonzero(x, AXES)),
        AnyNonFinite => truth(any_non_finite(x, AXES)),
        SumAbs => one(sum_abs(x, AXES)),
        SumSquares => one(sum_squares(x, AXES)),
        NormL1 => one(norm_l1(x, AXES)),
        NormL2 => one(norm_l2(x, AXES)),
        NormInf => one(norm_inf(x, AXES)),
        NormP => one(norm_p(x, AXES, 3.0)),
        Var => one(var(x, AXES, 1.0)),
        Std => one(std(x, AXES, 1.0)),
        MeanVar => {
            let (mean, var) = mean_var(x, AXES, 1.0);
            vec![mean.into_data(), var.into_data()]
        }
        LogSumExp => one(logsumexp(x, AXES)),
        NanSum => one(nansum(x, AXES)),
        NanProd => one(nanprod(x, AXES)),
        NanMean => one(nanmean(x, AXES)),
        NanMin => one(nanmin(x, AXES)),
        NanMax => one(nanmax(x, AXES)),
        NanArgMin => index(nanargmin(x, AXES)),
        NanArgMax => index(nanargmax(x, AXES)),
        NanVar => one(nanvar(x, AXES, 1.0)),
        NanStd => one(nanstd(x, AXES, 1.0)),
        other => panic!("reduce-burn has no function for `{other}`"),
    }
}

/// Whether an element is nearer to an extremum than another one.
type Beyond = fn(f64, f64) -> bool;

/// The definition of each operator, of the elements of one reduction.
fn definition(operator: OperatorName, x: &[f64]) -> Vec<f64> {
    use OperatorName::*;

    let numbers: Vec<f64> = x.iter().copied().filter(|x| !x.is_nan()).collect();
    let total = |x: &[f64]| x.iter().sum::<f64>();
    let average = |x: &[f64]| total(x) / x.len() as f64;
    let variance = |x: &[f64]| {
        let mean = average(x);
        if x.is_empty() {
            return f64::NAN;
        }
        x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (x.len() as f64 - 1.0)
    };
    let power = |p: f64| x.iter().map(|x| x.abs().powf(p)).sum::<f64>().powf(1.0 / p);
    // The first NaN if there is one, otherwise the first element that none is beyond.
    let position = |x: &[f64], beyond: Beyond| -> usize {
        let best =
            |best: usize, (n, &x_n): (usize, &f64)| if beyond(x_n, x[best]) { n } else { best };
        let nan = x.iter().position(|x| x.is_nan());
        nan.unwrap_or_else(|| x.iter().enumerate().fold(0, best))
    };
    let position_of_number = |beyond: Beyond| -> usize {
        let best = |best: usize, (n, &x_n): (usize, &f64)| {
            if !x_n.is_nan() && (x[best].is_nan() || beyond(x_n, x[best])) { n } else { best }
        };
        x.iter().enumerate().fold(0, best)
    };
    let (below, above): (Beyond, Beyond) = (|a, b| a < b, |a, b| a > b);
    let (lowest, highest) = (position(x, below), position(x, above));
    let nonzero = x.iter().filter(|&&x| x != 0.0).count();
    let magnitudes: Vec<f64> = x.iter().map(|x| x.abs()).collect();
    match operator {
        Sum => vec![total(x)],
        Prod => vec![x.iter().product()],
        Mean => vec![average(x)],
        Min => vec![x[lowest]],
        Max => vec![x[highest]],
        MinMax => vec![x[lowest], x[highest]],
        ArgMin => vec![lowest as f64],
        ArgMax => vec![highest as f64],
        MinWithIndex => vec![x[lowest], lowest as f64],
        MaxWithIndex => vec![x[highest], highest as f64],
        Any => vec![f64::from(nonzero > 0)],
        All => vec![f64::from(nonzero == x.len())],
        CountNonzero => vec![nonzero as f64],
        AnyNonFinite => vec![f64::from(x.iter().any(|x| !x.is_finite()))],
        SumAbs | NormL1 => vec![total(&magnitudes)],
        SumSquares => vec![x.iter().map(|x| x * x).sum()],
        NormL2 => vec![power(2.0)],
        NormInf => vec![magnitudes[position(&magnitudes, above)]],
        NormP => vec![power(3.0)],
        Var => vec![variance(x)],
        Std => vec![variance(x).sqrt()],
        // The mean is computed from distances, which have no finite sum if an element is infinite.
        MeanVar if variance(x).is_nan() => vec![f64::NAN, f64::NAN],
        MeanVar => vec![average(x), variance(x)],
        LogSumExp => vec![x.iter().map(|x| x.exp()).sum::<f64>().ln()],
        NanSum => vec![total(&numbers)],
        NanProd => vec![numbers.iter().product()],
        NanMean => vec![average(&numbers)],
        NanMin => vec![x[position_of_number(below)]],
        NanMax => vec![x[position_of_number(above)]],
        NanArgMin => vec![position_of_number(below) as f64],
        NanArgMax => vec![position_of_number(above) as f64],
        NanVar => vec![variance(&numbers)],
        NanStd => vec![variance(&numbers).sqrt()],
        other => panic!("`{other}` has no definition here"),
    }
}

/// Compares every function with its definition.
fn compare(elements: &[f64], dtype: DType, relative: f64) {
    let data = TensorData::new(elements.to_vec(), SHAPE).convert_dtype(dtype);
    let elements: Vec<f64> = data.iter::<f64>().collect();
    for &operator in OperatorName::ALL {
        let x = Floats::from_data(data.clone(), (&Device::flex(), dtype));
        let found = call(operator, x);
        for kept in 0..SHAPE[1] {
            let row: Vec<f64> = (0..SHAPE[0])
                .flat_map(|a| (0..SHAPE[2]).map(move |c| (a * SHAPE[1] + kept) * SHAPE[2] + c))
                .map(|place| elements[place])
                .collect();
            let expected = definition(operator, &row);
            assert_eq!(found.len(), expected.len(), "{operator}");
            for (found, expected) in found.iter().zip(expected) {
                assert_eq!(found.shape().to_vec(), [1, SHAPE[1], 1], "{operator}");
                let found: f64 = found.iter::<f64>().nth(kept).expect("one for each kept index");
                let close = found == expected
                    || found.is_nan() && expected.is_nan()
                    || (found - expected).abs() <= relative * expected.abs().max(1.0);
                assert!(close, "{operator} of {row:?} in {dtype:?}: {found}, not {expected}");
            }
        }
    }
}

#[test]
fn every_function_is_its_operator() {
    let mut random = StdRng::seed_from_u64(1);
    let count = SHAPE.iter().product();
    let elements: Vec<f64> = (0..count).map(|_| random.random_range(-2.0..2.0)).collect();
    compare(&elements, DType::F64, 1e-12);
    compare(&elements, DType::F32, 1e-5);
    compare(&elements, DType::F16, 2e-3);
    compare(&elements, DType::BF16, 1e-2);
}

#[test]
fn nan_infinities_and_ties() {
    let mut random = StdRng::seed_from_u64(2);
    for _ in 0..50 {
        let mut element = || match random.random_range(0..30) {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => f64::NEG_INFINITY,
            n => f64::from(n % 4 - 1),
        };
        let elements: Vec<f64> = (0..SHAPE.iter().product()).map(|_| element()).collect();
        compare(&elements, DType::F32, 1e-5);
    }
    for everywhere in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0] {
        compare(&vec![everywhere; SHAPE.iter().product()], DType::F32, 1e-6);
    }
}

/// The magnitudes at which squares overflow or vanish.
#[test]
fn extreme_magnitudes() {
    let device = Device::flex();
    let row = |scale: f32| Tensor::<1>::from_data([3.0 * scale, -4.0 * scale], &device);
    for scale in [1e20f32, 1e-25] {
        let close = |found: Tensor<1>, expected: f64| {
            let found = f64::from(found.into_scalar::<f32>()) / f64::from(scale);
            assert!((found / expected - 1.0).abs() < 1e-5, "{found} at {scale}");
        };
        close(norm_l2(row(scale), 0), 5.0);
        close(norm_p(row(scale), 0, 3.0), 91f64.cbrt());
        close(std(row(scale), 0, 0.0), 3.5);
    }
}

/// The divisor of a variance is never below 0, and results are those of a division by 0: infinite,
/// or NaN if all elements are equal.
#[test]
fn corrections_above_the_number_of_elements() {
    type Function = fn(Tensor<2>, f64) -> Tensor<2>;

    let device = Device::flex();
    let functions: [(&str, Function); 6] = [
        ("var", |x, correction| var(x, 1, correction)),
        ("std", |x, correction| std(x, 1, correction)),
        ("mean_var", |x, correction| mean_var(x, 1, correction).1),
        ("nanvar", |x, correction| nanvar(x, 1, correction)),
        ("nanstd", |x, correction| nanstd(x, 1, correction)),
        ("covariance", |x, correction| covariance(x.clone(), x, 1, correction)),
    ];
    for (name, function) in functions {
        for correction in [2.0, 2.5, 3.0, 100.0] {
            let x = Tensor::<2>::from_data([[1.0f32, 3.0], [2.0, 2.0]], &device);
            let found: Vec<f32> = function(x, correction).into_data().iter::<f32>().collect();
            assert_eq!(found[0], f32::INFINITY, "{name} with a correction of {correction}");
            assert!(found[1].is_nan(), "{name} with a correction of {correction}: {found:?}");
        }
    }
    // Of these elements, one is a number.
    let x = Tensor::<2>::from_data([[f32::NAN, 3.0, f32::NAN]], &device);
    assert!(nanvar(x, 1, 2.0).into_scalar::<f32>().is_nan());
}

#[test]
fn integers_wrap_in_their_own_type() {
    let device = Device::flex();
    let ints = |dtype: DType| {
        let data = TensorData::from([[100i64, 100, 3]]).convert_dtype(dtype);
        Tensor::<2, Int>::from_data(data, (&device, dtype))
    };
    let number = |x: Tensor<2, Int>| x.into_data().iter::<i64>().next();
    assert_eq!(number(sum(ints(DType::I8), 1)), Some(203 - 256));
    assert_eq!(sum(ints(DType::I8), 1).dtype(), DType::I8);
    assert_eq!(number(sum_squares(ints(DType::I32), 1)), Some(20009));
    assert_eq!(number(max(ints(DType::I64), 1)), Some(100));
    assert_eq!(number(argmin(ints(DType::I16), 1)), Some(2));
    assert_eq!(number(mean(ints(DType::I32), 1)), Some(67));
}

#[test]
fn halves_do_not_overflow_on_the_way() {
    let device = Device::flex();
    let halves = TensorData::new(vec![f16::from_f32(60000.0); 100], [100]);
    let halves = Tensor::<1>::from_data(halves, (&device, DType::F16));
    assert_eq!(mean(halves.clone(), 0).into_data().iter::<f32>().next(), Some(60000.0));
    assert_eq!(norm_inf(halves, 0).dtype(), DType::F16);
    let brains = TensorData::new(vec![bf16::from_f32(0.5); 4096], [4096]);
    let brains = Tensor::<1>::from_data(brains, (&device, DType::BF16));
    assert_eq!(sum(brains, 0).into_data().iter::<f32>().next(), Some(2048.0));
}

/// Every way to name axes, and every rank of the result.
#[test]
fn axes_and_ranks() {
    let device = Device::flex();
    let x = Tensor::<3>::ones([2, 3, 4], &device);
    assert_eq!(sum(x.clone(), 1).dims(), [2, 1, 4]);
    assert_eq!(sum(x.clone(), -1).dims(), [2, 3, 1]);
    assert_eq!(sum(x.clone(), [2usize, 0]).dims(), [1, 3, 1]);
    assert_eq!(sum(x.clone(), vec![-3i64]).dims(), [1, 3, 4]);
    assert_eq!(sum(x.clone(), [0isize, 1].as_slice()).dims(), [1, 1, 4]);
    assert_eq!(sum(x.clone(), ..).dims(), [1, 1, 1]);
    let columns: Tensor<2> = sum(x.clone(), squeeze(-2));
    assert_eq!(columns.dims(), [2, 4]);
    assert_eq!(sum(x.clone(), squeeze::<1>([0, 2])).dims(), [3]);
    assert_eq!(sum(x.clone(), squeeze::<1>(..)).dims(), [1]);
    assert_eq!(sum(x.clone(), squeeze::<3>([0i32; 0])).dims(), [2, 3, 4]);
    assert_eq!(any(x, squeeze::<2>(0)).dims(), [3, 4]);
}

/// Kinds of tensors that an operator does not take are refused, though the functions allow none.
#[test]
fn kinds_are_checked() {
    let device = Device::flex();
    let truths = AnyTensor::<Dispatch>::Bool(
        Tensor::<1, Bool>::from_data([true, false], &device).into_dispatch(),
    );
    let new = |operator| {
        Reduction::new(operator, OperatorOptions::default(), &truths, &AxisList::All, true)
    };
    assert!(new(OperatorName::Any).is_ok());
    let error = new(OperatorName::Sum).unwrap_err();
    assert_eq!(error.to_string(), "`sum` does not reduce tensors of kind Bool");
}

/// Selections along each axis of a tensor against a sort, with NaN first, and the quantiles
/// between.
#[test]
fn selections_are_those_of_a_sort() {
    let mut rng = StdRng::seed_from_u64(11);
    let draw = |rng: &mut StdRng| match rng.random_range(0..20) {
        0 => f32::NAN,
        n => (n % 7) as f32,
    };
    let data: Vec<f32> = (0..60).map(|_| draw(&mut rng)).collect();
    let x = || Floats::from_data(TensorData::new(data.clone(), SHAPE), &Device::flex());
    let strides = [20, 5, 1];
    for axis in 0..3 {
        let len = SHAPE[axis];
        let starts = (0..60).filter(|at| at / strides[axis] % len == 0);
        let slices: Vec<Vec<f32>> = starts
            .map(|start| (0..len).map(|nth| data[start + nth * strides[axis]]).collect())
            .collect();
        let sorted = |slice: &[f32]| {
            let mut order: Vec<usize> = (0..len).collect();
            order.sort_by(|&a, &b| {
                let (a, b) = (slice[a], slice[b]);
                b.is_nan()
                    .cmp(&a.is_nan())
                    .then(b.partial_cmp(&a).unwrap_or(std::cmp::Ordering::Equal))
            });
            order
        };
        let (values, positions) = top_k(x(), axis as i32, 2);
        // The axis of the ranks goes last, so that those of a slice follow each other.
        let last =
            |order: Tensor<3>| order.movedim(axis, 2).into_data().iter::<f32>().collect::<Vec<_>>();
        let (values, positions) = (last(values), last(positions.float()));
        // Slices are in row-major order over the other axes, as their starts are.
        for (nth, slice) in slices.iter().enumerate() {
            let order = sorted(slice);
            for rank in 0..2 {
                assert_eq!(
                    positions[2 * nth + rank],
                    order[rank] as f32,
                    "axis {axis} slice {nth}"
                );
                let (found, expected) = (values[2 * nth + rank], slice[order[rank]]);
                assert!(found == expected || found.is_nan() && expected.is_nan());
            }
        }
        let medians = last(median(x(), axis as i32));
        for (median, slice) in medians.iter().zip(&slices) {
            let mut sorted = slice.clone();
            sorted.sort_by(f32::total_cmp);
            let expected = (sorted[(len - 1) / 2] + sorted[len / 2]) / 2.0;
            match slice.iter().any(|element| element.is_nan()) {
                true => assert!(median.is_nan()),
                false => assert_eq!(*median, expected),
            }
        }
        let medians = last(nanmedian(x(), axis as i32));
        for (median, slice) in medians.iter().zip(&slices) {
            let mut sorted: Vec<f32> = slice.iter().copied().filter(|it| !it.is_nan()).collect();
            sorted.sort_by(f32::total_cmp);
            match sorted.len() {
                0 => assert!(median.is_nan()),
                len => assert_eq!(*median, (sorted[(len - 1) / 2] + sorted[len / 2]) / 2.0),
            }
        }
    }
}
