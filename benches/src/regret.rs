//! How far the planner's choice is from the fastest plan that was measured.

use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    Device, ElementType, ReduceError, TensorDescription,
    by_name::{OperatorName, OperatorOptions, with_operator},
    planner::{Plan, Problem},
    reduce,
};
use serde::{Deserialize, Serialize};

use crate::{Case, Over};

/// A line of what `regret` measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The device of the cases that follow.
    Device {
        /// CubeCL's name of the runtime.
        runtime: String,
        /// The device as the planner sees it.
        device: Box<Device>,
    },
    /// The times of a case.
    Case(Measured),
}

/// The times of the plans of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The case.
    pub case: Case,
    /// Bytes that must move.
    pub bytes: u64,
    /// The plans, the chosen one first.
    pub tried: Vec<Tried>,
}

/// The time of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// The plan.
    pub plan: Plan,
    /// The same in words.
    pub plan_text: String,
    /// Time per call in a stream of back-to-back calls.
    pub microseconds: f64,
}

/// The canonical problem of a case.
///
/// # Errors
///
/// What the operator or the planner refuses.
pub fn problem(case: &Case) -> Result<Problem, ReduceError> {
    let input = TensorDescription::strided(case.element, case.shape(), case.strides());
    with_operator!(case.operator, OperatorOptions::default(), operator => {
        reduce(operator, &input).over(case.axes()).problem()
    })
}

/// Cases of all operators, of 1 MiB to 1 GiB, of one to four axes. The same seed makes the same
/// cases.
#[must_use]
pub fn random_cases(count: usize, seed: u64) -> Vec<Case> {
    use ElementType::{BF16, F16, F32, F64, I8, I32, U8};
    const ELEMENTS: [ElementType; 10] = [F32, F32, F32, F32, BF16, BF16, F16, F64, I32, U8];
    let mut random = StdRng::seed_from_u64(seed);
    let mut cases = Vec::with_capacity(count);
    while cases.len() < count {
        let operator = OperatorName::ALL[random.random_range(0..OperatorName::ALL.len())];
        let element = match ELEMENTS[random.random_range(0..ELEMENTS.len())] {
            U8 if random.random() => I8,
            element => element,
        };
        let log2 = random.random_range(20.0..30.0f64);
        let elements = log2.exp2() / element.bytes() as f64;
        let rank = random.random_range(1..=4usize);
        // Cuts between 0 and log2 of the elements, at random.
        let mut cuts: Vec<f64> = (1..rank).map(|_| random.random_range(0.0..1.0)).collect();
        cuts.sort_by(f64::total_cmp);
        cuts.push(1.0);
        let mut before = 0.0;
        let stored: Vec<usize> = cuts
            .iter()
            .map(|&cut| {
                let extent = elements.powf(cut - before);
                before = cut;
                // Half of all extents are round numbers.
                let extent = match random.random::<bool>() {
                    true => extent.log2().round().exp2(),
                    false => extent.round(),
                };
                extent.max(1.0) as usize
            })
            .collect();
        let axes: Vec<usize> = (0..rank).filter(|_| random.random()).collect();
        let over = if axes.len() == rank { Over::All } else { Over::Axes(axes.clone()) };
        let case = Case { operator, element, stored, over };
        let bytes = case.input_bytes();
        if !axes.is_empty() && (1 << 20..=1 << 30).contains(&bytes) && problem(&case).is_ok() {
            cases.push(case);
        }
    }
    cases
}
