//! What the planner decides, asserted by equality: a change here is a change of behaviour, and the
//! measurements in `tuning.rs` must speak for it.

use reduce_planner::{
    Access, Combine, Device, Direction, ElementType, InputSpec, Merge, OperatorClass, OutputSpec,
    Plan, Problem, Reason, Refusal, Schedule, ScheduleKind, choose, force, row_major_strides,
};

const SUM: OperatorClass =
    OperatorClass { name: "sum", accumulator_bytes: 4, positional: false, defined_on_empty: true };

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

fn along(vector: usize, ragged: bool) -> Access {
    Access { direction: Direction::Along, vector, ragged, in_flight: 4 }
}

fn across(vector: usize, ragged: bool) -> Access {
    Access { direction: Direction::Across, vector, ragged, in_flight: 4 }
}

const PLANE: Combine = Combine::Plane { lanes: 32 };

#[test]
fn plans_on_the_h200() {
    let decisions = [
        // Few outputs: split until every multiprocessor has three cubes.
        (
            problem(&[1 << 28], &[0]),
            along(4, false),
            Schedule::Split {
                cubes: 396,
                workers: 512,
                outputs: 1,
                combine: PLANE,
                merge: Merge::LastCube,
            },
        ),
        (
            problem(&[16, 1 << 22], &[1]),
            along(4, false),
            Schedule::Split {
                cubes: 24,
                workers: 512,
                outputs: 1,
                combine: PLANE,
                merge: Merge::LastCube,
            },
        ),
        // Little to read: no more cubes than have a block of loads for each unit.
        (
            problem(&[1 << 16], &[0]),
            along(4, false),
            Schedule::Split {
                cubes: 8,
                workers: 512,
                outputs: 1,
                combine: PLANE,
                merge: Merge::LastCube,
            },
        ),
        // Rows: a plane each, a cube each where they are few, a unit each where they are short.
        (problem(&[8192, 8192], &[1]), along(4, false), Schedule::Plane { lanes: 32, units: 256 }),
        (problem(&[4096, 50257], &[1]), along(4, true), Schedule::Plane { lanes: 32, units: 256 }),
        (
            problem(&[128, 32768], &[1]),
            along(4, false),
            Schedule::Cube { workers: 512, outputs: 1, combine: PLANE },
        ),
        (problem(&[1 << 20, 32], &[1]), along(4, false), Schedule::Plane { lanes: 8, units: 256 }),
        (problem(&[1 << 24, 8], &[1]), along(4, false), Schedule::Unit { units: 256 }),
        // Columns: units stand across them.
        (
            problem(&[8192, 8192], &[0]),
            across(4, false),
            Schedule::Cube { workers: 64, outputs: 8, combine: Combine::Shared },
        ),
        (problem(&[256, 1 << 18], &[0]), across(4, false), Schedule::Unit { units: 64 }),
        (
            problem(&[64, 512, 1024], &[1]),
            across(4, false),
            Schedule::Cube { workers: 32, outputs: 16, combine: Combine::Shared },
        ),
        // Reduced groups around a kept one: one pass.
        (
            problem(&[64, 256, 56, 56], &[0, 2, 3]),
            along(4, false),
            Schedule::Cube { workers: 512, outputs: 1, combine: PLANE },
        ),
    ];
    for (problem, access, schedule) in decisions {
        let plan = choose(&problem, &Device::h200()).unwrap().plan;
        assert_eq!(plan, Plan::new(access, schedule), "{problem:?}");
    }
}

/// A broadcast tensor has few bytes but all its loads: it is shared out like any other.
#[test]
fn broadcast_tensors_fill_the_device() {
    let element = ElementType::F32;
    let input =
        InputSpec { element, shape: &[3, 1 << 20, 1 << 12], strides: &[1, 0, 0], alignment: 256 };
    let output = OutputSpec { elements: &[element], strides: None };
    let problem = Problem::new(SUM, &input, Some(&[1, 2]), &output).unwrap();
    let plan = choose(&problem, &Device::h200()).unwrap().plan;
    assert_eq!(plan.schedule.kind(), ScheduleKind::Split);
    assert!(plan.cubes(&problem) >= 256, "{plan}");
}

/// Without plane operations the plane schedule refuses, and cubes combine in shared memory.
#[test]
fn plans_on_the_software_adapter() {
    let choice = choose(&problem(&[100, 1000], &[1]), &Device::software_adapter()).unwrap();
    let refusal = Refusal { schedule: ScheduleKind::Plane, reason: Reason::NoPlaneOperations };
    assert!(choice.refused.contains(&refusal), "{:?}", choice.refused);
    for kind in [ScheduleKind::Cube, ScheduleKind::Split] {
        let plan = force(kind, &problem(&[2, 100_000], &[1]), &Device::software_adapter()).unwrap();
        assert_eq!(plan.schedule.combine(), Some(Combine::Shared));
    }
}

/// Every schedule is either taken or has a reason, in a fixed order.
#[test]
fn every_schedule_not_taken_has_its_reason() {
    let choice = choose(&problem(&[1 << 24, 8], &[1]), &Device::h200()).unwrap();
    let kinds: Vec<ScheduleKind> = choice.refused.iter().map(|refusal| refusal.schedule).collect();
    assert_eq!(kinds, [ScheduleKind::Plane, ScheduleKind::Cube, ScheduleKind::Split]);
    assert!(matches!(choice.refused[0].reason, Reason::Slower { .. }));
    let split = &choice.refused[2];
    assert!(matches!(split.reason, Reason::OutputsFillDevice { .. }), "{split}");
    let choice = choose(&problem(&[3], &[0]), &Device::h200()).unwrap();
    let text = choice.refused.last().unwrap().to_string();
    assert!(text.starts_with("split: too short to split: 3 loads per output"), "{text}");
    let choice = choose(&problem(&[8192, 4097], &[0]), &Device::h200()).unwrap();
    let plane = choice.refused.iter().find(|refusal| refusal.schedule == ScheduleKind::Plane);
    assert_eq!(plane.unwrap().reason, Reason::OutputsFillPlane { abreast: 32, plane: 32 });
}

/// The vector is the widest that alignment allows; odd rows are no reason for single elements.
#[test]
fn vectors_are_as_wide_as_alignment_allows() {
    let h200 = Device::h200();
    let widest = |problem: &Problem| Access::widest(problem, &h200);
    use ElementType::{F16, F32, F64};
    assert_eq!(widest(&problem_of(F16, &[64, 1024], &[1])), along(8, false));
    assert_eq!(widest(&problem_of(F32, &[64, 1024], &[1])), along(4, false));
    assert_eq!(widest(&problem_of(F64, &[64, 1024], &[1])), along(2, false));
    // Rows of no whole number of vectors: ragged if long, narrower if short.
    assert_eq!(widest(&problem_of(F16, &[64, 1023], &[1])), along(8, true));
    assert_eq!(widest(&problem(&[64, 30], &[1])), along(2, false));
    assert_eq!(widest(&problem(&[64, 7], &[1])), along(1, false));
    // Across outputs, rows must start on a boundary; padded ones do, and end raggedly.
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
            let expected = choose(&problem(&shape, &[axis]), &Device::h200()).unwrap();
            let time = expected.expected_microseconds;
            let ratio = last.map_or(1.0, |last| time / last);
            assert!((0.2..5.0).contains(&ratio), "{shape:?} axis {axis}: {time} after {last:?}");
            last = Some(time);
        }
    }
}
