//! Applied reductions: their canonical form, what the planner decides, and what a plan may not do.

use std::collections::HashSet;

use reduce_planner::{
    Access, AppliedKind, AppliedPlan, AppliedProblem, AppliedReason, AppliedSpec, ApplyLaunch,
    Candidate, Choice, Combine, Device, Direction, ElementCost, ElementType, Illegal, InputSpec,
    Numerics, OperatorClass, OutputSpec, Plan, PlanError, Planned, Problem, ProblemError, Role,
    Schedule, SecondSpec, choose_applied, force_applied, row_major_strides,
};

const SOFTMAX: OperatorClass = OperatorClass::new("softmax_sums", 8)
    .fields(2)
    .element_cost(ElementCost::Exponential)
    .blockwise();

fn stated(
    element: ElementType,
    shape: &[usize],
    axes: &[usize],
    companions: &[&[usize]],
) -> (AppliedProblem, Problem) {
    let strides = row_major_strides(shape);
    let input = InputSpec { element, shape, strides: &strides, alignment: 256 };
    let applied = AppliedSpec { element, strides: None, second: None, companions, further: &[] };
    let results = OutputSpec { elements: &[ElementType::F32; 2], strides: None };
    (
        AppliedProblem::new(SOFTMAX, &input, Some(axes), &applied).unwrap(),
        Problem::new(SOFTMAX, &input, Some(axes), &results).unwrap(),
    )
}

fn plan(element: ElementType, shape: &[usize], axes: &[usize]) -> AppliedPlan {
    let (applied, reduction) = stated(element, shape, axes, &[]);
    let choice = choose_applied(&applied, &reduction, &Device::h200()).unwrap();
    assert_eq!(
        choice.refused.len(),
        AppliedKind::ALL.len() - 1,
        "a reason against each other plan"
    );
    choice.plan
}

fn along(vector: usize, loads: usize) -> Access {
    Access::new(Direction::Along).with_vector(vector).with_loads_in_flight(loads)
}

fn held(access: Access, schedule: Schedule) -> AppliedPlan {
    AppliedPlan::Held { plan: Plan::new(access, schedule), in_shared: 0, cubes_per_output: 1 }
}

fn cube(units_per_output: u32) -> Schedule {
    let combine = Combine::Plane { lanes: 32 };
    Schedule::Cube { units_per_output, outputs_per_cube: 1, combine }
}

/// A cube that reads two inputs has few units with many loads, so that others reside beside it. A
/// second input that all rows share is not held and counts once, but not where one row must be as
/// all others.
#[test]
fn pairs_leave_room_for_other_cubes() {
    const SCALES: OperatorClass = OperatorClass::new("scales", 8).fields(2);
    let planned = |rows: usize, len: usize, of_second: &[usize], numerics: Numerics| {
        let (element, shape, strides) = (ElementType::BF16, [rows, len], [len, 1]);
        let input = InputSpec { element, shape: &shape, strides: &strides, alignment: 256 };
        let second = SecondSpec { element, strides: of_second, alignment: 256 };
        let (second, companions) = (Some(&second), [&[1, 0][..], of_second]);
        let applied =
            AppliedSpec { element, strides: None, second, companions: &companions, further: &[] };
        let applied = AppliedProblem::new(SCALES, &input, Some(&[1]), &applied).unwrap();
        let results = OutputSpec { elements: &[ElementType::F32; 2], strides: None };
        let axes = Some(&[1][..]);
        let reduction = Problem::with_inputs(SCALES, &input, second, None, axes, &results).unwrap();
        let (applied, reduction) =
            (applied.with_numerics(numerics), reduction.with_numerics(numerics));
        let choice = choose_applied(&applied, &reduction, &Device::h200()).unwrap();
        (choice.plan, applied)
    };
    let any = Numerics::Deterministic;
    for second in [[14_336, 1], [0, 1]] {
        let (plan, _) = planned(4096, 14_336, &second, any);
        assert_eq!(plan, held(along(8, 7), cube(256)), "{second:?}");
    }
    assert_eq!(planned(8192, 8192, &[8192, 1], any).0, held(along(8, 4), cube(256)));
    // Longer than such cubes hold.
    let (AppliedPlan::Held { plan, .. }, _) = planned(4096, 24_576, &[24_576, 1], any) else {
        panic!("rows of 48 KB are held");
    };
    assert_eq!(plan.schedule, cube(1024));

    let elements = 4096 * 14_336;
    let (_, own) = planned(4096, 14_336, &[14_336, 1], any);
    assert!(!own.second_is_shared());
    assert_eq!(own.bytes(), 6 * elements);
    let (_, shared) = planned(4096, 14_336, &[0, 1], any);
    assert!(shared.second_is_shared());
    assert_eq!(shared.bytes(), 4 * elements + 2 * 14_336);
    assert!(!planned(4096, 14_336, &[0, 1], Numerics::BatchInvariant).1.second_is_shared());
    assert!(!planned(1, 14_336, &[0, 1], any).1.second_is_shared());
}

