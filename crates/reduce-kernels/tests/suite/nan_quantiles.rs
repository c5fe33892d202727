//! Quantiles of the elements that are not NaN: beside those that the host finds in f64 among the
//! sorted numbers, and beside those of NumPy.

use cubecl::{prelude::*, std::tensor::TensorHandle};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    ElementType, ErrorKind, TensorDescription, cubecl, device_of,
    planner::{TopKMethod, TopKPlan},
    quantiles::{Between, Interpolation, median, nanmedian, nanquantile, quantile, quantiles},
};

use crate::{
    case::Case,
    oracle::reduce_naively,
    run::{POISON, capable_device, decode, encode, read, tensor, tensor_of},
};

const NAN: f64 = f64::NAN;

/// Quantiles of which binary64 rounds the products with many numbers of elements to integers, or to
/// halves, and others.
const QUANTILES: [f64; 22] = [
    0.5,
    0.3,
    0.7,
    0.0,
    1.0,
    0.1,
    0.9,
    0.6,
    0.25,
    0.75,
    1.0 / 3.0,
    2.0 / 3.0,
    0.35,
    0.45,
    0.55,
    0.29,
    0.001,
    0.999,
    1e-5,
    0.017_543_859_649_122_806,
    0.5,
    0.842_105_263_157_894_7,
];

const INTERPOLATIONS: [Interpolation; 13] = [
    Interpolation::InvertedCdf,
    Interpolation::AveragedInvertedCdf,
    Interpolation::ClosestObservation,
    Interpolation::InterpolatedInvertedCdf,
    Interpolation::Hazen,
    Interpolation::Weibull,
    Interpolation::Linear,
    Interpolation::MedianUnbiased,
    Interpolation::NormalUnbiased,
    Interpolation::Lower,
    Interpolation::Higher,
    Interpolation::Midpoint,
    Interpolation::Nearest,
];

/// The quantile of the numbers of a slice, by the host's formula.
fn expected(slice: &[f64], q: f64, interpolation: Interpolation) -> f64 {
    let mut numbers: Vec<f64> = slice.iter().copied().filter(|number| !number.is_nan()).collect();
    numbers.sort_by(f64::total_cmp);
    if numbers.is_empty() {
        return NAN;
    }
    let Between { lower, upper, weight } = interpolation.between(q, numbers.len());
    let (lower, upper) = (numbers[lower], numbers[upper]);
    match weight {
        _ if lower == upper => lower,
        0.0 => lower,
        1.0 => upper,
        _ => lower * (1.0 - weight) + upper * weight,
    }
}

/// Leaves memory of usual sizes that is not zero to the allocations that follow.
fn poison(client: &Client) {
    let buffers: Vec<_> = (6..16)
        .flat_map(|bits| [1usize << bits; 3])
        .map(|bytes| client.create_from_slice(&vec![POISON; bytes]))
        .collect();
    drop(buffers);
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    q: &'a [f64],
    interpolation: Interpolation,
    plan: Option<TopKPlan>,
}

/// Compares the quantiles of a tensor with those of the host.
fn check(client: &Client, case: &Case, element: ElementType, values: &[f64], asked: Asked<'_>) {
    let Asked { q, interpolation, plan } = asked;
    let told = format!("{element} {case:?} {asked:?}");
    let device = capable_device(client);
    let bytes = encode(element, values);
    let values = decode(element, &bytes);
    let input = tensor_of(client, element, &bytes, &case.shape, &case.strides);
    let described = quantiles(q, &input).over(case.axes.as_slice()).ignore_nan();
    let described = described.interpolation(interpolation);
    let described = match plan {
        Some(plan) => described.with_plan(plan).plan_for(&device),
        None => described,
    };
    let (shape, output) = (described.output_shape().unwrap(), described.output_types().unwrap());
    poison(client);
    let found = described.run(client).unwrap_or_else(|error| panic!("{told}: {error}"));
    assert_eq!(found.shape()[..], shape[..], "{told}");
    let outputs = case.kept_shape().iter().product::<usize>();
    let bytes = client.read_one(found.handle).expect("the device answers");
    let found = decode(output, &bytes[..outputs * q.len() * output.bytes()]);
    for (nth, &q) in q.iter().enumerate() {
        let of_slice = |slice: &[f64]| expected(slice, q, interpolation);
        let expected = reduce_naively(&values, &case.shape, &case.strides, &case.axes, of_slice);
        for (slice, (&found, expected)) in found[nth * outputs..].iter().zip(expected).enumerate() {
            let tolerance = match output.bytes() {
                2 => 0.01,
                4 => 1e-6,
                _ => 1e-12,
            };
            let is_right = found == expected
                || found.is_nan() && expected.is_nan()
                || (found - expected).abs() <= tolerance * expected.abs().max(1.0);
            assert!(is_right, "{told} slice {slice} quantile {q}: {found} is not {expected}");
        }
    }
}

