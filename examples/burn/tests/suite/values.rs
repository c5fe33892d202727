//! Values of every operator, against burn-flex.

use burn_backend::{
    Backend,
    ops::{BoolTensorOps, FloatTensorOps, IntTensorOps},
    quantization::QuantScheme,
    read_sync,
};
use burn_dispatch::Dispatch;
use burn_tensor::{Bool, DType, Device, Float, Int, Tensor, TensorData, bf16, f16, kind::Basic};
use rand::{Rng, rngs::StdRng};
use reduce_burn::{
    AxisList,
    backend::{
        AnyTensor, Kind, Operation, OperatorName, OperatorOptions, ReduceBackend, Reduction,
    },
};

use crate::inputs::{Cases, Layout, RANK};

/// Layouts for each operator and type. Compiling kernels takes the time of these tests.
const LAYOUTS: usize = 2;

/// Compares operators of tensors of a kind with those of burn-flex, over random layouts.
fn compare<K: Basic>(
    device: &Device,
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
            let ours = layout.of::<K>(&data, device);
            let flex = layout.of::<K>(&data, &flex());
            let ours = results(operator, ours, &layout);
            let flex = results(operator, flex, &layout);
            assert_eq!(ours.len(), flex.len());
            for (nth, (ours, flex)) in ours.iter().zip(&flex).enumerate() {
                let case = format!("result {nth} of {operator} of {:?}, {layout:?}", data.dtype());
                assert_close(ours, flex, relative, &case);
            }
        }
    }
}

/// The backend that compares.
pub(crate) fn flex() -> Device {
    Device::flex()
}

/// The name of the device's backend.
pub(crate) fn name(device: &Device) -> String {
    Dispatch::name(device.as_dispatch())
}

/// A tensor without its rank and kind.
pub(crate) fn any_kind<const D: usize, K: Basic>(tensor: Tensor<D, K>) -> AnyTensor<Dispatch> {
    let tensor = tensor.into_dispatch();
    match K::KIND {
        Kind::Float => AnyTensor::Float(tensor),
        Kind::Int => AnyTensor::Int(tensor),
        Kind::Bool => AnyTensor::Bool(tensor),
    }
}

/// Whether the device has a type. Burn says so of bytes and 16-bit integers in WGSL too, which has
/// none.
pub(crate) fn has(device: &Device, dtype: DType) -> bool {
    let not_in_wgsl = matches!(dtype, DType::I8 | DType::U8 | DType::I16 | DType::U16);
    device.supports_dtype(dtype) && !(not_in_wgsl && name(device).contains("wgsl"))
}

