//! The [`Operator`] trait and what goes with it, for operators, maps and applied functions of your
//! own. The operators of this crate are in [`operators`](crate::operators).
//!
//! docs/ADDING_AN_OPERATOR.md in the repository writes each of them from scratch. The shortest is a
//! function that is applied:
//!
//! ```
//! use reduce_kernels::{
//!     ElementType, Mean, TensorDescription,
//!     cubecl::{self, prelude::*},
//!     operator::{Apply, One, Operands, Parameters, Real, Reduced, Value},
//!     reduce,
//! };
//!
//! /// The difference of an element from the result.
//! #[derive(Clone, Copy)]
//! struct Centred;
//!
//! #[cube]
//! impl Apply for Centred {
//!     type Results = One;
//!     type Outputs = One;
//!
//!     const NAME: &'static str = "centred";
//!
//!     fn apply<N: Size>(
//!         value: Vector<Real, N>,
//!         mean: Reduced<One, N>,
//!         _operands: &Operands<N>,
//!         _parameters: &Parameters,
//!     ) -> Reduced<One, N> {
//!         Value::new(value - mean.value)
//!     }
//! }
//!
//! let x = TensorDescription::row_major(ElementType::F16, [8, 1024]);
//! let centred = reduce(Mean, &x).over(1).apply(Centred);
//! assert_eq!(centred.problems()?.0.elements(), 8 * 1024);
//! # Ok::<(), reduce_kernels::ReduceError>(())
//! ```

mod application;
pub mod block;
pub(crate) mod builtin;
pub(crate) mod copied;
mod definition;
pub(crate) mod derived;
pub mod element_wise;
mod elements;
mod fields;
mod inputs;
mod map;
pub mod math;
mod parameters;
mod passes;
mod position;
mod record;
mod running;
pub mod same_bits;
mod slice;
mod types;

use cubecl::prelude::*;
pub use reduce_planner::Reproducible;

pub use application::{Application, Apply, Operands, Reduced, applied};
pub(crate) use application::{ApplyRef, ErasedApply, apply_to};
pub(crate) use block::BlockTraits;
pub use block::{Block, Blocks, Blockwise};
pub use definition::Definition;
pub(crate) use definition::Erased;
pub(crate) use definition::{OperatorRef, Width, finish, identity, merge, push, push_block};
pub use derived::defined;
pub use elements::{A, B, C, D, E, In, Out, Out2, Out3, Real};
pub(crate) use elements::{
    Applied, Applied2, Applied3, Chains, ElementIndex, HardwareMath, Offset, Operand, Operand2,
    Operand3, ROWS_OF_STRIP, SameBits, Single, Stored, Stored2, Strip, Wide,
};
pub use fields::{
    AccumulatorOf, Arity, Fields, Five, Four, One, Pair, Quad, Quint, ResultsOf, Three, Triple,
    Two, Value,
};
pub use inputs::{InputArity, InputsOf};
pub(crate) use inputs::{Inputs, one_input, two_inputs};
pub use map::{Map, Mapped};
pub use parameters::{InvalidParameter, ParameterRule, Parameters};
pub(crate) use parameters::{ParametersLaunch, finite, not_negative};
pub use passes::{InPasses, Passes};
pub(crate) use passes::{PassWidth, PassesRef, after_first, between, element_of, finish_passes};
pub use position::Position;
pub(crate) use record::{
    Accumulator, Columns, Field, Reals, Results, component_at, shared, word_count,
};
#[doc(hidden)]
pub use record::{AccumulatorTypes, FieldTypes, InputTypes, RealTypes, Record, ResultTypes};
pub(crate) use running::{RunWidth, RunsRef, run};
pub use running::{Running, Runs};
pub(crate) use slice::Slice;
pub use types::{Signature, TypeRequest, TypeRule, rules};

