//! Our times beside those of the peers.

mod neighbours;
mod picture;
mod summary;
mod table;

use std::collections::HashMap;

pub use neighbours::Neighbours;
pub use picture::{side_by_side_picture, sweep_picture};
pub use summary::Summary;
pub use table::{side_by_side_markdown, sweep_markdown};

use reduce_programs::Floor;

use crate::{Case, Record, Timing};

pub(crate) const MIB: u64 = 1 << 20;

/// Input bytes from which a case is one of bandwidth rather than of launches.
pub const BANDWIDTH_BYTES: u64 = 16 * MIB;

/// A library that is timed beside ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// NVIDIA's CUB.
    Cub,
    /// PyTorch, eager.
    PyTorch,
    /// PyTorch through `torch.compile`.
    Compiled,
    /// cubek-reduce.
    Cubek,
}

impl Peer {
    /// Every peer, in the order of the columns.
    pub const ALL: [Peer; 4] = [Peer::Cub, Peer::PyTorch, Peer::Compiled, Peer::Cubek];

    /// The name in tables and pictures.
    pub const fn name(self) -> &'static str {
        match self {
            Peer::Cub => "CUB",
            Peer::PyTorch => "PyTorch",
            Peer::Compiled => "compiled",
            Peer::Cubek => "cubek",
        }
    }

    /// The peer whose lines start with this word.
    fn of_word(word: &str) -> Option<Self> {
        match word {
            "CUB" => Some(Peer::Cub),
            "TORCH" => Some(Peer::PyTorch),
            "INDUCTOR" => Some(Peer::Compiled),
            "CUBEK" => Some(Peer::Cubek),
            _ => None,
        }
    }
}

/// A result line of a peer's program.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerResult {
    /// The peer.
    pub peer: Peer,
    /// The case.
    pub case: Case,
    /// Time per call in microseconds.
    pub microseconds: f64,
}

impl PeerResult {
    /// The result that a line states, such as `CUB segsum f32 [8, 4] axis 1: 3.90 us 1.0 GB/s`;
    /// `None` if it states none.
    pub fn of_line(line: &str) -> Option<Self> {
        let (statement, figures) = line.split_once(": ")?;
        let (word, _) = statement.split_once(' ')?;
        let mut figures = figures.split_whitespace();
        let microseconds = figures.next()?.parse().ok()?;
        (figures.next()? == "us").then_some(())?;
        Some(Self { peer: Peer::of_word(word)?, case: statement.parse().ok()?, microseconds })
    }
}

/// A case with everyone's time per call in microseconds.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// Ours.
    pub timing: &'a Timing,
    /// The peers', in the order of [`Peer::ALL`].
    pub peers: [Option<f64>; Peer::ALL.len()],
    /// Ours through Vulkan.
    pub vulkan: Option<f64>,
}

impl Row<'_> {
    /// A peer's time.
    pub fn peer(&self, peer: Peer) -> Option<f64> {
        self.peers[peer as usize]
    }

    /// The fastest peer and its time.
    pub fn best_peer(&self) -> Option<(Peer, f64)> {
        let timed = Peer::ALL.into_iter().filter_map(|peer| Some((peer, self.peer(peer)?)));
        timed.min_by(|(_, a), (_, b)| a.total_cmp(b))
    }

    /// The fastest peer's time over ours: above 1 we are ahead.
    pub fn lead(&self) -> Option<f64> {
        self.best_peer().map(|(_, us)| us / self.timing.microseconds)
    }

    /// The share of a floor that our time reaches: 1 is as fast as can be.
    pub fn floor_share(&self, floor: &Floor) -> f64 {
        floor.microseconds(self.timing.bytes) / self.timing.microseconds
    }

    /// Our time through Vulkan over that of the record.
    pub fn vulkan_over(&self) -> Option<f64> {
        self.vulkan.map(|us| us / self.timing.microseconds)
    }
}

