//! Partial results: merged in the order of their shards, they are what the whole gives.

use cubecl::{prelude::*, std::tensor::TensorHandle};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    ArgMax, ElementType, Map, Max, Mean, MeanVar, Operator, ReduceError, Sum, TensorDescription,
    Var, cubecl,
    operator::{Arity, One, Parameters},
    operators::CountNonzero,
    pairs::ElementwiseProduct,
    partials::{Partials, PartialsError, ShardSpec, merge_partials},
    planner::{Access, Direction, Plan, ProblemError, Schedule, row_major_strides},
    reduce, storage_type,
    testing::widest_plans,
};

use crate::{
    case::Case,
    operators::{Checked, for_each_operator, gives_bools},
    oracle::reduce_naively,
    run::{Asked, capable_device, decode, encode, sample, source, tensor, tensor_of, tolerance},
};

/// The first indices of `pieces` shards of `extent` indices and the end of the last. Shards are
/// uneven, and some are empty if there are few indices.
fn cut(extent: usize, pieces: usize, rng: &mut StdRng) -> Vec<usize> {
    let mut ends: Vec<usize> = (1..pieces).map(|_| rng.random_range(0..=extent)).collect();
    ends.extend([0, extent]);
    ends.sort_unstable();
    ends
}

/// The elements of indices `from..until` along an axis of a row-major tensor.
fn shard_of<T: Copy>(
    data: &[T],
    shape: &[usize],
    axis: usize,
    from: usize,
    until: usize,
) -> Vec<T> {
    let inner: usize = shape[axis + 1..].iter().product();
    let row = shape[axis] * inner;
    let rows = data.chunks(row.max(1));
    rows.flat_map(|row| row[from * inner..until * inner].iter().copied()).collect()
}

/// A row-major case cut along one of its reduced axes.
struct Cut<'a> {
    case: &'a Case,
    element: ElementType,
    data: &'a [f64],
    axis: usize,
    ends: Vec<usize>,
    plan: Option<Plan>,
    /// Whether rows of every second shard are padded.
    padded: bool,
}

impl Cut<'_> {
    /// The layout of shard number `nth`.
    fn shard(&self, nth: usize) -> Case {
        let mut shape = self.case.shape.clone();
        shape[self.axis] = self.ends[nth + 1] - self.ends[nth];
        match self.padded && nth % 2 == 1 {
            false => Case::contiguous(&shape, &self.case.axes),
            true => Case::pitched(&shape, shape[shape.len() - 1] + 1, &self.case.axes),
        }
    }

    /// The partial results of all shards.
    fn partials<O: Checked>(&self, client: &Client) -> Vec<Partials<O>> {
        let Self { case, element, data, axis, ref ends, plan, .. } = *self;
        let device = capable_device(client);
        let shards = ends.windows(2).enumerate().map(|(nth, window)| {
            let elements = shard_of(data, &case.shape, axis, window[0], window[1]);
            let strided = self.shard(nth);
            let shape = strided.shape.clone();
            let mut held = vec![f64::from(u8::MAX) / 4.0; strided.span()];
            let offsets = reduce_naively(
                &(0..strided.span()).collect::<Vec<usize>>(),
                &shape,
                &strided.strides,
                &[],
                |offset| offset[0],
            );
            offsets.into_iter().zip(elements).for_each(|(offset, value)| held[offset] = value);
            let input =
                tensor_of(client, element, &encode(element, &held), &shape, &strided.strides);
            let mut reduction = reduce(O::operator(), &input).over(case.axes.as_slice());
            if gives_bools::<O>() {
                // WGSL has no bools in memory.
                reduction = reduction.output_type(ElementType::U32);
            }
            if let Some(plan) = plan {
                reduction = reduction.with_plan(plan).plan_for(&device);
            }
            let shard = ShardSpec { axis, start: window[0], of: case.shape[axis] };
            reduction.partials_of_shard(client, shard).unwrap()
        });
        shards.collect()
    }

    /// Merges all shards and compares the results with the oracle. Gives the bytes of the results.
    fn check<O: Checked>(&self, client: &Client) -> Vec<Vec<u8>> {
        let Self { case, element, data, axis, ref ends, plan, .. } = *self;
        let partials = self.partials::<O>(client);
        let outputs = merge_partials(&partials).run(client).unwrap();
        let expected = reduce_naively(data, &case.shape, &case.strides, &case.axes, |values| {
            (O::naive(values), O::scale(values))
        });
        let mut found = Vec::new();
        for (nth, output) in O::Results::into_list(outputs).into_iter().enumerate() {
            let of = reduce_kernels::element_type(output.dtype).unwrap();
            let bytes = client.read_one(output.handle).expect("the device answers");
            let bytes = bytes[..expected.len() * of.bytes()].to_vec();
            for (i, result) in decode(of, &bytes).into_iter().enumerate() {
                let (ref results, scale) = expected[i];
                let expected = results[nth];
                let len = case.reduction_len();
                let bound = tolerance(element, of, Asked::default(), len, scale, expected);
                let same = result == expected || (result.is_nan() && expected.is_nan());
                assert!(
                    same || (result - expected).abs() <= bound,
                    "{} of {element}: result {i} ({nth}) is {result}, expected {expected} within \
                     {bound}\n{case:?} cut along {axis} at {ends:?}\n{plan:?}",
                    O::NAME,
                );
            }
            found.push(bytes);
        }
        found
    }
}

