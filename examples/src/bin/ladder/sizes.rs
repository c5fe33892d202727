//! The problems of a run: what the user asks for, or what suits the device.

use std::str::FromStr;

use clap::ValueEnum;
use reduce_kernels::{Device, ElementType};

use crate::{
    climb::Climber,
    data::WIDEST_LOAD,
    full,
    matrix::{self, Axis, Matrix},
    rank5,
    report::Ladder,
};

/// Most elements of an array: the kernels index with 32 bits, and step past the end.
const MOST_ELEMENTS: usize = 1 << 31;

/// Most elements of the full reduction, if the user asks for no other.
const FULL: usize = 1 << 30;

/// Rows of a wide matrix, columns of a tall one.
const SHORT_SIDE: usize = 256;

/// Elements of a matrix.
const MATRIX: usize = 1 << 26;

/// The matrices of the CubeCL book.
const BOOK: [Matrix; 2] =
    [Matrix { rows: 512, columns: 8192 }, Matrix { rows: 128, columns: 32768 }];

const RANK5: [usize; rank5::RANK] = [16, 32, 64, 32, 64];

/// Elements of every default on Mesa's software adapter.
const SOFTWARE: usize = 1 << 22;

/// A type of the full reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Summed {
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

impl From<Summed> for ElementType {
    fn from(summed: Summed) -> Self {
        match summed {
            Summed::I32 => ElementType::I32,
            Summed::U32 => ElementType::U32,
            Summed::I64 => ElementType::I64,
            Summed::U64 => ElementType::U64,
            Summed::F32 => ElementType::F32,
            Summed::F64 => ElementType::F64,
        }
    }
}

/// A part of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    Full,
    Matrices,
    Rows,
    Rank5,
}

/// Why a size or a type is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SizeError {
    #[error("`{0}` is no size: expected a number or a power of two such as 2^20")]
    Number(String),
    #[error("`{0}` is no time: expected a number above 0")]
    Time(String),
    #[error("`{text}` is no shape: expected {rank} sizes with x between them, such as {example}")]
    Shape { text: String, rank: usize, example: String },
    #[error("an array of {0} elements: expected 1 to {MOST_ELEMENTS}")]
    Elements(u128),
    #[error(
        "{elements} elements of {element} take {bytes} bytes, and a buffer here {most} at most"
    )]
    Buffer { elements: usize, element: ElementType, bytes: u64, most: u64 },
    #[error("the device has no {0}")]
    Lacking(ElementType),
}

/// A number, or a power of two as `2^20`.
///
/// # Errors
///
/// Other text, and numbers beyond 64 bits.
pub(crate) fn number(text: &str) -> Result<usize, SizeError> {
    let power = text.strip_prefix("2^").map(|exponent| {
        let exponent: u32 = exponent.parse().ok()?;
        1usize.checked_shl(exponent)
    });
    let number = power.unwrap_or_else(|| text.parse().ok());
    number.ok_or_else(|| SizeError::Number(text.into()))
}

/// A time above 0.
///
/// # Errors
///
/// Other text, and other numbers.
pub(crate) fn positive(text: &str) -> Result<f64, SizeError> {
    let time = text.parse().ok().filter(|time: &f64| time.is_finite() && *time > 0.0);
    time.ok_or_else(|| SizeError::Time(text.into()))
}

/// Extents with `x` between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape<const RANK: usize>(pub [usize; RANK]);

impl<const RANK: usize> FromStr for Shape<RANK> {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let extents = text.split('x').map(number).collect::<Result<Vec<_>, _>>()?;
        let extents = extents.try_into().map_err(|_| SizeError::Shape {
            text: text.into(),
            rank: RANK,
            example: ["2^10"; RANK].join("x"),
        })?;
        Ok(Self(extents))
    }
}

/// What the user said.
pub(crate) struct Wishes<'a> {
    pub types: &'a [Summed],
    pub elements: Option<usize>,
    pub matrices: Option<&'a [Shape<2>]>,
    pub rows: Option<&'a [Shape<2>]>,
    pub rank5: Option<Shape<{ rank5::RANK }>>,
    /// Empty for all.
    pub only: &'a [Part],
}

/// The problems of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    full: Vec<(Summed, usize)>,
    matrices: Vec<(Matrix, Axis)>,
    rank5: Option<[usize; rank5::RANK]>,
}

