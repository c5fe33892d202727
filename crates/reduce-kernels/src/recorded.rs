//! Calls as data: what a program computes, recorded to be planned and tuned elsewhere.

use core::fmt;

use reduce_planner::{ElementType, Numerics, Probabilities, reduced_axes};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{error::ReduceError, operator::Operator};

/// A call of any kind as data: everything that decides its problem, and no tensor.
///
/// [`recorded`](crate::plans::recorded) gives those of a process. One line of JSON holds one of
/// them ([`to_json`](Self::to_json), [`parse`](Self::parse)), and a file of them has a line for
/// each. Only the names of operators and functions are kept, because their parameters do not change
/// a plan.
///
/// ```
/// use reduce_kernels::{ElementType, TensorDescription, normalize::Softmax, plans::RecordedCall};
///
/// let x = TensorDescription::row_major(ElementType::BF16, [64, 1000]);
/// let line = Softmax.of(&x, 1).record()?.to_json();
///
/// let read = RecordedCall::parse(&line)?;
/// assert_eq!(read.to_string(), "exponential_share after softmax_sums bf16 [64, 1000] axis 1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// A line does not name the kind: the first variant whose fields fit is read. A new variant needs
// fields that no other variant has, and `deny_unknown_fields` on its type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum RecordedCall {
    /// A reduction.
    Reduction(RecordedReduction),
    /// A reduction whose results are applied to its elements.
    Application(RecordedApplication),
    /// A list of tensors.
    List(RecordedList),
    /// A list whose results are applied to its elements.
    ListApplication(RecordedListApplication),
    /// A selection of a few elements of each slice.
    TopK(RecordedTopK),
    /// A reduction of segments.
    Segments(RecordedSegments),
    /// A scan.
    Scan(RecordedScan),
    /// A list of tensors that are scanned.
    ListScan(RecordedListScan),
}

/// A reduction as data: everything that decides its [`Problem`](crate::planner::Problem), and no
/// tensor.
///
/// [`Reduction::record`](crate::Reduction::record) gives that of one reduction. It does not matter
/// whether reduced axes stay with size 1.
///
/// ```
/// use reduce_kernels::{ElementType, Sum, TensorDescription, plans::RecordedReduction, reduce};
///
/// let x = TensorDescription::row_major(ElementType::F16, [64, 1000]);
/// let rows = reduce(Sum, &x).over(1).output_type(ElementType::F32);
/// let line = rows.record()?.to_json();
///
/// let read = RecordedReduction::parse(&line)?;
/// assert_eq!(read.to_string(), "sum f16 [64, 1000] axis 1 to f32");
/// assert_eq!(read.problem::<Sum>()?, rows.problem()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RecordedReduction {
    /// Name of the operator: `sum`, or `sum of product` if it has a map.
    pub operator: String,
    /// Type of the input's elements.
    pub element: ElementType,
    /// Shape of the input.
    pub shape: Vec<usize>,
    /// Strides of the input, in elements.
    pub strides: Vec<usize>,
    /// Alignment in bytes of the input's first element, 16 at most.
    pub alignment: usize,
    /// The reduced axes; `None` means all axes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub axes: Option<Vec<usize>>,
    /// The second input, of an operator that takes two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second: Option<RecordedOperand>,
    /// The type of the accumulator that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulator: Option<ElementType>,
    /// The type of each result that was asked for.
    #[serde(default, skip_serializing_if = "is_none_asked_for")]
    pub outputs: [Option<ElementType>; 3],
    /// Strides along the kept axes of an output that the caller supplied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_strides: Option<Vec<usize>>,
    /// What the bits of the results may depend on.
    #[serde(default, skip_serializing_if = "is_default")]
    pub numerics: Numerics,
}

/// A tensor beside the input: a second input, an operand, or positions to write.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RecordedOperand {
    /// Type of its elements.
    pub element: ElementType,
    /// Its strides along the axes of the first input, in elements: 0 where it repeats its elements.
    pub strides: Vec<usize>,
    /// Its stride from one segment to the next, of an operand that has segments in place of the
    /// axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment_stride: Option<usize>,
    /// Alignment in bytes of its first element, 16 at most.
    pub alignment: usize,
}

