//! Batch-invariant plans: how a slice is divided does not depend on the number of outputs.

use reduce_planner::{
    AppliedPlan, AppliedProblem, AppliedSpec, Device, ElementCost, ElementType, Illegal, InputSpec,
    ListProblem, Numerics, OperatorClass, OutputSpec, Plan, PlanError, Planned, Problem, Schedule,
    SecondSpec, choose, choose_applied, choose_list, force, row_major_strides,
};

const SUM: OperatorClass = OperatorClass::new("sum", 4);
const VAR: OperatorClass = OperatorClass::new("var", 20).fields(5).blockwise();
const LOG_SUM_EXP: OperatorClass =
    OperatorClass::new("logsumexp", 8).fields(2).blockwise().element_cost(ElementCost::Exponential);
const ARG_MAX: OperatorClass = OperatorClass::new("argmax", 8).fields(2).positional().exact();
const OPERATORS: [OperatorClass; 4] = [SUM, VAR, LOG_SUM_EXP, ARG_MAX];

/// Lengths that no vector divides are among them.
const LENGTHS: [usize; 9] = [8, 31, 256, 1000, 4096, 32_000, 50_257, 151_936, 1 << 22];

const BATCHES: [usize; 9] = [2, 3, 7, 64, 132, 1000, 1001, 4096, 16_384];

fn problem(operator: OperatorClass, shape: &[usize], axes: &[usize]) -> Problem {
    let element = ElementType::F32;
    let strides = row_major_strides(shape);
    let input = InputSpec { element, shape, strides: &strides, alignment: 256 };
    let output = OutputSpec { elements: &[element], strides: None };
    let problem = Problem::new(operator, &input, Some(axes), &output).unwrap();
    problem.with_numerics(Numerics::BatchInvariant)
}

fn applied(operator: OperatorClass, shape: &[usize], axes: &[usize]) -> (AppliedProblem, Problem) {
    let element = ElementType::F32;
    let strides = row_major_strides(shape);
    let input = InputSpec { element, shape, strides: &strides, alignment: 256 };
    let results = vec![0; shape.len()];
    let spec =
        AppliedSpec { element, strides: None, second: None, companions: &[&results], further: &[] };
    let applied = AppliedProblem::new(operator, &input, Some(axes), &spec).unwrap();
    let output = OutputSpec { elements: &[element], strides: None };
    let reduction = Problem::new(operator, &input, Some(axes), &output).unwrap();
    let numerics = Numerics::BatchInvariant;
    (applied.with_numerics(numerics), reduction.with_numerics(numerics))
}

fn devices() -> [Device; 3] {
    [Device::h200(), Device::m2_max(), Device::software_adapter()]
}

/// A schedule, without who merges: partials of very many outputs are merged by a second launch.
fn shared_units(plan: Plan) -> (u32, u32, u32) {
    let schedule = plan.schedule;
    (schedule.units_per_output(), schedule.outputs_per_cube(), schedule.cubes_per_output())
}

/// A batch of one slice has the plan of others, though its second input looks like one that all
/// slices share.
#[test]
fn pairs_of_a_length_have_one_plan() {
    let cosine = OperatorClass::new("cosine_similarity", 12).fields(3);
    let dot = OperatorClass::new("dot", 4);
    for (device, operator, len) in devices()
        .iter()
        .flat_map(|device| [dot, cosine].map(|operator| (device, operator)))
        .flat_map(|(device, operator)| LENGTHS.map(|len| (device, operator, len)))
    {
        let of = |batch: usize, shared: bool| {
            let (element, shape) = (ElementType::F32, [batch, len]);
            let strides = row_major_strides(&shape);
            let input = InputSpec { element, shape: &shape, strides: &strides, alignment: 256 };
            let strides = if shared { [0, 1] } else { [len, 1] };
            let second = SecondSpec { element, strides: &strides, alignment: 256 };
            let output = OutputSpec { elements: &[element], strides: None };
            let problem =
                Problem::with_inputs(operator, &input, Some(&second), None, Some(&[1]), &output);
            let plan = choose(&problem.unwrap().with_numerics(Numerics::BatchInvariant), device);
            let plan = plan.unwrap().plan;
            (plan.access, shared_units(plan))
        };
        let alone = of(1, false);
        let batches = [(2, false), (33, false), (1000, false), (33, true)];
        for (batch, shared) in batches.into_iter().filter(|&(batch, _)| batch * len < 1 << 30) {
            assert_eq!(of(batch, shared), alone, "{} {batch} x {len}", operator.name);
        }
    }
}

