//! Scans: the results of a reduction at each of its positions, such as running sums.
//!
//! The result at a position is that of the elements up to it, and has the shape of the tensor. Axes
//! are a number, a list of numbers in any order, or `..` for all axes; several axes are scanned in
//! their row-major order. No axes make each element a row of its own. [`reverse`] scans axes from
//! the last position to the first, and [`exclusive`] leaves the element at each position out of the
//! result there. A tensor without elements gives results without elements.
//!
//! On CubeCL's runtimes, a function is one call of reduce-kernels. Gradients are this crate's there
//! and on Flex. docs/BURN.md in the repository says what they are and what they cost.
//!
//! ```
//! use burn_tensor::{Device, Tensor};
//! use reduce_burn::scan::{cummax_with_positions, cumsum, exclusive, reverse};
//!
//! // The rewards of two episodes, [episodes, steps].
//! let rewards = Tensor::<2>::from_data([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]], &Device::flex());
//! let so_far = cumsum(rewards.clone(), 1); // shape [2, 3], as all of these
//! assert_eq!(so_far.into_data().to_vec::<f32>().unwrap(), [1.0, 6.0, 9.0, 4.0, 6.0, 12.0]);
//! let to_come = cumsum(rewards.clone(), exclusive(reverse(1)));
//! assert_eq!(to_come.into_data().to_vec::<f32>().unwrap(), [8.0, 3.0, 0.0, 8.0, 6.0, 0.0]);
//! let (best, at) = cummax_with_positions(rewards, 1);
//! # assert_eq!((best.dims(), at.dims()), ([2, 3], [2, 3]));
//! ```

pub use crate::{
    axes::{ScanAxes, exclusive, reverse},
    functions::scan::*,
};
