//! Elements that satisfy a predicate, side by side.

use cubecl::{prelude::*, std::tensor::TensorHandle};

use crate::{
    error::ReduceError,
    host::compact::{Compaction, Kept},
    operator::{Map, One},
    operators::CountNonzero,
    scan::scan,
};

/// The elements that [`compact`] has kept, or the positions of [`compact_positions`], and how many
/// they are.
#[derive(Clone, Debug)]
pub struct Compacted {
    /// What was kept, in row-major order: one dimension, with as many places as the input has
    /// elements. As many of the first places are written as `count` says. The others are not
    /// written, and may hold anything.
    pub kept: TensorHandle,
    /// How many elements were kept: one integer, of shape `[1]`. It is u32, or u64 if u32 cannot
    /// count the elements of the input.
    pub count: TensorHandle,
}

/// The elements of `input` that satisfy a predicate, in row-major order over all axes, and how many
/// they are.
///
/// An element is kept if `predicate` maps it to a number that is not 0; NaN is not 0. `input` may
/// have any shape and strides. The result has the type of the input, and room for all of its
/// elements: how many are kept is known on the device alone, and nothing waits for it.
///
/// A [scan](scan()) counts the elements up to each position, and a launch behind it writes those
/// that are kept. The predicate is applied once to each element. For a moment, the counts take as
/// much memory as a tensor of u32 with the input's shape.
///
/// ```no_run
/// use reduce_kernels::{
///     ElementType, Map, ReduceError,
///     cubecl::{self, prelude::*, std::tensor::TensorHandle},
///     operator::{One, Parameters},
///     scan::{Compacted, compact},
/// };
///
/// /// Elements above 0.
/// #[derive(Clone, Copy)]
/// struct IsPositive;
///
/// #[cube]
/// impl Map for IsPositive {
///     type Inputs = One;
///
///     const NAME: &'static str = "is positive";
///     const TYPES: fn(ElementType) -> Option<ElementType> = Some;
///
///     fn map<E: Float, N: Size>(value: Vector<E, N>, _parameters: &Parameters) -> Vector<E, N> {
///         let zero = Vector::from_int(0);
///         select_many(value.greater_than(&zero), Vector::from_int(1), zero)
///     }
/// }
///
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// let Compacted { kept, count } = compact(client, x, IsPositive)?;
/// let count = client.read_one(count.handle).expect("the device answers");
/// println!("{} elements are positive", u32::from_bytes(&count)[0]);
/// # Ok(()) }
/// # fn main() {}
/// ```
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched: a type that the predicate or the device does not
/// have, a parameter of the predicate out of range, a buffer of the input that is too small, and
/// more elements than the device's indices, launches or memory reach.
pub fn compact<M: Map<Inputs = One>>(
    client: &Client,
    input: &TensorHandle,
    predicate: M,
) -> Result<Compacted, ReduceError> {
    counted(client, input, predicate, Kept::Element)
}

/// The positions of the elements of `input` that satisfy a predicate, and how many they are.
///
/// A position counts all elements of the input in row-major order, from 0. Its type is that of
/// [`Compacted::count`]. The rest is as [`compact`] has it.
///
/// ```no_run
/// # use reduce_kernels::{Map, ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// # use reduce_kernels::operator::One;
/// use reduce_kernels::scan::{Compacted, compact_positions};
///
/// # fn example(
/// #     client: &Client,
/// #     x: &TensorHandle,
/// #     is_positive: impl Map<Inputs = One>,
/// # ) -> Result<(), ReduceError> {
/// let Compacted { kept: positions, count } = compact_positions(client, x, is_positive)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Those of [`compact`].
pub fn compact_positions<M: Map<Inputs = One>>(
    client: &Client,
    input: &TensorHandle,
    predicate: M,
) -> Result<Compacted, ReduceError> {
    counted(client, input, predicate, Kept::Position)
}

fn counted<M: Map<Inputs = One>>(
    client: &Client,
    input: &TensorHandle,
    predicate: M,
    what: Kept,
) -> Result<Compacted, ReduceError> {
    let counting = scan(CountNonzero, input).mapped(predicate);
    let compaction = Compaction::new(client, input, what, counting.output_types()?)?;
    let (kept, count) = compaction.launch(client, &counting.run(client)?);
    Ok(Compacted { kept, count })
}
