//! The selection of a few elements of each slice.

use core::fmt;

use super::{
    ElementCost, InputSpec, OperatorClass, OutputSpec, Problem, SecondSpec,
    statement::{check_output, check_rank, checked_span, select},
};
use crate::{
    element::ElementType,
    error::{ProblemError, Role},
    numerics::Numerics,
    problem::reduced_axes,
};

/// The elements over which probabilities add up to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Over {
    /// The selected elements alone: a probability is the exponential of an element over the sum of
    /// those of the `k` selected ones.
    Selected,
    /// All elements of the slice: a probability is that of the softmax of the slice.
    Slice,
}

impl fmt::Display for Over {
    /// `selected` or `slice`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Over::Selected => "selected",
            Over::Slice => "slice",
        })
    }
}

/// Probabilities that are written in place of the values of selected elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Probabilities {
    /// The elements over which they add up to 1.
    pub over: Over,
    /// Their type.
    pub element: ElementType,
}

/// Where the selected elements go: a tensor of their values, of the type of the input unless they
/// are probabilities, and one of their positions, both with these strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SelectedSpec<'a> {
    /// Type of the positions.
    pub positions: ElementType,
    /// One stride in elements for each kept axis, in the order of the input.
    pub kept_strides: &'a [usize],
    /// The stride from one selected element of a slice to the next.
    pub rank_stride: usize,
    /// How many of the `k` elements of a slice are written, if not all.
    pub written: Option<usize>,
    /// The probabilities that are written in place of values, if these are not.
    pub probabilities: Option<Probabilities>,
}

/// The selection of the first `k` elements of each slice, in some order of values. A slice consists
/// of the elements that a reduction over the same axes combines.
///
/// ```
/// use reduce_planner::{ElementType, InputSpec, SelectedSpec, TopKProblem};
///
/// // The 50 largest of each row.
/// let input = InputSpec {
///     element: ElementType::F32,
///     shape: &[512, 128256],
///     strides: &[128256, 1],
///     alignment: 256,
/// };
/// let selected = SelectedSpec {
///     positions: ElementType::U32,
///     kept_strides: &[50],
///     rank_stride: 1,
///     written: None,
///     probabilities: None,
/// };
/// let problem = TopKProblem::new(&input, Some(&[1]), 50, &selected)?;
/// assert_eq!((problem.slices().outputs(), problem.k()), (512, 50));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TopKProblem {
    pub(super) slices: Problem,
    pub(super) k: usize,
    pub(super) written: usize,
    pub(super) rank_stride: usize,
    pub(super) span: usize,
    pub(super) probabilities: Option<Probabilities>,
    /// What probabilities over slices need of each slice. It follows from the other fields.
    pub(super) sums: Option<Problem>,
    pub(super) masked: bool,
}

impl TopKProblem {
    /// States the selection of `k` elements of each slice over `axes` (all axes if `None`).
    ///
    /// # Errors
    ///
    /// Those of [`Problem::new`], no axis at all, and slices of fewer than `k` elements. See
    /// [`ProblemError`].
    pub fn new(
        input: &InputSpec<'_>,
        axes: Option<&[usize]>,
        k: usize,
        selected: &SelectedSpec<'_>,
    ) -> Result<Self, ProblemError> {
        Self::with_positions(input, None, axes, k, selected)
    }

    /// Like [`new`](Self::new), with the positions that are written in place of those in the slice:
    /// a tensor that has one for each element of the input. It is the second input of the
    /// [`slices`](Self::slices), of which only the elements of selected ones are read.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new), and positions that do not lie along the axes of the input.
    pub fn with_positions(
        input: &InputSpec<'_>,
        table: Option<&SecondSpec<'_>>,
        axes: Option<&[usize]>,
        k: usize,
        selected: &SelectedSpec<'_>,
    ) -> Result<Self, ProblemError> {
        if let Some(table) = table {
            check_rank(Role::Positions, input.shape.len(), table.strides)?;
            checked_span(Role::Positions, input.shape, table.strides)?;
        }
        let is_reduced = reduced_axes(input.shape.len(), axes)?;
        let kept = select(input.shape, &is_reduced, false);
        let reduced = select(input.shape, &is_reduced, true);
        let SelectedSpec { positions, kept_strides, rank_stride, written, probabilities } =
            *selected;
        let written = written.unwrap_or(k);
        let values = probabilities.map_or(input.element, |of| of.element);
        let output = OutputSpec { elements: &[values, positions], strides: Some(kept_strides) };
        let key_bytes = input.element.bytes().next_multiple_of(size_of::<u32>());
        let entry_bytes = key_bytes + positions.bytes();
        let class = OperatorClass::new("top_k", entry_bytes).fields(2).positional().exact();
        let slices = Problem::with_inputs(class, input, table, None, axes, &output)?;
        if reduced.is_empty() {
            return Err(ProblemError::NoAxes { operator: class.name });
        }
        let len = slices.reduction_len();
        if k > len {
            return Err(ProblemError::TooFewElements { k, len });
        }
        let shape: Vec<usize> = kept.into_iter().chain([written]).collect();
        let strides: Vec<usize> = kept_strides.iter().copied().chain([rank_stride]).collect();
        let span = checked_span(Role::Output, &shape, &strides)?;
        check_output(&shape, &strides)?;
        let sums = match probabilities {
            Some(Probabilities { over: Over::Slice, .. }) => {
                Some(softmax_sums(input, axes, kept_strides)?)
            }
            _ => None,
        };
        Ok(Self { slices, k, written, rank_stride, span, probabilities, sums, masked: false })
    }

