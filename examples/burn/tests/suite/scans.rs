//! Scans on devices, beside those of burn-flex.

use burn_tensor::{Bool, DType, Device, Int, Tensor, TensorData};
use reduce_burn::{AxisList, scan::*};

use crate::{
    contract::message,
    values::{assert_close, flex, has},
};

/// Elements with ties and a zero, of which a few are NaN.
fn data(len: usize, with_nan: bool) -> Vec<f32> {
    let element = |n: usize| match n % 211 {
        7 if with_nan => f32::NAN,
        _ => ((n * 7919 % 101) as f32 - 50.0) * 0.03125,
    };
    (0..len).map(element).collect()
}

/// From which end, with or without the element at a position.
const WAYS: [fn(AxisList) -> ScanAxes; 4] = [
    |axes| axes.into(),
    |axes| exclusive(axes),
    |axes| reverse(axes),
    |axes| exclusive(reverse(axes)),
];

type Function = fn(Tensor<3>, ScanAxes) -> Tensor<3>;

const FUNCTIONS: [(&str, Function); 12] = [
    ("cumsum", |x, axes| cumsum(x, axes)),
    ("cumprod", |x, axes| cumprod(x, axes)),
    ("cummax", |x, axes| cummax(x, axes)),
    ("cummin", |x, axes| cummin(x, axes)),
    ("cummax with positions", |x, axes| cummax_with_positions(x, axes).0),
    ("logcumsumexp", |x, axes| logcumsumexp(x, axes)),
    ("cummean", |x, axes| cummean(x, axes)),
    ("cumvar", |x, axes| cumvar(x, axes, 1.0)),
    ("mean of cummean_var", |x, axes| cummean_var(x, axes, 0.0).0),
    ("variance of cummean_var", |x, axes| cummean_var(x, axes, 0.0).1),
    ("cumall", |x, axes| cumall(x, axes).float()),
    ("cumany", |x, axes| cumany(x, axes).float()),
];

/// Functions without a gradient are last.
const DIFFERENTIABLE: usize = FUNCTIONS.len() - 2;

/// Axes of a tensor whose first two axes are swapped.
fn axes() -> [AxisList; 3] {
    [[1].into(), [-1, 0].into(), (..).into()]
}

/// Every function in every way, of every type.
pub(crate) fn values(device: &Device) {
    let types = [(DType::F32, 2e-5), (DType::F16, 2e-3), (DType::BF16, 1.6e-2)];
    for (nth, (dtype, tolerance)) in types.into_iter().enumerate() {
        if !has(device, dtype) {
            continue;
        }
        for with_nan in [false, true] {
            let data = TensorData::new(data(4 * 50 * 6, with_nan), [4, 50, 6]).convert_dtype(dtype);
            for (at, (name, function)) in FUNCTIONS.into_iter().enumerate() {
                // Compiling kernels takes the time of these tests.
                let turn = at + nth + 2 * usize::from(with_nan);
                let (way, axes) = (WAYS[turn % WAYS.len()], axes()[turn % 3].clone());
                let found = |device: &Device| {
                    let x = Tensor::<3>::from_data(data.clone(), (device, dtype)).swap_dims(0, 1);
                    function(x, way(axes.clone())).into_data()
                };
                let case = format!("{name} of {dtype:?} {:?}", way(axes.clone()));
                assert_close(&found(device), &found(&flex()), tolerance, &case);
            }
        }
    }
}

/// Integers and truth values, and positions.
pub(crate) fn integers(device: &Device) {
    fn numbers<const D: usize>(x: Tensor<D, Int>) -> Vec<i64> {
        x.into_data().iter::<i64>().collect()
    }
    fn truths<const D: usize>(x: Tensor<D, Bool>) -> Vec<bool> {
        x.into_data().iter::<bool>().collect()
    }

    let x = Tensor::<2, Int>::from_data([[3, -7, 3, 9], [0, 5, -2, 5]], device);
    assert_eq!(numbers(cumsum(x.clone(), 1)), [3, -4, -1, 8, 0, 5, 3, 8]);
    assert_eq!(numbers(cumprod(x.clone(), reverse(0))), [0, -35, -6, 45, 0, 5, -2, 5]);
    let (values, positions) = cummin_with_positions(x.clone(), reverse(1));
    assert_eq!(numbers(values), [-7, -7, 3, 9, -2, -2, -2, 5]);
    assert_eq!(numbers(positions), [1, 1, 2, 3, 2, 2, 2, 3]);
    assert_eq!(numbers(cummax(x.clone(), exclusive(1)).slice([0..2, 1..4])), [3, 3, 3, 0, 5, 5]);
    let nonzero = truths(cumall(x.clone(), reverse(1)));
    assert_eq!(nonzero, [true, true, true, true, false, true, true, true]);
    let any = truths(cumany(x.equal_elem(5), exclusive(1)));
    assert_eq!(any, [false, false, false, false, false, false, true, true]);
    // The first of equal elements, and the first NaN, from both ends.
    let x = || Tensor::<1>::from_data([1.0f32, 3.0, 3.0, f32::NAN, 2.0, f32::NAN, 1.0], device);
    assert_eq!(numbers(cummax_with_positions(x(), 0).1), [0, 1, 1, 3, 3, 3, 3]);
    assert_eq!(numbers(cummax_with_positions(x(), reverse(0)).1), [3, 3, 3, 3, 5, 5, 6]);
    let before = numbers(cummax_with_positions(x(), exclusive(0)).1);
    assert_eq!(before[1..], [0, 1, 1, 3, 3, 3]);
}

