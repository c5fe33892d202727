//! The types of a task: what the planner needs to know of them, and whether a device computes with
//! them.

use cubecl::prelude::*;
use reduce_planner::{Device, ElementCost, ElementType, OperatorClass, PlanError};

use super::client::{computes_with, has_wide_math, is_software_with_spirv};
use crate::{
    error::{Reason, ReduceError},
    operator::{Erased, ErasedApply, Signature},
};

/// Words of 32 bits that an accumulator with these fields takes. Each field starts a word.
pub(crate) fn word_count(fields: &[ElementType]) -> usize {
    fields.iter().map(|field| field.bytes().div_ceil(size_of::<u32>())).sum()
}

/// What the planner needs to know about an operator that computes in these types.
pub(crate) fn class_of(operator: &Erased, signature: &Signature) -> OperatorClass {
    let fields = &signature.fields[..operator.fields];
    let bytes = fields.iter().map(|field| field.bytes()).sum();
    let mut class = OperatorClass::new(operator.name, bytes).fields(fields.len());
    class.positional = operator.positional;
    class.defined_on_empty = operator.defined_on_empty;
    class.element_cost = match (operator.transcendental, operator.powers) {
        (false, _) => ElementCost::Plain,
        (true, false) => ElementCost::Exponential,
        (true, true) => ElementCost::Power,
    };
    class.blockwise = operator.blocks.is_some();
    class.passes_bytes = operator.passes.map(|passes| {
        let of_pass = |pass: &Erased| {
            signature.fields[..pass.fields].iter().map(|field| field.bytes()).sum::<usize>()
        };
        of_pass(passes.first) + of_pass(passes.second)
    });
    class
}

/// Checks that CubeCL writes kernels for the client's device, and the types that they compute with;
/// the planner checks those of tensors.
pub(crate) fn check_arithmetic(
    client: &Client,
    operator: &Erased,
    signature: &Signature,
    device: &Device,
) -> Result<(), ReduceError> {
    check_kernels(client)?;
    let fields = signature.fields[..operator.fields].iter().copied();
    for element in core::iter::once(signature.value).chain(fields) {
        check_computes(client, device, element)?;
        if operator.transcendental
            && element == ElementType::F64
            && !has_wide_math(client, operator.native_math)
        {
            let device = device.name.clone();
            return Err(
                Reason::Transcendental { operator: operator.name(), element, device }.into()
            );
        }
    }
    Ok(())
}

/// Checks that CubeCL writes kernels for the client's device.
pub(super) fn check_kernels(client: &Client) -> Result<(), ReduceError> {
    match is_software_with_spirv(client) {
        true => {
            let device = client.properties().identity.name.clone();
            Err(Reason::SoftwareSpirv { device }.into())
        }
        false => Ok(()),
    }
}

/// Checks that kernels can read and write elements of a type.
pub(super) fn check_element(device: &Device, element: ElementType) -> Result<(), ReduceError> {
    if device.has(element) {
        return Ok(());
    }
    let device = device.name.clone();
    Err(PlanError::ElementUnsupported { device, element }.into())
}

/// Checks that kernels can compute with elements of a type.
pub(super) fn check_computes(
    client: &Client,
    device: &Device,
    element: ElementType,
) -> Result<(), ReduceError> {
    match device.has(element) && computes_with(client, element) {
        true => Ok(()),
        false => {
            let device = device.name.clone();
            Err(PlanError::ElementUnsupported { device, element }.into())
        }
    }
}

/// Checks that kernels can apply results in the type `real`.
pub(super) fn check_apply_types(
    client: &Client,
    device: &Device,
    apply: &ErasedApply,
    real: ElementType,
) -> Result<(), ReduceError> {
    check_computes(client, device, real)?;
    if apply.transcendental && real == ElementType::F64 && !has_wide_math(client, apply.native_math)
    {
        let (operator, device) = (apply.name.to_owned(), device.name.clone());
        return Err(Reason::Transcendental { operator, element: real, device }.into());
    }
    Ok(())
}

/// The type in which results are applied: f64 if the caller has or wants f64.
pub(crate) fn applied_type(
    input: ElementType,
    accumulator: Option<ElementType>,
    output: Option<ElementType>,
) -> ElementType {
    match [Some(input), accumulator, output].contains(&Some(ElementType::F64)) {
        true => ElementType::F64,
        false => ElementType::F32,
    }
}
