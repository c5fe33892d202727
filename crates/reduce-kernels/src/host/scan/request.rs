//! The request of one scan, as plain data, and what it becomes.

use std::{cell::RefCell, thread::LocalKey};

use cubecl::{ir::AddressType, prelude::*};
use reduce_planner::{
    Access, Device, Direction, Illegal, InputSpec, PlanError, ScanPlan, ScanProblem,
    ScanSpec as Spec, check_limits, reduced_axes,
};

#[cfg(feature = "serde")]
use crate::recorded::{RecordedCall, RecordedReduction, RecordedScan};
use crate::{
    error::{Reason, ReduceError},
    host::{
        bound::{byte_count, check_inputs},
        cache::{Asked, Held, Known, Remembered},
        call::Task,
        launched::Noted,
        reduce::request::ReduceRequest,
        types::{check_arithmetic, word_count},
    },
    kernels::{
        scan::{LookedBack, ScanSpec},
        team::Team,
    },
    operator::{OperatorRef, Signature},
};

/// Everything that decides how a tensor is scanned, apart from buffers and the device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ScanRequest<'a> {
    /// The reduction, without a supplied output and without a plan.
    pub(crate) reduce: ReduceRequest<'a>,
    pub(crate) exclusive: bool,
    pub(crate) reverse: bool,
    /// Slots of accumulators that the words of other tensors have, of which some come before the
    /// rows; `None` if nothing comes before them.
    pub(crate) earlier: Option<usize>,
    /// Strides and alignment of supplied outputs.
    pub(crate) output: Option<(Vec<usize>, usize)>,
    pub(crate) plan: Option<ScanPlan>,
}

/// A request whose axes, types and strides have been checked.
#[derive(Debug)]
pub(crate) struct StatedScan {
    pub(crate) problem: ScanProblem,
    pub(crate) signature: Signature,
    /// Shape of the input and of the outputs.
    pub(in crate::host) shape: Vec<usize>,
}

/// The numbers of the launches of a plan.
#[derive(Debug)]
pub(crate) struct ScanLaunches {
    pub(in crate::host) plan: ScanPlan,
    pub(in crate::host) spec: ScanSpec,
    pub(in crate::host) grid: [u32; 3],
    pub(in crate::host) address: AddressType,
    /// 64-bit words in which cubes publish the accumulators of parts, if they do.
    pub(in crate::host) published: Option<usize>,
    /// Whether results are stored in vectors.
    pub(in crate::host) in_vectors: bool,
    /// Whether a cube has more chunks than are added up one after the other.
    pub(in crate::host) chains: bool,
}

impl ScanLaunches {
    /// The groups of parts at which cubes look back.
    pub(super) const fn groups(&self) -> LookedBack {
        LookedBack { levels: self.plan.levels(), each: self.plan.looked_back() }
    }
}

/// A scan that is ready to launch, except for buffers.
#[derive(Debug)]
pub(crate) struct PreparedScan {
    pub(in crate::host) operator: OperatorRef,
    pub(in crate::host) stated: StatedScan,
    /// `None` if there are no elements, or if a launch of several tensors has them. Nothing is
    /// launched then.
    pub(super) launches: Option<ScanLaunches>,
    pub(super) noted: Noted,
}

impl Asked for ScanRequest<'_> {
    type Request = ScanRequest<'static>;

    fn is(&self, known: &ScanRequest<'static>) -> bool {
        self == known
    }

    fn to_request(&self) -> ScanRequest<'static> {
        let copy = self.clone();
        ScanRequest { reduce: copy.reduce.into_owned(), ..copy }
    }
}

