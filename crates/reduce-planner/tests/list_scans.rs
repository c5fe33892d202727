//! Lists of tensors that are scanned: what the planner decides, and what a plan may not do.

use reduce_planner::{
    Device, ElementType, Illegal, InputSpec, ListScanLaunch, ListScanPlan, ListScanProblem,
    Numerics, OperatorClass, PlanError, Planned, ScanProblem, ScanSpec, ScheduleKind,
    choose_list_scan, choose_scan, row_major_strides,
};

const SUM: OperatorClass = OperatorClass::new("sum", 4);

/// Running sums of a tensor along its last axis, to results of its own type.
fn strided(element: ElementType, shape: &[usize], strides: &[usize]) -> ScanProblem {
    let input = InputSpec { element, shape, strides, alignment: 256 };
    let axis = shape.len() - 1;
    ScanProblem::new(SUM, &input, Some(&[axis]), &ScanSpec::new(&[element])).unwrap()
}

/// Those of a row-major tensor of f32.
fn sums(shape: &[usize]) -> ScanProblem {
    strided(ElementType::F32, shape, &row_major_strides(shape))
}

fn chosen(list: &ListScanProblem, device: &Device) -> ListScanPlan {
    let plan = choose_list_scan(list, device).unwrap().plan;
    plan.check(list, device).unwrap();
    plan
}

fn tensors(plan: &ListScanPlan) -> Vec<Vec<usize>> {
    plan.scans.iter().map(|launch| launch.tensors.clone()).collect()
}

/// Tensors of one plan share a launch, whatever their shapes. Empty ones are in none, those of
/// another type or order need another kernel, and a row of several cubes has launches of its own.
#[test]
fn tensors_of_one_plan_share_a_launch() {
    let device = Device::h200();
    let same = |shape: &[usize]| sums(shape);
    let bf16 = strided(ElementType::BF16, &[5, 64], &[64, 1]);
    let list = ListScanProblem::new(vec![
        same(&[10, 64]),
        bf16,
        same(&[2, 3, 64]),
        same(&[0, 64]),
        same(&[1 << 26]),
        strided(ElementType::F32, &[7, 5, 64], &[64, 1000, 1]),
        same(&[1 << 26]),
    ]);
    let plan = chosen(&list, &device);
    assert_eq!(tensors(&plan), [vec![0, 2, 5], vec![1], vec![4], vec![6]]);
    let [shared, .., split] = &plan.scans[..] else { panic!("{plan}") };
    assert_eq!((shared.buffers, shared.outer_dims(&list)), (4, (2, 0)));
    assert_eq!(split.scan.kind(), ScheduleKind::Split);
    let launches: u32 = plan.scans.iter().map(ListScanLaunch::launches).sum();
    assert_eq!(plan.launch_count(), launches as usize);
    assert_eq!(
        chosen(&ListScanProblem::new(vec![same(&[10, 64]), same(&[700, 64])]), &device).to_string(),
        "list of scans: 1 launch; 2 tensors in one launch: scan by a plane: 16 units per output in \
         planes of 16, 8 outputs per cube; vectors of 4 along the reduction, 1 load in flight"
    );
    assert_eq!(chosen(&ListScanProblem::new(Vec::new()), &device).launch_count(), 0);
}

/// A tensor has the plan of its scan alone, whatever else is in the list.
#[test]
fn each_tensor_has_the_plan_of_its_scan_alone() {
    let numerics = [Numerics::default(), Numerics::BatchInvariant];
    let shapes: [&[usize]; 6] = [&[64], &[3, 1000], &[3, 1001], &[2, 100_000], &[1 << 22], &[1, 1]];
    for (device, numerics) in [Device::h200(), Device::software_adapter()]
        .iter()
        .flat_map(|it| numerics.map(|of| (it, of)))
    {
        let of_tensors = shapes.iter().cycle().take(14);
        let of_tensors: Vec<ScanProblem> =
            of_tensors.map(|shape| sums(shape).with_numerics(numerics)).collect();
        let list = ListScanProblem::new(of_tensors.clone());
        let plan = chosen(&list, device);
        for launch in &plan.scans {
            for &tensor in &launch.tensors {
                assert_eq!(launch.scan, choose_scan(&of_tensors[tensor], device).unwrap().plan);
            }
        }
        assert!(plan.scans.iter().any(ListScanLaunch::is_shared), "{plan}");
    }
}

/// Launches end where the device binds no more buffers, and where results do not fit the buffer
/// that they share. Lists of several lengths share kernels.
#[test]
fn launches_end_at_the_limits() {
    let device = Device::h200();
    let buffers = |device: &Device, count: usize, shape: &[usize], numerics| {
        let of_tensor = sums(shape).with_numerics(numerics);
        let list = ListScanProblem::new(vec![of_tensor; count]);
        let launches = chosen(&list, device).scans.into_iter();
        launches.map(|it| (it.tensors.len(), it.buffers)).collect::<Vec<_>>()
    };
    let default = Numerics::default();
    assert_eq!(buffers(&device, 9, &[100, 64], default), [(9, 16)]);
    assert_eq!(buffers(&device, 178, &[100, 64], default), [(176, 176), (2, 2)]);
    assert_eq!(buffers(&device, 9, &[100, 64], Numerics::BatchInvariant), [(9, 16)]);
    let mut few = device.clone();
    few.max_bindings = 8;
    assert_eq!(buffers(&few, 9, &[100, 64], default), [(4, 4), (4, 4), (1, 1)]);
    // Rows that end inside vectors are bound as vectors and as elements, and so are their results.
    assert_eq!(buffers(&few, 3, &[100, 1001], default), [(2, 2), (1, 1)]);
    assert_eq!(buffers(&device, 3, &[1 << 16, 64], default), [(2, 2), (1, 1)]);
}

