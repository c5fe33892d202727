//! The figures of a tensor and of a checkpoint, from what the device found.

use std::cmp::Ordering;

use reduce_examples::Number;
use reduce_kernels::ElementType;
use serde::Serialize;

/// The figures of one tensor, or of all. Those that are undefined without elements are `None` if
/// there are none.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    pub mean: Option<Number>,
    pub std: Option<Number>,
    pub min: Option<Number>,
    pub max: Option<Number>,
    pub max_magnitude: Option<Number>,
    pub zeros_share: Option<f64>,
    pub nans: u64,
    pub infinities: u64,
}

/// The figures of all tensors together that have some.
#[derive(Debug, Serialize)]
pub(crate) struct Total {
    /// Number of tensors with figures.
    pub tensors: usize,
    /// Number of their elements.
    pub elements: u64,
    /// Their type, if all have the same.
    pub dtype: Option<String>,
    #[serde(flatten)]
    pub figures: Figures,
}

/// What the device found in one or more elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Findings {
    pub elements: u64,
    /// The mean, if all elements are finite, otherwise any value.
    pub mean: f64,
    /// The standard deviation, if all elements are finite, otherwise any value.
    pub std: f64,
    pub min: Number,
    pub max: Number,
    pub zeros: u64,
    pub nans: u64,
    pub infinities: u64,
}

impl Figures {
    /// The figures of no elements.
    pub(crate) fn of_nothing() -> Self {
        Self {
            mean: None,
            std: None,
            min: None,
            max: None,
            max_magnitude: None,
            zeros_share: None,
            nans: 0,
            infinities: 0,
        }
    }
}

impl Findings {
    /// The figures of elements of this type. `None` stands for several types: the extrema are then
    /// floats.
    pub(crate) fn figures(self, element: Option<ElementType>) -> Figures {
        let Self { elements, mean, std, min, max, zeros, nans, infinities } = self;
        let extremum = |value: Number| match (element, value) {
            (None, value) => Number::Float(value.to_f64()),
            // A device that was given bools as numbers returns them as numbers.
            (Some(ElementType::Bool), Number::Unsigned(value)) => Number::Bool(value != 0),
            (Some(_), value) => value,
        };
        let (min, max) = (extremum(min), extremum(max));
        // Some elements are not finite. The mean is then infinite, or NaN if there are infinities
        // of both signs or a NaN. The sum of the extrema is the same. Distances from such a mean
        // are not finite, so the deviation is NaN.
        let (mean, std) = match nans + infinities {
            0 => (mean, std),
            _ => (min.to_f64() + max.to_f64(), f64::NAN),
        };
        let most = match (min.magnitude(), max.magnitude()) {
            (Number::Float(low), Number::Float(high)) if low > high => Number::Float(low),
            (Number::Unsigned(low), Number::Unsigned(high)) => Number::Unsigned(low.max(high)),
            (_, high) => high,
        };
        Figures {
            mean: Some(Number::Float(mean)),
            std: Some(Number::Float(std)),
            min: Some(min),
            max: Some(max),
            max_magnitude: Some(most),
            zeros_share: Some(zeros as f64 / elements as f64),
            nans,
            infinities,
        }
    }

    /// What these elements and others hold together. Counts and extrema are exact; mean and
    /// deviation follow Chan, Golub and LeVeque's formula.
    pub(crate) fn merged(self, other: Self) -> Self {
        let elements = self.elements + other.elements;
        let share = |part: u64| part as f64 / elements as f64;
        let (left, right) = (share(self.elements), share(other.elements));
        let apart = other.mean - self.mean;
        // The squares of the terms may overflow or vanish where the deviation does not. `hypot`
        // avoids them.
        let within = (self.std * left.sqrt()).hypot(other.std * right.sqrt());
        Self {
            elements,
            mean: self.mean + apart * right,
            std: within.hypot(apart * (left * right).sqrt()),
            min: extremum(Ordering::Less, self.min, other.min),
            max: extremum(Ordering::Greater, self.max, other.max),
            zeros: self.zeros + other.zeros,
            nans: self.nans + other.nans,
            infinities: self.infinities + other.infinities,
        }
    }
}

impl Total {
    /// The figures of tensors with these types, in all of which the device found `findings`: `None`
    /// if they have no elements.
    pub(crate) fn new(types: &[ElementType], findings: Option<Findings>) -> Self {
        let same = types.first().copied().filter(|first| types.iter().all(|next| next == first));
        Self {
            tensors: types.len(),
            elements: findings.map_or(0, |findings| findings.elements),
            dtype: same.map(|element| element.to_string()),
            figures: findings.map_or_else(Figures::of_nothing, |all| all.figures(same)),
        }
    }
}

