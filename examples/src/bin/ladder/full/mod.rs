//! The full reduction: an array to the sum of its elements.

mod coarse;
mod one_cube;
mod steps;
mod tiles;

use std::marker::PhantomData;

use reduce_kernels::{ReduceError, Sum, cubecl::prelude::*, reduce};

use crate::{
    data::{Element, Elements},
    gpu::{Gpu, grid},
};

/// Units of a cube, on every rung but the first.
const UNITS: u32 = 256;

/// Loads of a unit in a tile.
const PER_UNIT: usize = 4;

/// A rung of the full reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rung {
    OneUnit,
    PairwiseDivergent,
    PairwiseHalving,
    SharedMemory,
    InterleavedModulo,
    InterleavedStrided,
    Sequential,
    FirstCombine,
    Segmented,
    Coarsened,
    LastPlane,
    OnePass,
    Batched,
    Vectorised,
    Decomposed,
    Library,
}

impl Rung {
    /// All rungs, from the lowest.
    pub(crate) const ALL: [Rung; 16] = [
        Rung::OneUnit,
        Rung::PairwiseDivergent,
        Rung::PairwiseHalving,
        Rung::SharedMemory,
        Rung::InterleavedModulo,
        Rung::InterleavedStrided,
        Rung::Sequential,
        Rung::FirstCombine,
        Rung::Segmented,
        Rung::Coarsened,
        Rung::LastPlane,
        Rung::OnePass,
        Rung::Batched,
        Rung::Vectorised,
        Rung::Decomposed,
        Rung::Library,
    ];

    /// The name in tables and pictures.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Rung::OneUnit => "one unit alone",
            Rung::PairwiseDivergent => "one cube, pairs in place, divergent",
            Rung::PairwiseHalving => "one cube, pairs in place, halving",
            Rung::SharedMemory => "one cube, shared memory",
            Rung::InterleavedModulo => "many cubes, interleaved by modulo",
            Rung::InterleavedStrided => "strided index, bank conflicts",
            Rung::Sequential => "sequential addressing",
            Rung::FirstCombine => "first combine during load",
            Rung::Segmented => "segments with an atomic add",
            Rung::Coarsened => "coarsened units, two passes",
            Rung::LastPlane => "last plane by plane operations",
            Rung::OnePass => "one pass with atomics",
            Rung::Batched => "two passes, batches of neighbours",
            Rung::Vectorised => "vectorised loads",
            Rung::Decomposed => "recursive decomposition",
            Rung::Library => "the library's own plan",
        }
    }

    /// What the rung needs and the device lacks.
    pub(crate) fn lacks<E: Element>(self, gpu: &Gpu<'_>) -> Option<String> {
        let planes = match self {
            Rung::LastPlane
            | Rung::OnePass
            | Rung::Batched
            | Rung::Vectorised
            | Rung::Decomposed => gpu.lacks_planes(),
            _ => None,
        };
        let atomics = match self {
            Rung::Segmented | Rung::OnePass => gpu.lacks_atomic_add(E::TYPE),
            _ => None,
        };
        atomics.or(planes)
    }

    /// Most elements on Mesa's software adapter, which silently leaves loops after 65535 steps of a
    /// unit.
    pub(crate) fn most_in_software(self) -> usize {
        match self {
            Rung::OneUnit => 1 << 15,
            Rung::PairwiseDivergent | Rung::PairwiseHalving => 1 << 20,
            Rung::SharedMemory => 1 << 23,
            _ => usize::MAX,
        }
    }

    /// Whether the rung overwrites its input.
    pub(crate) fn in_place(self) -> bool {
        matches!(self, Rung::PairwiseDivergent | Rung::PairwiseHalving)
    }

    /// Launches the rung, whose `result` is an array of one element.
    ///
    /// # Errors
    ///
    /// What the library refuses, on its rung.
    pub(crate) fn launch<E: Element>(
        self,
        gpu: &Gpu<'_>,
        input: &Elements,
        result: &Elements,
    ) -> Result<(), ReduceError> {
        let work = Work::<E> { gpu, input, result, element: PhantomData };
        match self {
            Rung::OneUnit => work.one_cube(1, one_cube::one_unit::launch_unchecked::<E>),
            Rung::PairwiseDivergent => {
                work.one_cube(UNITS, one_cube::pairwise_divergent::launch_unchecked::<E>)
            }
            Rung::PairwiseHalving => {
                work.one_cube(UNITS, one_cube::pairwise_halving::launch_unchecked::<E>)
            }
            Rung::SharedMemory => {
                work.one_cube(UNITS, one_cube::shared_memory::launch_unchecked::<E>)
            }
            Rung::InterleavedModulo => {
                work.tiles(1, scalar(tiles::interleaved_modulo::launch_unchecked::<E>))
            }
            Rung::InterleavedStrided => {
                work.tiles(1, scalar(tiles::interleaved_strided::launch_unchecked::<E>))
            }
            Rung::Sequential => work.tiles(1, scalar(tiles::sequential::launch_unchecked::<E>)),
            Rung::FirstCombine => {
                work.tiles(PER_UNIT, scalar(tiles::first_combine::launch_unchecked::<E>))
            }
            Rung::Segmented => {
                let cubes = input.length.div_ceil(UNITS as usize * PER_UNIT);
                work.atomically(cubes, tiles::segmented::launch_unchecked::<E>)
            }
            Rung::Coarsened => {
                work.two_passes(1, scalar(one_cube::shared_memory::launch_unchecked::<E>))
            }
            Rung::LastPlane => {
                work.two_passes(1, scalar(coarse::last_plane::launch_unchecked::<E>))
            }
            Rung::OnePass => {
                let cubes = gpu.side_by_side(UNITS, input.length.div_ceil(UNITS as usize));
                work.atomically(cubes, coarse::one_pass::launch_unchecked::<E>)
            }
            Rung::Batched => {
                work.two_passes(PER_UNIT, scalar(coarse::batched::launch_unchecked::<E>))
            }
            Rung::Vectorised => {
                let lanes = gpu.lanes::<E>();
                work.two_passes(lanes, vectors(lanes, coarse::vectorised::launch_unchecked::<E>))
            }
            Rung::Decomposed => {
                let lanes = gpu.lanes::<E>();
                let kernel = vectors(lanes, tiles::vector_tile::launch_unchecked::<E>);
                work.tiles(PER_UNIT * lanes, kernel)
            }
            Rung::Library => {
                let result = result.tensor::<E>(&[1]).binding();
                let input = input.tensor::<E>(&[input.length]);
                return reduce(Sum, &input).run_into(gpu.client, result);
            }
        }
        Ok(())
    }
}