/// An application as data: everything that decides its
/// [`AppliedProblem`](crate::planner::AppliedProblem), and no tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RecordedApplication {
    /// Name of the function.
    pub function: String,
    /// The reduction, whose results have the type in which they are applied.
    pub reduction: RecordedReduction,
    /// Number of segments of the axis, and type of their offsets, if results are those of segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<(usize, ElementType)>,
    /// Types of the indices and of the keys, if the segments are groups of elements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grouped: Option<(ElementType, ElementType)>,
    /// The type of the output that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<ElementType>,
    /// Strides along the axes of the input, and alignment in bytes, of an output that the caller
    /// supplied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_layout: Option<(Vec<usize>, usize)>,
    /// The outputs beside the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<RecordedOutput>,
    /// The operands, without a second input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operands: Vec<RecordedOperand>,
    /// Whether the results of the reduction were asked for too.
    pub with_results: bool,
}

/// An output of an application beside the first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RecordedOutput {
    /// The type that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<ElementType>,
    /// Strides along the axes of the input, and alignment in bytes, of one that the caller
    /// supplied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<(Vec<usize>, usize)>,
}

/// A list of tensors as data: everything that decides its
/// [`ListProblem`](crate::planner::ListProblem), and no tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RecordedList {
    /// Name of the operator.
    pub operator: String,
    /// The tensors.
    pub tensors: Vec<RecordedTensor>,
    /// The type of the accumulator that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulator: Option<ElementType>,
    /// The type of each result that was asked for.
    #[serde(default, skip_serializing_if = "is_none_asked_for")]
    pub outputs: [Option<ElementType>; 3],
    /// What the bits of the results may depend on.
    #[serde(default, skip_serializing_if = "is_default")]
    pub numerics: Numerics,
}

/// A tensor of a [`RecordedList`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RecordedTensor {
    /// Type of its elements.
    pub element: ElementType,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its strides, in elements.
    pub strides: Vec<usize>,
    /// Alignment in bytes of its first element, 16 at most.
    pub alignment: usize,
}

/// The application of a list's results as data: everything that decides its
/// [`AppliedListProblem`](crate::planner::AppliedListProblem), and no tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RecordedListApplication {
    /// Name of the function.
    pub function: String,
    /// The list, whose results have the type in which they are applied.
    pub list: RecordedList,
    /// Whether the elements are replaced.
    pub in_place: bool,
}

/// A selection as data: everything that decides its [`TopKProblem`](crate::planner::TopKProblem),
/// and no tensor. Which elements come first does not change a plan.
///
/// ```
/// use reduce_kernels::{ElementType, TensorDescription, plans::RecordedCall, top_k::largest};
///
/// let x = TensorDescription::row_major(ElementType::BF16, [64, 1000]);
/// let line = largest(8, &x).over(1).record()?.to_json();
/// assert_eq!(RecordedCall::parse(&line)?.to_string(), "top_k 8 of bf16 [64, 1000] axis 1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RecordedTopK {
    /// Elements that are selected of each slice.
    pub k: usize,
    /// How many of them are written, if not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<usize>,
    /// Type of the input's elements.
    pub element: ElementType,
    /// Shape of the input.
    pub shape: Vec<usize>,
    /// Strides of the input, in elements.
    pub strides: Vec<usize>,
    /// Alignment in bytes of the input's first element, 16 at most.
    pub alignment: usize,
    /// The axes of a slice; `None` means all axes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub axes: Option<Vec<usize>>,
    /// The type of the positions that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positions: Option<ElementType>,
    /// The probabilities that are written in place of values, if these are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probabilities: Option<Probabilities>,
    /// The tensor of positions that are written in place of those in the slice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<RecordedOperand>,
    /// Strides of outputs that the caller supplied, one for each kept axis and for the last axis of
    /// a slice, in the order of the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_strides: Option<Vec<usize>>,
    /// Strides along the axes of the input of the tensor that a mask writes, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask_strides: Option<Vec<usize>>,
}

