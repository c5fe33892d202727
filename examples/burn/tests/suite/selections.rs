//! Selections on devices: known elements and gradients, and those of burn-flex for tensors of every
//! layout and type.

use burn_tensor::{DType, Device, Int, Tensor, TensorData};
use reduce_burn::{
    Over, bottom_k, keep_bottom_k, keep_top_k, median, nanmedian, nanquantile, quantile, top_k,
    top_k_probabilities,
};

use crate::{
    contract::{message, too_large},
    values::{assert_close, flex, has},
};

/// Elements with many ties, of which a few are NaN.
fn data(len: usize, with_nan: bool) -> Vec<f32> {
    let element = |n: usize| match n % 37 {
        0 if with_nan => f32::NAN,
        _ => ((n * 7919 % 101) as f32 - 50.0) * 0.25,
    };
    (0..len).map(element).collect()
}

fn numbers<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    x.into_data().iter::<f32>().collect()
}

fn integers<const D: usize>(x: Tensor<D, Int>) -> Vec<i64> {
    x.into_data().iter::<i64>().collect()
}

/// Values and positions along each axis, of floats and of integers.
pub(crate) fn values(device: &Device) {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        if !has(device, dtype) {
            continue;
        }
        for with_nan in [false, true] {
            let data = TensorData::new(data(4 * 50 * 6, with_nan), [4, 50, 6]).convert_dtype(dtype);
            let found = |device: &Device, axis: i32| {
                let x = Tensor::<3>::from_data(data.clone(), (device, dtype)).swap_dims(0, 1);
                let (top, at) = top_k(x.clone(), axis, 3);
                let (bottom, of_bottom) = bottom_k(x, axis, 4);
                let values = [top.into_data(), bottom.into_data()];
                (values, integers(at), integers(of_bottom))
            };
            for axis in [0, 1, -1] {
                let (found, expected) = (found(device, axis), found(&flex(), axis));
                let case = format!("{dtype:?} axis {axis} NaN {with_nan}");
                assert_close(&found.0[0], &expected.0[0], 0.0, &case);
                assert_close(&found.0[1], &expected.0[1], 0.0, &case);
                assert_eq!((found.1, found.2), (expected.1, expected.2), "{case}");
            }
        }
    }
    let x = Tensor::<2, Int>::from_data([[3, -7, 3, 9], [0, 5, -2, 5]], device);
    let (values, positions) = top_k(x, 1, 2);
    assert_eq!((integers(values), integers(positions)), (vec![9, 3, 5, 5], vec![3, 0, 1, 3]));
}

/// Probabilities over the selected elements and over the slice along each axis, and the positions,
/// beside those of burn-flex.
pub(crate) fn probabilities(device: &Device) {
    for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F16, 1e-3), (DType::BF16, 8e-3)] {
        if !has(device, dtype) {
            continue;
        }
        for (with_nan, axis) in [(false, 0), (false, 1), (false, -1), (true, 1)] {
            let data = TensorData::new(data(4 * 50 * 6, with_nan), [4, 50, 6]).convert_dtype(dtype);
            for over in [Over::Selected, Over::Slice] {
                let found = |device: &Device| {
                    let x = Tensor::<3>::from_data(data.clone(), (device, dtype)).swap_dims(0, 1);
                    let (values, positions) = top_k_probabilities(x, axis, 3, over);
                    assert_eq!(values.dtype(), dtype);
                    (values.into_data(), integers(positions))
                };
                let (found, expected) = (found(device), found(&flex()));
                let case = format!("{dtype:?} axis {axis} NaN {with_nan} over {over}");
                assert_close(&found.0, &expected.0, tolerance, &case);
                assert_eq!(found.1, expected.1, "{case}");
            }
        }
    }
}

/// Masks along each axis, beside those of burn-flex. Kept elements stay as they are.
pub(crate) fn masks(device: &Device) {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        if !has(device, dtype) {
            continue;
        }
        for (with_nan, axis) in [(false, 0), (true, 1), (false, -1)] {
            let data = TensorData::new(data(4 * 50 * 6, with_nan), [4, 50, 6]).convert_dtype(dtype);
            let found = |device: &Device| {
                let x = Tensor::<3>::from_data(data.clone(), (device, dtype)).swap_dims(0, 1);
                let largest = keep_top_k(x.clone(), axis, 3, f32::NEG_INFINITY).into_data();
                (largest, keep_bottom_k(x, axis, 2, 0.5).into_data())
            };
            let (found, expected) = (found(device), found(&flex()));
            let case = format!("{dtype:?} axis {axis} NaN {with_nan}");
            assert_close(&found.0, &expected.0, 0.0, &case);
            assert_close(&found.1, &expected.1, 0.0, &case);
        }
    }
    assert_eq!(keep_top_k(Tensor::<2>::empty([0, 3], device), 1, 2, 0.0).dims(), [0, 3]);
}

