//! Probabilities and masks of selected elements on burn-flex: against a sort and a softmax in f64,
//! and their gradients against finite differences.

use burn_dispatch::Dispatch;
use burn_tensor::{DType, Device, Int, Tensor, TensorData};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_burn::{backend::*, *};

/// The shape in memory. The axes of the tensors are in another order.
const STORED: [usize; 3] = [5, 3, 4];

const OVERS: [Over; 2] = [Over::Selected, Over::Slice];

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

/// The slices of a tensor along an axis.
fn slices(x: Tensor<3>, axis: usize) -> Vec<Vec<f64>> {
    let rows = x.movedim(axis, 2);
    let len = rows.dims()[2];
    elements(rows).chunks(len).map(<[f64]>::to_vec).collect()
}

/// The positions of the elements of a slice, from the largest down: NaN first, and the lower
/// position of equal elements.
fn descending(slice: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..slice.len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (slice[a], slice[b]);
        let of_numbers = b.partial_cmp(&a).unwrap_or(std::cmp::Ordering::Equal);
        b.is_nan().cmp(&a.is_nan()).then(of_numbers)
    });
    order
}

fn same(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 1e-12 || found == expected || found.is_nan() && expected.is_nan()
}

/// The sum of the elements of a result, each with a weight of its own.
fn weighted<const D: usize>(result: Tensor<D>) -> Tensor<1> {
    let (count, dtype) = (result.shape().num_elements(), result.dtype());
    let weights: Vec<f64> = (0..count).map(|n| 0.25 + (n % 7) as f64 * 0.25).collect();
    let weights = TensorData::new(weights, result.dims());
    (result * Tensor::from_data(weights, (&Device::flex(), dtype))).sum()
}

/// Elements with ties and NaN, in an order of axes that is not that of the memory.
#[test]
fn probabilities_are_those_of_a_softmax() {
    let mut data: Vec<f64> = random(1).iter().map(|x| (x * 2.0).round()).collect();
    data[7] = f64::NAN;
    for (axis, k) in [(0, 2), (1, 3), (2, 5), (1, 1)] {
        for over in OVERS {
            let x = permuted(stored(&data));
            let (values, positions) = top_k_probabilities(x.clone(), axis as i32, k, over);
            let values = slices(values, axis);
            let positions = slices(positions.float().cast(DType::F64), axis);
            for (nth, slice) in slices(x, axis).iter().enumerate() {
                let order = &descending(slice)[..k];
                let exp = |&at: &usize| slice[at].exp();
                let sum: f64 = match over {
                    Over::Selected => order.iter().map(exp).sum(),
                    Over::Slice => slice.iter().map(|x| x.exp()).sum(),
                };
                let expected: Vec<f64> = order.iter().map(|at| exp(at) / sum).collect();
                let found = &values[nth];
                assert!(
                    found.iter().zip(&expected).all(|(&a, &b)| same(a, b)),
                    "{k} along {axis} over {over}: {found:?}, not {expected:?}"
                );
                let order: Vec<f64> = order.iter().map(|&at| at as f64).collect();
                assert_eq!(positions[nth], order, "{k} along {axis} over {over}");
            }
        }
    }
}

/// What is not finite, as in a softmax of the same elements.
#[test]
fn probabilities_of_infinities() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let of = |row: [f64; 4], over| {
        let x = Tensor::<2>::from_data([row], (&Device::flex(), DType::F64));
        elements(top_k_probabilities(x, 1, 2, over).0)
    };
    for over in OVERS {
        assert!(of([0.0, inf, 1.0, 2.0], over).iter().all(|it| it.is_nan()));
        assert!(of([0.0, 2.0, nan, 2.0], over).iter().all(|it| it.is_nan()));
        assert!(of([-inf; 4], over).iter().all(|it| it.is_nan()));
        assert_eq!(of([-inf, 3.0, -inf, -inf], over), [1.0, 0.0]);
    }
}

