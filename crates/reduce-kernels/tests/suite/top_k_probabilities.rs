//! Probabilities in place of the values of selected elements: every method, layout and type beside
//! a softmax in f64 on the host, their bits, and what is refused.

use cubecl::{prelude::*, std::tensor::TensorHandle};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    ElementType, ErrorKind, TensorDescription, cubecl, device_of,
    list::largest_of_list,
    partials::merge_selected,
    planner::{Illegal, PlanError, TopKMethod, row_major_strides, span},
    plans::RecordedCall,
    top_k::{Over, Selected, TopK, largest},
};

use crate::{
    case::Case,
    oracle::reduce_naively,
    run::{POISON, capable_device, decode, encode, read, source, tensor, tensor_of},
    top_k::{Asked, Ordered, orders, plan_of_each_method},
};

/// What is asked for: a selection, and its probabilities.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    asked: Asked,
    over: Over,
    output: ElementType,
}

/// Logits of which many are equal. Some slices have one NaN or `inf`, some `-inf` alone or beside
/// numbers, and some large numbers, whose exponentials overflow.
fn logits(case: &Case, seed: u64) -> Vec<f64> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut values: Vec<f64> =
        (0..case.span()).map(|_| f64::from(rng.random_range(-60..60)) / 8.0).collect();
    let places: Vec<usize> = (0..case.span()).collect();
    let slices = reduce_naively(&places, &case.shape, &case.strides, &case.axes, <[usize]>::to_vec);
    for (nth, slice) in slices.iter().enumerate() {
        let any = slice[rng.random_range(0..slice.len())];
        match nth % 7 {
            1 => values[any] = f64::NAN,
            2 => values[any] = f64::INFINITY,
            3 => slice.iter().for_each(|&at| values[at] = f64::NEG_INFINITY),
            4 => slice.iter().step_by(2).for_each(|&at| values[at] = f64::NEG_INFINITY),
            5 => slice.iter().for_each(|&at| values[at] = values[at] * 4.0 + 1000.0),
            _ => {}
        }
    }
    values
}

/// The probabilities of elements over others, as softmax defines them.
fn softmax(elements: &[f64], over: &[f64]) -> Vec<f64> {
    let max = over.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = over.iter().map(|element| (element - max).exp()).sum();
    elements.iter().map(|element| (element - max).exp() / sum).collect()
}

/// How far a probability may be from the exact one.
fn tolerance(output: ElementType, expected: f64) -> f64 {
    match output {
        ElementType::F64 => expected * 1e-13,
        ElementType::F32 => expected * 2e-5 + 1e-30,
        ElementType::F16 => expected * 2e-3 + 1e-7,
        // Half a step: of three bits, and of two, with that of the least numbers.
        ElementType::F8E4M3 => expected * 6.3e-2 + 1e-3,
        ElementType::F8E5M2 => expected * 1.26e-1 + 8e-6,
        _ => expected * 1e-2 + 1e-30,
    }
}