impl Sizes {
    /// What is asked for, or what suits a device whose buffers hold `page` bytes.
    ///
    /// # Errors
    ///
    /// Arrays that no buffer holds, or that are empty, and types that the rungs or the device lack.
    pub(crate) fn new(
        wishes: &Wishes<'_>,
        device: &Device,
        page: u64,
        software: bool,
    ) -> Result<Self, SizeError> {
        let wanted = |part| wishes.only.is_empty() || wishes.only.contains(&part);
        let mut full = Vec::new();
        for &summed in wishes.types.iter().filter(|_| wanted(Part::Full)) {
            let fitting = (page / WIDEST_LOAD as u64) as usize * WIDEST_LOAD
                / ElementType::from(summed).bytes();
            let usual = FULL.min(if software { SOFTWARE } else { fitting });
            full.push((summed, wishes.elements.unwrap_or(usual)));
        }
        let mut matrices = Vec::new();
        if wanted(Part::Matrices) {
            let long_side = if software { SOFTWARE } else { MATRIX } / SHORT_SIDE;
            let usual = [Shape([SHORT_SIDE, long_side]), Shape([long_side, SHORT_SIDE])];
            for &Shape([rows, columns]) in wishes.matrices.unwrap_or(&usual) {
                let matrix = Matrix { rows, columns };
                matrices.extend(Axis::ALL.map(|axis| (matrix, axis)));
            }
        }
        if wanted(Part::Rows) {
            let usual = BOOK.map(|matrix| Shape([matrix.rows, matrix.columns]));
            for &Shape([rows, columns]) in wishes.rows.unwrap_or(&usual) {
                matrices.push((Matrix { rows, columns }, Axis::Rows));
            }
        }
        let rank5 = wanted(Part::Rank5).then(|| match wishes.rank5 {
            Some(Shape(shape)) => shape,
            None if software => RANK5.map(|extent| extent / 4),
            None => RANK5,
        });
        let sizes = Self { full, matrices, rank5 };
        sizes.check(device, page)?;
        Ok(sizes)
    }

    fn check(&self, device: &Device, page: u64) -> Result<(), SizeError> {
        for (element, extents) in self.arrays() {
            let elements =
                extents.iter().fold(1, |all: u128, &extent| all.saturating_mul(extent as u128));
            if !(1..=MOST_ELEMENTS as u128).contains(&elements) {
                return Err(SizeError::Elements(elements));
            }
            let elements = elements as usize;
            let bytes = (elements * element.bytes()).next_multiple_of(WIDEST_LOAD) as u64;
            if bytes > page {
                return Err(SizeError::Buffer { elements, element, bytes, most: page });
            }
            if !device.has(element) {
                return Err(SizeError::Lacking(element));
            }
        }
        Ok(())
    }

    /// Types and extents of the arrays.
    fn arrays(&self) -> Vec<(ElementType, Vec<usize>)> {
        let full = self.full.iter().map(|&(summed, length)| (summed.into(), vec![length]));
        let matrices = self.matrices.iter().map(|(matrix, _)| vec![matrix.rows, matrix.columns]);
        let rank5 = self.rank5.iter().map(|shape| shape.to_vec());
        full.chain(matrices.chain(rank5).map(|shape| (ElementType::F32, shape))).collect()
    }

    /// Bytes of the largest array.
    pub(crate) fn most_bytes(&self) -> u64 {
        let bytes = |(element, extents): (ElementType, Vec<usize>)| {
            (extents.iter().product::<usize>() * element.bytes()) as u64
        };
        self.arrays().into_iter().map(bytes).max().expect("a run has an array")
    }

    /// How many rungs there are.
    pub(crate) fn rungs(&self) -> usize {
        self.full.len() * full::Rung::ALL.len()
            + self.matrices.iter().map(|&(_, axis)| matrix::Rung::along(axis).len()).sum::<usize>()
            + self.rank5.map_or(0, |_| rank5::RUNGS.len())
    }

