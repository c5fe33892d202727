//! What an operator is, and the operators of this crate.

pub(crate) mod builtin;
mod definition;
mod derived;
pub mod element_wise;
mod elements;
mod fields;
mod map;
pub mod math;
mod parameters;
mod position;
mod record;
mod types;

use cubecl::prelude::*;

pub use definition::Definition;
pub(crate) use definition::Erased;
pub(crate) use definition::{
    Accumulator, OperatorRef, Results, Width, finish, identity, merge, push,
};
pub use elements::{A, B, C, D, E, In, Out, Out2, Out3};
pub(crate) use elements::{Single, Stored, Wide};
pub use fields::{
    AccumulatorOf, Fields, Five, Four, One, Pair, Quad, Quint, ResultArity, ResultsOf, Three,
    Triple, Two, Value,
};
pub use map::{Map, Mapped};
pub(crate) use parameters::ParametersLaunch;
pub use parameters::{InvalidParameter, ParameterRule, Parameters};
pub use position::Position;
#[doc(hidden)]
pub use record::{AccumulatorTypes, FieldTypes, Record, ResultTypes};
pub(crate) use record::{Columns, word_count};
pub use types::{Signature, TypeRequest, TypeRule, rules};

/// A reduction operator: an accumulator and four functions.
///
/// The laws that every schedule relies on, and that the test suite holds the crate's own operators
/// to:
///
/// - `merge(identity(), a)` and `merge(a, identity())` are `a`;
/// - `merge` is associative and commutative, up to rounding;
/// - pushing an element is merging what `push` makes of the identity and that element.
///
/// Functions work on vectors of `N` independent components. Their element types stand for what the
/// kernel at hand works with: the elements that are pushed, [`In`]; up to five accumulator fields,
/// [`A`] to [`E`]; and up to three results, [`Out`] to [`Out3`]. [`TYPES`](Operator::TYPES) chooses
/// them while the program runs, so a function is written once for all of them.
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
    type Results: ResultArity;

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
    /// The operator as data, for code that is the same for all operators. The crate that implements
    /// an operator can compile its functions there, once, by naming a `static` of its own:
    /// [`defined!`](crate::defined) does that.
    const DEFINITION: &'static Definition<Self> = &Definition::<Self>::of();

    /// The accumulator of no elements.
    fn identity<N: Size>() -> AccumulatorOf<Self::Fields, N>;

    /// Takes one element per lane into the accumulator.
    fn push<N: Size>(
        accumulator: AccumulatorOf<Self::Fields, N>,
        value: Vector<In, N>,
        position: Position,
        parameters: &Parameters,
    ) -> AccumulatorOf<Self::Fields, N>;

    /// The accumulator of both operands' elements.
    fn merge<N: Size>(
        left: AccumulatorOf<Self::Fields, N>,
        right: AccumulatorOf<Self::Fields, N>,
        parameters: &Parameters,
    ) -> AccumulatorOf<Self::Fields, N>;

    /// The results for an accumulator of `count` elements.
    fn finish<N: Size>(
        accumulator: AccumulatorOf<Self::Fields, N>,
        count: usize,
        parameters: &Parameters,
    ) -> ResultsOf<Self::Results, N>;
}
