//! Softmax and normalisations on devices, against burn-flex. Those of burn-flex are compared with
//! their definitions and with finite differences in `crates/reduce-burn/tests`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn_tensor::{DType, Device, Tensor, TensorData};
use rand::Rng;
use reduce_burn::{
    layer_norm, log_softmax,
    pairs::{add_layer_norm, add_rms_norm, masked_log_softmax, masked_softmax},
    rms_norm, softmax,
};

use crate::{
    contract::{message, too_large},
    inputs::{Cases, Layout, RANK},
    values::{assert_close, flex, has},
};

const NAMES: [&str; 11] = [
    "softmax",
    "log_softmax",
    "masked_softmax",
    "masked_log_softmax",
    "layer_norm",
    "layer_norm with weight",
    "layer_norm with both",
    "layer_norm with bias",
    "rms_norm with weight",
    "add_layer_norm with both",
    "add_rms_norm of a repeated residual",
];

/// A function by name. Some ignore the weight and the bias.
fn call(
    name: &str,
    x: Tensor<RANK>,
    axes: &[i64],
    weight: Tensor<RANK>,
    bias: Tensor<RANK>,
) -> Tensor<RANK> {
    const EPS: f64 = 1e-2;

    match name {
        "softmax" => softmax(x, axes),
        "log_softmax" => log_softmax(x, axes),
        // The bias is the mask.
        "masked_softmax" => masked_softmax(x, axes, 0.7, bias),
        "masked_log_softmax" => masked_log_softmax(x, axes, -0.7, bias),
        "layer_norm" => layer_norm(x, axes, None, None, EPS),
        "layer_norm with weight" => layer_norm(x, axes, Some(weight), None, EPS),
        "layer_norm with both" => layer_norm(x, axes, Some(weight), Some(bias), EPS),
        "layer_norm with bias" => layer_norm(x, axes, None, Some(bias), EPS),
        "rms_norm with weight" => rms_norm(x, axes, Some(weight), EPS),
        "add_layer_norm with both" => {
            let half = x.clone() * 0.5;
            let (sum, normalized) = add_layer_norm(half, x, axes, Some(weight), Some(bias), EPS);
            sum * 0.25 + normalized
        }
        "add_rms_norm of a repeated residual" => {
            let (sum, normalized) = add_rms_norm(x, bias, axes, Some(weight), EPS);
            sum * 0.25 + normalized
        }
        other => panic!("no function `{other}`"),
    }
}

/// A tensor in memory, its layout, and a weight and a bias of the same shape.
struct Case {
    layout: Layout,
    data: TensorData,
    operands: [TensorData; 2],
}

/// A random case. The operands have size 1 along the axes that are, or are not, reduced.
fn case(cases: &mut Cases, dtype: DType, along: bool) -> Case {
    let layout = cases.layout();
    let element = |random: &mut rand::rngs::StdRng| random.random_range(-2.0f32..2.0);
    let data = cases.data(&layout, element).convert_dtype(dtype);
    let shape = layout.of::<burn_tensor::Float>(&data, &flex()).dims();
    let is_reduced =
        |axis: usize| layout.axes.iter().any(|&own| own.rem_euclid(RANK as i64) == axis as i64);
    let own: [usize; RANK] =
        core::array::from_fn(|axis| if is_reduced(axis) == along { shape[axis] } else { 1 });
    let operands = [0.5f32, -1.0].map(|first| {
        let count = own.iter().product();
        let elements: Vec<f32> = (0..count).map(|n| first + (n % 5) as f32 * 0.25).collect();
        TensorData::new(elements, own).convert_dtype(dtype)
    });
    Case { layout, data, operands }
}

impl Case {
    fn result(&self, name: &str, device: &Device) -> Tensor<RANK> {
        let x = self.layout.of(&self.data, device);
        let operand = |data: &TensorData| Tensor::from_data(data.clone(), (device, data.dtype()));
        let [weight, bias] = self.operands.each_ref().map(operand);
        call(name, x, &self.layout.axes, weight, bias)
    }

