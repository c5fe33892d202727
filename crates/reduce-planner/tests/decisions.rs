//! What the planner decides, asserted by equality. A change here is a change of behaviour, and
//! needs measurements in `numbers/`. Each case here is one that a rule was made for; `golden.rs`
//! compares all decisions of a large set with a file, and `plans.rs` tests plans whoever made them.

use reduce_planner::{
    Access, Candidate, Choice, Combine, Device, Direction, ElementCost, ElementType, InputSpec,
    Merge, OperatorClass, OutputSpec, Plan, Planned, Problem, Reason, Refusal, Schedule,
    ScheduleKind, SecondSpec, Tuning, choose, force, row_major_strides,
};

const SUM: OperatorClass = OperatorClass::new("sum", 4);

fn problem_of(element: ElementType, shape: &[usize], axes: &[usize]) -> Problem {
    Problem::new(
        SUM,
        &InputSpec { element, shape, strides: &row_major_strides(shape), alignment: 256 },
        Some(axes),
        &OutputSpec { elements: &[element], strides: None },
    )
    .unwrap()
}

fn problem(shape: &[usize], axes: &[usize]) -> Problem {
    problem_of(ElementType::F32, shape, axes)
}

fn along(vector: usize, peeled: bool) -> Access {
    let access = Access::new(Direction::Along).with_vector(vector).with_peeled(peeled);
    access.with_loads_in_flight((16 / vector).clamp(4, 16))
}

fn across(vector: usize, peeled: bool) -> Access {
    let access = Access::new(Direction::Across).with_vector(vector).with_peeled(peeled);
    access.with_loads_in_flight((32 / vector).min(16))
}

/// Several short outputs in flight, each with so many loads.
fn short(access: Access, loads: usize, outputs: usize) -> Access {
    access.with_loads_in_flight(loads).with_outputs_in_flight(outputs)
}

const PLANE: Combine = Combine::Plane { lanes: 32 };

fn unit(units_per_cube: u32) -> Schedule {
    Schedule::Unit { units_per_cube }
}

fn plane(lanes_per_output: u32, units_per_cube: u32) -> Schedule {
    Schedule::Plane { lanes_per_output, units_per_cube }
}

fn cube(units_per_output: u32, outputs_per_cube: u32, combine: Combine) -> Schedule {
    Schedule::Cube { units_per_output, outputs_per_cube, combine }
}

fn split(
    cubes_per_output: u32,
    units_per_output: u32,
    outputs_per_cube: u32,
    combine: Combine,
) -> Schedule {
    let merge = Merge::LastCube;
    Schedule::Split { cubes_per_output, units_per_output, outputs_per_cube, combine, merge }
}

/// The H200 without 64-bit atomics.
fn without_atomics() -> Device {
    let mut device = Device::h200();
    device.wide_atomics = false;
    device
}

