//! Times reductions of tensors that are cut over the GPUs of a machine.
#![cfg_attr(
    not(any(feature = "cuda-llvm", feature = "wgpu", feature = "vulkan")),
    allow(unused, reason = "without a backend there is no device")
)]

use std::{error::Error, io, path::PathBuf, process::ExitCode};

use clap::Args;
use reduce_benches::{
    shards::{
        CutCase, ShardsArgumentError, ShardsRecord, ShardsRunError, ShardsTiming, SimulatedTiming,
        Skipped, Values, Work, agree, counts, cut_on_one, cut_over, powers_of_two, results_on_all,
        results_through_host, same_bits, shards_picture, time_on_all, time_parts, time_whole,
        works,
    },
    with_work,
};
use reduce_kernels::{
    ElementType, Sum,
    cubecl::{self, RuntimeId, prelude::*, std::tensor::TensorHandle},
    device_of, reduce,
    sharded::{Sharded, ShardsError},
    storage_type,
};
use reduce_programs::{
    BACKEND_HELP, Backend, BackendError, FileError, Staged, canvas::PictureError,
    command_line::say, device, largest_buffer,
};

use super::ended;

/// Times reductions over the axis along which a tensor of f32 is cut: a vector, and columns. Prints
/// the time of a call until the last device has finished, the rate of all devices together, their
/// efficiency (that rate over the one of as many single devices), and the cost of the exchange: the
/// call's time less that of the slowest shard alone. Results are checked first.
///
/// With one device, or without collectives between devices, shards are simulated on one device.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Elements of each tensor, those of all devices together. 2^32 by default; 2^28 if shards are
    /// simulated on CUDA, and 2^24 on other backends.
    #[arg(long)]
    elements: Option<usize>,
    /// Columns of the second tensor, each of which is reduced to an output.
    #[arg(long, default_value_t = 1024)]
    outputs: usize,
    /// Numbers of devices, such as 1,2,4. The powers of two up to all devices by default. If shards
    /// are simulated, it is the numbers of shards, 2 and 4 by default.
    #[arg(long)]
    gpus: Option<String>,
    /// Operators, such as sum,max. All by default: sum, max, argmax, mean_var, logsumexp, and
    /// mean_angle, an operator of a user's own.
    #[arg(long)]
    operators: Option<String>,
    /// Milliseconds of each of the nine samples of a case. A call of more than 30 ms is timed three
    /// times instead.
    #[arg(long, default_value_t = 30.0)]
    sample_ms: f64,
    /// Write what was measured to this file, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Draw the rates over the number of devices into this file, as SVG.
    #[arg(long)]
    svg: Option<PathBuf>,
    #[arg(long, help = BACKEND_HELP)]
    backend: Option<Backend>,
}

/// What stops the program.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    Invalid(#[from] ShardsArgumentError),
    #[error("--sample-ms must be a positive number, not {0}")]
    Sample(f64),
    #[error("--svg shows several devices: {0}")]
    NoPicture(String),
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Picture(#[from] PictureError),
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
    #[error("{what}: {source}")]
    Run { what: String, source: ShardsRunError },
}

/// Says where something went wrong.
fn at<E: Into<ShardsRunError>>(what: impl ToString) -> impl FnOnce(E) -> Stop {
    move |source| Stop::Run { what: what.to_string(), source: source.into() }
}

/// Runs the command.
pub(crate) fn command(arguments: &Arguments) -> ExitCode {
    ended("shards", shards(arguments))
}

fn shards(arguments: &Arguments) -> Result<(), Stop> {
    let works = match &arguments.operators {
        Some(list) => works(list)?,
        None => Work::ALL.to_vec(),
    };
    let gpus = arguments.gpus.as_deref().map(counts).transpose()?;
    if !(arguments.sample_ms > 0.0 && arguments.sample_ms.is_finite()) {
        return Err(Stop::Sample(arguments.sample_ms));
    }
    // The number of devices is not known yet; what is stated can be checked without it.
    let shards = gpus.iter().flatten().copied().max().unwrap_or(1);
    CutCase::both(arguments.elements.unwrap_or(1 << 32), arguments.outputs, shards)?;
    for path in [&arguments.json, &arguments.svg].into_iter().flatten() {
        // A file that cannot be written is reported before hours of measuring.
        drop(Staged::beside(path)?);
    }
    let run = Run { arguments, works, gpus };
    let device = device(arguments.backend)?;
    let client = device.client();
    if device.backend() != Backend::Cuda {
        // wgpu tells how large a buffer may be, but not how much memory there is.
        return run.on(&[device.device().clone()], largest_buffer(client), 1 << 24);
    }
    let mut devices = cubecl::Device::enumerate_all();
    devices.retain(|device| device.runtime() == RuntimeId::Cuda);
    // A sixteenth is left to contexts, NCCL and results.
    let memory = client.properties().memory.max_memory().unwrap_or(largest_buffer(client));
    run.on(&devices, memory / 16 * 15, 1 << 28)
}