/// Every rule that a plan from a file may break.
#[test]
fn hostile_plans_are_refused() {
    let device = Device::h200();
    let bf16 = strided(ElementType::BF16, &[5, 64], &[64, 1]);
    let long = || sums(&[1 << 26]);
    let list = vec![sums(&[10, 64]), sums(&[3, 64]), bf16, sums(&[0]), long(), long()];
    let list = ListScanProblem::new(list);
    let plan = chosen(&list, &device);
    let error = |change: &dyn Fn(&mut ListScanPlan)| {
        let mut plan = plan.clone();
        change(&mut plan);
        plan.check(&list, &device).unwrap_err()
    };
    let refused = |change: &dyn Fn(&mut ListScanPlan)| match error(change) {
        PlanError::Unfit { reason, .. } => reason,
        other => panic!("{other}"),
    };
    let into_first = |tensor| move |plan: &mut ListScanPlan| plan.scans[0].tensors.push(tensor);
    assert_eq!(refused(&|plan| plan.scans[0].tensors.clear()), Illegal::ListedNothing);
    assert_eq!(refused(&into_first(7)), Illegal::NotListed { tensor: 7, tensors: 6 });
    assert_eq!(refused(&into_first(3)), Illegal::ListedTimes { tensor: 3, times: 1 });
    assert_eq!(
        refused(&|plan| drop(plan.scans.pop())),
        Illegal::ListedTimes { tensor: 5, times: 0 }
    );
    let twice = |plan: &mut ListScanPlan| {
        plan.scans[0].tensors.push(0);
        plan.scans[0].buffers = 4;
    };
    assert_eq!(refused(&twice), Illegal::ListedTimes { tensor: 0, times: 2 });
    let narrow = |plan: &mut ListScanPlan| {
        plan.scans[0].scan = plan.scans[1].scan;
        plan.scans[0].scan.access = plan.scans[0].scan.access.with_vector(4);
        plan.scans[0].tensors.push(2);
    };
    assert_eq!(refused(&narrow), Illegal::OtherKernel { tensor: 2 });
    let together = |plan: &mut ListScanPlan| plan.scans[2].tensors.push(5);
    assert_eq!(refused(&together), Illegal::NotShared { tensor: 4 });
    assert_eq!(
        refused(&|plan| plan.scans[0].buffers = 1),
        Illegal::ListedBuffers { found: (1, 0), needed: (2, 0) }
    );
    assert!(matches!(
        refused(&|plan| plan.scans[0].buffers = usize::MAX),
        Illegal::Bindings { .. }
    ));
    assert_eq!(
        refused(&|plan| plan.scans[2].buffers = 999),
        Illegal::ListedBuffers { found: (999, 0), needed: (1, 0) }
    );
    assert!(matches!(refused(&|plan| plan.scans[2].scan.cubes_per_output = 0), Illegal::NoCubes));
    assert_eq!(error(&|plan| plan.version = 9), PlanError::Version { found: 9, expected: 1 });

    let large = ListScanProblem::new(vec![sums(&[1 << 16, 64]); 3]);
    let scan = chosen(&large, &device).scans[0].scan;
    let plan = ListScanPlan::new(vec![ListScanLaunch::new(scan, 4, vec![0, 1, 2])]);
    let Err(PlanError::Unfit { reason, .. }) = plan.check(&large, &device) else { panic!() };
    assert_eq!(reason, Illegal::SharedElements { elements: 3 << 22, max: 1 << 23 });
}

/// What a list of scans says of itself, and what a plan should take.
#[test]
fn lists_are_told() {
    let list = ListScanProblem::new(vec![sums(&[10, 64]), sums(&[10, 64]), sums(&[64])]);
    let line = list.line();
    assert_eq!(
        line,
        "list_scan | 2 times (scan sum(4 bytes, 1 field) f32 -> f32 | kept 10:64:64 | reduced \
         64:1:1 | aligned 256 | spans 640, 640 | outputs kept 64 scanned 1) | 1 times (scan sum(4 \
         bytes, 1 field) f32 -> f32 | kept none | reduced 64:1:1 | aligned 256 | spans 64, 64 | \
         outputs kept none scanned 1)"
    );
    assert_eq!(list.bytes(), (2 * 640 + 64) * 8);
    let device = Device::h200();
    let together = list.estimate(&chosen(&list, &device), &device).unwrap();
    let apart: f64 = list
        .tensors()
        .iter()
        .map(|tensor| choose_scan(tensor, &device).unwrap().estimate.alone_ns())
        .sum();
    assert!(together.alone_ns() < apart);
}
