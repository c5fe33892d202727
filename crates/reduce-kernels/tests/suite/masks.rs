//! Softmax of scores with a factor and an additive mask, and the masks themselves.

use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};
use reduce_kernels::{
    Device, ElementType, ErrorKind,
    cubecl::{prelude::*, std::tensor::TensorHandle},
    device_of,
    normalize::{MaskedLogSoftmax, MaskedSoftmax, causal_mask, length_mask},
    planner::{PlanError, row_major_strides, span},
};

use crate::{
    applied::has_no_plan,
    applied_outputs::Way,
    run::{capable_device, decode, encode, source, tensor, tensor_of},
};

/// The factor of scores.
const SCALE: f64 = 0.125;

/// Scores, and a mask that is repeated along the axes that it lacks or has with size 1.
struct Masked {
    shape: Vec<usize>,
    scores: Vec<f64>,
    mask_shape: Vec<usize>,
    mask: Vec<f64>,
    axis: usize,
    element: ElementType,
}

impl Masked {
    /// Random scores, as their elements hold them.
    fn draw(
        rng: &mut StdRng,
        (shape, axis): (&[usize], usize),
        (mask_shape, mask): (&[usize], Vec<f64>),
        element: ElementType,
    ) -> Self {
        let count = shape.iter().product();
        let scores: Vec<f64> = (0..count).map(|_| rng.random_range(-30.0..30.0)).collect();
        let scores = decode(element, &encode(element, &scores));
        let (shape, mask_shape) = (shape.to_vec(), mask_shape.to_vec());
        Self { shape, scores, mask_shape, mask, axis, element }
    }

    /// The logarithms of the softmax.
    fn logarithms(&self) -> Vec<f64> {
        let Self { shape, scores, mask_shape, mask, axis, .. } = self;
        let (strides, of_mask) = (row_major_strides(shape), row_major_strides(mask_shape));
        let before = shape.len() - mask_shape.len();
        let sum = |at: usize| {
            let place: usize = (0..mask_shape.len())
                .map(|nth| {
                    let index = at / strides[before + nth] % shape[before + nth];
                    if mask_shape[nth] == 1 { 0 } else { index * of_mask[nth] }
                })
                .sum();
            scores[at] * SCALE + mask[place]
        };
        let (extent, stride) = (shape[*axis], strides[*axis]);
        let mut logarithms = vec![0f64; scores.len()];
        let first_of = |at: usize| at - at / stride % extent * stride;
        for first in (0..scores.len()).filter(|&at| first_of(at) == at) {
            let slice: Vec<usize> = (0..extent).map(|nth| first + nth * stride).collect();
            let most = slice.iter().map(|&at| sum(at)).fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = slice.iter().map(|&at| (sum(at) - most).exp()).sum();
            slice.iter().for_each(|&at| logarithms[at] = (sum(at) - most) - total.ln());
        }
        logarithms
    }

    /// Compares the softmax and its logarithm by every plan. Gives the number of plans that ran.
    fn check(&self, client: &Client, device: &Device, mask: &TensorHandle) -> usize {
        let Self { shape, scores, mask_shape, axis, element, .. } = self;
        let bytes = encode(*element, scores);
        let x = tensor_of(client, *element, &bytes, shape, &row_major_strides(shape));
        let expected = self.logarithms();
        let tolerance = match element {
            ElementType::F16 => 1e-3,
            ElementType::BF16 => 8e-3,
            ElementType::F32 => 1e-5,
            _ => 1e-13,
        };
        let mut runs = 0;
        for way in Way::all() {
            let what = format!("{element} {shape:?} with {mask_shape:?} over {axis} by {way:?}");
            let shares = MaskedSoftmax { scale: SCALE }.of(&x, mask, *axis);
            let logarithms = MaskedLogSoftmax { scale: SCALE }.of(&x, mask, *axis);
            let run = || {
                let shares = way.of(device, shares)?.run(client)?;
                Ok((shares, way.of(device, logarithms)?.run(client)?))
            };
            let (shares, logarithms) = match run() {
                Ok(found) => found,
                Err(error) if has_no_plan(&error) => continue,
                Err(other) => panic!("{what}: {other}"),
            };
            runs += 1;
            let shares = elements(client, &shares, *element, expected.len());
            let logarithms = elements(client, &logarithms, *element, expected.len());
            for (at, &expected) in expected.iter().enumerate() {
                let (share, logarithm) = (shares[at], logarithms[at]);
                if expected.is_nan() {
                    assert!(share.is_nan() && logarithm.is_nan(), "{what}: {share} at {at}");
                    continue;
                }
                let bound = tolerance * (1.0 + expected.abs());
                assert!((share - expected.exp()).abs() <= bound, "{what}: {share} at {at}");
                let near = logarithm == expected || (logarithm - expected).abs() <= bound;
                assert!(near, "{what}: {logarithm} and not {expected} at {at}");
            }
        }
        runs
    }
}

