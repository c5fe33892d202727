//! Softmax of scores with a factor and an additive mask.

use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    cubecl::prelude::*,
    normalize::{MaskedLogSoftmax, MaskedSoftmax},
    planner::row_major_strides,
};

use crate::{
    applied::has_no_plan,
    applied_outputs::Way,
    run::{capable_device, read, tensor},
};

/// The factor of scores.
const SCALE: f64 = 0.125;

/// Scores of `[batch, heads, queries, keys]` over keys, with masks that are repeated along some
/// axes, and over queries; `-inf` gives 0, and NaN where all of a slice is masked. By every plan.
pub(crate) fn softmax(client: &Client) {
    let device = capable_device(client);
    let mut runs = 0;
    let cases: [(&[usize], &[usize], usize); 4] = [
        (&[2, 3, 7, 65], &[7, 65], 3),
        (&[2, 3, 7, 65], &[2, 1, 1, 65], 3),
        (&[5, 1001], &[5, 1001], 1),
        (&[3, 40, 12], &[40, 12], 1),
    ];
    for (turn, (shape, mask_shape, axis)) in cases.into_iter().enumerate() {
        let mut rng = StdRng::seed_from_u64(turn as u64);
        let count: usize = shape.iter().product();
        let scores: Vec<f32> = (0..count).map(|_| rng.random_range(-30.0f32..30.0)).collect();
        let masked: Vec<f32> = (0..mask_shape.iter().product())
            .map(|at: usize| match at % 3 {
                0 => f32::NEG_INFINITY,
                _ => rng.random_range(-2.0f32..2.0),
            })
            .collect();
        let x = tensor(client, &scores, shape, &row_major_strides(shape));
        let mask = tensor(client, &masked, mask_shape, &row_major_strides(mask_shape));
        let strides = row_major_strides(shape);
        let of_mask = row_major_strides(mask_shape);
        let before = shape.len() - mask_shape.len();
        let sum = |at: usize| {
            let place: usize = (0..mask_shape.len())
                .map(|nth| {
                    let index = at / strides[before + nth] % shape[before + nth];
                    if mask_shape[nth] == 1 { 0 } else { index * of_mask[nth] }
                })
                .sum();
            f64::from(scores[at]) * SCALE + f64::from(masked[place])
        };
        let mut expected = vec![0f64; count];
        let first_of = |at: usize| at - at / strides[axis] % shape[axis] * strides[axis];
        for first in (0..count).filter(|&at| first_of(at) == at) {
            let slice: Vec<usize> =
                (0..shape[axis]).map(|nth| first + nth * strides[axis]).collect();
            let most = slice.iter().map(|&at| sum(at)).fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = slice.iter().map(|&at| (sum(at) - most).exp()).sum();
            slice.iter().for_each(|&at| expected[at] = (sum(at) - most) - total.ln());
        }
        for way in Way::all() {
            let what = format!("{shape:?} with {mask_shape:?} over {axis} by {way:?}");
            let shares = MaskedSoftmax { scale: SCALE }.of(&x, &mask, axis);
            let logarithms = MaskedLogSoftmax { scale: SCALE }.of(&x, &mask, axis);
            let run = || {
                let shares = way.of(&device, shares)?.run(client)?;
                Ok((shares, way.of(&device, logarithms)?.run(client)?))
            };
            let (shares, logarithms) = match run() {
                Ok(found) => found,
                Err(error) if has_no_plan(&error) => continue,
                Err(other) => panic!("{what}: {other}"),
            };
            runs += 1;
            let shares = read::<f32>(client, &shares, count);
            let logarithms = read::<f32>(client, &logarithms, count);
            for (at, &expected) in expected.iter().enumerate() {
                let (share, logarithm) = (f64::from(shares[at]), f64::from(logarithms[at]));
                if expected.is_nan() {
                    assert!(share.is_nan() && logarithm.is_nan(), "{what}: {share} at {at}");
                    continue;
                }
                let bound = 1e-5 * (1.0 + expected.abs());
                assert!((share - expected.exp()).abs() <= bound, "{what}: {share} at {at}");
                let near = logarithm == expected || (logarithm - expected).abs() <= bound;
                assert!(near, "{what}: {logarithm} and not {expected} at {at}");
            }
        }
    }
    assert!(runs >= 12, "{runs} runs");
}
