//! Integers or fp8 in place of wider numbers, with a scale for each slice: of a row, of a block of
//! an axis, or of a whole tensor.
//!
//! ```no_run
//! use reduce_kernels::{
//!     ElementType, ReduceError,
//!     cubecl::{prelude::*, std::tensor::TensorHandle},
//!     quantize::{quantize, quantize_blocks, quantize_int4_blocks},
//! };
//!
//! # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
//! // `x` has shape [tokens, features].
//! let (values, scales) = quantize(client, x, 1, ElementType::F8E4M3)?; // scales f32 [tokens, 1]
//! // f32 [tokens, features / 128]
//! let (values, scales) = quantize_blocks(client, x, 1, 128, ElementType::I8)?;
//! let (packed, scales) = quantize_int4_blocks(client, x, 1, 128)?; // u8 [tokens, features / 2]
//! # Ok(()) }
//! ```
//!
//! # Numbers
//!
//! An element becomes the nearest number of the type to its quotient with the scale, and the even
//! one of two that are as near. The quotient is a product with the reciprocal of the scale, so
//! where it lies within an ulp of the middle between two numbers, either may result.
//!
//! A slice of zeros has the scale 0, and numbers 0. Where the scale is below the least normal
//! number of f32, or of f64, the numbers are 0 too. A slice with NaN has the scale NaN, and one
//! with an infinity an infinite one: numbers times the scale are then NaN. Integers of such slices
//! are 0, and what fp8 holds of them has no meaning.
//!
//! A tensor of such numbers is dequantised by the map of any reduction:
//! `reduce(Sum, &values).paired(&scales, ElementwiseProduct)`.
//!
//! # Integers of 4 bits
//!
//! [`pack_int4`] puts two neighbours along the last axis in a byte: element `2 * k` in the low four
//! bits of byte `k`, and element `2 * k + 1` in the high four, in two's complement.
//! [`quantize_int4`] and [`quantize_int4_blocks`] give such bytes, of integers from -7 to 7.
//! [`unpack_int4`] is the inverse: its integers are then dequantised as above.

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{ElementType, ProblemError};

use crate::{
    applied_reduction::AppliedReduction,
    axes::Axes,
    error::ReduceError,
    host::{self, client::device_of},
    input::{Input, sealed::Layout},
    operator::{InvalidParameter, Mapped},
    pairs::{ElementwiseSum, reduce_pair},
    reduction::reduce,
};

pub use crate::operator::builtin::{
    AddNormalizedInScale, AffineQuantizationScale, InAffineScale, InScale, NormalizedInScale,
    QuantizationScale, RmsQuantizationScale, WeightedRmsQuantizationScale,
};

/// Numbers from `-most` to `most`, with the scale by which the largest magnitude of a slice becomes
/// `most`. The result is the scale. In an unsigned type, elements below 0 become 0:
/// [`QuantizeAffine`] serves these.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantize {
    /// What the largest magnitude becomes: 127 for i8, 448 for E4M3, 7 for integers of 4 bits.
    pub most: f64,
    /// The type of the output.
    pub element: ElementType,
}

/// Integers from `least` to `most`, with a scale and a zero point: an element is the difference of
/// its integer and the zero point, times the scale. The results are the scale and the zero point,
/// which is an integer in the type of the scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantizeAffine {
    /// The least integer: -128 for i8, 0 for u8.
    pub least: f64,
    /// The largest integer: 127 for i8, 255 for u8.
    pub most: f64,
    /// The type of the output.
    pub element: ElementType,
}

/// The largest number of a type. Floating point types of 16 bits or more have that of i8: a scale
/// to their own would be too small for a reciprocal.
const fn most_of(element: ElementType) -> f64 {
    match element {
        ElementType::F8E4M3 => 448.0,
        ElementType::F8E5M2 => 57344.0,
        ElementType::F16 | ElementType::BF16 | ElementType::F32 | ElementType::F64 => 127.0,
        ElementType::I8 => i8::MAX as f64,
        ElementType::I16 => i16::MAX as f64,
        ElementType::I32 => i32::MAX as f64,
        ElementType::I64 => i64::MAX as f64,
        ElementType::U8 => u8::MAX as f64,
        ElementType::U16 => u16::MAX as f64,
        ElementType::U32 => u32::MAX as f64,
        ElementType::U64 => u64::MAX as f64,
        ElementType::Bool => 1.0,
    }
}

