//! The work of a child process: one case with one engine.

use std::{
    collections::VecDeque,
    fs,
    io::{self, BufRead},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use burn_tensor::{Device, TensorData};
use clap::ValueEnum;
use reduce_burn_examples::BurnDevice;
use reduce_kernels::cubecl::config::{
    CubeClRuntimeConfig, RuntimeConfig, cache::CacheConfig, profiling::ProfilingLogLevel,
};
use reduce_programs::median;
use serde::{Deserialize, Serialize};

use crate::cases::{Call, Case, Input, Outputs, calls};

/// Who computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Engine {
    /// Burn's own methods.
    Burn,
    /// reduce-burn.
    Ours,
}

impl Engine {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Engine::Burn => "Burn",
            Engine::Ours => "ours",
        }
    }
}

/// What a child finds out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Task {
    /// The time of the first call and, once a line comes on standard input, the time per call.
    Time,
    /// The kernels launched per call. The log that counts them slows the host down, so these calls
    /// are not timed.
    Launches,
}

/// A line of a child's standard output that begins with this is a [`Message`] as JSON.
pub(crate) const MARK: &str = "@beside ";

/// What a child tells.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The first call is done.
    FirstCall {
        /// The device's name.
        device: String,
        /// From just before the call until its results are read back.
        seconds: f64,
    },
    /// Calls are timed.
    Timed {
        /// Time per call.
        microseconds: f64,
        /// Some of the results for the first input.
        values: Vec<f64>,
    },
    /// Launches are counted.
    Launches {
        /// Kernels per call in a stream of calls, as they are timed.
        per_call: f64,
        /// Kernels of a call that is waited for.
        alone: f64,
    },
}

impl Message {
    fn send(&self) {
        println!("{MARK}{}", serde_json::to_string(self).expect("a message is JSON"));
    }
}

/// What a child has to do.
pub(crate) struct Worker {
    pub(crate) task: Task,
    pub(crate) engine: Engine,
    /// The index of the case in the list of cases.
    pub(crate) nth: usize,
    pub(crate) case: Case,
    pub(crate) sample_seconds: f64,
    /// Results of this many calls are kept while further calls are enqueued.
    pub(crate) kept_results: usize,
    /// The folder for caches and logs.
    pub(crate) folder: PathBuf,
}

/// Where a child that counts launches has CubeCL log them.
const LOG: &str = "launches.log";
/// Number of samples. The median counts.
const SAMPLES: usize = 9;
/// A call that takes longer than this many seconds is sampled three times, one call each.
const SLOW_SECONDS: f64 = 0.03;
const FEWEST_CALLS: usize = 5;
const MOST_CALLS: usize = 10_000;
/// Warm-up calls, each followed by a wait.
const FEWEST_WARM_UPS: usize = 3;
const MOST_WARM_UPS: usize = 10;
/// Calls whose launches are counted, after as many to warm up.
const COUNTED_CALLS: usize = 16;
/// Most values of a result that are compared.
const COMPARED_VALUES: usize = 4096;

impl Worker {
    /// Sets CubeCL's configuration, which is possible before a device is looked for only.
    pub(crate) fn configure(&self) {
        let mut config = CubeClRuntimeConfig::default();
        config.environment.path = CacheConfig::Directory(self.folder.clone());
        if self.task == Task::Launches {
            // The names of kernels, without times: nothing waits for the device.
            config.profiling.logger.level = ProfilingLogLevel::Minimal;
            config.profiling.logger.file = Some(self.folder.join(LOG));
        }
        CubeClRuntimeConfig::set(config);
    }

    /// Does it, and tells the parent.
    pub(crate) fn work(&self, device: &BurnDevice) {
        let calls = calls().swap_remove(self.nth);
        let call = match self.engine {
            Engine::Burn => calls.burn,
            Engine::Ours => calls.ours,
        };
        let name = device.name();
        let device = &device.device;
        let inputs = self.case.inputs(device);
        let mut stream =
            Stream { device, call, inputs: &inputs, next: 0, kept_results: self.kept_results };
        stream.wait();
        match self.task {
            Task::Time => {
                let start = Instant::now();
                let results = call(&inputs[0]).read();
                let seconds = start.elapsed().as_secs_f64();
                drop(results);
                Message::FirstCall { device: name, seconds }.send();
                // Other children may be at their first calls; the parent says when none is.
                let _ = io::stdin().lock().read_line(&mut String::new());
                let microseconds = 1e6 * stream.seconds_per_call(self.sample_seconds);
                let results = stream.results_of_first_input();
                let values = results.iter().flat_map(sampled).collect();
                Message::Timed { microseconds, values }.send();
            }
            Task::Launches => {
                stream.warm_up();
                let log = self.folder.join(LOG);
                let lines = [(); 3].map(|()| {
                    let lines = settled_lines(&log);
                    stream.sample(COUNTED_CALLS);
                    lines
                });
                let per_call = (lines[2] - lines[1]) as f64 / COUNTED_CALLS as f64;
                let before = settled_lines(&log);
                stream.sample(1);
                let alone = (settled_lines(&log) - before) as f64;
                Message::Launches { per_call, alone }.send();
            }
        }
    }
}

