//! Lists of tensors: every operator over lists of every layout and type, in plans of any shape, and
//! what they do at the edges.

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_kernels::{
    ArgMax, ElementType, ErrorKind, Max, MeanVar, NormL2, Operator, ReduceError, Sum,
    TensorDescription, cubecl, device_of,
    list::{
        ClippedToNorm, ListReduction, clip_by_global_norm, clip_by_global_norm_in_place,
        global_norm, reduce_list,
    },
    normalize::Standardized,
    operator::Arity,
    operators::{MeanRstd, MinMax},
    planner::{Combine, ListPlan, PlanError, ProblemError, row_major_strides, span},
};

use crate::{
    case::Case,
    operators::{Checked, for_each_operator},
    oracle::reduce_naively,
    run::{
        Asked, POISON, capable_device, decode, encode, sample, source, tensor, tensor_of, tolerance,
    },
};

/// A tensor of a list.
#[derive(Clone, Debug)]
struct Listed {
    case: Case,
    element: ElementType,
}

impl Listed {
    fn f32(case: Case) -> Self {
        Self { case, element: ElementType::F32 }
    }
}

/// Lists over all axes, one tensor of each kind of layout: of vectors with and without an end that
/// does not fill one, with rows, and of single elements.
fn layouts() -> Vec<Listed> {
    let cases = [
        Case::contiguous(&[], &[]),
        Case::contiguous(&[3], &[0]),
        Case::contiguous(&[64, 50], &[0, 1]),
        Case::contiguous(&[20_001], &[0]),
        Case::pitched(&[6, 48], 64, &[0, 1]),
        Case::pitched(&[60, 50], 64, &[0, 1]),
        Case::permuted(&[24, 10, 12], &[2, 0, 1], &[0, 1, 2]),
        Case::sliced(&[9, 80], &[2, 2], &[0, 1]),
        Case::broadcast(&[6, 40], &[0], &[0, 1]),
        Case::contiguous(&[7], &[0]),
        Case::sliced(&[4, 6, 10, 24], &[2, 1, 2, 1], &[0, 1, 2, 3]),
    ];
    cases.into_iter().map(Listed::f32).collect()
}

/// Runs an operator over a list and compares the results of each tensor, and that of all, with the
/// oracle. Returns the bytes of all results.
fn check<O: Checked>(
    client: &Client,
    list: &[Listed],
    plan: Option<ListPlan>,
    seed: u64,
) -> Result<Vec<u8>, ReduceError> {
    let mut tensors = Vec::new();
    let mut values: Vec<Vec<f64>> = Vec::new();
    for (nth, Listed { case, element }) in list.iter().enumerate() {
        let data = sample::<O>(case, *element, seed + nth as u64);
        let bytes = encode(*element, &data);
        tensors.push(tensor_of(client, *element, &bytes, &case.shape, &case.strides));
        let axes: Vec<usize> = (0..case.shape.len()).collect();
        let all = reduce_naively(&data, &case.shape, &case.strides, &axes, <[f64]>::to_vec);
        values.push(all.into_iter().next().unwrap());
    }
    values.push(values.concat());
    // Results are likely to be written where this was.
    let poison = client.create_from_slice(&vec![POISON; 8192]);
    client.read_one(poison).expect("the device answers");

    let device = capable_device(client);
    let mut reduction = reduce_list(O::operator(), &tensors);
    let words = plan.as_ref().map_or("as chosen".into(), ToString::to_string);
    if let Some(plan) = plan {
        reduction = reduction.with_plan(plan).plan_for(&device);
    }
    let types = O::Results::into_list(reduction.output_types()?);
    let results = reduction.run(client)?;
    let each = O::Results::into_list(results.each);
    let all = O::Results::into_list(results.all);
    let input = list.iter().map(|listed| listed.element).max_by_key(|element| element.bytes());
    let mut bytes = Vec::new();
    for (nth, &element) in types.iter().enumerate() {
        assert_eq!(
            (each[nth].shape()[..].to_vec(), &all[nth].shape()[..]),
            (vec![list.len()], &[1][..])
        );
        let mut found =
            client.read_one(each[nth].handle.clone()).expect("the device answers").to_vec();
        found.truncate(list.len() * element.bytes());
        let of_all = client.read_one(all[nth].handle.clone()).expect("the device answers");
        found.extend(&of_all[..element.bytes()]);
        for (tensor, (result, values)) in
            decode(element, &found).into_iter().zip(&values).enumerate()
        {
            let expected = O::naive(values)[nth];
            let input = input.unwrap_or(ElementType::F32);
            let scale = O::scale(values);
            let bound = tolerance(input, element, Asked::default(), values.len(), scale, expected);
            let same = result == expected || (result.is_nan() && expected.is_nan());
            assert!(
                same || (result - expected).abs() <= bound,
                "{}: result {nth} of tensor {tensor} of {} is {result}, expected {expected} within \
                 {bound}\n{:?}\n{words}",
                O::NAME,
                list.len(),
                list.get(tensor),
            );
        }
        bytes.extend(found);
    }
    Ok(bytes)
}

