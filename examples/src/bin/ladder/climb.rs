//! Climbs a ladder: checks every rung against the oracle, then times it.

use std::{collections::HashMap, time::Instant};

use indicatif::ProgressBar;
use reduce_kernels::{ReduceError, cubecl::server::ServerError};
use reduce_programs::{
    MeasureError, gigabytes_per_second, microseconds_per_call, rotated_inputs, wait,
};

use crate::{
    data::{Element, Elements, fill, filled, total},
    full,
    gpu::Gpu,
    matrix::{self, Axis, Matrix},
    rank5,
    report::{Entry, Ladder, Measured, Outcome, short},
};

/// Elements of the first call that tells how long a slow rung takes.
const FEWEST_ELEMENTS: usize = 1 << 16;

/// How many times as many elements the next call takes.
const GROWTH: usize = 4;

/// Why a rung has no figures.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stop {
    #[error("{0}")]
    NotAvailable(String),
    #[error(transparent)]
    Measure(#[from] MeasureError),
    #[error("total {index} is {found}, not {expected}")]
    Wrong { index: usize, found: String, expected: String },
}

impl From<ReduceError> for Stop {
    fn from(error: ReduceError) -> Self {
        Stop::Measure(error.into())
    }
}

impl From<ServerError> for Stop {
    fn from(error: ServerError) -> Self {
        Stop::Measure(error.into())
    }
}

/// A rung to climb.
struct Step<T> {
    name: String,
    library: bool,
    rung: T,
}

/// A rung's time for some elements.
struct Timed {
    elements: usize,
    microseconds: f64,
}

/// What all ladders of a run have in common.
pub(crate) struct Climber<'a> {
    pub gpu: Gpu<'a>,
    /// Whether the device is Mesa's software adapter.
    pub software: bool,
    /// Its read bandwidth, in 10⁹ bytes per second.
    pub read: f64,
    /// Seconds of a sample, of which the median counts.
    pub sample_seconds: f64,
    /// Seconds that a call of the full sum may take: rungs that need longer get a part of the
    /// array.
    pub longest_seconds: f64,
    pub progress: &'a ProgressBar,
}

