//! Compiling kernels before they are needed: a program's first requests then pay no compilation.
//!
//! With the feature `persistence`, CubeCL keeps what was compiled, and the next process that calls
//! [`warm_up`] reads it from the disk.

use std::time::{Duration, Instant};

use cubecl::{dry_run::DryRun, future::block_on, prelude::*, std::tensor::TensorHandle};
use reduce_planner::span;

use crate::{
    applied_reduction::AppliedReduction,
    element::storage_type,
    error::ReduceError,
    host::{apply::launch::Tensors, segments::integers::Members, top_k::launch::Selecting},
    input::{Input, alignment_of},
    list::{AppliedList, ListReduction, ListScan, ListSelections},
    operator::{Apply, One, Operator},
    reduction::Reduction,
    scan::Scan,
    segments::SegmentedReduction,
    top_k::{MaskedTopK, TopK},
};

/// A call whose kernels can be compiled without running it. Every builder is one, also with a
/// [`TensorDescription`](crate::TensorDescription) in place of a tensor.
pub trait WarmUp {
    /// Issues the call, with tensors that stand in for its own.
    ///
    /// # Errors
    ///
    /// The error that running it would return before anything is launched.
    #[doc(hidden)]
    fn issue(&self, client: &Client) -> Result<(), ReduceError>;

    /// Whether the call has a kernel that was not launched before.
    ///
    /// # Errors
    ///
    /// Those of [`issue`](Self::issue).
    #[doc(hidden)]
    fn has_new_kernels(&self, client: &Client) -> Result<bool, ReduceError>;
}

/// How far a [`warm_up`] has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Calls whose kernels are compiled.
    pub done: usize,
    /// All calls.
    pub of: usize,
    /// The time that the last of them took: a few microseconds if it shares its kernels with one
    /// before.
    pub last: Duration,
}

/// Compiles the kernels of these calls, one after the other, and plans the calls in this thread.
/// `progress` is called after each. Nothing runs: the calls' tensors are neither read nor written,
/// and those of descriptions take no memory of the device.
///
/// A call without an output of its own is compiled as if it had a new row-major one. CubeCL 0.11
/// compiles on one thread for each device, so calls do not overlap.
///
/// Call it before other threads use CubeCL. While it runs, CubeCL drops *every* launch of the
/// process, on all devices and threads, whoever asked for it ([`DryRun`]).
///
/// ```no_run
/// use reduce_kernels::{
///     ElementType, ReduceError, Sum, TensorDescription, cubecl::prelude::*,
///     normalize::Softmax, plans::{Numerics, use_numerics}, reduce, warm_up::warm_up,
/// };
///
/// # fn example(client: &Client) -> Result<(), ReduceError> {
/// // One batch of each width serves all batches.
/// use_numerics(Numerics::BatchInvariant);
/// let [one, many] = [1, 64].map(|rows| {
///     TensorDescription::row_major(ElementType::BF16, [rows, 32_000])
/// });
/// warm_up(
///     client,
///     &[
///         &reduce(Sum, &one).over(1),
///         &reduce(Sum, &many).over(1),
///         &Softmax.of(&one, 1),
///         &Softmax.of(&many, 1),
///     ],
///     |progress| println!("{} of {}", progress.done, progress.of),
/// )?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// The first call that cannot run, and kernels that do not compile
/// ([`ErrorKind::Device`](crate::ErrorKind::Device)). The calls before it are compiled.
pub fn warm_up(
    client: &Client,
    calls: &[&dyn WarmUp],
    mut progress: impl FnMut(Progress),
) -> Result<(), ReduceError> {
    let _nothing_runs = DryRun::new();
    for (nth, call) in calls.iter().enumerate() {
        let begun = Instant::now();
        call.issue(client)?;
        block_on(client.sync()).map_err(ReduceError::device)?;
        progress(Progress { done: nth + 1, of: calls.len(), last: begun.elapsed() });
    }
    Ok(())
}

