//! Times reductions of segments, in the words of the peers' programs.

use std::{num::ParseIntError, process::ExitCode};

use clap::{Args, ValueEnum};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_benches::{Case, CaseError, PlanTextError, Stated, StatedCase, inputs};
use reduce_kernels::{
    ElementType, Operator, Reduction,
    by_name::{AppliedName, AppliedOptions, OperatorOptions, with_applied, with_operator},
    cubecl::{prelude::*, std::tensor::TensorHandle},
    normalize::AppliedReduction,
    operator::Apply,
    planner::{AppliedPlan, GroupingPlan, SegmentsPlan},
    reduce,
    segments::{GroupByKeys, Groups, SegmentedReduction},
    storage_type,
};
use reduce_programs::{Backend, BackendError, FileError, MeasureError, OnDevice, on_device};

use super::{ended, timed_plans::TimedCase};

/// Times cases such as `sum f32 [67108864] in 1000 pareto` over rotating buffers (cold cache) and
/// prints them with their times, in the format of the peers' programs. A function such as `softmax` is
/// applied to its segments. Segments lie along axis 0; their lengths are `equal` or `pareto`, of the
/// exponent 1.2 as the peers' are. `in 1000 keys` has groups by random keys instead, and `in 1000
/// scattered` makes them in each call, of a reduction; `group i32 [67108864] in 1000 keys` makes them
/// alone. The bytes are those of the input, and of the output of a function.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    stated: Stated,
    /// The type of the offsets and of the keys.
    #[arg(long, value_enum, default_value_t)]
    offsets: OffsetType,
}

/// Types of offsets.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum OffsetType {
    #[default]
    I32,
    I64,
}

/// What stops the program.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("`{0}` is no case: expected `sum f32 [67108864] in 1000 pareto`, `equal`, `keys`, ...")]
    Words(String),
    #[error("`{0}`: {1}")]
    Number(String, ParseIntError),
    #[error(transparent)]
    Case(#[from] CaseError),
    #[error(transparent)]
    Plan(#[from] PlanTextError),
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error("{what}: {source}")]
    Measure { what: String, source: MeasureError },
}

/// Runs the command.
pub(crate) fn command(arguments: &Arguments) -> ExitCode {
    ended("segments", run(arguments))
}

/// A reduction or a function, and its segments.
struct Segmented {
    words: String,
    what: What,
    place: Case,
    kind: Kind,
}

/// What is timed.
#[derive(Clone, Copy)]
enum What {
    Reduction,
    Function(AppliedName),
    /// The grouping of keys alone.
    Grouping,
}

/// Which elements segments have.
enum Kind {
    /// Neighbours, by their offsets.
    Neighbours(Vec<usize>),
    /// Those with a key of their own, of so many. They may be grouped in each call.
    Keyed { groups: usize, in_each_call: bool },
}

fn parse(stated: &StatedCase) -> Result<Segmented, Stop> {
    let no_case = || Stop::Words(stated.words());
    let (place, segments) = stated.place.split_once(" in ").ok_or_else(no_case)?;
    let function: Option<AppliedName> = stated.name.parse().ok();
    let what = match function {
        Some(function) => What::Function(function),
        None if stated.name == "group" => What::Grouping,
        None => What::Reduction,
    };
    let operator = if matches!(what, What::Reduction) { &stated.name } else { "sum" };
    let place: Case = format!("{operator} {place} axis 0").parse()?;
    let words: Vec<&str> = segments.split_whitespace().collect();
    let [count, lengths] = words[..] else { return Err(no_case()) };
    let count = count.parse().map_err(|error| Stop::Number(count.into(), error))?;
    let len = place.stored[0];
    let kind = match lengths {
        "equal" => Kind::Neighbours((0..=count).map(|nth| nth * len / count.max(1)).collect()),
        "pareto" => Kind::Neighbours(pareto(count, len)),
        "keys" => Kind::Keyed { groups: count, in_each_call: false },
        "scattered" if matches!(what, What::Reduction) => {
            Kind::Keyed { groups: count, in_each_call: true }
        }
        _ => return Err(no_case()),
    };
    Ok(Segmented { words: stated.words(), what, place, kind })
}

/// Offsets of segments whose lengths follow a power law. The last one has what is left.
fn pareto(count: usize, len: usize) -> Vec<usize> {
    let mut random = StdRng::seed_from_u64(0);
    let weights = (0..count).map(|_| {
        let uniform: f64 = random.random();
        (1.0 - uniform).powf(-1.0 / 1.2).min(1e6)
    });
    let weights: Vec<f64> = weights.collect();
    let all: f64 = weights.iter().sum();
    let mut end = 0;
    let mut offsets = vec![0];
    for weight in weights {
        end += (weight / all * len as f64) as usize;
        offsets.push(end.min(len));
    }
    offsets[count] = len;
    offsets
}

fn run(Arguments { stated, offsets }: &Arguments) -> Result<(), Stop> {
    let cases = stated.cases()?.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    // Plans are those of the first case's kind.
    let mut plans = Plans::default();
    match cases.first().map(|case| case.what) {
        Some(What::Function(_)) => plans.applied = stated.plans()?,
        Some(What::Grouping) => plans.grouping = stated.plans()?,
        _ => plans.segments = stated.plans()?,
    }
    let (sample_seconds, offsets) = (stated.sample_seconds(), *offsets);
    on_device(stated.backend, Times { cases, plans, sample_seconds, offsets })?
}

