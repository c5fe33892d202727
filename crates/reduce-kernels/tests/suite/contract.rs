//! The rows of docs/SEMANTICS.md: NaN, infinities, emptiness, shapes, errors, wrapping, half
//! precision, determinism.

use half::f16;
use reduce_kernels::{
    ArgMax, ArgMin, ElementType, ErrorKind, Max, Mean, MeanVar, Min, NormL2, Operator, Prod,
    ReduceError, Std, Sum, TensorDescription, Var,
    cubecl::{ir::FloatKind, prelude::*, std::tensor::TensorHandle},
    device_of,
    functions::{min_max, norm_p},
    max, mean, min,
    operators::{
        All, Any, CountNonzero, LogSumExp, MaxWithIndex, MinMax, NanArgMax, NanMax, NanMean,
        NanMin, NanProd, NanStd, NanSum, NanVar, NormInf, NormL1, NormP, SumAbs, SumSquares,
    },
    planner::{Plan, PlanError, ProblemError, row_major_strides},
    prod, reduce, storage_type, sum,
    testing::{every_plan, widest_plans},
    var,
};

use crate::{
    case::Case,
    operators::{Checked, for_each_operator, gives_bools, place},
    run::{Asked, Element, capable_device, problem_of, read, results, sample, source, tensor},
};

/// A plan of each schedule of an f32 reduction of a row-major tensor.
fn each_schedule<O: Checked>(client: &Client, shape: &[usize], axes: &[usize]) -> Vec<Plan> {
    let problem =
        problem_of::<O>(client, &Case::contiguous(shape, axes), ElementType::F32, Asked::default())
            .unwrap();
    widest_plans(&problem, &capable_device(client))
}

/// All plans of an f32 reduction of a row-major tensor.
fn all_plans<O: Checked>(client: &Client, shape: &[usize], axes: &[usize]) -> Vec<Plan> {
    let problem =
        problem_of::<O>(client, &Case::contiguous(shape, axes), ElementType::F32, Asked::default())
            .unwrap();
    every_plan(&problem, &capable_device(client))
}

/// Rows to reduce along or columns to reduce across, operators in turn: both would take twice as
/// many kernels.
fn one_way<O: Operator>(along: [usize; 2], across: [usize; 2]) -> ([usize; 2], usize) {
    if place::<O>().is_multiple_of(2) { (along, 1) } else { (across, 0) }
}

/// One NaN anywhere makes the result NaN, under every schedule, whatever else is in the row; the
/// NaN-ignoring forms leave it out, and rows of NaN alone have the values of the table.
pub(crate) fn nan_rows(client: &Client) {
    fn with_one_nan<O: Checked>(client: &Client) {
        let (shape, axis) = one_way::<O>([3, 1030], [1030, 3]);
        for plan in each_schedule::<O>(client, &shape, &[axis]) {
            for place in [0, 1, 500, 1029] {
                let at =
                    |row: usize, i: usize| if axis == 1 { row * 1030 + i } else { i * 3 + row };
                let mut data = vec![1.5f32; 3 * 1030];
                data[at(0, place / 2)] = f32::INFINITY;
                data[at(1, place / 2)] = f32::INFINITY;
                data[at(1, place)] = f32::NAN;
                let found: Vec<f32> =
                    results(client, O::operator(), &data, &shape, &[axis], Some(plan));
                assert!(found[1].is_nan(), "{} at {place}: {found:?}, {plan}", O::NAME);
                assert!(!found[2].is_nan(), "{}: {found:?}, {plan}", O::NAME);
            }
        }
    }
    fn without_nan<O: Checked>(client: &Client, of_nan_alone: f32) {
        let (shape, axis) = one_way::<O>([2, 1030], [1030, 2]);
        for plan in each_schedule::<O>(client, &shape, &[axis]) {
            let at = |row: usize, i: usize| if axis == 1 { row * 1030 + i } else { i * 2 + row };
            let mut data = vec![f32::NAN; 2 * 1030];
            for i in [3, 40, 41, 1029] {
                data[at(0, i)] = 1.0 + (i % 3) as f32;
            }
            let found: Vec<f32> =
                results(client, O::operator(), &data, &shape, &[axis], Some(plan));
            let there = O::naive(&[f64::NAN, 1.0, 2.0, 3.0, 1.0])[0];
            let close = (f64::from(found[0]) - there).abs() <= 1e-6 * there;
            assert!(close, "{}: {found:?}, {there}, {plan}", O::NAME);
            let same = found[1] == of_nan_alone || (found[1].is_nan() && of_nan_alone.is_nan());
            assert!(same, "{} of NaN alone: {found:?}, {plan}", O::NAME);
        }
    }
    with_one_nan::<Sum>(client);
    with_one_nan::<Prod>(client);
    with_one_nan::<Mean>(client);
    with_one_nan::<Max>(client);
    with_one_nan::<Min>(client);
    with_one_nan::<MinMax>(client);
    with_one_nan::<SumSquares>(client);
    with_one_nan::<NormL1>(client);
    with_one_nan::<NormL2>(client);
    with_one_nan::<NormInf>(client);
    with_one_nan::<NormP>(client);
    with_one_nan::<Var>(client);
    with_one_nan::<MeanVar>(client);
    with_one_nan::<LogSumExp>(client);
    without_nan::<NanSum>(client, 0.0);
    without_nan::<NanProd>(client, 1.0);
    without_nan::<NanMean>(client, f32::NAN);
    without_nan::<NanMax>(client, f32::NAN);
    without_nan::<NanMin>(client, f32::NAN);
    without_nan::<NanVar>(client, f32::NAN);
    without_nan::<NanStd>(client, f32::NAN);
}