    /// The same problem of a mask: what is selected, the last of the `k` elements, only serves to
    /// write the input again with a number in place of all elements after it.
    #[must_use]
    pub fn masked(self) -> Self {
        Self { masked: true, ..self }
    }

    /// The slices, as a reduction that gives the value and the position of one element of each.
    #[must_use]
    pub fn slices(&self) -> &Problem {
        &self.slices
    }

    /// Elements that are selected of each slice.
    #[must_use]
    pub fn k(&self) -> usize {
        self.k
    }

    /// Elements that are written of each slice: all that are selected, or some of them.
    #[must_use]
    pub fn written(&self) -> usize {
        self.written
    }

    /// Whether elements with given numbers are written, and not all that are selected.
    #[must_use]
    pub fn is_by_numbers(&self) -> bool {
        self.written < self.k
    }

    /// The stride from one selected element of a slice to the next.
    #[must_use]
    pub fn rank_stride(&self) -> usize {
        self.rank_stride
    }

    /// Number of elements from the first to the last that the values touch, and the positions.
    #[must_use]
    pub fn output_span(&self) -> usize {
        self.span
    }

    /// The probabilities that are written in place of values, if these are not.
    #[must_use]
    pub fn probabilities(&self) -> Option<Probabilities> {
        self.probabilities
    }

    /// The reduction of each slice to its largest element and one over the sum of its exponentials,
    /// if probabilities over slices are written. [`TopKPlan::sums_before`] tells whether a plan
    /// launches it.
    ///
    /// [`TopKPlan::sums_before`]: crate::TopKPlan::sums_before
    #[must_use]
    pub fn sums(&self) -> Option<&Problem> {
        self.sums.as_ref()
    }

    /// Whether the input is written again, with nothing but the selected elements.
    #[must_use]
    pub fn is_masked(&self) -> bool {
        self.masked
    }

    /// Bytes that must move: each distinct element is read once, and the selected ones are written
    /// with their positions, which may be read before. A mask writes each element, and no position.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        if self.masked {
            return self.bytes_of_input().saturating_add(self.bytes_of_mask());
        }
        let of_one: usize = self.slices.results().iter().map(|result| result.bytes()).sum();
        let more = self.slices.outputs().saturating_mul(self.written.saturating_sub(1));
        let of_slices =
            self.slices.bytes_of_first().saturating_add(more.saturating_mul(of_one) as u64);
        let of_position = self.slices.second().map_or(0, |table| table.element().bytes());
        let written = self.slices.outputs().saturating_mul(self.written);
        of_slices.saturating_add(written.saturating_mul(of_position) as u64)
    }

    /// Bytes of the distinct elements of the input.
    pub(crate) fn bytes_of_input(&self) -> u64 {
        let results = self.slices.outputs().saturating_mul(self.slices.result_bytes()) as u64;
        self.slices.bytes_of_first().saturating_sub(results)
    }

    /// Bytes that a mask writes.
    fn bytes_of_mask(&self) -> u64 {
        let elements = self.slices.outputs().saturating_mul(self.slices.reduction_len());
        elements.saturating_mul(self.slices.input().bytes()) as u64
    }
}

/// The reduction to the largest element of each slice and one over the sum of its exponentials, of
/// f64 or f32. Selections have the same bits in every batch, and so have their probabilities.
fn softmax_sums(
    input: &InputSpec<'_>,
    axes: Option<&[usize]>,
    kept_strides: &[usize],
) -> Result<Problem, ProblemError> {
    let real = match input.element {
        ElementType::F64 => ElementType::F64,
        _ => ElementType::F32,
    };
    let class = OperatorClass::new("softmax_sums", 2 * real.bytes())
        .fields(2)
        .element_cost(ElementCost::Exponential)
        .blockwise()
        .in_passes(2 * real.bytes());
    let output = OutputSpec { elements: &[real, real], strides: Some(kept_strides) };
    let problem = Problem::with_inputs(class, input, None, None, axes, &output)?;
    Ok(problem.with_numerics(Numerics::BatchInvariant))
}
