//! Calls to tune, their launches, and the summary of what tuning found.

mod measured;

use std::{collections::HashMap, fmt};

use reduce_kernels::{
    ReduceError, TensorDescription,
    by_name::{OperatorOptions, with_operator},
    cubecl::{prelude::*, std::tensor::TensorHandle},
    planner::{self, Tuned},
    plans::{RecordedCall, RecordedError, RecordedReduction},
    reduce,
};
use reduce_programs::{MeasureError, random_inputs, sample_of_calls};

pub use measured::{Measured, PlanOf, Tensor, problem};

use crate::{
    Case, CaseError, StatedCase,
    applying::{Applying, ApplyingError, Function},
    listing::{Listing, ListingError},
    pairing::{Pairing, PairingError},
    scanning::Scanning,
    selecting::{Selecting, SelectingError, Selection},
};

/// A line that states no call.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// It is in words, and no case.
    #[error(transparent)]
    Case(#[from] CaseError),
    /// It begins with the name of a selection, and is no case.
    #[error(transparent)]
    Selecting(#[from] SelectingError),
    /// It begins with the name of a function that is applied, and is no case.
    #[error(transparent)]
    Applying(#[from] ApplyingError),
    /// It begins with the name of an operator of two inputs, and is no case.
    #[error(transparent)]
    Pairing(#[from] PairingError),
    /// It has tensors of a list, and is no case.
    #[error(transparent)]
    Listing(#[from] ListingError),
    /// It is several calls.
    #[error(
        "`{0}` is a reduction and small launches: what `record_calls` records of it can be tuned"
    )]
    Several(String),
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
    /// The function is not one of the library's, or not after this operator.
    #[error("no function of the library is called `{0}` after `{1}`")]
    Function(String, String),
    /// Its results are those of segments, whose lengths are not recorded.
    #[error("the time of segments depends on their lengths, which are not recorded")]
    Segments,
    /// The tensors of the list have the plans of their scans alone.
    #[error("a list of scans has the plans of its tensors: tune the scan of each")]
    ListScan,
    /// It asks for a type of accumulator, which the library's function does not.
    #[error("the program makes applications with accumulators of their own types only")]
    Accumulator,
    /// It is of a kind that this program does not know.
    #[error("the program does not know calls of this kind")]
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

/// The word before a scan, as in `scan of sum f32 [64, 1024] axis 1`.
const SCAN: &str = "scan of ";

/// How the names of cross-entropies begin.
const CROSS_ENTROPY: &str = "cross_entropy";

/// The calls of a text with one in each line, in words or as the JSON of a [`RecordedCall`]. `#`
/// starts a comment. Words are those of the commands that time calls of a kind: a [`Case`], a
/// [`Selecting`], a [`Pairing`], an [`Applying`], a [`Listing`], or `scan of` a [`Scanning`].
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
        if !stated.is_empty() {
            calls.push(stated_call(stated)?);
        }
    }
    Ok(calls)
}

fn stated_call(line: &str) -> Result<RecordedCall, LineError> {
    if Listing::is_stated(line) {
        return Ok(Listing::parse(line)?.record()?);
    }
    if let Some(scanned) = line.strip_prefix(SCAN) {
        return Ok(Scanning::parse(&StatedCase::of(scanned))?.record()?);
    }
    let words = StatedCase::of(line);
    if words.name.starts_with(CROSS_ENTROPY) {
        return Err(LineError::Several(line.to_owned()));
    }
    Ok(if Selection::of(&words.name).is_some() {
        Selecting::parse(&words)?.record()?
    } else if Pairing::name(&words.name).is_ok() {
        Pairing::parse(&words)?.record()?
    } else if Function::of(&words.name).is_ok() {
        Applying::parse(&words)?.record()?
    } else {
        RecordedCall::Reduction(of_case(&line.parse()?)?)
    })
}

fn of_case(case: &Case) -> Result<RecordedReduction, ReduceError> {
    let input = TensorDescription::strided(case.element, case.shape(), case.strides());
    with_operator!(case.operator, OperatorOptions::default(), operator => {
        reduce(operator, &input).over(case.axes()).record()
    })
}

/// A recorded call over tensors that its launches take in turn.
pub struct Calls<'a, M: Measured> {
    client: &'a Client,
    recorded: &'a M,
    /// As many of each tensor as lie in the rotated bytes.
    tensors: Vec<Vec<TensorHandle>>,
    turn: usize,
    /// Calls of a sample of each plan.
    calls: HashMap<PlanOf<M>, usize>,
}

