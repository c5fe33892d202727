//! Each slice mapped to the range from 0 to 1.

// `#[cube]` expects `cubecl` by that name.
use cubecl::prelude::*;
use reduce_kernels::{
    cubecl,
    operator::{Application, Apply, Operands, Parameters, Real, Reduced, Two, applied},
};

/// The element's place between the smallest and the largest of its slice, which `MinMax` gives:
/// `reduce(MinMax, &x).over(1).apply(ToUnitRange)`. NaN where both are equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToUnitRange;

#[cube]
impl Apply for ToUnitRange {
    type Results = Two;

    const NAME: &'static str = "to_unit_range";
    const DEFINITION: &'static Application<Self> = applied!(ToUnitRange);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        range: Reduced<Two, N>,
        _operands: &Operands<N>,
        _parameters: &Parameters,
    ) -> Vector<Real, N> {
        (value - range.first) / (range.second - range.first)
    }
}
