//! A hash for kernels that make inputs.
#![allow(missing_docs, reason = "`#[cube]` writes a module and functions without documentation")]

use reduce_kernels::cubecl::{self, prelude::*};

/// A hash of 32 bits, each of which depends on every bit of `key` (Wellons, "Prospecting for hash
/// functions", 2018).
#[cube]
pub fn hash(key: u32) -> u32 {
    let mut bits = key;
    bits ^= bits >> 16u32;
    bits *= 0x7feb_352du32;
    bits ^= bits >> 15u32;
    bits *= 0x846c_a68bu32;
    bits ^ (bits >> 16u32)
}
