//! Measured plans of a device.
//!
//! ```
//! use burn_tensor::Device;
//! use reduce_burn::plans::planner_device;
//!
//! // Plans are for kernels, and Flex has none.
//! assert!(planner_device(&Device::flex()).is_none());
//! ```

use burn_dispatch::Dispatch;
use burn_tensor::Device;

use crate::backend::ReduceBackend;

/// A device as the planner of reduce-kernels sees it: what a store of plans or a profile is read
/// with. `None` where reductions are made of Burn's operations, which no plan is for.
///
/// ```
/// use burn_tensor::Device;
/// use reduce_burn::plans::planner_device;
///
/// assert!(planner_device(&Device::flex()).is_none());
/// ```
pub fn planner_device(device: &Device) -> Option<reduce_kernels::Device> {
    Dispatch::planner_device(device.as_dispatch())
}

/// Takes the plans of all reductions on a device from `plans`, in every thread, where it has one;
/// see [`reduce_kernels::plans::use_plans`]. Where [`planner_device`] is `None`, nothing changes.
///
/// ```no_run
/// use burn_tensor::Device;
/// use reduce_burn::{
///     plans::{planner_device, use_plans},
///     reduce_kernels::plans::{PlanStore, StoreError},
/// };
///
/// fn start(device: &Device) -> Result<(), StoreError> {
///     let Some(planned_for) = planner_device(device) else { return Ok(()) };
///     use_plans(device, PlanStore::read("plans.json", &planned_for)?)
/// }
/// ```
///
/// # Errors
///
/// The plans are those of another device.
#[cfg(feature = "serde")]
pub fn use_plans(
    device: &Device,
    plans: reduce_kernels::plans::PlanStore,
) -> Result<(), reduce_kernels::plans::StoreError> {
    Dispatch::use_plans(device.as_dispatch(), plans)
}
