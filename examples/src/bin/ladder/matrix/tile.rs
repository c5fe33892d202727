//! Rows through tiles in shared memory: read as the memory likes it, added up as the rows want it.

use reduce_kernels::cubecl::{self, prelude::*};

use super::TILE;

/// A line of a tile in shared memory, one word longer than the tile is wide: words of a column
/// then lie in different banks.
const LINE: usize = TILE + 1;

/// A cube of [`TILE`] units (a plane, where planes have 32) loads tiles of `rows` × [`TILE`] elements
/// line by line, and [`TILE`] / `rows` units add up each line.
#[cube(launch_unchecked)]
pub fn tiled_rows<E: Numeric>(
    input: &Array<E>,
    totals: &mut Array<E>,
    columns: usize,
    #[comptime] rows: usize,
) {
    let unit = UNIT_POS as usize;
    let first_row = CUBE_POS * rows;
    // This unit's part of a line.
    let part = comptime![rows];
    let line = unit / comptime![TILE / rows];
    let first = unit % comptime![TILE / rows] * part;
    let mut tile = SharedMemory::<E>::new(comptime![rows * LINE]);
    let mut total = E::from_int(0);
    let mut column = 0usize;
    while column < columns {
        // All loads of the tile first: none waits for another.
        let mut values = Sequence::<E>::new();
        #[unroll]
        for row in 0..rows {
            let mut value = E::from_int(0);
            if first_row + row < totals.len() && column + unit < columns {
                value = input[(first_row + row) * columns + column + unit];
            }
            values.push(value);
        }
        #[unroll]
        for row in 0..rows {
            tile[row * LINE + unit] = *values.index(row);
        }
        sync_cube();
        #[unroll]
        for step in 0..part {
            total += tile[line * LINE + first + step];
        }
        sync_cube();
        column += TILE;
    }
    // The parts of a line meet where its first element was.
    tile[line * LINE + first] = total;
    sync_cube();
    if first == 0 && first_row + line < totals.len() {
        let mut sum = E::from_int(0);
        #[unroll]
        for other in 0..comptime![TILE / rows] {
            sum += tile[line * LINE + other * part];
        }
        totals[first_row + line] = sum;
    }
}
