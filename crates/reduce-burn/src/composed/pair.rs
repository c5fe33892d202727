//! Reductions of two inputs made of Burn's own operations and of reductions of one input, for
//! backends without kernels of reduce-kernels.

use burn_backend::{
    DType,
    tensor::{BoolTensor, IntTensor},
};
use burn_std::IntDType;
use reduce_kernels::by_name::{OperatorName, OperatorOptions, PairName};

use super::reduction::of_nothing;
use crate::{
    backend::{self, ReduceBackend, Results, reduced},
    error::ReduceBurnError,
    operand::Operand,
    pair::{PairReduction, value_of_nothing},
    reduction::Reduction,
    tensor::AnyTensor,
};

/// Runs a reduction of two inputs.
pub(crate) fn reduce<B: ReduceBackend>(
    first: AnyTensor<B>,
    second: AnyTensor<B>,
    pair: &PairReduction,
) -> Result<Results<B>, ReduceBurnError> {
    let [shape, _] = pair.input_shapes();
    if shape.num_elements() == 0 {
        let value = value_of_nothing(pair.function(), pair.options()).unwrap_or(0.0);
        return Ok(of_nothing(value, &pair.output_shape(), pair.outputs(), &first.device()));
    }
    let results = match (first, second) {
        (AnyTensor::Float(x), AnyTensor::Float(y)) => {
            let [x, y] = [x, y].map(|tensor| Operand::<B>(tensor).cast(pair.real()));
            of_floats(x, y.expand(shape.clone()), pair)?
        }
        (AnyTensor::Int(x), AnyTensor::Int(y)) => {
            let y = B::int_expand(y, shape.clone());
            of_equal(integers_equal::<B>(x, y, pair), pair)?
        }
        _ => unreachable!("`PairReduction::new` refuses other kinds"),
    };
    let shape = pair.output_shape();
    let typed = results.into_iter().zip(pair.outputs()).map(|(result, (_, dtype))| match result {
        AnyTensor::Float(x) => {
            AnyTensor::Float(Operand::<B>(x).reshape(shape.clone()).cast(dtype).0)
        }
        AnyTensor::Int(x) => AnyTensor::Int(B::int_reshape(x, shape.clone())),
        AnyTensor::Bool(x) => AnyTensor::Bool(B::bool_reshape(x, shape.clone())),
    });
    Ok(typed.collect())
}

