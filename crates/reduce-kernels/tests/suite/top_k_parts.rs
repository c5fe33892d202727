//! Selections from slices that come in parts, beside a stable sort of the whole: chunks of a stream
//! and lists of tensors.

use cubecl::{prelude::*, std::tensor::TensorHandle};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    ElementType, ErrorKind, ReduceError, TensorDescription, cubecl, device_of,
    list::{largest_of_list, smallest_of_list},
    partials::{PartialsError, SelectedPartial, merge_selected},
    planner::{Access, Planned, ProblemError, TopKMethod, TopKProblem, row_major_strides, span},
    plans::{PlanSource, PlanStore, RecordedCall, TunedPlan},
    storage_type,
    top_k::{Over, Selected, largest},
};

use crate::{
    case::Case,
    oracle::reduce_naively,
    run::{POISON, encode, read, source, tensor, tensor_of},
    top_k::{Asked, orders},
};

/// Elements of which few are different, so that the first `k` of `len` come from everywhere, and
/// that the last of them ties with others. Some are NaN and zeros of both signs.
pub(crate) fn spread_bytes(
    element: ElementType,
    elements: usize,
    [k, len]: [usize; 2],
    rng: &mut StdRng,
) -> Vec<u8> {
    let most = if element.bytes() == 1 { 100 } else { 1000 };
    let distinct = (len / k.max(1)).clamp(2, most) as i32;
    let draw = |rng: &mut StdRng| match rng.random_range(0..=distinct) {
        0 if element.is_float() => f64::NAN,
        1 if element.is_float() => -0.0,
        number if element.is_float() || element.is_signed() => f64::from(number - distinct / 2),
        number => f64::from(number),
    };
    let values: Vec<f64> = (0..elements).map(|_| draw(rng)).collect();
    encode(element, &values)
}

/// The bytes of the elements of a row-major tensor with these indices along an axis.
fn part(
    element: ElementType,
    bytes: &[u8],
    shape: &[usize],
    axis: usize,
    [start, end]: [usize; 2],
) -> (Vec<u8>, Vec<usize>) {
    let inner = shape[axis + 1..].iter().product::<usize>() * element.bytes();
    let rows = bytes.chunks((shape[axis] * inner).max(1));
    let own = rows.flat_map(|row| row[start * inner..end * inner].iter().copied()).collect();
    let mut shape = shape.to_vec();
    shape[axis] = end - start;
    (own, shape)
}

/// The partial result of each chunk of a row-major tensor, cut along an axis at these indices.
fn partials_of(
    client: &Client,
    element: ElementType,
    bytes: &[u8],
    shape: &[usize],
    axes: &[usize],
    cuts: &[usize],
    asked: Asked,
) -> Vec<SelectedPartial> {
    let axis = axes[0];
    let inner: usize = axes[1..].iter().map(|&axis| shape[axis]).product();
    let ends = cuts.iter().skip(1).copied().chain([shape[axis]]);
    let each = cuts.iter().zip(ends).map(|(&start, end)| {
        let (own, shape) = part(element, bytes, shape, axis, [start, end]);
        let chunk = tensor_of(client, element, &own, &shape, &row_major_strides(&shape));
        asked.of_input(&chunk).over(axes).partial(client, start * inner).unwrap()
    });
    each.collect()
}

/// Outputs of this shape with a gap after each element, of poison.
struct Poisoned {
    values: TensorHandle,
    positions: TensorHandle,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

impl Poisoned {
    fn new(client: &Client, element: ElementType, shape: &[usize]) -> Self {
        let strides: Vec<usize> = row_major_strides(shape).iter().map(|it| 2 * it).collect();
        let len = span(shape, &strides).unwrap() + 1;
        let new = |element: ElementType| {
            tensor_of(client, element, &vec![POISON; len * element.bytes()], shape, &strides)
        };
        let (values, positions) = (new(element), new(ElementType::U32));
        Self { values, positions, shape: shape.to_vec(), strides }
    }

