//! Time per call in a stream of back-to-back calls.

use std::{slice, time::Instant};

use reduce_kernels::{
    ReduceError,
    cubecl::{future, prelude::*, server::ServerError},
};

/// Number of samples. The median counts.
const SAMPLES: usize = 9;

/// A call that takes longer than this many seconds is sampled fewer times, one call each.
const SLOW_SECONDS: f64 = 0.03;

/// Samples of such a call.
const SLOW_SAMPLES: usize = 3;

/// Fewest calls of a sample, unless a call is slow.
const FEWEST_CALLS: usize = 5;

/// A sample is a long series of calls less one of this fraction of them.
const SHORT_SERIES: usize = 4;

/// Most calls of a sample.
const MOST_CALLS: usize = 10_000;

/// Why a call has no time.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The reduction was refused before anything was launched.
    #[error(transparent)]
    Refused(#[from] ReduceError),
    /// The device reported an error, or an earlier one: a kernel that failed to compile or to run.
    #[error("the device failed: {0}")]
    Device(#[from] ServerError),
    /// Another library, which is timed beside ours, refused the call or failed.
    #[error("{library}: {reason}")]
    Peer {
        /// The library.
        library: &'static str,
        /// What went wrong.
        reason: String,
    },
}

/// Median of some numbers; the upper one of two in the middle.
///
/// # Panics
///
/// If there are none.
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// A rate in 10⁹ bytes per second.
pub fn gigabytes_per_second(bytes: u64, microseconds: f64) -> f64 {
    bytes as f64 / microseconds / 1e3
}

/// Waits for everything enqueued so far.
///
/// # Errors
///
/// What the device reports.
pub fn wait(client: &Client) -> Result<(), MeasureError> {
    Ok(future::block_on(client.sync())?)
}

/// The number of calls that take about `sample_seconds`. `sample` returns the seconds per call in a
/// sample of the given number of calls. Few calls tell little, because waiting for the device takes
/// as long as many of them, and not always as long: some milliseconds on wgpu.
fn calls_to_fill<E>(
    sample_seconds: f64,
    sample: &mut impl FnMut(usize) -> Result<f64, E>,
) -> Result<usize, E> {
    let mut calls = FEWEST_CALLS;
    loop {
        let wanted = (sample_seconds / sample(calls)?) as usize;
        if wanted <= 2 * calls || calls == MOST_CALLS {
            return Ok(wanted.clamp(FEWEST_CALLS, MOST_CALLS));
        }
        calls = (2 * calls).min(MOST_CALLS);
    }
}

/// The seconds of each of so many calls. `series` returns those that a series of calls takes.
///
/// Of few short calls, a long series may happen to take no longer than a short one. Then they have
/// the time of the long series, with the wait at its end.
fn per_call<E>(calls: usize, series: &mut impl FnMut(usize) -> Result<f64, E>) -> Result<f64, E> {
    let long = series(calls)?;
    let short = calls / SHORT_SERIES;
    let more = if short > 0 { long - series(short)? } else { 0.0 };
    let each = if more > 0.0 { more / (calls - short) as f64 } else { long / calls as f64 };
    Ok(each)
}

/// Median time per call in microseconds, device and host together, over nine samples of about
/// `sample_seconds` each. If a call takes more than 0.03 s, it is the median of three calls. `call`
/// enqueues one call and should use another input each time.
///
/// A series of calls takes longer than its calls do, by the start of the first and by the wait for
/// the last: 0.28 ms through CubeCL 0.11 on an H200 with CUDA, which made calls of 133 us appear as
/// 136 in samples of 12 ms. So a sample is the difference of two series, which both take as much
/// longer. Peers are timed by events on the device, which have no such cost.
///
/// # Errors
///
/// The errors of `call` and of the device.
pub fn microseconds_per_call(
    client: &Client,
    sample_seconds: f64,
    call: impl FnMut() -> Result<(), MeasureError>,
) -> Result<f64, MeasureError> {
    microseconds_on_all(slice::from_ref(client), sample_seconds, call)
}

/// The time of [`microseconds_per_call`] for calls that run on the devices of all these clients: a
/// sample ends when the last device has finished.
///
/// # Errors
///
/// The errors of `call` and of the devices.
pub fn microseconds_on_all(
    clients: &[Client],
    sample_seconds: f64,
    mut call: impl FnMut() -> Result<(), MeasureError>,
) -> Result<f64, MeasureError> {
    let mut calls = None;
    let mut next = || sample(clients, sample_seconds, &mut calls, &mut call);
    let first = next()?;
    let mut samples = vec![first];
    let wanted = if first > SLOW_SECONDS * 1e6 { SLOW_SAMPLES } else { SAMPLES };
    while samples.len() < wanted {
        samples.push(next()?);
    }
    Ok(median(samples))
}

/// Microseconds per call in one sample of [`microseconds_per_call`], for comparisons that take
/// samples of several calls in turns. `calls` is the number of calls of an earlier sample of the
/// same call. If there is none, the first call, which may compile, counts in none.
///
/// # Errors
///
/// The errors of `call` and of the device.
pub fn sample_of_calls(
    client: &Client,
    sample_seconds: f64,
    calls: &mut Option<usize>,
    call: impl FnMut() -> Result<(), MeasureError>,
) -> Result<f64, MeasureError> {
    sample(slice::from_ref(client), sample_seconds, calls, call)
}

fn sample(
    clients: &[Client],
    sample_seconds: f64,
    calls: &mut Option<usize>,
    mut call: impl FnMut() -> Result<(), MeasureError>,
) -> Result<f64, MeasureError> {
    let mut series = |calls: usize| -> Result<f64, MeasureError> {
        let start = Instant::now();
        for _ in 0..calls {
            call()?;
        }
        clients.iter().try_for_each(wait)?;
        Ok(start.elapsed().as_secs_f64())
    };
    let of_sample = match *calls {
        Some(known) => known,
        None => {
            series(1)?;
            // One call may happen to be disturbed.
            let alone = series(1)?;
            if alone > SLOW_SECONDS && series(1)? > SLOW_SECONDS {
                *calls = Some(1);
                return Ok(alone * 1e6);
            }
            let mut of_series = |calls: usize| per_call(calls, &mut series);
            *calls.insert(calls_to_fill(sample_seconds, &mut of_series)?)
        }
    };
    Ok(per_call(of_sample, &mut series)? * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each series takes longer than its calls do is not taken for the calls' time.
    #[test]
    fn what_each_series_takes_longer_is_left_out() {
        for calls in [4, 5, 100, 9999] {
            let mut series = |calls: usize| Ok::<_, ()>(0.003 + 67e-6 * calls as f64);
            let each = per_call(calls, &mut series).unwrap();
            assert!((each - 67e-6).abs() < 1e-9, "{calls} calls: {each}");
        }
        let mut single = |calls: usize| Ok::<_, ()>(0.05 * calls as f64);
        assert_eq!(per_call(1, &mut single), Ok(0.05));
        let mut same = |_: usize| Ok::<_, ()>(0.08);
        assert_eq!(per_call(8, &mut same), Ok(0.01));
    }

    /// Waits that differ by milliseconds are not taken for the calls' own time.
    #[test]
    fn samples_are_filled_with_calls() {
        fn calls(per_call: f64, wait: f64) -> usize {
            let mut sample = |calls: usize| Ok::<_, ()>(per_call + wait / calls as f64);
            calls_to_fill(0.02, &mut sample).unwrap()
        }
        // 253 calls and such a wait take 20 ms.
        assert!((200..=300).contains(&calls(67e-6, 0.003)), "{}", calls(67e-6, 0.003));
        assert!((280..=300).contains(&calls(67e-6, 0.0)), "{}", calls(67e-6, 0.0));
        assert_eq!(calls(0.01, 0.0), FEWEST_CALLS);
        assert_eq!(calls(1e-7, 0.0), MOST_CALLS);
    }
}
