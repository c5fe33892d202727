//! One function per operator, for the common case.

use cubecl::{prelude::*, std::tensor::TensorHandle};

use crate::{
    All, Any, ArgMax, ArgMin, Axes, CountNonzero, LogSumExp, Max, MaxWithIndex, Mean, MeanVar, Min,
    MinMax, MinWithIndex, NanArgMax, NanArgMin, NanMax, NanMean, NanMin, NanProd, NanStd, NanSum,
    NanVar, NormInf, NormL1, NormL2, NormP, Outputs, Prod, ReduceError, Std, Sum, SumAbs,
    SumSquares, Var, reduce,
};

macro_rules! one_line {
    ($(#[$doc:meta])* $name:ident: $operator:ident $({ $parameter:ident })?) => {
        $(#[$doc])*
        ///
        /// Reduced axes stay with size 1; [`reduce`] offers more. Does not wait for the result.
        ///
        /// # Errors
        ///
        /// A [`ReduceError`] before anything is launched.
        pub fn $name<R: Runtime>(
            client: &ComputeClient<R>,
            input: &TensorHandle<R>,
            axes: impl Into<Axes>,
            $($parameter: f64,)?
        ) -> Result<Outputs<$operator, TensorHandle<R>>, ReduceError> {
            reduce($operator { $($parameter)? }, input).over(axes).run(client)
        }
    };
}

one_line!(
    /// The sum over `axes`, in the type of the input; in 32 bits for narrower integers and bools.
    sum: Sum
);
one_line!(
    /// The product over `axes`, in the type of the input; in 32 bits for narrower integers and bools.
    prod: Prod
);
one_line!(
    /// The arithmetic mean over `axes`: f32 for integers, else the type of the input.
    mean: Mean
);
one_line!(
    /// The maximum over `axes`, in the type of the input; NaN where there is one, an error if `axes`
    /// have no elements.
    max: Max
);
one_line!(
    /// The minimum over `axes`, in the type of the input; NaN where there is one, an error if `axes`
    /// have no elements.
    min: Min
);
one_line!(
    /// The minimum and the maximum over `axes`: [`min`](fn@min) and [`max`](fn@max) in one read.
    min_max: MinMax
);
one_line!(
    /// The position of the maximum over `axes`, in row-major order over them, as u32 (u64 by need): the
    /// first NaN if there is one, else the first maximum.
    argmax: ArgMax
);
one_line!(
    /// The position of the minimum over `axes`, in row-major order over them, as u32 (u64 by need): the
    /// first NaN if there is one, else the first minimum.
    argmin: ArgMin
);
one_line!(
    /// The maximum over `axes` and its position: [`max`](fn@max) and [`argmax`](fn@argmax) in one read.
    max_with_index: MaxWithIndex
);
one_line!(
    /// The minimum over `axes` and its position: [`min`](fn@min) and [`argmin`](fn@argmin) in one read.
    min_with_index: MinWithIndex
);
one_line!(
    /// Whether any element over `axes` is nonzero, as bool.
    any: Any
);
one_line!(
    /// Whether all elements over `axes` are nonzero, as bool.
    all: All
);
one_line!(
    /// How many elements over `axes` are nonzero, as u32 (u64 by need).
    count_nonzero: CountNonzero
);
one_line!(
    /// The sum of magnitudes over `axes`, in the type that [`sum`](fn@sum) has.
    sum_abs: SumAbs
);
one_line!(
    /// The sum of squares over `axes`, in the type that [`sum`](fn@sum) has.
    sum_squares: SumSquares
);
one_line!(
    /// The L1 norm over `axes`: f32 for integers, else the type of the input.
    norm_l1: NormL1
);
one_line!(
    /// The L2 norm over `axes`: f32 for integers, else the type of the input.
    norm_l2: NormL2
);
one_line!(
    /// The L-infinity norm over `axes`: f32 for integers, else the type of the input.
    norm_inf: NormInf
);
one_line!(
    /// The Lp norm over `axes`, with the exponent `p`: f32 for integers, else the type of the input.
    norm_p: NormP { p }
);
one_line!(
    /// The variance over `axes`, with `correction` subtracted from the count (0 of a population, 1 of a
    /// sample): f32 for integers, else the type of the input.
    var: Var { correction }
);
one_line!(
    /// The standard deviation over `axes`, corrected and typed as [`var`](fn@var).
    std: Std { correction }
);
one_line!(
    /// The mean and the variance over `axes` in one read, corrected and typed as [`var`](fn@var).
    mean_var: MeanVar { correction }
);
one_line!(
    /// The logarithm of the sum of exponentials over `axes`: f32 for integers, else the type of the
    /// input.
    logsumexp: LogSumExp
);
one_line!(
    /// [`sum`](fn@sum) of the elements that are not NaN.
    nansum: NanSum
);
one_line!(
    /// [`prod`](fn@prod) of the elements that are not NaN.
    nanprod: NanProd
);
one_line!(
    /// [`mean`](fn@mean) of the elements that are not NaN.
    nanmean: NanMean
);
one_line!(
    /// [`max`](fn@max) of the elements that are not NaN; NaN if all are.
    nanmax: NanMax
);
one_line!(
    /// [`min`](fn@min) of the elements that are not NaN; NaN if all are.
    nanmin: NanMin
);
one_line!(
    /// [`argmax`](fn@argmax) of the elements that are not NaN; 0 if all are.
    nanargmax: NanArgMax
);
one_line!(
    /// [`argmin`](fn@argmin) of the elements that are not NaN; 0 if all are.
    nanargmin: NanArgMin
);
one_line!(
    /// [`var`](fn@var) of the elements that are not NaN.
    nanvar: NanVar { correction }
);
one_line!(
    /// [`std`](fn@std) of the elements that are not NaN.
    nanstd: NanStd { correction }
);
