//! Partial results: accumulators as tensors, which can cross devices and be merged.
//!
//! A reduction of a tensor that does not fit one device, or that arrives in parts, stops before its
//! end on each part. The partial results are small, cross devices or machines by any transport, and
//! are merged and finished where they meet. Those of selections are their first elements:
//! [`SelectedPartial`].
//!
//! ```no_run
//! use reduce_kernels::{
//!     Mean, ReduceError,
//!     cubecl::{prelude::*, std::tensor::TensorHandle},
//!     partials::merge_partials,
//!     reduce,
//! };
//!
//! # fn example(client: &Client, parts: &[TensorHandle]) -> Result<(), ReduceError> {
//! let partials: Result<Vec<_>, ReduceError> =
//!     parts.iter().map(|part| reduce(Mean, part).over(0).partials(client)).collect();
//! let means = merge_partials(&partials?).run(client)?;
//! # Ok(()) }
//! ```

use core::fmt;

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{ElementType, ProblemError, Role, row_major_strides};

use crate::{
    element::storage_type,
    error::{Reason, ReduceError},
    host::{
        bound::Bound,
        cache::identity,
        reduce::{
            check_layouts,
            merge::{PartialWords, PreparedMerge},
            request::Wanted,
        },
        types::word_count,
    },
    input::buffer_bytes,
    operator::{Arity, Fields, Operator, OperatorRef, Signature, TypeRequest},
    reduction::{Outputs, Reduction},
};

#[doc(no_inline)]
pub use reduce_planner::ShardSpec;

pub use crate::{
    error::PartialsError,
    selected_partials::{
        SelectedMerge, SelectedPartial, SelectedPartialDescription, merge_selected,
    },
};

/// The indices along an axis whose elements went into a partial result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ShardRange {
    /// The axis along which the whole tensor is cut.
    pub axis: usize,
    /// The first index.
    pub start: usize,
    /// The index after the last.
    pub end: usize,
    /// Number of indices of the whole tensor along the axis.
    pub of: usize,
}

/// What partial results are, apart from their words: everything that another process needs to
/// merge them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct PartialsDescription {
    /// Number of the format of the words: 1.
    pub format: u32,
    /// Name of the operator: `sum`, or `sum of product` if it has a map.
    pub operator: String,
    /// The operator's parameters, as the bits of f64.
    pub parameters: Vec<u64>,
    /// What the types of the accumulator and of the results follow from.
    pub types: TypeRequest,
    /// Types of the accumulator's fields.
    pub fields: Vec<ElementType>,
    /// Shape of the result.
    pub shape: Vec<usize>,
    /// Number of elements that went into each output, in all slots together.
    pub count: usize,
    /// The shard that went into the partial results; `None` if the operator needs no positions and
    /// the caller named no shard.
    pub range: Option<ShardRange>,
    /// Number of partial results, each of which has an accumulator for each output.
    pub slots: usize,
}

/// Partial results of a reduction: an accumulator for each output, as words of 32 bits.
///
/// A reduction that [stops before its end](Reduction::partials) gives them, [`merge_partials`]
/// merges those of several tensors or of the shards of one, in the order of the list, and finishes
/// them. This works for every operator, because accumulators merge. The words may cross devices or
/// machines in between, by any transport: [`words`](Self::words) is an ordinary tensor,
/// [`description`](Self::description) can be saved with the feature `serde`, and
/// [`from_words`](Self::from_words) joins them again.
///
/// ```no_run
/// use reduce_kernels::{
///     ArgMax, ReduceError,
///     cubecl::{prelude::*, std::tensor::TensorHandle},
///     partials::{ShardSpec, merge_partials},
///     reduce,
/// };
///
/// # fn example(
/// #     client: &Client,
/// #     upper: &TensorHandle, // rows 0 to 600 of 1000
/// #     lower: &TensorHandle, // rows 600 to 1000
/// # ) -> Result<(), ReduceError> {
/// let shard = |start| ShardSpec { axis: 0, start, of: 1000 };
/// let upper = reduce(ArgMax, upper).over(0).partials_of_shard(client, shard(0))?;
/// let lower = reduce(ArgMax, lower).over(0).partials_of_shard(client, shard(600))?;
/// // Positions in all 1000 rows. Ties give the lowest, as in one tensor.
/// let positions = merge_partials(&[upper, lower]).run(client)?;
/// # Ok(()) }
/// ```
pub struct Partials<O> {
    operator: O,
    /// The operator's parameters.
    parameters: Vec<f64>,
    signature: Signature,
    description: PartialsDescription,
    words: TensorHandle,
    /// The device of the words, if this crate made them.
    device: Option<usize>,
}

