//! Cases to tune, their calls, and the summary of what tuning found.

use std::{collections::HashMap, fmt, hash::Hash, time::Instant};

use reduce_kernels::{
    ElementType, Operator, Outputs, ReduceError, TensorDescription,
    by_name::{OperatorName, OperatorOptions, PairName, PairOptions, with_operator, with_pair},
    cubecl::{prelude::*, std::tensor::TensorHandle},
    operator::Arity,
    planner::{self, Plan, Planned, Problem, TopKPlan, TopKProblem, Tuned},
    plans::{RecordedCall, RecordedError, RecordedOperand, RecordedReduction, RecordedTopK},
    reduce, storage_type,
};
use reduce_programs::{MeasureError, largest_buffer, random_inputs, wait};

use crate::{
    Case, CaseError, StatedCase,
    selecting::{Selecting, SelectingError, Selection},
};

/// A line that states no reduction.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// It is in words, and no case.
    #[error(transparent)]
    Case(#[from] CaseError),
    /// It begins with the name of a selection, and is no case.
    #[error(transparent)]
    Selecting(#[from] SelectingError),
    /// It is JSON, and no recorded call.
    #[error(transparent)]
    Recorded(#[from] RecordedError),
    /// The call is of no tensor.
    #[error(transparent)]
    Reduce(#[from] ReduceError),
}

/// Why a case is left out.
#[derive(Debug, thiserror::Error)]
pub enum SkipReason {
    /// The operator is not one of the library's.
    #[error("no operator of the library is called `{0}`")]
    Operator(String),
    /// It is of another kind, whose plans are not measured.
    #[error("the program measures plans of reductions and of selections")]
    Kind,
    /// The device cannot run it, or it is no reduction.
    #[error(transparent)]
    Refused(#[from] ReduceError),
    /// The device has no buffer for an input or a result.
    #[error("a tensor takes {needed} bytes, and the largest buffer of the device has {available}")]
    TooLarge {
        /// Bytes of the largest tensor.
        needed: u64,
        /// Bytes of the largest buffer.
        available: u64,
    },
}

/// The calls of a text with one in each line, as a [case](Case) or as the JSON of a
/// [`RecordedCall`]. `#` starts a comment.
///
/// # Errors
///
/// The first line that states none.
pub fn calls(text: &str) -> Result<Vec<RecordedCall>, LineError> {
    let mut calls = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with('{') {
            calls.push(RecordedCall::parse(line)?);
            continue;
        }
        let stated = line.split('#').next().unwrap_or("").trim();
        if stated.is_empty() {
            continue;
        }
        let words = StatedCase::of(stated);
        calls.push(match Selection::of(&words.name) {
            Some(_) => Selecting::parse(&words)?.record()?,
            None => RecordedCall::Reduction(of_case(&stated.parse()?)?),
        });
    }
    Ok(calls)
}

fn of_case(case: &Case) -> Result<RecordedReduction, ReduceError> {
    let input = TensorDescription::strided(case.element, case.shape(), case.strides());
    with_operator!(case.operator, OperatorOptions::default(), operator => {
        reduce(operator, &input).over(case.axes()).record()
    })
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

/// A recorded call whose plans are measured.
pub trait Measured: fmt::Display {
    /// What its plans are for.
    type Problem: Planned<Plan: Copy + Eq + Hash>;

    /// Checks that a device can run it, and gives its problem.
    ///
    /// # Errors
    ///
    /// The reason why it cannot.
    fn check(&self, client: &Client) -> Result<Self::Problem, SkipReason>;

    /// The shape of the tensors that a call reads.
    fn shape(&self) -> &[usize];

    /// The tensor that a call reads, and a second one if it reads two.
    fn operands(&self) -> [Option<Operand<'_>>; 2];

    /// Launches one call with a plan.
    ///
    /// # Errors
    ///
    /// What the call refuses.
    fn launch(
        &self,
        client: &Client,
        first: &TensorHandle,
        second: Option<&TensorHandle>,
        plan: PlanOf<Self>,
    ) -> Result<(), ReduceError>;
}

/// The plans of a recorded call.
pub type PlanOf<M> = <<M as Measured>::Problem as Planned>::Plan;

/// How a tensor that a call reads lies in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operand<'a> {
    /// Type of its elements.
    pub element: ElementType,
    /// Its strides, in elements.
    pub strides: &'a [usize],
    /// Alignment in bytes of its first element.
    pub alignment: usize,
}

impl Operand<'_> {
    fn second(recorded: &RecordedOperand) -> Operand<'_> {
        let RecordedOperand { element, strides, alignment, .. } = recorded;
        Operand { element: *element, strides, alignment: *alignment }
    }
}

/// The reason why a device has no buffer for the largest of tensors with so many bytes, if it has
/// none.
fn check_bytes(
    client: &Client,
    bytes: impl IntoIterator<Item = (usize, ElementType)>,
) -> Result<(), SkipReason> {
    let of_tensor = |(span, element): (usize, ElementType)| {
        (span as u64).saturating_mul(element.bytes() as u64)
    };
    let needed = bytes.into_iter().map(of_tensor).max().unwrap_or(0);
    let available = largest_buffer(client);
    match needed > available {
        true => Err(SkipReason::TooLarge { needed, available }),
        false => Ok(()),
    }
}

impl Measured for RecordedReduction {
    type Problem = Problem;

    fn check(&self, client: &Client) -> Result<Problem, SkipReason> {
        struct Check<'a>(&'a Client, &'a RecordedReduction);

        impl WithOperator for Check<'_> {
            type Output = Result<(), ReduceError>;

            fn with<O: Operator>(self, operator: O) -> Self::Output {
                let Self(client, RecordedReduction { element, shape, strides, second, .. }) = self;
                let described = |element, strides: &[usize]| {
                    TensorDescription::strided(element, &shape[..], strides)
                };
                let input = described(*element, strides);
                let second = second.as_ref().map(|other| described(other.element, &other.strides));
                self.1.reduction(operator, &input, second.as_ref()).check(client)
            }
        }

        let unknown = || SkipReason::Operator(self.operator.clone());
        let problem = problem(self).ok_or_else(unknown)??;
        let inputs = [
            Some((problem.input_span(), self.element)),
            problem.second().map(|other| (other.span(), other.element())),
        ];
        let results = problem.results().iter().map(|&result| (problem.output_span(), result));
        check_bytes(client, inputs.into_iter().flatten().chain(results))?;
        with_operator_of(self, Check(client, self)).ok_or_else(unknown)??;
        Ok(problem)
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn operands(&self) -> [Option<Operand<'_>>; 2] {
        let Self { element, strides, alignment, second, .. } = self;
        let first = Operand { element: *element, strides, alignment: *alignment };
        [Some(first), second.as_ref().map(Operand::second)]
    }

    fn launch(
        &self,
        client: &Client,
        first: &TensorHandle,
        second: Option<&TensorHandle>,
        plan: Plan,
    ) -> Result<(), ReduceError> {
        let call = Call { client, reduction: self, first, second, plan };
        with_operator_of(self, call).expect("the reduction was checked")
    }
}

impl Measured for RecordedTopK {
    type Problem = TopKProblem;

    fn check(&self, client: &Client) -> Result<TopKProblem, SkipReason> {
        let problem = self.problem()?;
        let slices = problem.slices();
        let inputs = [
            Some((slices.input_span(), self.element)),
            slices.second().map(|table| (table.span(), table.element())),
        ];
        let results = slices.results().iter().map(|&result| (problem.output_span(), result));
        check_bytes(client, inputs.into_iter().flatten().chain(results))?;
        self.would_compile(client)?;
        Ok(problem)
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn operands(&self) -> [Option<Operand<'_>>; 2] {
        let Self { element, strides, alignment, table, .. } = self;
        let first = Operand { element: *element, strides, alignment: *alignment };
        [Some(first), table.as_ref().map(Operand::second)]
    }

    fn launch(
        &self,
        client: &Client,
        first: &TensorHandle,
        second: Option<&TensorHandle>,
        plan: TopKPlan,
    ) -> Result<(), ReduceError> {
        RecordedTopK::launch(self, client, first, second, plan)
    }
}

/// A recorded call over inputs that its calls take in turn.
pub struct Calls<'a, M: Measured> {
    client: &'a Client,
    recorded: &'a M,
    inputs: [Vec<TensorHandle>; 2],
    turn: usize,
    /// Calls of a sample of each plan.
    calls: HashMap<PlanOf<M>, usize>,
}

impl<M: Measured> fmt::Debug for Calls<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client: _, recorded, inputs, turn, calls } = self;
        f.debug_struct("Calls")
            .field("recorded", &recorded.to_string())
            .field("inputs", &inputs.each_ref().map(Vec::len))
            .field("turn", turn)
            .field("calls", calls)
            .finish_non_exhaustive()
    }
}

