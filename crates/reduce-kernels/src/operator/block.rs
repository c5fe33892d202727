//! Blocks: the elements that a unit has in flight, as an operator sees them together.
#![allow(
    missing_docs,
    missing_debug_implementations,
    reason = "CubeCL's macros add items without documentation and types without Debug"
)]

use core::marker::PhantomData;

use cubecl::prelude::*;

use super::{
    AccumulatorOf, Fields, InputArity, Map, One, Operator, Parameters, Position,
    copied::copied_through_references,
    elements::{In, Single, Wide},
    inputs::one_input,
    parameters::ParametersExpand,
    record::{Accumulator, AccumulatorExpand, AccumulatorTypes},
};

/// An operator of one input that takes a block of elements at once.
///
/// A block holds the elements of several loads, which are in flight together. What costs much per
/// element is then paid once per block: a question about the range of the elements, a rescaling, a
/// comparison with the best element so far. An operator that has such costs, or whose accumulator
/// holds many fields, implements this trait and names it in [`Operator::BLOCKS`]. The result must
/// be that of pushing the elements one by one, up to rounding.
///
/// docs/ADDING_AN_OPERATOR.md in the repository shows when that is worth it.
#[allow(clippy::type_complexity, reason = "implementations read the same tuple")]
#[cube]
pub trait Blockwise: Operator<Inputs = One> {
    /// Whether [`push_block`](Blockwise::push_block) may refuse a block.
    const MAY_REFUSE: bool;

    /// Adds the elements of a block to the accumulator. Returns the accumulator, and for each of
    /// its components whether the elements were taken.
    ///
    /// `N` is the number of components of the accumulator and `W` that of a load. They are equal if
    /// the components of a load belong to different outputs. Otherwise all elements of the block
    /// belong to one output, and `N` is 1. [`fold()`] and [`spread()`] convert between both.
    ///
    /// A component that is refused has no meaning in the accumulator that is returned. Its elements
    /// are then pushed to that of the given accumulator, one by one. This slow path exists once in
    /// a kernel. It serves blocks that are rare. What becomes of one component must not depend on
    /// the others, which belong to other outputs.
    fn push_block<N: Size, W: Size>(
        accumulator: AccumulatorOf<Self::Fields, N>,
        block: &Block<W>,
        parameters: &Parameters,
    ) -> (AccumulatorOf<Self::Fields, N>, Vector<bool, N>);
}

/// One load of a [`Block`].
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct Load<W: Size> {
    value: Vector<In, W>,
    position: Position,
    /// Whether the load is part of the block. If not, it repeats elements of the same output.
    inside: bool,
}

copied_through_references!(LoadExpand<W: Size>);

/// What is known about a block when its kernel is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockTraits {
    /// Every load is inside.
    pub(crate) whole: bool,
    /// Positions rise from load to load.
    pub(crate) ascending: bool,
    /// The accumulator holds no elements yet.
    pub(crate) starts: bool,
}

/// Several loads of `W` elements each. Some of them, at times all, are not inside.
#[derive(CubeType, Clone)]
#[expand(derive(Clone))]
pub struct Block<W: Size> {
    loads: Sequence<Load<W>>,
    #[cube(comptime)]
    traits: BlockTraits,
}

#[cube]
impl<W: Size> Block<W> {
    /// A block without loads. The loads that are added must have the traits.
    pub(crate) fn new(#[comptime] traits: BlockTraits) -> Self {
        Block::<W> { loads: Sequence::new(), traits }
    }

    /// Adds a load.
    pub(crate) fn add(&mut self, value: Vector<In, W>, position: Position, inside: bool) {
        self.loads.push(Load::<W> { value, position, inside });
    }

    /// The number of loads, including those that are not inside.
    pub fn load_count(&self) -> comptime_type!(usize) {
        self.loads.len().comptime()
    }

    /// The elements of a load. If the load is not inside, they are elements of other loads of the
    /// same output, so an operator for which repeated elements make no difference may use them.
    pub fn value(&self, #[comptime] nth: usize) -> Vector<In, W> {
        let load = *self.loads.index(nth);
        load.value
    }

    /// The positions of the elements that [`value`](Block::value) gives.
    pub fn position(&self, #[comptime] nth: usize) -> Position {
        let load = *self.loads.index(nth);
        load.position
    }

