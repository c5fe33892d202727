//! Operators that take elements in two passes where these are held.
#![allow(
    missing_docs,
    missing_debug_implementations,
    reason = "CubeCL's macros add items without documentation and types without Debug"
)]

use core::marker::PhantomData;

use cubecl::{prelude::*, unexpanded};

use super::{
    AccumulatorOf, Fields, InputArity, Inputs, Map, Mapped, One, Operator, Parameters, ResultsOf,
    Width,
    definition::{ErasedPasses, PassFunctions, Vectors},
    elements::{In, Single, Wide},
    inputs::{InputsExpand, one_input},
    parameters::ParametersExpand,
    record::{
        Accumulator, AccumulatorExpand, AccumulatorTypes, ResultTypes, Results, ResultsExpand,
    },
};

/// An operator whose elements can be taken twice, because the units of a tile hold them: first by
/// one operator, then, with what it found, by another. Two cheap passes with few fields combine
/// faster than one whose accumulator must do for any order, and are often more accurate: the
/// maximum before exponentials, the mean before squared distances. An operator with a map takes its
/// passes over the mapped elements.
///
/// It serves [applied reductions](super::Apply), and reductions along rows that are short enough for
/// the registers of the units which share them. The planner decides where that pays. The operator
/// names its passes in [`Operator::PASSES`].
#[cube]
pub trait InPasses: Operator<Inputs = One> {
    /// The operator of the first pass. It takes blocks, refuses none, and its merge is commutative
    /// to the last bit. It has no parameters, and no more fields than this operator.
    type First: Operator<Inputs = One>;
    /// The operator of the second pass, like the first.
    type Second: Operator<Inputs = One>;
    /// The fields that the second pass needs of the first. They have the types of the operator's
    /// own first fields.
    type Between: Fields;

    /// What the second pass needs of the first, from its accumulator of `count` elements.
    fn after_first<N: Size>(
        first: AccumulatorOf<<Self::First as Operator>::Fields, N>,
        count: usize,
        parameters: &Parameters,
    ) -> AccumulatorOf<Self::Between, N>;

    /// What is pushed for an element in the second pass.
    fn between<N: Size>(
        value: Vector<In, N>,
        after: AccumulatorOf<Self::Between, N>,
        parameters: &Parameters,
    ) -> Vector<In, N>;

    /// The operator's results, from the accumulators of both passes.
    fn finish_passes<N: Size>(
        first: AccumulatorOf<<Self::First as Operator>::Fields, N>,
        second: AccumulatorOf<<Self::Second as Operator>::Fields, N>,
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
            element: packed_element::expand::<N>,
            after_first: packed_after_first::expand::<O, N>,
            between: packed_between::expand::<O, N>,
            finish: packed_finish::expand::<O, N>,
        }
    }
}

impl<M: Map, O: Operator<Inputs = One>> Passes<Mapped<M, O>> {
    /// The passes of `O` over mapped elements, if it has any.
    pub(super) const fn of_mapped() -> Option<Self> {
        match &O::PASSES {
            Some(Passes { erased: ErasedPasses { first, second, .. }, .. }) => {
                let erased = ErasedPasses {
                    first,
                    second,
                    wide: PassFunctions::of_mapped::<M, O>(),
                    single: PassFunctions::of_mapped::<M, O>(),
                };
                Some(Self { erased, operator: PhantomData })
            }
            None => None,
        }
    }
}

impl<N: PassWidth> PassFunctions<N> {
    const fn of_mapped<M: Map, O: Operator<Inputs = One>>() -> Self {
        Self {
            element: mapped_element::expand::<M, O, N>,
            after_first: mapped_after_first::expand::<M, O, N>,
            between: mapped_between::expand::<M, O, N>,
            finish: mapped_finish::expand::<M, O, N>,
        }
    }
}

/// The passes of an operator that has some.
fn passes_of<O: Operator>() -> PassesRef {
    PassesRef(super::OperatorRef(O::DEFINITION.erased()))
}

#[cube]
fn mapped_element<M: Map, O: Operator<Inputs = One>, N: PassWidth>(
    inputs: Inputs<N>,
    parameters: &Parameters,
) -> Vector<In, N> {
    let mapped = M::map::<In, N>(M::Inputs::elements::<N>(inputs), parameters);
    let rest = parameters.skip(M::PARAMETER_COUNT);
    element_of::<N>(comptime![passes_of::<O>()], one_input::<N>(mapped), &rest)
}

