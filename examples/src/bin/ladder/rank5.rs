//! Several axes of a tensor of rank 5 at once, by the library.

use std::array;

use reduce_kernels::{ReduceError, Sum, reduce};

use crate::{
    data::{Element, Elements, value},
    gpu::Gpu,
};

/// Dimensions of the tensor.
pub(crate) const RANK: usize = 5;

/// The rungs: axes counted from 1.
pub(crate) const RUNGS: [&[usize]; 4] = [&[3, 4, 5], &[1, 2], &[3, 4], &[2, 4]];

/// The name of a rung in tables and pictures.
pub(crate) fn name(axes: &[usize]) -> String {
    let axes: Vec<String> = axes.iter().map(usize::to_string).collect();
    format!("axes {}", axes.join(", "))
}

/// Launches the library's plan, with `totals` for the axes that are kept.
///
/// # Errors
///
/// What the library refuses.
pub(crate) fn launch<E: Element>(
    gpu: &Gpu<'_>,
    input: &Elements,
    shape: [usize; RANK],
    axes: &[usize],
    totals: &Elements,
) -> Result<(), ReduceError> {
    let tensor = input.tensor::<E>(&shape);
    let totals = totals.tensor::<E>(&kept(shape, axes));
    reduce(Sum, &tensor).over(from_0(axes)).run_into(gpu.client, totals.binding())
}

/// The shape of the totals.
pub(crate) fn kept(shape: [usize; RANK], axes: &[usize]) -> [usize; RANK] {
    array::from_fn(|dim| if axes.contains(&(dim + 1)) { 1 } else { shape[dim] })
}

/// Launches of which the library's plan consists.
///
/// # Errors
///
/// What the library refuses.
pub(crate) fn launches<E: Element>(
    gpu: &Gpu<'_>,
    input: &Elements,
    shape: [usize; RANK],
    axes: &[usize],
) -> Result<u32, ReduceError> {
    let tensor = input.tensor::<E>(&shape);
    Ok(reduce(Sum, &tensor).over(from_0(axes)).choose(gpu.client)?.plan.schedule.launches())
}

/// The axes as the library counts them.
fn from_0(axes: &[usize]) -> Vec<usize> {
    axes.iter().map(|axis| axis - 1).collect()
}

/// The oracle: the totals in row-major order.
pub(crate) fn expected(shape: [usize; RANK], axes: &[usize]) -> Vec<i64> {
    let kept = kept(shape, axes);
    let mut totals = vec![0; kept.iter().product()];
    for index in 0..shape.iter().product() {
        let (mut rest, mut place, mut step) = (index, 0, 1);
        for dim in (0..RANK).rev() {
            place += rest % shape[dim] % kept[dim] * step;
            step *= kept[dim];
            rest /= shape[dim];
        }
        totals[place] += value(index, 0);
    }
    totals
}