/// A reduction of segments as data: everything that decides its
/// [`SegmentsProblem`](crate::planner::SegmentsProblem), and no tensor.
///
/// ```
/// use reduce_kernels::{ElementType, Sum, TensorDescription, plans::RecordedCall, reduce};
///
/// let x = TensorDescription::row_major(ElementType::BF16, [64, 1000]);
/// let offsets = TensorDescription::row_major(ElementType::I32, [9]);
/// let line = reduce(Sum, &x).over(1).segments(&offsets).record()?.to_json();
/// let told = RecordedCall::parse(&line)?.to_string();
/// assert_eq!(told, "8 segments by i32 of sum bf16 [64, 1000] axis 1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RecordedSegments {
    /// The reduction of the whole axis, without output strides.
    pub axis: RecordedReduction,
    /// Number of segments.
    pub segments: usize,
    /// Type of the offsets.
    pub offsets: ElementType,
    /// Number and type of the indices of the elements that segments have, if these are not
    /// neighbours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indices: Option<(usize, ElementType)>,
    /// Strides of outputs that the caller supplied, one for each axis of the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_strides: Option<Vec<usize>>,
}

/// A scan as data: everything that decides its [`ScanProblem`](crate::planner::ScanProblem), and no
/// tensor.
///
/// ```
/// use reduce_kernels::{ElementType, Sum, TensorDescription, plans::RecordedCall, scan::scan};
///
/// let x = TensorDescription::row_major(ElementType::F32, [64, 1000]);
/// let line = scan(Sum, &x).over(1).reverse().record()?.to_json();
/// let told = RecordedCall::parse(&line)?.to_string();
/// assert_eq!(told, "reverse scan of sum f32 [64, 1000] axis 1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RecordedScan {
    /// The reduction whose results each position has, without output strides.
    pub scanned: RecordedReduction,
    /// Whether the element at a position is left out of the result there.
    #[serde(default)]
    pub exclusive: bool,
    /// Whether results are of the elements from a position to the last one.
    #[serde(default)]
    pub reverse: bool,
    /// Strides, one for each axis of the input, and alignment in bytes of outputs that the caller
    /// supplied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_layout: Option<(Vec<usize>, usize)>,
}

/// A list of scans as data: everything that decides its
/// [`ListScanProblem`](crate::planner::ListScanProblem), and no tensor.
///
/// ```
/// use reduce_kernels::{ElementType, Sum, TensorDescription, list::scan_list, plans::RecordedCall};
///
/// let tensors = [9, 700].map(|rows| TensorDescription::row_major(ElementType::F32, [rows, 64]));
/// let line = scan_list(Sum, &tensors).over(1).record()?.to_json();
/// let told = RecordedCall::parse(&line)?.to_string();
/// assert_eq!(told, "scan along axis 1 of sum of 2 tensors of 45376 elements");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RecordedListScan {
    /// The tensors, and the reduction whose results each position has.
    pub list: RecordedList,
    /// The scanned axes of each tensor; `None` means all axes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub axes: Option<Vec<usize>>,
    /// Whether the element at a position is left out of the result there.
    #[serde(default)]
    pub exclusive: bool,
    /// Whether results are of the elements from a position to the last one.
    #[serde(default)]
    pub reverse: bool,
}

/// The error for text that is no recorded call.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is no recorded call: {error}")]
pub struct RecordedError {
    text: String,
    #[source]
    error: serde_json::Error,
}

fn is_default(numerics: &Numerics) -> bool {
    *numerics == Numerics::default()
}

fn is_none_asked_for(outputs: &[Option<ElementType>; 3]) -> bool {
    outputs.iter().all(Option::is_none)
}

impl RecordedReduction {
    /// Whether this is a reduction by `O`, as far as names tell.
    #[must_use]
    pub fn is_of<O: Operator>(&self) -> bool {
        self.operator == O::DEFINITION.erased().name()
    }

    /// The extents of the axes that are not reduced: the shape of a result without the others.
    ///
    /// # Errors
    ///
    /// Invalid axes.
    pub fn kept_shape(&self) -> Result<Vec<usize>, ReduceError> {
        let is_reduced = reduced_axes(self.shape.len(), self.axes.as_deref())?;
        let kept = self.shape.iter().zip(is_reduced).filter(|(_, reduced)| !reduced);
        Ok(kept.map(|(&extent, _)| extent).collect())
    }

