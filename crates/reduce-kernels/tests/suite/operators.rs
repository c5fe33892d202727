//! Every operator's naive counterpart in f64, its test data and its error's scale.

use rand::{Rng, rngs::StdRng};
use reduce_kernels::{Operator, by_name::OperatorName, operator::One, operators::*};

/// An operator of this crate with its naive counterpart on f64. Test data keeps integers small
/// enough that f64 holds every result.
pub(crate) trait Checked: Operator<Inputs = One> {
    fn operator() -> Self;
    /// The results of a reduction, in order.
    fn naive(values: &[f64]) -> Vec<f64>;
    /// Random data that the operator's results stay meaningful for.
    fn sample(rng: &mut StdRng, reduction_len: usize) -> f64;
    /// Error bound of each result, as a multiple of the accumulator's epsilon times this.
    fn scale(values: &[f64]) -> f64;
}

macro_rules! checked {
    ($operator:ident $value:expr, from $sample:ident, $values:ident: $naive:expr, within $scale:expr) => {
        impl Checked for $operator {
            fn operator() -> Self {
                $value
            }
            fn naive($values: &[f64]) -> Vec<f64> {
                $naive.to_vec()
            }
            fn sample(rng: &mut StdRng, reduction_len: usize) -> f64 {
                $sample(rng, reduction_len)
            }
            #[allow(unused_variables, reason = "exact results have no scale")]
            fn scale($values: &[f64]) -> f64 {
                $scale
            }
        }
    };
}

/// Eighths between -12.5 and 12.5.
fn eighths(rng: &mut StdRng, _: usize) -> f64 {
    f64::from(rng.random_range(-100i32..=100)) / 8.0
}

/// Few distinct values, so that ties are the rule.
fn ties(rng: &mut StdRng, _: usize) -> f64 {
    f64::from(rng.random_range(-3i32..=3))
}

/// As [`ties`], with NaN among them.
fn ties_and_nan(rng: &mut StdRng, len: usize) -> f64 {
    if rng.random_range(0..4) == 0 { f64::NAN } else { ties(rng, len) }
}

/// As [`eighths`], with NaN among them.
fn eighths_and_nan(rng: &mut StdRng, len: usize) -> f64 {
    if rng.random_range(0..4) == 0 { f64::NAN } else { eighths(rng, len) }
}

/// Mostly ones, and as many twos as halves on average: products neither vanish nor overflow.
fn factors(rng: &mut StdRng, len: usize) -> f64 {
    let rare = (16.0 / len as f64).min(0.25);
    let draw: f64 = rng.random();
    if draw < rare / 4.0 {
        -1.0
    } else if draw < rare / 2.0 {
        2.0
    } else {
        1.0
    }
}

/// As [`factors`], with NaN among them.
fn factors_and_nan(rng: &mut StdRng, len: usize) -> f64 {
    if rng.random_range(0..4) == 0 { f64::NAN } else { factors(rng, len) }
}

/// Nearly all zeros: about one other value in two reductions.
fn few(rng: &mut StdRng, len: usize) -> f64 {
    f64::from(u8::from(rng.random_range(0..2 * len.max(1)) == 0))
}

/// Nearly all nonzero.
fn most(rng: &mut StdRng, len: usize) -> f64 {
    1.0 - few(rng, len)
}

/// As [`eighths`], with about one infinity or NaN in two reductions.
fn finite_or_not(rng: &mut StdRng, len: usize) -> f64 {
    match rng.random_range(0..6 * len.max(1)) {
        0 => f64::INFINITY,
        1 => f64::NEG_INFINITY,
        2 => f64::NAN,
        _ => eighths(rng, len),
    }
}

fn sum(values: &[f64]) -> f64 {
    values.iter().sum()
}

fn magnitudes(values: &[f64]) -> f64 {
    values.iter().map(|value| value.abs()).sum()
}

fn squares(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum()
}

fn mean(values: &[f64]) -> f64 {
    sum(values) / values.len() as f64
}

fn var(values: &[f64], correction: f64) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    squares / (values.len() as f64 - correction).max(0.0)
}

/// The bound of a variance: of its own size, for a mean held as a distance from an element.
fn spread(values: &[f64]) -> f64 {
    8.0 * var(values, 0.0) + 8.0 * var(values, 0.0).sqrt()
}

fn present(values: &[f64]) -> Vec<f64> {
    values.iter().copied().filter(|value| !value.is_nan()).collect()
}

fn highest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, |a, b| if a.is_nan() || a > b { a } else { b })
}

fn lowest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, |a, b| if a.is_nan() || a < b { a } else { b })
}

