//! Launches reductions of lists.

use cubecl::{prelude::*, server::Handle, std::tensor::TensorHandle};
use reduce_planner::ElementType;

use super::{
    reading::PreparedLaunch,
    request::{ListLaunches, ListTask, PreparedList, StatedList, bind_tensors},
};
use crate::{
    element::{memory_type, storage_type},
    error::ReduceError,
    host::{
        arguments::{count, merging_types, parameters, partial_arrays, result_arrays},
        bound::Bound,
        call::Call,
        kept::launch_kept,
        launched::{Kernel, Launches},
        scratch::partials,
    },
    kernels::{
        args::{KernelTypes, KernelTypesArg, ListArrays, PartialArrays, ResultArrays},
        list::{merge_list, reduce_list},
        pairwise::CHAIN,
    },
    operator::{Parameters, ParametersLaunch},
};

impl Call<'_, ListTask<'_>> {
    /// Launches into new tensors. Returns the result of each tensor and that of all, for each
    /// result of the operator.
    pub(crate) fn run(
        self,
        client: &Client,
        tensors: &[&TensorHandle],
    ) -> Result<Vec<ListResult>, ReduceError> {
        let prepared = self.prepared(client)?;
        let tensors = bind_tensors(client, prepared.stated.problem.tensors(), tensors)?;
        prepared.run(client, &self.parameters, &tensors)
    }
}

impl PreparedList {
    /// Launches into new tensors; see [`Call::run`].
    pub(super) fn run(
        &self,
        client: &Client,
        parameters: &[f64],
        tensors: &[Bound<'_>],
    ) -> Result<Vec<ListResult>, ReduceError> {
        let StatedList { signature, .. } = &self.stated;
        let operator = self.operator.0;
        let results = &signature.results[..operator.results];
        let len = self.each + tensors.len().max(1);
        let new = |result: &ElementType| client.empty(len * result.bytes());
        let outputs: Vec<Handle> = results.iter().map(new).collect();
        let stream = outputs
            .first()
            .map_or_else(|| client.empty(1).stream.value, |output| output.stream.value);
        let fields = &signature.fields[..operator.fields];
        let fields = fields.iter().map(|field| field.bytes());
        let partials = partials(client, stream, self.launch.partials.max(1), fields)?;
        let launch =
            ListReductionLaunch { client, prepared: self, parameters, partials: &partials };
        self.noted.launch(client, |each| self.kernels(client, each));
        for reading in &self.launch.reading {
            launch.read(reading, tensors);
        }
        let bound = |(output, result): (&Handle, &ElementType)| {
            Bound::own(output.clone().binding(), len, result.bytes())
        };
        let bound: Vec<Bound<'static>> = outputs.iter().zip(results).map(bound).collect();
        launch.merge(&bound, tensors.len());
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

impl PreparedList {
    /// The types of a kernel that reads tensors.
    fn reading_types(&self, client: &Client, reading: &PreparedLaunch) -> KernelTypesArg {
        KernelTypesArg {
            stored: memory_type(reading.element),
            width: reading.launch.access.vector,
            chains: self.operator.0.pairwise && reading.longest > CHAIN as u64,
            ..self.merging_types(client)
        }
    }

    fn merging_types(&self, client: &Client) -> KernelTypesArg {
        merging_types(client, &self.stated.signature)
    }
}

impl Launches for PreparedList {
    fn kernels(&self, client: &Client, each: &mut dyn FnMut(Kernel)) {
        let Self { operator, ref launch, .. } = *self;
        for reading in &launch.reading {
            let types = self.reading_types(client, reading);
            let kernel = (types, operator, launch.readers, reading.generated_for());
            each(Kernel::new("reduce_list", kernel));
        }
        let kernel = (self.merging_types(client), operator, launch.mergers, launch.address);
        each(Kernel::new("merge_list", kernel));
    }
}

/// A call whose checks have all passed.
struct ListReductionLaunch<'a> {
    client: &'a Client,
    prepared: &'a PreparedList,
    parameters: &'a [f64],
    partials: &'a [Bound<'a>],
}

impl ListReductionLaunch<'_> {
    /// The partials of the tensors of one launch.
    fn read(&self, reading: &PreparedLaunch, tensors: &[Bound<'_>]) {
        let PreparedLaunch { launch, grid, address, .. } = reading;
        let access = launch.access;
        let arrays = reading.arrays(tensors);
        let team = &self.prepared.launch.readers;
        // SAFETY: the buffers hold every offset of their problems. The plan's check has found that
        // vector loads are aligned and inside their inner dimensions. The table names the tensors
        // that are bound, and partials that the buffers hold.
        unsafe {
            launch_kept!(
                reading.kept, self.client, count(*grid), team.units_per_cube, *address;
                reduce_list::ReduceList {
                    ReadOnly types: KernelTypes =
                        self.prepared.reading_types(self.client, reading),
                    ReadOnly tensors: ListArrays = arrays,
                    ReadOnly table: [u32] = reading.table(&self.prepared.tables),
                    ReadWrite partials: PartialArrays = partial_arrays(self.partials),
                    ReadOnly parameters: Parameters = self.parameters(),
                    ReadWrite cubes: usize = launch.cubes() as usize,
                }
                launch.outer_dims, access, *team, self.prepared.operator
            );
        }
    }

    /// The results, from the partials.
    fn merge(&self, outputs: &[Bound<'_>], tensors: usize) {
        let PreparedList { launch, tables, each, noted, .. } = self.prepared;
        let ListLaunches { mergers, grid, address, words, .. } = launch;
        // SAFETY: the table has the partials of each tensor, which the buffers hold, and the
        // outputs have an element for each tensor.
        unsafe {
            launch_kept!(
                noted.second, self.client, count(*grid), mergers.units_per_cube, *address;
                merge_list::MergeList {
                    ReadOnly types: KernelTypes = self.prepared.merging_types(self.client),
                    ReadWrite partials: PartialArrays = partial_arrays(self.partials),
                    ReadOnly table: [u32] = tables.array(words),
                    ReadWrite output: ResultArrays = result_arrays(outputs),
                    ReadOnly parameters: Parameters = self.parameters(),
                    ReadWrite tensors: usize = tensors,
                    ReadWrite each: usize = *each,
                }
                *mergers, self.prepared.operator
            );
        }
    }

    fn parameters(&self) -> ParametersLaunch {
        parameters(self.parameters, &self.prepared.stated.signature)
    }
}
