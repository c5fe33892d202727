//! Quantisation on devices, against burn-flex.

use burn_tensor::{DType, Device, Int, IntDType, Tensor, TensorData};
use rand::Rng;
use reduce_burn::quantize::quantize;

use crate::{
    contract::{message, too_large},
    inputs::{Cases, RANK},
    values::{assert_close, flex, has},
};

/// The types of integers that a device has.
fn types(device: &Device) -> impl Iterator<Item = IntDType> {
    use IntDType::{I8, I16, I32, I64, U8, U16, U32};
    let types = [I8, I16, I32, I64, U8, U16, U32];
    types.into_iter().filter(move |&integers| has(device, integers.into()))
}

/// Compares scales, and integers, of which a few may lie on the other side of a middle.
fn compare(
    found: (Tensor<RANK, Int>, Tensor<RANK>),
    expected: (Tensor<RANK, Int>, Tensor<RANK>),
    case: &str,
) {
    let (found, scales) = (found.0.into_data(), found.1.into_data());
    let (expected, expected_scales) = (expected.0.into_data(), expected.1.into_data());
    assert_eq!(found.dtype(), expected.dtype(), "{case}");
    assert_eq!(scales.dtype(), expected_scales.dtype(), "{case}");
    assert_close(&scales, &expected_scales, 1e-6, case);
    assert_eq!(found.shape(), expected.shape(), "{case}");
    let mut others = 0;
    for (found, expected) in found.iter::<i64>().zip(expected.iter::<i64>()) {
        assert!((found - expected).abs() <= 1, "{case}: {found}, not {expected}");
        others += usize::from(found != expected);
    }
    assert!(others * 100 <= found.num_elements() + 100, "{case}: {others} others");
}

/// Random layouts, and every type of integers and of floats.
pub(crate) fn values(device: &Device) {
    let mut cases = Cases::new(31);
    for integers in types(device) {
        for most in [7.0, 127.0] {
            let layout = cases.layout();
            let data = cases.data(&layout, |random| random.random_range(-3.0f32..5.0));
            let of = |device: &Device| {
                quantize(layout.of(&data, device), layout.axes.clone(), most, integers)
            };
            compare(of(device), of(&flex()), &format!("{integers:?} of {layout:?}"));
        }
    }
    for dtype in [DType::F16, DType::BF16, DType::F64] {
        if has(device, dtype) {
            let layout = cases.layout();
            let data = cases.data(&layout, |random| random.random_range(-3.0f32..5.0));
            let data = data.convert_dtype(dtype);
            let of = |device: &Device| {
                quantize(layout.of(&data, device), layout.axes.clone(), 127.0, IntDType::I32)
            };
            compare(of(device), of(&flex()), &format!("{dtype:?} of {layout:?}"));
        }
    }
}

/// Slices that have no scale, in each type: their integers are 0.
pub(crate) fn extremes(device: &Device) {
    let rows = [[1.5, f32::NAN, -2.0], [1.5, f32::NEG_INFINITY, 2.0], [0.0; 3], [1.5, 3.0, -3.0]];
    for integers in types(device) {
        let x = Tensor::<2>::from_data(rows, device);
        let (integers, scales) = quantize(x, 1, 2.0, integers);
        let scales: Vec<f32> = scales.into_data().iter().collect();
        assert!(scales[0].is_nan(), "{scales:?}");
        assert_eq!(scales[1..], [f32::INFINITY, 0.0, 1.5]);
        let found = integers.into_data();
        let is_unsigned = found.dtype().is_uint();
        let last = if is_unsigned { 0 } else { -2 };
        let found: Vec<i64> = found.iter().collect();
        assert_eq!(found, [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, last]);
    }
}

/// Inputs and results of other operations.
pub(crate) fn between_operations(device: &Device) {
    for integers in types(device).filter(|&integers| DType::from(integers).is_int()) {
        let x = Tensor::<2>::from_data([[0.5f32, -2.0, 1.0], [4.0, 8.0, 0.0]], device);
        let (found, scales) = quantize(x * 2.0, 1, 4.0, integers);
        let dequantized = (found + 0).float() * scales;
        let expected = TensorData::from([[1.0f32, -4.0, 2.0], [8.0, 16.0, 0.0]]);
        assert_close(&dequantized.into_data(), &expected, 1e-6, &format!("{integers:?}"));
    }
}

/// The gradient of a product with a dequantised tensor is that tensor.
pub(crate) fn no_gradient(device: &Device) {
    let integers = types(device).next().expect("a device has integers");
    let x = Tensor::<2>::from_data([[1.0f32, -4.0, 2.0]], device).require_grad();
    let (found, scales) = quantize(x.clone(), 1, 4.0, integers);
    let dequantized = found.float() * scales;
    let gradients = (x.clone() * dequantized).sum().backward();
    let gradient = x.grad(&gradients).expect("it is tracked").into_data();
    assert_close(&gradient, &TensorData::from([[1.0f32, -4.0, 2.0]]), 1e-6, "the gradient");
}

/// Each mistake is found when the function is called, with a message that names the values.
pub(crate) fn errors_before_launch(device: &Device) {
    let x = || Tensor::<2>::ones([2, 3], device);
    assert_eq!(
        message(|| quantize(x(), 1, 128.0, IntDType::I8)),
        "`quantize` of a tensor of shape [2, 3]: `most` is 128, and must be above 0 and at most \
         127 in I8"
    );
    assert_eq!(
        message(|| quantize(x(), 2, 127.0, IntDType::I32)),
        "`quantize` of a tensor of shape [2, 3]: axis 2 is out of range for a tensor of rank 2"
    );
    if !has(device, DType::I8) {
        let found = message(|| quantize(x(), 1, 127.0, IntDType::I8));
        assert!(found.ends_with(" has no i8"), "{found}");
    }
    if let Some(large) = too_large(device) {
        let found = message(|| quantize(large, 1, 127.0, IntDType::I32));
        let expected =
            "`quantize` of a tensor of shape [32768, 32768]: the result takes 4294967296";
        assert!(found.starts_with(expected), "{found:?} is not {expected:?}");
    }
}
