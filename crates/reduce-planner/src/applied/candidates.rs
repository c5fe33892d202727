//! The plan of each kind that an applied reduction may have, or the reason against it, and what it
//! should take.

use super::{AppliedKind, AppliedPlan, ApplyLaunch, plan::combining_bytes};
use crate::{
    choose,
    choose::{FEW_FIELDS, cubes_wanted, floor_power_of_two},
    device::{Device, RESERVED_SHARED_BYTES},
    error::PlanError,
    estimate::Estimate,
    illegal::Illegal,
    limits::{self, INDEX_SLACK},
    numbers::{AppliedTuning, from_percent},
    numerics::Numerics,
    plan::{Access, Combine, Plan, Schedule, check::accumulator_bytes},
    problem::{AppliedProblem, Companion, Direction, Problem},
    refusal::Refusal,
    segments::SegmentsPlan,
};

/// Round trips to memory of a cube that shares its tile: it takes a number, partials are published
/// and read, and it asks again and again whether all are there. With 3 on one H200, estimates of
/// the fastest such plans were 1.4 us too low beside those of the fastest with one cube for each
/// tile, in the median of 11 random cases of up to 40 us whose cubes all reside together. Softmax
/// of f16 56 × 65,536 took 18.3 us in 4 cubes a row, and 14.4 in one of 1024 units.
const PASSES_OF_CUBES: f64 = 6.0;

/// By how much each operand along rows lowers the rate where rows lie in shared memory.
/// Normalisations with a weight and a bias took 1.4 to 2.1 times as long on one H200 as estimated
/// without, and in two launches 1.0 to 1.3 times; rms_norm with a weight 1.2 to 1.3 times.
const OPERAND_IN_SHARED_PERCENT: u32 = 20;

/// Time of long rows that are read again beside operands along them, in percent of that without.
/// Normalisations with a weight of 4096 rows of 50,257 f32 took 1.5 times as long on one H200 as
/// estimated without, and those with a weight and a bias of 8192 rows of 128,256 bf16 2.2 times.
const READ_AGAIN_BESIDE_OPERANDS_PERCENT: u32 = 150;

/// Fewest units that share a narrow row with edges where they could be twice as many.
const FEWEST_WITH_EDGES: u64 = 16;

/// Most loads of each of them.
const MOST_LOADS_WITH_EDGES: u64 = 6;

/// Units of a cube that holds a row whose results are narrower than its elements, the most loads of
/// each of them, and the fewest lanes and their most loads where a plane holds such rows.
const NARROW_RESULT_UNITS: u64 = 256;
const NARROW_RESULT_LOADS: u64 = 7;
const NARROW_RESULT_LANES: u64 = 8;
const NARROW_RESULT_LANE_LOADS: u64 = 8;

/// Fewest lanes of a row that half as many may share where loads are narrow, and the most loads of
/// these.
const NARROW_LANES: u64 = 16;
const NARROW_LANE_LOADS: u64 = 7;

/// Units of a cube of narrow columns above which it has half a segment of memory.
const NARROW_COLUMN_UNITS: u64 = 256;

/// Fewest bytes that cubes read where each unit or plane has rows of its own. The scaling of rows
/// of two f32 to fp8 took 327 us for 2²⁷ elements on one H200 in 524,288 cubes of 128 units, which
/// read a KiB each, and 243 in 256 units.
const LEAST_CUBE_BYTES: usize = 2048;

/// Most cubes that apply results to one output tile.
const MOST_APPLYING_CUBES: u64 = 1 << 16;

/// Why a plan was not taken.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum AppliedReason {
    /// The registers of a cube do not hold a tile.
    #[error("too long: {loads} loads per output tile, and a cube holds {most}")]
    TooLongToHold {
        /// Loads of a tile.
        loads: u64,
        /// Loads that the units of one cube can hold.
        most: u64,
    },
    /// Registers hold a tile.
    #[error("no need: {loads} loads per output tile, and registers hold {most}")]
    HeldInRegisters {
        /// Loads of a tile.
        loads: u64,
        /// Loads that the units of one cube can hold in registers.
        most: u64,
    },
    /// The plan would give other bits than the one that all problems with such slices have.
    #[error("other bits: {numerics} results of such slices come from plans of another kind")]
    OtherBits {
        /// What bits may depend on.
        numerics: Numerics,
    },
    /// The plan applies, and another one should be faster.
    #[error("slower: {microseconds:.1} us expected against {best_microseconds:.1} us")]
    Slower {
        /// What it should take, in microseconds.
        microseconds: f64,
        /// What the plan that was taken should take, in microseconds.
        best_microseconds: f64,
    },
    /// The plan would break a rule that plans must obey.
    #[error("{limit}")]
    PassesLimits {
        /// The rule, with the numbers.
        limit: Illegal,
    },
}

pub(super) fn no_plan(
    device: &Device,
    refused: &[Refusal<AppliedKind, AppliedReason>],
) -> PlanError {
    let reasons: Vec<String> = refused.iter().map(ToString::to_string).collect();
    PlanError::NoAppliedPlan { device: device.name.clone(), reasons: reasons.join("; ") }
}

