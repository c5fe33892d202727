//! One call of a case.

use reduce_kernels::{
    Operator, Outputs, ReduceError,
    by_name::{OperatorOptions, with_operator},
    cubecl::{prelude::*, std::tensor::TensorHandle},
    operator::Arity,
    planner::Plan,
    reduce,
};
use reduce_programs::random_inputs;

use crate::Case;

/// Enough inputs for a case that back-to-back calls over them find none in cache: `rotated` bytes
/// of them, or 1 GiB. Floats lie evenly in [-1, 1) with random mantissas, integers in the range of
/// a byte.
pub fn inputs(client: &Client, case: &Case, rotated: Option<usize>) -> Vec<TensorHandle> {
    random_inputs(client, case.element, &case.shape(), &case.strides(), rotated)
}

/// Launches one call of a case with `plan`, or with the one that the library chooses; a tensor for
/// each result.
///
/// # Errors
///
/// What [`Reduction::run`](reduce_kernels::Reduction::run) refuses.
pub fn run(
    client: &Client,
    case: &Case,
    input: &TensorHandle,
    plan: Option<Plan>,
) -> Result<Vec<TensorHandle>, ReduceError> {
    fn list<O: Operator, X>(_: O, each: Outputs<O, X>) -> Vec<X> {
        O::Results::into_list(each)
    }
    with_operator!(case.operator, OperatorOptions::default(), operator => {
        let reduction = reduce(operator, input).over(case.axes());
        let reduction = match plan {
            Some(plan) => reduction.with_plan(plan),
            None => reduction,
        };
        reduction.run(client).map(|each| list(operator, each))
    })
}
