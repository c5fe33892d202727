//! Quantisation made of Burn's own operations on burn-flex, against its definition in f64; and the
//! errors of all backends.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn_tensor::{DType, Device, IntDType, Tensor, TensorData};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_burn::{backend::ReduceBurnError, quantize::quantize};

const SHAPE: [usize; 3] = [4, 6, 10];

const INTEGERS: [IntDType; 8] = [
    IntDType::I8,
    IntDType::I16,
    IntDType::I32,
    IntDType::I64,
    IntDType::U8,
    IntDType::U16,
    IntDType::U32,
    IntDType::U64,
];

/// Random elements as a type holds them.
fn random(seed: u64, dtype: DType) -> Vec<f64> {
    let mut random = StdRng::seed_from_u64(seed);
    let count = SHAPE.iter().product();
    let elements: Vec<f64> = (0..count).map(|_| random.random_range(-3.0..5.0)).collect();
    TensorData::new(elements, SHAPE).convert_dtype(dtype).iter::<f64>().collect()
}

fn tensor(elements: &[f64], dtype: DType) -> Tensor<3> {
    let data = TensorData::new(elements.to_vec(), SHAPE).convert_dtype(dtype);
    Tensor::from_data(data, (&Device::flex(), dtype))
}

/// The slice of a row-major element, over these axes.
fn slice_of(at: usize, axes: &[usize]) -> usize {
    let index = [at / 60, at / 10 % 6, at % 10];
    let kept = (0..3).filter(|axis| !axes.contains(axis));
    kept.fold(0, |slice, axis| slice * SHAPE[axis] + index[axis])
}

/// Compares integers and scales with their definition. Those of a tracked tensor are the same.
fn compare(dtype: DType, axes: (&[i64], &[usize]), most: f64, integers: IntDType) {
    let case = format!("{dtype:?} over {:?} to {most} in {integers:?}", axes.0);
    let elements = random(axes.0.len() as u64, dtype);
    let (found, scales) = quantize(tensor(&elements, dtype), axes.0, most, integers);
    assert_eq!(found.dims(), SHAPE, "{case}");
    let kept: [usize; 3] =
        core::array::from_fn(|axis| if axes.1.contains(&axis) { 1 } else { SHAPE[axis] });
    assert_eq!(scales.dims(), kept, "{case}");
    let (found, scales) = (found.into_data(), scales.into_data());
    assert_eq!(found.dtype(), integers.into(), "{case}");
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    assert_eq!(scales.dtype(), wide, "{case}");
    let scales: Vec<f64> = scales.iter::<f64>().collect();
    let mut largest = vec![0f64; scales.len()];
    for (at, element) in elements.iter().enumerate() {
        let largest = &mut largest[slice_of(at, axes.1)];
        *largest = largest.max(element.abs());
    }
    for (scale, largest) in scales.iter().zip(largest) {
        assert!((scale - largest / most).abs() <= 1e-6 * scale, "{case}: a scale of {scale}");
    }
    let is_unsigned = DType::from(integers).is_uint();
    // Where a quotient lies this near to the middle between two integers, relative to itself,
    // either may result.
    let near = if wide == DType::F64 { 1e-13 } else { 1e-6 };
    let mut near_middle = 0;
    for (at, found) in found.iter::<f64>().enumerate() {
        let quotient = elements[at] / scales[slice_of(at, axes.1)];
        let quotient = if is_unsigned { quotient.max(0.0) } else { quotient };
        let is_near = (quotient - quotient.floor() - 0.5).abs() < near * quotient.abs().max(1.0);
        near_middle += usize::from(is_near);
        let expected = quotient.round_ties_even();
        let other = is_near && (found - expected).abs() <= 1.0;
        assert!(found == expected || other, "{case}: {found}, not {expected} of {quotient}");
    }
    assert!(near_middle * 20 <= elements.len(), "{case}: {near_middle} near the middle");
}

#[test]
fn integers_and_scales_are_their_definition() {
    let axes: [(&[i64], &[usize]); 5] =
        [(&[2], &[2]), (&[0], &[0]), (&[-2, 0], &[0, 1]), (&[2, 0, 1], &[0, 1, 2]), (&[], &[])];
    for axes in axes {
        for integers in INTEGERS {
            compare(DType::F32, axes, 100.0, integers);
        }
        compare(DType::F32, axes, 7.0, IntDType::I8);
        for dtype in [DType::F64, DType::F16, DType::BF16] {
            compare(dtype, axes, 127.0, IntDType::I8);
        }
    }
    compare(DType::F32, axes[0], 255.0, IntDType::U8);
    compare(DType::F64, axes[0], 32767.0, IntDType::I16);
}

