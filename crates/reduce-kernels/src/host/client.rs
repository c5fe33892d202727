//! The capabilities of a device, read from its CubeCL client.

#[cfg(feature = "wgpu")]
use core::any::TypeId;

#[cfg(feature = "wgpu")]
use cubecl::wgpu::{WgpuServer, WgslCompiler};
use cubecl::{
    ir::{
        AddressType, ElemType, Type, UIntKind,
        features::{AtomicUsage, Plane, TypeUsage},
    },
    prelude::*,
};
use reduce_planner::{Device, ElementType, Tuning};

use crate::element::memory_type;

/// Number of multiprocessors to assume where the runtime reports none (wgpu): that of a large GPU.
/// Too many cubes cost little on a small GPU; too few leave a large one partly idle.
const MULTIPROCESSORS_UNKNOWN: u32 = 128;

/// Number of multiprocessors to assume of an adapter without plane operations, which runs on the
/// cores of a CPU.
const MULTIPROCESSORS_SOFTWARE: u32 = 4;

/// Read bandwidth per multiprocessor of the reference GPU, in bytes per second. No runtime reports
/// the bandwidth of a GPU, so the cost model scales this figure. Only the ranking of schedules
/// depends on it.
const BANDWIDTH_PER_MULTIPROCESSOR: u64 = 34_000_000_000;

/// Units and cubes that reside on a multiprocessor of an NVIDIA GPU together, by the shared memory
/// that a cube may request, in bytes, and the number of multiprocessors. CubeCL reports neither
/// these numbers nor the architecture.
///
/// From the table of technical specifications by compute capability in the "CUDA C++ Programming
/// Guide": 9.0 and 10.0 have 227 KiB, 7.5 has 64 KiB. Others with the same memory differ in these
/// numbers (8.0 and 8.7; 8.6, 8.9 and 12.0; the few multiprocessors of 11.0), and get the least of
/// them: cubes that wait for each other must reside together.
fn residents(most_shared_bytes: usize, multiprocessors: u32) -> (u32, u32) {
    match most_shared_bytes / 1024 {
        227.. if multiprocessors > 64 => (2048, 32),
        65.. => (1536, 16),
        _ => (1024, 16),
    }
}

/// The language that the client's kernels are compiled to.
///
/// The properties of a client alone do not tell what its kernels can use: a client that compiles
/// WGSL for a Vulkan adapter lists what the adapter supports in SPIR-V.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    Cuda,
    Hip,
    Wgsl,
    /// SPIR-V or MSL.
    Other,
}

impl Language {
    fn of(client: &Client) -> Self {
        // The name of a client is that of its adapter's default compiler.
        #[cfg(feature = "wgpu")]
        if client.service_id().service == TypeId::of::<WgpuServer<WgslCompiler>>() {
            return Self::Wgsl;
        }
        match client.name() {
            "cuda" => Self::Cuda,
            "hip" => Self::Hip,
            "wgpu<wgsl>" => Self::Wgsl,
            _ => Self::Other,
        }
    }

    /// Whether the language has this type at all, on any device.
    fn has(self, element: ElementType) -> bool {
        use ElementType::{BF16, Bool, F8E4M3, F8E5M2, I8, I16, U8, U16};

        // CubeCL has fp8 in WGSL, but only four elements at a time.
        self != Self::Wgsl
            || !matches!(element, F8E4M3 | F8E5M2 | BF16 | Bool | I8 | I16 | U8 | U16)
    }
}

/// Whether kernels may use the hardware's exponentials and logarithms of f32; see
/// [`HardwareMath`](crate::operator::HardwareMath).
pub(crate) fn has_hardware_math(client: &Client) -> bool {
    #[cfg(feature = "cuda-llvm")]
    let compiler_takes_instructions =
        cubecl::cuda::compiler::CudaBackend::default() == cubecl::cuda::compiler::CudaBackend::Cpp;
    #[cfg(not(feature = "cuda-llvm"))]
    let compiler_takes_instructions = false;
    compiler_takes_instructions && Language::of(client) == Language::Cuda
}

