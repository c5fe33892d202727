//! The walk of the kernels over a problem, on the host: which unit loads which elements for which
//! output, and who writes it. It follows `reduce-kernels/src/kernels`: `single_pass.rs` and
//! `split_two_pass.rs` (cubes), `team.rs` (units), `geometry.rs` (tiles), `accumulate.rs` (rounds),
//! `load.rs` and `realign.rs` (addresses).

use reduce_planner::{Access, Candidate, Device, Direction, Plan, Problem, Schedule, candidates};

use super::{Bytes, beside, resized, small_case};

/// Extent, stride in the input, and stride in the output or in the order of positions.
type Dim = (usize, usize, usize);

/// The offsets of a row-major index over `dims` in the input and in the target.
fn offsets(dims: &[Dim], index: usize) -> (usize, usize) {
    let (mut rest, mut input, mut target) = (index, 0, 0);
    for (nth, &(extent, stride, target_stride)) in dims.iter().enumerate().rev() {
        let coordinate = if nth == 0 { rest } else { rest % extent };
        rest /= extent.max(1);
        input += coordinate * stride;
        target += coordinate * target_stride;
    }
    (input, target)
}

/// A problem as kernels see it: the inner dimension is apart from the others.
struct Geometry {
    kept: Vec<Dim>,
    reduced: Vec<Dim>,
    inner: Dim,
    loads_per_inner: usize,
    tiles: usize,
    loads_per_tile: usize,
    /// Outputs of a block of a realigned row.
    outputs_per_block: usize,
    tiles_per_cube: usize,
}

impl Geometry {
    fn of(problem: &Problem, plan: &Plan) -> Self {
        let access = plan.access;
        let kept = problem.kept().iter().map(|dim| (dim.extent, dim.stride, dim.output_stride));
        let reduced =
            problem.reduced().iter().map(|dim| (dim.extent, dim.stride, dim.position_stride));
        let (mut kept, mut reduced): (Vec<Dim>, Vec<Dim>) = (kept.collect(), reduced.collect());
        let inner = match access.direction {
            Direction::Along => reduced.pop().unwrap_or((1, 1, 0)),
            Direction::Across => kept.pop().unwrap_or((1, 1, 1)),
        };
        let tiles_per_cube = plan.schedule.outputs_per_cube();
        let across = access.realigns_across();
        let blocks = across.then(|| access.realigned_blocks(problem, tiles_per_cube));
        let loads = match (access.direction, blocks) {
            (Direction::Along, _) => access.whole_loads(inner.0),
            (Direction::Across, None) => inner.0.div_ceil(access.vector),
            (Direction::Across, Some(blocks)) => blocks.per_row * tiles_per_cube as usize,
        };
        Self {
            kept,
            reduced,
            inner,
            loads_per_inner: loads.max(1),
            tiles: plan.output_tiles(problem) as usize,
            loads_per_tile: access.loads_per_output(problem) as usize,
            outputs_per_block: blocks.map_or(0, |blocks| blocks.outputs),
            tiles_per_cube: tiles_per_cube as usize,
        }
    }
}

/// A unit's tile.
#[derive(Clone, Copy)]
struct Tile {
    /// Offset of the first element.
    input: usize,
    /// Offset of the first result.
    output: usize,
    /// Number of the first result.
    index: usize,
    /// Results that member 0 writes.
    results: usize,
    /// Whether what is loaded for it counts: it is a tile of the problem, not the last one again,
    /// and the load is not another one again.
    counts: bool,
    /// The row, the first output of the block in it, the outputs of the block before the tile, and
    /// the outputs of the block.
    row: usize,
    first: usize,
    before: usize,
    outputs: usize,
}

/// How often each element was loaded for each output, and how often each output was written.
struct Walk<'a> {
    problem: &'a Problem,
    plan: Plan,
    geometry: Geometry,
    /// Where each output lies: its first element in the input, and its result.
    outputs: Vec<(usize, usize)>,
    /// Where each element lies behind the first of its output.
    elements: Vec<usize>,
    loaded: Vec<u8>,
    written: Vec<u8>,
}

