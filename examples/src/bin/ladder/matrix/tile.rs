//! Rows through tiles in shared memory: tiles are read in the order of memory and added up in rows.

use reduce_kernels::cubecl::{self, prelude::*};

use super::TILE;

/// Words from a row of a tile to the next in shared memory. It is one more than the width of the
/// tile, so the words of a column lie in different banks.
const ROW_WORDS: usize = TILE + 1;

/// A cube of [`TILE`] units (a plane, where planes have 32) loads tiles of `tile_rows` × [`TILE`]
/// elements row by row, and [`TILE`] / `tile_rows` units add up each row, `tile_rows` elements
/// each.
#[cube(launch_unchecked)]
pub(super) fn tiled_rows<E: Numeric>(
    input: &[E],
    totals: &mut [E],
    columns: usize,
    #[comptime] tile_rows: usize,
) {
    let unit = UNIT_POS as usize;
    let top = CUBE_POS * tile_rows;
    // The row that this unit adds up, and where its part of it begins.
    let row = unit / comptime![TILE / tile_rows];
    let first = unit % comptime![TILE / tile_rows] * tile_rows;
    let mut tile = Shared::<[E]>::new_slice(comptime![tile_rows * ROW_WORDS]);
    let mut total = E::from_int(0);
    let mut left = 0usize;
    while left < columns {
        // All loads of the tile are issued first, so none waits for another.
        let mut loaded = Sequence::<E>::new();
        #[unroll]
        for below in 0..tile_rows {
            let mut value = E::from_int(0);
            if top + below < totals.len() && left + unit < columns {
                value = input[(top + below) * columns + left + unit];
            }
            loaded.push(value);
        }
        #[unroll]
        for below in 0..tile_rows {
            tile[below * ROW_WORDS + unit] = *loaded.index(below);
        }
        sync_cube();
        #[unroll]
        for step in 0..tile_rows {
            total += tile[row * ROW_WORDS + first + step];
        }
        sync_cube();
        left += TILE;
    }
    // The parts of a row meet where each began.
    tile[row * ROW_WORDS + first] = total;
    sync_cube();
    if first == 0 && top + row < totals.len() {
        let mut sum = E::from_int(0);
        #[unroll]
        for part in 0..comptime![TILE / tile_rows] {
            sum += tile[row * ROW_WORDS + part * tile_rows];
        }
        totals[top + row] = sum;
    }
}
