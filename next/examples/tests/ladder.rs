//! The program `ladder` from the outside: every rung in words, in JSON and in a picture.
#![cfg(any(feature = "cuda", feature = "vulkan", feature = "wgpu"))]

use std::{
    fs,
    process::{Command, Output},
};

use serde_json::Value;

/// Little enough for a software adapter.
const SMALL: [&str; 10] = [
    "--elements",
    "5000",
    "--matrices",
    "40x50",
    "--rows",
    "8x2^6",
    "--rank5",
    "2x3x4x5x6",
    "--sample-ms",
    "1",
];

fn ladder(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ladder")).args(arguments).output().unwrap()
}

fn said(output: &Output) -> &str {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::str::from_utf8(&output.stdout).unwrap()
}

/// Every rung is there with its figures, which agree with each other, or with the reason why it
/// cannot be had.
#[test]
fn json_tells_every_rung() {
    let output = ladder(&[&SMALL[..], &["--json"]].concat());
    let report: Value = serde_json::from_str(said(&output)).unwrap();
    let read = report["read_gigabytes_per_second"].as_f64().unwrap();
    let ladders = report["ladders"].as_array().unwrap();
    let heads: Vec<(&str, &Value, usize)> = ladders
        .iter()
        .map(|ladder| {
            let rungs = ladder["rungs"].as_array().unwrap().len();
            (ladder["dtype"].as_str().unwrap(), &ladder["shape"], rungs)
        })
        .collect();
    use serde_json::json;
    let expected = [
        ("i32", &json!([5000]), 16),
        ("f32", &json!([5000]), 16),
        ("f32", &json!([40, 50]), 2),
        ("f32", &json!([40, 50]), 5),
        ("f32", &json!([8, 64]), 5),
        ("f32", &json!([2, 3, 4, 5, 6]), 4),
    ];
    assert_eq!(heads, expected);
    for ladder in ladders {
        let mut before = None;
        for rung in ladder["rungs"].as_array().unwrap() {
            assert_eq!(rung.get("failed"), None, "{rung}");
            let Some(us) = rung["microseconds"].as_f64() else {
                assert!(!rung["not_available"].as_str().unwrap().is_empty(), "{rung}");
                continue;
            };
            let rate = rung["gigabytes_per_second"].as_f64().unwrap();
            let close = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
            assert!(close(rate, rung["elements"].as_f64().unwrap() * 4.0 / us / 1e3), "{rung}");
            assert!(close(rung["share"].as_f64().unwrap(), rate / read), "{rung}");
            let library = rung["library"].as_bool().unwrap();
            match before.replace((rate, library)) {
                Some((before, same)) if !(library && same) => {
                    assert!(close(rung["gain"].as_f64().unwrap(), rate / before), "{rung}");
                }
                _ => assert!(rung["gain"].is_null(), "{rung}"),
            }
        }
        assert!(before.is_some(), "nothing was measured: {ladder}");
    }
}

/// The table and the picture name the same rungs.
#[test]
fn the_picture_shows_what_the_table_tells() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ladder.svg");
    let file = path.to_str().unwrap();
    let only = ["--only", "full,rank5", "--types", "i32", "--svg", file];
    let output = ladder(&[&SMALL[..], &only[..]].concat());
    let table = said(&output);
    let picture = fs::read_to_string(&path).unwrap();
    assert!(picture.starts_with("<svg"), "{picture}");
    for rung in
        ["one unit alone", "sequential addressing", "the library&apos;s own plan", "axes 2, 4"]
    {
        assert!(picture.contains(rung), "{rung}: {picture}");
        assert!(table.contains(&format!("| {} ", rung.replace("&apos;", "'"))), "{rung}: {table}");
    }
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 1, "a file was left behind");
}

/// The experiments on numbers come in words and in JSON.
#[test]
fn numerics_are_told() {
    let words = ladder(&["--numerics"]);
    assert!(said(&words).contains("f32, small numbers first: one unit alone: 0.0\n"), "{words:?}");
    let json = ladder(&["--numerics", "--json"]);
    let report: Value = serde_json::from_str(said(&json)).unwrap();
    assert_eq!(report["experiments"].as_array().unwrap().len(), 4);
    assert_eq!(report["experiments"][0]["sums"][0]["sum"], 0.0);
}

/// Mistakes get one line and status 2, and no file.
#[test]
fn mistakes_get_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let beyond = folder.path().join("no/folder.svg");
    let beyond = beyond.to_str().unwrap();
    let unmade = folder.path().join("unmade.svg");
    let unmade = unmade.to_str().unwrap();
    for (arguments, expected) in [
        (&["--elements", "0"][..], "an array of 0 elements: expected 1 to 2147483648"),
        (&["--elements", "2^32"], "an array of 4294967296 elements: expected 1 to 2147483648"),
        (&["--elements", "many"], "`many` is no size: expected a number or a power of two"),
        (&["--elements", "2^64"], "`2^64` is no size"),
        (&["--matrices", "3x4x5"], "`3x4x5` is no shape: expected 2 sizes with x between them"),
        (&["--rank5", "2^20x2^20x2^20x2^20x1"], "an array of 1208925819614629174706176 elements"),
        (&["--rank5", "2^40x2^40x2^40x2^40x1"], "elements: expected 1 to 2147483648"),
        (&["--numerics", "--elements", "5"], "cannot be used with"),
        (&["--types", "f16"], "invalid value 'f16'"),
        (&["--seconds", "0"], "`0` is no time: expected a number above 0"),
        (&["--svg", beyond], "folder.svg: No such file or directory"),
        (&["--svg", unmade, "--rows", "0x5"], "an array of 0 elements"),
        (&["--backend", "gpu"], "unknown backend `gpu`"),
    ] {
        let output = ladder(arguments);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {line}");
        assert!(line.starts_with("ladder: ") && line.lines().count() == 1, "{arguments:?}: {line}");
        assert!(line.contains(expected), "{arguments:?}: {line}");
    }
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
}
