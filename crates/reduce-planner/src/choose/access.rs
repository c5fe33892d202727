//! How the input is read: the direction, the length of vectors, and how much is in flight.

use super::sizing::{FEW_FIELDS, cubes_wanted, is_long, row, rows_share_lines, takes_more_loads};
use crate::{
    device::Device,
    element::ElementType,
    kind::ScheduleKind,
    plan::{
        Access, Plan, Schedule,
        check::{check_access, check_listed, check_outputs_in_flight},
        div_ceil,
    },
    problem::{Companion, Direction, ElementCost, Problem},
};

impl Access {
    /// Size of the widest store of one unit, in bytes.
    pub const WIDEST_STORE: usize = 16;

    /// The widest access that the problem's layout and the device allow.
    ///
    /// Vectors lie along the dimension that is contiguous in memory. An inner dimension that is not
    /// a whole number of vectors is peeled if it is long, and takes shorter vectors otherwise.
    #[must_use]
    pub fn widest(problem: &Problem, device: &Device) -> Self {
        Self::widest_up_to(device.load_bytes, true, problem, device)
    }

    /// [`widest`](Self::widest) with loads of up to so many bytes, which are at most the device's.
    /// Heads and tails of inner dimensions are peeled only where they may be.
    pub(crate) fn widest_up_to(
        load_bytes: usize,
        may_peel: bool,
        problem: &Problem,
        device: &Device,
    ) -> Self {
        let direction = problem.direction();
        let widest = vector_up_to(load_bytes, problem, device);
        let mut vector = widest;
        while vector > 1 {
            let loads = loads_in_flight(problem, device, direction, vector);
            for peeled in [false, true].into_iter().filter(|&peeled| may_peel || !peeled) {
                let access = Self::new(direction)
                    .with_vector(vector)
                    .with_peeled(peeled)
                    .with_loads_in_flight(loads);
                let least = widest.saturating_mul(device.tuning.peeled_inner_vectors);
                let pays =
                    direction == Direction::Across || !peeled || access.inner_len(problem) >= least;
                if pays && check_access(access, problem, device).is_ok() {
                    return access;
                }
            }
            vector /= 2;
        }
        Self::new(direction).with_loads_in_flight(loads_in_flight(problem, device, direction, 1))
    }

    /// The access for a tensor of a list: the widest vectors, or single elements. Kernels for lists
    /// read what does not fill a vector at the end of each inner dimension on their own.
    pub(crate) fn for_list(problem: &Problem, device: &Device) -> Self {
        let direction = Direction::Along;
        let with = |vector: usize| {
            let loads = loads_in_flight(problem, device, direction, vector);
            Self::new(direction).with_vector(vector).with_loads_in_flight(loads)
        };
        let widest = with(widest_vector(problem, device));
        if check_listed(widest, problem, device).is_ok() { widest } else { with(1) }
    }

    /// [`for_list`](Self::for_list) for a tensor that results are applied to. Its positions are
    /// offsets in the output, whose vectors must lie as those of the input do.
    pub(crate) fn for_applied_list(problem: &Problem, device: &Device) -> Self {
        let access = Self::for_list(problem, device);
        let aligned = Self::output_takes_vectors(problem, access.vector);
        let vector = if aligned { access.vector } else { 1 };
        let loads = device.tuning.applied.apply_loads_in_flight.min(Self::MOST_LOADS_IN_FLIGHT);
        access.with_vector(vector).with_loads_in_flight(loads)
    }

    /// Whether the output of a tensor of a list takes vectors of this length: it lies without gaps
    /// along the inner dimension, and its rows begin at a multiple of the length.
    pub(crate) fn output_takes_vectors(problem: &Problem, vector: usize) -> bool {
        let Some((inner, outer)) = problem.reduced().split_last() else { return true };
        let mut strides = outer.iter().map(|dim| dim.position_stride);
        vector == 1
            || inner.position_stride == 1 && strides.all(|stride| stride.is_multiple_of(vector))
    }

