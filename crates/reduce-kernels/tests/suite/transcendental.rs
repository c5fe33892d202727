//! Exponentials, logarithms, powers and roots of f64, and the operators made of them.

use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    ElementType, Map, Mean,
    cubecl::{self, prelude::*},
    device_of,
    operator::{One, Parameters, math},
    operators::{LogSumExp, NormP},
    planner::Plan,
    reduce,
    testing::widest_plans,
};

use crate::{
    case::Case,
    operators::Checked,
    reference::{Exact, exp, ln, pow},
    run::{Asked, capable_device, check, problem_of, read, results, tensor},
};

/// What the documentation of `operator::math` promises, in units in the last place.
const EXP_BOUND: f64 = 1.0;
const LN_BOUND: f64 = 1.0;
const POW_BOUND: f64 = 1.5;

/// Results per pair of arguments: `exp(x)`, `ln(x)`, `pow(x, y)` and `root(x, y)`.
const FUNCTIONS: usize = 4;

/// Pairs of arguments per kernel: two lanes a unit.
const PER_CUBE: usize = 128;

#[cube(launch)]
fn functions(
    x: &[Vector<f64, Const<2>>],
    y: &[Vector<f64, Const<2>>],
    results: &mut [Vector<f64, Const<2>>],
) {
    let at = ABSOLUTE_POS;
    if at < x.len() {
        let to = comptime![FUNCTIONS] * at;
        results[to] = math::exp::<f64, Const<2>>(x[at]);
        results[to + 1] = math::ln::<f64, Const<2>>(x[at]);
        results[to + 2] = math::pow::<f64, Const<2>>(x[at], y[at]);
        results[to + 3] = math::root::<f64, Const<2>>(x[at], y[at]);
    }
}

/// What the device makes of pairs: the results of each function in the order of the pairs.
fn evaluate(client: &Client, pairs: &[(f64, f64)]) -> [Vec<f64>; FUNCTIONS] {
    let mut pairs = pairs.to_vec();
    let asked = pairs.len();
    pairs.resize(asked.next_multiple_of(PER_CUBE), (1.0, 1.0));
    let len = pairs.len();
    let column = |values: Vec<f64>| tensor(client, &values, &[values.len()], &[1]);
    let x = column(pairs.iter().map(|pair| pair.0).collect());
    let y = column(pairs.iter().map(|pair| pair.1).collect());
    let output = column(vec![0.0; FUNCTIONS * len]);
    functions::launch(
        client,
        CubeCount::Static((len / PER_CUBE) as u32, 1, 1),
        CubeDim::new_1d((PER_CUBE / 2) as u32),
        x.into_arg().into_buffer_arg(),
        y.into_arg().into_buffer_arg(),
        output.clone().into_arg().into_buffer_arg(),
    );
    let found: Vec<f64> = read(client, &output, FUNCTIONS * len);
    let of = |function: usize| {
        let lane = |pair: usize| found[(pair / 2 * FUNCTIONS + function) * 2 + pair % 2];
        (0..asked).map(lane).collect()
    };
    [of(0), of(1), of(2), of(3)]
}

/// Whether the device computes in f64 at all.
fn has_f64(client: &Client) -> bool {
    let device = device_of(client);
    device.has(ElementType::F64) && device.has(ElementType::U64)
}

/// The largest error, and where.
struct Worst {
    name: &'static str,
    error: f64,
    at: (f64, f64),
}

impl Worst {
    fn of(name: &'static str) -> Self {
        Self { name, error: 0.0, at: (0.0, 0.0) }
    }

    fn see(&mut self, found: f64, exact: Exact, at: (f64, f64)) {
        let error = exact.ulps(found);
        assert!(!error.is_nan(), "{}{at:?}: {found:e}", self.name);
        if error > self.error {
            (self.error, self.at) = (error, at);
        }
    }

    fn within(&self, bound: f64, backend: &str) {
        let Self { name, error, at } = self;
        println!("ULP {backend} | {name} | {error:.3} | at {at:?}");
        assert!(*error <= bound, "{name}{at:?} is off by {error} ulp, more than {bound}");
    }
}

