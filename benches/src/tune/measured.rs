//! The kinds of recorded calls whose plans are measured: what each reads, and how it is launched.

use std::{fmt, hash::Hash};

use reduce_kernels::{
    Axes, ElementType, Input, Operator, Outputs, ReduceError, TensorDescription,
    by_name::{OperatorName, OperatorOptions, PairName, PairOptions, with_operator, with_pair},
    cubecl::{prelude::*, std::tensor::TensorHandle},
    list::{ClippedToNorm, ListReduction, reduce_list},
    normalize::{AppliedOutputs, AppliedReduction},
    operator::{Apply, Arity, One},
    operators::NormL2,
    planner::{
        self, AppliedListPlan, AppliedListProblem, AppliedPlan, AppliedProblem, ListPlan,
        ListProblem, Plan, Planned, Problem, ScanPlan, ScanProblem, TopKPlan, TopKProblem,
    },
    plans::{
        RecordedApplication, RecordedList, RecordedListApplication, RecordedOperand,
        RecordedReduction, RecordedScan, RecordedTensor, RecordedTopK,
    },
    scan::{Scan, scan},
    storage_type,
};
use reduce_programs::largest_buffer;

use super::SkipReason;
use crate::applying::{Function, WithApplication};

/// A recorded call whose plans are measured.
pub trait Measured: fmt::Display {
    /// What its plans are for.
    type Problem: Planned<Plan: Eq + Hash>;

    /// Its problem.
    ///
    /// # Errors
    ///
    /// It is of no operator or function of the library, or cannot be computed.
    fn problem(&self) -> Result<Self::Problem, SkipReason>;

    /// Checks that a device can run it, and gives its problem.
    ///
    /// # Errors
    ///
    /// The reason why it cannot.
    fn check(&self, client: &Client) -> Result<Self::Problem, SkipReason>;

    /// The tensors that a call reads, the input first.
    fn tensors(&self) -> Vec<Tensor<'_>>;

    /// Launches one call with a plan, on the tensors of [`tensors`](Self::tensors). `turn` is the
    /// number of the call.
    ///
    /// # Errors
    ///
    /// What the call refuses.
    fn launch(
        &self,
        client: &Client,
        tensors: &[&TensorHandle],
        plan: &PlanOf<Self>,
        turn: usize,
    ) -> Result<(), ReduceError>;
}

/// The plans of a recorded call.
pub type PlanOf<M> = <<M as Measured>::Problem as Planned>::Plan;

/// How a tensor that a call reads lies in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tensor<'a> {
    /// Type of its elements.
    pub element: ElementType,
    /// Its shape.
    pub shape: &'a [usize],
    /// Its strides, in elements.
    pub strides: &'a [usize],
    /// Alignment in bytes of its first element.
    pub alignment: usize,
    /// Whether calls take others like it in turn, so that none finds it in the cache.
    pub in_turn: bool,
}

impl<'a> Tensor<'a> {
    fn input(reduction: &'a RecordedReduction) -> Self {
        let RecordedReduction { element, shape, strides, alignment, .. } = reduction;
        Self { element: *element, shape, strides, alignment: *alignment, in_turn: true }
    }

    /// A tensor beside an input of this shape. One that repeats its elements, such as a weight,
    /// stays in the cache of a model too.
    fn beside(shape: &'a [usize], recorded: &'a RecordedOperand) -> Self {
        let RecordedOperand { element, strides, alignment, .. } = recorded;
        let in_turn = strides.iter().all(|&stride| stride > 0);
        Self { element: *element, shape, strides, alignment: *alignment, in_turn }
    }

    /// The tensors of a list are the same in each call, as gradients are.
    fn listed(recorded: &'a RecordedTensor) -> Self {
        let RecordedTensor { element, shape, strides, alignment, .. } = recorded;
        Self { element: *element, shape, strides, alignment: *alignment, in_turn: false }
    }

    /// The tensor without memory.
    fn described(&self) -> TensorDescription {
        TensorDescription::strided(self.element, self.shape, self.strides)
    }

    /// Elements that it spans, and their type.
    fn span(&self) -> (usize, ElementType) {
        (planner::span(self.shape, self.strides).unwrap_or(usize::MAX), self.element)
    }
}

