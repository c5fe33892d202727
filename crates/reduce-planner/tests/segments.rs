//! Segments: what the planner decides, and what a plan may not do.

use reduce_planner::{
    Access, AppliedKind, AppliedPlan, AppliedProblem, AppliedSpec, Combine, Device, Direction,
    ElementType, Illegal, IndicesSpec, InputSpec, Numerics, OperatorClass, OutputSpec, PlanError,
    Planned, Problem, ProblemError, Role, SegmentsMerge, SegmentsPlan, SegmentsProblem,
    SegmentsSpec, choose_segments, force_applied, row_major_strides,
};

const SUM: OperatorClass = OperatorClass::new("sum", 4);

/// Sums of segments of an axis of a row-major tensor, in whose place they lie.
fn stated(element: ElementType, shape: &[usize], axis: usize, segments: usize) -> SegmentsProblem {
    with_numerics(element, shape, axis, segments, Numerics::Deterministic)
}

fn with_numerics(
    element: ElementType,
    shape: &[usize],
    axis: usize,
    segments: usize,
    numerics: Numerics,
) -> SegmentsProblem {
    let mut results = shape.to_vec();
    results[axis] = segments;
    let mut kept = row_major_strides(&results);
    let segment_stride = kept.remove(axis);
    let strides = row_major_strides(shape);
    let input = InputSpec { element, shape, strides: &strides, alignment: 256 };
    let output = OutputSpec { elements: &[ElementType::F32], strides: Some(&kept) };
    let whole = Problem::new(SUM, &input, Some(&[axis]), &output).unwrap();
    let offsets = ElementType::U32;
    let spec = SegmentsSpec { segments, segment_stride, offsets, indices: None };
    SegmentsProblem::new(whole.with_numerics(numerics), &spec).unwrap()
}

fn chosen(problem: &SegmentsProblem, device: &Device) -> SegmentsPlan {
    let plan = choose_segments(problem, device).unwrap().plan;
    plan.check(problem, device).unwrap();
    plan
}

/// Plans follow from the axis and the number of segments; there are no lengths to follow.
#[test]
fn plans_follow_the_axis() {
    let device = Device::h200();
    let sentence = |element, shape: &[usize], axis, segments| {
        chosen(&stated(element, shape, axis, segments), &device).to_string()
    };
    assert_eq!(
        sentence(ElementType::F32, &[1 << 26], 0, 1000),
        "segments: 1 launch that looks back, 391 cubes of 256 units in planes of 32, tiles of 42 steps of \
         4096 elements, 1 side by side; vectors of 4 along the reduction with head and tail peeled, 4 \
         loads in flight"
    );
    assert_eq!(
        sentence(ElementType::F32, &[1 << 26], 0, 1 << 23),
        sentence(ElementType::F32, &[1 << 26], 0, 1000)
    );
    assert_eq!(
        sentence(ElementType::F32, &[1 << 20, 64], 0, 65536),
        "segments: 1 launch that looks back, 512 cubes of 128 units, tiles of 16 steps of 128 elements, \
         16 side by side; vectors of 4 across outputs, 16 loads in flight"
    );
    // Many columns of two bytes still have a unit each that looks back.
    let columns = chosen(&stated(ElementType::BF16, &[1 << 20, 1024], 0, 100), &device);
    assert_eq!(columns.merge, SegmentsMerge::LookBack, "{columns}");
    assert_eq!(columns.outputs_of_cube(), columns.units_per_cube);
    // Large accumulators have short tiles, if cubes look back.
    let mean_var = |device: &Device| {
        let class = OperatorClass::new("mean_var", 12);
        let input = InputSpec {
            element: ElementType::F32,
            shape: &[1 << 26],
            strides: &[1],
            alignment: 256,
        };
        let output = OutputSpec { elements: &[ElementType::F32; 2], strides: Some(&[]) };
        let whole = Problem::new(class, &input, Some(&[0]), &output).unwrap();
        let offsets = ElementType::I32;
        let spec = SegmentsSpec { segments: 1000, segment_stride: 1, offsets, indices: None };
        chosen(&SegmentsProblem::new(whole, &spec).unwrap(), device)
    };
    let mut waits_for_none = device.clone();
    waits_for_none.forward_progress = false;
    let (looks_back, second) = (mean_var(&device), mean_var(&waits_for_none));
    assert!(looks_back.tile() < second.tile() / 2, "{looks_back} {second}");
    // Few elements have few cubes, however many segments there are.
    assert_eq!(chosen(&stated(ElementType::F32, &[10_000], 0, 3), &device).cubes, 3);
    assert_eq!(chosen(&stated(ElementType::F32, &[10], 0, 1 << 16), &device).cubes, 1);
}

