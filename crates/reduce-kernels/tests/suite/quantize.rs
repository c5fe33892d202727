//! Outputs of integers, and integers with scales.

use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};
use reduce_kernels::{
    ElementType, ErrorKind, Max, ReduceError,
    cubecl::{self, prelude::*, std::tensor::TensorHandle},
    device_of,
    operator::{Apply, One, Operands, Parameters, Real, Reduced, Value},
    operators::{NormInf, Sum},
    pairs::ElementwiseProduct,
    planner::{AppliedKind, PlanError, force_applied, row_major_strides, span},
    quantize::{
        AddRmsNormQuantize, Quantize, QuantizeAffine, RmsNormQuantize, blocks_of, pack_int4,
        quantize_blocks, quantize_int4, quantize_int4_blocks, unpack_int4,
    },
    reduce, storage_type,
};

use crate::{
    applied::has_no_plan,
    applied_outputs::Way,
    run::{POISON, capable_device, decode, encode, read, source, tensor, tensor_of},
};

/// The element as it is.
#[derive(Clone, Copy)]
struct AsItIs;

#[cube]
impl Apply for AsItIs {
    type Results = One;
    type Outputs = One;

    const NAME: &'static str = "as_it_is";

    fn apply<N: Size>(
        value: Vector<Real, N>,
        _largest: Reduced<One, N>,
        _operands: &Operands<N>,
        _parameters: &Parameters,
    ) -> Reduced<One, N> {
        Value::new(value)
    }
}

const INTEGERS: [ElementType; 8] = [
    ElementType::I8,
    ElementType::I16,
    ElementType::I32,
    ElementType::I64,
    ElementType::U8,
    ElementType::U16,
    ElementType::U32,
    ElementType::U64,
];

/// A number as the nearest of a type, which the host's conversions saturate too.
fn nearest(value: f32, element: ElementType) -> f64 {
    if element.is_float() {
        return decode(element, &encode(element, &[value.into()]))[0];
    }
    let value = value.round_ties_even();
    match element {
        ElementType::I8 => f64::from(value as i8),
        ElementType::I16 => f64::from(value as i16),
        ElementType::I32 => f64::from(value as i32),
        ElementType::I64 => value as i64 as f64,
        ElementType::U8 => f64::from(value as u8),
        ElementType::U16 => f64::from(value as u16),
        ElementType::U32 => f64::from(value as u32),
        _ => value as u64 as f64,
    }
}

/// The integers that a device has, of some types.
fn integers(client: &Client) -> impl Iterator<Item = ElementType> {
    let device = capable_device(client);
    INTEGERS.into_iter().filter(move |&element| device.has(element))
}

/// The types of fp8 that a device has.
fn floats(client: &Client) -> impl Iterator<Item = ElementType> {
    let device = capable_device(client);
    let floats = [ElementType::F8E4M3, ElementType::F8E5M2];
    floats.into_iter().filter(move |&element| device.has(element))
}

fn numbers(client: &Client, tensor: &TensorHandle, element: ElementType) -> Vec<f64> {
    let count: usize = tensor.shape().iter().product();
    let bytes = client.read_one(tensor.handle.clone()).expect("the device answers");
    decode(element, &bytes[..count * element.bytes()])
}

/// Halves go to the even neighbour, numbers that no integer and no fp8 is near to the least or the
/// largest, and NaN to 0 or NaN: in whole vectors, at edges, and across, by every plan.
pub(crate) fn conversions(client: &Client) {
    let mut values =
        vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e20, -1e20, -0.0, 0.49999997];
    values.extend((-12..12).map(|half| half as f32 * 0.5));
    for bits in [7, 8, 15, 16, 31, 32, 63, 64] {
        let limit = 2f32.powi(bits);
        let near = [limit, limit.next_down(), limit - 0.5, limit - 1.0, limit - 1.5];
        values.extend(near.into_iter().flat_map(|value| [value, -value]));
    }
    let mut rng = StdRng::seed_from_u64(1);
    let count = 5 * 403;
    values.extend((values.len()..count).map(|_| rng.random_range(-300.0f32..300.0)));
    let device = capable_device(client);
    let mut runs = 0;
    for element in integers(client).chain(floats(client)) {
        for (shape, axis) in [([5, 403], 1), ([403, 5], 0)] {
            let strides = row_major_strides(&shape);
            let x = tensor(client, &values, &shape, &strides);
            for kind in AppliedKind::ALL.into_iter().map(Some).chain([None]) {
                let applied = reduce(Max, &x).over(axis).apply(AsItIs).output_type(element);
                let (problem, reduction) = applied.problems().unwrap();
                let plan = kind.map(|kind| force_applied(kind, &problem, &reduction, &device));
                let applied = match plan {
                    None => applied,
                    Some(Ok(plan)) => applied.plan_for(&device).with_plan(plan),
                    Some(Err(_)) => continue,
                };
                let poison = vec![POISON; count * element.bytes()];
                let output = tensor_of(client, element, &poison, &shape, &strides);
                match applied.run_into(client, output.clone().binding()) {
                    Ok(()) => runs += 1,
                    Err(error) if has_no_plan(&error) => continue,
                    Err(other) => panic!("{element} {shape:?} {kind:?}: {other}"),
                }
                let found = numbers(client, &output, element);
                for (found, &value) in found.into_iter().zip(&values) {
                    let expected = nearest(value, element);
                    let what = format!("{value} as {element}, {shape:?} by {kind:?}");
                    let are_nan = found.is_nan() && expected.is_nan();
                    assert!(found == expected || are_nan, "{what}: {found} and not {expected}");
                }
            }
        }
    }
    assert!(runs > 10, "{runs} runs");
}

