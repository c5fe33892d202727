//! Scans: the results of a reduction at each of its positions, such as running sums.
//!
//! Any operator that [`reduce`] takes can be scanned: the result at a position is
//! that of the elements up to it.
//!
//! ```no_run
//! use reduce_kernels::{
//!     ReduceError, Sum,
//!     cubecl::{prelude::*, std::tensor::TensorHandle},
//!     scan::{cummax, cumsum, scan},
//! };
//!
//! // `x` has the shape [batch, time], and so has each result.
//! # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
//! let sums = cumsum(client, x, 1)?;
//! let highest = cummax(client, x, 1)?;
//! let sums_of_the_future = scan(Sum, x).over(1).exclusive().reverse().run(client)?;
//! # Ok(()) }
//! ```
//!
//! [`compact`] gives the elements that satisfy a predicate, which a scan counts.
//!
//! docs/SCANS.md in the repository says how scans run and what their rounding errors are.

mod earlier;

use core::fmt;

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{Choice, Device, ElementType, Numerics, ScanPlan, ScanProblem, ShardSpec};

use crate::{
    axes::Axes,
    error::ReduceError,
    host::{
        call::Call,
        scan::{
            launch::EarlierPartials,
            request::{ScanRequest, StatedScan},
        },
    },
    input::{Input, alignment_of},
    one_input::OperatorName,
    operator::{Arity, Map, Mapped, One, Operator},
    operators::{
        All, Any, LogSumExp, Max, MaxWithIndex, Mean, MeanVar, Min, MinWithIndex, Prod, Sum, Var,
    },
    partials::{AnyPartials, Partials},
    plan_in_use::PlanInUse,
    reduction::{Outputs, Reduction, reduce},
};
#[cfg(feature = "serde")]
use crate::{
    host::settings::PlanStore,
    recorded::{RecordedCall, RecordedScan},
};

pub use crate::compact::{Compacted, compact, compact_positions};

/// Starts a scan of `input` with `operator`: over all axes in row-major order, unless told
/// otherwise. The results have the shape of the input, and the types that the operator's reduction
/// has.
///
/// ```no_run
/// # use reduce_kernels::{
/// #     ReduceError,
/// #     cubecl::{prelude::*, std::tensor::TensorHandle},
/// #     operators::{MaxWithIndex, MeanVar},
/// #     scan::scan,
/// # };
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// let (highest, at) = scan(MaxWithIndex, x).over(1).run(client)?;
/// let (means, variances) = scan(MeanVar { correction: 0.0 }, x).over(1).run(client)?;
/// # Ok(()) }
/// ```
pub fn scan<O: Operator<Inputs = One>, T: Input>(operator: O, input: &T) -> Scan<'_, O, T> {
    Scan {
        reduction: reduce(operator, input),
        exclusive: false,
        reverse: false,
        shard: None,
        earlier: None,
        plan: None,
    }
}

/// A scan that is being described; see [`scan()`]. It does nothing until [`run`](Self::run) or
/// [`run_into`](Self::run_into) is called. If the input is a
/// [`TensorDescription`](crate::TensorDescription), it cannot run, but answers everything else.
#[must_use = "a scan does nothing until it is run"]
pub struct Scan<'a, O, T> {
    pub(crate) reduction: Reduction<'a, O, T>,
    pub(crate) exclusive: bool,
    pub(crate) reverse: bool,
    shard: Option<ShardSpec>,
    earlier: Option<AnyPartials<'a>>,
    pub(crate) plan: Option<ScanPlan>,
}

impl<O: Operator, T: Input> fmt::Debug for Scan<'_, O, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan")
            .field("reduction", &self.reduction)
            .field("exclusive", &self.exclusive)
            .field("reverse", &self.reverse)
            .field("shard", &self.shard)
            .field("earlier", &self.earlier.map(|earlier| earlier.description))
            .field("plan", &self.plan)
            .finish()
    }
}

impl<O: Copy, T> Clone for Scan<'_, O, T> {
    fn clone(&self) -> Self {
        Self { reduction: self.reduction.clone(), ..*self }
    }
}

