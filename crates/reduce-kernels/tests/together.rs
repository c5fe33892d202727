//! Launches of several threads and of several processes that run at the same time, some of them
//! with cubes that wait for each other: all come to their end, and with the bits that they have
//! alone.
//!
//! An executable of its own, because its launches fill the device. It runs for a minute where cubes
//! may wait, for seconds on other GPUs, and for two rounds on a software adapter.
#![cfg(any(feature = "cuda-llvm", feature = "wgpu", feature = "vulkan"))]

#[path = "suite/backend.rs"]
mod backend;

use std::{
    collections::hash_map::DefaultHasher,
    env,
    hash::{Hash, Hasher},
    io::Write,
    process::{Command, Stdio, exit},
    sync::{
        Barrier, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use reduce_kernels::{
    Device, ElementType, Operator, Sum, Var,
    cubecl::{prelude::*, std::tensor::TensorHandle},
    device_of,
    normalize::{AppliedReduction, LayerNorm, Softmax, batch_norm},
    operator::{Apply, One},
    operators::LogSumExp,
    planner::{AppliedKind, ScheduleKind, force, force_applied, force_scan, row_major_strides},
    reduce,
    scan::scan,
    storage_type,
};

/// The longest that a call may take, the compilation of its kernel included.
const LIMIT: Duration = Duration::from_secs(120);

/// The variable that tells a process which bits its calls must have.
const EXPECTED: &str = "REDUCE_TOGETHER_BITS";

/// A row-major tensor of f32 whose elements differ from seed to seed.
fn tensor(client: &Client, seed: usize, shape: &[usize]) -> TensorHandle {
    let value = |i: usize| (((i + seed) * 2_654_435_761) % 1_000_003) as f32 / 1e5 - 5.0;
    let data: Vec<f32> = (0..shape.iter().product()).map(value).collect();
    let handle = client.create_from_slice(f32::as_bytes(&data));
    TensorHandle::new(handle, shape, row_major_strides(shape), storage_type(ElementType::F32))
}

/// The inputs of a thread.
struct Inputs {
    client: Client,
    device: Device,
    /// Rows of which several cubes hold each.
    rows: TensorHandle,
    /// Few rows, of which as many cubes hold each as may.
    long_rows: TensorHandle,
    images: TensorHandle,
    channels: TensorHandle,
}

/// A call, and its name.
type Call = (&'static str, fn(&Inputs) -> TensorHandle);

impl Inputs {
    fn new(client: &Client, seed: usize) -> Self {
        // A software adapter gets few elements.
        let device = device_of(client);
        let [rows, long_rows, images]: [&[usize]; 3] = match device.plane_operations {
            true => [&[24, 50_257], &[3, 500_001], &[16, 32, 56, 56]],
            false => [&[24, 503], &[3, 20_001], &[2, 3, 14, 14]],
        };
        Self {
            rows: tensor(client, seed, rows),
            long_rows: tensor(client, seed, long_rows),
            images: tensor(client, seed, images),
            channels: tensor(client, seed, &images[1..2]),
            client: client.clone(),
            device,
        }
    }

    /// Results that are applied by several cubes for each row, where cubes may wait.
    fn by_cubes<O: Operator, F: Apply<Results = O::Results, Outputs = One>>(
        &self,
        applied: AppliedReduction<'_, O, F, TensorHandle>,
    ) -> TensorHandle {
        let applied = if self.device.forward_progress {
            let (problem, reduction) = applied.problems().unwrap();
            let kind = AppliedKind::HeldByCubes;
            applied.with_plan(force_applied(kind, &problem, &reduction, &self.device).unwrap())
        } else {
            applied
        };
        applied.run(&self.client).unwrap()
    }

    /// Running sums by several cubes for each row, which look back where cubes may wait.
    fn running_sums(&self, x: &TensorHandle, axes: &[usize]) -> TensorHandle {
        let sums = scan(Sum, x).over(axes);
        let plan = force_scan(ScheduleKind::Split, &sums.problem().unwrap(), &self.device).unwrap();
        sums.with_plan(plan).run(&self.client).unwrap()
    }

    const CALLS: [Call; 9] = [
        ("softmax of rows held by several cubes", |of| of.by_cubes(Softmax.of(&of.rows, 1))),
        ("softmax of long rows held by many cubes", |of| of.by_cubes(Softmax.of(&of.long_rows, 1))),
        ("layer_norm of long rows held by many cubes", |of| {
            of.by_cubes(LayerNorm { eps: 1e-5 }.of(&of.long_rows, 1))
        }),
        ("batch_norm", |of| {
            batch_norm(&of.client, &of.images, &of.channels, &of.channels, 1e-5).unwrap().0
        }),
        ("sum by a split", |of| {
            let sum = reduce(Sum, &of.long_rows).over(1);
            let problem = sum.problem().unwrap();
            let plan = force(ScheduleKind::Split, &problem, &of.device).unwrap();
            sum.with_plan(plan).run(&of.client).unwrap()
        }),
        ("running sums of long rows", |of| of.running_sums(&of.long_rows, &[1])),
        ("running sums of one row", |of| of.running_sums(&of.rows, &[0, 1])),
        ("var", |of| reduce(Var { correction: 1.0 }, &of.rows).over(1).run(&of.client).unwrap()),
        ("logsumexp", |of| reduce(LogSumExp, &of.rows).over(1).run(&of.client).unwrap()),
    ];

    /// The bits of the results of all calls, of which the device may run several at once. `begins`
    /// is told the name of what is waited for.
    fn bits(&self, begins: impl Fn(&'static str)) -> Vec<u64> {
        let launched = Self::CALLS.map(|(name, call)| {
            begins(name);
            (name, call(self))
        });
        let read = launched.map(|(name, output)| {
            begins(name);
            let bytes = self.client.read_one(output.handle.clone()).expect("the device answers");
            let len: usize = output.shape().iter().product();
            hash_of(&bytes[..len * size_of::<f32>()])
        });
        read.to_vec()
    }
}

/// A hash that all processes of this executable agree on.
fn hash_of(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// What a thread is doing, and since when.
#[derive(Clone, Copy)]
struct Doing {
    what: &'static str,
    round: usize,
    since: Instant,
}

/// Names the threads that have not gone on for [`LIMIT`], and what all of them are doing. A thread
/// that has ended does nothing.
fn overdue(threads: &[Option<Doing>], now: Instant) -> Option<String> {
    let took = |doing: &Doing| now.saturating_duration_since(doing.since);
    threads.iter().flatten().any(|doing| took(doing) > LIMIT).then(|| {
        let line = |(nth, doing): (usize, &Option<Doing>)| {
            let doing = doing.as_ref()?;
            let hangs = if took(doing) > LIMIT { "hangs" } else { "is" };
            let Doing { what, round, .. } = doing;
            let long = took(doing);
            Some(format!("thread {nth} {hangs} in round {round} at {what}, {long:.1?} long\n"))
        };
        threads.iter().enumerate().filter_map(line).collect()
    })
}

/// What each thread is doing, for the watchdog.
struct Watch(Vec<Mutex<Option<Doing>>>);

/// Takes a thread off the watch when it ends, also by a panic.
struct Watched<'a>(&'a Mutex<Option<Doing>>);

impl Watched<'_> {
    fn begins(&self, what: &'static str, round: usize) {
        let doing = Doing { what, round, since: Instant::now() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(doing);
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Watch {
    fn over(threads: usize) -> Self {
        Self((0..threads).map(|_| Mutex::new(None)).collect())
    }

    fn of(&self, thread: usize) -> Watched<'_> {
        let watched = Watched(&self.0[thread]);
        watched.begins("the start", 0);
        watched
    }

    /// Runs `work`, and ends the process if a thread hangs meanwhile, because nothing else ends a
    /// call that hangs.
    fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let seen = |doing: &Mutex<Option<Doing>>| {
                        *doing.lock().unwrap_or_else(PoisonError::into_inner)
                    };
                    let threads: Vec<Option<Doing>> = self.0.iter().map(seen).collect();
                    if let Some(words) = overdue(&threads, Instant::now()) {
                        // Not by a macro, whose output the harness would keep.
                        let _ = std::io::stderr().write_all(words.as_bytes());
                        exit(101);
                    }
                    thread::sleep(Duration::from_millis(100));
                }
            });
            let _ends = Ends(&is_done);
            work()
        })
    }
}