#[test]
fn plans_on_the_h200() {
    let shared = Combine::Shared;
    let split_across = across(4, false).with_loads_in_flight(8);
    let decisions = [
        // Few outputs: split until every multiprocessor has two cubes, but no further than leaves
        // a block of loads for each unit.
        (problem(&[1 << 28], &[0]), along(4, false), split(264, 512, 1, PLANE)),
        // Of long rows, eight times as many, with more loads in flight.
        (
            problem(&[1 << 30], &[0]),
            along(4, false).with_loads_in_flight(8),
            split(2112, 512, 1, PLANE),
        ),
        (
            problem(&[5, 1 << 28], &[1]),
            along(4, false).with_loads_in_flight(8),
            split(422, 512, 1, PLANE),
        ),
        (problem(&[16, 1 << 22], &[1]), along(4, false), split(16, 512, 1, PLANE)),
        (problem(&[1 << 16], &[0]), along(4, false), split(8, 512, 1, PLANE)),
        // Rows: a cube each where they are long, a few lanes each where they are short, a unit each
        // where they are very short; several rows at a time where each has few loads.
        (problem(&[65536, 1024], &[1]), along(4, false), plane(32, 256)),
        (problem(&[8192, 8192], &[1]), along(4, false), cube(512, 1, PLANE)),
        // Three rounds of 256 units have fewer loads that do not exist than two of 512.
        (problem(&[10_000, 10_000], &[1]), along(4, false), cube(256, 1, PLANE)),
        (problem(&[2048, 32768], &[1]), along(4, false), cube(512, 1, PLANE)),
        (problem(&[4096, 50257], &[1]), along(4, true), cube(512, 1, PLANE)),
        (problem(&[128, 32768], &[1]), along(4, false), cube(512, 1, PLANE)),
        (problem(&[1 << 20, 32], &[1]), short(along(4, false), 2, 2), plane(4, 256)),
        (problem(&[1 << 20, 31], &[1]), short(along(1, false), 4, 4), plane(8, 256)),
        (problem(&[1 << 24, 8], &[1]), short(along(4, false), 2, 2), unit(256)),
        // Columns: units stand across them.
        (problem(&[8192, 8192], &[0]), across(4, false), cube(64, 8, shared)),
        (problem(&[65536, 1024], &[0]), split_across, split(8, 64, 8, shared)),
        (problem(&[1 << 22, 16], &[0]), split_across, split(132, 256, 4, shared)),
        (problem(&[256, 1 << 18], &[0]), across(4, false), cube(8, 32, shared)),
        (problem(&[64, 512, 1024], &[1]), across(4, false), cube(8, 32, shared)),
        // Columns whose rows begin inside lines of the cache: few cubes with wide segments.
        (problem(&[10_000, 10_000], &[0]), split_across, split(3, 8, 64, shared)),
        // Narrow kept dimensions: the lanes of a plane read on in the next row.
        (problem(&[65536, 64, 7], &[1]), across(1, false), plane(4, 256)),
        // Reduced groups around a kept one: one pass.
        (problem(&[64, 256, 56, 56], &[0, 2, 3]), along(4, false), cube(512, 1, PLANE)),
    ];
    for (problem, access, schedule) in decisions {
        let plan = choose(&problem, &rules_alone()).unwrap().plan;
        assert_eq!(plan, Plan::new(access, schedule), "{problem:?}");
    }
}

/// Short runs of a reduction are read with those of neighbouring outputs, which follow them: planes
/// have several outputs, so that they read two sectors at a time at least.
#[test]
fn short_runs_are_read_with_their_neighbours() {
    use ElementType::{BF16, F32};
    for (element, shape, axes) in [
        (F32, &[334, 4096, 23, 8][..], &[0, 3]),
        (F32, &[512, 1000, 64, 8], &[0, 3]),
        (F32, &[100_000, 64, 8], &[0, 2]),
        (BF16, &[1 << 21, 22, 8], &[0, 2]),
        (BF16, &[64, 1024, 49, 16], &[0, 3]),
    ] {
        let plan = choose(&problem_of(element, shape, axes), &Device::h200()).unwrap().plan;
        let outputs = (32 / plan.schedule.units_per_output()).max(1);
        let run = shape[shape.len() - 1] * element.bytes();
        assert!(outputs as usize * run >= 64, "{shape:?}: {plan}");
    }
}

/// Through SPIR-V, cubes that share rows have more in flight: more loads, or more units.
#[test]
fn splits_through_vulkan_have_more_in_flight() {
    let mut device = rules_alone();
    device.tuning = Tuning::vulkan();
    device.tuning.search_margin_percent = rules_alone().tuning.search_margin_percent;
    let plan = |problem: &Problem| choose(problem, &device).unwrap().plan;
    let sums = Plan::new(along(4, false).with_loads_in_flight(8), split(264, 512, 1, PLANE));
    assert_eq!(plan(&problem(&[1 << 26], &[0])), sums);
    let class = OperatorClass::new("var", 20).fields(5).blockwise();
    let variances = plan_in(ElementType::F32, class, &[1 << 26], 0);
    assert_eq!(variances.schedule.units_per_cube(), 256);
    let variances = plan(&problem_in(ElementType::F32, class, &[1 << 26], 0));
    assert_eq!(variances.schedule.units_per_cube(), 512);
    // Rows that no cubes share are read as through CUDA.
    let rows = problem(&[8192, 8192], &[1]);
    assert_eq!(plan(&rows), Plan::new(along(4, false), cube(512, 1, PLANE)));
}

/// An H200 for which no plan is taken but those of the rules.
fn rules_alone() -> Device {
    let mut device = Device::h200();
    device.tuning.search_margin_percent = 1 << 20;
    device
}

/// The plan for an operator over one axis of a contiguous tensor of f32 on an H200.
fn plan_of(class: OperatorClass, shape: &[usize], axis: usize) -> Plan {
    plan_in(ElementType::F32, class, shape, axis)
}

