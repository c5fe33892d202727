//! The operators of this crate, a file per family.

mod arg;
mod extrema;
mod log_sum_exp;
mod logic;
mod mean;
mod nan_ignoring;
mod norm;
mod prod;
mod sum;
mod variance;

pub use arg::{ArgMax, ArgMin, MaxWithIndex, MinWithIndex};
pub use extrema::{Max, Min, MinMax};
pub use log_sum_exp::LogSumExp;
pub use logic::{All, Any, CountNonzero};
pub use mean::Mean;
pub use nan_ignoring::{NanArgMax, NanArgMin, NanMax, NanMean, NanMin, NanProd, NanSum};
pub use norm::{NormInf, NormL1, NormL2, NormP};
pub use prod::Prod;
pub use sum::{Sum, SumAbs, SumSquares};
pub use variance::{MeanVar, NanStd, NanVar, Std, Var};
