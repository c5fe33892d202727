//! The program `inspect` from the outside: a checkpoint in, a table or JSON out, and one line for a
//! file that is none.
#![cfg(any(feature = "cuda", feature = "vulkan", feature = "wgpu"))]

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use half::{bf16, f16};
use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Value, json};

fn inspect(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_inspect")).args(arguments).output().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A tensor to write.
struct Tensor {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

fn tensor<T: bytemuck::NoUninit>(
    name: &str,
    dtype: Dtype,
    shape: &[usize],
    values: &[T],
) -> Tensor {
    Tensor {
        name: name.into(),
        dtype,
        shape: shape.to_vec(),
        bytes: bytemuck::cast_slice(values).to_vec(),
    }
}

/// A file of these tensors in a folder that lives as long as the test.
fn write(folder: &Path, tensors: &[Tensor]) -> PathBuf {
    let views = tensors.iter().map(|tensor| {
        let view = TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes).unwrap();
        (&tensor.name, view)
    });
    let path = folder.join("model.safetensors");
    fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
    path
}

/// The rows of the tensors, by name, and the status.
fn rows(tensors: &[Tensor]) -> (impl Fn(&str) -> Value, Option<i32>) {
    let (report, status) = report(tensors);
    let listed = report["tensors"].as_array().unwrap().clone();
    let row = move |name: &str| listed.iter().find(|row| row["name"] == name).unwrap().clone();
    (row, status)
}

/// All that the program says of the tensors, and the status.
fn report(tensors: &[Tensor]) -> (Value, Option<i32>) {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), tensors);
    let output = inspect(&[text(&path), "--json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("inspect:") && !said.contains("panicked"), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["file"], text(&path));
    assert!(report["device"].is_string() && report["backend"].is_string(), "{report}");
    assert_eq!(report["tensors"].as_array().unwrap().len(), tensors.len());
    assert!(report["total"].is_object(), "{report}");
    (report, output.status.code())
}

/// The figures of every type, exact where they can be: extrema of 64-bit integers to the last
/// digit, bools as bools.
#[test]
fn every_type_has_its_figures() {
    let halves = [-2.0f32, 0.0, 3.5, 0.5];
    let tensors = [
        tensor("f16", Dtype::F16, &[4], &halves.map(f16::from_f32)),
        tensor("bf16", Dtype::BF16, &[4], &halves.map(bf16::from_f32)),
        tensor("f32", Dtype::F32, &[2, 2], &halves),
        tensor("f64", Dtype::F64, &[4], &halves.map(f64::from)),
        tensor("i8", Dtype::I8, &[3], &[i8::MIN, 0, 2]),
        tensor("i16", Dtype::I16, &[3], &[i16::MIN, 0, 2]),
        tensor("i32", Dtype::I32, &[3], &[i32::MIN, 0, 2]),
        tensor("i64", Dtype::I64, &[3], &[i64::MIN, i64::MAX, 0]),
        tensor("u8", Dtype::U8, &[3], &[u8::MAX, 3, 7]),
        tensor("u16", Dtype::U16, &[3], &[u16::MAX, 3, 7]),
        tensor("u32", Dtype::U32, &[3], &[u32::MAX, 3, 7]),
        tensor("u64", Dtype::U64, &[2], &[u64::MAX, u64::MAX - 1]),
        tensor("bool", Dtype::BOOL, &[4], &[0u8, 1, 1, 1]),
    ];
    let (row, _) = rows(&tensors);
    let expect = |name: &str, min: Value, max: Value, max_magnitude: Value, zeros_share: f64| {
        let row = row(name);
        // A device may lack the types that no 32 bits hold.
        if row.get("error").is_some_and(|error| error.as_str().unwrap().contains("has no")) {
            assert!(name.contains("64"), "{row}");
            return;
        }
        let found = ["min", "max", "max_magnitude", "zeros_share", "nans", "infinities"];
        let found: Vec<&Value> = found.iter().map(|figure| &row[figure]).collect();
        let expected = [min, max, max_magnitude, zeros_share.into(), 0.into(), 0.into()];
        assert_eq!(found, expected.iter().collect::<Vec<_>>(), "{row}");
        assert_eq!(row["dtype"], name);
    };
    for name in ["f16", "bf16", "f32", "f64"] {
        expect(name, json!(-2.0), json!(3.5), json!(3.5), 0.25);
    }
    let third = 1.0 / 3.0;
    expect("i8", json!(i8::MIN), json!(2), json!(128), third);
    expect("i16", json!(i16::MIN), json!(2), json!(32768), third);
    expect("i32", json!(i32::MIN), json!(2), json!(2147483648u32), third);
    expect("i64", json!(i64::MIN), json!(i64::MAX), json!(1u64 << 63), third);
    expect("u8", json!(3), json!(u8::MAX), json!(u8::MAX), 0.0);
    expect("u16", json!(3), json!(u16::MAX), json!(u16::MAX), 0.0);
    expect("u32", json!(3), json!(u32::MAX), json!(u32::MAX), 0.0);
    expect("u64", json!(u64::MAX - 1), json!(u64::MAX), json!(u64::MAX), 0.0);
    expect("bool", json!(false), json!(true), json!(true), 0.25);
    for (name, mean, std) in
        [("f32", 0.5, 1.968502), ("f16", 0.5, 1.968502), ("bool", 0.75, 0.4330127)]
    {
        let row = row(name);
        assert!((row["mean"].as_f64().unwrap() - mean).abs() < 1e-6, "{row}");
        assert!((row["std"].as_f64().unwrap() - std).abs() < 1e-6, "{row}");
    }
    assert_eq!(row("f32")["shape"], json!([2, 2]));
}

/// NaN and infinities are counted, and the other figures are what NumPy makes of them.
#[test]
fn what_is_not_finite_is_counted() {
    const NAN: f32 = f32::NAN;
    const INF: f32 = f32::INFINITY;
    let mut long = vec![1.0f32; 100_000];
    (long[70_000], long[99_999]) = (INF, 0.0);
    let tensors = [
        tensor("nan", Dtype::F32, &[3], &[1.0, NAN, 0.0]),
        tensor("above", Dtype::F32, &[3], &[1.0, 2.0, INF]),
        tensor("below", Dtype::F32, &[3], &[-INF, 2.0, 0.0]),
        tensor("both", Dtype::F32, &[3], &[-INF, 2.0, INF]),
        tensor("all", Dtype::F32, &[4], &[-INF, NAN, INF, 0.0]),
        tensor("half", Dtype::F16, &[3], &[f16::INFINITY, f16::NAN, f16::ONE]),
        tensor("long", Dtype::F32, &[100, 1000], &long),
        tensor("double", Dtype::F64, &[3], &[f64::INFINITY, f64::NAN, 0.0]),
    ];
    let (row, status) = rows(&tensors);
    let has_double = row("double").get("error").is_none();
    assert_eq!(status, Some(if has_double { 0 } else { 1 }));
    let figures = |name: &str| {
        let row = row(name);
        ["mean", "std", "min", "max", "max_magnitude", "nans", "infinities"].map(|f| row[f].clone())
    };
    let nan = || json!("NaN");
    let inf = || json!("inf");
    assert_eq!(figures("nan"), [nan(), nan(), nan(), nan(), nan(), json!(1), json!(0)]);
    assert_eq!(figures("above"), [inf(), nan(), json!(1.0), inf(), inf(), json!(0), json!(1)]);
    let minus = json!("-inf");
    assert_eq!(
        figures("below"),
        [minus.clone(), nan(), minus.clone(), json!(2.0), inf(), json!(0), json!(1)]
    );
    assert_eq!(figures("both"), [nan(), nan(), minus, inf(), inf(), json!(0), json!(2)]);
    assert_eq!(figures("all"), [nan(), nan(), nan(), nan(), nan(), json!(1), json!(2)]);
    assert_eq!(figures("half"), [nan(), nan(), nan(), nan(), nan(), json!(1), json!(1)]);
    assert_eq!(figures("long"), [inf(), nan(), json!(0.0), inf(), inf(), json!(0), json!(1)]);
    if has_double {
        assert_eq!(figures("double"), figures("half"));
        assert_eq!(row("double")["zeros_share"], 1.0 / 3.0);
    }
    assert_eq!(row("long")["zeros_share"], 1e-5);
    assert_eq!(row("nan")["zeros_share"], 1.0 / 3.0);
}

/// Deviations whose squares no f32 holds, and a spread far from zero.
#[test]
fn deviations_neither_overflow_nor_vanish() {
    let values = [-1.0f32, 1.0, -1.0, 1.0];
    let tensors = [
        tensor("huge", Dtype::F32, &[4], &values.map(|value| value * 1e30)),
        tensor("tiny", Dtype::F32, &[4], &values.map(|value| value * 1e-30)),
        tensor("far", Dtype::F32, &[4], &values.map(|value| value * 8.0 + 1e8)),
    ];
    let (row, _) = rows(&tensors);
    for (name, mean, std) in [("huge", 0.0, 1e30), ("tiny", 0.0, 1e-30), ("far", 1e8, 8.0)] {
        let row = row(name);
        let found = |figure: &str| row[figure].as_f64().unwrap();
        assert!((found("std") - std).abs() <= 1e-6 * std, "{row}");
        assert!((found("mean") - mean).abs() <= 1e-6 * std, "{row}");
    }
}

/// A scalar is a tensor like others; a tensor without elements has counts alone.
#[test]
fn scalars_and_empty_tensors_have_rows() {
    let tensors = [
        tensor("scalar", Dtype::F32, &[], &[2.5f32]),
        tensor("empty", Dtype::F32, &[3, 0], &[0f32; 0]),
    ];
    let (row, status) = rows(&tensors);
    assert_eq!(status, Some(0));
    let scalar = row("scalar");
    assert_eq!(scalar["shape"], json!([]));
    assert_eq!([&scalar["mean"], &scalar["std"], &scalar["max"]], [2.5, 0.0, 2.5]);
    let empty = row("empty");
    for figure in ["mean", "std", "min", "max", "max_magnitude", "zeros_share"] {
        assert!(empty.get(figure).is_some_and(Value::is_null), "{figure}: {empty}");
    }
    assert_eq!([&empty["nans"], &empty["infinities"]], [0, 0]);
    let (_, status) = rows(&[]);
    assert_eq!(status, Some(0), "a checkpoint may have no tensors");
}

/// Types that the library does not reduce say so in their row; the others come, and the status
/// tells.
#[test]
fn other_types_say_so_in_their_row() {
    let tensors = [
        tensor("fine", Dtype::F32, &[2], &[1.0f32, 3.0]),
        tensor("narrow", Dtype::F8_E8M0, &[2], &[1u8, 3]),
    ];
    let (row, status) = rows(&tensors);
    assert_eq!(status, Some(1));
    assert_eq!(row("fine")["mean"], 2.0);
    assert_eq!(row("narrow")["dtype"], "F8_E8M0");
    assert_eq!(row("narrow")["error"], "tensors of F8_E8M0 cannot be reduced");
    assert!(row("narrow").get("mean").is_none());

    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), &tensors);
    let output = inspect(&[text(&path)]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.ends_with("\nnarrow: tensors of F8_E8M0 cannot be reduced\n"), "{said}");
}

