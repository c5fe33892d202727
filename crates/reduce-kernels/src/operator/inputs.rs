//! The inputs of operators and of maps: one or two.
#![allow(
    missing_docs,
    missing_debug_implementations,
    reason = "CubeCL's macros add items without documentation and types without Debug"
)]

use cubecl::prelude::*;

use super::{
    Arity, Fields, One, Pair, Two, Value,
    elements::In,
    record::{InputTypes, Record, RecordExpand},
};

/// What an operator or a map of `I` inputs takes at a time, as elements of type `E`: a vector of
/// `N` components of one input, or a [`Pair`] of such vectors of two.
pub type InputsOf<I, E, N> = <I as InputArity>::Elements<E, N>;

/// The elements that any operator takes at a time.
pub(crate) type Inputs<N> = Record<InputTypes, N>;

/// [`Inputs`] at the time when a kernel is generated.
pub(super) type InputsExpand<N> = RecordExpand<InputTypes, N>;

/// A number of inputs of an operator or of a map: [`One`] or [`Two`].
#[cube]
pub trait InputArity: Arity {
    /// An element of each input, in each of `N` components.
    type Elements<E: Float, N: Size>: CubeType + Clone + Copy;

    /// Converts a record, the form in which kernels move elements, to the form in which operators
    /// take them.
    fn elements<N: Size>(record: Record<InputTypes, N>) -> Self::Elements<In, N>;
}

#[cube]
impl InputArity for One {
    type Elements<E: Float, N: Size> = Vector<E, N>;

    fn elements<N: Size>(record: Record<InputTypes, N>) -> Self::Elements<In, N> {
        record.a()
    }
}

#[cube]
impl InputArity for Two {
    type Elements<E: Float, N: Size> = Pair<E, E, N>;

    fn elements<N: Size>(record: Record<InputTypes, N>) -> Self::Elements<In, N> {
        Two::unpack::<InputTypes, N>(record)
    }
}

/// The elements of one input.
#[cube]
pub(crate) fn one_input<N: Size>(value: Vector<In, N>) -> Inputs<N> {
    One::pack::<InputTypes, N>(Value::new(value))
}

/// The elements of two inputs.
#[cube]
pub(crate) fn two_inputs<N: Size>(first: Vector<In, N>, second: Vector<In, N>) -> Inputs<N> {
    Two::pack::<InputTypes, N>(Pair::new(first, second))
}