/// Plans to time beside the chosen ones.
#[derive(Default)]
struct Plans {
    segments: Vec<SegmentsPlan>,
    applied: Vec<AppliedPlan>,
    grouping: Vec<GroupingPlan>,
}

struct Times {
    cases: Vec<Segmented>,
    plans: Plans,
    sample_seconds: f64,
    offsets: OffsetType,
}

impl OnDevice for Times {
    type Output = Result<(), Stop>;

    fn on(self, client: &Client, _: Backend, _: &str) -> Self::Output {
        for case in &self.cases {
            self.time(client, case)
                .map_err(|source| Stop::Measure { what: case.words.clone(), source })?;
            client.memory_cleanup().expect("no program records a graph");
        }
        Ok(())
    }
}

impl Times {
    fn time(&self, client: &Client, case: &Segmented) -> Result<(), MeasureError> {
        let inputs = inputs(client, &case.place, None);
        let written = u64::from(matches!(case.what, What::Function(_)));
        let (words, bytes) = (&case.words[..], (1 + written) * case.place.input_bytes());
        let timed = TimedCase { client, words, bytes, sample_seconds: self.sample_seconds };
        match &case.kind {
            Kind::Neighbours(offsets) => {
                let offsets = self.offsets.tensor(client, offsets);
                self.time_segments(&timed, case, &inputs, Members::Neighbours(&offsets))
            }
            &Kind::Keyed { groups, in_each_call } => {
                let mut random = StdRng::seed_from_u64(0);
                let len = case.place.stored[0];
                let keys: Vec<usize> = (0..len).map(|_| random.random_range(0..groups)).collect();
                let keys = self.offsets.tensor(client, &keys);
                let grouping = GroupByKeys::new(&keys, groups);
                if matches!(case.what, What::Grouping) {
                    let chosen = grouping.plan(client)?;
                    return timed.print(&chosen, &self.plans.grouping, |&plan, _| {
                        GroupByKeys::new(&keys, groups).with_plan(plan).run(client).map(drop)
                    });
                }
                if in_each_call {
                    let operator = case.place.operator;
                    let input = |call: usize| &inputs[call % inputs.len()];
                    return with_operator!(operator, OperatorOptions::default(), operator => {
                        timed.print(&grouping.plan(client)?, &[], |_, call| {
                            let keyed = reduce(operator, input(call)).over(0).by_keys(&keys, groups);
                            keyed.run(client).map(drop)
                        })
                    });
                }
                let groups = grouping.run(client)?;
                self.time_segments(&timed, case, &inputs, Members::Grouped(&groups))
            }
        }
    }

    fn time_segments(
        &self,
        timed: &TimedCase<'_>,
        case: &Segmented,
        inputs: &[TensorHandle],
        members: Members<'_>,
    ) -> Result<(), MeasureError> {
        let client = timed.client;
        let input = |call: usize| &inputs[call % inputs.len()];
        if let What::Function(function) = case.what {
            let options = AppliedOptions::default();
            let chosen = with_applied!(function, options, &inputs[0], 0, applied => {
                members.applied(applied).choose(client)?
            });
            return timed.print(&chosen.plan, &self.plans.applied, |&plan, call| {
                with_applied!(function, options, input(call), 0, applied => {
                    members.applied(applied).with_plan(plan).run(client).map(drop)
                })
            });
        }
        with_operator!(case.place.operator, OperatorOptions::default(), operator => {
            let whole = |input| reduce(operator, input).over(0);
            let chosen = members.reduced(whole(&inputs[0])).choose(client)?;
            timed.print(&chosen.plan, &self.plans.segments, |&plan, call| {
                members.reduced(whole(input(call))).with_plan(plan).run(client).map(drop)
            })
        })
    }
}

/// What names the segments of a call.
#[derive(Clone, Copy)]
enum Members<'a> {
    Neighbours(&'a TensorHandle),
    Grouped(&'a Groups<TensorHandle>),
}

impl<'a> Members<'a> {
    fn reduced<O: Operator>(
        self,
        whole: Reduction<'a, O, TensorHandle>,
    ) -> SegmentedReduction<'a, O, TensorHandle> {
        match self {
            Members::Neighbours(offsets) => whole.segments(offsets),
            Members::Grouped(groups) => whole.grouped(groups),
        }
    }

    fn applied<O: Operator, F: Apply<Results = O::Results>>(
        self,
        whole: AppliedReduction<'a, O, F, TensorHandle>,
    ) -> AppliedReduction<'a, O, F, TensorHandle> {
        match self {
            Members::Neighbours(offsets) => whole.segments(offsets),
            Members::Grouped(groups) => whole.grouped(groups),
        }
    }
}

impl OffsetType {
    fn tensor(self, client: &Client, offsets: &[usize]) -> TensorHandle {
        let (element, handle) = match self {
            OffsetType::I32 => {
                let offsets: Vec<i32> = offsets.iter().map(|&offset| offset as i32).collect();
                (ElementType::I32, client.create_from_slice(i32::as_bytes(&offsets)))
            }
            OffsetType::I64 => {
                let offsets: Vec<i64> = offsets.iter().map(|&offset| offset as i64).collect();
                (ElementType::I64, client.create_from_slice(i64::as_bytes(&offsets)))
            }
        };
        TensorHandle::new_contiguous(vec![offsets.len()], handle, storage_type(element))
    }
}
