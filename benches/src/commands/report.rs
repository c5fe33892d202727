//! Joins what `side_by_side` measured with what the peers' programs printed, and draws it.

use std::{io, path::PathBuf, process::ExitCode};

use clap::{ArgGroup, Args};
use reduce_benches::{
    Record, RecordError,
    report::{
        PeerResult, join, side_by_side_markdown, side_by_side_picture, sweep_markdown,
        sweep_picture,
    },
};
use reduce_programs::{FileError, canvas::PictureError, command_line::say, read, write};

use super::ended;

/// Reports on a run: our times beside the peers', or the sweeps over neighbouring shapes.
#[derive(Args)]
#[command(group = ArgGroup::new("record").required(true))]
pub(crate) struct Arguments {
    /// JSON of `side_by_side`.
    #[arg(long, group = "record")]
    ours: Option<PathBuf>,
    /// JSON of `side_by_side` for the same cases through Vulkan.
    #[arg(long, requires = "ours")]
    vulkan: Option<PathBuf>,
    /// What a peer's program printed; may be repeated.
    #[arg(long = "peer", requires = "ours")]
    peers: Vec<PathBuf>,
    /// JSON of `side_by_side --sweep`: report on the sweeps instead.
    #[arg(long, group = "record")]
    sweep: Option<PathBuf>,
    /// Where the Markdown goes; standard output unless given.
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// Where the picture goes; none unless given.
    #[arg(long)]
    svg: Option<PathBuf>,
}

/// What stops the program.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Picture(#[from] PictureError),
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

/// Runs the command.
pub(crate) fn command(arguments: &Arguments) -> ExitCode {
    ended("report", report(arguments))
}

fn report(arguments: &Arguments) -> Result<(), Stop> {
    let wants_picture = arguments.svg.is_some();
    let (markdown, picture) = match (&arguments.ours, &arguments.sweep) {
        (Some(ours), _) => {
            let ours = Record::read(ours)?;
            let vulkan = arguments.vulkan.as_deref().map(Record::read).transpose()?;
            let mut results = Vec::new();
            for path in &arguments.peers {
                results.extend(read(path)?.lines().filter_map(PeerResult::of_line));
            }
            let rows = join(&ours, vulkan.as_ref(), &results);
            let picture = wants_picture.then(|| side_by_side_picture(&ours, &rows)).transpose()?;
            (side_by_side_markdown(&ours, &rows), picture)
        }
        (None, Some(sweep)) => {
            let sweep = Record::read(sweep)?;
            let picture = wants_picture.then(|| sweep_picture(&sweep)).transpose()?;
            (sweep_markdown(&sweep), picture)
        }
        (None, None) => unreachable!("the arguments require one of them"),
    };
    match &arguments.markdown {
        Some(path) => write(path, &markdown)?,
        None => say(markdown.trim_end())?,
    }
    if let (Some(path), Some(picture)) = (&arguments.svg, picture) {
        write(path, &picture)?;
    }
    Ok(())
}
