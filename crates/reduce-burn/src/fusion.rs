//! Burn's fused backends: an operation of this crate is one custom operation of the stream.
//!
//! Recording it launches nothing and waits for nothing. It runs later, on the device's thread,
//! between the operations before and after it. An error there would only reach who reads a result,
//! so the operation is checked when it is recorded.
//!
//! `#[backend_extension]` would generate this for operations with a fixed number of tensors. Those
//! of this crate take lists, and return errors.

use burn_backend::tensor::Device;
use burn_fusion::{
    Fusion, FusionBackend, FusionRuntime, FusionTensor,
    custom::{OperationFn, StreamId},
};
use burn_ir::{CustomOpIr, HandleContainer, OperationIr, TensorIr};
use burn_std::ExecutionError;

use crate::{
    backend::{Operation, ReduceBackend, Results},
    error::ReduceBurnError,
    tensor::AnyTensor,
};
use burn_tensor::kind::Kind;

impl<B: FusionBackend + ReduceBackend> ReduceBackend for Fusion<B> {
    fn planner_device(device: &Device<Self>) -> Option<reduce_kernels::Device> {
        B::planner_device(device)
    }

    #[cfg(feature = "serde")]
    fn use_plans(
        device: &Device<Self>,
        plans: reduce_kernels::plans::PlanStore,
    ) -> Result<(), reduce_kernels::plans::StoreError> {
        B::use_plans(device, plans)
    }

    fn check(operation: &Operation, device: &Device<Self>) -> Result<(), ReduceBurnError> {
        B::check(operation, device)
    }

    fn run(
        tensors: Vec<AnyTensor<Self>>,
        operation: Operation,
    ) -> Result<Results<Self>, ReduceBurnError> {
        let kinds: Vec<Kind> = tensors.iter().map(AnyTensor::kind).collect();
        let tensors: Vec<_> = tensors.into_iter().map(AnyTensor::into_inner).collect();
        let client = tensors[0].client.clone();
        B::check(&operation, client.device())?;
        let inputs: Vec<TensorIr> = tensors.into_iter().map(FusionTensor::into_ir).collect();
        let outputs = operation.outputs();
        let described: Vec<TensorIr> = outputs
            .iter()
            .map(|(_, dtype, shape)| {
                TensorIr::uninit(client.create_empty_handle(), shape.clone(), *dtype)
            })
            .collect();
        let described = CustomOpIr::new(operation.name(), &inputs, &described);
        let recorded = described.clone();
        let execute = move |handles: &mut Handles<B>| {
            let tensors = recorded.inputs.iter().zip(&kinds);
            let tensors = tensors.map(|(input, kind)| take_input(handles, input, *kind)).collect();
            let results = B::run(tensors, operation.clone()).map_err(|error| {
                ExecutionError::generic(format!("`{}`: {error}", operation.name()))
            })?;
            register_outputs(handles, &recorded.outputs, results);
            Ok(())
        };
        let operation = OperationIr::Custom(described);
        let tensors = client.register(StreamId::current(), operation, OperationFn(execute));
        let typed = tensors.into_iter().zip(outputs);
        Ok(typed.map(|(tensor, (kind, ..))| AnyTensor::of_kind(kind, tensor)).collect())
    }
}

/// The tensors of a stream.
type Handles<B> =
    HandleContainer<<<B as FusionBackend>::FusionRuntime as FusionRuntime>::FusionHandle>;

/// An input of a recorded operation.
fn take_input<B: FusionBackend>(
    handles: &mut Handles<B>,
    input: &TensorIr,
    kind: Kind,
) -> AnyTensor<B> {
    match kind {
        Kind::Float => AnyTensor::Float(handles.get_float_tensor::<B>(input)),
        Kind::Int => AnyTensor::Int(handles.get_int_tensor::<B>(input)),
        Kind::Bool => AnyTensor::Bool(handles.get_bool_tensor::<B>(input)),
    }
}

/// Makes results the outputs of a recorded operation.
fn register_outputs<B: FusionBackend>(
    handles: &mut Handles<B>,
    outputs: &[TensorIr],
    results: Results<B>,
) {
    for (output, result) in outputs.iter().zip(results) {
        match result {
            AnyTensor::Float(tensor) => handles.register_float_tensor::<B>(&output.id, tensor),
            AnyTensor::Int(tensor) => handles.register_int_tensor::<B>(&output.id, tensor),
            AnyTensor::Bool(tensor) => handles.register_bool_tensor::<B>(&output.id, tensor),
        }
    }
}
