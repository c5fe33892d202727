//! Launches reductions whose results are applied to their elements.

use cubecl::{prelude::*, server::BufferBinding, std::tensor::TensorHandle};
use reduce_planner::{Access, AppliedPlan, Direction, ElementType, Role, SegmentsProblem};

use super::request::{Alone, ApplyRequest, ApplyingLaunch, PreparedApplication};
use crate::{
    element::storage_type,
    error::{Reason, ReduceError},
    host::{
        arguments::{count, geometry, parameters, result_arrays, result_arrays_in_vectors},
        bound::Bound,
        call::Call,
        companion::companion_launch,
        kept::launch_kept,
        reduce::Inputs,
        scratch::{Words, words},
        segments::integers::{BoundMembers, Members},
    },
    kernels::{
        application::{
            apply_stored, apply_to_segments, reduce_and_apply, reduce_and_apply_by_cubes,
        },
        args::{
            AppliedArrays, AppliedArraysLaunch, InputArrays, InputArraysLaunch, KernelTypes,
            OperandArrays, OperandArraysLaunch, ResultArrays, ResultArraysLaunch,
        },
        geometry::{Companion, CompanionAccess, Geometry},
        segments::{SegmentNumbers, SegmentNumbersLaunch},
    },
    operator::{Offset, Parameters, ParametersLaunch},
};

/// Bytes of a buffer that stands for an operand without elements: those of the longest vector.
const UNREAD_BYTES: usize = 256;

/// The tensors of a call.
pub(crate) struct Tensors<'a> {
    pub(crate) input: &'a TensorHandle,
    pub(crate) second: Option<&'a TensorHandle>,
    /// Those beside the second input.
    pub(crate) operands: Vec<&'a TensorHandle>,
    /// What segments have.
    pub(crate) members: Option<Members<'a, TensorHandle>>,
}

impl<'a> Call<'a, ApplyRequest<'a>> {
    /// Launches into a new row-major tensor for each output. Returns them with the results, if
    /// these are wanted.
    pub(crate) fn run(
        self,
        client: &Client,
        tensors: &Tensors<'_>,
    ) -> Result<(Vec<TensorHandle>, Vec<TensorHandle>), ReduceError> {
        let prepared = self.prepared(client)?;
        let applied = prepared.stated.applied();
        let tensor = |element: ElementType| {
            // A buffer of 0 bytes cannot be bound.
            let handle = client.empty(applied.elements().max(1) * element.bytes());
            let shape = self.task.reduction.shape.to_vec();
            TensorHandle::new_contiguous(shape, handle, storage_type(element))
        };
        let outputs: Vec<TensorHandle> = prepared.stated.outputs().map(tensor).collect();
        let bindings = outputs.iter().map(|output| output.handle.clone().binding());
        let results = self.launch(client, &prepared, tensors, bindings)?;
        Ok((outputs, results))
    }

    /// Launches into tensors that the caller supplies, one for each output.
    pub(crate) fn run_into(
        self,
        client: &Client,
        tensors: &Tensors<'_>,
        outputs: &[TensorBinding],
    ) -> Result<Vec<TensorHandle>, ReduceError> {
        let expected = &self.task.reduction.shape;
        if let Some(output) = outputs.iter().find(|output| output.shape[..] != expected[..]) {
            let (expected, found) = (expected.to_vec(), output.shape.to_vec());
            return Err(Reason::OutputShape { expected, found }.into());
        }
        let prepared = self.prepared(client)?;
        let bindings = outputs.iter().map(|output| output.handle.clone());
        self.launch(client, &prepared, tensors, bindings)
    }

    fn launch(
        &self,
        client: &Client,
        prepared: &PreparedApplication,
        tensors: &Tensors<'_>,
        outputs: impl Iterator<Item = BufferBinding>,
    ) -> Result<Vec<TensorHandle>, ReduceError> {
        let request = &self.task;
        let applied = prepared.stated.applied();
        let problem = applied.problem();
        let inputs = Inputs::bind(client, problem, tensors.input, tensors.second)?;
        let operands = request.own_operands().iter().zip(&tensors.operands);
        let operands = operands.map(|(operand, tensor)| {
            let (span, element) = (request.span_of(operand), operand.element);
            if span == 0 {
                // A buffer of 0 bytes cannot be bound. Nothing reads this one: no element has a
                // segment.
                let unread = client.empty(UNREAD_BYTES).binding();
                return Ok(Bound::own(unread, UNREAD_BYTES / element.bytes(), element.bytes()));
            }
            Bound::check_input(client, Role::Operand, &tensor.handle, span, element)
        });
        let operands = operands.collect::<Result<_, ReduceError>>()?;
        let members = request.members.zip(tensors.members);
        let members = members.map(|(spec, members)| spec.bind(client, members)).transpose()?;
        let outputs = outputs.zip(prepared.stated.outputs()).enumerate();
        let outputs = outputs.map(|(nth, (output, element))| {
            let span = request.output_span(nth, problem);
            Bound::check(client, Role::Output, output, span, element)
        });
        let outputs = outputs.collect::<Result<Vec<Bound<'static>>, ReduceError>>()?;
        let results = match &prepared.reduction {
            Some(Alone::Whole(reduction)) => {
                reduction.run(client, &self.parameters, inputs.clone())?
            }
            Some(Alone::Segments(reduction)) => {
                let members = tensors.members.expect("the request has segments");
                reduction.run(client, &self.parameters, inputs.clone(), members)?
            }
            None if request.wants_results => prepared.empty_results(client, request),
            None => Vec::new(),
        };
        if let Some(launch) = &prepared.launch {
            let words = match launch.published {
                // CubeCL does not reveal the stream of a client, but a new buffer does.
                Some(count) => Some(words(client, client.empty(1).stream.value, count)?),
                None => None,
            };
            ApplicationLaunch {
                client,
                prepared,
                launch,
                inputs,
                operands,
                members,
                results: prepared.bound_results(&results),
                outputs,
                words,
                parameters: &self.parameters,
                apply_parameters: &self.apply_parameters,
            }
            .run();
        }
        Ok(if request.wants_results { results } else { Vec::new() })
    }
}

