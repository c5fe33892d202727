//! Arrays whose sums are exact, on the device and on the host.

use std::fmt;

use half::f16;
use reduce_kernels::{
    ElementType,
    cubecl::{self, prelude::*, server::Handle, std::tensor::TensorHandle},
    storage_type,
};

/// Bytes of the widest load. Buffers hold a whole number of these loads, so the last vector of an
/// array can be loaded as a whole.
pub(crate) const WIDEST_LOAD: usize = 16;

/// A value that differs from every total.
const POISON: i64 = 1_234_567_890;

/// A number that the rungs sum.
pub(crate) trait Element: Numeric + CubeElement + PartialEq + fmt::Display {
    /// The library's name for it.
    const TYPE: ElementType;

    /// `total` in this type: rounded if it is a float, wrapped if it is an integer.
    fn of(total: i64) -> Self;
}

macro_rules! element {
    ($($type:ty: $name:ident, $of:expr;)*) => {
        $(impl Element for $type {
            const TYPE: ElementType = ElementType::$name;
            fn of(total: i64) -> Self {
                ($of)(total)
            }
        })*
    };
}

element! {
    f16: F16, |total| f16::from_f64(total as f64);
    f32: F32, |total| total as f32;
    f64: F64, |total| total as f64;
    i32: I32, |total| total as i32;
    i64: I64, |total| total;
    u32: U32, |total| total as u32;
    u64: U64, |total| total as u64;
}

/// The elements of an array in a buffer of the device.
#[derive(Clone)]
pub(crate) struct Elements {
    pub handle: Handle,
    pub length: usize,
    pub element_bytes: usize,
}

impl Elements {
    /// An array whose content is arbitrary.
    pub(crate) fn uninitialised<E: Element>(client: &Client, length: usize) -> Self {
        let bytes = (length * size_of::<E>()).next_multiple_of(WIDEST_LOAD);
        Self { handle: client.empty(bytes), length, element_bytes: size_of::<E>() }
    }

    /// A copy of an array on the host. The padding has all bits set: NaN in floats, -1 or the
    /// maximum in integers. A rung that adds it up gives a wrong sum.
    pub(crate) fn upload<E: Element>(client: &Client, values: &[E]) -> Self {
        let mut bytes = E::as_bytes(values).to_vec();
        bytes.resize(bytes.len().next_multiple_of(WIDEST_LOAD), u8::MAX);
        Self {
            handle: client.create_from_slice(&bytes),
            length: values.len(),
            element_bytes: size_of::<E>(),
        }
    }

    /// An array that is filled with a value that no array here adds up to.
    pub(crate) fn poisoned<E: Element>(client: &Client, length: usize) -> Self {
        Self::upload(client, &vec![E::of(POISON); length])
    }

    /// The argument for a kernel.
    pub(crate) fn array(&self) -> BufferArg {
        self.first(self.length)
    }

    /// The argument for a kernel that sees the first `elements` of the buffer, or fewer vectors.
    /// Kernels learn the length of an array from the bytes of its handle.
    fn first(&self, elements: usize) -> BufferArg {
        let unused = self.handle.size_in_used() - (elements * self.element_bytes) as u64;
        let handle = self.handle.clone().offset_end(unused);
        // SAFETY: a buffer holds at least that many elements.
        unsafe { BufferArg::from_raw_parts(handle, elements) }
    }

    /// The argument for a kernel that reads vectors of `lanes` components. The last vector may
    /// extend past the array.
    pub(crate) fn vectors(&self, lanes: usize) -> BufferArg {
        // A buffer holds a whole number of the widest loads.
        self.first(self.length.next_multiple_of(lanes))
    }

    /// The argument for the library.
    pub(crate) fn tensor<E: Element>(&self, shape: &[usize]) -> TensorHandle {
        TensorHandle::new_contiguous(shape, self.handle.clone(), storage_type(E::TYPE))
    }
}

/// A hash of 32 bits, each of which depends on every bit of `key` (Jarzynski and Olano, "Hash
/// functions for GPU rendering", 2020).
#[cube]
fn hash(key: u32) -> u32 {
    let state = key * 747_796_405u32 + 2_891_336_453u32;
    let word = ((state >> ((state >> 28u32) + 4u32)) ^ state) * 277_803_737u32;
    (word >> 22u32) ^ word
}

#[cube(launch_unchecked)]
fn write<E: Numeric>(output: &mut [E], seed: u32) {
    let mut index = ABSOLUTE_POS;
    while index < output.len() {
        let bits = hash(u32::cast_from(index) ^ seed) >> 28u32;
        output[index] = E::cast_from(i32::cast_from(2u32 * bits) - 15i32);
        index += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Overwrites an array with odd numbers from -15 to 15, in an order without a pattern. Their mean
/// is 0.
///
/// f32 sums are exact in any order as long as the sum and every part of it stay below 2²⁴, which is
/// 50 standard deviations of 2³⁰ elements. A rung is then correct to the last bit, or wrong.
pub(crate) fn fill<E: Element>(client: &Client, elements: &Elements, seed: u32) {
    // SAFETY: the kernel writes the array's elements and no others.
    unsafe {
        write::launch_unchecked::<E>(
            client,
            CubeCount::new_1d(1024),
            CubeDim::new_1d(256),
            elements.array(),
            seed,
        );
    }
}

/// A new array that [`fill`] has written.
pub(crate) fn filled<E: Element>(client: &Client, length: usize, seed: u32) -> Elements {
    let elements = Elements::uninitialised::<E>(client, length);
    fill::<E>(client, &elements, seed);
    elements
}

/// The value that [`fill`] writes at an index, computed on the host.
pub(crate) fn value(index: usize, seed: u32) -> i64 {
    let key = index as u32 ^ seed;
    let state = key.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    let word = ((state >> ((state >> 28) + 4)) ^ state).wrapping_mul(277_803_737);
    i64::from(((word >> 22) ^ word) >> 28) * 2 - 15
}

/// The oracle: the sum of the values at some indices.
pub(crate) fn total(indices: impl Iterator<Item = usize>) -> i64 {
    indices.map(|index| value(index, 0)).sum()
}
