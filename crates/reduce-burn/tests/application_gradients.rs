//! Gradients of softmax and of normalisations against finite differences in f64, on burn-flex.

use burn_tensor::{DType, Device, Tensor, TensorData};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_burn::{
    pairs::{add_layer_norm, add_rms_norm, masked_log_softmax, masked_softmax},
    *,
};

/// The shape in memory, and that of the tensors, whose axes are in another order.
const STORED: [usize; 3] = [5, 3, 4];
const SHAPE: [usize; 3] = [3, 4, 5];

/// A device whose tensors gradients can be asked for.
fn tracking() -> Device {
    Device::flex().autodiff()
}

/// A function of an input, a weight and a bias. Some ignore the last ones.
type Function = fn(Tensor<3>, &[i64], Tensor<3>, Tensor<3>) -> Tensor<3>;

/// Every function by name.
fn functions() -> [(&'static str, Function); 7] {
    [
        ("softmax", |x, axes, _, _| softmax(x, axes)),
        ("log_softmax", |x, axes, _, _| log_softmax(x, axes)),
        ("layer_norm", |x, axes, _, _| layer_norm(x, axes, None, None, 0.1)),
        ("layer_norm with weight", |x, axes, weight, _| {
            layer_norm(x, axes, Some(weight), None, 0.1)
        }),
        ("layer_norm with both", |x, axes, weight, bias| {
            layer_norm(x, axes, Some(weight), Some(bias), 0.1)
        }),
        ("rms_norm", |x, axes, _, _| rms_norm(x, axes, None, 0.1)),
        ("rms_norm with weight", |x, axes, weight, _| rms_norm(x, axes, Some(weight), 0.1)),
    ]
}

fn tensor(elements: &[f64], shape: [usize; 3]) -> Tensor<3> {
    let data = TensorData::new(elements.to_vec(), shape);
    Tensor::from_data(data, (&tracking(), DType::F64))
}

fn random(random: &mut StdRng, shape: [usize; 3]) -> Vec<f64> {
    (0..shape.iter().product()).map(|_| random.random_range(-2.0..2.0)).collect()
}

/// The sum of the elements of a result, each with a weight of its own.
fn weighted(result: Tensor<3>) -> Tensor<1> {
    let count = result.shape().num_elements();
    let weights: Vec<f64> = (0..count).map(|n| 0.3 + (n % 7) as f64 * 0.2).collect();
    let weights = TensorData::new(weights, result.dims());
    (result * Tensor::from_data(weights, (&Device::flex(), DType::F64))).sum()
}

fn elements<const D: usize>(x: Tensor<D>) -> Vec<f64> {
    x.into_data().iter::<f64>().collect()
}

/// An input: its elements and its shape.
type Leaf = (Vec<f64>, [usize; 3]);

/// Compares the gradients of a value with finite differences. Inputs that the value is not made of
/// have none.
fn assert_gradients<const N: usize>(
    case: &str,
    inputs: [Leaf; N],
    is_used: [bool; N],
    value: impl Fn([Tensor<3>; N]) -> Tensor<1>,
) {
    const STEP: f64 = 1e-5;

    let leaves = || inputs.each_ref().map(|(elements, shape)| tensor(elements, *shape));
    let tracked = leaves().map(Tensor::require_grad);
    let gradients = value(tracked.clone()).backward();
    for (nth, leaf) in tracked.into_iter().enumerate() {
        let found = leaf.grad(&gradients);
        assert_eq!(found.is_some(), is_used[nth], "input {nth} of {case}");
        let Some(found) = found else { continue };
        assert_eq!(found.dims(), inputs[nth].1, "input {nth} of {case}");
        for (place, found) in elements(found).into_iter().enumerate() {
            let value_at = |step: f64| {
                let mut changed = leaves();
                let mut own = inputs[nth].0.clone();
                own[place] += step;
                changed[nth] = tensor(&own, inputs[nth].1);
                elements(value(changed))[0]
            };
            let expected = (value_at(STEP) - value_at(-STEP)) / (2.0 * STEP);
            assert!(
                (found - expected).abs() <= 1e-6 * expected.abs().max(1.0),
                "{case}, element {place} of input {nth}: {found}, not {expected}"
            );
        }
    }
}

/// Lists of axes.
const AXES: [&[i64]; 5] = [&[2], &[-3, 2], &[0, 1, 2], &[1], &[]];

#[test]
fn gradients_are_those_of_finite_differences() {
    let mut source = StdRng::seed_from_u64(1);
    let operand_shapes = [[1, 1, 5], [1, 4, 1], SHAPE, [1, 1, 1]];
    for (name, function) in functions() {
        for (axes, shape) in
            AXES.into_iter().flat_map(|axes| operand_shapes.map(|shape| (axes, shape)))
        {
            let inputs = [STORED, shape, shape].map(|shape| (random(&mut source, shape), shape));
            let is_used = [true, name.contains("with"), name.ends_with("both")];
            let case = format!("{name} over {axes:?}, operands of {shape:?}");
            assert_gradients(&case, inputs, is_used, |[x, weight, bias]| {
                weighted(function(x.permute([1, 2, 0]), axes, weight, bias))
            });
        }
    }
}

/// The gradients of the scores and of their mask.
#[test]
fn gradients_of_masked_softmax_are_those_of_finite_differences() {
    type Function = fn(Tensor<3>, AxisList, f64, Tensor<3>) -> Tensor<3>;

    let functions: [(&str, Function); 2] =
        [("softmax", masked_softmax), ("log_softmax", masked_log_softmax)];
    let mut source = StdRng::seed_from_u64(9);
    for (name, function) in functions {
        for (axes, shape) in
            AXES.into_iter().flat_map(|axes| [SHAPE, [1, 4, 1]].map(|shape| (axes, shape)))
        {
            for scale in [0.4, -2.0] {
                let inputs = [STORED, shape].map(|shape| (random(&mut source, shape), shape));
                let case = format!("{name} of {scale}, over {axes:?}, mask of {shape:?}");
                assert_gradients(&case, inputs, [true; 2], |[x, mask]| {
                    weighted(function(x.permute([1, 2, 0]), axes.into(), scale, mask))
                });
            }
        }
    }
}

/// What a mask hides has no gradient, and either of the two tensors may be tracked alone. Gradients
/// of narrow types are those of f64, rounded once.
#[test]
fn gradients_of_hidden_elements_and_of_narrow_types() {
    let row = TensorData::from([[1.0f64, -2.0, 0.5, 3.0]]);
    let hidden = TensorData::from([[0.5f64, f64::NEG_INFINITY, 0.0, -0.25]]);
    let gradients = |dtype, is_tracked: [bool; 2], function: fn(_, _, _, _) -> Tensor<2>| {
        let mut tracked = is_tracked.into_iter();
        let leaves = [&row, &hidden].map(|data| {
            let data = data.clone().convert_dtype(dtype);
            let leaf = Tensor::<2>::from_data(data, (&tracking(), dtype));
            leaf.set_require_grad(tracked.next() == Some(true))
        });
        let [x, mask] = leaves.clone();
        let first = function(x, 1i64, 0.5, mask).slice([0..1, 0..1]);
        let gradients = first.backward();
        leaves.map(|leaf| leaf.grad(&gradients).map(elements))
    };
    for function in [masked_softmax::<2> as fn(_, _, _, _) -> _, masked_log_softmax] {
        let [of_x, of_mask] = gradients(DType::F64, [true; 2], function);
        assert_eq!(gradients(DType::F64, [true, false], function), [of_x.clone(), None]);
        assert_eq!(gradients(DType::F64, [false, true], function), [None, of_mask.clone()]);
        let (of_x, of_mask) = (of_x.unwrap(), of_mask.unwrap());
        assert_eq!([of_x[1], of_mask[1]], [0.0; 2]);
        for (dtype, relative) in [(DType::F16, 2e-3), (DType::BF16, 1.6e-2)] {
            let found = gradients(dtype, [true; 2], function);
            for (found, expected) in found.into_iter().zip([&of_x, &of_mask]) {
                for (found, expected) in found.unwrap().into_iter().zip(expected) {
                    let close = (found - expected).abs() <= relative * expected.abs();
                    assert!(close, "{dtype:?}: {found}, not {expected}");
                }
            }
        }
    }
}

/// The gradients of the sum, of the sum normalised, and of both together.
#[test]
fn gradients_of_sums_are_those_of_finite_differences() {
    /// A function of an input, a residual, a weight and a bias.
    type Function = fn([Tensor<3>; 4], &[i64]) -> (Tensor<3>, Tensor<3>);

    let functions: [(&str, [bool; 2], Function); 3] = [
        ("add_layer_norm", [true; 2], |[x, residual, weight, bias], axes| {
            add_layer_norm(x, residual, axes, Some(weight), Some(bias), 0.1)
        }),
        ("add_rms_norm", [false; 2], |[x, residual, _, _], axes| {
            add_rms_norm(x, residual, axes, None, 0.1)
        }),
        ("add_rms_norm with weight", [true, false], |[x, residual, weight, _], axes| {
            add_rms_norm(x, residual, axes, Some(weight), 0.1)
        }),
    ];
    let mut source = StdRng::seed_from_u64(7);
    let shares = [(1.0, 0.0), (0.0, 1.0), (0.7, -1.3)];
    for (name, [weight, bias], function) in functions {
        for (axes, (of_sum, of_norm)) in
            AXES.into_iter().flat_map(|axes| shares.map(|shares| (axes, shares)))
        {
            for shape in [SHAPE, [1, 4, 1]] {
                let shapes = [STORED, shape, [1, 1, 5], [1, 4, 1]];
                let inputs = shapes.map(|shape| (random(&mut source, shape), shape));
                let case = format!(
                    "{of_sum} of the sum and {of_norm} of {name} over {axes:?}, residual of \
                     {shape:?}"
                );
                // A result with a factor of 0 has a gradient too, of zeros.
                assert_gradients(&case, inputs, [true, true, weight, bias], |[x, r, w, b]| {
                    let (sum, normalized) = function([x.permute([1, 2, 0]), r, w, b], axes);
                    weighted(sum) * of_sum + weighted(normalized) * of_norm
                });
            }
        }
    }
}

/// Only what a used result is made of has a gradient: a weight has no part in the sum.
#[test]
fn results_of_a_sum_are_used_alone() {
    let mut source = StdRng::seed_from_u64(8);
    let [x, residual, weight] = [SHAPE, SHAPE, [1, 1, 5]].map(|shape| {
        let elements = random(&mut source, shape);
        tensor(&elements, shape).require_grad()
    });
    let run = || {
        let (x, residual) = (x.clone(), residual.clone());
        add_rms_norm(x, residual, -1, Some(weight.clone()), 1e-5)
    };
    let of_sum = weighted(run().0).backward();
    let factors: Vec<f64> = (0..60).map(|n| 0.3 + (n % 7) as f64 * 0.2).collect();
    assert_eq!(elements(x.grad(&of_sum).unwrap()), factors);
    assert_eq!(elements(residual.grad(&of_sum).unwrap()), factors);
    assert!(weight.grad(&of_sum).is_none());
    let of_norm = weighted(run().1).backward();
    let plain = rms_norm(x.clone() + residual.clone(), -1, Some(weight.clone()), 1e-5);
    let expected = weighted(plain).backward();
    for (nth, leaf) in [&x, &residual].into_iter().enumerate() {
        let [found, expected] = [&of_norm, &expected].map(|all| elements(leaf.grad(all).unwrap()));
        assert_eq!(found, expected, "input {nth}");
    }
    let [found, expected] = [&of_norm, &expected].map(|all| elements(weight.grad(all).unwrap()));
    assert_eq!(found, expected, "weight");
}

/// Gradients have the type of their tensor, and are added where one tensor is used twice.
#[test]
fn residuals_of_another_type_and_of_the_same_tensor() {
    let device = tracking();
    let row = TensorData::from([[1.0f64, -2.0, 0.5, 3.0]]);
    let leaf = |dtype| {
        Tensor::<2>::from_data(row.clone().convert_dtype(dtype), (&device, dtype)).require_grad()
    };
    for [own, other] in [[DType::F32, DType::F64], [DType::F16, DType::F64]] {
        let (x, residual) = (leaf(own), leaf(other));
        let weight = leaf(DType::F32);
        let weighted = Some(weight.clone());
        let (sum, normalized) = add_layer_norm(x.clone(), residual.clone(), 1, weighted, None, 0.0);
        let gradients = (sum + normalized).sum().backward();
        let found = [x, residual, weight].map(|leaf| leaf.grad(&gradients).unwrap());
        assert_eq!(found.each_ref().map(Tensor::dtype), [own, other, DType::F32]);
        let [of_x, of_residual, _] = found.map(elements);
        let pairs = of_x.into_iter().zip(of_residual);
        assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() < 2e-3));
    }
    let x = leaf(DType::F64);
    let (sum, _) = add_rms_norm(x.clone(), x.clone(), 1, None, 0.0);
    assert_eq!(elements(x.grad(&sum.sum().backward()).unwrap()), [2.0; 4]);
}

