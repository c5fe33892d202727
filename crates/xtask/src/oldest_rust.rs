//! Checks that the workspace compiles with the oldest Rust that its manifests state.

use std::process::Command;

use crate::{
    cargo::{NO_LLVM, run},
    process::Failure,
};

/// The `rust-version` of the workspace.
const OLDEST: &str = env!("CARGO_PKG_RUST_VERSION");

/// Runs `cargo check` with that Rust, if rustup has installed it and it is not the one in use. In
/// any case, the lint `clippy::incompatible_msrv` finds what its standard library lacks.
pub(crate) fn check(arguments: &[&str]) -> Result<(), Failure> {
    let printed = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).ok()
    };
    let in_use = printed("rustc", &["--version"]);
    if in_use.as_deref().and_then(|line| line.strip_prefix("rustc ")).is_some_and(is_oldest) {
        eprintln!("Rust {OLDEST} is the one in use: clippy has compiled the workspace with it");
        return Ok(());
    }
    let listed = printed("rustup", &["toolchain", "list"]);
    match listed.as_deref().and_then(toolchain) {
        Some(toolchain) => run(Command::new("rustup")
            .args(["run", toolchain, "cargo", "check", "--workspace", "--all-targets"])
            .args(arguments)
            .env(NO_LLVM.0, NO_LLVM.1)),
        None => {
            eprintln!(
                "Rust {OLDEST} is not installed (`rustup toolchain install {OLDEST}`): only clippy's \
                 lint has looked for what is newer"
            );
            Ok(())
        }
    }
}

/// The toolchain of the oldest version in rustup's list, with or without a patch number.
fn toolchain(list: &str) -> Option<&str> {
    let mut names = list.lines().filter_map(|line| line.split_whitespace().next());
    names.find(|name| is_oldest(name))
}

/// Whether a toolchain's name or version, such as `1.95.0-x86_64-unknown-linux-gnu`, is the oldest.
fn is_oldest(name: &str) -> bool {
    name.strip_prefix(OLDEST).is_some_and(|rest| rest.starts_with(['.', '-']))
}

#[cfg(test)]
mod tests {
    use super::{OLDEST, is_oldest, toolchain};

    /// A version is no prefix of another one.
    #[test]
    fn toolchains_are_found() {
        let oldest = format!("{OLDEST}.0-x86_64-unknown-linux-gnu");
        let list = format!(
            "stable-x86_64-unknown-linux-gnu (active, default)\n1.9-x86_64-unknown-linux-gnu\n\
             {OLDEST}0.0-x86_64-unknown-linux-gnu\n{oldest}\n"
        );
        assert_eq!(toolchain(&list), Some(&*oldest));
        assert_eq!(toolchain("1.9-x86_64-unknown-linux-gnu"), None);
        assert!(is_oldest(&format!("{OLDEST}.1 (f2d3ce0bd 2026-03-21)")));
    }
}
