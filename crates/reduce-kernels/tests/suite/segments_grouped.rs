//! Segments whose elements are not neighbours: those of a list of indices, and groups by keys in any
//! order.

use cubecl::{prelude::*, std::tensor::TensorHandle};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    ElementType, ErrorKind, Max, Mean, MeanVar, ReduceError, Sum, TensorDescription, cubecl,
    device_of,
    normalize::Softmax,
    operators::ArgMax,
    pairs::ElementwiseProduct,
    planner::{Combine, Illegal, PlanError, ProblemError, row_major_strides},
    plans::RecordedCall,
    reduce,
    segments::{GroupByKeys, Groups, group_by_keys},
};

use crate::{
    applied::Function,
    case::Case,
    operators::for_each_operator,
    run::{POISON, capable_device, decode, encode, read, source, tensor, tensor_of},
    segments::{Members, check_members, offsets, ran},
    segments_applied,
};

/// A list of indices of an axis with the offsets of segments in it: elements several times, in any
/// order, and not all of them.
fn listed(len: usize, entries: usize) -> Members {
    let mut rng = StdRng::seed_from_u64((len + entries) as u64);
    let indices = (0..entries).map(|_| rng.random_range(0..len)).collect();
    Members::Listed { offsets: offsets(entries)[3].clone(), indices }
}

/// Keys in any order, of which one in eight is that of no group. A few groups have most elements, and
/// some have none.
fn keyed(len: usize, groups: usize) -> Members {
    let mut rng = StdRng::seed_from_u64((len + groups) as u64);
    let keys = (0..len).map(|_| match rng.random_range(0..8) {
        0 => [-1, groups as i64, i64::from(i32::MAX)][rng.random_range(0..3)],
        1..=3 => rng.random_range(0..groups.min(3)) as i64,
        _ => (rng.random_range(0..groups) / 2 * 2) as i64,
    });
    Members::Keyed { keys: keys.collect(), groups }
}

/// Every operator over lists of indices and over groups, of a row and of columns.
pub(crate) fn every_operator(client: &Client) {
    for_each_operator!(O => {
        for (case, members) in [
            (Case::contiguous(&[1200], &[0]), listed(1200, 2001)),
            (Case::contiguous(&[300, 6], &[0]), keyed(300, 40)),
        ] {
            ran::<O>(check_members::<O>(client, &case, ElementType::F32, &members, None));
        }
    });
}

/// Rows, columns of any number, gaps, axes in any order, and axes of one element.
pub(crate) fn every_layout(client: &Client) {
    let cases = [
        Case::contiguous(&[1], &[0]),
        Case::contiguous(&[3, 403], &[1]),
        Case::contiguous(&[700, 64], &[0]),
        Case::contiguous(&[401, 7], &[0]),
        Case::contiguous(&[5, 130, 6], &[1]),
        Case::pitched(&[6, 480], 512, &[1]),
        Case::permuted(&[24, 100, 12], &[2, 0, 1], &[1]),
        Case::sliced(&[900, 3], &[2, 1], &[0]),
    ];
    for case in &cases {
        let len = case.shape[case.axes[0]];
        for members in [listed(len, 3 * len + 2), listed(len, 60), keyed(len, 9)] {
            check_members::<Sum>(client, case, ElementType::F32, &members, None).unwrap();
            check_members::<ArgMax>(client, case, ElementType::F32, &members, None).unwrap();
        }
        check_members::<MeanVar>(client, case, ElementType::F32, &keyed(len, 20), None).unwrap();
    }
}

