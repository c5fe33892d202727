//! Cross-entropies and their gradients, against what the host computes in f64.

use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    ElementType, ErrorKind,
    cubecl::prelude::*,
    normalize::{CrossEntropy, LossReduction, cross_entropy},
    planner::row_major_strides,
};

use crate::{
    applied::error_bound,
    run::{POISON, capable_device, decode, encode, read, tensor, tensor_of},
};

/// The class of slices that are ignored, out of range.
const IGNORED: i64 = -100;

/// Logits of shape `[outer, classes, inner]`, with a class for each of `outer * inner` slices.
struct Problem {
    shape: [usize; 3],
    logits: Vec<f64>,
    classes: Vec<i64>,
    weights: Option<Vec<f64>>,
    smoothing: f64,
    reduction: LossReduction,
    upstream: Option<Vec<f64>>,
}

impl Problem {
    fn slices(&self) -> usize {
        self.shape[0] * self.shape[2]
    }

    /// The place of a logit.
    fn at(&self, slice: usize, class: usize) -> usize {
        let [_, classes, inner] = self.shape;
        (slice / inner * classes + class) * inner + slice % inner
    }

    /// The losses as they are reduced, and the gradient by each logit, as PyTorch defines them.
    fn expected(&self) -> (Vec<f64>, Vec<f64>) {
        let count = self.shape[1];
        let weight = |class: usize| self.weights.as_ref().map_or(1.0, |weights| weights[class]);
        let of_slice = |slice: usize| usize::try_from(self.classes[slice]).ok();
        let counted = |slice: &usize| self.classes[*slice] != IGNORED;
        let known = |slice: usize| of_slice(slice).filter(|&class| class < count);
        let weight_of = |slice: usize| known(slice).map_or(f64::NAN, weight);
        let divisor = match self.reduction {
            LossReduction::Mean => (0..self.slices()).filter(counted).map(weight_of).sum(),
            _ => 1.0,
        };
        let mut losses = vec![0.0; self.slices()];
        let mut gradient = vec![0.0; self.logits.len()];
        for slice in (0..self.slices()).filter(counted) {
            let logit = |class: usize| self.logits[self.at(slice, class)];
            let most = (0..count).map(logit).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = (0..count).map(|class| (logit(class) - most).exp()).sum();
            let share = |class: usize| match known(slice) {
                Some(right) => {
                    let own = if class == right { 1.0 - self.smoothing } else { 0.0 };
                    weight(class) * (own + self.smoothing / count as f64)
                }
                None => f64::NAN,
            };
            // A class without a share gives nothing, whatever its logit is.
            let loss = |class: usize| match share(class) {
                0.0 => 0.0,
                share => share * (most + sum.ln() - logit(class)),
            };
            losses[slice] = (0..count).map(loss).sum();
            let all: f64 = (0..count).map(share).sum();
            if all == 0.0 {
                continue;
            }
            let upstream = self.upstream.as_ref().map_or(1.0, |of| of[slice % of.len()]);
            for class in 0..count {
                let probability = (logit(class) - most).exp() / sum;
                let of_class = (all * probability - share(class)) * upstream / divisor;
                gradient[self.at(slice, class)] = of_class;
            }
        }
        match self.reduction {
            LossReduction::Each => (losses, gradient),
            _ => (vec![losses.iter().sum::<f64>() / divisor], gradient),
        }
    }

