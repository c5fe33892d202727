//! Operators of two inputs, and maps of two elements.
#![allow(
    missing_docs,
    missing_debug_implementations,
    reason = "CubeCL's macros add items without documentation and types without Debug"
)]

use core::marker::PhantomData;

use cubecl::{prelude::*, unexpanded};
use reduce_planner::ElementType;

use super::{
    AccumulatorOf, Fields, In, InvalidParameter, Operator, ParameterRule, Parameters, Position,
    ResultArity, ResultsOf, Signature, TypeRequest, TypeRule, Width,
    definition::OperatorRef,
    elements::{Single, Wide},
    map::with_those_of_operator,
    parameters,
    parameters::ParametersExpand,
    position::PositionExpand,
    record::{Accumulator, AccumulatorExpand, AccumulatorTypes},
};

/// An operator that takes an element of each of two inputs at a time, such as the sums of a cosine
/// similarity. It is an [`Operator`] in all else; see there for the laws and for the types.
///
/// [`reduce_pair`](crate::reduce_pair) starts a reduction with one.
#[cube]
pub trait PairOperator: Copy + Send + Sync + 'static {
    /// The number of fields of an accumulator.
    type Fields: Fields;
    /// The number of results of a reduction.
    type Results: ResultArity;

    /// The name of the operator in plans, messages and command lines.
    const NAME: &'static str;
    /// Whether a reduction over no elements has a value; see [`Operator::DEFINED_ON_EMPTY`].
    const DEFINED_ON_EMPTY: bool;
    /// Chooses the element types. The input type of the request is the one that both inputs are
    /// converted to; see [`rules::common`](super::rules::common).
    const TYPES: TypeRule;
    /// Whether `push` uses the position of the elements.
    const POSITIONAL: bool = false;
    /// Whether long chains lose accuracy; see [`Operator::PAIRWISE`].
    const PAIRWISE: bool = false;
    /// Whether the functions compute exponentials, logarithms, powers or angles.
    const TRANSCENDENTAL: bool = false;
    /// Whether one of them is a power of each pair; see [`Operator::POWERS`].
    const POWERS: bool = false;
    /// Whether these functions are the device's own; see [`Operator::NATIVE_MATH`].
    const NATIVE_MATH: bool = Self::TRANSCENDENTAL;
    /// For messages, the name of the map that elements go through first.
    const MAP: Option<&'static str> = None;
    /// Reads and checks the numbers that the functions get as [`Parameters`].
    const PARAMETERS: ParameterRule<Self> = parameters::none::<Self>;

    /// The accumulator of no elements.
    fn identity<N: Size>() -> AccumulatorOf<Self::Fields, N>;

    /// Adds one element of each input per component to the accumulator.
    fn push<N: Size>(
        accumulator: AccumulatorOf<Self::Fields, N>,
        first: Vector<In, N>,
        second: Vector<In, N>,
        position: Position,
        parameters: &Parameters,
    ) -> AccumulatorOf<Self::Fields, N>;

    /// The accumulator of the elements of both operands.
    fn merge<N: Size>(
        left: AccumulatorOf<Self::Fields, N>,
        right: AccumulatorOf<Self::Fields, N>,
        parameters: &Parameters,
    ) -> AccumulatorOf<Self::Fields, N>;

    /// The results of an accumulator of `count` pairs per component.
    fn finish<N: Size>(
        accumulator: AccumulatorOf<Self::Fields, N>,
        count: usize,
        parameters: &Parameters,
    ) -> ResultsOf<Self::Results, N>;
}

/// A [`PairOperator`] in the place of an operator. A reduction with it has two inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OfPairs<P>(
    /// The operator of pairs.
    pub P,
);

#[cube]
impl<P: PairOperator> Operator for OfPairs<P> {
    type Fields = P::Fields;
    type Results = P::Results;

