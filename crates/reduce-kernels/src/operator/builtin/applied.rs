//! The functions of this crate that apply results to elements.

use cubecl::prelude::*;
use reduce_planner::ElementType;

use crate::operator::{
    Application, Applied, Apply, InvalidParameter, Map, One, Operands, Pair, ParameterRule,
    Parameters, Real, Reduced, Two, Value,
    element_wise::is_nan,
    finite,
    math::{exp, exp_of_negative},
};

/// Softmax from [`SoftmaxSums`](super::SoftmaxSums): the exponential of the difference from the
/// largest element, times the reciprocal of the sum.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExponentialShare;

/// Log-softmax from [`LogSoftmaxSums`](super::LogSoftmaxSums): the difference from the largest
/// element, less the logarithm of the sum.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogShare;

/// Multiplies elements before `apply` gets them: with [`ScaleBy`] for the reduction, softmax at a
/// temperature.
#[derive(Clone, Copy, Debug)]
pub struct ScaledThen<F> {
    /// Factor of the elements, above 0.
    pub scale: f64,
    /// What is applied to the products. It has no parameters.
    pub apply: F,
}

/// Multiplies elements and adds the first operand before `apply` gets them: with
/// [`ScaledSum`](super::ScaledSum) for the reduction, softmax of scores with an additive mask.
#[derive(Clone, Copy, Debug)]
pub struct MaskedThen<F> {
    /// Factor of the elements, a finite number.
    pub scale: f64,
    /// What is applied to the sums. It has no parameters.
    pub apply: F,
}

/// The difference from the first result, times the second: the mean and the reciprocal of a
/// deviation, as [`MeanRstd`](super::MeanRstd) gives them. The first operand is a factor of that,
/// and the second is added.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standardized;

/// The element times the result. The first operand is a factor of that, and the second is added.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scaled;

/// The sum of the element and the first operand, and that sum as [`Scaled`] makes it of the second
/// operand and the third: a residual connection and what follows it.
#[derive(Clone, Copy, Debug, Default)]
pub struct AddScaled;

/// The sum of the element and the first operand, and that sum as [`Standardized`] makes it of the
/// second operand and the third.
#[derive(Clone, Copy, Debug, Default)]
pub struct AddStandardized;

/// The element, scaled down where the result, a norm, is above `max_norm`: times
/// `max_norm / (norm + 1e-6)`, as PyTorch clips gradients.
///
/// A norm of NaN gives NaN. An infinite one gives 0, and NaN for elements that are infinite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClippedToNorm {
    /// The largest norm that leaves elements as they are: finite and above 0.
    pub max_norm: f64,
}

/// What is added to a norm that is divided by.
const CLIP_EPS: f32 = 1e-6;

pub(super) fn positive(name: &'static str, value: f64) -> Result<Vec<f64>, InvalidParameter> {
    match value.is_finite() && value > 0.0 {
        true => Ok(vec![value]),
        false => Err(InvalidParameter { name, value, expected: "a finite number above 0" }),
    }
}

/// The exponential of a difference from the largest element, as exact as the output shows it. The
/// hardware's exponential of `-m` is off by about `2 + m` units in the last place of f32, which
/// types of 16 bits do not show.
#[cube]
pub(crate) fn exponential<E: Float, N: Size>(difference: Vector<E, N>) -> Vector<E, N> {
    let output = elem_type_of::<Applied>();
    if comptime![output.size() < 4] {
        exp_of_negative::<E, N>(difference)
    } else {
        exp::<E, N>(difference)
    }
}

#[cube]
impl Apply for ExponentialShare {
    type Results = Two;
    type Outputs = One;

    const NAME: &'static str = "exponential_share";
    const TRANSCENDENTAL: bool = true;
    const NATIVE_MATH: bool = false;
    const DEFINITION: &'static Application<Self> = crate::applied!(ExponentialShare);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<Two, N>,
        _operands: &Operands<N>,
        _parameters: &Parameters,
    ) -> Reduced<One, N> {
        Value::new(exponential::<Real, N>(value - results.first) * results.second)
    }
}

#[cube]
impl Apply for LogShare {
    type Results = Two;
    type Outputs = One;

    const NAME: &'static str = "log_share";
    const DEFINITION: &'static Application<Self> = crate::applied!(LogShare);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<Two, N>,
        _operands: &Operands<N>,
        _parameters: &Parameters,
    ) -> Reduced<One, N> {
        Value::new((value - results.first) - results.second)
    }
}

#[cube]
impl<F: Apply> Apply for ScaledThen<F> {
    type Results = F::Results;
    type Outputs = F::Outputs;

    const NAME: &'static str = F::NAME;
    const OPERANDS: usize = F::OPERANDS;
    const TRANSCENDENTAL: bool = F::TRANSCENDENTAL;
    const NATIVE_MATH: bool = F::NATIVE_MATH;
    const PARAMETERS: ParameterRule<Self> = |scaled| positive("scale", scaled.scale);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<F::Results, N>,
        operands: &Operands<N>,
        parameters: &Parameters,
    ) -> Reduced<F::Outputs, N> {
        let scale = Vector::new(parameters.get::<Real>(0usize));
        F::apply::<N>(value * scale, results, operands, parameters)
    }
}

