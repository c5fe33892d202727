//! Lists of tensors that are scanned: the plan as data, its rules, its sentence and its choice.
//!
//! Each tensor has the plan of its scan alone, so its results have the same bits whatever else is
//! in the list. Tensors whose plans are equal share a launch, which binds a buffer for each of them
//! and one for all results.

use core::fmt;

use super::{ScanPlan, choose_scan};
use crate::{
    choose::{Choice, Explained},
    device::Device,
    error::PlanError,
    estimate::Estimate,
    illegal::Illegal,
    limits::needs_wide_indices,
    list::{KernelBuffers, estimate},
    plan::{
        Access,
        check::{fits_bindings, fits_grid},
    },
    problem::{Direction, ListScanProblem, ScanProblem},
    refusal::NoRefusal,
};

/// What will be launched for a list of tensors that are scanned on a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct ListScanPlan {
    /// Version of the planner that made the plan. See [`ListScanPlan::VERSION`].
    pub version: u32,
    /// The scans. An empty tensor is in none.
    pub scans: Vec<ListScanLaunch>,
}

/// Tensors that share a launch, or one that has launches of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct ListScanLaunch {
    /// How each of the tensors is scanned.
    pub scan: ScanPlan,
    /// Buffers of tensors that the kernel takes: one for each tensor, and others so that lists of
    /// several lengths share a kernel. Those past the last tensor repeat the first. A tensor that
    /// has launches of its own has one.
    pub buffers: usize,
    /// Indices of the tensors in the list.
    pub tensors: Vec<usize>,
}

impl ListScanLaunch {
    /// The scan of these tensors, whose kernel takes so many buffers of tensors.
    #[must_use]
    pub const fn new(scan: ScanPlan, buffers: usize, tensors: Vec<usize>) -> Self {
        Self { scan, buffers, tensors }
    }

    /// Whether several tensors share the launch. One tensor has the launches of its scan alone.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.tensors.len() > 1
    }

    /// Number of launches: 2 for one tensor whose rows are split into two.
    #[must_use]
    pub const fn launches(&self) -> u32 {
        if self.is_shared() { 1 } else { self.scan.launches() }
    }

    /// The tensors, of which the list has all.
    fn problems<'a>(
        &'a self,
        list: &'a ListScanProblem,
    ) -> impl Iterator<Item = &'a ScanProblem> + Clone {
        self.tensors.iter().filter_map(|&tensor| list.tensors().get(tensor))
    }

    /// The most kept, and the most scanned dimensions of a tensor that the kernel counts through:
    /// all but the inner one. Tensors with fewer have dimensions of extent 1 in their place.
    #[must_use]
    pub fn outer_dims(&self, list: &ListScanProblem) -> (usize, usize) {
        let dims = self.problems(list).map(|problem| outer_dims(&self.scan, problem));
        dims.fold((0, 0), |most, dims| (most.0.max(dims.0), most.1.max(dims.1)))
    }

    /// Number of cubes of a launch that several tensors share.
    #[must_use]
    pub fn cubes(&self, list: &ListScanProblem) -> u64 {
        let cubes = self.problems(list).map(|problem| self.scan.cubes(problem));
        cubes.fold(0, u64::saturating_add)
    }

    /// Elements that the results of the tensors span, for each result of the operator.
    fn elements(&self, list: &ListScanProblem) -> usize {
        self.problems(list).map(elements).fold(0, usize::saturating_add)
    }

    fn check(&self, list: &ListScanProblem, device: &Device) -> Result<(), PlanError> {
        let unfit = |reason| device.unfit(self, reason);
        let tensors = list.tensors();
        let Some(&first) = self.tensors.first() else {
            return Err(unfit(Illegal::ListedNothing));
        };
        for &tensor in &self.tensors {
            let Some(problem) = tensors.get(tensor) else {
                return Err(unfit(Illegal::NotListed { tensor, tensors: tensors.len() }));
            };
            if problem.is_empty() {
                return Err(unfit(Illegal::ListedTimes { tensor, times: 1 }));
            }
            self.scan.check(problem, device)?;
            if !self.is_shared() {
                let (found, needed) = ((self.buffers, 0), (1, 0));
                return match found == needed {
                    true => Ok(()),
                    false => Err(unfit(Illegal::ListedBuffers { found, needed })),
                };
            }
            if !may_share(&self.scan, problem) {
                return Err(unfit(Illegal::NotShared { tensor }));
            }
            if kernel(&self.scan, problem) != kernel(&self.scan, &tensors[first]) {
                return Err(unfit(Illegal::OtherKernel { tensor }));
            }
        }
        self.obeys_rules(list, device).map_err(unfit)
    }

    /// Checks a launch that several tensors share.
    fn obeys_rules(&self, list: &ListScanProblem, device: &Device) -> Result<(), Illegal> {
        let (buffers, tensors) = (self.buffers, self.tensors.len());
        let access = self.scan.access;
        if buffers < tensors {
            let as_elements = |buffers| if access.peeled { buffers } else { 0 };
            let found = (buffers, as_elements(buffers));
            return Err(Illegal::ListedBuffers { found, needed: (tensors, as_elements(tensors)) });
        }
        let (elements, max) = (self.elements(list), ListScanPlan::MOST_SHARED_ELEMENTS);
        if elements > max {
            return Err(Illegal::SharedElements { elements, max });
        }
        let beside = self.problems(list).map(|problem| beside_tensors(access, problem)).max();
        let bindings = buffers.saturating_mul(times_bound(access));
        fits_bindings(bindings.saturating_add(beside.unwrap_or(0)), device)?;
        fits_grid(self.cubes(list), false, device)
    }
}

