//! Wind directions, a slope and a mean squared error, on the first device of the backends compiled
//! in.
#![cfg_attr(
    not(any(feature = "cuda-llvm", feature = "wgpu", feature = "vulkan")),
    allow(unused, reason = "without a backend there is no device")
)]

use std::{
    error::Error,
    io::{self, Write},
};

use reduce_kernels::{
    ElementType, Mean,
    cubecl::{Device, device::WgpuDeviceKind, prelude::*, std::tensor::TensorHandle},
    operators::MinMax,
    pairs::reduce_pair,
    reduce, storage_type,
};
use reduce_own_operator::{MeanAngle, Slope, SquaredError, ToUnitRange};

fn show(client: &Client) -> Result<(), Box<dyn Error>> {
    // Unlike `println!`, `writeln!` returns an error where the reader has gone.
    let mut out = io::stdout();
    writeln!(out, "through {}", client.name())?;

    // Winds from around north at one station and around south at the other.
    let degrees: [f32; 8] = [350.0, 10.0, 355.0, 25.0, 170.0, 190.0, 185.0, 195.0];
    let winds = tensor(client, &degrees.map(f32::to_radians), &[2, 4]);
    let directions = reduce(MeanAngle, &winds).over(1).keep_dims(false).run(client)?;
    for (station, direction) in numbers(client, directions)?.into_iter().enumerate() {
        writeln!(
            out,
            "station {station}: wind from {:.1}°",
            direction.to_degrees().rem_euclid(360.0)
        )?;
    }

    let hours = tensor(client, &[1.0, 2.0, 3.0], &[3]);
    let millimetres = tensor(client, &[2.5, 4.5, 6.5], &[3]);
    let rain = reduce_pair(Slope, &hours, &millimetres).run(client)?;
    writeln!(out, "rain: {:.2} mm an hour", numbers(client, rain)?[0])?;

    let outputs = tensor(client, &[0.1, 0.4, 0.5, 0.8], &[4]);
    let error = reduce(Mean, &outputs).mapped(SquaredError { target: 0.5 }).run(client)?;
    writeln!(out, "mean squared error against 0.5: {:.4}", numbers(client, error)?[0])?;

    let spread = tensor(client, &[2.0, 4.0, 3.0, 10.0, 30.0, 20.0], &[2, 3]);
    let ranges = reduce(MinMax, &spread).over(1).apply(ToUnitRange).run(client)?;
    writeln!(out, "rows from 0 to 1: {:?}", numbers(client, ranges)?)?;
    Ok(())
}

fn tensor(client: &Client, data: &[f32], shape: &[usize]) -> TensorHandle {
    let buffer = client.create_from_slice(f32::as_bytes(data));
    TensorHandle::new_contiguous(shape, buffer, storage_type(ElementType::F32))
}

fn numbers(client: &Client, tensor: TensorHandle) -> Result<Vec<f32>, Box<dyn Error>> {
    let bytes = client.read_one(tensor.handle).map_err(|error| format!("{error:?}"))?;
    Ok(f32::from_bytes(&bytes).to_vec())
}

fn main() -> Result<(), Box<dyn Error>> {
    #[cfg(feature = "cuda-llvm")]
    if let Ok(device) = Device::cuda(0) {
        return show(&device.client());
    }
    #[cfg(any(feature = "wgpu", feature = "vulkan"))]
    if let Ok(device) = Device::wgpu(WgpuDeviceKind::default()) {
        return show(&device.client());
    }
    Err("no device found: is a backend compiled in (--features cuda, vulkan or wgpu), and the driver of \
         a GPU or Mesa's software adapter installed?"
        .into())
}