/// A reduction operator: an accumulator and four functions.
///
/// Every schedule relies on these laws, and the test suite checks them for the crate's own
/// operators:
///
/// - `merge(identity(), a)` and `merge(a, identity())` are `a`;
/// - `merge` is associative and commutative, up to rounding;
/// - pushing an element gives the same as pushing it to the identity and merging the result, up to
///   rounding.
///
/// The functions work on vectors of `N` independent components. Their element types are
/// placeholders for those of the kernel that is being generated: [`In`] for the elements that are
/// pushed, [`A`] to [`E`] for up to five accumulator fields, and [`Out`] to [`Out3`] for up to
/// three results. [`TYPES`](Operator::TYPES) chooses the actual types at run time, so each function
/// is written once for all of them.
///
/// A value of the operator's type holds what the operator depends on at run time, such as the
/// correction of a variance. [`PARAMETERS`](Operator::PARAMETERS) passes these numbers to the
/// functions.
///
/// docs/ADDING_AN_OPERATOR.md in the repository writes an operator from scratch.
#[allow(missing_docs, reason = "#[cube] adds an undocumented twin of each function")]
#[cube]
pub trait Operator: Copy + Send + Sync + 'static {
    /// The number of inputs: [`One`], or [`Two`] for an operator of pairs. An operator of pairs
    /// takes the elements of both inputs that belong together, and
    /// [`reduce_pair`](crate::pairs::reduce_pair) reduces with it.
    type Inputs: InputArity;
    /// The number of fields of an accumulator: [`One`] to [`Five`].
    type Fields: Fields;
    /// The number of results of a reduction: [`One`], [`Two`] or [`Three`].
    type Results: Arity;

    /// The name of the operator in plans, messages and command lines.
    const NAME: &'static str;
    /// Whether a reduction over no elements has a value. The value is `finish(identity(), 0)`. If
    /// not, such a reduction is an error.
    const DEFINED_ON_EMPTY: bool;
    /// Chooses the element types from the type of the input and from what the caller asks for. Two
    /// inputs have the type that both are converted to; see [`rules::common`].
    const TYPES: TypeRule;
    /// What makes the bits of results the same on every device, if anything does; see
    /// [`Numerics::Reproducible`](crate::plans::Numerics::Reproducible).
    ///
    /// It is [`ByPosition`](Reproducible::ByPosition) for an operator whose functions compute with
    /// those of [`same_bits`] wherever anything is rounded.
    const REPRODUCIBLE: Reproducible = Reproducible::No;
    /// Whether `push` uses the position of the elements.
    const POSITIONAL: bool = false;
    /// Whether long chains of floating point operations lose accuracy. If so, units accumulate
    /// chains of up to 512 loads and merge them pairwise.
    const PAIRWISE: bool = false;
    /// Whether the functions compute exponentials, logarithms, powers or angles. The planner then
    /// expects more work per element.
    const TRANSCENDENTAL: bool = false;
    /// Whether one of these functions is a power of each element. The planner then expects more
    /// work per element than an exponential takes.
    const POWERS: bool = false;
    /// Whether these functions are the device's own, such as `Vector::exp` and `Vector::sin`,
    /// rather than those of [`math`]. SPIR-V and WGSL have none of their own for f64, so such a
    /// reduction is refused there in f64, before any launch.
    const NATIVE_MATH: bool = Self::TRANSCENDENTAL;
    /// For messages, the name of the map that is applied to elements first, if there is one; see
    /// [`Mapped`].
    const MAP: Option<&'static str> = None;
    /// Reads and checks the numbers that the functions get as [`Parameters`].
    const PARAMETERS: ParameterRule<Self> = parameters::none::<Self>;
    /// The functions that take blocks of elements, for an operator that is
    /// [`Blockwise`]: `Some(Blocks::of())`.
    const BLOCKS: Option<Blocks<Self>> = None;
    /// The passes of an operator that takes elements in two where these are held:
    /// `Some(Passes::of())`.
    const PASSES: Option<Passes<Self>> = None;
    /// The results at neighbouring elements, for an operator that is [`Running`]:
    /// `Some(Runs::of())`.
    const RUNS: Option<Runs<Self>> = None;
    /// The operator as data, for code that is the same for all operators.
    ///
    /// A crate that implements an operator should set this with
    /// [`defined!`](crate::operator::defined): a `static` of that crate makes Rust compile the
    /// operator's functions there, once.
    const DEFINITION: &'static Definition<Self> = &Definition::<Self>::of();

    /// The accumulator of no elements.
    fn identity<N: Size>() -> AccumulatorOf<Self::Fields, N>;

    /// Adds one element per component to the accumulator, or one pair of elements: `elements` is a
    /// `Vector<In, N>` of one input, and a `Pair<In, In, N>` of two.
    fn push<N: Size>(
        accumulator: AccumulatorOf<Self::Fields, N>,
        elements: InputsOf<Self::Inputs, In, N>,
        position: Position,
        parameters: &Parameters,
    ) -> AccumulatorOf<Self::Fields, N>;

    /// The accumulator of the elements of both operands.
    fn merge<N: Size>(
        left: AccumulatorOf<Self::Fields, N>,
        right: AccumulatorOf<Self::Fields, N>,
        parameters: &Parameters,
    ) -> AccumulatorOf<Self::Fields, N>;

    /// The results of an accumulator of `count` elements per component.
    fn finish<N: Size>(
        accumulator: AccumulatorOf<Self::Fields, N>,
        count: usize,
        parameters: &Parameters,
    ) -> ResultsOf<Self::Results, N>;
}
