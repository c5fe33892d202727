//! Functions that apply the results of a reduction to the elements that they were made from.
#![allow(
    missing_docs,
    missing_debug_implementations,
    reason = "CubeCL's macros add items without documentation and types without Debug"
)]

use core::{
    any::{TypeId, type_name},
    fmt,
    hash::{Hash, Hasher},
    marker::PhantomData,
};

use cubecl::{prelude::*, unexpanded};

use super::{
    Arity, Fields, ParameterRule, Parameters,
    elements::{Real, Single, Wide},
    parameters,
    parameters::ParametersExpand,
    record::{RealTypes, Reals, RealsExpand},
};

/// The results of a reduction with `N` independent components, as they are applied to elements, or
/// the outputs of that. `F` is their number.
pub type Reduced<F, N> = <F as Fields>::Of<RealTypes, N>;

/// Applies the results of a reduction to one of its elements, which gives one output or several.
///
/// `reduce(NormL2, &x).over(1).apply(Divide)` divides each row by its norm: the elements are read
/// once where the device can hold a row, and no result passes through memory.
/// docs/ADDING_AN_OPERATOR.md in the repository writes one.
#[allow(missing_docs, reason = "#[cube] adds an undocumented twin of each function")]
#[cube]
pub trait Apply: Copy + Send + Sync + 'static {
    /// The number of results that it takes: that of the operator.
    type Results: Fields;
    /// The number of outputs that it gives for an element, each of which goes to a tensor of its
    /// own: [`One`](super::One), [`Two`](super::Two) or [`Three`](super::Three).
    type Outputs: Arity;

    /// The name in messages.
    const NAME: &'static str;
    /// Most operands that it takes, up to three. Callers may give fewer.
    const OPERANDS: usize = 0;
    /// Whether it computes exponentials, logarithms, powers or angles.
    const TRANSCENDENTAL: bool = false;
    /// Whether these functions are the device's own; see
    /// [`Operator::NATIVE_MATH`](super::Operator::NATIVE_MATH).
    const NATIVE_MATH: bool = Self::TRANSCENDENTAL;
    /// Whether the one output is the element times a factor that depends on nothing but the results
    /// and the parameters. Kernels may then take the factor from the output of 1, and leave
    /// elements alone where it is 1.
    const SCALES: bool = false;
    /// Reads and checks the numbers that `apply` gets as [`Parameters`].
    const PARAMETERS: ParameterRule<Self> = parameters::none::<Self>;
    /// The function as data, for code that is the same for all of them. A crate that implements one
    /// should set it with [`applied!`](crate::operator::applied), so that Rust compiles it there,
    /// once.
    const DEFINITION: &'static Application<Self> = &Application::<Self>::of();

    /// The outputs of one element per component.
    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<Self::Results, N>,
        operands: &Operands<N>,
        parameters: &Parameters,
    ) -> Reduced<Self::Outputs, N>;
}

/// Makes Rust compile a function of an application once, in the crate that implements it. It is the
/// value of [`Apply::DEFINITION`](crate::operator::Apply::DEFINITION) in an implementation that is
/// not generic.
#[doc(hidden)]
#[macro_export]
macro_rules! applied {
    ($apply:ty) => {{
        static DEFINITION: $crate::operator::Application<$apply> =
            $crate::operator::Application::of();
        &DEFINITION
    }};
}

pub use applied;

/// Elements of further tensors that belong to an element of the input.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub struct Operands<N: Size> {
    values: Reals<N>,
}

#[cube]
impl<N: Size> Operands<N> {
    /// Operands in these fields.
    pub(crate) fn of(values: Reals<N>) -> Self {
        Operands::<N> { values }
    }

    /// No operands.
    pub(crate) fn none() -> Self {
        Operands::<N> { values: Reals::<N>::none() }
    }

    /// The operands without the first: the second is the first of these.
    pub(crate) fn behind_first(&self) -> Self {
        Operands::<N> { values: self.values.behind_first() }
    }

    /// Whether the caller gave the first operand.
    pub fn has_first(&self) -> comptime_type!(bool) {
        self.values.has_a()
    }

    /// Whether the caller gave the second operand.
    pub fn has_second(&self) -> comptime_type!(bool) {
        self.values.has_b()
    }

