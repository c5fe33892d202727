//! The program `reduce` from the outside: files in, files and JSON out, one line per mistake.
#![cfg(any(feature = "cuda", feature = "vulkan", feature = "wgpu"))]

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use npyz::WriterBuilder;
use reduce_examples::{Array, Number};
use reduce_kernels::{ElementType, planner::row_major_strides};
use reduce_programs::Backend;
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

/// Groups by keys from a file have a result each, and a program says how many there are.
#[test]
fn groups_are_reduced_into_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.npy"), folder.path().join("out.npy"));
    let keys = folder.path().join("keys.npy");
    array(&[6, 2], |i| i as f32).write(&input).unwrap();
    write_raw(&keys, &[6], npyz::Order::C, &[2i32, 0, -1, 2, 0, 7]);
    let arguments = [text(&input), "--op", "sum", "--axes", "0", "--keys", text(&keys)];
    let groups = ["--groups", "3"];
    let written = ["--output", text(&output), "--json"];
    let report = json(&[&arguments[..], &groups, &written].concat());
    assert_eq!(report["groups"], 3);
    assert_eq!(report["output_shape"], serde_json::json!([3, 2]));
    let expected = [10.0, 12.0, 0.0, 0.0, 6.0, 8.0];
    assert_eq!(Array::read(&output).unwrap(), array(&[3, 2], |i| expected[i]));
    let said = String::from_utf8(reduce(&[&arguments[..], &groups].concat()).stdout).unwrap();
    assert!(said.contains("over axes [0] in 3 groups gives f32 [3, 2]"), "{said}");

    assert!(!reduce(&arguments).status.success(), "the number of groups is missing");
    write_raw(&keys, &[5], npyz::Order::C, &[2i32, 0, -1, 2, 0]);
    let refused = reduce(&[&arguments[..], &groups].concat());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("groups of 5 elements are not those of an axis of 6"), "{said}");
}

/// Segments by offsets from a file have a result each; wrong offsets are named.
#[test]
fn segments_are_reduced_into_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.npy"), folder.path().join("out.npy"));
    let offsets = folder.path().join("offsets.npy");
    array(&[6, 2], |i| i as f32).write(&input).unwrap();
    write_raw(&offsets, &[4], npyz::Order::C, &[0i32, 1, 1, 6]);
    let arguments = [text(&input), "--op", "sum", "--axes", "0", "--segments", text(&offsets)];
    let written = ["--output", text(&output), "--json"];
    let report = json(&[&arguments[..], &written].concat());
    assert_eq!(report["segments"], 3);
    assert_eq!(report["output_shape"], serde_json::json!([3, 2]));
    assert_eq!(report["plan"]["cubes"], 1, "{report}");
    let expected = [0.0, 1.0, 0.0, 0.0, 30.0, 35.0];
    assert_eq!(Array::read(&output).unwrap(), array(&[3, 2], |i| expected[i]));
    let said = String::from_utf8(reduce(&arguments).stdout).unwrap();
    assert!(said.contains("over axes [0] in 3 segments gives f32 [3, 2]"), "{said}");

    write_raw(&offsets, &[3], npyz::Order::C, &[0i32, 7, 6]);
    let refused = reduce(&arguments);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success());
    assert!(said.contains("offset number 1 is 7, and must be from 0 to 6"), "{said}");
    for others in [&["--apply", "softmax"][..], &["--op", "top_k", "--k", "1"]] {
        let given = [&[text(&input), "--axes", "0", "--segments", text(&offsets)], others];
        let refused = reduce(&given.concat());
        assert!(!refused.status.success());
        assert!(String::from_utf8(refused.stderr).unwrap().contains("segments"));
    }
}

/// Selections have a file for the values and one for the positions, quantiles an axis of their own.
#[test]
fn elements_are_selected_into_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (input, values, positions) = (path("in.npy"), path("values.npy"), path("positions.npy"));
    array(&[2, 5], |i| (i * 7 % 5) as f32).write(Path::new(&input)).unwrap();
    let output = format!("{values},{positions}");
    let top = ["--op", "top_k", "--k", "2", "--axes", "1"];
    let report = json(&[&[&input[..], "--output", &output, "--json"], &top[..]].concat());
    assert_eq!(report["output_shape"], serde_json::json!([2, 2]));
    assert_eq!(report["results"][1]["values"], serde_json::json!([2, 4, 2, 4]));
    let found = Array::read(Path::new(&values)).unwrap();
    assert_eq!(found, array(&[2, 2], |i| [4.0, 3.0, 4.0, 3.0][i]));
    let found = Array::read(Path::new(&positions)).unwrap();
    assert_eq!((found.element, found.shape), (ElementType::U32, vec![2, 2]));

    let of = |arguments: &[&str]| json(&[&[&input[..], "--json"], arguments].concat());
    let found = of(&["--op", "top_k", "--k", "1", "--smallest"]);
    assert_eq!(found["results"][0]["values"], serde_json::json!([0.0]));
    let found = of(&["--op", "top_k", "--k", "1", "--axes", "1", "--probabilities", "selected"]);
    assert_eq!(found["results"][0]["values"], serde_json::json!([1.0, 1.0]));
    let found = of(&["--op", "top_k_mask", "--k", "2", "--axes", "1", "--fill", "-1"]);
    let expected = [-1, -1, 4, -1, 3, -1, -1, 4, -1, 3].map(f64::from);
    assert_eq!(found["values"], serde_json::json!(expected));
    let told = found["plan_in_words"].as_str().unwrap();
    assert!(told.starts_with("2 launches: top_k: 1 launch, "), "{told}");
    let found = of(&["--op", "kth_value", "--k", "2", "--axes", "1", "--keepdims"]);
    assert_eq!(found["output_shape"], serde_json::json!([2, 1]));
    assert_eq!(found["results"][0]["values"], serde_json::json!([1.0, 1.0]));
    let found = of(&["--op", "quantile", "--q", "0.5,1", "--axes", "1"]);
    assert_eq!(found["output_shape"], serde_json::json!([2, 2]));
    assert_eq!(found["values"], serde_json::json!([2.0, 2.0, 4.0, 4.0]));
    let found = of(&["--op", "median", "--axes", "1", "--type", "f64"]);
    assert_eq!(found["output_shape"], serde_json::json!([2]));
    // The same elements, of which each row has one less.
    array(&[2, 5], |i| if i % 5 == 2 { f32::NAN } else { (i * 7 % 5) as f32 })
        .write(Path::new(&input))
        .unwrap();
    let found = of(&["--op", "nanquantile", "--q", "1,0", "--axes", "1"]);
    assert_eq!(found["values"], serde_json::json!([3.0, 3.0, 0.0, 0.0]));
    let found = of(&["--op", "nanmedian", "--axes", "1"]);
    assert_eq!(found["values"], serde_json::json!([1.5, 1.5]));

    for (arguments, message) in [
        (&["--op", "top_k"][..], "`top_k` needs --k"),
        (&["--op", "quantile"], "`quantile` needs --q"),
        (&["--op", "nanquantile"], "`nanquantile` needs --q"),
        (&["--op", "nanmedian", "--q", "0.5"], "`nanmedian` takes no --q"),
        (&["--op", "median", "--k", "3"], "`median` takes no --k"),
        (&["--op", "sum", "--q", "0.5"], "`sum` takes no --q"),
        (&["--op", "top_k", "--k", "3", "--fill", "0"], "`top_k` takes no --fill"),
        (&["--op", "median", "--probabilities", "slice"], "`median` takes no --probabilities"),
        (&["--op", "top_k", "--k", "3", "--type", "f64"], "`top_k` takes no --type"),
        (&["--apply", "softmax", "--smallest"], "`softmax` takes no --smallest"),
        (&["--op", "top_k", "--k", "11"], "the 11 first of 10 elements were asked for"),
        (&["--op", "quantile", "--q", "2"], "quantile 0 is 2, which is not from 0 to 1"),
        (
            &["--op", "top_k", "--k", "1", "--output", "one.npy"],
            "`top_k` gives 2 results per reduction, but --output names 1 file",
        ),
    ] {
        let output = reduce(&[&[&input[..]], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(message), "{arguments:?}: {said}");
    }
}

