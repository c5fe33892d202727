//! The error type of operator tests.

use core::fmt;

use reduce_planner::{Plan, ScheduleKind};

use super::{Law, Layout, Tolerance};
use crate::error::ReduceError;

/// Why an operator fails a test.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TestError {
    /// The test could not be run: types or parameters that the operator refuses, or a failing
    /// device.
    #[error(transparent)]
    Reduce(#[from] ReduceError),
    /// The operator breaks a law; the elements show it.
    #[error(
        "`{operator}`: {law}: result {nth} of {elements:?} is {expected} in one form, {found} in \
         another"
    )]
    BrokenLaw {
        /// Name of the operator.
        operator: String,
        /// The law.
        law: Law,
        /// Which of the operator's results, counted from 0.
        nth: usize,
        /// The triple of elements of each input.
        elements: Vec<[f32; 3]>,
        /// The result in one form.
        expected: f64,
        /// The result in the other.
        found: f64,
    },
    /// A plan was refused.
    #[error("{error}\n{run}")]
    Refused {
        /// What was run.
        run: Box<Run>,
        /// Why it was refused.
        error: Box<ReduceError>,
    },
    /// A result is not close to the reference.
    #[error(
        "result {nth} of output {output} is {found}, expected {expected} within {tolerance}\n{run}"
    )]
    WrongResult {
        /// What was run.
        run: Box<Run>,
        /// Which of the operator's results, counted from 0.
        nth: usize,
        /// Which element of that result, in row-major order.
        output: usize,
        /// What the device made.
        found: f64,
        /// What the reference made.
        expected: f64,
        /// How far apart they may be; the scale is the magnitude of `expected`.
        tolerance: Tolerance,
    },
    /// Memory that is not of the output was written.
    #[error("element {element} of the buffer of result {nth}, between outputs, was written\n{run}")]
    StrayWrite {
        /// What was run.
        run: Box<Run>,
        /// Which of the operator's results, counted from 0.
        nth: usize,
        /// Which element of the buffer.
        element: usize,
    },
    /// The planner can run a layout with a schedule, but no plan of the test has that schedule.
    #[error("`{operator}`: no plan of schedule `{schedule}` was tried on {layout}")]
    Untried {
        /// Name of the operator.
        operator: String,
        /// The schedule.
        schedule: ScheduleKind,
        /// The layout.
        layout: Box<Layout>,
    },
}

/// One run of an operator.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Run {
    /// Name of the operator.
    pub operator: String,
    /// What was reduced.
    pub layout: Layout,
    /// The plan.
    pub plan: Plan,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` of {}\n{}", self.operator, self.layout, self.plan)
    }
}
