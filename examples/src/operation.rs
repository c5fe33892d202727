//! `--op`: an operator of one input, or a reduction of two; and their parameters.

use clap::Args;
use reduce_kernels::{
    ElementType, Operator,
    by_name::{
        AppliedName, AppliedOptions, AppliedPairName, OperatorName, OperatorOptions, PairName,
        PairOptions, UnknownFunction, UnknownOperator, UnknownPair, UnknownPairFunction,
        UnknownScan, with_operator, with_pair,
    },
    operator::{Fields, InvalidParameter},
};

/// The parameters of operators and functions. Each takes a few of them.
#[derive(Clone, Debug, Args)]
pub struct Parameters {
    /// What var, std, mean_var, nanvar, nanstd, cumvar, cummean_var, covariance and standardize
    /// subtract from the count (NumPy's ddof). 0 if not given.
    #[arg(long, visible_alias = "ddof", allow_negative_numbers = true)]
    pub correction: Option<f64>,
    /// The exponent of norm_p. 2 if not given.
    #[arg(long, allow_negative_numbers = true)]
    pub p: Option<f64>,
    /// What keeps layer_norm, rms_norm, l2_normalize and standardize from dividing by 0, 1e-5 if
    /// not given; and the least length of a vector in cosine_similarity, 1e-8 if not given.
    #[arg(long, allow_negative_numbers = true)]
    pub eps: Option<f64>,
    /// What softmax and log_softmax divide the elements by. 1 if not given.
    #[arg(long, allow_negative_numbers = true)]
    pub temperature: Option<f64>,
    /// What the largest magnitude becomes in quantize, rms_norm_quantize and add_rms_norm_quantize.
    /// If not given, the largest number of the output's type, which is i8 if --type names no other.
    #[arg(long, allow_negative_numbers = true)]
    pub most: Option<f64>,
    /// The factor of the elements in masked_softmax and masked_log_softmax. 1 if not given.
    #[arg(long, allow_negative_numbers = true)]
    pub scale: Option<f64>,
    /// The difference at which huber goes from a square to a line. 1 if not given.
    #[arg(long, allow_negative_numbers = true)]
    pub delta: Option<f64>,
    /// The difference that all_close allows for any element. 1e-8 if not given.
    #[arg(long, allow_negative_numbers = true)]
    pub absolute: Option<f64>,
    /// The difference that all_close allows in addition, as a share of the second input's element.
    /// 1e-5 if not given.
    #[arg(long, allow_negative_numbers = true)]
    pub relative: Option<f64>,
}

impl Parameters {
    /// The parameters on the command line, each with the name of its option.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let all = [
            ("correction", self.correction),
            ("p", self.p),
            ("eps", self.eps),
            ("temperature", self.temperature),
            ("most", self.most),
            ("scale", self.scale),
            ("delta", self.delta),
            ("absolute", self.absolute),
            ("relative", self.relative),
        ];
        all.into_iter().filter_map(|(option, value)| Some((option, value?)))
    }

    /// Those of a function that results are applied with, whose output has a type if one was asked
    /// for.
    ///
    /// # Errors
    ///
    /// Names a parameter that the function does not take.
    pub fn applied(
        &self,
        function: AppliedFunction,
        output: Option<ElementType>,
    ) -> Result<AppliedOptions, OperationError> {
        use AppliedName::{
            LayerNorm, LogSoftmax, NormalizeL2, Quantize, RmsNorm, RmsNormQuantize, Softmax,
            Standardize,
        };
        use AppliedPairName::{
            AddLayerNorm, AddRmsNorm, AddRmsNormQuantize, MaskedLogSoftmax, MaskedSoftmax,
        };
        let takes: &[&str] = match function {
            AppliedFunction::OfOne(name) => match name {
                LayerNorm | RmsNorm | NormalizeL2 => &["eps"],
                Standardize => &["eps", "correction"],
                Softmax | LogSoftmax => &["temperature"],
                Quantize => &["most"],
                RmsNormQuantize => &["eps", "most"],
                _ => &[],
            },
            AppliedFunction::OfTwo(name) => match name {
                AddRmsNorm | AddLayerNorm => &["eps"],
                AddRmsNormQuantize => &["eps", "most"],
                MaskedSoftmax | MaskedLogSoftmax => &["scale"],
                _ => &[],
            },
        };
        self.check(function.name(), takes)?;
        let default = AppliedOptions::default();
        let most = output
            .map_or(default.most, |element| reduce_kernels::quantize::Quantize::to(element).most);
        Ok(AppliedOptions {
            eps: self.eps.unwrap_or(default.eps),
            correction: self.correction.unwrap_or(default.correction),
            temperature: self.temperature.unwrap_or(default.temperature),
            most: self.most.unwrap_or(most),
            scale: self.scale.unwrap_or(default.scale),
        })
    }

    /// Those of an operator, which a message calls `name`.
    ///
    /// # Errors
    ///
    /// Names a parameter that the operator does not take, or that is out of range.
    pub fn operator(
        &self,
        name: &'static str,
        operator: OperatorName,
    ) -> Result<OperatorOptions, OperationError> {
        use OperatorName::{MeanVar, NanStd, NanVar, NormP, Std, Var};
        let takes: &[&str] = match operator {
            Var | Std | MeanVar | NanVar | NanStd => &["correction"],
            NormP => &["p"],
            _ => &[],
        };
        self.check(name, takes)?;
        let default = OperatorOptions::default();
        let options = OperatorOptions {
            correction: self.correction.unwrap_or(default.correction),
            p: self.p.unwrap_or(default.p),
        };
        with_operator!(operator, options, operator => in_range(name, operator))?;
        Ok(options)
    }

    /// Refuses a parameter that `name` does not take: it is a mistake, and would have no effect.
    ///
    /// # Errors
    ///
    /// Names one such parameter.
    pub fn check(&self, name: &'static str, takes: &[&str]) -> Result<(), OperationError> {
        match self.given().find(|(option, _)| !takes.contains(option)) {
            Some((option, _)) => Err(OperationError::Option { name, option }),
            None => Ok(()),
        }
    }
}

