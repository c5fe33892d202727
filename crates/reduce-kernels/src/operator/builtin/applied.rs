//! The functions of this crate that apply results to elements.

use cubecl::prelude::*;
use reduce_planner::ElementType;

use crate::operator::{
    Application, Applied, Apply, InvalidParameter, Map, One, Operands, ParameterRule, Parameters,
    Real, Reduced, Two,
    math::{exp, exp_of_negative},
};

/// Softmax from [`SoftmaxSums`](super::SoftmaxSums): the exponential of the difference from the
/// largest element, times the reciprocal of the sum.
///
/// Elements are multiplied by `scale` first, which is 1 over the temperature. The sums are those of
/// the multiplied elements.
#[derive(Clone, Copy, Debug)]
pub struct ExponentialShare {
    /// Factor of the elements, above 0.
    pub scale: f64,
}

/// Log-softmax from [`LogSoftmaxSums`](super::LogSoftmaxSums): the difference from the largest
/// element, less the logarithm of the sum. Elements are multiplied by `scale` first.
#[derive(Clone, Copy, Debug)]
pub struct LogShare {
    /// Factor of the elements, above 0.
    pub scale: f64,
}

/// The difference from the first result, times the second: the mean and the reciprocal of a
/// deviation, as [`MeanRstd`](super::MeanRstd) gives them. The first operand is a factor of that,
/// and the second is added.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standardized;

/// The element times the result. The first operand is a factor of that, and the second is added.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scaled;

fn positive(name: &'static str, value: f64) -> Result<Vec<f64>, InvalidParameter> {
    match value.is_finite() && value > 0.0 {
        true => Ok(vec![value]),
        false => Err(InvalidParameter { name, value, expected: "a finite number above 0" }),
    }
}

#[cube]
impl Apply for ExponentialShare {
    type Results = Two;

    const NAME: &'static str = "exponential_share";
    const TRANSCENDENTAL: bool = true;
    const NATIVE_MATH: bool = false;
    const PARAMETERS: ParameterRule<Self> = |share| positive("scale", share.scale);
    const DEFINITION: &'static Application<Self> = crate::applied!(ExponentialShare);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<Two, N>,
        _operands: &Operands<N>,
        parameters: &Parameters,
    ) -> Vector<Real, N> {
        let scale = Vector::new(parameters.get::<Real>(0usize));
        let difference = value * scale - results.first;
        let output = storage_type_of::<Applied>();
        // The hardware's exponential of -m is off by about 1 + m units in the last place of f32, which
        // types of 16 bits do not show.
        let exponential = if comptime![output.size() < 4] {
            exp_of_negative::<Real, N>(difference)
        } else {
            exp::<Real, N>(difference)
        };
        exponential * results.second
    }
}

#[cube]
impl Apply for LogShare {
    type Results = Two;

    const NAME: &'static str = "log_share";
    const PARAMETERS: ParameterRule<Self> = |share| positive("scale", share.scale);
    const DEFINITION: &'static Application<Self> = crate::applied!(LogShare);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<Two, N>,
        _operands: &Operands<N>,
        parameters: &Parameters,
    ) -> Vector<Real, N> {
        let scale = Vector::new(parameters.get::<Real>(0usize));
        (value * scale - results.first) - results.second
    }
}

#[cube]
impl Apply for Standardized {
    type Results = Two;

    const NAME: &'static str = "standardized";
    const OPERANDS: usize = 2;
    const DEFINITION: &'static Application<Self> = crate::applied!(Standardized);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<Two, N>,
        operands: &Operands<N>,
        _parameters: &Parameters,
    ) -> Vector<Real, N> {
        affine::<N>((value - results.first) * results.second, operands)
    }
}

#[cube]
impl Apply for Scaled {
    type Results = One;

    const NAME: &'static str = "scaled";
    const OPERANDS: usize = 2;
    const DEFINITION: &'static Application<Self> = crate::applied!(Scaled);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<One, N>,
        operands: &Operands<N>,
        _parameters: &Parameters,
    ) -> Vector<Real, N> {
        affine::<N>(value * results.value, operands)
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
