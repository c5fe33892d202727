//! Stores of measured plans: what is written is found again, what does not fit is refused.

mod support;

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
    thread,
};

use proptest::prelude::*;
use reduce_planner::{
    Access, AppliedListProblem, AppliedProblem, AppliedSpec, Device, Direction, ElementCost,
    ElementType, InputSpec, ListProblem, ListScanProblem, OperatorClass, OutputSpec, Plan,
    PlanStore, Planned, Problem, ScanProblem, ScanSpec, SecondSpec, SelectedSpec, StoreError,
    TopKProblem, TunedPlan, choose, row_major_strides,
};
use support::Bytes;

fn problem(rows: usize) -> Problem {
    let shape = [rows, 4096];
    let input = InputSpec {
        element: ElementType::F32,
        shape: &shape,
        strides: &row_major_strides(&shape),
        alignment: 256,
    };
    let output = OutputSpec { elements: &[ElementType::F32], strides: None };
    Problem::new(OperatorClass::new("sum", 4), &input, Some(&[1]), &output).unwrap()
}

fn tuned(rows: usize, measured_ns: u64) -> TunedPlan {
    let plan = choose(&problem(rows), &Device::h200()).unwrap().plan;
    TunedPlan::new(plan, measured_ns, 1000)
}

/// A store with plans for so many rows each.
fn store(rows: impl IntoIterator<Item = usize>) -> PlanStore {
    let device = Device::h200();
    let mut store = PlanStore::new(&device);
    for rows in rows {
        store.insert(&problem(rows), &device, tuned(rows, 900)).unwrap();
    }
    store
}

/// The lines are keys in published files. Change them only with the format.
#[test]
fn problems_have_these_lines() {
    assert_eq!(
        problem(64).to_string(),
        "sum(4 bytes, 1 field) f32 -> f32 | kept 64:4096:1 | reduced 4096:1:0 | aligned 256 | \
         spans 262144, 64"
    );
    let operator = OperatorClass::new("a \"name\"", 8).fields(2).positional().undefined_on_empty();
    let operator = operator.element_cost(ElementCost::Exponential).blockwise();
    let input = InputSpec { element: ElementType::F16, shape: &[], strides: &[], alignment: 2 };
    let second = SecondSpec { element: ElementType::BF16, strides: &[], alignment: 4 };
    let output = OutputSpec { elements: &[ElementType::F32, ElementType::I64], strides: None };
    let problem =
        Problem::with_inputs(operator, &input, Some(&second), None, None, &output).unwrap();
    assert_eq!(
        problem.to_string(),
        "\"a \\\"name\\\"\"(8 bytes, 2 fields, positional, undefined on empty, transcendental, \
         blockwise) f16 -> f32 i64 | kept none | reduced none | aligned 2 | spans 1, 1 | second \
         bf16 | kept none | reduced none | aligned 4 | span 1"
    );
}

/// The form of a file is published. Change it only with the format.
#[test]
fn stores_have_this_form_in_a_file() {
    let text = store([64]).to_json().unwrap();
    let expected = r#"{
  "format": 2,
  "planner": "PLANNER",
  "plan_version": PLANS,
  "device": {
    "name": "NVIDIA H200",
    "plane_size_min": 32,
    "plane_size_max": 32,
    "plane_operations": true,
    "max_units_per_cube": 1024,
    "max_bindings": 1024,
    "max_cube_count": [
      2147483647,
      65535,
      65535
    ],
    "shared_memory_bytes": 49152,
    "most_shared_memory_bytes": 232448,
    "load_bytes": 16,
    "max_vector": 16,
    "multiprocessors": 132,
    "units_per_multiprocessor": 2048,
    "cache_bytes": 52428800,
    "wide_indices": true,
    "wide_atomics": true,
    "forward_progress": true
  },
  "plans": {
    "sum(4 bytes, 1 field) f32 -> f32 | kept 64:4096:1 | reduced 4096:1:0 | aligned 256 | spans 262144, 64": {
      "plan": {"#
        .replace("PLANNER", env!("CARGO_PKG_VERSION"))
        .replace("PLANS", &Plan::VERSION.to_string());
    assert!(text.starts_with(&expected), "{text}");
    assert!(text.ends_with("\"measured_ns\": 900,\n      \"untuned_ns\": 1000\n    }\n  }\n}\n"));
}

#[test]
fn plans_survive_a_file_and_its_order_is_fixed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plans.json");
    let device = Device::h200();
    let missing = PlanStore::read(&path, &device).unwrap_err();
    assert!(missing.is_missing_file(), "{missing}");
    store([64, 8, 100]).merge_into_file(&path).unwrap();
    let read = PlanStore::read(&path, &device).unwrap();
    assert_eq!((read.len(), read.is_empty()), (3, false));
    for rows in [8, 64, 100] {
        assert_eq!(read.plan_for(&problem(rows), &device), Some(tuned(rows, 900).plan));
        assert_eq!(read.get(&problem(rows)), Some(tuned(rows, 900)));
    }
    assert_eq!(read.plan_for(&problem(65), &device), None);
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text, store([100, 64, 8]).to_json().unwrap());
    assert_eq!(text, read.to_json().unwrap());
    assert!(read.iter().map(|(line, _)| line).is_sorted());
    // Nothing is left behind but the lock.
    let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["plans.json", "plans.json.lock"]);
}

