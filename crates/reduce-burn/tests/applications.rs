//! Softmax and normalisations, made of Burn's own operations on burn-flex, against their
//! definitions in f64; and the errors of all backends.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn_dispatch::Dispatch;
use burn_tensor::{DType, Device, Tensor, TensorData};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_burn::{
    backend::*,
    pairs::{add_layer_norm, add_rms_norm, masked_log_softmax, masked_softmax},
    *,
};

/// The shape in memory. The tensors are permuted: their axes are not those of the memory.
const STORED: [usize; 3] = [7, 3, 5];
const ORDER: [usize; 3] = [1, 2, 0];
const SHAPE: [usize; 3] = [3, 5, 7];

/// Lists of axes, and the same counted from 0.
const AXES: [(&[i64], &[usize]); 6] = [
    (&[2], &[2]),
    (&[0], &[0]),
    (&[-2], &[1]),
    (&[-1, 0], &[0, 2]),
    (&[2, 0, 1], &[0, 1, 2]),
    (&[], &[]),
];

/// The definition of a function, of the elements of one slice, without weight and bias.
fn definition(function: AppliedFunction, slice: &[f64]) -> Vec<f64> {
    let len = slice.len() as f64;
    let largest = slice.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exponentials = || slice.iter().map(|x| (x - largest).exp());
    let squares = |origin: f64| slice.iter().map(|x| (x - origin).powi(2)).sum::<f64>();
    match function {
        AppliedFunction::Softmax => {
            let sum: f64 = exponentials().sum();
            exponentials().map(|x| x / sum).collect()
        }
        AppliedFunction::LogSoftmax => {
            let log = exponentials().sum::<f64>().ln();
            slice.iter().map(|x| x - largest - log).collect()
        }
        AppliedFunction::LayerNorm { eps } => {
            let mean = slice.iter().sum::<f64>() / len;
            let divisor = (squares(mean) / len + eps).sqrt();
            slice.iter().map(|x| (x - mean) / divisor).collect()
        }
        AppliedFunction::RmsNorm { eps } => {
            let divisor = (squares(0.0) / len + eps).sqrt();
            slice.iter().map(|x| x / divisor).collect()
        }
        other => panic!("`{other}` has no definition here"),
    }
}

/// Indices of the elements of [`SHAPE`], in row-major order.
fn indices() -> impl Iterator<Item = [usize; 3]> {
    let [a, b, c] = SHAPE;
    (0..a * b * c).map(move |n| [n / (b * c), n / c % b, n % c])
}

/// The place of an index in a row-major tensor that broadcasts to [`SHAPE`].
fn place(index: [usize; 3], shape: [usize; 3]) -> usize {
    index.iter().zip(shape).fold(0, |place, (&n, extent)| place * extent + n.min(extent - 1))
}

/// The shape of an operand that has size 1 along the axes that are, or are not, among `axes`.
fn operand_shape(axes: &[usize], along: bool) -> [usize; 3] {
    core::array::from_fn(|axis| if axes.contains(&axis) == along { SHAPE[axis] } else { 1 })
}

/// A function of row-major elements, times a weight plus a bias of `operand_shape`.
fn expected(
    function: AppliedFunction,
    elements: &[f64],
    axes: &[usize],
    operands: Option<(&[f64], &[f64], [usize; 3])>,
) -> Vec<f64> {
    let mut result = vec![0.0; elements.len()];
    let kept = |index: [usize; 3]| -> [usize; 3] {
        core::array::from_fn(|axis| if axes.contains(&axis) { 0 } else { index[axis] })
    };
    for first in indices().filter(|&index| kept(index) == index) {
        let places: Vec<usize> = indices()
            .filter(|&index| kept(index) == first)
            .map(|index| place(index, SHAPE))
            .collect();
        let slice: Vec<f64> = places.iter().map(|&place| elements[place]).collect();
        for (place, value) in places.into_iter().zip(definition(function, &slice)) {
            result[place] = value;
        }
    }
    if let Some((weight, bias, shape)) = operands {
        for index in indices() {
            let own = place(index, shape);
            let value = &mut result[place(index, SHAPE)];
            *value = *value * weight[own] + bias[own];
        }
    }
    result
}