/// The widest vectors that fit one load and one store. Edges of short rows are peeled only where
/// vectors without edges would be narrow.
pub(super) fn widest(applied: &AppliedProblem, device: &Device) -> Access {
    let (problem, tuning) = (applied.problem(), &device.tuning.applied);
    let load_bytes = load_bytes(applied, device);
    let whole = Access::widest_up_to(load_bytes, false, problem, device);
    let row_bytes = problem.reduction_len().saturating_mul(problem.input().bytes());
    let is_short = whole.direction == Direction::Along && row_bytes <= tuning.unpeeled_row_bytes;
    let is_wide = whole.vector * problem.input().bytes() >= tuning.unpeeled_load_bytes;
    match is_short && is_wide {
        true => whole,
        false => Access::widest_up_to(load_bytes, true, problem, device),
    }
}

/// [`widest`] where the component and the load of an element follow from its position.
///
/// Realigned elements must be moved back where they are stored, which only accumulators of many
/// fields make up for. Realigned and element by element, f32 4096 × 50257 along axis 1 took, on one
/// H200: `layer_norm` 816 and 999 us, `softmax` 636 and 525, `rms_norm` 759 and 548.
pub(super) fn by_position(applied: &AppliedProblem, device: &Device) -> Access {
    let problem = applied.problem();
    let may_realign = problem.operator().fields > FEW_FIELDS;
    Access::by_position(load_bytes(applied, device), may_realign, problem, device)
}

/// Bytes of a load whose elements fit one store.
fn load_bytes(applied: &AppliedProblem, device: &Device) -> usize {
    let (read, written) = (applied.problem().input().bytes(), applied.output().bytes());
    (device.load_bytes * read / written.max(read)).max(1)
}

/// Units that share a tile, and tiles that they read side by side.
#[derive(Clone, Copy)]
struct Team {
    units: u32,
    tiles: u32,
}

impl Team {
    /// Units of all tiles.
    fn all_units(self) -> u32 {
        self.units * self.tiles
    }
}

/// What plans of all kinds are sized for.
#[derive(Clone, Copy)]
pub(super) struct Search<'a> {
    applied: &'a AppliedProblem,
    reduction: &'a Problem,
    device: &'a Device,
    tuning: &'a AppliedTuning,
    /// How elements are read, but for the loads in flight.
    access: Access,
}

impl<'a> Search<'a> {
    /// Vectors fit one load and one store.
    pub(super) fn new(
        applied: &'a AppliedProblem,
        reduction: &'a Problem,
        device: &'a Device,
    ) -> Result<Self, PlanError> {
        limits::check_applied(applied, device)?;
        Ok(Self::with_access(applied, reduction, device, widest(applied, device)))
    }

    /// The plans that read elements in one way.
    pub(super) fn with_access(
        applied: &'a AppliedProblem,
        reduction: &'a Problem,
        device: &'a Device,
        access: Access,
    ) -> Self {
        Self { applied, reduction, device, tuning: &device.tuning.applied, access }
    }

    /// A plan of one kind that obeys the rules, or the reason against it. Where a peeled or
    /// realigned access binds more buffers than the device allows, the plan reads single elements.
    pub(super) fn candidate(
        &self,
        kind: AppliedKind,
    ) -> Result<Result<AppliedPlan, AppliedReason>, PlanError> {
        let planned = self.checked(kind)?;
        match planned {
            Err(AppliedReason::PassesLimits { limit: Illegal::Bindings { .. } })
                if self.reads_edges() =>
            {
                self.in_single_elements().checked(kind)
            }
            planned => Ok(planned),
        }
    }

    /// The plan for segments with these launches of their reduction.
    pub(super) fn of_segments(&self, reduce: SegmentsPlan) -> Result<AppliedPlan, PlanError> {
        let checked = |search: &Self| {
            let plan = AppliedPlan::Segments { reduce, apply: search.apply_to_segments() };
            plan.check_rules(self.applied, self.reduction, self.device).map(|()| plan)
        };
        match checked(self) {
            Err(PlanError::Unfit { reason: Illegal::Bindings { .. }, .. })
                if self.reads_edges() =>
            {
                checked(&self.in_single_elements())
            }
            plan => plan,
        }
    }

    /// Whether the access binds the input as vectors and as elements.
    fn reads_edges(&self) -> bool {
        self.access.peeled || self.access.realigned
    }

    fn in_single_elements(&self) -> Self {
        let access = self.access.with_vector(1).with_peeled(false).with_realigned(false);
        Self { access, ..*self }
    }

    /// [`candidate`](Self::candidate) that reads elements in one way.
    fn checked(&self, kind: AppliedKind) -> Result<Result<AppliedPlan, AppliedReason>, PlanError> {
        let plan = match kind {
            AppliedKind::Held => self.held(),
            AppliedKind::HeldInShared => self.held_in_shared(),
            AppliedKind::HeldByCubes => self.held_by_cubes(),
            AppliedKind::ReadAgain => Ok(AppliedPlan::ReadAgain(self.read_again())),
            AppliedKind::Separately => {
                let reduce = choose(self.reduction, self.device)?.plan;
                Ok(AppliedPlan::Separately { reduce, apply: self.apply() })
            }
        };
        let plan = match plan {
            Ok(plan) => plan,
            Err(reason) => return Ok(Err(reason)),
        };
        match plan.check_rules(self.applied, self.reduction, self.device) {
            Ok(()) => Ok(Ok(plan)),
            Err(PlanError::Unfit { reason: limit, .. }) => {
                Ok(Err(AppliedReason::PassesLimits { limit }))
            }
            Err(other) => Err(other),
        }
    }

