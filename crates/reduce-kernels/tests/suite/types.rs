//! Every operator on every element type that the device has, and every operator through every
//! schedule.

use reduce_kernels::{
    ElementType, Operator, ReduceError, ScheduleKind, cubecl::prelude::*, device_of,
    planner::PlanError,
};

use crate::{
    case::Case,
    operators::{Checked, for_each_operator},
    run::{Asked, check, client, device_with_planes, problem_of, widest_plans},
};

/// What became of an operator on a type.
fn outcome<R: Runtime, O: Checked>(
    client: &ComputeClient<R>,
    element: ElementType,
    asked: Asked,
) -> &'static str {
    // Ragged vectors along or whole ones across, in turn: compiling takes longer than running.
    let case = match (O::NAME.len() + element.name().len() + element as usize) % 2 {
        0 => Case::contiguous(&[13, 1001], &[1]),
        _ => Case::contiguous(&[600, 48], &[0]),
    };
    let device = device_of(client);
    // A kernel of one cube compiles in a fraction of the time that one of a split takes. There is none
    // for a type that the device lacks.
    let plans = widest_plans(&problem_of::<R, O>(client, &case, element), &device);
    let plan = plans.into_iter().find(|plan| plan.schedule.kind() == ScheduleKind::Cube);
    match check::<R, O>(client, &case, element, Asked { plan, ..asked }, element as u64) {
        Ok(()) => {
            assert!(device.has(element), "{element} ran on a device without it");
            "passed"
        }
        Err(ReduceError::Plan(PlanError::ElementUnsupported { element, .. })) => {
            assert!(!device.has(element), "{element} refused by a device that has it");
            "refused"
        }
        Err(other) => panic!("{} of {element}: {other}", O::NAME),
    }
}

/// The table of operators and types: each cell passes, or is refused for a type the device lacks.
pub fn every_operator_and_type<R: Runtime>() {
    let client = client::<R>();
    let mut passed = 0;
    for_each_operator!(O => {
        let cells = ElementType::ALL.map(|element| {
            let outcome = outcome::<R, O>(&client, element, Asked::default());
            passed += usize::from(outcome == "passed");
            format!("{element} {outcome}")
        });
        println!("TABLE {} | {} | {}", R::name(&client), O::NAME, cells.join(" | "));
    });
    assert!(passed >= 32 * 3, "f32, i32 and u32 pass everywhere, truth aside: {passed}");
}

/// Accumulators and outputs of another type than the rule's.
pub fn requested_types<R: Runtime>() {
    use ElementType::*;
    use reduce_kernels::*;

    let client = client::<R>();
    let to = |output| Asked { outputs: [Some(output), None, None], ..Asked::default() };
    let within = |accumulator| Asked { accumulator: Some(accumulator), ..Asked::default() };
    let mut refused = 0;
    let mut count = |outcome: &str| refused += usize::from(outcome == "refused");
    count(outcome::<R, Sum>(&client, F16, to(F32)));
    count(outcome::<R, Sum>(&client, F32, to(F64)));
    count(outcome::<R, Sum>(&client, F32, within(F64)));
    count(outcome::<R, Sum>(&client, F64, within(F32)));
    count(outcome::<R, Sum>(&client, I32, within(I64)));
    count(outcome::<R, Sum>(&client, I32, to(I64)));
    count(outcome::<R, Sum>(&client, I8, to(I64)));
    count(outcome::<R, Sum>(&client, U8, to(U64)));
    count(outcome::<R, Sum>(&client, I32, to(F64)));
    count(outcome::<R, Sum>(&client, I8, to(F32)));
    count(outcome::<R, Mean>(&client, I32, to(F64)));
    count(outcome::<R, Mean>(&client, BF16, to(F32)));
    count(outcome::<R, Var>(&client, F32, to(F64)));
    count(outcome::<R, NormL2>(&client, I16, to(F64)));
    count(outcome::<R, LogSumExp>(&client, F64, within(F32)));
    count(outcome::<R, NormP>(&client, F64, within(F32)));
    count(outcome::<R, Max>(&client, F32, to(F64)));
    count(outcome::<R, Min>(&client, I32, to(F32)));
    count(outcome::<R, Max>(&client, U8, to(U32)));
    count(outcome::<R, ArgMax>(&client, F32, to(U64)));
    count(outcome::<R, ArgMin>(&client, U8, to(I32)));
    count(outcome::<R, CountNonzero>(&client, F32, to(F32)));
    count(outcome::<R, CountNonzero>(&client, F32, within(U64)));
    count(outcome::<R, Any>(&client, F32, to(U32)));
    count(outcome::<R, All>(&client, I32, to(F32)));
    let both = Asked { outputs: [Some(F32), Some(U64), None], ..Asked::default() };
    count(outcome::<R, MaxWithIndex>(&client, F16, both));
    println!("{}: {refused} of 26 refused for a type", R::name(&client));
}

/// Wide vectors of small types, narrow ones of large types, and integers, through every schedule:
/// whole and ragged, along and across.
pub fn every_type_through_every_schedule<R: Runtime>() {
    fn forced<R: Runtime, O: Checked>(client: &ComputeClient<R>, element: ElementType) -> u64 {
        let device = device_with_planes(client);
        if !device.has(element) {
            return 0;
        }
        let cases = [
            Case::contiguous(&[5, 4097], &[1]),
            Case::contiguous(&[3, 4096], &[1]),
            Case::pitched(&[600, 50], 64, &[0]),
            Case::contiguous(&[4, 6, 10, 24], &[0, 2, 3]),
        ];
        let mut runs = 0;
        for case in cases {
            for plan in widest_plans(&problem_of::<R, O>(client, &case, element), &device) {
                check::<R, O>(client, &case, element, Some(plan), runs).unwrap();
                runs += 1;
            }
        }
        runs
    }
    use ElementType::*;
    use reduce_kernels::*;

    let client = client::<R>();
    let runs = forced::<R, Max>(&client, F16)
        + forced::<R, Mean>(&client, BF16)
        + forced::<R, Sum>(&client, F64)
        + forced::<R, Sum>(&client, I8)
        + forced::<R, SumSquares>(&client, U16)
        + forced::<R, ArgMax>(&client, U8)
        + forced::<R, Sum>(&client, I32)
        + forced::<R, MinMax>(&client, I64)
        + forced::<R, CountNonzero>(&client, Bool);
    println!("{}: {runs} runs", R::name(&client));
}

/// Every operator through every schedule: ragged vectors along, and whole ones across.
pub fn every_operator_through_every_schedule<R: Runtime>() {
    let client = client::<R>();
    let device = device_with_planes(&client);
    let cases = [Case::contiguous(&[3, 20_001], &[1]), Case::contiguous(&[9000, 12], &[0])];
    let mut runs = 0;
    for_each_operator!(O => {
        for case in &cases {
            let problem = problem_of::<R, O>(&client, case, ElementType::F32);
            let truth = O::NAME == "any" || O::NAME == "all";
            // Devices without bytes have no bools.
            let output = truth.then_some(ElementType::U32);
            for plan in widest_plans(&problem, &device) {
                let asked = Asked { plan: Some(plan), outputs: [output, None, None], ..Asked::default() };
                check::<R, O>(&client, case, ElementType::F32, asked, runs).unwrap();
                runs += 1;
            }
        }
    });
    println!("{}: {runs} runs", R::name(&client));
}
