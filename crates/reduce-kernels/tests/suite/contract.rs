//! The rows of docs/SEMANTICS.md: NaN, infinities, emptiness, shapes, errors, wrapping, half
//! precision, determinism.

use half::f16;
use reduce_kernels::{
    ElementType, Max, Mean, Min, Operator, Plan, Prod, ReduceError, Sum,
    cubecl::{prelude::*, std::tensor::TensorHandle},
    device_of, max, mean, min,
    planner::{PlanError, ProblemError, row_major_strides},
    prod, reduce, storage_type, sum,
};

use crate::{
    case::Case,
    run::{Element, client, device_with_planes, plans, read, sample, tensor},
};

/// Reduces a row-major tensor over `axes` into a poisoned tensor and reads it.
fn results<R: Runtime, O: Operator, E: Element, U: Element>(
    client: &ComputeClient<R>,
    data: &[E],
    shape: &[usize],
    axes: &[usize],
    plan: Option<Plan>,
) -> Vec<U> {
    let input = tensor(client, data, shape, &row_major_strides(shape));
    let mut reduction = reduce::<O, R>(&input).over(axes).to_type(U::TYPE);
    let device = device_with_planes(client);
    if let Some(plan) = plan {
        reduction = reduction.with_plan(plan).on(&device);
    }
    let shape = reduction.output_shape().unwrap();
    let len = shape.iter().product();
    let output = tensor(client, &vec![U::POISON; len], &shape, &row_major_strides(&shape));
    reduction.run_into(client, output.clone().binding()).unwrap();
    read(client, &output, len)
}

/// All plans of an f32 reduction of a row-major tensor.
fn all_plans<R: Runtime, O: Operator>(
    client: &ComputeClient<R>,
    shape: &[usize],
    axes: &[usize],
) -> Vec<Plan> {
    let data = vec![0f32; shape.iter().product()];
    let input = tensor(client, &data, shape, &row_major_strides(shape));
    let problem = reduce::<O, R>(&input).over(axes).problem().unwrap();
    plans(&problem, &device_with_planes(client))
}

/// One NaN anywhere makes the result NaN, under every schedule, whatever else is in the row.
pub fn nan_propagates<R: Runtime>() {
    fn check<R: Runtime, O: Operator>(client: &ComputeClient<R>) {
        for (shape, axis) in [([3, 1030], 1), ([1030, 3], 0)] {
            for plan in all_plans::<R, O>(client, &shape, &[axis]) {
                for place in [0, 1, 500, 1029] {
                    let mut data = vec![1.5f32; 3 * 1030];
                    let index = if axis == 1 { 1030 + place } else { place * 3 + 1 };
                    data[index] = f32::NAN;
                    data[index / 2] = f32::INFINITY;
                    let found: Vec<f32> =
                        results::<R, O, f32, f32>(client, &data, &shape, &[axis], Some(plan));
                    assert!(found[1].is_nan(), "{} at {place}: {found:?}, {plan}", O::NAME);
                    assert!(!found[2].is_nan(), "{}: {found:?}, {plan}", O::NAME);
                }
            }
        }
    }
    let client = client::<R>();
    check::<R, Sum>(&client);
    check::<R, Prod>(&client);
    check::<R, Mean>(&client);
    check::<R, Max>(&client);
    check::<R, Min>(&client);
}

/// Rows of infinities alone have them as extrema; opposite ones sum to NaN.
pub fn infinities<R: Runtime>() {
    let client = client::<R>();
    let inf = f32::INFINITY;
    let low = vec![-inf; 300];
    let high = vec![inf; 300];
    assert_eq!(results::<R, Max, f32, f32>(&client, &low, &[300], &[0], None), [-inf]);
    assert_eq!(results::<R, Min, f32, f32>(&client, &high, &[300], &[0], None), [inf]);
    assert_eq!(results::<R, Sum, f32, f32>(&client, &high, &[300], &[0], None), [inf]);
    let both = [low, high].concat();
    assert!(results::<R, Sum, f32, f32>(&client, &both, &[600], &[0], None)[0].is_nan());
    assert_eq!(results::<R, Max, f32, f32>(&client, &both, &[600], &[0], None), [inf]);
    let half = vec![f16::NEG_INFINITY; 50];
    let found: Vec<f16> = results::<R, Max, f16, f16>(&client, &half, &[50], &[0], None);
    assert_eq!(found, [f16::NEG_INFINITY]);
}