/// Only deterministic results are promised, because those of a segment depend on where it begins.
#[test]
fn other_numerics_are_refused() {
    let numerics = Numerics::BatchInvariant;
    let problem = with_numerics(ElementType::F32, &[1000], 0, 5, numerics);
    let refused = problem.choose(&Device::h200()).unwrap_err();
    assert_eq!(refused, PlanError::SegmentNumerics { numerics });
}

/// What cannot be stated.
#[test]
fn wrong_problems_are_refused() {
    let input = InputSpec {
        element: ElementType::F32,
        shape: &[4, 5, 6],
        strides: &[30, 6, 1],
        alignment: 256,
    };
    let stated = |axes: &[usize], kept: &[usize], spec: SegmentsSpec| {
        let output = OutputSpec { elements: &[ElementType::F32], strides: Some(kept) };
        let whole = Problem::new(SUM, &input, Some(axes), &output).unwrap();
        SegmentsProblem::new(whole, &spec).unwrap_err()
    };
    let spec =
        SegmentsSpec { segments: 3, segment_stride: 1, offsets: ElementType::I64, indices: None };
    assert_eq!(stated(&[0, 2], &[3], spec), ProblemError::SegmentAxes { axes: 2 });
    let halves = SegmentsSpec { offsets: ElementType::U16, ..spec };
    assert_eq!(stated(&[2], &[15, 3], halves), ProblemError::Offsets { found: ElementType::U16 });
    let indices = Some(IndicesSpec { len: 7, element: ElementType::F32 });
    let real = SegmentsSpec { indices, ..spec };
    assert_eq!(stated(&[2], &[15, 3], real), ProblemError::Indices { found: ElementType::F32 });
    // The results of two segments in one place.
    let same = SegmentsSpec { segment_stride: 0, ..spec };
    let refused = stated(&[2], &[15, 3], same).to_string();
    assert!(refused.contains("in one element"), "{refused}");
}

/// Indices are entries of their own, of which one element is read at a time along the axis, and rows
/// across outputs. An axis without elements has no entries.
#[test]
fn indices_are_read_one_by_one_along_the_axis() {
    let device = Device::h200();
    let of_indices = |shape: &[usize], axis| {
        let all = stated(ElementType::F32, shape, axis, 100);
        let indices = Some(IndicesSpec { len: 5000, element: ElementType::I64 });
        let spec = SegmentsSpec {
            segments: all.segments(),
            segment_stride: all.segment_stride(),
            offsets: all.offsets(),
            indices,
        };
        SegmentsProblem::new(all.axis().clone(), &spec).unwrap()
    };
    let along = of_indices(&[1 << 20], 0);
    let plan = chosen(&along, &device);
    assert_eq!((plan.access.vector, plan.access.peeled, along.entries()), (1, false, 5000));
    assert_eq!(plan.tiles(&along), 5000usize.div_ceil(plan.tile()));
    let vectors = chosen(&stated(ElementType::F32, &[1 << 20], 0, 100), &device).access;
    let mut in_vectors = plan;
    in_vectors.access = vectors;
    let refused = in_vectors.check(&along, &device).unwrap_err();
    assert!(matches!(refused, PlanError::Unfit { reason: Illegal::SegmentsAccess, .. }));
    assert_eq!(along.to_string().lines().count(), 1);
    assert!(along.to_string().contains("100 segments by u32 of 5000 indices by i64"), "{along}");
    assert_eq!(along.bytes() - stated(ElementType::F32, &[1 << 20], 0, 100).bytes(), 5000 * 8);

    let across = of_indices(&[1 << 20, 64], 0);
    assert!(chosen(&across, &device).access.vector > 1);
    assert_eq!(of_indices(&[0], 0).entries(), 0);
}

