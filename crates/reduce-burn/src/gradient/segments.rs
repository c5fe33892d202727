//! The gradients of reductions of segments: what the forward pass saves, and the formulas of the
//! backward pass.
//!
//! The gradient of a segment's result reaches its elements by a gather with the numbers of their
//! segments. Operators without a formula here are made of Burn's operations where they are tracked.

use burn_backend::{
    Backend, TensorMetadata, get_device_settings,
    tensor::{BoolTensor, FloatTensor, IntTensor},
};
use burn_std::Slice;
use burn_tensor::{IndexingUpdateOp, Shape};
use reduce_kernels::by_name::OperatorName;

use super::{float, float_and_int};
use crate::{
    backend::{Operation, ReduceBackend, reduce_segments, these},
    error::ReduceBurnError,
    operand::{Operand, wide},
    reduction::Reduction,
    segmented::{GroupTensors, Members, SegmentNumbers, axis_of},
    tensor::AnyTensor,
};

/// A result, and how its gradient reaches the input; positions have none.
pub(crate) type Differentiable<B> = (AnyTensor<B>, Option<SegmentGradient<B>>);

/// How the gradient of one result reaches the input.
#[derive(Clone, Debug)]
pub(crate) struct SegmentGradient<B: Backend> {
    reduction: Reduction,
    members: Members<B>,
    formula: Formula<B>,
}

/// The formula of a gradient, with what it needs from the forward pass. A saved input is a second
/// handle to its memory, not a copy. A saved result is of f32 at least.
#[derive(Clone, Debug)]
enum Formula<B: Backend> {
    Sum,
    Mean,
    /// One element is the result: extrema.
    Selected {
        index: IntTensor<B>,
    },
    LogSumExp {
        x: FloatTensor<B>,
        result: FloatTensor<B>,
    },
}

/// Whether an operator has a formula.
pub(crate) fn has_formula(operator: OperatorName) -> bool {
    use OperatorName::{LogSumExp, Max, MaxWithIndex, Mean, Min, MinMax, MinWithIndex, Sum};
    matches!(operator, Sum | Mean | Min | Max | MinMax | MinWithIndex | MaxWithIndex | LogSumExp)
}

/// The results of a reduction of segments that [has a formula](has_formula) and whose input is
/// tracked, with their gradients.
pub(crate) fn forward<B: ReduceBackend>(
    x: FloatTensor<B>,
    members: Members<B>,
    reduction: &Reduction,
) -> Result<Vec<Differentiable<B>>, ReduceBurnError> {
    use OperatorName::{LogSumExp, Max, MaxWithIndex, Mean, Min, MinMax, MinWithIndex, Sum};

    let run = |reduction: &Reduction| {
        reduce_segments::<B>(AnyTensor::Float(x.clone()), members.clone(), reduction)
    };
    let with = |result: FloatTensor<B>, formula: Formula<B>| {
        let (reduction, members) = (reduction.clone(), members.clone());
        (AnyTensor::Float(result), Some(SegmentGradient { reduction, members, formula }))
    };
    let selected = |operator| {
        let (value, index) = float_and_int(run(&reduction.with(operator))?);
        let formula = Formula::Selected { index: index.clone() };
        Ok::<_, ReduceBurnError>((with(value, formula), index))
    };
    Ok(match reduction.operator() {
        Sum => vec![with(float(run(reduction)?), Formula::Sum)],
        Mean => vec![with(float(run(reduction)?), Formula::Mean)],
        Min => vec![selected(MinWithIndex)?.0],
        Max => vec![selected(MaxWithIndex)?.0],
        MinMax => vec![selected(MinWithIndex)?.0, selected(MaxWithIndex)?.0],
        operator @ (MinWithIndex | MaxWithIndex) => {
            let (value, index) = selected(operator)?;
            vec![value, (AnyTensor::Int(index), None)]
        }
        LogSumExp => {
            let (_, value) = reduction.outputs()[0];
            let saved = float(run(&reduction.clone().with_value_type(wide(x.dtype())))?);
            let result = Operand::<B>(saved.clone()).cast(value).0;
            vec![with(result, Formula::LogSumExp { x: x.clone(), result: saved })]
        }
        other => unreachable!("`{other}` of segments has no formula"),
    })
}