/// Runs a selection into outputs of poison with a gap after each element, and compares both with
/// the host. Gives the bytes of the probabilities.
fn check(client: &Client, case: &Case, element: ElementType, seed: u64, of: Wanted) -> Vec<u8> {
    let told = format!("{element} {case:?} {of:?}");
    let Wanted { asked, over, output } = of;
    let device = capable_device(client);
    let bytes = encode(element, &logits(case, seed));
    let values = decode(element, &bytes);
    let input = tensor_of(client, element, &bytes, &case.shape, &case.strides);
    let selection = || {
        let selection = asked.of(&input, &device).over(case.axes.as_slice());
        selection.probabilities(over).value_type(output)
    };
    let shape = selection().output_shape().unwrap_or_else(|error| panic!("{told}: {error}"));
    assert_eq!(selection().output_types().unwrap().values, output, "{told}");
    let strides: Vec<usize> = row_major_strides(&shape).iter().map(|stride| 2 * stride).collect();
    let len = span(&shape, &strides).unwrap();
    let poisoned = |element: ElementType| {
        let bytes = vec![POISON; len * element.bytes()];
        tensor_of(client, element, &bytes, &shape, &strides)
    };
    let (found, positions) = (poisoned(output), poisoned(ElementType::U32));
    let outputs =
        Selected { values: found.clone().binding(), positions: positions.clone().binding() };
    selection().run_into(client, outputs).unwrap_or_else(|error| panic!("{told}: {error}"));
    let bytes_found = read::<u8>(client, &found, len * output.bytes());
    let found = decode(output, &bytes_found);
    let positions = read::<u32>(client, &positions, len);

    let of_slice = <[f64]>::to_vec;
    let slices = reduce_naively(&values, &case.shape, &case.strides, &case.axes, of_slice);
    let ranked = *case.axes.iter().max().unwrap();
    let places: Vec<usize> = (0..len).collect();
    let at_ranks = reduce_naively(&places, &shape, &strides, &[ranked], <[usize]>::to_vec);
    assert_eq!(slices.len(), at_ranks.len(), "{told}");
    for (slice, ranks) in slices.iter().zip(&at_ranks) {
        let bytes = encode(element, slice);
        let ordered: Vec<Ordered> =
            bytes.chunks(element.bytes()).map(|bytes| Ordered::of(element, bytes)).collect();
        let expected = asked.select(&ordered);
        let at: Vec<usize> = ranks.iter().map(|&at| positions[at] as usize).collect();
        assert_eq!(at, expected, "{told}");
        let selected: Vec<f64> = expected.iter().map(|&at| slice[at]).collect();
        let over = if over == Over::Slice { slice } else { &selected };
        for (&at, expected) in ranks.iter().zip(softmax(&selected, over)) {
            let (found, tolerance) = (found[at], tolerance(output, expected));
            let fits = (found - expected).abs() <= tolerance || found.is_nan() && expected.is_nan();
            assert!(fits, "{told}: {found} in place of {expected}");
        }
    }
    let is_poison = |at: usize| {
        let size = output.bytes();
        bytes_found[at * size..][..size].iter().all(|&byte| byte == POISON)
            && positions[at] == u32::from_le_bytes([POISON; 4])
    };
    assert!((0..len).filter(|at| !at.is_multiple_of(2)).all(is_poison), "{told}");
    bytes_found
}

const BOTH: [Over; 2] = [Over::Selected, Over::Slice];

/// A plan of each method gives the probabilities of the right elements, in all orders of values and
/// of positions.
pub(crate) fn every_method(client: &Client) {
    let device = capable_device(client);
    let element = ElementType::F32;
    let mut methods = Vec::new();
    for (nth, (case, k)) in [
        (Case::contiguous(&[9, 1500], &[1]), 40),
        (Case::contiguous(&[9, 150], &[1]), 9),
        (Case::contiguous(&[8, 128], &[1]), 8),
        (Case::contiguous(&[150, 9], &[0]), 16),
    ]
    .into_iter()
    .enumerate()
    {
        for over in BOTH {
            let described = TensorDescription::strided(element, &case.shape[..], &case.strides[..]);
            let selection = largest(k, &described).over(case.axes.as_slice()).probabilities(over);
            let problem = selection.problem().unwrap();
            let chosen = selection.choose(client).unwrap().plan;
            let mut plans = vec![chosen];
            plans.extend(plan_of_each_method(&problem, chosen, &device));
            for (turn, plan) in plans.into_iter().enumerate() {
                methods.push((plan.method, plan.cubes_per_slice > 1, over));
                for asked in orders(k).skip((nth + turn) % 4).step_by(4) {
                    let asked = Asked { plan: Some(plan), ..asked };
                    check(client, &case, element, 3, Wanted { asked, over, output: element });
                }
            }
        }
    }
    for over in BOTH {
        for (method, several) in [
            (TopKMethod::Buffer, false),
            (TopKMethod::Buffer, true),
            (TopKMethod::Registers, false),
            (TopKMethod::Runs, true),
        ] {
            assert!(methods.contains(&(method, several, over)), "{method:?} {over}");
        }
    }
}

/// Slices of one axis and of several, with gaps and without, of one element and of many, with the
/// plans that are chosen.
pub(crate) fn every_layout(client: &Client) {
    let cases = [
        Case::contiguous(&[3000], &[0]),
        Case::contiguous(&[9, 1], &[1]),
        Case::contiguous(&[40, 3, 50], &[0, 2]),
        Case::contiguous(&[9, 1021], &[1]),
        Case::contiguous(&[2000, 9], &[0]),
        Case::pitched(&[9, 100], 104, &[1]),
        Case::permuted(&[24, 10, 12], &[2, 0, 1], &[0, 1]),
        Case::sliced(&[9, 80], &[2, 2], &[1]),
    ];
    let output = ElementType::F32;
    for (nth, case) in cases.iter().enumerate() {
        for (over, k) in [(BOTH[nth % 2], 1), (BOTH[(nth + 1) % 2], 30)] {
            let k = k.min(case.reduction_len());
            let asked = orders(k).next().unwrap();
            check(client, case, output, nth as u64, Wanted { asked, over, output });
        }
    }
    // More than are put in order by counting.
    let case = Case::contiguous(&[8, 3000], &[1]);
    for over in BOTH {
        let asked = orders(700).next().unwrap();
        check(client, &case, output, 9, Wanted { asked, over, output });
    }
}