/// Only tensors that are tracked have gradients, and these do not depend on the others.
#[test]
fn any_of_the_tensors_may_be_tracked() {
    let mut source = StdRng::seed_from_u64(2);
    let shape = [1, 1, 5];
    let leaves = [SHAPE, shape, shape].map(|shape| (random(&mut source, shape), shape));
    let gradients = |is_tracked: [bool; 3]| -> [Option<Vec<f64>>; 3] {
        let leaves = leaves.each_ref().map(|(elements, shape)| tensor(elements, *shape));
        let mut tracked = is_tracked.into_iter();
        let leaves = leaves.map(|leaf| leaf.set_require_grad(tracked.next() == Some(true)));
        let [x, weight, bias] = leaves.clone();
        let result = layer_norm(x, -1, Some(weight), Some(bias), 1e-5);
        let gradients = weighted(result).backward();
        leaves.map(|leaf| leaf.grad(&gradients).map(elements))
    };
    for (nth, expected) in gradients([true; 3]).into_iter().enumerate() {
        let mut alone = gradients(core::array::from_fn(|other| other == nth));
        assert_eq!(alone[nth].take(), expected, "gradient {nth}");
        assert_eq!(alone, [None, None, None], "gradients beside {nth}");
    }
}

/// Weight and bias may be repeated along different axes, or not at all.
#[test]
fn weight_and_bias_of_two_shapes() {
    let mut source = StdRng::seed_from_u64(5);
    let [x, weight, bias] = [SHAPE; 3].map(|shape| random(&mut source, shape));
    let gradients = |shapes: [[usize; 3]; 2]| -> [Vec<f64>; 2] {
        let operands = [(&weight, shapes[0]), (&bias, shapes[1])].map(|(elements, shape)| {
            let count = shape.iter().product();
            tensor(&elements[..count], shape).require_grad()
        });
        let [weight, bias] = operands.clone();
        let result = layer_norm(tensor(&x, SHAPE), 1, Some(weight), Some(bias), 1e-5);
        let gradients = weighted(result).backward();
        operands.map(|operand| elements(operand.grad(&gradients).expect("both are tracked")))
    };
    let column = [1, 4, 1];
    let [of_weight, of_bias] = gradients([column; 2]);
    let close = |found: &[f64], expected: &[f64]| {
        assert_eq!(found.len(), expected.len());
        let pairs = found.iter().zip(expected);
        assert!(pairs.clone().all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}, not {expected:?}");
    };
    close(&gradients([column, [1; 3]])[0], &of_weight);
    close(&gradients([column, [1; 3]])[1], &[of_bias.iter().sum()]);
    close(&gradients([column, SHAPE])[0], &of_weight);
    close(&gradients([SHAPE, column])[1], &of_bias);
    let each = gradients([SHAPE, column]);
    // Rows of five elements belong to the four elements of the weight in turn.
    let of_column = |n: usize| each[0].chunks(5).skip(n).step_by(4).flatten().sum();
    let sums: Vec<f64> = (0..4).map(of_column).collect();
    close(&sums, &of_weight);
}

