//! Segments on devices, beside those of burn-flex.

use burn_tensor::{DType, Device, Int, Tensor, TensorData};
use reduce_burn::segments::{self, Groups, SegmentTensors};

use crate::values::{assert_close, flex, has};

/// Offsets of segments of an axis of 300 elements: long, short, without elements, and elements in none.
fn offsets(device: &Device) -> Tensor<1, Int> {
    let short = (200..260).step_by(3);
    let all: Vec<i32> = [2, 2, 150, 151, 200].into_iter().chain(short).chain([260, 297]).collect();
    Tensor::from_data(TensorData::new(all.clone(), [all.len()]), device)
}

fn data(len: usize) -> Vec<f32> {
    (0..len).map(|n| ((n * 7919 % 101) as f32 - 50.0) * 0.0625).collect()
}

/// Groups of 300 elements by keys in any order, of which some name none.
fn groups(device: &Device) -> Groups {
    let keys: Vec<i32> = (0..300).map(|n| n * 7919 % 23 - 2).collect();
    segments::group_by_keys(Tensor::from_data(TensorData::new(keys, [300]), device), 20)
}

/// Segments of both kinds.
fn members(device: &Device) -> [SegmentTensors; 2] {
    [offsets(device).into(), groups(device).into()]
}

/// Reductions and softmax of floats along each axis that has segments.
pub(crate) fn values(device: &Device) {
    for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F16, 2e-3), (DType::BF16, 2e-2)] {
        if !has(device, dtype) {
            continue;
        }
        for shape in [[300, 2, 3], [2, 3, 300]] {
            let axis = if shape[0] == 300 { 0 } else { 2 };
            let data = TensorData::new(data(1800), shape).convert_dtype(dtype);
            let found = |device: &Device, kind: usize| {
                let x = || Tensor::<3>::from_data(data.clone(), (device, dtype));
                let members = members(device);
                let at = || members[kind].clone();
                [
                    segments::sum(x(), axis, at()),
                    segments::mean(x(), axis, at()),
                    segments::max(x(), axis, at()),
                    segments::logsumexp(x(), axis, at()),
                    segments::var(x(), axis, at(), 0.0),
                    segments::softmax(x(), axis, at()),
                    segments::log_softmax(x(), axis, at()),
                ]
                .map(Tensor::into_data)
            };
            for kind in [0, 1] {
                let (found, expected) = (found(device, kind), found(&flex(), kind));
                for (nth, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    let case = format!("{dtype:?} {shape:?}, kind {kind}, function {nth}");
                    assert_close(found, expected, tolerance, &case);
                }
            }
        }
    }
    let x = Tensor::<1, Int>::from_data([3, -7, 3, 9, 0, 5], device);
    let at = Tensor::<1, Int>::from_data([0, 2, 5], device);
    let (least, position) = segments::min_with_index(x.clone(), 0, at.clone());
    let numbers = |x: Tensor<1, Int>| x.into_data().iter::<i64>().collect::<Vec<_>>();
    assert_eq!((numbers(least), numbers(position)), (vec![-7, 0], vec![1, 4]));
    assert_eq!(numbers(segments::count_nonzero(x, 0, at)), [2, 2]);
}

/// Gradients of all formulas.
pub(crate) fn gradients(device: &Device) {
    let found = |device: &Device, nth: usize, kind: usize| {
        let data = TensorData::new(data(1800), [300, 6]);
        let x = Tensor::<2>::from_data(data, device).require_grad();
        let [offsets, groups] = members(device);
        let at = if kind == 0 { offsets } else { groups };
        let result = match nth {
            0 => segments::sum(x.clone(), 0, at),
            1 => segments::mean(x.clone(), 0, at).narrow(0, 1, 18),
            2 => segments::max(x.clone(), 0, at).narrow(0, 1, 18),
            3 => segments::logsumexp(x.clone(), 0, at).narrow(0, 1, 18),
            4 => segments::softmax(x.clone(), 0, at),
            _ => segments::log_softmax(x.clone(), 0, at),
        };
        let count = result.shape().num_elements();
        let weights: Vec<f32> = (0..count).map(|n| 0.25 + (n % 7) as f32 * 0.125).collect();
        let weights = TensorData::new(weights, result.dims());
        let weighted = (result * Tensor::from_data(weights, device)).sum();
        x.grad(&weighted.backward()).expect("the tensor is tracked").into_data()
    };
    for (nth, kind) in (0..6).flat_map(|nth| [(nth, 0), (nth, 1)]) {
        let (own, expected) = (found(device, nth, kind), found(&flex().autodiff(), nth, kind));
        assert_close(&own, &expected, 1e-5, &format!("gradient of function {nth}, kind {kind}"));
    }
}