/// Positions: the first NaN, the lowest on ties, over several axes in their row-major order, in
/// rows of infinities alone, and in 64 bits on request.
pub(crate) fn positions(client: &Client) {
    let inf = f32::INFINITY;
    let arg = |operator: ArgMax, data: &[f32], shape: &[usize], axes: &[usize]| -> Vec<u32> {
        results(client, operator, data, shape, axes, None)
    };
    assert_eq!(arg(ArgMax, &[-inf; 500], &[500], &[0]), [0]);
    let lows: Vec<u32> = results(client, ArgMin, &[inf; 500], &[500], &[0], None);
    assert_eq!(lows, [0]);
    let alone: Vec<u32> = results(client, NanArgMax, &[f32::NAN; 500], &[500], &[0], None);
    assert_eq!(alone, [0], "a row of NaN alone has an index inside the row");
    let mut data = vec![0f32; 2 * 3 * 40];
    data[120 + 80 + 7] = 5.0;
    data[120 + 80 + 9] = 5.0;
    // Over axes 0 and 2 the position counts 40 per step of axis 0, whatever lies between.
    assert_eq!(arg(ArgMax, &data, &[2, 3, 40], &[2, 0]), [0, 0, 47]);
    assert_eq!(arg(ArgMax, &data, &[2, 3, 40], &[0, 1, 2]), [207]);
    data[120 + 80 + 30] = f32::NAN;
    data[120 + 80 + 31] = f32::NAN;
    assert_eq!(arg(ArgMax, &data, &[2, 3, 40], &[0, 1, 2]), [230]);
    assert_eq!(arg(ArgMax, &data, &[2, 3, 40], &[0, 2]), [0, 0, 70]);
    if device_of(client).has(ElementType::U64) {
        let wide: Vec<u64> = results(client, ArgMax, &data, &[240], &[0], None);
        assert_eq!(wide, [230]);
    }
    let input = tensor(client, &data[..40], &[40], &[1]);
    let error = reduce(ArgMax, &input).output_type(ElementType::U16).run(client).unwrap_err();
    assert_eq!(error.to_string(), "`argmax` of f32 cannot give u16");
}

/// Rows of infinities alone have them as extrema; opposite ones sum to NaN.
pub(crate) fn infinities(client: &Client) {
    let inf = f32::INFINITY;
    let low = vec![-inf; 300];
    let high = vec![inf; 300];
    assert_eq!(results::<_, _, f32>(client, Max, &low, &[300], &[0], None), [-inf]);
    assert_eq!(results::<_, _, f32>(client, Min, &high, &[300], &[0], None), [inf]);
    assert_eq!(results::<_, _, f32>(client, Sum, &high, &[300], &[0], None), [inf]);
    let both = [low, high].concat();
    assert!(results::<_, _, f32>(client, Sum, &both, &[600], &[0], None)[0].is_nan());
    assert_eq!(results::<_, _, f32>(client, Max, &both, &[600], &[0], None), [inf]);
    let half = vec![f16::NEG_INFINITY; 50];
    let found: Vec<f16> = results(client, Max, &half, &[50], &[0], None);
    assert_eq!(found, [f16::NEG_INFINITY]);
}

