//! The launches that read the tensors of a list, and the tables that tell their cubes what to read.

use core::{hash::Hash, ops::Range};

use cubecl::{ir::AddressType, prelude::*, server::Handle};
use reduce_planner::{
    Device, ElementType, Illegal, ListLaunch, ListProblem, PlanError, needs_wide_indices,
};

use crate::{
    error::ReduceError,
    host::{
        bound::Bound,
        kept::KeptKernel,
        scratch::{in_words, table},
    },
    kernels::{
        args::ListArraysLaunch,
        list::{NO_ELEMENTS, WORDS_OF_DIM, WORDS_OF_TENSOR},
        load::edge_slots,
    },
};

/// A launch that reads tensors.
#[derive(Debug)]
pub(super) struct PreparedLaunch {
    pub(super) launch: ListLaunch,
    pub(super) element: ElementType,
    pub(super) grid: [u32; 3],
    pub(super) address: AddressType,
    /// The words of its table among all tables.
    words: Range<usize>,
    /// The tensor of each buffer. Buffers past the last tensor repeat the first.
    buffers: Vec<usize>,
    /// The tensor of each buffer that is also bound as elements.
    tails: Vec<usize>,
    /// The most elements of a unit.
    pub(super) longest: u64,
    pub(super) kept: KeptKernel,
}

/// The words of the tables of a list. They share a buffer: the device allocates it once, and is
/// asked once whether it exists.
pub(crate) struct TableWords {
    words: Vec<u32>,
    /// A table begins at a multiple of this number of words.
    alignment: usize,
}

impl TableWords {
    pub(super) fn new(client: &Client) -> Self {
        // wgpu binds buffers at multiples of an alignment.
        let alignment = client.properties().memory.alignment.max(1) as usize;
        Self { words: Vec::new(), alignment: alignment.div_ceil(size_of::<u32>()) }
    }

    /// Adds a table. Gives its words.
    pub(super) fn add(&mut self, table: impl IntoIterator<Item = u32>) -> Range<usize> {
        let start = self.words.len().next_multiple_of(self.alignment);
        self.words.resize(start, 0);
        self.words.extend(table);
        start..self.words.len()
    }

    /// Writes the tables.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory) if the device has no memory for them.
    pub(super) fn write(mut self, client: &Client) -> Result<Tables, ReduceError> {
        // A list of empty tensors has no table, and a buffer of 0 bytes cannot be made.
        self.words.resize(self.words.len().max(1), 0);
        Ok(Tables(table(client, &self.words)?))
    }
}

/// The tables of a list on the device.
#[derive(Debug)]
pub(super) struct Tables(Handle);

