//! Words that are ordered as elements are.

use cubecl::prelude::*;

use super::selection::{Order, Selection};
use crate::operator::Stored;

/// The bits of a binary32 infinity.
const INFINITY: i64 = 0x7f80_0000;

/// The bits of a binary64 infinity.
const WIDE_INFINITY: i64 = 0x7ff0_0000_0000_0000;

/// All bits of a word of 32 bits but the sign.
const MAGNITUDE: i64 = i32::MAX as i64;

/// All bits of a word of 64 bits but the sign.
const WIDE_MAGNITUDE: i64 = i64::MAX;

/// The words of each component's key, the most significant one first. An element that comes before
/// another has a greater key. Both zeros have the same, and so have all NaN.
///
/// A key of one word is not within its [`Limits`] yet: those of NaN may differ. The greatest of
/// some keys can be limited in place of each, because limits keep the order.
#[cube]
pub(super) fn key<N: Size>(
    value: Vector<Stored, N>,
    order: Order,
    #[comptime] selection: Selection,
) -> Sequence<Vector<u32, N>> {
    let element = elem_type_of::<Stored>();
    let mut words = Sequence::<Vector<u32, N>>::new();
    if comptime![selection.key_words == 1] {
        if comptime![element.is_float()] {
            let bits = Vector::<u32, N>::reinterpret(Vector::<f32, N>::cast_from(value));
            words.push(FloatKeys::narrow(order).unlimited::<i32, N>(bits));
        } else {
            let inverted = Vector::new(order.inverted);
            words.push(
                inverted
                    ^ if comptime![element.is_signed_int()] {
                        let bits =
                            Vector::<u32, N>::reinterpret(Vector::<i32, N>::cast_from(value));
                        bits ^ Vector::new(comptime![!(MAGNITUDE as u32)])
                    } else {
                        Vector::<u32, N>::cast_from(value)
                    },
            );
        }
    } else {
        let key = if comptime![element.is_float()] {
            let keys = FloatKeys::wide(order);
            keys.limited::<N>(keys.unlimited::<i64, N>(Vector::<u64, N>::reinterpret(value)))
        } else {
            let inverted = Vector::new(twice(order.inverted));
            inverted
                ^ if comptime![element.is_signed_int()] {
                    Vector::<u64, N>::reinterpret(value)
                        ^ Vector::new(comptime![!(WIDE_MAGNITUDE as u64)])
                } else {
                    Vector::<u64, N>::cast_from(value)
                }
        };
        words.push(Vector::<u32, N>::cast_from(key >> Vector::new(32u64)));
        words.push(Vector::<u32, N>::cast_from(key));
    }
    words
}

/// The limits of keys of one word, which make the keys of all NaN the same. Keys of two words and
/// those of integers have none.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Limits {
    least: u32,
    greatest: u32,
    #[cube(comptime)]
    exist: bool,
}

#[cube]
impl Limits {
    pub(super) fn new(order: Order, #[comptime] selection: Selection) -> Limits {
        let element = elem_type_of::<Stored>();
        let exist = comptime![element.is_float() && selection.key_words == 1];
        if comptime![exist] {
            let keys = FloatKeys::narrow(order);
            Limits { least: keys.least, greatest: keys.greatest, exist }
        } else {
            Limits { least: 0u32.runtime(), greatest: u32::MAX.runtime(), exist }
        }
    }

    /// The key within the limits.
    pub(super) fn of(&self, key: u32) -> u32 {
        if comptime![self.exist] { max(min(key, self.greatest), self.least) } else { key }
    }

    /// What keys reach that are at least `least` within the limits, and whether there are any.
    pub(super) fn reached(&self, least: u32) -> (u32, bool) {
        if comptime![self.exist] {
            (select(least <= self.least, 0u32, least), least <= self.greatest)
        } else {
            (least, true.runtime())
        }
    }
}

/// The element of a key, and whether it is the only one that has it.
#[cube]
pub(super) fn element_of<O: Numeric>(
    words: &Sequence<u32>,
    order: Order,
    #[comptime] selection: Selection,
) -> (O, bool) {
    let element = elem_type_of::<O>();
    let first = *words.index(0usize);
    if comptime![selection.key_words == 1] {
        if comptime![element.is_float()] {
            let (bits, is_only) = FloatKeys::narrow(order).bits_of::<i32>(first);
            // Conversions to fp8 give no infinity, so one is read again.
            let is_only = if comptime![element.size() == 1] {
                let is_finite = bits & comptime![MAGNITUDE as u32] < comptime![INFINITY as u32];
                is_only && is_finite
            } else {
                is_only
            };
            (O::cast_from(f32::reinterpret(bits)), is_only)
        } else if comptime![element.is_signed_int()] {
            let bits = first ^ order.inverted ^ comptime![!(MAGNITUDE as u32)];
            (O::cast_from(i32::reinterpret(bits)), true.runtime())
        } else {
            (O::cast_from(first ^ order.inverted), true.runtime())
        }
    } else {
        let key = wide_of(words);
        if comptime![element.is_float()] {
            let (bits, is_only) = FloatKeys::wide(order).bits_of::<i64>(key);
            (O::cast_from(f64::reinterpret(bits)), is_only)
        } else if comptime![element.is_signed_int()] {
            let bits = key ^ twice(order.inverted) ^ comptime![!(WIDE_MAGNITUDE as u64)];
            (O::cast_from(i64::reinterpret(bits)), true.runtime())
        } else {
            (O::cast_from(key ^ twice(order.inverted)), true.runtime())
        }
    }
}