/// Medians and quantiles, of an even and of an odd number of elements, and of slices with NaN and
/// infinities.
pub(crate) fn quantiles(device: &Device) {
    let x = Tensor::<2>::from_data([[1.0f32, 5.0, 3.0, 8.0], [4.0, 2.0, 6.0, 2.0]], device);
    assert_eq!(numbers(median(x.clone(), 1)), [4.0, 3.0]);
    assert_eq!(numbers(median(x.clone(), 0)), [2.5, 3.5, 4.5, 5.0]);
    assert_eq!(numbers(quantile(x.clone(), -1, 0.25)), [2.5, 2.0]);
    assert_eq!(numbers(quantile(x.clone(), 1, 1.0)), [8.0, 6.0]);
    assert_eq!(numbers(quantile(x.slice([0..2, 0..3]), 1, 0.5)), [3.0, 4.0]);
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let rows = [[1.0f32, nan], [inf, inf], [3.0, inf], [-inf, -inf]];
    let found = numbers(median(Tensor::<2>::from_data(rows, device), 1));
    assert!(found[0].is_nan() && found[1..] == [inf, inf, -inf], "{found:?}");
}

/// Medians and quantiles of slices of which some elements, all or none are NaN, from both ends,
/// along each axis, beside those of burn-flex.
pub(crate) fn quantiles_of_numbers(device: &Device) {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let rows = [[1.0f32, nan, 3.0, 8.0], [nan; 4], [nan, nan, nan, 5.0], [-inf, nan, -inf, inf]];
    let x = || Tensor::<2>::from_data(rows, device);
    let found = numbers(nanmedian(x(), 1));
    assert!(found[1].is_nan() && [found[0], found[2], found[3]] == [3.0, 5.0, -inf], "{found:?}");
    let found = numbers(nanquantile(x(), -1, 1.0));
    assert!(found[1].is_nan() && [found[0], found[2], found[3]] == [8.0, 5.0, inf], "{found:?}");
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        if !has(device, dtype) {
            continue;
        }
        let data = TensorData::new(data(4 * 50 * 6, true), [4, 50, 6]).convert_dtype(dtype);
        let found = |device: &Device, axis: i32, q: f64| {
            let x = Tensor::<3>::from_data(data.clone(), (device, dtype)).swap_dims(0, 1);
            nanquantile(x, axis, q).into_data()
        };
        for (axis, q) in [(0, 0.5), (1, 0.9), (2, 0.1), (0, 0.97)] {
            let case = format!("{dtype:?} axis {axis} quantile {q}");
            let tolerance = if dtype == DType::F32 { 1e-5 } else { 1e-2 };
            assert_close(&found(device, axis, q), &found(&flex(), axis, q), tolerance, &case);
        }
    }
}

/// The gradient of a selected value is that of its element.
pub(crate) fn gradients(device: &Device) {
    let rows = [[1.0f32, 5.0, 3.0, 5.0], [4.0, 2.0, 6.0, 2.0]];
    let x = Tensor::<2>::from_data(rows, device).require_grad();
    let weights = Tensor::<2>::from_data([[1.0f32, 10.0], [100.0, 1000.0]], device);
    let (values, _) = top_k(x.clone(), 1, 2);
    let gradients = (values * weights).sum().backward();
    let expected = [0.0, 1.0, 0.0, 10.0, 1000.0, 0.0, 100.0, 0.0];
    let gradient = |gradients| numbers(Tensor::<2>::from_inner(x.grad(gradients).unwrap()));
    assert_eq!(gradient(&gradients), expected);
    // Of the two elements that a median lies between, each has a half.
    let gradients = median(x.clone(), 1).sum().backward();
    assert_eq!(gradient(&gradients), [0.0, 0.5, 0.5, 0.0, 0.5, 0.0, 0.0, 0.5]);
    // No gradient reaches NaN, and slices of nothing else have none.
    let nan = f32::NAN;
    let rows = [[1.0f32, 5.0, nan, 6.0, 2.0], [nan, nan, nan, nan, 4.0], [nan; 5]];
    let x = Tensor::<2>::from_data(rows, device).require_grad();
    let gradients = nanquantile(x.clone(), 1, 0.25).sum().backward();
    let gradient = numbers(Tensor::<2>::from_inner(x.grad(&gradients).unwrap()));
    let expected = [0.25, 0.0, 0.0, 0.0, 0.75, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    assert_eq!(gradient, expected);
}

/// Gradients of probabilities and of masks, along each axis, beside those of burn-flex.
pub(crate) fn gradients_of_probabilities(device: &Device) {
    type Function = fn(Tensor<3>, i64) -> Tensor<3>;
    let functions: [(&str, Function); 3] = [
        ("over selected", |x, axis| top_k_probabilities(x, axis, 3, Over::Selected).0),
        ("over slice", |x, axis| top_k_probabilities(x, axis, 3, Over::Slice).0),
        ("mask", |x, axis| keep_top_k(x, axis, 3, -1.0)),
    ];
    for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F16, 1e-3), (DType::BF16, 8e-3)] {
        if !has(device, dtype) {
            continue;
        }
        let data = TensorData::new(data(4 * 50 * 6, false), [4, 50, 6]).convert_dtype(dtype);
        for (name, function) in functions {
            for axis in [0, 1, -1] {
                let gradient = |device: &Device| {
                    let x = Tensor::<3>::from_data(data.clone(), (device, dtype)).require_grad();
                    let found = function(x.clone().swap_dims(0, 1), axis);
                    let squares = (found.clone() * found).sum();
                    x.grad(&squares.backward()).expect("the tensor is tracked").into_data()
                };
                let case = format!("gradient of {name} of {dtype:?} along {axis}");
                let expected = gradient(&flex().autodiff());
                assert_close(&gradient(device), &expected, tolerance, &case);
            }
        }
    }
    let x = Tensor::<2>::zeros([2, 3], device).require_grad();
    let (nothing, _) = top_k_probabilities(x.clone(), 1, 0, Over::Slice);
    let gradient = x.grad(&nothing.sum().backward()).expect("the tensor is tracked");
    assert_eq!(numbers(Tensor::<2>::from_inner(gradient)), [0.0; 6]);
}

