//! A scan as data.

use burn_backend::{Backend, DType};
use burn_tensor::{Shape, kind::Kind};
use reduce_kernels::by_name::{OperatorName, OperatorOptions};

use crate::{axes::ScanAxes, error::ReduceBurnError, reduction::Reduction, tensor::AnyTensor};

/// The results of an operator at each position of the axes of a tensor, in their row-major order.
/// It knows the shape and the types of its results before it runs.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The reduction whose results these are. It keeps the axes with size 1.
    reduction: Reduction,
    exclusive: bool,
    reverse: bool,
}

impl Scan {
    /// A scan of `tensor`. Its results have the shape of the tensor, and the types that a
    /// [`Reduction`] with the operator gives.
    ///
    /// # Errors
    ///
    /// An operator that no function of [`scan`](crate::scan) has, a kind of tensor that it does not
    /// take, and axes that the tensor does not have or that are named twice.
    pub fn new<B: Backend>(
        operator: OperatorName,
        options: OperatorOptions,
        tensor: &AnyTensor<B>,
        axes: &ScanAxes,
    ) -> Result<Self, ReduceBurnError> {
        if name_of(operator).is_none() {
            return Err(ReduceBurnError::NoScan { operator: operator.name() });
        }
        let ScanAxes { axes, exclusive, reverse } = axes;
        let reduction = Reduction::described(operator, options, tensor, axes, true)?;
        Ok(Self { reduction, exclusive: *exclusive, reverse: *reverse })
    }

    /// The name of the function.
    pub(crate) fn name(&self) -> &'static str {
        name_of(self.operator()).expect("`Scan::new` refuses other operators")
    }

    /// The scan with another operator, of a float tensor of the same shape and of this type, which
    /// the results have too.
    pub(crate) fn with(&self, operator: OperatorName, dtype: DType) -> Self {
        Self { reduction: self.reduction.with(operator).of(Kind::Float, dtype), ..self.clone() }
    }

    /// The same scan, whose values are of another type than the input.
    pub(crate) fn with_value_type(&self, value: DType) -> Self {
        Self { reduction: self.reduction.with_value_type(value), ..self.clone() }
    }

    /// The scan from the other end: its result at a position is of the elements whose results have
    /// the element at that position.
    pub(crate) fn turned(&self) -> Self {
        Self { reverse: !self.reverse, ..self.clone() }
    }

    /// The same scan without the elements at the positions themselves.
    pub(crate) fn excluding(&self) -> Self {
        Self { exclusive: true, ..self.clone() }
    }

    /// The reduction whose results these are, which keeps the axes with size 1.
    pub(crate) fn reduction(&self) -> &Reduction {
        &self.reduction
    }

    /// The operator.
    pub fn operator(&self) -> OperatorName {
        self.reduction.operator()
    }

    /// The parameters of the operator.
    pub fn options(&self) -> OperatorOptions {
        self.reduction.options()
    }

    /// The kind and the type of the input.
    pub fn input(&self) -> (Kind, DType) {
        self.reduction.input()
    }

    /// The shape of the input and of each result.
    pub fn shape(&self) -> &Shape {
        self.reduction.input_shape()
    }

    /// The scanned axes, in ascending order.
    pub fn axes(&self) -> &[usize] {
        self.reduction.axes()
    }

    /// Whether the result at a position leaves out the element there.
    pub fn is_exclusive(&self) -> bool {
        self.exclusive
    }

    /// Whether the scan begins at the last position.
    pub fn is_reverse(&self) -> bool {
        self.reverse
    }

    /// The kind and the type of each result. Where a backward pass needs a result, values of f16
    /// and bf16 are asked for in f32.
    pub fn outputs(&self) -> Vec<(Kind, DType)> {
        self.reduction.outputs()
    }
}

/// The name of the function that scans with an operator.
fn name_of(operator: OperatorName) -> Option<&'static str> {
    use OperatorName::*;

    Some(match operator {
        Sum => "cumsum",
        Prod => "cumprod",
        Max => "cummax",
        Min => "cummin",
        MaxWithIndex => "cummax_with_positions",
        MinWithIndex => "cummin_with_positions",
        LogSumExp => "logcumsumexp",
        Mean => "cummean",
        Var => "cumvar",
        MeanVar => "cummean_var",
        All => "cumall",
        Any => "cumany",
        _ => return None,
    })
}
