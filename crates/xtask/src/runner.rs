//! Runs each test in a process of its own, several at a time.
//!
//! A process compiles kernels on one core, and mostly waits when it runs on a GPU. Several at a
//! time use the whole machine, and a test that crashes or hangs does not affect others.
//! cargo-nextest does the same, but is not part of a plain installation and takes minutes to
//! install. This runner needs only the test executables.

use std::{
    collections::HashMap,
    env,
    fs::{self, File},
    io,
    num::NonZero,
    path::{Path, PathBuf},
    process::{self, Child, ExitStatus},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{executable::Executable, process::Failure, say::say};

/// How often a running test is looked at.
const POLL: Duration = Duration::from_millis(10);

/// How tests are run.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Only tests whose names start with this, such as `cuda::`; repeat it for more of them.
    #[arg(long = "filter", value_name = "PREFIX")]
    pub filters: Vec<String>,
    /// Processes side by side; as many as there are cores if not given.
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZero<usize>>,
    /// Seconds after which a test is killed and counts as failed.
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
    /// A command in front of each test, such as "compute-sanitizer --error-exitcode 1".
    #[arg(long, value_name = "COMMAND")]
    pub wrap: Option<String>,
    /// A file that keeps what each test took: the longest then start first.
    #[arg(long, value_name = "FILE")]
    pub times: Option<PathBuf>,
}

/// A test to run.
struct Job<'a> {
    executable: &'a Executable,
    test: String,
    /// The name of the test in reports and in the file of times.
    label: String,
}

/// Runs the tests of all executables and returns how many passed.
///
/// # Errors
///
/// A test failed, or a filter matches none.
pub(crate) fn run(executables: &[Executable], options: &Options) -> Result<usize, Failure> {
    let mut jobs = Vec::new();
    for executable in executables {
        for test in executable.tests()? {
            let wanted = |filter: &String| test.starts_with(filter.as_str());
            if options.filters.is_empty() || options.filters.iter().any(wanted) {
                let label = format!("{} {test}", executable.name);
                jobs.push(Job { executable, test, label });
            }
        }
    }
    for filter in &options.filters {
        if !jobs.iter().any(|job| job.test.starts_with(filter.as_str())) {
            return Err(Failure::Missing(format!("no test starts with `{filter}`")));
        }
    }
    let mut times = options.times.as_deref().map(read_times).unwrap_or_default();
    // Tests that were never timed start first: they may be long.
    jobs.sort_by(|left, right| {
        let took = |job: &Job<'_>| times.get(&job.label).copied().unwrap_or(f64::INFINITY);
        took(right).total_cmp(&took(left))
    });

    let cores = || thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    let side_by_side = options.jobs.unwrap_or_else(cores).get();
    say(format_args!("{} tests, {side_by_side} side by side", jobs.len()));
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..side_by_side {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let start = Instant::now();
                    let failure = run_one(job, options).err();
                    let took = start.elapsed().as_secs_f64();
                    let mut done = done.lock().expect("no test panics here");
                    match &failure {
                        None => say(format_args!("ok     {took:7.2} s  {}", job.label)),
                        Some(said) => {
                            say(format_args!("FAILED {took:7.2} s  {}\n{said}", job.label))
                        }
                    }
                    done.push((&job.label, took, failure.is_none()));
                }
            });
        }
    });
    let done = done.into_inner().expect("no test panics here");
    let failed: Vec<&str> =
        done.iter().filter(|(.., passed)| !passed).map(|(label, ..)| label.as_str()).collect();
    let passed = done.len() - failed.len();
    let seconds = started.elapsed().as_secs_f64();
    say(format_args!("{passed} passed, {} failed, in {seconds:.0} s", failed.len()));
    if let Some(path) = &options.times {
        times.extend(done.iter().map(|(label, took, _)| ((*label).clone(), *took)));
        write_times(path, &times);
    }
    if failed.is_empty() { Ok(passed) } else { Err(Failure::Tests(failed.join("\n"))) }
}

