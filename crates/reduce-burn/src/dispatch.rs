//! Burn's `Dispatch`, which the tensors of users are on: it hands operations to the backend that
//! holds the tensors.
//!
//! `#[backend_extension]` would generate this, but needs to be told by features of this crate which
//! backends the build of Burn has, and takes neither lists of tensors nor errors. Here a trait
//! bound tells: `DispatchTensor` converts to the tensors of a backend if Burn has it.

use core::marker::PhantomData;

use burn_autodiff::{
    Autodiff,
    checkpoint::strategy::{BalancedCheckpointing, CheckpointStrategy, NoCheckpointing},
};
use burn_backend::{
    AutodiffBackend, Backend, TensorMetadata,
    ops::IntTensorOps,
    tensor::{Device, IntTensor},
};
use burn_dispatch::{
    BackendTensor, Dispatch, DispatchAutodiffContext, DispatchKindConversion, DispatchTensor,
    GradientCheckpointingStrategy,
};
use burn_tensor::{IntDType, Shape};

use crate::{
    backend::{Operation, ReduceBackend, Results},
    composed,
    error::ReduceBurnError,
    tensor::AnyTensor,
};

/// The value of an expression with the backend that holds a tensor, or of another one if that is
/// none of those with an implementation of their own.
macro_rules! on_backend_of {
    ($tensor:expr, $backend:ident => $value:expr, otherwise $other:expr) => {
        'found: {
            // Methods of `Present` take these references as they are, those of `Absent` references
            // to them, so `Present` is found first where it is implemented.
            #[cfg(feature = "cube")]
            {
                let $backend = &Of::<burn_cubecl::Cube>(PhantomData);
                if $backend.holds($tensor) {
                    break 'found $value;
                }
            }
            #[cfg(feature = "flex")]
            {
                let $backend = &Of::<burn_flex::Flex>(PhantomData);
                if $backend.holds($tensor) {
                    break 'found $value;
                }
            }
            $other
        }
    };
}

impl ReduceBackend for Dispatch {
    fn planner_device(device: &Device<Self>) -> Option<reduce_kernels::Device> {
        let tensor = tensor_on(device);
        on_backend_of!(&tensor, backend => backend.planner_device(tensor), otherwise None)
    }

    #[cfg(feature = "serde")]
    fn use_plans(
        device: &Device<Self>,
        plans: reduce_kernels::plans::PlanStore,
    ) -> Result<(), reduce_kernels::plans::StoreError> {
        let tensor = tensor_on(device);
        on_backend_of!(&tensor, backend => backend.use_plans(tensor, plans), otherwise Ok(()))
    }

    fn check(operation: &Operation, device: &Device<Self>) -> Result<(), ReduceBurnError> {
        let tensor = tensor_on(device);
        on_backend_of!(&tensor, backend => backend.check(operation, tensor), otherwise Ok(()))
    }

    fn run(
        tensors: Vec<AnyTensor<Self>>,
        operation: Operation,
    ) -> Result<Results<Self>, ReduceBurnError> {
        on_backend_of!(
            tensors[0].inner(),
            backend => backend.run(tensors, operation),
            otherwise composed::run(tensors, &operation)
        )
    }
}

/// A tensor that is on a device, whose elements nobody reads. Devices are not converted to those of
/// a backend, tensors are.
fn tensor_on(device: &Device<Dispatch>) -> IntTensor<Dispatch> {
    Dispatch::int_empty(Shape::from([1]), &device.clone().inner(), IntDType::I32)
}

/// What the build of Burn does with a backend.
struct Of<B>(PhantomData<B>);

/// A backend that Burn was built with.
trait Present {
    fn holds(&self, tensor: &DispatchTensor) -> bool;
    fn planner_device(&self, tensor: DispatchTensor) -> Option<reduce_kernels::Device>;
    #[cfg(feature = "serde")]
    fn use_plans(
        &self,
        tensor: DispatchTensor,
        plans: reduce_kernels::plans::PlanStore,
    ) -> Result<(), reduce_kernels::plans::StoreError>;
    fn check(&self, operation: &Operation, tensor: DispatchTensor) -> Result<(), ReduceBurnError>;
    fn run(
        &self,
        tensors: Vec<AnyTensor<Dispatch>>,
        operation: Operation,
    ) -> Result<Results<Dispatch>, ReduceBurnError>;
}