    /// Whether positions are known to rise from load to load that is inside. Other loads repeat
    /// positions.
    pub fn is_ascending(&self) -> comptime_type!(bool) {
        comptime![self.traits.ascending]
    }

    /// Whether the accumulator is known to hold no elements yet.
    pub fn starts(&self) -> comptime_type!(bool) {
        comptime![self.traits.starts]
    }

    /// `value`, which was computed from load `nth`, but `other` if that load is not inside.
    pub fn inside_or<E: Float>(
        &self,
        #[comptime] nth: usize,
        value: Vector<E, W>,
        other: Vector<E, W>,
    ) -> Vector<E, W> {
        if comptime![self.traits.whole] {
            value
        } else {
            let load = *self.loads.index(nth);
            select(load.inside, value, other)
        }
    }

    /// The number of elements that each component of an accumulator takes from the block.
    pub fn count<N: Size>(&self) -> u32 {
        let loads = self.loads.len().comptime();
        let width = W::value().comptime();
        let components = N::value().comptime();
        let each = comptime![(width / components) as u32];
        if comptime![self.traits.whole] {
            comptime![loads as u32 * each].runtime()
        } else {
            let mut count = 0u32;
            #[unroll]
            for nth in 0..loads {
                let load = *self.loads.index(nth);
                count += select(load.inside, each.runtime(), 0u32);
            }
            count
        }
    }

    /// A block without loads that takes as many as this one.
    pub(crate) fn like(&self) -> Block<W> {
        Block::<W>::new(comptime![self.traits])
    }

    /// Adds a load with the position of load `nth` of `other`.
    pub(crate) fn add_like(
        &mut self,
        value: Vector<In, W>,
        other: &Block<W>,
        #[comptime] nth: usize,
    ) {
        let load = *other.loads.index(nth);
        self.add(value, load.position, load.inside);
    }
}

/// The components of an accumulator for the components of a load: the same ones if there are as
/// many of both, otherwise the only one in each component.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::block::spread};
///
/// #[cube]
/// fn centred<E: Float, N: Size, W: Size>(
///     load: Vector<E, W>,
///     mean: Vector<E, N>,
/// ) -> Vector<E, W> {
///     load - spread::<E, N, W>(mean)
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn spread<E: Float, N: Size, W: Size>(value: Vector<E, N>) -> Vector<E, W> {
    let components = N::value().comptime();
    let width = W::value().comptime();
    if comptime![components == width] {
        Vector::cast_from(value)
    } else {
        Vector::new(value.extract(0usize))
    }
}

/// The components of a load for those of an accumulator: the same ones if there are as many of
/// both, otherwise the first.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::block::leading};
///
/// #[cube]
/// fn first<E: Float, N: Size, W: Size>(load: Vector<E, W>) -> Vector<E, N> {
///     leading::<E, N, W>(load)
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn leading<E: Float, N: Size, W: Size>(value: Vector<E, W>) -> Vector<E, N> {
    let components = N::value().comptime();
    let width = W::value().comptime();
    if comptime![components == width] {
        Vector::cast_from(value)
    } else {
        Vector::new(value.extract(0usize))
    }
}

/// A way to make one value of two. It is associative up to rounding.
#[cube]
pub trait Fold: Send + Sync + 'static {
    /// One value of two, in each component.
    fn both<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N>;
}

/// Adds values.
#[derive(Clone, Copy, Debug)]
pub struct Add;

#[cube]
impl Fold for Add {
    fn both<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
        left + right
    }
}

/// Takes the greater value. If one of them is NaN, the result is either of them.
#[derive(Clone, Copy, Debug)]
pub struct Most;

#[cube]
impl Fold for Most {
    fn both<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
        max(left, right)
    }
}

