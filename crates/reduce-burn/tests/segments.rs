//! Segments on burn-flex: every function against the same function of each slice, and gradients
//! against finite differences in f64. The device suite in `examples/burn` compares devices with
//! burn-flex.

use burn_tensor::{DType, Device, Int, Tensor, TensorData};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_burn::{
    self as whole,
    segments::{self, Groups, SegmentTensors},
};

const SHAPE: [usize; 3] = [3, 12, 2];

/// Where the segments of axis 1 begin. Some elements are in none, and one segment has none.
const OFFSETS: [i64; 5] = [1, 4, 4, 9, 11];

fn offsets(device: &Device) -> Tensor<1, Int> {
    Tensor::from_data(TensorData::new(OFFSETS.to_vec(), [OFFSETS.len()]), device)
}

/// The group of each element of axis 1, in any order. Some elements have none, and group 1 is empty.
const KEYS: [i64; 12] = [2, 0, -1, 0, 2, 3, 2, 4, 0, 2, 3, 2];

fn groups(device: &Device) -> Groups {
    segments::group_by_keys(Tensor::from_data(TensorData::new(KEYS.to_vec(), [12]), device), 4)
}

/// The elements of a group.
fn of_group(group: i64) -> Vec<i64> {
    (0..12).filter(|&position| KEYS[position as usize] == group).collect()
}

fn random(seed: u64) -> Vec<f64> {
    let mut random = StdRng::seed_from_u64(seed);
    (0..SHAPE.iter().product()).map(|_| random.random_range(-2.0..2.0)).collect()
}

fn tensor(elements: &[f64], device: &Device) -> Tensor<3> {
    Tensor::from_data(TensorData::new(elements.to_vec(), SHAPE), (device, DType::F64))
}

fn elements<const D: usize>(x: Tensor<D>) -> Vec<f64> {
    x.into_data().iter::<f64>().collect()
}

