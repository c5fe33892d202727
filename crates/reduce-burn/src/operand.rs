//! Arithmetic on a backend's float tensors of any rank, so that formulas read as formulas.

use core::ops::{Add, Div, Mul, Sub};

use burn_backend::{
    Backend, DType, Scalar, TensorMetadata, get_device_settings,
    tensor::{BoolTensor, Device, FloatTensor},
};
use burn_std::BoolDType;
use burn_tensor::Shape;

/// A float tensor. Operators broadcast axes of size 1.
#[derive(Clone, Debug)]
pub(crate) struct Operand<B: Backend>(pub(crate) FloatTensor<B>);

impl<B: Backend> Operand<B> {
    pub(crate) fn zeros(shape: Shape, dtype: DType, device: &Device<B>) -> Self {
        Self(match shape.num_elements() {
            // On CUDA, Burn cannot fill a tensor without elements.
            0 => B::float_empty(shape, device, dtype.into()),
            _ => B::float_zeros(shape, device, dtype.into()),
        })
    }

    pub(crate) fn zeros_like(&self, shape: Shape) -> Self {
        Self::zeros(shape, self.0.dtype(), &self.0.device())
    }

    pub(crate) fn bool_dtype(&self) -> BoolDType {
        get_device_settings::<B>(&self.0.device()).bool_dtype
    }

    pub(crate) fn reshape(self, shape: Shape) -> Self {
        Self(B::float_reshape(self.0, shape))
    }

    pub(crate) fn expand(self, shape: Shape) -> Self {
        Self(B::float_expand(self.0, shape))
    }

    pub(crate) fn abs(self) -> Self {
        Self(B::float_abs(self.0))
    }

    pub(crate) fn sign(self) -> Self {
        Self(B::float_sign(self.0))
    }

    pub(crate) fn exp(self) -> Self {
        Self(B::float_exp(self.0))
    }

    pub(crate) fn log(self) -> Self {
        Self(B::float_log(self.0))
    }

    /// The logarithm of one more.
    pub(crate) fn log_of_one_more(self) -> Self {
        Self(B::float_log1p(self.0))
    }

    pub(crate) fn sqrt(self) -> Self {
        Self(B::float_sqrt(self.0))
    }

    pub(crate) fn reciprocal(self) -> Self {
        Self(B::float_recip(self.0))
    }

    pub(crate) fn powf(self, exponent: f64) -> Self {
        Self(B::float_powf_scalar(self.0, exponent.into()))
    }

    /// No element is below `least`.
    pub(crate) fn at_least(self, least: f64) -> Self {
        Self(B::float_clamp_min(self.0, least.into()))
    }

    /// No element is above `most`.
    pub(crate) fn at_most(self, most: f64) -> Self {
        Self(B::float_clamp_max(self.0, most.into()))
    }

    /// The sum along an axis, which stays with size 1.
    pub(crate) fn sum(self, axis: usize) -> Self {
        Self(B::float_sum_dim(self.0, axis))
    }

    /// The product along an axis, which stays with size 1.
    pub(crate) fn product(self, axis: usize) -> Self {
        Self(B::float_prod_dim(self.0, axis))
    }

    /// The running sums along an axis.
    pub(crate) fn running_sum(self, axis: usize) -> Self {
        Self(B::float_cumsum(self.0, axis))
    }

    /// The running products along an axis.
    pub(crate) fn running_product(self, axis: usize) -> Self {
        Self(B::float_cumprod(self.0, axis))
    }

    /// The backend's minimum along an axis, which stays with size 1.
    pub(crate) fn least(self, axis: usize) -> Self {
        Self(B::float_min_dim(self.0, axis))
    }

    /// The backend's maximum along an axis, which stays with size 1.
    pub(crate) fn largest(self, axis: usize) -> Self {
        Self(B::float_max_dim(self.0, axis))
    }

    pub(crate) fn equals_each(&self, other: Self) -> BoolTensor<B> {
        B::float_equal(self.0.clone(), other.0, self.bool_dtype())
    }

    /// Where the elements are above those of the other tensor.
    pub(crate) fn is_above_each(&self, other: Self) -> BoolTensor<B> {
        B::float_greater(self.0.clone(), other.0, self.bool_dtype())
    }

    pub(crate) fn equals(&self, value: f64) -> BoolTensor<B> {
        B::float_equal_elem(self.0.clone(), value.into(), self.bool_dtype())
    }

    pub(crate) fn differs_from(&self, value: f64) -> BoolTensor<B> {
        B::bool_not(self.equals(value))
    }

    pub(crate) fn is_below(&self, value: f64) -> BoolTensor<B> {
        B::float_lower_elem(self.0.clone(), value.into(), self.bool_dtype())
    }

    pub(crate) fn is_above(&self, value: f64) -> BoolTensor<B> {
        B::float_greater_elem(self.0.clone(), value.into(), self.bool_dtype())
    }

    pub(crate) fn is_nan(&self) -> BoolTensor<B> {
        B::float_is_nan(self.0.clone(), self.bool_dtype())
    }

    pub(crate) fn is_infinite(&self) -> BoolTensor<B> {
        B::float_is_inf(self.0.clone(), self.bool_dtype())
    }

    /// The tensor in f32, unless it is of f64.
    pub(crate) fn wide(self) -> Self {
        let wide = wide(self.0.dtype());
        self.cast(wide)
    }

    pub(crate) fn cast(self, dtype: DType) -> Self {
        if self.0.dtype() == dtype { self } else { Self(B::float_cast(self.0, dtype.into())) }
    }

    /// The tensor with `value` where `mask` is true.
    pub(crate) fn fill(self, mask: BoolTensor<B>, value: f64) -> Self {
        Self(B::float_mask_fill(self.0, mask, value.into()))
    }
}

/// The type in which gradients of tensors of `dtype` are computed.
pub(crate) fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

macro_rules! arithmetic {
    ($($trait:ident $function:ident $tensors:ident $scalar:ident;)*) => {
        $(
            impl<B: Backend> $trait for Operand<B> {
                type Output = Self;

                fn $function(self, other: Self) -> Self {
                    Self(B::$tensors(self.0, other.0))
                }
            }

            impl<B: Backend> $trait<f64> for Operand<B> {
                type Output = Self;

                fn $function(self, other: f64) -> Self {
                    Self(B::$scalar(self.0, Scalar::from(other)))
                }
            }
        )*
    };
}

arithmetic! {
    Add add float_add float_add_scalar;
    Sub sub float_sub float_sub_scalar;
    Mul mul float_mul float_mul_scalar;
    Div div float_div float_div_scalar;
}
