//! Operators that take elements in two passes where these are held.
#![allow(
    missing_docs,
    missing_debug_implementations,
    reason = "CubeCL's macros add items without documentation and types without Debug"
)]

use core::marker::PhantomData;

use cubecl::{prelude::*, unexpanded};

use super::{
    Fields, One, Operator, Parameters, ResultsOf, Value, Width,
    definition::{ErasedPasses, PassFunctions, Vectors},
    elements::{A, In, Single, Wide},
    parameters::ParametersExpand,
    record::{
        Accumulator, AccumulatorExpand, AccumulatorTypes, ResultTypes, Results, ResultsExpand,
    },
};

/// An operator whose elements can be taken twice, because the units of a tile hold them: first by
/// one operator, then, with what it found, by another. Two cheap passes with one field each combine
/// faster than one whose accumulator must do for any order, and are often more accurate: the
/// maximum before exponentials, the mean before squared distances.
///
/// It serves [applied reductions](super::Apply) of floating point elements. The operator names it
/// in [`Operator::PASSES`].
#[cube]
pub trait InPasses: Operator<Inputs = One> {
    /// The operator of the first pass. It takes blocks, refuses none, and its merge is commutative
    /// to the last bit.
    type First: Operator<Inputs = One>;
    /// The operator of the second pass, like the first.
    type Second: Operator<Inputs = One>;

    /// What the second pass needs of the first, from its accumulator of `count` elements.
    fn after_first<N: Size>(
        first: Vector<A, N>,
        count: usize,
        parameters: &Parameters,
    ) -> Vector<A, N>;

    /// What is pushed for an element in the second pass.
    fn between<N: Size>(
        value: Vector<In, N>,
        first: Vector<A, N>,
        parameters: &Parameters,
    ) -> Vector<In, N>;

    /// The operator's results, from what [`after_first`](InPasses::after_first) gave and from the
    /// accumulator of the second pass.
    fn finish_passes<N: Size>(
        first: Vector<A, N>,
        second: Vector<A, N>,
        count: usize,
        parameters: &Parameters,
    ) -> ResultsOf<Self::Results, N>;
}

/// The passes of the operator `O` as data; see [`Operator::PASSES`].
#[derive(Debug)]
pub struct Passes<O> {
    pub(super) erased: ErasedPasses,
    operator: PhantomData<fn() -> O>,
}

impl<O: InPasses> Passes<O> {
    /// The passes of `O`.
    #[must_use]
    pub const fn of() -> Self {
        let erased = ErasedPasses {
            first: O::First::DEFINITION.erased(),
            second: O::Second::DEFINITION.erased(),
            wide: PassFunctions::of::<O>(),
            single: PassFunctions::of::<O>(),
        };
        Self { erased, operator: PhantomData }
    }
}

impl<N: Size> PassFunctions<N> {
    const fn of<O: InPasses>() -> Self {
        Self {
            after_first: packed_after_first::expand::<O, N>,
            between: packed_between::expand::<O, N>,
            finish: packed_finish::expand::<O, N>,
        }
    }
}

#[cube]
fn value_of<N: Size>(accumulator: Accumulator<N>) -> Vector<A, N> {
    let fields: Value<A, N> = One::unpack::<AccumulatorTypes, N>(accumulator);
    fields.value
}

#[cube]
fn packed_after_first<O: InPasses, N: Size>(
    first: Accumulator<N>,
    count: usize,
    parameters: &Parameters,
) -> Vector<A, N> {
    O::after_first::<N>(value_of::<N>(first), count, parameters)
}

#[cube]
fn packed_between<O: InPasses, N: Size>(
    value: Vector<In, N>,
    first: Vector<A, N>,
    parameters: &Parameters,
) -> Vector<In, N> {
    O::between::<N>(value, first, parameters)
}

#[cube]
fn packed_finish<O: InPasses, N: Size>(
    first: Vector<A, N>,
    second: Accumulator<N>,
    count: usize,
    parameters: &Parameters,
) -> Results<N> {
    let results = O::finish_passes::<N>(first, value_of::<N>(second), count, parameters);
    O::Results::pack::<ResultTypes, N>(results)
}

/// Which functions serve vectors of a width.
pub(crate) trait PassWidth: Width {
    #[allow(private_interfaces, reason = "only this file calls it")]
    fn functions_of(passes: ErasedPasses) -> PassFunctions<Self>;
}

impl PassWidth for Wide {
    #[allow(private_interfaces, reason = "only this file calls it")]
    fn functions_of(passes: ErasedPasses) -> PassFunctions<Self> {
        passes.wide
    }
}

impl PassWidth for Single {
    #[allow(private_interfaces, reason = "only this file calls it")]
    fn functions_of(passes: ErasedPasses) -> PassFunctions<Self> {
        passes.single
    }
}

/// Passes as a constant of a kernel: those of an operator, by which they are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PassesRef(pub(crate) super::OperatorRef);

impl PassesRef {
    pub(crate) fn get(self) -> ErasedPasses {
        self.0.0.passes.expect("kernels ask whether there are passes")
    }
}

/// [`InPasses::after_first`].
pub(crate) fn after_first<N: PassWidth>(
    _passes: PassesRef,
    _first: Accumulator<N>,
    _count: usize,
    _parameters: &Parameters,
) -> Vector<A, N> {
    unexpanded!()
}

pub(crate) mod after_first {
    use super::*;

    pub(crate) fn expand<N: PassWidth>(
        scope: &Scope,
        passes: PassesRef,
        first: AccumulatorExpand<N>,
        count: NativeExpand<usize>,
        parameters: &ParametersExpand,
    ) -> Vectors<A, N> {
        (N::functions_of(passes.get()).after_first)(scope, first, count, parameters)
    }
}

/// [`InPasses::between`].
pub(crate) fn between<N: PassWidth>(
    _passes: PassesRef,
    _value: Vector<In, N>,
    _first: Vector<A, N>,
    _parameters: &Parameters,
) -> Vector<In, N> {
    unexpanded!()
}

pub(crate) mod between {
    use super::*;

    pub(crate) fn expand<N: PassWidth>(
        scope: &Scope,
        passes: PassesRef,
        value: Vectors<In, N>,
        first: Vectors<A, N>,
        parameters: &ParametersExpand,
    ) -> Vectors<In, N> {
        (N::functions_of(passes.get()).between)(scope, value, first, parameters)
    }
}

/// [`InPasses::finish_passes`].
pub(crate) fn finish_passes<N: PassWidth>(
    _passes: PassesRef,
    _first: Vector<A, N>,
    _second: Accumulator<N>,
    _count: usize,
    _parameters: &Parameters,
) -> Results<N> {
    unexpanded!()
}

pub(crate) mod finish_passes {
    use super::*;

    pub(crate) fn expand<N: PassWidth>(
        scope: &Scope,
        passes: PassesRef,
        first: Vectors<A, N>,
        second: AccumulatorExpand<N>,
        count: NativeExpand<usize>,
        parameters: &ParametersExpand,
    ) -> ResultsExpand<N> {
        (N::functions_of(passes.get()).finish)(scope, first, second, count, parameters)
    }
}
