//! Cross-entropies made of Burn's own operations and of reductions, for backends without kernels of
//! reduce-kernels, and for gradients of gradients.

use burn_backend::{
    TensorMetadata,
    tensor::{BoolTensor, FloatTensor, IntTensor},
};
use burn_tensor::{IntDType, Shape};
use reduce_kernels::{by_name::OperatorName, normalize::LossReduction};

use crate::{
    application::AppliedFunction,
    backend::{LossTensors, ReduceBackend, applied, reduced},
    cross_entropy::ClassLoss,
    error::ReduceBurnError,
    operand::Operand,
};

/// What each slice wants of each class.
struct Wanted<B: ReduceBackend> {
    /// The share of each class: of the shape of the logits.
    shares: Operand<B>,
    /// The weight of the class of each slice, 0 of ignored slices.
    weights: Operand<B>,
    /// Whether a slice is ignored, of the shape of the logits.
    ignored: Option<BoolTensor<B>>,
}

/// The losses of slices, or their sum or mean.
pub(crate) fn losses<B: ReduceBackend>(
    LossTensors { logits, classes, weights }: LossTensors<B>,
    loss: &ClassLoss,
) -> Result<FloatTensor<B>, ReduceBurnError> {
    if loss.shape().num_elements() == 0 {
        let mut nothing =
            Operand::<B>::zeros(loss.loss_shape(), loss.loss_dtype(), &logits.device());
        if loss.options().reduction == LossReduction::Mean {
            nothing = nothing / 0.0;
        }
        return Ok(nothing.0);
    }
    let wanted = Wanted::<B>::new(&logits, classes, weights, loss)?;
    let x = Operand::<B>(logits).wide();
    let logarithms = applied(AppliedFunction::LogSoftmax, x, Vec::new(), None, &[loss.axis()])?;
    // A class without a share gives nothing, whatever its logit is.
    let none = wanted.shares.equals(0.0);
    let terms = (wanted.shares.clone() * logarithms * -1.0).fill(none, 0.0);
    let [each] = reduced(OperatorName::Sum, &terms, &[loss.axis()])?;
    let axes: Vec<usize> = (0..loss.shape().num_dims()).collect();
    let result = match loss.options().reduction {
        LossReduction::Each => each,
        LossReduction::Sum => {
            let [sum] = reduced(OperatorName::Sum, &each, &axes)?;
            sum
        }
        LossReduction::Mean => {
            let [sum] = reduced(OperatorName::Sum, &each, &axes)?;
            let [divisor] = reduced(OperatorName::Sum, &wanted.weights, &axes)?;
            sum / divisor
        }
    };
    Ok(result.reshape(loss.loss_shape()).0)
}

/// The gradient by the logits, from that of the losses or of their sum or mean.
pub(crate) fn gradient<B: ReduceBackend>(
    LossTensors { logits, classes, weights }: LossTensors<B>,
    upstream: FloatTensor<B>,
    loss: &ClassLoss,
) -> Result<FloatTensor<B>, ReduceBurnError> {
    if loss.shape().num_elements() == 0 {
        return Ok(logits);
    }
    let Wanted { shares, weights, ignored } = Wanted::<B>::new(&logits, classes, weights, loss)?;
    let x = Operand::<B>(logits).wide();
    let softmax = applied(AppliedFunction::Softmax, x, Vec::new(), None, &[loss.axis()])?;
    let [all] = reduced(OperatorName::Sum, &shares, &[loss.axis()])?;
    let gradient = softmax * all - shares;
    let upstream = Operand::<B>(upstream).wide();
    let ones = Shape::from(vec![1; loss.shape().num_dims()]);
    let scale = match loss.options().reduction {
        LossReduction::Each => upstream.reshape(loss.kept_shape()),
        LossReduction::Sum => upstream.reshape(ones),
        LossReduction::Mean => {
            let axes: Vec<usize> = (0..loss.shape().num_dims()).collect();
            let [divisor] = reduced(OperatorName::Sum, &weights, &axes)?;
            upstream.reshape(ones) / divisor
        }
    };
    let gradient = gradient * scale;
    let gradient = match ignored {
        Some(ignored) => gradient.fill(ignored, 0.0),
        None => gradient,
    };
    Ok(gradient.cast(loss.dtype()).0)
}

impl<B: ReduceBackend> Wanted<B> {
    fn new(
        logits: &FloatTensor<B>,
        classes: IntTensor<B>,
        weights: Option<FloatTensor<B>>,
        loss: &ClassLoss,
    ) -> Result<Self, ReduceBurnError> {
        let (device, wide) = (logits.device(), loss.loss_dtype());
        let (axis, shape, count) = (loss.axis(), loss.shape(), loss.shape()[loss.axis()]);
        let options = loss.options();
        let bools = Operand::<B>(logits.clone()).bool_dtype();
        let mut along = vec![1; shape.num_dims()];
        along[axis] = count;
        let along = Shape::from(along);
        // Narrow types may not have the number of classes.
        let classes = match loss.classes().0.size() {
            1 | 2 => B::int_cast(classes, IntDType::I32),
            _ => classes,
        };
        let numbers = B::int_arange(0..count as i64, &device, classes.dtype().into());
        let numbers = B::int_expand(B::int_reshape(numbers, along.clone()), shape.clone());
        let classes = B::int_reshape(classes, loss.kept_shape());
        let is_known = B::bool_and(
            B::int_greater_equal_elem(classes.clone(), 0i64.into(), bools),
            B::int_lower_elem(classes.clone(), (count as i64).into(), bools),
        );
        let is_unknown = B::bool_not(is_known);
        let ignored =
            options.ignored.map(|class| B::int_equal_elem(classes.clone(), class.into(), bools));
        let is_own = B::int_equal(numbers, B::int_expand(classes, shape.clone()), bools);
        let own = Operand::<B>(B::bool_into_float(is_own, wide.into()));
        let class_weights = weights.map(|weights| Operand::<B>(weights).cast(wide).reshape(along));
        let weighted = |values: Operand<B>| match &class_weights {
            Some(weights) => values * weights.clone(),
            None => values,
        };
        let shares = own.clone() * (1.0 - options.smoothing) + options.smoothing / count as f64;
        let [weights] = reduced(OperatorName::Sum, &weighted(own), &[axis])?;
        let unknown = B::bool_expand(is_unknown.clone(), shape.clone());
        let shares = weighted(shares).fill(unknown, f64::NAN);
        let weights = weights.fill(is_unknown, f64::NAN);
        let Some(is_ignored) = ignored else {
            return Ok(Self { shares, weights, ignored: None });
        };
        let everywhere = B::bool_expand(is_ignored.clone(), shape.clone());
        Ok(Self {
            shares: shares.fill(everywhere.clone(), 0.0),
            weights: weights.fill(is_ignored, 0.0),
            ignored: Some(everywhere),
        })
    }
}