    /// The reduction as a line of JSON, which [`parse`](Self::parse) reads.
    #[must_use]
    pub fn to_json(&self) -> String {
        line(self)
    }

    /// Reads what [`to_json`](Self::to_json) wrote. The text may come from anywhere:
    /// [`problem`](Self::problem) checks what it says.
    ///
    /// # Errors
    ///
    /// The text is not JSON, or has other fields.
    pub fn parse(text: &str) -> Result<Self, RecordedError> {
        parsed(text)
    }
}

impl RecordedCall {
    /// The call as a line of JSON, which [`parse`](Self::parse) reads.
    #[must_use]
    pub fn to_json(&self) -> String {
        line(self)
    }

    /// Reads what [`to_json`](Self::to_json) wrote, and what [`RecordedReduction::to_json`] wrote.
    /// The text may come from anywhere: whoever states the problem checks what it says.
    ///
    /// # Errors
    ///
    /// The text is not JSON, or has other fields.
    pub fn parse(text: &str) -> Result<Self, RecordedError> {
        parsed(text)
    }
}

fn line(recorded: &impl Serialize) -> String {
    serde_json::to_string(recorded).expect("names and numbers are JSON")
}

fn parsed<R: DeserializeOwned>(text: &str) -> Result<R, RecordedError> {
    serde_json::from_str(text).map_err(|error| RecordedError { text: text.to_owned(), error })
}

impl RecordedOperand {
    pub(crate) fn new(element: ElementType, strides: &[usize], alignment: usize) -> Self {
        Self { element, strides: strides.to_vec(), segment_stride: None, alignment }
    }
}

impl RecordedApplication {
    /// All outputs, in turn.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = RecordedOutput> {
        let first = RecordedOutput { element: self.output, layout: self.output_layout.clone() };
        core::iter::once(first).chain(self.further.iter().cloned())
    }
}

impl fmt::Display for RecordedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordedCall::Reduction(reduction) => reduction.fmt(f),
            RecordedCall::Application(application) => application.fmt(f),
            RecordedCall::List(list) => list.fmt(f),
            RecordedCall::ListApplication(application) => application.fmt(f),
            RecordedCall::TopK(selection) => selection.fmt(f),
            RecordedCall::Segments(segments) => segments.fmt(f),
            RecordedCall::Scan(scan) => scan.fmt(f),
            RecordedCall::ListScan(list) => list.fmt(f),
        }
    }
}

impl fmt::Display for RecordedScan {
    /// The reduction, preceded by what is not as usual, and followed by the outputs' strides.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scanned, exclusive, reverse, output_layout } = self;
        f.write_str(if *exclusive { "exclusive " } else { "" })?;
        f.write_str(if *reverse { "reverse " } else { "" })?;
        write!(f, "scan of {scanned}")?;
        match output_layout {
            Some((strides, _)) => write!(f, " output strides {strides:?}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for RecordedListScan {
    /// The list, preceded by the axes and by what is not as usual.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { list, axes, exclusive, reverse } = self;
        f.write_str(if *exclusive { "exclusive " } else { "" })?;
        f.write_str(if *reverse { "reverse " } else { "" })?;
        f.write_str("scan along axis ")?;
        write_axes(f, axes.as_deref())?;
        write!(f, " of {list}")
    }
}

impl fmt::Display for RecordedSegments {
    /// The number of segments and the reduction, followed by what is not as usual.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { axis, segments, offsets, indices, output_strides } = self;
        write!(f, "{segments} segments by {offsets} of ")?;
        if let Some((len, element)) = indices {
            write!(f, "{len} indices by {element} of ")?;
        }
        write!(f, "{axis}")?;
        match output_strides {
            Some(strides) => write!(f, " output strides {strides:?}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for RecordedApplication {
    /// The function and the reduction, followed by what is not as usual.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Results have the type in which they are applied, which the input's type says.
        let reduction = RecordedReduction { outputs: [None; 3], ..self.reduction.clone() };
        write!(f, "{} after ", self.function)?;
        if let Some((segments, offsets)) = self.segments {
            write!(f, "{segments} segments by {offsets} of ")?;
        }
        if let Some((indices, keys)) = self.grouped {
            write!(f, "indices by {indices} and keys by {keys} of ")?;
        }
        write!(f, "{reduction}")?;
        for RecordedOperand { element, strides, segment_stride, .. } in &self.operands {
            write!(f, " operand {element} strides {strides:?}")?;
            if let Some(stride) = segment_stride {
                write!(f, ", {stride} from segment to segment")?;
            }
        }
        for (nth, RecordedOutput { element, layout }) in self.outputs().enumerate() {
            f.write_str(if nth == 0 { "" } else { " and" })?;
            if let Some(element) = element {
                write!(f, " to {element}")?;
            }
            if let Some((strides, _)) = layout {
                write!(f, " output strides {strides:?}")?;
            }
        }
        f.write_str(if self.with_results { " with results" } else { "" })
    }
}

impl fmt::Display for RecordedList {
    /// The operator, and how many tensors of how many elements there are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_tensor = |tensor: &RecordedTensor| tensor.shape.iter().product::<usize>();
        let elements: usize = self.tensors.iter().map(of_tensor).sum();
        write!(f, "{} of {} tensors of {elements} elements", self.operator, self.tensors.len())
    }
}

impl fmt::Display for RecordedListApplication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} after {}", self.function, self.list)?;
        f.write_str(if self.in_place { " in place" } else { "" })
    }
}

