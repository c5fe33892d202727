//! The gradient of each operator: what the forward pass saves, and the formula of the backward
//! pass.
//!
//! Formulas are made of Burn's operations and of reductions of the same backend. They broadcast
//! over the reduced axes where the elements lie, so they copy no input into another order.

use burn_backend::{Backend, DType, TensorMetadata, tensor::FloatTensor, tensor::IntTensor};
use burn_tensor::Shape;
use reduce_kernels::OperatorName;

use crate::{
    AnyTensor, Kind, ReduceBackend, ReduceBurnError, Reduction, axes::inverse, operand::Operand,
};

/// A result, and how its gradient reaches the input. Results that are no floating point numbers
/// have no gradient.
pub(crate) type Differentiable<B> = (AnyTensor<B>, Option<Gradient<B>>);

/// How the gradient of one result reaches the input.
#[derive(Clone, Debug)]
pub(crate) struct Gradient<B: Backend> {
    reduction: Reduction,
    formula: Formula<B>,
}

/// The formula of a gradient, with what it needs from the forward pass. `x` is the input; a saved
/// input is a second handle to its memory, not a copy.
#[derive(Clone, Debug)]
enum Formula<B: Backend> {
    /// Every element counts with this weight: `sum`, `mean`.
    Uniform { weight: f64 },
    /// One element is the result: extrema.
    Selected { index: IntTensor<B> },
    /// `prod` and `nanprod`.
    Product { x: FloatTensor<B>, ignores_nan: bool },
    /// `sum_abs` and `norm_l1`.
    Sign { x: FloatTensor<B> },
    /// `sum_squares`.
    Square { x: FloatTensor<B> },
    /// `norm_l2`.
    NormL2 { x: FloatTensor<B>, norm: FloatTensor<B> },
    /// `norm_inf`.
    NormInf { x: FloatTensor<B> },
    /// `norm_p`.
    NormP { x: FloatTensor<B>, norm: FloatTensor<B>, p: f64 },
    /// `logsumexp`.
    LogSumExp { x: FloatTensor<B>, result: FloatTensor<B> },
    /// `var`.
    Variance { x: FloatTensor<B>, mean: FloatTensor<B> },
    /// `std`.
    Deviation { x: FloatTensor<B>, std: FloatTensor<B> },
    /// `nansum`.
    NanSum { x: FloatTensor<B> },
    /// `nanmean`.
    NanMean { x: FloatTensor<B> },
    /// `nanvar`.
    NanVariance { x: FloatTensor<B> },
    /// `nanstd`.
    NanDeviation { x: FloatTensor<B>, std: FloatTensor<B> },
}