/// A kernel from one array to another.
type Kernel = unsafe fn(&Client, CubeCount, CubeDim, BufferArg, BufferArg);

/// A kernel from vectors to another array. It gets the number of components of a vector and the
/// number of elements of the input.
type VectorKernel = unsafe fn(&Client, CubeCount, CubeDim, usize, BufferArg, usize, BufferArg);

/// A launch of `cubes` of [`UNITS`] from one array to another.
fn scalar(kernel: Kernel) -> impl Fn(&Client, usize, &Elements, &Elements) {
    move |client, cubes, input, totals| {
        // SAFETY: every kernel masks what lies past the ends of its arrays.
        unsafe {
            kernel(client, grid(cubes), CubeDim::new_1d(UNITS), input.array(), totals.array());
        }
    }
}

/// A launch of a kernel that reads vectors; see [`scalar`].
fn vectors(lanes: usize, kernel: VectorKernel) -> impl Fn(&Client, usize, &Elements, &Elements) {
    move |client, cubes, input, totals| {
        let units = CubeDim::new_1d(UNITS);
        let (vectors, length) = (input.vectors(lanes), input.length);
        // SAFETY: as in `scalar`; the last vector lies inside the buffer.
        unsafe {
            kernel(client, grid(cubes), units, lanes, vectors, length, totals.array());
        }
    }
}

/// The ways in which rungs launch their kernels.
struct Work<'a, E> {
    gpu: &'a Gpu<'a>,
    input: &'a Elements,
    result: &'a Elements,
    element: PhantomData<E>,
}

impl<E: Element> Work<'_, E> {
    fn totals(&self, length: usize) -> Elements {
        Elements::uninitialised::<E>(self.gpu.client, length)
    }

    /// One launch of one cube.
    fn one_cube(&self, units: u32, kernel: Kernel) {
        let (one, units) = (CubeCount::new_single(), CubeDim::new_1d(units));
        // SAFETY: the kernels stay inside their arrays.
        unsafe { kernel(self.gpu.client, one, units, self.input.array(), self.result.array()) };
    }

    /// Launches a cube for each tile of the input, then a cube for each tile of their totals, until
    /// one total is left. All cubes can wait only for the end of a launch.
    fn tiles(&self, per_unit: usize, kernel: impl Fn(&Client, usize, &Elements, &Elements)) {
        let mut input = self.input.clone();
        loop {
            let tiles = input.length.div_ceil(UNITS as usize * per_unit);
            if tiles == 1 {
                return kernel(self.gpu.client, 1, &input, self.result);
            }
            let totals = self.totals(tiles);
            kernel(self.gpu.client, tiles, &input, &totals);
            input = totals;
        }
    }

    /// As many cubes as run side by side, then one cube for their totals.
    fn two_passes(&self, per_unit: usize, kernel: impl Fn(&Client, usize, &Elements, &Elements)) {
        let tiles = self.input.length.div_ceil(UNITS as usize * per_unit);
        let totals = self.totals(self.gpu.side_by_side(UNITS, tiles));
        kernel(self.gpu.client, totals.length, self.input, &totals);
        kernel(self.gpu.client, 1, &totals, self.result);
    }

    /// Cubes that add to one result, after a launch that clears it.
    fn atomically(&self, cubes: usize, kernel: Kernel) {
        let client = self.gpu.client;
        // SAFETY: the kernels stay inside their arrays.
        unsafe {
            coarse::clear::launch_unchecked::<E>(
                client,
                CubeCount::new_single(),
                CubeDim::new_single(),
                self.result.array(),
            );
            let units = CubeDim::new_1d(UNITS);
            kernel(client, grid(cubes), units, self.input.array(), self.result.array());
        }
    }
}
