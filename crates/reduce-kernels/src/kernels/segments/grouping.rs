//! A stable sort of keys in any order: by one digit in each pass, from the lowest to the highest.
//!
//! A cube has a *tile* of neighbouring keys, and a *crew* of its units neighbouring keys of the tile:
//! the lanes of a plane, which find keys of the same digit by ballots, or one unit. Each crew counts
//! for itself, so that the counts of the crews before say where the keys of a digit begin (A. Adinets,
//! D. Merrill, "Onesweep: A Faster Least Significant Digit Radix Sort for GPUs", 2022, section 3.2).

use cubecl::prelude::*;

use super::lengths::before_unit;
use crate::operator::Slice;

/// How cubes sort by one digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DigitSpec {
    pub(crate) units: u32,
    pub(crate) keys_per_unit: u32,
    /// Units of a crew.
    pub(crate) crew: u32,
    pub(crate) shift: u32,
    pub(crate) bits: u32,
}

impl DigitSpec {
    fn tile(self) -> usize {
        (self.units * self.keys_per_unit) as usize
    }

    fn digits(self) -> usize {
        1 << self.bits
    }

    fn crews(self) -> usize {
        (self.units / self.crew) as usize
    }

    /// Counts of a tile that a unit adds up.
    fn counts_of_unit(self) -> usize {
        (self.digits() * self.crews()).div_ceil(self.units as usize)
    }
}

/// The keys of a launch.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(crate) struct KeyNumbers {
    /// Number of keys.
    pub(crate) count: usize,
    /// The stride from one key to the next.
    pub(crate) stride: usize,
    /// Keys below are those of groups. All others sort as this number.
    pub(crate) groups: u32,
    /// Number of tiles.
    pub(crate) tiles: usize,
}

/// The number of the group that a key names, or that of groups if it names none. Keys that an earlier
/// pass has moved are such numbers.
#[cube]
fn group_of<K: Numeric>(key: K, groups: u32, #[comptime] spec: DigitSpec) -> u32 {
    let number = u32::cast_from(key);
    if comptime![spec.shift > 0] {
        number
    } else {
        // Negative keys and those that 32 bits do not hold do not come back.
        let names = number < groups && K::cast_from(number) == key;
        select(names, number, groups)
    }
}

/// Counts the digits of each tile: those of one digit in all tiles lie side by side.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn count_digits<K: Numeric, I: Int>(
    keys: &[K],
    counts: &mut [I],
    numbers: &KeyNumbers,
    #[comptime] spec: DigitSpec,
) {
    let unit = UNIT_POS as usize;
    let units = comptime![spec.units as usize];
    let counted = Slice::of(&Shared::<[Atomic<u32>]>::new_slice(comptime![spec.digits()]));
    let mut digit = unit;
    while digit < comptime![spec.digits()] {
        counted[digit].store(0u32);
        digit += units;
    }
    sync_cube();
    let first = CUBE_POS * comptime![spec.tile()] + unit;
    // All loads are issued before the first key is counted.
    let mut own = Sequence::<K>::new();
    #[unroll]
    for nth in 0..comptime![spec.keys_per_unit as usize] {
        let position = clamp_max(first + nth * units, numbers.count - 1);
        own.push(keys[position * numbers.stride]);
    }
    #[unroll]
    for nth in 0..comptime![spec.keys_per_unit as usize] {
        if first + nth * units < numbers.count {
            let group = group_of::<K>(*own.index(nth), numbers.groups, spec);
            counted[digit_of(group, spec) as usize].fetch_add(1u32);
        }
    }
    sync_cube();
    if CUBE_POS < numbers.tiles {
        let mut digit = unit;
        while digit < comptime![spec.digits()] {
            counts[digit * numbers.tiles + CUBE_POS] = I::cast_from(counted[digit].load());
            digit += units;
        }
    }
}

/// A digit of a key.
#[cube]
fn digit_of(group: u32, #[comptime] spec: DigitSpec) -> u32 {
    (group >> comptime![spec.shift]) & comptime![(1u32 << spec.bits) - 1]
}

