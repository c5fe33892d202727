//! `--apply`: a function of each slice that gives an array of the input's shape.

use std::io;

use reduce_examples::{
    AppliedFunction, Array, Number, ResultError, SecondInput, download, refuse, with_function,
};
use reduce_kernels::{
    Axes, ElementType, Input, Operator, ReduceError, TensorDescription,
    by_name::AppliedOptions,
    cubecl::{prelude::*, std::tensor::TensorHandle},
    device_of,
    normalize::AppliedReduction,
    operator::{Apply, Arity, Fields},
    planner::{AppliedKind, AppliedPlan, Choice, row_major_strides},
    quantize::{blocks_of, pack_int4},
};
use reduce_programs::{Backend, OnDevice, command_line::say, gigabytes_per_second};
use serde::Serialize;

use crate::{ArgumentError, Arguments, MOST_SHOWN, ResultType, time, upload};

/// The largest integer of 4 bits.
const MOST_OF_INT4: f64 = 7.0;

impl Arguments {
    /// The function and what it depends on; options that it does not have are a mistake.
    pub(crate) fn applied(
        &self,
    ) -> Result<Option<(AppliedFunction, AppliedOptions)>, ArgumentError> {
        let Some(name) = &self.apply else { return Ok(None) };
        let second = SecondInput { option: "with", given: self.with.is_some() };
        let function = AppliedFunction::new(name, second)?;
        let mut options = self.parameters.applied(function, self.element())?;
        if self.result_type == Some(ResultType::Int4) {
            options.most = self.parameters.most.unwrap_or(MOST_OF_INT4);
            if options.most > MOST_OF_INT4 {
                return Err(ArgumentError::Int4Most { most: options.most });
            }
        }
        self.check_no_selection(function.name())?;
        refuse(function.name(), self.scans.given())?;
        let others = [
            ("keepdims", self.keepdims),
            ("accumulate", self.accumulate.is_some()),
            // Blocks of the second input would have to be those of the first.
            ("block", self.block.is_some() && second.given),
        ];
        refuse(function.name(), others)?;
        let (outputs, results) = counts_of(function, options);
        let most = if self.output.len() > outputs { outputs + results } else { outputs };
        self.check_files(function.name(), most)?;
        Ok(Some((function, options)))
    }
}

/// Numbers of outputs and of results that are applied, of a function.
pub(crate) fn counts_of(function: AppliedFunction, options: AppliedOptions) -> (usize, usize) {
    let any = TensorDescription::row_major(ElementType::F32, [1, 1]);
    with_function!(function, options, &any, &any, 1, applied => counts(&applied))
}

fn counts<O: Operator, F: Apply<Results = O::Results>, T: Input>(
    _applied: &AppliedReduction<'_, O, F, T>,
) -> (usize, usize) {
    (F::Outputs::COUNT, O::Results::COUNT)
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
    pub(crate) function: AppliedFunction,
    pub(crate) options: AppliedOptions,
    pub(crate) output: Option<ResultType>,
    /// Whether the results that are applied are wanted too.
    pub(crate) with_results: bool,
    /// The axis that is split into blocks, and the elements of a block.
    pub(crate) block: Option<(usize, usize)>,
    pub(crate) input: &'a Array,
    /// The second input of a function of two.
    pub(crate) second: Option<&'a Array>,
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
        let uploaded = self.second.map(|second| upload(client, second));
        let second = uploaded.as_ref().unwrap_or(&tensor);
        let (function, options) = (self.function, self.options);
        let choice = with_function!(function, options, &tensor, second, axes(), applied => {
            self.typed(client, applied).choose(client)?
        });
        let (outputs, microseconds) = time(client, || {
            with_function!(function, options, &tensor, second, axes(), applied => {
                Ok(self.outputs(client, self.typed(client, applied))?)
            })
        })?;
        let mut arrays = download(client, &outputs)?;
        if let Some((axis, _)) = self.block {
            for (nth, array) in arrays.iter_mut().enumerate() {
                match (nth, self.is_packed()) {
                    (0, true) => continue,
                    (0, false) => array.shape = self.input.shape.clone(),
                    // A block has one result.
                    _ => _ = array.shape.remove(axis + 1),
                }
                array.strides = row_major_strides(&array.shape);
            }
        }
        let report = self.report(backend, name, client.name(), choice, &arrays, microseconds);
        Ok((report, arrays))
    }
}

impl Work<'_> {
    /// The outputs, and the results if they are wanted.
    fn outputs<O: Operator, F: Apply<Results = O::Results>>(
        self,
        client: &Client,
        applied: AppliedReduction<'_, O, F, TensorHandle>,
    ) -> Result<Vec<TensorHandle>, ReduceError> {
        let (mut outputs, results) = match self.with_results {
            true => {
                let (outputs, results) = applied.run_with_results(client)?;
                (F::Outputs::into_list(outputs), O::Results::into_list(results))
            }
            false => (F::Outputs::into_list(applied.run(client)?), Vec::new()),
        };
        if let (true, Some(last)) = (self.is_packed(), outputs.last_mut()) {
            // Blocks may be odd where the axis is even.
            let shape = self.input.shape.clone();
            let integers = TensorHandle::new_contiguous(shape, last.handle.clone(), last.dtype);
            *last = pack_int4(client, &integers)?;
        }
        outputs.extend(results);
        Ok(outputs)
    }

    /// Whether the last output is of integers of 4 bits, two in a byte.
    fn is_packed(self) -> bool {
        self.output == Some(ResultType::Int4)
    }

    /// The type is that of the last output: a sum that is an output too keeps its own.
    fn typed<'a, O: Operator, F: Apply<Results = O::Results>, T: Input>(
        self,
        client: &Client,
        applied: AppliedReduction<'a, O, F, T>,
    ) -> AppliedReduction<'a, O, F, T> {
        let last = F::Outputs::COUNT - 1;
        let output = self.output.map(|output| match output {
            ResultType::Element(element) => element,
            ResultType::Int4 if device_of(client).has(ElementType::I8) => ElementType::I8,
            ResultType::Int4 => ElementType::I32,
        });
        match output {
            Some(element) => {
                applied.output_types(F::Outputs::each(|nth| (nth == last).then_some(element)))
            }
            None => applied,
        }
    }

    fn report(
        self,
        backend: Backend,
        device: &str,
        compiler: &'static str,
        choice: Choice<AppliedPlan>,
        arrays: &[Array],
        microseconds: f64,
    ) -> Report {
        let outputs = arrays.iter().filter(|array| array.shape == self.input.shape);
        let written: usize = outputs.map(|array| array.element.bytes()).sum();
        let read = self.second.map_or(0, |second| second.bytes.len());
        let (outputs, _) = counts_of(self.function, self.options);
        let array = &arrays[0];
        let elements: usize = self.input.shape.iter().product();
        let packed = if self.is_packed() { arrays[outputs - 1].bytes.len() } else { 0 };
        let bytes = elements * (self.input.element.bytes() + written) + packed + read;
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
