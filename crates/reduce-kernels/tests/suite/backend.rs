//! A client of each backend compiled in.

#[cfg(feature = "cuda-llvm")]
pub(crate) use cuda::cuda;
#[cfg(feature = "vulkan")]
pub(crate) use vulkan::{spirv, wgsl};
#[cfg(all(feature = "wgpu", not(feature = "vulkan")))]
pub(crate) use wgpu::wgsl;

#[cfg(feature = "cuda-llvm")]
mod cuda {
    use reduce_kernels::cubecl::{Device, prelude::*};

    /// The first NVIDIA GPU.
    pub(crate) fn cuda() -> Client {
        Device::cuda(0).expect("a GPU").client()
    }
}

#[cfg(feature = "vulkan")]
pub(crate) mod vulkan {
    use std::sync::LazyLock;

    use reduce_kernels::cubecl::{
        Device, RuntimeId,
        prelude::*,
        wgpu::{
            RuntimeOptions, Vulkan, WgpuDevice, WgpuServer, WgpuSetup, WgslCompiler, init_setup,
        },
    };

    /// Vulkan's default adapter, whose default client compiles to SPIR-V.
    pub(crate) static SETUP: LazyLock<WgpuSetup> =
        LazyLock::new(|| init_setup::<Vulkan>(&WgpuDevice::default(), RuntimeOptions::default()));

    /// Vulkan's default adapter, kernels as SPIR-V.
    pub(crate) fn spirv() -> Client {
        LazyLock::force(&SETUP);
        let client = Device::from(WgpuDevice::default()).client();
        assert_eq!(client.name(), "wgpu<spirv>");
        client
    }

    /// The same adapter, kernels as WGSL. CubeCL's devices of a build with SPIR-V use it wherever
    /// Vulkan is; a client with its compiler of WGSL is asked for by name.
    pub(crate) fn wgsl() -> Client {
        let id = RuntimeId::strip(Device::from(WgpuDevice::default()).to_id());
        Client::load::<WgpuServer<WgslCompiler>>(id)
    }
}

#[cfg(all(feature = "wgpu", not(feature = "vulkan")))]
pub(crate) mod wgpu {
    use std::sync::LazyLock;

    use reduce_kernels::cubecl::{
        Device,
        prelude::*,
        wgpu::{AutoGraphicsApi, RuntimeOptions, WgpuDevice, WgpuSetup, init_setup},
    };

    /// wgpu's default adapter.
    pub(crate) static SETUP: LazyLock<WgpuSetup> = LazyLock::new(|| {
        init_setup::<AutoGraphicsApi>(&WgpuDevice::default(), RuntimeOptions::default())
    });

    /// wgpu's default adapter, kernels as WGSL.
    pub(crate) fn wgsl() -> Client {
        LazyLock::force(&SETUP);
        Device::from(WgpuDevice::default()).client()
    }
}
