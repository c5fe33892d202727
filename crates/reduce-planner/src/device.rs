//! A device as plain data: what the planner may count on.

use serde::{Deserialize, Serialize};

use crate::{DeviceError, ElementType};

/// The facts of a device that decide how to launch on it.
///
/// `reduce-kernels` reads them from a CubeCL client; the presets below allow planning for a device
/// that is not at hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// A name for messages.
    pub name: String,
    /// Fewest units in a plane.
    pub plane_size_min: u32,
    /// Most units in a plane.
    pub plane_size_max: u32,
    /// Whether the device says that units of a plane can exchange values.
    pub plane_operations: bool,
    /// Most units in a cube.
    pub max_units_per_cube: u32,
    /// Most buffers that one launch may bind, not counting one for its scalars.
    pub max_bindings: u32,
    /// Most cubes along each of the three grid dimensions.
    pub max_cube_count: [u32; 3],
    /// Shared memory that one cube may use, in bytes.
    pub shared_memory_bytes: usize,
    /// Widest load of one unit, in bytes.
    pub load_bytes: usize,
    /// Most elements in a vector.
    pub max_vector: usize,
    /// Independent processors that run cubes side by side.
    pub multiprocessors: u32,
    /// Units that one multiprocessor holds at a time.
    pub units_per_multiprocessor: u32,
    /// Read bandwidth in bytes per second.
    pub bandwidth: u64,
    /// Host time of one launch, in nanoseconds.
    pub launch_ns: u64,
    /// From the issue of a load to its value, in nanoseconds.
    pub latency_ns: u64,
    /// Whether kernels can index with 64 bits.
    pub wide_indices: bool,
    /// Whether kernels can add to and exchange words of 64 bits in global memory atomically.
    pub wide_atomics: bool,
    /// The element types that kernels can load, store and convert.
    pub elements: Vec<ElementType>,
}

impl Device {
    /// One NVIDIA H200 through CUDA.
    ///
    /// Bandwidth and launch time are measured (a full sum of 4 GiB; back-to-back launches from
    /// CubeCL 0.10); the latency is what fits the measured rates of launches that do not fill the
    /// device.
    pub fn h200() -> Self {
        Self {
            name: "NVIDIA H200".into(),
            plane_size_min: 32,
            plane_size_max: 32,
            plane_operations: true,
            max_units_per_cube: 1024,
            max_bindings: 1024,
            max_cube_count: [i32::MAX as u32, 65535, 65535],
            shared_memory_bytes: 48 * 1024,
            load_bytes: 16,
            max_vector: 16,
            multiprocessors: 132,
            units_per_multiprocessor: 2048,
            bandwidth: 4_550_000_000_000,
            launch_ns: 9_000,
            latency_ns: 1_500,
            wide_indices: true,
            wide_atomics: true,
            elements: ElementType::ALL.to_vec(),
        }
    }

    /// Mesa's software Vulkan adapter (lavapipe) on a machine with two processor cores.
    pub fn software_adapter() -> Self {
        Self {
            name: "llvmpipe".into(),
            plane_size_min: 8,
            plane_size_max: 8,
            plane_operations: false,
            max_units_per_cube: 1024,
            max_bindings: 64,
            max_cube_count: [65535; 3],
            shared_memory_bytes: 32 * 1024,
            load_bytes: 16,
            max_vector: 4,
            multiprocessors: 2,
            units_per_multiprocessor: 1024,
            bandwidth: 10_000_000_000,
            launch_ns: 50_000,
            latency_ns: 1_000,
            wide_indices: false,
            wide_atomics: true,
            elements: ElementType::ALL
                .into_iter()
                .filter(|&element| element != ElementType::BF16)
                .collect(),
        }
    }

    /// Checks that a device can be like this. Planning checks every device it is given, so that numbers
    /// from a file cannot overflow on the way.
    ///
    /// # Errors
    ///
    /// A field has a value that no device has: planes, loads or vectors that are no powers of two up to
    /// 1024, a largest plane below the smallest, none or more than 65536 units in a cube, or no
    /// multiprocessors, units or cubes. The error names one such field and its value.
    pub fn check(&self) -> Result<(), DeviceError> {
        let fail = |field, value, expected| {
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
        ];
        for (field, count) in counts {
            if count == 0 {
                return fail(field, 0, "1 at least");
            }
        }
        Ok(())
    }

    /// Whether kernels can load, store and convert `element`.
    pub fn has(&self, element: ElementType) -> bool {
        self.elements.contains(&element)
    }

    /// Spreads `cubes` over the grid's dimensions, or `None` if the grid cannot hold so many.
    /// The product may exceed `cubes` by less than the number of rows it took.
    pub fn spread(&self, cubes: u64) -> Option<[u32; 3]> {
        let [x_max, y_max, z_max] = self.max_cube_count.map(|most| u64::from(most.max(1)));
        let z = cubes.div_ceil(x_max * y_max).max(1);
        if z > z_max {
            return None;
        }
        let y = cubes.div_ceil(z * x_max).max(1);
        let x = cubes.div_ceil(z * y);
        Some([x as u32, y as u32, z as u32])
    }
}