/// Nothing to reduce: 0, 1, NaN, or an error where no value makes sense.
pub fn empty_reductions<R: Runtime>() {
    let client = client::<R>();
    let none: [f32; 0] = [];
    let shape = [3, 0, 2];
    assert_eq!(results::<R, Sum, f32, f32>(&client, &none, &shape, &[1], None), [0.0; 6]);
    assert_eq!(results::<R, Prod, f32, f32>(&client, &none, &shape, &[1], None), [1.0; 6]);
    let means: Vec<f32> = results::<R, Mean, f32, f32>(&client, &none, &shape, &[1], None);
    assert!(means.len() == 6 && means.iter().all(|mean| mean.is_nan()), "{means:?}");
    assert_eq!(results::<R, Sum, f32, f32>(&client, &none, &[0], &[0], None), [0.0]);
    let strided = tensor(&client, &none, &[2, 3, 0], &[1 << 40, 1 << 35, 1]);
    assert_eq!(read::<R, f32>(&client, &sum(&client, &strided, [2]).unwrap(), 6), [0.0; 6]);
    let input = tensor(&client, &none, &shape, &row_major_strides(&shape));
    for error in [max(&client, &input, [1]).err(), min(&client, &input, [1]).err()] {
        let error = error.expect("extrema of nothing are refused");
        assert!(matches!(error, ReduceError::Problem(ProblemError::EmptyReduction { .. })));
        assert!(error.to_string().contains("[3, 0, 2]"), "{error}");
    }
}

/// No results: an empty tensor, and extrema do not mind.
pub fn empty_outputs<R: Runtime>() {
    let client = client::<R>();
    let none: [f32; 0] = [];
    let input = tensor(&client, &none, &[0, 5], &row_major_strides(&[0, 5]));
    let output = max(&client, &input, [1]).unwrap();
    assert_eq!(output.shape()[..], [0, 1]);
    let input = tensor(&client, &none, &[0, 0], &row_major_strides(&[0, 0]));
    let output = reduce::<Sum, R>(&input).over([1]).squeezed().run(&client).unwrap();
    assert_eq!(output.shape()[..], [0]);
}

/// Kept axes of size 1 by default, none when squeezed, axes in any order, all by default.
pub fn shapes_of_results<R: Runtime>() {
    let client = client::<R>();
    let data: Vec<f32> = (0..24).map(|i| i as f32).collect();
    let input = tensor(&client, &data, &[2, 3, 4], &row_major_strides(&[2, 3, 4]));
    let kept = sum(&client, &input, [2, 0]).unwrap();
    assert_eq!(kept.shape()[..], [1, 3, 1]);
    assert_eq!(read::<R, f32>(&client, &kept, 3), [60.0, 92.0, 124.0]);
    let squeezed = reduce::<Sum, R>(&input).over([0, 2]).squeezed().run(&client).unwrap();
    assert_eq!(squeezed.shape()[..], [3]);
    assert_eq!(read::<R, f32>(&client, &squeezed, 3), [60.0, 92.0, 124.0]);
    let all = reduce::<Max, R>(&input).squeezed().run(&client).unwrap();
    assert_eq!(all.shape()[..], [] as [usize; 0]);
    assert_eq!(read::<R, f32>(&client, &all, 1), [23.0]);
    let means = mean(&client, &input, ..).unwrap();
    assert_eq!(means.shape()[..], [1, 1, 1]);
    assert_eq!(read::<R, f32>(&client, &means, 1), [11.5]);
    let products = prod(&client, &input, 0).unwrap();
    assert_eq!(read::<R, f32>(&client, &products, 2), [0.0, 13.0]);
    let same = reduce::<Sum, R>(&input).over(Vec::new()).run(&client).unwrap();
    assert_eq!(read::<R, f32>(&client, &same, 24), data);
    // Into a supplied output with the kept axes of size 1.
    let output = tensor(&client, &[f32::POISON; 9], &[1, 3, 1], &[9, 3, 1]);
    reduce::<Sum, R>(&input).over([0, 2]).run_into(&client, output.clone().binding()).unwrap();
    let p = f32::POISON;
    assert_eq!(read::<R, f32>(&client, &output, 9), [60.0, p, p, 92.0, p, p, 124.0, p, p]);
}

