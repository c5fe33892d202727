//! The choice of a plan whose bits do not depend on the number of outputs.
//!
//! What the bits depend on is a [`Tree`]: how many units of how many cubes share an output, and how
//! many elements they load at a time. It must follow from the slice alone, and serve one output as
//! well as thousands. So the plans that a search finds for several numbers of outputs are compared
//! for all of these numbers, and the one is taken whose worst estimate is the least behind the best
//! plan for that number. The problem's own plan has the same tree. Its other numbers are free: how
//! wide vectors across outputs are, who merges.

use super::{
    Accesses, Choice, Search,
    access::widest_vector,
    cost::Costs,
    sizing::{FEW_FIELDS, cubes_wanted, units_limit},
};
use crate::{
    device::Device,
    error::PlanError,
    illegal::Illegal,
    kind::ScheduleKind,
    limits,
    numbers::from_percent,
    numerics::Numerics,
    plan::{
        Access, Combine, Merge, Plan, Schedule, Tree,
        check::{check_access, check_schedule},
    },
    problem::{Direction, Problem, Reproducible},
    refusal::{Reason, Refusal},
};

/// Chooses the plan for a problem whose bits must not depend on the number of outputs.
pub(super) fn choose(problem: &Problem, device: &Device) -> Result<Choice, PlanError> {
    limits::check(problem, device)?;
    let plan = fitted(&model(problem, device)?, problem, device)?;
    let estimate = plan.estimate(problem, device);
    let others = ScheduleKind::ALL.into_iter().filter(|&kind| kind != plan.schedule.kind());
    let refused = others.map(|kind| Refusal::new(kind, other_bits(&plan))).collect();
    Ok(Choice { plan, estimate, refused, runners_up: Vec::new() })
}

/// The problem that stands for all with the same slices: their plans are its plan, fitted.
pub(crate) fn representative(problem: &Problem, device: &Device) -> Problem {
    let access = reference_access(problem, device);
    let widest = widest_vector(problem, device);
    let of = |outputs: usize| problem.reference(outputs, access.rows_aligned_to(), widest);
    let outputs = representative_outputs(device, |outputs| of(outputs).index_span());
    of(outputs).with_numerics(Numerics::BatchInvariant)
}

/// Outputs of a representative: the widest vectors divide them, so its plan has their widths. Of
/// slices so long that indices do not reach as many, there are fewer. `span` gives the largest index
/// of a number of outputs.
pub(crate) fn representative_outputs(device: &Device, span: impl Fn(usize) -> u64) -> usize {
    let widest = device.max_vector.max(1);
    let numbers = [widest.next_multiple_of(64), widest];
    let reached = numbers.into_iter().find(|&outputs| limits::reaches(device, span(outputs)));
    reached.unwrap_or(1)
}

/// The plan of a problem, from that of its [`representative`].
pub(crate) fn fit(plan: &Plan, problem: &Problem, device: &Device) -> Result<Plan, PlanError> {
    limits::check(problem, device)?;
    fitted(plan, problem, device)
}

/// The chosen plan, if it has this schedule.
pub(super) fn force(
    kind: ScheduleKind,
    problem: &Problem,
    device: &Device,
) -> Result<Plan, PlanError> {
    let plan = choose(problem, device)?.plan;
    if plan.schedule.kind() == kind {
        return Ok(plan);
    }
    let refusals = vec![Refusal::new(kind, other_bits(&plan))];
    Err(PlanError::NoSchedule { device: device.name.clone(), refusals })
}

/// The reason against schedules other than that of the chosen plan.
fn other_bits(plan: &Plan) -> Reason {
    let (units, cubes) = (plan.schedule.units_per_output(), plan.schedule.cubes_per_output());
    Reason::OtherBits { numerics: plan.numerics, units, cubes }
}

impl Plan {
    /// Checks that the plan computes `problem` correctly on `device`. Plans from
    /// [`choose`](crate::choose) and [`force`](crate::force) always do.
    ///
    /// # Errors
    ///
    /// The plan is of another version, the device lacks what the problem needs, the plan breaks a
    /// rule, or it gives other bits than it promises. See [`PlanError`].
    pub fn check(&self, problem: &Problem, device: &Device) -> Result<(), PlanError> {
        self.check_rules(problem, device)?;
        if !self.numerics.is_batch_invariant() {
            return Ok(());
        }
        let chosen = choose(problem, device)?.plan;
        match Tree::of(self, problem) == Tree::of(&chosen, problem) {
            true => Ok(()),
            false => Err(self.unfit(device, Illegal::OtherBits { numerics: self.numerics })),
        }
    }
}

