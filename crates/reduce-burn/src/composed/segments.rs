//! Segments made of Burn's own operations, for backends without kernels of reduce-kernels: the offsets
//! are read, and each segment is a slice.

use core::iter;

use burn_backend::{
    Backend, TensorMetadata,
    tensor::{FloatTensor, IntTensor},
};
use burn_std::{Slice, reader::try_read_sync};
use burn_tensor::{Shape, TensorData, kind::Kind};
use reduce_kernels::by_name::OperatorName;

use super::reduction::of_nothing;
use crate::{
    application::Application,
    backend::{
        ReduceBackend, Results, apply as apply_whole, reduce as reduce_whole, split_offsets, these,
        with_operands,
    },
    error::ReduceBurnError,
    operand::Operand,
    reduction::{Reduction, value_of_nothing},
    segmented::{SegmentNumbers, axis_of},
    tensor::AnyTensor,
};

/// The offsets, none of which descends or lies behind an axis of `len` elements.
fn read<B: Backend>(offsets: IntTensor<B>, len: usize) -> Vec<usize> {
    let read = try_read_sync(B::int_into_data(offsets));
    let data = read.and_then(Result::ok).expect("the device gives the offsets of segments");
    let mut least = 0;
    let offset = |offset: i64| {
        least = usize::try_from(offset).unwrap_or(0).clamp(least, len);
        least
    };
    data.iter::<i64>().map(offset).collect()
}

/// The numbers of the segments of elements.
pub(super) fn numbers<B: Backend>(
    offsets: AnyTensor<B>,
    numbers: SegmentNumbers,
) -> Result<Results<B>, ReduceBurnError> {
    let device = offsets.device();
    let (_, offsets) = split_offsets(vec![offsets], Some(numbers.segments()));
    let len = numbers.shape()[0];
    let ends = read::<B>(offsets.expect("there are segments"), len);
    let number = |position| ends.partition_point(|&offset| offset <= position) as i64 - 1;
    let found: Vec<i64> = (0..len).map(number).collect();
    let data = TensorData::new(found, [len]).convert_dtype(numbers.dtype());
    Ok(vec![AnyTensor::Int(B::int_from_data(data, &device))])
}

/// Runs a reduction of segments.
pub(super) fn reduce<B: ReduceBackend>(
    tensors: Vec<AnyTensor<B>>,
    reduction: &Reduction,
) -> Result<Results<B>, ReduceBurnError> {
    let (tensors, offsets) = split_offsets(tensors, reduction.segments());
    let [tensor] = these(tensors);
    let axis = axis_of(reduction.axes())?;
    let ends = read::<B>(offsets.expect("there are segments"), reduction.input_shape()[axis]);
    let device = tensor.device();
    if ends.len() < 2 || reduction.output_shape().num_elements() == 0 {
        return Ok(of_nothing(0.0, &reduction.output_shape(), reduction.outputs(), &device));
    }
    let mut of_results: Vec<Vec<AnyTensor<B>>> =
        reduction.outputs().iter().map(|_| Vec::new()).collect();
    for bounds in ends.windows(2) {
        let (from, until) = (bounds[0], bounds[1]);
        let of_segment = reduction.of_segment(until - from);
        let results = if from == until {
            start(&of_segment, &device)
        } else {
            reduce_whole::<B>(slice(tensor.clone(), axis, from, until), &of_segment)?
        };
        for (nth, (result, all)) in results.into_iter().zip(&mut of_results).enumerate() {
            all.push(match result {
                AnyTensor::Int(result) if is_position(reduction.operator(), nth) => {
                    AnyTensor::Int(B::int_add_scalar(result, (from as i64).into()))
                }
                result => result,
            });
        }
    }
    Ok(of_results.into_iter().map(|results| joined(results, axis)).collect())
}

/// Whether a result is a position.
fn is_position(operator: OperatorName, nth: usize) -> bool {
    use OperatorName::{ArgMax, ArgMin, MaxWithIndex, MinWithIndex, NanArgMax, NanArgMin};
    match operator {
        ArgMin | ArgMax | NanArgMin | NanArgMax => nth == 0,
        MinWithIndex | MaxWithIndex => nth == 1,
        _ => false,
    }
}

