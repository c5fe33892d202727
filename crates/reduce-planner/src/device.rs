//! A device as plain data: facts of the hardware, and a tuning.

use core::fmt;

use crate::{
    element::ElementType,
    error::{DeviceError, PlanError},
    illegal::Illegal,
    numbers::Tuning,
    profile::Profile,
};

/// A device as the planner sees it: what the hardware offers, how fast it is, and the numbers that
/// decisions rest on.
///
/// `reduce-kernels` reads the facts from a CubeCL client. The presets describe devices that need
/// not be present. Start from a preset and change its fields to describe another device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Device {
    /// The name in messages.
    pub name: String,
    /// Fewest units in a plane.
    pub plane_size_min: u32,
    /// Most units in a plane.
    pub plane_size_max: u32,
    /// Whether the device reports that units of a plane can exchange values.
    pub plane_operations: bool,
    /// Whether the units of a plane can wait for each other, whatever other planes do.
    #[cfg_attr(feature = "serde", serde(default))]
    pub plane_barriers: bool,
    /// Most units in a cube.
    pub max_units_per_cube: u32,
    /// Most buffers that one launch may bind, beside one for its scalars.
    pub max_bindings: u32,
    /// Most cubes along each of the three grid dimensions.
    pub max_cube_count: [u32; 3],
    /// Shared memory that one cube may use, in bytes.
    pub shared_memory_bytes: usize,
    /// Shared memory that one cube may request, in bytes, where it then has a multiprocessor for
    /// itself. 0 if there is no more than the above.
    #[cfg_attr(feature = "serde", serde(default))]
    pub most_shared_memory_bytes: usize,
    /// Widest load of one unit, in bytes.
    pub load_bytes: usize,
    /// Most elements in a vector.
    pub max_vector: usize,
    /// Processors that run cubes at the same time.
    pub multiprocessors: u32,
    /// Units that reside on one multiprocessor at the same time.
    pub units_per_multiprocessor: u32,
    /// Cubes that reside on one multiprocessor at the same time.
    pub cubes_per_multiprocessor: u32,
    /// Registers of 32 bits that the units on one multiprocessor share.
    pub registers_per_multiprocessor: u32,
    /// Shared memory that the cubes on one multiprocessor share, in bytes.
    pub shared_memory_per_multiprocessor: usize,
    /// Size of the last cache before memory, in bytes; 0 if it is not known.
    #[cfg_attr(feature = "serde", serde(default))]
    pub cache_bytes: u64,
    /// Whether kernels can index with 64 bits.
    pub wide_indices: bool,
    /// Whether kernels can add to and exchange words of 64 bits in global memory atomically.
    pub wide_atomics: bool,
    /// Whether cubes that have begun make progress while others wait for them. Without it, no plan
    /// has cubes that wait for cubes.
    #[cfg_attr(feature = "serde", serde(default))]
    pub forward_progress: bool,
    /// The element types that kernels can load, store and convert.
    pub elements: Vec<ElementType>,
    /// How fast it is.
    pub profile: Profile,
    /// The numbers that decisions rest on. A file without them gets those of [`Tuning::h200`].
    #[cfg_attr(feature = "serde", serde(default))]
    pub tuning: Tuning,
}

/// Shared memory that a device keeps for itself in each cube, at most, in bytes. From the "CUDA C++
/// Programming Guide", compute capabilities 8.0 and later; earlier ones keep none.
pub(crate) const RESERVED_SHARED_BYTES: usize = 1024;

/// Registers that a unit takes at most: 255, given out in steps of 8. From the same tables.
const MOST_REGISTERS: u64 = 256;

/// Describes a device.
type Preset = fn() -> Device;

/// The presets by name.
const PRESETS: &[(&str, Preset)] = &[
    ("h200", Device::h200),
    ("h100", Device::h100),
    ("software_adapter", Device::software_adapter),
    ("rtx4090", Device::rtx4090),
    ("rx7900xtx", Device::rx7900xtx),
    ("m2_max", Device::m2_max),
    ("iris_xe", Device::iris_xe),
];

