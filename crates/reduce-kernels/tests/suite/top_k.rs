//! The first elements of slices: every type, layout and plan beside a stable sort on the host, data
//! that hurts, and what is refused.

use std::cmp::Ordering;

use cubecl::{prelude::*, std::tensor::TensorHandle};
use rand::{Rng, RngCore, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    ElementType, ErrorKind, Input, ReduceError, TensorDescription, cubecl, device_of,
    planner::{
        Access, Device, Direction, Illegal, PlanError, ProblemError, TopKMethod, TopKPlan,
        TopKProblem, row_major_strides, span,
    },
    plans::{PlanSource, PlanStore, RecordedCall, TunedPlan},
    quantiles::{Interpolation, median, percentile, quantile, quantiles},
    storage_type,
    top_k::{Selected, TopK, kth_value, largest, smallest, top_k},
};

use crate::{
    case::Case,
    oracle::reduce_naively,
    run::{POISON, capable_device, decode, encode, read, source, tensor, tensor_of},
};

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub k: usize,
    pub largest: bool,
    pub nan_last: bool,
    pub by_position: bool,
    pub plan: Option<TopKPlan>,
    pub table: Option<Table>,
}

/// Positions to write: a tensor of a type, which lies in one of these ways.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    element: ElementType,
    layout: TableLayout,
}

#[derive(Clone, Copy, Debug)]
enum TableLayout {
    /// As the input.
    Alike,
    /// With the first axis innermost and gaps.
    Reversed,
    /// With the same elements along the first axis.
    Repeated,
}

impl Table {
    fn strides(self, case: &Case) -> Vec<usize> {
        let shape = &case.shape;
        match self.layout {
            TableLayout::Alike => case.strides.clone(),
            TableLayout::Reversed => {
                (0..shape.len()).map(|axis| 3 * shape[..axis].iter().product::<usize>()).collect()
            }
            TableLayout::Repeated => {
                let mut strides = row_major_strides(shape);
                strides[0] = 0;
                strides
            }
        }
    }

    /// Random numbers for a case, some equal, some negative if the type has such.
    fn bytes(self, case: &Case) -> Vec<u8> {
        let mut rng = StdRng::seed_from_u64(11);
        let most = if self.element.bytes() == 8 { 1i64 << 40 } else { 1 << 31 };
        let least = if self.element.is_signed() { -most } else { 0 };
        let len = span(&case.shape, &self.strides(case)).unwrap();
        let numbers: Vec<f64> = (0..len).map(|_| rng.random_range(least..most) as f64).collect();
        encode(self.element, &numbers)
    }
}

/// The `k` largest, in their order.
fn largest_of(k: usize) -> Asked {
    Asked { k, largest: true, nan_last: false, by_position: false, plan: None, table: None }
}

impl Asked {
    pub(crate) fn of<'a>(
        self,
        input: &'a TensorHandle,
        device: &'a Device,
    ) -> TopK<'a, TensorHandle> {
        let selection = self.of_input(input);
        match self.plan {
            Some(plan) => selection.with_plan(plan).plan_for(device),
            None => selection,
        }
    }

    /// The selection with the plan that is chosen.
    pub(crate) fn of_input<T: Input>(self, input: &T) -> TopK<'_, T> {
        let mut selection =
            if self.largest { largest(self.k, input) } else { smallest(self.k, input) };
        if self.nan_last {
            selection = selection.nan_last();
        }
        if self.by_position {
            selection = selection.in_order_of_positions();
        }
        selection
    }

    /// The places of the first elements of each slice of a row-major tensor, and their positions in
    /// their slice.
    pub(crate) fn select_each(
        self,
        element: ElementType,
        bytes: &[u8],
        shape: &[usize],
        axes: &[usize],
    ) -> Vec<Vec<(usize, usize)>> {
        let places: Vec<usize> = (0..shape.iter().product()).collect();
        let size = element.bytes();
        let of_slice = |slice: &[usize]| {
            let ordered = |&place: &usize| Ordered::of(element, &bytes[place * size..][..size]);
            let elements: Vec<Ordered> = slice.iter().map(ordered).collect();
            self.select(&elements).into_iter().map(|at| (slice[at], at)).collect()
        };
        reduce_naively(&places, shape, &row_major_strides(shape), axes, of_slice)
    }

    /// The positions of a slice's first elements, found by a stable sort.
    pub(crate) fn select(self, elements: &[Ordered]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..elements.len()).collect();
        order.sort_by(|&a, &b| {
            let (a, b) = (elements[a], elements[b]);
            match (a.0, b.0) {
                (None, None) => Ordering::Equal,
                (None, _) if self.nan_last => Ordering::Greater,
                (None, _) => Ordering::Less,
                (_, None) if self.nan_last => Ordering::Less,
                (_, None) => Ordering::Greater,
                (Some(a), Some(b)) if self.largest => b.cmp(&a),
                (Some(a), Some(b)) => a.cmp(&b),
            }
        });
        order.truncate(self.k);
        if self.by_position {
            order.sort_unstable();
        }
        order
    }
}

