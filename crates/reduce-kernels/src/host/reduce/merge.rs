//! Launches the merging of partial results.

use cubecl::{
    ir::AddressType,
    prelude::*,
    server::{BufferBinding, Handle},
};
use reduce_planner::{
    ElementType, InputSpec, OutputSpec, Problem, check_limits, row_major_strides,
};

use crate::{
    ReduceError,
    element::memory_type,
    host::{
        arguments::{count, dims, parameters, result_arrays, words_target},
        buffers::{byte_count, check_offset, check_output},
        cache,
        client::has_hardware_math,
        scratch::allocated,
        types::{check_arithmetic, class_of, word_count},
    },
    kernels::{
        args::{KernelTypesArg, TargetArraysLaunch},
        merge::{ShardWordsLaunch, merge_shards},
    },
    operator::{OperatorRef, Signature},
};

/// Most arrays of words that one launch binds beside its results. WebGPU guarantees 8 bindings.
const MOST_ARRAYS: usize = 4;

/// Units of a cube. Each takes one output.
const UNITS: u32 = 128;

/// Words of partial results: `slots` times the accumulators of all outputs.
pub(crate) struct PartialWords {
    pub(crate) handle: Handle,
    pub(crate) slots: usize,
}

/// A merge of partial results that has been checked.
#[derive(Debug)]
pub(crate) struct PreparedMerge {
    operator: OperatorRef,
    signature: Signature,
    /// A reduction of nothing: its kept dimensions are those of the outputs.
    problem: Problem,
    /// Elements that went into each output.
    count: usize,
    words: usize,
    address: AddressType,
    grid: [u32; 3],
    units: u32,
}

impl PreparedMerge {
    /// Prepares the merge of `slots` partial results for outputs of this shape and these strides.
    /// `count` elements went into each output.
    pub(crate) fn new(
        client: &Client,
        operator: OperatorRef,
        signature: Signature,
        shape: &[usize],
        strides: Option<&[usize]>,
        slots: usize,
        count: usize,
    ) -> Result<Self, ReduceError> {
        let device = cache::device(client);
        check_arithmetic(client, operator.0, &signature, &device)?;
        let words = word_count(&signature.fields[..operator.0.fields]);
        let input = InputSpec {
            element: ElementType::U32,
            shape,
            strides: &row_major_strides(shape),
            alignment: size_of::<u32>(),
        };
        let elements = &signature.results[..operator.0.results];
        let output = OutputSpec { elements, strides };
        let class = class_of(operator.0, &signature);
        let problem = Problem::new(class, &input, Some(&[]), &output)?;
        let outputs = problem.outputs() as u64;
        let available = client.properties().memory.max_page_size;
        let results = elements.iter().map(|&element| byte_count(problem.outputs(), element));
        let needed = results.max().unwrap_or(0);
        if strides.is_none() && needed > available {
            return Err(ReduceError::OutputTooLarge { needed, available });
        }
        let span = outputs.saturating_mul(slots as u64).saturating_mul(words as u64);
        let wide = check_limits(&problem, &device, span.max(count as u64))?;
        let units = UNITS.min(device.max_units_per_cube);
        let cubes = outputs.div_ceil(u64::from(units));
        let grid = device.spread(cubes).ok_or_else(|| {
            let limit =
                u64::from(units) * device.max_cube_count.map(u64::from).iter().product::<u64>();
            let device = device.name.clone();
            reduce_planner::PlanError::IndexTooNarrow { device, limit, span: outputs }
        })?;
        let address = if wide { AddressType::U64 } else { AddressType::U32 };
        Ok(Self { operator, signature, problem, count, words, address, grid, units })
    }

    /// Number of outputs.
    pub(crate) fn outputs(&self) -> usize {
        self.problem.outputs()
    }

    /// Words of all outputs' accumulators.
    pub(crate) fn words(&self) -> usize {
        self.outputs() * self.words
    }

