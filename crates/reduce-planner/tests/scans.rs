//! Scans: what the planner decides, and what a plan may not do.

use reduce_planner::{
    Access, Combine, Device, Direction, ElementCost, ElementType, Illegal, InputSpec, Numerics,
    OperatorClass, PlanError, Planned, ProblemError, ScanParts, ScanPlan, ScanProblem, ScanReason,
    ScanSpec, ScheduleKind, ShardSpec, Tuning, choose_scan, force_scan, row_major_strides,
};

const SUM: OperatorClass = OperatorClass::new("sum", 4);

/// Running sums of a tensor with these strides, along some axes.
fn strided(
    element: ElementType,
    shape: &[usize],
    strides: &[usize],
    axes: &[usize],
) -> ScanProblem {
    let input = InputSpec { element, shape, strides, alignment: 256 };
    let elements = [element];
    let spec = ScanSpec::new(&elements);
    ScanProblem::new(SUM, &input, Some(axes), &spec).unwrap()
}

/// Those of a row-major tensor of f32 along an axis.
fn sums(shape: &[usize], axis: usize) -> ScanProblem {
    strided(ElementType::F32, shape, &row_major_strides(shape), &[axis])
}

fn chosen(problem: &ScanProblem, device: &Device) -> ScanPlan {
    let plan = choose_scan(problem, device).unwrap().plan;
    plan.check(problem, device).unwrap();
    plan
}

/// Rows that one cube scans almost as soon as several do are left to it: cubes that look back wait
/// for each other.
#[test]
fn short_rows_are_not_looked_back() {
    let device = Device::h200();
    let shape = [118, 69_028];
    let problem = strided(ElementType::BF16, &shape, &row_major_strides(&shape), &[1]);
    let plan = chosen(&problem, &device);
    assert_eq!(plan.cubes_per_output, 1, "{plan}");
    assert!(chosen(&sums(&[16, 1 << 22], 1), &device).looks_back());
}

/// Short rows have a few lanes, long ones a cube, and few long ones several cubes. Columns are read
/// across, without a transposition.
#[test]
fn plans_follow_the_shape() {
    let device = Device::h200();
    let sentence = |shape: &[usize], axis| chosen(&sums(shape, axis), &device).to_string();
    assert_eq!(
        sentence(&[65536, 1024], 1),
        "scan by a cube: 128 units per output in planes of 32, 1 output per cube; vectors of 4 \
         along the reduction, 2 loads in flight"
    );
    assert_eq!(
        sentence(&[1 << 20, 64], 1),
        "scan by a plane: 16 units per output in planes of 16, 8 outputs per cube; vectors of 4 \
         along the reduction, 1 load in flight"
    );
    assert_eq!(
        sentence(&[8192, 8192], 1),
        "scan by a cube: 512 units per output in planes of 32, 1 output per cube; vectors of 4 \
         along the reduction, 4 loads in flight"
    );
    assert_eq!(
        sentence(&[8192, 8192], 0),
        "scan by a cube: 32 units per output tile in planes of 2, 16 output tiles per cube; vectors \
         of 4 across outputs, 4 loads in flight"
    );
    assert_eq!(
        sentence(&[1 << 20, 32], 0),
        "scan by 2048 cubes per output tile that look back: 32 units per output tile in planes of 4, \
         8 output tiles per cube; vectors of 4 across outputs, 16 loads in flight"
    );
    assert_eq!(
        sentence(&[1 << 28], 0),
        "scan by 21846 cubes per output that look back: 256 units per output in planes of 32, \
         1 output per cube; vectors of 4 along the reduction, 4 loads in flight, 8 more in shared \
         memory"
    );
    assert_eq!(chosen(&sums(&[1 << 28], 0), &device).levels(), 2);
    // Where cubes may not wait for others, a first launch reads the input too.
    let mut forbidden = Device::h200();
    forbidden.tuning.applied.cubes_wait = false;
    let mut unordered = Device::h200();
    unordered.forward_progress = false;
    for device in [forbidden, unordered] {
        assert_eq!(
            chosen(&sums(&[1 << 28], 0), &device).to_string(),
            "scan by 263 cubes per output in 2 launches: 512 units per output in planes of 32, \
             1 output per cube; vectors of 4 along the reduction, 4 loads in flight"
        );
    }
    assert_eq!(chosen(&sums(&[16, 1 << 22], 1), &device).kind(), ScheduleKind::Split);
    assert_eq!(chosen(&sums(&[1 << 22, 4], 1), &device).kind(), ScheduleKind::Unit);
    assert_eq!(chosen(&sums(&[1 << 22, 16], 1), &device).units_per_output, 4);
}

