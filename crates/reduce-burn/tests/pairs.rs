//! Reductions of two inputs, made of Burn's own operations on burn-flex, against their definitions
//! in f64; and the errors of all backends.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn_dispatch::Dispatch;
use burn_tensor::{DType, Device, Int, Tensor, TensorData};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_burn::{backend::*, pairs::*, *};

/// The shape of the first tensor in memory. It is permuted: its axes are not those of the memory.
const STORED: [usize; 3] = [5, 3, 4];
const SHAPE: [usize; 3] = [3, 4, 5];

/// Shapes of the second tensor.
const SECOND: [[usize; 3]; 4] = [SHAPE, [1, 1, 5], [3, 4, 1], [1, 1, 1]];

/// Lists of axes, and the same counted from 0.
const AXES: [(&[i64], &[usize]); 5] =
    [(&[2], &[2]), (&[-2], &[1]), (&[-1, 0], &[0, 2]), (&[2, 0, 1], &[0, 1, 2]), (&[], &[])];

const OPTIONS: PairOptions =
    PairOptions { delta: 0.7, eps: 1e-3, correction: 0.5, absolute: 0.5, relative: 0.4 };

/// The function of each name, its results as numbers.
fn call(function: PairName, x: Tensor<3>, y: Tensor<3>, axes: &[i64]) -> Vec<TensorData> {
    let PairOptions { delta, eps, correction, absolute, relative } = OPTIONS;
    let two = |(first, second): (Tensor<3>, Tensor<3>)| vec![first.into_data(), second.into_data()];
    vec![match function {
        PairName::Dot => dot(x, y, axes).into_data(),
        PairName::MeanSquaredError => mean_squared_error(x, y, axes).into_data(),
        PairName::MeanAbsoluteError => mean_absolute_error(x, y, axes).into_data(),
        PairName::Huber => huber(x, y, axes, delta).into_data(),
        PairName::KlDivergence => kl_divergence(x, y, axes).into_data(),
        PairName::CosineSimilarity => cosine_similarity(x, y, axes, eps).into_data(),
        PairName::Accuracy => accuracy(x, y, axes).into_data(),
        PairName::CountEqual => count_equal(x, y, axes).into_data(),
        PairName::MaxDifference => max_difference(x, y, axes).into_data(),
        PairName::AllClose => all_close(x, y, axes, absolute, relative).into_data(),
        PairName::WeightedMean => weighted_mean(x, y, axes).into_data(),
        PairName::WeightedMeanVar => return two(weighted_mean_var(x, y, axes)),
        PairName::Covariance => covariance(x, y, axes, correction).into_data(),
        PairName::SumAndDot => return two(sum_and_dot(x, y, axes)),
        other => panic!("reduce-burn has no function for `{other}`"),
    }]
}

/// The definition of each function, of the pairs of one reduction.
fn definition(function: PairName, pairs: &[(f64, f64)]) -> Vec<f64> {
    let PairOptions { delta, eps, correction, absolute, relative } = OPTIONS;
    let n = pairs.len() as f64;
    let sum = |term: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|&(x, y)| term(x, y)).sum::<f64>();
    let equal = pairs.iter().filter(|(x, y)| x == y).count() as f64;
    let weights = sum(&|_, y| y);
    let mean = sum(&|x, y| x * y) / weights;
    match function {
        PairName::Dot => vec![sum(&|x, y| x * y)],
        PairName::MeanSquaredError => vec![sum(&|x, y| (x - y).powi(2)) / n],
        PairName::MeanAbsoluteError => vec![sum(&|x, y| (x - y).abs()) / n],
        PairName::Huber => {
            let loss = |d: f64| if d <= delta { d * d / 2.0 } else { delta * (d - delta / 2.0) };
            vec![sum(&|x, y| loss((x - y).abs())) / n]
        }
        PairName::KlDivergence => {
            vec![sum(&|x, y| if x == 0.0 { 0.0 } else { x * (x.ln() - y.ln()) })]
        }
        PairName::CosineSimilarity => {
            let at_least = |length: f64| if length < eps { eps } else { length };
            let lengths = [sum(&|x, _| x * x), sum(&|_, y| y * y)];
            let lengths = lengths.map(|squares| at_least(squares.sqrt()));
            vec![sum(&|x, y| x * y) / lengths[0] / lengths[1]]
        }
        PairName::Accuracy => vec![equal / n],
        PairName::CountEqual => vec![equal],
        PairName::MaxDifference => {
            let larger = |most: f64, d: f64| if d > most || d.is_nan() { d } else { most };
            vec![pairs.iter().map(|(x, y)| (x - y).abs()).fold(0.0, larger)]
        }
        PairName::AllClose => {
            let close = |&(x, y): &(f64, f64)| {
                let tolerance = absolute + relative * y.abs();
                x == y || tolerance.is_finite() && (x - y).abs() <= tolerance
            };
            vec![f64::from(pairs.iter().all(close))]
        }
        PairName::WeightedMean => vec![mean],
        PairName::WeightedMeanVar => {
            let defined = |result: f64| if weights == 0.0 { f64::NAN } else { result };
            let variance = sum(&|x, y| y * (x - mean).powi(2)) / weights;
            vec![defined(mean), defined(variance)]
        }
        PairName::Covariance => {
            let means = [sum(&|x, _| x) / n, sum(&|_, y| y) / n];
            let products = sum(&|x, y| (x - means[0]) * (y - means[1]));
            vec![products / (n - correction).max(0.0)]
        }
        PairName::SumAndDot => vec![sum(&|x, _| x), sum(&|x, y| x * y)],
        other => panic!("`{other}` has no definition here"),
    }
}

