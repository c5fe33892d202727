//! Segments: every operator over segments of every kind, layout and type, in plans of any shape, and
//! with offsets that make no sense.

use cubecl::{prelude::*, std::tensor::TensorHandle};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    ElementType, ErrorKind, Max, Mean, MeanVar, Operator, ReduceError, Reduction, Sum,
    TensorDescription, cubecl, device_of,
    operator::Arity,
    operators::{ArgMax, LogSumExp, MinMax},
    pairs::{WeightedMean, reduce_pair},
    planner::{
        Combine, Direction, Illegal, Numerics, PlanError, ProblemError, SegmentsMerge,
        SegmentsPlan, row_major_strides, span,
    },
    plans::{PlanStore, RecordedCall, TunedPlan},
    reduce,
    segments::{
        Groups, SegmentedReduction, group_by_keys, keys_of_offsets, offsets_of_lengths,
        offsets_of_sorted_keys,
    },
};

use crate::{
    case::Case,
    operators::{Checked, for_each_operator},
    run::{
        Asked, POISON, capable_device, decode, encode, read, sample, source, tensor, tensor_of,
        tolerance,
    },
};

/// Offsets of segments of `len` elements of an axis, of different kinds.
pub(crate) fn offsets(len: usize) -> Vec<Vec<usize>> {
    let mut rng = StdRng::seed_from_u64(len as u64);
    let mut spread: Vec<usize> = (0..12).map(|_| rng.random_range(0..=len)).collect();
    spread.sort_unstable();
    // A few long ones, many short ones and some without elements.
    let mut ragged = vec![0];
    while *ragged.last().unwrap() < len {
        let length = match rng.random_range(0..8) {
            0 => 0,
            1 => rng.random_range(1..len),
            _ => rng.random_range(1..6),
        };
        ragged.push((ragged.last().unwrap() + length).min(len));
    }
    let many_empty = [vec![0; 40], vec![len / 2; 90], vec![len; 3]].concat();
    vec![
        vec![0, len],
        (0..=len).collect(),
        spread,
        ragged,
        many_empty,
        vec![len / 3, len / 3 + 1, len - 1],
        vec![len],
    ]
}

/// Which elements of an axis segments have.
#[derive(Clone, Debug)]
pub(crate) enum Members {
    /// Neighbours, by the offsets of segments.
    Neighbours(Vec<usize>),
    /// Those of a list, by the offsets of segments in it.
    Listed { offsets: Vec<usize>, indices: Vec<usize> },
    /// Those with a key of their own, of so many keys.
    Keyed { keys: Vec<i64>, groups: usize },
}

impl Members {
    pub(crate) fn segments(&self) -> usize {
        match self {
            Members::Neighbours(offsets) | Members::Listed { offsets, .. } => offsets.len() - 1,
            Members::Keyed { groups, .. } => *groups,
        }
    }

    /// The elements of a segment, in their order.
    pub(crate) fn of(&self, segment: usize) -> Vec<usize> {
        match self {
            Members::Neighbours(offsets) => (offsets[segment]..offsets[segment + 1]).collect(),
            Members::Listed { offsets, indices } => {
                indices[offsets[segment]..offsets[segment + 1]].to_vec()
            }
            Members::Keyed { keys, .. } => {
                let own = |&position: &usize| keys[position] == segment as i64;
                (0..keys.len()).filter(own).collect()
            }
        }
    }

    /// The tensors that say it.
    pub(crate) fn tensors(&self, client: &Client) -> MemberTensors {
        let words = |numbers: &[usize]| {
            let words: Vec<u32> = numbers.iter().map(|&number| number as u32).collect();
            tensor(client, &words, &[words.len()], &[1])
        };
        match self {
            Members::Neighbours(offsets) => MemberTensors::Neighbours(words(offsets)),
            Members::Listed { offsets, indices } => {
                MemberTensors::Listed(words(offsets), words(indices))
            }
            Members::Keyed { keys, groups } => {
                let words: Vec<i32> = keys.iter().map(|&key| key as i32).collect();
                let keys = tensor(client, &words, &[words.len()], &[1]);
                MemberTensors::Keyed(group_by_keys(client, &keys, *groups).unwrap())
            }
        }
    }
}

/// The tensors of [`Members`].
pub(crate) enum MemberTensors {
    Neighbours(TensorHandle),
    Listed(TensorHandle, TensorHandle),
    Keyed(Groups<TensorHandle>),
}

