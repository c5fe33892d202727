//! Scratch memory, through which the cubes of a split pass partial results. Threads keep it between
//! calls, so a split usually allocates nothing.
//!
//! CubeCL allocates on the device's own thread, after the call that asked for the memory has
//! returned. If the allocation fails, it drops every launch that binds the handle, and waiting for
//! such a launch succeeds nevertheless. This module therefore checks that new memory exists before
//! any launch binds it. The check is a round trip to the device's thread, once for each growth.

use core::cell::RefCell;

use cubecl::{
    prelude::*,
    server::{Handle, ServerError},
    std::tensor::TensorHandle,
};
use reduce_planner::ElementType;

use super::{bound::Bound, cache::identity, client::has_fencing_atomics};
use crate::{
    element::storage_type,
    error::{Reason, ReduceError},
    kernels::partials::clear_words,
};

/// Number of streams whose memory a thread keeps. If a thread uses more, the stream that was used
/// least recently loses its memory.
const MOST_STREAMS: usize = 8;

/// CubeCL's number of a stream.
pub(crate) type Stream = u64;

/// Smallest number of words of published partials to allocate, so that a buffer rarely has to grow.
const FEWEST_WORDS: usize = 1 << 12;

/// Smallest buffer for one field's partial results, in bytes, so that it rarely has to grow.
const FEWEST_BYTES: usize = 1 << 12;

/// Largest buffer for one field's partial results that is kept between calls, in bytes.
const MOST_KEPT_BYTES: usize = 16 << 20;

/// Most bytes of [`SlotBuffers`] that a stream keeps.
const MOST_SLOT_BYTES: usize = 32 << 20;

thread_local! {
    /// The memory of each stream. The stream that was used last comes first.
    static STREAMS: RefCell<Vec<StreamScratch>> = const { RefCell::new(Vec::new()) };
}

/// The memory of one stream. Its launches run one after the other, so they can share it.
struct StreamScratch {
    client: usize,
    stream: Stream,
    words: Option<KeptWords>,
    /// For each field of the widest accumulator so far, a buffer and its requested size in bytes.
    /// CubeCL rounds the size of a handle up, but wgpu binds no more bytes than were requested.
    partials: Vec<(Handle, usize)>,
    /// Buffers of exchanges. Those that were used last come first.
    slots: Vec<(SlotKey, SlotBuffers)>,
}

struct KeptWords {
    handle: Handle,
    count: usize,
    /// Number of the last launch that used the words; 0 before the first launch.
    launch: u32,
}

/// 64-bit words for one launch.
pub(crate) struct Words {
    pub(super) words: Bound<'static>,
    /// The number of the launch in the upper 32 bits. It is never 0, and greater than the number
    /// of any earlier launch with these words.
    pub(super) mark: u64,
}

impl Words {
    /// The words as plain numbers, where kernels order those by fences.
    pub(super) fn plain(&self, client: &Client) -> Option<BufferArg> {
        has_fencing_atomics(client).then(|| self.words.elements())
    }
}

/// At least `count` words for the next launch on `stream`. While a graph is recorded, the graph
/// clears them before the launch: see [`partials`](crate::kernels::partials).
///
/// # Errors
///
/// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the device has no memory for them.
pub(super) fn words(client: &Client, stream: Stream, count: usize) -> Result<Words, ReduceError> {
    with_scratch(client, stream, |scratch| {
        let usable = |words: &KeptWords| words.count >= count && words.launch < u32::MAX;
        let mut words = match scratch.words.take().filter(usable) {
            Some(words) => words,
            None => new_words(client, count.next_power_of_two().max(FEWEST_WORDS))?,
        };
        words.launch += 1;
        let mark = u64::from(words.launch) << 32;
        let kept = words.handle.clone().binding();
        let launch = Words { words: Bound::own(kept, words.count, size_of::<u64>()), mark };
        if client.is_capturing() {
            clear(client, &launch.words, count);
        }
        scratch.words = Some(words);
        Ok(launch)
    })
}

/// Enqueues that the first `count` words become 0.
fn clear(client: &Client, words: &Bound<'_>, count: usize) {
    const UNITS: u32 = 256;
    // SAFETY: the buffer holds at least `count` words, and the kernel writes no others. Earlier
    // launches of the stream have ended when it begins, and later ones begin when it has ended.
    unsafe {
        clear_words::launch_unchecked(
            client,
            CubeCount::new_1d(count.div_ceil(UNITS as usize) as u32),
            CubeDim::new_1d(UNITS),
            words.elements(),
            count,
        );
    }
}

/// New words of 0, which belong to no launch.
fn new_words(client: &Client, count: usize) -> Result<KeptWords, ReduceError> {
    let handle = written(client, &vec![0; count * size_of::<u64>()])?;
    Ok(KeptWords { handle, count, launch: 0 })
}

/// Buffers for an exchange of words between devices.
#[derive(Clone)]
pub(super) struct SlotBuffers {
    /// The words that this device gives. Of an exchange by addition, all others are 0 and stay so.
    pub(super) own: Handle,
    /// Where the words of all devices come together.
    pub(super) gathered: Handle,
}

/// Which [`SlotBuffers`] an exchange uses: the bytes of all devices together, and where those that
/// this device gives begin and how many they are, in one place or in two.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotKey {
    pub(super) bytes: usize,
    pub(super) own: [(usize, usize); 2],
}

