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
use burn_tensor::Shape;
use reduce_kernels::{
    AppliedReduction, Apply, ClippedToNorm, ElementType, Input, LayerNorm, LayerNormGradient,
    LogSoftmax, LogSoftmaxGradient, NormL2, OfPairs, Operator, PairOperator, RmsNorm,
    RmsNormGradient, Softmax, SoftmaxGradient, TensorDescription, clip_by_global_norm,
    clip_by_global_norm_in_place, device_of, operator::ResultArity, reduce, reduce_list,
    reduce_pair, with_operator, with_pair,
};

use crate::{
    AnyTensor, Application, AppliedFunction, Clipped, Clipping, Kind, PairReduction, ReduceBackend,
    ReduceBurnError, Reduction, Results, WithStatistics,
};

/// The value of an expression of the applied reduction that an [`Application`] describes, in the
/// words of reduce-kernels: of tensors, or of descriptions of tensors.
macro_rules! with_function {
    ($application:expr, $input:expr, $operands:expr, $applied:ident => $value:expr) => {{
        let (application, input, operands) = ($application, $input, &$operands[..]);
        let axes = application.axes();
        let count = application.len().max(1) as f64;
        match application.function() {
            AppliedFunction::Softmax => {
                let $applied = applied_with(Softmax.of(input, axes), operands, application)?;
                $value
            }
            AppliedFunction::LogSoftmax => {
                let $applied = applied_with(LogSoftmax.of(input, axes), operands, application)?;
                $value
            }
            AppliedFunction::LayerNorm { eps } => {
                let applied = LayerNorm { eps }.of(input, axes);
                let $applied = applied_with(applied, operands, application)?;
                $value
            }
            AppliedFunction::RmsNorm { eps } => {
                let applied = RmsNorm { eps }.of(input, axes);
                let $applied = applied_with(applied, operands, application)?;
                $value
            }
            AppliedFunction::SoftmaxGradient => {
                let applied = SoftmaxGradient.of(input, &operands[0], axes);
                let $applied = applied_with(applied, &operands[1..], application)?;
                $value
            }
            AppliedFunction::LogSoftmaxGradient => {
                let applied = LogSoftmaxGradient.of(input, &operands[0], axes);
                let $applied = applied_with(applied, &operands[1..], application)?;
                $value
            }
            AppliedFunction::LayerNormGradient => {
                let applied = LayerNormGradient { count }.of(input, &operands[0], axes);
                let $applied = applied_with(applied, &operands[1..], application)?;
                $value
            }
            AppliedFunction::RmsNormGradient => {
                let applied = RmsNormGradient { count }.of(input, &operands[0], axes);
                let $applied = applied_with(applied, &operands[1..], application)?;
                $value
            }
        }
    }};
}

