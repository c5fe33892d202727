//! Burn's CubeCL backends: one launch of a kernel of reduce-kernels, without a copy of the input.

use core::iter;

use burn_backend::{BoolStore, DType, tensor::Device};
use burn_cubecl::{
    CubeBackend,
    cubecl::{prelude::Client, std::tensor::TensorHandle},
    tensor::CubeTensor,
};
use burn_tensor::{Shape, kind::Kind};
use reduce_kernels::{
    ElementType, Input, NormL2, Operator, TensorDescription,
    by_name::{with_operator, with_pair},
    device_of,
    list::{ClippedToNorm, clip_by_global_norm, clip_by_global_norm_in_place, reduce_list},
    normalize::{
        AddLayerNorm, AddRmsNorm, AppliedReduction, CrossEntropy, LayerNorm, LayerNormGradient,
        LogSoftmax, LogSoftmaxGradient, MaskedLogSoftmax, MaskedSoftmax, RmsNorm, RmsNormGradient,
        Softmax, SoftmaxGradient,
    },
    operator::{Apply, Arity, One, Two},
    pairs::reduce_pair,
    quantize::{InScale, QuantizationScale, Quantize},
    reduce,
    segments::{GroupByKeys, Groups, group_by_keys, keys_of_offsets},
    top_k::{Selected, TopK, largest, smallest},
};

use crate::{
    application::{Application, AppliedFunction},
    backend::{Operation, ReduceBackend, Results},
    clip::Clipping,
    cross_entropy::{ClassLoss, ClassLossOptions},
    error::ReduceBurnError,
    pair::PairReduction,
    quantization::Quantization,
    reduction::Reduction,
    scanned::Scan,
    segmented::Segments,
    selection::{Selection, SelectionOutput},
    tensor::AnyTensor,
};

/// The value of an expression of the applied reduction that an [`Application`] describes, in the
/// words of reduce-kernels: of tensors, or of descriptions of tensors.
macro_rules! with_function {
    ($application:expr, $input:expr, $beside:expr, $applied:ident => $value:expr) => {{
        let (application, input, beside) = ($application, $input, &$beside[..]);
        // What segments have follows the operands.
        let (operands, members) = beside.split_at(application.operands().len());
        let groups = groups_of(members);
        let segments = SegmentsOf::new(members, groups.as_ref());
        let axes = application.axes();
        let count = application.len().max(1) as f64;
        match application.function() {
            AppliedFunction::Softmax => {
                let $applied =
                    applied_with(Softmax.of(input, axes), operands, segments, application)?;
                $value
            }
            AppliedFunction::LogSoftmax => {
                let $applied =
                    applied_with(LogSoftmax.of(input, axes), operands, segments, application)?;
                $value
            }
            AppliedFunction::MaskedSoftmax { scale } => {
                let applied = MaskedSoftmax { scale }.of(input, &operands[0], axes);
                let $applied = applied_with(applied, &operands[1..], segments, application)?;
                $value
            }
            AppliedFunction::MaskedLogSoftmax { scale } => {
                let applied = MaskedLogSoftmax { scale }.of(input, &operands[0], axes);
                let $applied = applied_with(applied, &operands[1..], segments, application)?;
                $value
            }
            AppliedFunction::LayerNorm { eps } => {
                let applied = LayerNorm { eps }.of(input, axes);
                let $applied = applied_with(applied, operands, segments, application)?;
                $value
            }
            AppliedFunction::RmsNorm { eps } => {
                let applied = RmsNorm { eps }.of(input, axes);
                let $applied = applied_with(applied, operands, segments, application)?;
                $value
            }
            AppliedFunction::AddLayerNorm { eps } => {
                let applied = AddLayerNorm { eps }.of(input, &operands[0], axes);
                let $applied = applied_with(applied, &operands[1..], segments, application)?;
                $value
            }
            AppliedFunction::AddRmsNorm { eps } => {
                let applied = AddRmsNorm { eps }.of(input, &operands[0], axes);
                let $applied = applied_with(applied, &operands[1..], segments, application)?;
                $value
            }
            AppliedFunction::SoftmaxGradient => {
                let applied = SoftmaxGradient.of(input, &operands[0], axes);
                let $applied = applied_with(applied, &operands[1..], segments, application)?;
                $value
            }
            AppliedFunction::LogSoftmaxGradient => {
                let applied = LogSoftmaxGradient.of(input, &operands[0], axes);
                let $applied = applied_with(applied, &operands[1..], segments, application)?;
                $value
            }
            AppliedFunction::LayerNormGradient => {
                let applied = LayerNormGradient { count }.of(input, &operands[0], axes);
                let $applied = applied_with(applied, &operands[1..], segments, application)?;
                $value
            }
            AppliedFunction::RmsNormGradient => {
                let applied = RmsNormGradient { count }.of(input, &operands[0], axes);
                let $applied = applied_with(applied, &operands[1..], segments, application)?;
                $value
            }
        }
    }};
}

