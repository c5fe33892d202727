//! `--apply`: a function of each slice that gives an array of the input's shape.

use std::{io, iter};

use reduce_examples::{Array, Number, OperationError, ResultError, download};
use reduce_kernels::{
    Axes, ElementType, Input, Operator, ReduceError, TensorDescription,
    by_name::{AppliedName, AppliedOptions, with_applied},
    cubecl::{prelude::*, std::tensor::TensorHandle},
    normalize::AppliedReduction,
    operator::{Apply, Arity, Fields, One},
    planner::{AppliedKind, AppliedPlan, Choice, row_major_strides},
    quantize::blocks_of,
};
use reduce_programs::{Backend, OnDevice, command_line::say, gigabytes_per_second};
use serde::Serialize;

use crate::{ArgumentError, Arguments, MOST_SHOWN, time, upload};

impl Arguments {
    /// The function and what it depends on; options that it does not have are a mistake.
    pub(crate) fn applied(&self) -> Result<Option<(AppliedName, AppliedOptions)>, ArgumentError> {
        let Some(function) = self.apply else { return Ok(None) };
        let options = self.parameters.applied(function)?;
        self.check_no_selection(function.name())?;
        let others = [("keepdims", self.keepdims), ("accumulate", self.accumulate.is_some())];
        if let Some((option, _)) = others.into_iter().find(|&(_, given)| given) {
            return Err(OperationError::Option { name: function.name(), option }.into());
        }
        let any = TensorDescription::row_major(ElementType::F32, [1, 1]);
        let results = with_applied!(function, options, &any, 1, applied => results_of(&applied));
        let outputs = if self.output.len() > 1 { 1 + results } else { 1 };
        self.check_files(function.name(), outputs)?;
        Ok(Some((function, options)))
    }
}

/// Number of results that are applied.
fn results_of<O: Operator, F: Apply<Results = O::Results>, T: Input>(
    _applied: &AppliedReduction<'_, O, F, T>,
) -> usize {
    O::Results::COUNT
}

/// What the program tells about an applied reduction.
#[derive(Serialize)]
pub(crate) struct Report {
    apply: &'static str,
    dtype: ElementType,
    shape: Vec<usize>,
    axes: Vec<usize>,
    output_dtype: ElementType,
    device: String,
    backend: String,
    compiler: &'static str,
    plan: Option<AppliedPlan>,
    plan_in_words: String,
    expected_microseconds: f64,
    refused: Vec<Refused>,
    microseconds: f64,
    gigabytes_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Vec<Number>>,
}

/// A plan that was not taken.
#[derive(Serialize)]
struct Refused {
    plan: AppliedKind,
    reason: String,
}

/// An applied reduction to run.
#[derive(Clone, Copy)]
pub(crate) struct Work<'a> {
    pub(crate) function: AppliedName,
    pub(crate) options: AppliedOptions,
    pub(crate) output: Option<ElementType>,
    /// Whether the results that are applied are wanted too.
    pub(crate) with_results: bool,
    /// The axis that is split into blocks, and the elements of a block.
    pub(crate) block: Option<(usize, usize)>,
    pub(crate) input: &'a Array,
    pub(crate) axes: &'a [usize],
}

impl OnDevice for Work<'_> {
    type Output = Result<(Report, Vec<Array>), ResultError>;

    fn on(self, client: &Client, backend: Backend, name: &str) -> Self::Output {
        let whole = upload(client, self.input);
        let (tensor, axes) = match self.block {
            Some((axis, block)) => (blocks_of(&whole, axis, block)?, vec![axis + 1]),
            None => (whole, self.axes.to_vec()),
        };
        let axes = || Axes::List(axes.clone());
        let choice = with_applied!(self.function, self.options, &tensor, axes(), applied => {
            self.typed(applied).choose(client)?
        });
        let (outputs, microseconds) = time(client, || {
            with_applied!(self.function, self.options, &tensor, axes(), applied => {
                Ok(self.outputs(client, self.typed(applied))?)
            })
        })?;
        let mut arrays = download(client, &outputs)?;
        if let Some((axis, _)) = self.block {
            for (nth, array) in arrays.iter_mut().enumerate() {
                // A block has one result.
                array.shape.remove(axis + 1);
                if nth == 0 {
                    array.shape = self.input.shape.clone();
                }
                array.strides = row_major_strides(&array.shape);
            }
        }
        let report = self.report(backend, name, client.name(), choice, &arrays[0], microseconds);
        Ok((report, arrays))
    }
}

impl Work<'_> {
    /// The output, and the results if they are wanted.
    fn outputs<O: Operator, F: Apply<Results = O::Results, Outputs = One>>(
        self,
        client: &Client,
        applied: AppliedReduction<'_, O, F, TensorHandle>,
    ) -> Result<Vec<TensorHandle>, ReduceError> {
        if !self.with_results {
            return Ok(vec![applied.run(client)?]);
        }
        let (output, results) = applied.run_with_results(client)?;
        Ok(iter::once(output).chain(O::Results::into_list(results)).collect())
    }

    fn typed<'a, O: Operator, F: Apply<Results = O::Results, Outputs = One>, T: Input>(
        self,
        applied: AppliedReduction<'a, O, F, T>,
    ) -> AppliedReduction<'a, O, F, T> {
        match self.output {
            Some(element) => applied.output_type(element),
            None => applied,
        }
    }

    fn report(
        self,
        backend: Backend,
        device: &str,
        compiler: &'static str,
        choice: Choice<AppliedPlan>,
        array: &Array,
        microseconds: f64,
    ) -> Report {
        let elements: usize = array.shape.iter().product();
        let bytes = elements * (self.input.element.bytes() + array.element.bytes());
        Report {
            apply: self.function.name(),
            dtype: self.input.element,
            shape: self.input.shape.clone(),
            axes: self.axes.to_vec(),
            output_dtype: array.element,
            device: device.to_owned(),
            backend: backend.to_string(),
            compiler,
            plan: (elements > 0).then_some(choice.plan),
            plan_in_words: match elements {
                0 => "nothing to launch: there are no elements".into(),
                _ => choice.plan.to_string(),
            },
            expected_microseconds: choice.expected_microseconds(),
            refused: choice
                .refused
                .iter()
                .map(|refusal| Refused { plan: refusal.kind, reason: refusal.reason.to_string() })
                .collect(),
            microseconds,
            gigabytes_per_second: gigabytes_per_second(bytes as u64, microseconds),
            values: (elements <= MOST_SHOWN).then(|| array.values()),
        }
    }
}

pub(crate) fn print(report: &Report, explain: bool) -> io::Result<()> {
    let Report { apply, dtype, shape, axes, output_dtype, .. } = report;
    say(format_args!("{apply} of {dtype} {shape:?} over axes {axes:?} gives {output_dtype}"))?;
    say(format_args!("plan: {}", report.plan_in_words))?;
    if explain {
        say(format_args!("expected: {:.1} us", report.expected_microseconds))?;
        for Refused { plan, reason } in &report.refused {
            say(format_args!("not {plan}: {reason}"))?;
        }
    }
    say(format_args!("device: {} through {}", report.device, report.compiler))?;
    say(format_args!(
        "time: {:.1} us, {:.2} GB/s",
        report.microseconds, report.gigabytes_per_second
    ))?;
    if let Some(values) = &report.values {
        let text: Vec<String> = values.iter().map(Number::to_string).collect();
        say(format_args!("values: {}", text.join(" ")))?;
    }
    Ok(())
}