    /// Whether vectors of this access, of elements of this type, lie in a companion as those of the
    /// input do, and fit one load or store. The companion begins at a multiple of so many bytes.
    ///
    /// Loads of realigned rows begin at whole vectors of each row, as if the input were aligned.
    #[must_use]
    pub fn suits(
        self,
        problem: &Problem,
        companion: &Companion,
        element: ElementType,
        alignment: usize,
    ) -> bool {
        let kept: Vec<usize> = problem.kept().iter().map(|dim| dim.stride).collect();
        let reduced: Vec<usize> = problem.reduced().iter().map(|dim| dim.stride).collect();
        let alike = |own: &[usize], input: &[usize]| {
            let beside = |input: usize| if self.realigned { 0 } else { input % self.vector };
            own.iter().zip(input).all(|(own, &input)| own % self.vector == beside(input))
        };
        let without_last = |strides: &[usize]| strides.len().saturating_sub(1);
        let (outer_kept, outer_reduced) = match self.direction {
            Direction::Along => (kept.len(), without_last(&reduced)),
            Direction::Across => (without_last(&kept), reduced.len()),
        };
        let bytes = self.vector * element.bytes();
        self.vector > 1
            && bytes <= Self::WIDEST_STORE
            && alignment.is_multiple_of(bytes)
            && companion.inner(self.direction) == Some(1)
            && (companion.kept.get(..outer_kept)).is_some_and(|own| alike(own, &kept[..outer_kept]))
            && (companion.reduced.get(..outer_reduced))
                .is_some_and(|own| alike(own, &reduced[..outer_reduced]))
    }

    /// The access with realigned rows, where vectors as wide as the device's do not lie in all rows
    /// alike. Across outputs, only cubes can have it.
    #[must_use]
    pub fn realigned(problem: &Problem, device: &Device) -> Option<Self> {
        match problem.direction() {
            Direction::Along => Self::realigned_along(device.load_bytes, problem, device),
            Direction::Across => Self::widest(problem, device).widened(problem, device),
        }
    }

    /// [`realigned`](Self::realigned) along the reduction, with loads of up to so many bytes.
    fn realigned_along(load_bytes: usize, problem: &Problem, device: &Device) -> Option<Self> {
        let direction = Direction::Along;
        let vector = vector_up_to(load_bytes, problem, device);
        let loads = loads_in_flight(problem, device, direction, vector);
        let plain = Self::new(direction).with_vector(vector).with_loads_in_flight(loads);
        let realigned = plain.with_realigned(true);
        let needed = check_access(plain, problem, device).is_err();
        (needed && check_access(realigned, problem, device).is_ok()).then_some(realigned)
    }

    /// The widest access in which the component and the load of an element follow from its position
    /// in the reduction. Where no vector divides all rows along the reduction, long ones are
    /// realigned if they may be. Peeled heads have another length in each row.
    pub(crate) fn by_position(
        load_bytes: usize,
        may_realign: bool,
        problem: &Problem,
        device: &Device,
    ) -> Self {
        let may_peel = problem.direction() == Direction::Across;
        let widest = Self::widest_up_to(load_bytes, may_peel, problem, device);
        if may_peel || widest.vector > 1 || !may_realign {
            return widest;
        }
        let realigned = Self::realigned_along(load_bytes, problem, device);
        let long = |access: &Self| {
            let least = access.vector.saturating_mul(device.tuning.peeled_inner_vectors);
            access.inner_len(problem) >= least
        };
        realigned.filter(long).unwrap_or(widest)
    }

    /// Elements of a boundary at which rows along the reduction begin in problems that this is the
    /// access of. Rows that are realigned, or peeled along the reduction, begin anywhere.
    pub(crate) const fn rows_aligned_to(&self) -> usize {
        let peeled = self.peeled && matches!(self.direction, Direction::Along);
        if self.realigned || peeled { 1 } else { self.vector }
    }

    /// Across outputs, the access with realigned rows in place of this one, the widest without.
    pub(super) fn widened(self, problem: &Problem, device: &Device) -> Option<Self> {
        let vector = widest_vector(problem, device);
        let second = problem.second().is_some();
        if second || self.direction == Direction::Along || self.vector == vector {
            return None;
        }
        let loads = loads_in_flight(problem, device, self.direction, vector);
        let access = Self::new(self.direction)
            .with_vector(vector)
            .with_realigned(true)
            .with_loads_in_flight(loads);
        check_access(access, problem, device).is_ok().then_some(access)
    }