/// Axes in the words of the benchmarks' cases.
fn write_axes(f: &mut fmt::Formatter<'_>, axes: Option<&[usize]>) -> fmt::Result {
    match axes {
        None => f.write_str("all"),
        Some([axis]) => write!(f, "{axis}"),
        Some(axes) => {
            let axes: Vec<String> = axes.iter().map(usize::to_string).collect();
            write!(f, "({})", axes.join(", "))
        }
    }
}

/// An input and axes in the words of the benchmarks' cases.
fn write_input(
    f: &mut fmt::Formatter<'_>,
    element: ElementType,
    shape: &[usize],
    strides: &[usize],
    axes: Option<&[usize]>,
) -> fmt::Result {
    write!(f, "{element} {shape:?} axis ")?;
    write_axes(f, axes)?;
    if *strides != reduce_planner::row_major_strides(shape) {
        write!(f, " strides {strides:?}")?;
    }
    Ok(())
}

impl fmt::Display for RecordedTopK {
    /// The number of elements and the input, followed by what is not as usual.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "top_k {} of ", self.k)?;
        write_input(f, self.element, &self.shape, &self.strides, self.axes.as_deref())?;
        match (&self.mask_strides, self.written) {
            (Some(strides), _) => {
                f.write_str(" as a mask")?;
                if *strides != reduce_planner::row_major_strides(&self.shape) {
                    write!(f, " strides {strides:?}")?;
                }
            }
            (None, Some(written)) => write!(f, ", of which {written} are written")?,
            (None, None) => {}
        }
        if let Some(positions) = self.positions {
            write!(f, " positions {positions}")?;
        }
        if let Some(Probabilities { over, element }) = self.probabilities {
            write!(f, " probabilities {element} over {over}")?;
        }
        if let Some(RecordedOperand { element, strides, .. }) = &self.table {
            write!(f, " from {element} strides {strides:?}")?;
        }
        match &self.output_strides {
            Some(strides) => write!(f, " output strides {strides:?}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for RecordedReduction {
    /// The reduction in the words of the benchmarks' cases, followed by what is not as usual.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.operator)?;
        write_input(f, self.element, &self.shape, &self.strides, self.axes.as_deref())?;
        if let Some(RecordedOperand { element, strides, .. }) = &self.second {
            write!(f, " with {element} strides {strides:?}")?;
        }
        if let Some(accumulator) = self.accumulator {
            write!(f, " in {accumulator}")?;
        }
        for (nth, output) in self.outputs.iter().enumerate() {
            match output {
                Some(output) if nth == 0 => write!(f, " to {output}")?,
                Some(output) => write!(f, " result {nth} to {output}")?,
                None => {}
            }
        }
        match &self.output_strides {
            Some(strides) => write!(f, " output strides {strides:?}"),
            None => Ok(()),
        }
    }
}
