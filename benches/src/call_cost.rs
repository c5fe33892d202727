//! The cost of a call on the host, compared with CubeCL's own launch.

use std::time::Instant;

use reduce_kernels::cubecl::{self, prelude::*, std::tensor::TensorHandle};
use reduce_programs::{MeasureError, microseconds_per_call, wait};

use crate::{Case, inputs, run};

/// Shapes that are new in each call: small, so that the host sets the time.
const NEW_SHAPES: usize = 30_000;

/// Rows of the first of them.
const FEWEST_ROWS: usize = 64;

/// Calls after which the device catches up, which counts in none of them. With more of them, calls
/// wait until CubeCL has room for another launch.
const CALLS_IN_FLIGHT: usize = 32;

/// How long calls keep the calling thread, each alone, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallingThread {
    /// Half of the calls take no longer.
    pub median: f64,
    /// 99 of 100 calls take no longer.
    pub percentile_99: f64,
    /// The longest call.
    pub slowest: f64,
}

/// Microseconds per call in a stream of calls that take the device less than the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallCost {
    /// An empty kernel with an input and a new output: CubeCL alone.
    pub bare_launch: f64,
    /// A sum of a shape that was seen before.
    pub seen_shape: f64,
    /// A sum of a shape that was never seen, through a kernel that was compiled before.
    pub new_shape: f64,
    /// The calling thread in empty kernels.
    pub bare_calls: CallingThread,
    /// The calling thread in sums of a shape that was seen before.
    pub seen_calls: CallingThread,
    /// The calling thread in sums of shapes that were never seen.
    pub new_calls: CallingThread,
}

#[cube(launch_unchecked)]
fn idle(input: &[f32], output: &mut [f32]) {
    if UNIT_POS == 0 {
        output[0] = input[0];
    }
}

impl CallCost {
    /// Measures all of them.
    ///
    /// # Errors
    ///
    /// What the library refuses and what the device reports.
    pub fn measure(client: &Client, sample_seconds: f64) -> Result<Self, MeasureError> {
        let most = FEWEST_ROWS + 2 * NEW_SHAPES;
        let case: Case = format!("sum f32 [{most}, 32] axis 1").parse().expect("a case");
        let matrix = inputs(client, &case, Some(0)).remove(0);
        let bare = || {
            let output = client.empty(4);
            // SAFETY: both buffers hold the one element that the kernel touches.
            unsafe {
                idle::launch_unchecked(
                    client,
                    CubeCount::new_1d(1),
                    CubeDim::new_1d(32),
                    BufferArg::from_raw_parts(matrix.handle.clone(), 1),
                    BufferArg::from_raw_parts(output, 1),
                );
            }
            Ok(())
        };
        let bare_launch = microseconds_per_call(client, sample_seconds, bare)?;
        let rows = |rows: usize| {
            let case: Case = format!("sum f32 [{rows}, 32] axis 1").parse().expect("a case");
            let handle = matrix.handle.clone();
            (TensorHandle::new_contiguous([rows, 32], handle, matrix.dtype), case)
        };
        let sum = |(input, case): &(TensorHandle, Case)| {
            run(client, case, input, None)?;
            Ok(())
        };
        let seen = rows(FEWEST_ROWS);
        let seen_shape = microseconds_per_call(client, sample_seconds, || sum(&seen))?;
        // Shapes are made beforehand; each is summed once.
        let mut shapes = (FEWEST_ROWS..).map(rows).take(2 * NEW_SHAPES);
        let first: Vec<_> = shapes.by_ref().take(NEW_SHAPES).collect();
        let mut first = first.into_iter().cycle();
        let new_shape = microseconds_per_call(client, sample_seconds, || {
            sum(&first.next().expect("there is a shape"))
        })?;
        let bare_calls = calling_thread(client, NEW_SHAPES, bare)?;
        let seen_calls = calling_thread(client, NEW_SHAPES, || sum(&seen))?;
        let mut others = shapes.collect::<Vec<_>>().into_iter();
        let new_calls =
            calling_thread(client, NEW_SHAPES, || sum(&others.next().expect("there is a shape")))?;
        Ok(Self { bare_launch, seen_shape, new_shape, bare_calls, seen_calls, new_calls })
    }
}

/// Times each of so many calls.
fn calling_thread(
    client: &Client,
    calls: usize,
    mut call: impl FnMut() -> Result<(), MeasureError>,
) -> Result<CallingThread, MeasureError> {
    let mut times = Vec::with_capacity(calls);
    while times.len() < calls {
        for _ in 0..CALLS_IN_FLIGHT.min(calls - times.len()) {
            let start = Instant::now();
            call()?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        wait(client)?;
    }
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    Ok(CallingThread { median: at(50), percentile_99: at(99), slowest: at(100) })
}
