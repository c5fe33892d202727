//! Tables in Markdown.

use std::fmt::Write;

use comfy_table::{Table, presets};
use reduce_programs::{Floor, gigabytes_per_second};

use super::{
    BANDWIDTH_BYTES, MIB, Peer, Row, Summary,
    neighbours::{LEAST_SHARE, MOST_ODD_OVER, Measured, Neighbours},
    summary::{LEAST_FLOOR_SHARE, LEAST_LEAD, MOST_VULKAN_OVER},
};
use crate::{
    Record,
    sweep::{LARGE_LOG2, USUAL_LOG2},
};

fn microseconds(us: f64) -> String {
    if us < 1000.0 { format!("{us:.1}") } else { format!("{us:.0}") }
}

fn or_dash<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".into(), text)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn mib(bytes: u64) -> String {
    let mib = bytes as f64 / MIB as f64;
    if mib < 1.0 { format!("{mib:.3}") } else { format!("{mib:.0}") }
}

/// A count in words with what it counts, and a list of the rows below it.
fn listed<T>(text: &mut String, statement: &str, rows: &[T], line: impl Fn(&T) -> String) {
    let count = if rows.is_empty() { "none".into() } else { rows.len().to_string() };
    let _ = writeln!(text, "- {statement}: {count}");
    for row in rows {
        let _ = writeln!(text, "  - {}", line(row));
    }
}

