//! Pairwise summation: short chains that merge in a tree keep the rounding error of a long share
//! small.

use cubecl::prelude::*;
use reduce_planner::{Direction, Plan, Problem, reproducible};

use super::{load::edge_slots, reducer::Reducer};
use crate::operator::{
    A, Accumulator, AccumulatorTypes, Chains, Columns, OperatorRef, Single, Width,
};

/// Number of levels of the tree.
const LEVELS: u32 = 12;

/// Number of loads in a chain; with blocks, their number times the loads of each. Measured with a
/// sum of 2^28 f32 on one H200, 331 elements per component: 261.4 us with chains of 64, whose
/// totals pass through local memory; 245.7 us with one chain of up to 512; 246.1 us without a tree.
pub(crate) const CHAIN: usize = reproducible::CHAIN;

/// The totals of the chains that a unit has completed.
///
/// A chain merges with its neighbour, the pair with the neighbouring pair, and so on, as a binary
/// counter carries. Level `l` holds the total of 2^l chains wherever bit `l` of their number is
/// set. With `n` chains, each element takes part in about `log2 n` merges instead of up to `n`
/// (pairwise summation; Higham, "The accuracy of floating point summation", 1993). The last level
/// collects all totals that are carried past it.
///
/// Operators with long merges hold and merge one component at a time, which takes less code and
/// fewer registers.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Tree<N: Size> {
    vectors: Columns<AccumulatorTypes, N>,
    components: Columns<AccumulatorTypes, Single>,
}

#[cube]
impl<N: Width> Tree<N> {
    pub(super) fn new(#[comptime] operator: OperatorRef) -> Self {
        Tree::<N>::of_fields(comptime![operator.0.fields], operator)
    }

    /// The tree of an operator with room for `fields` of its fields: all of them, or none if
    /// nothing is taken.
    pub(super) fn of_fields(
        #[comptime] fields: usize,
        #[comptime] operator: OperatorRef,
    ) -> Tree<N> {
        let levels = comptime![LEVELS as usize + 1];
        let components = N::value().comptime();
        let apart = comptime![operator.0.merges_in_loops()];
        Tree::<N> {
            vectors: Columns::local(levels, comptime![if apart { 0 } else { fields }]),
            components: Columns::local(
                comptime![levels * components],
                comptime![if apart { fields } else { 0 }],
            ),
        }
    }

    /// Takes the total of a chain, after `chains` others. With `last`, returns the total of all
    /// chains; until then, what it returns has no meaning. `zero` is 0, which compilers must not
    /// know. They would unroll a loop whose number of turns they can bound.
    pub(super) fn take(
        self,
        chain: Accumulator<N>,
        chains: u32,
        last: bool,
        zero: u32,
        reducer: &Reducer<'_>,
    ) -> Accumulator<N> {
        let mut total = chain;
        if comptime![reducer.operator.0.merges_in_loops()] {
            let components = N::value().comptime();
            for nth in 0..comptime![components as u32] + zero {
                let part = total.component_at(nth);
                let stride = comptime![components as u32].runtime();
                let levels = Levels::<Single> { totals: self.components, stride, first: nth };
                let part = levels.carry(part, chains, last, zero, reducer);
                total = total.with_component(nth, part);
            }
        } else {
            let (stride, first) = (1u32.runtime(), 0u32.runtime());
            let levels = Levels::<N> { totals: self.vectors, stride, first };
            total = levels.carry(total, chains, last, zero, reducer);
        }
        total
    }
}

/// The levels of the tree that one call merges. Level `l` is held at index `l * stride + first`.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct Levels<N: Size> {
    totals: Columns<AccumulatorTypes, N>,
    stride: u32,
    first: u32,
}

