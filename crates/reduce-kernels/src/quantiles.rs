//! Medians, quantiles and percentiles of each slice.
//!
//! ```no_run
//! use reduce_kernels::{
//!     ReduceError,
//!     cubecl::{prelude::*, std::tensor::TensorHandle},
//!     quantiles::{Interpolation, median, nanmedian, quantiles},
//! };
//!
//! # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
//! let medians = median(client, x, 1)?; // shape [rows, 1]
//! let of_numbers = nanmedian(client, x, 1)?; // NaN does not count
//! let deciles = quantiles([0.1, 0.9], x).over(1).run(client)?; // shape [2, rows, 1]
//! let lower = quantiles([0.5], x).over(1).interpolation(Interpolation::Lower).run(client)?;
//! # Ok(()) }
//! ```

use core::fmt;

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{Device, ElementType, ProblemError, TopKPlan, reduced_axes};

#[cfg(feature = "serde")]
use crate::recorded::{RecordedCall, RecordedTopK};
use crate::{
    axes::Axes,
    error::{Reason, ReduceError},
    host::top_k::{
        quantiles::{OfNumbers, QuantilesCall, Weighted},
        request::{Order, TopKRequest},
    },
    input::Input,
    kernels::top_k::places::Placing,
};

/// How a quantile is found where it lies between two elements: the methods of NumPy, of which all
/// but the last four are those of R. J. Hyndman and Y. Fan, "Sample Quantiles in Statistical
/// Packages", 1996.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Interpolation {
    /// NumPy's `inverted_cdf`: an element, method 1.
    InvertedCdf,
    /// NumPy's `averaged_inverted_cdf`: an element, or the mean of two, method 2.
    AveragedInvertedCdf,
    /// NumPy's `closest_observation`: an element, method 3.
    ClosestObservation,
    /// NumPy's `interpolated_inverted_cdf`, method 4.
    InterpolatedInvertedCdf,
    /// NumPy's `hazen`, method 5.
    Hazen,
    /// NumPy's `weibull`, method 6.
    Weibull,
    /// NumPy's and PyTorch's `linear`, the usual one, method 7.
    #[default]
    Linear,
    /// NumPy's `median_unbiased`, method 8.
    MedianUnbiased,
    /// NumPy's `normal_unbiased`, method 9.
    NormalUnbiased,
    /// The lower of the two elements between which the linear one lies.
    Lower,
    /// The upper of them.
    Higher,
    /// The mean of them.
    Midpoint,
    /// The nearer of them, and the one with an even number if both are as near.
    Nearest,
}

/// Where a quantile lies among elements in ascending order; see [`Interpolation::between`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Between {
    /// Number of the lower of two elements, from 0.
    pub lower: usize,
    /// Number of the upper one, which may be the same.
    pub upper: usize,
    /// How far the quantile lies from the lower to the upper one, from 0 to 1.
    pub weight: f64,
}

/// The end of a slice from which a selection reaches some of its elements with the fewest others.
///
/// ```
/// use reduce_kernels::quantiles::NearerEnd;
///
/// // Elements 7 and 8 of 10 in ascending order are the third and the second largest.
/// let end = NearerEnd::of(&[7, 8], 10);
/// assert_eq!((end.largest, end.k), (true, 3));
/// assert_eq!((end.rank(7), end.rank(8)), (2, 1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearerEnd {
    /// Whether the largest are selected, rather than the smallest.
    pub largest: bool,
    /// How many are selected.
    pub k: usize,
    last: usize,
}

impl NearerEnd {
    /// The end for elements with these numbers, from 0, among `len` in ascending order.
    #[must_use]
    pub fn of(numbers: &[usize], len: usize) -> Self {
        let (least, most) = numbers
            .iter()
            .fold((usize::MAX, 0), |(least, most), &number| (least.min(number), most.max(number)));
        let last = len.saturating_sub(1);
        let from_above = last.saturating_sub(least.min(last));
        let largest = from_above < most;
        let k = len.min(1 + if largest { from_above } else { most });
        Self { largest, k, last }
    }

