//! Selections from slices that come in parts: chunks of a stream, shards, tensors of a list.
//!
//! Each part gives its own first elements, in order, with their positions in the whole. Those of
//! the parts, side by side in the order of the parts, are candidates. The first elements of the
//! whole are the first of its candidates: of equal ones, that of the earlier part comes first, and
//! it has the lower position. So a merge is a selection like any other, which writes the positions
//! of the candidates in place of where they lie among these.

use std::{borrow::Cow, rc::Rc};

use cubecl::{prelude::*, server::Handle, std::tensor::TensorHandle};
use reduce_planner::{ElementType, InputSpec, Over, Probabilities, ProblemError};

use super::{
    launch::{ReadyTopK, Selecting},
    request::{Order, PositionTable, PreparedTopK, TopKRequest, with_ranks_first},
};
use crate::{
    element::storage_type,
    error::{Reason, ReduceError},
    host::{call::Call, reduce::check_layouts, scratch::allocated},
    input::{alignment_of, sealed::Layout},
};

/// What is selected of slices that come in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InParts {
    pub(crate) k: usize,
    pub(crate) or_fewer: bool,
    /// Whether only the last of the `k` elements is written in the end.
    pub(crate) only_last: bool,
    pub(crate) order: Order,
    /// The probabilities that are written in the end in place of values, if these are not.
    pub(crate) probabilities: Option<Probabilities>,
    /// Type of the elements.
    pub(crate) element: ElementType,
    /// Type of the positions.
    pub(crate) positions: ElementType,
    /// Shape of the results, with any number of selected elements.
    pub(crate) shape: Vec<usize>,
    /// The axis of the selected elements.
    pub(crate) axis: usize,
}

/// A selection from one part, whose results are candidates.
pub(crate) struct Part<'a> {
    pub(crate) call: Call<'a, TopKRequest<'a>>,
    /// What the first position of a slice of the part counts as.
    pub(crate) first: u64,
    /// Elements that it gives of each slice.
    pub(crate) count: usize,
}

/// A selection from several parts, of which nothing is prepared.
pub(crate) struct CallInParts<'a> {
    whole: InParts,
    parts: Vec<Part<'a>>,
    /// The selection from what the parts give.
    merge: Call<'a, TopKRequest<'a>>,
    finish: Finish,
}

/// The input of a part, and the tensor of positions to write if the part has one.
pub(crate) type PartTensors<'a> = (&'a TensorHandle, Option<&'a TensorHandle>);

/// Candidates of all slices: those with one rank side by side, and those of a part before those of
/// the next.
#[derive(Clone)]
pub(crate) struct Candidates {
    pub(crate) values: Handle,
    pub(crate) positions: Handle,
    /// Candidates of each slice.
    pub(crate) count: usize,
}

/// Where the first of the candidates go.
pub(crate) enum Finish {
    /// New row-major tensors.
    Results,
    /// Tensors of the caller's.
    Into(Box<[TensorBinding; 2]>),
    /// New candidates, of a part that may be merged with others.
    Candidates,
}

impl InParts {
    /// Number of slices.
    pub(crate) fn slices(&self) -> usize {
        let others = self.shape.iter().enumerate().filter(|&(axis, _)| axis != self.axis);
        others.map(|(_, &extent)| extent).product()
    }

    /// The shape with so many elements of each slice.
    fn with_elements(&self, count: usize) -> Vec<usize> {
        let mut shape = self.shape.clone();
        shape[self.axis] = count;
        shape
    }

    /// New memory for `count` candidates of each slice.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the device has none.
    pub(crate) fn new_candidates(
        &self,
        client: &Client,
        count: usize,
    ) -> Result<Candidates, ReduceError> {
        let places = self.slices().saturating_mul(count).max(1);
        let new = |element: ElementType| allocated(client, places.saturating_mul(element.bytes()));
        Ok(Candidates { values: new(self.element)?, positions: new(self.positions)?, count })
    }