/// Every type of elements; every type of keys and of indices, with strides; and two inputs.
pub(crate) fn every_type(client: &Client) {
    let device = capable_device(client);
    let case = Case::contiguous(&[500], &[0]);
    for element in ElementType::ALL.into_iter().filter(|&element| device.has(element)) {
        check_members::<Max>(client, &case, element, &keyed(500, 30), None).unwrap();
        check_members::<Max>(client, &case, element, &listed(500, 700), None).unwrap();
    }
    let values: Vec<f32> = (0..10).map(|value| value as f32).collect();
    let x = tensor(client, &values, &[10], &[1]);
    for element in [ElementType::I32, ElementType::I64, ElementType::U32, ElementType::U64] {
        if !device.has(element) {
            continue;
        }
        // Every second element counts. Wrong indices name the last element.
        let bytes = encode(element, &[3.0, 0.0, 9.0, 0.0, 99.0, 0.0, 3.0]);
        let indices = tensor_of(client, element, &bytes, &[4], &[2]);
        let offsets = tensor(client, &[0u32, 1, 4], &[3], &[1]);
        let sums = reduce(Sum, &x).segments(&offsets).indices(&indices).run(client).unwrap();
        assert_eq!(read::<f32>(client, &sums, 2), [3.0, 21.0], "{element}");
        let pair =
            reduce(Sum, &x).paired(&x, ElementwiseProduct).segments(&offsets).indices(&indices);
        let found = read::<f32>(client, &pair.run(client).unwrap(), 2);
        assert_eq!(found, [9.0, 171.0], "{element}");
        let bytes = encode(element, &[1.0, 7.0, 0.0, 7.0, 1.0, 7.0, 5.0, 7.0, 0.0, 7.0]);
        let keys = tensor_of(client, element, &bytes, &[5], &[2]);
        let groups = group_by_keys(client, &keys, 2).unwrap();
        assert_eq!(read::<u32>(client, groups.indices(), 5), [1, 4, 0, 2, 3], "{element}");
        assert_eq!(read::<u32>(client, groups.offsets(), 3), [0, 2, 4], "{element}");
    }
}

/// The order of the grouping is that of a stable sort, for any number of keys and of groups, whoever
/// counts and by whichever digits.
pub(crate) fn every_grouping(client: &Client) {
    let device = capable_device(client);
    let mut rng = StdRng::seed_from_u64(5);
    for (count, groups) in
        [(0, 3), (1, 1), (5000, 1), (4097, 2), (9001, 300), (20_000, 70_000), (777, 1 << 30)]
    {
        let Members::Keyed { keys, .. } = keyed(count, groups) else { panic!("keys") };
        let words: Vec<i32> = keys.iter().map(|&key| key as i32).collect();
        let of_keys = tensor(client, &words, &[count], &[1]);
        let few = groups.min(100_000);
        let named = |&key: &i64| if (0..few as i64).contains(&key) { key as usize } else { few };
        let mut expected: Vec<u32> = (0..count as u32).collect();
        expected.sort_by_key(|&index| named(&keys[index as usize]));
        let mut offsets = vec![0u32; few + 1];
        keys.iter().map(named).filter(|&key| key < few).for_each(|key| offsets[key + 1] += 1);
        for nth in 0..few {
            offsets[nth + 1] += offsets[nth];
        }
        let chosen = GroupByKeys::new(&of_keys, few).plan(client).unwrap();
        let mut plans = vec![chosen];
        for combine in [Combine::Shared, Combine::Plane { lanes: device.plane_size_min }] {
            let mut plan = chosen;
            plan.combine = combine;
            plan.digit_bits = rng.random_range(1..6);
            plan.units_per_cube = device.plane_size_min << rng.random_range(0..2);
            plan.keys_per_unit = rng.random_range(1..9);
            plans.push(plan);
        }
        for plan in plans {
            let grouping = GroupByKeys::new(&of_keys, few).plan_for(&device).with_plan(plan);
            let found = grouping.run(client).unwrap();
            let told = format!("{count} keys of {few} groups: {plan}");
            assert_eq!(found.indices().shape()[..], [count], "{told}");
            assert_eq!(found.offsets().shape()[..], [few + 1], "{told}");
            assert!(read::<u32>(client, found.indices(), count) == expected, "{told}");
            assert!(read::<u32>(client, found.offsets(), few + 1) == offsets, "{told}");
        }
    }
}

