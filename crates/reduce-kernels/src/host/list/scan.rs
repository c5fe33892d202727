//! Scans of the tensors of a list.
//!
//! Each tensor is stated and launched as its scan alone would be. Those that share a launch differ
//! in a table, which tells the cubes of each where it lies.

use core::hash::{Hash, Hasher};
use std::{borrow::Cow, cell::RefCell, ops::Range, rc::Rc, thread::LocalKey};

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{
    Access, Device, ElementType, InputSpec, ListScanLaunch, ListScanPlan, ListScanProblem,
    ScanPlan, ScanProblem,
};

use super::{
    reading::{TableWords, Tables, spread},
    request::{ListRequest, bind_tensors, check_tensor_bytes, listed},
};
#[cfg(feature = "serde")]
use crate::recorded::{RecordedCall, RecordedList, RecordedListScan};
use crate::{
    element::storage_type,
    error::ReduceError,
    host::{
        arguments::{Shape, count, parameters},
        bound::Bound,
        cache::{Asked, Held, Known, Remembered},
        call::{Call, Task},
        kept::{KeptKernel, launch_kept},
        launched::{Kernel, Launches, Noted},
        reduce::request::{ReduceRequest, Wanted},
        scan::{
            launch::{output_arrays, types},
            request::{PreparedScan, ScanLaunches, ScanRequest, StatedScan},
        },
    },
    kernels::{
        args::{KernelTypes, ListArrays, ListArraysLaunch, ResultArrays},
        scan::{WORDS_OF_KEPT, WORDS_OF_SCAN, WORDS_OF_SCANNED, scan_list},
    },
    operator::{OperatorRef, Parameters},
};

/// Everything that decides how a list is scanned, apart from its buffers and its device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ListScanRequest {
    /// The tensors, the operator and the types that were asked for, without a plan.
    pub(crate) list: Rc<ListRequest>,
    /// The scanned axes of each tensor; `None` means all axes.
    pub(crate) axes: Option<Vec<usize>>,
    pub(crate) exclusive: bool,
    pub(crate) reverse: bool,
    pub(crate) plan: Option<ListScanPlan>,
}

/// A request, and where its tensors lie.
pub(crate) struct ListScanTask<'a> {
    pub(crate) request: ListScanRequest,
    pub(crate) inputs: Vec<InputSpec<'a>>,
}

/// A list whose scans have been stated.
#[derive(Debug)]
pub(crate) struct StatedListScan {
    pub(crate) problem: ListScanProblem,
    pub(crate) scans: Vec<StatedScan>,
}

/// A list that is ready to launch, except for its buffers.
#[derive(Debug)]
pub(crate) struct PreparedListScan {
    operator: OperatorRef,
    /// The scan of each tensor, without launches where it shares one.
    scans: Vec<PreparedScan>,
    shared: Vec<SharedScan>,
    tables: Tables,
    noted: Noted,
}

/// The launches of a plan.
pub(crate) struct ListScanLaunches {
    shared: Vec<SharedScan>,
    /// Those of each tensor, if it shares none.
    alone: Vec<Option<ScanLaunches>>,
    tables: TableWords,
}

/// A launch that several tensors share.
#[derive(Debug)]
struct SharedScan {
    /// The numbers of the first tensor, which hold for all but for its grid.
    launches: ScanLaunches,
    /// The tensors, and the element of each output at which their results begin.
    tensors: Vec<(usize, usize)>,
    /// Elements of each output.
    elements: usize,
    buffers: usize,
    /// Outer kept and outer scanned dimensions.
    dims: (usize, usize),
    cubes: usize,
    grid: [u32; 3],
    /// The words of its table among all tables.
    words: Range<usize>,
    kept: KeptKernel,
}