/// Cubes that look back along long rows keep two thirds of their chunks in shared memory: not where
/// rows have few chunks, narrow elements or edges, nor where lanes exchange elements.
#[test]
fn chunks_are_kept_in_shared_memory() {
    let device = Device::h200();
    let in_shared = |problem: &ScanProblem| {
        let plan = chosen(problem, &device);
        assert!(plan.looks_back(), "{plan}");
        (plan.access.loads_in_flight, plan.in_shared)
    };
    let vector = |element, len: usize| strided(element, &[len], &[1], &[0]);
    assert_eq!(in_shared(&vector(ElementType::F32, 1 << 28)), (4, 8));
    assert_eq!(in_shared(&vector(ElementType::F64, 1 << 27)), (4, 8));
    assert_eq!(in_shared(&sums(&[16, 1 << 22], 1)), (4, 8));
    assert_eq!(in_shared(&vector(ElementType::F32, 1 << 24)), (8, 0));
    assert_eq!(in_shared(&vector(ElementType::BF16, 1 << 28)), (16, 0));
    assert_eq!(in_shared(&sums(&[16, (1 << 22) + 1], 1)), (8, 0));
    let exponential = OperatorClass::new("logsumexp", 8).element_cost(ElementCost::Exponential);
    let element = ElementType::F32;
    let input = InputSpec { element, shape: &[1 << 28], strides: &[1], alignment: 256 };
    let spec = ScanSpec::new(&[ElementType::F32]);
    let long = ScanProblem::new(exponential, &input, Some(&[0]), &spec).unwrap();
    assert_eq!(in_shared(&long).1, 0);
    let problem = vector(ElementType::F32, 1 << 28);
    let plan = chosen(&problem, &device);
    let refused = |change: &dyn Fn(&mut ScanPlan)| {
        let mut plan = plan;
        change(&mut plan);
        match plan.check(&problem, &device) {
            Err(PlanError::Unfit { reason, .. }) => reason,
            other => panic!("{plan}: {other:?}"),
        }
    };
    let parts = |plan: &mut ScanPlan| plan.in_shared = 6;
    assert_eq!(refused(&parts), Illegal::HeldInParts { in_shared: 6, in_flight: 4 });
    let in_shared = Illegal::ScanInShared { in_shared: 8 };
    let alone = |plan: &mut ScanPlan| plan.parts = ScanParts::TwoLaunches;
    assert_eq!(refused(&alone), in_shared);
    let without_planes = |plan: &mut ScanPlan| plan.combine = Combine::Shared;
    assert_eq!(refused(&without_planes), in_shared);
    let mut exchanging = chosen(&long, &device);
    exchanging.access = exchanging.access.with_loads_in_flight(2);
    exchanging.in_shared = 2;
    exchanging.cubes_per_output = exchanging.chunks(&long).try_into().unwrap();
    let error = exchanging.check(&long, &device).unwrap_err();
    let is_in_shared =
        |error| matches!(error, PlanError::Unfit { reason: Illegal::ScanInShared { .. }, .. });
    assert!(is_in_shared(error));
    let columns = sums(&[1 << 20, 32], 0);
    let mut across = chosen(&columns, &device);
    across.access = across.access.with_loads_in_flight(2);
    across.in_shared = 2;
    across.cubes_per_output = across.chunks(&columns).try_into().unwrap();
    assert!(is_in_shared(across.check(&columns, &device).unwrap_err()));
    let much = |plan: &mut ScanPlan| plan.in_shared = 1 << 12;
    assert!(matches!(refused(&much), Illegal::SharedMemory { .. }));
}

