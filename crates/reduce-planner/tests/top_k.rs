//! Selections: what the planner decides, and what a plan may not do.

use std::collections::HashSet;

use reduce_planner::{
    Access, Candidate, Choice, Device, Direction, ElementType, Illegal, InputSpec, Over, PlanError,
    Planned, Probabilities, ProblemError, Role, SecondSpec, SelectedSpec, TopKMethod, TopKPlan,
    TopKProblem, TopKReason, TuneOptions, choose, choose_top_k, row_major_strides, tune,
};

/// The selection from a row-major tensor over one axis, in whose place the selected elements lie.
fn stated(element: ElementType, shape: &[usize], axis: usize, k: usize) -> TopKProblem {
    writing(element, shape, axis, k, k)
}

/// The same where so many of the `k` elements are written.
fn writing(
    element: ElementType,
    shape: &[usize],
    axis: usize,
    k: usize,
    written: usize,
) -> TopKProblem {
    let mut selected = shape.to_vec();
    selected[axis] = written;
    let mut kept_strides = row_major_strides(&selected);
    let rank_stride = kept_strides.remove(axis);
    let strides = row_major_strides(shape);
    let input = InputSpec { element, shape, strides: &strides, alignment: 256 };
    let selected = SelectedSpec {
        positions: ElementType::U32,
        kept_strides: &kept_strides,
        rank_stride,
        written: (written < k).then_some(written),
        probabilities: None,
    };
    TopKProblem::new(&input, Some(&[axis]), k, &selected).unwrap()
}

fn chosen(problem: &TopKProblem, device: &Device) -> TopKPlan {
    let Choice { plan, .. } = choose_top_k(problem, device).unwrap();
    plan.check(problem, device).unwrap();
    plan
}

/// The sentence of a plan for f32 on an H200.
fn sentence(shape: &[usize], axis: usize, k: usize) -> String {
    chosen(&stated(ElementType::F32, shape, axis, k), &Device::h200()).to_string()
}

/// Plans of a selection do not depend on whether it writes probabilities. Only the lines of the
/// problems differ.
#[test]
fn probabilities_change_no_plan() {
    let device = Device::h200();
    for (shape, k) in [([65536, 128], 8), ([256, 131_072], 64)] {
        let plain = stated(ElementType::F32, &shape, 1, k);
        for over in [Over::Selected, Over::Slice] {
            let input = InputSpec {
                element: ElementType::F32,
                shape: &shape,
                strides: &row_major_strides(&shape),
                alignment: 256,
            };
            let selected = SelectedSpec {
                positions: ElementType::U32,
                kept_strides: &[k],
                rank_stride: 1,
                written: None,
                probabilities: Some(Probabilities { over, element: ElementType::F32 }),
            };
            let problem = TopKProblem::new(&input, Some(&[1]), k, &selected).unwrap();
            assert_eq!(chosen(&problem, &device), chosen(&plain, &device));
            assert_ne!(problem.to_string(), plain.to_string());
            assert!(problem.to_string().ends_with(&format!("probabilities over {over}")));
        }
    }
}

