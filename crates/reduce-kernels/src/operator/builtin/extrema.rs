//! Minimum, maximum, and both with one read of the input.

use core::{marker::PhantomData, ops::Not};

use cubecl::prelude::*;

use crate::operator::{
    A, B, Block, Blocks, Blockwise, Definition, HardwareMath, In, One, Operator, Out, Out2, Pair,
    Parameters, Position, Reproducible, Two, TypeRule, Value,
    block::{Fold, any, fold},
    derived::derived,
    element_wise::{and_not_nan, highest, is_nan, lowest, nan_or_lowest, or_nan, unless_nan},
    rules,
};

/// The maximum; NaN if any element is NaN. It is undefined of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Max;

/// The minimum; NaN if any element is NaN. It is undefined of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Min;

/// The minimum and the maximum, in this order, with one read of the input. They are those of
/// [`Min`] and [`Max`].
#[derive(Clone, Copy, Debug, Default)]
pub struct MinMax;

/// Chooses which of two values is kept.
#[cube]
pub(super) trait Preference: Copy + Send + Sync + 'static {
    /// Whether any number is preferred to NaN. Otherwise NaN is preferred to all numbers.
    const SKIPS_NAN: bool;

    /// A number to which every other number is preferred.
    fn worst_number<E: Float>() -> E;

    /// The preferred one of two numbers; either of them if one is NaN.
    fn better_number<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N>;

    /// The value of no elements: every other value is preferred to it, or equal.
    fn worst<E: Float>() -> E;

    /// The preferred value of each component.
    fn better<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N>;
}

/// Prefers the greater value. The result is NaN if either value is.
#[derive(Clone, Copy)]
pub(super) struct Greater;

#[cube]
impl Preference for Greater {
    const SKIPS_NAN: bool = false;

    fn worst_number<E: Float>() -> E {
        lowest::<E>()
    }

    fn better_number<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
        max(left, right)
    }

    fn worst<E: Float>() -> E {
        lowest::<E>()
    }

    fn better<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
        greater::<E, N>(left, right)
    }
}

/// Prefers the smaller value. The result is NaN if either value is.
#[derive(Clone, Copy)]
pub(super) struct Lesser;

#[cube]
impl Preference for Lesser {
    const SKIPS_NAN: bool = false;

    fn worst_number<E: Float>() -> E {
        highest::<E>()
    }

    fn better_number<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
        min(left, right)
    }

    fn worst<E: Float>() -> E {
        highest::<E>()
    }

    fn better<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
        lesser::<E, N>(left, right)
    }
}

/// Whether the right value is ahead, from two comparisons of numbers, which are false if either is
/// NaN: whether it is `ahead`, and whether it is not (`behind`). It is ahead too if it is NaN and the
/// left one is not, and never if the left one is NaN. Each type costs as few operations as possible.
/// There is no branch, because later loads would wait for it.
///
/// NVRTC makes one comparison of `!(right <= left)`: one that is true if either value is NaN. So may
/// NVIDIA's compiler for SPIR-V of `right > left || is_nan(right)`. The question to the left value
/// therefore comes last.
#[cube]
pub(super) fn nan_is_ahead<E: Float, N: Size>(
    left: Vector<E, N>,
    right: Vector<E, N>,
    ahead: Vector<bool, N>,
    behind: Vector<bool, N>,
) -> Vector<bool, N> {
    let element = elem_type_of::<E>();
    let hardware = HardwareMath::value().comptime();
    if comptime![element.is_float() && hardware == 2] {
        and_not_nan::<E, N>(behind.not(), left)
    } else {
        and_not_nan::<E, N>(or_nan::<E, N>(ahead, right), left)
    }
}

/// The greater value of each component; NaN if either is NaN.
#[cube]
pub(super) fn greater<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
    let taken =
        nan_is_ahead::<E, N>(left, right, right.greater_than(&left), right.less_equal(&left));
    select_many(taken, right, left)
}

/// The smaller value of each component; NaN if either is NaN.
#[cube]
fn lesser<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
    let taken =
        nan_is_ahead::<E, N>(left, right, right.less_than(&left), right.greater_equal(&left));
    select_many(taken, right, left)
}

/// Keeps the preferred one of two values.
#[derive(Clone, Copy)]
pub(super) struct Extremum<P>(PhantomData<P>);

#[cube]
impl<P: Preference> Operator for Extremum<P> {
    type Inputs = One;
    type Fields = One;
    type Results = One;

    const NAME: &'static str = "extremum";
    const DEFINED_ON_EMPTY: bool = false;
    const REPRODUCIBLE: Reproducible = Reproducible::Exact;
    const TYPES: TypeRule = rules::select;
    const BLOCKS: Option<Blocks<Self>> = Some(Blocks::of());

    fn identity<N: Size>() -> Value<A, N> {
        Value::new(Vector::new(P::worst::<A>()))
    }

    fn push<N: Size>(
        accumulator: Value<A, N>,
        value: Vector<In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        Value::new(P::better::<A, N>(accumulator.value, Vector::cast_from(value)))
    }

    fn merge<N: Size>(
        left: Value<A, N>,
        right: Value<A, N>,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        Value::new(P::better::<A, N>(left.value, right.value))
    }

    fn finish<N: Size>(
        accumulator: Value<A, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        Value::new(Vector::cast_from(accumulator.value))
    }
}

/// Each element costs a comparison and a question for NaN.
#[cube]
impl<P: Preference> Blockwise for Extremum<P> {
    const MAY_REFUSE: bool = P::SKIPS_NAN;