/// An integer that is ordered as the element is; `None` for NaN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ordered(Option<i128>);

impl Ordered {
    pub(crate) fn of(element: ElementType, bytes: &[u8]) -> Self {
        if element.is_float() {
            let value = decode(element, bytes)[0];
            let bits = i128::from(value.abs().to_bits());
            return Self((!value.is_nan()).then_some(if value < 0.0 { -bits } else { bits }));
        }
        let mut wide = [0; 16];
        wide[..bytes.len()].copy_from_slice(bytes);
        let unused = 128 - 8 * bytes.len() as u32;
        let value = i128::from_le_bytes(wide);
        Self(Some(if element.is_signed() { value << unused >> unused } else { value }))
    }
}

/// Random bits, among them NaN, infinities, both zeros and denormal numbers. A third of the
/// elements are copies of a few.
pub(crate) fn random_bytes(element: ElementType, len: usize, rng: &mut StdRng) -> Vec<u8> {
    let size = element.bytes();
    let mut bytes = vec![0; len * size];
    rng.fill_bytes(&mut bytes);
    let special = [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 2.0];
    let special = encode(element, if element.is_float() { &special } else { &special[..3] });
    for at in 0..len {
        if rng.random_ratio(1, 3) {
            let from = rng.random_range(0..special.len() / size) * size;
            bytes[at * size..][..size].copy_from_slice(&special[from..][..size]);
        }
    }
    if element == ElementType::Bool {
        bytes.iter_mut().for_each(|byte| *byte &= 1);
    }
    bytes
}

/// Selects from a tensor of these bytes, into outputs with a gap after each element, and compares
/// both with a stable sort.
fn check(client: &Client, case: &Case, element: ElementType, bytes: &[u8], asked: Asked) {
    let told = format!("{element} {case:?} {asked:?}");
    let size = element.bytes();
    let device = capable_device(client);
    let input = tensor_of(client, element, bytes, &case.shape, &case.strides);
    let table = asked.table.map(|table| {
        let (bytes, strides) = (table.bytes(case), table.strides(case));
        let tensor = tensor_of(client, table.element, &bytes, &case.shape, &strides);
        (tensor, bytes, strides)
    });
    let index = asked.table.map_or(ElementType::U32, |table| table.element);
    let selection = || {
        let selection = asked.of(&input, &device).over(case.axes.as_slice());
        match &table {
            Some((table, ..)) => selection.with_positions(table),
            None => selection,
        }
    };
    let shape = selection().output_shape().unwrap_or_else(|error| panic!("{told}: {error}"));
    let types = selection().output_types().unwrap();
    assert_eq!((types.values, types.positions), (element, index));
    let strides: Vec<usize> = row_major_strides(&shape).iter().map(|stride| 2 * stride).collect();
    let len = span(&shape, &strides).unwrap();
    let poisoned = |element: ElementType| {
        let bytes = vec![POISON; len * element.bytes()];
        tensor_of(client, element, &bytes, &shape, &strides)
    };
    let (values, positions) = (poisoned(element), poisoned(index));
    let outputs =
        Selected { values: values.clone().binding(), positions: positions.clone().binding() };
    selection().run_into(client, outputs).unwrap_or_else(|error| panic!("{told}: {error}"));
    let values = read::<u8>(client, &values, len * size);
    let positions = read::<u8>(client, &positions, len * index.bytes());
    let position_at = |at: usize| &positions[at * index.bytes()..][..index.bytes()];

    let places: Vec<usize> = (0..case.span()).collect();
    let slices = reduce_naively(&places, &case.shape, &case.strides, &case.axes, <[usize]>::to_vec);
    // The outputs of a slice: those of an index over the kept axes, with any rank.
    let ranked = *case.axes.iter().max().unwrap();
    let at_ranks = reduce_naively(
        &(0..len).collect::<Vec<usize>>(),
        &shape,
        &strides,
        &[ranked],
        <[usize]>::to_vec,
    );
    assert_eq!(slices.len(), at_ranks.len(), "{told}");
    // What is written for each position of each slice, as bytes.
    let numbers: Option<Vec<Vec<&[u8]>>> = table.as_ref().map(|(_, bytes, strides)| {
        let numbers: Vec<&[u8]> = bytes.chunks(index.bytes()).collect();
        reduce_naively(&numbers, &case.shape, strides, &case.axes, <[&[u8]]>::to_vec)
    });
    for (nth, (slice, ranks)) in slices.iter().zip(&at_ranks).enumerate() {
        let elements: Vec<Ordered> = slice
            .iter()
            .map(|&place| Ordered::of(element, &bytes[place * size..][..size]))
            .collect();
        let expected = asked.select(&elements);
        let found: Vec<&[u8]> = ranks.iter().map(|&at| position_at(at)).collect();
        let own: Vec<[u8; 4]> = expected.iter().map(|&at| (at as u32).to_le_bytes()).collect();
        let written: Vec<&[u8]> = match &numbers {
            Some(numbers) => expected.iter().map(|&at| numbers[nth][at]).collect(),
            None => own.iter().map(|bytes| &bytes[..]).collect(),
        };
        assert_eq!(found, written, "{told}");
        for (&at, &position) in ranks.iter().zip(&expected) {
            let expected = &bytes[slice[position] * size..][..size];
            assert_eq!(values[at * size..][..size], *expected, "{told} position {position}");
        }
    }
    // The gaps are as they were.
    let is_gap = |at: &usize| !at.is_multiple_of(2);
    let is_poisoned = |at| position_at(at).iter().all(|&byte| byte == POISON);
    let untouched = (0..len).filter(is_gap).all(is_poisoned);
    assert!(untouched, "{told}");
}