    /// Across outputs, the access in vectors of twice the length, where accumulators have many
    /// fields and long rows begin inside lines of the cache, which fewer segments then share. It
    /// serves splits whose cubes all reside together, of which a multiprocessor has two.
    pub(super) fn doubled(self, problem: &Problem, device: &Device) -> Option<Self> {
        let access = self.with_vector(2 * self.vector).with_loads_in_flight(DOUBLED_LOADS);
        let many = problem.operator().fields > FEW_FIELDS && problem.second().is_none();
        let fits = access.vector * problem.input().bytes() <= device.load_bytes
            && access.vector <= device.max_vector;
        let wide = problem.input().bytes() == size_of::<f32>() && self.vector > 1;
        let least = device.tuning.doubled_columns;
        let long = self.inner_len(problem) >= least && rows_share_lines(problem, device);
        (many && wide && long && fits && check_access(access, problem, device).is_ok())
            .then_some(access)
    }

    /// Whether vectors are longer than usual ([`doubled`](Self::doubled)).
    pub(super) fn is_doubled(self, problem: &Problem, device: &Device) -> bool {
        self.direction == Direction::Across
            && !self.realigned
            && self.vector > widest_vector(problem, device)
    }

    /// Along the reduction, the access in single elements in place of this one, if that leaves
    /// edges of rows. Elements are no narrower than what a plane needs to read a whole line.
    pub(super) fn without_edges(self, problem: &Problem) -> Option<Self> {
        let wide = problem.input().bytes() >= size_of::<f32>();
        let plain = Self::new(self.direction).with_loads_in_flight(SINGLE_LOADS);
        (self.peeled && wide && problem.second().is_none()).then_some(plain)
    }

    /// The access for a split: its cubes reside together, which leaves registers for fewer loads
    /// across outputs. Along the reduction they are so few that each needs more pairs in flight. On
    /// one H200, the Kullback-Leibler divergence of 2²⁶ f32 took 151 us with 2 loads of each input
    /// in 396 cubes of 512 units, and 136 with 4 in 264.
    pub(super) fn for_split(self, problem: &Problem, device: &Device) -> Self {
        if self.direction == Direction::Along {
            let pairs = halves_loads(problem) && problem.operator().fields == 1;
            let load_bytes = self.vector * problem.input().bytes();
            let least = match problem.second() {
                None => device.tuning.split_bytes_in_flight_along / load_bytes,
                Some(_) => 1,
            };
            let loads = if pairs { 2 * self.loads_in_flight } else { self.loads_in_flight };
            let loads = loads.max(least);
            return self.with_loads_in_flight(loads.min(Self::MOST_LOADS_IN_FLIGHT));
        }
        // Two inputs have them together: the dot product of bf16 65,536 × 1024 along axis 0 took
        // 66.4 us with as many bytes of each, and 64.1 with half.
        let inputs = if problem.second().is_some() { 2 } else { 1 };
        let bytes = device.tuning.split_bytes_in_flight_across / inputs;
        let most = (bytes / (self.vector * problem.input().bytes())).max(1);
        self.with_loads_in_flight(self.loads_in_flight.min(most))
    }

