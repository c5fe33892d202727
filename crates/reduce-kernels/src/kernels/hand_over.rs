//! How the cubes of an output hand their partial results to the one that finishes last.
//!
//! CubeCL 0.10 has no fence that orders plain stores of one cube for another. So a partial result
//! travels in atomic words of 64 bits: the upper half is the number of the launch, the lower half holds 32
//! bits of an accumulator. Whoever reads a word with the number of its launch has its value too, whatever
//! order memory shows them in. Numbers grow from launch to launch, and words begin as 0, so whatever an
//! earlier launch left behind, aborted or wrong, has a lower number and counts as not written. The counter of a
//! block of outputs has the number above its count: the first cube of a launch to arrive resets it by an atomic
//! maximum.

use cubecl::prelude::*;

use super::work::{combine_workers, place};
use crate::{
    combine::Team,
    operator::{Fields, FieldsOf, Operator, Parameters, Types},
};

/// Words that a unit of the last cube waits for at a time.
const WORDS_IN_FLIGHT: usize = 8;

/// The words of one block of outputs: a counter, then for each of `cubes` cubes the accumulators of
/// `outputs` outputs, word by word so that neighbouring outputs lie side by side.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Words {
    pub(crate) first: usize,
    pub(crate) cubes: usize,
    /// The number of the launch in the upper half.
    pub(crate) mark: u64,
    #[cube(comptime)]
    pub(crate) outputs: usize,
    #[cube(comptime)]
    pub(crate) words: usize,
}

#[cube]
impl Words {
    pub(crate) fn of<O: Operator, T: Types>(
        block: usize,
        cubes: usize,
        mark: u64,
        #[comptime] outputs: usize,
    ) -> Self {
        let words = O::Fields::words::<T::Accumulator>();
        let per_cube = comptime![outputs * words].runtime();
        Words { first: block * (1 + cubes * per_cube), cubes, mark, outputs, words }
    }

    /// Tells the counter of this launch, so that it begins at 0. Long before cubes count themselves in,
    /// where it costs nothing.
    pub(crate) fn open(&self, memory: &Array<Atomic<u64>>) {
        if UNIT_POS == 0 {
            memory[self.first].fetch_max(self.mark);
        }
    }

    /// Where word `word` of an output's accumulator from `cube` lies.
    fn at(&self, cube: usize, output: usize, #[comptime] word: usize) -> usize {
        let row = cube * comptime![self.words] + comptime![word];
        self.first + 1 + row * comptime![self.outputs] + output
    }

    /// Publishes the accumulator of `output`.
    pub(crate) fn publish<O: Operator, T: Types>(
        &self,
        memory: &Array<Atomic<u64>>,
        cube: usize,
        output: usize,
        accumulator: FieldsOf<O::Fields, T, Const<1>>,
    ) {
        let bits = O::Fields::bits::<T::Accumulator>(accumulator);
        #[unroll]
        for word in 0..comptime![self.words] {
            let marked = u64::cast_from(*bits.index(word)) | self.mark;
            memory[self.at(cube, output, word)].store(marked);
        }
    }

    /// Counts this cube in; whether it is the last. Every unit of the cube must get here, after
    /// [`open`](Self::open).
    pub(crate) fn is_last(&self, memory: &Array<Atomic<u64>>) -> bool {
        let mut last = SharedMemory::<u32>::new(1usize);
        // A cube counts itself in behind its partial results, so that the last one rarely waits.
        sync_cube();
        if UNIT_POS == 0 {
            let earlier = memory[self.first].fetch_add(1u64) - self.mark;
            let is_last = usize::cast_from(earlier) + 1 == self.cubes;
            last[0] = u32::cast_from(is_last);
        }
        sync_cube();
        last[0] == 1
    }

    /// Merges what all cubes published: the total of output `UNIT_POS % outputs`, complete in the first
    /// unit of each output. The order depends on the number of cubes and units alone.
    pub(crate) fn merge<O: Operator, T: Types>(
        &self,
        memory: &Array<Atomic<u64>>,
        parameters: &Parameters,
        #[comptime] team: Team,
    ) -> FieldsOf<O::Fields, T, Const<1>> {
        let words = comptime![self.words];
        let batch = comptime![(WORDS_IN_FLIGHT / words).max(1)];
        let place = place(team);
        let output = place.group as usize;
        let workers = comptime![team.workers as usize];
        let mut total = O::identity::<T, Const<1>>();
        let rounds = self.cubes.div_ceil(comptime![batch * workers]);
        for round in 0..rounds {
            let cube = place.worker as usize + round * comptime![batch * workers];
            let mut taken = Sequence::<u64>::new();
            #[unroll]
            for k in 0..batch {
                let from = cube + comptime![k * workers];
                #[unroll]
                for word in 0..words {
                    let mut found = 0u64;
                    if from < self.cubes {
                        found = memory[self.at(from, output, word)].load();
                    }
                    taken.push(found);
                }
            }
            #[unroll]
            for k in 0..batch {
                let from = cube + comptime![k * workers];
                if from < self.cubes {
                    let mut bits = Sequence::<u32>::new();
                    #[unroll]
                    for word in 0..words {
                        let mut found = *taken.index(comptime![k * words + word]);
                        while found < self.mark {
                            found = memory[self.at(from, output, word)].load();
                        }
                        bits.push(u32::cast_from(found));
                    }
                    let partial = O::Fields::from_bits::<T::Accumulator>(&bits);
                    total = O::merge::<T, Const<1>>(total, partial, parameters);
                }
            }
        }
        combine_workers::<O, T, Const<1>>(total, parameters, team)
    }
}