impl<'a, O: Operator<Inputs = One>, T: Input> Scan<'a, O, T> {
    /// Applies `map` to each element before the operator takes it.
    pub fn mapped<M: Map<Inputs = One>>(self, map: M) -> Scan<'a, Mapped<M, O>, T> {
        let Self { reduction, exclusive, reverse, shard, earlier, plan } = self;
        Scan { reduction: reduction.mapped(map), exclusive, reverse, shard, earlier, plan }
    }

    /// Sets the axes that are scanned: `..` for all, an axis, or a list of axes. Several axes are
    /// scanned in their row-major order, whatever the order of the list. With an empty list, each
    /// element is a row of its own.
    pub fn over(self, axes: impl Into<Axes>) -> Self {
        Self { reduction: self.reduction.over(axes), ..self }
    }

    /// Leaves the element at each position out of the result there. The first result is that of no
    /// elements: 0 of a sum, NaN of a mean, and the value with which an operator starts where
    /// reductions of no elements are an error, such as `-inf` of a maximum.
    pub fn exclusive(self) -> Self {
        Self { exclusive: true, ..self }
    }

    /// Scans from the last position to the first: the result at a position is of the elements from
    /// it to the last one. Positions that operators give are still counted from the first.
    pub fn reverse(self) -> Self {
        Self { reverse: true, ..self }
    }

    /// Asks for this type of the result, or of the first result if there are several; see
    /// [`Reduction::output_type`].
    pub fn output_type(self, output: ElementType) -> Self {
        Self { reduction: self.reduction.output_type(output), ..self }
    }

    /// Asks for this type of result number `nth`, counted from 0; see
    /// [`Reduction::nth_output_type`].
    pub fn nth_output_type(self, nth: usize, output: ElementType) -> Self {
        Self { reduction: self.reduction.nth_output_type(nth, output), ..self }
    }

    /// Accumulates in this type; see [`Reduction::accumulate_in`].
    pub fn accumulate_in(self, accumulator: ElementType) -> Self {
        Self { reduction: self.reduction.accumulate_in(accumulator), ..self }
    }

    /// Promises that the bits of the results depend on no more than this; see
    /// [`Reduction::numerics`]. Operators that round have no reproducible scans.
    pub fn numerics(self, numerics: Numerics) -> Self {
        Self { reduction: self.reduction.numerics(numerics), ..self }
    }

    /// Runs this plan instead of choosing one. It is checked against the problem and the device.
    pub fn with_plan(self, plan: ScanPlan) -> Self {
        Self { plan: Some(plan), ..self }
    }

    /// Takes the plan from `plans`, if it has one; see [`Reduction::with_plans`].
    #[cfg(feature = "serde")]
    pub fn with_plans(self, plans: &'a PlanStore) -> Self {
        Self { reduction: self.reduction.with_plans(plans), ..self }
    }

    /// Plans for `device` instead of the one that the client reports; see [`Reduction::plan_for`].
    pub fn plan_for(self, device: &'a Device) -> Self {
        Self { reduction: self.reduction.plan_for(device), ..self }
    }

    /// The type of the result, or of each result if there are several.
    ///
    /// # Errors
    ///
    /// Invalid axes, types or strides.
    pub fn output_types(&self) -> Result<Outputs<O, ElementType>, ReduceError> {
        let results = self.stated()?.signature.results;
        Ok(O::Results::each(|nth| results[nth]))
    }

    /// The canonical problem, for planning without a device.
    ///
    /// # Errors
    ///
    /// Invalid axes, types or strides.
    pub fn problem(&self) -> Result<ScanProblem, ReduceError> {
        Ok(self.stated()?.problem)
    }

    /// Chooses a plan without running it, even if [`with_plan`](Self::with_plan) has set one. The
    /// choice says why other schedules were refused.
    ///
    /// # Errors
    ///
    /// Invalid axes, types or strides, and scans that the device cannot run.
    pub fn choose(&self, client: &Client) -> Result<Choice<ScanPlan>, ReduceError> {
        self.call(None)?.choose(client, &[self.reduction.input.buffer_bytes()])
    }

    /// The plan that [`run`](Self::run) would run now, and where it comes from; see
    /// [`Reduction::plan`].
    ///
    /// # Errors
    ///
    /// The errors of `choose`, and a plan of `with_plan` that may not run.
    pub fn plan(&self, client: &Client) -> Result<PlanInUse<ScanPlan>, ReduceError> {
        self.call(None)?.plan(client, &[self.reduction.input.buffer_bytes()])
    }

    /// Whether [`run`](Self::run) would launch; see [`Reduction::check`].
    ///
    /// # Errors
    ///
    /// The error that `run` would return.
    pub fn check(&self, client: &Client) -> Result<(), ReduceError> {
        self.call(None)?.check(client, &[self.reduction.input.buffer_bytes()])?;
        self.earlier(client).map(|_| ())
    }

    /// The scan as data, as [`record_calls`](crate::plans::record_calls) would record it.
    ///
    /// # Errors
    ///
    /// A parameter out of range, or a tensor that cannot be scanned.
    #[cfg(feature = "serde")]
    pub fn record(&self) -> Result<RecordedCall, ReduceError> {
        Ok(RecordedCall::Scan(RecordedScan::of(&self.call(None)?.task)))
    }

    fn stated(&self) -> Result<StatedScan, ReduceError> {
        self.call(None)?.stated()
    }

    /// The call. `output` is the strides and the alignment of supplied outputs.
    pub(crate) fn call(
        &self,
        output: Option<(Vec<usize>, usize)>,
    ) -> Result<Call<'_, ScanRequest<'_>>, ReduceError> {
        let Call { task: reduce, device, plans, parameters, apply_parameters } =
            self.reduction.call(None)?;
        let Self { exclusive, reverse, shard, plan, .. } = *self;
        let mut task = ScanRequest { reduce, exclusive, reverse, earlier: None, output, plan };
        if let Some(shard) = shard {
            task.reduce.become_shard(shard);
        }
        if let Some(partials) = self.earlier {
            let shard = earlier::shard_behind(&partials, &task, shard, &parameters)?;
            if let Some(shard) = shard {
                task.reduce.become_shard(shard);
            }
            task.earlier = Some(partials.description.slots);
        }
        Ok(Call { task, device, plans, parameters, apply_parameters })
    }

    /// The partial results that come before the scan, for a launch of a client.
    pub(crate) fn earlier(&self, client: &Client) -> Result<Option<EarlierPartials>, ReduceError> {
        let bound = |partials: AnyPartials<'_>| {
            Ok(EarlierPartials {
                words: partials.bound(client, 0)?,
                slots: 0..partials.description.slots,
                elements: partials.description.count,
            })
        };
        self.earlier.map(bound).transpose()
    }
}