/// How problems with the same slices are read: along the reduction, in the widest vectors whose
/// elements follow from positions, because heads and tails that are peeled have another length in
/// each row; across outputs, in the device's widest vectors. The order of elements does not matter
/// to an exact operator, whose rows are peeled.
///
/// Accumulators of many fields are updated for elements of one load together, and lose more by the
/// registers of the second vector and the moves than single elements cost. Realigned and element by
/// element, var took 226 and 214 us for f32 4096 × 50257 along axis 1 and 302 and 258 for
/// 300000 × 777, and sum 202 and 258 for the former, on one H200.
fn reference_access(problem: &Problem, device: &Device) -> Access {
    let operator = problem.operator();
    match problem.direction() {
        Direction::Along if operator.reproducible == Reproducible::Exact => {
            Access::widest(problem, device)
        }
        Direction::Along => {
            let may_realign = operator.fields <= FEW_FIELDS;
            Access::by_position(device.load_bytes, may_realign, problem, device)
        }
        Direction::Across => {
            Access::widest(&problem.reference(device.max_vector.max(1), 1, 1), device)
        }
    }
}

/// Numbers of outputs that a plan is compared for, and the share of time that it may lose there:
/// one along the reduction, as many as there are multiprocessors, and those that fill the device.
///
/// Across outputs there is one number, which fills the device. Estimates of unusual shapes are too
/// far off there to weigh one number against another: with several of them, sum of f32 8192 × 8192
/// along axis 0 took 88 us on one H200 instead of 65, and argmax of f32 262144 × 256 110 instead of
/// 71.
pub(crate) fn reference_outputs(problem: &Problem, device: &Device) -> Vec<(usize, f64)> {
    let tuning = device.tuning.invariant;
    let len = (problem.reduction_len() as u64).max(1);
    let filling = |part: u64| (tuning.reference_elements / part / len).min(LARGEST_REFERENCE);
    if problem.direction() == Direction::Across {
        let outputs = filling(1).next_multiple_of(FEW_ACROSS).max(FEW_ACROSS);
        return vec![(outputs as usize, from_percent(tuning.many_outputs_percent))];
    }
    let mut all = vec![
        (1, tuning.one_output_percent),
        (cubes_wanted(device, 1), tuning.some_outputs_percent),
        (filling(4), tuning.many_outputs_percent),
        (filling(1), tuning.many_outputs_percent),
    ];
    // Of equal numbers, the one with the least loss counts.
    all.sort_unstable();
    all.dedup_by_key(|&mut (outputs, _)| outputs);
    // More elements than these fit no device: such slices come alone, or a few at a time.
    let fits = |outputs: u64| {
        let elements = outputs.saturating_mul(len);
        outputs == 1 || elements <= MOST_ELEMENTS && limits::reaches(device, elements)
    };
    let all = all.into_iter().filter(|&(outputs, _)| outputs > 0 && fits(outputs));
    all.map(|(outputs, percent)| (outputs as usize, from_percent(percent))).collect()
}

/// Outputs across that lie in a segment of memory.
const FEW_ACROSS: u64 = 16;

/// Most elements of a reference problem with several outputs.
const MOST_ELEMENTS: u64 = 1 << 32;

/// Most outputs of a reference problem.
const LARGEST_REFERENCE: u64 = 1 << 24;

/// The plan whose tree all problems with the same slices have.
fn model(problem: &Problem, device: &Device) -> Result<Plan, PlanError> {
    let access = reference_access(problem, device);
    let widest = widest_vector(problem, device);
    let references: Vec<(Problem, f64)> = reference_outputs(problem, device)
        .into_iter()
        .map(|(outputs, loss)| (problem.reference(outputs, access.rows_aligned_to(), widest), loss))
        .collect();
    let accesses = Accesses { widest: access, other: None };
    let mut plans: Vec<Plan> = Vec::new();
    let mut chosen: Option<Plan> = None;
    let mut refused = Vec::new();
    for (reference, _) in &references {
        let search = Search::among(reference, device, accesses);
        let ranking = search.ranking(device).into_iter();
        let ranking = ranking.map(|found| merged_alike(found.plan, problem, device));
        let before = plans.len();
        plans.extend(ranking.filter(|plan| has_merging_units(plan) && shares(plan, problem)));
        chosen = plans.get(before).copied();
        refused = search.refused;
    }
    if let Some(rows) = single_rows(problem, access, device) {
        chosen = rows.first().copied();
        plans = rows;
    }
    let costs: Vec<Costs<'_>> =
        references.iter().map(|(reference, _)| Costs::of(reference, device)).collect();
    let losses: Vec<f64> = references.iter().map(|&(_, loss)| loss).collect();
    // Other plans than the one that is chosen for most outputs must be expected to be faster by a
    // margin there, as in every search.
    let largest = references.len() - 1;
    let margin = 1.0 + from_percent(device.tuning.search_margin_percent);
    let time = |plan: &Plan, nth: usize| {
        let other = nth == largest && Some(*plan) != chosen;
        costs[nth].estimate(plan).alone_ns() * if other { margin } else { 1.0 }
    };
    // Of the plans with one tree, the one that is best for most outputs stands for all.
    let mut of_trees: Vec<(Tree, Plan, f64)> = Vec::new();
    for plan in plans {
        let (tree, longest) = (Tree::of(&plan, problem), time(&plan, largest));
        match of_trees.iter_mut().find(|(other, ..)| *other == tree) {
            Some(found) if longest < found.2 => *found = (tree, plan, longest),
            Some(_) => {}
            None => of_trees.push((tree, plan, longest)),
        }
    }
    let plans: Vec<Plan> = of_trees.into_iter().map(|(_, plan, _)| plan).collect();
    let best = least_behind(&plans, &losses, time);
    best.copied()
        .ok_or_else(|| PlanError::NoSchedule { device: device.name.clone(), refusals: refused })
}

