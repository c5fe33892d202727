//! Burn's fused backends: a reduction of one input or of two, an application or a clipping is one
//! custom operation of the stream.
//!
//! Recording it launches nothing and waits for nothing. The operation runs later, on the device's
//! thread, between the operations before and after it. That thread has no way to return an error,
//! so the operation is checked when it is recorded.

use core::{iter, marker::PhantomData};

use burn_backend::{
    DType,
    tensor::{Device, FloatTensor},
};
use burn_fusion::{
    Fusion, FusionBackend, FusionRuntime, FusionTensor,
    stream::{Operation, OperationStreams},
};
use burn_ir::{CustomOpIr, HandleContainer, OperationIr, TensorIr};
use burn_tensor::Shape;

use crate::{
    AnyTensor, Application, Clipped, Clipping, Kind, PairReduction, ReduceBackend, ReduceBurnError,
    Reduction, Results, WithStatistics, clip,
};

impl<B: FusionBackend + ReduceBackend> ReduceBackend for Fusion<B> {
    fn planner_device(device: &Device<Self>) -> Option<reduce_kernels::Device> {
        B::planner_device(device)
    }

    #[cfg(feature = "serde")]
    fn use_plans(
        device: &Device<Self>,
        plans: reduce_kernels::PlanStore,
    ) -> Result<(), reduce_kernels::StoreError> {
        B::use_plans(device, plans)
    }

    fn check(reduction: &Reduction, device: &Device<Self>) -> Result<(), ReduceBurnError> {
        B::check(reduction, device)
    }

    fn reduce(
        tensor: AnyTensor<Self>,
        reduction: &Reduction,
    ) -> Result<Results<Self>, ReduceBurnError> {
        let tensor = tensor.into_inner();
        let client = tensor.client.clone();
        B::check(reduction, client.device())?;
        let streams = OperationStreams::with_inputs([&tensor]);
        let shape = reduction.output_shape();
        let outputs = reduction.outputs();
        let described: Vec<TensorIr> = outputs
            .iter()
            .map(|&(_, dtype)| TensorIr::uninit(client.create_empty_handle(), shape.clone(), dtype))
            .collect();
        let described =
            CustomOpIr::new(reduction.operator().name(), &[tensor.into_ir()], &described);
        let recorded = Recorded::<B> {
            described: described.clone(),
            reduction: reduction.clone(),
            backend: PhantomData,
        };
        let tensors = client.register(streams, OperationIr::Custom(described), recorded);
        let typed = tensors.into_iter().zip(outputs);
        Ok(typed.map(|(tensor, (kind, _))| AnyTensor::of_kind(kind, tensor)).collect())
    }

    fn check_pair(pair: &PairReduction, device: &Device<Self>) -> Result<(), ReduceBurnError> {
        B::check_pair(pair, device)
    }

    fn reduce_pair(
        first: AnyTensor<Self>,
        second: AnyTensor<Self>,
        pair: &PairReduction,
    ) -> Result<Results<Self>, ReduceBurnError> {
        let inputs = [first, second].map(AnyTensor::into_inner);
        let client = inputs[0].client.clone();
        B::check_pair(pair, client.device())?;
        let streams = OperationStreams::with_inputs(&inputs);
        let shape = pair.output_shape();
        let outputs = pair.outputs();
        let described: Vec<TensorIr> = outputs
            .iter()
            .map(|&(_, dtype)| TensorIr::uninit(client.create_empty_handle(), shape.clone(), dtype))
            .collect();
        let inputs = inputs.map(FusionTensor::into_ir);
        let described = CustomOpIr::new(pair.function().name(), &inputs, &described);
        let recorded = RecordedPair::<B> {
            described: described.clone(),
            pair: pair.clone(),
            backend: PhantomData,
        };
        let tensors = client.register(streams, OperationIr::Custom(described), recorded);
        let typed = tensors.into_iter().zip(outputs);
        Ok(typed.map(|(tensor, (kind, _))| AnyTensor::of_kind(kind, tensor)).collect())
    }