/// Values of a result, one from each of many equal parts.
fn sampled(result: &TensorData) -> Vec<f64> {
    let values: Vec<f64> = result.iter::<f64>().collect();
    let count = values.len().min(COMPARED_VALUES);
    let part = values.len() / count.max(1);
    // Each time from another place of the part: parts may be as long as rows.
    (0..count).map(|i| values[i * part + i * 7919 % part]).collect()
}

/// The number of kernels in the log, once it has not grown for a while: a thread of CubeCL's
/// writes it.
fn settled_lines(log: &Path) -> usize {
    let lines = || {
        let text = fs::read_to_string(log).unwrap_or_default();
        text.lines().filter(|line| line.starts_with("Executing ")).count()
    };
    let mut found = lines();
    loop {
        thread::sleep(Duration::from_millis(100));
        let now = lines();
        if now == found {
            return now;
        }
        found = now;
    }
}

/// Back-to-back calls over rotating inputs.
struct Stream<'a> {
    device: &'a Device,
    call: Call,
    inputs: &'a [Input],
    next: usize,
    kept_results: usize,
}

impl Stream<'_> {
    /// Runs what is recorded and waits for the device.
    fn wait(&self) {
        if let Err(error) = self.device.sync() {
            panic!("the device failed: {error}");
        }
    }

    /// Enqueues one call over the next input.
    fn enqueue(&mut self) -> Box<dyn Outputs> {
        let input = &self.inputs[self.next];
        self.next = (self.next + 1) % self.inputs.len();
        (self.call)(input)
    }

    /// The seconds per call in a sample.
    fn sample(&mut self, calls: usize) -> f64 {
        let mut kept = VecDeque::with_capacity(self.kept_results + 1);
        let start = Instant::now();
        for _ in 0..calls {
            kept.push_back(self.enqueue());
            if kept.len() > self.kept_results {
                kept.pop_front();
            }
        }
        self.wait();
        start.elapsed().as_secs_f64() / calls as f64
    }

    /// Calls until they get no faster. Returns the seconds of the last call.
    fn warm_up(&mut self) -> f64 {
        let mut last = self.sample(1);
        for nth in 1..MOST_WARM_UPS {
            let now = self.sample(1);
            let is_stable = now > 0.8 * last;
            last = now;
            if is_stable && nth + 1 >= FEWEST_WARM_UPS {
                break;
            }
        }
        last
    }

    fn seconds_per_call(&mut self, sample_seconds: f64) -> f64 {
        let (samples, calls) = match self.warm_up() {
            slow if slow > SLOW_SECONDS => (3, 1),
            _ => {
                // Burn may fuse calls without a wait between them in another way, which it then
                // compiles and measures.
                self.sample(COUNTED_CALLS);
                (SAMPLES, self.calls_to_fill(sample_seconds))
            }
        };
        median((0..samples).map(|_| self.sample(calls)).collect())
    }

    /// The number of calls that take about `sample_seconds`, found with ever larger samples:
    /// waiting for the device takes some milliseconds on wgpu, which the calls of a sample share.
    fn calls_to_fill(&mut self, sample_seconds: f64) -> usize {
        let mut calls = FEWEST_CALLS;
        loop {
            let wanted = (sample_seconds / self.sample(calls)) as usize;
            if wanted <= 2 * calls || calls == MOST_CALLS {
                return wanted.clamp(FEWEST_CALLS, MOST_CALLS);
            }
            calls = (2 * calls).max(wanted / 2).min(MOST_CALLS);
        }
    }

    /// What calls that are enqueued as the timed ones compute for the first input.
    fn results_of_first_input(&mut self) -> Vec<TensorData> {
        self.next = 0;
        let first = self.enqueue();
        let others: Vec<_> = (1..FEWEST_CALLS).map(|_| self.enqueue()).collect();
        self.wait();
        drop(others);
        first.read()
    }
}