    /// The rank of the element with this number among the selected ones, from 0.
    #[must_use]
    pub fn rank(&self, number: usize) -> usize {
        if self.largest { self.last - number } else { number }
    }
}

impl Interpolation {
    /// Where quantile `q`, from 0 to 1, of `len` elements lies.
    ///
    /// ```
    /// use reduce_kernels::quantiles::{Between, Interpolation};
    ///
    /// let median = Interpolation::Linear.between(0.5, 4);
    /// assert_eq!(median, Between { lower: 1, upper: 2, weight: 0.5 });
    /// ```
    #[must_use]
    pub fn between(self, q: f64, len: usize) -> Between {
        let n = len as f64;
        let last = len.saturating_sub(1);
        // From the first element, which has the number 0, in elements.
        let continuous = || n * q + self.addend(q) - 1.0;
        let linear = (n - 1.0) * q;
        let virtual_index = match self {
            Self::InvertedCdf => previous_if(n * q - 1.0, |_| true),
            Self::AveragedInvertedCdf => n * q - 1.0,
            Self::ClosestObservation => previous_if(n * q - 1.5, |index| index % 2.0 == 1.0),
            Self::InterpolatedInvertedCdf
            | Self::Hazen
            | Self::Weibull
            | Self::MedianUnbiased
            | Self::NormalUnbiased => continuous(),
            Self::Linear => linear,
            Self::Lower => linear.floor(),
            Self::Higher => linear.ceil(),
            Self::Midpoint => 0.5 * (linear.floor() + linear.ceil()),
            Self::Nearest => linear.round_ties_even(),
        };
        let weight = virtual_index - virtual_index.floor();
        let weight = match self {
            Self::AveragedInvertedCdf if weight == 0.0 => 0.5,
            Self::AveragedInvertedCdf => 1.0,
            _ => weight,
        };
        let index = virtual_index.floor();
        if index < 0.0 {
            return Between { lower: 0, upper: 0, weight: 0.0 };
        }
        let lower = (index as usize).min(last);
        Between { lower, upper: (lower + 1).min(last), weight }
    }

    /// What the continuous methods add to the quantile of the number of elements; 0 for others.
    fn addend(self, q: f64) -> f64 {
        let [alpha, beta] = match self {
            Self::Hazen => [0.5; 2],
            Self::Weibull => [0.0; 2],
            Self::MedianUnbiased => [1.0 / 3.0; 2],
            Self::NormalUnbiased => [3.0 / 8.0; 2],
            _ => [0.0, 1.0],
        };
        alpha + q * (1.0 - alpha - beta)
    }

    /// The same as [`between`](Self::between), for a device.
    fn placing(self) -> Placing {
        match self {
            Self::InvertedCdf => Placing::InvertedCdf,
            Self::AveragedInvertedCdf => Placing::AveragedInvertedCdf,
            Self::ClosestObservation => Placing::ClosestObservation,
            Self::InterpolatedInvertedCdf
            | Self::Hazen
            | Self::Weibull
            | Self::MedianUnbiased
            | Self::NormalUnbiased => Placing::Continuous,
            Self::Linear => Placing::Linear,
            Self::Lower => Placing::Lower,
            Self::Higher => Placing::Higher,
            Self::Midpoint => Placing::Midpoint,
            Self::Nearest => Placing::Nearest,
        }
    }
}

/// The index after the one that `index` lies in, or that one if `index` lies on it and
/// `takes_previous`.
fn previous_if(index: f64, takes_previous: impl Fn(f64) -> bool) -> f64 {
    let previous = index.floor();
    let is_on_it = index == previous;
    let taken = if is_on_it && takes_previous(previous) { previous } else { previous + 1.0 };
    taken.max(0.0)
}

/// The median of each slice: the mean of the two middle elements if there is an even number of
/// them. Slices with NaN give NaN. The axes of a slice stay with size 1.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::quantiles::median;
///
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// let of_rows = median(client, x, 1)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched, such as for slices without elements.
pub fn median(
    client: &Client,
    input: &TensorHandle,
    axes: impl Into<Axes>,
) -> Result<TensorHandle, ReduceError> {
    quantile(client, input, axes, 0.5)
}

