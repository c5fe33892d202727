//! The request of one call over segments, as plain data, and what it becomes.

use std::{borrow::Cow, cell::RefCell, thread::LocalKey};

use cubecl::{ir::AddressType, prelude::*};
use reduce_planner::{
    Combine, Device, Illegal, IndicesSpec, PlanError, ProblemError, Role, SegmentsMerge,
    SegmentsPlan, SegmentsProblem, SegmentsSpec, check_limits, row_major_strides,
};

#[cfg(feature = "serde")]
use crate::recorded::{RecordedCall, RecordedReduction, RecordedSegments};
use crate::{
    error::{Reason, ReduceError},
    host::{
        bound::{byte_count, check_inputs},
        cache::{Asked, Held, Known, Remembered},
        call::Task,
        launched::Noted,
        reduce::request::{OutputLayout, ReduceRequest, StatedReduction},
        segments::integers::{IntegersSpec, MembersSpec},
        types::{check_arithmetic, word_count},
    },
    kernels::team::Team,
    operator::OperatorRef,
};

/// Everything that decides how segments are reduced, apart from buffers and the device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SegmentsRequest<'a> {
    /// The reduction of the axis alone, without a supplied output.
    pub(crate) reduce: ReduceRequest<'a>,
    pub(crate) axis: usize,
    pub(crate) members: MembersSpec,
    /// Shape and strides of a supplied output.
    pub(crate) output: Option<OutputLayout<'a>>,
    pub(crate) plan: Option<SegmentsPlan>,
}

/// A request whose axis, types and strides have been checked.
#[derive(Debug)]
pub(crate) struct StatedSegments {
    pub(crate) reduction: StatedReduction,
    pub(crate) problem: SegmentsProblem,
    /// Shape of the results.
    pub(crate) shape: Vec<usize>,
    pub(crate) members: MembersSpec,
}

/// The numbers of the launches of a plan.
#[derive(Debug)]
pub(crate) struct SegmentsLaunches {
    pub(super) plan: SegmentsPlan,
    pub(super) address: AddressType,
    /// The units that read.
    pub(super) readers: Team,
    pub(super) grid: [u32; 3],
    /// The units of the launch that merges, if there is one.
    pub(super) mergers: Option<(Team, [u32; 3])>,
    /// 64-bit words in which tiles publish their parts, if they do.
    pub(super) published: Option<usize>,
}

/// Segments that are ready to be reduced, except for buffers.
#[derive(Debug)]
pub(crate) struct PreparedSegments {
    pub(super) operator: OperatorRef,
    pub(super) stated: StatedSegments,
    /// `None` if the results have no elements. Nothing is launched then.
    pub(super) launches: Option<SegmentsLaunches>,
    pub(super) noted: Noted,
}

impl<'a> SegmentsRequest<'a> {
    /// The request for segments of the one axis that `reduce` reduces, into new tensors.
    ///
    /// # Errors
    ///
    /// Several axes or none.
    pub(crate) fn new(
        reduce: ReduceRequest<'a>,
        members: MembersSpec,
    ) -> Result<Self, ReduceError> {
        // Nothing is allocated here, because each call passes. Whether the axis exists is found when
        // the request is stated.
        let (axes, first) = match reduce.axes.as_deref() {
            None => (reduce.shape.len(), Some(&0)),
            Some(axes) => (axes.len(), axes.first()),
        };
        let Some(&axis) = first.filter(|_| axes == 1) else {
            return Err(ProblemError::SegmentAxes { axes }.into());
        };
        let reduce = ReduceRequest { keep_dims: false, plan: None, output: None, ..reduce };
        let (output, plan) = (None, None);
        Ok(Self { reduce, axis, members, output, plan })
    }
}