    /// Loads of a tile.
    fn loads(&self) -> u64 {
        self.access.loads_per_output(self.applied.problem()).max(1)
    }

    /// Bytes of one load of the input.
    fn load_bytes(&self) -> usize {
        self.access.vector * self.applied.problem().input().bytes()
    }

    fn is_along(&self) -> bool {
        self.access.direction == Direction::Along
    }

    /// Output tiles that lie side by side in a segment of memory.
    fn adjacent_tiles(&self) -> u32 {
        if self.is_along() {
            return 1;
        }
        let segment = (self.tuning.segment_bytes / self.load_bytes()).max(1) as u64;
        let inner = self.access.loads_per_inner(self.applied.problem());
        segment.min(inner.next_power_of_two()) as u32
    }

    /// The team that holds tiles with `units` for each. Cubes of narrow columns stay small enough
    /// for others beside them, with half a segment.
    ///
    /// In one run on an H200, in cubes of 512 units and of 256: softmax of bf16 239 × 512 × 360
    /// over axis 1 took 72.6 and 58.2 us, log_softmax of 488 × 65,536 over axis 0 51.6 and 43.1. In
    /// cubes of 128 and of 64, softmax of f16 128 × 650,160 over axis 0 took 104 and 113.
    fn held_team(&self, units: u64) -> Team {
        let tiles = self.adjacent_tiles();
        let narrow = self.applied.problem().input().bytes() < size_of::<f32>();
        let is_large = units * u64::from(tiles) > NARROW_COLUMN_UNITS;
        let halved = narrow && !self.is_along() && is_large && tiles > 1;
        Team { units: units as u32, tiles: if halved { tiles / 2 } else { tiles } }
    }

    /// Most units of a tile: so many along the reduction, and a part of those of a cube across
    /// outputs.
    fn most_units(&self, along: u32) -> u32 {
        let units = if self.is_along() { along } else { self.tuning.across_units_per_cube };
        units.min(self.device.max_units_per_cube) / self.adjacent_tiles()
    }

    /// The plan of a team whose units all work on one cube's tiles.
    fn plan(&self, team: Team, loads_in_flight: usize) -> Plan {
        let Self { device, access, .. } = *self;
        let (independent, in_planes) =
            (self.tuning.independent_units_per_cube, self.tuning.plane_units_per_cube);
        // A cube that reads less is done before the device has begun the next ones.
        let is_short = |rows: u32| {
            let read = self.load_bytes().saturating_mul(self.loads() as usize);
            read.saturating_mul(rows as usize) < LEAST_CUBE_BYTES
        };
        let alone = team.units == 1 && self.is_along();
        let independent = match alone && is_short(independent) {
            true => 2 * independent,
            false => independent,
        };
        let in_planes = match access.peeled || is_short(in_planes / team.units) {
            true => independent,
            false => in_planes,
        };
        let [independent, in_planes] =
            [independent, in_planes].map(|units| units.min(device.max_units_per_cube));
        let by_planes = device.plane_operations && team.units > device.plane_size_min;
        let tiles = match team.units {
            1 => team.tiles.max(independent),
            units if self.is_along() && !by_planes => team.tiles.max(in_planes / units),
            _ => team.tiles,
        };
        let schedule = schedule_of(team.units, team.units * tiles, access.direction, device);
        Plan::new(access.with_loads_in_flight(loads_in_flight), schedule)
    }

    /// As many units as leave each a few loads, unless there are not so many. Of two inputs, both
    /// are held, but not a second that slices share: it comes from the cache again.
    fn held(&self) -> Result<AppliedPlan, AppliedReason> {
        let (tuning, loads) = (self.tuning, self.loads());
        let load_bytes = self.access.vector * self.applied.pair_bytes();
        let (bytes, most_bytes) = match self.access.direction {
            Direction::Along => (tuning.held_bytes_along, tuning.most_held_bytes_along),
            Direction::Across => (tuning.held_bytes_across, tuning.most_held_bytes_across),
        };
        let most_units = self.most_units(self.device.max_units_per_cube);
        let most_units = floor_power_of_two(most_units.into());
        let each = loads_of(bytes, load_bytes) as u64;
        let lanes = u64::from(self.device.plane_size_min);
        let each = match self.is_along() && loads.div_ceil(each) > lanes {
            true => each.min(tuning.held_loads_along as u64),
            false => each,
        };
        let most = most_units * loads_of(most_bytes, load_bytes) as u64;
        if loads > most {
            return Err(AppliedReason::TooLongToHold { loads, most });
        }
        // Units read a segment of memory together.
        let segment = match self.access.direction {
            Direction::Along => (tuning.segment_bytes / load_bytes).max(1) as u64,
            Direction::Across => 1,
        };
        let wanted = loads.div_ceil(each).max(segment.min(loads)).next_power_of_two();
        let wanted = self.lanes_of_short(loads).unwrap_or(wanted);
        let wanted = self.fewer_with_edges(loads, wanted);
        let wanted = self.fewer_of_narrow_results(loads, wanted);
        let fewer = self.units_of_pairs(loads).or_else(|| self.units_beside_others(loads));
        let units = fewer.map_or(wanted, |most| wanted.min(most)).min(most_units);
        let plan = self.plan(self.held_team(units), loads.div_ceil(units) as usize);
        Ok(AppliedPlan::Held { plan, in_shared: 0, cubes_per_output: 1 })
    }

