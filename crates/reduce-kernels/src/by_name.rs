//! Operators and functions by name, for programs that take a name from their user.
//!
//! A name parses, prints and lists all others. A macro goes from the name and its options to the
//! operator, whose type is known inside the macro's expression.
//!
//! ```
//! use reduce_kernels::{
//!     ElementType, TensorDescription,
//!     by_name::{OperatorName, OperatorOptions, with_operator},
//!     reduce,
//! };
//!
//! let x = TensorDescription::row_major(ElementType::F32, [8, 1024]);
//! let name: OperatorName = "norm_l2".parse()?;
//! let shape = with_operator!(name, OperatorOptions::default(), operator => {
//!     reduce(operator, &x).over(1).output_shape()?
//! });
//! assert_eq!(shape, [8, 1]);
//! let unknown = "mode".parse::<OperatorName>().unwrap_err();
//! assert!(unknown.to_string().starts_with("unknown operator `mode`: expected one of sum, prod,"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::{fmt, str::FromStr};

use reduce_planner::ElementType;

use crate::{quantize::Quantize, scan::FUNCTIONS};

#[doc(hidden)]
pub use crate::two_inputs::pair_operators;
#[doc(inline)]
pub use crate::{
    one_input::{OperatorName, OperatorOptions, UnknownOperator, with_operator},
    two_inputs::{PairName, PairOptions, UnknownPair, with_pair},
};

/// The parameters of functions that are chosen by name, for programs that take both from their
/// user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AppliedOptions {
    /// What keeps normalisations from dividing by 0; 1e-5 by default.
    pub eps: f64,
    /// The correction of the variance in `standardize`; 0 by default.
    pub correction: f64,
    /// The temperature of softmax and log-softmax; 1 by default.
    pub temperature: f64,
    /// What the largest magnitude becomes where elements are quantised; 127 by default.
    pub most: f64,
    /// The factor of the elements in masked softmaxes; 1 by default.
    pub scale: f64,
}

impl Default for AppliedOptions {
    fn default() -> Self {
        Self { eps: 1e-5, correction: 0.0, temperature: 1.0, most: 127.0, scale: 1.0 }
    }
}

impl AppliedOptions {
    /// Quantisation to `most`, by default of i8.
    #[doc(hidden)]
    #[must_use]
    pub const fn quantize(self) -> Quantize {
        Quantize { most: self.most, ..Quantize::to(ElementType::I8) }
    }
}

/// The functions of [`normalize`](crate::normalize) and [`quantize`](mod@crate::quantize) of one
/// tensor, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AppliedName {
    /// [`Softmax`](crate::normalize::Softmax), or
    /// [`TemperedSoftmax`](crate::normalize::TemperedSoftmax).
    Softmax,
    /// [`LogSoftmax`](crate::normalize::LogSoftmax), or
    /// [`TemperedLogSoftmax`](crate::normalize::TemperedLogSoftmax).
    LogSoftmax,
    /// [`LayerNorm`](crate::normalize::LayerNorm).
    LayerNorm,
    /// [`RmsNorm`](crate::normalize::RmsNorm).
    RmsNorm,
    /// [`NormalizeL2`](crate::normalize::NormalizeL2).
    NormalizeL2,
    /// [`Standardize`](crate::normalize::Standardize).
    Standardize,
    /// [`Quantize`].
    Quantize,
    /// [`RmsNormQuantize`](crate::quantize::RmsNormQuantize).
    RmsNormQuantize,
}

impl AppliedName {
    /// Every function.
    pub const ALL: [AppliedName; 8] = [
        AppliedName::Softmax,
        AppliedName::LogSoftmax,
        AppliedName::LayerNorm,
        AppliedName::RmsNorm,
        AppliedName::NormalizeL2,
        AppliedName::Standardize,
        AppliedName::Quantize,
        AppliedName::RmsNormQuantize,
    ];

    /// The name: that of the function in this crate.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            AppliedName::Softmax => "softmax",
            AppliedName::LogSoftmax => "log_softmax",
            AppliedName::LayerNorm => "layer_norm",
            AppliedName::RmsNorm => "rms_norm",
            AppliedName::NormalizeL2 => "l2_normalize",
            AppliedName::Standardize => "standardize",
            AppliedName::Quantize => "quantize",
            AppliedName::RmsNormQuantize => "rms_norm_quantize",
        }
    }

    /// The names of all functions, separated by commas.
    #[must_use]
    pub fn names() -> String {
        AppliedName::ALL.map(AppliedName::name).join(", ")
    }
}

impl fmt::Display for AppliedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a name that no [`AppliedName`] has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown function `{0}`: expected one of {names}", names = AppliedName::names())]
pub struct UnknownFunction(String);