/// Every rule that a plan from a file may break.
#[test]
fn hostile_plans_are_refused() {
    let device = Device::h200();
    let problem = stated(ElementType::F32, &[1 << 20], 0, 100);
    let plan = chosen(&problem, &device);
    let refused = |change: &dyn Fn(&mut SegmentsPlan)| {
        let mut plan = plan;
        change(&mut plan);
        match plan.check(&problem, &device).unwrap_err() {
            PlanError::Unfit { reason, .. } => reason,
            other => panic!("{other}"),
        }
    };
    assert!(matches!(refused(&|plan| plan.units_per_cube = 0), Illegal::NotPowerOfTwo { .. }));
    let second = |units_per_cube| SegmentsMerge::SecondLaunch { units_per_cube };
    assert!(matches!(refused(&|plan| plan.merge = second(5)), Illegal::NotPowerOfTwo { .. }));
    for side_by_side in [0, 2, 3] {
        let SegmentsPlan { cubes, steps, .. } = plan;
        let expected = Illegal::SegmentTiles { side_by_side, cubes, steps };
        assert_eq!(refused(&|plan| plan.side_by_side = side_by_side), expected);
    }
    assert_eq!(
        refused(&|plan| (plan.cubes, plan.steps) = (0, 3)),
        Illegal::SegmentTiles { side_by_side: 1, cubes: 0, steps: 3 }
    );
    assert!(matches!(refused(&|plan| plan.steps = 0), Illegal::SegmentTiles { steps: 0, .. }));
    let many = plan.access.with_loads_in_flight(16);
    let expected = Illegal::SegmentShare { share: 64, most: 32 };
    assert_eq!(refused(&|plan| plan.access = many), expected);
    let in_planes = |units, lanes| {
        refused(&|plan| {
            (plan.units_per_cube, plan.combine) = (units, Combine::Plane { lanes });
        })
    };
    assert!(matches!(in_planes(16, 32), Illegal::CubeBelowPlane { .. }));
    assert!(matches!(in_planes(256, 3), Illegal::NotPowerOfTwo { .. }));
    assert_eq!(in_planes(256, 16), Illegal::SegmentPlanes { units: 256, lanes: 16 });
    let whole = plan.access.with_peeled(false);
    assert_eq!(refused(&|plan| plan.access = whole), Illegal::SegmentsAccess);
    let across = Access::new(Direction::Across).with_vector(4);
    assert!(matches!(refused(&|plan| plan.access = across), Illegal::InnerStride { .. }));
    let mut other = plan;
    other.version = 0;
    assert!(matches!(other.check(&problem, &device), Err(PlanError::Version { .. })));
}