/// A quantile of each slice, for a `q` from 0 to 1, linearly interpolated. Slices with NaN give
/// NaN. The axes of a slice stay with size 1.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::quantiles::quantile;
///
/// # fn example(client: &Client, latencies: &TensorHandle) -> Result<(), ReduceError> {
/// let slow = quantile(client, latencies, .., 0.99)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched, such as for a `q` that is not from 0 to 1.
pub fn quantile(
    client: &Client,
    input: &TensorHandle,
    axes: impl Into<Axes>,
    q: f64,
) -> Result<TensorHandle, ReduceError> {
    Ok(without_first_axis(quantiles([q], input).over(axes).run(client)?))
}

/// One quantile, which has no axis of its own.
fn without_first_axis(mut found: TensorHandle) -> TensorHandle {
    found.metadata.shape.remove(0);
    found.metadata.strides.remove(0);
    found
}

/// [`median`] of the elements that are not NaN. Slices without any give NaN.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::quantiles::nanmedian;
///
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// let of_rows = nanmedian(client, x, 1)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Those of [`median`].
pub fn nanmedian(
    client: &Client,
    input: &TensorHandle,
    axes: impl Into<Axes>,
) -> Result<TensorHandle, ReduceError> {
    nanquantile(client, input, axes, 0.5)
}

/// [`quantile`] of the elements that are not NaN; see [`Quantiles::ignore_nan`]. Slices without any
/// give NaN.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::quantiles::nanquantile;
///
/// # fn example(client: &Client, latencies: &TensorHandle) -> Result<(), ReduceError> {
/// let slow = nanquantile(client, latencies, .., 0.99)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Those of [`quantile`].
pub fn nanquantile(
    client: &Client,
    input: &TensorHandle,
    axes: impl Into<Axes>,
    q: f64,
) -> Result<TensorHandle, ReduceError> {
    let found = quantiles([q], input).over(axes).ignore_nan().run(client)?;
    Ok(without_first_axis(found))
}

/// [`quantile`] for a percentage from 0 to 100.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::quantiles::percentile;
///
/// # fn example(client: &Client, latencies: &TensorHandle) -> Result<(), ReduceError> {
/// let slow = percentile(client, latencies, .., 99.0)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Those of [`quantile`].
pub fn percentile(
    client: &Client,
    input: &TensorHandle,
    axes: impl Into<Axes>,
    percentage: f64,
) -> Result<TensorHandle, ReduceError> {
    quantile(client, input, axes, percentage / 100.0)
}

/// Starts the computation of several quantiles of each slice of `input`, from one selection: over
/// all axes, linearly interpolated, unless told otherwise. The results have one axis more than the
/// input, which comes first: that of the quantiles.
///
/// Slices with NaN give NaN, unless [`Quantiles::ignore_nan`] is called. Results are of the type of the input, or of f32 if that is no floating
/// point type, and rounded once, from f32, or f64 if one of both is.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::quantiles::quantiles;
///
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// let quartiles = quantiles([0.25, 0.5, 0.75], x).over(1).run(client)?;
/// # Ok(()) }
/// ```
pub fn quantiles<T: Input>(q: impl Into<Vec<f64>>, input: &T) -> Quantiles<'_, T> {
    Quantiles {
        q: q.into(),
        input,
        axes: Axes::All,
        keep_dims: true,
        interpolation: Interpolation::default(),
        ignores_nan: false,
        output: None,
        plan: None,
        device: None,
    }
}

/// Quantiles that are being described; see [`quantiles`]. Nothing happens until [`run`](Self::run)
/// is called. If the input is a [`TensorDescription`](crate::TensorDescription), they cannot be
/// run, but everything else is answered.
#[must_use = "quantiles are not computed until they are run"]
pub struct Quantiles<'a, T> {
    q: Vec<f64>,
    pub(crate) input: &'a T,
    axes: Axes,
    keep_dims: bool,
    interpolation: Interpolation,
    ignores_nan: bool,
    output: Option<ElementType>,
    plan: Option<TopKPlan>,
    device: Option<&'a Device>,
}

