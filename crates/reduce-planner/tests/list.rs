//! Lists of tensors: what the planner decides, and what a plan may not do.

use std::collections::BTreeSet;

use reduce_planner::{
    Access, AppliedListPlan, AppliedListProblem, Choice, Combine, Device, Direction, ElementType,
    Illegal, InputSpec, ListLaunch, ListPlan, ListProblem, ListShare, Numerics, OperatorClass,
    PlanError, Planned, ProblemError, TuneOptions, choose_applied_list, choose_list,
    row_major_strides, tune,
};

const NORM: OperatorClass = OperatorClass::new("norm", 4);

/// A list of row-major tensors.
fn stated(operator: OperatorClass, tensors: &[(ElementType, &[usize])]) -> ListProblem {
    let strides: Vec<Vec<usize>> =
        tensors.iter().map(|(_, shape)| row_major_strides(shape)).collect();
    let inputs = tensors.iter().zip(&strides).map(|(&(element, shape), strides)| InputSpec {
        element,
        shape,
        strides,
        alignment: 256,
    });
    let inputs: Vec<InputSpec<'_>> = inputs.collect();
    ListProblem::new(operator, &inputs, &[ElementType::F32]).unwrap()
}

/// Cubes that would be little more than reside together are half as many. Of more or of fewer there
/// are as many as leave units their usual loads.
#[test]
fn cubes_reside_together() {
    let device = Device::h200();
    let cubes = |element: ElementType, tensors: usize, rows: usize| {
        let shape: &[usize] = &[rows, 4096];
        let plan = choose_list(&stated(NORM, &vec![(element, shape); tensors]), &device).unwrap();
        plan.plan.launches.iter().map(ListLaunch::cubes).sum::<u64>()
    };
    // 2112 cubes of 128 units reside, and 1056 of 256.
    assert_eq!(cubes(ElementType::BF16, 40, 1024), 1280);
    assert_eq!(cubes(ElementType::F32, 30, 1024), 960);
    assert_eq!(cubes(ElementType::BF16, 30, 1024), 1920);
    assert_eq!(cubes(ElementType::F32, 45, 1024), 2880);
    // Half of them would not reside together either.
    assert_eq!(cubes(ElementType::BF16, 70, 1024), 4480);
    // Each of 36 tensors has 65 cubes, the last of which has few loads.
    assert_eq!(cubes(ElementType::BF16, 36, 1025), 1188);
}

/// The shapes of the gradients of four layers of a Llama of 8 billion parameters.
fn llama() -> ListProblem {
    let layer: [&[usize]; 11] = [
        &[4096, 4096],
        &[4096, 4096],
        &[4096, 4096],
        &[4096, 4096],
        &[4096, 1024],
        &[4096, 1024],
        &[14336, 4096],
        &[14336, 4096],
        &[14336, 4096],
        &[4096],
        &[4096],
    ];
    let tensors: Vec<(ElementType, &[usize])> =
        layer.repeat(4).into_iter().map(|shape| (ElementType::F32, shape)).collect();
    stated(NORM, &tensors)
}

/// Tensors of very different sizes share one launch, and their cubes have as much work.
#[test]
fn large_lists_are_balanced() {
    let list = llama();
    let choice = choose_list(&list, &Device::h200()).unwrap();
    let [launch] = &choice.plan.launches[..] else { panic!("{}", choice.plan) };
    assert_eq!((launch.tensors.len(), launch.outer_dims), (44, 0));
    assert_eq!((launch.access.vector, choice.plan.launch_count()), (4, 2));
    let units = u64::from(choice.plan.units_per_cube);
    for share in &launch.tensors {
        let loads = launch.access.loads_per_output(&list.tensors()[share.tensor]);
        let each = loads.div_ceil(u64::from(share.cubes) * units);
        assert!(each == 64 || share.cubes == 1, "{each} loads of {share:?}");
    }
    assert_eq!(list.bytes(), 4 * list.elements() + 45 * 4);
    assert!(choice.estimate.microseconds() > 880.0, "{}", choice.estimate);
    let words = choice.plan.to_string();
    assert!(
        words.starts_with("list: 2 launches, the last of which merges 15368 partials"),
        "{words}"
    );
}

