//! Which plan a reduction runs; numerics, a profile, stored plans and forbidden plans for all
//! reductions of a process.
//!
//! A reduction that is given no plan runs one from the store that the process uses, or else the
//! plan that the planner chooses. [`Reduction::plan`](crate::Reduction::plan) says which:
//!
//! ```no_run
//! use reduce_kernels::{
//!     ReduceError, Sum,
//!     cubecl::{prelude::*, std::tensor::TensorHandle},
//!     plans::PlanSource,
//!     reduce,
//! };
//!
//! # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
//! let in_use = reduce(Sum, x).over(1).plan(client)?;
//! if in_use.source == PlanSource::Chosen {
//!     println!("nobody measured {}", in_use.plan);
//! }
//! # Ok(()) }
//! ```
//!
//! With the feature `serde`, `use_plans` uses a store of measured plans, and `record_calls`
//! remembers what an application reduces, so that it can be measured.

use cubecl::prelude::*;
use reduce_planner::{DeviceError, Profile};
#[doc(no_inline)]
pub use reduce_planner::{Numerics, UnknownNumerics};
#[cfg(feature = "serde")]
#[doc(no_inline)]
pub use reduce_planner::{PlanStore, StoreError, TunedPlan};

use crate::host::{cache, client::device_of, settings};
pub use crate::plan_in_use::{PlanInUse, PlanSource};
#[cfg(feature = "serde")]
pub use crate::{
    recorded::{
        RecordedApplication, RecordedCall, RecordedError, RecordedList, RecordedListApplication,
        RecordedListScan, RecordedOperand, RecordedOutput, RecordedReduction, RecordedScan,
        RecordedSegments, RecordedTensor, RecordedTopK,
    },
    recording::{record_calls, recorded, stop_recording},
};

/// Plans with this profile for all reductions of this process on the client's device, in place of
/// the one that [`device_of`] assumes.
///
/// The program `calibrate` measures a profile. From now on, every plan that is chosen in any thread
/// rests on it: of reductions, of applied ones, and of lists. A reduction that was given a plan or
/// a device ([`with_plan`], [`plan_for`]) does not ask it.
///
/// ```no_run
/// # use reduce_kernels::{
/// #     Device, cubecl::prelude::*, device_of, planner::DeviceError, plans::use_profile,
/// # };
/// # fn example(client: &Client, calibrated: Device) -> Result<(), DeviceError> {
/// // `calibrated` is what `serde_json` reads from the file that `calibrate --json` wrote.
/// use_profile(client, calibrated.profile)?;
/// # Ok(()) }
/// ```
///
/// [`with_plan`]: crate::Reduction::with_plan
/// [`plan_for`]: crate::Reduction::plan_for
///
/// # Errors
///
/// A number of the profile makes no sense. The profile that was used before is still used then.
pub fn use_profile(client: &Client, profile: Profile) -> Result<(), DeviceError> {
    let mut device = device_of(client);
    device.profile = profile;
    device.check()?;
    settings::set_profile(cache::identity(client), Some(device.profile));
    Ok(())
}

/// Plans with the profile that [`device_of`] assumes again; see [`use_profile`].
///
/// ```no_run
/// use reduce_kernels::{cubecl::prelude::*, device_of, plans::{use_profile, stop_using_profile}};
///
/// # fn example(client: &Client) -> Result<(), reduce_kernels::planner::DeviceError> {
/// let profile = device_of(client).profile;
/// use_profile(client, profile)?;
/// // ... reductions that are planned with it
/// stop_using_profile(client);
/// # Ok(()) }
/// ```
pub fn stop_using_profile(client: &Client) {
    settings::set_profile(cache::identity(client), None);
}

/// Promises these numerics for all calls of this process that do not say: reductions, applied ones,
/// lists and partial results, on every device and in every thread.
///
/// A call says with [`numerics`](crate::Reduction::numerics). docs/SERVING.md tells what
/// batch-invariant results are for and what they cost.
///
/// ```
/// use reduce_kernels::plans::{Numerics, use_numerics};
///
/// use_numerics(Numerics::BatchInvariant);
/// // A row has the same bits in every batch from here on.
/// use_numerics(Numerics::Deterministic);
/// ```
pub fn use_numerics(numerics: Numerics) {
    settings::set_numerics(numerics);
}