/// Partial results without the type of their operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnyPartials<'a> {
    pub(crate) parameters: &'a [f64],
    pub(crate) signature: &'a Signature,
    pub(crate) description: &'a PartialsDescription,
    words: &'a TensorHandle,
    device: Option<usize>,
}

impl AnyPartials<'_> {
    /// The words, of the partial results that have this index in a list, for launches of a client.
    pub(crate) fn bound(&self, client: &Client, nth: usize) -> Result<Bound<'static>, ReduceError> {
        if self.device.is_some_and(|device| device != identity(client)) {
            return refuse(PartialsError::OtherDevice { nth });
        }
        let (binding, len) =
            (self.words.handle.clone().binding(), self.words.shape().iter().product());
        Bound::check(client, Role::Words, binding, len, ElementType::U32)
    }
}

/// The format of [`PartialsDescription`] and of its words.
const FORMAT: u32 = 1;

impl<O: Clone> Clone for Partials<O> {
    fn clone(&self) -> Self {
        Self {
            operator: self.operator.clone(),
            parameters: self.parameters.clone(),
            signature: self.signature,
            description: self.description.clone(),
            words: self.words.clone(),
            device: self.device,
        }
    }
}

impl<O> fmt::Debug for Partials<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partials")
            .field("description", &self.description)
            .field("parameters", &self.parameters)
            .field("words", &self.words.shape())
            .finish_non_exhaustive()
    }
}

/// The error for a failed merge.
pub(crate) fn refuse<T>(error: PartialsError) -> Result<T, ReduceError> {
    Err(Reason::Partials(error).into())
}

impl<O: Operator> Reduction<'_, O, TensorHandle> {
    /// Reduces the input to partial results, which [`merge_partials`] merges with those of other
    /// tensors and finishes. Does not wait for the device.
    ///
    /// The tensors may have different extents along the reduced axes. A shard of one tensor is
    /// reduced with [`partials_of_shard`](Self::partials_of_shard), which operators that give
    /// positions need.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched.
    pub fn partials(self, client: &Client) -> Result<Partials<O>, ReduceError> {
        self.partials_of(client, None)
    }

    /// Reduces the input, which is a shard of a larger tensor, to partial results. Positions are
    /// those of the larger tensor, and types suit its size. A shard may have no elements.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched: also for a shard whose axis is not reduced,
    /// or that reaches past the end of the larger tensor.
    pub fn partials_of_shard(
        self,
        client: &Client,
        shard: ShardSpec,
    ) -> Result<Partials<O>, ReduceError> {
        self.partials_of(client, Some(shard))
    }

    fn partials_of(
        self,
        client: &Client,
        shard: Option<ShardSpec>,
    ) -> Result<Partials<O>, ReduceError> {
        let mut call = self.call(None)?;
        call.task.wanted = Wanted::Partials;
        if let Some(shard) = shard {
            call.task.become_shard(shard);
        }
        let parameters = call.parameters.clone();
        let prepared = call.prepared(client)?;
        let resolved = &prepared.resolved;
        let mut words = call.run(client, self.input, self.second)?;
        let description = PartialsDescription {
            format: FORMAT,
            operator: O::DEFINITION.erased().name(),
            parameters: bits(&parameters),
            types: resolved.types,
            fields: resolved.signature.fields[..O::Fields::COUNT].to_vec(),
            shape: resolved.shape.clone(),
            count: resolved.problem.reduction_len(),
            range: shard.map(|ShardSpec { axis, start, of }| {
                let end = start + self.input.shape()[axis];
                ShardRange { axis, start, end, of }
            }),
            slots: 1,
        };
        Ok(Partials {
            operator: self.operator,
            parameters,
            signature: resolved.signature,
            description,
            words: words.remove(0),
            device: Some(identity(client)),
        })
    }
}

