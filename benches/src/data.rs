//! Inputs that no cache holds and no compiler guesses.

use reduce_kernels::{
    ElementType,
    cubecl::{self, ir::StorageType, prelude::*, std::tensor::TensorHandle},
    storage_type,
};

use crate::Case;

/// Bytes that rotating over all inputs of a case reads, unless one input is larger: several times
/// the largest L2 cache there is.
const ROTATED_BYTES: usize = 1 << 30;

/// Most inputs of one case.
const MOST_INPUTS: usize = 128;

#[cube(launch_unchecked, address_type = "dynamic")]
fn fill<E: Numeric>(
    output: &mut Array<E>,
    seed: u32,
    length: usize,
    #[define(E)] _type: StorageType,
) {
    let step = CUBE_COUNT * CUBE_DIM as usize;
    let mut index = ABSOLUTE_POS;
    while index < length {
        let hash = (u32::cast_from(index) + seed) * 2_654_435_761u32;
        output[index] = E::cast_from((hash >> 20u32) & 15u32);
        index += step;
    }
}

/// Enough inputs for a case that back-to-back calls over them find none in cache.
pub fn inputs<R: Runtime>(
    client: &ComputeClient<R>,
    case: &Case,
    rotated: Option<usize>,
) -> Vec<TensorHandle<R>> {
    let elements = case.elements();
    let bytes = (elements * case.element.bytes()).max(1);
    // Kernels see bools as bytes.
    let stored = match case.element {
        ElementType::Bool => ElementType::U8,
        element => element,
    };
    let count = (rotated.unwrap_or(ROTATED_BYTES) / bytes).clamp(1, MOST_INPUTS);
    (0..count)
        .map(|seed| {
            let handle = client.empty(bytes);
            // SAFETY: the buffer holds `elements` elements, and the kernel writes no others.
            unsafe {
                fill::launch_unchecked::<R>(
                    client,
                    CubeCount::new_1d(1024),
                    CubeDim::new_1d(256),
                    AddressType::from_len(elements),
                    ArrayArg::from_raw_parts(handle.clone(), elements),
                    seed as u32,
                    elements,
                    storage_type(stored),
                );
            }
            TensorHandle::new(
                handle,
                case.shape.clone(),
                case.strides.clone(),
                storage_type(case.element),
            )
        })
        .collect()
}
