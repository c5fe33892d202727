//! Reductions of segments: neighbouring elements along an axis, in any numbers.
//!
//! ```no_run
//! use reduce_kernels::{
//!     Mean, ReduceError,
//!     cubecl::{prelude::*, std::tensor::TensorHandle},
//!     reduce,
//! };
//!
//! // The mean of the nodes of each graph of a batch: `nodes` has the shape [nodes, features], and
//! // graph number `g` has the nodes from `offsets[g]` up to `offsets[g + 1]`.
//! # fn example(
//! #     client: &Client,
//! #     nodes: &TensorHandle,
//! #     offsets: &TensorHandle,
//! # ) -> Result<(), ReduceError> {
//! let graphs = reduce(Mean, nodes).over(0).segments(offsets).run(client)?;
//! # Ok(()) }
//! ```

use core::fmt;
use std::borrow::Cow;

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{Choice, ElementType, SegmentsPlan, SegmentsProblem};

#[cfg(feature = "serde")]
use crate::recorded::{RecordedCall, RecordedSegments};
use crate::{
    applied_reduction::AppliedReduction,
    error::{Reason, ReduceError},
    host::{
        self,
        call::Call,
        segments::{
            integers::{IntegersSpec, Members},
            request::{SegmentsRequest, StatedSegments},
        },
    },
    input::Input,
    operator::{Apply, Arity, Operator},
    plan_in_use::PlanInUse,
    reduction::{Outputs, Reduction},
};

pub use crate::groups::{GroupByKeys, Groups, KeyedReduction, group_by_keys};

impl<'a, O: Operator, T: Input> Reduction<'a, O, T> {
    /// Reduces segments of one axis, each to a result of its own, in place of the whole axis.
    ///
    /// `offsets` is a tensor of one dimension, of i32, i64, u32 or u64. Segment number `s` has the
    /// elements from `offsets[s]` up to `offsets[s + 1]`, so there is one offset more than there are
    /// segments. The results have the shape of the input with the number of segments in place of the
    /// axis. Segments may have any lengths; elements before the first and behind the last belong to
    /// none. Positions count from the beginning of the axis.
    ///
    /// A segment without elements has the result of no elements: 0 of a sum, NaN of a mean, and the
    /// value with which an operator starts where reductions of no elements are an error, such as
    /// `-inf` of a maximum.
    ///
    /// Nothing is read back, so wrong offsets are no error: if they descend or lie outside of the
    /// axis, results are wrong, but nothing outside of the tensors is read or written.
    ///
    /// The axis is that of [`over`](Self::over); a tensor of one dimension needs none. The bits of a
    /// result depend on where in the axis its segment begins, and on nothing else. A plan that was set
    /// before is for a reduction, and is dropped.
    pub fn segments(self, offsets: &'a T) -> SegmentedReduction<'a, O, T> {
        SegmentedReduction::new(self, Members::new(offsets))
    }
}

/// The offsets of segments that keys name, for [`Reduction::segments`]: element number `i` of the
/// axis belongs to segment number `keys[i]`. The keys must be sorted; a segment that none names has
/// no elements, and elements with other keys than `0..segments` belong to none.
///
/// Keys are a tensor of one dimension, of i32, i64, u32 or u64. Nothing is read back: of keys that
/// are not sorted, the offsets are arbitrary, and none exceeds the number of keys. They are of u32,
/// or of u64 if there are more keys than u32 counts.
///
/// ```no_run
/// use reduce_kernels::{Max, ReduceError, cubecl, reduce, segments::offsets_of_sorted_keys};
///
/// # use cubecl::{prelude::*, std::tensor::TensorHandle};
/// // The greatest value of each of 1000 users, whose events are sorted by user.
/// # fn example(
/// #     client: &Client,
/// #     values: &TensorHandle,
/// #     users: &TensorHandle,
/// # ) -> Result<(), ReduceError> {
/// let offsets = offsets_of_sorted_keys(client, users, 1000)?;
/// let greatest = reduce(Max, values).segments(&offsets).run(client)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Keys of several dimensions or of another type, more segments than their type counts, and a device
/// that lacks the type, the indices or the memory.
pub fn offsets_of_sorted_keys(
    client: &Client,
    keys: &TensorHandle,
    segments: usize,
) -> Result<TensorHandle, ReduceError> {
    host::segments::keys::offsets_of_sorted_keys(client, keys, segments)
}

/// The offsets of segments of these lengths, for [`Reduction::segments`]: one more than there are
/// lengths, of the same type. The first segment begins with the first element of the axis.
///
/// Lengths are a tensor of one dimension, of i32, i64, u32 or u64. Nothing is read back: a negative
/// length counts as 0, and sums that the type does not hold wrap.
///
/// ```no_run
/// use reduce_kernels::{Max, ReduceError, cubecl, reduce, segments::offsets_of_lengths};
///
/// # use cubecl::{prelude::*, std::tensor::TensorHandle};
/// # fn example(
/// #     client: &Client,
/// #     tokens: &TensorHandle,
/// #     lengths: &TensorHandle,
/// # ) -> Result<(), ReduceError> {
/// let offsets = offsets_of_lengths(client, lengths)?;
/// let sentences = reduce(Max, tokens).over(0).segments(&offsets).run(client)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Lengths of several dimensions or of another type, and a device that lacks the type, the indices or
/// the memory.
pub fn offsets_of_lengths(
    client: &Client,
    lengths: &TensorHandle,
) -> Result<TensorHandle, ReduceError> {
    host::segments::lengths::offsets_of_lengths(client, lengths)
}

/// The number of the segment of each of `len` elements of an axis, as `element`: i32 or i64. It is the
/// inverse of [`offsets_of_sorted_keys`], and what a gather needs to bring results of segments back to
/// their elements. Elements before the first segment get -1, and those behind the last one the number
/// of segments.
///
/// Nothing is read back: of offsets that descend, the numbers are arbitrary within these limits.
///
/// ```no_run
/// use reduce_kernels::{ElementType, ReduceError, cubecl, segments::keys_of_offsets};
///
/// # use cubecl::{prelude::*, std::tensor::TensorHandle};
/// # fn example(client: &Client, offsets: &TensorHandle) -> Result<(), ReduceError> {
/// let users = keys_of_offsets(client, offsets, 1 << 20, ElementType::I32)?; // shape [1 << 20]
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Offsets of several dimensions or of another type than those of segments, another type than i32 and
/// i64 or one that does not hold the number of segments, and a device that lacks a type, the indices or
/// the memory.
pub fn keys_of_offsets(
    client: &Client,
    offsets: &TensorHandle,
    len: usize,
    element: ElementType,
) -> Result<TensorHandle, ReduceError> {
    host::segments::keys::keys_of_offsets(client, offsets, len, element)
}

/// A reduction of segments that is being described; see [`Reduction::segments`]. It does nothing
/// until [`run`](Self::run) or [`run_into`](Self::run_into) is called.
#[must_use = "a reduction does nothing until it is run"]
pub struct SegmentedReduction<'a, O, T> {
    pub(crate) reduction: Reduction<'a, O, T>,
    pub(crate) members: Members<'a, T>,
    plan: Option<SegmentsPlan>,
}