/// Integers from `least` to `most` against quotients in f64. Where a quotient lies this near to the
/// middle between two integers, either may result.
fn check_integers(
    found: &[f64],
    quotients: impl Iterator<Item = f64>,
    [least, most]: [f64; 2],
    what: &str,
) {
    const NEAR: f64 = 1e-4;

    let mut near_middle = 0;
    for (&found, quotient) in found.iter().zip(quotients) {
        let from_middle = (quotient - quotient.floor() - 0.5).abs();
        let expected = quotient.round_ties_even().clamp(least, most);
        near_middle += usize::from(from_middle < NEAR);
        let other = from_middle < NEAR && (found - expected).abs() <= 1.0;
        assert!(found == expected || other, "{what}: {found} and not {expected} of {quotient}");
    }
    assert!(near_middle * 100 <= found.len(), "{what}: {near_middle} near the middle");
}

/// Numbers of fp8 against quotients in f64. Where a quotient lies this near to the middle between
/// two of them, relative to itself, either may result.
fn check_floats(
    found: &[f64],
    quotients: impl Iterator<Item = f64>,
    element: ElementType,
    what: &str,
) {
    const NEAR: f64 = 1e-5;

    let mut others = 0;
    for (&found, quotient) in found.iter().zip(quotients) {
        let expected = decode(element, &encode(element, &[quotient]))[0];
        let farther = (found - quotient).abs() - (expected - quotient).abs();
        assert!(
            farther <= NEAR * quotient.abs(),
            "{what}: {found} and not {expected} of {quotient}"
        );
        others += usize::from(found != expected);
    }
    assert!(others * 100 <= found.len(), "{what}: {others} beside the nearest");
}

/// The slice of a row-major element.
type SliceOf = fn(usize) -> usize;

/// Rows, columns and a whole tensor by largest magnitude, in each integer type and fp8 that the
/// device has, and with zero points in integers.
pub(crate) fn scales(client: &Client) {
    let shape = [13, 301];
    let mut rng = StdRng::seed_from_u64(2);
    let mut values: Vec<f32> = (0..13 * 301).map(|_| rng.random_range(-3.0f32..5.0)).collect();
    // A row of zeros, and one whose scale is too small.
    values[301..602].fill(0.0);
    values[602..903].iter_mut().for_each(|value| *value *= 1e-39);
    let x = tensor(client, &values, &shape, &[301, 1]);
    let slices: [(&[usize], SliceOf, usize); 3] =
        [(&[1], |at| at / 301, 13), (&[0], |at| at % 301, 301), (&[0, 1], |_| 0, 1)];
    for element in integers(client).chain(floats(client)) {
        for (axes, slice_of, count) in slices {
            let what = format!("{element} over {axes:?}");
            let mut most = vec![0f64; count];
            let (mut low, mut high) = (vec![0f64; count], vec![0f64; count]);
            for (at, &value) in values.iter().enumerate() {
                let (slice, value) = (slice_of(at), f64::from(value));
                most[slice] = most[slice].max(value.abs());
                low[slice] = low[slice].min(value);
                high[slice] = high[slice].max(value);
            }
            let near = |found: f64, expected: f64| {
                (found - expected).abs() <= 4.0 * f64::from(f32::EPSILON) * expected + 1e-38
            };
            let counted = |scale: f32| scale >= f32::MIN_POSITIVE;
            if element.is_signed() || element.is_float() {
                let quantize = match element.is_float() {
                    true => Quantize::to(element),
                    false => Quantize { most: 127.0, element },
                };
                let limit = quantize.most;
                let quantize = quantize.of(&x, axes);
                let (integers, scales) = quantize.run_with_results(client).unwrap();
                let scales = read::<f32>(client, &scales, count);
                for (&scale, &most) in scales.iter().zip(&most) {
                    assert!(near(scale.into(), most / limit), "{what}: scale {scale} of {most}");
                }
                let quotients = values.iter().enumerate().map(|(at, &value)| {
                    let scale = scales[slice_of(at)];
                    if counted(scale) { f64::from(value) / f64::from(scale) } else { 0.0 }
                });
                let integers = numbers(client, &integers, element);
                if element.is_float() {
                    check_floats(&integers, quotients, element, &what);
                    continue;
                }
                check_integers(&integers, quotients, [-127.0, 127.0], &what);
            }
            let [least, most] = if element.is_signed() { [-8.0, 7.0] } else { [0.0, 255.0] };
            let quantize = QuantizeAffine { least, most, element }.of(&x, axes);
            let (integers, (scales, points)) = quantize.run_with_results(client).unwrap();
            let scales = read::<f32>(client, &scales, count);
            let points = read::<f32>(client, &points, count);
            for slice in 0..count {
                let expected = (high[slice] - low[slice]) / (most - least);
                assert!(near(scales[slice].into(), expected), "{what}: {}", scales[slice]);
                let point = f64::from(points[slice]);
                assert!(point.fract() == 0.0 && (least..=most).contains(&point), "{what}: {point}");
                if counted(scales[slice]) {
                    let exact = least - low[slice] / f64::from(scales[slice]);
                    assert!((point - exact).abs() < 0.501, "{what}: {point} of {exact}");
                }
            }
            let quotients = values.iter().enumerate().map(|(at, &value)| {
                let (scale, point) = (scales[slice_of(at)], f64::from(points[slice_of(at)]));
                let quotient = f64::from(value) / f64::from(scale);
                if counted(scale) { quotient + point } else { point }
            });
            check_integers(&numbers(client, &integers, element), quotients, [least, most], &what);
        }
    }
}

