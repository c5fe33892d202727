//! Plans as data: saved, read, checked, refused.

use proptest::prelude::*;
use reduce_planner::{
    Access, Combine, Device, Direction, ElementType, InputSpec, Merge, OperatorClass, OutputSpec,
    Plan, PlanError, Problem, Schedule, ScheduleKind, choose, force, row_major_strides,
};

const SUM: OperatorClass = OperatorClass {
    name: "sum",
    accumulator_bytes: 4,
    fields: 1,
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
    // 2^63 + 1 outputs of 4 loads are 4 where the product wraps.
    several.access.batch = (1 << 63) + 1;
    refused(several, &even, &device, "9223372036854775809 outputs of 4 loads pass 16 in flight");
    let empty = problem(&[64, 0], &[1]);
    several.access = Access { vector: 1, batch: 2, ..plan.access };
    refused(several, &empty, &device, "there are none");
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

/// A kernel with nothing to load cannot be told by its loads which output it works on.
#[test]
fn empty_reductions_are_taken_one_at_a_time() {
    for rows in [1 << 10, 1 << 23] {
        let empty = problem(&[rows, 0], &[1]);
        let plan = choose(&empty, &Device::h200()).unwrap().plan;
        assert_eq!(plan.access.batch, 1, "{plan}");
        plan.check(&empty, &Device::h200()).unwrap();
    }
}

/// Five fields and three results take eight buffers in the second launch of a split, where WebGPU
/// promises eight with the one for scalars.
#[test]
fn launches_bind_no_more_buffers_than_the_device_has() {
    let operator = OperatorClass { name: "mine", accumulator_bytes: 20, fields: 5, ..SUM };
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
    let few = Device { wide_atomics: false, max_bindings: 7, ..Device::h200() };
    let plan = choose(&problem(2), &few).unwrap().plan;
    assert_eq!((plan.schedule.kind(), plan.schedule.launches()), (ScheduleKind::Split, 2));
    let choice = choose(&problem(3), &few).unwrap();
    assert_ne!(choice.plan.schedule.kind(), ScheduleKind::Split);
    let error = plan.check(&problem(3), &few).unwrap_err();
    assert!(
        error.to_string().contains("a launch binds 8 buffers, the device 7 at most"),
        "{error}"
    );
    let enough = Device { max_bindings: 8, ..few };
    assert_eq!(choose(&problem(3), &enough).unwrap().plan.schedule.launches(), 2);
}

/// Units of one plane wait for words together, and Mesa's software adapter loses the iterations of
/// those that have none to wait for.
#[test]
fn the_cube_that_merges_fills_a_plane() {
    let long = problem(&[1 << 16], &[0]);
    let single = Access { vector: 1, in_flight: 1, ..Access::widest(&long, &Device::h200()) };
    let by = |units| Schedule::Split {
        cubes: 33,
        workers: units,
        outputs: 1,
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
    let device = Device::h200;
    let nonsense = [
        (Device { plane_size_max: 48, ..device() }, "plane_size_max = 48"),
        (Device { plane_size_min: 0, ..device() }, "plane_size_min = 0"),
        (Device { plane_size_min: 64, ..device() }, "at least plane_size_min"),
        (Device { load_bytes: usize::MAX, ..device() }, "load_bytes = 18446744073709551615"),
        (Device { max_vector: 3, ..device() }, "max_vector = 3"),
        (Device { max_units_per_cube: 0, ..device() }, "max_units_per_cube = 0"),
        (Device { max_units_per_cube: u32::MAX, ..device() }, "max_units_per_cube = 4294967295"),
        (Device { max_cube_count: [65535, 0, 1], ..device() }, "max_cube_count = 0"),
        (Device { multiprocessors: 0, ..device() }, "multiprocessors = 0"),
        (Device { units_per_multiprocessor: 0, ..device() }, "units_per_multiprocessor = 0"),
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
    (planes, memory, counts, grid, speed).prop_map(
        |(
            (a, b, operations, atomics),
            (shared, load, vector),
            (units, processors, resident, bindings),
            grid,
            (bandwidth, launch, latency),
        )| Device {
            plane_size_min: a.min(b),
            plane_size_max: a.max(b),
            plane_operations: operations,
            wide_atomics: atomics,
            shared_memory_bytes: shared,
            load_bytes: load,
            max_vector: vector,
            max_units_per_cube: units,
            multiprocessors: processors,
            units_per_multiprocessor: resident,
            max_bindings: bindings,
            max_cube_count: grid,
            bandwidth,
            launch_ns: launch,
            latency_ns: latency,
            ..Device::h200()
        },
    )
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
    let access = (any::<bool>(), count(), any::<bool>(), count(), count());
    let numbers = [number(), number(), number(), number(), number(), number()];
    let ways = (0..4, any::<bool>(), any::<bool>());
    (access, numbers, ways).prop_map(
        |(
            (along, vector, ragged, in_flight, batch),
            [a, b, c, d, e, f],
            (kind, by_plane, last_cube),
        )| {
            let direction = if along { Direction::Along } else { Direction::Across };
            let combine = if by_plane { Combine::Plane { lanes: f } } else { Combine::Shared };
            let merge = match last_cube {
                true => Merge::LastCube,
                false => Merge::SecondLaunch { workers: d, outputs: e },
            };
            let schedule = match kind {
                0 => Schedule::Unit { units: a },
                1 => Schedule::Plane { lanes: a, units: b },
                2 => Schedule::Cube { workers: a, outputs: b, combine },
                _ => Schedule::Split { cubes: c, workers: a, outputs: b, combine, merge },
            };
            Plan::new(Access { direction, vector, ragged, in_flight, batch }, schedule)
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
    ) {
        let operator =
            OperatorClass { accumulator_bytes: 4 * fields, fields, transcendental, ..SUM };
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
        let operator = OperatorClass { accumulator_bytes, ..SUM };
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
                let Access { in_flight, batch, .. } = plan.access;
                prop_assert!((1..=16).contains(&(in_flight * batch)), "{}", plan);
            }
            let _ = choose(&problem, device);
        }
        let _ = (plan.to_string(), plan.cubes(&problem));
        reduce_planner::cost::estimate_ns(&problem, &device, plan.access, plan.schedule);
    }
}
