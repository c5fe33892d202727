//! The largest or smallest elements of each slice, with their positions.
//!
//! ```no_run
//! use reduce_kernels::{
//!     ReduceError,
//!     cubecl::{prelude::*, std::tensor::TensorHandle},
//!     top_k::{smallest, top_k},
//! };
//!
//! # fn example(client: &Client, logits: &TensorHandle) -> Result<(), ReduceError> {
//! let best = top_k(client, logits, 1, 50)?; // best.values and best.positions: [rows, 50]
//! let worst = smallest(8, logits).over(1).nan_last().run(client)?;
//! # Ok(()) }
//! ```

use core::fmt;
use std::borrow::Cow;

use cubecl::{prelude::*, std::tensor::TensorHandle};
pub use reduce_planner::Over;
use reduce_planner::{Choice, Device, ElementType, InputSpec, TopKPlan, TopKProblem};

#[cfg(feature = "serde")]
use crate::recorded::{RecordedCall, RecordedTopK};
use crate::{
    axes::Axes,
    error::{Reason, ReduceError},
    host::{
        call::Call,
        settings::PlanStore,
        top_k::{
            launch::Selecting,
            parts::InParts,
            request::{Order, PositionTable, StatedTopK, TopKRequest},
        },
    },
    input::{Input, sealed::Layout},
    plan_in_use::PlanInUse,
};

pub use crate::top_k_mask::MaskedTopK;

/// The selected elements of each slice: an `X` for their values and one for their positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selected<X = TensorHandle> {
    /// The values, of the type of the input; or what [`TopK::probabilities`] gives.
    pub values: X,
    /// The position of each value in its slice, counted in row-major order over the axes of the
    /// slice; or what a tensor of [`TopK::with_positions`] has there.
    pub positions: X,
}

/// The `k` largest elements of each slice and their positions, from the largest down: what
/// [`largest`] gives without options.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::top_k::top_k;
///
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// let best = top_k(client, x, 1, 8)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched, such as for slices of fewer than `k` elements.
pub fn top_k(
    client: &Client,
    input: &TensorHandle,
    axes: impl Into<Axes>,
    k: usize,
) -> Result<Selected, ReduceError> {
    largest(k, input).over(axes).run(client)
}

/// The `k`-th smallest element of each slice and its position, where `k` counts from 1. The axes of
/// a slice stay with size 1.
///
/// NaN comes after all numbers. Of equal elements, the one with the lower position comes first.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::top_k::kth_value;
///
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// let third = kth_value(client, x, 1, 3)?.values;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched, such as for a `k` of 0 or slices of fewer than
/// `k` elements.
pub fn kth_value(
    client: &Client,
    input: &TensorHandle,
    axes: impl Into<Axes>,
    k: usize,
) -> Result<Selected, ReduceError> {
    smallest(k, input).over(axes).nan_last().only_last().run(client)
}

/// Starts the selection of the `k` largest elements of each slice of `input`, from the largest
/// down: over all axes, unless told otherwise.
///
/// - NaN comes before all numbers, as in [`Max`](crate::Max); see [`TopK::nan_last`].
/// - Of equal elements, the one with the lower position comes first. Both zeros are equal, and so
///   are all NaN. Values keep their bits.
/// - Nothing is rounded, so the results are the same on every device and in every batch.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::top_k::{Selected, largest};
///
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// let Selected { values, positions } = largest(8, x).over([1, 2]).run(client)?;
/// # Ok(()) }
/// ```
pub fn largest<T: Input>(k: usize, input: &T) -> TopK<'_, T> {
    TopK::new(k, input, true)
}

/// Starts the selection of the `k` smallest elements of each slice of `input`, from the smallest
/// up. Otherwise it is as [`largest`]: NaN comes before all numbers here too, as in
/// [`Min`](crate::Min).
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::top_k::smallest;
///
/// # fn example(client: &Client, distances: &TensorHandle) -> Result<(), ReduceError> {
/// let nearest = smallest(10, distances).over(1).run(client)?.positions;
/// # Ok(()) }
/// ```
pub fn smallest<T: Input>(k: usize, input: &T) -> TopK<'_, T> {
    TopK::new(k, input, false)
}