    /// Lanes that share a row along the reduction, if those of one plane have few loads each.
    ///
    /// All planes execute some 150 instructions, whatever their lanes hold, so fewer lanes with
    /// more loads make short rows faster. Narrow loads may be more, because those of neighbouring
    /// rows lie in the same sectors of memory.
    fn lanes_of_short(&self, loads: u64) -> Option<u64> {
        let tuning = self.tuning;
        // A load of 16 bytes is half a sector, and the lane beside it has the other half.
        let (most, least) = match self.load_bytes() {
            ..=4 => (tuning.short_narrow_loads, 1),
            5..16 => (tuning.short_loads, 1),
            _ => (tuning.short_loads, 2),
        };
        let lanes = loads.div_ceil(most as u64).max(loads.min(least)).next_power_of_two();
        // Half the lanes, if these have an eighth fewer places for loads, of which fewer stay
        // empty: softmax of bf16 with 33 loads a row took 32.6 us on one H200 in 32 lanes with 2
        // places each, and 23.6 in 16 with 3; l2_normalize of rows of 93, 12 loads, 92.6 in 8 lanes
        // and 71.0 in 4; log_softmax of 49 single elements 173 in 16 lanes with 4, and 143 in 8
        // with 7.
        let places = |lanes: u64| lanes * loads.div_ceil(lanes);
        // Or if these have a few narrow loads each: l2_normalize of rows of 47 single elements of
        // f16 took 352 us in 16 lanes with 3, and 264 in 8 with 6. But softmax of rows of 7 took 81
        // in 2 lanes, and 164 in one.
        let half = (lanes / 2).max(1);
        let leaves_empty = 8 * places(half) <= 7 * places(lanes);
        let is_narrow = lanes >= NARROW_LANES
            && self.load_bytes() <= size_of::<f32>()
            && loads.div_ceil(half) <= NARROW_LANE_LOADS;
        let lanes = if lanes > 2 && (leaves_empty || is_narrow) { half } else { lanes };
        (self.is_along() && lanes <= u64::from(self.device.plane_size_min)).then_some(lanes)
    }

    /// Half of so many units, if narrow rows with edges leave each of these a few loads. All units
    /// execute the instructions of the edges.
    ///
    /// In one run on an H200, with 3 loads in each unit and with up to 6 in half of them: rms_norm
    /// with a weight of bf16 120562 × 1318 took 215 and 179 us, layer_norm with a weight and a bias
    /// of 171576 × 1277 394 and 303, of f16 71494 × 575 72 and 56, log_softmax of bf16 17654 × 4601
    /// 97 and 81. In 4 lanes, l2_normalize of bf16 430105 × 185 took 90 us, and 84.5 in 8.
    fn fewer_with_edges(&self, loads: u64, units: u64) -> u64 {
        let problem = self.applied.problem();
        let narrow = problem.input().bytes() < size_of::<f32>();
        let half = (units / 2).max(1);
        let each = loads.div_ceil(half);
        // Elements are held as f32. In cubes, more of them leave registers for no other cube.
        let held = each as usize * self.access.vector * size_of::<f32>();
        let has_room =
            half <= u64::from(self.device.plane_size_min) || held <= self.tuning.beside_held_bytes;
        let is_fewer = self.is_along()
            && self.access.peeled
            && narrow
            && problem.second().is_none()
            && half >= FEWEST_WITH_EDGES
            && each <= MOST_LOADS_WITH_EDGES
            && has_room;
        if is_fewer { half } else { units }
    }

    /// Fewer units with more loads each, where results are narrower than the elements: instructions
    /// bound the time then, and fewer units execute fewer of them.
    ///
    /// In one run on an H200: bf16 4096 × 14,336 to fp8 took 49.1 us in cubes of 512 units and 45.1
    /// in cubes of 256, to integers 53.6 and 45.9. With a weight, it took 62.7 in cubes of 256 and
    /// 60.0 in cubes of 128, and f16 16,384 × 8192 129 and 113. In planes of 16 and of 8 lanes,
    /// bf16 524,288 × 256 to integers took 109 and 100; of 32 and 16, 41,552 × 1014 to fp8 35.5 and
    /// 33.9. In cubes of 256 and of 128 without a weight, 8192 × 8192 took 50.2 and 49.9 to fp8,
    /// and 49.4 and 51.0 to integers.
    fn fewer_of_narrow_results(&self, loads: u64, units: u64) -> u64 {
        let problem = self.applied.problem();
        let is_narrow = self.applied.output().bytes() < problem.input().bytes();
        let is_held = problem.second().is_some() && !self.applied.second_is_shared();
        if !is_narrow || !self.is_along() || is_held {
            return units;
        }
        let planes = u64::from(self.device.plane_size_min);
        let (fewer, most_loads) = match units {
            _ if units <= planes => (NARROW_RESULT_LANES.max(units / 2), NARROW_RESULT_LANE_LOADS),
            _ if problem.second().is_some() => (NARROW_RESULT_UNITS / 2, 2 * NARROW_RESULT_LOADS),
            _ => (NARROW_RESULT_UNITS, NARROW_RESULT_LOADS),
        };
        let fits = fewer < units && loads.div_ceil(fewer) <= most_loads;
        if fits { fewer } else { units }
    }

