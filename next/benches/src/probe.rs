//! The cases that a calibration times.

use crate::Case;

/// Cases in which each number of a device's profile counts for much somewhere, with at most
/// `1 << log2` elements.
///
/// # Panics
///
/// If `log2` is less than 16.
#[must_use]
pub fn probes(log2: u32) -> Vec<Case> {
    assert!(log2 >= 16, "2^{log2} elements are too few to time");
    let all = 1u64 << log2;
    // The rows of (operator, type): one of each cost of an element, and of each width.
    let rows = |wide: u64| format!("[{}, {wide}] axis 1", all / wide);
    let columns = |wide: u64| format!("[{}, {wide}] axis 0", all / wide);
    let mut lines: Vec<String> = Vec::new();
    let mut add = |operator: &str, place: String| lines.push(format!("{operator} {place}"));
    // Launches, hand-over and merging: few elements.
    for elements in [1 << 10, all >> 10, all >> 7, all >> 4, all >> 2, all] {
        add("sum f32", format!("[{}] axis all", elements.max(1 << 10)));
    }
    for operator in ["argmax f32", "var f32", "logsumexp f32"] {
        add(operator, format!("[{}] axis all", all >> 6));
        add(operator, format!("[{all}] axis all"));
    }
    // Segments: rows and columns from short to long.
    for wide in [3, 8, 32, 33, 256, 1024, 4096, 8192] {
        add("sum f32", rows(wide));
    }
    for wide in [2, 3, 16, 64, 255, 1024, 1023, 4096] {
        add("sum f32", columns(wide));
    }
    // Arithmetic: other operators and types along both directions.
    for operator in
        ["argmax f32", "var f32", "logsumexp f32", "sum bf16", "var bf16", "sum f64", "max i8"]
    {
        add(operator, rows(1024));
        add(operator, columns(1024));
    }
    for operator in ["sum f32", "argmax f32"] {
        add(operator, format!("[{}, 64, 63] axis 1", all >> 12));
        add(operator, format!("[{}, 64, 64] axis 1", all >> 12));
    }
    lines.iter().map(|line| line.parse().expect("a probe is a case")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regret::problem;

    /// Each probe is a reduction of its own that the library can plan, whatever their size.
    #[test]
    fn probes_are_distinct_reductions() {
        for log2 in [16, 20, 26] {
            let cases = probes(log2);
            for (nth, case) in cases.iter().enumerate() {
                assert!(problem(case).is_ok(), "{case}");
                assert!(case.elements() <= 1 << log2, "{case}");
                assert!(log2 < 22 || !cases[..nth].contains(case), "{case} is there twice");
            }
        }
    }
}