    /// The access for one schedule: no more loads in flight than a unit has for an output, and
    /// several outputs in flight where that leaves room.
    pub(super) fn fitted(self, problem: &Problem, device: &Device, schedule: Schedule) -> Self {
        let row = row(problem, device);
        let units = schedule.all_units_per_output();
        let loads = div_ceil(self.loads_per_output(problem), units.max(1));
        let most = match (schedule.kind(), row.plane_bytes_in_flight) {
            (ScheduleKind::Plane, Some(bytes)) => {
                let most = bytes / (self.vector * problem.input().bytes());
                self.loads_in_flight.min(most.max(1))
            }
            (ScheduleKind::Split, _) => {
                let split = self.for_split(problem, device).loads_in_flight;
                let long = self.direction == Direction::Along
                    && is_long(problem, device, schedule.cubes_per_output());
                if long { split.max(LONG_SPLIT_LOADS) } else { split }
            }
            _ => self.loads_in_flight,
        };
        let more = self.direction == Direction::Along
            && schedule.kind() == ScheduleKind::Cube
            && takes_more_loads(problem);
        let most = if more { (2 * most).min(Self::MOST_LOADS_IN_FLIGHT) } else { most };
        let single = self.direction == Direction::Along && self.vector == 1;
        let alone = single && schedule.kind() == ScheduleKind::Unit;
        let narrow = problem.input().bytes() < size_of::<f32>();
        let most = if alone && narrow {
            most.min(NARROW_SINGLE_LOADS)
        } else if single {
            most.min(SINGLE_LOADS)
        } else {
            most
        };
        let in_flight = if alone {
            // Each load asks whether it exists, so a unit has as many as make full rounds, and no
            // power of two. Sums of f32 9,000,001 × 5 along axis 1 took 51.3 us on one H200 with 5
            // for each of 2 outputs, and 54.4 with 8.
            let rounds = div_ceil(loads.max(1), most as u64);
            div_ceil(loads.max(1), rounds) as usize
        } else {
            (most as u64).min(loads.max(1).next_power_of_two()) as usize
        };
        let mut fitted = self.with_loads_in_flight(in_flight);

        // A unit stores vectors of outputs one at a time.
        let one_at_a_time = self.direction == Direction::Across
            && self.vector > 1
            && schedule.kind() == ScheduleKind::Unit;
        if one_at_a_time {
            return fitted;
        }
        let each = device.tuning.several_outputs_cubes_per_multiprocessor;
        let cubes_needed = cubes_wanted(device, each);
        loop {
            let outputs = 2 * fitted.outputs_in_flight;
            let doubled = fitted.with_outputs_in_flight(outputs);
            if outputs > row.accumulator.outputs_in_flight
                || outputs * in_flight > self.loads_in_flight
                || check_outputs_in_flight(doubled, schedule, problem).is_err()
                || Plan::new(fitted, schedule).cubes(problem) / 2 < cubes_needed
            {
                return fitted;
            }
            fitted = doubled;
        }
    }
}

/// Elements of the widest load that serves the problem.
pub(super) fn widest_vector(problem: &Problem, device: &Device) -> usize {
    vector_up_to(device.load_bytes, problem, device)
}

/// [`widest_vector`] with loads of up to so many bytes.
fn vector_up_to(load_bytes: usize, problem: &Problem, device: &Device) -> usize {
    let widest = (load_bytes / problem.input().bytes()).min(device.max_vector).max(1);
    match problem.direction() {
        Direction::Across => match problem.operator().fields {
            0..=1 => widest,
            2..=FEW_FIELDS => widest.min(device.tuning.across_components),
            _ => {
                // A load of as many bytes, whatever the elements.
                let narrower = size_of::<f32>() / problem.input().bytes().min(size_of::<f32>());
                let components = device.tuning.across_components_many_fields * narrower.min(2);
                widest.min(components)
            }
        },
        Direction::Along => widest,
    }
}

/// Loads in flight of vectors of twice the usual length. var of f32 20,000 × 5000 along axis 0 took
/// 101.9 us on one H200 with 8 in 3 cubes of 16 units for each of 16 tiles, 116.9 with 4, and 112.3
/// in usual vectors; of 12,000 × 6000, 76.8 with 8 in 2 cubes, and 82.8 in usual vectors.
const DOUBLED_LOADS: usize = 8;

/// Loads in flight where several cubes share very long rows.
const LONG_SPLIT_LOADS: usize = 8;

/// Most single elements of an output in flight along the reduction. On one H200, var of bf16 158 ×
/// 19,082 × 17 along axis 2 took 59.6 us with 8 of them in one unit, and 75.6 with 16; in 2 lanes,
/// 98.9 and 112.2. `sum_and_dot` of f16 293,656 × 6 × 49 over axes 0 and 2 took 123.8 and 152.2,
/// sums of f32 65,536 × 289 and 262,144 × 135 along axis 1 23.5 and 25.2, 37.4 and 38.8. A trial in
/// CUDA C++ took 72.8 us for sums of f32 7777 × 9999 along axis 1 with 8 in cubes of 512 units, and
/// 73.5 with 4.
const SINGLE_LOADS: usize = 8;

/// The same for elements below 4 bytes of a row that a unit has alone. On one H200,
/// `any_non_finite` of bf16 37,044,099 × 11 along axis 1 took 257 us with 11, 294 with 6, and 377
/// with 8; sums of f16 20,000,001 × 9 114 with 9, 121 with 5, and 143 with 8; var of bf16 158 ×
/// 19,082 × 17 along axis 2 50.0 with 9, 51.4 with 6, and 59.8 with 8.
const NARROW_SINGLE_LOADS: usize = 16;

