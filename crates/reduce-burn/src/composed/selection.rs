//! Selections for backends without kernels of reduce-kernels: positions are found on the host, and
//! values are gathered with Burn's own operation, which has a gradient.

use core::cmp::Ordering;

use burn_backend::{Backend, TensorData};
use burn_std::reader::read_sync;

use crate::{selection::Selection, tensor::AnyTensor};

/// The values and the positions of a selection.
pub(crate) fn select<B: Backend>(tensor: AnyTensor<B>, selection: &Selection) -> Vec<AnyTensor<B>> {
    let device = tensor.device();
    let positions = match &tensor {
        AnyTensor::Float(tensor) => {
            let data = read(B::float_into_data(tensor.clone()));
            let elements: Vec<f64> = data.iter().collect();
            positions(selection, &elements, |a: &f64, b: &f64| match (a.is_nan(), b.is_nan()) {
                (false, false) => order(selection, a.partial_cmp(b).expect("no element is NaN")),
                // NaN comes first.
                (a, b) => b.cmp(&a),
            })
        }
        AnyTensor::Int(tensor) => {
            let data = read(B::int_into_data(tensor.clone()));
            let elements: Vec<i64> = data.iter().collect();
            positions(selection, &elements, |a: &i64, b: &i64| order(selection, a.cmp(b)))
        }
        AnyTensor::Bool(_) => unreachable!("a selection takes no truth values"),
    };
    let positions = TensorData::new(positions, selection.output_shape());
    let positions = positions.convert_dtype(selection.position_dtype());
    let positions = B::int_from_data(positions, &device);
    let axis = selection.axis();
    let values = match tensor {
        AnyTensor::Float(tensor) => {
            AnyTensor::Float(B::float_gather(axis, tensor, positions.clone()))
        }
        AnyTensor::Int(tensor) => AnyTensor::Int(B::int_gather(axis, tensor, positions.clone())),
        AnyTensor::Bool(_) => unreachable!("a selection takes no truth values"),
    };
    vec![values, AnyTensor::Int(positions)]
}

fn read<E: core::fmt::Debug>(data: impl Future<Output = Result<TensorData, E>>) -> TensorData {
    read_sync(data).expect("the device answers")
}

/// The order in which elements are selected, from their ascending order.
fn order(selection: &Selection, ascending: Ordering) -> Ordering {
    if selection.largest() { ascending.reverse() } else { ascending }
}

/// The positions of the selected elements of a row-major tensor.
fn positions<E>(
    selection: &Selection,
    elements: &[E],
    order: impl Fn(&E, &E) -> Ordering,
) -> Vec<i64> {
    let shape = selection.input_shape();
    let (axis, k) = (selection.axis(), selection.k());
    let len = shape[axis];
    let inner: usize = shape[axis + 1..].iter().product();
    let outer: usize = shape[..axis].iter().product();
    let mut positions = vec![0; outer * k * inner];
    for slice in 0..outer * inner {
        let (row, column) = (slice / inner, slice % inner);
        let at = |nth: usize| &elements[(row * len + nth) * inner + column];
        let mut sorted: Vec<usize> = (0..len).collect();
        // The sort is stable: of equal elements, the one with the lower position comes first.
        sorted.sort_by(|&a, &b| order(at(a), at(b)));
        for (rank, &position) in sorted[..k].iter().enumerate() {
            positions[(row * k + rank) * inner + column] = position as i64;
        }
    }
    positions
}
