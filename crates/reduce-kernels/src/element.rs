//! CubeCL's storage types as the planner's element types, and back.

use cubecl::ir::{ElemType, FloatKind, IntKind, StorageType, UIntKind};
use reduce_planner::ElementType;

use crate::ReduceError;

/// The element type of a CubeCL storage type.
///
/// # Errors
///
/// [`ReduceError::StorageType`] for types that this crate does not reduce.
pub fn element_type(storage: StorageType) -> Result<ElementType, ReduceError> {
    ElementType::ALL
        .into_iter()
        .find(|&element| storage_type(element) == storage)
        .ok_or_else(|| ReduceError::StorageType(storage.to_string()))
}

/// The CubeCL storage type of an element type.
pub fn storage_type(element: ElementType) -> StorageType {
    let kind = match element {
        ElementType::F16 => ElemType::Float(FloatKind::F16),
        ElementType::BF16 => ElemType::Float(FloatKind::BF16),
        ElementType::F32 => ElemType::Float(FloatKind::F32),
        ElementType::F64 => ElemType::Float(FloatKind::F64),
        ElementType::I32 => ElemType::Int(IntKind::I32),
        ElementType::U32 => ElemType::UInt(UIntKind::U32),
    };
    StorageType::Scalar(kind)
}
