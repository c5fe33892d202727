//! The choice of a backend at run time, among those compiled in.

use std::{env, fmt, str::FromStr};

use reduce_kernels::cubecl::{self, prelude::*};

/// The environment variable that names the backend of programs that are given none.
const VARIABLE: &str = "REDUCE_BACKEND";

/// What `--help` says about the choice.
pub const HELP: &str = "The backend: cuda, vulkan (kernels as SPIR-V) or wgpu (kernels as WGSL). If \
                        not given, the environment variable REDUCE_BACKEND names it; if that is not \
                        set either, it is the first in this order that is compiled in and has a device";

/// A way to run kernels, named after the feature that compiles it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// NVIDIA GPUs through CUDA.
    Cuda,
    /// GPUs that wgpu reaches through Vulkan, kernels as SPIR-V.
    Vulkan,
    /// Every GPU that wgpu reaches, kernels as WGSL. The feature `vulkan` brings it in as well.
    Wgpu,
}

impl Backend {
    /// The backends compiled in, the preferred one first.
    pub const COMPILED_IN: &'static [Backend] = &[
        #[cfg(feature = "cuda-llvm")]
        Backend::Cuda,
        #[cfg(feature = "vulkan")]
        Backend::Vulkan,
        #[cfg(any(feature = "wgpu", feature = "vulkan"))]
        Backend::Wgpu,
    ];

    /// The backend's name.
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Cuda => "cuda",
            Backend::Vulkan => "vulkan",
            Backend::Wgpu => "wgpu",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a backend cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// No such backend.
    #[error("unknown backend `{0}`: expected cuda, vulkan or wgpu")]
    Unknown(String),
    /// The environment variable names none.
    #[error("the environment variable {VARIABLE}: {0}")]
    Variable(Box<BackendError>),
    /// The program was built without it.
    #[error("backend {0} is not compiled in: build with --features {0}")]
    NotCompiledIn(Backend),
    /// The program was built without any.
    #[error("no backend is compiled in: build with --features cuda, vulkan or wgpu")]
    NoneCompiledIn,
    /// The backend found no device.
    #[error("backend {0} found no device: {HINT}")]
    NoDevice(Backend),
    /// No backend found a device.
    #[error("no device found through {}: {HINT}", names(.0))]
    NoDeviceAnywhere(Vec<Backend>),
}

const HINT: &str = "is the driver of a GPU, or of Mesa's software adapter, installed?";

fn names(backends: &[Backend]) -> String {
    let names: Vec<&str> = backends.iter().map(|backend| backend.name()).collect();
    names.join(" or ")
}

impl FromStr for Backend {
    type Err = BackendError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "cuda" => Ok(Backend::Cuda),
            "vulkan" => Ok(Backend::Vulkan),
            "wgpu" => Ok(Backend::Wgpu),
            other => Err(BackendError::Unknown(other.into())),
        }
    }
}

/// Work to do on a device of any runtime.
pub trait OnDevice {
    /// The result of the work.
    type Output;

    /// Does the work on the device behind `client`. The backend and the device's name are for
    /// reports.
    fn on(self, client: &Client, backend: Backend, name: &str) -> Self::Output;
}

/// Does `work` on the default device of `backend`; see [`device`].
///
/// # Errors
///
/// The backend is not compiled in or finds no device, or no backend does.
pub fn on_device<W: OnDevice>(
    backend: Option<Backend>,
    work: W,
) -> Result<W::Output, BackendError> {
    Ok(device(backend)?.run(work))
}