impl<'a, O: Operator<Inputs = One>> Scan<'a, O, TensorHandle> {
    /// Says which part of a larger tensor the input is. Positions are those of the larger tensor,
    /// and types suit its size. The axis must be the first one of several elements that is scanned.
    pub fn of_shard(self, shard: ShardSpec) -> Self {
        Self { shard: Some(shard), ..self }
    }

    /// Goes on behind other elements, which `earlier` has: every result is also of them. Those of
    /// a [`reverse`](Self::reverse) scan are behind the input.
    ///
    /// They are partial results of the same operator and types, of rows of the same shape: see
    /// [`Reduction::partials`]. If they are of a shard, the input is the one that follows it, and
    /// it need not be named. Operators that give positions need that.
    ///
    /// ```no_run
    /// use reduce_kernels::{
    ///     ReduceError, Sum,
    ///     cubecl::{prelude::*, std::tensor::TensorHandle},
    ///     reduce,
    ///     scan::scan,
    /// };
    ///
    /// /// Running sums of each row of `left` and `right` side by side.
    /// fn example(
    ///     client: &Client,
    ///     left: &TensorHandle,
    ///     right: &TensorHandle,
    /// ) -> Result<[TensorHandle; 2], ReduceError> {
    ///     let of_left = reduce(Sum, left).over(1).partials(client)?;
    ///     Ok([
    ///         scan(Sum, left).over(1).run(client)?,
    ///         scan(Sum, right).over(1).after(&of_left).run(client)?,
    ///     ])
    /// }
    /// ```
    pub fn after(self, earlier: &'a Partials<O>) -> Self {
        Self { earlier: Some(earlier.any()), ..self }
    }

    /// Launches the scan into a new row-major tensor of the input's shape, or one for each result.
    /// Does not wait for it. Each thread caches the prepared scan, so repeating it costs a look-up.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched.
    pub fn run(self, client: &Client) -> Result<Outputs<O, TensorHandle>, ReduceError> {
        let (call, earlier) = (self.call(None)?, self.earlier(client)?);
        let mut outputs = call.run(client, self.reduction.input, earlier)?.into_iter();
        Ok(O::Results::each(|_| outputs.next().expect("there is an output for each result")))
    }