    fn check_application(
        application: &Application,
        device: &Device<Self>,
    ) -> Result<(), ReduceBurnError> {
        B::check_application(application, device)
    }

    fn check_application_with_statistics(
        application: &Application,
        device: &Device<Self>,
    ) -> Result<(), ReduceBurnError> {
        B::check_application_with_statistics(application, device)
    }

    fn apply(
        tensor: FloatTensor<Self>,
        operands: Vec<FloatTensor<Self>>,
        application: &Application,
    ) -> Result<FloatTensor<Self>, ReduceBurnError> {
        let mut tensors = record_application::<B>(tensor, operands, application, Vec::new())?;
        Ok(tensors.pop().expect("an application has one output"))
    }

    fn apply_with_statistics(
        tensor: FloatTensor<Self>,
        operands: Vec<FloatTensor<Self>>,
        application: &Application,
    ) -> Result<WithStatistics<Self>, ReduceBurnError> {
        let (count, dtype, shape) = application.statistics();
        let statistics = vec![(dtype, shape); count];
        let mut tensors = record_application::<B>(tensor, operands, application, statistics)?;
        let statistics = tensors.split_off(1);
        Ok((tensors.pop().expect("the result is the first output"), statistics))
    }

    fn check_clipping(clipping: &Clipping, device: &Device<Self>) -> Result<(), ReduceBurnError> {
        B::check_clipping(clipping, device)
    }

    fn clip_by_global_norm(
        tensors: Vec<FloatTensor<Self>>,
        clipping: &Clipping,
    ) -> Result<Clipped<Self>, ReduceBurnError> {
        let client = tensors[0].client.clone();
        B::check_clipping(clipping, client.device())?;
        let streams = OperationStreams::with_inputs(&tensors);
        let inputs: Vec<TensorIr> = tensors.into_iter().map(FusionTensor::into_ir).collect();
        let norm = (clipping.norm_dtype(), clipping.norm_shape());
        let outputs: Vec<TensorIr> = clipping
            .tensors()
            .iter()
            .chain([&norm])
            .map(|(dtype, shape)| {
                TensorIr::uninit(client.create_empty_handle(), shape.clone(), *dtype)
            })
            .collect();
        let described = CustomOpIr::new(clip::NAME, &inputs, &outputs);
        let recorded = RecordedClipping::<B> {
            described: described.clone(),
            clipping: clipping.clone(),
            backend: PhantomData,
        };
        let mut tensors = client.register(streams, OperationIr::Custom(described), recorded);
        let norm = tensors.pop().expect("the norm is the last output");
        Ok((tensors, norm))
    }
}

/// Records an application that also gives statistics of these types and shapes. Returns the result
/// and the statistics.
fn record_application<B: FusionBackend + ReduceBackend>(
    tensor: FusionTensor<B::FusionRuntime>,
    operands: Vec<FusionTensor<B::FusionRuntime>>,
    application: &Application,
    statistics: Vec<(DType, Shape)>,
) -> Result<Vec<FusionTensor<B::FusionRuntime>>, ReduceBurnError> {
    let client = tensor.client.clone();
    match statistics.is_empty() {
        true => B::check_application(application, client.device())?,
        false => B::check_application_with_statistics(application, client.device())?,
    }
    let inputs: Vec<_> = iter::once(tensor).chain(operands).collect();
    let streams = OperationStreams::with_inputs(&inputs);
    let inputs: Vec<TensorIr> = inputs.into_iter().map(FusionTensor::into_ir).collect();
    let result = (application.dtype(), application.shape().clone());
    let outputs: Vec<TensorIr> = iter::once(result)
        .chain(statistics)
        .map(|(dtype, shape)| TensorIr::uninit(client.create_empty_handle(), shape, dtype))
        .collect();
    let described = CustomOpIr::new(application.function().name(), &inputs, &outputs);
    let recorded = RecordedApplication::<B> {
        described: described.clone(),
        application: application.clone(),
        backend: PhantomData,
    };
    Ok(client.register(streams, OperationIr::Custom(described), recorded))
}

