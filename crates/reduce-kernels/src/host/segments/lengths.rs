//! Makes offsets of lengths.

use cubecl::{prelude::*, server::Handle, std::tensor::TensorHandle};
use reduce_planner::{Device, ElementType, InputSpec, Role, check_index_span};

use super::integers::IntegersSpec;
use crate::{
    device_of,
    element::storage_type,
    error::{Reason, ReduceError},
    host::{
        bound::{Bound, output_bytes},
        types::check_element,
    },
    input::sealed::Layout,
    kernels::segments::{self, LENGTHS_PER_UNIT},
};

/// Most units of a cube.
const UNITS: u32 = 256;

/// The offsets of segments of these lengths.
pub(crate) fn offsets_of_lengths(
    client: &Client,
    lengths: &TensorHandle,
) -> Result<TensorHandle, ReduceError> {
    let given = lengths.spec()?;
    let wrong = || Reason::LengthsShape { found: given.shape.to_vec() };
    let spec = IntegersSpec::of(&given).ok_or_else(wrong)?;
    let IntegersSpec { count, element, stride } = spec;
    let is_integer = matches!(
        element,
        ElementType::I32 | ElementType::I64 | ElementType::U32 | ElementType::U64
    );
    if !is_integer {
        return Err(Reason::Lengths { found: element }.into());
    }
    let device = device_of(client);
    check_element(&device, element)?;
    let span = spec.span(Role::Lengths)?;
    let wide = check_index_span((span as u64).max((count as u64).saturating_add(1)), &device)?;
    let address = if wide { AddressType::U64 } else { AddressType::U32 };
    let bound = Bound::check_input(client, Role::Lengths, &lengths.handle, span, element)?;
    let shape = [count + 1];
    let spec = InputSpec { element, shape: &shape, strides: &[1], alignment: 1 };
    output_bytes(client, &spec)?;
    if count == 0 {
        let zero = client.create_from_slice(&vec![0; element.bytes()]);
        return Ok(TensorHandle::new_contiguous(shape.to_vec(), zero, storage_type(element)));
    }
    let scan = Scan::new(client, &device, element, address);
    let handle = match element {
        ElementType::I32 => scan.run::<i32>(&bound, count, stride),
        ElementType::U32 => scan.run::<u32>(&bound, count, stride),
        ElementType::I64 => scan.run::<i64>(&bound, count, stride),
        _ => scan.run::<u64>(&bound, count, stride),
    }?;
    Ok(TensorHandle::new_contiguous(shape.to_vec(), handle, storage_type(element)))
}

/// What all launches have in common.
pub(super) struct Scan<'a> {
    client: &'a Client,
    device: &'a Device,
    element: ElementType,
    address: AddressType,
    units: u32,
}

impl<'a> Scan<'a> {
    pub(super) fn new(
        client: &'a Client,
        device: &'a Device,
        element: ElementType,
        address: AddressType,
    ) -> Self {
        let units = UNITS.min(device.max_units_per_cube);
        Self { client, device, element, address, units: 1 << units.max(1).ilog2() }
    }

    /// The sums before each of `count` lengths, of which there is one at least, and behind the
    /// last.
    pub(super) fn run<T: Int>(
        &self,
        lengths: &Bound<'_>,
        count: usize,
        stride: usize,
    ) -> Result<Handle, ReduceError> {
        let bytes = self.element.bytes();
        let blocks = count.div_ceil(self.units as usize * LENGTHS_PER_UNIT);
        let refused = || Reason::OutputTooLarge {
            needed: (count as u64).saturating_mul(bytes as u64),
            available: self.client.properties().memory.max_page_size,
        };
        let [x, y, z] = self.device.grid(blocks as u64).ok_or_else(refused)?;
        let grid = || CubeCount::Static(x, y, z);
        let (units, each) = (CubeDim::new_1d(self.units), self.units as usize);
        let bases = match blocks {
            1 => None,
            _ => {
                let sums = self.client.empty(blocks * bytes);
                let sums = Bound::own(sums.binding(), blocks, bytes);
                // SAFETY: the buffer holds `count` lengths, `stride` elements apart, that of sums
                // one for each cube, and the kernel takes no others.
                unsafe {
                    segments::sum_lengths::launch_unchecked::<T>(
                        self.client,
                        grid(),
                        units,
                        self.address,
                        lengths.elements(),
                        sums.elements(),
                        count,
                        stride,
                        each,
                    );
                }
                let bases = self.run::<T>(&sums, blocks, 1)?;
                Some(Bound::own(bases.binding(), blocks + 1, bytes))
            }
        };
        let offsets = self.client.empty((count + 1) * bytes);
        let bound = Bound::own(offsets.clone().binding(), count + 1, bytes);
        // SAFETY: as above, and the buffer of offsets holds one more than there are lengths. The
        // lengths stand for bases where there are none, which nothing reads then.
        unsafe {
            segments::offsets_of_lengths::launch_unchecked::<T>(
                self.client,
                grid(),
                units,
                self.address,
                lengths.elements(),
                bases.as_ref().unwrap_or(lengths).elements(),
                bound.elements(),
                count,
                stride,
                bases.is_some(),
                each,
            );
        }
        Ok(offsets)
    }
}
