//! How keys in any order are grouped: the passes of a stable sort by digits, and their cubes.

use core::fmt;

use crate::{
    device::Device,
    error::PlanError,
    illegal::{Illegal, Quantity},
    limits,
    plan::{
        Combine,
        check::{fits_bindings, fits_grid, fits_shared, power_of_two},
    },
};

/// What will be launched to group keys: a stable sort by one digit of the keys in each pass, from
/// the lowest digit to the highest (least significant digit radix sort; D. E. Knuth, "The Art of
/// Computer Programming", volume 3, section 5.2.5).
///
/// A pass counts the digits of each tile of neighbouring keys, adds the counts up, and moves each
/// key and its index to where its digit begins. The order is the same for every plan.
///
/// ```
/// use reduce_planner::{Device, GroupingPlan};
///
/// // 2^26 keys of 100,000 groups, and one more for keys that name none.
/// let device = Device::h200();
/// let plan = GroupingPlan::choose(1 << 26, 100_000, 4, &device)?;
/// assert_eq!(plan.passes(100_000).map(|digit| digit.bits).collect::<Vec<_>>(), [6, 6, 5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct GroupingPlan {
    /// Units of a cube, a power of two.
    pub units_per_cube: u32,
    /// Keys of a unit.
    pub keys_per_unit: u32,
    /// Who counts together: the lanes of a plane, which find keys of the same digit by ballots, or
    /// each unit for itself.
    pub combine: Combine,
    /// Most bits of a digit.
    pub digit_bits: u32,
}

/// A digit of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digit {
    /// The number of its lowest bit.
    pub shift: u32,
    /// Number of its bits.
    pub bits: u32,
}

impl GroupingPlan {
    /// Most bits of a digit.
    pub const MOST_DIGIT_BITS: u32 = 12;

    /// Most keys of a unit, which it has in registers.
    pub const MOST_KEYS_PER_UNIT: u32 = 32;

    /// Chooses a plan for so many keys of so many groups, each of which carries so many bytes: those
    /// of an index, or of an element.
    ///
    /// # Errors
    ///
    /// The description of the device makes no sense, or it lacks indices or a grid for so many keys.
    pub fn choose(
        keys: usize,
        groups: usize,
        carried: usize,
        device: &Device,
    ) -> Result<Self, PlanError> {
        let tuning = device.tuning.segments;
        let units = tuning.grouping_units_per_cube.min(device.max_units_per_cube).max(1);
        let mut in_planes = Self {
            units_per_cube: 1 << units.ilog2(),
            keys_per_unit: tuning.grouping_keys_per_unit,
            combine: Combine::Plane { lanes: device.plane_size_min },
            digit_bits: tuning.grouping_digit_bits,
        };
        let most = device.shared_memory_bytes;
        while in_planes.shared_bytes(keys, carried) > most && in_planes.keys_per_unit > 1 {
            in_planes.keys_per_unit /= 2;
        }
        if in_planes.check(keys, groups, carried, device).is_ok() {
            return Ok(in_planes);
        }
        // Each unit has counts of its own, which have to fit.
        let mut alone = Self {
            combine: Combine::Shared,
            digit_bits: tuning.grouping_digit_bits_alone,
            keys_per_unit: tuning.grouping_keys_per_unit,
            ..in_planes
        };
        while alone.shared_bytes(keys, carried) > most && alone.units_per_cube > 1 {
            alone.units_per_cube /= 2;
        }
        alone.check(keys, groups, carried, device)?;
        Ok(alone)
    }

    /// The digits of keys below `groups`, and of the key `groups` that stands for all others.
    pub fn passes(&self, groups: usize) -> impl Iterator<Item = Digit> + use<> {
        let bits = (usize::BITS - groups.leading_zeros()).max(1);
        let passes = bits.div_ceil(self.digit_bits.max(1));
        let (each, more) = (bits / passes, bits % passes);
        (0..passes).map(move |pass| {
            let shift = pass * each + pass.min(more);
            Digit { shift, bits: each + u32::from(pass < more) }
        })
    }

