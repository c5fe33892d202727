//! The request of one call, as plain data.

use std::borrow::Cow;

use reduce_planner::{
    ElementType, InputSpec, OperatorClass, OutputSpec, Plan, Problem, ProblemError, reduced_axes,
};

use crate::{
    ReduceError,
    operator::{OperatorRef, Signature, TypeRequest},
};

/// Shape and strides of a supplied output.
type OutputLayout<'a> = (Cow<'a, [usize]>, Cow<'a, [usize]>);

/// Everything that decides how a reduction is launched, apart from its buffers and its device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request<'a> {
    pub(crate) operator: OperatorRef,
    pub(crate) element: ElementType,
    pub(crate) shape: Cow<'a, [usize]>,
    pub(crate) strides: Cow<'a, [usize]>,
    /// The largest number of bytes of which the address of the first element is known to be a
    /// multiple.
    pub(crate) alignment: usize,
    /// The reduced axes; `None` means all axes.
    pub(crate) axes: Option<Cow<'a, [usize]>>,
    pub(crate) keep_dims: bool,
    pub(crate) accumulator: Option<ElementType>,
    pub(crate) outputs: [Option<ElementType>; 3],
    /// Shape and strides of a supplied output.
    pub(crate) output: Option<OutputLayout<'a>>,
    pub(crate) plan: Option<Plan>,
}

/// A request whose axes, types and strides have been checked.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) problem: Problem,
    pub(crate) signature: Signature,
    /// Shape of the result.
    pub(crate) shape: Vec<usize>,
}

impl Request<'_> {
    /// The request with lists that it owns.
    pub(crate) fn into_owned(self) -> Request<'static> {
        let owned = |list: Cow<'_, [usize]>| Cow::Owned(list.into_owned());
        Request {
            shape: owned(self.shape),
            strides: owned(self.strides),
            axes: self.axes.map(owned),
            output: self.output.map(|(shape, strides)| (owned(shape), owned(strides))),
            ..self
        }
    }

    /// Checks the request and constructs its problem.
    pub(crate) fn resolve(&self) -> Result<Resolved, ReduceError> {
        let operator = self.operator.0;
        let shape = &self.shape[..];
        let axes = self.axes.as_deref();
        let is_reduced = reduced_axes(shape.len(), axes)?;
        // If a product of extents overflows, `Problem::new` refuses the shape.
        let reduction_len = shape
            .iter()
            .zip(&is_reduced)
            .filter(|&(_, &reduced)| reduced)
            .fold(1usize, |len, (&extent, _)| len.saturating_mul(extent));
        let request = TypeRequest {
            input: self.element,
            accumulator: self.accumulator,
            outputs: self.outputs,
            reduction_len,
        };
        let signature = (operator.types)(&request)
            .ok_or_else(|| ReduceError::Types { operator: operator.name(), request })?;
        let fields = &signature.fields[..operator.fields];
        let bytes = fields.iter().map(|field| field.bytes()).sum();
        let mut class = OperatorClass::new(operator.name, bytes).fields(fields.len());
        class.positional = operator.positional;
        class.defined_on_empty = operator.defined_on_empty;
        class.transcendental = operator.transcendental;
        class.blockwise = operator.blocks.is_some();
        let result_shape = self.result_shape(&is_reduced);
        let kept_strides = self.kept_strides(&is_reduced, &result_shape)?;
        let problem = Problem::new(
            class,
            &InputSpec {
                element: self.element,
                shape,
                strides: &self.strides,
                alignment: self.alignment,
            },
            axes,
            &OutputSpec {
                elements: &signature.results[..operator.results],
                strides: kept_strides.as_deref(),
            },
        )?;
        Ok(Resolved { problem, signature, shape: result_shape })
    }

    fn result_shape(&self, is_reduced: &[bool]) -> Vec<usize> {
        let axes = self.shape.iter().zip(is_reduced);
        if self.keep_dims {
            axes.map(|(&extent, &reduced)| if reduced { 1 } else { extent }).collect()
        } else {
            axes.filter(|&(_, reduced)| !reduced).map(|(&extent, _)| extent).collect()
        }
    }

    /// Strides of a supplied output along the kept axes.
    fn kept_strides(
        &self,
        is_reduced: &[bool],
        result_shape: &[usize],
    ) -> Result<Option<Vec<usize>>, ReduceError> {
        let Some((found, strides)) = &self.output else { return Ok(None) };
        if found.len() != result_shape.len() {
            let expected = result_shape.to_vec();
            return Err(ReduceError::OutputShape { expected, found: found.to_vec() });
        }
        if strides.len() != found.len() {
            return Err(ProblemError::RankMismatch {
                tensor: "output",
                dims: found.len(),
                strides: strides.len(),
            }
            .into());
        }
        if !self.keep_dims {
            return Ok(Some(strides.to_vec()));
        }
        let kept = strides.iter().zip(is_reduced).filter(|&(_, reduced)| !reduced);
        Ok(Some(kept.map(|(&stride, _)| stride).collect()))
    }
}
