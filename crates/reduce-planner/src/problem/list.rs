//! A list of tensors that one operator reduces together.

use super::{AppliedProblem, AppliedSpec, InputSpec, OperatorClass, OutputSpec, Problem};
use crate::{element::ElementType, error::ProblemError, numerics::Numerics};

/// A list of tensors of any shapes and types, each of which is reduced to results of its own, and
/// all of which together are reduced to one more.
///
/// Each tensor has a canonical [`Problem`], which reduces all of its axes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListProblem {
    pub(super) operator: OperatorClass,
    pub(super) results: Vec<ElementType>,
    pub(super) tensors: Vec<Problem>,
    pub(super) numerics: Numerics,
}

impl ListProblem {
    /// States the reduction of `inputs`. `results` are the types of the operator's results.
    ///
    /// # Errors
    ///
    /// [`ProblemError::PositionalList`] for an operator that gives positions,
    /// [`ProblemError::Listed`] for a tensor that cannot be reduced, [`ProblemError::EmptyList`] if
    /// there is no tensor and the operator has no value for no elements.
    pub fn new(
        operator: OperatorClass,
        inputs: &[InputSpec<'_>],
        results: &[ElementType],
    ) -> Result<Self, ProblemError> {
        if operator.positional {
            return Err(ProblemError::PositionalList { operator: operator.name });
        }
        if inputs.is_empty() && !operator.defined_on_empty {
            return Err(ProblemError::EmptyList { operator: operator.name });
        }
        let output = OutputSpec { elements: results, strides: None };
        let stated = |(nth, input)| {
            Problem::new(operator, input, None, &output)
                .map_err(|error| ProblemError::Listed { nth, error: Box::new(error) })
        };
        let tensors = inputs.iter().enumerate().map(stated).collect::<Result<_, _>>()?;
        let numerics = Numerics::default();
        Ok(Self { operator, results: results.to_vec(), tensors, numerics })
    }

    /// States the application of the results of all tensors to each of `inputs`, into outputs with
    /// these strides. Positions of the problems are offsets in the outputs, which have the types of
    /// the inputs.
    ///
    /// # Errors
    ///
    /// [`ProblemError::Listed`] for a tensor whose output may store two elements in one place, or
    /// that is larger than this machine can address.
    pub fn applied(
        operator: OperatorClass,
        inputs: &[InputSpec<'_>],
        outputs: &[&[usize]],
    ) -> Result<Self, ProblemError> {
        let stated = |(nth, (input, &strides)): (usize, (&InputSpec<'_>, &&[usize]))| {
            let element = input.element;
            let spec = AppliedSpec {
                element,
                strides: Some(strides),
                second: None,
                companions: &[],
                further: &[],
            };
            let defined = OperatorClass { defined_on_empty: true, ..operator };
            AppliedProblem::new(defined, input, None, &spec)
                .map(|applied| applied.problem().clone())
                .map_err(|error| ProblemError::Listed { nth, error: Box::new(error) })
        };
        let pairs = inputs.iter().zip(outputs).enumerate();
        let tensors = pairs.map(stated).collect::<Result<_, _>>()?;
        Ok(Self { operator, results: Vec::new(), tensors, numerics: Numerics::default() })
    }

    /// The same problem, for plans whose bits depend on no more than this. The results of one
    /// tensor then do not depend on the others; those of all tensors together do.
    #[must_use]
    pub fn with_numerics(self, numerics: Numerics) -> Self {
        Self { numerics, ..self }
    }

    /// What the bits of a result may depend on.
    #[must_use]
    pub fn numerics(&self) -> Numerics {
        self.numerics
    }

    /// The operator's class.
    #[must_use]
    pub fn operator(&self) -> OperatorClass {
        self.operator
    }

    /// Type of each result.
    #[must_use]
    pub fn results(&self) -> &[ElementType] {
        &self.results
    }

    /// The tensors, in the order of the list.
    #[must_use]
    pub fn tensors(&self) -> &[Problem] {
        &self.tensors
    }

    /// Number of elements of all tensors, or the largest number if there are more.
    #[must_use]
    pub fn elements(&self) -> u64 {
        let elements = self.tensors.iter().map(|tensor| tensor.reduction_len() as u64);
        elements.fold(0, u64::saturating_add)
    }

    /// Bytes that must move: each distinct element is read once, and the results are written.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let written: u64 = self.results.iter().map(|result| result.bytes() as u64).sum();
        self.tensors.iter().map(Problem::bytes).fold(written, u64::saturating_add)
    }
}