/// Row-major elements as a tensor that is not row-major.
fn tensor(elements: &[f64], dtype: DType) -> Tensor<3> {
    let data = TensorData::new(elements.to_vec(), SHAPE).convert_dtype(dtype);
    let row_major = Tensor::<3>::from_data(data, (&Device::flex(), dtype));
    let mut back = [0; 3];
    ORDER.iter().enumerate().for_each(|(axis, &stored)| back[stored] = axis as isize);
    let data = row_major.permute(back).into_data();
    assert_eq!(data.shape().to_vec(), STORED);
    let stored = Tensor::<3>::from_data(data, (&Device::flex(), dtype));
    stored.permute(ORDER.map(|axis| axis as isize))
}

fn operand(elements: &[f64], shape: [usize; 3], dtype: DType) -> Tensor<3> {
    let data = TensorData::new(elements.to_vec(), shape).convert_dtype(dtype);
    Tensor::from_data(data, (&Device::flex(), dtype))
}

fn assert_close(found: Tensor<3>, expected: &[f64], relative: f64, case: &str) {
    assert_eq!(found.dims(), SHAPE, "{case}");
    let found: Vec<f64> = found.into_data().iter::<f64>().collect();
    for (n, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let close = found == expected
            || found.is_nan() && expected.is_nan()
            || (found - expected).abs() <= relative * expected.abs().max(1.0);
        assert!(close, "{case}: element {n} is {found}, not {expected}");
    }
}

fn random(seed: u64, count: usize) -> Vec<f64> {
    let mut random = StdRng::seed_from_u64(seed);
    (0..count).map(|_| random.random_range(-2.0..2.0)).collect()
}

/// The elements as a type holds them.
fn rounded(elements: &[f64], dtype: DType) -> Vec<f64> {
    let data = TensorData::new(elements.to_vec(), [elements.len()]);
    data.convert_dtype(dtype).iter::<f64>().collect()
}

#[test]
fn every_function_is_its_definition() {
    let count = SHAPE.iter().product();
    for (dtype, relative) in
        [(DType::F64, 1e-12), (DType::F32, 1e-5), (DType::F16, 4e-3), (DType::BF16, 3e-2)]
    {
        let elements = rounded(&random(1, count), dtype);
        let x = || tensor(&elements, dtype);
        for (axes, resolved) in AXES {
            let case = |name: &str| format!("{name} over {axes:?} in {dtype:?}");
            let of = |function| expected(function, &elements, resolved, None);
            let check = |name: &str, found: Tensor<3>, expected: &[f64]| {
                assert_eq!(found.dtype(), dtype);
                assert_close(found, expected, relative, &case(name));
            };
            check("softmax", softmax(x(), axes), &of(AppliedFunction::Softmax));
            check("log_softmax", log_softmax(x(), axes), &of(AppliedFunction::LogSoftmax));
            // Of one element, the deviation is 0: eps keeps it from 0 / 0.
            let layer = AppliedFunction::LayerNorm { eps: 1e-3 };
            check("layer_norm", layer_norm(x(), axes, None, None, 1e-3), &of(layer));
            let rms = AppliedFunction::RmsNorm { eps: 1e-3 };
            check("rms_norm", rms_norm(x(), axes, None, 1e-3), &of(rms));
            for along in [true, false] {
                let shape = operand_shape(resolved, along);
                let len = shape.iter().product();
                let weight = rounded(&random(2, len), dtype);
                let bias = rounded(&random(3, len), dtype);
                let (ones, zeros) = (vec![1.0; len], vec![0.0; len]);
                let with = |weight: &[f64], bias: &[f64], function| {
                    expected(function, &elements, resolved, Some((weight, bias, shape)))
                };
                let w = || Some(operand(&weight, shape, dtype));
                let b = || Some(operand(&bias, shape, dtype));
                check(
                    "layer_norm with weight and bias",
                    layer_norm(x(), axes, w(), b(), 1e-3),
                    &with(&weight, &bias, layer),
                );
                check(
                    "layer_norm with weight",
                    layer_norm(x(), axes, w(), None, 1e-3),
                    &with(&weight, &zeros, layer),
                );
                check(
                    "layer_norm with bias",
                    layer_norm(x(), axes, None, b(), 1e-3),
                    &with(&ones, &bias, layer),
                );
                check(
                    "rms_norm with weight",
                    rms_norm(x(), axes, w(), 1e-3),
                    &with(&weight, &zeros, rms),
                );
            }
        }
    }
}