/// Nothing to reduce: 0, 1, NaN, or an error where no value makes sense.
pub(crate) fn empty_reductions(client: &Client) {
    let none: [f32; 0] = [];
    let shape = [3, 0, 2];
    assert_eq!(results::<_, _, f32>(client, Sum, &none, &shape, &[1], None), [0.0; 6]);
    assert_eq!(results::<_, _, f32>(client, Prod, &none, &shape, &[1], None), [1.0; 6]);
    let means: Vec<f32> = results(client, Mean, &none, &shape, &[1], None);
    assert!(means.len() == 6 && means.iter().all(|mean| mean.is_nan()), "{means:?}");
    assert_eq!(results::<_, _, f32>(client, Sum, &none, &[0], &[0], None), [0.0]);
    let strided = tensor(client, &none, &[2, 3, 0], &[1 << 40, 1 << 35, 1]);
    assert_eq!(read::<f32>(client, &sum(client, &strided, [2]).unwrap(), 6), [0.0; 6]);
    for_each_operator!(O => {
        let input = tensor(client, &none, &[2, 0], &[0, 1]);
        // Devices without bytes have no bools.
        let truth = gives_bools::<O>();
        let reduction = reduce(O::operator(), &input).over([1]);
        let reduction = if truth { reduction.output_type(ElementType::U32) } else { reduction };
        let undefined = match reduction.output_types() {
            Ok(_) => false,
            Err(error) if is_of_nothing(&error) => true,
            Err(other) => panic!("{}: {other}", O::NAME),
        };
        assert_eq!(undefined, !O::DEFINED_ON_EMPTY, "{}", O::NAME);
    });
    let empty = |found: Vec<f32>| found[0];
    // Enough outputs for several in flight at a time, were there anything to load.
    let many = results::<_, _, f32>(client, Sum, &none, &[1 << 17, 0], &[1], None);
    assert!(many.iter().all(|&sum| sum == 0.0));
    let of_nothing = [
        empty(results(client, NormL2, &none, &[0], &[0], None)),
        empty(results(client, NormP { p: 3.0 }, &none, &[0], &[0], None)),
        empty(results(client, NormInf, &none, &[0], &[0], None)),
        empty(results(client, CountNonzero, &none, &[0], &[0], None)),
        empty(results(client, Any, &none, &[0], &[0], None)),
        empty(results(client, NanSum, &none, &[0], &[0], None)),
    ];
    assert_eq!(of_nothing, [0.0; 6]);
    assert_eq!(empty(results(client, All, &none, &[0], &[0], None)), 1.0);
    assert_eq!(empty(results(client, LogSumExp, &none, &[0], &[0], None)), f32::NEG_INFINITY);
    let nan = [
        empty(results(client, Var { correction: 0.0 }, &none, &[0], &[0], None)),
        empty(results(client, Std { correction: 1.0 }, &none, &[0], &[0], None)),
        empty(results(client, MeanVar { correction: 0.0 }, &none, &[0], &[0], None)),
        empty(results(client, NanMean, &none, &[0], &[0], None)),
    ];
    assert!(nan.iter().all(|value| value.is_nan()), "{nan:?}");
    let input = tensor(client, &none, &shape, &row_major_strides(&shape));
    for error in [max(client, &input, [1]).err(), min(client, &input, [1]).err()] {
        let error = error.expect("extrema of nothing are refused");
        assert!(is_of_nothing(&error), "{error}");
        assert!(error.to_string().contains("[3, 0, 2]"), "{error}");
    }
}

/// No results: an empty tensor, and extrema do not mind.
pub(crate) fn empty_outputs(client: &Client) {
    let none: [f32; 0] = [];
    let input = tensor(client, &none, &[0, 5], &row_major_strides(&[0, 5]));
    let output = max(client, &input, [1]).unwrap();
    assert_eq!(output.shape()[..], [0, 1]);
    let input = tensor(client, &none, &[0, 0], &row_major_strides(&[0, 0]));
    let output = reduce(Sum, &input).over([1]).keep_dims(false).run(client).unwrap();
    assert_eq!(output.shape()[..], [0]);
}