/// The input and the second one of a reduction.
fn inputs(reduction: &RecordedReduction) -> Vec<Tensor<'_>> {
    let second = reduction.second.iter().map(|second| Tensor::beside(&reduction.shape, second));
    core::iter::once(Tensor::input(reduction)).chain(second).collect()
}

/// Checks that a device has a buffer for the largest of tensors that span so many elements.
///
/// # Errors
///
/// [`SkipReason::TooLarge`].
fn check_bytes(
    client: &Client,
    spans: impl IntoIterator<Item = (usize, ElementType)>,
) -> Result<(), SkipReason> {
    let of_tensor = |(span, element): (usize, ElementType)| {
        (span as u64).saturating_mul(element.bytes() as u64)
    };
    let needed = spans.into_iter().map(of_tensor).max().unwrap_or(0);
    let available = largest_buffer(client);
    match needed > available {
        true => Err(SkipReason::TooLarge { needed, available }),
        false => Ok(()),
    }
}

/// A new tensor of this layout.
fn output(
    client: &Client,
    element: ElementType,
    shape: &[usize],
    strides: &[usize],
) -> TensorBinding {
    let span = planner::span(shape, strides).unwrap_or(0).max(1);
    let handle = client.empty(span * element.bytes());
    TensorHandle::new(handle, shape, strides, storage_type(element)).binding()
}

/// The axes of a recorded reduction.
fn axes_of(reduction: &RecordedReduction) -> Axes {
    reduction.axes.clone().map_or(Axes::All, Axes::List)
}

/// What is done with the operator of a reduction.
trait WithOperator {
    type Output;

    fn with<O: Operator>(self, operator: O) -> Self::Output;
}

/// Does something with the operator that a reduction names; `None` if the library has none of that
/// name.
fn with_operator_of<W: WithOperator>(reduction: &RecordedReduction, what: W) -> Option<W::Output> {
    fn is_of<O: Operator>(reduction: &RecordedReduction, _: O) -> bool {
        reduction.is_of::<O>()
    }
    if let Ok(name) = reduction.operator.parse::<OperatorName>() {
        return Some(with_operator!(name, OperatorOptions::default(), operator => {
            what.with(operator)
        }));
    }
    let is_named = |&name: &PairName| {
        with_pair!(name, PairOptions::default(), operator => {
            is_of(reduction, operator)
        })
    };
    let name = PairName::ALL.iter().copied().find(is_named)?;
    Some(with_pair!(name, PairOptions::default(), operator => what.with(operator)))
}

/// The problem of a reduction, if its operator is one of the library's.
pub fn problem(reduction: &RecordedReduction) -> Option<Result<Problem, ReduceError>> {
    struct ProblemOf<'a>(&'a RecordedReduction);

    impl WithOperator for ProblemOf<'_> {
        type Output = Result<Problem, ReduceError>;

        fn with<O: Operator>(self, _: O) -> Self::Output {
            self.0.problem::<O>()
        }
    }

    with_operator_of(reduction, ProblemOf(reduction))
}

impl Measured for RecordedReduction {
    type Problem = Problem;

    fn problem(&self) -> Result<Problem, SkipReason> {
        Ok(problem(self).ok_or_else(|| SkipReason::Operator(self.operator.clone()))??)
    }

    fn check(&self, client: &Client) -> Result<Problem, SkipReason> {
        struct Check<'a>(&'a Client, &'a RecordedReduction);

        impl WithOperator for Check<'_> {
            type Output = Result<(), ReduceError>;

            fn with<O: Operator>(self, operator: O) -> Self::Output {
                let Self(client, reduction) = self;
                let mut tensors = inputs(reduction).into_iter().map(|tensor| tensor.described());
                let input = tensors.next().expect("a reduction has an input");
                let second = tensors.next();
                reduction.reduction(operator, &input, second.as_ref()).check(client)
            }
        }