/// Both results of a function that adds a residual, which may be repeated along axes.
#[test]
fn sums_and_their_normalisations() {
    for (dtype, relative) in
        [(DType::F64, 1e-12), (DType::F32, 1e-5), (DType::F16, 4e-3), (DType::BF16, 3e-2)]
    {
        let elements = rounded(&random(8, SHAPE.iter().product()), dtype);
        for ((axes, resolved), shape) in
            AXES.into_iter().flat_map(|axes| [SHAPE, [1, 5, 7]].map(|shape| (axes, shape)))
        {
            let residual = rounded(&random(9, shape.iter().product()), dtype);
            let sums: Vec<f64> = indices()
                .map(|index| elements[place(index, SHAPE)] + residual[place(index, shape)])
                .collect();
            let own = operand_shape(resolved, true);
            let len = own.iter().product();
            let weight = rounded(&random(2, len), dtype);
            let bias = rounded(&random(3, len), dtype);
            let (ones, zeros) = (vec![1.0; len], vec![0.0; len]);
            let of = |function, weight: &[f64], bias: &[f64]| {
                expected(function, &sums, resolved, Some((weight, bias, own)))
            };
            let (x, r) = (|| tensor(&elements, dtype), || operand(&residual, shape, dtype));
            let w = || Some(operand(&weight, own, dtype));
            let b = || Some(operand(&bias, own, dtype));
            let layer = AppliedFunction::LayerNorm { eps: 1e-3 };
            let rms = AppliedFunction::RmsNorm { eps: 1e-3 };
            let cases = [
                (add_layer_norm(x(), r(), axes, None, None, 1e-3), of(layer, &ones, &zeros)),
                (add_layer_norm(x(), r(), axes, w(), b(), 1e-3), of(layer, &weight, &bias)),
                (add_layer_norm(x(), r(), axes, None, b(), 1e-3), of(layer, &ones, &bias)),
                (add_rms_norm(x(), r(), axes, None, 1e-3), of(rms, &ones, &zeros)),
                (add_rms_norm(x(), r(), axes, w(), 1e-3), of(rms, &weight, &zeros)),
            ];
            for (nth, ((sum, normalized), expected)) in cases.into_iter().enumerate() {
                let case = format!("case {nth} over {axes:?} in {dtype:?}, residual of {shape:?}");
                assert_eq!([sum.dtype(), normalized.dtype()], [dtype; 2], "{case}");
                assert_close(sum, &sums, relative, &format!("sum of {case}"));
                assert_close(normalized, &expected, relative, &case);
            }
        }
    }
}

/// A sum of large halves is normalised before it is rounded, and a residual may be of f64.
#[test]
fn residuals_of_another_type() {
    let [elements, residual] = [10, 11].map(|seed| random(seed, SHAPE.iter().product()));
    let (wide, narrow) = (DType::F32, DType::F16);
    for [own, other] in [[wide, narrow], [narrow, wide], [wide, DType::F64]] {
        let (elements, residual) = (rounded(&elements, own), rounded(&residual, other));
        let sums: Vec<f64> = elements.iter().zip(&residual).map(|(x, r)| x + r).collect();
        let x = tensor(&elements, own);
        let (sum, normalized) = add_rms_norm(x, operand(&residual, SHAPE, other), 2, None, 0.0);
        assert_eq!([sum.dtype(), normalized.dtype()], [own; 2]);
        let of_sums = expected(AppliedFunction::RmsNorm { eps: 0.0 }, &sums, &[2], None);
        assert_close(sum, &sums, 2e-3, "sum");
        assert_close(normalized, &of_sums, 2e-3, "normalised sum");
    }
    let halves = || operand(&[60000.0; 105], SHAPE, narrow);
    let (sum, normalized) = add_rms_norm(halves(), halves(), 2, None, 0.0);
    assert!(sum.into_data().iter::<f32>().all(f32::is_infinite));
    assert_close(normalized, &[1.0; 105], 1e-3, "normalised sum of large halves");
}