/// Slices with NaN and infinities say so in their scales, and their integers are 0.
pub(crate) fn extremes(client: &Client) {
    let mut values = [1.5f32; 4 * 40];
    values[3] = f32::NAN;
    values[79] = f32::INFINITY;
    values[80] = f32::NEG_INFINITY;
    let x = tensor(client, &values, &[4, 40], &[40, 1]);
    for element in integers(client).filter(|element| element.is_signed()) {
        let quantize = Quantize { most: 127.0, element }.of(&x, 1);
        let (integers, scales) = quantize.run_with_results(client).unwrap();
        let scales = read::<f32>(client, &scales, 4);
        assert!(scales[0].is_nan(), "{scales:?}");
        assert_eq!(scales[1..3], [f32::INFINITY; 2]);
        assert!((scales[3] * 127.0 - 1.5).abs() < 1e-6, "{scales:?}");
        let found = numbers(client, &integers, element);
        assert!(found[..120].iter().all(|&integer| integer == 0.0), "{found:?}");
        assert_eq!(found[120..], [127.0; 40]);
        let quantize = QuantizeAffine { least: -128.0, most: 127.0, element }.of(&x, 1);
        let (integers, (scales, points)) = quantize.run_with_results(client).unwrap();
        let scales = read::<f32>(client, &scales, 4);
        assert!(scales[0].is_nan(), "{scales:?}");
        assert!(read::<f32>(client, &points, 4)[0].is_nan());
        assert_eq!(scales[1..3], [f32::INFINITY; 2]);
        let found = numbers(client, &integers, element);
        assert!(found[..40].iter().all(|&integer| integer == 0.0), "{found:?}");
        assert_eq!(found[120..], [127.0; 40]);
    }
}

/// Blocks of any axis of any layout, and what cannot be split.
pub(crate) fn blocks(client: &Client) {
    let mut rng = StdRng::seed_from_u64(4);
    let (shape, strides) = ([3, 96, 5], [1, 18, 3]);
    let held: Vec<f32> = (0..96 * 18).map(|_| rng.random_range(-2.0f32..2.0)).collect();
    let x = tensor(client, &held, &shape, &strides);
    let blocks = blocks_of(&x, 1, 32).unwrap();
    let largest = reduce(NormInf, &blocks).over(2).run(client).unwrap();
    assert_eq!(largest.shape()[..], [3, 3, 1, 5]);
    let largest = read::<f32>(client, &largest, 45);
    let at = |row: usize, nth: usize, inner: usize| held[row + nth * 18 + inner * 3];
    for (slice, &found) in largest.iter().enumerate() {
        let (row, block, inner) = (slice / 15, slice / 5 % 3, slice % 5);
        let of_block = (0..32).map(|nth| at(row, block * 32 + nth, inner).abs());
        assert_eq!(found, of_block.fold(0.0, f32::max));
    }
    for (wrong, message) in [
        (blocks_of(&x, 3, 32), "axis 3 is out of range for a tensor of rank 3"),
        (blocks_of(&x, 1, 36), "`blocks_of`: block is 36, but must be above 0 and divide the axis"),
        (blocks_of(&x, 1, 0), "`blocks_of`: block is 0, but must be above 0 and divide the axis"),
    ] {
        assert_eq!(wrong.unwrap_err().to_string(), message);
    }
    if !capable_device(client).has(ElementType::I8) {
        let error = quantize_blocks(client, &x, 1, 32, ElementType::I8).unwrap_err();
        assert!(error.to_string().contains("i8"), "{error}");
        return;
    }
    let (integers, scales) = quantize_blocks(client, &x, 1, 32, ElementType::I8).unwrap();
    assert_eq!((&integers.shape()[..], &scales.shape()[..]), (&shape[..], &[3, 3, 5][..]));
    let scales = read::<f32>(client, &scales, 45);
    let quotients = (0..3 * 96 * 5).map(|number| {
        let (row, nth, inner) = (number / 480, number / 5 % 96, number % 5);
        f64::from(at(row, nth, inner)) / f64::from(scales[row * 15 + nth / 32 * 5 + inner])
    });
    let found = numbers(client, &integers, ElementType::I8);
    check_integers(&found, quotients, [-127.0, 127.0], "blocks");
}