impl Quantize {
    /// The largest magnitude of a slice becomes the largest number of the type, and 127 in floating
    /// point types of 16 bits or more, whose outputs are not rounded to integers.
    ///
    /// ```
    /// use reduce_kernels::{ElementType, quantize::Quantize};
    ///
    /// assert_eq!(Quantize::to(ElementType::F8E4M3).most, 448.0);
    /// ```
    pub const fn to(element: ElementType) -> Self {
        Self { most: most_of(element), element }
    }

    /// The numbers of each slice over `axes`.
    pub fn of<T: Input>(
        self,
        input: &T,
        axes: impl Into<Axes>,
    ) -> AppliedReduction<'_, QuantizationScale, InScale, T> {
        let scale = QuantizationScale { most: self.most };
        reduce(scale, input).over(axes).apply(InScale).output_type(self.element)
    }
}

impl QuantizeAffine {
    /// All numbers of an integer type or of fp8, and -128 to 127 in wider floating point types.
    ///
    /// ```
    /// use reduce_kernels::{ElementType, quantize::QuantizeAffine};
    ///
    /// let affine = QuantizeAffine::to(ElementType::I8);
    /// assert_eq!((affine.least, affine.most), (-128.0, 127.0));
    /// ```
    pub const fn to(element: ElementType) -> Self {
        let most = most_of(element);
        let least = if element.is_f8() {
            -most
        } else if element.is_float() || element.is_signed() {
            -most - 1.0
        } else {
            0.0
        };
        Self { least, most, element }
    }

    /// The integers of each slice over `axes`.
    pub fn of<T: Input>(
        self,
        input: &T,
        axes: impl Into<Axes>,
    ) -> AppliedReduction<'_, AffineQuantizationScale, InAffineScale, T> {
        let scale = AffineQuantizationScale { least: self.least, most: self.most };
        reduce(scale, input).over(axes).apply(InAffineScale).output_type(self.element)
    }
}

/// [`RmsNorm`](crate::normalize::RmsNorm), and [`Quantize`] of that. The results are the factor of
/// the normalisation and the scale.
///
/// The normalised elements are not rounded before they are quantised. Their squares are not scaled:
/// a mean square that overflows gives a factor of 0 and no scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNormQuantize {
    /// Added to the mean square: a finite number, 0 or more.
    pub eps: f64,
    /// How normalised elements are quantised.
    pub quantize: Quantize,
}

/// The sum of two tensors, and [`RmsNormQuantize`] of it: the residual connection of a
/// transformer's layer, and what the matrix product after it reads.
///
/// There is no weight: it belongs to the matrix that follows, whose rows it multiplies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AddRmsNormQuantize {
    /// Added to the mean square: a finite number, 0 or more.
    pub eps: f64,
    /// How normalised elements are quantised.
    pub quantize: Quantize,
}

impl RmsNormQuantize {
    /// Over `axes`, without a weight.
    pub fn of<T: Input>(
        self,
        input: &T,
        axes: impl Into<Axes>,
    ) -> AppliedReduction<'_, RmsQuantizationScale, NormalizedInScale, T> {
        let Self { eps, quantize: Quantize { most, element } } = self;
        let scale = RmsQuantizationScale { eps, most };
        reduce(scale, input).over(axes).apply(NormalizedInScale).output_type(element)
    }

    /// Over `axes`. The axes of `weight` are the last ones of `input`, and where its extent is 1 or
    /// it has fewer axes, its elements are repeated.
    pub fn of_weighted<'a, T: Input>(
        self,
        input: &'a T,
        weight: &'a T,
        axes: impl Into<Axes>,
    ) -> AppliedReduction<'a, WeightedRmsQuantizationScale, NormalizedInScale, T> {
        let Self { eps, quantize: Quantize { most, element } } = self;
        let scale = WeightedRmsQuantizationScale { eps, most };
        let reduction = reduce_pair(scale, input, weight).over(axes);
        reduction.apply(NormalizedInScale).output_type(element)
    }
}

