//! Burn's CubeCL backends: one launch of a kernel of reduce-kernels, without a copy of the input.

use burn_backend::{
    BoolStore, DType,
    tensor::{Device, FloatTensor},
};
use burn_cubecl::{
    BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement,
    cubecl::{client::ComputeClient, std::tensor::TensorHandle},
    tensor::CubeTensor,
};
use reduce_kernels::{
    AppliedReduction, Apply, ElementType, Input, LayerNorm, LayerNormGradient, LogSoftmax,
    LogSoftmaxGradient, LogSoftmaxSums, MeanRstd, Operator, ReduceError, RmsNorm, RmsNormGradient,
    RmsReciprocal, Softmax, SoftmaxGradient, SoftmaxSums, Sum, TensorDescription, device_of,
    operator::{Fields, ResultArity},
    planner::PlanError,
    reduce, with_operator,
};

use crate::{
    AnyTensor, Application, AppliedFunction, Kind, ReduceBackend, ReduceBurnError, Reduction,
    Results,
};

impl<R, F, I, BT> ReduceBackend for CubeBackend<R, F, I, BT>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    fn check(reduction: &Reduction, device: &Device<Self>) -> Result<(), ReduceBurnError> {
        let (_, dtype) = reduction.input();
        let shape = reduction.input_shape().to_vec();
        let description = TensorDescription::row_major(element(dtype)?, shape);
        let client = R::client(device);
        with_operator!(reduction.operator(), reduction.options(), operator => {
            Ok(described(operator, &description, reduction)?.check(&client)?)
        })
    }

    fn reduce(
        tensor: AnyTensor<Self>,
        reduction: &Reduction,
    ) -> Result<Results<Self>, ReduceBurnError> {
        let tensor = tensor.into_inner();
        let client = tensor.client.clone();
        let device = tensor.device.clone();
        let input = TensorHandle::from(tensor);
        let outputs = with_operator!(reduction.operator(), reduction.options(), operator => {
            run(&client, operator, &input, reduction)?
        });
        let typed = |(output, (kind, dtype)): (TensorHandle<R>, (Kind, DType))| {
            let (client, device) = (client.clone(), device.clone());
            let shape = reduction.output_shape();
            let tensor = CubeTensor::new_contiguous(client, device, shape, output.handle, dtype);
            AnyTensor::of_kind(kind, tensor)
        };
        Ok(outputs.into_iter().zip(reduction.outputs()).map(typed).collect())
    }

    /// Checks the reduction alone, and the types of the operands: reduce-kernels checks no applied
    /// reduction of a tensor without memory.
    fn check_application(
        application: &Application,
        device: &Device<Self>,
    ) -> Result<(), ReduceBurnError> {
        let client = R::client(device);
        match application.function() {
            AppliedFunction::Softmax => check_results(&client, SoftmaxSums, application)?,
            AppliedFunction::LogSoftmax => check_results(&client, LogSoftmaxSums, application)?,
            AppliedFunction::LayerNorm { eps } => {
                check_results(&client, MeanRstd { correction: 0.0, eps }, application)?;
            }
            AppliedFunction::RmsNorm { eps } => {
                check_results(&client, RmsReciprocal { eps }, application)?;
            }
            // The sums of a backward pass are of the types of a sum.
            _ => check_results(&client, Sum, application)?,
        }
        for &(dtype, _) in application.operands() {
            let operand = element(dtype)?;
            if dtype != application.dtype() && !device_of(&client).has(operand) {
                let device = device_of(&client).name;
                let error = PlanError::ElementUnsupported { device, element: operand };
                return Err(ReduceError::from(error).into());
            }
        }
        Ok(())
    }

    fn apply(
        tensor: FloatTensor<Self>,
        operands: Vec<FloatTensor<Self>>,
        application: &Application,
    ) -> Result<FloatTensor<Self>, ReduceBurnError> {
        let client = tensor.client.clone();
        let device = tensor.device.clone();
        let input = TensorHandle::from(tensor);
        let operands: Vec<_> = operands.into_iter().map(TensorHandle::from).collect();
        let (dtype, axes) = (application.dtype(), application.axes());
        let count = application.len().max(1) as f64;
        let output = match application.function() {
            AppliedFunction::Softmax => {
                run_applied(&client, Softmax.of(&input, axes), &operands, dtype)?
            }
            AppliedFunction::LogSoftmax => {
                run_applied(&client, LogSoftmax.of(&input, axes), &operands, dtype)?
            }
            AppliedFunction::LayerNorm { eps } => {
                run_applied(&client, LayerNorm { eps }.of(&input, axes), &operands, dtype)?
            }
            AppliedFunction::RmsNorm { eps } => {
                run_applied(&client, RmsNorm { eps }.of(&input, axes), &operands, dtype)?
            }
            AppliedFunction::LogSoftmaxGradient => {
                let applied = LogSoftmaxGradient.of(&input, &operands[0], axes);
                run_applied(&client, applied, &[], dtype)?
            }
            AppliedFunction::SoftmaxGradient => {
                let applied = SoftmaxGradient.of(&input, &operands[0], axes);
                run_applied(&client, applied, &[], dtype)?
            }
            AppliedFunction::LayerNormGradient => {
                let applied = LayerNormGradient { count }.of(&input, &operands[0], axes);
                run_applied(&client, applied, &operands[1..], dtype)?
            }
            AppliedFunction::RmsNormGradient => {
                let applied = RmsNormGradient { count }.of(&input, &operands[0], axes);
                run_applied(&client, applied, &operands[1..], dtype)?
            }
        };
        let shape = application.shape().clone();
        Ok(CubeTensor::new_contiguous(client, device, shape, output.handle, dtype))
    }
}

