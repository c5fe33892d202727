//! The contract at its edges.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn_tensor::{Bool, DType, Device, Int, Tensor, TensorData, f16};
use reduce_burn::{
    all, any, argmax, argmin, count_nonzero, logsumexp, max, mean, mean_var, min, nanstd, nanvar,
    norm_l2, pairs::covariance, prod, squeeze, std, sum, var,
};

use crate::values::{assert_close, has, name};

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

fn row(elements: &[f32], device: &Device) -> Tensor<2> {
    Tensor::from_data(TensorData::new(elements.to_vec(), [1, elements.len()]), device)
}

/// Rows of no elements. On CUDA, Burn can neither fill, upload nor read a tensor without elements.
fn without_elements(rows: usize, device: &Device) -> Tensor<2> {
    Tensor::empty([rows, 0], device)
}

fn one(tensor: Tensor<2>) -> f32 {
    tensor.into_data().iter::<f32>().next().expect("there is an element")
}

fn position(tensor: Tensor<2, Int>) -> i64 {
    tensor.into_data().iter::<i64>().next().expect("there is an element")
}

fn truth<const D: usize>(tensor: Tensor<D, Bool>) -> bool {
    tensor.into_data().iter::<bool>().next().expect("there is an element")
}

/// What Burn 0.21 answered wrongly on Vulkan. Of these, Burn 0.22 has only the norms wrong.
pub(crate) fn wrong_in_burn(device: &Device) {
    // Burn: -3.4e38 and -1.
    let nothing = row(&[-INF; 5], device);
    assert_eq!(one(max(nothing.clone(), 1)), -INF);
    assert_eq!(position(argmax(nothing, 1)), 0);
    let nothing = row(&[INF; 5], device);
    assert_eq!(one(min(nothing.clone(), 1)), INF);
    assert_eq!(position(argmin(nothing, 1)), 0);

    // Burn drops NaN.
    let numbers = row(&[1.0, NAN, 3.0, NAN], device);
    assert!(one(max(numbers.clone(), 1)).is_nan());
    assert!(one(min(numbers.clone(), 1)).is_nan());
    assert_eq!(position(argmax(numbers.clone(), 1)), 1);
    assert_eq!(position(argmin(numbers, 1)), 1);

    // Burn: true, because it compares a sum of 4096 in f16 with 4097.
    if has(device, DType::F16) {
        let mut elements = vec![f16::ONE; 4097];
        elements[1234] = f16::ZERO;
        let data = TensorData::new(elements, [1, 4097]);
        let ones = Tensor::<2>::from_data(data, (device, DType::F16));
        assert!(!truth(all(ones.clone(), 1)));
        let counted = count_nonzero(ones, 1);
        assert_eq!(position(counted), 4096);
    }

    // Burn: a panic beyond 127 elements.
    if has(device, DType::I8) {
        let data = TensorData::new(vec![1i8; 200], [1, 200]);
        let ones = Tensor::<2, Int>::from_data(data, (device, DType::I8));
        assert!(truth(all(ones, 1)));
    }

    // Burn: a sum that overflows in f16 on the way to a mean.
    if has(device, DType::F16) {
        let data = TensorData::new(vec![f16::from_f32(60000.0); 2000], [2, 1000]);
        let large = Tensor::<2>::from_data(data, (device, DType::F16));
        let found = mean(large, [0, 1]).into_data();
        assert_eq!(found.iter::<f32>().next(), Some(60000.0));
    }

    // Burn takes magnitudes above 1.8e19 for infinite.
    let large = row(&[3e20, -4e20], device);
    assert!((one(norm_l2(large.clone(), 1)) / 5e20 - 1.0).abs() < 1e-6);
    assert!((one(std(large, 1, 0.0)) / 3.5e20 - 1.0).abs() < 1e-5);
}

/// The divisor of a variance is never below 0.
pub(crate) fn corrections_above_the_number_of_elements(device: &Device) {
    let (unequal, equal) = (row(&[1.0, 3.0], device), row(&[2.0, 2.0], device));
    for correction in [2.0, 3.0, 100.0] {
        let each = |x: &Tensor<2>| {
            [
                one(var(x.clone(), 1, correction)),
                one(std(x.clone(), 1, correction)),
                one(mean_var(x.clone(), 1, correction).1),
                one(nanvar(x.clone(), 1, correction)),
                one(nanstd(x.clone(), 1, correction)),
                one(covariance(x.clone(), x.clone(), 1, correction)),
            ]
        };
        assert_eq!(each(&unequal), [INF; 6], "a correction of {correction}");
        let of_equal = each(&equal);
        assert!(of_equal.iter().all(|x| x.is_nan()), "a correction of {correction}: {of_equal:?}");
    }
}