impl Tables {
    pub(super) fn array(&self, words: &Range<usize>) -> BufferArg {
        let table = self.0.clone().offset_start((words.start * size_of::<u32>()) as u64);
        Bound::own(table.binding(), words.len(), size_of::<u32>()).elements()
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> usize {
        self.0.size() as usize
    }
}

/// The widest indices of a launch.
pub(super) fn address(wide: bool) -> AddressType {
    if wide { AddressType::U64 } else { AddressType::U32 }
}

/// The grid of so many cubes. The plan's check has found that there is one.
pub(super) fn spread(device: &Device, cubes: u64) -> Result<[u32; 3], PlanError> {
    device.grid(cubes).ok_or_else(|| PlanError::Unfit {
        plan: "list".into(),
        device: device.name.clone(),
        reason: Illegal::Grid { cubes, merging: false },
    })
}

/// Prepares a launch of cubes of so many units, and adds its table to `tables`.
pub(super) fn prepare_launch(
    tables: &mut TableWords,
    launch: &ListLaunch,
    units_per_cube: u32,
    problem: &ListProblem,
    device: &Device,
    first_partials: &[u32],
) -> Result<PreparedLaunch, ReduceError> {
    let access = launch.access;
    let mut of_cubes: Vec<u32> = Vec::new();
    let mut of_tensors: Vec<u32> = Vec::new();
    let mut tails = Vec::new();
    let mut longest = 0;
    for (nth, share) in launch.tensors.iter().enumerate() {
        let tensor = &problem.tensors()[share.tensor];
        let inner_len = access.inner_len(tensor);
        let loads_per_inner = inner_len / access.vector;
        let inner_count = tensor.reduction_len() / inner_len;
        let (inner, inner_output, outer) = match tensor.reduced().split_last() {
            Some((inner, outer)) => (inner.stride, inner.position_stride, outer),
            None => (1, 1, &[][..]),
        };
        let nth_of_elements = if inner_len.is_multiple_of(access.vector) {
            NO_ELEMENTS
        } else {
            tails.push(share.tensor);
            tails.len() as u32 - 1
        };
        let units = u64::from(share.cubes) * u64::from(units_per_cube);
        // The elements of refused blocks are pushed one by one.
        let loads = (loads_per_inner * access.vector) as u64 * inner_count as u64;
        let edges = match nth_of_elements {
            NO_ELEMENTS => 0,
            _ => inner_count as u64 * edge_slots(access.vector) as u64,
        };
        longest = longest.max(loads.max(edges).div_ceil(units));
        let first_cube = of_cubes.len() as u32;
        of_cubes.extend(core::iter::repeat_n(nth as u32, share.cubes as usize));
        of_tensors.extend([first_cube, share.cubes, first_partials[share.tensor], nth_of_elements]);
        let numbers = [inner_len, inner, inner_count, loads_per_inner, inner_output];
        of_tensors.extend(numbers.iter().flat_map(|&number| in_words(number as u64)));
        let missing = launch.outer_dims - outer.len();
        let dims = core::iter::repeat_n([1, 0, 0], missing)
            .chain(outer.iter().map(|dim| [dim.extent, dim.stride, dim.position_stride]));
        of_tensors.extend(dims.flatten().flat_map(|number| in_words(number as u64)));
    }
    debug_assert_eq!(
        of_tensors.len(),
        launch.tensors.len() * (WORDS_OF_TENSOR + WORDS_OF_DIM * launch.outer_dims)
    );
    let mut buffers: Vec<usize> = launch.tensors.iter().map(|share| share.tensor).collect();
    let first = launch.tensors[0].tensor;
    buffers.resize(launch.buffers, first);
    tails.resize(launch.tail_buffers, first);
    let wide = buffers.iter().any(|&tensor| needs_wide_indices(&problem.tensors()[tensor]));
    Ok(PreparedLaunch {
        launch: launch.clone(),
        element: problem.tensors()[first].input(),
        grid: spread(device, launch.cubes())?,
        address: address(wide),
        words: tables.add(of_cubes.into_iter().chain(of_tensors)),
        buffers,
        tails,
        longest,
        kept: KeptKernel::default(),
    })
}

impl PreparedLaunch {
    /// The tensors as arrays.
    pub(super) fn arrays(&self, tensors: &[Bound<'_>]) -> ListArraysLaunch {
        let vector = self.launch.access.vector;
        ListArraysLaunch::new(
            self.buffers.iter().map(|&tensor| tensors[tensor].vectors(vector)).collect(),
            self.tails.iter().map(|&tensor| tensors[tensor].elements()).collect(),
        )
    }

    /// What a kernel that reads these tensors is generated for, apart from its types.
    pub(super) fn generated_for(&self) -> impl Hash + use<> {
        let ListLaunch { access, outer_dims, .. } = self.launch;
        (access, outer_dims, self.buffers.len(), self.tails.len(), self.address)
    }

    /// The table of the launch.
    pub(super) fn table(&self, tables: &Tables) -> BufferArg {
        tables.array(&self.words)
    }

    /// Bytes on the host.
    pub(super) fn bytes(&self) -> usize {
        let lists = size_of_val(&self.buffers[..]) + size_of_val(&self.tails[..]);
        // The kernel that is kept has two lists of the buffers, which say whether each stands for
        // another.
        let of_kernel = 2 * size_of::<Option<usize>>() * (self.buffers.len() + self.tails.len());
        size_of::<Self>() + lists + of_kernel + launch_bytes(&self.launch)
    }
}

/// Bytes of a planned launch on the host.
pub(super) fn launch_bytes(launch: &ListLaunch) -> usize {
    size_of::<ListLaunch>() + size_of_val(&launch.tensors[..])
}
