//! Runs a case on a device, into a poisoned output, and compares it with the oracle.

use half::{bf16, f16};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    Device, ElementType, Max, Mean, Min, Operator, Plan, Problem, Prod, ReduceError, ScheduleKind,
    Sum,
    cubecl::{prelude::*, std::tensor::TensorHandle},
    device_of,
    planner::{Access, Direction, row_major_strides, schedule, span},
    reduce, storage_type,
};

use crate::{case::Case, oracle::reduce_naively};

/// A type of the host that tensors hold.
pub trait Element: bytemuck::Pod + PartialEq + std::fmt::Debug {
    const TYPE: ElementType;
    /// Bits that no result has, to tell what was never written.
    const POISON: Self;
    fn from_f64(value: f64) -> Self;
    fn to_f64(self) -> f64;
}

macro_rules! element {
    ($type:ty: $name:ident, poison $poison:expr, $from:expr, $to:expr) => {
        impl Element for $type {
            const TYPE: ElementType = ElementType::$name;
            const POISON: Self = $poison;
            fn from_f64(value: f64) -> Self {
                ($from)(value)
            }
            fn to_f64(self) -> f64 {
                ($to)(self)
            }
        }
    };
}

element!(f16: F16, poison f16::from_bits(0x7bad), f16::from_f64, f16::to_f64);
element!(bf16: BF16, poison bf16::from_bits(0x7bad), bf16::from_f64, bf16::to_f64);
element!(f32: F32, poison -7.7e37, |v| v as f32, |v| v as f64);
element!(f64: F64, poison -7.7e307, |v| v, |v| v);
element!(i32: I32, poison i32::MIN + 77, |v: f64| v as i64 as i32, |v| v as f64);
element!(u32: U32, poison 0xdead_beef, |v: f64| v as i64 as u32, |v| v as f64);

/// An operator of this crate with its naive counterpart on f64. Test data keeps integers small
/// enough that f64 holds every result.
pub trait Checked: Operator {
    fn naive(values: &[f64]) -> f64;
    /// Random data that the operator's result stays meaningful for.
    fn sample(rng: &mut StdRng, _reduction_len: usize) -> f64 {
        (rng.random_range(-100i32..=100) as f64) / 8.0
    }
    /// Error bound of a result, as a multiple of the accumulator's epsilon times this.
    fn scale(values: &[f64]) -> f64 {
        values.iter().map(|value| value.abs()).sum()
    }
}

impl Checked for Sum {
    fn naive(values: &[f64]) -> f64 {
        values.iter().sum()
    }
}

impl Checked for Mean {
    fn naive(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }
    fn scale(values: &[f64]) -> f64 {
        values.iter().map(|value| value.abs()).sum::<f64>() / values.len() as f64
    }
}

impl Checked for Prod {
    fn naive(values: &[f64]) -> f64 {
        values.iter().product()
    }
    /// Mostly ones, and as many twos as halves on average: products neither vanish nor overflow.
    fn sample(rng: &mut StdRng, reduction_len: usize) -> f64 {
        let rare = (16.0 / reduction_len as f64).min(0.25);
        let draw: f64 = rng.random();
        if draw < rare / 4.0 {
            -1.0
        } else if draw < rare / 2.0 {
            2.0
        } else {
            1.0
        }
    }
    fn scale(values: &[f64]) -> f64 {
        values.iter().product::<f64>().abs()
    }
}

impl Checked for Max {
    fn naive(values: &[f64]) -> f64 {
        values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }
    fn scale(_: &[f64]) -> f64 {
        0.0
    }
}

impl Checked for Min {
    fn naive(values: &[f64]) -> f64 {
        values.iter().copied().fold(f64::INFINITY, f64::min)
    }
    fn scale(_: &[f64]) -> f64 {
        0.0
    }
}

/// A client on the runtime's default device.
pub fn client<R: Runtime>() -> ComputeClient<R> {
    R::client(&R::Device::default())
}

/// The client's device, with plane operations whether it reports them or not.
pub fn device_with_planes<R: Runtime>(client: &ComputeClient<R>) -> Device {
    Device { plane_operations: true, ..device_of(client) }
}

/// A tensor of `data` with this shape and these strides.
pub fn tensor<R: Runtime, E: Element>(
    client: &ComputeClient<R>,
    data: &[E],
    shape: &[usize],
    strides: &[usize],
) -> TensorHandle<R> {
    // A buffer must hold something, even if the tensor does not.
    let handle = match data {
        [] => client.create_from_slice(bytemuck::bytes_of(&E::POISON)),
        _ => client.create_from_slice(bytemuck::cast_slice(data)),
    };
    TensorHandle::new(handle, shape, strides, storage_type(E::TYPE))
}

/// The first `len` elements of a tensor's buffer.
pub fn read<R: Runtime, E: Element>(
    client: &ComputeClient<R>,
    tensor: &TensorHandle<R>,
    len: usize,
) -> Vec<E> {
    let bytes = client.read_one(tensor.handle.clone()).expect("the device answers");
    bytemuck::pod_collect_to_vec::<u8, E>(&bytes)[..len].to_vec()
}

