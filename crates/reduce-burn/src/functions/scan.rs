//! The functions of scans that users call.

use burn_dispatch::Dispatch;
use burn_tensor::{
    Bool, Float, Int, Tensor,
    kind::{Basic, Numeric},
};
use reduce_kernels::by_name::{OperatorName, OperatorOptions};

use super::next;
use crate::{
    axes::ScanAxes,
    backend,
    scanned::Scan,
    tensor::{AnyTensor, into_any},
};

/// The results of an operator at each position.
#[track_caller]
fn results<const D: usize, K: Basic>(
    function: &str,
    operator: OperatorName,
    options: OperatorOptions,
    tensor: Tensor<D, K>,
    axes: &ScanAxes,
) -> impl Iterator<Item = AnyTensor<Dispatch>> + use<D, K> {
    let tensor = into_any(tensor);
    let shape = tensor.shape().to_vec();
    let run = || {
        let scan = Scan::new(operator, options, &tensor, axes)?;
        backend::scan::<Dispatch>(tensor, scan)
    };
    match run() {
        Ok(results) => results.into_iter(),
        Err(error) => panic!("`{function}` of a tensor of shape {shape:?}: {error}"),
    }
}

/// A function for each operator. One result is a tensor, two are a tuple.
macro_rules! scans {
    ($(
        $(#[$doc:meta])*
        $function:ident($($option:ident)?): $operator:ident,
            [$($kind:tt)*] $input:ident -> $($result:ident),+;
    )*) => {$(
        $(#[$doc])*
        ///
        /// Each result has the shape of the tensor. `axes` may be in
        /// [`reverse`](crate::scan::reverse) and [`exclusive`](crate::scan::exclusive).
        ///
        /// ```
        /// # use burn_tensor::{Device, Tensor};
        #[doc = concat!("use reduce_burn::scan::{", stringify!($function), ", reverse};\n")]
        /// let x = Tensor::<2>::from_data([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]], &Device::flex());
        $(#[doc = concat!("let ", stringify!($option), " = 1.0;")])?
        #[doc = concat!(
            "let running = ", stringify!($function),
            "(x.clone(), 1", $(", ", stringify!($option),)? ");",
        )]
        #[doc = concat!(
            "let from_the_end = ", stringify!($function),
            "(x, reverse([0, 1])", $(", ", stringify!($option),)? ");",
        )]
        /// ```
        ///
        /// # Panics
        ///
        /// As [all functions](crate#errors).
        #[track_caller]
        #[allow(unused_parens, reason = "parentheses make a tuple of two results")]
        pub fn $function<const D: usize, $($kind)*>(
            tensor: Tensor<D, $input>,
            axes: impl Into<ScanAxes>,
            $($option: f64,)?
        ) -> ($(Tensor<D, $result>),+) {
            #[allow(unused_mut, reason = "most operators have no parameter")]
            let mut options = OperatorOptions::default();
            $(options.$option = $option;)?
            let (function, operator) = (stringify!($function), OperatorName::$operator);
            let mut results = results(function, operator, options, tensor, &axes.into());
            ($(next::<D, $result>(&mut results)),+)
        }
    )*};
}

scans! {
    /// Running sums along `axes`. Integers wrap in their own type.
    cumsum(): Sum, [K: Numeric] K -> K;
    /// Running products along `axes`. Integers wrap in their own type.
    cumprod(): Prod, [K: Numeric] K -> K;
    /// Running maxima along `axes`: NaN from the first NaN on.
    cummax(): Max, [K: Numeric] K -> K;
    /// Running minima along `axes`: NaN from the first NaN on.
    cummin(): Min, [K: Numeric] K -> K;
    /// Running maxima along `axes` and their positions, in row-major order over the axes. The
    /// position is that of the first NaN if there is one, otherwise the first of equal elements.
    cummax_with_positions(): MaxWithIndex, [K: Numeric] K -> K, Int;
    /// Running minima along `axes` and their positions, in row-major order over the axes. The
    /// position is that of the first NaN if there is one, otherwise the first of equal elements.
    cummin_with_positions(): MinWithIndex, [K: Numeric] K -> K, Int;
    /// Running logarithms of the sum of exponentials along `axes`, without overflow.
    logcumsumexp(): LogSumExp, [] Float -> Float;
    /// Running means along `axes`.
    cummean(): Mean, [] Float -> Float;
    /// Running variances along `axes`. `correction` is subtracted from the number of elements so
    /// far, so the first variance is NaN with a correction of 1.
    cumvar(correction): Var, [] Float -> Float;
    /// Running means and variances along `axes`, in one read, with the correction of [`cumvar`].
    cummean_var(correction): MeanVar, [] Float -> Float, Float;
    /// Whether all elements so far along `axes` are true, or not 0.
    cumall(): All, [K: Basic] K -> Bool;
    /// Whether any element so far along `axes` is true, or not 0.
    cumany(): Any, [K: Basic] K -> Bool;
}