/// A plan for any row-major tensor whose last axis is reduced: one kernel does for all shards.
fn one_by_one() -> Plan {
    let access = Access::new(Direction::Along);
    Plan::new(access, Schedule::Unit { units_per_cube: 64 })
}

/// An operator over a tensor that is cut along every reduced axis into 1 to 7 shards, twice.
pub(crate) fn every_cut<O: Checked>(client: &Client) {
    let mut rng = StdRng::seed_from_u64(18);
    for case in [Case::contiguous(&[4, 9, 3, 5], &[0, 1, 3]), Case::contiguous(&[11, 13], &[0, 1])]
    {
        let element = ElementType::F32;
        let data = sample::<O>(&case, element, 18);
        for &axis in &case.axes {
            for pieces in 1..=7 {
                let ends = cut(case.shape[axis], pieces, &mut rng);
                let plan = Some(one_by_one());
                let cut = Cut { case: &case, element, data: &data, axis, ends, plan, padded: true };
                let (first, again) = (cut.check::<O>(client), cut.check::<O>(client));
                assert_eq!(first, again, "{}: other bits in the second run", O::NAME);
            }
        }
    }
}

/// Shards through every schedule, along and across, whole and peeled.
pub(crate) fn every_schedule(client: &Client) {
    every_schedule_of::<Sum>(client);
    every_schedule_of::<ArgMax>(client);
    every_schedule_of::<MeanVar>(client);
}

fn every_schedule_of<O: Checked>(client: &Client) {
    let mut rng = StdRng::seed_from_u64(19);
    let device = capable_device(client);
    let element = ElementType::F32;
    for case in [
        Case::contiguous(&[3, 6, 1031], &[1, 2]),
        Case::contiguous(&[2, 4104], &[1]),
        Case::contiguous(&[702, 20], &[0]),
        Case::contiguous(&[6, 30, 21], &[0, 1]),
    ] {
        let data = sample::<O>(&case, element, 19);
        let axis = case.axes[0];
        // Shards of one length, which have the same plans.
        let extent = case.shape[axis] / 3;
        let ends: Vec<usize> = (0..=3).map(|nth| nth * extent).collect();
        let mut shape = case.shape.clone();
        shape[axis] = extent;
        let one = TensorDescription::row_major(element, shape);
        let problem = reduce(O::operator(), &one).over(case.axes.as_slice()).problem().unwrap();
        // Two passes leave no accumulator.
        let mut plans = widest_plans(&problem, &device);
        plans.retain(|plan| !plan.access.in_passes);
        assert!(plans.len() > 1, "{}: {} plans fit {case:?}", O::NAME, plans.len());
        for plan in plans {
            let (ends, plan) = (ends.clone(), Some(plan));
            let cut = Cut { case: &case, element, data: &data, axis, ends, plan, padded: false };
            cut.check::<O>(client);
        }
        let ends = cut(case.shape[axis], 4, &mut rng);
        let plan = None;
        let cut = Cut { case: &case, element, data: &data, axis, ends, plan, padded: true };
        cut.check::<O>(client);
    }
}