/// Moves the keys of each tile, and what they carry, to where those of their digit begin. `begins` has
/// the sum of all counts before that of a digit in a tile. Keys may carry their positions, which are
/// not read. `S` holds keys and what they carry.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn move_keys<K: Numeric, I: Int, P: Int, S: Int>(
    keys: &[K],
    carried: &[P],
    begins: &[I],
    moved_keys: &mut [u32],
    moved: &mut [P],
    numbers: &KeyNumbers,
    #[comptime] carries_positions: bool,
    #[comptime] spec: DigitSpec,
) {
    let unit = UNIT_POS as usize;
    let units = comptime![spec.units as usize];
    let each = comptime![spec.keys_per_unit as usize];
    let tile = clamp_max(CUBE_POS, numbers.tiles - 1);
    let begin = tile * comptime![spec.tile()];
    // Cubes past the last tile, which fill the grid, have no keys.
    let valid = select(
        CUBE_POS < numbers.tiles,
        clamp_max(numbers.count - begin, comptime![spec.tile()]),
        0usize,
    );
    let counts = Counts::new(spec);

    let mut groups = Sequence::<u32>::new();
    let mut places = Sequence::<RuntimeCell<u32>>::new();
    #[unroll]
    for nth in 0..each {
        let own = counts.key_of_unit(nth);
        // Keys past the last have the last place in their tile, whatever their digit.
        let position = clamp_max(begin + own, numbers.count - 1) * numbers.stride;
        let group = group_of::<K>(keys[position], numbers.groups, spec);
        groups.push(select(own < valid, group, u32::MAX.runtime()));
    }
    #[unroll]
    for nth in 0..each {
        places.push(RuntimeCell::new(counts.count(digit_of(*groups.index(nth), spec))));
    }
    sync_cube();
    counts.add_up();
    #[unroll]
    for nth in 0..each {
        let before = counts.before(digit_of(*groups.index(nth), spec));
        places.index(nth).store(places.index(nth).read() + before);
    }

    // Through shared memory, so that neighbouring units write to neighbouring places: first the keys,
    // then what they carry, in the same memory. In memory of their own, 2^26 keys of 100,000 groups
    // took 1571 us on one H200 and not 1449: units then had more registers, and fewer cubes resided.
    let staged = Slice::of(&Shared::<[S]>::new_slice(comptime![spec.tile()]));
    let mut staged_keys = staged;
    #[unroll]
    for nth in 0..each {
        staged_keys[places.index(nth).read() as usize] = S::cast_from(*groups.index(nth));
    }
    let mut destinations = Slice::of(&Shared::<[I]>::new_slice(comptime![spec.digits()]));
    let mut digit = unit;
    while digit < comptime![spec.digits()] {
        // Wraps where the tile has others before: the place in the tile is added to it.
        destinations[digit] =
            begins[digit * numbers.tiles + tile] - I::cast_from(counts.begin(digit));
        digit += units;
    }
    sync_cube();
    let mut targets = Sequence::<usize>::new();
    #[unroll]
    for nth in 0..each {
        let place = comptime![nth * units] + unit;
        let group = u32::cast_from(staged[place]);
        let begins_at = destinations[digit_of(group, spec) as usize];
        let target = usize::cast_from(begins_at + I::cast_from(place));
        if place < valid {
            moved_keys[target] = group;
        }
        targets.push(target);
    }
    sync_cube();
    let mut staged_with_keys = staged;
    #[unroll]
    for nth in 0..each {
        let own = counts.key_of_unit(nth);
        let with_key = if comptime![carries_positions] {
            S::cast_from(begin + own)
        } else {
            S::cast_from(carried[clamp_max(begin + own, numbers.count - 1)])
        };
        staged_with_keys[places.index(nth).read() as usize] = with_key;
    }
    sync_cube();
    #[unroll]
    for nth in 0..each {
        let place = comptime![nth * units] + unit;
        if place < valid {
            moved[*targets.index(nth)] = P::cast_from(staged[place]);
        }
    }
}

/// The counts of a tile: of each digit, those of all crews in their order.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct Counts {
    counts: Slice<u32>,
    #[cube(comptime)]
    spec: DigitSpec,
}

#[cube]
impl Counts {
    /// Counts of 0. Every unit of the cube must get here.
    fn new(#[comptime] spec: DigitSpec) -> Counts {
        let each = comptime![spec.counts_of_unit()];
        let mut counts =
            Slice::of(&Shared::<[u32]>::new_slice(comptime![spec.units as usize * each]));
        #[unroll]
        for nth in 0..each {
            counts[comptime![nth * spec.units as usize] + UNIT_POS as usize] = 0u32;
        }
        sync_cube();
        Counts { counts, spec }
    }