/// The tuning, the speeds and the element types may differ, the hardware may not.
#[test]
fn stores_of_other_devices_are_refused() {
    let text = store([64]).to_json().unwrap();
    let mut device = Device::h200();
    device.tuning.published_bytes += 1;
    device.profile.bandwidth += 1;
    device.elements.pop();
    let read = PlanStore::parse(&text, &device).unwrap();
    assert!(read.plan_for(&problem(64), &device).is_some());

    type Change = fn(&mut Device);
    let changes: [(Change, &str); 17] = [
        (|device| device.name.push('X'), "name = \"NVIDIA H200\", this one has \"NVIDIA H200X\""),
        (|device| device.plane_size_min = 16, "plane_size_min = 32, this one has 16"),
        (|device| device.plane_size_max = 64, "plane_size_max"),
        (|device| device.plane_operations = false, "plane_operations"),
        (|device| device.max_units_per_cube = 512, "max_units_per_cube"),
        (|device| device.max_bindings = 8, "max_bindings"),
        (|device| device.max_cube_count[1] = 8, "max_cube_count"),
        (|device| device.shared_memory_bytes += 1, "shared_memory_bytes"),
        (|device| device.most_shared_memory_bytes += 1, "most_shared_memory_bytes"),
        (|device| device.load_bytes = 32, "load_bytes"),
        (|device| device.max_vector = 8, "max_vector"),
        (|device| device.multiprocessors = 114, "multiprocessors = 132, this one has 114"),
        (|device| device.units_per_multiprocessor = 1, "units_per_multiprocessor"),
        (|device| device.cache_bytes = 0, "cache_bytes"),
        (|device| device.wide_indices = false, "wide_indices"),
        (|device| device.wide_atomics = false, "wide_atomics"),
        (|device| device.forward_progress = false, "forward_progress"),
    ];
    for (change, message) in changes {
        let mut other = Device::h200();
        change(&mut other);
        let error = PlanStore::parse(&text, &other).unwrap_err();
        assert!(error.is_other_device(), "{error}");
        assert!(error.to_string().contains(message), "{error}");
        assert_eq!(read.plan_for(&problem(64), &other), None);
        assert_eq!(read.check_device(&other).unwrap_err().to_string(), error.to_string());
        let error = store([64]).insert(&problem(8), &other, tuned(8, 1)).unwrap_err();
        assert!(error.is_other_device(), "{error}");
    }
}

#[test]
fn stores_of_other_versions_are_refused() {
    let text = store([64]).to_json().unwrap();
    let refused = |from: &str, to: &str, message: &str| {
        assert!(text.contains(from), "{text}");
        let text = text.replace(from, to);
        let error = PlanStore::parse(&text, &Device::h200()).unwrap_err();
        assert!(error.is_other_version(), "{error}");
        assert!(error.to_string().contains(message), "{error}");
    };
    refused("\"format\": 2", "\"format\": 3, \"new\": []", "has format 3, and this planner reads");
    let planner = format!("\"planner\": \"{}\"", env!("CARGO_PKG_VERSION"));
    refused(&planner, "\"planner\": \"0.0.9\"", "reduce-planner 0.0.9 wrote");
    // The fields of plans of another version may be others too.
    let plans = format!("\"plan_version\": {},", Plan::VERSION);
    refused(&plans, "\"plan_version\": 2, \"new\": [],", "have version 2");
    let plan = format!("\"version\": {}", Plan::VERSION);
    refused(&plan, "\"version\": 99", "have version 99");
}