/// Every type that NumPy shares with the library comes in and goes out as what it is, in both byte
/// orders; 64-bit integers to the last digit.
#[test]
fn every_type_of_numpy_comes_in_and_goes_out() {
    fn maximum<T: npyz::AutoSerialize + npyz::Serialize + Copy>(
        values: [T; 3],
        dtype: ElementType,
        highest: Value,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in.npy"), folder.path().join("out.npy"));
        for big in [false, true] {
            let descr = T::default_dtype().descr().replace('<', if big { ">" } else { "<" });
            let options = npyz::WriteOptions::<T>::new().dtype(npyz::DType::parse(&descr).unwrap());
            let mut file = fs::File::create(&input).unwrap();
            let mut writer = options.shape(&[3]).writer(&mut file).begin_nd().unwrap();
            writer.extend(values).unwrap();
            writer.finish().unwrap();
            let arguments = [text(&input), "--op", "max", "--output", text(&output), "--json"];
            let run = reduce(&arguments);
            let said = String::from_utf8_lossy(&run.stderr);
            if lacks(dtype, &said) {
                return;
            }
            assert!(run.status.success(), "{descr}: {said}");
            let report: Value = serde_json::from_slice(&run.stdout).unwrap();
            assert_eq!(report["output_dtype"], dtype.name());
            assert_eq!(report["values"], serde_json::json!([highest]), "{descr}");
            let written = Array::read(&output).unwrap();
            assert_eq!(written.element, dtype);
            assert_eq!(serde_json::to_value(written.values()).unwrap(), report["values"]);
        }
    }
    use half::f16;
    use serde_json::json;
    let [low, one, high] = [-0.5, 1.0, 2.5].map(f16::from_f64);
    maximum([low, high, one], ElementType::F16, json!(2.5));
    maximum([-0.5f32, 2.5, 1.0], ElementType::F32, json!(2.5));
    maximum([-0.5f64, 0.1, 0.0], ElementType::F64, json!(0.1));
    maximum([-5i8, 100, 0], ElementType::I8, json!(100));
    maximum([-5i16, 30000, 0], ElementType::I16, json!(30000));
    maximum([-5i32, i32::MAX, 0], ElementType::I32, json!(i32::MAX));
    maximum([i64::MIN, i64::MAX - 1, i64::MAX - 2], ElementType::I64, json!(i64::MAX - 1));
    maximum([5u8, 200, 0], ElementType::U8, json!(200));
    maximum([5u16, 60000, 0], ElementType::U16, json!(60000));
    maximum([5u32, u32::MAX, 0], ElementType::U32, json!(u32::MAX));
    maximum([5u64, u64::MAX, 0], ElementType::U64, json!(u64::MAX));
    maximum([false, true, false], ElementType::Bool, json!(true));
}

/// Whether a device has refused `dtype` by name, as WGSL does most types.
fn lacks(dtype: ElementType, said: &str) -> bool {
    said.contains(&format!("has no {dtype}"))
}

/// Bools are printed as such.
#[test]
fn truth_is_printed_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.npy");
    array(&[2, 2], |i| if i == 0 { 0.0 } else { 1.0 }).write(&input).unwrap();
    let run = reduce(&[text(&input), "--op", "all", "--axes", "1"]);
    let said = String::from_utf8(run.stdout).unwrap();
    if lacks(ElementType::Bool, &String::from_utf8_lossy(&run.stderr)) {
        return;
    }
    assert!(said.contains("\nvalues: false true\n"), "{said}");
}

/// An operator with several results writes a file for each, and tells each.
#[test]
fn several_results_go_to_several_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    array(&[2, 3], |i| [1.0, 9.0, 4.0, 7.0, -2.0, 7.0][i]).write(&file("in.npy")).unwrap();
    let input = file("in.npy");
    let outputs = format!("{},{}", text(&file("value.npy")), text(&file("index.npy")));
    let arguments = [text(&input), "--op", "max_with_index", "--axes", "1", "--output", &outputs];
    let report = json(&[&arguments[..], &["--json"]].concat());
    assert_eq!(report["output_shape"], serde_json::json!([2]));
    let results = serde_json::json!([
        {"dtype": "f32", "values": [9.0, 7.0]},
        {"dtype": "u32", "values": [1, 0]},
    ]);
    assert_eq!(report["results"], results);
    assert!(report.get("values").is_none() && report.get("output_dtype").is_none(), "{report}");
    assert_eq!(Array::read(&file("value.npy")).unwrap(), array(&[2], |i| [9.0, 7.0][i]));
    let indices = Array::read(&file("index.npy")).unwrap();
    assert_eq!(indices.values(), [Number::Unsigned(1), Number::Unsigned(0)]);
    let said = String::from_utf8(reduce(&arguments).stdout).unwrap();
    assert!(said.contains("gives f32 and u32 [2]"), "{said}");
    assert!(said.contains("\nvalues: 9 7\nvalues: 1 0\n"), "{said}");
}