/// Rows are held by as many units as leave each 64 bytes, in planes where they are short.
#[test]
fn rows_are_held() {
    use ElementType::{BF16, F32};
    assert_eq!(plan(F32, &[8192, 8192], &[1]), held(along(4, 4), cube(512)));
    assert_eq!(plan(BF16, &[8192, 8192], &[1]), held(along(8, 4), cube(256)));
    assert_eq!(plan(F32, &[65536, 1024], &[1]), held(along(4, 4), cube(64)));
    let plane = |lanes, units| Schedule::Plane { lanes_per_output: lanes, units_per_cube: units };
    assert_eq!(plan(BF16, &[65536, 1024], &[1]), held(along(8, 4), plane(32, 64)));
    assert_eq!(plan(F32, &[262_144, 256], &[1]), held(along(4, 2), plane(32, 64)));
    assert_eq!(plan(F32, &[1 << 20, 64], &[1]), held(along(4, 2), plane(8, 64)));
    // A cube of so many rows would read less than 2 KiB.
    assert_eq!(plan(F32, &[1 << 22, 8], &[1]), held(along(4, 1), plane(2, 128)));
}

/// Cubes and planes whose results are narrower than their elements have fewer units with more
/// loads, and beside weights that all rows share still fewer. Two inputs that are held are as
/// before.
#[test]
fn narrow_results_have_few_units() {
    const SCALES: OperatorClass = OperatorClass::new("scales", 4);
    let planned = |rows: usize, len: usize, of_second: Option<&[usize]>, narrow: bool| {
        let (element, shape, strides) = (ElementType::BF16, [rows, len], [len, 1]);
        let input = InputSpec { element, shape: &shape, strides: &strides, alignment: 256 };
        let second = of_second.map(|strides| SecondSpec { element, strides, alignment: 256 });
        let second = second.as_ref();
        let element = if narrow { ElementType::I8 } else { element };
        let applied = AppliedSpec { element, strides: None, second, companions: &[], further: &[] };
        let applied = AppliedProblem::new(SCALES, &input, Some(&[1]), &applied).unwrap();
        let results = OutputSpec { elements: &[ElementType::F32], strides: None };
        let axes = Some(&[1][..]);
        let reduction = Problem::with_inputs(SCALES, &input, second, None, axes, &results).unwrap();
        choose_applied(&applied, &reduction, &Device::h200()).unwrap().plan
    };
    let plane = |lanes, units| Schedule::Plane { lanes_per_output: lanes, units_per_cube: units };
    for (rows, len, second, narrow, wide) in [
        (4096, 14_336, None, held(along(8, 7), cube(256)), held(along(8, 4), cube(512))),
        (8192, 8192, None, held(along(8, 4), cube(256)), held(along(8, 4), cube(256))),
        (524_288, 256, None, held(along(8, 4), plane(8, 64)), held(along(8, 2), plane(16, 64))),
        (131_072, 64, None, held(along(8, 2), plane(4, 64)), held(along(8, 2), plane(4, 64))),
        (
            4096,
            14_336,
            Some(&[0, 1][..]),
            held(along(8, 14), cube(128)),
            held(along(8, 7), cube(256)),
        ),
        (
            4096,
            14_336,
            Some(&[14_336, 1]),
            held(along(8, 7), cube(256)),
            held(along(8, 7), cube(256)),
        ),
    ] {
        assert_eq!(planned(rows, len, second, true), narrow, "{rows} {len} {second:?}");
        assert_eq!(planned(rows, len, second, false), wide, "{rows} {len} {second:?}");
    }
}

/// Long rows beside a weight have twice as many cubes, which leave cache for the weight, but not
/// where results are narrower than the elements.
#[test]
fn narrow_results_have_few_cubes() {
    const SCALES: OperatorClass = OperatorClass::new("scales", 8).fields(2);
    let cubes = |rows: usize, len: usize, result: ElementType| {
        let (element, shape, strides) = (ElementType::BF16, [rows, len], [len, 1]);
        let input = InputSpec { element, shape: &shape, strides: &strides, alignment: 256 };
        let second = SecondSpec { element, strides: &[0, 1], alignment: 256 };
        let (second, companions) = (Some(&second), [&[1, 0][..], &[0, 1]]);
        let applied = AppliedSpec {
            element: result,
            strides: None,
            second,
            companions: &companions,
            further: &[],
        };
        let applied = AppliedProblem::new(SCALES, &input, Some(&[1]), &applied).unwrap();
        let results = OutputSpec { elements: &[ElementType::F32; 2], strides: None };
        let axes = Some(&[1][..]);
        let reduction = Problem::with_inputs(SCALES, &input, second, None, axes, &results).unwrap();
        let device = Device::h200();
        let plan = force_applied(AppliedKind::HeldByCubes, &applied, &reduction, &device).unwrap();
        let AppliedPlan::Held { cubes_per_output, .. } = plan else { panic!("{plan}") };
        cubes_per_output
    };
    for (rows, len, narrow) in [(833, 131_072, 8), (92, 524_288, 32)] {
        assert_eq!(cubes(rows, len, ElementType::F8E4M3), narrow, "{rows} {len}");
        assert_eq!(cubes(rows, len, ElementType::BF16), 2 * narrow, "{rows} {len}");
    }
}