/// The results of a reduction whose input is tracked, with their gradients.
pub(crate) fn forward<B: ReduceBackend>(
    x: FloatTensor<B>,
    reduction: &Reduction,
) -> Result<Vec<Differentiable<B>>, ReduceBurnError> {
    use OperatorName::*;

    let run = |operator: OperatorName, x: &FloatTensor<B>| {
        B::reduce(AnyTensor::Float(x.clone()), &reduction.with(operator))
    };
    let with = |result: FloatTensor<B>, formula: Formula<B>| {
        let gradient = Gradient { reduction: reduction.clone(), formula };
        (AnyTensor::Float(result), Some(gradient))
    };
    // The extremum that `operator` gives with its position.
    let selected = |operator, x: &FloatTensor<B>| {
        let (value, index) = float_and_int(run(operator, x)?);
        let formula = Formula::Selected { index: index.clone() };
        Ok::<_, ReduceBurnError>((with(value, formula), index))
    };
    let extremum_without_nan = |position, x: &FloatTensor<B>| {
        let value = float(run(reduction.operator(), x)?);
        let index = int(run(position, x)?);
        Ok::<_, ReduceBurnError>(vec![with(value, Formula::Selected { index })])
    };

    let operator = reduction.operator();
    match operator {
        Min => return Ok(vec![selected(MinWithIndex, &x)?.0]),
        Max => return Ok(vec![selected(MaxWithIndex, &x)?.0]),
        MinMax => return Ok(vec![selected(MinWithIndex, &x)?.0, selected(MaxWithIndex, &x)?.0]),
        MinWithIndex | MaxWithIndex => {
            let (value, index) = selected(operator, &x)?;
            return Ok(vec![value, (AnyTensor::Int(index), None)]);
        }
        NanMin => return extremum_without_nan(NanArgMin, &x),
        NanMax => return extremum_without_nan(NanArgMax, &x),
        Var | MeanVar => {
            let [mean, var] = floats(run(MeanVar, &x)?);
            let var = with(var, Formula::Variance { x, mean: mean.clone() });
            if operator == Var {
                return Ok(vec![var]);
            }
            let weight = 1.0 / reduction.len() as f64;
            return Ok(vec![with(mean, Formula::Uniform { weight }), var]);
        }
        _ => {}
    }
    let results = run(operator, &x)?;
    if results.iter().all(|result| result.kind() != Kind::Float) {
        return Ok(results.into_iter().map(|result| (result, None)).collect());
    }
    let result = float(results);
    let formula = match operator {
        Sum => Formula::Uniform { weight: 1.0 },
        Mean => Formula::Uniform { weight: 1.0 / reduction.len() as f64 },
        Prod => Formula::Product { x, ignores_nan: false },
        NanProd => Formula::Product { x, ignores_nan: true },
        SumAbs | NormL1 => Formula::Sign { x },
        SumSquares => Formula::Square { x },
        NormL2 => Formula::NormL2 { x, norm: result.clone() },
        NormInf => Formula::NormInf { x },
        NormP => Formula::NormP { x, norm: result.clone(), p: reduction.options().p },
        LogSumExp => Formula::LogSumExp { x, result: result.clone() },
        Std => Formula::Deviation { x, std: result.clone() },
        NanSum => Formula::NanSum { x },
        NanMean => Formula::NanMean { x },
        NanVar => Formula::NanVariance { x },
        NanStd => Formula::NanDeviation { x, std: result.clone() },
        other => panic!("`{other}` has no gradient"),
    };
    Ok(vec![with(result, formula)])
}

fn float<B: Backend>(results: Vec<AnyTensor<B>>) -> FloatTensor<B> {
    let [result] = floats(results);
    result
}

/// The float results, of which there are `N`.
pub(crate) fn floats<B: Backend, const N: usize>(
    results: Vec<AnyTensor<B>>,
) -> [FloatTensor<B>; N] {
    let results: Vec<_> = results
        .into_iter()
        .filter_map(|result| match result {
            AnyTensor::Float(result) => Some(result),
            _ => None,
        })
        .collect();
    results.try_into().expect("the operator has this many float results")
}

fn int<B: Backend>(results: Vec<AnyTensor<B>>) -> IntTensor<B> {
    let mut ints = results.into_iter().filter_map(|result| match result {
        AnyTensor::Int(result) => Some(result),
        _ => None,
    });
    ints.next().expect("the operator has an int result")
}

fn float_and_int<B: Backend>(results: Vec<AnyTensor<B>>) -> (FloatTensor<B>, IntTensor<B>) {
    (float(results.clone()), int(results))
}

impl<B: ReduceBackend> Gradient<B> {
    /// That of a sum.
    pub(crate) fn of_sum(reduction: Reduction) -> Self {
        Self { reduction, formula: Formula::Uniform { weight: 1.0 } }
    }

    /// The gradient of the input, from the gradient of the result.
    pub(crate) fn of(self, result: FloatTensor<B>) -> FloatTensor<B> {
        let Self { reduction, formula } = self;
        let shape = reduction.input_shape().clone();
        let dtype = result.dtype();
        let result = Operand::<B>(result);
        if shape.num_elements() == 0 {
            return result.zeros_like(shape).0;
        }
        let over = Over { reduction, dtype };
        // Factors of the result's shape are computed in f32 at least: f16 cannot hold 1/n for a
        // large n.
        let result = over.kept(result.0).wide();
        over.gradient(formula, result).0
    }
}