/// Rows and columns that are normalised, weighted or added first, and quantised in the same pass,
/// by every plan: against f64. The sum is an output of its own.
pub(crate) fn normalized(client: &Client) {
    const EPS: f64 = 1e-3;

    let device = capable_device(client);
    let narrow = floats(client).next().unwrap_or(ElementType::I32);
    let mut runs = 0;
    for (shape, axis) in [([5, 1024], 1), ([6, 333], 1), ([301, 6], 0)] {
        let mut rng = StdRng::seed_from_u64(shape[0] as u64);
        let mut random =
            |count: usize| (0..count).map(|_| rng.random_range(-3.0f32..3.0)).collect::<Vec<_>>();
        let (values, added, weights) =
            (random(shape[0] * shape[1]), random(shape[0] * shape[1]), random(shape[axis]));
        let strides = row_major_strides(&shape);
        let x = tensor(client, &values, &shape, &strides);
        let residual = tensor(client, &added, &shape, &strides);
        let mut of_weight = [1, 1];
        of_weight[axis] = shape[axis];
        let weight = tensor(client, &weights, &of_weight, &row_major_strides(&of_weight));
        let index = |at: usize| [at / shape[1], at % shape[1]];
        let (count, len) = (shape[1 - axis], shape[axis]);
        // The normalised elements, before weights.
        let normalized = |elements: &[f64]| -> Vec<f64> {
            let mut squares = vec![0f64; count];
            elements.iter().enumerate().for_each(|(at, x)| squares[index(at)[1 - axis]] += x * x);
            let factor = |at: usize| (squares[index(at)[1 - axis]] / len as f64 + EPS).sqrt();
            elements.iter().enumerate().map(|(at, x)| x / factor(at)).collect()
        };
        let wide = |values: &[f32]| values.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
        let sums: Vec<f64> = values.iter().zip(&added).map(|(&x, &y)| f64::from(x + y)).collect();
        let plain = normalized(&wide(&values));
        let weighted: Vec<f64> = plain
            .iter()
            .enumerate()
            .map(|(at, x)| x * f64::from(weights[index(at)[axis]]))
            .collect();
        let of_sums = normalized(&sums);
        for element in [ElementType::I32, narrow] {
            let quantize = match element.is_float() {
                true => Quantize::to(element),
                false => Quantize { most: 127.0, element },
            };
            let limit = quantize.most;
            let check =
                |(found, scales): (TensorHandle, TensorHandle), exact: &[f64], what: &str| {
                    let scales = read::<f32>(client, &scales, count);
                    let mut most = vec![0f64; count];
                    for (at, x) in exact.iter().enumerate() {
                        let most = &mut most[index(at)[1 - axis]];
                        *most = most.max(x.abs());
                    }
                    for (&scale, most) in scales.iter().zip(most) {
                        let error = (f64::from(scale) - most / limit).abs();
                        assert!(error <= 2e-6 * most / limit, "{what}: scale {scale} of {most}");
                    }
                    let scale = |at: usize| f64::from(scales[index(at)[1 - axis]]);
                    let quotients = exact.iter().enumerate().map(|(at, x)| x / scale(at));
                    let found = numbers(client, &found, element);
                    match element.is_float() {
                        true => check_floats(&found, quotients, element, what),
                        false => check_integers(&found, quotients, [-127.0, 127.0], what),
                    }
                };
            for way in Way::all() {
                let what = format!("{shape:?} over {axis} to {element} by {way:?}");
                let norm = RmsNormQuantize { eps: EPS, quantize };
                let add = AddRmsNormQuantize { eps: EPS, quantize };
                let run = || -> Result<_, ReduceError> {
                    let one = way.of(&device, norm.of(&x, axis))?.run_with_results(client)?;
                    let two = way.of(&device, norm.of_weighted(&x, &weight, axis))?;
                    let three = way.of(&device, add.of(&x, &residual, axis))?;
                    Ok((one, two.run_with_results(client)?, three.run_with_results(client)?))
                };
                let (one, two, three) = match run() {
                    Ok(found) => found,
                    Err(error) if has_no_plan(&error) => continue,
                    Err(other) => panic!("{what}: {other}"),
                };
                runs += 1;
                check((one.0, one.1.1), &plain, &what);
                check((two.0, two.1.1), &weighted, &format!("{what}, weighted"));
                let ((sum, quantized), (_, scales)) = three;
                let found = read::<f32>(client, &sum, values.len());
                assert!(found.iter().zip(&sums).all(|(&x, &y)| f64::from(x) == y), "{what}: sums");
                check((quantized, scales), &of_sums, &format!("{what}, added"));
            }
        }
    }
    assert!(runs >= 12, "{runs} runs");
    let mut values = [1.5f32; 2 * 40];
    values[3] = f32::NAN;
    let x = tensor(client, &values, &[2, 40], &[40, 1]);
    let quantize = Quantize { most: 127.0, element: ElementType::I32 };
    let norm = RmsNormQuantize { eps: EPS, quantize }.of(&x, 1);
    let (found, (_, scales)) = norm.run_with_results(client).unwrap();
    let scales = read::<f32>(client, &scales, 2);
    assert!(scales[0].is_nan() && scales[1] > 0.0, "{scales:?}");
    let found = read::<i32>(client, &found, 80);
    assert!(found[..40].iter().all(|&integer| integer == 0), "{found:?}");
    assert_eq!(found[40..], [127; 40]);
    // A weight that is NaN, and an infinity whose weight is 0.
    values[3] = f32::INFINITY;
    let x = tensor(client, &values, &[2, 40], &[40, 1]);
    let mut weights = [1.0f32; 40];
    weights[3] = 0.0;
    let weight = tensor(client, &weights, &[40], &[1]);
    weights[20] = f32::NAN;
    let no_number = tensor(client, &weights, &[40], &[1]);
    for (weight, expected) in [(&weight, [true, false]), (&no_number, [true, true])] {
        let norm = RmsNormQuantize { eps: EPS, quantize }.of_weighted(&x, weight, 1);
        let (_, (_, scales)) = norm.run_with_results(client).unwrap();
        let scales = read::<f32>(client, &scales, 2);
        assert_eq!([scales[0].is_nan(), scales[1].is_nan()], expected, "{scales:?}");
    }
}

