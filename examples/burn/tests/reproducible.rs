//! Reproducible numerics through Burn: forward results have the bits that a plain function of the
//! host gives, and what has no such form is refused with its typed error.
//!
//! An executable of its own: while the process asks for reproducible numerics, everything else that
//! it reduces may be refused.
#![cfg(any(feature = "cuda", feature = "wgpu", feature = "vulkan"))]

use std::{
    error::Error as _,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, PoisonError},
};

use burn_dispatch::Dispatch;
use burn_tensor::{Device, Int, Tensor, TensorData};
use reduce_burn::{
    AxisList, argmax,
    backend::{
        AnyTensor, Application, AppliedFunction, Clipping, Operation, OperatorName,
        OperatorOptions, ReduceBackend, ReduceBurnError, Reduction,
    },
    max, mean, norm_l1,
    pairs::dot,
    plans::use_numerics,
    prod, softmax, sum, var,
};
use reduce_kernels::{
    planner::{PlanError, reproducible::fold},
    plans::Numerics,
};

/// Backends are tested one after the other.
static ALONE: Mutex<()> = Mutex::new(());

/// Numbers below twice the least normal one are 0 in reproducible results.
fn normal(value: f32) -> f32 {
    if value.abs() < 2f32.powi(-125) { 0.0 } else { value }
}

fn add(left: f32, right: f32) -> f32 {
    normal(left + right)
}

fn multiply(left: f32, right: f32) -> f32 {
    normal(left * right)
}

/// The results of a slice, and the position of its maximum.
#[derive(Debug, PartialEq)]
struct Results {
    /// Bits of sum, mean, product, L1 norm, dot product and maximum.
    floats: [u32; 6],
    argmax: i64,
}

/// What the host computes of a slice, and of another for the dot product.
fn on_the_host(slice: &[f32], other: &[f32]) -> Results {
    let of = |values: &[f32]| values.iter().copied().map(normal).collect::<Vec<f32>>();
    let (slice, other) = (of(slice), of(other));
    let total = |values: &[f32]| fold(values, 0.0, add, add);
    let magnitudes: Vec<f32> = slice.iter().map(|value| value.abs()).collect();
    let products: Vec<f32> = slice.iter().zip(&other).map(|(&x, &y)| multiply(x, y)).collect();
    let greatest = slice.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let floats = [
        total(&slice),
        normal(total(&slice) / slice.len() as f32),
        fold(&slice, 1.0, multiply, multiply),
        total(&magnitudes),
        total(&products),
        greatest,
    ];
    let argmax = slice.iter().position(|&value| value == greatest).expect("it is an element");
    Results { floats: floats.map(f32::to_bits), argmax: argmax as i64 }
}

/// What reduce-burn computes over an axis, for each slice.
fn through_burn(x: &Tensor<2>, y: &Tensor<2>, axis: i64) -> Vec<Results> {
    let floats: [Tensor<2>; 6] = [
        sum(x.clone(), axis),
        mean(x.clone(), axis),
        prod(x.clone(), axis),
        norm_l1(x.clone(), axis),
        dot(x.clone(), y.clone(), axis),
        max(x.clone(), axis),
    ];
    let floats: [Vec<f32>; 6] = floats.map(|result| result.into_data().try_to_vec().unwrap());
    let argmax: Tensor<2, Int> = argmax(x.clone(), axis);
    let argmax: Vec<i64> = argmax.into_data().iter::<i64>().collect();
    let result = |(nth, argmax): (usize, i64)| Results {
        floats: floats.each_ref().map(|results| results[nth].to_bits()),
        argmax,
    };
    argmax.into_iter().enumerate().map(result).collect()
}