/// Refuses parameters of an operator that are out of range.
fn in_range<O: Operator>(name: &'static str, operator: O) -> Result<(), OperationError> {
    let numbers = (O::PARAMETERS)(&operator);
    numbers.map(drop).map_err(|invalid| OperationError::Parameter { name, invalid })
}

/// Refuses the first of these options of a program that is given: `name` does not take it.
///
/// # Errors
///
/// Names the option.
pub fn refuse(
    name: &'static str,
    options: impl IntoIterator<Item = (&'static str, bool)>,
) -> Result<(), OperationError> {
    match options.into_iter().find(|&(_, given)| given) {
        Some((option, _)) => Err(OperationError::Option { name, option }),
        None => Ok(()),
    }
}

/// The function that `--apply` names.
#[derive(Clone, Copy, Debug)]
pub enum AppliedFunction {
    /// Of one input.
    OfOne(AppliedName),
    /// Of two inputs.
    OfTwo(AppliedPairName),
}

impl AppliedFunction {
    /// The function of as many inputs as are given, whose name is `name`.
    ///
    /// # Errors
    ///
    /// There is no such function of so many inputs.
    pub fn new(name: &str, second: SecondInput) -> Result<Self, OperationError> {
        let SecondInput { option, given } = second;
        match given {
            false => name.parse().map(Self::OfOne).map_err(|unknown| match name.parse() {
                Ok(function) => OperationError::FunctionNeedsSecond { function, option },
                Err(_) => OperationError::Function(unknown),
            }),
            true => name.parse().map(Self::OfTwo).map_err(|unknown| match name.parse() {
                Ok(function) => OperationError::FunctionTakesNoSecond { function, option },
                Err(_) => OperationError::PairFunction(unknown),
            }),
        }
    }

    /// The name of the function.
    pub fn name(self) -> &'static str {
        match self {
            AppliedFunction::OfOne(name) => name.name(),
            AppliedFunction::OfTwo(name) => name.name(),
        }
    }
}

/// Evaluates an expression with the application of a function. `$second` is read by those of two
/// inputs alone.
#[macro_export]
macro_rules! with_function {
    (
        $function:expr, $options:expr, $input:expr, $second:expr, $axes:expr,
        $applied:ident => $body:expr
    ) => {
        match $function {
            $crate::AppliedFunction::OfOne(name) => {
                reduce_kernels::with_applied!(name, $options, $input, $axes, $applied => $body)
            }
            $crate::AppliedFunction::OfTwo(name) => {
                reduce_kernels::with_applied_pair!(
                    name, $options, $input, $second, $axes, $applied => $body
                )
            }
        }
    };
}

/// The reduction that `--op` names.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// Of one input.
    OfOne(OperatorName, OperatorOptions),
    /// Of two inputs.
    OfTwo(PairName, PairOptions),
}

/// The option by which a program takes a second input.
#[derive(Clone, Copy, Debug)]
pub struct SecondInput {
    /// The name of the option.
    pub option: &'static str,
    /// Whether it is on the command line.
    pub given: bool,
}