impl<B: ReduceBackend> Present for Of<B>
where
    DispatchTensor: DispatchKindConversion<B>
        + DispatchKindConversion<Autodiff<B, NoCheckpointing>>
        + DispatchKindConversion<Autodiff<B, BalancedCheckpointing>>,
{
    fn holds(&self, tensor: &DispatchTensor) -> bool {
        use GradientCheckpointingStrategy::{Balanced, Disabled};

        let tensor = tensor.clone();
        match tensor.autodiff {
            DispatchAutodiffContext::Disabled => converts::<B>(tensor),
            DispatchAutodiffContext::Enabled(Disabled) => {
                converts::<Autodiff<B, NoCheckpointing>>(tensor)
            }
            DispatchAutodiffContext::Enabled(Balanced) => {
                converts::<Autodiff<B, BalancedCheckpointing>>(tensor)
            }
        }
    }

    fn planner_device(&self, tensor: DispatchTensor) -> Option<reduce_kernels::Device> {
        B::planner_device(&taken::<B>(tensor).device())
    }

    #[cfg(feature = "serde")]
    fn use_plans(
        &self,
        tensor: DispatchTensor,
        plans: reduce_kernels::plans::PlanStore,
    ) -> Result<(), reduce_kernels::plans::StoreError> {
        B::use_plans(&taken::<B>(tensor).device(), plans)
    }

    fn check(&self, operation: &Operation, tensor: DispatchTensor) -> Result<(), ReduceBurnError> {
        B::check(operation, &taken::<B>(tensor).device())
    }

    fn run(
        &self,
        tensors: Vec<AnyTensor<Dispatch>>,
        operation: Operation,
    ) -> Result<Results<Dispatch>, ReduceBurnError> {
        use GradientCheckpointingStrategy::{Balanced, Disabled};

        let contexts = tensors.iter().map(|tensor| tensor.inner().autodiff);
        match contexts.fold(DispatchAutodiffContext::Disabled, DispatchAutodiffContext::merge) {
            DispatchAutodiffContext::Disabled => run_as::<B>(tensors, operation, taken),
            DispatchAutodiffContext::Enabled(Disabled) => {
                run_as(tensors, operation, lifted::<B, NoCheckpointing>)
            }
            DispatchAutodiffContext::Enabled(Balanced) => {
                run_as(tensors, operation, lifted::<B, BalancedCheckpointing>)
            }
        }
    }
}

/// A backend that Burn was built without, and so holds no tensor.
trait Absent {
    fn holds(&self, _tensor: &DispatchTensor) -> bool {
        false
    }

    fn planner_device(&self, _tensor: DispatchTensor) -> Option<reduce_kernels::Device> {
        unreachable!("no tensor is on this backend")
    }

    #[cfg(feature = "serde")]
    fn use_plans(
        &self,
        _tensor: DispatchTensor,
        _plans: reduce_kernels::plans::PlanStore,
    ) -> Result<(), reduce_kernels::plans::StoreError> {
        unreachable!("no tensor is on this backend")
    }

    fn check(
        &self,
        _operation: &Operation,
        _tensor: DispatchTensor,
    ) -> Result<(), ReduceBurnError> {
        unreachable!("no tensor is on this backend")
    }

    fn run(
        &self,
        _tensors: Vec<AnyTensor<Dispatch>>,
        _operation: Operation,
    ) -> Result<Results<Dispatch>, ReduceBurnError> {
        unreachable!("no tensor is on this backend")
    }
}

impl<B> Absent for &Of<B> {}

fn converts<B: Backend>(tensor: DispatchTensor) -> bool
where
    DispatchTensor: DispatchKindConversion<B>,
{
    <DispatchTensor as DispatchKindConversion<B>>::try_into_backend(tensor).is_ok()
}

/// A tensor as a backend's own.
///
/// # Panics
///
/// It is on another backend.
fn taken<B: Backend>(tensor: DispatchTensor) -> BackendTensor<B>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    <DispatchTensor as DispatchKindConversion<B>>::try_into_backend(tensor)
        .unwrap_or_else(|error| panic!("tensors of one operation are on one device: {error}"))
}

/// A tensor as one of the autodiff backend. One without autodiff is a constant there.
fn lifted<B: Backend, C: CheckpointStrategy>(
    tensor: DispatchTensor,
) -> BackendTensor<Autodiff<B, C>>
where
    DispatchTensor: DispatchKindConversion<B> + DispatchKindConversion<Autodiff<B, C>>,
{
    if tensor.autodiff != DispatchAutodiffContext::Disabled {
        return taken::<Autodiff<B, C>>(tensor);
    }
    match taken::<B>(tensor) {
        BackendTensor::Float(tensor) => BackendTensor::Float(Autodiff::<B, C>::from_inner(tensor)),
        BackendTensor::Int(tensor) => BackendTensor::Int(tensor),
        BackendTensor::Bool(tensor) => BackendTensor::Bool(tensor),
        other => panic!("no operation takes a tensor of kind {}", other.name()),
    }
}

/// Runs an operation on a backend, whose tensors `take` makes of those of `Dispatch`.
fn run_as<B: ReduceBackend>(
    tensors: Vec<AnyTensor<Dispatch>>,
    operation: Operation,
    take: fn(DispatchTensor) -> BackendTensor<B>,
) -> Result<Results<Dispatch>, ReduceBurnError>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    let tensors = tensors.into_iter().map(|tensor| match tensor {
        AnyTensor::Float(tensor) => AnyTensor::Float(take(tensor).float()),
        AnyTensor::Int(tensor) => AnyTensor::Int(take(tensor).int()),
        AnyTensor::Bool(tensor) => AnyTensor::Bool(take(tensor).bool()),
    });
    let results = B::run(tensors.collect(), operation)?.into_iter().map(|result| match result {
        AnyTensor::Float(tensor) => AnyTensor::Float(given(BackendTensor::<B>::Float(tensor))),
        AnyTensor::Int(tensor) => AnyTensor::Int(given(BackendTensor::<B>::Int(tensor))),
        AnyTensor::Bool(tensor) => AnyTensor::Bool(given(BackendTensor::<B>::Bool(tensor))),
    });
    Ok(results.collect())
}

fn given<B: Backend>(tensor: BackendTensor<B>) -> DispatchTensor
where
    DispatchTensor: DispatchKindConversion<B>,
{
    <DispatchTensor as DispatchKindConversion<B>>::from_backend(tensor)
}
