//! Checks that the workspace compiles with the oldest Rust that its manifests state.

use std::process::Command;

use crate::{cargo::run, process::Failure};

/// The `rust-version` of the workspace.
const OLDEST: &str = env!("CARGO_PKG_RUST_VERSION");

/// Runs `cargo check` with that Rust, if rustup has installed it. In any case, the lint
/// `clippy::incompatible_msrv` finds what its standard library lacks.
pub(crate) fn check(arguments: &[&str]) -> Result<(), Failure> {
    let listed = Command::new("rustup").args(["toolchain", "list"]).output();
    let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    match listed.ok().as_deref().and_then(|list| toolchain(list, OLDEST)) {
        Some(toolchain) => run(Command::new("rustup")
            .args(["run", toolchain, "cargo", "check", "--workspace", "--all-targets"])
            .args(arguments)),
        None => {
            eprintln!(
                "Rust {OLDEST} is not installed (`rustup toolchain install {OLDEST}`): only clippy's \
                 lint has looked for what is newer"
            );
            Ok(())
        }
    }
}

/// The toolchain of a version such as 1.92 in rustup's list, with or without a patch number.
fn toolchain<'a>(list: &'a str, version: &str) -> Option<&'a str> {
    let mut names = list.lines().filter_map(|line| line.split_whitespace().next());
    names.find(|name| name.strip_prefix(version).is_some_and(|rest| rest.starts_with(['.', '-'])))
}

#[cfg(test)]
mod tests {
    use super::toolchain;

    /// A version is no prefix of another one.
    #[test]
    fn toolchains_are_found() {
        let list = "stable-x86_64-unknown-linux-gnu (active, default)\n1.9-x86_64-unknown-linux-gnu\n\
                    1.92.0-x86_64-unknown-linux-gnu\n";
        assert_eq!(toolchain(list, "1.92"), Some("1.92.0-x86_64-unknown-linux-gnu"));
        assert_eq!(toolchain(list, "1.9"), Some("1.9-x86_64-unknown-linux-gnu"));
        assert_eq!(toolchain(list, "1.93"), None);
    }
}
