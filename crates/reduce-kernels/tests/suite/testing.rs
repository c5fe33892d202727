//! The feature `testing`: that what it gives users tries everything, and finds what is wrong.

use std::collections::BTreeSet;

use reduce_kernels::{
    ErrorKind, Max, Sum,
    cubecl::{self, prelude::*},
    operator::{A, In, Mapped, One, Operator, Out, Parameters, Position, TypeRule, Value, rules},
    operators::MaxWithIndex,
    pairs::SquaredDifference,
    planner::{Direction, PlanError, ScheduleKind},
    testing::{Law, Random, TestError, Tolerance, check_every_plan, check_laws},
};

use crate::run::{capable_device, source};

/// An operator that breaks a law: to merge is to subtract.
#[derive(Clone, Copy, Debug)]
struct Difference;

#[cube]
impl Operator for Difference {
    type Inputs = One;
    type Fields = One;
    type Results = One;

    const NAME: &'static str = "difference";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;

    fn identity<N: Size>() -> Value<A, N> {
        Value::new(Vector::from_int(0))
    }

    fn push<N: Size>(
        accumulator: Value<A, N>,
        value: Vector<In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        Value::new(accumulator.value + Vector::cast_from(value))
    }

    fn merge<N: Size>(
        left: Value<A, N>,
        right: Value<A, N>,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        Value::new(left.value - right.value)
    }

    fn finish<N: Size>(
        accumulator: Value<A, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        Value::new(Vector::cast_from(accumulator.value))
    }
}

/// An operator without a kernel: it reads a parameter that it does not have.
#[derive(Clone, Copy, Debug)]
struct Unbuildable;

#[cube]
impl Operator for Unbuildable {
    type Inputs = One;
    type Fields = One;
    type Results = One;

    const NAME: &'static str = "unbuildable";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;

    fn identity<N: Size>() -> Value<A, N> {
        Value::new(Vector::from_int(0))
    }

    fn push<N: Size>(
        accumulator: Value<A, N>,
        _value: Vector<In, N>,
        _position: Position,
        parameters: &Parameters,
    ) -> Value<A, N> {
        Value::new(accumulator.value + Vector::new(parameters.get::<A>(0usize)))
    }

    fn merge<N: Size>(
        left: Value<A, N>,
        right: Value<A, N>,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        Value::new(left.value + right.value)
    }

    fn finish<N: Size>(
        accumulator: Value<A, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        Value::new(Vector::cast_from(accumulator.value))
    }
}

fn small_integer(random: &mut Random) -> f32 {
    random.integer(-20..=20) as f32
}

/// The highest of the elements, and where it is first.
fn highest(elements: &[f64]) -> (f64, f64) {
    let higher = |best: (f64, f64), (at, &value): (usize, &f64)| {
        if value > best.0 { (value, at as f64) } else { best }
    };
    elements.iter().enumerate().fold((f64::NEG_INFINITY, 0.0), higher)
}

/// Protects that a test of an operator runs each schedule with each way of reading, in both
/// directions, for operators of one result and of several, of wide and of narrow elements.
pub(crate) fn try_everything(client: &Client) {
    let device = capable_device(client);
    let plans = check_every_plan(
        client,
        &device,
        |inputs| inputs.reduce(Sum),
        small_integer,
        |elements| elements.iter().sum(),
        Tolerance::EXACT,
    )
    .unwrap_or_else(|error| panic!("{error}"));
    let tried: BTreeSet<_> = plans
        .iter()
        .map(|plan| {
            let access = plan.access;
            let across = access.direction == Direction::Across;
            (plan.schedule.kind(), across, access.peeled, access.realigned, access.vector > 1)
        })
        .collect();
    for kind in ScheduleKind::ALL {
        for across in [false, true] {
            // Planes that read across need to be of one size.
            let in_planes = kind == ScheduleKind::Plane && across;
            if in_planes && device.plane_size_min != device.plane_size_max {
                continue;
            }
            let in_cubes = matches!(kind, ScheduleKind::Cube | ScheduleKind::Split);
            for (peeled, realigned, vectors) in [
                (false, false, false),
                (false, false, true),
                (true, false, true),
                (false, true, true),
            ] {
                if realigned && across && !in_cubes {
                    continue;
                }
                let way = (kind, across, peeled, realigned, vectors);
                assert!(tried.contains(&way), "{way:?} is not among {tried:?}");
            }
        }
    }

    check_every_plan(
        client,
        &device,
        |inputs| inputs.reduce(MaxWithIndex),
        small_integer,
        highest,
        (Tolerance::EXACT, Tolerance::EXACT),
    )
    .unwrap_or_else(|error| panic!("{error}"));

    let short = |random: &mut Random| half::f16::from_f32(small_integer(random));
    let max = |elements: &[f64]| highest(elements).0;
    let narrow = check_every_plan(
        client,
        &device,
        |inputs| inputs.reduce(Max),
        short,
        max,
        Tolerance::EXACT,
    );
    match narrow {
        // Not every device has f16.
        Ok(_) => {}
        Err(TestError::Reduce(error)) if source::<PlanError>(&error).is_some() => {}
        Err(error) => panic!("{error}"),
    }
}

