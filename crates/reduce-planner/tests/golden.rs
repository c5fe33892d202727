//! Every decision of the planner over a large set of reductions (`choose` and `force`), compared
//! with a file line by line. It finds changes that nobody meant; `decisions.rs` says which
//! decisions are meant, and `plans.rs` tests what happens to a plan after the decision. Decisions
//! about applied reductions are in `applied.rs`, those about lists in `list.rs`.
//!
//! `tests/golden/plans.txt` holds one line for each (device, operator and element, case) of a
//! selection, and a digest of the lines of the full product. A line has the form
//!
//! ```text
//! h200 | sum f32 [1024] axis all | 12.06 cube 64x1 plane32, along v4 loads4 | unit slower ...
//! ```
//!
//! with the expected microseconds and the plan, then each schedule that was not taken: its reason,
//! and the plan that `force` makes. The notation does not depend on the names of Rust's types.
//!
//! A change of the file is a change of behaviour. To accept one: `REGENERATE=1 cargo test -p
//! reduce-planner --test golden`. To find what moved a digest, set `GOLDEN_FULL=path` before and
//! after the change: the test writes every line of the full product there.

use std::fmt::Write as _;

use reduce_planner::{
    Access, Combine, Device, Direction, ElementCost, ElementType, InputSpec, Merge, OperatorClass,
    OutputSpec, Plan, Problem, Reason, Schedule, choose, force, row_major_strides, span,
};

const GOLDEN: &str = "tests/golden/plans.txt";

/// What the planner knows of an operator on one element type.
#[derive(Clone, Copy)]
struct Class {
    name: &'static str,
    element: ElementType,
    results: &'static [ElementType],
    class: OperatorClass,
}

const fn class(
    name: &'static str,
    element: ElementType,
    results: &'static [ElementType],
    (fields, accumulator_bytes): (usize, usize),
) -> Class {
    let class = OperatorClass::new(name, accumulator_bytes).fields(fields).blockwise();
    Class { name, element, results, class }
}

impl Class {
    const fn positional(mut self) -> Self {
        self.class = self.class.positional().undefined_on_empty();
        self
    }

    const fn in_passes(mut self, bytes: usize) -> Self {
        self.class = self.class.in_passes(bytes);
        self
    }

    /// An operator of a user that takes no blocks.
    const fn one_by_one(mut self) -> Self {
        self.class.blockwise = false;
        self
    }

    const fn transcendental(mut self) -> Self {
        self.class = self.class.element_cost(ElementCost::Exponential);
        self
    }
}

/// Every kind of operator and element type that the kernels have, as the planner tells them apart.
fn classes() -> Vec<Class> {
    use ElementType::{BF16, F16, F32, F64, I8, I32, U32};
    vec![
        class("sum", F32, &[F32], (1, 4)),
        class("sum", BF16, &[BF16], (1, 4)),
        class("sum", F16, &[F16], (1, 4)),
        class("sum", F64, &[F64], (1, 8)),
        class("sum", I8, &[I32], (1, 4)),
        class("sum", I32, &[I32], (1, 4)),
        class("max", F32, &[F32], (1, 4)),
        class("argmax", F32, &[U32], (2, 8)).positional(),
        class("argmax", F64, &[U32], (2, 12)).positional(),
        class("min_max", F32, &[F32, F32], (2, 8)),
        class("var", F32, &[F32], (5, 20)).in_passes(16),
        class("var", BF16, &[BF16], (5, 20)).in_passes(16),
        class("var", F64, &[F64], (5, 40)).in_passes(32),
        class("mean_var", F32, &[F32, F32], (5, 20)).in_passes(16),
        class("norm_l2", F32, &[F32], (3, 12)).in_passes(8),
        class("norm_l2", F64, &[F64], (3, 24)).in_passes(16),
        class("logsumexp", F32, &[F32], (2, 8)).transcendental().in_passes(8),
        class("logsumexp", BF16, &[BF16], (2, 8)).transcendental().in_passes(8),
        class("logsumexp", F64, &[F64], (2, 16)).transcendental().in_passes(16),
        // Operators behind a map that takes exponentials.
        class("sum_of_exp", F32, &[F32], (1, 4)).transcendental(),
        class("var_of_exp", F32, &[F32], (5, 20)).transcendental(),
        // Operators of users.
        class("own_var", F32, &[F32], (5, 20)).one_by_one(),
        class("mean_angle", F32, &[F32], (2, 8)).transcendental().one_by_one(),
    ]
}

