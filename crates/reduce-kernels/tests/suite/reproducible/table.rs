//! The bits of reproducible results: what is reduced, a plain function of the host that reduces it,
//! and the table in the repository that this function wrote.

use std::{collections::HashMap, fmt::Write as _, path::Path, sync::LazyLock};

use reduce_kernels::{ElementType, planner::reproducible::fold};

use crate::run::{decode, encode};

/// The table. Each line has an operator, a type, a length, and the bits of the result of each
/// slice, as hexadecimal numbers.
const TABLE: &str = include_str!("table.txt");

/// Slices of one length, each with other numbers.
pub(crate) const SLICES: usize = 8;

/// The operators of the table, by name: sums and products, means and norms, and what is exact.
pub(crate) const OPERATORS: [[&str; 6]; 3] = [
    ["sum", "prod", "sum_abs", "sum_squares", "nansum", "dot"],
    ["mean", "nanmean", "mse", "norm_l1", "norm_l2", "norm_inf"],
    ["max", "min", "nanmax", "argmax", "argmin", "count_nonzero"],
];

/// The types of the table, and the lengths of each: around the numbers where lanes, vectors, units
/// and cubes change.
pub(crate) const TYPES: [(ElementType, &[usize]); 5] = [
    (ElementType::F32, &[1, 3, 16, 17, 128, 1000, 5000, 70_000]),
    (ElementType::F64, &[3, 130, 1000, 9001]),
    (ElementType::F16, &[5, 130, 1000, 40_000]),
    (ElementType::BF16, &[5, 130, 1000, 40_000]),
    (ElementType::I32, &[5, 130, 1000, 9001]),
];

/// Slices whose lanes hold more than one chain, and counts that f32 does not hold.
pub(crate) const LONG: [(&str, usize); 3] =
    [("sum", (1 << 24) + 3), ("mean", (1 << 24) + 3), ("nanmean", (1 << 24) + 3)];