/// What is launched beside a selection is told for its problem: the reduction that probabilities
/// over slices need outside registers, and the launch that writes a mask.
#[test]
fn launches_beside_a_selection() {
    let device = Device::h200();
    let with = |shape: [usize; 2], k, probabilities| {
        let strides = row_major_strides(&shape);
        let input = InputSpec {
            element: ElementType::F32,
            shape: &shape,
            strides: &strides,
            alignment: 256,
        };
        let selected = SelectedSpec {
            positions: ElementType::U32,
            kept_strides: &[k],
            rank_stride: 1,
            written: None,
            probabilities,
        };
        TopKProblem::new(&input, Some(&[1]), k, &selected).unwrap()
    };
    let told = |problem: &TopKProblem| {
        let Choice { plan, estimate, .. } = problem.choose(&device).unwrap();
        assert_eq!(problem.estimate(&plan, &device).unwrap(), estimate);
        let launches = plan.whole_launch_count(problem, &device).unwrap();
        (launches, problem.sentence(&plan, &device).unwrap(), estimate.microseconds())
    };
    let over = |over| Some(Probabilities { over, element: ElementType::F32 });
    for (shape, k, launches) in [([65536, 128], 8, 1), ([256, 131_072], 64, 2)] {
        let plain = with(shape, k, None);
        let (one, sentence, microseconds) = told(&plain);
        assert_eq!((one, &sentence), (1, &chosen(&plain, &device).to_string()));
        assert_eq!(told(&with(shape, k, over(Over::Selected))).0, 1);

        let whole = with(shape, k, over(Over::Slice));
        let (found, of_whole, longer) = told(&whole);
        assert_eq!(found, launches);
        let sums = whole.sums().unwrap();
        assert_eq!((sums.outputs(), sums.reduction_len()), (shape[0], shape[1]));
        if launches == 1 {
            assert_eq!((of_whole, longer), (sentence.clone(), microseconds));
        } else {
            let first = choose(sums, &device).unwrap();
            let expected = format!(
                "2 launches: {}, for the sums of exponentials; then {sentence}",
                first.plan
            );
            assert_eq!(of_whole, expected);
            assert!(longer > microseconds.max(first.expected_microseconds()), "{longer}");
        }

        let mask = plain.clone().masked();
        let (found, of_mask, longer) = told(&mask);
        let expected = format!(
            "2 launches: {sentence}; then a launch that compares each element with the last selected \
             one"
        );
        assert_eq!((found, of_mask), (2, expected));
        assert!(longer > microseconds, "{longer}");
        // Each element is read and written.
        assert_eq!(mask.bytes(), 8 * (shape[0] * shape[1]) as u64);
        assert_eq!(mask.to_string(), format!("{plain} | mask"));
        assert_ne!(mask, plain);
    }
}

/// Short rows share cubes, long ones have a cube each, and few very long ones several.
#[test]
fn plans_follow_the_slices() {
    let expected = [
        (
            sentence(&[65536, 128], 1, 8),
            "top_k: 1 launch, 16 units hold each of 4 slices of a cube in registers, and a \
             buffer of 64 entries; vectors of 4 along the reduction, 2 loads in flight",
        ),
        (
            sentence(&[256, 131_072], 1, 64),
            "top_k: 1 launch, 512 units and a buffer of 512 entries for each of 1 slices of a cube, \
             counted by digits of 4 bits; vectors of 4 along the reduction, 4 loads in flight",
        ),
        (
            sentence(&[256, 131_072], 1, 1024),
            "top_k: 1 launch, 256 units and a buffer of 2048 entries for each of 1 slices of a cube, \
             counted by digits of 8 bits; vectors of 4 along the reduction, 4 loads in flight",
        ),
        (
            sentence(&[1 << 28], 0, 100),
            "top_k: 2 launches, 264 cubes per slice, 512 units and a buffer of 1024 entries for \
             each of 1 slices of a cube, counted by digits of 4 bits; vectors of 4 along the \
             reduction, 4 loads in flight",
        ),
        // Small cubes have more loads in flight. More units hold a row if `k` needs them.
        (
            sentence(&[8192, 4096], 1, 64),
            "top_k: 1 launch, 64 units and a buffer of 256 entries for each of 1 slices of a cube, \
             counted by digits of 4 bits; vectors of 4 along the reduction, 8 loads in flight",
        ),
        (
            sentence(&[65536, 1024], 1, 32),
            "top_k: 1 launch, 64 units hold each of 1 slices of a cube in registers, and a buffer \
             of 512 entries; vectors of 4 along the reduction, 4 loads in flight",
        ),
        (
            sentence(&[65536, 1024], 0, 32),
            "top_k: 2 launches, 4 cubes per slice, 32 units and a buffer of 128 entries for \
             each of 8 slices of a cube, counted by digits of 4 bits; single elements across \
             outputs, 8 loads in flight",
        ),
        // The whole row fits the shared memory that one cube may request.
        (
            sentence(&[4096, 8192], 1, 4097),
            "top_k: 1 launch, 512 units and a buffer of 8192 entries for each of 1 slices of a cube, \
             counted by digits of 8 bits; vectors of 4 along the reduction, 4 loads in flight",
        ),
        (
            sentence(&[1 << 20], 0, 1 << 20),
            "top_k: 11 launches, 512 runs of 2048 entries per slice, sorted by 512 units; single \
             elements along the reduction, 1 load in flight",
        ),
    ];
    for (found, expected) in expected {
        assert_eq!(found, expected);
    }
}

