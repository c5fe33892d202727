//! What the order and the type of additions do to a sum.

use std::{collections::HashSet, fmt};

use half::f16;
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_examples::ResultError;
use reduce_kernels::{ElementType, Sum, cubecl::server::Handle, reduce};
use serde::Serialize;

use crate::{
    data::{Element, Elements},
    full::Rung,
    gpu::Gpu,
};

/// Elements whose sum is taken again and again.
const RUN_ELEMENTS: usize = 1 << 20;

/// How often.
const RUNS: usize = 100;

/// What came out of all experiments.
#[derive(Serialize)]
pub(crate) struct Numerics {
    pub device: String,
    pub backend: String,
    pub experiments: Vec<Experiment>,
}

/// Several sums of the same numbers.
#[derive(Serialize)]
pub(crate) struct Experiment {
    pub title: String,
    pub exact: f64,
    pub sums: Vec<Attempt>,
}

/// One way of adding up.
#[derive(Serialize)]
pub(crate) struct Attempt {
    pub how: String,
    #[serde(flatten)]
    pub found: Found,
}

/// What it gave.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Found {
    NotAvailable(String),
    /// The different sums of many runs, and the lowest and the highest of them.
    Runs {
        different: usize,
        lowest: f64,
        highest: f64,
    },
    Sum(f64),
}

/// Carries out all experiments.
///
/// # Errors
///
/// What the library refuses, and what the device reports.
pub(crate) fn experiments(gpu: &Gpu<'_>) -> Result<Vec<Experiment>, ResultError> {
    Ok(vec![
        order(gpu)?,
        short_accumulators(gpu, "1000 + 0.001", &[1000.0, 0.001])?,
        short_accumulators(gpu, "1000 + 10000 × 0.001", &thousandths())?,
        runs(gpu)?,
    ])
}

fn thousandths() -> Vec<f64> {
    [vec![1000.0], vec![0.001; 10_000]].concat()
}

/// Small numbers beside large ones that cancel, from left to right and as the library does.
fn order(gpu: &Gpu<'_>) -> Result<Experiment, ResultError> {
    let small = [1e-20f32; 10];
    let large = [1e20f32, -1e20];
    let exact = small.iter().map(|&small| f64::from(small)).sum();
    let mut sums = Vec::new();
    let orders = [
        ("small numbers first", [&small[..], &large[..]].concat()),
        ("large numbers first", [&large[..], &small[..]].concat()),
    ];
    for (order, values) in orders {
        let input = Elements::upload(gpu.client, &values);
        for rung in [Rung::OneUnit, Rung::Library] {
            let sum = sum(gpu, rung, &input)?;
            let how = format!("f32, {order}: {}", rung.name());
            sums.push(Attempt { how, found: Found::Sum(f32::into(sum)) });
        }
    }
    Ok(Experiment { title: "[1e-20] × 10 with 1e20 and -1e20".into(), exact, sums })
}

/// Numbers in f16, added up in f16 and in f32.
fn short_accumulators(
    gpu: &Gpu<'_>,
    title: &str,
    values: &[f64],
) -> Result<Experiment, ResultError> {
    let values: Vec<f16> = values.iter().map(|&value| f16::from_f64(value)).collect();
    let exact = values.iter().map(|value| value.to_f64()).sum();
    let found = if gpu.device.has(ElementType::F16) {
        let input = Elements::upload(gpu.client, &values);
        let in_f16: f16 = sum(gpu, Rung::OneUnit, &input)?;
        let tensor = input.tensor::<f16>(&[values.len()]);
        let rounded = reduce(Sum, &tensor).run(gpu.client)?;
        let in_f32 = reduce(Sum, &tensor).output_type(ElementType::F32).run(gpu.client)?;
        [
            Found::Sum(in_f16.to_f64()),
            Found::Sum(first::<f16>(gpu, rounded.handle)?.to_f64()),
            Found::Sum(first::<f32>(gpu, in_f32.handle)?.into()),
        ]
    } else {
        [(); 3].map(|()| Found::NotAvailable("the device has no f16".into()))
    };
    let how = [
        "f16, added up in f16: one unit alone",
        "f16, added up in f32, rounded to f16: the library",
        "f16, added up in f32, left in f32: the library",
    ];
    let sums = how.into_iter().zip(found);
    let sums = sums.map(|(how, found)| Attempt { how: how.into(), found }).collect();
    Ok(Experiment { title: title.into(), exact, sums })
}

/// The same sum many times: additions by atomics come in the order in which cubes finish.
fn runs(gpu: &Gpu<'_>) -> Result<Experiment, ResultError> {
    let mut random = StdRng::seed_from_u64(5);
    let values: Vec<f32> = (0..RUN_ELEMENTS).map(|_| random.random_range(-1.0..1.0)).collect();
    let exact = values.iter().map(|&value| f64::from(value)).sum();
    let input = Elements::upload(gpu.client, &values);
    let mut sums = Vec::new();
    for rung in [Rung::Segmented, Rung::OnePass, Rung::Coarsened, Rung::Vectorised, Rung::Library] {
        let found = match rung.lacks::<f32>(gpu) {
            Some(reason) => Found::NotAvailable(reason),
            None => {
                let run = |_| sum(gpu, rung, &input);
                let found = (0..RUNS).map(run).collect::<Result<Vec<f32>, ResultError>>()?;
                let different: HashSet<u32> = found.iter().map(|sum| sum.to_bits()).collect();
                Found::Runs {
                    different: different.len(),
                    lowest: found.iter().copied().fold(f32::INFINITY, f32::min).into(),
                    highest: found.iter().copied().fold(f32::NEG_INFINITY, f32::max).into(),
                }
            }
        };
        sums.push(Attempt { how: rung.name().into(), found });
    }
    let title = format!("{RUN_ELEMENTS} random f32 between -1 and 1, {RUNS} runs");
    Ok(Experiment { title, exact, sums })
}

/// What a rung makes of an array.
fn sum<E: Element>(gpu: &Gpu<'_>, rung: Rung, input: &Elements) -> Result<E, ResultError> {
    let result = Elements::uninitialised::<E>(gpu.client, 1);
    rung.launch::<E>(gpu, input, &result)?;
    first(gpu, result.handle)
}

/// The first element of a buffer.
fn first<E: Element>(gpu: &Gpu<'_>, buffer: Handle) -> Result<E, ResultError> {
    let bytes = gpu.client.read_one(buffer).map_err(ResultError::device)?;
    Ok(E::from_bytes(&bytes)[0])
}

impl fmt::Display for Numerics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} through {}", self.device, self.backend)?;
        for Experiment { title, exact, sums } in &self.experiments {
            write!(f, "\n\n{title}\nexact: {exact:?}")?;
            for Attempt { how, found } in sums {
                match found {
                    Found::Sum(sum) => write!(f, "\n{how}: {sum:?}")?,
                    Found::NotAvailable(reason) => write!(f, "\n{how}: not available, {reason}")?,
                    Found::Runs { different: 1, lowest, .. } => {
                        write!(f, "\n{how}: always {lowest:?}")?;
                    }
                    Found::Runs { different, lowest, highest } => {
                        write!(f, "\n{how}: {different} different, {lowest:?} to {highest:?}")?;
                    }
                }
            }
        }
        Ok(())
    }
}