/// Types, gaps and lengths that fill no vector need kernels of their own; empty tensors need none.
#[test]
fn one_kernel_reads_what_is_alike() {
    use ElementType::{BF16, F32};
    let list = stated(
        NORM,
        &[
            (F32, &[1000]),
            (BF16, &[1000]),
            (F32, &[10, 10]),
            (F32, &[3]),
            (F32, &[0, 5]),
            (F32, &[1001]),
        ],
    );
    let plan = choose_list(&list, &Device::h200()).unwrap().plan;
    let tensors = |launch: &ListLaunch| -> Vec<usize> {
        launch.tensors.iter().map(|share| share.tensor).collect()
    };
    let found: Vec<(usize, Vec<usize>)> =
        plan.launches.iter().map(|launch| (launch.access.vector, tensors(launch))).collect();
    assert_eq!(found, [(4, vec![0, 2, 5]), (8, vec![1]), (1, vec![3])]);
    // Buffers are rounded up, and those of tensors with an end that fills no vector are bound
    // twice.
    assert_eq!((plan.launches[0].buffers, plan.launches[0].tail_buffers), (4, 1));
}

/// A device that binds few buffers takes more launches, and one that binds too few none.
#[test]
fn launches_follow_the_bindings() {
    let list = llama();
    let mut device = Device::h200();
    device.max_bindings = 10;
    let plan = choose_list(&list, &device).unwrap().plan;
    assert_eq!(plan.launches.len(), 6);
    assert!(plan.launches.iter().all(|launch| launch.buffers <= 8), "{plan}");
    device.max_bindings = 2;
    let error = choose_list(&list, &device).unwrap_err();
    let reason = Illegal::Bindings { bindings: 3, available: 2 };
    assert!(
        matches!(&error, PlanError::Unfit { reason: found, .. } if *found == reason),
        "{error}"
    );
}

/// Where bits depend on no other tensor, lists of all lengths share two kernels: their launches
/// bind one of two numbers of buffers, and more than 64 tensors take several launches. A tail takes
/// a buffer more, in the same two numbers.
#[test]
fn invariant_lists_share_two_kernels() {
    let device = Device::h200();
    for (len, tails) in [(1000, false), (1001, true)] {
        let mut kernels = BTreeSet::new();
        for tensors in (1..=200).chain([1000]) {
            let list = stated(NORM, &vec![(ElementType::F32, &[len][..]); tensors])
                .with_numerics(Numerics::BatchInvariant);
            let plan = choose_list(&list, &device).unwrap().plan;
            plan.check(&list, &device).unwrap();
            assert_eq!(plan.launches.len(), tensors.div_ceil(64));
            for launch in plan.launches {
                kernels.insert((launch.buffers, launch.tail_buffers));
            }
        }
        let expected = [16, 64].map(|buffers| (buffers, if tails { buffers } else { 0 }));
        assert_eq!(Vec::from_iter(kernels), expected);
    }
    // A device that binds few buffers has smaller kernels.
    let mut few = device;
    few.max_bindings = 10;
    let list =
        stated(NORM, &[(ElementType::F32, &[1001][..]); 9]).with_numerics(Numerics::BatchInvariant);
    let plan = choose_list(&list, &few).unwrap().plan;
    let buffers: Vec<_> = plan.launches.iter().map(|it| (it.buffers, it.tail_buffers)).collect();
    assert_eq!(buffers, [(4, 4); 3]);
}