/// Kept axes of size 1 by default, none when squeezed, axes in any order, all by default.
pub(crate) fn shapes_of_results(client: &Client) {
    let data: Vec<f32> = (0..24).map(|i| i as f32).collect();
    let input = tensor(client, &data, &[2, 3, 4], &row_major_strides(&[2, 3, 4]));
    let kept = sum(client, &input, [2, 0]).unwrap();
    assert_eq!(kept.shape()[..], [1, 3, 1]);
    assert_eq!(read::<f32>(client, &kept, 3), [60.0, 92.0, 124.0]);
    let squeezed = reduce(Sum, &input).over([0, 2]).keep_dims(false).run(client).unwrap();
    assert_eq!(squeezed.shape()[..], [3]);
    assert_eq!(read::<f32>(client, &squeezed, 3), [60.0, 92.0, 124.0]);
    let all = reduce(Max, &input).keep_dims(false).run(client).unwrap();
    assert_eq!(all.shape()[..], [] as [usize; 0]);
    assert_eq!(read::<f32>(client, &all, 1), [23.0]);
    let means = mean(client, &input, ..).unwrap();
    assert_eq!(means.shape()[..], [1, 1, 1]);
    assert_eq!(read::<f32>(client, &means, 1), [11.5]);
    let products = prod(client, &input, 0).unwrap();
    assert_eq!(read::<f32>(client, &products, 2), [0.0, 13.0]);
    let same = reduce(Sum, &input).over(Vec::new()).run(client).unwrap();
    assert_eq!(read::<f32>(client, &same, 24), data);
    // Into a supplied output with the kept axes of size 1.
    let output = tensor(client, &[f32::poison(); 9], &[1, 3, 1], &[9, 3, 1]);
    reduce(Sum, &input).over([0, 2]).run_into(client, output.clone().binding()).unwrap();
    let p = f32::poison();
    assert_eq!(read::<f32>(client, &output, 9), [60.0, p, p, 92.0, p, p, 124.0, p, p]);
}

