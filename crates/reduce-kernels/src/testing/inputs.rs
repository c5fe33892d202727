//! What a test reduces: a tensor for each input of an operator.

use cubecl::std::tensor::TensorHandle;

use crate::{
    operator::{Arity, Operator},
    reduction::Reduction,
};

/// An `X` for each input of `O`: `X` itself for one input, otherwise a pair.
pub type EachInput<O, X> = <<O as Operator>::Inputs as Arity>::Each<X>;

/// The tensors that [`check_every_plan`](super::check_every_plan) reduces: one for each input of
/// the operator.
#[derive(Clone, Debug)]
pub struct InputTensors(pub(super) Vec<TensorHandle>);

impl InputTensors {
    /// Starts a reduction of these tensors, as [`reduce`](crate::reduce) does of one tensor and
    /// [`reduce_pair`](crate::pairs::reduce_pair) of two.
    pub fn reduce<O: Operator>(&self, operator: O) -> Reduction<'_, O, TensorHandle> {
        Reduction::new(operator, &self.0[0], self.0.get(1))
    }
}
