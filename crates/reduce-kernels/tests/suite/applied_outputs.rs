//! Functions with several outputs, each in a tensor of its own.

use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    Device, ElementType, ErrorKind, Mean, ReduceError,
    cubecl::{self, prelude::*, std::tensor::TensorHandle},
    normalize::{AddLayerNorm, AddRmsNorm, AppliedReduction},
    operator::{Apply, One, Operands, Operator, Parameters, Real, Reduced, Three, Triple},
    planner::{AppliedKind, AppliedPlan, force_applied, row_major_strides, span},
    reduce,
};

use crate::{
    applied::{cases, error_bound, has_no_plan, in_shared_memory, slices},
    case::Case,
    run::{POISON, capable_device, decode, encode, tensor_of},
};

/// The difference from the mean, the element times an operand, and the element's square.
#[derive(Clone, Copy)]
struct Trio;

#[cube]
impl Apply for Trio {
    type Results = One;
    type Outputs = Three;

    const NAME: &'static str = "trio";
    const OPERANDS: usize = 1;

    fn apply<N: Size>(
        value: Vector<Real, N>,
        mean: Reduced<One, N>,
        operands: &Operands<N>,
        _parameters: &Parameters,
    ) -> Reduced<Three, N> {
        Triple::new(value - mean.value, value * operands.first(), value * value)
    }
}

/// The strides of an output of a shape.
type Layout = fn(&[usize]) -> Vec<usize>;

/// Row-major, with gaps, and with the axes in the reverse order.
const LAYOUTS: [Layout; 3] = [
    row_major_strides,
    |shape| row_major_strides(shape).iter().map(|stride| 2 * stride).collect(),
    |shape| {
        let reversed: Vec<usize> = shape.iter().rev().copied().collect();
        row_major_strides(&reversed).into_iter().rev().collect()
    },
];

fn poisoned(
    client: &Client,
    element: ElementType,
    shape: &[usize],
    strides: &[usize],
) -> TensorHandle {
    let held = (span(shape, strides).unwrap() + 1).max(2);
    tensor_of(client, element, &vec![POISON; held * element.bytes()], shape, strides)
}

/// Checks an output, and that nothing else was written: `expected` has a value and its error in
/// units of the accumulator's epsilon for each slice and element.
fn check_output(
    client: &Client,
    output: &TensorHandle,
    element: ElementType,
    case: &Case,
    expected: &[Vec<(f64, f64)>],
    what: &str,
) {
    let strides = output.strides();
    let held = (span(&case.shape, strides).unwrap() + 1).max(2);
    let bytes = client.read_one(output.handle.clone()).expect("the device answers");
    let found = decode(element, &bytes[..held * element.bytes()]);
    let mut written = vec![false; held];
    for (slice, expected) in slices(case, strides).iter().zip(expected) {
        for (&(_, at), &(expected, units)) in slice.iter().zip(expected) {
            written[at] = true;
            let bound = error_bound(element, units, expected);
            let error = (found[at] - expected).abs();
            assert!(error <= bound, "{what}: {} in place of {expected} at {at}", found[at]);
        }
    }
    for (at, bytes) in bytes[..held * element.bytes()].chunks(element.bytes()).enumerate() {
        let untouched = bytes.iter().all(|&byte| byte == POISON);
        assert!(written[at] || untouched, "{what}: written at {at}");
    }
}

/// By which plan outputs are made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Chosen,
    Kind(AppliedKind),
    Planned(AppliedPlan),
}

impl Way {
    /// The plan that is chosen, and one of each kind.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        AppliedKind::ALL.into_iter().map(Way::Kind).chain([Way::Chosen])
    }

    /// The application by this plan.
    pub(crate) fn of<'a, O: Operator, F: Apply<Results = O::Results>>(
        self,
        device: &'a Device,
        applied: AppliedReduction<'a, O, F, TensorHandle>,
    ) -> Result<AppliedReduction<'a, O, F, TensorHandle>, ReduceError> {
        let (problem, reduction) = applied.problems()?;
        let applied = applied.plan_for(device);
        Ok(match self {
            Way::Chosen => applied,
            Way::Kind(kind) => {
                applied.with_plan(force_applied(kind, &problem, &reduction, device)?)
            }
            Way::Planned(plan) => applied.with_plan(plan),
        })
    }
}