/// Cubes look back where the device promises that those they wait for go on, and where nothing forbids
/// it. Elsewhere a second launch merges.
#[test]
fn cubes_look_back_where_they_may() {
    let problem = stated(ElementType::F32, &[1 << 20], 0, 100);
    let wide = stated(ElementType::F32, &[1 << 15, 1 << 20], 0, 100);
    let h200 = Device::h200();
    assert_eq!(chosen(&problem, &h200).merge, SegmentsMerge::LookBack);
    assert_eq!(chosen(&problem, &h200).partials(&problem), 0);
    let changed = |change: &dyn Fn(&mut Device)| {
        let mut device = Device::h200();
        change(&mut device);
        device
    };
    type Expected<'a> = &'a dyn Fn(Illegal) -> bool;
    let without: [(&SegmentsProblem, Device, Expected<'_>); 5] = [
        (&problem, changed(&|device| device.forward_progress = false), &|reason| {
            reason == Illegal::NoForwardProgress
        }),
        (&problem, changed(&|device| device.wide_atomics = false), &|reason| {
            reason == Illegal::NoWideAtomics
        }),
        (&problem, changed(&|device| device.tuning.applied.cubes_wait = false), &|reason| {
            reason == Illegal::WaitingForbidden
        }),
        (&problem, changed(&|device| device.tuning.applied.published_bytes = 100), &|reason| {
            matches!(reason, Illegal::PublishedPartials { max: 100, .. })
        }),
        (&wide, h200.clone(), &|reason| matches!(reason, Illegal::PublishedPartials { .. })),
    ];
    for (problem, device, expected) in without {
        let mut plan = chosen(problem, &device);
        assert!(matches!(plan.merge, SegmentsMerge::SecondLaunch { .. }), "{plan}");
        assert!(plan.partials(problem) > 0 && plan.published_words(problem, 1).is_none());
        plan.merge = SegmentsMerge::LookBack;
        match plan.check(problem, &device).unwrap_err() {
            PlanError::Unfit { reason, .. } => assert!(expected(reason), "{reason}"),
            other => panic!("{other}"),
        }
    }
    // Fewer units than outputs could not merge them.
    let columns = stated(ElementType::F32, &[1 << 20, 64], 0, 100);
    let mut plan = chosen(&columns, &h200);
    (plan.units_per_cube, plan.side_by_side) = (32, 32);
    match plan.check(&columns, &h200).unwrap_err() {
        PlanError::Unfit { reason, .. } => {
            assert_eq!(reason, Illegal::MergeBelowOutputs { units: 32, outputs: 128 });
        }
        other => panic!("{other}"),
    }
}

/// Planes take steps of their own only if each can wait alone, or is alone in its cube.
#[test]
fn planes_wait_alone() {
    let mut device = Device::h200();
    let problem = stated(ElementType::F32, &[1 << 20], 0, 100);
    let plan = chosen(&problem, &device);
    assert_eq!(plan.combine, Combine::Plane { lanes: 32 });
    device.plane_barriers = false;
    match plan.check(&problem, &device).unwrap_err() {
        PlanError::Unfit { reason, .. } => {
            assert_eq!(reason, Illegal::SegmentPlanes { units: 256, lanes: 32 });
        }
        other => panic!("{other}"),
    }
    assert_eq!(chosen(&problem, &device).combine, Combine::Shared);
    let mut lone = plan;
    lone.units_per_cube = 32;
    lone.check(&problem, &device).unwrap();
}

/// Chosen plans obey the rules of devices with little of everything.
#[test]
fn chosen_plans_fit_small_devices() {
    for mut device in [Device::h200(), Device::m2_max(), Device::software_adapter()] {
        for (units, shared) in [(1, 1 << 10), (32, 1 << 10), (64, 2 << 10), (256, 16 << 10)] {
            (device.max_units_per_cube, device.shared_memory_bytes) = (units, shared);
            for (shape, axis) in [(&[100_000][..], 0), (&[5000, 48], 0), (&[7, 5000], 1), (&[0], 0)]
            {
                for segments in [0, 1, 70_000] {
                    chosen(&stated(ElementType::F32, shape, axis, segments), &device);
                }
            }
        }
    }
}

/// A plan survives a file, and is read as one of its kind.
#[cfg(feature = "serde")]
#[test]
fn plans_are_saved() {
    use reduce_planner::{AnyPlan, PlanStore, TunedPlan};

    let device = Device::h200();
    let problem = stated(ElementType::F32, &[1 << 20], 0, 100);
    let plan = chosen(&problem, &device);
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<AnyPlan>(&text).unwrap(), AnyPlan::Segments(plan));
    let mut store = PlanStore::new(&device);
    store.insert(&problem, &device, TunedPlan::new(plan, 10, 20)).unwrap();
    let read = PlanStore::parse(&store.to_json().unwrap(), &device).unwrap();
    assert_eq!(read.plan_for(&problem, &device), Some(plan));
}

/// Sums of segments of axis 0 of a row-major tensor, applied to its elements.
fn applied(shape: &[usize], segments: usize) -> (AppliedProblem, Problem) {
    let alone = stated(ElementType::F32, shape, 0, segments);
    let mut results = shape.to_vec();
    results[0] = segments;
    let mut of_results = row_major_strides(&results);
    let stride = std::mem::take(&mut of_results[0]);
    let strides = row_major_strides(shape);
    let input = InputSpec { element: ElementType::F32, shape, strides: &strides, alignment: 256 };
    let companions = [&of_results[..]];
    let spec = AppliedSpec {
        element: ElementType::F32,
        strides: None,
        second: None,
        companions: &companions,
        further: &[],
    };
    let applied = AppliedProblem::new(SUM, &input, Some(&[0]), &spec).unwrap();
    let whole = alone.axis().clone();
    (applied.of_segments(alone, &[stride]).unwrap(), whole)
}