impl MemberTensors {
    /// The reduction of the segments that they say.
    fn of<'a, O: Operator>(
        &'a self,
        reduction: Reduction<'a, O, TensorHandle>,
    ) -> SegmentedReduction<'a, O, TensorHandle> {
        match self {
            MemberTensors::Neighbours(offsets) => reduction.segments(offsets),
            MemberTensors::Listed(offsets, indices) => reduction.segments(offsets).indices(indices),
            MemberTensors::Keyed(groups) => reduction.grouped(groups),
        }
    }
}

/// Which result is a position, if one is.
pub(crate) fn position<O: Operator>() -> Option<usize> {
    let (name, is_arg) = (O::NAME, O::NAME.contains("arg"));
    if is_arg { Some(0) } else { name.contains("with_index").then_some(1) }
}

/// [`check_members`] for neighbours.
fn check<O: Checked>(
    client: &Client,
    case: &Case,
    element: ElementType,
    offsets: &[usize],
    plan: Option<SegmentsPlan>,
) -> Result<Vec<u8>, ReduceError> {
    check_members::<O>(client, case, element, &Members::Neighbours(offsets.to_vec()), plan)
}

/// Runs an operator over segments of an axis, into poisoned outputs with gaps, and compares the
/// results with those of the host. Returns their bytes.
pub(crate) fn check_members<O: Checked>(
    client: &Client,
    case: &Case,
    element: ElementType,
    members: &Members,
    plan: Option<SegmentsPlan>,
) -> Result<Vec<u8>, ReduceError> {
    let axis = case.axes[0];
    let data = sample::<O>(case, element, 7);
    let input = tensor_of(client, element, &encode(element, &data), &case.shape, &case.strides);
    let tensors = members.tensors(client);
    let mut shape = case.shape.clone();
    shape[axis] = members.segments();
    let strides: Vec<usize> = row_major_strides(&shape).iter().map(|stride| 2 * stride).collect();
    let held = (2 * span(&shape, &strides).unwrap()).max(2);

    let device = capable_device(client);
    let reduction = reduce(O::operator(), &input).over(axis);
    let mut reduction = tensors.of(match plan {
        Some(_) => reduction.plan_for(&device),
        None => reduction,
    });
    if let Some(plan) = plan {
        reduction = reduction.with_plan(plan);
    }
    let told = plan.map_or("as chosen".into(), |plan| plan.to_string());
    let types: Vec<ElementType> = O::Results::into_list(reduction.output_types()?);
    let poisoned = |output: &ElementType| {
        tensor_of(client, *output, &vec![POISON; held * output.bytes()], &shape, &strides)
    };
    let outputs: Vec<TensorHandle> = types.iter().map(poisoned).collect();
    let bindings = O::Results::each(|nth| outputs[nth].clone().binding());
    reduction.run_into(client, bindings)?;

    let mut all = Vec::new();
    let rows: usize = shape.iter().product();
    for (nth, (output, &of)) in outputs.iter().zip(&types).enumerate() {
        let bytes = client.read_one(output.handle.clone()).expect("the device answers");
        let found = decode(of, &bytes[..held * of.bytes()]);
        for (place, result) in found.iter().enumerate().take(2 * rows) {
            if place % 2 == 1 {
                let gap = &bytes[place * of.bytes()..(place + 1) * of.bytes()];
                assert!(gap.iter().all(|&byte| byte == POISON), "a gap is written: {told}");
                continue;
            }
            let index = unravel(place / 2, &shape);
            let segment = index[axis];
            // Of equal elements, the first along the axis has its position, whatever the order.
            let mut own = members.of(segment);
            own.sort_unstable();
            let at = |position: usize| {
                let of_axis = |(axis_of, (&index, &stride)): (usize, (&usize, &usize))| {
                    stride * if axis_of == axis { position } else { index }
                };
                data[index.iter().zip(&case.strides).enumerate().map(of_axis).sum::<usize>()]
            };
            let values: Vec<f64> = own.iter().copied().map(at).collect();
            if values.is_empty() && !O::DEFINED_ON_EMPTY {
                // The byte of the poison is the largest number of E5M2, which a least element of
                // nothing becomes.
                let written = &bytes[place * of.bytes()..(place + 1) * of.bytes()];
                let differs = written.iter().any(|&byte| byte != POISON);
                assert!(differs || of == ElementType::F8E5M2, "{} {told}", O::NAME);
                continue;
            }
            let mut expected = O::naive(&values)[nth];
            if position::<O>() == Some(nth) {
                expected = own[expected as usize] as f64;
            }
            let (scale, len) = (O::scale(&values), values.len());
            let bound = tolerance(element, of, Asked::default(), len, scale, expected);
            let same = *result == expected || (result.is_nan() && expected.is_nan());
            assert!(
                same || (result - expected).abs() <= bound,
                "{} of {element}: result {nth} of {index:?} ({} elements) is {result}, expected \
                 {expected} within {bound}\n{case:?}\n{told}",
                O::NAME,
                own.len(),
            );
        }
        all.extend_from_slice(&bytes[..held * of.bytes()]);
    }
    Ok(all)
}

