//! Results of segments, applied to their elements.

use cubecl::prelude::*;
use reduce_planner::Direction;

use super::{
    ApplySpec,
    applier::{Applier, applier_of, output_place},
    apply::{apply_to_edge, apply_to_load},
    in_segments::InSegments,
    neighbours,
    operands::{OperandStarts, operand_starts},
};
use crate::{
    kernels::{
        accumulate::load_inside,
        args::{
            AppliedArrays, InputArrays, KernelTypes, OperandArrays, Output, ResultArrays, input_of,
            output_of,
        },
        companion::tile_offset,
        geometry::{Companion, Geometry},
        load::{AtEnd, Loaded, edge_slots, load_edge},
        segments::{Crew, Least, Regions, SegmentNumbers},
        share::{Share, share_among_cubes},
        total::has_edges,
    },
    operator::{Offset, Parameters, Real, RealTypes, Reals, Single, Wide},
};

/// Applies results of segments that an earlier launch stored. `cubes` cubes share each tile, and
/// each has neighbouring loads of it.
#[allow(
    clippy::collapsible_if,
    reason = "the outer condition is known when the kernel is generated, the inner when it runs"
)]
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn apply_to_segments(
    _types: &KernelTypes,
    input: &InputArrays,
    offsets: &[Offset],
    operands: &OperandArrays,
    results: &mut ResultArrays,
    output: &mut AppliedArrays,
    geometry: &Geometry,
    companions: &Sequence<Companion>,
    numbers: &SegmentNumbers,
    apply_parameters: &Parameters,
    cubes: usize,
    #[comptime] spec: ApplySpec,
) {
    let access = comptime![spec.access];
    let team = comptime![spec.team];
    let input = input_of(input);
    let stored = output_of(results);
    let regions = Regions::new(offsets, numbers);
    let least = Least::new(comptime![Crew::whole_cube(team)]);
    sync_cube();
    let units = comptime![team.units_per_tile as usize];
    let block = CUBE_POS / cubes;
    let cube = CUBE_POS - block * cubes;
    let Share { tile, place, .. } =
        share_among_cubes(&input, geometry, block, cube, cubes, access, team);
    let loads = geometry.loads_per_tile;
    let turn = comptime![units * access.loads_in_flight];
    let each = loads.div_ceil(turn).div_ceil(cubes) * turn;
    let begin = clamp_max(cube * each, loads);
    let until = clamp_max(begin + each, loads);
    let first = begin + place.member as usize;
    let share = Share::new(&input, geometry, tile, place, first, units.runtime(), access);
    let applier = applier_of(operands, output, companions, apply_parameters, spec);
    let applied = AppliedSegments::new(&applier, &regions, &stored, &share);

    // All tiles of a cube have the same segments. A peeled row begins up to a vector before its
    // first load.
    let width = match comptime![access.direction] {
        Direction::Along => comptime![access.vector],
        Direction::Across => 1usize,
    };
    let last = clamp_max((until + 1) * width, numbers.len) - 1;
    let mut lower = 0usize.runtime();
    let mut upper = 0usize.runtime();
    if comptime![!spec.by_keys] {
        lower = regions.at(begin * width, &least);
        upper = clamp_min(regions.at(last, &least), lower);
    }
    let starts = operand_starts(&applier, &share);
    applied.at_loads(starts, until, lower, upper);
    if comptime![has_edges(access)] {
        if cube == 0 {
            applied.at_edges(starts);
        }
    }
}

/// The results of segments, and the share of a tile that they are applied to.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct AppliedSegments<'a> {
    applier: &'a Applier<'a>,
    regions: &'a Regions,
    stored: &'a Output,
    share: &'a Share<'a>,
}

