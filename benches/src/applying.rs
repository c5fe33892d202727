//! Applications in words: what is applied to which tensor, beside what.

use reduce_kernels::{
    ElementType, Input, Operator, ReduceError, TensorDescription,
    by_name::{AppliedName, AppliedOptions, UnknownFunction, with_applied},
    normalize::{AddLayerNorm, AddRmsNorm, AppliedReduction, LayerNorm, RmsNorm, SoftmaxGradient},
    operator::Apply,
    plans::RecordedCall,
    quantize::{AddRmsNormQuantize, Quantize, RmsNormQuantize},
};

use crate::{Case, CaseError, StatedCase};

/// A function, with the tensors that peers give it beside its input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    /// Without others.
    Plain(AppliedName),
    /// With a weight and a bias.
    LayerNorm,
    /// With a weight.
    RmsNorm,
    /// Of the sum with a residual, which is an output too, with a weight.
    AddRmsNorm,
    /// Of the sum with a residual, which is an output too, with a weight and a bias.
    AddLayerNorm,
    /// To a type of a byte, with a scale for each row.
    Quantize(ElementType),
    /// To fp8 after a normalisation with a weight.
    RmsNormQuantize,
    /// To fp8 after the normalisation of the sum with a residual, which is an output too.
    AddRmsNormQuantize,
    /// The gradient of a softmax, from that of its output and the output.
    SoftmaxGradient,
}

/// What a function reads beside its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// A tensor of the input's shape.
    Tensor,
    /// A tensor with an element for each index of the last axis.
    Weight,
}

/// A function and what it is applied to.
#[derive(Clone, Debug)]
pub struct Applying {
    /// The case as it is printed.
    pub words: String,
    /// The function.
    pub function: Function,
    /// The type, the shape, the strides and the axes.
    pub place: Case,
}

/// Words that state no application.
#[derive(Debug, thiserror::Error)]
pub enum ApplyingError {
    /// The type, the shape or the axes are not stated.
    #[error(transparent)]
    Case(#[from] CaseError),
    /// The first word names no function.
    #[error(transparent)]
    Function(#[from] UnknownFunction),
}

/// What is done with an application, whatever its operator and its function.
pub trait WithApplication<'a, T: Input> {
    /// What comes of it.
    type Output;

    /// Does it.
    fn with<O: Operator, F: Apply<Results = O::Results>>(
        self,
        applied: AppliedReduction<'a, O, F, T>,
    ) -> Self::Output;
}

/// Quantisation to fp8.
const TO_F8: Quantize = Quantize::to(ElementType::F8E4M3);

impl Function {
    /// The functions that differ in more than in the weights that they take.
    pub fn all() -> impl Iterator<Item = Self> {
        let plain = AppliedName::ALL.into_iter().map(Self::Plain);
        plain.chain([
            Self::AddRmsNorm,
            Self::AddLayerNorm,
            Self::RmsNormQuantize,
            Self::AddRmsNormQuantize,
            Self::SoftmaxGradient,
        ])
    }

    /// The function of a name, in the words of the peers' programs.
    ///
    /// # Errors
    ///
    /// There is none of this name.
    pub fn of(name: &str) -> Result<Self, UnknownFunction> {
        Ok(match name {
            // Batch normalisation in training is layer normalisation over other axes.
            "batch_norm" => Self::Plain(AppliedName::LayerNorm),
            "layer_norm" => Self::LayerNorm,
            "rms_norm" => Self::RmsNorm,
            "add_rms_norm" => Self::AddRmsNorm,
            "add_layer_norm" => Self::AddLayerNorm,
            "quantize_fp8_rows" => Self::Quantize(ElementType::F8E4M3),
            "quantize_int8_rows" => Self::Quantize(ElementType::I8),
            "rms_norm_fp8_rows" => Self::RmsNormQuantize,
            "add_rms_norm_fp8_rows" => Self::AddRmsNormQuantize,
            "softmax_gradient" => Self::SoftmaxGradient,
            name => Self::Plain(name.parse()?),
        })
    }

    /// Bytes of the tensors of the input's shape that are read and written.
    #[must_use]
    pub fn bytes(self, place: &Case) -> u64 {
        let bytes = place.input_bytes();
        let quantized = place.elements() as u64;
        match self {
            Self::Plain(_) | Self::LayerNorm | Self::RmsNorm => 2 * bytes,
            Self::AddRmsNorm | Self::AddLayerNorm => 4 * bytes,
            Self::SoftmaxGradient => 3 * bytes,
            Self::Quantize(_) | Self::RmsNormQuantize => bytes + quantized,
            Self::AddRmsNormQuantize => 3 * bytes + quantized,
        }
    }