/// Gradients of f16 are computed in f32 and rounded once. Those of operands have the operands'
/// type.
#[test]
fn gradients_of_narrow_types() {
    let device = tracking();
    let row: Vec<f64> = (0..1000).map(|n| f64::from(n % 10) * 0.25).collect();
    let data = TensorData::new(row, [1, 1000]).convert_dtype(DType::F16);
    let x = Tensor::<2>::from_data(data, (&device, DType::F16)).require_grad();
    let weight = Tensor::<2>::ones([1, 1000], (&device, DType::F32)).require_grad();
    let result = layer_norm(x.clone(), 1, Some(weight.clone()), None, 0.0);
    // A sum of 1000 squares of 60 is more than f16 holds, their mean is not.
    let gradients = (result.clone() * result * 60.0).sum().backward();
    let of_x = x.grad(&gradients).expect("the tensor is tracked");
    let of_weight = weight.grad(&gradients).expect("the weight is tracked");
    assert_eq!(of_x.dtype(), DType::F16);
    assert_eq!(of_weight.dtype(), DType::F32);
    assert!(elements(of_x).iter().all(|found| found.abs() < 0.5));
    // The gradient 120 y of the result y, times y.
    let found = elements(of_weight);
    assert!((found[0] - 120.0 * 1.5667f64.powi(2)).abs() < 1.0, "{}", found[0]);
}