/// Each mistake gets its own error, with the values in its message, and the output keeps its poison.
pub fn errors_before_launch<R: Runtime>() {
    let client = client::<R>();
    let data = [1f32; 12];
    let input = tensor(&client, &data, &[3, 4], &[4, 1]);
    let output = tensor(&client, &[f32::POISON; 4], &[4], &[1]);
    let into = |reduction: reduce_kernels::Reduction<'_, Sum, R>, output: &TensorHandle<R>| {
        reduction.squeezed().run_into(&client, output.clone().binding()).unwrap_err()
    };
    let by = |axes: &[usize]| reduce::<Sum, R>(&input).over(axes);

    let cases = [
        (into(by(&[2]), &output), "axis 2 is out of range for a tensor of rank 2"),
        (into(by(&[0, 0]), &output), "axis 0 is given more than once"),
        (into(by(&[1]), &output), "the result has shape [3], the supplied output [4]"),
        (into(by(&[0]).to_type(ElementType::U32), &output), "`sum` of f32 cannot give u32"),
        (
            into(by(&[0]), &tensor(&client, &[0f32; 4], &[4], &[0])),
            "may store two results in one element",
        ),
        (
            into(by(&[0]), &tensor(&client, &[0f32; 4], &[4], &[100])),
            "the output spans 1204 bytes, but its buffer holds",
        ),
        (
            into(reduce::<Sum, R>(&tensor(&client, &data, &[3, 4], &[400, 1])).over([0]), &output),
            "the input spans 3216 bytes, but its buffer holds",
        ),
    ];
    for (error, message) in cases {
        assert!(error.to_string().contains(message), "{error:?}: {error}\nexpected {message}");
    }

    // Plans of another version, and plans that claim an alignment the tensor does not have.
    let good = by(&[0]).plan(&client).unwrap().plan;
    let old = Plan { version: 0, ..good };
    let error = into(by(&[0]).with_plan(old), &output);
    assert!(matches!(error, ReduceError::Plan(PlanError::Version { found: 0, .. })));
    let mut unfit = good;
    unfit.access.vector = 8;
    let error = into(by(&[0]).with_plan(unfit), &output);
    assert!(matches!(error, ReduceError::Plan(PlanError::Unfit { .. })), "{error}");

    // A handle whose offset lies behind its buffer's end.
    let outside = input.handle.clone().offset_start(1 << 30);
    let outside = TensorHandle::<R>::new_contiguous([4], outside, storage_type(ElementType::F32));
    let error = sum(&client, &outside, ..).unwrap_err();
    assert!(matches!(error, ReduceError::BufferTooSmall { available: 0, .. }), "{error}");

    // A result that no device holds, from a broadcast tensor.
    let broadcast = tensor(&client, &data, &[1 << 50, 4], &[0, 1]);
    let error = sum(&client, &broadcast, [1]).unwrap_err();
    assert!(matches!(error, ReduceError::OutputTooLarge { .. }), "{error}");

    // A type that the crate does not reduce.
    let bytes = TensorHandle::<R>::new(
        input.handle.clone(),
        [12usize],
        [1usize],
        u8::as_type_native_unchecked(),
    );
    let error = sum(&client, &bytes, ..).unwrap_err();
    assert!(error.to_string().contains("tensors of u8 cannot be reduced"), "{error}");

    // A type that the device lacks.
    let device = device_of(&client);
    for element in ElementType::ALL.into_iter().filter(|&element| !device.has(element)) {
        let tensor =
            TensorHandle::<R>::new(input.handle.clone(), [2usize], [1usize], storage_type(element));
        let error = sum(&client, &tensor, ..).unwrap_err();
        assert!(matches!(error, ReduceError::Plan(PlanError::ElementUnsupported { .. })));
        assert!(error.to_string().contains(element.name()), "{error}");
    }
    assert_eq!(read::<R, f32>(&client, &output, 4), [f32::POISON; 4]);
}

/// Sums and products of integers are exact modulo 2^32.
pub fn integers_wrap<R: Runtime>() {
    let client = client::<R>();
    let big = vec![i32::MAX; 1000];
    let expected = big.iter().fold(0i32, |sum, &value| sum.wrapping_add(value));
    assert_eq!(results::<R, Sum, i32, i32>(&client, &big, &[1000], &[0], None), [expected]);
    let odd = vec![-12_345_677i32; 333];
    let expected = odd.iter().fold(1i32, |product, &value| product.wrapping_mul(value));
    assert_eq!(results::<R, Prod, i32, i32>(&client, &odd, &[333], &[0], None), [expected]);
    let all = vec![u32::MAX; 257];
    let expected = all.iter().fold(0u32, |sum, &value| sum.wrapping_add(value));
    assert_eq!(results::<R, Sum, u32, u32>(&client, &all, &[257], &[0], None), [expected]);
    let ends = [i32::MIN, i32::MAX, 0, -1];
    assert_eq!(results::<R, Max, i32, i32>(&client, &ends, &[4], &[0], None), [i32::MAX]);
    assert_eq!(results::<R, Min, i32, i32>(&client, &ends, &[4], &[0], None), [i32::MIN]);
    let lows = vec![i32::MIN; 9];
    assert_eq!(results::<R, Max, i32, i32>(&client, &lows, &[9], &[0], None), [i32::MIN]);
}