/// Makes the components of an accumulator of those of a load: the same ones if there are as many of
/// both, otherwise one of all, in a tree.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::block::{Add, fold}};
///
/// #[cube]
/// fn sum<E: Float, N: Size, W: Size>(load: Vector<E, W>) -> Vector<E, N> {
///     fold::<Add, E, N, W>(load)
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn fold<F: Fold, E: Float, N: Size, W: Size>(value: Vector<E, W>) -> Vector<E, N> {
    let components = N::value().comptime();
    let width = W::value().comptime();
    if comptime![components == width] {
        Vector::cast_from(value)
    } else {
        let mut parts = Sequence::<Vector<E, N>>::new();
        #[unroll]
        for nth in 0..width {
            parts.push(Vector::new(value.extract(nth)));
        }
        #[unroll]
        for pair in 0..width - 1 {
            let left = *parts.index(comptime![2 * pair]);
            let right = *parts.index(comptime![2 * pair + 1]);
            parts.push(F::both::<E, N>(left, right));
        }
        *parts.index(comptime![2 * width - 2])
    }
}

/// Whether a condition holds in any component.
///
/// Calls stand outside of `||` and `&&`: CubeCL makes a branch of an operand that is a call.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::block::any};
///
/// #[cube]
/// fn has_zero<E: Float, N: Size>(value: Vector<E, N>) -> bool {
///     any::<N>(value.equal(&Vector::from_int(0)))
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn any<N: Size>(condition: Vector<bool, N>) -> bool {
    let mut found = condition.extract(0usize);
    #[unroll]
    for nth in 1..N::value().comptime() {
        let component = condition.extract(nth);
        found = found || component;
    }
    found
}

/// Whether a condition holds in all components.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::block::all};
///
/// #[cube]
/// fn is_zero<E: Float, N: Size>(value: Vector<E, N>) -> bool {
///     all::<N>(value.equal(&Vector::from_int(0)))
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn all<N: Size>(condition: Vector<bool, N>) -> bool {
    let mut holds = condition.extract(0usize);
    #[unroll]
    for nth in 1..N::value().comptime() {
        let component = condition.extract(nth);
        holds = holds && component;
    }
    holds
}

/// [`Blockwise::push_block`] for the operator `O`, made of its pushes: the loads are pushed to an
/// accumulator of their width, whose components are then merged. It serves operators with cheap
/// merges.
///
/// ```
/// use reduce_kernels::{
///     Max,
///     cubecl::{self, prelude::*},
///     operator::{
///         AccumulatorOf, Operator, Parameters,
///         block::{Block, push_each},
///     },
/// };
///
/// /// What `push_block` of an operator with cheap merges may be.
/// #[cube]
/// fn push_block<N: Size, W: Size>(
///     accumulator: AccumulatorOf<<Max as Operator>::Fields, N>,
///     block: &Block<W>,
///     parameters: &Parameters,
/// ) -> AccumulatorOf<<Max as Operator>::Fields, N> {
///     push_each::<Max, N, W>(accumulator, block, parameters)
/// }
/// # fn main() {}
/// ```
#[allow(
    clippy::if_same_then_else,
    reason = "one condition is known when the kernel is generated, the other when it runs"
)]
#[cube]
pub fn push_each<O: Operator<Inputs = One>, N: Size, W: Size>(
    accumulator: AccumulatorOf<O::Fields, N>,
    block: &Block<W>,
    parameters: &Parameters,
) -> AccumulatorOf<O::Fields, N> {
    let mut wide = O::identity::<W>();
    #[unroll]
    for nth in 0..block.loads.len().comptime() {
        let load = *block.loads.index(nth);
        if comptime![block.traits.whole] {
            wide = O::push::<W>(wide, load.value, load.position, parameters);
        } else if load.inside {
            wide = O::push::<W>(wide, load.value, load.position, parameters);
        }
    }
    let wide = O::Fields::pack::<AccumulatorTypes, W>(wide);
    let components = N::value().comptime();
    let width = W::value().comptime();
    let folded = if comptime![components == width] {
        O::Fields::unpack::<AccumulatorTypes, N>(wide.resized::<N>())
    } else {
        let mut parts = Sequence::<AccumulatorOf<O::Fields, N>>::new();
        #[unroll]
        for nth in 0..width {
            let part = wide.component(nth).resized::<N>();
            parts.push(O::Fields::unpack::<AccumulatorTypes, N>(part));
        }
        #[unroll]
        for pair in 0..width - 1 {
            let left = *parts.index(comptime![2 * pair]);
            let right = *parts.index(comptime![2 * pair + 1]);
            parts.push(O::merge::<N>(left, right, parameters));
        }
        *parts.index(comptime![2 * width - 2])
    };
    O::merge::<N>(accumulator, folded, parameters)
}