/// Each mistake gets its own error, with the values in its message, and the output keeps its
/// poison.
pub(crate) fn errors_before_launch(client: &Client) {
    let data = [1f32; 12];
    let input = tensor(client, &data, &[3, 4], &[4, 1]);
    let output = tensor(client, &[f32::poison(); 4], &[4], &[1]);
    let into = |reduction: reduce_kernels::Reduction<'_, Sum, TensorHandle>,
                output: &TensorHandle| {
        reduction.keep_dims(false).run_into(client, output.clone().binding()).unwrap_err()
    };
    let by = |axes: &[usize]| reduce(Sum, &input).over(axes);

    let cases = [
        (into(by(&[2]), &output), "axis 2 is out of range for a tensor of rank 2"),
        (into(by(&[0, 0]), &output), "axis 0 is given more than once"),
        (into(by(&[1]), &output), "the result has shape [3], the supplied output [4]"),
        (into(by(&[0]).output_type(ElementType::U32), &output), "`sum` of f32 cannot give u32"),
        (
            into(by(&[0]).accumulate_in(ElementType::F16), &output),
            "`sum` of f32 cannot accumulate in f16",
        ),
        (
            into(by(&[0]), &tensor(client, &[0f32; 4], &[4], &[0])),
            "may store two results in one element",
        ),
        (
            into(by(&[0]), &tensor(client, &[0f32; 4], &[4], &[100])),
            "the output spans 1204 bytes, but its buffer holds",
        ),
        (
            into(reduce(Sum, &tensor(client, &data, &[3, 4], &[400, 1])).over([0]), &output),
            "the input spans 3216 bytes, but its buffer holds",
        ),
    ];
    for (error, message) in cases {
        assert!(error.to_string().contains(message), "{error:?}: {error}\nexpected {message}");
    }

    // Types for results that the operator does not have, within the three that any operator may
    // have and beyond.
    for nth in [1, 2, 3, usize::MAX] {
        let asked = by(&[0]).nth_output_type(nth, ElementType::F64);
        let message = format!("`sum` has no result {nth}: it has 1, counted from 0");
        assert_eq!(asked.output_types().unwrap_err().to_string(), message);
        assert_eq!(asked.choose(client).unwrap_err().to_string(), message);
        assert_eq!(into(asked, &output).to_string(), message);
    }
    let indexed = reduce(MaxWithIndex, &input).over(0).nth_output_type(1, ElementType::U32);
    assert_eq!(indexed.output_types().unwrap(), (ElementType::F32, ElementType::U32));

    // A device that cannot be.
    let mut nonsense = device_of(client);
    (nonsense.plane_size_min, nonsense.plane_size_max) = (48, 48);
    let error = into(by(&[0]).plan_for(&nonsense), &output);
    assert!(matches!(source(&error), Some(PlanError::Device(_))), "{error}");

    // Plans of another version, and plans that claim an alignment the tensor does not have.
    let good = by(&[0]).choose(client).unwrap().plan;
    let mut old = good;
    old.version = 0;
    let error = into(by(&[0]).with_plan(old), &output);
    assert!(matches!(source(&error), Some(PlanError::Version { found: 0, .. })));
    let mut unfit = good;
    unfit.access.vector = 8;
    let error = into(by(&[0]).with_plan(unfit), &output);
    assert!(matches!(source(&error), Some(PlanError::Unfit { .. })), "{error}");

    // A handle whose offset lies behind its buffer's end.
    let outside = input.handle.clone().offset_start(1 << 30);
    let outside = TensorHandle::new_contiguous([4], outside, storage_type(ElementType::F32));
    let error = sum(client, &outside, ..).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Buffer);
    assert_eq!(error.to_string(), "the input spans 16 bytes, but its buffer holds 0");

    // A result that no device holds, from a broadcast tensor.
    let broadcast = tensor(client, &data, &[1 << 50, 4], &[0, 1]);
    let error = sum(client, &broadcast, [1]).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    let needed = 4u64 << 50;
    assert!(
        error.to_string().starts_with(&format!("the result takes {needed} bytes, ")),
        "{error}"
    );

    // A type that the crate does not reduce.
    let tf32 = TensorHandle::new(
        input.handle.clone(),
        [12usize],
        [1usize],
        ElemType::Float(FloatKind::TF32),
    );
    let error = sum(client, &tf32, ..).unwrap_err();
    assert!(
        error.to_string().contains("cannot be reduced: supported are f8e4m3, f8e5m2, f16"),
        "{error}"
    );

    // Parameters that make no sense.
    let error = norm_p(client, &input, .., 0.0).unwrap_err();
    assert_eq!(error.to_string(), "`norm_p`: p is 0, but must be a finite number above 0");
    let error = var(client, &input, .., f64::NAN).unwrap_err();
    assert!(
        error.to_string().contains("correction is NaN, but must be a finite number"),
        "{error}"
    );

    // Outputs of one reduction that lie in different ways.
    let first = tensor(client, &[f32::poison(); 8], &[4], &[2]);
    let error = reduce(MinMax, &input)
        .over(0)
        .keep_dims(false)
        .run_into(client, (first.clone().binding(), output.clone().binding()))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "outputs of one reduction need the same strides: [2] and [1] differ"
    );

    // A type that the device lacks.
    let device = device_of(client);
    for element in ElementType::ALL.into_iter().filter(|&element| !device.has(element)) {
        let tensor =
            TensorHandle::new(input.handle.clone(), [2usize], [1usize], storage_type(element));
        let error = sum(client, &tensor, ..).unwrap_err();
        assert!(matches!(source(&error), Some(PlanError::ElementUnsupported { .. })));
        assert!(error.to_string().contains(element.name()), "{error}");
    }
    assert_eq!(read::<f32>(client, &output, 4), [f32::poison(); 4]);
}

/// Several results, each in a tensor of its own: the types of each, the values, one read.
pub(crate) fn several_results(client: &Client) {
    let data: Vec<f32> = (0..24).map(|i| ((i * 7) % 24) as f32).collect();
    let input = tensor(client, &data, &[4, 6], &row_major_strides(&[4, 6]));
    let (lowest, highest) = min_max(client, &input, [1]).unwrap();
    let rows = |pick: fn(f32, f32) -> f32| -> Vec<f32> {
        data.chunks(6).map(|row| row.iter().copied().reduce(pick).unwrap()).collect()
    };
    assert_eq!(read::<f32>(client, &lowest, 4), rows(f32::min));
    assert_eq!(read::<f32>(client, &highest, 4), rows(f32::max));
    let reduction = reduce(MaxWithIndex, &input).over(0).keep_dims(false);
    assert_eq!(reduction.output_types().unwrap(), (ElementType::F32, ElementType::U32));
    let (values, indices) = reduction.run(client).unwrap();
    let (values, indices) = (read::<f32>(client, &values, 6), read::<u32>(client, &indices, 6));
    for (column, (value, index)) in values.into_iter().zip(indices).enumerate() {
        assert_eq!(value, data[index as usize * 6 + column]);
        assert!((0..4).all(|row| data[row * 6 + column] <= value));
    }
}