#[test]
fn damaged_stores_are_refused() {
    let device = Device::h200();
    let text = store([64, 8]).to_json().unwrap();
    let is_damaged =
        |text: &str| matches!(PlanStore::parse(text, &device), Err(StoreError::Damaged(_)));
    for end in (0..text.trim_end().len()).step_by(7) {
        assert!(is_damaged(&text[..end]), "the first {end} bytes");
    }
    assert!(is_damaged(&text.replace("\"measured_ns\"", "\"measured_us\"")));
    assert!(is_damaged(&text.replace("\"measured_ns\": 900", "\"measured_ns\": -900")));
    assert!(is_damaged(&text.replace("\"plans\"", "\"plan\"")));
    assert!(is_damaged(&(text.clone() + "}")));
    assert!(is_damaged(&"[".repeat(1 << 20)));
    // Two plans for one problem, as a merge by hand may leave them.
    assert!(text.contains("kept 8:4096:1") && text.contains("262144, 64"));
    let twice = text.replace("kept 8:4096:1", "kept 64:4096:1").replace("32768, 8", "262144, 64");
    let error = PlanStore::parse(&twice, &device).unwrap_err();
    assert!(error.to_string().contains("two plans for `sum(4 bytes"), "{error}");
}

/// A plan that a problem cannot run is not taken, and not given.
#[test]
fn plans_that_do_not_fit_are_not_given() {
    let device = Device::h200();
    let split = choose(&problem(1), &device).unwrap().plan;
    let unfit = TunedPlan::new(
        Plan::new(Access::new(Direction::Along).with_vector(3), split.schedule),
        1,
        2,
    );
    let error = store([]).insert(&problem(64), &device, unfit).unwrap_err();
    assert!(matches!(error, StoreError::Plan(_)), "{error}");
    let text = store([64]).to_json().unwrap();
    assert!(text.contains("\"vector\": 4"));
    let read = PlanStore::parse(&text.replace("\"vector\": 4", "\"vector\": 8"), &device).unwrap();
    assert!(read.get(&problem(64)).is_some());
    assert_eq!(read.plan_for(&problem(64), &device), None);
}

/// A plan that was only read does not come back over a newer one. Of two that were inserted, the
/// last to merge stays.
#[test]
fn the_last_measurement_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plans.json");
    let device = Device::h200();
    store([8, 64]).merge_into_file(&path).unwrap();
    let mut reader = PlanStore::read(&path, &device).unwrap();
    let mut tuner = PlanStore::new(&device);
    tuner.insert(&problem(64), &device, tuned(64, 800)).unwrap();
    tuner.merge_into_file(&path).unwrap();
    assert_eq!(tuner.len(), 2, "a merge takes over what the file has");
    reader.insert(&problem(100), &device, tuned(100, 700)).unwrap();
    reader.merge_into_file(&path).unwrap();
    let nanoseconds_of_64 = |store: &PlanStore| store.get(&problem(64)).unwrap().measured_ns;
    let read = PlanStore::read(&path, &device).unwrap();
    assert_eq!((read.len(), nanoseconds_of_64(&read), nanoseconds_of_64(&reader)), (3, 800, 800));
    assert_eq!(reader, read);

    let mut later = store([64]);
    later.merge_into_file(&path).unwrap();
    assert_eq!(nanoseconds_of_64(&PlanStore::read(&path, &device).unwrap()), 900);
    // What was merged once counts as read.
    tuner.merge_into_file(&path).unwrap();
    assert_eq!(nanoseconds_of_64(&PlanStore::read(&path, &device).unwrap()), 900);
}

/// A file that this store cannot read stays as it is, and so does the store.
#[test]
fn other_files_are_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plans.json");
    let mut other = Device::h200();
    other.multiprocessors = 114;
    let text_of_other = PlanStore::new(&other).to_json().unwrap();
    let whole = store([64]).to_json().unwrap();
    let truncated = &whole[..whole.len() / 2];
    let newer = whole.replace("\"format\": 2", "\"format\": 3");
    for text in [&text_of_other, truncated, &newer, "", "my notes"] {
        fs::write(&path, text).unwrap();
        let mut store = store([8]);
        let before = store.clone();
        store.merge_into_file(&path).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(store, before);
    }
    fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(matches!(store([8]).merge_into_file(&path), Err(StoreError::File { .. })));
    let nowhere = folder.path().join("missing/plans.json");
    assert!(matches!(store([8]).merge_into_file(nowhere), Err(StoreError::File { .. })));
    assert!(matches!(store([8]).merge_into_file(""), Err(StoreError::File { .. })));
}