/// Most calls of a sample.
const MOST_CALLS: usize = 4096;

impl<'a, M: Measured> Calls<'a, M> {
    /// Calls that [`Measured::check`] has not refused, over `rotated` bytes of random inputs.
    pub fn new(client: &'a Client, recorded: &'a M, rotated: usize) -> Self {
        let shape = recorded.shape();
        let inputs = |Operand { element, strides, alignment }: Operand<'_>| {
            let span = planner::span(shape, strides).unwrap_or(0);
            // As the call reads it: an alignment that no address has counts as the largest power of
            // two in it.
            let alignment = alignment & alignment.wrapping_neg();
            // An offset of the alignment, unless a buffer starts where it should.
            let offset = if alignment < 16 { alignment.max(1) } else { 0 };
            let elements = span + offset;
            let flat = random_inputs(client, element, &[elements], &[1], Some(rotated));
            let placed = flat.into_iter().map(|input| {
                let handle = input.handle.offset_start(offset as u64);
                TensorHandle::new(handle, shape, strides, input.dtype)
            });
            placed.collect::<Vec<TensorHandle>>()
        };
        let inputs = recorded.operands().map(|operand| operand.map_or_else(Vec::new, inputs));
        Self { client, recorded, inputs, turn: 0, calls: HashMap::new() }
    }

    /// Launches one call with a plan, over the next inputs.
    ///
    /// # Errors
    ///
    /// What the call refuses.
    pub fn call(&mut self, plan: PlanOf<M>) -> Result<(), ReduceError> {
        self.turn += 1;
        let [firsts, seconds] = &self.inputs;
        let first = &firsts[self.turn % firsts.len()];
        let second = seconds.get(self.turn % seconds.len().max(1));
        self.recorded.launch(self.client, first, second, plan)
    }

    /// Microseconds per call of back-to-back calls that take about `seconds` together.
    ///
    /// # Errors
    ///
    /// A refused call, or the device's error.
    pub fn sample(&mut self, plan: PlanOf<M>, seconds: f64) -> Result<f64, MeasureError> {
        let mut calls = self.calls.get(&plan).copied().unwrap_or(2);
        loop {
            let start = Instant::now();
            for _ in 0..calls {
                self.call(plan)?;
            }
            wait(self.client)?;
            let took = start.elapsed().as_secs_f64();
            if took >= 0.5 * seconds || calls >= MOST_CALLS {
                self.calls.insert(plan, calls);
                return Ok(took / calls as f64 * 1e6);
            }
            let wanted = (seconds / took * calls as f64) as usize;
            calls = wanted.clamp(2 * calls, 16 * calls).min(MOST_CALLS);
        }
    }
}

