//! Batch-invariant results: the bits of an output do not depend on the number of outputs, nor on
//! which of them it is.
//!
//! Each test reduces the same slices in batches of several sizes, in other places of the batch and
//! beside others, and compares bits. Some slices hold NaN, infinities or huge numbers, which must
//! not change how their neighbours are rounded.

use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    Device, ElementType, ReduceError, Sum,
    cubecl::{prelude::*, std::tensor::TensorHandle},
    list::reduce_list,
    normalize::{AddRmsNorm, AppliedReduction, LayerNorm, NormalizeL2, RmsNorm, Softmax},
    operator::{Apply, Arity, One, Operator},
    operators::{LogSumExp, Mean, MeanVar, Var},
    pairs::{CosineSimilarity, reduce_pair},
    planner::{PlanError, choose, row_major_strides},
    plans::{Numerics, use_numerics},
    reduce,
};

use crate::{
    operators::{Checked, gives_bools},
    run::{capable_device, decode, encode, source, tensor_of},
};

/// Slices of one length, and where they lie in a tensor.
#[derive(Clone, Copy, Debug)]
enum Lying {
    /// `[batch, length]` over axis 1.
    Rows,
    /// `[length, batch]` over axis 0.
    Columns,
    /// `[2, length, batch]` over axis 1.
    Middle,
    /// `[2, batch, length / 2]` over axes 0 and 2.
    Apart,
}

impl Lying {
    const ALL: [Lying; 4] = [Lying::Rows, Lying::Columns, Lying::Middle, Lying::Apart];

    fn shape(self, batch: usize, len: usize) -> (Vec<usize>, Vec<usize>) {
        match self {
            Lying::Rows => (vec![batch, len], vec![1]),
            Lying::Columns => (vec![len, batch], vec![0]),
            Lying::Middle => (vec![2, len, batch / 2], vec![1]),
            Lying::Apart => (vec![2, batch, len / 2], vec![0, 2]),
        }
    }

    /// Where element `i` of slice `nth` lies.
    fn at(self, nth: usize, i: usize, batch: usize, len: usize) -> usize {
        match self {
            Lying::Rows => nth * len + i,
            Lying::Columns => i * batch + nth,
            Lying::Middle => {
                let half = batch / 2;
                (nth / half * len + i) * half + nth % half
            }
            Lying::Apart => {
                let half = len / 2;
                (i / half * batch + nth) * half + i % half
            }
        }
    }

    /// Batches that have such slices. A single column lies as a row does.
    fn batches(self) -> &'static [usize] {
        match self {
            Lying::Rows => &[1, 2, 3, 33, 260],
            Lying::Columns => &[2, 3, 33, 64, 260],
            Lying::Middle => &[4, 6, 66, 128, 520],
            Lying::Apart => &[2, 3, 33, 260],
        }
    }
}

/// The numbers of the slices of a batch, which begins at another place for each size.
fn members(batch: usize, count: usize) -> Vec<usize> {
    (0..batch).map(|nth| (nth * 7 + batch) % count).collect()
}

/// Slices whose sums round in every addition. A few hold what needs a slow path.
fn slices(element: ElementType, len: usize, count: usize, rng: &mut StdRng) -> Vec<Vec<f64>> {
    let slice = |nth: usize| {
        let scale = if nth.is_multiple_of(3) { 1.0 } else { 7.0 };
        let mut slice: Vec<f64> =
            (0..len).map(|_| rng.random_range(-1.0..1.0f64) * scale + 0.3).collect();
        let place = rng.random_range(0..len);
        match nth % 11 {
            3 if element.is_float() => slice[place] = f64::NAN,
            5 if element.is_float() => slice[place] = f64::INFINITY,
            7 if element == ElementType::F32 => slice[place] = 1e25,
            9 => slice.fill(0.0),
            _ => {}
        }
        if !element.is_float() {
            slice.iter_mut().for_each(|value| *value = (*value * 5.0).abs().round());
        }
        slice
    };
    (0..count).map(slice).collect()
}

/// A tensor that holds some of the slices.
fn batch_of(
    client: &Client,
    element: ElementType,
    slices: &[Vec<f64>],
    members: &[usize],
    lying: Lying,
) -> (TensorHandle, Vec<usize>) {
    let (batch, len) = (members.len(), slices[0].len());
    let mut data = vec![0.0; batch * len];
    for (nth, &member) in members.iter().enumerate() {
        for (i, &value) in slices[member].iter().enumerate() {
            data[lying.at(nth, i, batch, len)] = value;
        }
    }
    let (shape, axes) = lying.shape(batch, len);
    let bytes = encode(element, &data);
    (tensor_of(client, element, &bytes, &shape, &row_major_strides(&shape)), axes)
}

