//! Reproducible plans: every device divides the same lanes, and what cannot be reproducible is
//! refused.

use reduce_planner::{
    Access, Combine, Device, Direction, ElementType, Illegal, InputSpec, ListProblem, Numerics,
    OperatorClass, OutputSpec, Plan, PlanError, Problem, Schedule, ScheduleKind, SecondSpec,
    candidates, choose, choose_list, force, reproducible::lanes, row_major_strides,
};

const SUM: OperatorClass = OperatorClass::new("sum", 4).by_position();
const NORM: OperatorClass = OperatorClass::new("norm_l2", 12).fields(3).by_position();
const MAX: OperatorClass = OperatorClass::new("max", 4).blockwise().exact();
const VAR: OperatorClass = OperatorClass::new("var", 20).fields(5).blockwise();

const LENGTHS: [usize; 12] =
    [1, 3, 8, 31, 128, 1000, 4096, 32_000, 50_257, 1 << 20, (1 << 24) + 1, 1 << 28];

fn strided(
    operator: OperatorClass,
    element: ElementType,
    shape: &[usize],
    strides: &[usize],
    axes: &[usize],
) -> Problem {
    let input = InputSpec { element, shape, strides, alignment: 256 };
    let output = OutputSpec { elements: &[element], strides: None };
    let problem = Problem::new(operator, &input, Some(axes), &output).unwrap();
    problem.with_numerics(Numerics::Reproducible)
}

fn problem(operator: OperatorClass, shape: &[usize], axes: &[usize]) -> Problem {
    strided(operator, ElementType::F32, shape, &row_major_strides(shape), axes)
}

/// The devices of this crate, and one with no more than WebGPU promises.
fn devices() -> [Device; 4] {
    let mut least = Device::software_adapter();
    least.name = "WebGPU at its least".into();
    least.plane_operations = false;
    least.wide_atomics = false;
    least.max_units_per_cube = 256;
    least.shared_memory_bytes = 16_384;
    [Device::h200(), Device::m2_max(), Device::software_adapter(), least]
}

/// The lanes that a plan divides: those of a vector's components, of a unit, of a cube, of all
/// cubes.
fn divided(plan: &Plan) -> usize {
    let components = match plan.access.direction {
        Direction::Along => plan.access.vector,
        _ => 1,
    };
    let units = plan.schedule.units_per_output() * plan.schedule.cubes_per_output();
    components * plan.access.accumulators * units as usize
}

/// Every device has a plan for every slice, and all plans that it compares divide the lanes that
/// follow from the length.
#[test]
fn all_plans_divide_the_same_lanes() {
    for device in devices() {
        for operator in [SUM, NORM] {
            for len in LENGTHS {
                for batch in [1, 2, 5, 132, 4096].into_iter().filter(|batch| batch * len < 1 << 30)
                {
                    for problem in [
                        problem(operator, &[batch, len], &[1]),
                        problem(operator, &[len, batch], &[0]),
                        problem(operator, &[2, batch, len.div_ceil(2)], &[0, 2]),
                    ] {
                        let len = problem.reduction_len();
                        let all = candidates(&problem, &device).unwrap();
                        for plan in all.iter().map(|candidate| candidate.plan) {
                            let found = divided(&plan);
                            let what = format!("{len} in {batch} on {}: {plan}", device.name);
                            assert!(found == lanes(len) || found >= len && len <= 16, "{what}");
                            assert_eq!(plan.numerics, Numerics::Reproducible, "{what}");
                            plan.check(&problem, &device).unwrap();
                        }
                        let chosen = choose(&problem, &device).unwrap();
                        assert!(all.iter().any(|candidate| candidate.plan == chosen.plan));
                    }
                }
            }
        }
    }
}