/// Three outputs of two types, in layouts of their own, by every plan.
pub(crate) fn every_plan(client: &Client) {
    let device = capable_device(client);
    let narrow = if device.has(ElementType::F16) { ElementType::F16 } else { ElementType::F32 };
    let types = [ElementType::F32, narrow, ElementType::F32];
    let mut runs = 0;
    for (turn, case) in cases().into_iter().enumerate() {
        let mut rng = StdRng::seed_from_u64(turn as u64);
        let mut draw = |len| -> Vec<f64> {
            let values: Vec<f64> = (0..len).map(|_| rng.random_range(-3.0..5.0)).collect();
            decode(ElementType::F32, &encode(ElementType::F32, &values))
        };
        let (data, factors) = (draw(case.span()), draw(case.shape.iter().product()));
        let bytes = |values: &[f64]| encode(ElementType::F32, values);
        let x = tensor_of(client, ElementType::F32, &bytes(&data), &case.shape, &case.strides);
        let dense = row_major_strides(&case.shape);
        let factor = tensor_of(client, ElementType::F32, &bytes(&factors), &case.shape, &dense);
        let mut expected = [const { Vec::new() }; 3];
        for slice in slices(&case, &dense) {
            let n = slice.len() as f64;
            let mean = slice.iter().map(|&(at, _)| data[at]).sum::<f64>() / n;
            let each = |make: &dyn Fn(usize, usize) -> (f64, f64)| -> Vec<(f64, f64)> {
                slice.iter().map(|&(at, number)| make(at, number)).collect()
            };
            expected[0].push(each(&|at, _| (data[at] - mean, 64.0)));
            expected[1].push(each(&|at, number| (data[at] * factors[number], 32.0)));
            expected[2].push(each(&|at, _| (data[at] * data[at], 32.0)));
        }
        for way in Way::all() {
            let outputs: [TensorHandle; 3] = core::array::from_fn(|nth| {
                let strides = LAYOUTS[(nth + turn) % 3](&case.shape);
                poisoned(client, types[nth], &case.shape, &strides)
            });
            let applied = reduce(Mean, &x).over(&case.axes[..]).apply(Trio).operand(&factor, ..);
            let [first, second, third] = types.map(Some);
            let applied = applied.output_types((first, second, third));
            let run = way.of(&device, applied).and_then(|applied| {
                let [a, b, c] = outputs.clone().map(TensorHandle::binding);
                applied.run_into(client, (a, b, c))
            });
            match run {
                Ok(()) => runs += 1,
                Err(error) if has_no_plan(&error) => continue,
                Err(other) => panic!("{case:?} {way:?}: {other}"),
            }
            for nth in 0..3 {
                let what = format!("output {nth} of {case:?} by {way:?}");
                check_output(client, &outputs[nth], types[nth], &case, &expected[nth], &what);
            }
        }
    }
    assert!(runs >= 60, "{runs} runs");
}

/// The sums of random tensors and their normalisations, with weights and biases.
fn check_sums_and_norms(
    client: &Client,
    device: &Device,
    element: ElementType,
    case: &Case,
    ways: impl Iterator<Item = Way>,
) {
    const EPS: f64 = 1e-3;

    let mut rng = StdRng::seed_from_u64(7);
    let mut draw = |len| -> Vec<f64> {
        let values: Vec<f64> = (0..len).map(|_| rng.random_range(-2.0..3.0)).collect();
        decode(element, &encode(element, &values))
    };
    let len = case.reduction_len();
    let (x, residual) = (draw(case.span()), draw(case.span()));
    let (weight, bias) = (draw(len), draw(len));
    let of = |values: &[f64], shape: &[usize]| {
        tensor_of(client, element, &encode(element, values), shape, &row_major_strides(shape))
    };
    let tensors = [of(&x, &case.shape), of(&residual, &case.shape)];
    let operands = [of(&weight, &[len]), of(&bias, &[len])];
    let expected = |of_norm: bool, centred: bool| -> Vec<Vec<(f64, f64)>> {
        let slices = slices(case, &case.strides);
        let each = slices.iter().map(|slice| {
            let sums: Vec<f64> = slice.iter().map(|&(at, _)| x[at] + residual[at]).collect();
            let n = sums.len() as f64;
            let mean = if centred { sums.iter().sum::<f64>() / n } else { 0.0 };
            let squares: f64 = sums.iter().map(|sum| (sum - mean).powi(2)).sum();
            let factor = (squares / n + EPS).sqrt().recip();
            let output = |(sum, (weight, bias)): (&f64, (&f64, &f64))| match of_norm {
                false => (*sum, 4.0),
                true => ((sum - mean) * factor * weight + bias, 256.0),
            };
            sums.iter().zip(weight.iter().zip(&bias)).map(output).collect()
        });
        each.collect()
    };
    let [x, residual] = &tensors;
    let [weight, bias] = &operands;
    let rms = || {
        let norm = AddRmsNorm { eps: EPS }.of(x, residual, 1);
        norm.operand(weight, 1).operand(bias, 1)
    };
    let layer = || {
        let norm = AddLayerNorm { eps: EPS }.of(x, residual, 1);
        norm.operand(weight, 1).operand(bias, 1)
    };
    let mut runs = 0;
    for way in ways {
        let run = || {
            let rms = way.of(device, rms())?.run(client)?;
            Ok((rms, way.of(device, layer())?.run(client)?))
        };
        let (rms, layer) = match run() {
            Ok(outputs) => outputs,
            Err(error) if has_no_plan(&error) => continue,
            Err(other) => panic!("{element} {case:?} {way:?}: {other}"),
        };
        runs += 1;
        for ((sum, normed), centred) in [(rms, false), (layer, true)] {
            let what = format!("{element} {case:?} {way:?}, centred {centred}");
            let (sums, norms) = (expected(false, centred), expected(true, centred));
            check_output_of_new(client, &sum, element, case, &sums, &what);
            check_output_of_new(client, &normed, element, case, &norms, &what);
        }
    }
    assert!(runs > 0, "{element} {case:?}");
}