/// Few elements with given numbers are found in windows if the row is short and most of it would be
/// in a buffer, or if there are many rows of which no buffer holds what it must.
#[test]
fn few_numbers_are_found_in_windows() {
    let device = Device::h200();
    let method = |shape: &[usize], axis: usize, k: usize, written: usize| {
        let problem = writing(ElementType::F32, shape, axis, k, written);
        let plan = chosen(&problem, &device);
        plan.method
    };
    assert_eq!(method(&[4096, 8192], 1, 4096, 1), TopKMethod::Window);
    assert_eq!(method(&[4096, 8191], 1, 4096, 2), TopKMethod::Window);
    assert_eq!(method(&[4096, 100_000], 1, 50_000, 1), TopKMethod::Window);
    assert_eq!(method(&[4096, 8192], 1, 100, 1), TopKMethod::Window);
    assert_eq!(method(&[4096, 8192], 1, 10, 1), TopKMethod::Buffer);
    // The elements of the next selections are sorted, or read once.
    assert_eq!(method(&[4096, 100_000], 1, 50_000, 5), TopKMethod::Runs);
    assert_eq!(method(&[1, 1 << 22], 1, 1 << 21, 1), TopKMethod::Runs);
    assert_eq!(method(&[4096, 100_000], 1, 100, 1), TopKMethod::Buffer);
    assert_eq!(method(&[4096, 500], 1, 250, 1), TopKMethod::Buffer);
    assert_eq!(method(&[8192, 4096], 0, 100, 1), TopKMethod::Buffer);
    let problem = writing(ElementType::F32, &[4096, 8192], 1, 4096, 1);
    assert_eq!(
        chosen(&problem, &device).to_string(),
        "top_k: 1 launch, 128 units count a row in windows by digits of 8 bits until a buffer holds \
         256 entries; vectors of 4 along the reduction, 4 loads in flight"
    );
}

/// What cannot be stated.
#[test]
fn wrong_problems_are_refused() {
    let input =
        InputSpec { element: ElementType::F32, shape: &[4, 6], strides: &[6, 1], alignment: 256 };
    let new = |axes, k, kept_strides: &[usize]| {
        let positions = ElementType::U32;
        let selected = SelectedSpec {
            positions,
            kept_strides,
            rank_stride: 1,
            written: None,
            probabilities: None,
        };
        TopKProblem::new(&input, axes, k, &selected)
    };
    assert_eq!(
        new(Some(&[1]), 7, &[7]).unwrap_err(),
        ProblemError::TooFewElements { k: 7, len: 6 }
    );
    assert_eq!(new(Some(&[]), 1, &[6, 1]).unwrap_err(), ProblemError::NoAxes { operator: "top_k" });
    assert!(matches!(new(Some(&[1]), 3, &[2]), Err(ProblemError::OutputOverlaps { .. })));
    assert!(matches!(new(Some(&[2]), 3, &[3]), Err(ProblemError::AxisOutOfRange { .. })));
    let problem = new(Some(&[1]), 3, &[3]).unwrap();
    assert_eq!((problem.k(), problem.written(), problem.output_span()), (3, 3, 12));
    // 24 elements are read, and 12 values and positions written.
    assert_eq!(problem.bytes(), 4 * 24 + 8 * 12);
}