    /// Compares losses and gradients of logits of a type.
    fn check(&self, client: &Client, element: ElementType, into: Option<[usize; 3]>) {
        let real = if element == ElementType::F64 { element } else { ElementType::F32 };
        let bytes = |values: &[f64]| encode(element, values);
        let strides = row_major_strides(&self.shape);
        let logits = tensor_of(client, element, &bytes(&self.logits), &self.shape, &strides);
        let classes: Vec<i32> = self.classes.iter().map(|&class| class as i32).collect();
        let of_slices = [self.shape[0], self.shape[2]];
        let along = row_major_strides(&of_slices);
        let classes = tensor(client, &classes, &of_slices, &along);
        let weights = self
            .weights
            .as_ref()
            .map(|weights| tensor_of(client, real, &encode(real, weights), &[self.shape[1]], &[1]));
        let upstream = self.upstream.as_ref().map(|upstream| {
            let shape = if upstream.len() == 1 { &[1][..] } else { &of_slices };
            let strides = row_major_strides(shape);
            tensor_of(client, real, &encode(real, upstream), shape, &strides)
        });
        let mut described = CrossEntropy::of(&logits, &classes, 1)
            .ignored(IGNORED)
            .smoothing(self.smoothing)
            .reduced(self.reduction);
        described = weights.iter().fold(described, CrossEntropy::weights);
        described = upstream.iter().fold(described, CrossEntropy::upstream);
        let (alone, gradient, with) = match into {
            None => {
                let alone = described.run(client).unwrap();
                let (with, gradient) = described.run_with_gradient(client).unwrap();
                (alone, gradient, with)
            }
            Some(strides) => {
                let held = self.logits.len() * strides.iter().min().unwrap();
                let poison = vec![POISON; held * element.bytes()];
                let gradient = tensor_of(client, element, &poison, &self.shape, &strides);
                let alone = described.run(client).unwrap();
                let into = gradient.clone().binding();
                (alone, gradient, described.run_with_gradient_into(client, into).unwrap())
            }
        };
        let (losses, gradients) = self.expected();
        let shape = if self.reduction == LossReduction::Each { &of_slices[..] } else { &[] };
        for found in [alone, with] {
            assert_eq!(found.shape()[..], *shape);
            let bytes = client.read_one(found.handle).expect("the device answers");
            let found = decode(real, &bytes[..losses.len() * real.bytes()]);
            for (found, &expected) in found.into_iter().zip(&losses) {
                let scale = 64.0 * (1.0 + self.smoothing * 16.0) * expected.abs().max(1.0);
                let near = (found - expected).abs() <= error_bound(real, scale, expected);
                assert!(same(found, expected) || near, "loss {found} and not {expected} {self}");
            }
        }
        let bytes = client.read_one(gradient.handle.clone()).expect("the device answers");
        let found = decode(element, &bytes[..bytes.len() / element.bytes() * element.bytes()]);
        let strides = gradient.strides();
        for slice in 0..self.slices() {
            for class in 0..self.shape[1] {
                let (row, nth) = (slice / self.shape[2], slice % self.shape[2]);
                let found = found[row * strides[0] + class * strides[1] + nth * strides[2]];
                let expected = gradients[self.at(slice, class)];
                let largest = self.largest_share();
                let near =
                    (found - expected).abs() <= error_bound(element, 32.0 * largest, expected);
                assert!(
                    same(found, expected) || near,
                    "gradient {found} and not {expected} at {slice}, {class}: {element} {self}"
                );
            }
        }
    }

    /// A bound of the terms of gradients.
    fn largest_share(&self) -> f64 {
        let most = |values: &Option<Vec<f64>>| {
            values.iter().flatten().fold(1.0, |most: f64, value| most.max(value.abs()))
        };
        most(&self.weights) * most(&self.upstream)
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { shape, smoothing, reduction, .. } = self;
        write!(f, "{shape:?}, smoothing {smoothing}, {reduction:?}, ")?;
        write!(f, "weights {}, ", self.weights.is_some())?;
        write!(f, "upstream {}", self.upstream.is_some())
    }
}

/// Both NaN, or the same.
fn same(found: f64, expected: f64) -> bool {
    found == expected || found.is_nan() && expected.is_nan()
}

/// A problem of random numbers that a type has.
fn random(shape: [usize; 3], element: ElementType, turn: u64) -> Problem {
    let mut rng = StdRng::seed_from_u64(turn);
    let slices = shape[0] * shape[2];
    let mut draw = |len: usize, from: f64, to: f64| -> Vec<f64> {
        let values: Vec<f64> = (0..len).map(|_| rng.random_range(from..to)).collect();
        decode(element, &encode(element, &values))
    };
    let logits = draw(shape.iter().product(), -4.0, 6.0);
    let weights = draw(shape[1], 0.25, 2.0);
    let upstream = draw(slices, -2.0, 2.0);
    let classes = (0..slices).map(|slice| match slice % 5 {
        3 => IGNORED,
        _ => rng.random_range(0..shape[1] as i64),
    });
    let classes = classes.collect();
    let reduction = [LossReduction::Each, LossReduction::Sum, LossReduction::Mean];
    let reduction = reduction[turn as usize % 3];
    let upstream = match reduction {
        LossReduction::Each => upstream,
        _ => upstream[..1].to_vec(),
    };
    Problem {
        shape,
        logits,
        classes,
        weights: (turn / 3 % 2 == 1).then_some(weights),
        smoothing: [0.0, 0.1][turn as usize / 6 % 2],
        reduction,
        upstream: (turn / 12 % 2 == 1).then_some(upstream),
    }
}

