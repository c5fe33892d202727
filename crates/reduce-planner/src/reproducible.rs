//! The tree in which reproducible reductions combine elements. It follows from their number alone.
//!
//! Elements are dealt to [`lanes`] by the low bits of their positions. Each lane takes its elements
//! in order, and the lanes merge in a tree, neighbours first. A plan may divide the lanes in any
//! way among the components of vectors, the accumulators and units of a cube, and cubes: all of
//! them merge neighbours first, so the tree stays the same. [`fold`] is the whole definition.

use crate::{
    plan::Plan,
    problem::{Direction, Problem},
};

/// Elements of a lane that are pushed one after the other to one accumulator. Longer lanes have
/// several such chains, which merge as a binary counter carries.
pub const CHAIN: usize = 512;

/// The number of lanes among which `len` elements are dealt, a power of two: element `i` belongs to
/// lane `i % lanes(len)`.
///
/// One number must serve rows that lie in memory one after the other, where neighbouring lanes
/// belong to a vector, and columns, where each lane costs an accumulator. It must leave a long
/// slice to many cubes, and a short one to few units. So slices of up to 2¹¹ elements have at most 8
/// in each lane, those of up to 2¹⁴ have 16, of up to 2²⁰ 32, and longer ones 64 and more.
///
/// ```
/// use reduce_planner::reproducible::lanes;
///
/// assert_eq!([3, 100, 1024, 65_536].map(lanes), [4, 16, 128, 2048]);
/// assert_eq!(lanes(1 << 30), 1 << 20);
/// ```
#[must_use]
pub const fn lanes(len: usize) -> usize {
    let bits = len.next_power_of_two().ilog2();
    let lane_bits = match bits {
        0..=4 => bits,
        5..=7 => 4,
        8..=11 => bits - 3,
        12..=14 => bits - 4,
        15..=20 => bits - 5,
        21..=26 => bits - 6,
        _ => 20,
    };
    1 << lane_bits
}

/// Combines values as every reproducible reduction does, on the host.
///
/// `push` adds one value to a lane's accumulator, which begins as `identity`, and `merge` combines
/// two accumulators.
///
/// ```
/// use reduce_planner::reproducible::fold;
///
/// let values = [1.0f32, 1e8, -1e8, 1.0, 1.0];
/// let sum = fold(&values, 0.0, |sum, value| sum + value, |left, right| left + right);
/// // The lanes hold these values and merge as (1 + 1e8) + (-1e8 + 1), then 1 + nothing.
/// assert_eq!(sum, ((1.0 + 1e8f32) + (-1e8 + 1.0)) + 1.0);
/// ```
pub fn fold<V: Copy, T: Copy>(
    values: &[V],
    identity: T,
    push: impl Fn(T, V) -> T,
    merge: impl Fn(T, T) -> T,
) -> T {
    let count = lanes(values.len());
    let lane = |nth: usize| {
        let elements: Vec<V> = values.iter().copied().skip(nth).step_by(count).collect();
        // `levels[l]` holds the total of 2^l chains, if there is one.
        let mut levels: Vec<Option<T>> = Vec::new();
        for chain in elements.chunks(CHAIN) {
            let mut total = chain.iter().fold(identity, |total, &value| push(total, value));
            let mut level = 0;
            while let Some(held) = levels.get_mut(level).and_then(Option::take) {
                total = merge(held, total);
                level += 1;
            }
            match levels.get_mut(level) {
                Some(free) => *free = Some(total),
                None => levels.push(Some(total)),
            }
        }
        let held = levels.into_iter().flatten();
        held.reduce(|total, held| merge(held, total)).unwrap_or(identity)
    };
    let mut totals: Vec<T> = (0..count).map(lane).collect();
    while totals.len() > 1 {
        totals = totals.chunks(2).map(|pair| merge(pair[0], pair[1])).collect();
    }
    totals[0]
}

impl Plan {
    /// Whether the lanes of this plan are those of all reproducible plans for the problem.
    pub(crate) fn has_lanes(&self, problem: &Problem) -> bool {
        let access = self.access;
        let along = access.direction == Direction::Along;
        let components = if along { access.vector } else { 1 };
        let of_unit = (components as u64).saturating_mul(access.accumulators as u64);
        let found = of_unit.saturating_mul(self.schedule.all_units_per_output());
        let len = problem.reduction_len();
        let wanted = lanes(len) as u64;
        // Lanes without elements change nothing.
        let all = len as u64 <= wanted && len as u64 <= found && found.is_power_of_two();
        // Realigned rows that follow each other have loads between them that are not whole.
        let several_rows = problem.reduced().len() > 1;
        let moves = access.realigns_across()
            || access.realigns_along() && several_rows
            || access.peeled && along;
        // Chains end at the same elements whatever the loads in flight.
        let ends = access.loads_in_flight.is_power_of_two();
        ends && !moves && (found == wanted || all)
    }
}

#[cfg(test)]
mod tests {
    use super::{fold, lanes};

    /// The number of lanes is part of the promise: another one would change bits.
    #[test]
    fn lanes_by_length() {
        let lengths = [0, 1, 2, 3, 16, 17, 128, 129, 256, 512, 1024, 1025, 2048, 4096, 8192];
        let expected = [1, 1, 2, 4, 16, 16, 16, 32, 32, 64, 128, 256, 256, 256, 512];
        assert_eq!(lengths.map(lanes), expected);
        let bits = [14, 15, 16, 17, 18, 20, 24, 26, 27, 28, 40];
        let expected = [10, 10, 11, 12, 13, 15, 18, 20, 20, 20, 20];
        assert_eq!(bits.map(|bits| lanes(1 << bits)), expected.map(|bits| 1usize << bits));
    }

    /// The order is that of the documentation, which strings show: lanes by low bits, chains that
    /// carry, neighbours first.
    #[test]
    fn order_of_merges() {
        let order = |len: usize| {
            let values: Vec<usize> = (0..len).collect();
            let tree = std::cell::RefCell::new(Vec::<String>::new());
            let store = |text: String| {
                tree.borrow_mut().push(text);
                tree.borrow().len() - 1
            };
            let text = |nth: usize| tree.borrow()[nth].clone();
            let empty = store(String::new());
            let push = |left: usize, value: usize| store(format!("{} {value}", text(left)));
            let merge =
                |left: usize, right: usize| store(format!("({} |{} )", text(left), text(right)));
            text(fold(&values, empty, push, merge))
        };
        assert_eq!(order(3), "(( 0 | 1 ) |( 2 | ) )");
        let of_17 = order(17);
        assert!(of_17.starts_with("(((( 0 16 | 1 ) |( 2 | 3 ) ) |"), "{of_17}");
        assert_eq!(order(0), "");
    }
}
