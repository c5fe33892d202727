//! Scans in words.

use reduce_kernels::{
    Input, Operator, ReduceError, TensorDescription,
    by_name::{OperatorOptions, with_operator},
    operator::One,
    plans::RecordedCall,
    scan::{Scan, scan},
};

use crate::{Case, CaseError, StatedCase};

/// A scan: `sum f32 [65536, 1024] axis 1`, and among these words `exclusive` or `reverse`.
#[derive(Clone, Debug)]
pub struct Scanning {
    /// The case as it is printed.
    pub words: String,
    /// The operator, the type, the shape, the strides and the axes.
    pub place: Case,
    exclusive: bool,
    reverse: bool,
}

impl Scanning {
    /// The scan that a line states.
    ///
    /// # Errors
    ///
    /// Words that state none.
    pub fn parse(stated: &StatedCase) -> Result<Self, CaseError> {
        let is_way = |word: &&str| ["exclusive", "reverse"].contains(word);
        let (ways, place): (Vec<&str>, Vec<&str>) =
            stated.place.split_whitespace().partition(is_way);
        let place: Case = format!("{} {}", stated.name, place.join(" ")).parse()?;
        let (exclusive, reverse) = (ways.contains(&"exclusive"), ways.contains(&"reverse"));
        Ok(Self { words: stated.words(), place, exclusive, reverse })
    }

    /// The scan of a tensor.
    pub fn of<'a, O: Operator<Inputs = One>, T: Input>(
        &self,
        operator: O,
        input: &'a T,
    ) -> Scan<'a, O, T> {
        let scanned = scan(operator, input).over(self.place.axes());
        let scanned = if self.exclusive { scanned.exclusive() } else { scanned };
        if self.reverse { scanned.reverse() } else { scanned }
    }

    /// The scan as data.
    ///
    /// # Errors
    ///
    /// Axes that the shape does not have.
    pub fn record(&self) -> Result<RecordedCall, ReduceError> {
        let Case { operator, element, .. } = self.place;
        let input = TensorDescription::strided(element, self.place.shape(), self.place.strides());
        with_operator!(operator, OperatorOptions::default(), operator => {
            self.of(operator, &input).record()
        })
    }
}