/// The index of an element of a row-major shape.
pub(crate) fn unravel(mut place: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (extent, index) in shape.iter().zip(&mut index).rev() {
        (*index, place) = (place % extent, place / extent);
    }
    index
}

/// Says so if a reduction was not run because the device lacks a type. Other errors are none that a test
/// expects.
pub(crate) fn ran<O: Operator>(result: Result<Vec<u8>, ReduceError>) {
    let Err(error) = result else { return };
    match source::<PlanError>(&error) {
        Some(error) if error.is_unsupported_element() => {
            println!("{}: not run, {error}", O::NAME);
        }
        _ => panic!("{error}"),
    }
}

/// Every operator, over one tensor of several tiles and over one of rows.
pub(crate) fn every_operator(client: &Client) {
    for_each_operator!(O => {
        for case in [Case::contiguous(&[9001], &[0]), Case::contiguous(&[300, 6], &[0])] {
            let len = case.shape[0];
            let ragged = &offsets(len)[3];
            ran::<O>(check::<O>(client, &case, ElementType::F32, ragged, None));
        }
    });
}

/// Segments of every kind over every layout.
pub(crate) fn every_layout(client: &Client) {
    let cases = [
        Case::contiguous(&[1], &[0]),
        Case::contiguous(&[1003], &[0]),
        Case::contiguous(&[12_345], &[0]),
        Case::contiguous(&[3, 1003], &[1]),
        Case::contiguous(&[700, 64], &[0]),
        Case::contiguous(&[401, 7], &[0]),
        Case::contiguous(&[5, 130, 6], &[1]),
        Case::pitched(&[6, 480], 512, &[1]),
        Case::permuted(&[24, 100, 12], &[2, 0, 1], &[1]),
        Case::sliced(&[900, 3], &[2, 1], &[0]),
    ];
    for case in &cases {
        let len = case.shape[case.axes[0]];
        if len == 1 {
            check::<Sum>(client, case, ElementType::F32, &[0, 0, 1, 1], None).unwrap();
            continue;
        }
        for offsets in offsets(len) {
            if offsets.len() > 1 {
                check::<Sum>(client, case, ElementType::F32, &offsets, None).unwrap();
                check::<ArgMax>(client, case, ElementType::F32, &offsets, None).unwrap();
            }
        }
        check::<MeanVar>(client, case, ElementType::F32, &offsets(len)[3], None).unwrap();
    }
}

/// Every type of elements, and of offsets.
pub(crate) fn every_type(client: &Client) {
    let device = capable_device(client);
    let case = Case::contiguous(&[5000], &[0]);
    let ragged = &offsets(5000)[3];
    for element in ElementType::ALL.into_iter().filter(|&element| device.has(element)) {
        check::<MinMax>(client, &case, element, ragged, None).unwrap();
        if element != ElementType::Bool {
            check::<Sum>(client, &case, element, ragged, None).unwrap();
        }
    }
    let data: Vec<f32> = (0..100).map(|value| value as f32).collect();
    let x = tensor(client, &data, &[100], &[1]);
    for element in [ElementType::I32, ElementType::I64, ElementType::U32, ElementType::U64] {
        if !device.has(element) {
            continue;
        }
        // Every second element is an offset.
        let bytes = encode(element, &[0.0, 9.0, 30.0, 9.0, 100.0]);
        let offsets = tensor_of(client, element, &bytes, &[3], &[2]);
        let sums = reduce(Sum, &x).segments(&offsets).run(client).unwrap();
        assert_eq!(sums.shape()[..], [2]);
        let found = read::<f32>(client, &sums, 2);
        assert_eq!(found, [435.0, 4950.0 - 435.0], "{element}");
    }
}

