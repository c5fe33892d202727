//! Inputs of which only the selected elements are kept, beside a stable sort on the host.

use cubecl::{prelude::*, std::tensor::TensorHandle};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    ElementType, ErrorKind, TensorDescription, cubecl, device_of,
    planner::{Planned, row_major_strides, span},
    plans::{PlanSource, PlanStore, RecordedCall, TunedPlan},
    top_k::{Over, TopK, largest},
};

use crate::{
    case::Case,
    oracle::reduce_naively,
    run::{POISON, encode, read, tensor, tensor_of},
    top_k::{Asked, Ordered, orders},
};

/// Elements of which many are equal, so that the last selected one ties with others, with NaN,
/// infinities and both zeros.
fn elements(element: ElementType, len: usize) -> Vec<u8> {
    let mut rng = StdRng::seed_from_u64(17);
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0];
    let draw = |rng: &mut StdRng| match rng.random_range(0..12) {
        nth @ 0..5 if element.is_float() => special[nth],
        _ if element == ElementType::Bool => f64::from(rng.random_range(0..2)),
        _ => f64::from(rng.random_range(0..9)),
    };
    encode(element, &(0..len).map(|_| draw(&mut rng)).collect::<Vec<_>>())
}

/// Masks a tensor, into one of poison with a gap after each element or in place, and compares it
/// with the host.
fn check(client: &Client, case: &Case, element: ElementType, asked: Asked, in_place: bool) {
    let told = format!("{element} {case:?} {asked:?} {in_place}");
    let size = element.bytes();
    let bytes = elements(element, case.span());
    let input = tensor_of(client, element, &bytes, &case.shape, &case.strides);
    let strides = match in_place {
        true => case.strides.clone(),
        false => row_major_strides(&case.shape).iter().map(|stride| 2 * stride).collect(),
    };
    let len = span(&case.shape, &strides).unwrap();
    let poison = vec![POISON; len * size];
    let output = match in_place {
        true => input.clone(),
        false => tensor_of(client, element, &poison, &case.shape, &strides),
    };
    let has_infinities = element.is_float() && !element.is_f8();
    let fill = if has_infinities { f32::NEG_INFINITY } else { 1.0 };
    let selection = asked.of_input(&input).over(case.axes.as_slice());
    selection
        .keep_only_into(client, fill, output.clone().binding())
        .unwrap_or_else(|error| panic!("{told}: {error}"));
    let found = read::<u8>(client, &output, len * size);

    let mut expected = if in_place { bytes.clone() } else { poison };
    let slices = |strides: &[usize]| {
        let places: Vec<usize> = (0..span(&case.shape, strides).unwrap()).collect();
        reduce_naively(&places, &case.shape, strides, &case.axes, <[usize]>::to_vec)
    };
    let fill = encode(element, &[f64::from(fill)]);
    for (from, to) in slices(&case.strides).iter().zip(slices(&strides)) {
        let of = |&at: &usize| &bytes[at * size..][..size];
        let ordered: Vec<Ordered> = from.iter().map(|at| Ordered::of(element, of(at))).collect();
        let kept = asked.select(&ordered);
        for (nth, (from, to)) in from.iter().zip(to).enumerate() {
            let element = if kept.contains(&nth) { of(from) } else { &fill };
            expected[to * size..][..size].copy_from_slice(element);
        }
    }
    assert!(found == expected, "{told}");
}

