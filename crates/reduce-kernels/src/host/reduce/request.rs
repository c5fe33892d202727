//! The request of one call, as plain data.

use std::borrow::Cow;

use reduce_planner::{
    ElementType, InputSpec, Numerics, OperatorClass, OutputSpec, Plan, PlanError, Problem,
    ProblemError, Role, SecondSpec, ShardSpec, reduced_axes,
};

#[cfg(feature = "serde")]
use crate::recorded::{RecordedOperand, RecordedReduction};
use crate::{
    error::{Reason, ReduceError},
    host::types::{class_of, word_count},
    operator::{Erased, OperatorRef, Reproducible, Signature, TypeRequest, rules},
};

/// Shape and strides of a supplied output.
pub(crate) type OutputLayout<'a> = (Cow<'a, [usize]>, Cow<'a, [usize]>);

/// Everything that decides how a reduction is launched, apart from its buffers and its device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReduceRequest<'a> {
    pub(crate) operator: OperatorRef,
    pub(crate) element: ElementType,
    pub(crate) shape: Cow<'a, [usize]>,
    pub(crate) strides: Cow<'a, [usize]>,
    /// The second input.
    pub(crate) second: Option<SecondRequest>,
    /// The largest number of bytes of which the address of the first element is known to be a
    /// multiple.
    pub(crate) alignment: usize,
    /// The reduced axes; `None` means all axes.
    pub(crate) axes: Option<Cow<'a, [usize]>>,
    pub(crate) keep_dims: bool,
    pub(crate) accumulator: Option<ElementType>,
    pub(crate) outputs: [Option<ElementType>; 3],
    /// Shape and strides of a supplied output.
    pub(crate) output: Option<OutputLayout<'a>>,
    pub(crate) plan: Option<Plan>,
    pub(crate) wanted: Wanted,
    /// Which part of larger tensors the inputs are, if they are one.
    pub(crate) shard: Option<ShardSpec>,
    pub(crate) numerics: Numerics,
}

/// What a reduction leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wanted {
    /// The operator's results.
    Results,
    /// Its accumulators, as words of 32 bits.
    Partials,
}

/// The second input of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SecondRequest {
    pub(crate) element: ElementType,
    /// Strides along the axes of the first: 0 where it repeats its elements.
    pub(crate) strides: Vec<usize>,
    pub(crate) alignment: usize,
}

impl SecondRequest {
    /// The second input `second`, whose axes are the last ones of the first. Where its extent is 1,
    /// its elements are repeated.
    pub(crate) fn of(first: &InputSpec<'_>, second: &InputSpec<'_>) -> Result<Self, ReduceError> {
        let (rank, own) = (first.shape.len(), second.shape.len());
        let fits = own <= rank
            && second.strides.len() == own
            && second
                .shape
                .iter()
                .zip(&first.shape[rank - own..])
                .all(|(own, extent)| [&1, extent].contains(&own));
        if !fits {
            let (first, second) = (first.shape.to_vec(), second.shape.to_vec());
            return Err(Reason::SecondShape { first, second }.into());
        }
        let mut strides = vec![0; rank];
        for (axis, (&extent, &stride)) in second.shape.iter().zip(second.strides).enumerate() {
            if extent != 1 {
                strides[rank - own + axis] = stride;
            }
        }
        Ok(Self { element: second.element, strides, alignment: second.alignment })
    }

    pub(crate) fn spec(&self) -> SecondSpec<'_> {
        let Self { element, ref strides, alignment } = *self;
        SecondSpec { element, strides, alignment }
    }
}

/// A request whose axes, types and strides have been checked.
#[derive(Debug)]
pub(crate) struct StatedReduction {
    pub(crate) problem: Problem,
    /// What the types follow from.
    pub(crate) types: TypeRequest,
    pub(crate) signature: Signature,
    /// Shape of the result.
    pub(crate) shape: Vec<usize>,
    /// Words of 32 bits of an accumulator, if accumulators are left and not results.
    pub(crate) words: Option<usize>,
}

