//! Plans as data: saved, read, checked, refused. It does not matter which plan is decided on:
//! `decisions.rs` and `golden.rs` test that.

use proptest::prelude::*;
use reduce_planner::{
    Access, AppliedKind, AppliedProblem, AppliedSpec, Choice, Combine, Device, Direction,
    ElementCost, ElementType, Illegal, InputSpec, Limit, Merge, Numerics, OperatorClass,
    OutputSpec, Plan, PlanError, Problem, ScanProblem, ScanSpec, Schedule, ScheduleKind,
    SecondSpec, SelectedSpec, TopKProblem, Tuning, choose, choose_applied, choose_scan,
    choose_top_k, force, force_applied, row_major_strides,
};

const SUM: OperatorClass = OperatorClass::new("sum", 4);

/// The H200, but for what `change` does to it.
fn h200_with(change: impl FnOnce(&mut Device)) -> Device {
    let mut device = Device::h200();
    change(&mut device);
    device
}

fn problem(shape: &[usize], axes: &[usize]) -> Problem {
    problem_of(SUM, shape, axes)
}

fn problem_of(operator: OperatorClass, shape: &[usize], axes: &[usize]) -> Problem {
    let element = ElementType::F32;
    let strides = row_major_strides(shape);
    Problem::new(
        operator,
        &InputSpec { element, shape, strides: &strides, alignment: 256 },
        Some(axes),
        &OutputSpec { elements: &[element], strides: None },
    )
    .unwrap()
}

#[test]
fn plans_devices_and_choices_survive_a_file() {
    for kind in ScheduleKind::ALL {
        let plan = force(kind, &problem(&[40, 100_000], &[1]), &Device::h200()).unwrap();
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan, "{text}");
    }
    let device = Device::h200();
    let text = serde_json::to_string(&device).unwrap();
    assert_eq!(serde_json::from_str::<Device>(&text).unwrap(), device);
    let choice = choose(&problem(&[40, 1000], &[1]), &device).unwrap();
    let text = serde_json::to_string(&choice).unwrap();
    let back: reduce_planner::Choice = serde_json::from_str(&text).unwrap();
    assert_eq!(back.plan, choice.plan);
    assert_eq!(back.refused.len(), 3);
}

/// The names in a file of plans are published. Change them only with [`Plan::VERSION`].
#[test]
fn plans_have_this_form_in_a_file() {
    let split = r#"{"version":4,"access":{"direction":"along","vector":4,"peeled":false,
        "loads_in_flight":4,"outputs_in_flight":1},"schedule":{"split":{"cubes_per_output":264,
        "units_per_output":512,"outputs_per_cube":1,"combine":{"plane":{"lanes":32}},
        "merge":"last_cube"}}}"#;
    let plan = choose(&problem(&[1 << 28], &[0]), &Device::h200()).unwrap().plan;
    assert_eq!(serde_json::from_str::<Plan>(split).unwrap(), plan);
    let merge = r#"{"second_launch":{"units_per_output":256,"outputs_per_cube":1}}"#;
    let two_launches = split.replace(r#""last_cube""#, merge);
    let without = h200_with(|device| device.wide_atomics = false);
    let plan = choose(&problem(&[1 << 28], &[0]), &without).unwrap().plan;
    assert_eq!(serde_json::from_str::<Plan>(&two_launches).unwrap(), plan);
    // A file may leave out the outputs in flight where there is one. docs/TUNING.md has this plan.
    let cube = r#"{"version":4,
      "access":{"direction":"along","vector":4,"peeled":false,"loads_in_flight":8},
      "schedule":{"cube":{"units_per_output":256,"outputs_per_cube":1,"combine":{"plane":{"lanes":32}}}}}"#;
    let rows = problem(&[8192, 8192], &[1]);
    serde_json::from_str::<Plan>(cube).unwrap().check(&rows, &Device::h200()).unwrap();
    let version = serde_json::to_value(plan).unwrap()["version"].as_u64().unwrap();
    assert_eq!((version, Plan::VERSION), (4, 4));
}

#[test]
fn plans_read_as_sentences() {
    let plan = choose(&problem(&[1 << 28], &[0]), &Device::h200()).unwrap().plan;
    assert_eq!(
        plan.to_string(),
        "split: 264 cubes per output, in each cube 512 units per output and 1 output, combined by \
         plane operations over 32 lanes; the last cube merges; vectors of 4 along the reduction, 4 \
         loads in flight"
    );
    let without = h200_with(|device| device.wide_atomics = false);
    let plan = choose(&problem(&[1 << 28], &[0]), &without).unwrap().plan;
    let text = plan.to_string();
    let merge = "; a second launch merges with 256 units per output and 1 output per cube; ";
    assert!(text.contains(merge), "{text}");
    let plan = choose(&problem(&[1 << 20, 32], &[1]), &Device::h200()).unwrap().plan;
    assert_eq!(
        plan.to_string(),
        "plane: 4 lanes per output, 256 units per cube; vectors of 4 along the reduction, 2 loads \
         in flight for each of 2 outputs"
    );
    let plan = choose(&problem(&[8192, 8192], &[0]), &Device::h200()).unwrap().plan;
    assert_eq!(
        plan.to_string(),
        "cube: 64 units per output tile, 8 output tiles per cube, combined by shared memory; \
         vectors of 4 across outputs, 8 loads in flight"
    );
    let plan = choose(&problem(&[4096, 50257], &[1]), &Device::h200()).unwrap().plan;
    assert!(plan.to_string().contains("with head and tail peeled"), "{plan}");
    let plan = choose(&problem(&[65536, 1023], &[0]), &Device::h200()).unwrap().plan;
    assert!(plan.to_string().contains("across outputs with rows realigned"), "{plan}");
}

