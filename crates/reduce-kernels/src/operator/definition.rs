//! An operator as data: the facts that host code needs, and the functions that write the operator's
//! code into a kernel.

use core::{
    any::{TypeId, type_name},
    fmt,
    hash::{Hash, Hasher},
    marker::PhantomData,
};

use cubecl::{prelude::*, unexpanded};
use reduce_planner::{ElementType, Numerics, Reproducible};

use super::{
    Fields, InputArity, Operator, Parameters, Position, TypeRule,
    block::{Block, BlockExpand, Blocks, ErasedBlocks, PushBlock},
    elements::{In, Single, Strip, Wide},
    inputs::{Inputs, InputsExpand},
    parameters::ParametersExpand,
    position::PositionExpand,
    record::{
        Accumulator, AccumulatorExpand, AccumulatorTypes, ResultTypes, Results, ResultsExpand,
    },
};

/// The operator `O` as data: its constants, its four functions, and its block functions if it has
/// any.
///
/// [`Operator::DEFINITION`] names it. Kernels and host code take it without its type, so Rust
/// compiles them once and not for each operator.
#[derive(Debug)]
pub struct Definition<O> {
    erased: Erased,
    by_position: Erased,
    operator: PhantomData<fn() -> O>,
}

impl<O: Operator> Definition<O> {
    /// The definition of `O`.
    #[must_use]
    pub const fn of() -> Self {
        let erased = Erased::of::<O>();
        let by_position = Erased {
            is_by_position: true,
            blocks: None,
            passes: None,
            runs: None,
            ..Erased::of::<O>()
        };
        Self { erased, by_position, operator: PhantomData }
    }

    pub(crate) const fn erased(&'static self) -> &'static Erased {
        &self.erased
    }

    /// The definition for plans that combine elements by their positions. Units take elements one
    /// by one: a block combines those of several lanes.
    const fn by_position(&'static self) -> &'static Erased {
        &self.by_position
    }
}

/// An operator without its type.
#[derive(Debug)]
pub(crate) struct Erased {
    id: TypeId,
    type_name: fn() -> &'static str,
    pub(crate) name: &'static str,
    pub(crate) map: Option<&'static str>,
    pub(crate) inputs: usize,
    pub(crate) fields: usize,
    pub(crate) results: usize,
    pub(crate) types: TypeRule,
    pub(crate) defined_on_empty: bool,
    pub(crate) positional: bool,
    pub(crate) pairwise: bool,
    pub(crate) transcendental: bool,
    pub(crate) powers: bool,
    pub(crate) native_math: bool,
    pub(crate) blocks: Option<ErasedBlocks>,
    pub(crate) passes: Option<ErasedPasses>,
    pub(crate) runs: Option<ErasedRuns>,
    pub(crate) reproducible: Reproducible,
    /// Whether units take and merge elements in the order of their positions.
    pub(crate) is_by_position: bool,
    by_position: fn() -> &'static Erased,
    wide: Functions<Wide>,
    single: Functions<Single>,
}

type Push<N> = fn(
    &Scope,
    AccumulatorExpand<N>,
    InputsExpand<N>,
    PositionExpand,
    &ParametersExpand,
) -> AccumulatorExpand<N>;

/// The functions that write an operator's code into a kernel that is being generated, for vectors
/// of `N` components.
#[derive(Debug)]
pub(crate) struct Functions<N: Size> {
    identity: fn(&Scope) -> AccumulatorExpand<N>,
    push: Push<N>,
    merge: fn(
        &Scope,
        AccumulatorExpand<N>,
        AccumulatorExpand<N>,
        &ParametersExpand,
    ) -> AccumulatorExpand<N>,
    finish: fn(
        &Scope,
        AccumulatorExpand<N>,
        NativeExpand<usize>,
        &ParametersExpand,
    ) -> ResultsExpand<N>,
}

/// Passes without their operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErasedPasses {
    pub(crate) first: &'static Erased,
    pub(crate) second: &'static Erased,
    pub(super) wide: PassFunctions<Wide>,
    pub(super) single: PassFunctions<Single>,
}

pub(super) type Vectors<T, N> = NativeExpand<Vector<T, N>>;

type AfterFirst<N> = fn(
    &Scope,
    AccumulatorExpand<N>,
    NativeExpand<usize>,
    &ParametersExpand,
) -> AccumulatorExpand<N>;

type Between<N> =
    fn(&Scope, Vectors<In, N>, AccumulatorExpand<N>, &ParametersExpand) -> Vectors<In, N>;

type Element<N> = fn(&Scope, InputsExpand<N>, &ParametersExpand) -> Vectors<In, N>;

type Finish<N> = fn(
    &Scope,
    AccumulatorExpand<N>,
    AccumulatorExpand<N>,
    NativeExpand<usize>,
    &ParametersExpand,
) -> ResultsExpand<N>;

/// The functions that write an operator's passes into a kernel that is being generated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassFunctions<N: Size> {
    pub(super) element: Element<N>,
    pub(super) after_first: AfterFirst<N>,
    pub(super) between: Between<N>,
    pub(super) finish: Finish<N>,
}

