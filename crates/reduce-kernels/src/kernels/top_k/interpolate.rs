//! Quantiles between two elements.

use cubecl::prelude::*;

use crate::{
    kernels::args::KernelTypes,
    operator::{
        Out, Real, Single, Stored,
        element_wise::{constant, is_finite},
    },
};

/// For each of `outputs` slices and each quantile, the element that lies so far from the lower to
/// the upper of two elements. Those of all slices with one rank lie side by side. Of a table, the
/// words from `first` on say for each quantile which of the ranks the two elements have, and then,
/// for each, the bits of its weight. The tables of slices begin `stride` words after each other, or
/// all slices have one, and it is 0.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn interpolate(
    _types: &KernelTypes,
    elements: &[Stored],
    tables: &[u32],
    results: &mut [Out],
    first: usize,
    stride: usize,
    quantiles: usize,
    outputs: usize,
    count: usize,
) {
    // Units leave here, because no barrier follows.
    if ABSOLUTE_POS < count {
        let (nth, output) = (ABSOLUTE_POS / outputs, ABSOLUTE_POS % outputs);
        let first = output * stride + first;
        let (lower, upper) = (tables[first + 2 * nth], tables[first + 2 * nth + 1]);
        let lower = Real::cast_from(elements[lower as usize * outputs + output]);
        let upper = Real::cast_from(elements[upper as usize * outputs + output]);
        let weight = weight_at(tables, first + 2 * quantiles, nth);
        let difference = upper - lower;
        // From the nearer element, so that a weight of 1 gives the upper one.
        let rest = Real::from_int(1) - weight;
        let near_lower = lower + difference * weight;
        let near_upper = upper - difference * rest;
        let near = select(weight < constant::<Real>(0.5, 0.5), near_lower, near_upper);
        // The difference from an infinity, and one that overflows, says nothing of where they lie.
        let is_near = is_finite::<Real, Single>(Vector::new(difference)).extract(0usize);
        let between = select(is_near, near, lower * rest + upper * weight);
        // Equal infinities have no difference.
        let is_lower = weight == Real::from_int(0) || lower == upper;
        let is_upper = weight == Real::from_int(1);
        let result = select(is_lower, lower, select(is_upper, upper, between));
        results[ABSOLUTE_POS] = Out::cast_from(result);
    }
}

/// The weight with a number: a binary32 in a word, or a binary64 in two.
#[cube]
fn weight_at(table: &[u32], first: usize, nth: usize) -> Real {
    let real = elem_type_of::<Real>();
    if comptime![real.size() == 8] {
        let at = first + 2 * nth;
        let bits = u64::cast_from(table[at + 1]) << 32u64 | u64::cast_from(table[at]);
        Real::cast_from(f64::reinterpret(bits))
    } else {
        Real::cast_from(f32::reinterpret(table[first + nth]))
    }
}
