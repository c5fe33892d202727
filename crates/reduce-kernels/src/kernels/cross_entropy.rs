//! Cross-entropies: what concerns one element of each slice, that of its class.

use cubecl::prelude::*;

use super::{
    args::KernelTypes,
    geometry::{Dim, offsets, strided},
};
use crate::operator::{
    Applied, Operand, Operand2, Operand3, Out, Out2, Out3, Parameters, Real, Stored,
    builtin::exponential,
    element_wise::nan_or_lowest,
    math::{has_nan_bits, ln},
};

/// What kernels know of classes when they are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClassSpec {
    /// The class of slices that count for nothing. The type of classes has it.
    pub(crate) ignored: Option<i64>,
    /// Whether classes have weights.
    pub(crate) weighted: bool,
    /// Whether labels are smoothed.
    pub(crate) smoothed: bool,
    /// Whether reciprocals of sums are given in place of logarithms.
    pub(crate) of_reciprocals: bool,
    /// Whether gradients are divided by the total weight of all slices.
    pub(crate) divided: bool,
    /// Whether gradients are multiplied by those that come from behind.
    pub(crate) upstream: bool,
}

/// The class of each slice, and the weight of each class.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct ClassArrays {
    pub(crate) classes: Box<[Operand]>,
    pub(crate) weights: ComptimeOption<Box<[Operand2]>>,
    /// The sum of all weights.
    pub(crate) total: ComptimeOption<Box<[Out]>>,
    /// Strides of classes along the kept dimensions.
    pub(crate) strides: Sequence<usize>,
    pub(crate) weight_stride: usize,
    /// Number of classes.
    pub(crate) extent: u32,
}

/// Results of the reduction of logits, one of each for each slice.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct SumArrays {
    /// The largest logit.
    pub(crate) most: Box<[Out]>,
    /// The logarithm of the sum of exponentials of differences from it, or the reciprocal of that
    /// sum where gradients are written.
    pub(crate) sums: Box<[Out2]>,
    /// The sum of logits, each times the weight of its class.
    pub(crate) totals: ComptimeOption<Box<[Out3]>>,
}

/// The class of a slice.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct Class {
    /// The number of the class, or 0 if there is no such class.
    index: usize,
    is_ignored: bool,
    /// 0 if the slice is ignored, NaN if there is no such class.
    weight: Real,
}

#[cube]
fn class_of(
    arrays: &ClassArrays,
    kept: &Sequence<Dim>,
    slice: usize,
    #[comptime] spec: ClassSpec,
) -> Class {
    let class = arrays.classes[strided(kept, &arrays.strides, slice)];
    let number = u32::cast_from(class);
    // Classes that u32 does not hold do not come back from it.
    let is_known = number < arrays.extent && Operand::cast_from(number) == class;
    let index = select(is_known, number, 0u32) as usize;
    let is_ignored = match comptime![spec.ignored] {
        Some(ignored) => class == Operand::from_int(ignored),
        None => false.runtime(),
    };
    let weight = weight_of(arrays, index);
    let weight = select(is_known, weight, nan_or_lowest::<Real>());
    let weight = select(is_ignored, Real::from_int(0), weight);
    Class { index, is_ignored, weight }
}

/// The weight of a class, which exists.
#[cube]
fn weight_of(arrays: &ClassArrays, index: usize) -> Real {
    #[comptime]
    match &arrays.weights {
        ComptimeOption::Some(weights) => Real::cast_from(weights[index * arrays.weight_stride]),
        ComptimeOption::None => Real::from_int(1),
    }
}

/// The sum of the weights of all classes.
#[cube]
fn weight_of_all(arrays: &ClassArrays) -> Real {
    #[comptime]
    match &arrays.total {
        ComptimeOption::Some(total) => Real::cast_from(total[0usize]),
        ComptimeOption::None => Real::cast_from(arrays.extent),
    }
}

/// For each slice, the logit of its class and the weight of that.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn gather_classes(
    _types: &KernelTypes,
    logits: &[Stored],
    arrays: &ClassArrays,
    gathered: &mut [Out],
    weights: &mut [Out2],
    kept: &Sequence<Dim>,
    stride: usize,
    slices: usize,
    #[comptime] spec: ClassSpec,
) {
    // Units leave here, because no barrier follows.
    if ABSOLUTE_POS < slices {
        let at = offsets(kept, ABSOLUTE_POS);
        let class = class_of(arrays, kept, ABSOLUTE_POS, spec);
        gathered[at.target] = Out::cast_from(logits[at.input + class.index * stride]);
        weights[at.target] = Out2::cast_from(class.weight);
    }
}