/// Rows of one length have one plan, whatever their number: one kernel serves all batches.
#[test]
fn rows_of_a_length_have_one_plan() {
    for device in devices() {
        for operator in OPERATORS {
            for len in LENGTHS {
                let of = |batch: usize| {
                    choose(&problem(operator, &[batch, len], &[1]), &device).unwrap().plan
                };
                let one = of(1);
                assert_eq!(one.numerics, Numerics::BatchInvariant);
                for batch in BATCHES.into_iter().filter(|batch| batch * len < 1 << 30) {
                    let plan = of(batch);
                    assert_eq!(plan.access, one.access, "{batch} rows of {len}");
                    assert_eq!(shared_units(plan), shared_units(one), "{batch} rows of {len}");
                }
            }
        }
    }
}

/// Long rows that no vector divides are realigned, alone and beside others, sliced and whole. Rows
/// of fewer than eight vectors are read element by element, and so are those of an operator of many
/// fields. Plans that read them otherwise are refused, since they have other bits.
#[test]
fn rows_that_no_vector_divides_are_realigned() {
    let sliced = |rows: usize, len: usize| {
        let element = ElementType::F32;
        let input =
            InputSpec { element, shape: &[rows, len], strides: &[len + 1, 1], alignment: 256 };
        let output = OutputSpec { elements: &[element], strides: None };
        let problem = Problem::new(SUM, &input, Some(&[1]), &output).unwrap();
        problem.with_numerics(Numerics::BatchInvariant)
    };
    for device in devices() {
        for (problem, realigned) in [
            (problem(SUM, &[1, 777], &[1]), true),
            (problem(VAR, &[64, 777], &[1]), false),
            (problem(ARG_MAX, &[64, 777], &[1]), false),
            (problem(SUM, &[4096, 50_257], &[1]), true),
            (problem(SUM, &[5, 64, 777], &[0, 2]), true),
            (sliced(64, 1024), true),
            (sliced(64, 1025), true),
            (problem(SUM, &[64, 1024], &[1]), false),
            (problem(SUM, &[64, 31], &[1]), false),
            (sliced(64, 31), false),
        ] {
            let plan = choose(&problem, &device).unwrap().plan;
            assert_eq!(plan.access.realigned, realigned, "{plan}");
            let representative = problem.representative(&device).unwrap();
            let model = choose(&representative, &device).unwrap().plan;
            assert_eq!(model.access, plan.access, "{representative}");
        }
        let odd = problem(SUM, &[64, 777], &[1]);
        let plan = choose(&odd, &device).unwrap().plan;
        let single = plan.access.with_realigned(false).with_vector(1);
        let peeled = plan.access.with_realigned(false).with_peeled(true);
        for access in [single, peeled] {
            let other = Plan::new(access, plan.schedule).with_numerics(plan.numerics);
            let error = other.check(&odd, &device).unwrap_err();
            assert!(error.to_string().contains("in another order"), "{error}");
        }
    }
}

/// The order of elements does not matter to an exact operator, whose rows are read in vectors
/// wherever they begin, by one plan for all batches.
#[test]
fn rows_of_exact_operators_are_peeled() {
    for device in devices() {
        for batch in [1, 64, 4096] {
            let problem = problem(ARG_MAX, &[batch, 50_257], &[1]);
            let plan = choose(&problem, &device).unwrap().plan;
            assert!(plan.access.peeled && plan.access.vector > 1, "{plan}");
            let representative = problem.representative(&device).unwrap();
            let model = choose(&representative, &device).unwrap().plan;
            assert_eq!(model.access, plan.access, "{representative}");
        }
    }
}

/// Results of operators of many fields are applied to realigned rows, whether these are held, read
/// again or reduced apart.
#[test]
fn applied_rows_that_no_vector_divides_are_realigned() {
    for device in devices() {
        for (operator, shape, realigned) in [
            (VAR, [64, 777], true),
            (VAR, [64, 50_257], true),
            (VAR, [64, 31], false),
            (VAR, [64, 1000], false),
            (LOG_SUM_EXP, [64, 777], false),
        ] {
            let (applied, reduction) = applied(operator, &shape, &[1]);
            let plan = choose_applied(&applied, &reduction, &device).unwrap().plan;
            let access = match plan {
                AppliedPlan::Held { plan, .. } | AppliedPlan::ReadAgain(plan) => plan.access,
                AppliedPlan::Separately { reduce, apply } => {
                    assert_eq!(reduce.access.realigned, realigned, "{plan}");
                    apply.access
                }
                other => panic!("{other}"),
            };
            assert_eq!(access.realigned, realigned, "{plan}");
            plan.check(&applied, &reduction, &device).unwrap();
        }
    }
}

