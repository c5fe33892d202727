//! A problem as one line of text.

use core::fmt;

use super::{
    AppliedProblem, Companion, ListProblem, ListScanProblem, OperatorClass, Positions,
    Probabilities, Problem, Reproducible, ScanProblem, Second, TopKProblem,
    applied::AppliedSegments,
};

impl fmt::Display for Problem {
    /// One line, such as `sum(4 bytes, 1 field) f32 -> f32 | kept 8192:8192:1 | reduced 8192:1:0 |
    /// aligned 256 | spans 67108864, 8192`.
    ///
    /// A kept dimension reads `extent:stride:output_stride`, a reduced one
    /// `extent:stride:position_stride`, from the outermost to the innermost. Two problems are equal
    /// if and only if their lines are. `PlanStore` uses the line as a key. A change of the line is
    /// a change of the store's format.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every field is named here, so that a new one is not forgotten.
        let Self {
            operator,
            input,
            results,
            alignment,
            second,
            kept,
            reduced,
            input_span,
            output_span,
            positions,
            numerics,
        } = self;
        write_operator(f, operator)?;
        write!(f, " {input} ->")?;
        write_list(f, results)?;
        f.write_str(" | kept")?;
        let kept = kept.iter().map(|dim| Triple(dim.extent, dim.stride, dim.output_stride));
        write_list(f, kept)?;
        f.write_str(" | reduced")?;
        let reduced = reduced.iter().map(|dim| Triple(dim.extent, dim.stride, dim.position_stride));
        write_list(f, reduced)?;
        write!(f, " | aligned {alignment} | spans {input_span}, {output_span}")?;
        if let Some(Positions { start, count }) = positions {
            write!(f, " | positions from {start} of {count}")?;
        }
        if let Some(second) = second {
            write_second(f, second)?;
        }
        numerics.write_unusual(f, " | ")
    }
}

impl fmt::Display for TopKProblem {
    /// One line: the numbers of selected elements and of those that are written, their stride and
    /// their span, the line of the slices, which probabilities are written, if any are, and whether
    /// there is a mask.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The sums of exponentials follow from the rest.
        let Self { slices, k, written, rank_stride, span, probabilities, sums: _, masked } = self;
        write!(f, "top_k {written} of {k}, {rank_stride} apart, span {span} | {slices}")?;
        // The type of probabilities is that of the first result of the slices.
        if let Some(Probabilities { over, .. }) = probabilities {
            write!(f, " | probabilities over {over}")?;
        }
        f.write_str(if *masked { " | mask" } else { "" })
    }
}

impl fmt::Display for AppliedProblem {
    /// One line: that of the reduction with the output in place of its results, and the strides of
    /// each companion.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { problem, companions, companion_span, stores_results, further, segments } = self;
        write!(f, "applied {problem}")?;
        for Companion { kept, reduced } in companions {
            f.write_str(" | companion kept")?;
            write_list(f, kept)?;
            f.write_str(" reduced")?;
            write_list(f, reduced)?;
        }
        write!(f, " | companions span {companion_span}")?;
        f.write_str(if *stores_results { " | stores results" } else { "" })?;
        for element in further {
            write!(f, " | and to {element}")?;
        }
        if let Some(AppliedSegments { reduction, strides }) = segments {
            f.write_str(" | of segments")?;
            write_list(f, strides)?;
            write!(f, " apart: {reduction}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ScanProblem {
    /// One line: that of the reduction, and the strides of the outputs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What comes before the rows has no effect on which plan is the best.
        let Self { problem, output: Companion { kept, reduced }, earlier: _, exclusive, reverse } =
            self;
        write!(f, "scan {problem} | outputs kept")?;
        write_list(f, kept)?;
        f.write_str(" scanned")?;
        write_list(f, reduced)?;
        f.write_str(if *exclusive { " | exclusive" } else { "" })?;
        f.write_str(if *reverse { " | reverse" } else { "" })
    }
}

impl fmt::Display for ListScanProblem {
    /// One line: the line of each tensor. Tensors that are equal and follow each other are written
    /// once, with their number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("list_scan")?;
        for equal in self.tensors.chunk_by(PartialEq::eq) {
            write!(f, " | {} times ({})", equal.len(), equal[0])?;
        }
        Ok(())
    }
}

impl fmt::Display for ListProblem {
    /// One line: the line of each tensor. Tensors that are equal and follow each other are written
    /// once, with their number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operator, results, tensors, numerics } = self;
        f.write_str("list ")?;
        write_operator(f, operator)?;
        f.write_str(" ->")?;
        write_list(f, results)?;
        for equal in tensors.chunk_by(PartialEq::eq) {
            write!(f, " | {} times ({})", equal.len(), equal[0])?;
        }
        numerics.write_unusual(f, " | ")
    }
}

/// Three numbers, separated by colons.
struct Triple(usize, usize, usize);

impl fmt::Display for Triple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.0, self.1, self.2)
    }
}

fn write_operator(f: &mut fmt::Formatter<'_>, operator: &OperatorClass) -> fmt::Result {
    let OperatorClass {
        name,
        accumulator_bytes,
        fields,
        positional,
        defined_on_empty,
        element_cost,
        blockwise,
        passes_bytes,
        reproducible,
    } = *operator;
    // Names with other characters are quoted, so that they cannot look like the rest of the line.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if !name.is_empty() && name.bytes().all(is_plain) {
        f.write_str(name)?;
    } else {
        write!(f, "\"{}\"", name.escape_default())?;
    }
    let plural = if fields == 1 { "" } else { "s" };
    write!(f, "({accumulator_bytes} bytes, {fields} field{plural}")?;
    for (holds, property) in [
        (positional, "positional"),
        (!defined_on_empty, "undefined on empty"),
        // The line does not tell a power from an exponential: an operator's name stands for one of
        // them.
        (element_cost.is_transcendental(), "transcendental"),
        (blockwise, "blockwise"),
        (reproducible == Reproducible::ByPosition, "by position"),
        (reproducible == Reproducible::Exact, "exact"),
    ] {
        if holds {
            write!(f, ", {property}")?;
        }
    }
    if let Some(bytes) = passes_bytes {
        write!(f, ", two passes of {bytes} bytes")?;
    }
    f.write_str(")")
}

fn write_second(f: &mut fmt::Formatter<'_>, second: &Second) -> fmt::Result {
    let Second { element, alignment, strides: Companion { kept, reduced }, span } = second;
    write!(f, " | second {element} | kept")?;
    write_list(f, kept)?;
    f.write_str(" | reduced")?;
    write_list(f, reduced)?;
    write!(f, " | aligned {alignment} | span {span}")
}

/// Writes each item with a space before it, or `none` if there is no item.
fn write_list<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    items: impl IntoIterator<Item = T>,
) -> fmt::Result {
    let mut is_empty = true;
    for item in items {
        is_empty = false;
        write!(f, " {item}")?;
    }
    if is_empty { f.write_str(" none") } else { Ok(()) }
}