/// Elements that are moved with their keys give the bits of those that are gathered, where they can be
/// moved; and what cannot be moved is reduced all the same.
pub(crate) fn by_keys(client: &Client) {
    let device = capable_device(client);
    let (len, count) = (3001, 50);
    let Members::Keyed { keys, .. } = keyed(len, count) else { panic!("keys") };
    let words: Vec<i32> = keys.iter().map(|&key| key as i32).collect();
    let keys = tensor(client, &words, &[len], &[1]);
    let groups = group_by_keys(client, &keys, count).unwrap();
    let numbers: Vec<f64> = (0..2 * len).map(|nth| (nth % 97) as f64 / 7.0).collect();
    for element in ElementType::ALL.into_iter().filter(|&element| device.has(element)) {
        if element == ElementType::Bool {
            continue;
        }
        let bytes = encode(element, &numbers);
        // Elements side by side, and every second one.
        for stride in [1, 2] {
            let x = tensor_of(client, element, &bytes, &[len], &[stride]);
            let found = reduce(Sum, &x).by_keys(&keys, count).run(client).unwrap();
            let expected = reduce(Sum, &x).grouped(&groups).run(client).unwrap();
            let bits = |sums: &TensorHandle| {
                let bytes = client.read_one(sums.handle.clone()).expect("the device answers");
                decode(reduce(Sum, &x).grouped(&groups).output_types().unwrap(), &bytes)
            };
            let (found, expected) = (bits(&found), bits(&expected));
            for (found, expected) in found[..count].iter().zip(&expected[..count]) {
                // Sums of vectors and of single elements round differently.
                let most = expected.abs() * 1e-2;
                assert!((found - expected).abs() <= most, "{element} {stride}");
            }
        }
    }
    let bytes = encode(ElementType::F32, &numbers);
    let rows = tensor_of(client, ElementType::F32, &bytes, &[len, 2], &[2, 1]);
    let positions = reduce(ArgMax, &rows).over(0).by_keys(&keys, count).run(client).unwrap();
    let expected = reduce(ArgMax, &rows).over(0).grouped(&groups).run(client).unwrap();
    let found = read::<u32>(client, &positions, 2 * count);
    assert_eq!(found, read::<u32>(client, &expected, 2 * count));

    let own = tensor_of(client, ElementType::F32, &vec![POISON; 8 * count], &[count, 2], &[2, 1]);
    reduce(Sum, &rows)
        .over(0)
        .by_keys(&keys, count)
        .run_into(client, own.clone().binding())
        .unwrap();
    let expected = reduce(Sum, &rows).over(0).grouped(&groups).run(client).unwrap();
    let found = read::<f32>(client, &own, 2 * count);
    assert_eq!(found, read::<f32>(client, &expected, 2 * count));
    let other = tensor(client, &vec![0.0f32; count], &[count, 1], &[1, 1]);
    let refused = reduce(Sum, &rows).over(0).by_keys(&keys, count);
    let refused = refused.run_into(client, other.binding()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Shape);

    let few = tensor_of(client, ElementType::F32, &bytes, &[len - 1], &[1]);
    let refused = reduce(Sum, &few).by_keys(&keys, count).run(client).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Shape);
    let refused = reduce(Sum, &rows).by_keys(&keys, count).run(client).unwrap_err();
    let expected = Some(&ProblemError::SegmentAxes { axes: 2 });
    assert_eq!(source::<ProblemError>(&refused), expected);
}

/// Functions applied to groups, in every layout that keys are read in.
pub(crate) fn applied(client: &Client) {
    for case in [
        Case::contiguous(&[1003], &[0]),
        Case::contiguous(&[3, 402], &[1]),
        Case::contiguous(&[130, 12], &[0]),
        Case::contiguous(&[2, 90, 5], &[1]),
    ] {
        let members = keyed(case.shape[case.axes[0]], 17);
        for function in [Function::Softmax, Function::LayerNorm, Function::NormalizeL2] {
            segments_applied::check_members(
                client,
                function,
                &case,
                ElementType::F32,
                &members,
                None,
            );
        }
    }
}

/// Indices, offsets and keys of any numbers: calls end, and write nothing but results.
pub(crate) fn hostile_members(client: &Client) {
    let mut rng = StdRng::seed_from_u64(11);
    for shape in [&[700][..], &[300, 8], &[0, 4], &[2, 0]] {
        let len = shape.iter().product::<usize>();
        let x = tensor(client, &vec![1.0f32; len], shape, &row_major_strides(shape));
        for _ in 0..4 {
            let mut words = |count: usize| -> Vec<i32> {
                (0..count).map(|_| rng.random_range(-3000..6000)).collect()
            };
            let [offsets, indices, keys] = [65, 900, shape[0]].map(|count| {
                let words = words(count);
                tensor(client, &words, &[count], &[1])
            });
            let mut found = shape.to_vec();
            found[0] = 64;
            let count: usize = found.iter().product();
            let strides: Vec<usize> =
                row_major_strides(&found).iter().map(|stride| 2 * stride).collect();
            let bytes = vec![POISON; (8 * count).max(8)];
            let output = tensor_of(client, ElementType::F32, &bytes, &found, &strides);
            let listed = reduce(Sum, &x).over(0).segments(&offsets).indices(&indices);
            listed.run_into(client, output.clone().binding()).unwrap();
            let bytes = client.read_one(output.handle.clone()).expect("the device answers");
            let mut gaps = bytes[..8 * count].chunks(4).skip(1).step_by(2);
            assert!(gaps.all(|gap| gap == [POISON; 4]));
            let groups = Groups::new(keys, indices, offsets);
            let applied = Softmax.of(&x, 0).grouped(&groups).run(client).unwrap();
            let bytes = client.read_one(applied.handle).expect("the device answers");
            assert_eq!(decode(ElementType::F32, &bytes[..4 * len]).len(), len);
        }
    }
}