/// Every rule that a plan from a file may break.
#[test]
fn hostile_plans_are_refused() {
    use ElementType::{BF16, F32};
    let list = stated(NORM, &[(F32, &[1000]), (BF16, &[1000]), (F32, &[0])]);
    let device = Device::h200();
    let plan = choose_list(&list, &device).unwrap().plan;
    let refused = |change: &dyn Fn(&mut ListPlan)| {
        let mut plan = plan.clone();
        change(&mut plan);
        match plan.check(&list, &device).unwrap_err() {
            PlanError::Unfit { reason, .. } => reason,
            other => panic!("{other}"),
        }
    };
    let share = |tensor| ListShare::new(tensor, 1);
    assert_eq!(
        refused(&|plan| plan.launches[0].tensors.push(share(0))),
        Illegal::ListedTimes { tensor: 0, times: 2 }
    );
    assert_eq!(
        refused(&|plan| plan.launches[0].tensors.push(share(2))),
        Illegal::ListedTimes { tensor: 2, times: 1 }
    );
    assert_eq!(
        refused(&|plan| drop(plan.launches.pop())),
        Illegal::ListedTimes { tensor: 1, times: 0 }
    );
    assert_eq!(
        refused(&|plan| plan.launches[0].tensors.push(share(7))),
        Illegal::NotListed { tensor: 7, tensors: 3 }
    );
    assert_eq!(
        refused(&|plan| plan.launches[0].tensors.push(share(1))),
        Illegal::ListedTypes { tensor: 1 }
    );
    assert_eq!(
        refused(&|plan| plan.launches[0].buffers = 0),
        Illegal::ListedBuffers { found: (0, 0), needed: (1, 0) }
    );
    assert_eq!(refused(&|plan| plan.launches[0].tensors.clear()), Illegal::ListedNothing);
    assert_eq!(refused(&|plan| plan.launches[0].tensors[0].cubes = 0), Illegal::ListedNothing);
    let across = Access::new(Direction::Across);
    assert_eq!(refused(&|plan| plan.launches[0].access = across), Illegal::ListAccess);
    let wide = plan.launches[0].access.with_vector(16);
    assert!(matches!(
        refused(&|plan| plan.launches[0].access = wide),
        Illegal::LoadTooWide { bytes: 64, max: 16 }
    ));
    assert!(matches!(
        refused(&|plan| plan.launches[0].tensors[0].cubes = u32::MAX),
        Illegal::SplitStride { .. }
    ));
    assert_eq!(
        refused(&|plan| plan.launches[0].outer_dims = 1_000_000_000_000),
        Illegal::TooManyOuterDims { dims: 1_000_000_000_000, most: 0 }
    );
    assert!(matches!(refused(&|plan| plan.merging_units = 48), Illegal::NotPowerOfTwo { .. }));
    assert!(matches!(refused(&|plan| plan.units_per_cube = 16), Illegal::CubeBelowPlane { .. }));
    let mut old = plan.clone();
    old.version = 0;
    assert!(matches!(old.check(&list, &device).unwrap_err(), PlanError::Version { .. }));
    // A tensor with rows does not fit a launch without outer dimensions.
    let (shape, strides) = ([6, 50], [64, 1]);
    let input = InputSpec { element: F32, shape: &shape, strides: &strides, alignment: 256 };
    let padded = ListProblem::new(NORM, &[input], &[F32]).unwrap();
    let mut plan = choose_list(&padded, &device).unwrap().plan;
    assert_eq!((plan.launches[0].outer_dims, plan.launches[0].access.vector), (1, 4));
    plan.launches[0].outer_dims = 0;
    let error = plan.check(&padded, &device).unwrap_err().to_string();
    assert!(error.contains("tensor 0 has 1 dimensions beside the inner one"), "{error}");
}

/// Tables have a word for each cube, so a plan from a file may not have any number of them,
/// although those of each tensor are few enough.
#[test]
fn the_cubes_of_a_list_are_counted() {
    let list = stated(NORM, &[(ElementType::F32, &[1000][..]); 8]);
    let device = Device::h200();
    let mut plan = choose_list(&list, &device).unwrap().plan;
    plan.units_per_cube = 1;
    plan.merging_units = 1;
    plan.combine = Combine::Shared;
    let access = Access::new(Direction::Along);
    for launch in &mut plan.launches {
        launch.access = access;
        launch.tensors.iter_mut().for_each(|share| share.cubes = 1 << 23);
    }
    assert_eq!(plan.partials(), 1 << 26);
    plan.check(&list, &device).unwrap();
    plan.launches[0].tensors[0].cubes += 1;
    let error = plan.check(&list, &device).unwrap_err().to_string();
    assert!(error.contains("67108865 partials are more than 67108864"), "{error}");
}

/// What is no list of one operator.
#[test]
fn lists_that_cannot_be_stated() {
    let arg = OperatorClass::new("argmax", 8).positional();
    let error = ListProblem::new(arg, &[], &[]).unwrap_err();
    assert_eq!(error, ProblemError::PositionalList { operator: "argmax" });
    let max = OperatorClass::new("max", 4).undefined_on_empty();
    let error = ListProblem::new(max, &[], &[]).unwrap_err();
    assert_eq!(error, ProblemError::EmptyList { operator: "max" });
    let (element, alignment) = (ElementType::F32, 256);
    let inputs = [
        InputSpec { element, shape: &[4], strides: &[1], alignment },
        InputSpec { element, shape: &[4], strides: &[], alignment },
    ];
    let error = ListProblem::new(NORM, &inputs, &[element]).unwrap_err();
    assert!(
        error.to_string().starts_with("tensor 1 of the list: the input has 1 dimensions"),
        "{error}"
    );
}

