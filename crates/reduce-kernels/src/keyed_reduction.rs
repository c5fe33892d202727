//! Reductions of groups, and of keys that are grouped first.

use core::fmt;

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{ElementType, InputSpec};

use crate::{
    device_of,
    element::storage_type,
    error::{Reason, ReduceError},
    groups::{GroupByKeys, Groups},
    host::{
        bound::output_bytes,
        segments::{
            grouping::{self, Carried, Grouped, bits_of},
            integers::IntegersSpec,
        },
    },
    input::{Input, sealed::Layout},
    operator::{Arity, Operator},
    reduction::{Outputs, Reduction},
    segmented_reduction::SegmentedReduction,
};

impl<'a, O: Operator, T: Input> Reduction<'a, O, T> {
    /// Reduces groups of elements of one axis, wherever they lie in it, each to a result of its own.
    /// It is the sum, the mean, the extremum, ... by key of other libraries' `scatter_reduce`, and its
    /// bits are the same in every run.
    ///
    /// The results have the shape of the input with the number of groups in place of the axis.
    /// Positions are those in the axis. A group without elements has the result of no elements; see
    /// [`segments`](Self::segments), whose every other word holds too.
    ///
    /// ```no_run
    /// use reduce_kernels::{Mean, ReduceError, cubecl, reduce, segments::group_by_keys};
    ///
    /// # use cubecl::{prelude::*, std::tensor::TensorHandle};
    /// // Each of 1000 nodes of a graph gets the mean of the messages that were sent to it: those of
    /// // the edges whose target it is. `messages` has the shape [edges, features].
    /// # fn example(
    /// #     client: &Client,
    /// #     messages: &TensorHandle,
    /// #     targets: &TensorHandle,
    /// # ) -> Result<(), ReduceError> {
    /// let edges = group_by_keys(client, targets, 1000)?; // once for all layers
    /// let received = reduce(Mean, messages).over(0).grouped(&edges).run(client)?;
    /// # Ok(()) }
    /// ```
    pub fn grouped(self, groups: &'a Groups<T>) -> SegmentedReduction<'a, O, T> {
        SegmentedReduction::new(self, groups.members())
    }

    /// Groups the elements of one axis by keys, and reduces each group: [`group_by_keys`](crate::segments::group_by_keys) and
    /// [`grouped`](Self::grouped) in one call, for keys that are used once.
    ///
    /// The elements of a tensor of one dimension are moved together with their keys where the operator
    /// does not ask for positions and elements lie side by side. That takes less time than to gather
    /// them, at the price of memory for one copy.
    ///
    /// ```no_run
    /// use reduce_kernels::{ReduceError, Sum, cubecl, reduce};
    ///
    /// # use cubecl::{prelude::*, std::tensor::TensorHandle};
    /// // What each of 1000 users has paid, whose payments are in any order.
    /// # fn example(
    /// #     client: &Client,
    /// #     payments: &TensorHandle,
    /// #     users: &TensorHandle,
    /// # ) -> Result<(), ReduceError> {
    /// let paid = reduce(Sum, payments).by_keys(users, 1000).run(client)?;
    /// # Ok(()) }
    /// ```
    pub fn by_keys(self, keys: &'a T, groups: usize) -> KeyedReduction<'a, O, T> {
        KeyedReduction { reduction: self, keys, groups }
    }
}

/// A reduction of groups whose keys are not grouped yet; see [`Reduction::by_keys`]. It does nothing
/// until [`run`](Self::run) or [`run_into`](Self::run_into) is called.
#[must_use = "a reduction does nothing until it is run"]
pub struct KeyedReduction<'a, O, T> {
    reduction: Reduction<'a, O, T>,
    keys: &'a T,
    groups: usize,
}

impl<O: Operator, T: Input> fmt::Debug for KeyedReduction<'_, O, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reduction, keys, groups } = self;
        let mut told = f.debug_struct("KeyedReduction");
        told.field("reduction", reduction).field("keys", keys).field("groups", groups).finish()
    }
}

impl<O: Operator> KeyedReduction<'_, O, TensorHandle> {
    /// Launches the grouping and the reduction into a new row-major tensor, or one for each result.
    /// Does not wait for them.
    ///
    /// # Errors
    ///
    /// Those of [`group_by_keys`](crate::segments::group_by_keys) and of
    /// [`SegmentedReduction::run`], and keys of another number of elements than the axis has.
    pub fn run(self, client: &Client) -> Result<Outputs<O, TensorHandle>, ReduceError> {
        self.with(client, None, |reduction| reduction.run(client))
    }

    /// The same into `output`; see [`SegmentedReduction::run_into`].
    ///
    /// # Errors
    ///
    /// Those of [`run`](Self::run).
    pub fn run_into(
        self,
        client: &Client,
        output: Outputs<O, TensorBinding>,
    ) -> Result<(), ReduceError> {
        let outputs = O::Results::into_list(output);
        let layout = (&outputs[0].shape[..], &outputs[0].strides[..]);
        self.with(client, Some(layout), |reduction| {
            reduction.run_into(client, O::Results::each(|nth| outputs[nth].clone()))
        })
    }

    /// Groups the keys, and calls with the reduction of the groups. `output` is the shape and the
    /// strides of supplied outputs.
    fn with<R>(
        self,
        client: &Client,
        output: Option<(&[usize], &[usize])>,
        call: impl FnOnce(SegmentedReduction<'_, O, TensorHandle>) -> Result<R, ReduceError>,
    ) -> Result<R, ReduceError> {
        let Self { reduction, keys, groups } = self;
        let device = reduction.options.device.cloned().unwrap_or_else(|| device_of(client));
        let of_keys = IntegersSpec::of_keys(keys)?;
        grouping::plan_of(&of_keys, groups, size_of::<u64>(), &device, None)?;
        // Whether groups can be reduced is known before they are made, by offsets of their type.
        let element = ElementType::U32;
        let shape = [groups + 1];
        let spec = InputSpec { element, shape: &shape, strides: &[1], alignment: 1 };
        let stand_in = client.empty(output_bytes(client, &spec)?);
        let stand_in =
            TensorHandle::new_contiguous(shape.to_vec(), stand_in, storage_type(element));
        let known = reduction.segments(&stand_in);
        known.check(client)?;
        known.call(output)?.stated()?;
        let len = known.problem()?.entries();
        if len != of_keys.count {
            return Err(Reason::GroupedElements { keys: of_keys.count, len }.into());
        }
        let reduction = known.reduction;

        let Reduction { input, second, .. } = reduction;
        let spec = input.spec()?;
        let in_a_row = spec.shape.len() == 1 && spec.strides == [1] && second.is_none();
        let is_held = bits_of(spec.element).is_some_and(|bits| device.has(bits));
        if O::POSITIONAL || !in_a_row || !is_held {
            let grouping = GroupByKeys::new(keys, groups).plan_for(&device);
            return call(reduction.grouped(&grouping.run(client)?));
        }
        let elements = Carried::Elements(input, spec.element);
        let Grouped { carried, offsets } =
            grouping::group(client, &device, keys, groups, None, elements)?;
        call(Reduction { input: &carried, ..reduction }.segments(&offsets))
    }
}
