//! Offsets of segments from their lengths: sums of blocks, and a scan of each block from what lies
//! before it.

use cubecl::prelude::*;

/// Lengths that a unit adds up, which lie side by side.
pub(crate) const LENGTHS_PER_UNIT: usize = 8;

/// Writes the sum of each block of lengths, of which a cube has one.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn sum_lengths<T: Int>(
    lengths: &[T],
    sums: &mut [T],
    count: usize,
    stride: usize,
    #[comptime] units: usize,
) {
    let first = first_of_unit(units);
    let sum = sum_of_unit::<T>(lengths, first, count, stride);
    let (_, all) = before_unit::<T>(sum, units);
    if UNIT_POS == 0 {
        sums[CUBE_POS] = all;
    }
}

/// Writes the sum of all lengths before each, and behind the last that of all of them. A cube has a
/// block of lengths, and `bases` the sums before each block if there are `several`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn offsets_of_lengths<T: Int>(
    lengths: &[T],
    bases: &[T],
    offsets: &mut [T],
    count: usize,
    stride: usize,
    #[comptime] several: bool,
    #[comptime] units: usize,
) {
    // Through shared memory, so that neighbouring units read and write what lies side by side.
    let each = comptime![LENGTHS_PER_UNIT];
    let mut block = Shared::<[T]>::new_slice(comptime![units * (each + 1)]);
    let unit = UNIT_POS as usize;
    let begin = CUBE_POS * comptime![units * each];
    #[unroll]
    for nth in 0..each {
        let place = comptime![nth * units] + unit;
        let index = begin + place;
        let length = length_at::<T>(lengths, clamp_max(index, count - 1), stride);
        block[cell(place)] = select(index < count, length, T::from_int(0));
    }
    sync_cube();
    let mut sum = T::from_int(0);
    #[unroll]
    for nth in 0..each {
        sum += block[cell(unit * each + nth)];
    }
    let (before, _) = before_unit::<T>(sum, units);
    let mut offset = before;
    if comptime![several] {
        offset += bases[CUBE_POS];
    }
    #[unroll]
    for nth in 0..each {
        let at = cell(unit * each + nth);
        let length = block[at];
        block[at] = offset;
        offset += length;
        if begin + unit * each + nth + 1 == count {
            offsets[count] = offset;
        }
    }
    sync_cube();
    #[unroll]
    for nth in 0..each {
        let place = comptime![nth * units] + unit;
        if begin + place < count {
            offsets[begin + place] = block[cell(place)];
        }
    }
}

/// Where a length of a block lies in shared memory: with a gap behind those of each unit, so that
/// neighbouring units use different banks.
#[cube]
fn cell(place: usize) -> usize {
    place + place / LENGTHS_PER_UNIT
}

/// The first length of this unit.
#[cube]
fn first_of_unit(#[comptime] units: usize) -> usize {
    (CUBE_POS * units + UNIT_POS as usize) * LENGTHS_PER_UNIT
}

/// A length, of which negative ones are none.
#[cube]
fn length_at<T: Int>(lengths: &[T], index: usize, stride: usize) -> T {
    clamp_min(lengths[index * stride], T::from_int(0))
}

#[cube]
fn sum_of_unit<T: Int>(lengths: &[T], first: usize, count: usize, stride: usize) -> T {
    let mut sum = T::from_int(0);
    for nth in 0..LENGTHS_PER_UNIT {
        if first + nth < count {
            sum += length_at::<T>(lengths, first + nth, stride);
        }
    }
    sum
}

/// The sum of what the units before this one have, and of what all have, by doubling steps (Hillis
/// and Steele, 1986). Every unit of the cube must get here.
#[cube]
pub(super) fn before_unit<T: Int>(own: T, #[comptime] units: usize) -> (T, T) {
    let mut shared = Shared::<[T]>::new_slice(units);
    let unit = UNIT_POS as usize;
    shared[unit] = own;
    sync_cube();
    let steps = comptime![units.ilog2()];
    #[unroll]
    for step in 0..steps {
        let distance = comptime![1usize << step];
        let mut sum = shared[unit];
        if unit >= distance {
            sum += shared[unit - distance];
        }
        sync_cube();
        shared[unit] = sum;
        sync_cube();
    }
    (shared[unit] - own, shared[comptime![units - 1]])
}
