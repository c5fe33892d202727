//! Reductions of two inputs on devices, against burn-flex. Those of burn-flex are compared with
//! their definitions and with finite differences in `crates/reduce-burn/tests`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn_backend::ops::FloatTensorOps;
use burn_dispatch::Dispatch;
use burn_tensor::{DType, Device, Float, Int, Tensor, TensorData, kind::Basic};
use rand::Rng;
use reduce_burn::{
    AxisList, any_non_finite,
    backend::{AnyTensor, Operation, PairName, PairOptions, PairReduction, ReduceBackend},
    pairs::{accuracy, all_close, count_equal, dot, huber, max_difference, sum_and_dot},
};

use crate::{
    contract::message,
    inputs::{Cases, Layout, RANK},
    values::{any_kind, assert_close, flex, has, read},
};

const OPTIONS: PairOptions =
    PairOptions { delta: 0.4, eps: 1e-3, correction: 0.5, absolute: 0.5, relative: 0.1 };

/// The first tensor in memory, its layout, and the second tensor.
struct Case {
    layout: Layout,
    first: TensorData,
    second: TensorData,
}

/// A random case of positive elements, which are probabilities and weights too. The second tensor
/// is repeated along about half of the axes. Some of its elements are among those of the first.
fn case(cases: &mut Cases, dtype: DType) -> Case {
    let layout = cases.layout();
    let element =
        |random: &mut rand::rngs::StdRng| [0.25f32, 0.5, 0.75, 1.5][random.random_range(0..4)];
    let first = cases.data(&layout, element).convert_dtype(dtype);
    let shape = layout.of::<Float>(&first, &flex()).dims();
    let own: [usize; RANK] =
        core::array::from_fn(
            |axis| {
                if (axis + shape[0]).is_multiple_of(2) { 1 } else { shape[axis] }
            },
        );
    let count = own.iter().product();
    let second: Vec<f32> = (0..count).map(|n| 0.25 + (n % 5) as f32 * 0.25).collect();
    Case { layout, first, second: TensorData::new(second, own).convert_dtype(dtype) }
}

impl Case {
    /// The results of a function for this second tensor and the first in this layout.
    fn results<K: Basic>(
        &self,
        function: PairName,
        first: Tensor<RANK, K>,
        second: Tensor<RANK, K>,
    ) -> Vec<AnyTensor<Dispatch>> {
        let [first, second] = [self.layout.arranged(first), second].map(any_kind);
        let axes = AxisList::List(self.layout.axes.clone());
        let keep_dims = self.layout.keep_dims;
        let pair = PairReduction::new(function, OPTIONS, &first, &second, &axes, keep_dims)
            .unwrap_or_else(|error| panic!("{function} {:?}: {error}", self.layout));
        let results = Dispatch::run(vec![first, second], Operation::Pair(pair.clone()))
            .unwrap_or_else(|error| panic!("{function} {:?}: {error}", self.layout));
        let found: Vec<_> = results.iter().map(|result| (result.kind(), result.dtype())).collect();
        assert_eq!(found, pair.outputs(), "{function}");
        assert!(results.iter().all(|result| result.shape() == pair.output_shape()), "{function}");
        results
    }

    fn values<K: Basic>(&self, function: PairName, device: &Device) -> Vec<TensorData> {
        let [first, second] = [&self.first, &self.second]
            .map(|data| Tensor::<RANK, K>::from_data(data.clone(), (device, data.dtype())));
        self.results(function, first, second).into_iter().map(read).collect()
    }

    /// The gradients of a weighted sum of the results, at both tensors in memory.
    fn gradients(&self, function: PairName, device: &Device) -> Vec<TensorData> {
        let leaves = [&self.first, &self.second].map(|data| {
            Tensor::<RANK>::from_data(data.clone(), (device, data.dtype())).require_grad()
        });
        let [first, second] = leaves.clone();
        let total = self
            .results(function, first, second)
            .into_iter()
            .map(|result| weighted(result, device))
            .reduce(|total, part| total + part * 2.0)
            .expect("there is a result");
        let gradients = total.backward();
        let found = leaves.map(|leaf| leaf.grad(&gradients).expect("both are tracked").into_data());
        found.into()
    }

    fn compare<K: Basic>(&self, function: PairName, relative: f64, device: &Device) {
        let found = self.values::<K>(function, device);
        let expected = self.values::<K>(function, &flex());
        assert_eq!(found.len(), expected.len(), "{function}");
        for (nth, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let case = format!(
                "result {nth} of {function} of {:?} and {:?}, {:?}",
                self.first.dtype(),
                self.second.shape(),
                self.layout
            );
            assert_close(found, expected, relative, &case);
        }
    }
}

/// The sum of the elements of a result, each with a weight of its own.
fn weighted(result: AnyTensor<Dispatch>, device: &Device) -> Tensor<1> {
    let count = result.shape().num_elements();
    let AnyTensor::Float(result) = result else { panic!("expected floats") };
    let result = Dispatch::float_reshape(result, [count].into());
    let result = Tensor::<1>::from_dispatch(result);
    let weights: Vec<f32> = (0..count).map(|n| 0.5 + (n % 7) as f32 * 0.25).collect();
    let dtype = result.dtype();
    let weights = TensorData::new(weights, [count]).convert_dtype(dtype);
    (result * Tensor::from_data(weights, (device, dtype))).sum()
}

/// Every function over random layouts.
pub(crate) fn values(device: &Device) {
    let mut cases = Cases::new(21);
    for &function in PairName::ALL {
        case(&mut cases, DType::F32).compare::<Float>(function, 1e-4, device);
    }
}

