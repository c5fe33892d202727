//! Reproducible results: every device, backend, compiler, layout and plan gives the bits of one
//! table, which a plain function of the host has computed (`table.rs`).

use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    Device, ElementType, Mean, ReduceError, Sum,
    cubecl::{prelude::*, std::tensor::TensorHandle},
    device_of,
    list::reduce_list,
    normalize::Softmax,
    operators::*,
    pairs::{ElementwiseProduct, SquaredDifference},
    planner::{Plan, PlanError, candidates},
    plans::{Numerics, use_numerics},
    reduce,
    top_k::{Over, largest},
};

use crate::run::{POISON, capable_device, decode, encode, source, tensor_of};

mod table;

use table::{LONG, OPERATORS, SLICES, TYPES, expected, result_type, reversed, slice, slices_of};

/// Where the slices of one length lie.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lying {
    /// Rows without gaps.
    Rows,
    /// Rows that begin at no vector's boundary.
    Pitched,
    /// Columns without gaps.
    Columns,
    /// Rows of two halves, each of which is a row of another matrix.
    Halves,
    /// Rows whose elements lie in another order than that of their positions.
    Interleaved,
    /// One row alone.
    Alone,
}

impl Lying {
    const ALL: [Lying; 6] = [
        Lying::Rows,
        Lying::Pitched,
        Lying::Columns,
        Lying::Halves,
        Lying::Interleaved,
        Lying::Alone,
    ];

    /// Shape, strides and reduced axes of a tensor of so many slices.
    fn layout(self, slices: usize, len: usize) -> (Vec<usize>, Vec<usize>, Vec<usize>) {
        let half = len / 2;
        match self {
            Lying::Rows => (vec![slices, len], vec![len, 1], vec![1]),
            Lying::Pitched => (vec![slices, len], vec![len + 1, 1], vec![1]),
            Lying::Columns => (vec![len, slices], vec![slices, 1], vec![0]),
            Lying::Halves => (vec![2, slices, half], vec![slices * half, half, 1], vec![0, 2]),
            Lying::Interleaved => (vec![slices, 2, half], vec![len, 1, 2], vec![1, 2]),
            Lying::Alone => (vec![len], vec![1], vec![0]),
        }
    }

    /// Where element `i` of slice `nth` lies.
    fn at(self, nth: usize, i: usize, slices: usize, len: usize) -> usize {
        let half = len / 2;
        match self {
            Lying::Rows | Lying::Alone => nth * len + i,
            Lying::Pitched => nth * (len + 1) + i,
            Lying::Columns => i * slices + nth,
            Lying::Halves => (i / half * slices + nth) * half + i % half,
            Lying::Interleaved => nth * len + i % half * 2 + i / half,
        }
    }

    /// Whether slices of this length can lie like this.
    fn takes(self, len: usize) -> bool {
        !matches!(self, Lying::Halves | Lying::Interleaved) || len.is_multiple_of(2)
    }
}

/// A line of the table on a client: its operator, type and length.
#[derive(Clone, Copy, Debug)]
struct Line {
    operator: &'static str,
    element: ElementType,
    len: usize,
}

impl Line {
    /// The slices as a tensor, and the elements that go with them as a second one.
    fn tensors(&self, client: &Client, lying: Lying, slices: usize) -> [TensorHandle; 2] {
        let &Line { operator, element, len } = self;
        let (shape, strides, _) = lying.layout(slices, len);
        let span = reduce_kernels::planner::span(&shape, &strides).unwrap();
        let size = element.bytes();
        let of = |second: bool| {
            let mut bytes = vec![POISON; span * size];
            for nth in 0..slices {
                let slice = slice(operator, element, len, nth);
                let slice = if second { reversed(&slice) } else { slice };
                for (i, element) in encode(element, &slice).chunks(size).enumerate() {
                    let at = lying.at(nth, i, slices, len) * size;
                    bytes[at..at + size].copy_from_slice(element);
                }
            }
            tensor_of(client, element, &bytes, &shape, &strides)
        };
        [of(false), of(true)]
    }