/// Positions of a tensor are the second input, of which only those of selected elements are read.
/// They change no plan, unless a device cannot bind them beside what several cubes leave.
#[test]
fn positions_of_a_tensor() {
    let device = Device::h200();
    let shape = [1, 1 << 24];
    let input =
        |element| InputSpec { element, shape: &shape, strides: &[1 << 24, 1], alignment: 256 };
    let selected = SelectedSpec {
        positions: ElementType::U32,
        kept_strides: &[9],
        rank_stride: 1,
        written: None,
        probabilities: None,
    };
    let stated = |element, strides| {
        let table = SecondSpec { element: ElementType::U32, strides, alignment: 4 };
        TopKProblem::with_positions(&input(element), Some(&table), Some(&[1]), 9, &selected)
    };
    let plain = TopKProblem::new(&input(ElementType::F32), Some(&[1]), 9, &selected).unwrap();
    let problem = stated(ElementType::F32, &[0, 1]).unwrap();
    assert_eq!(problem.bytes(), plain.bytes() + 4 * 9);
    assert_eq!(chosen(&problem, &device), chosen(&plain, &device));
    assert!(problem.to_string() != plain.to_string());
    assert_ne!(problem, stated(ElementType::F32, &[0, 2]).unwrap());
    let mismatch = stated(ElementType::F32, &[1]).unwrap_err();
    let tensor = Role::Positions;
    assert_eq!(mismatch, ProblemError::RankMismatch { tensor, dims: 2, strides: 1 });

    let mut few = device;
    few.max_bindings = 8;
    let cubes = |problem: &TopKProblem| chosen(problem, &few).cubes_per_slice;
    let wide = TopKProblem::new(&input(ElementType::F64), Some(&[1]), 9, &selected).unwrap();
    assert!(cubes(&problem) > 1 && cubes(&wide) > 1);
    assert_eq!(cubes(&stated(ElementType::F64, &[0, 1]).unwrap()), 1);
}

/// A choice tells why each other method was not taken.
#[test]
fn other_methods_have_reasons() {
    let problem = stated(ElementType::F32, &[256, 131_072], 1, 64);
    let Choice { plan, refused, runners_up, .. } = choose_top_k(&problem, &Device::h200()).unwrap();
    assert_eq!(plan.method, TopKMethod::Buffer);
    let told: Vec<String> = refused.iter().map(ToString::to_string).collect();
    assert_eq!(
        told[..2],
        [
            "registers: 64 units hold up to 32 elements of a slice each and find a threshold of as \
             many elements, which is too few for 64 of 131072",
            "window: windows serve up to 4 elements with given numbers of at least 1024, and 64 of \
             131072 are written",
        ]
    );
    assert_eq!((refused.len(), refused[2].kind), (3, TopKMethod::Runs));
    assert!(matches!(refused[2].reason, TopKReason::Slower { .. }), "{}", told[2]);
    assert_eq!(runners_up.len(), 1);
}

/// Plans to measure are the chosen ones of all methods and others near them, each once, that obey
/// all rules, from the fastest as estimated.
#[test]
fn candidates_can_run() {
    for device in [Device::h200(), Device::m2_max(), Device::software_adapter()] {
        for (shape, axis, k, written) in [
            ([256, 131_072], 1, 64, 64),
            ([65536, 128], 1, 8, 8),
            ([65536, 1024], 0, 32, 32),
            ([4096, 8192], 1, 4096, 2),
            ([64, 131_072], 1, 20_000, 20_000),
        ] {
            let problem = writing(ElementType::F32, &shape, axis, k, written);
            let candidates = problem.candidates(&device).unwrap();
            let mut seen = HashSet::new();
            for Candidate { plan, .. } in &candidates {
                plan.check(&problem, &device).unwrap();
                assert!(seen.insert(*plan), "{plan}");
            }
            assert!(seen.contains(&chosen(&problem, &device)));
            let times = candidates.iter().map(|candidate| candidate.estimate.alone_ns());
            assert!(times.is_sorted(), "{problem}");
            // Runs have only the sizes that shared memory gives them.
            let is_sort = chosen(&problem, &device).method == TopKMethod::Runs;
            assert!(candidates.len() >= if is_sort { 1 } else { 4 }, "{problem}");
        }
    }
}

