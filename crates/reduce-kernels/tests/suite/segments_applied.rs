//! Results of segments, applied to their elements: every function, layout and type, in plans of any
//! shape, against f64.

use cubecl::{prelude::*, std::tensor::TensorHandle};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    ElementType, ErrorKind, Operator, ReduceError, Sum, TensorDescription, cubecl,
    normalize::{
        AppliedReduction, LayerNorm, LogSoftmax, NormalizeL2, RmsNorm, Softmax, SoftmaxGradient,
        Standardize, TemperedLogSoftmax, TemperedSoftmax,
    },
    operator::{Apply, One},
    planner::{
        AppliedKind, AppliedPlan, Direction, Illegal, Numerics, PlanError, force_applied,
        row_major_strides, span,
    },
    plans::{PlanStore, RecordedCall, TunedPlan},
    reduce,
};

use crate::{
    applied::{EPS, Function, TEMPERATURE, error_bound},
    case::Case,
    run::{POISON, capable_device, decode, encode, read, source, tensor, tensor_of},
    segments::{MemberTensors, Members, offsets, unravel},
};

/// A change of the plan that is chosen.
type Change<'a> = &'a dyn Fn(&mut AppliedPlan);

/// [`check_members`] for neighbours.
fn check(
    client: &Client,
    function: Function,
    case: &Case,
    element: ElementType,
    offsets: &[usize],
    change: Option<Change<'_>>,
) -> Vec<u8> {
    let members = Members::Neighbours(offsets.to_vec());
    check_members(client, function, case, element, &members, change)
}

/// Applies a function to segments of an axis, into a poisoned output, and compares it with f64. A
/// weight has an element for each of the input, and a bias one for each segment.
pub(crate) fn check_members(
    client: &Client,
    function: Function,
    case: &Case,
    element: ElementType,
    members: &Members,
    change: Option<Change<'_>>,
) -> Vec<u8> {
    let axis = case.axes[0];
    let mut rng = StdRng::seed_from_u64(case.span() as u64);
    let mut draw = |len: usize, from: f64, to: f64| -> Vec<f64> {
        let values: Vec<f64> = (0..len).map(|_| rng.random_range(from..to)).collect();
        decode(element, &encode(element, &values))
    };
    let data = draw(case.span(), -3.0, 5.0);
    let input = tensor_of(client, element, &encode(element, &data), &case.shape, &case.strides);
    let tensors = members.tensors(client);
    let mut of_segments = case.shape.clone();
    of_segments[axis] = members.segments();
    let elements: usize = case.shape.iter().product();
    let (weight, bias) =
        (draw(elements, 0.5, 2.0), draw(of_segments.iter().product::<usize>().max(1), -1.0, 1.0));
    let operand = |values: &[f64], shape: &[usize]| {
        tensor_of(client, element, &encode(element, values), shape, &row_major_strides(shape))
    };
    let operands = [operand(&weight, &case.shape), operand(&bias, &of_segments)];
    // A gap behind each row.
    let mut pitched = case.shape.clone();
    *pitched.last_mut().unwrap() += 2;
    let strides = row_major_strides(&pitched);
    let held = (span(&case.shape, &strides).unwrap() + 1).max(2);
    let poison = vec![POISON; held * element.bytes()];
    let output = tensor_of(client, element, &poison, &case.shape, &strides);

    let to = Target { client, members: &tensors, output: &output, change };
    let (x, [weights, biases]) = (&input, &operands);
    let told = match function {
        Function::Softmax => to.launch(Softmax.of(x, axis)),
        Function::LogSoftmax => to.launch(LogSoftmax.of(x, axis)),
        Function::TemperedSoftmax => {
            to.launch(TemperedSoftmax { temperature: TEMPERATURE }.of(x, axis))
        }
        Function::TemperedLogSoftmax => {
            to.launch(TemperedLogSoftmax { temperature: TEMPERATURE }.of(x, axis))
        }
        Function::LayerNorm => {
            let norm = LayerNorm { eps: EPS }.of(x, axis).operand(weights, ..);
            to.launch(norm.operand_of_segments(biases, ..))
        }
        Function::RmsNorm => {
            let norm = RmsNorm { eps: EPS }.of(x, axis).operand(weights, ..);
            to.launch(norm.operand_of_segments(biases, ..))
        }
        Function::NormalizeL2 => to.launch(NormalizeL2 { eps: EPS }.of(x, axis)),
        Function::Standardize => to.launch(Standardize { correction: 1.0, eps: EPS }.of(x, axis)),
    };

    let bytes = client.read_one(output.handle.clone()).expect("the device answers");
    let bytes = &bytes[..held * element.bytes()];
    let found = decode(element, bytes);
    let mut expected = vec![None; held];
    let row_major = row_major_strides(&case.shape);
    let at = |index: &[usize], strides: &[usize]| -> usize {
        index.iter().zip(strides).map(|(index, stride)| index * stride).sum()
    };
    for number in 0..elements {
        expected[at(&unravel(number, &case.shape), &strides)] = Some((0.0, 0.0));
    }
    let strides_of_segments = row_major_strides(&of_segments);
    for number in 0..of_segments.iter().product() {
        let mut index = unravel(number, &of_segments);
        let own_bias = bias[at(&index, &strides_of_segments)];
        let own = members.of(index[axis]);
        let mut values = Vec::new();
        let mut weights = Vec::new();
        let mut places = Vec::new();
        for position in own {
            index[axis] = position;
            values.push(data[at(&index, &case.strides)]);
            weights.push(weight[at(&index, &row_major)]);
            places.push(at(&index, &strides));
        }
        let (weights, biases) = match function.is_affine() {
            true => (weights, vec![own_bias; values.len()]),
            false => (vec![1.0; values.len()], vec![0.0; values.len()]),
        };
        for (place, result) in places.into_iter().zip(function.naive(&values, &weights, &biases)) {
            expected[place] = Some(result);
        }
    }
    for (place, expected) in expected.iter().enumerate() {
        let written = &bytes[place * element.bytes()..(place + 1) * element.bytes()];
        let Some((expected, units)) = *expected else {
            let untouched = written.iter().all(|&byte| byte == POISON);
            assert!(untouched, "written at {place}: {case:?}\n{told}");
            continue;
        };
        let bound = error_bound(element, units, expected);
        assert!(
            (found[place] - expected).abs() <= bound
                || (found[place].is_nan() && expected.is_nan()),
            "{function:?} of {element}: element {place} is {}, expected {expected} within {bound}\n\
             {case:?}\n{members:?}\n{told}",
            found[place],
        );
    }
    bytes.to_vec()
}

