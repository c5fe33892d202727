//! Checks of buffers: what they hold, and where they begin.

use cubecl::{
    prelude::*,
    server::{BufferBinding, Handle},
};
use reduce_planner::{ElementType, Problem};

use super::client::binding_alignment;
use crate::ReduceError;

/// Checks that the buffer of a tensor holds the elements that it spans.
pub(crate) fn check_span(
    tensor: &'static str,
    spanned: usize,
    element: ElementType,
    available: u64,
) -> Result<(), ReduceError> {
    let needed = byte_count(spanned, element);
    match needed > available {
        true => Err(ReduceError::BufferTooSmall { tensor, needed, available }),
        false => Ok(()),
    }
}

/// Checks that the input's buffer holds all that the problem reads.
pub(crate) fn check_input(problem: &Problem, available: u64) -> Result<(), ReduceError> {
    check_span("input", problem.input_span(), problem.input(), available)
}

/// Checks that the buffers of the inputs, where they exist, hold all that the problem reads.
pub(super) fn check_inputs(problem: &Problem, bytes: &[Option<u64>]) -> Result<(), ReduceError> {
    let spans = [
        Some(("input", problem.input_span(), problem.input())),
        problem.second().map(|second| ("second input", second.span(), second.element())),
    ];
    for (&bytes, span) in bytes.iter().zip(spans) {
        if let (Some(available), Some((tensor, spanned, element))) = (bytes, span) {
            check_span(tensor, spanned, element, available)?;
        }
    }
    Ok(())
}

/// Checks that an output's buffer holds `count` elements.
pub(super) fn check_output(
    output: &BufferBinding,
    count: usize,
    element: ElementType,
) -> Result<(), ReduceError> {
    let available = bytes_between(output.size(), output.offset_start, output.offset_end);
    check_span("output", count, element, available)
}

/// Bytes of `count` elements.
pub(crate) fn byte_count(count: usize, element: ElementType) -> u64 {
    (count as u64).saturating_mul(element.bytes() as u64)
}

/// Bytes of a buffer between its offsets.
pub(crate) fn buffer_bytes(handle: &Handle) -> u64 {
    bytes_between(handle.size(), handle.offset_start, handle.offset_end)
}

/// Bytes of a buffer between its offsets; 0 if they cross.
fn bytes_between(size: u64, start: Option<u64>, end: Option<u64>) -> u64 {
    size.saturating_sub(start.unwrap_or(0)).saturating_sub(end.unwrap_or(0))
}

/// Alignment in bytes of an address that lies `offset` bytes into a buffer. Buffers themselves are
/// aligned to the widest load, of 16 bytes.
pub(crate) fn alignment_of(offset: u64) -> usize {
    const WIDEST_LOAD_LOG2: u32 = 4;
    1 << offset.trailing_zeros().min(WIDEST_LOAD_LOG2)
}

/// Checks that the device can bind a buffer at an offset.
pub(crate) fn check_offset(
    client: &Client,
    tensor: &'static str,
    offset: Option<u64>,
    element: ElementType,
) -> Result<(), ReduceError> {
    let offset = offset.unwrap_or(0);
    let alignment = binding_alignment(client, element);
    match offset.is_multiple_of(alignment) {
        true => Ok(()),
        false => Err(ReduceError::Misaligned { tensor, offset, alignment }),
    }
}