/// Multiprocessors with little shared memory would have fewer cubes, and keep less of their chunks.
/// Loads that are shorter than the device's would take many rounds.
#[test]
fn chunks_stay_in_registers_where_these_hold_more() {
    let in_shared = |kilobytes: usize, stride: usize| {
        let mut device = Device::h200();
        device.shared_memory_per_multiprocessor = kilobytes << 10;
        let problem = strided(ElementType::F32, &[1 << 26], &[stride], &[0]);
        chosen(&problem, &device).in_shared
    };
    assert_eq!([228, 164, 100, 64].map(|kilobytes| in_shared(kilobytes, 1)), [8, 8, 0, 0]);
    assert_eq!(in_shared(228, 2), 0);
}

/// Two cubes of columns on two cores, and not one: nine tenths of the multiprocessors are busy.
#[test]
fn columns_keep_cores_busy() {
    let (device, columns) = (Device::software_adapter(), sums(&[1000, 64], 0));
    let plan = force_scan(ScheduleKind::Cube, &columns, &device).unwrap();
    assert!(plan.cubes(&columns) >= u64::from(device.multiprocessors), "{plan}");
}

/// Columns of narrow elements have more rows at a time in fewer units. So many columns that each
/// has few units otherwise have larger cubes, which take fewer chunks.
#[test]
fn columns_have_few_chunks() {
    use ElementType::{BF16, F32};
    let device = Device::h200();
    let plan = |element, shape: &[usize], axis| {
        chosen(&strided(element, shape, &row_major_strides(shape), &[axis]), &device)
    };
    for (element, shape, axis, units, tiles, loads) in [
        (BF16, &[8192, 8192][..], 0, 32, 4, 16),
        (ElementType::F16, &[4096, 16384], 0, 16, 8, 16),
        (BF16, &[16384, 4096], 0, 64, 4, 16),
        (BF16, &[64, 1024, 1024], 1, 8, 8, 16),
        (F32, &[8192, 8192], 0, 32, 16, 4),
        (F32, &[4096, 16384], 0, 16, 16, 4),
        (F32, &[32768, 4096], 0, 64, 8, 4),
        (F32, &[2000, 20000], 0, 32, 8, 8),
        (F32, &[8192, 2048], 0, 128, 4, 4),
        (F32, &[64, 1024, 1024], 1, 16, 16, 8),
    ] {
        let plan = plan(element, shape, axis);
        assert_eq!(plan.cubes_per_output, 1, "{shape:?}: {plan}");
        let found = (plan.units_per_output, plan.outputs_per_cube, plan.access.loads_in_flight);
        assert_eq!(found, (units, tiles, loads), "{element} {shape:?}: {plan}");
    }
    // Operators that take long to merge have more rows of fewer columns, and those of two fields
    // more. Their cubes are large, and so wide that they fill the device.
    let of = |operator: OperatorClass, results: &[ElementType], shape: &[usize], axis: usize| {
        let strides = row_major_strides(shape);
        let input = InputSpec { element: results[0], shape, strides: &strides, alignment: 256 };
        let spec = ScanSpec::new(results);
        let problem = ScanProblem::new(operator, &input, Some(&[axis]), &spec).unwrap();
        let plan = chosen(&problem, &device);
        let Access { vector, loads_in_flight, .. } = plan.access;
        (vector, loads_in_flight, plan.units_per_output, plan.outputs_per_cube)
    };
    let (square, many): (&[usize], &[usize]) = (&[8192, 8192], &[64, 1024, 1024]);
    let means = OperatorClass::new("mean_var", 20).fields(5);
    assert_eq!(of(means, &[F32, F32], square, 0), (1, 16, 8, 32));
    assert_eq!(of(means, &[BF16, BF16], square, 0), (2, 16, 16, 32));
    assert_eq!(of(means, &[F32, F32], many, 1), (1, 16, 8, 32));
    let logarithms =
        OperatorClass::new("logsumexp", 8).fields(2).element_cost(ElementCost::Exponential);
    assert_eq!(of(logarithms, &[F32], square, 0), (2, 16, 16, 32));
    assert_eq!(of(logarithms, &[BF16], square, 0), (2, 16, 16, 32));
    let maxima = OperatorClass::new("max_with_index", 8).fields(2);
    assert_eq!(of(maxima, &[F32], square, 0), (4, 8, 16, 8));
}