    /// Most units of a cube along that holds two inputs, or reads a second one beside the first, if
    /// so few can hold the loads of a tile. Each takes so many registers that a larger cube has a
    /// multiprocessor for itself.
    fn units_of_pairs(&self, loads: u64) -> Option<u64> {
        let most = u64::from(self.tuning.pair_units_per_cube);
        let is_paired = self.applied.problem().second().is_some() && self.is_along();
        let fits = loads.div_ceil(most) <= self.tuning.pair_loads as u64;
        (is_paired && fits).then_some(most)
    }

    /// Most units of a cube that holds one input along the reduction and should have others beside
    /// it, if so few can hold the loads of a tile in registers.
    fn units_beside_others(&self, loads: u64) -> Option<u64> {
        let most = u64::from(self.tuning.beside_units_per_cube);
        let element = self.applied.problem().input().bytes().max(size_of::<f32>());
        let held = loads.div_ceil(most).saturating_mul((self.access.vector * element) as u64);
        let fits = held <= self.tuning.beside_held_bytes as u64;
        (self.may_reside_beside_others() && fits).then_some(most)
    }

    /// Whether several cubes can hold rows of one input on each multiprocessor: there are enough.
    fn may_reside_beside_others(&self) -> bool {
        let problem = self.applied.problem();
        let enough =
            self.access.output_tiles(problem) >= 2 * u64::from(self.device.multiprocessors);
        enough && self.is_along() && problem.second().is_none()
    }

    /// Whether several cubes of a plan reside on a multiprocessor.
    fn reside_together(&self, plan: &Plan) -> bool {
        let most = self.tuning.by_cubes_units_per_multiprocessor / 2;
        self.may_reside_beside_others() && plan.schedule.units_per_cube() <= most
    }

    /// The smallest cubes several of which reside on a multiprocessor, if these hold a row. The
    /// largest otherwise, which have a multiprocessor for themselves.
    fn held_in_shared(&self) -> Result<AppliedPlan, AppliedReason> {
        let units = self.most_units(self.device.max_units_per_cube);
        let most = floor_power_of_two(units.into()) as u32;
        let mut units = match self.may_reside_beside_others() {
            true => self.tuning.shared_units_per_cube.min(most),
            false => most,
        };
        loop {
            let held = self.held_in_shared_of(units);
            match held {
                Err(AppliedReason::TooLongToHold { .. }) if units < most => units *= 2,
                held => return held,
            }
        }
    }

    /// Cubes that reside beside as many of their own size as the units of a multiprocessor allow,
    /// and divide its shared memory with these.
    fn held_in_shared_of(&self, units: u32) -> Result<AppliedPlan, AppliedReason> {
        let (device, problem, tiles) = (self.device, self.applied.problem(), self.adjacent_tiles());
        let load_bytes = self.load_bytes();
        let team = Team { units, tiles };
        let in_flight = loads_of(self.tuning.shared_bytes_in_flight, load_bytes);
        let plan = self.plan(team, in_flight);
        let loads = self.access.loads_per_output(problem);
        let each = loads.div_ceil(team.units.into());
        let rest = each.saturating_sub(in_flight as u64);
        if rest == 0 {
            let most = u64::from(team.units) * in_flight as u64;
            return Err(AppliedReason::HeldInRegisters { loads, most });
        }
        let resident = match self.may_reside_beside_others() {
            true => self.tuning.by_cubes_units_per_multiprocessor / team.all_units(),
            false => 1,
        };
        // What the device keeps of each cube's part is not counted among what one may ask for.
        let resident = resident.max(1) as usize;
        let reserved = if resident > 1 { RESERVED_SHARED_BYTES } else { 0 };
        let combining = combining_bytes(&plan, problem, 1) + reserved;
        let shared = device.requestable_shared_bytes() / resident;
        let places = shared.saturating_sub(combining) / (load_bytes * team.all_units() as usize);
        let most_in_shared = places / in_flight * in_flight;
        let in_shared = rest.next_multiple_of(in_flight as u64);
        if in_shared > most_in_shared as u64 {
            let most = u64::from(team.units) * (in_flight + most_in_shared) as u64;
            return Err(AppliedReason::TooLongToHold { loads, most });
        }
        Ok(AppliedPlan::Held { plan, in_shared: in_shared as usize, cubes_per_output: 1 })
    }

