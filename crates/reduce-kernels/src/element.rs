//! Conversion between CubeCL's storage types and the planner's element types.

use cubecl::ir::{ElemType, FloatKind, IntKind, UIntKind};
use reduce_planner::ElementType;

use crate::error::{Reason, ReduceError};

/// The element type that corresponds to a CubeCL storage type.
///
/// It is [`F32`](ElementType::F32) for CubeCL's `flex32`, which is f32 in memory and leaves the
/// precision of arithmetic to the device. This crate computes in full f32, and gives f32.
///
/// ```
/// use reduce_kernels::{ElementType, cubecl::prelude::*, element_type};
///
/// assert_eq!(element_type(f32::cube_type()), Ok(ElementType::F32));
/// ```
///
/// # Errors
///
/// An error of [`ErrorKind::Type`](crate::ErrorKind::Type) if this crate does not reduce tensors of
/// that type.
pub fn element_type(storage: ElemType) -> Result<ElementType, ReduceError> {
    if storage == ElemType::Float(FloatKind::Flex32) {
        return Ok(ElementType::F32);
    }
    ElementType::ALL
        .into_iter()
        .find(|&element| storage_type(element) == storage)
        .ok_or_else(|| Reason::StorageType(storage.to_string()).into())
}

/// The CubeCL storage type that corresponds to an element type.
///
/// ```
/// use reduce_kernels::{ElementType, element_type, storage_type};
///
/// assert_eq!(element_type(storage_type(ElementType::BF16)), Ok(ElementType::BF16));
/// ```
pub fn storage_type(element: ElementType) -> ElemType {
    match element {
        ElementType::F8E4M3 => ElemType::Float(FloatKind::E4M3),
        ElementType::F8E5M2 => ElemType::Float(FloatKind::E5M2),
        ElementType::F16 => ElemType::Float(FloatKind::F16),
        ElementType::BF16 => ElemType::Float(FloatKind::BF16),
        ElementType::F32 => ElemType::Float(FloatKind::F32),
        ElementType::F64 => ElemType::Float(FloatKind::F64),
        ElementType::I8 => ElemType::Int(IntKind::I8),
        ElementType::I16 => ElemType::Int(IntKind::I16),
        ElementType::I32 => ElemType::Int(IntKind::I32),
        ElementType::I64 => ElemType::Int(IntKind::I64),
        ElementType::U8 => ElemType::UInt(UIntKind::U8),
        ElementType::U16 => ElemType::UInt(UIntKind::U16),
        ElementType::U32 => ElemType::UInt(UIntKind::U32),
        ElementType::U64 => ElemType::UInt(UIntKind::U64),
        ElementType::Bool => ElemType::Bool,
    }
}

/// The storage type that kernels use for elements in memory. It is u8 for bools, which are stored
/// as bytes.
pub(crate) fn memory_type(element: ElementType) -> ElemType {
    storage_type(if element == ElementType::Bool { ElementType::U8 } else { element })
}