/// What is not finite, the results of no elements, and tensors without elements.
pub(crate) fn edges(device: &Device) {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    for row in [[1.0f32, inf, 2.0, -inf, 3.0], [-inf, -inf, 1.0, nan, inf], [0.0; 5]] {
        for (name, function) in FUNCTIONS {
            for way in WAYS {
                let axes = || way([2].into());
                let found = |device: &Device| {
                    function(Tensor::<3>::from_data([[row]], device), axes()).into_data()
                };
                let case = format!("{name} of {row:?} {:?}", axes());
                assert_close(&found(device), &found(&flex()), 1e-6, &case);
            }
        }
    }
    for shape in [[0, 3], [3, 0]] {
        let (values, positions) = cummax_with_positions(Tensor::<2>::empty(shape, device), 1);
        assert_eq!((values.dims(), positions.dims()), (shape, shape));
    }
    let alone = cumsum(Tensor::<1>::from_data([1.0f32, 2.0], device), Vec::<i64>::new());
    assert_eq!(alone.into_data().iter::<f32>().collect::<Vec<_>>(), [1.0, 2.0]);
}

/// Gradients of all formulas, of elements among which are zeros.
pub(crate) fn gradients(device: &Device) {
    for (dtype, tolerance) in [(DType::F32, 5e-5), (DType::F16, 4e-3), (DType::BF16, 3e-2)] {
        if !has(device, dtype) {
            continue;
        }
        let data = TensorData::new(data(3 * 20 * 4, false), [3, 20, 4]).convert_dtype(dtype);
        for (nth, &(name, function)) in FUNCTIONS[..DIFFERENTIABLE].iter().enumerate() {
            // Compiling kernels takes the time of these tests.
            let narrow = usize::from(dtype != DType::F32);
            for (at, axes) in axes().into_iter().enumerate().skip(2 * narrow) {
                let way = WAYS[(nth + at + narrow) % WAYS.len()];
                let found = |device: &Device| {
                    let x = Tensor::<3>::from_data(data.clone(), (device, dtype)).require_grad();
                    let result = function(x.clone().swap_dims(0, 1), way(axes.clone()));
                    let is_wrong = result.clone().is_finite().bool_not();
                    let count = result.shape().num_elements();
                    let weights: Vec<f32> =
                        (0..count).map(|n| (n % 7) as f32 * 0.125 - 0.25).collect();
                    let weights = TensorData::new(weights, result.dims()).convert_dtype(dtype);
                    let weights = Tensor::from_data(weights, (device, dtype));
                    let sum = (result.mask_fill(is_wrong, 0.0) * weights).sum();
                    x.grad(&sum.backward()).expect("the tensor is tracked").into_data()
                };
                let case = format!("gradient of {name} of {dtype:?} {:?}", way(axes.clone()));
                assert_close(&found(device), &found(&flex().autodiff()), tolerance, &case);
            }
        }
    }
}

/// Scans read what Burn's operations before them write, and these read theirs.
pub(crate) fn between_operations(device: &Device) {
    let x = Tensor::<2>::from_data([[1.0f32, 2.0, 3.0], [6.0, 5.0, 4.0]], device);
    let (values, positions) = cummax_with_positions(x.clone() * 2.0, 1);
    let sums = cumsum(x + 1.0, reverse(1));
    let found = (values + positions.float() + sums * 10.0).into_data();
    assert_eq!(found.iter::<f32>().collect::<Vec<_>>(), [92., 75., 48., 192., 122., 62.]);
}

/// Each mistake is found when the function is called.
pub(crate) fn errors_before_launch(device: &Device) {
    let x = || Tensor::<2>::ones([2, 3], device);
    let cases = [
        (message(|| cumsum(x(), 2)), "`cumsum` of a tensor of shape [2, 3]: axis 2 is out of"),
        (
            message(|| cumvar(x(), exclusive([0, -2]), 0.0)),
            "`cumvar` of a tensor of shape [2, 3]: axis -2 of a tensor of rank 2 is given more",
        ),
    ];
    for (found, expected) in cases {
        assert!(found.starts_with(expected), "{found:?} is not {expected:?}");
    }
}