/// Plans of any shape give right results, and the number of cubes changes no bit.
pub(crate) fn every_plan(client: &Client) {
    let device = capable_device(client);
    let mut looked_back = 0;
    for (case, side_by_side) in [
        (Case::contiguous(&[3001], &[0]), vec![1]),
        (Case::contiguous(&[2, 3000], &[1]), vec![1]),
        (Case::contiguous(&[400, 24], &[0]), vec![1, 2, 8]),
    ] {
        let len = case.shape[case.axes[0]];
        let bytes = encode(ElementType::F32, &sample::<LogSumExp>(&case, ElementType::F32, 7));
        let x = tensor_of(client, ElementType::F32, &bytes, &case.shape, &case.strides);
        for offsets in [&offsets(len)[0], &offsets(len)[3]] {
            let words: Vec<u32> = offsets.iter().map(|&offset| offset as u32).collect();
            let tensor_of_offsets = tensor(client, &words, &[words.len()], &[1]);
            let reduction = reduce(Sum, &x).over(case.axes[0]).segments(&tensor_of_offsets);
            let chosen = reduction.choose(client).unwrap().plan;
            for (units, loads) in [(1, 1), (8, 2), (32, 4), (64, 1)] {
                for &side_by_side in side_by_side.iter().filter(|&&side| side <= units) {
                    let mut plan = chosen;
                    plan.access = plan.access.with_loads_in_flight(loads);
                    (plan.units_per_cube, plan.side_by_side) = (units, side_by_side);
                    plan.steps = units.ilog2() % 4 + 1;
                    let merges = [
                        SegmentsMerge::SecondLaunch { units_per_cube: units },
                        SegmentsMerge::LookBack,
                    ];
                    let mut combines = vec![Combine::Shared];
                    let lanes = device.plane_size_min;
                    let planes = units == lanes || units > lanes && device.plane_barriers;
                    if plan.access.direction == Direction::Along && planes {
                        combines.push(Combine::Plane { lanes });
                    }
                    for (combine, merge) in
                        combines.iter().flat_map(|&combine| merges.map(|merge| (combine, merge)))
                    {
                        (plan.combine, plan.merge) = (combine, merge);
                        let may_run = plan.check(&reduction.problem().unwrap(), &device);
                        if merge == SegmentsMerge::LookBack {
                            if may_run.is_err() {
                                continue;
                            }
                            looked_back += 1;
                        }
                        may_run.unwrap();
                        let run = |cubes: u32| {
                            let plan = plan_with(plan, cubes);
                            check::<MinMax>(client, &case, ElementType::F32, offsets, Some(plan))
                                .unwrap();
                            check::<Sum>(client, &case, ElementType::F32, offsets, Some(plan))
                                .unwrap()
                        };
                        let expected = run(1);
                        for cubes in [3, 50] {
                            assert!(run(cubes) == expected, "{plan} and {cubes} cubes");
                        }
                    }
                }
            }
        }
    }
    assert!(looked_back >= 8 || !device.forward_progress, "{looked_back} plans looked back");
}

/// Segments that lie in hundreds of tiles, which many cubes take in turn, give right results, and the
/// same bits for any number of cubes, in both ways to merge.
pub(crate) fn many_tiles(client: &Client) {
    const LEN: usize = 300_000;

    let device = capable_device(client);
    let case = Case::contiguous(&[LEN], &[0]);
    for offsets in [vec![0, LEN], vec![0, 17, LEN / 2, LEN - 3, LEN - 3, LEN]] {
        let words: Vec<u32> = offsets.iter().map(|&offset| offset as u32).collect();
        let at = tensor(client, &words, &[words.len()], &[1]);
        let x = tensor(client, &vec![1f32; LEN], &[LEN], &[1]);
        let reduction = reduce(MeanVar { correction: 0.0 }, &x).segments(&at);
        let mut plan = reduction.choose(client).unwrap().plan;
        plan.steps = 1;
        for merge in [SegmentsMerge::SecondLaunch { units_per_cube: 64 }, SegmentsMerge::LookBack] {
            plan.merge = merge;
            if plan.check(&reduction.problem().unwrap(), &device).is_err() {
                assert!(merge == SegmentsMerge::LookBack && !device.forward_progress);
                continue;
            }
            let run = |cubes: u32| {
                let plan = plan_with(plan, cubes);
                check::<MeanVar>(client, &case, ElementType::F32, &offsets, Some(plan)).unwrap()
            };
            let expected = run(1);
            for cubes in [2, 7, 1000] {
                assert!(run(cubes) == expected, "{plan} and {cubes} cubes");
            }
        }
    }
}

fn plan_with(mut plan: SegmentsPlan, cubes: u32) -> SegmentsPlan {
    plan.cubes = cubes;
    plan
}