/// A selection that is being described; see [`largest`]. It does nothing until [`run`](Self::run)
/// or [`run_into`](Self::run_into) is called. If the input is a
/// [`TensorDescription`](crate::TensorDescription), it cannot run, but answers everything else.
#[derive(Clone)]
#[must_use = "a selection does nothing until it is run"]
pub struct TopK<'a, T> {
    k: usize,
    pub(crate) input: &'a T,
    axes: Axes,
    keep_dims: bool,
    only_last: bool,
    or_fewer: bool,
    order: Order,
    probabilities: Option<Over>,
    values: Option<ElementType>,
    positions: Option<ElementType>,
    pub(crate) table: Option<&'a T>,
    plan: Option<TopKPlan>,
    device: Option<&'a Device>,
    plans: Option<&'a PlanStore>,
}

impl<T: Input> fmt::Debug for TopK<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopK")
            .field("k", &self.k)
            .field("input", self.input)
            .field("axes", &self.axes)
            .field("order", &self.order)
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

impl<'a, T: Input> TopK<'a, T> {
    fn new(k: usize, input: &'a T, largest: bool) -> Self {
        Self {
            k,
            input,
            axes: Axes::All,
            keep_dims: true,
            only_last: false,
            or_fewer: false,
            order: Order::new(largest),
            probabilities: None,
            values: None,
            positions: None,
            table: None,
            plan: None,
            device: None,
            plans: None,
        }
    }

    /// Sets the axes of a slice: `..` for all, an axis, or a list of axes in any order. The last of
    /// them becomes the axis of the selected elements.
    pub fn over(mut self, axes: impl Into<Axes>) -> Self {
        self.axes = axes.into();
        self
    }

    /// Chooses whether the results keep the other axes of a slice with size 1 (the default) or drop
    /// them.
    pub fn keep_dims(mut self, keep: bool) -> Self {
        self.keep_dims = keep;
        self
    }

    /// Selects slices of fewer than `k` elements as a whole. Without it, they are an error.
    pub fn or_fewer(mut self) -> Self {
        self.or_fewer = true;
        self
    }

    /// Writes only the last of the `k` elements, the `k`-th; see [`kth_value`]. It is the last by
    /// value, also after [`in_order_of_positions`](Self::in_order_of_positions).
    pub fn only_last(mut self) -> Self {
        self.only_last = true;
        self
    }

    /// Puts NaN after all numbers: it is selected only where a slice has fewer than `k` numbers.
    pub fn nan_last(mut self) -> Self {
        self.order.nan_last = true;
        self
    }

    /// Puts the selected elements in the order of their positions, rather than of their values.
    pub fn in_order_of_positions(mut self) -> Self {
        self.order.by_position = true;
        self
    }

    /// Writes probabilities in place of values: the exponential of each selected element over the
    /// sum of the exponentials of the elements that `over` names.
    ///
    /// [`Over::Selected`] is what a router of experts wants, the softmax of the logits divided by
    /// the sum of the `k` largest: the denominators cancel. [`Over::Slice`] is the softmax of the
    /// slice. As in [`Softmax`](crate::normalize::Softmax), NaN and `inf` among these elements make
    /// every probability of the slice NaN, and so do elements that are all `-inf`.
    ///
    /// Units that hold short slices find everything in the launch of the selection. For other
    /// slices, [`Over::Slice`] takes a reduction before. Probabilities have the type of the input,
    /// or that of [`value_type`](Self::value_type). They are computed in f64 of elements of f64,
    /// otherwise in f32. Elements that are not of floating point are an error.
    ///
    /// ```no_run
    /// # use reduce_kernels::{ElementType, ReduceError};
    /// # use reduce_kernels::cubecl::{prelude::*, std::tensor::TensorHandle};
    /// use reduce_kernels::top_k::{Over, Selected, largest};
    ///
    /// # fn example(client: &Client, logits: &TensorHandle) -> Result<(), ReduceError> {
    /// // The weights of the 8 experts of each token, in f32, and which they are.
    /// let Selected { values: weights, positions: experts } = largest(8, logits)
    ///     .over(1)
    ///     .probabilities(Over::Selected)
    ///     .value_type(ElementType::F32)
    ///     .run(client)?;
    /// # Ok(()) }
    /// ```
    pub fn probabilities(mut self, over: Over) -> Self {
        self.probabilities = Some(over);
        self
    }

