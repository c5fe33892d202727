//! What a device can do, read from its CubeCL client.

use cubecl::{
    ir::{
        AddressType, ElemType, StorageType, Type, UIntKind,
        features::{AtomicUsage, Plane, TypeUsage},
    },
    prelude::*,
};
use reduce_planner::{Device, ElementType};

use crate::element::memory_type;

/// Multiprocessors assumed where the runtime does not tell (wgpu): those of a large GPU. Too many
/// cubes cost little on a small one, too few leave a large one idle.
const MULTIPROCESSORS_UNKNOWN: u32 = 128;

/// Multiprocessors assumed of an adapter without plane operations: a processor's cores.
const MULTIPROCESSORS_SOFTWARE: u32 = 4;

/// Read bandwidth per multiprocessor of the reference GPU, in bytes per second. It scales the cost
/// model to GPUs whose bandwidth no runtime reports; only the ranking of schedules depends on it.
const BANDWIDTH_PER_MULTIPROCESSOR: u64 = 34_000_000_000;

/// What the client's kernels are compiled to. A client that compiles WGSL for a Vulkan adapter lists what
/// the adapter has for SPIR-V, so its properties alone do not tell what its kernels can use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    Cuda,
    Hip,
    Wgsl,
    /// SPIR-V or MSL.
    Other,
}

impl Language {
    fn of<R: Runtime>(client: &ComputeClient<R>) -> Self {
        match R::name(client) {
            "cuda" => Self::Cuda,
            "hip" => Self::Hip,
            "wgpu<wgsl>" => Self::Wgsl,
            _ => Self::Other,
        }
    }

    /// Whether there is such a type in the language, whatever a device makes of it.
    fn has(self, element: ElementType) -> bool {
        use ElementType::{BF16, Bool, I8, I16, U8, U16};

        self != Self::Wgsl || !matches!(element, BF16 | Bool | I8 | I16 | U8 | U16)
    }
}

/// Whether kernels can add and compare values of `element`, beyond loading and storing them.
pub(crate) fn computes_with<R: Runtime>(client: &ComputeClient<R>, element: ElementType) -> bool {
    can(client, element, &[TypeUsage::Arithmetic])
}

/// Whether kernels have exponentials, logarithms, powers and angles of f64: the device's own, or those
/// of [`operator::math`](crate::operator::math), which work on the bits of f64. SPIR-V's and WGSL's own
/// are of 32 bits at most.
pub(crate) fn has_wide_math<R: Runtime>(client: &ComputeClient<R>, native: bool) -> bool {
    let is_native = matches!(Language::of(client), Language::Cuda | Language::Hip);
    is_native || (!native && computes_with(client, ElementType::U64))
}

/// Whether the client's kernels can use `element` so. CubeCL 0.10 leaves f64 out of the types that it
/// lists for CUDA, because its matrix product fails on them; kernels that load, add and compare f64
/// run.
fn can<R: Runtime>(client: &ComputeClient<R>, element: ElementType, usages: &[TypeUsage]) -> bool {
    let language = Language::of(client);
    let listed = client.properties().type_usage(memory_type(element));
    language.has(element)
        && (usages.iter().all(|&usage| listed.contains(usage))
            || (element == ElementType::F64 && language == Language::Cuda))
}

/// Whether kernels can add to and exchange words of 64 bits in global memory atomically.
fn has_wide_atomics<R: Runtime>(client: &ComputeClient<R>) -> bool {
    let word = Type::new(StorageType::Atomic(ElemType::UInt(UIntKind::U64)));
    let usage = client.properties().atomic_type_usage(word);
    Language::of(client) != Language::Wgsl
        && usage.contains(AtomicUsage::Add)
        && usage.contains(AtomicUsage::LoadStore)
}

/// What the offset of a tensor of `element` in its buffer must be a multiple of, in bytes. wgpu binds
/// buffers at multiples of an alignment only; CUDA and HIP pass addresses.
pub(crate) fn binding_alignment<R: Runtime>(
    client: &ComputeClient<R>,
    element: ElementType,
) -> u64 {
    match Language::of(client) {
        Language::Cuda | Language::Hip => element.bytes() as u64,
        _ => client.properties().memory.alignment.max(1),
    }
}

/// The device behind a client, as the planner sees it.
pub fn device_of<R: Runtime>(client: &ComputeClient<R>) -> Device {
    let properties = client.properties();
    let hardware = &properties.hardware;
    let usable = [TypeUsage::Buffer, TypeUsage::Conversion];
    let elements =
        ElementType::ALL.into_iter().filter(|&element| can(client, element, &usable)).collect();
    let plane_operations = properties.features.plane.contains(Plane::Ops);
    // The preset gives what no runtime reports, the tuning above all.
    let mut device = if plane_operations { Device::h200() } else { Device::software_adapter() };
    let multiprocessors = hardware.num_streaming_multiprocessors.unwrap_or(if plane_operations {
        MULTIPROCESSORS_UNKNOWN
    } else {
        MULTIPROCESSORS_SOFTWARE
    });
    let (x, y, z) = hardware.max_cube_count;
    let load_bytes = (hardware.load_width / 8) as usize;
    // NVIDIA's Vulkan driver reports more than the 65535 that its y and z dimensions hold.
    let grid = [x.min(i32::MAX as u32), y.min(65535), z.min(65535)];
    device.name = R::name(client).to_owned();
    device.plane_size_min = hardware.plane_size_min;
    device.plane_size_max = hardware.plane_size_max;
    device.plane_operations = plane_operations;
    device.max_units_per_cube = hardware.max_units_per_cube.min(hardware.max_cube_dim.0);
    device.max_bindings = hardware.max_bindings;
    device.max_cube_count = grid;
    // More than this must be asked for when a kernel is launched, and costs residency.
    device.shared_memory_bytes = hardware.max_shared_memory_size.min(48 * 1024);
    device.load_bytes = load_bytes;
    // CUDA's runtime sets no limit; the smallest elements have one byte.
    device.max_vector = hardware.max_vector_size.min(load_bytes);
    device.multiprocessors = multiprocessors;
    device.bandwidth = BANDWIDTH_PER_MULTIPROCESSOR * u64::from(multiprocessors);
    device.wide_indices = Language::of(client) != Language::Wgsl
        && properties.features.supports_address(AddressType::U64);
    device.wide_atomics = has_wide_atomics(client);
    device.elements = elements;
    device
}