fn devices() -> Vec<(&'static str, Device)> {
    let mut no_atomics = Device::h200();
    no_atomics.wide_atomics = false;
    let mut no_planes = Device::h200();
    no_planes.plane_operations = false;
    let mut software_planes = Device::software_adapter();
    software_planes.plane_operations = true;
    vec![
        ("h200", Device::h200()),
        ("software", Device::software_adapter()),
        ("h200-no-atomics", no_atomics),
        ("software-planes", software_planes),
        ("h200-no-planes", no_planes),
    ]
}

/// A view of a buffer and the axes to reduce.
#[derive(Clone)]
struct Case {
    name: String,
    shape: Vec<usize>,
    strides: Vec<usize>,
    axes: Vec<usize>,
}

impl Case {
    fn contiguous(shape: &[usize], axes: &[usize]) -> Self {
        let all: Vec<usize> = (0..shape.len()).collect();
        let over = match axes {
            [axis] if shape.len() > 1 => axis.to_string(),
            _ if axes == all && axes.len() == 1 => "all".into(),
            _ => format!("{axes:?}"),
        };
        Self {
            name: format!("{shape:?} axis {over}"),
            shape: shape.to_vec(),
            strides: row_major_strides(shape),
            axes: axes.to_vec(),
        }
    }

    fn pitched(shape: &[usize], pitch: usize, axes: &[usize]) -> Self {
        let mut padded = shape.to_vec();
        *padded.last_mut().unwrap() = pitch;
        let base = Self::contiguous(shape, axes);
        Self {
            name: format!("{} pitch {pitch}", base.name),
            strides: row_major_strides(&padded),
            ..base
        }
    }

    fn permuted(shape: &[usize], order: &[usize], axes: &[usize]) -> Self {
        let base = Self::contiguous(shape, axes);
        let pick = |values: &[usize]| order.iter().map(|&axis| values[axis]).collect();
        Self {
            name: format!("{} permuted {order:?}", base.name),
            shape: pick(&base.shape),
            strides: pick(&base.strides),
            axes: base.axes,
        }
    }

    fn sliced(shape: &[usize], steps: &[usize], axes: &[usize]) -> Self {
        let base = Self::contiguous(shape, axes);
        let zip = |values: &[usize], f: fn(usize, usize) -> usize| {
            values.iter().zip(steps).map(|(&value, &step)| f(value, step)).collect()
        };
        Self {
            name: format!("{} sliced {steps:?}", base.name),
            shape: zip(&base.shape, usize::div_ceil),
            strides: zip(&base.strides, |stride, step| stride * step),
            axes: base.axes,
        }
    }

    fn broadcast(shape: &[usize], repeated: &[usize], axes: &[usize]) -> Self {
        let mut stored = shape.to_vec();
        repeated.iter().for_each(|&axis| stored[axis] = 1);
        let base = Self::contiguous(shape, axes);
        let mut strides = row_major_strides(&stored);
        repeated.iter().for_each(|&axis| strides[axis] = 0);
        Self { name: format!("{} broadcast {repeated:?}", base.name), strides, ..base }
    }
}

/// Reads `sum f32 [8192, 8192] axis 1`.
fn fact(line: &str) -> (&str, ElementType, Case) {
    let (head, rest) = line.split_once(" [").unwrap();
    let (shape, over) = rest.split_once("] axis ").unwrap();
    let (operator, element) = head.split_once(' ').unwrap();
    let numbers = |list: &str| -> Vec<usize> {
        list.split(", ").map(|number| number.parse().unwrap()).collect()
    };
    let shape = numbers(shape);
    let case = match over.trim_matches(['(', ')']) {
        "all" => Case::contiguous(&shape, &(0..shape.len()).collect::<Vec<_>>()),
        "T" => Case::permuted(&shape, &[1, 0], &[1]),
        axes => Case::contiguous(&shape, &numbers(axes)),
    };
    (operator, element.parse().unwrap(), case)
}

