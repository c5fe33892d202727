//! The operator and the map under every schedule, the laws of the operator, and what is refused.
//!
//! `--features vulkan` runs it through SPIR-V and through WGSL, `--features wgpu` through WGSL,
//! `--features cuda` on an NVIDIA GPU.
#![cfg_attr(
    not(any(feature = "cuda", feature = "wgpu", feature = "vulkan")),
    allow(unused, reason = "without a backend there is no device")
)]

// The clients of the library's own suite. In a repository of your own, `R::client(&R::Device::default())`
// is one.
#[path = "../../../crates/reduce-kernels/tests/suite/backend.rs"]
#[allow(unreachable_pub, reason = "the suite's crate does without this lint")]
mod backend;

use std::{
    collections::BTreeSet,
    f32::consts::{FRAC_PI_2, PI},
    f64::consts::TAU,
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    ElementType, Mean, Operator, Plan, ReduceError, Reduction, ScheduleKind,
    cubecl::{prelude::*, std::tensor::TensorHandle},
    device_of, element_type,
    operator::One,
    planner::{Access, Direction},
    reduce, storage_type,
    testing::{check_laws, every_plan},
};
use reduce_own_operator::{MeanAngle, SquaredError};

/// What no result is: outputs are full of it beforehand.
const POISON: f32 = 1.25e36;

/// A matrix whose rows start `pitch` elements apart, and the axis that is reduced.
#[derive(Clone, Copy, Debug)]
struct Layout {
    shape: [usize; 2],
    pitch: usize,
    axis: usize,
}

/// Rows and columns, of whole vectors and ragged: long enough to be split between cubes, and shorter
/// than the 65535 iterations after which Mesa's software adapter leaves a loop.
const LAYOUTS: [Layout; 4] = [
    Layout { shape: [2, 20_000], pitch: 20_000, axis: 1 },
    Layout { shape: [2, 20_001], pitch: 20_001, axis: 1 },
    Layout { shape: [16_000, 8], pitch: 8, axis: 0 },
    Layout { shape: [16_000, 7], pitch: 8, axis: 0 },
];

impl Layout {
    /// Elements of the buffer.
    fn span(self) -> usize {
        self.shape[0] * self.pitch
    }

    /// The elements of each result.
    fn groups(self, data: &[f64]) -> Vec<Vec<f64>> {
        let [rows, columns] = self.shape;
        let at = |row: usize, column: usize| data[row * self.pitch + column];
        match self.axis {
            0 => (0..columns).map(|c| (0..rows).map(|r| at(r, c)).collect()).collect(),
            _ => (0..rows).map(|r| (0..columns).map(|c| at(r, c)).collect()).collect(),
        }
    }

    fn tensor<R: Runtime, E: CubeElement>(
        self,
        client: &ComputeClient<R>,
        element: ElementType,
        data: &[E],
    ) -> TensorHandle<R> {
        let handle = client.create_from_slice(E::as_bytes(data));
        TensorHandle::new(handle, self.shape, [self.pitch, 1], storage_type(element))
    }
}

fn tensor<R: Runtime, E: CubeElement>(
    client: &ComputeClient<R>,
    element: ElementType,
    data: &[E],
    shape: &[usize],
) -> TensorHandle<R> {
    let handle = client.create_from_slice(E::as_bytes(data));
    TensorHandle::new_contiguous(shape, handle, storage_type(element))
}

fn read<R: Runtime>(client: &ComputeClient<R>, tensor: TensorHandle<R>) -> Vec<f32> {
    let bytes = client.read_one(tensor.handle).expect("the device answers");
    f32::from_bytes(&bytes).to_vec()
}

/// A schedule by name, and how it reads: whether across, whether ragged, whether vectors.
type Tried = BTreeSet<(ScheduleKind, bool, bool, bool)>;