const WRITERS: usize = 4;
const PLANS_OF_WRITER: usize = 8;

/// Writes the plans of one writer, one merge each.
fn write_plans(path: &Path, writer: usize) {
    for nth in 0..PLANS_OF_WRITER {
        store([1 + writer * PLANS_OF_WRITER + nth]).merge_into_file(path).unwrap();
    }
}

fn assert_all_written(path: &Path) {
    let device = Device::h200();
    let read = PlanStore::read(path, &device).unwrap();
    assert_eq!(read.len(), WRITERS * PLANS_OF_WRITER);
    assert_eq!(read, PlanStore::parse(&store(1..=32).to_json().unwrap(), &device).unwrap());
}

#[test]
fn threads_that_write_at_once_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plans.json");
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let path = &path;
            scope.spawn(move || write_plans(path, writer));
        }
    });
    assert_all_written(&path);
}

/// The test starts itself in processes that write.
#[test]
fn processes_that_write_at_once_lose_nothing() {
    const WRITER: &str = "REDUCE_PLANNER_TEST_WRITER";
    const FILE: &str = "REDUCE_PLANNER_TEST_FILE";
    if let (Ok(writer), Some(path)) = (env::var(WRITER), env::var_os(FILE)) {
        return write_plans(Path::new(&path), writer.parse().unwrap());
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plans.json");
    let start = |writer: usize| {
        Command::new(env::current_exe().unwrap())
            .args(["--exact", "processes_that_write_at_once_lose_nothing"])
            .env(WRITER, writer.to_string())
            .env(FILE, &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let processes: Vec<_> = (0..WRITERS).map(start).collect();
    for mut process in processes {
        assert!(process.wait().unwrap().success());
    }
    assert_all_written(&path);
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None, cases: 4096, ..Default::default()
    })]

    /// Problems are equal if and only if their lines are, also those that differ in one thing.
    #[test]
    fn lines_tell_problems_apart(
        first in prop::collection::vec(any::<u8>(), 0..64),
        changes in prop::collection::vec((0usize..64, any::<u8>()), 0..3),
    ) {
        let mut second = first.clone();
        for (at, byte) in changes {
            if let Some(old) = second.get_mut(at) {
                *old = byte;
            }
        }
        let problem = |bytes: &[u8]| {
            let mut bytes = Bytes(bytes);
            let operator = support::operator(&mut bytes);
            match bytes.once_in(4) {
                true => support::hostile_problem(&mut bytes),
                false => support::problem(&mut bytes, operator, |bytes| bytes.below(4)),
            }
        };
        if let (Ok(first), Ok(second)) = (problem(&first), problem(&second)) {
            prop_assert_eq!(
                first == second, first.to_string() == second.to_string(), "{} {}", first, second
            );
            prop_assert_eq!(first.to_string().lines().count(), 1);
        }
    }
}

