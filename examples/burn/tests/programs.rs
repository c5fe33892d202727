//! The programs `train` and `forward` from the outside: in words, in JSON and in a picture, and one
//! line for a mistake.
#![cfg(any(feature = "cuda", feature = "vulkan", feature = "wgpu"))]

use std::{
    fs,
    process::{Command, Output},
};

use serde_json::Value;

/// Little enough for a software adapter: two steps of training.
const SMALL: [&str; 6] = ["--batch", "700", "--epochs", "1", "--channels", "2"];

fn train(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_train")).args(arguments).output().unwrap()
}

fn forward(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forward")).args(arguments).output().unwrap()
}

fn said(output: &Output) -> &str {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::str::from_utf8(&output.stdout).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// The weights and the order of images do not depend on the reductions, so the losses agree up to
/// rounding. The picture shows both.
#[test]
fn both_choices_learn_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("curve.svg");
    let files = ["--json", "--curve", path.to_str().unwrap()];
    let output = train(&[&SMALL[..], &files[..]].concat());
    let report: Value = serde_json::from_str(said(&output)).unwrap();
    assert_eq!(
        (report["fused"].as_bool(), report["steps_per_epoch"].as_u64()),
        (Some(cfg!(feature = "fusion")), Some(2))
    );
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for (run, name) in runs.iter().zip(["burn", "ours"]) {
        assert_eq!(run["reductions"], name);
        assert_eq!(run["epochs"].as_array().unwrap().len(), 1);
        assert!(run["first_step_seconds"].as_f64().unwrap() > 0.0, "{run}");
        // Both steps belong to the warm-up.
        assert!(run["step_seconds"].is_null(), "{run}");
    }
    let losses = [0, 1].map(|run: usize| numbers(&runs[run]["losses"]));
    assert_eq!(losses[0].len(), 2);
    for (burn, ours) in losses[0].iter().zip(&losses[1]) {
        assert!((burn - ours).abs() < 1e-4 * burn, "{losses:?}");
    }
    assert!(losses[0][1] < losses[0][0], "the second step is no better than the first: {losses:?}");
    let accuracies = [0, 1].map(|run: usize| runs[run]["epochs"][0]["test_accuracy"].as_f64());
    assert_eq!(accuracies[0], accuracies[1]);

    let picture = fs::read_to_string(&path).unwrap();
    assert!(picture.starts_with("<svg"), "{picture}");
    for series in ["reductions of Burn\n", "reductions of reduce-burn\n"] {
        assert!(picture.contains(series), "{series}: {picture}");
    }
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 1, "a file was left behind");
}

/// One choice alone, in words.
#[test]
fn one_choice_trains_alone() {
    let output = train(&[&SMALL[..], &["--reductions", "ours"]].concat());
    let text = said(&output);
    let fused = if cfg!(feature = "fusion") { "fused" } else { "not fused" };
    let line = format!(", {fused}; 2 steps of 700 images in an epoch, seed 0\n");
    assert!(text.contains(&line), "{text}");
    assert!(text.contains("| reduce-burn |"), "{text}");
    assert!(!text.contains("Burn runs second") && !text.contains("differ by"), "{text}");
}

/// Every step gives the same with both choices.
#[test]
fn both_choices_reduce_the_same() {
    for more in [&[][..], &["--tokens", "33", "--vocab", "1001"]] {
        let output = forward(&[&["--small", "--json"], more].concat());
        let report: Value = serde_json::from_str(said(&output)).unwrap();
        assert_eq!(report["reductions"], serde_json::json!(["burn", "ours"]));
        let steps = report["steps"].as_array().unwrap();
        assert_eq!(steps.len(), 6);
        for step in steps {
            assert!(step["largest_relative_difference"].as_f64().unwrap() < 1e-5, "{step}");
            let seconds = numbers(&step["seconds"]);
            assert!(seconds.len() == 2 && seconds.iter().all(|&s| s > 0.0), "{step}");
        }
    }
}

/// The table has a row for each step, and with one choice no comparison.
#[test]
fn the_table_tells_every_step() {
    let output = forward(&["--small", "--reductions", "burn"]);
    let table = said(&output);
    let steps =
        ["RMS normalisation", "residual", "softmax", "cross-entropy", "hits", "norm of a gradient"];
    for step in steps {
        assert!(table.contains(&format!("| {step} ")), "{step}: {table}");
    }
    assert!(table.contains(" Burn ") && !table.contains("difference"), "{table}");
}

/// Mistakes get one line and status 2, and no file.
#[test]
fn mistakes_get_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let beyond = folder.path().join("no/folder.svg");
    let beyond = beyond.to_str().unwrap();
    let unmade = folder.path().join("unmade.svg");
    let unmade = unmade.to_str().unwrap();
    let is_told = |program: &str, output: Output, expected: &str| {
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(line.starts_with(program) && line.lines().count() == 1, "{line}");
        assert!(line.contains(expected), "{expected}: {line}");
    };
    for (arguments, expected) in [
        (&["--reductions", "theirs"][..], "invalid value 'theirs'"),
        (&["--epochs", "0"], "invalid value '0'"),
        (&["--batch", "0"], "invalid value '0'"),
        (&["--batch", "2000"], "a batch of 2000 images: expected 1 to 1438"),
        (&["--curve", beyond], "folder.svg: No such file or directory"),
        (&["--curve", unmade, "--backend", "gpu"], "unknown backend `gpu`"),
    ] {
        is_told("train: ", train(arguments), expected);
    }
    for (arguments, expected) in [
        (&["--reductions", "theirs"][..], "invalid value 'theirs'"),
        (&["--tokens", "0"], "`0` is no size: expected a whole number above 0"),
        (&["--vocab", "many"], "`many` is no size"),
        (&["--small", "--parameters", "9223372036854775807"], "gradients of shape"),
        (&["--small", "--tokens", "4294967296"], "hidden states of shape [4294967296, 256] take"),
        (&["--backend", "gpu"], "unknown backend `gpu`"),
    ] {
        is_told("forward: ", forward(arguments), expected);
    }
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
}
