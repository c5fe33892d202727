//! Integers in place of floating point numbers, with a scale for each slice: of a row, of a block
//! of an axis, or of a whole tensor.
//!
//! ```no_run
//! use reduce_kernels::{
//!     ReduceError,
//!     cubecl::{prelude::*, std::tensor::TensorHandle},
//!     quantize::{quantize, quantize_blocks},
//! };
//!
//! # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
//! // `x` has shape [tokens, features].
//! let (values, scales) = quantize(client, x, 1)?; // i8 [tokens, features], f32 [tokens, 1]
//! let (values, scales) = quantize_blocks(client, x, 1, 128)?; // f32 [tokens, features / 128]
//! # Ok(()) }
//! ```
//!
//! # Numbers
//!
//! An element becomes the nearest integer to its quotient with the scale, and the even one of two
//! that are as near. The quotient is a product with the reciprocal of the scale, so where it lies
//! within an ulp of the middle between two integers, either may result.
//!
//! A slice of zeros has the scale 0, and integers 0. Where the scale is below the least normal
//! number of f32, or of f64, the integers are 0 too. A slice with NaN has the scale NaN, and one
//! with an infinity an infinite one: integers times the scale are then NaN.
//!
//! A tensor of integers is dequantised by the map of any reduction:
//! `reduce(Sum, &values).paired(&scales, ElementwiseProduct)`.

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{ElementType, ProblemError};

use crate::{
    applied_reduction::AppliedReduction,
    axes::Axes,
    error::ReduceError,
    input::{Input, sealed::Layout},
    operator::InvalidParameter,
    reduction::reduce,
};

pub use crate::operator::builtin::{
    AffineQuantizationScale, InAffineScale, InScale, QuantizationScale,
};

/// Integers from `-most` to `most`, with the scale by which the largest magnitude of a slice
/// becomes `most`. The output has the type i8, unless another is asked for. The result is the
/// scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantize {
    /// What the largest magnitude becomes: 127 for i8, 7 for 4 bits.
    pub most: f64,
}

/// Integers from `least` to `most`, with a scale and a zero point: an element is the difference of
/// its integer and the zero point, times the scale. The output has the type i8, unless another is
/// asked for. The results are the scale and the zero point, which is an integer in the type of the
/// scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantizeAffine {
    /// The least integer: -128 for i8, 0 for u8.
    pub least: f64,
    /// The largest integer: 127 for i8, 255 for u8.
    pub most: f64,
}

impl Quantize {
    /// The integers of each slice over `axes`.
    pub fn of<T: Input>(
        self,
        input: &T,
        axes: impl Into<Axes>,
    ) -> AppliedReduction<'_, QuantizationScale, InScale, T> {
        let scale = QuantizationScale { most: self.most };
        reduce(scale, input).over(axes).apply(InScale).output_type(ElementType::I8)
    }
}

impl QuantizeAffine {
    /// The integers of each slice over `axes`.
    pub fn of<T: Input>(
        self,
        input: &T,
        axes: impl Into<Axes>,
    ) -> AppliedReduction<'_, AffineQuantizationScale, InAffineScale, T> {
        let scale = AffineQuantizationScale { least: self.least, most: self.most };
        reduce(scale, input).over(axes).apply(InAffineScale).output_type(ElementType::I8)
    }
}

/// [`Quantize`] to i8 over `axes`, and the scales, which keep the axes with size 1.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::quantize::quantize;
///
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// let (of_rows, scales) = quantize(client, x, 1)?;
/// let (of_tensor, scale) = quantize(client, x, ..)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched, also where the device has no i8.
pub fn quantize(
    client: &Client,
    input: &TensorHandle,
    axes: impl Into<Axes>,
) -> Result<(TensorHandle, TensorHandle), ReduceError> {
    Quantize { most: 127.0 }.of(input, axes).run_with_results(client)
}

/// [`Quantize`] to i8 of each block of `block` neighbours along `axis`, and the scales: their axis
/// has an element for each block.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::quantize::quantize_blocks;
///
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// // `x` has shape [tokens, features], and `scales` [tokens, features / 32].
/// let (values, scales) = quantize_blocks(client, x, 1, 32)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched: also where the axis has not a whole number of
/// blocks, and where the device has no i8.
pub fn quantize_blocks(
    client: &Client,
    input: &TensorHandle,
    axis: usize,
    block: usize,
) -> Result<(TensorHandle, TensorHandle), ReduceError> {
    let blocks = blocks_of(input, axis, block)?;
    let (values, scales) = quantize(client, &blocks, axis + 1)?;
    let mut of_blocks = input.shape().to_vec();
    of_blocks[axis] /= block;
    let reshaped = |tensor: TensorHandle, shape: Vec<usize>| {
        TensorHandle::new_contiguous(shape, tensor.handle, tensor.dtype)
    };
    Ok((reshaped(values, input.shape().to_vec()), reshaped(scales, of_blocks)))
}

/// The same tensor with an axis split in two: the blocks, and the `block` neighbours of each. Any
/// reduction over `axis + 1` is then one of each block.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::{Max, quantize::blocks_of, reduce};
///
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// // `x` has shape [tokens, features], and `largest` [tokens, features / 32, 1].
/// let largest = reduce(Max, &blocks_of(x, 1, 32)?).over(2).run(client)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// An axis that the tensor does not have, and one that has not a whole number of blocks.
pub fn blocks_of(
    tensor: &TensorHandle,
    axis: usize,
    block: usize,
) -> Result<TensorHandle, ReduceError> {
    let spec = tensor.spec()?;
    let (mut shape, mut strides) = (spec.shape.to_vec(), spec.strides.to_vec());
    if axis >= shape.len() {
        return Err(ProblemError::AxisOutOfRange { axis, rank: shape.len() }.into());
    }
    if block == 0 || !shape[axis].is_multiple_of(block) {
        let expected = "above 0 and divide the axis";
        let invalid = InvalidParameter { name: "block", value: block as f64, expected };
        return Err(ReduceError::parameter("blocks_of", invalid));
    }
    let stride = strides[axis];
    shape[axis] /= block;
    strides[axis] = stride.saturating_mul(block);
    shape.insert(axis + 1, block);
    strides.insert(axis + 1, stride);
    Ok(TensorHandle::new(tensor.handle.clone(), shape, strides, tensor.dtype))
}
