//! What a plan should take, term by term. `choose/cost.rs` computes it.

use core::fmt;

/// The expected time of a plan, term by term, in nanoseconds.
///
/// The time is `launch + max(memory, start) + latency + combine`, where `memory = max(loads,
/// transfer) / locality`. The model ranks the schedules of one problem. It does not predict times
/// to the microsecond.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Estimate {
    /// Host time of the launches.
    pub launch_ns: f64,
    /// Time of the loads at the rate that the loads in flight sustain, at full locality.
    pub loads_ns: f64,
    /// Time of moving each distinct byte once at the bandwidth that the cubes reach, at full
    /// locality.
    pub transfer_ns: f64,
    /// Share of the memory's rate that the access pattern leaves, from 0 to 1.
    pub locality: f64,
    /// Time of starting and ending the cubes.
    pub start_ns: f64,
    /// Time from the issue of the first load to its value.
    pub latency_ns: f64,
    /// Time of combining accumulators within a cube and of publishing partials between cubes.
    pub combine_ns: f64,
}

/// The term of an [`Estimate`] that takes the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Limit {
    /// Host time of the launches.
    Launch,
    /// Too few loads are in flight to draw the bandwidth.
    LoadsInFlight,
    /// The bandwidth of the memory.
    Bandwidth,
    /// Starting and ending cubes.
    CubeStart,
    /// The latency of one load.
    Latency,
    /// Combining accumulators.
    Combine,
}

impl Estimate {
    /// Time of reading the input.
    #[must_use]
    pub fn memory_ns(&self) -> f64 {
        self.loads_ns.max(self.transfer_ns) / self.locality
    }

    /// The expected time in nanoseconds.
    #[must_use]
    pub fn total_ns(&self) -> f64 {
        self.launch_ns + self.memory_ns().max(self.start_ns) + self.latency_ns + self.combine_ns
    }

    /// The expected time in microseconds.
    #[must_use]
    pub fn microseconds(&self) -> f64 {
        self.total_ns() * 1e-3
    }

    /// The term that takes the longest.
    #[must_use]
    pub fn limit(&self) -> Limit {
        let memory = match self.loads_ns > self.transfer_ns {
            true => Limit::LoadsInFlight,
            false => Limit::Bandwidth,
        };
        let mut longest = (self.memory_ns(), memory);
        for term in [
            (self.launch_ns, Limit::Launch),
            (self.start_ns, Limit::CubeStart),
            (self.latency_ns, Limit::Latency),
            (self.combine_ns, Limit::Combine),
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
            Limit::LoadsInFlight => "loads in flight",
            Limit::Bandwidth => "bandwidth",
            Limit::CubeStart => "starting cubes",
            Limit::Latency => "latency",
            Limit::Combine => "combining",
        })
    }
}

impl fmt::Display for Estimate {
    /// One line, such as `62.4 us, limited by bandwidth: launch 9.0, memory 51.7 (loads 11.2,
    /// transfer 51.7, locality 100 %), start 2.1, latency 1.5, combine 0.2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} us, limited by {}: launch {:.1}, memory {:.1} (loads {:.1}, transfer {:.1}, \
             locality {:.0} %), start {:.1}, latency {:.1}, combine {:.1}",
            self.microseconds(),
            self.limit(),
            self.launch_ns * 1e-3,
            self.memory_ns() * 1e-3,
            self.loads_ns * 1e-3,
            self.transfer_ns * 1e-3,
            self.locality * 100.0,
            self.start_ns * 1e-3,
            self.latency_ns * 1e-3,
            self.combine_ns * 1e-3,
        )
    }
}
