//! Scans: the results of a reduction at each of its positions.

use core::cmp::Reverse;

use super::{
    Companion, InputSpec, OperatorClass, Positions, Problem, ShardSpec, Statement, check_count,
    check_output, check_rank, checked_span, reduced_axes, row_major_strides, select,
};
use crate::{
    element::ElementType,
    error::{PlanError, ProblemError, Role},
    numerics::Numerics,
    problem::Reproducible,
};

/// Where the results of a scan go, and which elements each of them is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScanSpec<'a> {
    /// Type of each result.
    pub elements: &'a [ElementType],
    /// Strides of the outputs, one for each axis of the input. `None` is row-major.
    pub strides: Option<&'a [usize]>,
    /// Whether the element at a position is left out of the result there.
    pub exclusive: bool,
    /// Whether a result is of the elements from its position to the last one, and not of those from
    /// the first one to its position.
    pub reverse: bool,
    /// Which part of a larger tensor the input is, if it is one.
    pub shard: Option<ShardSpec>,
    /// Whether partial results of other elements come before the first one of each row.
    pub continues: bool,
}

impl<'a> ScanSpec<'a> {
    /// A scan of a whole tensor from its first element on, into row-major outputs with elements of
    /// these types.
    #[must_use]
    pub const fn new(elements: &'a [ElementType]) -> Self {
        Self {
            elements,
            strides: None,
            exclusive: false,
            reverse: false,
            shard: None,
            continues: false,
        }
    }
}

/// A validated, canonical scan: the results of a reduction of the elements up to each position.
///
/// Its [`Problem`] is that of the reduction. `output_stride` of a kept dimension is a stride in the
/// outputs, which have the shape of the input, and the scanned dimensions are in the order of
/// positions.
///
/// ```
/// use reduce_planner::{ElementType, InputSpec, OperatorClass, ScanProblem, ScanSpec};
///
/// // Running sums of each row of 4096 × 1000 elements.
/// let input = InputSpec {
///     element: ElementType::F32,
///     shape: &[4096, 1000],
///     strides: &[1000, 1],
///     alignment: 256,
/// };
/// let elements = &[ElementType::F32];
/// let spec = ScanSpec::new(elements);
/// let problem = ScanProblem::new(OperatorClass::new("sum", 4), &input, Some(&[1]), &spec)?;
/// assert_eq!((problem.problem().outputs(), problem.len()), (4096, 1000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScanProblem {
    pub(super) problem: Problem,
    pub(super) output: Companion,
    /// Along the kept dimensions, the strides of the accumulators of what comes before a row.
    pub(super) earlier: Option<Companion>,
    pub(super) exclusive: bool,
    pub(super) reverse: bool,
}

impl ScanProblem {
    /// States the scan of `input` over `axes` (all axes if `None`) in their row-major order.
    ///
    /// # Errors
    ///
    /// An axis that is out of range or repeated, strides of another rank than the shape, spans that
    /// overflow, outputs of which two elements may share a place, and a shard whose elements do not
    /// follow those before it: its axis is not the first that is scanned, or it reaches past the
    /// end of the whole. An axis without elements is no error, because there are no results then.
    pub fn new(
        operator: OperatorClass,
        input: &InputSpec<'_>,
        axes: Option<&[usize]>,
        spec: &ScanSpec<'_>,
    ) -> Result<Self, ProblemError> {
        let (shape, rank) = (input.shape, input.shape.len());
        check_rank(Role::Input, rank, input.strides)?;
        let is_scanned = reduced_axes(rank, axes)?;
        check_count(input)?;
        let input_span = checked_span(Role::Input, shape, input.strides)?;
        let contiguous = row_major_strides(shape);
        let output_strides = spec.strides.unwrap_or(&contiguous);
        check_rank(Role::Output, rank, output_strides)?;
        let output_span = checked_span(Role::Output, shape, output_strides)?;
        check_output(shape, output_strides)?;
        let positions = match spec.shard {
            Some(shard) => {
                let whole = shard.whole(shape, &is_scanned)?;
                let comes_before = |&axis: &usize| is_scanned[axis] && shape[axis] != 1;
                if let Some(outer) = (0..shard.axis).find(comes_before) {
                    return Err(ProblemError::ShardInside { axis: shard.axis, outer });
                }
                operator.positional.then(|| Positions::of(shard, &whole, &is_scanned))
            }
            None => None,
        };
        // Kept axes have their stride in the outputs, and scanned ones that in the order of
        // positions, which a scan follows whether or not its operator gives positions.
        let mut order = row_major_strides(&select(shape, &is_scanned, true)).into_iter();
        let targets = output_strides
            .iter()
            .zip(&is_scanned)
            .map(|(&stride, &scanned)| if scanned { order.next().unwrap_or(1) } else { stride });
        let targets: Vec<usize> = targets.collect();
        // Accumulators of the rows are in the row-major order of the kept axes.
        let mut rows = row_major_strides(&select(shape, &is_scanned, false)).into_iter();
        let of_rows = is_scanned.iter().map(|&scanned| match scanned {
            true => 0,
            false => rows.next().unwrap_or(0),
        });
        let of_rows: Vec<usize> = of_rows.collect();
        let beside = [output_strides, &of_rows];
        let statement = Statement {
            operator,
            input: *input,
            second: None,
            companions: &beside[..1 + usize::from(spec.continues)],
            is_reduced: &is_scanned,
            results: spec.elements.to_vec(),
            output_strides: &targets,
            input_span,
            second_span: 0,
            output_span,
            positions,
        };
        let (mut problem, companions) = statement.canonical();
        let mut companions = companions.into_iter();
        let mut output = companions.next().unwrap_or_default();
        let earlier = companions.next();
        let mut order: Vec<usize> = (0..problem.reduced.len()).collect();
        order.sort_by_key(|&nth| Reverse(problem.reduced[nth].position_stride));
        problem.reduced = order.iter().map(|&nth| problem.reduced[nth]).collect();
        output.reduced = order.iter().map(|&nth| output.reduced[nth]).collect();
        let ScanSpec { exclusive, reverse, .. } = *spec;
        Ok(Self { problem, output, earlier, exclusive, reverse })
    }