    const NAME: &'static str = P::NAME;
    const DEFINED_ON_EMPTY: bool = P::DEFINED_ON_EMPTY;
    const TYPES: TypeRule = P::TYPES;
    const POSITIONAL: bool = P::POSITIONAL;
    const PAIRWISE: bool = P::PAIRWISE;
    const TRANSCENDENTAL: bool = P::TRANSCENDENTAL;
    const POWERS: bool = P::POWERS;
    const NATIVE_MATH: bool = P::NATIVE_MATH;
    const MAP: Option<&'static str> = P::MAP;
    const PARAMETERS: ParameterRule<Self> = |of_pairs| (P::PARAMETERS)(&of_pairs.0);
    const PAIRS: Option<Pairs<Self>> = Some(Pairs::of::<P>());

    fn identity<N: Size>() -> AccumulatorOf<P::Fields, N> {
        P::identity::<N>()
    }

    /// An element paired with itself. Kernels push pairs.
    fn push<N: Size>(
        accumulator: AccumulatorOf<P::Fields, N>,
        value: Vector<In, N>,
        position: Position,
        parameters: &Parameters,
    ) -> AccumulatorOf<P::Fields, N> {
        P::push::<N>(accumulator, value, value, position, parameters)
    }

    fn merge<N: Size>(
        left: AccumulatorOf<P::Fields, N>,
        right: AccumulatorOf<P::Fields, N>,
        parameters: &Parameters,
    ) -> AccumulatorOf<P::Fields, N> {
        P::merge::<N>(left, right, parameters)
    }

    fn finish<N: Size>(
        accumulator: AccumulatorOf<P::Fields, N>,
        count: usize,
        parameters: &Parameters,
    ) -> ResultsOf<P::Results, N> {
        P::finish::<N>(accumulator, count, parameters)
    }
}

/// A function of an element of each of two inputs, which kernels apply as they load them.
///
/// `reduce(Sum, &x).paired(&y, Product)` reads both once and stores no product.
#[cube]
pub trait PairMap: Copy + Send + Sync + 'static {
    /// The name of the map in messages.
    const NAME: &'static str;
    /// The type that `map` works in for the [common type](super::rules::common) of both inputs: 32
    /// or 64 bits wide. `None` refuses it.
    const TYPES: fn(ElementType) -> Option<ElementType>;
    /// Whether `map` computes exponentials, logarithms, powers or angles.
    const TRANSCENDENTAL: bool = false;
    /// Whether these functions are the device's own; see [`Operator::NATIVE_MATH`].
    const NATIVE_MATH: bool = Self::TRANSCENDENTAL;
    /// Reads and checks the numbers that `map` gets as [`Parameters`].
    const PARAMETERS: ParameterRule<Self> = parameters::none::<Self>;
    /// How many numbers `PARAMETERS` gives.
    const PARAMETER_COUNT: usize = 0;

    /// Maps the elements in each component.
    fn map<E: Float, N: Size>(
        first: Vector<E, N>,
        second: Vector<E, N>,
        parameters: &Parameters,
    ) -> Vector<E, N>;
}

/// A map of two elements and an operator that takes what it gives. It is a [`PairOperator`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MappedPair<M, O> {
    /// The map that is applied to each pair.
    pub map: M,
    /// The operator that takes the mapped elements.
    pub operator: O,
}

impl<M: PairMap, O: Operator> MappedPair<M, O> {
    fn types(request: &TypeRequest) -> Option<Signature> {
        let mapped = (M::TYPES)(request.input)?;
        (O::TYPES)(&TypeRequest { input: mapped, ..*request })
    }

    fn parameters(&self) -> Result<Vec<f64>, InvalidParameter> {
        let of_map = (M::PARAMETERS)(&self.map)?;
        with_those_of_operator(of_map, M::PARAMETER_COUNT, &self.operator)
    }
}

#[cube]
impl<M: PairMap, O: Operator> PairOperator for MappedPair<M, O> {
    type Fields = O::Fields;
    type Results = O::Results;

    const NAME: &'static str = O::NAME;
    const DEFINED_ON_EMPTY: bool = O::DEFINED_ON_EMPTY;
    const TYPES: TypeRule = Self::types;
    const POSITIONAL: bool = O::POSITIONAL;
    const PAIRWISE: bool = O::PAIRWISE;
    const TRANSCENDENTAL: bool = M::TRANSCENDENTAL || O::TRANSCENDENTAL;
    const POWERS: bool = O::POWERS;
    const NATIVE_MATH: bool = M::NATIVE_MATH || O::NATIVE_MATH;
    const MAP: Option<&'static str> = Some(M::NAME);
    const PARAMETERS: ParameterRule<Self> = Self::parameters;