/// The units and the cubes of a column do not depend on the number of columns. Vectors do: there
/// are at most three plans for all of them.
#[test]
fn columns_of_a_length_have_one_division() {
    for device in devices() {
        for operator in OPERATORS {
            for len in LENGTHS {
                let plans: Vec<Plan> = BATCHES
                    .iter()
                    .filter(|&&batch| batch * len < 1 << 30)
                    .map(|&batch| problem(operator, &[len, batch], &[0]))
                    .map(|problem| choose(&problem, &device).unwrap().plan)
                    .collect();
                let division = |plan: &Plan| {
                    (plan.schedule.units_per_output(), plan.schedule.cubes_per_output())
                };
                for plan in &plans {
                    assert_eq!(division(plan), division(&plans[0]), "{len}: {plan}");
                }
                let mut distinct = plans.clone();
                distinct.sort_by_key(ToString::to_string);
                distinct.dedup();
                let texts: Vec<String> = distinct.iter().map(ToString::to_string).collect();
                assert!(distinct.len() <= 3, "{} of {len}: {texts:#?}", operator.name);
            }
        }
    }
}

/// A column of several dimensions is divided as one in whose middle lies a single slice, where they
/// are one dimension.
#[test]
fn columns_of_several_dimensions_have_the_division_of_one() {
    for device in devices() {
        for operator in OPERATORS {
            let of = |batch: usize| {
                let problem = problem(operator, &[64, batch, 64, 128], &[0, 2]);
                choose(&problem, &device).unwrap().plan.schedule
            };
            let units =
                |schedule: Schedule| (schedule.units_per_output(), schedule.cubes_per_output());
            for batch in [2, 3, 64] {
                assert_eq!(units(of(batch)), units(of(1)), "{}: {batch}", operator.name);
            }
        }
    }
}

/// A row that is applied to has one plan, and it is the same whether others lie beside it or not.
#[test]
fn applied_rows_of_a_length_have_one_kind_of_plan() {
    for device in devices() {
        for len in LENGTHS {
            let of = |batch: usize| {
                let (applied, reduction) = applied(LOG_SUM_EXP, &[batch, len], &[1]);
                choose_applied(&applied, &reduction, &device).unwrap().plan
            };
            let one = of(1);
            for batch in BATCHES.into_iter().filter(|batch| batch * len < 1 << 30) {
                assert_eq!(of(batch), one, "{batch} rows of {len}");
            }
        }
    }
}

/// Problems with the same slices have one representative, and its plan, fitted, is their own.
#[test]
fn a_representative_stands_for_all_batches() {
    for device in devices() {
        for operator in OPERATORS {
            // Indices of 32 bits reach few of the longest slices, and not as many as usually stand
            // for all.
            for len in LENGTHS.into_iter().chain([1 << 26, 1 << 28]) {
                let mut of_rows = None;
                let mut of_columns = None;
                for batch in BATCHES.into_iter().filter(|&batch| batch * len < 1 << 30) {
                    for (shape, axis, known) in
                        [([batch, len], 1, &mut of_rows), ([len, batch], 0, &mut of_columns)]
                    {
                        let problem = problem(operator, &shape, &[axis]);
                        let found = problem.representative(&device).unwrap();
                        let known = known.get_or_insert_with(|| found.clone());
                        assert_eq!(*known, found, "{shape:?}");
                        let plan = found.choose(&device).unwrap().plan;
                        let fitted = problem.fitted(&plan, &device).unwrap();
                        assert_eq!(fitted, problem.choose(&device).unwrap().plan, "{shape:?}");
                    }
                    if operator == LOG_SUM_EXP {
                        let problems = applied(LOG_SUM_EXP, &[batch, len], &[1]);
                        let found = problems.representative(&device).unwrap();
                        let plan = found.choose(&device).unwrap().plan;
                        let fitted = problems.fitted(&plan, &device).unwrap();
                        assert_eq!(fitted, problems.choose(&device).unwrap().plan, "{len}");
                    }
                }
            }
        }
    }
    let free = problem(SUM, &[4, 4], &[1]).with_numerics(Numerics::Deterministic);
    assert!(free.representative(&Device::h200()).is_none());
}