#[cube]
fn mapped_after_first<M: Map, O: Operator<Inputs = One>, N: PassWidth>(
    first: Accumulator<N>,
    count: usize,
    parameters: &Parameters,
) -> Accumulator<N> {
    let rest = parameters.skip(M::PARAMETER_COUNT);
    after_first::<N>(comptime![passes_of::<O>()], first, count, &rest)
}

#[cube]
fn mapped_between<M: Map, O: Operator<Inputs = One>, N: PassWidth>(
    value: Vector<In, N>,
    after: Accumulator<N>,
    parameters: &Parameters,
) -> Vector<In, N> {
    let rest = parameters.skip(M::PARAMETER_COUNT);
    between::<N>(comptime![passes_of::<O>()], value, after, &rest)
}

#[cube]
fn mapped_finish<M: Map, O: Operator<Inputs = One>, N: PassWidth>(
    first: Accumulator<N>,
    second: Accumulator<N>,
    count: usize,
    parameters: &Parameters,
) -> Results<N> {
    let rest = parameters.skip(M::PARAMETER_COUNT);
    finish_passes::<N>(comptime![passes_of::<O>()], first, second, count, &rest)
}

#[cube]
fn packed_element<N: Size>(inputs: Inputs<N>, _parameters: &Parameters) -> Vector<In, N> {
    inputs.a()
}

#[cube]
fn fields_of<O: Operator, N: Size>(accumulator: Accumulator<N>) -> AccumulatorOf<O::Fields, N> {
    O::Fields::unpack::<AccumulatorTypes, N>(accumulator)
}

#[cube]
fn packed_after_first<O: InPasses, N: Size>(
    first: Accumulator<N>,
    count: usize,
    parameters: &Parameters,
) -> Accumulator<N> {
    let first = fields_of::<O::First, N>(first);
    let after = O::after_first::<N>(first, count, parameters);
    O::Between::pack::<AccumulatorTypes, N>(after)
}

#[cube]
fn packed_between<O: InPasses, N: Size>(
    value: Vector<In, N>,
    after: Accumulator<N>,
    parameters: &Parameters,
) -> Vector<In, N> {
    let after = O::Between::unpack::<AccumulatorTypes, N>(after);
    O::between::<N>(value, after, parameters)
}

#[cube]
fn packed_finish<O: InPasses, N: Size>(
    first: Accumulator<N>,
    second: Accumulator<N>,
    count: usize,
    parameters: &Parameters,
) -> Results<N> {
    let first = fields_of::<O::First, N>(first);
    let second = fields_of::<O::Second, N>(second);
    let results = O::finish_passes::<N>(first, second, count, parameters);
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

/// What passes take of the elements of all inputs.
pub(crate) fn element_of<N: PassWidth>(
    _passes: PassesRef,
    _inputs: Inputs<N>,
    _parameters: &Parameters,
) -> Vector<In, N> {
    unexpanded!()
}

pub(crate) mod element_of {
    use super::*;

    pub(crate) fn expand<N: PassWidth>(
        scope: &Scope,
        passes: PassesRef,
        inputs: InputsExpand<N>,
        parameters: &ParametersExpand,
    ) -> Vectors<In, N> {
        (N::functions_of(passes.get()).element)(scope, inputs, parameters)
    }
}

/// [`InPasses::after_first`].
pub(crate) fn after_first<N: PassWidth>(
    _passes: PassesRef,
    _first: Accumulator<N>,
    _count: usize,
    _parameters: &Parameters,
) -> Accumulator<N> {
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
    ) -> AccumulatorExpand<N> {
        (N::functions_of(passes.get()).after_first)(scope, first, count, parameters)
    }
}

/// [`InPasses::between`].
pub(crate) fn between<N: PassWidth>(
    _passes: PassesRef,
    _value: Vector<In, N>,
    _after: Accumulator<N>,
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
        after: AccumulatorExpand<N>,
        parameters: &ParametersExpand,
    ) -> Vectors<In, N> {
        (N::functions_of(passes.get()).between)(scope, value, after, parameters)
    }
}

/// [`InPasses::finish_passes`].
pub(crate) fn finish_passes<N: PassWidth>(
    _passes: PassesRef,
    _first: Accumulator<N>,
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
        first: AccumulatorExpand<N>,
        second: AccumulatorExpand<N>,
        count: NativeExpand<usize>,
        parameters: &ParametersExpand,
    ) -> ResultsExpand<N> {
        (N::functions_of(passes.get()).finish)(scope, first, second, count, parameters)
    }
}