impl AddRmsNormQuantize {
    /// The sum of `input` and `residual`, and that normalised and quantised, over `axes`.
    /// `residual` has the shape of `input`, or repeats its elements along axes of one.
    pub fn of<'a, T: Input>(
        self,
        input: &'a T,
        residual: &'a T,
        axes: impl Into<Axes>,
    ) -> AppliedReduction<'a, Mapped<ElementwiseSum, RmsQuantizationScale>, AddNormalizedInScale, T>
    {
        let Self { eps, quantize: Quantize { most, element } } = self;
        let scale = RmsQuantizationScale { eps, most };
        let reduction = reduce(scale, input).over(axes).paired(residual, ElementwiseSum);
        reduction.apply(AddNormalizedInScale).output_types((None, Some(element)))
    }
}

/// [`Quantize`] to a type over `axes`, and the scales, which keep the axes with size 1.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::{ElementType, quantize::quantize};
///
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// let (of_rows, scales) = quantize(client, x, 1, ElementType::I8)?;
/// let (of_tensor, scale) = quantize(client, x, .., ElementType::F8E4M3)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched, also where the device lacks the type.
pub fn quantize(
    client: &Client,
    input: &TensorHandle,
    axes: impl Into<Axes>,
    element: ElementType,
) -> Result<(TensorHandle, TensorHandle), ReduceError> {
    Quantize::to(element).of(input, axes).run_with_results(client)
}

/// [`Quantize`] to a type of each block of `block` neighbours along `axis`, and the scales: their
/// axis has an element for each block.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::{ElementType, quantize::quantize_blocks};
///
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// // `x` has shape [tokens, features], and `scales` [tokens, features / 32].
/// let (values, scales) = quantize_blocks(client, x, 1, 32, ElementType::I8)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched: also where the axis has not a whole number of
/// blocks, and where the device lacks the type.
pub fn quantize_blocks(
    client: &Client,
    input: &TensorHandle,
    axis: usize,
    block: usize,
    element: ElementType,
) -> Result<(TensorHandle, TensorHandle), ReduceError> {
    in_blocks(client, input, axis, block, Quantize::to(element))
}

/// The low four bits of each integer, two in a byte along the last axis: element `2 * k` in the low
/// four bits of byte `k`, and element `2 * k + 1` in the high four. The result is a row-major
/// tensor of u8, whose last axis has half the extent.
///
/// Integers are of any type and any strides. Those from -8 to 7 come back from [`unpack_int4`] as
/// they are, and those from 0 to 15 in an unsigned type; of others, only four bits are kept. The
/// buffer of the result is filled up to a multiple of 4 bytes, so that devices without u8 have the
/// result too. This does not wait for the device.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::{
///     ElementType,
///     quantize::{QuantizeAffine, pack_int4},
/// };
///
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// // `x` has shape [tokens, features], and `packed` [tokens, features / 2].
/// let affine = QuantizeAffine { least: 0.0, most: 15.0, element: ElementType::U8 };
/// let (integers, (scales, zero_points)) = affine.of(x, 1).run_with_results(client)?;
/// let packed = pack_int4(client, &integers)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Elements that are not integers, no axis, a last axis of an odd extent, a buffer that is too
/// small, and a device that lacks the type, the indices or the memory. Nothing is launched then.
pub fn pack_int4(client: &Client, integers: &TensorHandle) -> Result<TensorHandle, ReduceError> {
    host::nibbles::pack_int4(client, integers)
}

