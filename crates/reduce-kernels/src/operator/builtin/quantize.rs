//! Scales of narrow numbers that stand for wider ones, and their application.

use cubecl::prelude::*;

use super::{
    MinMax, NormInf,
    applied::positive,
    norm::{hypotenuse, larger_magnitude},
};
use crate::operator::{
    A, AccumulatorOf, Application, Apply, B, Blocks, Definition, In, InvalidParameter, One,
    Operands, Operator, Out, Out2, Pair, ParameterRule, Parameters, Position, Real, Reduced,
    ResultsOf, Two, TypeRule, Value,
    derived::{block_of_pushes, derived},
    element_wise::{constant, is_nan, or_nan},
    finite, not_negative, rules,
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

/// The factor of RMS normalisation, and the scale by which the largest magnitude of the normalised
/// elements becomes `most`. Squares are not scaled, so they may overflow. Both are NaN if an
/// element is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsQuantizationScale {
    /// Added to the mean square, 0 or more.
    pub eps: f64,
    /// What the largest magnitude becomes, above 0.
    pub most: f64,
}

/// [`RmsQuantizationScale`] of elements that are normalised and then multiplied by those of the
/// second input, their weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightedRmsQuantizationScale {
    /// Added to the mean square, 0 or more.
    pub eps: f64,
    /// What the largest magnitude becomes, above 0.
    pub most: f64,
}

/// The element times the first result and the operand, over the second result, which is a scale.
#[derive(Clone, Copy, Debug, Default)]
pub struct NormalizedInScale;

/// The sum of the element and the operand, and that sum as [`NormalizedInScale`] makes it.
#[derive(Clone, Copy, Debug, Default)]
pub struct AddNormalizedInScale;

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
        // NVIDIA's Vulkan driver drops a NaN in the selections above as a minimum does.
        let is_nan = is_nan::<A, N>(first);
        let scale = select_many(is_nan, first, scale);
        let point = select_many(is_nan, first, point);
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

/// The rule for the parameters of RMS normalisation before quantisation: the root of `eps`, and
/// `most`.
fn rms_parameters(eps: f64, most: f64) -> Result<Vec<f64>, InvalidParameter> {
    let root = not_negative("eps", eps)?.sqrt();
    Ok([vec![root], positive("most", most)?].concat())
}

/// The factor of the elements and the scale, from the sum of the squares and the largest magnitude.
#[cube]
fn factor_and_scale<N: Size>(
    accumulator: Pair<A, B, N>,
    count: usize,
    parameters: &Parameters,
) -> Pair<Out, Out2, N> {
    let root = (accumulator.first / Vector::cast_from(count)).sqrt();
    let least = Vector::new(parameters.get::<A>(0usize));
    let factor = Vector::<A, N>::from_int(1) / hypotenuse::<N>(root, least);
    let most = Vector::<A, N>::new(parameters.get::<A>(1usize));
    let scale = Vector::<A, N>::cast_from(accumulator.second) * factor / most;
    // Drivers drop a NaN in a product, or a root.
    let is_nan = is_nan::<A, N>(accumulator.first);
    let factor = select_many(is_nan, accumulator.first, factor);
    let has_nan = or_nan::<B, N>(is_nan, accumulator.second);
    let scale = select_many(has_nan, Vector::cast_from(accumulator.second), scale);
    let scale = select_many(is_nan, accumulator.first, scale);
    Pair::new(Vector::cast_from(factor), Vector::cast_from(scale))
}

#[cube]
fn squares_and_most<N: Size>(
    accumulator: Pair<A, B, N>,
    value: Vector<In, N>,
    weighted: Vector<In, N>,
) -> Pair<A, B, N> {
    let value = Vector::<A, N>::cast_from(value);
    let magnitude = Vector::cast_from(weighted.abs());
    let most = larger_magnitude::<B, N>(accumulator.second, magnitude);
    Pair::new(accumulator.first + value * value, most)
}

/// An operator that sums squares and keeps the largest magnitude.
macro_rules! rms_scale {
    ($operator:ident, $name:literal, $inputs:ident, $blocks:expr, $elements:ident: $type:ty,
     $value:expr, $weighted:expr) => {
        #[cube]
        impl Operator for $operator {
            type Inputs = $inputs;
            type Fields = Two;
            type Results = Two;

            const NAME: &'static str = $name;
            const DEFINED_ON_EMPTY: bool = true;
            const TYPES: TypeRule = rules::floating;
            const PAIRWISE: bool = true;
            const BLOCKS: Option<Blocks<Self>> = $blocks;
            const PARAMETERS: ParameterRule<Self> =
                |operator| rms_parameters(operator.eps, operator.most);
            const DEFINITION: &'static Definition<Self> = crate::defined!($operator);

            fn identity<N: Size>() -> Pair<A, B, N> {
                Pair::new(Vector::from_int(0), Vector::from_int(0))
            }

            fn push<N: Size>(
                accumulator: Pair<A, B, N>,
                $elements: $type,
                _position: Position,
                _parameters: &Parameters,
            ) -> Pair<A, B, N> {
                squares_and_most::<N>(accumulator, $value, $weighted)
            }

            fn merge<N: Size>(
                left: Pair<A, B, N>,
                right: Pair<A, B, N>,
                _parameters: &Parameters,
            ) -> Pair<A, B, N> {
                let most = larger_magnitude::<B, N>(left.second, right.second);
                Pair::new(left.first + right.first, most)
            }

            fn finish<N: Size>(
                accumulator: Pair<A, B, N>,
                count: usize,
                parameters: &Parameters,
            ) -> Pair<Out, Out2, N> {
                factor_and_scale::<N>(accumulator, count, parameters)
            }
        }
    };
}

rms_scale!(RmsQuantizationScale, "rms_quantization_scale", One, Some(Blocks::of()),
    value: Vector<In, N>, value, value);
rms_scale!(WeightedRmsQuantizationScale, "weighted_rms_quantization_scale", Two, None,
    pair: Pair<In, In, N>, pair.first, pair.first * pair.second);

block_of_pushes!(RmsQuantizationScale: Two);

#[cube]
impl Apply for NormalizedInScale {
    type Results = Two;
    type Outputs = One;

    const NAME: &'static str = "normalized_in_scale";
    const OPERANDS: usize = 1;
    const DEFINITION: &'static Application<Self> = crate::applied!(NormalizedInScale);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<Two, N>,
        operands: &Operands<N>,
        _parameters: &Parameters,
    ) -> Reduced<One, N> {
        let factor = results.first * reciprocal::<N>(results.second);
        let weighted = if operands.has_first() { value * operands.first() } else { value };
        Value::new(weighted * factor)
    }
}

#[cube]
impl Apply for AddNormalizedInScale {
    type Results = Two;
    type Outputs = Two;

    const NAME: &'static str = "add_normalized_in_scale";
    const OPERANDS: usize = 1;
    const DEFINITION: &'static Application<Self> = crate::applied!(AddNormalizedInScale);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        results: Reduced<Two, N>,
        operands: &Operands<N>,
        _parameters: &Parameters,
    ) -> Reduced<Two, N> {
        let sum = value + operands.first();
        Pair::new(sum, sum * (results.first * reciprocal::<N>(results.second)))
    }
}