/// An estimate names its terms and the longest of them, and a refusal that is about time names
/// both.
#[test]
fn estimates_read_as_one_line() {
    let choice = choose(&problem(&[8192, 8192], &[1]), &Device::h200()).unwrap();
    let text = choice.estimate.to_string();
    assert!(text.contains("us, limited by bandwidth: launch 7.6, gap "), "{text}");
    assert_eq!(text.lines().count(), 1);
    assert_eq!(choice.estimate.limit(), Limit::Bandwidth);
    let unit = choice.refused[0].to_string();
    assert!(unit.starts_with("unit: slower: "), "{unit}");
    assert!(unit.contains("(limited by waiting for loads) against "), "{unit}");
    let small = choose(&problem(&[1000], &[0]), &Device::h200()).unwrap();
    assert_eq!(small.estimate.limit(), Limit::Launch);
    let again = small.plan.estimate(&problem(&[1000], &[0]), &Device::h200());
    assert_eq!(small.estimate, again);
}

/// A plan for another shape is refused where it would load across a boundary or past the end.
#[test]
fn plans_that_do_not_fit_are_refused() {
    let device = Device::h200();
    let even = problem(&[64, 4096], &[1]);
    let odd = problem(&[64, 4095], &[1]);
    let plan = choose(&even, &device).unwrap().plan;
    plan.check(&even, &device).unwrap();
    let refused = |plan: Plan, problem: &Problem, device: &Device, reason: &str| {
        let error = plan.check(problem, device).unwrap_err();
        assert!(error.is_unfit_plan(), "{error:?}");
        assert!(error.to_string().contains(reason), "{error}");
    };
    refused(plan, &odd, &device, "rows of 4095 elements do not divide into aligned vectors of 4");
    let mut other_version = plan;
    other_version.version = 99;
    refused(other_version, &even, &device, "version 99");
    let mut wide = plan;
    wide.access.vector = 8;
    refused(wide, &even, &device, "a load of 32 bytes exceeds the device's 16");
    let mut several = plan;
    several.access.outputs_in_flight = 2;
    refused(several, &even, &device, "only units and planes have several outputs in flight");
    several.schedule = Schedule::Plane { lanes_per_output: 32, units_per_cube: 256 };
    refused(several, &even, &device, "each with 1024 loads of which 128 are in flight");
    several.access.outputs_in_flight = 5;
    refused(several, &even, &device, "5 outputs with 4 loads each exceed 16 loads in flight");
    // 2^63 + 1 outputs of 4 loads are 4 where the product wraps.
    several.access.outputs_in_flight = (1 << 63) + 1;
    let message = "9223372036854775809 outputs with 4 loads each exceed 16 loads in flight";
    refused(several, &even, &device, message);
    let empty = problem(&[64, 0], &[1]);
    several.access = plan.access.with_vector(1).with_outputs_in_flight(2);
    refused(several, &empty, &device, "no elements to load");
    let mut none = plan;
    none.access.loads_in_flight = 0;
    refused(none, &even, &device, "0 loads in flight");
    let units = |units_per_cube| Plan::new(plan.access, Schedule::Unit { units_per_cube });
    refused(units(0), &even, &device, "0 units per cube is not a power of two");
    refused(units(96), &even, &device, "96 units per cube is not a power of two");
    refused(units(4096), &even, &device, "not a power of two up to 1024");
    let lanes = |lanes_per_output| {
        Plan::new(plan.access, Schedule::Plane { lanes_per_output, units_per_cube: 256 })
    };
    refused(lanes(64), &even, &device, "up to 32");
    refused(lanes(0), &even, &device, "not a power of two");
    refused(lanes(1), &even, &device, "one lane per output");
    let mut split = force(ScheduleKind::Split, &problem(&[1 << 24], &[0]), &device).unwrap();
    if let Schedule::Split { cubes_per_output, .. } = &mut split.schedule {
        *cubes_per_output = u32::MAX;
    }
    refused(split, &problem(&[1 << 24], &[0]), &device, "advance by more than 16777216 loads");
    let small = h200_with(|device| device.shared_memory_bytes = 16);
    let cube = force(ScheduleKind::Cube, &even, &device).unwrap();
    refused(cube, &even, &small, "the device's 16");
    let narrow = h200_with(|device| device.max_cube_count = [1, 1, 1]);
    refused(cube, &even, &narrow, "cubes exceed the limits of the grid");
    let planeless = h200_with(|device| device.plane_operations = false);
    refused(lanes(8), &even, &planeless, "no plane operations");
    let combine = Combine::Plane { lanes: 2 };
    let partial = Schedule::Cube { units_per_output: 2, outputs_per_cube: 1, combine };
    refused(Plan::new(plan.access, partial), &even, &device, "2 units are fewer than a plane");
    // More partials than indices count, and more merging cubes than the grid holds.
    let rows = problem(&[1 << 20, 16], &[1]);
    let single = Access::new(Direction::Along);
    let split = |cubes_per_output, outputs_per_cube| Schedule::Split {
        cubes_per_output,
        units_per_output: 1,
        outputs_per_cube,
        combine: Combine::Shared,
        merge: Merge::SecondLaunch { units_per_output: 1, outputs_per_cube: 1 },
    };
    let many = Plan::new(single, split(1 << 14, 1));
    refused(many, &rows, &device, "17179869184 partials are more than");
    let grid = h200_with(|device| device.max_cube_count = [4096, 1, 1]);
    let few = Plan::new(single, split(2, 1024));
    refused(few, &rows, &grid, "1048576 merging cubes exceed the limits of the grid");
    // The reason is data too.
    let error = cube.check(&even, &small).unwrap_err();
    let PlanError::Unfit { reason, .. } = error else { panic!("{error}") };
    assert!(matches!(reason, Illegal::SharedMemory { available: 16, .. }), "{reason}");
}