impl<O: Operator> Partials<O> {
    /// Partial results that came from elsewhere: `words` as [`words`](Self::words) gave them, or
    /// the words of several that follow each other.
    ///
    /// `description` is that of one of them, with their number as `slots`, with the `count` of all,
    /// and with the `range` from the first to the last. It may come from anywhere.
    ///
    /// # Errors
    ///
    /// The description is of another operator or impossible, a parameter of the operator is out of
    /// range, or the words do not have the shape, type and strides that the description asks for.
    pub fn from_words(
        operator: O,
        description: PartialsDescription,
        words: TensorHandle,
    ) -> Result<Self, ReduceError> {
        let erased = O::DEFINITION.erased();
        if description.operator != erased.name() {
            let described = description.operator;
            return refuse(PartialsError::Operator { described, operator: erased.name() });
        }
        let parameters = (O::PARAMETERS)(&operator)
            .map_err(|invalid| ReduceError::parameter(erased.name(), invalid))?;
        let signature = (erased.types)(&description.types)
            .ok_or_else(|| Reason::Types { operator: erased.name(), request: description.types })?;
        let impossible = |what: String| refuse(PartialsError::Description { what });
        let PartialsDescription { format, ref fields, ref shape, range, slots, count, .. } =
            description;
        if format != FORMAT {
            return impossible(format!("format {format}"));
        }
        if *fields != signature.fields[..O::Fields::COUNT] {
            return impossible(format!("fields of {fields:?}"));
        }
        if description.parameters != bits(&parameters) {
            let described: Vec<f64> =
                description.parameters.iter().map(|&number| f64::from_bits(number)).collect();
            return impossible(format!("parameters {described:?} beside {parameters:?}"));
        }
        if slots == 0 {
            return impossible("no slot".into());
        }
        match range {
            Some(range) => {
                let whole = description.types.reduction_len;
                if range.elements(whole) != Some(count) {
                    return impossible(format!("{count} elements of {range:?} of {whole}"));
                }
            }
            None if O::POSITIONAL && slots > 1 => {
                return refuse(PartialsError::Positional { operator: description.operator });
            }
            None => {}
        }
        let outputs = shape.iter().try_fold(1, |all: usize, &extent| all.checked_mul(extent));
        let Some(outputs) = outputs else { return impossible(format!("the shape {shape:?}")) };
        let per_output = word_count(&signature.fields[..O::Fields::COUNT]);
        let expected = [slots, per_output, outputs];
        let strides = row_major_strides(&expected);
        // Strides along axes of one index mean nothing.
        let is_row_major = outputs == 0
            || (words.strides().len() == strides.len()
                && (0..strides.len())
                    .all(|axis| expected[axis] == 1 || words.strides()[axis] == strides[axis]));
        if words.dtype != storage_type(ElementType::U32)
            || words.shape()[..] != expected
            || !is_row_major
        {
            let found =
                format!("{} {:?} with strides {:?}", words.dtype, words.shape(), words.strides());
            return refuse(PartialsError::Words { expected, found });
        }
        let bytes = expected.iter().try_fold(4u64, |all, &extent| all.checked_mul(extent as u64));
        let Some(needed) = bytes else { return impossible(format!("the shape {shape:?}")) };
        let available = buffer_bytes(&words.handle);
        if needed > available {
            return Err(Reason::BufferTooSmall { tensor: Role::Words, needed, available }.into());
        }
        Ok(Self { operator, parameters, signature, description, words, device: None })
    }

    /// What the partial results are.
    #[must_use]
    pub fn description(&self) -> &PartialsDescription {
        &self.description
    }

    /// The accumulators: a row-major tensor of u32 of shape `[slots, words, outputs]`, with outputs
    /// in row-major order. The words are those of the fields, one after the other, the low half of
    /// a field of 64 bits before the high one.
    #[must_use]
    pub fn words(&self) -> &TensorHandle {
        &self.words
    }

    /// The operator.
    #[must_use]
    pub fn operator(&self) -> &O {
        &self.operator
    }

    pub(crate) fn any(&self) -> AnyPartials<'_> {
        let Self { parameters, signature, description, words, device, .. } = self;
        AnyPartials { parameters, signature, description, words, device: *device }
    }
}

impl ShardRange {
    /// The elements of this range for each output, if all indices have `whole` of them. `None` if
    /// the numbers contradict each other.
    fn elements(&self, whole: usize) -> Option<usize> {
        let Self { start, end, of, .. } = *self;
        let indices = end.checked_sub(start).filter(|_| end <= of)?;
        match of {
            0 => (whole == 0).then_some(0),
            _ => whole.is_multiple_of(of).then(|| whole / of * indices),
        }
    }
}