/// Scaled elements plus a mask that is repeated along axes, with infinities in it.
#[test]
fn softmax_of_masked_elements() {
    for (dtype, relative) in
        [(DType::F64, 1e-12), (DType::F32, 1e-5), (DType::F16, 6e-3), (DType::BF16, 4e-2)]
    {
        let elements = rounded(&random(12, SHAPE.iter().product()), dtype);
        for ((axes, resolved), shape) in
            AXES.into_iter().flat_map(|axes| [SHAPE, [1, 5, 7]].map(|shape| (axes, shape)))
        {
            let mut mask = rounded(&random(13, shape.iter().product()), dtype);
            mask.iter_mut().step_by(3).for_each(|element| *element = f64::NEG_INFINITY);
            for scale in [0.25, -1.5, 0.0] {
                let score =
                    |index| scale * elements[place(index, SHAPE)] + mask[place(index, shape)];
                let scores: Vec<f64> = indices().map(score).collect();
                let (x, m) = (tensor(&elements, dtype), operand(&mask, shape, dtype));
                let shares = masked_softmax(x.clone(), axes, scale, m.clone());
                let logarithms = masked_log_softmax(x, axes, scale, m);
                let case = format!("{scale}, {axes:?}, {dtype:?}, mask of {shape:?}");
                assert_eq!([shares.dtype(), logarithms.dtype()], [dtype; 2], "{case}");
                let of = |function| expected(function, &scores, resolved, None);
                assert_close(shares, &of(AppliedFunction::Softmax), relative, &case);
                assert_close(logarithms, &of(AppliedFunction::LogSoftmax), relative, &case);
            }
        }
    }
}

/// One slice of each kind.
#[test]
fn nan_infinities_and_equal_elements() {
    const NAN: f64 = f64::NAN;
    const INF: f64 = f64::INFINITY;

    let starts = [
        [NAN, 1.0, 2.0],
        [INF, 1.0, 2.0],
        [-INF, 1.0, 2.0],
        [INF, -INF, 2.0],
        [-INF, -INF, -INF],
        [INF, INF, INF],
        [0.0, 0.0, 0.0],
        [-1.5, -1.5, -1.5],
    ];
    for start in starts {
        // The last element of a start fills the slice.
        let element = |[_, _, n]: [usize; 3]| start[n.min(2)];
        let elements: Vec<f64> = indices().map(element).collect();
        let x = || tensor(&elements, DType::F32);
        for eps in [1e-3, 0.0] {
            let of = |function| expected(function, &elements, &[2], None);
            let case = |name: &str| format!("{name} of {start:?} with eps {eps}");
            let softmaxes = [
                (softmax(x(), 2), AppliedFunction::Softmax),
                (log_softmax(x(), 2), AppliedFunction::LogSoftmax),
                (layer_norm(x(), 2, None, None, eps), AppliedFunction::LayerNorm { eps }),
                (rms_norm(x(), 2, None, eps), AppliedFunction::RmsNorm { eps }),
            ];
            for (found, function) in softmaxes {
                assert_close(found, &of(function), 1e-5, &case(function.name()));
            }
        }
    }
}

/// The magnitudes at which squares and exponentials overflow or vanish.
#[test]
fn extreme_magnitudes() {
    for scale in [1e20, 1e-25, 1e3] {
        let elements: Vec<f64> =
            random(4, SHAPE.iter().product()).into_iter().map(|x| x * scale).collect();
        let elements = rounded(&elements, DType::F32);
        let x = || tensor(&elements, DType::F32);
        let of = |function| expected(function, &elements, &[0, 2], None);
        let norms = [
            (layer_norm(x(), [0, 2], None, None, 0.0), AppliedFunction::LayerNorm { eps: 0.0 }),
            (rms_norm(x(), [0, 2], None, 0.0), AppliedFunction::RmsNorm { eps: 0.0 }),
            (softmax(x(), [0, 2]), AppliedFunction::Softmax),
            (log_softmax(x(), [0, 2]), AppliedFunction::LogSoftmax),
        ];
        for (found, function) in norms {
            assert_close(found, &of(function), 1e-5, &format!("{function} at {scale}"));
        }
    }
}

/// Weights of f32 for a tensor of f16, as in training in mixed precision.
#[test]
fn operands_of_another_type() {
    let elements = rounded(&random(5, SHAPE.iter().product()), DType::F16);
    let shape = operand_shape(&[2], true);
    let [weight, bias] = [6, 7].map(|seed| rounded(&random(seed, SHAPE[2]), DType::F32));
    let found = layer_norm(
        tensor(&elements, DType::F16),
        -1,
        Some(operand(&weight, shape, DType::F32)),
        Some(operand(&bias, shape, DType::F32)),
        1e-5,
    );
    assert_eq!(found.dtype(), DType::F16);
    let function = AppliedFunction::LayerNorm { eps: 1e-5 };
    let expected = expected(function, &elements, &[2], Some((&weight, &bias, shape)));
    assert_close(found, &expected, 2e-3, "layer_norm of f16 with a weight of f32");
}