/// The place of an index in a row-major tensor that broadcasts to [`SHAPE`].
fn place(index: [usize; 3], shape: [usize; 3]) -> usize {
    index.iter().zip(shape).fold(0, |place, (&n, extent)| place * extent + n.min(extent - 1))
}

/// Indices of the elements of [`SHAPE`], in row-major order.
fn indices() -> impl Iterator<Item = [usize; 3]> {
    let [a, b, c] = SHAPE;
    (0..a * b * c).map(move |n| [n / (b * c), n / c % b, n % c])
}

/// The results of a function for row-major elements, in the order of its results.
fn expected(
    function: PairName,
    [x, y]: [&[f64]; 2],
    second: [usize; 3],
    axes: &[usize],
) -> Vec<Vec<f64>> {
    let kept = |index: [usize; 3]| -> [usize; 3] {
        core::array::from_fn(|axis| if axes.contains(&axis) { 0 } else { index[axis] })
    };
    let slices = indices().filter(|&index| kept(index) == index).map(|first| {
        let slice = indices().filter(|&index| kept(index) == first);
        let pairs: Vec<_> =
            slice.map(|index| (x[place(index, SHAPE)], y[place(index, second)])).collect();
        definition(function, &pairs)
    });
    let slices: Vec<Vec<f64>> = slices.collect();
    (0..slices[0].len()).map(|nth| slices.iter().map(|slice| slice[nth]).collect()).collect()
}

fn tensor(elements: &[f64], shape: [usize; 3], dtype: DType) -> Tensor<3> {
    let data = TensorData::new(elements.to_vec(), shape).convert_dtype(dtype);
    Tensor::from_data(data, (&Device::flex(), dtype))
}

/// Row-major elements of [`SHAPE`] as a tensor that is not row-major.
fn permuted(elements: &[f64], dtype: DType) -> Tensor<3> {
    let data = tensor(elements, SHAPE, dtype).permute([2, 0, 1]).into_data();
    assert_eq!(data.shape().to_vec(), STORED);
    Tensor::<3>::from_data(data, (&Device::flex(), dtype)).permute([1, 2, 0])
}

fn rounded(elements: &[f64], dtype: DType) -> Vec<f64> {
    TensorData::new(elements.to_vec(), [elements.len()]).convert_dtype(dtype).iter().collect()
}

/// Compares every function with its definition.
fn compare(
    dtypes: [DType; 2],
    relative: f64,
    mut elements: impl FnMut(PairName, usize) -> Vec<f64>,
) {
    for &function in PairName::ALL {
        // The share is of f32, whatever the tensors have.
        let relative = if function == PairName::Accuracy { 1e-6 } else { relative };
        for (second, (axes, from_start)) in
            SECOND.into_iter().flat_map(|second| AXES.map(|axes| (second, axes)))
        {
            let x = rounded(&elements(function, SHAPE.iter().product()), dtypes[0]);
            let y = rounded(&elements(function, second.iter().product()), dtypes[1]);
            let found =
                call(function, permuted(&x, dtypes[0]), tensor(&y, second, dtypes[1]), axes);
            let expected = expected(function, [&x, &y], second, from_start);
            assert_eq!(found.len(), expected.len(), "{function}");
            for (found, expected) in found.iter().zip(expected) {
                let shape = [0, 1, 2].map(|n| if from_start.contains(&n) { 1 } else { SHAPE[n] });
                assert_eq!(found.shape().to_vec(), shape, "{function}");
                for (found, expected) in found.iter::<f64>().zip(expected) {
                    let close = found == expected
                        || found.is_nan() && expected.is_nan()
                        || (found - expected).abs() <= relative * expected.abs().max(1.0);
                    assert!(
                        close,
                        "{function} over {axes:?} in {dtypes:?}, second of {second:?}: {found}, \
                         not {expected}"
                    );
                }
            }
        }
    }
}