/// A plan that divides slices otherwise is refused, and so is one that promises less.
#[test]
fn other_divisions_are_refused() {
    let device = Device::h200();
    let rows = problem(SUM, &[1000, 4096], &[1]);
    let chosen = choose(&rows, &device).unwrap().plan;
    chosen.check(&rows, &device).unwrap();
    let reason = |plan: Plan| match plan.check(&rows, &device) {
        Err(PlanError::Unfit { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    let promised = Numerics::BatchInvariant;
    let less = chosen.with_numerics(Numerics::Deterministic);
    let found = Numerics::Deterministic;
    assert_eq!(reason(less), Illegal::Numerics { found, expected: promised });
    let narrower = Plan::new(chosen.access.with_vector(2), chosen.schedule).with_numerics(promised);
    assert_eq!(reason(narrower), Illegal::OtherBits { numerics: promised });
    // More outputs in a cube leave the bits as they are.
    let free = problem(SUM, &[1000, 4096], &[1]).with_numerics(Numerics::Deterministic);
    for kind in reduce_planner::ScheduleKind::ALL {
        match force(kind, &rows, &device) {
            Ok(plan) => assert_eq!(plan, chosen),
            Err(error) => assert!(error.to_string().contains("other bits"), "{error}"),
        }
    }
    chosen.check(&free, &device).unwrap();
}

/// A tensor of a list has as many cubes as it has alone.
#[test]
fn tensors_of_a_list_are_divided_as_alone() {
    let device = Device::h200();
    let lengths = [1000usize, 70_001, 4_000_000, 16];
    let list = |lengths: &[usize]| {
        let shapes: Vec<[usize; 1]> = lengths.iter().map(|&len| [len]).collect();
        let inputs: Vec<InputSpec<'_>> = shapes
            .iter()
            .map(|shape| InputSpec {
                element: ElementType::F32,
                shape,
                strides: &[1],
                alignment: 256,
            })
            .collect();
        let list = ListProblem::new(SUM, &inputs, &[ElementType::F32]).unwrap();
        let list = list.with_numerics(Numerics::BatchInvariant);
        let plan = choose_list(&list, &device).unwrap().plan;
        plan.check(&list, &device).unwrap();
        plan
    };
    let all = list(&lengths);
    for (nth, len) in lengths.into_iter().enumerate() {
        let alone = list(&[len]);
        let share = |plan: &reduce_planner::ListPlan, nth: usize| {
            let shares = plan.launches.iter().flat_map(|launch| &launch.tensors);
            shares.clone().find(|share| share.tensor == nth).unwrap().cubes
        };
        assert_eq!(share(&all, nth), share(&alone, 0), "{len}");
        let units = |plan: &reduce_planner::ListPlan| (plan.units_per_cube, plan.merging_units);
        assert_eq!(units(&all), units(&alone));
    }
}

/// What bits depend on is in the sentence, in the file, and in the line that keys a store.
#[test]
fn numerics_are_said() {
    let device = Device::h200();
    let rows = problem(SUM, &[1000, 4096], &[1]);
    let plan = choose(&rows, &device).unwrap().plan;
    assert!(plan.to_string().ends_with("; batch-invariant"), "{plan}");
    assert!(rows.to_string().ends_with(" | batch-invariant"), "{rows}");
    let text = serde_json::to_string(&plan).unwrap();
    assert!(text.contains(r#""numerics":"batch-invariant""#), "{text}");
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    let free = rows.with_numerics(Numerics::Deterministic);
    let text = serde_json::to_string(&choose(&free, &device).unwrap().plan).unwrap();
    assert!(!text.contains("numerics"), "{text}");
    assert!("fast".parse::<Numerics>().unwrap_err().to_string().contains("`fast`"));
}

/// Slices that one cube would take long for are shared by several, in all batches.
#[test]
fn long_slices_are_shared() {
    let device = Device::h200();
    let long = choose(&problem(SUM, &[1, 1 << 26], &[1]), &device).unwrap().plan;
    assert!(matches!(long.schedule, Schedule::Split { .. }), "{long}");
    let (applied, reduction) = applied(LOG_SUM_EXP, &[1, 1 << 26], &[1]);
    let long = choose_applied(&applied, &reduction, &device).unwrap().plan;
    assert!(matches!(long, AppliedPlan::Separately { .. }), "{long}");
}