    /// The second input of the reduction.
    #[must_use]
    pub fn second(self) -> Beside {
        match self {
            Self::Plain(_) | Self::LayerNorm | Self::RmsNorm | Self::Quantize(_) => Beside::Nothing,
            Self::RmsNormQuantize => Beside::Weight,
            Self::AddRmsNorm
            | Self::AddLayerNorm
            | Self::AddRmsNormQuantize
            | Self::SoftmaxGradient => Beside::Tensor,
        }
    }

    /// Weights and biases of the last axis that are operands.
    #[must_use]
    pub fn weights(self) -> usize {
        match self {
            Self::LayerNorm | Self::AddLayerNorm => 2,
            Self::RmsNorm | Self::AddRmsNorm => 1,
            _ => 0,
        }
    }

    /// Does something with the application without operands. `second` is read by functions of two
    /// inputs alone.
    pub fn visit<'a, T: Input, W: WithApplication<'a, T>>(
        self,
        input: &'a T,
        second: &'a T,
        axes: impl Into<reduce_kernels::Axes>,
        what: W,
    ) -> W::Output {
        let (axes, options) = (axes.into(), AppliedOptions::default());
        let AppliedOptions { eps, .. } = options;
        match self {
            Self::Plain(name) => {
                with_applied!(name, options, input, axes, applied => what.with(applied))
            }
            Self::LayerNorm => what.with(LayerNorm { eps }.of(input, axes)),
            Self::RmsNorm => what.with(RmsNorm { eps }.of(input, axes)),
            Self::AddRmsNorm => what.with(AddRmsNorm { eps }.of(input, second, axes)),
            Self::AddLayerNorm => what.with(AddLayerNorm { eps }.of(input, second, axes)),
            Self::Quantize(element) => what.with(Quantize::to(element).of(input, axes)),
            Self::RmsNormQuantize => {
                let norm = RmsNormQuantize { eps, quantize: TO_F8 };
                what.with(norm.of_weighted(input, second, axes))
            }
            Self::AddRmsNormQuantize => {
                let norm = AddRmsNormQuantize { eps, quantize: TO_F8 };
                what.with(norm.of(input, second, axes))
            }
            Self::SoftmaxGradient => what.with(SoftmaxGradient.of(input, second, axes)),
        }
    }
}

impl Applying {
    /// The application that a line states.
    ///
    /// # Errors
    ///
    /// Words that state none.
    pub fn parse(stated: &StatedCase) -> Result<Self, ApplyingError> {
        let function = Function::of(&stated.name)?;
        let place = format!("sum {}", stated.place).parse()?;
        Ok(Self { words: stated.words(), function, place })
    }

    /// Indices of the last axis.
    #[must_use]
    pub fn last(&self) -> usize {
        self.place.stored.last().copied().unwrap_or(1)
    }

    /// Does something with the application to a tensor. The second input is `tensor` or `weight`,
    /// and the other operands are `weight`.
    pub fn visit<'a, T: Input, W: WithApplication<'a, T>>(
        &self,
        input: &'a T,
        tensor: &'a T,
        weight: &'a T,
        what: W,
    ) -> W::Output {
        let second = match self.function.second() {
            Beside::Weight => weight,
            Beside::Tensor | Beside::Nothing => tensor,
        };
        let (count, axis) = (self.function.weights(), self.place.stored.len().saturating_sub(1));
        let weighted = Weighted { what, weight, count, axis };
        self.function.visit(input, second, self.place.axes(), weighted)
    }

    /// The application as data.
    ///
    /// # Errors
    ///
    /// Axes that the shape does not have.
    pub fn record(&self) -> Result<RecordedCall, ReduceError> {
        struct Record;

        impl<'a, T: Input> WithApplication<'a, T> for Record {
            type Output = Result<RecordedCall, ReduceError>;

            fn with<O: Operator, F: Apply<Results = O::Results>>(
                self,
                applied: AppliedReduction<'a, O, F, T>,
            ) -> Self::Output {
                applied.record()
            }
        }

        let element = self.place.element;
        let input = TensorDescription::strided(element, self.place.shape(), self.place.strides());
        let weight = TensorDescription::row_major(element, [self.last()]);
        self.visit(&input, &input, &weight, Record)
    }
}

/// Adds weights, and does something else then.
struct Weighted<'a, T, W> {
    what: W,
    weight: &'a T,
    count: usize,
    axis: usize,
}

impl<'a, T: Input, W: WithApplication<'a, T>> WithApplication<'a, T> for Weighted<'a, T, W> {
    type Output = W::Output;

    fn with<O: Operator, F: Apply<Results = O::Results>>(
        self,
        mut applied: AppliedReduction<'a, O, F, T>,
    ) -> W::Output {
        for _ in 0..self.count {
            applied = applied.operand(self.weight, self.axis);
        }
        self.what.with(applied)
    }
}
