//! Element maps: functions that are applied to elements, or to pairs of them, before an operator
//! takes what they give.

use cubecl::prelude::*;
use reduce_planner::ElementType;

use super::{
    AccumulatorOf, Blocks, In, InputArity, InputsOf, InvalidParameter, One, Operator,
    ParameterRule, Parameters, Passes, Position, Reproducible, ResultsOf, Runs, Signature,
    TypeRequest, TypeRule, parameters,
};

/// A function of an element, or of an element of each of two inputs, which kernels apply as they
/// load them.
///
/// `reduce(Sum, &x).mapped(SquaredError { target: 0.5 })` reads `x` once and stores no intermediate
/// tensor. `reduce(Sum, &x).paired(&y, ElementwiseProduct)` reads both tensors once.
/// docs/ADDING_AN_OPERATOR.md in the repository writes the first of these maps.
#[allow(missing_docs, reason = "#[cube] adds an undocumented twin of each function")]
#[cube]
pub trait Map: Copy + Send + Sync + 'static {
    /// The number of inputs: [`One`] or [`Two`](super::Two).
    type Inputs: InputArity;

    /// The name of the map in messages.
    const NAME: &'static str;
    /// The type that `map` works in for an input type: 32 or 64 bits wide. Elements are converted
    /// to it before `map` gets them. `None` refuses the input type. Of two inputs, it is the
    /// [common type](super::rules::common).
    const TYPES: fn(ElementType) -> Option<ElementType>;
    /// Whether `map` computes with the functions of [`same_bits`](super::same_bits) wherever
    /// anything is rounded; see [`Operator::REPRODUCIBLE`].
    const REPRODUCIBLE: bool = false;
    /// Whether `map` computes exponentials, logarithms, powers or angles.
    const TRANSCENDENTAL: bool = false;
    /// Whether these functions are the device's own; see [`Operator::NATIVE_MATH`].
    const NATIVE_MATH: bool = Self::TRANSCENDENTAL;
    /// Reads and checks the numbers that `map` gets as [`Parameters`].
    const PARAMETERS: ParameterRule<Self> = parameters::none::<Self>;
    /// How many numbers `PARAMETERS` gives.
    const PARAMETER_COUNT: usize = 0;

    /// Maps the element, or the pair of elements, in each component: `elements` is a
    /// `Vector<E, N>` of one input, and a `Pair<E, E, N>` of two.
    fn map<E: Float, N: Size>(
        elements: InputsOf<Self::Inputs, E, N>,
        parameters: &Parameters,
    ) -> Vector<E, N>;
}

/// A map and an operator that takes the mapped elements. It is an operator itself, of the inputs of
/// the map.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mapped<M, O> {
    /// The map that is applied to each element, or to each pair.
    pub map: M,
    /// The operator that takes the mapped elements.
    pub operator: O,
}

impl<M: Map, O: Operator<Inputs = One>> Mapped<M, O> {
    fn types(request: &TypeRequest) -> Option<Signature> {
        let mapped = (M::TYPES)(request.input)?;
        (O::TYPES)(&TypeRequest { input: mapped, ..*request })
    }

    fn parameters(&self) -> Result<Vec<f64>, InvalidParameter> {
        let of_map = (M::PARAMETERS)(&self.map)?;
        let count = M::PARAMETER_COUNT;
        if of_map.len() != count {
            let expected = "as many as PARAMETERS gives";
            return Err(InvalidParameter {
                name: "PARAMETER_COUNT",
                value: count as f64,
                expected,
            });
        }
        Ok([of_map, (O::PARAMETERS)(&self.operator)?].concat())
    }
}

#[cube]
impl<M: Map, O: Operator<Inputs = One>> Operator for Mapped<M, O> {
    type Inputs = M::Inputs;
    type Fields = O::Fields;
    type Results = O::Results;

    const NAME: &'static str = O::NAME;
    const DEFINED_ON_EMPTY: bool = O::DEFINED_ON_EMPTY;
    const TYPES: TypeRule = Self::types;
    const REPRODUCIBLE: Reproducible = match M::REPRODUCIBLE {
        true => O::REPRODUCIBLE,
        false => Reproducible::No,
    };
    const POSITIONAL: bool = O::POSITIONAL;
    const PAIRWISE: bool = O::PAIRWISE;
    const TRANSCENDENTAL: bool = M::TRANSCENDENTAL || O::TRANSCENDENTAL;
    const POWERS: bool = O::POWERS;
    const NATIVE_MATH: bool = M::NATIVE_MATH || O::NATIVE_MATH;
    const MAP: Option<&'static str> = Some(M::NAME);
    const PARAMETERS: ParameterRule<Self> = Self::parameters;
    const BLOCKS: Option<Blocks<Self>> = Blocks::of_mapped();
    const PASSES: Option<Passes<Self>> = Passes::of_mapped();
    const RUNS: Option<Runs<Self>> = Runs::of_mapped();

    fn identity<N: Size>() -> AccumulatorOf<O::Fields, N> {
        O::identity::<N>()
    }

    fn push<N: Size>(
        accumulator: AccumulatorOf<O::Fields, N>,
        elements: InputsOf<M::Inputs, In, N>,
        position: Position,
        parameters: &Parameters,
    ) -> AccumulatorOf<O::Fields, N> {
        let mapped = M::map::<In, N>(elements, parameters);
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