/// One call of a reduction.
struct Call<'a> {
    client: &'a Client,
    reduction: &'a RecordedReduction,
    first: &'a TensorHandle,
    second: Option<&'a TensorHandle>,
    plan: Plan,
}

impl WithOperator for Call<'_> {
    type Output = Result<(), ReduceError>;

    fn with<O: Operator>(self, operator: O) -> Self::Output {
        let Self { client, reduction, first, second, plan } = self;
        let call = reduction.reduction(operator, first, second).with_plan(plan);
        let Some(strides) = &reduction.output_strides else {
            return call.run(client).map(drop);
        };
        let shape = reduction.kept_shape()?;
        let span = planner::span(&shape, strides).unwrap_or(0).max(1);
        let types = O::Results::into_list(call.output_types()?);
        let output: Outputs<O, TensorBinding> = O::Results::each(|nth| {
            let handle = client.empty(span * types[nth].bytes());
            let dtype = storage_type(types[nth]);
            TensorHandle::new(handle, &shape[..], &strides[..], dtype).binding()
        });
        call.run_into(client, output)
    }
}

/// What tuning found for a case, in a line.
pub fn line<E, P: fmt::Display + PartialEq>(
    case: &impl fmt::Display,
    tuned: &Tuned<E, P>,
) -> String {
    let off = (tuned.untuned_ratio - 1.0) * 100.0;
    let Tuned { plan, untuned, microseconds, untuned_microseconds, .. } = tuned;
    if plan == untuned {
        format!("KEPT {case}: {untuned_microseconds:.2} us, off by {off:.1} %  # {plan}")
    } else {
        format!(
            "TUNED {case}: {untuned_microseconds:.2} us -> {microseconds:.2} us, off by \
             {off:.1} %  # {plan}"
        )
    }
}

