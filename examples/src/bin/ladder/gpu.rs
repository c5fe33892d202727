//! What rungs need to know of a device.

use reduce_kernels::{
    Device, ElementType,
    cubecl::{
        ir::{
            Type,
            features::{AtomicUsage, Plane},
        },
        prelude::*,
    },
    device_of, storage_type,
};

use crate::data::{Element, WIDEST_LOAD};

/// Most cubes along a dimension of a grid, on every device.
const MOST_CUBES: usize = 65535;

/// A device, and the client that reaches it.
pub(crate) struct Gpu<'a> {
    pub client: &'a Client,
    pub device: Device,
}

impl<'a> Gpu<'a> {
    pub(crate) fn new(client: &'a Client) -> Self {
        Self { client, device: device_of(client) }
    }

    /// Cubes of `units` that the device runs side by side, but no more than are needed.
    pub(crate) fn side_by_side(&self, units: u32, needed: usize) -> usize {
        let Device { multiprocessors, units_per_multiprocessor, .. } = self.device;
        needed.min((multiprocessors * (units_per_multiprocessor / units)) as usize)
    }

    /// Components of the widest vectors that the device loads at once.
    pub(crate) fn lanes<E: Element>(&self) -> usize {
        let bytes = self.device.load_bytes.min(WIDEST_LOAD);
        (bytes / size_of::<E>()).clamp(1, self.device.max_vector)
    }

    /// Why kernels with plane operations cannot run; `None` if they can.
    pub(crate) fn lacks_planes(&self) -> Option<String> {
        let has = self.client.properties().features.plane.contains(Plane::Ops);
        (!has).then(|| "the device reports no plane operations".into())
    }

    /// Why kernels cannot add to an element in memory atomically; `None` if they can.
    pub(crate) fn lacks_atomic_add(&self, element: ElementType) -> Option<String> {
        let atomic = Type::atomic(Type::new(storage_type(element)));
        let usage = self.client.properties().atomic_type_usage(atomic);
        // WGSL has no 64-bit atomics, but a client that compiles WGSL for a Vulkan adapter lists
        // them.
        let wide_enough = element.bytes() <= 4 || self.device.wide_atomics;
        (!usage.contains(AtomicUsage::Add) || !wide_enough)
            .then(|| format!("the device reports no atomic addition of {element}"))
    }
}

/// A grid of at least `cubes` cubes.
pub(crate) fn grid(cubes: usize) -> CubeCount {
    let rows = cubes.div_ceil(MOST_CUBES);
    CubeCount::new_2d(cubes.div_ceil(rows) as u32, rows as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every cube has a place, few places are left over, and no side is longer than a device
    /// allows.
    #[test]
    fn grids_hold_their_cubes() {
        for cubes in [1, 2, 65_535, 65_536, 65_537, 1 << 22, (1 << 31) / 256] {
            let CubeCount::Static(x, y, 1) = grid(cubes) else { panic!("{:?}", grid(cubes)) };
            let places = x as usize * y as usize;
            assert!(x.max(y) as usize <= MOST_CUBES, "{cubes}: {x} × {y}");
            assert!((cubes..cubes + y as usize).contains(&places), "{cubes}: {x} × {y}");
        }
    }
}
