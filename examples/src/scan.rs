//! `--scan`: the results of an operator at each position.

use clap::Args;
use reduce_kernels::{
    Axes, ElementType, Input, Operator,
    by_name::{OperatorName, OperatorOptions, ScanName},
    operator::One,
    scan::Scan,
};

use crate::{Function, Operation, OperationError, Parameters};

/// What scans take on a command line.
#[derive(Clone, Debug, Args)]
pub struct ScanArguments {
    #[arg(
        long,
        conflicts_with_all = ["op", "apply"],
        value_name = "NAME",
        help = format!(
            "Instead of one result, that of an operator at each position of the axes, of the \
             elements up to it: one of {}; or any operator of one input, such as {}. Outputs have \
             the input's shape",
            ScanName::names(),
            OperatorName::NormL2
        )
    )]
    scan: Option<String>,
    /// Leave the element at each position out of the result of --scan there.
    #[arg(long)]
    exclusive: bool,
    /// Scan from the last position to the first.
    #[arg(long)]
    reverse: bool,
}

impl ScanArguments {
    /// The scan, if there is one. Parameters that it does not take are a mistake.
    ///
    /// # Errors
    ///
    /// No scan has this name, it does not take all of the parameters, or one of them is out of
    /// range.
    pub fn scanned(&self, parameters: &Parameters) -> Result<Option<Scanned>, OperationError> {
        let Some(name) = &self.scan else { return Ok(None) };
        let name: ScanName = name.parse().map_err(OperationError::Scan)?;
        let options = parameters.operator(name.name(), name.operator())?;
        let (exclusive, reverse) = (self.exclusive, self.reverse);
        Ok(Some(Scanned { name, options, exclusive, reverse }))
    }

    /// The options that nothing but a scan takes, and whether each is on the command line.
    pub fn given(&self) -> [(&'static str, bool); 2] {
        [("exclusive", self.exclusive), ("reverse", self.reverse)]
    }
}

/// The scan that `--scan` names.
#[derive(Clone, Copy, Debug)]
pub struct Scanned {
    /// The name on the command line.
    pub name: ScanName,
    /// The parameters of its operator.
    pub options: OperatorOptions,
    /// Whether the element at a position is left out of the result there.
    pub exclusive: bool,
    /// Whether it goes from the last position to the first.
    pub reverse: bool,
}

impl Scanned {
    /// The number of results.
    pub fn results(self) -> usize {
        Operation::OfOne(self.name.operator(), self.options).results()
    }

    /// What it computes.
    pub fn function(self) -> Function {
        let Self { name, exclusive, reverse, .. } = self;
        Function::Scan { scan: name.name(), exclusive, reverse }
    }

    /// A scan of its operator over these axes, to this type of the first result and with this
    /// accumulator where they are given.
    pub fn described<'a, O: Operator<Inputs = One>, T: Input>(
        self,
        scan: Scan<'a, O, T>,
        axes: &[usize],
        output: Option<ElementType>,
        accumulator: Option<ElementType>,
    ) -> Scan<'a, O, T> {
        let mut scan = scan.over(Axes::List(axes.to_vec()));
        if self.exclusive {
            scan = scan.exclusive();
        }
        if self.reverse {
            scan = scan.reverse();
        }
        if let Some(element) = output {
            scan = scan.output_type(element);
        }
        match accumulator {
            Some(element) => scan.accumulate_in(element),
            None => scan,
        }
    }
}