/// The bits that each slice was given so far.
struct Bits(Vec<Option<Vec<u8>>>);

impl Bits {
    fn of(slices: usize) -> Self {
        Self(vec![None; slices])
    }

    /// Compares the bits of a slice with those that it had.
    fn take(&mut self, slice: usize, found: Vec<u8>, what: &dyn Fn() -> String) {
        let known = self.0[slice].get_or_insert_with(|| found.clone());
        assert_eq!(*known, found, "slice {slice}: {}", what());
    }
}

/// The bytes of element `nth` of each tensor.
fn bytes_of(tensors: &[(Vec<u8>, usize)], nth: usize) -> Vec<u8> {
    tensors.iter().flat_map(|(bytes, size)| bytes[nth * size..(nth + 1) * size].to_vec()).collect()
}

/// The bytes of a tensor. One NaN is like another: its sign and payload are the device's affair.
fn read(client: &Client, tensor: &TensorHandle, element: ElementType) -> Vec<u8> {
    let mut bytes = client.read_one(tensor.handle.clone()).expect("the device answers").to_vec();
    let nan = encode(element, &[f64::NAN]);
    let values = decode(element, &bytes);
    for (held, _) in bytes.chunks_mut(nan.len()).zip(values).filter(|(_, value)| value.is_nan()) {
        held.copy_from_slice(&nan);
    }
    bytes
}

/// Reduces slices of one length in all batches, and compares the bits of each.
fn same_in_batches<O: Checked>(
    client: &Client,
    element: ElementType,
    lying: Lying,
    len: usize,
    device: &Device,
) {
    let len = if matches!(lying, Lying::Apart) { len / 2 * 2 } else { len };
    let mut rng = StdRng::seed_from_u64(len as u64 + 31 * lying as u64);
    let count = 96;
    let slices = slices(element, len, count, &mut rng);
    let mut bits = Bits::of(count);
    for &batch in lying.batches() {
        let members = members(batch, count);
        let (x, axes) = batch_of(client, element, &slices, &members, lying);
        let reduction =
            reduce(O::operator(), &x).over(axes.clone()).numerics(Numerics::BatchInvariant);
        let reduction = reduction.plan_for(device);
        let outputs = match reduction.clone().run(client) {
            Ok(outputs) => O::Results::into_list(outputs),
            Err(error) if is_unsupported(&error) => return,
            Err(error) => panic!("{} of {element}: {error}", O::NAME),
        };
        let plan = reduction.plan(client).unwrap().plan;
        let types = O::Results::into_list(reduction.output_types().unwrap());
        let held: Vec<(Vec<u8>, usize)> = outputs
            .iter()
            .zip(&types)
            .map(|(output, &of)| (read(client, output, of), of.bytes()))
            .collect();
        for (nth, &slice) in members.iter().enumerate() {
            bits.take(slice, bytes_of(&held, nth), &|| {
                format!("{} of {element} {lying:?} {batch} times {len}: {plan}", O::NAME)
            });
        }
    }
}

fn is_unsupported(error: &ReduceError) -> bool {
    source::<PlanError>(error).is_some_and(PlanError::is_unsupported_element)
}

/// Lengths that units, planes, cubes and several cubes share, and lengths that no vector divides.
const LENGTHS: [usize; 6] = [6, 250, 1001, 1024, 5000, 40_008];

/// Every operator: rows and columns of all lengths, and two other layouts.
pub(crate) fn every_batch<O: Checked>(client: &Client) {
    if gives_bools::<O>() && !device_has_bool(client) {
        return;
    }
    let device = capable_device(client);
    for (nth, len) in LENGTHS.into_iter().enumerate() {
        // Lengths take turns, so that each layout has some of them.
        let lying = Lying::ALL[(nth + crate::operators::place::<O>()) % Lying::ALL.len()];
        same_in_batches::<O>(client, ElementType::F32, lying, len, &device);
    }
}

fn device_has_bool(client: &Client) -> bool {
    reduce_kernels::device_of(client).has(ElementType::Bool)
}

/// Operators of each family in all layouts, of types of other widths.
pub(crate) fn every_layout(client: &Client) {
    let device = capable_device(client);
    for lying in Lying::ALL {
        for (nth, len) in [7, 1000, 1001, 9004].into_iter().enumerate() {
            let len = if matches!(lying, Lying::Apart) { len / 2 * 2 } else { len };
            let element =
                [ElementType::F32, ElementType::F16, ElementType::BF16, ElementType::F64][nth % 4];
            same_in_batches::<Sum>(client, element, lying, len, &device);
            same_in_batches::<Var>(client, element, lying, len, &device);
            same_in_batches::<LogSumExp>(client, element, lying, len, &device);
            same_in_batches::<Mean>(client, ElementType::F16, lying, len, &device);
            same_in_batches::<MeanVar>(client, ElementType::F32, lying, len, &device);
        }
    }
    same_in_batches::<Sum>(client, ElementType::I32, Lying::Rows, 1000, &device);
}