/// Writes [`Running::run`](super::Running::run) into a kernel that is being generated, for vectors
/// of `W` components.
pub(super) type Run<W> = fn(
    &Scope,
    AccumulatorExpand<Single>,
    Vectors<In, W>,
    NativeExpand<usize>,
    &ParametersExpand,
) -> (ResultsExpand<W>, AccumulatorExpand<Single>, NativeExpand<bool>);

/// Runs without their operator: of the components of a load, and of a strip of a column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErasedRuns {
    pub(super) wide: Run<Wide>,
    pub(super) strip: Run<Strip>,
}

impl Erased {
    const fn of<O: Operator>() -> Self {
        Self {
            id: TypeId::of::<O>(),
            type_name: type_name::<O>,
            name: O::NAME,
            map: O::MAP,
            inputs: <O::Inputs as Fields>::COUNT,
            fields: <O::Fields as Fields>::COUNT,
            results: <O::Results as Fields>::COUNT,
            types: O::TYPES,
            defined_on_empty: O::DEFINED_ON_EMPTY,
            positional: O::POSITIONAL,
            pairwise: O::PAIRWISE,
            transcendental: O::TRANSCENDENTAL,
            powers: O::POWERS,
            native_math: O::NATIVE_MATH,
            blocks: match O::BLOCKS {
                Some(Blocks { erased, .. }) => Some(erased),
                None => None,
            },
            passes: match &O::PASSES {
                Some(passes) => Some(passes.erased),
                None => None,
            },
            runs: match &O::RUNS {
                Some(runs) => Some(runs.erased),
                None => None,
            },
            reproducible: O::REPRODUCIBLE,
            is_by_position: false,
            by_position: || O::DEFINITION.by_position(),
            wide: Functions::of::<O>(),
            single: Functions::of::<O>(),
        }
    }

    /// The definition that a reduction with these numerics uses.
    pub(crate) fn with_numerics(&'static self, numerics: Numerics) -> &'static Self {
        match (numerics.is_reproducible(), self.reproducible) {
            (true, Reproducible::ByPosition) => (self.by_position)(),
            _ => self,
        }
    }

    /// What makes results the same on every device if they are computed in these types.
    pub(crate) fn reproducible_in(&self, fields: &[ElementType]) -> Reproducible {
        let mut floats = fields.iter().filter(|field| field.is_float()).peekable();
        match self.reproducible {
            Reproducible::ByPosition if floats.peek().is_none() => Reproducible::Exact,
            // Sums of f16 and bf16 are not rounded alike everywhere.
            Reproducible::ByPosition if floats.any(|field| field.bytes() < 4) => Reproducible::No,
            reproducible => reproducible,
        }
    }

    /// Whether the block functions may refuse a block.
    pub(crate) fn may_refuse(&self) -> bool {
        self.blocks.is_some_and(|blocks| blocks.may_refuse)
    }

    /// Whether a merge is so long that a loop over merges should not be unrolled: compilers would
    /// take longer than the loop costs.
    pub(crate) fn merges_in_loops(&self) -> bool {
        self.fields > 3 || self.transcendental
    }

    /// The name of the operator in messages: `sum`, or `sum of squared_error` for a mapped one.
    pub(crate) fn name(&self) -> String {
        match self.map {
            None => self.name.into(),
            Some(map) => format!("{} of {map}", self.name),
        }
    }
}

impl<N: Size> Functions<N> {
    const fn of<O: Operator>() -> Self {
        Self {
            identity: packed_identity::expand::<O, N>,
            push: packed_push::expand::<O, N>,
            merge: packed_merge::expand::<O, N>,
            finish: packed_finish::expand::<O, N>,
        }
    }
}

#[cube]
fn packed_identity<O: Operator, N: Size>() -> Accumulator<N> {
    O::Fields::pack::<AccumulatorTypes, N>(O::identity::<N>())
}

#[cube]
fn packed_push<O: Operator, N: Size>(
    accumulator: Accumulator<N>,
    inputs: Inputs<N>,
    position: Position,
    parameters: &Parameters,
) -> Accumulator<N> {
    let accumulator = O::Fields::unpack::<AccumulatorTypes, N>(accumulator);
    let elements = O::Inputs::elements::<N>(inputs);
    let pushed = O::push::<N>(accumulator, elements, position, parameters);
    O::Fields::pack::<AccumulatorTypes, N>(pushed)
}

#[cube]
fn packed_merge<O: Operator, N: Size>(
    left: Accumulator<N>,
    right: Accumulator<N>,
    parameters: &Parameters,
) -> Accumulator<N> {
    let left = O::Fields::unpack::<AccumulatorTypes, N>(left);
    let right = O::Fields::unpack::<AccumulatorTypes, N>(right);
    O::Fields::pack::<AccumulatorTypes, N>(O::merge::<N>(left, right, parameters))
}

#[cube]
fn packed_finish<O: Operator, N: Size>(
    accumulator: Accumulator<N>,
    count: usize,
    parameters: &Parameters,
) -> Results<N> {
    let accumulator = O::Fields::unpack::<AccumulatorTypes, N>(accumulator);
    O::Results::pack::<ResultTypes, N>(O::finish::<N>(accumulator, count, parameters)).uniform()
}

/// An operator as a constant of a kernel.
#[derive(Clone, Copy)]
pub(crate) struct OperatorRef(pub(crate) &'static Erased);

impl PartialEq for OperatorRef {
    fn eq(&self, other: &Self) -> bool {
        (self.0.id, self.0.is_by_position) == (other.0.id, other.0.is_by_position)
    }
}

impl Eq for OperatorRef {}

impl Hash for OperatorRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id.hash(state);
        self.0.is_by_position.hash(state);
    }
}

