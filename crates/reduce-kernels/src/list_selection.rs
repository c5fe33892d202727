//! Selections from lists of tensors.

use core::fmt;

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{
    Device, ElementType, InputSpec, Over, Probabilities, ProblemError, Role, TopKPlan, TopKProblem,
    row_major_strides, span,
};

#[cfg(feature = "serde")]
use crate::recorded::{RecordedCall, RecordedTopK};
use crate::{
    error::{Reason, ReduceError},
    host::{
        call::Call,
        settings::PlanStore,
        top_k::{
            parts::{CallInParts, Each, Finish, InParts, Part, select_each},
            request::{NAME, Order, TopKRequest},
        },
    },
    input::Input,
    operator::{TypeRequest, rules},
    plan_in_use::PlanInUse,
    top_k::Selected,
};

/// Starts the selection of the `k` largest elements of each of `tensors`, or of all of them
/// together. The tensors may have any shapes and strides, and each is one slice.
///
/// The order is that of [`largest`](crate::top_k::largest): NaN comes before all numbers, and of
/// equal elements the one with the lower position comes first.
///
/// It takes a launch for each tensor, or a few for a long one, and one more for all together.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::list::largest_of_list;
///
/// # fn example(client: &Client, scores: &[TensorHandle]) -> Result<(), ReduceError> {
/// // The 1000 largest of all, for a threshold that is the same for every tensor.
/// let best = largest_of_list(1000, scores).run_all(client)?;
/// // best.positions count through the tensors: number p is in the last tensor that begins at or
/// // before it.
/// let starts = largest_of_list(1000, scores).starts()?;
/// let tensor_of = |p: usize| starts.partition_point(|&start| start <= p) - 1;
/// # Ok(()) }
/// ```
pub fn largest_of_list<'a, T: Input + 'a>(
    k: usize,
    tensors: impl IntoIterator<Item = &'a T>,
) -> ListTopK<'a, T> {
    ListTopK::new(k, tensors, true)
}

/// Starts the selection of the `k` smallest elements of each of `tensors`, or of all of them
/// together. Otherwise it is as [`largest_of_list`].
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::list::smallest_of_list;
///
/// # fn example(client: &Client, distances: &[TensorHandle]) -> Result<(), ReduceError> {
/// let nearest_of_each = smallest_of_list(3, distances).nan_last().run_each(client)?;
/// # Ok(()) }
/// ```
pub fn smallest_of_list<'a, T: Input + 'a>(
    k: usize,
    tensors: impl IntoIterator<Item = &'a T>,
) -> ListTopK<'a, T> {
    ListTopK::new(k, tensors, false)
}

/// A selection from a list of tensors that is being described; see [`largest_of_list`]. It does
/// nothing until it is run. [`each`](Self::each) and [`all`](Self::all) answer what a run would do,
/// also for [`TensorDescription`](crate::TensorDescription)s, which cannot run.
#[derive(Clone)]
#[must_use = "a selection does nothing until it is run"]
pub struct ListTopK<'a, T> {
    k: usize,
    tensors: Vec<&'a T>,
    order: Order,
    or_fewer: bool,
    positions: Option<ElementType>,
    probabilities: Option<Over>,
    device: Option<&'a Device>,
    plans: Option<&'a PlanStore>,
}

impl<T: fmt::Debug> fmt::Debug for ListTopK<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListTopK")
            .field("k", &self.k)
            .field("tensors", &self.tensors)
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}

impl<'a, T: Input> ListTopK<'a, T> {
    fn new(k: usize, tensors: impl IntoIterator<Item = &'a T>, largest: bool) -> Self {
        Self {
            k,
            tensors: tensors.into_iter().collect(),
            order: Order::new(largest),
            or_fewer: false,
            positions: None,
            probabilities: None,
            device: None,
            plans: None,
        }
    }

    /// Selects tensors of fewer than `k` elements as a whole, or all tensors together if these have
    /// fewer. Without it, they are an error.
    pub fn or_fewer(mut self) -> Self {
        self.or_fewer = true;
        self
    }

    /// Puts NaN after all numbers; see [`TopK::nan_last`](crate::top_k::TopK::nan_last).
    pub fn nan_last(mut self) -> Self {
        self.order.nan_last = true;
        self
    }