/// Slices of every layout in every order of values, and elements of every type: exactly the
/// selected elements stay, ties and NaN included, in a tensor with gaps and in place.
pub(crate) fn masks(client: &Client) {
    let cases = [
        Case::contiguous(&[5, 130], &[1]),
        Case::contiguous(&[130, 5], &[0]),
        Case::contiguous(&[3, 2500], &[1]),
        Case::contiguous(&[40, 3, 50], &[0, 2]),
        Case::contiguous(&[40, 3, 50], &[1]),
        Case::pitched(&[6, 100], 104, &[1]),
        Case::permuted(&[24, 10, 12], &[2, 0, 1], &[0, 1]),
        Case::sliced(&[9, 80], &[2, 2], &[1]),
    ];
    for (nth, case) in cases.iter().enumerate() {
        for k in [1, 20.min(case.reduction_len()), case.reduction_len().min(300)] {
            for asked in orders(k).skip(nth % 4).step_by(4) {
                check(client, case, ElementType::F32, asked, nth % 2 == 0);
            }
        }
    }
    for element in ElementType::ALL.into_iter().filter(|&it| device_of(client).has(it)) {
        for asked in orders(7).take(4) {
            check(client, &cases[0], element, asked, false);
        }
    }

    // New tensors are row-major.
    let data = [1.0f32, 3.0, 3.0, 0.0, -5.0, 5.0, 4.0, 5.0];
    let x = tensor(client, &data, &[2, 4], &[4, 1]);
    let masked = largest(1, &x).over(1).keep_only(client, 0.5).unwrap();
    let expected = [0.5, 3.0, 0.5, 0.5, 0.5, 5.0, 0.5, 0.5];
    assert_eq!(read::<f32>(client, &masked, 8), expected);
    let all = largest(9, &x).over(1).or_fewer().keep_only(client, 0.0).unwrap();
    assert_eq!(read::<f32>(client, &all, 8), data);

    // What is refused, before anything is launched.
    let refused = |selection: TopK<'_, TensorHandle>, fill: f32| {
        let error = selection.over(1).keep_only(client, fill).unwrap_err();
        assert!(!error.launched());
        error.kind()
    };
    assert_eq!(refused(largest(5, &x), 0.0), ErrorKind::Shape);
    assert_eq!(refused(largest(0, &x), 0.0), ErrorKind::Parameter);
    assert_eq!(refused(largest(2, &x).only_last(), 0.0), ErrorKind::Arguments);
    assert_eq!(refused(largest(2, &x).probabilities(Over::Slice), 0.0), ErrorKind::Arguments);
    let positions = tensor(client, &[0u32; 8], &[2, 4], &[4, 1]);
    assert_eq!(refused(largest(2, &x).with_positions(&positions), 0.0), ErrorKind::Arguments);
    let integers = tensor(client, &[1i32; 8], &[2, 4], &[4, 1]);
    assert_eq!(refused(largest(2, &integers), f32::NEG_INFINITY), ErrorKind::Parameter);
    assert_eq!(refused(largest(2, &integers), 0.5), ErrorKind::Parameter);
    assert_eq!(refused(largest(2, &positions), -1.0), ErrorKind::Parameter);
    let other = tensor(client, &[0.0f32; 8], &[4, 2], &[2, 1]);
    let error = largest(2, &x).over(1).keep_only_into(client, 0.0, other.binding()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape);
    let large = tensor(client, &[0.0f32; 16], &[4, 4], &[4, 1]);
    let short = tensor(client, &[0.0f32; 8], &[4, 4], &[4, 1]).binding();
    let error = largest(2, &large).over(1).keep_only_into(client, 0.0, short).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Buffer);
    let empty = tensor::<f32>(client, &[], &[0, 4], &[4, 1]);
    assert_eq!(largest(2, &empty).over(1).keep_only(client, 0.0).unwrap().shape()[..], [0, 4]);
}

/// A mask that is not run: its problem, its plan and what it says of both launches, its recording,
/// stored plans, and the errors of a run.
pub(crate) fn planned(client: &Client) {
    let device = device_of(client);
    let x = TensorDescription::row_major(ElementType::F32, [40, 3, 50]);
    let selection = || largest(7, &x).over([0, 2]);
    let mask = || selection().masked(f32::NEG_INFINITY);
    mask().check(client).unwrap();
    let problem = mask().problem().unwrap();
    let last = selection().only_last().problem().unwrap();
    assert_eq!(problem, last.clone().masked());
    assert_eq!(problem.bytes(), 8 * 40 * 3 * 50);
    let choice = mask().choose(client).unwrap();
    let (plan, of_last) = (choice.plan, last.choose(&device).unwrap());
    assert_eq!(plan, of_last.plan);
    assert!(choice.estimate.device_ns() > of_last.estimate.device_ns());
    let launches = plan.whole_launch_count(&problem, &device).unwrap();
    assert_eq!(launches, plan.launch_count() + 1);
    let told = problem.sentence(&plan, &device).unwrap();
    let end = "; then a launch that compares each element with the last selected one";
    assert_eq!(told, format!("{launches} launches: {plan}{end}"));

    let mut store = PlanStore::new(&device);
    let mut other = plan;
    other.buffer *= 2;
    store.insert(&problem, &device, TunedPlan::new(other, 1, 2)).unwrap();
    let found = selection().with_plans(&store).masked(0.0).plan(client).unwrap();
    assert_eq!((found.plan, found.source), (other, PlanSource::Stored));

    let padded = TensorDescription::strided(ElementType::F32, [6, 100], [104, 1]);
    for (mask, told) in [
        (mask(), "top_k 7 of f32 [40, 3, 50] axis (0, 2) as a mask"),
        (
            largest(9, &padded).over(1).masked(0.0),
            "top_k 9 of f32 [6, 100] axis 1 strides [104, 1] as a mask",
        ),
    ] {
        let line = mask.record().unwrap().to_json();
        let RecordedCall::TopK(read) = RecordedCall::parse(&line).unwrap() else {
            panic!("{line}")
        };
        assert_eq!(read.to_string(), told);
        assert_eq!(read.problem().unwrap(), mask.problem().unwrap());
    }

    // A check gives the error of a run.
    let data = tensor(client, &[1i32; 8], &[2, 4], &[4, 1]);
    let short = tensor(client, &[1i32; 8], &[4, 4], &[4, 1]);
    for (selection, fill) in [
        (largest(5, &data).over(1), 0.0),
        (largest(0, &data).over(1), 0.0),
        (largest(2, &data).over(1).only_last(), 0.0),
        (largest(2, &data).over(1), 0.5),
        (largest(2, &short).over(1), 0.0),
    ] {
        let mask = selection.masked(fill);
        let checked = mask.check(client).unwrap_err().to_string();
        assert_eq!(mask.run(client).unwrap_err().to_string(), checked);
    }
}