/// Operators whose merges take long merge less if lanes have neighbouring loads: they exchange
/// elements, for which the plan counts shared memory. Others keep what they have loaded.
#[test]
fn lanes_exchange_elements_of_long_merges() {
    let device = Device::h200();
    let results = |operator: OperatorClass, elements: &[ElementType]| {
        let shape = [65536, 1024];
        let strides = row_major_strides(&shape);
        let input = InputSpec {
            element: ElementType::F32,
            shape: &shape,
            strides: &strides,
            alignment: 256,
        };
        ScanProblem::new(operator, &input, Some(&[1]), &ScanSpec::new(elements)).unwrap()
    };
    let rows = |operator| results(operator, &[ElementType::F32]);
    let exponential =
        rows(OperatorClass::new("logsumexp", 8).element_cost(ElementCost::Exponential));
    let plan = chosen(&exponential, &device);
    assert!(plan.transposes(&exponential), "{plan}");
    assert_eq!(
        plan.to_string(),
        "scan by a plane: 32 units per output in planes of 32, 1 output per cube; vectors of 4 \
         along the reduction, 8 loads in flight"
    );
    let plain = rows(SUM);
    assert!(!plan.transposes(&plain));
    assert_eq!(chosen(&plain, &device).kind(), ScheduleKind::Cube);
    let positioned = OperatorClass::new("max_with_index", 8).fields(2).positional().blockwise();
    let two = results(positioned, &[ElementType::F32, ElementType::U32]);
    assert_eq!(
        chosen(&two, &device).to_string(),
        "scan by a cube: 64 units per output in planes of 32, 1 output per cube; vectors of 4 along \
         the reduction, 4 loads in flight"
    );
    // 32 units with 8 vectors of 16 bytes, and one vector in eight left out. Results replace
    // elements.
    let vectors = 32 * 8 * 9 / 8;
    let bytes = 16 * vectors;
    let mut small = Device::h200();
    (small.shared_memory_bytes, small.most_shared_memory_bytes) = (bytes - 1, bytes - 1);
    let error = plan.check(&exponential, &small).unwrap_err();
    let reason = Illegal::SharedMemory { bytes, available: bytes - 1 };
    assert!(
        matches!(&error, PlanError::Unfit { reason: found, .. } if *found == reason),
        "{error}"
    );
}

/// Rows of such operators have few lanes with many loads each, because each lane merges what the
/// others have. Few rows have more lanes: all of them fill the device.
#[test]
fn long_merges_take_few_lanes() {
    let planned = |fields: usize, results: &[ElementType], shape: [usize; 2], device: &Device| {
        let (element, strides) = (results[0], row_major_strides(&shape));
        let input = InputSpec { element, shape: &shape, strides: &strides, alignment: 256 };
        let operator = OperatorClass::new("any", 4 * fields).fields(fields);
        let operator = match fields {
            2 => operator.element_cost(ElementCost::Exponential),
            _ => operator,
        };
        let problem =
            ScanProblem::new(operator, &input, Some(&[1]), &ScanSpec::new(results)).unwrap();
        let plan = chosen(&problem, device);
        assert_eq!(plan.kind(), ScheduleKind::Plane, "{plan}");
        (plan.units_per_output, plan.access.loads_in_flight, plan.outputs_per_cube)
    };
    let lanes_of =
        |fields, element, shape, device: &Device| planned(fields, &[element], shape, device);
    let lanes = |fields, element, len, device: &Device| {
        lanes_of(fields, element, [(1 << 26) / len, len], device)
    };
    let (wide, narrow) = (ElementType::F32, ElementType::BF16);
    let cuda = Device::h200();
    assert_eq!(lanes_of(5, wide, [1056, 1024], &cuda), (32, 8, 2));
    let of_variances = |element, len| lanes(5, element, len, &cuda);
    assert_eq!(
        [64, 256, 1024, 8192].map(|len| of_variances(wide, len)),
        [(2, 8, 32), (4, 8, 16), (8, 8, 8), (32, 8, 2)]
    );
    assert_eq!([64, 1024].map(|len| of_variances(narrow, len)), [(2, 4, 32), (2, 8, 32)]);
    // Means and variances take as many places in shared memory as two results do.
    assert_eq!(planned(5, &[wide, wide], [65_536, 1024], &cuda), (16, 4, 4));
    let of_exponentials = |element, len| lanes(2, element, len, &cuda);
    assert_eq!([256, 1024].map(|len| of_exponentials(wide, len)), [(16, 4, 2), (32, 8, 1)]);
    assert_eq!([256, 1024].map(|len| of_exponentials(narrow, len)), [(4, 8, 16), (16, 8, 4)]);
    let mut vulkan = Device::h200();
    vulkan.tuning = Tuning::vulkan();
    assert_eq!(planned(5, &[wide, wide], [65_536, 1024], &vulkan), (16, 2, 2));
    assert_eq!(lanes(5, wide, 1024, &vulkan), (8, 4, 4));
    assert_eq!(lanes(2, wide, 1024, &vulkan), (32, 4, 1));
    vulkan.max_vector = 4;
    assert_eq!(lanes(5, narrow, 1024, &vulkan), (4, 8, 8));
    // Rows share a cube, and lanes have chunks, as the elements that they exchange fit shared
    // memory.
    let mut small = Device::h200();
    (small.shared_memory_bytes, small.most_shared_memory_bytes) = (4 * 1024, 4 * 1024);
    assert_eq!(lanes(5, wide, 1024, &small), (8, 4, 4));
}