/// Writes [`Blockwise::push_block`] into a kernel, for accumulators of `N` components.
pub(super) type PushBlock<N> = fn(
    &Scope,
    AccumulatorExpand<N>,
    &BlockExpand<Wide>,
    &ParametersExpand,
) -> (AccumulatorExpand<N>, NativeExpand<Vector<bool, N>>);

/// The block functions of the operator `O` as data; see [`Operator::BLOCKS`].
#[derive(Debug)]
pub struct Blocks<O> {
    pub(super) erased: ErasedBlocks,
    operator: PhantomData<fn() -> O>,
}

/// Block functions without their operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErasedBlocks {
    pub(crate) may_refuse: bool,
    pub(super) wide: PushBlock<Wide>,
    pub(super) single: PushBlock<Single>,
}

impl<O: Blockwise> Blocks<O> {
    /// The block functions of `O`.
    #[must_use]
    pub const fn of() -> Self {
        let erased = ErasedBlocks {
            may_refuse: O::MAY_REFUSE,
            wide: packed_push_block::expand::<O, Wide>,
            single: packed_push_block::expand::<O, Single>,
        };
        Self { erased, operator: PhantomData }
    }
}

impl<O> Blocks<O> {
    /// The block functions of another operator, whose accumulators are the same.
    pub(super) const fn of_base<Base>(base: Option<Blocks<Base>>) -> Option<Self> {
        match base {
            Some(Blocks { erased, .. }) => Some(Self { erased, operator: PhantomData }),
            None => None,
        }
    }
}

impl<M: Map, O: Operator<Inputs = One>> Blocks<super::Mapped<M, O>> {
    /// The block functions of `O` for mapped elements, if it has any and `M` takes one element.
    pub(super) const fn of_mapped() -> Option<Self> {
        match O::BLOCKS {
            Some(Blocks { erased: ErasedBlocks { may_refuse, .. }, .. })
                if <M::Inputs as Fields>::COUNT == 1 =>
            {
                let erased = ErasedBlocks {
                    may_refuse,
                    wide: |scope, accumulator, block, parameters| {
                        let blocks = O::BLOCKS.expect("the match has found it").erased;
                        mapped::<M, Wide>(scope, accumulator, block, parameters, blocks.wide)
                    },
                    single: |scope, accumulator, block, parameters| {
                        let blocks = O::BLOCKS.expect("the match has found it").erased;
                        mapped::<M, Single>(scope, accumulator, block, parameters, blocks.single)
                    },
                };
                Some(Self { erased, operator: PhantomData })
            }
            _ => None,
        }
    }
}

/// The block with mapped elements. Operators whose map takes two inputs have no block functions.
#[cube]
fn mapped_block<M: Map, W: Size>(block: &Block<W>, parameters: &Parameters) -> Block<W> {
    let mut mapped = block.like();
    #[unroll]
    for nth in 0..block.load_count() {
        let elements = M::Inputs::elements::<W>(one_input::<W>(block.value(nth)));
        mapped.add_like(M::map::<In, W>(elements, parameters), block, nth);
    }
    mapped
}

/// Calls a block function with mapped elements and without the parameters of the map.
fn mapped<M: Map, N: Size>(
    scope: &Scope,
    accumulator: AccumulatorExpand<N>,
    block: &BlockExpand<Wide>,
    parameters: &ParametersExpand,
    push: PushBlock<N>,
) -> (AccumulatorExpand<N>, NativeExpand<Vector<bool, N>>) {
    let block = mapped_block::expand::<M, Wide>(scope, block, parameters);
    let rest = parameters.__expand_skip_method(scope, M::PARAMETER_COUNT);
    push(scope, accumulator, &block, &rest)
}

#[cube]
fn packed_push_block<O: Blockwise, N: Size>(
    accumulator: Accumulator<N>,
    block: &Block<Wide>,
    parameters: &Parameters,
) -> (Accumulator<N>, Vector<bool, N>) {
    let accumulator = O::Fields::unpack::<AccumulatorTypes, N>(accumulator);
    let (accumulator, taken) = O::push_block::<N, Wide>(accumulator, block, parameters);
    (O::Fields::pack::<AccumulatorTypes, N>(accumulator), taken)
}