/// Whether the call would compile a kernel if it ran now: whether it has one that this library has
/// neither launched nor [warmed up](warm_up) on the client's device, in any thread of the process.
///
/// It plans the call, and launches and compiles nothing, so other threads may go on. As in
/// `warm_up`, a call without an output of its own is meant, and one with operators of the same type
/// but other parameters has the same kernels.
///
/// CubeCL 0.11 does not tell which kernels it has, so the library remembers what it has launched.
/// Three things are therefore not in the answer:
///
/// - Kernels on the disk (the feature `persistence`): a kernel that would be loaded, not compiled,
///   counts as one that would be compiled.
/// - Kernels that do not compile: they count as compiled once they were launched.
/// - The clearing of words between launches of a recorded graph, which is a kernel of its own.
///
/// A kernel counts from its launch on. While the device's thread still compiles it, a call that
/// needs it waits.
///
/// ```no_run
/// use reduce_kernels::{
///     ElementType, ReduceError, TensorDescription, cubecl::prelude::*, normalize::Softmax,
///     warm_up::would_compile,
/// };
///
/// fn may_take(client: &Client, rows: usize) -> Result<bool, ReduceError> {
///     let x = TensorDescription::row_major(ElementType::BF16, [rows, 32_000]);
///     Ok(!would_compile(client, &Softmax.of(&x, 1))?)
/// }
/// ```
///
/// Recorded calls have a method of this name, such as
/// [`RecordedReduction::would_compile`](crate::plans::RecordedReduction::would_compile).
///
/// # Errors
///
/// The error that running the call would return before anything is launched.
pub fn would_compile(client: &Client, call: &dyn WarmUp) -> Result<bool, ReduceError> {
    call.has_new_kernels(client)
}

/// A tensor that lies as `tensor` does, of memory that is never touched. Its call has been checked.
fn stand_in<T: Input>(client: &Client, tensor: &T) -> Result<TensorHandle, ReduceError> {
    let spec = tensor.spec()?;
    let elements = span(spec.shape, spec.strides).expect("the problem has found the span");
    // A tensor that is less aligned than a buffer begins inside one.
    let widest = alignment_of(0);
    let offset = if spec.alignment < widest { spec.alignment } else { 0 };
    let bytes = elements.max(1).saturating_mul(spec.element.bytes());
    let handle = client.empty(bytes.saturating_add(offset)).offset_start(offset as u64);
    Ok(TensorHandle::new(handle, spec.shape, spec.strides, storage_type(spec.element)))
}

fn stand_ins<'a, T: Input + 'a>(
    client: &Client,
    tensors: impl Iterator<Item = &'a T>,
) -> Result<Vec<TensorHandle>, ReduceError> {
    tensors.map(|tensor| stand_in(client, tensor)).collect()
}

/// Tensors in place of those that say what segments have.
struct MemberStandIns {
    offsets: TensorHandle,
    indices: Option<TensorHandle>,
    keys: Option<TensorHandle>,
}

impl MemberStandIns {
    fn of<T: Input>(client: &Client, members: &Members<'_, T>) -> Result<Self, ReduceError> {
        let if_any = |tensor: Option<&T>| tensor.map(|tensor| stand_in(client, tensor)).transpose();
        let (indices, keys) = (if_any(members.indices)?, if_any(members.keys)?);
        Ok(Self { offsets: stand_in(client, members.offsets)?, indices, keys })
    }

    fn members(&self) -> Members<'_, TensorHandle> {
        let Self { offsets, indices, keys } = self;
        Members { offsets, indices: indices.as_ref(), keys: keys.as_ref() }
    }
}

impl<O: Operator, T: Input> WarmUp for Reduction<'_, O, T> {
    fn issue(&self, client: &Client) -> Result<(), ReduceError> {
        self.check(client)?;
        let input = stand_in(client, self.input)?;
        let second = self.second.map(|second| stand_in(client, second)).transpose()?;
        self.call(None)?.run(client, &input, second.as_ref())?;
        Ok(())
    }

    fn has_new_kernels(&self, client: &Client) -> Result<bool, ReduceError> {
        self.check(client)?;
        self.call(None)?.has_new_kernels(client)
    }
}

impl<O: Operator, F: Apply<Results = O::Results>, T: Input> WarmUp
    for AppliedReduction<'_, O, F, T>
{
    fn issue(&self, client: &Client) -> Result<(), ReduceError> {
        self.check(client)?;
        let Reduction { input, second, .. } = self.reduction;
        let input = stand_in(client, input)?;
        let second = second.map(|second| stand_in(client, second)).transpose()?;
        let operands = stand_ins(client, self.operands.iter().map(|beside| beside.operand))?;
        let members = self.members.as_ref().map(|members| MemberStandIns::of(client, members));
        let members = members.transpose()?;
        let tensors = Tensors {
            input: &input,
            second: second.as_ref(),
            operands: operands.iter().collect(),
            members: members.as_ref().map(MemberStandIns::members),
        };
        self.call(None, false)?.run(client, &tensors)?;
        Ok(())
    }

    fn has_new_kernels(&self, client: &Client) -> Result<bool, ReduceError> {
        self.check(client)?;
        self.call(None, false)?.has_new_kernels(client)
    }
}