    /// Climbs all ladders.
    pub(crate) fn climb(&self, climber: &Climber<'_>) -> Vec<Ladder> {
        let full = self.full.iter().map(|&(summed, length)| match summed {
            Summed::I32 => climber.full::<i32>(length),
            Summed::U32 => climber.full::<u32>(length),
            Summed::I64 => climber.full::<i64>(length),
            Summed::U64 => climber.full::<u64>(length),
            Summed::F32 => climber.full::<f32>(length),
            Summed::F64 => climber.full::<f64>(length),
        });
        let matrices =
            self.matrices.iter().map(|&(matrix, axis)| climber.matrix::<f32>(matrix, axis));
        let rank5 = self.rank5.iter().map(|&shape| climber.rank5::<f32>(shape));
        full.chain(matrices).chain(rank5).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WISHES: Wishes<'_> = Wishes {
        types: &[Summed::I32, Summed::F32],
        elements: None,
        matrices: None,
        rows: None,
        rank5: None,
        only: &[],
    };

    /// The sizes on a large GPU, what fits where buffers are small, little on the software
    /// adapter.
    #[test]
    fn sizes_follow_the_device() {
        let device = Device::h200();
        let full = |page, software| {
            let sizes = Sizes::new(&WISHES, &device, page, software).unwrap();
            sizes.full.iter().map(|&(_, length)| length).collect::<Vec<_>>()
        };
        assert_eq!(full(35 << 30, false), [1 << 30; 2]);
        assert_eq!(full(1 << 32, false), [1 << 30; 2]);
        assert_eq!(full((1 << 32) - 4, false), [(1 << 30) - 4; 2]);
        assert_eq!(full(1 << 31, true), [1 << 22; 2]);
        let sizes = Sizes::new(&WISHES, &device, 35 << 30, false).unwrap();
        let matrices: Vec<_> = sizes
            .matrices
            .iter()
            .map(|&(Matrix { rows, columns }, axis)| (rows, columns, axis as usize))
            .collect();
        let expected = [
            (256, 1 << 18, 0),
            (256, 1 << 18, 1),
            (1 << 18, 256, 0),
            (1 << 18, 256, 1),
            (512, 8192, 1),
            (128, 32768, 1),
        ];
        assert_eq!(matrices, expected);
        assert_eq!(sizes.rank5, Some([16, 32, 64, 32, 64]));
        assert_eq!((sizes.most_bytes(), sizes.rungs()), (1 << 32, 2 * 16 + 2 * 2 + 4 * 5 + 4));
    }

    /// A part leaves the others out, and a wish replaces the default.
    #[test]
    fn wishes_are_granted() {
        let rows = [Shape([3, 5])];
        let wishes = Wishes { rows: Some(&rows), only: &[Part::Rows], ..WISHES };
        let sizes = Sizes::new(&wishes, &Device::h200(), 1 << 30, false).unwrap();
        let matrices = vec![(Matrix { rows: 3, columns: 5 }, Axis::Rows)];
        assert_eq!(sizes, Sizes { full: vec![], matrices, rank5: None });
    }

    /// Refused with what is wrong and what would be right.
    #[test]
    fn what_does_not_fit_is_refused() {
        let mut device = Device::h200();
        device.elements = vec![ElementType::F32, ElementType::I32];
        let refusal = |wishes: &Wishes<'_>| {
            Sizes::new(wishes, &device, 1 << 28, false).unwrap_err().to_string()
        };
        let elements = Some((1 << 26) + 1);
        let expected = "67108865 elements of i32 take 268435472 bytes, and a buffer here 268435456 at \
                        most";
        assert_eq!(refusal(&Wishes { elements, ..WISHES }), expected);
        let wishes = Wishes { types: &[Summed::F64], ..WISHES };
        assert_eq!(refusal(&wishes), "the device has no f64");
    }

    /// Numbers, powers of two, shapes and times, and what is none of them.
    #[test]
    fn numbers_and_shapes_are_read() {
        assert_eq!(number("2^18"), Ok(1 << 18));
        assert_eq!(number("100"), Ok(100));
        assert_eq!("256x2^18".parse(), Ok(Shape([256, 1 << 18])));
        for text in ["", "2^", "2^64", "-1", "x"] {
            assert_eq!(number(text), Err(SizeError::Number(text.into())));
        }
        assert!("5".parse::<Shape<2>>().is_err());
        assert_eq!(positive("0.5"), Ok(0.5));
        for text in ["0", "-1", "nan", "inf", "soon"] {
            assert_eq!(positive(text), Err(SizeError::Time(text.into())));
        }
    }
}