impl<R, F, I, BT> ReduceBackend for CubeBackend<R, F, I, BT>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    fn planner_device(device: &Device<Self>) -> Option<reduce_kernels::Device> {
        Some(device_of(&R::client(device)))
    }

    #[cfg(feature = "serde")]
    fn use_plans(
        device: &Device<Self>,
        plans: reduce_kernels::PlanStore,
    ) -> Result<(), reduce_kernels::StoreError> {
        reduce_kernels::use_plans(&R::client(device), plans)
    }

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
        let shape = reduction.output_shape();
        Ok(results(&client, &device, outputs, &shape, reduction.outputs()))
    }

    fn check_pair(pair: &PairReduction, device: &Device<Self>) -> Result<(), ReduceBurnError> {
        let ([(_, first), (_, second)], shapes) = (pair.inputs(), pair.input_shapes());
        let first = TensorDescription::row_major(element(first)?, shapes[0].to_vec());
        let second = TensorDescription::row_major(element(second)?, shapes[1].to_vec());
        let client = R::client(device);
        with_pair!(pair.function(), pair.options(), operator => {
            Ok(described_pair(operator, &first, &second, pair)?.check(&client)?)
        })
    }

    fn reduce_pair(
        first: AnyTensor<Self>,
        second: AnyTensor<Self>,
        pair: &PairReduction,
    ) -> Result<Results<Self>, ReduceBurnError> {
        let [first, second] = [first, second].map(AnyTensor::into_inner);
        let client = first.client.clone();
        let device = first.device.clone();
        let [first, second] = [first, second].map(TensorHandle::from);
        let outputs = with_pair!(pair.function(), pair.options(), operator => {
            run_pair(&client, operator, &first, &second, pair)?
        });
        let shape = pair.output_shape();
        Ok(results(&client, &device, outputs, &shape, pair.outputs()))
    }

    fn check_application(
        application: &Application,
        device: &Device<Self>,
    ) -> Result<(), ReduceBurnError> {
        let (client, (input, operands)) = (R::client(device), described_tensors(application)?);
        with_function!(application, &input, &operands, applied => Ok(applied.check(&client)?))
    }

    fn check_application_with_statistics(
        application: &Application,
        device: &Device<Self>,
    ) -> Result<(), ReduceBurnError> {
        let (count, ..) = application.statistics();
        if count == 0 {
            return Self::check_application(application, device);
        }
        let (client, (input, operands)) = (R::client(device), described_tensors(application)?);
        with_function!(application, &input, &operands, applied => {
            Ok(applied.check_with_results(&client)?)
        })
    }

    fn apply(
        tensor: FloatTensor<Self>,
        operands: Vec<FloatTensor<Self>>,
        application: &Application,
    ) -> Result<FloatTensor<Self>, ReduceBurnError> {
        let (client, device) = (tensor.client.clone(), tensor.device.clone());
        let input = TensorHandle::from(tensor);
        let operands: Vec<_> = operands.into_iter().map(TensorHandle::from).collect();
        let output = with_function!(application, &input, &operands, applied => {
            applied.run(&client)?
        });
        let (dtype, shape) = (application.dtype(), application.shape().clone());
        Ok(CubeTensor::new_contiguous(client, device, shape, output.handle, dtype))
    }

    fn apply_with_statistics(
        tensor: FloatTensor<Self>,
        operands: Vec<FloatTensor<Self>>,
        application: &Application,
    ) -> Result<WithStatistics<Self>, ReduceBurnError> {
        let (count, wide, kept) = application.statistics();
        if count == 0 {
            return Ok((Self::apply(tensor, operands, application)?, Vec::new()));
        }
        let (client, device) = (tensor.client.clone(), tensor.device.clone());
        let input = TensorHandle::from(tensor);
        let operands: Vec<_> = operands.into_iter().map(TensorHandle::from).collect();
        let (output, statistics) = with_function!(application, &input, &operands, applied => {
            run_with_results(&client, applied)?
        });
        let of_burn = |handle: TensorHandle<R>, shape: Shape, dtype: DType| {
            CubeTensor::new_contiguous(client.clone(), device.clone(), shape, handle.handle, dtype)
        };
        let statistics =
            statistics.into_iter().map(|statistic| of_burn(statistic, kept.clone(), wide));
        let statistics = statistics.collect();
        Ok((of_burn(output, application.shape().clone(), application.dtype()), statistics))
    }

    fn check_clipping(clipping: &Clipping, device: &Device<Self>) -> Result<(), ReduceBurnError> {
        let described: Vec<_> =
            clipping.tensors().iter().map(described_tensor).collect::<Result<_, _>>()?;
        let clipped = ClippedToNorm { max_norm: clipping.max_norm() };
        Ok(reduce_list(NormL2, &described).apply(clipped).check(&R::client(device), false)?)
    }

    /// In place if nothing else uses the memory of the tensors.
    fn clip_by_global_norm(
        tensors: Vec<FloatTensor<Self>>,
        clipping: &Clipping,
    ) -> Result<Clipped<Self>, ReduceBurnError> {
        let (client, device) = (tensors[0].client.clone(), tensors[0].device.clone());
        let max_norm = clipping.max_norm();
        // Handles that share memory cannot be mutated, and so no two of these tensors overlap.
        let in_place = tensors.iter().all(|tensor| {
            let is_empty = tensor.meta.shape().num_elements() == 0;
            is_empty || tensor.can_mut() && tensor.is_nonoverlapping()
        });
        let handles: Vec<TensorHandle<R>> =
            tensors.iter().map(|tensor| tensor.clone().into()).collect();
        let (clipped, norm) = if in_place {
            let norm = clip_by_global_norm_in_place(&client, &handles, max_norm)?;
            (tensors, norm)
        } else {
            let (clipped, norm) = clip_by_global_norm(&client, &handles, max_norm)?;
            let new = clipped.into_iter().zip(&tensors).map(|(clipped, tensor)| {
                let (client, device) = (tensor.client.clone(), tensor.device.clone());
                CubeTensor::new(client, clipped.handle, *clipped.metadata, device, tensor.dtype)
            });
            (new.collect(), norm)
        };
        let (shape, dtype) = (clipping.norm_shape(), clipping.norm_dtype());
        Ok((clipped, CubeTensor::new_contiguous(client, device, shape, norm.handle, dtype)))
    }
}