/// Ends the watchdog when the work ends, also by a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How many threads run, and how long.
struct Load {
    threads: usize,
    time: Duration,
    least_rounds: usize,
}

impl Load {
    fn of(device: &Device, threads: usize) -> Self {
        let time = match device.plane_operations {
            true if device.forward_progress => Duration::from_secs(60),
            true => Duration::from_secs(10),
            false => Duration::ZERO,
        };
        Self { threads, time, least_rounds: 2 }
    }

    /// Runs all calls in each thread, on a stream of its own, again and again, and compares their
    /// bits with those `expected` of it. The result is the number of calls.
    fn run(&self, client: &Client, expected: &[Vec<u64>]) -> usize {
        let start = Instant::now();
        let watch = Watch::over(self.threads);
        let together = Barrier::new(self.threads);
        let worker = |nth: usize| {
            let watched = watch.of(nth);
            let inputs = Inputs::new(client, nth);
            together.wait();
            let mut round = 0;
            while round < self.least_rounds || start.elapsed() < self.time {
                let bits = inputs.bits(|what| watched.begins(what, round));
                let names = Inputs::CALLS.iter().map(|call| call.0);
                for (name, (found, expected)) in names.zip(bits.iter().zip(&expected[nth])) {
                    assert_eq!(found, expected, "{name}, thread {nth}, round {round}");
                }
                round += 1;
            }
            round * Inputs::CALLS.len()
        };
        watch.during(|| {
            thread::scope(|scope| {
                let worker = &worker;
                let workers: Vec<_> =
                    (0..self.threads).map(|nth| scope.spawn(move || worker(nth))).collect();
                let calls = workers.into_iter().map(|worker| worker.join());
                calls.map(|calls| calls.expect("the thread found its bits")).sum()
            })
        })
    }
}

