//! Two operators of this program's own: what one read can tell beside the extrema.

use core::ops::Not;

use reduce_kernels::{
    MeanVar, Operator, Std,
    cubecl::{self, prelude::*},
    operator::{
        Five, Pair, ParameterRule, Parameters, Position, Quint, Signature, Three, Triple, Two,
        TypeRequest, TypeRule, Types, rules,
    },
};

/// The mean and the standard deviation, in this order. The root of [`MeanVar`]'s variance would not
/// do: a variance overflows, or vanishes, where its root does not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeanStd;

#[cube]
impl Operator for MeanStd {
    type Fields = Five;
    type Results = Two;

    const NAME: &'static str = "mean_std";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;
    const PAIRWISE: bool = true;
    /// No correction: the tensor is the population.
    const PARAMETERS: ParameterRule<Self> = |_| Ok(vec![0.0]);

    fn identity<T: Types, N: Size>() -> Quint<T::A, T::B, T::C, T::D, T::E, N> {
        MeanVar::identity::<T, N>()
    }

    fn push<T: Types, N: Size>(
        accumulator: Quint<T::A, T::B, T::C, T::D, T::E, N>,
        value: Vector<T::In, N>,
        position: Position,
        parameters: &Parameters,
    ) -> Quint<T::A, T::B, T::C, T::D, T::E, N> {
        MeanVar::push::<T, N>(accumulator, value, position, parameters)
    }

    fn merge<T: Types, N: Size>(
        left: Quint<T::A, T::B, T::C, T::D, T::E, N>,
        right: Quint<T::A, T::B, T::C, T::D, T::E, N>,
        parameters: &Parameters,
    ) -> Quint<T::A, T::B, T::C, T::D, T::E, N> {
        MeanVar::merge::<T, N>(left, right, parameters)
    }

    fn finish<T: Types, N: Size>(
        accumulator: Quint<T::A, T::B, T::C, T::D, T::E, N>,
        count: usize,
        parameters: &Parameters,
    ) -> Pair<T::Out, T::Out2, N> {
        let mean = MeanVar::finish::<T, N>(accumulator, count, parameters).first;
        let deviation = Std::finish::<T, N>(accumulator, count, parameters).value;
        Pair::new(mean, Vector::cast_from(deviation))
    }
}

/// How many elements are not zero, how many are NaN, and how many infinite.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Census;

/// Three counters that hold the number of elements; of elements of any type.
fn counters(request: &TypeRequest) -> Option<Signature> {
    let TypeRequest { input, accumulator, outputs, reduction_len } = *request;
    let as_it_is = accumulator.is_none() && outputs == [None; 3];
    let counter = rules::counting(reduction_len);
    as_it_is.then(|| Signature::one(rules::held(input), counter, counter))
}

/// Whether each lane is NaN, and whether it is infinite. CubeCL 0.10 looks for the wrong bits of f64 in
/// WGSL, so these are found by comparing. A NaN never equals itself; whether it differs from itself is
/// the backend's choice.
#[cube]
fn not_finite<E: Float, N: Size>(value: Vector<E, N>) -> (Vector<bool, N>, Vector<bool, N>) {
    let element = storage_type_of::<E>();
    if comptime![element.size() == 8] {
        let infinite = value.abs().greater_than(Vector::new(E::max_value()));
        (value.equal(value).not(), infinite)
    } else {
        (value.is_nan(), value.is_inf())
    }
}

/// 1 in the lanes of which `condition` is true, else 0.
#[cube]
fn counted<U: Float, N: Size>(condition: Vector<bool, N>) -> Vector<U, N> {
    select_many(condition, Vector::from_int(1), Vector::from_int(0))
}

#[cube]
impl Operator for Census {
    type Fields = Three;
    type Results = Three;

    const NAME: &'static str = "census";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = counters;

    fn identity<T: Types, N: Size>() -> Triple<T::A, T::B, T::C, N> {
        Triple::new(Vector::from_int(0), Vector::from_int(0), Vector::from_int(0))
    }

    fn push<T: Types, N: Size>(
        accumulator: Triple<T::A, T::B, T::C, N>,
        value: Vector<T::In, N>,
        _position: Position,
        parameters: &Parameters,
    ) -> Triple<T::A, T::B, T::C, N> {
        let nonzero = value.not_equal(Vector::from_int(0));
        let element = storage_type_of::<T::In>();
        // Integers have neither NaN nor infinities, nor functions that ask for them.
        let one = if comptime![element.is_float()] {
            let (nan, infinite) = not_finite::<T::In, N>(value);
            // Whether a NaN differs from zero is not the same everywhere.
            Triple::new(
                counted::<T::A, N>(nonzero.or(nan)),
                counted::<T::B, N>(nan),
                counted::<T::C, N>(infinite),
            )
        } else {
            Triple::new(counted::<T::A, N>(nonzero), Vector::from_int(0), Vector::from_int(0))
        };
        Census::merge::<T, N>(accumulator, one, parameters)
    }

    fn merge<T: Types, N: Size>(
        left: Triple<T::A, T::B, T::C, N>,
        right: Triple<T::A, T::B, T::C, N>,
        _parameters: &Parameters,
    ) -> Triple<T::A, T::B, T::C, N> {
        Triple::new(left.first + right.first, left.second + right.second, left.third + right.third)
    }

    fn finish<T: Types, N: Size>(
        accumulator: Triple<T::A, T::B, T::C, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Triple<T::Out, T::Out2, T::Out3, N> {
        Triple::new(
            Vector::cast_from(accumulator.first),
            Vector::cast_from(accumulator.second),
            Vector::cast_from(accumulator.third),
        )
    }
}
