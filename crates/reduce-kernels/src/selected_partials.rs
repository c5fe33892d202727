//! Partial results of selections.

use core::fmt;

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{ElementType, Role, row_major_strides};

use crate::{
    element::storage_type,
    error::{PartialsError, Reason, ReduceError},
    host::{
        bound::Bound,
        cache::identity,
        top_k::{
            launch::Selecting,
            parts::{Candidates, Finish, InParts, Part},
            request::Order,
        },
    },
    input::sealed::Layout,
    operator::{TypeRequest, rules},
    top_k::{Selected, TopK},
};

/// What the partial result of a selection is, apart from its elements: everything that another
/// process needs to merge it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct SelectedPartialDescription {
    /// Number of the format: 1.
    pub format: u32,
    /// Elements that are selected of each slice in the end.
    pub k: usize,
    /// Whether the largest are selected, rather than the smallest.
    pub largest: bool,
    /// Whether NaN comes after all numbers.
    pub nan_last: bool,
    /// Whether the selected elements are in the order of their positions.
    pub by_position: bool,
    /// Whether only the last of them is written in the end.
    pub only_last: bool,
    /// Whether slices of fewer elements are selected as a whole.
    pub or_fewer: bool,
    /// Type of the elements.
    pub element: ElementType,
    /// Type of the positions.
    pub positions: ElementType,
    /// Shape of the results, with 1 in place of the number of selected elements.
    pub shape: Vec<usize>,
    /// The axis of the selected elements in that shape.
    pub axis: usize,
    /// Position of the first element of a slice that went in.
    pub first: usize,
    /// Number of elements of a slice that went in.
    pub len: usize,
}

/// The first elements of a part of each slice: a selection that can go on.
///
/// Slices that do not fit a device, or that arrive in chunks, are selected from part by part.
/// [`TopK::partial`] gives the first `k` elements of a part, or all of a shorter one, with their
/// positions in the whole. [`merge_selected`] selects from what several parts gave, in the order of
/// the parts. A part takes memory for `k` elements of each slice.
///
/// The elements may cross devices or machines in between, by any transport: [`values`](Self::values)
/// and [`positions`](Self::positions) are ordinary tensors, [`description`](Self::description) can
/// be saved with the feature `serde`, and [`from_tensors`](Self::from_tensors) joins them again.
///
/// ```no_run
/// use reduce_kernels::{
///     ReduceError,
///     cubecl::{prelude::*, std::tensor::TensorHandle},
///     partials::{SelectedPartial, merge_selected},
///     top_k::{Selected, largest},
/// };
///
/// /// The 100 largest elements of each row, whose columns arrive in chunks.
/// fn best(
///     client: &Client,
///     chunks: impl Iterator<Item = TensorHandle>, // of shape [rows, any]
/// ) -> Result<Selected, ReduceError> {
///     let mut so_far: Vec<SelectedPartial> = Vec::new();
///     let mut first = 0;
///     for chunk in chunks {
///         so_far.push(largest(100, &chunk).over(1).partial(client, first)?);
///         first += chunk.shape()[1];
///         if so_far.len() == 8 {
///             so_far = vec![merge_selected(&so_far).partial(client)?];
///         }
///     }
///     merge_selected(&so_far).run(client)
/// }
/// ```
#[derive(Clone)]
pub struct SelectedPartial {
    description: SelectedPartialDescription,
    /// Of shape `[count, slices]`.
    values: TensorHandle,
    positions: TensorHandle,
    /// The device of the elements, if this crate made them.
    device: Option<usize>,
}

/// The format of [`SelectedPartialDescription`] and of its tensors.
const FORMAT: u32 = 1;

impl fmt::Debug for SelectedPartial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SelectedPartial")
            .field("description", &self.description)
            .field("values", &self.values.shape())
            .finish_non_exhaustive()
    }
}