impl ReduceBackend for CubeBackend {
    fn planner_device(device: &Device<Self>) -> Option<reduce_kernels::Device> {
        Some(device_of(&device.client()))
    }

    #[cfg(feature = "serde")]
    fn use_plans(
        device: &Device<Self>,
        plans: reduce_kernels::plans::PlanStore,
    ) -> Result<(), reduce_kernels::plans::StoreError> {
        reduce_kernels::plans::use_plans(&device.client(), plans)
    }

    fn check(operation: &Operation, device: &Device<Self>) -> Result<(), ReduceBurnError> {
        let client = device.client();
        match operation {
            Operation::Reduction(reduction) => {
                let (_, dtype) = reduction.input();
                let input = described_tensor(&(dtype, reduction.input_shape().clone()))?;
                let members = described_members(reduction.segments())?;
                let groups = groups_of(&members);
                with_operator!(reduction.operator(), reduction.options(), operator => {
                    let described = described(operator, &input, reduction)?;
                    Ok(match SegmentsOf::new(&members, groups.as_ref()) {
                        SegmentsOf::None => described.check(&client),
                        SegmentsOf::Offsets(offsets) => described.segments(offsets).check(&client),
                        SegmentsOf::Groups(groups) => described.grouped(groups).check(&client),
                    }?)
                })
            }
            Operation::Scan(scan) => {
                let (_, dtype) = scan.input();
                let input = described_tensor(&(dtype, scan.shape().clone()))?;
                with_operator!(scan.operator(), scan.options(), operator => {
                    Ok(described_scan(operator, &input, scan)?.check(&client)?)
                })
            }
            Operation::Pair(pair) => {
                let ([(_, first), (_, second)], shapes) = (pair.inputs(), pair.input_shapes());
                let first = described_tensor(&(first, shapes[0].clone()))?;
                let second = described_tensor(&(second, shapes[1].clone()))?;
                with_pair!(pair.function(), pair.options(), operator => {
                    Ok(described_pair(operator, &first, &second, pair)?.check(&client)?)
                })
            }
            Operation::ApplicationWithStatistics(application) if application.statistics().0 > 0 => {
                let (input, operands) = described_tensors(application)?;
                with_function!(application, &input, &operands, applied => {
                    Ok(applied.check_with_results(&client)?)
                })
            }
            Operation::Application(application)
            | Operation::ApplicationWithStatistics(application) => {
                let (input, operands) = described_tensors(application)?;
                with_function!(application, &input, &operands, applied => {
                    Ok(applied.check(&client)?)
                })
            }
            Operation::ClassLoss(loss) | Operation::ClassLossGradient(loss) => {
                let (classes, shape) = loss.classes();
                described_tensor(&(classes, shape.clone()))?;
                loss.weights().map(element).transpose()?;
                let logits = described_tensor(&(loss.dtype(), loss.shape().clone()))?;
                Ok(LogSoftmax.of(&logits, loss.axis()).check(&client)?)
            }
            Operation::Quantization(quantization) => {
                let input = (quantization.dtype(), quantization.shape().clone());
                let input = described_tensor(&input)?;
                Ok(described_quantization(&input, quantization)?.check_with_results(&client)?)
            }
            Operation::Selection(selection) => {
                let (_, dtype) = selection.input();
                let input = described_tensor(&(dtype, selection.input_shape().clone()))?;
                let described = described_selection(&input, selection)?;
                match selection.output() {
                    SelectionOutput::Masked { fill } => described.masked(fill).check(&client),
                    _ => described.check(&client),
                }?;
                Ok(())
            }
            Operation::SegmentNumbers(numbers) => {
                described_members(Some(numbers.segments()))?;
                element(numbers.dtype())?;
                Ok(())
            }
            Operation::Grouping(grouping) => {
                let keys = described_tensor(&(grouping.keys(), Shape::from([grouping.count()])))?;
                GroupByKeys::new(&keys, grouping.groups()).plan(&client)?;
                Ok(())
            }
            Operation::Clipping(clipping) => {
                let tensors = clipping.tensors().iter().map(described_tensor);
                let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
                let clipped = ClippedToNorm { max_norm: clipping.max_norm() };
                Ok(reduce_list(NormL2, &tensors).apply(clipped).check(&client, false)?)
            }
        }
    }