/// Long rows that no vector divides are realigned, which leaves each element its lane. Several rows
/// that one output has are not: the loads of a row would go on from those of the last.
#[test]
fn realigned_rows_keep_their_lanes() {
    for device in [Device::h200(), Device::software_adapter()] {
        for len in [777, 9999, 50_257] {
            for operator in [SUM, NORM] {
                let plan = choose(&problem(operator, &[132, len], &[1]), &device).unwrap().plan;
                assert!(plan.access.realigned && plan.access.vector == 4, "{plan}");
            }
        }
        let short = choose(&problem(SUM, &[132, 31], &[1]), &device).unwrap().plan;
        assert!(!short.access.realigned, "{short}");
        let several = problem(SUM, &[5, 6, 777], &[0, 2]);
        let plan = choose(&several, &device).unwrap().plan;
        assert!(!plan.access.realigned, "{plan}");
        let access = plan.access.with_vector(4).with_realigned(true);
        let units = (lanes(5 * 777) / 4) as u32;
        let schedule = Schedule::Cube {
            units_per_output: units,
            outputs_per_cube: 1,
            combine: Combine::Shared,
        };
        let moved = Plan::new(access, schedule).with_numerics(Numerics::Reproducible);
        let error = moved.check(&several, &device).unwrap_err();
        let reason = Illegal::OtherBits { numerics: Numerics::Reproducible };
        assert!(matches!(&error, PlanError::Unfit { reason: found, .. } if *found == reason));
        let one = problem(SUM, &[6, 5 * 777], &[1]);
        moved.check(&one, &device).unwrap();
    }
}

/// A schedule is forced with the same lanes, or refused.
#[test]
fn forced_schedules_divide_the_same_lanes() {
    let device = Device::h200();
    let rows = problem(SUM, &[1000, 1000], &[1]);
    for kind in ScheduleKind::ALL {
        match force(kind, &rows, &device) {
            Ok(plan) => {
                assert_eq!((plan.schedule.kind(), divided(&plan)), (kind, 128));
            }
            Err(error) => assert!(matches!(error, PlanError::NoSchedule { .. }), "{error}"),
        }
    }
    let forced = ScheduleKind::ALL.map(|kind| force(kind, &rows, &device).is_ok());
    assert!(forced.iter().filter(|&&forced| forced).count() >= 3, "{forced:?}");
}

/// Reduced dimensions follow each other as positions do, whatever lies next to what in memory; so
/// do the strides of a second input.
#[test]
fn dimensions_in_the_order_of_positions() {
    let shape = [8, 4, 100];
    let turned = strided(SUM, ElementType::F32, &shape, &[400, 1, 4], &[1, 2]);
    let strides: Vec<usize> = turned.reduced().iter().map(|dim| dim.stride).collect();
    assert_eq!(strides, [1, 4]);
    let plain = turned.clone().with_numerics(Numerics::Deterministic);
    assert_ne!(plain.to_string(), turned.to_string());
    // Without gaps, they are one dimension as ever.
    assert_eq!(problem(SUM, &shape, &[1, 2]).reduced().len(), 1);

    let element = ElementType::F32;
    let input = InputSpec { element, shape: &shape, strides: &[400, 1, 4], alignment: 256 };
    let second = SecondSpec { element, strides: &[400, 100, 1], alignment: 256 };
    let output = OutputSpec { elements: &[element], strides: None };
    let pair = Problem::with_inputs(SUM, &input, Some(&second), None, Some(&[1, 2]), &output);
    let pair = pair.unwrap().with_numerics(Numerics::Reproducible);
    assert_eq!(pair.second().unwrap().strides().reduced, [100, 1]);
}

/// Exact operators have the plans that they have without a promise.
#[test]
fn exact_operators_have_the_free_plans() {
    let device = Device::h200();
    for shape in [[4096, 1000], [3, 1 << 20]] {
        let exact = problem(MAX, &shape, &[1]);
        let free = choose(&exact.clone().with_numerics(Numerics::Deterministic), &device).unwrap();
        let plan = choose(&exact, &device).unwrap().plan;
        assert_eq!(plan, free.plan.with_numerics(Numerics::Reproducible));
        assert_eq!(plan.to_string(), format!("{}; reproducible", free.plan));
        plan.check(&exact, &device).unwrap();
    }
}

