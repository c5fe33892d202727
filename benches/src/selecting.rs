//! Selections in words.

use reduce_kernels::{
    Input, ReduceError, TensorDescription,
    plans::RecordedCall,
    quantiles::{Quantiles, quantiles},
    top_k::{Over, TopK, largest, smallest},
};

use crate::{Case, CaseError, StatedCase};

/// What is selected of each slice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Selection {
    /// `topk64`: the largest elements.
    Largest(usize),
    /// `bottomk64`: the smallest.
    Smallest(usize),
    /// `kthvalue100`: the last of the smallest.
    Kth(usize),
    /// `router8` and `probabilities8`: the probabilities of the largest.
    Probabilities(Over, usize),
    /// `mask8`: the input with a number in place of all but the largest.
    Mask(usize),
    /// `median` and `nanmedian`.
    Median {
        /// Whether NaN is left out.
        ignores_nan: bool,
    },
}

/// A selection and where it is made.
#[derive(Clone, Debug)]
pub struct Selecting {
    /// The case as it is printed.
    pub words: String,
    /// What is selected.
    pub selection: Selection,
    /// The type, the shape, the strides and the axes.
    pub place: Case,
}

/// Words that state no selection.
#[derive(Debug, thiserror::Error)]
pub enum SelectingError {
    /// The type, the shape or the axes are not stated.
    #[error(transparent)]
    Case(#[from] CaseError),
    /// The first word names none.
    #[error(
        "`{0}` is no selection: `topk64`, `bottomk64`, `kthvalue100`, `router8`, `probabilities8`, \
         `mask8`, `median` or `nanmedian`"
    )]
    Selection(String),
}

impl Selection {
    /// The selection of a name, if it is that of one.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        let numbered = |prefix: &str| name.strip_prefix(prefix)?.parse().ok();
        match name {
            "median" => Some(Self::Median { ignores_nan: false }),
            "nanmedian" => Some(Self::Median { ignores_nan: true }),
            _ => (numbered("topk").map(Self::Largest))
                .or_else(|| numbered("bottomk").map(Self::Smallest))
                .or_else(|| numbered("kthvalue").map(Self::Kth))
                .or_else(|| numbered("router").map(|k| Self::Probabilities(Over::Selected, k)))
                .or_else(|| numbered("probabilities").map(|k| Self::Probabilities(Over::Slice, k)))
                .or_else(|| numbered("mask").map(Self::Mask)),
        }
    }
}

impl Selecting {
    /// The selection that a line states. Without an axis, slices lie along the last one.
    ///
    /// # Errors
    ///
    /// Words that state none.
    pub fn parse(stated: &StatedCase) -> Result<Self, SelectingError> {
        let no_selection = || SelectingError::Selection(stated.name.clone());
        let selection = Selection::of(&stated.name).ok_or_else(no_selection)?;
        let last = stated.place.matches(',').count();
        let axis =
            if stated.place.contains("axis") { String::new() } else { format!(" axis {last}") };
        let place: Case = format!("sum {}{axis}", stated.place).parse()?;
        Ok(Self { words: format!("{}{axis}", stated.words()), selection, place })
    }

    /// The selection of `k` elements of a tensor.
    pub fn of<'a, T: Input>(&self, k: usize, input: &'a T) -> TopK<'a, T> {
        let selection = match self.selection {
            Selection::Smallest(_) => smallest(k, input),
            Selection::Kth(_) => smallest(k, input).nan_last().only_last(),
            Selection::Probabilities(over, _) => largest(k, input).probabilities(over),
            Selection::Largest(_) | Selection::Mask(_) | Selection::Median { .. } => {
                largest(k, input)
            }
        };
        selection.over(self.place.axes())
    }

    /// The median of each slice of a tensor.
    pub fn median<'a, T: Input>(&self, input: &'a T, ignores_nan: bool) -> Quantiles<'a, T> {
        let median = quantiles([0.5], input).over(self.place.axes());
        if ignores_nan { median.ignore_nan() } else { median }
    }

    /// The selection as data. A median is that of its element or of the two nearest to it.
    ///
    /// # Errors
    ///
    /// Slices that are too short.
    pub fn record(&self) -> Result<RecordedCall, ReduceError> {
        let Case { element, .. } = self.place;
        let input = TensorDescription::strided(element, self.place.shape(), self.place.strides());
        match self.selection {
            Selection::Mask(k) => self.of(k, &input).masked(0.0).record(),
            Selection::Largest(k)
            | Selection::Smallest(k)
            | Selection::Kth(k)
            | Selection::Probabilities(_, k) => self.of(k, &input).record(),
            Selection::Median { ignores_nan } => self.median(&input, ignores_nan).record(),
        }
    }
}
