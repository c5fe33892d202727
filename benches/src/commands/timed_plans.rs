//! Times of one case with the chosen plan and with others, a line for each.

use std::{
    fmt,
    io::{self, Write},
};

use reduce_kernels::{ReduceError, cubecl::prelude::*};
use reduce_programs::{MeasureError, gigabytes_per_second, microseconds_per_call};

/// A case and how it is timed.
pub(super) struct TimedCase<'a> {
    pub(super) client: &'a Client,
    /// The case as it is printed.
    pub(super) words: &'a str,
    /// Bytes that a call moves.
    pub(super) bytes: u64,
    pub(super) sample_seconds: f64,
}

impl TimedCase<'_> {
    /// Times `launch` with the chosen plan and with `others`, and prints
    /// `OURS case: T us B GB/s  # plan` for each. Other plans that the case refuses are left out.
    /// `launch` takes the number of the call.
    pub(super) fn print<P: fmt::Display>(
        &self,
        chosen: &P,
        others: &[P],
        launch: impl Fn(&P, usize) -> Result<(), ReduceError>,
    ) -> Result<(), MeasureError> {
        for (nth, plan) in std::iter::once(chosen).chain(others).enumerate() {
            let mut call = 0;
            let timed = microseconds_per_call(self.client, self.sample_seconds, || {
                call += 1;
                launch(plan, call).map_err(MeasureError::from)
            });
            let us = match timed {
                Err(MeasureError::Refused(_)) if nth > 0 => continue,
                timed => timed?,
            };
            let tried = if nth > 0 { "  tried " } else { "" };
            let rate = gigabytes_per_second(self.bytes, us);
            // A reader that has gone does not wait for the times to come.
            let line = format!("OURS {}: {us:.2} us {rate:.1} GB/s  # {tried}{plan}", self.words);
            drop(writeln!(io::stdout(), "{line}"));
        }
        Ok(())
    }
}
