//! The marks of the report, and the cases that miss them.

use reduce_kernels::{ElementType, OperatorName};

use reduce_programs::Floor;

use super::{BANDWIDTH_BYTES, MIB, Peer, Row};
use crate::Over;

/// Least lead over the fastest peer that a case may have.
pub(super) const LEAST_LEAD: f64 = 0.95;

/// Input bytes from which a case must reach `LEAST_READ_SHARE`.
const READ_BYTES: u64 = 256 * MIB;

/// Least share of the read bandwidth that a large case may reach.
pub(super) const LEAST_READ_SHARE: f64 = 0.9;

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
    /// The best rate that a full f32 sum reached in the run, in 10⁹ bytes per second.
    pub best_read: f64,
    /// Rows of 256 MiB and more below `LEAST_READ_SHARE` of `best_read`.
    pub slow_reads: Vec<&'a Row<'a>>,
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

/// Whether a row is a sum of everything in f32.
fn is_full_sum(row: &Row<'_>) -> bool {
    let case = &row.timing.case;
    (case.operator, case.element) == (OperatorName::Sum, ElementType::F32) && case.over == Over::All
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
        let best_read = rows
            .iter()
            .filter(|row| is_full_sum(row))
            .map(|row| row.timing.gigabytes_per_second)
            .fold(floor.read_gigabytes_per_second, f64::max);
        Self {
            mean_lead: geometric_mean(&leads),
            compared: leads.len(),
            behind: pick(&|row| {
                bytes(row) >= BANDWIDTH_BYTES && row.lead().is_some_and(|lead| lead < LEAST_LEAD)
            }),
            best_read,
            slow_reads: pick(&|row| {
                bytes(row) >= READ_BYTES
                    && row.timing.gigabytes_per_second < LEAST_READ_SHARE * best_read
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
        // 2^30 bytes in 241 us; 2^28 bytes in 70 us are 86 % of that, in 60 us more than it.
        assert!((summary.best_read - 4455.4).abs() < 0.1);
        assert_eq!(lines(&summary.slow_reads), ["sum f32 [65536, 1024] axis 1"]);
        assert_eq!(lines(&summary.slower_than_eager), ["sum f32 [1024] axis all"]);
        assert_eq!(lines(&summary.vulkan_behind), ["sum f32 [268435456] axis all"]);
    }
}