    /// Asks for this type of the values. Elements have that of the input. Probabilities may be of
    /// any floating point type, but of f64 only if the input is.
    pub fn value_type(mut self, values: ElementType) -> Self {
        self.values = Some(values);
        self
    }

    /// Asks for this type of the positions: i32, i64, u32 or u64, if it holds them. Without it,
    /// they are u32, or u64 of slices that u32 does not count.
    pub fn position_type(mut self, positions: ElementType) -> Self {
        self.positions = Some(positions);
        self
    }

    /// Writes elements of `positions` in place of positions in the slice: of each selected element,
    /// the one at its index. This is the payload of a sort by key, such as identifiers of
    /// candidates, or where candidates were before they were collected.
    ///
    /// `positions` has the shape of the input, any strides, and elements of i32, i64, u32 or u64,
    /// which the results have too. Which elements are selected does not depend on it: of equal
    /// elements, the one with the lower position in the slice comes first.
    ///
    /// ```no_run
    /// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
    /// use reduce_kernels::top_k::largest;
    ///
    /// # fn example(
    /// #     client: &Client,
    /// #     scores: &TensorHandle,
    /// #     documents: &TensorHandle,
    /// # ) -> Result<(), ReduceError> {
    /// // The documents with the 10 highest scores of each query, whose numbers lie in `documents`.
    /// let best = largest(10, scores).over(1).with_positions(documents).run(client)?.positions;
    /// # Ok(()) }
    /// ```
    pub fn with_positions(mut self, positions: &'a T) -> Self {
        self.table = Some(positions);
        self
    }