/// Selections read what Burn's operations before them write, and these read theirs.
pub(crate) fn between_operations(device: &Device) {
    let x = Tensor::<2>::from_data([[1.0f32, 2.0, 3.0], [6.0, 5.0, 4.0]], device);
    let (values, positions) = top_k(x * 2.0, 1, 2);
    assert_eq!(numbers(values + positions.float()), [8.0, 5.0, 12.0, 11.0]);
    let x = Tensor::<2>::from_data([[1.0f32, 2.0, 2.0], [6.0, 5.0, 6.0]], device);
    let (shares, experts) = top_k_probabilities(x.clone() * 2.0, 1, 2, Over::Selected);
    assert_eq!(numbers(shares + experts.float()), [1.5, 2.5, 0.5, 2.5]);
    let masked = keep_top_k(x * 2.0, 1, 1, 0.0) + 1.0;
    assert_eq!(numbers(masked), [1.0, 5.0, 1.0, 13.0, 1.0, 1.0]);
}

/// Each mistake is found when the function is called.
pub(crate) fn errors_before_launch(device: &Device) {
    let x = || Tensor::<2>::ones([2, 3], device);
    let cases = [
        (
            message(|| top_k(x(), 1, 4)),
            "`top_k` of a tensor of shape [2, 3]: the 4 first of 3 elements were asked for",
        ),
        (
            message(|| bottom_k(x(), 2, 1)),
            "`bottom_k` of a tensor of shape [2, 3]: axis 2 is out of",
        ),
        (
            message(|| top_k_probabilities(x(), -1, 4, Over::Slice)),
            "`top_k_probabilities` of a tensor of shape [2, 3]: the 4 first of 3 elements were",
        ),
        (
            message(|| keep_bottom_k(x(), 2, 1, 0.0)),
            "`keep_bottom_k` of a tensor of shape [2, 3]: axis 2 is out of",
        ),
        (
            message(|| keep_top_k(x(), 1, 0, 0.0)),
            "`keep_top_k` of a tensor of shape [2, 3]: `keep_top_k`: k is 0, but must be 1 or more",
        ),
        (
            message(|| quantile(x(), 1, 1.5)),
            "`quantile` of a tensor of shape [2, 3]: a quantile of 1.5 is not from 0 to 1",
        ),
        (
            message(|| nanquantile(x(), 1, -0.5)),
            "`nanquantile` of a tensor of shape [2, 3]: a quantile of -0.5 is not from 0 to 1",
        ),
        (
            message(|| nanmedian(Tensor::<2>::empty([3, 0], device), 1)),
            "`nanmedian` of a tensor of shape [3, 0]: the 1 first of 0 elements were asked for",
        ),
        (message(|| median(x(), -3)), "`median` of a tensor of shape [2, 3]: axis -3 is out of"),
        (
            message(|| median(Tensor::<2>::empty([3, 0], device), 1)),
            "`median` of a tensor of shape [3, 0]: the 1 first of 0 elements were asked for",
        ),
    ];
    for (found, expected) in cases {
        assert!(found.starts_with(expected), "{found:?} is not {expected:?}");
    }
    if let Some(large) = too_large(device) {
        // The selection alone fits.
        let found = message(|| keep_top_k(large, 1, 2, 0.0));
        let expected = "`keep_top_k` of a tensor of shape [32768, 32768]: the result takes";
        assert!(found.starts_with(expected), "{found:?} is not {expected:?}");
    }
}
