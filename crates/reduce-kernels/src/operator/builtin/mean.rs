//! Arithmetic mean.

use cubecl::prelude::*;

use super::Sum;
use crate::operator::{Value, derived::derived, rules};

/// The arithmetic mean; NaN of no elements. Means of integers are floating point.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mean;

derived!(Mean: One -> One = Sum, "mean", rules::floating, finish accumulator, count, _parameters =>
        Value::new(Vector::cast_from(accumulator.value / Vector::cast_from(count))));