    /// The gradients of a weighted sum of the result, at the tensor in memory and at the operands.
    fn gradients(&self, name: &str, device: &Device) -> Vec<TensorData> {
        let leaf = |data: &TensorData| {
            Tensor::<RANK>::from_data(data.clone(), (device, data.dtype())).require_grad()
        };
        let [weight, bias] = self.operands.each_ref().map(leaf);
        let leaves = [leaf(&self.data), weight, bias];
        let [x, weight, bias] = leaves.clone();
        let result = call(name, self.layout.arranged(x), &self.layout.axes, weight, bias);
        let count = result.shape().num_elements();
        let weights: Vec<f32> = (0..count).map(|n| 0.5 + (n % 7) as f32 * 0.25).collect();
        let weights = Tensor::from_data(TensorData::new(weights, result.dims()), device);
        let gradients = (result * weights).sum().backward();
        leaves
            .iter()
            .filter_map(|leaf| leaf.grad(&gradients))
            .map(|gradient| gradient.into_data())
            .collect()
    }
}

/// Every function over random layouts.
pub(crate) fn values(device: &Device) {
    let mut cases = Cases::new(11);
    for name in NAMES {
        for along in [true, false] {
            let case = case(&mut cases, DType::F32, along);
            let found = case.result(name, device).into_data();
            let expected = case.result(name, &flex()).into_data();
            assert_close(&found, &expected, 2e-5, &format!("{name} {:?}", case.layout));
        }
    }
}

/// Long odd rows and columns, and types other than f32.
pub(crate) fn lengths_and_types(device: &Device) {
    let types = [(DType::F32, 2e-5), (DType::F16, 4e-3), (DType::BF16, 3e-2)];
    for (dtype, relative) in types.into_iter().filter(|&(dtype, _)| has(device, dtype)) {
        for (shape, axis) in [([3, 1, 1, 5001], 3), ([2, 1027, 1, 37], 1)] {
            let count: usize = shape.iter().product();
            let elements: Vec<f32> = (0..count).map(|n| (n * 7919 % 1013) as f32 * 4e-3).collect();
            let data = TensorData::new(elements, shape).convert_dtype(dtype);
            let mut own = [1; RANK];
            own[axis] = shape[axis];
            let operand: Vec<f32> = (0..shape[axis]).map(|n| (n % 9) as f32 * 0.25).collect();
            // Weights of f32, whatever the tensor has.
            let operand = TensorData::new(operand, own);
            for name in
                ["softmax", "masked_softmax", "layer_norm with both", "add_layer_norm with both"]
            {
                fn result(
                    name: &str,
                    axis: usize,
                    [data, operand]: [&TensorData; 2],
                    device: &Device,
                ) -> TensorData {
                    let [x, operand] = [data, operand]
                        .map(|data| Tensor::from_data(data.clone(), (device, data.dtype())));
                    call(name, x, &[axis as i64], operand.clone(), operand).into_data()
                }
                let found = result(name, axis, [&data, &operand], device);
                let expected = result(name, axis, [&data, &operand], &flex());
                assert_eq!(found.dtype(), dtype);
                assert_close(&found, &expected, relative, &format!("{name} {shape:?} {dtype:?}"));
            }
        }
    }
}

/// Every gradient over random layouts.
pub(crate) fn gradients(device: &Device) {
    let mut cases = Cases::new(12);
    for (nth, name) in NAMES.into_iter().enumerate() {
        let case = case(&mut cases, DType::F32, nth % 2 == 0);
        let found = case.gradients(name, device);
        let expected = case.gradients(name, &flex().autodiff());
        assert_eq!(found.len(), expected.len(), "{name}");
        for (input, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let case = format!("gradient {input} of {name}, {:?}", case.layout);
            assert_close(found, expected, 5e-4, &case);
        }
    }
}

