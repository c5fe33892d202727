//! What the programs and the tests of reduce-burn share: Burn's backends on a device that is chosen
//! at run time.
#![deny(missing_docs)]

use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime};
use burn_fusion::Fusion;
#[cfg(any(feature = "cuda", feature = "wgpu", feature = "vulkan"))]
use reduce_programs::Device;
use reduce_programs::{Backend, BackendError};

/// A CubeCL backend of Burn that runs each operation when it is called.
pub type Bare<R, BT> = CubeBackend<R, f32, i32, BT>;

/// A CubeCL backend of Burn that records operations and fuses them, as `burn-cuda` and `burn-wgpu`
/// give it to their users.
pub type Fused<R, BT> = Fusion<Bare<R, BT>>;

/// Work to do in Burn on a device of any runtime.
pub trait OnBurnDevice {
    /// The result of the work.
    type Output;

    /// Does the work on `device`. `BT` is the type that Burn stores truth values in. The backend
    /// and the device's name are for reports.
    fn on<R: CubeRuntime, BT: BoolElement>(
        self,
        device: R::Device,
        backend: Backend,
        name: &str,
    ) -> Self::Output;
}

/// Does `work` on the default device of `backend`, which is chosen as
/// [`reduce_programs::device`] chooses it.
///
/// # Errors
///
/// The backend is not compiled in or finds no device, or no backend does.
pub fn on_burn_device<W: OnBurnDevice>(
    backend: Option<Backend>,
    work: W,
) -> Result<W::Output, BackendError> {
    #[cfg(not(any(feature = "cuda", feature = "wgpu", feature = "vulkan")))]
    drop(work);
    match reduce_programs::device(backend)? {
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => {
            use reduce_kernels::cubecl::cuda::CudaRuntime;

            Ok(work.on::<CudaRuntime, u8>(device, Backend::Cuda, "CUDA device 0"))
        }
        #[cfg(any(feature = "wgpu", feature = "vulkan"))]
        Device::Wgpu { device, backend, name } => {
            use reduce_kernels::cubecl::wgpu::WgpuRuntime;

            // WGSL has no bytes.
            Ok(match backend {
                Backend::Wgpu => work.on::<WgpuRuntime, u32>(device, backend, &name),
                _ => work.on::<WgpuRuntime, u8>(device, backend, &name),
            })
        }
        #[allow(unreachable_patterns, reason = "reachable for a device that is added later")]
        other => unreachable!("{other:?} has no backend in Burn"),
    }
}