    fn run(
        tensors: Vec<AnyTensor<Self>>,
        operation: Operation,
    ) -> Result<Results<Self>, ReduceBurnError> {
        let tensors: Vec<_> = tensors.into_iter().map(AnyTensor::into_inner).collect();
        if let Operation::Clipping(clipping) = &operation {
            return clip(tensors, clipping);
        }
        let (client, device) = (tensors[0].client.clone(), tensors[0].device.clone());
        let inputs: Vec<_> = tensors.into_iter().map(TensorHandle::from).collect();
        let results = launch(&client, &inputs, &operation)?;
        let typed = results.into_iter().zip(operation.outputs());
        let typed = typed.map(|(result, (kind, dtype, shape))| {
            let (client, device) = (client.clone(), device.clone());
            let tensor = CubeTensor::new_contiguous(client, device, shape, result.handle, dtype);
            AnyTensor::of_kind(kind, tensor)
        });
        Ok(typed.collect())
    }
}

/// Launches an operation other than a clipping into new row-major tensors.
fn launch(
    client: &Client,
    inputs: &[TensorHandle],
    operation: &Operation,
) -> Result<Vec<TensorHandle>, ReduceBurnError> {
    match operation {
        Operation::Reduction(reduction) => {
            with_operator!(reduction.operator(), reduction.options(), operator => {
                run(client, operator, inputs, reduction)
            })
        }
        Operation::Scan(scan) => {
            with_operator!(scan.operator(), scan.options(), operator => {
                run_scan(client, operator, &inputs[0], scan)
            })
        }
        Operation::Pair(pair) => {
            with_pair!(pair.function(), pair.options(), operator => {
                run_pair(client, operator, &inputs[0], &inputs[1], pair)
            })
        }
        Operation::ApplicationWithStatistics(application) if application.statistics().0 > 0 => {
            with_function!(application, &inputs[0], &inputs[1..], applied => {
                run_with_results(client, applied)
            })
        }
        Operation::Application(application) | Operation::ApplicationWithStatistics(application) => {
            with_function!(application, &inputs[0], &inputs[1..], applied => {
                run_applied(client, applied)
            })
        }
        Operation::ClassLoss(loss) => Ok(vec![described_loss(inputs, loss).run(client)?]),
        Operation::ClassLossGradient(loss) => {
            let (upstream, others) = inputs.split_last().expect("the gradient of losses is last");
            let described = described_loss(others, loss).upstream(upstream);
            let (_, gradient) = described.run_with_gradient(client)?;
            Ok(vec![gradient])
        }
        Operation::Quantization(quantization) => {
            run_with_results(client, described_quantization(&inputs[0], quantization)?)
        }
        Operation::Selection(selection) => {
            let described = described_selection(&inputs[0], selection)?;
            if let SelectionOutput::Masked { fill } = selection.output() {
                return Ok(vec![described.keep_only(client, fill)?]);
            }
            let Selected { values, positions } = described.run(client)?;
            Ok(vec![values, positions])
        }
        Operation::SegmentNumbers(numbers) => {
            let (len, dtype) = (numbers.shape()[0], element(numbers.dtype())?);
            Ok(vec![keys_of_offsets(client, &inputs[0], len, dtype)?])
        }
        Operation::Grouping(grouping) => {
            let groups = group_by_keys(client, &inputs[0], grouping.groups())?;
            Ok(vec![groups.indices().clone(), groups.offsets().clone()])
        }
        Operation::Clipping(_) => unreachable!("a clipping may work in place"),
    }
}

/// Clips tensors, in place if nothing else uses their memory.
fn clip(
    tensors: Vec<CubeTensor>,
    clipping: &Clipping,
) -> Result<Results<CubeBackend>, ReduceBurnError> {
    let (client, device) = (tensors[0].client.clone(), tensors[0].device.clone());
    let max_norm = clipping.max_norm();
    // Handles that share memory cannot be mutated, and so no two of these tensors overlap.
    let in_place = tensors.iter().all(|tensor| {
        let is_empty = tensor.meta.shape().num_elements() == 0;
        is_empty || tensor.can_mut() && tensor.is_nonoverlapping()
    });
    let handles: Vec<TensorHandle> = tensors.iter().map(|tensor| tensor.clone().into()).collect();
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
    let norm = CubeTensor::new_contiguous(client, device, shape, norm.handle, dtype);
    Ok(clipped.into_iter().chain([norm]).map(AnyTensor::Float).collect())
}

