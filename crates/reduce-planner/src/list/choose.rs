//! The choice of a plan for a list, step by step. Read [`choose_list`] from top to bottom.

use super::plan::{ListLaunch, ListPlan, ListShare, beside_tensors, outer_dims};
use crate::{
    choose::{Choice, Explained, cubes_wanted, floor_power_of_two},
    device::Device,
    element::ElementType,
    error::PlanError,
    estimate::Estimate,
    illegal::Illegal,
    limits::{self, INDEX_SLACK},
    plan::{Access, Combine},
    problem::{ListProblem, Problem},
    refusal::NoRefusal,
};

impl Explained for ListPlan {
    type Refusal = NoRefusal;
}

/// Tensors that one kernel can read: of one type, with one access and as many outer dimensions.
pub(super) struct Group {
    element: ElementType,
    access: Access,
    outer_dims: usize,
    /// Index and loads of each tensor.
    tensors: Vec<(usize, u64)>,
}

/// Chooses a plan for a list of tensors on a device.
///
/// # Errors
///
/// The description of the device makes no sense, the device lacks an element type or wide indices,
/// or it binds too few buffers. See [`PlanError`].
pub fn choose_list(list: &ListProblem, device: &Device) -> Result<Choice<ListPlan>, PlanError> {
    choose_list_in(Waves::One, list, device)
}

/// Whether cubes that would be a little more than reside together are half as many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waves {
    /// They are ([`in_one_wave`]).
    One,
    /// All units have about as many loads.
    Any,
}

/// [`choose_list`] with so many waves.
pub(super) fn choose_list_in(
    waves: Waves,
    list: &ListProblem,
    device: &Device,
) -> Result<Choice<ListPlan>, PlanError> {
    let tuning = device.tuning.list;

    // 1. No plan can run a type that the device lacks, or indices that are too narrow.
    limits::check_list(list, device)?;

    // 2. One kernel reads all tensors of a type that are without gaps and aligned. Others are read
    //    with their strides, or element by element.
    let mut groups = grouped(list, |tensor| Access::for_list(tensor, device));

    // 3. All cubes have about as many loads, however large their tensors are: few enough that the
    //    cubes fill the device, and many enough that partials are few.
    //    Where a tensor's bits must not depend on the others, units have their most loads.
    let invariant = list.numerics().is_batch_invariant();
    let wanted = if invariant { tuning.units_per_cube } else { wanted_units(list, device) };
    let units = units_per_cube(list, device, wanted);
    let each = match invariant {
        true => tuning.most_loads_per_unit,
        false => loads_per_unit(&mut groups, units, device),
    };
    let each = match (invariant, waves) {
        (false, Waves::One) => in_one_wave(each, &groups, units, device),
        _ => each,
    };

    // 4. Each group takes as few launches as the device's bindings and the tuning allow.
    let available = (device.max_bindings as usize).saturating_sub(beside_tensors(list));
    let launches = launches(&groups, list, units, each, available, device);

    // 5. The last launch has enough units to merge the partials of all tensors.
    let partials: u64 = launches.iter().map(ListLaunch::cubes).sum();
    let wanted = partials.div_ceil(tuning.partials_per_merging_unit).next_power_of_two();
    let wanted = if invariant { tuning.units_per_cube.into() } else { wanted };
    let wanted = wanted.max(device.plane_size_max.into()).min(device.max_units_per_cube.into());
    let merging_units = units_per_cube(list, device, wanted as u32);
    let lanes = device.plane_size_min.max(1);
    let combine = match device.plane_operations && merging_units.min(units) >= lanes {
        true => Combine::Plane { lanes },
        false => Combine::Shared,
    };
    let plan = ListPlan {
        version: ListPlan::VERSION,
        units_per_cube: units,
        combine,
        launches,
        merging_units,
        numerics: list.numerics(),
    };
    plan.check_rules(list, device)?;
    let estimate = plan.estimate(list, device);
    Ok(Choice::only(plan, estimate))
}

/// Everything of a plan that the bits of each tensor's results depend on: the elements of a load,
/// the loads of a block and the cubes of the tensor, for each of them.
fn trees(plan: &ListPlan, list: &ListProblem) -> Vec<(usize, usize, usize, u32)> {
    let block = |access: Access| match list.operator().blockwise {
        true => access.loads_in_flight,
        false => 1,
    };
    let of_launch = |launch: &ListLaunch| {
        let access = launch.access;
        let tree =
            move |share: &ListShare| (share.tensor, access.vector, block(access), share.cubes);
        launch.tensors.iter().map(tree).collect::<Vec<_>>()
    };
    let mut trees: Vec<_> = plan.launches.iter().flat_map(of_launch).collect();
    trees.sort_unstable();
    trees
}

