//! Writes masks that are added to scores.

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{Device, ElementType, InputSpec, Role, row_major_strides};

use super::{
    arguments,
    bound::{Bound, output_bytes},
    client::device_of,
    elementwise::{Units, spanned},
    types::{check_computes, check_element, check_kernels},
};
use crate::{
    element::storage_type,
    error::{Reason, ReduceError},
    input::sealed::Layout,
    kernels::{
        geometry::DivisorLaunch,
        masks::{mask_after_lengths, mask_later_keys},
    },
};

/// The mask of queries that see no later keys.
pub(crate) fn causal_mask(
    client: &Client,
    queries: usize,
    keys: usize,
    element: ElementType,
) -> Result<TensorHandle, ReduceError> {
    let device = device_of(client);
    let Mask { tensor, count, units } =
        Mask::new(client, &device, vec![queries, keys], element, 0)?;
    let bound = Bound::own(tensor.handle.clone().binding(), count, element.bytes());
    if count > 0 {
        // SAFETY: the buffer holds `count` elements, and the kernel writes no others.
        unsafe {
            mask_later_keys::launch_unchecked(
                client,
                units.cubes(),
                Units::of_cube(),
                units.address,
                bound.elements(),
                DivisorLaunch::of(keys),
                queries,
                keys,
                count,
                storage_type(element),
            );
        }
    }
    Ok(tensor)
}

/// The mask of rows of these lengths.
pub(crate) fn length_mask(
    client: &Client,
    lengths: &TensorHandle,
    keys: usize,
    element: ElementType,
) -> Result<TensorHandle, ReduceError> {
    let InputSpec { element: of_lengths, shape, strides, .. } = lengths.spec()?;
    if of_lengths.is_float() || of_lengths == ElementType::Bool {
        return Err(Reason::LengthType { found: of_lengths }.into());
    }
    let tensor = Role::Lengths;
    let spanned = spanned(tensor, shape, strides)?;
    let device = device_of(client);
    let masked = [shape, &[keys]].concat();
    let mask = Mask::new(client, &device, masked, element, spanned)?;
    check_computes(client, &device, of_lengths)?;
    let lengths = Bound::check_input(client, tensor, &lengths.handle, spanned, of_lengths)?;
    let Mask { tensor, count, units } = mask;
    let bound = Bound::own(tensor.handle.clone().binding(), count, element.bytes());
    if count > 0 {
        let rows: Vec<(usize, usize)> =
            shape.iter().copied().zip(strides.iter().copied()).collect();
        // SAFETY: the buffer of lengths holds all that their shape and strides reach, that of the
        // mask `count` elements, and the kernel takes no others.
        unsafe {
            mask_after_lengths::launch_unchecked(
                client,
                units.cubes(),
                Units::of_cube(),
                units.address,
                lengths.elements(),
                bound.elements(),
                arguments::dims(&rows, |&(extent, stride)| (extent, stride, 0)),
                DivisorLaunch::of(keys),
                count,
                [storage_type(of_lengths), storage_type(element)],
            );
        }
    }
    Ok(tensor)
}

/// A mask that is still to be written, and what its launch needs.
struct Mask {
    tensor: TensorHandle,
    count: usize,
    units: Units,
}

impl Mask {
    /// One of a launch that reads elements from among `read`.
    ///
    /// # Errors
    ///
    /// A type that masks or the device do not have, and too many elements for the device.
    fn new(
        client: &Client,
        device: &Device,
        shape: Vec<usize>,
        element: ElementType,
        read: usize,
    ) -> Result<Self, ReduceError> {
        // fp8 has no infinity, or conversions give none.
        if !element.is_float() || element.is_f8() {
            return Err(Reason::MaskType { found: element }.into());
        }
        check_kernels(client)?;
        check_element(device, element)?;
        let count = spanned(Role::Output, &shape, &row_major_strides(&shape))?;
        let flat = InputSpec { element, shape: &[count], strides: &[1], alignment: 1 };
        let bytes = output_bytes(client, &flat)?;
        let units = Units::new(client, device, count, read.max(count), bytes)?;
        let handle = client.empty(bytes);
        let tensor = TensorHandle::new_contiguous(shape, handle, storage_type(element));
        Ok(Self { tensor, count, units })
    }
}