    fn bindings(&self) -> Selected<TensorBinding> {
        let (values, positions) = (self.values.clone(), self.positions.clone());
        Selected { values: values.binding(), positions: positions.binding() }
    }
}

/// The bytes of the values and the positions of each slice.
pub(crate) type Slices = Vec<(Vec<Vec<u8>>, Vec<u32>)>;

/// The elements of a tensor for each slice, whose selected elements lie along an axis.
pub(crate) fn by_slice<T: Clone>(
    elements: &[T],
    shape: &[usize],
    strides: &[usize],
    ranked: usize,
) -> Vec<Vec<T>> {
    let places: Vec<usize> = (0..elements.len()).collect();
    let of_slice = |places: &[usize]| places.iter().map(|&at| elements[at].clone()).collect();
    reduce_naively(&places, shape, strides, &[ranked], of_slice)
}

/// What was found, in the order of slices.
fn found(client: &Client, element: ElementType, of: &Poisoned, ranked: usize) -> Slices {
    let len = span(&of.shape, &of.strides).unwrap();
    let values = read::<u8>(client, &of.values, len * element.bytes());
    let values: Vec<Vec<u8>> = values.chunks(element.bytes()).map(<[u8]>::to_vec).collect();
    let positions = read::<u32>(client, &of.positions, len);
    let poison = u32::from_le_bytes([POISON; 4]);
    assert!(positions.iter().skip(1).step_by(2).all(|&gap| gap == poison), "written between");
    let values = by_slice(&values, &of.shape, &of.strides, ranked);
    values.into_iter().zip(by_slice(&positions, &of.shape, &of.strides, ranked)).collect()
}

/// What is to be found.
pub(crate) fn expected(
    element: ElementType,
    bytes: &[u8],
    shape: &[usize],
    axes: &[usize],
    asked: Asked,
) -> Slices {
    let slices = asked.select_each(element, bytes, shape, axes).into_iter();
    let size = element.bytes();
    let of_slice = |slice: Vec<(usize, usize)>| {
        let values = slice.iter().map(|&(place, _)| bytes[place * size..][..size].to_vec());
        (values.collect(), slice.iter().map(|&(_, at)| at as u32).collect())
    };
    slices.map(of_slice).collect()
}

/// Chunks of any lengths, in every order of values, merged in a list and in a tree, give what one
/// selection of the whole gives.
pub(crate) fn chunks(client: &Client) {
    let device = device_of(client);
    let mut rng = StdRng::seed_from_u64(4);
    for (element, shape, axes, k) in [
        (ElementType::F32, vec![4, 2000], vec![1], 9),
        (ElementType::F32, vec![50, 6], vec![0], 7),
        (ElementType::F16, vec![3, 30, 5], vec![1, 2], 20),
        (ElementType::U8, vec![2, 500], vec![1], 40),
        (ElementType::I64, vec![2, 90], vec![1], 5),
        (ElementType::F64, vec![90, 3], vec![0], 5),
        // Longer than a buffer of Mesa's adapter holds.
        (ElementType::F32, vec![9000], vec![0], 5000),
    ] {
        if !device.has(element) {
            continue;
        }
        let axis = axes[0];
        let len = axes.iter().map(|&axis| shape[axis]).product();
        let bytes = spread_bytes(element, shape.iter().product(), [k, len], &mut rng);
        for (nth, asked) in orders(k).enumerate() {
            // Every order once, and a few of them for the other layouts and types.
            if k != 9 && nth % 5 != 0 {
                continue;
            }
            // Chunks shorter than `k`, and empty ones.
            let mut cuts: Vec<usize> = (0..4).map(|_| rng.random_range(0..=shape[axis])).collect();
            cuts.extend([0, shape[axis].min(2)]);
            cuts.sort_unstable();
            let told = format!("{element} {shape:?} {axes:?} cut at {cuts:?} {asked:?}");
            let partials = partials_of(client, element, &bytes, &shape, &axes, &cuts, asked);
            let expected = expected(element, &bytes, &shape, &axes, asked);
            let mut selected = shape.clone();
            axes.iter().for_each(|&axis| selected[axis] = 1);
            let ranked = *axes.last().unwrap();
            selected[ranked] = k;
            let list = Poisoned::new(client, element, &selected);
            merge_selected(&partials).run_into(client, list.bindings()).unwrap();
            assert!(found(client, element, &list, ranked) == expected, "{told}");

            let (left, right) = partials.split_at(1 + nth % 5);
            let merged = |partials| merge_selected(partials).partial(client).unwrap();
            let tree = [merged(left), merged(right)];
            let of_tree = Poisoned::new(client, element, &selected);
            merge_selected(&tree).run_into(client, of_tree.bindings()).unwrap();
            assert!(found(client, element, &of_tree, ranked) == expected, "tree of {told}");
        }
    }
}

/// Everything but the elements: shapes, types, positions beyond 32 bits, transport, and what does
/// not belong together.
pub(crate) fn chunks_at_the_edges(client: &Client) {
    let device = device_of(client);
    let data: Vec<f32> = (0..24).map(|i| (i * 7 % 24) as f32).collect();
    let x = tensor(client, &data, &[2, 12], &[12, 1]);
    let y = tensor(client, &data[..6], &[2, 3], &[3, 1]);
    let of = |k: usize| largest(k, &x).over(1);
    let first = of(4).partial(client, 0).unwrap();
    let second = largest(4, &y).over(1).partial(client, 12).unwrap();
    assert_eq!(first.values().shape()[..], [4, 2]);
    assert_eq!(second.values().shape()[..], [3, 2]);
    let description = second.description();
    assert_eq!((description.first, description.len, &description.shape[..]), (12, 3, &[2, 1][..]));
    assert_eq!(read::<u32>(client, second.positions(), 6), [14, 12, 13, 14, 12, 13]);

    // New tensors, of one part and of several, of the last element alone, without the other axes.
    let selected = merge_selected(&[first.clone(), second.clone()]).run(client).unwrap();
    assert_eq!(selected.values.shape()[..], [2, 4]);
    assert_eq!(selected.values.strides()[..], [4, 1]);
    let alone = merge_selected(core::slice::from_ref(&first)).run(client).unwrap();
    let direct = of(4).run(client).unwrap();
    let positions = |of: &Selected| read::<u32>(client, &of.positions, 8);
    assert_eq!(positions(&alone), positions(&direct));
    let last = of(4).only_last().partial(client, 0).unwrap();
    let last = merge_selected(&[last]).run(client).unwrap();
    assert_eq!(last.positions.shape()[..], [2, 1]);
    let direct = positions(&direct);
    assert_eq!(read::<u32>(client, &last.positions, 2), [direct[3], direct[7]]);
    let flat = largest(3, &x).keep_dims(false).partial(client, 0).unwrap();
    assert_eq!(merge_selected(&[flat]).run(client).unwrap().values.shape()[..], [3]);
    let none = tensor::<f32>(client, &[], &[2, 0], &[1, 1]);
    let none = largest(4, &none).over(1).or_fewer().partial(client, 0).unwrap();
    assert_eq!(merge_selected(&[none]).run(client).unwrap().values.shape()[..], [2, 0]);

    // Positions of a tensor are merged as they are.
    let numbers: Vec<u32> = (0..24).map(|i| 1000 - i).collect();
    let table = tensor(client, &numbers, &[2, 12], &[12, 1]);
    let numbered = of(1).with_positions(&table).partial(client, 0).unwrap();
    let numbered = merge_selected(&[numbered]).run(client).unwrap();
    let best = positions(&of(4).run(client).unwrap());
    let expected = [numbers[best[0] as usize], numbers[12 + best[4] as usize]];
    assert_eq!(read::<u32>(client, &numbered.positions, 2), expected);

    // Positions that 32 bits do not hold.
    let far = 1usize << 33;
    let refused = |error: ReduceError| source::<PartialsError>(&error).cloned().unwrap();
    let narrow = of(1).partial(client, far).unwrap_err();
    assert!(matches!(refused(narrow), PartialsError::PositionType { .. }));
    let narrow = of(1).position_type(ElementType::I32).partial(client, 1 << 31).unwrap_err();
    assert!(matches!(refused(narrow), PartialsError::PositionType { .. }));
    if device.has(ElementType::U64) {
        for (first, element) in
            [(far + 5, ElementType::U64), (far - 6, ElementType::I64), (7, ElementType::U64)]
        {
            let wide = of(1).position_type(element).partial(client, first).unwrap();
            let found = read::<u64>(client, wide.positions(), 2);
            let expected = [best[0], best[4]].map(|at| first as u64 + u64::from(at));
            assert_eq!(found, expected, "{element}");
        }
    }

    // Across processes.
    let (values, places) = (second.values().clone(), second.positions().clone());
    let again = SelectedPartial::from_tensors(second.description().clone(), values, places);
    let again = merge_selected(&[first.clone(), again.unwrap()]).run(client).unwrap();
    assert_eq!(positions(&again), positions(&selected));
    let rejoined = |change: fn(&mut reduce_kernels::partials::SelectedPartialDescription)| {
        let mut description = second.description().clone();
        change(&mut description);
        let (values, positions) = (second.values().clone(), second.positions().clone());
        refused(SelectedPartial::from_tensors(description, values, positions).unwrap_err())
    };
    let is_impossible = |error| matches!(error, PartialsError::Description { .. });
    assert!(is_impossible(rejoined(|it| it.format = 2)));
    assert!(is_impossible(rejoined(|it| it.axis = 2)));
    assert!(is_impossible(rejoined(|it| it.shape = vec![usize::MAX, 1, 2])));
    assert!(is_impossible(rejoined(|it| it.first = usize::MAX)));
    assert!(is_impossible(rejoined(|it| it.positions = ElementType::F32)));
    let is_other = |error| matches!(error, PartialsError::Selected { .. });
    assert!(is_other(rejoined(|it| it.len = 2)));
    assert!(is_other(rejoined(|it| it.element = ElementType::I32)));
    assert!(is_other(rejoined(|it| it.positions = ElementType::I32)));

    // What does not belong together.
    let merged = |partials: &[SelectedPartial]| merge_selected(partials).run(client).unwrap_err();
    assert_eq!(refused(merged(&[])), PartialsError::None);
    let backwards = refused(merged(&[second.clone(), first.clone()]));
    assert_eq!(backwards, PartialsError::Positions { nth: 1, first: 0, expected: 15 });
    let second_alone = refused(merged(core::slice::from_ref(&second)));
    assert_eq!(second_alone, PartialsError::Positions { nth: 0, first: 12, expected: 0 });
    let differs = |other: SelectedPartial| match refused(merged(&[first.clone(), other])) {
        PartialsError::Differ { what, .. } => what,
        other => panic!("{other}"),
    };
    let of_y = |k: usize| largest(k, &y).over(1);
    assert_eq!(differs(of_y(3).partial(client, 12).unwrap()), "selection");
    assert_eq!(differs(of_y(4).nan_last().partial(client, 12).unwrap()), "selection");
    let by_position = of_y(4).in_order_of_positions().partial(client, 12).unwrap();
    assert_eq!(differs(by_position), "selection");
    let signed = of_y(4).position_type(ElementType::I32).partial(client, 12).unwrap();
    assert_eq!(differs(signed), "types");
    assert_eq!(differs(largest(4, &y).partial(client, 12).unwrap()), "shape");
    let few = largest(16, &x).over(1).partial(client, 0).unwrap();
    let error = merged(&[few]);
    let expected = ProblemError::TooFewElements { k: 16, len: 12 };
    assert_eq!(source::<ProblemError>(&error), Some(&expected), "{error}");
    let handle = client.empty(64);
    let small = TensorHandle::new(handle, [2, 3], [3, 1], storage_type(ElementType::F32));
    let outputs = Selected { values: small.clone().binding(), positions: small.binding() };
    let error = merge_selected(&[first]).run_into(client, outputs).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape, "{error}");
}

