//! The suite: one corpus and random problems through every schedule, on every backend compiled in.
//!
//! `--features vulkan` runs it through SPIR-V, `--features wgpu` through WGSL, `--features cuda` on
//! an NVIDIA GPU. Where the device reports no plane operations, as Mesa's software adapter does,
//! plane kernels are forced all the same: it runs them.

mod case;
mod contract;
mod corpus;
mod laws;
mod oracle;
mod random;
mod run;
mod types;
mod user_operator;

/// The suite on one runtime.
macro_rules! suite {
    ($backend:ident: $runtime:ty) => {
        mod $backend {
            type R = $runtime;

            #[test]
            fn corpus_through_every_schedule() {
                crate::corpus::through_every_schedule::<R>();
            }

            #[test]
            fn corpus_as_chosen() {
                crate::corpus::as_chosen::<R>();
            }
        }
    };
}

#[cfg(feature = "cuda")]
suite!(cuda: reduce_kernels::cubecl::cuda::CudaRuntime);

#[cfg(any(feature = "wgpu", feature = "vulkan"))]
suite!(wgpu: reduce_kernels::cubecl::wgpu::WgpuRuntime);
