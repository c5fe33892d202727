//! The buffers of one call, checked against the problem.

use cubecl::{
    prelude::*,
    server::{BufferBinding, Handle},
    std::tensor::TensorHandle,
};
use reduce_planner::{ElementType, Problem};

use super::{client::binding_alignment, request::Resolved};
use crate::ReduceError;

/// The buffers of the input and of each result, which hold every offset of a reduction's problem.
///
/// [`Buffers::check`] is the only constructor, so kernels can run the reduction on a value of this
/// type without bounds checks.
pub(crate) struct Buffers<'a> {
    resolved: &'a Resolved,
    input: BufferBinding,
    second: Option<BufferBinding>,
    outputs: Vec<BufferBinding>,
}

impl<'a> Buffers<'a> {
    /// Checks the spans and the offsets of the buffers.
    ///
    /// # Errors
    ///
    /// A buffer that is too small, or starts where the device cannot bind it.
    pub(crate) fn check(
        client: &Client,
        resolved: &'a Resolved,
        input: &TensorHandle,
        second: Option<&TensorHandle>,
        outputs: Vec<BufferBinding>,
    ) -> Result<Self, ReduceError> {
        let Resolved { problem, signature, words, .. } = resolved;
        let bytes = |tensor: &TensorHandle| buffer_bytes(&tensor.handle);
        check_inputs(problem, [Some(bytes(input)), second.map(bytes)])?;
        check_offset(client, "input", input.handle.offset_start, problem.input())?;
        if let (Some(tensor), Some(second)) = (second, problem.second()) {
            let offset = tensor.handle.offset_start;
            check_offset(client, "second input", offset, second.element())?;
        }
        let of_words =
            words.map(|words| (problem.outputs().saturating_mul(words), ElementType::U32));
        for (output, &element) in outputs.iter().zip(&signature.results) {
            let (count, element) = of_words.unwrap_or((problem.output_span(), element));
            check_output(output, count, element)?;
            check_offset(client, "output", output.offset_start, element)?;
        }
        // If there is nothing to load, the input is not read, but its binding must hold one
        // element.
        let input = match problem.input_span() {
            0 => client.empty(problem.input().bytes()).binding(),
            _ => input.handle.clone().binding(),
        };
        let second =
            second.map(|tensor| match problem.second().map_or(0, |second| second.span()) {
                0 => client.empty(WIDEST_ELEMENT).binding(),
                _ => tensor.handle.clone().binding(),
            });
        Ok(Self { resolved, input, second, outputs })
    }

    /// The reduction that the buffers were checked for.
    pub(super) fn resolved(&self) -> &'a Resolved {
        self.resolved
    }

    pub(super) fn input(&self) -> &BufferBinding {
        &self.input
    }

    pub(super) fn second(&self) -> Option<&BufferBinding> {
        self.second.as_ref()
    }

    pub(super) fn outputs(&self) -> &[BufferBinding] {
        &self.outputs
    }
}

/// Checks that the input's buffer holds all that the problem reads.
pub(crate) fn check_input(problem: &Problem, available: u64) -> Result<(), ReduceError> {
    let needed = byte_count(problem.input_span(), problem.input());
    if needed > available {
        return Err(ReduceError::BufferTooSmall { tensor: "input", needed, available });
    }
    Ok(())
}

/// Checks that the buffers of the inputs, where they exist, hold all that the problem reads.
pub(crate) fn check_inputs(problem: &Problem, bytes: [Option<u64>; 2]) -> Result<(), ReduceError> {
    let [first, second] = bytes;
    first.map_or(Ok(()), |available| check_input(problem, available))?;
    second.map_or(Ok(()), |available| check_second(problem, available))
}

/// Checks that the second input's buffer holds all that the problem reads.
fn check_second(problem: &Problem, available: u64) -> Result<(), ReduceError> {
    let Some(second) = problem.second() else { return Ok(()) };
    let needed = byte_count(second.span(), second.element());
    if needed > available {
        return Err(ReduceError::BufferTooSmall { tensor: "second input", needed, available });
    }
    Ok(())
}

/// Checks that an output's buffer holds `count` elements.
pub(super) fn check_output(
    output: &BufferBinding,
    count: usize,
    element: ElementType,
) -> Result<(), ReduceError> {
    let needed = byte_count(count, element);
    let available = bytes_between(output.size(), output.offset_start, output.offset_end);
    if needed > available {
        return Err(ReduceError::BufferTooSmall { tensor: "output", needed, available });
    }
    Ok(())
}

/// Bytes of the widest element.
const WIDEST_ELEMENT: usize = 8;

/// Bytes of `count` elements.
pub(crate) fn byte_count(count: usize, element: ElementType) -> u64 {
    (count as u64).saturating_mul(element.bytes() as u64)
}

/// Bytes of a buffer between its offsets.
pub(crate) fn buffer_bytes(handle: &Handle) -> u64 {
    bytes_between(handle.size(), handle.offset_start, handle.offset_end)
}

/// Bytes of a buffer between its offsets; 0 if they cross.
pub(super) fn bytes_between(size: u64, start: Option<u64>, end: Option<u64>) -> u64 {
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
