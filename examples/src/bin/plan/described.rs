//! The reduction that the command line describes.

use std::collections::BTreeMap;

use reduce_examples::Operation;
use reduce_kernels::{
    Axes, ElementType, Operator, ReduceError, Reduction, TensorDescription,
    by_name::{with_operator, with_pair},
    pairs::reduce_pair,
    planner::{Problem, row_major_strides},
    reduce,
};
use serde::Serialize;

/// A tensor that need not exist.
#[derive(Serialize)]
pub(crate) struct Tensor {
    pub(crate) dtype: ElementType,
    pub(crate) shape: Vec<usize>,
    /// In elements.
    strides: Vec<usize>,
}

impl Tensor {
    /// A tensor with these strides, or a row-major one.
    pub(crate) fn new(dtype: ElementType, shape: Vec<usize>, strides: Option<Vec<usize>>) -> Self {
        let strides = strides.unwrap_or_else(|| row_major_strides(&shape));
        Self { dtype, shape, strides }
    }

    fn description(&self) -> TensorDescription {
        TensorDescription::strided(self.dtype, self.shape.clone(), self.strides.clone())
    }
}

/// A reduction.
pub(crate) struct Described {
    pub(crate) operation: Operation,
    /// The parameters on the command line, each by the name of its option.
    pub(crate) parameters: BTreeMap<&'static str, f64>,
    pub(crate) input: Tensor,
    pub(crate) second: Option<Tensor>,
    pub(crate) axes: Vec<usize>,
    pub(crate) output_type: Option<ElementType>,
    pub(crate) accumulate_in: Option<ElementType>,
}

impl Described {
    /// The canonical problem.
    pub(crate) fn problem(&self) -> Result<Problem, ReduceError> {
        let input = self.input.description();
        match self.operation {
            Operation::OfOne(operator, options) => with_operator!(operator, options, operator => {
                self.problem_of(reduce(operator, &input))
            }),
            Operation::OfTwo(pair, options) => {
                let second = self.second.as_ref().expect("an operation of two has a second input");
                let second = second.description();
                with_pair!(pair, options, operator => {
                    self.problem_of(reduce_pair(operator, &input, &second))
                })
            }
        }
    }

    fn problem_of<O: Operator>(
        &self,
        mut reduction: Reduction<'_, O, TensorDescription>,
    ) -> Result<Problem, ReduceError> {
        reduction = reduction.over(Axes::List(self.axes.clone()));
        if let Some(element) = self.output_type {
            reduction = reduction.output_type(element);
        }
        if let Some(element) = self.accumulate_in {
            reduction = reduction.accumulate_in(element);
        }
        reduction.problem()
    }
}
