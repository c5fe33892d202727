//! The program `plan` from the outside: a reduction in, its plan in words or JSON out, one line per
//! mistake. No GPU is needed.

use std::{
    fs,
    process::{Command, Output, Stdio},
};

use reduce_kernels::{
    Device, ElementType, Operator, Sum, TensorDescription, Var,
    normalize::Softmax,
    operator::One,
    planner::{
        AppliedKind, Choice, OperatorClass, Plan, Problem, ScanPlan, ScheduleKind, choose,
        choose_applied, choose_scan, force, force_scan,
    },
    reduce,
    scan::scan,
};
use serde_json::{Value, json};

/// Runs the program with these words, and with arguments that may have spaces.
fn plan(words: &str, more: &[&str]) -> Output {
    let words = words.split_whitespace().chain(more.iter().copied());
    Command::new(env!("CARGO_BIN_EXE_plan")).args(words).output().unwrap()
}

fn text(words: &str) -> String {
    let output = plan(words, &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn report(words: &str) -> Value {
    let output = plan(words, &["--json"]);
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// JSON as a reader of the program's output gets it: parsing may move the last digit of a number.
fn as_read(value: impl serde::Serialize) -> Value {
    serde_json::from_str(&serde_json::to_string(&value).unwrap()).unwrap()
}

/// The problem over these axes of a row-major tensor of f32.
fn problem<O: Operator<Inputs = One>>(operator: O, shape: &[usize], axes: &[usize]) -> Problem {
    let input = TensorDescription::row_major(ElementType::F32, shape);
    reduce(operator, &input).over(axes.to_vec()).problem().unwrap()
}

/// Everything that the planner says of a choice, and the floor, line by line.
#[test]
fn the_choice_is_told_in_words() {
    let device = Device::h200();
    let problem = problem(Sum, &[8192, 8192], &[1]);
    let choice = choose(&problem, &device).unwrap();
    let said = text("--shape 8192,8192 --axes 1 --type f32 --op sum --device h200");
    let mut lines = said.lines();
    let mut expect = |line: &str| assert_eq!(lines.next(), Some(line), "{said}");
    expect("sum of f32 [8192, 8192] over axes [1] gives f32 on NVIDIA H200");
    expect(
        "problem: 8192 outputs of 8192 elements, read along the reduction, with accumulators of 4 \
         bytes",
    );
    expect("  kept: 8192, stride 8192, of the output 1");
    expect("  reduced: 8192, stride 1");
    expect(&format!("plan: {}", choice.plan));
    expect(&format!("numbers: {}", serde_json::to_string(&choice.plan).unwrap()));
    expect(&format!("expected: {}", choice.estimate));
    let bytes = 8192 * 8192 * 4 + 8192 * 4;
    let launch = device.profile.launch_ns as f64 / 1e3;
    let floor = (f64::from(bytes) / device.profile.bandwidth as f64 * 1e6).max(launch);
    let share = 100.0 * floor / choice.expected_microseconds();
    expect(&format!(
        "floor: {floor:.1} us: {bytes} bytes at {} GB/s, a launch {launch:.1} us; {share:.1} \
         % of the expected time",
        device.profile.bandwidth as f64 / 1e9
    ));
    for refusal in &choice.refused {
        expect(&format!("not {refusal}"));
    }
    assert!(!choice.runners_up.is_empty());
    for runner_up in &choice.runners_up {
        expect(&format!("runner-up: {}", runner_up.plan));
        expect(&format!("  expected: {}", runner_up.estimate));
    }
    assert_eq!(lines.next(), None);
}

/// The fields of the JSON object, with the values of the library.
#[test]
fn json_has_the_problem_the_choice_and_the_floor() {
    let device = Device::h200();
    let problem = problem(Var { correction: 1.0 }, &[64, 256, 56, 56], &[0, 2, 3]);
    let choice = choose(&problem, &device).unwrap();
    let mut report =
        report("--shape 64,256,56,56 --axes 0,2,3 --op var --correction 1 --device h200");
    let OperatorClass { accumulator_bytes, fields, .. } = problem.operator();
    let launch = device.profile.launch_ns as f64 / 1e3;
    let floor = (problem.bytes() as f64 / device.profile.bandwidth as f64 * 1e6).max(launch);
    let mut number = |field: &str, expected: f64| {
        let found = report.as_object_mut().unwrap().remove(field).unwrap().as_f64().unwrap();
        assert!((found / expected - 1.0).abs() < 1e-9, "{field}: {found}, not {expected}");
    };
    number("floor_share", floor / choice.expected_microseconds());
    number("expected_microseconds", choice.expected_microseconds());
    let found = report["floor"]["microseconds"].take().as_f64().unwrap();
    assert!((found / floor - 1.0).abs() < 1e-9, "{found}, not {floor}");
    let expected = json!({
        "op": "var",
        "correction": 1.0,
        "dtype": "f32",
        "shape": [64, 256, 56, 56],
        "strides": [802816, 3136, 56, 1],
        "axes": [0, 2, 3],
        "problem": {
            "results": ["f32"],
            "direction": "along",
            "outputs": 256,
            "reduction_len": 200704,
            "kept": [{"extent": 256, "stride": 3136, "output_stride": 1}],
            "reduced": [
                {"extent": 64, "stride": 802816, "position_stride": 0},
                {"extent": 3136, "stride": 1, "position_stride": 0},
            ],
            "alignment": problem.alignment(),
            "accumulator_bytes": accumulator_bytes,
            "accumulator_fields": fields,
            "bytes": 64 * 256 * 56 * 56 * 4 + 256 * 4,
        },
        "device": "NVIDIA H200",
        "choice": choice,
        "plan_in_words": choice.plan.to_string(),
        "floor": {
            "microseconds": null,
            "read_gigabytes_per_second": device.profile.bandwidth as f64 / 1e9,
            "launch_microseconds": launch,
        },
    });
    assert_eq!(report, as_read(expected));
    let saved: Choice = serde_json::from_value(report["choice"].clone()).unwrap();
    assert_eq!(saved.plan, choice.plan);
}

/// Protects that functions of applied results are told like reductions: the plan, the floor, and
/// why each other kind of plan was not taken.
#[test]
fn applied_functions_are_planned() {
    let words = "--shape 8192,8192 --axes 1 --type bf16 --apply softmax --device h200";
    let device = Device::h200();
    let input = TensorDescription::row_major(ElementType::BF16, [8192, 8192]);
    let (applied, reduction) = Softmax.of(&input, 1).problems().unwrap();
    let choice = choose_applied(&applied, &reduction, &device).unwrap();
    let said = text(words);
    let has = |line: String| assert!(said.lines().any(|found| found == line), "{line}\n{said}");
    has("softmax of bf16 [8192, 8192] over axes [1] gives bf16 on NVIDIA H200".into());
    has(format!("plan: {}", choice.plan));
    has(format!("expected: {}", choice.estimate));
    assert_eq!(choice.refused.len(), AppliedKind::ALL.len() - 1);
    for refusal in &choice.refused {
        has(format!("not {refusal}"));
    }
    for runner_up in &choice.runners_up {
        has(format!("runner-up: {}", runner_up.plan));
    }
    let bytes = 2 * 8192 * 8192 * 2;
    assert!(said.contains(&format!(" us: {bytes} bytes at ")), "{said}");

    let report = report(words);
    assert_eq!((&report["apply"], &report["op"]), (&json!("softmax"), &Value::Null));
    assert_eq!(report["choice"], as_read(&choice));

    // A plan of another device's rule, as it may be given: it runs, and takes longer.
    let slower = serde_json::to_string(&choice.runners_up[0].plan).unwrap();
    let output = plan(words, &["--plan", &slower]);
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    let given = format!("given: {}\n  expected: ", choice.runners_up[0].plan);
    assert!(told.contains(&given), "{told}");
    let broken = slower.replace("\"vector\":8", "\"vector\":3");
    assert_ne!(broken, slower);
    let output = plan(words, &["--plan", &broken]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stdout).unwrap().contains("\n  refused: "));
}

/// A scan is planned as a reduction is: by the name of a function or of an operator, with every
/// schedule and with plans of the command line.
#[test]
fn scans_are_planned() {
    let words = "--shape 4,1048576 --axis 1 --scan cumsum --device h200";
    let device = Device::h200();
    let input = TensorDescription::row_major(ElementType::F32, [4, 1 << 20]);
    let problem = scan(Sum, &input).over(1).problem().unwrap();
    let choice = choose_scan(&problem, &device).unwrap();
    let said = text(words);
    let has = |line: String| assert!(said.lines().any(|found| found == line), "{line}\n{said}");
    has("scan with cumsum of f32 [4, 1048576] over axes [1] gives f32 on NVIDIA H200".into());
    has("  reduced: 1048576, stride 1, of the output 1".into());
    has(format!("plan: {}", choice.plan));
    has(format!("expected: {}", choice.estimate));
    for refusal in &choice.refused {
        has(format!("not {refusal}"));
    }
    assert!(said.contains(&format!(" us: {} bytes at ", 2 * 4 * (4 << 20))), "{said}");
    let with = |rest: &str| report(&format!("--shape 4,1048576 --axis 1 --device h200 {rest}"));
    let told = with("--scan cumsum");
    assert_eq!(told["choice"], as_read(&choice));
    let way = (&told["scan"], &told["exclusive"], &told["reverse"]);
    assert_eq!(way, (&json!("cumsum"), &json!(false), &json!(false)));
    assert_eq!(with("--scan sum --exclusive --reverse")["choice"], told["choice"]);
    let forced = ScheduleKind::ALL.map(|kind| force_scan(kind, &problem, &device));
    let forced: Vec<ScanPlan> = forced.into_iter().filter_map(Result::ok).collect();
    let every = with("--scan cumsum --every-schedule")["every_schedule"].clone();
    let plans = every.as_array().unwrap().iter().map(|each| each["plan"].clone());
    assert!(forced.len() > 1);
    assert_eq!(plans.collect::<Vec<_>>(), forced.iter().map(as_read).collect::<Vec<_>>());

    let slower = serde_json::to_string(&choice.runners_up[0].plan).unwrap();
    let output = plan(words, &["--plan", &slower]);
    let given = format!("given: {}\n  expected: ", choice.runners_up[0].plan);
    assert!(String::from_utf8(output.stdout).unwrap().contains(&given));
    let none = text("--shape 4,0 --scan cummax --device h200");
    assert!(none.ends_with("\nplan: nothing to launch: the result has no elements\n"), "{none}");
    for (rest, message) in [
        ("--scan dot", "unknown scan `dot`: expected one of cumsum, cumprod,"),
        ("--scan cumsum --second f32", "`cumsum` takes no --second"),
        ("--scan cumsum --k 3", "`cumsum` takes no --k"),
        ("--scan cumsum --p 3", "`cumsum` takes no --p"),
        ("--scan cumsum --numerics reproducible", "at every position"),
        ("--scan cummax --accumulate-in f64", "`max` of f32 cannot accumulate in f64"),
        ("--op sum --exclusive", "`sum` takes no --exclusive"),
        ("--op top_k --k 3 --reverse", "`top_k` takes no --reverse"),
        ("--apply softmax --reverse", "`softmax` takes no --reverse"),
    ] {
        let output = plan(&format!("--shape 8 --device h200 {rest}"), &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{rest}: {said}");
        assert!(said.contains(message), "{rest}: {said}");
    }
}

/// A selection is planned as a reduction is.
#[test]
fn selections_are_planned() {
    let words = "--shape 512,128256 --axes 1 --op top_k --k 50 --device h200";
    let told = text(words);
    assert!(
        told.starts_with("top_k of f32 [512, 128256] over axes [1] gives f32 and u32"),
        "{told}"
    );
    assert!(
        told.contains("plan: top_k: 1 launch, 512 units and a buffer of 512 entries"),
        "{told}"
    );
    let found = report(words);
    assert_eq!(found["k"], 50.0);
    // Each element is read once, and a value and a position are written for each selected one.
    assert_eq!(found["problem"]["bytes"], 4 * 512 * 128_256 + 8 * 512 * 50);
    let given = format!("{}", found["choice"]["plan"]);
    let output =
        plan(words, &["--plan", &given.replace("\"buffer\":512", "\"buffer\":64"), "--json"]);
    let refused: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(refused["given"][0]["refused"].as_str().unwrap().contains("buffer of 64"), "{refused}");
    for (words, message) in [
        ("--shape 8 --op top_k --device h200", "`top_k` needs --k"),
        ("--shape 8 --op sum --k 3 --device h200", "`sum` takes no --k"),
        ("--shape 8 --apply softmax --k 3 --device h200", "`softmax` takes no --k"),
        ("--shape 8 --op top_k --k 3 --every-schedule --device h200", "takes no --every-schedule"),
        ("--shape 8 --op top_k --k 9 --device h200", "the 9 first of 8 elements were asked for"),
    ] {
        let output = plan(words, &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(message), "{words}: {said}");
    }
}

/// Probabilities and masks of selections are planned with the launches beside these.
#[test]
fn probabilities_and_masks_are_planned() {
    let words = "--shape 512,128256 --axes 1 --k 50 --device h200 --op";
    let of = |rest: &str| report(&format!("{words} {rest}"));
    let plain = of("top_k");
    let selection = plain["plan_in_words"].as_str().unwrap();
    let microseconds = |report: &Value| report["expected_microseconds"].as_f64().unwrap();
    // The probabilities of the selected elements take no launch of their own.
    let selected = of("top_k --probabilities selected");
    assert_eq!(selected["probabilities"], "selected");
    for what in ["plan_in_words", "expected_microseconds", "choice"] {
        assert_eq!(selected[what], plain[what]);
    }
    let slice = of("top_k --probabilities slice --output-type bf16");
    let told = slice["plan_in_words"].as_str().unwrap();
    let end = format!("; batch-invariant, for the sums of exponentials; then {selection}");
    assert!(told.starts_with("2 launches: ") && told.ends_with(&end), "{told}");
    assert_eq!(slice["choice"]["plan"], plain["choice"]["plan"]);
    assert_eq!(slice["problem"]["results"], json!(["bf16", "u32"]));
    assert!(microseconds(&slice) > 1.5 * microseconds(&plain), "{slice}");
    let numbers = slice["choice"]["plan"].to_string();
    let output = plan(words, &["top_k", "--probabilities", "slice", "--plan", &numbers, "--json"]);
    let with_given: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(with_given["given"][0]["plan_in_words"], told);

    let mask = of("top_k_mask --fill -1");
    let end = "; then a launch that compares each element with the last selected one";
    assert_eq!(mask["plan_in_words"], format!("2 launches: {selection}{end}"));
    assert_eq!((&mask["k"], &mask["fill"]), (&json!(50.0), &json!(-1.0)));
    assert_eq!(mask["problem"]["results"], json!(["f32"]));
    // Each element is read and written.
    assert_eq!(mask["problem"]["bytes"], 8 * 512 * 128_256);
    let said = text(&format!("{words} top_k_mask"));
    assert!(
        said.starts_with("top_k_mask of f32 [512, 128256] over axes [1] gives f32 on"),
        "{said}"
    );

    for (rest, message) in [
        ("top_k_mask --k 0", "elements are counted from 1"),
        ("sum --probabilities slice", "`sum` takes no --probabilities"),
        ("sum --fill 0", "`sum` takes no --fill"),
        ("top_k --k 3 --fill 0", "`top_k` takes no --fill"),
        ("top_k_mask", "`top_k_mask` needs --k"),
        ("top_k_mask --k 3 --probabilities slice", "`top_k_mask` takes no --probabilities"),
        ("top_k_mask --k 3 --output-type f64", "`top_k_mask` takes no --output-type"),
        ("top_k --k 3 --output-type f64", "`top_k` takes no --output-type"),
        ("top_k --k 3 --type i32 --probabilities slice", "probabilities"),
        ("top_k_mask --k 3 --type i32 --fill 0.5", "`top_k_mask`: fill is 0.5"),
    ] {
        let output = plan(&format!("--shape 8 --device h200 --op {rest}"), &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{rest}: {said}");
        assert!(said.contains(message), "{rest}: {said}");
    }
}

/// Protects the way from a reason to a change: a number of a printed device, changed in a file,
/// changes the plan that rests on it.
#[test]
fn a_number_of_the_device_changes_an_applied_plan() {
    let printed: Device = serde_json::from_str(&text("--print-device h200")).unwrap();
    assert_eq!(printed, Device::h200());
    let loads = |device: &Device| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("device.json");
        fs::write(&file, serde_json::to_string(device).unwrap()).unwrap();
        let words = "--shape 8192,1024 --axes 1 --type bf16 --apply softmax --json";
        let output = plan(words, &["--device", file.to_str().unwrap()]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let access = &report["choice"]["plan"]["held"]["plan"]["access"];
        access["loads_in_flight"].as_u64().unwrap()
    };
    let mut device = printed;
    let before = loads(&device);
    device.tuning.applied.held_bytes_along *= 2;
    assert_eq!(loads(&device), 2 * before);
}

/// Axes come from either end, as a list or as all; tensors that lie alike are one problem.
#[test]
fn spellings_of_a_reduction_are_one_problem() {
    let problem = |words: &str| {
        let report = report(&format!("{words} --op sum --device h200"));
        (report["problem"].clone(), report["choice"].clone())
    };
    let expected = problem("--shape 64,256,56,56 --axes 0,2,3");
    for words in [
        "--shape 64,256,56,56 --axes -1,0,-2",
        "--shape 64,256,3136 --axes 2,0",
        "--shape 3136,64,256 --strides 1,802816,3136 --axes 0,1",
        "--shape 64,1,256,56,56 --axes 0,1,3,4",
    ] {
        assert_eq!(problem(words), expected, "{words}");
    }
    let all = problem("--shape 64,256");
    assert_eq!(problem("--shape 64,256 --axes all"), all);
    assert_eq!(problem("--shape 16384 --axes -1"), all);
    assert_eq!(all.0["reduced"], json!([{"extent": 16384, "stride": 1, "position_stride": 0}]));
    assert_eq!(all.0["kept"], json!([]));
    // Padded rows do not merge, and a broadcast element is read once.
    let padded = problem("--shape 64,256 --strides 320,1").0;
    assert_eq!(padded["reduced"][0], json!({"extent": 64, "stride": 320, "position_stride": 0}));
    let repeated = problem("--shape 64,256 --strides 0,1").0;
    assert_eq!(repeated["bytes"], 256 * 4 + 4);
}

/// Types, of the elements, the results and the accumulator; positions have a type of their own.
#[test]
fn types_are_chosen_by_request() {
    let problem = |words: &str| {
        let report = report(&format!("--shape 64,256 --axes 1 {words} --device h200"));
        let problem = &report["problem"];
        (problem["results"].clone(), problem["accumulator_bytes"].clone())
    };
    assert_eq!(problem("--op sum"), (json!(["f32"]), json!(4)));
    assert_eq!(problem("--op sum --type bf16"), (json!(["bf16"]), json!(4)));
    assert_eq!(problem("--op sum --type i8"), (json!(["i32"]), json!(4)));
    assert_eq!(problem("--op sum --output-type f64"), (json!(["f64"]), json!(8)));
    assert_eq!(problem("--op sum --accumulate-in f64"), (json!(["f32"]), json!(8)));
    assert_eq!(problem("--op max_with_index --type f16").0, json!(["f16", "u32"]));
    let said = text("--shape 3,5,7 --axes 0,2 --op argmax --device h200");
    assert!(said.contains("\n  reduced: 3, stride 35, of positions 7\n"), "{said}");
    assert!(said.contains("\n  reduced: 7, stride 1, of positions 1\n"), "{said}");
}

/// A function of two inputs is planned with the second, and one of one input takes none.
#[test]
fn functions_of_two_inputs_are_planned() {
    let words = "--shape 4096,14336 --axes 1 --type bf16 --device h200 --apply add_rms_norm";
    let report = report(&format!("{words} --second bf16"));
    assert_eq!(report["apply"], json!("add_rms_norm"));
    // Both inputs are read, and the sum and what is made of it are written.
    let nanoseconds = report["floor"]["microseconds"].as_f64().unwrap() * 1e3;
    let bytes = nanoseconds * Device::h200().profile.bandwidth as f64 * 1e-9;
    assert!((bytes / (8.0 * 4096.0 * 14_336.0) - 1.0).abs() < 1e-9, "{bytes}");
    let missing = "`add_rms_norm` takes two inputs: --second names the second";
    for (words, message) in [
        (words, missing),
        (
            "--shape 8 --apply softmax --second f32 --device h200",
            "`softmax` takes one input: with --second, --apply is one of add_rms_norm,",
        ),
    ] {
        let run = plan(words, &[]);
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success() && said.contains(message), "{said}");
    }
}

/// A second input has a type, a shape and strides, and broadcasts to the first.
#[test]
fn two_inputs_are_planned() {
    let words = "--shape 64,256 --axes 1 --op dot --device h200 --second i32";
    let strides = |rest: &str| {
        let report = report(&format!("{words} {rest}"));
        let stride = |dims: &str| report["problem"][dims][0]["second_stride"].clone();
        (stride("kept"), stride("reduced"), report["second"].clone(), report["problem"].clone())
    };
    let second = |shape: &[usize], strides: &[usize]| {
        let dtype = ElementType::I32;
        json!({"dtype": dtype, "shape": shape, "strides": strides})
    };
    let (kept, reduced, stated, problem) = strides("");
    assert_eq!((kept, reduced, stated), (json!(256), json!(1), second(&[64, 256], &[256, 1])));
    assert_eq!(problem["bytes"], 64 * 256 * 8 + 64 * 4);
    let (kept, reduced, stated, problem) = strides("--second-shape 256");
    assert_eq!((kept, reduced, stated), (json!(0), json!(1), second(&[256], &[1])));
    assert_eq!(problem["bytes"], 64 * 256 * 4 + 256 * 4 + 64 * 4);
    let (kept, reduced, stated, _) = strides("--second-strides 1,64");
    assert_eq!((kept, reduced, stated), (json!(1), json!(64), second(&[64, 256], &[1, 64])));
    let said = text(&format!("{words} --second-shape 64,1"));
    assert!(
        said.starts_with("dot of f32 [64, 256] and i32 [64, 1] over axes [1] gives "),
        "{said}"
    );
    assert!(said.contains("\n  kept: 64, stride 256, of the second input 1, of the output 1\n"));
    assert!(said.contains("\n  reduced: 256, stride 1, of the second input 0\n"), "{said}");
}

/// A device comes from a preset or from a file, with its name, its floor and its plans.
#[test]
fn devices_come_by_name_or_from_a_file() {
    let words = "--shape 65536,1024 --axes 1 --op sum --device";
    for name in Device::presets() {
        let device = Device::preset(name).unwrap();
        assert_eq!(report(&format!("{words} {name}"))["device"], device.name);
    }
    let mut device = Device::h200();
    device.name = "half an H200".into();
    device.profile.bandwidth /= 2;
    device.plane_operations = false;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device.json");
    fs::write(&path, serde_json::to_string(&device).unwrap()).unwrap();
    let report = report(&format!("{words} {}", path.display()));
    let choice = choose(&problem(Sum, &[65536, 1024], &[1]), &device).unwrap();
    assert_eq!(report["device"], "half an H200");
    let rate = device.profile.bandwidth as f64 / 1e9;
    assert_eq!(report["floor"]["read_gigabytes_per_second"], rate);
    assert_eq!(report["choice"], as_read(choice));
}

/// The plan of every schedule that applies is the one that `force` makes.
#[test]
fn every_schedule_is_estimated() {
    let words = "--shape 8192,8192 --axes 1 --op sum --device h200";
    assert!(report(words).get("every_schedule").is_none());
    let words = format!("{words} --every-schedule");
    let (problem, device) = (problem(Sum, &[8192, 8192], &[1]), Device::h200());
    let forced = ScheduleKind::ALL.map(|kind| force(kind, &problem, &device));
    let forced: Vec<Plan> = forced.into_iter().filter_map(Result::ok).collect();
    assert!(forced.len() > 1);
    let expected: Vec<Value> = forced
        .iter()
        .map(|plan| {
            let estimate = plan.estimate(&problem, &device);
            json!({
                "plan": plan,
                "plan_in_words": plan.to_string(),
                "expected_microseconds": estimate.microseconds(),
                "estimate": estimate,
            })
        })
        .collect();
    assert_eq!(report(&words)["every_schedule"], as_read(expected));
    let said = text(&words);
    for plan in forced {
        let estimate = plan.estimate(&problem, &device);
        let lines = format!("\nschedule {plan}\n  expected: {estimate}\n");
        assert!(said.contains(&lines), "{said}");
    }
}

/// Plans of the command line are estimated, or refused with the reason and status 1. The numbers
/// that the program prints are such a plan.
#[test]
fn given_plans_are_explained() {
    let words = "--shape 8192,8192 --axes 1 --op sum --device h200";
    let said = text(words);
    let numbers = said.lines().find_map(|line| line.strip_prefix("numbers: ")).unwrap();
    let chosen = said.lines().find_map(|line| line.strip_prefix("plan: ")).unwrap();
    let expected = said.lines().find(|line| line.starts_with("expected: ")).unwrap();
    let output = plan(words, &["--plan", numbers]);
    let with_given = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(with_given, format!("{said}given: {chosen}\n  {expected}\n"));

    let misfit = numbers.replace("\"vector\":4", "\"vector\":3");
    let old = numbers.replace("\"version\":4", "\"version\":3");
    assert!(misfit != numbers && old != numbers);
    let output = plan(words, &["--plan", &misfit, "--plan", numbers, "--plan", &old, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let given = &report["given"];
    let refused = |nth: usize| given[nth]["refused"].as_str().unwrap_or_default();
    assert!(refused(0).contains("cannot run this problem on NVIDIA H200: "), "{given}");
    assert_eq!(given[0]["plan"]["access"]["vector"], 3);
    assert_eq!(given[1]["estimate"], report["choice"]["estimate"]);
    assert_eq!(given[1]["expected_microseconds"], report["expected_microseconds"]);
    assert_eq!(refused(2), "the plan has version 3, and this planner runs version 4");
    let said = String::from_utf8(plan(words, &["--plan", &old]).stdout).unwrap();
    assert!(said.ends_with(&format!("given: {chosen}\n  refused: {}\n", refused(2))), "{said}");
}

/// A plan says what its bits may depend on, and what cannot promise that is refused.
#[test]
fn numerics_are_promised() {
    let words = "--shape 512,1024 --axes 1 --device h200";
    for (numerics, end) in [
        ("deterministic", "in flight"),
        ("batch-invariant", "; batch-invariant"),
        ("reproducible", "; reproducible"),
    ] {
        let said = text(&format!("{words} --op sum --numerics {numerics}"));
        let chosen = said.lines().find(|line| line.starts_with("plan: ")).unwrap();
        assert!(chosen.ends_with(end), "{chosen}");
    }
    for what in ["--op var", "--apply softmax"] {
        let output = plan(&format!("{words} {what} --numerics reproducible"), &[]);
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("no form with the same bits on every device"), "{said}");
    }
}

/// Results without elements have no plan.
#[test]
fn nothing_is_planned_for_nothing() {
    let words = "--shape 4,0 --axes 0 --op sum --device h200 --every-schedule";
    let report = report(words);
    assert_eq!(report["choice"], Value::Null);
    assert_eq!(report["problem"]["outputs"], 0);
    assert!(report.get("floor_share").is_none() && report.get("every_schedule").is_none());
    let said = text(words);
    assert!(said.ends_with("\nplan: nothing to launch: the result has no elements\n"), "{said}");
}

/// Mistakes get one line that names the value, and status 2.
#[test]
fn mistakes_get_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device.json");
    let file = path.to_str().unwrap();
    fs::write(&path, r#"{"name":"half a device"}"#).unwrap();
    let mut senseless = Device::h200();
    senseless.plane_size_max = 48;
    let senseless_path = folder.path().join("senseless.json");
    fs::write(&senseless_path, serde_json::to_string(&senseless).unwrap()).unwrap();
    let senseless_file = senseless_path.to_str().unwrap();
    let cases = [
        ("--op summ", "unknown operator `summ`: expected one of sum, prod, mean"),
        ("--op dot", "`dot` reduces two inputs: --second names the second"),
        ("--op sum --second f32", "`sum` reduces one input: with --second, --op is one of dot"),
        ("--op dott --second f32", "unknown reduction of two inputs `dott`: expected one of dot"),
        ("--op sum --second-shape 4", "--second <TYPE>"),
        ("--op sum --p 3", "`sum` takes no --p"),
        ("--op sum --temperature 3", "`sum` takes no --temperature"),
        ("--op norm_p --p -1", "`norm_p`: p is -1, but must be a finite number above 0"),
        ("--op huber --second f32 --delta 0", "`huber`: delta is 0, but must be a finite number"),
        ("--op sum --shape 8,x", "invalid value 'x' for '--shape <EXTENTS>'"),
        ("--op sum --shape 8,-1", "'-1"),
        ("--op sum --strides 1", "the input has 2 dimensions but 1 strides"),
        ("--op dot --second f32 --second-shape 5", "has shape [5], which does not broadcast"),
        ("--op sum --axes 2", "axis 2 is out of range for a tensor of rank 2"),
        ("--op sum --axes -3", "axis -3 is out of range for a tensor of rank 2"),
        ("--op sum --axes 1,-1", "axis 1 is given more than once"),
        ("--op sum --axes 1,b", "`b` is no axis: expected `all` or numbers such as 0,-1"),
        ("--op max --shape 4,0 --axes 1", "`max` of no elements is undefined: shape [4, 0]"),
        ("--op sum --shape 9999999999,9999999999", "spans more elements than this machine can"),
        ("--op sum --type f99", "unknown element type `f99`: expected one of f8e4m3, f8e5m2"),
        ("--op argmax --output-type f32", "`argmax`"),
        ("--op sum --type bf16 --device software_adapter", "llvmpipe has no bf16"),
        (
            "--op sum --device h2000",
            "unknown device `h2000`: expected h200, h100, software_adapter",
        ),
        ("--op sum --device FILE", "device.json is no device: missing field `plane_size_min`"),
        ("--op sum --device SENSELESS", "plane_size_max = 48, which must be a power of two"),
        ("--op sum --plan {}", "`{}` is no plan: missing field `version`"),
    ];
    for (rest, expected) in cases {
        let mut words = rest.to_owned();
        if !rest.contains("--shape") {
            words.push_str(" --shape 64,256");
        }
        if !rest.contains("--device") {
            words.push_str(" --device h200");
        }
        let words = words.replace("FILE", file).replace("SENSELESS", senseless_file);
        let output = plan(&words, &[]);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{rest}: {line}");
        assert!(line.starts_with("plan: ") && line.lines().count() == 1, "{rest}: {line}");
        assert!(line.contains(expected), "{rest}: {line}");
        assert!(output.stdout.is_empty(), "{rest}");
    }
}

/// `plan | head -1`: a reader that leaves early is no error.
#[test]
fn a_closed_pipe_is_no_error() {
    let words = "--shape 8192,8192 --axes 1 --op sum --device h200".split(' ');
    let mut command = Command::new(env!("CARGO_BIN_EXE_plan"));
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}