#[cube]
impl<'a> AppliedSegments<'a> {
    fn new(
        applier: &'a Applier<'a>,
        regions: &'a Regions,
        stored: &'a Output,
        share: &'a Share<'a>,
    ) -> AppliedSegments<'a> {
        AppliedSegments::<'a> { applier, regions, stored, share }
    }

    /// Applies them to the loads before load number `until`, whose elements are in regions from
    /// number `lower` to `upper`.
    fn at_loads(&self, starts: OperandStarts, until: usize, lower: usize, upper: usize) {
        let share = self.share;
        let in_flight = comptime![share.access.loads_in_flight];
        let mut from = lower;
        let mut first = share.first;
        while first < until {
            let mut loads = Sequence::<Loaded>::new();
            let mut positions = Sequence::<usize>::new();
            #[unroll]
            for k in 0..in_flight {
                let nth = first + k * share.stride;
                loads.push(load_inside(share, nth, first, AtEnd::Never));
                let place = output_place(share, nth);
                positions.push(place.outer + place.element);
            }
            let found = self.of_each(&positions, from, upper);
            #[unroll]
            for k in 0..in_flight {
                let nth = first + k * share.stride;
                let segments = self.of_load(found.index(k).read(), *positions.index(k), upper);
                let value = Vector::<Real, Wide>::cast_from(loads.index(k).value);
                let second = loads.index(k).second;
                let results = self.results(&segments);
                let segments = ComptimeOption::new_Some(segments);
                let applier = self.applier;
                apply_to_load(applier, starts, share, nth, value, second, results, segments);
            }
            // The next loads lie behind.
            from = found.index(comptime![in_flight - 1]).read();
            first += comptime![in_flight] * share.stride;
        }
    }

    /// Applies them to the elements at the edges of rows.
    fn at_edges(&self, starts: OperandStarts) {
        let (share, regions) = (self.share, self.regions);
        let mut slot = share.place.member as usize;
        while slot < comptime![edge_slots(share.access.vector)] {
            let edge = load_edge(share, slot);
            if share.tile.results > 0 && edge.valid {
                let mut positions = Sequence::<usize>::new();
                positions.push(edge.element);
                let found = self.of_each(&positions, 0usize, regions.numbers.segments + 1);
                let region = found.index(0usize).read();
                let (number, inside) = regions.held_segment(region);
                let segments = InSegments::<Single> {
                    numbers: Vector::new(number),
                    inside: Vector::new(u32::cast_from(inside)),
                    same: true.runtime(),
                };
                let results = self.results_of(number as usize);
                let some = ComptimeOption::new_Some(segments);
                apply_to_edge(self.applier, starts, share, 0usize, edge, results, some);
            }
            slot += share.stride;
        }
    }

    /// The regions that have these positions, of those from number `lower` to `upper`; with keys, of
    /// all of them.
    fn of_each(
        &self,
        positions: &Sequence<usize>,
        lower: usize,
        upper: usize,
    ) -> Sequence<RuntimeCell<usize>> {
        if comptime![self.applier.spec.by_keys] {
            let mut found = Sequence::<RuntimeCell<usize>>::new();
            #[unroll]
            for k in 0..positions.len().comptime() {
                found.push(RuntimeCell::new(self.regions.named(*positions.index(k))));
            }
            found
        } else {
            self.regions.at_each(positions, lower, upper)
        }
    }

    /// The segments of the elements of a load, the first of which lies at `position` in a region,
    /// and all of them before region number `upper` ends.
    fn of_load(&self, region: usize, position: usize, upper: usize) -> InSegments<Wide> {
        let regions = self.regions;
        let (number, inside) = regions.held_segment(region);
        let mut numbers = Vector::<u32, Wide>::new(number);
        let mut are_inside = Vector::<u32, Wide>::new(u32::cast_from(inside));
        let mut same = true.runtime();
        let vector = comptime![self.share.access.vector];
        let along = comptime![self.share.access.direction == Direction::Along && vector > 1];
        if comptime![along && self.applier.spec.by_keys] {
            #[unroll]
            for component in 1..vector {
                let (number, inside) = regions.held_segment(regions.named(position + component));
                same = same && number == numbers.extract(0usize);
                numbers.insert(component, number);
                are_inside.insert(component, u32::cast_from(inside));
            }
        } else if comptime![along] {
            let mut own = region;
            let mut end = regions.end(own);
            same = end >= position + vector;
            if !same {
                #[unroll]
                for component in 1..vector {
                    let place = position + component;
                    if end <= place {
                        own = clamp_max(own + 1, upper);
                        end = regions.end(own);
                        // The next one has the element, unless it has none at all.
                        if end <= place {
                            own = regions.among(place, own, upper);
                            end = regions.end(own);
                        }
                    }
                    let (number, inside) = regions.held_segment(own);
                    numbers.insert(component, number);
                    are_inside.insert(component, u32::cast_from(inside));
                }
            }
        }
        InSegments::<Wide> { numbers, inside: are_inside, same }
    }

    /// The results of a segment for the first output of the tile.
    fn results_of(&self, segment: usize) -> Reals<Single> {
        let companion = self.applier.companions.index(0usize);
        let at = tile_offset(companion, self.share) + segment * companion.segment;
        self.stored.elements.at(at).converted::<RealTypes>()
    }

    /// The results for the elements of a load.
    fn results(&self, segments: &InSegments<Wide>) -> Reals<Wide> {
        let segment = segments.number(0usize);
        let first = self.results_of(segment);
        match comptime![self.share.access.direction] {
            Direction::Along => {
                let mut results = first.repeated::<Wide>();
                if !segments.same {
                    #[unroll]
                    for component in 1..comptime![self.share.access.vector] {
                        let own = self.results_of(segments.number(component));
                        let nth = comptime![component as u32].runtime();
                        results = results.with_component(nth, own);
                    }
                }
                results
            }
            Direction::Across => {
                let companion = self.applier.companions.index(0usize);
                let at = tile_offset(companion, self.share) + segment * companion.segment;
                neighbours(self.stored, self.applier, self.share, at, first)
            }
        }
    }
}