/// Whether kernels may name a policy of the cache for what they read: that of devices of compute
/// capability 8.0 and later (PTX ISA, `createpolicy`), of which CubeCL says that they copy
/// asynchronously.
pub(crate) fn has_cache_policies(client: &Client) -> bool {
    has_hardware_math(client) && client.properties().features.copy_async
}

/// Whether the client is a software adapter that takes kernels as SPIR-V.
///
/// CubeCL 0.11 writes kernels with shared memory for GPUs with
/// `VK_KHR_workgroup_memory_explicit_layout`. Without it, it exchanges two types, and Mesa's
/// adapter, which lacks it, ends the process.
pub(crate) fn is_software_with_spirv(client: &Client) -> bool {
    is_spirv(client) && client.properties().identity.physical.is_none()
}

fn is_spirv(client: &Client) -> bool {
    client.name() == "wgpu<spirv>" && Language::of(client) == Language::Other
}

/// Whether atomic operations of the client's kernels are fences, so that plain words which a fence
/// of the whole cube orders take less: those of CubeCL 0.11 in SPIR-V acquire and release. On one
/// H200, variances of f32 20,000 × 5000 along axis 0 took 114 us with atomic words, and take 108 with
/// plain ones (99 through CUDA, whose atomic operations order nothing).
pub(crate) fn has_fencing_atomics(client: &Client) -> bool {
    is_spirv(client) && client.properties().features.device_memory_scope
}

/// Whether kernels can compute with values of `element`, beyond loading and storing them.
pub(crate) fn computes_with(client: &Client, element: ElementType) -> bool {
    can(client, element, &[TypeUsage::Arithmetic])
}

/// Whether kernels can compute exponentials, logarithms, powers and angles of f64.
///
/// With `native`, they call the device's own functions, which SPIR-V and WGSL have for 32 bits at
/// most. Without it, they call those of [`operator::math`](crate::operator::math), which need f64
/// and operations on its bits as u64.
pub(crate) fn has_wide_math(client: &Client, native: bool) -> bool {
    let is_native = matches!(Language::of(client), Language::Cuda | Language::Hip);
    is_native || (!native && computes_with(client, ElementType::U64))
}

/// Whether the client's kernels can use `element` in all of these ways.
fn can(client: &Client, element: ElementType, usages: &[TypeUsage]) -> bool {
    let listed = client.properties().type_usage(memory_type(element));
    Language::of(client).has(element) && usages.iter().all(|&usage| listed.contains(usage))
}

/// Whether kernels can add to 64-bit words in global memory atomically, and load and store them
/// atomically.
fn has_wide_atomics(client: &Client) -> bool {
    let word = Type::atomic(ElemType::UInt(UIntKind::U64));
    let usage = client.properties().atomic_type_usage(word);
    Language::of(client) != Language::Wgsl
        && usage.contains(AtomicUsage::Add)
        && usage.contains(AtomicUsage::LoadStore)
}

/// The number of bytes of which the offset of a tensor of `element` in its buffer must be a
/// multiple. wgpu binds buffers only at multiples of an alignment. CUDA and HIP take any address
/// that is aligned to the element.
pub(crate) fn binding_alignment(client: &Client, element: ElementType) -> u64 {
    match Language::of(client) {
        Language::Cuda | Language::Hip => element.bytes() as u64,
        _ => client.properties().memory.alignment.max(1),
    }
}

