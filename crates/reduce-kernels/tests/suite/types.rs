//! Every operator on every element type that the device has.

use half::{bf16, f16};
use reduce_kernels::{
    Max, Mean, Min, Prod, ReduceError, Sum, cubecl::prelude::*, device_of, planner::PlanError,
    reduce,
};

use crate::{
    case::Case,
    run::{Checked, Element, check, client, device_with_planes, plans, tensor},
};

/// Vectors along and across, ragged and whole, one launch and two.
fn cases() -> Vec<Case> {
    vec![
        Case::contiguous(&[13, 1001], &[1]),
        Case::contiguous(&[600, 48], &[0]),
        Case::contiguous(&[30_000], &[0]),
        Case::permuted(&[6, 9, 10], &[2, 0, 1], &[0, 2]),
    ]
}

/// What became of an operator on a type.
fn outcome<R: Runtime, O: Checked, E: Element, U: Element>(
    client: &ComputeClient<R>,
) -> &'static str {
    let device = device_of(client);
    let supported = device.has(E::TYPE) && device.has(U::TYPE);
    for (seed, case) in cases().iter().enumerate() {
        match check::<R, O, E, U>(client, case, None, seed as u64) {
            Ok(()) => assert!(supported, "{} ran on a device without it", E::TYPE),
            Err(ReduceError::Plan(PlanError::ElementUnsupported { element, .. })) => {
                assert!(!device.has(element), "{element} refused by a device that has it");
                return "refused";
            }
            Err(other) => panic!("{} of {} to {}: {other}", O::NAME, E::TYPE, U::TYPE),
        }
    }
    "passed"
}

/// The table of operators and types: each cell passes, or is refused for a type the device lacks.
pub fn every_operator_and_type<R: Runtime>() {
    let client = client::<R>();
    println!("{}", R::name(&client));
    macro_rules! row {
        ($operator:ident) => {
            println!(
                "{:>6}  f16: {}  bf16: {}  f32: {}  f64: {}  i32: {}  u32: {}",
                stringify!($operator),
                outcome::<R, $operator, f16, f16>(&client),
                outcome::<R, $operator, bf16, bf16>(&client),
                outcome::<R, $operator, f32, f32>(&client),
                outcome::<R, $operator, f64, f64>(&client),
                outcome::<R, $operator, i32, i32>(&client),
                outcome::<R, $operator, u32, u32>(&client),
            );
        };
    }
    row!(Sum);
    row!(Prod);
    row!(Max);
    row!(Min);
    println!(
        "  Mean  f16: {}  bf16: {}  f32: {}  f64: {}  i32: {}  u32: {}",
        outcome::<R, Mean, f16, f16>(&client),
        outcome::<R, Mean, bf16, bf16>(&client),
        outcome::<R, Mean, f32, f32>(&client),
        outcome::<R, Mean, f64, f64>(&client),
        outcome::<R, Mean, i32, f32>(&client),
        outcome::<R, Mean, u32, f32>(&client),
    );
}

/// Outputs of another type than the input's, with the accumulator that goes with them.
pub fn requested_output_types<R: Runtime>() {
    let client = client::<R>();
    outcome::<R, Sum, f16, f32>(&client);
    outcome::<R, Sum, f32, f64>(&client);
    outcome::<R, Sum, i32, f64>(&client);
    outcome::<R, Mean, i32, f64>(&client);
    outcome::<R, Mean, bf16, f32>(&client);
    outcome::<R, Max, f32, f64>(&client);
    outcome::<R, Min, i32, f32>(&client);
}

/// Wide vectors of small types, narrow ones of large types, and integers, through every schedule:
/// whole and ragged, along and across.
pub fn every_type_through_every_schedule<R: Runtime>() {
    fn forced<R: Runtime, O: Checked, E: Element>(client: &ComputeClient<R>) -> u64 {
        let device = device_with_planes(client);
        if !device.has(E::TYPE) {
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
            let data = vec![E::from_f64(0.0); case.span()];
            let input = tensor(client, &data, &case.shape, &case.strides);
            let reduction = reduce::<O, R>(&input).over(case.axes.as_slice()).to_type(E::TYPE);
            for plan in plans(&reduction.problem().unwrap(), &device) {
                check::<R, O, E, E>(client, &case, Some(plan), runs).unwrap();
                runs += 1;
            }
        }
        runs
    }
    let client = client::<R>();
    let runs = forced::<R, Max, f16>(&client)
        + forced::<R, Mean, bf16>(&client)
        + forced::<R, Sum, f64>(&client)
        + forced::<R, Sum, i32>(&client)
        + forced::<R, Min, u32>(&client);
    println!("{}: {runs} runs", R::name(&client));
}
