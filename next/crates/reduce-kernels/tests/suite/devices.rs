//! Several devices for tensors in shards.

#[cfg(feature = "nccl")]
pub(crate) use gpus::gpus;
#[cfg(feature = "vulkan")]
pub(crate) use names::three_devices;

#[cfg(feature = "nccl")]
mod gpus {
    use reduce_kernels::cubecl::Device;

    /// All NVIDIA GPUs, of which there must be several.
    pub(crate) fn gpus() -> Vec<Device> {
        let count = Device::enumerate_all().len();
        assert!(count > 1, "{count} GPU");
        (0..count).map(|nth| Device::cuda(nth).expect("a GPU")).collect()
    }
}

#[cfg(feature = "vulkan")]
mod names {
    use std::sync::LazyLock;

    use reduce_kernels::cubecl::{
        Device,
        wgpu::{RuntimeOptions, init_device},
    };

    use crate::backend::vulkan::SETUP;

    /// Vulkan's default adapter under three names.
    pub(crate) fn three_devices() -> Vec<Device> {
        static DEVICES: LazyLock<Vec<Device>> = LazyLock::new(|| {
            (0..3).map(|_| init_device(SETUP.clone(), RuntimeOptions::default()).into()).collect()
        });
        DEVICES.clone()
    }
}
