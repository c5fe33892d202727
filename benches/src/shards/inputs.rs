//! Inputs that are made on the device. Each element follows from its index in the whole tensor, so
//! a tensor has the same elements however it is cut.

use std::ops::Range;

use reduce_kernels::{
    ElementType,
    cubecl::{self, prelude::*, server::ServerError, std::tensor::TensorHandle},
    planner::row_major_strides,
    storage_type,
};
use reduce_programs::hash;

use super::CutCase;

/// Elements that one launch writes. Its indices fit 32 bits, and the bytes before the next launch's
/// elements are a multiple of every alignment.
const LAUNCHED: usize = 1 << 28;

/// Half of the numbers that 32 bits hold.
const HALF_RANGE: f32 = (1u32 << 31) as f32;

/// Writes elements evenly over [-0.5, 1.5), and over [0.5, 2.5) from `peak_start` to `peak_end`.
/// Element 0 has the index `first_low` + 2³² · `first_high` in the whole tensor.
#[cube(launch_unchecked)]
fn fill_part(
    output: &mut [f32],
    length: u32,
    first_low: u32,
    first_high: u32,
    seed: u32,
    peak_start: u32,
    peak_end: u32,
) {
    let step = u32::cast_from(CUBE_COUNT) * CUBE_DIM;
    let mut index = u32::cast_from(ABSOLUTE_POS);
    while index < length {
        let low = first_low + index;
        let high = first_high + select(low < first_low, 1u32, 0u32);
        let bits = hash(low + hash(high + seed));
        let raised = select(index >= peak_start && index < peak_end, 0.5f32, -0.5f32);
        output[index as usize] = f32::cast_from(bits) / HALF_RANGE + raised;
        index += step;
    }
}

/// A part of a tensor: some rows of one of the tensors that calls take in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The whole.
    pub case: &'a CutCase,
    /// The rows.
    pub rows: Range<usize>,
    /// Which of several tensors of the same shape it is.
    pub nth: u32,
}

/// Makes a part of a tensor. Elements have random mantissas, as ties and short ones would flatter
/// some operators. Does not wait for the device.
///
/// # Errors
///
/// What the device reports.
pub fn fill(client: &Client, part: &Part<'_>) -> Result<TensorHandle, ServerError> {
    let Part { case, rows, nth } = part;
    let row_len = case.row_len();
    let (first, elements) = (rows.start * row_len, rows.len() * row_len);
    let bytes = elements * size_of::<f32>();
    // CubeCL's other pools have no buffers above a quarter of a CUDA device's memory.
    let buffer = client.memory_persistent_allocation(bytes, |bytes| client.empty(bytes));
    let peak = case.peak();
    let peak = peak.start * row_len..peak.end * row_len;
    for start in (0..elements).step_by(LAUNCHED) {
        let length = LAUNCHED.min(elements - start);
        let index = (first + start) as u64;
        let within = |at: usize| at.clamp(first + start, first + start + length) - (first + start);
        let before = (start * size_of::<f32>()) as u64;
        let after = ((elements - start - length) * size_of::<f32>()) as u64;
        let target = buffer.clone().offset_start(before).offset_end(after);
        // SAFETY: `target` has `length` elements, and the kernel writes no others.
        unsafe {
            fill_part::launch_unchecked(
                client,
                CubeCount::new_1d(1024),
                CubeDim::new_1d(256),
                BufferArg::from_raw_parts(target, length),
                length as u32,
                index as u32,
                (index >> 32) as u32,
                nth.wrapping_mul(0x9e37_79b9),
                within(peak.start) as u32,
                within(peak.end) as u32,
            );
        }
    }
    let shape = case.shape(rows.len());
    let strides = row_major_strides(&shape);
    Ok(TensorHandle::new(buffer, shape, strides, storage_type(ElementType::F32)))
}

#[cfg(all(test, any(feature = "wgpu", feature = "vulkan")))]
mod tests {
    use reduce_kernels::cubecl::{Device, wgpu::WgpuDevice};

    use super::*;

    fn part(rows: Range<usize>, of: usize) -> Vec<f32> {
        let client = Device::from(WgpuDevice::default()).client();
        let case = CutCase { rows: of, outputs: Some(16) };
        let elements = rows.len() * 16;
        let tensor = fill(&client, &Part { case: &case, rows, nth: 0 }).unwrap();
        f32::from_bytes(&client.read_one(tensor.handle).unwrap())[..elements].to_vec()
    }

    /// Elements do not depend on the cut, also where indices pass 2³².
    #[test]
    fn shards_are_parts_of_the_whole() {
        let whole = part(0..4096, 4096);
        assert_eq!(part(1000..4096, 4096), whole[16_000..]);
        let peak = CutCase { rows: 4096, outputs: Some(16) }.peak();
        let highest = whole.iter().copied().fold(f32::MIN, f32::max);
        let at = whole.iter().position(|&value| value == highest).unwrap() / 16;
        assert!(peak.contains(&at) && highest > 1.5, "{highest} in row {at}");
        let others: Vec<f32> = whole[..peak.start * 16].to_vec();
        let mean = others.iter().sum::<f32>() / others.len() as f32;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");

        let turn = (1usize << 32) / 16;
        let across = part(turn - 10..turn + 10, 8 * turn);
        assert_eq!(across[160..], part(turn..turn + 10, 8 * turn));
        assert_ne!(across[160..], part(0..10, 8 * turn));
    }
}