/// The same for another type of element.
fn plan_in(element: ElementType, class: OperatorClass, shape: &[usize], axis: usize) -> Plan {
    choose(&problem_in(element, class, shape, axis), &rules_alone()).unwrap().plan
}

fn problem_in(element: ElementType, class: OperatorClass, shape: &[usize], axis: usize) -> Problem {
    let problem = Problem::new(
        class,
        &InputSpec { element, shape, strides: &row_major_strides(shape), alignment: 256 },
        Some(&[axis]),
        &OutputSpec { elements: &[element], strides: None },
    );
    problem.unwrap()
}

/// Rows that start off a vector's boundary are read in aligned vectors where cubes can realign
/// them: a cube for a whole row if it is short, otherwise for as many outputs as share few memory
/// sectors. Units and planes cannot. Where a reduction is short, cubes would take longer to start
/// and to end than a unit for each output takes.
#[test]
fn cubes_realign_rows() {
    let shared = Combine::Shared;
    let realigned = across(4, false).with_realigned(true);
    let split_access = realigned.with_loads_in_flight(8);
    let decisions = [
        (problem(&[65536, 1023], &[0]), split_access, split(29, 16, 32, shared)),
        (problem(&[4096, 50257], &[0]), realigned, cube(8, 32, shared)),
        (problem(&[1 << 20, 61], &[0]), split_access, split(132, 64, 16, shared)),
        (problem(&[1 << 22, 9], &[0]), split_access, split(132, 256, 4, shared)),
        (problem(&[16644, 64, 63], &[1]), across(1, false), unit(256)),
        // Half of the units that share a window would have no column of their own.
        (problem(&[1 << 20, 63], &[0]), across(1, false), split(132, 16, 64, shared)),
    ];
    for (problem, access, schedule) in decisions {
        let plan = choose(&problem, &rules_alone()).unwrap().plan;
        assert_eq!(plan, Plan::new(access, schedule), "{problem:?}");
    }
    let odd = problem(&[65536, 1023], &[0]);
    // Eight cubes of 128 outputs would leave one.
    let blocks = realigned.realigned_blocks(&odd, 32);
    assert_eq!((blocks.per_row, blocks.outputs), (9, 114));
    for kind in [ScheduleKind::Unit, ScheduleKind::Split] {
        let plan = force(kind, &odd, &rules_alone()).unwrap();
        assert_eq!(plan.access.realigned, kind == ScheduleKind::Split, "{plan}");
    }
    // Nothing to gain: rows start at vectors.
    for axis in [0, 1] {
        assert_eq!(Access::realigned(&problem(&[65536, 1024], &[axis]), &rules_alone()), None);
    }
    // Large accumulators take longer to move to their outputs than wide vectors save, but where
    // elements are small.
    let argmax = OperatorClass::new("argmax", 8).fields(2);
    assert!(!plan_of(argmax, &[65536, 1023], 0).access.realigned);
    assert!(plan_in(ElementType::BF16, argmax, &[65536, 1023], 0).access.realigned);
}

/// The accumulators of large cubes may need too much memory for the last cube to merge them.
/// Smaller cubes save a launch.
#[test]
fn one_launch_goes_before_large_cubes() {
    let variance = OperatorClass::new("var", 40).fields(5);
    let plan = plan_in(ElementType::F64, variance, &[1 << 21, 32], 0);
    assert_eq!(plan.schedule, split(264, 16, 16, Combine::Shared));
    assert_eq!(plan_of(SUM, &[1 << 21, 32], 0).schedule, split(132, 128, 8, Combine::Shared));
}

/// Accumulators of several fields leave units fewer registers: smaller cubes, fewer components of a
/// load across outputs, and more elements for each lane before lanes merge.
#[test]
fn heavy_accumulators_get_smaller_teams() {
    let variance = OperatorClass::new("var", 20).fields(5);
    let plan = |shape: &[usize], axis: usize| plan_of(variance, shape, axis);
    let rows = plan(&[65536, 1024], 1);
    assert_eq!(rows.schedule, plane(8, 128));
    let columns = plan(&[65536, 1024], 0);
    assert_eq!((columns.access.vector, columns.schedule.units_per_cube()), (2, 256));
}