/// The smallest elements have probabilities too, which no function gives.
#[test]
fn probabilities_of_the_smallest() {
    let x = Tensor::<2>::from_data([[1.0f64, 0.0, 9.0, 0.0]], (&Device::flex(), DType::F64));
    let x = AnyTensor::<Dispatch>::Float(x.into_dispatch());
    let selection = Selection::new(&x, -1, 2, false).unwrap();
    let selection = selection.probabilities(Over::Selected).unwrap();
    assert_eq!(selection.output(), SelectionOutput::Probabilities(Over::Selected));
    let mut results = Dispatch::run(vec![x], Operation::Selection(selection)).unwrap();
    let (Some(AnyTensor::Int(positions)), Some(AnyTensor::Float(values))) =
        (results.pop(), results.pop())
    else {
        panic!("there are values and positions")
    };
    assert_eq!(elements(Tensor::<2>::from_dispatch(values)), [0.5, 0.5]);
    let positions = Tensor::<2, Int>::from_dispatch(positions).into_data();
    assert_eq!(positions.iter::<i64>().collect::<Vec<_>>(), [1, 3]);
}

/// Kept elements stay as they are, ties, NaN and negative zeros included.
#[test]
fn masks_keep_the_selected_elements() {
    let mut data: Vec<f64> = random(2).iter().map(|x| (x * 2.0).round()).collect();
    data[7] = f64::NAN;
    data[11] = f64::INFINITY;
    for (axis, k) in [(0, 2), (1, 3), (2, 5), (2, 1)] {
        let x = permuted(stored(&data));
        let largest = slices(keep_top_k(x.clone(), axis as i32, k, f32::NEG_INFINITY), axis);
        let smallest = slices(-keep_bottom_k(-x.clone(), axis as i32, k, 0.5), axis);
        for (nth, slice) in slices(x, axis).iter().enumerate() {
            let kept = &descending(slice)[..k];
            for (found, fill) in [(&largest[nth], f64::NEG_INFINITY), (&smallest[nth], -0.5)] {
                for (at, &found) in found.iter().enumerate() {
                    let expected = if kept.contains(&at) { slice[at] } else { fill };
                    assert!(same(found, expected), "{k} along {axis}: {found}, not {expected}");
                }
            }
        }
    }
    for device in [Device::flex(), tracking()] {
        let x = Tensor::<1>::from_data([-0.0f32, -1.0, 2.0], &device);
        let kept = elements(keep_top_k(x, 0, 2, 7.0));
        assert_eq!(kept, [0.0, 7.0, 2.0]);
        assert!(kept[0].is_sign_negative());
    }
}

#[test]
fn gradients_are_those_of_finite_differences() {
    const STEP: f64 = 1e-5;

    type Function = fn(Tensor<3>, i64, usize) -> Tensor<3>;
    let functions: [(&str, Function); 5] = [
        ("top_k", |x, axis, k| top_k(x, axis, k).0),
        ("over selected", |x, axis, k| top_k_probabilities(x, axis, k, Over::Selected).0),
        ("over slice", |x, axis, k| top_k_probabilities(x, axis, k, Over::Slice).0),
        ("keep_top_k", |x, axis, k| keep_top_k(x, axis, k, 0.5)),
        ("keep_bottom_k", |x, axis, k| keep_bottom_k(x, axis, k, 0.5)),
    ];
    // Distinct elements, further apart than the step.
    let data: Vec<f64> = (0..60).map(|n| f64::from(n * 37 % 60) * 0.05 - 1.5).collect();
    for (name, function) in functions {
        for (axis, k) in [(0, 2), (1, 1), (-1, 3), (-2, 4)] {
            let run = |x: Tensor<3>| weighted(function(permuted(x), axis, k));
            let x = stored(&data).require_grad();
            let found = x.grad(&run(x.clone()).backward()).expect("the tensor is tracked");
            assert_eq!(found.dims(), STORED);
            for (place, found) in elements(found).into_iter().enumerate() {
                let value_at = |step: f64| {
                    let mut changed = data.clone();
                    changed[place] += step;
                    elements(run(stored(&changed)))[0]
                };
                let expected = (value_at(STEP) - value_at(-STEP)) / (2.0 * STEP);
                assert!(
                    (found - expected).abs() <= 1e-6,
                    "{name} of {k} along {axis}, element {place}: {found}, not {expected}"
                );
            }
        }
    }
}

