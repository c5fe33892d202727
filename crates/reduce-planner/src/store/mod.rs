//! Plans that were measured, kept in a file from one process to the next.

mod error;
mod file;
mod format;
mod signature;

use std::{collections::BTreeSet, path::Path};

use serde::{Deserialize, Serialize};

pub use error::StoreError;
use file::Locked;
use format::Plans;
use signature::DeviceSignature;

use crate::{
    device::Device,
    plan::Plan,
    planned::{AnyPlan, Planned},
};

/// A plan that was found by measuring, and what was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TunedPlan<P = Plan> {
    /// The plan.
    pub plan: P,
    /// Time of the plan, in nanoseconds.
    pub measured_ns: u64,
    /// Time of the plan that was [chosen](Planned::choose) without measuring, in nanoseconds.
    pub untuned_ns: u64,
}

impl<P> TunedPlan<P> {
    /// A plan that took `measured_ns`, where the untuned choice took `untuned_ns`.
    #[must_use]
    pub const fn new(plan: P, measured_ns: u64, untuned_ns: u64) -> Self {
        Self { plan, measured_ns, untuned_ns }
    }

    /// The same times with the plan as another type.
    fn with_plan<Q>(&self, plan: Q) -> TunedPlan<Q> {
        TunedPlan { plan, measured_ns: self.measured_ns, untuned_ns: self.untuned_ns }
    }
}

/// Measured plans for the problems of one device, of all kinds.
///
/// A store is one JSON file. Its keys are the [lines](Planned::line) of the problems, in order, so
/// the same plans always make the same file, and version control shows what changed. It is valid
/// for the version of this crate and for the device that it was written with. What is compared of a
/// device is its name and the facts of its hardware and runtime. Its tuning, its element types and
/// its profile may differ.
///
/// ```
/// use reduce_planner::*;
///
/// # let folder = std::env::temp_dir().join(format!("reduce-planner-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("plans.json");
/// let device = Device::h200();
/// let input = InputSpec {
///     element: ElementType::F32,
///     shape: &[8192, 8192],
///     strides: &[8192, 1],
///     alignment: 256,
/// };
/// let output = OutputSpec { elements: &[ElementType::F32], strides: None };
/// let problem = Problem::new(OperatorClass::new("sum", 4), &input, Some(&[1]), &output)?;
///
/// // A tuner measures the candidates, and saves the best.
/// let best = candidates(&problem, &device)?[0].plan;
/// let mut store = PlanStore::new(&device);
/// store.insert(&problem, &device, TunedPlan::new(best, 61_200, 63_000))?;
/// store.merge_into_file(&path)?;
///
/// // Another process starts with what was saved, or with `parse(include_str!("plans.json"), ..)`.
/// let store = PlanStore::read(&path, &device)?;
/// let plan = match store.plan_for(&problem, &device) {
///     Some(plan) => plan,
///     None => choose(&problem, &device)?.plan,
/// };
/// assert_eq!(plan, best);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStore {
    device: DeviceSignature,
    plans: Plans,
    /// The problems whose plans were inserted since the store was read or merged into a file.
    inserted: BTreeSet<String>,
}

/// The texts of the stores in `plans/`.
const SHIPPED: [&str; 1] = [include_str!("../../plans/nvidia_h200_cuda.json")];

impl PlanStore {
    /// The store that comes with this crate for a device like this one, if there is one.
    ///
    /// There is one for an NVIDIA H200 through CUDA, with plans for cases of the benchmarks that
    /// were measured on it. A store knows a device by its numbers and by its runtime, not by its
    /// name. Those of an H100 are the same, so an H100 gets it too.
    ///
    /// ```
    /// use reduce_planner::{Device, PlanStore};
    ///
    /// let mut device = Device::h200();
    /// device.name = "cuda".into(); // as `reduce_kernels::device_of` calls it
    /// assert!(!PlanStore::shipped(&device).unwrap().is_empty());
    /// assert_eq!(PlanStore::shipped(&Device::m2_max()), None);
    /// ```
    #[must_use]
    pub fn shipped(device: &Device) -> Option<Self> {
        SHIPPED.iter().find_map(|text| Self::parse(text, device).ok())
    }

    /// A store without plans.
    #[must_use]
    pub fn new(device: &Device) -> Self {
        let device = DeviceSignature::of(device);
        Self { device, plans: Plans::new(), inserted: BTreeSet::new() }
    }

