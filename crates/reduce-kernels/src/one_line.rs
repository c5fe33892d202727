//! One function per operator, for the common case.

use cubecl::{prelude::*, std::tensor::TensorHandle};

use crate::{Axes, Max, Mean, Min, Prod, ReduceError, Sum, reduce};

macro_rules! one_line {
    ($(#[$doc:meta])* $name:ident: $operator:ident) => {
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
        ) -> Result<TensorHandle<R>, ReduceError> {
            reduce::<$operator, R>(input).over(axes).run(client)
        }
    };
}

one_line!(
    /// The sum over `axes`, in the type of the input.
    sum: Sum
);
one_line!(
    /// The arithmetic mean over `axes`: f32 for integers, else the type of the input.
    mean: Mean
);
one_line!(
    /// The product over `axes`, in the type of the input.
    prod: Prod
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
