//! Groups of elements by keys in any order.

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{Device, GroupingPlan};

use crate::{
    device_of,
    error::ReduceError,
    host::segments::{
        grouping::{self, Carried, Grouped, index_type},
        integers::{IntegersSpec, Members},
    },
    input::Input,
};

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

    /// Plans for `device`; see [`Reduction::plan_for`](crate::Reduction::plan_for).
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