/// Elements that are replaced are bound once, others twice.
#[test]
fn applications_bind_outputs() {
    let shape = [4096, 4096];
    let strides = row_major_strides(&shape);
    let input =
        InputSpec { element: ElementType::F32, shape: &shape, strides: &strides, alignment: 256 };
    let inputs = [input; 40];
    let outputs = [&strides[..]; 40];
    let applied = |inputs: &[InputSpec<'_>], outputs: &[&[usize]], in_place| {
        let reduction = ListProblem::new(NORM, inputs, &[ElementType::F32]).unwrap();
        AppliedListProblem::new(reduction, inputs, outputs, in_place).unwrap()
    };
    let mut device = Device::h200();
    device.max_bindings = 34;
    let launches = |in_place| {
        let list = applied(&inputs, &outputs, in_place);
        let plan = choose_applied_list(&list, &device).unwrap().plan;
        plan.check(&list, &device).unwrap();
        plan.apply.launches.len()
    };
    assert_eq!((launches(true), launches(false)), (2, 3));
    // A plan that binds each tensor once does not run into new tensors.
    let plan = choose_applied_list(&applied(&inputs, &outputs, true), &device).unwrap().plan;
    let error = plan.check(&applied(&inputs, &outputs, false), &device).unwrap_err();
    let bindings = 2 + 2 * plan.apply.launches[0].buffers;
    assert_eq!(*unfit(&error), Illegal::Bindings { bindings, available: 34 });
    // Rows whose output lies without gaps, though their input does not, are written in vectors
    // where rows are whole vectors.
    let padded = InputSpec { shape: &[6, 48], strides: &[64, 1], ..input };
    let odd = InputSpec { shape: &[6, 50], strides: &[64, 1], ..input };
    let list = applied(&[padded, odd], &[&[48, 1], &[50, 1]], false);
    let AppliedListPlan { reduce, mut apply, .. } =
        choose_applied_list(&list, &device).unwrap().plan;
    let vectors: Vec<usize> = apply.launches.iter().map(|launch| launch.access.vector).collect();
    assert_eq!(vectors, [4, 1]);
    // The odd rows cannot be stored in vectors.
    apply.launches[1].access = apply.launches[0].access;
    let error = AppliedListPlan::new(reduce, apply).check(&list, &device).unwrap_err();
    assert_eq!(*unfit(&error), Illegal::RowsMisaligned { vector: 4 });
}

/// An application reads each element again and writes it, in launches of its own.
#[test]
fn applications_take_longer_than_their_reductions() {
    let list = llama();
    let strides: Vec<Vec<usize>> =
        list.tensors().iter().map(|tensor| row_major_strides(&[tensor.reduction_len()])).collect();
    let shapes: Vec<[usize; 1]> =
        list.tensors().iter().map(|tensor| [tensor.reduction_len()]).collect();
    let inputs: Vec<InputSpec<'_>> = shapes
        .iter()
        .zip(&strides)
        .map(|(shape, strides)| InputSpec {
            element: ElementType::F32,
            shape,
            strides,
            alignment: 256,
        })
        .collect();
    let outputs: Vec<&[usize]> = strides.iter().map(Vec::as_slice).collect();
    let device = Device::h200();
    let reduced = choose_list(&list, &device).unwrap();
    let applied = AppliedListProblem::new(list, &inputs, &outputs, true).unwrap();
    let choice = choose_applied_list(&applied, &device).unwrap();
    assert_eq!(choice.plan.reduce, reduced.plan);
    let times = choice.estimate.transfer_ns / reduced.estimate.transfer_ns;
    assert!((2.99..3.01).contains(&times), "{times}");
    let text = serde_json::to_string(&choice).unwrap();
    assert_eq!(serde_json::from_str::<Choice<AppliedListPlan>>(&text).unwrap(), choice);
    assert!(choice.refused.is_empty() && choice.runners_up.is_empty());
}

/// Lists are tuned as reductions are: a plan that is measured to be faster replaces the choice.
/// Where bits must not change, the choice is the only one.
#[test]
fn lists_are_tuned() {
    let (list, device) = (llama(), Device::h200());
    let candidates = list.candidates(&device).unwrap();
    assert!(candidates.len() >= 5, "{}", candidates.len());
    for candidate in &candidates {
        candidate.plan.check(&list, &device).unwrap();
    }
    let measure = |plan: &ListPlan| Ok::<f64, ()>(f64::from(plan.units_per_cube));
    let tuned = tune(&list, &device, &TuneOptions::default(), measure).unwrap();
    assert_eq!((tuned.untuned_microseconds, tuned.microseconds), (256.0, 128.0));
    let invariant = list.with_numerics(Numerics::BatchInvariant);
    assert_eq!(invariant.candidates(&device).unwrap().len(), 1);
}

/// The rule that a plan breaks.
fn unfit(error: &PlanError) -> &Illegal {
    match error {
        PlanError::Unfit { reason, .. } => reason,
        other => panic!("{other}"),
    }
}
