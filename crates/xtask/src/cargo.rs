//! Calls cargo: runs it to its end, builds test executables, counts the tests of documents.

use std::{
    env,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    executable::Executable,
    process::{Failure, environment},
    say::say,
};

/// Announces a command and runs it to its end.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let line = announce(command);
    let status =
        command.status().map_err(|reason| Failure::NotStarted { command: line.clone(), reason })?;
    if status.success() { Ok(()) } else { Err(Failure::Failed(line)) }
}

/// Runs cargo.
pub(crate) fn cargo(arguments: &[&str]) -> Result<(), Failure> {
    run(&mut cargo_command(arguments))
}

/// Runs a command of cargo that compiles without linking. CubeCL's CUDA backend then needs no LLVM.
pub(crate) fn check(arguments: &[&str]) -> Result<(), Failure> {
    run(cargo_command(arguments).env(NO_LLVM.0, NO_LLVM.1))
}

/// The environment variable with which `cubecl-llvm` compiles without LLVM, as docs.rs sets it.
pub(crate) const NO_LLVM: (&str, &str) = ("DOCS_RS", "1");

/// A test executable that cargo built, and its package.
pub(crate) struct Built {
    /// The package's name.
    pub package: String,
    /// The executable, to be run in the package's folder, as cargo does.
    pub executable: Executable,
}

/// Builds test executables: `arguments` follow `cargo test --no-run`.
pub(crate) fn build_tests(arguments: &[&str]) -> Result<Vec<Built>, Failure> {
    let mut built = Vec::new();
    let format = ["test", "--no-run", "--message-format", "json-render-diagnostics"];
    lines_of(cargo_command(&[&format[..], arguments].concat()), |line| {
        built.extend(test_executable(line));
    })?;
    Ok(built)
}

/// Builds programs: `arguments` follow `cargo build`. Returns their paths in the order of their
/// names.
pub(crate) fn build_programs<const N: usize>(
    names: [&str; N],
    arguments: &[&str],
) -> Result<[PathBuf; N], Failure> {
    let mut paths = Vec::new();
    let format = ["build", "--message-format", "json-render-diagnostics"];
    let programs = names.map(|name| ["--bin", name]).concat();
    lines_of(cargo_command(&[&format[..], arguments, &programs].concat()), |line| {
        paths.extend(program(line));
    })?;
    let path_of = |name| {
        let found = paths.iter().find(|path| path.file_stem().is_some_and(|stem| stem == name));
        found.cloned().ok_or_else(|| Failure::Missing(format!("cargo built no program {name}")))
    };
    let paths = names.into_iter().map(path_of).collect::<Result<Vec<_>, _>>()?;
    Ok(paths.try_into().expect("there is a path for each name"))
}

/// The program that a message of cargo names, if it names one.
fn program(line: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_program = message["profile"]["test"] == false && message["target"]["kind"][0] == "bin";
    message["executable"].as_str().filter(|_| is_program).map(PathBuf::from)
}

/// The test executable that a message of cargo names, if it names one.
fn test_executable(line: &str) -> Option<Built> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["profile"]["test"] != true {
        return None;
    }
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let folder = manifest.parent()?.to_owned();
    let package = package_name(message["package_id"].as_str()?);
    let target = message["target"]["name"].as_str()?;
    let name = if target.replace('_', "-") == package {
        package.clone()
    } else {
        format!("{package} {target}")
    };
    let path = PathBuf::from(message["executable"].as_str()?);
    Some(Built { package, executable: Executable { path, name, folder: Some(folder) } })
}

/// The name in a package's identity: `path+file:///folder/name#0.1.0`, or
/// `path+file:///folder#name@0.1.0`.
fn package_name(identity: &str) -> String {
    let (folder, version) = identity.rsplit_once('#').unwrap_or((identity, ""));
    let name = match version.split_once('@') {
        Some((name, _)) => name,
        None => folder.rsplit_once('/').map_or(folder, |(_, name)| name),
    };
    name.to_owned()
}

/// Runs the tests of documents and returns how many passed.
pub(crate) fn doc_tests(arguments: &[&str]) -> Result<usize, Failure> {
    let mut passed = 0;
    lines_of(cargo_command(&[&["test", "--doc"], arguments].concat()), |line| {
        passed += passed_in(line);
        say(line);
    })?;
    Ok(passed)
}

/// Runs a command to its end and calls `take` with each line that it prints.
pub(crate) fn lines_of(mut command: Command, mut take: impl FnMut(&str)) -> Result<(), Failure> {
    let line = announce(&command);
    let failed = |reason| Failure::NotStarted { command: line.clone(), reason };
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
    for line in child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
        take(&line.map_err(failed)?);
    }
    let status = child.wait().map_err(failed)?;
    if status.success() { Ok(()) } else { Err(Failure::Failed(line)) }
}

/// The number of passed tests in a line such as `test result: ok. 5 passed; 0 failed; ...`.
fn passed_in(line: &str) -> usize {
    line.strip_prefix("test result: ok. ")
        .and_then(|rest| rest.split(' ').next())
        .and_then(|count| count.parse().ok())
        .unwrap_or(0)
}

/// A call of cargo, in an environment for programs that compile kernels.
pub(crate) fn cargo_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).env("RUSTDOCFLAGS", "--deny warnings");
    command.envs(environment());
    command
}

fn announce(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    let line = words.join(" ");
    eprintln!("$ {line}");
    line
}

#[cfg(test)]
mod tests {
    use super::{package_name, passed_in, program, test_executable};

    /// Protects the number of tests that CI reports at its end.
    #[test]
    fn results_of_tests_are_counted() {
        assert_eq!(passed_in("test result: ok. 17 passed; 0 failed; 0 ignored; 0 measured"), 17);
        assert_eq!(passed_in("test oracle::the_oracle ... ok"), 0);
    }

    /// Protects both forms of package identities that cargo writes.
    #[test]
    fn packages_have_their_names() {
        assert_eq!(package_name("path+file:///work/crates/xtask#0.1.0"), "xtask");
        assert_eq!(
            package_name("path+file:///work/examples#reduce-examples@0.1.0"),
            "reduce-examples"
        );
    }

    /// Protects that only test executables are taken from cargo's messages.
    #[test]
    fn test_executables_are_found() {
        let message = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/k#kernels@0.1.0",
            "manifest_path":"/w/k/Cargo.toml","target":{"name":"suite"},
            "profile":{"test":true},"executable":"/t/suite-01"}"#;
        let built = test_executable(message).unwrap();
        assert_eq!((&*built.package, &*built.executable.name), ("kernels", "kernels suite"));
        assert_eq!(built.executable.folder.unwrap().to_str(), Some("/w/k"));
        assert!(test_executable(&message.replace("true", "false")).is_none());
        assert!(test_executable(&message.replace("\"/t/suite-01\"", "null")).is_none());
    }

    /// Protects that only programs are taken from cargo's messages.
    #[test]
    fn programs_are_found() {
        let message = r#"{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"photo"},
            "profile":{"test":false},"executable":"/t/photo"}"#;
        assert_eq!(program(message), Some("/t/photo".into()));
        assert_eq!(program(&message.replace("false", "true")), None);
        assert_eq!(program(&message.replace("bin", "custom-build")), None);
    }
}