/// Accumulators of every width: halves, bytes, 64 bits.
pub(crate) fn every_type(client: &Client) {
    let device = capable_device(client);
    let case = Case::contiguous(&[7, 12], &[0, 1]);
    let mut passed = 0;
    for element in ElementType::ALL.into_iter().filter(|&element| device.has(element)) {
        fn check<O: Checked>(client: &Client, case: &Case, element: ElementType) {
            let data = sample::<O>(case, element, 20);
            let (ends, plan) = (vec![0, 2, 2, 7], Some(one_by_one()));
            let cut = Cut { case, element, data: &data, axis: 0, ends, plan, padded: true };
            cut.check::<O>(client);
        }
        check::<Max>(client, &case, element);
        check::<ArgMax>(client, &case, element);
        check::<Sum>(client, &case, element);
        passed += 1;
    }
    assert!(passed >= 3, "{passed} types");
}

fn f32s(client: &Client, shape: &[usize]) -> TensorHandle {
    let data: Vec<f32> = (0..shape.iter().product()).map(|i| (i * 7 % 31) as f32 - 9.5).collect();
    tensor(client, &data, shape, &row_major_strides(shape))
}

fn read(client: &Client, output: TensorHandle, len: usize) -> Vec<f32> {
    let bytes = client.read_one(output.handle).expect("the device answers");
    f32::from_bytes(&bytes)[..len].to_vec()
}

/// The square of the difference to 2.
#[derive(Clone, Copy, Debug)]
struct FromTwo;

#[cube]
impl Map for FromTwo {
    type Inputs = One;

    const NAME: &'static str = "from two, squared";
    const TYPES: fn(ElementType) -> Option<ElementType> = Some;

    fn map<E: Float, N: Size>(value: Vector<E, N>, _parameters: &Parameters) -> Vector<E, N> {
        let away = value - Vector::new(E::new(2.0));
        away * away
    }
}