/// Lanes of a plane have two loads of a short row each, or up to five narrow ones. Of whole
/// vectors, two lanes read a sector of memory. Fewer lanes have three, where fewer places stay
/// empty.
#[test]
fn short_rows_have_few_lanes() {
    use ElementType::{BF16, F32};
    let plane = |lanes, units| Schedule::Plane { lanes_per_output: lanes, units_per_cube: units };
    let unit = Schedule::Unit { units_per_cube: 128 };
    assert_eq!(plan(BF16, &[4_000_003, 10], &[1]), held(along(2, 5), unit));
    assert_eq!(plan(BF16, &[6_000_001, 7], &[1]), held(along(1, 4), plane(2, 128)));
    assert_eq!(plan(BF16, &[4_194_305, 47], &[1]), held(along(1, 6), plane(8, 128)));
    assert_eq!(plan(BF16, &[3_000_001, 12], &[1]), held(along(4, 2), plane(2, 128)));
    assert_eq!(plan(F32, &[2_000_003, 10], &[1]), held(along(2, 3), plane(2, 128)));
    assert_eq!(plan(BF16, &[127_104, 132], &[1]), held(along(4, 3), plane(16, 128)));
    assert_eq!(plan(BF16, &[127_104, 128], &[1]), held(along(8, 2), plane(8, 64)));
    assert_eq!(plan(F32, &[4_000_003, 8], &[1]), held(along(4, 1), plane(2, 128)));
    assert_eq!(plan(BF16, &[4_000_000, 8], &[1]), held(along(8, 1), unit));
}

/// Narrow rows with edges have half as many units with up to 6 loads each, unless these would be
/// fewer than half a plane.
#[test]
fn edges_are_left_to_few_units() {
    use ElementType::{BF16, F32};
    let peeled = |vector: usize, loads: usize| along(vector, loads).with_peeled(true);
    let plane = |lanes, units| Schedule::Plane { lanes_per_output: lanes, units_per_cube: units };
    assert_eq!(plan(BF16, &[120_562, 1317], &[1]), held(peeled(8, 6), plane(32, 128)));
    assert_eq!(plan(BF16, &[17_655, 4601], &[1]), held(peeled(8, 5), cube(128)));
    assert_eq!(plan(BF16, &[71_495, 575], &[1]), held(peeled(8, 5), plane(16, 128)));
    // So many elements in each unit of a cube would leave room for no other cube.
    let long = plan(BF16, &[16_384, 24_577], &[1]);
    assert!(!matches!(long, AppliedPlan::Held { in_shared: 0, .. }), "{long}");
    assert_eq!(plan(BF16, &[430_105, 185], &[1]), held(peeled(8, 3), plane(8, 128)));
    assert_eq!(plan(F32, &[65_537, 2301], &[1]), held(peeled(4, 3), cube(256)));
}

/// However long slices are, many cubes reduce them and many apply the results.
#[test]
fn long_slices_have_many_cubes() {
    use ElementType::{BF16, F32};
    for (element, shape, axis) in [
        (BF16, &[4_829_133, 19][..], 0),
        (F32, &[1 << 30], 0),
        (BF16, &[3, 1 << 28], 1),
        (ElementType::F64, &[1 << 29], 0),
    ] {
        let plan = plan(element, shape, &[axis]);
        let AppliedPlan::Separately { reduce, apply } = plan else { panic!("{shape:?}: {plan}") };
        assert!(matches!(reduce.schedule, Schedule::Split { .. }), "{reduce}");
        assert!(apply.cubes_per_output >= 4096, "{shape:?}: {apply:?}");
    }
}

/// Short rows are read in whole vectors of 8 bytes, where wider ones would leave edges. Narrower
/// vectors, and longer rows, are peeled.
#[test]
fn short_rows_are_not_peeled() {
    use ElementType::{BF16, F32};
    let plane = |lanes, units| Schedule::Plane { lanes_per_output: lanes, units_per_cube: units };
    assert_eq!(plan(BF16, &[500_001, 100], &[1]), held(along(4, 2), plane(16, 128)));
    assert_eq!(plan(BF16, &[65536, 1004], &[1]), held(along(4, 8), plane(32, 64)));
    assert_eq!(plan(F32, &[65536, 1002], &[1]), held(along(2, 4), cube(128)));
    assert_eq!(plan(F32, &[16384, 5002], &[1]), held(along(2, 5), cube(512)));
    for (element, len) in [(BF16, 1002), (F32, 1001), (F32, 16386)] {
        let AppliedPlan::Held { plan, .. } = plan(element, &[16384, len], &[1]) else {
            panic!("rows of {len} are held");
        };
        assert!(plan.access.peeled, "{element} rows of {len}: {plan}");
    }
}

