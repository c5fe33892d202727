//! The marks of the report, and the cases that miss them.

use reduce_programs::{Floor, gigabytes_per_second};

use super::{BANDWIDTH_BYTES, MIB, Peer, Row};

/// Least lead over the fastest peer that a case may have.
pub(super) const LEAST_LEAD: f64 = 0.97;

/// Input bytes from which a case must reach `LEAST_FLOOR_SHARE`, and from which engines' rates
/// count.
const FLOOR_BYTES: u64 = 64 * MIB;

/// Least share of the floor that a large case may reach.
pub(super) const LEAST_FLOOR_SHARE: f64 = 0.94;

/// Input bytes from which Vulkan is compared with CUDA.
const VULKAN_BYTES: u64 = 64 * MIB;

/// The largest ratio of Vulkan's time to CUDA's that such a case may have.
pub(super) const MOST_VULKAN_OVER: f64 = 1.15;

/// The marks over all rows of a table; each list names the rows that miss one.
#[derive(Clone, Debug)]
pub struct Summary<'a> {
    /// Geometric mean of the leads over rows of 16 MiB and more that have a peer.
    pub mean_lead: Option<f64>,
    /// The number of those rows.
    pub compared: usize,
    /// Those of them whose lead is below `LEAST_LEAD`.
    pub behind: Vec<&'a Row<'a>>,
    /// What no call of the run can be faster than: one launch, and the bytes at the best rate that
    /// any engine reached in any row of 64 MiB and more, or that the record's own measurement gave.
    pub floor: Floor,
    /// Rows of 64 MiB and more below `LEAST_FLOOR_SHARE` of that floor.
    pub far_from_floor: Vec<&'a Row<'a>>,
    /// Rows below 16 MiB that take longer than PyTorch's eager mode.
    pub slower_than_eager: Vec<&'a Row<'a>>,
    /// Rows of 64 MiB and more in which Vulkan passes `MOST_VULKAN_OVER`.
    pub vulkan_behind: Vec<&'a Row<'a>>,
}

/// The geometric mean; `None` of nothing.
fn geometric_mean(factors: &[f64]) -> Option<f64> {
    let logarithms: f64 = factors.iter().map(|factor| factor.ln()).sum();
    (!factors.is_empty()).then(|| (logarithms / factors.len() as f64).exp())
}

/// The best rate of any engine in a row, in 10⁹ bytes per second.
fn best_rate(row: &Row<'_>) -> f64 {
    let peer = row.best_peer().map_or(f64::INFINITY, |(_, us)| us);
    gigabytes_per_second(row.timing.bytes, peer.min(row.timing.microseconds))
}

impl<'a> Summary<'a> {
    /// Judges the rows of a table.
    pub fn of(rows: &'a [Row<'a>], floor: &Floor) -> Self {
        let bytes = |row: &Row<'_>| row.timing.case.input_bytes();
        let pick = |condition: &dyn Fn(&Row<'_>) -> bool| -> Vec<&'a Row<'a>> {
            rows.iter().filter(|&row| condition(row)).collect()
        };
        let large = rows.iter().filter(|row| bytes(row) >= BANDWIDTH_BYTES);
        let leads: Vec<f64> = large.filter_map(Row::lead).collect();
        let read_gigabytes_per_second = rows
            .iter()
            .filter(|row| bytes(row) >= FLOOR_BYTES)
            .map(best_rate)
            .fold(floor.read_gigabytes_per_second, f64::max);
        let floor = Floor { read_gigabytes_per_second, ..*floor };
        Self {
            mean_lead: geometric_mean(&leads),
            compared: leads.len(),
            behind: pick(&|row| {
                bytes(row) >= BANDWIDTH_BYTES && row.lead().is_some_and(|lead| lead < LEAST_LEAD)
            }),
            floor,
            far_from_floor: pick(&|row| {
                bytes(row) >= FLOOR_BYTES && row.floor_share(&floor) < LEAST_FLOOR_SHARE
            }),
            slower_than_eager: pick(&|row| {
                bytes(row) < BANDWIDTH_BYTES
                    && row.peer(Peer::PyTorch).is_some_and(|us| us < row.timing.microseconds)
            }),
            vulkan_behind: pick(&|row| {
                bytes(row) >= VULKAN_BYTES
                    && row.vulkan_over().is_some_and(|over| over > MOST_VULKAN_OVER)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{
        join,
        tests::{printed, record},
    };

    fn lines(rows: &[&Row<'_>]) -> Vec<String> {
        rows.iter().map(|row| row.timing.case.to_string()).collect()
    }

    #[test]
    fn geometric_means_are_of_factors() {
        assert_eq!(geometric_mean(&[]), None);
        assert!((geometric_mean(&[2.0, 8.0]).unwrap() - 4.0).abs() < 1e-12);
        assert!((geometric_mean(&[0.5, 2.0]).unwrap() - 1.0).abs() < 1e-12);
    }

    /// Each mark looks at its own sizes and its own bound.
    #[test]
    fn marks_name_the_rows_that_miss_them() {
        let ours = record(&[
            ("sum f32 [268435456] axis all", 241.0),
            ("sum f32 [65536, 1024] axis 1", 70.0),
            ("norm_l2 f32 [65536, 1024] axis 1", 60.0),
            ("sum f32 [1024] axis all", 13.0),
        ]);
        let vulkan = record(&[
            ("sum f32 [268435456] axis all", 300.0),
            ("sum f32 [65536, 1024] axis 1", 71.0),
            ("sum f32 [1024] axis all", 90.0),
        ]);
        let rows = join(&ours, Some(&vulkan), &printed());
        let summary = Summary::of(&rows, &ours.floor);
        assert_eq!(summary.compared, 3);
        let leads = 1.0 * (62.6 / 70.0) * (73.6 / 60.0);
        assert!((summary.mean_lead.unwrap() - f64::cbrt(leads)).abs() < 1e-12);
        assert_eq!(lines(&summary.behind), ["sum f32 [65536, 1024] axis 1"]);
        // 2^28 bytes in 60 us, which is faster than any peer and than the record's own 4 TB/s. At
        // that rate and with 9 us for the launch, 70 us are 98 % of the floor and 300 us 83 %.
        assert!((summary.floor.read_gigabytes_per_second - 4473.9).abs() < 0.1);
        assert_eq!(lines(&summary.far_from_floor), Vec::<String>::new());
        assert_eq!(lines(&summary.slower_than_eager), ["sum f32 [1024] axis all"]);
        assert_eq!(lines(&summary.vulkan_behind), ["sum f32 [268435456] axis all"]);

        let slow = record(&[("sum f32 [65536, 1024] axis 1", 80.0)]);
        let rows = join(&slow, None, &printed());
        let summary = Summary::of(&rows, &slow.floor);
        // The compiled peer's 62.6 us.
        assert!((summary.floor.read_gigabytes_per_second - 4288.1).abs() < 0.1);
        assert_eq!(lines(&summary.far_from_floor), ["sum f32 [65536, 1024] axis 1"]);
    }
}