/// Long rows that vectors do not divide begin and end inside vectors, and short ones are read in
/// shorter vectors. So are rows whose bits nothing else may decide, and those whose results are too
/// wide for a store of as many.
#[test]
fn vectors_and_rows() {
    let device = Device::h200();
    let vector = |problem: &ScanProblem| {
        let access = chosen(problem, &device).access;
        (access.vector, access.peeled)
    };
    assert_eq!(vector(&sums(&[100, 4096], 1)), (4, false));
    assert_eq!(vector(&sums(&[100, 4098], 1)), (4, true));
    assert_eq!(vector(&sums(&[100, 4097], 1)), (4, true));
    assert_eq!(vector(&sums(&[100, 42], 1)), (2, false));
    assert_eq!(vector(&sums(&[100, 41], 1)), (1, false));
    let invariant = |len| sums(&[100, len], 1).with_numerics(Numerics::BatchInvariant);
    assert_eq!(vector(&invariant(4098)), (2, false));
    assert_eq!(vector(&invariant(4097)), (1, false));
    // Loads of a row cover it wherever it begins.
    let odd = sums(&[100, 4097], 1);
    let mut plan = force_scan(ScheduleKind::Cube, &odd, &device).unwrap();
    plan.access = plan.access.with_loads_in_flight(1);
    (plan.units_per_output, plan.outputs_per_cube) = (32, 1);
    assert_eq!(plan.chunks(&odd), (4097u64 + 6).div_euclid(4).div_ceil(32));
    assert_eq!(vector(&strided(ElementType::BF16, &[100, 4096], &[4096, 1], &[1])), (8, false));
    let elements = &[ElementType::U32];
    let spec = ScanSpec::new(elements);
    let input = InputSpec {
        element: ElementType::BF16,
        shape: &[100, 4096],
        strides: &[4096, 1],
        alignment: 256,
    };
    let wide = ScanProblem::new(SUM, &input, Some(&[1]), &spec).unwrap();
    assert_eq!(vector(&wide), (4, false));
}

/// Equal layouts are equal problems: dimensions without gaps are one, in the order of positions.
#[test]
fn layouts_are_canonical() {
    let whole = strided(ElementType::F32, &[4, 6, 10], &[60, 10, 1], &[1, 2]);
    assert_eq!(whole.to_string(), strided(ElementType::F32, &[4, 60], &[60, 1], &[1]).to_string());
    assert_eq!((whole.len(), whole.problem().outputs()), (60, 4));
    // A transposed view is scanned in the order of its positions, not in that of memory.
    let transposed = strided(ElementType::F32, &[6, 10], &[1, 6], &[0, 1]);
    let strides: Vec<usize> = transposed.problem().reduced().iter().map(|dim| dim.stride).collect();
    assert_eq!((strides, &transposed.output().reduced[..]), (vec![1, 6], &[10, 1][..]));
    assert_eq!(strided(ElementType::F32, &[3, 0], &[0, 1], &[1]).bytes(), 0);
}

