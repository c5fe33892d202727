//! Positions of extrema, alone and together with the values.

use core::{marker::PhantomData, ops::Not};

use cubecl::prelude::*;

use super::extrema::{Better, Greater, Lesser, Preference, nan_is_ahead};
use crate::operator::{
    A, AccumulatorOf, B, Block, Blocks, Blockwise, In, One, Operator, Out, Pair, Parameters,
    Position, Reproducible, ResultsOf, Two, TypeRule, Value,
    block::{any, fold, leading, spread},
    derived::derived,
    element_wise::{and_not_nan, highest, is_nan, unless_nan},
    math::is_either_nan,
    rules,
};

/// The position of the maximum. It is that of the first NaN if there is one, otherwise the first of
/// equal elements. It is undefined of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArgMax;

/// The position of the minimum. It is that of the first NaN if there is one, otherwise the first of
/// equal elements. It is undefined of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArgMin;

/// The maximum and its position, in this order, with one read of the input. They are those of
/// [`Max`](super::Max) and [`ArgMax`].
#[derive(Clone, Copy, Debug, Default)]
pub struct MaxWithIndex;

/// The minimum and its position, in this order, with one read of the input. They are those of
/// [`Min`](super::Min) and [`ArgMin`].
#[derive(Clone, Copy, Debug, Default)]
pub struct MinWithIndex;

/// Elements with their positions, one of each per component.
#[derive(CubeType, CubeTypeMut, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Candidate<N: Size> {
    pub(super) value: Vector<A, N>,
    pub(super) position: Vector<B, N>,
}

#[cube]
fn candidate<N: Size>(fields: Pair<A, B, N>) -> Candidate<N> {
    Candidate::<N> { value: fields.first, position: fields.second }
}

#[cube]
fn fields<N: Size>(candidate: Candidate<N>) -> Pair<A, B, N> {
    Pair::new(candidate.value, candidate.position)
}

/// An order of values, in which preferred values are ahead. The first value in that order is the
/// result.
#[cube]
pub(super) trait Order: Preference {
    /// Whether the right value is ahead of the left one.
    fn is_ahead<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<bool, N>;

    /// Whether the right value is ahead of the left one, for numbers; false if one is NaN.
    fn is_number_ahead<E: Float, N: Size>(
        left: Vector<E, N>,
        right: Vector<E, N>,
    ) -> Vector<bool, N>;
}

/// Orders from the greatest value down, with NaN ahead of all numbers.
#[cube]
impl Order for Greater {
    fn is_ahead<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<bool, N> {
        nan_is_ahead::<E, N>(left, right, right.greater_than(&left), right.less_equal(&left))
    }

    fn is_number_ahead<E: Float, N: Size>(
        left: Vector<E, N>,
        right: Vector<E, N>,
    ) -> Vector<bool, N> {
        right.greater_than(&left)
    }
}

/// Orders from the smallest value up, with NaN ahead of all numbers.
#[cube]
impl Order for Lesser {
    fn is_ahead<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<bool, N> {
        nan_is_ahead::<E, N>(left, right, right.less_than(&left), right.greater_equal(&left))
    }

    fn is_number_ahead<E: Float, N: Size>(
        left: Vector<E, N>,
        right: Vector<E, N>,
    ) -> Vector<bool, N> {
        right.less_than(&left)
    }
}

/// Keeps the value that is ahead and its position. Of values that are alike, it keeps the first
/// position.
#[derive(Clone, Copy)]
pub(super) struct First<O>(PhantomData<O>);

#[cube]
fn first<O: Order, N: Size>(left: Candidate<N>, right: Candidate<N>) -> Candidate<N> {
    let ahead = O::is_ahead::<A, N>(left.value, right.value);
    let behind = O::is_ahead::<A, N>(right.value, left.value);
    let earlier = right.position.less_than(&left.position);
    let taken = ahead.or(behind.not().vec_and(earlier));
    Candidate::<N> {
        value: select_many(taken, right.value, left.value),
        position: select_many(taken, right.position, left.position),
    }
}

#[cube]
impl<O: Order> Operator for First<O> {
    type Inputs = One;
    type Fields = Two;
    type Results = One;

    const NAME: &'static str = "first";
    const DEFINED_ON_EMPTY: bool = false;
    const REPRODUCIBLE: Reproducible = Reproducible::Exact;
    const TYPES: TypeRule = rules::index;
    const POSITIONAL: bool = true;
    const BLOCKS: Option<Blocks<Self>> = Some(Blocks::of());

    fn identity<N: Size>() -> Pair<A, B, N> {
        // This is behind every element: positions are less than the largest value of their type.
        Pair::new(Vector::new(O::worst::<A>()), Vector::new(highest::<B>()))
    }