/// The results of a segment without elements: those with which the operator starts.
fn start<B: Backend>(
    of_segment: &Reduction,
    device: &burn_backend::tensor::Device<B>,
) -> Vec<AnyTensor<B>> {
    use OperatorName::{Max, MaxWithIndex, Min, MinMax, MinWithIndex};

    let extreme = |nth: usize| match (of_segment.operator(), nth) {
        (Min | MinWithIndex | MinMax, 0) => f64::INFINITY,
        (Max | MaxWithIndex, 0) | (MinMax, 1) => f64::NEG_INFINITY,
        (operator, _) => value_of_nothing(operator).unwrap_or(f64::NAN),
    };
    let outputs = of_segment.outputs().into_iter().enumerate().map(|(nth, output)| {
        let value = match output.0 {
            Kind::Float => extreme(nth),
            _ => value_of_nothing(of_segment.operator()).unwrap_or(0.0),
        };
        let shape = of_segment.output_shape();
        of_nothing::<B>(value, &shape, vec![output], device).remove(0)
    });
    outputs.collect()
}

/// Runs an application of segments.
pub(super) fn apply<B: ReduceBackend>(
    tensors: Vec<AnyTensor<B>>,
    application: &Application,
) -> Result<Results<B>, ReduceBurnError> {
    let (tensors, offsets) = split_offsets(tensors, application.segments());
    let (x, operands) = with_operands(tensors);
    let axis = axis_of(application.axes())?;
    let len = application.shape()[axis];
    let ends = read::<B>(offsets.expect("there are segments"), len);
    let device = x.device();
    let outside = |from: usize, until: usize| -> Option<FloatTensor<B>> {
        let mut shape: Shape = application.shape().clone();
        shape[axis] = until - from;
        (from < until).then(|| Operand::<B>::zeros(shape, application.dtype(), &device).0)
    };
    let part = |tensor: &FloatTensor<B>, from, until| match slice::<B>(
        AnyTensor::Float(tensor.clone()),
        axis,
        from,
        until,
    ) {
        AnyTensor::Float(part) => part,
        _ => unreachable!("a part of floats is of floats"),
    };
    let segment = |bounds: &[usize]| -> Option<Result<FloatTensor<B>, ReduceBurnError>> {
        let (from, until) = (bounds[0], bounds[1]);
        (from < until).then(|| {
            let x = part(&x, from, until);
            let operands: Vec<_> = operands.iter().map(|own| part(own, from, until)).collect();
            let axes = application.axes().into();
            let whole = Application::new::<B>(application.function(), &x, &axes, &operands)?;
            apply_whole::<B>(x, operands, None, &whole)
        })
    };
    let parts = iter::once(outside(0, ends[0]).map(Ok))
        .chain(ends.windows(2).map(segment))
        .chain([outside(ends[ends.len() - 1], len).map(Ok)])
        .flatten()
        .collect::<Result<Vec<_>, _>>()?;
    let result = if parts.is_empty() { x } else { B::float_cat(parts, axis) };
    Ok(vec![AnyTensor::Float(result)])
}

/// The elements of a tensor from number `from` of an axis up to number `until`.
fn slice<B: Backend>(tensor: AnyTensor<B>, axis: usize, from: usize, until: usize) -> AnyTensor<B> {
    let shape = tensor.shape();
    let bounds = |of: usize| match of == axis {
        true => Slice::new(from as isize, Some(until as isize), 1),
        false => Slice::new(0, Some(shape[of] as isize), 1),
    };
    let slices: Vec<Slice> = (0..shape.num_dims()).map(bounds).collect();
    match tensor {
        AnyTensor::Float(tensor) => AnyTensor::Float(B::float_slice(tensor, &slices)),
        AnyTensor::Int(tensor) => AnyTensor::Int(B::int_slice(tensor, &slices)),
        AnyTensor::Bool(tensor) => AnyTensor::Bool(B::bool_slice(tensor, &slices)),
    }
}

/// Tensors of one kind, of which there is one at least, behind each other along an axis.
fn joined<B: Backend>(tensors: Vec<AnyTensor<B>>, axis: usize) -> AnyTensor<B> {
    let kind = tensors[0].kind();
    let (mut floats, mut ints, mut bools) = (Vec::new(), Vec::new(), Vec::new());
    for tensor in tensors {
        match tensor {
            AnyTensor::Float(tensor) => floats.push(tensor),
            AnyTensor::Int(tensor) => ints.push(tensor),
            AnyTensor::Bool(tensor) => bools.push(tensor),
        }
    }
    match kind {
        Kind::Float => AnyTensor::Float(B::float_cat(floats, axis)),
        Kind::Int => AnyTensor::Int(B::int_cat(ints, axis)),
        Kind::Bool => AnyTensor::Bool(B::bool_cat(bools, axis)),
    }
}
