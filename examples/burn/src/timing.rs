//! Time per call in a stream of calls.

use std::time::Instant;

use burn_backend::ExecutionError;
use burn_tensor::Device;
use reduce_programs::median;

/// Number of samples. The median counts.
const SAMPLES: usize = 9;

/// How long a sample should take.
const SAMPLE_SECONDS: f64 = 0.05;

/// A call that takes longer than this many seconds is sampled three times, one call each.
const SLOW_SECONDS: f64 = 0.03;

/// Bytes of results that a sample may hold.
const KEPT_BYTES: usize = 2 << 30;

/// Most calls of a sample.
const MOST_CALLS: usize = 1000;

/// Median time per call in seconds, device and host together. The device is waited for before and
/// after a sample, not in each call.
///
/// The results of a sample, each of `result_bytes`, live until its end. Otherwise a fused backend
/// could leave out what nobody reads.
///
/// # Errors
///
/// What the device reports.
pub fn seconds_per_call<T>(
    device: &Device,
    result_bytes: usize,
    call: impl Fn() -> T,
) -> Result<f64, ExecutionError> {
    let sample = |calls: usize| -> Result<f64, ExecutionError> {
        device.sync()?;
        let start = Instant::now();
        let results: Vec<T> = (0..calls).map(|_| call()).collect();
        device.sync()?;
        let seconds = start.elapsed().as_secs_f64() / calls as f64;
        drop(results);
        Ok(seconds)
    };
    // The first calls compile, and find out what can be fused.
    sample(1)?;
    let most = (KEPT_BYTES / result_bytes.max(1)).clamp(1, MOST_CALLS);
    let (samples, calls) = match sample(1)? {
        slow if slow > SLOW_SECONDS => (3, 1),
        seconds => (SAMPLES, ((SAMPLE_SECONDS / seconds) as usize).clamp(1, most)),
    };
    let seconds = (0..samples).map(|_| sample(calls)).collect::<Result<Vec<f64>, _>>()?;
    Ok(median(seconds))
}

/// A time in the unit that suits it.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}