impl PreparedApplication {
    /// Row-major tensors for the results.
    fn empty_results(&self, client: &Client, request: &ApplyRequest<'_>) -> Vec<TensorHandle> {
        let outputs: usize = self.stated.shape.iter().product();
        let results = &self.stated.signature.results[..request.reduction.operator.0.results];
        let tensor = |&element: &ElementType| {
            let handle = client.empty(outputs.max(1) * element.bytes());
            let shape = self.stated.shape.clone();
            TensorHandle::new_contiguous(shape, handle, storage_type(element))
        };
        results.iter().map(tensor).collect()
    }

    /// The buffers of row-major results.
    fn bound_results(&self, results: &[TensorHandle]) -> Vec<Bound<'static>> {
        let outputs: usize = self.stated.shape.iter().product();
        let bytes = self.stated.real().bytes();
        let bound =
            |result: &TensorHandle| Bound::own(result.handle.clone().binding(), outputs, bytes);
        results.iter().map(bound).collect()
    }
}

/// A call whose checks have all passed.
struct ApplicationLaunch<'a> {
    client: &'a Client,
    prepared: &'a PreparedApplication,
    launch: &'a ApplyingLaunch,
    inputs: Inputs<'a>,
    /// Those beside the second input.
    operands: Vec<Bound<'a>>,
    members: Option<BoundMembers<'a>>,
    results: Vec<Bound<'static>>,
    outputs: Vec<Bound<'static>>,
    words: Option<Words>,
    parameters: &'a [f64],
    apply_parameters: &'a [f64],
}