/// Numbers of a case, some equal and a few infinite, of which so many of each slice are NaN:
/// `count` gets the number of the slice and its length.
fn data(case: &Case, element: ElementType, count: impl Fn(usize, usize) -> usize) -> Vec<f64> {
    let mut rng = StdRng::seed_from_u64(case.span() as u64);
    let least = if element.is_signed() { -100.0 } else { 0.0 };
    let draw = |rng: &mut StdRng| match rng.random_range(0..60) {
        0 if element.is_float() => f64::INFINITY,
        1 if element.is_float() => f64::NEG_INFINITY,
        _ => f64::round(rng.random_range(least..100.0)),
    };
    let mut values: Vec<f64> = (0..case.span()).map(|_| draw(&mut rng)).collect();
    let places: Vec<usize> = (0..case.span()).collect();
    let slices = reduce_naively(&places, &case.shape, &case.strides, &case.axes, <[usize]>::to_vec);
    for (nth, mut slice) in slices.into_iter().enumerate() {
        let missing = count(nth, slice.len()).min(slice.len());
        for left in (slice.len() - missing + 1..=slice.len()).rev() {
            let place = slice.swap_remove(rng.random_range(0..left));
            if element.is_float() {
                values[place] = NAN;
            }
        }
    }
    values
}

/// No NaN, only NaN, one number, and other counts.
fn any_count(nth: usize, len: usize) -> usize {
    match nth % 5 {
        0 => 0,
        1 => len,
        2 => len - 1,
        3 => len / 2,
        _ => nth * 7919 % (len + 1),
    }
}

/// Every interpolation among every number of numbers. The places on the device are those of the
/// host, which rounds in binary64.
pub(crate) fn every_interpolation(client: &Client) {
    let len = 60;
    let case = Case::contiguous(&[len + 1, len], &[1]);
    let values = data(&case, ElementType::F32, |nth, _| nth);
    for interpolation in INTERPOLATIONS {
        for q in [&QUANTILES[..], &QUANTILES[1..2], &QUANTILES[2..4]] {
            let asked = Asked { q, interpolation, plan: None };
            check(client, &case, ElementType::F32, &values, asked);
        }
    }
    // Without NaN, they are the other quantiles to the bit.
    let mut rng = StdRng::seed_from_u64(1);
    let numbers: Vec<f32> = (0..40 * 57).map(|_| rng.random_range(-1.0..1.0)).collect();
    let x = tensor(client, &numbers, &[40, 57], &[57, 1]);
    let q: Vec<f64> = (0..50).map(|_| rng.random_range(0.001..1.0)).collect();
    for interpolation in INTERPOLATIONS {
        let asked = || quantiles(q.as_slice(), &x).over(1).interpolation(interpolation);
        let found = read::<f32>(client, &asked().ignore_nan().run(client).unwrap(), 2000);
        assert_eq!(found, read::<f32>(client, &asked().run(client).unwrap(), 2000));
    }
}

/// Quantiles that are found one by one, and more that are sorted together, from either end.
fn quantile_lists() -> [&'static [f64]; 6] {
    [&[0.5], &[0.1, 0.12], &[0.97], &[0.9, 0.9], &[0.3, 0.0, 0.31], &[0.5, 1.0, 0.7, 0.99, 0.6]]
}