/// Realigned rows are refused where a unit's rows would not lie alike, or where no cube moves their
/// components.
#[test]
fn rows_that_cannot_be_realigned_are_refused() {
    let device = Device::h200();
    let odd = problem(&[3000, 1001], &[0]);
    let access = Access::new(Direction::Across).with_vector(4).with_realigned(true);
    let cube = |units_per_output, outputs_per_cube| Schedule::Cube {
        units_per_output,
        outputs_per_cube,
        combine: Combine::Shared,
    };
    Plan::new(access, cube(4, 64)).check(&odd, &device).unwrap();
    let refused = |access: Access, schedule: Schedule, problem: &Problem, reason: &str| {
        let error = Plan::new(access, schedule).check(problem, &device).unwrap_err();
        assert!(error.is_unfit_plan(), "{error:?}");
        assert!(error.to_string().contains(reason), "{error}");
    };
    let unlike = "rows 2 apart do not start at the same place in aligned vectors of 4";
    refused(access, cube(2, 64), &odd, unlike);
    refused(access, cube(64, 1), &odd, "two output tiles or more");
    refused(access, Schedule::Unit { units_per_cube: 256 }, &odd, "only the units of cubes");
    let only = "only rows that are read in vectors, and not peeled";
    refused(access.with_vector(1), cube(4, 64), &odd, only);
    refused(access.with_peeled(true), cube(4, 64), &odd, only);
    let nothing = "a vector of 4 does not fit into an input of 0 elements";
    refused(access, cube(4, 64), &problem(&[0, 1001], &[0]), nothing);
    let many = problem(&[1 << 24, 2, 5], &[1]);
    refused(access, cube(4, 256), &many, "4294967296 output tiles are more than 2130706432");
    // Rows that are two apart do for an even length.
    Plan::new(access, cube(2, 64)).check(&problem(&[3000, 1002], &[0]), &device).unwrap();
    // After 5 or 8 rows of 21 elements, a unit goes on in another place.
    let refused_axes = problem(&[9, 3, 5, 21], &[0, 2]);
    refused(access, cube(4, 64), &refused_axes, "rows 4 apart");
    Plan::new(access, cube(4, 64)).check(&problem(&[9, 3, 8, 21], &[0, 2]), &device).unwrap();
    // A broadcast row is the last one several times.
    let broadcast = Problem::new(
        OperatorClass::new("sum", 4),
        &InputSpec {
            element: ElementType::F32,
            shape: &[6, 40, 33],
            strides: &[0, 33, 1],
            alignment: 256,
        },
        Some(&[0, 1]),
        &OutputSpec { elements: &[ElementType::F32], strides: None },
    );
    refused(access, cube(4, 64), &broadcast.unwrap(), "start 0 elements apart");
}