impl ListPlan {
    /// Checks that the plan computes `list` correctly on `device`. Plans from [`choose_list`]
    /// always do.
    ///
    /// # Errors
    ///
    /// The plan is of another version, the device lacks what the list needs, the plan breaks a
    /// rule, or it gives other bits than it promises.
    pub fn check(&self, list: &ListProblem, device: &Device) -> Result<(), PlanError> {
        self.check_rules(list, device)?;
        let numerics = self.numerics;
        if !numerics.is_batch_invariant() {
            return Ok(());
        }
        let chosen = choose_list(&list.clone().with_numerics(numerics), device)?.plan;
        let units = |plan: &Self| (plan.units_per_cube, plan.combine, plan.merging_units);
        match units(self) == units(&chosen) && trees(self, list) == trees(&chosen, list) {
            true => Ok(()),
            false => Err(device.unfit(self, Illegal::OtherBits { numerics })),
        }
    }

    /// What the plan should take for `list` on `device`: the bytes at the bandwidth, and the
    /// launches.
    #[must_use]
    pub fn estimate(&self, list: &ListProblem, device: &Device) -> Estimate {
        estimate(self.launch_count(), list.bytes(), device)
    }
}

/// About as many loads for each unit of all cubes. Units have no more in flight.
pub(super) fn loads_per_unit(groups: &mut [Group], units: u32, device: &Device) -> u64 {
    let tuning = device.tuning.list;
    let tensors = groups.iter().flat_map(|group| &group.tensors);
    let loads = tensors.fold(0u64, |sum, &(_, loads)| sum.saturating_add(loads));
    let cubes = cubes_wanted(device, tuning.cubes_per_multiprocessor);
    let each = loads.div_ceil(cubes * u64::from(units)).clamp(1, tuning.most_loads_per_unit);
    for group in groups {
        let in_flight = group.access.loads_in_flight.min(each.next_power_of_two() as usize);
        group.access = group.access.with_loads_in_flight(in_flight);
    }
    each
}

/// Twice as many loads for each unit, if half of the cubes then reside together and the last of all
/// would begin when the first have ended.
///
/// On one H200, any_non_finite of 36 tensors of bf16, 168 million elements, took 96.5 us in 1292
/// cubes of 128 units, of which 2112 reside, and 108 in 2572; norm_l2 of 108 tensors of bf16, 151
/// million elements, 87.1 in 1188 and 103 in 2340; any_non_finite of 108 tensors of f32, 126 million
/// elements, 170 in 996 cubes of 256, of which 1056 reside, and 193 in 1956; of 18, 101 million, 101
/// in 774 and 106 in 1542.
///
/// Where half of the cubes do not reside together either, they are no faster: any_non_finite of 72
/// tensors of bf16, 336 million elements, took 202 us in 5144 cubes of 128 units and 225 in 2584,
/// sums of 36 tensors of f32, 168 million, 174 in 2572 of 256 and 181 in 1292, and their norm 187
/// and 185. Others took 234 in 1464 of 256 and 235 in 2904, 748 in 6156 and 731 in 12,300.
fn in_one_wave(each: u64, groups: &[Group], units: u32, device: &Device) -> u64 {
    // Each tensor has cubes of its own, the last of which has fewer loads.
    let cubes = |each: u64| {
        let of_cube = each.saturating_mul(u64::from(units)).max(1);
        let loads = groups.iter().flat_map(|group| &group.tensors).map(|&(_, loads)| loads);
        loads.fold(0u64, |sum, loads| sum.saturating_add(loads.div_ceil(of_cube)))
    };
    let of_multiprocessor = device.units_per_multiprocessor / units.max(1);
    let of_multiprocessor = of_multiprocessor.min(device.cubes_per_multiprocessor).max(1);
    let resident = cubes_wanted(device, of_multiprocessor).max(1);
    let twice = each.saturating_mul(2);
    let waits = cubes(each).saturating_mul(10) >= resident.saturating_mul(11);
    if waits && cubes(twice) <= resident { twice } else { each }
}

/// The launches of all groups, each of which may bind so many buffers of tensors.
pub(super) fn launches(
    groups: &[Group],
    list: &ListProblem,
    units: u32,
    each: u64,
    available: usize,
    device: &Device,
) -> Vec<ListLaunch> {
    let launches_of = |group: &Group| {
        let shares: Vec<ListShare> =
            group.tensors.iter().map(|&share| shared(share, units, each, group.access)).collect();
        let has_tail = |&(nth, _): &(usize, u64)| group.access.leaves_tail(&list.tensors()[nth]);
        let each = if group.tensors.iter().any(has_tail) { 2 } else { 1 };
        let invariant = list.numerics().is_batch_invariant();
        let numbers = KernelBuffers::new(each, invariant, available, device);
        let count = shares.len().div_ceil(numbers.most);
        let length = shares.len().div_ceil(count);
        let (access, outer_dims) = (group.access, group.outer_dims);
        let launch = |tensors: &[_]| {
            let launch = ListLaunch::new(access, outer_dims, tensors.to_vec());
            let tails = launch.tails(list);
            launch.with_buffers(numbers.for_tensors(tensors.len()), numbers.for_tensors(tails))
        };
        shares.chunks(length).map(launch).collect::<Vec<_>>()
    };
    groups.iter().flat_map(launches_of).collect()
}

