//! The squared error against a constant.

// `#[cube]` expects `cubecl` by that name.
use cubecl::prelude::*;
use reduce_kernels::{
    ElementType, Map, cubecl,
    operator::{InvalidParameter, One, ParameterRule, Parameters},
};

/// `(element - target)²`, in front of any operator:
/// `reduce(Mean, &x).mapped(SquaredError { target: 0.5 })` is a mean squared error.
///
/// f64 stays f64. Every other type of numbers, integers too, becomes f32, and with it the result;
/// bools are refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SquaredError {
    /// What an element without error is: a finite number.
    pub target: f64,
}

#[cube]
impl Map for SquaredError {
    type Inputs = One;

    const NAME: &'static str = "squared error";
    const TYPES: fn(ElementType) -> Option<ElementType> = mapped_type;
    const PARAMETERS: ParameterRule<Self> = |map| checked(map.target);
    const PARAMETER_COUNT: usize = 1;

    fn map<E: Float, N: Size>(value: Vector<E, N>, parameters: &Parameters) -> Vector<E, N> {
        let error = value - Vector::new(parameters.get::<E>(0usize));
        error * error
    }
}

fn mapped_type(input: ElementType) -> Option<ElementType> {
    match input {
        ElementType::Bool => None,
        ElementType::F64 => Some(ElementType::F64),
        _ => Some(ElementType::F32),
    }
}

fn checked(target: f64) -> Result<Vec<f64>, InvalidParameter> {
    if target.is_finite() {
        Ok(vec![target])
    } else {
        Err(InvalidParameter { name: "target", value: target, expected: "a finite number" })
    }
}