/// Rows along the reduction are realigned wherever they start, if a load has both of its vectors
/// inside a row. A plan that would read beyond a row, or off a boundary, is refused.
#[test]
fn rows_along_the_reduction_are_realigned() {
    let text = r#"{"version":4,"access":{"direction":"along","vector":4,"peeled":false,
        "realigned":true,"loads_in_flight":4,"outputs_in_flight":1},
        "schedule":{"cube":{"units_per_output":512,"outputs_per_cube":1,
        "combine":{"plane":{"lanes":32}}}}}"#;
    let plan: Plan = serde_json::from_str(text).unwrap();
    assert_eq!(
        plan.to_string(),
        "cube: 512 units per output, 1 output per cube, combined by plane operations over 32 \
         lanes; vectors of 4 along the reduction with rows realigned, 4 loads in flight"
    );
    let back: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
    assert_eq!(back, plan);
    let device = Device::h200();
    let sliced = |row_stride: usize, inner_stride: usize, len: usize, alignment: usize| {
        let input = InputSpec {
            element: ElementType::F32,
            shape: &[6, 5, len],
            strides: &[5 * row_stride, row_stride, inner_stride],
            alignment,
        };
        let output = OutputSpec { elements: &[ElementType::F32], strides: None };
        Problem::new(SUM, &input, Some(&[0, 2]), &output).unwrap()
    };
    let long = problem(&[4096, 50257], &[1]);
    for fitting in [&long, &problem(&[4096, 7], &[1]), &sliced(1001, 1, 9, 16)] {
        plan.check(fitting, &device).unwrap();
    }
    assert_eq!(plan.access.loads_per_output(&long), 12563);
    assert_eq!(plan.access.loads_per_output(&problem(&[4, 7], &[1])), 1);
    // Each load takes its vectors and the instructions that move their elements together.
    let plain = Plan::new(plan.access.with_realigned(false), plan.schedule);
    let even = problem(&[4096, 50256], &[1]);
    let issue = |plan: &Plan| plan.estimate(&even, &device).issue_ns;
    assert!(issue(&plan) > issue(&plain));
    let refused = |plan: Plan, problem: &Problem, reason: &str| {
        let error = plan.check(problem, &device).unwrap_err();
        assert!(error.is_unfit_plan(), "{error:?}");
        assert!(error.to_string().contains(reason), "{error}");
    };
    let short = "a row of 6 elements may hold no whole vector of 4";
    refused(plan, &problem(&[4096, 6], &[1]), short);
    refused(plan, &sliced(1001, 2, 9, 16), "need a contiguous inner dimension");
    refused(plan, &sliced(1001, 1, 9, 4), "aligned");
    let several = plan.access.with_loads_in_flight(2).with_outputs_in_flight(2);
    let unit = Schedule::Unit { units_per_cube: 64 };
    refused(Plan::new(several, unit), &problem(&[4096, 7], &[1]), "read one at a time");
    let single = plan.access.with_vector(1);
    refused(Plan::new(single, unit), &long, "only rows that are read in vectors, and not peeled");
    let element = ElementType::F32;
    let input = InputSpec { element, shape: &[4, 77], strides: &[77, 1], alignment: 256 };
    let second = SecondSpec { element, strides: &[77, 1], alignment: 256 };
    let output = OutputSpec { elements: &[element], strides: None };
    let pair = Problem::with_inputs(SUM, &input, Some(&second), None, Some(&[1]), &output);
    refused(plan, &pair.unwrap(), "rows of two inputs are not realigned");
}

/// Two passes are for operators that have some, and for units that hold all elements of an output.
#[test]
fn two_passes_need_all_elements() {
    let device = Device::h200();
    let of = |class, shape: &[usize], axis| problem_of(class, shape, &[axis]);
    let one_pass = OperatorClass::new("var", 20).fields(5).blockwise();
    let var = one_pass.in_passes(16);
    let rows = of(var, &[5000, 192], 1);
    let access =
        Access::new(Direction::Along).with_vector(4).with_loads_in_flight(6).with_in_passes(true);
    let lanes = Schedule::Plane { lanes_per_output: 8, units_per_cube: 256 };
    let plan = Plan::new(access, lanes);
    plan.check(&rows, &device).unwrap();
    assert_eq!(
        plan.to_string(),
        "plane: 8 lanes per output, 256 units per cube; vectors of 4 along the reduction, 6 loads \
         in flight, held for two passes"
    );
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    assert!(text.contains("\"in_passes\":true"), "{text}");
    let plain = Plan::new(access.with_in_passes(false), lanes);
    assert!(!serde_json::to_string(&plain).unwrap().contains("in_passes"));

    let refused = |plan: Plan, problem: &Problem, reason: Illegal| {
        assert_eq!(plan.check(problem, &device), Err(plan.unfit(&device, reason)), "{plan}");
    };
    refused(plan, &of(one_pass, &[5000, 192], 1), Illegal::NoPasses);
    let longer = Illegal::PassesNotHeld { loads: 49, in_flight: 48 };
    refused(plan, &of(var, &[5000, 196], 1), longer);
    let nothing = Illegal::PassesNotHeld { loads: 0, in_flight: 48 };
    let single = Plan::new(access.with_vector(1), lanes);
    refused(single, &of(var, &[5000, 0], 1), nothing);
    let across = Access::new(Direction::Across).with_vector(4).with_in_passes(true);
    let cube = |access: Access| {
        let combine = Combine::Shared;
        Plan::new(access, Schedule::Cube { units_per_output: 8, outputs_per_cube: 32, combine })
    };
    refused(cube(across), &of(var, &[40, 4096], 0), Illegal::PassesAccess);
    refused(cube(access.with_realigned(true)), &of(var, &[5000, 193], 1), Illegal::PassesAccess);
    let split = Schedule::Split {
        cubes_per_output: 2,
        units_per_output: 256,
        outputs_per_cube: 1,
        combine: Combine::Plane { lanes: 32 },
        merge: Merge::LastCube,
    };
    refused(Plan::new(access, split), &of(var, &[2, 12_288], 1), Illegal::PassesAccess);
}