/// Half-precision sums run in f32: past 65504 half-way they still come back.
pub fn half_sums_pass_the_half_range<R: Runtime>() {
    let client = client::<R>();
    let up = vec![f16::from_f32(60_000.0); 40];
    let down = vec![f16::from_f32(-60_000.0); 39];
    let data = [up, down].concat();
    let found: Vec<f16> = results::<R, Sum, f16, f16>(&client, &data, &[79], &[0], None);
    assert_eq!(found, [f16::from_f32(60_000.0)]);
    let large = vec![f16::from_f32(50_000.0); 1000];
    let found: Vec<f16> = results::<R, Mean, f16, f16>(&client, &large, &[1000], &[0], None);
    assert_eq!(found, [f16::from_f32(50_000.0)]);
}

/// The same plan on the same data gives the same bits, whatever the schedule.
pub fn same_bits_every_run<R: Runtime>() {
    let client = client::<R>();
    let case = Case::contiguous(&[2, 30_011], &[1]);
    let data: Vec<f32> = sample::<Sum, f32>(&case, 7).iter().map(|v| v * 1.000_1 + 0.3).collect();
    for plan in all_plans::<R, Sum>(&client, &case.shape, &case.axes) {
        let once = || -> Vec<u32> {
            let found: Vec<f32> =
                results::<R, Sum, f32, f32>(&client, &data, &case.shape, &case.axes, Some(plan));
            found.iter().map(|value| value.to_bits()).collect()
        };
        let first = once();
        for _ in 0..10 {
            assert_eq!(once(), first, "{plan}");
        }
    }
}

/// A tensor that starts inside its buffer is read from there, off any vector's boundary, or refused
/// where the device cannot bind it.
pub fn tensors_inside_buffers<R: Runtime>() {
    let client = client::<R>();
    let data: Vec<f32> = (0..5000).map(|i| (i % 97) as f32).collect();
    for skip in [1usize, 2, 3, 4, 64] {
        let whole = tensor(&client, &data, &[5000], &[1]);
        let handle = whole.handle.offset_start(4 * skip as u64);
        let shape = [4, 1200];
        let input =
            TensorHandle::<R>::new_contiguous(shape, handle, storage_type(ElementType::F32));
        let output = match sum(&client, &input, [1]) {
            Ok(output) => output,
            Err(ReduceError::Misaligned { tensor: "input", offset, alignment }) => {
                assert!(offset == 4 * skip as u64 && !offset.is_multiple_of(alignment));
                assert_ne!(R::name(&client), "cuda");
                continue;
            }
            Err(other) => panic!("{other}"),
        };
        let rows = data[skip..skip + 4800].chunks(1200);
        let expected: Vec<f32> = rows.map(|row| row.iter().sum()).collect();
        assert_eq!(read::<R, f32>(&client, &output, 4), expected, "from element {skip}");
    }
}

/// More positions than 32 bits count, in a few bytes: broadcast tensors of more than 2^32 elements,
/// along and across, in single elements, whole vectors and ragged ones.
pub fn wide_indices<R: Runtime>() {
    let client = client::<R>();
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
        let input = tensor(&client, &data, &shape, &strides);
        let output = match sum(&client, &input, axes.clone()) {
            Ok(output) => output,
            Err(ReduceError::Plan(PlanError::IndexTooNarrow { span, limit, .. })) => {
                assert!(span > limit && !device_of(&client).wide_indices);
                continue;
            }
            Err(other) => panic!("{other}"),
        };
        let results = output.shape().iter().product();
        let per_result = stored / results;
        let found: Vec<f32> = read(&client, &output, results);
        for (i, found) in found.into_iter().enumerate() {
            let row = &data[i * per_result..(i + 1) * per_result];
            let expected = row.iter().map(|&x| f64::from(x)).sum::<f64>() * repeated as f64;
            let close = (f64::from(found) - expected).abs() <= 1e-4 * expected.abs();
            assert!(close, "result {i} of {shape:?} over {axes:?}: {found}, expected {expected}");
        }
    }
}