fn check_random(client: &Client, case: &Case, element: ElementType, asked: Asked, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let bytes = random_bytes(element, case.span(), &mut rng);
    check(client, case, element, &bytes, asked);
}

/// All orders.
pub(crate) fn orders(k: usize) -> impl Iterator<Item = Asked> {
    (0..8).map(move |bits| Asked {
        k,
        largest: bits & 1 == 0,
        nan_last: bits & 2 != 0,
        by_position: bits & 4 != 0,
        plan: None,
        table: None,
    })
}

/// Elements of every type, in every order of values, along rows and across columns.
pub(crate) fn every_type(client: &Client) {
    let device = device_of(client);
    for element in ElementType::ALL.into_iter().filter(|&element| device.has(element)) {
        let rows = Case::contiguous(&[5, 300], &[1]);
        for (nth, asked) in [1, 7, 300].into_iter().flat_map(orders).enumerate() {
            check_random(client, &rows, element, asked, nth as u64);
        }
        let columns = Case::contiguous(&[70, 9], &[0]);
        check_random(client, &columns, element, largest_of(8), 1);
    }
}

/// Slices of one axis and of several, with gaps and without, of one element and of many.
pub(crate) fn every_layout(client: &Client) {
    let cases = [
        Case::contiguous(&[1], &[0]),
        Case::contiguous(&[3000], &[0]),
        Case::contiguous(&[1, 5], &[0]),
        Case::contiguous(&[40, 3, 50], &[2]),
        Case::contiguous(&[40, 3, 50], &[0]),
        Case::contiguous(&[40, 3, 50], &[1]),
        Case::contiguous(&[40, 3, 50], &[0, 2]),
        Case::contiguous(&[6, 7, 8, 9], &[1, 3]),
        Case::contiguous(&[3, 1021], &[1]),
        Case::contiguous(&[1021, 3], &[0]),
        Case::pitched(&[6, 100], 104, &[1]),
        Case::pitched(&[6, 100], 104, &[0, 1]),
        Case::permuted(&[24, 10, 12], &[2, 0, 1], &[0, 1]),
        Case::permuted(&[24, 10, 12], &[2, 1, 0], &[1, 2]),
        Case::permuted(&[64, 100], &[1, 0], &[1]),
        Case::sliced(&[9, 80], &[2, 2], &[1]),
        Case::broadcast(&[6, 40], &[0], &[0, 1]),
        Case::broadcast(&[6, 40], &[1], &[1]),
    ];
    for (nth, case) in cases.iter().enumerate() {
        let len = case.reduction_len();
        let mut ks = vec![1, len.div_ceil(3), len.min(100)];
        ks.dedup();
        for k in ks {
            check_random(client, case, ElementType::F32, largest_of(k), nth as u64);
        }
    }
}

