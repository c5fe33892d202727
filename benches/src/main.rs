//! Benchmarks of reduce-kernels. One program holds all of them: with CUDA, an executable has 115
//! MB.

mod commands;

use std::process::ExitCode;

use clap::Parser;
use reduce_kernels::plans::{Numerics, use_numerics};
use reduce_programs::command_line::{arguments, fail};

use crate::commands::Command;

/// Measures reduce-kernels on this machine, alone and beside peers.
#[derive(Parser)]
struct Arguments {
    /// What the bits of results may depend on: `deterministic`, `batch-invariant` or `reproducible`.
    #[arg(long, global = true, default_value_t)]
    numerics: Numerics,
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    match arguments::<Arguments>() {
        Ok(Arguments { numerics, command }) => {
            use_numerics(numerics);
            command.run()
        }
        Err(mistake) => fail("reduce-benches", mistake),
    }
}
