//! A list of tensors, each of which is scanned.

use super::ScanProblem;

/// A list of tensors of any shapes and types, each of which is scanned on its own.
///
/// ```
/// use reduce_planner::{
///     Device, ElementType, InputSpec, ListScanProblem, OperatorClass, ScanProblem, ScanSpec,
///     choose_list_scan, row_major_strides,
/// };
///
/// // Running sums of the rows of three tensors, in one launch.
/// let element = ElementType::F32;
/// let of_tensor = |shape: &[usize]| {
///     let strides = &row_major_strides(shape)[..];
///     let input = InputSpec { element, shape, strides, alignment: 256 };
///     let spec = ScanSpec::new(&[ElementType::F32]);
///     ScanProblem::new(OperatorClass::new("sum", 4), &input, Some(&[1]), &spec)
/// };
/// let tensors = [of_tensor(&[10, 64])?, of_tensor(&[700, 64])?, of_tensor(&[3, 64])?];
/// let list = ListScanProblem::new(tensors.into());
/// let plan = choose_list_scan(&list, &Device::h200())?.plan;
/// assert_eq!(plan.launch_count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListScanProblem {
    pub(super) tensors: Vec<ScanProblem>,
}

impl ListScanProblem {
    /// The scans of tensors, in the order of the list.
    #[must_use]
    pub fn new(tensors: Vec<ScanProblem>) -> Self {
        Self { tensors }
    }

    /// The scan of each tensor, in the order of the list.
    #[must_use]
    pub fn tensors(&self) -> &[ScanProblem] {
        &self.tensors
    }

    /// Bytes that must move: each element is read once, and each result is written once.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(ScanProblem::bytes).fold(0, u64::saturating_add)
    }
}
