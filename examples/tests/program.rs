//! The program `reduce` from the outside: files in, files and JSON out, one line per mistake.
#![cfg(any(feature = "cuda", feature = "vulkan", feature = "wgpu"))]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use npyz::WriterBuilder;
use reduce_examples::Array;
use reduce_kernels::{ElementType, planner::row_major_strides};
use serde_json::Value;

fn reduce(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_reduce")).args(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = reduce(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn array(shape: &[usize], values: impl Fn(usize) -> f32) -> Array {
    let values: Vec<f32> = (0..shape.iter().product()).map(values).collect();
    Array {
        element: ElementType::F32,
        shape: shape.to_vec(),
        strides: row_major_strides(shape),
        bytes: bytemuck::cast_slice(&values).to_vec(),
    }
}

/// Writes an array of any type in any order.
fn write_raw<T: npyz::AutoSerialize + Copy>(
    path: &Path,
    shape: &[u64],
    order: npyz::Order,
    values: &[T],
) {
    let file = fs::File::create(path).unwrap();
    let options = npyz::WriteOptions::<T>::new().default_dtype().shape(shape).order(order);
    let mut writer = options.writer(file).begin_nd().unwrap();
    writer.extend(values.iter().copied()).unwrap();
    writer.finish().unwrap();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn an_array_is_reduced_into_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.npy"), folder.path().join("out.npy"));
    array(&[2, 3, 4], |i| i as f32).write(&input).unwrap();
    let arguments = [text(&input), "--op", "sum", "--axes", "0,-1", "--output", text(&output)];
    assert!(reduce(&arguments).status.success());
    assert_eq!(Array::read(&output).unwrap(), array(&[3], |i| [60.0, 92.0, 124.0][i]));
    assert!(reduce(&[&arguments[..], &["--keepdims"]].concat()).status.success());
    assert_eq!(Array::read(&output).unwrap().shape, [1, 3, 1]);
}

#[test]
fn fortran_order_is_a_view_not_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("fortran.npy");
    // The values 0..6 in Fortran order: [[0, 2, 4], [1, 3, 5]].
    write_raw(&input, &[2, 3], npyz::Order::Fortran, &[0f32, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(Array::read(&input).unwrap().strides, [1, 2]);
    let report = json(&[text(&input), "--op", "max", "--axes", "1", "--json"]);
    assert_eq!(report["values"], serde_json::json!([4.0, 5.0]));
}

#[test]
fn json_holds_everything() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.npy");
    array(&[100, 50], |i| if i == 70 { f32::NAN } else { 1.0 }).write(&input).unwrap();
    let report = json(&[text(&input), "--op", "sum", "--axes", "0", "--json"]);
    assert_eq!(report["op"], "sum");
    assert_eq!(report["dtype"], "f32");
    assert_eq!(report["shape"], serde_json::json!([100, 50]));
    assert_eq!(report["axes"], serde_json::json!([0]));
    assert_eq!(report["output_shape"], serde_json::json!([50]));
    assert_eq!(report["output_dtype"], "f32");
    let backend = if cfg!(feature = "cuda") { "cuda" } else { "wgpu" };
    assert_eq!(report["backend"], backend);
    for key in ["device", "compiler", "plan", "microseconds", "gigabytes_per_second"] {
        assert!(!report[key].is_null(), "{key}: {report}");
    }
    assert_eq!(report["values"][20], "NaN");
    assert_eq!(report["values"][21], 100.0);
    let many = json(&[text(&input), "--op", "sum", "--axes", "1", "--json"]);
    assert!(many.get("values").is_none(), "100 outputs are more than are shown");
}

#[test]
fn the_plan_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.npy");
    array(&[64, 300], |i| i as f32).write(&input).unwrap();
    let output = reduce(&[text(&input), "--op", "mean", "--axes", "1", "--explain"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("mean of f32 [64, 300] over axes [1] gives f32 [64]"), "{said}");
    assert_eq!(said.matches("\nnot ").count(), 3, "every other schedule has its reason: {said}");
}