fn table(rows: &[&Row<'_>], floor: &Floor, with_vulkan: bool) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let mut header = vec!["case", "MiB"];
    header.extend(Peer::ALL.map(Peer::name));
    header.extend(["ours", "TB/s", "of floor", "best peer / ours", "kernel alone"]);
    header.extend(with_vulkan.then_some("Vulkan / CUDA"));
    table.set_header(header);
    for row in rows {
        let timing = row.timing;
        let mut cells = vec![timing.case.to_string(), mib(timing.case.input_bytes())];
        cells.extend(row.peers.map(|us| or_dash(us, microseconds)));
        cells.extend([
            microseconds(timing.microseconds),
            format!("{:.2}", timing.gigabytes_per_second / 1e3),
            percent(row.floor_share(floor)),
            or_dash(row.lead(), |lead| format!("{lead:.2}")),
            or_dash(timing.kernel_microseconds, microseconds),
        ]);
        if with_vulkan {
            cells.push(or_dash(row.vulkan_over(), |over| format!("{over:.2}")));
        }
        table.add_row(cells);
    }
    table.to_string()
}

fn named(row: &Row<'_>, figure: String) -> String {
    format!("`{}`: {figure}", row.timing.case)
}

/// The whole report in Markdown: the summary, then a table of the cases of 16 MiB and more and one
/// of those below. Times are microseconds per call.
pub fn side_by_side_markdown(record: &Record, rows: &[Row<'_>]) -> String {
    let summary = Summary::of(rows, &record.floor);
    let mut text = String::new();
    let _ = writeln!(
        text,
        "`{}`, {} multiprocessors. Best rate of any engine {:.2} TB/s, one launch {:.1} µs. \
         Times are microseconds per call in a stream of back-to-back calls over rotating buffers.\n",
        record.runtime,
        record.device.multiprocessors,
        summary.floor.read_gigabytes_per_second / 1e3,
        summary.floor.launch_microseconds,
    );
    let _ = writeln!(
        text,
        "- 16 MiB and more: geometric mean of best peer / ours over {} cells: {}",
        summary.compared,
        or_dash(summary.mean_lead, |lead| format!("{lead:.3}")),
    );
    listed(&mut text, &format!("cells below {LEAST_LEAD}"), &summary.behind, |row| {
        let peer = row.best_peer().map_or("", |(peer, _)| peer.name());
        named(row, or_dash(row.lead(), |lead| format!("{lead:.3}, {peer}")))
    });
    let share = percent(LEAST_FLOOR_SHARE);
    let statement = format!("64 MiB and more, below {share} of the floor");
    listed(&mut text, &statement, &summary.far_from_floor, |row| {
        named(row, percent(row.floor_share(&summary.floor)))
    });
    let statement = "below 16 MiB, slower than PyTorch's eager mode";
    listed(&mut text, statement, &summary.slower_than_eager, |row| {
        let eager = or_dash(row.peer(Peer::PyTorch), microseconds);
        named(row, format!("{} µs, PyTorch {eager} µs", microseconds(row.timing.microseconds)))
    });
    let with_vulkan = rows.iter().any(|row| row.vulkan.is_some());
    if with_vulkan {
        let statement = format!("64 MiB and more, Vulkan above {MOST_VULKAN_OVER} of CUDA's time");
        listed(&mut text, &statement, &summary.vulkan_behind, |row| {
            named(row, or_dash(row.vulkan_over(), |over| format!("{over:.2}")))
        });
    }
    let (large, small): (Vec<&Row<'_>>, Vec<_>) =
        rows.iter().partition(|row| row.timing.case.input_bytes() >= BANDWIDTH_BYTES);
    for (title, rows) in [("16 MiB and more", large), ("Below 16 MiB", small)] {
        if !rows.is_empty() {
            let _ =
                writeln!(text, "\n### {title}\n\n{}", table(&rows, &summary.floor, with_vulkan));
        }
    }
    text
}

/// The sweeps' marks in Markdown, with the points that miss them.
pub fn sweep_markdown(record: &Record) -> String {
    let neighbours = Neighbours::of(record);
    let mut text = String::new();
    let _ = writeln!(text, "`{}`: {} points.", record.runtime, neighbours.points.len());
    for log2 in [USUAL_LOG2, LARGE_LOG2] {
        let best = neighbours.best(log2);
        if best > 0.0 {
            let _ = writeln!(text, "Best of {} MiB: {:.2} TB/s.", (4 << log2) / MIB, best / 1e3);
        }
    }
    text.push('\n');
    let point = |measured: &Measured<'_>, figure: String| {
        let timing = measured.timing;
        let rate = gigabytes_per_second(timing.bytes, timing.microseconds) / 1e3;
        format!("`{}`: {figure} ({rate:.2} TB/s; {})", timing.case, timing.plan_text)
    };
    let statement = format!("points below {} of the best of their size", percent(LEAST_SHARE));
    listed(&mut text, &statement, &neighbours.slow(), |&(measured, share)| {
        point(measured, percent(share))
    });
    let statement = format!("odd points above {MOST_ODD_OVER} of their even neighbour per byte");
    listed(&mut text, &statement, &neighbours.slow_odd(), |&(measured, factor)| {
        point(measured, format!("{factor:.2}"))
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{
        join,
        tests::{printed, record},
    };

    /// A reader finds each case in the table of its size, with everyone's time.
    #[test]
    fn tables_hold_the_joined_rows() {
        let ours =
            record(&[("sum f32 [65536, 1024] axis 1", 60.0), ("sum f32 [1024] axis all", 9.0)]);
        let rows = join(&ours, None, &printed());
        let text = side_by_side_markdown(&ours, &rows);
        let (large, small) = text.split_once("### Below 16 MiB").unwrap();
        let cells = |text: &str, case: &str| -> Vec<String> {
            let row = text.lines().find(|line| line.starts_with(&format!("| {case}"))).unwrap();
            row.split('|').map(|cell| cell.trim().to_owned()).collect()
        };
        let row = cells(large, "sum f32 [65536, 1024] axis 1");
        assert_eq!(row[2..7], ["256", "136.0", "73.1", "62.6", "-"]);
        // The floor is 9 us and the bytes at our own rate, the best of all.
        assert_eq!(row[7..11], ["60.0", "4.47", "115 %", "1.04"]);
        assert_eq!(cells(small, "sum f32 [1024] axis all")[4], "12.1");
        assert!(text.contains("over 1 cells: 1.043"), "{text}");
        assert!(!text.contains("Vulkan"));
    }
}