    fn push<N: Size>(
        accumulator: Pair<A, B, N>,
        value: Vector<In, N>,
        position: Position,
        _parameters: &Parameters,
    ) -> Pair<A, B, N> {
        let element = Candidate::<N> {
            value: Vector::cast_from(value),
            position: position.components::<B, N>(),
        };
        fields::<N>(first::<O, N>(candidate::<N>(accumulator), element))
    }

    fn merge<N: Size>(
        left: Pair<A, B, N>,
        right: Pair<A, B, N>,
        _parameters: &Parameters,
    ) -> Pair<A, B, N> {
        fields::<N>(first::<O, N>(candidate::<N>(left), candidate::<N>(right)))
    }

    fn finish<N: Size>(
        accumulator: Pair<A, B, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        Value::new(Vector::cast_from(candidate::<N>(accumulator).position))
    }
}

/// Along, each element costs one comparison, and the position of the winner is looked up only in
/// blocks that have an element which is ahead of the candidate so far, or like it.
#[cube]
impl<O: Order> Blockwise for First<O> {
    const MAY_REFUSE: bool = true;

    /// Refuses blocks with NaN. If the order skips NaN, it refuses blocks whose winner is the last
    /// of all numbers, which NaN may hide. It also refuses equal winners in several loads whose
    /// positions interleave.
    fn push_block<N: Size, W: Size>(
        accumulator: Pair<A, B, N>,
        block: &Block<W>,
        _parameters: &Parameters,
    ) -> (Pair<A, B, N>, Vector<bool, N>) {
        let total = candidate::<N>(accumulator);
        let components = N::value().comptime();
        let width = W::value().comptime();
        if comptime![components == width] {
            let (candidate, taken) = first_across::<O, N, W>(total, block);
            // Positions are compared and not rounded: components that could do without the slow
            // path find the same winner on it.
            (fields::<N>(candidate), Vector::new(taken))
        } else {
            let (candidate, taken) = first_along::<O, N, W>(total, block);
            (fields::<N>(candidate), Vector::new(taken))
        }
    }
}

/// The components of a load belong to different outputs: each element is compared with its
/// candidate.
///
/// A question to all elements comes first. Without it, NVIDIA's compiler takes the elements load by
/// load to save registers, and waits for each load: argmax of f32 [10000, 10000] over axis 0 then
/// took 152 us on one H200 instead of 107.
#[cube]
fn first_across<O: Order, N: Size, W: Size>(
    total: Candidate<N>,
    block: &Block<W>,
) -> (Candidate<N>, bool) {
    let storage = elem_type_of::<A>();
    let mut winner = total;
    let mut best = Vector::<A, W>::cast_from(block.value(0usize));
    let mut matters = true.runtime();
    if comptime![!storage.is_float() || O::SKIPS_NAN] {
        best = number::<O, A, W>(best);
        #[unroll]
        for nth in 1..block.load_count() {
            let element = number::<O, A, W>(Vector::cast_from(block.value(nth)));
            best = O::better_number::<A, W>(best, element);
        }
        let value = spread::<A, N, W>(total.value);
        matters = any::<W>(O::is_ahead::<A, W>(best, value).not());
    }
    let taken = is_sure::<O, W, W>(block, best);
    if taken && matters {
        let mut value = number::<O, A, W>(spread::<A, N, W>(total.value));
        let mut position = spread::<B, N, W>(total.position);
        // An element wins over no elements even if it is the last of all values. If it is NaN and
        // skipped, there is still none, and the block is refused unless a number follows.
        let element = Vector::<A, W>::cast_from(block.value(0usize));
        let none = and_not_nan::<A, W>(position.equal(&Vector::new(highest::<B>())), element);
        value = select_many(none, element, value);
        position = select_many(none, block.position(0usize).components::<B, W>(), position);
        let ascending = block.is_ascending();
        #[unroll]
        for nth in 0..block.load_count() {
            let element = Vector::<A, W>::cast_from(block.value(nth));
            let here = block.position(nth).components::<B, W>();
            // Comparisons with NaN are false: NaN does not win, and a candidate that is NaN stays.
            let mut wins = O::is_number_ahead::<A, W>(value, element);
            if comptime![!ascending] {
                wins = wins.or(element.equal(&value).vec_and(here.less_than(&position)));
            }
            value = select_many(wins, element, value);
            position = select_many(wins, here, position);
        }
        if comptime![storage.is_float() && !O::SKIPS_NAN] {
            // The comparisons say so already, but NVIDIA's compiler for SPIR-V makes a maximum of a
            // comparison and a selection, and that prefers numbers to NaN.
            let candidate = spread::<A, N, W>(total.value);
            let stays = is_nan::<A, W>(candidate);
            value = select_many(stays, candidate, value);
            position = select_many(stays, spread::<B, N, W>(total.position), position);
        }
        winner = Candidate::<N> {
            value: leading::<A, N, W>(value),
            position: leading::<B, N, W>(position),
        };
    }
    (winner, taken)
}