/// The total is that of all elements together: of one type, it keeps the type to the last digit.
#[test]
fn the_total_is_over_all_elements() {
    let total = |tensors: &[Tensor]| report(tensors).0["total"].clone();
    let figures = ["min", "max", "max_magnitude", "zeros_share", "nans", "infinities"];
    let exact = |total: &Value| figures.map(|figure| total[figure].clone());
    let about = |total: &Value| ["tensors", "elements", "dtype"].map(|field| total[field].clone());
    let close = |found: &Value, wanted: f64| {
        assert!((found.as_f64().unwrap() - wanted).abs() < 1e-5 * wanted.abs(), "{found} {wanted}");
    };

    // Of 2, 4, 0, 0 and 9.
    let floats = [
        tensor("first", Dtype::F32, &[2], &[2.0f32, 4.0]),
        tensor("second", Dtype::F32, &[2, 1], &[0.0f32, 0.0]),
        tensor("none", Dtype::F32, &[0], &[0f32; 0]),
        tensor("third", Dtype::F32, &[], &[9.0f32]),
    ];
    let found = total(&floats);
    assert_eq!(about(&found), [json!(4), json!(5), json!("f32")]);
    assert_eq!(exact(&found), [json!(0.0), json!(9.0), json!(9.0), json!(0.4), json!(0), json!(0)]);
    close(&found["mean"], 3.0);
    close(&found["std"], 11.2f64.sqrt());

    // Of -3, 0, 2^24 + 1 and -2^31, which no f32 tells from its neighbours.
    let integers = [
        tensor("first", Dtype::I32, &[3], &[-3i32, 0, (1 << 24) + 1]),
        tensor("second", Dtype::I32, &[1], &[i32::MIN]),
    ];
    let found = total(&integers);
    assert_eq!(about(&found), [json!(2), json!(4), json!("i32")]);
    let [min, max, max_magnitude, ..] = exact(&found);
    assert_eq!(
        [min, max, max_magnitude],
        [json!(i32::MIN), json!((1 << 24) + 1), json!(1u32 << 31)]
    );

    let bools = [
        tensor("first", Dtype::BOOL, &[2], &[1u8, 1]),
        tensor("second", Dtype::BOOL, &[2], &[0u8, 1]),
    ];
    let found = total(&bools);
    let [min, max, max_magnitude, zeros_share, ..] = exact(&found);
    assert_eq!([min, max, max_magnitude], [json!(false), json!(true), json!(true)]);
    assert_eq!((&zeros_share, &found["mean"]), (&json!(0.25), &json!(0.75)));
}