impl ListScanTask<'_> {
    /// The scan of a tensor.
    fn scan(&self, nth: usize) -> ScanRequest<'_> {
        let ListScanRequest { ref list, ref axes, exclusive, reverse, .. } = self.request;
        let input = &self.inputs[nth];
        let reduce = ReduceRequest {
            operator: list.operator,
            element: input.element,
            shape: Cow::Borrowed(input.shape),
            strides: Cow::Borrowed(input.strides),
            second: None,
            alignment: input.alignment,
            axes: axes.as_deref().map(Cow::Borrowed),
            keep_dims: false,
            accumulator: list.accumulator,
            outputs: list.outputs,
            output: None,
            plan: None,
            wanted: Wanted::Results,
            shard: None,
            numerics: list.numerics,
        };
        ScanRequest { reduce, exclusive, reverse, earlier: None, output: None, plan: None }
    }

    /// Calls `each` with the scan of every tensor. Errors name the tensor.
    fn for_each_scan(
        &self,
        stated: &StatedListScan,
        each: impl Fn(ScanRequest<'_>, &StatedScan) -> Result<(), ReduceError>,
    ) -> Result<(), ReduceError> {
        let mut scans = stated.scans.iter().enumerate();
        scans.try_for_each(|(nth, stated)| each(self.scan(nth), stated).map_err(listed(nth)))
    }

    /// Prepares a launch that several tensors share, and adds its table to `tables`.
    fn share(
        &self,
        tables: &mut TableWords,
        launch: &ListScanLaunch,
        client: &Client,
        device: &Device,
        stated: &StatedListScan,
    ) -> Result<SharedScan, ReduceError> {
        let first = launch.tensors[0];
        let launches =
            self.scan(first).launch(client, device, &stated.scans[first], &launch.scan)?;
        let dims = launch.outer_dims(&stated.problem);
        // Results begin where the device can bind them and where vectors of them do, at whatever
        // element size.
        let bound = client.properties().memory.alignment as usize;
        let alignment = bound.max(Access::WIDEST_STORE);
        let (mut of_cubes, mut of_tensors) = (Vec::new(), Vec::new());
        let (mut tensors, mut elements) = (Vec::with_capacity(launch.tensors.len()), 0usize);
        for (nth, &tensor) in launch.tensors.iter().enumerate() {
            let problem = &stated.problem.tensors()[tensor];
            debug_assert_eq!(stated.scans[tensor].signature, stated.scans[first].signature);
            elements = elements.next_multiple_of(alignment);
            of_tensors.extend(words(&launch.scan, problem, of_cubes.len(), elements, dims));
            let cubes = launch.scan.cubes(problem) as usize;
            of_cubes.extend(core::iter::repeat_n(nth as u32, cubes));
            tensors.push((tensor, elements));
            elements += problem.problem().output_span();
        }
        let cubes = of_cubes.len();
        Ok(SharedScan {
            launches,
            tensors,
            elements,
            buffers: launch.buffers,
            dims,
            cubes,
            grid: spread(device, cubes as u64)?,
            words: tables.add(of_cubes.into_iter().chain(of_tensors)),
            kept: KeptKernel::default(),
        })
    }
}

/// The words of a tensor whose cubes begin with number `first_cube`, and its results with element
/// `first_result`. The plan's check has found that 32 bits hold each number.
fn words(
    plan: &ScanPlan,
    problem: &ScanProblem,
    first_cube: usize,
    first_result: usize,
    (kept_dims, scanned_dims): (usize, usize),
) -> Vec<u32> {
    let direction = plan.access.direction;
    let shape = Shape::new(problem.problem(), plan.access);
    let output = problem.output();
    let mut numbers = vec![
        first_cube,
        first_result,
        shape.inner_len,
        shape.inner_stride,
        shape.inner_target_stride,
        output.inner(direction).unwrap_or(0),
        shape.loads_per_inner,
        shape.inner_count,
        shape.tiles,
        shape.loads_per_tile,
        shape.outputs,
        shape.reduction_len,
        plan.chunks(problem) as usize,
    ];
    debug_assert_eq!(numbers.len(), WORDS_OF_SCAN);
    for _ in shape.kept.len()..kept_dims {
        numbers.extend([1, 0, 0]);
    }
    numbers.extend(shape.kept.iter().flat_map(|it| [it.extent, it.stride, it.output_stride]));
    for _ in shape.reduced.len()..scanned_dims {
        numbers.extend([1, 0, 0, 0]);
    }
    let scanned = shape.reduced.iter().zip(&output.reduced);
    numbers.extend(
        scanned.flat_map(|(it, &result)| [it.extent, it.stride, it.position_stride, result]),
    );
    let of_dims = WORDS_OF_KEPT * kept_dims + WORDS_OF_SCANNED * scanned_dims;
    debug_assert_eq!(numbers.len(), WORDS_OF_SCAN + of_dims);
    numbers.into_iter().map(|number| number as u32).collect()
}

