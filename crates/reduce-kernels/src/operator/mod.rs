//! What an operator is, and the operators of this crate: a file per family.

mod arg;
mod by_name;
pub mod element_wise;
mod extrema;
mod fields;
mod log_sum_exp;
mod logic;
mod map;
pub mod math;
mod mean;
mod nan_ignoring;
mod norm;
mod parameters;
mod position;
mod prod;
mod sum;
mod types;
mod variance;

use cubecl::prelude::*;

pub use arg::{ArgMax, ArgMin, MaxWithIndex, MinWithIndex};
pub use by_name::{OperatorName, OperatorOptions, UnknownOperator};
pub use extrema::{Max, Min, MinMax};
pub use fields::{
    Columns, Family, FieldTypes, Fields, FieldsOf, Five, Four, One, Pair, Quad, Quint, ResultsOf,
    Three, Triple, Two, Value, VectorColumns,
};
pub use log_sum_exp::LogSumExp;
pub use logic::{All, Any, CountNonzero};
pub use map::{Map, Mapped};
pub use mean::Mean;
pub use nan_ignoring::{NanArgMax, NanArgMin, NanMax, NanMean, NanMin, NanProd, NanSum};
pub use norm::{NormInf, NormL1, NormL2, NormP};
pub use parameters::{InvalidParameter, ParameterRule, Parameters, ParametersLaunch};
pub use position::Position;
pub use prod::Prod;
pub use sum::{Sum, SumAbs, SumSquares};
pub use types::{Signature, TypeRequest, TypeRule, Types, rules};
pub use variance::{MeanVar, NanStd, NanVar, Std, Var};

/// A reduction operator: an accumulator and four functions.
///
/// The laws that every schedule relies on, and that the test suite holds the crate's own operators
/// to:
///
/// - `merge(identity(), a)` and `merge(a, identity())` are `a`;
/// - `merge` is associative and commutative, up to rounding;
/// - pushing an element is merging what `push` makes of the identity and that element.
///
/// Functions work on vectors of `N` independent lanes. The element types of one kernel are `T`'s:
/// the type of the elements that are pushed, [`Types::In`]; up to five accumulator fields,
/// [`Types::A`] to [`Types::E`]; and up to three results, [`Types::Out`] to [`Types::Out3`]. They are
/// chosen at run time by [`TYPES`](Operator::TYPES), so a function is written once for all of them.
/// CubeCL's `Float` bound on them says which functions may be called, not what the data is: integers
/// pass through too.
///
/// A value of the operator's type says what the operator depends on at run time, such as the
/// correction of a variance; [`PARAMETERS`](Operator::PARAMETERS) hands it to the functions.
///
/// docs/ADDING_AN_OPERATOR.md writes one from scratch.
#[allow(missing_docs, reason = "#[cube] adds an undocumented twin of each function")]
#[cube]
pub trait Operator: Copy + Send + Sync + 'static {
    /// How many fields an accumulator has: [`One`] to [`Five`].
    type Fields: Fields;
    /// How many results a reduction has: [`One`], [`Two`] or [`Three`].
    type Results: Family;

    /// The name in plans, messages and command lines.
    const NAME: &'static str;
    /// Whether a reduction over no elements has a value: that of `finish(identity(), 0)`.
    const DEFINED_ON_EMPTY: bool;
    /// Which types go with an input type.
    const TYPES: TypeRule;
    /// Whether `push` reads the position.
    const POSITIONAL: bool = false;
    /// Whether long chains of floating point accumulation lose accuracy, so that units should
    /// accumulate short chains and merge them pairwise.
    const PAIRWISE: bool = false;
    /// Whether the functions take exponentials, logarithms, powers or angles. The planner then counts
    /// on more work per element.
    const TRANSCENDENTAL: bool = false;
    /// Whether these are the device's own, such as `Vector::exp` and `Vector::sin`, and not those of
    /// [`math`]. SPIR-V and WGSL have none for f64, so f64 is refused there before any launch.
    const NATIVE_MATH: bool = Self::TRANSCENDENTAL;
    /// The name of the map that elements pass first, if any, for messages; see [`Mapped`].
    const MAP: Option<&'static str> = None;
    /// The numbers that the functions read from their [`Parameters`], checked.
    const PARAMETERS: ParameterRule<Self> = parameters::none::<Self>;

    /// The accumulator of no elements.
    fn identity<T: Types, N: Size>() -> FieldsOf<Self::Fields, T, N>;

    /// Takes one element per lane into the accumulator.
    fn push<T: Types, N: Size>(
        accumulator: FieldsOf<Self::Fields, T, N>,
        value: Vector<T::In, N>,
        position: Position,
        parameters: &Parameters,
    ) -> FieldsOf<Self::Fields, T, N>;

    /// The accumulator of both operands' elements.
    fn merge<T: Types, N: Size>(
        left: FieldsOf<Self::Fields, T, N>,
        right: FieldsOf<Self::Fields, T, N>,
        parameters: &Parameters,
    ) -> FieldsOf<Self::Fields, T, N>;

    /// The results for an accumulator of `count` elements.
    fn finish<T: Types, N: Size>(
        accumulator: FieldsOf<Self::Fields, T, N>,
        count: usize,
        parameters: &Parameters,
    ) -> ResultsOf<Self::Results, T, N>;
}
