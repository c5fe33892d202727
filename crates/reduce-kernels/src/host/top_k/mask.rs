//! Inputs of which only the selected elements are kept: a selection of the last of them, and the
//! launch that compares every element with that.

use cubecl::{ir::AddressType, prelude::*, server::BufferBinding, std::tensor::TensorHandle};
use reduce_planner::{
    AppliedProblem, AppliedSpec, Device, ElementType, Illegal, InputSpec, OperatorClass, PlanError,
    Role, applied_needs_wide_indices, check_limits, row_major_strides,
};

use super::{
    launch::Selecting,
    request::{PreparedTopK, TopKLaunch, TopKRequest},
};
use crate::{
    element::memory_type,
    error::{Reason, ReduceError},
    host::{
        arguments::{count, dims, merging_types},
        bound::Bound,
        call::Call,
        companion::list,
        launched::Kernel,
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

/// The numbers of the second launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct MaskLaunch {
    units: u32,
    grid: [u32; 3],
    address: AddressType,
}

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

/// Checks that elements of a type can be replaced by a number.
///
/// # Errors
///
/// The type does not have the number.
pub(crate) fn check_fill(element: ElementType, fill: f32) -> Result<(), ReduceError> {
    if has(element, fill) {
        return Ok(());
    }
    let (value, expected) = (f64::from(fill), "a number that the elements' type has");
    let invalid = InvalidParameter { name: "fill", value, expected };
    Err(Reason::Parameter { operator: NAME.to_owned(), invalid }.into())
}

/// States the launch that compares each element with the last selected one of its slice. These have
/// the strides `last` along the axes of the input.
pub(super) fn state(
    input: &InputSpec<'_>,
    axes: Option<&[usize]>,
    is_reduced: &[bool],
    last: &[usize],
    output: &[usize],
) -> Result<AppliedProblem, ReduceError> {
    let element = input.element;
    let [of_last, of_position] = strides_beside(input.shape, last, is_reduced);
    let applied = AppliedSpec {
        element,
        strides: Some(output),
        second: None,
        companions: &[&of_last[..], &of_position[..]],
        further: &[],
    };
    let class = OperatorClass::new(NAME, element.bytes()).exact();
    Ok(AppliedProblem::new(class, input, axes, &applied)?)
}

impl MaskLaunch {
    /// The launch for a device.
    ///
    /// # Errors
    ///
    /// Indices or a grid that the device does not have.
    pub(super) fn new(applied: &AppliedProblem, device: &Device) -> Result<Self, ReduceError> {
        check_limits(applied.problem(), device, 0)?;
        let units = UNITS.min(device.max_units_per_cube);
        let elements = applied.elements() as u64;
        let cubes = elements.div_ceil(u64::from(units) * EACH as u64);
        let grid = device.grid(cubes).ok_or_else(|| {
            let reason = Illegal::Grid { cubes, merging: false };
            let (plan, device) = ("a mask".to_owned(), device.name.clone());
            ReduceError::from(PlanError::Unfit { plan, device, reason })
        })?;
        let wide = applied_needs_wide_indices(applied);
        Ok(Self { units, grid, address: if wide { AddressType::U64 } else { AddressType::U32 } })
    }
}

impl<'a> Call<'a, TopKRequest<'a>> {
    /// Writes the input with `fill` in place of all elements but the first `k`, into a tensor of
    /// the same shape. The task is that of a mask.
    ///
    /// # Errors
    ///
    /// Those of the selection, and outputs that do not fit.
    pub(crate) fn keep_only(
        self,
        client: &Client,
        input: &TensorHandle,
        fill: f32,
        output: BufferBinding,
    ) -> Result<(), ReduceError> {
        let prepared = self.prepared(client)?;
        let applied = prepared.stated.mask.as_ref().expect("the task is that of a mask");
        let (problem, element) = (applied.problem(), self.task.element);
        let kept = Bound::check(client, Role::Output, output, problem.output_span(), element)?;
        let span = problem.input_span();
        let read = Bound::check_input(client, Role::Input, &input.handle, span, element)?;
        let Some(TopKLaunch { mask: Some(mask), selection, .. }) = prepared.launch else {
            return Ok(());
        };
        let [last, positions] = prepared.run_new(client, Selecting::from(input, None))?;
        let signature = &prepared.stated.signature;
        let slices = prepared.stated.problem.output_span();
        let own = |tensor: TensorHandle, nth: usize| {
            let bytes = signature.results[nth].bytes();
            Bound::own(tensor.handle.binding(), slices, bytes).elements()
        };
        let all = mask_dims(applied);
        let of = |stride: fn(&MaskDim) -> usize| list(&all.iter().map(stride).collect::<Vec<_>>());
        // SAFETY: units past the last element do nothing, and the offsets of all others lie inside
        // the spans of the input and of the output. The selection has left an element and its
        // position for each slice. A unit writes where it has read, if the output is the input, and
        // no other unit reads there.
        unsafe {
            keep_selected::launch_unchecked(
                client,
                count(mask.grid),
                CubeDim::new_1d(mask.units),
                mask.address,
                prepared.mask_types(client),
                read.elements(),
                own(last, 0),
                own(positions, 1),
                kept.elements(),
                dims(&all, |dim| (dim.extent, dim.input, dim.output)),
                of(|dim| dim.last),
                of(|dim| dim.position),
                prepared.order.argument(),
                fill,
                applied.elements(),
                selection,
            );
        }
        Ok(())
    }
}

impl PreparedTopK {
    /// The kernel of the launch after the selection, if there is a mask.
    pub(super) fn mask_kernel(&self, client: &Client) -> Option<Kernel> {
        let (launch, applied) = (self.launch.as_ref()?, self.stated.mask.as_ref()?);
        let address = launch.mask?.address;
        let dims = mask_dims(applied).len();
        let generated_for = (self.mask_types(client), address, dims, launch.selection);
        Some(Kernel::new("keep_selected", generated_for))
    }

    fn mask_types(&self, client: &Client) -> KernelTypesArg {
        let stated = &self.stated;
        KernelTypesArg {
            stored: memory_type(stated.problem.slices().input()),
            hardware_math: false,
            ..merging_types(client, &stated.signature)
        }
    }
}

/// Whether a type has a number, or one that it is rounded to.
fn has(element: ElementType, number: f32) -> bool {
    let number = f64::from(number);
    let (least, beyond) = match element {
        // fp8 has no infinity, or conversions give none.
        _ if element.is_f8() => return number.is_finite() || number.is_nan(),
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

#[cfg(test)]
mod tests {
    use super::{ElementType, has};

    /// What elements are filled with is a number of their type, or one that it is rounded to.
    #[test]
    fn fills_of_types() {
        for (element, number, expected) in [
            (ElementType::F16, f32::NEG_INFINITY, true),
            (ElementType::F8E5M2, f32::NEG_INFINITY, false),
            (ElementType::F8E4M3, f32::INFINITY, false),
            (ElementType::F8E4M3, 0.3, true),
            (ElementType::I8, -128.0, true),
            (ElementType::I8, 128.0, false),
            (ElementType::U8, -1.0, false),
        ] {
            assert_eq!(has(element, number), expected, "{element} {number}");
        }
    }
}