/// The default device of `backend`.
///
/// If `backend` is `None`, the environment variable `REDUCE_BACKEND` names it. Without the
/// variable, the first backend is used that is compiled in and has a device, and a line on stderr
/// names the backends that have none.
///
/// # Errors
///
/// The backend is not compiled in or finds no device, or no backend does.
pub fn device(backend: Option<Backend>) -> Result<Device, BackendError> {
    #[cfg(feature = "persistence")]
    keep_kernels();
    match backend.map_or_else(|| named(env::var(VARIABLE).ok()), |b| Ok(Some(b)))? {
        Some(backend) => Device::open(backend),
        None => {
            let (device, without) = first(Backend::COMPILED_IN, Device::open)?;
            if !without.is_empty() {
                eprintln!("no device found through {}, using another backend", names(&without));
            }
            Ok(device)
        }
    }
}

/// Lets CubeCL keep compiled kernels on disk, where its configuration says nothing of it. They are
/// kept by the identity of the executable, so no other build finds them.
#[cfg(feature = "persistence")]
fn keep_kernels() {
    use reduce_kernels::cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};

    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    config.compilation.cache = true;
    // A program that has read its configuration before keeps that one.
    let _ = CubeClRuntimeConfig::try_set(config);
}

/// The backend that the environment variable names, if it is set.
fn named(variable: Option<String>) -> Result<Option<Backend>, BackendError> {
    let name = variable.filter(|name| !name.is_empty());
    let backend = name.map(|name| name.parse()).transpose();
    backend.map_err(|error| BackendError::Variable(Box::new(error)))
}

/// Opens backends in order until one has a device. Returns the device and the backends before it.
fn first<D>(
    backends: &[Backend],
    mut open: impl FnMut(Backend) -> Result<D, BackendError>,
) -> Result<(D, Vec<Backend>), BackendError> {
    if backends.is_empty() {
        return Err(BackendError::NoneCompiledIn);
    }
    let mut without = Vec::new();
    for &backend in backends {
        match open(backend) {
            Ok(device) => return Ok((device, without)),
            Err(BackendError::NoDevice(_)) => without.push(backend),
            Err(other) => return Err(other),
        }
    }
    Err(BackendError::NoDeviceAnywhere(without))
}

/// The default device of a backend.
#[derive(Clone)]
pub struct Device {
    backend: Backend,
    /// The device as CubeCL names it.
    device: cubecl::Device,
    client: Client,
    name: String,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backend, device, name, .. } = self;
        write!(f, "{name} ({device:?}) through {backend}")
    }
}

impl Device {
    fn open(backend: Backend) -> Result<Self, BackendError> {
        match backend {
            #[cfg(feature = "cuda-llvm")]
            Backend::Cuda => {
                let device = cubecl::Device::cuda(0);
                let device = device.map_err(|_| BackendError::NoDevice(backend))?;
                let client = device.client();
                let name = client.properties().identity.name.clone();
                Ok(Self { backend, device, client, name })
            }
            #[cfg(feature = "vulkan")]
            Backend::Vulkan => wgpu::spirv().ok_or(BackendError::NoDevice(backend)),
            #[cfg(any(feature = "wgpu", feature = "vulkan"))]
            Backend::Wgpu => wgpu::wgsl().ok_or(BackendError::NoDevice(backend)),
            #[allow(unreachable_patterns, reason = "reachable unless every backend is compiled in")]
            other => Err(BackendError::NotCompiledIn(other)),
        }
    }

    fn run<W: OnDevice>(self, work: W) -> W::Output {
        work.on(&self.client, self.backend, &self.name)
    }

    /// The backend that it is the default device of.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// The device as CubeCL names it. Its own client may use another compiler than
    /// [`client`](Self::client), which is that of the backend.
    #[must_use]
    pub fn device(&self) -> &cubecl::Device {
        &self.device
    }

    /// A client that compiles kernels as the backend says.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }
}

/// wgpu's default adapter through either of CubeCL's compilers.
#[cfg(any(feature = "wgpu", feature = "vulkan"))]
mod wgpu {
    use std::sync::LazyLock;

    use reduce_kernels::cubecl::{
        Device, RuntimeId,
        prelude::*,
        wgpu::{
            AutoGraphicsApi, RuntimeOptions, WgpuBackend, WgpuDevice, WgpuServer, WgpuSetup,
            WgslCompiler, try_init_setup,
        },
    };