/// Every operator but those that give positions, over every layout.
pub(crate) fn every_operator(client: &Client) {
    // Long enough for several cubes, and for a tail.
    let list = [[50_000].as_slice(), &[3], &[130, 17]];
    let list = list.map(|shape| {
        let axes: Vec<usize> = (0..shape.len()).collect();
        Listed::f32(Case::contiguous(shape, &axes))
    });
    for_each_operator!(O => {
        match check::<O>(client, &list, None, 1) {
            Ok(_) => {}
            Err(error) => match (source(&error), source::<PlanError>(&error)) {
                (Some(ProblemError::PositionalList { operator }), _) => {
                    assert!(operator.contains("arg") || operator.contains("index"), "{operator}");
                }
                (_, Some(error)) if error.is_unsupported_element() => {
                    println!("{}: not run, {error}", <O as Operator>::NAME);
                }
                _ => panic!("{error}"),
            },
        }
    });
}

/// Lists of every layout, alone and together.
pub(crate) fn every_layout(client: &Client) {
    let layouts = layouts();
    for (nth, listed) in layouts.iter().enumerate() {
        check::<Sum>(client, std::slice::from_ref(listed), None, nth as u64).unwrap();
    }
    check::<Sum>(client, &layouts, None, 20).unwrap();
    check::<MeanVar>(client, &layouts, None, 21).unwrap();
    check::<MinMax>(client, &layouts, None, 22).unwrap();
}

/// Lists of one type and of several, which are converted to their common type.
pub(crate) fn every_type(client: &Client) {
    use ElementType::*;
    let device = capable_device(client);
    let lists: [&[ElementType]; 12] = [
        &[F16, F16],
        &[BF16, BF16],
        &[F64],
        &[I8, I8],
        &[U16],
        &[I32, I32],
        &[I64],
        &[Bool, Bool],
        &[F16, F32, BF16],
        &[F32, F64],
        &[U8, I32, F32],
        &[U8, I8],
    ];
    for types in lists {
        if !types.iter().all(|&element| device.has(element)) {
            println!("{}: not run, the device lacks one of {types:?}", client.name());
            continue;
        }
        let shapes = [[5, 1001], [300, 8], [1, 3]];
        let listed = |(nth, shape): (usize, &[usize; 2])| Listed {
            case: Case::contiguous(shape, &[0, 1]),
            element: types[nth % types.len()],
        };
        let list: Vec<Listed> = shapes.iter().enumerate().map(listed).collect();
        check::<Sum>(client, &list, None, 3).unwrap();
        check::<Max>(client, &list, None, 4).unwrap();
    }
}