    /// Cubes several of which reside on a multiprocessor, so that some write or wait while others
    /// read. They hold what one such cube may of registers and shared memory. More cubes share a
    /// tile where tiles are too few to fill the device.
    fn held_by_cubes(&self) -> Result<AppliedPlan, AppliedReason> {
        let (device, tuning, problem) = (self.device, self.tuning, self.applied.problem());
        let (load_bytes, tiles, loads) = (self.load_bytes(), self.adjacent_tiles(), self.loads());
        // The accumulators that a cube merges lie in shared memory too.
        let each = accumulator_bytes(problem, self.access)
            .saturating_add(problem.operator().accumulator_bytes);
        let team = self.fitting(self.most_units(tuning.by_cubes_units_per_cube), tiles, |units| {
            each.saturating_mul(units) < device.shared_memory_bytes
        });
        let units = u64::from(team.units);

        let in_flight = (tuning.by_cubes_bytes_in_flight / load_bytes)
            .clamp(1, Access::MOST_LOADS_IN_FLIGHT - 1) as u64;
        let resident = (tuning.by_cubes_units_per_multiprocessor / team.all_units()).max(1);
        // Merging what cubes have published takes no more than combining a cube did.
        let combining =
            combining_bytes(&self.plan(team, 1), problem, 1) * 2 + RESERVED_SHARED_BYTES;
        let shared = device.requestable_shared_bytes() / resident as usize;
        let places = shared.saturating_sub(combining) / (load_bytes * team.all_units() as usize);
        let most_each = in_flight + places as u64 / in_flight * in_flight;
        let most_cubes = device.most_waiting_units() / u64::from(team.all_units());
        let most = units.saturating_mul(most_each).saturating_mul(most_cubes);
        if loads > most {
            return Err(AppliedReason::TooLongToHold { loads, most });
        }

        let outputs_per_cube = self.plan(team, 1).schedule.outputs_per_cube();
        let blocks = self.access.output_tiles(problem).div_ceil(outputs_per_cube.into()).max(1);
        // Operands along rows come from the cache, which is one memory with the shared one:
        // rms_norm with a weight of bf16 8192 × 128256 took 1557 us in 8 cubes a row, and 1394 in
        // 16. Where results are narrower than the elements, instructions bound the time, and fewer
        // cubes execute fewer of them: rows with a weight to fp8 took, of bf16 833 × 131,072, 153
        // us in 8 cubes a row and 166 in 16, of f16 648 × 131,072 119 and 128, of 688 × 131,072 129
        // and 134, of bf16 92 × 524,288 75 in 32 cubes and 85 in 64.
        let is_narrow = self.applied.output().bytes() < problem.input().bytes();
        let each_beside_operands = match self.operands_along() {
            0 => most_each,
            _ if is_narrow => most_each,
            _ => most_each.min(2 * in_flight),
        };
        let cubes = (cubes_wanted(device, tuning.by_cubes_per_multiprocessor) / blocks)
            .min(loads.div_ceil(units))
            .max(loads.div_ceil(units * each_beside_operands))
            .clamp(2, most_cubes.max(2));
        let each = loads.div_ceil(units * cubes);
        // Loads in shared memory are a multiple of those in flight: one more in flight may waste
        // fewer.
        let in_flight = [in_flight, in_flight + 1]
            .into_iter()
            .map(|in_flight| in_flight.min(each))
            .filter(|in_flight| each.next_multiple_of(*in_flight) <= most_each)
            .min_by_key(|in_flight| each.next_multiple_of(*in_flight))
            .unwrap_or(in_flight);
        let in_shared = (each.next_multiple_of(in_flight) - in_flight) as usize;
        let plan = self.plan(team, in_flight as usize);
        Ok(AppliedPlan::Held { plan, in_shared, cubes_per_output: cubes as u32 })
    }

    /// Large cubes: fewer tiles are under way, and more of them in the cache. Columns that make
    /// cubes for half of the multiprocessors at most are read in half a segment by twice as many.
    ///
    /// On one H200, standardize of bf16 2048 × 4096 along axis 0 took 25.1 us in 64 cubes of 16 ×
    /// 16 units, and 18.8 in 128 of 32 × 8; l2_normalize of f32 1448 × 856 took 16.1 in 54 cubes of
    /// 128 × 4 units, and 21.4 where cubes share their tiles.
    fn read_again(&self) -> Plan {
        let (device, tuning, loads) = (self.device, self.tuning, self.loads());
        let segment = self.adjacent_tiles();
        let cubes = self.access.output_tiles(self.applied.problem()).div_ceil(segment.into());
        let is_few = !self.is_along() && 2 * cubes <= device.multiprocessors.into();
        let tiles = if is_few { (segment / 2).max(1) } else { segment };
        let most = tuning.read_again_units_per_cube.min(device.max_units_per_cube) / tiles;
        let in_flight = loads_of(tuning.read_again_bytes_in_flight, self.load_bytes()) as u64;
        let in_flight = in_flight.min(loads.next_power_of_two());
        let units = loads.div_ceil(in_flight).next_power_of_two().min(u64::from(most.max(1)));
        let each = accumulator_bytes(self.applied.problem(), self.access);
        let team = self
            .fitting(units as u32, tiles, |units| each * units * 2 <= device.shared_memory_bytes);
        self.plan(team, in_flight as usize)
    }