/// The choice says why each other schedule was not taken, and each that applies can be forced.
#[test]
fn choices_are_explained() {
    let device = Device::h200();
    let problem = sums(&[65536, 1024], 1);
    let choice = choose_scan(&problem, &device).unwrap();
    let refused: Vec<String> = choice.refused.iter().map(ToString::to_string).collect();
    assert_eq!(refused[0], "unit: rows of 256 loads are longer than the 1 that it holds");
    assert_eq!(refused[1], "plane: rows of 256 loads are longer than the 128 that it holds");
    assert_eq!(
        refused[2],
        "split: no need to split: 65536 cubes without a split, and 1056 fill the device"
    );
    let by_units = force_scan(ScheduleKind::Unit, &sums(&[8192, 8192], 0), &device).unwrap();
    assert_eq!(by_units.kind(), ScheduleKind::Unit);
    by_units.check(&sums(&[8192, 8192], 0), &device).unwrap();
    let refused = force_scan(ScheduleKind::Split, &problem, &device);
    assert!(matches!(refused, Err(PlanError::NoScanSchedule { .. })), "{refused:?}");
    let columns = choose_scan(&sums(&[8192, 8192], 0), &device).unwrap();
    let slower = |refusal: &_| matches!(refusal, ScanReason::Slower { .. });
    assert!(columns.refused.iter().any(|refusal| slower(&refusal.reason)), "{columns:?}");
    let limit = Illegal::PlaneAcrossOutputs;
    let expected = ScanReason::PassesLimits { limit };
    assert!(columns.refused.iter().any(|refusal| refusal.reason == expected));
}

/// Plans for any device and shape obey the rules.
#[test]
fn every_choice_may_run() {
    for device in Device::presets().filter_map(Device::preset) {
        for shape in [
            [0, 5],
            [5, 0],
            [1, 1],
            [1, 1 << 20],
            [1 << 16, 3],
            [7, 4097],
            [333, 128],
            [4096, 4096],
        ] {
            for axis in [0, 1] {
                for numerics in [Numerics::Deterministic, Numerics::BatchInvariant] {
                    let problem = sums(&shape, axis).with_numerics(numerics);
                    let plan = chosen(&problem, &device);
                    assert!(problem.estimate(&plan, &device).unwrap().microseconds() > 0.0);
                }
            }
        }
    }
}

/// Batch-invariant plans do not depend on the number of rows, and others do not pass for them.
#[test]
fn batches_make_no_difference() {
    let device = Device::h200();
    let plan = |rows: usize| {
        let problem = sums(&[rows, 1 << 16], 1).with_numerics(Numerics::BatchInvariant);
        chosen(&problem, &device)
    };
    assert_eq!(plan(1), plan(4096));
    // Columns are read in vectors where these divide them. A column does not know.
    let of_columns = |columns: usize| {
        let problem = sums(&[1 << 16, columns], 0).with_numerics(Numerics::BatchInvariant);
        let plan = chosen(&problem, &device);
        (plan.units_per_output, plan.access.loads_in_flight, plan.cubes_per_output)
    };
    assert_eq!(of_columns(2), of_columns(4096));
    assert_eq!(of_columns(9), of_columns(4096));
    assert_eq!(plan(1).cubes_per_output, 1);
    let free = chosen(&sums(&[1, 1 << 16], 1), &device);
    let problem = sums(&[1, 1 << 16], 1).with_numerics(Numerics::BatchInvariant);
    assert!(free.check(&problem, &device).unwrap_err().is_unfit_plan());
    let mut other = plan(1);
    other.units_per_output /= 2;
    let error = other.check(&problem, &device).unwrap_err();
    let numerics = Numerics::BatchInvariant;
    assert!(matches!(error, PlanError::Unfit { reason: Illegal::OtherBits { numerics: n }, .. }
        if n == numerics));
    // No order of merges is fixed for operators that round.
    let reproducible = sums(&[4, 64], 1).with_numerics(Numerics::Reproducible);
    assert!(choose_scan(&reproducible, &device).unwrap_err().is_not_reproducible());
}

