//! A plan for a list as data, its sentence, and the rules that it must obey.

use core::fmt;

use crate::{
    device::Device,
    error::PlanError,
    illegal::{Illegal, Quantity},
    limits::{self, INDEX_SLACK},
    numerics::Numerics,
    plan::{
        Access, Combine,
        check::{check_listed, fits_bindings, fits_grid, fits_shared, power_of_two},
    },
    problem::{ListProblem, Problem},
};

/// What will be launched for a list of tensors on a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct ListPlan {
    /// Version of the planner that made the plan. See [`ListPlan::VERSION`].
    pub version: u32,
    /// Units of a cube that reads tensors, a power of two.
    pub units_per_cube: u32,
    /// How the units of a cube combine, also when they merge.
    pub combine: Combine,
    /// The launches that read the tensors. An empty tensor is in none.
    pub launches: Vec<ListLaunch>,
    /// Units of a cube of the last launch, a power of two. It has a cube for each tensor and one
    /// for all of them.
    pub merging_units: u32,
    /// What the bits of a tensor's results may depend on.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Numerics::is_default"))]
    pub numerics: Numerics,
}

/// A launch that reads tensors of one type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct ListLaunch {
    /// How the tensors are read. The end of an inner dimension that does not fill a vector is read
    /// element by element.
    pub access: Access,
    /// Reduced dimensions of a tensor, in canonical form and without the inner one. Tensors with
    /// fewer have dimensions of extent 1 in their place.
    pub outer_dims: usize,
    /// Buffers that the kernel takes as vectors: one for each tensor, and others so that lists of
    /// several lengths share a kernel. Those past the last tensor repeat the first.
    pub buffers: usize,
    /// Buffers that the kernel also takes as elements, for the ends that do not fill a vector: at
    /// least one for each tensor that has such an end.
    pub tail_buffers: usize,
    /// The tensors.
    pub tensors: Vec<ListShare>,
}

/// A tensor of a launch, and the cubes that share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct ListShare {
    /// Index of the tensor in the list.
    pub tensor: usize,
    /// Cubes that read it. Each has a share of its loads, and partials of its own.
    pub cubes: u32,
}

impl ListShare {
    /// A tensor that so many cubes share.
    #[must_use]
    pub const fn new(tensor: usize, cubes: u32) -> Self {
        Self { tensor, cubes }
    }
}

impl ListLaunch {
    /// A launch that reads these tensors, whose kernel takes a buffer for each of them and none as
    /// elements.
    #[must_use]
    pub const fn new(access: Access, outer_dims: usize, tensors: Vec<ListShare>) -> Self {
        Self { access, outer_dims, buffers: tensors.len(), tail_buffers: 0, tensors }
    }

    /// The same launch with so many buffers of the kernel.
    #[must_use]
    pub fn with_buffers(self, buffers: usize, tail_buffers: usize) -> Self {
        Self { buffers, tail_buffers, ..self }
    }

    /// Number of cubes.
    #[must_use]
    pub fn cubes(&self) -> u64 {
        self.tensors.iter().map(|share| u64::from(share.cubes)).sum()
    }

    /// Tensors whose inner dimensions end off a vector's boundary.
    pub(super) fn tails(&self, list: &ListProblem) -> usize {
        let tensors = self.tensors.iter().filter_map(|share| list.tensors().get(share.tensor));
        tensors.filter(|tensor| self.access.leaves_tail(tensor)).count()
    }

    /// Buffers of tensors that the launch binds.
    pub(super) const fn bindings(&self) -> usize {
        self.buffers.saturating_add(self.tail_buffers)
    }

    /// Checks a launch of cubes of so many units.
    pub(super) fn check(
        &self,
        units_per_cube: u32,
        list: &ListProblem,
        device: &Device,
    ) -> Result<(), Illegal> {
        let tensors = list.tensors();
        let mut element = None;
        if self.tensors.is_empty() {
            return Err(Illegal::ListedNothing);
        }
        let most = tensors.iter().map(outer_dims).max().unwrap_or(0);
        if self.outer_dims > most {
            return Err(Illegal::TooManyOuterDims { dims: self.outer_dims, most });
        }
        for &ListShare { tensor, cubes } in &self.tensors {
            let Some(problem) = tensors.get(tensor) else {
                return Err(Illegal::NotListed { tensor, tensors: tensors.len() });
            };
            if problem.reduction_len() == 0 {
                return Err(Illegal::ListedTimes { tensor, times: 1 });
            }
            check_listed(self.access, problem, device)?;
            if *element.get_or_insert(problem.input()) != problem.input() {
                return Err(Illegal::ListedTypes { tensor });
            }
            let found = outer_dims(problem);
            if found > self.outer_dims {
                let expected = self.outer_dims;
                return Err(Illegal::OuterDims { tensor, found, expected });
            }
            if cubes == 0 {
                return Err(Illegal::ListedNothing);
            }
            let loads = self.access.loads_in_flight as u64;
            if u64::from(cubes) * u64::from(units_per_cube) * loads > INDEX_SLACK {
                return Err(Illegal::SplitStride { cubes, max: INDEX_SLACK });
            }
        }
        fits_grid(self.cubes(), false, device)
    }
}