/// Sums and products of integers are exact modulo 2^32, and modulo 2^64 in 64 bits; small integers
/// are sign-extended, never saturated.
pub(crate) fn integers_wrap(client: &Client) {
    let big = vec![i32::MAX; 1000];
    let expected = big.iter().fold(0i32, |sum, &value| sum.wrapping_add(value));
    assert_eq!(results::<_, _, i32>(client, Sum, &big, &[1000], &[0], None), [expected]);
    let odd = vec![-12_345_677i32; 333];
    let expected = odd.iter().fold(1i32, |product, &value| product.wrapping_mul(value));
    assert_eq!(results::<_, _, i32>(client, Prod, &odd, &[333], &[0], None), [expected]);
    let all = vec![u32::MAX; 257];
    let expected = all.iter().fold(0u32, |sum, &value| sum.wrapping_add(value));
    assert_eq!(results::<_, _, u32>(client, Sum, &all, &[257], &[0], None), [expected]);
    let ends = [i32::MIN, i32::MAX, 0, -1];
    assert_eq!(results::<_, _, i32>(client, Max, &ends, &[4], &[0], None), [i32::MAX]);
    assert_eq!(results::<_, _, i32>(client, Min, &ends, &[4], &[0], None), [i32::MIN]);
    let lows = vec![i32::MIN; 9];
    assert_eq!(results::<_, _, i32>(client, Max, &lows, &[9], &[0], None), [i32::MIN]);
    assert_eq!(results::<_, _, i32>(client, SumAbs, &lows[..1], &[1], &[0], None), [i32::MIN]);
    let device = device_of(client);
    if device.has(ElementType::I8) {
        let small = vec![-128i8; 5000];
        assert_eq!(results::<_, _, i32>(client, Sum, &small, &[5000], &[0], None), [-640_000i32]);
        let wrapped: Vec<i8> = results(client, Sum, &small[..3], &[3], &[0], None);
        assert_eq!(wrapped, [-128i8]);
        assert_eq!(results::<_, _, f32>(client, Mean, &small, &[5000], &[0], None), [-128f32]);
    }
    if device.has(ElementType::I64) {
        let wide: Vec<i64> = results(client, Sum, &big, &[1000], &[0], None);
        assert_eq!(wide, [1000 * i64::from(i32::MAX)]);
        let ends = [i64::MIN, i64::MAX, 1 << 40, -1];
        let expected = ends.iter().fold(0i64, |sum, &value| sum.wrapping_add(value));
        assert_eq!(results::<_, _, i64>(client, Sum, &ends, &[4], &[0], None), [expected]);
        assert_eq!(results::<_, _, i64>(client, Max, &ends, &[4], &[0], None), [i64::MAX]);
        assert_eq!(results::<_, _, i64>(client, Min, &ends, &[4], &[0], None), [i64::MIN]);
        assert_eq!(results::<_, _, u32>(client, ArgMin, &ends, &[4], &[0], None), [0u32]);
        let tops = [u64::MAX, u64::MAX - 1, 7];
        assert_eq!(results::<_, _, u64>(client, Max, &tops, &[3], &[0], None), [u64::MAX]);
        assert_eq!(
            results::<_, _, u32>(client, CountNonzero, &[1i64 << 32, 0, 1], &[3], &[0], None),
            [2u32]
        );
    }
}

