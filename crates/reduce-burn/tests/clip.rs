//! Clipping made of Burn's own operations on burn-flex, against a loop of them; clipped gradients
//! of a module; and the errors of all backends.

use std::panic::{AssertUnwindSafe, catch_unwind};

// The derive macro names the crate so.
use burn_core as burn;
use burn_core::module::Module;
use burn_nn::{Linear, LinearConfig};
use burn_optim::GradientsParams;
use burn_tensor::{DType, Device, Tensor, TensorData};
use reduce_burn::{clip_by_global_norm, clip_gradients};

/// Tensors of these shapes, whose elements are between -1 and 1.
fn tensors(shapes: &[[usize; 2]], dtype: DType, device: &Device) -> Vec<Tensor<2>> {
    let tensor = |&[rows, columns]: &[usize; 2]| {
        let elements = (0..rows * columns).map(|n| ((n * 7 + rows) % 13) as f32 / 6.0 - 1.0);
        let data = TensorData::new(elements.collect::<Vec<_>>(), [rows, columns]);
        Tensor::from_data(data.convert_dtype(dtype), (device, dtype))
    };
    shapes.iter().map(tensor).collect()
}

/// The norm of all tensors in a loop over them.
fn norm_in_a_loop(tensors: &[Tensor<2>]) -> f64 {
    let squares = tensors.iter().map(|tensor| {
        let x = tensor.clone().cast(DType::F32);
        (x.clone() * x).sum().into_data().iter::<f64>().sum::<f64>()
    });
    squares.sum::<f64>().sqrt()
}

fn assert_close(found: TensorData, expected: TensorData, relative: f64) {
    assert_eq!(found.shape(), expected.shape());
    assert_eq!(found.dtype(), expected.dtype());
    for (found, expected) in found.iter::<f64>().zip(expected.iter::<f64>()) {
        let error = (found - expected).abs();
        assert!(error <= relative * expected.abs().max(1e-3), "{found} is not {expected}");
    }
}

fn compare(dtype: DType, relative: f64) {
    let shapes = [[5, 4], [1, 1], [0, 3], [17, 33]];
    let inputs = tensors(&shapes, dtype, &Device::flex());
    let expected_norm = norm_in_a_loop(&inputs);
    for max_norm in [0.5, expected_norm * 0.99, expected_norm * 1.01, 1e3] {
        let (clipped, norm) = clip_by_global_norm(inputs.clone(), max_norm);
        let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let expected = TensorData::new(vec![expected_norm], [1]).convert_dtype(wide);
        assert_close(norm.into_data(), expected, 1e-5);
        assert_eq!(clipped.len(), inputs.len());
        let factor = (max_norm / (expected_norm + 1e-6)).min(1.0);
        for (clipped, input) in clipped.into_iter().zip(&inputs) {
            let expected = (input.clone().cast(DType::F32) * factor).cast(dtype);
            assert_close(clipped.into_data(), expected.into_data(), relative);
        }
    }
}

#[test]
fn as_a_loop_of_burns_operations() {
    compare(DType::F32, 1e-5);
    compare(DType::F64, 1e-5);
    compare(DType::F16, 2e-3);
    compare(DType::BF16, 1e-2);
}

/// A sum of squares of f16 would overflow.
#[test]
fn norms_of_narrow_types_are_wide() {
    let x = Tensor::<2>::full([100, 100], 200.0, (&Device::flex(), DType::F16));
    let (clipped, norm) = clip_by_global_norm(vec![x], 1.0);
    assert_eq!(norm.into_data(), TensorData::from([20000.0f32]));
    assert!(clipped[0].to_data().iter::<f32>().all(|x| (x - 0.01).abs() < 1e-4));
}

#[test]
fn norms_that_are_not_finite() {
    let device = Device::flex();
    let of = |x: f32| {
        let tensors = vec![Tensor::<1>::from_data([1.0, x], &device), Tensor::ones([2], &device)];
        let (clipped, norm) = clip_by_global_norm(tensors, 1.0);
        let elements: Vec<f32> =
            clipped.into_iter().flat_map(|x| x.into_data().iter().collect::<Vec<f32>>()).collect();
        (elements, norm.into_scalar::<f32>())
    };
    let (elements, norm) = of(f32::NAN);
    assert!(norm.is_nan() && elements.iter().all(|x| x.is_nan()), "{elements:?}");
    let (elements, norm) = of(f32::INFINITY);
    assert_eq!(norm, f32::INFINITY);
    assert!(elements[1].is_nan());
    assert_eq!([elements[0], elements[2], elements[3]], [0.0; 3]);
}

#[test]
fn without_elements_the_norm_is_0() {
    let empty = Tensor::<2>::empty([0, 3], &Device::flex());
    let (clipped, norm) = clip_by_global_norm(vec![empty.clone(), empty], 1.0);
    assert_eq!(norm.into_scalar::<f32>(), 0.0);
    assert!(clipped.iter().all(|x| x.dims() == [0, 3]));
}

#[test]
fn errors_name_the_function_and_the_value() {
    let message = |tensors: Vec<Tensor<2>>, max_norm: f64| -> String {
        let call = AssertUnwindSafe(|| clip_by_global_norm(tensors, max_norm));
        let panic = catch_unwind(call).expect_err("the call panics");
        *panic.downcast().expect("the message is formatted")
    };
    let x = || tensors(&[[2, 3]], DType::F32, &Device::flex());
    for max_norm in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let expected = format!(
            "`clip_by_global_norm` of 1 tensors: `clip_by_global_norm`: max_norm is {max_norm}, \
             but must be a finite number above 0"
        );
        assert_eq!(message(x(), max_norm), expected);
    }
    assert_eq!(
        message(Vec::new(), 1.0),
        "`clip_by_global_norm` of 0 tensors: `clip_by_global_norm` takes one tensor at least"
    );
}

