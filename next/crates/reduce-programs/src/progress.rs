//! Progress on a terminal.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar of `len` steps, laid out as indicatif's `template` says. It is shown only on a
/// terminal, and not with JSON output.
///
/// # Panics
///
/// If the template is malformed.
pub fn progress(len: u64, template: &str, json: bool) -> ProgressBar {
    if json || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).expect("the template is well formed");
    ProgressBar::new(len).with_style(style)
}
