//! Backward passes of softmax and of normalisations: sums of pairs, and what is made of them and of
//! each element.

use cubecl::prelude::*;

use super::applied::exponential;
use crate::operator::{
    A, Application, Apply, B, C, D, Definition, Four, In, InvalidParameter, One, Operands,
    Operator, Out, Out2, Out3, Pair, ParameterRule, Parameters, Position, Quad, Real, Reduced,
    Three, Triple, Two, TypeRule, Value, rules,
};

/// The gradient of softmax from the dot product of the output's gradient and the output: the
/// gradient less that product, times the output, which is the first operand.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoftmaxGradient;

/// The gradient of log-softmax from the sum of the output's gradient: the gradient less that sum
/// times the exponential of the output, which is the first operand.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogSoftmaxGradient;

/// The gradient of RMS normalisation from the dot product of the output's gradient and the input.
/// The operands are the input and the reciprocal of the root mean square.
#[derive(Clone, Copy, Debug)]
pub struct RmsNormGradient {
    /// Elements of a slice, above 0.
    pub count: f64,
}

/// The gradient of layer normalisation from `SumAndShiftedDot` of the output's gradient and the
/// input. The operands are the input, its mean and the reciprocal of its deviation.
#[derive(Clone, Copy, Debug)]
pub struct LayerNormGradient {
    /// Elements of a slice, above 0.
    pub count: f64,
}

/// The gradient of a cross-entropy by the logits of classes other than the one that is right,
/// without smoothing: the softmax from [`SoftmaxSums`](super::SoftmaxSums) times the operand, and 0
/// where that is 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CrossEntropyGradient;

/// The same with smoothing, from [`SoftmaxSumsAndTotal`](super::SoftmaxSumsAndTotal). The second
/// operand times the third, a weight for each class, is subtracted for each share that a class has
/// by smoothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SmoothedCrossEntropyGradient {
    /// The share of each class.
    pub(crate) share: f64,
}

fn reciprocal(count: f64) -> Result<Vec<f64>, InvalidParameter> {
    match count.is_finite() && count > 0.0 {
        true => Ok(vec![count.recip()]),
        false => {
            let expected = "a finite number above 0";
            Err(InvalidParameter { name: "count", value: count, expected })
        }
    }
}

#[cube]
impl Apply for SoftmaxGradient {
    type Results = One;
    type Outputs = One;

    const NAME: &'static str = "softmax_gradient";
    const OPERANDS: usize = 1;
    const DEFINITION: &'static Application<Self> = crate::applied!(SoftmaxGradient);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<One, N>,
        operands: &Operands<N>,
        _parameters: &Parameters,
    ) -> Reduced<One, N> {
        Value::new(operands.first() * (value - results.value))
    }
}

#[cube]
impl Apply for LogSoftmaxGradient {
    type Results = One;
    type Outputs = One;

    const NAME: &'static str = "log_softmax_gradient";
    const OPERANDS: usize = 1;
    const TRANSCENDENTAL: bool = true;
    const NATIVE_MATH: bool = false;
    const DEFINITION: &'static Application<Self> = crate::applied!(LogSoftmaxGradient);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<One, N>,
        operands: &Operands<N>,
        _parameters: &Parameters,
    ) -> Reduced<One, N> {
        Value::new(value - exponential::<Real, N>(operands.first()) * results.value)
    }
}

#[cube]
impl Apply for CrossEntropyGradient {
    type Results = Two;
    type Outputs = One;

    const NAME: &'static str = "cross_entropy_gradient";
    const OPERANDS: usize = 1;
    const TRANSCENDENTAL: bool = true;
    const NATIVE_MATH: bool = false;
    const DEFINITION: &'static Application<Self> = crate::applied!(CrossEntropyGradient);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<Two, N>,
        operands: &Operands<N>,
        _parameters: &Parameters,
    ) -> Reduced<One, N> {
        let exponential = exponential::<Real, N>(value - results.first);
        let gradient = exponential * (results.second * operands.first());
        Value::new(zero_where_zero::<N>(operands.first(), gradient))
    }
}

#[cube]
impl Apply for SmoothedCrossEntropyGradient {
    type Results = Three;
    type Outputs = One;

    const NAME: &'static str = "smoothed_cross_entropy_gradient";
    const OPERANDS: usize = 3;
    const TRANSCENDENTAL: bool = true;
    const NATIVE_MATH: bool = false;
    const PARAMETERS: ParameterRule<Self> = |gradient| Ok(vec![gradient.share]);
    const DEFINITION: &'static Application<Self> = crate::applied!(SmoothedCrossEntropyGradient);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<Three, N>,
        operands: &Operands<N>,
        parameters: &Parameters,
    ) -> Reduced<One, N> {
        let exponential = exponential::<Real, N>(value - results.first);
        let mut share = Vector::new(parameters.get::<Real>(0usize)) * operands.second();
        if operands.has_third() {
            share *= operands.third();
        }
        let gradient = exponential * (results.second * operands.first()) - share;
        Value::new(zero_where_zero::<N>(operands.first(), gradient))
    }
}