/// Elements of every floating point type, and probabilities of each that is no wider.
pub(crate) fn every_type(client: &Client) {
    let device = device_of(client);
    let floats = || ElementType::ALL.into_iter().filter(|it| it.is_float() && device.has(*it));
    let case = Case::contiguous(&[8, 128], &[1]);
    let long = Case::contiguous(&[8, 2100], &[1]);
    for (element, output) in floats().flat_map(|it| floats().map(move |output| (it, output))) {
        if output == ElementType::F64 && element != output {
            continue;
        }
        let asked = orders(8).next().unwrap();
        for over in BOTH {
            check(client, &case, element, 1, Wanted { asked, over, output });
        }
        if element == output {
            check(client, &long, element, 2, Wanted { asked, over: Over::Slice, output });
        }
    }
}

/// Probabilities over the selected elements have the same bits in every batch and by every method,
/// and those over rows in every batch.
pub(crate) fn same_bits(client: &Client) {
    let device = capable_device(client);
    let mut rng = StdRng::seed_from_u64(8);
    for (len, k) in [(128, 8), (1000, 32), (3000, 100)] {
        let rows = 300;
        let values: Vec<f32> = (0..rows * len).map(|_| rng.random_range(-8.0..8.0)).collect();
        let all = tensor(client, &values, &[rows, len], &[len, 1]);
        let one = tensor(client, &values[..len], &[1, len], &[len, 1]);
        let bits = |selection: TopK<'_, TensorHandle>| {
            let found = selection.over(1).run(client).unwrap().values;
            read::<u32>(client, &found, found.shape().iter().product())
        };
        for over in BOTH {
            let of_all = bits(largest(k, &all).probabilities(over));
            let of_one = bits(largest(k, &one).probabilities(over));
            assert_eq!(of_all[..k], of_one[..], "{k} of {len} over {over}");
        }
        let selection = largest(k, &one).over(1).probabilities(Over::Selected);
        let expected = bits(selection.clone());
        let problem = selection.problem().unwrap();
        let chosen = selection.choose(client).unwrap().plan;
        for plan in plan_of_each_method(&problem, chosen, &device) {
            let selection = largest(k, &one).probabilities(Over::Selected);
            let found = bits(selection.with_plan(plan).plan_for(&device));
            assert_eq!(found, expected, "{plan}");
        }
    }
}

