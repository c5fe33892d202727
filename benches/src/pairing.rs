//! Reductions of two inputs in words.

use reduce_kernels::{
    Input, Operator, ReduceError, Reduction, TensorDescription,
    by_name::{PairName, PairOptions, UnknownPair, with_pair},
    operator::Two,
    pairs::reduce_pair,
    plans::RecordedCall,
};

use crate::{Case, CaseError, StatedCase};

/// A reduction of two inputs of one layout.
#[derive(Clone, Debug)]
pub struct Pairing {
    /// The case as it is printed.
    pub words: String,
    /// The operator.
    pub name: PairName,
    /// The type, the shape, the strides and the axes.
    pub place: Case,
}

/// Words that state none.
#[derive(Debug, thiserror::Error)]
pub enum PairingError {
    /// The type, the shape or the axes are not stated.
    #[error(transparent)]
    Case(#[from] CaseError),
    /// The first word names no operator of two inputs.
    #[error(transparent)]
    Name(#[from] UnknownPair),
}

impl Pairing {
    /// The operator of a name, in the words of the peers' programs.
    ///
    /// # Errors
    ///
    /// There is none of this name.
    pub fn name(name: &str) -> Result<PairName, UnknownPair> {
        match name {
            "mse" => "mean_squared_error",
            "cosine" => "cosine_similarity",
            name => name,
        }
        .parse()
    }

    /// The reduction that a line states.
    ///
    /// # Errors
    ///
    /// Words that state none.
    pub fn parse(stated: &StatedCase) -> Result<Self, PairingError> {
        let place = format!("sum {}", stated.place).parse()?;
        Ok(Self { words: stated.words(), name: Self::name(&stated.name)?, place })
    }

    /// The reduction of two tensors.
    pub fn of<'a, O: Operator<Inputs = Two>, T: Input>(
        &self,
        operator: O,
        first: &'a T,
        second: &'a T,
    ) -> Reduction<'a, O, T> {
        reduce_pair(operator, first, second).over(self.place.axes())
    }

    /// The reduction as data.
    ///
    /// # Errors
    ///
    /// Axes that the shape does not have.
    pub fn record(&self) -> Result<RecordedCall, ReduceError> {
        let element = self.place.element;
        let input = TensorDescription::strided(element, self.place.shape(), self.place.strides());
        with_pair!(self.name, PairOptions::default(), operator => {
            Ok(RecordedCall::Reduction(self.of(operator, &input, &input).record()?))
        })
    }
}
