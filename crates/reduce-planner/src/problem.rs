//! A reduction, stated once and brought into one canonical form.
//!
//! Two tensors that lie in memory in the same way give equal problems, whatever their shapes looked
//! like: unit dimensions are dropped, dimensions are ordered by stride and merged where they follow
//! each other without a gap. FFTW's planner treats its problems alike (Frigo and Johnson, "The
//! design and implementation of FFTW3", 2005).

use crate::{ElementType, ProblemError};

/// What the planner must know of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperatorClass {
    /// The name for messages, such as `sum`.
    pub name: &'static str,
    /// Bytes of one accumulator: the sum over its fields.
    pub accumulator_bytes: usize,
    /// Fields of one accumulator. A second launch binds a buffer for each.
    pub fields: usize,
    /// Whether the result depends on the positions of the elements (arg operators).
    pub positional: bool,
    /// Whether a reduction over nothing has a value.
    pub defined_on_empty: bool,
    /// Whether taking an element costs an exponential or the like.
    pub transcendental: bool,
}

/// Where the elements of the input lie.
#[derive(Clone, Copy, Debug)]
pub struct InputSpec<'a> {
    /// Type of the elements.
    pub element: ElementType,
    /// Number of indices along each axis.
    pub shape: &'a [usize],
    /// Strides in elements; 0 repeats an element (broadcast).
    pub strides: &'a [usize],
    /// What the address of the first element is known to be a multiple of, in bytes.
    pub alignment: usize,
}

/// Where the results go. An operator with several results has an output for each, laid out alike.
#[derive(Clone, Copy, Debug)]
pub struct OutputSpec<'a> {
    /// Type of each result.
    pub elements: &'a [ElementType],
    /// One stride, in elements, for each kept axis in the order of the input; `None` is row-major.
    pub strides: Option<&'a [usize]>,
}

/// A dimension that survives: neighbouring indices give neighbouring results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeptDim {
    /// Number of indices, 2 at least.
    pub extent: usize,
    /// Distance of neighbours in the input, in elements.
    pub stride: usize,
    /// Distance of neighbours in the output, in elements.
    pub output_stride: usize,
}

/// A dimension that is reduced away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReducedDim {
    /// Number of indices: 2 at least, or 0 in an empty reduction.
    pub extent: usize,
    /// Distance of neighbours in the input, in elements.
    pub stride: usize,
    /// Distance of neighbours in the row-major order over the reduced axes; 0 unless the operator
    /// is positional.
    pub position_stride: usize,
}

/// A validated, canonical reduction.
///
/// Dimensions run from the largest stride to the smallest; broadcast dimensions (stride 0) come
/// first, because no unit gains from walking along them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    operator: OperatorClass,
    input: ElementType,
    results: Vec<ElementType>,
    alignment: usize,
    kept: Vec<KeptDim>,
    reduced: Vec<ReducedDim>,
    input_span: usize,
    output_span: usize,
}

/// Which way the innermost dimension runs, and so how neighbouring units share the work.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Neighbouring elements belong to one output: units walk along the reduction.
    Along,
    /// Neighbouring elements belong to neighbouring outputs: units stand across them.
    Across,
}

