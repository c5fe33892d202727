//! The operator of a kernel, with what its functions need.

use cubecl::prelude::*;

use super::team::Team;
use crate::operator::{
    Accumulator, OperatorRef, Parameters, Results, Width, finish, identity, merge,
};

/// An operator, its parameters, and the team whose units combine their accumulators.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Reducer<'a> {
    pub(super) parameters: &'a Parameters,
    #[cube(comptime)]
    pub(super) team: Team,
    #[cube(comptime)]
    pub(super) operator: OperatorRef,
}

#[cube]
impl<'a> Reducer<'a> {
    pub(super) fn new(
        parameters: &'a Parameters,
        #[comptime] team: Team,
        #[comptime] operator: OperatorRef,
    ) -> Reducer<'a> {
        Reducer::<'a> { parameters, team, operator }
    }

    /// The same operator for another team.
    pub(super) fn with_team(&self, #[comptime] team: Team) -> Reducer<'a> {
        Reducer::<'a> { parameters: self.parameters, team, operator: comptime![self.operator] }
    }

    /// Another operator for the same team.
    pub(super) fn with_operator(&self, #[comptime] operator: OperatorRef) -> Reducer<'a> {
        Reducer::<'a> { parameters: self.parameters, team: comptime![self.team], operator }
    }

    pub(super) fn identity<N: Width>(&self) -> Accumulator<N> {
        identity::<N>(comptime![self.operator])
    }

    pub(super) fn merge<N: Width>(
        &self,
        left: Accumulator<N>,
        right: Accumulator<N>,
    ) -> Accumulator<N> {
        merge::<N>(comptime![self.operator], left, right, self.parameters)
    }

    /// The results of `count` elements.
    pub(super) fn finish<N: Width>(&self, accumulator: Accumulator<N>, count: usize) -> Results<N> {
        finish::<N>(comptime![self.operator], accumulator, count, self.parameters)
    }
}
