//! Words that are ordered as elements are.

use cubecl::prelude::*;

use super::selection::{Order, Selection};
use crate::operator::Stored;

/// The bit of the sign.
const SIGN: u32 = 1 << 31;

/// The bits of a binary32 infinity.
const INFINITY: u32 = 0x7f80_0000;

/// The bits of a binary64 infinity.
const WIDE_INFINITY: u64 = 0x7ff0_0000_0000_0000;

/// Whether a component may have a key whose first word is as great as `least`. It takes half of the
/// operations of a key, and says so of all NaN.
#[cube]
pub(super) fn may_reach<N: Size>(
    value: Vector<Stored, N>,
    least: u32,
    order: Order,
    #[comptime] selection: Selection,
) -> bool {
    let element = elem_type_of::<Stored>();
    let mut may = false;
    if comptime![element.is_float() && selection.key_words == 1] {
        let bits = Vector::<u32, N>::reinterpret(Vector::<f32, N>::cast_from(value));
        let raw = in_order::<N>(bits ^ Vector::new(order.inverted & SIGN));
        // Zeros have the same key, but are neighbours here.
        let least = select(least == SIGN, comptime![SIGN - 1].runtime(), least);
        let magnitude = bits & Vector::new(comptime![SIGN - 1]);
        #[unroll]
        for nth in 0..N::value().comptime() {
            may = may || raw.extract(nth) >= least || magnitude.extract(nth) > INFINITY;
        }
    } else {
        let key = key::<N>(value, order, selection);
        #[unroll]
        for nth in 0..N::value().comptime() {
            may = may || key.index(0usize).extract(nth) >= least;
        }
    }
    may
}

/// The bits of binary32 numbers as numbers that are ordered as these are.
#[cube]
fn in_order<N: Size>(bits: Vector<u32, N>) -> Vector<u32, N> {
    // All bits of negative numbers are inverted, and the sign of others. A shift of a signed number
    // repeats its sign.
    let signs = Vector::<i32, N>::reinterpret(bits) >> Vector::new(31i32);
    bits ^ (Vector::<u32, N>::reinterpret(signs) | Vector::new(SIGN))
}

/// The words of each component's key, the most significant one first. An element that comes before
/// another has a greater key. Both zeros have the same, and so have all NaN.
#[cube]
pub(super) fn key<N: Size>(
    value: Vector<Stored, N>,
    order: Order,
    #[comptime] selection: Selection,
) -> Sequence<Vector<u32, N>> {
    let mut words = Sequence::<Vector<u32, N>>::new();
    if comptime![selection.key_words == 1] {
        words.push(narrow_key::<N>(value, order));
    } else {
        let key = wide_key::<N>(value, order);
        words.push(Vector::<u32, N>::cast_from(key >> Vector::new(32u64)));
        words.push(Vector::<u32, N>::cast_from(key));
    }
    words
}

/// The key of an element of up to 32 bits. Devices may compare floats as if denormal numbers were
/// zero, and assume that there is no NaN, so floats are compared by their bits: those of negative
/// numbers are ordered the other way round.
#[cube]
fn narrow_key<N: Size>(value: Vector<Stored, N>, order: Order) -> Vector<u32, N> {
    let element = elem_type_of::<Stored>();
    let sign = Vector::<u32, N>::new(SIGN);
    let inverted = Vector::<u32, N>::new(order.inverted);
    if comptime![element.is_float()] {
        let bits = Vector::<u32, N>::reinterpret(Vector::<f32, N>::cast_from(value));
        let magnitude = bits & Vector::new(comptime![SIGN - 1]);
        let is_zero = magnitude.equal(&Vector::new(0u32));
        let number = select_many(is_zero, sign, in_order::<N>(bits)) ^ inverted;
        let is_nan = magnitude.greater_than(&Vector::new(INFINITY));
        select_many(is_nan, Vector::new(order.nan), number)
    } else if comptime![element.is_signed_int()] {
        let bits = Vector::<u32, N>::reinterpret(Vector::<i32, N>::cast_from(value));
        bits ^ sign ^ inverted
    } else {
        Vector::<u32, N>::cast_from(value) ^ inverted
    }
}

/// The key of an element of 64 bits; see [`narrow_key`].
#[cube]
fn wide_key<N: Size>(value: Vector<Stored, N>, order: Order) -> Vector<u64, N> {
    let element = elem_type_of::<Stored>();
    let all = Vector::<u64, N>::new(u64::MAX);
    let sign = Vector::<u64, N>::new(comptime![1u64 << 63]);
    let inverted = Vector::<u64, N>::new(twice(order.inverted));
    if comptime![element.is_float()] {
        let bits = Vector::<u64, N>::reinterpret(value);
        let magnitude = bits & Vector::new(comptime![(1u64 << 63) - 1]);
        let ordered = select_many(bits.greater_equal(&sign), bits ^ all, bits ^ sign);
        let is_zero = magnitude.equal(&Vector::new(0u64));
        let number = select_many(is_zero, sign, ordered) ^ inverted;
        let is_nan = magnitude.greater_than(&Vector::new(WIDE_INFINITY));
        select_many(is_nan, Vector::new(twice(order.nan)), number)
    } else if comptime![element.is_signed_int()] {
        Vector::<u64, N>::reinterpret(value) ^ sign ^ inverted
    } else {
        Vector::<u64, N>::cast_from(value) ^ inverted
    }
}

/// A word above itself.
#[cube]
fn twice(word: u32) -> u64 {
    u64::cast_from(word) << 32u64 | u64::cast_from(word)
}

/// The element of a key, and whether it is the only one that has it. Zeros have the same key, and
/// so have all NaN.
#[cube]
pub(super) fn element_of<O: Numeric>(
    words: &Sequence<u32>,
    order: Order,
    #[comptime] selection: Selection,
) -> (O, bool) {
    let element = elem_type_of::<O>();
    let first = *words.index(0usize);
    if comptime![selection.key_words == 1] {
        let ordered = first ^ order.inverted;
        if comptime![element.is_float()] {
            let bits = select(ordered >= SIGN, ordered ^ SIGN, !ordered);
            let is_only = ordered != SIGN && first != order.nan;
            (O::cast_from(f32::reinterpret(bits)), is_only)
        } else if comptime![element.is_signed_int()] {
            (O::cast_from(i32::reinterpret(ordered ^ SIGN)), true.runtime())
        } else {
            (O::cast_from(ordered), true.runtime())
        }
    } else {
        let sign = comptime![1u64 << 63];
        let key = u64::cast_from(first) << 32u64 | u64::cast_from(*words.index(1usize));
        let ordered = key ^ twice(order.inverted);
        if comptime![element.is_float()] {
            let bits = select(ordered >= sign, ordered ^ sign, !ordered);
            let is_only = ordered != sign && key != twice(order.nan);
            (O::cast_from(f64::reinterpret(bits)), is_only)
        } else if comptime![element.is_signed_int()] {
            (O::cast_from(i64::reinterpret(ordered ^ sign)), true.runtime())
        } else {
            (O::cast_from(ordered), true.runtime())
        }
    }
}