/// Random arguments, over the whole range and where the functions change their ways.
fn arguments(rng: &mut StdRng, each: usize) -> Vec<(f64, f64)> {
    let mut x: Vec<f64> = Vec::new();
    let mut draw = |from: f64, to: f64| x.extend((0..each).map(|_| rng.random_range(from..to)));
    draw(-745.0, 709.7);
    draw(-1.0, 1.0);
    draw(0.0, 2.0);
    draw(0.999, 1.001);
    draw(0.35, 0.36);
    x.extend((0..each).map(|_| rng.random_range(-745.0f64..709.0).exp()));
    x.extend((0..each).map(|_| -rng.random_range(-50.0f64..6.5).exp()));
    // Neighbours of where reductions turn over.
    for count in -1074..=1023 {
        let turn = (f64::from(count) + 0.5) * core::f64::consts::LN_2;
        x.extend([turn, turn.next_up(), turn.next_down()]);
        let power = 2f64.powi(count / 2) * 2f64.powi(count - count / 2);
        let root = power * core::f64::consts::SQRT_2;
        x.extend([power, power.next_up(), power.next_down(), root, root.next_up()]);
    }
    x.extend([f64::MAX, f64::MIN_POSITIVE, -f64::MIN_POSITIVE, 709.782_712_893_384, 1e-300]);
    x.into_iter()
        .map(|x| {
            let exponent = match rng.random_range(0..4) {
                // Anything whose power is in range.
                0 if x > 0.0 && x != 1.0 => rng.random_range(-744.0..709.0) / x.ln(),
                1 => f64::from(rng.random_range(1..10)),
                2 => rng.random_range(-4.0f64..4.0).exp(),
                _ => rng.random_range(0.5..4.0),
            };
            (x, exponent)
        })
        .collect()
}

/// Every function is within its documented bound of the exact result.
pub(crate) fn functions_of_f64(client: &Client) {
    if !has_f64(client) {
        return;
    }
    let pairs = arguments(&mut StdRng::seed_from_u64(11), 6000);
    let [exps, lns, pows, roots] = evaluate(client, &pairs);
    let mut worst = ["exp", "ln", "pow", "root"].map(Worst::of);
    for (nth, &(x, y)) in pairs.iter().enumerate() {
        let at = (x, y);
        worst[0].see(exps[nth], exp(Exact::of(x)), at);
        if x > 0.0 {
            worst[1].see(lns[nth], ln(x), at);
            worst[2].see(pows[nth], pow(x, Exact::of(y)), at);
            worst[3].see(roots[nth], pow(x, Exact::of(1.0).over(y)), at);
        }
    }
    for (worst, bound) in worst.iter().zip([EXP_BOUND, LN_BOUND, POW_BOUND, POW_BOUND]) {
        worst.within(bound, client.name());
    }
}

/// Zeros, infinities, NaN, and arguments outside of a function's domain.
pub(crate) fn functions_of_f64_at_the_edges(client: &Client) {
    if !has_f64(client) {
        return;
    }
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let same = |found: f64, expected: f64, what: String| {
        let both_nan = found.is_nan() && expected.is_nan();
        assert!(found == expected || both_nan, "{what} is {found:e}, expected {expected:e}");
    };
    let exps = [
        (0.0, 1.0),
        (-0.0, 1.0),
        (5e-324, 1.0),
        (710.0, inf),
        (1e5, inf),
        (f64::MAX, inf),
        (inf, inf),
        (-746.0, 0.0),
        (-1e5, 0.0),
        (f64::MIN, 0.0),
        (-inf, 0.0),
        (nan, nan),
    ];
    let [found, ..] = evaluate(client, &exps.map(|(x, _)| (x, 1.0)));
    for ((x, expected), found) in exps.into_iter().zip(found) {
        same(found, expected, format!("exp({x:e})"));
    }
    let lns = [
        (1.0, 0.0),
        (0.0, -inf),
        (-0.0, -inf),
        (inf, inf),
        (-1.0, nan),
        (-5e-324, nan),
        (-inf, nan),
        (nan, nan),
    ];
    let [_, found, ..] = evaluate(client, &lns.map(|(x, _)| (x, 1.0)));
    for ((x, expected), found) in lns.into_iter().zip(found) {
        // A device that takes denormal numbers for zero has zero here.
        if x != -5e-324 || found != -inf {
            same(found, expected, format!("ln({x:e})"));
        }
    }
    let pows = [
        (2.0, 0.0, 1.0),
        (1.0, 1e300, 1.0),
        (0.0, 3.0, 0.0),
        (0.0, -3.0, inf),
        (0.0, 0.0, nan),
        (inf, 2.0, inf),
        (inf, -2.0, 0.0),
        (inf, 0.0, nan),
        (0.5, inf, 0.0),
        (2.0, inf, inf),
        (0.5, -inf, inf),
        (1.0, inf, nan),
        (2.0, 1e300, inf),
        (0.999, 1e300, 0.0),
        (2.0, 1024.0, inf),
        (2.0, 1023.0, 2f64.powi(1023)),
        (-1.0, 2.0, nan),
        (nan, 0.0, nan),
        (2.0, nan, nan),
    ];
    let [_, _, found, _] = evaluate(client, &pows.map(|(x, y, _)| (x, y)));
    for ((x, y, expected), found) in pows.into_iter().zip(found) {
        same(found, expected, format!("pow({x:e}, {y:e})"));
    }
    let roots = [
        (0.0, 3.0, 0.0),
        (1.0, 0.001, 1.0),
        (inf, 2.0, inf),
        (2.0, 1e-4, inf),
        (0.5, 1e-4, 0.0),
        (2.0, 1e300, 1.0),
        (-1.0, 3.0, nan),
        (nan, 3.0, nan),
    ];
    let [.., found] = evaluate(client, &roots.map(|(x, y, _)| (x, y)));
    for ((x, y, expected), found) in roots.into_iter().zip(found) {
        same(found, expected, format!("root({x:e}, {y:e})"));
    }
}

