//! Checks that the libraries can be published.

use crate::{
    cargo::{cargo, cargo_command, lines_of},
    process::Failure,
};

/// The packages to publish.
const PACKAGES: [&str; 3] = ["reduce-planner", "reduce-kernels", "reduce-burn"];

/// The files of a package besides its sources. Cargo compiles the sources, but does not check
/// these.
const TEXTS: [&str; 3] = ["README.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// Packages the libraries, and compiles what is in the packages.
pub(crate) fn check() -> Result<(), Failure> {
    for package in PACKAGES {
        let mut missing = TEXTS.to_vec();
        let list = ["package", "--list", "--allow-dirty", "--package", package];
        lines_of(cargo_command(&list), |line| missing.retain(|text| *text != line))?;
        if !missing.is_empty() {
            let missing = missing.join(", ");
            return Err(Failure::Missing(format!("the package {package} lacks {missing}")));
        }
    }
    // Burn's CubeCL backends compile only where a program has chosen one of them.
    let packages = PACKAGES.map(|package| ["--package", package]).concat();
    let features = ["--no-default-features", "--features", "reduce-burn/flex"];
    // No registry has these packages yet. Cargo would unpack each where it keeps a registry's
    // sources, and use what an earlier run left there as long as the version is the same. So each
    // is compiled from its own package, with the workspace's sources of those it depends on.
    let sources =
        PACKAGES.map(|package| format!("patch.crates-io.{package}.path=\"crates/{package}\""));
    let sources: Vec<&str> = sources.iter().flat_map(|path| ["--config", path]).collect();
    let arguments = ["package", "--allow-dirty"];
    cargo(&[&arguments, &packages[..], &features, &sources].concat())
}