/// All methods of selection write elements whose numbers differ between the slices of a cube.
pub(crate) fn every_method(client: &Client) {
    let device = capable_device(client);
    let mut tried = [0; 5];
    for case in [
        Case::contiguous(&[7, 300], &[1]),
        Case::contiguous(&[70, 9], &[0]),
        Case::permuted(&[6, 4, 12], &[2, 0, 1], &[0, 1]),
    ] {
        let element = ElementType::F32;
        let values = data(&case, element, any_count);
        let described =
            TensorDescription::strided(element, case.shape.clone(), case.strides.clone());
        // One plan for all lists, so that they share kernels.
        let asked = quantiles([0.5], &described).over(case.axes.as_slice()).ignore_nan();
        let chosen = asked.plan(client).unwrap();
        for q in quantile_lists() {
            let runs = case.reduction_len().div_ceil(64) as u32;
            let plans = [
                (TopKMethod::Buffer, 32, 2, 512, 1),
                (TopKMethod::Buffer, 32, 1, 512, 3),
                (TopKMethod::Registers, 32, 2, 512, 1),
                (TopKMethod::Runs, 16, 1, 64, runs),
                (TopKMethod::Window, 32, 1, 64, 1),
            ];
            for (nth, (method, units, slices, buffer, cubes)) in plans.into_iter().enumerate() {
                let mut plan = chosen;
                (plan.method, plan.buffer, plan.digit_bits) = (method, buffer, 4);
                (plan.units_per_slice, plan.slices_per_cube) = (units, slices);
                plan.cubes_per_slice = cubes;
                if method == TopKMethod::Runs {
                    plan.access = plan.access.with_vector(1);
                }
                if method == TopKMethod::Registers {
                    let loads = case.reduction_len().div_ceil(units as usize * plan.access.vector);
                    plan.access = plan.access.with_loads_in_flight(loads);
                }
                let described = quantiles(q, &described).over(case.axes.as_slice()).ignore_nan();
                let described = described.with_plan(plan).plan_for(&device);
                if described.plan(client).is_ok() {
                    let asked = Asked { q, interpolation: Interpolation::Hazen, plan: Some(plan) };
                    check(client, &case, element, &values, asked);
                    tried[nth] += 1;
                }
            }
        }
    }
    // Windows find few numbers, of rows along which units read.
    assert!(tried.iter().all(|&tried| tried >= 4), "{tried:?}");
    // Several cubes for each slice, and slices that no shared memory holds, as they are chosen.
    let long = Case::contiguous(&[2, 60_000], &[1]);
    let values = data(&long, ElementType::F32, |nth, len| nth * len / 3);
    for q in [&[0.999][..], &[0.5]] {
        let asked = Asked { q, interpolation: Interpolation::Linear, plan: None };
        check(client, &long, ElementType::F32, &values, asked);
    }
}

/// Elements of every type, and slices of every layout. Integers have no NaN.
pub(crate) fn every_type_and_layout(client: &Client) {
    let device = device_of(client);
    let cases = [
        Case::contiguous(&[11, 37], &[1]),
        Case::contiguous(&[37, 6], &[0]),
        Case::contiguous(&[1], &[0]),
        Case::contiguous(&[40, 3, 5], &[0, 2]),
        Case::contiguous(&[4, 3, 5], &[0, 1, 2]),
        Case::pitched(&[6, 100], 104, &[1]),
        Case::permuted(&[24, 10, 12], &[2, 0, 1], &[0, 1]),
        Case::permuted(&[24, 10, 12], &[2, 1, 0], &[0]),
        Case::sliced(&[9, 80], &[2, 2], &[1]),
        Case::broadcast(&[6, 40], &[0], &[1]),
    ];
    for element in ElementType::ALL.into_iter().filter(|&element| device.has(element)) {
        let cases = &cases[..if element == ElementType::F32 { cases.len() } else { 2 }];
        for case in cases {
            let values = data(case, element, any_count);
            for interpolation in [Interpolation::Linear, Interpolation::ClosestObservation] {
                for q in [&[0.5][..], &[0.2, 0.95, 0.6]] {
                    check(client, case, element, &values, Asked { q, interpolation, plan: None });
                }
            }
        }
    }
}