/// Never again lets cubes of a launch on the client's device wait for other cubes of it, in this
/// process.
///
/// A row that one cube does not hold may be held by several, which wait for each other; see
/// [`AppliedPlan::Held`]. They go on as long as all of them reside on the device together, for
/// which plans leave twice the room that they need, and much more as a rule ("Waiting cubes" in
/// docs/DESIGN.md). Forbid it where the device does not belong to the process alone: where MPS
/// limits its active threads, or where work of a higher priority may keep cubes out for ever.
///
/// From now on, results are applied and segments are reduced by other plans, which may have other
/// bits, and a plan with such cubes is refused
/// ([`Illegal::WaitingForbidden`]). A reduction that was given a device ([`plan_for`]) asks that
/// one: its `tuning.applied.cubes_wait` says the same.
///
/// [`AppliedPlan::Held`]: crate::planner::AppliedPlan::Held
/// [`Illegal::WaitingForbidden`]: crate::planner::Illegal::WaitingForbidden
/// [`plan_for`]: crate::normalize::AppliedReduction::plan_for
///
/// ```no_run
/// use reduce_kernels::{cubecl::prelude::*, plans::forbid_waiting_cubes};
///
/// # fn example(client: &Client) {
/// forbid_waiting_cubes(client);
/// # }
/// ```
pub fn forbid_waiting_cubes(client: &Client) {
    settings::set_forbids_waiting(cache::identity(client), true);
}

/// Lets cubes wait for others again, on devices where they may; see [`forbid_waiting_cubes`].
///
/// ```no_run
/// use reduce_kernels::{cubecl::prelude::*, plans::allow_waiting_cubes};
///
/// # fn example(client: &Client) {
/// allow_waiting_cubes(client);
/// # }
/// ```
pub fn allow_waiting_cubes(client: &Client) {
    settings::set_forbids_waiting(cache::identity(client), false);
}

/// Uses the plans of a store for all reductions of this process on the client's device, in place of
/// the store that was used before.
///
/// From now on, each [`Reduction`](crate::Reduction), each function such as
/// [`sum`](fn@crate::sum), each applied reduction and each list, in every thread, takes the store's
/// plan for its problem if the store has one that may run ([`Plan::check`]), and the planner's
/// choice otherwise. A call that was given a plan or a device ([`with_plan`], [`plan_for`]) takes
/// no plan from the store.
///
/// A thread looks into the store when it sees a reduction for the first time. Repeating one costs
/// what it costs without a store. [`Reduction::plan`](crate::Reduction::plan) says which plan would
/// run.
///
/// ```no_run
/// # use reduce_kernels::{cubecl::prelude::*, device_of, plans::{PlanStore, use_plans}};
/// # fn example(client: &Client) -> Result<(), reduce_kernels::plans::StoreError> {
/// use_plans(client, PlanStore::read("plans.json", &device_of(client))?)?;
/// # Ok(()) }
/// ```
///
/// [`Plan::check`]: crate::planner::Plan::check
/// [`with_plan`]: crate::Reduction::with_plan
/// [`plan_for`]: crate::Reduction::plan_for
///
/// # Errors
///
/// [`StoreError::OtherDevice`] if the plans were measured on another device. The store that was
/// used before is still used then.
#[cfg(feature = "serde")]
pub fn use_plans(client: &Client, store: PlanStore) -> Result<(), StoreError> {
    store.check_device(&device_of(client))?;
    settings::set_store(cache::identity(client), Some(store));
    Ok(())
}

/// Uses no stored plans any more on the client's device; see [`use_plans`].
///
/// ```no_run
/// use reduce_kernels::{cubecl::prelude::*, plans::stop_using_plans};
///
/// # fn example(client: &Client) {
/// stop_using_plans(client);
/// # }
/// ```
#[cfg(feature = "serde")]
pub fn stop_using_plans(client: &Client) {
    settings::set_store(cache::identity(client), None);
}