/// A misspelt field of a plan from a file is an error, not a default.
#[test]
fn unknown_fields_are_refused() {
    let plan = choose(&problem(&[1 << 20], &[0]), &Device::h200()).unwrap().plan;
    let text = serde_json::to_string(&plan).unwrap();
    for (field, other) in [
        ("\"peeled\"", "\"ragged\""),
        ("\"outputs_in_flight\"", "\"batch\""),
        ("\"outputs_per_cube\"", "\"outputs\""),
        ("\"version\"", "\"Version\""),
    ] {
        assert!(text.contains(field), "{text}");
        assert!(serde_json::from_str::<Plan>(&text.replace(field, other)).is_err(), "{other}");
    }
    let device = serde_json::to_string(&Device::h200()).unwrap();
    let misspelt = device.replace("\"cube_ns\"", "\"cubes_ns\"");
    assert_ne!(misspelt, device);
    assert!(serde_json::from_str::<Device>(&misspelt).is_err());
}

/// JSON has no infinity, so a saved choice could not be read again.
#[test]
fn estimates_without_outputs_are_finite() {
    for axis in [0, 2] {
        let choice = choose(&problem(&[5, 0, 3], &[axis]), &Device::h200()).unwrap();
        let text = serde_json::to_string(&choice).unwrap();
        assert_eq!(serde_json::from_str::<Choice>(&text).unwrap(), choice, "{text}");
    }
}

/// A kernel with nothing to load cannot be told by its loads which output it works on.
#[test]
fn empty_reductions_are_taken_one_at_a_time() {
    for rows in [1 << 10, 1 << 23] {
        let empty = problem(&[rows, 0], &[1]);
        let plan = choose(&empty, &Device::h200()).unwrap().plan;
        assert_eq!(plan.access.outputs_in_flight, 1, "{plan}");
        plan.check(&empty, &Device::h200()).unwrap();
    }
}

/// Five fields and three results take eight buffers in the second launch of a split, where WebGPU
/// promises eight with the one for scalars. The words that the last cube of a split merges are
/// bound twice where they are plain too.
#[test]
fn launches_bind_no_more_buffers_than_the_device_has() {
    let operator = OperatorClass::new("mine", 20).fields(5);
    let shape = [1 << 24];
    let problem = |results: usize| {
        let element = ElementType::F32;
        Problem::new(
            operator,
            &InputSpec { element, shape: &shape, strides: &[1], alignment: 256 },
            None,
            &OutputSpec { elements: &vec![element; results], strides: None },
        )
        .unwrap()
    };
    let few = h200_with(|device| {
        device.wide_atomics = false;
        device.max_bindings = 7;
    });
    let plan = choose(&problem(2), &few).unwrap().plan;
    assert_eq!((plan.schedule.kind(), plan.schedule.launches()), (ScheduleKind::Split, 2));
    let choice = choose(&problem(3), &few).unwrap();
    assert_ne!(choice.plan.schedule.kind(), ScheduleKind::Split);
    let error = plan.check(&problem(3), &few).unwrap_err();
    assert!(error.to_string().contains("a launch binds 8 buffers, the device allows 7"), "{error}");
    let mut enough = few;
    enough.max_bindings = 8;
    assert_eq!(choose(&problem(3), &enough).unwrap().plan.schedule.launches(), 2);
    let split = force(ScheduleKind::Split, &problem(2), &Device::h200()).unwrap();
    assert_eq!(split.schedule.launches(), 1);
    split.check(&problem(2), &h200_with(|device| device.max_bindings = 5)).unwrap();
    let error = split.check(&problem(2), &h200_with(|device| device.max_bindings = 4)).unwrap_err();
    assert!(error.to_string().contains("a launch binds 5 buffers, the device allows 4"), "{error}");
}

/// Units of one plane wait for words together, and Mesa's software adapter loses the iterations of
/// those that have none to wait for.
#[test]
fn the_cube_that_merges_fills_a_plane() {
    let long = problem(&[1 << 16], &[0]);
    let single = Access::new(Direction::Along);
    let by = |units| Schedule::Split {
        cubes_per_output: 33,
        units_per_output: units,
        outputs_per_cube: 1,
        combine: Combine::Shared,
        merge: Merge::LastCube,
    };
    for device in [Device::h200(), Device::software_adapter()] {
        let plane = device.plane_size_max;
        Plan::new(single, by(plane)).check(&long, &device).unwrap();
        let error = Plan::new(single, by(plane / 2)).check(&long, &device).unwrap_err();
        assert!(error.to_string().contains("do not fill a plane"), "{error}");
    }
}

