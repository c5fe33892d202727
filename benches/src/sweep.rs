//! Sweeps over neighbouring shapes with the same number of elements. A rate that falls between two
//! neighbours reveals a wrong choice of plan.

use reduce_kernels::{ElementType, by_name::OperatorName};

use crate::{Case, Over};

/// Base-2 logarithm of the elements of the usual sweep: 256 MiB of f32.
pub const USUAL_LOG2: u32 = 26;

/// Base-2 logarithm of the elements of the large sweep: 1 GiB of f32.
pub const LARGE_LOG2: u32 = 28;

/// Largest inner kept dimension.
const WIDEST_INNER: usize = 64;

/// Reduced length before a narrow inner dimension.
const BEFORE_INNER: usize = 64;

/// One line of a sweep's picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Series {
    /// Matrices (2^i, 2^(n-i)) summed along an axis; `odd` ones have rows one element shorter.
    Aspect {
        /// Base-2 logarithm of the elements, n.
        log2: u32,
        /// The reduced axis.
        axis: usize,
        /// Whether rows are one element shorter.
        odd: bool,
    },
    /// An inner dimension of few indices that is kept.
    Inner {
        /// The reduced axis: 0 of (long, k), or 1 of (long, 64, k).
        axis: usize,
    },
}

impl Series {
    /// Base-2 logarithm of the elements of its points, or of their even neighbours.
    pub fn log2(self) -> u32 {
        match self {
            Series::Aspect { log2, .. } => log2,
            Series::Inner { .. } => USUAL_LOG2,
        }
    }
}

/// A case and where it stands in its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// The line.
    pub series: Series,
    /// i of (2^i, 2^(n-i)), or the extent of the inner dimension.
    pub x: usize,
    /// The case.
    pub case: Case,
}

fn sum(stored: Vec<usize>, axis: usize) -> Case {
    let over = Over::Axes(vec![axis]);
    Case { operator: OperatorName::Sum, element: ElementType::F32, stored, over }
}

/// f32 sums of matrices (2^i, 2^(log2-i)) for every i along both axes, and the same with rows one
/// element shorter, as far as these have more than one element.
pub fn aspects(log2: u32) -> Vec<Point> {
    let mut points = Vec::new();
    for axis in [1, 0] {
        for odd in [false, true] {
            for i in 0..=log2 {
                let (outer, inner) = (1usize << i, 1usize << (log2 - i));
                if odd && inner < 4 {
                    continue;
                }
                let case = sum(vec![outer, inner - usize::from(odd)], axis);
                points.push(Point {
                    series: Series::Aspect { log2, axis, odd },
                    x: i as usize,
                    case,
                });
            }
        }
    }
    points
}

/// f32 sums of 256 MiB that keep an inner dimension of 1 to 64 indices.
pub fn inner_dimensions() -> Vec<Point> {
    let elements = 1usize << USUAL_LOG2;
    let narrow = (1..=WIDEST_INNER).map(|k| Point {
        series: Series::Inner { axis: 0 },
        x: k,
        case: sum(vec![elements / k, k], 0),
    });
    let batched = (1..=WIDEST_INNER).map(|k| Point {
        series: Series::Inner { axis: 1 },
        x: k,
        case: sum(vec![elements / (BEFORE_INNER * k), BEFORE_INNER, k], 1),
    });
    narrow.chain(batched).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mark applies to points of 256 MiB.
    #[test]
    fn points_are_as_large_as_the_mark_asks() {
        let even = |point: &Point| !matches!(point.series, Series::Aspect { odd: true, .. });
        for point in aspects(USUAL_LOG2).into_iter().chain(inner_dimensions()).filter(even) {
            let mib = point.case.input_bytes() as f64 / f64::from(1 << 20);
            assert!((255.0..=256.0).contains(&mib), "{}: {mib} MiB", point.case);
        }
    }

    /// An odd point is compared with its even neighbour, so each must have one.
    #[test]
    fn odd_points_have_even_neighbours() {
        let points = aspects(USUAL_LOG2);
        for odd in &points {
            let Series::Aspect { log2, axis, odd: true } = odd.series else { continue };
            assert_eq!(odd.case.stored[1] % 2, 1);
            assert!(points.iter().any(|even| {
                even.x == odd.x && even.series == Series::Aspect { log2, axis, odd: false }
            }));
        }
    }
}