/// Accumulators of many fields: a long row has no more units than fill the device together with
/// those of other rows, and narrow columns have loads of as many bytes as wide ones.
#[test]
fn many_fields_are_merged_by_few_units() {
    let var = OperatorClass::new("var", 20).fields(5).blockwise();
    let units = |rows| plan_of(var, &[rows, 50_257], 1).schedule.units_per_output();
    assert_eq!([1024, 4096, 8192].map(units), [128, 32, 32]);
    let columns = |element| plan_in(element, var, &[8192, 8192], 0).access;
    assert_eq!((columns(ElementType::F32).vector, columns(ElementType::BF16).vector), (2, 4));
}

/// A unit that merges the partials of a split reads all fields of an accumulator together.
#[test]
fn fields_of_partials_are_read_together() {
    let (device, rows) = (Device::h200(), [248_007, 751]);
    let norm = OperatorClass::new("norm_l2", 12).fields(3).blockwise().in_passes(8);
    let columns = |class| problem_in(ElementType::BF16, class, &rows, 0);
    let (norm, sum) = (columns(norm), columns(SUM));
    let chosen = choose(&norm, &device).unwrap().plan;
    assert_eq!(chosen.schedule, split(44, 8, 64, Combine::Shared));
    let merging = |problem: &Problem| chosen.estimate(problem, &device).merge_ns;
    assert_eq!(merging(&norm), merging(&sum));
}

/// Units wait for many fields at the end of each round, so they have fewer rounds.
#[test]
fn many_fields_have_few_rounds() {
    let of = |bytes: usize, fields: usize| {
        let class = OperatorClass::new("any", bytes).fields(fields).blockwise();
        let problem = problem_in(ElementType::F16, class, &[46_148_585], 0);
        choose(&problem, &Device::h200()).unwrap()
    };
    assert_eq!(of(20, 5).plan.access.loads_in_flight, 8);
    let rounds = |choice: &Choice| choice.estimate.rounds;
    assert!(rounds(&of(20, 5)) < rounds(&of(12, 3)));
}

/// Columns of many fields whose rows begin inside lines of the cache are read in wider vectors by
/// as many cubes as reside together, if that is several for each output. Wide ones leave no place
/// for two, and narrow ones take few segments of each row.
#[test]
fn many_fields_share_fewer_lines_in_wider_vectors() {
    let var = OperatorClass::new("var", 20).fields(5).blockwise();
    let access = across(4, false).with_loads_in_flight(8);
    for (rows, columns, cubes) in [(20_000, 5000, 3), (30_000, 3000, 5), (12_000, 6000, 2)] {
        let plan = plan_of(var, &[rows, columns], 0);
        assert_eq!(plan, Plan::new(access, split(cubes, 16, 16, Combine::Shared)));
    }
    for (rows, columns) in [(8000, 12_000), (100_000, 1000), (65_536, 1024)] {
        assert_eq!(plan_of(var, &[rows, columns], 0).access.vector, 2, "{rows} x {columns}");
    }
    // More columns have segments of four times the width, which leave place for three cubes again.
    let plan = plan_of(var, &[10_000, 10_000], 0);
    assert_eq!(plan, Plan::new(access, split(3, 8, 32, Combine::Shared)));
    let argmax = OperatorClass::new("argmax", 8).fields(2).blockwise();
    let plan = plan_of(argmax, &[10_000, 10_000], 0);
    assert_eq!(plan.schedule.cubes_per_output(), 3, "{plan}");
}

/// No plan that is compared has more units for an output than there are loads: half of the units
/// would be idle, and estimates would take their loads for others side by side.
#[test]
fn no_units_are_idle() {
    for (element, shape, axis) in [
        (ElementType::F16, &[1 << 20, 2, 2][..], 1),
        (ElementType::F32, &[1 << 18, 3, 4], 1),
        (ElementType::F32, &[1 << 20, 8], 1),
    ] {
        let problem = problem_of(element, shape, &[axis]);
        for Candidate { plan, .. } in problem.candidates(&Device::h200()).unwrap() {
            let loads = plan.access.loads_per_output(&problem).next_power_of_two();
            assert!(u64::from(plan.schedule.units_per_output()) <= loads, "{shape:?}: {plan}");
        }
    }
}