/// More tensors than a launch takes, in plans of any size, which give the same bits in every run.
pub(crate) fn every_plan(client: &Client) {
    let sizes = (0..90).map(|nth| [1 + nth * nth * 7 % 5000]);
    let list: Vec<Listed> = sizes.map(|size| Listed::f32(Case::contiguous(&size, &[0]))).collect();
    let bits = check::<NormL2>(client, &list, None, 5).unwrap();
    assert_eq!(bits, check::<NormL2>(client, &list, None, 5).unwrap(), "the same bits");

    let device = capable_device(client);
    let stated = |list: &[Listed]| {
        let described = |listed: &Listed| {
            let Case { shape, strides, .. } = &listed.case;
            TensorDescription::strided(listed.element, shape.clone(), strides.clone())
        };
        let tensors: Vec<TensorDescription> = list.iter().map(described).collect();
        reduce_list(Sum, &tensors).problem().unwrap()
    };
    let mut launches = Vec::new();
    for (units, tensors, loads, cubes) in [(32, 3, 1, 64), (128, 24, 4, 8), (1024, 100, 64, 1)] {
        for (combine, planes) in [("plane", true), ("shared", false)] {
            let mut device = device.clone();
            device.plane_operations = planes;
            device.tuning.list.units_per_cube = units;
            device.tuning.list.tensors_per_launch = tensors;
            device.tuning.list.most_loads_per_unit = loads;
            device.tuning.list.cubes_per_multiprocessor = cubes;
            for list in [&list[..20], &layouts()] {
                let plan =
                    reduce_kernels::planner::choose_list(&stated(list), &device).unwrap().plan;
                assert_eq!(matches!(plan.combine, Combine::Plane { .. }), planes, "{combine}");
                launches.push(plan.launch_count());
                check::<Sum>(client, list, Some(plan), 6).unwrap();
            }
        }
    }
    assert!(launches.contains(&5) && launches.contains(&12), "{launches:?}");
}

/// Empty tensors, empty lists, NaN, and tensors inside buffers.
pub(crate) fn at_the_edges(client: &Client) {
    let of = |data: &[f32]| tensor(client, data, &[data.len()], &[1]);
    let read = |tensor: &TensorHandle, len: usize| {
        let bytes = client.read_one(tensor.handle.clone()).expect("the device answers");
        decode(ElementType::F32, &bytes[..4 * len])
    };
    let list = [of(&[1.0, 2.0]), of(&[]), of(&[f32::NAN]), of(&[4.0; 100])];
    let sums = reduce_list(Sum, &list).run(client).unwrap();
    let each = read(&sums.each, 4);
    assert_eq!((each[0], each[1], each[3]), (3.0, 0.0, 400.0));
    assert!(each[2].is_nan() && read(&sums.all, 1)[0].is_nan());
    let largest = reduce_list(Max, [&list[0], &list[3]]).run(client).unwrap();
    assert_eq!((read(&largest.each, 2), read(&largest.all, 1)), (vec![2.0, 4.0], vec![4.0]));

    let none: [TensorHandle; 0] = [];
    let sums = reduce_list(Sum, &none).run(client).unwrap();
    assert_eq!((sums.each.shape()[0], read(&sums.all, 1)), (0, vec![0.0]));
    let sums = reduce_list(Sum, [&list[1]]).run(client).unwrap();
    assert_eq!((read(&sums.each, 1), read(&sums.all, 1)), (vec![0.0], vec![0.0]));

    // The tensors begin inside one buffer, at offsets that every device can bind.
    let data: Vec<f32> = (0..1024).map(|i| i as f32).collect();
    let whole = of(&data);
    let part = |from: u64, len: usize| {
        let handle = whole.handle.clone().offset_start(4 * from);
        TensorHandle::new(handle, [len], [1], whole.dtype)
    };
    let (first, second) = (part(256, 5), part(512, 64));
    let sums = reduce_list(Sum, [&first, &second]).run(client).unwrap();
    assert_eq!(read(&sums.each, 2), [5.0 * 258.0, 64.0 * 543.5]);
}

