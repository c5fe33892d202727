//! Masks: inputs of which only the selected elements are kept.

use core::fmt;
use std::borrow::Cow;

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{Choice, InputSpec, TopKPlan, TopKProblem, row_major_strides};

#[cfg(feature = "serde")]
use crate::recorded::{RecordedCall, RecordedTopK};
use crate::{
    error::{Reason, ReduceError},
    host::{
        bound::output_bytes,
        call::Call,
        top_k::{mask::check_fill, request::TopKRequest},
    },
    input::Input,
    plan_in_use::PlanInUse,
    top_k::TopK,
};

/// The input of a selection with a number in place of all elements that are not selected; see
/// [`TopK::masked`]. It does nothing until it is run. If the input is a
/// [`TensorDescription`](crate::TensorDescription), it cannot run, but answers everything else.
#[derive(Clone)]
#[must_use = "a mask does nothing until it is run"]
pub struct MaskedTopK<'a, T> {
    /// The selection of the last of the elements to keep.
    pub(crate) last: TopK<'a, T>,
    pub(crate) fill: f32,
    /// An option that was asked for, but that a mask does not have.
    pub(crate) refused: Option<&'static str>,
}

impl<T: Input> fmt::Debug for MaskedTopK<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaskedTopK").field("last", &self.last).field("fill", &self.fill).finish()
    }
}

impl<T: Input> MaskedTopK<'_, T> {
    /// The canonical problem, for planning without a device.
    ///
    /// # Errors
    ///
    /// Invalid axes, types or strides, slices that are too short, a `k` of 0, a `fill` that the type
    /// of integers does not have, and probabilities, positions to write and `only_last`, which a
    /// mask does not have.
    pub fn problem(&self) -> Result<TopKProblem, ReduceError> {
        Ok(self.call(None)?.stated()?.problem)
    }

    /// Chooses a plan of the selection, even if [`TopK::with_plan`] has set one. The estimate is
    /// that of both.
    ///
    /// # Errors
    ///
    /// Those of [`problem`](Self::problem), and selections that the device cannot run.
    pub fn choose(&self, client: &Client) -> Result<Choice<TopKPlan>, ReduceError> {
        self.call(None)?.choose(client, &self.last.buffer_bytes())
    }

    /// The plan of the selection that [`run`](Self::run) would run now, and where it comes from; see
    /// [`Reduction::plan`](crate::Reduction::plan).
    ///
    /// # Errors
    ///
    /// The errors of `choose`, and a plan of [`TopK::with_plan`] that may not run.
    pub fn plan(&self, client: &Client) -> Result<PlanInUse<TopKPlan>, ReduceError> {
        self.call(None)?.plan(client, &self.last.buffer_bytes())
    }

    /// Whether [`run`](Self::run) would launch. It checks and plans the selection and the mask, and
    /// caches both, but launches nothing. The input's memory is not checked if the input is a
    /// [`TensorDescription`](crate::TensorDescription).
    ///
    /// # Errors
    ///
    /// The error that `run` would return.
    pub fn check(&self, client: &Client) -> Result<(), ReduceError> {
        output_bytes(client, &self.last.input.spec()?)?;
        self.call(None)?.check(client, &self.last.buffer_bytes())
    }

    /// The call as data, as [`record_calls`](crate::plans::record_calls) would record it.
    ///
    /// # Errors
    ///
    /// Those of [`problem`](Self::problem).
    #[cfg(feature = "serde")]
    pub fn record(&self) -> Result<RecordedCall, ReduceError> {
        Ok(RecordedCall::TopK(RecordedTopK::of(&self.call(None)?.task)?))
    }

    /// The call, into a tensor with these strides or into a row-major one.
    pub(crate) fn call<'s>(
        &'s self,
        strides: Option<&'s [usize]>,
    ) -> Result<Call<'s, TopKRequest<'s>>, ReduceError> {
        if let Some(option) = self.refused {
            return Err(Reason::Mask { option }.into());
        }
        let InputSpec { element, shape, .. } = self.last.input.spec()?;
        check_fill(element, self.fill)?;
        let mut call = self.last.call(None)?;
        let row_major = || Cow::Owned(row_major_strides(shape));
        call.task.mask = Some(strides.map_or_else(row_major, Cow::Borrowed));
        Ok(call)
    }

    /// Launches it for a tensor that lies as the input does, into a new row-major one.
    pub(crate) fn launch(
        &self,
        client: &Client,
        input: &TensorHandle,
    ) -> Result<TensorHandle, ReduceError> {
        let call = self.call(None)?;
        let spec = self.last.input.spec()?;
        let handle = client.empty(output_bytes(client, &spec)?);
        let masked = TensorHandle::new_contiguous(spec.shape, handle, input.dtype);
        call.keep_only(client, input, self.fill, masked.handle.clone().binding())?;
        Ok(masked)
    }
}

impl MaskedTopK<'_, TensorHandle> {
    /// Launches into a new row-major tensor. Does not wait. Each thread caches the prepared call.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched: those of [`problem`](Self::problem), and
    /// selections that the device cannot run.
    pub fn run(self, client: &Client) -> Result<TensorHandle, ReduceError> {
        self.launch(client, self.last.input)
    }

    /// Launches into a tensor of the input's shape, of any strides. It may be the input itself, with
    /// the same strides; otherwise, it must not share memory with the input. Does not wait.
    ///
    /// # Errors
    ///
    /// Those of [`run`](Self::run), and an output of another shape, or in which two elements lie in
    /// one place.
    pub fn run_into(self, client: &Client, output: TensorBinding) -> Result<(), ReduceError> {
        let call = self.call(Some(&output.strides))?;
        if output.shape[..] != call.task.shape[..] {
            let (expected, found) = (call.task.shape.to_vec(), output.shape.to_vec());
            return Err(Reason::OutputShape { expected, found }.into());
        }
        call.keep_only(client, self.last.input, self.fill, output.handle.clone())
    }
}
