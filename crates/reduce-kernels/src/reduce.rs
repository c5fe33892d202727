//! The front door: a reduction as a sentence.

use core::{fmt, ops::RangeFull};
use std::borrow::Cow;

use cubecl::{prelude::*, server::Binding, std::tensor::TensorHandle};
use reduce_planner::{
    Choice, Device, ElementType, InputSpec, OperatorClass, OutputSpec, Plan, PlanError, Problem,
    ProblemError, choose, reduced_axes,
};

use crate::{
    ReduceError,
    device::{computes_with, device_of, has_wide_transcendentals},
    element::{element_type, storage_type},
    launch::Launch,
    operator::{Family, Fields, Map, Mapped, Operator, Signature, TypeRequest},
};

/// The axes that a reduction removes.
///
/// Made from `..` (all axes), one axis, or any list of axes in any order.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Axes {
    /// Every axis.
    #[default]
    All,
    /// These axes, counted from 0.
    List(Vec<usize>),
}

impl Axes {
    fn as_slice(&self) -> Option<&[usize]> {
        match self {
            Axes::All => None,
            Axes::List(axes) => Some(axes),
        }
    }
}

impl From<RangeFull> for Axes {
    fn from(_: RangeFull) -> Self {
        Axes::All
    }
}

impl From<usize> for Axes {
    fn from(axis: usize) -> Self {
        Axes::List(vec![axis])
    }
}

impl<const N: usize> From<[usize; N]> for Axes {
    fn from(axes: [usize; N]) -> Self {
        Axes::List(axes.to_vec())
    }
}

impl From<&[usize]> for Axes {
    fn from(axes: &[usize]) -> Self {
        Axes::List(axes.to_vec())
    }
}

impl From<Vec<usize>> for Axes {
    fn from(axes: Vec<usize>) -> Self {
        Axes::List(axes)
    }
}

/// One of what each result of `O` has: an `X` where there is one result, else a tuple of them.
pub type Each<O, X> = <<O as Operator>::Results as Family>::Each<X>;

/// Starts a reduction of `input` with `operator`: over all axes, keeping them as axes of size 1,
/// unless told otherwise.
///
/// ```no_run
/// # use reduce_kernels::{MinMax, Var, reduce, ReduceError, cubecl::prelude::*, cubecl::std::tensor::TensorHandle};
/// # fn example<R: Runtime>(client: &ComputeClient<R>, x: &TensorHandle<R>) -> Result<(), ReduceError> {
/// let per_channel = reduce(Var { correction: 1.0 }, x).over([0, 2, 3]).squeezed().run(client)?;
/// let (lowest, highest) = reduce(MinMax, x).over(1).run(client)?;
/// # Ok(()) }
/// ```
pub fn reduce<O: Operator, R: Runtime>(
    operator: O,
    input: &TensorHandle<R>,
) -> Reduction<'_, O, R> {
    Reduction {
        operator,
        input,
        axes: Axes::All,
        squeeze: false,
        accumulator: None,
        outputs: [None; 3],
        plan: None,
        device: None,
    }
}

/// A reduction that is being described; see [`reduce`].
pub struct Reduction<'a, O, R: Runtime> {
    operator: O,
    input: &'a TensorHandle<R>,
    axes: Axes,
    squeeze: bool,
    accumulator: Option<ElementType>,
    outputs: [Option<ElementType>; 3],
    plan: Option<Plan>,
    device: Option<&'a Device>,
}

impl<O: Operator, R: Runtime> fmt::Debug for Reduction<'_, O, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reduction")
            .field("operator", &O::NAME)
            .field("input", self.input)
            .field("axes", &self.axes)
            .field("squeeze", &self.squeeze)
            .field("accumulator", &self.accumulator)
            .field("outputs", &self.outputs)
            .field("plan", &self.plan)
            .field("device", &self.device)
            .finish()
    }
}

impl<O: Copy, R: Runtime> Clone for Reduction<'_, O, R> {
    fn clone(&self) -> Self {
        Self { axes: self.axes.clone(), ..*self }
    }
}

/// A reduction whose input, axes and types have been checked.
struct Checked {
    problem: Problem,
    signature: Signature,
    shape: Vec<usize>,
    parameters: Vec<f64>,
}

impl<'a, O: Operator, R: Runtime> Reduction<'a, O, R> {
    /// Reduces over these axes: `..`, an axis, or a list in any order. An empty list reduces
    /// nothing: every element is a reduction of its own.
    pub fn over(mut self, axes: impl Into<Axes>) -> Self {
        self.axes = axes.into();
        self
    }