/// Results of segments are stored and then applied, by cubes that have neighbouring elements.
#[test]
fn applied_results_are_stored() {
    let device = Device::h200();
    let sentence = |shape: &[usize], segments| {
        applied(shape, segments).choose(&device).unwrap().plan.to_string()
    };
    assert_eq!(
        sentence(&[1 << 26], 1000),
        "separately: segments: 1 launch that looks back, 391 cubes of 256 units in planes of 32, tiles of 42 steps \
         of 4096 elements, 1 side by side; vectors of 4 along the reduction with head and tail peeled, \
         4 loads in flight; then applied with 128 units and 8192 cubes per output, 1 per cube; vectors \
         of 4 along the reduction, 4 loads in flight"
    );
    let rows = sentence(&[1 << 20, 64], 1 << 16);
    assert!(rows.contains("vectors of 4 across outputs"), "{rows}");
    let problems = applied(&[1 << 20], 100);
    let line = problems.line();
    assert!(line.contains(" | of segments 1 apart: 100 segments by u32, 1 apart"), "{line}");
    let forced = |kind| force_applied(kind, &problems.0, &problems.1, &device);
    assert!(matches!(forced(AppliedKind::Separately), Ok(AppliedPlan::Segments { .. })));
    let refused = forced(AppliedKind::Held).unwrap_err().to_string();
    assert!(refused.contains("the plan is for segments and the problem has none"), "{refused}");
}

/// A plan for whole axes is none for segments, nor the other way round, and what it applies may not
/// break the rules of other applications.
#[test]
fn other_applications_are_refused() {
    let device = Device::h200();
    let problems = applied(&[1 << 20], 100);
    let plan = problems.choose(&device).unwrap().plan;
    let whole = AppliedProblem::new(
        SUM,
        &InputSpec { element: ElementType::F32, shape: &[1 << 20], strides: &[1], alignment: 256 },
        Some(&[0]),
        &AppliedSpec {
            element: ElementType::F32,
            strides: None,
            second: None,
            companions: &[&[0]],
            further: &[],
        },
    );
    let whole = (whole.unwrap(), problems.1.clone());
    let reason = |problems: &(AppliedProblem, Problem), plan| match problems.check(&plan, &device) {
        Err(PlanError::Unfit { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(&whole, plan), Illegal::AppliedSegments);
    let of_whole = whole.choose(&device).unwrap().plan;
    assert_eq!(reason(&problems, of_whole), Illegal::AppliedSegments);
    let changed = |change: fn(&mut Access, &mut u32)| {
        let mut plan = plan;
        let AppliedPlan::Segments { apply, .. } = &mut plan else { panic!("{plan}") };
        change(&mut apply.access, &mut apply.cubes_per_output);
        plan
    };
    assert_eq!(reason(&problems, changed(|_, cubes| *cubes = 0)), Illegal::NoCubes);
    let realigned = changed(|access, _| *access = access.with_realigned(true));
    problems.check(&realigned, &device).unwrap_err();
    let huge = SegmentsSpec {
        segments: u32::MAX as usize + 1,
        segment_stride: 1,
        offsets: ElementType::U64,
        indices: None,
    };
    let huge = SegmentsProblem::new(problems.1.clone(), &huge).unwrap();
    assert!(matches!(
        whole.0.clone().of_segments(huge, &[1]),
        Err(ProblemError::AppliedSegments { .. })
    ));
    let alone = stated(ElementType::F32, &[1 << 20], 0, 100);
    assert!(matches!(
        whole.0.clone().of_segments(alone.clone(), &[]),
        Err(ProblemError::RankMismatch { .. })
    ));
    assert!(matches!(
        whole.0.of_segments(alone, &[usize::MAX]),
        Err(ProblemError::TooLarge { tensor: Role::Operand, .. })
    ));
}

/// A plan that applies results survives a file.
#[cfg(feature = "serde")]
#[test]
fn applied_plans_are_saved() {
    use reduce_planner::{PlanStore, TunedPlan};

    let device = Device::h200();
    let problems = applied(&[1 << 20, 8], 100);
    let plan = problems.choose(&device).unwrap().plan;
    let mut store = PlanStore::new(&device);
    store.insert(&problems, &device, TunedPlan::new(plan, 10, 20)).unwrap();
    let read = PlanStore::parse(&store.to_json().unwrap(), &device).unwrap();
    assert_eq!(read.plan_for(&problems, &device), Some(plan));
    let others = applied(&[1 << 20, 8], 101);
    assert_eq!(read.plan_for(&others, &device), None);
}