/// Extents of which the last is even.
fn even_shape(rng: &mut StdRng) -> Vec<usize> {
    let mut shape: Vec<usize> =
        (0..rng.random_range(0..3)).map(|_| rng.random_range(1..8)).collect();
    shape.push(2 * rng.random_range(1..40));
    shape
}

/// Strides of axes in any order with gaps, some of them repeated.
fn any_strides(rng: &mut StdRng, shape: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..shape.len()).collect();
    order.shuffle(rng);
    let mut strides = vec![0; shape.len()];
    let mut next = 1;
    for axis in order {
        if rng.random_range(0..6) > 0 {
            strides[axis] = next * rng.random_range(1..3);
            next = strides[axis] * shape[axis];
        }
    }
    strides
}

/// The elements of a tensor in row-major order, of those that its buffer holds.
fn in_order(held: &[f64], shape: &[usize], strides: &[usize]) -> Vec<f64> {
    let dense = row_major_strides(shape);
    let at = |nth: usize| -> usize {
        (0..shape.len()).map(|axis| nth / dense[axis] % shape[axis] * strides[axis]).sum()
    };
    (0..shape.iter().product()).map(|nth| held[at(nth)]).collect()
}

/// Low four bits first.
fn packed_bytes(integers: &[f64]) -> Vec<u8> {
    let bits = |integer: f64| (integer as i64 & 15) as u8;
    integers.chunks(2).map(|pair| bits(pair[0]) | bits(pair[1]) << 4).collect()
}

/// The bytes of a tensor's whole buffer.
fn buffer(client: &Client, tensor: &TensorHandle) -> Vec<u8> {
    client.read_one(tensor.handle.clone()).expect("the device answers").to_vec()
}

/// Bytes of integers of every type and of any strides, in vectors and element by element; also of
/// integers that have more than four bits. What fills the buffer up is 0.
pub(crate) fn int4_packed(client: &Client) {
    let mut rng = StdRng::seed_from_u64(5);
    let mut runs = 0;
    for element in integers(client) {
        let mut shapes: Vec<Vec<usize>> = (0..16).map(|_| even_shape(&mut rng)).collect();
        shapes.extend([vec![2], vec![8], vec![3, 2], vec![5, 2050], vec![0], vec![4, 0]]);
        for (nth, shape) in shapes.into_iter().enumerate() {
            let strides = match nth % 2 {
                0 => row_major_strides(&shape),
                _ => any_strides(&mut rng, &shape),
            };
            let range = match (element.is_signed(), nth % 3) {
                (true, 0) => -100..100,
                (true, _) => -8..8,
                (false, 0) => 0..200,
                (false, _) => 0..16,
            };
            let len = span(&shape, &strides).unwrap();
            let held: Vec<f64> =
                (0..len).map(|_| f64::from(rng.random_range(range.clone()))).collect();
            let bytes = encode(element, &held);
            let x = tensor_of(client, element, &bytes, &shape, &strides);
            let packed = pack_int4(client, &x).unwrap();
            let what = format!("{element} {shape:?} {strides:?}");
            let mut expected_shape = shape.clone();
            *expected_shape.last_mut().unwrap() /= 2;
            assert_eq!(packed.shape()[..], expected_shape, "{what}");
            assert_eq!(packed.dtype, storage_type(ElementType::U8), "{what}");
            let expected = packed_bytes(&in_order(&held, &shape, &strides));
            let found = buffer(client, &packed);
            assert!(found.len().is_multiple_of(4) && !found.is_empty(), "{what}: {found:?}");
            let (found, rest) = found.split_at(expected.len());
            assert_eq!(found, expected, "{what}");
            if !found.is_empty() {
                assert_eq!(packed.strides()[..], row_major_strides(&expected_shape), "{what}");
                assert!(rest.iter().all(|&byte| byte == 0), "{what}: {rest:?}");
            }
            runs += 1;
        }
    }
    assert!(runs >= 40, "{runs} runs");
}