    /// Reduces the slices in one layout with the chosen plan, or with each of these.
    fn check(&self, client: &Client, device: &Device, lying: Lying, plans: &[Plan]) {
        let &Line { operator, len, .. } = self;
        let slices = if lying == Lying::Alone { 1 } else { slices_of(len) };
        let [x, y] = self.tensors(client, lying, slices);
        let (_, _, axes) = lying.layout(slices, len);
        macro_rules! found {
            ($reduction:expr) => {{
                let reduction =
                    $reduction.over(axes.clone()).numerics(Numerics::Reproducible).plan_for(device);
                let of_plan = |plan: Option<Plan>| {
                    let reduction = match plan {
                        Some(plan) => reduction.clone().with_plan(plan),
                        None => reduction.clone(),
                    };
                    let plan = reduction.plan(client).map(|choice| choice.plan.to_string());
                    (reduction.run(client), plan)
                };
                match plans {
                    [] => self.compare(client, lying, slices, of_plan(None)),
                    plans => plans.iter().for_each(|&plan| {
                        self.compare(client, lying, slices, of_plan(Some(plan)));
                    }),
                }
            }};
        }
        match operator {
            "sum" => found!(reduce(Sum, &x)),
            "mean" => found!(reduce(Mean, &x)),
            "prod" => found!(reduce(Prod, &x)),
            "sum_abs" => found!(reduce(SumAbs, &x)),
            "sum_squares" => found!(reduce(SumSquares, &x)),
            "norm_l1" => found!(reduce(NormL1, &x)),
            "norm_l2" => found!(reduce(NormL2, &x)),
            "norm_inf" => found!(reduce(NormInf, &x)),
            "nansum" => found!(reduce(NanSum, &x)),
            "nanmean" => found!(reduce(NanMean, &x)),
            "max" => found!(reduce(Max, &x)),
            "min" => found!(reduce(Min, &x)),
            "nanmax" => found!(reduce(NanMax, &x)),
            "argmax" => found!(reduce(ArgMax, &x)),
            "argmin" => found!(reduce(ArgMin, &x)),
            "count_nonzero" => found!(reduce(CountNonzero, &x)),
            "dot" => found!(reduce(Sum, &x).paired(&y, ElementwiseProduct)),
            "mse" => found!(reduce(Mean, &x).paired(&y, SquaredDifference)),
            _ => panic!("{operator} is not in the table"),
        }
    }

    /// Compares results with the table.
    fn compare(
        &self,
        client: &Client,
        lying: Lying,
        slices: usize,
        (results, plan): (Result<TensorHandle, ReduceError>, Result<String, ReduceError>),
    ) {
        let &Line { operator, element, len } = self;
        let results = results.unwrap_or_else(|error| panic!("{self:?} {lying:?}: {error}"));
        let plan = plan.unwrap();
        assert!(plan.ends_with("; reproducible"), "{plan}");
        let of = result_type(operator, element);
        let held = client.read_one(results.handle);
        let held = held.unwrap_or_else(|error| panic!("{self:?} {lying:?} {plan}: {error}"));
        for nth in 0..slices {
            let mut found = held[nth * of.bytes()..(nth + 1) * of.bytes()].to_vec();
            // The bits of a NaN of 16 bits are the device's affair.
            if of.bytes() == 2 && decode(of, &found)[0].is_nan() {
                found = encode(of, &[f64::NAN]);
            }
            let expected = expected(operator, element, len, nth);
            let (value, right) = (decode(of, &found)[0], decode(of, &expected)[0]);
            assert!(
                found == expected,
                "slice {nth} of {self:?} {lying:?}: {found:x?} ({value:e}) for {expected:x?} \
                 ({right:e}) with {plan}"
            );
        }
    }
}