/// Bad requests are named before anything is launched.
pub(crate) fn contract(client: &Client) {
    let of = |shape: &[usize]| {
        tensor(client, &vec![1f32; shape.iter().product()], shape, &row_major_strides(shape))
    };
    let (x, empty) = (of(&[4, 6]), of(&[0, 2]));
    let operator = "argmax";
    assert_eq!(
        reduce_list(ArgMax, [&x]).run(client).unwrap_err(),
        ReduceError::from(ProblemError::PositionalList { operator })
    );
    let error = reduce_list(Max, [&x, &empty]).run(client).unwrap_err().to_string();
    assert!(error.starts_with("tensor 1 of the list: `max` of no elements"), "{error}");
    let none: [TensorHandle; 0] = [];
    let error = reduce_list(Max, &none).run(client).unwrap_err();
    assert_eq!(error, ReduceError::from(ProblemError::EmptyList { operator: "max" }));
    let short = TensorHandle::new(x.handle.clone(), [40, 6], [6, 1], x.dtype);
    let error = reduce_list(Sum, [&x, &short]).run(client).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Buffer);
    let message = error.to_string();
    assert!(message.starts_with("tensor 1 of the list: the input spans 960 bytes, "), "{error}");
    let wrong =
        reduce_list(Sum, [&x]).nth_output_type(1, ElementType::F32).run(client).unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Arguments);
    assert_eq!(wrong.to_string(), "`sum` has no result 1: it has 1, counted from 0");

    let described = [
        TensorDescription::row_major(ElementType::F16, [4, 6]),
        TensorDescription::row_major(ElementType::F64, [5]),
    ];
    let sums: ListReduction<'_, Sum, TensorDescription> = reduce_list(Sum, &described);
    assert_eq!(sums.output_types().unwrap(), ElementType::F64);
    assert_eq!(sums.problem().unwrap().bytes(), 24 * 2 + 5 * 8 + 3 * 8);

    // A plan for another list does not run.
    let plan = reduce_list(Sum, [&x, &x]).choose(client).unwrap().plan;
    let error = reduce_list(Sum, [&x]).with_plan(plan).run(client).unwrap_err();
    assert!(matches!(source(&error), Some(PlanError::Unfit { .. })), "{error}");
}

