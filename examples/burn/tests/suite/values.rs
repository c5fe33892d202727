//! Values of every operator, against burn-flex.

use burn_backend::{Backend, DType, quantization::QuantScheme, read_sync};
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, tensor::CubeTensor};
use burn_flex::Flex;
use burn_tensor::{Bool, Float, Int, Tensor, TensorData, TensorPrimitive, bf16, f16};
use rand::{Rng, rngs::StdRng};
use reduce_burn::{
    AnyTensor, AxisList, OperatorName, OperatorOptions, ReduceBackend, Reducible, Reduction,
    squeeze,
};

use crate::inputs::{Cases, Layout};

/// Layouts for each operator and type. Compiling kernels takes the time of these tests.
const LAYOUTS: usize = 2;

/// Compares operators of tensors of a kind with those of burn-flex, over random layouts.
fn compare<B: ReduceBackend, K: Reducible<B> + Reducible<Flex>>(
    device: &B::Device,
    seed: u64,
    operators: &[OperatorName],
    layouts: usize,
    relative: f64,
    mut data: impl FnMut(&mut Cases, &Layout) -> TensorData,
) {
    let mut cases = Cases::new(seed);
    for &operator in operators {
        for _ in 0..layouts {
            let layout = cases.layout();
            let data = data(&mut cases, &layout);
            let ours = layout.of::<B, K>(&data, device);
            let flex = layout.of::<Flex, K>(&data, &Default::default());
            let ours = <K as Reducible<B>>::into_any(ours.into_primitive());
            let ours = results(operator, ours, &layout);
            let flex = <K as Reducible<Flex>>::into_any(flex.into_primitive());
            let flex = results(operator, flex, &layout);
            assert_eq!(ours.len(), flex.len());
            for (nth, (ours, flex)) in ours.iter().zip(&flex).enumerate() {
                let case = format!("result {nth} of {operator} of {:?}, {layout:?}", data.dtype);
                assert_close(ours, flex, relative, &case);
            }
        }
    }
}

/// Whether the device has a type. Burn says so of bytes and 16-bit integers in WGSL too, which has
/// none.
pub(crate) fn has<B: Backend>(device: &B::Device, dtype: DType) -> bool {
    let not_in_wgsl = matches!(dtype, DType::I8 | DType::U8 | DType::I16 | DType::U16);
    B::supports_dtype(device, dtype) && !(not_in_wgsl && B::name(device).contains("wgsl"))
}

/// The results of an operator, read back.
fn results<B: ReduceBackend>(
    operator: OperatorName,
    tensor: AnyTensor<B>,
    layout: &Layout,
) -> Vec<TensorData> {
    let options = OperatorOptions { correction: 0.5, p: 3.0 };
    let axes = AxisList::List(layout.axes.clone());
    let reduction = Reduction::new(operator, options, &tensor, &axes, layout.keep_dims)
        .unwrap_or_else(|error| panic!("{operator} {layout:?}: {error}"));
    let outputs = reduction.outputs();
    let results = B::reduce(tensor, &reduction)
        .unwrap_or_else(|error| panic!("{operator} {layout:?}: {error}"));
    assert_eq!(results.len(), outputs.len(), "{operator}");
    let read = results.into_iter().zip(outputs).map(|(result, (kind, dtype))| {
        assert_eq!(result.kind(), kind, "{operator}");
        assert_eq!(result.dtype(), dtype, "{operator}");
        assert_eq!(result.shape(), reduction.output_shape(), "{operator}");
        read(result)
    });
    read.collect()
}

pub(crate) fn read<B: Backend>(tensor: AnyTensor<B>) -> TensorData {
    let data = match tensor {
        AnyTensor::Float(tensor) => read_sync(B::float_into_data(tensor)),
        AnyTensor::Int(tensor) => read_sync(B::int_into_data(tensor)),
        AnyTensor::Bool(tensor) => read_sync(B::bool_into_data(tensor)),
    };
    data.expect("the device answers")
}

/// Compares numbers; NaN equals NaN.
pub(crate) fn assert_close(found: &TensorData, expected: &TensorData, relative: f64, case: &str) {
    assert_eq!(found.shape, expected.shape, "{case}");
    let numbers = |data: &TensorData| -> Vec<f64> { data.iter::<f64>().collect() };
    for (place, (found, expected)) in numbers(found).into_iter().zip(numbers(expected)).enumerate()
    {
        let close = found == expected
            || found.is_nan() && expected.is_nan()
            || (found - expected).abs() <= relative * expected.abs().max(1.0);
        assert!(close, "{case}: element {place} is {found}, not {expected}");
    }
}

fn normal(random: &mut StdRng) -> f32 {
    random.random_range(-2.0..2.0)
}

/// NaN, infinities, zeros and numbers.
fn special(random: &mut StdRng) -> f32 {
    match random.random_range(0..40) {
        0 => f32::NAN,
        1 => f32::INFINITY,
        2 => f32::NEG_INFINITY,
        3..10 => 0.0,
        _ => normal(random),
    }
}

pub(crate) fn floats<B: ReduceBackend>(device: &B::Device) {
    compare::<B, Float>(device, 1, OperatorName::ALL, LAYOUTS, 2e-4, |cases, layout| {
        cases.data(layout, normal)
    });
}