/// The functions, the shapes and the types of results, and what is refused.
pub(crate) fn contract(client: &Client) {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let data = [3.0, nan, 1.0, nan, nan, nan, inf, 5.0, nan, -0.0, 4.0, 8.0];
    let x = tensor(client, &data, &[4, 3], &[3, 1]);
    let found = nanmedian(client, &x, 1).unwrap();
    assert_eq!(found.shape()[..], [4, 1]);
    let found = read::<f32>(client, &found, 4);
    assert!(found[1].is_nan() && [found[0], found[2], found[3]] == [2.0, inf, 4.0], "{found:?}");
    assert_eq!(read::<f32>(client, &nanmedian(client, &x, ..).unwrap(), 1), [4.0]);
    assert_eq!(read::<f32>(client, &nanquantile(client, &x, 1, 0.0).unwrap(), 3)[2], 5.0);
    // Of one number, any quantile is that.
    let one = tensor(client, &[nan, 7.0, nan, nan], &[4], &[1]);
    for q in [0.0, 0.2, 1.0] {
        assert_eq!(read::<f32>(client, &nanquantile(client, &one, 0, q).unwrap(), 1), [7.0]);
    }
    // Others keep to NaN.
    assert!(read::<f32>(client, &median(client, &one, 0).unwrap(), 1)[0].is_nan());
    let integers = tensor(client, &[5i32, 1, 9, 2], &[4], &[1]);
    let found = [nanquantile, quantile]
        .map(|of| read::<f32>(client, &of(client, &integers, 0, 0.3).unwrap(), 1));
    assert_eq!(found[0], found[1]);

    let asked = |q: &[f64]| quantiles(q, &x).over(1).ignore_nan();
    assert_eq!(asked(&[0.1, 0.2]).keep_dims(false).run(client).unwrap().shape()[..], [2, 4]);
    assert_eq!(asked(&[]).run(client).unwrap().shape()[..], [0, 4, 1]);
    let no_rows = tensor::<f32>(client, &[], &[0, 4], &[4, 1]);
    assert_eq!(nanmedian(client, &no_rows, 1).unwrap().shape()[..], [0, 1]);
    let empty = tensor::<f32>(client, &[], &[2, 0], &[1, 1]);
    assert_eq!(nanmedian(client, &empty, 1).unwrap_err().kind(), ErrorKind::Shape);
    let error = asked(&[0.5, 1.5]).run(client).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Parameter, "{error}");
    let error = asked(&[0.5]).output_type(ElementType::I32).run(client).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Type, "{error}");
    let short = TensorHandle::new(client.empty(8), [4, 3], [3, 1], x.dtype);
    let error = nanmedian(client, &short, 1).unwrap_err();
    assert_eq!((error.kind(), error.launched()), (ErrorKind::Buffer, false), "{error}");
    let long = TensorDescription::row_major(ElementType::F32, [1usize << 33]);
    let error = quantiles([0.5], &long).ignore_nan().plan(client).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Parameter, "{error}");
}

/// Quantiles with NumPy 2.4.6 of rows of which some elements, none and all but one are NaN.
pub(crate) fn numpy_agrees(client: &Client) {
    let rows = [
        [NAN, 8.0, 1.0, NAN, 64.0, 2.0, NAN, 32.0, 4.0, 16.0, NAN, 128.0],
        [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, NAN],
        [NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, 8.0],
        [512.0, 256.0, 128.0, 64.0, 32.0, 16.0, 8.0, 4.0, 2.0, 1.0, NAN, NAN],
    ];
    let numbers: Vec<f32> = rows.as_flattened().iter().map(|&number| number as f32).collect();
    let x = tensor(client, &numbers, &[4, 12], &[12, 1]);
    for (interpolation, expected) in NUMPY {
        let asked = quantiles([0.3, 0.5, 0.9, 0.05], &x).over(1).ignore_nan();
        let found = asked.interpolation(*interpolation).run(client).unwrap();
        let found = read::<f32>(client, &found, 16);
        for (found, expected) in found.iter().zip(expected.as_flattened()) {
            let difference = (f64::from(*found) - expected).abs();
            assert!(difference <= 1e-6 * expected, "{interpolation:?} {found} {expected}");
        }
    }
}