        let problem = Measured::problem(self)?;
        let results = problem.results().iter().map(|&result| (problem.output_span(), result));
        check_bytes(client, inputs(self).iter().map(Tensor::span).chain(results))?;
        with_operator_of(self, Check(client, self)).expect("the operator is known")?;
        Ok(problem)
    }

    fn tensors(&self) -> Vec<Tensor<'_>> {
        inputs(self)
    }

    fn launch(
        &self,
        client: &Client,
        tensors: &[&TensorHandle],
        &plan: &Plan,
        _: usize,
    ) -> Result<(), ReduceError> {
        struct Call<'a> {
            client: &'a Client,
            reduction: &'a RecordedReduction,
            tensors: &'a [&'a TensorHandle],
            plan: Plan,
        }

        impl WithOperator for Call<'_> {
            type Output = Result<(), ReduceError>;

            fn with<O: Operator>(self, operator: O) -> Self::Output {
                let Self { client, reduction, tensors, plan } = self;
                let (first, second) = (tensors[0], tensors.get(1).copied());
                let call = reduction.reduction(operator, first, second).with_plan(plan);
                let Some(strides) = &reduction.output_strides else {
                    return call.run(client).map(drop);
                };
                let shape = reduction.kept_shape()?;
                let types = O::Results::into_list(call.output_types()?);
                let outputs: Outputs<O, TensorBinding> =
                    O::Results::each(|nth| output(client, types[nth], &shape, strides));
                call.run_into(client, outputs)
            }
        }

        let call = Call { client, reduction: self, tensors, plan };
        with_operator_of(self, call).expect("the reduction was checked")
    }
}

impl Measured for RecordedTopK {
    type Problem = TopKProblem;

    fn problem(&self) -> Result<TopKProblem, SkipReason> {
        Ok(RecordedTopK::problem(self)?)
    }

    fn check(&self, client: &Client) -> Result<TopKProblem, SkipReason> {
        let problem = Measured::problem(self)?;
        let results = problem.slices().results().iter();
        let results = results.map(|&result| (problem.output_span(), result));
        check_bytes(client, self.tensors().iter().map(Tensor::span).chain(results))?;
        self.would_compile(client)?;
        Ok(problem)
    }

    fn tensors(&self) -> Vec<Tensor<'_>> {
        let Self { element, shape, strides, alignment, table, .. } = self;
        let alignment = *alignment;
        let first = Tensor { element: *element, shape, strides, alignment, in_turn: true };
        let table = table.iter().map(|table| Tensor::beside(shape, table));
        core::iter::once(first).chain(table).collect()
    }

    fn launch(
        &self,
        client: &Client,
        tensors: &[&TensorHandle],
        &plan: &TopKPlan,
        _: usize,
    ) -> Result<(), ReduceError> {
        RecordedTopK::launch(self, client, tensors[0], tensors.get(1).copied(), plan)
    }
}

/// The function of the library that an application names, after its operator.
fn function_of(application: &RecordedApplication) -> Option<Function> {
    struct IsNamed<'a>(&'a RecordedApplication);

    impl<'a, T: Input> WithApplication<'a, T> for IsNamed<'_> {
        type Output = bool;

        fn with<O: Operator, F: Apply<Results = O::Results>>(
            self,
            _: AppliedReduction<'a, O, F, T>,
        ) -> bool {
            self.0.function == F::NAME && self.0.reduction.is_of::<O>()
        }
    }

    let input = Tensor::input(&application.reduction).described();
    Function::all().find(|function| function.visit(&input, &input, 0, IsNamed(application)))
}

/// The application of a record to tensors, which are those that the record reads.
fn as_recorded<'a, O: Operator, F: Apply<Results = O::Results>, T: Input>(
    application: &RecordedApplication,
    mut applied: AppliedReduction<'a, O, F, T>,
    operands: impl IntoIterator<Item = &'a T>,
) -> AppliedReduction<'a, O, F, T> {
    for operand in operands {
        applied = applied.operand(operand, ..);
    }
    let RecordedApplication { output, further, reduction, .. } = application;
    let further = further.iter().map(|of| of.element);
    let outputs: Vec<Option<ElementType>> = core::iter::once(*output).chain(further).collect();
    let outputs: AppliedOutputs<F, Option<ElementType>> =
        F::Outputs::each(|nth| outputs.get(nth).copied().flatten());
    applied.output_types(outputs).numerics(reduction.numerics)
}

impl Measured for RecordedApplication {
    type Problem = (AppliedProblem, Problem);

    fn problem(&self) -> Result<Self::Problem, SkipReason> {
        struct Problems<'a>(&'a RecordedApplication);

        impl<'a, T: Input> WithApplication<'a, T> for Problems<'_> {
            type Output = Result<(AppliedProblem, Problem), ReduceError>;