/// The tensors that are not empty, by what one kernel can read, in the order of the list.
pub(super) fn grouped(list: &ListProblem, access: impl Fn(&Problem) -> Access) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (nth, tensor) in list.tensors().iter().enumerate() {
        if tensor.reduction_len() == 0 {
            continue;
        }
        let access = access(tensor);
        let element = tensor.input();
        let dims = outer_dims(tensor);
        let share = (nth, access.loads_per_output(tensor).max(1));
        let found = groups.iter_mut().find(|group| {
            group.element == element
                && group.access == access
                && (group.outer_dims > 0) == (dims > 0)
        });
        match found {
            Some(group) => {
                group.outer_dims = group.outer_dims.max(dims);
                group.tensors.push(share);
            }
            None => groups.push(Group { element, access, outer_dims: dims, tensors: vec![share] }),
        }
    }
    groups
}

/// The cubes of a tensor, each of whose units has about `each` loads.
fn shared((tensor, loads): (usize, u64), units: u32, each: u64, access: Access) -> ListShare {
    let units = u64::from(units);
    // Indices leave room for the loads that cubes are ahead of the last.
    let most = INDEX_SLACK / (units * access.loads_in_flight as u64);
    let cubes = loads.div_ceil(units * each).clamp(1, most.max(1));
    ListShare::new(tensor, cubes as u32)
}

/// Most tensors of a launch, and fewest buffers of a kernel, for bits that depend on no other
/// tensor. Whoever asks for them calls with other numbers of tensors and minds the compilation, so
/// all numbers share two kernels. The figures at `ListTuning::tensors_per_launch` bound the cost:
/// 162 small tensors take 56 us in three launches, where one takes 42.
const INVARIANT_BUFFERS: (usize, usize) = (64, 16);

/// The numbers of buffers that kernels for a list are compiled for.
pub(crate) struct KernelBuffers {
    /// Most tensors of one launch, and the buffers of the largest kernel.
    pub(crate) most: usize,
    /// Buffers of the smaller of two kernels. Without it, there are kernels for powers of two and
    /// for multiples of 8.
    few: Option<usize>,
}

impl KernelBuffers {
    /// The numbers for launches that may bind so many buffers of tensors, `each` of them for one
    /// tensor. The bits of an `invariant` tensor depend on no other.
    pub(crate) fn new(each: usize, invariant: bool, available: usize, device: &Device) -> Self {
        let (mut most, mut few) = (device.tuning.list.tensors_per_launch, None);
        if invariant {
            let (largest, smaller) = INVARIANT_BUFFERS;
            most = most.min(largest);
            few = Some(smaller);
        }
        let available = (available / each).min(most).max(1);
        match few {
            // The check refuses a device that binds too few.
            Some(few) => Self { most: available, few: Some(few.min(available)) },
            None => {
                let numbers = Self { most: available, few };
                // The largest number that is not rounded up.
                let most =
                    (1..=available).rev().find(|&most| numbers.for_tensors(most) <= available);
                Self { most: most.unwrap_or(1), few }
            }
        }
    }

    /// The buffers of the kernel that takes so many tensors.
    pub(crate) fn for_tensors(&self, tensors: usize) -> usize {
        match (tensors, self.few) {
            (0, _) => 0,
            (_, Some(few)) if tensors <= few => few,
            (_, Some(_)) => self.most,
            (1..=8, None) => tensors.next_power_of_two(),
            (_, None) => tensors.next_multiple_of(8),
        }
    }
}

/// The units that a cube should have.
pub(super) fn wanted_units(list: &ListProblem, device: &Device) -> u32 {
    let narrow = |tensor: &Problem| tensor.input().bytes() < size_of::<f32>();
    match list.tensors().iter().all(narrow) {
        true => device.tuning.list.narrow_units_per_cube,
        false => device.tuning.list.units_per_cube,
    }
}

/// Units of a cube, up to `wanted`, whose accumulators fit shared memory.
fn units_per_cube(list: &ListProblem, device: &Device, wanted: u32) -> u32 {
    let by_memory = device.shared_memory_bytes / list.operator().accumulator_bytes.max(1);
    let most = (by_memory as u64).min(device.max_units_per_cube.into());
    floor_power_of_two(most.min(wanted.into())) as u32
}

/// What so many launches should take, one after the other, that move so many bytes once.
pub(crate) fn estimate(launches: usize, bytes: u64, device: &Device) -> Estimate {
    let profile = &device.profile;
    let bandwidth = profile.bandwidth.max(1) as f64 * 1e-9;
    let launches = launches as f64;
    Estimate::streamed(
        launches * profile.launch_ns as f64,
        launches * profile.gap_ns as f64,
        2.0 * profile.latency_ns as f64,
        bytes as f64 / bandwidth,
        1.0,
    )
}