/// The gradient of a log-softmax of f16, which is computed again in f32.
pub(crate) fn gradients_of_narrow_types(device: &Device) {
    fn gradient(device: &Device) -> TensorData {
        let row: Vec<f32> = (0..61).map(|n| 100.0 + (n % 3) as f32 * 4.0).collect();
        let data = TensorData::new(row, [1, 61]).convert_dtype(DType::F16);
        let x = Tensor::<2>::from_data(data, (device, DType::F16)).require_grad();
        let first = log_softmax(x.clone(), 1).slice([0..1, 0..1]);
        x.grad(&first.backward()).expect("the tensor is tracked").into_data()
    }

    if has(device, DType::F16) {
        let expected = gradient(&flex().autodiff());
        assert_close(&gradient(device), &expected, 1e-3, "gradient of log_softmax of f16");
    }
}

/// Each mistake is found when the function is called, with a message that names the values.
pub(crate) fn errors_before_launch(device: &Device) {
    let x = || Tensor::<2>::ones([2, 3], device);
    let wrong = || Some(Tensor::<2>::ones([1, 4], device));
    let cases = [
        (
            message(|| softmax(x(), 2)),
            "`softmax` of a tensor of shape [2, 3]: axis 2 is out of range for a tensor of rank 2",
        ),
        (
            message(|| layer_norm(x(), 1, wrong(), None, 1e-5)),
            "`layer_norm` of a tensor of shape [2, 3]: the weight has shape [1, 4]: it must have \
             rank 2, and along each axis of [2, 3] that extent or 1",
        ),
        (
            message(|| add_rms_norm(x(), wrong().unwrap(), 1, None, 1e-5)),
            "`add_rms_norm` of a tensor of shape [2, 3]: the residual has shape [1, 4]: it must \
             have rank 2, and along each axis of [2, 3] that extent or 1",
        ),
        (
            message(|| masked_softmax(x(), 1, f64::NAN, x())),
            "`masked_softmax` of a tensor of shape [2, 3]: `masked_softmax`: scale",
        ),
        (
            message(|| rms_norm(x(), 1, None, -1.0)),
            "`rms_norm` of a tensor of shape [2, 3]: `rms_norm`: eps",
        ),
    ];
    for (found, expected) in cases {
        assert!(found.starts_with(expected), "{found:?} is not {expected:?}");
    }
    if let Some(large) = too_large(device) {
        // The reduction alone fits.
        let found = message(|| softmax(large, 1));
        let expected = "`softmax` of a tensor of shape [32768, 32768]: the result takes 4294967296";
        assert!(found.starts_with(expected), "{found:?} is not {expected:?}");
    }
    if !has(device, DType::F64) {
        return;
    }
    // Burn says so of devices whose kernels do not compute with f64: the call is refused then.
    let wide = TensorData::from([[1.0f64; 3]; 2]);
    let wide = Tensor::<2>::from_data(wide, (device, DType::F64));
    let weight = Tensor::<2>::from_data([[2.0f64; 3]], (device, DType::F64));
    let call = || {
        let softmax = softmax(wide.clone(), 1);
        (softmax, rms_norm(wide, -1, Some(weight), 0.0))
    };
    if let Ok((softmax, norm)) = catch_unwind(AssertUnwindSafe(call)) {
        let close = |found: Tensor<2>, expected: f64| {
            let found: Vec<f64> = found.into_data().iter::<f64>().collect();
            assert!(found.iter().all(|found| (found - expected).abs() < 1e-12), "{found:?}");
        };
        close(softmax, 1.0 / 3.0);
        close(norm, 2.0);
    }
}

/// A function of no elements, and results that are used by fused operations.
pub(crate) fn between_operations(device: &Device) {
    let x = Tensor::<2>::from_data([[0.0f32, 1.0, 2.0], [3.0, 3.0, 3.0]], device);
    // The same tensor is the input and the weight.
    let doubled = x.clone() * 2.0;
    let found = rms_norm(doubled.clone(), 1, Some(doubled.clone()), 0.0) + doubled;
    let root = (20.0f32 / 3.0).sqrt();
    let first = [0.0, 4.0 / root + 2.0, 16.0 / root + 4.0];
    let expected = TensorData::from([first, [12.0; 3]]);
    assert_close(&found.into_data(), &expected, 1e-5, "rms_norm between operations");
    let empty = Tensor::<2>::empty([3, 0], device);
    assert_eq!(softmax(empty, 1).dims(), [3, 0]);
}
