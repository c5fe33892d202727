//! Outputs of integers, and integers with scales.

use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    ElementType, Max, ReduceError,
    cubecl::{self, prelude::*, std::tensor::TensorHandle},
    operator::{Apply, One, Operands, Parameters, Real, Reduced, Value},
    operators::NormInf,
    planner::{AppliedKind, force_applied, row_major_strides},
    quantize::{
        AddRmsNormQuantize, Quantize, QuantizeAffine, RmsNormQuantize, blocks_of, quantize_blocks,
    },
    reduce,
};

use crate::{
    applied::has_no_plan,
    applied_outputs::Way,
    run::{POISON, capable_device, decode, encode, read, tensor, tensor_of},
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