/// What cannot be put in its place leaves the other results out too.
#[test]
fn results_appear_together_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    array(&[4], |i| i as f32).write(&file("in.npy")).unwrap();
    fs::create_dir(file("folder.npy")).unwrap();
    for second in ["folder.npy", "nowhere/high.npy"] {
        let outputs = format!("{},{}", text(&file("low.npy")), text(&file(second)));
        let run = reduce(&[text(&file("in.npy")), "--op", "min_max", "--output", &outputs]);
        assert_eq!(run.status.code(), Some(2));
        let left = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 2, "{second}: nothing but the input and the folder is left");
    }
}

/// The correction, by both of its names, and the exponent reach the operators.
#[test]
fn parameters_reach_the_operators() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.npy");
    array(&[4], |i| [1.0, 2.0, 3.0, 6.0][i]).write(&input).unwrap();
    let value = |rest: &[&str]| {
        let report = json(&[&[text(&input), "--json", "--op"], rest].concat());
        report["values"][0].as_f64().unwrap()
    };
    assert_eq!(value(&["var"]), 3.5);
    assert!((value(&["var", "--correction", "1"]) - 14.0 / 3.0).abs() < 1e-6);
    assert!((value(&["var", "--ddof", "2"]) - 7.0).abs() < 1e-6);
    assert!((value(&["norm_p"]) - 50f64.sqrt()).abs() < 1e-5, "the exponent is 2 unless given");
    assert!((value(&["norm_p", "--p", "3"]) - 252f64.cbrt()).abs() < 1e-5);
}

/// The types of the result and of the accumulator, by request.
#[test]
fn types_are_chosen_by_request() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, fraction) = (folder.path().join("i32.npy"), folder.path().join("f32.npy"));
    write_raw(&whole, &[3], npyz::Order::C, &[i32::MAX, i32::MAX, 1]);
    write_raw(&fraction, &[3], npyz::Order::C, &[16777216f32, 1.0, 1.0]);
    let cases = [
        (&whole, "--type i64", ElementType::I64, serde_json::json!(2 * i64::from(i32::MAX) + 1)),
        (&whole, "--type f32", ElementType::F32, serde_json::json!(4294967296.0)),
        (&fraction, "--type f64", ElementType::F64, serde_json::json!(16777218.0)),
        (&fraction, "--accumulate f64", ElementType::F64, serde_json::json!(16777218.0)),
    ];
    for (input, request, needed, expected) in cases {
        let mut arguments = vec![text(input), "--op", "sum", "--json"];
        arguments.extend(request.split(' '));
        let run = reduce(&arguments);
        let said = String::from_utf8_lossy(&run.stderr);
        if lacks(needed, &said) {
            continue;
        }
        assert!(run.status.success(), "{request}: {said}");
        let report: Value = serde_json::from_slice(&run.stdout).unwrap();
        assert_eq!(report["values"][0], expected, "{request}: {report}");
    }
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

/// A function gives an array of the input's shape, and says how.
#[test]
fn functions_are_applied_to_each_element() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.npy"), folder.path().join("out.npy"));
    array(&[3, 50], |i| (i % 7) as f32).write(&input).unwrap();
    let arguments = ["--apply", "softmax", "--axes", "-1", "--output", text(&output), "--json"];
    let report = json(&[&[text(&input)], &arguments[..]].concat());
    assert_eq!(report["apply"], "softmax");
    assert_eq!(report["axes"], serde_json::json!([1]));
    assert_eq!(report["output_dtype"], "f32");
    assert!(report["plan"].is_object(), "{report}");
    let written = Array::read(&output).unwrap();
    assert_eq!(written.shape, [3, 50]);
    let rows: &[f32] = bytemuck::cast_slice(&written.bytes);
    for row in rows.chunks(50) {
        assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5);
    }
    // Twice the temperature halves the distance of logarithms.
    let logs = |temperature: &str| {
        let options = ["--apply", "log_softmax", "--axes", "1", "--temperature", temperature];
        let file = ["--output", text(&output)];
        assert!(reduce(&[&[text(&input)], &options[..], &file].concat()).status.success());
        let array = Array::read(&output).unwrap();
        let values: &[f32] = bytemuck::cast_slice(&array.bytes);
        values[1] - values[0]
    };
    assert!((logs("1") - 1.0).abs() < 1e-5);
    assert!((logs("2") - 0.5).abs() < 1e-5);
    let said = reduce(&[text(&input), "--apply", "standardize", "--axes", "0", "--explain"]);
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains("plan: ") && said.contains("not separately: slower"), "{said}");
}