impl Hash for ListScanTask<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.request.hash(state);
    }
}

impl Asked for ListScanTask<'_> {
    type Request = ListScanRequest;

    fn is(&self, known: &ListScanRequest) -> bool {
        self.request == *known
    }

    fn to_request(&self) -> ListScanRequest {
        self.request.clone()
    }
}

/// The tensors are those of the list, in its order.
impl Task for ListScanTask<'_> {
    type Stated = StatedListScan;
    type Problem = ListScanProblem;
    type Launch = ListScanLaunches;

    fn state(&self) -> Result<StatedListScan, ReduceError> {
        let tensors = 0..self.inputs.len();
        let stated = tensors.map(|nth| self.scan(nth).state().map_err(listed(nth)));
        let scans = stated.collect::<Result<Vec<StatedScan>, ReduceError>>()?;
        let problems = scans.iter().map(|scan| scan.problem.clone()).collect();
        Ok(StatedListScan { problem: ListScanProblem::new(problems), scans })
    }

    fn problem(stated: &StatedListScan) -> &ListScanProblem {
        &stated.problem
    }

    fn given(&self) -> Option<&ListScanPlan> {
        self.request.plan.as_ref()
    }

    fn check_types(
        &self,
        client: &Client,
        device: &Device,
        stated: &StatedListScan,
    ) -> Result<(), ReduceError> {
        self.for_each_scan(stated, |scan, stated| scan.check_types(client, device, stated))
    }

    fn check_bytes(
        &self,
        stated: &StatedListScan,
        bytes: &[Option<u64>],
    ) -> Result<(), ReduceError> {
        let problems = stated.problem.tensors().iter().map(ScanProblem::problem);
        check_tensor_bytes(problems, bytes.iter().copied())
    }

    fn check_outputs(&self, client: &Client, stated: &StatedListScan) -> Result<(), ReduceError> {
        self.for_each_scan(stated, |scan, stated| scan.check_outputs(client, stated))
    }

    /// The plan of a list without elements has no launches.
    fn is_empty(_: &StatedListScan) -> bool {
        false
    }

    fn launch(
        &self,
        client: &Client,
        device: &Device,
        stated: &StatedListScan,
        plan: &ListScanPlan,
    ) -> Result<ListScanLaunches, ReduceError> {
        let mut alone: Vec<Option<ScanLaunches>> = Vec::new();
        alone.resize_with(self.inputs.len(), || None);
        let (mut shared, mut tables) = (Vec::new(), TableWords::new(client));
        for launch in &plan.scans {
            match launch.tensors[..] {
                [nth] => {
                    let (scan, stated) = (self.scan(nth), &stated.scans[nth]);
                    let launches = scan.launch(client, device, stated, &launch.scan);
                    alone[nth] = Some(launches.map_err(listed(nth))?);
                }
                _ => shared.push(self.share(&mut tables, launch, client, device, stated)?),
            }
        }
        Ok(ListScanLaunches { shared, alone, tables })
    }

    fn prepare(
        &self,
        client: &Client,
        device: &Device,
        stated: StatedListScan,
        launch: Option<ListScanLaunches>,
    ) -> Result<PreparedListScan, ReduceError> {
        let ListScanLaunches { shared, alone, tables } = launch.expect("no list is empty");
        let scans = stated.scans.into_iter().zip(alone).enumerate();
        let scans = scans.map(|(nth, (stated, launches))| {
            self.scan(nth).prepare(client, device, stated, launches)
        });
        Ok(PreparedListScan {
            operator: self.request.list.operator,
            scans: scans.collect::<Result<_, ReduceError>>()?,
            shared,
            tables: tables.write(client)?,
            noted: Noted::default(),
        })
    }

    #[cfg(feature = "serde")]
    fn recorded(&self) -> Option<RecordedCall> {
        let recorded = || RecordedListScan::of(&self.request, &self.inputs);
        self.request.plan.is_none().then(|| RecordedCall::ListScan(recorded()))
    }
}