    /// Starts to write the input with `fill` in place of all elements that are not selected: such
    /// as logits of which all but the `k` largest are `-inf`.
    ///
    /// Of equal elements, the ones with the lower positions stay, so exactly `k` elements of each
    /// slice keep their bits. A selection of the last of the `k` elements and a launch that
    /// compares every element with that read the input twice.
    ///
    /// ```no_run
    /// # use reduce_kernels::{ReduceError, TensorDescription, ElementType, cubecl::prelude::*};
    /// use reduce_kernels::{top_k::largest, warm_up::warm_up};
    ///
    /// # fn example(client: &Client) -> Result<(), ReduceError> {
    /// let logits = TensorDescription::row_major(ElementType::F32, [64, 128_256]);
    /// let masked = largest(50, &logits).over(1).masked(f32::NEG_INFINITY);
    /// masked.check(client)?;
    /// warm_up(client, &[&masked], |_| ())?;
    /// # Ok(()) }
    /// ```
    pub fn masked(self, fill: f32) -> MaskedTopK<'a, T> {
        let options = [
            (self.probabilities.is_some(), "probabilities"),
            (self.table.is_some(), "positions to write"),
            (self.only_last, "single element"),
        ];
        let refused = options.into_iter().find(|&(is_set, _)| is_set).map(|(_, option)| option);
        let order = Order { by_position: false, ..self.order };
        let last = Self { order, only_last: true, keep_dims: true, positions: None, ..self };
        MaskedTopK { last, fill, refused }
    }

    /// Runs this plan instead of choosing one. It is checked against the problem and the device.
    pub fn with_plan(mut self, plan: TopKPlan) -> Self {
        self.plan = Some(plan);
        self
    }

    /// Takes the plan from `plans`, if it has one for the problem; see
    /// [`Reduction::with_plans`](crate::Reduction::with_plans).
    #[cfg(feature = "serde")]
    pub fn with_plans(mut self, plans: &'a PlanStore) -> Self {
        self.plans = Some(plans);
        self
    }

    /// Plans for `device`; see [`Reduction::plan_for`](crate::Reduction::plan_for).
    pub fn plan_for(mut self, device: &'a Device) -> Self {
        self.device = Some(device);
        self
    }

    /// The shape of the values and of the positions.
    ///
    /// # Errors
    ///
    /// Invalid axes, types or strides, and slices that are too short.
    pub fn output_shape(&self) -> Result<Vec<usize>, ReduceError> {
        Ok(self.stated()?.shape)
    }

    /// The types of the values and of the positions.
    ///
    /// # Errors
    ///
    /// Those of [`output_shape`](Self::output_shape).
    pub fn output_types(&self) -> Result<Selected<ElementType>, ReduceError> {
        let [values, positions, _] = self.stated()?.signature.results;
        Ok(Selected { values, positions })
    }

    /// The canonical problem, for planning without a device.
    ///
    /// # Errors
    ///
    /// Those of [`output_shape`](Self::output_shape).
    pub fn problem(&self) -> Result<TopKProblem, ReduceError> {
        Ok(self.stated()?.problem)
    }

    /// Chooses a plan without running it, even if [`with_plan`](Self::with_plan) has set one.
    ///
    /// # Errors
    ///
    /// Those of [`output_shape`](Self::output_shape), and selections that the device cannot run.
    pub fn choose(&self, client: &Client) -> Result<Choice<TopKPlan>, ReduceError> {
        self.call(None)?.choose(client, &self.buffer_bytes())
    }

    /// The plan that [`run`](Self::run) would run now, and where it comes from; see
    /// [`Reduction::plan`](crate::Reduction::plan).
    ///
    /// # Errors
    ///
    /// The errors of `choose`, and a plan of `with_plan` that may not run.
    pub fn plan(&self, client: &Client) -> Result<PlanInUse<TopKPlan>, ReduceError> {
        self.call(None)?.plan(client, &self.buffer_bytes())
    }

    /// Whether [`run`](Self::run) would launch. It checks and plans the selection, and caches both,
    /// but launches nothing. The input's memory is not checked if the input is a
    /// [`TensorDescription`](crate::TensorDescription).
    ///
    /// # Errors
    ///
    /// The error that `run` would return.
    pub fn check(&self, client: &Client) -> Result<(), ReduceError> {
        self.call(None)?.check(client, &self.buffer_bytes())
    }

    /// The selection as data, as [`record_calls`](crate::plans::record_calls) would record it.
    ///
    /// # Errors
    ///
    /// A tensor from which nothing can be selected.
    #[cfg(feature = "serde")]
    pub fn record(&self) -> Result<RecordedCall, ReduceError> {
        Ok(RecordedCall::TopK(RecordedTopK::of(&self.call(None)?.task)?))
    }

    /// Bytes of the buffers of the input and of the positions to write, where they exist.
    pub(crate) fn buffer_bytes(&self) -> [Option<u64>; 2] {
        [self.input.buffer_bytes(), self.table.and_then(|table| table.buffer_bytes())]
    }

    pub(crate) fn stated(&self) -> Result<StatedTopK, ReduceError> {
        self.call(None)?.stated()
    }

    /// The call. `output` is the shape and the strides of supplied outputs.
    pub(crate) fn call<'s>(
        &'s self,
        output: Option<(&'s [usize], &'s [usize])>,
    ) -> Result<Call<'s, TopKRequest<'s>>, ReduceError> {
        let table = self.table.map(Layout::spec).transpose()?;
        let mut call = self.call_of_input(self.input.spec()?, table)?;
        call.task.output =
            output.map(|(shape, strides)| (Cow::Borrowed(shape), Cow::Borrowed(strides)));
        Ok(call)
    }

    /// The call that selects from another input, into new tensors.
    pub(crate) fn call_of_input<'s>(
        &'s self,
        input: InputSpec<'s>,
        table: Option<InputSpec<'s>>,
    ) -> Result<Call<'s, TopKRequest<'s>>, ReduceError> {
        let request = self.request(input, table)?;
        let task = TopKRequest { or_fewer: self.or_fewer, ..request };
        Ok(self.call_of(if self.only_last { task.only_last()? } else { task }))
    }

    /// The call that selects from this part of the slices; see [`TopKRequest::of_part`].
    pub(crate) fn call_of_part<'s>(
        &'s self,
        input: InputSpec<'s>,
        table: Option<InputSpec<'s>>,
        positions: ElementType,
    ) -> Result<Call<'s, TopKRequest<'s>>, ReduceError> {
        Ok(self.call_of(self.request(input, table)?.of_part(positions)))
    }

    /// What is selected of slices that come in parts. `stated` is the selection of a part, or that
    /// of all.
    pub(crate) fn in_parts(&self, stated: &StatedTopK) -> InParts {
        InParts {
            k: self.k,
            or_fewer: self.or_fewer,
            only_last: self.only_last,
            order: self.order,
            probabilities: stated.problem.probabilities(),
            element: stated.problem.slices().input(),
            positions: stated.signature.results[1],
            shape: stated.shape.clone(),
            axis: stated.axis,
        }
    }

    /// The axes of a slice.
    pub(crate) fn axes(&self) -> &Axes {
        &self.axes
    }

    /// Over which elements probabilities were asked for.
    pub(crate) fn probabilities_asked(&self) -> Option<Over> {
        self.probabilities
    }

    /// The type of positions that was asked for.
    pub(crate) fn position_type_asked(&self) -> Option<ElementType> {
        self.positions
    }

    fn call_of<'s>(&'s self, task: TopKRequest<'s>) -> Call<'s, TopKRequest<'s>> {
        let Self { device, plans, .. } = *self;
        Call { task, device, plans, parameters: Vec::new(), apply_parameters: Vec::new() }
    }

    /// The request for this input, without supplied outputs, of all `k` elements.
    fn request<'s>(
        &'s self,
        input: InputSpec<'s>,
        table: Option<InputSpec<'s>>,
    ) -> Result<TopKRequest<'s>, ReduceError> {
        let table = table.map(|InputSpec { element, shape, strides, .. }| {
            if shape != input.shape {
                let (input, found) = (input.shape.to_vec(), shape.to_vec());
                return Err(ReduceError::from(Reason::PositionsShape { input, found }));
            }
            Ok(PositionTable { element, strides: Cow::Borrowed(strides) })
        });
        Ok(TopKRequest {
            keep_dims: self.keep_dims,
            order: self.order,
            probabilities: self.probabilities,
            values: self.values,
            positions: self.positions,
            table: table.transpose()?,
            plan: self.plan,
            ..TopKRequest::new(input, self.axes.as_slice(), self.k)
        })
    }
}