pub(crate) fn floats_with_nan_and_infinities<B: ReduceBackend>(device: &B::Device) {
    compare::<B, Float>(device, 2, OperatorName::ALL, 1, 2e-4, |cases, layout| {
        cases.data(layout, special)
    });
}

/// The operators that take integers.
const OF_INTEGERS: &[OperatorName] = &[
    OperatorName::Sum,
    OperatorName::Prod,
    OperatorName::Min,
    OperatorName::Max,
    OperatorName::MinMax,
    OperatorName::ArgMin,
    OperatorName::ArgMax,
    OperatorName::MinWithIndex,
    OperatorName::MaxWithIndex,
    OperatorName::Any,
    OperatorName::All,
    OperatorName::CountNonzero,
    OperatorName::SumAbs,
    OperatorName::SumSquares,
];

pub(crate) fn integers<B: ReduceBackend>(device: &B::Device) {
    // Products of small numbers, so that burn-flex does not overflow.
    compare::<B, Int>(device, 3, OF_INTEGERS, LAYOUTS, 0.0, |cases, layout| {
        cases.data(layout, |random| [-1, 0, 1, 1, 1, 1][random.random_range(0..6)])
    });
    let sums = [OperatorName::Sum, OperatorName::Min, OperatorName::ArgMax];
    compare::<B, Int>(device, 4, &sums, LAYOUTS, 0.0, |cases, layout| {
        cases.data(layout, |random| random.random_range(-1000..1000))
    });
}

pub(crate) fn truths<B: ReduceBackend>(device: &B::Device) {
    let operators = [OperatorName::Any, OperatorName::All, OperatorName::CountNonzero];
    for likely in [0.01, 0.5, 0.99] {
        compare::<B, Bool>(device, 5, &operators, LAYOUTS, 0.0, |cases, layout| {
            cases.data(layout, |random| random.random_bool(likely))
        });
    }
}

/// Types besides f32 and i32 that the device computes with.
pub(crate) fn narrow_types<B: ReduceBackend>(device: &B::Device) {
    use OperatorName::*;

    let floats = [Sum, Mean, Max, ArgMin, Var, LogSumExp, NanSum];
    if has::<B>(device, DType::F16) {
        compare::<B, Float>(device, 6, &floats, 1, 2e-3, |cases, layout| {
            cases.data(layout, |random| f16::from_f32(normal(random)))
        });
    }
    if has::<B>(device, DType::BF16) {
        compare::<B, Float>(device, 7, &floats, 1, 1e-2, |cases, layout| {
            cases.data(layout, |random| bf16::from_f32(normal(random)))
        });
    }
    if has::<B>(device, DType::F64) {
        compare::<B, Float>(device, 8, &floats, 1, 1e-12, |cases, layout| {
            cases.data(layout, |random| f64::from(normal(random)))
        });
    }
    let integers = [Sum, Min, MaxWithIndex, Any, CountNonzero];
    if has::<B>(device, DType::I8) {
        compare::<B, Int>(device, 9, &integers, 1, 0.0, |cases, layout| {
            cases.data(layout, |random| random.random::<i8>() / 64)
        });
    }
    if has::<B>(device, DType::U8) {
        compare::<B, Int>(device, 10, &integers, 1, 0.0, |cases, layout| {
            cases.data(layout, |random| random.random::<u8>() / 64)
        });
    }
    if has::<B>(device, DType::I64) {
        compare::<B, Int>(device, 11, &integers, 1, 0.0, |cases, layout| {
            cases.data(layout, |random| random.random_range(-(1i64 << 40)..1 << 40))
        });
    }
}

/// A quantised tensor is reduced as what it stands for.
pub(crate) fn quantised<B: ReduceBackend>(device: &B::Device) {
    let data: Vec<f32> = (0..64).map(|n| (n % 13) as f32 - 6.0).collect();
    let plain = Tensor::<B, 2>::from_data(TensorData::new(data, [4, 16]), device);
    let quantised = plain.quantize_dynamic(&QuantScheme::default());
    let expected = quantised.clone().dequantize().sum_dim(1).into_data();
    let found = reduce_burn::sum(quantised, 1).into_data();
    assert_close(&found, &expected, 1e-6, "a quantised tensor");
}

/// Burn's `flex32` is f32 in memory, and stays `flex32` in the result.
pub(crate) fn flex32_is_f32<R: CubeRuntime, BT: BoolElement>(device: &R::Device) {
    type B<R, BT> = CubeBackend<R, f32, i32, BT>;

    let x = Tensor::<B<R, BT>, 2>::from_data([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]], device);
    let CubeTensor { client, handle, meta, device, .. } = x.into_primitive().tensor();
    let x = CubeTensor::new(client, handle, *meta, device, DType::Flex32);
    let x = Tensor::<B<R, BT>, 2>::from_primitive(TensorPrimitive::Float(x));
    let sum: Tensor<_, 1> = reduce_burn::sum(x, squeeze(0));
    assert_eq!(sum.dtype(), DType::Flex32);
    let TensorPrimitive::Float(sum) = sum.into_primitive() else { panic!("expected floats") };
    let handle = sum.client.read_one(sum.handle).expect("the device answers");
    let bytes: Vec<f32> = handle
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes")))
        .collect();
    assert_eq!(bytes, [5.0, 7.0, 9.0]);
}
