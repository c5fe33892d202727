//! Memory through which the cubes of a split pass partial results, kept between calls: a split then
//! allocates nothing.
//!
//! CubeCL 0.10 allocates on the device's own thread, after the call that asked for the memory has
//! returned. If that fails, the thread panics and catches its panic, and from then on drops every launch that
//! binds the handle; reading another buffer of such a launch, and waiting for it, succeed all the same.
//! Memory of this module therefore proves that it exists before any launch binds it. That takes a round
//! trip to the device's thread, once for each growth.

use core::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cubecl::{prelude::*, server::Handle, stream_id::StreamId};

use super::{
    cache::identity,
    dispatch::{Dispatch, Merging},
};
use crate::{ReduceError, kernels::team::Team};

/// Streams whose memory a thread keeps. Where a thread uses more, the one not used for the longest time
/// loses its memory.
const MOST_STREAMS: usize = 8;

/// Fewest words of published partials, so that they rarely grow.
const FEWEST_WORDS: usize = 1 << 12;

/// Fewest bytes of one field's partial results, so that they rarely grow.
const FEWEST_BYTES: usize = 1 << 12;

/// Bytes of one field's partial results up to which their memory is kept.
const MOST_KEPT_BYTES: usize = 16 << 20;

thread_local! {
    /// The memory of each stream, the one used last in front.
    static STREAMS: RefCell<Vec<StreamScratch>> = const { RefCell::new(Vec::new()) };
}

/// The memory of one stream. Its launches run one after the other, so they can share it.
struct StreamScratch {
    client: usize,
    stream: StreamId,
    words: Option<KeptWords>,
    /// A buffer for each field of the widest accumulator so far, and its bytes. CubeCL rounds the size of a
    /// handle up, but wgpu binds no more than what was asked for.
    partials: Vec<(Handle, usize)>,
}

struct KeptWords {
    handle: Handle,
    count: usize,
    /// Number of the last launch that took the words, 0 before the first.
    launch: u32,
}

/// The memory that one launch uses beside its buffers.
pub(crate) enum Scratch {
    /// There is nothing to pass on.
    None,
    /// Words for published partials, which the last of `cubes` cubes merges.
    Words { cubes: usize, words: Words },
    /// A buffer for each field of the partial results of `cubes` cubes, which a second launch merges.
    Partials { cubes: usize, buffers: Vec<Handle>, team: Team, grid: [u32; 3] },
}

impl Scratch {
    /// What a dispatch needs on a stream: `fields` are the bytes of each accumulator field, `outputs` the
    /// number of outputs. The stream is asked for only if memory is needed.
    ///
    /// # Errors
    ///
    /// [`ReduceError::Scratch`] if there is no memory for it.
    pub(crate) fn of<R: Runtime>(
        client: &ComputeClient<R>,
        stream: impl FnOnce() -> StreamId,
        dispatch: &Dispatch,
        fields: impl IntoIterator<Item = usize>,
        outputs: usize,
    ) -> Result<Self, ReduceError> {
        match dispatch.merging {
            Merging::None => Ok(Scratch::None),
            Merging::LastCube { cubes, words: count } => {
                Ok(Scratch::Words { cubes, words: words(client, stream(), count)? })
            }
            Merging::SecondLaunch { cubes, team, grid } => {
                let bytes = fields.into_iter().map(|field| cubes * outputs * field);
                let buffers = partials(client, stream(), bytes)?;
                Ok(Scratch::Partials { cubes, buffers, team, grid })
            }
        }
    }
}

/// Words of 64 bits for one launch.
pub(crate) struct Words {
    pub(super) handle: Handle,
    pub(super) count: usize,
    /// The number of the launch in the upper half: greater than that of any earlier launch with these
    /// words, and never 0.
    pub(super) mark: u64,
}

/// At least `count` words for the next launch on `stream`.
///
/// # Errors
///
/// [`ReduceError::Scratch`] if there is no memory for them.
fn words<R: Runtime>(
    client: &ComputeClient<R>,
    stream: StreamId,
    count: usize,
) -> Result<Words, ReduceError> {
    with_scratch(client, stream, |scratch| {
        let usable = |words: &KeptWords| words.count >= count && words.launch < u32::MAX;
        let mut words = match scratch.words.take().filter(usable) {
            Some(words) => words,
            None => new_words(client, count.next_power_of_two().max(FEWEST_WORDS))?,
        };
        words.launch += 1;
        let mark = u64::from(words.launch) << 32;
        let launch = Words { handle: words.handle.clone(), count: words.count, mark };
        scratch.words = Some(words);
        Ok(launch)
    })
}

/// Words of 0, which are no launch's. They are read back, because their zeros are written later too.
fn new_words<R: Runtime>(
    client: &ComputeClient<R>,
    count: usize,
) -> Result<KeptWords, ReduceError> {
    let bytes = count * size_of::<u64>();
    let failed = |reason: String| ReduceError::Scratch { bytes: bytes as u64, reason };
    let handle = client.create_from_slice(&vec![0; bytes]);
    // CubeCL panics here where the memory was not allocated.
    match catch_unwind(AssertUnwindSafe(|| client.read_one(handle.clone()))) {
        Err(_) => Err(failed("the allocation failed".into())),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Ok(Ok(found)) if found.iter().any(|&byte| byte != 0) => {
            Err(failed("it was not cleared".into()))
        }
        Ok(Ok(_)) => Ok(KeptWords { handle, count, launch: 0 }),
    }
}

/// A buffer of at least so many bytes for each field of an accumulator, of any content.
///
/// # Errors
///
/// [`ReduceError::Scratch`] if there is no memory for one of them.
fn partials<R: Runtime>(
    client: &ComputeClient<R>,
    stream: StreamId,
    fields: impl IntoIterator<Item = usize>,
) -> Result<Vec<Handle>, ReduceError> {
    with_scratch(client, stream, |scratch| {
        let mut handles = Vec::new();
        for (nth, bytes) in fields.into_iter().enumerate() {
            if let Some((kept, _)) = scratch.partials.get(nth).filter(|kept| kept.1 >= bytes) {
                handles.push(kept.clone());
                continue;
            }
            let is_kept = bytes <= MOST_KEPT_BYTES;
            let bytes = if is_kept { bytes.next_power_of_two().max(FEWEST_BYTES) } else { bytes };
            let handle = client.empty(bytes);
            if !is_allocated(client, &handle) {
                let reason = "the allocation failed".into();
                return Err(ReduceError::Scratch { bytes: bytes as u64, reason });
            }
            // Fields come in order, so the buffers kept are those of the first ones.
            if is_kept && nth <= scratch.partials.len() {
                scratch.partials.truncate(nth);
                scratch.partials.push((handle.clone(), bytes));
            }
            handles.push(handle);
        }
        Ok(handles)
    })
}

/// Does something with the memory of a stream.
fn with_scratch<R: Runtime, T>(
    client: &ComputeClient<R>,
    stream: StreamId,
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
                let scratch = StreamScratch { client, stream, words: None, partials: Vec::new() };
                streams.insert(0, scratch);
            }
        }
        work(&mut streams[0])
    })
}

/// Whether the memory behind a handle was allocated. Waits for the device's thread, not for the device.
pub(crate) fn is_allocated<R: Runtime>(client: &ComputeClient<R>, handle: &Handle) -> bool {
    let (asking, handle) = (client.clone(), handle.clone());
    client.exclusive(move || asking.get_resource(handle).is_ok()).unwrap_or(false)
}
