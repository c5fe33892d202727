//! The commands of the README: `cargo xtask demo`, `cargo xtask test` and `cargo xtask suite`; and
//! `cargo xtask api`.
//!
//! The first two see to it that there is a device to run on, then call cargo.

mod adapter;
mod api;
mod cargo;
mod executable;
mod oldest_rust;
mod package;
mod process;
mod runner;
mod say;

use std::{
    num::NonZero,
    path::PathBuf,
    process::{Command, ExitCode},
};

use clap::{Parser, Subcommand};

use crate::{
    cargo::{Built, build_programs, build_tests, cargo, check, doc_tests, run},
    executable::Executable,
    process::{Failure, environment},
    runner::Options,
    say::say,
};

/// Sets up, demonstrates and tests this repository.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Reduces a photograph on a device.
    Demo,
    /// Runs everything that CI runs: formatting, lints, docs, the oldest Rust, packages, and all
    /// tests through WGSL.
    Test,
    /// Lists the public API of the libraries anew, in docs/api.
    Api,
    /// Runs tests each in a process of its own, several side by side. Needs neither cargo nor a
    /// toolchain where the executables are given.
    Suite {
        /// Test executables, as `cargo test --no-run` names them; a suite is built if none is
        /// given.
        executables: Vec<PathBuf>,
        /// The package whose suite is built: reduce-kernels, or reduce-burn-examples for that of
        /// reduce-burn.
        #[arg(long, default_value = SUITE_PACKAGES[0], conflicts_with = "executables")]
        package: String,
        /// The backend to build the suite for.
        #[arg(long, default_value = BACKEND, conflicts_with = "executables")]
        features: String,
        #[command(flatten)]
        options: Options,
    },
}

/// The backend of the demo and the tests: WGSL, on Vulkan, Metal or DirectX. CubeCL 0.11's SPIR-V
/// does not run on Mesa's software adapter, which lacks `VK_KHR_workgroup_memory_explicit_layout`.
const BACKEND: &str = "wgpu";

/// Features for every backend that compiles on any machine, and all others.
const ALL: &str = "reduce-kernels/nccl,reduce-kernels/vulkan,reduce-kernels/persistence,\
                   reduce-kernels/testing,reduce-examples/cuda,reduce-examples/vulkan,\
                   reduce-own-operator/cuda,reduce-own-operator/vulkan,reduce-benches/nccl,\
                   reduce-benches/vulkan,reduce-benches/cubek,reduce-burn-examples/cuda,\
                   reduce-burn-examples/vulkan,reduce-burn-examples/fusion";

/// The packages with a suite that runs on devices.
const SUITE_PACKAGES: [&str; 2] = ["reduce-kernels", "reduce-burn-examples"];

/// The module that each suite must contain with this backend; it tests on a device.
const SUITE: &str = "wgsl::";

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Task::Demo => demo(),
        Task::Test => test(),
        Task::Api => document().and_then(|()| api::write()),
        Task::Suite { executables, package, features, options } => {
            suite(&executables, &package, &features, &options)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn demo() -> Result<(), Failure> {
    adapter::ensure()?;
    // With the whole workspace's features of the dependencies, so that the tests need not compile
    // them again. The first build takes minutes, with cargo's progress.
    let features = format!("reduce-examples/{BACKEND}");
    let [photo, reduce] =
        build_programs(["photo", "reduce"], &["--workspace", "--features", &features])?;
    eprintln!();
    run(Command::new(photo).envs(environment()))?;
    eprintln!();
    let arguments = "examples/data/cat.npy --op mean --axes 0,1 --explain";
    run(Command::new(reduce).args(arguments.split(' ')).envs(environment()))
}

fn suite(
    executables: &[PathBuf],
    package: &str,
    features: &str,
    options: &Options,
) -> Result<(), Failure> {
    let executables: Vec<Executable> = if executables.is_empty() {
        let suite = ["--package", package, "--test", "suite", "--features", features];
        build_tests(&suite)?.into_iter().map(|built| built.executable).collect()
    } else {
        executables.iter().map(|path| Executable::at(path)).collect()
    };
    runner::run(&executables, options).map(drop)
}

/// Writes the documents of all crates.
fn document() -> Result<(), Failure> {
    check(&["doc", "--workspace", "--no-deps", "--features", ALL])
}

fn test() -> Result<(), Failure> {
    adapter::ensure()?;
    cargo(&["fmt", "--all", "--check"])?;
    let deny = ["--", "--deny", "warnings"];
    let everything = ["clippy", "--workspace", "--all-targets"];
    check(&[&everything[..], &["--features", ALL], &deny[..]].concat())?;
    cargo(&[&everything[..], &deny[..]].concat())?;
    document()?;
    api::check()?;
    oldest_rust::check(&["--features", ALL])?;
    package::check()?;

    let packages = [
        "reduce-kernels",
        "reduce-examples",
        "reduce-own-operator",
        "reduce-benches",
        "reduce-burn-examples",
    ];
    // Burn's users have fused backends.
    let features = packages.map(|package| format!("{package}/{BACKEND}")).join(",")
        + ",reduce-burn-examples/fusion";
    let arguments = ["--workspace", "--features", &features];
    let built = build_tests(&arguments)?;
    let executables = executables(built)?;
    // The file of times lies in the target folder, so `cargo clean` deletes it.
    let times = executables.first().map(|first| first.path.with_file_name("xtask-times"));
    let options = Options { times, ..Options::default() };
    // One of the tests of failures fills a GPU's memory.
    let (alone, beside): (Vec<_>, Vec<_>) =
        executables.into_iter().partition(|executable| executable.name.ends_with(" failures"));
    let passed = runner::run(&beside, &options)?
        + runner::run(&alone, &Options { jobs: Some(NonZero::<usize>::MIN), ..options })?
        + doc_tests(&arguments)?;
    say(format_args!("{passed} passed, 0 failed"));
    Ok(())
}

/// The executables to run, if each suite has tests on a device.
fn executables(built: Vec<Built>) -> Result<Vec<Executable>, Failure> {
    for package in SUITE_PACKAGES {
        let mut tests = Vec::new();
        for Built { executable, .. } in built.iter().filter(|built| built.package == package) {
            tests.extend(executable.tests()?);
        }
        if !tests.iter().any(|test| test.starts_with(SUITE)) {
            return Err(Failure::Missing(format!("the suite of {package} has no tests `{SUITE}`")));
        }
    }
    Ok(built.into_iter().map(|built| built.executable).collect())
}
