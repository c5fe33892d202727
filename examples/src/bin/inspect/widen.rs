//! Elements in a wider type, for devices that lack theirs.

use half::{bf16, f16};
use reduce_kernels::{
    ElementType,
    cubecl::{e4m3, e5m2},
};

/// A type that holds every value of `element` and that every device has, if there is any.
pub(crate) fn wider(element: ElementType) -> ElementType {
    match element {
        ElementType::F8E4M3 | ElementType::F8E5M2 | ElementType::F16 | ElementType::BF16 => {
            ElementType::F32
        }
        ElementType::I8 | ElementType::I16 => ElementType::I32,
        ElementType::U8 | ElementType::U16 | ElementType::Bool => ElementType::U32,
        other => other,
    }
}

/// The elements in the type that is [`wider`].
pub(crate) fn widened(element: ElementType, bytes: &[u8]) -> Vec<u8> {
    fn all<T: bytemuck::Pod, W: bytemuck::Pod>(bytes: &[u8], widen: fn(T) -> W) -> Vec<u8> {
        let elements = bytemuck::pod_collect_to_vec::<u8, T>(bytes);
        let elements: Vec<W> = elements.into_iter().map(widen).collect();
        bytemuck::cast_slice(&elements).to_vec()
    }
    match element {
        ElementType::F8E4M3 => all::<u8, f32>(bytes, |bits| e4m3::from_bits(bits).to_f32()),
        ElementType::F8E5M2 => all::<u8, f32>(bytes, |bits| e5m2::from_bits(bits).to_f32()),
        ElementType::F16 => all(bytes, f16::to_f32),
        ElementType::BF16 => all(bytes, bf16::to_f32),
        ElementType::I8 => all::<i8, i32>(bytes, i32::from),
        ElementType::I16 => all::<i16, i32>(bytes, i32::from),
        ElementType::U8 | ElementType::Bool => all::<u8, u32>(bytes, u32::from),
        ElementType::U16 => all::<u16, u32>(bytes, u32::from),
        _ => bytes.to_vec(),
    }
}