impl TopK<'_, TensorHandle> {
    /// Selects from a part of the slices, for [`merge_selected`] to select from what this and other
    /// parts give. Does not wait for the device.
    ///
    /// The parts of a slice follow each other in the order of positions: the whole is cut along the
    /// first of the axes of a slice that has several indices. `first` is the position of the part's
    /// first element, so the number of elements of a slice in all parts before. A part may have
    /// fewer than `k` elements, or none.
    ///
    /// Positions are u32 unless another [`position_type`](Self::position_type) was asked for, which
    /// more elements than u32 counts need. Those [`with_positions`](Self::with_positions) are
    /// written as they are.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched, such as for a type that does not hold the
    /// positions of the part.
    pub fn partial(self, client: &Client, first: usize) -> Result<SelectedPartial, ReduceError> {
        if let Some(over) = self.probabilities_asked() {
            return Err(Reason::ProbabilitiesInParts { over }.into());
        }
        let table = self.table.map(Layout::spec).transpose()?;
        let positions = table.map(|table| table.element).or(self.position_type_asked());
        let positions = positions.unwrap_or(ElementType::U32);
        let call = self.call_of_part(self.input.spec()?, table, positions)?;
        let stated = call.stated()?;
        let len = stated.problem.slices().reduction_len();
        let end = first.saturating_add(len);
        let request = TypeRequest {
            outputs: [None, Some(positions), None],
            reduction_len: end,
            ..TypeRequest::of(stated.signature.results[0])
        };
        if table.is_none() && rules::value_and_index(&request).is_none() {
            return Err(PartialsError::PositionType { positions, end }.into());
        }
        let in_parts = self.in_parts(&stated);
        let (input, table) = (self.input, self.table);
        let selecting = Selecting { first: first as u64, ..Selecting::from(input, table) };
        let tensors = call.run(client, selecting)?;
        let description = description(&in_parts, first, len);
        Ok(SelectedPartial::new(client, description, tensors))
    }
}

fn description(of: &InParts, first: usize, len: usize) -> SelectedPartialDescription {
    let InParts { k, or_fewer, only_last, order, element, positions, ref shape, axis, .. } = *of;
    let Order { largest, nan_last, by_position, .. } = order;
    let mut shape = shape.clone();
    shape[axis] = 1;
    SelectedPartialDescription {
        format: FORMAT,
        k,
        largest,
        nan_last,
        by_position,
        only_last,
        or_fewer,
        element,
        positions,
        shape,
        axis,
        first,
        len,
    }
}

impl SelectedPartialDescription {
    fn in_parts(&self) -> InParts {
        let Self { k, largest, nan_last, by_position, only_last, or_fewer, .. } = *self;
        let Self { element, positions, ref shape, axis, .. } = *self;
        let order = Order { nan_last, by_position, ..Order::new(largest) };
        let shape = shape.clone();
        let probabilities = None;
        InParts { k, or_fewer, only_last, order, probabilities, element, positions, shape, axis }
    }

    /// Elements of each slice that a part of these many gives.
    fn count(&self) -> usize {
        self.k.min(self.len)
    }
}

impl SelectedPartial {
    fn new(
        client: &Client,
        description: SelectedPartialDescription,
        tensors: [TensorHandle; 2],
    ) -> Self {
        let shape = [description.count(), description.in_parts().slices()];
        let [values, positions] =
            tensors.map(|tensor| TensorHandle::new_contiguous(shape, tensor.handle, tensor.dtype));
        Self { description, values, positions, device: Some(identity(client)) }
    }

    /// A partial result that came from elsewhere: `values` and `positions` as
    /// [`values`](Self::values) and [`positions`](Self::positions) gave them. `description` may come
    /// from anywhere.
    ///
    /// # Errors
    ///
    /// The description is impossible, or the tensors do not have the shape, types and strides that
    /// it asks for.
    pub fn from_tensors(
        description: SelectedPartialDescription,
        values: TensorHandle,
        positions: TensorHandle,
    ) -> Result<Self, ReduceError> {
        let impossible = |what: String| Err(PartialsError::Description { what }.into());
        let SelectedPartialDescription { format, element, axis, ref shape, first, len, .. } =
            description;
        if format != FORMAT {
            return impossible(format!("format {format}"));
        }
        if shape.get(axis) != Some(&1) {
            return impossible(format!("the shape {shape:?} with selected elements along {axis}"));
        }
        let slices = shape.iter().try_fold(1, |all: usize, &extent| all.checked_mul(extent));
        let Some(slices) = slices else { return impossible(format!("the shape {shape:?}")) };
        if first.checked_add(len).is_none() {
            return impossible(format!("{len} elements from position {first} on"));
        }
        let request = TypeRequest {
            outputs: [None, Some(description.positions), None],
            ..TypeRequest::of(element)
        };
        if rules::value_and_index(&request).is_none() {
            return impossible(format!("positions of {}", description.positions));
        }
        let expected = [description.count(), slices];
        check_tensor("values", &values, element, expected)?;
        check_tensor("positions", &positions, description.positions, expected)?;
        Ok(Self { description, values, positions, device: None })
    }

