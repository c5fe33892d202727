//! Runs a case on a device, into poisoned outputs, and compares them with the oracle.

use std::error::Error;

use half::{bf16, f16};
use rand::{SeedableRng, rngs::StdRng};
use reduce_kernels::{
    Device, ElementType, Operator, ReduceError, Reduction,
    cubecl::{e4m3, e5m2, prelude::*, std::tensor::TensorHandle},
    device_of,
    operator::{Arity, One},
    planner::{Plan, Problem, row_major_strides, span},
    reduce, storage_type,
};

use crate::{case::Case, operators::Checked, oracle::reduce_naively};

/// The error of the planner, of partial results or of shards that a call failed with.
pub(crate) fn source<E: Error + 'static>(error: &ReduceError) -> Option<&E> {
    error.source()?.downcast_ref()
}

/// A type of the host that tensors hold.
pub(crate) trait Element: bytemuck::Pod + PartialEq + std::fmt::Debug {
    const TYPE: ElementType;
    fn from_f64(value: f64) -> Self;
    fn to_f64(self) -> f64;
    /// Bits that no test expects, to tell what was never written.
    fn poison() -> Self {
        let mut value = Self::zeroed();
        bytemuck::bytes_of_mut(&mut value).fill(POISON);
        value
    }
}

/// Every byte of a poisoned buffer. As f32 it is 1.3e36, as f16 61280.
pub(crate) const POISON: u8 = 0x7b;

macro_rules! element {
    ($type:ty: $name:ident, $from:expr, $to:expr) => {
        impl Element for $type {
            const TYPE: ElementType = ElementType::$name;
            fn from_f64(value: f64) -> Self {
                ($from)(value)
            }
            fn to_f64(self) -> f64 {
                ($to)(self)
            }
        }
    };
}

element!(F8E4M3: F8E4M3,
    |v| F8E4M3(e4m3::from_f64(v).to_bits()),
    |v: F8E4M3| e4m3::from_bits(v.0).to_f64());
element!(F8E5M2: F8E5M2,
    |v| F8E5M2(e5m2::from_f64(v).to_bits()),
    |v: F8E5M2| e5m2::from_bits(v.0).to_f64());
element!(f16: F16, f16::from_f64, f16::to_f64);
element!(bf16: BF16, bf16::from_f64, bf16::to_f64);
element!(f32: F32, |v| v as f32, |v| v as f64);
element!(f64: F64, |v| v, |v| v);
element!(i8: I8, |v| v as i8, |v| v as f64);
element!(i16: I16, |v| v as i16, |v| v as f64);
element!(i32: I32, |v| v as i32, |v| v as f64);
element!(i64: I64, |v| v as i64, |v| v as f64);
element!(u8: U8, |v| v as u8, |v| v as f64);
element!(u16: U16, |v| v as u16, |v| v as f64);
element!(u32: U32, |v| v as u32, |v| v as f64);
element!(u64: U64, |v| v as u64, |v| v as f64);
element!(Truth: Bool, |v| Truth(u8::from(v != 0.0)), |v: Truth| f64::from(v.0));

/// The bits of OCP's E4M3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub(crate) struct F8E4M3(pub u8);

/// The bits of OCP's E5M2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub(crate) struct F8E5M2(pub u8);

/// A bool as tensors hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub(crate) struct Truth(pub u8);

/// Does something with the host's type for an [`ElementType`].
macro_rules! with_element {
    ($element:expr, $type:ident => $body:expr) => {
        with_element!(@ $element, $type, $body;
            F8E4M3 $crate::run::F8E4M3, F8E5M2 $crate::run::F8E5M2, F16 half::f16,
            BF16 half::bf16, F32 f32, F64 f64, I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16,
            U32 u32, U64 u64, Bool $crate::run::Truth)
    };
    (@ $element:expr, $type:ident, $body:expr; $($name:ident $of:ty),*) => {
        match $element {
            $(reduce_kernels::ElementType::$name => {
                type $type = $of;
                $body
            })*
        }
    };
}

/// Values as a tensor of `element` holds them.
pub(crate) fn encode(element: ElementType, values: &[f64]) -> Vec<u8> {
    with_element!(element, E => {
        let values: Vec<E> = values.iter().map(|&value| E::from_f64(value)).collect();
        bytemuck::cast_slice(&values).to_vec()
    })
}

/// The reverse of [`encode`].
pub(crate) fn decode(element: ElementType, bytes: &[u8]) -> Vec<f64> {
    with_element!(element, E => {
        bytemuck::pod_collect_to_vec::<u8, E>(bytes).into_iter().map(E::to_f64).collect()
    })
}