/// One line that says what and where, status 2, and no output file.
#[test]
fn mistakes_get_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    array(&[4, 5], |i| i as f32).write(&file("good.npy")).unwrap();
    array(&[4, 0], |_| 0.0).write(&file("none.npy")).unwrap();
    fs::write(file("empty.npy"), []).unwrap();
    fs::write(file("text.npy"), "a poem").unwrap();
    let whole = fs::read(file("good.npy")).unwrap();
    fs::write(file("short.npy"), &whole[..whole.len() - 3]).unwrap();
    fs::write(file("damaged.npy"), &whole[..20]).unwrap();
    write_raw(&file("bytes.npy"), &[3], npyz::Order::C, &[1u8, 2, 3]);

    let output = file("out.npy");
    let cases: [(&str, &str, &str); 13] = [
        ("missing.npy", "--op sum", "missing.npy: No such file"),
        ("empty.npy", "--op sum", "empty.npy: not a NumPy array: the file is empty"),
        ("text.npy", "--op sum", "text.npy: not a NumPy array"),
        ("damaged.npy", "--op sum", "damaged.npy: not a NumPy array"),
        ("short.npy", "--op sum", "short.npy: truncated: shape [4, 5] of f32 needs 80 bytes"),
        ("bytes.npy", "--op sum", "bytes.npy: elements of type '|u1' cannot be reduced"),
        ("none.npy", "--op max --axes 1", "`max` of no elements is undefined: shape [4, 0]"),
        ("good.npy", "--op sum --axes 2", "axis 2 is out of range for a tensor of rank 2"),
        ("good.npy", "--op sum --axes -3", "axis -3 is out of range for a tensor of rank 2"),
        ("good.npy", "--op sum --axes 1,-1", "axis 1 is given more than once"),
        ("good.npy", "--op median", "unknown operator `median`: expected one of sum, mean"),
        ("good.npy", "--op sum --backend opengl", "unknown backend `opengl`"),
        ("good.npy", "--axes 1", "--op <OP>"),
    ];
    for (name, rest, message) in cases {
        let input = file(name);
        let mut arguments = vec![text(&input), "--output", text(&output)];
        arguments.extend(rest.split(' '));
        let run = reduce(&arguments);
        // Drivers may speak up as well; the program itself says one line.
        let said = String::from_utf8(run.stderr).unwrap();
        let own: Vec<&str> = said.lines().filter(|line| line.starts_with("reduce: ")).collect();
        assert_eq!(run.status.code(), Some(2), "{name} {rest}: {said}");
        assert!(own.len() == 1 && own[0].contains(message), "{name} {rest}: {said}");
        assert!(!said.contains("panicked"), "{said}");
        assert!(!output.exists(), "{name} {rest} left an output");
    }
    let left: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 7, "nothing but the inputs is left: {left:?}");
}

#[cfg(not(feature = "cuda"))]
#[test]
fn backends_that_are_not_compiled_in_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.npy");
    array(&[4], |i| i as f32).write(&input).unwrap();
    let run = reduce(&[text(&input), "--op", "sum", "--backend", "cuda"]);
    let said = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(2));
    assert!(said.contains("backend cuda is not compiled in"), "{said}");
}

/// The photograph of the demo against figures from NumPy.
#[test]
fn the_photograph_has_the_figures_numpy_gives() {
    let photo = concat!(env!("CARGO_MANIFEST_DIR"), "/data/cat.npy");
    let channels = json(&[photo, "--op", "mean", "--axes", "0,1", "--json"]);
    for (channel, expected) in [147.43646, 111.45755, 86.540825].into_iter().enumerate() {
        let found = channels["values"][channel].as_f64().unwrap();
        assert!((found - expected).abs() < 1e-3, "channel {channel}: {found}, {expected}");
    }
    let highest = json(&[photo, "--op", "max", "--json"]);
    assert_eq!(highest["values"], serde_json::json!([212.0]));
}