/// Integers of every type, and floats, of any bytes and any strides, in words and byte by byte.
pub(crate) fn int4_unpacked(client: &Client) {
    let device = device_of(client);
    let mut rng = StdRng::seed_from_u64(6);
    let is_target = |element: &ElementType| !element.is_f8() && *element != ElementType::Bool;
    let targets = ElementType::ALL.into_iter().filter(is_target);
    for element in targets.filter(|&element| device.has(element)) {
        let mut shapes: Vec<Vec<usize>> = (0..16)
            .map(|_| {
                let mut shape = even_shape(&mut rng);
                *shape.last_mut().unwrap() /= 2;
                shape
            })
            .collect();
        shapes.extend([vec![1], vec![4], vec![3, 1], vec![5, 1025], vec![0], vec![4, 0]]);
        for (nth, shape) in shapes.into_iter().enumerate() {
            let strides = match nth % 2 {
                0 => row_major_strides(&shape),
                _ => any_strides(&mut rng, &shape),
            };
            let len = span(&shape, &strides).unwrap();
            let held: Vec<u8> = (0..len).map(|_| rng.random()).collect();
            let mut x = tensor_of(client, ElementType::U8, &held, &shape, &strides);
            // A buffer that ends with the last byte has no whole last word.
            let ends_with_bytes = device.has(ElementType::U8) && nth % 3 == 0 && len > 0;
            if ends_with_bytes {
                x.handle = x.handle.offset_end((len.next_multiple_of(8) - len) as u64);
            }
            let found = unpack_int4(client, &x, element).unwrap();
            let what = format!("{element} {shape:?} {strides:?}");
            let mut expected_shape = shape.clone();
            *expected_shape.last_mut().unwrap() *= 2;
            assert_eq!(found.shape()[..], expected_shape, "{what}");
            assert_eq!(found.dtype, storage_type(element), "{what}");
            let held: Vec<f64> = held.into_iter().map(f64::from).collect();
            let is_unsigned = !element.is_signed() && !element.is_float();
            let value = |bits: u8| match bits {
                8.. if !is_unsigned => f64::from(bits) - 16.0,
                _ => f64::from(bits),
            };
            let expected: Vec<f64> = in_order(&held, &shape, &strides)
                .into_iter()
                .flat_map(|byte| [value(byte as u8 & 15), value(byte as u8 >> 4)])
                .collect();
            assert_eq!(numbers(client, &found, element), expected, "{what}");
        }
    }
}

/// Packed integers that begin inside a buffer: as those before, or refused where the device binds
/// no such offset.
pub(crate) fn int4_inside_buffers(client: &Client) {
    let mut rng = StdRng::seed_from_u64(7);
    let held: Vec<u8> = (0..2000).map(|_| rng.random()).collect();
    let element =
        if device_of(client).has(ElementType::I8) { ElementType::I8 } else { ElementType::I32 };
    for skip in [1, 2, 4, 12, 256] {
        let mut x = tensor_of(client, ElementType::U8, &held, &[3, 101], &[101, 1]);
        x.handle = x.handle.offset_start(skip);
        let mut y = tensor_of(client, element, &held, &[3, 22], &[22, 1]);
        y.handle = y.handle.offset_start(skip * element.bytes() as u64);
        match unpack_int4(client, &x, element) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Buffer, "{error}"),
            Ok(integers) => {
                let packed = pack_int4(client, &integers).unwrap();
                assert_eq!(buffer(client, &packed)[..303], held[skip as usize..][..303]);
            }
        }
        match pack_int4(client, &y) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Buffer, "{error}"),
            Ok(packed) => {
                let integers = decode(
                    element,
                    &held[skip as usize * element.bytes()..][..66 * element.bytes()],
                );
                assert_eq!(buffer(client, &packed)[..33], packed_bytes(&integers));
            }
        }
    }
}

/// What a quantisation to 4 bits gives, against f64: integers, scales and dequantised elements,
/// which are within half of a scale.
fn check_int4(
    client: &Client,
    (packed, scales): (TensorHandle, TensorHandle),
    values: &[f32],
    slice_of: &dyn Fn(usize) -> usize,
    what: &str,
) {
    let count = scales.shape().iter().product();
    let mut most = vec![0f64; count];
    for (at, &value) in values.iter().enumerate() {
        let most = &mut most[slice_of(at)];
        *most = most.max(f64::from(value).abs());
    }
    let scales = read::<f32>(client, &scales, count);
    for (&scale, most) in scales.iter().zip(most) {
        assert!((f64::from(scale) - most / 7.0).abs() <= 1e-6 * most, "{what}: {scale} of {most}");
    }
    let integers = unpack_int4(client, &packed, ElementType::I32).unwrap();
    let found = numbers(client, &integers, ElementType::I32);
    let scale = |at: usize| f64::from(scales[slice_of(at)]);
    let quotients = values.iter().enumerate().map(|(at, &value)| f64::from(value) / scale(at));
    check_integers(&found, quotients, [-7.0, 7.0], what);
    for (at, (found, &value)) in found.iter().zip(values).enumerate() {
        let away = (found * scale(at) - f64::from(value)).abs();
        assert!(away <= 0.5001 * scale(at), "{what}: {found} of {value}");
    }
}