impl ListScanPlan {
    /// The version that this planner makes and runs.
    pub const VERSION: u32 = 1;

    /// Most elements of each result of the tensors that share a launch. They lie in one buffer,
    /// which exists as long as any of them does, and which every device has: results of 8 bytes
    /// take 64 MiB. One H200 takes longer to read and write so many elements of f32 than its host
    /// takes for a launch, which is 5 to 7 us, so larger launches would save little.
    pub const MOST_SHARED_ELEMENTS: usize = 1 << 23;

    /// A plan of this version.
    #[must_use]
    pub const fn new(scans: Vec<ListScanLaunch>) -> Self {
        Self { version: Self::VERSION, scans }
    }

    /// Number of launches.
    #[must_use]
    pub fn launch_count(&self) -> usize {
        self.scans.iter().map(|launch| launch.launches() as usize).sum()
    }

    /// Checks that the plan computes `list` correctly on `device`. Plans from [`choose_list_scan`]
    /// always do.
    ///
    /// # Errors
    ///
    /// Those of [`ScanPlan::check`] for each tensor, a plan of another version, and one that breaks
    /// a rule of lists.
    pub fn check(&self, list: &ListScanProblem, device: &Device) -> Result<(), PlanError> {
        if self.version != Self::VERSION {
            return Err(PlanError::Version { found: self.version, expected: Self::VERSION });
        }
        self.scans.iter().try_for_each(|launch| launch.check(list, device))?;
        let mut times = vec![0; list.tensors().len()];
        for &tensor in self.scans.iter().flat_map(|launch| &launch.tensors) {
            times[tensor] += 1;
        }
        for ((tensor, problem), times) in list.tensors().iter().enumerate().zip(times) {
            if times != usize::from(!problem.is_empty()) {
                return Err(device.unfit(self, Illegal::ListedTimes { tensor, times }));
            }
        }
        Ok(())
    }

    /// What the plan should take for `list` on `device`: the bytes at the bandwidth, and the
    /// launches.
    #[must_use]
    pub fn estimate(&self, list: &ListScanProblem, device: &Device) -> Estimate {
        estimate(self.launch_count(), list.bytes(), device)
    }
}

impl Explained for ListScanPlan {
    type Refusal = NoRefusal;
}

/// Chooses a plan for a list of tensors that are scanned on a device.
///
/// # Errors
///
/// Those of [`choose_scan`] for each tensor.
pub fn choose_list_scan(
    list: &ListScanProblem,
    device: &Device,
) -> Result<Choice<ListScanPlan>, PlanError> {
    // 1. Each tensor has the plan of its scan alone. Those that one kernel can scan, and that need
    // no launches of their own, are a group.
    let mut groups: Vec<ListScanLaunch> = Vec::new();
    for (tensor, problem) in list.tensors().iter().enumerate() {
        if problem.is_empty() {
            continue;
        }
        let scan = choose_scan(problem, device)?.plan;
        let fits = |group: &&mut ListScanLaunch| {
            let first = &list.tensors()[group.tensors[0]];
            group.scan == scan
                && may_share(&scan, problem)
                && may_share(&scan, first)
                && kernel(&scan, problem) == kernel(&scan, first)
        };
        match groups.iter_mut().find(fits) {
            Some(group) => group.tensors.push(tensor),
            None => groups.push(ListScanLaunch::new(scan, 1, vec![tensor])),
        }
    }

    // 2. Each group takes as few launches as the device's bindings and the size of one buffer
    // allow.
    let scans = groups.iter().flat_map(|group| launches(group, list, device)).collect();
    let plan = ListScanPlan::new(scans);
    plan.check(list, device)?;
    let estimate = plan.estimate(list, device);
    Ok(Choice::only(plan, estimate))
}