impl FromStr for AppliedName {
    type Err = UnknownFunction;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = AppliedName::ALL.into_iter().find(|function| function.name() == name);
        known.ok_or_else(|| UnknownFunction(name.to_owned()))
    }
}

/// Evaluates an expression with the applied reduction of a function that is known by its
/// [`AppliedName`].
///
/// ```
/// use reduce_kernels::{
///     ElementType, TensorDescription,
///     by_name::{AppliedName, AppliedOptions, with_applied},
/// };
///
/// let x = TensorDescription::row_major(ElementType::F32, [64, 1000]);
/// let name: AppliedName = "softmax".parse()?;
/// let options = AppliedOptions::default();
/// let elements = with_applied!(name, options, &x, 1, applied => applied.problems()?.0.elements());
/// assert_eq!(elements, 64_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! with_applied {
    ($name:expr, $options:expr, $input:expr, $axes:expr, $applied:ident => $body:expr) => {{
        let options: $crate::by_name::AppliedOptions = $options;
        let temperature = options.temperature;
        #[allow(unreachable_patterns, reason = "inside this crate all names are known")]
        match $name {
            $crate::by_name::AppliedName::Softmax if temperature == 1.0 => {
                let $applied = $crate::normalize::Softmax.of($input, $axes);
                $body
            }
            $crate::by_name::AppliedName::Softmax => {
                let $applied = $crate::normalize::TemperedSoftmax { temperature }.of($input, $axes);
                $body
            }
            $crate::by_name::AppliedName::LogSoftmax if temperature == 1.0 => {
                let $applied = $crate::normalize::LogSoftmax.of($input, $axes);
                $body
            }
            $crate::by_name::AppliedName::LogSoftmax => {
                let $applied =
                    $crate::normalize::TemperedLogSoftmax { temperature }.of($input, $axes);
                $body
            }
            $crate::by_name::AppliedName::LayerNorm => {
                let $applied = $crate::normalize::LayerNorm { eps: options.eps }.of($input, $axes);
                $body
            }
            $crate::by_name::AppliedName::RmsNorm => {
                let $applied = $crate::normalize::RmsNorm { eps: options.eps }.of($input, $axes);
                $body
            }
            $crate::by_name::AppliedName::NormalizeL2 => {
                let $applied =
                    $crate::normalize::NormalizeL2 { eps: options.eps }.of($input, $axes);
                $body
            }
            $crate::by_name::AppliedName::Standardize => {
                let (correction, eps) = (options.correction, options.eps);
                let $applied = $crate::normalize::Standardize { correction, eps }.of($input, $axes);
                $body
            }
            $crate::by_name::AppliedName::Quantize => {
                let $applied = options.quantize().of($input, $axes);
                $body
            }
            $crate::by_name::AppliedName::RmsNormQuantize => {
                let (eps, quantize) = (options.eps, options.quantize());
                let $applied =
                    $crate::quantize::RmsNormQuantize { eps, quantize }.of($input, $axes);
                $body
            }
            _ => unreachable!("the macro has the names of its own crate"),
        }
    }};
}

pub use with_applied;

/// The functions of [`normalize`](crate::normalize) and [`quantize`](mod@crate::quantize) of two
/// tensors, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AppliedPairName {
    /// [`AddRmsNorm`](crate::normalize::AddRmsNorm).
    AddRmsNorm,
    /// [`AddLayerNorm`](crate::normalize::AddLayerNorm).
    AddLayerNorm,
    /// [`AddRmsNormQuantize`](crate::quantize::AddRmsNormQuantize).
    AddRmsNormQuantize,
    /// [`MaskedSoftmax`](crate::normalize::MaskedSoftmax).
    MaskedSoftmax,
    /// [`MaskedLogSoftmax`](crate::normalize::MaskedLogSoftmax).
    MaskedLogSoftmax,
}

impl AppliedPairName {
    /// Every function.
    pub const ALL: [AppliedPairName; 5] = [
        AppliedPairName::AddRmsNorm,
        AppliedPairName::AddLayerNorm,
        AppliedPairName::AddRmsNormQuantize,
        AppliedPairName::MaskedSoftmax,
        AppliedPairName::MaskedLogSoftmax,
    ];

    /// The name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            AppliedPairName::AddRmsNorm => "add_rms_norm",
            AppliedPairName::AddLayerNorm => "add_layer_norm",
            AppliedPairName::AddRmsNormQuantize => "add_rms_norm_quantize",
            AppliedPairName::MaskedSoftmax => "masked_softmax",
            AppliedPairName::MaskedLogSoftmax => "masked_log_softmax",
        }
    }

    /// The names of all functions, separated by commas.
    #[must_use]
    pub fn names() -> String {
        AppliedPairName::ALL.map(AppliedPairName::name).join(", ")
    }
}