/// Nonsense is refused by whatever takes a device from outside, and names its field and value.
#[test]
fn devices_that_cannot_be_are_refused() {
    Device::h200().check().unwrap();
    Device::software_adapter().check().unwrap();
    let nonsense = [
        (h200_with(|device| device.plane_size_max = 48), "plane_size_max = 48"),
        (h200_with(|device| device.plane_size_min = 0), "plane_size_min = 0"),
        (h200_with(|device| device.plane_size_min = 64), "at least plane_size_min"),
        (h200_with(|device| device.load_bytes = usize::MAX), "load_bytes = 18446744073709551615"),
        (h200_with(|device| device.max_vector = 3), "max_vector = 3"),
        (h200_with(|device| device.max_units_per_cube = 0), "max_units_per_cube = 0"),
        (
            h200_with(|device| device.max_units_per_cube = u32::MAX),
            "max_units_per_cube = 4294967295",
        ),
        (h200_with(|device| device.max_cube_count = [65535, 0, 1]), "max_cube_count = 0"),
        (h200_with(|device| device.multiprocessors = 0), "multiprocessors = 0"),
        (h200_with(|device| device.units_per_multiprocessor = 0), "units_per_multiprocessor = 0"),
    ];
    let problem = problem(&[64, 4096], &[1]);
    let plan = choose(&problem, &Device::h200()).unwrap().plan;
    for (device, message) in nonsense {
        let error = device.check().unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
        let error = PlanError::Device(error);
        assert_eq!(choose(&problem, &device).unwrap_err(), error);
        assert_eq!(force(ScheduleKind::Unit, &problem, &device).unwrap_err(), error);
        assert_eq!(plan.check(&problem, &device).unwrap_err(), error);
    }
}

#[test]
fn devices_that_lack_something_say_so() {
    let device = h200_with(|device| device.elements = vec![ElementType::I32]);
    assert_eq!(
        choose(&problem(&[64], &[0]), &device).unwrap_err(),
        PlanError::ElementUnsupported { device: device.name, element: ElementType::F32 }
    );
    let huge = problem(&[1 << 20, 1 << 13], &[1]);
    assert!(choose(&huge, &Device::h200()).is_ok());
    let narrow = h200_with(|device| device.wide_indices = false);
    let error = choose(&huge, &narrow).unwrap_err();
    assert!(matches!(error, PlanError::IndexTooNarrow { span: 0x2_0000_0000, .. }), "{error}");
    assert!(error.is_too_large() && !error.is_unsupported_element());
}

/// The grid takes any number of cubes up to its volume, with little to spare.
#[test]
fn cubes_spread_over_the_grid() {
    let device = h200_with(|device| device.max_cube_count = [10, 4, 3]);
    for cubes in 1..=120u64 {
        let [x, y, z] = device.grid(cubes).unwrap().map(u64::from);
        assert!(x <= 10 && y <= 4 && z <= 3 && x * y * z >= cubes, "{cubes}: {x} {y} {z}");
        assert!(x * y * z - cubes < y * z, "{cubes}: {x} {y} {z}");
    }
    assert_eq!(device.grid(121), None);
}

/// Mostly numbers that a device may have, now and then any at all.
fn any_device() -> impl Strategy<Value = Device> {
    let size = || prop_oneof![9 => (0u32..8).prop_map(|log| 1 << log), 1 => any::<u32>()];
    let wide = || prop_oneof![9 => (0u32..6).prop_map(|log| 1usize << log), 1 => any::<usize>()];
    let planes = (size(), size(), any::<bool>(), any::<bool>());
    let memory = (prop_oneof![0usize..100_000, any::<usize>()], wide(), wide());
    let counts = (
        prop_oneof![9 => 1u32..2000, 1 => any::<u32>()],
        prop_oneof![9 => 1u32..300, 1 => any::<u32>()],
        prop_oneof![9 => 1u32..4096, 1 => any::<u32>()],
        prop_oneof![0u32..20, any::<u32>()],
    );
    let grid = prop::array::uniform3(prop_oneof![1u32..70_000, any::<u32>()]);
    let speed = (any::<u64>(), any::<u64>(), any::<u64>());
    (planes, memory, counts, grid, speed, any_numbers()).prop_map(
        |(
            (a, b, operations, atomics),
            (shared, load, vector),
            (units, processors, resident, bindings),
            grid,
            (bandwidth, launch, latency),
            numbers,
        )| {
            let mut device = Device::h200();
            device.plane_size_min = a.min(b);
            device.plane_size_max = a.max(b);
            device.plane_operations = operations;
            device.wide_atomics = atomics;
            device.shared_memory_bytes = shared;
            device.load_bytes = load;
            device.max_vector = vector;
            device.max_units_per_cube = units;
            device.multiprocessors = processors;
            device.units_per_multiprocessor = resident;
            device.max_bindings = bindings;
            device.forward_progress = true;
            device.max_cube_count = grid;
            device.profile.bandwidth = bandwidth;
            device.profile.launch_ns = launch;
            device.profile.latency_ns = latency;
            (device.profile.light_ps, device.profile.heavy_ps) = (latency, launch);
            (device.profile.position_ps, device.profile.wide_ps) = (launch, bandwidth);
            (device.profile.cube_ns, device.profile.merge_ns) = (bandwidth, latency);
            (device.profile.serial_factor, device.profile.spill_percent) = (launch, latency);
            if let Some(numbers) = numbers {
                device.tuning = tuning_of(&numbers);
            }
            device
        },
    )
}

