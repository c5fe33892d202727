//! Scans of lists of tensors.

use core::fmt;

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{Choice, Device, ElementType, ListScanPlan, ListScanProblem, Numerics};

use crate::{
    axes::Axes,
    error::ReduceError,
    host::{
        call::Call,
        list::{
            request::ListTask,
            scan::{ListScanRequest, ListScanTask, StatedListScan},
        },
    },
    input::Input,
    list::{ListReduction, reduce_list},
    operator::{Arity, Map, Mapped, One, Operator},
    plan_in_use::PlanInUse,
    reduction::Outputs,
};
#[cfg(feature = "serde")]
use crate::{
    host::settings::PlanStore,
    recorded::{RecordedCall, RecordedListScan},
};

/// Starts a scan of each of `tensors` with one operator: over all axes in row-major order, unless
/// told otherwise. The tensors may have any shapes, strides and types.
///
/// Many tensors share a launch. Each has the types, the plan and the bits that
/// [`scan()`](crate::scan::scan()) of it alone has, unless a plan for the list or for the scan is
/// given or stored.
///
/// ```no_run
/// # use reduce_kernels::{
/// #     ReduceError, Sum,
/// #     cubecl::{prelude::*, std::tensor::TensorHandle},
/// #     list::scan_list,
/// #     operators::MaxWithIndex,
/// # };
/// # fn example(client: &Client, sequences: &[TensorHandle]) -> Result<(), ReduceError> {
/// let sums = scan_list(Sum, sequences).over(0).run(client)?;
/// // sums[3] has the shape of sequences[3].
/// let (highest, at) = scan_list(MaxWithIndex, sequences).over(0).run(client)?;
/// # Ok(()) }
/// ```
pub fn scan_list<'a, O: Operator<Inputs = One>, T: Input + 'a>(
    operator: O,
    tensors: impl IntoIterator<Item = &'a T>,
) -> ListScan<'a, O, T> {
    ListScan {
        list: reduce_list(operator, tensors),
        axes: Axes::All,
        exclusive: false,
        reverse: false,
        plan: None,
    }
}

/// A scan of a list of tensors that is being described; see [`scan_list`]. It does nothing until it
/// is run. If the tensors are [`TensorDescription`](crate::TensorDescription)s, it cannot run, but
/// answers everything else.
#[must_use = "a scan does nothing until it is run"]
pub struct ListScan<'a, O, T> {
    pub(crate) list: ListReduction<'a, O, T>,
    axes: Axes,
    exclusive: bool,
    reverse: bool,
    plan: Option<ListScanPlan>,
}

impl<O: Operator, T: Input> fmt::Debug for ListScan<'_, O, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListScan")
            .field("list", &self.list)
            .field("axes", &self.axes)
            .field("exclusive", &self.exclusive)
            .field("reverse", &self.reverse)
            .field("plan", &self.plan)
            .finish()
    }
}