impl Problem {
    /// States a reduction of `input` over `axes` (all axes if `None`) into `output`.
    ///
    /// # Errors
    ///
    /// An axis that is out of range or repeated, strides of another rank than the shape, spans that
    /// overflow, an empty reduction of an operator that has no value for it, and outputs that may
    /// overlap; see [`ProblemError`].
    pub fn new(
        operator: OperatorClass,
        input: &InputSpec<'_>,
        axes: Option<&[usize]>,
        output: &OutputSpec<'_>,
    ) -> Result<Self, ProblemError> {
        let rank = input.shape.len();
        if input.strides.len() != rank {
            return Err(ProblemError::RankMismatch {
                tensor: "input",
                dims: rank,
                strides: input.strides.len(),
            });
        }
        let is_reduced = reduced_axes(rank, axes)?;
        let too_large = || ProblemError::TooLarge {
            tensor: "input",
            shape: input.shape.to_vec(),
            strides: input.strides.to_vec(),
        };
        let input_span = span(input.shape, input.strides).ok_or_else(too_large)?;
        let kept_shape: Vec<usize> = select(input.shape, &is_reduced, false);
        let reduced_shape: Vec<usize> = select(input.shape, &is_reduced, true);
        // Extents of 0 count as 1: no product of extents overflows, in whatever order it is taken.
        input
            .shape
            .iter()
            .try_fold(1usize, |count, &extent| count.checked_mul(extent.max(1)))
            .ok_or_else(too_large)?;
        let contiguous = row_major_strides(&kept_shape);
        let output_strides = output.strides.unwrap_or(&contiguous);
        if output_strides.len() != kept_shape.len() {
            return Err(ProblemError::RankMismatch {
                tensor: "output",
                dims: kept_shape.len(),
                strides: output_strides.len(),
            });
        }
        let output_span =
            span(&kept_shape, output_strides).ok_or_else(|| ProblemError::TooLarge {
                tensor: "output",
                shape: kept_shape.clone(),
                strides: output_strides.to_vec(),
            })?;
        if may_overlap(&kept_shape, output_strides) {
            return Err(ProblemError::OutputOverlaps {
                shape: kept_shape,
                strides: output_strides.to_vec(),
            });
        }
        let reduces_nothing = reduced_shape.contains(&0);
        if reduces_nothing && !kept_shape.contains(&0) && !operator.defined_on_empty {
            return Err(ProblemError::EmptyReduction {
                operator: operator.name,
                shape: input.shape.to_vec(),
                axes: (0..rank).filter(|&axis| is_reduced[axis]).collect(),
            });
        }

        let kept = kept_shape
            .iter()
            .zip(select(input.strides, &is_reduced, false))
            .zip(output_strides)
            .map(|((&extent, stride), &output_stride)| {
                // Where nothing is loaded, strides mean nothing.
                let stride = if reduces_nothing { 0 } else { stride };
                KeptDim { extent, stride, output_stride }
            });
        let reduced = if reduces_nothing {
            vec![ReducedDim { extent: 0, stride: 1, position_stride: 0 }]
        } else {
            let positions = if operator.positional {
                row_major_strides(&reduced_shape)
            } else {
                vec![0; reduced_shape.len()]
            };
            let dims = reduced_shape
                .iter()
                .zip(select(input.strides, &is_reduced, true))
                .zip(positions)
                .map(|((&extent, stride), position_stride)| ReducedDim {
                    extent,
                    stride,
                    position_stride,
                });
            canonical(dims.collect())
        };
        Ok(Self {
            operator,
            input: input.element,
            results: output.elements.to_vec(),
            alignment: input.alignment,
            kept: canonical(kept.collect()),
            reduced,
            input_span,
            output_span,
        })
    }

    /// The operator's class.
    pub fn operator(&self) -> OperatorClass {
        self.operator
    }

    /// Type of the input's elements.
    pub fn input(&self) -> ElementType {
        self.input
    }

    /// Type of each result of an output: one, unless the operator has several.
    pub fn results(&self) -> &[ElementType] {
        &self.results
    }

    /// What the address of the first input element is known to be a multiple of, in bytes.
    pub fn alignment(&self) -> usize {
        self.alignment
    }

    /// The kept dimensions, canonical.
    pub fn kept(&self) -> &[KeptDim] {
        &self.kept
    }

    /// The reduced dimensions, canonical.
    pub fn reduced(&self) -> &[ReducedDim] {
        &self.reduced
    }

    /// Number of outputs, each with all of the operator's results.
    pub fn outputs(&self) -> usize {
        self.kept.iter().map(|dim| dim.extent).product()
    }

    /// Number of elements that go into each result.
    pub fn reduction_len(&self) -> usize {
        self.reduced.iter().map(|dim| dim.extent).product()
    }

    /// Elements from the first to the last that the input touches; 0 if it has none.
    pub fn input_span(&self) -> usize {
        self.input_span
    }

    /// Elements from the first to the last that the output touches; 0 if it has none.
    pub fn output_span(&self) -> usize {
        self.output_span
    }

    /// Bytes of one output's results.
    fn result_bytes(&self) -> usize {
        self.results.iter().map(|result| result.bytes()).sum()
    }

    /// Bytes that must move: each distinct input element read once, each result written once.
    pub fn bytes(&self) -> u64 {
        let distinct = |dims: &mut dyn Iterator<Item = (usize, usize)>| -> u64 {
            dims.filter(|&(_, stride)| stride != 0).map(|(extent, _)| extent as u64).product()
        };
        let outputs = self.outputs() as u64;
        let kept = distinct(&mut self.kept.iter().map(|dim| (dim.extent, dim.stride)));
        let reduced = distinct(&mut self.reduced.iter().map(|dim| (dim.extent, dim.stride)));
        let read = if outputs == 0 { 0 } else { kept.saturating_mul(reduced) };
        read.saturating_mul(self.input.bytes() as u64)
            .saturating_add(outputs.saturating_mul(self.result_bytes() as u64))
    }