/// Runs a reduction to f32 under every plan, into poisoned outputs with gaps between the results.
fn under_every_plan<R: Runtime, O: Operator<Results = One>>(
    client: &ComputeClient<R>,
    reduction: &Reduction<'_, O, R>,
    tried: &mut Tried,
    check: impl Fn(&Plan, usize, f32),
) {
    // Mesa's software adapter reports no plane operations, but runs them.
    let mut device = device_of(client);
    device.plane_operations = true;
    let kept = reduction.output_shape().unwrap();
    let [len] = kept[..] else { panic!("one axis is kept") };
    let plans = every_plan(&reduction.problem().unwrap(), &device);
    for plan in &plans {
        let poisoned = client.create_from_slice(f32::as_bytes(&vec![POISON; 2 * len]));
        let output =
            TensorHandle::<R>::new(poisoned, kept.clone(), [2], storage_type(ElementType::F32));
        let reduction = reduction.clone().with_plan(*plan).plan_for(&device);
        reduction.run_into(client, output.clone().binding()).unwrap();
        let found = read(client, output);
        for (nth, pair) in found.chunks(2).enumerate() {
            check(plan, nth, pair[0]);
            assert_eq!(pair[1], POISON, "written between the results: {plan}");
        }
        let Access { direction, peeled, vector, .. } = plan.access;
        tried.insert((plan.schedule.kind(), direction == Direction::Across, peeled, vector > 1));
    }
}

/// That no schedule and no way of reading went untried.
fn assert_all_tried<R: Runtime>(client: &ComputeClient<R>, tried: &Tried) {
    let device = device_of(client);
    for kind in ScheduleKind::ALL {
        for across in [false, true] {
            // Lanes abreast need planes of one size.
            if (kind, across) == (ScheduleKind::Plane, true)
                && device.plane_size_min != device.plane_size_max
            {
                continue;
            }
            for (ragged, vectors) in [(false, false), (false, true), (true, true)] {
                let way = (kind, across, ragged, vectors);
                assert!(tried.contains(&way), "{way:?} is not among {tried:?}");
            }
        }
    }
}

fn mean_angle(angles: &[f64]) -> f64 {
    let sines: f64 = angles.iter().map(|angle| angle.sin()).sum();
    let cosines: f64 = angles.iter().map(|angle| angle.cos()).sum();
    sines.atan2(cosines)
}

/// How far apart two directions are.
fn apart(left: f64, right: f64) -> f64 {
    let difference = (left - right).rem_euclid(TAU);
    difference.min(TAU - difference)
}

/// Protects the operator under every schedule, reading along and across, of whole vectors and ragged,
/// against the definition in f64. The directions lie on both sides of ±π, with turns added.
fn mean_angle_under_every_schedule<R: Runtime>(client: &ComputeClient<R>) {
    let mut rng = StdRng::seed_from_u64(1);
    let mut tried = Tried::new();
    for layout in LAYOUTS {
        let angle = |rng: &mut StdRng| {
            let turns = rng.random_range(-3i32..=3) as f32;
            PI + rng.random_range(-1.0f32..=1.25) + turns * 2.0 * PI
        };
        let data: Vec<f32> = (0..layout.span()).map(|_| angle(&mut rng)).collect();
        let wide: Vec<f64> = data.iter().map(|&value| f64::from(value)).collect();
        let expected: Vec<f64> = layout.groups(&wide).iter().map(|of| mean_angle(of)).collect();
        let input = layout.tensor(client, ElementType::F32, &data);
        let reduction = reduce(MeanAngle, &input).over(layout.axis).keep_dims(false);
        under_every_plan(client, &reduction, &mut tried, |plan, nth, found| {
            let expected = expected[nth];
            let off = apart(f64::from(found), expected);
            assert!(
                off <= 1e-5,
                "{found}, expected {expected}: result {nth} of {layout:?}\n{plan}"
            );
        });
    }
    assert_all_tried(client, &tried);
}

/// Protects the map in front of an operator of the library, on integers, under every schedule.
fn squared_error_under_every_schedule<R: Runtime>(client: &ComputeClient<R>) {
    let mut rng = StdRng::seed_from_u64(2);
    let mut tried = Tried::new();
    let map = SquaredError { target: 2.5 };
    for layout in LAYOUTS {
        let data: Vec<i32> = (0..layout.span()).map(|_| rng.random_range(-20..=20)).collect();
        let squares: Vec<f64> = data.iter().map(|&x| (f64::from(x) - map.target).powi(2)).collect();
        let mean = |squares: &Vec<f64>| squares.iter().sum::<f64>() / squares.len() as f64;
        let expected: Vec<f64> = layout.groups(&squares).iter().map(mean).collect();
        let input = layout.tensor(client, ElementType::I32, &data);
        let reduction = reduce(Mean, &input).mapped(map).over(layout.axis).keep_dims(false);
        assert_eq!(reduction.output_types().unwrap(), ElementType::F32);
        under_every_plan(client, &reduction, &mut tried, |plan, nth, found| {
            let expected = expected[nth];
            let off = (f64::from(found) - expected).abs();
            assert!(
                off <= 1e-6 * expected,
                "{found}, expected {expected}: result {nth} of {layout:?}\n{plan}"
            );
        });
    }
    assert_all_tried(client, &tried);
}