/// What is refused before anything is launched, and what a description answers.
pub(crate) fn contract(client: &Client) {
    let of = |element, shape: &[usize]| TensorDescription::row_major(element, shape);
    let (x, offsets) = (of(ElementType::F32, &[100, 8]), of(ElementType::I32, &[11]));
    let (indices, keys) = (of(ElementType::I64, &[250]), of(ElementType::I64, &[100]));
    let listed = reduce(Sum, &x).over(0).segments(&offsets).indices(&indices);
    assert_eq!(listed.output_shape().unwrap(), [10, 8]);
    assert_eq!(listed.problem().unwrap().entries(), 250);
    let call = listed.record().unwrap();
    assert_eq!(RecordedCall::parse(&call.to_json()).unwrap(), call);
    let told = "10 segments by i32 of 250 indices by i64 of sum f32 [100, 8] axis 0";
    assert_eq!(call.to_string(), told);
    let RecordedCall::Segments(recorded) = call else { panic!("{call}") };
    assert_eq!(recorded.problem::<Sum>(), listed.problem());

    let groups = Groups::new(keys, of(ElementType::U32, &[100]), offsets.clone());
    let grouped = reduce(Mean, &x).over(0).grouped(&groups);
    assert_eq!(grouped.output_shape().unwrap(), [10, 8]);
    let softmax = Softmax.of(&x, 0).grouped(&groups);
    let call = softmax.record().unwrap();
    assert_eq!(RecordedCall::parse(&call.to_json()).unwrap(), call);
    let told = "10 segments by i32 of indices by u32 and keys by i64 of ";
    assert!(call.to_string().contains(told), "{call}");

    // Functions are applied to elements that have one result each.
    let several = reduce(Sum, &x).over(0).segments(&offsets).indices(&indices);
    let refused = several.apply(reduce_kernels::normalize::Scaled).check(client).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Shape);
    let other = of(ElementType::F32, &[99, 8]);
    let refused = reduce(Sum, &other).over(0).grouped(&groups).check(client).unwrap_err();
    assert_eq!(refused.to_string(), "groups of 100 elements are not those of an axis of 99");
    let floats = of(ElementType::F32, &[250]);
    let refused = reduce(Sum, &x).over(0).segments(&offsets).indices(&floats);
    let refused: ReduceError = refused.problem().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Type);
    let expected = Some(&ProblemError::Indices { found: ElementType::F32 });
    assert_eq!(source::<ProblemError>(&refused), expected);
    let matrix = of(ElementType::I32, &[25, 10]);
    let refused = reduce(Sum, &x).over(0).segments(&offsets).indices(&matrix);
    assert_eq!(refused.problem().unwrap_err().kind(), ErrorKind::Shape);

    let keys = tensor(client, &[1i32, 0], &[2], &[1]);
    let refused = group_by_keys(client, &keys, u32::MAX as usize).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Type);
    let refused = GroupByKeys::new(&of(ElementType::F32, &[5]), 3).plan(client).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Type);
    let refused = GroupByKeys::new(&of(ElementType::U32, &[5]), u32::MAX as usize).plan(client);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Parameter);
    let mut plan = GroupByKeys::new(&keys, 2).plan(client).unwrap();
    plan.digit_bits = 0;
    let refused = GroupByKeys::new(&keys, 2).with_plan(plan).run(client).unwrap_err();
    match source::<PlanError>(&refused) {
        Some(PlanError::Unfit { reason, .. }) => {
            assert!(matches!(reason, Illegal::Grouping { .. }));
        }
        other => panic!("{other:?}"),
    }
    assert!(plan.check(2, 2, 4, &device_of(client)).is_err());
}