impl StatedReduction {
    /// Type and number of elements of each output, which follow each other without gaps if the
    /// caller supplies none.
    pub(crate) fn outputs(&self, operator: &Erased) -> Vec<(ElementType, usize)> {
        let outputs = self.problem.outputs();
        match self.words {
            Some(words) => vec![(ElementType::U32, outputs.saturating_mul(words))],
            None => {
                let results = &self.signature.results[..operator.results];
                results.iter().map(|&element| (element, outputs)).collect()
            }
        }
    }
}

impl ReduceRequest<'_> {
    /// The request with lists that it owns.
    pub(crate) fn into_owned(self) -> ReduceRequest<'static> {
        let owned = |list: Cow<'_, [usize]>| Cow::Owned(list.into_owned());
        ReduceRequest {
            shape: owned(self.shape),
            strides: owned(self.strides),
            axes: self.axes.map(owned),
            output: self.output.map(|(shape, strides)| (owned(shape), owned(strides))),
            ..self
        }
    }

    /// Says which part of larger tensors the inputs are. Without positions, all shards of one
    /// length are prepared alike.
    pub(crate) fn become_shard(&mut self, shard: ShardSpec) {
        let extent = self.shape.get(shard.axis).copied().unwrap_or(0);
        let fits = shard.start.checked_add(extent).is_some_and(|end| end <= shard.of);
        let as_it_is = self.operator.0.positional || !fits;
        let start = if as_it_is { shard.start } else { 0 };
        self.shard = Some(ShardSpec { start, ..shard });
    }

    /// Strides along the kept axes of a supplied output that fits.
    #[cfg(feature = "serde")]
    pub(crate) fn output_strides(&self) -> Option<Vec<usize>> {
        let is_reduced = reduced_axes(self.shape.len(), self.axes.as_deref()).ok()?;
        self.kept_strides(&is_reduced, &self.result_shape(&is_reduced)).ok()?
    }

    /// The types that a reduction over the axes that are marked computes with, and what the planner
    /// needs to know of its operator.
    pub(crate) fn typed(
        &self,
        is_reduced: &[bool],
    ) -> Result<(TypeRequest, Signature, OperatorClass), ReduceError> {
        let operator = self.operator.0;
        // Types follow from the whole, so that all shards have the same. If a product of extents
        // overflows, `Problem::with_inputs` refuses the shape.
        let extent = |axis: usize| match self.shard {
            Some(shard) if shard.axis == axis => shard.of,
            _ => self.shape[axis],
        };
        let reduction_len = (0..self.shape.len())
            .filter(|&axis| is_reduced[axis])
            .fold(1usize, |len, axis| len.saturating_mul(extent(axis)));
        let (expected, found) = (operator.inputs, self.inputs());
        if expected != found {
            let operator = operator.name();
            return Err(Reason::Inputs { operator, expected, found }.into());
        }
        let second = self.second.as_ref();
        let request = TypeRequest {
            input: second
                .map_or(self.element, |second| rules::common(self.element, second.element)),
            accumulator: self.accumulator,
            outputs: self.outputs,
            reduction_len,
        };
        let signature = (operator.types)(&request)
            .ok_or_else(|| Reason::Types { operator: operator.name(), request })?;
        let mut class = class_of(operator, &signature);
        // Keys of stored plans say nothing about it where nothing is promised.
        if self.numerics.is_reproducible() || self.is_batch_invariant() {
            let reproducible = operator.reproducible_in(&signature.fields[..operator.fields]);
            if self.numerics.is_reproducible() || reproducible == Reproducible::Exact {
                class.reproducible = reproducible;
            }
        }
        Ok((request, signature, class))
    }

    /// Checks the request and constructs its problem.
    pub(crate) fn resolve(&self) -> Result<StatedReduction, ReduceError> {
        let operator = self.operator.0;
        let shape = &self.shape[..];
        let axes = self.axes.as_deref();
        let is_reduced = reduced_axes(shape.len(), axes)?;
        let (request, signature, mut class) = self.typed(&is_reduced)?;
        if self.numerics.is_reproducible() && self.wanted == Wanted::Partials {
            let of = Some("as partial results");
            let refused = PlanError::NotReproducible { operator: operator.name, of };
            return Err(refused.into());
        }
        let (words, results) = match self.wanted {
            Wanted::Results => (None, &signature.results[..operator.results]),
            Wanted::Partials => {
                // The accumulator of no elements is the identity.
                class.defined_on_empty = true;
                // Two passes leave no accumulator.
                class.passes_bytes = None;
                let words = word_count(&signature.fields[..operator.fields]);
                (Some(words), &[ElementType::U32][..])
            }
        };
        let result_shape = self.result_shape(&is_reduced);
        let kept_strides = self.kept_strides(&is_reduced, &result_shape)?;
        let second = self.second.as_ref().map(SecondRequest::spec);
        let problem = Problem::with_inputs(
            class,
            &InputSpec {
                element: self.element,
                shape,
                strides: &self.strides,
                alignment: self.alignment,
            },
            second.as_ref(),
            self.shard,
            axes,
            &OutputSpec { elements: results, strides: kept_strides.as_deref() },
        )?;
        let problem = problem.with_numerics(self.numerics);
        Ok(StatedReduction { problem, types: request, signature, shape: result_shape, words })
    }

    /// Whether the call or its own plan is batch-invariant.
    fn is_batch_invariant(&self) -> bool {
        let of_plan = self.plan.map(|plan| plan.numerics);
        [Some(self.numerics), of_plan].contains(&Some(Numerics::BatchInvariant))
    }

    /// The number of inputs.
    fn inputs(&self) -> usize {
        1 + usize::from(self.second.is_some())
    }

    fn result_shape(&self, is_reduced: &[bool]) -> Vec<usize> {
        let axes = self.shape.iter().zip(is_reduced);
        if self.keep_dims {
            axes.map(|(&extent, &reduced)| if reduced { 1 } else { extent }).collect()
        } else {
            axes.filter(|&(_, reduced)| !reduced).map(|(&extent, _)| extent).collect()
        }
    }

    /// Strides of a supplied output along the kept axes.
    fn kept_strides(
        &self,
        is_reduced: &[bool],
        result_shape: &[usize],
    ) -> Result<Option<Vec<usize>>, ReduceError> {
        let Some((found, strides)) = &self.output else { return Ok(None) };
        if found.len() != result_shape.len() {
            let expected = result_shape.to_vec();
            return Err(Reason::OutputShape { expected, found: found.to_vec() }.into());
        }
        if strides.len() != found.len() {
            return Err(ProblemError::RankMismatch {
                tensor: Role::Output,
                dims: found.len(),
                strides: strides.len(),
            }
            .into());
        }
        if !self.keep_dims {
            return Ok(Some(strides.to_vec()));
        }
        let kept = strides.iter().zip(is_reduced).filter(|&(_, reduced)| !reduced);
        Ok(Some(kept.map(|(&stride, _)| stride).collect()))
    }
}

#[cfg(feature = "serde")]
impl RecordedReduction {
    /// The reduction of a request.
    pub(crate) fn of(request: &ReduceRequest<'_>) -> Self {
        let second = request.second.as_ref();
        Self {
            operator: request.operator.0.name(),
            element: request.element,
            shape: request.shape.to_vec(),
            strides: request.strides.to_vec(),
            alignment: request.alignment,
            axes: request.axes.as_ref().map(|axes| axes.to_vec()),
            second: second.map(|second| {
                RecordedOperand::new(second.element, &second.strides, second.alignment)
            }),
            accumulator: request.accumulator,
            outputs: request.outputs,
            output_strides: request.output_strides(),
            numerics: request.numerics,
        }
    }
}