/// Shapes, types, recordings, parts and errors.
pub(crate) fn contract(client: &Client) {
    let data = [1.0f32, 3.0, 2.0, 0.0, 5.0, 5.0, 4.0, 1.0];
    let x = tensor(client, &data, &[2, 4], &[4, 1]);
    let e = |difference: f32| difference.exp();
    let close = |found: &[f32], expected: &[f32]| {
        let each = found.iter().zip(expected);
        let is_close = |(found, expected): (&f32, &f32)| (found - expected).abs() < 1e-6;
        assert!(found.len() == expected.len() && each.clone().all(is_close), "{found:?}");
    };
    let found = largest(2, &x).over(1).probabilities(Over::Selected).run(client).unwrap();
    assert_eq!(read::<u32>(client, &found.positions, 4), [1, 2, 0, 1]);
    let first = 1.0 / (1.0 + e(-1.0));
    let expected = [first, 1.0 - first, 0.5, 0.5];
    close(&read::<f32>(client, &found.values, 4), &expected);
    // Only the last of them, whose probability is over all that are selected.
    let last = largest(2, &x).over(1).only_last().probabilities(Over::Selected).run(client);
    close(&read::<f32>(client, &last.unwrap().values, 2), &[1.0 - first, 0.5]);
    let whole = largest(1, &x).over(1).probabilities(Over::Slice).run(client).unwrap();
    let of_first = 1.0 / (1.0 + e(-1.0) + e(-2.0) + e(-3.0));
    let of_second = 1.0 / (2.0 + e(-1.0) + e(-4.0));
    close(&read::<f32>(client, &whole.values, 2), &[of_first, of_second]);
    // With identifiers of experts.
    let table = tensor(client, &[10u32, 11, 12, 13, 20, 21, 22, 23], &[2, 4], &[4, 1]);
    let named = largest(2, &x).over(1).with_positions(&table).probabilities(Over::Selected);
    let named = named.run(client).unwrap();
    assert_eq!(read::<u32>(client, &named.positions, 4), [11, 12, 20, 21]);
    close(&read::<f32>(client, &named.values, 4), &expected);

    // Types.
    let kind = |selection: TopK<'_, TensorHandle>| selection.check(client).unwrap_err().kind();
    let wide = largest(2, &x).probabilities(Over::Slice).value_type(ElementType::F64);
    assert_eq!(kind(wide), ErrorKind::Type);
    let integer = largest(2, &x).probabilities(Over::Slice).value_type(ElementType::I32);
    assert_eq!(kind(integer), ErrorKind::Type);
    assert_eq!(kind(largest(2, &x).value_type(ElementType::F16)), ErrorKind::Type);
    let integers = tensor(client, &[1i32, 2, 3], &[1, 3], &[3, 1]);
    assert_eq!(kind(largest(2, &integers).probabilities(Over::Selected)), ErrorKind::Type);

    // Nothing is selected, and nothing launched.
    let none = largest(0, &x).over(1).probabilities(Over::Slice).run(client).unwrap();
    assert_eq!(none.values.shape()[..], [2, 0]);

    // A recording states the problem again, which has a line of its own.
    for over in BOTH {
        let selection = largest(2, &x).over(1).probabilities(over).value_type(ElementType::F16);
        if !device_of(client).has(ElementType::F16) {
            continue;
        }
        let line = selection.record().unwrap().to_json();
        let RecordedCall::TopK(read) = RecordedCall::parse(&line).unwrap() else {
            panic!("{line}")
        };
        assert_eq!(
            read.to_string(),
            format!("top_k 2 of f32 [2, 4] axis 1 probabilities f16 over {over}")
        );
        assert_eq!(read.problem().unwrap(), selection.problem().unwrap());
        selection.run(client).unwrap();
        assert!(!read.would_compile(client).unwrap(), "{over}");
        let plain = largest(2, &x).over(1).problem().unwrap();
        assert_ne!(read.problem().unwrap().to_string(), plain.to_string());
    }

    // Units that hold a slice hold a probability each.
    let described = TensorDescription::row_major(ElementType::F32, [5, 37]);
    let selection = largest(9, &described).over(1);
    let mut plan = selection.choose(client).unwrap().plan;
    plan.method = TopKMethod::Registers;
    plan.access = plan.access.with_loads_in_flight(12);
    (plan.units_per_slice, plan.slices_per_cube, plan.buffer) = (8, 1, 128);
    let device = capable_device(client);
    plan.check(&selection.problem().unwrap(), &device).unwrap();
    let problem = selection.probabilities(Over::Selected).problem().unwrap();
    let refused = plan.check(&problem, &device).unwrap_err();
    let reason = Illegal::Probabilities { k: 9, units: 8 };
    assert!(matches!(&refused, PlanError::Unfit { reason: found, .. } if *found == reason));

    // A list gives those of each tensor, or of all together after their merge.
    let pair = || largest_of_list(2, [&x, &x]).probabilities(Over::Selected);
    let each = pair().run_each(client).unwrap();
    close(&read::<f32>(client, &each[1].values, 2), &[0.5, 0.5]);
    let all = pair().run_all(client).unwrap();
    assert_eq!(read::<u32>(client, &all.positions, 2), [4, 5]);
    close(&read::<f32>(client, &all.values, 2), &[0.5, 0.5]);
    let refused = largest_of_list(2, [&x, &x]).probabilities(Over::Slice).run_all(client);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Arguments);

    // Chunks give candidates and no probabilities, which nothing that is merged could tell.
    let refused = largest(2, &x).over(1).probabilities(Over::Selected).partial(client, 0);
    let refused = refused.unwrap_err();
    assert!(refused.kind() == ErrorKind::Arguments && !refused.launched(), "{refused}");
    let partial = largest(2, &x).over(1).partial(client, 0).unwrap();
    let merged = merge_selected(&[partial]).run(client).unwrap();
    assert_eq!(read::<f32>(client, &merged.values, 4), [3.0, 2.0, 5.0, 5.0]);
    assert!(source::<PlanError>(&refused).is_none());
}