/// One cube, several cubes in one launch, and several in two give the bits that the plan promises,
/// on devices that merge in another way.
pub(crate) fn every_merge(client: &Client) {
    let mut device = capable_device(client);
    for wide_atomics in [device.wide_atomics, false] {
        device.wide_atomics = wide_atomics;
        for lying in [Lying::Rows, Lying::Columns] {
            same_in_batches::<Sum>(client, ElementType::F32, lying, 70_000, &device);
            same_in_batches::<Var>(client, ElementType::F32, lying, 70_000, &device);
        }
    }
}

/// Applies results to the rows of batches, and compares the bits of each row.
fn same_applied<O: Operator, F: Apply<Results = O::Results, Outputs = One>>(
    client: &Client,
    element: ElementType,
    lying: Lying,
    len: usize,
    device: &Device,
    apply: impl for<'a> Fn(&'a TensorHandle, Vec<usize>) -> AppliedReduction<'a, O, F, TensorHandle>,
) {
    let mut rng = StdRng::seed_from_u64(len as u64);
    let count = 48;
    let slices = slices(element, len, count, &mut rng);
    let mut bits = Bits::of(count);
    for &batch in &lying.batches()[..4] {
        let members = members(batch, count);
        let (x, axes) = batch_of(client, element, &slices, &members, lying);
        let applied = apply(&x, axes.clone()).numerics(Numerics::BatchInvariant).plan_for(device);
        let plan = applied.plan(client).unwrap().plan;
        assert_eq!(plan.numerics(), Numerics::BatchInvariant);
        let output = applied.run(client).unwrap();
        let held = read(client, &output, element);
        let size = element.bytes();
        for (nth, &slice) in members.iter().enumerate() {
            let places = (0..len).map(|i| lying.at(nth, i, batch, len));
            let found = places.flat_map(|at| held[at * size..(at + 1) * size].to_vec()).collect();
            bits.take(slice, found, &|| {
                format!("{} {element} {lying:?} {batch} times {len}: {plan}", F::NAME)
            });
        }
    }
}

/// Results that are applied to their elements: a row has the bits that it has alone.
pub(crate) fn applied(client: &Client) {
    let device = capable_device(client);
    for lying in [Lying::Rows, Lying::Columns, Lying::Apart] {
        for len in [60, 1000, 1002, 9004, 9021] {
            // Rows of two halves have none of odd length. One of 501 is realigned.
            if matches!(lying, Lying::Apart) && len % 2 > 0 {
                continue;
            }
            let element = if len == 1000 { ElementType::F16 } else { ElementType::F32 };
            same_applied(client, element, lying, len, &device, |x, axes| Softmax.of(x, axes));
            same_applied(client, element, lying, len, &device, |x, axes| {
                LayerNorm { eps: 1e-5 }.of(x, axes)
            });
            same_applied(client, element, lying, len, &device, |x, axes| {
                RmsNorm { eps: 1e-5 }.of(x, axes)
            });
            same_applied(client, element, lying, len, &device, |x, axes| {
                NormalizeL2 { eps: 1e-12 }.of(x, axes)
            });
        }
    }
}

/// Two inputs, of which the second is repeated or is not.
pub(crate) fn pairs(client: &Client) {
    let device = capable_device(client);
    for (lying, len) in [(Lying::Rows, 1001), (Lying::Rows, 40_000), (Lying::Columns, 1000)] {
        let mut rng = StdRng::seed_from_u64(len as u64);
        let count = 48;
        let slices = slices(ElementType::F32, len, count, &mut rng);
        let (mut bits, mut of_norms) = (Bits::of(count), Bits::of(count));
        for &batch in lying.batches() {
            let members = members(batch, count);
            let (x, axes) = batch_of(client, ElementType::F32, &slices, &members, lying);
            // The slice after each goes with it.
            let next: Vec<usize> = members.iter().map(|member| (member + 1) % count).collect();
            let (y, _) = batch_of(client, ElementType::F32, &slices, &next, lying);
            let cosine = reduce_pair(CosineSimilarity { eps: 1e-8 }, &x, &y)
                .over(axes)
                .numerics(Numerics::BatchInvariant)
                .plan_for(&device);
            let held = [(read(client, &cosine.run(client).unwrap(), ElementType::F32), 4)];
            let told = || format!("{lying:?} {batch} {len}");
            for (nth, &slice) in members.iter().enumerate() {
                bits.take(slice, bytes_of(&held, nth), &told);
            }
            if !matches!(lying, Lying::Rows) {
                continue;
            }
            // One row cannot tell whether rows share the second input.
            let norm = AddRmsNorm { eps: 1e-5 }.of(&x, &y, 1).numerics(Numerics::BatchInvariant);
            let (_, normalized) = norm.plan_for(&device).run(client).unwrap();
            let held = [(read(client, &normalized, ElementType::F32), 4 * len)];
            for (nth, &slice) in members.iter().enumerate() {
                of_norms.take(slice, bytes_of(&held, nth), &told);
            }
        }
    }
}