/// Elements that a function is defined for: probabilities and weights are positive, and elements
/// that are compared are often equal.
fn ordinary(random: &mut StdRng, function: PairName, count: usize) -> Vec<f64> {
    let mut element = || match function {
        PairName::KlDivergence | PairName::WeightedMean | PairName::WeightedMeanVar => {
            random.random_range(0.1..2.0)
        }
        PairName::Accuracy | PairName::CountEqual => f64::from(random.random_range(0..3)),
        _ => random.random_range(-2.0..2.0),
    };
    (0..count).map(|_| element()).collect()
}

#[test]
fn every_function_is_its_definition() {
    let mut random = StdRng::seed_from_u64(1);
    let cases = [
        ([DType::F64, DType::F64], 1e-10),
        ([DType::F32, DType::F32], 2e-5),
        ([DType::F16, DType::F16], 2e-3),
        ([DType::F32, DType::BF16], 2e-5),
        ([DType::F32, DType::F64], 2e-5),
    ];
    for (dtypes, relative) in cases {
        compare(dtypes, relative, |function, count| ordinary(&mut random, function, count));
    }
}

#[test]
fn nan_infinities_and_zeros() {
    let mut random = StdRng::seed_from_u64(2);
    for _ in 0..20 {
        compare([DType::F64; 2], 1e-10, |function, count| {
            let mut elements = ordinary(&mut random, function, count);
            for element in &mut elements {
                match random.random_range(0..40) {
                    0 => *element = f64::NAN,
                    1 => *element = f64::INFINITY,
                    2..6 => *element = 0.0,
                    _ => {}
                }
            }
            elements
        });
    }
}

/// Results have the type of the first tensor, counts and truth values those of the device.
#[test]
fn types_of_results() {
    let (x, y) = (tensor(&[1.0; 60], SHAPE, DType::F16), tensor(&[2.0], [1; 3], DType::F32));
    assert_eq!(dot(x.clone(), y.clone(), ..).dtype(), DType::F16);
    assert_eq!(dot(y.clone(), y.clone(), ..).dtype(), DType::F32);
    assert_eq!(accuracy(x.clone(), y.clone(), ..).dtype(), DType::F32);
    let ints = Tensor::<1, Int>::from_data([1, 2, 3], &Device::flex());
    assert_eq!(count_equal(x, y, ..).dtype(), count_nonzero(ints, ..).dtype());
}

#[test]
fn integers_are_compared_in_their_own_type() {
    let device = Device::flex();
    let ints = |elements: [i64; 3], dtype: DType| {
        let data = TensorData::from(elements).convert_dtype(dtype);
        Tensor::<1, Int>::from_data(data, (&device, dtype))
    };
    // The first two differ less than f32 can tell.
    let x = ints([(1 << 24) + 1, 2, 3], DType::I32);
    let y = ints([1 << 24, 2, 3], DType::I32);
    assert_eq!(count_equal(x.clone(), y.clone(), 0).into_data().iter::<i64>().next(), Some(2));
    let share = accuracy(x.clone(), y, 0).into_data().iter::<f32>().next();
    assert_eq!(share, Some(2.0 / 3.0));
    // 258 is 2 in a byte.
    let x = ints([258, 2, 3], DType::I32);
    let bytes = ints([2, 2, 3], DType::U8);
    assert_eq!(count_equal(x.clone(), bytes.clone(), 0).into_data().iter::<i64>().next(), Some(2));
    assert_eq!(count_equal(bytes, x, 0).into_data().iter::<i64>().next(), Some(2));
}

#[test]
fn ranks_of_results() {
    let x = || tensor(&[1.0; 60], SHAPE, DType::F32);
    let row = || tensor(&[2.0; 5], [1, 1, 5], DType::F32);
    let columns: Tensor<2> = dot(x(), row(), squeeze(0));
    assert_eq!(columns.dims(), [4, 5]);
    let (sum, dot): (Tensor<1>, _) = sum_and_dot(x(), row(), squeeze(..));
    assert_eq!((sum.into_scalar::<f32>(), dot.into_scalar::<f32>()), (60.0, 120.0));
    assert_eq!(all_close(x(), row(), squeeze::<1>([0, 2]), 1.0, 0.0).dims(), [4]);
}

