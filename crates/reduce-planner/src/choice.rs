//! The choice: every schedule is asked, the cheapest that applies is taken, and each refusal keeps
//! its reason.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{Access, Device, Plan, PlanError, Problem, ScheduleKind, cost, schedule};

/// Why a schedule was not taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// The device reports no plane operations.
    NoPlaneOperations,
    /// Lanes across outputs need planes of one size.
    PlaneSizeVaries {
        /// Smallest plane.
        min: u32,
        /// Largest plane.
        max: u32,
    },
    /// Too few loads per output for units to share.
    NothingToShare {
        /// Loads per output.
        loads: u64,
    },
    /// Neighbouring outputs, read side by side, take all lanes of a plane.
    OutputsFillPlane {
        /// Outputs (or vectors of outputs) side by side.
        abreast: u64,
        /// Units of a plane.
        plane: u32,
    },
    /// Too few loads per output for several cubes.
    TooShortToSplit {
        /// Loads per output.
        loads: u64,
        /// Loads from which two cubes have enough to do.
        needed: u64,
    },
    /// The outputs alone keep every multiprocessor busy.
    OutputsFillDevice {
        /// Cubes without splitting.
        cubes: u64,
        /// Cubes that fill the device.
        wanted: u64,
    },
    /// It applies, but another schedule should be faster.
    Slower {
        /// Estimate for this schedule, in microseconds.
        microseconds: f64,
        /// Estimate for the one taken, in microseconds.
        best: f64,
    },
    /// It applies, but its launch would pass one of the device's limits.
    PassesLimits {
        /// Which one, and by how much.
        limit: String,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NoPlaneOperations => f.write_str("the device reports no plane operations"),
            Reason::PlaneSizeVaries { min, max } => {
                write!(
                    f,
                    "planes vary from {min} to {max} units, lanes across outputs need one size"
                )
            }
            Reason::NothingToShare { loads } => {
                write!(f, "{loads} loads per output leave nothing to share among units")
            }
            Reason::TooShortToSplit { loads, needed } => {
                write!(f, "too short to split: {loads} loads per output, two cubes need {needed}")
            }
            Reason::OutputsFillDevice { cubes, wanted } => {
                write!(f, "no need to split: {cubes} cubes without it, {wanted} fill the device")
            }
            Reason::Slower { microseconds, best } => {
                write!(f, "slower: {microseconds:.1} us expected against {best:.1} us")
            }
            Reason::OutputsFillPlane { abreast, plane } => {
                write!(f, "{abreast} outputs side by side fill a plane of {plane}")
            }
            Reason::PassesLimits { limit } => f.write_str(limit),
        }
    }
}

/// A schedule that was not taken, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// The schedule.
    pub schedule: ScheduleKind,
    /// The reason.
    pub reason: Reason,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.schedule, self.reason)
    }
}

/// A plan with what speaks for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// The plan that was taken.
    pub plan: Plan,
    /// What the plan should take, launches included, in microseconds.
    pub expected_microseconds: f64,
    /// The schedules that were not taken, in the order of [`ScheduleKind::ALL`].
    pub refused: Vec<Refusal>,
}

/// Chooses a plan for a problem on a device.
///
/// # Errors
///
/// The device's description makes no sense, the device lacks an element type or wide indices, or every
/// schedule refused; see [`PlanError`].
pub fn choose(problem: &Problem, device: &Device) -> Result<Choice, PlanError> {
    device_can(problem, device)?;
    let access = Access::widest(problem, device);
    let mut candidates: Vec<(Plan, f64)> = Vec::new();
    let mut refused: Vec<Refusal> = Vec::new();
    for kind in ScheduleKind::ALL {
        match sized(kind, problem, device, access) {
            Ok(plan) => {
                let ns = cost::estimate_ns(problem, device, plan.access, plan.schedule);
                candidates.push((plan, ns * 1e-3));
            }
            Err(refusal) => refused.push(refusal),
        }
    }
    let Some(&(plan, best)) = candidates.iter().min_by(|a, b| a.1.total_cmp(&b.1)) else {
        let reasons: Vec<String> = refused.iter().map(Refusal::to_string).collect();
        return Err(PlanError::NoSchedule {
            device: device.name.clone(),
            reasons: reasons.join("; "),
        });
    };
    let slower = candidates.iter().filter(|candidate| candidate.0 != plan);
    refused.extend(slower.map(|&(plan, microseconds)| Refusal {
        schedule: plan.schedule.kind(),
        reason: Reason::Slower { microseconds, best },
    }));
    refused.sort_by_key(|refusal| refusal.schedule);
    Ok(Choice { plan, expected_microseconds: best, refused })
}

/// A plan with one schedule, checked against the device's limits.
fn sized(
    kind: ScheduleKind,
    problem: &Problem,
    device: &Device,
    access: Access,
) -> Result<Plan, Refusal> {
    let schedule = schedule::size(kind, problem, device, access)?;
    let plan = Plan::new(access.fitting(problem, schedule, device), schedule);
    schedule::check(&plan, problem, device)
        .map_err(|limit| Refusal { schedule: kind, reason: Reason::PassesLimits { limit } })?;
    Ok(plan)
}

/// Plans with one schedule, whatever others would cost: for tests, comparisons and the curious.
///
/// # Errors
///
/// The device's description makes no sense, the device lacks what the problem needs, or the schedule
/// refused ([`PlanError::NoSchedule`]).
pub fn force(kind: ScheduleKind, problem: &Problem, device: &Device) -> Result<Plan, PlanError> {
    device_can(problem, device)?;
    let access = Access::widest(problem, device);
    sized(kind, problem, device, access).map_err(|refusal| PlanError::NoSchedule {
        device: device.name.clone(),
        reasons: refusal.to_string(),
    })
}

/// Room above the largest index for the steps that run past the end before they are masked.
pub(crate) const INDEX_SLACK: u64 = 1 << 24;

/// The largest count that indices of 32 bits hold: below 2^31, CubeCL divides them by multiplying
/// and shifting without overflow.
pub(crate) const NARROW_LIMIT: u64 = (1 << 31) - INDEX_SLACK;

/// The largest count that indices of 64 bits hold, with room for the same overshoot.
const WIDE_LIMIT: u64 = (1 << 63) - INDEX_SLACK;

/// Whether a problem is too large for indices of 32 bits.
pub fn needs_wide_indices(problem: &Problem) -> bool {
    problem.index_span() > NARROW_LIMIT
}

/// Checks what no plan can make up for.
pub(crate) fn device_can(problem: &Problem, device: &Device) -> Result<(), PlanError> {
    device.check()?;
    for element in std::iter::once(problem.input()).chain(problem.results().iter().copied()) {
        if !device.has(element) {
            return Err(PlanError::ElementUnsupported { device: device.name.clone(), element });
        }
    }
    let limit = if device.wide_indices { WIDE_LIMIT } else { NARROW_LIMIT };
    if problem.index_span() > limit {
        return Err(PlanError::IndexTooNarrow {
            device: device.name.clone(),
            limit,
            span: problem.index_span(),
        });
    }
    Ok(())
}