    /// Puts the selected elements in the order of their positions, rather than of their values.
    pub fn in_order_of_positions(mut self) -> Self {
        self.order.by_position = true;
        self
    }

    /// Writes probabilities in place of values, of the type of the elements; see
    /// [`TopK::probabilities`](crate::top_k::TopK::probabilities). All tensors together have probabilities over the selected elements
    /// alone.
    pub fn probabilities(mut self, over: Over) -> Self {
        self.probabilities = Some(over);
        self
    }

    /// Asks for this type of the positions; see
    /// [`TopK::position_type`](crate::top_k::TopK::position_type).
    pub fn position_type(mut self, positions: ElementType) -> Self {
        self.positions = Some(positions);
        self
    }

    /// Takes the plan of each launch from `plans`, where it has one for the problem; see
    /// [`Reduction::with_plans`](crate::Reduction::with_plans). [`ListSelections::problems`] gives
    /// the problems.
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

    /// For each tensor, the number of elements of all tensors before it: where its positions begin
    /// in those of [`run_all`](Self::run_all).
    ///
    /// # Errors
    ///
    /// A type that no operator takes, and more elements than `usize` counts.
    pub fn starts(&self) -> Result<Vec<usize>, ReduceError> {
        Ok(lens_and_starts(&self.specs()?)?.into_iter().map(|(_, start)| start).collect())
    }

