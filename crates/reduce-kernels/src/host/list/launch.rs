//! Launches reductions of lists.

use cubecl::{prelude::*, server::Handle, std::tensor::TensorHandle};
use reduce_planner::ElementType;

use super::{
    reading::PreparedLaunch,
    request::{ListLaunches, ListTask, PreparedList, StatedList, check_tensors},
};
use crate::{
    ReduceError,
    element::{memory_type, storage_type},
    host::{
        arguments::{count, parameters, partial_arrays, result_arrays},
        call::Call,
        client::has_hardware_math,
        scratch::partials,
    },
    kernels::{
        args::{KernelTypesArg, PartialArraysLaunch},
        list::{merge_list, reduce_list},
        pairwise::CHAIN,
    },
    operator::ParametersLaunch,
};

impl Call<'_, ListTask<'_>> {
    /// Launches into new tensors. Returns the result of each tensor and that of all, for each
    /// result of the operator.
    pub(crate) fn run(
        self,
        client: &Client,
        tensors: &[&TensorHandle],
    ) -> Result<Vec<ListResult>, ReduceError> {
        self.prepared(client)?.run(client, &self.parameters, tensors)
    }
}

impl PreparedList {
    /// Launches into new tensors; see [`Call::run`].
    pub(super) fn run(
        &self,
        client: &Client,
        parameters: &[f64],
        tensors: &[&TensorHandle],
    ) -> Result<Vec<ListResult>, ReduceError> {
        let StatedList { problem, signature } = &self.stated;
        check_tensors(client, problem, tensors)?;
        let operator = self.operator.0;
        let results = &signature.results[..operator.results];
        let outputs: Vec<Handle> = results
            .iter()
            .map(|&result| {
                let elements = self.each + tensors.len().max(1);
                client.empty(elements * result.bytes())
            })
            .collect();
        let stream = outputs
            .first()
            .map_or_else(|| client.empty(1).stream.value, |output| output.stream.value);
        let fields = &signature.fields[..operator.fields];
        let bytes = fields.iter().map(|field| self.launch.partials.max(1) * field.bytes());
        let partials = partials(client, stream, bytes)?;
        let launch = Launch { client, prepared: self, parameters, partials: &partials };
        for reading in &self.launch.reading {
            launch.read(reading, tensors);
        }
        launch.merge(&outputs, tensors.len());
        let of_list = |(output, &result): (Handle, &ElementType)| {
            let (bytes, storage) = (result.bytes() as u64, storage_type(result));
            let beyond = output.size_in_used() - bytes;
            let all = output.clone().offset_end(beyond);
            let each = output.offset_start(self.each as u64 * bytes);
            ListResult {
                each: TensorHandle::new_contiguous([tensors.len()], each, storage),
                all: TensorHandle::new_contiguous([1], all, storage),
            }
        };
        Ok(outputs.into_iter().zip(results).map(of_list).collect())
    }
}

/// One result of an operator over a list.
pub(crate) struct ListResult {
    /// Those of each tensor, in the order of the list.
    pub(crate) each: TensorHandle,
    /// That of all tensors together.
    pub(crate) all: TensorHandle,
}

/// A call whose checks have all passed.
struct Launch<'a> {
    client: &'a Client,
    prepared: &'a PreparedList,
    parameters: &'a [f64],
    partials: &'a [Handle],
}

impl Launch<'_> {
    /// The partials of the tensors of one launch.
    fn read(&self, reading: &PreparedLaunch, tensors: &[&TensorHandle]) {
        let PreparedLaunch { launch, grid, address, .. } = reading;
        let access = launch.access;
        let problem = &self.prepared.stated.problem;
        let spans = |tensor: usize| problem.tensors()[tensor].input_span();
        let arrays = reading.arrays(|tensor| (&tensors[tensor].handle, spans(tensor)));
        let team = &self.prepared.launch.readers;
        let pairwise = self.prepared.operator.0.pairwise;
        let types = KernelTypesArg {
            stored: memory_type(reading.element),
            width: access.vector,
            chains: pairwise && reading.longest > CHAIN as u64,
            ..self.types()
        };
        // SAFETY: the buffers hold every offset of their problems. The plan's check has found that
        // vector loads are aligned and inside their inner dimensions. The table names the tensors
        // that are bound, and partials that the buffers hold.
        unsafe {
            reduce_list::launch_unchecked(
                self.client,
                count(*grid),
                CubeDim::new_1d(team.units_per_cube),
                *address,
                types,
                arrays,
                reading.table(&self.prepared.tables),
                self.partials(),
                self.parameters(),
                launch.cubes() as usize,
                launch.outer_dims,
                access,
                *team,
                self.prepared.operator,
            );
        }
    }

    /// The results, from the partials.
    fn merge(&self, outputs: &[Handle], tensors: usize) {
        let PreparedList { launch, tables, each, .. } = self.prepared;
        let ListLaunches { mergers, grid, address, words, .. } = launch;
        // The outputs were asked for with this length.
        let len = each + tensors.max(1);
        let results = result_arrays(outputs.iter().map(|output| output.clone().binding()), len);
        // SAFETY: the table has the partials of each tensor, which the buffers hold, and the
        // outputs have an element for each tensor.
        unsafe {
            merge_list::launch_unchecked(
                self.client,
                count(*grid),
                CubeDim::new_1d(mergers.units_per_cube),
                *address,
                self.types(),
                self.partials(),
                tables.array(words),
                results,
                self.parameters(),
                tensors,
                *each,
                *mergers,
                self.prepared.operator,
            );
        }
    }

    /// The types of the merge, which reads no tensors.
    fn types(&self) -> KernelTypesArg {
        let signature = &self.prepared.stated.signature;
        KernelTypesArg {
            stored: memory_type(signature.value),
            second: None,
            value: memory_type(signature.value),
            fields: signature.fields.map(memory_type),
            results: signature.results.map(memory_type),
            width: 1,
            hardware_math: has_hardware_math(self.client),
            chains: false,
            application: None,
        }
    }

    fn partials(&self) -> PartialArraysLaunch {
        partial_arrays(self.partials, self.prepared.launch.partials.max(1))
    }

    fn parameters(&self) -> ParametersLaunch {
        parameters(self.parameters, &self.prepared.stated.signature)
    }
}