impl<'a, O: Operator<Inputs = One>, T: Input> ListScan<'a, O, T> {
    /// Applies `map` to each element before the operator takes it.
    pub fn mapped<M: Map<Inputs = One>>(self, map: M) -> ListScan<'a, Mapped<M, O>, T> {
        let Self { list, axes, exclusive, reverse, plan } = self;
        ListScan { list: list.mapped(map), axes, exclusive, reverse, plan }
    }

    /// Sets the axes of each tensor that are scanned; see [`Scan::over`](crate::scan::Scan::over).
    /// Every tensor must have them.
    pub fn over(self, axes: impl Into<Axes>) -> Self {
        Self { axes: axes.into(), ..self }
    }

    /// Leaves the element at each position out of the result there; see
    /// [`Scan::exclusive`](crate::scan::Scan::exclusive).
    pub fn exclusive(self) -> Self {
        Self { exclusive: true, ..self }
    }

    /// Scans from the last position to the first; see
    /// [`Scan::reverse`](crate::scan::Scan::reverse).
    pub fn reverse(self) -> Self {
        Self { reverse: true, ..self }
    }

    /// Asks for this type of the result of every tensor, or of its first result if there are
    /// several.
    pub fn output_type(self, output: ElementType) -> Self {
        Self { list: self.list.output_type(output), ..self }
    }

    /// Asks for this type of result number `nth` of every tensor, counted from 0.
    pub fn nth_output_type(self, nth: usize, output: ElementType) -> Self {
        Self { list: self.list.nth_output_type(nth, output), ..self }
    }

    /// Accumulates in this type; see [`Reduction::accumulate_in`](crate::Reduction::accumulate_in).
    pub fn accumulate_in(self, accumulator: ElementType) -> Self {
        Self { list: self.list.accumulate_in(accumulator), ..self }
    }

    /// Promises that the bits of the results depend on no more than this; see
    /// [`Reduction::numerics`](crate::Reduction::numerics). Those of a tensor never depend on the
    /// others.
    pub fn numerics(self, numerics: Numerics) -> Self {
        Self { list: self.list.numerics(numerics), ..self }
    }

    /// Runs this plan instead of choosing one. It is checked against the list and the device.
    pub fn with_plan(self, plan: ListScanPlan) -> Self {
        Self { plan: Some(plan), ..self }
    }

    /// Takes the plan from `plans`, if it has one for the list; see
    /// [`Reduction::with_plans`](crate::Reduction::with_plans).
    #[cfg(feature = "serde")]
    pub fn with_plans(self, plans: &'a PlanStore) -> Self {
        Self { list: self.list.with_plans(plans), ..self }
    }

    /// Plans for `device`; see [`Reduction::plan_for`](crate::Reduction::plan_for).
    pub fn plan_for(self, device: &'a Device) -> Self {
        Self { list: self.list.plan_for(device), ..self }
    }

    /// The types of the results of each tensor.
    ///
    /// # Errors
    ///
    /// Tensors, axes or types that cannot be scanned.
    pub fn output_types(&self) -> Result<Outputs<O, Vec<ElementType>>, ReduceError> {
        let scans = self.stated()?.scans;
        let result = |nth: usize| scans.iter().map(|scan| scan.signature.results[nth]).collect();
        Ok(O::Results::each(result))
    }

    /// The canonical problem, for planning without a device.
    ///
    /// # Errors
    ///
    /// Tensors, axes or types that cannot be scanned.
    pub fn problem(&self) -> Result<ListScanProblem, ReduceError> {
        Ok(self.stated()?.problem)
    }

    /// Chooses a plan without running it, even if [`with_plan`](Self::with_plan) has set one.
    ///
    /// # Errors
    ///
    /// Tensors, axes or types that cannot be scanned, and lists that the device cannot run.
    pub fn choose(&self, client: &Client) -> Result<Choice<ListScanPlan>, ReduceError> {
        self.call()?.choose(client, &self.list.buffer_bytes())
    }

    /// The plan that [`run`](Self::run) would run now, and where it comes from; see
    /// [`Reduction::plan`](crate::Reduction::plan).
    ///
    /// # Errors
    ///
    /// The errors of `choose`, and a plan of `with_plan` that may not run.
    pub fn plan(&self, client: &Client) -> Result<PlanInUse<ListScanPlan>, ReduceError> {
        self.call()?.plan(client, &self.list.buffer_bytes())
    }

    /// Whether [`run`](Self::run) would launch. It checks and plans the list, and caches both, but
    /// launches nothing. The memory of tensors is not checked if these are
    /// [`TensorDescription`](crate::TensorDescription)s.
    ///
    /// # Errors
    ///
    /// The error that `run` would return.
    pub fn check(&self, client: &Client) -> Result<(), ReduceError> {
        self.call()?.check(client, &self.list.buffer_bytes())
    }

    /// The list as data, as [`record_calls`](crate::plans::record_calls) would record it.
    ///
    /// # Errors
    ///
    /// A parameter out of range, or a tensor that cannot be scanned.
    #[cfg(feature = "serde")]
    pub fn record(&self) -> Result<RecordedCall, ReduceError> {
        let ListScanTask { request, inputs } = self.call()?.task;
        Ok(RecordedCall::ListScan(RecordedListScan::of(&request, &inputs)))
    }

    fn stated(&self) -> Result<StatedListScan, ReduceError> {
        self.call()?.stated()
    }

    pub(crate) fn call(&self) -> Result<Call<'_, ListScanTask<'_>>, ReduceError> {
        let Call { task, device, plans, parameters, apply_parameters } =
            self.list.call_with(self.list.specs()?, self.list.outputs)?;
        let ListTask { request: list, inputs } = task;
        let Self { ref axes, exclusive, reverse, ref plan, .. } = *self;
        let axes = axes.as_slice().map(<[usize]>::to_vec);
        let request = ListScanRequest { list, axes, exclusive, reverse, plan: plan.clone() };
        let task = ListScanTask { request, inputs };
        Ok(Call { task, device, plans, parameters, apply_parameters })
    }
}

impl<O: Operator<Inputs = One>> ListScan<'_, O, TensorHandle> {
    /// Launches the scans into new row-major tensors of the shapes of the list: a `Vec` in its
    /// order for each result of the operator. Does not wait. Each thread caches the prepared list,
    /// so repeating it plans nothing.
    ///
    /// The results of tensors that share a launch lie one behind the other in one buffer of the
    /// device, which exists as long as any of them does.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched.
    pub fn run(self, client: &Client) -> Result<Outputs<O, Vec<TensorHandle>>, ReduceError> {
        let of_tensors = self.call()?.run(client, &self.list.tensors)?;
        let result = |nth: usize| of_tensors.iter().map(|results| results[nth].clone()).collect();
        Ok(O::Results::each(result))
    }
}