/// A scan gives an array of the input's shape: that of a function by its name, or of any operator,
/// from either end, with or without the element at each position.
#[test]
fn arrays_are_scanned_into_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let (input, output) = (file("in.npy"), file("out.npy"));
    // [[0, 1, 2], [3, 4, 5]].
    array(&[2, 3], |i| i as f32).write(&input).unwrap();
    let written = |rest: &str| {
        let given = [text(&input), "--output", text(&output)];
        let run = reduce(&[&given[..], &rest.split(' ').collect::<Vec<_>>()].concat());
        assert!(run.status.success(), "{rest}: {}", String::from_utf8_lossy(&run.stderr));
        Array::read(&output).unwrap()
    };
    let cases = [
        ("--scan cumsum --axis 1", [0.0, 1.0, 3.0, 3.0, 7.0, 12.0]),
        ("--scan sum --axes -1", [0.0, 1.0, 3.0, 3.0, 7.0, 12.0]),
        ("--scan cumsum --axis 0", [0.0, 1.0, 2.0, 3.0, 5.0, 7.0]),
        ("--scan cumsum", [0.0, 1.0, 3.0, 6.0, 10.0, 15.0]),
        ("--scan cumsum --axis 1 --exclusive", [0.0, 0.0, 1.0, 0.0, 3.0, 7.0]),
        ("--scan cumsum --axis 1 --reverse", [3.0, 3.0, 2.0, 12.0, 9.0, 5.0]),
        ("--scan cumsum --axis 1 --exclusive --reverse", [3.0, 2.0, 0.0, 9.0, 5.0, 0.0]),
        ("--scan cummax --axes 0,1 --reverse", [5.0; 6]),
        ("--scan cumvar --axis 0 --ddof 0", [0.0, 0.0, 0.0, 2.25, 2.25, 2.25]),
    ];
    for (rest, expected) in cases {
        assert_eq!(written(rest), array(&[2, 3], |i| expected[i]), "{rest}");
    }
    let norms = written("--scan norm_p --p 3").values();
    assert!((norms[2].to_f64() - 9f64.cbrt()).abs() < 1e-5, "{norms:?}");
    // Several results have a file each.
    let outputs = format!("{},{}", text(&file("values.npy")), text(&file("positions.npy")));
    let scan = ["--scan", "cummax_with_positions", "--axis", "1", "--json", "--output", &outputs];
    let report = json(&[&[text(&input)], &scan[..]].concat());
    assert_eq!(report["results"][1]["values"], serde_json::json!([0, 1, 2, 0, 1, 2]));
    assert_eq!(Array::read(&file("values.npy")).unwrap(), Array::read(&input).unwrap());
    assert_eq!(Array::read(&file("positions.npy")).unwrap().element, ElementType::U32);
}

/// What a scan tells: its name, the plan, why each other schedule was not taken, the bytes that it
/// moves. Options that it does not take are named, before anything is launched or written.
#[test]
fn scans_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let (input, output) = (file("in.npy"), file("out.npy"));
    array(&[64, 300], |_| 1.0).write(&input).unwrap();
    let scan = [text(&input), "--scan", "cumsum", "--axis", "1"];
    let report = json(&[&scan[..], &["--exclusive", "--json"]].concat());
    assert_eq!((&report["scan"], &report["op"]), (&"cumsum".into(), &Value::Null));
    assert_eq!((&report["exclusive"], &report["reverse"]), (&true.into(), &false.into()));
    assert_eq!(report["output_shape"], serde_json::json!([64, 300]));
    assert!(report["plan"]["units_per_output"].is_number(), "{report}");
    let number = |key: &str| report[key].as_f64().unwrap();
    let bytes = number("gigabytes_per_second") * number("microseconds") * 1e3;
    assert!((bytes - 2.0 * 64.0 * 300.0 * 4.0).abs() < 1.0, "{report}");
    let run = reduce(&[&scan[..], &["--reverse", "--explain"]].concat());
    let said = String::from_utf8(run.stdout).unwrap();
    let title = "reverse scan with cumsum of f32 [64, 300] over axes [1] gives f32 [64, 300]\n";
    assert!(said.starts_with(title), "{said}");
    assert!(said.contains("\nplan: scan by ") && said.contains("\nexpected: "), "{said}");
    assert_eq!(said.matches("\nnot ").count(), 3, "every other schedule has its reason: {said}");

    array(&[4, 0], |_| 0.0).write(&input).unwrap();
    let report = json(&[&scan[..], &["--json"]].concat());
    assert_eq!((&report["plan"], &report["values"]), (&Value::Null, &serde_json::json!([])));

    array(&[4, 5], |i| i as f32).write(&input).unwrap();
    for (rest, message) in [
        ("--scan cumsums", "unknown scan `cumsums`: expected one of cumsum, cumprod, cummax,"),
        ("--scan dot", "unknown scan `dot`: expected one of cumsum,"),
        ("--scan cumsum --keepdims", "`cumsum` takes no --keepdims"),
        ("--scan sum --with F", "`sum` takes no --with"),
        ("--scan cumsum --block 5", "`cumsum` takes no --block"),
        ("--scan cumsum --segments F", "`cumsum` takes no --segments"),
        ("--scan cumsum --keys F --groups 2", "`cumsum` takes no --keys"),
        ("--scan cumsum --k 3", "`cumsum` takes no --k"),
        ("--scan cumsum --p 3", "`cumsum` takes no --p"),
        ("--scan cumvar --ddof -1", "`cumvar`: correction is -1, but must be a finite number"),
        ("--scan cumsum --type i4", "`cumsum` gives no integers of 4 bits"),
        ("--scan cumsum --type i32", "`sum` of f32 cannot give i32"),
        ("--scan cummax --accumulate-in f64", "`max` of f32 cannot accumulate in f64"),
        ("--scan cumsum --axis 2", "axis 2 is out of range for a tensor of rank 2"),
        ("--scan cumsum --numerics reproducible", "at every position"),
        ("--scan cummax_with_positions", "`cummax_with_positions` gives 2 results per reduction"),
        ("--scan cumsum --op sum", "cannot be used with"),
        ("--scan cumsum --apply softmax", "cannot be used with"),
        ("--op sum --exclusive", "`sum` takes no --exclusive"),
        ("--op sum --block 5", "`sum` takes no --block"),
        ("--op top_k --k 2 --reverse", "`top_k` takes no --reverse"),
        ("--op median --block 5", "`median` takes no --block"),
        ("--apply softmax --reverse", "`softmax` takes no --reverse"),
    ] {
        let mut arguments = vec![text(&input), "--output", text(&output)];
        arguments.extend(rest.split(' ').map(|word| if word == "F" { text(&input) } else { word }));
        let run = reduce(&arguments);
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(2), "{rest}: {said}");
        assert!(said.contains(message), "{rest}: {said}");
        assert!(!output.exists(), "{rest} left an output");
    }
}