thread_local! {
    static KNOWN: RefCell<Known<ListScanRequest>> = RefCell::default();
}

impl Remembered for ListScanRequest {
    type Prepared = PreparedListScan;

    fn known() -> &'static LocalKey<RefCell<Known<Self>>> {
        &KNOWN
    }

    fn held(&self, prepared: &PreparedListScan) -> Held {
        let PreparedListScan { scans, shared, tables, .. } = prepared;
        let of_scan =
            |scan: &PreparedScan| Held::of_axes::<(), PreparedScan>(scan.stated.shape.len());
        let of_plan = |plan: &ListScanPlan| {
            plan.scans.iter().map(|launch| size_of_val(&launch.tensors[..])).sum::<usize>()
                + size_of_val(&plan.scans[..])
        };
        // A kernel that is kept has two lists of its buffers, each as vectors and as elements.
        let of_kernel = |it: &SharedScan| 4 * size_of::<Option<usize>>() * it.buffers;
        let of_launch =
            |it: &SharedScan| size_of_val(it) + size_of_val(&it.tensors[..]) + of_kernel(it);
        let launches: usize = shared.iter().map(of_launch).sum();
        let host = size_of::<Self>()
            + size_of::<PreparedListScan>()
            + self.list.bytes()
            + self.plan.as_ref().map_or(0, of_plan)
            + launches;
        let own = Held { host, device: tables.bytes() };
        scans.iter().map(of_scan).fold(own, Held::plus)
    }
}

impl Call<'_, ListScanTask<'_>> {
    /// Launches into new row-major tensors. Returns the results of each tensor, in the order of the
    /// list.
    pub(crate) fn run(
        self,
        client: &Client,
        tensors: &[&TensorHandle],
    ) -> Result<Vec<Vec<TensorHandle>>, ReduceError> {
        let prepared = self.prepared(client)?;
        let scans = &prepared.scans;
        let problems = scans.iter().map(|scan| scan.stated.problem.problem());
        let bound = bind_tensors(client, problems, tensors)?;
        let mut outputs: Vec<Vec<TensorHandle>> = vec![Vec::new(); tensors.len()];
        let buffers =
            prepared.shared.iter().map(|shared| prepared.new_outputs(client, shared, &mut outputs));
        let buffers: Vec<Vec<Bound<'static>>> = buffers.collect();
        let mut alone = Vec::new();
        for (nth, (scan, &tensor)) in scans.iter().zip(tensors).enumerate() {
            // Those of tensors that share a launch are there.
            if outputs[nth].is_empty() {
                outputs[nth] = scan.new_outputs(client);
                let launch = scan.ready_into(client, &self.parameters, tensor, &outputs[nth]);
                alone.extend(launch.map_err(listed(nth))?);
            }
        }
        prepared.noted.launch(client, |each| prepared.sharing_kernels(client, each));
        for (shared, buffers) in prepared.shared.iter().zip(&buffers) {
            prepared.scan_shared(client, &self.parameters, shared, &bound, buffers);
        }
        alone.into_iter().for_each(|launch| launch.run(None));
        Ok(outputs)
    }
}

impl PreparedListScan {
    /// The scan of the first tensor of a launch.
    fn first(&self, shared: &SharedScan) -> &StatedScan {
        &self.scans[shared.tensors[0].0].stated
    }