/// The device behind a client, as the planner sees it.
///
/// What the client does not report, such as the launch time and the tuning, is that of
/// [`Device::h200`], or of [`Device::software_adapter`] if the device has no plane operations.
/// Devices of wgpu have [`Tuning::vulkan`]. wgpu reports no number of multiprocessors: 128 are
/// assumed, or 4 without plane operations. No runtime reports the read bandwidth: 34 GB/s per
/// multiprocessor are assumed. How much resides on a multiprocessor of a CUDA device follows from
/// the shared memory that a cube may request.
///
/// ```no_run
/// use reduce_kernels::{
///     ElementType, Sum, TensorDescription, cubecl::prelude::*, device_of, reduce,
/// };
///
/// # fn example(client: &Client) -> Result<(), reduce_kernels::ReduceError> {
/// let mut device = device_of(client);
/// device.multiprocessors /= 2; // plan as for half of the device
/// let x = TensorDescription::row_major(ElementType::F32, [4096, 4096]);
/// println!("{}", reduce(Sum, &x).plan_for(&device).choose(client)?.plan);
/// # Ok(()) }
/// ```
pub fn device_of(client: &Client) -> Device {
    let properties = client.properties();
    let hardware = &properties.hardware;
    let usable = [TypeUsage::Buffer, TypeUsage::Conversion];
    let elements =
        ElementType::ALL.into_iter().filter(|&element| can(client, element, &usable)).collect();
    let plane_operations = properties.features.plane.contains(Plane::Ops);
    // The preset gives what no runtime reports, the tuning above all.
    let mut device = if plane_operations { Device::h200() } else { Device::software_adapter() };
    if !matches!(Language::of(client), Language::Cuda | Language::Hip) {
        device.tuning = Tuning::vulkan();
    }
    let multiprocessors = hardware.num_streaming_multiprocessors.unwrap_or(if plane_operations {
        MULTIPROCESSORS_UNKNOWN
    } else {
        MULTIPROCESSORS_SOFTWARE
    });
    let (x, y, z) = hardware.max_cube_count;
    let load_bytes = (hardware.load_width / 8) as usize;
    // NVIDIA's Vulkan driver reports more cubes along y and z than the 65535 that it can launch.
    let grid = [x.min(i32::MAX as u32), y.min(65535), z.min(65535)];
    device.name = client.name().to_owned();
    device.plane_size_min = hardware.plane_size_min;
    device.plane_size_max = hardware.plane_size_max;
    device.plane_operations = plane_operations;
    // WGSL writes a barrier of a plane as one of the cube.
    device.plane_barriers =
        properties.features.plane.contains(Plane::Sync) && Language::of(client) != Language::Wgsl;
    device.max_units_per_cube = hardware.max_units_per_cube.min(hardware.max_cube_dim.0);
    device.max_bindings = hardware.max_bindings;
    device.max_cube_count = grid;
    // A kernel that needs more than 48 KiB must request it at its launch, and fewer such cubes fit
    // a multiprocessor.
    device.shared_memory_bytes = hardware.max_shared_memory_size.min(48 * 1024);
    device.most_shared_memory_bytes = hardware.max_shared_memory_size;
    device.load_bytes = load_bytes;
    // CubeCL's CUDA runtime reports no limit. A load of the smallest elements, of one byte, sets
    // one.
    device.max_vector = hardware.max_vector_size.min(load_bytes);
    device.multiprocessors = multiprocessors;
    device.profile.bandwidth = BANDWIDTH_PER_MULTIPROCESSOR * u64::from(multiprocessors);
    if Language::of(client) == Language::Cuda {
        // CUDA reports what one cube may request, which is all but what the system takes of it.
        let (units, cubes) = residents(hardware.max_shared_memory_size, multiprocessors);
        device.units_per_multiprocessor = units;
        device.cubes_per_multiprocessor = cubes;
        device.shared_memory_per_multiprocessor =
            hardware.max_shared_memory_size + device.profile.reserved_shared_bytes as usize;
    }
    device.wide_indices = Language::of(client) != Language::Wgsl
        && properties.features.supports_address(AddressType::U64);
    device.wide_atomics = has_wide_atomics(client);
    device.forward_progress = Language::of(client) == Language::Cuda;
    device.elements = elements;
    device
}