    use super::Backend;

    /// The default adapter, if there is one. A process can set it up only once.
    ///
    /// Vulkan is asked first: where it has a software adapter alone, CubeCL would look for a GPU
    /// through OpenGL, which prints to stderr.
    static SETUP: LazyLock<Option<(WgpuDevice, WgpuSetup)>> = LazyLock::new(|| {
        let auto = WgpuDevice::default();
        [auto.clone().on(WgpuBackend::Vulkan), auto].into_iter().find_map(|device| {
            let options = RuntimeOptions::default();
            let setup = try_init_setup::<AutoGraphicsApi>(&device, options).ok()?;
            Some((device, setup))
        })
    });

    fn opened(backend: Backend, client: impl FnOnce(&Device) -> Client) -> Option<super::Device> {
        let (device, setup) = SETUP.as_ref()?;
        let name = setup.adapter.get_info().name;
        let device = Device::from(device.clone());
        let client = client(&device);
        Some(super::Device { backend, device, client, name })
    }

    /// The adapter through SPIR-V, unless it does not take that.
    ///
    /// Mesa's software adapter says that it does, and crashes when it compiles a kernel with shared
    /// memory: it lacks `VK_KHR_workgroup_memory_explicit_layout`, and what CubeCL 0.11.3 writes
    /// without it is invalid.
    #[cfg(feature = "vulkan")]
    pub(super) fn spirv() -> Option<super::Device> {
        use reduce_kernels::cubecl::wgpu::wgpu::DeviceType;

        if SETUP.as_ref()?.1.adapter.get_info().device_type == DeviceType::Cpu {
            eprintln!("a software adapter does not run SPIR-V of CubeCL rightly");
            return None;
        }
        opened(Backend::Vulkan, Device::client)
            .filter(|device| device.client.name() == "wgpu<spirv>")
    }

    /// The adapter through WGSL. CubeCL's own client of it uses SPIR-V where it can.
    pub(super) fn wgsl() -> Option<super::Device> {
        opened(Backend::Wgpu, |device| {
            Client::load::<WgpuServer<WgslCompiler>>(RuntimeId::strip(device.to_id()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Backend; 3] = [Backend::Cuda, Backend::Vulkan, Backend::Wgpu];

    /// Opens the backends of a machine that has devices for some.
    fn machine(has: &[Backend]) -> impl Fn(Backend) -> Result<Backend, BackendError> {
        move |backend| {
            if has.contains(&backend) { Ok(backend) } else { Err(BackendError::NoDevice(backend)) }
        }
    }

    #[test]
    fn the_first_backend_with_a_device_is_taken() {
        assert_eq!(first(&ALL, machine(&ALL)), Ok((Backend::Cuda, vec![])));
        assert_eq!(first(&ALL, machine(&[Backend::Wgpu])), Ok((Backend::Wgpu, ALL[..2].to_vec())));
        assert_eq!(first(&[], machine(&ALL)), Err(BackendError::NoneCompiledIn));
        let nowhere = first(&ALL, machine(&[])).unwrap_err();
        assert_eq!(nowhere, BackendError::NoDeviceAnywhere(ALL.to_vec()));
        assert!(
            nowhere.to_string().starts_with("no device found through cuda or vulkan or wgpu: ")
        );
    }

    #[test]
    fn the_variable_names_a_backend() {
        assert_eq!(named(None), Ok(None));
        assert_eq!(named(Some(String::new())), Ok(None));
        for backend in ALL {
            assert_eq!(named(Some(backend.to_string())), Ok(Some(backend)));
        }
        let unknown = named(Some("opengl".into())).unwrap_err().to_string();
        assert!(unknown.starts_with("the environment variable REDUCE_BACKEND: unknown backend"));
    }
}
