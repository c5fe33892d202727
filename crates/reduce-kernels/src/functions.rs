//! A function for each operator of one input, for the plain case: a tensor, axes, and results in
//! new tensors that keep the reduced axes with size 1.
//!
//! ```no_run
//! use reduce_kernels::{
//!     ReduceError,
//!     cubecl::{prelude::*, std::tensor::TensorHandle},
//!     functions::{argmax, min_max, var},
//! };
//!
//! # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
//! let classes = argmax(client, x, 1)?;
//! let (lowest, highest) = min_max(client, x, ..)?;
//! let variances = var(client, x, [0, 2], 1.0)?;
//! # Ok(()) }
//! ```
//!
//! Those that are used most are at the root of the crate too. [`reduce`](crate::reduce) with the
//! operator of the same name, from [`operators`](crate::operators), offers the rest: other types,
//! results without the reduced axes, outputs of your own, plans.

pub use crate::one_input::{
    all, any, any_non_finite, argmax, argmin, count_nonzero, logsumexp, max, max_with_index, mean,
    mean_var, min, min_max, min_with_index, nanargmax, nanargmin, nanmax, nanmean, nanmin, nanprod,
    nanstd, nansum, nanvar, norm_inf, norm_l1, norm_l2, norm_p, prod, std, sum, sum_abs,
    sum_squares, var,
};