/// The benchmark cases: benches/cases/facts.txt.
fn facts() -> Vec<(&'static str, ElementType, Case)> {
    let lines = include_str!("../../../benches/cases/facts.txt").lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(fact).collect()
}

/// The sweeps of benches/src/sweep.rs.
fn sweeps() -> Vec<Case> {
    let mut cases = Vec::new();
    for log2 in [26, 28] {
        for axis in [1, 0] {
            for odd in [false, true] {
                for i in 0..=log2 {
                    let (outer, inner) = (1usize << i, 1usize << (log2 - i));
                    if !odd || inner >= 4 {
                        cases.push(Case::contiguous(&[outer, inner - usize::from(odd)], &[axis]));
                    }
                }
            }
        }
    }
    let elements = 1usize << 26;
    cases.extend((1..=64).map(|k| Case::contiguous(&[elements / k, k], &[0])));
    cases.extend((1..=64).map(|k| Case::contiguous(&[elements / (64 * k), 64, k], &[1])));
    cases
}

/// The corpus of crates/reduce-kernels/tests/suite/corpus.rs, and a few empty and huge problems.
fn corpus() -> Vec<Case> {
    let mut cases = vec![
        Case::contiguous(&[], &[]),
        Case::contiguous(&[1], &[0]),
        Case::contiguous(&[4096], &[0]),
        Case::contiguous(&[70_001], &[0]),
        Case::contiguous(&[33, 128], &[1]),
        Case::contiguous(&[5, 4097], &[1]),
        Case::contiguous(&[300, 7], &[1]),
        Case::contiguous(&[3, 20_000], &[1]),
        Case::contiguous(&[128, 36], &[0]),
        Case::contiguous(&[1023, 5], &[0]),
        Case::contiguous(&[4097, 3], &[0]),
        Case::contiguous(&[20_000, 4], &[0]),
        Case::contiguous(&[7, 1000], &[0]),
        Case::contiguous(&[9, 70, 16], &[1]),
        Case::contiguous(&[11, 64, 7], &[1]),
        Case::contiguous(&[4, 6, 10, 12], &[0, 2, 3]),
        Case::contiguous(&[3, 5, 7, 9], &[1, 3]),
        Case::contiguous(&[4, 6, 5, 8, 4], &[0, 2, 4]),
        Case::contiguous(&[4, 6, 5, 8, 4], &[1, 3]),
        Case::contiguous(&[2, 3, 2, 3, 2, 3, 2, 3], &[0, 3, 4, 7]),
        Case::contiguous(&[1, 40, 1, 9, 1], &[1, 2]),
        Case::contiguous(&[17, 1], &[1]),
        Case::contiguous(&[6, 10], &[]),
        Case::pitched(&[37, 50], 64, &[1]),
        Case::pitched(&[37, 50], 64, &[0]),
        Case::pitched(&[90, 33], 36, &[0]),
        Case::pitched(&[9, 101], 103, &[1]),
        Case::pitched(&[9, 101], 103, &[0]),
        Case::pitched(&[3, 8, 29], 32, &[0, 2]),
        Case::permuted(&[40, 96], &[1, 0], &[0]),
        Case::permuted(&[40, 96], &[1, 0], &[1]),
        Case::permuted(&[6, 8, 10, 12], &[3, 1, 0, 2], &[0, 2]),
        Case::permuted(&[5, 7, 101], &[2, 1, 0], &[0, 1]),
        Case::sliced(&[60, 64], &[1, 2], &[1]),
        Case::sliced(&[60, 64], &[1, 2], &[0]),
        Case::sliced(&[200, 33, 6], &[3, 2, 2], &[0, 2]),
        Case::broadcast(&[50, 30], &[0], &[1]),
        Case::broadcast(&[50, 30], &[0], &[0]),
        Case::broadcast(&[50, 30], &[1], &[1]),
        Case::broadcast(&[8, 300, 5], &[1], &[0, 1]),
        Case::broadcast(&[40, 50], &[0, 1], &[0, 1]),
        // Beyond the corpus.
        Case::pitched(&[3000, 1000], 1024, &[1]),
        Case::pitched(&[3000, 1001], 1003, &[1]),
        Case::pitched(&[3000, 1001], 1004, &[0]),
        Case::permuted(&[64, 3000, 256], &[1, 0, 2], &[0, 1]),
        Case::sliced(&[4096, 4096], &[2, 1], &[0]),
        Case::broadcast(&[3, 1 << 20, 1 << 12], &[1, 2], &[1, 2]),
        Case::contiguous(&[1 << 20, 1 << 13], &[1]),
        Case::contiguous(&[1 << 31], &[0]),
        Case::contiguous(&[0, 4], &[1]),
        Case::contiguous(&[1000, 0], &[1]),
    ];
    for length in [2, 3, 7, 8, 15, 31, 32, 63, 255, 257, 1023, 2049] {
        cases.push(Case::contiguous(&[3, length], &[1]));
        cases.push(Case::contiguous(&[length, 12], &[0]));
    }
    cases
}

