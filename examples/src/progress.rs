//! Progress on a terminal.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of `len` steps on a terminal, laid out as indicatif's `template` says; nothing elsewhere, nor beside
/// JSON.
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