fn first(values: &[f64], wanted: f64) -> f64 {
    let same = |&value: &f64| value == wanted || (value.is_nan() && wanted.is_nan());
    values.iter().position(same).expect("the extremum is an element") as f64
}

/// An extremum of what is there, NaN if nothing is.
fn or_nan(values: &[f64], extremum: fn(&[f64]) -> f64) -> f64 {
    let present = present(values);
    if present.is_empty() { f64::NAN } else { extremum(&present) }
}

fn nonzero(values: &[f64]) -> f64 {
    values.iter().filter(|&&value| value != 0.0).count() as f64
}

fn log_sum_exp(values: &[f64]) -> f64 {
    let most = highest(values);
    most + values.iter().map(|value| (value - most).exp()).sum::<f64>().ln()
}

checked!(Sum Sum, from eighths, v: [sum(v)], within magnitudes(v));
checked!(Prod Prod, from factors, v: [v.iter().product::<f64>()], within v.iter().product::<f64>().abs());
checked!(Mean Mean, from eighths, v: [mean(v)], within magnitudes(v) / v.len() as f64);
checked!(Min Min, from eighths, v: [lowest(v)], within 0.0);
checked!(Max Max, from eighths, v: [highest(v)], within 0.0);
checked!(MinMax MinMax, from eighths, v: [lowest(v), highest(v)], within 0.0);
checked!(ArgMin ArgMin, from ties, v: [first(v, lowest(v))], within 0.0);
checked!(ArgMax ArgMax, from ties_and_nan, v: [first(v, highest(v))], within 0.0);
checked!(MinWithIndex MinWithIndex, from ties_and_nan,
    v: [lowest(v), first(v, lowest(v))], within 0.0);
checked!(MaxWithIndex MaxWithIndex, from ties,
    v: [highest(v), first(v, highest(v))], within 0.0);
checked!(Any Any, from few, v: [f64::from(nonzero(v) > 0.0)], within 0.0);
checked!(All All, from most, v: [f64::from(nonzero(v) == v.len() as f64)], within 0.0);
checked!(CountNonzero CountNonzero, from ties_and_nan, v: [nonzero(v)], within 0.0);
checked!(AnyNonFinite AnyNonFinite, from finite_or_not,
    v: [f64::from(u8::from(v.iter().any(|x| !x.is_finite())))], within 0.0);
checked!(SumAbs SumAbs, from eighths, v: [magnitudes(v)], within magnitudes(v));
checked!(SumSquares SumSquares, from eighths, v: [squares(v)], within squares(v));
checked!(NormL1 NormL1, from eighths, v: [magnitudes(v)], within magnitudes(v));
checked!(NormL2 NormL2, from eighths, v: [squares(v).sqrt()], within squares(v).sqrt());
checked!(NormInf NormInf, from eighths,
    v: [highest(&v.iter().map(|x| x.abs()).collect::<Vec<_>>()).max(0.0)], within 0.0);
// Powers are taken through logarithms of 32 bits, which are off by several units in the last place.
checked!(NormP NormP { p: 3.0 }, from eighths,
    v: [v.iter().map(|x| x.abs().powi(3)).sum::<f64>().cbrt()],
    within 8.0 * magnitudes(v) / (v.len() as f64).sqrt() + 1.0);
checked!(Var Var { correction: 1.0 }, from eighths, v: [var(v, 1.0)], within spread(v));
checked!(Std Std { correction: 0.0 }, from eighths, v: [var(v, 0.0).sqrt()],
    within 8.0 * var(v, 0.0).sqrt());
checked!(MeanVar MeanVar { correction: 0.0 }, from eighths, v: [mean(v), var(v, 0.0)],
    within spread(v) + 16.0);
checked!(LogSumExp LogSumExp, from eighths, v: [log_sum_exp(v)], within 16.0);
checked!(NanSum NanSum, from eighths_and_nan,
    v: [sum(&present(v))], within magnitudes(&present(v)));
checked!(NanProd NanProd, from factors_and_nan,
    v: [present(v).iter().product::<f64>()], within present(v).iter().product::<f64>().abs());
checked!(NanMean NanMean, from eighths_and_nan,
    v: [mean(&present(v))], within magnitudes(&present(v)) / present(v).len() as f64);
checked!(NanMin NanMin, from eighths_and_nan, v: [or_nan(v, lowest)], within 0.0);
checked!(NanMax NanMax, from ties_and_nan, v: [or_nan(v, highest)], within 0.0);
checked!(NanArgMin NanArgMin, from ties_and_nan, v: [first(v, or_nan(v, lowest))], within 0.0);
checked!(NanArgMax NanArgMax, from ties_and_nan, v: [first(v, or_nan(v, highest))], within 0.0);
checked!(NanVar NanVar { correction: 1.0 }, from eighths_and_nan,
    v: [var(&present(v), 1.0)], within spread(&present(v)));
