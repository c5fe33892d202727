//! `--op`: an operator of one input or, with `--with`, a reduction of two; and their parameters.

use clap::Args;
use reduce_kernels::{
    OfPairs, Operator, OperatorName, OperatorOptions, PairName, PairOptions, operator::Fields,
    with_operator, with_pair,
};

use crate::{ArgumentError, Arguments};

/// The parameters of operators and functions. Each takes a few of them.
#[derive(Args)]
pub(crate) struct Parameters {
    /// What var, std, mean_var, nanvar, nanstd, covariance and standardize subtract from the count
    /// (NumPy's ddof). 0 if not given.
    #[arg(long, visible_alias = "ddof", allow_negative_numbers = true)]
    pub(crate) correction: Option<f64>,
    /// The exponent of norm_p. 2 if not given.
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) p: Option<f64>,
    /// What keeps layer_norm, rms_norm, l2_normalize and standardize from dividing by 0, 1e-5 if
    /// not given; and the least length of a vector in cosine_similarity, 1e-8 if not given.
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) eps: Option<f64>,
    /// What softmax and log_softmax divide the elements by. 1 if not given.
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) temperature: Option<f64>,
    /// The difference at which huber goes from a square to a line. 1 if not given.
    #[arg(long, allow_negative_numbers = true)]
    delta: Option<f64>,
    /// The difference that all_close allows for any element. 1e-8 if not given.
    #[arg(long, allow_negative_numbers = true)]
    absolute: Option<f64>,
    /// The difference that all_close allows in addition, as a share of the second input's element.
    /// 1e-5 if not given.
    #[arg(long, allow_negative_numbers = true)]
    relative: Option<f64>,
}

impl Parameters {
    /// The parameters on the command line, each with the name of its option.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let all = [
            ("correction", self.correction),
            ("p", self.p),
            ("eps", self.eps),
            ("temperature", self.temperature),
            ("delta", self.delta),
            ("absolute", self.absolute),
            ("relative", self.relative),
        ];
        all.into_iter().filter_map(|(option, value)| Some((option, value?)))
    }

    /// Refuses a parameter that `name` does not take: it is a mistake, and would have no effect.
    pub(crate) fn check(&self, name: &'static str, takes: &[&str]) -> Result<(), ArgumentError> {
        match self.given().find(|(option, _)| !takes.contains(option)) {
            Some((option, _)) => Err(ArgumentError::Option { name, option }),
            None => Ok(()),
        }
    }
}

/// The reduction that `--op` names.
#[derive(Clone, Copy)]
pub(crate) enum Operation {
    OfOne(OperatorName, OperatorOptions),
    OfTwo(PairName, PairOptions),
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Operation::OfOne(operator, _) => operator.name(),
            Operation::OfTwo(pair, _) => pair.name(),
        }
    }

    /// The number of results.
    pub(crate) fn results(self) -> usize {
        fn results_of<O: Operator>(_: O) -> usize {
            O::Results::COUNT
        }
        match self {
            Operation::OfOne(operator, options) => {
                with_operator!(operator, options, operator => results_of(operator))
            }
            Operation::OfTwo(pair, options) => {
                with_pair!(pair, options, operator => results_of(OfPairs(operator)))
            }
        }
    }
}

impl Arguments {
    /// The reduction of as many inputs as are given, whose name is `name`.
    pub(crate) fn operation(&self, name: &str) -> Result<Operation, ArgumentError> {
        match self.with {
            None => self.of_one(name),
            Some(_) => self.of_two(name),
        }
    }

    fn of_one(&self, name: &str) -> Result<Operation, ArgumentError> {
        use OperatorName::{MeanVar, NanStd, NanVar, NormP, Std, Var};
        let operator: OperatorName = name.parse().map_err(|unknown| match name.parse() {
            Ok(pair) => ArgumentError::NeedsSecond(pair),
            Err(_) => ArgumentError::Operator(unknown),
        })?;
        let takes: &[&str] = match operator {
            Var | Std | MeanVar | NanVar | NanStd => &["correction"],
            NormP => &["p"],
            _ => &[],
        };
        self.parameters.check(operator.name(), takes)?;
        let default = OperatorOptions::default();
        let options = OperatorOptions {
            correction: self.parameters.correction.unwrap_or(default.correction),
            p: self.parameters.p.unwrap_or(default.p),
        };
        Ok(Operation::OfOne(operator, options))
    }

    fn of_two(&self, name: &str) -> Result<Operation, ArgumentError> {
        use PairName::{AllCloseOf, CosineSimilarityOf, CovarianceOf, HuberMean};
        let pair: PairName = name.parse().map_err(|unknown| match name.parse() {
            Ok(operator) => ArgumentError::TakesNoSecond(operator),
            Err(_) => ArgumentError::Pair(unknown),
        })?;
        let takes: &[&str] = match pair {
            HuberMean => &["delta"],
            CosineSimilarityOf => &["eps"],
            CovarianceOf => &["correction"],
            AllCloseOf => &["absolute", "relative"],
            _ => &[],
        };
        self.parameters.check(pair.name(), takes)?;
        let default = PairOptions::default();
        let options = PairOptions {
            delta: self.parameters.delta.unwrap_or(default.delta),
            eps: self.parameters.eps.unwrap_or(default.eps),
            correction: self.parameters.correction.unwrap_or(default.correction),
            absolute: self.parameters.absolute.unwrap_or(default.absolute),
            relative: self.parameters.relative.unwrap_or(default.relative),
        };
        Ok(Operation::OfTwo(pair, options))
    }
}
