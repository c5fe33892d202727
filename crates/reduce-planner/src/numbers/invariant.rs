//! The numbers for plans whose bits do not depend on the number of outputs.

use super::{Nonsense, count, percent};

/// The numbers for batch-invariant plans. They divide a slice by its length alone, so they have to
/// serve one output and thousands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct InvariantTuning {
    /// Elements of the largest problem that plans are compared for. The next smaller one has a
    /// quarter of them.
    pub reference_elements: u64,
    /// Fewest bytes of a slice that each of several cubes holds which wait for each other. Smaller
    /// parts would serve one slice, and let thousands publish more partials than the memory for
    /// them holds.
    pub held_part_bytes: u64,
    /// Most bytes of published partials. Slices are shared by as many cubes whatever their number,
    /// so there may be more partials than other plans have. They are a small part of the input.
    pub published_bytes: u64,
    /// How much longer one output along the reduction may take than with its own plan, in percent
    /// of that. An estimate has a launch of 7.6 us, and calls through CubeCL 0.11 take 9 to 14.
    pub one_output_percent: u32,
    /// The same for as many outputs as there are multiprocessors.
    pub some_outputs_percent: u32,
    /// The same for outputs that fill the device.
    pub many_outputs_percent: u32,
}

rules!(InvariantTuning {
    percent: one_output_percent, some_outputs_percent, many_outputs_percent;
    count: held_part_bytes;
    any: reference_elements, published_bytes;
});

impl InvariantTuning {
    /// The numbers for one NVIDIA H200.
    pub(super) const fn h200() -> Self {
        Self {
            reference_elements: 1 << 26,
            held_part_bytes: 16 << 10,
            published_bytes: 1 << 28,
            one_output_percent: 50,
            some_outputs_percent: 10,
            many_outputs_percent: 3,
        }
    }
}