/// The units of a plane execute the instructions of all narrow single elements in flight, whether
/// they exist or not: short rows and columns have few in flight.
#[test]
fn short_rows_have_few_places() {
    let flag = OperatorClass::new("any_non_finite", 4).blockwise();
    let in_flight = |shape: &[usize], axis| {
        let problem = problem_in(ElementType::BF16, flag, shape, axis);
        let plan = choose(&problem, &Device::h200()).unwrap().plan;
        assert_eq!((plan.schedule.units_per_output(), plan.access.vector), (1, 1), "{plan}");
        plan.access.loads_in_flight
    };
    assert_eq!(in_flight(&[37_044_099, 11], 1), 11);
    assert_eq!(in_flight(&[364 * 256, 9, 119], 1), 8);
}

/// Along rows, a unit has up to eight single elements of an output in flight, and up to sixteen
/// narrow ones, as many as make full rounds. So it has eight across outputs of narrow elements with
/// many fields, of which vectors have twice as many.
#[test]
fn single_elements_leave_registers() {
    let many = OperatorClass::new("mean_var", 20).fields(5);
    for (element, class, shape, axis, loads) in [
        (ElementType::BF16, many.blockwise(), &[158, 19_082, 17][..], 2, 9),
        (ElementType::F16, SUM, &[9_000_001, 13], 1, 13),
        (ElementType::F32, SUM, &[9_000_001, 13], 1, 7),
        (ElementType::F32, SUM, &[9_000_001, 5], 1, 5),
        (ElementType::BF16, many, &[17, 194_763, 7], 0, 8),
    ] {
        let plan = plan_in(element, class, shape, axis);
        let access = plan.access;
        assert_eq!((access.vector, access.loads_in_flight), (1, loads), "{shape:?}: {plan}");
    }
    let wide = plan_in(ElementType::BF16, many, &[8192, 8192], 0);
    assert_eq!((wide.access.vector, wide.access.loads_in_flight), (4, 16), "{wide}");
}

/// Of two narrow inputs, rows have as many loads in flight as of one, if the accumulator has one
/// field. Of wide inputs they have half as many.
#[test]
fn narrow_pairs_have_all_loads() {
    let plan = |element: ElementType, fields: usize| {
        let (shape, strides) = ([8192, 8192], [8192, 1]);
        let input = InputSpec { element, shape: &shape, strides: &strides, alignment: 256 };
        let second = SecondSpec { element, strides: &strides, alignment: 256 };
        let class = OperatorClass::new("pairs", 4 * fields).fields(fields);
        let results = OutputSpec { elements: &[ElementType::F32], strides: None };
        let axes = Some(&[1][..]);
        let problem = Problem::with_inputs(class, &input, Some(&second), None, axes, &results);
        choose(&problem.unwrap(), &rules_alone()).unwrap().plan
    };
    assert_eq!(plan(ElementType::BF16, 1).access.loads_in_flight, 4);
    assert_eq!(plan(ElementType::F32, 1).access.loads_in_flight, 2);
}

/// Pairs across outputs have cubes as large as those of one sum, and twice the loads of narrow
/// elements where these are few.
#[test]
fn pairs_across_have_large_cubes() {
    let planned = |element: ElementType, shape: &[usize], axis: usize, fields: usize| {
        let strides = row_major_strides(shape);
        let input = InputSpec { element, shape, strides: &strides, alignment: 256 };
        let second = SecondSpec { element, strides: &strides, alignment: 256 };
        let class = OperatorClass::new("pairs", 4 * fields).fields(fields);
        let results = OutputSpec { elements: &[ElementType::F32], strides: None };
        let axes = [axis];
        let problem =
            Problem::with_inputs(class, &input, Some(&second), None, Some(&axes), &results);
        choose(&problem.unwrap(), &rules_alone()).unwrap().plan
    };
    let plan = |element, shape: [usize; 2], fields| planned(element, &shape, 0, fields);
    let (f32, bf16, square) = (ElementType::F32, ElementType::BF16, [8192, 8192]);
    for (element, shape, fields, loads, schedule) in [
        (f32, square, 1, 4, cube(64, 8, Combine::Shared)),
        (f32, square, 2, 4, cube(64, 8, Combine::Shared)),
        (f32, square, 3, 2, cube(64, 8, Combine::Shared)),
        (f32, square, 4, 4, cube(32, 16, Combine::Shared)),
        (bf16, square, 1, 8, cube(64, 8, Combine::Shared)),
        (bf16, square, 2, 16, cube(32, 16, Combine::Shared)),
        (bf16, square, 3, 8, cube(32, 16, Combine::Shared)),
    ] {
        let plan = plan(element, shape, fields);
        assert_eq!(plan.access.loads_in_flight, loads, "{element} {fields}: {plan}");
        assert_eq!(plan.schedule, schedule, "{element} {fields}: {plan}");
    }
    let split = plan(f32, [65_536, 1024], 2).schedule;
    let units = (split.units_per_output(), split.outputs_per_cube(), split.cubes_per_output());
    assert_eq!(units, (64, 8, 8));
    // Cubes are many, or share an output.
    assert_eq!(planned(bf16, &[64, 1024, 2048], 1, 1).access.loads_in_flight, 4);
    assert_eq!(plan(bf16, [65_536, 1024], 1).access.loads_in_flight, 4);
}

