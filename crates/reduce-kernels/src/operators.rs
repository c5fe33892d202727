//! The operators of one input that come with this crate.
//!
//! An operator is a value, whose fields are its parameters. [`reduce`](crate::reduce) takes it, and
//! so do lists ([`list`](crate::list)) and applied reductions ([`normalize`](crate::normalize)).
//!
//! ```
//! use reduce_kernels::{
//!     ElementType, TensorDescription,
//!     operators::{MaxWithIndex, Var},
//!     reduce,
//! };
//!
//! let x = TensorDescription::row_major(ElementType::F16, [8, 1024]);
//! let variances = reduce(Var { correction: 1.0 }, &x).over(1).output_type(ElementType::F32);
//! assert_eq!(variances.output_types()?, ElementType::F32);
//! let largest = reduce(MaxWithIndex, &x).over(1);
//! assert_eq!(largest.output_types()?, (ElementType::F16, ElementType::U32));
//! # Ok::<(), reduce_kernels::ReduceError>(())
//! ```
//!
//! docs/SEMANTICS.md in the repository says what each returns for NaN, infinities, integers and no
//! elements. Operators of two inputs are in [`pairs`](crate::pairs), and
//! [`operator`](crate::operator) has what operators of your own need.

#[doc(hidden)]
pub use crate::operator::builtin::MeanRstd;
pub use crate::operator::builtin::{
    All, Any, AnyNonFinite, ArgMax, ArgMin, CountNonzero, LogSumExp, Max, MaxWithIndex, Mean,
    MeanVar, Min, MinMax, MinWithIndex, NanArgMax, NanArgMin, NanMax, NanMean, NanMin, NanProd,
    NanStd, NanSum, NanVar, NormInf, NormL1, NormL2, NormL2Reciprocal, NormP, Prod, Std, Sum,
    SumAbs, SumSquares, Var,
};