/// Where results go, and by which plan.
struct Target<'a> {
    client: &'a Client,
    members: &'a MemberTensors,
    output: &'a TensorHandle,
    change: Option<Change<'a>>,
}

impl Target<'_> {
    /// Launches, and returns the plan in words.
    fn launch<O: Operator, F: Apply<Results = O::Results, Outputs = One>>(
        &self,
        applied: AppliedReduction<'_, O, F, TensorHandle>,
    ) -> String {
        let mut applied = match self.members {
            MemberTensors::Neighbours(offsets) => applied.segments(offsets),
            MemberTensors::Keyed(groups) => applied.grouped(groups),
            MemberTensors::Listed(..) => panic!("functions are not applied to lists"),
        };
        let device = capable_device(self.client);
        if let Some(change) = self.change {
            applied = applied.plan_for(&device);
            let mut plan = applied.choose(self.client).unwrap().plan;
            change(&mut plan);
            applied = applied.with_plan(plan);
        }
        let told = applied.plan(self.client).unwrap().plan.to_string();
        applied.run_into(self.client, self.output.clone().binding()).unwrap();
        told
    }
}

/// Every function over segments of every kind, of a row and of columns.
pub(crate) fn every_function(client: &Client) {
    for function in [
        Function::Softmax,
        Function::LogSoftmax,
        Function::TemperedSoftmax,
        Function::TemperedLogSoftmax,
        Function::LayerNorm,
        Function::RmsNorm,
        Function::NormalizeL2,
        Function::Standardize,
    ] {
        for case in [Case::contiguous(&[1003], &[0]), Case::contiguous(&[130, 12], &[0])] {
            for offsets in offsets(case.shape[0]) {
                check(client, function, &case, ElementType::F32, &offsets, None);
            }
        }
    }
}

/// Rows that begin anywhere, columns of any number, and layouts with gaps.
pub(crate) fn every_layout(client: &Client) {
    for case in [
        Case::contiguous(&[20_000], &[0]),
        Case::contiguous(&[3, 2001], &[1]),
        Case::contiguous(&[2, 700, 7], &[1]),
        Case::contiguous(&[90, 3], &[0]),
        Case::contiguous(&[5, 1], &[1]),
        Case::pitched(&[6, 500], 513, &[1]),
        Case::pitched(&[60, 50], 64, &[0]),
        Case::permuted(&[24, 10, 12], &[2, 0, 1], &[1]),
        Case::sliced(&[9, 800], &[2, 2], &[1]),
    ] {
        for offsets in offsets(case.shape[case.axes[0]]) {
            for function in [Function::Softmax, Function::LayerNorm] {
                check(client, function, &case, ElementType::F32, &offsets, None);
            }
        }
    }
}

