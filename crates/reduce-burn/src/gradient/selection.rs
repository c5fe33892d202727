//! The gradient of selected values: it goes to the elements at their positions.

use burn_backend::{
    Backend,
    tensor::{FloatTensor, IntTensor},
};
use burn_tensor::IndexingUpdateOp;

use crate::{
    backend::{Operation, ReduceBackend},
    error::ReduceBurnError,
    operand::Operand,
    selection::Selection,
    tensor::AnyTensor,
};

/// How the gradient of selected values reaches the input.
#[derive(Clone, Debug)]
pub(crate) struct SelectionGradient<B: Backend> {
    selection: Selection,
    positions: IntTensor<B>,
}

/// The values of a selection whose input is tracked, with their gradient.
pub(crate) fn forward<B: ReduceBackend>(
    x: FloatTensor<B>,
    selection: &Selection,
) -> Result<(FloatTensor<B>, SelectionGradient<B>), ReduceBurnError> {
    let operation = Operation::Selection(selection.clone());
    let mut results = B::run(vec![AnyTensor::Float(x)], operation)?.into_iter();
    match (results.next(), results.next()) {
        (Some(AnyTensor::Float(values)), Some(AnyTensor::Int(positions))) => {
            Ok((values, SelectionGradient { selection: selection.clone(), positions }))
        }
        _ => unreachable!("a selection of floats gives floats and positions"),
    }
}

impl<B: Backend> SelectionGradient<B> {
    /// The positions of the values.
    pub(crate) fn positions(&self) -> IntTensor<B> {
        self.positions.clone()
    }

    /// The gradient of the input, from that of the values.
    pub(crate) fn of(self, values: FloatTensor<B>) -> FloatTensor<B> {
        let Self { selection, positions } = self;
        let zeros = Operand::<B>(values.clone()).zeros_like(selection.input_shape().clone());
        B::float_scatter(selection.axis(), zeros.0, positions, values, IndexingUpdateOp::Add)
    }
}
