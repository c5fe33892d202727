//! Packs integers of 4 bits, and unpacks them.

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{Device, ElementType, InputSpec, Role, row_major_strides};

use super::{
    arguments,
    bound::{Bound, output_bytes},
    client::device_of,
    elementwise::{Units, is_row_major, spanned},
    types::{check_element, check_kernels},
};
use crate::{
    element::storage_type,
    error::{Reason, ReduceError},
    input::{buffer_bytes, sealed::Layout},
    kernels::nibbles::{PER_WORD, pack, unpack},
};

/// Packs the low four bits of integers.
pub(crate) fn pack_int4(
    client: &Client,
    integers: &TensorHandle,
) -> Result<TensorHandle, ReduceError> {
    let InputSpec { element, shape, strides, .. } = integers.spec()?;
    if element.is_float() || element == ElementType::Bool {
        return Err(Reason::PackedType { found: element }.into());
    }
    let shape_of_pairs = packed_shape(shape)?;
    let tensor = Role::Input;
    let read = spanned(tensor, shape, strides)?;
    let device = device_of(client);
    check_kernels(client)?;
    check_element(&device, element)?;
    let integers = Bound::check_input(client, tensor, &integers.handle, read, element)?;
    // An element may be repeated more often than can be counted.
    let pairs = spanned(Role::Output, &shape_of_pairs, &row_major_strides(&shape_of_pairs))?;
    let words = pairs.div_ceil(size_of::<u32>());
    let element_of_words = ElementType::U32;
    let flat =
        InputSpec { element: element_of_words, shape: &[words], strides: &[1], alignment: 1 };
    let bytes = output_bytes(client, &flat)?;
    let indices = read.max(words * PER_WORD);
    let units = Units::new(client, &device, words, indices, bytes)?;
    let handle = client.empty(bytes);
    let bound = Bound::own(handle.clone().binding(), words, element_of_words.bytes());
    if pairs > 0 {
        let width = widest(&device, element);
        let dense = is_row_major(shape, strides);
        // An array without a whole element cannot be bound.
        let whole = dense
            && pairs >= size_of::<u32>()
            && integers.begins_at_multiple_of(width * element.bytes());
        let width = if whole { width } else { 1 };
        let (extent, stride) = (shape[shape.len() - 1], strides[strides.len() - 1]);
        let dims = match dense {
            true => vec![(pairs, 2)],
            false => dims_of(&shape_of_pairs, strides, if extent > 2 { 2 * stride } else { 0 }),
        };
        let step = if dense { 1 } else { stride };
        // SAFETY: the buffer of integers holds all that their shape and strides reach, that of
        // words all pairs, and the kernel takes no others.
        unsafe {
            pack::launch_unchecked(
                client,
                units.cubes(),
                Units::of_cube(),
                units.address,
                integers.elements(),
                integers.vectors(width),
                bound.elements(),
                arguments::dims(&dims, |&(extent, stride)| (extent, stride, 0)),
                step,
                pairs,
                storage_type(element),
                width,
                whole,
            );
        }
    }
    let packed = storage_type(ElementType::U8);
    Ok(TensorHandle::new_contiguous(shape_of_pairs, handle, packed))
}

/// Unpacks integers of 4 bits.
pub(crate) fn unpack_int4(
    client: &Client,
    packed: &TensorHandle,
    element: ElementType,
) -> Result<TensorHandle, ReduceError> {
    let InputSpec { element: found, shape, strides, .. } = packed.spec()?;
    if found != ElementType::U8 {
        return Err(Reason::PackedBytes { found }.into());
    }
    if element.is_f8() || element == ElementType::Bool {
        return Err(Reason::UnpackedType { found: element }.into());
    }
    let mut shape_of_integers = shape.to_vec();
    let extent = shape_of_integers.last_mut().ok_or(Reason::NoLastAxis)?;
    *extent = extent.saturating_mul(2);
    let tensor = Role::Input;
    let bytes_spanned = spanned(tensor, shape, strides)?;
    let count = spanned(Role::Output, &shape_of_integers, &row_major_strides(&shape_of_integers))?;
    let device = device_of(client);
    check_kernels(client)?;
    check_element(&device, element)?;
    let bytes = Bound::check_input(client, tensor, &packed.handle, bytes_spanned, found)?;
    // Words are read where the buffer has all bytes of the last one. That serves devices without
    // bytes, and is quicker on others.
    let padded = bytes_spanned.next_multiple_of(size_of::<u32>());
    let in_words = bytes.begins_at_multiple_of(size_of::<u32>())
        && buffer_bytes(&packed.handle) >= padded as u64;
    let (packed, read, per_read, stored) = if in_words {
        let words = Bound::check_input(client, tensor, &packed.handle, padded, found)?;
        (words, padded, size_of::<u32>(), ElementType::U32)
    } else {
        check_element(&device, found)?;
        (bytes, bytes_spanned, 1, found)
    };
    // Where that overflows, no device has the memory.
    let room = count.checked_next_multiple_of(PER_WORD).unwrap_or(count);
    let flat = InputSpec { element, shape: &[room], strides: &[1], alignment: 1 };
    let bytes = output_bytes(client, &flat)?;
    let units = Units::new(client, &device, room / PER_WORD, read.max(room), bytes)?;
    let handle = client.empty(bytes);
    let bound = Bound::own(handle.clone().binding(), room, element.bytes());
    if count > 0 {
        let width = widest(&device, element);
        let dense = is_row_major(shape, strides);
        let dims = match dense {
            true => vec![(count / 2, 1)],
            false => dims_of(shape, strides, strides[strides.len() - 1]),
        };
        // SAFETY: the buffer of bytes holds all that their shape and strides reach, and the rest of
        // the last word where words are read. The buffer of integers holds those of all words, and
        // the kernel takes no others.
        unsafe {
            unpack::launch_unchecked(
                client,
                units.cubes(),
                Units::of_cube(),
                units.address,
                packed.vectors(per_read),
                bound.vectors(width),
                arguments::dims(&dims, |&(extent, stride)| (extent, stride, 0)),
                count / 2,
                [storage_type(stored), storage_type(element)],
                width,
                in_words && dense,
            );
        }
    }
    Ok(TensorHandle::new_contiguous(shape_of_integers, handle, storage_type(element)))
}

/// The shape of packed integers of this shape.
///
/// # Errors
///
/// No axis, and a last axis of an odd extent.
pub(crate) fn packed_shape(shape: &[usize]) -> Result<Vec<usize>, ReduceError> {
    let mut packed = shape.to_vec();
    let extent = packed.last_mut().ok_or(Reason::NoLastAxis)?;
    if !extent.is_multiple_of(2) {
        return Err(Reason::OddExtent { extent: *extent }.into());
    }
    *extent /= 2;
    Ok(packed)
}

/// Elements of the widest vector that the device reads at once, and no more than a word has.
fn widest(device: &Device, element: ElementType) -> usize {
    let most = (device.load_bytes / element.bytes()).min(device.max_vector).clamp(1, PER_WORD);
    1 << most.ilog2()
}

/// The extents with their strides, the last of which is another.
fn dims_of(shape: &[usize], strides: &[usize], last: usize) -> Vec<(usize, usize)> {
    let outer = &strides[..strides.len() - 1];
    shape.iter().copied().zip(outer.iter().copied().chain([last])).collect()
}