/// Every combination of options, along and across, of every type that the device has.
pub(crate) fn every_option(client: &Client) {
    let device = capable_device(client);
    let types = [ElementType::F32, ElementType::F16, ElementType::BF16, ElementType::F64];
    for element in types.into_iter().filter(|&element| device.has(element)) {
        let turns = if element == ElementType::F32 { 24 } else { 12 };
        for turn in 0..turns {
            let shape = [[9, 1003, 1], [3, 70, 24], [1, 5, 6]][turn as usize % 3];
            // Reductions and shapes meet in all ways.
            let shape = [shape, [2, 301, 5]][turn as usize / 6 % 2];
            random(shape, element, turn).check(client, element, None);
        }
    }
}

/// Gradients in a layout that differs from the logits', and in place of them where that is safe.
pub(crate) fn gradients_into(client: &Client) {
    let shape = [3, 70, 24];
    let element = ElementType::F32;
    for turn in [0, 8, 11] {
        random(shape, element, turn).check(client, element, Some([1, 72, 3]));
    }
    // A slice of its own, without further axes.
    let row = tensor(client, &[0f32; 4], &[4], &[1]);
    let class = tensor(client, &[2i32], &[1], &[1]);
    let loss = CrossEntropy::of(&row, &class, 0).reduced(LossReduction::Mean);
    let (loss, gradient) = loss.run_with_gradient(client).unwrap();
    let expected = 4f32.ln();
    assert!((read::<f32>(client, &loss, 1)[0] - expected).abs() < 1e-6);
    assert_eq!(read::<f32>(client, &gradient, 4), [0.25, 0.25, -0.75, 0.25]);
    if !matches!(client.name(), "cuda" | "hip") {
        println!("{}: not run in place", client.name());
        return;
    }
    for (turn, shape) in [(2, [40, 5003, 1]), (8, [3, 70, 24]), (11, [4, 130_003, 1])] {
        let problem = random(shape, element, turn);
        let bytes = encode(element, &problem.logits);
        let strides = row_major_strides(&shape);
        let logits = tensor_of(client, element, &bytes, &shape, &strides);
        let classes: Vec<i64> = problem.classes.clone();
        let of_slices = [shape[0], shape[2]];
        let classes = tensor(client, &classes, &of_slices, &row_major_strides(&of_slices));
        let described = CrossEntropy::of(&logits, &classes, 1)
            .ignored(IGNORED)
            .smoothing(problem.smoothing)
            .reduced(problem.reduction);
        let (loss, gradient) = described.run_with_gradient(client).unwrap();
        let in_place = described.run_with_gradient_into(client, logits.clone().binding()).unwrap();
        let count = problem.logits.len();
        assert_eq!(read::<f32>(client, &logits, count), read::<f32>(client, &gradient, count));
        let count = if problem.reduction == LossReduction::Each { problem.slices() } else { 1 };
        assert_eq!(read::<f32>(client, &in_place, count), read::<f32>(client, &loss, count));
    }
}

/// Slices with NaN, infinities and unknown classes are NaN, ignored ones are 0, and their
/// neighbours are as they would be without them.
pub(crate) fn extremes(client: &Client) {
    let shape = [8, 37, 1];
    for turn in [0, 3, 6, 9] {
        let mut problem = random(shape, ElementType::F32, turn);
        problem.classes = vec![5, 7, 36, IGNORED, 37, -1, 0, 3];
        for (slice, value) in [(0, f64::NAN), (1, f64::INFINITY), (3, f64::NAN)] {
            let at = problem.at(slice, 11);
            problem.logits[at] = value;
        }
        for class in 0..37 {
            let at = problem.at(6, class);
            problem.logits[at] = f64::NEG_INFINITY;
        }
        let at = problem.at(7, 20);
        problem.logits[at] = f64::NEG_INFINITY;
        if let Some(weights) = problem.weights.as_mut().filter(|_| problem.smoothing == 0.0) {
            // The class of a slice with NaN counts for nothing.
            weights[5] = 0.0;
        }
        problem.check(client, ElementType::F32, None);
    }
    let mut problem = random(shape, ElementType::F32, 2);
    problem.classes.fill(IGNORED);
    problem.check(client, ElementType::F32, None);
}