/// The plans for long rows that are read element by element, because no vector divides them and
/// they are not realigned, as those of two inputs: units have 8 loads in flight, and as many share a
/// row as its accumulators let reside. f32 4096 × 50257 along axis 1 took, in cubes of 1024 and of 256 units, on one H100: sum 289 and 307 us, argmax 291 and
/// 304, logsumexp 300 and 303, var 317 and 303; with 16 loads logsumexp took 297 and 355. Peeled
/// vectors take 283, 288, 290 and 299.
fn single_rows(problem: &Problem, access: Access, device: &Device) -> Option<Vec<Plan>> {
    let [inner] = problem.reduced() else { return None };
    let loads = access.loads_per_output(problem);
    let lies_so = access.direction == Direction::Along && access.vector == 1 && inner.stride == 1;
    if !lies_so || loads < LONG_ROW {
        return None;
    }
    let wanted = if problem.operator().fields > FEW_FIELDS { 256 } else { 1024 };
    let units = units_limit(problem, device, access, wanted);
    let access = access.with_loads_in_flight(8);
    let lanes = device.plane_size_min.max(1);
    let combine = match device.plane_operations && units >= lanes {
        true => Combine::Plane { lanes },
        false => Combine::Shared,
    };
    let most = cubes_wanted(device, device.tuning.split_cubes_per_multiprocessor);
    let most = most.min(loads / (u64::from(units) * access.loads_in_flight as u64));
    let split = |cubes: u64| Schedule::Split {
        cubes_per_output: cubes as u32,
        units_per_output: units,
        outputs_per_cube: 1,
        combine,
        merge: Merge::LastCube,
    };
    let cube = Schedule::Cube { units_per_output: units, outputs_per_cube: 1, combine };
    let splits = (1..most.max(1).ilog2() + 1).map(|log| 1 << log).chain([most]);
    let splits = splits.filter(|&cubes| (2..=most).contains(&cubes)).map(split);
    let plans = std::iter::once(cube).chain(splits).map(|schedule| Plan::new(access, schedule));
    Some(plans.map(|plan| merged_alike(plan, problem, device)).collect())
}

/// Elements of a row from which it is long.
const LONG_ROW: u64 = 1 << 14;

/// The plan whose worst time, beside the best of all plans for the same problem, is the least of
/// several problems. `losses` says for each problem by which share a plan may be slower, and `time`
/// gives the time of a plan for the problem with a number.
pub(crate) fn least_behind<'a, P>(
    plans: &'a [P],
    losses: &[f64],
    time: impl Fn(&P, usize) -> f64,
) -> Option<&'a P> {
    let times: Vec<Vec<f64>> =
        plans.iter().map(|plan| (0..losses.len()).map(|nth| time(plan, nth)).collect()).collect();
    let best = |nth: usize| times.iter().map(|times| times[nth]).fold(f64::INFINITY, f64::min);
    let best: Vec<f64> = (0..losses.len()).map(best).collect();
    let worst = |times: &Vec<f64>| {
        let behind = times.iter().zip(&best).zip(losses);
        behind.map(|((time, best), loss)| (time / best - 1.0) / loss).fold(0.0, f64::max)
    };
    let ranked = plans.iter().zip(times.iter().map(worst));
    ranked.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(plan, _)| plan)
}