/// Clips a list to a norm, into new tensors and in place, and compares each element with the
/// oracle.
fn check_clipped(client: &Client, list: &[Listed], max_norm: f64, in_place: bool) {
    let data: Vec<Vec<f64>> = (list.iter().enumerate())
        .map(|(nth, Listed { case, element })| sample::<Sum>(case, *element, 40 + nth as u64))
        .collect();
    let tensors: Vec<TensorHandle> = (list.iter().zip(&data))
        .map(|(Listed { case, element }, data)| {
            tensor_of(client, *element, &encode(*element, data), &case.shape, &case.strides)
        })
        .collect();
    let all: Vec<usize> = (0..8).collect();
    let elements = |data: &[f64], shape: &[usize], strides: &[usize]| {
        let axes = &all[..shape.len()];
        reduce_naively(data, shape, strides, axes, <[f64]>::to_vec).into_iter().next().unwrap()
    };
    let before: Vec<Vec<f64>> = (list.iter().zip(&data))
        .map(|(Listed { case, .. }, data)| elements(data, &case.shape, &case.strides))
        .collect();
    let norm = before.iter().flatten().map(|x| x * x).sum::<f64>().sqrt();
    let factor = if norm.is_nan() { norm } else { (max_norm / (norm + 1e-6)).min(1.0) };
    let (outputs, found) = match in_place {
        true => {
            let norm = clip_by_global_norm_in_place(client, &tensors, max_norm).unwrap();
            (tensors.clone(), norm)
        }
        false => clip_by_global_norm(client, &tensors, max_norm).unwrap(),
    };
    let real = if found.dtype == tensors[0].dtype { list[0].element } else { ElementType::F32 };
    let bytes = client.read_one(found.handle.clone()).expect("the device answers");
    let found = decode(real, &bytes[..real.bytes()])[0];
    assert!(
        (found - norm).abs() <= 1e-5 * norm || norm.is_nan() && found.is_nan(),
        "{found} {norm}"
    );
    for (nth, (output, Listed { case, element })) in outputs.iter().zip(list).enumerate() {
        assert_eq!(output.shape()[..], case.shape[..]);
        let bytes = client.read_one(output.handle.clone()).expect("the device answers");
        let len = span(output.shape(), output.strides()).unwrap();
        let after = decode(*element, &bytes[..len * element.bytes()]);
        let epsilon = match element {
            ElementType::F16 => 1e-3,
            ElementType::BF16 => 8e-3,
            _ => 1e-6,
        };
        if in_place {
            // What lies between the elements stays.
            let mut touched = vec![false; len];
            let places: Vec<f64> = (0..len).map(|place| place as f64).collect();
            for place in elements(&places, output.shape(), output.strides()) {
                touched[place as usize] = true;
            }
            for (place, _) in touched.iter().enumerate().filter(|&(_, touched)| !touched) {
                assert_eq!(after[place], data[nth][place], "tensor {nth} place {place}");
            }
        }
        let after = elements(&after, output.shape(), output.strides());
        for (i, (after, before)) in after.iter().zip(&before[nth]).enumerate() {
            let expected = before * factor;
            let near = (after - expected).abs() <= epsilon * before.abs();
            assert!(
                near || after.is_nan() && expected.is_nan(),
                "tensor {nth} ({case:?}) element {i}: {after} of {before}, expected {expected}"
            );
            assert!(factor != 1.0 || after == before, "an element changed: {before} to {after}");
        }
    }
}

/// Clipping by the global norm, of every layout.
pub(crate) fn clipped(client: &Client) {
    let layouts = layouts();
    let overlaps = |listed: &Listed| listed.case.strides.contains(&0);
    let apart: Vec<Listed> = layouts.iter().filter(|listed| !overlaps(listed)).cloned().collect();
    for max_norm in [2.5, 1e9] {
        check_clipped(client, &layouts, max_norm, false);
        check_clipped(client, &apart, max_norm, true);
    }
    let device = capable_device(client);
    for element in [ElementType::F16, ElementType::BF16, ElementType::F64] {
        if !device.has(element) {
            println!("{}: not run, the device lacks {element}", client.name());
            continue;
        }
        let case = Case::contiguous(&[4099], &[0]);
        let list =
            [Listed { case, element }, Listed { case: Case::contiguous(&[9], &[0]), element }];
        check_clipped(client, &list, 1.0, true);
        check_clipped(client, &list, 1.0, false);
    }
}