/// A thousand runs in eight streams, at the same time, give the same bits.
pub(crate) fn many_runs(client: &Client) {
    const STREAMS: usize = 8;
    const RUNS: usize = 125;

    let case = Case::contiguous(&[9001], &[0]);
    let data = encode(ElementType::F32, &sample::<LogSumExp>(&case, ElementType::F32, 7));
    let words: Vec<u32> = offsets(9001)[3].iter().map(|&offset| offset as u32).collect();
    // CubeCL gives each thread a stream of its own.
    let bits = |runs: usize| {
        let x = tensor_of(client, ElementType::F32, &data, &case.shape, &case.strides);
        let at = tensor(client, &words, &[words.len()], &[1]);
        let mut found = Vec::new();
        for _ in 0..runs {
            let sums = reduce(Sum, &x).segments(&at).run(client).unwrap();
            let (mean, var) =
                reduce(MeanVar { correction: 0.0 }, &x).segments(&at).run(client).unwrap();
            found.push([sums, mean, var].map(|result| result.handle));
        }
        let count = words.len() - 1;
        found.into_iter().map(move |handles| {
            handles.map(|handle| {
                let bytes = client.read_one(handle).expect("the device answers");
                bytes[..4 * count].to_vec()
            })
        })
    };
    let expected = bits(1).next().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..STREAMS {
            scope.spawn(|| assert!(bits(RUNS).all(|found| found == expected)));
        }
    });
}

/// Two inputs, of which the second may repeat its elements.
pub(crate) fn two_inputs(client: &Client) {
    let values: Vec<f32> = (0..600).map(|value| (value % 17) as f32).collect();
    let weights: Vec<f32> = (0..200).map(|value| (value % 5 + 1) as f32).collect();
    let (x, w) =
        (tensor(client, &values, &[200, 3], &[3, 1]), tensor(client, &weights, &[200, 1], &[1, 1]));
    let offsets = tensor(client, &[0u32, 70, 71, 200], &[4], &[1]);
    let means = reduce_pair(WeightedMean, &x, &w).over(0).segments(&offsets).run(client).unwrap();
    let found = read::<f32>(client, &means, 9);
    for (segment, (from, until)) in [(0, 70), (70, 71), (71, 200)].into_iter().enumerate() {
        for column in 0..3 {
            let of = |row: usize| f64::from(weights[row]);
            let total: f64 = (from..until).map(of).sum();
            let sum: f64 =
                (from..until).map(|row| of(row) * f64::from(values[3 * row + column])).sum();
            let result = f64::from(found[3 * segment + column]);
            assert!((result - sum / total).abs() < 1e-5 * result.abs().max(1.0));
        }
    }
}

/// Segments without elements have the result of no elements, and an axis without any has only such.
pub(crate) fn empty(client: &Client) {
    let x = tensor(client, &[1.0f32, 2.0], &[2], &[1]);
    let offsets = tensor(client, &[0u32, 0, 2, 2], &[4], &[1]);
    let read_f32 = |result: &TensorHandle| read::<f32>(client, result, 3);
    let sums = reduce(Sum, &x).segments(&offsets).run(client).unwrap();
    assert_eq!(read_f32(&sums), [0.0, 3.0, 0.0]);
    let most = reduce(Max, &x).segments(&offsets).run(client).unwrap();
    assert_eq!(read_f32(&most), [f32::NEG_INFINITY, 2.0, f32::NEG_INFINITY]);
    let means = read_f32(&reduce(Mean, &x).segments(&offsets).run(client).unwrap());
    assert!(means[0].is_nan() && means[1] == 1.5 && means[2].is_nan());
    let integers = tensor(client, &[7i32, 8], &[2], &[1]);
    let most = reduce(Max, &integers).segments(&offsets).run(client).unwrap();
    assert_eq!(read::<i32>(client, &most, 3), [i32::MIN, 8, i32::MIN]);
    let none = tensor::<f32>(client, &[], &[0], &[1]);
    let refused = reduce(Max, &none).segments(&offsets).run(client).unwrap_err();
    let empty = source::<ProblemError>(&refused);
    assert!(matches!(empty, Some(ProblemError::EmptyReduction { .. })), "{refused}");
    let zeros = tensor(client, &[0u32; 4], &[4], &[1]);
    let sums = reduce(Sum, &none).segments(&zeros).run(client).unwrap();
    assert_eq!(read_f32(&sums), [0.0; 3]);
    // Without segments, there are no results.
    let one = tensor(client, &[0u32], &[1], &[1]);
    let sums = reduce(Sum, &x).segments(&one).run(client).unwrap();
    assert_eq!(sums.shape()[..], [0]);
}