/// Empty reductions, empty results and tensors of rank 1.
pub(crate) fn nothing_to_reduce(device: &Device) {
    let empty = without_elements(3, device);
    let each = |tensor: Tensor<2>, expected: f32| {
        let expected = TensorData::new(vec![expected; 3], [3, 1]);
        assert_close(&tensor.into_data(), &expected, 0.0, "no elements");
    };
    each(sum(empty.clone(), 1), 0.0);
    each(prod(empty.clone(), -1), 1.0);
    each(mean(empty.clone(), 1), NAN);
    each(var(empty.clone(), 1, 1.0), NAN);
    each(norm_l2(empty.clone(), 1), 0.0);
    each(logsumexp(empty.clone(), 1), -INF);
    assert!(!truth(any(empty.clone(), 1)));
    assert!(truth(all(empty.clone(), 1)));
    assert_eq!(position(count_nonzero(empty.clone(), 1)), 0);

    assert_eq!(max(empty.clone(), 0).dims(), [1, 0]);
    let columns: Tensor<1> = sum(empty, squeeze(0));
    assert_eq!(columns.dims(), [0]);

    let list = Tensor::<1>::from_data([3.0f32, 1.0, 2.0], device);
    assert_eq!(sum(list.clone(), ..).into_data(), TensorData::from([6.0f32]));
    let total: Tensor<1> = sum(list.clone(), squeeze(0));
    assert_eq!(total.into_data(), TensorData::from([6.0f32]));
    let same = sum(list, [0i64; 0]);
    assert_eq!(same.into_data(), TensorData::from([3.0f32, 1.0, 2.0]));

    let total: Tensor<1> = sum(Tensor::<3>::ones([2, 3, 4], device), squeeze(..));
    assert_eq!(total.into_data(), TensorData::from([24.0f32]));

    let integers = Tensor::<2, Int>::from_data([[1, 2, 4], [-1, -2, -4]], device);
    let means = mean(integers, 1).into_data();
    assert_eq!(means.iter::<i64>().collect::<Vec<_>>(), [2, -2]);
}

/// The message of a call that must panic. The call must not have reached the device: the tensor
/// can be used afterwards.
pub(crate) fn message<T>(call: impl FnOnce() -> T) -> String {
    let Err(panic) = catch_unwind(AssertUnwindSafe(call)) else { panic!("expected a panic") };
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(other) => other.downcast::<&str>().map_or_else(|_| String::new(), |s| s.to_string()),
    }
}

/// A tensor that needs little memory, but whose elements on their own need more than a buffer has.
/// `None` where a buffer may hold them.
pub(crate) fn too_large(device: &Device) -> Option<Tensor<2>> {
    let is_limited = name(device).contains("wgpu");
    is_limited.then(|| Tensor::<2>::ones([1, 1], device).expand([1 << 15, 1 << 15]))
}

/// Each mistake is found when the function is called, with a message that names the values.
pub(crate) fn errors_before_launch(device: &Device) {
    let x = Tensor::<2>::ones([2, 3], device);
    let cases = [
        (
            message(|| sum(x.clone(), 2)),
            "`sum` of a tensor of shape [2, 3]: axis 2 is out of range for a tensor of rank 2",
        ),
        (
            message(|| mean(x.clone(), [0, -3])),
            "`mean` of a tensor of shape [2, 3]: axis -3 is out of range for a tensor of rank 2",
        ),
        (
            message(|| max(x.clone(), [1, -1])),
            "`max` of a tensor of shape [2, 3]: axis -1 of a tensor of rank 2 is given more than once",
        ),
        (
            message(|| sum(x.clone(), squeeze::<2>(1))),
            "`sum` of a tensor of shape [2, 3]: the result has shape [2] and so rank 1, not 2",
        ),
        (
            message(|| argmax(without_elements(2, device), 1)),
            "`argmax` of a tensor of shape [2, 0]: there are no elements to reduce, and `argmax` has \
             no value for that",
        ),
        (
            message(|| var(x.clone(), 1, -1.0)),
            "`var` of a tensor of shape [2, 3]: `var`: correction",
        ),
    ];
    for (found, expected) in cases {
        assert!(found.starts_with(expected), "{found:?} is not {expected:?}");
    }
    assert_eq!(sum(x, ..).into_data().iter::<f32>().next(), Some(6.0));
}
