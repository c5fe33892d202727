//! Selections from lists of tensors.

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{ElementType, Over, Probabilities, ProblemError, Role, span};

use crate::{
    error::{Reason, ReduceError},
    host::top_k::{
        parts::{Each, Finish, InParts, Part, select_each},
        request::{NAME, Order},
    },
    input::sealed::Layout,
    operator::{TypeRequest, rules},
    top_k::{Selected, TopK, largest, smallest},
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
pub fn largest_of_list<'a>(
    k: usize,
    tensors: impl IntoIterator<Item = &'a TensorHandle>,
) -> ListTopK {
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
pub fn smallest_of_list<'a>(
    k: usize,
    tensors: impl IntoIterator<Item = &'a TensorHandle>,
) -> ListTopK {
    ListTopK::new(k, tensors, false)
}

/// A selection from a list of tensors that is being described; see [`largest_of_list`]. It does
/// nothing until it is run.
#[derive(Clone, Debug)]
#[must_use = "a selection does nothing until it is run"]
pub struct ListTopK {
    k: usize,
    tensors: Vec<TensorHandle>,
    order: Order,
    or_fewer: bool,
    positions: Option<ElementType>,
    probabilities: Option<Over>,
}

impl ListTopK {
    fn new<'a>(
        k: usize,
        tensors: impl IntoIterator<Item = &'a TensorHandle>,
        largest: bool,
    ) -> Self {
        let tensors = tensors.into_iter().map(|tensor| match tensor.shape().is_empty() {
            // A slice needs an axis.
            true => TensorHandle::new(tensor.handle.clone(), [1], [1], tensor.dtype),
            false => tensor.clone(),
        });
        let (order, tensors) = (Order::new(largest), tensors.collect());
        Self { k, tensors, order, or_fewer: false, positions: None, probabilities: None }
    }

    /// Selects tensors of fewer than `k` elements as a whole, or all tensors together if these have
    /// fewer. Without it, they are an error.
    pub fn or_fewer(mut self) -> Self {
        self.or_fewer = true;
        self
    }

    /// Puts NaN after all numbers; see [`TopK::nan_last`].
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
    /// [`TopK::probabilities`]. All tensors together have probabilities over the selected elements
    /// alone.
    pub fn probabilities(mut self, over: Over) -> Self {
        self.probabilities = Some(over);
        self
    }

    /// Asks for this type of the positions; see [`TopK::position_type`].
    pub fn position_type(mut self, positions: ElementType) -> Self {
        self.positions = Some(positions);
        self
    }

    /// For each tensor, the number of elements of all tensors before it: where its positions begin
    /// in those of [`run_all`](Self::run_all).
    ///
    /// # Errors
    ///
    /// More elements than `usize` counts.
    pub fn starts(&self) -> Result<Vec<usize>, ReduceError> {
        Ok(self.lens_and_starts()?.into_iter().map(|(_, start)| start).collect())
    }

    /// Selects from each tensor, whose elements are counted in row-major order. Gives a pair of new
    /// tensors of shape `[k]` for each. Does not wait.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched, which names the tensor that it is about.
    pub fn run_each(self, client: &Client) -> Result<Vec<Selected>, ReduceError> {
        let selections = self.selections();
        let calls = selections.iter().enumerate().map(|(nth, selection)| {
            let call = selection.call(None);
            call.map_err(|error| listed(nth, error))
        });
        let calls = calls.collect::<Result<Vec<_>, _>>()?;
        let each = calls.iter().zip(&self.tensors);
        let each = each.map(|(call, input)| Each { client, call, input, table: None });
        let results = select_each(&each.collect::<Vec<_>>(), listed)?;
        let selected = |[values, positions]: [_; 2]| Selected { values, positions };
        Ok(results.into_iter().map(selected).collect())
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
        let lens = self.lens_and_starts()?;
        let len = lens.last().map_or(0, |&(len, start)| start + len);
        let Some(first) = self.tensors.first() else {
            return Err(ProblemError::NoAxes { operator: NAME }.into());
        };
        let element = first.spec().map_err(|error| listed(0, error))?.element;
        let request = TypeRequest {
            outputs: [None, self.positions, None],
            reduction_len: len,
            ..TypeRequest::of(element)
        };
        let types = rules::value_and_index(&request)
            .ok_or_else(|| Reason::Types { operator: NAME.to_owned(), request })?;
        let in_parts = InParts {
            k: self.k,
            or_fewer: self.or_fewer,
            only_last: false,
            order: self.order,
            probabilities: self.probabilities.map(|over| Probabilities { over, element }),
            element,
            positions: types.results[1],
            shape: vec![1],
            axis: 0,
        };
        let selections = self.selections();
        let parts = selections.iter().zip(&self.tensors).zip(&lens).enumerate();
        let parts = parts.map(|(nth, ((selection, input), &(len, start)))| {
            let spec = input.spec().map_err(|error| listed(nth, error))?;
            if spec.element != element {
                let (first, other) = (element, spec.element);
                return Err(Reason::ListTypes { nth, first, other }.into());
            }
            let call = selection.call_of_part(spec, None, in_parts.positions);
            let call = call.map_err(|error| listed(nth, error))?;
            Ok(Part { call, input, table: None, first: start as u64, count: self.k.min(len) })
        });
        let parts = parts.collect::<Result<_, ReduceError>>()?;
        let new = in_parts.run(client, parts, len, Finish::Results, listed)?;
        let [values, positions] = new.expect("the tensors are new");
        Ok(Selected { values, positions })
    }

    /// The number of elements of each tensor, and that of all before it.
    fn lens_and_starts(&self) -> Result<Vec<(usize, usize)>, ReduceError> {
        let mut start = 0usize;
        let each = self.tensors.iter().enumerate().map(|(nth, tensor)| {
            let shape = tensor.shape();
            let too_large = || {
                let (tensor, shape) = (Role::Input, shape.to_vec());
                listed(nth, ProblemError::TooLarge { tensor, shape, strides: Vec::new() }.into())
            };
            let dense = reduce_planner::row_major_strides(shape);
            let len = span(shape, &dense).ok_or_else(too_large)?;
            let before = start;
            start = start.checked_add(len).ok_or_else(too_large)?;
            Ok((len, before))
        });
        each.collect()
    }

    /// The selection from each tensor.
    fn selections(&self) -> Vec<TopK<'_, TensorHandle>> {
        let Self { k, order, or_fewer, positions, probabilities, .. } = *self;
        let each = self.tensors.iter().map(|tensor| {
            let start = if order.largest { largest } else { smallest };
            let mut selection = start(k, tensor).keep_dims(false);
            if order.nan_last {
                selection = selection.nan_last();
            }
            if order.by_position {
                selection = selection.in_order_of_positions();
            }
            if or_fewer {
                selection = selection.or_fewer();
            }
            if let Some(over) = probabilities {
                selection = selection.probabilities(over);
            }
            match positions {
                Some(positions) => selection.position_type(positions),
                None => selection,
            }
        });
        each.collect()
    }
}

/// The error of a tensor of a list.
fn listed(nth: usize, error: ReduceError) -> ReduceError {
    Reason::Listed { nth, error }.into()
}