    /// Reads a file of plans that were measured on `device`.
    ///
    /// # Errors
    ///
    /// The file cannot be read ([`StoreError::is_missing_file`] if there is none), or an error of
    /// [`parse`](Self::parse).
    pub fn read(path: impl AsRef<Path>, device: &Device) -> Result<Self, StoreError> {
        Self::parse(&file::read(path.as_ref())?, device)
    }

    /// Reads the text of a store with plans that were measured on `device`.
    ///
    /// The text may come from anywhere. What the plans compute is checked when one is asked for.
    ///
    /// # Errors
    ///
    /// The store is refused whole if its text is damaged or too long, or if another version or
    /// another device wrote it. See [`StoreError`].
    pub fn parse(text: &str, device: &Device) -> Result<Self, StoreError> {
        let device = DeviceSignature::of(device);
        let plans = format::parse(text, &device)?;
        Ok(Self { device, plans, inserted: BTreeSet::new() })
    }

    /// The plan for a problem, or `None` if there is none, if it may not run ([`Planned::check`]),
    /// or if the store is that of another device. The caller then [chooses](Planned::choose) a
    /// plan.
    #[must_use]
    pub fn plan_for<P: Planned>(&self, problem: &P, device: &Device) -> Option<P::Plan> {
        let plan = self.get(problem)?.plan;
        let fits =
            DeviceSignature::of(device) == self.device && problem.check(&plan, device).is_ok();
        fits.then_some(plan)
    }

    /// Checks that the plans were measured on a device like this one.
    ///
    /// # Errors
    ///
    /// [`StoreError::OtherDevice`], with the first field that differs.
    pub fn check_device(&self, device: &Device) -> Result<(), StoreError> {
        DeviceSignature::of(device).check(&self.device)
    }

    /// What the store has for a problem. The plan is not checked.
    #[must_use]
    pub fn get<P: Planned>(&self, problem: &P) -> Option<TunedPlan<P::Plan>> {
        let tuned = self.plans.get(&problem.line())?;
        let plan = P::Plan::try_from(tuned.plan.clone()).ok()?;
        Some(tuned.with_plan(plan))
    }

    /// Puts a plan in place of what the store has for the problem.
    ///
    /// # Errors
    ///
    /// The store is that of another device, or the plan may not run on it.
    pub fn insert<P: Planned>(
        &mut self,
        problem: &P,
        device: &Device,
        tuned: TunedPlan<P::Plan>,
    ) -> Result<(), StoreError> {
        self.check_device(device)?;
        problem.check(&tuned.plan, device)?;
        let line = problem.line();
        self.inserted.insert(line.clone());
        self.plans.insert(line, tuned.with_plan(tuned.plan.clone().into()));
        Ok(())
    }

    /// The lines of the problems with their plans, in order. The plans are not checked.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &TunedPlan<AnyPlan>)> {
        self.plans.iter().map(|(line, tuned)| (line.as_str(), tuned))
    }

    /// Number of plans.
    #[must_use]
    pub fn len(&self) -> usize {
        self.plans.len()
    }

    /// Whether the store has no plans.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.plans.is_empty()
    }

    /// The text of the store, which [`parse`](Self::parse) reads.
    ///
    /// # Errors
    ///
    /// [`StoreError::TooLong`].
    pub fn to_json(&self) -> Result<String, StoreError> {
        format::write(&self.device, &self.plans)
    }

    /// Adds the plans of the store to those of a file, and takes over the others that the file has.
    /// The file is created if there is none.
    ///
    /// Processes that do this at the same time wait for each other, and lose no plan. If several
    /// have inserted a plan for one problem, the last to merge wins. A plan that was only read, or
    /// merged before, never replaces one in the file, which may be newer. The file is replaced
    /// whole: a reader never sees a part of it. A file `<name>.lock` stays beside it.
    ///
    /// # Errors
    ///
    /// A file system refuses, or the file is one that [`read`](Self::read) refuses: damaged, of
    /// another version or of another device. The file and the store then stay as they are.
    pub fn merge_into_file(&mut self, path: impl AsRef<Path>) -> Result<(), StoreError> {
        let file = Locked::wait(path.as_ref())?;
        let old = file.read()?;
        let mut plans = match &old {
            Some(text) => format::parse(text, &self.device)?,
            None => Plans::new(),
        };
        for (line, tuned) in &self.plans {
            if self.inserted.contains(line) || !plans.contains_key(line) {
                plans.insert(line.clone(), tuned.clone());
            }
        }
        let text = format::write(&self.device, &plans)?;
        if old.as_ref() != Some(&text) {
            file.replace(&text)?;
        }
        self.plans = plans;
        self.inserted.clear();
        Ok(())
    }
}