            fn with<O: Operator, F: Apply<Results = O::Results>>(
                self,
                _: AppliedReduction<'a, O, F, T>,
            ) -> Self::Output {
                self.0.problems::<O, F>()
            }
        }

        let RecordedApplication { function, reduction, segments, .. } = self;
        if segments.is_some() {
            return Err(SkipReason::Segments);
        }
        if reduction.accumulator.is_some() {
            return Err(SkipReason::Accumulator);
        }
        let unknown = || SkipReason::Function(function.clone(), reduction.operator.clone());
        let function = function_of(self).ok_or_else(unknown)?;
        let input = Tensor::input(reduction).described();
        Ok(function.visit(&input, &input, axes_of(reduction), Problems(self))?)
    }

    fn check(&self, client: &Client) -> Result<Self::Problem, SkipReason> {
        struct Check<'a> {
            client: &'a Client,
            application: &'a RecordedApplication,
            operands: &'a [TensorDescription],
        }

        impl<'a> WithApplication<'a, TensorDescription> for Check<'a> {
            type Output = Result<(), ReduceError>;

            fn with<O: Operator, F: Apply<Results = O::Results>>(
                self,
                applied: AppliedReduction<'a, O, F, TensorDescription>,
            ) -> Self::Output {
                let Self { client, application, operands } = self;
                let applied = as_recorded(application, applied, operands);
                match application.with_results {
                    true => applied.check_with_results(client),
                    false => applied.check(client),
                }
            }
        }

        let problem = self.problem()?;
        let function = function_of(self).expect("the function is known");
        let reduction = &self.reduction;
        let described: Vec<TensorDescription> =
            self.tensors().iter().map(Tensor::described).collect();
        let (input, second, operands) = beside(&described, reduction);
        let check = Check { client, application: self, operands };
        function.visit(input, second, axes_of(reduction), check)?;
        let shape = &reduction.shape;
        let spans = output_types(&problem.0).into_iter().enumerate().map(|(nth, element)| {
            let span = layouts(self).map(|layouts| planner::span(shape, layouts[nth]));
            let span = span.unwrap_or(Some(problem.0.elements()));
            (span.unwrap_or(usize::MAX), element)
        });
        check_bytes(client, self.tensors().iter().map(Tensor::span).chain(spans))?;
        Ok(problem)
    }

    fn tensors(&self) -> Vec<Tensor<'_>> {
        let shape = &self.reduction.shape;
        let operands = self.operands.iter().map(|operand| Tensor::beside(shape, operand));
        inputs(&self.reduction).into_iter().chain(operands).collect()
    }

    fn launch(
        &self,
        client: &Client,
        tensors: &[&TensorHandle],
        &plan: &AppliedPlan,
        _: usize,
    ) -> Result<(), ReduceError> {
        struct Launch<'a> {
            client: &'a Client,
            application: &'a RecordedApplication,
            operands: &'a [&'a TensorHandle],
            plan: AppliedPlan,
        }

        impl<'a> WithApplication<'a, TensorHandle> for Launch<'a> {
            type Output = Result<(), ReduceError>;

            fn with<O: Operator, F: Apply<Results = O::Results>>(
                self,
                applied: AppliedReduction<'a, O, F, TensorHandle>,
            ) -> Self::Output {
                let Self { client, application, operands, plan } = self;
                let applied = as_recorded(application, applied, operands.iter().copied());
                let applied = applied.with_plan(plan);
                let Some(layouts) = layouts(application) else {
                    return match application.with_results {
                        true => applied.run_with_results(client).map(drop),
                        false => applied.run(client).map(drop),
                    };
                };
                let types = output_types(&applied.problems()?.0);
                let shape = &application.reduction.shape;
                let outputs: AppliedOutputs<F, TensorBinding> =
                    F::Outputs::each(|nth| output(client, types[nth], shape, layouts[nth]));
                match application.with_results {
                    true => applied.run_into_with_results(client, outputs).map(drop),
                    false => applied.run_into(client, outputs),
                }
            }
        }

        let function = function_of(self).expect("the application was checked");
        let (input, second, operands) = beside(tensors, &self.reduction);
        let launch = Launch { client, application: self, operands, plan };
        function.visit(*input, *second, axes_of(&self.reduction), launch)
    }
}

