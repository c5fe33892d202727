//! What the programs of reduce-burn share: Burn's device for a backend that is chosen at run time,
//! the reductions that are compared, and timing.
#![deny(missing_docs)]

mod reductions;
mod timing;

use burn_tensor::Device;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use reduce_kernels::cubecl;
use reduce_programs::{Backend, BackendError};

pub use reductions::{Choice, Reductions};
pub use timing::{seconds_per_call, time};

/// Whether Burn records operations and fuses them, as its users have it: the feature `fusion`.
pub const IS_FUSED: bool = cfg!(feature = "fusion");

/// A device of Burn and what reports say of it.
#[derive(Clone, Debug)]
pub struct BurnDevice {
    /// The device.
    pub device: Device,
    /// The same device as CubeCL and reduce-kernels see it.
    pub of_cubecl: reduce_programs::Device,
}

impl BurnDevice {
    /// The device's name.
    pub fn name(&self) -> String {
        self.of_cubecl.client().properties().identity.name.clone()
    }

    /// Its backend.
    pub fn backend(&self) -> Backend {
        self.of_cubecl.backend()
    }
}

/// Burn's default device of `backend`, which is chosen as [`reduce_programs::device`] chooses it.
///
/// # Errors
///
/// The backend is not compiled in or finds no device, or no backend does. WGSL is not compiled in
/// beside SPIR-V: a build of Burn has one of both.
pub fn burn_device(backend: Option<Backend>) -> Result<BurnDevice, BackendError> {
    let of_cubecl = reduce_programs::device(backend)?;
    let device = in_burn(&of_cubecl);
    let device = device.ok_or_else(|| BackendError::NotCompiledIn(of_cubecl.backend()))?;
    Ok(BurnDevice { device, of_cubecl })
}

/// The same device in Burn, if its backend is part of this build.
///
/// It is not named anew: CubeCL takes an adapter that it finds through Vulkan for another device
/// than one that it finds through any API, and these may be two adapters.
fn in_burn(device: &reduce_programs::Device) -> Option<Device> {
    match (device.backend(), device.device()) {
        #[cfg(feature = "cuda")]
        (Backend::Cuda, cubecl::Device::Cuda(device)) => Some(device.clone().into()),
        #[cfg(feature = "vulkan")]
        (Backend::Vulkan, cubecl::Device::Wgpu(device)) => Some(device.clone().into()),
        #[cfg(all(feature = "wgpu", not(feature = "vulkan")))]
        (Backend::Wgpu, cubecl::Device::Wgpu(device)) => Some(device.clone().into()),
        _ => None,
    }
}