    /// The largest number that an index into this problem must hold.
    pub fn index_span(&self) -> u64 {
        [self.input_span, self.output_span, self.outputs(), self.reduction_len()]
            .into_iter()
            .max()
            .unwrap_or(0) as u64
    }

    /// Which way the input's innermost dimension runs.
    pub fn direction(&self) -> Direction {
        let innermost = |stride: Option<usize>| match stride {
            None | Some(0) => usize::MAX,
            Some(stride) => stride,
        };
        let kept = innermost(self.kept.last().map(|dim| dim.stride));
        let reduced = innermost(self.reduced.last().map(|dim| dim.stride));
        if kept < reduced { Direction::Across } else { Direction::Along }
    }
}

/// Marks the reduced ones among `rank` axes; all of them where `axes` is `None`.
///
/// # Errors
///
/// An axis that is out of range or given twice.
pub fn reduced_axes(rank: usize, axes: Option<&[usize]>) -> Result<Vec<bool>, ProblemError> {
    let Some(axes) = axes else {
        return Ok(vec![true; rank]);
    };
    let mut is_reduced = vec![false; rank];
    for &axis in axes {
        match is_reduced.get_mut(axis) {
            None => return Err(ProblemError::AxisOutOfRange { axis, rank }),
            Some(true) => return Err(ProblemError::AxisRepeated { axis, rank }),
            Some(seen) => *seen = true,
        }
    }
    Ok(is_reduced)
}

fn select(values: &[usize], is_reduced: &[bool], wanted: bool) -> Vec<usize> {
    let pairs = values.iter().zip(is_reduced);
    pairs.filter(|&(_, &reduced)| reduced == wanted).map(|(&value, _)| value).collect()
}

/// Strides of a row-major tensor without padding, in elements.
pub fn row_major_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis].max(1));
    }
    strides
}

/// Elements from the first to the last, or `None` if the number overflows.
pub fn span(shape: &[usize], strides: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().zip(strides).try_fold(1usize, |span, (&extent, &stride)| {
        span.checked_add((extent - 1).checked_mul(stride)?)
    })
}

/// Whether two indices may share an offset. A nested layout never does: each stride is at least
/// what the finer dimensions span. Layouts that interleave without nesting are counted as
/// overlapping; telling them apart in general is a hard number problem that no tensor needs solved.
fn may_overlap(shape: &[usize], strides: &[usize]) -> bool {
    let mut dims: Vec<(usize, usize)> = strides
        .iter()
        .copied()
        .zip(shape.iter().copied())
        .filter(|&(_, extent)| extent > 1)
        .collect();
    dims.sort_unstable();
    let mut reach = 1;
    if shape.contains(&0) {
        return false;
    }
    for (stride, extent) in dims {
        if stride < reach {
            return true;
        }
        reach += (extent - 1) * stride;
    }
    false
}

/// A dimension with its two distances, so that kept and reduced ones canonicalise alike.
trait Dim: Copy {
    fn extent(&self) -> usize;
    fn distances(&self) -> (usize, usize);
    fn with_extent(self, extent: usize) -> Self;
}

impl Dim for KeptDim {
    fn extent(&self) -> usize {
        self.extent
    }
    fn distances(&self) -> (usize, usize) {
        (self.stride, self.output_stride)
    }
    fn with_extent(self, extent: usize) -> Self {
        Self { extent, ..self }
    }
}

impl Dim for ReducedDim {
    fn extent(&self) -> usize {
        self.extent
    }
    fn distances(&self) -> (usize, usize) {
        (self.stride, self.position_stride)
    }
    fn with_extent(self, extent: usize) -> Self {
        Self { extent, ..self }
    }
}

/// Drops unit dimensions, orders the rest, and merges neighbours that leave no gap in either
/// distance.
fn canonical<D: Dim>(mut dims: Vec<D>) -> Vec<D> {
    dims.retain(|dim| dim.extent() != 1);
    dims.sort_by_key(|dim| {
        let (stride, other) = dim.distances();
        let broadcast_first = if stride == 0 { usize::MAX } else { stride };
        core::cmp::Reverse((broadcast_first, other))
    });
    let mut merged: Vec<D> = Vec::with_capacity(dims.len());
    for inner in dims {
        match merged.last_mut() {
            Some(outer) if outer.distances() == scaled(inner.distances(), inner.extent()) => {
                *outer = inner.with_extent(outer.extent() * inner.extent());
            }
            _ => merged.push(inner),
        }
    }
    merged
}

fn scaled((a, b): (usize, usize), by: usize) -> (usize, usize) {
    (a.saturating_mul(by), b.saturating_mul(by))
}
