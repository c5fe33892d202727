//! Reductions of segments that are being described.

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
