//! Reductions of two tensors in one launch, without storing products or differences. Softmax of
//! elements plus a mask, normalisations of elements plus a residual, and the cross-entropy of
//! logits and classes.
//!
//! The axes are those of the first tensor. The second one broadcasts to it: along each axis it has
//! the extent of the first tensor, or 1. Gradients reach both. The classes of a [`CrossEntropy`]
//! have a shape of their own.
//!
//! ```
//! use burn_tensor::{Device, Tensor};
//! use reduce_burn::pairs::{dot, mean_squared_error};
//!
//! let device = Device::flex();
//! let x = Tensor::<2>::from_data([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], &device);
//! let row = Tensor::<2>::from_data([[1.0, 0.0, 2.0]], &device);
//! let dots = dot(x.clone(), row.clone(), 1); // shape [2, 1]
//! assert_eq!(dots.into_data().to_vec::<f32>().unwrap(), [7.0, 16.0]);
//! let error: Tensor<2> = mean_squared_error(x, row, [0, 1]); // shape [1, 1]
//! # assert_eq!(error.dims(), [1, 1]);
//! ```

pub use crate::functions::{
    application::{add_layer_norm, add_rms_norm, masked_log_softmax, masked_softmax},
    cross_entropy::CrossEntropy,
    pair::{
        accuracy, all_close, cosine_similarity, count_equal, covariance, dot, huber, kl_divergence,
        max_difference, mean_absolute_error, mean_squared_error, sum_and_dot, weighted_mean,
        weighted_mean_var,
    },
};
