//! The reduction, the application of one, or the scan that the command line describes.

use std::collections::BTreeMap;

use reduce_examples::{AppliedFunction, Function, Operation, Scanned, with_function};
use reduce_kernels::{
    Axes, ElementType, Operator, ReduceError, Reduction, TensorDescription,
    by_name::{AppliedOptions, with_operator, with_pair},
    normalize::AppliedReduction,
    operator::{Apply, Arity, Fields},
    pairs::reduce_pair,
    planner::{AppliedProblem, Problem, ScanProblem, TopKProblem, row_major_strides},
    reduce,
    scan::scan,
    top_k::{Over, largest},
};
use serde::Serialize;

/// The name of selections.
pub(crate) const TOP_K: &str = "top_k";

/// The name of masks of selected elements.
pub(crate) const TOP_K_MASK: &str = "top_k_mask";

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

/// What is planned.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// A reduction.
    Reduction(Operation),
    /// A function of each slice that gives an array of the input's shape.
    Application(AppliedFunction, AppliedOptions),
    /// The results at each position.
    Scan(Scanned),
    /// The selection of so many elements of each slice.
    Selection(usize),
    /// The input with a number in place of all but so many elements of each slice.
    Mask(usize, f32),
}

impl Work {
    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Work::Reduction(operation) => operation.name(),
            Work::Application(function, _) => function.name(),
            Work::Scan(scanned) => scanned.name.name(),
            Work::Selection(_) => TOP_K,
            Work::Mask(..) => TOP_K_MASK,
        }
    }
}

/// A reduction, the application of one, or a scan.
pub(crate) struct Described {
    pub(crate) work: Work,
    /// The parameters on the command line, each by the name of its option.
    pub(crate) parameters: BTreeMap<&'static str, f64>,
    /// The probabilities that a selection gives in place of values.
    pub(crate) probabilities: Option<Over>,
    pub(crate) input: Tensor,
    pub(crate) second: Option<Tensor>,
    pub(crate) axes: Vec<usize>,
    pub(crate) output_type: Option<ElementType>,
    pub(crate) accumulate_in: Option<ElementType>,
}

impl Described {
    /// What is computed.
    pub(crate) fn function(&self) -> Function {
        match self.work {
            Work::Application(..) => Function::Apply { apply: self.work.name() },
            Work::Scan(scanned) => scanned.function(),
            _ => Function::Op { op: self.work.name() },
        }
    }

    /// The canonical problem of an application, and that of its reduction alone.
    pub(crate) fn applied(
        &self,
        function: AppliedFunction,
        options: AppliedOptions,
    ) -> Result<(AppliedProblem, Problem), ReduceError> {
        let input = self.input.description();
        let axes = Axes::List(self.axes.clone());
        let second = self.second.as_ref().unwrap_or(&self.input).description();
        with_function!(function, options, &input, &second, axes, applied => {
            self.problems_of(applied)
        })
    }

    /// The type is that of the last output: a sum that is an output too keeps its own.
    fn problems_of<O: Operator, F: Apply<Results = O::Results>>(
        &self,
        applied: AppliedReduction<'_, O, F, TensorDescription>,
    ) -> Result<(AppliedProblem, Problem), ReduceError> {
        let last = F::Outputs::COUNT - 1;
        match self.output_type {
            Some(element) => {
                let outputs = F::Outputs::each(|nth| (nth == last).then_some(element));
                applied.output_types(outputs).problems()
            }
            None => applied.problems(),
        }
    }

    /// The canonical problem of a scan.
    pub(crate) fn scan(&self, scanned: Scanned) -> Result<ScanProblem, ReduceError> {
        let input = self.input.description();
        with_operator!(scanned.name.operator(), scanned.options, operator => {
            let scan = scan(operator, &input);
            scanned.described(scan, &self.axes, self.output_type, self.accumulate_in).problem()
        })
    }

    /// The canonical problem of the selection of `k` elements, or of their probabilities.
    pub(crate) fn selection(&self, k: usize) -> Result<TopKProblem, ReduceError> {
        let input = self.input.description();
        let mut selection = largest(k, &input).over(Axes::List(self.axes.clone()));
        if let Some(over) = self.probabilities {
            selection = selection.probabilities(over);
        }
        if let Some(element) = self.output_type {
            selection = selection.value_type(element);
        }
        selection.problem()
    }

    /// The canonical problem of the mask of `k` elements.
    pub(crate) fn mask(&self, k: usize, fill: f32) -> Result<TopKProblem, ReduceError> {
        let input = self.input.description();
        largest(k, &input).over(Axes::List(self.axes.clone())).masked(fill).problem()
    }

    /// The canonical problem of a reduction.
    pub(crate) fn problem(&self, operation: Operation) -> Result<Problem, ReduceError> {
        let input = self.input.description();
        match operation {
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