/// The input, the second input or the first again, and the operands among the tensors of an
/// application.
fn beside<'a, T>(tensors: &'a [T], reduction: &RecordedReduction) -> (&'a T, &'a T, &'a [T]) {
    let inputs = 1 + usize::from(reduction.second.is_some());
    (&tensors[0], &tensors[inputs - 1], &tensors[inputs..])
}

/// The type of each output of an application.
fn output_types(problem: &AppliedProblem) -> Vec<ElementType> {
    core::iter::once(problem.output()).chain(problem.further().iter().copied()).collect()
}

/// The strides of the outputs that the caller of an application supplied.
fn layouts(application: &RecordedApplication) -> Option<Vec<&[usize]>> {
    let further = application.further.iter().map(|of| of.layout.as_ref());
    let layouts = core::iter::once(application.output_layout.as_ref()).chain(further);
    layouts.map(|layout| layout.map(|(strides, _)| &strides[..])).collect()
}

/// The operator of the library that a call names.
///
/// # Errors
///
/// There is none of its name.
fn operator_of(name: &str) -> Result<OperatorName, SkipReason> {
    name.parse().map_err(|_| SkipReason::Operator(name.to_owned()))
}

/// The reduction of tensors by an operator, with what a list records beside these.
fn list_of<'a, O: Operator<Inputs = One>, T: Input + 'a>(
    recorded: &RecordedList,
    operator: O,
    tensors: impl IntoIterator<Item = &'a T>,
) -> ListReduction<'a, O, T> {
    let mut list = reduce_list(operator, tensors).numerics(recorded.numerics);
    if let Some(accumulator) = recorded.accumulator {
        list = list.accumulate_in(accumulator);
    }
    for (nth, output) in recorded.outputs.iter().enumerate() {
        if let Some(output) = *output {
            list = list.nth_output_type(nth, output);
        }
    }
    list
}

impl Measured for RecordedList {
    type Problem = ListProblem;

    fn problem(&self) -> Result<ListProblem, SkipReason> {
        fn problem<O: Operator<Inputs = One>>(
            recorded: &RecordedList,
            _: O,
        ) -> Result<ListProblem, ReduceError> {
            recorded.problem::<O>()
        }

        let name = operator_of(&self.operator)?;
        with_operator!(name, OperatorOptions::default(), operator => Ok(problem(self, operator)?))
    }

    fn check(&self, client: &Client) -> Result<ListProblem, SkipReason> {
        let problem = Measured::problem(self)?;
        check_bytes(client, self.tensors().iter().map(Tensor::span))?;
        let described: Vec<TensorDescription> =
            self.tensors().iter().map(Tensor::described).collect();
        with_operator!(operator_of(&self.operator)?, OperatorOptions::default(), operator => {
            list_of(self, operator, &described).check(client)?;
        });
        Ok(problem)
    }

    fn tensors(&self) -> Vec<Tensor<'_>> {
        self.tensors.iter().map(Tensor::listed).collect()
    }

    fn launch(
        &self,
        client: &Client,
        tensors: &[&TensorHandle],
        plan: &ListPlan,
        _: usize,
    ) -> Result<(), ReduceError> {
        let name = operator_of(&self.operator).expect("the list was checked");
        with_operator!(name, OperatorOptions::default(), operator => {
            let list = list_of(self, operator, tensors.iter().copied());
            list.with_plan(plan.clone()).run(client).map(drop)
        })
    }
}

/// The norm to which call number `turn` clips tensors, a little less than the one before: of
/// tensors that need no clipping, none would be written. The step is some units in the last place
/// of f32.
fn max_norm(turn: usize) -> f64 {
    0.999_999f64.powi(turn.min(10_000_000) as i32)
}

impl Measured for RecordedListApplication {
    type Problem = AppliedListProblem;

    fn problem(&self) -> Result<AppliedListProblem, SkipReason> {
        let RecordedListApplication { function, list, .. } = self;
        let is_norm = list.operator.parse() == Ok(OperatorName::NormL2);
        if function != ClippedToNorm::NAME || !is_norm {
            return Err(SkipReason::Function(function.clone(), list.operator.clone()));
        }
        Ok(self.problem::<NormL2, ClippedToNorm>()?)
    }