/// Blocks of rows become integers in one file, and their scales another.
#[test]
fn blocks_are_quantised_with_their_scales() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let (input, integers, scales) = (file("in.npy"), file("integers.npy"), file("scales.npy"));
    array(&[2, 6], |i| [4.0, -1.0, 2.0, 0.0, 0.25, 0.125][i % 6]).write(&input).unwrap();
    let output = format!("{},{}", text(&integers), text(&scales));
    let arguments =
        ["--apply", "quantize", "--most", "8", "--type", "i32", "--axes", "1", "--block", "3"];
    let arguments = [&[text(&input)], &arguments[..], &["--output", &output]].concat();
    let run = reduce(&arguments);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let integers = Array::read(&integers).unwrap();
    assert_eq!((&integers.shape[..], integers.element), (&[2, 6][..], ElementType::I32));
    let found: &[i32] = bytemuck::cast_slice(&integers.bytes);
    assert_eq!(found, [8, -2, 4, 0, 8, 4].repeat(2));
    let scales = Array::read(&scales).unwrap();
    assert_eq!(scales.shape, [2, 2]);
    assert_eq!(bytemuck::cast_slice::<u8, f32>(&scales.bytes), [0.5, 0.03125, 0.5, 0.03125]);
    let three = format!("{output},{}", text(&file("third.npy")));
    for (rest, message) in [
        (["--axes", "0,1", "--block", "3"], "--block takes one axis, and 2 were given"),
        (["--axes", "1", "--block", "4"], "block is 4, but must be above 0 and divide the axis"),
        (
            ["--axes", "1", "--output", &three],
            "`quantize` gives 2 results per reduction, but --output names 3 files",
        ),
    ] {
        let arguments = [&[text(&input), "--apply", "quantize"], &rest[..]].concat();
        let run = reduce(&arguments);
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success() && said.contains(message), "{said}");
    }
}

/// Integers of 4 bits, of rows and of odd blocks, are two in a byte, whether the device has bytes
/// or not. They go to 7 unless less is asked for.
#[test]
fn integers_of_4_bits_are_packed() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let (input, packed, scales) = (file("in.npy"), file("packed.npy"), file("scales.npy"));
    array(&[2, 6], |i| [3.5, -1.0, 2.0, 0.0, -7.0, 2.0][i % 6]).write(&input).unwrap();
    let output = format!("{},{}", text(&packed), text(&scales));
    let whole = (vec!["--axes", "1"], vec![0xf4, 0x02, 0x29], vec![1.0]);
    let blocks = (vec!["--axes", "1", "--block", "3"], vec![0xe7, 0x04, 0x29], vec![0.5, 1.0]);
    for (options, bytes, of_row) in [whole, blocks] {
        let arguments = [&[text(&input), "--apply", "quantize", "--type", "i4"], &options[..]];
        let run = reduce(&[&arguments.concat()[..], &["--output", &output]].concat());
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        let packed = Array::read(&packed).unwrap();
        assert_eq!((&packed.shape[..], packed.element), (&[2, 3][..], ElementType::U8));
        assert_eq!(packed.bytes, bytes.repeat(2), "{options:?}");
        let scales = Array::read(&scales).unwrap();
        assert_eq!(scales.shape, [2, of_row.len()]);
        assert_eq!(bytemuck::cast_slice::<u8, f32>(&scales.bytes), of_row.repeat(2));
    }
    // The last of two outputs, of a sum that is 1 everywhere.
    let (sum, normalized) = (file("sum.npy"), file("normalized.npy"));
    let (zeros, ones) = (file("zeros.npy"), file("ones.npy"));
    array(&[2, 6], |_| 0.0).write(&zeros).unwrap();
    array(&[2, 6], |_| 1.0).write(&ones).unwrap();
    let output = format!("{},{}", text(&sum), text(&normalized));
    let arguments = [
        text(&zeros),
        "--apply",
        "add_rms_norm_quantize",
        "--with",
        text(&ones),
        "--axes",
        "1",
        "--type",
        "i4",
        "--most",
        "3",
        "--output",
        &output,
    ];
    let run = reduce(&arguments);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    assert_eq!(Array::read(&sum).unwrap().shape, [2, 6]);
    assert_eq!(Array::read(&normalized).unwrap().bytes, [0x33; 6]);
    for (rest, message) in [
        (["--op", "sum"].as_slice(), "`sum` gives no integers of 4 bits, as quantize, "),
        (&["--apply", "softmax"], "`softmax` gives no integers of 4 bits, as quantize, "),
        (&["--apply", "quantize", "--most", "8"], "--most is 8, and integers of 4 bits go to 7"),
    ] {
        let run = reduce(&[&[text(&input), "--type", "i4"], rest].concat());
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success() && said.contains(message), "{said}");
    }
    array(&[2, 5], |_| 1.0).write(&input).unwrap();
    let run = reduce(&[text(&input), "--apply", "quantize", "--type", "i4", "--axes", "1"]);
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(!run.status.success() && said.contains("5 are not even"), "{said}");
}

