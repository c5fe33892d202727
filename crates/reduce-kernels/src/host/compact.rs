//! Writes the elements that a scan has counted side by side.

use cubecl::{ir::ElemType, prelude::*, std::tensor::TensorHandle};
use reduce_planner::{ElementType, InputSpec, Role, row_major_strides};

use super::{
    arguments,
    bound::{Bound, output_bytes},
    client::device_of,
    elementwise::{Units, is_row_major, spanned},
    types::{check_element, check_kernels},
};
use crate::{
    element::{memory_type, storage_type},
    error::ReduceError,
    input::sealed::Layout,
    kernels::compact::{compact_elements, compact_positions},
};

/// What is written of each element that was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The element itself.
    Element,
    /// Its position in row-major order.
    Position,
}

/// The launch that follows the scan. All that may be wrong with it was checked.
pub(crate) struct Compaction<'a> {
    what: Kept,
    input: Bound<'a>,
    element: ElementType,
    /// The extents of the input with their strides.
    dims: Vec<(usize, usize)>,
    elements: usize,
    units: Units,
    /// The type of counts and positions.
    counted: ElementType,
    kept: TensorHandle,
    total: TensorHandle,
}

impl<'a> Compaction<'a> {
    /// The launch for the elements of `input`, whose counts are of the type `counted`.
    ///
    /// # Errors
    ///
    /// What the device does not have: a type, indices or memory. A buffer of the input that is too
    /// small.
    pub(crate) fn new(
        client: &Client,
        input: &'a TensorHandle,
        what: Kept,
        counted: ElementType,
    ) -> Result<Self, ReduceError> {
        let InputSpec { element, shape, strides, .. } = input.spec()?;
        let tensor = Role::Input;
        let read = spanned(tensor, shape, strides)?;
        // An element may be repeated more often than can be counted.
        let elements = spanned(Role::Output, shape, &row_major_strides(shape))?;
        let device = device_of(client);
        check_kernels(client)?;
        check_element(&device, element)?;
        let bound = Bound::check_input(client, tensor, &input.handle, read, element)?;
        let of_kept = match what {
            Kept::Element => element,
            Kept::Position => counted,
        };
        let flat = InputSpec { element: of_kept, shape: &[elements], strides: &[1], alignment: 1 };
        let bytes = output_bytes(client, &flat)?;
        let units = Units::new(client, &device, elements, read.max(elements), bytes)?;
        let dims = match is_row_major(shape, strides) {
            true => vec![(elements, 1)],
            false => shape.iter().copied().zip(strides.iter().copied()).collect(),
        };
        let total = match elements {
            // Nothing is launched then.
            0 => client.create_from_slice(&vec![0; counted.bytes()]),
            _ => client.empty(counted.bytes()),
        };
        Ok(Self {
            what,
            input: bound,
            element,
            dims,
            elements,
            units,
            counted,
            kept: TensorHandle::new_contiguous(
                [elements],
                client.empty(bytes),
                storage_type(of_kept),
            ),
            total: TensorHandle::new_contiguous([1], total, storage_type(counted)),
        })
    }

    /// Launches with the counts that the scan has left for each element. Gives what was kept, and
    /// how many elements that is.
    pub(crate) fn launch(
        self,
        client: &Client,
        counts: &TensorHandle,
    ) -> (TensorHandle, TensorHandle) {
        let Self { what, input, element, dims, elements, units, counted, kept, total } = self;
        if elements == 0 {
            return (kept, total);
        }
        let of_counts = counted.bytes();
        let counts = Bound::own(counts.handle.clone().binding(), elements, of_counts);
        let of_kept = match what {
            Kept::Element => element.bytes(),
            Kept::Position => of_counts,
        };
        let written = Bound::own(kept.handle.clone().binding(), elements, of_kept);
        let sum = Bound::own(total.handle.clone().binding(), 1, of_counts);
        let (cubes, of_cube, address) = (units.cubes(), Units::of_cube(), units.address);
        // SAFETY: the buffer of the input holds all that its shape and strides reach. Those of
        // counts and of what is kept have `elements` places, and the scan has left counts from 0 to
        // `elements` there, each at most one above the one before it. Units past the last element
        // do nothing.
        unsafe {
            match what {
                Kept::Element => compact_elements::launch_unchecked(
                    client,
                    cubes,
                    of_cube,
                    address,
                    input.elements(),
                    counts.elements(),
                    written.elements(),
                    sum.elements(),
                    arguments::dims(&dims, |&(extent, stride)| (extent, stride, 0)),
                    elements,
                    [storage_type(counted), copied_type(element)],
                ),
                Kept::Position => compact_positions::launch_unchecked(
                    client,
                    cubes,
                    of_cube,
                    address,
                    counts.elements(),
                    written.elements(),
                    sum.elements(),
                    elements,
                    storage_type(counted),
                ),
            }
        }
        (kept, total)
    }
}

/// The type in which kernels copy elements. fp8 and bools are copied as the bytes that they are.
fn copied_type(element: ElementType) -> ElemType {
    memory_type(if element.is_f8() { ElementType::U8 } else { element })
}