/// Checks that launches take each tensor that is not empty once, and have a buffer for each.
pub(super) fn check_each_once(launches: &[ListLaunch], list: &ListProblem) -> Result<(), Illegal> {
    let mut times = vec![0; list.tensors().len()];
    for share in launches.iter().flat_map(|launch| &launch.tensors) {
        times[share.tensor] += 1;
    }
    for ((tensor, problem), times) in list.tensors().iter().enumerate().zip(times) {
        if times != usize::from(problem.reduction_len() > 0) {
            return Err(Illegal::ListedTimes { tensor, times });
        }
    }
    for launch in launches {
        let needed = (launch.tensors.len(), launch.tails(list));
        let found = (launch.buffers, launch.tail_buffers);
        if found.0 < needed.0 || found.1 < needed.1 {
            return Err(Illegal::ListedBuffers { found, needed });
        }
    }
    Ok(())
}

/// Buffers that a launch binds beside those of tensors: partials and the table.
pub(super) fn beside_tensors(list: &ListProblem) -> usize {
    list.operator().fields.saturating_add(1)
}

/// Most cubes that read a list. The table of a launch has a word for each of its cubes, so this
/// many take 256 MiB. A list that the planner gives more of them has some 500 GB.
const MOST_CUBES: u64 = 1 << 26;

impl ListPlan {
    /// The version that this planner makes and runs.
    pub const VERSION: u32 = 2;

    /// Number of launches, that of the merge included.
    #[must_use]
    pub fn launch_count(&self) -> usize {
        self.launches.len() + 1
    }

    /// Number of partials: one for each cube that reads.
    #[must_use]
    pub fn partials(&self) -> u64 {
        self.launches.iter().map(ListLaunch::cubes).fold(0, u64::saturating_add)
    }

    /// Checks that the plan computes `list` correctly on `device`, whatever its bits depend on.
    pub(super) fn check_rules(&self, list: &ListProblem, device: &Device) -> Result<(), PlanError> {
        if self.version != Self::VERSION {
            return Err(PlanError::Version { found: self.version, expected: Self::VERSION });
        }
        limits::check_list(list, device)?;
        self.obeys_rules(list, device).map_err(|reason| device.unfit(self, reason))?;
        let (found, expected) = (self.numerics, list.numerics());
        match found < expected {
            true => Err(device.unfit(self, Illegal::Numerics { found, expected })),
            false => Ok(()),
        }
    }

    fn obeys_rules(&self, list: &ListProblem, device: &Device) -> Result<(), Illegal> {
        let most = device.max_units_per_cube;
        power_of_two(Quantity::UnitsPerCube, self.units_per_cube, most)?;
        power_of_two(Quantity::UnitsPerMergingCube, self.merging_units, most)?;
        let fewest = self.units_per_cube.min(self.merging_units);
        if let Combine::Plane { lanes } = self.combine {
            if !device.plane_operations {
                return Err(Illegal::NoPlaneOperations);
            }
            power_of_two(Quantity::Lanes, lanes, device.plane_size_min)?;
            if fewest < device.plane_size_min {
                return Err(Illegal::CubeBelowPlane { units: fewest });
            }
        }
        let largest = self.units_per_cube.max(self.merging_units) as usize;
        fits_shared(largest.saturating_mul(list.operator().accumulator_bytes), device)?;
        for launch in &self.launches {
            launch.check(self.units_per_cube, list, device)?;
            fits_bindings(beside_tensors(list) + launch.bindings(), device)?;
        }
        let partials = self.partials();
        if partials > MOST_CUBES {
            return Err(Illegal::TooManyPartials { partials, max: MOST_CUBES });
        }
        check_each_once(&self.launches, list)?;
        let merging = list.operator().fields + 1 + list.results().len();
        fits_bindings(merging, device)?;
        fits_grid(list.tensors().len() as u64 + 1, true, device)?;
        Ok(())
    }
}

/// Reduced dimensions of a tensor beside the inner one.
pub(super) fn outer_dims(tensor: &Problem) -> usize {
    tensor.reduced().len().saturating_sub(1)
}

impl fmt::Display for ListLaunch {
    /// Such as `54 tensors in 612 cubes, vectors of 4 along the reduction, 2 loads in flight`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tensors = self.tensors.len();
        let plural = if tensors == 1 { "" } else { "s" };
        write!(f, "{tensors} tensor{plural} in {} cubes", self.cubes())?;
        if self.outer_dims > 0 {
            write!(f, " with up to {} dimensions", self.outer_dims + 1)?;
        }
        write!(f, ", {}", self.access)
    }
}

impl fmt::Display for ListPlan {
    /// One line, such as `list: 2 launches, the last of which merges 15433 partials with 1024 units
    /// per result; cubes of 256 units, combined by plane operations over 32 lanes; 44 tensors
    /// in 15433 cubes, vectors of 4 along the reduction, 8 loads in flight`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "list: {} launches, the last of which merges {} partials with {} units per result; \
             cubes of {} units, combined by {}",
            self.launch_count(),
            self.partials(),
            self.merging_units,
            self.units_per_cube,
            self.combine,
        )?;
        self.launches.iter().try_for_each(|launch| write!(f, "; {launch}"))?;
        self.numerics.write_unusual(f, "; ")
    }
}