/// What is run.
struct Run<'a> {
    arguments: &'a Arguments,
    works: Vec<Work>,
    gpus: Option<Vec<usize>>,
}

/// The results of the whole tensor, by operator.
type Expected = Vec<Vec<Values>>;

impl Run<'_> {
    /// Runs on `devices`, each of which has `memory` bytes for an input. `simulated` is the default
    /// number of elements if shards are simulated.
    fn on(&self, devices: &[cubecl::Device], memory: u64, simulated: usize) -> Result<(), Stop> {
        let client = devices[0].client();
        let lack = lack(devices)?;
        let mut record = ShardsRecord {
            runtime: client.name().into(),
            device: device_of(&client),
            devices: devices.len(),
            lack,
            timings: Vec::new(),
            simulated: Vec::new(),
            skipped: Vec::new(),
        };
        let outputs = self.arguments.outputs;
        match record.lack.clone() {
            Some(lack) => {
                if self.arguments.svg.is_some() {
                    return Err(Stop::NoPicture(lack));
                }
                say(format_args!("NO EXCHANGE: {lack}; shards are simulated on one device"))?;
                let shards = self.gpus.clone().unwrap_or_else(|| vec![2, 4]);
                let elements = self.arguments.elements.unwrap_or(simulated);
                let most = shards.iter().copied().max().unwrap_or(1);
                for case in CutCase::both(elements, outputs, most)? {
                    self.simulate(&client, &case, &shards, memory, &mut record)?;
                }
            }
            None => {
                let gpus = self.gpus.clone().unwrap_or_else(|| powers_of_two(devices.len()));
                let most = gpus.iter().copied().max().unwrap_or(1);
                if most > devices.len() {
                    let present = devices.len();
                    return Err(ShardsArgumentError::Devices { asked: most, present }.into());
                }
                let elements = self.arguments.elements.unwrap_or(1 << 32);
                for case in CutCase::both(elements, outputs, most)? {
                    self.time_case(devices, &case, &gpus, memory, &mut record)?;
                }
            }
        }
        if let Some(path) = &self.arguments.svg {
            reduce_programs::write(path, &shards_picture(&record)?)?;
        }
        Ok(())
    }

    /// Writes the record so far, which a failure later does not take away.
    fn write(&self, record: &ShardsRecord) -> Result<(), Stop> {
        match &self.arguments.json {
            Some(path) => Ok(record.write(path)?),
            None => Ok(()),
        }
    }

    fn sample_seconds(&self) -> f64 {
        self.arguments.sample_ms / 1e3
    }

    fn time_case(
        &self,
        devices: &[cubecl::Device],
        case: &CutCase,
        gpus: &[usize],
        memory: u64,
        record: &mut ShardsRecord,
    ) -> Result<(), Stop> {
        // The whole tensor on one device is what results are compared with, also where its time is
        // not asked for.
        let mut expected: Option<Expected> = None;
        let mut rates = vec![None; self.works.len()];
        let with_one = [1].into_iter().chain(gpus.iter().copied().filter(|&count| count > 1));
        for count in with_one {
            let is_asked = gpus.contains(&count);
            if let Some(needed) = case.too_large(count, memory) {
                if is_asked {
                    let available = memory;
                    let skipped = Skipped { case: case.clone(), gpus: count, needed, available };
                    say(&skipped)?;
                    record.skipped.push(skipped);
                    self.write(record)?;
                }
                continue;
            }
            let inputs =
                cut_over(&devices[..count], case).map_err(at(format_args!("{case} on {count}")))?;
            let mut found = Expected::new();
            for (nth, &work) in self.works.iter().enumerate() {
                let what = format!("{work} {case} on {count}");
                let results =
                    self.checked(work, &inputs[0], expected.as_ref().map(|all| &all[nth]));
                found.push(results.map_err(at(&what))?);
                if !is_asked {
                    continue;
                }
                let (us, local) = with_work!(work, operator => {
                    time_on_all(operator, &inputs, self.sample_seconds())
                })
                .map_err(at(&what))?;
                let rate_of_one = &mut rates[nth];
                let mut timing =
                    ShardsTiming::new(work, case.clone(), count, us, local, *rate_of_one);
                if count == 1 {
                    *rate_of_one = Some(timing.gigabytes_per_second);
                    timing.efficiency = Some(1.0);
                }
                say(&timing)?;
                record.timings.push(timing);
            }
            if count == 1 {
                expected = Some(found);
            }
            self.write(record)?;
            drop(inputs);
            for device in &devices[..count] {
                device.client().memory_cleanup().expect("no program records a graph");
            }
        }
        Ok(())
    }

    /// The results of a tensor. Checks that they are the same on all its devices and those that are
    /// expected. If none are, the results of several devices are compared with a merge of their
    /// partial results on one.
    fn checked(
        &self,
        work: Work,
        input: &Sharded,
        expected: Option<&Vec<Values>>,
    ) -> Result<Vec<Values>, ShardsRunError> {
        let mut results = with_work!(work, operator => results_on_all(operator, input))?;
        same_bits(&results)?;
        match expected {
            Some(expected) => agree(work, &results[0], expected)?,
            None if results.len() == 1 => {}
            None => {
                let merged = with_work!(work, operator => results_through_host(operator, input))?;
                agree(work, &results[0], &merged)?;
            }
        }
        Ok(results.remove(0))
    }

    fn simulate(
        &self,
        client: &Client,
        case: &CutCase,
        shards: &[usize],
        memory: u64,
        record: &mut ShardsRecord,
    ) -> Result<(), Stop> {
        if let Some(needed) = case.too_large(1, memory) {
            let skipped = Skipped { case: case.clone(), gpus: 1, needed, available: memory };
            say(&skipped)?;
            record.skipped.push(skipped);
            return self.write(record);
        }
        let seconds = self.sample_seconds();
        let wholes = cut_on_one(client, case, 1).map_err(at(case))?;
        let timed = self.works.iter().map(|&work| {
            with_work!(work, operator => time_whole(client, operator, &wholes, seconds))
                .map_err(at(format_args!("{work} {case}")))
        });
        let timed = timed.collect::<Result<Vec<_>, Stop>>()?;
        // The shards get the memory of the whole.
        drop(wholes);
        client.memory_cleanup().expect("no program records a graph");
        for &shards in shards {
            let cut = format!("{case} in {shards}");
            let parts = cut_on_one(client, case, shards).map_err(at(&cut))?;
            for (&work, &(ref expected, whole_microseconds)) in self.works.iter().zip(&timed) {
                let microseconds = with_work!(work, operator => {
                    time_parts(client, (work, operator), case, &parts, expected, seconds)
                })
                .map_err(at(format_args!("{work} {cut}")))?;
                let case = case.clone();
                let timing =
                    SimulatedTiming { work, case, shards, microseconds, whole_microseconds };
                say(&timing)?;
                record.simulated.push(timing);
            }
            self.write(record)?;
            drop(parts);
            client.memory_cleanup().expect("no program records a graph");
        }
        Ok(())
    }
}

/// Why the devices cannot exchange partial results; `None` if they can.
fn lack(devices: &[cubecl::Device]) -> Result<Option<String>, Stop> {
    let client = devices[0].client();
    if !client.has_device_transport() {
        let backend = client.name().to_owned();
        return Ok(Some(ShardsError::NoCollectives { backend }.to_string()));
    }
    let [first, second, ..] = devices else {
        return Ok(Some(format!("there is one {} device", client.name())));
    };
    let tried = Sharded::cut(
        0,
        [first, second].map(|device| {
            let handle = device.client().create_from_slice(f32::as_bytes(&[1.0]));
            let shard = TensorHandle::new_contiguous([1], handle, storage_type(ElementType::F32));
            (device.clone(), shard)
        }),
    )
    .and_then(|pair: Sharded| reduce(Sum, &pair).run_sharded());
    match tried {
        Ok(_) => Ok(None),
        Err(error) => match error.source().and_then(|source| source.downcast_ref()) {
            Some(lack @ ShardsError::NoNccl { .. }) => Ok(Some(lack.to_string())),
            _ => Err(at("two devices")(error)),
        },
    }
}