impl<T: Input> fmt::Debug for Quantiles<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quantiles")
            .field("q", &self.q)
            .field("input", self.input)
            .field("axes", &self.axes)
            .field("interpolation", &self.interpolation)
            .field("ignores_nan", &self.ignores_nan)
            .finish_non_exhaustive()
    }
}

impl<'a, T: Input> Quantiles<'a, T> {
    /// Sets the axes of a slice: `..` for all, an axis, or a list of axes in any order.
    pub fn over(mut self, axes: impl Into<Axes>) -> Self {
        self.axes = axes.into();
        self
    }

    /// Chooses whether the results keep the axes of a slice with size 1 (the default) or drop them.
    pub fn keep_dims(mut self, keep: bool) -> Self {
        self.keep_dims = keep;
        self
    }

    /// Chooses how quantiles are found that lie between two elements.
    pub fn interpolation(mut self, interpolation: Interpolation) -> Self {
        self.interpolation = interpolation;
        self
    }

    /// Finds the quantiles of the elements that are not NaN. Slices without any give NaN. Without
    /// this, slices with NaN do. The places of quantiles are those of NumPy's `nanquantile`.
    ///
    /// A reduction before the selection counts the numbers of each slice, on the device, where they
    /// stay. Integers have no NaN, and nothing is counted.
    ///
    /// ```no_run
    /// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
    /// use reduce_kernels::quantiles::quantiles;
    ///
    /// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
    /// let quartiles = quantiles([0.25, 0.75], x).over(1).ignore_nan().run(client)?;
    /// # Ok(()) }
    /// ```
    pub fn ignore_nan(mut self) -> Self {
        self.ignores_nan = true;
        self
    }

    /// Asks for results of this floating point type.
    pub fn output_type(mut self, output: ElementType) -> Self {
        self.output = Some(output);
        self
    }

    /// Runs this plan of the selection instead of choosing one. It is checked against the problem
    /// and the device.
    pub fn with_plan(mut self, plan: TopKPlan) -> Self {
        self.plan = Some(plan);
        self
    }

    /// Plans for `device`; see [`Reduction::plan_for`](crate::Reduction::plan_for).
    pub fn plan_for(mut self, device: &'a Device) -> Self {
        self.device = Some(device);
        self
    }

    /// The plan of the selection that [`run`](Self::run) would run now.
    ///
    /// # Errors
    ///
    /// The error that `run` would return before it allocates.
    pub fn plan(&self, client: &Client) -> Result<TopKPlan, ReduceError> {
        self.call()?.plan(client, self.input.buffer_bytes())
    }

    /// The selection as data, as [`record_calls`](crate::plans::record_calls) would record it.
    ///
    /// # Errors
    ///
    /// Those of [`output_shape`](Self::output_shape).
    #[cfg(feature = "serde")]
    pub fn record(&self) -> Result<RecordedCall, ReduceError> {
        Ok(RecordedCall::TopK(RecordedTopK::of(self.call()?.selection())?))
    }

    /// The shape of the results.
    ///
    /// # Errors
    ///
    /// Invalid axes, quantiles that are not from 0 to 1, and slices without elements.
    pub fn output_shape(&self) -> Result<Vec<usize>, ReduceError> {
        self.call()?;
        self.shape()
    }

    /// The type of the results.
    ///
    /// # Errors
    ///
    /// Those of [`output_shape`](Self::output_shape), and a type that was asked for and is not one
    /// of floating point.
    pub fn output_types(&self) -> Result<ElementType, ReduceError> {
        Ok(self.call()?.output_type())
    }