/// The elements of a row-major tensor.
fn elements(
    client: &Client,
    tensor: &TensorHandle,
    element: ElementType,
    count: usize,
) -> Vec<f64> {
    let bytes = client.read_one(tensor.handle.clone()).expect("the device answers");
    decode(element, &bytes[..count * element.bytes()])
}

/// Scores of `[batch, heads, queries, keys]` over keys, with masks that are repeated along some
/// axes, and over queries; `-inf` gives 0, and NaN where all of a slice is masked. By every plan.
pub(crate) fn softmax(client: &Client) {
    let device = capable_device(client);
    let mut runs = 0;
    let cases: [(&[usize], &[usize], usize); 5] = [
        // All slices share the mask.
        (&[5, 1001], &[1001], 1),
        (&[2, 3, 7, 65], &[7, 65], 3),
        (&[2, 3, 7, 65], &[2, 1, 1, 65], 3),
        (&[5, 1001], &[5, 1001], 1),
        (&[3, 40, 12], &[40, 12], 1),
    ];
    for (turn, (shape, mask_shape, axis)) in cases.into_iter().enumerate() {
        let mut rng = StdRng::seed_from_u64(turn as u64);
        let mask: Vec<f32> = (0..mask_shape.iter().product())
            .map(|at: usize| match at % 3 {
                0 => f32::NEG_INFINITY,
                _ => rng.random_range(-2.0f32..2.0),
            })
            .collect();
        let on_device = tensor(client, &mask, mask_shape, &row_major_strides(mask_shape));
        let mask = mask.into_iter().map(f64::from).collect();
        let element = ElementType::F32;
        let masked = Masked::draw(&mut rng, (shape, axis), (mask_shape, mask), element);
        runs += masked.check(client, &device, &on_device);
    }
    assert!(runs >= 12, "{runs} runs");
}

/// Scores of `[batch, heads, queries, keys]` with the masks that this crate writes.
pub(crate) fn softmax_with_own_masks(client: &Client) {
    let device = capable_device(client);
    let mut rng = StdRng::seed_from_u64(7);
    // The second has queries that see nothing.
    for shape in [[2, 3, 7, 65], [2, 2, 9, 4], [3, 1, 1, 130]] {
        let [batch, _, queries, keys] = shape;
        for element in floats(&device) {
            // Exponentials of f64 are computed with integers of 64 bits.
            if element == ElementType::F64 && !device.has(ElementType::U64) {
                continue;
            }
            let mask = causal_mask(client, queries, keys, element).unwrap();
            let expected = later_keys(queries, keys);
            let mask_shape = [queries, keys];
            let masked = Masked::draw(&mut rng, (&shape, 3), (&mask_shape, expected), element);
            assert!(masked.check(client, &device, &mask) > 0);

            let lengths: Vec<i32> = (0..batch).map(|nth| [2, -1, i32::MAX][nth]).collect();
            let of_lengths = tensor(client, &lengths, &[batch, 1, 1], &[1, 1, 1]);
            let mask = length_mask(client, &of_lengths, keys, element).unwrap();
            let expected = lengths.iter().flat_map(|&length| row(f64::from(length), keys));
            let mask_shape = [batch, 1, 1, keys];
            let with = (&mask_shape[..], expected.collect());
            let masked = Masked::draw(&mut rng, (&shape, 3), with, element);
            assert!(masked.check(client, &device, &mask) > 0);
        }
    }
}