/// A row-major tensor of a type and a shape, without memory.
fn described_tensor((dtype, shape): &(DType, Shape)) -> Result<TensorDescription, ReduceBurnError> {
    Ok(TensorDescription::row_major(element(*dtype)?, shape.to_vec()))
}

/// What segments have, without memory: the offsets, and the indices and the keys of groups.
fn described_members(
    segments: Option<Segments>,
) -> Result<Vec<TensorDescription>, ReduceBurnError> {
    let Some(segments) = segments else { return Ok(Vec::new()) };
    let flat = |dtype, len| described_tensor(&(dtype, Shape::from([len])));
    let offsets = flat(segments.offsets(), segments.count() + 1);
    let groups = segments.groups().map(|groups| {
        [flat(groups.indices(), groups.count()), flat(groups.keys(), groups.count())]
    });
    iter::once(offsets).chain(groups.into_iter().flatten()).collect()
}

/// The groups of an operation that has groups.
fn groups_of<T: Clone>(members: &[T]) -> Option<Groups<T>> {
    match members {
        [offsets, indices, keys] => {
            Some(Groups::new(keys.clone(), indices.clone(), offsets.clone()))
        }
        _ => None,
    }
}

/// The segments of an operation in the words of reduce-kernels.
#[derive(Clone, Copy)]
enum SegmentsOf<'a, T> {
    None,
    Offsets(&'a T),
    Groups(&'a Groups<T>),
}

impl<'a, T> SegmentsOf<'a, T> {
    fn new(members: &'a [T], groups: Option<&'a Groups<T>>) -> Self {
        match (groups, members.first()) {
            (Some(groups), _) => SegmentsOf::Groups(groups),
            (None, Some(offsets)) => SegmentsOf::Offsets(offsets),
            (None, None) => SegmentsOf::None,
        }
    }
}

/// The tensor, the operands and what segments have of an application, without memory.
fn described_tensors(
    application: &Application,
) -> Result<(TensorDescription, Vec<TensorDescription>), ReduceBurnError> {
    let input = described_tensor(&(application.dtype(), application.shape().clone()))?;
    let operands = application.operands().iter().map(described_tensor);
    let mut beside = operands.collect::<Result<Vec<_>, _>>()?;
    beside.extend(described_members(application.segments())?);
    Ok((input, beside))
}

/// An applied reduction whose outputs have the type of the input of `application`. The operands
/// broadcast.
fn applied_with<'a, O: Operator, F: Apply<Results = O::Results>, T: Input>(
    applied: AppliedReduction<'a, O, F, T>,
    operands: &'a [T],
    segments: SegmentsOf<'a, T>,
    application: &Application,
) -> Result<AppliedReduction<'a, O, F, T>, ReduceBurnError> {
    let applied = applied.output_type(element(application.dtype())?);
    let applied = match segments {
        SegmentsOf::None => applied,
        SegmentsOf::Offsets(offsets) => applied.segments(offsets),
        SegmentsOf::Groups(groups) => applied.grouped(groups),
    };
    Ok(operands.iter().fold(applied, |applied, operand| applied.operand(operand, ..)))
}

/// Launches an applied reduction into a new tensor for each output.
fn run_applied<O: Operator, F: Apply<Results = O::Results>>(
    client: &Client,
    applied: AppliedReduction<'_, O, F, TensorHandle>,
) -> Result<Vec<TensorHandle>, ReduceBurnError> {
    Ok(F::Outputs::into_list(applied.run(client)?))
}

/// Launches an applied reduction into new tensors, and its results into others, which follow.
fn run_with_results<O: Operator, F: Apply<Results = O::Results>>(
    client: &Client,
    applied: AppliedReduction<'_, O, F, TensorHandle>,
) -> Result<Vec<TensorHandle>, ReduceBurnError> {
    let (outputs, results) = applied.run_with_results(client)?;
    Ok([F::Outputs::into_list(outputs), O::Results::into_list(results)].concat())
}