/// Rows and columns, whole and as parts of larger tensors, of numbers around 1, of many magnitudes
/// and of ones that a device may take for 0.
fn bits_of_the_host(device: &Device) {
    const SLICES: usize = 5;
    for len in [7, 1000, 5001] {
        let element = |i: usize| {
            let fraction = (i * 7919 % 1009) as f32 / 512.0 - 0.9;
            match i / len {
                0 => 1.0 + fraction / 64.0,
                1 => fraction * 2f32.powi((i % 24) as i32 - 12),
                2 => fraction * 2f32.powi((i % 30) as i32 - 149),
                _ => fraction,
            }
        };
        let data: Vec<f32> = (0..SLICES * len).map(element).collect();
        let others: Vec<f32> = data.iter().rev().copied().collect();
        let of = |data: &[f32]| {
            Tensor::<2>::from_data(TensorData::new(data.to_vec(), [SLICES, len]), device)
        };
        let (x, y) = (of(&data), of(&others));
        let slices = data.chunks(len).zip(others.chunks(len));
        let expected: Vec<Results> = slices.map(|(x, y)| on_the_host(x, y)).collect();
        let padded = |tensor: &Tensor<2>| {
            let beside = Tensor::<2>::ones([SLICES, 3], device);
            Tensor::cat(vec![beside, tensor.clone()], 1).narrow(1, 3, len)
        };
        // A transposed tensor that is copied is row-major: its slices are columns.
        let columns = |tensor: &Tensor<2>| tensor.clone().transpose() + 0.0;
        let layouts = [
            ("rows", through_burn(&x, &y, 1)),
            ("a part of rows", through_burn(&padded(&x), &padded(&y), 1)),
            ("transposed rows", through_burn(&x.clone().transpose(), &y.clone().transpose(), 0)),
            ("columns", through_burn(&columns(&x), &columns(&y), 0)),
        ];
        for (layout, found) in layouts {
            for (nth, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert_eq!(found, expected, "slice {nth} of {len} elements, {layout}");
            }
        }
    }
}

/// Operators without such a form, functions that are applied to elements, and lists are refused
/// before anything is launched: with a typed error by the backend, and with its message by the
/// functions.
fn refusals(device: &Device) {
    let x = Tensor::<2>::ones([3, 40], device);
    let any = || AnyTensor::<Dispatch>::Float(x.clone().into_dispatch());
    let float = || x.clone().into_dispatch();
    let axes = AxisList::List(vec![1]);
    let reduction = |operator| {
        let options = OperatorOptions::default();
        Operation::Reduction(Reduction::new(operator, options, &any(), &axes, true).unwrap())
    };
    let softmax_of =
        Application::new::<Dispatch>(AppliedFunction::Softmax, &float(), &axes, &[]).unwrap();
    let operations = [
        reduction(OperatorName::Var),
        reduction(OperatorName::LogSumExp),
        Operation::Application(softmax_of),
        Operation::Clipping(Clipping::new::<Dispatch>(&[float()], 1.0).unwrap()),
    ];
    for operation in operations {
        let error = Dispatch::check(&operation, device.as_dispatch()).unwrap_err();
        let ReduceBurnError::Reduce(refused) = &error else { panic!("{error}") };
        let reason = refused.source().and_then(|source| source.downcast_ref::<PlanError>());
        assert!(reason.is_some_and(PlanError::is_not_reproducible), "{error}");
    }
    Dispatch::check(&reduction(OperatorName::Sum), device.as_dispatch()).unwrap();

    let of_var = message(|| var::<2, 2>(x.clone(), 1, 1.0));
    assert!(of_var.starts_with("`var` of a tensor of shape [3, 40]: "), "{of_var}");
    let of_softmax = message(|| softmax(x.clone(), 1));
    assert!(of_softmax.contains("applied to its elements"), "{of_softmax}");
    // The tensor can be used afterwards.
    let total: Tensor<2> = sum(x, 1);
    assert_eq!(total.into_data().try_to_vec::<f32>().unwrap(), [40.0; 3]);
}

/// The message of a call that panics.
fn message<T>(call: impl FnOnce() -> T) -> String {
    let Err(panic) = catch_unwind(AssertUnwindSafe(call)) else { panic!("expected a panic") };
    *panic.downcast::<String>().expect("a message with values")
}

macro_rules! on {
    ($backend:ident, $device:expr) => {
        #[test]
        fn $backend() {
            let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
            use_numerics(Numerics::Reproducible);
            for device in [$device, $device.autodiff()] {
                bits_of_the_host(&device);
                refusals(&device);
                device.sync().expect("the device answers");
            }
        }
    };
}

#[cfg(feature = "cuda")]
on!(cuda, Device::cuda(0));

#[cfg(feature = "vulkan")]
on!(vulkan, Device::vulkan(burn_tensor::DeviceKind::DefaultDevice));

#[cfg(all(feature = "wgpu", not(feature = "vulkan")))]
on!(wgsl, Device::wgpu(burn_tensor::DeviceKind::DefaultDevice));