/// The sum with a residual is one file, the normalised sum another, and what normalised it a third.
#[test]
fn sums_are_normalised() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let (input, residual) = (file("in.npy"), file("residual.npy"));
    array(&[3, 50], |i| (i % 7) as f32).write(&input).unwrap();
    array(&[3, 50], |i| (i % 5) as f32 - 1.0).write(&residual).unwrap();
    let files = [file("sum.npy"), file("normalised.npy"), file("factors.npy")];
    let output = files.each_ref().map(|path| text(path)).join(",");
    let arguments = ["--apply", "add_rms_norm", "--with", text(&residual), "--axes", "1"];
    let run = reduce(&[&[text(&input)], &arguments[..], &["--output", &output]].concat());
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let [sums, normalised, factors] = files.each_ref().map(|path| Array::read(path).unwrap());
    assert_eq!((&sums.shape[..], &factors.shape[..]), (&[3, 50][..], &[3, 1][..]));
    let numbers = |array: &Array| bytemuck::cast_slice::<u8, f32>(&array.bytes).to_vec();
    let (sums, normalised, factors) = (numbers(&sums), numbers(&normalised), numbers(&factors));
    for (row, &factor) in factors.iter().enumerate() {
        let squares: f32 = sums[row * 50..][..50].iter().map(|x| x * x).sum();
        assert!((factor - (squares / 50.0 + 1e-5).sqrt().recip()).abs() < 1e-6);
        for at in row * 50..row * 50 + 50 {
            assert_eq!(sums[at], (at % 7) as f32 + (at % 5) as f32 - 1.0);
            assert!((normalised[at] - sums[at] * factor).abs() < 1e-5);
        }
    }
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
    write_raw(&file("text.bytes"), &[3], npyz::Order::C, &[1u8, 2, 3]);
    // Text of NumPy's own type, which has no sum.
    let bytes = fs::read(file("text.bytes")).unwrap();
    let header = bytes.windows(3).position(|window| window == b"|u1").unwrap();
    let text_array = [&bytes[..header], b"|S1", &bytes[header + 3..]].concat();
    fs::write(file("bytes.npy"), text_array).unwrap();
    fs::remove_file(file("text.bytes")).unwrap();
    // Extents whose product no integer holds.
    let huge = format!("'shape': ({0}, {0}), }}", i64::MAX);
    let header = format!("{{'descr': '<f4', 'fortran_order': False, {huge}");
    let length = (header.len() as u16).to_le_bytes();
    let huge = [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes()].concat();
    fs::write(file("huge.npy"), huge).unwrap();

    let output = file("out.npy");
    let cases: [(&str, &str, &str); 23] = [
        ("missing.npy", "--op sum", "missing.npy: No such file"),
        ("empty.npy", "--op sum", "empty.npy: not a NumPy array: the file is empty"),
        ("text.npy", "--op sum", "text.npy: not a NumPy array"),
        ("damaged.npy", "--op sum", "damaged.npy: not a NumPy array"),
        ("short.npy", "--op sum", "short.npy: truncated: shape [4, 5] of f32 needs 80 bytes"),
        ("huge.npy", "--op sum", "huge.npy: too large: no memory holds shape"),
        ("bytes.npy", "--op sum", "bytes.npy: elements of type '|S1' cannot be reduced"),
        ("none.npy", "--op max --axes 1", "`max` of no elements is undefined: shape [4, 0]"),
        ("good.npy", "--op sum --axes 2", "axis 2 is out of range for a tensor of rank 2"),
        ("good.npy", "--op sum --axes -3", "axis -3 is out of range for a tensor of rank 2"),
        ("good.npy", "--op sum --axes 1,-1", "axis 1 is given more than once"),
        ("good.npy", "--op sum --axes 1,b", "`b` is no axis: expected `all` or numbers"),
        ("good.npy", "--op mode", "unknown operator `mode`: expected one of sum, prod, mean"),
        ("good.npy", "--op sum --backend opengl", "unknown backend `opengl`"),
        ("good.npy", "--axes 1", "--op <OP>"),
        (
            "good.npy",
            "--op min_max",
            "`min_max` gives 2 results per reduction, but --output names 1 file",
        ),
        (
            "good.npy",
            "--op sum --output b.npy",
            "`sum` gives 1 result per reduction, but --output names 2",
        ),
        ("good.npy", "--op sum --type f31", "unknown element type `f31`: expected one of f8e4m3"),
        ("good.npy", "--op sum --type i32", "`sum` of f32 cannot give i32"),
        ("good.npy", "--op max --accumulate f64", "`max` of f32 cannot accumulate in f64"),
        ("good.npy", "--op sum --ddof 1", "`sum` takes no --correction"),
        ("good.npy", "--op var --p 3", "`var` takes no --p"),
        (
            "good.npy",
            "--op var --ddof -1",
            "correction is -1, but must be a finite number, 0 or more",
        ),
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
    assert_eq!(left.len(), 8, "nothing but the inputs is left: {left:?}");
}

/// Each element of the first array meets the one of the second that belongs to it, whatever the
/// order in memory of either, and the result is shaped and typed as that of one input.
#[test]
fn two_arrays_are_reduced_together() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let (first, second, output) = (file("first.npy"), file("second.npy"), file("out.npy"));
    // [[1, 2, 3], [4, 5, 6]] and [[1, 10, 100], [0, 2, -1]]; the second in Fortran order.
    array(&[2, 3], |i| (i + 1) as f32).write(&first).unwrap();
    write_raw(&second, &[2, 3], npyz::Order::Fortran, &[1i32, 0, 10, 2, 100, -1]);
    let given = [text(&first), "--with", text(&second), "--op", "dot", "--output", text(&output)];
    let written = |rest: &str| {
        let run = reduce(&[&given[..], &rest.split(' ').collect::<Vec<_>>()].concat());
        assert!(run.status.success(), "{rest}: {}", String::from_utf8_lossy(&run.stderr));
        Array::read(&output).unwrap()
    };
    assert_eq!(written("--axes 1"), array(&[2], |i| [321.0, 4.0][i]));
    assert_eq!(written("--axes -2"), array(&[3], |i| [1.0, 30.0, 294.0][i]));
    assert_eq!(written("--axes 0,1 --keepdims"), array(&[1, 1], |_| 325.0));
    assert_eq!(written("--axes all --keepdims"), array(&[1, 1], |_| 325.0));
    // The dot product of integers is one of integers, unless asked otherwise.
    let swapped = [text(&second), "--with", text(&second), "--op", "dot", "--json"];
    assert_eq!(json(&swapped)["values"], serde_json::json!([10106]));
    let report = json(&[&swapped[..], &["--type", "f32", "--accumulate", "f32"]].concat());
    assert_eq!(report["values"], serde_json::json!([10106.0]));
    assert_eq!(report["output_dtype"], "f32");
}

/// A second array of fewer axes, or with an extent of 1, is repeated along the first.
#[test]
fn a_second_array_is_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    array(&[3, 2], |i| i as f32).write(&file("first.npy")).unwrap();
    array(&[2], |i| [1.0, 10.0][i]).write(&file("row.npy")).unwrap();
    array(&[3, 1], |i| [1.0, 10.0, 100.0][i]).write(&file("column.npy")).unwrap();
    array(&[], |_| 2.0).write(&file("scalar.npy")).unwrap();
    // By rows and by columns of [[0, 1], [2, 3], [4, 5]].
    let cases = [
        ("row.npy", [vec![10.0, 32.0, 54.0], vec![6.0, 90.0]]),
        ("column.npy", [vec![1.0, 50.0, 900.0], vec![420.0, 531.0]]),
        ("scalar.npy", [vec![2.0, 10.0, 18.0], vec![12.0, 18.0]]),
    ];
    for (name, [rows, columns]) in cases {
        for (axis, expected) in [("1", rows), ("0", columns)] {
            let (first, second) = (file("first.npy"), file(name));
            let given = [text(&first), "--with", text(&second), "--op", "dot", "--json"];
            let report = json(&[&given[..], &["--axes", axis]].concat());
            assert_eq!(report["values"], serde_json::json!(expected), "{name} over {axis}");
        }
    }
}

