//! Scans of lists: every layout and type against the host, with the bits of each scan alone.

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_kernels::{
    ElementType, ErrorKind, Max, MeanVar, Operator, ReduceError, Sum, TensorDescription, cubecl,
    device_of,
    list::{ListScan, scan_list},
    operator::Arity,
    operators::{LogSumExp, MaxWithIndex},
    planner::{
        Illegal, ListScanLaunch, ListScanPlan, ListScanProblem, Numerics, PlanError, ScanPlan,
        ScheduleKind, force_scan, row_major_strides,
    },
    plans::{PlanStore, RecordedCall, TunedPlan},
    scan::scan,
    warm_up::would_compile,
};

use crate::{
    case::Case,
    operators::Checked,
    run::{POISON, capable_device, encode, read, sample, source, tensor, tensor_of},
    scans::{Scanned, WAYS, Way, plans},
};

/// A tensor of a list. The axes of its case are those of the list.
type Listed = (ElementType, Case);

fn of_f32(cases: impl IntoIterator<Item = Case>) -> Vec<Listed> {
    cases.into_iter().map(|case| (ElementType::F32, case)).collect()
}

/// A scan of a list that goes this way.
fn on_the_way<'a, O: Operator<Inputs = reduce_kernels::operator::One>>(
    way: Way,
    scans: ListScan<'a, O, TensorHandle>,
) -> ListScan<'a, O, TensorHandle> {
    let scans = if way.exclusive { scans.exclusive() } else { scans };
    if way.reverse { scans.reverse() } else { scans }
}

/// Scans a list and compares the results of each tensor with those of the host, and their bits with
/// those of its scan alone: by its own plan, or by the one that is given. Returns the plan.
fn check<O: Checked>(
    client: &Client,
    list: &[Listed],
    way: Way,
    plan: Option<ListScanPlan>,
) -> ListScanPlan {
    let device = capable_device(client);
    let mut data = Vec::new();
    let mut tensors = Vec::new();
    for (nth, (element, case)) in list.iter().enumerate() {
        data.push(sample::<O>(case, *element, nth as u64));
        let bytes = encode(*element, &data[nth]);
        tensors.push(tensor_of(client, *element, &bytes, &case.shape, &case.strides));
    }
    // Results are likely to be written where this was.
    let poison = client.create_from_slice(&vec![POISON; 1 << 20]);
    client.read_one(poison).expect("the device answers");

    let axes = &list[0].1.axes[..];
    let scans = || {
        let scans = on_the_way(way, scan_list(O::operator(), &tensors).over(axes));
        match &plan {
            Some(plan) => scans.plan_for(&device).with_plan(plan.clone()),
            None => scans,
        }
    };
    let ran = scans().plan(client).unwrap().plan;
    let types = O::Results::into_list(scans().output_types().unwrap());
    let results = O::Results::into_list(scans().run(client).unwrap());
    for (nth, (element, case)) in list.iter().enumerate() {
        let own = ran.scans.iter().find(|launch| launch.tensors.contains(&nth));
        let mut alone = way.of(scan(O::operator(), &tensors[nth]).over(axes));
        // Of a list without a given plan, each tensor has the plan that its scan alone has.
        if let Some(launch) = own.filter(|_| plan.is_some()) {
            alone = alone.plan_for(&device).with_plan(launch.scan);
        }
        let alone = O::Results::into_list(alone.run(client).unwrap());
        for (result, (of_list, alone)) in results.iter().zip(alone).enumerate() {
            let of_list = &of_list[nth];
            let of = types[result][nth];
            let strides = row_major_strides(&case.shape);
            assert_eq!((of_list.shape(), of_list.strides()), (alone.shape(), alone.strides()));
            let len = case.shape.iter().product::<usize>() * of.bytes();
            let [found, expected] = [of_list, &alone].map(|tensor| {
                let bytes = client.read_one(tensor.handle.clone()).expect("the device answers");
                bytes[..len].to_vec()
            });
            let told = format!("tensor {nth} in {ran}");
            let scanned = Scanned { case, element: *element, way, data: &data[nth], told: &told };
            if len > 0 {
                scanned.compare::<O>(result, of, &found, &strides);
            }
            assert!(found == expected, "other bits than alone: {case:?} {way:?} {told}");
        }
    }
    ran
}

/// The tensors of each launch that several share.
fn shared(plan: &ListScanPlan) -> Vec<usize> {
    let shared = plan.scans.iter().filter(|launch| launch.is_shared());
    shared.map(|launch| launch.tensors.len()).collect()
}