#[test]
fn nothing_to_reduce() {
    let empty = || Tensor::<2>::empty([3, 0], &Device::flex());
    let column = || Tensor::<2>::ones([3, 1], &Device::flex());
    let number = |x: Tensor<2>| {
        assert_eq!(x.dims(), [3, 1]);
        x.into_data().iter::<f32>().next().expect("there are three results")
    };
    assert_eq!(number(dot(empty(), column(), 1)), 0.0);
    assert_eq!(number(cosine_similarity(empty(), column(), 1, 1e-8)), 0.0);
    assert!(number(cosine_similarity(empty(), column(), 1, 0.0)).is_nan());
    assert!(number(mean_squared_error(empty(), empty(), 1)).is_nan());
    assert!(number(accuracy(empty(), empty(), 1)).is_nan());
    assert!(number(covariance(empty(), empty(), 1, 0.0)).is_nan());
    let close = all_close(empty(), column(), 1, 0.0, 0.0).into_data();
    assert!(close.iter::<bool>().all(|close| close));
    assert_eq!(max_difference(empty(), column(), 0).dims(), [1, 0]);
}

/// Functions panic when they are called, with a message that names both shapes.
#[test]
fn errors() {
    let message = |call: &dyn Fn()| {
        let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("the call must panic");
        *panic.downcast::<String>().expect("the message is formatted")
    };
    let x = |shape: [usize; 2]| Tensor::<2>::ones(shape, &Device::flex().autodiff());
    let start = "of tensors of shapes [2, 3] and";
    let of = |second: [usize; 2]| (x([2, 3]), x(second));
    let (first, wrong) = of([2, 4]);
    assert_eq!(
        message(&|| drop(dot(first.clone(), wrong.clone(), 1))),
        format!(
            "`dot` {start} [2, 4]: the second tensor has shape [2, 4]: it must have rank 2, and \
             along each axis of [2, 3] that extent or 1"
        )
    );
    let (first, row) = of([1, 3]);
    // The first tensor is never repeated.
    assert!(
        message(&|| drop(dot(row.clone(), first.clone(), 1)))
            .contains("the second tensor has shape [2, 3]")
    );
    assert_eq!(
        message(&|| drop(weighted_mean(first.clone(), row.clone(), 2))),
        format!("`weighted_mean` {start} [1, 3]: axis 2 is out of range for a tensor of rank 2")
    );
    assert_eq!(
        message(&|| drop(dot(first.clone(), row.clone(), squeeze::<2>(1)))),
        format!("`dot` {start} [1, 3]: the result has shape [2] and so rank 1, not 2")
    );
    let parameters: [(&dyn Fn(), &str); 4] = [
        (&|| drop(huber(first.clone(), row.clone(), 1, 0.0)), "`huber`: delta is 0"),
        (
            &|| drop(cosine_similarity(first.clone(), row.clone(), 1, -1.0)),
            "`cosine_similarity`: eps",
        ),
        (&|| drop(covariance(first.clone(), row.clone(), 1, f64::NAN)), "`covariance`: correction"),
        (&|| drop(all_close(first.clone(), row.clone(), 1, 0.0, -1.0)), "`all_close`: relative"),
    ];
    for (call, expected) in parameters {
        let found = message(call);
        assert!(found.contains(expected), "{found:?} does not contain {expected:?}");
    }
    let empty = x([2, 0]);
    assert_eq!(
        message(&|| drop(max_difference(empty.clone(), empty.clone(), 1))),
        "`max_difference` of tensors of shapes [2, 0] and [2, 0]: there are no elements to reduce, \
         and `max_difference` has no value for that"
    );
}

/// Kinds of tensors that a function does not take are refused, though the functions allow none.
#[test]
fn kinds_are_checked() {
    let device = Device::flex();
    let floats = AnyTensor::<Dispatch>::Float(Tensor::<1>::ones([2], &device).into_dispatch());
    let ints = AnyTensor::<Dispatch>::Int(Tensor::<1, Int>::ones([2], &device).into_dispatch());
    let new = |function, first: &AnyTensor<Dispatch>, second: &AnyTensor<Dispatch>| {
        PairReduction::new(function, PairOptions::default(), first, second, &AxisList::All, true)
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    assert_eq!(new(PairName::CountEqual, &ints, &ints), Ok(()));
    assert_eq!(
        new(PairName::Dot, &ints, &ints),
        Err("`dot` does not reduce tensors of kind Int".to_owned())
    );
    assert_eq!(
        new(PairName::CountEqual, &floats, &ints),
        Err("`count_equal` takes tensors of one kind, and [Float, Int] were given".to_owned())
    );
}
