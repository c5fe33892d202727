//! Plans as data: saved, read, checked, refused.

use reduce_planner::{
    Device, ElementType, InputSpec, OperatorClass, OutputSpec, Plan, PlanError, Problem, Schedule,
    ScheduleKind, choose, force, row_major_strides,
};

const SUM: OperatorClass =
    OperatorClass { name: "sum", accumulator_bytes: 4, positional: false, defined_on_empty: true };

fn problem(shape: &[usize], axes: &[usize]) -> Problem {
    let element = ElementType::F32;
    let strides = row_major_strides(shape);
    Problem::new(
        SUM,
        &InputSpec { element, shape, strides: &strides, alignment: 256 },
        Some(axes),
        &OutputSpec { element, strides: None },
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
        "split: 396 cubes per output, 512 units in each, 1 per cube, plane operations over 32 \
         lanes; then 256 units merge each of 1 outputs per cube; vectors of 4 along the reduction, \
         4 loads in flight"
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
    assert!(matches!(error, PlanError::IndexTooNarrow { span, .. } if span == 1 << 33), "{error}");
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
