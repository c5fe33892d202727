//! A selection of the largest or smallest elements as data.

use burn_backend::{Backend, DType, get_device_settings};
use burn_tensor::{Shape, kind::Kind};
use reduce_kernels::{ReduceError, operator::InvalidParameter, top_k::Over};

use crate::{axes::AxisList, error::ReduceBurnError, tensor::AnyTensor};

/// What a selection gives.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum SelectionOutput {
    /// The selected elements and their positions.
    Elements,
    /// The probabilities of the selected elements, over the elements that [`Over`] names, and their
    /// positions.
    Probabilities(Over),
    /// The input with a number in place of all elements that are not selected.
    Masked {
        /// The number, which is rounded to the type of the input.
        fill: f32,
    },
}

impl SelectionOutput {
    /// The name in messages.
    fn name(self) -> &'static str {
        match self {
            SelectionOutput::Elements => "top_k",
            SelectionOutput::Probabilities(_) => "top_k_probabilities",
            SelectionOutput::Masked { .. } => "keep_top_k",
        }
    }
}

/// Which elements to select of a tensor: the `k` largest or smallest along an axis; and what to
/// give of them. It knows the shapes and the types of its results before it runs.
#[derive(Clone, Debug)]
pub struct Selection {
    input: (Kind, DType),
    input_shape: Shape,
    axis: usize,
    k: usize,
    largest: bool,
    output: SelectionOutput,
    value: DType,
    position: DType,
}

impl Selection {
    /// The selection of the `k` largest elements of `tensor` along `axis`, or the smallest. It
    /// gives the elements and their positions, which have the device's integer type.
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
        let output = SelectionOutput::Elements;
        if tensor.kind() == Kind::Bool {
            return Err(ReduceBurnError::Kind { operator: output.name(), kind: tensor.kind() });
        }
        let input_shape = tensor.shape();
        let axis = AxisList::from([axis]).resolve(input_shape.num_dims())?[0];
        let len = input_shape[axis];
        if k > len {
            return Err(ReduceBurnError::TooFewElements { k, len });
        }
        let position = get_device_settings::<B>(&tensor.device()).int_dtype.into();
        let (input, value) = ((tensor.kind(), tensor.dtype()), tensor.dtype());
        Ok(Self { input, input_shape, axis, k, largest, output, value, position })
    }

    /// Gives the probabilities of the selected elements in place of their values, of the type of
    /// the input: their exponentials over the sum of those of the elements that `over` names.
    ///
    /// # Errors
    ///
    /// A tensor of integers.
    pub fn probabilities(self, over: Over) -> Result<Self, ReduceBurnError> {
        self.giving(SelectionOutput::Probabilities(over))
    }

    /// Gives the input with `fill` in place of all elements that are not selected.
    ///
    /// # Errors
    ///
    /// A tensor of integers, and a `k` of 0.
    pub fn keep_only(self, fill: f32) -> Result<Self, ReduceBurnError> {
        let output = SelectionOutput::Masked { fill };
        if self.k == 0 {
            let invalid = InvalidParameter { name: "k", value: 0.0, expected: "1 or more" };
            return Err(ReduceError::parameter(output.name(), invalid).into());
        }
        self.giving(output)
    }

    /// The selection with another output, of a float tensor.
    fn giving(self, output: SelectionOutput) -> Result<Self, ReduceBurnError> {
        match self.input.0 {
            Kind::Float => Ok(Self { output, ..self }),
            kind => Err(ReduceBurnError::Kind { operator: output.name(), kind }),
        }
    }

    /// The name in messages.
    pub(crate) fn name(&self) -> &'static str {
        self.output.name()
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

    /// What it gives.
    pub fn output(&self) -> SelectionOutput {
        self.output
    }

    /// Whether it gives a masked input.
    pub(crate) fn is_masked(&self) -> bool {
        matches!(self.output, SelectionOutput::Masked { .. })
    }

    /// The same elements and their positions.
    pub(crate) fn of_elements(&self) -> Self {
        Self { output: SelectionOutput::Elements, ..self.clone() }
    }

    /// The selection with values of another type, which only probabilities have.
    pub(crate) fn with_value_type(&self, value: DType) -> Self {
        Self { value, ..self.clone() }
    }

    /// The type of the values.
    pub(crate) fn value_dtype(&self) -> DType {
        self.value
    }

    /// The type of the positions.
    pub(crate) fn position_dtype(&self) -> DType {
        self.position
    }

    /// The shape of each result: of the values and of the positions, or of the masked input.
    pub fn output_shape(&self) -> Shape {
        if self.is_masked() { self.input_shape.clone() } else { self.selected_shape() }
    }

    /// The shape of the selected elements and of their positions.
    pub(crate) fn selected_shape(&self) -> Shape {
        let mut shape = self.input_shape.to_vec();
        shape[self.axis] = self.k;
        Shape::from(shape)
    }

    /// The kind and the type of each result.
    pub(crate) fn outputs(&self) -> Vec<(Kind, DType)> {
        let (kind, _) = self.input;
        let values = (kind, self.value);
        if self.is_masked() { vec![values] } else { vec![values, (Kind::Int, self.position)] }
    }
}