impl fmt::Display for AppliedPairName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a name that no [`AppliedPairName`] has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown function `{0}` of two inputs: expected one of {names}",
    names = AppliedPairName::names()
)]
pub struct UnknownPairFunction(String);

impl FromStr for AppliedPairName {
    type Err = UnknownPairFunction;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = AppliedPairName::ALL.into_iter().find(|function| function.name() == name);
        known.ok_or_else(|| UnknownPairFunction(name.to_owned()))
    }
}

/// Evaluates an expression with the applied reduction of a function of two inputs that is known by
/// its [`AppliedPairName`].
///
/// ```
/// use reduce_kernels::{
///     ElementType, TensorDescription,
///     by_name::{AppliedOptions, AppliedPairName, with_applied_pair},
/// };
///
/// let x = TensorDescription::row_major(ElementType::BF16, [64, 1000]);
/// let name: AppliedPairName = "add_rms_norm".parse()?;
/// let options = AppliedOptions::default();
/// let elements = with_applied_pair!(name, options, &x, &x, 1, applied => {
///     applied.problems()?.0.elements()
/// });
/// assert_eq!(elements, 64_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! with_applied_pair {
    (
        $name:expr, $options:expr, $first:expr, $second:expr, $axes:expr,
        $applied:ident => $body:expr
    ) => {{
        let options: $crate::by_name::AppliedOptions = $options;
        let (eps, scale) = (options.eps, options.scale);
        #[allow(unreachable_patterns, reason = "inside this crate all names are known")]
        match $name {
            $crate::by_name::AppliedPairName::AddRmsNorm => {
                let $applied = $crate::normalize::AddRmsNorm { eps }.of($first, $second, $axes);
                $body
            }
            $crate::by_name::AppliedPairName::AddLayerNorm => {
                let $applied = $crate::normalize::AddLayerNorm { eps }.of($first, $second, $axes);
                $body
            }
            $crate::by_name::AppliedPairName::AddRmsNormQuantize => {
                let quantize = options.quantize();
                let function = $crate::quantize::AddRmsNormQuantize { eps, quantize };
                let $applied = function.of($first, $second, $axes);
                $body
            }
            $crate::by_name::AppliedPairName::MaskedSoftmax => {
                let function = $crate::normalize::MaskedSoftmax { scale };
                let $applied = function.of($first, $second, $axes);
                $body
            }
            $crate::by_name::AppliedPairName::MaskedLogSoftmax => {
                let function = $crate::normalize::MaskedLogSoftmax { scale };
                let $applied = function.of($first, $second, $axes);
                $body
            }
            _ => unreachable!("the macro has the names of its own crate"),
        }
    }};
}

pub use with_applied_pair;

/// The name of a scan: that of a function of [`scan`](mod@crate::scan), or that of any operator of
/// one input.
///
/// ```
/// use reduce_kernels::{
///     ElementType, TensorDescription,
///     by_name::{OperatorName, OperatorOptions, ScanName, with_operator},
///     scan::scan,
/// };
///
/// let x = TensorDescription::row_major(ElementType::I32, [8, 1024]);
/// let name: ScanName = "cumsum".parse()?;
/// assert_eq!(name.operator(), OperatorName::Sum);
/// let elements = with_operator!(name.operator(), OperatorOptions::default(), operator => {
///     scan(operator, &x).over(1).problem()?.elements()
/// });
/// assert_eq!(elements, 8192);
/// assert_eq!("norm_l2".parse::<ScanName>()?.operator(), OperatorName::NormL2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScanName {
    name: &'static str,
    operator: OperatorName,
}

impl ScanName {
    /// The name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// The operator that scans.
    #[must_use]
    pub const fn operator(self) -> OperatorName {
        self.operator
    }

    /// Each function.
    pub fn functions() -> impl Iterator<Item = Self> {
        FUNCTIONS.iter().map(|&(name, operator)| Self { name, operator })
    }

    /// The names of all functions, separated by commas.
    #[must_use]
    pub fn names() -> String {
        Self::functions().map(Self::name).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for ScanName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

/// The error for a name that no [`ScanName`] has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown scan `{0}`: expected one of {functions}; or an operator, one of {operators}",
    functions = ScanName::names(),
    operators = OperatorName::names()
)]
pub struct UnknownScan(String);

impl FromStr for ScanName {
    type Err = UnknownScan;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if let Some(function) = ScanName::functions().find(|function| function.name == name) {
            return Ok(function);
        }
        let operator: OperatorName = name.parse().map_err(|_| UnknownScan(name.to_owned()))?;
        Ok(Self { name: operator.name(), operator })
    }
}
