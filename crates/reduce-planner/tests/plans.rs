//! Plans as data: saved, read, checked, refused.

use proptest::prelude::*;
use reduce_planner::{
    Access, Combine, Device, Direction, ElementType, InputSpec, Merge, OperatorClass, OutputSpec,
    Plan, PlanError, Problem, Schedule, ScheduleKind, choose, force, row_major_strides,
};

const SUM: OperatorClass = OperatorClass {
    name: "sum",
    accumulator_bytes: 4,
    positional: false,
    defined_on_empty: true,
    transcendental: false,
};

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

#[test]
fn plans_read_as_sentences() {
    let plan = choose(&problem(&[1 << 28], &[0]), &Device::h200()).unwrap().plan;
    assert_eq!(
        plan.to_string(),
        "split: 396 cubes per output with 512 units each, 1 at a time per cube, plane operations \
         over 32 lanes; the last cube merges; vectors of 4 along the reduction, 4 loads in flight"
    );
    let without = Device { wide_atomics: false, ..Device::h200() };
    let plan = choose(&problem(&[1 << 28], &[0]), &without).unwrap().plan;
    let text = plan.to_string();
    assert!(
        text.contains("; then a second launch with 256 units per output, 1 at a time"),
        "{text}"
    );
    let plan = choose(&problem(&[1 << 20, 32], &[1]), &Device::h200()).unwrap().plan;
    let text = plan.to_string();
    assert!(text.ends_with("2 loads in flight for each of 2 outputs"), "{text}");
    let plan = choose(&problem(&[8192, 8192], &[0]), &Device::h200()).unwrap().plan;
    assert_eq!(
        plan.to_string(),
        "cube: 64 units per vector of outputs, 8 at a time per cube, shared memory; vectors of 4 \
         across outputs, 8 loads in flight"
    );
}

/// A plan for another shape is refused where it would load out of line or off the end.
#[test]
fn plans_that_do_not_fit_are_refused() {
    let device = Device::h200();
    let even = problem(&[64, 4096], &[1]);
    let odd = problem(&[64, 4095], &[1]);
    let plan = choose(&even, &device).unwrap().plan;
    plan.check(&even, &device).unwrap();
    let refused = |plan: Plan, problem: &Problem, device: &Device, reason: &str| {
        let error = plan.check(problem, device).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    };
    refused(plan, &odd, &device, "runs of 4095 elements do not divide into vectors of 4");
    refused(Plan { version: 99, ..plan }, &even, &device, "version 99");
    let mut wide = plan;
    wide.access.vector = 8;
    refused(wide, &even, &device, "a load of 32 bytes passes the device's 16");
    let mut several = plan;
    several.access.batch = 2;
    refused(several, &even, &device, "only units and planes have several outputs in flight");
    several.schedule = Schedule::Plane { lanes: 32, units: 256 };
    refused(several, &even, &device, "1024 loads per output, of which 128 are in flight");
    several.access.batch = 5;
    refused(several, &even, &device, "5 outputs of 4 loads pass 16 in flight");
    let mut none = plan;
    none.access.in_flight = 0;
    refused(none, &even, &device, "0 loads in flight");
    let units = |units| Plan::new(plan.access, Schedule::Unit { units });
    refused(units(0), &even, &device, "no power of two");
    refused(units(96), &even, &device, "no power of two");
    refused(units(4096), &even, &device, "no power of two up to 1024");
    let lanes = |lanes| Plan::new(plan.access, Schedule::Plane { lanes, units: 256 });
    refused(lanes(64), &even, &device, "up to 32");
    refused(lanes(0), &even, &device, "no power of two");
    refused(lanes(1), &even, &device, "one lane per output");
    let mut split = force(ScheduleKind::Split, &problem(&[1 << 24], &[0]), &device).unwrap();
    if let Schedule::Split { cubes, .. } = &mut split.schedule {
        *cubes = u32::MAX;
    }
    refused(split, &problem(&[1 << 24], &[0]), &device, "stride past");
    let small = Device { shared_memory_bytes: 16, ..device.clone() };
    let cube = force(ScheduleKind::Cube, &even, &device).unwrap();
    refused(cube, &even, &small, "the device has 16");
    let narrow = Device { max_cube_count: [1, 1, 1], ..device.clone() };
    refused(cube, &even, &narrow, "cubes pass the grid's limits");
    let planeless = Device { plane_operations: false, ..device.clone() };
    refused(lanes(8), &even, &planeless, "no plane operations");
    let combine = Combine::Plane { lanes: 2 };
    let partial = Schedule::Cube { workers: 2, outputs: 1, combine };
    refused(Plan::new(plan.access, partial), &even, &device, "2 units are less than a plane");
    // More partial results than indices count, and more merging cubes than the grid holds.
    let rows = problem(&[1 << 20, 16], &[1]);
    let single = Access { vector: 1, in_flight: 1, ..plan.access };
    let merge = Merge::SecondLaunch { workers: 1, outputs: 1 };
    let combine = Combine::Shared;
    let many = Schedule::Split { cubes: 1 << 14, workers: 1, outputs: 1, combine, merge };
    refused(Plan::new(single, many), &rows, &device, "17179869184 partial results");
    let few = Schedule::Split { cubes: 2, workers: 1, outputs: 1024, combine, merge };
    let grid = Device { max_cube_count: [4096, 1, 1], ..device.clone() };
    refused(Plan::new(single, few), &rows, &grid, "1048576 merging cubes pass the grid's limits");
}