    /// The place in the tile of key number `nth` of this unit. The keys of a crew lie side by side.
    fn key_of_unit(&self, #[comptime] nth: usize) -> usize {
        let crew = comptime![self.spec.crew as usize];
        let unit = UNIT_POS as usize;
        let of_crew = unit / crew * comptime![crew * self.spec.keys_per_unit as usize];
        of_crew + comptime![nth * crew] + unit % crew
    }

    /// Where the count of a digit lies in shared memory. The units that count at the same time use
    /// different banks: those of a plane, which has counts of its own for neighbouring digits, and
    /// those that count alone, which have neighbouring counts of a digit.
    fn cell(&self, digit: usize, crew: usize) -> usize {
        if comptime![self.spec.crew == 1] {
            digit * comptime![self.spec.crews()] + crew
        } else {
            crew * comptime![self.spec.digits()] + digit
        }
    }

    /// The cell of count number `nth` in the order of digits, and of crews for each digit. Those past
    /// the last have cells of their own.
    fn cell_in_order(&self, nth: usize) -> usize {
        let crews = comptime![self.spec.crews()];
        let all = comptime![crews * self.spec.digits()];
        select(nth < all, self.cell(nth / crews, nth % crews), nth)
    }

    fn crew(&self) -> usize {
        UNIT_POS as usize / comptime![self.spec.crew as usize]
    }

    /// Counts the next key of each unit of a crew. Returns how many keys of the crew with this digit
    /// come before. Every unit of the crew must get here.
    fn count(&self, digit: u32) -> u32 {
        let mut counts = self.counts;
        let at = self.cell(digit as usize, self.crew());
        if comptime![self.spec.crew == 1] {
            let before = counts[at];
            counts[at] = before + 1;
            before
        } else {
            let lane = UNIT_POS % comptime![self.spec.crew];
            let alike = self.lanes_with(digit);
            let first = alike.trailing_zeros();
            let mut before = 0u32.runtime();
            if lane == first {
                before = counts[at];
                counts[at] = before + alike.count_ones();
            }
            sync_plane();
            let earlier = alike & ((1u32 << lane) - 1);
            plane_shuffle(before, first) + earlier.count_ones()
        }
    }

    /// The lanes of the plane that have the same digit.
    fn lanes_with(&self, digit: u32) -> u32 {
        let all = comptime![match self.spec.crew {
            u32::BITS.. => u32::MAX,
            lanes => (1 << lanes) - 1,
        }];
        let mut alike = all.runtime();
        #[unroll]
        for bit in 0..comptime![self.spec.bits] {
            let is_set = digit & comptime![1u32 << bit] != 0;
            let set = plane_ballot(is_set).extract(0usize);
            alike &= select(is_set, set, !set);
        }
        alike
    }

    /// Replaces each count by the sum of all before it. Every unit of the cube must get here.
    fn add_up(&self) {
        let mut counts = self.counts;
        let each = comptime![self.spec.counts_of_unit()];
        let first = UNIT_POS as usize * each;
        let mut sum = 0u32.runtime();
        #[unroll]
        for nth in 0..each {
            sum += counts[self.cell_in_order(first + nth)];
        }
        let mut sum = self.before_unit(sum);
        #[unroll]
        for nth in 0..each {
            let cell = self.cell_in_order(first + nth);
            let count = counts[cell];
            counts[cell] = sum;
            sum += count;
        }
        sync_cube();
    }

    /// The sum of what the units before this one have. Every unit of the cube must get here.
    fn before_unit(&self, own: u32) -> u32 {
        if comptime![self.spec.crew == 1] {
            let (before, _) = before_unit::<u32>(own, comptime![self.spec.units as usize]);
            before
        } else {
            let lanes = comptime![self.spec.crew];
            let mut sums = Shared::<[u32]>::new_slice(comptime![self.spec.crews()]);
            let mut before = plane_exclusive_sum(own);
            let crew = self.crew();
            if UNIT_POS % lanes == comptime![lanes - 1] {
                sums[crew] = before + own;
            }
            sync_cube();
            for other in 0..crew {
                before += sums[other];
            }
            before
        }
    }

    /// Keys of the tile before the first of this digit in the crew of this unit, when counts are
    /// added up.
    fn before(&self, digit: u32) -> u32 {
        self.counts[self.cell(digit as usize, self.crew())]
    }

    /// Keys of the tile before the first of this digit, when counts are added up.
    fn begin(&self, digit: usize) -> u32 {
        self.counts[self.cell(digit, 0usize)]
    }
}