    /// The selections that [`run_each`](Self::run_each) runs: to check them, to see their plans, or
    /// to compile their kernels.
    ///
    /// ```
    /// use reduce_kernels::{ElementType, TensorDescription, list::largest_of_list};
    ///
    /// let tensors = [100, 5000].map(|len| TensorDescription::row_major(ElementType::F32, [len]));
    /// let problems = largest_of_list(7, &tensors).each().problems()?;
    /// assert_eq!(problems.len(), 2);
    /// # Ok::<(), reduce_kernels::ReduceError>(())
    /// ```
    pub fn each(self) -> ListSelections<'a, T> {
        ListSelections { list: self, together: false }
    }

    /// The selections that [`run_all`](Self::run_all) runs, as [`each`](Self::each) gives those of
    /// [`run_each`](Self::run_each): one from each tensor, and last the one from what they give.
    ///
    /// ```no_run
    /// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
    /// use reduce_kernels::{list::largest_of_list, warm_up::would_compile};
    ///
    /// # fn example(client: &Client, scores: &[TensorHandle]) -> Result<(), ReduceError> {
    /// let best = largest_of_list(1000, scores).all();
    /// best.check(client)?;
    /// for in_use in best.plans(client)? {
    ///     println!("{}", in_use.plan);
    /// }
    /// println!("compiles: {}", would_compile(client, &best)?);
    /// # Ok(()) }
    /// ```
    pub fn all(self) -> ListSelections<'a, T> {
        ListSelections { list: self, together: true }
    }

    /// Where the tensors lie.
    fn specs(&self) -> Result<Vec<InputSpec<'a>>, ReduceError> {
        let spec = |(nth, tensor): (usize, &&'a T)| {
            let spec = tensor.spec().map_err(|error| listed(nth, error))?;
            // A slice needs an axis.
            Ok(match spec.shape.is_empty() {
                true => InputSpec { shape: &[1], strides: &[1], ..spec },
                false => spec,
            })
        };
        self.tensors.iter().enumerate().map(spec).collect()
    }

    /// The selection from one tensor.
    fn request<'s>(&self, input: InputSpec<'s>) -> TopKRequest<'s> {
        let Self { k, order, or_fewer, positions, probabilities, .. } = *self;
        TopKRequest {
            keep_dims: false,
            or_fewer,
            order,
            positions,
            probabilities,
            ..TopKRequest::new(input, None, k)
        }
    }

    fn call<'s>(&self, task: TopKRequest<'s>) -> Call<'s, TopKRequest<'s>>
    where
        'a: 's,
    {
        let Self { device, plans, .. } = *self;
        Call { task, device, plans, parameters: Vec::new(), apply_parameters: Vec::new() }
    }

    /// The call of each tensor.
    fn calls_of_each(&self) -> Result<Vec<Call<'a, TopKRequest<'a>>>, ReduceError> {
        let specs = self.specs()?.into_iter();
        Ok(specs.map(|spec| self.call(self.request(spec))).collect())
    }

    /// The call of all tensors together.
    fn call_of_all(&self) -> Result<CallInParts<'a>, ReduceError> {
        let specs = self.specs()?;
        let lens = lens_and_starts(&specs)?;
        let len = lens.last().map_or(0, |&(len, start)| start + len);
        let Some(&InputSpec { element, .. }) = specs.first() else {
            return Err(ProblemError::NoAxes { operator: NAME }.into());
        };
        let request = TypeRequest {
            outputs: [None, self.positions, None],
            reduction_len: len,
            ..TypeRequest::of(element)
        };
        let types = rules::value_and_index(&request)
            .ok_or_else(|| Reason::Types { operator: NAME.to_owned(), request })?;
        let positions = types.results[1];
        let in_parts = InParts {
            k: self.k,
            or_fewer: self.or_fewer,
            only_last: false,
            order: self.order,
            probabilities: self.probabilities.map(|over| Probabilities { over, element }),
            element,
            positions,
            shape: vec![1],
            axis: 0,
        };
        let parts = specs.into_iter().zip(lens).enumerate();
        let parts = parts.map(|(nth, (spec, (len, start)))| {
            if spec.element != element {
                let (first, other) = (element, spec.element);
                return Err(Reason::ListTypes { nth, first, other }.into());
            }
            let call = self.call(self.request(spec).of_part(positions));
            Ok(Part { call, first: start as u64, count: self.k.min(len) })
        });
        in_parts.call(parts.collect::<Result<_, ReduceError>>()?, len, Finish::Results)
    }

    /// Launches the selection from each of these tensors, which lie as those of the list do.
    fn launch_each(
        &self,
        client: &Client,
        tensors: &[&TensorHandle],
    ) -> Result<Vec<Selected>, ReduceError> {
        let calls = self.calls_of_each()?;
        let each = calls.iter().zip(tensors);
        let each = each.map(|(call, &input)| Each { client, call, input, table: None });
        let results = select_each(&each.collect::<Vec<_>>(), listed)?;
        let selected = |[values, positions]: [_; 2]| Selected { values, positions };
        Ok(results.into_iter().map(selected).collect())
    }

    /// Launches the selection from all of these tensors, which lie as those of the list do.
    fn launch_all(
        &self,
        client: &Client,
        tensors: &[&TensorHandle],
    ) -> Result<Selected, ReduceError> {
        let tensors: Vec<_> = tensors.iter().map(|&tensor| (tensor, None)).collect();
        let new = self.call_of_all()?.run(client, &tensors, listed)?;
        let [values, positions] = new.expect("the tensors are new");
        Ok(Selected { values, positions })
    }
}

impl ListTopK<'_, TensorHandle> {
    /// Selects from each tensor, whose elements are counted in row-major order. Gives a pair of new
    /// tensors of shape `[k]` for each. Does not wait.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched, which names the tensor that it is about.
    pub fn run_each(self, client: &Client) -> Result<Vec<Selected>, ReduceError> {
        self.launch_each(client, &self.tensors)
    }

    /// Selects from the elements of all tensors together, which must have one type, into new
    /// tensors of shape `[k]`. Does not wait.
    ///
    /// Positions count through all elements, those of each tensor in row-major order and the
    /// tensors in the order of the list, as if the tensors were flattened and concatenated.
    /// [`starts`](Self::starts) tells where each begins.
    ///
    /// Nothing is concatenated: each tensor gives its own first `k` elements, and the first of
    /// those are selected.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched: tensors of several types, no tensor, and
    /// fewer than `k` elements in all of them.
    pub fn run_all(self, client: &Client) -> Result<Selected, ReduceError> {
        self.launch_all(client, &self.tensors)
    }
}

/// The selections that a [`ListTopK`] consists of: those of [`ListTopK::each`] or of
/// [`ListTopK::all`]. [`warm_up`](crate::warm_up::warm_up) compiles their kernels.
#[derive(Clone, Debug)]
pub struct ListSelections<'a, T> {
    list: ListTopK<'a, T>,
    /// Whether what the tensors give is selected from once more.
    together: bool,
}