/// Sorted keys name segments, some of which have no elements, and some keys no segment.
pub(crate) fn sorted_keys(client: &Client) {
    let device = capable_device(client);
    let mut rng = StdRng::seed_from_u64(5);
    for element in [ElementType::I32, ElementType::I64, ElementType::U32, ElementType::U64] {
        if !device.has(element) {
            continue;
        }
        for (count, segments) in [(0, 3), (1, 1), (700, 40), (5000, 9000), (3000, 0)] {
            let least = if element.is_signed() { -4 } else { 0 };
            let mut keys: Vec<i64> =
                (0..count).map(|_| rng.random_range(least..segments as i64 + 5)).collect();
            keys.sort_unstable();
            // Every second element is a key.
            let held: Vec<f64> = keys.iter().flat_map(|&key| [key as f64, 7.0]).collect();
            let tensor_of_keys =
                tensor_of(client, element, &encode(element, &held), &[count], &[2]);
            let offsets = offsets_of_sorted_keys(client, &tensor_of_keys, segments).unwrap();
            assert_eq!(offsets.shape()[..], [segments + 1]);
            let found = read::<u32>(client, &offsets, segments + 1);
            for (segment, &offset) in found.iter().enumerate() {
                let expected = keys.partition_point(|&key| key < segment as i64);
                assert_eq!(offset as usize, expected, "{element}: {segment} of {segments}");
            }
        }
    }
    keys_of_each_offset(client);
    let floats = tensor(client, &[1.0f32], &[1], &[1]);
    let error = offsets_of_sorted_keys(client, &floats, 3).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Type);
    assert!(error.to_string().starts_with("keys of f32 do not name 3 segments"), "{error}");
    let matrix = tensor(client, &[1u32], &[1, 1], &[1, 1]);
    let error = offsets_of_sorted_keys(client, &matrix, 3).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape);
    let few = tensor(client, &[1i32], &[1], &[1]);
    let error = offsets_of_sorted_keys(client, &few, usize::MAX / 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Type);
}

/// Lengths of every type and of any number become offsets, and negative ones count as 0.
pub(crate) fn lengths(client: &Client) {
    let device = capable_device(client);
    let mut rng = StdRng::seed_from_u64(6);
    for element in [ElementType::I32, ElementType::I64, ElementType::U32, ElementType::U64] {
        // One block, and several.
        for count in [0, 1, 15, 4096, 4097, 70_000] {
            if !device.has(element) {
                continue;
            }
            let least = if element.is_signed() { -3 } else { 0 };
            let lengths: Vec<i64> = (0..count).map(|_| rng.random_range(least..9)).collect();
            // Every second element is a length.
            let held: Vec<f64> = lengths.iter().flat_map(|&length| [length as f64, 7.0]).collect();
            let of_lengths = tensor_of(client, element, &encode(element, &held), &[count], &[2]);
            let offsets = offsets_of_lengths(client, &of_lengths).unwrap();
            assert_eq!(offsets.shape()[..], [count + 1]);
            let bytes = client.read_one(offsets.handle).expect("the device answers");
            let found = decode(element, &bytes[..(count + 1) * element.bytes()]);
            let mut expected = 0;
            for (nth, &offset) in found.iter().enumerate() {
                assert_eq!(offset, expected as f64, "{element}: offset {nth} of {count} lengths");
                expected += lengths.get(nth).map_or(0, |&length| length.max(0));
            }
        }
    }
    // More blocks than a cube scans at once.
    let count = 17_000_000;
    let ones = tensor(client, &vec![1u32; count], &[count], &[1]);
    let offsets = offsets_of_lengths(client, &ones).unwrap();
    let found = read::<u32>(client, &offsets, count + 1);
    assert!(found.iter().enumerate().all(|(nth, &offset)| nth == offset as usize));
    let floats = tensor(client, &[1.0f32], &[1], &[1]);
    let error = offsets_of_lengths(client, &floats).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Type);
    assert_eq!(error.to_string(), "lengths are i32, i64, u32 or u64, not f32");
    let matrix = tensor(client, &[1u32], &[1, 1], &[1, 1]);
    assert_eq!(offsets_of_lengths(client, &matrix).unwrap_err().kind(), ErrorKind::Shape);
}

