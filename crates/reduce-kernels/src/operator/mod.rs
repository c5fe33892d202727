//! What an operator is, and the operators of this crate, one file each.

mod by_name;
mod fields;
mod max;
mod mean;
mod min;
mod position;
mod prod;
mod sum;
mod types;

use cubecl::prelude::*;

pub use by_name::{OperatorName, UnknownOperator};
pub use fields::{Fields, FieldsOf, One, Pair, Partials, Three, Triple, Two, Value};
pub use max::Max;
pub use mean::Mean;
pub use min::Min;
pub use position::Position;
pub use prod::Prod;
pub use sum::Sum;
pub use types::{Signature, TypeRule, Types, rules};

/// A reduction operator: an accumulator and four functions.
///
/// The laws that every schedule relies on, and that the test suite holds the crate's own operators
/// to:
///
/// - `merge(identity(), a)` and `merge(a, identity())` are `a`;
/// - `merge` is associative, up to rounding;
/// - pushing an element is merging what `push` makes of the identity and that element.
///
/// Functions work on vectors of `N` independent lanes. The element types of one kernel are `T`'s:
/// the loaded type [`Types::In`], up to three accumulator fields [`Types::A`], [`Types::B`] and
/// [`Types::C`], and the result [`Types::Out`]. They are chosen at run time by
/// [`TYPES`](Operator::TYPES), so a function is written once for all of them. CubeCL's `Float` bound
/// on them says which functions may be called, not what the data is: integers pass through too.
///
/// docs/ADDING_AN_OPERATOR.md writes one from scratch.
#[allow(missing_docs, reason = "#[cube] adds an undocumented twin of each function")]
#[cube]
pub trait Operator: Sized + Send + Sync + 'static {
    /// How many fields an accumulator has: [`One`], [`Two`] or [`Three`].
    type Fields: Fields;

    /// The name in plans, messages and command lines.
    const NAME: &'static str;
    /// Whether `push` reads the position.
    const POSITIONAL: bool;
    /// Whether a reduction over no elements has a value: that of `finish(identity(), 0)`.
    const DEFINED_ON_EMPTY: bool;
    /// Which accumulator and output types go with an input type.
    const TYPES: TypeRule;

    /// The accumulator of no elements.
    fn identity<T: Types, N: Size>() -> FieldsOf<Self::Fields, T, N>;

    /// Takes one element per lane into the accumulator.
    fn push<T: Types, N: Size>(
        accumulator: FieldsOf<Self::Fields, T, N>,
        value: Vector<T::In, N>,
        position: Position,
    ) -> FieldsOf<Self::Fields, T, N>;

    /// The accumulator of both operands' elements.
    fn merge<T: Types, N: Size>(
        left: FieldsOf<Self::Fields, T, N>,
        right: FieldsOf<Self::Fields, T, N>,
    ) -> FieldsOf<Self::Fields, T, N>;

    /// The result for an accumulator of `count` elements.
    fn finish<T: Types, N: Size>(
        accumulator: FieldsOf<Self::Fields, T, N>,
        count: usize,
    ) -> Vector<T::Out, N>;
}
