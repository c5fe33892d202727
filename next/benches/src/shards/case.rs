//! Tensors and how they are cut.

use std::{fmt, ops::Range};

use serde::{Deserialize, Serialize};

use super::ShardsArgumentError;

/// A tensor of f32 that is reduced over axis 0 and cut along it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CutCase {
    /// The extent of axis 0.
    pub rows: usize,
    /// The extent of axis 1; `None` for a vector.
    pub outputs: Option<usize>,
}

impl CutCase {
    /// A vector, and a matrix with `outputs` columns, of `elements` each; the matrix has the rows
    /// that are whole.
    ///
    /// # Errors
    ///
    /// Elements that no 64 bits count the bytes of, or fewer rows than `shards`.
    pub fn both(
        elements: usize,
        outputs: usize,
        shards: usize,
    ) -> Result<[Self; 2], ShardsArgumentError> {
        if elements.checked_mul(size_of::<f32>()).is_none() {
            return Err(ShardsArgumentError::TooMany(elements));
        }
        if outputs == 0 {
            return Err(ShardsArgumentError::Zero("--outputs"));
        }
        let rows = elements / outputs;
        // A vector has at least as many rows.
        if rows < shards {
            return Err(ShardsArgumentError::TooFew { elements, outputs, rows, shards });
        }
        let vector = Self { rows: elements, outputs: None };
        Ok([vector, Self { rows, outputs: Some(outputs) }])
    }

    /// Elements of a row.
    pub fn row_len(&self) -> usize {
        self.outputs.unwrap_or(1)
    }

    /// Shape of a part of `rows` rows.
    pub fn shape(&self, rows: usize) -> Vec<usize> {
        [Some(rows), self.outputs].into_iter().flatten().collect()
    }

    /// Bytes of `rows` rows.
    pub fn bytes(&self, rows: usize) -> u64 {
        (rows * self.row_len() * size_of::<f32>()) as u64
    }

    /// The rows of each of `shards` shards. Their numbers differ by one at most.
    pub fn shards(&self, shards: usize) -> Vec<Range<usize>> {
        let (least, larger) = (self.rows / shards, self.rows % shards);
        let start = |nth: usize| nth * least + nth.min(larger);
        (0..shards).map(|nth| start(nth)..start(nth + 1)).collect()
    }

    /// The rows that have larger elements than all others. They lie in the last eighth, so a wrong
    /// start of a shard shows in positions.
    pub fn peak(&self) -> Range<usize> {
        const ELEMENTS: usize = 4096;

        let start = self.rows - self.rows.div_ceil(8);
        let rows = ELEMENTS.div_ceil(self.row_len());
        start..self.rows.min(start + rows)
    }

    /// Bytes of the largest of `shards` shards, if that is more than the `available` bytes that an
    /// input on one device may have.
    pub fn too_large(&self, shards: usize, available: u64) -> Option<u64> {
        let needed = self.bytes(self.rows.div_ceil(shards));
        (needed > available).then_some(needed)
    }
}

impl fmt::Display for CutCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "f32 {:?} axis 0", self.shape(self.rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_cover_all_rows_evenly() {
        let case = CutCase { rows: 10, outputs: Some(3) };
        assert_eq!(case.shards(4), [0..3, 3..6, 6..8, 8..10]);
        assert_eq!(case.shards(2), [0..5, 5..10]);
        assert_eq!((case.shape(3), case.bytes(3)), (vec![3, 3], 36));
        let large = CutCase { rows: 50_000_000_000, outputs: None };
        assert_eq!(large.shards(2), [0..25_000_000_000, 25_000_000_000..50_000_000_000]);
        assert_eq!(large.to_string(), "f32 [50000000000] axis 0");
    }

    #[test]
    fn cases_have_rows_for_all_shards() {
        let [vector, columns] = CutCase::both(1 << 32, 1024, 8).unwrap();
        assert_eq!((vector.rows, columns.rows), (1 << 32, 1 << 22));
        assert_eq!(columns.to_string(), "f32 [4194304, 1024] axis 0");
        assert_eq!(
            CutCase::both(3000, 1024, 4),
            Err(ShardsArgumentError::TooFew { elements: 3000, outputs: 1024, rows: 2, shards: 4 })
        );
        assert_eq!(CutCase::both(8, 0, 1), Err(ShardsArgumentError::Zero("--outputs")));
        assert!(matches!(CutCase::both(usize::MAX, 1, 1), Err(ShardsArgumentError::TooMany(_))));
    }

    /// The largest elements lie in the last of up to eight shards, within the tensor.
    #[test]
    fn peaks_lie_in_the_last_shard() {
        for (rows, outputs) in [(1, None), (7, None), (1 << 32, None), (9, Some(1024))] {
            let case = CutCase { rows, outputs };
            let peak = case.peak();
            assert!(!peak.is_empty() && peak.end <= rows, "{case}: {peak:?}");
            let last = case.shards(rows.min(8)).pop().unwrap();
            assert!(peak.start >= last.start || rows < 16, "{case}: {peak:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_skipped() {
        let case = CutCase { rows: 1000, outputs: Some(1024) };
        assert_eq!(case.too_large(1, 4 << 20), None);
        assert_eq!(case.too_large(1, 4 << 18), Some(4_096_000));
        assert_eq!(case.too_large(4, 4 << 18), None);
        // The largest of three shards has 334 rows.
        assert_eq!(case.too_large(3, 333 * 4096), Some(334 * 4096));
    }
}