/// Rows, columns, whole tensors and blocks of any axis to 4 bits, of any strides, and back by the
/// map of a reduction.
pub(crate) fn int4_quantized(client: &Client) {
    let mut rng = StdRng::seed_from_u64(8);
    let shape = [6, 15, 34];
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|_| rng.random_range(-3.0f32..5.0)).collect();
    let x = tensor(client, &values, &shape, &row_major_strides(&shape));
    let index = |at: usize| [at / 510, at / 34 % 15, at % 34];
    for axes in [vec![2], vec![0], vec![1, 2], vec![0, 1, 2], vec![0, 2]] {
        let found = quantize_int4(client, &x, axes.clone()).unwrap();
        assert_eq!(found.0.shape()[..], [6, 15, 17]);
        let mut of_scales = shape;
        axes.iter().for_each(|&axis| of_scales[axis] = 1);
        assert_eq!(found.1.shape()[..], of_scales);
        let strides = row_major_strides(&of_scales);
        let slice_of = |at: usize| -> usize {
            (0..3).map(|axis| index(at)[axis].min(of_scales[axis] - 1) * strides[axis]).sum()
        };
        check_int4(client, found, &values, &slice_of, &format!("over {axes:?}"));
    }
    for (axis, block) in [(2, 34), (2, 17), (2, 2), (1, 5), (0, 3), (0, 1)] {
        let what = format!("blocks of {block} along {axis}");
        let (packed, scales) = quantize_int4_blocks(client, &x, axis, block).unwrap();
        assert_eq!(packed.shape()[..], [6, 15, 17], "{what}");
        let mut of_scales = shape;
        of_scales[axis] /= block;
        assert_eq!(scales.shape()[..], of_scales, "{what}");
        let strides = row_major_strides(&of_scales);
        let slice_of = |at: usize| -> usize {
            let place = |i: usize| if i == axis { index(at)[i] / block } else { index(at)[i] };
            (0..3).map(|axis| place(axis) * strides[axis]).sum()
        };
        // The sums of dequantised elements over all but the first axis.
        let integers = unpack_int4(client, &packed, ElementType::I32).unwrap();
        let in_blocks = blocks_of(&integers, axis, block).unwrap();
        let of_blocks = blocks_of(&scales, axis, 1).unwrap();
        let over = if axis == 0 { vec![2, 3] } else { vec![1, 2, 3] };
        let sums = reduce(Sum, &in_blocks).paired(&of_blocks, ElementwiseProduct).over(over);
        let sums = read::<f32>(client, &sums.run(client).unwrap(), 6);
        let held = read::<i32>(client, &integers, count);
        let factors = read::<f32>(client, &scales, of_scales.iter().product());
        let mut expected = [0f64; 6];
        for (at, &integer) in held.iter().enumerate() {
            expected[at / 510] += f64::from(integer) * f64::from(factors[slice_of(at)]);
        }
        for (found, expected) in sums.into_iter().zip(expected) {
            assert!((f64::from(found) - expected).abs() <= 1e-3, "{what}: {found}, {expected}");
        }
        check_int4(client, (packed, scales), &values, &slice_of, &what);
    }
    // A transposed tensor: its last axis is not that of its memory.
    let transposed = TensorHandle::new(x.handle.clone(), [34, 90], [1, 34], x.dtype);
    let found = quantize_int4(client, &transposed, 0).unwrap();
    let values: Vec<f32> = (0..count).map(|at| values[at % 90 * 34 + at / 90]).collect();
    check_int4(client, found, &values, &|at| at % 90, "transposed");
}

