//! The choice of a backend at run time, among those compiled in.

use std::{fmt, str::FromStr};

use reduce_kernels::cubecl::prelude::*;

/// A runtime of CubeCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// NVIDIA GPUs through CUDA.
    Cuda,
    /// Every GPU that wgpu reaches.
    Wgpu,
}

impl Backend {
    /// The backends compiled in, the preferred one first.
    pub const COMPILED_IN: &'static [Backend] = &[
        #[cfg(feature = "cuda")]
        Backend::Cuda,
        #[cfg(any(feature = "wgpu", feature = "vulkan"))]
        Backend::Wgpu,
    ];
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Cuda => "cuda",
            Backend::Wgpu => "wgpu",
        })
    }
}

/// Why a backend cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// No such backend.
    #[error("unknown backend `{0}`: expected cuda or wgpu")]
    Unknown(String),
    /// The program was built without it.
    #[error("backend {0} is not compiled in: build with --features {0}")]
    NotCompiledIn(Backend),
    /// The program was built without any.
    #[error("no backend is compiled in: build with --features cuda, vulkan or wgpu")]
    NoneCompiledIn,
    /// The runtime found no device.
    #[error(
        "backend {0} found no device: is the driver of a GPU, or of Mesa's software adapter, installed?"
    )]
    NoDevice(Backend),
}

impl FromStr for Backend {
    type Err = BackendError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "cuda" => Ok(Backend::Cuda),
            "wgpu" => Ok(Backend::Wgpu),
            other => Err(BackendError::Unknown(other.into())),
        }
    }
}

/// Something to do on a device of any runtime.
pub trait OnDevice {
    /// What comes out of it.
    type Output;

    /// Does it on the device behind `client`, whose backend and name are given for reports.
    fn on<R: Runtime>(
        self,
        client: &ComputeClient<R>,
        backend: Backend,
        name: &str,
    ) -> Self::Output;
}

/// Does `work` on the default device of `backend`, or of the first backend compiled in.
///
/// # Errors
///
/// The backend is not compiled in, or finds no device.
pub fn on_device<W: OnDevice>(
    backend: Option<Backend>,
    work: W,
) -> Result<W::Output, BackendError> {
    let preferred = Backend::COMPILED_IN.first().ok_or(BackendError::NoneCompiledIn);
    let backend = backend.map_or(preferred.copied(), Ok)?;
    match backend {
        #[cfg(feature = "cuda")]
        Backend::Cuda => {
            use reduce_kernels::cubecl::cuda::{CudaDevice, CudaRuntime};

            let client = quietly(
                || CudaRuntime::client(&CudaDevice::default()),
                BackendError::NoDevice(backend),
            )?;
            // CubeCL does not tell a CUDA device's name.
            Ok(work.on(&client, backend, "CUDA device 0"))
        }
        #[cfg(any(feature = "wgpu", feature = "vulkan"))]
        Backend::Wgpu => {
            use reduce_kernels::cubecl::wgpu::{
                AutoGraphicsApi, RuntimeOptions, WgpuDevice, WgpuRuntime, init_setup,
            };

            let device = WgpuDevice::default();
            let start = || init_setup::<AutoGraphicsApi>(&device, RuntimeOptions::default());
            let setup = quietly(start, BackendError::NoDevice(backend))?;
            let name = setup.adapter.get_info().name;
            Ok(work.on(&WgpuRuntime::client(&device), backend, &name))
        }
        #[allow(unreachable_patterns, reason = "reachable unless every backend is compiled in")]
        other => {
            drop(work);
            Err(BackendError::NotCompiledIn(other))
        }
    }
}

/// CubeCL 0.10 panics where a runtime finds no device, after printing a report of its own; a user
/// gets one line instead.
#[cfg(any(feature = "cuda", feature = "wgpu", feature = "vulkan"))]
fn quietly<T>(start: impl FnOnce() -> T, failure: BackendError) -> Result<T, BackendError> {
    use std::panic;

    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let started = panic::catch_unwind(panic::AssertUnwindSafe(start));
    panic::set_hook(hook);
    started.map_err(|_| failure)
}