/// The integers of bytes that [`pack_int4`] wrote, in a row-major tensor of `element`, whose last
/// axis has twice the extent. Signed types and floating point get -8 to 7, and unsigned types 0 to
/// 15.
///
/// The bytes have any strides. A device without u8 takes a tensor whose buffer is filled up to a
/// multiple of 4 bytes, as that of `pack_int4` is. This does not wait for the device.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::{
///     ElementType, Sum,
///     pairs::ElementwiseProduct,
///     quantize::{quantize_int4, unpack_int4},
///     reduce,
/// };
///
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// // `x` has shape [tokens, features], `packed` [tokens, features / 2], `scales` [tokens, 1].
/// let (packed, scales) = quantize_int4(client, x, 1)?;
/// let integers = unpack_int4(client, &packed, ElementType::I8)?; // shape [tokens, features]
/// // The sums of the dequantised rows, without a tensor of the rows.
/// let dequantized = reduce(Sum, &integers).over(1).paired(&scales, ElementwiseProduct);
/// let sums = dequantized.run(client)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Bytes that are not of u8, no axis, an `element` that is neither an integer nor of floating point
/// of 16 bits or more, a buffer that is too small, and a device that lacks the type, the indices or
/// the memory. Nothing is launched then.
pub fn unpack_int4(
    client: &Client,
    packed: &TensorHandle,
    element: ElementType,
) -> Result<TensorHandle, ReduceError> {
    host::nibbles::unpack_int4(client, packed, element)
}

/// [`Quantize`] over `axes` to integers from -7 to 7, [packed](pack_int4) two in a byte along the
/// last axis, and the scales, which keep the axes with size 1.
///
/// The integers are written to memory before they are packed, in i8, or in i32 where the device
/// lacks it.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::quantize::quantize_int4;
///
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// // `x` has shape [tokens, features], `packed` [tokens, features / 2], `scales` [tokens, 1].
/// let (packed, scales) = quantize_int4(client, x, 1)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched: also where the tensor has no axis, and where its
/// last axis has an odd extent.
pub fn quantize_int4(
    client: &Client,
    input: &TensorHandle,
    axes: impl Into<Axes>,
) -> Result<(TensorHandle, TensorHandle), ReduceError> {
    host::nibbles::packed_shape(input.shape())?;
    let (integers, scales) = int4_of(client).of(input, axes).run_with_results(client)?;
    Ok((pack_int4(client, &integers)?, scales))
}

/// [`quantize_int4`] of each block of `block` neighbours along `axis`, and the scales: their axis
/// has an element for each block.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::{
///     ElementType, NormL2,
///     pairs::ElementwiseProduct,
///     quantize::{blocks_of, quantize_int4_blocks, unpack_int4},
///     reduce,
/// };
///
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// // `x` has shape [tokens, features], `packed` [tokens, features / 2], and `scales`
/// // [tokens, features / 128].
/// let (packed, scales) = quantize_int4_blocks(client, x, 1, 128)?;
/// // The norms of the dequantised rows: both tensors have shape [tokens, features / 128, n] with
/// // an `n` of 128 and 1.
/// let integers = unpack_int4(client, &packed, ElementType::I8)?;
/// let (integers, scales) = (blocks_of(&integers, 1, 128)?, blocks_of(&scales, 1, 1)?);
/// let dequantized = reduce(NormL2, &integers).over([1, 2]).paired(&scales, ElementwiseProduct);
/// let norms = dequantized.run(client)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched: also where the axis has not a whole number of
/// blocks, and where the last axis has an odd extent.
pub fn quantize_int4_blocks(
    client: &Client,
    input: &TensorHandle,
    axis: usize,
    block: usize,
) -> Result<(TensorHandle, TensorHandle), ReduceError> {
    host::nibbles::packed_shape(input.shape())?;
    let (integers, scales) = in_blocks(client, input, axis, block, int4_of(client))?;
    Ok((pack_int4(client, &integers)?, scales))
}

/// Integers of 4 bits in the least type that the device has for them.
fn int4_of(client: &Client) -> Quantize {
    let element = match device_of(client).has(ElementType::I8) {
        true => ElementType::I8,
        false => ElementType::I32,
    };
    Quantize { most: 7.0, element }
}

/// The numbers of each block along an axis, and their scales.
fn in_blocks(
    client: &Client,
    input: &TensorHandle,
    axis: usize,
    block: usize,
    quantize: Quantize,
) -> Result<(TensorHandle, TensorHandle), ReduceError> {
    let blocks = blocks_of(input, axis, block)?;
    let (values, scales) = quantize.of(&blocks, axis + 1).run_with_results(client)?;
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