/// The results of an operator, read back.
fn results<K: Basic>(
    operator: OperatorName,
    tensor: Tensor<RANK, K>,
    layout: &Layout,
) -> Vec<TensorData> {
    let tensor = any_kind(tensor);
    let options = OperatorOptions { correction: 0.5, p: 3.0 };
    let axes = AxisList::List(layout.axes.clone());
    let reduction = Reduction::new(operator, options, &tensor, &axes, layout.keep_dims)
        .unwrap_or_else(|error| panic!("{operator} {layout:?}: {error}"));
    let outputs = reduction.outputs();
    let results = Dispatch::run(vec![tensor], Operation::Reduction(reduction.clone()))
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

pub(crate) fn read(tensor: AnyTensor<Dispatch>) -> TensorData {
    let data = match tensor {
        AnyTensor::Float(tensor) => read_sync(Dispatch::float_into_data(tensor)),
        AnyTensor::Int(tensor) => read_sync(Dispatch::int_into_data(tensor)),
        AnyTensor::Bool(tensor) => read_sync(Dispatch::bool_into_data(tensor)),
    };
    data.expect("the device answers")
}

/// Compares numbers; NaN equals NaN.
pub(crate) fn assert_close(found: &TensorData, expected: &TensorData, relative: f64, case: &str) {
    assert_eq!(found.shape(), expected.shape(), "{case}");
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

pub(crate) fn floats(device: &Device) {
    compare::<Float>(device, 1, OperatorName::ALL, LAYOUTS, 2e-4, |cases, layout| {
        cases.data(layout, normal)
    });
}

pub(crate) fn floats_with_nan_and_infinities(device: &Device) {
    compare::<Float>(device, 2, OperatorName::ALL, 1, 2e-4, |cases, layout| {
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

pub(crate) fn integers(device: &Device) {
    // Products of small numbers, so that burn-flex does not overflow.
    compare::<Int>(device, 3, OF_INTEGERS, LAYOUTS, 0.0, |cases, layout| {
        cases.data(layout, |random| [-1, 0, 1, 1, 1, 1][random.random_range(0..6)])
    });
    let sums = [OperatorName::Sum, OperatorName::Min, OperatorName::ArgMax];
    compare::<Int>(device, 4, &sums, LAYOUTS, 0.0, |cases, layout| {
        cases.data(layout, |random| random.random_range(-1000..1000))
    });
}

pub(crate) fn truths(device: &Device) {
    let operators = [OperatorName::Any, OperatorName::All, OperatorName::CountNonzero];
    for likely in [0.01, 0.5, 0.99] {
        compare::<Bool>(device, 5, &operators, LAYOUTS, 0.0, |cases, layout| {
            cases.data(layout, |random| random.random_bool(likely))
        });
    }
}

/// Types besides f32 and i32 that the device computes with.
pub(crate) fn narrow_types(device: &Device) {
    use OperatorName::*;

    let floats = [Sum, Mean, Max, ArgMin, Var, LogSumExp, NanSum];
    if has(device, DType::F16) {
        compare::<Float>(device, 6, &floats, 1, 2e-3, |cases, layout| {
            cases.data(layout, |random| f16::from_f32(normal(random)))
        });
    }
    if has(device, DType::BF16) {
        compare::<Float>(device, 7, &floats, 1, 1e-2, |cases, layout| {
            cases.data(layout, |random| bf16::from_f32(normal(random)))
        });
    }
    if has(device, DType::F64) {
        compare::<Float>(device, 8, &floats, 1, 1e-12, |cases, layout| {
            cases.data(layout, |random| f64::from(normal(random)))
        });
    }
    let integers = [Sum, Min, MaxWithIndex, Any, CountNonzero];
    if has(device, DType::I8) {
        compare::<Int>(device, 9, &integers, 1, 0.0, |cases, layout| {
            cases.data(layout, |random| random.random::<i8>() / 64)
        });
    }
    if has(device, DType::U8) {
        compare::<Int>(device, 10, &integers, 1, 0.0, |cases, layout| {
            cases.data(layout, |random| random.random::<u8>() / 64)
        });
    }
    if has(device, DType::I64) {
        compare::<Int>(device, 11, &integers, 1, 0.0, |cases, layout| {
            cases.data(layout, |random| random.random_range(-(1i64 << 40)..1 << 40))
        });
    }
}

/// A quantised tensor is reduced as what it stands for.
pub(crate) fn quantised(device: &Device) {
    let data: Vec<f32> = (0..64).map(|n| (n % 13) as f32 - 6.0).collect();
    let plain = Tensor::<2>::from_data(TensorData::new(data, [4, 16]), device);
    let quantised = plain.quantize_dynamic(&QuantScheme::default());
    let expected = quantised.clone().dequantize().sum_dim(1).into_data();
    let found = reduce_burn::sum(quantised, 1).into_data();
    assert_close(&found, &expected, 1e-6, "a quantised tensor");
}

/// Burn's `flex32` is f32 in memory, and stays `flex32` in the result.
#[cfg(not(feature = "fusion"))]
pub(crate) fn flex32_is_f32(device: &Device) {
    use burn_cubecl::{CubeBackend, tensor::CubeTensor};

    let x = Tensor::<2>::from_data([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]], device);
    let x = x.try_into_primitive::<CubeBackend>().expect("it is on CubeCL");
    let CubeTensor { client, handle, meta, device, .. } = x;
    let x = CubeTensor::new(client, handle, *meta, device, DType::Flex32);
    let x = Tensor::<2>::from_primitive::<CubeBackend>(x);
    let sum: Tensor<1> = reduce_burn::sum(x, reduce_burn::squeeze(0));
    assert_eq!(sum.dtype(), DType::Flex32);
    let sum = sum.try_into_primitive::<CubeBackend>().expect("it is on CubeCL");
    let handle = sum.client.read_one(sum.handle).expect("the device answers");
    let bytes: Vec<f32> = handle
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes")))
        .collect();
    assert_eq!(bytes, [5.0, 7.0, 9.0]);
}
