//! Lists of tensors in words.

use std::num::ParseIntError;

use reduce_kernels::{
    ElementType, ReduceError, TensorDescription,
    by_name::{OperatorName, OperatorOptions, UnknownOperator, with_operator},
    list::{ClippedToNorm, reduce_list, scan_list},
    operators::NormL2,
    planner::UnknownElementType,
    plans::RecordedCall,
};

/// What is done with a list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ListWork {
    /// A reduction.
    Reduce(OperatorName),
    /// A scan of each tensor along its first axis.
    Scan(OperatorName),
    /// Clipping in place, in each call to this times the norm of the call before.
    Clip {
        /// 1 where no tensor needs it.
        factor: f64,
    },
}

/// A list: `norm_l2 f32 27 of 1x[64, 64, 3, 3] 2x[64]`, 27 times one tensor of the first shape and
/// two of the second. `scan of ` before it asks for running results along the first axis of each.
#[derive(Clone, Debug, PartialEq)]
pub struct Listing {
    /// The case as it is printed.
    pub words: String,
    /// What is done.
    pub work: ListWork,
    /// The type of all tensors.
    pub element: ElementType,
    /// The shapes.
    pub shapes: Vec<Vec<usize>>,
}

/// Words that state no list.
#[derive(Debug, thiserror::Error)]
pub enum ListingError {
    /// Something is missing.
    #[error(
        "`{0}` is no case: an operator, a type, a number, `of`, and tensors such as `2x[64, 3]`"
    )]
    Case(String),
    /// A number of tensors, or an extent.
    #[error("`{0}`: {1}")]
    Number(String, ParseIntError),
    /// The first word names nothing that is done with lists.
    #[error(transparent)]
    Operator(#[from] UnknownOperator),
    /// The second word names no type.
    #[error(transparent)]
    Element(#[from] UnknownElementType),
}

/// The name of a case that clips tensors, all of which are scaled.
const CLIP: &str = "clip";

/// The name of a case that clips tensors, none of which need it.
const UNCLIPPED: &str = "unclipped";

/// The words before a list that is scanned.
const SCAN: &str = "scan of ";

impl Listing {
    /// Whether a line looks like a list's.
    #[must_use]
    pub fn is_stated(line: &str) -> bool {
        line.split_once(" of ").is_some_and(|(_, tensors)| tensors.contains("x["))
    }

    /// The list that a line states.
    ///
    /// # Errors
    ///
    /// Words that state none.
    pub fn parse(line: &str) -> Result<Self, ListingError> {
        let no_case = || ListingError::Case(line.into());
        let number = |text: &str| {
            let parsed = text.trim().parse::<usize>();
            parsed.map_err(|error| ListingError::Number(text.into(), error))
        };
        let scanned = line.strip_prefix(SCAN);
        let (head, tensors) = scanned.unwrap_or(line).split_once(" of ").ok_or_else(no_case)?;
        let words: Vec<&str> = head.split_whitespace().collect();
        let [operator, element, repeated] = words[..] else { return Err(no_case()) };
        let mut shapes = Vec::new();
        for tensor in tensors.split_terminator(']') {
            let (count, shape) = tensor.split_once("x[").ok_or_else(no_case)?;
            let shape = shape.split(',').map(number).collect::<Result<Vec<_>, _>>()?;
            shapes.extend(std::iter::repeat_n(shape, number(count)?));
        }
        let shapes = std::iter::repeat_n(shapes, number(repeated)?).flatten().collect();
        let work = match operator {
            name if scanned.is_some() => ListWork::Scan(name.parse()?),
            CLIP => ListWork::Clip { factor: 0.999 },
            UNCLIPPED => ListWork::Clip { factor: 1.0 },
            name => ListWork::Reduce(name.parse()?),
        };
        Ok(Self { words: line.into(), work, element: element.parse()?, shapes })
    }

    /// The call as data.
    ///
    /// # Errors
    ///
    /// Types that the operator does not take.
    pub fn record(&self) -> Result<RecordedCall, ReduceError> {
        let tensor = |shape: &Vec<usize>| TensorDescription::row_major(self.element, &shape[..]);
        let tensors: Vec<TensorDescription> = self.shapes.iter().map(tensor).collect();
        match self.work {
            ListWork::Reduce(operator) => {
                with_operator!(operator, OperatorOptions::default(), operator => {
                    reduce_list(operator, &tensors).record()
                })
            }
            ListWork::Scan(operator) => {
                with_operator!(operator, OperatorOptions::default(), operator => {
                    scan_list(operator, &tensors).over(0).record()
                })
            }
            ListWork::Clip { .. } => {
                reduce_list(NormL2, &tensors).apply(ClippedToNorm { max_norm: 1.0 }).record(true)
            }
        }
    }
}
