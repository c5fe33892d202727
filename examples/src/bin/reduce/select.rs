//! `--op` of selections: the largest or smallest elements, the k-th smallest, medians and
//! quantiles, of all elements or of those that are not NaN.

use std::io;

use clap::Args;
use reduce_examples::{Array, Number, OverArgument, ResultError, download, refuse};
use reduce_kernels::{
    Axes, ElementType, ReduceError,
    cubecl::{prelude::*, std::tensor::TensorHandle},
    device_of,
    planner::{Planned, TopKPlan},
    quantiles::{Quantiles, quantiles},
    top_k::{Selected, TopK, largest, smallest},
};
use reduce_programs::{Backend, OnDevice, command_line::say, gigabytes_per_second};
use serde::Serialize;

use crate::{ArgumentError, Arguments, Results, time, upload};

/// The names of the selections.
pub(crate) const NAMES: &str =
    "top_k, top_k_mask, kth_value, median, quantile, nanmedian, nanquantile";

/// What selections take.
#[derive(Args)]
pub(crate) struct Options {
    /// How many elements top_k gives of each slice, with their positions; how many top_k_mask
    /// keeps; and which one kth_value gives, counted from 1, the smallest.
    #[arg(long)]
    k: Option<usize>,
    /// The quantiles, from 0 to 1, such as 0.1,0.5,0.9. The result has an axis of them, the first.
    #[arg(long, value_delimiter = ',')]
    q: Vec<f64>,
    /// The smallest elements for top_k and top_k_mask, rather than the largest.
    #[arg(long)]
    smallest: bool,
    /// Probabilities in place of the values of top_k, which add up to 1 over these elements. --type
    /// is their type.
    #[arg(long)]
    probabilities: Option<OverArgument>,
    /// What top_k_mask writes in place of all other elements. [default: -inf]
    #[arg(long, allow_negative_numbers = true)]
    fill: Option<f32>,
}

/// The selection that `--op` names.
#[derive(Clone, Debug)]
pub(crate) enum Selection {
    Largest(usize),
    Smallest(usize),
    /// A mask of the largest, or of the smallest.
    Mask {
        k: usize,
        smallest: bool,
        fill: f32,
    },
    Kth(usize),
    Median(Counted),
    Quantiles(Counted, Vec<f64>),
}

/// The elements that quantiles are of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counted {
    All,
    Numbers,
}

impl Selection {
    fn name(&self) -> &'static str {
        match self {
            Selection::Largest(_) | Selection::Smallest(_) => "top_k",
            Selection::Mask { .. } => "top_k_mask",
            Selection::Kth(_) => "kth_value",
            Selection::Median(Counted::All) => "median",
            Selection::Median(Counted::Numbers) => "nanmedian",
            Selection::Quantiles(Counted::All, _) => "quantile",
            Selection::Quantiles(Counted::Numbers, _) => "nanquantile",
        }
    }

    /// The number of results.
    fn results(&self) -> usize {
        match self {
            Selection::Mask { .. } | Selection::Median(_) | Selection::Quantiles(..) => 1,
            _ => 2,
        }
    }
}

