//! The front door: a reduction as a sentence.

use core::{any::TypeId, fmt, ops::RangeFull};
use std::rc::Rc;

use cubecl::{prelude::*, server::Binding, std::tensor::TensorHandle, stream_id::StreamId};
use reduce_planner::{Choice, Device, ElementType, Plan, Problem, choose};

use crate::{
    ReduceError,
    element::{element_type, storage_type},
    launch::{Dispatch, Launch},
    memory::{self, Query},
    operator::{Family, Fields, Map, Mapped, Operator},
    prepared::{Checked, Prepared, Statement, check_arithmetic, name},
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
        no_such_result: None,
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
    /// A result that a type was asked for and that the operator does not have.
    no_such_result: Option<usize>,
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
            .field("no_such_result", &self.no_such_result)
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
    /// [`MaxWithIndex`](crate::MaxWithIndex) is result 1. Running with a result that the operator does not
    /// have is an error ([`ReduceError::NoSuchResult`]).
    pub fn result_type(mut self, nth: usize, output: ElementType) -> Self {
        match self.outputs[..O::Results::COUNT].get_mut(nth) {
            Some(slot) => *slot = Some(output),
            None => self.no_such_result = self.no_such_result.or(Some(nth)),
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
            no_such_result: self.no_such_result,
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
        self.parameters()?;
        let checked = self.check(None)?;
        self.check_input(&checked.problem)?;
        let of_client = memory::device(client);
        let device = self.device.unwrap_or(&of_client);
        check_arithmetic::<O, R>(client, &checked.signature, device)?;
        Ok(choose(&checked.problem, device)?)
    }

    /// Launches the reduction into a new row-major tensor, or one for each result. Does not wait for
    /// it. What was decided for a reduction is remembered, so that the next one like it costs a look-up.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched.
    pub fn run(self, client: &ComputeClient<R>) -> Result<Each<O, TensorHandle<R>>, ReduceError> {
        let parameters = self.parameters()?;
        let prepared = self.prepared(client, None)?;
        let Checked { problem, signature, shape } = &prepared.checked;
        let mut outputs = Vec::with_capacity(O::Results::COUNT);
        for &element in &signature.results[..O::Results::COUNT] {
            // Buffers of no bytes cannot be bound; one element stands in for them.
            let handle = client.empty(problem.outputs().max(1) * element.bytes());
            let storage = storage_type(element);
            outputs.push(TensorHandle::new_contiguous(shape.clone(), handle, storage));
        }
        let bindings = outputs.iter().map(|output| output.handle.clone().binding()).collect();
        let stream = Some(outputs[0].handle.stream);
        self.launch(client, &prepared, stream, bindings, parameters)?;
        let mut outputs = outputs.into_iter();
        Ok(O::Results::each(|_| outputs.next().expect("there is an output for each result")))
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
        let parameters = self.parameters()?;
        let outputs = O::Results::list(output);
        let prepared = self.prepared(client, Some(&outputs[0]))?;
        let Checked { problem, signature, shape } = &prepared.checked;
        for (output, &element) in outputs.iter().zip(&signature.results) {
            if output.shape[..] != shape[..] {
                return Err(ReduceError::OutputShape {
                    expected: shape.clone(),
                    found: output.shape.to_vec(),
                });
            }
            if output.strides != outputs[0].strides {
                return Err(ReduceError::OutputStrides {
                    first: outputs[0].strides.to_vec(),
                    other: output.strides.to_vec(),
                });
            }
            let needed = bytes(problem.output_span(), element);
            let handle = &output.handle;
            let available = held(handle.size(), handle.offset_start, handle.offset_end);
            if needed > available {
                return Err(ReduceError::BufferTooSmall { tensor: "output", needed, available });
            }
        }
        let bindings = outputs.into_iter().map(|output| output.handle).collect();
        self.launch(client, &prepared, None, bindings, parameters)
    }

    /// States and plans the problem, or remembers it. `output` gives the strides of a supplied output.
    fn prepared(
        &self,
        client: &ComputeClient<R>,
        output: Option<&TensorBinding<R>>,
    ) -> Result<Rc<Prepared>, ReduceError> {
        self.check_results()?;
        if let Some(device) = self.device {
            return Ok(Rc::new(self.prepare(client, device, output)?));
        }
        let query = Query {
            client: memory::identity(client),
            operator: TypeId::of::<O>(),
            element: element_type(self.input.dtype)?,
            shape: self.input.shape(),
            strides: self.input.strides(),
            axes: self.axes.as_slice(),
            squeeze: self.squeeze,
            accumulator: self.accumulator,
            outputs: self.outputs,
            alignment: self.alignment(),
            output: output.map(|output| (&output.shape[..], &output.strides[..])),
            plan: self.plan,
        };
        memory::prepared(&query, || self.prepare(client, &memory::device(client), output))
    }

    fn prepare(
        &self,
        client: &ComputeClient<R>,
        device: &Device,
        output: Option<&TensorBinding<R>>,
    ) -> Result<Prepared, ReduceError> {
        let checked = self.check(output)?;
        let problem = &checked.problem;
        let available = client.properties().memory.max_page_size;
        if output.is_none() {
            let results = &checked.signature.results[..O::Results::COUNT];
            let needed = results.iter().map(|&element| bytes(problem.outputs(), element)).max();
            if let Some(needed) = needed.filter(|&needed| needed > available) {
                return Err(ReduceError::OutputTooLarge { needed, available });
            }
        }
        let dispatch = if problem.outputs() == 0 {
            None
        } else {
            check_arithmetic::<O, R>(client, &checked.signature, device)?;
            let plan = match self.plan {
                Some(plan) => {
                    plan.check(problem, device)?;
                    plan
                }
                None => choose(problem, device)?.plan,
            };
            let fields = &checked.signature.fields[..O::Fields::COUNT];
            Some(Dispatch::new(plan, problem, device, fields, available)?)
        };
        Ok(Prepared { checked, dispatch })
    }

    /// The operator's numbers, if it can work with them.
    fn parameters(&self) -> Result<Vec<f64>, ReduceError> {
        (O::PARAMETERS)(&self.operator)
            .map_err(|invalid| ReduceError::Parameter { operator: name::<O>(), invalid })
    }

    fn alignment(&self) -> usize {
        alignment_of(self.input.handle.offset_start.unwrap_or(0))
    }

    /// States the problem.
    fn check(&self, output: Option<&TensorBinding<R>>) -> Result<Checked, ReduceError> {
        self.check_results()?;
        let output = output.map(|output| (&output.shape[..], &output.strides[..]));
        Checked::new::<O>(&Statement {
            element: element_type(self.input.dtype)?,
            shape: self.input.shape(),
            strides: self.input.strides(),
            alignment: self.alignment(),
            axes: self.axes.as_slice(),
            squeeze: self.squeeze,
            accumulator: self.accumulator,
            outputs: self.outputs,
            output,
        })
    }

    /// Checks that types were asked for of results that there are.
    fn check_results(&self) -> Result<(), ReduceError> {
        match self.no_such_result {
            None => Ok(()),
            Some(nth) => Err(ReduceError::NoSuchResult {
                operator: name::<O>(),
                nth,
                results: O::Results::COUNT,
            }),
        }
    }

    /// Checks the buffer of the input against the problem.
    fn check_input(&self, problem: &Problem) -> Result<(), ReduceError> {
        let needed = bytes(problem.input_span(), problem.input());
        let handle = &self.input.handle;
        let available = held(handle.size(), handle.offset_start, handle.offset_end);
        if needed > available {
            return Err(ReduceError::BufferTooSmall { tensor: "input", needed, available });
        }
        Ok(())
    }

    fn launch(
        &self,
        client: &ComputeClient<R>,
        prepared: &Prepared,
        stream: Option<StreamId>,
        outputs: Vec<Binding>,
        parameters: Vec<f64>,
    ) -> Result<(), ReduceError> {
        let Prepared { checked: Checked { problem, signature, .. }, dispatch } = prepared;
        self.check_input(problem)?;
        let Some(dispatch) = dispatch else {
            return Ok(());
        };
        check_offset(client, "input", self.input.handle.offset_start, problem.input())?;
        for (output, &element) in outputs.iter().zip(&signature.results) {
            check_offset(client, "output", output.offset_start, element)?;
        }
        // Where there is nothing to load, nothing is; the binding must hold one element all the same.
        let input = match problem.input_span() {
            0 => client.empty(problem.input().bytes()).binding(),
            _ => self.input.handle.clone().binding(),
        };
        let launch = Launch {
            client,
            problem,
            signature: *signature,
            dispatch,
            stream,
            input,
            outputs,
            parameters,
        };
        launch.run::<O>()
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