/// Selections are tuned as reductions are: a plan that is measured to be faster replaces the choice.
#[test]
fn selections_are_tuned() {
    let device = Device::h200();
    let problem = stated(ElementType::F32, &[256, 131_072], 1, 64);
    let untuned = chosen(&problem, &device);
    let measure = |plan: &TopKPlan| Ok::<f64, ()>(f64::from(plan.units_per_slice));
    let tuned = tune(&problem, &device, &TuneOptions::default(), measure).unwrap();
    assert_eq!((tuned.untuned, tuned.untuned_microseconds), (untuned, 512.0));
    assert_eq!((tuned.plan.units_per_slice, tuned.microseconds), (256, 256.0));
}

/// Every rule that a plan from a file may break.
#[test]
fn hostile_plans_are_refused() {
    let device = Device::h200();
    let problem = stated(ElementType::F32, &[100, 5000], 1, 20);
    let plan = chosen(&problem, &device);
    let refused = |change: &dyn Fn(&mut TopKPlan)| {
        let mut plan = plan;
        change(&mut plan);
        match plan.check(&problem, &device).unwrap_err() {
            PlanError::Unfit { reason, .. } => reason,
            other => panic!("{other}"),
        }
    };
    let access = plan.access;
    let buffer = |entries, units| Illegal::Buffer { entries, k: 20, units };
    assert_eq!(refused(&|plan| plan.buffer = 32), buffer(32, 256));
    assert_eq!(refused(&|plan| plan.buffer = 1000), buffer(1000, 256));
    assert_eq!(refused(&|plan| plan.buffer = 1 << 14), buffer(1 << 14, 256));
    assert_eq!(refused(&|plan| plan.digit_bits = 3), Illegal::Digits { bits: 3, units: 256 });
    assert_eq!(
        refused(&|plan| (plan.units_per_slice, plan.buffer) = (2, 64)),
        Illegal::Digits { bits: 4, units: 2 }
    );
    assert!(matches!(
        refused(&|plan| plan.units_per_slice = 48),
        Illegal::NotPowerOfTwo { value: 48, .. }
    ));
    assert!(matches!(refused(&|plan| plan.slices_per_cube = 64), Illegal::NotPowerOfTwo { .. }));
    assert_eq!(refused(&|plan| plan.cubes_per_slice = 0), Illegal::Runs { cubes: 0, runs: 20 });
    assert_eq!(
        refused(&|plan| plan.access = access.with_loads_in_flight(16)),
        Illegal::Offered { elements: 64, max: 32 }
    );
    assert_eq!(
        refused(&|plan| plan.access = access.with_outputs_in_flight(2)),
        Illegal::TopKAccess
    );
    assert!(matches!(
        refused(&|plan| plan.access = Access::new(Direction::Across).with_vector(4)),
        Illegal::InnerStride { .. } | Illegal::TopKAccess
    ));
    assert!(matches!(
        refused(&|plan| plan.cubes_per_slice = u32::MAX),
        Illegal::SplitStride { .. }
    ));
    let single = Access::new(Direction::Along);
    let as_runs = |plan: &mut TopKPlan| (plan.method, plan.access) = (TopKMethod::Runs, single);
    assert_eq!(refused(&|plan| as_runs(plan)), Illegal::Runs { cubes: 1, runs: 20 });
    let mut runs = plan;
    as_runs(&mut runs);
    (runs.cubes_per_slice, runs.slices_per_cube) = (20, 1);
    runs.check(&problem, &device).unwrap();
    // Windows find elements with given numbers.
    let windows = |plan: &mut TopKPlan| (plan.method, plan.digit_bits) = (TopKMethod::Window, 8);
    let found = refused(&|plan| windows(plan));
    assert_eq!(found, Illegal::Windows { written: 20, k: 20, cubes: 1, slices: 1 });
    let by_numbers = writing(ElementType::F32, &[100, 5000], 1, 2000, 2);
    let mut plan = chosen(&by_numbers, &device);
    assert_eq!(plan.method, TopKMethod::Window);
    plan.cubes_per_slice = 2;
    let error = plan.check(&by_numbers, &device).unwrap_err();
    let found = Illegal::Windows { written: 2, k: 2000, cubes: 2, slices: 1 };
    assert!(matches!(error, PlanError::Unfit { reason, .. } if reason == found));
    // A buffer as long as a slice serves any number of elements.
    let problem = stated(ElementType::F32, &[100, 1000], 1, 1000);
    let mut plan = chosen(&problem, &device);
    assert_eq!(plan.buffer, 1024);
    plan.buffer = 512;
    assert!(plan.check(&problem, &device).is_err());
    plan.version = 0;
    assert!(matches!(plan.check(&problem, &device).unwrap_err(), PlanError::Version { .. }));
}

