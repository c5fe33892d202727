//! The gradient of each operator: what the forward pass saves, and the formula of the backward
//! pass.
//!
//! Formulas are made of Burn's operations and of reductions of the same backend. They broadcast
//! over the reduced axes where the elements lie, so they copy no input into another order. They
//! compute in f32 at least, and round to the input's type last: f16 cannot hold every factor of a
//! gradient that it can hold.

pub(crate) mod application;
pub(crate) mod cross_entropy;
pub(crate) mod pair;
pub(crate) mod scan;
pub(crate) mod segments;
pub(crate) mod selection;

use burn_backend::{Backend, DType, TensorMetadata, tensor::FloatTensor, tensor::IntTensor};
use burn_tensor::{IndexingUpdateOp, Shape, kind::Kind};
use reduce_kernels::by_name::OperatorName;

use crate::{
    axes::inverse,
    backend::{self, ReduceBackend},
    error::ReduceBurnError,
    operand::{Operand, wide},
    reduction::Reduction,
    tensor::{AnyTensor, floats},
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
/// input is a second handle to its memory, not a copy. A saved result is of f32 at least.
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
        backend::reduce::<B>(AnyTensor::Float(x.clone()), &reduction.with(operator))
    };
    // The float results in the type in which they are saved.
    let run_wide = |operator: OperatorName, x: &FloatTensor<B>| {
        let reduction = reduction.with(operator).with_value_type(wide(x.dtype()));
        backend::reduce::<B>(AnyTensor::Float(x.clone()), &reduction)
    };
    let rounded = |saved: &FloatTensor<B>| {
        let (_, value) = reduction.outputs()[0];
        Operand::<B>(saved.clone()).cast(value).0
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
            let [mean, var] = floats(run_wide(MeanVar, &x)?);
            let rounded_mean = rounded(&mean);
            let var = with(rounded(&var), Formula::Variance { x, mean });
            if operator == Var {
                return Ok(vec![var]);
            }
            let weight = 1.0 / reduction.len() as f64;
            return Ok(vec![with(rounded_mean, Formula::Uniform { weight }), var]);
        }
        NormL2 | NormP | LogSumExp | Std | NanStd => {
            let saved = float(run_wide(operator, &x)?);
            let result = rounded(&saved);
            let formula = match operator {
                NormL2 => Formula::NormL2 { x, norm: saved },
                NormP => Formula::NormP { x, norm: saved, p: reduction.options().p },
                LogSumExp => Formula::LogSumExp { x, result: saved },
                Std => Formula::Deviation { x, std: saved },
                _ => Formula::NanDeviation { x, std: saved },
            };
            return Ok(vec![with(result, formula)]);
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
        NormInf => Formula::NormInf { x },
        NanSum => Formula::NanSum { x },
        NanMean => Formula::NanMean { x },
        NanVar => Formula::NanVariance { x },
        other => panic!("`{other}` has no gradient"),
    };
    Ok(vec![with(result, formula)])
}

fn float<B: Backend>(results: Vec<AnyTensor<B>>) -> FloatTensor<B> {
    let [result] = floats(results);
    result
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
        let (_, dtype) = reduction.input();
        if shape.num_elements() == 0 {
            return Operand::<B>::zeros(shape, dtype, &result.device()).0;
        }
        let over = Over { reduction, dtype };
        let result = over.kept(result).wide();
        over.gradient(formula, result).cast(dtype).0
    }
}

/// The geometry of a backward pass.
struct Over {
    reduction: Reduction,
    /// The type of the input and of its gradient.
    dtype: DType,
}

