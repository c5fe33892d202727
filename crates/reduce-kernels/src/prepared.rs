//! A reduction whose input, axes and types have been checked, and how it will be launched.

use cubecl::prelude::*;
use reduce_planner::{
    Device, ElementType, InputSpec, OperatorClass, OutputSpec, PlanError, Problem, ProblemError,
    reduced_axes,
};

use crate::{
    ReduceError,
    device::{computes_with, has_wide_math},
    launch::Dispatch,
    operator::{Fields, Operator, Signature, TypeRequest},
};

/// A reduction in plain data.
pub(crate) struct Statement<'a> {
    pub(crate) element: ElementType,
    pub(crate) shape: &'a [usize],
    pub(crate) strides: &'a [usize],
    /// What the address of the first element is known to be a multiple of, in bytes.
    pub(crate) alignment: usize,
    pub(crate) axes: Option<&'a [usize]>,
    pub(crate) squeeze: bool,
    pub(crate) accumulator: Option<ElementType>,
    pub(crate) outputs: [Option<ElementType>; 3],
    /// Shape and strides of a supplied output.
    pub(crate) output: Option<(&'a [usize], &'a [usize])>,
}

/// A reduction whose axes, types and strides have been checked.
pub(crate) struct Checked {
    pub(crate) problem: Problem,
    pub(crate) signature: Signature,
    /// Shape of the result.
    pub(crate) shape: Vec<usize>,
}

/// A reduction that only lacks buffers.
pub(crate) struct Prepared {
    pub(crate) checked: Checked,
    /// How it is launched; not at all where the result has no elements.
    pub(crate) dispatch: Option<Dispatch>,
}

impl Checked {
    /// Checks a reduction with `O`.
    pub(crate) fn new<O: Operator>(statement: &Statement<'_>) -> Result<Self, ReduceError> {
        let &Statement { element, shape, strides, alignment, axes, .. } = statement;
        let is_reduced = reduced_axes(shape.len(), axes)?;
        // Shapes whose products overflow are refused with the problem.
        let reduction_len = shape
            .iter()
            .zip(&is_reduced)
            .filter(|&(_, &reduced)| reduced)
            .fold(1usize, |len, (&extent, _)| len.saturating_mul(extent));
        let request = TypeRequest {
            input: element,
            accumulator: statement.accumulator,
            outputs: statement.outputs,
            reduction_len,
        };
        let signature = (O::TYPES)(&request)
            .ok_or_else(|| ReduceError::Types { operator: name::<O>(), request })?;
        let fields = &signature.fields[..O::Fields::COUNT];
        let class = OperatorClass {
            name: O::NAME,
            accumulator_bytes: fields.iter().map(|field| field.bytes()).sum(),
            fields: fields.len(),
            positional: O::POSITIONAL,
            defined_on_empty: O::DEFINED_ON_EMPTY,
            transcendental: O::TRANSCENDENTAL,
        };
        let result_shape = result_shape(shape, &is_reduced, statement.squeeze);
        let kept_strides = match statement.output {
            None => None,
            Some((found, _)) if found.len() != result_shape.len() => {
                return Err(ReduceError::OutputShape {
                    expected: result_shape,
                    found: found.to_vec(),
                });
            }
            Some((found, strides)) if strides.len() != found.len() => {
                return Err(ProblemError::RankMismatch {
                    tensor: "output",
                    dims: found.len(),
                    strides: strides.len(),
                }
                .into());
            }
            Some((_, strides)) if statement.squeeze => Some(strides.to_vec()),
            Some((_, strides)) => {
                let strides = strides.iter().zip(&is_reduced);
                Some(strides.filter(|&(_, reduced)| !reduced).map(|(&stride, _)| stride).collect())
            }
        };
        let problem = Problem::new(
            class,
            &InputSpec { element, shape, strides, alignment },
            axes,
            &OutputSpec {
                elements: &signature.results[..<O::Results as Fields>::COUNT],
                strides: kept_strides.as_deref(),
            },
        )?;
        Ok(Checked { problem, signature, shape: result_shape })
    }
}

/// The operator in messages: `sum`, or `sum of squared_error`.
pub(crate) fn name<O: Operator>() -> String {
    match O::MAP {
        None => O::NAME.into(),
        Some(map) => format!("{} of {map}", O::NAME),
    }
}

fn result_shape(shape: &[usize], is_reduced: &[bool], squeeze: bool) -> Vec<usize> {
    let axes = shape.iter().zip(is_reduced);
    if squeeze {
        axes.filter(|&(_, reduced)| !reduced).map(|(&extent, _)| extent).collect()
    } else {
        axes.map(|(&extent, &reduced)| if reduced { 1 } else { extent }).collect()
    }
}

/// The planner checks the types of tensors; what is computed with is the operator's affair.
pub(crate) fn check_arithmetic<O: Operator, R: Runtime>(
    client: &ComputeClient<R>,
    signature: &Signature,
    device: &Device,
) -> Result<(), ReduceError> {
    let fields = signature.fields[..O::Fields::COUNT].iter().copied();
    for element in core::iter::once(signature.value).chain(fields) {
        if !(device.has(element) && computes_with(client, element)) {
            let device = device.name.clone();
            return Err(PlanError::ElementUnsupported { device, element }.into());
        }
        if O::TRANSCENDENTAL
            && element == ElementType::F64
            && !has_wide_math(client, O::NATIVE_MATH)
        {
            let device = device.name.clone();
            return Err(ReduceError::Transcendental { operator: name::<O>(), element, device });
        }
    }
    Ok(())
}