    /// Removes the reduced axes from the result's shape instead of keeping them with size 1.
    pub fn squeezed(mut self) -> Self {
        self.squeeze = true;
        self
    }

    /// Gives the result (the first, of several) this type, and accumulates accordingly: asking for
    /// f64 accumulates in f64.
    pub fn to_type(self, output: ElementType) -> Self {
        self.result_type(0, output)
    }

    /// Gives result number `nth`, counted from 0, this type: the index of
    /// [`MaxWithIndex`](crate::MaxWithIndex) is result 1. Results that the operator does not have are
    /// ignored.
    pub fn result_type(mut self, nth: usize, output: ElementType) -> Self {
        if let Some(slot) = self.outputs.get_mut(nth) {
            *slot = Some(output);
        }
        self
    }

    /// Accumulates in this type instead of the one that goes with the input and the output: f32 data
    /// in f64, i32 in i64.
    pub fn accumulate_in(mut self, accumulator: ElementType) -> Self {
        self.accumulator = Some(accumulator);
        self
    }

    /// Applies `map` to each element before the operator takes it.
    pub fn mapped<M: Map>(self, map: M) -> Reduction<'a, Mapped<M, O>, R> {
        Reduction {
            operator: Mapped { map, operator: self.operator },
            input: self.input,
            axes: self.axes,
            squeeze: self.squeeze,
            accumulator: self.accumulator,
            outputs: self.outputs,
            plan: self.plan,
            device: self.device,
        }
    }

    /// Runs this plan instead of choosing one. It is checked against the problem and the device.
    pub fn with_plan(mut self, plan: Plan) -> Self {
        self.plan = Some(plan);
        self
    }

    /// Plans for `device` instead of the one that the client reports: to plan for another's limits,
    /// or to use plane operations that a driver does not report. What it says is trusted: a device
    /// that claims what the real one lacks makes kernels that fail to compile or give wrong results.
    pub fn on(mut self, device: &'a Device) -> Self {
        self.device = Some(device);
        self
    }

    /// Shape of the result.
    ///
    /// # Errors
    ///
    /// Bad axes, types or strides.
    pub fn output_shape(&self) -> Result<Vec<usize>, ReduceError> {
        Ok(self.check(None)?.shape)
    }

    /// Type of the result, or of each if there are several.
    ///
    /// # Errors
    ///
    /// As for [`output_shape`](Self::output_shape).
    pub fn output_type(&self) -> Result<Each<O, ElementType>, ReduceError> {
        let signature = self.check(None)?.signature;
        Ok(O::Results::each(|nth| signature.results[nth]))
    }

    /// The canonical problem, for planning without a device at hand.
    ///
    /// # Errors
    ///
    /// As for [`output_shape`](Self::output_shape).
    pub fn problem(&self) -> Result<Problem, ReduceError> {
        Ok(self.check(None)?.problem)
    }

    /// Chooses a plan without running it, also if [`with_plan`](Self::with_plan) gave one. The choice
    /// says why other schedules were refused.
    ///
    /// # Errors
    ///
    /// Bad axes, types or strides, and what the device cannot run. Where buffers start and how much a
    /// result takes is checked by [`run`](Self::run) alone. A result without elements gets a plan
    /// too, although running it launches nothing.
    pub fn plan(&self, client: &ComputeClient<R>) -> Result<Choice, ReduceError> {
        let checked = self.check(None)?;
        let device = self.device(client);
        check_arithmetic::<O, R>(client, &checked.signature, &device)?;
        Ok(choose(&checked.problem, &device)?)
    }

    /// Launches the reduction into a new row-major tensor, or one for each result. Does not wait for
    /// it.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched.
    pub fn run(self, client: &ComputeClient<R>) -> Result<Each<O, TensorHandle<R>>, ReduceError> {
        let checked = self.check(None)?;
        let available = client.properties().memory.max_page_size;
        let mut outputs = Vec::with_capacity(O::Results::COUNT);
        for &element in &checked.signature.results[..O::Results::COUNT] {
            let needed = bytes(checked.problem.outputs(), element);
            if needed > available {
                return Err(ReduceError::OutputTooLarge { needed, available });
            }
            // Buffers of no bytes cannot be bound; one element stands in for them.
            let handle = client.empty((needed as usize).max(element.bytes()));
            let storage = storage_type(element);
            outputs.push(TensorHandle::new_contiguous(checked.shape.clone(), handle, storage));
        }
        let bindings = outputs.iter().map(|output| output.handle.clone().binding()).collect();
        self.launch(client, &checked, bindings)?;
        Ok(O::Results::each(|nth| outputs[nth].clone()))
    }

    /// Launches the reduction into `output`: a tensor of the result's shape, with strides of any
    /// kind that never put two results in one place; or a tuple of tensors, one for each result, of the
    /// same strides. A binding tells no element type: its elements must be of [`output_type`]. It must
    /// not share memory with the input, nor with another output. Does not wait for it.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched or written.
    ///
    /// [`output_type`]: Self::output_type
    pub fn run_into(
        self,
        client: &ComputeClient<R>,
        output: Each<O, TensorBinding<R>>,
    ) -> Result<(), ReduceError> {
        let outputs = O::Results::list(output);
        let checked = self.check(Some(&outputs[0]))?;
        for (output, &element) in outputs.iter().zip(&checked.signature.results) {
            let expected = &checked.shape;
            if output.shape[..] != expected[..] {
                return Err(ReduceError::OutputShape {
                    expected: expected.clone(),
                    found: output.shape.to_vec(),
                });
            }
            if output.strides != outputs[0].strides {
                return Err(ReduceError::OutputStrides {
                    first: outputs[0].strides.to_vec(),
                    other: output.strides.to_vec(),
                });
            }
            let needed = bytes(checked.problem.output_span(), element);
            let handle = &output.handle;
            let available = held(handle.size(), handle.offset_start, handle.offset_end);
            if needed > available {
                return Err(ReduceError::BufferTooSmall { tensor: "output", needed, available });
            }
        }
        let bindings = outputs.into_iter().map(|output| output.handle).collect();
        self.launch(client, &checked, bindings)
    }

    /// The device to plan for.
    fn device(&self, client: &ComputeClient<R>) -> Cow<'a, Device> {
        self.device.map_or_else(|| Cow::Owned(device_of(client)), Cow::Borrowed)
    }

    fn signature(
        &self,
        input: ElementType,
        reduction_len: usize,
    ) -> Result<Signature, ReduceError> {
        let request = TypeRequest {
            input,
            accumulator: self.accumulator,
            outputs: self.outputs,
            reduction_len,
        };
        (O::TYPES)(&request).ok_or_else(|| ReduceError::Types { operator: name::<O>(), request })
    }

    /// States the problem. `output` gives the strides of a supplied output.
    fn check(&self, output: Option<&TensorBinding<R>>) -> Result<Checked, ReduceError> {
        let element = element_type(self.input.dtype)?;
        let shape: &[usize] = self.input.shape();
        let strides: &[usize] = self.input.strides();
        let is_reduced = reduced_axes(shape.len(), self.axes.as_slice())?;
        // Shapes whose products overflow are refused with the problem.
        let reduction_len = shape
            .iter()
            .zip(&is_reduced)
            .filter(|&(_, &reduced)| reduced)
            .fold(1usize, |len, (&extent, _)| len.saturating_mul(extent));
        let signature = self.signature(element, reduction_len)?;
        let parameters = (O::PARAMETERS)(&self.operator)
            .map_err(|invalid| ReduceError::Parameter { operator: name::<O>(), invalid })?;
        let fields = &signature.fields[..O::Fields::COUNT];
        let class = OperatorClass {
            name: O::NAME,
            accumulator_bytes: fields.iter().map(|field| field.bytes()).sum(),
            positional: O::POSITIONAL,
            defined_on_empty: O::DEFINED_ON_EMPTY,
        };
        let result_shape = result_shape(shape, &is_reduced, self.squeeze);
        let kept_strides = match output {
            None => None,
            Some(output) if output.shape.len() != result_shape.len() => {
                return Err(ReduceError::OutputShape {
                    expected: result_shape,
                    found: output.shape.to_vec(),
                });
            }
            Some(output) if output.strides.len() != output.shape.len() => {
                return Err(ProblemError::RankMismatch {
                    tensor: "output",
                    dims: output.shape.len(),
                    strides: output.strides.len(),
                }
                .into());
            }
            Some(output) if self.squeeze => Some(output.strides.to_vec()),
            Some(output) => {
                let strides = output.strides.iter().zip(&is_reduced);
                Some(strides.filter(|&(_, reduced)| !reduced).map(|(&stride, _)| stride).collect())
            }
        };
        let offset = self.input.handle.offset_start.unwrap_or(0);
        let problem = Problem::new(
            class,
            &InputSpec { element, shape, strides, alignment: alignment_of(offset) },
            self.axes.as_slice(),
            &OutputSpec {
                elements: &signature.results[..O::Results::COUNT],
                strides: kept_strides.as_deref(),
            },
        )?;
        let needed = bytes(problem.input_span(), element);
        let handle = &self.input.handle;
        let available = held(handle.size(), handle.offset_start, handle.offset_end);
        if needed > available {
            return Err(ReduceError::BufferTooSmall { tensor: "input", needed, available });
        }
        Ok(Checked { problem, signature, shape: result_shape, parameters })
    }

    fn launch(
        &self,
        client: &ComputeClient<R>,
        checked: &Checked,
        outputs: Vec<Binding>,
    ) -> Result<(), ReduceError> {
        if checked.problem.outputs() == 0 {
            return Ok(());
        }
        check_offset(client, "input", self.input.handle.offset_start, checked.problem.input())?;
        for (output, &element) in outputs.iter().zip(&checked.signature.results) {
            check_offset(client, "output", output.offset_start, element)?;
        }
        let device = self.device(client);
        check_arithmetic::<O, R>(client, &checked.signature, &device)?;
        let plan = match self.plan {
            Some(plan) => {
                plan.check(&checked.problem, &device)?;
                plan
            }
            None => choose(&checked.problem, &device)?.plan,
        };
        // Where there is nothing to load, nothing is; the binding must hold one element all the same.
        let input = match checked.problem.input_span() {
            0 => client.empty(checked.problem.input().bytes()).binding(),
            _ => self.input.handle.clone().binding(),
        };
        let launch = Launch {
            client,
            device: &device,
            problem: &checked.problem,
            signature: checked.signature,
            input,
            outputs,
            parameters: checked.parameters.clone(),
        };
        Ok(launch.run::<O>(&plan)?)
    }
}