/// Asserts that the units of a legal plan load each element exactly once for its output, from its
/// place and never from outside of the input, and write each output exactly once. Returns false,
/// without a walk, for plans of more than `most` units or elements.
fn assert_covers(plan: Plan, problem: &Problem, device: &Device, most: u64) -> bool {
    let schedule = plan.schedule;
    let cubes = plan.cubes(problem);
    let elements = (problem.outputs() as u64).saturating_mul(problem.reduction_len() as u64);
    if cubes.saturating_mul(schedule.units_per_cube().into()) > most || elements > most {
        return false;
    }
    if problem.outputs() == 0 {
        return true;
    }
    let kept = problem.kept().iter().map(|dim| (dim.extent, dim.stride, dim.output_stride));
    let kept: Vec<Dim> = kept.collect();
    let reduced = problem.reduced().iter().map(|dim| (dim.extent, dim.stride, 0));
    let reduced: Vec<Dim> = reduced.collect();
    let mut walk = Walk {
        problem,
        plan,
        geometry: Geometry::of(problem, &plan),
        outputs: (0..problem.outputs()).map(|output| offsets(&kept, output)).collect(),
        elements: (0..problem.reduction_len()).map(|at| offsets(&reduced, at).0).collect(),
        loaded: vec![0; elements as usize],
        written: vec![0; problem.outputs()],
    };
    let grid: u64 = device.grid(cubes).unwrap().into_iter().map(u64::from).product();
    for cube in 0..grid as usize {
        for unit in 0..schedule.units_per_cube() as usize {
            walk.unit(cube, unit, device);
        }
    }
    let once = |counts: &[u8]| counts.iter().position(|&count| count != 1);
    if let Some(at) = once(&walk.loaded) {
        let times = walk.loaded[at];
        let (output, element) = (at / problem.reduction_len(), at % problem.reduction_len());
        panic!("{plan} loads element {element} of output {output} {times} times: {problem}");
    }
    if let Some(output) = once(&walk.written) {
        let times = walk.written[output];
        panic!("{plan} writes output {output} {times} times: {problem}");
    }
    true
}

/// Walks all candidates of a small problem on a random device, and legal plans beside them, such as
/// a file may have. `walked` learns of each plan. Every candidate has to be legal.
pub(crate) fn walk_case(bytes: &mut Bytes<'_>, most: u64, mut walked: impl FnMut(Plan)) {
    let Some((problem, device)) = small_case(bytes) else { return };
    let Ok(candidates) = candidates(&problem, &device) else { return };
    for Candidate { plan, .. } in candidates {
        plan.check(&problem, &device).unwrap();
        for plan in [plan, beside(bytes, plan), resized(bytes, plan)] {
            let legal = plan.check(&problem, &device).is_ok();
            if legal && assert_covers(plan, &problem, &device, most) {
                walked(plan);
            }
        }
    }
}