/// Merging a few first, merging in a list longer than a launch binds, words that went through
/// memory of the host, outputs of the caller, two inputs, maps, and tensors that are no shards.
pub(crate) fn merges(client: &Client) {
    let x = f32s(client, &[12, 10]);
    let rows = |from: usize, until: usize| {
        let data: Vec<f32> = (from * 10..until * 10).map(|i| (i * 7 % 31) as f32 - 9.5).collect();
        tensor(client, &data, &[until - from, 10], &[10, 1])
    };
    let partial = |from: usize, until: usize| {
        let spec = ShardSpec { axis: 0, start: from, of: 12 };
        let rows = rows(from, until);
        reduce(Var { correction: 1.0 }, &rows).over(0).partials_of_shard(client, spec).unwrap()
    };
    let whole = reduce(Var { correction: 1.0 }, &x).over(0).run(client).unwrap();
    let whole = read(client, whole, 10);
    let close = |found: Vec<f32>| {
        let fits = |(found, expected): (&f32, &f32)| (found - expected).abs() < 1e-4 * expected;
        assert!(found.iter().zip(&whole).all(fits), "{found:?}\n{whole:?}");
    };

    // A tree: two and two, then both.
    let [a, b, c, d] = [partial(0, 2), partial(2, 3), partial(3, 11), partial(11, 12)];
    let left = merge_partials(&[a.clone(), b.clone()]).partials(client).unwrap();
    let right = merge_partials(&[c.clone(), d.clone()]).partials(client).unwrap();
    let range = left.description().range.unwrap();
    assert_eq!((range.start, range.end, range.of, left.description().count), (0, 3, 12, 3));
    close(read(client, merge_partials(&[left, right]).run(client).unwrap(), 10));

    // Twelve shards take several launches. The bits are those of one launch over gathered words.
    let each: Vec<_> = (0..12).map(|row| partial(row, row + 1)).collect();
    let merged = read(client, merge_partials(&each).run(client).unwrap(), 10);
    let bytes: Vec<u8> = each
        .iter()
        .flat_map(|partial| {
            let len: usize = partial.words().shape().iter().product();
            let bytes =
                client.read_one(partial.words().handle.clone()).expect("the device answers");
            bytes[..4 * len].to_vec()
        })
        .collect();
    let mut description = each[0].description().clone();
    (description.slots, description.count) = (12, 12);
    description.range.as_mut().unwrap().end = 12;
    // As it travels.
    let line = serde_json::to_string(&description).unwrap();
    let description = serde_json::from_str(&line).unwrap();
    let words = each[0].words().shape()[1];
    let gathered = TensorHandle::new_contiguous(
        [12, words, 10],
        client.create_from_slice(&bytes),
        storage_type(ElementType::U32),
    );
    let gathered = Partials::from_words(Var { correction: 1.0 }, description, gathered).unwrap();
    let finished = read(client, merge_partials(&[gathered]).run(client).unwrap(), 10);
    assert_eq!(
        merged.iter().map(|value| value.to_bits()).collect::<Vec<_>>(),
        finished.iter().map(|value| value.to_bits()).collect::<Vec<_>>()
    );
    close(merged);

    // Into an output with gaps.
    let poisoned = tensor(client, &[7.5f32; 20], &[1, 10], &[20, 2]);
    merge_partials(&each).run_into(client, poisoned.clone().binding()).unwrap();
    let found = read(client, poisoned, 20);
    close(found.iter().copied().step_by(2).collect());
    assert!(found[1..].iter().step_by(2).all(|&gap| gap == 7.5), "{found:?}");

    // Two inputs, a map, and batches of different length that are no shards of anything.
    let sums = |from: usize, until: usize| {
        let (x, y) = (rows(from, until), rows(from, until));
        reduce(Sum, &x).paired(&y, ElementwiseProduct).partials(client).unwrap()
    };
    let dot = merge_partials(&[sums(5, 12), sums(0, 5)]).run(client).unwrap();
    let squares: f32 = (0..120).map(|i| ((i * 7 % 31) as f32 - 9.5).powi(2)).sum();
    assert!((read(client, dot, 1)[0] - squares).abs() < 1e-4 * squares);
    let away = |from: usize, until: usize| {
        reduce(Mean, &rows(from, until)).mapped(FromTwo).partials(client).unwrap()
    };
    let mean = merge_partials(&[away(0, 1), away(1, 12)]).run(client).unwrap();
    let expected: f32 = (0..120).map(|i| ((i * 7 % 31) as f32 - 11.5).powi(2)).sum::<f32>() / 120.0;
    assert!((read(client, mean, 1)[0] - expected).abs() < 1e-4 * expected);

    // The sum of nothing but -0 stays -0.
    let zeros = tensor(client, &[-0.0f32; 4], &[4], &[1]);
    let zeros = reduce(Sum, &zeros).partials(client).unwrap();
    let alone = read(
        client,
        reduce(Sum, &tensor(client, &[-0.0f32; 4], &[4], &[1])).run(client).unwrap(),
        1,
    );
    let merged = read(client, merge_partials(&[zeros]).run(client).unwrap(), 1);
    assert_eq!(merged[0].to_bits(), alone[0].to_bits());
}

/// Positions in a tensor of more than 2^32 elements, and of two axes of which the outer is whole.
pub(crate) fn positions(client: &Client) {
    let rows = tensor(client, &[1.0f32, 3.0, 2.0, 5.0], &[2, 2], &[2, 1]);
    let spec = ShardSpec { axis: 1, start: 3_000_000_000, of: 4_000_000_000 };
    let reduction = reduce(ArgMax, &rows).over([0, 1]);
    let device = reduce_kernels::device_of(client);
    if !device.wide_indices || !device.has(ElementType::U64) {
        assert!(reduction.partials_of_shard(client, spec).is_err());
        return;
    }
    let partials = reduction.partials_of_shard(client, spec).unwrap();
    let words = client.read_one(partials.words().handle.clone()).expect("the device answers");
    let words = u32::from_bytes(&words);
    let position = u64::from(words[1]) | u64::from(words[2]) << 32;
    assert_eq!((f32::from_bits(words[0]), position), (5.0, 4_000_000_000 + 3_000_000_001));
}

