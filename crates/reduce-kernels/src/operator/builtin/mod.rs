//! The operators of this crate, one file per family.

mod applied;
mod arg;
mod extrema;
mod gradient;
mod log_sum_exp;
mod logic;
mod mean;
mod nan_ignoring;
mod norm;
mod of_passes;
mod pair;
mod prod;
mod quantize;
mod sum;
mod variance;

pub use applied::*;
pub use arg::*;
pub use extrema::*;
pub use gradient::*;
pub use log_sum_exp::*;
pub use logic::*;
pub use mean::*;
pub use nan_ignoring::*;
pub use norm::*;
pub use pair::*;
pub use prod::*;
pub use quantize::*;
pub use sum::*;
pub use variance::*;
