//! Inputs of which only the selected elements are kept: a selection of the last of them, and the
//! launch that compares every element with that.

use std::rc::Rc;

use cubecl::{ir::AddressType, prelude::*, std::tensor::TensorHandle};
use reduce_planner::{
    AppliedProblem, AppliedSpec, ElementType, Illegal, InputSpec, OperatorClass, PlanError, Role,
    applied_needs_wide_indices, reduced_axes, row_major_strides,
};

use super::{
    launch::Selecting,
    request::{PreparedTopK, TopKRequest},
};
use crate::{
    element::memory_type,
    error::{Reason, ReduceError},
    host::{
        arguments::{count, dims, merging_types},
        bound::Bound,
        cache,
        call::{Call, Task},
        companion::list,
    },
    kernels::{
        args::KernelTypesArg,
        top_k::mask::{EACH, keep_selected},
    },
    operator::InvalidParameter,
};

/// The name in messages.
const NAME: &str = "top_k_mask";

/// Units of a cube of the second launch.
const UNITS: u32 = 256;

/// A dimension of the second launch.
struct MaskDim {
    extent: usize,
    input: usize,
    output: usize,
    /// The stride of the last selected elements.
    last: usize,
    /// The stride of positions in a slice.
    position: usize,
}

/// What masks an input, checked.
struct Mask {
    prepared: Rc<PreparedTopK>,
    applied: AppliedProblem,
    /// Elements of the input.
    elements: usize,
    /// Units of a cube of the second launch.
    units: u32,
    grid: [u32; 3],
}

impl<'a> Call<'a, TopKRequest<'a>> {
    /// Whether [`keep_only`](Self::keep_only) would write a new row-major tensor from an input whose
    /// buffer has these many bytes; `None` where there is no buffer.
    ///
    /// # Errors
    ///
    /// Those of `keep_only`.
    pub(crate) fn check_keep_only(
        &self,
        client: &Client,
        fill: f32,
        bytes: &[Option<u64>],
    ) -> Result<(), ReduceError> {
        let strides = row_major_strides(&self.task.shape);
        let Mask { prepared, .. } = self.mask(client, fill, &strides)?;
        self.task.check_bytes(&prepared.stated, bytes)
    }

    /// Checks what [`keep_only`](Self::keep_only) writes into a tensor of the input's shape with
    /// these strides.
    fn mask(&self, client: &Client, fill: f32, output: &[usize]) -> Result<Mask, ReduceError> {
        let TopKRequest { element, alignment, shape, strides, axes, .. } = &self.task;
        if !has(*element, fill) {
            let (value, expected) = (f64::from(fill), "a number that the elements' type has");
            let invalid = InvalidParameter { name: "fill", value, expected };
            return Err(Reason::Parameter { operator: NAME.to_owned(), invalid }.into());
        }
        let prepared = self.prepared(client)?;
        let spec = InputSpec { element: *element, shape, strides, alignment: *alignment };
        let is_reduced = reduced_axes(shape.len(), axes.as_deref())?;
        let [of_last, of_position] = strides_beside(shape, &prepared.stated.strides, &is_reduced);
        let applied = AppliedProblem::new(
            OperatorClass::new(NAME, element.bytes()).exact(),
            &spec,
            axes.as_deref(),
            &AppliedSpec {
                element: *element,
                strides: Some(output),
                second: None,
                companions: &[&of_last[..], &of_position[..]],
            },
        )?;
        let elements: usize = shape.iter().product();
        let device = cache::device(client);
        let units = UNITS.min(device.max_units_per_cube);
        let cubes = (elements as u64).div_ceil(u64::from(units) * EACH as u64);
        let grid = device.grid(cubes).ok_or_else(|| {
            let reason = Illegal::Grid { cubes, merging: false };
            let (plan, device) = ("a mask".to_owned(), device.name.clone());
            ReduceError::from(PlanError::Unfit { plan, device, reason })
        })?;
        Ok(Mask { prepared, applied, elements, units, grid })
    }

    /// Writes the input with `fill` in place of all elements but the first `k`, into a tensor of the
    /// same shape. The call selects the last of the `k`, and keeps all axes.
    ///
    /// # Errors
    ///
    /// Those of the selection, outputs that do not fit, and a `fill` that the type does not have.
    pub(crate) fn keep_only(
        self,
        client: &Client,
        input: &TensorHandle,
        fill: f32,
        output: TensorBinding,
    ) -> Result<(), ReduceError> {
        let TopKRequest { element, shape, .. } = &self.task;
        let element = *element;
        if output.shape[..] != shape[..] {
            let (expected, found) = (shape.to_vec(), output.shape.to_vec());
            return Err(Reason::OutputShape { expected, found }.into());
        }
        let mask = self.mask(client, fill, &output.strides)?;
        let Mask { prepared, applied, elements, units, grid } = mask;
        let problem = applied.problem();
        let places = problem.output_span();
        let kept = Bound::check(client, Role::Output, output.handle, places, element)?;
        let Some(launch) = &prepared.launch else { return Ok(()) };
        let span = problem.input_span();
        let read = Bound::check_input(client, Role::Input, &input.handle, span, element)?;
        let [last, positions] = prepared.run_new(client, Selecting::from(input, None))?;
        let signature = &prepared.stated.signature;
        let slices = prepared.stated.problem.output_span();
        let own = |tensor: TensorHandle, nth: usize| {
            let bytes = signature.results[nth].bytes();
            Bound::own(tensor.handle.binding(), slices, bytes).elements()
        };
        let all = mask_dims(&applied);
        let of = |stride: fn(&MaskDim) -> usize| list(&all.iter().map(stride).collect::<Vec<_>>());
        let wide = applied_needs_wide_indices(&applied);
        // SAFETY: units past the last element do nothing, and the offsets of all others lie inside
        // the spans of the input and of the output. The selection has left an element and its
        // position for each slice. A unit writes where it has read, if the output is the input, and
        // no other unit reads there.
        unsafe {
            keep_selected::launch_unchecked(
                client,
                count(grid),
                CubeDim::new_1d(units),
                if wide { AddressType::U64 } else { AddressType::U32 },
                KernelTypesArg {
                    stored: memory_type(element),
                    hardware_math: false,
                    ..merging_types(client, signature)
                },
                read.elements(),
                own(last, 0),
                own(positions, 1),
                kept.elements(),
                dims(&all, |dim| (dim.extent, dim.input, dim.output)),
                of(|dim| dim.last),
                of(|dim| dim.position),
                prepared.order.argument(),
                fill,
                elements,
                launch.selection,
            );
        }
        Ok(())
    }
}

