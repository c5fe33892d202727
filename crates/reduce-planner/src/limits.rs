//! What no plan can mend: an element type that the device lacks, and indices that are too narrow.

use crate::{
    device::Device,
    error::PlanError,
    numerics::Numerics,
    problem::{AppliedProblem, ListProblem, OperatorClass, Problem, Reproducible},
};

/// Room above the largest index for loads that run past the end before they are masked.
pub(crate) const INDEX_SLACK: u64 = 1 << 24;

/// The largest count that indices of 32 bits hold. Below 2³¹, CubeCL divides indices by multiplying
/// and shifting without overflow.
pub(crate) const NARROW_LIMIT: u64 = (1 << 31) - INDEX_SLACK;

/// The largest count that indices of 64 bits hold, with the same room.
const WIDE_LIMIT: u64 = (1 << 63) - INDEX_SLACK;

/// Whether a problem is too large for indices of 32 bits.
#[must_use]
pub fn needs_wide_indices(problem: &Problem) -> bool {
    problem.index_span() > NARROW_LIMIT
}

/// Whether an applied reduction is too large for indices of 32 bits.
#[must_use]
pub fn applied_needs_wide_indices(applied: &AppliedProblem) -> bool {
    applied.index_span() > NARROW_LIMIT
}

/// [`check`] for each tensor of a list. Indices also count the elements of all of them.
pub(crate) fn check_list(list: &ListProblem, device: &Device) -> Result<(), PlanError> {
    device.check()?;
    list.tensors().iter().try_for_each(|tensor| check(tensor, device))?;
    check_numerics(list.operator(), list.numerics(), Some("of a list"))?;
    let missing = list.results().iter().find(|&&element| !device.has(element));
    if let Some(&element) = missing {
        return Err(PlanError::ElementUnsupported { device: device.name.clone(), element });
    }
    check_span(list.elements().max(list.tensors().len() as u64), device)
}

/// Checks the description of the device, and that the device can run some plan for the problem.
///
/// # Errors
///
/// The description makes no sense, the device lacks an element type of the problem, or its indices
/// are too narrow.
pub(crate) fn check(problem: &Problem, device: &Device) -> Result<(), PlanError> {
    device.check()?;
    let second = problem.second().map(|second| second.element());
    let inputs = std::iter::once(problem.input()).chain(second);
    for element in inputs.chain(problem.results().iter().copied()) {
        if !device.has(element) {
            return Err(PlanError::ElementUnsupported { device: device.name.clone(), element });
        }
    }
    check_numerics(problem.operator(), problem.numerics(), None)?;
    check_span(problem.index_span(), device)
}

/// Checks that an operator can be reproducible if it is to be. `of` says of what else no operator
/// can.
fn check_numerics(
    operator: OperatorClass,
    numerics: Numerics,
    of: Option<&'static str>,
) -> Result<(), PlanError> {
    let never = of.is_some() || operator.reproducible == Reproducible::No;
    match numerics.is_reproducible() && never {
        true => Err(PlanError::NotReproducible { operator: operator.name, of }),
        false => Ok(()),
    }
}

/// [`check`] for an applied reduction, whose companions are indexed too.
pub(crate) fn check_applied(applied: &AppliedProblem, device: &Device) -> Result<(), PlanError> {
    let problem = applied.problem();
    check_numerics(problem.operator(), problem.numerics(), Some("applied to its elements"))?;
    check(problem, device)?;
    if let Some(&element) = applied.further().iter().find(|&&element| !device.has(element)) {
        return Err(PlanError::ElementUnsupported { device: device.name.clone(), element });
    }
    check_span(applied.index_span(), device)
}

/// Checks what no plan can mend, for a launch of the caller's own: that the device has the element
/// types of the problem, and that its indices reach `span`. Gives whether they need 64 bits.
///
/// # Errors
///
/// [`PlanError::ElementUnsupported`], [`PlanError::IndexTooNarrow`], and a description of a device
/// that makes no sense.
pub fn check_limits(problem: &Problem, device: &Device, span: u64) -> Result<bool, PlanError> {
    check(problem, device)?;
    check_index_span(span.max(problem.index_span()), device)
}

/// Checks that the device's indices reach `span`. Gives whether they need 64 bits.
///
/// # Errors
///
/// [`PlanError::IndexTooNarrow`].
pub fn check_index_span(span: u64, device: &Device) -> Result<bool, PlanError> {
    check_span(span, device)?;
    Ok(span > NARROW_LIMIT)
}

fn check_span(span: u64, device: &Device) -> Result<(), PlanError> {
    let limit = limit_of(device);
    match span > limit {
        true => Err(PlanError::IndexTooNarrow { device: device.name.clone(), limit, span }),
        false => Ok(()),
    }
}

/// Whether the device's indices reach `span`.
pub(crate) fn reaches(device: &Device, span: u64) -> bool {
    span <= limit_of(device)
}

fn limit_of(device: &Device) -> u64 {
    if device.wide_indices { WIDE_LIMIT } else { NARROW_LIMIT }
}