    fn check(&self, client: &Client) -> Result<AppliedListProblem, SkipReason> {
        let RecordedListApplication { list, in_place, .. } = self;
        let problem = Measured::problem(self)?;
        check_bytes(client, self.tensors().iter().map(Tensor::span))?;
        let described: Vec<TensorDescription> =
            self.tensors().iter().map(Tensor::described).collect();
        let clip = ClippedToNorm { max_norm: max_norm(0) };
        list_of(list, NormL2, &described).apply(clip).check(client, *in_place)?;
        Ok(problem)
    }

    fn tensors(&self) -> Vec<Tensor<'_>> {
        self.list.tensors()
    }

    fn launch(
        &self,
        client: &Client,
        tensors: &[&TensorHandle],
        plan: &AppliedListPlan,
        turn: usize,
    ) -> Result<(), ReduceError> {
        let list = list_of(&self.list, NormL2, tensors.iter().copied());
        let clip = ClippedToNorm { max_norm: max_norm(turn) };
        let clipped = list.apply(clip).with_plan(plan.clone());
        match self.in_place {
            true => clipped.run_in_place(client).map(drop),
            false => clipped.run(client).map(drop),
        }
    }
}

/// The scan of a tensor by an operator, with what a record has beside these.
fn scan_of<'a, O: Operator<Inputs = One>, T: Input>(
    recorded: &RecordedScan,
    operator: O,
    input: &'a T,
) -> Scan<'a, O, T> {
    let RecordedScan { scanned, exclusive, reverse, .. } = recorded;
    let mut made = scan(operator, input).over(axes_of(scanned)).numerics(scanned.numerics);
    if *exclusive {
        made = made.exclusive();
    }
    if *reverse {
        made = made.reverse();
    }
    if let Some(accumulator) = scanned.accumulator {
        made = made.accumulate_in(accumulator);
    }
    for (nth, output) in scanned.outputs.iter().enumerate() {
        if let Some(output) = *output {
            made = made.nth_output_type(nth, output);
        }
    }
    made
}

impl Measured for RecordedScan {
    type Problem = ScanProblem;

    fn problem(&self) -> Result<ScanProblem, SkipReason> {
        fn problem<O: Operator<Inputs = One>>(
            recorded: &RecordedScan,
            _: O,
        ) -> Result<ScanProblem, ReduceError> {
            recorded.problem::<O>()
        }

        let name = operator_of(&self.scanned.operator)?;
        with_operator!(name, OperatorOptions::default(), operator => Ok(problem(self, operator)?))
    }

    fn check(&self, client: &Client) -> Result<ScanProblem, SkipReason> {
        let problem = Measured::problem(self)?;
        let input = Tensor::input(&self.scanned);
        let results = problem.problem().results().iter();
        let results = results.map(|&result| (problem.problem().output_span(), result));
        check_bytes(client, core::iter::once(input.span()).chain(results))?;
        let described = input.described();
        with_operator!(operator_of(&self.scanned.operator)?, OperatorOptions::default(), operator => {
            scan_of(self, operator, &described).check(client)?;
        });
        Ok(problem)
    }

    fn tensors(&self) -> Vec<Tensor<'_>> {
        vec![Tensor::input(&self.scanned)]
    }

    fn launch(
        &self,
        client: &Client,
        tensors: &[&TensorHandle],
        &plan: &ScanPlan,
        _: usize,
    ) -> Result<(), ReduceError> {
        fn run<O: Operator<Inputs = One>>(
            client: &Client,
            scan: Scan<'_, O, TensorHandle>,
            layout: Option<(&[usize], &[usize])>,
        ) -> Result<(), ReduceError> {
            let Some((shape, strides)) = layout else { return scan.run(client).map(drop) };
            let types = O::Results::into_list(scan.output_types()?);
            let outputs: Outputs<O, TensorBinding> =
                O::Results::each(|nth| output(client, types[nth], shape, strides));
            scan.run_into(client, outputs)
        }

        let name = operator_of(&self.scanned.operator).expect("the scan was checked");
        let layout = self.output_layout.as_ref();
        let layout = layout.map(|(strides, _)| (&self.scanned.shape[..], &strides[..]));
        with_operator!(name, OperatorOptions::default(), operator => {
            run(client, scan_of(self, operator, tensors[0]).with_plan(plan), layout)
        })
    }
}