impl Climber<'_> {
    /// The full reduction of so many elements.
    pub(crate) fn full<E: Element>(&self, length: usize) -> Ladder {
        let inputs = self.inputs::<E>(length);
        let mut oracle = HashMap::new();
        let steps = full::Rung::ALL.map(|rung| Step {
            name: rung.name().into(),
            library: rung == full::Rung::Library,
            rung,
        });
        let title = format!("sum of {} {}", short(length), E::TYPE);
        self.climb::<E, _>(title, &[length], steps, |rung| {
            if let Some(reason) = rung.lacks::<E>(&self.gpu) {
                return Err(Stop::NotAvailable(reason));
            }
            let inputs = if rung.in_place() { &inputs[..1] } else { &inputs };
            let result = Elements::poisoned::<E>(self.gpu.client, 1);
            let launch = |input: &Elements, length, result: &Elements| {
                let input = Elements { length, ..input.clone() };
                rung.launch::<E>(&self.gpu, &input, result)
            };
            let most = if self.software { rung.most_in_software() } else { length };
            let try_part = |part| launch(&inputs[0], part, &self.uninitialised::<E>(1));
            let part = self.affordable(length.min(most), try_part)?;
            // A rung in place has overwritten it.
            fill::<E>(self.gpu.client, &inputs[0], 0);
            launch(&inputs[0], part, &result)?;
            self.check::<E>(&result, &[*oracle.entry(part).or_insert_with(|| total(0..part))])?;
            let call = |input: &Elements, result: &Elements| launch(input, part, result);
            let microseconds = self.time::<E>(inputs, 1, call)?;
            Ok(Timed { elements: part, microseconds })
        })
    }

    /// The totals of a matrix along one axis.
    pub(crate) fn matrix<E: Element>(&self, matrix: Matrix, axis: Axis) -> Ladder {
        let Matrix { rows, columns } = matrix;
        let inputs = self.inputs::<E>(matrix.elements());
        let expected = matrix.expected(axis);
        let steps = matrix::Rung::along(axis).iter().map(|&rung| Step {
            name: rung.name().into(),
            library: rung == matrix::Rung::Library,
            rung,
        });
        let shape = format!("{} × {} {}", short(rows), short(columns), E::TYPE);
        let title = format!("sums of {shape} along axis {}", axis as usize);
        self.climb::<E, _>(title, &[rows, columns], steps, |rung| {
            let length = matrix.elements() / matrix.totals(axis);
            let most = rung.most_in_software();
            if self.software && length > most {
                let reason = format!(
                    "not for totals of more than {most} elements on Mesa's software adapter, which leaves \
                     loops after 65535 steps"
                );
                return Err(Stop::NotAvailable(reason));
            }
            let totals = Elements::poisoned::<E>(self.gpu.client, expected.len());
            let launch = |input: &Elements, totals: &Elements| {
                rung.launch::<E>(&self.gpu, input, matrix, axis, totals)
            };
            launch(&inputs[0], &totals)?;
            self.check::<E>(&totals, &expected)?;
            let microseconds = self.time::<E>(&inputs, expected.len(), launch)?;
            Ok(Timed { elements: matrix.elements(), microseconds })
        })
    }

    /// Several axes of a tensor of rank 5.
    pub(crate) fn rank5<E: Element>(&self, shape: [usize; rank5::RANK]) -> Ladder {
        let elements = shape.iter().product();
        let inputs = self.inputs::<E>(elements);
        let steps =
            rank5::RUNGS.map(|axes| Step { name: rank5::name(axes), library: true, rung: axes });
        let dims = shape.map(short).join(" × ");
        let title = format!("sums of {dims} {}, axes counted from 1", E::TYPE);
        self.climb::<E, _>(title, &shape, steps, |axes| {
            let launches = rank5::launches::<E>(&self.gpu, &inputs[0], shape, axes)?;
            if launches != 1 {
                let reason = format!("the plan for this device takes {launches} launches, not one");
                return Err(Stop::NotAvailable(reason));
            }
            let expected = rank5::expected(shape, axes);
            let totals = Elements::poisoned::<E>(self.gpu.client, expected.len());
            let launch = |input: &Elements, totals: &Elements| {
                rank5::launch::<E>(&self.gpu, input, shape, axes, totals)
            };
            launch(&inputs[0], &totals)?;
            self.check::<E>(&totals, &expected)?;
            let microseconds = self.time::<E>(&inputs, expected.len(), launch)?;
            Ok(Timed { elements, microseconds })
        })
    }

    /// So many inputs that calls over them in turn find none in cache, unless they are small.
    fn inputs<E: Element>(&self, length: usize) -> Vec<Elements> {
        // What the ladder before has left.
        self.gpu.client.memory_cleanup().expect("no program records a graph");
        let count = rotated_inputs(length * size_of::<E>(), None);
        (0..count).map(|seed| filled::<E>(self.gpu.client, length, seed as u32)).collect()
    }

    fn climb<E: Element, T>(
        &self,
        title: String,
        shape: &[usize],
        steps: impl IntoIterator<Item = Step<T>>,
        mut time: impl FnMut(T) -> Result<Timed, Stop>,
    ) -> Ladder {
        // Of the rung before: its rate, and whether the library ran it.
        let mut before: Option<(f64, bool)> = None;
        let mut entries = Vec::new();
        for Step { name, library, rung } in steps {
            self.progress.set_message(format!("{title}: {name}"));
            let outcome = match time(rung) {
                Ok(Timed { elements, microseconds }) => {
                    let rate =
                        gigabytes_per_second((elements * size_of::<E>()) as u64, microseconds);
                    // Plans of the library are no steps up from one another.
                    let gain = before
                        .replace((rate, library))
                        .filter(|&(_, same)| !(library && same))
                        .map(|(before, _)| rate / before);
                    Outcome::Measured(Measured {
                        elements,
                        microseconds,
                        gigabytes_per_second: rate,
                        share: rate / self.read,
                        gain,
                    })
                }
                Err(Stop::NotAvailable(reason)) => Outcome::NotAvailable(reason),
                Err(failure) => Outcome::Failed(failure.to_string()),
            };
            self.progress.inc(1);
            entries.push(Entry { name, library, outcome });
        }
        Ladder { title, shape: shape.to_vec(), dtype: E::TYPE.to_string(), rungs: entries }
    }

    /// How many of `length` elements a call can take without taking too long.
    fn affordable(
        &self,
        length: usize,
        call: impl Fn(usize) -> Result<(), ReduceError>,
    ) -> Result<usize, Stop> {
        let mut part = length.min(FEWEST_ELEMENTS);
        // Compiles.
        call(part)?;
        loop {
            wait(self.gpu.client)?;
            let start = Instant::now();
            call(part)?;
            wait(self.gpu.client)?;
            let larger = length.min(part * GROWTH);
            let expected = start.elapsed().as_secs_f64() * larger as f64 / part as f64;
            if part == length || expected > self.longest_seconds {
                return Ok(part);
            }
            part = larger;
        }
    }

    fn uninitialised<E: Element>(&self, length: usize) -> Elements {
        Elements::uninitialised::<E>(self.gpu.client, length)
    }

    /// Whether the totals are the oracle's, to the last bit.
    pub(crate) fn check<E: Element>(
        &self,
        totals: &Elements,
        expected: &[i64],
    ) -> Result<(), Stop> {
        let bytes = self.gpu.client.read_one(totals.handle.clone())?;
        let found = &E::from_bytes(&bytes)[..expected.len()];
        for (index, (&found, &expected)) in found.iter().zip(expected).enumerate() {
            let expected = E::of(expected);
            if found != expected {
                let (found, expected) = (found.to_string(), expected.to_string());
                return Err(Stop::Wrong { index, found, expected });
            }
        }
        Ok(())
    }

    /// Microseconds per call in a stream of calls over the inputs in turn, each to new totals.
    fn time<E: Element>(
        &self,
        inputs: &[Elements],
        totals: usize,
        launch: impl Fn(&Elements, &Elements) -> Result<(), ReduceError>,
    ) -> Result<f64, MeasureError> {
        let mut rotation = inputs.iter().cycle();
        microseconds_per_call(self.gpu.client, self.sample_seconds, || {
            let input = rotation.next().expect("there is an input");
            launch(input, &self.uninitialised::<E>(totals))?;
            Ok(())
        })
    }
}
