//! Gradients on devices. Those of burn-flex, which they are compared with, are compared with finite
//! differences in `crates/reduce-burn/tests/gradients.rs`.

use burn_dispatch::Dispatch;
use burn_tensor::{DType, Device, Tensor, TensorData};
use rand::Rng;
use reduce_burn::{
    AxisList,
    backend::{AnyTensor, Operation, OperatorName, OperatorOptions, ReduceBackend, Reduction},
    logsumexp, max, min_with_index, nanmax, nanmean, nansum, nanvar, norm_inf, norm_l2, norm_p,
    prod, std, sum, var,
};

use crate::{
    inputs::{Cases, Layout, RANK},
    values::{assert_close, flex, has},
};

/// The operators whose results are floats.
fn differentiable() -> impl Iterator<Item = OperatorName> {
    use OperatorName::*;

    let others = [ArgMin, ArgMax, NanArgMin, NanArgMax, Any, All, AnyNonFinite, CountNonzero];
    OperatorName::ALL.iter().copied().filter(move |operator| !others.contains(operator))
}

/// The gradient of a weighted sum of an operator's results, at the tensor in memory. `weights` are
/// one number for each element of a result.
fn gradient(
    operator: OperatorName,
    data: &TensorData,
    layout: &Layout,
    device: &Device,
) -> TensorData {
    let stored = Tensor::<RANK>::from_data(data.clone(), (device, data.dtype())).require_grad();
    let tensor = layout.arranged(stored.clone()).into_dispatch();
    let tensor = AnyTensor::<Dispatch>::Float(tensor);
    let options = OperatorOptions { correction: 0.5, p: 3.0 };
    let axes = AxisList::List(layout.axes.clone());
    let reduction = Reduction::new(operator, options, &tensor, &axes, true).expect("valid axes");
    let results = Dispatch::run(vec![tensor], Operation::Reduction(reduction));
    let mut total: Option<Tensor<1>> = None;
    for result in results.expect("the device has f32") {
        let AnyTensor::Float(result) = result else {
            continue;
        };
        let result = Tensor::<RANK>::from_dispatch(result);
        let count = result.shape().num_elements();
        let weights: Vec<f32> = (0..count).map(|n| 0.5 + (n % 7) as f32 * 0.25).collect();
        let weights = TensorData::new(weights, result.dims()).convert_dtype(data.dtype());
        let weights = Tensor::<RANK>::from_data(weights, (device, data.dtype()));
        let part = (result * weights).sum();
        total = Some(match total {
            Some(total) => total + part,
            None => part,
        });
    }
    let gradients = total.expect("there is a float result").backward();
    stored.grad(&gradients).expect("the tensor is tracked").into_data()
}

/// Compares the gradient of every operator with that of burn-flex, over a random layout each.
fn compare(device: &Device, dtype: DType, relative: f64) {
    let mut cases = Cases::new(1);
    for operator in differentiable() {
        let layout = cases.layout();
        let data = cases.data(&layout, |random| random.random_range(-2.0f32..2.0));
        let data = data.convert_dtype(dtype);
        let found = gradient(operator, &data, &layout, device);
        assert_eq!(found.dtype(), dtype, "gradient of {operator}");
        let expected = gradient(operator, &data, &layout, &flex().autodiff());
        let case = format!("gradient of {operator} of {dtype:?}, {layout:?}");
        assert_close(&found, &expected, relative, &case);
    }
}

pub(crate) fn as_of_flex(device: &Device) {
    compare(device, DType::F32, 5e-4);
}

/// Those of f16 and bf16. A factor of a gradient may be too large for the type of the gradient.
pub(crate) fn of_narrow_types(device: &Device) {
    for (dtype, relative) in [(DType::F16, 2e-3), (DType::BF16, 1e-2)] {
        if has(device, dtype) {
            compare(device, dtype, relative);
        }
    }
    if has(device, DType::F16) {
        let data = TensorData::from([[0.005f32, 0.0, 0.0, 0.002]]).convert_dtype(DType::F16);
        let x = Tensor::<2>::from_data(data, (device, DType::F16)).require_grad();
        let gradients = (norm_l2(x.clone(), 1) * 1024.0).backward();
        let found = x.grad(&gradients).expect("the tensor is tracked").into_data();
        let expected = TensorData::from([[950.5f32, 0.0, 0.0, 380.25]]);
        assert_close(&found, &expected, 1e-3, "scaled gradient of a norm");
    }
}