/// Long rows are held by cubes that others reside beside: in registers, and in shared memory where
/// registers of so few units do not hold them. Where rows are too few for that, or where elements
/// of 4 bytes leave each unit of the largest cube enough, it holds them in registers.
#[test]
fn long_rows_leave_room_for_other_cubes() {
    use ElementType::{BF16, F32};
    let in_shared = |access, units, in_shared| AppliedPlan::Held {
        plan: Plan::new(access, cube(units)),
        in_shared,
        cubes_per_output: 1,
    };
    assert_eq!(plan(F32, &[16384, 10240], &[1]), held(along(4, 5), cube(512)));
    assert_eq!(plan(F32, &[16384, 16384], &[1]), held(along(4, 8), cube(512)));
    assert_eq!(plan(F32, &[8192, 32768], &[1]), held(along(4, 8), cube(1024)));
    assert_eq!(plan(BF16, &[16384, 20480], &[1]), held(along(8, 5), cube(512)));
    assert_eq!(plan(BF16, &[16384, 24576], &[1]), in_shared(along(8, 4), 256, 8));
    assert_eq!(plan(BF16, &[16384, 32000], &[1]), in_shared(along(8, 4), 256, 12));
    assert_eq!(plan(BF16, &[8192, 65536], &[1]), in_shared(along(8, 4), 512, 12));
    assert_eq!(plan(BF16, &[132, 32000], &[1]), held(along(8, 4), cube(1024)));
}

/// Rows too long for the registers of one cube are held by several.
#[test]
fn long_rows_are_held_by_several_cubes() {
    let by_cubes = |access, in_shared, cubes_per_output| AppliedPlan::Held {
        plan: Plan::new(access, cube(128)),
        in_shared,
        cubes_per_output,
    };
    let f32_rows = plan(ElementType::F32, &[4096, 50257], &[1]);
    assert_eq!(f32_rows, by_cubes(along(4, 5).with_peeled(true), 10, 7));
    let bf16_rows = plan(ElementType::BF16, &[8192, 128_256], &[1]);
    assert_eq!(bf16_rows, by_cubes(along(8, 4), 12, 8));
    // They wait for each other, which takes longer than they save where rows are few and short.
    let kind = |len: usize| plan(ElementType::F16, &[56, len], &[1]).kind();
    assert_eq!((kind(1 << 16), kind(1 << 17)), (AppliedKind::Held, AppliedKind::HeldByCubes));
}

/// Many fields of narrow elements are taken in two passes by a cube for itself. Across outputs, the
/// accumulators of many fields leave fewer units.
#[test]
fn many_fields_change_the_cubes() {
    let device = Device::h200();
    let plan = |kind: Option<AppliedKind>, shape: &[usize], element| {
        let strides = row_major_strides(shape);
        let input = InputSpec { element, shape, strides: &strides, alignment: 256 };
        let applied =
            AppliedSpec { element, strides: None, second: None, companions: &[], further: &[] };
        let results = OutputSpec { elements: &[ElementType::F32; 2], strides: None };
        let field = element.bytes().max(4);
        let operator = OperatorClass::new("mean_rstd", 5 * field).fields(5).blockwise();
        let applied = AppliedProblem::new(operator, &input, Some(&[1]), &applied).unwrap();
        let reduction = Problem::new(operator, &input, Some(&[1]), &results).unwrap();
        match kind {
            Some(kind) => force_applied(kind, &applied, &reduction, &device).unwrap(),
            None => choose_applied(&applied, &reduction, &device).unwrap().plan,
        }
    };
    let bf16_rows = plan(None, &[8192, 128_256], ElementType::BF16);
    assert_eq!(bf16_rows.kind(), AppliedKind::HeldInShared);
    let f32_rows = plan(None, &[4096, 50257], ElementType::F32);
    assert_eq!(f32_rows.kind(), AppliedKind::HeldByCubes);
    // Cubes that share columns would merge the partials of all of them.
    let columns = plan(None, &[1, 2048, 4096], ElementType::BF16);
    assert_ne!(columns.kind(), AppliedKind::HeldByCubes, "{columns}");
    let columns = plan(Some(AppliedKind::HeldByCubes), &[3, 900, 24], ElementType::F64);
    let AppliedPlan::Held { plan, .. } = columns else { panic!("{columns}") };
    assert!(plan.schedule.units_per_cube() < 512, "{columns}");
}

/// Where cubes may not wait for others, long rows are read again while the cache holds those under
/// way, and go to shared memory where it does not.
#[test]
fn long_rows_are_read_again_or_held_in_shared_memory() {
    let mut device = Device::h200();
    device.forward_progress = false;
    let mut forbidden = Device::h200();
    forbidden.tuning.applied.cubes_wait = false;
    let plan = |element, shape: &[usize]| {
        let (applied, reduction) = stated(element, shape, &[1], &[]);
        let plan = |device| choose_applied(&applied, &reduction, device).unwrap().plan;
        assert_eq!(plan(&forbidden), plan(&device));
        plan(&device)
    };
    let f32_rows = plan(ElementType::F32, &[4096, 50257]);
    assert_eq!(
        f32_rows,
        AppliedPlan::ReadAgain(Plan::new(along(4, 8).with_peeled(true), cube(1024)))
    );
    let bf16_rows = plan(ElementType::BF16, &[8192, 128_256]);
    let plan_in_registers = Plan::new(along(8, 4), cube(1024));
    let in_shared =
        AppliedPlan::Held { plan: plan_in_registers, in_shared: 12, cubes_per_output: 1 };
    assert_eq!(bf16_rows, in_shared);
}

/// Few long rows leave most of the device idle unless several cubes share each.
#[test]
fn few_rows_are_reduced_by_many_cubes() {
    let chosen = plan(ElementType::F32, &[4, 1 << 24], &[1]);
    assert_eq!(chosen.kind(), AppliedKind::Separately);
    assert_eq!(chosen.launches(), 2);
}