/// The path of the operator's type. CubeCL tells kernels apart by hash and equality, not by this.
impl fmt::Debug for OperatorRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str((self.0.type_name)())?;
        f.write_str(if self.0.is_by_position { " by position" } else { "" })
    }
}

/// The widths of the vectors that kernels accumulate in: that of the access, or one component.
pub(crate) trait Width: Size {
    /// The operator's functions for vectors of this width.
    fn functions(operator: OperatorRef) -> &'static Functions<Self>;

    /// The operator's block function for accumulators of this width.
    fn push_block(blocks: ErasedBlocks) -> PushBlock<Self>;
}

impl Width for Wide {
    fn functions(operator: OperatorRef) -> &'static Functions<Self> {
        &operator.0.wide
    }

    fn push_block(blocks: ErasedBlocks) -> PushBlock<Self> {
        blocks.wide
    }
}

impl Width for Single {
    fn functions(operator: OperatorRef) -> &'static Functions<Self> {
        &operator.0.single
    }

    fn push_block(blocks: ErasedBlocks) -> PushBlock<Self> {
        blocks.single
    }
}

/// Defines a function that kernels call by name, from the field of [`Functions`] with that name.
/// CubeCL's macro turns `name(arguments)` into `name::expand(scope, arguments)`.
macro_rules! call {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty as $expand:ty),*) -> $result:ty as $result_expand:ty) => {
        $(#[$doc])*
        pub(crate) fn $name<N: Width>(_operator: OperatorRef, $(_: $type),*) -> $result {
            unexpanded!()
        }

        pub(crate) mod $name {
            use super::*;

            pub(crate) fn expand<N: Width>(
                scope: &Scope,
                operator: OperatorRef,
                $($argument: $expand),*
            ) -> $result_expand {
                (N::functions(operator).$name)(scope, $($argument),*)
            }
        }
    };
}

call!(
    /// [`Operator::identity`] of an operator known when the kernel is built.
    identity() -> Accumulator<N> as AccumulatorExpand<N>
);
call!(
    /// [`Operator::push`].
    push(
        accumulator: Accumulator<N> as AccumulatorExpand<N>,
        inputs: Inputs<N> as InputsExpand<N>,
        position: Position as PositionExpand,
        parameters: &Parameters as &ParametersExpand
    ) -> Accumulator<N> as AccumulatorExpand<N>
);
call!(
    /// [`Operator::merge`].
    merge(
        left: Accumulator<N> as AccumulatorExpand<N>,
        right: Accumulator<N> as AccumulatorExpand<N>,
        parameters: &Parameters as &ParametersExpand
    ) -> Accumulator<N> as AccumulatorExpand<N>
);
call!(
    /// [`Operator::finish`].
    finish(
        accumulator: Accumulator<N> as AccumulatorExpand<N>,
        count: usize as NativeExpand<usize>,
        parameters: &Parameters as &ParametersExpand
    ) -> Results<N> as ResultsExpand<N>
);

/// [`Blockwise::push_block`](super::Blockwise::push_block) of an operator that has it.
pub(crate) fn push_block<N: Width>(
    _operator: OperatorRef,
    _accumulator: Accumulator<N>,
    _block: &Block<Wide>,
    _parameters: &Parameters,
) -> (Accumulator<N>, Vector<bool, N>) {
    unexpanded!()
}

pub(crate) mod push_block {
    use super::*;

    pub(crate) fn expand<N: Width>(
        scope: &Scope,
        operator: OperatorRef,
        accumulator: AccumulatorExpand<N>,
        block: &BlockExpand<Wide>,
        parameters: &ParametersExpand,
    ) -> (AccumulatorExpand<N>, NativeExpand<Vector<bool, N>>) {
        let blocks = operator.0.blocks.expect("kernels ask whether there are block functions");
        N::push_block(blocks)(scope, accumulator, block, parameters)
    }
}