impl Arguments {
    /// The selection, if `--op` names one. Options that it does not have are a mistake, and so are
    /// those of selections without one.
    pub(crate) fn selection(&self) -> Result<Option<Selection>, ArgumentError> {
        let Options { k, ref q, smallest, probabilities, fill } = self.selections;
        let Some(op) = self.op.as_deref() else { return Ok(None) };
        let needed = |name| k.ok_or(ArgumentError::Needs { name, option: "k" });
        let selection = match op {
            "top_k" if smallest => Selection::Smallest(needed("top_k")?),
            "top_k" => Selection::Largest(needed("top_k")?),
            "top_k_mask" => {
                let (k, fill) = (needed("top_k_mask")?, fill.unwrap_or(f32::NEG_INFINITY));
                Selection::Mask { k, smallest, fill }
            }
            "kth_value" => Selection::Kth(needed("kth_value")?),
            "median" => Selection::Median(Counted::All),
            "nanmedian" => Selection::Median(Counted::Numbers),
            "quantile" => Selection::Quantiles(Counted::All, q.clone()),
            "nanquantile" => Selection::Quantiles(Counted::Numbers, q.clone()),
            _ => return Ok(None),
        };
        let name = selection.name();
        let takes_q = matches!(selection, Selection::Quantiles(..));
        if takes_q && q.is_empty() {
            return Err(ArgumentError::Needs { name, option: "q" });
        }
        self.parameters.check(name, &[])?;
        let is_mask = matches!(selection, Selection::Mask { .. });
        let is_quantile = selection.results() == 1 && !is_mask;
        let has_type = is_quantile || probabilities.is_some();
        let others = [
            ("k", k.is_some() && is_quantile),
            ("q", !q.is_empty() && !takes_q),
            ("smallest", smallest && name != "top_k" && !is_mask),
            ("probabilities", probabilities.is_some() && name != "top_k"),
            ("fill", fill.is_some() && !is_mask),
            ("with", self.with.is_some()),
            ("block", self.block.is_some()),
            ("segments", self.segments.is_some()),
            ("keys", self.keys.is_some()),
            ("accumulate", self.accumulate.is_some()),
            ("type", self.result_type.is_some() && !has_type),
        ];
        refuse(name, others)?;
        refuse(name, self.scans.given())?;
        self.check_files(name, selection.results())?;
        Ok(Some(selection))
    }

    /// Refuses the options of selections for an operator that is none.
    pub(crate) fn check_no_selection(&self, name: &'static str) -> Result<(), ArgumentError> {
        let Options { k, ref q, smallest, probabilities, fill } = self.selections;
        let given = [
            ("k", k.is_some()),
            ("q", !q.is_empty()),
            ("smallest", smallest),
            ("probabilities", probabilities.is_some()),
            ("fill", fill.is_some()),
        ];
        Ok(refuse(name, given)?)
    }
}

/// What the program tells about a selection.
#[derive(Serialize)]
pub(crate) struct Report {
    op: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    k: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    q: Vec<f64>,
    dtype: ElementType,
    shape: Vec<usize>,
    axes: Vec<usize>,
    output_shape: Vec<usize>,
    device: String,
    backend: String,
    compiler: &'static str,
    plan: Option<TopKPlan>,
    plan_in_words: String,
    microseconds: f64,
    gigabytes_per_second: f64,
    #[serde(flatten)]
    results: Results,
}

/// A selection to run.
#[derive(Clone, Copy)]
pub(crate) struct Work<'a> {
    pub(crate) arguments: &'a Arguments,
    pub(crate) selection: &'a Selection,
    pub(crate) input: &'a Array,
    pub(crate) axes: &'a [usize],
}

impl OnDevice for Work<'_> {
    type Output = Result<(Report, Vec<Array>), ResultError>;

    fn on(self, client: &Client, backend: Backend, name: &str) -> Self::Output {
        let tensor = upload(client, self.input);
        let empty = self.input.shape.contains(&0);
        let (plan, (mut outputs, microseconds)) = match self.elements(&tensor) {
            Some(selection) => {
                let plan = match empty || selection.output_shape()?.contains(&0) {
                    true => None,
                    false => Some(self.planned(client, &selection)?),
                };
                let run = || {
                    if let &Selection::Mask { fill, .. } = self.selection {
                        return Ok(vec![selection.clone().keep_only(client, fill)?]);
                    }
                    let Selected { values, positions } = selection.clone().run(client)?;
                    Ok(vec![values, positions])
                };
                (plan, time(client, run)?)
            }
            None => {
                let plan = match empty {
                    true => None,
                    false => {
                        let plan = self.quantiles(&tensor).plan(client)?;
                        Some((plan, plan.to_string()))
                    }
                };
                (plan, time(client, || Ok(vec![self.quantiles(&tensor).run(client)?]))?)
            }
        };
        if let Selection::Median(_) = self.selection {
            // One quantile has no axis of its own.
            outputs[0].metadata.shape.remove(0);
            outputs[0].metadata.strides.remove(0);
        }
        let results = download(client, &outputs)?;
        let bytes = self.input.bytes.len() + results.iter().map(|it| it.bytes.len()).sum::<usize>();
        let (k, q) = match self.selection {
            &(Selection::Largest(k)
            | Selection::Smallest(k)
            | Selection::Mask { k, .. }
            | Selection::Kth(k)) => (Some(k), Vec::new()),
            Selection::Median(_) => (None, Vec::new()),
            Selection::Quantiles(_, q) => (None, q.clone()),
        };
        let (plan, plan_in_words) = plan.unzip();
        let report = Report {
            op: self.selection.name(),
            k,
            q,
            dtype: self.input.element,
            shape: self.input.shape.clone(),
            axes: self.axes.to_vec(),
            output_shape: results[0].shape.clone(),
            device: name.to_owned(),
            backend: backend.to_string(),
            compiler: client.name(),
            plan,
            plan_in_words: plan_in_words
                .unwrap_or_else(|| "nothing to launch: the result has no elements".into()),
            microseconds,
            gigabytes_per_second: gigabytes_per_second(bytes as u64, microseconds),
            results: Results::new(&results),
        };
        Ok((report, results))
    }
}