/// Each element gets the number of its segment, -1 before the first and the number of segments behind
/// the last.
fn keys_of_each_offset(client: &Client) {
    let device = capable_device(client);
    for element in [ElementType::I32, ElementType::I64, ElementType::U32, ElementType::U64] {
        for result in [ElementType::I32, ElementType::I64] {
            if !device.has(element) || !device.has(result) {
                continue;
            }
            for offsets in offsets(1001).into_iter().chain([vec![4], vec![3, 3, 9, 9]]) {
                let held: Vec<f64> =
                    offsets.iter().flat_map(|&offset| [offset as f64, 7.0]).collect();
                let of_offsets =
                    tensor_of(client, element, &encode(element, &held), &[offsets.len()], &[2]);
                let keys = keys_of_offsets(client, &of_offsets, 1001, result).unwrap();
                let bytes = client.read_one(keys.handle).expect("the device answers");
                let found = decode(result, &bytes[..1001 * result.bytes()]);
                for (position, &key) in found.iter().enumerate() {
                    let before = offsets.partition_point(|&offset| offset <= position);
                    assert_eq!(key, before as f64 - 1.0, "{element}: {position} of {offsets:?}");
                }
            }
        }
    }
    let offsets = tensor(client, &[0u32, 5], &[2], &[1]);
    let none = keys_of_offsets(client, &offsets, 0, ElementType::I32).unwrap();
    assert_eq!(none.shape()[..], [0]);
    let error = keys_of_offsets(client, &offsets, 5, ElementType::F32).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Type);
    let floats = tensor(client, &[0.0f32, 5.0], &[2], &[1]);
    let error = keys_of_offsets(client, &floats, 5, ElementType::I32).unwrap_err();
    assert_eq!(
        source::<ProblemError>(&error),
        Some(&ProblemError::Offsets { found: ElementType::F32 })
    );
}

/// Offsets that descend, are negative or lie behind the axis: calls end, and write nothing but
/// results.
pub(crate) fn hostile_offsets(client: &Client) {
    let device = capable_device(client);
    let x = tensor(client, &[1.0f32, 2.0, 3.0, 4.0], &[4], &[1]);
    for element in [ElementType::I32, ElementType::I64, ElementType::U32, ElementType::U64] {
        // Numbers that lie behind the axis, of which the last needs more than 32 bits.
        let mut numbers = vec![2.0, 100.0];
        if element.is_signed() {
            numbers.push(-1.0);
        }
        if element.bytes() == 8 {
            numbers.push(f64::from(u32::MAX) + 3.0);
        }
        for number in numbers.into_iter().filter(|_| device.has(element)) {
            let bytes = encode(element, &[1.0, number]);
            let offsets = tensor_of(client, element, &bytes, &[2], &[1]);
            let sums = reduce(Sum, &x).segments(&offsets).run(client).unwrap();
            let expected = if number == 2.0 { 2.0 } else { 9.0 };
            assert_eq!(read::<f32>(client, &sums, 1), [expected], "{element} {number}");
        }
    }
    wrong_offsets_are_told(client);
    let mut rng = StdRng::seed_from_u64(3);
    for shape in [&[2000][..], &[300, 8]] {
        let len = shape.iter().product::<usize>();
        let x = tensor(client, &vec![1.0f32; len], shape, &row_major_strides(shape));
        for _ in 0..8 {
            let words: Vec<i32> = (0..65).map(|_| rng.random_range(-3000..6000)).collect();
            let offsets = tensor(client, &words, &[65], &[1]);
            let mut found = shape.to_vec();
            found[0] = 64;
            let count: usize = found.iter().product();
            let strides: Vec<usize> =
                row_major_strides(&found).iter().map(|stride| 2 * stride).collect();
            let bytes = vec![POISON; 8 * count];
            let output = tensor_of(client, ElementType::F32, &bytes, &found, &strides);
            let reduction = reduce(Sum, &x).over(0).segments(&offsets);
            reduction.run_into(client, output.clone().binding()).unwrap();
            let bytes = client.read_one(output.handle.clone()).expect("the device answers");
            let mut gaps = bytes[..8 * count].chunks(4).skip(1).step_by(2);
            assert!(gaps.all(|gap| gap == [POISON; 4]));
        }
    }
}

