//! Several devices for tensors in shards.

#[cfg(feature = "nccl")]
pub(crate) use gpus::gpus;
#[cfg(feature = "vulkan")]
pub(crate) use names::three_devices;

#[cfg(feature = "nccl")]
mod gpus {
    use reduce_kernels::cubecl::cuda::CudaDevice;

    /// All NVIDIA GPUs, of which there must be several.
    pub(crate) fn gpus() -> Vec<CudaDevice> {
        let count = crate::backend::cuda().device_count_total();
        assert!(count > 1, "{count} GPU");
        (0..count).map(CudaDevice::new).collect()
    }
}

#[cfg(feature = "vulkan")]
mod names {
    use std::sync::LazyLock;

    use reduce_kernels::cubecl::wgpu::{RuntimeOptions, WgpuDevice, init_device};

    use crate::backend::vulkan::SETUP;

    /// Vulkan's default adapter under three names.
    pub(crate) fn three_devices() -> Vec<WgpuDevice> {
        static DEVICES: LazyLock<Vec<WgpuDevice>> = LazyLock::new(|| {
            (0..3).map(|_| init_device(SETUP.clone(), RuntimeOptions::default())).collect()
        });
        DEVICES.clone()
    }
}