/// Lists of tensors of any lengths and layouts: of each, and of all together.
pub(crate) fn lists(client: &Client) {
    let mut rng = StdRng::seed_from_u64(6);
    let cases = [
        Case::contiguous(&[2000], &[0]),
        Case::contiguous(&[3], &[0]),
        Case::contiguous(&[0], &[0]),
        Case::permuted(&[6, 4, 12], &[2, 0, 1], &[0, 1, 2]),
        Case::pitched(&[6, 100], 104, &[0, 1]),
    ];
    let element = ElementType::F32;
    let (mut tensors, mut flat, mut each) = (Vec::new(), Vec::new(), Vec::new());
    for case in &cases {
        let held = spread_bytes(element, case.span(), [50, 2892], &mut rng);
        tensors.push(tensor_of(client, element, &held, &case.shape, &case.strides));
        let elements: Vec<[u8; 4]> = held.chunks(4).map(|it| it.try_into().unwrap()).collect();
        let all = |elements: &[[u8; 4]]| elements.concat();
        let own = reduce_naively(&elements, &case.shape, &case.strides, &case.axes, all).concat();
        flat.extend_from_slice(&own);
        each.push(own);
    }
    // A tensor without axes has an element.
    let scalar = tensor(client, &[f32::INFINITY], &[], &[]);
    flat.extend_from_slice(&f32::INFINITY.to_le_bytes());
    tensors.push(scalar);
    let bytes_of = |of: &TensorHandle, len: usize| read::<u8>(client, of, 4 * len);
    for (nth, asked) in orders(50).enumerate() {
        let list = |asked: Asked| {
            let start = |k| {
                if asked.largest {
                    largest_of_list(k, &tensors)
                } else {
                    smallest_of_list(k, &tensors)
                }
            };
            let list = if asked.nan_last { start(asked.k).nan_last() } else { start(asked.k) };
            if asked.by_position { list.in_order_of_positions() } else { list }
        };
        assert_eq!(list(asked).starts().unwrap(), [0, 2000, 2003, 2003, 2291, 2891]);
        for k in [50, 1, 2892] {
            if k > 1000 && nth % 3 != 0 {
                continue;
            }
            let asked = Asked { k, ..asked };
            let Selected { values, positions } = list(asked).run_all(client).unwrap();
            assert_eq!(values.shape()[..], [k]);
            let values: Vec<Vec<u8>> = bytes_of(&values, k).chunks(4).map(<[u8]>::to_vec).collect();
            let positions = read::<u32>(client, &positions, k);
            let of_all = expected(element, &flat, &[2892], &[0], asked);
            assert!((values, positions) == of_all[0], "{asked:?}");
        }
        let found = list(asked).or_fewer().run_each(client).unwrap();
        for (selected, own) in found.iter().zip(&each) {
            let len = own.len() / 4;
            let Selected { values, positions } = selected;
            let k = len.min(asked.k);
            assert_eq!(values.shape()[..], [k]);
            let of_one = expected(element, own, &[len], &[0], asked);
            if let Some((of_values, of_positions)) = of_one.first() {
                assert!(bytes_of(values, k) == of_values.concat(), "{asked:?}");
                assert_eq!(read::<u32>(client, positions, k), *of_positions, "{asked:?}");
            }
        }
    }
    let wide = largest_of_list(2, &tensors).position_type(ElementType::I32).run_all(client);
    assert_eq!(wide.unwrap().positions.dtype, storage_type(ElementType::I32));

    // What is refused, before anything is launched.
    let error = largest_of_list(2893, &tensors).run_all(client).unwrap_err();
    let expected = ProblemError::TooFewElements { k: 2893, len: 2892 };
    assert_eq!(source::<ProblemError>(&error), Some(&expected));
    let all = largest_of_list(2893, &tensors).or_fewer().run_all(client).unwrap();
    assert_eq!(all.values.shape()[..], [2892]);
    let named = |error: ReduceError| {
        assert!(!error.launched());
        (error.kind(), error.to_string())
    };
    let (kind, told) = named(largest_of_list(4, &tensors).run_each(client).unwrap_err());
    assert_eq!(kind, ErrorKind::Shape);
    assert!(told.starts_with("tensor 1 of the list"), "{told}");
    let short = tensor(client, &[0f32; 8], &[3, 4], &[4, 1]);
    let with_short = [&tensors[0], &short];
    for result in [
        largest_of_list(2, with_short).run_each(client).map(|_| ()),
        largest_of_list(2, with_short).run_all(client).map(|_| ()),
    ] {
        let (kind, told) = named(result.unwrap_err());
        assert_eq!(kind, ErrorKind::Buffer);
        assert!(told.starts_with("tensor 1 of the list"), "{told}");
    }
    let integers = tensor(client, &[0i32; 12], &[3, 4], &[4, 1]);
    let of_two = || largest_of_list(2, [&tensors[0], &integers]);
    let (kind, told) = named(of_two().run_all(client).unwrap_err());
    assert_eq!((kind, told.starts_with("tensor 1 of the list")), (ErrorKind::Type, true), "{told}");
    assert_eq!(of_two().run_each(client).unwrap().len(), 2);
    assert_eq!(largest_of_list(0, []).run_all(client).unwrap_err().kind(), ErrorKind::Shape);
    assert!(largest_of_list(3, []).run_each(client).unwrap().is_empty());
}