/// Whether NaN could not have changed the winner of a block.
#[cube]
fn is_sure<O: Order, N: Size, W: Size>(block: &Block<W>, winner: Vector<A, N>) -> bool {
    let element = elem_type_of::<A>();
    if comptime![!element.is_float()] {
        true.runtime()
    } else if comptime![O::SKIPS_NAN] {
        !any::<N>(winner.equal(&Vector::new(O::worst_number::<A>())))
    } else {
        !has_nan::<W>(block)
    }
}

/// All elements of the block belong to one output. Its position is looked up only if the block has
/// an element that is ahead of the candidate, or like it.
#[cube]
fn first_along<O: Order, N: Size, W: Size>(
    total: Candidate<N>,
    block: &Block<W>,
) -> (Candidate<N>, bool) {
    let mut best = number::<O, A, W>(Vector::cast_from(block.value(0usize)));
    #[unroll]
    for nth in 1..block.load_count() {
        let value = number::<O, A, W>(Vector::cast_from(block.value(nth)));
        best = O::better_number::<A, W>(best, value);
    }
    let best = fold::<Better<O>, A, N, W>(best);
    let mut taken = is_sure::<O, N, W>(block, best);
    // False if the candidate is NaN. The lookup then keeps it.
    let behind = O::is_number_ahead::<A, N>(best, total.value);
    let mut winner = total;
    if taken && !behind.extract(0usize) {
        // First the load of the winner, then its component.
        let width = W::value().comptime();
        let mut value = block.value(0usize);
        let mut start = block.position(0usize).start;
        let step = block.position(0usize).step;
        let ascending = block.is_ascending();
        let best_of_all = spread::<A, N, W>(best);
        let mut found = any::<W>(Vector::<A, W>::cast_from(value).equal(&best_of_all));
        #[unroll]
        for nth in 1..block.load_count() {
            let here = block.position(nth).start;
            let value_here = Vector::<A, W>::cast_from(block.value(nth));
            let wins = any::<W>(value_here.equal(&best_of_all));
            let mut earlier = wins && !found;
            if comptime![!ascending] {
                // Positions of several loads interleave only if the step is not 1.
                taken = taken && !(wins && found && step != 1);
                earlier = wins && (!found || here < start);
            }
            value = select(earlier, block.value(nth), value);
            start = select(earlier, here, start);
            found = found || wins;
        }
        let value = Vector::<A, W>::cast_from(value);
        let mut component = comptime![width - 1].runtime();
        #[unroll]
        for back in 1..width {
            let nth = comptime![width - 1 - back];
            component =
                select(value.extract(nth) == best.extract(0usize), nth.runtime(), component);
        }
        let position = Vector::<B, N>::cast_from(start + component * step);
        winner = first::<O, N>(total, Candidate::<N> { value: best, position });
    }
    (winner, taken)
}

/// The value, or the last of all numbers in the components that are NaN and skipped.
#[cube]
fn number<O: Order, E: Float, N: Size>(value: Vector<E, N>) -> Vector<E, N> {
    if comptime![O::SKIPS_NAN] {
        unless_nan::<E, N>(value, Vector::new(O::worst_number::<E>()))
    } else {
        value
    }
}

/// Whether any element of a block is NaN.
#[cube]
fn has_nan<W: Size>(block: &Block<W>) -> bool {
    let count = block.load_count();
    let mut nan = Vector::<bool, W>::new(false);
    #[unroll]
    for pair in 0..comptime![count / 2] {
        let left = block.value(comptime![2 * pair]);
        let right = block.value(comptime![2 * pair + 1]);
        nan = nan.or(is_either_nan::<In, W>(left, right));
    }
    if comptime![count % 2 == 1] {
        nan = nan.or(is_nan::<In, W>(block.value(comptime![count - 1])));
    }
    any::<W>(nan)
}

type FirstGreatest = First<Greater>;
type FirstLeast = First<Lesser>;

derived!(ArgMax: Two -> One = FirstGreatest, "argmax", rules::index);
derived!(ArgMin: Two -> One = FirstLeast, "argmin", rules::index);
derived!(MaxWithIndex: Two -> Two = FirstGreatest, "max_with_index", rules::value_and_index,
finish results);

#[cube]
impl MaxWithIndex {
    fn results<N: Size>(
        accumulator: AccumulatorOf<Two, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> ResultsOf<Two, N> {
        Pair::new(Vector::cast_from(accumulator.first), Vector::cast_from(accumulator.second))
    }
}
derived!(MinWithIndex: Two -> Two = FirstLeast, "min_with_index", rules::value_and_index,
finish results);

#[cube]
impl MinWithIndex {
    fn results<N: Size>(
        accumulator: AccumulatorOf<Two, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> ResultsOf<Two, N> {
        Pair::new(Vector::cast_from(accumulator.first), Vector::cast_from(accumulator.second))
    }
}