    /// What the partial result is.
    #[must_use]
    pub fn description(&self) -> &SelectedPartialDescription {
        &self.description
    }

    /// The values: a row-major tensor of shape `[count, slices]`, where `count` is `k` or the
    /// number of elements that went in, if that is lower. Slices are in row-major order.
    #[must_use]
    pub fn values(&self) -> &TensorHandle {
        &self.values
    }

    /// The positions of the values, as a tensor of the same shape.
    #[must_use]
    pub fn positions(&self) -> &TensorHandle {
        &self.positions
    }
}

/// Checks that a tensor from elsewhere is what a description asks for.
fn check_tensor(
    name: &'static str,
    tensor: &TensorHandle,
    element: ElementType,
    expected: [usize; 2],
) -> Result<(), ReduceError> {
    let strides = row_major_strides(&expected);
    // Strides along axes of one index mean nothing, and without elements none does.
    let is_row_major = expected.contains(&0)
        || (tensor.strides().len() == strides.len()
            && (0..strides.len())
                .all(|axis| expected[axis] == 1 || tensor.strides()[axis] == strides[axis]));
    if tensor.dtype != storage_type(element) || tensor.shape()[..] != expected || !is_row_major {
        let found =
            format!("{} {:?} with strides {:?}", tensor.dtype, tensor.shape(), tensor.strides());
        return Err(PartialsError::Selected { tensor: name, element, expected, found }.into());
    }
    Ok(())
}

/// Starts the merge of the partial results of a selection, in this order, which is that of their
/// positions. All must lie on the device of the client that runs it.
///
/// Results are those of one selection from the whole, whatever the parts are. [`SelectedPartial`]
/// says where they come from.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::prelude::*};
/// use reduce_kernels::partials::{SelectedPartial, merge_selected};
///
/// # fn example(client: &Client, chunks: &[SelectedPartial]) -> Result<(), ReduceError> {
/// let best = merge_selected(chunks).run(client)?;
/// # Ok(()) }
/// ```
pub fn merge_selected(partials: &[SelectedPartial]) -> SelectedMerge<'_> {
    SelectedMerge { partials }
}

/// A merge of partial results of a selection; see [`merge_selected`].
#[derive(Debug)]
#[must_use = "a merge does nothing until it is run"]
pub struct SelectedMerge<'a> {
    partials: &'a [SelectedPartial],
}