/// Of several types, the extrema of the total are floats; what has no figures is not in it.
#[test]
fn the_total_of_several_types_is_in_floats() {
    let tensors = [
        tensor("half", Dtype::F16, &[2], &[f16::from_f32(1.5), f16::ZERO]),
        tensor("narrow", Dtype::F8_E8M0, &[2], &[1u8, 3]),
        tensor("long", Dtype::F32, &[100, 100], &[1.0f32; 10_000]),
        tensor("steps", Dtype::I32, &[1], &[-12]),
        tensor("mask", Dtype::BOOL, &[2], &[0u8, 1]),
    ];
    let (all, status) = report(&tensors);
    assert_eq!(status, Some(1));
    let total = &all["total"];
    assert_eq!(
        [&total["tensors"], &total["elements"], &total["dtype"]],
        [&json!(4), &json!(10_005), &Value::Null]
    );
    assert_eq!(
        [&total["min"], &total["max"], &total["max_magnitude"]],
        [&json!(-12.0), &json!(1.5), &json!(12.0)]
    );
    assert_eq!(total["zeros_share"], 2.0 / 10_005.0);
    let mean: f64 = (1.5 + 10_000.0 - 12.0 + 1.0) / 10_005.0;
    let squares = 2.25 + 10_000.0 + 144.0 + 1.0;
    let std = (squares / 10_005.0 - mean * mean).sqrt();
    assert!((total["mean"].as_f64().unwrap() - mean).abs() < 1e-6, "{total}");
    assert!((total["std"].as_f64().unwrap() - std).abs() < 1e-5, "{total}");
    assert!(total.get("error").is_none());

    let (all, _) = report(&[
        tensor("steps", Dtype::I32, &[2], &[-12, 3]),
        tensor("nan", Dtype::F32, &[3], &[1.0f32, f32::NAN, f32::INFINITY]),
        tensor("above", Dtype::F32, &[1], &[f32::INFINITY]),
    ]);
    let total = &all["total"];
    for figure in ["mean", "std", "min", "max", "max_magnitude"] {
        assert_eq!(total[figure], "NaN", "{figure}: {total}");
    }
    assert_eq!([&total["nans"], &total["infinities"]], [1, 2]);

    let (all, _) = report(&[
        tensor("steps", Dtype::I32, &[2], &[-12, 3]),
        tensor("above", Dtype::F32, &[1], &[f32::INFINITY]),
    ]);
    let total = &all["total"];
    let found = ["mean", "std", "min", "max"].map(|figure| &total[figure]);
    assert_eq!(found, [&json!("inf"), &json!("NaN"), &json!(-12.0), &json!("inf")]);
}

