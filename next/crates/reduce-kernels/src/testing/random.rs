//! Random test data.

use core::ops::RangeInclusive;

/// Pseudo-random numbers for tests (SplitMix64). Each seed gives the same numbers in every run.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The sequence of this seed.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of the range, whose ends must be finite; all are equally likely.
    pub fn uniform(&mut self, range: RangeInclusive<f64>) -> f64 {
        let share = (self.bits() >> 11) as f64 / (1u64 << 53) as f64;
        range.start() + share * (range.end() - range.start())
    }

    /// A whole number of the range, which must not be empty; all are equally likely.
    pub fn integer(&mut self, range: RangeInclusive<i32>) -> i32 {
        let (start, end) = (i64::from(*range.start()), i64::from(*range.end()));
        (start + (self.bits() % (end - start + 1) as u64) as i64) as i32
    }
}
