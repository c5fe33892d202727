//! The commands of the README: `cargo xtask demo` and `cargo xtask test`.
//!
//! Both see to it that there is a device to run on, then call cargo.

mod adapter;
mod cargo;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::cargo::{Failure, cargo, cargo_test};

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
    /// Runs everything that CI runs: formatting, lints, docs, and all tests through SPIR-V and WGSL.
    Test,
}

/// The backend of the demo: SPIR-V where Vulkan is at home, WGSL on Metal and DirectX elsewhere.
const BACKEND: &str = if cfg!(target_os = "linux") { "vulkan" } else { "wgpu" };

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Task::Demo => demo(),
        Task::Test => test(),
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
    let programs = ["--package", "reduce-examples", "--features", BACKEND, "--bin", "photo"];
    // Both at once, with cargo's progress: from nothing this takes minutes.
    cargo(&[&["build"], &programs[..], &["--bin", "reduce"]].concat())?;
    let run = ["run", "--quiet", "--package", "reduce-examples", "--features", BACKEND, "--bin"];
    eprintln!();
    cargo(&[&run[..], &["photo"]].concat())?;
    eprintln!();
    let reduce = "reduce -- examples/data/cat.npy --op mean --axes 0,1 --explain";
    cargo(&[&run[..], &reduce.split(' ').collect::<Vec<_>>()].concat())
}

fn test() -> Result<(), Failure> {
    adapter::ensure()?;
    // Compiled for every backend that compiles anywhere, and for none.
    let all = "reduce-kernels/cuda,reduce-kernels/vulkan,reduce-examples/cuda,\
               reduce-examples/vulkan,reduce-own-operator/cuda,reduce-own-operator/vulkan,\
               reduce-benches/cuda,reduce-benches/vulkan,reduce-benches/cubek";
    cargo(&["fmt", "--all", "--check"])?;
    let deny = ["--", "--deny", "warnings"];
    let everything = ["clippy", "--workspace", "--all-targets"];
    cargo(&[&everything[..], &["--features", all], &deny[..]].concat())?;
    cargo(&[&everything[..], &deny[..]].concat())?;
    cargo(&["doc", "--workspace", "--no-deps", "--features", all])?;

    let wgsl = ["--features", "reduce-kernels/wgpu,reduce-examples/wgpu,reduce-own-operator/wgpu"];
    let passed = if BACKEND == "vulkan" {
        let spirv = "reduce-kernels/vulkan,reduce-examples/vulkan,reduce-own-operator/vulkan,\
                     reduce-benches/vulkan";
        let devices = ["--package", "reduce-kernels", "--package", "reduce-examples"];
        let devices = [&devices[..], &["--package", "reduce-own-operator"]].concat();
        cargo_test(&["--workspace", "--features", spirv])?
            + cargo_test(&[&devices[..], &wgsl[..]].concat())?
    } else {
        cargo_test(&[&["--workspace"], &wgsl[..]].concat())?
    };
    println!("{passed} passed, 0 failed");
    Ok(())
}