/// Columns of 512 are held by 64 units with 8 loads each, of which 8 read side by side.
#[test]
fn columns_are_held() {
    let access = Access::new(Direction::Across).with_vector(4).with_loads_in_flight(8);
    let combine = Combine::Shared;
    let schedule = Schedule::Cube { units_per_output: 64, outputs_per_cube: 8, combine };
    assert_eq!(plan(ElementType::F32, &[64, 512, 1024], &[1]), held(access, schedule));
}

/// Cubes that hold narrow columns have half a segment where they would have more than 256 units
/// with a whole one.
#[test]
fn narrow_columns_are_held_by_small_cubes() {
    let access = Access::new(Direction::Across).with_vector(4).with_loads_in_flight(16);
    let columns = |units_per_output: u32, tiles: u32| {
        let outputs_per_cube = tiles;
        let combine = Combine::Shared;
        held(access, Schedule::Cube { units_per_output, outputs_per_cube, combine })
    };
    assert_eq!(plan(ElementType::BF16, &[239, 512, 1024], &[1]), columns(32, 8));
    assert_eq!(plan(ElementType::BF16, &[128, 650_160], &[0]), columns(8, 16));
}

/// Columns that make few cubes are read again in half a segment, and in a whole one otherwise.
#[test]
fn few_columns_have_more_cubes() {
    let tiles = |element, shape: &[usize]| {
        let (applied, reduction) = stated(element, shape, &[0], &[]);
        let device = Device::h200();
        let plan = force_applied(AppliedKind::ReadAgain, &applied, &reduction, &device).unwrap();
        let AppliedPlan::ReadAgain(plan) = plan else { panic!("{plan}") };
        plan.schedule.outputs_per_cube()
    };
    use ElementType::{BF16, F32};
    assert_eq!(tiles(BF16, &[2048, 4096]), 8);
    assert_eq!(tiles(BF16, &[2048, 16_384]), 16);
    assert_eq!(tiles(F32, &[2048, 856]), 4);
    assert_eq!(tiles(F32, &[2048, 8192]), 8);
}

/// Dimensions merge only where they follow each other in the input, in the output and in all
/// companions.
#[test]
fn companions_keep_dimensions_apart() {
    let shape = [2, 3, 4, 5];
    let dims = |companions: &[&[usize]]| {
        let (applied, _) = stated(ElementType::F32, &shape, &[2, 3], companions);
        (applied.problem().kept().len(), applied.problem().reduced().len())
    };
    assert_eq!(dims(&[]), (1, 1));
    assert_eq!(dims(&[&[0, 0, 5, 1]]), (1, 1), "over both reduced axes");
    assert_eq!(dims(&[&[0, 0, 0, 1]]), (1, 2), "over the last axis alone");
    assert_eq!(dims(&[&[0, 1, 0, 0]]), (2, 1), "over the second axis alone");
    let (applied, _) = stated(ElementType::F32, &shape, &[2, 3], &[&[0, 7, 0, 1]]);
    let companion = &applied.companions()[0];
    assert_eq!((&companion.kept[..], &companion.reduced[..]), (&[0, 7][..], &[0, 1][..]));
    assert_eq!(applied.bytes(), 2 * 120 * 4, "each element is read once and written once");
}

/// Bad requests are named.
#[test]
fn bad_requests_are_refused() {
    let input =
        InputSpec { element: ElementType::F32, shape: &[4, 6], strides: &[6, 1], alignment: 256 };
    let new =
        |class: OperatorClass, axes: &[usize], strides: Option<&[usize]>, companion: &[usize]| {
            let applied = AppliedSpec {
                element: ElementType::F32,
                strides,
                second: None,
                companions: &[companion],
                further: &[],
            };
            AppliedProblem::new(class, &input, Some(axes), &applied).unwrap_err()
        };
    let positional = OperatorClass::new("argmax", 8).fields(2).positional();
    assert_eq!(
        new(positional, &[1], None, &[0, 0]),
        ProblemError::PositionalApplied { operator: "argmax" }
    );
    assert_eq!(
        new(SOFTMAX, &[2], None, &[0, 0]),
        ProblemError::AxisOutOfRange { axis: 2, rank: 2 }
    );
    assert_eq!(
        new(SOFTMAX, &[1], None, &[0]),
        ProblemError::RankMismatch { tensor: Role::Operand, dims: 2, strides: 1 }
    );
    assert!(matches!(
        new(SOFTMAX, &[1], Some(&[0, 1]), &[0, 0]),
        ProblemError::OutputOverlaps { .. }
    ));
    assert!(matches!(
        new(SOFTMAX, &[1], None, &[usize::MAX, 1]),
        ProblemError::TooLarge { tensor: Role::Operand, .. }
    ));
}