pub(crate) fn bits(parameters: &[f64]) -> Vec<u64> {
    parameters.iter().map(|number| number.to_bits()).collect()
}

/// Starts the merge of partial results of one reduction, in this order. All must lie on the device
/// of the client that runs it.
///
/// With shards, the order is that of the shards, and it is checked. Without, another order gives
/// the same up to rounding for every operator whose results do not depend on the order of elements.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::{Var, partials::merge_partials, reduce};
///
/// # fn example(
/// #     client: &Client,
/// #     upper: &TensorHandle,
/// #     lower: &TensorHandle,
/// # ) -> Result<(), ReduceError> {
/// let of = |part| reduce(Var { correction: 1.0 }, part).over(0).partials(client);
/// let variances = merge_partials(&[of(upper)?, of(lower)?]).run(client)?;
/// # Ok(()) }
/// ```
pub fn merge_partials<O: Operator>(partials: &[Partials<O>]) -> PartialsMerge<'_, O> {
    PartialsMerge { partials }
}

/// A merge of partial results; see [`merge_partials`].
#[must_use = "a merge does nothing until it is run"]
pub struct PartialsMerge<'a, O> {
    partials: &'a [Partials<O>],
}

impl<O> fmt::Debug for PartialsMerge<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartialsMerge").field("partials", &self.partials).finish()
    }
}