impl<'a, T: Input> ListSelections<'a, T> {
    /// The canonical problems, for planning without a device.
    ///
    /// # Errors
    ///
    /// Tensors or types from which nothing can be selected.
    pub fn problems(&self) -> Result<Vec<TopKProblem>, ReduceError> {
        self.of_each(|call, _| Ok(call.stated()?.problem))
    }

    /// The plan that each selection would run now, and where it comes from; see
    /// [`Reduction::plan`](crate::Reduction::plan).
    ///
    /// # Errors
    ///
    /// Those of [`problems`](Self::problems), and selections that the device cannot run.
    pub fn plans(&self, client: &Client) -> Result<Vec<PlanInUse<TopKPlan>>, ReduceError> {
        self.of_each(|call, bytes| call.plan(client, bytes))
    }

    /// Whether the run would launch. It checks and plans all selections, and caches them, but
    /// launches nothing. The memory of tensors is not checked if these are
    /// [`TensorDescription`](crate::TensorDescription)s.
    ///
    /// # Errors
    ///
    /// The error that the run would return.
    pub fn check(&self, client: &Client) -> Result<(), ReduceError> {
        self.of_each(|call, bytes| call.check(client, bytes)).map(drop)
    }

    /// The selections as data, as [`record_calls`](crate::plans::record_calls) would record them.
    ///
    /// # Errors
    ///
    /// Tensors or types from which nothing can be selected.
    #[cfg(feature = "serde")]
    pub fn record(&self) -> Result<Vec<RecordedCall>, ReduceError> {
        self.of_each(|call, _| Ok(RecordedCall::TopK(RecordedTopK::of(&call.task)?)))
    }

    /// The tensors of the list.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &'a T> {
        self.list.tensors.iter().copied()
    }

    /// Launches the selections from tensors that lie as those of the list do.
    pub(crate) fn launch(
        &self,
        client: &Client,
        tensors: &[&TensorHandle],
    ) -> Result<(), ReduceError> {
        match self.together {
            true => self.list.launch_all(client, tensors).map(drop),
            false => self.list.launch_each(client, tensors).map(drop),
        }
    }

    /// Whether a selection has a kernel that was not launched before.
    pub(crate) fn launches_new_kernels(&self, client: &Client) -> Result<bool, ReduceError> {
        let each = self.of_each(|call, _| call.has_new_kernels(client))?;
        Ok(each.contains(&true))
    }

    /// What `of_call` gives for the call of each tensor, with the bytes of its buffer, and for the
    /// one from what they give.
    fn of_each<X>(
        &self,
        of_call: impl Fn(&Call<'a, TopKRequest<'a>>, &[Option<u64>]) -> Result<X, ReduceError>,
    ) -> Result<Vec<X>, ReduceError> {
        let calls = match self.together {
            true => self.list.call_of_all()?.into_calls(),
            false => self.list.calls_of_each()?,
        };
        let each = calls.iter().enumerate().map(|(nth, call)| match self.list.tensors.get(nth) {
            Some(tensor) => {
                of_call(call, &[tensor.buffer_bytes()]).map_err(|error| listed(nth, error))
            }
            None => of_call(call, &[]),
        });
        each.collect()
    }
}

/// The number of elements of each tensor, and that of all before it.
fn lens_and_starts(specs: &[InputSpec<'_>]) -> Result<Vec<(usize, usize)>, ReduceError> {
    let mut start = 0usize;
    let each = specs.iter().enumerate().map(|(nth, InputSpec { shape, .. })| {
        let too_large = || {
            let (tensor, shape) = (Role::Input, shape.to_vec());
            listed(nth, ProblemError::TooLarge { tensor, shape, strides: Vec::new() }.into())
        };
        let len = span(shape, &row_major_strides(shape)).ok_or_else(too_large)?;
        let before = start;
        start = start.checked_add(len).ok_or_else(too_large)?;
        Ok((len, before))
    });
    each.collect()
}

/// The error of a tensor of a list.
fn listed(nth: usize, error: ReduceError) -> ReduceError {
    Reason::Listed { nth, error }.into()
}