/// The plan with the units that merge partials in all batch-invariant plans.
fn merged_alike(plan: Plan, problem: &Problem, device: &Device) -> Plan {
    match plan.schedule {
        Schedule::Split { .. } if device.wide_atomics => merged_by(plan, Merge::LastCube),
        Schedule::Split { .. } => merged_by(plan, second_launch(&plan, problem, device)),
        _ => plan,
    }
}

fn merged_by(plan: Plan, merge: Merge) -> Plan {
    match plan.schedule {
        Schedule::Split {
            cubes_per_output, units_per_output, outputs_per_cube, combine, ..
        } => {
            let schedule = Schedule::Split {
                cubes_per_output,
                units_per_output,
                outputs_per_cube,
                combine,
                merge,
            };
            Plan { schedule, ..plan }
        }
        _ => plan,
    }
}

/// A second launch that merges with as many units for each output as the last cube would.
fn second_launch(plan: &Plan, problem: &Problem, device: &Device) -> Merge {
    let plan = merged_by(*plan, Merge::LastCube).with_numerics(Numerics::BatchInvariant);
    let units_per_output = plan.merging_units().max(1);
    let single = Access::new(Direction::Along);
    let units = units_limit(problem, device, single, device.tuning.merge_units_per_cube);
    let outputs_per_cube = match plan.access.direction {
        // Planes combine where a cube has one output.
        Direction::Along => 1,
        Direction::Across => (units / units_per_output).max(1),
    };
    Merge::SecondLaunch { units_per_output, outputs_per_cube }
}

/// Whether a plan across outputs shares slices that are longer than a few loads. One unit for each
/// is as fast where outputs are many, and takes several times as long where they are few.
fn shares(plan: &Plan, problem: &Problem) -> bool {
    let across = plan.access.direction == Direction::Across;
    let least = (problem.reduction_len() as u64 / 64).clamp(1, 8);
    !across || plan.schedule.all_units_per_output() >= least
}

/// Whether the last cube of a split has the units that merge in all batch-invariant plans.
fn has_merging_units(plan: &Plan) -> bool {
    match plan.schedule {
        Schedule::Split { outputs_per_cube, units_per_output, .. } => {
            match plan.access.direction {
                // Shared memory merges several outputs in another order than planes merge one.
                Direction::Along => outputs_per_cube == 1,
                Direction::Across => {
                    let least = Plan::MERGING_UNITS_ACROSS as usize * plan.access.vector;
                    units_per_output as usize >= least
                }
            }
        }
        _ => true,
    }
}

/// The plan for a problem, with the tree of the model.
fn fitted(model: &Plan, problem: &Problem, device: &Device) -> Result<Plan, PlanError> {
    let (access, instead) = match problem.direction() {
        Direction::Along => (model.access, None),
        // Rows that do not begin at a boundary of the model's vectors are realigned, or read element
        // by element: kernels for each shorter vector would be many.
        Direction::Across => {
            let own = |access| across(model, access, problem);
            let widest = Access::widest(problem, device);
            let single = Access::new(Direction::Across);
            let operator = problem.operator();
            let realigned =
                (!operator.blockwise).then(|| widest.widened(problem, device)).flatten();
            match realigned {
                _ if widest.vector >= model.access.vector => (own(widest), None),
                Some(realigned) => (own(realigned), Some(own(single))),
                None => (own(single), None),
            }
        }
    };
    let legal = |access: Access| {
        let plan = Plan { access, ..*model }.with_numerics(Numerics::BatchInvariant);
        let check = |plan: Plan| {
            check_access(plan.access, problem, device)
                .and_then(|()| check_schedule(&plan, problem, device))
                .map(|()| plan)
        };
        // More partials than may be published are merged by a second launch.
        let separate = || check(merged_by(plan, second_launch(&plan, problem, device))).ok();
        check(plan).or_else(|reason| separate().ok_or_else(|| plan.unfit(device, reason)))
    };
    legal(access).or_else(|refusal| instead.map_or(Err(refusal), legal))
}

/// The model's access with the vectors that the layout of a problem's outputs allows. Operators
/// that take elements one by one may have other loads in flight.
fn across(model: &Plan, own: Access, problem: &Problem) -> Access {
    let vector = own.vector.min(model.access.vector);
    let access = model.access.with_vector(vector).with_realigned(own.realigned);
    let access = access.with_peeled(own.peeled && own.vector == vector);
    match problem.operator().blockwise {
        true => access,
        false => {
            // As many bytes in flight.
            let loads = model.access.loads_in_flight * (model.access.vector / vector).max(1);
            let most = Access::MOST_LOADS_IN_FLIGHT / access.outputs_in_flight.max(1);
            access.with_loads_in_flight(loads.min(most).max(1))
        }
    }
}