    fn identity<N: Size>() -> AccumulatorOf<O::Fields, N> {
        O::identity::<N>()
    }

    fn push<N: Size>(
        accumulator: AccumulatorOf<O::Fields, N>,
        first: Vector<In, N>,
        second: Vector<In, N>,
        position: Position,
        parameters: &Parameters,
    ) -> AccumulatorOf<O::Fields, N> {
        let mapped = M::map::<In, N>(first, second, parameters);
        let rest = parameters.skip(M::PARAMETER_COUNT);
        O::push::<N>(accumulator, mapped, position, &rest)
    }

    fn merge<N: Size>(
        left: AccumulatorOf<O::Fields, N>,
        right: AccumulatorOf<O::Fields, N>,
        parameters: &Parameters,
    ) -> AccumulatorOf<O::Fields, N> {
        let rest = parameters.skip(M::PARAMETER_COUNT);
        O::merge::<N>(left, right, &rest)
    }

    fn finish<N: Size>(
        accumulator: AccumulatorOf<O::Fields, N>,
        count: usize,
        parameters: &Parameters,
    ) -> ResultsOf<O::Results, N> {
        let rest = parameters.skip(M::PARAMETER_COUNT);
        O::finish::<N>(accumulator, count, &rest)
    }
}

/// How the operator `O` takes pairs, as data; see [`Operator::PAIRS`].
#[derive(Debug)]
pub struct Pairs<O> {
    pub(super) erased: ErasedPairs,
    operator: PhantomData<fn() -> O>,
}

impl<O> Pairs<O> {
    /// The pushes of `P`.
    const fn of<P: PairOperator>() -> Self {
        let erased = ErasedPairs {
            wide: packed_push::expand::<P, Wide>,
            single: packed_push::expand::<P, Single>,
        };
        Self { erased, operator: PhantomData }
    }
}

/// [`Pairs`] without their operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErasedPairs {
    pub(super) wide: PushPair<Wide>,
    pub(super) single: PushPair<Single>,
}

/// The function that writes [`PairOperator::push`] into a kernel that is being generated.
pub(super) type PushPair<N> = fn(
    &Scope,
    AccumulatorExpand<N>,
    NativeExpand<Vector<In, N>>,
    NativeExpand<Vector<In, N>>,
    PositionExpand,
    &ParametersExpand,
) -> AccumulatorExpand<N>;

#[cube]
fn packed_push<P: PairOperator, N: Size>(
    accumulator: Accumulator<N>,
    first: Vector<In, N>,
    second: Vector<In, N>,
    position: Position,
    parameters: &Parameters,
) -> Accumulator<N> {
    let accumulator = P::Fields::unpack::<AccumulatorTypes, N>(accumulator);
    let pushed = P::push::<N>(accumulator, first, second, position, parameters);
    P::Fields::pack::<AccumulatorTypes, N>(pushed)
}

/// [`PairOperator::push`] of an operator that takes pairs.
pub(crate) fn push_pair<N: Width>(
    _operator: OperatorRef,
    _accumulator: Accumulator<N>,
    _first: Vector<In, N>,
    _second: Vector<In, N>,
    _position: Position,
    _parameters: &Parameters,
) -> Accumulator<N> {
    unexpanded!()
}

pub(crate) mod push_pair {
    use super::*;

    pub(crate) fn expand<N: Width>(
        scope: &Scope,
        operator: OperatorRef,
        accumulator: AccumulatorExpand<N>,
        first: NativeExpand<Vector<In, N>>,
        second: NativeExpand<Vector<In, N>>,
        position: PositionExpand,
        parameters: &ParametersExpand,
    ) -> AccumulatorExpand<N> {
        let pairs = operator.0.pairs.expect("kernels ask whether it takes pairs");
        N::push_pair(pairs)(scope, accumulator, first, second, position, parameters)
    }
}
