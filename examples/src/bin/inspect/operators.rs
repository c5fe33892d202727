//! Two operators of this program: they find in one read what the extrema do not tell.

use reduce_kernels::{
    MeanVar, Operator, Std,
    cubecl::{self, prelude::*},
    operator::{
        A, B, C, D, E, Five, In, One, Out, Out2, Out3, Pair, ParameterRule, Parameters, Position,
        Quint, Signature, Three, Triple, Two, TypeRequest, TypeRule, rules,
    },
};

/// The mean and the standard deviation, in this order. The root of [`MeanVar`]'s variance would not
/// serve, because a variance can overflow or vanish where its root does not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeanStd;

#[cube]
impl Operator for MeanStd {
    type Inputs = One;
    type Fields = Five;
    type Results = Two;

    const NAME: &'static str = "mean_std";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;
    const PAIRWISE: bool = true;
    /// No correction: the tensor is the population.
    const PARAMETERS: ParameterRule<Self> = |_| Ok(vec![0.0]);

    fn identity<N: Size>() -> Quint<A, B, C, D, E, N> {
        MeanVar::identity::<N>()
    }

    fn push<N: Size>(
        accumulator: Quint<A, B, C, D, E, N>,
        value: Vector<In, N>,
        position: Position,
        parameters: &Parameters,
    ) -> Quint<A, B, C, D, E, N> {
        MeanVar::push::<N>(accumulator, value, position, parameters)
    }

    fn merge<N: Size>(
        left: Quint<A, B, C, D, E, N>,
        right: Quint<A, B, C, D, E, N>,
        parameters: &Parameters,
    ) -> Quint<A, B, C, D, E, N> {
        MeanVar::merge::<N>(left, right, parameters)
    }

    fn finish<N: Size>(
        accumulator: Quint<A, B, C, D, E, N>,
        count: usize,
        parameters: &Parameters,
    ) -> Pair<Out, Out2, N> {
        let mean = MeanVar::finish::<N>(accumulator, count, parameters).first;
        let deviation = Std::finish::<N>(accumulator, count, parameters).value;
        Pair::new(mean, Vector::cast_from(deviation))
    }
}

/// How many elements are not zero, how many are NaN, and how many infinite.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Census;

/// Three counters, of a type that holds the number of elements. The elements may have any type.
fn counters(request: &TypeRequest) -> Option<Signature> {
    let TypeRequest { input, accumulator, outputs, reduction_len } = *request;
    let as_it_is = accumulator.is_none() && outputs == [None; 3];
    let counter = rules::counting(reduction_len);
    as_it_is.then(|| Signature::one(rules::held(input), counter, counter))
}

/// 1 in the components in which `condition` is true, otherwise 0.
#[cube]
fn counted<U: Float, N: Size>(condition: Vector<bool, N>) -> Vector<U, N> {
    select_many(condition, Vector::from_int(1), Vector::from_int(0))
}

#[cube]
impl Operator for Census {
    type Inputs = One;
    type Fields = Three;
    type Results = Three;

    const NAME: &'static str = "census";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = counters;

    fn identity<N: Size>() -> Triple<A, B, C, N> {
        Triple::new(Vector::from_int(0), Vector::from_int(0), Vector::from_int(0))
    }

    fn push<N: Size>(
        accumulator: Triple<A, B, C, N>,
        value: Vector<In, N>,
        _position: Position,
        parameters: &Parameters,
    ) -> Triple<A, B, C, N> {
        let nonzero = value.not_equal(&Vector::from_int(0));
        let element = elem_type_of::<In>();
        // Integers have neither NaN nor infinities, and no functions that test for them.
        let one = if comptime![element.is_float()] {
            let (nan, infinite) = (value.is_nan(), value.is_inf());
            // Backends differ in whether a NaN differs from zero.
            Triple::new(
                counted::<A, N>(nonzero.or(nan)),
                counted::<B, N>(nan),
                counted::<C, N>(infinite),
            )
        } else {
            Triple::new(counted::<A, N>(nonzero), Vector::from_int(0), Vector::from_int(0))
        };
        Census::merge::<N>(accumulator, one, parameters)
    }

    fn merge<N: Size>(
        left: Triple<A, B, C, N>,
        right: Triple<A, B, C, N>,
        _parameters: &Parameters,
    ) -> Triple<A, B, C, N> {
        Triple::new(left.first + right.first, left.second + right.second, left.third + right.third)
    }

    fn finish<N: Size>(
        accumulator: Triple<A, B, C, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Triple<Out, Out2, Out3, N> {
        Triple::new(
            Vector::cast_from(accumulator.first),
            Vector::cast_from(accumulator.second),
            Vector::cast_from(accumulator.third),
        )
    }
}