    fn call(&self) -> Result<QuantilesCall<'_>, ReduceError> {
        let input = self.input.spec()?;
        let request = TopKRequest::new(input, self.axes.as_slice(), 0);
        let (len, _) = request.slices()?;
        if len == 0 {
            let (operator, shape) = ("quantile", input.shape.to_vec());
            let all = || (0..shape.len()).collect();
            let axes = self.axes.as_slice().map_or_else(all, <[usize]>::to_vec);
            return Err(ProblemError::EmptyReduction { operator, shape, axes }.into());
        }
        let between = self.q.iter().enumerate().map(|(nth, &q)| match (0.0..=1.0).contains(&q) {
            true => Ok(self.interpolation.between(q, len)),
            false => Err(Reason::Quantile { nth, found: q }.into()),
        });
        let between = between.collect::<Result<Vec<Between>, ReduceError>>()?;
        let numbers = between.iter().flat_map(|between| [between.lower, between.upper]);
        // With fewer numbers than elements, no rank from this end is greater.
        let end = NearerEnd::of(&numbers.collect::<Vec<_>>(), len);
        let order = Order::new(end.largest);
        let request = TopKRequest { k: end.k, order, plan: self.plan, ..request };
        if self.ignores_nan && input.element.is_float() {
            let addends: Vec<f64> = self.q.iter().map(|&q| self.interpolation.addend(q)).collect();
            let placing = self.interpolation.placing();
            let quantiles = OfNumbers { q: &self.q, addends: &addends, placing };
            return QuantilesCall::of_numbers(request, len, self.device, quantiles, self.output);
        }
        let weighted = between.iter().map(|&Between { lower, upper, weight }| Weighted {
            ranks: [end.rank(lower), end.rank(upper)],
            weight,
        });
        QuantilesCall::new(request, self.device, &weighted.collect::<Vec<_>>(), self.output)
    }

    fn shape(&self) -> Result<Vec<usize>, ReduceError> {
        let shape = self.input.spec()?.shape;
        let is_reduced = reduced_axes(shape.len(), self.axes.as_slice())?;
        let of_axis = |(&extent, reduced): (&usize, bool)| match (reduced, self.keep_dims) {
            (false, _) => Some(extent),
            (true, true) => Some(1),
            (true, false) => None,
        };
        let axes = shape.iter().zip(is_reduced).filter_map(of_axis);
        Ok(core::iter::once(self.q.len()).chain(axes).collect())
    }
}

impl Quantiles<'_, TensorHandle> {
    /// Launches the selection and the interpolation into a new row-major tensor. Does not wait.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched.
    pub fn run(self, client: &Client) -> Result<TensorHandle, ReduceError> {
        self.call()?.run(client, self.input, self.shape()?)
    }
}

#[cfg(test)]
mod tests {
    use super::{Between, Interpolation, NearerEnd};

    /// The end with fewer elements before those that are wanted.
    #[test]
    fn the_nearer_end_is_chosen() {
        for (numbers, largest, k) in [
            (&[0usize, 0][..], false, 1),
            (&[9], true, 1),
            (&[4, 5], false, 6),
            (&[5, 6], true, 5),
            (&[0, 9], false, 10),
            (&[], false, 1),
        ] {
            let end = NearerEnd::of(numbers, 10);
            assert_eq!((end.largest, end.k), (largest, k), "{numbers:?}");
            assert!(numbers.iter().all(|&number| end.rank(number) < k), "{numbers:?}");
        }
    }

    /// Quantiles of 1, 2, 4, 8, ... with NumPy 2.4.6.
    #[test]
    fn numpy_agrees() {
        let of = |interpolation: Interpolation, q: f64, len: usize| {
            let Between { lower, upper, weight } = interpolation.between(q, len);
            let element = |nth: usize| 2f64.powi(nth as i32);
            element(lower) + (element(upper) - element(lower)) * weight
        };
        for (interpolation, expected) in NUMPY {
            for (case, &expected) in CASES.iter().zip(*expected) {
                let found = of(*interpolation, case.0, case.1);
                assert!((found - expected).abs() < 1e-9, "{interpolation:?} {case:?} {found}");
            }
        }
    }

    /// Quantiles, and numbers of elements.
    const CASES: [(f64, usize); 17] = [
        (0.0, 1),
        (1.0, 1),
        (0.5, 2),
        (0.0, 5),
        (1.0, 5),
        (0.1, 5),
        (0.2, 5),
        (0.25, 5),
        (0.3, 5),
        (0.5, 5),
        (0.5, 6),
        (0.7, 10),
        (0.75, 10),
        (0.9, 10),
        (0.99, 10),
        (0.35, 10),
        (0.45, 11),
    ];