/// Whether a key is that of NaN.
#[cube]
pub(super) fn is_nan(
    words: &Sequence<u32>,
    order: Order,
    #[comptime] selection: Selection,
) -> bool {
    let element = elem_type_of::<Stored>();
    if comptime![!element.is_float()] {
        false.runtime()
    } else if comptime![selection.key_words == 1] {
        FloatKeys::narrow(order).is_nan(*words.index(0usize))
    } else {
        FloatKeys::wide(order).is_nan(wide_of(words))
    }
}

/// The keys of floats. Devices may compare floats as if denormal numbers were zero, and assume that
/// there is no NaN, so keys are made of bits.
///
/// The bits of a number without its sign are ordered as its magnitude is. With the number's sign,
/// they make an integer from minus to plus the bits of infinity, and both zeros make 0. The
/// integers beyond those are NaN: if an offset makes minus infinity 0, all of them follow after
/// plus infinity, because additions wrap. If the offset is greater by the number of NaN, they come
/// before minus infinity. Limits at that end make all NaN the same.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct FloatKeys<U: Int> {
    /// The sign's bit, if the smallest come first.
    inverted: U,
    /// All bits but the sign.
    magnitude: U,
    offset: U,
    least: U,
    greatest: U,
    nan: U,
}

#[cube]
impl FloatKeys<u32> {
    fn narrow(order: Order) -> FloatKeys<u32> {
        FloatKeys::<u32>::new(order.inverted, order.nan, INFINITY, MAGNITUDE)
    }
}

#[cube]
impl FloatKeys<u64> {
    fn wide(order: Order) -> FloatKeys<u64> {
        let (inverted, nan) = (twice(order.inverted), twice(order.nan));
        FloatKeys::<u64>::new(inverted, nan, WIDE_INFINITY, WIDE_MAGNITUDE)
    }
}

#[cube]
impl<U: Int> FloatKeys<U> {
    /// `nan` has all bits if NaN comes first, and none if it comes last.
    fn new(
        inverted: U,
        nan: U,
        #[comptime] infinity: i64,
        #[comptime] magnitude: i64,
    ) -> FloatKeys<U> {
        let infinity = U::from_int(infinity);
        let magnitude = U::from_int(magnitude);
        let numbers = infinity + infinity + U::from_int(1);
        let nan_first = numbers;
        let nan_last = !numbers;
        FloatKeys::<U> {
            inverted: inverted & !magnitude,
            magnitude,
            offset: infinity - (numbers & !nan),
            least: nan_last & !nan,
            greatest: nan_first | !nan,
            nan: (nan_first & nan) | (nan_last & !nan),
        }
    }

    /// The keys of numbers with these bits, and others beyond the limits for NaN.
    fn unlimited<S: Int, N: Size>(&self, bits: Vector<U, N>) -> Vector<U, N> {
        let bits = bits ^ Vector::new(self.inverted);
        // A shift of a signed number repeats its sign.
        let shift = S::from_int(comptime![U::size_bits() as i64 - 1]);
        let signs =
            Vector::<U, N>::reinterpret(Vector::<S, N>::reinterpret(bits) >> Vector::new(shift));
        let signed = ((bits & Vector::new(self.magnitude)) ^ signs) - signs;
        signed + Vector::new(self.offset)
    }

    /// The keys within the limits.
    fn limited<N: Size>(&self, key: Vector<U, N>) -> Vector<U, N> {
        max(min(key, Vector::new(self.greatest)), Vector::new(self.least))
    }

    /// The bits of the number with a key, and whether no other number has it.
    fn bits_of<S: Int>(&self, key: U) -> (U, bool) {
        let signed = key - self.offset;
        let shift = S::from_int(comptime![U::size_bits() as i64 - 1]);
        let sign = U::reinterpret(S::reinterpret(signed) >> shift);
        let magnitude = (signed ^ sign) - sign;
        let bits = magnitude | (sign & !self.magnitude);
        (bits ^ self.inverted, signed != U::from_int(0) && !self.is_nan(key))
    }

    fn is_nan(&self, key: U) -> bool {
        key == self.nan
    }
}

/// The key of two words.
#[cube]
fn wide_of(words: &Sequence<u32>) -> u64 {
    u64::cast_from(*words.index(0usize)) << 32u64 | u64::cast_from(*words.index(1usize))
}

/// A word above itself.
#[cube]
fn twice(word: u32) -> u64 {
    u64::cast_from(word) << 32u64 | u64::cast_from(word)
}