/// A gradient reaches elements through a mask of `-inf` and a softmax, as that over the selected
/// elements does.
#[test]
fn a_softmax_of_a_mask() {
    let data = random(4);
    let gradient = |probabilities: fn(Tensor<3>) -> Tensor<3>| {
        let x = stored(&data).require_grad();
        let squares = probabilities(x.clone()).powi_scalar(2).sum();
        elements(x.grad(&squares.backward()).expect("the tensor is tracked"))
    };
    let masked = gradient(|x| softmax(keep_top_k(x, 2, 3, f32::NEG_INFINITY), 2));
    let selected = gradient(|x| top_k_probabilities(x, 2, 3, Over::Selected).0);
    assert!(masked.iter().zip(&selected).all(|(&a, &b)| same(a, b)));
    assert_eq!(masked.iter().filter(|&&it| it != 0.0).count(), 5 * 3 * 3);
}

/// Probabilities and gradients of f16 and bf16 are those of f64, rounded once.
#[test]
fn narrow_types_are_rounded_once() {
    fn results(row: &TensorData, dtype: DType, over: Over) -> [Vec<f64>; 2] {
        let data = row.clone().convert_dtype(dtype);
        let x = Tensor::<2>::from_data(data, (&tracking(), dtype)).require_grad();
        let (values, _) = top_k_probabilities(x.clone(), 1, 7, over);
        assert_eq!(values.dtype(), dtype);
        // Nearly the same gradient everywhere, so that what is subtracted is nearly as large.
        let weights =
            Tensor::from_data([[8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.25]], (&tracking(), dtype));
        let found = x.grad(&(values.clone() * weights).sum().backward()).unwrap();
        assert_eq!(found.dtype(), dtype);
        [elements(values), elements(found)]
    }

    for (dtype, epsilon) in [(DType::F16, 2f64.powi(-11)), (DType::BF16, 2f64.powi(-8))] {
        for (near, over) in [0.0, 100.0].into_iter().flat_map(|near| OVERS.map(|it| (near, it))) {
            let row: Vec<f64> = (0..61).map(|n| near + f64::from(n * 7 % 61) * 0.5).collect();
            let row = TensorData::new(row, [1, 61]).convert_dtype(dtype);
            let (found, expected) = (results(&row, dtype, over), results(&row, DType::F64, over));
            for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
                assert!(
                    (found - expected).abs() <= epsilon * expected.abs() + 1e-6,
                    "{dtype:?} near {near} over {over}: {found}, not {expected}"
                );
            }
        }
    }
}

/// Nothing is selected of a tensor without elements, or of slices without a `k`.
#[test]
fn selections_of_nothing() {
    for (shape, k) in [([0, 3], 2), ([3, 0], 0), ([3, 4], 0)] {
        for over in OVERS {
            let x = Tensor::<2>::zeros(shape, &tracking()).require_grad();
            let (values, positions) = top_k_probabilities(x.clone(), 1, k, over);
            assert_eq!((values.dims(), positions.dims()), ([shape[0], k], [shape[0], k]));
            let gradient = x.grad(&values.sum().backward()).expect("the tensor is tracked");
            assert_eq!(gradient.dims(), shape);
            assert!(elements(gradient).iter().all(|&it| it == 0.0));
        }
    }
    let x = Tensor::<2>::zeros([0, 3], &tracking()).require_grad();
    let kept = keep_top_k(x.clone(), 1, 2, 1.0);
    assert_eq!(kept.dims(), [0, 3]);
    let gradient = x.grad(&kept.sum().backward()).expect("the tensor is tracked");
    assert_eq!(gradient.dims(), [0, 3]);
}

/// Only floats have probabilities and masks, and a mask keeps one element at least.
#[test]
fn what_selections_refuse() {
    let integers = Tensor::<2, Int>::from_data([[1, 2, 3]], &Device::flex());
    let integers = AnyTensor::<Dispatch>::Int(integers.into_dispatch());
    let selection = |k| Selection::new(&integers, 1, k, true).unwrap();
    let of_integers = selection(2).probabilities(Over::Slice).unwrap_err().to_string();
    assert_eq!(of_integers, "`top_k_probabilities` does not reduce tensors of kind Int");
    let of_integers = selection(2).keep_only(0.0).unwrap_err().to_string();
    assert_eq!(of_integers, "`keep_top_k` does not reduce tensors of kind Int");
    let of_nothing = selection(0).keep_only(0.0).unwrap_err().to_string();
    assert!(of_nothing.ends_with("k is 0, but must be 1 or more"), "{of_nothing}");
}