/// Half-precision sums run in f32: past 65504 half-way they still come back.
pub(crate) fn half_sums_pass_the_half_range(client: &Client) {
    let up = vec![f16::from_f32(60_000.0); 40];
    let down = vec![f16::from_f32(-60_000.0); 39];
    let data = [up, down].concat();
    let found: Vec<f16> = results(client, Sum, &data, &[79], &[0], None);
    assert_eq!(found, [f16::from_f32(60_000.0)]);
    let large = vec![f16::from_f32(50_000.0); 1000];
    let found: Vec<f16> = results(client, Mean, &large, &[1000], &[0], None);
    assert_eq!(found, [f16::from_f32(50_000.0)]);
}

/// The same plan on the same data gives the same bits, whatever the schedule and whichever cube
/// finishes last: a thousand times on a GPU, fewer on a software adapter.
pub(crate) fn same_bits_every_run(client: &Client) {
    let runs = if device_of(client).plane_operations { 1000 } else { 10 };
    let case = Case::contiguous(&[2, 30_011], &[1]);
    let data: Vec<f32> = sample::<Sum>(&case, ElementType::F32, 7)
        .iter()
        .map(|&value| value as f32 * 1.000_1 + 0.3)
        .collect();
    let expected: Vec<f64> = data
        .chunks(case.shape[1])
        .map(|row| row.iter().map(|&value| f64::from(value)).sum())
        .collect();
    for plan in all_plans::<Sum>(client, &case.shape, &case.axes) {
        let once =
            || -> Vec<f32> { results(client, Sum, &data, &case.shape, &case.axes, Some(plan)) };
        let first = once();
        for (&found, expected) in first.iter().zip(&expected) {
            assert!((f64::from(found) - expected).abs() < 1.0, "{found}, not {expected}: {plan}");
        }
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        for _ in 0..runs {
            assert_eq!(bits(&once()), bits(&first), "{plan}");
        }
    }
}

/// Whether there is nothing to reduce, and the operator has no value for that.
fn is_of_nothing(error: &ReduceError) -> bool {
    matches!(source(error), Some(ProblemError::EmptyReduction { .. }))
}

/// A tensor that starts inside its buffer is read from there, off any vector's boundary, or refused
/// where the device cannot bind it.
pub(crate) fn tensors_inside_buffers(client: &Client) {
    let data: Vec<f32> = (0..5000).map(|i| (i % 97) as f32).collect();
    for skip in [1usize, 2, 3, 4, 64] {
        let whole = tensor(client, &data, &[5000], &[1]);
        let handle = whole.handle.offset_start(4 * skip as u64);
        let shape = [4, 1200];
        let input = TensorHandle::new_contiguous(shape, handle, storage_type(ElementType::F32));
        let output = match sum(client, &input, [1]) {
            Ok(output) => output,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Buffer, "{error}");
                let (offset, message) = (4 * skip as u64, error.to_string());
                let before = format!(
                    "the input starts {offset} bytes into its buffer, which is no multiple of "
                );
                let alignment = message.strip_prefix(&before).unwrap_or_else(|| panic!("{error}"));
                let alignment: u64 = alignment.parse().expect("it is a number of bytes");
                assert!(!offset.is_multiple_of(alignment));
                assert_ne!(client.name(), "cuda");
                continue;
            }
        };
        let rows = data[skip..skip + 4800].chunks(1200);
        let expected: Vec<f32> = rows.map(|row| row.iter().sum()).collect();
        assert_eq!(read::<f32>(client, &output, 4), expected, "from element {skip}");
    }
}

/// More positions than 32 bits count, in a few bytes: broadcast tensors of more than 2^32 elements,
/// along and across, in single elements, whole vectors and peeled ones.
pub(crate) fn wide_indices(client: &Client) {
    let cases = [
        (vec![3, 1 << 20, 1 << 12], vec![1, 0, 0], vec![1, 2]),
        (vec![1 << 22, 1024], vec![0, 1], vec![0, 1]),
        (vec![1 << 22, 1031], vec![0, 1], vec![0, 1]),
        (vec![1 << 20, 1 << 12, 8], vec![0, 0, 1], vec![0, 1]),
        (vec![1 << 20, 1 << 12, 9], vec![0, 0, 1], vec![0, 1]),
    ];
    for (shape, strides, axes) in cases {
        let repeated: usize =
            (0..shape.len()).filter(|&i| strides[i] == 0).map(|i| shape[i]).product();
        let stored: usize =
            (0..shape.len()).filter(|&i| strides[i] != 0).map(|i| shape[i]).product();
        let data: Vec<f32> = (0..stored).map(|i| (i % 7) as f32 - 2.0).collect();
        let input = tensor(client, &data, &shape, &strides);
        let output = match sum(client, &input, axes.clone()) {
            Ok(output) => output,
            Err(error) => {
                let Some(PlanError::IndexTooNarrow { span, limit, .. }) = source(&error) else {
                    panic!("{error}")
                };
                assert!(span > limit && !device_of(client).wide_indices);
                continue;
            }
        };
        let results = output.shape().iter().product();
        let per_result = stored / results;
        let found: Vec<f32> = read(client, &output, results);
        for (i, found) in found.into_iter().enumerate() {
            let row = &data[i * per_result..(i + 1) * per_result];
            let expected = row.iter().map(|&x| f64::from(x)).sum::<f64>() * repeated as f64;
            let close = (f64::from(found) - expected).abs() <= 1e-4 * expected.abs();
            assert!(close, "result {i} of {shape:?} over {axes:?}: {found}, expected {expected}");
        }
    }
}

