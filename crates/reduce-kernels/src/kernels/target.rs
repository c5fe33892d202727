//! The end of a reduction: an output's accumulator is finished and its results are stored, or it is
//! stored as it is, as a partial result.

use cubecl::prelude::*;
use reduce_planner::Direction;

use super::{
    args::{Output, TargetArrays, output_of, whole_if_any},
    reducer::Reducer,
    share::Share,
};
use crate::operator::{
    Accumulator, AccumulatorTypes, OperatorRef, Parameters, Record, Results, Single, Slice, Wide,
    Width, finish, word_count,
};

/// The entire target, as kernels write it.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Target {
    output: Output,
    words: ComptimeOption<Slice<u32>>,
}

#[cube]
pub(super) fn target_of(arrays: &mut TargetArrays) -> Target {
    Target { output: output_of(&mut arrays.results), words: whole_if_any(&arrays.words) }
}

#[cube]
impl Target {
    /// Whether accumulators are stored, in the row-major order of the outputs.
    pub(super) fn takes_words(&self) -> comptime_type!(bool) {
        self.words.is_some()
    }

    /// Stores what becomes of the accumulator of one output, `offset` elements into the output.
    pub(super) fn put(
        &mut self,
        offset: usize,
        accumulator: Accumulator<Single>,
        outputs: usize,
        reduction_len: usize,
        parameters: &Parameters,
        #[comptime] operator: OperatorRef,
    ) {
        if self.words.is_some() {
            self.put_words(offset, outputs, accumulator);
        } else {
            let results = finish::<Single>(operator, accumulator, reduction_len, parameters);
            self.output.elements.put(offset, results);
        }
    }

    /// Member 0 of a tile's team stores what becomes of the tile's accumulator.
    pub(super) fn put_tile<N: Width>(
        &mut self,
        accumulator: Accumulator<N>,
        share: &Share<'_>,
        reducer: &Reducer<'_>,
    ) {
        self.put_counted::<N>(accumulator, share, share.geometry.reduction_len, reducer);
    }

    /// The same of a tile of so many elements.
    pub(super) fn put_counted<N: Width>(
        &mut self,
        accumulator: Accumulator<N>,
        share: &Share<'_>,
        reduction_len: usize,
        reducer: &Reducer<'_>,
    ) {
        let (geometry, tile) = (share.geometry, share.tile);
        let member = share.place.member;
        if self.words.is_some() {
            #[unroll]
            for nth in 0..N::value().comptime() {
                // The comparison stands outside of `&&`: CubeCL 0.11 makes a branch of an operand
                // that is a call or a macro.
                let exists = comptime![nth as u32] < tile.results;
                if member == 0 && exists {
                    let offset = tile.output + nth * geometry.inner_target_stride;
                    self.put_words(offset, geometry.outputs, accumulator.component(nth));
                }
            }
        } else {
            self.put_results::<N>(reducer.finish::<N>(accumulator, reduction_len), share);
        }
    }

    /// Member 0 of a tile's team stores the tile's results.
    pub(super) fn put_results<N: Width>(&mut self, results: Results<N>, share: &Share<'_>) {
        match comptime![share.access.direction] {
            Direction::Along => {
                if share.place.member == 0 && share.tile.results > 0 {
                    self.output.elements.put(share.tile.output, results.resized::<Single>());
                }
            }
            Direction::Across => {
                write_across(&mut self.output, share, results.resized::<Wide>());
            }
        }
    }

    fn put_words(&mut self, offset: usize, outputs: usize, accumulator: Accumulator<Single>) {
        // The words of one field of all outputs lie side by side, as neighbouring units store them.
        // Fields of f16 travel as f32: WGSL has no integers of 16 bits to hold their bits.
        let mut words = self.words.unwrap();
        let bits = accumulator.bits();
        #[unroll]
        for word in 0..bits.len().comptime() {
            words[outputs * comptime![word] + offset] = *bits.index(word);
        }
    }
}

/// The accumulator of output `offset` in slot `slot` of words that [`Target`] has stored.
#[cube]
pub(super) fn accumulator_of_words(
    words: &[u32],
    slot: usize,
    offset: usize,
    outputs: usize,
    #[comptime] operator: OperatorRef,
) -> Accumulator<Single> {
    let fields = comptime![operator.0.fields];
    let count = word_count::<AccumulatorTypes>(fields);
    let first = slot * comptime![count] * outputs + offset;
    let mut bits = Sequence::<u32>::new();
    #[unroll]
    for word in 0..count {
        bits.push(words[first + outputs * comptime![word]]);
    }
    Record::<AccumulatorTypes, Single>::from_bits(&bits, fields)
}

/// Member 0 writes the results of its vector of outputs: together if all of them are inside the row
/// and lie side by side.
#[cube]
fn write_across(output: &mut Output, share: &Share<'_>, result: Results<Wide>) {
    let (geometry, tile) = (share.geometry, share.tile);
    let vector = Wide::value().comptime();
    let in_vectors = output.vectors.is_some();
    let in_elements = output.elements.is_some();
    // Results are stored as vectors where they can be. With scalar stores, 2^26 outputs of one
    // element each took 300 us on one H200, and with vectors 133. A tile with fewer results stores
    // elements.
    let mut elements = select(share.place.member == 0, tile.results, 0u32);
    if comptime![in_vectors] {
        // Without elements, every tile has all its results.
        if elements == comptime![vector as u32] || comptime![!in_elements] && elements > 0 {
            output.vectors.put(tile.output / comptime![vector], result);
            elements = 0u32;
        }
    }
    if comptime![in_elements] {
        #[unroll]
        for nth in 0..comptime![vector] {
            if comptime![nth as u32] < elements {
                output
                    .elements
                    .put(tile.output + nth * geometry.inner_target_stride, result.component(nth));
            }
        }
    }
}