#[cube]
impl<N: Width> Levels<N> {
    /// Merges the total of a chain with those of the levels that are carried; see [`Tree::take`].
    fn carry(
        self,
        chain: Accumulator<N>,
        chains: u32,
        last: bool,
        zero: u32,
        reducer: &Reducer<'_>,
    ) -> Accumulator<N> {
        let mut totals = self.totals;
        let mut total = chain;
        // Compilers unroll a loop whose number of turns they can bound, however long its body:
        // twelve levels of the tree of a variance made 2000 lines of PTX of 200.
        let top = comptime![LEVELS] + zero;
        let mut level = 0u32;
        while level <= top && (holds(chains, level) || (last && chains >> level > 0)) {
            // The level stands on the left, because its elements came first.
            if holds(chains, level) {
                let held = totals.at((level * self.stride + self.first) as usize);
                total = reducer.merge::<N>(held, total);
            }
            level += 1;
        }
        if !last {
            let at = clamp_max(level, LEVELS) * self.stride + self.first;
            totals.put(at as usize, total);
        }
        total
    }
}

/// Whether a level holds a total.
#[cube]
fn holds(chains: u32, level: u32) -> bool {
    let carried = chains >> level;
    carried & 1 == 1 || (level == LEVELS && carried > 0)
}

/// Whether a unit ends chains: the operator gains from short ones, for accumulators of the kernel's
/// types, and units may have more elements than a chain takes.
#[cube]
pub(super) fn is_pairwise(#[comptime] operator: OperatorRef) -> comptime_type!(bool) {
    let element = elem_type_of::<A>();
    let chains = Chains::value().comptime();
    comptime![operator.0.pairwise && chains > 1 && element.is_float()]
}

/// Whether units may have more elements than a chain takes. Few plans give them so many, and
/// kernels are smaller without the tree.
pub(crate) fn needs_chains(operator: OperatorRef, plan: &Plan, problem: &Problem) -> bool {
    let Plan { access, schedule, .. } = *plan;
    if !operator.0.pairwise {
        return false;
    }
    let along = access.direction == Direction::Along;
    // The elements of refused blocks are pushed one by one.
    let each = if along && operator.0.may_refuse() { access.vector } else { 1 };
    let loads = access.loads_per_output(problem).saturating_mul(each as u64);
    let edges = match along && (access.peeled || access.realigned) {
        true => problem.reduction_len() / access.inner_len(problem) * edge_slots(access.vector),
        false => 0,
    };
    let units = u64::from(schedule.units_per_output()) * u64::from(schedule.cubes_per_output());
    loads.max(edges as u64).div_ceil(units) > CHAIN as u64
}

#[cfg(test)]
mod tests {
    use reduce_planner::{
        Access, Device, Direction, ElementType, InputSpec, OperatorClass, OutputSpec, Plan,
        Problem, Schedule, choose, row_major_strides,
    };

    use super::needs_chains;
    use crate::operator::{
        Operator, OperatorRef,
        builtin::{Max, Sum, Var},
    };

    fn problem(shape: &[usize], axis: usize) -> Problem {
        let element = ElementType::F32;
        let strides = row_major_strides(shape);
        Problem::new(
            OperatorClass::new("any", 4),
            &InputSpec { element, shape, strides: &strides, alignment: 256 },
            Some(&[axis]),
            &OutputSpec { elements: &[element], strides: None },
        )
        .unwrap()
    }

    /// A share is chained from the load on that a chain does not take, and from the element on if
    /// elements may be pushed one by one.
    #[test]
    fn long_shares_are_chained() {
        let sum = OperatorRef(Sum::DEFINITION.erased());
        let max = OperatorRef(Max::DEFINITION.erased());
        let var = OperatorRef(Var::DEFINITION.erased());
        let access = Access::new(Direction::Along).with_vector(4);
        let plan = Plan::new(access, Schedule::Unit { units_per_cube: 32 });
        for (operator, len, chained) in [
            (sum, 4 * 512, false),
            (sum, 4 * 513, true),
            (max, 4 * 513, false),
            (var, 512, false),
            (var, 516, true),
        ] {
            let found = needs_chains(operator, &plan, &problem(&[64, len], 1));
            assert_eq!(found, chained, "{operator:?} of {len}");
        }
        let full = problem(&[1 << 28], 0);
        let plan = choose(&full, &Device::h200()).unwrap().plan;
        assert!(!needs_chains(sum, &plan, &full), "{plan}");
    }
}