/// The first offset that descends or lies outside of the axis is named, on request.
fn wrong_offsets_are_told(client: &Client) {
    let device = capable_device(client);
    let x = tensor(client, &[1.0f32; 9], &[9], &[1]);
    for element in [ElementType::I32, ElementType::I64, ElementType::U32, ElementType::U64] {
        if !device.has(element) {
            continue;
        }
        let told = |values: &[f64]| {
            // Every second element is an offset.
            let held: Vec<f64> = values.iter().flat_map(|&value| [value, 50.0]).collect();
            let bytes = encode(element, &held);
            let offsets = tensor_of(client, element, &bytes, &[values.len()], &[2]);
            reduce(Sum, &x).segments(&offsets).check_offsets(client)
        };
        told(&[0.0, 4.0, 4.0, 9.0]).unwrap();
        told(&[2.0]).unwrap();
        let error = told(&[1.0, 4.0, 3.0, 20.0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Parameter);
        assert_eq!(error.to_string(), "offset number 2 is 3, and must be from 4 to 9");
        let error = told(&[0.0, 10.0]).unwrap_err().to_string();
        assert_eq!(error, "offset number 1 is 10, and must be from 0 to 9");
        if element.is_signed() {
            let error = told(&[-2.0, 4.0]).unwrap_err().to_string();
            assert_eq!(error, "offset number 0 is -2, and must be from 0 to 9");
        }
    }
}

/// What is refused before anything is launched, and what a description answers.
pub(crate) fn contract(client: &Client) {
    let x = TensorDescription::row_major(ElementType::F32, [100, 8]);
    let offsets = TensorDescription::row_major(ElementType::I32, [11]);
    let reduction = reduce(Sum, &x).over(0).segments(&offsets);
    assert_eq!(reduction.output_shape().unwrap(), [10, 8]);
    reduction.check(client).unwrap();
    let plan = reduction.plan(client).unwrap().plan;
    assert_eq!(plan.access.direction, Direction::Across);
    let problem = |error: ReduceError| source::<ProblemError>(&error).cloned();
    let several = reduce(Sum, &x).segments(&offsets).output_shape().unwrap_err();
    assert_eq!(several.kind(), ErrorKind::Shape);
    assert_eq!(problem(several), Some(ProblemError::SegmentAxes { axes: 2 }));
    let floats = TensorDescription::row_major(ElementType::F32, [11]);
    let refused = reduce(Sum, &x).over(0).segments(&floats).problem().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Type);
    assert_eq!(problem(refused), Some(ProblemError::Offsets { found: ElementType::F32 }));
    for shape in [&[][..], &[0], &[11, 1]] {
        let wrong = TensorDescription::row_major(ElementType::I32, shape);
        let refused = reduce(Sum, &x).over(0).segments(&wrong).problem().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Shape, "{shape:?}");
    }
    for numerics in [Numerics::BatchInvariant, Numerics::Reproducible] {
        let refused = reduce(Sum, &x).over(0).numerics(numerics).segments(&offsets);
        let refused = refused.check(client).unwrap_err();
        let expected = Some(&PlanError::SegmentNumerics { numerics });
        assert_eq!(source::<PlanError>(&refused), expected);
    }
    let unfit = |change: &dyn Fn(&mut SegmentsPlan)| {
        let mut changed = plan;
        change(&mut changed);
        let refused = reduce(Sum, &x).over(0).segments(&offsets).with_plan(changed).check(client);
        match source::<PlanError>(&refused.unwrap_err()) {
            Some(PlanError::Unfit { reason, .. }) => *reason,
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(unfit(&|plan| plan.units_per_cube = 3), Illegal::NotPowerOfTwo { .. }));
    assert!(matches!(unfit(&|plan| plan.cubes = 0), Illegal::SegmentTiles { cubes: 0, .. }));
    assert!(matches!(unfit(&|plan| plan.side_by_side = 512), Illegal::SegmentTiles { .. }));
    let twice = plan.access.with_outputs_in_flight(2);
    assert_eq!(unfit(&|plan| plan.access = twice), Illegal::SegmentsAccess);
    // A recorded call states the same problem, whose stored plan is used.
    let call = reduction.record().unwrap();
    assert_eq!(RecordedCall::parse(&call.to_json()).unwrap(), call);
    assert_eq!(call.to_string(), "10 segments by i32 of sum f32 [100, 8] axis 0");
    let RecordedCall::Segments(recorded) = call else { panic!("{call}") };
    assert_eq!(recorded.problem::<Sum>(), reduction.problem());
    let other = recorded.problem::<Max>().unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Arguments);
    let device = device_of(client);
    let mut store = PlanStore::new(&device);
    let stored = plan_with(plan, 2);
    let tuned = TunedPlan::new(stored, 10, 20);
    store.insert(&reduction.problem().unwrap(), &device, tuned).unwrap();
    let with_store = reduce(Sum, &x).over(0).with_plans(&store).segments(&offsets);
    assert_eq!(with_store.plan(client).unwrap().plan, stored);
    // A buffer that does not hold the offsets.
    let data = tensor(client, &vec![0.0f32; 800], &[100, 8], &[8, 1]);
    let few = tensor(client, &[0u32, 1, 2, 3], &[400], &[1]);
    let refused = reduce(Sum, &data).over(0).segments(&few).run(client).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Buffer);
}