/// A reduction in the stream.
#[derive(Debug)]
struct Recorded<B> {
    described: CustomOpIr,
    reduction: Reduction,
    backend: PhantomData<B>,
}

impl<B: FusionBackend + ReduceBackend> Operation<B::FusionRuntime> for Recorded<B> {
    fn execute(
        &self,
        handles: &mut HandleContainer<<B::FusionRuntime as FusionRuntime>::FusionHandle>,
    ) {
        let [input] = self.described.inputs.as_slice() else {
            unreachable!("a reduction has one input")
        };
        let tensor = take_input::<B>(handles, input, self.reduction.input().0);
        let results = B::reduce(tensor, &self.reduction)
            .unwrap_or_else(|error| panic!("`{}`: {error}", self.reduction.operator()));
        register_outputs(handles, &self.described.outputs, results);
    }
}

/// A reduction of two inputs in the stream.
#[derive(Debug)]
struct RecordedPair<B> {
    described: CustomOpIr,
    pair: PairReduction,
    backend: PhantomData<B>,
}

impl<B: FusionBackend + ReduceBackend> Operation<B::FusionRuntime> for RecordedPair<B> {
    fn execute(
        &self,
        handles: &mut HandleContainer<<B::FusionRuntime as FusionRuntime>::FusionHandle>,
    ) {
        let [first, second] = self.described.inputs.as_slice() else {
            unreachable!("a reduction of two inputs has two")
        };
        let [(of_first, _), (of_second, _)] = self.pair.inputs();
        let first = take_input::<B>(handles, first, of_first);
        let second = take_input::<B>(handles, second, of_second);
        let results = B::reduce_pair(first, second, &self.pair)
            .unwrap_or_else(|error| panic!("`{}`: {error}", self.pair.function()));
        register_outputs(handles, &self.described.outputs, results);
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

/// An application in the stream.
#[derive(Debug)]
struct RecordedApplication<B> {
    described: CustomOpIr,
    application: Application,
    backend: PhantomData<B>,
}

impl<B: FusionBackend + ReduceBackend> Operation<B::FusionRuntime> for RecordedApplication<B> {
    fn execute(
        &self,
        handles: &mut HandleContainer<<B::FusionRuntime as FusionRuntime>::FusionHandle>,
    ) {
        let ([input, operands @ ..], [output, statistics @ ..]) =
            (self.described.inputs.as_slice(), self.described.outputs.as_slice())
        else {
            unreachable!("an application has an input and an output")
        };
        let tensor = handles.get_float_tensor::<B>(input);
        let operands =
            operands.iter().map(|operand| handles.get_float_tensor::<B>(operand)).collect();
        let applied = match statistics.is_empty() {
            true => B::apply(tensor, operands, &self.application).map(|found| (found, Vec::new())),
            false => B::apply_with_statistics(tensor, operands, &self.application),
        };
        let (result, found) =
            applied.unwrap_or_else(|error| panic!("`{}`: {error}", self.application.function()));
        handles.register_float_tensor::<B>(&output.id, result);
        for (output, statistic) in statistics.iter().zip(found) {
            handles.register_float_tensor::<B>(&output.id, statistic);
        }
    }
}

/// A clipping in the stream.
#[derive(Debug)]
struct RecordedClipping<B> {
    described: CustomOpIr,
    clipping: Clipping,
    backend: PhantomData<B>,
}

impl<B: FusionBackend + ReduceBackend> Operation<B::FusionRuntime> for RecordedClipping<B> {
    fn execute(
        &self,
        handles: &mut HandleContainer<<B::FusionRuntime as FusionRuntime>::FusionHandle>,
    ) {
        let tensors = self.described.inputs.iter();
        let tensors = tensors.map(|tensor| handles.get_float_tensor::<B>(tensor)).collect();
        let (clipped, norm) = B::clip_by_global_norm(tensors, &self.clipping)
            .unwrap_or_else(|error| panic!("`{}`: {error}", clip::NAME));
        for (output, tensor) in self.described.outputs.iter().zip(clipped.into_iter().chain([norm]))
        {
            handles.register_float_tensor::<B>(&output.id, tensor);
        }
    }
}