/// The gradient of a weighted sum of clipped tensors is that of the formula in Burn's operations.
#[test]
fn gradients_pass_through_clipping() {
    for max_norm in [0.5, 100.0] {
        let gradients = |by_formula: bool| -> Vec<TensorData> {
            let leaves = tensors(&[[3, 4], [2, 5]], DType::F32, &Device::flex().autodiff());
            let leaves: Vec<_> = leaves.into_iter().map(Tensor::require_grad).collect();
            let clipped = if by_formula {
                let squares = leaves.iter().map(|x| (x.clone() * x.clone()).sum());
                let norm =
                    squares.reduce(|total, part| total + part).expect("there are two").sqrt();
                let factor = ((norm + 1e-6).recip() * max_norm).clamp_max(1.0);
                leaves.iter().map(|x| x.clone() * factor.clone().unsqueeze()).collect()
            } else {
                clip_by_global_norm(leaves.clone(), max_norm).0
            };
            let total = clipped[0].clone().exp().sum() + (clipped[1].clone() * 2.0).exp().sum();
            let found = total.backward();
            leaves.iter().map(|x| x.grad(&found).expect("it is tracked").into_data()).collect()
        };
        for (found, expected) in gradients(false).into_iter().zip(gradients(true)) {
            assert_close(found, expected, 1e-4);
        }
    }
}

/// All elements of tensors that are 0 have a gradient.
#[test]
fn gradients_at_zero_are_finite() {
    let x = Tensor::<1>::zeros([4], &Device::flex().autodiff()).require_grad();
    let (clipped, _) = clip_by_global_norm(vec![x.clone()], 1.0);
    let gradients = clipped[0].clone().sum().backward();
    let gradient = x.grad(&gradients).expect("it is tracked");
    assert_eq!(gradient.into_data(), TensorData::from([1.0f32; 4]));
}

#[derive(Module, Debug)]
struct TwoLayers {
    first: Linear,
    second: Linear,
    unused: Linear,
}

impl TwoLayers {
    fn new(device: &Device) -> Self {
        let linear = |inputs, outputs| LinearConfig::new(inputs, outputs).init(device);
        Self { first: linear(6, 5), second: linear(5, 3), unused: linear(2, 2) }
    }

    fn loss(&self, x: Tensor<2>) -> Tensor<1> {
        let y = self.second.forward(self.first.forward(x).tanh());
        (y.clone() * y * 10.0).sum()
    }

    /// The gradients of the parameters that take part, in the order of the module.
    fn of(&self, gradients: &GradientsParams) -> Vec<TensorData> {
        let layers = [&self.first, &self.second];
        let of_layer = |layer: &&Linear| {
            let bias = layer.bias.as_ref().expect("the layers have a bias");
            let weight = gradients.get::<2>(layer.weight.id);
            let bias = gradients.get::<1>(bias.id);
            [weight.expect("there is one").into_data(), bias.expect("there is one").into_data()]
        };
        layers.iter().flat_map(of_layer).collect()
    }
}

#[test]
fn gradients_of_a_module() {
    let device = Device::flex().autodiff();
    let module = TwoLayers::new(&device);
    let x = || tensors(&[[7, 6]], DType::F32, &device).remove(0);
    let gradients = || GradientsParams::from_grads(module.loss(x()).backward(), &module);
    let before = module.of(&gradients());
    let squares = before.iter().flat_map(|data| data.iter::<f64>()).map(|x| x * x);
    let expected_norm = squares.sum::<f64>().sqrt();
    for max_norm in [expected_norm / 3.0, expected_norm * 2.0] {
        let (clipped, norm) = clip_gradients(&module, gradients(), max_norm);
        assert_eq!(clipped.len(), 4);
        let norm = f64::from(norm.into_scalar::<f32>());
        assert!((norm - expected_norm).abs() <= 1e-5 * expected_norm, "{norm}");
        let factor = (max_norm / (expected_norm + 1e-6)).min(1.0);
        for (found, before) in module.of(&clipped).into_iter().zip(&before) {
            let expected: Vec<f32> = before.iter::<f64>().map(|x| (x * factor) as f32).collect();
            assert_close(found, TensorData::new(expected, before.shape().clone()), 1e-4);
        }
    }
}

#[test]
fn gradients_of_other_modules_stay() {
    let device = Device::flex().autodiff();
    let module = TwoLayers::new(&device);
    let x = tensors(&[[7, 6]], DType::F32, &device).remove(0);
    let gradients = GradientsParams::from_grads(module.loss(x).backward(), &module);
    let before = module.of(&gradients);
    let (gradients, norm) = clip_gradients(&module.unused, gradients, 1e-3);
    assert_eq!(norm.into_scalar::<f32>(), 0.0);
    let (gradients, _) = clip_gradients(&module.first, gradients, 1e-3);
    let after = module.of(&gradients);
    assert!(after[..2].iter().zip(&before[..2]).all(|(after, before)| after != before));
    assert_eq!(after[2..], before[2..]);
}