    /// Checks that the buffers of results hold all that is written.
    pub(crate) fn check_results(
        &self,
        client: &Client,
        results: &[BufferBinding],
    ) -> Result<(), ReduceError> {
        for (output, &element) in results.iter().zip(&self.signature.results) {
            check_output(output, self.problem.output_span(), element)?;
            check_offset(client, "output", output.offset_start, element)?;
        }
        Ok(())
    }

    /// Merges partial results in this order, and stores the results. The buffers have been
    /// [checked](Self::check_results).
    ///
    /// # Errors
    ///
    /// [`ReduceError::Scratch`], before anything is launched.
    pub(crate) fn finish(
        &self,
        client: &Client,
        partials: Vec<PartialWords>,
        numbers: &[f64],
        results: Vec<BufferBinding>,
    ) -> Result<(), ReduceError> {
        let span = self.problem.output_span();
        let target = || TargetArraysLaunch::new(result_arrays(results, span), None.into());
        self.fold(client, partials, numbers, target)
    }

    /// Merges partial results in this order into one, which goes to `merged`.
    ///
    /// # Errors
    ///
    /// Those of [`finish`](Self::finish).
    pub(crate) fn merge(
        &self,
        client: &Client,
        partials: Vec<PartialWords>,
        numbers: &[f64],
        merged: &Handle,
    ) -> Result<(), ReduceError> {
        let target = || words_target(merged.clone().binding(), self.words());
        self.fold(client, partials, numbers, target)
    }

    /// Merges a few arrays after the other. What has been merged so far is the first of the next
    /// launch, so the order is that of one launch.
    fn fold(
        &self,
        client: &Client,
        mut partials: Vec<PartialWords>,
        numbers: &[f64],
        target: impl FnOnce() -> TargetArraysLaunch,
    ) -> Result<(), ReduceError> {
        if self.outputs() == 0 {
            return Ok(());
        }
        let bytes = self.words() * size_of::<u32>();
        // Merges in turn read one of two buffers and write the other.
        let between = match partials.len() > MOST_ARRAYS {
            true => vec![allocated(client, bytes)?, allocated(client, bytes)?],
            false => Vec::new(),
        };
        let mut free = between.iter().cycle();
        while partials.len() > MOST_ARRAYS {
            let merged = free.next().expect("there are two buffers").clone();
            let first = partials.drain(..MOST_ARRAYS).collect();
            let words = words_target(merged.clone().binding(), self.words());
            self.launch(client, first, numbers, words);
            partials.insert(0, PartialWords { handle: merged, slots: 1 });
        }
        self.launch(client, partials, numbers, target());
        Ok(())
    }

    fn launch(
        &self,
        client: &Client,
        partials: Vec<PartialWords>,
        numbers: &[f64],
        target: TargetArraysLaunch,
    ) {
        let value = memory_type(self.signature.value);
        let types = KernelTypesArg {
            stored: value,
            second: None,
            value,
            fields: self.signature.fields.map(memory_type),
            results: self.signature.results.map(memory_type),
            width: 1,
            hardware_math: has_hardware_math(client),
            chains: false,
            application: None,
        };
        let mut shards = SequenceArg::new();
        for PartialWords { handle, slots } in partials {
            let len = slots * self.words();
            // SAFETY: whoever made the value has checked that the buffer holds this many words.
            let words = unsafe { BufferArg::from_raw_parts(handle, len) };
            shards.push(ShardWordsLaunch::new(words, slots));
        }
        // SAFETY: kernels read inside the arrays of words, and write inside the span of the outputs
        // or the words of all outputs, which the target's buffers hold.
        unsafe {
            merge_shards::launch_unchecked(
                client,
                count(self.grid),
                CubeDim::new_1d(self.units),
                self.address,
                types,
                shards,
                target,
                dims(self.problem.kept(), |dim| (dim.extent, dim.stride, dim.output_stride)),
                parameters(numbers, &self.signature),
                self.outputs(),
                self.count,
                self.operator,
            );
        }
    }
}