/// The client's device, with plane operations and atomic words of 64 bits whether it reports them
/// or not. Mesa's software adapter runs both: CubeCL lists no atomics of 64 bits for WGSL.
pub(crate) fn capable_device(client: &Client) -> Device {
    let mut device = device_of(client);
    device.plane_operations = true;
    device.wide_atomics |= device.has(ElementType::U64);
    device
}

/// A tensor of `data` with this shape and these strides.
pub(crate) fn tensor<E: Element>(
    client: &Client,
    data: &[E],
    shape: &[usize],
    strides: &[usize],
) -> TensorHandle {
    tensor_of(client, E::TYPE, bytemuck::cast_slice(data), shape, strides)
}

/// A tensor of bytes that hold elements of a type.
pub(crate) fn tensor_of(
    client: &Client,
    element: ElementType,
    bytes: &[u8],
    shape: &[usize],
    strides: &[usize],
) -> TensorHandle {
    // A buffer must hold something, even if the tensor does not; and on wgpu a multiple of 4 bytes.
    let mut held = bytes.to_vec();
    held.resize(bytes.len().max(1).next_multiple_of(8), POISON);
    TensorHandle::new(client.create_from_slice(&held), shape, strides, storage_type(element))
}

/// The first `len` elements of a tensor's buffer.
pub(crate) fn read<E: Element>(client: &Client, tensor: &TensorHandle, len: usize) -> Vec<E> {
    let bytes = client.read_one(tensor.handle.clone()).expect("the device answers");
    bytemuck::pod_collect_to_vec::<u8, E>(&bytes[..len * size_of::<E>()])
}

/// Random data for a case, as its elements hold it.
pub(crate) fn sample<O: Checked>(case: &Case, element: ElementType, seed: u64) -> Vec<f64> {
    let mut rng = StdRng::seed_from_u64(seed);
    let len = case.reduction_len();
    let draw = |rng: &mut StdRng| match O::sample(rng, len) {
        value if element.is_float() => value,
        value if element.is_signed() => value.ceil(),
        value => value.abs().ceil(),
    };
    let values: Vec<f64> = (0..case.span()).map(|_| draw(&mut rng)).collect();
    decode(element, &encode(element, &values))
}

/// The canonical problem of a case with the types asked for, its output strided as [`check`] has
/// it.
pub(crate) fn problem_of<O: Checked>(
    client: &Client,
    case: &Case,
    element: ElementType,
    asked: Asked,
) -> Result<Problem, ReduceError> {
    let bytes = vec![0; case.span() * element.bytes()];
    let input = tensor_of(client, element, &bytes, &case.shape, &case.strides);
    asked.of(reduce(O::operator(), &input).over(case.axes.as_slice())).problem()
}

/// What a check asks for beyond the case.
#[derive(Clone, Copy, Default)]
pub(crate) struct Asked {
    pub accumulator: Option<ElementType>,
    pub outputs: [Option<ElementType>; 3],
    pub plan: Option<Plan>,
}

impl From<Option<Plan>> for Asked {
    fn from(plan: Option<Plan>) -> Self {
        Self { plan, ..Self::default() }
    }
}

impl Asked {
    /// A reduction with the types asked for.
    fn of<'a, O: Operator>(
        self,
        mut reduction: Reduction<'a, O, TensorHandle>,
    ) -> Reduction<'a, O, TensorHandle> {
        if let Some(accumulator) = self.accumulator {
            reduction = reduction.accumulate_in(accumulator);
        }
        for (nth, output) in self.outputs.into_iter().enumerate() {
            if let Some(output) = output {
                reduction = reduction.nth_output_type(nth, output);
            }
        }
        reduction
    }
}

