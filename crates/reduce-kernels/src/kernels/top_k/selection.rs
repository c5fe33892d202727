//! What a kernel of a selection is generated for, and the order that it selects by.

use cubecl::prelude::*;
use reduce_planner::Over;

use crate::kernels::{at_once::hash_at_once, team::Team};

/// Everything about a selection that its kernel is generated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    /// The units of a slice.
    pub(crate) team: Team,
    /// Entries that the buffer of a slice holds: a power of two, and a multiple of its units.
    pub(crate) capacity: u32,
    /// Bits of a digit by which entries are counted.
    pub(crate) digit_bits: u32,
    /// Words of an entry's key.
    pub(crate) key_words: usize,
    /// Words of an entry's position.
    pub(crate) position_words: usize,
    /// Over which elements probabilities add up to 1, if they are written in place of values.
    pub(crate) probabilities: Option<Over>,
}

hash_at_once!(Selection { team, capacity, digit_bits, key_words, position_words, probabilities });

impl Selection {
    /// Words of an entry.
    pub(super) fn words(self) -> usize {
        self.key_words + self.position_words
    }

    /// Slices that a cube works on.
    pub(super) fn tiles(self) -> usize {
        self.team.tiles_per_cube()
    }

    /// Places in the buffers of a cube.
    pub(super) fn places(self) -> usize {
        self.tiles() * self.capacity as usize
    }

    /// The same with an entry of each unit in the buffer of a slice.
    pub(super) fn with_entry_of_each_unit(self) -> Self {
        Self { capacity: self.team.units_per_tile, ..self }
    }

    /// Entries of its slice's buffer that a unit takes.
    pub(super) fn entries_per_unit(self) -> usize {
        (self.capacity / self.team.units_per_tile) as usize
    }
}

/// Which elements come first. These are numbers and not constants, so one kernel serves all orders.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(crate) struct Order {
    /// The bits of a number's key that are inverted: none if the largest come first, otherwise all.
    pub(crate) inverted: u32,
    /// All bits if NaN comes first, none if it comes last.
    pub(crate) nan: u32,
    /// The bits of keys that count when the selected elements are put in order: all, or none if
    /// they are put in the order of their positions.
    pub(crate) counting: u32,
    /// Not 0 if NaN, where it is the first element, is written in place of all others.
    pub(crate) spreading: u32,
}

#[cube]
impl Order {
    /// Whether the selected elements are put in the order of their positions.
    pub(super) fn is_of_positions(&self) -> bool {
        self.counting == 0
    }
}