/// The one that is `wanted` compared with the other; NaN if one is. Numbers of two kinds are
/// compared as floats.
fn extremum(wanted: Ordering, left: Number, right: Number) -> Number {
    let order = match (left, right) {
        (Number::Float(left), Number::Float(right)) => left.partial_cmp(&right),
        (Number::Signed(left), Number::Signed(right)) => Some(left.cmp(&right)),
        (Number::Unsigned(left), Number::Unsigned(right)) => Some(left.cmp(&right)),
        (Number::Bool(left), Number::Bool(right)) => Some(left.cmp(&right)),
        (left, right) => {
            let [left, right] = [left, right].map(|number| Number::Float(number.to_f64()));
            return extremum(wanted, left, right);
        }
    };
    match order {
        None => Number::Float(f64::NAN),
        Some(order) if order == wanted => left,
        Some(_) => right,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Findings {
        let count = |wanted: fn(&f64) -> bool| values.iter().filter(|&value| wanted(value)).count();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        // Squares of the values themselves may overflow or vanish.
        let scale = values.iter().fold(f64::MIN_POSITIVE, |most, value| most.max(value.abs()));
        let square = |value: &f64| ((value - mean) / scale).powi(2);
        let variance = values.iter().map(square).sum::<f64>() / values.len() as f64;
        let number = |value: f64| Number::Float(value);
        Findings {
            elements: values.len() as u64,
            mean,
            std: variance.sqrt() * scale,
            min: number(values.iter().copied().fold(f64::INFINITY, f64::min)),
            max: number(values.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
            zeros: count(|&value| value == 0.0) as u64,
            nans: count(|value| value.is_nan()) as u64,
            infinities: count(|value| value.is_infinite()) as u64,
        }
    }

    /// Two parts of any sizes give what the whole gives, also where squares overflow or vanish.
    #[test]
    fn parts_merge_to_the_whole() {
        let values = [3.0, -1.5, 0.0, 8.0, 8.0, 2.5, 100.0, -7.0];
        for scale in [1.0, 1e-200, 1e200] {
            let values = values.map(|value| value * scale);
            let whole = of(&values);
            for split in 1..values.len() {
                let (left, right) = values.split_at(split);
                let merged = of(left).merged(of(right));
                assert!((merged.mean - whole.mean).abs() <= 1e-14 * whole.std, "{merged:?}");
                assert!((merged.std - whole.std).abs() <= 1e-14 * whole.std, "{merged:?}");
                let exact = Findings { mean: whole.mean, std: whole.std, ..merged };
                assert_eq!(exact, whole);
            }
        }
    }

    /// Extrema of one kind keep it to the last digit, those of two kinds are floats, and a NaN
    /// wins.
    #[test]
    fn extrema_keep_their_kind() {
        let (less, greater) = (Ordering::Less, Ordering::Greater);
        let [low, high] = [i64::MAX - 1, i64::MAX].map(Number::Signed);
        assert_eq!([extremum(less, high, low), extremum(greater, high, low)], [low, high]);
        let [low, high] = [false, true].map(Number::Bool);
        assert_eq!([extremum(less, high, low), extremum(greater, low, high)], [low, high]);
        let two = extremum(less, Number::Signed(-3), Number::Unsigned(7));
        assert_eq!(two, Number::Float(-3.0));
        for (left, right) in [(f64::NAN, 1.0), (1.0, f64::NAN)] {
            let most = extremum(greater, Number::Float(left), Number::Float(right));
            assert!(most.to_f64().is_nan());
        }
    }

    /// A total has a type if all tensors have it, and the extrema of several types are floats.
    #[test]
    fn totals_of_several_types_have_none() {
        use ElementType::{I32, U8};
        let extrema = (Number::Signed(-3), Number::Signed(7));
        let findings = Findings { min: extrema.0, max: extrema.1, ..of(&[-3.0, 7.0]) };
        let same = Total::new(&[I32, I32], Some(findings));
        assert_eq!((same.tensors, same.elements, same.dtype.as_deref()), (2, 2, Some("i32")));
        assert_eq!(same.figures.min, Some(Number::Signed(-3)));
        let several = Total::new(&[I32, U8], Some(findings));
        assert_eq!((several.tensors, several.dtype), (2, None));
        assert_eq!(several.figures.max_magnitude, Some(Number::Float(7.0)));
        let none = Total::new(&[], None);
        assert_eq!((none.tensors, none.elements, none.figures.mean), (0, 0, None));
    }
}