/// Tensors of any shapes and strides: rows with and without edges, columns, several dimensions, no
/// elements and one.
pub(crate) fn every_layout(client: &Client) {
    let list = of_f32([
        Case::contiguous(&[3, 260], &[1]),
        Case::contiguous(&[5, 517], &[1]),
        Case::permuted(&[6, 50], &[1, 0], &[1]),
        Case::contiguous(&[0, 260], &[1]),
        Case::contiguous(&[70, 260], &[1]),
        Case::pitched(&[4, 260], 264, &[1]),
        Case::contiguous(&[2, 260, 1], &[1]),
        Case::contiguous(&[1, 517], &[1]),
        Case::permuted(&[3, 50], &[1, 0], &[1]),
        Case::contiguous(&[4, 30, 12], &[1]),
        Case::contiguous(&[2, 50, 8], &[1]),
        Case::permuted(&[5, 260, 3], &[2, 0, 1], &[1]),
        Case::sliced(&[9, 90], &[2, 3], &[1]),
        Case::sliced(&[2, 90], &[2, 3], &[1]),
        Case::broadcast(&[5, 33], &[1], &[1]),
        Case::contiguous(&[9, 0], &[1]),
        Case::contiguous(&[1, 1], &[1]),
        Case::contiguous(&[4, 1], &[1]),
    ]);
    let plan = check::<Sum>(client, &list, WAYS[0], None);
    let together: usize = shared(&plan).iter().sum();
    assert!(together >= 8 && plan.launch_count() <= 12, "{plan}");
    check::<MaxWithIndex>(client, &list, WAYS[2], None);
    check::<MeanVar>(client, &list[..9], WAYS[1], None);
    // Several axes, in the order of the tensors and in another.
    let list = of_f32([
        Case::contiguous(&[4, 6, 40], &[0, 2]),
        Case::contiguous(&[2, 3, 80], &[0, 2]),
        Case::permuted(&[3, 8, 20], &[2, 0, 1], &[0, 2]),
        Case::permuted(&[3, 5, 20], &[2, 0, 1], &[0, 2]),
        Case::contiguous(&[7, 1, 40], &[0, 2]),
    ]);
    let plan = check::<Sum>(client, &list, WAYS[3], None);
    assert!(!shared(&plan).is_empty(), "{plan}");
}

/// Tensors of several types in one list: each has the types of its scan alone.
pub(crate) fn every_type(client: &Client) {
    let device = device_of(client);
    let types = [ElementType::F32, ElementType::F16, ElementType::BF16, ElementType::I32];
    let types = types.into_iter().filter(|&element| device.has(element));
    let list: Vec<Listed> = types
        .flat_map(|element| [130, 170].map(|len| (element, Case::contiguous(&[len, 8], &[0]))))
        .collect();
    let plan = check::<Sum>(client, &list, WAYS[0], None);
    assert_eq!(shared(&plan), vec![2; list.len() / 2], "{plan}");
    check::<Max>(client, &list, WAYS[1], None);
}

/// Plans of every shape, shared by tensors of different lengths.
pub(crate) fn every_plan(client: &Client) {
    let device = capable_device(client);
    for list in [
        of_f32([[3, 1036], [1, 516], [6, 260]].map(|shape| Case::contiguous(&shape, &[1]))),
        of_f32([[517, 12], [1036, 4], [741, 8]].map(|shape| Case::contiguous(&shape, &[0]))),
        of_f32([[5, 517], [1, 1029]].map(|shape| Case::contiguous(&shape, &[1]))),
    ] {
        let stated = |(element, case): &Listed| {
            let x = TensorDescription::row_major(*element, case.shape.clone());
            scan(Sum, &x).over(case.axes.as_slice()).problem().unwrap()
        };
        let problem = ListScanProblem::new(list.iter().map(stated).collect());
        let mut ran = 0;
        for of_first in plans(&problem.tensors()[0], &device) {
            let launch = ListScanLaunch::new(of_first, 4, (0..list.len()).collect());
            let plan = ListScanPlan::new(vec![launch]);
            if plan.check(&problem, &device).is_ok() {
                check::<Sum>(client, &list, WAYS[ran % WAYS.len()], Some(plan));
                ran += 1;
            }
        }
        assert!(ran >= 2, "{ran} plans for {list:?}");
    }
}

/// Rows that are split over several cubes have launches of their own, beside the others.
pub(crate) fn long_rows(client: &Client) {
    let device = capable_device(client);
    let list = of_f32([
        Case::contiguous(&[3, 260], &[1]),
        Case::contiguous(&[2, 3000], &[1]),
        Case::contiguous(&[7, 260], &[1]),
    ]);
    let stated = |(element, case): &Listed| {
        let x = TensorDescription::row_major(*element, case.shape.clone());
        scan(Sum, &x).over(1).problem().unwrap()
    };
    let problem = ListScanProblem::new(list.iter().map(stated).collect());
    let [short, long, _] = problem.tensors() else { panic!() };
    let kinds = [ScheduleKind::Unit, ScheduleKind::Plane, ScheduleKind::Cube];
    let of_short: Option<ScanPlan> =
        kinds.iter().find_map(|&kind| force_scan(kind, short, &device).ok());
    let split = plans(long, &device).into_iter().find(|plan| plan.cubes_per_output > 1);
    let (of_short, split) = (of_short.unwrap(), split.unwrap());
    let plan = ListScanPlan::new(vec![
        ListScanLaunch::new(of_short, 2, vec![0, 2]),
        ListScanLaunch::new(split, 1, vec![1]),
    ]);
    assert_eq!(plan.launch_count(), 1 + split.launches() as usize);
    check::<Sum>(client, &list, WAYS[0], Some(plan));
    check::<LogSumExp>(client, &list, WAYS[3], None);
}