    const NUMPY: &[(Interpolation, &[f64])] = &[
        (
            Interpolation::InvertedCdf,
            &[
                1.0, 1.0, 1.0, 1.0, 16.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 64.0, 128.0, 256.0, 512.0,
                8.0, 16.0,
            ],
        ),
        (
            Interpolation::AveragedInvertedCdf,
            &[
                1.0, 1.0, 1.5, 1.0, 16.0, 1.0, 1.5, 2.0, 2.0, 4.0, 6.0, 96.0, 128.0, 384.0, 512.0,
                8.0, 16.0,
            ],
        ),
        (
            Interpolation::ClosestObservation,
            &[
                1.0, 1.0, 1.0, 1.0, 16.0, 1.0, 1.0, 1.0, 2.0, 2.0, 4.0, 64.0, 128.0, 256.0, 512.0,
                8.0, 16.0,
            ],
        ),
        (
            Interpolation::InterpolatedInvertedCdf,
            &[
                1.0,
                1.0,
                1.0,
                1.0,
                16.0,
                1.0,
                1.0,
                1.25,
                1.5,
                3.0,
                4.0,
                64.0,
                96.0,
                256.0,
                486.4000000000001,
                6.0,
                15.600000000000001,
            ],
        ),
        (
            Interpolation::Hazen,
            &[
                1.0,
                1.0,
                1.5,
                1.0,
                16.0,
                1.0,
                1.5,
                1.75,
                2.0,
                4.0,
                6.0,
                96.0,
                128.0,
                384.0,
                512.0,
                8.0,
                23.200000000000003,
            ],
        ),
        (
            Interpolation::Weibull,
            &[
                1.0,
                1.0,
                1.5,
                1.0,
                16.0,
                1.0,
                1.2,
                1.5,
                1.8,
                4.0,
                6.0,
                108.80000000000001,
                160.0,
                486.4000000000001,
                512.0,
                7.4,
                22.400000000000006,
            ],
        ),
        (
            Interpolation::Linear,
            &[
                1.0,
                1.0,
                1.5,
                1.0,
                16.0,
                1.4,
                1.8,
                2.0,
                2.4,
                4.0,
                6.0,
                83.19999999999999,
                112.0,
                281.5999999999999,
                488.96000000000004,
                9.2,
                24.0,
            ],
        ),
        (
            Interpolation::MedianUnbiased,
            &[
                1.0,
                1.0,
                1.5,
                1.0,
                16.0,
                1.0,
                1.4,
                1.6666666666666667,
                1.9333333333333333,
                4.0,
                6.0,
                100.26666666666665,
                138.66666666666674,
                418.1333333333332,
                512.0,
                7.800000000000001,
                22.933333333333337,
            ],
        ),
        (
            Interpolation::NormalUnbiased,
            &[
                1.0,
                1.0,
                1.5,
                1.0,
                16.0,
                1.0,
                1.425,
                1.6875,
                1.95,
                4.0,
                6.0,
                99.19999999999999,
                136.0,
                409.5999999999999,
                512.0,
                7.85,
                23.0,
            ],
        ),
        (
            Interpolation::Lower,
            &[
                1.0, 1.0, 1.0, 1.0, 16.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 64.0, 64.0, 256.0, 256.0,
                8.0, 16.0,
            ],
        ),
        (
            Interpolation::Higher,
            &[
                1.0, 1.0, 2.0, 1.0, 16.0, 2.0, 2.0, 2.0, 4.0, 4.0, 8.0, 128.0, 128.0, 512.0, 512.0,
                16.0, 32.0,
            ],
        ),
        (
            Interpolation::Midpoint,
            &[
                1.0, 1.0, 1.5, 1.0, 16.0, 1.5, 1.5, 2.0, 3.0, 4.0, 6.0, 96.0, 96.0, 384.0, 384.0,
                12.0, 24.0,
            ],
        ),
        (
            Interpolation::Nearest,
            &[
                1.0, 1.0, 1.0, 1.0, 16.0, 1.0, 2.0, 2.0, 2.0, 4.0, 4.0, 64.0, 128.0, 256.0, 512.0,
                8.0, 16.0,
            ],
        ),
    ];
}