/// Launches an operator into new tensors.
fn run<O: Operator<Inputs = One>>(
    client: &Client,
    operator: O,
    inputs: &[TensorHandle],
    reduction: &Reduction,
) -> Result<Vec<TensorHandle>, ReduceBurnError> {
    let described = described(operator, &inputs[0], reduction)?;
    let groups = groups_of(&inputs[1..]);
    let outputs = match SegmentsOf::new(&inputs[1..], groups.as_ref()) {
        SegmentsOf::None => described.run(client)?,
        SegmentsOf::Offsets(offsets) => described.segments(offsets).run(client)?,
        SegmentsOf::Groups(groups) => described.grouped(groups).run(client)?,
    };
    Ok(O::Results::into_list(outputs))
}

/// The reduction in the words of reduce-kernels.
fn described<'a, O: Operator<Inputs = One>, T: Input>(
    operator: O,
    input: &'a T,
    reduction: &Reduction,
) -> Result<reduce_kernels::Reduction<'a, O, T>, ReduceBurnError> {
    let described = reduce(operator, input).over(reduction.axes()).keep_dims(reduction.keep_dims());
    with_types(described, reduction.outputs())
}

/// Launches a scan into new tensors.
fn run_scan<O: Operator<Inputs = One>>(
    client: &Client,
    operator: O,
    input: &TensorHandle,
    scan: &Scan,
) -> Result<Vec<TensorHandle>, ReduceBurnError> {
    Ok(O::Results::into_list(described_scan(operator, input, scan)?.run(client)?))
}

/// The scan in the words of reduce-kernels.
fn described_scan<'a, O: Operator<Inputs = One>, T: Input>(
    operator: O,
    input: &'a T,
    scan: &Scan,
) -> Result<reduce_kernels::scan::Scan<'a, O, T>, ReduceBurnError> {
    let described = reduce_kernels::scan::scan(operator, input).over(scan.axes());
    let described = if scan.is_exclusive() { described.exclusive() } else { described };
    let described = if scan.is_reverse() { described.reverse() } else { described };
    scan.outputs().into_iter().enumerate().try_fold(described, |described, (nth, (_, dtype))| {
        Ok(described.nth_output_type(nth, element(dtype)?))
    })
}

/// The loss in the words of reduce-kernels.
fn described_loss<'a>(inputs: &'a [TensorHandle], loss: &ClassLoss) -> CrossEntropy<'a> {
    let ClassLossOptions { smoothing, ignored, reduction } = loss.options();
    let described = CrossEntropy::of(&inputs[0], &inputs[1], loss.axis());
    let described = described.smoothing(smoothing).reduced(reduction);
    let described = ignored.into_iter().fold(described, CrossEntropy::ignored);
    inputs[2..].iter().fold(described, CrossEntropy::weights)
}

/// The quantisation in the words of reduce-kernels.
fn described_quantization<'a, T: Input>(
    input: &'a T,
    quantization: &Quantization,
) -> Result<AppliedReduction<'a, QuantizationScale, InScale, T>, ReduceBurnError> {
    let element = element(quantization.integers().into())?;
    let quantize = Quantize { most: quantization.most(), element };
    Ok(quantize.of(input, quantization.axes()))
}

/// The selection in the words of reduce-kernels.
fn described_selection<'a, T: Input>(
    input: &'a T,
    selection: &Selection,
) -> Result<TopK<'a, T>, ReduceBurnError> {
    let k = selection.k();
    let described = if selection.largest() { largest(k, input) } else { smallest(k, input) };
    let positions = element(selection.position_dtype())?;
    let described = described.over(selection.axis()).position_type(positions);
    Ok(match selection.output() {
        SelectionOutput::Probabilities(over) => {
            described.probabilities(over).value_type(element(selection.value_dtype())?)
        }
        _ => described,
    })
}

/// Launches an operator of two inputs into new tensors.
fn run_pair<O: Operator<Inputs = Two>>(
    client: &Client,
    operator: O,
    first: &TensorHandle,
    second: &TensorHandle,
    pair: &PairReduction,
) -> Result<Vec<TensorHandle>, ReduceBurnError> {
    let outputs = described_pair(operator, first, second, pair)?.run(client)?;
    Ok(O::Results::into_list(outputs))
}

/// The reduction of two inputs in the words of reduce-kernels.
fn described_pair<'a, O: Operator<Inputs = Two>, T: Input>(
    operator: O,
    first: &'a T,
    second: &'a T,
    pair: &PairReduction,
) -> Result<reduce_kernels::Reduction<'a, O, T>, ReduceBurnError> {
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
