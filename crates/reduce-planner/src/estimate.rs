//! What a plan should take, term by term. `choose/cost.rs` computes it.

use core::fmt;

/// The expected time of a plan for one call in a stream of calls, term by term, in nanoseconds.
///
/// The time is `max(launch, gap + together + merge)`, where `together` is the norm of `waiting`,
/// `transfer / locality` and `issue` that [`Profile::overlap_tenths`](crate::Profile) says: the
/// longest of three limits that overlap, and somewhat more where they are close. If there are few
/// waves, `together` is that norm of the full waves and that of the last one.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Estimate {
    /// Host time of the launches.
    pub launch_ns: f64,
    /// Device time between launches.
    pub gap_ns: f64,
    /// Time of the cubes, one after the other in each place on the device, if memory and arithmetic
    /// were infinitely fast: they start, wait for each round of loads, and combine.
    pub waiting_ns: f64,
    /// Time of moving each distinct byte once at the bandwidth that the cubes reach, at full
    /// locality.
    pub transfer_ns: f64,
    /// Time of issuing the instructions.
    pub issue_ns: f64,
    /// The three above together.
    pub together_ns: f64,
    /// Time of publishing and merging partials between cubes.
    pub merge_ns: f64,
    /// Share of the memory's rate that the access pattern leaves, from 0 to 1.
    pub locality: f64,
    /// Rounds of loads that a unit waits for in each cube, the last of which may not be full.
    pub rounds: u64,
    /// Cubes that reside on a multiprocessor together, as their units, registers and shared memory
    /// allow.
    pub resident_cubes: u32,
    /// How many times the cubes fill the device.
    pub waves: f64,
}

/// The term of an [`Estimate`] that takes the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Limit {
    /// Host time of the launches.
    Launch,
    /// Too few loads are in flight to draw the bandwidth, or cubes are too short.
    Waiting,
    /// The bandwidth of the memory.
    Bandwidth,
    /// The instructions.
    Issue,
    /// Publishing and merging partials.
    Merge,
}

impl Estimate {
    /// An estimate of launches that follow each other and move all bytes at one rate.
    pub(crate) const fn streamed(
        launch_ns: f64,
        gap_ns: f64,
        waiting_ns: f64,
        transfer_ns: f64,
        locality: f64,
    ) -> Self {
        Self {
            launch_ns,
            gap_ns,
            waiting_ns,
            transfer_ns,
            issue_ns: 0.0,
            together_ns: waiting_ns + transfer_ns / locality,
            merge_ns: 0.0,
            locality,
            rounds: 1,
            resident_cubes: 1,
            waves: 1.0,
        }
    }

    /// The estimate of these launches and of others after them. Cubes and waves are those of what
    /// takes longer.
    pub(crate) fn then(&self, next: &Self) -> Self {
        let longer = if self.device_ns() < next.device_ns() { next } else { self };
        let transfer_ns = self.transfer_ns + next.transfer_ns;
        let memory_ns = self.memory_ns() + next.memory_ns();
        Self {
            launch_ns: self.launch_ns + next.launch_ns,
            gap_ns: self.gap_ns + next.gap_ns,
            waiting_ns: self.waiting_ns + next.waiting_ns,
            transfer_ns,
            issue_ns: self.issue_ns + next.issue_ns,
            together_ns: self.together_ns + next.together_ns,
            merge_ns: self.merge_ns + next.merge_ns,
            locality: if memory_ns > 0.0 { transfer_ns / memory_ns } else { 1.0 },
            rounds: self.rounds + next.rounds,
            resident_cubes: longer.resident_cubes,
            waves: longer.waves,
        }
    }

    /// Time of moving the bytes with the locality of the access.
    #[must_use]
    pub fn memory_ns(&self) -> f64 {
        self.transfer_ns / self.locality
    }

    /// The expected time in nanoseconds.
    #[must_use]
    pub fn total_ns(&self) -> f64 {
        self.launch_ns.max(self.device_ns())
    }

    /// The expected time of the device alone, in nanoseconds.
    #[must_use]
    pub fn device_ns(&self) -> f64 {
        self.gap_ns + self.together_ns + self.merge_ns
    }

    /// The expected time of a call that no other call follows, in nanoseconds. Candidates are
    /// ranked by it, with a margin for those that the rules give: the host hides nothing of their
    /// time.
    #[must_use]
    pub fn alone_ns(&self) -> f64 {
        self.launch_ns + self.device_ns()
    }

    /// The expected time in microseconds.
    #[must_use]
    pub fn microseconds(&self) -> f64 {
        self.total_ns() * 1e-3
    }

    /// The term that takes the longest.
    #[must_use]
    pub fn limit(&self) -> Limit {
        if self.launch_ns >= self.device_ns() {
            return Limit::Launch;
        }
        let mut longest = (self.memory_ns(), Limit::Bandwidth);
        for term in [
            (self.waiting_ns, Limit::Waiting),
            (self.issue_ns, Limit::Issue),
            (self.merge_ns, Limit::Merge),
        ] {
            if term.0 > longest.0 {
                longest = term;
            }
        }
        longest.1
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Limit::Launch => "launches",
            Limit::Waiting => "waiting for loads",
            Limit::Bandwidth => "bandwidth",
            Limit::Issue => "instructions",
            Limit::Merge => "merging partials",
        })
    }
}

impl fmt::Display for Estimate {
    /// One line, such as `73.1 us, limited by bandwidth: launch 7.6, gap 2.8, memory 65.9 (transfer
    /// 60.7, locality 92 %), waiting 23.9 (2 rounds, 12.4 waves of 5 cubes a multiprocessor),
    /// instructions 28.1, merging 0.0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |nanoseconds: f64| nanoseconds * 1e-3;
        let rounds = if self.rounds == 1 { "round" } else { "rounds" };
        let cubes = if self.resident_cubes == 1 { "cube" } else { "cubes" };
        write!(
            f,
            "{:.1} us, limited by {}: launch {:.1}, gap {:.1}, memory {:.1} (transfer {:.1}, \
             locality {:.0} %), waiting {:.1} ({} {rounds}, {:.1} waves of {} {cubes} a \
             multiprocessor), instructions {:.1}, merging {:.1}",
            self.microseconds(),
            self.limit(),
            us(self.launch_ns),
            us(self.gap_ns),
            us(self.memory_ns()),
            us(self.transfer_ns),
            self.locality * 100.0,
            us(self.waiting_ns),
            self.rounds,
            self.waves,
            self.resident_cubes,
            us(self.issue_ns),
            us(self.merge_ns),
        )
    }
}