/// A plan that does not hold a whole tile, or whose tiles belong to several cubes, is refused.
#[test]
fn plans_obey_the_rules() {
    let (applied, reduction) = stated(ElementType::F32, &[64, 8192], &[1], &[]);
    let device = Device::h200();
    let error =
        |plan: AppliedPlan| plan.check(&applied, &reduction, &device).unwrap_err().to_string();
    let short = error(held(along(4, 2), cube(512)));
    assert!(short.contains("an output tile has 2048 loads, and its units hold 1024"), "{short}");
    let in_shared = |in_shared| AppliedPlan::Held {
        plan: Plan::new(along(4, 2), cube(512)),
        in_shared,
        cubes_per_output: 1,
    };
    assert!(in_shared(2).check(&applied, &reduction, &device).is_ok());
    let parts = error(in_shared(3));
    assert!(parts.contains("3 loads in shared memory are no multiple of 2 in flight"), "{parts}");
    let large = error(in_shared(64));
    assert!(large.contains("shared memory"), "{large}");
    let together = error(held(along(4, 2).with_outputs_in_flight(2), cube(512)));
    assert!(together.contains("outputs in flight") || together.contains("at a time"), "{together}");
    let split = Schedule::Split {
        cubes_per_output: 2,
        units_per_output: 256,
        outputs_per_cube: 1,
        combine: Combine::Plane { lanes: 32 },
        merge: reduce_planner::Merge::LastCube,
    };
    let split = error(AppliedPlan::ReadAgain(Plan::new(along(4, 4), split)));
    assert!(split.contains("2 cubes per output cannot share its results"), "{split}");
    let by_cubes = |units, cubes_per_output| AppliedPlan::Held {
        plan: Plan::new(along(4, 2), cube(units)),
        in_shared: 0,
        cubes_per_output,
    };
    assert!(by_cubes(512, 2).check(&applied, &reduction, &device).is_ok());
    let short = error(by_cubes(256, 3));
    assert!(short.contains("an output tile has 2048 loads, and its units hold 1536"), "{short}");
    let many = error(by_cubes(512, 40));
    assert!(many.contains("20480 units per output tile wait for each other, and 16896"), "{many}");
    let none = error(by_cubes(512, 0));
    assert!(none.contains("an output needs at least one cube"), "{none}");
    let mut waiting = device.clone();
    waiting.forward_progress = false;
    let waits = by_cubes(512, 2).check(&applied, &reduction, &waiting).unwrap_err().to_string();
    assert!(waits.contains("may not run cubes that others wait for"), "{waits}");
    let mut forbidden = device.clone();
    forbidden.tuning.applied.cubes_wait = false;
    let waits = by_cubes(512, 2).check(&applied, &reduction, &forbidden).unwrap_err().to_string();
    assert!(waits.contains("cubes that wait for others are forbidden"), "{waits}");
    let AppliedPlan::Separately { reduce, .. } =
        force_applied(AppliedKind::Separately, &applied, &reduction, &device).unwrap()
    else {
        unreachable!("the kind was asked for")
    };
    let none = ApplyLaunch::new(along(4, 4), 256, 1, 0);
    let none = error(AppliedPlan::Separately { reduce, apply: none });
    assert!(none.contains("an output needs at least one cube"), "{none}");
}

/// Cubes that wait for each other reside together, whatever keeps others out: here shared memory,
/// one cube of which fills a multiprocessor, registers, and the number of cubes. A plan from a file
/// that breaks this rule would wait for ever.
#[test]
fn cubes_that_wait_reside_together() {
    let mut device = Device::h200();
    let waiting = |device: &Device, units, in_shared, cubes_per_output: u32| {
        let len = 4 * units as usize * (1 + in_shared) * cubes_per_output as usize;
        let (applied, reduction) = stated(ElementType::F32, &[1, len], &[1], &[]);
        let plan = Plan::new(along(4, 1), cube(units));
        let plan = AppliedPlan::Held { plan, in_shared, cubes_per_output };
        plan.check(&applied, &reduction, device).map_err(|error| error.to_string())
    };
    let error = waiting(&device, 32, 450, 528).unwrap_err();
    let found = "528 cubes per output tile, with 230444 bytes of shared memory each, wait for each \
                 other, and 66 such cubes may";
    assert!(error.contains(found), "{error}");
    assert!(waiting(&device, 32, 450, 66).is_ok());
    // With 255 registers a unit, a multiprocessor holds one cube of 256 units.
    assert!(waiting(&device, 256, 0, 66).is_ok());
    // Half of the shared memory is that of two cubes, less what the device keeps.
    assert!(waiting(&device, 32, 200, 132).is_ok());
    assert!(waiting(&device, 32, 222, 132).is_ok());
    assert!(waiting(&device, 32, 227, 132).unwrap_err().contains("and 66 such cubes may"));
    device.cubes_per_multiprocessor = 2;
    assert!(waiting(&device, 32, 0, 132).is_ok());
    assert!(waiting(&device, 32, 0, 133).unwrap_err().contains("and 132 such cubes may"));
    device.registers_per_multiprocessor = 1 << 13;
    assert!(waiting(&device, 32, 0, 67).unwrap_err().contains("and 66 such cubes may"));
    // A profile may come from a file, and does not loosen the rule.
    device.profile.registers.most = 1;
    device.profile.reserved_shared_bytes = 0;
    assert!(waiting(&device, 32, 0, 67).is_err());
}