/// A number that looks random: Vigna's SplitMix64.
fn mixed(seed: u64) -> u64 {
    let seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let seed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let seed = (seed ^ (seed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    seed ^ (seed >> 31)
}

/// Slice `nth` of a length, as its type holds it. The slices hold numbers around 1, of all
/// magnitudes, of the least ones, of the largest ones, that cancel, with a NaN, zeros of both
/// signs, and with an infinity.
pub(crate) fn slice(operator: &str, element: ElementType, len: usize, nth: usize) -> Vec<f64> {
    let (least, most) = match element {
        ElementType::F16 => (-24, 14),
        ElementType::F64 => (-1074, 1000),
        _ => (-149, 120),
    };
    let near_one = operator == "prod" && nth == 0;
    let special = mixed(len as u64) as usize % len;
    let number = |i: usize| {
        let bits = mixed(((nth as u64) << 40) + i as u64);
        let fraction = ((bits >> 40) as f64 - 8_388_608.0) / 8_388_608.0;
        let power = |low: i32, count: u64| 2f64.powi(low + ((bits & 0xffff) % count) as i32);
        match nth {
            _ if near_one => 1.0 + fraction / 64.0,
            0 => fraction + 0.25,
            1 => fraction * power(-12, 24),
            2 => fraction * power(least, 30),
            3 => fraction * power(most - 8, 8),
            4 if i.is_multiple_of(2) => fraction,
            4 => -fraction * 0.75,
            5 if i == special => f64::NAN,
            6 => {
                if bits & 1 == 0 {
                    -0.0
                } else {
                    0.0
                }
            }
            7 if i == special => f64::INFINITY,
            _ => fraction,
        }
    };
    let numbers: Vec<f64> = match element.is_float() {
        true => (0..len).map(number).collect(),
        false => (0..len)
            .map(|i| f64::from(mixed(((nth as u64) << 40) + i as u64) as i32 >> (4 * nth)))
            .collect(),
    };
    decode(element, &encode(element, &numbers))
}

/// The second input that goes with a slice.
pub(crate) fn reversed(slice: &[f64]) -> Vec<f64> {
    slice.iter().rev().copied().collect()
}

/// The functions of reproducible reductions, in one type. Everything here is IEEE 754 to the
/// nearest, which Rust promises for additions, products, quotients and square roots, except that
/// numbers below twice the least normal one are 0.
macro_rules! reference {
    ($name:ident, $float:ty, least $least:literal, plain $small:literal to $large:literal,
     down $down:literal, up $up:literal, alone $alone:literal) => {
        fn $name(operator: &str, slice: &[f64]) -> f64 {
            fn normal(value: $float) -> $float {
                if value.abs() < (2.0 as $float).powi($least) { 0.0 } else { value }
            }
            fn sum(left: $float, right: $float) -> $float {
                normal(left + right)
            }
            fn product(left: $float, right: $float) -> $float {
                normal(left * right)
            }
            fn norm(values: &[$float]) -> $float {
                let power = |exponent: i32| (2.0 as $float).powi(exponent);
                let push = |[plain, down, up]: [$float; 3], value: $float| {
                    let square = |value: $float| value * value;
                    if value.abs() > power($large) {
                        [plain, down + square(value * power($down)), up]
                    } else if value.abs() < power($small) {
                        [plain, down, up + square(value * power($up))]
                    } else {
                        [plain + square(value), down, up]
                    }
                };
                let merge = |[a, b, c]: [$float; 3], [d, e, f]: [$float; 3]| [a + d, b + e, c + f];
                let [plain, down, up] = fold(values, [0.0; 3], push, merge);
                let (scale, beside) = if down > 0.0 {
                    ($down, down)
                } else if plain < power($alone) {
                    ($up, up)
                } else {
                    (0, 0.0)
                };
                let scaled = product(product(plain, power(scale)), power(scale));
                product(sum(scaled, beside).sqrt(), power(-scale))
            }
            let values: Vec<$float> = slice.iter().map(|&value| normal(value as $float)).collect();
            let total = |values: &[$float]| fold(values, 0.0, sum, sum);
            let mapped = |map: fn($float) -> $float| -> Vec<$float> {
                values.iter().map(|&value| map(value)).collect()
            };
            let paired = |map: fn($float, $float) -> $float| -> Vec<$float> {
                values.iter().zip(values.iter().rev()).map(|(&a, &b)| map(a, b)).collect()
            };
            let mean = |values: &[$float]| normal(total(values) / values.len() as $float);
            let numbers: Vec<$float> = mapped(|value| if value.is_nan() { 0.0 } else { value });
            let count = values.iter().filter(|value| !value.is_nan()).count();
            // The first value to which no other is preferred.
            let best = |preferred: fn(&$float, &$float) -> bool| {
                let mut best = 0;
                for (nth, value) in values.iter().enumerate().skip(1) {
                    let nan = value.is_nan() && !values[best].is_nan();
                    if nan || preferred(value, &values[best]) {
                        best = nth;
                    }
                }
                best
            };
            let result = match operator {
                "sum" => total(&values),
                "mean" => mean(&values),
                "prod" => fold(&values, 1.0, product, product),
                "sum_abs" | "norm_l1" => total(&mapped(|value| value.abs())),
                "sum_squares" => total(&mapped(|value| product(value, value))),
                "norm_l2" => norm(&values),
                "nansum" => total(&numbers),
                "nanmean" => normal(total(&numbers) / count as $float),
                "dot" => total(&paired(product)),
                "mse" => mean(&paired(|a, b| {
                    let difference = sum(a, -b);
                    product(difference, difference)
                })),
                "max" => values[best(|value, best| value > best)],
                "min" => values[best(|value, best| value < best)],
                "argmax" => return best(|value, best| value > best) as f64,
                "argmin" => return best(|value, best| value < best) as f64,
                "nanmax" => values.iter().copied().fold(<$float>::NAN, <$float>::max),
                "norm_inf" => {
                    let sizes = mapped(|value| value.abs());
                    match sizes.iter().any(|size| size.is_nan()) {
                        true => <$float>::NAN,
                        false => sizes.iter().copied().fold(0.0, <$float>::max),
                    }
                }
                "count_nonzero" => values.iter().filter(|&&value| value != 0.0).count() as $float,
                _ => panic!("{operator} is not in the table"),
            };
            f64::from(result)
        }
    };
}

reference!(narrow, f32, least -125, plain -63 to 47, down -76, up 75, alone -40);
reference!(wide, f64, least -1021, plain -511 to 480, down -538, up 537, alone -900);

/// The result type of an operator.
pub(crate) fn result_type(operator: &str, element: ElementType) -> ElementType {
    match operator {
        "argmax" | "argmin" | "count_nonzero" => ElementType::U32,
        "mean" | "norm_l1" | "norm_l2" | "norm_inf" | "nanmean" | "mse" if !element.is_float() => {
            ElementType::F32
        }
        // What a map gives has the type that it computes in.
        "dot" | "mse" if element.bytes() == 2 => ElementType::F32,
        _ => element,
    }
}

/// The bytes of the result of a slice.
pub(crate) fn bits(operator: &str, element: ElementType, slice: &[f64]) -> Vec<u8> {
    let result = result_type(operator, element);
    let wraps = !result.is_float() && result == element;
    if wraps {
        let values: Vec<i32> = slice.iter().map(|&value| value as i32).collect();
        let paired = values.iter().zip(values.iter().rev());
        let all = values.iter().copied();
        let result: i32 = match operator {
            "sum" | "nansum" => all.fold(0, i32::wrapping_add),
            "prod" => all.fold(1, i32::wrapping_mul),
            "sum_abs" => all.map(i32::wrapping_abs).fold(0, i32::wrapping_add),
            "sum_squares" => all.map(|v| v.wrapping_mul(v)).fold(0, i32::wrapping_add),
            "dot" => paired.map(|(&a, &b)| a.wrapping_mul(b)).fold(0, i32::wrapping_add),
            "max" | "nanmax" => all.max().unwrap(),
            "min" => all.min().unwrap(),
            _ => panic!("{operator} does not wrap"),
        };
        return result.to_le_bytes().to_vec();
    }
    let value = match element {
        ElementType::F64 => wide(operator, slice),
        _ => narrow(operator, slice),
    };
    // A zero has no sign, and there is one NaN.
    let bytes = encode(result, &[value]);
    match decode(result, &bytes)[0] {
        0.0 => encode(result, &[0.0]),
        value if value.is_nan() => encode(result, &[f64::NAN]),
        _ => bytes,
    }
}

/// A line of the table without its bits.
fn key(operator: &str, element: ElementType, len: usize) -> String {
    format!("{operator} {element} {len}")
}

/// The bytes of the result of slice `nth`, as the table has them.
pub(crate) fn expected(operator: &str, element: ElementType, len: usize, nth: usize) -> Vec<u8> {
    static LINES: LazyLock<HashMap<String, Vec<&str>>> = LazyLock::new(|| {
        let line = |line: &'static str| {
            let mut words: Vec<&str> = line.split(' ').collect();
            let bits = words.split_off(3);
            (words.join(" "), bits)
        };
        TABLE.lines().map(line).collect()
    });
    let text = LINES[&key(operator, element, len)][nth];
    let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    let mut bytes: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
    bytes.reverse();
    bytes
}

/// Slices of a line: all, or the first of a long one.
pub(crate) fn slices_of(len: usize) -> usize {
    if len > 1 << 20 { 1 } else { SLICES }
}

/// The table as the plain function gives it.
fn computed() -> String {
    let usual = TYPES.into_iter().flat_map(|(element, lengths)| {
        let all = OPERATORS.into_iter().flatten();
        all.flat_map(move |operator| lengths.iter().map(move |&len| (operator, element, len)))
    });
    let long = LONG.into_iter().map(|(operator, len)| (operator, ElementType::F32, len));
    let mut table = String::new();
    for (operator, element, len) in usual.chain(long) {
        table += &key(operator, element, len);
        for nth in 0..slices_of(len) {
            table.push(' ');
            let bits = bits(operator, element, &slice(operator, element, len, nth));
            bits.iter().rev().for_each(|byte| write!(table, "{byte:02x}").unwrap());
        }
        table.push('\n');
    }
    table
}

/// The table in the repository is what the plain function gives. With `REDUCE_WRITE_TABLE` set, it
/// is written instead.
#[test]
fn table_is_computed() {
    let computed = computed();
    if std::env::var_os("REDUCE_WRITE_TABLE").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/reproducible/table.txt");
        std::fs::write(path, &computed).unwrap();
        return;
    }
    for (line, (held, computed)) in TABLE.lines().zip(computed.lines()).enumerate() {
        assert_eq!(held, computed, "line {}", line + 1);
    }
    assert_eq!(TABLE.lines().count(), computed.lines().count());
}
