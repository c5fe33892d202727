//! Integers of 4 bits: two in a byte, and eight in a word of 32 bits, the first in the lowest bits.

use cubecl::{ir::ElemType, prelude::*};

use super::geometry::{Dim, offsets};

/// Integers in a word.
pub(crate) const PER_WORD: usize = 8;

/// Bytes in a word, each of which holds a pair of integers.
const BYTES_PER_WORD: usize = 4;

/// Writes words of the low four bits of `pairs` pairs of integers. The integers of a pair lie
/// `step` apart. With `whole`, all lie side by side, and are read in vectors but for those of a
/// last word that is not full.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn pack<E: Int, N: Size>(
    integers: &[E],
    vectors: &[Vector<E, N>],
    words: &mut [u32],
    dims: &Sequence<Dim>,
    step: usize,
    pairs: usize,
    #[define(E)] _element: ElemType,
    #[define(N)] _width: usize,
    #[comptime] whole: bool,
) {
    let position = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    let first = position * BYTES_PER_WORD;
    if first < pairs {
        words[position] = if comptime![whole] {
            if first + BYTES_PER_WORD <= pairs {
                word_of_vectors::<E, N>(vectors, position)
            } else {
                word_of_pairs::<E>(integers, dims, step, first, pairs)
            }
        } else {
            word_of_pairs::<E>(integers, dims, step, first, pairs)
        };
    }
}

/// The low four bits of an integer.
#[cube]
fn nibble<E: Int>(integer: E) -> u32 {
    u32::cast_from(integer) & 15
}

/// The word with this number, of integers that lie side by side.
#[cube]
fn word_of_vectors<E: Int, N: Size>(vectors: &[Vector<E, N>], position: usize) -> u32 {
    let width = N::value().comptime();
    let count = comptime![PER_WORD / width];
    let mut word = 0u32;
    #[unroll]
    for nth in 0..count {
        let vector = vectors[position * count + nth];
        #[unroll]
        for component in 0..width {
            let shift = comptime![4 * (nth * width + component) as u32];
            word |= nibble::<E>(vector.extract(component)) << shift;
        }
    }
    word
}

/// A word whose first pair is pair number `first`. Behind the last pair, its bits are 0.
#[cube]
fn word_of_pairs<E: Int>(
    integers: &[E],
    dims: &Sequence<Dim>,
    step: usize,
    first: usize,
    pairs: usize,
) -> u32 {
    let mut word = 0u32;
    #[unroll]
    for nth in 0..BYTES_PER_WORD {
        if first + nth < pairs {
            let low = offsets(dims, first + nth).input;
            let pair = nibble::<E>(integers[low]) | (nibble::<E>(integers[low + step]) << 4);
            word |= pair << comptime![8 * nth as u32];
        }
    }
    word
}

/// Writes the integers of `bytes` bytes, eight for each unit: the output has room for those of a
/// last word that is not full. Signed and floating point types get -8 to 7, unsigned ones 0 to 15.
///
/// `packed` has bytes, or words of four bytes. With `whole`, the bytes lie side by side in words.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn unpack<W: Int, E: Numeric, N: Size>(
    packed: &[W],
    integers: &mut [Vector<E, N>],
    dims: &Sequence<Dim>,
    bytes: usize,
    #[define(W, E)] _elements: [ElemType; 2],
    #[define(N)] _width: usize,
    #[comptime] whole: bool,
) {
    let position = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    let first = position * BYTES_PER_WORD;
    if first < bytes {
        let word = if comptime![whole] {
            u32::cast_from(packed[position])
        } else {
            word_of_bytes::<W>(packed, dims, first, bytes)
        };
        let width = N::value().comptime();
        let count = comptime![PER_WORD / width];
        #[unroll]
        for nth in 0..count {
            let mut vector = Vector::<E, N>::empty();
            #[unroll]
            for component in 0..width {
                let shift = comptime![4 * (nth * width + component) as u32];
                vector.insert(component, integer_of::<E>((word >> shift) & 15));
            }
            integers[position * count + nth] = vector;
        }
    }
}

/// A word whose first byte is byte number `first` of the tensor.
#[cube]
fn word_of_bytes<W: Int>(packed: &[W], dims: &Sequence<Dim>, first: usize, bytes: usize) -> u32 {
    let stored = elem_type_of::<W>();
    let mut word = 0u32;
    #[unroll]
    for nth in 0..BYTES_PER_WORD {
        if first + nth < bytes {
            let offset = offsets(dims, first + nth).input;
            let byte = if comptime![stored.size() == 1] {
                u32::cast_from(packed[offset])
            } else {
                let shift = u32::cast_from(offset % BYTES_PER_WORD) * 8;
                (u32::cast_from(packed[offset / BYTES_PER_WORD]) >> shift) & 255
            };
            word |= byte << comptime![8 * nth as u32];
        }
    }
    word
}

/// The integer with these four bits.
#[cube]
fn integer_of<E: Numeric>(bits: u32) -> E {
    let element = elem_type_of::<E>();
    if comptime![matches!(element, ElemType::UInt(_))] {
        E::cast_from(bits)
    } else {
        // The sign is added without a shift of a signed integer.
        let integer = i32::cast_from(bits ^ 8) - 8;
        if comptime![matches!(element, ElemType::Float(_))] {
            // Not every device converts integers to 16 bits.
            E::cast_from(f32::cast_from(integer))
        } else {
            E::cast_from(integer)
        }
    }
}