impl<M: Measured> fmt::Debug for Calls<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client: _, recorded, tensors, turn, calls } = self;
        f.debug_struct("Calls")
            .field("recorded", &recorded.to_string())
            .field("tensors", &tensors.iter().map(Vec::len).collect::<Vec<_>>())
            .field("turn", turn)
            .field("calls", calls)
            .finish_non_exhaustive()
    }
}

impl<'a, M: Measured> Calls<'a, M> {
    /// Calls that [`Measured::check`] has not refused, over `rotated` bytes of each of the tensors
    /// that are taken in turn.
    pub fn new(client: &'a Client, recorded: &'a M, rotated: usize) -> Self {
        let inputs = |Tensor { element, shape, strides, alignment, in_turn }: Tensor<'_>| {
            let span = planner::span(shape, strides).unwrap_or(0);
            // As the call reads it: an alignment that no address has counts as the largest power of
            // two in it.
            let alignment = alignment & alignment.wrapping_neg();
            // An offset of the alignment, unless a buffer starts where it should.
            let offset = if alignment < 16 { alignment.max(1) } else { 0 };
            let elements = span + offset;
            let rotated = if in_turn { rotated } else { 0 };
            let flat = random_inputs(client, element, &[elements], &[1], Some(rotated));
            let placed = flat.into_iter().map(|input| {
                let handle = input.handle.offset_start(offset as u64);
                TensorHandle::new(handle, shape, strides, input.dtype)
            });
            placed.collect::<Vec<TensorHandle>>()
        };
        let tensors = recorded.tensors().into_iter().map(inputs).collect();
        Self { client, recorded, tensors, turn: 0, calls: HashMap::new() }
    }

    /// Launches one call with a plan, over the next tensors.
    ///
    /// # Errors
    ///
    /// What the call refuses.
    pub fn call(&mut self, plan: &PlanOf<M>) -> Result<(), ReduceError> {
        self.turn += 1;
        let tensors = self.tensors.iter().map(|copies| &copies[self.turn % copies.len()]);
        let tensors: Vec<&TensorHandle> = tensors.collect();
        self.recorded.launch(self.client, &tensors, plan, self.turn)
    }

    /// Microseconds per call of back-to-back calls that take about `seconds` together.
    ///
    /// # Errors
    ///
    /// A refused call, or the device's error.
    pub fn sample(&mut self, plan: &PlanOf<M>, seconds: f64) -> Result<f64, MeasureError> {
        let mut calls = self.calls.get(plan).copied();
        let us = sample_of_calls(self.client, seconds, &mut calls, || Ok(self.call(plan)?))?;
        self.calls.extend(calls.map(|calls| (plan.clone(), calls)));
        Ok(us)
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
        planner::{Plan, Planned, TuneOptions},
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

    /// Every kind of call is stated in words.
    #[test]
    fn words_state_calls_of_every_kind() {
        for (words, stated) in [
            ("topk8 f32 [64, 1024] axis 1", "top_k 8 of f32 [64, 1024] axis 1"),
            (
                "dot bf16 [64, 1024] axis 1",
                "sum of product bf16 [64, 1024] axis 1 with bf16 strides [1024, 1]",
            ),
            (
                "softmax f32 [64, 100] axis 1",
                "exponential_share after softmax_sums f32 [64, 100] axis 1",
            ),
            (
                "rms_norm f16 [64, 100] axis 1",
                "scaled after rms_reciprocal f16 [64, 100] axis 1 operand f16 strides [0, 1]",
            ),
            ("norm_l2 f32 2 of 1x[64, 3] 2x[64]", "norm_l2 of 6 tensors of 640 elements"),
            (
                "scan of sum f32 2 of 1x[64, 3] 2x[64]",
                "scan along axis 0 of sum of 6 tensors of 640 elements",
            ),
            (
                "clip f32 1 of 1x[64]",
                "clipped_to_norm after norm_l2 of 1 tensors of 64 elements in place",
            ),
            ("scan of max f32 [9, 9] axis 0 reverse", "reverse scan of max f32 [9, 9] axis 0"),
        ] {
            assert_eq!(calls(words).unwrap()[0].to_string(), stated, "{words}");
        }
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

    /// Tensors of a list that begin anywhere have another problem than aligned ones.
    #[test]
    fn recorded_lists_keep_their_alignment() {
        let x = TensorDescription::row_major(ElementType::F32, [16, 64]);
        let RecordedCall::List(list) = reduce_list(Sum, [&x]).record().unwrap() else { panic!() };
        let mut offset = list.clone();
        offset.tensors[0].alignment = 4;
        let problems = [list, offset].map(|list| Measured::problem(&list).unwrap());
        assert_ne!(problems[0], problems[1]);
        assert_eq!(problems[1].tensors()[0].alignment(), 4);
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
        /// The line of a call's problem, if the store has a plan for it.
        fn stored(call: &impl Measured, store: &PlanStore, device: &Device) -> Option<String> {
            let problem = call.problem().unwrap();
            let tuned = store.get(&problem)?;
            assert_eq!(store.plan_for(&problem, device), Some(tuned.plan), "{call}");
            assert!(tuned.measured_ns < tuned.untuned_ns, "{call}");
            Some(problem.line())
        }

        let mut device = Device::h200();
        device.name = "cuda".into();
        let store = PlanStore::shipped(&device).expect("there is one");
        let cases = [
            include_str!("../../cases/facts.txt"),
            include_str!("../../cases/heavy.txt"),
            include_str!("../../cases/applied.txt"),
            include_str!("../../cases/pairs.txt"),
            include_str!("../../cases/lists.txt"),
        ];
        let mut found = std::collections::HashSet::new();
        for line in cases.iter().flat_map(|text| text.lines()) {
            let stated = match calls(line) {
                Err(LineError::Several(_)) => continue,
                stated => stated.unwrap(),
            };
            for call in stated {
                found.extend(match &call {
                    RecordedCall::Reduction(call) => stored(call, &store, &device),
                    RecordedCall::Application(call) => stored(call, &store, &device),
                    RecordedCall::List(call) => stored(call, &store, &device),
                    RecordedCall::ListApplication(call) => stored(call, &store, &device),
                    other => panic!("{other}"),
                });
            }
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

    #[cfg(any(feature = "wgpu", feature = "vulkan"))]
    mod on_a_device {
        use reduce_kernels::{
            cubecl::{Device, wgpu::WgpuDevice},
            planner::{Candidate, Planned},
        };
        use reduce_programs::wait;

        use super::*;

        /// Checks a call, and launches it with its first plans.
        fn launch(client: &Client, recorded: &impl Measured) {
            let problem = recorded.check(client).unwrap();
            let device = reduce_kernels::device_of(client);
            let candidates = problem.candidates(&device).unwrap();
            let mut calls = Calls::new(client, recorded, 0);
            for Candidate { plan, .. } in candidates.iter().take(2) {
                calls.call(plan).unwrap_or_else(|error| panic!("{recorded}, {plan}: {error}"));
            }
            wait(client).unwrap();
        }

        /// Calls of every kind are made again from what is recorded of them, and launched with
        /// plans that are measured.
        #[test]
        fn recorded_calls_are_launched_with_candidates() {
            let client = Device::from(WgpuDevice::default()).client();
            let words = "
                sum f32 [300, 70] axis 0
                dot f32 [30, 700] axis 1
                median f32 [4, 3000] axis 1
                layer_norm f32 [30, 700] axis 1
                add_rms_norm f32 [30, 700] axis 1
                min_max f32 2 of 1x[64, 3] 2x[64]
                clip f32 2 of 1x[64, 3] 2x[64]
                scan of max_with_index f32 [30, 700] axis 1 reverse";
            for call in calls(words).unwrap() {
                match &call {
                    RecordedCall::Reduction(call) => launch(&client, call),
                    RecordedCall::TopK(call) => launch(&client, call),
                    RecordedCall::Application(call) => launch(&client, call),
                    RecordedCall::List(call) => launch(&client, call),
                    RecordedCall::ListApplication(call) => launch(&client, call),
                    RecordedCall::Scan(call) => launch(&client, call),
                    other => panic!("{other}"),
                }
            }
        }

        /// What cannot be made again is left out with a reason.
        #[test]
        fn calls_that_are_left_out() {
            let client = Device::from(WgpuDevice::default()).client();
            let x = TensorDescription::row_major(ElementType::F32, [64]);
            let offsets = TensorDescription::row_major(ElementType::I32, [9]);
            let segments = Softmax.of(&x, 0).segments(&offsets).record().unwrap();
            let RecordedCall::Application(segments) = segments else { panic!() };
            assert!(matches!(segments.check(&client), Err(SkipReason::Segments)));
            let mut own = segments;
            own.segments = None;
            own.function = "mine".into();
            let reason = own.check(&client).unwrap_err().to_string();
            assert_eq!(reason, "no function of the library is called `mine` after `softmax_sums`");
        }
    }
}