/// Blocks with NaN and infinities have integers of 0, as those of zeros have, and say in their
/// scales why. Other blocks of the same row do not change.
pub(crate) fn int4_extremes(client: &Client) {
    let mut values = [1.5f32; 2 * 40];
    (values[3], values[17], values[28]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
    values[40..50].fill(0.0);
    (values[51], values[79]) = (-1.5, f32::MIN_POSITIVE);
    let x = tensor(client, &values, &[2, 40], &[40, 1]);
    let (packed, scales) = quantize_int4_blocks(client, &x, 1, 10).unwrap();
    let scales = read::<f32>(client, &scales, 8);
    assert!(scales[0].is_nan(), "{scales:?}");
    assert_eq!((&scales[1..3], scales[4]), (&[f32::INFINITY; 2][..], 0.0));
    let bytes = buffer(client, &packed);
    assert_eq!(bytes[..15], [0; 15]);
    assert_eq!(bytes[15..20], [0x77; 5]);
    assert_eq!(bytes[20..25], [0; 5]);
    assert_eq!(bytes[25..30], [0x97, 0x77, 0x77, 0x77, 0x77]);
    assert_eq!(bytes[35..40], [0x77, 0x77, 0x77, 0x77, 0x07]);
}

/// What is refused before any launch.
pub(crate) fn int4_refused(client: &Client) {
    let device = device_of(client);
    let kind_of = |error: ReduceError, expected: &str| {
        assert_eq!(error.to_string(), expected);
        error.kind()
    };
    let floats = tensor(client, &[1f32; 6], &[2, 3], &[3, 1]);
    let odd = "integers of 4 bits are packed in pairs along the last axis, and 3 are not even";
    let scalar =
        "integers of 4 bits are packed along the last axis, and a tensor of rank 0 has none";
    let numbers = tensor(client, &[1i32; 6], &[2, 3], &[3, 1]);
    for error in [
        pack_int4(client, &numbers).unwrap_err(),
        quantize_int4(client, &floats, 0).unwrap_err(),
        quantize_int4_blocks(client, &floats, 0, 2).unwrap_err(),
    ] {
        assert_eq!(kind_of(error, odd), ErrorKind::Shape);
    }
    let empty: [usize; 0] = [];
    let of_rank_0 = |tensor: &TensorHandle| {
        TensorHandle::new(tensor.handle.clone(), empty, empty, tensor.dtype)
    };
    let byte = tensor(client, &[1u8; 8], &[8], &[1]);
    for error in [
        pack_int4(client, &of_rank_0(&numbers)).unwrap_err(),
        quantize_int4(client, &of_rank_0(&floats), ..).unwrap_err(),
        unpack_int4(client, &of_rank_0(&byte), ElementType::F32).unwrap_err(),
    ] {
        assert_eq!(kind_of(error, scalar), ErrorKind::Shape);
    }
    for element in ElementType::ALL {
        let x = tensor_of(client, element, &[0; 32], &[2, 2], &[2, 1]);
        let is_integer = !element.is_float() && element != ElementType::Bool;
        match pack_int4(client, &x) {
            Ok(_) => assert!(is_integer && device.has(element), "{element}"),
            Err(error) if is_integer => assert!(!device.has(element) && error.is_unsupported()),
            Err(error) => {
                let expected = format!("integers are packed in 4 bits each, not {element}");
                assert_eq!(kind_of(error, &expected), ErrorKind::Type);
            }
        }
        match unpack_int4(client, &byte, element) {
            Ok(_) => assert!(device.has(element), "{element}"),
            Err(error) if element.is_f8() || element == ElementType::Bool => {
                let expected = format!(
                    "integers of 4 bits become integers, or floating point of 16 bits or more, not \
                     {element}"
                );
                assert_eq!(kind_of(error, &expected), ErrorKind::Type);
            }
            Err(error) => assert!(!device.has(element) && error.is_unsupported(), "{error}"),
        }
        if element != ElementType::U8 {
            let error = unpack_int4(client, &x, ElementType::F32).unwrap_err();
            let expected = format!("bytes of u8 hold packed integers of 4 bits, not {element}");
            assert_eq!(kind_of(error, &expected), ErrorKind::Type);
        }
    }
    // The last word is not whole, and the device reads no bytes.
    if !device.has(ElementType::U8) {
        let mut short = tensor_of(client, ElementType::U8, &[0; 8], &[6], &[1]);
        short.handle = short.handle.offset_end(2);
        let error = unpack_int4(client, &short, ElementType::F32).unwrap_err();
        let Some(PlanError::ElementUnsupported { element, .. }) = source(&error) else {
            panic!("{error}")
        };
        assert_eq!(*element, ElementType::U8);
    }
    let short = tensor(client, &[1i32; 6], &[2, 8], &[8, 1]);
    assert_eq!(pack_int4(client, &short).unwrap_err().kind(), ErrorKind::Buffer);
    let short = tensor(client, &[1u8; 6], &[2, 8], &[8, 1]);
    let error = unpack_int4(client, &short, ElementType::F32).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Buffer, "{error}");
    // Elements that are repeated more often than can be counted, or than the device holds.
    let of =
        |shape: [usize; 2]| TensorHandle::new(numbers.handle.clone(), shape, [0, 0], numbers.dtype);
    let error = pack_int4(client, &of([usize::MAX, 4])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape, "{error}");
    for shape in [[1, usize::MAX - 1], [1 << 24, 1 << 24]] {
        let error = pack_int4(client, &of(shape)).unwrap_err();
        assert!(error.is_out_of_memory(), "{error}");
    }
    let repeated = TensorHandle::new(byte.handle.clone(), [usize::MAX / 2], [0], byte.dtype);
    let error = unpack_int4(client, &repeated, ElementType::F32).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    let repeated = TensorHandle::new(byte.handle.clone(), [4, usize::MAX / 4], [0, 0], byte.dtype);
    let error = unpack_int4(client, &repeated, ElementType::F32).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape, "{error}");
    let repeated = TensorHandle::new(byte.handle, [1 << 24, 1 << 22], [0, 0], byte.dtype);
    let error = unpack_int4(client, &repeated, ElementType::F32).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
}