/// Types besides f32, and integers.
pub(crate) fn types(device: &Device) {
    let mut cases = Cases::new(22);
    let functions = [PairName::Dot, PairName::Huber, PairName::SumAndDot, PairName::Accuracy];
    for (dtype, relative) in [(DType::F16, 2e-3), (DType::BF16, 1e-2), (DType::F64, 1e-6)] {
        // Burn's kernels may not compute with f64 where the device does.
        let is_refused = |case: &Case| {
            let call = AssertUnwindSafe(|| case.values::<Float>(PairName::Dot, device));
            dtype == DType::F64 && catch_unwind(call).is_err()
        };
        let own = functions.map(|function| (function, case(&mut cases, dtype)));
        if !has(device, dtype) || is_refused(&own[0].1) {
            continue;
        }
        for (function, case) in own {
            case.compare::<Float>(function, relative, device);
        }
    }
    for function in [PairName::CountEqual, PairName::Accuracy] {
        let case = case(&mut cases, DType::F32);
        let [first, second] = [&case.first, &case.second].map(|data| {
            let elements: Vec<i32> = data.iter::<f32>().map(|x| (x * 4.0) as i32).collect();
            TensorData::new(elements, data.shape().clone())
        });
        Case { layout: case.layout, first, second }.compare::<Int>(function, 1e-6, device);
    }
}

/// Every gradient over random layouts.
pub(crate) fn gradients(device: &Device) {
    let others = [PairName::AllClose, PairName::CountEqual, PairName::Accuracy];
    let mut cases = Cases::new(23);
    for &function in PairName::ALL.iter().filter(|function| !others.contains(function)) {
        let case = case(&mut cases, DType::F32);
        let found = case.gradients(function, device);
        let expected = case.gradients(function, &flex().autodiff());
        for (nth, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let case = format!("gradient {nth} of {function}, {:?}", case.layout);
            assert_close(found, expected, 5e-4, &case);
        }
    }
}

/// Gradients of f16 that are computed from results saved in f32.
pub(crate) fn gradients_of_narrow_types(device: &Device) {
    if !has(device, DType::F16) {
        return;
    }
    let mut cases = Cases::new(29);
    for function in [PairName::CosineSimilarity, PairName::WeightedMean, PairName::WeightedMeanVar]
    {
        let case = case(&mut cases, DType::F16);
        let found = case.gradients(function, device);
        let expected = case.gradients(function, &flex().autodiff());
        for (nth, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let case = format!("gradient {nth} of {function} of f16, {:?}", case.layout);
            assert_close(found, expected, 4e-3, &case);
        }
    }
}

/// Inputs and results of fused operations, a tensor that is both inputs, and no elements.
pub(crate) fn between_operations(device: &Device) {
    let x = Tensor::<2>::from_data([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]], device);
    let doubled = x.clone() * 2.0;
    let squares = dot(doubled.clone(), doubled.clone(), 1) + 1.0;
    assert_eq!(numbers(squares), [57.0, 309.0]);
    let row = (x.clone() - 1.0).slice(0..1);
    let (sum, dot) = sum_and_dot(doubled.clone(), row, 0);
    assert_eq!(numbers(sum + dot), [10.0, 28.0, 54.0]);
    let same = count_equal(x.clone(), doubled.clone() / 2.0, 1).into_data();
    assert_eq!(same.iter::<i64>().collect::<Vec<_>>(), [3, 3]);
    let infinite = any_non_finite(x.clone() / (x.clone() - 2.0), 1).into_data();
    assert_eq!(infinite.iter::<bool>().collect::<Vec<_>>(), [true, false]);
    assert!(
        all_close(x.clone(), x.clone() + 0.25, .., 0.3, 0.0)
            .into_data()
            .iter::<bool>()
            .all(|close| close)
    );

    let empty = || Tensor::<2>::empty([3, 0], device);
    assert!(numbers(accuracy(empty(), empty(), 1)).iter().all(|share| share.is_nan()));
    assert_eq!(
        numbers(reduce_burn::pairs::dot(empty(), Tensor::ones([3, 1], device), 1)),
        [0.0; 3]
    );
}

fn numbers(x: Tensor<2>) -> Vec<f32> {
    x.into_data().iter::<f32>().collect()
}

/// Each mistake is found when the function is called, with a message that names the values.
pub(crate) fn errors_before_launch(device: &Device) {
    let x = |shape: [usize; 2]| Tensor::<2>::ones(shape, device);
    let cases = [
        (
            message(|| dot(x([2, 3]), x([2, 4]), 1)),
            "`dot` of tensors of shapes [2, 3] and [2, 4]: the second tensor has shape [2, 4]",
        ),
        (
            message(|| dot(x([2, 3]), x([1, 3]), -3)),
            "`dot` of tensors of shapes [2, 3] and [1, 3]: axis -3 is out of range",
        ),
        (
            message(|| huber(x([2, 3]), x([2, 1]), 1, -1.0)),
            "`huber` of tensors of shapes [2, 3] and [2, 1]: `huber`: delta is -1",
        ),
        (
            message(|| max_difference(x([2, 3]).slice(0..0), x([1, 3]), 0)),
            "`max_difference` of tensors of shapes [0, 3] and [1, 3]: there are no elements",
        ),
    ];
    for (found, expected) in cases {
        assert!(found.starts_with(expected), "{found:?} is not {expected:?}");
    }
}