/// Of every type that the device has, by every plan, and in shared memory.
pub(crate) fn sums_and_norms(client: &Client) {
    let device = capable_device(client);
    let types = [ElementType::F32, ElementType::F16, ElementType::BF16, ElementType::F64];
    for element in types.into_iter().filter(|&element| device.has(element)) {
        for case in [Case::contiguous(&[5, 1001], &[1]), Case::contiguous(&[3, 70, 24], &[1])] {
            check_sums_and_norms(client, &device, element, &case, Way::all());
        }
    }
    for (case, plan) in in_shared_memory().into_iter().filter(|(case, _)| case.axes == [1]) {
        let ways = [Way::Planned(plan)].into_iter();
        check_sums_and_norms(client, &device, ElementType::F32, &case, ways);
    }
}

/// [`check_output`] of a tensor that has no room behind its last element.
fn check_output_of_new(
    client: &Client,
    output: &TensorHandle,
    element: ElementType,
    case: &Case,
    expected: &[Vec<(f64, f64)>],
    what: &str,
) {
    let count: usize = case.shape.iter().product();
    let bytes = client.read_one(output.handle.clone()).expect("the device answers");
    let found = decode(element, &bytes[..count * element.bytes()]);
    for (slice, expected) in slices(case, output.strides()).iter().zip(expected) {
        for (&(_, at), &(expected, units)) in slice.iter().zip(expected) {
            let bound = error_bound(element, units, expected);
            let error = (found[at] - expected).abs();
            assert!(error <= bound, "{what}: {} in place of {expected} at {at}", found[at]);
        }
    }
}

/// An output whose elements share places, and one of another shape, are refused before anything is
/// launched.
pub(crate) fn wrong_outputs(client: &Client) {
    let shape = [3, 8];
    let element = ElementType::F32;
    let x = tensor_of(client, element, &encode(element, &[1.0; 24]), &shape, &[8, 1]);
    let add = || AddRmsNorm { eps: 1e-5 }.of(&x, &x, 1);
    let good = || poisoned(client, element, &shape, &[8, 1]);
    for wrong in
        [poisoned(client, element, &shape, &[8, 0]), poisoned(client, element, &[8, 3], &[3, 1])]
    {
        for nth in 0..2 {
            let kept = good();
            let pair = match nth {
                0 => (wrong.clone().binding(), kept.clone().binding()),
                _ => (kept.clone().binding(), wrong.clone().binding()),
            };
            let error = add().run_into(client, pair).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Shape, "{error}");
            let bytes = client.read_one(kept.handle).expect("the device answers");
            assert!(bytes.iter().all(|&byte| byte == POISON));
        }
    }
    let device = capable_device(client);
    for missing in [ElementType::BF16, ElementType::I8, ElementType::F64] {
        if !device.has(missing) {
            let error = add().output_types((None, Some(missing))).run(client).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        }
    }
    let (_sum, _normed): (TensorHandle, TensorHandle) = add().run(client).unwrap();
}
