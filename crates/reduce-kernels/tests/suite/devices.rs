//! Several devices for tensors in shards.

#[cfg(feature = "nccl")]
pub(crate) use gpus::gpus;
#[cfg(feature = "wgpu")]
pub(crate) use names::three_devices;

#[cfg(feature = "nccl")]
mod gpus {
    use reduce_kernels::cubecl::Device;

    /// All NVIDIA GPUs, of which there must be several.
    pub(crate) fn gpus() -> Vec<Device> {
        let gpus: Vec<Device> = (0..).map_while(|nth| Device::cuda(nth).ok()).collect();
        assert!(gpus.len() > 1, "{} GPU", gpus.len());
        gpus
    }
}

#[cfg(feature = "wgpu")]
mod names {
    use std::sync::LazyLock;

    use reduce_kernels::cubecl::{
        Device,
        wgpu::{RuntimeOptions, init_device},
    };

    #[cfg(feature = "vulkan")]
    use crate::backend::vulkan::SETUP;
    #[cfg(not(feature = "vulkan"))]
    use crate::backend::wgpu::SETUP;

    /// The default adapter under three names.
    pub(crate) fn three_devices() -> Vec<Device> {
        static DEVICES: LazyLock<Vec<Device>> = LazyLock::new(|| {
            (0..3).map(|_| init_device(SETUP.clone(), RuntimeOptions::default()).into()).collect()
        });
        DEVICES.clone()
    }
}
