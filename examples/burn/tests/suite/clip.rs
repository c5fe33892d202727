//! Clipping by the global norm on devices, against a loop of Burn's own operations.

use burn_backend::{TensorMetadata, tensor::FloatTensor};
// The derive macro names the crate so.
use burn_core as burn;
use burn_core::module::Module;
use burn_dispatch::Dispatch;
#[cfg(feature = "fusion")]
use burn_fusion::inspect::FusionInspector;
#[cfg(feature = "fusion")]
use burn_ir::OperationIr;
use burn_nn::{Linear, LinearConfig};
use burn_optim::GradientsParams;
#[cfg(feature = "fusion")]
use burn_tensor::StreamId;
use burn_tensor::{DType, Device, Tensor, TensorData};
use reduce_burn::{
    backend::{AnyTensor, Clipping, Operation, ReduceBackend},
    clip_by_global_norm, clip_gradients,
};

use crate::{
    contract::{message, too_large},
    values::{assert_close, flex, has, read},
};

/// Elements between -1 and 1.
fn tensor<const D: usize>(shape: [usize; D], dtype: DType, device: &Device) -> Tensor<D> {
    let count: usize = shape.iter().product();
    let elements = (0..count).map(|n| ((n * 7 + count) % 13) as f32 / 6.0 - 1.0);
    let data = TensorData::new(elements.collect::<Vec<_>>(), shape);
    Tensor::from_data(data.convert_dtype(dtype), (device, dtype))
}

fn primitive<const D: usize>(tensor: Tensor<D>) -> FloatTensor<Dispatch> {
    tensor.into_dispatch()
}

/// The place in [`list`] of a tensor that repeats its elements.
const REPEATED: usize = 4;

/// Tensors of several ranks, some not row-major, some without elements.
fn list(dtype: DType, device: &Device) -> Vec<FloatTensor<Dispatch>> {
    let mut list = vec![
        primitive(tensor::<1>([1000], dtype, device)),
        primitive(tensor::<2>([33, 65], dtype, device).transpose()),
        primitive(tensor::<4>([8, 4, 3, 3], dtype, device)),
        primitive(tensor::<3>([4, 6, 5], dtype, device).slice([1..3, 2..5])),
        primitive(tensor::<2>([1, 7], dtype, device).expand([3, 7])),
        primitive(Tensor::<2>::empty([0, 3], (device, dtype))),
    ];
    // More than one kernel binds.
    list.extend((1..20).map(|n| primitive(tensor::<1>([n], dtype, device))));
    list
}

fn data(tensor: FloatTensor<Dispatch>) -> TensorData {
    // On CUDA, Burn cannot read a tensor without elements.
    match tensor.shape().num_elements() {
        0 => TensorData::new(Vec::<f32>::new(), tensor.shape()),
        _ => read(AnyTensor::Float(tensor)),
    }
}

fn into_float(tensor: AnyTensor<Dispatch>) -> FloatTensor<Dispatch> {
    match tensor {
        AnyTensor::Float(tensor) => tensor,
        other => panic!("expected floats, found {:?}", other.kind()),
    }
}

/// The clipped elements and the norm, by a loop of Burn's own operations over burn-flex's tensors.
fn in_a_loop(inputs: &[TensorData], max_norm: f64) -> (Vec<TensorData>, f64) {
    let device = flex();
    let tensors = || {
        inputs.iter().filter(|data| data.num_elements() > 0).map(|data| {
            let elements = data.clone().convert_dtype(DType::F32).try_into_vec::<f32>();
            Tensor::<1>::from_floats(elements.expect("they are f32").as_slice(), &device)
        })
    };
    let squares = tensors().map(|x| (x.clone() * x).sum());
    let norm = squares.reduce(|total, part| total + part).expect("there are elements").sqrt();
    let factor = ((norm.clone() + 1e-6).recip() * max_norm).clamp_max(1.0);
    let mut clipped = tensors().map(|x| (x * factor.clone()).into_data());
    let clipped = inputs.iter().map(|data| match data.num_elements() {
        0 => data.clone(),
        _ => {
            let elements: Vec<f32> = clipped.next().expect("each is clipped").iter().collect();
            TensorData::new(elements, data.shape().clone())
        }
    });
    (clipped.collect(), norm.into_scalar::<f32>().into())
}

