//! Operators that give their results at neighbouring elements together, for scans.
#![allow(
    missing_docs,
    missing_debug_implementations,
    reason = "CubeCL's macros add items without documentation and types without Debug"
)]

use core::marker::PhantomData;

use cubecl::{prelude::*, unexpanded};

use super::{
    AccumulatorOf, Fields, Map, Mapped, One, Operator, Parameters, ResultsOf,
    definition::{ErasedRuns, Run, Vectors},
    elements::{In, Single, Strip, Wide},
    inputs::{InputArity, one_input},
    parameters::ParametersExpand,
    record::{
        Accumulator, AccumulatorExpand, AccumulatorTypes, ResultTypes, Results, ResultsExpand,
    },
};

/// An operator that gives the results at neighbouring elements of a scan together, faster than with
/// a push and a finish for each: it asks its questions once for all of them.
///
/// The operator names its runs in [`Operator::RUNS`]. The results must be those of pushes and
/// finishes, up to rounding.
#[allow(clippy::type_complexity, reason = "implementations read the same tuple")]
#[cube]
pub trait Running: Operator<Inputs = One> {
    /// The results at the elements of a vector, whose components come one after the other behind
    /// the `count` elements of `before`; the accumulator of all of them; and whether both are
    /// right. If not, they have no meaning, and the elements are pushed one by one.
    fn run<W: Size>(
        before: AccumulatorOf<Self::Fields, Single>,
        values: Vector<In, W>,
        count: usize,
        parameters: &Parameters,
    ) -> (ResultsOf<Self::Results, W>, AccumulatorOf<Self::Fields, Single>, bool);
}

/// The runs of the operator `O` as data; see [`Operator::RUNS`].
#[derive(Debug)]
pub struct Runs<O> {
    pub(super) erased: ErasedRuns,
    operator: PhantomData<fn() -> O>,
}

impl<O: Running> Runs<O> {
    /// The runs of `O`.
    #[must_use]
    pub const fn of() -> Self {
        let erased = ErasedRuns {
            wide: packed_run::expand::<O, Wide>,
            strip: packed_run::expand::<O, Strip>,
        };
        Self { erased, operator: PhantomData }
    }
}

impl<M: Map, O: Operator<Inputs = One>> Runs<Mapped<M, O>> {
    /// The runs of `O` over mapped elements, if it has any and `M` takes one element.
    pub(super) const fn of_mapped() -> Option<Self> {
        match &O::RUNS {
            Some(_) if <M::Inputs as Fields>::COUNT == 1 => {
                let erased = ErasedRuns {
                    wide: mapped_run::expand::<M, O, Wide>,
                    strip: mapped_run::expand::<M, O, Strip>,
                };
                Some(Self { erased, operator: PhantomData })
            }
            _ => None,
        }
    }
}

#[cube]
fn mapped_run<M: Map, O: Operator<Inputs = One>, W: RunWidth>(
    before: Accumulator<Single>,
    values: Vector<In, W>,
    count: usize,
    parameters: &Parameters,
) -> (Results<W>, Accumulator<Single>, bool) {
    let elements = M::Inputs::elements::<W>(one_input::<W>(values));
    let mapped = M::map::<In, W>(elements, parameters);
    let rest = parameters.skip(M::PARAMETER_COUNT);
    run::<W>(comptime![runs_of::<O>()], before, mapped, count, &rest)
}

#[cube]
fn packed_run<O: Running, W: Size>(
    before: Accumulator<Single>,
    values: Vector<In, W>,
    count: usize,
    parameters: &Parameters,
) -> (Results<W>, Accumulator<Single>, bool) {
    let before = O::Fields::unpack::<AccumulatorTypes, Single>(before);
    let (results, after, fits) = O::run::<W>(before, values, count, parameters);
    (
        O::Results::pack::<ResultTypes, W>(results),
        O::Fields::pack::<AccumulatorTypes, Single>(after),
        fits,
    )
}

/// The runs of an operator that has some.
fn runs_of<O: Operator>() -> RunsRef {
    RunsRef(super::OperatorRef(O::DEFINITION.erased()))
}

/// Runs as a constant of a kernel: those of an operator, by which they are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RunsRef(pub(crate) super::OperatorRef);

/// The lengths of runs.
pub(crate) trait RunWidth: Size {
    fn run_of(runs: &ErasedRuns) -> Run<Self>;
}

impl RunWidth for Wide {
    fn run_of(runs: &ErasedRuns) -> Run<Self> {
        runs.wide
    }
}

impl RunWidth for Strip {
    fn run_of(runs: &ErasedRuns) -> Run<Self> {
        runs.strip
    }
}

/// [`Running::run`].
pub(crate) fn run<W: RunWidth>(
    _runs: RunsRef,
    _before: Accumulator<Single>,
    _values: Vector<In, W>,
    _count: usize,
    _parameters: &Parameters,
) -> (Results<W>, Accumulator<Single>, bool) {
    unexpanded!()
}

pub(crate) mod run {
    use super::*;

    pub(crate) fn expand<W: RunWidth>(
        scope: &Scope,
        runs: RunsRef,
        before: AccumulatorExpand<Single>,
        values: Vectors<In, W>,
        count: NativeExpand<usize>,
        parameters: &ParametersExpand,
    ) -> (ResultsExpand<W>, AccumulatorExpand<Single>, NativeExpand<bool>) {
        let runs = runs.0.0.runs.expect("kernels ask whether there are runs");
        W::run_of(&runs)(scope, before, values, count, parameters)
    }
}
