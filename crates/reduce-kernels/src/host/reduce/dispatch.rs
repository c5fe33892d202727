//! The launch parameters of a plan, without buffers.

use cubecl::{ir::AddressType, prelude::*};
use reduce_planner::{
    Combine, Device, Direction, ElementType, Illegal, Merge, Plan, PlanError, Problem, Schedule,
    check_limits,
};

use super::streams::streams;
use crate::{
    error::ReduceError,
    host::{
        bound::Bound,
        scratch::{Stream, Words, partials, words},
        types::word_count,
    },
    kernels::{held::Hold, pairwise::needs_chains, team::Team},
    operator::OperatorRef,
};

/// A plan and the numbers of its launches.
#[derive(Debug)]
pub(crate) struct Dispatch {
    pub(super) plan: Plan,
    pub(super) hold: Hold,
    pub(super) team: Team,
    pub(super) grid: [u32; 3],
    pub(super) address: AddressType,
    pub(super) merging: Merging,
    /// Buffers that a launch may bind.
    pub(super) bindings: usize,
    /// Whether units may have more elements than one chain takes.
    pub(super) chains: bool,
    /// Whether the cache should give up first what is read. None if kernels need not say.
    pub(super) streams: Option<bool>,
}

/// How a plan merges partial results.
#[derive(Debug)]
pub(super) enum Merging {
    /// The plan has no partial results.
    None,
    /// The last cube merges them. They are published in this many words.
    LastCube { cubes: usize, words: usize },
    /// A second launch merges them.
    SecondLaunch { cubes: usize, team: Team, grid: [u32; 3] },
}

impl Dispatch {
    /// The dispatch of an operator's plan that has been checked against the problem and the device.
    /// `fields` are the types of the accumulator's fields, `words` is the number of words of an
    /// accumulator if these are stored instead of results, and `available` is the size of the
    /// largest buffer in bytes.
    pub(crate) fn new(
        operator: OperatorRef,
        plan: Plan,
        problem: &Problem,
        device: &Device,
        fields: &[ElementType],
        words: Option<usize>,
        available: u64,
    ) -> Result<Self, PlanError> {
        let unfit = |reason| plan.unfit(device, reason);
        let spread = |cubes: u64, merging: bool| {
            device.grid(cubes).ok_or_else(|| unfit(Illegal::Grid { cubes, merging }))
        };
        let merging = match plan.schedule {
            Schedule::Split { cubes_per_output: cubes, merge: Merge::LastCube, .. } => {
                let words = plan.published_words(problem, word_count(fields));
                let bytes = words.saturating_mul(size_of::<u64>() as u64);
                if bytes > available {
                    return Err(unfit(Illegal::PublishedPartials { bytes, max: available }));
                }
                Merging::LastCube { cubes: cubes as usize, words: words as usize }
            }
            Schedule::Split {
                cubes_per_output: cubes,
                merge: Merge::SecondLaunch { units_per_output, outputs_per_cube },
                ..
            } => {
                let partials = u64::from(cubes) * problem.outputs() as u64;
                let largest = fields.iter().map(|field| partials * field.bytes() as u64).max();
                if let Some(bytes) = largest.filter(|&bytes| bytes > available) {
                    return Err(unfit(Illegal::PartialsBuffer { bytes, available }));
                }
                // Planes combine what they did before, if they merge one output.
                let combine = match plan.schedule.combine() {
                    Some(Combine::Plane { lanes })
                        if outputs_per_cube == 1 && units_per_output >= lanes =>
                    {
                        Combine::Plane { lanes }
                    }
                    _ => Combine::Shared,
                };
                let team = Team {
                    units_per_tile: units_per_output,
                    unit_stride: outputs_per_cube,
                    units_per_cube: units_per_output * outputs_per_cube,
                    combine,
                    merging_units: units_per_output,
                };
                let cubes_of_merge =
                    (problem.outputs() as u64).div_ceil(u64::from(outputs_per_cube));
                let grid = spread(cubes_of_merge, true)?;
                Merging::SecondLaunch { cubes: cubes as usize, team, grid }
            }
            _ => Merging::None,
        };
        let stored = words.map_or(0, |words| problem.outputs().saturating_mul(words));
        let wide = check_limits(problem, device, stored as u64)?;
        Ok(Self {
            plan,
            hold: hold(&plan, problem),
            team: team(&plan, device),
            grid: spread(plan.cubes(problem), false)?,
            address: if wide { AddressType::U64 } else { AddressType::U32 },
            merging,
            bindings: device.max_bindings as usize,
            chains: fields[0].is_float() && needs_chains(operator, &plan, problem),
            streams: streams(&plan, problem, device),
        })
    }
}

/// The scratch memory of one launch.
pub(super) enum Scratch {
    /// The launch passes no partial results.
    None,
    /// Words for published partials, which the last of `cubes` cubes merges.
    Words { cubes: usize, words: Words },
    /// A buffer for each field of the partial results of `cubes` cubes, which a second launch
    /// merges.
    Partials { cubes: usize, buffers: Vec<Bound<'static>>, team: Team, grid: [u32; 3] },
}

impl Scratch {
    /// The memory that a dispatch needs. `fields` gives the bytes of each accumulator field,
    /// `outputs` the number of outputs. `stream` is called only if memory is needed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the device has no memory for it.
    pub(super) fn of(
        client: &Client,
        stream: impl FnOnce() -> Stream,
        dispatch: &Dispatch,
        fields: impl IntoIterator<Item = usize>,
        outputs: usize,
    ) -> Result<Self, ReduceError> {
        match dispatch.merging {
            Merging::None => Ok(Scratch::None),
            Merging::LastCube { cubes, words: count } => {
                Ok(Scratch::Words { cubes, words: words(client, stream(), count)? })
            }
            Merging::SecondLaunch { cubes, team, grid } => {
                let buffers = partials(client, stream(), cubes * outputs, fields)?;
                Ok(Scratch::Partials { cubes, buffers, team, grid })
            }
        }
    }
}

/// How units hold the elements of an output of this plan.
fn hold(plan: &Plan, problem: &Problem) -> Hold {
    match plan.access.in_passes {
        true => Hold::Elements {
            in_shared: 0,
            sure: sure_loads(plan, 1, problem),
            by_cubes: false,
            second_again: false,
        },
        false => Hold::Nothing,
    }
}

/// How many loads of an output tile all units of so many cubes have. Of an inner dimension that is
/// peeled, the last load may be missing.
pub(crate) fn sure_loads(plan: &Plan, cubes: u32, problem: &Problem) -> usize {
    let loads = plan.access.loads_per_output(problem);
    let peeled = plan.access.peeled && plan.access.direction == Direction::Along;
    let sure = match peeled {
        true if problem.reduced().len() > 1 => 0,
        true => loads.saturating_sub(1),
        false => loads,
    };
    (sure / (u64::from(plan.schedule.units_per_output()) * u64::from(cubes))) as usize
}

/// The team of a plan's first launch.
pub(crate) fn team(plan: &Plan, device: &Device) -> Team {
    let schedule = plan.schedule;
    let unit_stride = match (plan.access.direction, schedule) {
        (Direction::Along, _) => 1,
        (Direction::Across, Schedule::Plane { lanes_per_output, .. }) => {
            device.plane_size_min / lanes_per_output
        }
        (Direction::Across, _) => schedule.outputs_per_cube(),
    };
    Team {
        units_per_tile: schedule.units_per_output(),
        unit_stride,
        units_per_cube: schedule.units_per_cube(),
        combine: schedule.combine().unwrap_or(Combine::Shared),
        merging_units: plan.merging_units(),
    }
}
