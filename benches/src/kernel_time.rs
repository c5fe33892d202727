//! The time that a call takes on the device alone.

use std::{
    fmt,
    time::{Duration, Instant},
};

use reduce_kernels::cubecl::{self, future, prelude::*, server::Handle};
use reduce_programs::{MeasureError, median, wait};

/// Pairs of samples, with calls and without.
const PAIRS: usize = 7;

/// Seconds that the calls of one sample should keep the device busy.
const SAMPLE_SECONDS: f64 = 0.003;

/// Fewest calls of a sample. With fewer, the overhead of the host would distort the result.
const FEWEST_CALLS: usize = 4;

/// Most calls of a sample. CubeCL 0.11 on CUDA waits for the device after 64 uploads of launch
/// arguments, and on wgpu after 512 launches; a call behind such a wait would find the device idle.
const MOST_CALLS: usize = 48;

/// Seconds that the delay lasts beyond twice what the host needs.
const MARGIN_SECONDS: f64 = 2e-4;

/// Most iterations of one launch: Mesa's software adapter ends loops after 65535 steps.
const MOST_ITERATIONS: u32 = 1 << 15;

#[cube(launch_unchecked)]
fn spin(output: &mut [u32], iterations: u32) {
    // Each step needs the one before, and no compiler knows the last in advance (Marsaglia's
    // xorshift).
    let mut state = 1u32;
    for _ in 0..iterations {
        state ^= state << 13u32;
        state ^= state >> 17u32;
        state ^= state << 5u32;
    }
    output[0] = state;
}

/// A kernel that keeps the device busy for a chosen time. Calls that are enqueued meanwhile then
/// run back to back, however long the host takes to enqueue them.
///
/// CubeCL's own `client.profile` times a window of the stream. Where the device waits for the host,
/// as it does between small reductions, the window holds these gaps too.
pub struct Delay<'a> {
    client: &'a Client,
    sink: Handle,
    iterations_per_second: f64,
}

impl fmt::Debug for Delay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client: _, sink: _, iterations_per_second } = self;
        f.debug_struct("Delay")
            .field("iterations_per_second", iterations_per_second)
            .finish_non_exhaustive()
    }
}

impl<'a> Delay<'a> {
    /// Measures how fast the device spins.
    ///
    /// # Errors
    ///
    /// What the device reports.
    pub fn calibrate(client: &'a Client) -> Result<Self, MeasureError> {
        const LONG_ENOUGH: Duration = Duration::from_millis(3);
        let sink = client.empty(size_of::<u32>());
        let mut delay = Self { client, sink, iterations_per_second: 1.0 };
        delay.enqueue_iterations(1);
        wait(client)?;
        let mut iterations = 1 << 12;
        loop {
            let start = Instant::now();
            delay.enqueue_iterations(iterations);
            wait(client)?;
            let took = start.elapsed();
            if took >= LONG_ENOUGH || iterations >= 1 << 22 {
                delay.iterations_per_second = f64::from(iterations) / took.as_secs_f64();
                return Ok(delay);
            }
            iterations *= 2;
        }
    }

    fn enqueue(&self, seconds: f64) {
        self.enqueue_iterations((self.iterations_per_second * seconds) as u32);
    }

    fn enqueue_iterations(&self, iterations: u32) {
        let mut left = iterations;
        while left > 0 {
            let now = left.min(MOST_ITERATIONS);
            // SAFETY: the kernel writes the one element that the buffer holds.
            unsafe {
                spin::launch_unchecked(
                    self.client,
                    CubeCount::new_single(),
                    CubeDim::new_single(),
                    BufferArg::from_raw_parts(self.sink.clone(), 1),
                    now,
                );
            }
            left -= now;
        }
    }

    /// Enqueues a delay, then `calls` calls. Seconds until all were enqueued, and until all had
    /// run.
    fn sample(
        &self,
        seconds: f64,
        calls: usize,
        call: &mut impl FnMut() -> Result<(), MeasureError>,
    ) -> Result<(f64, f64), MeasureError> {
        let start = Instant::now();
        self.enqueue(seconds);
        // wgpu collects several launches before it submits them.
        self.client.flush()?;
        for _ in 0..calls {
            call()?;
        }
        // CubeCL submits when the future is made, and waits when it is polled.
        let done = self.client.sync();
        let enqueued = start.elapsed().as_secs_f64();
        future::block_on(done)?;
        Ok((enqueued, start.elapsed().as_secs_f64()))
    }

    /// Microseconds of device time per call.
    ///
    /// It is the time that some calls add to a delay that hides the host's work for them, divided
    /// by their number. The result is the median of up to seven such differences: those in which
    /// the delay did hide the host's work, if they are more than half. It includes every launch of
    /// a call and the gaps that the device leaves between launches, and nothing of the host. It is
    /// `None` if the host's work could not be hidden, as on Mesa's software adapter, which runs
    /// kernels while they are submitted.
    ///
    /// `call` enqueues one call and should use another input each time. `microseconds_per_call` is
    /// about what it takes in a stream.
    ///
    /// # Errors
    ///
    /// The errors of `call` and of the device.
    pub fn kernel_microseconds(
        &self,
        microseconds_per_call: f64,
        mut call: impl FnMut() -> Result<(), MeasureError>,
    ) -> Result<Option<f64>, MeasureError> {
        let wanted = SAMPLE_SECONDS * 1e6 / microseconds_per_call;
        let mut calls = (wanted as usize).clamp(FEWEST_CALLS, MOST_CALLS);
        loop {
            let (host, _) = self.sample(0.0, calls, &mut call)?;
            let seconds = 2.0 * host + MARGIN_SECONDS;
            let mut differences = Vec::with_capacity(PAIRS);
            for _ in 0..PAIRS {
                let (_, alone) = self.sample(seconds, 0, &mut call)?;
                let (enqueued, both) = self.sample(seconds, calls, &mut call)?;
                if enqueued < 0.8 * alone {
                    differences.push(both - alone);
                }
            }
            if differences.len() > PAIRS / 2 {
                return Ok(Some(median(differences).max(0.0) / calls as f64 * 1e6));
            }
            if calls == FEWEST_CALLS {
                return Ok(None);
            }
            calls = (calls / 2).max(FEWEST_CALLS);
        }
    }
}
