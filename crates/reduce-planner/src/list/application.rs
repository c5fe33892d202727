//! A list whose results are applied to its elements: the problem, the plan and its choice.

use core::fmt;

use super::{
    choose::{choose_list, estimate, grouped, launches, loads_per_unit, wanted_units},
    plan::{ListLaunch, ListPlan, check_each_once},
};
use crate::{
    choose::{Choice, Explained, floor_power_of_two},
    device::Device,
    error::{PlanError, ProblemError},
    estimate::Estimate,
    illegal::{Illegal, Quantity},
    limits,
    numerics::Numerics,
    plan::{
        Access,
        check::{fits_bindings, fits_grid, power_of_two},
    },
    problem::{InputSpec, ListProblem},
    refusal::NoRefusal,
};

/// A list of tensors whose results are applied to each of their elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AppliedListProblem {
    reduction: ListProblem,
    elements: ListProblem,
    in_place: bool,
}

impl AppliedListProblem {
    /// States the application of the results of `reduction`, whose tensors are `inputs`, to each
    /// element. The outputs have these strides and the types of the inputs. They may be the inputs
    /// themselves (`in_place`).
    ///
    /// # Errors
    ///
    /// Those of [`ListProblem::applied`].
    pub fn new(
        reduction: ListProblem,
        inputs: &[InputSpec<'_>],
        outputs: &[&[usize]],
        in_place: bool,
    ) -> Result<Self, ProblemError> {
        let elements = ListProblem::applied(reduction.operator(), inputs, outputs)?;
        Ok(Self { reduction, elements, in_place })
    }

    /// The same problem, for plans whose bits depend on no more than this.
    #[must_use]
    pub fn with_numerics(self, numerics: Numerics) -> Self {
        Self { reduction: self.reduction.with_numerics(numerics), ..self }
    }

    /// The reduction.
    #[must_use]
    pub fn reduction(&self) -> &ListProblem {
        &self.reduction
    }

    /// The tensors, with offsets in the outputs in place of positions.
    #[must_use]
    pub fn elements(&self) -> &ListProblem {
        &self.elements
    }

    /// Whether the outputs are the inputs themselves.
    #[must_use]
    pub fn in_place(&self) -> bool {
        self.in_place
    }

    /// Bytes that the application reads and writes.
    fn moved_bytes(&self) -> u64 {
        let tensors = self.elements.tensors().iter();
        let bytes = tensors.map(|tensor| {
            let elements = tensor.reduction_len() as u64;
            elements.saturating_mul(2 * tensor.input().bytes() as u64)
        });
        bytes.fold(0, u64::saturating_add)
    }

    /// Buffers that a launch of the application binds.
    fn bindings(&self, launch: &ListLaunch) -> usize {
        self.beside_tensors() + self.times_bound() * launch.bindings()
    }

    /// Buffers beside those of tensors: the results and the table.
    fn beside_tensors(&self) -> usize {
        self.reduction.results().len() + 1
    }

    /// How often a launch binds a tensor: once in place, and otherwise also as an output.
    fn times_bound(&self) -> usize {
        if self.in_place { 1 } else { 2 }
    }
}

/// What will be launched for a list whose results are applied to its elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct AppliedListPlan {
    /// The reduction.
    pub reduce: ListPlan,
    /// The launches that apply its results.
    pub apply: ListApplication,
}

/// The launches that apply the results of a list to its elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct ListApplication {
    /// Units of a cube, a power of two.
    pub units_per_cube: u32,
    /// The launches. An empty tensor is in none.
    pub launches: Vec<ListLaunch>,
}

impl AppliedListPlan {
    /// A plan of these two parts.
    #[must_use]
    pub const fn new(reduce: ListPlan, apply: ListApplication) -> Self {
        Self { reduce, apply }
    }