impl<O: Operator, T: Input> fmt::Debug for SegmentedReduction<'_, O, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentedReduction")
            .field("reduction", &self.reduction)
            .field("segments", &self.members)
            .field("plan", &self.plan)
            .finish()
    }
}

impl<'a, O: Operator, T: Input> SegmentedReduction<'a, O, T> {
    pub(crate) fn new(reduction: Reduction<'a, O, T>, members: Members<'a, T>) -> Self {
        Self { reduction, members, plan: None }
    }

    /// The elements of segments by their indices along the axis, in place of neighbours: segment
    /// number `s` has the elements `indices[offsets[s]]`, ... up to `indices[offsets[s + 1]]`. An
    /// element may be in several segments, or in none. Such segments are bags of rows of an embedding
    /// table, or the neighbours of a node in compressed sparse rows.
    ///
    /// `indices` is a tensor of one dimension, of i32, i64, u32 or u64. Wrong indices are no error:
    /// they name some element of the axis. Of two inputs, both are read by the same indices. Positions
    /// are indices, and of equal elements the first along the axis has its position. A plan that was
    /// set before is dropped.
    ///
    /// ```no_run
    /// use reduce_kernels::{Mean, ReduceError, cubecl, reduce};
    ///
    /// # use cubecl::{prelude::*, std::tensor::TensorHandle};
    /// // The mean embedding of each sentence: `table` has the shape [words, features].
    /// # fn example(
    /// #     client: &Client,
    /// #     table: &TensorHandle,
    /// #     words: &TensorHandle,
    /// #     offsets: &TensorHandle,
    /// # ) -> Result<(), ReduceError> {
    /// let bags = reduce(Mean, table).over(0).segments(offsets).indices(words).run(client)?;
    /// # Ok(()) }
    /// ```
    pub fn indices(self, indices: &'a T) -> Self {
        let members = Members { indices: Some(indices), keys: None, ..self.members };
        Self::new(self.reduction, members)
    }

