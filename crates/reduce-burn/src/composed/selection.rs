//! Selections for backends without kernels of reduce-kernels: positions are found on the host, and
//! everything else is made of Burn's own operations, which have gradients.

use core::cmp::Ordering;

use burn_backend::{
    Backend, TensorData, TensorMetadata,
    tensor::{FloatTensor, IntTensor},
};
use burn_std::reader::read_sync;
use burn_tensor::IndexingUpdateOp;
use reduce_kernels::top_k::Over;

use crate::{
    application::AppliedFunction,
    backend::{self, ReduceBackend, Results, applied},
    error::ReduceBurnError,
    operand::Operand,
    selection::{Selection, SelectionOutput},
    tensor::AnyTensor,
};

/// The results of a selection.
pub(crate) fn select<B: ReduceBackend>(
    tensor: AnyTensor<B>,
    selection: &Selection,
) -> Result<Results<B>, ReduceBurnError> {
    match (selection.output(), tensor) {
        (SelectionOutput::Elements, tensor) => {
            let positions = selected(&tensor, selection);
            let values = gathered(tensor, positions.clone(), selection);
            Ok(vec![values, AnyTensor::Int(positions)])
        }
        (SelectionOutput::Probabilities(over), tensor @ AnyTensor::Float(_)) => {
            let positions = selected(&tensor, selection);
            let values = probabilities(tensor, positions.clone(), selection, over)?;
            Ok(vec![values, AnyTensor::Int(positions)])
        }
        (SelectionOutput::Masked { fill }, AnyTensor::Float(tensor)) => {
            Ok(vec![AnyTensor::Float(masked::<B>(tensor, selection, fill)?)])
        }
        _ => unreachable!("integers have no probabilities and no masks"),
    }
}

/// The softmax of the selected elements, or what they have of the softmax of their slices.
fn probabilities<B: ReduceBackend>(
    tensor: AnyTensor<B>,
    positions: IntTensor<B>,
    selection: &Selection,
    over: Over,
) -> Result<AnyTensor<B>, ReduceBurnError> {
    let softmax = |tensor: AnyTensor<B>| {
        let AnyTensor::Float(x) = tensor else { unreachable!("probabilities are of floats") };
        let x = Operand::<B>(x).cast(selection.value_dtype());
        let shares = applied(AppliedFunction::Softmax, x, Vec::new(), None, &[selection.axis()])?;
        Ok(AnyTensor::Float(shares.0))
    };
    match over {
        Over::Selected => softmax(gathered(tensor, positions, selection)),
        Over::Slice => Ok(gathered(softmax(tensor)?, positions, selection)),
    }
}

/// `fill` everywhere but at the selected elements, which the backend selects in its own way.
fn masked<B: ReduceBackend>(
    x: FloatTensor<B>,
    selection: &Selection,
    fill: f32,
) -> Result<FloatTensor<B>, ReduceBurnError> {
    let shape = x.shape();
    if shape.num_elements() == 0 {
        return Ok(x);
    }
    let filled = B::float_full(shape, fill.into(), &x.device(), x.dtype().into());
    let (values, positions) = backend::select::<B>(x, selection.of_elements())?;
    let axis = selection.axis();
    Ok(B::float_scatter(axis, filled, positions, values, IndexingUpdateOp::Assign))
}

/// The elements of a tensor at the positions of a selection.
fn gathered<B: Backend>(
    tensor: AnyTensor<B>,
    positions: IntTensor<B>,
    selection: &Selection,
) -> AnyTensor<B> {
    let axis = selection.axis();
    match tensor {
        AnyTensor::Float(tensor) => AnyTensor::Float(B::float_gather(axis, tensor, positions)),
        AnyTensor::Int(tensor) => AnyTensor::Int(B::int_gather(axis, tensor, positions)),
        AnyTensor::Bool(_) => unreachable!("a selection takes no truth values"),
    }
}

/// The positions of the selected elements, which are found on the host.
fn selected<B: Backend>(tensor: &AnyTensor<B>, selection: &Selection) -> IntTensor<B> {
    let positions = match tensor {
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
    let positions = TensorData::new(positions, selection.selected_shape());
    let positions = positions.convert_dtype(selection.position_dtype());
    B::int_from_data(positions, &tensor.device())
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