/// Operators with two passes take them where a few units hold a row: short rows by a few lanes, and
/// by one unit where even those would idle; longer ones by planes and cubes with several loads in
/// flight. Nothing else holds its elements.
#[test]
fn rows_that_units_hold_are_taken_in_two_passes() {
    let one_pass = OperatorClass::new("var", 20).fields(5).blockwise();
    let var = one_pass.in_passes(16);
    let held = |vector: usize, loads: usize, outputs: usize| {
        let access = Access::new(Direction::Along).with_vector(vector).with_in_passes(true);
        short(access, loads, outputs)
    };
    for (shape, access, schedule) in [
        ([5_079_670, 32], held(4, 2, 4), plane(4, 256)),
        ([4_000_000, 48], held(4, 3, 2), plane(4, 256)),
        ([262_144, 256], held(4, 8, 1), plane(8, 256)),
        ([300_000, 777], held(4, 13, 1).with_peeled(true), plane(16, 256)),
        ([65_536, 1024], held(4, 8, 1), plane(32, 256)),
        ([8192, 8192], held(4, 8, 1), cube(256, 1, PLANE)),
    ] {
        let plan = plan_of(var, &shape, 1);
        assert_eq!((plan.access, plan.schedule), (access, schedule), "{shape:?}");
        assert!(!plan_of(one_pass, &shape, 1).access.in_passes, "{shape:?}");
    }
    let of_units = OperatorClass::new("norm_l2", 12).fields(3).blockwise().in_passes(8);
    let plan = plan_of(of_units, &[9_000_001, 5], 1);
    assert_eq!((plan.access, plan.schedule), (held(1, 5, 2), unit(256)));
    for (shape, axis) in [([4096, 50_257], 1), ([65_536, 1024], 0), ([1, 1 << 28], 1)] {
        assert!(!plan_of(var, &shape, axis).access.in_passes, "{shape:?} axis {axis}");
    }
}

/// A norm scales each block of loads in one pass, so short rows of narrow elements are held for
/// two.
#[test]
fn narrow_norms_of_short_rows_are_held() {
    let norm = OperatorClass::new("norm_l2", 12).fields(3).blockwise().in_passes(8);
    for (element, shape, schedule) in [
        (ElementType::BF16, [360_168, 256], plane(8, 256)),
        (ElementType::F16, [4_456_500, 16], unit(256)),
    ] {
        let plan = plan_in(element, norm, &shape, 1);
        assert!(plan.access.in_passes, "{shape:?}: {plan}");
        assert_eq!(plan.schedule, schedule, "{shape:?}");
    }
}

/// Along the reduction, a unit that takes blocks has one accumulator for all components of its
/// loads. It has registers for more loads, and lanes merge fewer accumulators.
#[test]
fn blocks_leave_units_more_registers() {
    let blockwise = OperatorClass::new("var", 20).fields(5).blockwise();
    let along = |class| plan_of(class, &[65536, 1024], 1);
    assert_eq!(along(blockwise).schedule, plane(16, 128));
    assert_eq!(along(blockwise).access.loads_in_flight, 8);
    let transcendental =
        OperatorClass::new("logsumexp", 8).fields(2).element_cost(ElementCost::Exponential);
    let one_by_one = problem_in(ElementType::F32, transcendental, &[65536, 1024], 1);
    let lanes = force(ScheduleKind::Plane, &one_by_one, &Device::h200()).unwrap();
    assert_eq!(lanes.access.loads_in_flight, 2);
    assert_eq!(along(transcendental.blockwise()).access.loads_in_flight, 8);
    let narrow = plan_in(ElementType::BF16, transcendental.blockwise(), &[65536, 1024], 1);
    assert_eq!(narrow.access.loads_in_flight, 2);
    // Across outputs, each component has an accumulator, blocks or not.
    let across = |class| plan_of(class, &[65536, 1024], 0);
    let one_by_one = OperatorClass::new("var", 20).fields(5);
    assert_eq!(across(blockwise), across(one_by_one));
}