    /// Whether the caller gave the third operand.
    pub fn has_third(&self) -> comptime_type!(bool) {
        self.values.has_c()
    }

    /// The first operand, which must have been given.
    pub fn first(&self) -> Vector<Real, N> {
        self.values.a()
    }

    /// The second operand, which must have been given.
    pub fn second(&self) -> Vector<Real, N> {
        self.values.b()
    }

    /// The third operand, which must have been given.
    pub fn third(&self) -> Vector<Real, N> {
        self.values.c()
    }
}

/// An [`Apply`] as data. [`Apply::DEFINITION`] names it.
#[derive(Debug)]
pub struct Application<F> {
    erased: ErasedApply,
    function: PhantomData<fn() -> F>,
}

impl<F: Apply> Application<F> {
    /// The definition of `F`.
    #[must_use]
    pub const fn of() -> Self {
        let erased = ErasedApply {
            id: TypeId::of::<F>(),
            type_name: type_name::<F>,
            name: F::NAME,
            operands: F::OPERANDS,
            outputs: F::Outputs::COUNT,
            transcendental: F::TRANSCENDENTAL,
            native_math: F::NATIVE_MATH,
            scales: F::SCALES,
            wide: packed_apply::expand::<F, Wide>,
            single: packed_apply::expand::<F, Single>,
        };
        Self { erased, function: PhantomData }
    }

    pub(crate) const fn erased(&'static self) -> &'static ErasedApply {
        &self.erased
    }
}

/// Writes the code of an application into a kernel that is being generated.
type Expand<N> = fn(
    &Scope,
    NativeExpand<Vector<Real, N>>,
    RealsExpand<N>,
    OperandsExpand<N>,
    &ParametersExpand,
) -> RealsExpand<N>;

/// An [`Apply`] without its type.
#[derive(Debug)]
pub(crate) struct ErasedApply {
    id: TypeId,
    type_name: fn() -> &'static str,
    pub(crate) name: &'static str,
    pub(crate) operands: usize,
    pub(crate) outputs: usize,
    pub(crate) transcendental: bool,
    pub(crate) native_math: bool,
    pub(crate) scales: bool,
    wide: Expand<Wide>,
    single: Expand<Single>,
}

#[cube]
fn packed_apply<F: Apply, N: Size>(
    value: Vector<Real, N>,
    results: Reals<N>,
    operands: Operands<N>,
    parameters: &Parameters,
) -> Reals<N> {
    let results = F::Results::unpack::<RealTypes, N>(results);
    F::Outputs::pack::<RealTypes, N>(F::apply::<N>(value, results, &operands, parameters))
}

/// An application as a constant of a kernel.
#[derive(Clone, Copy)]
pub(crate) struct ApplyRef(pub(crate) &'static ErasedApply);

impl PartialEq for ApplyRef {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for ApplyRef {}

impl Hash for ApplyRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id.hash(state);
    }
}

/// The path of the function's type. CubeCL tells kernels apart by hash and equality, not by this.
impl fmt::Debug for ApplyRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str((self.0.type_name)())
    }
}

/// The widths of vectors that results are applied to.
pub(crate) trait ApplyWidth: Size {
    /// The function for vectors of this width.
    fn function(apply: ApplyRef) -> Expand<Self>;
}

impl ApplyWidth for Wide {
    fn function(apply: ApplyRef) -> Expand<Self> {
        apply.0.wide
    }
}

impl ApplyWidth for Single {
    fn function(apply: ApplyRef) -> Expand<Self> {
        apply.0.single
    }
}

/// [`Apply::apply`] of a function known when the kernel is built.
pub(crate) fn apply_to<N: ApplyWidth>(
    _apply: ApplyRef,
    _value: Vector<Real, N>,
    _results: Reals<N>,
    _operands: Operands<N>,
    _parameters: &Parameters,
) -> Reals<N> {
    unexpanded!()
}

pub(crate) mod apply_to {
    use super::*;

    pub(crate) fn expand<N: ApplyWidth>(
        scope: &Scope,
        apply: ApplyRef,
        value: NativeExpand<Vector<Real, N>>,
        results: RealsExpand<N>,
        operands: OperandsExpand<N>,
        parameters: &ParametersExpand,
    ) -> RealsExpand<N> {
        N::function(apply)(scope, value, results, operands, parameters)
    }
}
