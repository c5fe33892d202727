//! What an operator depends on at run time.
#![allow(
    missing_docs,
    missing_debug_implementations,
    reason = "CubeCL's macros add items without documentation and types without Debug"
)]

use cubecl::prelude::*;

/// The numbers of an operator's value, such as the correction of a variance, as its functions see
/// them. They are arguments of the kernel, so that another number needs no other kernel.
#[derive(CubeType, CubeLaunch)]
pub struct Parameters {
    values: Sequence<InputScalar>,
    #[cube(comptime)]
    skipped: usize,
}

#[cube]
impl Parameters {
    /// Parameter number `index`, in the order of [`Operator::PARAMETERS`](super::Operator).
    pub fn get<E: Float>(&self, #[comptime] index: usize) -> E {
        self.values.index(comptime![self.skipped + index]).get::<E>()
    }

    /// Without the first `count`.
    pub(crate) fn skip(&self, #[comptime] count: usize) -> Parameters {
        Parameters { values: self.values.clone(), skipped: comptime![self.skipped + count] }
    }
}

impl<R: Runtime> ParametersLaunch<R> {
    /// The launch argument for these numbers, as values of `storage`.
    pub(crate) fn of(numbers: &[f64], storage: cubecl::ir::StorageType) -> Self {
        let mut values = SequenceArg::new();
        numbers.iter().for_each(|&number| values.push(InputScalar::new(number, storage)));
        Self::new(values, 0)
    }
}

/// Reads the numbers out of an operator's value, or refuses one.
pub type ParameterRule<O> = fn(&O) -> Result<Vec<f64>, InvalidParameter>;

/// A number that an operator cannot work with.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{name} is {value}, but must be {expected}")]
pub struct InvalidParameter {
    /// Name of the parameter.
    pub name: &'static str,
    /// The number.
    pub value: f64,
    /// What it must be.
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