/// A power takes longer than an exponential, whatever the operator is called. The line of a problem
/// does not tell them apart.
#[test]
fn powers_cost_more_than_exponentials() {
    let with = |cost| OperatorClass::new("mine", 8).fields(2).element_cost(cost).blockwise();
    let problem = |cost| problem_in(ElementType::F16, with(cost), &[4096, 65536], 1);
    let issued = |cost| choose(&problem(cost), &Device::h200()).unwrap().estimate.issue_ns;
    assert!(issued(ElementCost::Power) > 1.5 * issued(ElementCost::Exponential));
    assert!(issued(ElementCost::Exponential) > 1.5 * issued(ElementCost::Plain));
    let line = |cost| problem(cost).to_string();
    assert_eq!(line(ElementCost::Power), line(ElementCost::Exponential));
    assert_ne!(line(ElementCost::Power), line(ElementCost::Plain));
}

/// Without 64-bit atomics, a second launch merges.
#[test]
fn splits_merge_in_a_second_launch_by_need() {
    let without = without_atomics();
    let plan = choose(&problem(&[1 << 28], &[0]), &without).unwrap().plan;
    let Schedule::Split { merge, .. } = plan.schedule else { panic!("{plan}") };
    assert_eq!(merge, Merge::SecondLaunch { units_per_output: 256, outputs_per_cube: 1 });
    assert_eq!(plan.schedule.launches(), 2);
    let with = choose(&problem(&[1 << 28], &[0]), &rules_alone()).unwrap().plan;
    assert_eq!(with.schedule.launches(), 1);
    let error = with.check(&problem(&[1 << 28], &[0]), &without).unwrap_err();
    assert!(error.to_string().contains("64-bit atomics"), "{error}");
}

/// A broadcast tensor has few bytes but all its loads: it is shared out like any other.
#[test]
fn broadcast_tensors_fill_the_device() {
    let element = ElementType::F32;
    let input =
        InputSpec { element, shape: &[3, 1 << 20, 1 << 12], strides: &[1, 0, 0], alignment: 256 };
    let output = OutputSpec { elements: &[element], strides: None };
    let problem = Problem::new(SUM, &input, Some(&[1, 2]), &output).unwrap();
    let plan = choose(&problem, &rules_alone()).unwrap().plan;
    assert_eq!(plan.schedule.kind(), ScheduleKind::Split);
    assert!(plan.cubes(&problem) >= 256, "{plan}");
}

/// Without plane operations the plane schedule refuses, and cubes combine in shared memory.
#[test]
fn plans_on_the_software_adapter() {
    let choice = choose(&problem(&[100, 1000], &[1]), &Device::software_adapter()).unwrap();
    let refusal = Refusal::new(ScheduleKind::Plane, Reason::NoPlaneOperations);
    assert!(choice.refused.contains(&refusal), "{:?}", choice.refused);
    for kind in [ScheduleKind::Cube, ScheduleKind::Split] {
        let plan = force(kind, &problem(&[2, 100_000], &[1]), &Device::software_adapter()).unwrap();
        assert_eq!(plan.schedule.combine(), Some(Combine::Shared));
    }
}

/// Every schedule is either taken or has a reason, in a fixed order.
#[test]
fn every_schedule_not_taken_has_its_reason() {
    let choice = choose(&problem(&[1 << 24, 8], &[1]), &rules_alone()).unwrap();
    let kinds: Vec<ScheduleKind> = choice.refused.iter().map(|refusal| refusal.kind).collect();
    assert_eq!(kinds, [ScheduleKind::Plane, ScheduleKind::Cube, ScheduleKind::Split]);
    assert!(matches!(choice.refused[0].reason, Reason::Slower { .. }));
    let split = &choice.refused[2];
    assert!(matches!(split.reason, Reason::OutputsFillDevice { .. }), "{split}");
    let choice = choose(&problem(&[3], &[0]), &rules_alone()).unwrap();
    let text = choice.refused.last().unwrap().to_string();
    assert!(text.starts_with("split: too short to split: 3 loads per output"), "{text}");
    let choice = choose(&problem(&[8192, 4097], &[0]), &rules_alone()).unwrap();
    let plane = choice.refused.iter().find(|refusal| refusal.kind == ScheduleKind::Plane);
    assert_eq!(plane.unwrap().reason, Reason::OutputsFillPlane { adjacent: 32, plane: 32 });
}