/// The selections of a list without running it: problems, plans, stored plans, recordings, and the
/// errors of its runs.
pub(crate) fn lists_planned(client: &Client) {
    let row = |len: usize| TensorDescription::row_major(ElementType::F32, [len]);
    let described = [row(2000), row(3), TensorDescription::row_major(ElementType::F32, [])];
    let list = || largest_of_list(5, &described).or_fewer();
    let each = list().each().problems().unwrap();
    let lens = |problems: &[TopKProblem]| {
        let each = problems.iter().map(|problem| (problem.slices().reduction_len(), problem.k()));
        each.collect::<Vec<_>>()
    };
    assert_eq!(lens(&each), [(2000, 5), (3, 3), (1, 1)]);
    // The last one selects from the candidates of all.
    let all = list().all().problems().unwrap();
    assert_eq!(lens(&all), [(2000, 5), (3, 3), (1, 1), (9, 5)]);
    for (selections, problems) in [(list().each(), &each), (list().all(), &all)] {
        selections.check(client).unwrap();
        for (call, problem) in selections.record().unwrap().iter().zip(problems) {
            let RecordedCall::TopK(call) = call else { panic!("{call}") };
            assert_eq!(call.problem().unwrap(), *problem);
        }
        let plans = selections.plans(client).unwrap();
        assert_eq!(plans.len(), problems.len());
        assert!(plans.iter().all(|in_use| in_use.source == PlanSource::Chosen));
    }

    // A stored plan of any of the launches, that from the candidates included.
    let device = device_of(client);
    let data: Vec<f32> = (0..2000).map(|i| (i * 7919 % 1009) as f32).collect();
    let (x, y) = (tensor(client, &data, &[2000], &[1]), tensor(client, &data[..70], &[70], &[1]));
    let pair = || largest_of_list(50, [&x, &y]);
    let expected = pair().run_all(client).unwrap();
    let problems = pair().all().problems().unwrap();
    let mut store = PlanStore::new(&device);
    for problem in &problems {
        let mut plan = problem.choose(&device).unwrap().plan;
        (plan.access, plan.method) = (Access::new(plan.access.direction), TopKMethod::Buffer);
        (plan.units_per_slice, plan.slices_per_cube, plan.cubes_per_slice) = (16, 1, 1);
        (plan.buffer, plan.digit_bits) = (128, 4);
        store.insert(problem, &device, TunedPlan::new(plan, 1, 2)).unwrap();
    }
    let stored = pair().with_plans(&store).all().plans(client).unwrap();
    for (in_use, problem) in stored.iter().zip(&problems) {
        assert_eq!(in_use.source, PlanSource::Stored);
        assert_eq!(Some(in_use.plan), store.plan_for(problem, &device));
    }
    let found = pair().with_plans(&store).run_all(client).unwrap();
    let positions = |of: &Selected| read::<u32>(client, &of.positions, 50);
    assert_eq!(positions(&found), positions(&expected));

    // A check gives the error of the run.
    let short = tensor(client, &[0f32; 8], &[3, 4], &[4, 1]);
    let integers = tensor(client, &[0i32; 12], &[3, 4], &[4, 1]);
    for (tensors, k) in [([&x, &short], 2), ([&x, &integers], 2), ([&x, &y], 2071)] {
        let list = || largest_of_list(k, tensors);
        let error = list().run_all(client).unwrap_err().to_string();
        assert_eq!(list().all().check(client).unwrap_err().to_string(), error);
        let each = list().run_each(client).map(drop).map_err(|error| error.to_string());
        let checked = list().each().check(client).map_err(|error| error.to_string());
        assert_eq!(checked, each);
    }
    let refused = pair().probabilities(Over::Slice).all().check(client).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Arguments);
    let mut other = device;
    other.elements.retain(|&element| element != ElementType::F32);
    let unsupported = pair().plan_for(&other).each().check(client).unwrap_err();
    assert!(unsupported.is_unsupported(), "{unsupported}");
}
