//! The operators and the map under every schedule, the application by every plan, the laws of the
//! operators, and what is refused.
//!
//! `--features vulkan` runs it through SPIR-V and through WGSL, `--features wgpu` through WGSL,
//! `--features cuda` on an NVIDIA GPU.
#![cfg_attr(
    not(any(feature = "cuda-llvm", feature = "wgpu", feature = "vulkan")),
    allow(unused, reason = "without a backend there is no device")
)]

// The clients of the library's own suite. In a repository of your own,
// `cubecl::Device::default().client()` is one.
#[path = "../../../crates/reduce-kernels/tests/suite/backend.rs"]
mod backend;

use std::{
    f32::consts::{FRAC_PI_2, PI},
    f64::consts::{self, TAU},
};

use reduce_kernels::{
    Device, ElementType, ErrorKind, Mean, ReduceError,
    cubecl::{prelude::*, std::tensor::TensorHandle},
    device_of,
    operators::MinMax,
    pairs::reduce_pair,
    planner::{AppliedKind, force_applied},
    reduce, storage_type,
    testing::{Random, TestError, Tolerance, check_every_plan, check_laws},
};
use reduce_own_operator::{MeanAngle, Slope, SquaredError, ToUnitRange};

/// Angles are equal modulo a turn.
const ANGLES: Tolerance = Tolerance::EXACT.with_absolute(1e-5).with_period(TAU);

/// The client's device. Mesa's software adapter reports no plane operations, but runs them.
fn device(client: &Client) -> Device {
    let mut device = device_of(client);
    device.plane_operations = true;
    device
}

fn mean_angle(angles: &[f64]) -> f64 {
    let sines: f64 = angles.iter().map(|angle| angle.sin()).sum();
    let cosines: f64 = angles.iter().map(|angle| angle.cos()).sum();
    sines.atan2(cosines)
}

/// Protects the operator under every schedule. The directions lie on both sides of ±π, with turns
/// added.
fn mean_angle_under_every_schedule(client: &Client) -> Result<(), TestError> {
    let angle = |random: &mut Random| {
        let turns = f64::from(random.integer(-3..=3));
        (consts::PI + random.uniform(-1.0..=1.25) + turns * TAU) as f32
    };
    let device = device(client);
    check_every_plan(
        client,
        &device,
        |inputs| inputs.reduce(MeanAngle),
        angle,
        mean_angle,
        ANGLES,
    )?;
    Ok(())
}

/// A point near a line through 0 whose slope is 3.
fn point(random: &mut Random) -> (f32, f32) {
    let x = random.uniform(-2.0..=2.0);
    (x as f32, (3.0 * x + random.uniform(-0.5..=0.5)) as f32)
}

/// Protects the operator of two inputs under every schedule.
fn slope_under_every_schedule(client: &Client) -> Result<(), TestError> {
    check_every_plan(
        client,
        &device(client),
        |inputs| inputs.reduce(Slope),
        point,
        |points| {
            let products: f64 = points.iter().map(|(x, y)| x * y).sum();
            let squares: f64 = points.iter().map(|(x, _)| x * x).sum();
            products / squares
        },
        Tolerance::EXACT.with_relative(1e-5),
    )?;
    Ok(())
}

/// Protects the map in front of an operator of the library, on integers, under every schedule.
fn squared_error_under_every_schedule(client: &Client) -> Result<(), TestError> {
    let map = SquaredError { target: 2.5 };
    check_every_plan(
        client,
        &device(client),
        |inputs| inputs.reduce(Mean).mapped(map),
        |random| random.integer(-20..=20),
        |elements| {
            let errors = elements.iter().map(|x| (x - map.target).powi(2));
            errors.sum::<f64>() / elements.len() as f64
        },
        Tolerance::EXACT.with_relative(1e-6),
    )?;
    Ok(())
}

/// Protects the application by every plan, along and across, over rows that are held and that are
/// not.
fn unit_range_by_every_plan(client: &Client) -> Result<(), TestError> {
    let device = device(client);
    let mut random = Random::new(2);
    for (shape, axis) in [([5, 1001], 1), ([40, 24], 0)] {
        let data: Vec<f32> =
            (0..shape[0] * shape[1]).map(|_| random.uniform(-9.0..=9.0) as f32).collect();
        let input = tensor(client, ElementType::F32, &data, &shape);
        for kind in AppliedKind::ALL {
            let applied = reduce(MinMax, &input).over(axis).apply(ToUnitRange).plan_for(&device);
            let (problem, reduction) = applied.problems()?;
            let Ok(plan) = force_applied(kind, &problem, &reduction, &device) else { continue };
            let found = read(client, applied.with_plan(plan).run(client)?);
            for (at, &found) in found[..data.len()].iter().enumerate() {
                let (row, column) = (at / shape[1], at % shape[1]);
                let slice: Vec<f32> = match axis {
                    1 => data[row * shape[1]..][..shape[1]].to_vec(),
                    _ => data[column..].iter().step_by(shape[1]).copied().collect(),
                };
                let least = slice.iter().copied().fold(f32::INFINITY, f32::min);
                let most = slice.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let expected = (data[at] - least) / (most - least);
                assert!((found - expected).abs() < 1e-6, "{plan}: {found}, not {expected}");
            }
        }
    }
    Ok(())
}

