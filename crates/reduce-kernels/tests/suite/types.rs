//! Every operator on every element type that the device has, and every operator through every
//! schedule.

use reduce_kernels::{
    Device, ElementType,
    cubecl::prelude::*,
    device_of, max,
    normalize::softmax,
    planner::{Direction, Merge, Plan, PlanError, Problem, Schedule, ScheduleKind},
    scan::cumsum,
    sum,
    testing::widest_plans,
};

use crate::{
    case::Case,
    operators::{Checked, gives_bools, place},
    run::{Asked, capable_device, check, problem_of, source, tensor},
};

/// What became of an operator on a type.
fn outcome<O: Checked>(client: &Client, element: ElementType, asked: Asked) -> &'static str {
    // Peeled vectors along or whole ones across, in turn: compiling takes longer than running.
    let case = match (place::<O>() + element as usize) % 2 {
        0 => Case::contiguous(&[13, 1001], &[1]),
        _ => Case::contiguous(&[600, 48], &[0]),
    };
    let device = device_of(client);
    // A kernel of one cube compiles in a fraction of the time that one of a split takes. There is
    // none for a type that the device lacks.
    let problem = problem_of::<O>(client, &case, element, asked).unwrap();
    let plans = widest_plans(&problem, &device);
    let plan = plans.into_iter().find(|plan| plan.schedule.kind() == ScheduleKind::Cube);
    match check::<O>(client, &case, element, Asked { plan, ..asked }, element as u64) {
        Ok(()) => {
            assert!(device.has(element), "{element} ran on a device without it");
            "passed"
        }
        Err(error) => match source(&error) {
            Some(&PlanError::ElementUnsupported { element, .. }) => {
                assert!(!device.has(element), "{element} refused by a device that has it");
                "refused"
            }
            _ => panic!("{} of {element}: {error}", O::NAME),
        },
    }
}

/// A row of the table of operators and types: each cell passes, or is refused for a type the device
/// lacks.
pub(crate) fn every_type<O: Checked>(client: &Client) {
    let mut passed = 0;
    let cells = ElementType::ALL.map(|element| {
        let outcome = outcome::<O>(client, element, Asked::default());
        passed += usize::from(outcome == "passed");
        format!("{element} {outcome}")
    });
    println!("TABLE {} | {} | {}", client.name(), O::NAME, cells.join(" | "));
    let truth = gives_bools::<O>();
    assert!(truth || passed >= 3, "f32, i32 and u32 pass everywhere: {passed}");
}

/// Accumulators and outputs of another type than the rule's.
pub(crate) fn requested_types(client: &Client) {
    use ElementType::*;
    use reduce_kernels::operators::*;

    let to = |output| Asked { outputs: [Some(output), None, None], ..Asked::default() };
    let within = |accumulator| Asked { accumulator: Some(accumulator), ..Asked::default() };
    let mut refused = 0;
    let mut count = |outcome: &str| refused += usize::from(outcome == "refused");
    count(outcome::<Sum>(client, F16, to(F32)));
    count(outcome::<Sum>(client, F32, to(F64)));
    count(outcome::<Sum>(client, F32, within(F64)));
    count(outcome::<Sum>(client, F64, within(F32)));
    count(outcome::<Sum>(client, I32, within(I64)));
    count(outcome::<Sum>(client, I32, to(I64)));
    count(outcome::<SumAbs>(client, I32, within(I64)));
    count(outcome::<SumAbs>(client, I32, to(U64)));
    count(outcome::<Sum>(client, I8, to(I64)));
    count(outcome::<Sum>(client, U8, to(U64)));
    count(outcome::<Sum>(client, I32, to(F64)));
    count(outcome::<Sum>(client, I8, to(F32)));
    count(outcome::<Mean>(client, I32, to(F64)));
    count(outcome::<Mean>(client, BF16, to(F32)));
    count(outcome::<Var>(client, F32, to(F64)));
    count(outcome::<NormL2>(client, I16, to(F64)));
    count(outcome::<LogSumExp>(client, F64, within(F32)));
    count(outcome::<NormP>(client, F64, within(F32)));
    count(outcome::<Max>(client, F32, to(F64)));
    count(outcome::<Min>(client, I32, to(F32)));
    count(outcome::<Max>(client, U8, to(U32)));
    count(outcome::<ArgMax>(client, F32, to(U64)));
    count(outcome::<ArgMin>(client, U8, to(I32)));
    count(outcome::<CountNonzero>(client, F32, to(F32)));
    count(outcome::<CountNonzero>(client, F32, within(U64)));
    count(outcome::<Any>(client, F32, to(U32)));
    count(outcome::<All>(client, I32, to(F32)));
    let both = Asked { outputs: [Some(F32), Some(U64), None], ..Asked::default() };
    count(outcome::<MaxWithIndex>(client, F16, both));
    println!("{}: {refused} of 28 refused for a type", client.name());
}

/// Wide vectors of small types, narrow ones of large types, and integers, through every schedule:
/// whole and peeled, along and across.
pub(crate) fn through_every_schedule<O: Checked>(client: &Client, element: ElementType) {
    let device = capable_device(client);
    if !device.has(element) {
        println!("{}: not run, the device has no {element}", client.name());
        return;
    }
    let cases = [
        Case::contiguous(&[5, 4097], &[1]),
        Case::contiguous(&[3, 4096], &[1]),
        Case::pitched(&[600, 50], 64, &[0]),
        Case::contiguous(&[4, 6, 10, 24], &[0, 2, 3]),
    ];
    let mut runs = 0;
    for case in cases {
        let problem = problem_of::<O>(client, &case, element, Asked::default()).unwrap();
        for plan in widest_plans(&problem, &device) {
            check::<O>(client, &case, element, Some(plan), runs).unwrap();
            runs += 1;
        }
    }
    println!("{}: {runs} runs", client.name());
}

