//! Kernels that a prepared call keeps, with the identity by which CubeCL finds what it compiled.
//!
//! A launch by CubeCL 0.11's own functions makes its kernel anew: it copies the properties of the
//! device, and the device's thread copies everything that the kernel was generated for, and hashes
//! it for each look-up, of which a launch through CUDA takes three. A call that was prepared
//! launches the same kernels every time. So it keeps them after the first launch, and another one
//! only registers its arguments. The identity of a kept kernel is hashed once: the hash that
//! CubeCL's tables ask for is that of this hash, and kernels of the same hash are compared whole.

use core::{
    cell::OnceCell,
    fmt,
    hash::{Hash, Hasher},
};
use std::sync::Arc;

use cubecl::{ir::ElemType, prelude::*};

/// The kernel of a launch, once there was one. It belongs to one client.
#[derive(Default)]
pub(crate) struct KeptKernel(OnceCell<SharedKernel>);

impl fmt::Debug for KeptKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeptKernel").field(&self.0.get().map(|kernel| &kernel.0.id)).finish()
    }
}

impl KeptKernel {
    /// Launches the kernel with the arguments that `launcher` has registered. `generate` makes it,
    /// at the first launch. With debug assertions, every launch makes it and compares.
    ///
    /// # Safety
    ///
    /// - The kernel accesses nothing out of bounds with these arguments, and its loops end.
    /// - All launches are of the same kernel, generated for the same, and for the same client: what
    ///   was kept gets the arguments of all of them.
    pub(crate) unsafe fn launch<K: CubeKernel>(
        &self,
        launcher: KernelLauncher,
        cubes: CubeCount,
        client: &Client,
        generate: impl FnOnce() -> K,
    ) {
        let kernel = match self.0.get() {
            Some(kept) => {
                if cfg!(debug_assertions) {
                    assert_eq!(generate().id(), kept.0.kernel.id(), "another kernel was kept");
                }
                kept
            }
            None => self.0.get_or_init(|| SharedKernel::new(generate())),
        };
        launcher.launch(cubes, kernel.clone(), client);
    }
}

/// A kernel of which CubeCL gets one share at each launch.
#[derive(Clone)]
struct SharedKernel(Arc<Shared>);

struct Shared {
    kernel: Box<dyn CubeKernel>,
    id: KernelId,
}

impl SharedKernel {
    fn new(kernel: impl CubeKernel) -> Self {
        let id = kernel.id();
        let identity = Identity { hash: id.stable_hash(), id: id.clone() };
        Self(Arc::new(Shared { id: id.info(identity), kernel: Box::new(kernel) }))
    }
}

impl KernelMetadata for SharedKernel {
    fn name(&self) -> &'static str {
        self.0.kernel.name()
    }

    fn id(&self) -> KernelId {
        self.0.id.clone()
    }

    fn address_type(&self) -> ElemType {
        self.0.kernel.address_type()
    }
}

impl CubeKernel for SharedKernel {
    fn define(&self) -> KernelDefinition {
        self.0.kernel.define()
    }
}

/// What a kernel was generated for, with its hash, which is the same in all processes of one build.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    hash: u128,
    id: KernelId,
}

impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(self.hash);
    }
}

/// Launches a kernel that a [`KeptKernel`] keeps, without checks of bounds, as CubeCL's
/// `launch_unchecked` of it would: with the same arguments in the same order, each with its type
/// and with what the kernel does to its buffers, `ReadOnly` behind a `&` and otherwise `ReadWrite`,
/// and then with the constants. The kernel is named by the module that `#[cube]` makes of its
/// function and by the type in it, which has the same name in camel case.
///
/// It must stand in an `unsafe` block, as [`KeptKernel::launch`] says.
macro_rules! launch_kept {
    (
        $kept:expr, $client:expr, $cubes:expr, $units:expr, $address:expr;
        $module:ident::$Kernel:ident {
            $($access:ident $name:ident: $Argument:ty = $value:expr),+ $(,)?
        }
        $($constant:expr),* $(,)?
    ) => {{
        let client: &Client = $client;
        let units = CubeDim::new_1d($units).into();
        let settings = KernelSettings::new(units, ExecutionMode::Unchecked, $address);
        let mut launcher = KernelLauncher::new(settings.clone());
        // All values come before the first registration. What registers keeps its numbers for the
        // thread's next launch, and a value may launch something itself.
        let ($($name,)+) = ($($value,)+);
        $(
            launcher.declare_io(BufferIOAttr::$access);
            let $name = <$Argument as LaunchArg>::register($name, &mut launcher);
        )+
        let generate = || {
            let (device, target) = (client.properties_shared(), client.target_properties_shared());
            $module::$Kernel::new(settings, device, target, $($name,)+ $($constant),*)
        };
        $kept.launch(launcher, $cubes, client, generate)
    }};
}

pub(crate) use launch_kept;
