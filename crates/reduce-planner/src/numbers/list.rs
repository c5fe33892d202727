//! The numbers of plans for lists of tensors.

use super::{Nonsense, count, power_of_two};

/// The numbers for lists of tensors that are reduced together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct ListTuning {
    /// Units of a cube. The L2 norm of 44 tensors of f32, 4.0 GB, took 909 us with 256, 911 with
    /// 128 and 930 with 512; their mean and variance took 918 with 256 and 973 with 128.
    pub units_per_cube: u32,
    /// The same if all tensors have elements narrower than 4 bytes. The norm of the same tensors in
    /// bf16 took 477 us with 128 and with 256, and 480 with 64.
    pub narrow_units_per_cube: u32,
    /// Most loads of a unit. Units have twice as many where all cubes then reside together. More
    /// cubes than fit the device balance tensors of different sizes. The norm of 4.0 GB took 909 us
    /// with 64, 925 with 32 and with 128, and 958 with 256.
    pub most_loads_per_unit: u64,
    /// Cubes per multiprocessor below which units have fewer loads. The norm of 162 small tensors
    /// took 49 us with 2, and 62 with 4 and with 8, before blocks of loads found their array once.
    pub cubes_per_multiprocessor: u32,
    /// Most tensors of a launch. Each is a buffer of its own, and kernels choose among them with
    /// code for each. The norm of 162 small tensors took 42 us with 176, 56 with 64 and 128 with
    /// 32.
    pub tensors_per_launch: usize,
    /// Partials that a unit of the merging launch takes, where units are enough. The norm of 4.0 GB
    /// took as long with 1.
    pub partials_per_merging_unit: u64,
}

rules!(ListTuning {
    power_of_two: units_per_cube, narrow_units_per_cube;
    count: most_loads_per_unit, cubes_per_multiprocessor, tensors_per_launch,
        partials_per_merging_unit;
});

impl ListTuning {
    /// The numbers for one NVIDIA H200.
    pub(super) const fn h200() -> Self {
        Self {
            units_per_cube: 256,
            narrow_units_per_cube: 128,
            most_loads_per_unit: 64,
            cubes_per_multiprocessor: 2,
            tensors_per_launch: 176,
            partials_per_merging_unit: 4,
        }
    }
}
