//! What programs that time cases in the words of the peers' programs take from their user.

use std::path::PathBuf;

use clap::Args;
use reduce_programs::{BACKEND_HELP, Backend, FileError, read};
use serde::de::DeserializeOwned;

/// Cases, the plans to time beside the chosen one, and how long to take.
#[derive(Args, Debug)]
pub struct Stated {
    /// Cases such as `softmax f32 [8192, 8192] axis 1`, or result lines of a peer's program.
    cases: Vec<String>,
    /// A file with one case a line; `#` starts a comment.
    #[arg(long)]
    file: Option<PathBuf>,
    /// The backend.
    #[arg(long, help = BACKEND_HELP)]
    pub backend: Option<Backend>,
    /// Time this plan too, given as JSON; may be repeated. Cases that it does not fit are left out.
    #[arg(long = "plan")]
    plans: Vec<String>,
    /// Milliseconds of each of the nine samples of a case.
    #[arg(long, default_value_t = 12.0)]
    sample_ms: f64,
}

/// A case in words: what is computed, and the type, the shape and the axes.
#[derive(Clone, Debug)]
pub struct StatedCase {
    /// The name of what is computed.
    pub name: String,
    /// The rest of the line.
    pub place: String,
}

/// A plan that is no JSON of a plan.
#[derive(Debug, thiserror::Error)]
#[error("{json}: {source}")]
pub struct PlanTextError {
    json: String,
    source: serde_json::Error,
}

impl Stated {
    /// The cases, in order.
    ///
    /// # Errors
    ///
    /// A file that cannot be read.
    pub fn cases(&self) -> Result<Vec<StatedCase>, FileError> {
        let mut lines = self.cases.clone();
        if let Some(path) = &self.file {
            lines.extend(read(path)?.lines().map(str::to_owned));
        }
        let stated = lines.iter().map(|line| line.split('#').next().unwrap_or("").trim());
        Ok(stated.filter(|line| !line.is_empty()).map(StatedCase::of).collect())
    }

    /// The plans.
    ///
    /// # Errors
    ///
    /// Text that is no plan.
    pub fn plans<P: DeserializeOwned>(&self) -> Result<Vec<P>, PlanTextError> {
        let plan = |json: &String| {
            serde_json::from_str(json)
                .map_err(|source| PlanTextError { json: json.clone(), source })
        };
        self.plans.iter().map(plan).collect()
    }

    /// Seconds of each sample.
    #[must_use]
    pub fn sample_seconds(&self) -> f64 {
        self.sample_ms / 1e3
    }
}

impl StatedCase {
    /// The case of a line, which may begin with the name of an engine and end with a time.
    #[must_use]
    pub fn of(line: &str) -> Self {
        let stated = line.split(':').next().unwrap_or(line).trim();
        let words: Vec<&str> = stated.split_whitespace().collect();
        let is_engine = |word: &&str| word.chars().all(|letter| letter.is_ascii_uppercase());
        let first = usize::from(words.first().is_some_and(is_engine));
        let name = words.get(first).copied().unwrap_or("").to_owned();
        Self { name, place: words.get(first + 1..).unwrap_or(&[]).join(" ") }
    }

    /// The case as it is printed.
    #[must_use]
    pub fn words(&self) -> String {
        format!("{} {}", self.name, self.place)
    }
}