/// What no plan may do.
#[test]
fn rules() {
    let device = Device::h200();
    let problem = sums(&[100, 1 << 16], 1);
    let plan = force_scan(ScheduleKind::Cube, &problem, &device).unwrap();
    let reason = |change: &dyn Fn(&mut ScanPlan)| {
        let mut plan = plan;
        change(&mut plan);
        match plan.check(&problem, &device) {
            Err(PlanError::Unfit { reason, .. }) => reason,
            other => panic!("{plan}: {other:?}"),
        }
    };
    let realigned = |plan: &mut ScanPlan| plan.access = plan.access.with_realigned(true);
    assert_eq!(reason(&realigned), Illegal::ScanAccess);
    let invariant = problem.clone().with_numerics(Numerics::BatchInvariant);
    let mut peeled = force_scan(ScheduleKind::Cube, &invariant, &device).unwrap();
    peeled.access = peeled.access.with_peeled(true);
    let refused = peeled.check(&invariant, &device).unwrap_err();
    assert!(matches!(refused, PlanError::Unfit { reason: Illegal::PeeledScan, .. }), "{refused}");
    let three = |plan: &mut ScanPlan| plan.access = plan.access.with_loads_in_flight(3);
    assert_eq!(reason(&three), Illegal::ScanAccess);
    assert_eq!(reason(&|plan: &mut ScanPlan| plan.cubes_per_output = 0), Illegal::NoCubes);
    let many = |plan: &mut ScanPlan| plan.cubes_per_output = u32::MAX;
    assert!(matches!(reason(&many), Illegal::SplitStride { .. }));
    let units = |plan: &mut ScanPlan| plan.units_per_output = 96;
    assert!(matches!(reason(&units), Illegal::NotPowerOfTwo { .. }));
    let overflow = |plan: &mut ScanPlan| plan.outputs_per_cube = u32::MAX;
    assert_eq!(reason(&overflow), Illegal::UnitsDoNotDivide);
    let lone = |plan: &mut ScanPlan| {
        (plan.units_per_output, plan.outputs_per_cube) = (1, 256);
        plan.combine = Combine::Plane { lanes: 1 };
    };
    assert_eq!(reason(&lone), Illegal::OneLane);
    let much = |plan: &mut ScanPlan| {
        plan.combine = Combine::Shared;
        (plan.units_per_output, plan.outputs_per_cube) = (1024, 1);
        plan.access = plan.access.with_loads_in_flight(16);
    };
    assert!(matches!(reason(&much), Illegal::SharedMemory { .. }));
    let across = |plan: &mut ScanPlan| {
        plan.access = Access::new(Direction::Across);
        plan.outputs_per_cube = 2;
    };
    assert_eq!(reason(&across), Illegal::LanesBesideOutputs { lanes: 32, outputs: 2, plane: 32 });
    let mut old = plan;
    old.version += 1;
    assert!(matches!(old.check(&problem, &device), Err(PlanError::Version { .. })));
}

/// Outputs that would share places, and other statements that make no sense.
#[test]
fn wrong_statements() {
    let (shape, strides) = (&[4, 6], &[6, 1]);
    let input = InputSpec { element: ElementType::F32, shape, strides, alignment: 16 };
    let state = |axes: &[usize], output: Option<&[usize]>| {
        let elements = &[ElementType::F32];
        let spec =
            ScanSpec { strides: output, exclusive: true, reverse: true, ..ScanSpec::new(elements) };
        ScanProblem::new(SUM.undefined_on_empty(), &input, Some(axes), &spec)
    };
    assert!(matches!(state(&[2], None), Err(ProblemError::AxisOutOfRange { .. })));
    assert!(matches!(state(&[0, 0], None), Err(ProblemError::AxisRepeated { .. })));
    assert!(matches!(state(&[0], Some(&[0, 1])), Err(ProblemError::OutputOverlaps { .. })));
    assert!(matches!(state(&[0], Some(&[1])), Err(ProblemError::RankMismatch { .. })));
    let of_shard = |axes: &[usize], axis| {
        let shard = Some(ShardSpec { axis, start: 3, of: 9 });
        let spec = ScanSpec { shard, ..ScanSpec::new(&[ElementType::F32]) };
        ScanProblem::new(SUM.positional(), &input, Some(axes), &spec)
    };
    let inside = ProblemError::ShardInside { axis: 1, outer: 0 };
    assert_eq!(of_shard(&[0, 1], 1).unwrap_err(), inside);
    assert!(matches!(of_shard(&[0], 1), Err(ProblemError::Shard { is_reduced: false, .. })));
    let past = ScanSpec {
        shard: Some(ShardSpec { axis: 0, start: 6, of: 9 }),
        ..ScanSpec::new(&[ElementType::F32])
    };
    let past = ScanProblem::new(SUM, &input, Some(&[0]), &past);
    assert!(matches!(past, Err(ProblemError::Shard { is_reduced: true, .. })));
    assert_eq!(of_shard(&[0, 1], 0).unwrap().problem().first_position(), 18);
    let stated = state(&[1], Some(&[1, 4])).unwrap();
    let line = stated.line();
    assert!(line.ends_with("| outputs kept 1 scanned 4 | exclusive | reverse"), "{line}");
}