/// Checks the reduction of an application. Its results have the type in which they are applied.
fn check_results<O: Operator, R: CubeRuntime>(
    client: &ComputeClient<R>,
    operator: O,
    application: &Application,
) -> Result<(), ReduceBurnError> {
    let input = element(application.dtype())?;
    let real = if input == ElementType::F64 { ElementType::F64 } else { ElementType::F32 };
    let description = TensorDescription::row_major(input, application.shape().to_vec());
    let reduction = reduce(operator, &description).over(application.axes());
    let reduction = (0..O::Results::COUNT)
        .fold(reduction, |reduction, nth| reduction.nth_output_type(nth, real));
    Ok(reduction.check(client)?)
}

/// Launches an applied reduction into a new tensor. The operands broadcast.
fn run_applied<O: Operator, F: Apply<Results = O::Results>, R: CubeRuntime>(
    client: &ComputeClient<R>,
    applied: AppliedReduction<'_, O, F, R>,
    operands: &[TensorHandle<R>],
    output: DType,
) -> Result<TensorHandle<R>, ReduceBurnError> {
    let applied = applied.output_type(element(output)?);
    Ok(operands
        .iter()
        .fold(applied, |applied, operand| applied.operand(operand, ..))
        .run(client)?)
}

/// Launches an operator into new tensors.
fn run<O: Operator, R: CubeRuntime>(
    client: &ComputeClient<R>,
    operator: O,
    input: &TensorHandle<R>,
    reduction: &Reduction,
) -> Result<Vec<TensorHandle<R>>, ReduceBurnError> {
    let outputs = described(operator, input, reduction)?.run(client)?;
    Ok(O::Results::into_list(outputs))
}

/// The reduction in the words of reduce-kernels.
fn described<'a, O: Operator, T: Input>(
    operator: O,
    input: &'a T,
    reduction: &Reduction,
) -> Result<reduce_kernels::Reduction<'a, O, T>, ReduceBurnError> {
    let mut described =
        reduce(operator, input).over(reduction.axes()).keep_dims(reduction.keep_dims());
    for (nth, (_, dtype)) in reduction.outputs().into_iter().enumerate() {
        described = described.nth_output_type(nth, element(dtype)?);
    }
    Ok(described)
}

/// The type of the elements in memory.
fn element(dtype: DType) -> Result<ElementType, ReduceBurnError> {
    Ok(match dtype {
        DType::F64 => ElementType::F64,
        DType::F32 | DType::Flex32 => ElementType::F32,
        DType::F16 => ElementType::F16,
        DType::BF16 => ElementType::BF16,
        DType::I64 => ElementType::I64,
        DType::I32 => ElementType::I32,
        DType::I16 => ElementType::I16,
        DType::I8 => ElementType::I8,
        DType::U64 => ElementType::U64,
        DType::U32 | DType::Bool(BoolStore::U32) => ElementType::U32,
        DType::U16 => ElementType::U16,
        DType::U8 | DType::Bool(BoolStore::U8) => ElementType::U8,
        DType::Bool(BoolStore::Native) | DType::QFloat(_) => {
            return Err(ReduceBurnError::Element(dtype));
        }
    })
}