impl<O: Operator> PartialsMerge<'_, O> {
    /// Merges and finishes the partial results into new row-major tensors. Does not wait for the
    /// device.
    ///
    /// # Errors
    ///
    /// Partial results that do not belong together or lie on another device, shards that do not
    /// cover the whole in their order, no elements where the operator needs some
    /// ([`PartialsError`]); and what the device cannot compute with, index or allocate. Nothing is
    /// launched then.
    pub fn run(self, client: &Client) -> Result<Outputs<O, TensorHandle>, ReduceError> {
        let whole = self.whole()?;
        let merge = self.prepared(client, &whole, None)?;
        let signature = self.partials[0].signature;
        let outputs = O::Results::each(|nth| {
            let element = signature.results[nth];
            let handle = client.empty(merge.outputs().max(1) * element.bytes());
            TensorHandle::new_contiguous(whole.shape.clone(), handle, storage_type(element))
        });
        let outputs = O::Results::into_list(outputs);
        let bindings = outputs.iter().map(|output| output.handle.clone().binding());
        let results = merge.bind_results(client, bindings)?;
        merge.finish(client, self.words(client)?, &self.partials[0].parameters, &results)?;
        let mut outputs = outputs.into_iter();
        Ok(O::Results::each(|_| outputs.next().expect("there is an output for each result")))
    }

    /// Merges and finishes the partial results into `output`: a tensor of the result's shape, or a
    /// tuple of them, as for [`Reduction::run_into`].
    ///
    /// # Errors
    ///
    /// Those of [`run`](Self::run), and an output that does not fit. Nothing has been written then.
    pub fn run_into(
        self,
        client: &Client,
        output: Outputs<O, TensorBinding>,
    ) -> Result<(), ReduceError> {
        let whole = self.whole()?;
        let outputs = O::Results::into_list(output);
        check_layouts(&whole.shape, &outputs)?;
        let merge = self.prepared(client, &whole, Some(&outputs[0].strides))?;
        let bindings = outputs.iter().map(|output| output.handle.clone());
        let results = merge.bind_results(client, bindings)?;
        merge.finish(client, self.words(client)?, &self.partials[0].parameters, &results)
    }

    /// Merges the partial results into one, which can be merged with others later: those of the
    /// devices of a machine before those of several machines. Shards need not cover the whole.
    ///
    /// # Errors
    ///
    /// Partial results that do not belong together, or whose shards do not follow each other.
    pub fn partials(self, client: &Client) -> Result<Partials<O>, ReduceError> {
        let merged = self.merged()?;
        let merge = self.prepared(client, &merged, None)?;
        let first = &self.partials[0];
        let per_output = word_count(&first.signature.fields[..O::Fields::COUNT]);
        let handle = client.empty(merge.words().max(1) * size_of::<u32>());
        let target = Bound::own(handle.clone().binding(), merge.words(), size_of::<u32>());
        merge.merge(client, self.words(client)?, &first.parameters, &target)?;
        let shape = [1, per_output, merge.outputs()];
        let words = TensorHandle::new_contiguous(shape, handle, storage_type(ElementType::U32));
        Ok(Partials {
            operator: first.operator,
            parameters: first.parameters.clone(),
            signature: first.signature,
            description: merged,
            words,
            device: Some(identity(client)),
        })
    }

    fn words(&self, client: &Client) -> Result<Vec<PartialWords>, ReduceError> {
        let words = self.partials.iter().enumerate().map(|(nth, partial)| {
            let words = partial.any().bound(client, nth)?;
            Ok(PartialWords { words, slots: partial.description.slots })
        });
        words.collect()
    }

    fn prepared(
        &self,
        client: &Client,
        merged: &PartialsDescription,
        strides: Option<&[usize]>,
    ) -> Result<PreparedMerge, ReduceError> {
        let slots = self.partials.iter().map(|partial| partial.description.slots);
        let slots = slots.fold(0usize, usize::saturating_add);
        PreparedMerge::new(
            client,
            OperatorRef(O::DEFINITION.erased()),
            self.partials[0].signature,
            &merged.shape,
            strides,
            slots,
            merged.count,
        )
    }

    /// The description of all together, which are everything that is to be reduced.
    fn whole(&self) -> Result<PartialsDescription, ReduceError> {
        let merged = self.merged()?;
        if let Some(ShardRange { axis, start, end, of }) = merged.range
            && (start, end) != (0, of)
        {
            return refuse(PartialsError::Incomplete { axis, start, end, of });
        }
        let has_outputs = !merged.shape.contains(&0);
        if merged.count == 0 && has_outputs && !O::DEFINITION.erased().defined_on_empty {
            return refuse(PartialsError::Empty { operator: merged.operator });
        }
        Ok(merged)
    }

    /// The description of all together. Checks that they belong together.
    fn merged(&self) -> Result<PartialsDescription, ReduceError> {
        let Some((first, others)) = self.partials.split_first() else {
            return refuse(PartialsError::None);
        };
        let mut merged = PartialsDescription { slots: 1, ..first.description.clone() };
        if !others.is_empty() && O::POSITIONAL && merged.range.is_none() {
            return refuse(PartialsError::Positional { operator: merged.operator });
        }
        for (nth, other) in (1..).zip(others) {
            let differ = |what, first: &dyn fmt::Debug, other: &dyn fmt::Debug| {
                let (first, other) = (format!("{first:?}"), format!("{other:?}"));
                refuse(PartialsError::Differ { nth, what, first, other })
            };
            let description = &other.description;
            if first.description.parameters != description.parameters {
                return differ("parameters", &first.parameters, &other.parameters);
            }
            let types = |partial: &Partials<O>| {
                let Signature { fields, results, .. } = partial.signature;
                (fields[..O::Fields::COUNT].to_vec(), results[..O::Results::COUNT].to_vec())
            };
            if types(first) != types(other) {
                return differ("types", &types(first), &types(other));
            }
            if merged.shape != description.shape {
                return differ("shape", &merged.shape, &description.shape);
            }
            merged.range = match (merged.range, description.range) {
                (None, None) => None,
                (Some(before), Some(next)) if (before.axis, before.of) == (next.axis, next.of) => {
                    if next.start != before.end {
                        let ShardRange { axis, start, .. } = next;
                        let expected = before.end;
                        return refuse(PartialsError::Order { nth, axis, start, expected });
                    }
                    Some(ShardRange { end: next.end, ..before })
                }
                (before, next) => return differ("shard", &before, &next),
            };
            let Some(count) = merged.count.checked_add(description.count) else {
                let shape = vec![merged.count, description.count];
                let error = ProblemError::TooLarge { tensor: Role::Input, shape, strides: vec![] };
                return Err(error.into());
            };
            merged.count = count;
        }
        // The types of shards follow from the whole, and those of others from each of them alone.
        if merged.range.is_none() && merged.count > merged.types.reduction_len {
            merged.types.reduction_len = merged.count;
            let erased = O::DEFINITION.erased();
            if (erased.types)(&merged.types).is_none_or(|types| types != first.signature) {
                return refuse(PartialsError::TooMany { count: merged.count });
            }
        }
        Ok(merged)
    }
}