/// The conventions of docs/BURN.md where a derivative does not exist.
pub(crate) fn at_the_edges(device: &Device) {
    const NAN: f32 = f32::NAN;
    const INF: f32 = f32::INFINITY;

    let check =
        |name: &str, row: &[f32], function: &dyn Fn(Tensor<2>) -> Tensor<2>, expected: &[f32]| {
            let data = TensorData::new(row.to_vec(), [1, row.len()]);
            let x = Tensor::<2>::from_data(data, device).require_grad();
            let gradients = function(x.clone()).sum().backward();
            let found = x.grad(&gradients).expect("the tensor is tracked").into_data();
            let expected = TensorData::new(expected.to_vec(), [1, expected.len()]);
            assert_close(&found, &expected, 1e-5, name);
        };

    check("the first of equal maxima", &[1.0, 3.0, 3.0], &|x| max(x, 1), &[0.0, 1.0, 0.0]);
    check("the first NaN", &[1.0, NAN, 3.0, NAN], &|x| max(x, 1), &[0.0, 1.0, 0.0, 0.0]);
    let smallest = |x| min_with_index(x, [0, 1]).0;
    check("the first of equal minima", &[2.0, 1.0, 1.0], &smallest, &[0.0, 1.0, 0.0]);
    check("the largest number", &[NAN, 3.0, 1.0], &|x| nanmax(x, 1), &[0.0, 1.0, 0.0]);
    check("no number", &[NAN, NAN], &|x| nanmax(x, 1), &[1.0, 0.0]);
    check("a norm of 0", &[0.0, 0.0], &|x| norm_l2(x, 1), &[0.0, 0.0]);
    check("a norm_p of 0", &[0.0, 0.0], &|x| norm_p(x, 1, 0.5), &[0.0, 0.0]);
    check("a norm_p with a 0", &[0.0, 4.0], &|x| norm_p(x, 1, 0.5), &[0.0, 1.0]);
    check("a norm_inf", &[-3.0, 3.0, 1.0], &|x| norm_inf(x, 1), &[-1.0, 0.0, 0.0]);
    check("a norm_inf of 0", &[0.0, 0.0], &|x| norm_inf(x, 1), &[0.0, 0.0]);
    check("a deviation of 0", &[2.0, 2.0], &|x| std(x, 1, 0.0), &[0.0, 0.0]);
    let unequal = [1.0, 2.0, 3.0];
    check("a variance over 0", &unequal, &|x| var(x, 1, 3.0), &[-INF, NAN, INF]);
    check("a variance over less", &unequal, &|x| var(x, 1, 5.0), &[-INF, NAN, INF]);
    let numbers = [1.0, 2.0, NAN, 3.0];
    check("a nanvar over less", &numbers, &|x| nanvar(x, 1, 4.0), &[-INF, NAN, 0.0, INF]);
    check("a deviation over less", &unequal, &|x| std(x, 1, 5.0), &[NAN; 3]);
    check("a product", &[2.0, -3.0, 4.0], &|x| prod(x, 1), &[-12.0, 8.0, -6.0]);
    check("a product with a 0", &[2.0, 0.0, 4.0], &|x| prod(x, 1), &[0.0, 8.0, 0.0]);
    check("a product with two zeros", &[0.0, 0.0, 4.0], &|x| prod(x, 1), &[0.0, 0.0, 0.0]);
    check("no probability", &[-INF, -INF], &|x| logsumexp(x, 1), &[0.0, 0.0]);
    check("one probability", &[-INF, 1.0], &|x| logsumexp(x, 1), &[0.0, 1.0]);
    check("a sum of numbers", &[NAN, 1.0], &|x| nansum(x, 1), &[0.0, 1.0]);
    check("a mean of numbers", &[NAN, 1.0, 2.0], &|x| nanmean(x, 1), &[0.0, 0.5, 0.5]);
    check("an empty list of axes", &[1.0, 2.0], &|x| sum(x, [0i32; 0]), &[1.0, 1.0]);

    // A result of a tensor that is not tracked has no part in the graph.
    let x = Tensor::<2>::from_data([[1.0f32, 2.0]], device);
    assert!(!max(x, 1).is_require_grad());
}