/// A plan of each schedule for a row of f64.
fn every_plan<O: Checked>(client: &Client, len: usize) -> Vec<Plan> {
    let problem = problem_of::<O>(
        client,
        &Case::contiguous(&[len], &[0]),
        ElementType::F64,
        Asked::default(),
    );
    let problem = problem.expect("the operator takes f64");
    widest_plans(&problem, &capable_device(client))
}

/// The operators in f64 through every schedule: peeled vectors along, and whole ones across.
pub(crate) fn f64_through_every_schedule(client: &Client) {
    fn forced<O: Checked>(client: &Client) -> u64 {
        let cases = [Case::contiguous(&[3, 5001], &[1]), Case::contiguous(&[3000, 12], &[0])];
        let mut runs = 0;
        for case in cases {
            let problem = problem_of::<O>(client, &case, ElementType::F64, Asked::default());
            let problem = problem.expect("the operator takes f64");
            for plan in widest_plans(&problem, &capable_device(client)) {
                check::<O>(client, &case, ElementType::F64, Some(plan), runs).unwrap();
                runs += 1;
            }
        }
        runs
    }
    if has_f64(client) {
        let runs = forced::<LogSumExp>(client) + forced::<NormP>(client);
        println!("{}: {runs} runs", client.name());
    }
}

/// As `log_sum_exp_at_the_edges`, to the last digits that f64 has.
pub(crate) fn log_sum_exp_of_f64_at_the_edges(client: &Client) {
    if !has_f64(client) {
        return;
    }
    let inf = f64::INFINITY;
    let len = 2000usize;
    let row = |data: &[f64], plan: Option<Plan>| -> f64 {
        results::<_, f64, f64>(client, LogSumExp, data, &[data.len()], &[0], plan)[0]
    };
    for plan in every_plan::<LogSumExp>(client, len) {
        let of = |data: Vec<f64>| row(&data, Some(plan));
        let close = |found: f64, expected: f64| {
            let error = (found - expected).abs() / expected.abs();
            assert!(error <= 1e-14, "{found}, expected {expected}: off by {error:e}, {plan}");
        };
        close(of(vec![1e4; len]), 1e4 + 2000f64.ln());
        close(of(vec![-1e4; len]), -1e4 + 2000f64.ln());
        assert_eq!(of(vec![1e308; len]), 1e308);
        assert_eq!(of(vec![-1e308; len]), -1e308);
        close(of(vec![1e-308; len]), 2000f64.ln());
        assert_eq!(of(vec![-inf; len]), -inf);
        assert_eq!(of(vec![inf; len]), inf);
        let mut data = vec![-inf; len];
        data[1500] = 3.0;
        assert_eq!(of(data.clone()), 3.0);
        for place in [2, 3, 4, 5, 1998] {
            data[place] = inf;
        }
        assert_eq!(of(data.clone()), inf);
        data[1999] = f64::NAN;
        assert!(of(data.clone()).is_nan());
        data[1999] = 0.0;
        data[0] = f64::NAN;
        assert!(of(data).is_nan());
        let mut data = vec![-inf; len];
        data[7] = f64::MIN;
        assert_eq!(of(data), f64::MIN);
        let mut steps: Vec<f64> = (0..len).map(|i| (i % 100) as f64 * 0.37).collect();
        let exact = LogSumExp::naive(&steps)[0];
        close(of(steps.clone()), exact);
        steps.reverse();
        close(of(steps), exact);
    }
    assert_eq!(row(&[], None), -inf);
}