/// Where a cube has several outputs, planes do not combine what cubes have published: its units
/// take an accumulator each. CubeCL would refuse the launch after the call has returned.
#[test]
fn merging_several_outputs_takes_shared_memory() {
    let device = Device::h200();
    let moments = OperatorClass::new("mean_rstd", 20).fields(5).blockwise();
    let element = ElementType::F32;
    let check = |in_shared: usize| {
        let shape = [8, 4 * 1024 * (2 + in_shared)];
        let strides = row_major_strides(&shape);
        let input = InputSpec { element, shape: &shape, strides: &strides, alignment: 256 };
        let applied =
            AppliedSpec { element, strides: None, second: None, companions: &[], further: &[] };
        let results = OutputSpec { elements: &[element; 2], strides: None };
        let applied = AppliedProblem::new(moments, &input, Some(&[1]), &applied).unwrap();
        let reduction = Problem::new(moments, &input, Some(&[1]), &results).unwrap();
        let combine = Combine::Plane { lanes: 32 };
        let schedule = Schedule::Cube { units_per_output: 256, outputs_per_cube: 4, combine };
        let plan = Plan::new(along(4, 2), schedule);
        let plan = AppliedPlan::Held { plan, in_shared, cubes_per_output: 4 };
        plan.check(&applied, &reduction, &device)
    };
    // Loads of 14 x 16 KiB, 640 bytes and 96 for the cube and its results, 20480 for the merge, and
    // the number of the cube.
    let error = check(14).unwrap_err().to_string();
    assert!(error.contains("250596 bytes of shared memory"), "{error}");
    check(12).unwrap();
}

/// Every kind that applies obeys the rules, whatever the shape, and survives a file.
#[test]
fn forced_plans_obey_the_rules() {
    let shapes: [(&[usize], &[usize]); 9] = [
        (&[7, 3], &[1]),
        (&[7, 3], &[0]),
        (&[1, 1], &[0, 1]),
        (&[3, 5, 7, 11], &[1, 3]),
        (&[3, 5, 7, 11], &[0, 2]),
        (&[100, 1001], &[1]),
        (&[2, 999_983], &[1]),
        (&[999_983, 2], &[0]),
        (&[64, 100_000, 3], &[1]),
    ];
    for device in [Device::h200(), Device::software_adapter()] {
        for (shape, axes) in shapes {
            for element in [ElementType::F32, ElementType::F16, ElementType::F64] {
                let (applied, reduction) = stated(element, shape, axes, &[]);
                let mut kinds = 0;
                for kind in AppliedKind::ALL {
                    match force_applied(kind, &applied, &reduction, &device) {
                        Ok(plan) => {
                            assert_eq!(plan.kind(), kind);
                            plan.check(&applied, &reduction, &device).unwrap();
                            let text = serde_json::to_string(&plan).unwrap();
                            assert_eq!(serde_json::from_str::<AppliedPlan>(&text).unwrap(), plan);
                            kinds += 1;
                        }
                        Err(PlanError::NoAppliedPlan { .. }) => {}
                        Err(other) => panic!("{shape:?} {axes:?} {kind}: {other}"),
                    }
                }
                assert!(kinds >= 2, "{shape:?} {axes:?} on {}: {kinds} kinds", device.name);
            }
        }
    }
}

/// A choice says why not the others.
#[test]
fn refusals_have_their_numbers() {
    let (applied, reduction) = stated(ElementType::F32, &[4096, 50257], &[1], &[]);
    let choice = choose_applied(&applied, &reduction, &Device::h200()).unwrap();
    let reasons: Vec<String> = choice.refused.iter().map(ToString::to_string).collect();
    assert_eq!(reasons[0], "held: too long: 12564 loads per output tile, and a cube holds 8192");
    assert!(matches!(choice.refused[1].reason, AppliedReason::Slower { .. }), "{reasons:?}");
    assert!(reasons[3].starts_with("separately: slower: "), "{reasons:?}");
}

/// A choice has the plans that it did not take, from the fastest to the slowest, and a file keeps
/// them.
#[test]
fn choices_have_runners_up_and_survive_a_file() {
    let (applied, reduction) = stated(ElementType::F32, &[4096, 50257], &[1], &[]);
    let choice = choose_applied(&applied, &reduction, &Device::h200()).unwrap();
    let kinds: Vec<AppliedKind> =
        choice.runners_up.iter().map(|runner_up| runner_up.plan.kind()).collect();
    assert_eq!(choice.plan.kind(), AppliedKind::HeldByCubes);
    assert_eq!(kinds, [AppliedKind::ReadAgain, AppliedKind::HeldInShared, AppliedKind::Separately]);
    let times = choice.runners_up.iter().map(|runner_up| runner_up.estimate.microseconds());
    let times: Vec<f64> = [choice.expected_microseconds()].into_iter().chain(times).collect();
    assert!(times.is_sorted(), "{times:?}");
    let text = serde_json::to_string(&choice).unwrap();
    assert_eq!(serde_json::from_str::<Choice<AppliedPlan>>(&text).unwrap(), choice, "{text}");
}

/// Without elements, only launches take time.
#[test]
fn no_elements_take_a_launch() {
    let (applied, reduction) = stated(ElementType::F32, &[0, 64], &[1], &[]);
    let device = Device::h200();
    let choice = choose_applied(&applied, &reduction, &device).unwrap();
    assert_eq!(choice.estimate.total_ns(), device.profile.launch_ns as f64);
}