/// The gradient of a log-softmax takes shares of exponentials that no rounded logarithm has
/// changed: those of f16 and bf16 are those of f64, rounded once.
#[test]
fn shares_of_narrow_types() {
    fn gradient(row: &TensorData, dtype: DType) -> Vec<f64> {
        let data = row.clone().convert_dtype(dtype);
        let x = Tensor::<2>::from_data(data, (&tracking(), dtype)).require_grad();
        // The gradient is 1 at the first element, and minus the share at the others.
        let first = log_softmax(x.clone(), 1).slice([0..1, 0..1]);
        let found = x.grad(&first.backward()).expect("the tensor is tracked");
        assert_eq!(found.dtype(), dtype);
        elements(found)
    }

    for (dtype, epsilon) in [(DType::F16, 2f64.powi(-11)), (DType::BF16, 2f64.powi(-8))] {
        for near in [0.0, 100.0, 1000.0] {
            let row = (0..61).map(|n| near + f64::from(n % 3) * 4.0).collect::<Vec<_>>();
            let row = TensorData::new(row, [1, 61]).convert_dtype(dtype);
            let pairs = gradient(&row, dtype).into_iter().zip(gradient(&row, DType::F64));
            for (nth, (found, expected)) in pairs.enumerate() {
                assert!(
                    (found - expected).abs() <= 2.0 * epsilon * expected.abs() + 1e-7,
                    "element {nth} near {near} of {dtype:?}: {found}, not {expected}"
                );
            }
        }
    }
}

