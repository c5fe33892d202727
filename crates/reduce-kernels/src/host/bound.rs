//! Buffers that were checked, and the checks.
//!
//! Kernels trust the length of each array that they get, and read and write without asking. A
//! [`Bound`] is the proof that a buffer has that length: every array of a launch is made from one,
//! and nothing else in this crate makes such arrays.

use cubecl::{
    prelude::*,
    server::{BufferBinding, Handle},
};
use reduce_planner::{ElementType, InputSpec, Problem, Role};

use super::client::binding_alignment;
use crate::{
    error::{Reason, ReduceError},
    input::{buffer_bytes, bytes_between},
};

/// A buffer that holds this many elements from where it begins, at an offset where the device can
/// bind it.
#[derive(Clone, Debug)]
pub(crate) struct Bound<'a> {
    buffer: Buffer<'a>,
    len: usize,
}

/// A buffer of a [`Bound`].
#[derive(Clone, Debug)]
enum Buffer<'a> {
    /// That of an input. A call over many tensors spends its time on such handles, so it is turned
    /// into a binding where it is bound and not before.
    Given(&'a Handle),
    Binding(BufferBinding),
}

impl<'a> Bound<'a> {
    /// The buffer of a tensor of the caller's, whose elements span `len` places.
    ///
    /// # Errors
    ///
    /// The buffer is smaller, or begins where the device cannot bind it.
    pub(crate) fn check(
        client: &Client,
        tensor: Role,
        buffer: BufferBinding,
        len: usize,
        element: ElementType,
    ) -> Result<Self, ReduceError> {
        let available = bytes_between(buffer.size, buffer.offset_start, buffer.offset_end);
        check_span(tensor, len, element, available)?;
        check_offset(client, tensor, buffer.offset_start, element)?;
        Ok(Self { buffer: Buffer::Binding(buffer), len })
    }

    /// The buffer of an input of the caller's. If nothing of it is read, it is a small buffer in
    /// its place, because a kernel cannot bind one of 0 bytes.
    ///
    /// # Errors
    ///
    /// Those of [`check`](Self::check).
    pub(crate) fn check_input(
        client: &Client,
        tensor: Role,
        handle: &'a Handle,
        len: usize,
        element: ElementType,
    ) -> Result<Self, ReduceError> {
        check_span(tensor, len, element, buffer_bytes(handle))?;
        check_offset(client, tensor, handle.offset_start, element)?;
        let buffer = match len {
            0 => Buffer::Binding(client.empty(element.bytes()).binding()),
            _ => Buffer::Given(handle),
        };
        Ok(Self { buffer, len })
    }

    /// A buffer of this crate's own, which was asked for with at least `len` elements of so many
    /// bytes.
    pub(crate) fn own(buffer: BufferBinding, len: usize, bytes: usize) -> Self {
        let available = bytes_between(buffer.size, buffer.offset_start, buffer.offset_end);
        debug_assert!(
            (len as u64).saturating_mul(bytes as u64) <= available,
            "{len} elements of {bytes} bytes in a buffer of {available} bytes"
        );
        Self { buffer: Buffer::Binding(buffer), len }
    }

    /// The elements, as an argument of a launch.
    pub(crate) fn elements(&self) -> BufferArg {
        self.vectors(1)
    }

    /// The vectors of so many elements that lie entirely inside the buffer, as an argument of a
    /// launch.
    pub(crate) fn vectors(&self, width: usize) -> BufferArg {
        let binding = match &self.buffer {
            Buffer::Given(handle) => (*handle).clone().binding(),
            Buffer::Binding(binding) => binding.clone(),
        };
        // SAFETY: each constructor has found that the buffer holds `len` elements.
        unsafe { BufferArg::from_raw_parts_binding(binding, self.len / width) }
    }

    /// Whether the buffer begins at a multiple of so many bytes.
    pub(crate) fn begins_at_multiple_of(&self, bytes: usize) -> bool {
        let offset = match &self.buffer {
            Buffer::Given(handle) => handle.offset_start,
            Buffer::Binding(binding) => binding.offset_start,
        };
        offset.unwrap_or(0).is_multiple_of(bytes as u64)
    }
}

/// Checks that the device can bind a buffer at an offset.
fn check_offset(
    client: &Client,
    tensor: Role,
    offset: Option<u64>,
    element: ElementType,
) -> Result<(), ReduceError> {
    let offset = offset.unwrap_or(0);
    let alignment = binding_alignment(client, element);
    match offset.is_multiple_of(alignment) {
        true => Ok(()),
        false => Err(Reason::Misaligned { tensor, offset, alignment }.into()),
    }
}

/// Checks that the buffer of a tensor holds the elements that it spans.
pub(crate) fn check_span(
    tensor: Role,
    spanned: usize,
    element: ElementType,
    available: u64,
) -> Result<(), ReduceError> {
    let needed = byte_count(spanned, element);
    match needed > available {
        true => Err(Reason::BufferTooSmall { tensor, needed, available }.into()),
        false => Ok(()),
    }
}

/// Checks that the input's buffer holds all that the problem reads.
pub(crate) fn check_input(problem: &Problem, available: u64) -> Result<(), ReduceError> {
    check_span(Role::Input, problem.input_span(), problem.input(), available)
}

/// Checks that the buffers of the inputs, where they exist, hold all that the problem reads.
pub(super) fn check_inputs(problem: &Problem, bytes: &[Option<u64>]) -> Result<(), ReduceError> {
    let spans = [
        Some((Role::Input, problem.input_span(), problem.input())),
        problem.second().map(|second| (Role::SecondInput, second.span(), second.element())),
    ];
    for (&bytes, span) in bytes.iter().zip(spans) {
        if let (Some(available), Some((tensor, spanned, element))) = (bytes, span) {
            check_span(tensor, spanned, element, available)?;
        }
    }
    Ok(())
}

/// Bytes of `count` elements.
pub(crate) fn byte_count(count: usize, element: ElementType) -> u64 {
    (count as u64).saturating_mul(element.bytes() as u64)
}

/// Bytes of the memory of a new row-major tensor of the type and the shape of another. A buffer of
/// 0 bytes cannot be bound.
///
/// # Errors
///
/// They are more than the device's largest buffer has.
pub(crate) fn output_bytes(client: &Client, tensor: &InputSpec<'_>) -> Result<usize, ReduceError> {
    let available = client.properties().memory.max_page_size;
    let needed = byte_count(tensor.shape.iter().product(), tensor.element);
    match needed > available {
        true => Err(Reason::OutputTooLarge { needed, available }.into()),
        false => Ok((needed as usize).max(tensor.element.bytes())),
    }
}