/// Any function of the elements and the results, norms that are not finite, and bad requests.
pub(crate) fn applied(client: &Client) {
    let of = |data: &[f32]| tensor(client, data, &[data.len()], &[1]);
    let read = |tensor: &TensorHandle, len: usize| {
        let bytes = client.read_one(tensor.handle.clone()).expect("the device answers");
        decode(ElementType::F32, &bytes[..4 * len])
    };
    // Two results, the mean and the reciprocal of the deviation, of all three tensors.
    let list = [of(&[1.0, 2.0]), of(&[3.0]), of(&[4.0, 5.0, 6.0, 7.0, 8.0, 9.0])];
    let standardized =
        reduce_list(MeanRstd { correction: 0.0, eps: 0.0 }, &list).apply(Standardized);
    let (outputs, _) = standardized.run(client).unwrap();
    let deviation = (60f64 / 9.0).sqrt();
    for (output, values) in outputs.iter().zip([vec![1.0, 2.0], vec![3.0], vec![4.0, 5.0, 6.0]]) {
        for (found, value) in read(output, values.len()).iter().zip(&values) {
            let expected = (value - 5.0) / deviation;
            assert!((found - expected).abs() < 1e-6, "{found}, expected {expected}");
        }
    }
    let list = [of(&[f32::INFINITY, 1.0]), of(&[2.0])];
    clip_by_global_norm_in_place(client, &list, 1.0).unwrap();
    let first = read(&list[0], 2);
    assert!(first[0].is_nan() && first[1] == 0.0 && read(&list[1], 1) == [0.0], "{first:?}");
    let list = [of(&[f32::NAN, 1.0]), of(&[2.0])];
    clip_by_global_norm_in_place(client, &list, 1.0).unwrap();
    assert!(read(&list[0], 2).iter().chain(&read(&list[1], 1)).all(|value| value.is_nan()));
    let none: [TensorHandle; 0] = [];
    assert_eq!(read(&clip_by_global_norm(client, &none, 1.0).unwrap().1, 1), [0.0]);
    assert_eq!(read(&global_norm(client, [&of(&[3.0, 4.0])]).unwrap(), 1), [5.0]);

    let x = of(&[1.0; 8]);
    let error = clip_by_global_norm(client, [&x], -1.0).unwrap_err().to_string();
    assert!(error.contains("max_norm is -1"), "{error}");
    let integers = tensor(client, &[1i32, 2], &[2], &[1]);
    let error = clip_by_global_norm(client, [&x, &integers], 1.0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Type);
    let message = "`clipped_to_norm` does not give elements of i32";
    assert_eq!(error.to_string(), message);
    let repeated = TensorHandle::new(x.handle.clone(), [3, 8], [0, 1], x.dtype);
    let error = clip_by_global_norm_in_place(client, [&x, &repeated], 1.0).unwrap_err();
    let at = matches!(source(&error), Some(ProblemError::Listed { nth: 1, .. }));
    assert!(at && error.to_string().contains("two results in one element"), "{error}");
}

/// A description of tensors has the errors of the tensors, also those of the application.
pub(crate) fn descriptions(client: &Client) {
    let clipped = ClippedToNorm { max_norm: 1.0 };
    let check = |list: &[TensorDescription], in_place: bool| {
        reduce_list(NormL2, list).apply(clipped).check(client, in_place)
    };
    let row = TensorDescription::row_major(ElementType::F32, [4]);
    let repeated = TensorDescription::strided(ElementType::F32, [4], [0]);
    let integers = TensorDescription::row_major(ElementType::I32, [4]);
    let large = TensorDescription::strided(ElementType::F32, [1 << 42], [0]);
    assert_eq!(check(&[row.clone(), row.clone()], false), Ok(()));
    assert_eq!(check(&[row.clone(), row.clone()], true), Ok(()));
    assert_eq!(check(std::slice::from_ref(&repeated), false), Ok(()));
    assert!(check(&[repeated], true).is_err(), "two elements lie in one place");
    let error = check(&[row, integers], false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Type);
    let message = "`clipped_to_norm` does not give elements of i32";
    assert_eq!(error.to_string(), message);
    assert!(check(&[large], false).is_err(), "no buffer holds the output");

    let x = tensor(client, &[3f32, 4.0], &[2], &[1]);
    let beyond = TensorHandle::new(x.handle.clone(), [2], [100], x.dtype);
    let error = reduce_list(NormL2, [&x, &beyond]).apply(clipped).check(client, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Buffer);
    let message = error.to_string();
    assert!(message.starts_with("tensor 1 of the list: the input spans 404 bytes, "), "{error}");
    let mut few = device_of(client);
    few.max_bindings = 1;
    let error = reduce_list(NormL2, [&x]).plan_for(&few).apply(clipped).check(client, true);
    assert!(error.unwrap_err().to_string().contains("buffers"), "the norm takes more");
}