/// A tensor without elements gives gradients of zeros to operands that have some.
#[test]
fn gradients_of_nothing() {
    let device = tracking();
    let x = Tensor::<2>::empty([0, 3], &device).require_grad();
    let weight = Tensor::<2>::ones([1, 3], &device).require_grad();
    let result = rms_norm(x.clone(), 1, Some(weight.clone()), 1e-5);
    let gradients = result.sum().backward();
    assert_eq!(x.grad(&gradients).expect("the tensor is tracked").dims(), [0, 3]);
    let of_weight = weight.grad(&gradients).expect("the weight is tracked");
    assert_eq!(elements(of_weight), [0.0; 3]);
}

/// Gradients flow through operations that are computed again in the backward pass.
#[test]
fn checkpointing_changes_no_gradient() {
    fn gradients(device: Device) -> Vec<Vec<f64>> {
        let of = |(_, function): (&'static str, Function)| {
            let x = random(&mut StdRng::seed_from_u64(3), SHAPE);
            let data = TensorData::new(x, SHAPE);
            let x = Tensor::<3>::from_data(data, (&device, DType::F64)).require_grad();
            let result = function(x.clone().exp(), &[1], x.clone(), x.clone().sin());
            let gradients = weighted(result).backward();
            let found = x.grad(&gradients).expect("the tensor is tracked").into_data();
            found.iter::<f64>().collect()
        };
        functions().into_iter().map(of).collect()
    }
    assert_eq!(gradients(tracking()), gradients(tracking().gradient_checkpointing()));
}
