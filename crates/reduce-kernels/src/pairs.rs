//! Reductions of two inputs: functions for the plain case, and the operators and maps behind them.
//!
//! [`reduce_pair`] takes an operator of two inputs. [`Reduction::paired`](crate::Reduction::paired)
//! makes one of an operator of one input, with a map of both elements. Both read each input once
//! and store no products or differences.
//!
//! ```no_run
//! use reduce_kernels::{
//!     Mean, ReduceError,
//!     cubecl::{prelude::*, std::tensor::TensorHandle},
//!     pairs::{CosineSimilarity, Huber, dot, reduce_pair},
//!     reduce,
//! };
//!
//! # fn example(client: &Client, x: &TensorHandle, y: &TensorHandle) -> Result<(), ReduceError> {
//! let dots = dot(client, x, y, 1)?;
//! let similarity = CosineSimilarity { eps: 1e-8 };
//! let similarities = reduce_pair(similarity, x, y).over(1).keep_dims(false).run(client)?;
//! let losses = reduce(Mean, x).paired(y, Huber { delta: 1.0 }).over(1).run(client)?;
//! # Ok(()) }
//! ```

pub use crate::{
    operator::builtin::{
        AbsoluteDifference, Accuracy, AllClose, CosineSimilarity, CountEqual, Covariance,
        Divergence, ElementwiseProduct, ElementwiseSum, Huber, ScaledSum, SquaredDifference,
        SumAndDot, WeightedMean, WeightedMeanVar,
    },
    reduction::reduce_pair,
    two_inputs::{
        accuracy, all_close, cosine_similarity, count_equal, covariance, dot, huber, kl_divergence,
        max_difference, mean_absolute_error, mean_squared_error, sum_and_dot, weighted_mean,
        weighted_mean_var,
    },
};