impl Over {
    /// The gradient of the input in its type or in a wider one, from that of the result in the
    /// wider one.
    fn gradient<B: ReduceBackend>(&self, formula: Formula<B>, gradient: Operand<B>) -> Operand<B> {
        let narrow = |factor: Operand<B>| factor.cast(self.dtype);
        let divisor = self.reduction.divisor();
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
                let product = self.reduced(OperatorName::Prod, x.clone());
                let result =
                    ((product * gradient) / x.wide()).fill(others_zero.differs_from(0.0), 0.0);
                match ignored {
                    Some(mask) => result.fill(mask, 0.0),
                    None => result,
                }
            }
            Formula::Sign { x } => Operand::<B>(x).sign() * narrow(gradient),
            Formula::Square { x } => Operand::<B>(x).wide() * (gradient * 2.0),
            Formula::NormL2 { x, norm } => {
                let norm = self.kept::<B>(norm);
                let is_zero = norm.equals(0.0);
                Operand::<B>(x).wide() * (gradient / norm).fill(is_zero, 0.0)
            }
            Formula::NormInf { x } => {
                let x = Operand::<B>(x);
                let magnitudes = AnyTensor::<B>::Float(x.clone().abs().0);
                let index = self.reduced_to_int(OperatorName::ArgMax, magnitudes);
                x.sign() * self.scattered(index, narrow(gradient))
            }
            Formula::NormP { x, norm, p } => {
                let x = Operand::<B>(x).wide();
                let norm = self.kept::<B>(norm);
                let is_zero = norm.equals(0.0);
                // Where x is 0, a power below 0 is infinite.
                let x_is_zero = x.equals(0.0);
                let share = (x.clone().abs() / norm.fill(is_zero, 1.0)).powf(p - 1.0);
                (share.fill(x_is_zero, 0.0) * x.sign()) * gradient
            }
            Formula::LogSumExp { x, result } => {
                // Of elements that are all -inf, none has a share.
                let result = self.kept::<B>(result);
                let nothing = result.equals(f64::NEG_INFINITY);
                (Operand::<B>(x).wide() - result.fill(nothing, 0.0)).exp() * gradient
            }
            Formula::Variance { x, mean } => {
                let factor = gradient * (2.0 / divisor);
                (Operand::<B>(x).wide() - self.kept(mean)) * factor
            }
            Formula::Deviation { x, std } => {
                let x = Operand::<B>(x);
                let mean = self.reduced(OperatorName::Mean, x.clone());
                let std = self.kept::<B>(std);
                let is_zero = std.equals(0.0);
                let factor = (gradient / (std * divisor)).fill(is_zero, 0.0);
                (x.wide() - mean) * factor
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
                let divisor = self.divisor_without_nan::<B>(ignored.clone());
                let mean = self.reduced(OperatorName::NanMean, x.clone());
                let factor = (gradient * 2.0) / divisor;
                ((x.wide() - mean) * factor).fill(ignored, 0.0)
            }
            Formula::NanDeviation { x, std } => {
                let x = Operand::<B>(x);
                let ignored = x.is_nan();
                let divisor = self.divisor_without_nan::<B>(ignored.clone());
                let mean = self.reduced(OperatorName::NanMean, x.clone());
                let std = self.kept::<B>(std);
                let is_zero = std.equals(0.0);
                let factor = (gradient / (std * divisor)).fill(is_zero, 0.0);
                ((x.wide() - mean) * factor).fill(ignored, 0.0)
            }
        }
    }

    /// A result with the reduced axes as axes of size 1.
    fn kept<B: Backend>(&self, result: FloatTensor<B>) -> Operand<B> {
        Operand::<B>(result).reshape(self.reduction.kept_shape())
    }

    /// A float result of an operator over the same axes, which it keeps with size 1, in f32 at
    /// least.
    fn reduced<B: ReduceBackend>(&self, operator: OperatorName, x: Operand<B>) -> Operand<B> {
        let dtype = x.0.dtype();
        let reduction = self.kept_of(operator, Kind::Float, dtype).with_value_type(wide(dtype));
        Operand(float(run::<B>(AnyTensor::Float(x.0), &reduction)))
    }

    /// A position or a count over the same axes.
    fn reduced_to_int<B: ReduceBackend>(
        &self,
        operator: OperatorName,
        x: AnyTensor<B>,
    ) -> IntTensor<B> {
        let reduction = self.kept_of(operator, x.kind(), x.dtype());
        int(run(x, &reduction))
    }

    /// Another operator over the same axes, which it keeps with size 1, of a tensor of the same
    /// shape.
    fn kept_of(&self, operator: OperatorName, kind: Kind, dtype: DType) -> Reduction {
        self.reduction.keeping_dims().with(operator).of(kind, dtype)
    }

    /// The number of elements over the same axes where `mask` is true, in f32 at least.
    fn count<B: ReduceBackend>(&self, mask: B::BoolTensorPrimitive) -> Operand<B> {
        let count = self.reduced_to_int(OperatorName::CountNonzero, AnyTensor::<B>::Bool(mask));
        Operand(B::int_into_float(count, wide(self.dtype).into()))
    }

    /// What a variance of the elements outside `ignored` is divided by: never less than 0.
    fn divisor_without_nan<B: ReduceBackend>(&self, ignored: B::BoolTensorPrimitive) -> Operand<B> {
        let count: Operand<B> = self.count(B::bool_not(ignored));
        (count - self.reduction.options().correction).at_least(0.0)
    }

    /// 1 where `mask` is true, 0 elsewhere.
    fn truth<B: Backend>(&self, mask: B::BoolTensorPrimitive) -> Operand<B> {
        Operand(B::bool_into_float(mask, wide(self.dtype).into()))
    }

    /// Zeros of the input's shape, with `values` at the positions in `index`.
    fn scattered<B: Backend>(&self, index: IntTensor<B>, values: Operand<B>) -> Operand<B> {
        let index = B::int_reshape(index, self.reduction.kept_shape());
        scattered(&self.reduction, index, values)
    }
}

/// Zeros of the shape of a reduction's input, plus `values` at the positions in `index`, which
/// count over the reduced axes. Both have the same shape, which along the other axes is that of the
/// input.
fn scattered<B: Backend>(
    reduction: &Reduction,
    index: IntTensor<B>,
    values: Operand<B>,
) -> Operand<B> {
    let shape = reduction.input_shape();
    let added = |axis, shape, index, values: Operand<B>| {
        let zeros = values.zeros_like(shape);
        B::float_scatter(axis, zeros.0, index, values.0, IndexingUpdateOp::Add)
    };
    if let [axis] = *reduction.axes() {
        return Operand(added(axis, shape.clone(), index, values));
    }
    // One row for each result, and then the axes in their order.
    let (outputs, len) = (reduction.outputs_len(), reduction.len());
    let rows = Shape::from([outputs, values.0.shape().num_elements() / outputs]);
    let kept_first = reduction.kept_first();
    let index = B::int_reshape(B::int_permute(index, &kept_first), rows.clone());
    let values = Operand::<B>(B::float_permute(values.0, &kept_first)).reshape(rows);
    let rows = added(1, Shape::from([outputs, len]), index, values);
    let extents: Vec<usize> = kept_first.iter().map(|&axis| shape[axis]).collect();
    let unordered = B::float_reshape(rows, Shape::from(extents));
    Operand(B::float_permute(unordered, &inverse(&kept_first)))
}

/// The results of a reduction in a backward pass.
fn run<B: ReduceBackend>(x: AnyTensor<B>, reduction: &Reduction) -> Vec<AnyTensor<B>> {
    backend::reduce::<B>(x, reduction)
        .unwrap_or_else(|error| panic!("gradient of `{}`: {error}", reduction.operator()))
}