    /// Keys of a cube.
    #[must_use]
    pub const fn tile(&self) -> usize {
        self.units_per_cube as usize * self.keys_per_unit as usize
    }

    /// Cubes of a launch, each of which has a tile.
    #[must_use]
    pub const fn tiles(&self, keys: usize) -> usize {
        keys.div_ceil(if self.tile() == 0 { 1 } else { self.tile() })
    }

    /// Units that count together.
    #[must_use]
    pub const fn crew(&self) -> u32 {
        match self.combine {
            Combine::Plane { lanes } => lanes,
            Combine::Shared => 1,
        }
    }

    /// Most counts of a launch: of each digit in each tile.
    #[must_use]
    pub const fn counts(&self, keys: usize) -> usize {
        self.tiles(keys).saturating_mul(1 << self.digit_bits)
    }

    /// Shared memory of a cube in bytes: the counts of each crew and their sums, the keys of the tile
    /// and then what they carry, of so many bytes each, in the same place, and where each digit begins.
    #[must_use]
    pub fn shared_bytes(&self, keys: usize, carried: usize) -> usize {
        let index = if u32::try_from(keys).is_ok() { 4 } else { 8 };
        let crews = (self.units_per_cube / self.crew().max(1)) as usize;
        let digits = 1usize << self.digit_bits;
        let counts = digits.saturating_mul(crews);
        4 * (counts + self.units_per_cube as usize) + self.tile() * carried.max(4) + digits * index
    }

    /// Checks that the plan groups so many keys of so many groups, which carry so many bytes each, on
    /// `device`.
    ///
    /// # Errors
    ///
    /// The plan breaks a rule, or the device lacks what it needs.
    pub fn check(
        &self,
        keys: usize,
        groups: usize,
        carried: usize,
        device: &Device,
    ) -> Result<(), PlanError> {
        device.check()?;
        self.obeys_rules(keys, carried, device).map_err(|reason| device.unfit(self, reason))?;
        let span = keys.max(groups.saturating_add(1)).max(self.counts(keys));
        limits::check_index_span(span as u64, device)?;
        Ok(())
    }

    fn obeys_rules(&self, keys: usize, carried: usize, device: &Device) -> Result<(), Illegal> {
        let Self { units_per_cube: units, keys_per_unit, combine, digit_bits } = *self;
        power_of_two(Quantity::UnitsPerCube, units, device.max_units_per_cube)?;
        let wrong_bits = digit_bits == 0 || digit_bits > Self::MOST_DIGIT_BITS;
        if wrong_bits || keys_per_unit == 0 || keys_per_unit > Self::MOST_KEYS_PER_UNIT {
            return Err(Illegal::Grouping { keys_per_unit, digit_bits });
        }
        if let Combine::Plane { lanes } = combine {
            let whole = device.plane_size_min == lanes && device.plane_size_max == lanes;
            if !whole || !device.plane_operations || lanes > u32::BITS || lanes > units {
                return Err(Illegal::SegmentPlanes { units, lanes });
            }
        }
        fits_shared(self.shared_bytes(keys, carried), device)?;
        // Keys, indices and sums that are read, and keys and indices that are written.
        fits_bindings(5, device)?;
        fits_grid(self.tiles(keys) as u64, false, device)
    }
}

impl fmt::Display for GroupingPlan {
    /// One line, such as `grouping: digits of 8 bits, cubes of 256 units with 16 keys each, counted in
    /// planes of 32`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { units_per_cube, keys_per_unit, combine, digit_bits } = self;
        write!(
            f,
            "grouping: digits of {digit_bits} bits, cubes of {units_per_cube} units with \
             {keys_per_unit} keys each, counted "
        )?;
        match combine {
            Combine::Plane { lanes } => write!(f, "in planes of {lanes}"),
            Combine::Shared => f.write_str("by each unit"),
        }
    }
}