/// New row-major tensors as Burn's.
fn results<R, F, I, BT>(
    client: &ComputeClient<R>,
    device: &R::Device,
    outputs: Vec<TensorHandle<R>>,
    shape: &Shape,
    types: Vec<(Kind, DType)>,
) -> Results<CubeBackend<R, F, I, BT>>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    let typed = outputs.into_iter().zip(types).map(|(output, (kind, dtype))| {
        let (client, device, shape) = (client.clone(), device.clone(), shape.clone());
        let tensor = CubeTensor::new_contiguous(client, device, shape, output.handle, dtype);
        AnyTensor::of_kind(kind, tensor)
    });
    typed.collect()
}

/// A row-major tensor of a type and a shape, without memory.
fn described_tensor((dtype, shape): &(DType, Shape)) -> Result<TensorDescription, ReduceBurnError> {
    Ok(TensorDescription::row_major(element(*dtype)?, shape.to_vec()))
}

/// The tensor and the operands of an application, without memory.
fn described_tensors(
    application: &Application,
) -> Result<(TensorDescription, Vec<TensorDescription>), ReduceBurnError> {
    let input = described_tensor(&(application.dtype(), application.shape().clone()))?;
    let operands = application.operands().iter().map(described_tensor);
    Ok((input, operands.collect::<Result<_, _>>()?))
}

/// An applied reduction whose output has the type of the input of `application`. The operands
/// broadcast.
fn applied_with<'a, O: Operator, F: Apply<Results = O::Results>, T: Input>(
    applied: AppliedReduction<'a, O, F, T>,
    operands: &'a [T],
    application: &Application,
) -> Result<AppliedReduction<'a, O, F, T>, ReduceBurnError> {
    let applied = applied.output_type(element(application.dtype())?);
    Ok(operands.iter().fold(applied, |applied, operand| applied.operand(operand, ..)))
}

/// Launches an applied reduction into a new tensor, and its results into others.
fn run_with_results<O: Operator, F: Apply<Results = O::Results>, R: CubeRuntime>(
    client: &ComputeClient<R>,
    applied: AppliedReduction<'_, O, F, TensorHandle<R>>,
) -> Result<(TensorHandle<R>, Vec<TensorHandle<R>>), ReduceBurnError> {
    let (output, results) = applied.run_with_results(client)?;
    Ok((output, O::Results::into_list(results)))
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
    let described = reduce(operator, input).over(reduction.axes()).keep_dims(reduction.keep_dims());
    with_types(described, reduction.outputs())
}

/// Launches an operator of two inputs into new tensors.
fn run_pair<P: PairOperator, R: CubeRuntime>(
    client: &ComputeClient<R>,
    operator: P,
    first: &TensorHandle<R>,
    second: &TensorHandle<R>,
    pair: &PairReduction,
) -> Result<Vec<TensorHandle<R>>, ReduceBurnError> {
    let outputs = described_pair(operator, first, second, pair)?.run(client)?;
    Ok(P::Results::into_list(outputs))
}

/// The reduction of two inputs in the words of reduce-kernels.
fn described_pair<'a, P: PairOperator, T: Input>(
    operator: P,
    first: &'a T,
    second: &'a T,
    pair: &PairReduction,
) -> Result<reduce_kernels::Reduction<'a, OfPairs<P>, T>, ReduceBurnError> {
    let reduction = reduce_pair(operator, first, second);
    let reduction = reduction.over(pair.axes()).keep_dims(pair.keep_dims());
    with_types(reduction, pair.outputs())
}

/// Asks for these types of the results.
fn with_types<O: Operator, T: Input>(
    reduction: reduce_kernels::Reduction<'_, O, T>,
    types: Vec<(Kind, DType)>,
) -> Result<reduce_kernels::Reduction<'_, O, T>, ReduceBurnError> {
    types.into_iter().enumerate().try_fold(reduction, |reduction, (nth, (_, dtype))| {
        Ok(reduction.nth_output_type(nth, element(dtype)?))
    })
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