/// The bits that each thread's calls have when no other test of this process runs.
fn alone(client: &Client, threads: usize) -> Vec<Vec<u64>> {
    let watch = Watch::over(1);
    watch.during(|| {
        let watched = watch.of(0);
        let bits = |nth| Inputs::new(client, nth).bits(|what| watched.begins(what, 0));
        (0..threads).map(bits).collect()
    })
}

/// One test at a time: others would not be alone when they find out which bits to expect.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Threads with a stream each.
fn threads(client: &Client) {
    let _one = one_at_a_time();
    let load = Load::of(&device_of(client), 8);
    let calls = load.run(client, &alone(client, load.threads));
    println!("{calls} calls in {} threads", load.threads);
}

/// Two processes of a few threads each. Both run the test called `name`, and know by a variable in
/// their environment that they are these.
fn processes(client: &Client, name: &str) {
    let _one = one_at_a_time();
    let load = Load::of(&device_of(client), 3);
    let expected = alone(client, load.threads);
    let bits = hash_of(&expected).to_string();
    if let Ok(asked) = env::var(EXPECTED) {
        assert_eq!(asked, bits, "the bits of a process alone");
        load.run(client, &expected);
        return;
    }
    let executable = env::current_exe().expect("this test runs from a file");
    let children = [0, 1].map(|_| {
        let mut child = Command::new(&executable);
        child.args([name, "--exact", "--nocapture"]).env(EXPECTED, &bits);
        child.stdout(Stdio::null()).spawn().expect("the same executable starts again")
    });
    for mut child in children {
        // A child watches its own calls, from its first one on.
        let status = child.wait().expect("the child is ours");
        assert!(status.success(), "one of two processes ended with {status}");
    }
}

/// A watchdog that names nothing would leave a hang to be guessed at.
#[test]
fn the_watchdog_names_what_hangs() {
    let now = Instant::now() + 2 * LIMIT;
    let of = |what, since| Doing { what, round: 7, since };
    let recent = Some(of("var", now - LIMIT / 2));
    assert_eq!(overdue(&[recent, None], now), None);
    let hangs = Some(of("softmax", now - 2 * LIMIT));
    let words = overdue(&[recent, None, hangs], now).unwrap();
    assert_eq!(
        words,
        "thread 0 is in round 7 at var, 60.0s long\nthread 2 hangs in round 7 at softmax, 240.0s long\n"
    );
}

/// The tests of one backend.
macro_rules! on_backend {
    ($name:ident) => {
        mod $name {
            use super::*;

            #[test]
            fn eight_threads_come_to_their_end_with_the_same_bits() {
                threads(&backend::$name());
            }

            #[test]
            fn two_processes_come_to_their_end_with_the_same_bits() {
                let test = "two_processes_come_to_their_end_with_the_same_bits";
                processes(&backend::$name(), &format!("{}::{test}", stringify!($name)));
            }
        }
    };
}

#[cfg(feature = "cuda-llvm")]
on_backend!(cuda);

#[cfg(feature = "vulkan")]
on_backend!(spirv);

#[cfg(any(feature = "wgpu", feature = "vulkan"))]
on_backend!(wgsl);