    /// The selection from each part, and then from what all of them give. `len` is the number of
    /// elements of each slice in all parts together. The latter is planned for the device of the
    /// parts, with their store.
    ///
    /// # Errors
    ///
    /// Slices of fewer than `k` elements, and outputs that do not fit.
    pub(crate) fn call(
        self,
        mut parts: Vec<Part<'_>>,
        len: usize,
        finish: Finish,
    ) -> Result<CallInParts<'_>, ReduceError> {
        let count = parts.iter().map(|part| part.count).sum();
        let slices = self.slices();
        for part in &mut parts {
            part.call.task.places = slices.saturating_mul(count);
        }
        let (device, plans) =
            parts.first().map_or((None, None), |part| (part.call.device, part.call.plans));
        let merge = Call { device, plans, ..self.merging(count, len, &finish)? };
        Ok(CallInParts { whole: self, parts, merge, finish })
    }

    /// Selects from candidates that are there.
    pub(crate) fn select(
        &self,
        client: &Client,
        candidates: &Candidates,
        len: usize,
        finish: Finish,
    ) -> Result<Option<[TensorHandle; 2]>, ReduceError> {
        let merge = self.merge(client, candidates.count, len, &finish)?;
        self.finish(client, &merge, candidates, finish, Vec::new())
    }

    /// Prepares the selection from `count` candidates of each slice of `len` elements.
    ///
    /// # Errors
    ///
    /// Those of [`merging`](Self::merging), and what a selection of candidates cannot run for.
    pub(crate) fn merge(
        &self,
        client: &Client,
        count: usize,
        len: usize,
        finish: &Finish,
    ) -> Result<Rc<PreparedTopK>, ReduceError> {
        self.merging(count, len, finish)?.prepared(client)
    }

    /// The selection from `count` candidates of each slice of `len` elements.
    ///
    /// # Errors
    ///
    /// Slices of fewer than `k` elements, and outputs that do not fit.
    fn merging(
        &self,
        count: usize,
        len: usize,
        finish: &Finish,
    ) -> Result<Call<'static, TopKRequest<'static>>, ReduceError> {
        let is_last = !matches!(finish, Finish::Candidates);
        let probabilities = self.probabilities.filter(|_| is_last);
        if probabilities.is_some_and(|of| of.over == Over::Slice) {
            return Err(Reason::ProbabilitiesInParts { over: Over::Slice }.into());
        }
        // A part has fewer candidates than `k` only if it has no more elements, so there are too
        // few candidates where there are too few elements.
        if is_last && !self.or_fewer && self.k > len {
            return Err(ProblemError::TooFewElements { k: self.k, len }.into());
        }
        let shape = self.with_elements(count);
        let strides = with_ranks_first(&shape, self.axis);
        let axes = [self.axis];
        let input = InputSpec {
            element: self.element,
            shape: &shape,
            strides: &strides,
            alignment: alignment_of(0),
        };
        let table = PositionTable { element: self.positions, strides: Cow::Borrowed(&strides[..]) };
        let output = match finish {
            Finish::Into(outputs) => {
                let shape = self.with_elements(self.written(len));
                check_layouts(&shape, &outputs[..])?;
                Some((Cow::Owned(shape), Cow::Owned(outputs[0].strides.to_vec())))
            }
            Finish::Results | Finish::Candidates => None,
        };
        let request = TopKRequest {
            or_fewer: true,
            ranks_first: !is_last,
            order: self.order,
            probabilities: probabilities.map(|of| of.over),
            values: probabilities.map(|of| of.element),
            positions: Some(self.positions),
            table: Some(table),
            output,
            ..TopKRequest::new(input, Some(&axes), self.k)
        };
        let request = if self.only_last && is_last { request.only_last()? } else { request };
        Ok(of_task(request.into_owned()))
    }

    /// Elements that are written in the end of each slice of `len`.
    fn written(&self, len: usize) -> usize {
        if self.only_last { 1 } else { self.k.min(len) }
    }

    /// Runs what is ready, and selects from the candidates. Gives the new tensors, if they are new.
    pub(crate) fn finish(
        &self,
        client: &Client,
        merge: &PreparedTopK,
        candidates: &Candidates,
        finish: Finish,
        ready: Vec<ReadyTopK<'_>>,
    ) -> Result<Option<[TensorHandle; 2]>, ReduceError> {
        let shape = self.with_elements(candidates.count);
        let tensor = |handle: &Handle, element: ElementType| {
            let strides = with_ranks_first(&shape, self.axis);
            TensorHandle::new(handle.clone(), shape.clone(), strides, storage_type(element))
        };
        let values = tensor(&candidates.values, self.element);
        let positions = tensor(&candidates.positions, self.positions);
        let (new, outputs) = match finish {
            Finish::Results | Finish::Candidates => {
                let new = merge.new_outputs(client);
                let bindings = new.each_ref().map(|output| output.handle.clone().binding());
                (Some(new), bindings)
            }
            Finish::Into(outputs) => (None, outputs.map(|output| output.handle)),
        };
        let stream = Some(candidates.values.stream.value);
        let selecting = Selecting::from(&values, Some(&positions));
        let last = merge.ready(client, selecting, outputs, stream)?;
        ready.into_iter().chain(last).for_each(ReadyTopK::run);
        Ok(new)
    }
}