fn access_text(access: Access) -> String {
    let direction = match access.direction {
        Direction::Along => "along",
        Direction::Across => "across",
    };
    let peeled = match (access.peeled, access.realigned) {
        (true, _) => " peeled",
        (_, true) => " realigned",
        _ => "",
    };
    let outputs = match access.outputs_in_flight {
        1 => String::new(),
        outputs => format!(" outputs{outputs}"),
    };
    let passes = if access.in_passes { " passes" } else { "" };
    let loads = access.loads_in_flight;
    format!("{direction} v{}{peeled} loads{loads}{outputs}{passes}", access.vector)
}

fn combine_text(combine: Combine) -> String {
    match combine {
        Combine::Plane { lanes } => format!("plane{lanes}"),
        Combine::Shared => "shared".into(),
    }
}

fn plan_text(plan: Plan) -> String {
    let schedule = match plan.schedule {
        Schedule::Unit { units_per_cube } => format!("unit {units_per_cube}"),
        Schedule::Plane { lanes_per_output, units_per_cube } => {
            format!("plane {lanes_per_output}/{units_per_cube}")
        }
        Schedule::Cube { units_per_output, outputs_per_cube, combine } => {
            format!("cube {units_per_output}x{outputs_per_cube} {}", combine_text(combine))
        }
        Schedule::Split {
            cubes_per_output,
            units_per_output,
            outputs_per_cube,
            combine,
            merge,
        } => {
            let merge = match merge {
                Merge::LastCube => "last".into(),
                Merge::SecondLaunch { units_per_output, outputs_per_cube } => {
                    format!("second {units_per_output}x{outputs_per_cube}")
                }
                other => panic!("no notation for {other:?}"),
            };
            let combine = combine_text(combine);
            format!(
                "split {cubes_per_output}x{units_per_output}x{outputs_per_cube} {combine} {merge}"
            )
        }
        other => panic!("no notation for {other:?}"),
    };
    format!("{schedule}, {}", access_text(plan.access))
}

/// Four significant digits.
fn rounded(microseconds: f64) -> String {
    if !microseconds.is_finite() || microseconds == 0.0 {
        return microseconds.to_string();
    }
    let digits = 3 - microseconds.abs().log10().floor() as i32;
    let scale = 10f64.powi(digits);
    format!("{}", (microseconds * scale).round() / scale)
}

fn reason_text(reason: &Reason) -> String {
    match reason {
        Reason::NoPlaneOperations => "no-plane-operations".into(),
        Reason::PlaneSizeVaries { min, max } => format!("plane-varies {min}-{max}"),
        Reason::NothingToShare { loads } => format!("nothing-to-share {loads}"),
        Reason::OutputsFillPlane { adjacent, plane } => format!("outputs-fill {adjacent}/{plane}"),
        Reason::TooShortToSplit { loads, needed } => format!("too-short {loads}/{needed}"),
        Reason::OutputsFillDevice { cubes, wanted } => format!("fills-device {cubes}/{wanted}"),
        Reason::Slower { estimate, .. } => format!("slower {}", rounded(estimate.microseconds())),
        Reason::PassesLimits { .. } => "passes-limits".into(),
        other => panic!("no notation for {other:?}"),
    }
}