/// Most tiles for each multiprocessor of columns of pairs whose cubes are few: those of one cube.
const PAIR_TILES: usize = 16;

/// Loads of `vector` elements that keep enough bytes in flight and leave registers for
/// accumulators.
fn loads_in_flight(
    problem: &Problem,
    device: &Device,
    direction: Direction,
    vector: usize,
) -> usize {
    let row = row(problem, device).accumulator;
    let load_bytes = vector * problem.input().bytes();
    let least = device.tuning.least_loads_in_flight.min(Access::MOST_LOADS_IN_FLIGHT);
    let (bytes, most) = match direction {
        Direction::Along => {
            let most = row.elements_in_flight_along / vector;
            (row.bytes_in_flight_along, most.max(least).min(Access::MOST_LOADS_IN_FLIGHT))
        }
        Direction::Across => {
            // Narrow elements take half the registers until they are converted. var of bf16 8192 ×
            // 8192 along axis 0 took 51.9 us on one H200 with 8 loads of 4, and 45.7 with 16.
            // Single elements do not: mean_var of bf16 17 × 194,763 × 7 along axis 0 took 31.1 us
            // with 8, and 36.1 with 16.
            //
            // Narrow pairs have twice as many too, where cubes are few: the dot product and two
            // sums of bf16 8192 × 8192 along axis 0 took 67.5 us with the loads of f32, and 63.1
            // and 64.1 with twice as many. Where cubes are many, the dot product of 64 × 1024 ×
            // 2048 along axis 1 took 121.8 and 129.2. How many they are, batch-invariant plans may
            // not ask.
            let is_narrow = problem.input().bytes() < size_of::<f32>() && vector > 1;
            let tiles = problem.outputs() / vector;
            let has_few_cubes = tiles <= device.multiprocessors as usize * PAIR_TILES;
            let is_pair = problem.second().is_some() && !problem.numerics().is_batch_invariant();
            let doubles = problem.operator().fields > FEW_FIELDS || is_pair && has_few_cubes;
            let times = if is_narrow && doubles { 2 } else { 1 };
            let most = (times * row.loads_in_flight_across).max(least);
            let bytes = match has_loads_of_sums(problem, vector) {
                true => device.tuning.light.bytes_in_flight_across,
                false => times * row.bytes_in_flight_across,
            };
            (bytes, most.min(Access::MOST_LOADS_IN_FLIGHT))
        }
    };
    let inputs = if halves_loads(problem) { 2 } else { 1 };
    (bytes / inputs / load_bytes).clamp(least, most)
}

/// Whether columns of pairs have the loads of one sum in flight though their operator is
/// transcendental: vectors of elements of four bytes and more, in one field. On one H200, the
/// divergence of f32 8192 × 8192 along axis 0 took 131.9 us with 2 loads of each input and 125.1 with
/// 4, of 64 × 1024 × 1024 along axis 1 128.3 and 123.4, and of 2000 × 20,000 along axis 0 95.9 and
/// 79.8.
fn has_loads_of_sums(problem: &Problem, vector: usize) -> bool {
    let operator = problem.operator();
    let is_one = operator.fields == 1 && operator.element_cost.is_transcendental();
    let is_wide = problem.input().bytes() >= size_of::<f32>() && vector > 1;
    problem.second().is_some() && is_one && is_wide
}

/// Whether half as many loads are in flight as of one input: a load of the second input goes with
/// each of the first. The dot product of 2²⁶ f32 took 126 us on one H200 with 2 loads of each, and
/// 127 with 4; their covariance took 132 us with 4, and 151 with 8.
///
/// Two sums do better with twice as many: `sum_and_dot` of f32 64 × 256 × 56 × 56 over axes 0, 2, 3
/// took 97 us with 4, and 102 with 2. So does one field of narrow elements along the reduction,
/// which take half the registers until they are converted: a mean squared error of bf16 8192 × 8192
/// took 61.9 us with 4 in cubes of 128 units, and 62.9 with 2; in planes, 62.9 and 67.7.
fn halves_loads(problem: &Problem) -> bool {
    let operator = problem.operator();
    let is_light = operator.fields == 1
        && operator.element_cost == ElementCost::Plain
        && problem.input().bytes() < size_of::<f32>()
        && problem.direction() == Direction::Along;
    problem.second().is_some() && operator.fields != 2 && !is_light
}