impl<B: ReduceBackend> SegmentGradient<B> {
    /// The gradient of the input, from the gradient of the result.
    pub(crate) fn of(self, result: FloatTensor<B>) -> FloatTensor<B> {
        let Self { reduction, members, formula } = self;
        let shape = reduction.input_shape().clone();
        let (_, dtype) = reduction.input();
        if shape.num_elements() == 0 || reduction.output_shape().num_elements() == 0 {
            return Operand::<B>::zeros(shape, dtype, &result.device()).0;
        }
        let gradient = Operand::<B>(result).wide();
        let over = axis_of(reduction.axes()).and_then(|axis| Over::new(members, axis, shape));
        let over =
            over.unwrap_or_else(|error| panic!("gradient of `{}`: {error}", reduction.operator()));
        match formula {
            Formula::Sum => over.spread(gradient.cast(dtype)),
            Formula::Mean => {
                let counts = over.counts(&gradient);
                over.spread((gradient / counts).cast(dtype))
            }
            Formula::Selected { index } => over.scattered(index, gradient.cast(dtype)),
            Formula::LogSumExp { x, result } => {
                // Of elements that are all -inf, none has a share.
                let result = Operand::<B>(result);
                let nothing = result.equals(f64::NEG_INFINITY);
                let shift = over.spread(result.fill(nothing, 0.0));
                (Operand::<B>(x).wide() - shift).exp() * over.spread(gradient)
            }
        }
        .cast(dtype)
        .0
    }
}

/// The segments of a backward pass, of which there is one at least.
struct Over<B: Backend> {
    offsets: IntTensor<B>,
    axis: usize,
    /// The shape of the input.
    shape: Shape,
    /// The number of a segment for each element of the axis: its own if it has one.
    numbers: IntTensor<B>,
    /// Whether an element of the axis is in no segment.
    outside: BoolTensor<B>,
}

impl<B: ReduceBackend> Over<B> {
    fn new(members: Members<B>, axis: usize, shape: Shape) -> Result<Self, ReduceBurnError> {
        let Members { offsets, groups } = members;
        let operation = SegmentNumbers::new::<B>(&offsets, shape[axis])?;
        let numbers = match groups {
            // Keys are the numbers of groups.
            Some(GroupTensors { keys, .. }) => keys,
            None => {
                let tensors = vec![AnyTensor::Int(offsets.clone())];
                let [numbers] = these(B::run(tensors, Operation::SegmentNumbers(operation))?);
                let AnyTensor::Int(numbers) = numbers else { unreachable!("numbers are integers") };
                numbers
            }
        };
        let dtype = get_device_settings::<B>(&offsets.device()).bool_dtype;
        let last = operation.segments().count() as i64 - 1;
        let before = B::int_lower_elem(numbers.clone(), 0.into(), dtype);
        let behind = B::int_greater_elem(numbers.clone(), last.into(), dtype);
        let outside = B::bool_or(before, behind);
        let numbers = B::int_clamp(numbers, 0.into(), last.into());
        Ok(Self { offsets, axis, shape, numbers, outside })
    }

    /// The shape of a tensor that has elements along the axis alone.
    fn along(&self, len: usize) -> Shape {
        let mut shape = vec![1; self.shape.num_dims()];
        shape[self.axis] = len;
        Shape::from(shape)
    }

    /// The value of its segment for each element of the input, and 0 for those in none.
    fn spread(&self, values: Operand<B>) -> Operand<B> {
        let gathered = B::float_select(values.0, self.axis, self.numbers.clone());
        let outside = B::bool_reshape(self.outside.clone(), self.along(self.shape[self.axis]));
        Operand::<B>(gathered).fill(B::bool_expand(outside, self.shape.clone()), 0.0)
    }

    /// The number of elements of each segment, along the axis and in the type of `like`.
    fn counts(&self, like: &Operand<B>) -> Operand<B> {
        let segments = self.offsets.shape()[0] - 1;
        let part = |from: usize| {
            let slice = Slice::new(from as isize, Some((from + segments) as isize), 1);
            B::int_slice(self.offsets.clone(), &[slice])
        };
        let counts = B::int_into_float(B::int_sub(part(1), part(0)), like.0.dtype().into());
        Operand::<B>(counts).reshape(self.along(segments))
    }

    /// Zeros of the input's shape, with `values` at the positions in `index`. Segments without
    /// elements have no position.
    fn scattered(&self, index: IntTensor<B>, values: Operand<B>) -> Operand<B> {
        let empty = self.counts(&values).equals(0.0);
        let empty = B::bool_expand(empty, values.0.shape());
        let index = B::int_mask_fill(index, empty.clone(), 0.into());
        let values = values.fill(empty, 0.0);
        let zeros = values.zeros_like(self.shape.clone());
        let update = IndexingUpdateOp::Add;
        Operand(B::float_scatter(self.axis, zeros.0, index, values.0, update))
    }
}