    /// New outputs of a launch, in which the tensors of `outputs` lie one behind the other.
    fn new_outputs(
        &self,
        client: &Client,
        shared: &SharedScan,
        outputs: &mut [Vec<TensorHandle>],
    ) -> Vec<Bound<'static>> {
        let results = self.first(shared).problem.problem().results();
        let new = |&element: &ElementType| {
            let bytes = element.bytes();
            let buffer = client.empty(shared.elements * bytes);
            for &(nth, start) in &shared.tensors {
                let StatedScan { problem, shape, .. } = &self.scans[nth].stated;
                let end = start + problem.elements();
                let own = buffer
                    .clone()
                    .offset_start((start * bytes) as u64)
                    .offset_end(((shared.elements - end) * bytes) as u64);
                let storage = storage_type(element);
                outputs[nth].push(TensorHandle::new_contiguous(shape.clone(), own, storage));
            }
            Bound::own(buffer.binding(), shared.elements, bytes)
        };
        results.iter().map(new).collect()
    }

    /// Calls `each` with the kernels that scan several tensors.
    fn sharing_kernels(&self, client: &Client, each: &mut dyn FnMut(Kernel)) {
        for shared in &self.shared {
            let SharedScan { launches, buffers, dims, .. } = shared;
            let types = types(client, self.first(shared), launches);
            let kernel = (types, self.operator, launches.address, launches.spec, dims, buffers);
            each(Kernel::new("scan_list", kernel));
        }
    }

    /// Launches the kernel of several tensors.
    fn scan_shared(
        &self,
        client: &Client,
        of_operator: &[f64],
        shared: &SharedScan,
        tensors: &[Bound<'_>],
        outputs: &[Bound<'static>],
    ) {
        let SharedScan { launches, dims, .. } = shared;
        let (first, spec) = (self.first(shared), launches.spec);
        // Buffers past the last tensor repeat the first.
        let (fallback, _) = shared.tensors[0];
        let nth = |slot: usize| shared.tensors.get(slot).map_or(fallback, |&(nth, _)| nth);
        let elements = if spec.access.peeled { shared.buffers } else { 0 };
        let arrays = ListArraysLaunch::new(
            (0..shared.buffers).map(|it| tensors[nth(it)].vectors(spec.access.vector)).collect(),
            (0..elements).map(|it| tensors[nth(it)].elements()).collect(),
        );
        // SAFETY: the buffers of tensors hold every offset of their problems, and each output has
        // the elements of all tensors one behind the other, where the table says. The plan's check
        // has found that the plan of the scan suits each tensor, so vector loads are aligned and
        // inside their inner dimensions. Results are stored as vectors only where these lie in the
        // outputs as those of the inputs do, at multiples of their bytes.
        unsafe {
            launch_kept!(
                shared.kept, client, count(shared.grid), spec.team.units_per_cube,
                launches.address;
                scan_list::ScanList {
                    ReadOnly types: KernelTypes = types(client, first, launches),
                    ReadOnly tensors: ListArrays = arrays,
                    ReadWrite results: ResultArrays = output_arrays(launches, outputs),
                    ReadOnly table: [u32] = self.tables.array(&shared.words),
                    ReadOnly parameters: Parameters = parameters(of_operator, &first.signature),
                    ReadWrite cubes: usize = shared.cubes,
                }
                dims.0, dims.1, spec, self.operator
            );
        }
    }
}

impl Launches for PreparedListScan {
    fn kernels(&self, client: &Client, each: &mut dyn FnMut(Kernel)) {
        self.sharing_kernels(client, each);
        self.scans.iter().for_each(|scan| scan.kernels(client, each));
    }
}

#[cfg(feature = "serde")]
impl RecordedListScan {
    /// The list of a request.
    pub(crate) fn of(request: &ListScanRequest, inputs: &[InputSpec<'_>]) -> Self {
        let ListScanRequest { ref list, ref axes, exclusive, reverse, plan: _ } = *request;
        Self { list: RecordedList::of(list, inputs), axes: axes.clone(), exclusive, reverse }
    }
}
