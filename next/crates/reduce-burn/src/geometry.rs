//! What the axes of a reduction make of shapes.

use burn_tensor::Shape;

use crate::axes::kept_axes;

/// The shape of an input, and the axes that a reduction takes of it.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    pub(crate) input_shape: Shape,
    /// In ascending order.
    pub(crate) axes: Vec<usize>,
    /// Whether results keep the reduced axes with size 1.
    pub(crate) keep_dims: bool,
}

impl Geometry {
    /// Number of elements that go into one output.
    pub(crate) fn len(&self) -> usize {
        self.axes.iter().map(|&axis| self.input_shape[axis]).product()
    }

    /// The axes that stay, in ascending order.
    pub(crate) fn kept_axes(&self) -> Vec<usize> {
        kept_axes(&self.axes, self.input_shape.num_dims())
    }

    /// Number of elements of each result.
    pub(crate) fn outputs_len(&self) -> usize {
        self.kept_axes().iter().map(|&axis| self.input_shape[axis]).product()
    }

    /// Whether results have elements of which each is a reduction of no elements.
    pub(crate) fn reduces_nothing(&self) -> bool {
        self.len() == 0 && self.outputs_len() > 0
    }

    /// The shape of the results with the reduced axes as axes of size 1.
    pub(crate) fn kept_shape(&self) -> Shape {
        let mut shape = self.input_shape.clone();
        for &axis in &self.axes {
            shape[axis] = 1;
        }
        shape
    }

    /// The shape of each result. Burn has no tensors of rank 0; a result of one element that keeps
    /// no axis has shape `[1]`.
    pub(crate) fn output_shape(&self) -> Shape {
        if self.keep_dims {
            return self.kept_shape();
        }
        let kept: Vec<usize> =
            self.kept_axes().iter().map(|&axis| self.input_shape[axis]).collect();
        Shape::from(if kept.is_empty() { vec![1] } else { kept })
    }
}

/// Whether a tensor of shape `own` broadcasts to `shape`: it has the same rank, and along each axis
/// that extent or 1.
pub(crate) fn broadcasts(own: &Shape, shape: &Shape) -> bool {
    own.num_dims() == shape.num_dims()
        && own.iter().zip(shape.iter()).all(|(&own, &extent)| own == 1 || own == extent)
}

/// The axes along which a tensor of shape `own` is repeated to `shape`, in ascending order.
pub(crate) fn repeated_axes(own: &Shape, shape: &Shape) -> Vec<usize> {
    (0..shape.num_dims()).filter(|&axis| own[axis] != shape[axis]).collect()
}
