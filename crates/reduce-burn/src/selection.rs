//! A selection of the largest or smallest elements as data.

use burn_backend::{Backend, DType, get_device_settings};
use burn_tensor::{Shape, kind::Kind};

use crate::{axes::AxisList, error::ReduceBurnError, tensor::AnyTensor};

/// The name in messages.
pub(crate) const NAME: &str = "top_k";

/// Which elements to select of a tensor: the `k` largest or smallest along an axis, and their
/// positions. It knows the shapes and the types of its results before it runs.
#[derive(Clone, Debug)]
pub struct Selection {
    input: (Kind, DType),
    input_shape: Shape,
    axis: usize,
    k: usize,
    largest: bool,
    position: DType,
}

impl Selection {
    /// The selection of the `k` largest elements of `tensor` along `axis`, or the smallest.
    /// Positions have the device's integer type.
    ///
    /// # Errors
    ///
    /// A tensor of truth values, an axis that the tensor does not have, and one of fewer than `k`
    /// elements.
    pub fn new<B: Backend>(
        tensor: &AnyTensor<B>,
        axis: i64,
        k: usize,
        largest: bool,
    ) -> Result<Self, ReduceBurnError> {
        if tensor.kind() == Kind::Bool {
            return Err(ReduceBurnError::Kind { operator: NAME, kind: tensor.kind() });
        }
        let input_shape = tensor.shape();
        let axis = AxisList::from([axis]).resolve(input_shape.num_dims())?[0];
        let len = input_shape[axis];
        if k > len {
            return Err(ReduceBurnError::TooFewElements { k, len });
        }
        let position = get_device_settings::<B>(&tensor.device()).int_dtype.into();
        let input = (tensor.kind(), tensor.dtype());
        Ok(Self { input, input_shape, axis, k, largest, position })
    }

    /// The kind and the type of the input.
    pub fn input(&self) -> (Kind, DType) {
        self.input
    }

    /// The shape of the input.
    pub fn input_shape(&self) -> &Shape {
        &self.input_shape
    }

    /// The axis along which elements are selected.
    pub fn axis(&self) -> usize {
        self.axis
    }

    /// The number of elements that are selected.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Whether the largest are selected, rather than the smallest.
    pub fn largest(&self) -> bool {
        self.largest
    }

    /// The type of the positions.
    pub(crate) fn position_dtype(&self) -> DType {
        self.position
    }

    /// The shape of the values and of the positions.
    pub fn output_shape(&self) -> Shape {
        let mut shape = self.input_shape.to_vec();
        shape[self.axis] = self.k;
        Shape::from(shape)
    }

    /// The kind and the type of the values, and those of the positions.
    pub(crate) fn outputs(&self) -> Vec<(Kind, DType)> {
        vec![self.input, (Kind::Int, self.position)]
    }
}