    /// Launches the scan into `output`: a tensor of the input's shape, or a tuple of tensors, one
    /// for each result, that have the same strides. Does not wait for it.
    ///
    /// Strides are arbitrary, but no two elements may share a place. A binding does not carry an
    /// element type: its elements must be of [`output_types`](Self::output_types). An output may be
    /// the input itself, with the same strides and of the same type. Otherwise, its memory must not
    /// overlap that of the input or of another output.
    ///
    /// ```no_run
    /// # use reduce_kernels::{
    /// #     ReduceError, Sum,
    /// #     cubecl::{prelude::*, std::tensor::TensorHandle},
    /// #     scan::scan,
    /// # };
    /// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
    /// scan(Sum, x).over(1).run_into(client, x.clone().binding())?; // in place
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched or written.
    pub fn run_into(
        self,
        client: &Client,
        output: Outputs<O, TensorBinding>,
    ) -> Result<(), ReduceError> {
        let outputs = O::Results::into_list(output);
        // The first output stands for all of them, as in a reduction, but for the alignment.
        let aligned =
            |output: &TensorBinding| alignment_of(output.handle.offset_start.unwrap_or(0));
        let alignment = outputs.iter().map(aligned).min().unwrap_or(1);
        let layout = (outputs[0].strides.to_vec(), alignment);
        let (call, earlier) = (self.call(Some(layout))?, self.earlier(client)?);
        call.run_into(client, self.reduction.input, earlier, &outputs)
    }
}

/// Defines functions for scans of one operator.
macro_rules! functions {
    ($(
        $(#[$doc:meta])*
        $name:ident: $operator:ident { $($parameter:ident)? } -> $result:ty;
    )*) => {$(
        $(#[$doc])*
        ///
        /// `axes` is an axis, or axes that are scanned in their row-major order. The results are
        /// new row-major tensors of the input's shape. [`scan()`] offers the rest: other types,
        /// exclusive and reverse scans, outputs of your own, plans.
        ///
        /// ```no_run
        /// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
        #[doc = concat!("use reduce_kernels::scan::", stringify!($name), ";\n")]
        /// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
        $(#[doc = concat!("let ", stringify!($parameter), " = 0.0;")])?
        #[doc = concat!(
            "let running = ", stringify!($name), "(client, x, 1", $(", ", stringify!($parameter),)? ")?;",
        )]
        /// # Ok(()) }
        /// ```
        ///
        /// # Errors
        ///
        /// A [`ReduceError`] before anything is launched.
        pub fn $name(
            client: &Client,
            input: &TensorHandle,
            axes: impl Into<Axes>,
            $($parameter: f64,)?
        ) -> Result<$result, ReduceError> {
            scan($operator { $($parameter)? }, input).over(axes).run(client)
        }
    )*

    /// The name of each function, and the operator that it scans with.
    pub(crate) const FUNCTIONS: &[(&str, OperatorName)] =
        &[$((stringify!($name), OperatorName::$operator)),*];
    };
}

functions! {
    /// Running sums. Sums of integers wrap.
    cumsum: Sum {} -> TensorHandle;
    /// Running products. Products of integers wrap.
    cumprod: Prod {} -> TensorHandle;
    /// Running maxima: NaN from the first NaN on.
    cummax: Max {} -> TensorHandle;
    /// Running minima: NaN from the first NaN on.
    cummin: Min {} -> TensorHandle;
    /// Running maxima and their positions, in this order. The position is that of the first NaN if
    /// there is one, otherwise the first of equal elements.
    cummax_with_positions: MaxWithIndex {} -> (TensorHandle, TensorHandle);
    /// Running minima and their positions, in this order. The position is that of the first NaN if
    /// there is one, otherwise the first of equal elements.
    cummin_with_positions: MinWithIndex {} -> (TensorHandle, TensorHandle);
    /// Running logarithms of the sum of exponentials, without overflow.
    logcumsumexp: LogSumExp {} -> TensorHandle;
    /// Running means. Means of integers are floating point.
    cummean: Mean {} -> TensorHandle;
    /// Running variances: the sum of squared differences from the mean, divided by the number of
    /// elements so far less `correction`. The first is NaN with a correction of 1.
    cumvar: Var { correction } -> TensorHandle;
    /// Running means and variances, in this order; see [`cumvar`] for `correction`.
    cummean_var: MeanVar { correction } -> (TensorHandle, TensorHandle);
    /// Whether all elements so far are nonzero. NaN is nonzero.
    cumall: All {} -> TensorHandle;
    /// Whether any element so far is nonzero. NaN is nonzero.
    cumany: Any {} -> TensorHandle;
}
