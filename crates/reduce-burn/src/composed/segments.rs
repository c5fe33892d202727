//! Segments made of Burn's own operations, for backends without kernels of reduce-kernels: the offsets
//! are read, and each segment is a slice.

use core::iter;

use burn_backend::{
    Backend, DType, TensorMetadata, get_device_settings,
    tensor::{FloatTensor, IntTensor},
};
use burn_std::{Slice, reader::try_read_sync};
use burn_tensor::{Shape, TensorData, kind::Kind};
use reduce_kernels::by_name::OperatorName;

use super::reduction::of_nothing;
use crate::{
    application::Application,
    backend::{
        ReduceBackend, Results, apply as apply_whole, reduce as reduce_whole, split_members, these,
        with_operands,
    },
    error::ReduceBurnError,
    operand::Operand,
    quantization::limits,
    reduction::{Reduction, value_of_nothing},
    segmented::{Grouping, Members, SegmentNumbers, axis_of},
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
    let (_, members) = split_members(vec![offsets], Some(numbers.segments()));
    let len = numbers.shape()[0];
    let ends = read::<B>(members.expect("there are segments").offsets, len);
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
    let (tensors, members) = split_members(tensors, reduction.segments());
    let [tensor] = these(tensors);
    let axis = axis_of(reduction.axes())?;
    let Members { offsets, groups } = members.expect("there are segments");
    let ends = read::<B>(offsets, reduction.input_shape()[axis]);
    let device = tensor.device();
    let order = groups.map(|groups| Order::of::<B>(groups.indices, reduction.input_shape()[axis]));
    let tensor = match &order {
        Some(order) => selected(tensor, axis, order.indices::<B>(&device)),
        None => tensor,
    };
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
                    let result = B::int_add_scalar(result, (from as i64).into());
                    AnyTensor::Int(match &order {
                        Some(order) => positions::<B>(result, order.indices::<B>(&device)),
                        None => result,
                    })
                }
                result => result,
            });
        }
    }
    Ok(of_results.into_iter().map(|results| joined(results, axis)).collect())
}

/// Whether a result is a position.
pub(super) fn is_position(operator: OperatorName, nth: usize) -> bool {
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
    let outputs = of_segment.outputs().into_iter().enumerate().map(|(nth, output)| {
        let value = start_of(of_segment.operator(), nth, output);
        let shape = of_segment.output_shape();
        of_nothing::<B>(value, &shape, vec![output], device).remove(0)
    });
    outputs.collect()
}

/// The value with which an operator starts as its result number `nth`, and 0 as a position.
pub(super) fn start_of(operator: OperatorName, nth: usize, (kind, dtype): (Kind, DType)) -> f64 {
    use OperatorName::{Max, MaxWithIndex, Min, MinMax, MinWithIndex};

    let (least, largest) = match kind {
        Kind::Int => limits(dtype.into()),
        _ => (f64::NEG_INFINITY, f64::INFINITY),
    };
    match (operator, nth) {
        (Min | MinWithIndex | MinMax, 0) => largest,
        (Max | MaxWithIndex, 0) | (MinMax, 1) => least,
        (operator, _) if kind == Kind::Float => value_of_nothing(operator).unwrap_or(f64::NAN),
        (operator, _) => value_of_nothing(operator).unwrap_or(0.0),
    }
}

/// Runs an application of segments.
pub(super) fn apply<B: ReduceBackend>(
    tensors: Vec<AnyTensor<B>>,
    application: &Application,
) -> Result<Results<B>, ReduceBurnError> {
    let (tensors, members) = split_members(tensors, application.segments());
    let axis = axis_of(application.axes())?;
    let len = application.shape()[axis];
    let Members { offsets, groups } = members.expect("there are segments");
    let ends = read::<B>(offsets, len);
    let device = tensors[0].device();
    let order = groups.map(|groups| Order::of::<B>(groups.indices, len));
    let tensors = tensors.into_iter().map(|tensor| match &order {
        Some(order) => selected(tensor, axis, order.indices::<B>(&device)),
        None => tensor,
    });
    let (x, operands) = with_operands(tensors.collect());
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
    let result = AnyTensor::Float(result);
    Ok(vec![match &order {
        Some(order) => selected(result, axis, order.inverse().indices::<B>(&device)),
        None => result,
    }])
}

