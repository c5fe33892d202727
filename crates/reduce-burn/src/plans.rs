//! Measured plans of a device, and what bits may depend on.
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

/// Promises these numerics for all functions of this crate in this process, gradients included; see
/// [`reduce_kernels::plans::use_numerics`]. Call it before the first of them: what a lazy backend
/// has recorded is reduced with the numerics of the time when it runs. It says nothing of Burn's
/// own operations, nor of Flex.
///
/// ```
/// use reduce_burn::{plans::use_numerics, reduce_kernels::plans::Numerics};
///
/// use_numerics(Numerics::BatchInvariant);
/// # use_numerics(Numerics::Deterministic);
/// ```
pub fn use_numerics(numerics: reduce_kernels::plans::Numerics) {
    reduce_kernels::plans::use_numerics(numerics);
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
