//! Units that exchange elements, so that each has neighbouring loads of a chunk.
//!
//! Neighbouring lanes load neighbouring vectors. If each kept the vectors that it has loaded, the
//! lanes would have to tell each other a total of each. Merges are what takes long for operators of
//! many fields, or of exponentials. So the lanes of a plane put its vectors into shared memory, and
//! each takes neighbouring ones, which make one total. Results go back the same way: each replaces
//! the vector it belongs to, if both have one type. The less memory a cube has, the more cubes
//! reside.

use cubecl::prelude::*;

use super::ScanSpec;
use crate::{
    kernels::{load::Loaded, reducer::Reducer},
    operator::{Columns, Out, Out2, Out3, ResultTypes, Results, Slice, Stored, Wide, shared},
};

/// The memory through which the lanes of a plane exchange the vectors of a chunk.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Transposition {
    elements: ComptimeOption<Slice<Vector<Stored, Wide>>>,
    results: Columns<ResultTypes, Wide>,
    #[cube(comptime)]
    spec: ScanSpec,
}

/// Vectors between two that are left out, so that lanes which read every few vectors reach all
/// banks of the memory.
const VECTORS_PER_GAP: usize = 8;

#[cube]
impl Transposition {
    pub(super) fn new(#[comptime] spec: ScanSpec, reducer: &Reducer<'_>) -> Transposition {
        let vectors = comptime![spec.team.units_per_cube as usize * spec.access.loads_in_flight];
        let slots = comptime![vectors + vectors / VECTORS_PER_GAP];
        let count = comptime![if spec.transposes { reducer.operator.0.results } else { 0 }];
        let elements = shared::<Stored, Wide>(slots, comptime![spec.transposes]);
        let (stored, first) = (elem_type_of::<Stored>(), elem_type_of::<Out>());
        let results = if comptime![spec.transposes && stored == first] {
            let elements = elements.unwrap();
            Columns::<ResultTypes, Wide>::new(
                ComptimeOption::new_Some(elements.renamed::<Vector<Out, Wide>>()),
                shared::<Out2, Wide>(slots, comptime![count > 1]),
                shared::<Out3, Wide>(slots, comptime![count > 2]),
                ComptimeOption::new_None(),
                ComptimeOption::new_None(),
            )
        } else {
            Columns::<ResultTypes, Wide>::shared(slots, count)
        };
        Transposition { elements, results, spec }
    }

    /// Exchanges the values of loads. The units of a plane must get here together.
    pub(super) fn exchange(&self, loads: &Sequence<Loaded>) {
        let mut elements = self.elements.unwrap();
        #[unroll]
        for k in 0..loads.len().comptime() {
            elements[self.loaded(k)] = loads.index(k).value;
        }
        sync_plane();
    }

    /// The vector that comes as number `k` of this unit's neighbouring ones.
    pub(super) fn value(&self, k: usize) -> Vector<Stored, Wide> {
        let elements = self.elements.unwrap();
        elements[self.neighbouring(k)]
    }

    /// Puts the results of that vector.
    pub(super) fn put(&self, k: usize, all: Results<Wide>) {
        let mut results = self.results;
        results.put(self.neighbouring(k), all);
    }

    /// The results of the vector that this unit has loaded as number `k`, once all units of the
    /// plane have put theirs.
    pub(super) fn results(&self, #[comptime] k: usize) -> Results<Wide> {
        self.results.at(self.loaded(k))
    }

    /// The slot of load `k` of this unit.
    fn loaded(&self, #[comptime] k: usize) -> usize {
        let lanes = comptime![self.spec.team.neighbours() as usize];
        let loads = comptime![self.spec.access.loads_in_flight];
        let (first, lane) =
            (UNIT_POS as usize / lanes * (lanes * loads), UNIT_POS as usize % lanes);
        self.slot(first + k * lanes + lane)
    }

    fn neighbouring(&self, k: usize) -> usize {
        self.slot(UNIT_POS as usize * comptime![self.spec.access.loads_in_flight] + k)
    }

    fn slot(&self, vector: usize) -> usize {
        vector + vector / VECTORS_PER_GAP
    }
}
