//! Launches selections.

use cubecl::{
    prelude::*,
    server::{BufferBinding, Handle},
    std::tensor::TensorHandle,
};
use reduce_planner::{ElementType, Probabilities, Role, TopKMethod};

use super::request::{
    Further, Order, PreparedTopK, RunLaunches, StatedTopK, TopKLaunch, TopKRequest, entries_left,
    reading,
};
use crate::{
    element::{memory_type, storage_type},
    error::ReduceError,
    host::{
        arguments::{count, geometry, merging_types},
        bound::Bound,
        call::Call,
        launched::{Kernel, Launches, dimensions},
        reduce::{Inputs, PreparedReduction, check_layouts, launch::ReductionLaunch},
        scratch::{Stream, in_words, partials},
        types::applied_type,
    },
    kernels::{
        args::{ApplicationTypes, InputArraysLaunch, KernelTypesArg},
        geometry::CompanionAccess,
        top_k::{
            buffered::{select_among_candidates, select_candidates, select_first},
            candidates::CandidateArraysLaunch,
            registers::select_in_registers,
            runs::{
                merge_runs, sort_runs, sort_runs_of_entries, store_probabilities_of_runs,
                store_runs,
            },
            selected::{SelectedArraysLaunch, SoftmaxArraysLaunch},
            selection::Selection,
            window::select_in_windows,
        },
    },
};

/// What a selection reads, and where its results go, apart from its outputs' buffers.
#[derive(Clone, Copy)]
pub(crate) struct Selecting<'a> {
    pub(crate) input: &'a TensorHandle,
    /// The tensor of positions to write, if the request has one.
    pub(crate) table: Option<&'a TensorHandle>,
    /// Elements of the outputs' buffers before the first that is written.
    pub(crate) start: usize,
    /// What the first position of a slice counts as.
    pub(crate) first: u64,
    /// The tables of slices, if each has one; see [`Ranks`](super::request::Ranks).
    pub(crate) tables: Option<&'a Handle>,
}

impl<'a> Selecting<'a> {
    /// From a tensor, with positions from 0, into outputs of its own.
    pub(crate) fn from(input: &'a TensorHandle, table: Option<&'a TensorHandle>) -> Self {
        Self { input, table, start: 0, first: 0, tables: None }
    }
}

impl<'a> Call<'a, TopKRequest<'a>> {
    /// Launches into new tensors: the values and the positions.
    pub(crate) fn run(
        self,
        client: &Client,
        selecting: Selecting<'_>,
    ) -> Result<[TensorHandle; 2], ReduceError> {
        self.prepared(client)?.run_new(client, selecting)
    }

    /// Launches into tensors that the caller supplies.
    pub(crate) fn run_into(
        self,
        client: &Client,
        selecting: Selecting<'_>,
        outputs: [TensorBinding; 2],
    ) -> Result<(), ReduceError> {
        let prepared = self.prepared(client)?;
        check_layouts(&prepared.stated.shape, &outputs)?;
        let outputs = outputs.map(|output| output.handle);
        let ready = prepared.ready(client, selecting, outputs, None)?;
        ready.into_iter().for_each(ReadyTopK::run);
        Ok(())
    }
}

impl PreparedTopK {
    /// Launches into new tensors: the values and the positions.
    pub(super) fn run_new(
        &self,
        client: &Client,
        selecting: Selecting<'_>,
    ) -> Result<[TensorHandle; 2], ReduceError> {
        let outputs = self.new_outputs(client);
        let bindings = outputs.each_ref().map(|output| output.handle.clone().binding());
        let stream = outputs[0].handle.stream.value;
        let ready = self.ready(client, selecting, bindings, Some(stream))?;
        ready.into_iter().for_each(ReadyTopK::run);
        Ok(outputs)
    }

    /// New tensors for the values and the positions.
    pub(crate) fn new_outputs(&self, client: &Client) -> [TensorHandle; 2] {
        let StatedTopK { problem, signature, shape, strides, .. } = &self.stated;
        let new = |element: ElementType| {
            // A buffer of 0 bytes cannot be bound.
            let handle = client.empty(problem.output_span().max(1) * element.bytes());
            TensorHandle::new(handle, shape.clone(), strides.clone(), storage_type(element))
        };
        let [values, positions, _] = signature.results;
        [new(values), new(positions)]
    }