/// The floats with infinities that the device has.
fn floats(device: &Device) -> Vec<ElementType> {
    let of_device =
        |element: &ElementType| element.is_float() && !element.is_f8() && device.has(*element);
    ElementType::ALL.into_iter().filter(of_device).collect()
}

/// The causal mask, of whole numbers that may be negative.
fn later_keys(queries: usize, keys: usize) -> Vec<f64> {
    let last = |query: usize| query as i64 + keys as i64 - queries as i64;
    (0..queries).flat_map(|query| row((last(query) + 1) as f64, keys)).collect()
}

/// The mask of a row of this length.
fn row(length: f64, keys: usize) -> impl Iterator<Item = f64> {
    (0..keys).map(move |key| if (key as f64) < length { 0.0 } else { f64::NEG_INFINITY })
}

/// Causal masks of every type, with more and with fewer queries than keys, and without elements.
pub(crate) fn causal(client: &Client) {
    let device = device_of(client);
    let mut rng = StdRng::seed_from_u64(8);
    let mut shapes = vec![[0, 5], [5, 0], [0, 0], [1, 1], [1, 9], [9, 1], [300, 3], [3, 300]];
    shapes.extend((0..12).map(|_| [rng.random_range(1..200), rng.random_range(1..200)]));
    for element in floats(&device) {
        for &[queries, keys] in &shapes {
            let mask = causal_mask(client, queries, keys, element).unwrap();
            assert_eq!(mask.shape()[..], [queries, keys]);
            assert_eq!(mask.dtype, reduce_kernels::storage_type(element));
            let found = elements(client, &mask, element, queries * keys);
            assert!(found == later_keys(queries, keys), "{element} [{queries}, {keys}]");
        }
    }
}

/// Lengths that do not fit the row, and some that do.
fn hostile_length(rng: &mut StdRng, keys: usize) -> f64 {
    let keys = keys as f64;
    let special = [
        f64::MIN,
        f64::MAX,
        -1.0,
        0.0,
        1.0,
        keys - 1.0,
        keys,
        keys + 1.0,
        2f64.powi(31),
        2f64.powi(32),
        2f64.powi(32) + 3.0,
        -2f64.powi(32) + 3.0,
    ];
    match rng.random_range(0..2) {
        0 => special[rng.random_range(0..special.len())],
        _ => rng.random_range(0..=keys as u32).into(),
    }
}

/// Masks of lengths of every type and of any strides, and without elements.
pub(crate) fn lengths(client: &Client) {
    let device = device_of(client);
    let is_integer = |element: &ElementType| !element.is_float() && *element != ElementType::Bool;
    let integers = ElementType::ALL.into_iter().filter(is_integer);
    let mut rng = StdRng::seed_from_u64(9);
    let mut masks = 0;
    let floats = floats(&device);
    let lengths = integers.filter(|&element| device.has(element));
    for (nth, of_lengths) in lengths.enumerate() {
        // Each pair of types is a kernel to compile.
        for element in [floats[nth % floats.len()], ElementType::F32] {
            for turn in 0..12 {
                let rank = turn % 4;
                let least = usize::from(turn != 11);
                let shape: Vec<usize> = (0..rank).map(|_| rng.random_range(least..6)).collect();
                let keys = [1, 7, 300, 0][rng.random_range(0..4)];
                // Axes in any order with gaps, some of them repeated.
                let mut order: Vec<usize> = (0..rank).collect();
                order.shuffle(&mut rng);
                let mut strides = vec![0; rank];
                let mut next = 1;
                for axis in order {
                    if rng.random_range(0..4) > 0 {
                        strides[axis] = next * rng.random_range(1..3);
                        next = strides[axis] * shape[axis].max(1);
                    }
                }
                let held = span(&shape, &strides).unwrap();
                let held: Vec<f64> = (0..held).map(|_| hostile_length(&mut rng, keys)).collect();
                let bytes = encode(of_lengths, &held);
                let held = decode(of_lengths, &bytes);
                let tensor = tensor_of(client, of_lengths, &bytes, &shape, &strides);
                let mask = length_mask(client, &tensor, keys, element).unwrap();
                assert_eq!(mask.shape()[..], [&shape[..], &[keys]].concat());
                assert_eq!(mask.dtype, reduce_kernels::storage_type(element));
                let dense = row_major_strides(&shape);
                let count: usize = shape.iter().product();
                let length = |nth: usize| -> f64 {
                    let index = |axis: usize| nth / dense[axis] % shape[axis] * strides[axis];
                    held[(0..rank).map(index).sum::<usize>()]
                };
                let expected: Vec<f64> =
                    (0..count).flat_map(|nth| row(length(nth), keys)).collect();
                let found = elements(client, &mask, element, count * keys);
                let what = format!("{of_lengths} {shape:?} {strides:?} to {element} of {keys}");
                assert!(found == expected, "{what}: {found:?} and not {expected:?}");
                masks += 1;
            }
        }
    }
    assert!(masks >= 24, "{masks} masks");
}