/// Clips tensors of a list, and compares them with the loop. Those of `kept` are unchanged then.
fn compare(
    tensors: Vec<FloatTensor<Dispatch>>,
    kept: Option<Vec<FloatTensor<Dispatch>>>,
    inputs: &[TensorData],
    max_norm: f64,
    relative: f64,
) {
    let clipping = Clipping::new::<Dispatch>(&tensors, max_norm).expect("the list can be clipped");
    let tensors = tensors.into_iter().map(AnyTensor::Float).collect();
    let results = Dispatch::run(tensors, Operation::Clipping(clipping.clone()));
    let mut clipped: Vec<_> =
        results.expect("the device clips").into_iter().map(into_float).collect();
    let norm = clipped.pop().expect("the norm is the last result");
    for (tensor, (dtype, shape)) in clipped.iter().zip(clipping.tensors()) {
        assert_eq!((tensor.dtype(), &tensor.shape()), (*dtype, shape));
    }
    assert_eq!((norm.dtype(), norm.shape()), (clipping.norm_dtype(), [1].into()));
    let (expected, expected_norm) = in_a_loop(inputs, max_norm);
    let found_norm = data(norm).iter::<f64>().next().expect("it has one element");
    assert!((found_norm - expected_norm).abs() <= 1e-4 * expected_norm, "{found_norm}");
    assert_eq!(clipped.len(), expected.len());
    for (nth, (found, expected)) in clipped.into_iter().zip(&expected).enumerate() {
        let case = format!("tensor {nth} clipped to {max_norm}");
        assert_close(&data(found), expected, relative, &case);
    }
    for (kept, input) in kept.into_iter().flatten().zip(inputs) {
        assert_eq!(&data(kept), input, "a tensor that is used elsewhere has changed");
    }
}

fn compare_list(dtype: DType, relative: f64, device: &Device) {
    let inputs: Vec<_> = list(dtype, device).into_iter().map(data).collect();
    let (_, norm) = in_a_loop(&inputs, 1.0);
    for max_norm in [0.5, norm * 2.0] {
        compare(list(dtype, device), None, &inputs, max_norm, relative);
        // Without the tensor that repeats its elements, the others may be clipped in place.
        let mut own = list(dtype, device);
        own.remove(REPEATED);
        let mut fewer = inputs.clone();
        fewer.remove(REPEATED);
        compare(own, None, &fewer, max_norm, relative);
        let shared = list(dtype, device);
        compare(shared.clone(), Some(shared), &inputs, max_norm, relative);
    }
}

pub(crate) fn lists(device: &Device) {
    compare_list(DType::F32, 1e-5, device);
}

pub(crate) fn types(device: &Device) {
    for (dtype, relative) in [(DType::F16, 2e-3), (DType::BF16, 1e-2)] {
        if has(device, dtype) {
            compare_list(dtype, relative, device);
        }
    }
}

/// A tensor that nothing else uses keeps its memory.
#[cfg(not(feature = "fusion"))]
pub(crate) fn in_place(device: &Device) {
    let memory = |tensor: &Tensor<2>| {
        let primitive = tensor.clone().try_into_primitive::<burn_cubecl::CubeBackend>();
        format!("{:?}", primitive.expect("it is on CubeCL").handle.memory)
    };
    let keeps_memory = |is_shared: bool| {
        let x = tensor([5, 7], DType::F32, device);
        device.sync().expect("the device answers");
        let before = memory(&x);
        let shared = is_shared.then(|| x.clone());
        let (clipped, _) = clip_by_global_norm(vec![x], 0.5);
        device.sync().expect("the device answers");
        drop(shared);
        memory(&clipped[0]) == before
    };
    assert!(keeps_memory(false));
    assert!(!keeps_memory(true));
}

pub(crate) fn norms_that_are_not_finite(device: &Device) {
    let of = |x: f32| {
        let tensors = vec![Tensor::<1>::from_data([1.0, x], device), Tensor::ones([2], device)];
        let (clipped, norm) = clip_by_global_norm(tensors, 1.0);
        let numbers = |x: Tensor<1>| x.into_data().iter::<f32>().collect::<Vec<_>>();
        (clipped.into_iter().flat_map(numbers).collect::<Vec<_>>(), numbers(norm)[0])
    };
    let (elements, norm) = of(f32::NAN);
    assert!(norm.is_nan() && elements.iter().all(|x| x.is_nan()), "{elements:?}");
    let (elements, norm) = of(f32::INFINITY);
    assert_eq!(norm, f32::INFINITY);
    assert!(elements[1].is_nan(), "{elements:?}");
    assert_eq!([elements[0], elements[2], elements[3]], [0.0; 3]);
}

/// Inputs and results of other operations, and a tensor that is in the list twice.
pub(crate) fn between_operations(device: &Device) {
    let x = Tensor::<2>::from_data([[1.0f32, 2.0], [2.0, 4.0]], device) * 2.0;
    let (clipped, norm) = clip_by_global_norm(vec![x.clone(), x.clone() - x.clone()], 1.0);
    let results = clipped[0].clone() * norm.unsqueeze() + clipped[1].clone();
    assert_close(&results.into_data(), &x.clone().into_data(), 1e-5, "clipped");
    let (clipped, norm) = clip_by_global_norm(vec![x.clone(), x.clone()], 5.0);
    let norm = norm.into_data().iter::<f32>().next().expect("it has one element");
    assert!((norm - 200f32.sqrt()).abs() < 1e-4, "{norm}");
    for tensor in clipped {
        let expected = (x.clone() * (5.0 / 200f64.sqrt())).into_data();
        assert_close(&tensor.into_data(), &expected, 1e-5, "a tensor that is in the list twice");
    }
}