fn refusal<T>(result: Result<T, ReduceError>) -> PartialsError {
    match result {
        Err(error) => source::<PartialsError>(&error).unwrap_or_else(|| panic!("{error}")).clone(),
        Ok(_) => panic!("it was merged"),
    }
}

/// What cannot be merged is refused, and says why.
pub(crate) fn refusals(client: &Client) {
    let x = f32s(client, &[6, 4]);
    let of = |start: usize, of: usize| {
        reduce(ArgMax, &x).over(0).partials_of_shard(client, ShardSpec { axis: 0, start, of })
    };
    let (first, second) = (of(0, 12).unwrap(), of(6, 12).unwrap());
    let merge = |list: &[Partials<ArgMax>]| refusal(merge_partials(list).run(client));

    assert_eq!(merge(&[]), PartialsError::None);
    assert_eq!(
        merge(&[second.clone(), first.clone()]),
        PartialsError::Order { nth: 1, axis: 0, start: 0, expected: 12 }
    );
    assert_eq!(
        merge(std::slice::from_ref(&second)),
        PartialsError::Incomplete { axis: 0, start: 6, end: 12, of: 12 }
    );
    let whole = reduce(ArgMax, &x).over(0).partials(client).unwrap();
    let positional = merge(&[whole.clone(), whole.clone()]);
    assert_eq!(positional, PartialsError::Positional { operator: "argmax".into() });
    let differs = merge(&[first.clone(), whole]);
    assert!(matches!(differs, PartialsError::Differ { nth: 1, what: "shard", .. }), "{differs}");
    let narrow = f32s(client, &[6, 3]);
    let spec = ShardSpec { axis: 0, start: 6, of: 12 };
    let narrow = reduce(ArgMax, &narrow).over(0).partials_of_shard(client, spec).unwrap();
    let differs = merge(&[first.clone(), narrow]);
    assert!(matches!(differs, PartialsError::Differ { what: "shape", .. }), "{differs}");

    // No valid shard.
    for spec in [
        ShardSpec { axis: 1, start: 0, of: 8 },
        ShardSpec { axis: 0, start: 7, of: 12 },
        ShardSpec { axis: 0, start: usize::MAX, of: usize::MAX },
    ] {
        let error = reduce(ArgMax, &x).over(0).partials_of_shard(client, spec).unwrap_err();
        assert!(matches!(source(&error), Some(ProblemError::Shard { .. })), "{spec:?}: {error}");
    }
    let far = ShardSpec { axis: 2, start: 0, of: 8 };
    let error = reduce(ArgMax, &x).over(0).partials_of_shard(client, far).unwrap_err();
    assert!(matches!(source(&error), Some(ProblemError::AxisOutOfRange { .. })), "{error}");

    // Nothing but empty shards.
    let empty = f32s(client, &[0, 4]);
    let none = reduce(Max, &empty).over(0).partials(client).unwrap();
    let undefined = refusal(merge_partials(&[none.clone(), none]).run(client));
    assert_eq!(undefined, PartialsError::Empty { operator: "max".into() });
    let none = reduce(Sum, &empty).over(0).partials(client).unwrap();
    let sums = merge_partials(&[none.clone(), none]).run(client).unwrap();
    assert_eq!(read(client, sums, 4), [0.0; 4]);

    // Other parameters, other types.
    let var = |correction| reduce(Var { correction }, &x).over(0).partials(client).unwrap();
    let differs = refusal(merge_partials(&[var(0.0), var(1.0)]).run(client));
    assert!(matches!(differs, PartialsError::Differ { what: "parameters", .. }), "{differs}");
    let to = |element| reduce(Sum, &x).over(0).output_type(element).partials(client).unwrap();
    let ints = {
        let x = tensor(client, &[1i32, 2, 3, 4], &[1, 4], &[4, 1]);
        reduce(Sum, &x).over(0).output_type(ElementType::F32).partials(client).unwrap()
    };
    assert!(merge_partials(&[to(ElementType::F32), ints]).run(client).is_ok());
    let ints = {
        let x = tensor(client, &[1i32, 2, 3, 4], &[1, 4], &[4, 1]);
        reduce(Sum, &x).over(0).partials(client).unwrap()
    };
    let differs = refusal(merge_partials(&[to(ElementType::F32), ints]).run(client));
    assert!(matches!(differs, PartialsError::Differ { what: "types", .. }), "{differs}");

    // Descriptions and words from elsewhere.
    let described = first.description().clone();
    let words = first.words().clone();
    let joined = |change: &dyn Fn(&mut reduce_kernels::partials::PartialsDescription)| {
        let mut description = described.clone();
        change(&mut description);
        refusal(Partials::from_words(ArgMax, description, words.clone()))
    };
    let operator = refusal(Partials::<_>::from_words(Max, described.clone(), words.clone()));
    assert!(matches!(operator, PartialsError::Operator { .. }), "{operator}");
    for error in [
        joined(&|description| description.format = 2),
        joined(&|description| description.fields = vec![ElementType::F32; 2]),
        joined(&|description| description.parameters = vec![1]),
        joined(&|description| description.slots = 0),
        joined(&|description| description.count = 5),
        joined(&|description| description.range.as_mut().unwrap().end = 13),
        joined(&|description| description.range.as_mut().unwrap().start = 1),
        joined(&|description| description.shape = vec![usize::MAX, 2]),
    ] {
        assert!(matches!(error, PartialsError::Description { .. }), "{error}");
    }
    let gathered = joined(&|description| (description.slots, description.range) = (2, None));
    assert_eq!(gathered, PartialsError::Positional { operator: "argmax".into() });
    for error in [
        joined(&|description| description.slots = 2),
        joined(&|description| description.shape = vec![1, 5]),
    ] {
        assert!(matches!(error, PartialsError::Words { .. }), "{error}");
    }
    let with = |words: TensorHandle| {
        Partials::from_words(ArgMax, described.clone(), words).map(|_| ()).unwrap_err()
    };
    let [shape, strides] = [words.shape().to_vec(), words.strides().to_vec()];
    let floats = TensorHandle::new(
        words.handle.clone(),
        &shape[..],
        &strides[..],
        storage_type(ElementType::F32),
    );
    let swapped = TensorHandle::new(words.handle.clone(), &shape[..], [8, 1, 2], words.dtype);
    for error in [with(floats), with(swapped)] {
        assert!(matches!(source(&error), Some(PartialsError::Words { .. })), "{error}");
    }
    let few = tensor(client, &[0u32; 2], &shape, &strides);
    let few = with(few).to_string();
    assert!(few.starts_with("the words spans"), "{few}");
    // Strides along axes of one index mean nothing.
    let any = TensorHandle::new(words.handle.clone(), &shape[..], [77, 4, 1], words.dtype);
    Partials::from_words(ArgMax, described.clone(), any).unwrap();

    // Counts of each batch fit 32 bits, and those of both do not.
    let counted = reduce(CountNonzero, &x).partials(client).unwrap();
    let mut many = counted.description().clone();
    (many.count, many.types.reduction_len) = (1 << 31, 1 << 31);
    let many =
        || Partials::from_words(CountNonzero, many.clone(), counted.words().clone()).unwrap();
    let wrapped = refusal(merge_partials(&[many(), many()]).run(client));
    assert_eq!(wrapped, PartialsError::TooMany { count: 1 << 32 });
}

/// Every operator's description names it, so that the words of one are not merged as those of
/// another.
#[test]
fn operators_have_different_names() {
    let mut names = std::collections::HashSet::new();
    for_each_operator!(O => assert!(names.insert(O::NAME), "{}", O::NAME));
}
