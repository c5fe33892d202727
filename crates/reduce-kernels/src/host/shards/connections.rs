//! Which devices exchange data, and questions to devices that may never answer.

use core::time::Duration;
use std::{
    collections::HashSet,
    sync::mpsc::{Receiver, channel},
    thread,
    time::Instant,
};

use cubecl::device::DeviceId;

use crate::error::{ReduceError, ShardsError};

/// The longest that the devices of a set may take to connect. NCCL connects the GPUs of a machine
/// in some seconds. A process cannot use devices again that took longer, so the limit is some ten
/// times that.
pub(super) const LONGEST_CONNECTING: Duration = Duration::from_mins(1);

/// What this process knows of connections between devices.
#[derive(Default)]
pub(super) struct Connections {
    /// The sets of devices that have exchanged data.
    connected: HashSet<Vec<DeviceId>>,
    /// The devices of sets that failed to connect. Each may wait for the others for ever, so none
    /// of them can be in any set.
    failed: HashSet<DeviceId>,
}

impl Connections {
    /// Connects a set of devices with `connect`, once. If it fails after it has launched something,
    /// none of the devices is connected again.
    ///
    /// # Errors
    ///
    /// Those of `connect`, and [`ShardsError::NoNccl`] at once if one of the devices has failed to
    /// connect before.
    pub(super) fn ensure(
        &mut self,
        devices: Vec<DeviceId>,
        connect: impl FnOnce() -> Result<(), ReduceError>,
    ) -> Result<(), ReduceError> {
        if let Some(device) = devices.iter().find(|device| self.failed.contains(device)) {
            let reason = format!(
                "it did not connect device {device:?} with others before, and cannot use it any \
                 more in this process"
            );
            return Err(ShardsError::NoNccl { reason }.into());
        }
        if self.connected.contains(&devices) {
            return Ok(());
        }
        let connected = connect();
        match &connected {
            Ok(()) => {
                self.connected.insert(devices);
            }
            Err(error) if error.launched() => self.failed.extend(devices),
            Err(_) => {}
        }
        connected
    }
}

/// Asks each question on a thread of its own, and waits for all answers until `limit` has passed.
/// `None` stands for a question that was not answered: it takes longer, it panicked, or its thread
/// did not start.
///
/// Nothing ends a question that takes longer. Its thread is left behind, and its answer is dropped.
pub(super) fn answers_within<T: Send + 'static, Q: FnOnce() -> T + Send + 'static>(
    limit: Duration,
    questions: impl IntoIterator<Item = Q>,
) -> Vec<Option<T>> {
    let start = Instant::now();
    let ask = |question: Q| {
        let (answer, answers) = channel();
        // The receiver is gone if the limit has passed. A thread that does not start drops the
        // sender, which the receiver finds.
        let asking = move || drop(answer.send(question()));
        drop(thread::Builder::new().name("connecting".into()).spawn(asking));
        answers
    };
    let answers: Vec<Receiver<T>> = questions.into_iter().map(ask).collect();
    let left = || limit.saturating_sub(start.elapsed());
    answers.into_iter().map(|answers| answers.recv_timeout(left()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Reason;

    const LIMIT: Duration = Duration::from_millis(300);

    fn devices(indices: &[u32]) -> Vec<DeviceId> {
        indices.iter().map(|&index| DeviceId::new(0, index as _)).collect()
    }

    fn refused(error: &ReduceError) -> bool {
        matches!(error.reason(), Reason::Shards(ShardsError::NoNccl { .. }))
    }

    /// One device never answers, and another one panics: the wait ends, with the answers of the
    /// others, wherever in the list the silent one is.
    #[test]
    fn a_device_that_never_answers_is_not_waited_for() {
        for silent in 0..4 {
            let (never, waits) = channel::<()>();
            let waits = std::sync::Arc::new(std::sync::Mutex::new(waits));
            let questions = (0..4).map(|nth| {
                let waits = std::sync::Arc::clone(&waits);
                move || {
                    if nth == silent {
                        // It ends with the test, when the sender is dropped.
                        let _ = waits.lock().expect("one thread locks it").recv();
                    }
                    assert!(nth != (silent + 1) % 4, "device {nth} fails");
                    nth
                }
            });
            let start = Instant::now();
            let answers = answers_within(LIMIT, questions);
            assert!(start.elapsed() < 10 * LIMIT, "{:?}", start.elapsed());
            let expected = |nth| (nth != silent && nth != (silent + 1) % 4).then_some(nth);
            assert_eq!(answers, (0..4).map(expected).collect::<Vec<_>>());
            drop(never);
        }
    }

    /// The limit is that of all questions together, and answers in time are all there.
    #[test]
    fn silent_devices_share_the_limit() {
        let late = || thread::sleep(5 * LIMIT);
        let start = Instant::now();
        assert_eq!(answers_within(LIMIT, [late; 8]), [None; 8]);
        assert!(start.elapsed() < 4 * LIMIT, "{:?}", start.elapsed());
        let answers = answers_within(Duration::from_secs(60), (0..8).map(|nth| move || nth));
        assert_eq!(answers, (0..8).map(Some).collect::<Vec<_>>());
    }

    /// After devices have failed to connect, every call over one of them fails at once, and asks no
    /// device. Other devices are not affected.
    #[test]
    fn devices_that_did_not_connect_are_not_asked_again() {
        let mut connections = Connections::default();
        let failed = || {
            let reason = "nothing arrived".into();
            Err(ReduceError::from(ShardsError::NoNccl { reason }).after_launch())
        };
        let error = connections.ensure(devices(&[0, 1]), failed).unwrap_err();
        assert!(error.launched());
        for later in [&[0, 1][..], &[1, 2], &[0, 2, 3]] {
            let error = connections.ensure(devices(later), || panic!("asked")).unwrap_err();
            assert!(refused(&error) && !error.launched(), "{error}");
        }
        connections.ensure(devices(&[2, 3]), || Ok(())).unwrap();
        // Once is enough.
        connections.ensure(devices(&[2, 3]), || panic!("asked")).unwrap();
    }

    /// A failure before anything was launched hangs no device: the next call may try again.
    #[test]
    fn devices_without_memory_are_asked_again() {
        let mut connections = Connections::default();
        let full = || Err(Reason::Scratch { bytes: 8, reason: "full".into() }.into());
        connections.ensure(devices(&[0, 1]), full).unwrap_err();
        connections.ensure(devices(&[0, 1]), || Ok(())).unwrap();
    }
}