/// An operation that does not exist, or does not go with the other arguments.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OperationError {
    /// No operator of one input has this name.
    #[error(transparent)]
    Operator(UnknownOperator),
    /// No reduction of two inputs has this name.
    #[error(transparent)]
    Pair(UnknownPair),
    /// The second input is missing.
    #[error("`{pair}` reduces two inputs: --{option} names the second")]
    NeedsSecond {
        /// The reduction.
        pair: PairName,
        /// The option that is missing.
        option: &'static str,
    },
    /// No function of one input has this name.
    #[error(transparent)]
    Function(UnknownFunction),
    /// No function of two inputs has this name.
    #[error(transparent)]
    PairFunction(UnknownPairFunction),
    /// No scan has this name.
    #[error(transparent)]
    Scan(UnknownScan),
    /// The second input of a function is missing.
    #[error("`{function}` takes two inputs: --{option} names the second")]
    FunctionNeedsSecond {
        /// The function.
        function: AppliedPairName,
        /// The option that is missing.
        option: &'static str,
    },
    /// There is a second input for a function of one.
    #[error(
        "`{function}` takes one input: with --{option}, --apply is one of {names}",
        names = AppliedPairName::names()
    )]
    FunctionTakesNoSecond {
        /// The function.
        function: AppliedName,
        /// The option of the second input.
        option: &'static str,
    },
    /// There is a second input for an operator of one.
    #[error(
        "`{operator}` reduces one input: with --{option}, --op is one of {names}",
        names = PairName::names()
    )]
    TakesNoSecond {
        /// The operator.
        operator: OperatorName,
        /// The option of the second input.
        option: &'static str,
    },
    /// A parameter that the operation does not take.
    #[error("`{name}` takes no --{option}")]
    Option {
        /// The operation.
        name: &'static str,
        /// The option of the parameter.
        option: &'static str,
    },
    /// A parameter is out of range.
    #[error("`{name}`: {invalid}")]
    Parameter {
        /// The operation.
        name: &'static str,
        /// The parameter and its value.
        invalid: InvalidParameter,
    },
}

impl Operation {
    /// The reduction of as many inputs as are given, whose name is `name`.
    ///
    /// # Errors
    ///
    /// There is no such operation of so many inputs, it does not take all of the parameters, or one
    /// of them is out of range.
    pub fn new(
        name: &str,
        parameters: &Parameters,
        second: SecondInput,
    ) -> Result<Self, OperationError> {
        match second.given {
            false => Self::of_one(name, parameters, second.option),
            true => Self::of_two(name, parameters, second.option),
        }
    }

    /// The name of the operator.
    pub fn name(self) -> &'static str {
        match self {
            Operation::OfOne(operator, _) => operator.name(),
            Operation::OfTwo(pair, _) => pair.name(),
        }
    }

    /// The number of results.
    pub fn results(self) -> usize {
        fn results_of<O: Operator>(_: O) -> usize {
            O::Results::COUNT
        }
        match self {
            Operation::OfOne(operator, options) => {
                with_operator!(operator, options, operator => results_of(operator))
            }
            Operation::OfTwo(pair, options) => {
                with_pair!(pair, options, operator => results_of(operator))
            }
        }
    }

    fn of_one(
        name: &str,
        parameters: &Parameters,
        option: &'static str,
    ) -> Result<Self, OperationError> {
        let operator: OperatorName = name.parse().map_err(|unknown| match name.parse() {
            Ok(pair) => OperationError::NeedsSecond { pair, option },
            Err(_) => OperationError::Operator(unknown),
        })?;
        Ok(Self::OfOne(operator, parameters.operator(operator.name(), operator)?))
    }

    fn of_two(
        name: &str,
        parameters: &Parameters,
        option: &'static str,
    ) -> Result<Self, OperationError> {
        use PairName::{AllClose, CosineSimilarity, Covariance, Huber};
        let pair: PairName = name.parse().map_err(|unknown| match name.parse() {
            Ok(operator) => OperationError::TakesNoSecond { operator, option },
            Err(_) => OperationError::Pair(unknown),
        })?;
        let takes: &[&str] = match pair {
            Huber => &["delta"],
            CosineSimilarity => &["eps"],
            Covariance => &["correction"],
            AllClose => &["absolute", "relative"],
            _ => &[],
        };
        parameters.check(pair.name(), takes)?;
        let default = PairOptions::default();
        let options = PairOptions {
            delta: parameters.delta.unwrap_or(default.delta),
            eps: parameters.eps.unwrap_or(default.eps),
            correction: parameters.correction.unwrap_or(default.correction),
            absolute: parameters.absolute.unwrap_or(default.absolute),
            relative: parameters.relative.unwrap_or(default.relative),
        };
        with_pair!(pair, options, operator => in_range(pair.name(), operator))?;
        Ok(Self::OfTwo(pair, options))
    }
}
