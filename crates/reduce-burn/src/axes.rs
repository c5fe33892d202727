//! The axes of a call, and the rank of its result.

use core::ops::RangeFull;

use crate::error::ReduceBurnError;

/// Axes as a caller names them: a number, a list of numbers, or `..` for all axes. A negative
/// number counts from the end: -1 is the last axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AxisList {
    /// Every axis.
    All,
    /// These axes, in any order.
    List(Vec<i64>),
}

impl AxisList {
    /// The axes counted from 0, in ascending order.
    ///
    /// # Errors
    ///
    /// An axis that the tensor does not have, or that is named twice.
    pub(crate) fn resolve(&self, rank: usize) -> Result<Vec<usize>, ReduceBurnError> {
        let AxisList::List(axes) = self else { return Ok((0..rank).collect()) };
        let mut is_reduced = vec![false; rank];
        for &axis in axes {
            let from_start = if axis < 0 { axis + rank as i64 } else { axis };
            let Some(slot) = usize::try_from(from_start).ok().and_then(|n| is_reduced.get_mut(n))
            else {
                return Err(ReduceBurnError::AxisOutOfRange { axis, rank });
            };
            if core::mem::replace(slot, true) {
                return Err(ReduceBurnError::AxisRepeated { axis, rank });
            }
        }
        Ok((0..rank).filter(|&axis| is_reduced[axis]).collect())
    }
}

impl From<RangeFull> for AxisList {
    fn from(_: RangeFull) -> Self {
        AxisList::All
    }
}

macro_rules! axes_of {
    ($($integer:ty)*) => {
        $(
            impl From<$integer> for AxisList {
                fn from(axis: $integer) -> Self {
                    AxisList::List(vec![saturated(axis)])
                }
            }

            impl<const N: usize> From<[$integer; N]> for AxisList {
                fn from(axes: [$integer; N]) -> Self {
                    AxisList::List(axes.map(saturated).to_vec())
                }
            }

            impl From<&[$integer]> for AxisList {
                fn from(axes: &[$integer]) -> Self {
                    AxisList::List(axes.iter().copied().map(saturated).collect())
                }
            }

            impl From<Vec<$integer>> for AxisList {
                fn from(axes: Vec<$integer>) -> Self {
                    axes.as_slice().into()
                }
            }
        )*
    };
}

axes_of!(i32 i64 isize usize);

/// The number as an i64. One that an i64 does not hold is out of range for every tensor.
fn saturated(axis: impl TryInto<i64>) -> i64 {
    axis.try_into().unwrap_or(i64::MAX)
}

/// The axes of a tensor that are not among `axes`, in ascending order.
pub(crate) fn kept_axes(axes: &[usize], rank: usize) -> Vec<usize> {
    (0..rank).filter(|axis| !axes.contains(axis)).collect()
}

/// The permutation that undoes `order`.
pub(crate) fn inverse(order: &[usize]) -> Vec<usize> {
    let mut back = vec![0; order.len()];
    for (place, &axis) in order.iter().enumerate() {
        back[axis] = place;
    }
    back
}

/// The axes of a reduction from rank `D` to rank `R`.
///
/// Everything that converts to an [`AxisList`] keeps the reduced axes with size 1, so `R` is `D`.
/// [`squeeze`] removes them.
pub trait Axes<const D: usize, const R: usize> {
    /// Whether the reduced axes stay in the result with size 1.
    const KEEPS_DIMS: bool;

    /// The axes.
    fn into_list(self) -> AxisList;
}

impl<const D: usize, A: Into<AxisList>> Axes<D, D> for A {
    const KEEPS_DIMS: bool = true;

    fn into_list(self) -> AxisList {
        self.into()
    }
}

/// Axes that a result of rank `R` does not keep; see [`squeeze`].
#[derive(Clone, Debug)]
pub struct Squeeze<const R: usize>(AxisList);

/// These axes, removed from the result: `sum(x, squeeze::<1>([0, 2]))` of a tensor of rank 3 has
/// rank 1.
///
/// `R` is the rank of the tensor less the number of reduced axes; it need not be written where the
/// type of the result is known. Burn has no tensors of rank 0: over all axes, the result has rank 1
/// and shape `[1]`, as Burn's own `sum()` has.
///
/// ```
/// # use burn_tensor::{Device, Tensor};
/// use reduce_burn::{squeeze, sum};
///
/// let x = Tensor::<2>::from_data([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]], &Device::flex());
/// let columns: Tensor<1> = sum(x, squeeze(0));
/// assert_eq!(columns.into_data().to_vec::<f32>().unwrap(), [5.0, 7.0, 9.0]);
/// ```
pub fn squeeze<const R: usize>(axes: impl Into<AxisList>) -> Squeeze<R> {
    Squeeze(axes.into())
}

impl<const D: usize, const R: usize> Axes<D, R> for Squeeze<R> {
    const KEEPS_DIMS: bool = false;

    fn into_list(self) -> AxisList {
        self.0
    }
}

/// The axes of a scan, and the way in which it takes them: everything that converts to an
/// [`AxisList`], [`exclusive`] axes and axes in [`reverse`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanAxes {
    pub(crate) axes: AxisList,
    /// Whether the result at a position leaves out the element there.
    pub(crate) exclusive: bool,
    /// Whether the scan begins at the last position.
    pub(crate) reverse: bool,
}

impl<A: Into<AxisList>> From<A> for ScanAxes {
    fn from(axes: A) -> Self {
        Self { axes: axes.into(), exclusive: false, reverse: false }
    }
}

/// These axes, scanned without the element at each position: the result there is that of the
/// elements before it, or of those behind it in [`reverse`]. The first result is that of no
/// elements: 0 of a sum, 1 of a product, NaN of a mean and of a variance, `-inf` of a maximum, the
/// least integer of a maximum of integers. The position of such an extremum has no meaning.
///
/// ```
/// # use burn_tensor::{Device, Tensor};
/// use reduce_burn::scan::{cumsum, exclusive};
///
/// let x = Tensor::<1>::from_data([1.0, 5.0, 3.0], &Device::flex());
/// let before = cumsum(x, exclusive(0)); // shape [3]
/// assert_eq!(before.into_data().to_vec::<f32>().unwrap(), [0.0, 1.0, 6.0]);
/// ```
pub fn exclusive(axes: impl Into<ScanAxes>) -> ScanAxes {
    ScanAxes { exclusive: true, ..axes.into() }
}

/// These axes, scanned from the last position to the first: the result at a position is that of
/// the elements from it to the last one. Positions of extrema are still counted from the first.
///
/// ```
/// # use burn_tensor::{Device, Tensor};
/// use reduce_burn::scan::{cumsum, exclusive, reverse};
///
/// let x = Tensor::<1>::from_data([1.0, 5.0, 3.0], &Device::flex());
/// let left = cumsum(x.clone(), reverse(0)); // shape [3]
/// assert_eq!(left.into_data().to_vec::<f32>().unwrap(), [9.0, 8.0, 3.0]);
/// let behind = cumsum(x, exclusive(reverse(0)));
/// assert_eq!(behind.into_data().to_vec::<f32>().unwrap(), [8.0, 3.0, 0.0]);
/// ```
pub fn reverse(axes: impl Into<ScanAxes>) -> ScanAxes {
    ScanAxes { reverse: true, ..axes.into() }
}