/// Bad input is refused with what is wrong, before anything is written.
pub(crate) fn wrong_input(client: &Client) {
    let logits = tensor(client, &[1f32; 24], &[6, 4], &[4, 1]);
    let classes = tensor(client, &[1i32; 6], &[6], &[1]);
    let four = tensor(client, &[1f32; 4], &[4], &[1]);
    let of = || CrossEntropy::of(&logits, &classes, 1);
    let messages = [
        (CrossEntropy::of(&logits, &four, 1), "classes are integers, not f32"),
        (CrossEntropy::of(&logits, &classes, 0), "classes of shape [4] are needed, and not [6]"),
        (of().smoothing(1.5), "`cross_entropy`: smoothing is 1.5, but must be from 0 to 1"),
        (of().weights(&classes), "weights of classes of shape [4] are needed, and not [6]"),
        (of().upstream(&four), "gradients of losses of shape [6] are needed, and not [4]"),
        (
            of().upstream(&four).reduced(LossReduction::Sum),
            "gradients of losses of shape [1] are needed, and not [4]",
        ),
    ];
    for (wrong, message) in messages {
        let gradient = tensor(client, &[7f32; 24], &[6, 4], &[4, 1]);
        let into = gradient.clone().binding();
        let error = wrong.run_with_gradient_into(client, into).unwrap_err();
        assert!(error.to_string().contains(message), "{error} is not {message}");
        assert_eq!(read::<f32>(client, &gradient, 24), [7.0; 24]);
        assert_eq!(wrong.run(client).unwrap_err().to_string(), error.to_string());
    }
    let repeated = tensor(client, &[7f32; 24], &[6, 4], &[0, 1]);
    let error = of().run_with_gradient_into(client, repeated.clone().binding()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape, "{error}");
    assert_eq!(read::<f32>(client, &repeated, 4), [7.0; 4]);
    let narrow = tensor(client, &[7f32; 24], &[4, 6], &[6, 1]);
    let error = of().run_with_gradient_into(client, narrow.clone().binding()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape, "{error}");
}

/// One loss for each slice, along and across, for classes of every integer type.
pub(crate) fn losses_alone(client: &Client) {
    let (rows, columns, inner) = (7, 301, 4);
    let logits: Vec<f32> =
        (0..rows * columns * inner).map(|i| ((i * 53) % 97) as f32 / 9.0).collect();
    let shape = [rows, columns, inner];
    let input = tensor(client, &logits, &shape, &[columns * inner, inner, 1]);
    let class = |row: usize, nth: usize| (row * 41 + nth * 7) % columns;
    let mut classes: Vec<i32> =
        (0..rows * inner).map(|i| class(i / inner, i % inner) as i32).collect();
    classes[3] = -1;
    classes[9] = columns as i32;
    let along: Vec<f32> = logits
        .chunks(columns * inner)
        .flat_map(|row| {
            (0..inner).flat_map(|nth| row[nth..].iter().step_by(inner).copied()).collect::<Vec<_>>()
        })
        .collect();
    let along = tensor(client, &along, &[rows * inner, columns], &[columns, 1]);
    let of_rows = tensor(client, &classes, &[rows * inner], &[1]);
    let of_slices = tensor(client, &classes, &[rows, 1, inner], &[inner, inner, 1]);
    let found = cross_entropy(client, &input, &of_slices, 1).unwrap();
    assert_eq!(found.shape()[..], [rows, inner]);
    let found = read::<f32>(client, &found, rows * inner);
    let of_along = cross_entropy(client, &along, &of_rows, 1).unwrap();
    let of_along = read::<f32>(client, &of_along, rows * inner);
    for (slice, &class) in classes.iter().enumerate() {
        let (row, nth) = (slice / inner, slice % inner);
        let values: Vec<f64> = (0..columns)
            .map(|column| f64::from(logits[(row * columns + column) * inner + nth]))
            .collect();
        let sum: f64 = values.iter().map(|value| value.exp()).sum();
        for found in [found[slice], of_along[slice]] {
            match usize::try_from(class).ok().and_then(|class| values.get(class)) {
                Some(value) => {
                    let expected = sum.ln() - value;
                    assert!((f64::from(found) - expected).abs() < 1e-5 * expected.max(1.0));
                }
                None => assert!(found.is_nan(), "class {class} is out of range: {found}"),
            }
        }
    }
    let wrong = tensor(client, &classes, &[rows * inner / 2, 2], &[2, 1]);
    let error = cross_entropy(client, &input, &wrong, 1).unwrap_err();
    assert_eq!(error.to_string(), "classes of shape [7, 4] are needed, and not [14, 2]");
    let error = cross_entropy(client, &along, &along, 1).unwrap_err();
    assert_eq!(error.to_string(), "classes are integers, not f32");
}
