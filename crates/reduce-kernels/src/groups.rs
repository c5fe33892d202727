//! Groups of elements by keys in any order.

use core::fmt;

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{Device, ElementType, GroupingPlan, InputSpec};

use crate::{
    device_of,
    element::storage_type,
    error::{Reason, ReduceError},
    host::{
        bound::output_bytes,
        segments::{
            grouping::{self, Carried, Grouped, bits_of, index_type},
            integers::{IntegersSpec, Members},
        },
    },
    input::{Input, sealed::Layout},
    operator::{Arity, Operator},
    reduction::{Outputs, Reduction},
    segments::SegmentedReduction,
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

    /// Groups the elements of one axis by keys, and reduces each group: [`group_by_keys`] and
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

/// Elements of an axis by group; see [`group_by_keys`]. The tensors are of one dimension.
#[derive(Clone, Debug)]
pub struct Groups<T> {
    /// The group of each element, as it was given.
    keys: T,
    /// The elements in the order of their groups, those of a group in the order of the axis, and
    /// those of no group behind all.
    indices: T,
    /// Where groups begin among the indices: group number `g` has those from `offsets[g]` up to
    /// `offsets[g + 1]`.
    offsets: T,
}

impl<T> Groups<T> {
    /// Groups that were made elsewhere, such as those of another framework or, without a device, their
    /// [`TensorDescription`](crate::TensorDescription)s. Nothing is read, so nothing is checked: wrong
    /// tensors give wrong results, and no access outside of tensors.
    pub fn new(keys: T, indices: T, offsets: T) -> Self {
        Self { keys, indices, offsets }
    }

    /// The group of each element.
    pub fn keys(&self) -> &T {
        &self.keys
    }

    /// The elements in the order of their groups.
    pub fn indices(&self) -> &T {
        &self.indices
    }

    /// Where groups begin among the indices, one more than there are groups.
    pub fn offsets(&self) -> &T {
        &self.offsets
    }

    pub(crate) fn members(&self) -> Members<'_, T> {
        let Self { keys, indices, offsets } = self;
        Members { offsets, indices: Some(indices), keys: Some(keys) }
    }
}

/// Groups the elements of an axis by their keys, which are in any order: element number `i` belongs
/// to group number `keys[i]`, and to none if that is no number below `groups`. A stable sort does
/// it, so the order of a group's elements is that of the axis, in every run and on every device.
///
/// Keys are a tensor of one dimension, of i32, i64, u32 or u64. Nothing is read back. Groups may be
/// used in any number of reductions and applications. For keys that are sorted already,
/// [`offsets_of_sorted_keys`](crate::segments::offsets_of_sorted_keys) is enough.
///
/// ```no_run
/// use reduce_kernels::{Max, ReduceError, Sum, cubecl, reduce, segments::group_by_keys};
///
/// # use cubecl::{prelude::*, std::tensor::TensorHandle};
/// // The sum and the largest of the payments of each of 1000 users, which are in any order.
/// # fn example(
/// #     client: &Client,
/// #     payments: &TensorHandle,
/// #     users: &TensorHandle,
/// # ) -> Result<(), ReduceError> {
/// let groups = group_by_keys(client, users, 1000)?;
/// let paid = reduce(Sum, payments).grouped(&groups).run(client)?;
/// let largest = reduce(Max, payments).grouped(&groups).run(client)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Keys of several dimensions or of another type, more groups than their type or 32 bits count, and
/// a device that lacks a type, the indices or the memory.
pub fn group_by_keys(
    client: &Client,
    keys: &TensorHandle,
    groups: usize,
) -> Result<Groups<TensorHandle>, ReduceError> {
    GroupByKeys::new(keys, groups).run(client)
}

/// The grouping of keys that is being described, for plans and devices of one's own; see
/// [`group_by_keys`].
#[must_use = "keys are not grouped until this is run"]
#[derive(Debug)]
pub struct GroupByKeys<'a, T> {
    keys: &'a T,
    groups: usize,
    device: Option<&'a Device>,
    plan: Option<GroupingPlan>,
}

impl<'a, T: Input> GroupByKeys<'a, T> {
    /// The grouping of keys below `groups`.
    pub fn new(keys: &'a T, groups: usize) -> Self {
        Self { keys, groups, device: None, plan: None }
    }

    /// Runs this plan instead of choosing one. It is checked against the keys and the device.
    pub fn with_plan(mut self, plan: GroupingPlan) -> Self {
        self.plan = Some(plan);
        self
    }

    /// Plans for `device`; see [`Reduction::plan_for`].
    pub fn plan_for(mut self, device: &'a Device) -> Self {
        self.device = Some(device);
        self
    }

    /// The plan that would run on a device.
    ///
    /// # Errors
    ///
    /// Those of [`group_by_keys`].
    pub fn plan(&self, client: &Client) -> Result<GroupingPlan, ReduceError> {
        let keys = IntegersSpec::of_keys(self.keys)?;
        let carried = index_type(keys.count).bytes();
        grouping::plan_of(&keys, self.groups, carried, &self.device(client), self.plan)
    }

    fn device(&self, client: &Client) -> Device {
        self.device.cloned().unwrap_or_else(|| device_of(client))
    }
}

impl GroupByKeys<'_, TensorHandle> {
    /// Launches the passes. Does not wait for them.
    ///
    /// # Errors
    ///
    /// Those of [`group_by_keys`], before anything is launched.
    pub fn run(&self, client: &Client) -> Result<Groups<TensorHandle>, ReduceError> {
        let device = self.device(client);
        let &Self { keys, groups, plan, .. } = self;
        let grouped = grouping::group(client, &device, keys, groups, plan, Carried::Indices)?;
        let Grouped { carried: indices, offsets } = grouped;
        Ok(Groups { keys: keys.clone(), indices, offsets })
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
    /// Those of [`group_by_keys`] and of [`SegmentedReduction::run`], and keys of another number of
    /// elements than the axis has.
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