    /// Runs this plan instead of choosing one. It is checked against the problem and the device.
    pub fn with_plan(mut self, plan: SegmentsPlan) -> Self {
        self.plan = Some(plan);
        self
    }

    /// Applies the results to each element of their segment; see
    /// [`AppliedReduction::segments`](crate::normalize::AppliedReduction::segments). A plan that was
    /// set before is dropped.
    ///
    /// ```no_run
    /// # use reduce_kernels::{
    /// #     ReduceError,
    /// #     cubecl::{prelude::*, std::tensor::TensorHandle},
    /// #     normalize::Scaled,
    /// #     operators::NormL2Reciprocal,
    /// #     reduce,
    /// # };
    /// # fn example(
    /// #     client: &Client,
    /// #     x: &TensorHandle,
    /// #     offsets: &TensorHandle,
    /// # ) -> Result<(), ReduceError> {
    /// // Each segment divided by its norm.
    /// let norm = NormL2Reciprocal { eps: 1e-12 };
    /// let unit = reduce(norm, x).segments(offsets).apply(Scaled).run(client)?;
    /// # Ok(()) }
    /// ```
    pub fn apply<F: Apply<Results = O::Results>>(self, apply: F) -> AppliedReduction<'a, O, F, T> {
        AppliedReduction::new(self.reduction, apply).of_members(self.members)
    }

    /// The shape of the results.
    ///
    /// # Errors
    ///
    /// Several axes or none, invalid types or strides, and offsets that are not of one dimension or
    /// not of integers of 32 or 64 bits.
    pub fn output_shape(&self) -> Result<Vec<usize>, ReduceError> {
        Ok(self.stated()?.shape)
    }

    /// The types of the results.
    ///
    /// # Errors
    ///
    /// Those of [`output_shape`](Self::output_shape).
    pub fn output_types(&self) -> Result<Outputs<O, ElementType>, ReduceError> {
        let results = self.stated()?.reduction.signature.results;
        Ok(O::Results::each(|nth| results[nth]))
    }

    /// The canonical problem, for planning without a device.
    ///
    /// # Errors
    ///
    /// Those of [`output_shape`](Self::output_shape).
    pub fn problem(&self) -> Result<SegmentsProblem, ReduceError> {
        Ok(self.stated()?.problem)
    }

    /// Chooses a plan without running it, even if [`with_plan`](Self::with_plan) has set one.
    ///
    /// # Errors
    ///
    /// Those of [`output_shape`](Self::output_shape), and segments that the device cannot reduce.
    pub fn choose(&self, client: &Client) -> Result<Choice<SegmentsPlan>, ReduceError> {
        self.call(None)?.choose(client, &self.buffer_bytes())
    }

    /// The plan that [`run`](Self::run) would run now, and where it comes from; see
    /// [`Reduction::plan`].
    ///
    /// # Errors
    ///
    /// The errors of `choose`, and a plan of `with_plan` that may not run.
    pub fn plan(&self, client: &Client) -> Result<PlanInUse<SegmentsPlan>, ReduceError> {
        self.call(None)?.plan(client, &self.buffer_bytes())
    }

    /// Whether [`run`](Self::run) would launch; see [`Reduction::check`]. The offsets themselves are
    /// not looked at.
    ///
    /// # Errors
    ///
    /// The error that `run` would return.
    pub fn check(&self, client: &Client) -> Result<(), ReduceError> {
        self.call(None)?.check(client, &self.buffer_bytes())
    }

    /// The reduction as data, as [`record_calls`](crate::plans::record_calls) would record it.
    ///
    /// # Errors
    ///
    /// Those of [`output_shape`](Self::output_shape).
    #[cfg(feature = "serde")]
    pub fn record(&self) -> Result<RecordedCall, ReduceError> {
        Ok(RecordedCall::Segments(RecordedSegments::of(&self.call(None)?.task)))
    }

    /// Bytes of the buffers of all tensors, where they exist.
    fn buffer_bytes(&self) -> [Option<u64>; 5] {
        let Reduction { input, second, .. } = &self.reduction;
        let second = second.and_then(|second| second.buffer_bytes());
        let [offsets, indices, keys] = self.members.buffer_bytes();
        [input.buffer_bytes(), second, offsets, indices, keys]
    }

    fn stated(&self) -> Result<StatedSegments, ReduceError> {
        self.call(None)?.stated()
    }

    /// The call. `output` is the shape and the strides of supplied outputs.
    pub(crate) fn call<'s>(
        &'s self,
        output: Option<(&'s [usize], &'s [usize])>,
    ) -> Result<Call<'s, SegmentsRequest<'s>>, ReduceError> {
        let Call { task, device, plans, parameters, apply_parameters } =
            self.reduction.call(None)?;
        let request = SegmentsRequest::new(task, self.members.spec()?)?;
        let borrowed = |(shape, strides)| (Cow::Borrowed(shape), Cow::Borrowed(strides));
        let task = SegmentsRequest { output: output.map(borrowed), plan: self.plan, ..request };
        Ok(Call { task, device, plans, parameters, apply_parameters })
    }
}