/// What tuning found for all cases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// How many times as long as the tuned plan the untuned choice took, for each case.
    ratios: Vec<f64>,
    improved: usize,
    worst: Option<(f64, String)>,
    skipped: usize,
}

impl Summary {
    /// Adds a case whose untuned choice took `ratio` times as long as the plan to run. `improved`
    /// says whether that is another plan.
    pub fn add(&mut self, case: impl fmt::Display, ratio: f64, improved: bool) {
        self.ratios.push(ratio);
        self.improved += usize::from(improved);
        if improved && self.worst.as_ref().is_none_or(|(worst, _)| ratio > *worst) {
            self.worst = Some((ratio, case.to_string()));
        }
    }

    /// Adds a case that was not measured.
    pub fn skip(&mut self) {
        self.skipped += 1;
    }

    /// The geometric mean of the ratios; 1 if there are none.
    #[must_use]
    pub fn geometric_mean(&self) -> f64 {
        let logarithms: f64 = self.ratios.iter().map(|ratio| ratio.ln()).sum();
        (logarithms / self.ratios.len().max(1) as f64).exp()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ratios, improved, worst, skipped } = self;
        let mean = self.geometric_mean();
        write!(f, "{improved} of {} cases improved, {skipped} skipped; ", ratios.len())?;
        write!(f, "untuned over tuned time: geometric mean {mean:.3}")?;
        match worst {
            Some((ratio, case)) => write!(f, ", worst {ratio:.3} ({case})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use reduce_kernels::{
        Device, ElementType, Sum,
        list::reduce_list,
        normalize::{Scaled, Softmax},
        pairs::ElementwiseProduct,
        planner::TuneOptions,
        plans::PlanStore,
    };

    use super::*;

    const LINES: &str = r#"
        # Comments and empty lines are left out.
        sum f32 [8192, 8192] axis 1 # columns

        CUB segsum f32 [64, 1024] axis T: 136.00 us 1975.2 GB/s
        {"operator":"max","element":"bf16","shape":[7,9],"strides":[9,1],"alignment":16,"axes":[0]}
    "#;

    fn reductions(text: &str) -> Result<Vec<RecordedReduction>, LineError> {
        let reductions = calls(text)?.into_iter().map(|call| match call {
            RecordedCall::Reduction(reduction) => reduction,
            other => panic!("{other} is no reduction"),
        });
        Ok(reductions.collect())
    }

    /// What an application records is read, whatever its kind.
    #[test]
    fn calls_of_other_kinds_are_read() {
        let x = TensorDescription::row_major(ElementType::F32, [16, 64]);
        let recorded = [
            Softmax.of(&x, 1).record().unwrap(),
            reduce_list(Sum, [&x, &x]).record().unwrap(),
            reduce_list(Sum, [&x]).apply(Scaled).record(true).unwrap(),
        ];
        let lines = recorded.each_ref().map(RecordedCall::to_json).join("\n");
        assert_eq!(calls(&lines).unwrap(), recorded);
    }

    #[test]
    fn lines_are_cases_or_recorded() {
        let found = reductions(LINES).unwrap();
        let printed: Vec<String> = found.iter().map(RecordedReduction::to_string).collect();
        assert_eq!(
            printed,
            [
                "sum f32 [8192, 8192] axis 1",
                "sum f32 [1024, 64] axis 1 strides [1, 1024]",
                "max bf16 [7, 9] axis 0",
            ]
        );
        for reduction in &found {
            problem(reduction).unwrap().unwrap();
        }
        let case = found[0].to_string().parse().unwrap();
        let of_case = crate::regret::problem(&case).unwrap();
        assert_eq!(problem(&found[0]).unwrap().unwrap(), of_case);
        let wrong = reductions("sum f32 8192 axis 1").unwrap_err().to_string();
        assert!(wrong.contains("no shape in brackets"), "{wrong}");
        let wrong = reductions("{\"operator\":\"sum\"}").unwrap_err().to_string();
        assert!(wrong.contains("is no recorded call"), "{wrong}");
    }

    /// What cannot be reduced is stated all the same, and left out when it is checked.
    #[test]
    fn cases_that_are_no_reductions_are_stated() {
        let found = reductions("min f32 [4, 4] axis 2").unwrap();
        assert!(problem(&found[0]).unwrap().is_err());
        let mut own = found[0].clone();
        own.operator = "mine".into();
        assert!(problem(&own).is_none());
    }

    #[test]
    fn reductions_of_two_inputs_are_found_by_name() {
        let x = TensorDescription::row_major(ElementType::F32, [16, 64]);
        let dot = reduce(Sum, &x).paired(&x, ElementwiseProduct).over(1);
        let found = problem(&dot.record().unwrap()).unwrap();
        assert_eq!(found, dot.problem());
    }

    #[test]
    fn a_line_says_what_was_found() {
        let reduction = &reductions("sum f32 [8192, 8192] axis 1").unwrap()[0];
        let problem = problem(reduction).unwrap().unwrap();
        let device = Device::h200();
        let tune = |slow: f64| {
            let chosen = planner::choose(&problem, &device).unwrap().plan;
            let measure = |plan: &Plan| Ok::<f64, ()>(if *plan == chosen { slow } else { 100.0 });
            planner::tune(&problem, &device, &TuneOptions::default(), measure).unwrap()
        };
        let (kept, tuned) = (line(reduction, &tune(100.0)), line(reduction, &tune(150.0)));
        let stated = "KEPT sum f32 [8192, 8192] axis 1: 100.00 us, off by 0.0 %  # ";
        assert!(kept.starts_with(stated), "{kept}");
        let stated = "TUNED sum f32 [8192, 8192] axis 1: 150.00 us -> 100.00 us, off by 50.0 %  # ";
        assert!(tuned.starts_with(stated), "{tuned}");
    }

    /// The store that is shipped has plans for these cases, that can run, and for no others.
    #[test]
    fn shipped_plans_are_of_the_cases() {
        let mut device = Device::h200();
        device.name = "cuda".into();
        let store = PlanStore::shipped(&device).expect("there is one");
        let cases = concat!(include_str!("../cases/facts.txt"), include_str!("../cases/heavy.txt"));
        let mut found = std::collections::HashSet::new();
        for case in reductions(cases).unwrap() {
            let problem = problem(&case).unwrap().unwrap();
            let Some(tuned) = store.get(&problem) else { continue };
            assert_eq!(store.plan_for(&problem, &device), Some(tuned.plan), "{case}");
            assert!(tuned.measured_ns < tuned.untuned_ns, "{case}: {tuned:?}");
            found.insert(problem.to_string());
        }
        assert_eq!(found.len(), store.len());
    }

    #[test]
    fn a_summary_has_the_mean_and_the_worst() {
        let mut summary = Summary::default();
        let empty =
            "0 of 0 cases improved, 0 skipped; untuned over tuned time: geometric mean 1.000";
        assert_eq!(summary.to_string(), empty);
        summary.add("a", 1.0, false);
        summary.add("b", 2.0, true);
        summary.add("c", 4.0, true);
        summary.skip();
        assert_eq!(
            summary.to_string(),
            "2 of 3 cases improved, 1 skipped; untuned over tuned time: geometric mean 2.000, \
             worst 4.000 (c)"
        );
    }
}