/// Whether a type has a number, or one that it is rounded to.
fn has(element: ElementType, number: f32) -> bool {
    let number = f64::from(number);
    let (least, beyond) = match element {
        _ if element.is_float() => return true,
        ElementType::Bool => (0.0, 2.0),
        _ => {
            let signed = usize::from(element.is_signed());
            let beyond = 2f64.powi((8 * element.bytes() - signed) as i32);
            (-beyond * signed as f64, beyond)
        }
    };
    number.fract() == 0.0 && (least..beyond).contains(&number)
}

/// The strides of the last selected elements along the axes of the input, and those of positions in
/// a slice.
fn strides_beside(shape: &[usize], last: &[usize], is_reduced: &[bool]) -> [Vec<usize>; 2] {
    let axes = || 0..shape.len();
    let of_last = axes().map(|axis| if is_reduced[axis] { 0 } else { last[axis] }).collect();
    let of_slice = axes().map(|axis| if is_reduced[axis] { shape[axis] } else { 1 });
    let of_position = row_major_strides(&of_slice.collect::<Vec<_>>());
    let of_position = of_position.into_iter().enumerate();
    let of_position = of_position.map(|(axis, stride)| if is_reduced[axis] { stride } else { 0 });
    [of_last, of_position.collect()]
}

/// The dimensions of the input, with neighbouring elements along the last.
fn mask_dims(applied: &AppliedProblem) -> Vec<MaskDim> {
    let [last, position] = applied.companions() else { unreachable!("two were stated") };
    let problem = applied.problem();
    let kept = problem.kept().iter().zip(last.kept.iter().zip(&position.kept));
    let reduced = problem.reduced().iter().zip(last.reduced.iter().zip(&position.reduced));
    let kept = kept.map(|(dim, (&last, &position))| {
        let (extent, input, output) = (dim.extent, dim.stride, dim.output_stride);
        MaskDim { extent, input, output, last, position }
    });
    let reduced = reduced.map(|(dim, (&last, &position))| {
        let (extent, input, output) = (dim.extent, dim.stride, dim.position_stride);
        MaskDim { extent, input, output, last, position }
    });
    let mut all: Vec<MaskDim> = kept.chain(reduced).collect();
    all.sort_by_key(|dim| core::cmp::Reverse(dim.input));
    all
}