/// A function of segments, and the same of a slice.
type Pair = (&'static str, fn(Tensor<3>, SegmentTensors) -> Tensor<3>, fn(Tensor<3>) -> Tensor<3>);

fn reductions() -> [Pair; 12] {
    [
        ("sum", |x, at| segments::sum(x, 1, at), |x| whole::sum(x, 1)),
        ("mean", |x, at| segments::mean(x, -2, at), |x| whole::mean(x, 1)),
        ("min", |x, at| segments::min(x, 1, at), |x| whole::min(x, 1)),
        ("max", |x, at| segments::max(x, 1, at), |x| whole::max(x, 1)),
        ("logsumexp", |x, at| segments::logsumexp(x, 1, at), |x| whole::logsumexp(x, 1)),
        ("min of both", |x, at| segments::min_max(x, 1, at).0, |x| whole::min(x, 1)),
        ("max of both", |x, at| segments::min_max(x, 1, at).1, |x| whole::max(x, 1)),
        ("max with index", |x, at| segments::max_with_index(x, 1, at).0, |x| whole::max(x, 1)),
        ("norm_l2", |x, at| segments::norm_l2(x, 1, at), |x| whole::norm_l2(x, 1)),
        ("norm_p", |x, at| segments::norm_p(x, 1, at, 3.0), |x| whole::norm_p(x, 1, 3.0)),
        ("var", |x, at| segments::var(x, 1, at, 0.0), |x| whole::var(x, 1, 0.0)),
        ("prod", |x, at| segments::prod(x, 1, at), |x| whole::prod(x, 1)),
    ]
}

fn applications() -> [Pair; 2] {
    [
        ("softmax", |x, at| segments::softmax(x, 1, at), |x| whole::softmax(x, 1)),
        ("log_softmax", |x, at| segments::log_softmax(x, 1, at), |x| whole::log_softmax(x, 1)),
    ]
}

#[test]
fn segments_are_reduced_like_slices() {
    let device = Device::flex();
    let x = tensor(&random(1), &device);
    for (name, of_segments, of_slice) in reductions() {
        let found = of_segments(x.clone(), offsets(&device).into());
        assert_eq!(found.dims(), [3, 4, 2], "{name}");
        for (segment, bounds) in OFFSETS.windows(2).enumerate() {
            let own = elements(found.clone().narrow(1, segment, 1));
            let (from, len) = (bounds[0] as usize, (bounds[1] - bounds[0]) as usize);
            if len == 0 {
                let expected = match name {
                    "sum" | "norm_l2" | "norm_p" => 0.0,
                    "prod" => 1.0,
                    "mean" | "var" => f64::NAN,
                    "min" | "min of both" => f64::INFINITY,
                    _ => f64::NEG_INFINITY,
                };
                let same = |x: &f64| *x == expected || x.is_nan() && expected.is_nan();
                assert!(own.iter().all(same), "{name} of nothing is {own:?}");
                continue;
            }
            let expected = elements(of_slice(x.clone().narrow(1, from, len)));
            assert_eq!(own, expected, "{name} of segment {segment}");
        }
    }
}

#[test]
fn positions_count_from_the_beginning_of_the_axis() {
    let device = Device::flex();
    let x = tensor(&random(2), &device);
    let (values, positions) = segments::max_with_index(x.clone(), 1, offsets(&device));
    let alone = segments::argmax(x.clone(), 1, offsets(&device));
    assert!(alone.equal(positions.clone()).all().into_scalar::<bool>());
    for segment in [0, 2, 3] {
        let at = positions.clone().narrow(1, segment, 1);
        let gathered = elements(x.clone().gather(1, at));
        assert_eq!(gathered, elements(values.clone().narrow(1, segment, 1)));
    }
}

#[test]
fn softmax_is_that_of_slices_and_zero_elsewhere() {
    let device = Device::flex();
    let x = tensor(&random(3), &device);
    for (name, of_segments, of_slice) in applications() {
        let found = of_segments(x.clone(), offsets(&device).into());
        for (from, until) in [(0, 1), (11, 12)] {
            let outside = elements(found.clone().narrow(1, from, until - from));
            assert!(outside.iter().all(|&x| x == 0.0), "{name} outside is {outside:?}");
        }
        for bounds in OFFSETS.windows(2).filter(|bounds| bounds[0] < bounds[1]) {
            let (from, len) = (bounds[0] as usize, (bounds[1] - bounds[0]) as usize);
            let own = elements(found.clone().narrow(1, from, len));
            assert_eq!(own, elements(of_slice(x.clone().narrow(1, from, len))), "{name}");
        }
    }
}

/// The functions of groups are those of the elements with their keys, whatever lies between.
#[test]
fn groups_are_reduced_like_selected_elements() {
    let device = Device::flex();
    let (x, groups) = (tensor(&random(7), &device), groups(&device));
    let numbers = |x: &Tensor<1, Int>| x.clone().into_data().iter::<i64>().collect::<Vec<_>>();
    let in_order: Vec<i64> = [0, 2, 3].into_iter().flat_map(of_group).chain([2, 7]).collect();
    assert_eq!(numbers(groups.indices()), in_order);
    assert_eq!(numbers(groups.offsets()), [0, 3, 3, 8, 10]);
    assert_eq!(numbers(groups.keys()), KEYS);
    let selected = |group| {
        let own = of_group(group);
        let at = Tensor::<1, Int>::from_data(TensorData::new(own.clone(), [own.len()]), &device);
        (x.clone().select(1, at.clone()), at)
    };
    for (name, of_segments, of_slice) in reductions() {
        let found = of_segments(x.clone(), (&groups).into());
        assert_eq!(found.dims(), [3, 4, 2], "{name}");
        for group in [0, 2, 3] {
            let own = elements(found.clone().narrow(1, group, 1));
            assert_eq!(own, elements(of_slice(selected(group as i64).0)), "{name} of {group}");
        }
    }
    for (name, of_segments, of_slice) in applications() {
        let found = of_segments(x.clone(), (&groups).into());
        for group in [0, 2, 3] {
            let (own, at) = selected(group);
            let found = elements(found.clone().select(1, at));
            assert_eq!(found, elements(of_slice(own)), "{name} of {group}");
        }
        let outside = Tensor::<1, Int>::from_data([2, 7], &device);
        let outside = elements(found.select(1, outside));
        assert!(outside.iter().all(|&x| x == 0.0), "{name} outside is {outside:?}");
    }
    let (values, positions) = segments::max_with_index(x.clone(), 1, &groups);
    for group in [0, 2, 3] {
        let gathered = elements(x.clone().gather(1, positions.clone().narrow(1, group, 1)));
        assert_eq!(gathered, elements(values.clone().narrow(1, group, 1)));
    }
}

#[test]
fn gradients_are_those_of_finite_differences() {
    const STEP: f64 = 1e-5;

    let (plain, tracking) = (Device::flex(), Device::flex().autodiff());
    for (name, function, _) in reductions().into_iter().chain(applications()) {
        // Results of nothing are infinite or NaN, and have no weight.
        for of_groups in [false, true] {
            let weighted = |x: Tensor<3>, device: &Device| {
                let members = match of_groups {
                    true => groups(device).into(),
                    false => offsets(device).into(),
                };
                let result = function(x, members);
                let result = match result.dims()[1] {
                    4 => {
                        Tensor::cat(vec![result.clone().narrow(1, 0, 1), result.narrow(1, 2, 2)], 1)
                    }
                    _ => result,
                };
                let count = result.shape().num_elements();
                let weights: Vec<f64> = (0..count).map(|n| 0.3 + (n % 7) as f64 * 0.2).collect();
                let weights = TensorData::new(weights, result.dims());
                (result * Tensor::from_data(weights, (device, DType::F64))).sum()
            };
            let data = random(4);
            let leaf = tensor(&data, &tracking).require_grad();
            let gradients = weighted(leaf.clone(), &tracking).backward();
            let found = elements(leaf.grad(&gradients).expect("the tensor is tracked"));
            for (place, found) in found.into_iter().enumerate() {
                let value_at = |step: f64| {
                    let mut changed = data.clone();
                    changed[place] += step;
                    elements(weighted(tensor(&changed, &plain), &plain))[0]
                };
                let expected = (value_at(STEP) - value_at(-STEP)) / (2.0 * STEP);
                assert!(
                    (found - expected).abs() < 1e-6 * expected.abs().max(1.0),
                    "{name}: gradient {place} is {found}, expected {expected}"
                );
            }
        }
    }
}

#[test]
fn no_gradient_reaches_segments_without_elements() {
    let tracking = Device::flex().autodiff();
    for (name, function, _) in reductions() {
        let leaf = tensor(&random(5), &tracking).require_grad();
        let one = function(leaf.clone(), offsets(&tracking).into()).narrow(1, 1, 1).sum();
        let found = leaf.grad(&one.backward()).map(elements).unwrap_or_default();
        assert!(found.iter().all(|&x| x == 0.0), "{name}: {found:?}");
    }
}

#[test]
fn wrong_calls_are_refused_by_name() {
    let device = Device::flex();
    let message = |call: fn(Tensor<3>, Tensor<1, Int>), at: Tensor<1, Int>| {
        let x = tensor(&random(6), &device);
        let call = std::panic::AssertUnwindSafe(|| call(x, at));
        let panic = std::panic::catch_unwind(call).expect_err("the call is refused");
        *panic.downcast::<String>().expect("the message is text")
    };
    let two = message(|x, at| drop(segments::sum(x, [0, 1], at)), offsets(&device));
    assert!(two.ends_with("segments lie along one axis, and 2 were given"), "{two}");
    let none = message(|x, at| drop(segments::softmax(x, 1, at)), Tensor::empty([0], &device));
    assert!(none.contains("offsets of segments have one dimension"), "{none}");
    let others = |x, keys| drop(segments::sum(x, 1, segments::group_by_keys(keys, 2)));
    let others = message(others, offsets(&device));
    assert!(others.ends_with("of the shape [5] are not those of an axis of 12"), "{others}");
}
