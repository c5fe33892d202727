//! Numbers in fixed point, rounded as binary64 is.
//!
//! WGSL has no numbers of 64 bits. Where a quantile lies is computed in three words here, with the
//! roundings of the computation in binary64 that NumPy does on the host. Without these, 0.3 of 11
//! elements would lie just below the element that it lies on for NumPy, because the binary64 next
//! to 0.3 is a little less.

use cubecl::prelude::*;

/// Significant bits of a binary64.
const SIGNIFICANT: u32 = 53;

/// The bits of 1 as binary32, and the first word of it as binary64.
const ONE: u32 = 0x3f80_0000;
const WIDE_ONE: u32 = 0x3ff0_0000;

/// A number that is not negative: an integer, and a fraction of 64 bits in two words.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Fixed {
    pub(super) whole: u32,
    high: u32,
    low: u32,
}

#[cube]
impl Fixed {
    pub(super) fn new(whole: u32, high: u32, low: u32) -> Fixed {
        Fixed { whole, high, low }
    }

    /// The part after the point.
    pub(super) fn fraction(&self) -> Fixed {
        Fixed { whole: 0u32.runtime(), high: self.high, low: self.low }
    }

    /// This number if it `is_kept`, otherwise 0.
    pub(super) fn or_zero(&self, is_kept: bool) -> Fixed {
        Fixed {
            whole: select(is_kept, self.whole, 0u32),
            high: select(is_kept, self.high, 0u32),
            low: select(is_kept, self.low, 0u32),
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.high | self.low == 0
    }

    /// Whether the fraction is a half.
    pub(super) fn is_at_half(&self) -> bool {
        self.high == comptime![1u32 << 31] && self.low == 0
    }

    /// 1 if the fraction is a half or more, otherwise 0.
    pub(super) fn half_bit(&self) -> u32 {
        self.high >> 31u32
    }

    /// The product with an integer. The low words are exact, and the integer must fit into a word.
    pub(super) fn times(&self, factor: u32) -> Fixed {
        let product = self.high * factor;
        let high = self.low.mul_hi(factor) + product;
        let carry = u32::cast_from(high < product);
        let whole = self.whole * factor + self.high.mul_hi(factor) + carry;
        Fixed { whole, high, low: self.low * factor }
    }

    pub(super) fn plus(&self, other: Fixed) -> Fixed {
        let low = self.low + other.low;
        let sum = self.high + other.high;
        let high = sum + u32::cast_from(low < other.low);
        // One of the two additions carries at most.
        let carry = u32::cast_from(sum < other.high) + u32::cast_from(high < sum);
        Fixed { whole: self.whole + other.whole + carry, high, low }
    }

    /// The nearest number of 53 significant bits, of two equally near ones that with an even last
    /// bit: what binary64 would hold. Numbers below 2^-11 stay exact.
    pub(super) fn rounded(&self) -> Fixed {
        let length = select(
            self.whole != 0,
            96u32 - self.whole.leading_zeros(),
            64u32 - self.high.leading_zeros(),
        );
        let dropped = length - clamp_max(length, SIGNIFICANT);
        // The bits that are dropped are the last of the low word, or all of it and the last of the
        // high one.
        let of_low = low_bits(dropped);
        let of_high = low_bits(dropped - clamp_max(dropped, 32u32));
        let last = select(dropped >= 32, self.high >> (dropped & 31), self.low >> (dropped & 31));
        let odd = last & u32::cast_from(dropped > 0);
        // A half of the last bit that stays, less the least bit: with that, a tie becomes even.
        let half = Fixed {
            whole: 0u32.runtime(),
            high: of_high >> 1u32,
            low: (of_low >> 1u32) | (of_high << 31u32),
        };
        let tie = Fixed { whole: 0u32.runtime(), high: 0u32.runtime(), low: odd & 1 };
        let sum = self.plus(half).plus(tie);
        Fixed { whole: sum.whole, high: sum.high & !of_high, low: sum.low & !of_low }
    }

    /// The bits of a number from 0 to 1 as binary32, rounded to nearest, ties to even.
    pub(super) fn binary32(&self) -> u32 {
        let zeros = self.zeros();
        let (top, rest) = self.shifted(zeros);
        let bits = ((126u32 - zeros) << 23u32) + ((top >> 8u32) & comptime![(1u32 << 23) - 1]);
        let tail = top & 0xff;
        let is_odd = bits & 1 == 1;
        let is_up = tail > 0x80 || tail == 0x80 && (rest != 0 || is_odd);
        let bits = select(self.is_whole(), 0u32, bits + u32::cast_from(is_up));
        select(self.whole != 0, ONE, bits)
    }

    /// The bits of a number from 0 to 1 of at most 53 significant bits as binary64: the low and the
    /// high word.
    pub(super) fn binary64(&self) -> (u32, u32) {
        let zeros = self.zeros();
        let (top, rest) = self.shifted(zeros);
        let high = ((1022u32 - zeros) << 20u32) + ((top >> 11u32) & comptime![(1u32 << 20) - 1]);
        let low = (top << 21u32) | (rest >> 11u32);
        let is_zero = self.is_whole();
        let (high, low) = (select(is_zero, 0u32, high), select(is_zero, 0u32, low));
        let is_one = self.whole != 0;
        (select(is_one, 0u32, low), select(is_one, WIDE_ONE, high))
    }

    /// The bits of the fraction before its first 1, which there is if it is not 0.
    fn zeros(&self) -> u32 {
        select(self.high != 0, self.high.leading_zeros(), 32u32 + self.low.leading_zeros())
    }

    /// The words of the fraction without so many bits at its front.
    fn shifted(&self, bits: u32) -> (u32, u32) {
        let by_word = bits >= 32;
        let bits = bits & 31;
        let first = select(by_word, self.low, self.high);
        let second = select(by_word, 0u32, self.low);
        ((first << bits) | ((second >> 1u32) >> (31u32 - bits)), second << bits)
    }
}

/// A word of so many ones at its end.
#[cube]
fn low_bits(count: u32) -> u32 {
    select(count >= 32, u32::MAX, (1u32 << (count & 31)) - 1)
}