/// `value`, but 0 where `factor` is, also of NaN.
#[cube]
fn zero_where_zero<N: Size>(factor: Vector<Real, N>, value: Vector<Real, N>) -> Vector<Real, N> {
    let zero = Vector::from_int(0);
    select_many(factor.equal(&zero), zero, value)
}

#[cube]
impl Apply for RmsNormGradient {
    type Results = One;
    type Outputs = One;

    const NAME: &'static str = "rms_norm_gradient";
    const OPERANDS: usize = 2;
    const PARAMETERS: ParameterRule<Self> = |gradient| reciprocal(gradient.count);
    const DEFINITION: &'static Application<Self> = crate::applied!(RmsNormGradient);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<One, N>,
        operands: &Operands<N>,
        parameters: &Parameters,
    ) -> Reduced<One, N> {
        let share = Vector::new(parameters.get::<Real>(0usize));
        let factor = operands.second();
        let mean = results.value * share * factor * factor;
        Value::new((value - operands.first() * mean) * factor)
    }
}

#[cube]
impl Apply for LayerNormGradient {
    type Results = Three;
    type Outputs = One;

    const NAME: &'static str = "layer_norm_gradient";
    const OPERANDS: usize = 3;
    const PARAMETERS: ParameterRule<Self> = |gradient| reciprocal(gradient.count);
    const DEFINITION: &'static Application<Self> = crate::applied!(LayerNormGradient);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<Three, N>,
        operands: &Operands<N>,
        parameters: &Parameters,
    ) -> Reduced<One, N> {
        let share = Vector::new(parameters.get::<Real>(0usize));
        let mean = operands.second();
        let factor = operands.third();
        let dot = results.second + (results.third - mean) * results.first;
        let slope = dot * share * factor * factor;
        Value::new((value - results.first * share - (operands.first() - mean) * slope) * factor)
    }
}

/// The sum of the first input, its dot product with the distances of the second from one of its
/// elements, and that element: a dot product with distances from the mean follows without the
/// cancellation of one with the elements themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SumAndShiftedDot;

#[cube]
impl Operator for SumAndShiftedDot {
    type Inputs = Two;
    type Fields = Four;
    type Results = Three;

    const NAME: &'static str = "sum_and_shifted_dot";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;
    const DEFINITION: &'static Definition<Self> = crate::defined!(SumAndShiftedDot);

    /// The sum, the dot product, the shift, and 1 if there are elements.
    fn identity<N: Size>() -> Quad<A, B, C, D, N> {
        let zero = Vector::from_int(0);
        Quad::new(zero, Vector::from_int(0), Vector::from_int(0), Vector::from_int(0))
    }

    fn push<N: Size>(
        accumulator: Quad<A, B, C, D, N>,
        pair: Pair<In, In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Quad<A, B, C, D, N> {
        let starts = accumulator.fourth.equal(&Vector::from_int(0));
        let shift = select_many(starts, Vector::cast_from(pair.second), accumulator.third);
        let distance = pair.second - Vector::cast_from(shift);
        Quad::new(
            accumulator.first + Vector::cast_from(pair.first),
            accumulator.second + Vector::cast_from(pair.first * distance),
            shift,
            Vector::from_int(1),
        )
    }

    fn merge<N: Size>(
        left: Quad<A, B, C, D, N>,
        right: Quad<A, B, C, D, N>,
        _parameters: &Parameters,
    ) -> Quad<A, B, C, D, N> {
        let empty = left.fourth.equal(&Vector::from_int(0));
        let shift = select_many(empty, right.third, left.third);
        let of_left = Vector::<A, N>::cast_from(left.third - shift) * left.first;
        let of_right = Vector::<A, N>::cast_from(right.third - shift) * right.first;
        Quad::new(
            left.first + right.first,
            left.second + right.second + Vector::cast_from(of_left + of_right),
            shift,
            max(left.fourth, right.fourth),
        )
    }

    fn finish<N: Size>(
        accumulator: Quad<A, B, C, D, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Triple<Out, Out2, Out3, N> {
        Triple::new(
            Vector::cast_from(accumulator.first),
            Vector::cast_from(accumulator.second),
            Vector::cast_from(accumulator.third),
        )
    }
}