/// Each mistake is found when the function is called, with a message that names the values.
pub(crate) fn errors_before_launch(device: &Device) {
    let x = || vec![Tensor::<1>::ones([3], device); 2];
    assert_eq!(
        message(|| clip_by_global_norm(x(), -1.0)),
        "`clip_by_global_norm` of 2 tensors: `clip_by_global_norm`: max_norm is -1, but must be a \
         finite number above 0"
    );
    assert_eq!(
        message(|| clip_by_global_norm(Vec::<Tensor<1>>::new(), 1.0)),
        "`clip_by_global_norm` of 0 tensors: `clip_by_global_norm` takes one tensor at least"
    );
    if let Some(large) = too_large(device) {
        // The norm alone fits.
        let found = message(|| clip_by_global_norm(vec![large], 1.0));
        let expected = "`clip_by_global_norm` of 1 tensors: the result takes 4294967296";
        assert!(found.starts_with(expected), "{found:?} is not {expected:?}");
    }
}

/// Clipping many tensors is one operation of a fused stream, which leaves nothing behind.
#[cfg(feature = "fusion")]
pub(crate) fn is_one_operation(device: &Device) {
    let run = || {
        let tensors = (1..5).map(|n| Tensor::<1>::ones([n], device) * 2.0).collect();
        let (clipped, norm) = clip_by_global_norm(tensors, 1.0);
        (Tensor::cat(clipped, 0) * norm).sum().into_data()
    };
    let expected = TensorData::from([20.0f32]);
    assert_close(&run(), &expected, 1e-5, "the first run");
    let inspector = FusionInspector::install(StreamId::current());
    device.sync().expect("the device answers");
    inspector.set_baseline();
    assert_close(&run(), &expected, 1e-5, "the second run");
    device.sync().expect("the device answers");
    let reports = inspector.drain();
    let blocks = reports.iter().flat_map(|report| report.unfused_blocks());
    let custom =
        blocks.flat_map(|block| &block.operations).filter_map(|operation| match operation {
            OperationIr::Custom(custom) => Some(custom.id.as_str()),
            _ => None,
        });
    assert_eq!(custom.collect::<Vec<_>>(), ["clip_by_global_norm"]);
    assert!(inspector.new_handles_since_baseline().is_empty(), "tensors are left behind");
}

#[derive(Module, Debug)]
struct TwoLayers {
    first: Linear,
    second: Linear,
    unused: Linear,
}

/// The gradients of two layers, of a matrix and a vector each.
pub(crate) fn gradients_of_a_module(device: &Device) {
    let linear = |inputs, outputs| LinearConfig::new(inputs, outputs).init(device);
    let module = TwoLayers { first: linear(6, 5), second: linear(5, 3), unused: linear(2, 2) };
    let gradients = || {
        let x = module.first.forward(tensor([7, 6], DType::F32, device)).tanh();
        let y = module.second.forward(x);
        GradientsParams::from_grads((y.clone() * y * 10.0).sum().backward(), &module)
    };
    let of_layers = |gradients: &GradientsParams| -> Vec<TensorData> {
        let layers = [&module.first, &module.second].into_iter();
        let of_layer = |layer: &Linear| {
            let bias = layer.bias.as_ref().expect("the layers have a bias");
            let weight = gradients.get::<2>(layer.weight.id);
            let bias = gradients.get::<1>(bias.id);
            [weight.expect("there is one").into_data(), bias.expect("there is one").into_data()]
        };
        layers.flat_map(of_layer).collect()
    };
    for share in [1.0 / 3.0, 2.0] {
        // Burn may multiply matrices in tensor cores at one call and not at the next.
        let gradients = gradients();
        let before = of_layers(&gradients);
        let (_, expected_norm) = in_a_loop(&before, 1.0);
        let max_norm = share * expected_norm;
        let (clipped, norm) = clip_gradients(&module, gradients, max_norm);
        assert_eq!(clipped.len(), 4);
        let norm = norm.into_data().iter::<f64>().next().expect("it has one element");
        assert!((norm - expected_norm).abs() <= 1e-4 * expected_norm, "{norm}");
        let (expected, _) = in_a_loop(&before, max_norm);
        for (found, expected) in of_layers(&clipped).iter().zip(&expected) {
            assert_close(found, expected, 1e-4, &format!("clipped to {max_norm}"));
        }
    }
}

/// Gradients of clipped tensors, against burn-flex.
pub(crate) fn passes_gradients(device: &Device) {
    fn gradients(max_norm: f64, device: &Device) -> Vec<TensorData> {
        let leaves =
            [[3, 4], [2, 5]].map(|shape| tensor::<2>(shape, DType::F32, device).require_grad());
        let (clipped, norm) = clip_by_global_norm(leaves.to_vec(), max_norm);
        let sums = clipped.into_iter().map(|x| x.exp().sum());
        let total = sums.reduce(|total, part| total + part).expect("there are two") + norm;
        let found = total.backward();
        leaves.map(|x| x.grad(&found).expect("it is tracked").into_data()).into()
    }
    for max_norm in [0.5, 100.0] {
        let found = gradients(max_norm, device);
        let expected = gradients(max_norm, &flex().autodiff());
        for (found, expected) in found.iter().zip(&expected) {
            assert_close(found, expected, 5e-4, &format!("clipped to {max_norm}"));
        }
    }
}
