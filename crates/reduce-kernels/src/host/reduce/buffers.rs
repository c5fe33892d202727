//! The buffers of a reduction, checked against its problem.

use cubecl::{prelude::*, server::BufferBinding, std::tensor::TensorHandle};
use reduce_planner::ElementType;

use super::request::Resolved;
use crate::{
    ReduceError,
    host::buffers::{buffer_bytes, check_inputs, check_offset, check_output},
};

/// Bytes of the widest element.
const WIDEST_ELEMENT: usize = 8;

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
        check_inputs(problem, &[Some(bytes(input)), second.map(bytes)])?;
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