/// For each quantile, that of each row.
const NUMPY: &[(Interpolation, [[f64; 4]; 4])] = &[
    (
        Interpolation::InvertedCdf,
        [
            [4.0, 8.0, 8.0, 4.0],
            [8.0, 32.0, 8.0, 16.0],
            [128.0, 512.0, 8.0, 256.0],
            [1.0, 1.0, 8.0, 1.0],
        ],
    ),
    (
        Interpolation::AveragedInvertedCdf,
        [
            [4.0, 8.0, 8.0, 6.0],
            [12.0, 32.0, 8.0, 24.0],
            [128.0, 512.0, 8.0, 384.0],
            [1.0, 1.0, 8.0, 1.0],
        ],
    ),
    (
        Interpolation::ClosestObservation,
        [
            [2.0, 4.0, 8.0, 4.0],
            [8.0, 32.0, 8.0, 16.0],
            [64.0, 512.0, 8.0, 256.0],
            [1.0, 1.0, 8.0, 1.0],
        ],
    ),
    (
        Interpolation::InterpolatedInvertedCdf,
        [
            [2.8, 5.199999999999999, 8.0, 4.0],
            [8.0, 24.0, 8.0, 16.0],
            [76.80000000000001, 486.4000000000001, 8.0, 256.0],
            [1.0, 1.0, 8.0, 1.0],
        ],
    ),
    (
        Interpolation::Hazen,
        [
            [3.8, 7.199999999999999, 8.0, 6.0],
            [12.0, 32.0, 8.0, 24.0],
            [108.80000000000001, 716.8000000000002, 8.0, 384.0],
            [1.0, 1.05, 8.0, 1.0],
        ],
    ),
    (
        Interpolation::Weibull,
        [
            [3.3999999999999995, 6.399999999999999, 8.0, 5.199999999999999],
            [12.0, 32.0, 8.0, 24.0],
            [128.0, 921.6000000000004, 8.0, 486.4000000000001],
            [1.0, 1.0, 8.0, 1.0],
        ],
    ),
    (
        Interpolation::Linear,
        [
            [4.4, 8.0, 8.0, 6.799999999999999],
            [12.0, 32.0, 8.0, 24.0],
            [83.19999999999999, 512.0, 8.0, 281.5999999999999],
            [1.35, 1.5, 8.0, 1.45],
        ],
    ),
    (
        Interpolation::MedianUnbiased,
        [
            [3.666666666666666, 6.933333333333334, 8.0, 5.733333333333334],
            [12.0, 32.0, 8.0, 24.0],
            [117.33333333333337, 785.0666666666666, 8.0, 418.1333333333332],
            [1.0, 1.0, 8.0, 1.0],
        ],
    ),
    (
        Interpolation::NormalUnbiased,
        [
            [3.7, 7.0, 8.0, 5.800000000000001],
            [12.0, 32.0, 8.0, 24.0],
            [115.19999999999999, 768.0, 8.0, 409.5999999999999],
            [1.0, 1.0, 8.0, 1.0],
        ],
    ),
    (
        Interpolation::Lower,
        [
            [4.0, 8.0, 8.0, 4.0],
            [8.0, 32.0, 8.0, 16.0],
            [64.0, 512.0, 8.0, 256.0],
            [1.0, 1.0, 8.0, 1.0],
        ],
    ),
    (
        Interpolation::Higher,
        [
            [8.0, 8.0, 8.0, 8.0],
            [16.0, 32.0, 8.0, 32.0],
            [128.0, 512.0, 8.0, 512.0],
            [2.0, 2.0, 8.0, 2.0],
        ],
    ),
    (
        Interpolation::Midpoint,
        [
            [6.0, 8.0, 8.0, 6.0],
            [12.0, 32.0, 8.0, 24.0],
            [96.0, 512.0, 8.0, 384.0],
            [1.5, 1.5, 8.0, 1.5],
        ],
    ),
    (
        Interpolation::Nearest,
        [
            [4.0, 8.0, 8.0, 8.0],
            [16.0, 32.0, 8.0, 16.0],
            [64.0, 512.0, 8.0, 256.0],
            [1.0, 1.0, 8.0, 1.0],
        ],
    ),
];