    /// Launches that cannot be refused any more; `None` if there is nothing to launch. `stream` is
    /// the client's stream if it is known.
    pub(crate) fn ready<'r>(
        &'r self,
        client: &'r Client,
        selecting: Selecting<'r>,
        outputs: [BufferBinding; 2],
        stream: Option<Stream>,
    ) -> Result<Option<ReadyTopK<'r>>, ReduceError> {
        let StatedTopK { problem, signature, .. } = &self.stated;
        let Selecting { input, table, start, first, tables } = selecting;
        let (span, element) = (problem.slices().input_span(), problem.slices().input());
        let input = Bound::check_input(client, Role::Input, &input.handle, span, element)?;
        let table = table.zip(problem.slices().second()).map(|(tensor, table)| {
            let (span, element) = (table.span(), table.element());
            Bound::check_input(client, Role::Positions, &tensor.handle, span, element)
        });
        let table = table.transpose()?;
        let [values, positions] = outputs;
        let places = start.saturating_add(problem.output_span());
        let bound = |output, element| Bound::check(client, Role::Output, output, places, element);
        let outputs =
            [bound(values, signature.results[0])?, bound(positions, signature.results[1])?];
        let Some(launch) = &self.launch else { return Ok(None) };
        // CubeCL does not reveal the stream of a client, but a new buffer does.
        let stream = || stream.unwrap_or_else(|| client.empty(1).stream.value);
        let words = launch.selection.key_words + launch.selection.position_words;
        let entries = |times: usize| {
            let bytes = core::iter::repeat_n(size_of::<u32>(), times * words);
            partials(client, stream(), entries_left(problem, &launch.plan), bytes)
        };
        let entries = match launch.further {
            Further::None => Vec::new(),
            Further::Among { .. } => entries(1)?,
            Further::Runs(_) => entries(2)?,
        };
        let softmax = match &self.softmax {
            Some(reduction) => Some(self.softmax(client, reduction, selecting.input)?),
            None => None,
        };
        let order = self.order;
        let (ranks, words_of_ranks) = match self.words_of_slice {
            Some(words) => (tables, problem.slices().outputs() * words),
            None => (self.ranks.as_ref(), problem.written()),
        };
        let ranks = ranks
            .map(|ranks| Bound::own(ranks.clone().binding(), words_of_ranks, size_of::<u32>()));
        let stated = &self.stated;
        let launching = SelectionLaunch {
            client,
            stated,
            launch,
            order,
            ranks,
            words_of_slice: self.words_of_slice.unwrap_or(0),
            softmax: softmax.as_ref().map(|(_, found)| found.clone()),
            input,
            table,
            outputs,
            start,
            first,
        };
        let softmax = softmax.map(|(launch, _)| launch);
        Ok(Some(ReadyTopK { prepared: self, launching, entries, softmax }))
    }

    /// The launch of the reduction to what makes probabilities of elements, and where it leaves
    /// that.
    fn softmax<'r>(
        &'r self,
        client: &'r Client,
        reduction: &'r PreparedReduction,
        input: &'r TensorHandle,
    ) -> Result<(ReductionLaunch<'r>, [Bound<'static>; 2]), ReduceError> {
        let problem = &reduction.resolved.problem;
        let inputs = Inputs::bind(client, problem, input, None)?;
        let (span, bytes) = (problem.output_span(), self.real().bytes());
        let found = [(); 2].map(|()| client.empty(span * bytes));
        let bindings = found.each_ref().map(|handle| handle.clone().binding());
        let stream = Some(found[0].stream.value);
        let launch = reduction.ready(client, &[], inputs, stream, bindings.to_vec())?;
        let launch = launch.expect("a selection that launches has slices");
        Ok((launch, bindings.map(|binding| Bound::own(binding, span, bytes))))
    }

    /// The type in which probabilities are computed.
    fn real(&self) -> ElementType {
        applied_type(self.stated.problem.slices().input(), None, None)
    }
}

/// A selection whose checks have all passed, with the memory between its launches.
pub(crate) struct ReadyTopK<'a> {
    prepared: &'a PreparedTopK,
    launching: SelectionLaunch<'a>,
    entries: Vec<Bound<'static>>,
    /// The reduction to what makes probabilities of elements.
    softmax: Option<ReductionLaunch<'a>>,
}