/// Protects the laws that every schedule relies on.
fn laws_of_the_mean_angle(client: &Client) -> Result<(), TestError> {
    let mut triples = vec![[0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [-2.5, 2.5, 9.0], [1e-6, 40.0, -40.0]];
    let mut random = Random::new(1);
    triples.extend((0..1000).map(|_| [0; 3].map(|_| random.uniform(-9.0..=9.0) as f32)));
    check_laws(client, MeanAngle, &triples, ANGLES)
}

/// Protects the laws of the operator of two inputs.
fn laws_of_the_slope(client: &Client) -> Result<(), TestError> {
    let mut triples = vec![
        [(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)],
        [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.5)],
        [(1e-3, 1.0), (1e3, 1.0), (1.0, 1.0)],
    ];
    let mut random = Random::new(3);
    triples.extend((0..1000).map(|_| [0; 3].map(|_| point(&mut random))));
    check_laws(client, Slope, &triples, Tolerance::FEW_ROUNDINGS)
}

/// Protects what `Slope` says about its edges: no points, and points whose x are 0.
fn edges_of_the_slope(client: &Client) -> Result<(), TestError> {
    let zeros = tensor(client, ElementType::F32, &[0f32; 2], &[2]);
    let row = tensor(client, ElementType::F32, &[1f32, 2.0], &[2]);
    let found = read(client, reduce_pair(Slope, &zeros, &row).run(client)?);
    assert!(found[0].is_nan(), "of x that are 0: {found:?}");
    let nothing = tensor(client, ElementType::F32, &[0f32], &[2, 0]);
    let error = reduce_pair(Slope, &nothing, &nothing).over(1).run(client).err();
    assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Shape));
    Ok(())
}

/// Protects what `MeanAngle` says about its edges: both sides of ±π, many turns, directions that
/// cancel out, NaN, infinities, no elements.
fn edges_of_the_mean_angle(client: &Client) -> Result<(), TestError> {
    let none = f32::NAN;
    let rows: [([f32; 2], f32); 8] = [
        ([179f32.to_radians(), -179f32.to_radians()], PI),
        ([0.0, FRAC_PI_2], FRAC_PI_2 / 2.0),
        // 500 turns and one radian, whose last digit is worth 2⁻¹².
        ([3142.5927, 1.0], 1.0),
        ([0.0, PI], none),
        ([-FRAC_PI_2, FRAC_PI_2], none),
        ([1.0, f32::NAN], none),
        ([f32::INFINITY, 1.0], none),
        ([1.0, f32::NEG_INFINITY], none),
    ];
    let data = rows.map(|(angles, _)| angles).concat();
    let input = tensor(client, ElementType::F32, &data, &[rows.len(), 2]);
    let found = read(client, reduce(MeanAngle, &input).over(1).run(client)?);
    for (found, (angles, expected)) in found.into_iter().zip(rows) {
        let same = found.is_nan() && expected.is_nan();
        let off = f64::from(found - expected).rem_euclid(TAU);
        assert!(
            same || off.min(TAU - off) <= 3e-4,
            "{angles:?} have the mean {found}, expected {expected}"
        );
    }
    let nothing = tensor(client, ElementType::F32, &[none], &[2, 0]);
    let found = read(client, reduce(MeanAngle, &nothing).over(1).run(client)?);
    assert!(found[..2].iter().all(|mean| mean.is_nan()), "of no elements: {found:?}");
    Ok(())
}

/// Protects that what cannot be done is refused by name, and nothing written.
fn refusals(client: &Client) -> Result<(), TestError> {
    let x = tensor(client, ElementType::F32, &[1.0f32; 4], &[4]);
    let map = SquaredError { target: f64::NAN };

    let untouched = 1.25e36;
    let output = tensor(client, ElementType::F32, &[untouched], &[1]);
    let error = reduce(Mean, &x).mapped(map).run_into(client, output.clone().binding());
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Parameter, "{error}");
    assert!(error.to_string().ends_with(": target is NaN, but must be a finite number"), "{error}");
    assert_eq!(read(client, output), [untouched]);

    let truths = tensor(client, ElementType::Bool, &[1u32], &[4]);
    let error = reduce(Mean, &truths).mapped(SquaredError { target: 0.0 }).run(client);
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Type, "{error}");

    let error = reduce(MeanAngle, &x).output_type(ElementType::I32).run(client);
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Type, "{error}");

    // SPIR-V and WGSL have no sines of f64.
    let wide = tensor(client, ElementType::F64, &[0.5f64, 1.5], &[2]);
    let error = reduce(MeanAngle, &wide).run(client).err();
    match client.name() {
        "cuda" | "hip" => assert_eq!(error, None),
        _ => assert!(error.as_ref().is_some_and(ReduceError::is_unsupported), "{error:?}"),
    }
    Ok(())
}

fn tensor<E: CubeElement>(
    client: &Client,
    element: ElementType,
    data: &[E],
    shape: &[usize],
) -> TensorHandle {
    let handle = client.create_from_slice(E::as_bytes(data));
    TensorHandle::new_contiguous(shape, handle, storage_type(element))
}

fn read(client: &Client, tensor: TensorHandle) -> Vec<f32> {
    let bytes = client.read_one(tensor.handle).expect("the device answers");
    f32::from_bytes(&bytes).to_vec()
}

/// The tests on one backend.
macro_rules! tests {
    ($backend:ident: $($test:ident),*) => {
        mod $backend {
            $(
                #[test]
                fn $test() {
                    super::$test(&super::backend::$backend())
                        .unwrap_or_else(|error| panic!("{error}"));
                }
            )*
        }
    };
    ($backend:ident) => {
        tests!($backend:
            mean_angle_under_every_schedule, squared_error_under_every_schedule,
            unit_range_by_every_plan,
            laws_of_the_mean_angle, edges_of_the_mean_angle, slope_under_every_schedule,
            laws_of_the_slope, edges_of_the_slope, refusals);
    };
}

#[cfg(feature = "cuda-llvm")]
tests!(cuda);

#[cfg(feature = "vulkan")]
tests!(spirv);

#[cfg(any(feature = "wgpu", feature = "vulkan"))]
tests!(wgsl);