/// The lines of these operators and a type, each with a layout. Layouts take turns, so that each
/// operator has all of them.
fn lines(
    operators: [&'static str; 6],
    element: ElementType,
    layouts: &[Lying],
) -> impl Iterator<Item = (Line, Lying)> {
    let (_, lengths) = TYPES.into_iter().find(|&(of, _)| of == element).unwrap();
    let of_operator = move |(place, operator): (usize, &'static str)| {
        lengths.iter().enumerate().flat_map(move |(nth, &len)| {
            let line = Line { operator, element, len };
            let turn = |of: usize| -> Lying { layouts[(place + nth + of) % layouts.len()] };
            let pair = [turn(0), turn(layouts.len() / 2)];
            pair.into_iter().filter(move |lying| lying.takes(len)).map(move |lying| (line, lying))
        })
    };
    operators.into_iter().enumerate().flat_map(of_operator)
}

/// The lines of f32, with the plans of the client's device and of one with plane operations and
/// wide atomics.
fn every_layout(client: &Client, operators: [&'static str; 6]) {
    let devices = [device_of(client), capable_device(client)];
    for (nth, (line, lying)) in lines(operators, ElementType::F32, &Lying::ALL).enumerate() {
        line.check(client, &devices[nth / 2 % 2], lying, &[]);
    }
}

/// Sums and products in every layout.
pub(crate) fn sums(client: &Client) {
    every_layout(client, OPERATORS[0]);
}

/// Means and norms in every layout: they end with quotients and roots.
pub(crate) fn means_and_norms(client: &Client) {
    every_layout(client, OPERATORS[1]);
}

/// What is exact, in every layout.
pub(crate) fn exact(client: &Client) {
    every_layout(client, OPERATORS[2]);
}

/// Another type in rows and columns, if the device has it.
pub(crate) fn of_type(client: &Client, element: ElementType) {
    let device = capable_device(client);
    if device.has(element) {
        for (line, lying) in
            OPERATORS.into_iter().flat_map(|of| lines(of, element, &[Lying::Rows, Lying::Columns]))
        {
            line.check(client, &device, lying, &[]);
        }
    }
}

/// Plans that a search compares give the same bits, whatever they divide the lanes among.
pub(crate) fn every_plan(client: &Client) {
    let device = capable_device(client);
    let mut without = device.clone();
    without.wide_atomics = false;
    for (operator, len) in
        [("sum", 17), ("sum", 1000), ("sum", 5000), ("norm_l2", 70_000), ("dot", 5000)]
    {
        let line = Line { operator, element: ElementType::F32, len };
        for lying in [Lying::Rows, Lying::Columns] {
            for device in [&device, &without] {
                let (shape, strides, axes) = lying.layout(SLICES, len);
                let x = reduce_kernels::TensorDescription::strided(line.element, shape, strides);
                let problem = match operator {
                    "sum" => reduce(Sum, &x).over(axes).numerics(Numerics::Reproducible).problem(),
                    "dot" => reduce(Sum, &x)
                        .paired(&x, ElementwiseProduct)
                        .over(axes)
                        .numerics(Numerics::Reproducible)
                        .problem(),
                    _ => reduce(NormL2, &x).over(axes).numerics(Numerics::Reproducible).problem(),
                };
                let all = candidates(&problem.unwrap(), device).unwrap();
                assert!(all.len() > 1);
                // The fastest and, of the others, as many as a test has time for.
                let others = all.iter().skip(2).step_by(all.len().div_ceil(6));
                let plans: Vec<Plan> =
                    all.iter().take(2).chain(others).map(|candidate| candidate.plan).collect();
                line.check(client, device, lying, &plans);
            }
        }
    }
}

/// Realigned rows have the lanes of all others: wherever they start, whatever their length leaves at
/// the end, and however a plan divides the lanes.
pub(crate) fn realigned_rows(client: &Client) {
    let device = capable_device(client);
    let mut divided = [false; 4];
    for (operator, len) in
        [("sum", 33), ("sum", 777), ("norm_l2", 2050), ("sum", 9999), ("sum", 4096)]
    {
        let rows = 5;
        let pitch = len + 1 + len % 2;
        let element = ElementType::F32;
        let mut bytes = vec![POISON; (rows * pitch) * element.bytes()];
        let slices: Vec<Vec<f64>> =
            (0..rows).map(|nth| slice(operator, element, len, nth)).collect();
        for (slice, row) in slices.iter().zip(bytes.chunks_mut(pitch * element.bytes())) {
            row[..len * element.bytes()].copy_from_slice(&encode(element, slice));
        }
        let x = tensor_of(client, element, &bytes, &[rows, len], &[pitch, 1]);
        let same = Numerics::Reproducible;
        let problem = match operator {
            "sum" => reduce(Sum, &x).over(1).numerics(same).problem(),
            _ => reduce(NormL2, &x).over(1).numerics(same).problem(),
        };
        let all = candidates(&problem.unwrap(), &device).unwrap();
        let step = all.len().div_ceil(8);
        for plan in all.iter().step_by(step).map(|candidate| candidate.plan) {
            assert!(plan.access.realigned, "{plan}");
            let units = plan.schedule.units_per_output();
            divided[0] |= plan.access.accumulators > 1;
            divided[1] |= units == 1;
            divided[2] |= units > 1;
            divided[3] |= plan.schedule.cubes_per_output() > 1;
            macro_rules! results {
                ($operator:expr) => {
                    reduce($operator, &x).over(1).numerics(same).with_plan(plan).plan_for(&device)
                };
            }
            let results = match operator {
                "sum" => results!(Sum).run(client),
                _ => results!(NormL2).run(client),
            };
            let held = client.read_one(results.unwrap().handle).expect("the device answers");
            for (nth, slice) in slices.iter().enumerate() {
                let found = &held[nth * 4..nth * 4 + 4];
                let expected = table::bits(operator, element, slice);
                assert_eq!(found, expected, "slice {nth} of {len} with {plan}");
            }
        }
    }
    assert_eq!(divided, [true; 4], "accumulators, one unit, several, cubes");
}

/// Lanes of several chains, and counts that f32 does not hold.
pub(crate) fn long_slices(client: &Client) {
    let device = capable_device(client);
    for (operator, len) in LONG {
        Line { operator, element: ElementType::F32, len }.check(client, &device, Lying::Rows, &[]);
    }
}

/// Quotients and roots of many numbers: means and norms of short rows, against the plain function.
pub(crate) fn quotients_and_roots(client: &Client) {
    let rows = 20_000;
    let mut rng = StdRng::seed_from_u64(7);
    let device = device_of(client);
    for (element, len) in [(ElementType::F32, 3), (ElementType::F32, 7), (ElementType::F64, 11)] {
        if !device.has(element) {
            continue;
        }
        let number = |_| rng.random_range(-1.0..1.0f64) * 2f64.powi(rng.random_range(-40..40));
        let numbers: Vec<f64> = (0..rows * len).map(number).collect();
        let bytes = encode(element, &numbers);
        let numbers = decode(element, &bytes);
        let x = tensor_of(client, element, &bytes, &[rows, len], &[len, 1]);
        let same = Numerics::Reproducible;
        let results = [
            ("mean", reduce(Mean, &x).over(1).numerics(same).run(client).unwrap()),
            ("norm_l2", reduce(NormL2, &x).over(1).numerics(same).run(client).unwrap()),
        ];
        for (operator, result) in results {
            let held = client.read_one(result.handle).expect("the device answers");
            for (row, found) in numbers.chunks(len).zip(held.chunks(element.bytes())) {
                let expected = table::bits(operator, element, row);
                assert_eq!(found, expected, "{operator} of {row:?}");
            }
        }
    }
}

/// What has no such form is refused before any launch, and the error says so.
pub(crate) fn refusals(client: &Client) {
    let x = reduce_kernels::TensorDescription::row_major(ElementType::F32, [8, 1000]);
    let refused = |error: ReduceError, of: Option<&str>| {
        let plan = source::<PlanError>(&error).unwrap_or_else(|| panic!("{error}"));
        assert!(plan.is_not_reproducible(), "{error}");
        assert!(error.to_string().contains(of.unwrap_or(" has no form")), "{error}");
    };
    let same = Numerics::Reproducible;
    let var = Var { correction: 1.0 };
    refused(reduce(var, &x).over(1).numerics(same).plan(client).unwrap_err(), None);
    refused(reduce(LogSumExp, &x).over(1).numerics(same).plan(client).unwrap_err(), None);
    let applied = Softmax.of(&x, 1).numerics(same).plan(client).unwrap_err();
    refused(applied, Some("applied to its elements"));
    let list = reduce_list(Sum, [&x]).numerics(same).plan(client).unwrap_err();
    refused(list, Some("of a list"));
    let data = vec![0u8; 8 * 1000 * 4];
    let x = tensor_of(client, ElementType::F32, &data, &[8, 1000], &[1000, 1]);
    let partials = reduce(Sum, &x).over(1).numerics(same).partials(client).unwrap_err();
    refused(partials, Some("partial results"));
}

/// The numerics of the process hold for calls that say nothing. Selections compare only, but
/// probabilities are refused.
pub(crate) fn of_the_process(client: &Client) {
    let x = reduce_kernels::TensorDescription::row_major(ElementType::F32, [8, 1000]);
    let _alone = crate::plans::alone();
    use_numerics(Numerics::Reproducible);
    let plan = reduce(Sum, &x).over(1).plan(client);
    let selected = largest(8, &x).over(1).check(client);
    let probabilities = [Over::Selected, Over::Slice]
        .map(|over| largest(8, &x).over(1).probabilities(over).check(client));
    use_numerics(Numerics::Deterministic);
    assert_eq!(plan.unwrap().plan.numerics, Numerics::Reproducible);
    selected.unwrap();
    for refused in probabilities {
        let error = refused.unwrap_err();
        let plan = source::<PlanError>(&error).unwrap_or_else(|| panic!("{error}"));
        assert!(plan.is_not_reproducible(), "{error}");
    }
}
