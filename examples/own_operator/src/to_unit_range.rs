//! Each slice mapped to the range from 0 to 1.

// `#[cube]` expects `cubecl` by that name.
use cubecl::prelude::*;
use reduce_kernels::{
    cubecl,
    operator::{Application, Apply, One, Operands, Parameters, Real, Reduced, Two, Value, applied},
};

/// The element's place between the smallest and the largest of its slice, which `MinMax` gives:
/// `reduce(MinMax, &x).over(1).apply(ToUnitRange)`. NaN where both are equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToUnitRange;

#[cube]
impl Apply for ToUnitRange {
    type Results = Two;
    type Outputs = One;

    const NAME: &'static str = "to_unit_range";
    const DEFINITION: &'static Application<Self> = applied!(ToUnitRange);

    fn apply<N: Size>(
        value: Vector<Real, N>,
        range: Reduced<Two, N>,
        _operands: &Operands<N>,
        _parameters: &Parameters,
    ) -> Reduced<One, N> {
        Value::new((value - range.first) / (range.second - range.first))
    }
}