impl ApplicationLaunch<'_> {
    fn run(self) {
        let launch = self.launch;
        let ApplyingLaunch { plan, operator, types, spec, hold, grid, address, cubes, .. } =
            *launch;
        let applied = self.prepared.stated.applied();
        let (client, noted) = (self.client, &self.prepared.noted);
        noted.launch(client, |each| each(launch.kernel(applied)));
        let units = spec.team.units_per_cube;
        let geometry = geometry(applied.problem(), &launch.applying);
        // SAFETY: the buffers hold every offset of the problem and of its companions. The plan's
        // check has found that every vector load is aligned, and inside its inner dimension or
        // inside the input; vectors of the output and of operands are bound where they lie as those
        // of the input do, or as those of realigned rows would if these were aligned, or where
        // units move elements back to the vectors that lie inside the output's rows. Units without
        // work repeat the loads of others and write nothing. An output in place of the input is
        // safe: a unit writes an element after it has read it for the last time, and no other unit
        // takes it after the barrier before, nor any unit of another cube at all. Loads of
        // realigned rows read elements beside those that they take, which others may be writing.
        // There are as many words as the plan asked for, and only launches of this stream use them,
        // one after the other.
        unsafe {
            match plan {
                AppliedPlan::Segments { .. } => {
                    let members = self.members.as_ref().expect("the call has bound segments");
                    let named_by = members.keys.as_ref().unwrap_or(&members.offsets);
                    launch_kept!(
                        noted.first, client, count(grid), units, address;
                        apply_to_segments::ApplyToSegments {
                            ReadOnly types: KernelTypes = types,
                            ReadOnly input: InputArrays = self.input_arrays(),
                            ReadOnly offsets: [Offset] = named_by.elements(),
                            ReadOnly operands: OperandArrays = self.operand_arrays(),
                            ReadWrite results: ResultArrays = self.stored_results(),
                            ReadWrite output: AppliedArrays = self.output_arrays(),
                            ReadOnly geometry: Geometry = geometry,
                            ReadOnly companions: Sequence<Companion> = self.companions(),
                            ReadOnly numbers: SegmentNumbers = self.numbers(),
                            ReadOnly apply_parameters: Parameters = self.apply_parameters(),
                            ReadWrite cubes: usize = cubes,
                        }
                        spec
                    );
                }
                AppliedPlan::Separately { .. } => launch_kept!(
                    noted.first, client, count(grid), units, address;
                    apply_stored::ApplyStored {
                        ReadOnly types: KernelTypes = types,
                        ReadOnly input: InputArrays = self.input_arrays(),
                        ReadOnly operands: OperandArrays = self.operand_arrays(),
                        ReadWrite results: ResultArrays = self.stored_results(),
                        ReadWrite output: AppliedArrays = self.output_arrays(),
                        ReadOnly geometry: Geometry = geometry,
                        ReadOnly companions: Sequence<Companion> = self.companions(),
                        ReadOnly apply_parameters: Parameters = self.apply_parameters(),
                        ReadWrite cubes: usize = cubes,
                    }
                    spec
                ),
                AppliedPlan::Held { cubes_per_output: 2.., .. } => {
                    let words = self.words.as_ref().expect("the call has asked for words");
                    launch_kept!(
                        noted.first, client, count(grid), units, address;
                        reduce_and_apply_by_cubes::ReduceAndApplyByCubes {
                            ReadOnly types: KernelTypes = types,
                            ReadOnly input: InputArrays = self.input_arrays(),
                            ReadOnly operands: OperandArrays = self.operand_arrays(),
                            ReadWrite published: [Atomic<u64>] = words.words.elements(),
                            ReadWrite results: ResultArrays = result_arrays(&self.results),
                            ReadWrite output: AppliedArrays = self.output_arrays(),
                            ReadOnly geometry: Geometry = geometry,
                            ReadOnly companions: Sequence<Companion> = self.companions(),
                            ReadOnly parameters: Parameters = self.parameters(),
                            ReadOnly apply_parameters: Parameters = self.apply_parameters(),
                            ReadWrite cubes: usize = cubes,
                            ReadWrite mark: u64 = words.mark,
                        }
                        hold, spec, operator
                    );
                }
                _ => launch_kept!(
                    noted.first, client, count(grid), units, address;
                    reduce_and_apply::ReduceAndApply {
                        ReadOnly types: KernelTypes = types,
                        ReadOnly input: InputArrays = self.input_arrays(),
                        ReadOnly operands: OperandArrays = self.operand_arrays(),
                        ReadWrite results: ResultArrays = result_arrays(&self.results),
                        ReadWrite output: AppliedArrays = self.output_arrays(),
                        ReadOnly geometry: Geometry = geometry,
                        ReadOnly companions: Sequence<Companion> = self.companions(),
                        ReadOnly parameters: Parameters = self.parameters(),
                        ReadOnly apply_parameters: Parameters = self.apply_parameters(),
                    }
                    hold, spec, operator
                ),
            }
        }
    }

    fn input_arrays(&self) -> InputArraysLaunch {
        let access = self.launch.spec.access;
        let twice = access.peeled || access.realigned;
        self.inputs.arrays(self.prepared.stated.applied().problem(), access, twice, None, None)
    }

    /// The results that an earlier launch has stored.
    fn stored_results(&self) -> ResultArraysLaunch {
        match self.launch.spec.results_in_vectors {
            true => result_arrays_in_vectors(&self.results, self.launch.spec.access.vector),
            false => result_arrays(&self.results),
        }
    }

    fn output_arrays(&self) -> AppliedArraysLaunch {
        let Access { vector, peeled, realigned, direction, .. } = self.launch.spec.access;
        let in_vectors = self.launch.output_in_vectors || self.launch.spec.moves_back;
        let first = &self.outputs[0];
        let edges = (peeled || realigned) && direction == Direction::Along;
        let further = |nth: usize, wide: bool| {
            let output = self.outputs.get(nth + 1)?;
            let in_vectors = self.launch.spec.further[nth] == CompanionAccess::Vector;
            match wide {
                true => in_vectors.then(|| output.vectors(vector)),
                false => (!in_vectors || edges).then(|| output.elements()),
            }
        };
        AppliedArraysLaunch::new(
            in_vectors.then(|| first.vectors(vector)).into(),
            (!in_vectors || peeled || realigned).then(|| first.elements()).into(),
            further(0, false).into(),
            further(1, false).into(),
            further(0, true).into(),
            further(1, true).into(),
        )
    }

    fn operand_arrays(&self) -> OperandArraysLaunch {
        let Access { vector, peeled, realigned, direction, .. } = self.launch.spec.access;
        let edges = (peeled || realigned) && direction == Direction::Along;
        // The first slot is that of a second input, which the input's arrays bind.
        let own = usize::from(self.inputs.second.is_some());
        let array = |nth: usize, wide: bool| {
            let operand = self.operands.get(nth.checked_sub(own)?)?;
            let in_vectors = self.launch.spec.operands[nth] == CompanionAccess::Vector;
            match wide {
                true => in_vectors.then(|| operand.vectors(vector)),
                false => (!in_vectors || edges).then(|| operand.elements()),
            }
        };
        OperandArraysLaunch::new(
            array(0, false).into(),
            array(1, false).into(),
            array(2, false).into(),
            array(0, true).into(),
            array(1, true).into(),
            array(2, true).into(),
        )
    }

    /// The strides of the results and of the operands.
    fn companions(&self) -> SequenceArg<Companion> {
        let direction = self.launch.spec.access.direction;
        let mut sequence = SequenceArg::new();
        let applied = self.prepared.stated.applied();
        let segments = applied.segment_strides().iter().copied().chain(core::iter::repeat(0));
        for (companion, segment) in applied.companions().iter().zip(segments) {
            sequence.push(companion_launch(companion, direction, segment));
        }
        sequence
    }

    /// The numbers of the segments. Applications have no steps and no tiles of these.
    fn numbers(&self) -> SegmentNumbersLaunch {
        let stated = &self.prepared.stated;
        let stride = stated.members.map_or(0, |members| members.stride);
        let segments = stated.applied().segments();
        let count = segments.map_or(0, SegmentsProblem::segments);
        let result_stride = segments.map_or(0, SegmentsProblem::segment_stride);
        let len = stated.applied().problem().reduction_len();
        SegmentNumbersLaunch::new(count, len, stride, result_stride, 1, 1, 1, 0)
    }

    /// The operator's parameters, as in a reduction alone.
    fn parameters(&self) -> ParametersLaunch {
        parameters(self.parameters, &self.prepared.stated.signature)
    }

    fn apply_parameters(&self) -> ParametersLaunch {
        ParametersLaunch::of(self.apply_parameters, storage_type(self.prepared.stated.real()))
    }
}