/// Protects what `MeanAngle` says about its edges: both sides of ±π, many turns, directions that cancel
/// out, NaN, infinities, no elements.
fn edges_of_the_mean_angle<R: Runtime>(client: &ComputeClient<R>) {
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
    let found = read(client, reduce(MeanAngle, &input).over(1).run(client).unwrap());
    for (found, (angles, expected)) in found.into_iter().zip(rows) {
        let same = found.is_nan() && expected.is_nan();
        let off = apart(f64::from(found), f64::from(expected));
        assert!(same || off <= 3e-4, "{angles:?} have the mean {found}, expected {expected}");
    }
    let nothing = tensor(client, ElementType::F32, &[none], &[2, 0]);
    let found = read(client, reduce(MeanAngle, &nothing).over(1).run(client).unwrap());
    assert!(found[..2].iter().all(|mean| mean.is_nan()), "of no elements: {found:?}");
}

/// Protects the laws that every schedule relies on.
fn laws_of_the_mean_angle<R: Runtime>(client: &ComputeClient<R>) {
    let triples: [[f32; 3]; 4] =
        [[0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [-2.5, 2.5, 9.0], [1e-6, 40.0, -40.0]];
    check_laws(client, MeanAngle, &triples).unwrap().unwrap();
}

/// Protects that what cannot be done is refused by name, and nothing written.
fn refusals<R: Runtime>(client: &ComputeClient<R>) {
    let x = tensor(client, ElementType::F32, &[1.0f32; 4], &[4]);
    let map = SquaredError { target: f64::NAN };

    let output = tensor(client, ElementType::F32, &[POISON], &[1]);
    let error = reduce(Mean, &x).mapped(map).run_into(client, output.clone().binding());
    let Err(ReduceError::Parameter { invalid, .. }) = error else { panic!("{error:?}") };
    assert_eq!((invalid.name, invalid.expected), ("target", "a finite number"));
    assert_eq!(read(client, output), [POISON]);

    let truths = tensor(client, ElementType::Bool, &[1u32], &[4]);
    assert_eq!(element_type(truths.dtype).unwrap(), ElementType::Bool);
    let error = reduce(Mean, &truths).mapped(SquaredError { target: 0.0 }).run(client);
    assert!(matches!(error, Err(ReduceError::Types { .. })), "{error:?}");

    let error = reduce(MeanAngle, &x).output_type(ElementType::I32).run(client);
    assert!(matches!(error, Err(ReduceError::Types { .. })), "{error:?}");

    // SPIR-V has f64 but no sines of it; WGSL has no f64.
    let wide = tensor(client, ElementType::F64, &[0.5f64, 1.5], &[2]);
    let error = reduce(MeanAngle, &wide).run(client).err();
    match R::name(client) {
        "cuda" | "hip" => assert_eq!(error, None),
        _ => assert!(
            matches!(error, Some(ReduceError::Transcendental { .. } | ReduceError::Plan(_))),
            "{error:?}"
        ),
    }
}

/// The tests on one backend.
macro_rules! tests {
    ($backend:ident: $($test:ident),*) => {
        mod $backend {
            $(
                #[test]
                fn $test() {
                    super::$test(&super::backend::$backend());
                }
            )*
        }
    };
    ($backend:ident) => {
        tests!($backend:
            mean_angle_under_every_schedule, squared_error_under_every_schedule,
            edges_of_the_mean_angle, laws_of_the_mean_angle, refusals);
    };
}

#[cfg(feature = "cuda")]
tests!(cuda);

#[cfg(feature = "vulkan")]
tests!(spirv);

#[cfg(any(feature = "wgpu", feature = "vulkan"))]
tests!(wgsl);