    /// The same problem, for plans whose bits depend on no more than this.
    #[must_use]
    pub fn with_numerics(mut self, numerics: Numerics) -> Self {
        self.problem.numerics = numerics;
        self
    }

    /// The reduction whose results are those of the last position.
    #[must_use]
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The strides of the outputs along the canonical dimensions.
    #[must_use]
    pub fn output(&self) -> &Companion {
        &self.output
    }

    /// If partial results of other elements come before the rows, the strides of their accumulators
    /// along the canonical kept dimensions. Those of the scanned ones are 0.
    #[must_use]
    pub fn earlier(&self) -> Option<&Companion> {
        self.earlier.as_ref()
    }

    /// Whether the element at a position is left out of the result there.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        self.exclusive
    }

    /// Whether results are of the elements from a position to the last one.
    #[must_use]
    pub fn is_reverse(&self) -> bool {
        self.reverse
    }

    /// Number of positions: the elements of a row.
    #[must_use]
    pub fn len(&self) -> usize {
        self.problem.reduction_len()
    }

    /// Whether there are no elements, and so no results.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.elements() == 0
    }

    /// Number of elements of the input, and of each output.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.problem.outputs().saturating_mul(self.len())
    }

    /// Bytes of the elements of the input, each of which is read at least once.
    pub(crate) fn read_bytes(&self) -> u64 {
        (self.elements() as u64).saturating_mul(self.problem.input.bytes() as u64)
    }

    /// Bytes that must move: each element is read once, and each result is written once.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let written = (self.elements() as u64).saturating_mul(self.problem.result_bytes() as u64);
        self.read_bytes().saturating_add(written)
    }

    /// `rows` rows like those of this problem: see [`Problem::reference`].
    pub(crate) fn reference(&self, rows: usize, aligned: usize, widest: usize) -> Self {
        let problem = self.problem.reference(rows, aligned, widest);
        let numerics = self.problem.numerics;
        let earlier = None;
        let output = Companion {
            kept: problem.kept.iter().map(|dim| dim.stride).collect(),
            reduced: problem.reduced.iter().map(|dim| dim.stride).collect(),
        };
        Self { problem: Problem { numerics, ..problem }, output, earlier, ..self.clone() }
    }

    /// Refuses reproducible results of operators that round: no order of their merges is fixed.
    ///
    /// # Errors
    ///
    /// [`PlanError::NotReproducible`].
    pub(crate) fn check_numerics(&self) -> Result<(), PlanError> {
        let operator = self.problem.operator;
        let exact = operator.reproducible == Reproducible::Exact;
        match self.problem.numerics.is_reproducible() && !exact {
            true => {
                let of = Some("at every position");
                Err(PlanError::NotReproducible { operator: operator.name, of })
            }
            false => Ok(()),
        }
    }
}
