//! The places of quantiles among the numbers of each slice, if some of its elements do not count.
//!
//! The ranks of the elements that a quantile lies between follow from how many elements count. If
//! each slice has another number of them, only the device knows it. A launch then writes, for each
//! slice, the table that the host otherwise writes once for all slices: the ranks to write, which
//! of these each quantile lies between, and its weight.
//!
//! The formulas are those of R. J. Hyndman and Y. Fan, "Sample Quantiles in Statistical Packages",
//! 1996, and are rounded as NumPy rounds them in binary64 ([`Fixed`]). The places are therefore
//! those of NumPy, for quantiles of at least 2^-11 to the bit. Smaller quantiles are first rounded
//! to a multiple of 2^-64, by which a place among 2^32 elements moves by 2^-33 at most.

use cubecl::prelude::*;

use super::fixed::Fixed;

/// Words by which a quantile is described: its number among the results, the quantile, and an
/// addend, of which each is an integer and the two words of a fraction.
pub(crate) const WORDS_OF_QUANTILE: usize = 7;

/// How the place of a quantile is computed, which counts from the first element, number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Placing {
    /// One before the quantile of the number of elements, rounded up.
    InvertedCdf,
    /// The same, and halfway to the next if it was not rounded.
    AveragedInvertedCdf,
    /// One and a half before the quantile of the number of elements, rounded to the nearest; of
    /// two, to the one with an odd number.
    ClosestObservation,
    /// One before the sum of an addend and the quantile of the number of elements.
    Continuous,
    /// The quantile of the last element's number.
    Linear,
    /// That, rounded down.
    Lower,
    /// That, rounded up.
    Higher,
    /// That, or halfway to the next if it is no integer.
    Midpoint,
    /// That, rounded to the nearest; of two, to the one with an even number.
    Nearest,
}

impl Placing {
    /// Whether places follow from the number of the last element, rather than from how many there
    /// are.
    fn is_of_last(self) -> bool {
        use Placing::{Higher, Linear, Lower, Midpoint, Nearest};
        matches!(self, Linear | Lower | Higher | Midpoint | Nearest)
    }
}

/// An element, and how far a quantile lies from it to the next.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct Place {
    number: u32,
    weight: Fixed,
}

#[cube]
impl Place {
    /// That of an element.
    fn on(number: u32) -> Place {
        let zero = 0u32.runtime();
        Place { number, weight: Fixed::new(zero, zero, zero) }
    }

    /// So many halves from an element to the next: 0, 1 or 2.
    fn halves_after(number: u32, halves: u32) -> Place {
        Place { number, weight: Fixed::new(halves >> 1u32, halves << 31u32, 0u32.runtime()) }
    }

    /// The place of a quantile among `count` elements.
    fn of(count: u32, quantile: Fixed, addend: Fixed, #[comptime] placing: Placing) -> Place {
        let factor = if comptime![placing.is_of_last()] { before(count) } else { count };
        let place = quantile.times(factor).rounded();
        let whole = place.whole;
        let is_between = u32::cast_from(!place.is_whole());
        match comptime![placing] {
            Placing::InvertedCdf => Place::on(before(whole + is_between)),
            Placing::AveragedInvertedCdf => {
                let halves = select(whole == 0, 0u32, 1 + is_between);
                Place::halves_after(before(whole), halves)
            }
            Placing::ClosestObservation => {
                let is_tied = place.is_at_half() && whole & 1 == 0;
                let number = whole + place.half_bit();
                Place::on(before(number - u32::cast_from(is_tied)))
            }
            Placing::Continuous => {
                let sum = place.plus(addend).rounded();
                // What lies before the first element is taken to be on it.
                let weight = sum.fraction().or_zero(sum.whole != 0);
                Place { number: before(sum.whole), weight }
            }
            Placing::Linear => Place { number: whole, weight: place.fraction() },
            Placing::Lower => Place::on(whole),
            Placing::Higher => Place::on(whole + is_between),
            Placing::Midpoint => Place::halves_after(whole, is_between),
            Placing::Nearest => {
                let is_tied = place.is_at_half() && whole & 1 == 0;
                Place::on(whole + place.half_bit() - u32::cast_from(is_tied))
            }
        }
    }
}

/// The number before, or 0.
#[cube]
fn before(number: u32) -> u32 {
    number - clamp_max(number, 1u32)
}

/// Writes the table of each slice, of which `counts` elements count. A unit takes a slice.
///
/// The table has two ranks for each quantile, in descending order; then, for each quantile, which
/// of the ranks are those of its lower and of its upper element; then the bits of its weight. Ranks
/// count from 0, `from_above` from the greatest element that counts, and are at most `last_rank`.
/// The quantiles are described in the order in which their ranks descend: from the greatest if
/// ranks count from the least element, otherwise from the least.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn place_quantiles(
    counts: &[u32],
    described: &[u32],
    tables: &mut [u32],
    quantiles: usize,
    slices: usize,
    last_rank: u32,
    from_above: u32,
    #[comptime] placing: Placing,
    #[comptime] weight_words: usize,
) {
    // Units leave here, because no barrier follows.
    if ABSOLUTE_POS < slices {
        let count = counts[ABSOLUTE_POS];
        let last_number = before(count);
        let start = ABSOLUTE_POS * quantiles * comptime![4 + weight_words];
        let lists = start + 2 * quantiles;
        let weights = lists + 2 * quantiles;
        // Ranks that are in the table, the last of them, and where the farther one of the quantile
        // before is.
        let mut written = 0u32.runtime();
        let mut last = 0u32.runtime();
        let mut farther_at = 0u32.runtime();
        for nth in 0..quantiles {
            let at = nth * WORDS_OF_QUANTILE;
            let number = described[at] as usize;
            let quantile = Fixed::new(described[at + 1], described[at + 2], described[at + 3]);
            let addend = Fixed::new(described[at + 4], described[at + 5], described[at + 6]);
            let place = Place::of(count, quantile, addend, placing);
            let lower = min(place.number, last_number);
            let upper = min(lower + 1, last_number);
            let is_from_above = from_above != 0;
            let farther = select(is_from_above, last_number - lower, upper);
            let nearer = select(is_from_above, last_number - upper, lower);
            let (farther, nearer) = (min(farther, last_rank), min(nearer, last_rank));
            // Neighbouring quantiles may share elements, each of which has one rank in the table.
            // The nearer rank of the quantile before was the last. A farther one that exceeds it
            // is therefore the farther one of that quantile too.
            if written == 0 || farther < last {
                farther_at = written;
                tables[start + written as usize] = farther;
                last = farther;
                written += 1;
            } else if farther == last {
                farther_at = written - 1;
            }
            if nearer < last {
                tables[start + written as usize] = nearer;
                last = nearer;
                written += 1;
            }
            let nearer_at = written - 1;
            tables[lists + 2 * number] = select(is_from_above, farther_at, nearer_at);
            tables[lists + 2 * number + 1] = select(is_from_above, nearer_at, farther_at);
            if comptime![weight_words == 2] {
                let (low, high) = place.weight.binary64();
                tables[weights + 2 * number] = low;
                tables[weights + 2 * number + 1] = high;
            } else {
                tables[weights + number] = place.weight.binary32();
            }
        }
        for at in written as usize..2 * quantiles {
            tables[start + at] = last;
        }
    }
}
