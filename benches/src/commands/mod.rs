//! The commands of the program, one in each file.

mod applied;
mod calibrate;
mod compile_times;
mod lists;
mod name;
mod pairs;
mod regret;
mod regret_report;
mod report;
mod scans;
mod segments;
mod serving;
mod shards;
mod side_by_side;
mod timed_plans;
mod top_k;
mod tune;

use std::{fmt, process::ExitCode};

use clap::Subcommand;
use reduce_programs::command_line::fail;

/// A command and its arguments.
#[derive(Subcommand)]
#[command(rename_all = "snake_case")]
pub(crate) enum Command {
    Applied(applied::Arguments),
    Calibrate(calibrate::Arguments),
    CompileTimes(compile_times::Arguments),
    Lists(lists::Arguments),
    Pairs(pairs::Arguments),
    Regret(regret::Arguments),
    RegretReport(regret_report::Arguments),
    Report(report::Arguments),
    Scans(scans::Arguments),
    Segments(segments::Arguments),
    Serving(serving::Arguments),
    Shards(shards::Arguments),
    SideBySide(side_by_side::Arguments),
    TopK(top_k::Arguments),
    Tune(tune::Arguments),
}

impl Command {
    /// Runs it.
    pub(crate) fn run(&self) -> ExitCode {
        match self {
            Self::Applied(arguments) => applied::command(arguments),
            Self::Calibrate(arguments) => calibrate::command(arguments),
            Self::CompileTimes(arguments) => compile_times::command(arguments),
            Self::Lists(arguments) => lists::command(arguments),
            Self::Pairs(arguments) => pairs::command(arguments),
            Self::Regret(arguments) => regret::command(arguments),
            Self::RegretReport(arguments) => regret_report::command(arguments),
            Self::Report(arguments) => report::command(arguments),
            Self::Scans(arguments) => scans::command(arguments),
            Self::Segments(arguments) => segments::command(arguments),
            Self::Serving(arguments) => serving::command(arguments),
            Self::Shards(arguments) => shards::command(arguments),
            Self::SideBySide(arguments) => side_by_side::command(arguments),
            Self::TopK(arguments) => top_k::command(arguments),
            Self::Tune(arguments) => tune::command(arguments),
        }
    }
}

/// The exit status of a command, after a line about what stopped it.
fn ended(command: &str, done: Result<(), impl fmt::Display>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => fail(command, stop),
    }
}