/// The geometry of a backward pass.
struct Over {
    reduction: Reduction,
    dtype: DType,
}

impl Over {
    fn gradient<B: ReduceBackend>(&self, formula: Formula<B>, gradient: Operand<B>) -> Operand<B> {
        let narrow = |factor: Operand<B>| factor.cast(self.dtype);
        let len = self.reduction.len() as f64;
        let correction = self.reduction.options().correction;
        match formula {
            Formula::Uniform { weight } => {
                narrow(gradient * weight).expand(self.reduction.input_shape().clone())
            }
            Formula::Selected { index } => self.scattered(index, narrow(gradient)),
            Formula::Product { x, ignores_nan } => {
                let x = Operand::<B>(x);
                let ignored = ignores_nan.then(|| x.is_nan());
                let x = match ignored.clone() {
                    Some(mask) => x.fill(mask, 1.0),
                    None => x,
                };
                // The product of all other elements: the product of all that are not 0, without
                // this one, unless another one is 0.
                let is_zero = x.equals(0.0);
                let zeros: Operand<B> = self.count(is_zero.clone());
                let others_zero = zeros - self.truth(is_zero.clone());
                let x = x.fill(is_zero, 1.0);
                let product = self.reduced(OperatorName::Prod, x.clone()).wide();
                let result =
                    (narrow(product * gradient) / x).fill(others_zero.differs_from(0.0), 0.0);
                match ignored {
                    Some(mask) => result.fill(mask, 0.0),
                    None => result,
                }
            }
            Formula::Sign { x } => Operand::<B>(x).sign() * narrow(gradient),
            Formula::Square { x } => Operand::<B>(x) * narrow(gradient * 2.0),
            Formula::NormL2 { x, norm } => {
                let norm = self.kept::<B>(norm).wide();
                let is_zero = norm.equals(0.0);
                Operand::<B>(x) * narrow((gradient / norm).fill(is_zero, 0.0))
            }
            Formula::NormInf { x } => {
                let x = Operand::<B>(x);
                let index = int(self.run(OperatorName::ArgMax, x.clone().abs()));
                x.sign() * self.scattered(index, narrow(gradient))
            }
            Formula::NormP { x, norm, p } => {
                let x = Operand::<B>(x);
                let norm = self.kept::<B>(norm);
                let is_zero = norm.equals(0.0);
                // Where x is 0, a power below 0 is infinite.
                let x_is_zero = x.equals(0.0);
                let share = (x.clone().abs() / norm.fill(is_zero, 1.0)).powf(p - 1.0);
                (share.fill(x_is_zero, 0.0) * x.sign()) * narrow(gradient)
            }
            Formula::LogSumExp { x, result } => {
                // Of elements that are all -inf, none has a share.
                let result = self.kept::<B>(result);
                let nothing = result.equals(f64::NEG_INFINITY);
                (Operand::<B>(x) - result.fill(nothing, 0.0)).exp() * narrow(gradient)
            }
            Formula::Variance { x, mean } => {
                let factor = narrow(gradient * (2.0 / (len - correction)));
                (Operand::<B>(x) - self.kept(mean)) * factor
            }
            Formula::Deviation { x, std } => {
                let x = Operand::<B>(x);
                let mean = self.reduced(OperatorName::Mean, x.clone());
                let std = self.kept::<B>(std).wide();
                let is_zero = std.equals(0.0);
                let factor = (gradient / (std * (len - correction))).fill(is_zero, 0.0);
                (x - mean) * narrow(factor)
            }
            Formula::NanSum { x } => {
                let ignored = Operand::<B>(x).is_nan();
                let shape = self.reduction.input_shape().clone();
                narrow(gradient).expand(shape).fill(ignored, 0.0)
            }
            Formula::NanMean { x } => {
                let ignored = Operand::<B>(x).is_nan();
                let count: Operand<B> = self.count(B::bool_not(ignored.clone()));
                let shape = self.reduction.input_shape().clone();
                narrow(gradient / count).expand(shape).fill(ignored, 0.0)
            }
            Formula::NanVariance { x } => {
                let x = Operand::<B>(x);
                let ignored = x.is_nan();
                let count: Operand<B> = self.count(B::bool_not(ignored.clone()));
                let mean = self.reduced(OperatorName::NanMean, x.clone());
                let factor = narrow((gradient * 2.0) / (count - correction));
                ((x - mean) * factor).fill(ignored, 0.0)
            }
            Formula::NanDeviation { x, std } => {
                let x = Operand::<B>(x);
                let ignored = x.is_nan();
                let count: Operand<B> = self.count(B::bool_not(ignored.clone()));
                let mean = self.reduced(OperatorName::NanMean, x.clone());
                let std = self.kept::<B>(std).wide();
                let is_zero = std.equals(0.0);
                let factor = (gradient / (std * (count - correction))).fill(is_zero, 0.0);
                ((x - mean) * narrow(factor)).fill(ignored, 0.0)
            }
        }
    }