/// What has no reproducible form is refused with its name.
#[test]
fn refusals() {
    let device = Device::h200();
    let error = choose(&problem(VAR, &[64, 1000], &[1]), &device).unwrap_err();
    assert_eq!(error.to_string(), "var has no form with the same bits on every device");
    assert!(error.is_not_reproducible());
    let element = ElementType::F32;
    let input = InputSpec { element, shape: &[1000], strides: &[1], alignment: 256 };
    let list = ListProblem::new(SUM, &[input], &[element]).unwrap();
    let error = choose_list(&list.with_numerics(Numerics::Reproducible), &device).unwrap_err();
    assert_eq!(error.to_string(), "sum of a list has no form with the same bits on every device");
}

/// A plan of a caller or a file must divide the lanes, and promise to.
#[test]
fn other_plans_are_refused() {
    let device = Device::h200();
    let rows = problem(SUM, &[1000, 1000], &[1]);
    let plan = choose(&rows, &device).unwrap().plan;
    let refused = |plan: Plan, problem: &Problem| match plan.check(problem, &device).unwrap_err() {
        PlanError::Unfit { reason, .. } => reason,
        error => panic!("{error}"),
    };
    let free = plan.with_numerics(Numerics::Deterministic);
    assert!(matches!(refused(free, &rows), Illegal::Numerics { .. }));
    let unasked = rows.clone().with_numerics(Numerics::Deterministic);
    assert!(matches!(refused(plan, &unasked), Illegal::Numerics { .. }));
    let mut fewer = plan;
    fewer.access = fewer.access.with_vector(1).with_loads_in_flight(4);
    assert!(matches!(refused(fewer, &rows), Illegal::OtherBits { .. }));
    let mut chains = plan;
    chains.access.loads_in_flight = 3;
    assert!(matches!(refused(chains, &rows), Illegal::OtherBits { .. }));
    let mut accumulators = plan;
    accumulators.access = accumulators.access.with_loads_in_flight(4).with_accumulators(3);
    assert!(matches!(refused(accumulators, &rows), Illegal::Accumulators { .. }));
    let several = Access::new(Direction::Along).with_loads_in_flight(4).with_accumulators(4);
    let several = Plan::new(several, Schedule::Unit { units_per_cube: 256 });
    assert!(matches!(refused(several, &unasked), Illegal::Accumulators { .. }));
}

/// A unit takes several lanes of short columns, so that each is no more work than in a free plan.
#[test]
fn short_columns_take_several_accumulators() {
    let device = Device::h200();
    for len in [4, 16, 128] {
        let plan = choose(&problem(SUM, &[len, 1 << 20], &[0]), &device).unwrap().plan;
        assert!(plan.access.accumulators > 1, "{len}: {plan}");
        assert!(plan.schedule.units_per_output() <= 4, "{len}: {plan}");
    }
}

/// A plan by position is expected to take little longer than a free one. Rows that no vector
/// divides are the exception: peeled ends would move the lanes.
#[test]
fn estimates_are_near_those_of_free_plans() {
    let device = Device::h200();
    for (shape, axis) in [
        ([1, 1 << 28], 1),
        ([65_536, 1024], 1),
        ([65_536, 1024], 0),
        ([8192, 8192], 1),
        ([8192, 8192], 0),
        ([1 << 20, 32], 1),
        ([128, 1 << 20], 0),
        ([1 << 20, 64], 0),
    ] {
        let problem = problem(SUM, &shape, &[axis]);
        let own = choose(&problem, &device).unwrap();
        let free = choose(&problem.with_numerics(Numerics::Deterministic), &device).unwrap();
        let ratio = own.estimate.microseconds() / free.estimate.microseconds();
        assert!(ratio < 1.15, "{shape:?} over {axis}: {ratio}\n{}\n{}", own.plan, free.plan);
    }
}
