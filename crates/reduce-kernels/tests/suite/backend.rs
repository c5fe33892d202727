//! A client of each backend compiled in.

#[cfg(feature = "cuda")]
pub(crate) use cuda::cuda;
#[cfg(feature = "vulkan")]
pub(crate) use vulkan::{spirv, wgsl};
#[cfg(all(feature = "wgpu", not(feature = "vulkan")))]
pub(crate) use wgpu::wgsl;

#[cfg(feature = "cuda")]
mod cuda {
    use reduce_kernels::cubecl::{
        cuda::{CudaDevice, CudaRuntime},
        prelude::*,
    };

    /// The first NVIDIA GPU.
    pub(crate) fn cuda() -> ComputeClient<CudaRuntime> {
        CudaRuntime::client(&CudaDevice::default())
    }
}

#[cfg(feature = "vulkan")]
pub(crate) mod vulkan {
    use std::sync::LazyLock;

    use reduce_kernels::cubecl::{
        prelude::*,
        wgpu::{
            GraphicsApi, RuntimeOptions, Vulkan, WebGpu, WgpuDevice, WgpuRuntime, WgpuSetup,
            init_device, init_setup,
        },
    };

    /// Vulkan's default adapter, whose default client compiles to SPIR-V.
    pub(crate) static SETUP: LazyLock<WgpuSetup> =
        LazyLock::new(|| init_setup::<Vulkan>(&WgpuDevice::default(), RuntimeOptions::default()));

    /// The same adapter again. CubeCL compiles to SPIR-V only where a setup names Vulkan; for any
    /// other name it gives wgpu WGSL, as it does in a browser.
    static THROUGH_WGSL: LazyLock<WgpuDevice> = LazyLock::new(|| {
        let setup = WgpuSetup { backend: WebGpu::backend(), ..SETUP.clone() };
        init_device(setup, RuntimeOptions::default())
    });

    /// Vulkan's default adapter, kernels as SPIR-V.
    pub(crate) fn spirv() -> ComputeClient<WgpuRuntime> {
        LazyLock::force(&SETUP);
        let client = WgpuRuntime::client(&WgpuDevice::default());
        assert_eq!(WgpuRuntime::name(&client), "wgpu<spirv>");
        client
    }

    /// Vulkan's default adapter, kernels as WGSL.
    pub(crate) fn wgsl() -> ComputeClient<WgpuRuntime> {
        let client = WgpuRuntime::client(&THROUGH_WGSL);
        assert_eq!(WgpuRuntime::name(&client), "wgpu<wgsl>");
        client
    }
}

#[cfg(all(feature = "wgpu", not(feature = "vulkan")))]
mod wgpu {
    use reduce_kernels::cubecl::{
        prelude::*,
        wgpu::{WgpuDevice, WgpuRuntime},
    };

    /// wgpu's default adapter, kernels as WGSL.
    pub(crate) fn wgsl() -> ComputeClient<WgpuRuntime> {
        WgpuRuntime::client(&WgpuDevice::default())
    }
}