/// The operator in messages: `sum`, or `sum of squared_error`.
fn name<O: Operator>() -> String {
    match O::MAP {
        None => O::NAME.into(),
        Some(map) => format!("{} of {map}", O::NAME),
    }
}

/// Bytes of `count` elements.
fn bytes(count: usize, element: ElementType) -> u64 {
    (count as u64).saturating_mul(element.bytes() as u64)
}

/// Bytes of a buffer between its offsets; none where they cross.
fn held(size: u64, start: Option<u64>, end: Option<u64>) -> u64 {
    size.saturating_sub(start.unwrap_or(0)).saturating_sub(end.unwrap_or(0))
}

/// Alignment of an address that lies `offset` bytes into a buffer, in bytes. Buffers themselves
/// start on a boundary of the widest load there is.
fn alignment_of(offset: u64) -> usize {
    const WIDEST_LOAD_LOG2: u32 = 4;
    1 << offset.trailing_zeros().min(WIDEST_LOAD_LOG2)
}

/// wgpu binds buffers at multiples of an alignment only; CUDA and HIP pass addresses.
fn check_offset<R: Runtime>(
    client: &ComputeClient<R>,
    tensor: &'static str,
    offset: Option<u64>,
    element: ElementType,
) -> Result<(), ReduceError> {
    let offset = offset.unwrap_or(0);
    let alignment = match R::name(client) {
        "cuda" | "hip" => element.bytes() as u64,
        _ => client.properties().memory.alignment.max(1),
    };
    match offset.is_multiple_of(alignment) {
        true => Ok(()),
        false => Err(ReduceError::Misaligned { tensor, offset, alignment }),
    }
}

fn result_shape(shape: &[usize], is_reduced: &[bool], squeeze: bool) -> Vec<usize> {
    let axes = shape.iter().zip(is_reduced);
    if squeeze {
        axes.filter(|&(_, reduced)| !reduced).map(|(&extent, _)| extent).collect()
    } else {
        axes.map(|(&extent, &reduced)| if reduced { 1 } else { extent }).collect()
    }
}

/// The planner checks the types of tensors; what is computed with is the operator's affair.
fn check_arithmetic<O: Operator, R: Runtime>(
    client: &ComputeClient<R>,
    signature: &Signature,
    device: &Device,
) -> Result<(), ReduceError> {
    let fields = signature.fields[..O::Fields::COUNT].iter().copied();
    for element in core::iter::once(signature.value).chain(fields) {
        if !(device.has(element) && computes_with(client, element)) {
            let device = device.name.clone();
            return Err(PlanError::ElementUnsupported { device, element }.into());
        }
        if O::TRANSCENDENTAL && element == ElementType::F64 && !has_wide_transcendentals(client) {
            let device = device.name.clone();
            return Err(ReduceError::Transcendental { operator: name::<O>(), element, device });
        }
    }
    Ok(())
}