/// Joins our record with the same cases through Vulkan and with the peers' results. Where a peer
/// has several results for a case, the fastest counts; results for other cases are left out.
pub fn join<'a>(ours: &'a Record, vulkan: Option<&Record>, results: &[PeerResult]) -> Vec<Row<'a>> {
    let mut best: HashMap<(Peer, &Case), f64> = HashMap::new();
    for PeerResult { peer, case, microseconds } in results {
        let entry = best.entry((*peer, case)).or_insert(*microseconds);
        *entry = entry.min(*microseconds);
    }
    let vulkan: HashMap<&Case, f64> = vulkan
        .iter()
        .flat_map(|record| &record.cases)
        .map(|timing| (&timing.case, timing.microseconds))
        .collect();
    ours.cases
        .iter()
        .map(|timing| {
            let mut peers = Peer::ALL.map(|peer| best.get(&(peer, &timing.case)).copied());
            if let Some(cubek) = &timing.cubek {
                peers[Peer::Cubek as usize] = Some(cubek.microseconds);
            }
            Row { timing, peers, vulkan: vulkan.get(&timing.case).copied() }
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use reduce_kernels::planner::{Access, Combine, Device, Direction, Plan, Schedule};

    use super::*;
    use crate::CubekTiming;

    /// A record of cases and their microseconds, at 4 TB/s and 9 us a launch.
    pub(crate) fn record(cases: &[(&str, f64)]) -> Record {
        let floor = Floor { read_gigabytes_per_second: 4000.0, launch_microseconds: 9.0 };
        let access = Access::new(Direction::Along).with_vector(4).with_loads_in_flight(4);
        let schedule =
            Schedule::Cube { units_per_output: 256, outputs_per_cube: 1, combine: Combine::Shared };
        let plan = Plan::new(access, schedule);
        let timing = |&(line, us): &(&str, f64)| {
            let case: Case = line.parse().unwrap();
            let bytes = case.input_bytes();
            Timing::new(case, bytes, plan, us, &floor)
        };
        Record {
            runtime: "cuda".into(),
            device: Device::h200(),
            floor,
            cases: cases.iter().map(timing).collect(),
        }
    }

    /// Lines as the peers' programs print them, and others between them.
    pub(crate) const PRINTED: &str = "\
NVIDIA H200 SMs 132 L2 62914560 CUB 300001
COPY 4GiB d2d: 3942.1 GB/s read+write
CUB sum f32 [268435456] axis all: 241.00 us 4455.4 GB/s
CUB segsum f32 [65536, 1024] axis 1: 136.00 us 1973.8 GB/s
TORCH sum f32 [268435456] axis all: 250.10 us 4293.3 GB/s
TORCH sum f32 [65536, 1024] axis (1,): 73.10 us 3676.0 GB/s
TORCH norm2 f32 [65536, 1024] axis (1,): 73.60 us 3650.0 GB/s
TORCH sum f32 [1024] axis all: 12.10 us 0.3 GB/s
FAIL logsumexp (8192, 8192) (1,) CUDA out of memory: tried 2 us
INDUCTOR sum f32 [65536, 1024] axis (1,): 62.60 us 4293.0 GB/s
";

    pub(crate) fn printed() -> Vec<PeerResult> {
        PRINTED.lines().filter_map(PeerResult::of_line).collect()
    }

    /// Each peer's spelling must end up in its column of the right case.
    #[test]
    fn peers_lines_join_our_cases() {
        assert_eq!(printed().len(), 7);
        let mut ours = record(&[
            ("sum f32 [65536, 1024] axis 1", 60.0),
            ("norm_l2 f32 [65536, 1024] axis 1", 60.0),
            ("sum f32 [8, 8] axis 0", 9.0),
        ]);
        ours.cases[0].cubek = Some(CubekTiming { routine: "plane".into(), microseconds: 68.8 });
        let vulkan = record(&[("sum f32 [65536, 1024] axis 1", 66.0)]);
        let rows = join(&ours, Some(&vulkan), &printed());
        assert_eq!(rows[0].peers, [Some(136.0), Some(73.1), Some(62.6), Some(68.8)]);
        assert_eq!(rows[0].best_peer(), Some((Peer::Compiled, 62.6)));
        assert!((rows[0].lead().unwrap() - 62.6 / 60.0).abs() < 1e-12);
        assert!((rows[0].vulkan_over().unwrap() - 1.1).abs() < 1e-12);
        assert_eq!(rows[1].peers, [None, Some(73.6), None, None]);
        assert_eq!((rows[2].best_peer(), rows[2].vulkan), (None, None));
    }

    /// A program that ran twice must not make a peer look slower than it is.
    #[test]
    fn the_fastest_of_repeated_results_counts() {
        let lines =
            ["TORCH sum f32 [64] axis all: 5.00 us", "TORCH sum f32 [64] axis all: 7.00 us"];
        let results: Vec<PeerResult> = lines.into_iter().filter_map(PeerResult::of_line).collect();
        let ours = record(&[("sum f32 [64] axis all", 9.0)]);
        assert_eq!(join(&ours, None, &results)[0].peer(Peer::PyTorch), Some(5.0));
    }
}