    /// A team of up to so many units. Across outputs, the accumulators of all of them lie in
    /// shared memory, so there are fewer until these fit.
    fn fitting(&self, units: u32, tiles: u32, fits: impl Fn(usize) -> bool) -> Team {
        let mut team = Team { units: floor_power_of_two(units.into()) as u32, tiles };
        while !self.is_along() && team.units > 1 && !fits(team.all_units() as usize) {
            team.units /= 2;
        }
        team
    }

    /// Units with a few loads each.
    pub(super) fn apply(&self) -> ApplyLaunch {
        self.apply_in_cubes_of(self.tuning.apply_units_per_cube)
    }

    /// [`apply`](Self::apply) in cubes of so many units at most.
    fn apply_in_cubes_of(&self, units: u32) -> ApplyLaunch {
        let most = units.min(self.device.max_units_per_cube);
        let most = floor_power_of_two(most.into());
        let adjacent = u64::from(self.adjacent_tiles()).min(most);
        let loads = self.loads();
        let in_flight = (self.tuning.apply_loads_in_flight as u64).min(loads);
        let wanted = loads.div_ceil(in_flight).next_power_of_two();
        let units = wanted.min(most / adjacent);
        let cubes = loads.div_ceil(units * in_flight).min(most_applying_cubes(most * in_flight));
        let access = self.access.with_loads_in_flight(in_flight as usize);
        let cubes = cubes as u32;
        ApplyLaunch::new(access, units as u32, (most / units) as u32, cubes)
    }

    /// [`apply`](Self::apply) for segments: each cube has a few blocks of neighbouring loads, among
    /// whose segments it searches.
    pub(super) fn apply_to_segments(&self) -> ApplyLaunch {
        let segments = &self.device.tuning.segments;
        let apply = self.apply_in_cubes_of(segments.applied_units_per_cube);
        let blocks = u64::from(segments.applied_blocks);
        let of_cube = u64::from(apply.units_per_output)
            .saturating_mul(apply.access.loads_in_flight as u64)
            .saturating_mul(blocks);
        let loads = u64::from(apply.units_per_cube()) * apply.access.loads_in_flight as u64;
        let cubes = self.loads().div_ceil(of_cube).clamp(1, most_applying_cubes(loads));
        ApplyLaunch { cubes_per_output: cubes as u32, ..apply }
    }

    /// Rate of a plan that holds its tiles, in percent of memory's.
    fn rate_of_held(&self, kind: AppliedKind, held: &Plan) -> u32 {
        let (tuning, problem) = (self.tuning, self.applied.problem());
        let narrow = problem.input().bytes() < size_of::<f32>();
        let together = self.reside_together(held);
        let of_kind = match kind {
            AppliedKind::HeldByCubes if narrow && problem.operator().fields > FEW_FIELDS => {
                tuning.by_cubes_narrow_rate_percent
            }
            AppliedKind::HeldByCubes => tuning.by_cubes_rate_percent,
            AppliedKind::HeldInShared if together => tuning.shared_beside_rate_percent,
            AppliedKind::HeldInShared => tuning.shared_rate_percent,
            _ if narrow
                && !together
                && self.may_reside_beside_others()
                && self.operands_along() == 0 =>
            {
                tuning.alone_narrow_rate_percent
            }
            _ => 100,
        };
        match kind {
            AppliedKind::HeldByCubes | AppliedKind::HeldInShared => {
                let beside = OPERAND_IN_SHARED_PERCENT * self.operands_along();
                of_kind * 100_u32.saturating_sub(beside).max(10) / 100
            }
            _ => of_kind,
        }
    }

    /// Operands that each row reads along it. Beside tiles in shared memory, the cache of a
    /// multiprocessor has no room for them: `rms_norm` with a weight of bf16 16384 × 32768 took 760
    /// us on one H200, and 644 in registers of 1024 units.
    fn operands_along(&self) -> u32 {
        let operands = self.applied.companions().len() - self.applied.further().len();
        let operands = self.applied.companions()[..operands].iter().skip(1);
        let along = |operand: &&Companion| operand.reduced.iter().any(|&stride| stride != 0);
        operands.filter(along).count() as u32
    }

    /// Nanoseconds in which cubes that share a tile publish their partials, and each merges those
    /// of all.
    ///
    /// On one H200, standardize of bf16 2048 × 4096 along axis 0 took 43 us in 16 cubes for each of
    /// 16 tiles, and 19 where tiles are read again; l2_normalize of f32 1448 × 856 21.4 and 16.1.
    fn sharing_ns(&self, plan: &Plan, cubes: u32) -> f64 {
        let profile = &self.device.profile;
        let bytes = accumulator_bytes(self.applied.problem(), plan.access);
        let words = bytes.div_ceil(size_of::<u32>()) as f64;
        let partials = f64::from(cubes) * f64::from(plan.schedule.outputs_per_cube()) * words;
        let each = partials / f64::from(plan.schedule.units_per_cube().max(1));
        let passes_ns = PASSES_OF_CUBES * profile.latency_ns as f64;
        // All cubes of a tile merge at once, so each word counts, and not each accumulator as in a
        // split, where one cube does: standardize of bf16 2048 × 4096 along axis 0 would be held by
        // 16 cubes for each tile.
        passes_ns + profile.publish_ns as f64 + each * profile.merge_ns as f64
    }