#[test]
fn nothing_to_apply_to() {
    let empty = || Tensor::<2>::empty([3, 0], &Device::flex());
    assert_eq!(softmax(empty(), 1).dims(), [3, 0]);
    assert_eq!(log_softmax(empty(), 0).dims(), [3, 0]);
    assert_eq!(rms_norm(empty(), .., None, 0.0).dims(), [3, 0]);
    let weight = Tensor::<2>::ones([1, 1], &Device::flex());
    assert_eq!(layer_norm(empty(), 1, Some(weight), None, 0.0).dims(), [3, 0]);
    assert_eq!(masked_softmax(empty(), 1, 1.0, empty()).dims(), [3, 0]);
    let (sum, normalized) = add_rms_norm(empty(), empty(), 1, None, 0.0);
    assert_eq!([sum.dims(), normalized.dims()], [[3, 0]; 2]);
}

fn message<T>(call: impl FnOnce() -> T) -> String {
    let Err(panic) = catch_unwind(AssertUnwindSafe(call)) else { panic!("expected a panic") };
    *panic.downcast::<String>().expect("the message has values")
}

fn each_mistake_has_its_message(device: Device) {
    let x = || Tensor::<2>::ones([2, 3], &device);
    let one = |shape: [usize; 2]| Some(Tensor::<2>::ones(shape, &device));
    let of_shape = "of a tensor of shape [2, 3]";
    let cases = [
        (
            message(|| softmax(x(), 2)),
            format!("`softmax` {of_shape}: axis 2 is out of range for a tensor of rank 2"),
        ),
        (
            message(|| log_softmax(x(), [1, -1])),
            format!(
                "`log_softmax` {of_shape}: axis -1 of a tensor of rank 2 is given more than once"
            ),
        ),
        (
            message(|| layer_norm(x(), 1, one([1, 4]), None, 1e-5)),
            format!(
                "`layer_norm` {of_shape}: the weight has shape [1, 4]: it must have rank 2, and \
                 along each axis of [2, 3] that extent or 1"
            ),
        ),
        (
            message(|| layer_norm(x(), 1, None, one([3, 1]), 1e-5)),
            format!(
                "`layer_norm` {of_shape}: the bias has shape [3, 1]: it must have rank 2, and \
                 along each axis of [2, 3] that extent or 1"
            ),
        ),
        (
            message(|| add_layer_norm(x(), one([3, 3]).unwrap(), 1, None, None, 1e-5)),
            format!(
                "`add_layer_norm` {of_shape}: the residual has shape [3, 3]: it must have rank 2, \
                 and along each axis of [2, 3] that extent or 1"
            ),
        ),
        (
            message(|| masked_softmax(x(), 1, 1.0, one([2, 2]).unwrap())),
            format!(
                "`masked_softmax` {of_shape}: the mask has shape [2, 2]: it must have rank 2, and \
                 along each axis of [2, 3] that extent or 1"
            ),
        ),
        (
            message(|| masked_log_softmax(x(), 1, f64::INFINITY, x())),
            format!("`masked_log_softmax` {of_shape}: `masked_log_softmax`: scale"),
        ),
        (
            message(|| add_rms_norm(x(), x(), 1, None, -1.0)),
            format!("`add_rms_norm` {of_shape}: `add_rms_norm`: eps"),
        ),
        (
            message(|| rms_norm(x(), 1, None, -1.0)),
            format!("`rms_norm` {of_shape}: `rms_norm`: eps"),
        ),
        (
            message(|| layer_norm(x(), 1, None, None, f64::NAN)),
            format!("`layer_norm` {of_shape}: `layer_norm`: eps"),
        ),
    ];
    for (found, expected) in cases {
        assert!(found.starts_with(&expected), "{found:?} is not {expected:?}");
    }
    let tensor = |shape: [usize; 2]| Tensor::<2>::ones(shape, &device).into_dispatch();
    let operands = [tensor([1, 3]), tensor([1, 3])];
    let rms = AppliedFunction::RmsNorm { eps: 0.0 };
    let error =
        Application::new::<Dispatch>(rms, &tensor([2, 3]), &AxisList::All, &operands).unwrap_err();
    assert_eq!(error.to_string(), "`rms_norm` takes 0 to 1 operands, and 2 were given");
    let without = AppliedFunction::AddRmsNorm { eps: 0.0 };
    let error =
        Application::new::<Dispatch>(without, &tensor([2, 3]), &AxisList::All, &[]).unwrap_err();
    assert_eq!(error.to_string(), "`add_rms_norm` takes 1 to 2 operands, and 0 were given");
}

#[test]
fn errors() {
    each_mistake_has_its_message(Device::flex());
    each_mistake_has_its_message(Device::flex().autodiff());
}