/// Runs a case and compares every result with the oracle. The outputs are strided, poisoned, and
/// must keep their poison between the results. Returns the error where the reduction was refused.
pub(crate) fn check<O: Checked>(
    client: &Client,
    case: &Case,
    element: ElementType,
    asked: impl Into<Asked>,
    seed: u64,
) -> Result<(), ReduceError> {
    let asked = asked.into();
    let data = sample::<O>(case, element, seed);
    let input = tensor_of(client, element, &encode(element, &data), &case.shape, &case.strides);
    let kept = case.kept_shape();
    // A gap of one element after each result.
    let strides: Vec<usize> = row_major_strides(&kept).iter().map(|stride| 2 * stride).collect();
    let held = (2 * span(&kept, &strides).unwrap()).max(2);

    let reduction = reduce(O::operator(), &input).over(case.axes.as_slice()).keep_dims(false);
    let mut reduction = asked.of(reduction);
    let device = capable_device(client);
    if let Some(plan) = asked.plan {
        reduction = reduction.with_plan(plan).plan_for(&device);
    }
    let types: Vec<ElementType> = O::Results::into_list(reduction.output_types()?);
    let poisoned = |output: &ElementType| {
        tensor_of(client, *output, &vec![POISON; held * output.bytes()], &kept, &strides)
    };
    let outputs: Vec<TensorHandle> = types.iter().map(poisoned).collect();
    let bindings = O::Results::each(|nth| outputs[nth].clone().binding());
    reduction.run_into(client, bindings)?;

    let expected = reduce_naively(&data, &case.shape, &case.strides, &case.axes, |values| {
        (O::naive(values), O::scale(values))
    });
    for (nth, (output, &of)) in outputs.iter().zip(&types).enumerate() {
        let bytes = client.read_one(output.handle.clone()).expect("the device answers");
        let found = decode(of, &bytes[..held * of.bytes()]);
        for (i, (expected, scale)) in expected.iter().enumerate() {
            let (result, expected) = (found[2 * i], expected[nth]);
            let bound = tolerance(element, of, asked, case.reduction_len(), *scale, expected);
            let same = result == expected || (result.is_nan() && expected.is_nan());
            assert!(
                same || (result - expected).abs() <= bound,
                "{} of {element} to {of}: result {i} ({nth}) is {result}, expected {expected} \
                 within {bound}\n{case:?}\n{}",
                O::NAME,
                asked.plan.map_or("as chosen".into(), |plan| plan.to_string()),
            );
        }
        let stray = bytes[..held * of.bytes()]
            .chunks(of.bytes())
            .enumerate()
            .skip(1)
            .step_by(2)
            .find(|(_, gap)| gap.iter().any(|&byte| byte != POISON));
        assert_eq!(stray, None, "written between the results: {case:?} {:?}", asked.plan);
    }
    Ok(())
}

/// How far a result may be off: not at all if it is an integer; else the accumulation's error,
/// which grows with the longest chain of additions (no schedule makes it longer than the
/// reduction), and the output's rounding on top.
pub(crate) fn tolerance(
    input: ElementType,
    output: ElementType,
    asked: Asked,
    len: usize,
    scale: f64,
    expected: f64,
) -> f64 {
    if !output.is_float() {
        return 0.0;
    }
    let wide = match asked.accumulator {
        Some(accumulator) => accumulator == ElementType::F64,
        None => input == ElementType::F64 || output == ElementType::F64,
    };
    let accumulator = if wide { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let rounding = match output {
        ElementType::F8E4M3 => 2f64.powi(-4),
        ElementType::F8E5M2 => 2f64.powi(-3),
        ElementType::F16 => 1e-3,
        ElementType::BF16 => 8e-3,
        ElementType::F32 => f64::from(f32::EPSILON),
        _ => f64::EPSILON,
    };
    let chain = (len as f64).sqrt().max(4.0);
    let scale = if scale.is_nan() { 0.0 } else { scale };
    accumulator * chain * scale + rounding * expected.abs()
}

/// The first result of a row-major tensor over `axes`.
pub(crate) fn results<O: Operator<Inputs = One>, E: Element, U: Element>(
    client: &Client,
    operator: O,
    data: &[E],
    shape: &[usize],
    axes: &[usize],
    plan: Option<Plan>,
) -> Vec<U> {
    let input = tensor(client, data, shape, &row_major_strides(shape));
    results_of(client, operator, &input, axes, plan)
}

/// The first result of a tensor over `axes`.
pub(crate) fn results_of<O: Operator<Inputs = One>, U: Element>(
    client: &Client,
    operator: O,
    input: &TensorHandle,
    axes: &[usize],
    plan: Option<Plan>,
) -> Vec<U> {
    let mut reduction = reduce(operator, input).over(axes).output_type(U::TYPE);
    let device = capable_device(client);
    if let Some(plan) = plan {
        reduction = reduction.with_plan(plan).plan_for(&device);
    }
    let shape = reduction.output_shape().unwrap();
    let len = shape.iter().product();
    let types = O::Results::into_list(reduction.output_types().unwrap());
    let poisoned = |output: &ElementType| {
        let bytes = vec![POISON; len * output.bytes()];
        tensor_of(client, *output, &bytes, &shape, &row_major_strides(&shape))
    };
    let outputs: Vec<TensorHandle> = types.iter().map(poisoned).collect();
    let bindings = O::Results::each(|nth| outputs[nth].clone().binding());
    reduction.run_into(client, bindings).unwrap();
    read(client, &outputs[0], len)
}
