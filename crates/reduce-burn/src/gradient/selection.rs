//! The gradients of selections: what the forward pass saves, and the formulas of the backward pass.
//!
//! The gradient of a selected value goes to its element. Those of probabilities are computed in f32
//! at least, and rounded last: they are differences of numbers that may be nearly equal.

use burn_backend::{
    Backend, TensorMetadata,
    tensor::{FloatTensor, IntTensor},
};
use burn_tensor::IndexingUpdateOp;
use reduce_kernels::{by_name::OperatorName, top_k::Over};

use crate::{
    application::AppliedFunction,
    backend::{ReduceBackend, applied, reduced, select},
    error::ReduceBurnError,
    operand::{Operand, wide},
    selection::{Selection, SelectionOutput},
};

/// How the gradient of selected values reaches the input.
#[derive(Clone, Debug)]
pub(crate) struct SelectionGradient<B: Backend> {
    selection: Selection,
    positions: IntTensor<B>,
    formula: Formula<B>,
}

/// The formula of a gradient, with what it needs from the forward pass. Saved probabilities are of
/// f32 at least.
#[derive(Clone, Debug)]
enum Formula<B: Backend> {
    /// The values are elements.
    Elements,
    /// The values are probabilities over the selected elements.
    OfSelected { probabilities: FloatTensor<B> },
    /// The values are probabilities over the slice of `x`, which is a second handle to the input.
    OfSlice { probabilities: FloatTensor<B>, x: FloatTensor<B> },
}

/// The values of a selection whose input is tracked, with their gradient.
pub(crate) fn forward<B: ReduceBackend>(
    x: FloatTensor<B>,
    selection: &Selection,
) -> Result<(FloatTensor<B>, SelectionGradient<B>), ReduceBurnError> {
    let (values, positions, formula) = match selection.output() {
        SelectionOutput::Elements => {
            let (values, positions) = select::<B>(x, selection.clone())?;
            (values, positions, Formula::Elements)
        }
        SelectionOutput::Probabilities(over) => {
            let saved = selection.with_value_type(wide(selection.value_dtype()));
            let (probabilities, positions) = select::<B>(x.clone(), saved)?;
            let values = Operand::<B>(probabilities.clone()).cast(selection.value_dtype()).0;
            let formula = match over {
                Over::Selected => Formula::OfSelected { probabilities },
                Over::Slice => Formula::OfSlice { probabilities, x },
            };
            (values, positions, formula)
        }
        SelectionOutput::Masked { .. } => {
            unreachable!("masks of tracked tensors are made of operations")
        }
    };
    Ok((values, SelectionGradient { selection: selection.clone(), positions, formula }))
}

impl<B: ReduceBackend> SelectionGradient<B> {
    /// The positions of the values.
    pub(crate) fn positions(&self) -> IntTensor<B> {
        self.positions.clone()
    }

    /// The gradient of the input, from that of the values.
    pub(crate) fn of(self, values: FloatTensor<B>) -> FloatTensor<B> {
        let Self { selection, positions, formula } = self;
        let (_, dtype) = selection.input();
        let shape = selection.input_shape().clone();
        if values.shape().num_elements() == 0 {
            return Operand::<B>::zeros(shape, dtype, &values.device()).0;
        }
        let axis = selection.axis();
        let (everywhere, at_positions) = terms(formula, Operand::<B>(values), axis)
            .unwrap_or_else(|error| panic!("gradient of `{}`: {error}", selection.name()));
        let everywhere = everywhere.unwrap_or_else(|| at_positions.zeros_like(shape));
        let sum =
            B::float_scatter(axis, everywhere.0, positions, at_positions.0, IndexingUpdateOp::Add);
        Operand::<B>(sum).cast(dtype).0
    }
}

/// What all elements have of the gradient, if not nothing, and what the selected ones have beside
/// that.
fn terms<B: ReduceBackend>(
    formula: Formula<B>,
    gradient: Operand<B>,
    axis: usize,
) -> Result<(Option<Operand<B>>, Operand<B>), ReduceBurnError> {
    Ok(match formula {
        Formula::Elements => (None, gradient),
        Formula::OfSelected { probabilities } => {
            let function = AppliedFunction::SoftmaxGradient;
            (None, applied(function, gradient, vec![probabilities], None, &[axis])?)
        }
        Formula::OfSlice { probabilities, x } => {
            let weighted = gradient.wide() * Operand(probabilities);
            let [sum] = reduced(OperatorName::Sum, &weighted, &[axis])?;
            let x = Operand::<B>(x).wide();
            let shares = applied(AppliedFunction::Softmax, x, Vec::new(), None, &[axis])?;
            (Some(shares * (sum * -1.0)), weighted)
        }
    })
}