/// Random data for a case.
pub fn sample<O: Checked, E: Element>(case: &Case, seed: u64) -> Vec<E> {
    let mut rng = StdRng::seed_from_u64(seed);
    let len = case.reduction_len();
    let integral = !E::TYPE.is_float();
    let unsigned = E::TYPE == ElementType::U32;
    let draw = |rng: &mut StdRng| match O::sample(rng, len) {
        value if unsigned => value.abs().ceil(),
        value if integral => value.ceil(),
        value => value,
    };
    (0..case.span()).map(|_| E::from_f64(draw(&mut rng))).collect()
}

/// Every plan that can run a problem: each schedule, sized for the widest access and for single
/// elements both ways.
pub fn plans(problem: &Problem, device: &Device) -> Vec<Plan> {
    let single = |direction| Access { direction, vector: 1, ragged: false, in_flight: 3 };
    let widest = Access::widest(problem, device);
    let narrow = Device { max_vector: 2, ..device.clone() };
    let mut accesses = vec![
        widest,
        Access::widest(problem, &narrow),
        single(Direction::Along),
        single(Direction::Across),
    ];
    accesses.dedup();
    let mut plans: Vec<Plan> = Vec::new();
    for access in accesses {
        for kind in ScheduleKind::ALL {
            let sized = schedule::size(kind, problem, device, access);
            let plan = sized.ok().map(|schedule| Plan::new(access, schedule));
            plans.extend(plan.filter(|plan| plan.check(problem, device).is_ok()));
        }
    }
    plans.sort_by_key(|plan| format!("{plan:?}"));
    plans.dedup();
    plans
}

/// Runs a case and compares every result with the oracle. The output is strided, poisoned, and must
/// keep its poison between the results. Returns the error where the reduction was refused.
pub fn check<R: Runtime, O: Checked, E: Element, U: Element>(
    client: &ComputeClient<R>,
    case: &Case,
    plan: Option<Plan>,
    seed: u64,
) -> Result<(), ReduceError> {
    let data: Vec<E> = sample::<O, E>(case, seed);
    let input = tensor(client, &data, &case.shape, &case.strides);
    let kept = case.kept_shape();
    // A gap of one element after each result.
    let strides: Vec<usize> = row_major_strides(&kept).iter().map(|stride| 2 * stride).collect();
    let held = (2 * span(&kept, &strides).unwrap()).max(2);
    let output = tensor(client, &vec![U::POISON; held], &kept, &strides);

    let mut reduction =
        reduce::<O, R>(&input).over(case.axes.as_slice()).squeezed().to_type(U::TYPE);
    let device = device_with_planes(client);
    if let Some(plan) = plan {
        reduction = reduction.with_plan(plan).on(&device);
    }
    reduction.run_into(client, output.clone().binding())?;

    let found: Vec<U> = read(client, &output, held);
    let exact: Vec<f64> = data.iter().map(|value| value.to_f64()).collect();
    let expected = reduce_naively(&exact, &case.shape, &case.strides, &case.axes, |values| {
        (O::naive(values), O::scale(values))
    });
    for (i, (expected, scale)) in expected.into_iter().enumerate() {
        let result = found[2 * i].to_f64();
        let bound = tolerance::<E, U>(case.reduction_len(), scale, expected);
        let close = (result - expected).abs() <= bound;
        assert!(
            close || (result.is_nan() && expected.is_nan()),
            "{} of {} to {}: result {i} is {result}, expected {expected} within {bound}\n{case:?}\n{}",
            O::NAME,
            E::TYPE,
            U::TYPE,
            plan.map_or("as chosen".into(), |plan| plan.to_string()),
        );
    }
    let results: usize = kept.iter().product();
    let written = |i: usize| i.is_multiple_of(2) && i / 2 < results;
    let stray = (0..held).find(|&i| !written(i) && found[i] != U::POISON);
    assert_eq!(stray, None, "written between the results: {case:?} {plan:?}");
    Ok(())
}

/// How far a result may be off: the accumulation's error grows with the longest chain of additions,
/// which no schedule makes longer than the reduction, and the output's rounding comes on top.
fn tolerance<E: Element, U: Element>(len: usize, scale: f64, expected: f64) -> f64 {
    let wide = E::TYPE == ElementType::F64 || U::TYPE == ElementType::F64;
    let accumulator = if wide { f64::EPSILON } else { f32::EPSILON as f64 };
    let rounding = match U::TYPE {
        ElementType::F16 => 1e-3,
        ElementType::BF16 => 8e-3,
        ElementType::F32 => f32::EPSILON as f64,
        _ => f64::EPSILON,
    };
    let chain = (len as f64).sqrt().max(4.0);
    accumulator * chain * scale + rounding * expected.abs()
}