/// Lengths that lie further apart than indices of 32 bits reach.
pub(crate) fn lengths_far_apart(client: &Client) {
    const FAR: usize = (1 << 31) + 4096;
    let device = device_of(client);
    let element = if device.has(ElementType::U8) { ElementType::U8 } else { ElementType::U32 };
    let fits = client.properties().memory.max_page_size > FAR as u64;
    if !device.wide_indices || !fits || element != ElementType::U8 {
        // A small buffer: the indices are checked first.
        let tensor = tensor_of(client, element, &[0; 8], &[2], &[FAR]);
        let error = length_mask(client, &tensor, 5, ElementType::F32).unwrap_err();
        let narrow = matches!(source(&error), Some(PlanError::IndexTooNarrow { .. }));
        assert!(narrow != device.wide_indices, "{error}");
        return;
    }
    let mut bytes = vec![0; FAR + 1];
    (bytes[0], bytes[FAR]) = (2, 4);
    let tensor = tensor_of(client, element, &bytes, &[2], &[FAR]);
    let mask = length_mask(client, &tensor, 5, ElementType::F32).unwrap();
    let expected: Vec<f64> = row(2.0, 5).chain(row(4.0, 5)).collect();
    assert_eq!(elements(client, &mask, ElementType::F32, 10), expected);
}

/// What is refused before any launch.
pub(crate) fn refusals(client: &Client) {
    let device = device_of(client);
    let numbers = tensor(client, &[1i32, 2], &[2], &[1]);
    let each = |element| {
        [causal_mask(client, 2, 3, element), length_mask(client, &numbers, 3, element)]
            .map(Result::unwrap_err)
    };
    for element in ElementType::ALL {
        if !element.is_float() || element.is_f8() {
            for error in each(element) {
                assert_eq!(error.kind(), ErrorKind::Type);
                let expected = format!(
                    "masks of 0 and -inf are of floating point of 16 bits or more, not {element}"
                );
                assert_eq!(error.to_string(), expected);
            }
        } else if !device.has(element) {
            for error in each(element) {
                let cause = source(&error);
                assert!(matches!(cause, Some(PlanError::ElementUnsupported { .. })), "{error}");
            }
        }
        let tensor = tensor_of(client, element, &[0; 16], &[2], &[1]);
        let result = length_mask(client, &tensor, 3, ElementType::F32);
        if element.is_float() || element == ElementType::Bool {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Type);
            assert_eq!(error.to_string(), format!("lengths are integers, not {element}"));
        } else if !device.has(element) {
            assert!(result.unwrap_err().is_unsupported());
        }
    }
    let short = tensor(client, &[1i32; 4], &[4], &[4]);
    let error = length_mask(client, &short, 3, ElementType::F32).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Buffer);
    assert!(error.to_string().starts_with("the tensor of lengths spans 52 bytes"), "{error}");
    let error = causal_mask(client, usize::MAX, 2, ElementType::F32).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape);
    let error = length_mask(client, &numbers, usize::MAX, ElementType::F32).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape);
    let error = causal_mask(client, 1 << 24, 1 << 24, ElementType::F32).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
}