impl ReadyTopK<'_> {
    /// Launches it.
    pub(crate) fn run(self) {
        let Self { prepared, launching, entries, softmax } = self;
        let SelectionLaunch { client, launch, .. } = launching;
        prepared.noted.launch(client, |each| prepared.own_kernels(client, each));
        softmax.into_iter().for_each(ReductionLaunch::run);
        match launch.further {
            Further::None if launch.plan.method == TopKMethod::Registers => {
                launching.select_in_registers();
            }
            Further::None if launch.plan.method == TopKMethod::Window => {
                launching.select_in_windows();
            }
            Further::None => launching.select(),
            Further::Among { selection, grid } => {
                launching.select_candidates(&entries, selection, grid);
            }
            Further::Runs(runs) => {
                let (first, second) = entries.split_at(entries.len() / 2);
                launching.sort(&runs, [first, second]);
            }
        }
    }
}

/// A call whose checks have all passed.
struct SelectionLaunch<'a> {
    client: &'a Client,
    stated: &'a StatedTopK,
    launch: &'a TopKLaunch,
    order: Order,
    ranks: Option<Bound<'static>>,
    words_of_slice: usize,
    /// The largest element of each slice, and one over the sum of exponentials.
    softmax: Option<[Bound<'static>; 2]>,
    input: Bound<'a>,
    table: Option<Bound<'a>>,
    outputs: [Bound<'static>; 2],
    start: usize,
    first: u64,
}

impl SelectionLaunch<'_> {
    /// One launch.
    fn select(&self) {
        let TopKLaunch { plan, address, selection, grid, .. } = *self.launch;
        let problem = &self.stated.problem;
        // SAFETY: the buffers hold every offset of the problem. The plan's check has found that
        // vector loads are aligned and inside their inner dimensions. Units without work repeat the
        // loads of others. Entries have positions of elements, and outputs a place for each rank.
        unsafe {
            select_first::launch_unchecked(
                self.client,
                count(grid),
                CubeDim::new_1d(selection.team.units_per_cube),
                address,
                self.types(),
                self.input(self.table.as_ref()),
                self.selected(),
                geometry(problem.slices(), &reading(&plan, plan.slices_per_cube)),
                self.order.argument(),
                problem.k() as u32,
                plan.access,
                selection,
            );
        }
    }

    /// One launch of units that hold slices.
    fn select_in_registers(&self) {
        let TopKLaunch { plan, address, selection, grid, .. } = *self.launch;
        let problem = &self.stated.problem;
        // SAFETY: as in `select`. The plan's check has found that the units hold a slice, and the
        // buffer what may be among its first elements.
        unsafe {
            select_in_registers::launch_unchecked(
                self.client,
                count(grid),
                CubeDim::new_1d(selection.team.units_per_cube),
                address,
                self.types(),
                self.input(self.table.as_ref()),
                self.selected(),
                geometry(problem.slices(), &reading(&plan, plan.slices_per_cube)),
                self.order.argument(),
                problem.k() as u32,
                plan.access,
                selection,
            );
        }
    }

    /// One launch that finds elements with given numbers.
    fn select_in_windows(&self) {
        let TopKLaunch { plan, address, selection, grid, .. } = *self.launch;
        let problem = &self.stated.problem;
        // SAFETY: as in `select`. The buffer's entries are no more than it holds, because elements
        // differ in their positions.
        unsafe {
            select_in_windows::launch_unchecked(
                self.client,
                count(grid),
                CubeDim::new_1d(selection.team.units_per_cube),
                address,
                self.types(),
                self.input(self.table.as_ref()),
                self.selected(),
                geometry(problem.slices(), &reading(&plan, plan.slices_per_cube)),
                self.order.argument(),
                plan.access,
                selection,
            );
        }
    }

    /// A launch of several cubes for each slice, and one that selects among what they leave.
    fn select_candidates(
        &self,
        candidates: &[Bound<'_>],
        merging: Selection,
        merging_grid: [u32; 3],
    ) {
        let TopKLaunch { plan, address, selection, grid, .. } = *self.launch;
        let problem = &self.stated.problem;
        let (k, cubes) = (problem.k(), plan.cubes_per_slice as usize);
        // SAFETY: as in `select`. There is a place for each entry that a cube leaves.
        unsafe {
            select_candidates::launch_unchecked(
                self.client,
                count(grid),
                CubeDim::new_1d(selection.team.units_per_cube),
                address,
                self.types(),
                self.input(None),
                arrays(candidates),
                geometry(problem.slices(), &reading(&plan, plan.slices_per_cube)),
                self.order.argument(),
                k as u32,
                cubes,
                plan.access,
                selection,
            );
        }
        // SAFETY: the first launch has left `cubes * k` entries of each slice.
        unsafe {
            select_among_candidates::launch_unchecked(
                self.client,
                count(merging_grid),
                CubeDim::new_1d(merging.team.units_per_cube),
                address,
                self.types(),
                self.input(self.table.as_ref()),
                arrays(candidates),
                self.selected(),
                geometry(problem.slices(), &reading(&plan, plan.slices_per_cube)),
                self.order.argument(),
                k as u32,
                cubes * k,
                plan.access,
                merging,
            );
        }
    }

    /// A launch that sorts runs, those that merge them, and one that stores what is selected.
    /// `entries` are arrays that launches read and write in turn.
    fn sort(&self, launches: &RunLaunches, entries: [&[Bound<'_>]; 2]) {
        let TopKLaunch { plan, address, selection, grid, .. } = *self.launch;
        let problem = &self.stated.problem;
        let k = problem.k();
        // SAFETY: as in `select`. Each run has places for as many entries as a buffer.
        unsafe {
            sort_runs::launch_unchecked(
                self.client,
                count(grid),
                CubeDim::new_1d(selection.team.units_per_cube),
                address,
                self.types(),
                self.input(None),
                arrays(entries[0]),
                geometry(problem.slices(), &reading(&plan, 1)),
                self.order.of_values(),
                launches.runs,
                plan.access,
                selection,
            );
        }
        let mut entries = self.merge(launches, launches.runs, false, entries);
        let mut places = launches.runs * plan.buffer as usize;
        if let Some((runs, grid)) = launches.by_position {
            // SAFETY: each slice has `k` entries, and the runs of as many fit where all did.
            unsafe {
                sort_runs_of_entries::launch_unchecked(
                    self.client,
                    count(grid),
                    CubeDim::new_1d(selection.team.units_per_cube),
                    address,
                    arrays(entries[0]),
                    arrays(entries[1]),
                    self.order.argument(),
                    k,
                    problem.slices().outputs(),
                    places,
                    runs,
                    selection,
                );
            }
            entries.swap(0, 1);
            entries = self.merge(launches, runs, true, entries);
            places = runs * plan.buffer as usize;
        }
        if let Some((storing, grid)) = launches.probabilities {
            // SAFETY: the first `k` places of each slice have entries. Units of cubes without a
            // slice read the entries of another and write nothing.
            unsafe {
                store_probabilities_of_runs::launch_unchecked(
                    self.client,
                    count(grid),
                    CubeDim::new_1d(storing.team.units_per_cube),
                    address,
                    self.types(),
                    self.input(self.table.as_ref()),
                    arrays(entries[0]),
                    self.selected(),
                    geometry(problem.slices(), &reading(&plan, 1)),
                    self.order.argument(),
                    k as u32,
                    places,
                    plan.access,
                    storing,
                );
            }
            return;
        }
        // SAFETY: the first `k` places of each slice have entries.
        unsafe {
            store_runs::launch_unchecked(
                self.client,
                count(launches.storing),
                CubeDim::new_1d(launches.units),
                address,
                self.types(),
                self.input(self.table.as_ref()),
                arrays(entries[0]),
                self.selected(),
                geometry(problem.slices(), &reading(&plan, 1)),
                self.order.argument(),
                places,
                problem.slices().outputs() * problem.written(),
                plan.access,
                selection,
            );
        }
    }

    /// Merges so many runs of each slice, which the first of the arrays hold. Gives the arrays, of
    /// which the first hold the result.
    fn merge<'e>(
        &self,
        launches: &RunLaunches,
        runs: usize,
        by_position: bool,
        entries: [&'e [Bound<'e>]; 2],
    ) -> [&'e [Bound<'e>]; 2] {
        let TopKLaunch { plan, address, selection, .. } = *self.launch;
        let problem = &self.stated.problem;
        let places = runs * plan.buffer as usize;
        let [mut read, mut written] = entries;
        let mut len = plan.buffer as usize;
        while len < places {
            let order = if by_position { self.order.argument() } else { self.order.of_values() };
            // SAFETY: the arrays have `places` for each slice, and units read and write inside
            // those of their slice.
            unsafe {
                merge_runs::launch_unchecked(
                    self.client,
                    count(launches.merging),
                    CubeDim::new_1d(launches.units),
                    address,
                    arrays(read),
                    arrays(written),
                    order,
                    problem.k(),
                    len,
                    places,
                    problem.slices().outputs() * places,
                    selection,
                );
            }
            core::mem::swap(&mut read, &mut written);
            len *= 2;
        }
        [read, written]
    }

    fn types(&self) -> KernelTypesArg {
        types(self.client, self.stated, self.launch)
    }

    /// The input as vectors and as elements, and the positions to write where a launch writes them.
    /// No load reads these.
    fn input(&self, table: Option<&Bound<'_>>) -> InputArraysLaunch {
        let vectors = self.input.vectors(self.launch.plan.access.vector);
        let elements = Some(self.input.elements()).into();
        let table = table.map(Bound::elements).into();
        InputArraysLaunch::new(
            vectors,
            elements,
            table,
            None.into(),
            CompanionAccess::None,
            None.into(),
            None.into(),
        )
    }

    fn selected(&self) -> SelectedArraysLaunch {
        let [values, positions] = &self.outputs;
        let problem = &self.stated.problem;
        let ranks = self.ranks.as_ref().map(Bound::elements);
        let softmax = self.softmax.as_ref().map(|[maxima, reciprocals]| {
            SoftmaxArraysLaunch::new(maxima.elements(), reciprocals.elements())
        });
        let [first, first_high] = in_words(self.first);
        SelectedArraysLaunch::new(
            values.elements(),
            positions.elements(),
            ranks.into(),
            self.words_of_slice,
            softmax.into(),
            problem.written(),
            problem.rank_stride(),
            self.start,
            first,
            first_high,
        )
    }
}