/// An operator through every schedule: long outputs, peeled and realigned vectors along, whole and
/// realigned ones across, and outputs so short that several are in flight, both ways.
pub(crate) fn operator_through_every_schedule<O: Checked>(client: &Client) {
    let device = capable_device(client);
    let cases = [
        Case::contiguous(&[3, 40_001], &[1]),
        Case::contiguous(&[9000, 8], &[0]),
        Case::contiguous(&[301, 8], &[1]),
        Case::contiguous(&[25, 2, 8], &[1]),
        Case::contiguous(&[3001, 9], &[0]),
        // Short shares: loads that are not inside make a difference if they are other outputs'.
        Case::contiguous(&[6, 7, 9], &[1]),
    ];
    let truth = gives_bools::<O>();
    // Devices without bytes have no bools.
    let output = truth.then_some(ElementType::U32);
    let asked = Asked { outputs: [output, None, None], ..Asked::default() };
    let problem = |case| problem_of::<O>(client, case, ElementType::F32, asked).unwrap();
    let mut problems = cases.each_ref().map(problem).to_vec();
    assert_all_tried(&problems, &device);
    assert_all_tried(&problems, &Device::h200());
    // A standard deviation is a variance with another finish, which each kernel calls in one place:
    // long outputs bring every kernel, and its compilation takes most of the time.
    if O::NAME == "std" || O::NAME == "nanstd" {
        problems.truncate(1);
    }
    let mut runs = 0;
    for (case, problem) in cases.iter().zip(&problems) {
        let plans = widest_plans(problem, &device);
        let realigned = plans.iter().any(|plan| plan.access.realigns_across());
        // Where rows across outputs are realigned, other cases bring the kernels of single
        // elements.
        for plan in plans.into_iter().filter(|plan| plan.access.realigns_across() == realigned) {
            let asked = Asked { plan: Some(plan), ..asked };
            check::<O>(client, case, ElementType::F32, asked, runs).unwrap();
            runs += 1;
        }
    }
    println!("{}: {runs} runs", client.name());
}

/// That these problems bring every schedule on `device`, both ways, with several outputs in flight
/// where a schedule has that, and splits merged in every way.
fn assert_all_tried(problems: &[Problem], device: &Device) {
    use ScheduleKind::*;

    let tried: Vec<Plan> =
        problems.iter().flat_map(|problem| widest_plans(problem, device)).collect();
    let planes_vary = device.plane_size_min != device.plane_size_max;
    for direction in [Direction::Along, Direction::Across] {
        for (kind, several) in
            [(Unit, false), (Unit, true), (Plane, false), (Plane, true), (Cube, false)]
        {
            // Lanes adjacent need planes of one size.
            let applies = (kind, direction) != (Plane, Direction::Across) || !planes_vary;
            let is_it = |plan: &Plan| {
                plan.schedule.kind() == kind
                    && plan.access.direction == direction
                    && (plan.access.outputs_in_flight > 1) == several
            };
            let name = &device.name;
            assert!(
                !applies || tried.iter().any(is_it),
                "{kind} {direction:?} untried on {name}, several in flight: {several}"
            );
        }
        for by_last_cube in [true, false] {
            let is_it = |plan: &Plan| match plan.schedule {
                Schedule::Split { merge, .. } => {
                    plan.access.direction == direction && (merge == Merge::LastCube) == by_last_cube
                }
                _ => false,
            };
            let applies = device.wide_atomics || !by_last_cube;
            let name = &device.name;
            assert!(
                !applies || tried.iter().any(is_it),
                "no split {direction:?} on {name}, merged by the last cube: {by_last_cube}"
            );
        }
    }
}

/// Calls of several types and kinds in turn, in two threads, give what each gives alone. A call
/// that is repeated launches the kernel that it has kept, whatever was launched in between.
pub(crate) fn calls_in_turn(client: &Client) {
    const SHAPE: [usize; 2] = [4, 1000];
    let rounds = |client: &Client| {
        let floats: Vec<f32> = (0..4000).map(|i| (i % 37) as f32).collect();
        let integers: Vec<i32> = (0..4000).map(|i| i % 41).collect();
        let x = tensor(client, &floats, &SHAPE, &[1000, 1]);
        let y = tensor(client, &integers, &SHAPE, &[1000, 1]);
        let one_round = || {
            let results = [
                sum(client, &x, [1]).unwrap(),
                sum(client, &y, [1]).unwrap(),
                softmax(client, &x, 1).unwrap(),
                max(client, &x, [0]).unwrap(),
                cumsum(client, &y, 1).unwrap(),
                max(client, &y, [1]).unwrap(),
            ];
            results.map(|result| client.read_one(result.handle).expect("the device answers"))
        };
        let first = one_round();
        let sums: Vec<f32> = floats.chunks(1000).map(|row| row.iter().sum()).collect();
        assert_eq!(f32::from_bytes(&first[0]), sums);
        let sums: Vec<i32> = integers.chunks(1000).map(|row| row.iter().sum()).collect();
        assert_eq!(i32::from_bytes(&first[1]), sums);
        assert_eq!(i32::from_bytes(&first[5]), [40; 4]);
        for _ in 0..3 {
            assert!(one_round() == first, "a repeated call gives other bits");
        }
        first.map(|bytes| bytes.to_vec())
    };
    let here = rounds(client);
    let there = std::thread::scope(|scope| scope.spawn(|| rounds(client)).join().unwrap());
    assert!(here == there, "another thread gives other bits");
}