/// Runs one test, or says why it did not pass.
fn run_one(job: &Job<'_>, options: &Options) -> Result<(), String> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);

    let nth = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = env::temp_dir().join(format!("xtask-{}-{nth}.log", process::id()));
    let attempt = || -> io::Result<(Option<ExitStatus>, String)> {
        let file = File::create(&path)?;
        let mut child = job
            .executable
            .command(options.wrap.as_deref())
            .args(["--exact", &job.test, "--nocapture"])
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()?;
        let status = wait(&mut child, options.timeout.map(Duration::from_secs))?;
        Ok((status, String::from_utf8_lossy(&fs::read(&path)?).into_owned()))
    };
    let outcome = attempt();
    // The file may not have come into being.
    let _ = fs::remove_file(&path);
    let (status, said) = outcome.map_err(|error| error.to_string())?;
    match status {
        None => Err(format!("{said}\nkilled after {} s", options.timeout.unwrap_or_default())),
        // The status is also 0 if the test was left out.
        Some(status) if status.success() && said.contains("test result: ok. 1 passed;") => Ok(()),
        Some(status) => Err(format!("{said}\n{status}")),
    }
}

/// Waits for a process to end; kills it after the time limit and then returns nothing.
fn wait(child: &mut Child, limit: Option<Duration>) -> io::Result<Option<ExitStatus>> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if limit.is_some_and(|limit| started.elapsed() >= limit) {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL);
    }
}

/// Seconds that tests took, by label; none if there is no such file yet.
fn read_times(path: &Path) -> HashMap<String, f64> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = |line: &str| {
        let (seconds, label) = line.split_once(' ')?;
        Some((label.to_owned(), seconds.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// Writes these times. Failing to is no error: without the file, tests only start in another order.
fn write_times(path: &Path, times: &HashMap<String, f64>) {
    let mut lines: Vec<String> =
        times.iter().map(|(label, took)| format!("{took:.2} {label}\n")).collect();
    lines.sort_unstable();
    if let Err(error) = fs::write(path, lines.concat()) {
        eprintln!("xtask: {} cannot be written: {error}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A script that behaves like an executable of two tests, of which the second fails.
    #[cfg(unix)]
    fn script(folder: &Path) -> Executable {
        use std::os::unix::fs::PermissionsExt;

        let path = folder.join("script-0123");
        let lines = [
            "#!/bin/sh",
            "case \"$1 $2\" in",
            "'--list --format') echo 'good: test'; echo 'bad: test'; echo 'slow: test';;",
            "'--exact good') echo 'test result: ok. 1 passed; 0 failed';;",
            "'--exact slow') exec sleep 60;;",
            "*) echo 'what went wrong'; exit 101;;",
            "esac\n",
        ];
        fs::write(&path, lines.join("\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Executable::at(&path)
    }

    /// A failure, a hang and a filter without tests must never count as passed.
    #[cfg(unix)]
    #[test]
    fn only_what_passes_counts() {
        let folder = env::temp_dir().join(format!("xtask-tests-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let executables = [script(&folder)];
        let only = |filter: &str| Options {
            filters: vec![filter.into()],
            timeout: Some(1),
            ..Options::default()
        };
        assert_eq!(run(&executables, &only("good")).unwrap(), 1);
        let failed = |filter: &str| run(&executables, &only(filter)).unwrap_err().to_string();
        assert!(failed("bad").contains("script bad"));
        assert!(failed("slow").contains("script slow"));
        assert!(failed("missing").contains("no test starts with `missing`"));
        let wrapped = Options { wrap: Some("env A=1".into()), ..only("good") };
        assert_eq!(run(&executables, &wrapped).unwrap(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }

    /// What was written is read again.
    #[test]
    fn times_are_kept() {
        let path = env::temp_dir().join(format!("xtask-times-{}", process::id()));
        let times = HashMap::from([("suite spirv::nan rows".to_owned(), 12.5)]);
        write_times(&path, &times);
        assert_eq!(read_times(&path), times);
        fs::remove_file(&path).unwrap();
        assert!(read_times(&path).is_empty());
    }
}
