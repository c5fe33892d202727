//! Makes offsets of sorted keys, and keys of offsets.

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{ElementType, InputSpec, ProblemError, Role, check_index_span};

use super::integers::{IntegersSpec, Members};
use crate::{
    device_of,
    element::storage_type,
    error::{Reason, ReduceError},
    host::{
        bound::{Bound, output_bytes},
        types::check_element,
    },
    kernels::segments::{numbers_of_elements, offsets_of_keys},
};

/// Units of a cube.
const UNITS: u32 = 256;

/// The offsets of `segments` segments that sorted keys name.
pub(crate) fn offsets_of_sorted_keys(
    client: &Client,
    keys: &TensorHandle,
    segments: usize,
) -> Result<TensorHandle, ReduceError> {
    let spec = IntegersSpec::of_keys(keys)?;
    let IntegersSpec { count, element, stride } = spec;
    check_keys(element, segments)?;
    let device = device_of(client);
    check_element(&device, element)?;
    let span = spec.span(Role::Keys)?;
    let wide = check_index_span((span as u64).max((segments as u64).saturating_add(1)), &device)?;
    let address = if wide { AddressType::U64 } else { AddressType::U32 };
    let keys = Bound::check_input(client, Role::Keys, &keys.handle, span, element)?;
    let narrow = u32::try_from(count).is_ok();
    let result = if narrow { ElementType::U32 } else { ElementType::U64 };
    let shape = [segments + 1];
    let spec = InputSpec { element: result, shape: &shape, strides: &[1], alignment: 1 };
    let handle = client.empty(output_bytes(client, &spec)?);
    let offsets = Bound::own(handle.clone().binding(), segments + 1, result.bytes());
    let cubes = (segments as u64 + 1).div_ceil(u64::from(UNITS));
    let [x, y, z] = device.grid(cubes).ok_or(Reason::Keys { found: element, segments })?;
    macro_rules! launch {
        ($key:ty, $offset:ty) => {
            // SAFETY: the buffer of keys holds `count` of them, `stride` elements apart, that of
            // offsets one more than there are segments, and the kernel takes no others.
            unsafe {
                offsets_of_keys::launch_unchecked::<$key, $offset>(
                    client,
                    CubeCount::Static(x, y, z),
                    CubeDim::new_1d(UNITS),
                    address,
                    keys.elements(),
                    offsets.elements(),
                    count,
                    stride,
                    segments,
                )
            }
        };
    }
    match (element, narrow) {
        (ElementType::I32, true) => launch!(i32, u32),
        (ElementType::U32, true) => launch!(u32, u32),
        (ElementType::I64, true) => launch!(i64, u32),
        (ElementType::U64, true) => launch!(u64, u32),
        (ElementType::I32, false) => launch!(i32, u64),
        (ElementType::U32, false) => launch!(u32, u64),
        (ElementType::I64, false) => launch!(i64, u64),
        _ => launch!(u64, u64),
    }
    Ok(TensorHandle::new_contiguous(shape.to_vec(), handle, storage_type(result)))
}

/// The number of the segment of each of `len` elements, as this type.
pub(crate) fn keys_of_offsets(
    client: &Client,
    offsets: &TensorHandle,
    len: usize,
    result: ElementType,
) -> Result<TensorHandle, ReduceError> {
    let spec = Members::new(offsets).spec()?.offsets;
    let IntegersSpec { count, element, stride } = spec;
    let segments = count - 1;
    let most = match result {
        ElementType::I32 => i32::MAX as u64,
        ElementType::I64 => i64::MAX as u64,
        _ => 0,
    };
    let refused = Reason::KeysOfOffsets { found: result, segments };
    if most == 0 || segments as u64 > most {
        return Err(refused.into());
    }
    let device = device_of(client);
    check_element(&device, element)?;
    check_element(&device, result)?;
    let span = spec.span(Role::Offsets)?;
    let wide = check_index_span((span as u64).max(len as u64), &device)?;
    let address = if wide { AddressType::U64 } else { AddressType::U32 };
    let offsets = Bound::check_input(client, Role::Offsets, &offsets.handle, span, element)?;
    let shape = [len];
    let spec = InputSpec { element: result, shape: &shape, strides: &[1], alignment: 1 };
    let handle = client.empty(output_bytes(client, &spec)?.max(result.bytes()));
    let keys = Bound::own(handle.clone().binding(), len, result.bytes());
    let keys_tensor = TensorHandle::new_contiguous(shape.to_vec(), handle, storage_type(result));
    if len == 0 {
        return Ok(keys_tensor);
    }
    let [x, y, z] = device.grid((len as u64).div_ceil(u64::from(UNITS))).ok_or(refused)?;
    macro_rules! launch {
        ($offset:ty, $key:ty) => {
            // SAFETY: the buffer of offsets holds `count` of them, `stride` elements apart, that of
            // keys `len`, and the kernel takes no others.
            unsafe {
                numbers_of_elements::launch_unchecked::<$offset, $key>(
                    client,
                    CubeCount::Static(x, y, z),
                    CubeDim::new_1d(UNITS),
                    address,
                    offsets.elements(),
                    keys.elements(),
                    count,
                    stride,
                    len,
                )
            }
        };
    }
    match (element, result) {
        (ElementType::I32, ElementType::I32) => launch!(i32, i32),
        (ElementType::U32, ElementType::I32) => launch!(u32, i32),
        (ElementType::I64, ElementType::I32) => launch!(i64, i32),
        (ElementType::U64, ElementType::I32) => launch!(u64, i32),
        (ElementType::I32, _) => launch!(i32, i64),
        (ElementType::U32, _) => launch!(u32, i64),
        (ElementType::I64, _) => launch!(i64, i64),
        (ElementType::U64, _) => launch!(u64, i64),
        (found, _) => return Err(ProblemError::Offsets { found }.into()),
    }
    Ok(keys_tensor)
}

/// Checks that keys of this type name so many segments.
pub(super) fn check_keys(element: ElementType, segments: usize) -> Result<(), ReduceError> {
    let most = match element {
        ElementType::I32 => i32::MAX as u64,
        ElementType::U32 => u64::from(u32::MAX),
        ElementType::I64 => i64::MAX as u64,
        ElementType::U64 => u64::MAX,
        _ => 0,
    };
    match most == 0 || segments as u64 > most {
        true => Err(Reason::Keys { found: element, segments }.into()),
        false => Ok(()),
    }
}