#[test]
fn devices_that_lack_something_say_so() {
    let device = Device { elements: vec![ElementType::I32], ..Device::h200() };
    assert_eq!(
        choose(&problem(&[64], &[0]), &device).unwrap_err(),
        PlanError::ElementUnsupported { device: device.name, element: ElementType::F32 }
    );
    let huge = problem(&[1 << 20, 1 << 13], &[1]);
    assert!(choose(&huge, &Device::h200()).is_ok());
    let narrow = Device { wide_indices: false, ..Device::h200() };
    let error = choose(&huge, &narrow).unwrap_err();
    assert!(matches!(error, PlanError::IndexTooNarrow { span: 0x2_0000_0000, .. }), "{error}");
}

/// The grid takes any number of cubes up to its volume, with little to spare.
#[test]
fn cubes_spread_over_the_grid() {
    let device = Device { max_cube_count: [10, 4, 3], ..Device::h200() };
    for cubes in 1..=120u64 {
        let [x, y, z] = device.spread(cubes).unwrap().map(u64::from);
        assert!(x <= 10 && y <= 4 && z <= 3 && x * y * z >= cubes, "{cubes}: {x} {y} {z}");
        assert!(x * y * z - cubes < y * z, "{cubes}: {x} {y} {z}");
    }
    assert_eq!(device.spread(121), None);
}

fn any_device() -> impl Strategy<Value = Device> {
    let planes = (0u32..8, 0u32..3, any::<bool>(), any::<bool>());
    let memory = (0usize..100_000, 0usize..32, 0usize..32);
    (
        planes,
        memory,
        0u32..2000,
        prop_oneof![0u32..300, Just(u32::MAX)],
        prop::array::uniform3(prop_oneof![1u32..70_000, any::<u32>()]),
    )
        .prop_map(
            |(
                (plane, wider, operations, none),
                (shared, load, vector),
                units,
                processors,
                grid,
            )| Device {
                plane_size_min: if none { 0 } else { 1 << plane },
                plane_size_max: 1 << (plane + wider),
                plane_operations: operations,
                shared_memory_bytes: shared,
                load_bytes: load,
                max_vector: vector,
                max_units_per_cube: units,
                multiprocessors: processors,
                max_cube_count: grid,
                ..Device::h200()
            },
        )
}

fn any_plan() -> impl Strategy<Value = Plan> {
    let number = || prop_oneof![0u32..5, Just(32u32), Just(256u32), any::<u32>()];
    let access = (any::<bool>(), 0usize..20, any::<bool>(), 0usize..20);
    let numbers = [number(), number(), number(), number(), number(), number()];
    (access, 0..4, numbers, any::<bool>()).prop_map(
        |((along, vector, ragged, in_flight), kind, [a, b, c, d, e, f], by_plane)| {
            let direction = if along { Direction::Along } else { Direction::Across };
            let combine = if by_plane { Combine::Plane { lanes: f } } else { Combine::Shared };
            let merge = match by_plane {
                true => Merge::LastCube,
                false => Merge::SecondLaunch { workers: d, outputs: e },
            };
            let schedule = match kind {
                0 => Schedule::Unit { units: a },
                1 => Schedule::Plane { lanes: a, units: b },
                2 => Schedule::Cube { workers: a, outputs: b, combine },
                _ => Schedule::Split { cubes: c, workers: a, outputs: b, combine, merge },
            };
            Plan::new(Access { direction, vector, ragged, in_flight, batch: 1 }, schedule)
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
        columns in 1usize..3000,
        axis in 0usize..2,
        fields in 1usize..6,
        transcendental in any::<bool>(),
    ) {
        let operator = OperatorClass { accumulator_bytes: 4 * fields, transcendental, ..SUM };
        let problem = problem_of(operator, &[rows, columns], &[axis]);
        if let Ok(choice) = choose(&problem, &device) {
            prop_assert_eq!(choice.plan.check(&problem, &device), Ok(()));
        }
        for kind in ScheduleKind::ALL {
            if let Ok(plan) = force(kind, &problem, &device) {
                prop_assert_eq!(plan.check(&problem, &device), Ok(()));
            }
        }
    }

    /// Whatever a plan says, checking, printing and counting it does not panic.
    #[test]
    fn any_plan_can_be_checked(plan in any_plan(), device in any_device(), columns in 1usize..3000) {
        let problem = problem(&[columns, 100], &[0]);
        let _ = plan.check(&problem, &device);
        let _ = plan.check(&problem, &Device::h200());
        let _ = (plan.to_string(), plan.cubes(&problem));
        reduce_planner::cost::estimate_ns(&problem, &device, plan.access, plan.schedule);
    }
}