/// Numbers for a tuning, of which most make sense.
fn any_numbers() -> impl Strategy<Value = Option<Vec<u64>>> {
    let number = prop_oneof![
        60 => (0u32..12).prop_map(|log| 1u64 << log),
        30 => Just(1u64 << 16),
        1 => any::<u64>(),
    ];
    prop::option::of(prop::collection::vec(number, 240))
}

/// Writes numbers into all numeric fields of the H200's tuning but the table of segments.
fn tuning_of(numbers: &[u64]) -> Tuning {
    fn fill(value: &mut serde_json::Value, numbers: &mut impl Iterator<Item = u64>) {
        for (name, value) in value.as_object_mut().unwrap() {
            if value.is_object() {
                fill(value, numbers);
            } else if value.is_number() {
                let number = numbers.next().unwrap();
                let number = if name.ends_with("percent") { number % 101 } else { number };
                *value = number.min(u64::from(u32::MAX)).into();
            }
        }
    }
    let mut value = serde_json::to_value(Tuning::h200()).unwrap();
    fill(&mut value, &mut numbers.iter().copied());
    serde_json::from_value(value).unwrap()
}

fn any_plan() -> impl Strategy<Value = Plan> {
    let number = || prop_oneof![0u32..5, Just(32u32), Just(256u32), any::<u32>()];
    let count = || {
        prop_oneof![
            4 => 0usize..20,
            1 => any::<usize>(),
            1 => (0u32..64, 0usize..3).prop_map(|(log, more)| (1 << log) + more),
        ]
    };
    let access = (any::<bool>(), count(), any::<bool>(), any::<bool>(), count(), count());
    let numbers = [number(), number(), number(), number(), number(), number()];
    let ways = (0..4, any::<bool>(), any::<bool>());
    (access, numbers, ways).prop_map(
        |(
            (along, vector, peeled, realigned, loads, outputs),
            [a, b, c, d, e, f],
            (kind, by_plane, last_cube),
        )| {
            let direction = if along { Direction::Along } else { Direction::Across };
            let combine = if by_plane { Combine::Plane { lanes: f } } else { Combine::Shared };
            let merge = match last_cube {
                true => Merge::LastCube,
                false => Merge::SecondLaunch { units_per_output: d, outputs_per_cube: e },
            };
            let schedule = match kind {
                0 => Schedule::Unit { units_per_cube: a },
                1 => Schedule::Plane { lanes_per_output: a, units_per_cube: b },
                2 => Schedule::Cube { units_per_output: a, outputs_per_cube: b, combine },
                _ => Schedule::Split {
                    cubes_per_output: c,
                    units_per_output: a,
                    outputs_per_cube: b,
                    combine,
                    merge,
                },
            };
            let access = Access::new(direction).with_vector(vector).with_peeled(peeled);
            let access = access.with_realigned(realigned);
            let access = access.with_loads_in_flight(loads).with_outputs_in_flight(outputs);
            Plan::new(access, schedule)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// Whatever the device looks like, the planner neither panics nor makes a plan that it would
    /// not itself accept.
    #[test]
    fn chosen_plans_fit_any_device(
        device in any_device(),
        rows in 1usize..3000,
        columns in 0usize..3000,
        axis in 0usize..2,
        fields in 1usize..6,
        transcendental in any::<bool>(),
        blockwise in any::<bool>(),
    ) {
        let operator = OperatorClass::new("mine", 4 * fields).fields(fields);
        let operator = if transcendental { operator.element_cost(ElementCost::Exponential) } else { operator };
        let operator = if blockwise { operator.blockwise() } else { operator };
        let problem = problem_of(operator, &[rows, columns], &[axis]);
        let choice = choose(&problem, &device);
        if let Err(error) = device.check() {
            prop_assert_eq!(choice.unwrap_err(), PlanError::Device(error));
            return Ok(());
        }
        if let Ok(choice) = choice {
            prop_assert_eq!(choice.plan.check(&problem, &device), Ok(()));
        }
        for kind in ScheduleKind::ALL {
            if let Ok(plan) = force(kind, &problem, &device) {
                prop_assert_eq!(plan.check(&problem, &device), Ok(()));
            }
        }
    }

    /// The same of selections.
    #[test]
    fn top_k_plans_fit_any_device(
        device in any_device(),
        shape in (1usize..3000, 1usize..300_000),
        axis in 0usize..2,
        share in 0usize..=64,
    ) {
        let shape = [shape.0, shape.1];
        let k = shape[axis] * share / 64;
        let input = InputSpec {
            element: ElementType::F32,
            shape: &shape,
            strides: &row_major_strides(&shape),
            alignment: 256,
        };
        let selected = SelectedSpec {
            positions: ElementType::U32,
            kept_strides: &[k.max(1)],
            rank_stride: 1,
            written: None,
            probabilities: None,
        };
        let problem = TopKProblem::new(&input, Some(&[axis]), k, &selected).unwrap();
        let choice = choose_top_k(&problem, &device);
        if let Err(error) = device.check() {
            prop_assert_eq!(choice.unwrap_err(), PlanError::Device(error));
            return Ok(());
        }
        if let Ok(choice) = choice {
            prop_assert_eq!(choice.plan.check(&problem, &device), Ok(()));
        }
    }

    /// The same of scans.
    #[test]
    fn scan_plans_fit_any_device(
        device in any_device(),
        rows in 1usize..3000,
        columns in 0usize..300_000,
        axis in 0usize..2,
        fields in 1usize..6,
        invariant in any::<bool>(),
    ) {
        let operator = OperatorClass::new("mine", 4 * fields).fields(fields);
        let shape = [rows, columns];
        let input = InputSpec {
            element: ElementType::F32,
            shape: &shape,
            strides: &row_major_strides(&shape),
            alignment: 256,
        };
        let elements = &[ElementType::F32, ElementType::U32];
        let spec = ScanSpec::new(elements);
        let problem = ScanProblem::new(operator, &input, Some(&[axis]), &spec).unwrap();
        let numerics = if invariant { Numerics::BatchInvariant } else { Numerics::Deterministic };
        let problem = problem.with_numerics(numerics);
        let choice = choose_scan(&problem, &device);
        if let Err(error) = device.check() {
            prop_assert_eq!(choice.unwrap_err(), PlanError::Device(error));
            return Ok(());
        }
        if let Ok(choice) = choice {
            prop_assert_eq!(choice.plan.check(&problem, &device), Ok(()));
        }
    }

    /// The same of reductions whose results are applied.
    #[test]
    fn applied_plans_fit_any_device(
        device in any_device(),
        rows in 1usize..3000,
        columns in 0usize..300_000,
        axis in 0usize..2,
        fields in 1usize..6,
    ) {
        let operator = OperatorClass::new("mine", 4 * fields).fields(fields);
        let shape = [rows, columns];
        let reduction = problem_of(operator, &shape, &[axis]);
        let strides = row_major_strides(&shape);
        let input = InputSpec { element: ElementType::F32, shape: &shape, strides: &strides, alignment: 256 };
        let output = AppliedSpec { element: ElementType::F32, strides: None, second: None, companions: &[&[0, 0]], further: &[] };
        let applied = AppliedProblem::new(operator, &input, Some(&[axis]), &output).unwrap();
        let choice = choose_applied(&applied, &reduction, &device);
        if device.check().is_err() {
            prop_assert!(choice.is_err());
            return Ok(());
        }
        if let Ok(choice) = choice {
            prop_assert_eq!(choice.plan.check(&applied, &reduction, &device), Ok(()));
        }
        for kind in AppliedKind::ALL {
            if let Ok(plan) = force_applied(kind, &applied, &reduction, &device) {
                prop_assert_eq!(plan.check(&applied, &reduction, &device), Ok(()));
            }
        }
    }

    /// Whatever a plan says, and of whatever problem, checking, printing and counting it does not
    /// panic; and what a plan may have in flight is bounded.
    #[test]
    fn any_plan_can_be_checked(
        plan in any_plan(),
        device in any_device(),
        columns in 0usize..3000,
        repeated in prop_oneof![Just(1usize), Just(1 << 40), Just(1 << 45)],
        accumulator_bytes in prop_oneof![Just(4usize), any::<usize>()],
    ) {
        let operator = OperatorClass::new("mine", accumulator_bytes);
        let element = ElementType::F32;
        let problem = Problem::new(
            operator,
            &InputSpec {
                element,
                shape: &[repeated, columns, 100],
                strides: &[0, 100, 1],
                alignment: 256,
            },
            Some(&[1]),
            &OutputSpec { elements: &[element], strides: None },
        )
        .unwrap();
        for device in [&device, &Device::h200()] {
            if plan.check(&problem, device).is_ok() {
                let Access { loads_in_flight, outputs_in_flight, .. } = plan.access;
                prop_assert!((1..=16).contains(&(loads_in_flight * outputs_in_flight)), "{}", plan);
            }
            let _ = choose(&problem, device);
        }
        let _ = (plan.to_string(), plan.cubes(&problem), plan.published_words(&problem, 5));
        let _ = plan.estimate(&problem, &device).to_string();
    }
}

/// A tuning cannot lift the bound that indices of published partials rely on.
#[test]
fn published_partials_stay_within_indices() {
    let mut device = Device::h200();
    device.tuning.published_bytes = u64::MAX;
    let schedule = Schedule::Split {
        cubes_per_output: 256,
        units_per_output: 32,
        outputs_per_cube: 1,
        combine: Combine::Shared,
        merge: Merge::LastCube,
    };
    let plan = Plan::new(Access::new(Direction::Along), schedule);
    let problem = problem(&[1 << 20, 1 << 16], &[1]);
    let error = plan.check(&problem, &device).unwrap_err();
    let illegal = Illegal::PublishedPartials { bytes: (1 << 23) * 257, max: 1 << 30 };
    assert_eq!(error, plan.unfit(&device, illegal));
}