/// For each slice, what its probabilities and the weights of classes are multiplied by in the
/// gradient. The parameters are the share of the slice's class, and that of each class by
/// smoothing. `weight` is the total weight of all slices, and `upstream` the gradient of the
/// losses, or of their sum or mean.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn gradient_factors(
    _types: &KernelTypes,
    arrays: &ClassArrays,
    weight: &ComptimeOption<Box<[Out2]>>,
    upstream: &ComptimeOption<Box<[Operand3]>>,
    upstream_strides: &Sequence<usize>,
    factors: &mut [Out],
    scales: &mut [Out2],
    kept: &Sequence<Dim>,
    parameters: &Parameters,
    slices: usize,
    #[comptime] spec: ClassSpec,
) {
    if ABSOLUTE_POS < slices {
        let at = offsets(kept, ABSOLUTE_POS);
        let class = class_of(arrays, kept, ABSOLUTE_POS, spec);
        let mut scale = Real::from_int(1);
        if comptime![spec.divided] {
            scale /= Real::cast_from(weight.as_ref().unwrap()[0usize]);
        }
        if comptime![spec.upstream] {
            let upstream = upstream.as_ref().unwrap();
            scale *= Real::cast_from(upstream[strided(kept, upstream_strides, ABSOLUTE_POS)]);
        }
        let scale = select(class.is_ignored, Real::from_int(0), scale);
        let own = class.weight * parameters.get::<Real>(0usize);
        let mut factor = own;
        if comptime![spec.smoothed] {
            factor += weight_of_all(arrays) * parameters.get::<Real>(1usize);
        }
        // A mean over no slices divides by 0, and their gradient is still 0.
        let factor = select(class.is_ignored, Real::from_int(0), factor * scale);
        factors[at.target] = Out::cast_from(factor);
        scales[at.target] = Out2::cast_from(scale);
    }
}

/// The loss of each slice and its weight. The parameters are the share of the slice's class, and
/// that of each class by smoothing. The targets of `kept` are offsets in the results and in the
/// losses.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn class_losses(
    _types: &KernelTypes,
    logits: &[Stored],
    arrays: &ClassArrays,
    sums: &SumArrays,
    losses: &mut [Out],
    weights: &mut [Out2],
    kept: &Sequence<Dim>,
    parameters: &Parameters,
    stride: usize,
    slices: usize,
    #[comptime] spec: ClassSpec,
) {
    if ABSOLUTE_POS < slices {
        let at = offsets(kept, ABSOLUTE_POS);
        let class = class_of(arrays, kept, ABSOLUTE_POS, spec);
        let logit = Real::cast_from(logits[at.input + class.index * stride]);
        let most = Real::cast_from(sums.most[at.target]);
        let logarithm = if comptime![spec.of_reciprocals] {
            minus_logarithm(Real::cast_from(sums.sums[at.target]))
        } else {
            Real::cast_from(sums.sums[at.target])
        };
        let mut loss = (most - logit) + logarithm;
        if comptime![spec.smoothed] {
            let total = Real::cast_from(sums.totals.as_ref().unwrap()[at.target]);
            let all = (weight_of_all(arrays) * most - total) + weight_of_all(arrays) * logarithm;
            loss = loss * class.weight * parameters.get::<Real>(0usize)
                + all * parameters.get::<Real>(1usize);
        } else {
            loss *= class.weight;
        }
        // A slice that counts for nothing would be NaN if a logit is.
        let mut counts = !class.is_ignored;
        if comptime![spec.weighted && !spec.smoothed] {
            // NaN counts, and not all devices say that it differs from 0.
            let weighs_nothing = class.weight == Real::from_int(0);
            counts = counts && !weighs_nothing;
        }
        let loss = select(counts, loss, Real::from_int(0));
        losses[at.target] = Out::cast_from(loss);
        weights[at.target] = Out2::cast_from(class.weight);
    }
}

/// Backends differ in the logarithm of NaN.
#[cube]
fn minus_logarithm(value: Real) -> Real {
    let value = Vector::<Real, Const<1>>::new(value);
    let minus = Vector::from_int(0) - ln::<Real, Const<1>>(value);
    let result = select_many(has_nan_bits::<Real, Const<1>>(value), value, minus);
    result.extract(0usize)
}

/// The gradient by the logit of each slice's class. `gathered` has these logits, and `gradients`
/// what is right for other classes.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn class_gradients(
    _types: &KernelTypes,
    gathered: &[Out],
    arrays: &ClassArrays,
    sums: &SumArrays,
    factors: &[Out],
    scales: &[Out2],
    gradients: &mut [Applied],
    gradient_strides: &Sequence<usize>,
    gradient_stride: usize,
    kept: &Sequence<Dim>,
    parameters: &Parameters,
    slices: usize,
    #[comptime] spec: ClassSpec,
) {
    if ABSOLUTE_POS < slices {
        let at = offsets(kept, ABSOLUTE_POS).target;
        let class = class_of(arrays, kept, ABSOLUTE_POS, spec);
        let difference = Real::cast_from(gathered[at]) - Real::cast_from(sums.most[at]);
        let difference = Vector::<Real, Const<1>>::new(difference);
        let exponential = exponential::<Real, Const<1>>(difference).extract(0usize);
        let probability = exponential * Real::cast_from(sums.sums[at]);
        let mut share = parameters.get::<Real>(0usize);
        if comptime![spec.smoothed] {
            share += parameters.get::<Real>(1usize);
        }
        let own = Real::cast_from(scales[at]) * class.weight * share;
        let factor = Real::cast_from(factors[at]);
        let gradient = factor * probability - own;
        let to = strided(kept, gradient_strides, ABSOLUTE_POS) + class.index * gradient_stride;
        // The whole slice is 0 already where the factor is.
        let is_done = factor == Real::from_int(0);
        if !is_done {
            gradients[to] = Applied::cast_from(gradient);
        }
    }
}