/// Protects that a test of an operator names what is wrong: a result that differs, a law that is
/// broken by the last of many triples, types that the operator refuses.
pub(crate) fn find_what_is_wrong(client: &Client) {
    let device = capable_device(client);
    let off_by_one = check_every_plan(
        client,
        &device,
        |inputs| inputs.reduce(Sum),
        small_integer,
        |elements| elements.iter().sum::<f64>() + 1.0,
        Tolerance::EXACT.with_absolute(0.5),
    );
    let Err(TestError::WrongResult { nth: 0, output: 0, found, expected, run, .. }) = off_by_one
    else {
        panic!("{off_by_one:?}")
    };
    assert_eq!(found + 1.0, expected);
    assert_eq!(run.operator, "sum");

    let mut triples = vec![[0.0; 3]; 20_000];
    check_laws(client, Sum, &triples, Tolerance::EXACT).unwrap();
    check_laws(client, Difference, &triples, Tolerance::EXACT).unwrap();
    check_laws(client, Difference, &[], Tolerance::EXACT).unwrap();
    triples.push([1.0, 2.0, 3.0]);
    let broken = check_laws(client, Difference, &triples, Tolerance::EXACT);
    let Err(TestError::BrokenLaw { law: Law::LeftIdentity, elements, expected, found, .. }) =
        broken
    else {
        panic!("{broken:?}")
    };
    assert_eq!((elements, expected, found), (vec![[1.0, 2.0, 3.0]], 1.0, -1.0));
    let of_pairs = Mapped { map: SquaredDifference, operator: Difference };
    let pairs = [[(3.0, 3.0); 3], [(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)]];
    let broken = check_laws(client, of_pairs, &pairs, Tolerance::EXACT);
    let Err(TestError::BrokenLaw { law: Law::LeftIdentity, elements, expected, found, .. }) =
        broken
    else {
        panic!("{broken:?}")
    };
    let of_inputs = vec![[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]];
    assert_eq!((elements, expected, found), (of_inputs, 4.0, -4.0));

    let tolerance = Tolerance::EXACT.with_absolute(1.0);
    let one = |_: &mut Random| 1.0f32;
    let refused = check_every_plan(
        client,
        &device,
        |inputs| inputs.reduce(Sum).nth_output_type(2, reduce_kernels::ElementType::F32),
        one,
        |_| 0.0,
        tolerance,
    );
    let Err(TestError::Reduce(error)) = refused else { panic!("{refused:?}") };
    assert_eq!(error.kind(), ErrorKind::Arguments);
    assert_eq!(error.to_string(), "`sum` has no result 2: it has 1, counted from 0");
}

/// Protects that an operator whose kernel cannot be built does not pass for one that keeps the
/// laws.
pub(crate) fn find_what_never_ran(client: &Client) {
    let found = check_laws(client, Unbuildable, &[[1.0, 2.0, 3.0]], Tolerance::FEW_ROUNDINGS);
    assert!(found.is_err(), "{found:?}");
}