/// Halves go to the even neighbour.
#[test]
fn halves_become_even() {
    let x = Tensor::<1>::from_data([8.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5], &Device::flex());
    let (integers, scale) = quantize(x, 0, 8.0, IntDType::I8);
    assert_eq!(scale.into_scalar::<f32>(), 1.0);
    assert_eq!(integers.into_data().try_to_vec::<i8>().unwrap(), [8, 0, 2, 2, 0, -2, -2]);
}

/// Slices with NaN and infinities, of zeros and of very small elements say so in their scales, and
/// their integers are 0.
#[test]
fn integers_of_slices_without_a_scale_are_0() {
    let rows = [
        [1.5, f32::NAN, -2.0],
        [1.5, f32::INFINITY, -2.0],
        [1.5, f32::NEG_INFINITY, f32::INFINITY],
        [0.0, -0.0, 0.0],
        [1e-39, 2e-39, -1e-39],
        [1.5, 3.0, -3.0],
    ];
    let x = Tensor::<2>::from_data(rows, &Device::flex());
    for integers in [IntDType::I8, IntDType::I32] {
        let (integers, scales) = quantize(x.clone(), 1, 2.0, integers);
        let scales: Vec<f32> = scales.into_data().iter().collect();
        assert!(scales[0].is_nan(), "{scales:?}");
        assert_eq!(scales[1..4], [f32::INFINITY, f32::INFINITY, 0.0]);
        assert!(scales[4] <= 1e-39);
        assert_eq!(scales[5], 1.5);
        let integers: Vec<i64> = integers.into_data().iter().collect();
        assert_eq!(integers, [[0; 15].as_slice(), &[1, 2, -2]].concat());
    }
}

#[test]
fn without_elements() {
    let (integers, scales) =
        quantize(Tensor::<2>::empty([3, 0], &Device::flex()), 0, 127.0, IntDType::I8);
    assert_eq!((integers.dims(), scales.dims()), ([3, 0], [1, 0]));
    let (integers, scales) =
        quantize(Tensor::<2>::empty([3, 0], &Device::flex()), 1, 127.0, IntDType::I8);
    assert_eq!((integers.dims(), scales.dims()), ([3, 0], [3, 1]));
    assert_eq!(scales.into_data().try_to_vec::<f32>().unwrap(), [0.0; 3]);
}

/// The scales of a tracked tensor are constants, and the gradient of what else is made of it is as
/// without them.
#[test]
fn no_gradient_flows_through_quantisation() {
    for device in [Device::flex().autodiff(), Device::flex().autodiff().gradient_checkpointing()] {
        let x = Tensor::<2>::from_data([[1.0f32, -4.0, 2.0]], &device).require_grad();
        let (integers, scales) = quantize(x.clone(), 1, 4.0, IntDType::I8);
        assert!(!scales.is_require_grad());
        assert_eq!(integers.to_data().try_to_vec::<i8>().unwrap(), [1, -4, 2]);
        let dequantized = integers.float() * scales;
        let gradients = (x.clone() * dequantized).sum().backward();
        let gradient = x.grad(&gradients).expect("it is tracked").into_data();
        assert_eq!(gradient.try_to_vec::<f32>().unwrap(), [1.0, -4.0, 2.0]);
    }
}

#[test]
fn errors_name_the_function_and_the_value() {
    let message = |axis: i64, most: f64, integers: IntDType| -> String {
        let x = Tensor::<2>::ones([2, 3], &Device::flex());
        let call = AssertUnwindSafe(|| quantize(x, axis, most, integers));
        let panic = catch_unwind(call).expect_err("the call panics");
        *panic.downcast().expect("the message is formatted")
    };
    let of = "`quantize` of a tensor of shape [2, 3]: ";
    for most in [0.0, -1.0, f64::NAN, f64::INFINITY, 127.5, 128.0] {
        let expected = format!("`most` is {most}, and must be above 0 and at most 127 in I8");
        assert_eq!(message(1, most, IntDType::I8), format!("{of}{expected}"));
    }
    let expected = format!("{of}`most` is 256, and must be above 0 and at most 255 in U8");
    assert_eq!(message(1, 256.0, IntDType::U8), expected);
    let expected = format!("{of}axis 2 is out of range for a tensor of rank 2");
    assert_eq!(message(2, 127.0, IntDType::I8), expected);
    let error = ReduceBurnError::Most { most: 128.0, largest: 127.0, dtype: DType::I8 };
    assert!(message(1, 128.0, IntDType::I8).ends_with(&error.to_string()));
}