/// The buffers for an exchange. They exist: a device that finds none when the others wait for it
/// would let them wait forever.
///
/// Exchanges of one stream may share them, because each waits for what the stream did before.
///
/// # Errors
///
/// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the device has no memory for them.
pub(super) fn slot_buffers(
    client: &Client,
    stream: Stream,
    key: SlotKey,
) -> Result<SlotBuffers, ReduceError> {
    with_scratch(client, stream, |scratch| {
        if let Some(nth) = scratch.slots.iter().position(|(kept, _)| *kept == key) {
            scratch.slots[..=nth].rotate_right(1);
            return Ok(scratch.slots[0].1.clone());
        }
        let bytes = key.bytes;
        let words = [bytes / size_of::<u32>()];
        let own = TensorHandle::zeros(client, words, storage_type(ElementType::U32)).handle;
        check_allocated(client, &own, bytes)?;
        let buffers = SlotBuffers { own, gathered: allocated(client, bytes)? };
        scratch.slots.insert(0, (key, buffers.clone()));
        let mut kept = 0;
        scratch.slots.retain(|(key, _)| {
            kept += 2 * key.bytes;
            kept <= MOST_SLOT_BYTES
        });
        Ok(buffers)
    })
}

/// A buffer of these numbers, for launches to read.
///
/// # Errors
///
/// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the device has no memory for it.
pub(super) fn table(client: &Client, numbers: &[u32]) -> Result<Handle, ReduceError> {
    written(client, u32::as_bytes(numbers))
}

/// The two words of a number in a table.
pub(super) fn in_words(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

/// A buffer of these bytes, which exists and which the device's thread has been told to write.
///
/// The bytes are not read back, because that would wait for everything that the stream does before.
/// One round trip to the device's thread remains. CubeCL would tell nobody otherwise that an
/// allocation failed, and a table that is kept would make later calls wrong.
///
/// # Errors
///
/// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the device has no memory for it.
pub(super) fn written(client: &Client, bytes: &[u8]) -> Result<Handle, ReduceError> {
    let failed = |reason: String| Reason::Scratch { bytes: bytes.len() as u64, reason };
    let handle = client.create_from_slice(bytes);
    match client.check([&handle]) {
        Ok(()) => Ok(handle),
        Err(error) => Err(failed(error.to_string()).into()),
    }
}

/// The index of the first of these buffers whose bytes are lost, because they were not allocated or
/// because what should have written them failed, and why. One round trip to the device's thread if
/// there is none, which does not wait for the device.
pub(crate) fn first_lost(client: &Client, handles: &[Handle]) -> Option<(usize, ServerError)> {
    client.check(handles).err()?;
    let reason = |handle: &Handle| client.check([handle]).err();
    handles.iter().enumerate().find_map(|(nth, handle)| Some((nth, reason(handle)?)))
}

/// The error of a buffer whose bytes are lost.
pub(crate) fn unwritten(nth: usize, handle: &Handle, error: &ServerError) -> ReduceError {
    Reason::Unwritten { nth, bytes: handle.size(), reason: error.to_string() }.into()
}

/// For each field of an accumulator, which takes so many bytes, a buffer of `len` of them. Its
/// content is arbitrary.
///
/// # Errors
///
/// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the device has no memory for one of them.
pub(super) fn partials(
    client: &Client,
    stream: Stream,
    len: usize,
    fields: impl IntoIterator<Item = usize>,
) -> Result<Vec<Bound<'static>>, ReduceError> {
    with_scratch(client, stream, |scratch| {
        let mut partials = Vec::new();
        for (nth, field) in fields.into_iter().enumerate() {
            let bound = |handle: Handle| Bound::own(handle.binding(), len, field);
            let bytes = len * field;
            if let Some((kept, _)) = scratch.partials.get(nth).filter(|kept| kept.1 >= bytes) {
                partials.push(bound(kept.clone()));
                continue;
            }
            let is_kept = bytes <= MOST_KEPT_BYTES;
            let bytes = if is_kept { bytes.next_power_of_two().max(FEWEST_BYTES) } else { bytes };
            let handle = allocated(client, bytes)?;
            // The list must stay without gaps: a buffer is kept only if the buffers of all fields
            // before it are.
            if is_kept && nth <= scratch.partials.len() {
                scratch.partials.truncate(nth);
                scratch.partials.push((handle.clone(), bytes));
            }
            partials.push(bound(handle));
        }
        Ok(partials)
    })
}

/// Calls `work` with the memory of a stream, and marks the stream as used last.
fn with_scratch<T>(
    client: &Client,
    stream: Stream,
    work: impl FnOnce(&mut StreamScratch) -> T,
) -> T {
    let client = identity(client);
    STREAMS.with_borrow_mut(|streams| {
        let is_ours =
            |scratch: &StreamScratch| scratch.client == client && scratch.stream == stream;
        match streams.iter().position(is_ours) {
            Some(0) => {}
            Some(nth) => streams[..=nth].rotate_right(1),
            None => {
                streams.truncate(MOST_STREAMS - 1);
                let scratch = StreamScratch {
                    client,
                    stream,
                    words: None,
                    partials: Vec::new(),
                    slots: Vec::new(),
                };
                streams.insert(0, scratch);
            }
        }
        work(&mut streams[0])
    })
}

/// A buffer of this many bytes that exists.
///
/// # Errors
///
/// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the device has no memory for it.
pub(super) fn allocated(client: &Client, bytes: usize) -> Result<Handle, ReduceError> {
    let handle = client.empty(bytes);
    check_allocated(client, &handle, bytes)?;
    Ok(handle)
}

fn check_allocated(client: &Client, handle: &Handle, bytes: usize) -> Result<(), ReduceError> {
    let failed = |error: ServerError| error.to_string();
    client
        .check([handle])
        .map_err(failed)
        .map_err(|reason| Reason::Scratch { bytes: bytes as u64, reason }.into())
}