/// The answers of a list that is not run, and what is refused.
pub(crate) fn contract(client: &Client) {
    let x = tensor(client, &[1f32; 24], &[4, 6], &[6, 1]);
    let y = tensor(client, &[2f32; 12], &[2, 6], &[6, 1]);
    let list = [x.clone(), y.clone()];
    let scans = || scan_list(Sum, &list).over(1);
    let plan = scans().choose(client).unwrap().plan;
    assert_eq!(plan.launch_count(), 1, "{plan}");
    assert_eq!(scans().plan(client).unwrap().plan, plan);
    scans().check(client).unwrap();
    let sums = scans().run(client).unwrap();
    assert!(!would_compile(client, &scans()).unwrap());
    assert_eq!(read::<f32>(client, &sums[0], 6), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(read::<f32>(client, &sums[1], 12)[6..], [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
    // The results of one list are the tensors of the next.
    let twice = scan_list(Sum, &sums).over(0).reverse().run(client).unwrap();
    assert_eq!(read::<f32>(client, &twice[1], 12)[..3], [4.0, 8.0, 12.0]);
    let [(highest, at), (_, none)] =
        [&list[..], &[]].map(|list| scan_list(MaxWithIndex, list).over(1).run(client).unwrap());
    assert_eq!((highest.len(), at.len(), none.len()), (2, 2, 0));
    assert_eq!(read::<u32>(client, &at[1], 12), [0; 12]);

    // An error names the tensor.
    let flat = tensor(client, &[1f32; 24], &[24], &[1]);
    let refused = |error: ReduceError| (error.kind(), error.to_string());
    let message = "tensor 1 of the list: axis 1 is out of range for a tensor of rank 1";
    let expected = (ErrorKind::Shape, message.to_owned());
    let of_flat = || scan_list(Sum, [&x, &flat]).over(1);
    assert_eq!(refused(of_flat().run(client).unwrap_err()), expected);
    assert_eq!(refused(of_flat().check(client).unwrap_err()), expected);
    let short = TensorHandle::new(x.handle.clone(), [4, 1000], [1000, 1], x.dtype);
    let error = scan_list(Sum, [&y, &short]).over(1).run(client).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Buffer);
    let error = scan_list(MeanVar { correction: f64::NAN }, &list).over(1).run(client).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Parameter);
    let error = scans().nth_output_type(1, ElementType::F32).run(client).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Arguments);

    // Plans: given, stored, refused.
    let own = device_of(client);
    let problem = scans().problem().unwrap();
    let apart = plan.scans[0]
        .tensors
        .iter()
        .map(|&nth| ListScanLaunch::new(plan.scans[0].scan, 1, vec![nth]));
    let apart = ListScanPlan::new(apart.collect());
    let given = scans().with_plan(apart.clone());
    assert_eq!(given.plan(client).unwrap().plan, apart);
    assert_eq!(read::<f32>(client, &given.run(client).unwrap()[0], 3), [1.0, 2.0, 3.0]);
    let mut store = PlanStore::new(&own);
    store.insert(&problem, &own, TunedPlan::new(apart.clone(), 10, 20)).unwrap();
    assert_eq!(scans().with_plans(&store).plan(client).unwrap().plan, apart);
    let twice = ListScanPlan::new(vec![plan.scans[0].clone(), apart.scans[0].clone()]);
    let error = scans().with_plan(twice).run(client).unwrap_err();
    let expected = Illegal::ListedTimes { tensor: 0, times: 2 };
    let found = source::<PlanError>(&error);
    assert!(
        matches!(found, Some(PlanError::Unfit { reason, .. }) if *reason == expected),
        "{error}"
    );

    // Without tensors, and as data.
    let described = [ElementType::F16, ElementType::I32]
        .map(|element| TensorDescription::row_major(element, [64, 1000]));
    let scans = scan_list(MaxWithIndex, &described).over([1]).exclusive();
    let (values, positions) = scans.output_types().unwrap();
    assert_eq!(values, [ElementType::F16, ElementType::I32]);
    assert_eq!(positions, [ElementType::U32; 2]);
    let line = scans.record().unwrap().to_json();
    let RecordedCall::ListScan(read) = RecordedCall::parse(&line).unwrap() else {
        panic!("{line}")
    };
    assert_eq!(read.problem::<MaxWithIndex>().unwrap(), scans.problem().unwrap());
    assert!(read.problem::<Sum>().is_err());
    let wide = scan_list(Sum, &described).output_type(ElementType::F32);
    assert_eq!(wide.output_types().unwrap(), [ElementType::F32; 2]);
    let invariant = scan_list(Sum, &described[..1]).over(1).numerics(Numerics::BatchInvariant);
    let problem = invariant.problem().unwrap();
    assert_eq!(problem.tensors()[0].problem().numerics(), Numerics::BatchInvariant);
}
