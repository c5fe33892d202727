//! Reductions as data: what an application reduces, recorded to be tuned by a program.

use core::fmt;
use std::borrow::Cow;

use cubecl::prelude::*;
use reduce_planner::{ElementType, Problem, reduced_axes};
use serde::{Deserialize, Serialize};

use crate::{
    Axes, Input, Operator, ReduceError, Reduction,
    host::{
        bound::alignment_of,
        cache,
        reduce::request::{Request, SecondRequest, Wanted},
        settings,
    },
    operator::OperatorRef,
    reduction::reduce,
};

/// A reduction as data: everything that decides its [`Problem`], and no tensor.
///
/// [`recorded`] gives those of an application, [`Reduction::record`] that of one reduction. One
/// line of JSON holds one of them ([`to_json`](Self::to_json), [`parse`](Self::parse)), and a file
/// of them has a line for each. Only the operator's name is kept, because its parameters do not
/// change a plan. Nor does it matter whether reduced axes stay with size 1.
///
/// ```
/// use reduce_kernels::{ElementType, RecordedReduction, Sum, TensorDescription, reduce};
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
    pub second: Option<RecordedSecond>,
    /// The type of the accumulator that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulator: Option<ElementType>,
    /// The type of each result that was asked for.
    #[serde(default, skip_serializing_if = "is_none_asked_for")]
    pub outputs: [Option<ElementType>; 3],
    /// Strides along the kept axes of an output that the caller supplied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_strides: Option<Vec<usize>>,
}

/// The second input of a [`RecordedReduction`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RecordedSecond {
    /// Type of its elements.
    pub element: ElementType,
    /// Its strides along the axes of the first input, in elements: 0 where it repeats its elements.
    pub strides: Vec<usize>,
    /// Alignment in bytes of its first element, 16 at most.
    pub alignment: usize,
}

/// The error for text that is no [`RecordedReduction`].
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is no recorded reduction: {error}")]
pub struct RecordedError {
    text: String,
    #[source]
    error: serde_json::Error,
}

fn is_none_asked_for(outputs: &[Option<ElementType>; 3]) -> bool {
    outputs.iter().all(Option::is_none)
}

impl RecordedReduction {
    /// The reduction of a request.
    pub(crate) fn of(request: &Request<'_>) -> Self {
        Self {
            operator: request.operator.0.name(),
            element: request.element,
            shape: request.shape.to_vec(),
            strides: request.strides.to_vec(),
            alignment: request.alignment,
            axes: request.axes.as_ref().map(|axes| axes.to_vec()),
            second: request.second.as_ref().map(|second| RecordedSecond {
                element: second.element,
                strides: second.strides.clone(),
                alignment: second.alignment,
            }),
            accumulator: request.accumulator,
            outputs: request.outputs,
            output_strides: request.output_strides(),
        }
    }