impl<O: Operator, T: Input> WarmUp for SegmentedReduction<'_, O, T> {
    fn issue(&self, client: &Client) -> Result<(), ReduceError> {
        self.check(client)?;
        let input = stand_in(client, self.reduction.input)?;
        let second = self.reduction.second.map(|second| stand_in(client, second)).transpose()?;
        let members = MemberStandIns::of(client, &self.members)?;
        self.call(None)?.run(client, &input, second.as_ref(), members.members())?;
        Ok(())
    }

    fn has_new_kernels(&self, client: &Client) -> Result<bool, ReduceError> {
        self.check(client)?;
        self.call(None)?.has_new_kernels(client)
    }
}

impl<O: Operator<Inputs = One>, T: Input> WarmUp for Scan<'_, O, T> {
    fn issue(&self, client: &Client) -> Result<(), ReduceError> {
        self.check(client)?;
        let input = stand_in(client, self.reduction.input)?;
        let (call, earlier) = (self.call(None)?, self.earlier(client)?);
        call.run(client, &input, earlier)?;
        Ok(())
    }

    fn has_new_kernels(&self, client: &Client) -> Result<bool, ReduceError> {
        self.check(client)?;
        self.call(None)?.has_new_kernels(client)
    }
}

impl<T: Input> WarmUp for TopK<'_, T> {
    fn issue(&self, client: &Client) -> Result<(), ReduceError> {
        self.check(client)?;
        let input = stand_in(client, self.input)?;
        let table = self.table.map(|table| stand_in(client, table)).transpose()?;
        self.call(None)?.run(client, Selecting::from(&input, table.as_ref()))?;
        Ok(())
    }

    fn has_new_kernels(&self, client: &Client) -> Result<bool, ReduceError> {
        self.check(client)?;
        self.call(None)?.has_new_kernels(client)
    }
}

impl<T: Input> WarmUp for MaskedTopK<'_, T> {
    fn issue(&self, client: &Client) -> Result<(), ReduceError> {
        self.check(client)?;
        let input = stand_in(client, self.last.input)?;
        self.launch(client, &input)?;
        Ok(())
    }

    fn has_new_kernels(&self, client: &Client) -> Result<bool, ReduceError> {
        self.check(client)?;
        self.call(None)?.has_new_kernels(client)
    }
}

impl<T: Input> WarmUp for ListSelections<'_, T> {
    fn issue(&self, client: &Client) -> Result<(), ReduceError> {
        self.check(client)?;
        let tensors = stand_ins(client, self.tensors())?;
        self.launch(client, &tensors.iter().collect::<Vec<_>>())
    }

    fn has_new_kernels(&self, client: &Client) -> Result<bool, ReduceError> {
        self.check(client)?;
        self.launches_new_kernels(client)
    }
}

impl<O: Operator, T: Input> WarmUp for ListReduction<'_, O, T> {
    fn issue(&self, client: &Client) -> Result<(), ReduceError> {
        self.check(client)?;
        let tensors = stand_ins(client, self.tensors.iter().copied())?;
        self.call()?.run(client, &tensors.iter().collect::<Vec<_>>())?;
        Ok(())
    }

    fn has_new_kernels(&self, client: &Client) -> Result<bool, ReduceError> {
        self.check(client)?;
        self.call()?.has_new_kernels(client)
    }
}

impl<O: Operator<Inputs = One>, T: Input> WarmUp for ListScan<'_, O, T> {
    fn issue(&self, client: &Client) -> Result<(), ReduceError> {
        self.check(client)?;
        let tensors = stand_ins(client, self.list.tensors.iter().copied())?;
        self.call()?.run(client, &tensors.iter().collect::<Vec<_>>())?;
        Ok(())
    }

    fn has_new_kernels(&self, client: &Client) -> Result<bool, ReduceError> {
        self.check(client)?;
        self.call()?.has_new_kernels(client)
    }
}

impl<O: Operator, F: Apply<Results = O::Results, Outputs = One>, T: Input> WarmUp
    for AppliedList<'_, O, F, T>
{
    fn issue(&self, client: &Client) -> Result<(), ReduceError> {
        self.check(client, false)?;
        let tensors = stand_ins(client, self.list.tensors.iter().copied())?;
        self.call(false)?.run(client, &tensors.iter().collect::<Vec<_>>())?;
        Ok(())
    }

    fn has_new_kernels(&self, client: &Client) -> Result<bool, ReduceError> {
        self.check(client, false)?;
        self.call(false)?.has_new_kernels(client)
    }
}