/// A store has plans of each kind of problem, whatever the others are.
#[test]
fn a_store_keeps_plans_of_every_kind() {
    fn keep<P: Planned>(store: &mut PlanStore, problem: &P, device: &Device) -> P::Plan {
        let plan: P::Plan = problem.choose(device).unwrap().plan;
        store.insert(problem, device, TunedPlan::new(plan.clone(), 10, 20)).unwrap();
        plan
    }
    let device = Device::h200();
    let (shape, strides) = ([64, 4096], [4096, 1]);
    let element = ElementType::F32;
    let input = InputSpec { element, shape: &shape, strides: &strides, alignment: 256 };
    let class = OperatorClass::new("sum", 4);
    let reduction = problem(64);
    let spec = AppliedSpec {
        element,
        strides: None,
        second: None,
        companions: &[&[1, 0], &[0, 1]],
        further: &[],
    };
    let applied = AppliedProblem::new(class, &input, Some(&[1]), &spec).unwrap();
    let applied = (applied, reduction.clone());
    let with_results = (applied.0.clone().storing_results(), reduction.clone());
    let list = ListProblem::new(class, &[input, input], &[element]).unwrap();
    let applied_list = |in_place| {
        AppliedListProblem::new(list.clone(), &[input; 2], &[&strides[..]; 2], in_place).unwrap()
    };
    let top_k = |k| {
        let selected = SelectedSpec {
            positions: ElementType::U32,
            kept_strides: &[64],
            rank_stride: 1,
            written: None,
            probabilities: None,
        };
        TopKProblem::new(&input, Some(&[1]), k, &selected).unwrap()
    };

    let scan = |reverse| {
        let elements = &[element];
        let spec = ScanSpec { reverse, ..ScanSpec::new(elements) };
        ScanProblem::new(class, &input, Some(&[1]), &spec).unwrap()
    };

    let list_scan = |reverse| ListScanProblem::new(vec![scan(false), scan(reverse)]);

    let mut store = PlanStore::new(&device);
    let plan_of_list_scan = keep(&mut store, &list_scan(false), &device);
    let plan_of_scan = keep(&mut store, &scan(false), &device);
    let plan_of_top_k = keep(&mut store, &top_k(7), &device);
    let plan_of_reduction = keep(&mut store, &reduction, &device);
    let plan_of_applied = keep(&mut store, &applied, &device);
    let plan_of_list = keep(&mut store, &list, &device);
    let plan_of_applied_list = keep(&mut store, &applied_list(true), &device);
    let text = store.to_json().unwrap();
    let store = PlanStore::parse(&text, &device).unwrap();
    assert_eq!(store.len(), 7);
    assert_eq!(store.plan_for(&list_scan(false), &device), Some(plan_of_list_scan));
    assert_eq!(store.plan_for(&list_scan(true), &device), None);
    assert_eq!(store.plan_for(&scan(false), &device), Some(plan_of_scan));
    assert_eq!(store.plan_for(&scan(true), &device), None);
    assert_eq!(store.plan_for(&top_k(7), &device), Some(plan_of_top_k));
    assert_eq!(store.plan_for(&top_k(8), &device), None);
    assert_eq!(store.plan_for(&reduction, &device), Some(plan_of_reduction));
    assert_eq!(store.plan_for(&applied, &device), Some(plan_of_applied));
    assert_eq!(store.plan_for(&list, &device), Some(plan_of_list));
    assert_eq!(store.plan_for(&applied_list(true), &device), Some(plan_of_applied_list));
    // What differs in any way is another problem.
    assert_eq!(store.plan_for(&with_results, &device), None);
    assert_eq!(store.plan_for(&applied_list(false), &device), None);
    let one = ListProblem::new(class, &[input], &[element]).unwrap();
    assert_eq!(store.plan_for(&one, &device), None);

    // A plan that breaks a rule is not run, and a version that this planner does not run is an
    // error.
    let eight = text.replace("\"vector\": 4", "\"vector\": 8");
    let read = PlanStore::parse(&eight, &device).unwrap();
    assert_eq!(read.plan_for(&applied, &device), None);
    assert_eq!(read.plan_for(&list, &device), None);
    assert_eq!(read.plan_for(&applied_list(true), &device), None);
    let lines = [applied.line(), list.line(), applied_list(true).line()];
    assert_eq!(
        lines,
        [
            "applied sum(4 bytes, 1 field) f32 -> f32 | kept 64:4096:4096 | reduced 4096:1:1 | \
             aligned 256 | spans 262144, 262144 | companion kept 1 reduced 0 | companion kept 0 \
             reduced 1 | companions span 4096 | results sum(4 bytes, 1 field) f32 -> f32 | kept \
             64:4096:1 | reduced 4096:1:0 | aligned 256 | spans 262144, 64",
            "list sum(4 bytes, 1 field) -> f32 | 2 times (sum(4 bytes, 1 field) f32 -> f32 | kept \
             none | reduced 262144:1:0 | aligned 256 | spans 262144, 1)",
            "applied in place: list sum(4 bytes, 1 field) -> f32 | 2 times (sum(4 bytes, 1 field) \
             f32 -> f32 | kept none | reduced 262144:1:0 | aligned 256 | spans 262144, 1) | \
             elements list sum(4 bytes, 1 field) -> none | 2 times (sum(4 bytes, 1 field) f32 -> \
             f32 | kept none | reduced 262144:1:1 | aligned 256 | spans 262144, 262144)",
        ]
    );
}