/// Inputs, operands and outputs of every type.
pub(crate) fn every_type(client: &Client) {
    let device = capable_device(client);
    for element in [ElementType::F64, ElementType::F16, ElementType::BF16] {
        for case in [Case::contiguous(&[1003], &[0]), Case::contiguous(&[130, 12], &[0])] {
            if device.has(element) {
                let offsets = &offsets(case.shape[0])[3];
                check(client, Function::Softmax, &case, element, offsets, None);
                check(client, Function::LayerNorm, &case, element, offsets, None);
            }
        }
    }
}

/// The number of cubes, of units and of loads changes no bit of what is applied.
pub(crate) fn every_plan(client: &Client) {
    for case in [Case::contiguous(&[5003], &[0]), Case::contiguous(&[2, 400, 24], &[1])] {
        let offsets = &offsets(case.shape[case.axes[0]])[3];
        for function in [Function::Softmax, Function::LayerNorm] {
            let run = |change: Change<'_>| {
                check(client, function, &case, ElementType::F32, offsets, Some(change))
            };
            let expected = run(&|_| {});
            for (cubes, units, loads) in [(1, 1, 1), (3, 8, 2), (64, 32, 4), (500, 2, 1)] {
                let found = run(&|plan| {
                    let AppliedPlan::Segments { apply, .. } = plan else { panic!("{plan}") };
                    apply.access = apply.access.with_loads_in_flight(loads);
                    apply.cubes_per_output = cubes;
                    apply.units_per_output = units;
                });
                assert!(found == expected, "{function:?} by {cubes} cubes of {units} units");
            }
        }
    }
}

/// Offsets that descend, are negative or lie behind the axis: calls end, and write nothing but the
/// output.
pub(crate) fn hostile_offsets(client: &Client) {
    let mut rng = StdRng::seed_from_u64(4);
    for shape in [&[2000][..], &[300, 8]] {
        let len = shape.iter().product::<usize>();
        let strides = row_major_strides(shape);
        let x = tensor(client, &vec![1.0f32; len], shape, &strides);
        let mut of_segments = shape.to_vec();
        of_segments[0] = 64;
        let bias = vec![1.0f32; of_segments.iter().product()];
        let bias = tensor(client, &bias, &of_segments, &row_major_strides(&of_segments));
        let gaps: Vec<usize> = strides.iter().map(|stride| 2 * stride).collect();
        for _ in 0..8 {
            let words: Vec<i32> = (0..65).map(|_| rng.random_range(-3000..6000)).collect();
            let offsets = tensor(client, &words, &[65], &[1]);
            let output = tensor_of(client, ElementType::F32, &vec![POISON; 8 * len], shape, &gaps);
            let norm = LayerNorm { eps: EPS }.of(&x, 0).operand(&x, ..);
            let norm = norm.operand_of_segments(&bias, ..).segments(&offsets);
            norm.run_into(client, output.clone().binding()).unwrap();
            let bytes = client.read_one(output.handle.clone()).expect("the device answers");
            let mut gaps = bytes[..8 * len].chunks(4).skip(1).step_by(2);
            assert!(gaps.all(|gap| gap == [POISON; 4]));
            let mut written = bytes[..8 * len].chunks(4).step_by(2);
            assert!(written.all(|element| element != [POISON; 4]));
        }
    }
}