checked!(NanStd NanStd { correction: 0.0 }, from eighths_and_nan,
    v: [var(&present(v), 0.0).sqrt()], within 8.0 * var(&present(v), 0.0).sqrt());

/// Gives every operator, its name and its type, to another macro, behind that macro's own
/// arguments. The list is checked against [`OperatorName::ALL`].
macro_rules! with_operators {
    ($macro:ident!($($arguments:tt)*)) => {
        $macro! {
            $($arguments)*;
            sum Sum, prod Prod, mean Mean, min Min, max Max, min_max MinMax, argmin ArgMin,
            argmax ArgMax, min_with_index MinWithIndex, max_with_index MaxWithIndex, any Any,
            all All, count_nonzero CountNonzero,
            any_non_finite AnyNonFinite, sum_abs SumAbs, sum_squares SumSquares,
            norm_l1 NormL1, norm_l2 NormL2, norm_inf NormInf, norm_p NormP, var Var, std Std,
            mean_var MeanVar, logsumexp LogSumExp, nansum NanSum, nanprod NanProd,
            nanmean NanMean, nanmin NanMin, nanmax NanMax, nanargmin NanArgMin,
            nanargmax NanArgMax, nanvar NanVar, nanstd NanStd
        }
    };
}
pub(crate) use with_operators;

/// Does something for every operator: `for_each_operator!(O => { ... })`.
macro_rules! for_each_operator {
    ($operator:ident => $body:expr) => {
        $crate::operators::with_operators!(for_each_operator!(@ $operator, $body))
    };
    (@ $operator:ident, $body:expr; $($name:ident $each:ident),*) => {
        $({
            type $operator = reduce_kernels::operators::$each;
            $body
        })*
    };
}
pub(crate) use for_each_operator;

/// An operator's place in the list of all, from 0.
pub(crate) fn place<O: Operator>() -> usize {
    let is_it = |operator: &OperatorName| operator.name() == O::NAME;
    OperatorName::ALL.iter().position(is_it).expect("every operator has a name")
}

/// Whether the results of an operator are bools, which not every device has.
pub(crate) fn gives_bools<O: Operator>() -> bool {
    [Any::NAME, All::NAME, AnyNonFinite::NAME].contains(&O::NAME)
}

/// No operator is left out of the tests, and names lead to operators.
#[test]
fn every_operator_is_listed() {
    macro_rules! names {
        (; $($name:ident $operator:ident),*) => {
            [$((stringify!($name), $operator::NAME)),*]
        };
    }
    let listed = with_operators!(names!());
    for (test, name) in listed {
        assert_eq!(test, name, "a test is named for another operator");
    }
    let names = listed.map(|(_, name)| name);
    let all: Vec<&str> = OperatorName::ALL.iter().map(|operator| operator.name()).collect();
    assert_eq!(names[..], all);
    for name in names {
        assert_eq!(name.parse::<OperatorName>().unwrap().name(), name);
    }
    let error = "median".parse::<OperatorName>().unwrap_err();
    assert!(error.to_string().contains("`median`: expected one of sum, prod"), "{error}");
}

/// The naive counterparts against figures known without them.
#[test]
fn the_counterparts_know_known_figures() {
    let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
    assert_eq!(MeanVar::naive(&values), [5.0, 4.0]);
    assert_eq!(Std::naive(&values), [2.0]);
    assert_eq!(Var::naive(&values), [32.0 / 7.0]);
    assert_eq!(MinMax::naive(&values), [2.0, 9.0]);
    assert_eq!(ArgMax::naive(&[1.0, f64::NAN, 3.0]), [1.0]);
    assert_eq!(ArgMin::naive(&[2.0, 1.0, 1.0]), [1.0]);
    assert_eq!(NanArgMax::naive(&[f64::NAN, 3.0, 3.0]), [1.0]);
    assert_eq!(NanArgMax::naive(&[f64::NAN, f64::NAN]), [0.0]);
    assert_eq!(NormL2::naive(&[3.0, -4.0]), [5.0]);
    assert_eq!(NormP::naive(&[1.0, -2.0, 3.0]), [36f64.cbrt()]);
    assert_eq!(LogSumExp::naive(&[0.0, 0.0]), [2f64.ln()]);
    assert_eq!(CountNonzero::naive(&[0.0, -0.0, f64::NAN, 1.0]), [2.0]);
    assert_eq!((Any::naive(&[0.0, 2.0]), All::naive(&[0.0, 2.0])), (vec![1.0], vec![0.0]));
}