/// The vector is the widest that alignment allows; odd rows are no reason for single elements.
#[test]
fn vectors_are_as_wide_as_alignment_allows() {
    let h200 = Device::h200();
    let widest = |problem: &Problem| Access::widest(problem, &h200);
    use ElementType::{F16, F32, F64};
    assert_eq!(widest(&problem_of(F16, &[64, 1024], &[1])), along(8, false));
    assert_eq!(widest(&problem_of(F32, &[64, 1024], &[1])), along(4, false));
    let f64_rows = widest(&problem_of(F64, &[64, 1024], &[1]));
    assert_eq!(f64_rows, along(2, false).with_loads_in_flight(4));
    // Rows of no whole number of vectors: peeled if long, shorter vectors if short.
    assert_eq!(widest(&problem_of(F16, &[64, 1023], &[1])), along(8, true));
    assert_eq!(widest(&problem(&[64, 30], &[1])), along(2, false));
    assert_eq!(widest(&problem(&[64, 7], &[1])), along(1, false));
    // Across outputs, rows must start on a boundary. Padded ones do, and their tail is peeled.
    assert_eq!(widest(&problem(&[64, 4097], &[0])), across(1, false));
    let padded = Problem::new(
        SUM,
        &InputSpec { element: F32, shape: &[64, 50], strides: &[64, 1], alignment: 256 },
        Some(&[0]),
        &OutputSpec { elements: &[F32], strides: None },
    );
    assert_eq!(widest(&padded.unwrap()), across(4, true));
    // An address aligned to 4 bytes only, and an innermost dimension with gaps.
    let spec = InputSpec { element: F32, shape: &[64, 1024], strides: &[1024, 1], alignment: 4 };
    let output = OutputSpec { elements: &[F32], strides: None };
    let offset = Problem::new(SUM, &spec, Some(&[1]), &output).unwrap();
    assert_eq!(widest(&offset), along(1, false));
    let gaps = InputSpec { strides: &[2048, 2], alignment: 256, ..spec };
    let gaps = Problem::new(SUM, &gaps, Some(&[1]), &output).unwrap();
    assert_eq!(widest(&gaps), along(1, false));
}

/// Halving the multiprocessors, or doubling a length, never makes the estimate jump: neighbouring
/// shapes get neighbouring times.
#[test]
fn estimates_grow_without_cliffs() {
    for axis in [0, 1] {
        let mut last: Option<f64> = None;
        for log in 1..27 {
            let shape = [1 << log, 1 << (27 - log)];
            let expected = choose(&problem(&shape, &[axis]), &rules_alone()).unwrap();
            let time = expected.expected_microseconds();
            let ratio = last.map_or(1.0, |last| time / last);
            assert!((0.2..5.0).contains(&ratio), "{shape:?} axis {axis}: {time} after {last:?}");
            last = Some(time);
        }
    }
}

/// Short blocks of rows that follow each other are read as a whole, so a unit has each pair of
/// columns, or two lanes have it.
#[test]
fn short_blocks_have_few_lanes() {
    let means = OperatorClass::new("mean_var", 20).fields(5).blockwise().in_passes(16);
    let plan = plan_in(ElementType::F32, means, &[16_287, 528, 3, 4], 2);
    assert_eq!(plan.schedule, unit(128), "{plan}");
    let norm = OperatorClass::new("norm_l2", 12).fields(3).blockwise().in_passes(8);
    let (shape, strides) = (&[4, 524_288, 6, 2], &row_major_strides(&[4, 524_288, 6, 2]));
    let input = InputSpec { element: ElementType::F16, shape, strides, alignment: 256 };
    let output = OutputSpec { elements: &[ElementType::F16], strides: None };
    let problem = Problem::new(norm, &input, Some(&[0, 2]), &output).unwrap();
    let plan = choose(&problem, &Device::h200()).unwrap().plan;
    assert_eq!(plan.schedule.units_per_output(), 2, "{plan}");
}
