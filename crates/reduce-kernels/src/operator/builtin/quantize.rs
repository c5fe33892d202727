//! Scales of integers that stand for floating point numbers, and their application.

use cubecl::prelude::*;

use super::{MinMax, NormInf, applied::positive};
use crate::operator::{
    A, AccumulatorOf, Application, Apply, InvalidParameter, One, Operands, Pair, Parameters, Real,
    Reduced, ResultsOf, Two, Value, derived::derived, element_wise::constant, finite, rules,
};

/// The largest magnitude over `most`: the number that an integer counts, if the largest magnitude
/// becomes `most`. NaN if an element is NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantizationScale {
    /// What the largest magnitude becomes, above 0.
    pub most: f64,
}

/// The scale and the zero point by which the elements, and 0, become integers from `least` to
/// `most`: the number that an integer counts, and the integer that 0 becomes. Both are NaN if an
/// element is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AffineQuantizationScale {
    /// The least integer.
    pub least: f64,
    /// The largest integer, above the least.
    pub most: f64,
}

/// The element over the result, which is a scale, and 0 if that is below the least normal number.
#[derive(Clone, Copy, Debug, Default)]
pub struct InScale;

/// The element over the first result, plus the second.
#[derive(Clone, Copy, Debug, Default)]
pub struct InAffineScale;

derived!(QuantizationScale: One -> One = NormInf, "quantization_scale", rules::floating,
with |scale| positive("most", scale.most),
finish scale);

#[cube]
impl QuantizationScale {
    fn scale<N: Size>(
        accumulator: AccumulatorOf<One, N>,
        _count: usize,
        parameters: &Parameters,
    ) -> ResultsOf<One, N> {
        let most = Vector::new(parameters.get::<A>(0usize));
        Value::new(Vector::cast_from(accumulator.value / most))
    }
}

derived!(AffineQuantizationScale: Two -> Two = MinMax, "affine_quantization_scale", rules::floating,
with |scale| {
    let (least, most) = (finite("least", scale.least)?, finite("most", scale.most)?);
    match most > least {
        true => Ok(vec![least, most]),
        false => {
            let expected = "above `least`";
            Err(InvalidParameter { name: "most", value: most, expected })
        }
    }
},
finish results);

#[cube]
impl AffineQuantizationScale {
    fn results<N: Size>(
        accumulator: AccumulatorOf<Two, N>,
        _count: usize,
        parameters: &Parameters,
    ) -> ResultsOf<Two, N> {
        let zero = Vector::<A, N>::from_int(0);
        let (first, second) = (accumulator.first, Vector::<A, N>::cast_from(accumulator.second));
        // Comparisons keep a NaN, which a minimum may drop.
        let low = select_many(first.greater_than(&zero), zero, first);
        let high = select_many(second.less_than(&zero), zero, second);
        let least = Vector::<A, N>::new(parameters.get::<A>(0usize));
        let most = Vector::<A, N>::new(parameters.get::<A>(1usize));
        // The difference of large elements may be infinite where that of their shares is not.
        let steps = most - least;
        let scale = high / steps - low / steps;
        let point = (least - low / scale).round();
        let point = select_many(point.greater_than(&most), most, point);
        let point = select_many(point.less_than(&least), least, point);
        let of_zeros = max(least, min(most, zero));
        let point = select_many(scale.equal(&zero), of_zeros, point);
        Pair::new(Vector::cast_from(scale), Vector::cast_from(point))
    }
}

#[cube]
impl Apply for InScale {
    type Results = One;
    type Outputs = One;

    const NAME: &'static str = "in_scale";
    const DEFINITION: &'static Application<Self> = crate::applied!(InScale);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<One, N>,
        _operands: &Operands<N>,
        _parameters: &Parameters,
    ) -> Reduced<One, N> {
        Value::new(value * reciprocal::<N>(results.value))
    }
}

#[cube]
impl Apply for InAffineScale {
    type Results = Two;
    type Outputs = One;

    const NAME: &'static str = "in_affine_scale";
    const DEFINITION: &'static Application<Self> = crate::applied!(InAffineScale);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<Two, N>,
        _operands: &Operands<N>,
        _parameters: &Parameters,
    ) -> Reduced<One, N> {
        Value::new(value * reciprocal::<N>(results.first) + results.second)
    }
}

/// One division for each slice, along, and not for each element. 0 where that would be infinite.
#[cube]
fn reciprocal<N: Size>(scale: Vector<Real, N>) -> Vector<Real, N> {
    let least = constant::<Real>(f32::MIN_POSITIVE, f64::MIN_POSITIVE);
    let is_small = scale.less_than(&Vector::new(least));
    select_many(is_small, Vector::from_int(0), Vector::from_int(1) / scale)
}