impl<'a> CallInParts<'a> {
    /// The selection from each part, and last the one from what they give.
    pub(crate) fn into_calls(self) -> Vec<Call<'a, TopKRequest<'a>>> {
        self.parts.into_iter().map(|part| part.call).chain([self.merge]).collect()
    }

    /// Selects from parts that are these tensors. Everything is checked before the first launch.
    /// `of_part` tells which part an error is of. Gives the new tensors, if they are new.
    pub(crate) fn run(
        self,
        client: &Client,
        tensors: &[PartTensors<'_>],
        of_part: impl Fn(usize, ReduceError) -> ReduceError,
    ) -> Result<Option<[TensorHandle; 2]>, ReduceError> {
        let Self { whole, parts, merge, finish } = self;
        let slices = whole.slices();
        let each = parts.iter().enumerate();
        let prepared =
            each.map(|(nth, part)| part.call.prepared(client).map_err(|error| of_part(nth, error)));
        let prepared: Vec<Rc<PreparedTopK>> = prepared.collect::<Result<_, _>>()?;
        let merge = merge.prepared(client)?;
        let candidates = whole.new_candidates(client, parts.iter().map(|part| part.count).sum())?;
        let mut ready = Vec::new();
        let mut before = 0;
        for (nth, ((part, prepared), &(input, table))) in
            parts.iter().zip(&prepared).zip(tensors).enumerate()
        {
            let &Part { first, count, .. } = part;
            let selecting = Selecting { input, table, start: before * slices, first, tables: None };
            let outputs = [&candidates.values, &candidates.positions];
            let outputs = outputs.map(|handle| handle.clone().binding());
            let stream = Some(candidates.values.stream.value);
            let launch = prepared.ready(client, selecting, outputs, stream);
            ready.extend(launch.map_err(|error| of_part(nth, error))?);
            before += count;
        }
        whole.finish(client, &merge, &candidates, finish, ready)
    }
}

/// One of several selections that share nothing but their launch.
pub(crate) struct Each<'a> {
    pub(crate) client: &'a Client,
    pub(crate) call: &'a Call<'a, TopKRequest<'a>>,
    pub(crate) input: &'a TensorHandle,
    pub(crate) table: Option<&'a TensorHandle>,
}

/// Runs several selections, of which each is checked before the first is launched. `of_one` tells
/// which an error is of. Gives the values and the positions of each.
pub(crate) fn select_each(
    calls: &[Each<'_>],
    of_one: impl Fn(usize, ReduceError) -> ReduceError,
) -> Result<Vec<[TensorHandle; 2]>, ReduceError> {
    let each = calls.iter().enumerate();
    let prepared = each.map(|(nth, Each { client, call, .. })| {
        call.prepared(client).map_err(|error| of_one(nth, error))
    });
    let prepared: Vec<Rc<PreparedTopK>> = prepared.collect::<Result<_, _>>()?;
    let mut results = Vec::new();
    let mut launches = Vec::new();
    for (nth, (each, prepared)) in calls.iter().zip(&prepared).enumerate() {
        let &Each { client, input, table, .. } = each;
        let outputs = prepared.new_outputs(client);
        let bindings = outputs.each_ref().map(|output| output.handle.clone().binding());
        let stream = Some(outputs[0].handle.stream.value);
        let launch = prepared.ready(client, Selecting::from(input, table), bindings, stream);
        launches.extend(launch.map_err(|error| of_one(nth, error))?);
        results.push(outputs);
    }
    launches.into_iter().for_each(ReadyTopK::run);
    Ok(results)
}

impl<'a> Part<'a> {
    /// The part that gives candidates that are there, which are copied: `count` of each slice, as
    /// tensors of shape `[candidates, 1]`.
    pub(crate) fn copied(
        values: &'a TensorHandle,
        positions: &'a TensorHandle,
        count: usize,
    ) -> Result<Self, ReduceError> {
        let table = positions.spec()?;
        // A slice of one element, of which the first is selected.
        let request = TopKRequest {
            positions: Some(table.element),
            table: Some(PositionTable {
                element: table.element,
                strides: Cow::Borrowed(table.strides),
            }),
            ..TopKRequest::new(values.spec()?, Some(&[1]), 1)
        };
        Ok(Self { call: of_task(request), first: 0, count })
    }
}

fn of_task(task: TopKRequest<'_>) -> Call<'_, TopKRequest<'_>> {
    Call { task, device: None, plans: None, parameters: Vec::new(), apply_parameters: Vec::new() }
}
