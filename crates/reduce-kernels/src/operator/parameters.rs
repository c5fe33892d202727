//! The numbers that an operator depends on at run time.
#![allow(
    missing_docs,
    missing_debug_implementations,
    reason = "CubeCL's macros add items without documentation and types without Debug"
)]

use cubecl::prelude::*;

/// The parameters of an operator, such as the correction of a variance, as its functions see them.
/// They are arguments of the kernel, so a new value does not compile another kernel.
#[derive(CubeType, CubeLaunch)]
pub struct Parameters {
    values: Sequence<InputScalar>,
    #[cube(comptime)]
    skipped: usize,
}

#[cube]
impl Parameters {
    /// Parameter number `index`, counted from 0 in the order in which
    /// [`Operator::PARAMETERS`](super::Operator) lists them.
    pub fn get<E: Float>(&self, #[comptime] index: usize) -> E {
        self.values.index(comptime![self.skipped + index]).get::<E>()
    }

    /// The parameters without the first `count`.
    pub(crate) fn skip(&self, #[comptime] count: usize) -> Parameters {
        Parameters { values: self.values.clone(), skipped: comptime![self.skipped + count] }
    }
}

impl ParametersLaunch {
    /// The launch argument for these numbers, as values of `storage`.
    pub(crate) fn of(numbers: &[f64], storage: cubecl::ir::ElemType) -> Self {
        let mut values = SequenceArg::new();
        numbers.iter().for_each(|&number| values.push(InputScalar::new(number, storage)));
        Self::new(values, 0)
    }
}

/// Reads the parameters of an operator's value, in the order of [`Parameters::get`].
///
/// # Errors
///
/// [`InvalidParameter`] if the operator cannot work with one of them.
pub type ParameterRule<O> = fn(&O) -> Result<Vec<f64>, InvalidParameter>;

/// A parameter value that an operator cannot work with.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{name} is {value}, but must be {expected}")]
pub struct InvalidParameter {
    /// Name of the parameter.
    pub name: &'static str,
    /// The value.
    pub value: f64,
    /// The values that it may have, in words.
    pub expected: &'static str,
}

/// The rule of operators without parameters.
///
/// # Errors
///
/// None.
pub(super) fn none<O>(_: &O) -> Result<Vec<f64>, InvalidParameter> {
    Ok(Vec::new())
}

/// A number that must be finite.
pub(crate) fn finite(name: &'static str, value: f64) -> Result<f64, InvalidParameter> {
    match value.is_finite() {
        true => Ok(value),
        false => Err(InvalidParameter { name, value, expected: "a finite number" }),
    }
}

/// A number that must be finite and not negative.
pub(crate) fn not_negative(name: &'static str, value: f64) -> Result<f64, InvalidParameter> {
    match value.is_finite() && value >= 0.0 {
        true => Ok(value),
        false => Err(InvalidParameter { name, value, expected: "a finite number, 0 or more" }),
    }
}