    /// What a plan should take. Memory is the limit, unless tiles are too few for all
    /// multiprocessors. The device waits for each launch.
    pub(super) fn estimate(&self, plan: &AppliedPlan) -> Estimate {
        let Self { applied, reduction, device, tuning, .. } = *self;
        let profile = &device.profile;
        let launch_ns = profile.launch_ns as f64;
        let bytes_per_ns = profile.bandwidth.max(1) as f64 * 1e-9;
        let (moved, read) = (applied.bytes() as f64, applied.read_bytes() as f64);
        let multiprocessors = f64::from(device.multiprocessors.max(1));
        let occupied = |plan: &Plan, cubes_per_output: u32| {
            let cubes = plan.cubes(applied.problem()) as f64 * f64::from(cubes_per_output);
            (cubes / multiprocessors).min(1.0)
        };
        match *plan {
            AppliedPlan::Held { plan: held, cubes_per_output: cubes, .. } => {
                let rate = self.rate_of_held(plan.kind(), &held);
                let waiting_ns = if cubes > 1 { self.sharing_ns(&held, cubes) } else { 0.0 };
                let transfer_ns = moved / bytes_per_ns / occupied(&held, cubes);
                Estimate::streamed(
                    launch_ns,
                    launch_ns,
                    waiting_ns,
                    transfer_ns,
                    from_percent(rate),
                )
            }
            AppliedPlan::ReadAgain(plan) => {
                let cubes = plan.cubes(applied.problem()) as f64;
                // With their loads in flight, units take more than a unit's share of the
                // registers.
                let resident = f64::from(device.units_per_multiprocessor)
                    / f64::from(2 * plan.schedule.units_per_cube().max(1));
                let under_way = cubes.min(multiprocessors * resident.max(1.0));
                let cached = read / cubes.max(1.0) * under_way
                    <= device.cache_bytes as f64 * from_percent(tuning.cached_percent);
                let again = if cached { from_percent(tuning.cached_read_percent) } else { 1.0 };
                // Operands take cache, and time of their own.
                let beside = match self.operands_along() {
                    0 => 1.0,
                    _ => from_percent(READ_AGAIN_BESIDE_OPERANDS_PERCENT),
                };
                let transfer_ns =
                    beside * (moved + again * read) / bytes_per_ns / occupied(&plan, 1);
                Estimate::streamed(launch_ns, launch_ns, 0.0, transfer_ns, 1.0)
            }
            AppliedPlan::Separately { .. } | AppliedPlan::Segments { .. } => {
                let reduce = match (plan, applied.segments()) {
                    (AppliedPlan::Separately { reduce, .. }, _) => {
                        reduce.estimate(reduction, device)
                    }
                    (AppliedPlan::Segments { reduce, .. }, Some(segments)) => {
                        reduce.estimate(segments, device)
                    }
                    _ => Estimate::streamed(0.0, 0.0, 0.0, 0.0, 1.0),
                };
                let launch_ns = reduce.launch_ns + launch_ns;
                let transfer_ns = moved / bytes_per_ns;
                Estimate {
                    launch_ns,
                    gap_ns: launch_ns + reduce.gap_ns,
                    transfer_ns: reduce.transfer_ns + transfer_ns,
                    together_ns: reduce.together_ns + transfer_ns,
                    ..reduce
                }
            }
        }
    }
}

/// Most cubes that apply results to one output tile, if each has so many loads at a time: all of
/// them advance by no more loads than indices have room for.
fn most_applying_cubes(loads: u64) -> u64 {
    (INDEX_SLACK / loads.max(1)).clamp(1, MOST_APPLYING_CUBES)
}

/// How so many units share a tile, among those of a cube.
pub(super) fn schedule_of(
    units: u32,
    units_per_cube: u32,
    direction: Direction,
    device: &Device,
) -> Schedule {
    let lanes = device.plane_size_min;
    let by_planes = direction == Direction::Along && device.plane_operations;
    let outputs_per_cube = units_per_cube / units.max(1);
    match units {
        1 => Schedule::Unit { units_per_cube },
        _ if by_planes && units <= lanes && units_per_cube >= lanes => {
            Schedule::Plane { lanes_per_output: units, units_per_cube }
        }
        _ => {
            let combine = match by_planes && units > lanes {
                true => Combine::Plane { lanes },
                false => Combine::Shared,
            };
            Schedule::Cube { units_per_output: units, outputs_per_cube, combine }
        }
    }
}

/// Loads of so many bytes each that a unit has for `bytes`.
fn loads_of(bytes: usize, load_bytes: usize) -> usize {
    (bytes / load_bytes).clamp(1, Access::MOST_LOADS_IN_FLIGHT)
}
