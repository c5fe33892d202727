//! Launches the merging of partial results.

use cubecl::{ir::AddressType, prelude::*, server::BufferBinding};
use reduce_planner::{
    ElementType, InputSpec, OutputSpec, Problem, Role, check_limits, row_major_strides,
};

use crate::{
    error::{Reason, ReduceError},
    host::{
        arguments::{count, dims, merging_types, parameters, result_arrays, words_target},
        bound::{Bound, byte_count},
        cache,
        scratch::allocated,
        types::{check_arithmetic, class_of, word_count},
    },
    kernels::{
        args::{KernelTypesArg, Stores, TargetArraysLaunch},
        merge::{ShardWordsLaunch, merge_shards},
    },
    operator::{OperatorRef, Signature},
};

/// Arrays of words that one launch binds beside its results. WebGPU guarantees 8 bindings.
const ARRAYS: usize = 4;

/// Units of a cube. Each takes one output.
const UNITS: u32 = 128;

/// Words of partial results: `slots` times the accumulators of all outputs.
#[derive(Clone)]
pub(crate) struct PartialWords {
    pub(crate) words: Bound<'static>,
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
            return Err(Reason::OutputTooLarge { needed, available }.into());
        }
        let span = outputs.saturating_mul(slots as u64).saturating_mul(words as u64);
        let wide = check_limits(&problem, &device, span.max(count as u64))?;
        let units = UNITS.min(device.max_units_per_cube);
        let cubes = outputs.div_ceil(u64::from(units));
        let grid = device.grid(cubes).ok_or_else(|| {
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

    /// Binds the buffers of results.
    ///
    /// # Errors
    ///
    /// A buffer that is too small, or begins where the device cannot bind it.
    pub(crate) fn bind_results(
        &self,
        client: &Client,
        results: impl IntoIterator<Item = BufferBinding>,
    ) -> Result<Vec<Bound<'static>>, ReduceError> {
        let bound = |(output, &element): (BufferBinding, &ElementType)| {
            Bound::check(client, Role::Output, output, self.problem.output_span(), element)
        };
        results.into_iter().zip(&self.signature.results).map(bound).collect()
    }

    /// Merges partial results in this order, and stores the results.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Memory`](crate::ErrorKind::Memory), before anything is launched.
    pub(crate) fn finish(
        &self,
        client: &Client,
        partials: Vec<PartialWords>,
        numbers: &[f64],
        results: &[Bound<'_>],
    ) -> Result<(), ReduceError> {
        let target = || TargetArraysLaunch::new(result_arrays(results), None.into());
        self.fold(client, partials, numbers, Stores::Elements, target)
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
        merged: &Bound<'_>,
    ) -> Result<(), ReduceError> {
        self.fold(client, partials, numbers, Stores::Words, || words_target(merged))
    }

    /// Merges a few arrays after the other. What has been merged so far is the first of the next
    /// launch, so the order is that of one launch.
    fn fold(
        &self,
        client: &Client,
        mut partials: Vec<PartialWords>,
        numbers: &[f64],
        stores: Stores,
        target: impl FnOnce() -> TargetArraysLaunch,
    ) -> Result<(), ReduceError> {
        if self.outputs() == 0 {
            return Ok(());
        }
        let new = || -> Result<Bound<'static>, ReduceError> {
            let handle = allocated(client, self.words() * size_of::<u32>())?;
            Ok(Bound::own(handle.binding(), self.words(), size_of::<u32>()))
        };
        // Merges in turn read one of two buffers and write the other.
        let between = match partials.len() > ARRAYS {
            true => vec![new()?, new()?],
            false => Vec::new(),
        };
        let mut free = between.iter().cycle();
        while partials.len() > ARRAYS {
            let merged = free.next().expect("there are two buffers");
            let first = partials.drain(..ARRAYS).collect();
            self.launch(client, first, numbers, Stores::Words, words_target(merged));
            partials.insert(0, PartialWords { words: merged.clone(), slots: 1 });
        }
        self.launch(client, partials, numbers, stores, target());
        Ok(())
    }

    fn launch(
        &self,
        client: &Client,
        partials: Vec<PartialWords>,
        numbers: &[f64],
        stores: Stores,
        target: TargetArraysLaunch,
    ) {
        // One kernel serves all numbers of arrays: the rest repeat the first, without slots.
        let rest = ARRAYS.saturating_sub(partials.len());
        let first = partials.first().map(|partial| PartialWords { slots: 0, ..partial.clone() });
        let mut shards = SequenceArg::new();
        for PartialWords { words, slots } in
            partials.into_iter().chain(first.into_iter().cycle().take(rest))
        {
            shards.push(ShardWordsLaunch::new(words.elements(), slots));
        }
        // SAFETY: kernels read inside the arrays of words, and write inside the span of the outputs
        // or the words of all outputs, which the target's buffers hold.
        unsafe {
            merge_shards::launch_unchecked(
                client,
                count(self.grid),
                CubeDim::new_1d(self.units),
                self.address,
                KernelTypesArg { stores, ..merging_types(client, &self.signature) },
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