    /// A result with the reduced axes as axes of size 1.
    fn kept<B: Backend>(&self, result: FloatTensor<B>) -> Operand<B> {
        Operand::<B>(result).reshape(self.reduction.kept_shape())
    }

    /// The results of an operator over the same axes, which it keeps with size 1.
    fn run<B: ReduceBackend>(&self, operator: OperatorName, x: Operand<B>) -> Vec<AnyTensor<B>> {
        self.run_on(operator, AnyTensor::Float(x.0))
    }

    fn run_on<B: ReduceBackend>(
        &self,
        operator: OperatorName,
        x: AnyTensor<B>,
    ) -> Vec<AnyTensor<B>> {
        let reduction = self.reduction.keeping_dims().with(operator).of(x.kind(), x.dtype());
        B::reduce(x, &reduction).unwrap_or_else(|error| panic!("gradient of `{operator}`: {error}"))
    }

    fn reduced<B: ReduceBackend>(&self, operator: OperatorName, x: Operand<B>) -> Operand<B> {
        Operand(float(self.run(operator, x)))
    }

    /// The number of elements over the same axes where `mask` is true.
    fn count<B: ReduceBackend>(&self, mask: B::BoolTensorPrimitive) -> Operand<B> {
        let count = int(self.run_on(OperatorName::CountNonzero, AnyTensor::<B>::Bool(mask)));
        Operand(B::int_into_float(count, self.count_dtype().into()))
    }

    /// 1 where `mask` is true, 0 elsewhere.
    fn truth<B: Backend>(&self, mask: B::BoolTensorPrimitive) -> Operand<B> {
        Operand(B::bool_into_float(mask, self.count_dtype().into()))
    }

    /// The type of counts: f16 holds no number above 65504.
    fn count_dtype(&self) -> DType {
        if self.dtype == DType::F64 { DType::F64 } else { DType::F32 }
    }

    /// Zeros of the input's shape, with `values` at the positions in `index`.
    fn scattered<B: Backend>(&self, index: IntTensor<B>, values: Operand<B>) -> Operand<B> {
        let shape = self.reduction.input_shape();
        if let [axis] = *self.reduction.axes() {
            let index = B::int_reshape(index, self.reduction.kept_shape());
            let zeros = values.zeros_like(shape.clone());
            return Operand(B::float_scatter_add(axis, zeros.0, index, values.0));
        }
        // A position counts over all reduced axes: one row for each result, and then the axes in
        // their order.
        let (outputs, len) = (self.reduction.outputs_len(), self.reduction.len());
        let column = Shape::from([outputs, 1]);
        let index = B::int_reshape(index, column.clone());
        let zeros = values.zeros_like(Shape::from([outputs, len]));
        let rows = B::float_scatter_add(1, zeros.0, index, values.reshape(column).0);
        let kept_first = [self.reduction.kept_axes(), self.reduction.axes().to_vec()].concat();
        let extents: Vec<usize> = kept_first.iter().map(|&axis| shape[axis]).collect();
        let unordered = B::float_reshape(rows, Shape::from(extents));
        Operand(B::float_permute(unordered, &inverse(&kept_first)))
    }
}