/// The results for tensors of one shape and type, with the reduced axes as axes of size 1.
fn of_floats<B: ReduceBackend>(
    x: Operand<B>,
    y: Operand<B>,
    pair: &PairReduction,
) -> Result<Results<B>, ReduceBurnError> {
    use OperatorName::{Max, Mean, Sum, SumSquares};

    let of = |operator: OperatorName, x: &Operand<B>| -> Result<Operand<B>, ReduceBurnError> {
        let [result] = reduced(operator, x, pair.axes())?;
        Ok(result)
    };
    let options = pair.options();
    let result = match pair.function() {
        PairName::Dot => of(Sum, &(x * y))?,
        PairName::MeanSquaredError => {
            let difference = x - y;
            of(Mean, &(difference.clone() * difference))?
        }
        PairName::MeanAbsoluteError => of(Mean, &(x - y).abs())?,
        PairName::Huber => {
            // Beyond `delta`, one factor stays `delta`.
            let magnitude = (x - y).abs();
            let slope = magnitude.clone().at_most(options.delta);
            of(Mean, &(slope.clone() * (magnitude - slope * 0.5)))?
        }
        PairName::KlDivergence => {
            let is_zero = x.equals(0.0);
            of(Sum, &(x.clone() * (x.log() - y.log())).fill(is_zero, 0.0))?
        }
        PairName::CosineSimilarity => {
            let length = |x: &Operand<B>| -> Result<Operand<B>, ReduceBurnError> {
                Ok(of(SumSquares, x)?.sqrt().at_least(options.eps))
            };
            of(Sum, &(x.clone() * y.clone()))? / length(&x)? / length(&y)?
        }
        PairName::MaxDifference => of(Max, &(x - y).abs())?,
        PairName::WeightedMean => {
            let weights = of(Sum, &y)?;
            of(Sum, &(x * y))? / weights
        }
        PairName::WeightedMeanVar => {
            let weights = of(Sum, &y)?;
            let undefined = weights.equals(0.0);
            let mean = of(Sum, &(x.clone() * y.clone()))? / weights.clone();
            let distance = x - mean.clone();
            let variance = of(Sum, &(y * (distance.clone() * distance)))? / weights;
            let results = [mean, variance].map(|result| result.fill(undefined.clone(), f64::NAN));
            return Ok(results.map(|result| AnyTensor::Float(result.0)).into());
        }
        PairName::Covariance => {
            let products = (x.clone() - of(Mean, &x)?) * (y.clone() - of(Mean, &y)?);
            of(Sum, &products)? / pair.divisor()
        }
        PairName::SumAndDot => {
            let results = [of(Sum, &x)?, of(Sum, &(x * y))?];
            return Ok(results.map(|result| AnyTensor::Float(result.0)).into());
        }
        PairName::AllClose => return of_truths(OperatorName::All, close(x, y, pair), pair),
        PairName::CountEqual | PairName::Accuracy => {
            let dtype = x.bool_dtype();
            return of_equal(B::float_equal(x.0, y.0, dtype), pair);
        }
        other => panic!("this reduce-burn is older than `{other}` of reduce-kernels"),
    };
    Ok(vec![AnyTensor::Float(result.0)])
}

/// Where elements are close.
fn close<B: ReduceBackend>(x: Operand<B>, y: Operand<B>, pair: &PairReduction) -> BoolTensor<B> {
    let dtype = x.bool_dtype();
    let tolerance = y.clone().abs() * pair.options().relative + pair.options().absolute;
    // An infinite tolerance would take any difference.
    let finite = tolerance.differs_from(f64::INFINITY);
    let equal = B::float_equal(x.0.clone(), y.0.clone(), dtype);
    let near = B::float_lower_equal((x - y).abs().0, tolerance.0, dtype);
    B::bool_or(equal, B::bool_and(near, finite))
}

/// Where integers are equal. They are compared in a type that holds both.
fn integers_equal<B: ReduceBackend>(
    x: IntTensor<B>,
    y: IntTensor<B>,
    pair: &PairReduction,
) -> BoolTensor<B> {
    let [(_, own), (_, other)] = pair.inputs();
    let [x, y] = [x, y].map(|tensor| match own == other {
        true => tensor,
        false => B::int_cast(tensor, IntDType::I64),
    });
    B::int_equal(x, y, pair.settings.bool_dtype)
}

/// The count or the share of equal elements.
fn of_equal<B: ReduceBackend>(
    equal: BoolTensor<B>,
    pair: &PairReduction,
) -> Result<Results<B>, ReduceBurnError> {
    let mut counts = of_truths::<B>(OperatorName::CountNonzero, equal, pair)?;
    if pair.function() == PairName::CountEqual {
        return Ok(counts);
    }
    let Some(AnyTensor::Int(count)) = counts.pop() else { unreachable!("a count is an integer") };
    let count = Operand::<B>(B::int_into_float(count, DType::F32.into()));
    Ok(vec![AnyTensor::Float((count / pair.len() as f64).0)])
}

/// The results of an operator of truth values.
fn of_truths<B: ReduceBackend>(
    operator: OperatorName,
    truths: BoolTensor<B>,
    pair: &PairReduction,
) -> Result<Results<B>, ReduceBurnError> {
    let truths = AnyTensor::<B>::Bool(truths);
    let options = OperatorOptions::default();
    let reduction = Reduction::new(operator, options, &truths, &pair.axes().into(), true)?;
    backend::reduce::<B>(truths, &reduction)
}