/// What comes before rows lies in the order of the kept axes, whatever the order of the rows in
/// memory.
#[test]
fn accumulators_before_rows() {
    let (shape, strides) = (&[3, 5, 4], &[1, 12, 3]);
    let input = InputSpec { element: ElementType::F32, shape, strides, alignment: 16 };
    let spec = ScanSpec { continues: true, ..ScanSpec::new(&[ElementType::F32]) };
    let problem = ScanProblem::new(SUM, &input, Some(&[1]), &spec).unwrap();
    let extents: Vec<usize> = problem.problem().kept().iter().map(|dim| dim.extent).collect();
    let earlier = problem.earlier().unwrap();
    assert_eq!(
        (extents, &earlier.kept[..], &earlier.reduced[..]),
        (vec![4, 3], &[1, 4][..], &[0][..])
    );
    let alone = ScanSpec { continues: false, ..spec };
    assert!(ScanProblem::new(SUM, &input, Some(&[1]), &alone).unwrap().earlier().is_none());
}

/// Buffers that a launch binds: rows with edges bind each tensor twice, and what comes before the
/// rows is one more.
#[test]
fn bindings() {
    let bound = |len: usize, continues: bool| {
        let shape = &[100, len];
        let strides = &[len, 1];
        let input = InputSpec { element: ElementType::F32, shape, strides, alignment: 256 };
        let spec = ScanSpec { continues, ..ScanSpec::new(&[ElementType::F32]) };
        let problem = ScanProblem::new(SUM, &input, Some(&[1]), &spec).unwrap();
        let plan = force_scan(ScheduleKind::Cube, &problem, &Device::h200()).unwrap();
        let fits = |max_bindings| {
            let mut device = Device::h200();
            device.max_bindings = max_bindings;
            plan.check(&problem, &device).is_ok()
        };
        (1..20).find(|&bindings| fits(bindings)).unwrap()
    };
    assert_eq!((bound(4096, false), bound(4096, true)), (2, 3));
    assert_eq!((bound(4097, false), bound(4097, true)), (4, 5));
}

/// Through Vulkan, a plane scans a row for several results with few loads in flight, where CUDA has
/// a cube for it.
#[test]
fn several_results_take_planes_through_vulkan() {
    let planned = |element: ElementType, shape: [usize; 2], device: &Device| {
        let strides = row_major_strides(&shape);
        let input = InputSpec { element, shape: &shape, strides: &strides, alignment: 256 };
        let maxima = OperatorClass::new("max_with_index", 8).fields(2).positional().blockwise();
        let results = [element, ElementType::U32];
        let spec = ScanSpec::new(&results);
        let problem = ScanProblem::new(maxima, &input, Some(&[1]), &spec).unwrap();
        let plan = chosen(&problem, device);
        (plan.units_per_output, plan.access.loads_in_flight, plan.outputs_per_cube)
    };
    let mut vulkan = Device::h200();
    (vulkan.tuning, vulkan.max_vector) = (Tuning::vulkan(), 4);
    for (element, shape) in [
        (ElementType::F32, [65536, 1024]),
        (ElementType::F32, [16384, 4096]),
        (ElementType::BF16, [65536, 1024]),
    ] {
        assert_eq!(planned(element, shape, &vulkan), (32, 2, 4), "{element} {shape:?}");
    }
    assert_eq!(planned(ElementType::F32, [65536, 1024], &Device::h200()), (64, 4, 1));
}