/// Chosen plans obey the rules of devices with little of everything.
#[test]
fn chosen_plans_fit_small_devices() {
    for shared in [1 << 10, 4 << 10, 16 << 10, 64 << 10] {
        for units in [16, 64, 1024] {
            let mut device = Device::h200();
            (device.shared_memory_bytes, device.most_shared_memory_bytes) = (shared, 0);
            device.max_units_per_cube = units;
            (device.plane_size_min, device.plane_size_max) = (8, 8);
            for element in [ElementType::BF16, ElementType::F64] {
                for (shape, axis) in [(&[7, 3000], 1), (&[3000, 70], 0), (&[100, 9], 1)] {
                    let len = shape[axis];
                    for k in [1, 5, len / 2, len] {
                        chosen(&stated(element, shape, axis, k), &device);
                    }
                }
            }
        }
    }
}

/// A plan comes back from JSON as a plan of its kind.
#[cfg(feature = "serde")]
#[test]
fn plans_are_saved() {
    use reduce_planner::AnyPlan;

    for k in [10, 3000] {
        let plan = chosen(&stated(ElementType::F32, &[9, 5000], 1, k), &Device::h200());
        let text = serde_json::to_string(&AnyPlan::from(plan)).unwrap();
        assert_eq!(serde_json::from_str::<AnyPlan>(&text).unwrap(), AnyPlan::TopK(plan));
    }
}

/// Estimates know what `k` costs: they are near the times in microseconds that selections took on
/// H200s, and the one with sorted runs on an H100. Those of the device alone count, because calls
/// followed each other.
#[test]
fn estimates_are_near_measured_times() {
    let device = Device::h200();
    let f32s = |shape: &[usize], axis, k| stated(ElementType::F32, shape, axis, k);
    let number = |element, shape: &[usize], k| writing(element, shape, 1, k, 1);
    for (problem, measured) in [
        (f32s(&[256, 131_072], 1, 64), 50.3),
        (f32s(&[256, 131_072], 1, 1024), 102.5),
        (f32s(&[512, 128_256], 1, 50), 92.4),
        (f32s(&[65536, 1024], 1, 8), 84.1),
        (f32s(&[65536, 128], 1, 8), 25.0),
        (f32s(&[4096, 50257], 1, 1), 232.1),
        (f32s(&[1 << 28], 0, 100), 307.9),
        (f32s(&[65536, 1024], 0, 32), 171.4),
        (f32s(&[64, 131_072], 1, 20_000), 1320.0),
        (stated(ElementType::BF16, &[256, 131_072], 1, 64), 56.8),
        (stated(ElementType::BF16, &[65536, 1024], 1, 8), 82.4),
        (number(ElementType::F32, &[4096, 8192], 100), 75.4),
        (number(ElementType::F32, &[4096, 8192], 4096), 101.6),
        (number(ElementType::F32, &[16384, 2048], 1024), 113.0),
        (number(ElementType::F32, &[32768, 1024], 512), 138.0),
        (number(ElementType::F32, &[512, 128_256], 64128), 341.7),
        (number(ElementType::F64, &[2048, 8192], 4096), 222.0),
    ] {
        let Choice { plan, estimate, .. } = choose_top_k(&problem, &device).unwrap();
        let ratio = estimate.device_ns() * 1e-3 / measured;
        assert!(
            (0.7..1.3).contains(&ratio),
            "{problem}: {ratio} of {measured}, {plan}: {estimate}"
        );
    }
}
