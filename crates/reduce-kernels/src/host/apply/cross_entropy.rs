//! The two launches of a cross-entropy, without types.

use cubecl::{ir::AddressType, prelude::*, std::tensor::TensorHandle};
use reduce_planner::{
    AppliedProblem, AppliedSpec, ElementType, Illegal, InputSpec, OperatorClass, PlanError,
    ProblemError, Role, applied_needs_wide_indices,
};

use super::request::result_strides;
use crate::{
    element::{element_type, memory_type, storage_type},
    error::{Reason, ReduceError},
    host::{
        arguments::count, bound::Bound, cache, client::has_hardware_math, companion::list,
        types::applied_type,
    },
    input::sealed::Layout,
    kernels::{
        args::{ApplicationTypes, KernelTypesArg, Stores},
        geometry::{DimLaunch, DivisorLaunch},
        pick::pick_losses,
    },
};

/// The name in messages.
const NAME: &str = "cross_entropy";

/// Units of a cube of the second launch.
const UNITS: u32 = 128;

/// The losses of each slice along `axis`. `sums` launches the reduction to the largest logit and
/// the logarithm of the sum, in the type that it is given.
pub(crate) fn cross_entropy(
    client: &Client,
    logits: &TensorHandle,
    classes: &TensorHandle,
    axis: usize,
    sums: impl FnOnce(ElementType) -> Result<(TensorHandle, TensorHandle), ReduceError>,
) -> Result<TensorHandle, ReduceError> {
    let input = logits.spec()?;
    let rank = input.shape.len();
    if axis >= rank {
        return Err(ProblemError::AxisOutOfRange { axis, rank }.into());
    }
    let has_slices = (0..rank).all(|other| other == axis || input.shape[other] > 0);
    if input.shape[axis] == 0 && has_slices {
        let (shape, axes) = (input.shape.to_vec(), vec![axis]);
        return Err(ProblemError::EmptyReduction { operator: NAME, shape, axes }.into());
    }
    let class_type = element_type(classes.dtype)?;
    if class_type.is_float() || class_type == ElementType::Bool {
        return Err(Reason::ClassType { found: class_type }.into());
    }
    let class_strides = class_strides(input.shape, classes, axis)?;
    let real = applied_type(input.element, None, None);
    let results = result_strides(input.shape, Some(&[axis]));
    let applied = AppliedProblem::new(
        OperatorClass::new(NAME, real.bytes()),
        &input,
        Some(&[axis]),
        &AppliedSpec {
            element: real,
            strides: None,
            second: None,
            companions: &[&results[..], &class_strides[..]],
            further: &[],
        },
    )?;
    let device = cache::device(client);
    if !device.has(class_type) {
        let (device, element) = (device.name.clone(), class_type);
        return Err(PlanError::ElementUnsupported { device, element }.into());
    }
    let outputs = applied.problem().outputs();
    let span = applied.problem().input_span();
    let bound_logits =
        Bound::check_input(client, Role::Input, &logits.handle, span, input.element)?;
    let span = outputs_span(classes);
    let bound_classes =
        Bound::check_input(client, Role::Classes, &classes.handle, span, class_type)?;
    let wanted = (outputs as u64).div_ceil(u64::from(UNITS));
    let grid = device.grid(wanted).ok_or_else(|| PlanError::Unfit {
        plan: "the losses of all classes".into(),
        device: device.name.clone(),
        reason: Illegal::Grid { cubes: wanted, merging: false },
    })?;

    let (most, logarithms) = sums(real)?;
    let losses = client.empty(outputs.max(1) * real.bytes());
    let shape = most.shape().to_vec();
    let losses = TensorHandle::new_contiguous(shape, losses, storage_type(real));
    if outputs == 0 {
        return Ok(losses);
    }
    let problem = applied.problem();
    let mut kept = SequenceArg::new();
    for (dim, &target) in problem.kept().iter().zip(&applied.companions()[0].kept) {
        kept.push(DimLaunch::new(DivisorLaunch::of(dim.extent), dim.stride, target));
    }
    let address = match applied_needs_wide_indices(&applied) {
        true => AddressType::U64,
        false => AddressType::U32,
    };
    let own = |tensor: &TensorHandle| {
        Bound::own(tensor.handle.clone().binding(), outputs, real.bytes()).elements()
    };
    // SAFETY: units past the last output do nothing. Offsets in the logits lie inside their span,
    // because classes that are out of range read the first element of their slice.
    unsafe {
        pick_losses::launch_unchecked(
            client,
            count(grid),
            CubeDim::new_1d(UNITS),
            address,
            types(client, &input, class_type, real),
            bound_logits.elements(),
            bound_classes.elements(),
            own(&most),
            own(&logarithms),
            own(&losses),
            kept,
            list(&applied.companions()[1].kept),
            input.strides[axis],
            u32::try_from(input.shape[axis]).unwrap_or(u32::MAX),
            outputs,
        );
    }
    Ok(losses)
}

fn types(
    client: &Client,
    input: &InputSpec<'_>,
    classes: ElementType,
    real: ElementType,
) -> KernelTypesArg {
    let (real, classes) = (memory_type(real), memory_type(classes));
    KernelTypesArg {
        second: None,
        stored: memory_type(input.element),
        value: real,
        fields: [real; 5],
        results: [real; 3],
        width: 1,
        hardware_math: has_hardware_math(client),
        chains: false,
        same_bits: false,
        offsets: None,
        indices: None,
        application: Some(ApplicationTypes { real, outputs: [real; 3], operands: [classes; 3] }),
        stores: Stores::Elements,
        of_shard: false,
    }
}

/// Elements from the first to the last of a tensor, which has some.
fn outputs_span(tensor: &TensorHandle) -> usize {
    reduce_planner::span(tensor.shape(), tensor.strides()).unwrap_or(usize::MAX)
}

/// The strides of the classes along the axes of the logits, 0 along that of the classes. Their
/// shape lacks this axis, or has it with size 1.
fn class_strides(
    shape: &[usize],
    classes: &TensorHandle,
    axis: usize,
) -> Result<Vec<usize>, ReduceError> {
    let mut without = shape.to_vec();
    without.remove(axis);
    let mut with_one = shape.to_vec();
    with_one[axis] = 1;
    let found = classes.shape();
    let mut strides = classes.strides().to_vec();
    if found[..] == without[..] {
        strides.insert(axis, 0);
    } else if found[..] == with_one[..] {
        strides[axis] = 0;
    } else {
        return Err(Reason::ClassShape { found: found.to_vec(), expected: without }.into());
    }
    Ok(strides)
}