/// The element types that WGSL has on every device, with half floats where a device has them.
const WGSL_ELEMENTS: [ElementType; 4] =
    [ElementType::F32, ElementType::F16, ElementType::I32, ElementType::U32];

impl Device {
    /// The names of the presets, for programs that take one from their user.
    pub fn presets() -> impl ExactSizeIterator<Item = &'static str> {
        PRESETS.iter().map(|&(name, _)| name)
    }

    /// The preset of a name, such as `h200`, or `None` if there is no such preset.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        PRESETS.iter().find(|preset| preset.0 == name).map(|(_, device)| device())
    }

    /// One NVIDIA H200 through CUDA.
    #[must_use]
    pub fn h200() -> Self {
        Self {
            name: "NVIDIA H200".into(),
            plane_size_min: 32,
            plane_size_max: 32,
            plane_operations: true,
            plane_barriers: true,
            max_units_per_cube: 1024,
            max_bindings: 1024,
            max_cube_count: [i32::MAX as u32, 65535, 65535],
            shared_memory_bytes: 48 * 1024,
            most_shared_memory_bytes: 227 * 1024,
            load_bytes: 16,
            max_vector: 16,
            multiprocessors: 132,
            units_per_multiprocessor: 2048,
            cubes_per_multiprocessor: 32,
            registers_per_multiprocessor: 1 << 16,
            shared_memory_per_multiprocessor: 228 * 1024,
            cache_bytes: 50 << 20,
            wide_indices: true,
            wide_atomics: true,
            forward_progress: true,
            elements: ElementType::ALL.to_vec(),
            profile: Profile::h200(),
            tuning: Tuning::h200(),
        }
    }

    /// One NVIDIA H100 (SXM, HBM3) through CUDA. Its profile is measured. Its tuning is that of the
    /// H200.
    #[must_use]
    pub fn h100() -> Self {
        Self { name: "NVIDIA H100".into(), profile: Profile::h100(), ..Self::h200() }
    }

    /// An NVIDIA GeForce RTX 4090 through Vulkan, which nobody measured.
    ///
    /// Multiprocessors (128), their units (1536), cubes (24), registers (65536) and shared memory
    /// (100 KiB), and the L2 cache (72 MiB) are from NVIDIA's "Ada GPU Architecture" and from the
    /// table of compute capability 8.9 in the "CUDA C++ Programming Guide".
    #[must_use]
    pub fn rtx4090() -> Self {
        Self {
            name: "NVIDIA GeForce RTX 4090".into(),
            multiprocessors: 128,
            units_per_multiprocessor: 1536,
            cubes_per_multiprocessor: 24,
            shared_memory_per_multiprocessor: 100 * 1024,
            cache_bytes: 72 << 20,
            profile: Profile::rtx4090(),
            ..Self::vulkan()
        }
    }

    /// An AMD Radeon RX 7900 XTX through Vulkan, which nobody measured.
    ///
    /// Compute units (96), their units in waves of 32 (2 SIMDs × 16 waves), registers (2 × 192 KiB)
    /// and local memory (64 KiB for each of the two of a work-group processor), and the cache of 96
    /// MiB are from AMD's "RDNA 3 Instruction Set Architecture" and the product page.
    #[must_use]
    pub fn rx7900xtx() -> Self {
        Self {
            name: "AMD Radeon RX 7900 XTX".into(),
            plane_size_max: 64,
            multiprocessors: 96,
            units_per_multiprocessor: 1024,
            registers_per_multiprocessor: 2 * 192 * 1024 / 4,
            shared_memory_bytes: 32 * 1024,
            shared_memory_per_multiprocessor: 64 * 1024,
            cache_bytes: 96 << 20,
            profile: Profile::rx7900xtx(),
            ..Self::vulkan()
        }
    }

    /// An Apple M2 Max with 38 GPU cores through Metal, which nobody measured.
    ///
    /// Cores, planes of 32 and 32 KiB of threadgroup memory are from Apple's technical
    /// specifications and the "Metal Feature Set Tables". Apple does not tell how many units and
    /// registers a core has: 1024 units and 208 KiB are from Rosenzweig's "Dissecting the Apple M1
    /// GPU".
    #[must_use]
    pub fn m2_max() -> Self {
        Self {
            name: "Apple M2 Max".into(),
            multiprocessors: 38,
            units_per_multiprocessor: 1024,
            registers_per_multiprocessor: 208 * 1024 / 4,
            shared_memory_bytes: 32 * 1024,
            shared_memory_per_multiprocessor: 64 * 1024,
            cache_bytes: 0,
            wide_indices: false,
            wide_atomics: false,
            elements: WGSL_ELEMENTS.to_vec(),
            profile: Profile::m2_max(),
            ..Self::vulkan()
        }
    }

    /// Intel Iris Xe graphics with 96 execution units through Vulkan, which nobody measured.
    ///
    /// Six dual subslices of 16 execution units with 7 threads each, 64 KiB of shared local memory
    /// and 4 KiB of registers a thread are from Intel's "oneAPI GPU Optimization Guide" (Xe-LP).
    #[must_use]
    pub fn iris_xe() -> Self {
        Self {
            name: "Intel Iris Xe".into(),
            plane_size_min: 8,
            plane_size_max: 32,
            max_units_per_cube: 512,
            multiprocessors: 6,
            units_per_multiprocessor: 16 * 7 * 16,
            registers_per_multiprocessor: 16 * 7 * 4096 / 4,
            shared_memory_bytes: 32 * 1024,
            shared_memory_per_multiprocessor: 64 * 1024,
            cache_bytes: 0,
            wide_indices: false,
            wide_atomics: false,
            elements: WGSL_ELEMENTS.to_vec(),
            profile: Profile::iris_xe(),
            ..Self::vulkan()
        }
    }

    /// What wgpu's Vulkan backend offers, with the numbers of the H200.
    fn vulkan() -> Self {
        Self {
            max_bindings: 64,
            max_cube_count: [i32::MAX as u32, 65535, 65535],
            shared_memory_bytes: 48 * 1024,
            most_shared_memory_bytes: 0,
            max_vector: 4,
            forward_progress: false,
            tuning: Tuning::vulkan(),
            ..Self::h200()
        }
    }

    /// Mesa's software Vulkan adapter (lavapipe) on a machine with two processor cores.
    ///
    /// Its tuning is that of an H200 through Vulkan, because nothing was measured to tune it.
    #[must_use]
    pub fn software_adapter() -> Self {
        Self {
            name: "llvmpipe".into(),
            plane_size_min: 8,
            plane_size_max: 8,
            plane_operations: false,
            plane_barriers: false,
            max_cube_count: [65535; 3],
            shared_memory_bytes: 32 * 1024,
            multiprocessors: 2,
            units_per_multiprocessor: 1024,
            shared_memory_per_multiprocessor: 32 * 1024,
            cache_bytes: 0,
            wide_indices: false,
            elements: ElementType::ALL
                .into_iter()
                .filter(|&element| element != ElementType::BF16)
                .collect(),
            profile: Profile::software_adapter(),
            ..Self::vulkan()
        }
    }

    /// Checks that a device can be like this. Planning checks every device, so that numbers from a
    /// file cannot overflow.
    ///
    /// # Errors
    ///
    /// A field has a value that no device has: planes, loads or vectors that are not powers of two
    /// up to 1024, a largest plane below the smallest, no units or more than 65536 in a cube, or no
    /// multiprocessors, units, cubes or registers. Or a number of the profile or the tuning is
    /// zero, too large, or not a power of two where it must be one. The error names one such field
    /// and its value.
    pub fn check(&self) -> Result<(), DeviceError> {
        let fail = |field: &str, value, expected| {
            let field = String::from(field);
            Err(DeviceError { device: self.name.clone(), field, value, expected })
        };
        let sizes = [
            ("plane_size_min", u64::from(self.plane_size_min)),
            ("plane_size_max", u64::from(self.plane_size_max)),
            ("load_bytes", self.load_bytes as u64),
            ("max_vector", self.max_vector as u64),
        ];
        for (field, size) in sizes {
            if !size.is_power_of_two() || size > 1024 {
                return fail(field, size, "a power of two up to 1024");
            }
        }
        if self.plane_size_max < self.plane_size_min {
            let value = u64::from(self.plane_size_max);
            return fail("plane_size_max", value, "at least plane_size_min");
        }
        if !(1..=1 << 16).contains(&self.max_units_per_cube) {
            let value = u64::from(self.max_units_per_cube);
            return fail("max_units_per_cube", value, "from 1 to 65536");
        }
        let counts = [
            ("max_cube_count", self.max_cube_count.into_iter().min().unwrap_or(0)),
            ("multiprocessors", self.multiprocessors),
            ("units_per_multiprocessor", self.units_per_multiprocessor),
            ("cubes_per_multiprocessor", self.cubes_per_multiprocessor),
            ("registers_per_multiprocessor", self.registers_per_multiprocessor),
        ];
        for (field, count) in counts {
            if count == 0 {
                return fail(field, 0, "at least 1");
            }
        }
        self.profile.check().or_else(|found| {
            let field = format!("profile.{}{}", found.row, found.field);
            fail(&field, found.value, found.expected)
        })?;
        self.tuning.check_rules("").or_else(|found| {
            let field = format!("tuning.{}{}", found.row, found.field);
            fail(&field, found.value, found.expected)
        })
    }

    /// Shared memory that one cube may request, in bytes.
    pub(crate) fn requestable_shared_bytes(&self) -> usize {
        self.most_shared_memory_bytes.max(self.shared_memory_bytes)
    }

    /// Most units that may wait for others of their tile: a sixteenth of those that the device has
    /// room for, so that several launches can run at once and each still has room to go on.
    pub(crate) fn most_waiting_units(&self) -> u64 {
        u64::from(self.multiprocessors) * u64::from(self.units_per_multiprocessor) / 16
    }

    /// Most cubes of so many units and so much shared memory, in bytes, that may wait for others of
    /// their tile: half of those that reside together whatever registers their kernel takes, so
    /// that as many are left for other launches.
    ///
    /// How many registers a kernel takes is known only after it was compiled. The counts are those
    /// of CUDA, the only backend where cubes may wait, and not those of the profile, which is
    /// about speed and may come from a file.
    pub(crate) fn most_waiting_cubes(&self, units: u32, shared_bytes: usize) -> u64 {
        let per = |available: u64, each: u64| available / each.max(1);
        let registers = u64::from(self.registers_per_multiprocessor);
        let units = u64::from(units);
        let resident = [
            u64::from(self.cubes_per_multiprocessor),
            per(u64::from(self.units_per_multiprocessor), units),
            // A compiler leaves room for one cube of any kernel.
            per(registers, units.saturating_mul(MOST_REGISTERS)).max(1),
            per(
                self.shared_memory_per_multiprocessor as u64,
                (shared_bytes as u64).saturating_add(RESERVED_SHARED_BYTES as u64),
            ),
        ];
        let resident = resident.into_iter().fold(u64::MAX, u64::min);
        resident.saturating_mul(self.multiprocessors.into()) / 2
    }

    /// The error that a plan cannot run on this device for `reason`.
    pub(crate) fn unfit(&self, plan: &impl fmt::Display, reason: Illegal) -> PlanError {
        PlanError::Unfit { plan: plan.to_string(), device: self.name.clone(), reason }
    }

    /// Whether kernels can load, store and convert `element`.
    #[must_use]
    pub fn has(&self, element: ElementType) -> bool {
        self.elements.contains(&element)
    }

    /// The extents of a grid that holds so many cubes, or `None` if there is no such grid. Their
    /// product may exceed `cubes` by less than the number of rows of the grid.
    #[must_use]
    pub fn grid(&self, cubes: u64) -> Option<[u32; 3]> {
        let [x_max, y_max, z_max] = self.max_cube_count.map(|most| u64::from(most.max(1)));
        if cubes <= x_max {
            return Some([cubes as u32, 1, 1]);
        }
        let z = cubes.div_ceil(x_max * y_max).max(1);
        if z > z_max {
            return None;
        }
        let y = cubes.div_ceil(z * x_max).max(1);
        let x = cubes.div_ceil(z * y);
        Some([x as u32, y as u32, z as u32])
    }
}