/// A tensor of a list has the bits that it has alone, whatever else the list holds.
pub(crate) fn lists(client: &Client) {
    let device = capable_device(client);
    let mut rng = StdRng::seed_from_u64(5);
    let lengths = [3usize, 1000, 70_001, 257, 140_000, 4096];
    let tensors: Vec<TensorHandle> = lengths
        .iter()
        .map(|&len| {
            let data: Vec<f64> = (0..len).map(|_| rng.random_range(-1.0..1.0)).collect();
            tensor_of(client, ElementType::F32, &encode(ElementType::F32, &data), &[len], &[1])
        })
        .collect();
    let mut bits = Bits::of(lengths.len());
    let lists: [&[usize]; 5] = [&[0, 1, 2, 3, 4, 5], &[2], &[5, 4, 3], &[1, 1, 2, 0], &[4, 2]];
    for list in lists {
        let parts: Vec<&TensorHandle> = list.iter().map(|&nth| &tensors[nth]).collect();
        let sums = reduce_list(Var { correction: 1.0 }, parts)
            .numerics(Numerics::BatchInvariant)
            .plan_for(&device)
            .run(client)
            .unwrap();
        let held = [(read(client, &sums.each, ElementType::F32), 4)];
        for (place, &nth) in list.iter().enumerate() {
            bits.take(nth, bytes_of(&held, place), &|| format!("in the list {list:?}"));
        }
    }
}

/// The process promises what calls do not say, in every thread; a call's own numerics come first.
pub(crate) fn of_the_process(client: &Client) {
    let data = vec![0.5f32; 3 * 1000];
    let bytes: &[u8] = bytemuck::cast_slice(&data);
    let x = tensor_of(client, ElementType::F32, bytes, &[3, 1000], &[1000, 1]);
    let promised = || reduce(Sum, &x).over(1).plan(client).unwrap().plan.numerics;
    let _alone = crate::plans::alone();
    assert_eq!(promised(), Numerics::Deterministic);
    use_numerics(Numerics::BatchInvariant);
    let in_thread = std::thread::scope(|scope| scope.spawn(promised).join().unwrap());
    let own = reduce(Sum, &x).over(1).numerics(Numerics::Deterministic);
    let own = own.plan(client).unwrap().plan.numerics;
    let applied = Softmax.of(&x, 1).plan(client).unwrap().plan.numerics();
    use_numerics(Numerics::Deterministic);
    assert_eq!(in_thread, Numerics::BatchInvariant);
    assert_eq!(applied, Numerics::BatchInvariant);
    assert_eq!(own, Numerics::Deterministic);
    assert_eq!(promised(), Numerics::Deterministic);
}

/// A plan that combines elements in another order is refused before it runs.
pub(crate) fn other_plans_refused(client: &Client) {
    let data = vec![0.5f32; 64 * 1000];
    let bytes: &[u8] = bytemuck::cast_slice(&data);
    let x = tensor_of(client, ElementType::F32, bytes, &[64, 1000], &[1000, 1]);
    let invariant = || reduce(Sum, &x).over(1).numerics(Numerics::BatchInvariant);
    let device = capable_device(client);
    let problem = reduce(Sum, &x).over(1).problem().unwrap();
    let free = choose(&problem, &device).unwrap().plan;
    let refused = |plan| {
        let reduction = invariant().with_plan(plan).plan_for(&device);
        reduction.run(client).unwrap_err().to_string()
    };
    assert!(refused(free).contains("its results are deterministic"), "{}", refused(free));
    let chosen = choose(&problem.with_numerics(Numerics::BatchInvariant), &device).unwrap().plan;
    invariant().with_plan(chosen).plan_for(&device).run(client).unwrap();
    let mut other = chosen;
    other.access.vector = if chosen.access.vector == 1 { 4 } else { 1 };
    assert!(refused(other).contains("another order"), "{}", refused(other));
}
