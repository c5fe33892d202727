//! What the process has set: what bits may depend on, which each request takes with it; and for
//! each of its devices its profile, whether cubes may wait for others, the store whose plans are
//! used, and whether reductions are recorded. Threads ask for these when they prepare a reduction,
//! and never when they repeat one.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use reduce_planner::{Device, Numerics, Planned, Profile};

/// What the bits of results may depend on, as far as calls do not say.
static NUMERICS: AtomicU8 = AtomicU8::new(0);

/// What the bits of results may depend on where a call does not say.
pub(crate) fn numerics() -> Numerics {
    let place = usize::from(NUMERICS.load(Ordering::Relaxed));
    Numerics::ALL.get(place).copied().unwrap_or_default()
}

/// Sets what the bits of results may depend on where a call does not say. Requests carry their
/// numerics, so nothing that was prepared becomes wrong.
pub(crate) fn set_numerics(numerics: Numerics) {
    let place = Numerics::ALL.iter().position(|&other| other == numerics);
    NUMERICS.store(place.unwrap_or(0) as u8, Ordering::Relaxed);
}

/// Counts the changes of the settings.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The number of the settings. What was prepared under another number may have another plan now, or
/// may not have been recorded.
///
/// A thread that reads a number sees at least the settings of that number.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Acquire)
}

/// What the plans for a device rest on beside its own facts.
#[derive(Default)]
struct Planning {
    profile: Option<Profile>,
    forbids_waiting: bool,
}

/// What the process has set for its devices, by the identity of their clients.
static PLANNING: Mutex<BTreeMap<usize, Planning>> = Mutex::new(BTreeMap::new());

fn planning() -> MutexGuard<'static, BTreeMap<usize, Planning>> {
    // No change can be left half done by a panic.
    PLANNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Changes what plans for a device rest on, and with it the generation.
fn change_planning(client: usize, change: impl FnOnce(&mut Planning)) {
    let mut planning = planning();
    change(planning.entry(client).or_default());
    GENERATION.fetch_add(1, Ordering::Release);
}

/// Sets the profile of a device, or takes it away.
pub(crate) fn set_profile(client: usize, profile: Option<Profile>) {
    change_planning(client, |planning| planning.profile = profile);
}

/// Forbids plans whose cubes wait for others, or allows them again.
pub(crate) fn set_forbids_waiting(client: usize, forbid: bool) {
    change_planning(client, |planning| planning.forbids_waiting = forbid);
}

/// Applies what was set to the description of a device.
pub(crate) fn apply_to(device: &mut Device, client: usize) {
    let planning = planning();
    let Some(Planning { profile, forbids_waiting }) = planning.get(&client) else { return };
    if let Some(profile) = profile {
        device.profile = profile.clone();
    }
    if *forbids_waiting {
        device.tuning.applied.cubes_wait = false;
    }
}

#[cfg(feature = "serde")]
pub(crate) use with_stores::*;
#[cfg(not(feature = "serde"))]
pub(crate) use without_stores::*;

/// Without the feature `serde`, there are no stores.
#[cfg(not(feature = "serde"))]
mod without_stores {
    use super::*;

    #[derive(Debug)]
    pub(crate) enum PlanStore {}

    impl PlanStore {
        pub(crate) fn plan_for<P: Planned>(&self, _: &P, _: &Device) -> Option<P::Plan> {
            match *self {}
        }
    }

    pub(crate) fn stored_plan<P: Planned>(_: usize, _: &P, _: &Device) -> Option<P::Plan> {
        None
    }
}

#[cfg(feature = "serde")]
mod with_stores {
    use std::{collections::HashSet, sync::Arc};

    pub(crate) use reduce_planner::PlanStore;

    use super::*;
    use crate::recorded::RecordedCall;

    /// Most calls that are recorded for a device, for applications whose shapes never end.
    pub(crate) const MOST_RECORDED: usize = 1 << 16;

    /// The settings of a device.
    #[derive(Default)]
    struct Settings {
        store: Option<Arc<PlanStore>>,
        recording: bool,
        recorded: Recorded,
    }

    /// What was recorded: in order, and for finding out whether it is there.
    #[derive(Default)]
    struct Recorded {
        list: Vec<RecordedCall>,
        known: HashSet<RecordedCall>,
    }

    /// The settings of each device, by the identity of its client.
    static SETTINGS: Mutex<BTreeMap<usize, Settings>> = Mutex::new(BTreeMap::new());

    fn settings() -> MutexGuard<'static, BTreeMap<usize, Settings>> {
        // No change of the settings can be left half done by a panic.
        SETTINGS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the settings of a device, and with them the generation.
    fn change(client: usize, change: impl FnOnce(&mut Settings)) {
        let mut settings = settings();
        change(settings.entry(client).or_default());
        GENERATION.fetch_add(1, Ordering::Release);
    }

    /// Sets the store of a device.
    pub(crate) fn set_store(client: usize, store: Option<PlanStore>) {
        change(client, |settings| settings.store = store.map(Arc::new));
    }

    /// The stored plan for a problem, if it may run on the device.
    pub(crate) fn stored_plan<P: Planned>(
        client: usize,
        problem: &P,
        device: &Device,
    ) -> Option<P::Plan> {
        let store = settings().get(&client)?.store.clone()?;
        store.plan_for(problem, device)
    }

    /// Begins or ends recording. It begins with an empty list.
    pub(crate) fn set_recording(client: usize, recording: bool) {
        change(client, |settings| {
            if recording && !settings.recording {
                settings.recorded = Recorded::default();
            }
            settings.recording = recording;
        });
    }

    /// Records a call, if its device records and does not have it.
    pub(crate) fn record(client: usize, call: impl FnOnce() -> Option<RecordedCall>) {
        let mut settings = settings();
        let Some(settings) = settings.get_mut(&client).filter(|settings| settings.recording) else {
            return;
        };
        let Recorded { list, known } = &mut settings.recorded;
        if list.len() < MOST_RECORDED {
            let Some(call) = call() else { return };
            if known.insert(call.clone()) {
                list.push(call);
            }
        }
    }

    /// What was recorded for a device, in the order in which it was first prepared.
    pub(crate) fn recorded(client: usize) -> Vec<RecordedCall> {
        settings().get(&client).map_or_else(Vec::new, |settings| settings.recorded.list.clone())
    }
}