/// Without figures the total has counts alone; the table has a total of two tensors or more.
#[test]
fn small_checkpoints_have_no_total_in_the_table() {
    let narrow = || tensor("narrow", Dtype::F8_E8M0, &[2], &[1u8, 3]);
    let fine = || tensor("fine", Dtype::F32, &[2], &[1.0f32, 3.0]);
    for tensors in [vec![], vec![narrow()]] {
        let total = report(&tensors).0["total"].clone();
        assert_eq!([&total["tensors"], &total["elements"], &total["nans"]], [0, 0, 0]);
        for figure in ["dtype", "mean", "std", "min", "max", "max_magnitude", "zeros_share"] {
            assert!(total.get(figure).is_some_and(Value::is_null), "{figure}: {total}");
        }
    }
    let table = |tensors: &[Tensor]| {
        let folder = tempfile::tempdir().unwrap();
        let output = inspect(&[text(&write(folder.path(), tensors))]);
        String::from_utf8(output.stdout).unwrap()
    };
    let said = table(&[fine(), narrow()]);
    assert!(!said.contains("total"), "{said}");
    let said = table(&[fine(), tensor("steps", Dtype::I32, &[1], &[-12])]);
    assert!(said.contains("\ntotal"), "{said}");
}

/// Tensors are reduced type by type, and their rows come in the order of the file.
#[test]
fn rows_are_in_the_order_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let header = json!({
        "d": {"dtype": "I32", "shape": [1], "data_offsets": [0, 4]},
        "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
        "c": {"dtype": "I32", "shape": [1], "data_offsets": [8, 12]},
        "a": {"dtype": "F32", "shape": [1], "data_offsets": [12, 16]},
    });
    let header = header.to_string();
    let length = (header.len() as u64).to_le_bytes();
    fs::write(&path, [&length[..], header.as_bytes(), &[0; 16]].concat()).unwrap();
    let output = inspect(&[text(&path), "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["tensors"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["d", "b", "c", "a"]);
}

/// Many tensors, of types in turns, have their own figures each.
#[test]
fn many_tensors_have_their_own_figures() {
    let nths = 0..150;
    let tensors: Vec<Tensor> = nths
        .clone()
        .map(|nth| {
            let (name, value) = (format!("tensor {nth}"), nth as f32);
            let len = 1 + nth * 7 % 40;
            match nth % 3 {
                0 => tensor(&name, Dtype::F32, &[len], &vec![value; len]),
                1 => tensor(&name, Dtype::I32, &[len], &vec![nth as i32; len]),
                _ => tensor(&name, Dtype::F16, &[len], &vec![f16::from_f32(value); len]),
            }
        })
        .collect();
    let (row, status) = rows(&tensors);
    assert_eq!(status, Some(0));
    for nth in nths {
        let row = row(&format!("tensor {nth}"));
        for figure in ["mean", "min", "max", "max_magnitude"] {
            assert_eq!(row[figure].as_f64(), Some(nth as f64), "{row}");
        }
        assert_eq!(row["std"], 0.0, "{row}");
        assert_eq!(row["zeros_share"], if nth == 0 { 1.0 } else { 0.0 }, "{row}");
    }
}

/// A tensor that no buffer holds is refused before it is read; the others come.
#[test]
fn tensors_too_large_say_so_in_their_row() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    // Nobody's disk holds the zeros of a sparse file.
    let huge = 1u64 << 40;
    let header = json!({
        "small": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
        "huge": {"dtype": "U32", "shape": [huge / 4], "data_offsets": [4, huge + 4]},
    });
    let header = header.to_string();
    let mut file = fs::File::create(&path).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.set_len(8 + header.len() as u64 + 4 + huge).unwrap();
    let output = inspect(&[text(&path), "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["tensors"][0]["zeros_share"], 1.0);
    assert_eq!(report["total"]["elements"], 1);
    let error = report["tensors"][1]["error"].as_str().unwrap();
    assert!(
        error.starts_with("takes 1099511627776 bytes, a buffer of the device holds"),
        "{error}"
    );
}

/// People get a table with a row for each tensor, and nothing on stderr where that is no terminal.
#[test]
fn the_table_has_a_row_for_each_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let tensors = [
        tensor("weight", Dtype::F32, &[2, 2], &[0.0f32, -1.5, 2e-7, 1e9]),
        tensor("steps", Dtype::I32, &[1], &[-12345]),
    ];
    let path = write(folder.path(), &tensors);
    let output = inspect(&[text(&path)]);
    assert!(output.status.success());
    let said = String::from_utf8(output.stdout).unwrap();
    let row = |name: &str| {
        let line = said.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(said.lines().next().unwrap().contains("model.safetensors: 2 tensors, on "), "{said}");
    assert_eq!(row("name")[..4], ["name", "shape", "type", "mean"]);
    assert_eq!(
        row("steps")[2..],
        ["i32", "-12345", "0", "-12345", "-12345", "12345", "0", "0", "0"]
    );
    let weight = row("weight");
    assert_eq!(weight[1..4], ["[2,", "2]", "f32"]);
    assert_eq!(row("total")[..4], ["total", "5", "elements", "mixed"]);
    assert_eq!(row("total")[6..], ["-12345", "1.0000e9", "1.0000e9", "20.00%", "0", "0"]);
    assert_eq!(weight[6..], ["-1.5000", "1.0000e9", "1.0000e9", "25.00%", "0", "0"]);
    let noise = String::from_utf8(output.stderr).unwrap();
    assert!(!noise.contains("weight"), "{noise}");
}

/// One line that says what is wrong with the file, and status 2.
#[test]
fn files_that_are_none_get_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), &[tensor("weight", Dtype::F32, &[2], &[1.0f32, 2.0])]);
    let whole = fs::read(&path).unwrap();
    let with_header = |header: &str, data: usize| {
        let length = (header.len() as u64).to_le_bytes();
        [&length[..], header.as_bytes(), &vec![0; data]].concat()
    };
    let tensor = |shape: &str, offsets: &str| {
        format!(r#"{{"t":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    let cases: [(&str, Vec<u8>, &str); 11] = [
        ("empty", Vec::new(), "not a safetensors file: the file is empty"),
        ("short", vec![1, 2, 3], "not a safetensors file: the file has 3 bytes"),
        ("poem", b"Shall I compare thee".to_vec(), "not a safetensors file: it announces a header"),
        ("cut header", whole[..20].to_vec(), "not a safetensors file: it announces a header"),
        ("cut data", whole[..whole.len() - 3].to_vec(), "truncated: its tensors end at byte"),
        ("long", [&whole[..], b"more"].concat(), "damaged: its tensors end at byte"),
        ("no json", with_header("{\"t\":", 0), "the header is damaged: EOF while parsing"),
        ("no text", with_header("{}", 0).into_iter().map(|b| b | 0x80).collect(), "announces"),
        ("beyond", with_header(&tensor("[2]", "[0,8]"), 4), "truncated: its tensors end at byte"),
        ("shape", with_header(&tensor("[3]", "[0,8]"), 8), "the header is damaged: invalid shape"),
        (
            "overflow",
            with_header(&tensor("[4294967296,4294967296]", "[0,8]"), 8),
            "the header is damaged: overflow computing",
        ),
    ];
    for (name, bytes, message) in cases {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        expect_one_line(&path, message);
    }
    expect_one_line(&folder.path().join("missing"), "missing: No such file");
    expect_one_line(folder.path(), "is a directory");
}

fn expect_one_line(path: &Path, message: &str) {
    for arguments in [vec![text(path)], vec![text(path), "--json"]] {
        let run = inspect(&arguments);
        let said = String::from_utf8(run.stderr).unwrap();
        let own: Vec<&str> = said.lines().filter(|line| line.starts_with("inspect: ")).collect();
        assert_eq!(run.status.code(), Some(2), "{said}");
        assert!(own.len() == 1 && own[0].contains(message), "{message}: {said}");
        assert!(!said.contains("panicked") && run.stdout.is_empty(), "{said}");
    }
}