/// An order of the elements of an axis: that of their groups.
struct Order(Vec<i64>);

impl Order {
    /// The order that indices say, which are those of `len` elements.
    fn of<B: Backend>(indices: IntTensor<B>, len: usize) -> Self {
        let read = try_read_sync(B::int_into_data(indices));
        let data = read.and_then(Result::ok).expect("the device gives the indices of groups");
        let last = len.saturating_sub(1) as i64;
        Self(data.iter::<i64>().map(|index| index.clamp(0, last)).collect())
    }

    /// The order that brings elements back.
    fn inverse(&self) -> Self {
        let mut back = vec![0; self.0.len()];
        for (place, &index) in self.0.iter().enumerate() {
            back[index as usize] = place as i64;
        }
        Self(back)
    }

    /// The indices as a tensor of the device's integer type.
    fn indices<B: Backend>(&self, device: &burn_backend::tensor::Device<B>) -> IntTensor<B> {
        let dtype = get_device_settings::<B>(device).int_dtype.into();
        let data = TensorData::new(self.0.clone(), [self.0.len()]).convert_dtype(dtype);
        B::int_from_data(data, device)
    }
}

/// The groups of keys.
pub(super) fn group<B: Backend>(
    keys: AnyTensor<B>,
    grouping: Grouping,
) -> Result<Results<B>, ReduceBurnError> {
    let device = keys.device();
    let AnyTensor::Int(keys) = keys else { unreachable!("keys are integers") };
    let read = try_read_sync(B::int_into_data(keys));
    let data = read.and_then(Result::ok).expect("the device gives the keys of groups");
    let groups = grouping.groups();
    let named = |key: i64| usize::try_from(key).unwrap_or(groups).min(groups);
    let keys: Vec<usize> = data.iter::<i64>().map(named).collect();
    let mut indices: Vec<i64> = (0..keys.len() as i64).collect();
    indices.sort_by_key(|&index| keys[index as usize]);
    let mut offsets = vec![0i64; groups + 1];
    keys.iter().filter(|&&key| key < groups).for_each(|&key| offsets[key + 1] += 1);
    for group in 0..groups {
        offsets[group + 1] += offsets[group];
    }
    let tensor = |numbers: Vec<i64>| {
        let len = numbers.len();
        let data = TensorData::new(numbers, [len]).convert_dtype(grouping.dtype());
        AnyTensor::Int(B::int_from_data(data, &device))
    };
    Ok(vec![tensor(indices), tensor(offsets)])
}

/// The elements of a tensor at these indices of an axis.
fn selected<B: Backend>(tensor: AnyTensor<B>, axis: usize, indices: IntTensor<B>) -> AnyTensor<B> {
    match tensor {
        AnyTensor::Float(tensor) => AnyTensor::Float(B::float_select(tensor, axis, indices)),
        AnyTensor::Int(tensor) => AnyTensor::Int(B::int_select(tensor, axis, indices)),
        AnyTensor::Bool(tensor) => AnyTensor::Bool(B::bool_select(tensor, axis, indices)),
    }
}

/// The indices at these positions.
fn positions<B: Backend>(positions: IntTensor<B>, indices: IntTensor<B>) -> IntTensor<B> {
    let (shape, dtype) = (positions.shape(), positions.dtype());
    let flat = B::int_reshape(positions, Shape::from([shape.num_elements()]));
    let found = B::int_select(indices, 0, flat);
    B::int_cast(B::int_reshape(found, shape), dtype.into())
}

/// The elements of a tensor from number `from` of an axis up to number `until`.
pub(super) fn slice<B: Backend>(
    tensor: AnyTensor<B>,
    axis: usize,
    from: usize,
    until: usize,
) -> AnyTensor<B> {
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
pub(super) fn joined<B: Backend>(tensors: Vec<AnyTensor<B>>, axis: usize) -> AnyTensor<B> {
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