    /// Checks that the plan computes `list` correctly on `device`. Plans from
    /// [`choose_applied_list`] always do.
    ///
    /// # Errors
    ///
    /// Those of [`ListPlan::check`], for both parts.
    pub fn check(&self, list: &AppliedListProblem, device: &Device) -> Result<(), PlanError> {
        self.reduce.check(&list.reduction, device)?;
        limits::check_list(&list.elements, device)?;
        self.apply.obeys_rules(list, device).map_err(|reason| device.unfit(&self.apply, reason))
    }
}

impl ListApplication {
    fn obeys_rules(&self, list: &AppliedListProblem, device: &Device) -> Result<(), Illegal> {
        power_of_two(Quantity::UnitsPerCube, self.units_per_cube, device.max_units_per_cube)?;
        for launch in &self.launches {
            launch.check(self.units_per_cube, &list.elements, device)?;
            self.stores_vectors(launch, list)?;
            fits_bindings(list.bindings(launch), device)?;
        }
        check_each_once(&self.launches, &list.elements)
    }

    /// Checks that the outputs of a launch take the vectors that it reads.
    fn stores_vectors(
        &self,
        launch: &ListLaunch,
        list: &AppliedListProblem,
    ) -> Result<(), Illegal> {
        let vector = launch.access.vector;
        let tensors = launch.tensors.iter().map(|share| &list.elements.tensors()[share.tensor]);
        match tensors.into_iter().all(|tensor| Access::output_takes_vectors(tensor, vector)) {
            true => Ok(()),
            false => Err(Illegal::RowsMisaligned { vector }),
        }
    }
}

impl Explained for AppliedListPlan {
    type Refusal = NoRefusal;
}

/// Chooses a plan for a list whose results are applied to its elements.
///
/// # Errors
///
/// The description of the device makes no sense, or the device lacks an element type, wide indices
/// or bindings.
pub fn choose_applied_list(
    list: &AppliedListProblem,
    device: &Device,
) -> Result<Choice<AppliedListPlan>, PlanError> {
    let reduce = choose_list(&list.reduction, device)?.plan;
    let elements = &list.elements;
    limits::check_list(elements, device)?;
    let mut groups = grouped(elements, |tensor| Access::for_applied_list(tensor, device));
    let wanted = wanted_units(elements, device).min(device.max_units_per_cube);
    let units = floor_power_of_two(wanted.into()) as u32;
    let each = loads_per_unit(&mut groups, units, device);
    let available = (device.max_bindings as usize).saturating_sub(list.beside_tensors());
    let available = available / list.times_bound();
    let launches = launches(&groups, elements, units, each, available, device);
    let apply = ListApplication { units_per_cube: units, launches };
    for launch in &apply.launches {
        let fits = fits_bindings(list.bindings(launch), device)
            .and_then(|()| fits_grid(launch.cubes(), false, device));
        fits.map_err(|reason| device.unfit(&apply, reason))?;
    }
    let plan = AppliedListPlan { reduce, apply };
    let estimate = plan.estimate(list, device);
    Ok(Choice::only(plan, estimate))
}

impl AppliedListPlan {
    /// What the plan should take for `list` on `device`: the bytes at the bandwidth, and the
    /// launches. The application reads each element again, and writes it.
    #[must_use]
    pub fn estimate(&self, list: &AppliedListProblem, device: &Device) -> Estimate {
        let bytes = list.reduction.bytes().saturating_add(list.moved_bytes());
        estimate(self.reduce.launch_count() + self.apply.launches.len(), bytes, device)
    }
}

impl fmt::Display for AppliedListProblem {
    /// One line: those of the reduction and of the application.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reduction, elements, in_place } = self;
        let place = if *in_place { "in place" } else { "into new tensors" };
        write!(f, "applied {place}: {reduction} | elements {elements}")
    }
}

impl fmt::Display for ListApplication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (launches, units) = (self.launches.len(), self.units_per_cube);
        write!(f, "applied to a list: {launches} launches of cubes of {units} units")?;
        self.launches.iter().try_for_each(|launch| write!(f, "; {launch}"))
    }
}

impl fmt::Display for AppliedListPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.reduce, self.apply)
    }
}
