//! Tuning as data: another tuning gives other plans, and nonsense is refused.

use reduce_planner::{
    Device, ElementCost, ElementType, InputSpec, Merge, OperatorClass, OutputSpec, Plan, Problem,
    Profile, Schedule, ScheduleKind, Tuning, choose, row_major_strides,
};

fn problem(operator: OperatorClass, shape: &[usize], axis: usize) -> Problem {
    let element = ElementType::F32;
    Problem::new(
        operator,
        &InputSpec { element, shape, strides: &row_major_strides(shape), alignment: 256 },
        Some(&[axis]),
        &OutputSpec { elements: &[element], strides: None },
    )
    .unwrap()
}

fn plan(problem: &Problem, change: impl FnOnce(&mut Tuning)) -> Plan {
    let mut device = Device::h200();
    // No plan is taken but those that the numbers give.
    device.tuning.search_margin_percent = 1 << 20;
    change(&mut device.tuning);
    choose(problem, &device).unwrap().plan
}

/// Each number decides what its name says.
#[test]
fn another_tuning_gives_another_plan() {
    let sum = OperatorClass::new("sum", 4);
    let all = problem(sum, &[1 << 28], 0);
    let cubes = |plan: Plan| plan.schedule.cubes_per_output();
    assert_eq!(cubes(plan(&all, |_| ())), 264);
    assert_eq!(cubes(plan(&all, |tuning| tuning.split_cubes_per_multiprocessor = 3)), 396);
    assert_eq!(cubes(plan(&all, |tuning| tuning.split_long_rounds = 100)), 2112);
    let two_launches = plan(&all, |tuning| tuning.published_bytes = 100);
    assert!(
        matches!(two_launches.schedule, Schedule::Split { merge: Merge::SecondLaunch { .. }, .. }),
        "{two_launches}"
    );

    let rows = problem(sum, &[2048, 32768], 1);
    assert_eq!(plan(&rows, |_| ()).schedule.units_per_cube(), 512);
    let small = plan(&rows, |tuning| tuning.light.cooperating_units_per_cube = 128);
    assert_eq!((small.schedule.kind(), small.schedule.units_per_cube()), (ScheduleKind::Cube, 128));

    // Each weight has its row, and transcendental operators have theirs.
    let variance = problem(OperatorClass::new("var", 20).fields(5), &[65536, 1024], 1);
    let fewer_loads = plan(&variance, |tuning| tuning.heavy.loads_per_lane = 16);
    assert_eq!(fewer_loads.schedule.units_per_output(), 16);
    let exponentials =
        OperatorClass::new("logsumexp", 8).fields(2).element_cost(ElementCost::Exponential);
    let columns = problem(exponentials, &[65536, 1024], 0);
    assert_eq!(plan(&columns, |_| ()).access.loads_in_flight, 2);
    let wider = plan(&columns, |tuning| tuning.transcendental.bytes_in_flight_across = 64);
    assert_eq!(wider.access.loads_in_flight, 4);
    let rows = problem(exponentials.blockwise(), &[65536, 1024], 1);
    let fewer_lanes = plan(&rows, |tuning| tuning.blockwise.loads_per_lane = 32);
    assert_eq!(fewer_lanes.schedule.units_per_output(), 8);
}

/// The default and a device without a tuning in its file have the numbers of the H200, and devices
/// of wgpu those that were measured through Vulkan.
#[test]
fn the_measured_numbers_are_the_default() {
    assert_eq!(Tuning::default(), Tuning::h200());
    let vulkan = Device::software_adapter().tuning;
    assert_eq!(vulkan, Tuning::vulkan());
    let mut others = vulkan;
    others.segments = Tuning::h200().segments;
    others.scan = Tuning::h200().scan;
    others.doubled_columns = Tuning::h200().doubled_columns;
    others.split_bytes_in_flight_along = Tuning::h200().split_bytes_in_flight_along;
    others.split_units_per_cube_along = Tuning::h200().split_units_per_cube_along;
    let of_many_fields = Tuning::h200().many_fields_units_per_cube_along;
    others.many_fields_units_per_cube_along = of_many_fields;
    assert_eq!(others, Tuning::h200());
    let mut file = serde_json::to_value(Device::h200()).unwrap();
    file.as_object_mut().unwrap().remove("tuning");
    assert_eq!(serde_json::from_value::<Device>(file).unwrap(), Device::h200());
    let text = serde_json::to_string(&Tuning::h200()).unwrap();
    assert_eq!(serde_json::from_str::<Tuning>(&text).unwrap(), Tuning::h200());
}

/// Each preset has a name of its own and makes sense.
#[test]
fn presets_are_found_by_name() {
    assert_eq!(Device::preset("h200"), Some(Device::h200()));
    assert_eq!(Device::preset("software_adapter"), Some(Device::software_adapter()));
    assert_eq!(Device::preset("h2000"), None);
    let names: Vec<&str> = Device::presets().collect();
    for (nth, name) in names.iter().enumerate() {
        assert!(!names[..nth].contains(name), "{name}");
        Device::preset(name).unwrap().check().unwrap();
    }
}

#[test]
fn a_profile_that_makes_no_sense_is_refused() {
    type Change = fn(&mut Profile);
    let nonsense: [(Change, &str); 7] = [
        (|profile| profile.lone_unit_percent = 0, "profile.lone_unit_percent = 0"),
        (|profile| profile.small_team_percent = 101, "profile.small_team_percent = 101"),
        (|profile| profile.overlap_tenths = 9, "profile.overlap_tenths = 9"),
        (|profile| profile.cache_percent = 0, "profile.cache_percent = 0"),
        (|profile| profile.registers.step = 0, "profile.registers.step = 0"),
        (|profile| profile.segments[7].bytes = 0, "profile.segments.bytes = 0"),
        (|profile| profile.segments[1].bytes = 4096, "must be less than in the entry"),
    ];
    for (change, message) in nonsense {
        let mut device = Device::h200();
        change(&mut device.profile);
        let error = device.check().unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn a_tuning_that_makes_no_sense_is_refused() {
    type Change = fn(&mut Tuning);
    let nonsense: [(Change, &str); 5] = [
        (|tuning| tuning.light.loads_per_lane = 0, "tuning.light.loads_per_lane = 0"),
        (|tuning| tuning.heavy.outputs_in_flight = 3, "tuning.heavy.outputs_in_flight = 3"),
        (
            |tuning| tuning.transcendental.independent_units_per_cube = 0,
            "tuning.transcendental.independent_units_per_cube = 0",
        ),
        (|tuning| tuning.across_units_per_cube = 96, "tuning.across_units_per_cube = 96"),
        (|tuning| tuning.across_resident_divisor = 0, "tuning.across_resident_divisor = 0"),
    ];
    for (change, message) in nonsense {
        let mut device = Device::h200();
        change(&mut device.tuning);
        let error = device.check().unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
        let sum = problem(OperatorClass::new("sum", 4), &[1000], 0);
        assert!(choose(&sum, &device).is_err());
    }
}