/// The launches of a group.
fn launches(
    group: &ListScanLaunch,
    list: &ListScanProblem,
    device: &Device,
) -> Vec<ListScanLaunch> {
    let (scan, first) = (group.scan, &list.tensors()[group.tensors[0]]);
    let invariant = first.problem().numerics().is_batch_invariant();
    let available =
        (device.max_bindings as usize).saturating_sub(beside_tensors(scan.access, first));
    let each = times_bound(scan.access);
    let numbers = KernelBuffers::new(each, invariant, available, device);
    let launch = |tensors: Vec<usize>| {
        let buffers = if tensors.len() > 1 { numbers.for_tensors(tensors.len()) } else { 1 };
        ListScanLaunch::new(scan, buffers, tensors)
    };
    let (mut launches, mut tensors, mut total) = (Vec::new(), Vec::new(), 0usize);
    for &tensor in &group.tensors {
        let own = elements(&list.tensors()[tensor]);
        total = total.saturating_add(own);
        let is_full = tensors.len() == numbers.most || total > ListScanPlan::MOST_SHARED_ELEMENTS;
        if is_full && !tensors.is_empty() {
            launches.push(launch(core::mem::take(&mut tensors)));
            total = own;
        }
        tensors.push(tensor);
    }
    launches.push(launch(tensors));
    launches
}

/// Elements that each result of a tensor spans.
fn elements(problem: &ScanProblem) -> usize {
    problem.problem().output_span()
}

/// Whether a tensor may share a launch: its rows have one cube each and nothing before them, and
/// indices of 32 bits count all its elements.
fn may_share(plan: &ScanPlan, problem: &ScanProblem) -> bool {
    let of_row = problem.problem();
    plan.cubes_per_output == 1
        && problem.earlier().is_none()
        && !of_row.is_shard()
        && !needs_wide_indices(of_row)
        && elements(problem) <= ListScanPlan::MOST_SHARED_ELEMENTS
}

/// What the kernel that scans a tensor by this plan is generated for, beside the plan. Tensors
/// share a kernel if it is equal.
fn kernel<'a>(plan: &ScanPlan, problem: &'a ScanProblem) -> impl PartialEq + use<'a> {
    let of_row = problem.problem();
    let types = (of_row.operator(), of_row.input(), of_row.results());
    let order = (problem.is_exclusive(), problem.is_reverse());
    let chunks = (plan.loads_ahead(problem), plan.adds_many_chunks(problem));
    let stores = plan.stores_vectors(problem, Access::WIDEST_STORE);
    // A row of one dimension needs no division, so its kernel has none.
    let divides = outer_dims(plan, problem).1 > 0;
    (types, order, chunks, stores, divides)
}

/// The kept and the scanned dimensions of a tensor without the inner one.
fn outer_dims(plan: &ScanPlan, problem: &ScanProblem) -> (usize, usize) {
    let (kept, scanned) = (problem.problem().kept().len(), problem.problem().reduced().len());
    match plan.access.direction {
        Direction::Along => (kept, scanned.saturating_sub(1)),
        Direction::Across => (kept.saturating_sub(1), scanned),
    }
}

/// How often a launch binds a tensor, or a result: as vectors, and also as elements where rows
/// begin and end inside vectors.
fn times_bound(access: Access) -> usize {
    1 + usize::from(access.peeled)
}

/// Buffers that a launch binds beside those of tensors: the results and the table.
fn beside_tensors(access: Access, problem: &ScanProblem) -> usize {
    problem.problem().results().len() * times_bound(access) + 1
}

impl fmt::Display for ListScanLaunch {
    /// Such as `40 tensors in one launch: scan by a plane: ...`, or `tensor 7 alone: ...`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tensors[..] {
            [tensor] => write!(f, "tensor {tensor} alone: {}", self.scan),
            tensors => write!(f, "{} tensors in one launch: {}", tensors.len(), self.scan),
        }
    }
}

impl fmt::Display for ListScanPlan {
    /// One line, such as `list of scans: 2 launches; 40 tensors in one launch: scan by a plane: 16
    /// units per output in planes of 16, 8 outputs per cube; vectors of 4 along the reduction, 1
    /// load in flight; tensor 7 alone: ...`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let launches = self.launch_count();
        let plural = if launches == 1 { "" } else { "es" };
        write!(f, "list of scans: {launches} launch{plural}")?;
        self.scans.iter().try_for_each(|launch| write!(f, "; {launch}"))
    }
}