impl TopK<'_, TensorHandle> {
    /// Launches the selection into new row-major tensors. Does not wait for it. Each thread caches
    /// the prepared selection, so repeating it costs a look-up.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched.
    pub fn run(self, client: &Client) -> Result<Selected, ReduceError> {
        let [values, positions] =
            self.call(None)?.run(client, Selecting::from(self.input, self.table))?;
        Ok(Selected { values, positions })
    }

    /// Writes the input with `fill` in place of all elements that are not selected, into a new
    /// row-major tensor: what [`masked`](Self::masked) gives when it is run. `fill` must be a
    /// number of the type: fp8 takes no infinity.
    ///
    /// ```no_run
    /// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
    /// use reduce_kernels::{normalize::softmax, top_k::largest};
    ///
    /// # fn example(client: &Client, logits: &TensorHandle) -> Result<(), ReduceError> {
    /// // What sampling from the 50 most probable tokens starts from.
    /// let masked = largest(50, logits).over(1).keep_only(client, f32::NEG_INFINITY)?;
    /// let probabilities = softmax(client, &masked, 1)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`MaskedTopK::run`].
    pub fn keep_only(self, client: &Client, fill: f32) -> Result<TensorHandle, ReduceError> {
        self.masked(fill).run(client)
    }

    /// [`keep_only`](Self::keep_only) into a tensor of the input's shape; see
    /// [`MaskedTopK::run_into`].
    ///
    /// # Errors
    ///
    /// Those of [`MaskedTopK::run_into`].
    pub fn keep_only_into(
        self,
        client: &Client,
        fill: f32,
        output: TensorBinding,
    ) -> Result<(), ReduceError> {
        self.masked(fill).run_into(client, output)
    }

    /// Launches the selection into tensors of the results' shape, which have the same strides. Does
    /// not wait for it. See [`Reduction::run_into`](crate::Reduction::run_into).
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched or written.
    pub fn run_into(
        self,
        client: &Client,
        outputs: Selected<TensorBinding>,
    ) -> Result<(), ReduceError> {
        let Selected { values, positions } = outputs;
        let (shape, strides) = (values.shape.to_vec(), values.strides.to_vec());
        let selecting = Selecting::from(self.input, self.table);
        self.call(Some((&shape, &strides)))?.run_into(client, selecting, [values, positions])
    }
}