/// What is returned beside the output, what is refused, and what is recorded and stored.
pub(crate) fn contract(client: &Client) {
    // Results of the segments come with the output, and serve as operands.
    let x = tensor(client, &[1.0f32, 2.0, 3.0, 4.0, 5.0], &[5], &[1]);
    let offsets = tensor(client, &[1u32, 3, 3, 4], &[4], &[1]);
    let shares = Softmax.of(&x, 0).segments(&offsets);
    let (shares, (most, sums)) = shares.run_with_results(client).unwrap();
    assert_eq!(most.shape()[..], [3]);
    assert_eq!(read::<f32>(client, &most, 3)[0], 3.0);
    assert!((read::<f32>(client, &sums, 3)[2] - 1.0).abs() < 1e-6);
    let found = read::<f32>(client, &shares, 5);
    assert!(found[0] == 0.0 && found[4] == 0.0, "{found:?}");
    assert!((found[1] - 0.268_941_43).abs() < 1e-6 && found[3] == 1.0, "{found:?}");
    let slope = tensor(client, &[0.0f32, 1.0, 0.0, 5.0, 7.0], &[5], &[1]);
    let gradient = SoftmaxGradient.of(&slope, &shares, 0).segments(&offsets).run(client).unwrap();
    let gradient = read::<f32>(client, &gradient, 5);
    let expected = 0.268_941_43 * 0.731_058_6;
    assert!((gradient[1] - expected).abs() < 1e-6, "{gradient:?}");
    assert!((gradient[2] + expected).abs() < 1e-6, "{gradient:?}");
    assert!(gradient[0] == 0.0 && gradient[3].abs() < 1e-6 && gradient[4] == 0.0, "{gradient:?}");
    // Without segments, all elements are outside.
    let none = tensor(client, &[2u32], &[1], &[1]);
    let zeros = Softmax.of(&x, 0).segments(&none).run(client).unwrap();
    assert_eq!(read::<f32>(client, &zeros, 5), [0.0; 5]);
    let nothing = tensor::<f32>(client, &[], &[0], &[1]);
    let (shares, _) = Softmax.of(&nothing, 0).segments(&offsets).run_with_results(client).unwrap();
    assert_eq!(shares.shape()[..], [0]);

    let x = TensorDescription::row_major(ElementType::F32, [100, 8]);
    let offsets = TensorDescription::row_major(ElementType::I32, [11]);
    let softmax = || Softmax.of(&x, 0).segments(&offsets);
    softmax().check_with_results(client).unwrap();
    let plan = softmax().plan(client).unwrap().plan;
    assert_eq!((plan.kind(), plan.launches()), (AppliedKind::Separately, 3));
    assert_eq!(plan.applying().0.access.direction, Direction::Across);
    let line = softmax().record().unwrap().to_json();
    let told = RecordedCall::parse(&line).unwrap().to_string();
    assert_eq!(
        told,
        "exponential_share after 10 segments by i32 of softmax_sums f32 [100, 8] axis 0"
    );
    let device = capable_device(client);
    let problems = softmax().problems().unwrap();
    let mut plans = PlanStore::new(&device);
    let mut stored = plan;
    if let AppliedPlan::Segments { apply, .. } = &mut stored {
        apply.cubes_per_output += 1;
    }
    plans.insert(&problems, &device, TunedPlan::new(stored, 5, 9)).unwrap();
    assert_eq!(plans.plan_for(&problems, &device), Some(stored));
    let RecordedCall::Application(recorded) = RecordedCall::parse(&line).unwrap() else {
        panic!("{line}")
    };
    assert_eq!(recorded.segments, Some((10, ElementType::I32)));

    let unfit = |error: ReduceError| match source::<PlanError>(&error) {
        Some(PlanError::Unfit { reason, .. }) => *reason,
        _ => panic!("{error}"),
    };
    let whole = Softmax.of(&x, 0).plan(client).unwrap().plan;
    let refused = softmax().with_plan(whole).check(client).unwrap_err();
    assert_eq!(unfit(refused), Illegal::AppliedSegments);
    let refused = Softmax.of(&x, 0).with_plan(plan).check(client).unwrap_err();
    assert_eq!(unfit(refused), Illegal::AppliedSegments);
    let (applied, reduction) = &problems;
    assert!(force_applied(AppliedKind::Held, applied, reduction, &device).is_err());
    let refused = softmax().numerics(Numerics::BatchInvariant).check(client).unwrap_err();
    assert!(matches!(source(&refused), Some(PlanError::SegmentNumerics { .. })), "{refused}");
    let several = Softmax.of(&x, ..).segments(&offsets).check(client).unwrap_err();
    assert_eq!(several.kind(), ErrorKind::Shape);
    let bias = TensorDescription::row_major(ElementType::F32, [9, 8]);
    let norm = || LayerNorm { eps: EPS }.of(&x, 0).operand(&x, ..).operand_of_segments(&bias, ..);
    let wrong = norm().segments(&offsets).check(client).unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Shape, "{wrong}");
    let without = norm().check(client).unwrap_err();
    assert_eq!(without.to_string(), "operand 1 has segments, and the reduction has none");
    let matrix = Softmax.of(&x, 0).segments(&x).check(client).unwrap_err();
    assert_eq!(matrix.kind(), ErrorKind::Shape);
    let floats = TensorDescription::row_major(ElementType::F32, [11]);
    assert_eq!(
        reduce(Sum, &x).over(0).segments(&floats).check(client).unwrap_err().to_string(),
        Softmax.of(&x, 0).segments(&floats).check(client).unwrap_err().to_string()
    );
}
