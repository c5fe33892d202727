//! Which lines the L2 cache of a CUDA device gives up first.
//!
//! A tensor that is much larger than the cache leaves nothing there that a later kernel finds. If
//! its lines are marked as those to give up first, they do not push out others, and reading it takes
//! 1 to 2 % less: sums of 256 MiB of f32 along rows of 8192, 1024 and 256 took 61.4, 62.2 and 63.5
//! us so on one H200, and 62.2, 63.1 and 64.4 without.
//!
//! Kernels that write as much as they read have no marks:
//!
//! - If loads alone are marked, the cache keeps what was written for as long as it can, and an RMS
//!   norm of f32 8192 × 8192 takes 138 us in place of 132.
//! - If stores are too, it takes 131 to 137, by what the cache holds from kernels before.
//! - If loads are marked as those to keep longest (`evict_last`), it takes 129. But a fifth of the
//!   cache stays taken after it: each reading of another tensor of 40 MB took 14.5 us, and 9.3 before.
//!
//! All of this was measured on the H200. The instructions are PTX (`ld` with `.level::cache_hint`,
//! `createpolicy`) for devices of compute capability 8.0 and later, and CubeCL passes PTX on to NVRTC
//! alone.

use cubecl::prelude::*;

use crate::operator::Wide;

/// A policy of the cache as the operand of an instruction, or none.
pub(super) type CachePolicy = ComptimeOption<u64>;

/// The policy for loads of which the cache should give up the lines first if a tensor `streams`, or
/// else that of loads without one, which is `evict_unchanged`: under `evict_normal`, the sums above
/// took 65 to 69 us.
///
/// These are the words that `createpolicy` makes for all lines, as ptxas 13.0 computes them for
/// compute capabilities 8.0 to 12.1; CUTLASS passes such words too (`CacheHintSm90`). A kernel gets
/// its word as an argument, which each load reads as a uniform constant. A policy that the kernel
/// makes, or a constant in it, lies in registers of each unit, and each load moves it to uniform
/// ones by two instructions: of the 606 that logsumexp of bf16 takes along axis 0 for 64 elements,
/// these were 32.
pub(crate) fn cache_policy(streams: bool) -> u64 {
    match streams {
        true => 0x12f0_0000_0000_0000,
        false => 0x10f0_0000_0000_0000,
    }
}

/// Whether an instruction with a policy reads vectors of so many bytes.
fn has_instructions(bytes: usize) -> bool {
    matches!(bytes, 4 | 8 | 16)
}

/// A vector in global memory, read under a policy.
#[cube]
pub(super) fn read_vector<E: Scalar>(
    from: &Vector<E, Wide>,
    policy: CachePolicy,
) -> Vector<E, Wide> {
    let bytes = Vector::<E, Wide>::size().comptime();
    let hinted = comptime![policy.is_some() && has_instructions(bytes)];
    if comptime![!hinted] {
        *from
    } else if comptime![bytes == 16] {
        let words: Vector<u32, Const<4>>;
        gpu_asm!(
            "ld.global.L2::cache_hint.v4.u32 {}, [{}], {};",
            out(_) words, mem_in(_) from, in(_) policy.unwrap(), options(explicit_mem)
        );
        Vector::<E, Wide>::reinterpret(words)
    } else if comptime![bytes == 8] {
        let words: Vector<u32, Const<2>>;
        gpu_asm!(
            "ld.global.L2::cache_hint.v2.u32 {}, [{}], {};",
            out(_) words, mem_in(_) from, in(_) policy.unwrap(), options(explicit_mem)
        );
        Vector::<E, Wide>::reinterpret(words)
    } else {
        let word: u32;
        gpu_asm!(
            "ld.global.L2::cache_hint.u32 {}, [{}], {};",
            out(_) word, mem_in(_) from, in(_) policy.unwrap(), options(explicit_mem)
        );
        Vector::<E, Wide>::reinterpret(word)
    }
}