#[cube]
impl<F: Apply> Apply for MaskedThen<F> {
    type Results = F::Results;
    type Outputs = F::Outputs;

    const NAME: &'static str = F::NAME;
    const OPERANDS: usize = F::OPERANDS + 1;
    const TRANSCENDENTAL: bool = F::TRANSCENDENTAL;
    const NATIVE_MATH: bool = F::NATIVE_MATH;
    const PARAMETERS: ParameterRule<Self> = |masked| Ok(vec![finite("scale", masked.scale)?]);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<F::Results, N>,
        operands: &Operands<N>,
        parameters: &Parameters,
    ) -> Reduced<F::Outputs, N> {
        let scale = Vector::new(parameters.get::<Real>(0usize));
        let sum = value * scale + operands.first();
        F::apply::<N>(sum, results, &operands.behind_first(), parameters)
    }
}

#[cube]
impl Apply for Standardized {
    type Results = Two;
    type Outputs = One;

    const NAME: &'static str = "standardized";
    const OPERANDS: usize = 2;
    const DEFINITION: &'static Application<Self> = crate::applied!(Standardized);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<Two, N>,
        operands: &Operands<N>,
        _parameters: &Parameters,
    ) -> Reduced<One, N> {
        Value::new(affine::<N>((value - results.first) * results.second, operands))
    }
}

#[cube]
impl Apply for Scaled {
    type Results = One;
    type Outputs = One;

    const NAME: &'static str = "scaled";
    const OPERANDS: usize = 2;
    const DEFINITION: &'static Application<Self> = crate::applied!(Scaled);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<One, N>,
        operands: &Operands<N>,
        _parameters: &Parameters,
    ) -> Reduced<One, N> {
        Value::new(affine::<N>(value * results.value, operands))
    }
}

#[cube]
impl Apply for AddScaled {
    type Results = One;
    type Outputs = Two;

    const NAME: &'static str = "add_scaled";
    const OPERANDS: usize = 3;
    const DEFINITION: &'static Application<Self> = crate::applied!(AddScaled);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<One, N>,
        operands: &Operands<N>,
        _parameters: &Parameters,
    ) -> Reduced<Two, N> {
        let sum = value + operands.first();
        Pair::new(sum, affine::<N>(sum * results.value, &operands.behind_first()))
    }
}

#[cube]
impl Apply for AddStandardized {
    type Results = Two;
    type Outputs = Two;

    const NAME: &'static str = "add_standardized";
    const OPERANDS: usize = 3;
    const DEFINITION: &'static Application<Self> = crate::applied!(AddStandardized);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<Two, N>,
        operands: &Operands<N>,
        _parameters: &Parameters,
    ) -> Reduced<Two, N> {
        let sum = value + operands.first();
        let standardized = (sum - results.first) * results.second;
        Pair::new(sum, affine::<N>(standardized, &operands.behind_first()))
    }
}

#[cube]
impl Apply for ClippedToNorm {
    type Results = One;
    type Outputs = One;

    const NAME: &'static str = "clipped_to_norm";
    const SCALES: bool = true;
    const PARAMETERS: ParameterRule<Self> = |clipped| positive("max_norm", clipped.max_norm);
    const DEFINITION: &'static Application<Self> = crate::applied!(ClippedToNorm);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<One, N>,
        _operands: &Operands<N>,
        parameters: &Parameters,
    ) -> Reduced<One, N> {
        let one = Vector::from_int(1);
        let norm = results.value + Vector::new(Real::cast_from(CLIP_EPS));
        let factor = Vector::new(parameters.get::<Real>(0usize)) / norm;
        let most = select_many(factor.greater_than(&one), one, factor);
        // Drivers make a minimum of that, which drops a NaN.
        let factor = select_many(is_nan::<Real, N>(results.value), results.value, most);
        Value::new(value * factor)
    }
}

/// The value times the first operand, plus the second.
#[cube]
fn affine<N: Size>(value: Vector<Real, N>, operands: &Operands<N>) -> Vector<Real, N> {
    let scaled = if operands.has_first() { value * operands.first() } else { value };
    if operands.has_second() { scaled + operands.second() } else { scaled }
}

/// Multiplies elements by a number, in f32, or in f64 for f64.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaleBy {
    /// The factor, above 0.
    pub scale: f64,
}

#[cube]
impl Map for ScaleBy {
    type Inputs = One;

    const NAME: &'static str = "scaled elements";
    const TYPES: fn(ElementType) -> Option<ElementType> = |input| match input {
        ElementType::F64 => Some(ElementType::F64),
        _ => Some(ElementType::F32),
    };
    const PARAMETERS: ParameterRule<Self> = |map| positive("scale", map.scale);
    const PARAMETER_COUNT: usize = 1;

    fn map<E: Float, N: Size>(value: Vector<E, N>, parameters: &Parameters) -> Vector<E, N> {
        value * Vector::new(parameters.get::<E>(0usize))
    }
}