/// A reduction of two inputs with two results writes a file for each, in the order of the results.
#[test]
fn two_results_of_two_arrays_go_to_two_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let (first, second) = (file("first.npy"), file("second.npy"));
    array(&[2, 2], |i| (i + 1) as f32).write(&first).unwrap();
    array(&[2], |i| [1.0, 10.0][i]).write(&second).unwrap();
    let outputs = format!("{},{}", text(&file("sum.npy")), text(&file("dot.npy")));
    let given = [text(&first), "--with", text(&second), "--op", "sum_and_dot", "--axes", "1"];
    let run = reduce(&[&given[..], &["--output", &outputs]].concat());
    let said = String::from_utf8(run.stdout).unwrap();
    let title = "sum_and_dot of f32 [2, 2] and f32 [2] over axes [1] gives f32 and f32 [2]";
    assert!(said.contains(title), "{said}");
    assert!(said.contains("\nvalues: 3 7\nvalues: 21 43\n"), "{said}");
    assert_eq!(Array::read(&file("sum.npy")).unwrap(), array(&[2], |i| [3.0, 7.0][i]));
    assert_eq!(Array::read(&file("dot.npy")).unwrap(), array(&[2], |i| [21.0, 43.0][i]));
}

/// The report names the second array if there is one, and only then. Bytes of both arrays count
/// for the rate, and the plan and its refusals are told as for one.
#[test]
fn the_report_names_both_arrays() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let (first, second) = (file("first.npy"), file("second.npy"));
    array(&[64, 300], |_| 1.0).write(&first).unwrap();
    write_raw(&second, &[64, 300], npyz::Order::C, &[2i32; 64 * 300]);
    let with = [text(&first), "--with", text(&second), "--axes", "1"];
    let report = json(&[&with[..], &["--op", "dot", "--json"]].concat());
    assert_eq!(report["op"], "dot");
    assert_eq!((&report["dtype"], &report["shape"]), (&"f32".into(), &vec![64, 300].into()));
    assert_eq!(report["with"], serde_json::json!({"dtype": "i32", "shape": [64, 300]}));
    assert!(report["plan"].is_object(), "{report}");
    let number = |key: &str| report[key].as_f64().unwrap();
    let bytes = number("gigabytes_per_second") * number("microseconds") * 1e3;
    assert!((bytes - (2.0 * 64.0 * 300.0 + 64.0) * 4.0).abs() < 1.0, "{report}");
    let alone = json(&[text(&first), "--op", "sum", "--axes", "1", "--json"]);
    assert!(alone.get("with").is_none(), "{alone}");
    let run = reduce(&[&with[..], &["--op", "dot", "--explain"]].concat());
    let said = String::from_utf8(run.stdout).unwrap();
    assert!(said.contains("dot of f32 [64, 300] and i32 [64, 300] over axes [1]"), "{said}");
    assert!(said.contains("\nexpected: "), "{said}");
    assert_eq!(said.matches("\nnot ").count(), 3, "every other schedule has its reason: {said}");
}

/// Each parameter reaches the reduction of two inputs that takes it, and the report repeats it. The
/// documented value holds for one that is not given.
#[test]
fn parameters_reach_reductions_of_two() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let (first, second) = (file("first.npy"), file("second.npy"));
    array(&[2], |i| [3.0, 4.0][i]).write(&first).unwrap();
    array(&[2], |i| [3.0, 8.0][i]).write(&second).unwrap();
    let report = |rest: &str| {
        let rest: Vec<&str> = rest.split(' ').collect();
        json(&[&[text(&first), "--with", text(&second), "--json", "--op"], &rest[..]].concat())
    };
    let cases = [
        ("huber", 1.75),
        ("huber --delta 2", 3.0),
        ("cosine_similarity", 41.0 / (5.0 * 73f64.sqrt())),
        ("cosine_similarity --eps 10", 0.41),
        ("covariance", 1.25),
        ("covariance --ddof 1", 2.5),
    ];
    for (rest, expected) in cases {
        let found = report(rest)["values"][0].as_f64().unwrap();
        assert!((found - expected).abs() < 1e-6, "{rest}: {found}, {expected}");
    }
    assert_eq!(report("huber --delta 2")["delta"], 2.0);
    assert!(report("huber").get("delta").is_none());
    let run = reduce(&[text(&first), "--op", "all"]);
    if lacks(ElementType::Bool, &String::from_utf8_lossy(&run.stderr)) {
        return;
    }
    let cases = [
        ("all_close", false),
        ("all_close --absolute 4", true),
        ("all_close --absolute 3.5", false),
        ("all_close --relative 0.5", true),
        ("all_close --relative 0.25", false),
    ];
    for (rest, expected) in cases {
        assert_eq!(report(rest)["values"], serde_json::json!([expected]), "{rest}");
    }
}