/// Norms of elements whose powers f64 does not hold, and of few elements to the last digits.
pub(crate) fn norm_p_of_f64_at_the_edges(client: &Client) {
    if !has_f64(client) {
        return;
    }
    let inf = f64::INFINITY;
    let norm = |p: f64, data: &[f64], plan: Option<Plan>| -> f64 {
        results::<_, f64, f64>(client, NormP { p }, data, &[data.len()], &[0], plan)[0]
    };
    let len = 3000usize;
    let steps: Vec<f64> = (0..len).map(|i| ((i * 37) % 23) as f64 - 11.0).collect();
    for plan in every_plan::<NormP>(client, len) {
        for size in [1e300, 1e-300, 1.0] {
            let data: Vec<f64> = steps.iter().map(|step| step * size).collect();
            let expected = NormP::naive(&steps)[0] * size;
            let found = norm(3.0, &data, Some(plan));
            let error = (found - expected).abs() / expected;
            assert!(error <= 1e-13, "{found:e}, expected {expected:e}: off by {error:e}, {plan}");
        }
        assert_eq!(norm(3.0, &vec![0.0; len], Some(plan)), 0.0);
        let mut data = steps.clone();
        data[len / 2] = -inf;
        assert_eq!(norm(3.0, &data, Some(plan)), inf);
        data[len - 1] = f64::NAN;
        assert!(norm(3.0, &data, Some(plan)).is_nan());
    }
    assert_eq!(norm(2.5, &[], None), 0.0);
    assert_eq!(norm(2.5, &[-1e308], None), 1e308);
    for p in [0.5, 1.0, 1.5, 2.0, 3.0, 7.3, 40.0, 500.0] {
        let mut rng = StdRng::seed_from_u64(3);
        let data: Vec<f64> = (0..97).map(|_| rng.random_range(0.1..9.0)).collect();
        let exponent = Exact::of(p);
        let sum = data.iter().map(|&x| pow(x / 16.0, exponent)).reduce(Exact::plus).unwrap();
        let found = norm(p, &data, None) / 16.0;
        // The exact norm, as the exponential of a logarithm over p.
        let error = exp(sum.ln().over(p)).ulps(found);
        let bound = 3.0 + 8.0 / p;
        assert!(error <= bound, "norm_p with p = {p} is off by {error} ulp, more than {bound}");
        println!("ULP {} | norm_p of 97, p = {p} | {error:.3}", client.name());
    }
}

/// `exp` of this crate as a map.
#[derive(Clone, Copy, Debug)]
struct Exponential;

/// The device's own `exp` as a map.
#[derive(Clone, Copy, Debug)]
struct NativeExponential;

#[cube]
impl Map for Exponential {
    type Inputs = One;

    const NAME: &'static str = "exponential";
    const TYPES: fn(ElementType) -> Option<ElementType> = Some;
    const TRANSCENDENTAL: bool = true;
    const NATIVE_MATH: bool = false;

    fn map<E: Float, N: Size>(value: Vector<E, N>, _parameters: &Parameters) -> Vector<E, N> {
        math::exp::<E, N>(value)
    }
}

#[cube]
impl Map for NativeExponential {
    type Inputs = One;

    const NAME: &'static str = "native exponential";
    const TYPES: fn(ElementType) -> Option<ElementType> = Some;
    const TRANSCENDENTAL: bool = true;

    fn map<E: Float, N: Size>(value: Vector<E, N>, _parameters: &Parameters) -> Vector<E, N> {
        value.exp()
    }
}

/// A map or an operator of one's own computes in f64 with `operator::math`; one that calls the
/// device's functions is refused where there are none, unless it says that it does not.
pub(crate) fn own_functions_of_f64(client: &Client) {
    if !has_f64(client) {
        return;
    }
    let data: Vec<f64> = (0..100).map(|i| f64::from(i) / 16.0).collect();
    let expected = data.iter().map(|x| x.exp()).sum::<f64>() / 100.0;
    let input = tensor(client, &data, &[100], &[1]);
    let mean = reduce(Mean, &input).mapped(Exponential).run(client).unwrap();
    let found = read::<f64>(client, &mean, 1)[0];
    assert!((found - expected).abs() <= 1e-14 * expected, "{found}, expected {expected}");
    let refused = reduce(Mean, &input).mapped(NativeExponential).run(client).err();
    match client.name() {
        "cuda" | "hip" => assert_eq!(refused, None),
        _ => {
            let error = refused.expect("the device has no such function");
            assert!(error.is_unsupported(), "{error}");
            let said = error.to_string();
            assert!(
                said.starts_with("`mean of native exponential` cannot compute in f64"),
                "{said}"
            );
        }
    }
}