impl<O: Operator> SegmentedReduction<'_, O, TensorHandle> {
    /// Reads the offsets back and checks that none descends or lies outside of the axis. It waits for
    /// the device, which [`run`](Self::run) does not: for tests, and for offsets of unknown origin.
    ///
    /// ```no_run
    /// use reduce_kernels::{ErrorKind, ReduceError, Sum, cubecl, reduce};
    ///
    /// # use cubecl::{prelude::*, std::tensor::TensorHandle};
    /// # fn example(
    /// #     client: &Client,
    /// #     x: &TensorHandle,
    /// #     offsets: &TensorHandle,
    /// # ) -> Result<(), ReduceError> {
    /// let sums = reduce(Sum, x).over(0).segments(offsets);
    /// sums.check_offsets(client)?; // such as `offset number 2 is 7, and must be from 9 to 100`
    /// let sums = sums.run(client)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`check`](Self::check), the first wrong offset, of
    /// [`ErrorKind::Parameter`](crate::ErrorKind::Parameter), and a device that does not answer.
    pub fn check_offsets(&self, client: &Client) -> Result<(), ReduceError> {
        self.check(client)?;
        let len = self.problem()?.entries();
        let IntegersSpec { count, element, stride } = self.members.spec()?.offsets;
        let offsets = self.members.offsets.handle.clone();
        let bytes = client.read_one(offsets).map_err(ReduceError::device)?;
        let mut least = 0;
        for nth in 0..count {
            let first = nth * stride * element.bytes();
            let found = integer(element, &bytes[first..first + element.bytes()]);
            if found < least || found > len as i128 {
                return Err(Reason::Offset { nth, found, least, len }.into());
            }
            least = found;
        }
        Ok(())
    }

    /// Launches the reduction into a new row-major tensor, or one for each result. Does not wait for
    /// it. Each thread caches the prepared reduction, so repeating it costs a look-up.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched.
    pub fn run(self, client: &Client) -> Result<Outputs<O, TensorHandle>, ReduceError> {
        let Reduction { input, second, .. } = &self.reduction;
        let outputs = self.call(None)?.run(client, input, *second, self.members)?;
        let mut outputs = outputs.into_iter();
        Ok(O::Results::each(|_| outputs.next().expect("there is an output for each result")))
    }

    /// Launches the reduction into `output`: a tensor of the results' shape, or a tuple of tensors,
    /// one for each result. Does not wait for it. See [`Reduction::run_into`].
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched or written.
    pub fn run_into(
        self,
        client: &Client,
        output: Outputs<O, TensorBinding>,
    ) -> Result<(), ReduceError> {
        let Reduction { input, second, .. } = &self.reduction;
        let outputs = O::Results::into_list(output);
        let layout = (&outputs[0].shape[..], &outputs[0].strides[..]);
        self.call(Some(layout))?.run_into(client, input, *second, self.members, &outputs)
    }
}

/// The integer of an element of 32 or 64 bits.
fn integer(element: ElementType, bytes: &[u8]) -> i128 {
    let unsigned = bytes.iter().rev().fold(0i128, |high, &byte| high << 8 | i128::from(byte));
    let is_negative = element.is_signed() && bytes.last().is_some_and(|&byte| byte > 0x7f);
    if is_negative { unsigned - (1 << (8 * bytes.len())) } else { unsigned }
}