/// A dimension of more than 2^31 elements in a few bytes, which kernels with 64-bit indices divide
/// by.
pub(crate) fn wide_divisors(client: &Client) {
    if !device_of(client).has(ElementType::U8) {
        return;
    }
    let rows = (1usize << 31) + 8;
    let input = tensor(client, &[1u8, 3], &[rows, 2], &[0, 1]);
    match sum(client, &input, 0) {
        Ok(output) => {
            let expected = [1, 3].map(|value| (rows as u32).wrapping_mul(value));
            assert_eq!(read::<u32>(client, &output, 2), expected);
        }
        Err(error) => {
            assert!(matches!(source(&error), Some(PlanError::IndexTooNarrow { .. })), "{error}");
            assert!(!device_of(client).wide_indices);
        }
    }
}

/// A description of a tensor has the results, the plan and the errors of the tensor.
pub(crate) fn descriptions(client: &Client) {
    let x = tensor(client, &[1f32; 24], &[2, 3, 4], &[12, 4, 1]);
    let described = TensorDescription::row_major(ElementType::F32, [2, 3, 4]);
    let of_tensor = reduce(MaxWithIndex, &x).over([0, 2]).keep_dims(false);
    let of_description = reduce(MaxWithIndex, &described).over([0, 2]).keep_dims(false);
    assert_eq!(of_tensor.output_shape(), of_description.output_shape());
    assert_eq!(of_tensor.output_types(), of_description.output_types());
    assert_eq!(of_tensor.choose(client), of_description.choose(client));
    assert_eq!(of_description.check(client), Ok(()));
    assert_eq!(of_tensor.check(client), Ok(()));

    let transposed = TensorDescription::strided(ElementType::F32, [4, 2], [1, 4]);
    let shape = reduce(Sum, &transposed).over(1).output_shape();
    assert_eq!(shape, Ok(vec![4, 1]));

    let empty = TensorDescription::row_major(ElementType::F32, [3, 0]);
    let errors = [
        reduce(Sum, &described).over(3).check(client).unwrap_err(),
        reduce(Max, &empty).over(1).check(client).unwrap_err(),
        reduce(Sum, &described).output_type(ElementType::U8).check(client).unwrap_err(),
    ];
    let messages = ["axis 3 is out of range", "no elements", "`sum` of f32 cannot give u8"];
    for (error, expected) in errors.iter().zip(messages) {
        assert!(error.to_string().contains(expected), "{error}");
    }

    // A description has no buffer that could be too small.
    let beyond = TensorHandle::new(x.handle, [4, 2], [1, 100], x.dtype);
    let error = reduce(Sum, &beyond).check(client).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Buffer);
    assert!(error.to_string().starts_with("the input spans 416 bytes, "), "{error}");
}

/// CubeCL's `flex32` is f32 in memory, and reduced as f32.
pub(crate) fn flex32_is_f32(client: &Client) {
    let x = tensor(client, &[1.5f32, 2.5, -1.0, 4.0], &[2, 2], &[2, 1]);
    let x = TensorHandle::new_contiguous([2, 2], x.handle, flex32::cube_type());
    let rows = sum(client, &x, 1).unwrap();
    assert_eq!(rows.dtype, storage_type(ElementType::F32));
    assert_eq!(read::<f32>(client, &rows, 2), [4.0, 3.0]);
}