impl SelectedMerge<'_> {
    /// Selects the first elements of the whole, into new row-major tensors. Does not wait for the
    /// device.
    ///
    /// # Errors
    ///
    /// Partial results that do not belong together or lie on another device, parts that do not
    /// begin at position 0 or do not follow each other ([`PartialsError`]), and slices that have
    /// fewer than `k` elements in all parts together, unless `or_fewer` was asked for. Nothing is
    /// launched then.
    pub fn run(self, client: &Client) -> Result<Selected, ReduceError> {
        let whole = self.whole()?;
        let new = self.merge(client, &whole, Finish::Results)?;
        let [values, positions] = new.expect("the tensors are new");
        Ok(Selected { values, positions })
    }

    /// Selects the first elements of the whole into tensors of the results' shape, which have the
    /// same strides.
    ///
    /// # Errors
    ///
    /// Those of [`run`](Self::run), and outputs that do not fit. Nothing has been written then.
    pub fn run_into(
        self,
        client: &Client,
        outputs: Selected<TensorBinding>,
    ) -> Result<(), ReduceError> {
        let whole = self.whole()?;
        let Selected { values, positions } = outputs;
        self.merge(client, &whole, Finish::Into(Box::new([values, positions])))?;
        Ok(())
    }

    /// Merges the partial results into one, which can be merged with those of later parts.
    ///
    /// # Errors
    ///
    /// Partial results that do not belong together, or do not follow each other.
    pub fn partial(self, client: &Client) -> Result<SelectedPartial, ReduceError> {
        let merged = self.merged()?;
        let new = self.merge(client, &merged, Finish::Candidates)?;
        Ok(SelectedPartial::new(client, merged, new.expect("the tensors are new")))
    }

    fn merge(
        &self,
        client: &Client,
        merged: &SelectedPartialDescription,
        finish: Finish,
    ) -> Result<Option<[TensorHandle; 2]>, ReduceError> {
        let in_parts = merged.in_parts();
        let slices = in_parts.slices();
        for (nth, SelectedPartial { description, values, positions, device }) in
            self.partials.iter().enumerate()
        {
            if device.is_some_and(|device| device != identity(client)) {
                return Err(PartialsError::OtherDevice { nth }.into());
            }
            let len = slices.saturating_mul(description.count());
            for (tensor, element, role) in [
                (values, description.element, Role::Input),
                (positions, description.positions, Role::Positions),
            ] {
                Bound::check(client, role, tensor.handle.clone().binding(), len, element)?;
            }
        }
        // What one part gave are the candidates. Those of several are laid side by side.
        if let [SelectedPartial { description, values, positions, .. }] = self.partials {
            let candidates = Candidates {
                values: values.handle.clone(),
                positions: positions.handle.clone(),
                count: description.count(),
            };
            return in_parts.select(client, &candidates, merged.len, finish);
        }
        let column = |tensor: &TensorHandle| {
            let len = tensor.shape().iter().product();
            TensorHandle::new(tensor.handle.clone(), [len, 1], [1, 1], tensor.dtype)
        };
        let columns: Vec<[TensorHandle; 2]> = self
            .partials
            .iter()
            .map(|partial| [column(&partial.values), column(&partial.positions)])
            .collect();
        let parts = columns.iter().zip(self.partials).map(|([values, positions], partial)| {
            Part::copied(values, positions, partial.description.count())
        });
        let parts = parts.collect::<Result<_, _>>()?;
        let tensors = columns.iter().map(|[values, positions]| (values, Some(positions)));
        let call = in_parts.call(parts, merged.len, finish)?;
        call.run(client, &tensors.collect::<Vec<_>>(), |_, error| error)
    }

    /// The description of all together, which are everything that is to be selected from.
    fn whole(&self) -> Result<SelectedPartialDescription, ReduceError> {
        let merged = self.merged()?;
        match merged.first {
            0 => Ok(merged),
            first => Err(PartialsError::Positions { nth: 0, first, expected: 0 }.into()),
        }
    }

    /// The description of all together. Checks that they belong together.
    fn merged(&self) -> Result<SelectedPartialDescription, ReduceError> {
        let Some((first, others)) = self.partials.split_first() else {
            return Err(PartialsError::None.into());
        };
        let mut merged = first.description.clone();
        for (nth, SelectedPartial { description: other, .. }) in (1..).zip(others) {
            let own = &first.description;
            let selection = |of: &SelectedPartialDescription| {
                let SelectedPartialDescription { k, largest, nan_last, by_position, .. } = *of;
                (k, largest, nan_last, by_position, of.only_last, of.or_fewer)
            };
            let types = |of: &SelectedPartialDescription| (of.element, of.positions);
            let shape = |of: &SelectedPartialDescription| (of.shape.clone(), of.axis);
            differ(nth, "selection", selection(own), selection(other))?;
            differ(nth, "types", types(own), types(other))?;
            differ(nth, "shape", shape(own), shape(other))?;
            let expected = merged.first.saturating_add(merged.len);
            if other.first != expected {
                return Err(PartialsError::Positions { nth, first: other.first, expected }.into());
            }
            merged.len += other.len;
        }
        Ok(merged)
    }
}

/// Checks that something of two partial results is the same.
fn differ<T: PartialEq + fmt::Debug>(
    nth: usize,
    what: &'static str,
    first: T,
    other: T,
) -> Result<(), PartialsError> {
    if first == other {
        return Ok(());
    }
    let (first, other) = (format!("{first:?}"), format!("{other:?}"));
    Err(PartialsError::Differ { nth, what, first, other })
}