impl Work<'_> {
    /// The elements of a tensor that are selected, unless quantiles are.
    fn elements<'t>(&self, tensor: &'t TensorHandle) -> Option<TopK<'t, TensorHandle>> {
        let selection = match *self.selection {
            Selection::Largest(k) => largest(k, tensor),
            Selection::Smallest(k) | Selection::Mask { k, smallest: true, .. } => {
                smallest(k, tensor)
            }
            Selection::Mask { k, .. } => largest(k, tensor),
            Selection::Kth(k) => smallest(k, tensor).nan_last().only_last(),
            Selection::Median(_) | Selection::Quantiles(..) => return None,
        };
        let axes = Axes::List(self.axes.to_vec());
        let selection = selection.over(axes).keep_dims(self.arguments.keepdims);
        let Some(over) = self.arguments.selections.probabilities else { return Some(selection) };
        let selection = selection.probabilities(over.into());
        Some(match self.arguments.element() {
            Some(element) => selection.value_type(element),
            None => selection,
        })
    }

    /// The plan of a selection, and what it says of all launches.
    fn planned(
        &self,
        client: &Client,
        selection: &TopK<'_, TensorHandle>,
    ) -> Result<(TopKPlan, String), ResultError> {
        let (problem, choice) = match *self.selection {
            Selection::Mask { fill, .. } => {
                let mask = selection.clone().masked(fill);
                (mask.problem()?, mask.choose(client)?)
            }
            _ => (selection.problem()?, selection.choose(client)?),
        };
        let sentence = problem.sentence(&choice.plan, &device_of(client));
        Ok((choice.plan, sentence.map_err(ReduceError::from)?))
    }

    /// The quantiles of a tensor.
    fn quantiles<'t>(&self, tensor: &'t TensorHandle) -> Quantiles<'t, TensorHandle> {
        let (counted, q) = match self.selection {
            Selection::Quantiles(counted, q) => (*counted, q.clone()),
            Selection::Median(counted) => (*counted, vec![0.5]),
            _ => (Counted::All, vec![0.5]),
        };
        let axes = Axes::List(self.axes.to_vec());
        let found = quantiles(q, tensor).over(axes).keep_dims(self.arguments.keepdims);
        let found = match counted {
            Counted::All => found,
            Counted::Numbers => found.ignore_nan(),
        };
        match self.arguments.element() {
            Some(element) => found.output_type(element),
            None => found,
        }
    }
}

pub(crate) fn print(report: &Report) -> io::Result<()> {
    let Report { op, dtype, shape, axes, output_shape, .. } = report;
    say(format_args!("{op} of {dtype} {shape:?} over axes {axes:?} gives {output_shape:?}"))?;
    say(format_args!("plan: {}", report.plan_in_words))?;
    say(format_args!("device: {} through {}", report.device, report.compiler))?;
    say(format_args!(
        "time: {:.1} us, {:.2} GB/s",
        report.microseconds, report.gigabytes_per_second
    ))?;
    for values in report.results.list().iter().filter_map(|(_, values)| *values) {
        let text: Vec<String> = values.iter().map(Number::to_string).collect();
        say(format_args!("values: {}", text.join(" ")))?;
    }
    Ok(())
}
