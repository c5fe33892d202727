//! Words that are ordered as elements are.

use cubecl::prelude::*;

use super::{Order, Selection, buffer::Entry};
use crate::operator::{Position, Stored};

/// The bit of the sign.
const SIGN: u32 = 1 << 31;

/// The bits of a binary32 infinity.
const INFINITY: u32 = 0x7f80_0000;

/// The bits of a binary64 infinity.
const WIDE_INFINITY: u64 = 0x7ff0_0000_0000_0000;

/// Adds the entry of each component of a load.
#[cube]
pub(super) fn entries_of_load<N: Size>(
    entries: &mut Sequence<Entry>,
    value: Vector<Stored, N>,
    position: Position,
    order: Order,
    #[comptime] selection: Selection,
) {
    let key = key::<N>(value, order, selection);
    #[unroll]
    for nth in 0..N::value().comptime() {
        let mut words = Sequence::<u32>::new();
        #[unroll]
        for word in 0..comptime![selection.key_words] {
            words.push(key.index(word).extract(nth));
        }
        // Of equal elements, the one with the lower position comes first.
        let position = position.start + nth * position.step;
        if comptime![selection.position_words == 2] {
            words.push(!u32::cast_from(position >> 32usize));
        }
        words.push(!u32::cast_from(position));
        entries.push(Entry { words });
    }
}

/// The words of each component's key, the most significant one first. An element that comes before
/// another has a greater key. Both zeros have the same, and so have all NaN.
#[cube]
fn key<N: Size>(
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
    let all = Vector::<u32, N>::new(u32::MAX);
    let sign = Vector::<u32, N>::new(SIGN);
    let inverted = Vector::<u32, N>::new(order.inverted);
    if comptime![element.is_float()] {
        let bits = Vector::<u32, N>::reinterpret(Vector::<f32, N>::cast_from(value));
        let magnitude = bits & Vector::new(comptime![SIGN - 1]);
        let ordered = select_many(bits.greater_equal(&sign), bits ^ all, bits ^ sign);
        let is_zero = magnitude.equal(&Vector::new(0u32));
        let number = select_many(is_zero, sign, ordered) ^ inverted;
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