/// A layer normalisation with weight and bias over rows of this length.
fn layer_norm(len: usize) -> (AppliedProblem, Problem) {
    stated(ElementType::F32, &[512, len], &[1], &[&[1, 0], &[0, 1], &[0, 1]])
}

fn with_bindings(device: &Device, max_bindings: u32) -> Device {
    let mut device = device.clone();
    device.max_bindings = max_bindings;
    device
}

fn refusal(
    plan: AppliedPlan,
    applied: &AppliedProblem,
    reduction: &Problem,
    device: &Device,
) -> Option<Illegal> {
    match plan.check(applied, reduction, device) {
        Ok(()) => None,
        Err(PlanError::Unfit { reason, .. }) => Some(reason),
        Err(other) => panic!("{other}"),
    }
}

/// A plan is refused on a device that allows one buffer less than its launch binds, and on no
/// other.
#[test]
fn launches_bind_no_more_buffers_than_the_device_has() {
    let device = Device::h200();
    let least = |applied: &AppliedProblem, reduction: &Problem, kind: AppliedKind| -> usize {
        let plan = force_applied(kind, applied, reduction, &device).unwrap();
        let fits = |&bindings: &u32| {
            refusal(plan, applied, reduction, &with_bindings(&device, bindings)).is_none()
        };
        let least = (1..64).find(fits).unwrap();
        let (bindings, available) = (least as usize, least - 1);
        let fewer = with_bindings(&device, available);
        let reason = refusal(plan, applied, reduction, &fewer);
        assert_eq!(reason, Some(Illegal::Bindings { bindings, available }), "{kind}");
        bindings
    };
    let (applied, reduction) = layer_norm(4096);
    // The input, the weight, the bias and the output.
    assert_eq!(least(&applied, &reduction, AppliedKind::Held), 4);
    assert_eq!(least(&applied, &reduction, AppliedKind::ReadAgain), 4);
    // And the words that cubes publish.
    assert_eq!(least(&applied, &reduction, AppliedKind::HeldByCubes), 5);
    // And the two results.
    assert_eq!(least(&applied, &reduction, AppliedKind::Separately), 6);
    let stored = applied.storing_results();
    assert_eq!(least(&stored, &reduction, AppliedKind::Held), 6);
    assert_eq!(least(&stored, &reduction, AppliedKind::Separately), 6);
    // Four tensors as vectors, and as elements at the edges of rows.
    let (applied, reduction) = layer_norm(4099);
    assert_eq!(least(&applied, &reduction, AppliedKind::Held), 8);
}

/// WebGPU promises 8 buffers, of which the runtime keeps one. Where rows have edges, the planner
/// reads single elements instead.
#[test]
fn few_bindings_suffice() {
    for device in [Device::h200(), Device::software_adapter()] {
        let few = with_bindings(&device, 7);
        for len in [64, 1000, 1001, 4096, 4099, 100_003] {
            let (applied, reduction) = layer_norm(len);
            for applied in [applied.clone(), applied.storing_results()] {
                let plan = choose_applied(&applied, &reduction, &few).unwrap().plan;
                plan.check(&applied, &reduction, &few).unwrap();
            }
        }
        let (applied, reduction) = layer_norm(4099);
        let plan = |device: &Device| choose_applied(&applied, &reduction, device).unwrap().plan;
        assert!(plan(&device).applying().0.access.peeled);
        assert!(!plan(&few).applying().0.access.peeled);
        let error = choose_applied(&applied, &reduction, &with_bindings(&device, 3)).unwrap_err();
        let message = "a launch binds 4 buffers, the device allows 3";
        assert!(error.to_string().contains(message), "{error}");
    }
}

/// The plans that are measured may run, each is there once, and the choice, others of its kind and
/// other kinds are among them.
#[test]
fn candidates_can_run() {
    for device in [Device::h200(), Device::m2_max(), Device::software_adapter()] {
        for (shape, axes) in [
            (&[65536usize, 1024][..], &[1usize][..]),
            (&[4_000_003, 10], &[1]),
            (&[64, 200_000], &[1]),
            (&[8192, 128_256], &[1]),
            (&[4096, 512], &[0]),
        ] {
            let problem = stated(ElementType::F32, shape, axes, &[]);
            for problem in [
                (problem.0.clone(), problem.1.clone()),
                (
                    problem.0.with_numerics(Numerics::BatchInvariant),
                    problem.1.with_numerics(Numerics::BatchInvariant),
                ),
            ] {
                let chosen = problem.choose(&device).unwrap().plan;
                let candidates = problem.candidates(&device).unwrap();
                let mut seen = HashSet::new();
                for Candidate { plan, .. } in &candidates {
                    problem.check(plan, &device).unwrap();
                    assert!(seen.insert(*plan), "{plan}");
                }
                assert!(seen.contains(&chosen), "{chosen}");
                if problem.0.problem().numerics() == Numerics::BatchInvariant {
                    continue;
                }
                let of_kind = seen.iter().filter(|plan| plan.kind() == chosen.kind()).count();
                let kinds: HashSet<AppliedKind> = seen.iter().map(AppliedPlan::kind).collect();
                assert!(of_kind > 1 && kinds.len() > 1, "{shape:?} on {}", device.name);
            }
        }
    }
}
