//! The sweeps' marks: neighbouring shapes should have similar rates.

use std::collections::HashMap;

use crate::{
    Case, Record, Timing,
    sweep::{self, Point, Series},
};

/// Least share of the best point's rate that a point may reach.
pub(super) const LEAST_SHARE: f64 = 0.85;

/// Most that an odd point may take per byte, in units of what its even neighbour takes.
pub(super) const MOST_ODD_OVER: f64 = 1.05;

/// A point of a sweep with its time.
#[derive(Clone, Debug)]
pub struct Measured<'a> {
    /// The point.
    pub point: Point,
    /// Its time.
    pub timing: &'a Timing,
}

/// The points of the sweeps that a record holds, and those that miss a mark.
#[derive(Clone, Debug)]
pub struct Neighbours<'a> {
    /// All points.
    pub points: Vec<Measured<'a>>,
}

impl<'a> Neighbours<'a> {
    /// Finds the points of the sweeps among the cases of a record.
    pub fn of(record: &'a Record) -> Self {
        let timings: HashMap<&Case, &Timing> =
            record.cases.iter().map(|timing| (&timing.case, timing)).collect();
        let usual = sweep::aspects(sweep::USUAL_LOG2).into_iter().chain(sweep::inner_dimensions());
        let points = usual
            .chain(sweep::aspects(sweep::LARGE_LOG2))
            .filter_map(|point| timings.get(&point.case).map(|&timing| Measured { point, timing }))
            .collect();
        Self { points }
    }

    /// The best rate of the points of 2^`log2` elements, in 10⁹ bytes per second; 0 if there are
    /// none.
    pub fn best(&self, log2: u32) -> f64 {
        let of_size = self.points.iter().filter(|measured| measured.point.series.log2() == log2);
        of_size.map(|measured| measured.timing.gigabytes_per_second).fold(0.0, f64::max)
    }

    /// The points below `LEAST_SHARE` of the rate of the best one of their size, and their shares.
    pub fn slow(&self) -> Vec<(&Measured<'a>, f64)> {
        let share = |measured: &Measured<'_>| {
            measured.timing.gigabytes_per_second / self.best(measured.point.series.log2())
        };
        let shares = self.points.iter().map(|measured| (measured, share(measured)));
        shares.filter(|&(_, share)| share < LEAST_SHARE).collect()
    }

    /// The odd points that pass `MOST_ODD_OVER`, and by what factor they take longer per byte than
    /// their even neighbours.
    pub fn slow_odd(&self) -> Vec<(&Measured<'a>, f64)> {
        let even_rate = |odd: &Measured<'_>| {
            let Series::Aspect { log2, axis, odd: true } = odd.point.series else { return None };
            let even = Series::Aspect { log2, axis, odd: false };
            let mut points = self.points.iter();
            let neighbour = points
                .find(|measured| (measured.point.series, measured.point.x) == (even, odd.point.x));
            neighbour.map(|measured| measured.timing.gigabytes_per_second)
        };
        let factors = self
            .points
            .iter()
            .filter_map(|odd| Some((odd, even_rate(odd)? / odd.timing.gigabytes_per_second)));
        factors.filter(|&(_, factor)| factor > MOST_ODD_OVER).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::record;

    /// Rates are compared per byte: an odd point holds a little less than its neighbour.
    #[test]
    fn cliffs_and_odd_lengths_are_named() {
        let ours = record(&[
            ("sum f32 [8192, 8192] axis 1", 62.0),
            ("sum f32 [8192, 8191] axis 1", 68.0),
            ("sum f32 [16384, 4096] axis 1", 62.0),
            ("sum f32 [16384, 4095] axis 1", 62.0),
            ("sum f32 [16777216, 4] axis 1", 90.0),
            ("sum f32 [16777216, 3] axis 1", 68.0),
            ("sum f32 [16384, 16384] axis 1", 200.0),
            ("sum f32 [100] axis all", 9.0),
        ]);
        let neighbours = Neighbours::of(&ours);
        assert_eq!(neighbours.points.len(), 7);
        let named = |list: Vec<(&Measured<'_>, f64)>| -> Vec<String> {
            list.iter().map(|(measured, _)| measured.timing.case.to_string()).collect()
        };
        let slow = ["sum f32 [16777216, 4] axis 1", "sum f32 [16777216, 3] axis 1"];
        assert_eq!(named(neighbours.slow()), slow);
        assert_eq!(named(neighbours.slow_odd()), ["sum f32 [8192, 8191] axis 1"]);
    }
}