fn problem(class: Class, case: &Case) -> Problem {
    assert!(span(&case.shape, &case.strides).is_some());
    Problem::new(
        class.class,
        &InputSpec {
            element: class.element,
            shape: &case.shape,
            strides: &case.strides,
            alignment: 256,
        },
        Some(&case.axes),
        &OutputSpec { elements: class.results, strides: None },
    )
    .unwrap()
}

fn line(device_name: &str, device: &Device, class: Class, case: &Case) -> String {
    let mut line = format!("{device_name} | {} {} {} | ", class.name, class.element, case.name);
    if class.class.positional && case.shape.contains(&0) {
        return line + "undefined";
    }
    let problem = problem(class, case);
    let choice = match choose(&problem, device) {
        Ok(choice) => choice,
        Err(_) => return line + "cannot",
    };
    write!(line, "{} {}", rounded(choice.expected_microseconds()), plan_text(choice.plan)).unwrap();
    for refusal in &choice.refused {
        write!(line, " | {} {}", refusal.kind, reason_text(&refusal.reason)).unwrap();
        if let Ok(plan) = force(refusal.kind, &problem, device) {
            assert_eq!(plan.schedule.kind(), refusal.kind);
            write!(line, ": {}", plan_text(plan)).unwrap();
        }
    }
    line
}

/// FNV-1a.
fn digest(digest: &mut u64, text: &str) {
    for byte in text.bytes().chain([b'\n']) {
        *digest = (*digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
}

/// The selection of lines, then the digests of the full product; and the full product.
fn generate() -> (String, String) {
    let classes = classes();
    let (facts, sweeps, corpus) = (facts(), sweeps(), corpus());
    let fact_cases: Vec<Case> = facts.iter().map(|fact| fact.2.clone()).collect();
    let groups = [("facts", &fact_cases), ("sweeps", &sweeps), ("corpus", &corpus)];
    let (mut lines, mut digests, mut full) = (String::new(), String::new(), String::new());
    for (device_name, device) in devices() {
        for (group, cases) in groups {
            for &class in &classes {
                let mut sum = 0xcbf2_9ce4_8422_2325;
                for (nth, case) in cases.iter().enumerate() {
                    let line = line(device_name, &device, class, case);
                    digest(&mut sum, &line);
                    let f32 = class.element == ElementType::F32;
                    let shown = match (group, device_name) {
                        ("facts", _) => (class.name, class.element) == (facts[nth].0, facts[nth].1),
                        ("sweeps", "h200") => {
                            f32 && ["sum", "argmax", "var", "logsumexp"].contains(&class.name)
                        }
                        ("corpus", "h200" | "software") => {
                            f32 && ["sum", "mean_var"].contains(&class.name)
                        }
                        ("corpus", _) => f32 && class.name == "sum",
                        _ => false,
                    };
                    if shown {
                        writeln!(lines, "{line}").unwrap();
                    }
                    writeln!(full, "{line}").unwrap();
                }
                let of = format!("{} {}", class.name, class.element);
                writeln!(digests, "digest | {device_name} | {of} | {group} | {sum:016x}").unwrap();
            }
        }
    }
    (lines + &digests, full)
}

#[test]
fn decisions_are_those_of_the_golden_file() {
    let (found, full) = generate();
    if let Ok(path) = std::env::var("GOLDEN_FULL") {
        std::fs::write(path, full).unwrap();
    }
    if std::env::var_os("REGENERATE").is_some() {
        std::fs::write(GOLDEN, &found).unwrap();
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap();
    let (found, golden): (Vec<&str>, Vec<&str>) =
        (found.lines().collect(), golden.lines().collect());
    let differing = found.iter().zip(&golden).filter(|(found, golden)| found != golden);
    let count = differing.clone().count() + found.len().abs_diff(golden.len());
    let first = differing.clone().next();
    assert!(
        count == 0,
        "{count} lines of {GOLDEN} differ; the first now reads {first:?} (now, golden). \
         REGENERATE=1 writes the file again, if that is wanted."
    );
}