/// Names and options that do not go with the number of inputs, and second arrays that do not go
/// with the first, get one line and leave nothing behind.
#[test]
fn mistakes_with_two_arrays_get_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let (first, second, output) = (file("first.npy"), file("second.npy"), file("out.npy"));
    array(&[4, 5], |i| i as f32).write(&first).unwrap();
    array(&[4], |i| i as f32).write(&second).unwrap();
    let cases = [
        ("--op dot", "`dot` reduces two inputs: --with names the second"),
        (
            "--op sum --with F",
            "`sum` reduces one input: with --with, --op is one of dot, mean_squared_error",
        ),
        ("--op dott", "unknown operator `dott`: expected one of sum, prod, mean"),
        (
            "--op dott --with F",
            "unknown reduction of two inputs `dott`: expected one of dot, mean_squared_error",
        ),
        ("--with F", "--op <OP>"),
        (
            "--apply softmax --with F",
            "`softmax` takes one input: with --with, --apply is one of add_rms_norm,",
        ),
        ("--apply quantize --type f8e4m3", "NumPy's format has no f8e4m3"),
        ("--apply add_rms_norm", "`add_rms_norm` takes two inputs: --with names the second"),
        ("--apply softmix", "unknown function `softmix`: expected one of softmax, log_softmax"),
        (
            "--apply softmix --with F",
            "unknown function `softmix` of two inputs: expected one of add_rms_norm",
        ),
        ("--apply add_rms_norm --with F --scale 2", "`add_rms_norm` takes no --scale"),
        ("--apply add_rms_norm --with F --block 5", "`add_rms_norm` takes no --block"),
        ("--op dot --with F --delta 1", "`dot` takes no --delta"),
        ("--op huber --with F --eps 1", "`huber` takes no --eps"),
        ("--op all_close --with F --ddof 1", "`all_close` takes no --correction"),
        ("--op covariance --with F --relative 1", "`covariance` takes no --relative"),
        ("--op sum --absolute 1", "`sum` takes no --absolute"),
        ("--op sum --eps 1", "`sum` takes no --eps"),
        ("--apply softmax --delta 1", "`softmax` takes no --delta"),
        (
            "--op huber --with F --delta 0",
            "huber`: delta is 0, but must be a finite number above 0",
        ),
        (
            "--op sum_and_dot --with F",
            "`sum_and_dot` gives 2 results per reduction, but --output names 1 file",
        ),
        ("--op dot --with missing.npy", "missing.npy: No such file"),
        (
            "--op dot --with S",
            "the second input has shape [4], which does not broadcast to that of the first, [4, 5]",
        ),
        ("--op dot --with F --axes 2", "axis 2 is out of range for a tensor of rank 2"),
    ];
    for (rest, message) in cases {
        let mut arguments = vec![text(&first), "--output", text(&output)];
        arguments.extend(rest.split(' ').map(|argument| match argument {
            "F" => text(&first),
            "S" => text(&second),
            other => other,
        }));
        let run = reduce(&arguments);
        let said = String::from_utf8(run.stderr).unwrap();
        let own: Vec<&str> = said.lines().filter(|line| line.starts_with("reduce: ")).collect();
        assert_eq!(run.status.code(), Some(2), "{rest}: {said}");
        assert!(own.len() == 1 && own[0].contains(message), "{rest}: {said}");
        assert!(!said.contains("panicked"), "{said}");
        assert!(!output.exists(), "{rest} left an output");
    }
}

/// One build runs kernels through each backend that it has, and its report says through which.
#[test]
fn each_backend_runs_as_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.npy");
    array(&[4], |i| i as f32).write(&input).unwrap();
    let arguments = [text(&input), "--op", "sum", "--json"];
    let mut reports = Vec::new();
    for backend in Backend::COMPILED_IN {
        let run = reduce(&[&arguments[..], &["--backend", backend.name()]].concat());
        let said = String::from_utf8_lossy(&run.stderr);
        if said.contains(&format!("backend {backend} found no device")) {
            assert_eq!(run.status.code(), Some(2));
            continue;
        }
        let report: Value = serde_json::from_slice(&run.stdout).unwrap();
        assert_eq!(report["backend"], backend.name());
        let compiler = report["compiler"].as_str().unwrap();
        match backend {
            Backend::Cuda => assert_eq!(compiler, "cuda"),
            Backend::Vulkan => assert_eq!(compiler, "wgpu<spirv>"),
            Backend::Wgpu => assert_ne!(compiler, "wgpu<spirv>"),
        }
        assert_eq!(report["values"], serde_json::json!([6.0]));
        reports.push(backend.name());
    }
    // Without `--backend`, the variable names it, and otherwise the first that has a device is
    // taken.
    let default = |variable: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_reduce"));
        command.args(arguments).env_remove("REDUCE_BACKEND");
        command.envs(variable.map(|backend| ("REDUCE_BACKEND", backend)));
        command.output().unwrap()
    };
    for (variable, backend) in
        reports.iter().map(|&backend| (Some(backend), backend)).chain([(None, reports[0])])
    {
        let report: Value = serde_json::from_slice(&default(variable).stdout).unwrap();
        assert_eq!(report["backend"], backend);
    }
    let unknown = default(Some("opengl"));
    let said = String::from_utf8_lossy(&unknown.stderr);
    assert!(said.contains("REDUCE_BACKEND: unknown backend `opengl`"), "{said}");
    assert_eq!(unknown.status.code(), Some(2));
}

/// A machine without devices: one line that names the backends that were tried.
#[cfg(all(target_os = "linux", not(feature = "cuda")))]
#[test]
fn machines_without_devices_are_told_what_was_tried() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.npy");
    array(&[4], |i| i as f32).write(&input).unwrap();
    let fails = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_reduce"));
        command.args([text(&input), "--op", "sum"]).args(arguments).env_remove("REDUCE_BACKEND");
        // Where the loaders of Vulkan and of OpenGL find no driver.
        for variable in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "__EGL_VENDOR_LIBRARY_FILENAMES"] {
            command.env(variable, folder.path().join("none.json"));
        }
        let run = command.output().unwrap();
        assert_eq!(run.status.code(), Some(2));
        let said = String::from_utf8(run.stderr).unwrap();
        assert!(!said.contains("panicked"), "{said}");
        said
    };
    let names: Vec<&str> = Backend::COMPILED_IN.iter().map(|backend| backend.name()).collect();
    let said = fails(&[]);
    let tried = format!("reduce: no device found through {}", names.join(" or "));
    assert!(said.contains(&tried), "{said}");
    for name in names {
        let said = fails(&["--backend", name]);
        assert!(said.contains(&format!("reduce: backend {name} found no device")), "{said}");
    }
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

/// `photo | head -1`: a reader that leaves early is no error.
#[test]
fn a_closed_pipe_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.npy");
    array(&[4], |i| i as f32).write(&input).unwrap();
    let mut photo = Command::new(env!("CARGO_BIN_EXE_photo"));
    let mut reduce = Command::new(env!("CARGO_BIN_EXE_reduce"));
    reduce.args([text(&input), "--op", "sum", "--explain"]);
    for program in [&mut photo, &mut reduce] {
        let mut child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.contains("panicked"), "{said}");
    }
}