    /// The request of an operator for this reduction.
    fn request<O: Operator>(&self) -> Result<Request<'_>, ReduceError> {
        if !self.is_of::<O>() {
            return Err(ReduceError::OtherOperator {
                recorded: self.operator.clone(),
                found: O::DEFINITION.erased().name(),
            });
        }
        let output = match &self.output_strides {
            None => None,
            Some(strides) => Some((Cow::Owned(self.kept_shape()?), Cow::Borrowed(&strides[..]))),
        };
        Ok(Request {
            operator: OperatorRef(O::DEFINITION.erased()),
            element: self.element,
            shape: Cow::Borrowed(&self.shape),
            strides: Cow::Borrowed(&self.strides),
            second: self.second.as_ref().map(|second| SecondRequest {
                element: second.element,
                strides: second.strides.clone(),
                alignment: alignment_of(second.alignment as u64),
            }),
            // The number may come from a file.
            alignment: alignment_of(self.alignment as u64),
            axes: self.axes.as_deref().map(Cow::Borrowed),
            keep_dims: false,
            accumulator: self.accumulator,
            outputs: self.outputs,
            output,
            plan: None,
            wanted: Wanted::Results,
        })
    }

    /// Whether this is a reduction by `O`, as far as names tell.
    #[must_use]
    pub fn is_of<O: Operator>(&self) -> bool {
        self.operator == O::DEFINITION.erased().name()
    }

    /// The canonical problem. `O` is the operator.
    ///
    /// # Errors
    ///
    /// `O` has another name, or axes, types or strides are invalid.
    pub fn problem<O: Operator>(&self) -> Result<Problem, ReduceError> {
        Ok(self.request::<O>()?.resolve()?.problem)
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

    /// A reduction of `input`, and of `second` if the operator takes two, with the axes and types
    /// of this one. The result does not keep the reduced axes.
    ///
    /// It has the problem of this one if the tensors have the recorded types, shapes, strides and
    /// alignments, and if the output has the recorded strides.
    pub fn reduction<'a, O: Operator, T: Input>(
        &self,
        operator: O,
        input: &'a T,
        second: Option<&'a T>,
    ) -> Reduction<'a, O, T> {
        let axes = self.axes.clone().map_or(Axes::All, Axes::List);
        let mut reduction = reduce(operator, input).over(axes).keep_dims(false);
        reduction.second = second;
        reduction.options.accumulator = self.accumulator;
        reduction.options.outputs = self.outputs;
        reduction
    }

    /// The reduction as a line of JSON, which [`parse`](Self::parse) reads.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("names and numbers are JSON")
    }

    /// Reads what [`to_json`](Self::to_json) wrote. The text may come from anywhere:
    /// [`problem`](Self::problem) checks what it says.
    ///
    /// # Errors
    ///
    /// The text is not JSON, or has other fields.
    pub fn parse(text: &str) -> Result<Self, RecordedError> {
        serde_json::from_str(text).map_err(|error| RecordedError { text: text.to_owned(), error })
    }
}

impl fmt::Display for RecordedReduction {
    /// The reduction in the words of the benchmarks' cases, followed by what is not as usual.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operator, element, shape, strides, .. } = self;
        write!(f, "{operator} {element} {shape:?} axis ")?;
        match self.axes.as_deref() {
            None => f.write_str("all")?,
            Some([axis]) => write!(f, "{axis}")?,
            Some(axes) => {
                let axes: Vec<String> = axes.iter().map(usize::to_string).collect();
                write!(f, "({})", axes.join(", "))?;
            }
        }
        if *strides != reduce_planner::row_major_strides(shape) {
            write!(f, " strides {strides:?}")?;
        }
        if let Some(RecordedSecond { element, strides, .. }) = &self.second {
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

/// Records from now on which different reductions this process runs on the client's device, in
/// every thread, until [`stop_recording`]. [`recorded`] gives them.
///
/// A reduction is recorded when a thread sees it for the first time. Repeating one costs what it
/// costs without recording. The reductions that are recorded are those that
/// [`use_plans`](crate::use_plans) is for. Left out are reductions that were given a plan, a store
/// or a device, reductions whose results are applied, and lists of tensors. At most 65536 are
/// recorded, and those that come later are left out.
///
/// Calling it again while it records changes nothing. After [`stop_recording`], it begins anew.
///
/// ```no_run
/// # use reduce_kernels::{record_reductions, recorded, stop_recording, cubecl::prelude::*};
/// # fn step(_: &Client) {}
/// # fn example(client: &Client) -> std::io::Result<()> {
/// record_reductions(client);
/// step(client); // everything that the application does
/// stop_recording(client);
/// let lines = recorded(client).into_iter().map(|reduction| reduction.to_json() + "\n");
/// std::fs::write("reductions.jsonl", lines.collect::<String>())?;
/// # Ok(()) }
/// ```
pub fn record_reductions(client: &Client) {
    settings::set_recording(cache::identity(client), true);
}

/// Records no more reductions on the client's device. [`recorded`] still gives those that were.
pub fn stop_recording(client: &Client) {
    settings::set_recording(cache::identity(client), false);
}

/// The reductions that were recorded on the client's device since [`record_reductions`], in the
/// order in which they were first seen.
#[must_use]
pub fn recorded(client: &Client) -> Vec<RecordedReduction> {
    settings::recorded(cache::identity(client))
}
