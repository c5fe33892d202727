//! Integers in place of floats, with a scale for each slice: of a row, of a block of an axis, or of
//! a whole tensor.
//!
//! An element is the product of its integer and the scale of its slice, within half of the scale.
//!
//! ```
//! use burn_tensor::{Device, IntDType, Tensor};
//! use reduce_burn::quantize::quantize;
//!
//! let x = Tensor::<2>::from_data([[1.0, -4.0, 2.0], [0.5, 0.25, 0.125]], &Device::flex());
//! let (integers, scales) = quantize(x, 1, 8.0, IntDType::I8); // i8 [2, 3] and f32 [2, 1]
//! assert_eq!(integers.to_data().to_vec::<i8>().unwrap(), [2, -8, 4, 8, 4, 2]);
//! let dequantized = integers.float() * scales;
//! assert_eq!(dequantized.to_data().to_vec::<f32>().unwrap(), [1.0, -4.0, 2.0, 0.5, 0.25, 0.125]);
//! ```

pub use crate::functions::quantization::quantize;