impl Walk<'_> {
    fn unit(&mut self, cube: usize, unit: usize, device: &Device) {
        let Plan { access, schedule, .. } = self.plan;
        let units = schedule.units_per_output() as usize;
        // Neighbouring members lie as many positions apart as there are adjacent tiles.
        let adjacent = match (access.direction, schedule) {
            (Direction::Along, _) => 1,
            (Direction::Across, Schedule::Plane { .. }) => device.plane_size_min as usize / units,
            (Direction::Across, _) => self.geometry.tiles_per_cube,
        };
        let member = unit / adjacent % units;
        let in_cube = unit % adjacent + unit / (adjacent * units) * adjacent;
        let tiles = self.geometry.tiles_per_cube;
        if access.outputs_in_flight > 1 {
            // A unit without loads repeats those of another.
            let other = member.min(self.geometry.loads_per_tile - 1);
            for nth in 0..access.outputs_in_flight {
                let number = cube * tiles * access.outputs_in_flight + in_cube + nth * tiles;
                let tile = self.locate(number);
                for k in 0..access.loads_in_flight {
                    self.load_inside(tile, in_cube, member + k * units, other, member);
                }
                self.write(tile, member == 0);
            }
            return;
        }
        let cubes = schedule.cubes_per_output() as usize;
        let tile = self.locate(cube / cubes * tiles + in_cube);
        let cube_of_tile = cube % cubes;
        let (first, stride) = (cube_of_tile * units + member, cubes * units);
        // Whole blocks of loads in flight, then at most one more block.
        let block = stride * access.loads_in_flight;
        let missing =
            access.realigns_across() || access.peeled && access.direction == Direction::Along;
        let surely = self.geometry.loads_per_tile.saturating_sub(usize::from(missing));
        let whole_blocks = surely / block;
        for nth in 0..whole_blocks {
            for k in 0..access.loads_in_flight {
                self.load(tile, in_cube, first + nth * block + k * stride, first);
            }
        }
        let rest = first + whole_blocks * block;
        if rest < self.geometry.loads_per_tile {
            for k in 0..access.loads_in_flight {
                self.load_inside(tile, in_cube, rest + k * stride, rest, first);
            }
        }
        let ends = access.peeled || access.realigned;
        if ends && access.direction == Direction::Along {
            let slots_of_inner = 2 * access.vector;
            let inner_len = self.geometry.inner.0.max(1);
            let slots = self.problem.reduction_len() / inner_len * slots_of_inner;
            match access.realigned && !self.problem.operator().blockwise {
                true => self.rests(tile, first, stride),
                false => (first..slots).step_by(stride).for_each(|slot| self.edge(tile, slot)),
            }
        }
        self.write(tile, member == 0 && cube_of_tile == 0);
    }

    /// The tile of this number, or the last one without results.
    fn locate(&self, number: usize) -> Tile {
        let geometry = &self.geometry;
        let Access { direction, vector, realigned, .. } = self.plan.access;
        let (tile, inside) = (number.min(geometry.tiles - 1), number < geometry.tiles);
        let none = Tile {
            input: 0,
            output: 0,
            index: tile,
            results: usize::from(inside),
            counts: inside,
            row: tile,
            first: 0,
            before: 0,
            outputs: 1,
        };
        if direction == Direction::Along {
            let (input, output) = offsets(&geometry.kept, tile);
            return Tile { input, output, ..none };
        }
        let (inner_len, stride, output_stride) = geometry.inner;
        let (row, load) = (tile / geometry.loads_per_inner, tile % geometry.loads_per_inner);
        let (input, output) = offsets(&geometry.kept, row);
        let (first, before, outputs) = match realigned {
            true => {
                let first = load / geometry.tiles_per_cube * geometry.outputs_per_block;
                let outputs = (inner_len - first).min(geometry.outputs_per_block);
                (first, load % geometry.tiles_per_cube * vector, outputs)
            }
            false => (0, load * vector, inner_len),
        };
        let column = first + before;
        let results = outputs.saturating_sub(before).min(vector);
        Tile {
            input: input + column * stride,
            output: output + column * output_stride,
            index: row * inner_len + column,
            results: if inside { results } else { 0 },
            counts: inside,
            row,
            first,
            before,
            outputs,
        }
    }

    /// Load number `nth` of a tile, or load `other` once more if there is no such load.
    fn load_inside(&mut self, tile: Tile, in_cube: usize, nth: usize, other: usize, first: usize) {
        match nth < self.geometry.loads_per_tile {
            true => self.load(tile, in_cube, nth, first),
            false => self.load(Tile { counts: false, ..tile }, in_cube, other, first),
        }
    }

    /// Load number `nth` of a tile, by a unit whose share starts with load `first`.
    fn load(&mut self, tile: Tile, in_cube: usize, nth: usize, first: usize) {
        match (self.plan.access.direction, self.plan.access.realigned) {
            (Direction::Along, _) => self.load_along(tile, nth),
            (Direction::Across, false) => self.load_across(tile, nth),
            (Direction::Across, true) => self.load_realigned(tile, in_cube, nth, first),
        }
    }

    fn load_along(&mut self, tile: Tile, nth: usize) {
        let Access { vector, peeled, realigned, .. } = self.plan.access;
        let (inner_len, inner_stride, _) = self.geometry.inner;
        let outer_dims = self.geometry.reduced.len();
        let (outer, slot) = match outer_dims {
            0 => (0, nth),
            _ => (nth / self.geometry.loads_per_inner, nth % self.geometry.loads_per_inner),
        };
        let start = tile.input + offsets(&self.geometry.reduced, outer).0;
        let (at, element, valid) = if peeled {
            let first = start.div_ceil(vector);
            let valid = (first + slot + 1) * vector <= start + inner_len;
            assert!(valid || outer_dims > 0 || nth + 1 == self.geometry.loads_per_tile);
            let index = if valid { first + slot } else { first };
            (index * vector, index * vector - start, valid)
        } else if vector > 1 {
            ((start / vector + slot) * vector, slot * vector, true)
        } else {
            (start + slot * inner_stride, slot, true)
        };
        self.assert_aligned(at);
        if realigned {
            // The elements are those of two vectors from `before` on.
            let before = start % vector;
            let next = if before == 0 { at } else { at + vector };
            (0..vector).for_each(|component| self.touch(at + component));
            (0..vector).for_each(|component| self.touch(next + component));
            for component in 0..vector {
                let of = if before + component < vector { at } else { next - vector };
                let element = outer * inner_len + element + component;
                if tile.counts {
                    self.take(tile.index, element, of + before + component);
                }
            }
            return;
        }
        for component in 0..vector {
            self.touch(at + component);
            if valid && tile.counts {
                self.take(tile.index, outer * inner_len + element + component, at + component);
            }
        }
    }

    /// The rests of realigned rows that go on with the loads of a unit.
    fn rests(&mut self, tile: Tile, first: usize, stride: usize) {
        let vector = self.plan.access.vector;
        let inner_len = self.geometry.inner.0;
        let whole = self.plan.access.whole_loads(inner_len);
        let each = (inner_len - whole * vector).div_ceil(vector);
        let loads = self.geometry.loads_per_tile;
        let rows = self.problem.reduction_len() / inner_len;
        for nth in (first..loads + rows * each).step_by(stride).filter(|&nth| nth >= loads) {
            let (outer, of_row) = ((nth - loads) / each, (nth - loads) % each);
            let start = tile.input + offsets(&self.geometry.reduced, outer).0;
            let element = (whole + of_row) * vector;
            let count = (inner_len - element).min(vector);
            for component in 0..vector {
                let at = start + element + component.min(count - 1);
                self.touch(at);
                if component < count && tile.counts {
                    self.take(tile.index, outer * inner_len + element + component, at);
                }
            }
        }
    }

    /// An element at an edge of an inner dimension.
    fn edge(&mut self, tile: Tile, slot: usize) {
        let vector = self.plan.access.vector;
        let inner_len = self.geometry.inner.0;
        let (outer, at_edge) = (slot / (2 * vector), slot % (2 * vector));
        let start = tile.input + offsets(&self.geometry.reduced, outer).0;
        let (head, whole) = match self.plan.access.realigned {
            true => (0, self.plan.access.whole_loads(inner_len) * vector),
            false => {
                let head = start.div_ceil(vector) * vector - start;
                (head, (inner_len - head) / vector * vector)
            }
        };
        let element = if at_edge < head { at_edge } else { at_edge + whole };
        self.touch(start + element.min(inner_len - 1));
        if element < inner_len && tile.counts {
            self.take(tile.index, outer * inner_len + element, start + element);
        }
    }

    fn load_across(&mut self, tile: Tile, nth: usize) {
        let Access { vector, peeled, .. } = self.plan.access;
        let start = tile.input + offsets(&self.geometry.reduced, nth).0;
        let by_element = peeled && tile.results < vector;
        if !by_element {
            self.assert_aligned(start / vector * vector);
        }
        for component in 0..vector {
            let at = match by_element {
                true => start + component.min(tile.results.max(1) - 1),
                false => start / vector * vector + component,
            };
            self.touch(at);
            if component < tile.results && tile.counts {
                self.take(tile.index + component, nth, at);
            }
        }
    }

    /// An aligned vector that starts up to a vector before the row's first element.
    fn load_realigned(&mut self, tile: Tile, in_cube: usize, nth: usize, first: usize) {
        let vector = self.plan.access.vector;
        let reduced = &self.geometry.reduced;
        let start = tile.input - tile.before;
        let before = (start + offsets(reduced, first).0) % vector;
        let last = (before + tile.outputs - 1) / vector * vector;
        let start = start + tile.before.min(last) + offsets(reduced, nth).0;
        let index = start / vector;
        self.assert_aligned(index * vector);
        let whole_vectors = self.problem.input_span() / vector;
        let is_last = nth + 1 == self.geometry.loads_per_tile;
        assert!(is_last || index < whole_vectors, "{} for {}", self.plan, self.problem);
        for component in 0..vector {
            // The last vector of the input may have no end. Only elements inside are taken.
            let at = index * vector + component;
            // Units past the end of the block repeat its last vector, in places of no output.
            let place = in_cube * vector + component;
            let output = place.wrapping_sub(before);
            if tile.counts && output < tile.outputs {
                let number = tile.row * self.geometry.inner.0 + tile.first + output;
                self.take(number, nth, at);
            }
        }
    }

    /// A vector starts where the device loads vectors of its size, if the input starts at an
    /// address that is no better aligned than it has to be.
    fn assert_aligned(&self, at: usize) {
        let (vector, bytes) = (self.plan.access.vector, self.problem.input().bytes());
        let address = self.problem.alignment() + at * bytes;
        let aligned = vector == 1 || address.is_multiple_of(vector * bytes);
        assert!(aligned, "{} loads {at} of {}", self.plan, self.problem);
    }

    /// An address is inside the input.
    fn touch(&self, at: usize) {
        assert!(at < self.problem.input_span(), "{} loads {at} of {}", self.plan, self.problem);
    }

    /// An element goes into an output: it comes from where this element lies.
    fn take(&mut self, output: usize, element: usize, at: usize) {
        self.touch(at);
        let place = self.outputs[output].0 + self.elements[element];
        assert_eq!(
            at, place,
            "element {element} of output {output}: {} for {}",
            self.plan, self.problem
        );
        let count = &mut self.loaded[output * self.problem.reduction_len() + element];
        *count = count.saturating_add(1);
    }

    fn write(&mut self, tile: Tile, writes: bool) {
        let results = if writes { tile.results } else { 0 };
        for nth in 0..results {
            let stride = match self.plan.access.direction {
                Direction::Along => 0,
                Direction::Across => self.geometry.inner.2,
            };
            let place = self.outputs[tile.index + nth].1;
            assert_eq!(tile.output + nth * stride, place, "{} for {}", self.plan, self.problem);
            let count = &mut self.written[tile.index + nth];
            *count = count.saturating_add(1);
        }
    }
}