/// The rules allow plans of many shapes. All select the same.
pub(crate) fn every_plan(client: &Client) {
    let device = capable_device(client);
    let mut tried = 0;
    for (case, k) in [
        (Case::contiguous(&[3, 2500], &[1]), 20),
        (Case::contiguous(&[5, 1001], &[1]), 3),
        (Case::contiguous(&[900, 37], &[0]), 5),
    ] {
        let element = ElementType::F32;
        let mut rng = StdRng::seed_from_u64(k as u64);
        let bytes = random_bytes(element, case.span(), &mut rng);
        let input = tensor_of(client, element, &bytes, &case.shape, &case.strides);
        let problem = largest(k, &input).over(case.axes.as_slice()).problem().unwrap();
        let chosen = largest(k, &input).over(case.axes.as_slice()).choose(client).unwrap().plan;
        for (units, digit_bits, loads) in
            [(4, 2, 1), (4, 4, 2), (32, 8, 3), (128, 4, 2), (128, 8, 1)]
        {
            for (buffer, slices_per_cube, cubes_per_slice) in
                [(64, 1, 1), (64, 2, 3), (256, 2, 1), (1024, 1, 5)]
            {
                let mut plan = chosen;
                plan.method = TopKMethod::Buffer;
                plan.access = plan.access.with_loads_in_flight(loads);
                plan.units_per_slice = units;
                plan.digit_bits = digit_bits;
                plan.buffer = buffer;
                plan.slices_per_cube = slices_per_cube;
                plan.cubes_per_slice = cubes_per_slice;
                if plan.check(&problem, &device).is_ok() {
                    let asked = Asked { plan: Some(plan), ..largest_of(k) };
                    check(client, &case, element, &bytes, asked);
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 30, "{tried} plans");
}

/// Units that hold slices, as many as selected elements and fewer, all with elements and not, in
/// all orders.
pub(crate) fn in_registers(client: &Client) {
    let device = capable_device(client);
    let mut tried = 0;
    for case in [
        Case::contiguous(&[5, 96], &[1]),
        Case::contiguous(&[5, 37], &[1]),
        Case::contiguous(&[37, 6], &[0]),
        Case::permuted(&[6, 4, 12], &[2, 0, 1], &[0, 1]),
    ] {
        let element = ElementType::F32;
        let bytes = random_bytes(element, case.span(), &mut StdRng::seed_from_u64(2));
        let input = tensor_of(client, element, &bytes, &case.shape, &case.strides);
        for k in [1, 4, 9, case.reduction_len()] {
            let problem = largest(k, &input).over(case.axes.as_slice()).problem().unwrap();
            let chosen = largest(k, &input).over(case.axes.as_slice()).choose(client).unwrap().plan;
            for (units, loads, buffer) in [(1, 32, 8), (8, 12, 64), (8, 12, 128), (64, 2, 64)] {
                let mut plan = chosen;
                plan.method = TopKMethod::Registers;
                plan.access =
                    plan.access.with_loads_in_flight(loads / plan.access.vector.min(loads));
                (plan.units_per_slice, plan.slices_per_cube, plan.buffer) = (units, 2, buffer);
                if plan.check(&problem, &device).is_ok() {
                    for asked in orders(k) {
                        check(client, &case, element, &bytes, Asked { plan: Some(plan), ..asked });
                    }
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 12, "{tried} plans");
}

/// Data of which a threshold refuses nothing, or of which many elements are equal.
pub(crate) fn data_that_hurts(client: &Client) {
    let len = 6000;
    let data: [(&str, Vec<f32>); 8] = [
        ("ascending", (0..len).map(|i| i as f32).collect()),
        ("descending", (0..len).map(|i| -(i as f32)).collect()),
        ("equal", vec![1.5; len]),
        ("two values", (0..len).map(|i| (i % 2) as f32).collect()),
        ("NaN", vec![f32::NAN; len]),
        (
            "ties",
            (0..len).map(|i| if i % 7 == 0 { 2.0 } else { (i % 100) as f32 * 0.01 }).collect(),
        ),
        ("denormal", (0..len).map(|i| f32::from_bits((i * 7919 % 100_000) as u32)).collect()),
        ("zeros", (0..len).map(|i| if i % 3 == 0 { -0.0 } else { 0.0 }).collect()),
    ];
    let case = Case::contiguous(&[2, len / 2], &[1]);
    for (_, data) in &data {
        let bytes = bytemuck::cast_slice(data);
        for k in [1, 50] {
            for asked in orders(k) {
                check(client, &case, ElementType::F32, bytes, asked);
            }
        }
    }
}

/// Few long slices are shared by several cubes, and a second launch selects among what they leave.
pub(crate) fn several_cubes(client: &Client) {
    let case = Case::contiguous(&[2, 400_000], &[1]);
    let described = TensorDescription::row_major(ElementType::F32, case.shape.clone());
    let plan = largest(10, &described).over(1).choose(client).unwrap().plan;
    assert_eq!((plan.method, plan.launch_count()), (TopKMethod::Buffer, 2), "{plan}");
    check_random(client, &case, ElementType::F32, largest_of(10), 5);
    // More cubes than there is work for leave more entries of no element than a buffer holds.
    let case = Case::contiguous(&[3, 40], &[1]);
    let described = TensorDescription::row_major(ElementType::F32, case.shape.clone());
    let mut plan = largest(16, &described).over(1).choose(client).unwrap().plan;
    plan.method = TopKMethod::Buffer;
    (plan.cubes_per_slice, plan.slices_per_cube) = (50, 1);
    (plan.units_per_slice, plan.buffer, plan.digit_bits) = (16, 32, 4);
    let asked = Asked { plan: Some(plan), ..largest_of(16) };
    check_random(client, &case, ElementType::F32, asked, 6);
}

/// More elements than shared memory holds are sorted in runs that are merged.
pub(crate) fn merged_runs(client: &Client) {
    let shared = device_of(client).shared_memory_bytes;
    for (shape, axes) in [(&[2, 40_000], [1]), (&[30_000, 3], [0])] {
        let case = Case::contiguous(shape, &axes);
        let len = case.reduction_len();
        let most = shared / 8;
        for k in [most, len] {
            let described = TensorDescription::row_major(ElementType::F32, case.shape.clone());
            let plan = largest(k, &described).over(axes).choose(client).unwrap().plan;
            assert_eq!(plan.method, TopKMethod::Runs, "{plan}");
            for by_position in [false, true] {
                let asked = Asked { by_position, ..largest_of(k) };
                check_random(client, &case, ElementType::F32, asked, k as u64);
            }
        }
    }
    // Short runs, whose last is alone in some merges, and slices of several axes.
    let case = Case::permuted(&[24, 10, 12], &[2, 0, 1], &[0, 1]);
    let described = TensorDescription::row_major(ElementType::F32, [24, 10, 12]);
    for (buffer, k) in [(16, 5), (16, 17), (64, 100), (64, 240)] {
        let mut plan = largest(k, &described).choose(client).unwrap().plan;
        plan.method = TopKMethod::Runs;
        plan.access = Access::new(Direction::Across);
        (plan.units_per_slice, plan.slices_per_cube) = (16, 1);
        (plan.buffer, plan.cubes_per_slice) =
            (buffer, case.reduction_len().div_ceil(buffer as usize) as u32);
        for largest in [true, false] {
            let asked = Asked { plan: Some(plan), largest, ..largest_of(k) };
            check_random(client, &case, ElementType::F32, asked, k as u64);
        }
    }
}

/// A plan of each method that may run the problem, and those with several cubes.
pub(crate) fn plan_of_each_method(
    problem: &TopKProblem,
    chosen: TopKPlan,
    device: &Device,
) -> Vec<TopKPlan> {
    let slices = problem.slices();
    let plain = Access::new(chosen.access.direction);
    let mut plans = Vec::new();
    for method in [TopKMethod::Buffer, TopKMethod::Registers, TopKMethod::Runs] {
        for (units, buffer, cubes, loads) in [(16, 64, 1, 2), (32, 256, 3, 1), (16, 128, 1, 12)] {
            let mut plan = chosen;
            plan.method = method;
            plan.access = plain.with_loads_in_flight(loads);
            (plan.units_per_slice, plan.slices_per_cube, plan.digit_bits) = (units, 2, 4);
            (plan.buffer, plan.cubes_per_slice) = (buffer, cubes);
            if method == TopKMethod::Runs {
                plan.slices_per_cube = 1;
                plan.cubes_per_slice = slices.reduction_len().div_ceil(buffer as usize) as u32;
            }
            if plan.check(problem, device).is_ok() {
                plans.push(plan);
            }
        }
    }
    plans
}

/// Positions of a tensor: of every type and layout, by every method, in all orders.
pub(crate) fn with_positions(client: &Client) {
    let device = capable_device(client);
    let cases = [
        Case::contiguous(&[3, 1500], &[1]),
        Case::contiguous(&[5, 150], &[1]),
        Case::contiguous(&[150, 7], &[0]),
        Case::permuted(&[6, 4, 12], &[2, 0, 1], &[0, 1]),
        Case::pitched(&[6, 100], 104, &[0, 1]),
    ];
    let layouts = [TableLayout::Alike, TableLayout::Reversed, TableLayout::Repeated];
    let mut methods = Vec::new();
    for (nth, case) in cases.iter().enumerate() {
        let bytes = random_bytes(ElementType::F32, case.span(), &mut StdRng::seed_from_u64(5));
        let input = tensor_of(client, ElementType::F32, &bytes, &case.shape, &case.strides);
        for (layout, k) in layouts.into_iter().zip([1, 9, 40]) {
            let table = Table { element: ElementType::U32, layout };
            let (bytes, strides) = (table.bytes(case), table.strides(case));
            let tensor = tensor_of(client, ElementType::U32, &bytes, &case.shape, &strides);
            let selection = largest(k, &input).over(case.axes.as_slice()).with_positions(&tensor);
            let problem = selection.problem().unwrap();
            let chosen = selection.choose(client).unwrap().plan;
            // Each plan compiles kernels. Columns and gaps are about the layouts alone.
            let mut plans = vec![chosen];
            if nth < 2 {
                plans.extend(plan_of_each_method(&problem, chosen, &device));
            }
            for (turn, plan) in plans.into_iter().enumerate() {
                methods.push((plan.method, plan.cubes_per_slice > 1));
                let asked = orders(k).nth((nth + turn) % 8).unwrap();
                let asked = Asked { plan: Some(plan), table: Some(table), ..asked };
                check_random(client, case, ElementType::F32, asked, nth as u64);
            }
        }
    }
    for method in [
        (TopKMethod::Buffer, false),
        (TopKMethod::Buffer, true),
        (TopKMethod::Registers, false),
        (TopKMethod::Runs, true),
    ] {
        assert!(methods.contains(&method), "{method:?}");
    }
    // Types of positions, and of elements with one word and with two.
    let case = &cases[1];
    for element in [ElementType::I32, ElementType::U64, ElementType::I64] {
        for of in [ElementType::F16, ElementType::I64] {
            if device.has(element) && device.has(of) {
                let table = Some(Table { element, layout: TableLayout::Reversed });
                check_random(client, case, of, Asked { table, ..largest_of(7) }, 1);
            }
        }
    }

    // What is refused, before anything is launched.
    let x = tensor(client, &[1.0f32; 12], &[3, 4], &[4, 1]);
    let refused = |table: TensorHandle| {
        let error = largest(2, &x).over(1).with_positions(&table).run(client).unwrap_err();
        assert!(!error.launched());
        error.kind()
    };
    assert_eq!(refused(tensor(client, &[1u32; 12], &[4, 3], &[3, 1])), ErrorKind::Shape);
    assert_eq!(refused(tensor(client, &[1u32; 12], &[12], &[1])), ErrorKind::Shape);
    assert_eq!(refused(tensor(client, &[1.0f32; 12], &[3, 4], &[4, 1])), ErrorKind::Type);
    assert_eq!(refused(tensor(client, &[1u16; 12], &[3, 4], &[4, 1])), ErrorKind::Type);
    assert_eq!(refused(tensor(client, &[1u32; 8], &[3, 4], &[4, 1])), ErrorKind::Buffer);
    let table = tensor(client, &[1u32; 12], &[3, 4], &[4, 1]);
    let other = largest(2, &x).with_positions(&table).position_type(ElementType::I32);
    assert_eq!(other.check(client).unwrap_err().kind(), ErrorKind::Type);
    let short = tensor(client, &[1u32; 8], &[3, 4], &[4, 1]);
    let short = largest(2, &x).with_positions(&short).check(client).unwrap_err();
    assert_eq!(
        short.to_string(),
        "the tensor of positions spans 48 bytes, but its buffer holds 32"
    );
}

/// Quantiles beside those of sorted elements in f64: of every type, over axes of any layout, from
/// both ends of a slice, and of slices with NaN and infinities.
pub(crate) fn of_quantiles(client: &Client) {
    let device = device_of(client);
    // Few of them are found one by one, more are sorted together.
    let several = [0.5, 0.0, 1.0, 0.1, 0.97];
    let cases = [
        Case::contiguous(&[3, 501], &[1]),
        Case::contiguous(&[7, 60], &[1]),
        Case::contiguous(&[40, 3, 5], &[0, 2]),
        Case::permuted(&[24, 10, 12], &[2, 0, 1], &[0]),
    ];
    for element in ElementType::ALL.into_iter().filter(|&element| device.has(element)) {
        let cases = &cases[..if element == ElementType::F32 { 4 } else { 1 }];
        for (case, q) in cases.iter().flat_map(|case| [(case, &several[..1]), (case, &several)]) {
            let mut rng = StdRng::seed_from_u64(7);
            let draw = |rng: &mut StdRng| {
                rng.random_range(if element.is_signed() { -100 } else { 0 }..100)
            };
            let values: Vec<f64> = (0..case.span()).map(|_| f64::from(draw(&mut rng))).collect();
            let bytes = encode(element, &values);
            let values = decode(element, &bytes);
            let input = tensor_of(client, element, &bytes, &case.shape, &case.strides);
            let asked = quantiles(q, &input).over(case.axes.as_slice());
            let (shape, output) = (asked.output_shape().unwrap(), asked.output_types().unwrap());
            let found = asked.run(client).unwrap();
            assert_eq!(found.shape()[..], shape[..]);
            let outputs = case.kept_shape().iter().product::<usize>();
            let bytes = client.read_one(found.handle).expect("the device answers");
            let found = decode(output, &bytes[..outputs * q.len() * output.bytes()]);
            let expected = |q: f64| {
                let of_slice = move |slice: &[f64]| linear(slice, q);
                reduce_naively(&values, &case.shape, &case.strides, &case.axes, of_slice)
            };
            let expected: Vec<f64> = q.iter().flat_map(|&q| expected(q)).collect();
            for (found, expected) in found.iter().zip(&expected) {
                let tolerance = expected.abs() * if output.bytes() == 2 { 0.01 } else { 1e-6 };
                assert!(
                    (found - expected).abs() <= tolerance,
                    "{element} {case:?} {found} {expected}"
                );
            }
        }
    }
    // The k-th of many with ties and NaN is the last of the first k.
    let case = Case::contiguous(&[3, 3001], &[1]);
    let bytes = random_bytes(ElementType::F32, case.span(), &mut StdRng::seed_from_u64(3));
    let x = tensor_of(client, ElementType::F32, &bytes, &case.shape, &case.strides);
    for k in [1, 100, 1500] {
        let all = smallest(k, &x).over(1).nan_last().run(client).unwrap().positions;
        let all = read::<u32>(client, &all, 3 * k);
        let expected = [all[k - 1], all[2 * k - 1], all[3 * k - 1]];
        let kth = read::<u32>(client, &kth_value(client, &x, 1, k).unwrap().positions, 3);
        assert_eq!(kth, expected, "{k}");
    }
    assert!(read::<f32>(client, &median(client, &x, 1).unwrap(), 3).iter().all(|x| x.is_nan()));
    // NaN spreads; infinities are elements, and lie between equal ones.
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let data = [1.0, nan, 2.0, -inf, 3.0, inf, inf, inf, 5.0, -inf, -inf, 7.0];
    let x = tensor(client, &data, &[4, 3], &[3, 1]);
    let of_rows = |x: &TensorHandle| read::<f32>(client, &median(client, x, 1).unwrap(), 4);
    let found = of_rows(&x);
    assert!(found[0].is_nan() && found[1..] == [3.0, inf, -inf], "{found:?}");
    let pairs = tensor(client, &data, &[6, 2], &[2, 1]);
    let found = read::<f32>(client, &quantile(client, &pairs, 1, 0.5).unwrap(), 6);
    assert!(found[0].is_nan() && found[2..4] == [inf, inf], "{found:?}");
    assert_eq!(median(client, &x, ..).unwrap().shape()[..], [1, 1]);
    let whole = quantiles([0.25, 0.75], &x).keep_dims(false).run(client).unwrap();
    assert_eq!(whole.shape()[..], [2]);
    // The elements on both sides of a quantile, and their mean.
    let y = tensor(client, &[4.0f32, 1.0, 2.0, 8.0], &[1, 4], &[4, 1]);
    let found = |interpolation: Interpolation| {
        let found = quantiles([0.5], &y).over(1).interpolation(interpolation).run(client).unwrap();
        read::<f32>(client, &found, 1)[0]
    };
    use Interpolation::{Higher, Lower, Midpoint};
    assert_eq!([Lower, Higher, Midpoint].map(found), [2.0, 4.0, 3.0]);
    assert_eq!(read::<f32>(client, &percentile(client, &y, 1, 100.0).unwrap(), 1), [8.0]);
    // The third smallest, and its position.
    let Selected { values, positions } = kth_value(client, &y, 1, 3).unwrap();
    assert_eq!(values.shape()[..], [1, 1]);
    let found = (read::<f32>(client, &values, 1)[0], read::<u32>(client, &positions, 1)[0]);
    assert_eq!(found, (4.0, 0));

    // No quantiles, and quantiles of no slices.
    assert_eq!(quantiles([], &y).over(1).run(client).unwrap().shape()[..], [0, 1, 1]);
    let no_rows = tensor::<f32>(client, &[], &[0, 4], &[4, 1]);
    assert_eq!(quantiles([0.5], &no_rows).over(1).run(client).unwrap().shape()[..], [1, 0, 1]);

    let error = quantiles([0.5, 1.5], &y).run(client).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Parameter, "{error}");
    let error = quantiles([f64::NAN], &y).run(client).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Parameter, "{error}");
    let error = quantiles([0.5], &y).output_type(ElementType::I32).run(client).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Type, "{error}");
    let empty = tensor::<f32>(client, &[], &[2, 0], &[1, 1]);
    assert_eq!(median(client, &empty, 1).unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(kth_value(client, &y, 1, 0).unwrap_err().kind(), ErrorKind::Parameter);
    assert_eq!(kth_value(client, &y, 1, 5).unwrap_err().kind(), ErrorKind::Shape);
}

/// The linearly interpolated quantile of elements.
fn linear(elements: &[f64], q: f64) -> f64 {
    let mut sorted = elements.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len() - 1) as f64 * q;
    let (lower, upper) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    lower + (upper - lower) * at.fract()
}

/// A plan from a store runs, and a recorded selection makes its problem again.
pub(crate) fn stored_and_recorded(client: &Client) {
    let device = device_of(client);
    let data: Vec<f32> = (0..2000).map(|i| (i * 7919 % 1009) as f32).collect();
    let x = tensor(client, &data, &[2, 1000], &[1000, 1]);
    let asked = || largest(5, &x).over(1);
    let problem = asked().problem().unwrap();
    let mut plan = asked().choose(client).unwrap().plan;
    plan.buffer *= 2;
    let mut store = PlanStore::new(&device);
    store.insert(&problem, &device, TunedPlan::new(plan, 1, 2)).unwrap();
    let found = asked().with_plans(&store).plan(client).unwrap();
    assert_eq!((found.plan, found.source), (plan, PlanSource::Stored));
    let best = |selected: Selected| read::<u32>(client, &selected.positions, 10);
    let stored = asked().with_plans(&store).run(client).unwrap();
    assert_eq!(best(stored), best(asked().run(client).unwrap()));

    let RecordedCall::TopK(recorded) = asked().record().unwrap() else { panic!("another kind") };
    assert_eq!(recorded.to_string(), "top_k 5 of f32 [2, 1000] axis 1");
    assert_eq!(recorded.problem().unwrap(), problem);
    let line = RecordedCall::TopK(recorded.clone()).to_json();
    assert_eq!(RecordedCall::parse(&line).unwrap(), RecordedCall::TopK(recorded.clone()));
    for (old, new) in [(r#""k":5"#, r#""k":1001"#), ("[1]", "[2]"), ("[1000,1]", "[1000]")] {
        let RecordedCall::TopK(changed) = RecordedCall::parse(&line.replacen(old, new, 1)).unwrap()
        else {
            panic!("another kind")
        };
        assert!(changed.problem().is_err(), "{new}");
    }
    let with_strides = |strides: &str| {
        let changed = line.replacen("{", &format!(r#"{{"output_strides":{strides},"#), 1);
        match RecordedCall::parse(&changed).unwrap() {
            RecordedCall::TopK(changed) => changed.problem(),
            other => panic!("{other}"),
        }
    };
    let table = TensorDescription::strided(ElementType::U32, [2, 1000], [0, 1]);
    let described = TensorDescription::row_major(ElementType::F32, [2, 1000]);
    let numbered = largest(5, &described).over(1).with_positions(&table);
    let line = numbered.record().unwrap().to_json();
    let RecordedCall::TopK(read) = RecordedCall::parse(&line).unwrap() else { panic!("{line}") };
    assert_eq!(read.to_string(), "top_k 5 of f32 [2, 1000] axis 1 from u32 strides [0, 1]");
    assert_eq!(read.problem().unwrap(), numbered.problem().unwrap());
    assert_ne!(read.problem().unwrap(), problem);
    assert_eq!(with_strides("[1,2]").unwrap().rank_stride(), 2);
    assert!(with_strides("[1,2,3]").is_err());
}

/// Shapes, types, edges and errors.
pub(crate) fn contract(client: &Client) {
    let x = TensorDescription::row_major(ElementType::F16, [4, 6, 5]);
    let shape = |selection: TopK<'_, TensorDescription>| selection.output_shape().unwrap();
    assert_eq!(shape(largest(3, &x).over(1)), [4, 3, 5]);
    assert_eq!(shape(largest(3, &x).over([2, 0])), [1, 6, 3]);
    assert_eq!(shape(largest(3, &x).over([2, 0]).keep_dims(false)), [6, 3]);
    assert_eq!(shape(largest(3, &x)), [1, 1, 3]);
    assert_eq!(shape(largest(3, &x).keep_dims(false)), [3]);
    assert_eq!(shape(smallest(9, &x).over(1).or_fewer()), [4, 6, 5]);
    let asked = largest(3, &x).position_type(ElementType::I32).output_types().unwrap();
    assert_eq!(asked, Selected { values: ElementType::F16, positions: ElementType::I32 });

    let error = largest(7, &x).over(1).check(client).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape, "{error}");
    let expected = ProblemError::TooFewElements { k: 7, len: 6 };
    assert_eq!(source::<ProblemError>(&error), Some(&expected));
    let error = largest(1, &x).over([]).check(client).unwrap_err();
    assert_eq!(source::<ProblemError>(&error), Some(&ProblemError::NoAxes { operator: "top_k" }));
    let error = largest(1, &x).position_type(ElementType::F32).check(client).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Type, "{error}");

    // Nothing is selected, and nothing launched.
    let data: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let y = tensor(client, &data, &[3, 4], &[4, 1]);
    let none = top_k(client, &y, 1, 0).unwrap();
    assert_eq!(none.values.shape()[..], [3, 0]);
    let empty = tensor::<f32>(client, &[], &[0, 4], &[4, 1]);
    assert_eq!(top_k(client, &empty, 1, 2).unwrap().positions.shape()[..], [0, 2]);
    let none_of_none = tensor::<f32>(client, &[], &[3, 0], &[1, 1]);
    let found = largest(5, &none_of_none).over(1).or_fewer().run(client).unwrap();
    assert_eq!(found.values.shape()[..], [3, 0]);

    // New tensors are row-major.
    let found = top_k(client, &y, 1, 2).unwrap();
    assert_eq!(read::<f32>(client, &found.values, 6), [3.0, 2.0, 7.0, 6.0, 11.0, 10.0]);
    assert_eq!(read::<u32>(client, &found.positions, 6), [3, 2, 3, 2, 3, 2]);

    // Outputs of another shape, or with other strides.
    let output = |shape: &[usize], strides: &[usize]| {
        let handle = client.empty(64);
        TensorHandle::new(handle, shape, strides, storage_type(ElementType::F32)).binding()
    };
    let refused = |values: TensorBinding, positions: TensorBinding| {
        let outputs = Selected { values, positions };
        largest(2, &y).over(1).run_into(client, outputs).unwrap_err()
    };
    let error = refused(output(&[3, 3], &[3, 1]), output(&[3, 3], &[3, 1]));
    assert_eq!(error.kind(), ErrorKind::Shape, "{error}");
    let error = refused(output(&[3, 2], &[2, 1]), output(&[3, 2], &[1, 3]));
    assert_eq!(error.kind(), ErrorKind::Shape, "{error}");
    let error = refused(output(&[3, 2], &[0, 1]), output(&[3, 2], &[0, 1]));
    assert_eq!(error.kind(), ErrorKind::Shape, "{error}");
    let error = refused(output(&[3, 2], &[20, 1]), output(&[3, 2], &[20, 1]));
    assert_eq!(error.kind(), ErrorKind::Buffer, "{error}");

    // A plan that breaks a rule.
    let mut plan = largest(2, &y).over(1).choose(client).unwrap().plan;
    plan.digit_bits = 3;
    let error: ReduceError = largest(2, &y).over(1).with_plan(plan).run(client).unwrap_err();
    let reason = source::<PlanError>(&error);
    let digits = |reason: &Illegal| matches!(reason, Illegal::Digits { bits: 3, .. });
    assert!(matches!(reason, Some(PlanError::Unfit { reason, .. }) if digits(reason)), "{error}");
    plan.digit_bits = 4;
    plan.access = Access::new(Direction::Across);
    assert!(largest(2, &y).over(1).with_plan(plan).run(client).is_err() || plan.access.vector == 1);
}