/// The types of kernels that read the input.
fn types(client: &Client, stated: &StatedTopK, launch: &TopKLaunch) -> KernelTypesArg {
    let element = stated.problem.slices().input();
    let types = KernelTypesArg {
        stored: memory_type(element),
        second: stated.problem.slices().second().map(|table| memory_type(table.element())),
        width: launch.plan.access.vector,
        ..merging_types(client, &stated.signature)
    };
    let Some(Probabilities { element: output, .. }) = stated.problem.probabilities() else {
        return KernelTypesArg { hardware_math: false, ..types };
    };
    let real = memory_type(applied_type(element, None, None));
    let output = memory_type(output);
    let application = Some(ApplicationTypes { real, outputs: [output; 3], operands: [real; 3] });
    KernelTypesArg { application, ..types }
}

impl PreparedTopK {
    /// Calls `each` with every kernel that the selection itself launches, and that of a mask.
    fn own_kernels(&self, client: &Client, each: &mut dyn FnMut(Kernel)) {
        let Some(launch) = &self.launch else { return };
        let TopKLaunch { plan, address, selection, .. } = *launch;
        let types = types(client, &self.stated, launch);
        let reads = (types, plan.access, address, dimensions(self.stated.problem.slices()));
        let by_ranks = (self.ranks.is_some(), self.softmax.is_some());
        match launch.further {
            Further::None if plan.method == TopKMethod::Registers => {
                each(Kernel::new("select_in_registers", (reads, selection, by_ranks)));
            }
            Further::None if plan.method == TopKMethod::Window => {
                each(Kernel::new("select_in_windows", (reads, selection, by_ranks)));
            }
            Further::None => each(Kernel::new("select_first", (reads, selection, by_ranks))),
            Further::Among { selection: among, .. } => {
                each(Kernel::new("select_candidates", (&reads, selection)));
                each(Kernel::new("select_among_candidates", (&reads, among, by_ranks)));
            }
            Further::Runs(RunLaunches { runs, units, by_position, probabilities, .. }) => {
                each(Kernel::new("sort_runs", (&reads, selection)));
                if by_position.is_some() {
                    each(Kernel::new("sort_runs_of_entries", (selection, address)));
                }
                if runs > 1 || by_position.is_some_and(|(runs, _)| runs > 1) {
                    each(Kernel::new("merge_runs", (selection, address, units)));
                }
                each(match probabilities {
                    Some((storing, _)) => {
                        Kernel::new("store_probabilities_of_runs", (&reads, storing, by_ranks))
                    }
                    None => Kernel::new("store_runs", (&reads, selection, units, by_ranks)),
                });
            }
        }
        self.mask_kernel(client).into_iter().for_each(each);
    }
}

impl Launches for PreparedTopK {
    fn kernels(&self, client: &Client, each: &mut dyn FnMut(Kernel)) {
        if let Some(reduction) = &self.softmax {
            reduction.kernels(client, each);
        }
        self.own_kernels(client, each);
    }
}

/// Entries as arrays of words.
fn arrays(words: &[Bound<'_>]) -> CandidateArraysLaunch {
    CandidateArraysLaunch::of(words.iter().map(Bound::elements))
}