/// The tensor is the input.
impl Task for ScanRequest<'_> {
    type Stated = StatedScan;
    type Problem = ScanProblem;
    type Launch = ScanLaunches;

    fn state(&self) -> Result<StatedScan, ReduceError> {
        let reduce = &self.reduce;
        let shape = &reduce.shape[..];
        let axes = reduce.axes.as_deref();
        let (_, signature, class) = reduce.typed(&reduced_axes(shape.len(), axes)?)?;
        let input = InputSpec {
            element: reduce.element,
            shape,
            strides: &reduce.strides,
            alignment: reduce.alignment,
        };
        let spec = Spec {
            elements: &signature.results[..reduce.operator.0.results],
            strides: self.output.as_ref().map(|(strides, _)| &strides[..]),
            exclusive: self.exclusive,
            reverse: self.reverse,
            shard: reduce.shard,
            continues: self.earlier.is_some(),
        };
        let problem = ScanProblem::new(class, &input, axes, &spec)?;
        let problem = problem.with_numerics(reduce.numerics);
        Ok(StatedScan { problem, signature, shape: shape.to_vec() })
    }

    fn problem(stated: &StatedScan) -> &ScanProblem {
        &stated.problem
    }

    fn given(&self) -> Option<&ScanPlan> {
        self.plan.as_ref()
    }

    fn check_types(
        &self,
        client: &Client,
        device: &Device,
        stated: &StatedScan,
    ) -> Result<(), ReduceError> {
        check_arithmetic(client, self.reduce.operator.0, &stated.signature, device)
    }

    fn check_bytes(&self, stated: &StatedScan, bytes: &[Option<u64>]) -> Result<(), ReduceError> {
        check_inputs(stated.problem.problem(), bytes)
    }

    fn check_outputs(&self, client: &Client, stated: &StatedScan) -> Result<(), ReduceError> {
        let available = client.properties().memory.max_page_size;
        let elements = stated.problem.elements();
        let results = stated.problem.problem().results().iter();
        let needed = results.map(|&element| byte_count(elements, element)).max();
        match needed.filter(|&needed| self.output.is_none() && needed > available) {
            Some(needed) => Err(Reason::OutputTooLarge { needed, available }.into()),
            None => Ok(()),
        }
    }

    fn is_empty(stated: &StatedScan) -> bool {
        stated.problem.is_empty()
    }

    fn launch(
        &self,
        client: &Client,
        device: &Device,
        stated: &StatedScan,
        plan: &ScanPlan,
    ) -> Result<ScanLaunches, ReduceError> {
        let (problem, of_row) = (&stated.problem, stated.problem.problem());
        let unfit = |reason| -> ReduceError {
            let (plan, device) = (plan.to_string(), device.name.clone());
            PlanError::Unfit { plan, device, reason }.into()
        };
        let cubes = plan.cubes(problem);
        let grid =
            device.grid(cubes).ok_or_else(|| unfit(Illegal::Grid { cubes, merging: false }))?;
        let operator = self.reduce.operator.0;
        let fields = &stated.signature.fields[..operator.fields];
        let available = client.properties().memory.max_page_size;
        let partials = plan.partials(problem);
        let words = plan.published_words(
            grid.iter().map(|&cubes| u64::from(cubes)).product(),
            word_count(fields),
        );
        let bytes = words.map_or(0, |words| words.saturating_mul(size_of::<u64>() as u64));
        if bytes > available {
            return Err(unfit(Illegal::PublishedPartials { bytes, max: available }));
        }
        let largest = fields.iter().map(|field| partials * field.bytes() as u64).max();
        if let Some(bytes) = largest.filter(|&bytes| bytes > available) {
            return Err(unfit(Illegal::PartialsBuffer { bytes, available }));
        }
        let slots = self.earlier.unwrap_or(0);
        let earlier = of_row.outputs().saturating_mul(word_count(fields)).saturating_mul(slots);
        let wide = check_limits(of_row, device, partials.max(earlier as u64))?;
        let access = plan.access;
        let team = Team {
            units_per_tile: plan.units_per_output,
            unit_stride: match access.direction {
                Direction::Along => 1,
                Direction::Across => plan.outputs_per_cube,
            },
            units_per_cube: plan.units_per_cube(),
            combine: plan.combine,
            merging_units: plan.units_per_cube(),
        };
        let of_output = self.output.as_ref().map(|&(_, alignment)| alignment);
        Ok(ScanLaunches {
            plan: *plan,
            spec: ScanSpec {
                access,
                team,
                exclusive: self.exclusive,
                reverse: self.reverse,
                split: plan.launches() > 1,
                continues: self.earlier.is_some(),
                ahead: plan.loads_ahead(problem),
                transposes: plan.transposes(problem),
                in_shared: plan.in_shared,
            },
            grid,
            address: if wide { AddressType::U64 } else { AddressType::U32 },
            // The plan's check has found that they fit indices of 32 bits.
            published: words.map(|words| words as usize),
            in_vectors: plan.stores_vectors(problem, of_output.unwrap_or(Access::WIDEST_STORE)),
            chains: fields[0].is_float() && operator.pairwise && plan.adds_many_chunks(problem),
        })
    }

    fn prepare(
        &self,
        _: &Client,
        _: &Device,
        stated: StatedScan,
        launches: Option<ScanLaunches>,
    ) -> Result<PreparedScan, ReduceError> {
        let (operator, noted) = (self.reduce.operator, Noted::default());
        Ok(PreparedScan { operator, stated, launches, noted })
    }

    #[cfg(feature = "serde")]
    fn recorded(&self) -> Option<RecordedCall> {
        let is_recorded =
            self.plan.is_none() && self.reduce.shard.is_none() && self.earlier.is_none();
        is_recorded.then(|| RecordedCall::Scan(RecordedScan::of(self)))
    }
}

thread_local! {
    static KNOWN: RefCell<Known<ScanRequest<'static>>> = RefCell::default();
}

impl Remembered for ScanRequest<'static> {
    type Prepared = PreparedScan;

    fn known() -> &'static LocalKey<RefCell<Known<Self>>> {
        &KNOWN
    }

    fn held(&self, _: &PreparedScan) -> Held {
        Held::of_axes::<Self, PreparedScan>(self.reduce.shape.len())
    }
}

#[cfg(feature = "serde")]
impl RecordedScan {
    /// The scan of a request.
    pub(crate) fn of(request: &ScanRequest<'_>) -> Self {
        let (exclusive, reverse) = (request.exclusive, request.reverse);
        let scanned = RecordedReduction::of(&request.reduce);
        Self { scanned, exclusive, reverse, output_layout: request.output.clone() }
    }
}