impl SegmentsRequest<'_> {
    /// The request with lists that it owns.
    fn into_owned(self) -> SegmentsRequest<'static> {
        let owned = |list: Cow<'_, [usize]>| Cow::Owned(list.into_owned());
        SegmentsRequest {
            reduce: self.reduce.into_owned(),
            output: self.output.map(|(shape, strides)| (owned(shape), owned(strides))),
            ..self
        }
    }

    /// The shape of the results, which have the segments in place of the axis.
    pub(crate) fn shape(&self) -> Vec<usize> {
        let mut shape = self.reduce.shape.to_vec();
        if let Some(extent) = shape.get_mut(self.axis) {
            *extent = self.members.segments();
        }
        shape
    }
}

impl Asked for SegmentsRequest<'_> {
    type Request = SegmentsRequest<'static>;

    fn is(&self, known: &SegmentsRequest<'static>) -> bool {
        self == known
    }

    fn to_request(&self) -> SegmentsRequest<'static> {
        self.clone().into_owned()
    }
}

/// The tensors are the input, the second input if there is one, and those of [`MembersSpec`].
impl Task for SegmentsRequest<'_> {
    type Stated = StatedSegments;
    type Problem = SegmentsProblem;
    type Launch = SegmentsLaunches;

    fn state(&self) -> Result<StatedSegments, ReduceError> {
        let shape = self.shape();
        let dense = row_major_strides(&shape);
        let strides = match &self.output {
            Some((found, _)) if found[..] != shape => {
                return Err(Reason::OutputShape { expected: shape, found: found.to_vec() }.into());
            }
            Some((_, strides)) if strides.len() != shape.len() => {
                let (dims, strides) = (shape.len(), strides.len());
                return Err(
                    ProblemError::RankMismatch { tensor: Role::Output, dims, strides }.into()
                );
            }
            Some((_, strides)) => &strides[..],
            None => &dense,
        };
        let kept = |list: &[usize]| -> Cow<'_, [usize]> {
            let axes = list.iter().enumerate().filter(|&(axis, _)| axis != self.axis);
            Cow::Owned(axes.map(|(_, &number)| number).collect())
        };
        let output = Some((kept(&self.reduce.shape), kept(strides)));
        let reduction = ReduceRequest { output, ..self.reduce.clone() }.resolve()?;
        let members = self.members;
        let spec = SegmentsSpec {
            segments: members.segments(),
            segment_stride: strides.get(self.axis).copied().unwrap_or(1),
            offsets: members.offsets.element,
            indices: members.indices.map(|indices| {
                let IntegersSpec { count: len, element, .. } = indices;
                IndicesSpec { len, element }
            }),
        };
        let problem = SegmentsProblem::new(reduction.problem.clone(), &spec)?;
        members.span()?;
        let len = problem.axis().reduction_len();
        match members.keys {
            Some(keys) if keys.count != len => {
                Err(Reason::GroupedElements { keys: keys.count, len }.into())
            }
            _ => Ok(StatedSegments { reduction, problem, shape, members }),
        }
    }

    fn problem(stated: &StatedSegments) -> &SegmentsProblem {
        &stated.problem
    }

    fn given(&self) -> Option<&SegmentsPlan> {
        self.plan.as_ref()
    }

    fn check_types(
        &self,
        client: &Client,
        device: &Device,
        stated: &StatedSegments,
    ) -> Result<(), ReduceError> {
        check_arithmetic(client, self.reduce.operator.0, &stated.reduction.signature, device)
    }

    fn check_bytes(
        &self,
        stated: &StatedSegments,
        bytes: &[Option<u64>],
    ) -> Result<(), ReduceError> {
        check_inputs(&stated.reduction.problem, &bytes[..bytes.len().min(2)])?;
        self.members.check_bytes(bytes)
    }

    fn check_outputs(&self, client: &Client, stated: &StatedSegments) -> Result<(), ReduceError> {
        let available = client.properties().memory.max_page_size;
        let results = stated.problem.axis().results().iter();
        let needed = results.map(|&element| byte_count(stated.problem.output_span(), element));
        match needed.max().filter(|&needed| self.output.is_none() && needed > available) {
            Some(needed) => Err(Reason::OutputTooLarge { needed, available }.into()),
            None => Ok(()),
        }
    }

    fn is_empty(stated: &StatedSegments) -> bool {
        stated.problem.output_span() == 0
    }

    fn launch(
        &self,
        client: &Client,
        device: &Device,
        stated: &StatedSegments,
        plan: &SegmentsPlan,
    ) -> Result<SegmentsLaunches, ReduceError> {
        let problem = &stated.problem;
        let unfit = |reason| -> ReduceError {
            let (plan, device) = (plan.to_string(), device.name.clone());
            PlanError::Unfit { plan, device, reason }.into()
        };
        let grid = |cubes, merging| {
            device.grid(cubes).ok_or_else(|| unfit(Illegal::Grid { cubes, merging }))
        };
        let partials = plan.partials(problem) as u64;
        let fields = &stated.reduction.signature.fields[..self.reduce.operator.0.fields];
        let available = client.properties().memory.max_page_size;
        let largest = fields.iter().map(|field| partials * field.bytes() as u64).max();
        if let Some(bytes) = largest.filter(|&bytes| bytes > available) {
            return Err(unfit(Illegal::PartialsBuffer { bytes, available }));
        }
        let published = plan.published_words(problem, word_count(fields));
        let bytes = published.map_or(0, |words| words.saturating_mul(size_of::<u64>() as u64));
        if bytes > available {
            return Err(unfit(Illegal::PublishedPartials { bytes, max: available }));
        }
        let span = (problem.output_span() as u64).max(partials).max(stated.members.span()? as u64);
        let wide = check_limits(problem.axis(), device, span)?;
        let merging_cubes = plan.merging_cubes(problem);
        let team = |units_per_cube: u32, unit_stride: u32, combine| Team {
            units_per_tile: match combine {
                // The lanes of a plane have a strip of their own.
                Combine::Plane { lanes } => lanes,
                Combine::Shared => units_per_cube / unit_stride,
            },
            unit_stride,
            units_per_cube,
            combine,
            merging_units: units_per_cube,
        };
        let mergers = match plan.merge {
            SegmentsMerge::SecondLaunch { units_per_cube } if merging_cubes > 0 => {
                let units =
                    team(units_per_cube, plan.merged_side_by_side(problem), Combine::Shared);
                Some((units, grid(merging_cubes, true)?))
            }
            _ => None,
        };
        Ok(SegmentsLaunches {
            plan: *plan,
            address: if wide { AddressType::U64 } else { AddressType::U32 },
            readers: team(plan.units_per_cube, plan.side_by_side, plan.combine),
            mergers,
            // The plan's check has found that they fit indices of 32 bits.
            published: published.map(|words| words as usize),
            grid: grid(plan.cubes.into(), false)?,
        })
    }

    fn prepare(
        &self,
        _: &Client,
        _: &Device,
        stated: StatedSegments,
        launches: Option<SegmentsLaunches>,
    ) -> Result<PreparedSegments, ReduceError> {
        let (operator, noted) = (self.reduce.operator, Noted::default());
        Ok(PreparedSegments { operator, stated, launches, noted })
    }

    #[cfg(feature = "serde")]
    fn recorded(&self) -> Option<RecordedCall> {
        self.plan.is_none().then(|| RecordedCall::Segments(RecordedSegments::of(self)))
    }
}

thread_local! {
    static KNOWN: RefCell<Known<SegmentsRequest<'static>>> = RefCell::default();
}

impl Remembered for SegmentsRequest<'static> {
    type Prepared = PreparedSegments;

    fn known() -> &'static LocalKey<RefCell<Known<Self>>> {
        &KNOWN
    }

    fn held(&self, _: &PreparedSegments) -> Held {
        Held::of_axes::<Self, PreparedSegments>(self.reduce.shape.len())
    }
}

#[cfg(feature = "serde")]
impl RecordedSegments {
    /// The reduction of a request.
    pub(crate) fn of(request: &SegmentsRequest<'_>) -> Self {
        Self {
            axis: RecordedReduction::of(&request.reduce),
            segments: request.members.segments(),
            offsets: request.members.offsets.element,
            indices: request.members.indices.map(|indices| (indices.count, indices.element)),
            output_strides: request.output.as_ref().map(|(_, strides)| strides.to_vec()),
        }
    }
}