    /// If NaN is skipped, this refuses blocks whose result is the worst of all numbers, which NaN
    /// may hide.
    fn push_block<N: Size, W: Size>(
        accumulator: Value<A, N>,
        block: &Block<W>,
        _parameters: &Parameters,
    ) -> (Value<A, N>, Vector<bool, N>) {
        let best = best_of_block::<P, A, N, W>(block);
        let element = elem_type_of::<A>();
        let taken = if comptime![P::SKIPS_NAN && element.is_float()] {
            best.not_equal(&Vector::new(P::worst_number::<A>()))
        } else {
            Vector::new(true)
        };
        (Value::new(P::better::<A, N>(accumulator.value, best)), taken)
    }
}

/// The preferred element of a block, in each component. If NaN is skipped, it stands for the worst
/// of all numbers.
#[cube]
fn best_of_block<P: Preference, E: Float, N: Size, W: Size>(block: &Block<W>) -> Vector<E, N> {
    let element = elem_type_of::<E>();
    let asks = comptime![element.is_float() && !P::SKIPS_NAN];
    let worst = Vector::new(P::worst_number::<E>());
    let first = Vector::<E, W>::cast_from(block.value(0usize));
    let mut best = first;
    if comptime![P::SKIPS_NAN] {
        best = unless_nan::<E, W>(first, worst);
    }
    let mut nan = first.not_equal(&first);
    if comptime![asks] {
        nan = is_nan::<E, W>(first);
    }
    #[unroll]
    for nth in 1..block.load_count() {
        let value = Vector::<E, W>::cast_from(block.value(nth));
        if comptime![asks] {
            nan = nan.or(is_nan::<E, W>(value));
        }
        if comptime![P::SKIPS_NAN] {
            best = P::better_number::<E, W>(best, unless_nan::<E, W>(value, worst));
        } else {
            best = P::better_number::<E, W>(best, value);
        }
    }
    let components = N::value().comptime();
    let width = W::value().comptime();
    if comptime![!asks] {
        fold::<Better<P>, E, N, W>(best)
    } else if comptime![components == width] {
        let best = select_many(nan, Vector::new(nan_or_lowest::<E>()), best);
        fold::<Better<P>, E, N, W>(best)
    } else {
        let best = fold::<Better<P>, E, N, W>(best);
        select(any::<W>(nan), Vector::new(nan_or_lowest::<E>()), best)
    }
}

/// Takes the preferred number.
pub(super) struct Better<P>(PhantomData<P>);

#[cube]
impl<P: Preference> Fold for Better<P> {
    fn both<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
        P::better_number::<E, N>(left, right)
    }
}

type Greatest = Extremum<Greater>;
type Least = Extremum<Lesser>;

derived!(Max: One -> One = Greatest, "max", rules::select);
derived!(Min: One -> One = Least, "min", rules::select);

/// The smallest and the largest element. The two fields may have different types.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct Range<N: Size> {
    min: Vector<A, N>,
    max: Vector<B, N>,
}

#[cube]
fn range<N: Size>(fields: Pair<A, B, N>) -> Range<N> {
    Range::<N> { min: fields.first, max: fields.second }
}

#[cube]
impl Operator for MinMax {
    type Inputs = One;
    type Fields = Two;
    type Results = Two;

    const NAME: &'static str = "min_max";
    const DEFINED_ON_EMPTY: bool = false;
    const REPRODUCIBLE: Reproducible = Reproducible::Exact;
    const TYPES: TypeRule = rules::select;
    const BLOCKS: Option<Blocks<Self>> = Some(Blocks::of());
    const DEFINITION: &'static Definition<Self> = crate::defined!(MinMax);

    fn identity<N: Size>() -> Pair<A, B, N> {
        Pair::new(Vector::new(highest::<A>()), Vector::new(lowest::<B>()))
    }

    fn push<N: Size>(
        accumulator: Pair<A, B, N>,
        value: Vector<In, N>,
        _position: Position,
        parameters: &Parameters,
    ) -> Pair<A, B, N> {
        let element = Pair::new(Vector::cast_from(value), Vector::cast_from(value));
        MinMax::merge::<N>(accumulator, element, parameters)
    }

    fn merge<N: Size>(
        left: Pair<A, B, N>,
        right: Pair<A, B, N>,
        _parameters: &Parameters,
    ) -> Pair<A, B, N> {
        let left = range::<N>(left);
        let right = range::<N>(right);
        Pair::new(lesser::<A, N>(left.min, right.min), greater::<B, N>(left.max, right.max))
    }

    fn finish<N: Size>(
        accumulator: Pair<A, B, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Pair<Out, Out2, N> {
        let range = range::<N>(accumulator);
        Pair::new(Vector::cast_from(range.min), Vector::cast_from(range.max))
    }
}

/// Each element costs two comparisons and a question for NaN.
#[cube]
impl Blockwise for MinMax {
    const MAY_REFUSE: bool = false;

    fn push_block<N: Size, W: Size>(
        accumulator: Pair<A, B, N>,
        block: &Block<W>,
        parameters: &Parameters,
    ) -> (Pair<A, B, N>, Vector<bool, N>) {
        let min = best_of_block::<Lesser, A, N, W>(block);
        let max = best_of_block::<Greater, B, N, W>(block);
        (MinMax::merge::<N>(accumulator, Pair::new(min, max), parameters), Vector::new(true))
    }
}
