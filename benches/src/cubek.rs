//! cubek-reduce as a second engine: the fastest of its routines.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Instant,
};

use cubek_reduce::{
    ReduceStrategy,
    components::instructions::ReduceOperationConfig,
    launch::{RoutineStrategy, VectorizationStrategy},
    reduce,
    routines::{BlueprintStrategy, cube::CubeStrategy, plane::PlaneStrategy, unit::UnitStrategy},
    shared_sum,
};
use reduce_kernels::{
    ElementType,
    by_name::OperatorName,
    cubecl::{
        config::autotune::AutotuneLevel, prelude::*, server::Handle, std::tensor::TensorHandle,
    },
    storage_type,
};
use reduce_programs::{MeasureError, microseconds_per_call, wait};

use crate::{Case, CubekTiming, Over, run};

/// A routine is measured if one call took at most this many times the fastest routine's.
const HOPELESS: f64 = 3.0;

/// Cubes of `shared_sum`, which leaves their number to its caller.
const SHARED_SUM_CUBES: [u32; 3] = [512, 4096, 32768];

/// A way to run a reduction in cubek-reduce.
#[derive(Clone, Debug)]
enum Routine {
    /// Its general entry point.
    Strategy(ReduceStrategy),
    /// The sum of everything with atomic additions, in this many cubes.
    SharedSum(u32),
}

/// A case as cubek-reduce takes it: one axis.
struct Call<'a> {
    client: &'a Client,
    operation: ReduceOperationConfig,
    element: ElementType,
    shape: Vec<usize>,
    strides: Vec<usize>,
    axis: usize,
}

/// The fastest of cubek-reduce's routines for a case, over `inputs` in turn. Routines that fail or
/// compute something else are left out. `None` if it lacks the operator, cannot reduce these axes,
/// or every routine fails.
pub fn fastest_routine(
    client: &Client,
    case: &Case,
    inputs: &[TensorHandle],
    sample_seconds: f64,
) -> Option<CubekTiming> {
    let call = Call::of(client, case)?;
    let mut rotation = inputs.iter().cycle();
    let mut next = || rotation.next().expect("there is an input");
    let expected = Expected::of(client, case, &inputs[0]);
    let mut usable: Vec<(f64, String, Routine)> = Vec::new();
    for (name, routine) in routines(case) {
        let seconds = catch(|| {
            // This call compiles.
            let result = call.launch(&routine, &inputs[0])?;
            wait(client)?;
            if let Some(expected) = &expected {
                expected.check(&client.read_one(result)?)?;
            }
            call.shortest(&routine, &mut next)
        });
        usable.extend(seconds.ok().map(|seconds| (seconds, name, routine)));
    }
    usable.sort_by(|(a, ..), (b, ..)| a.total_cmp(b));
    let promising = usable.first()?.0 * HOPELESS;
    usable
        .into_iter()
        .take_while(|&(seconds, ..)| seconds <= promising)
        .filter_map(|(_, routine_name, routine)| {
            let enqueue = || call.launch(&routine, next()).map(drop);
            let measured = catch(|| microseconds_per_call(client, sample_seconds, enqueue));
            Some(CubekTiming { routine: routine_name, microseconds: measured.ok()? })
        })
        .min_by(|a, b| a.microseconds.total_cmp(&b.microseconds))
}

/// What cubek-reduce refused, or how it failed.
fn failed(reason: impl ToString) -> MeasureError {
    MeasureError::Peer { library: "cubek-reduce", reason: reason.to_string() }
}

/// A panic as an error: cubek-reduce panics on some cases, and CubeCL where a kernel fails.
fn catch<T>(work: impl FnOnce() -> Result<T, MeasureError>) -> Result<T, MeasureError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(failed("panicked")))
}

/// The result that a routine must compute. Some routines are wrong on some devices: Mesa's software
/// adapter ends loops after 65535 steps, and a sum that reads only a quarter of its input looks
/// fast.
struct Expected {
    values: Vec<f32>,
    tolerance: f32,
}

impl Expected {
    /// The library's own results for an input; `None` if its results are not f32, or too many to
    /// read each time.
    fn of(client: &Client, case: &Case, input: &TensorHandle) -> Option<Self> {
        const MOST_RESULTS: usize = 1 << 20;
        let results = run(client, case, input, None).ok()?;
        let result = results.first()?;
        let count = result.shape().iter().product::<usize>();
        // Sums of values in [-1, 1] are about as large as the root of their number. Two orders of
        // summation differ by far less.
        let root = ((case.elements() / count.max(1)) as f32).sqrt();
        let tolerance = match case.operator {
            OperatorName::Sum => 0.01 * root,
            OperatorName::Mean => 0.01 / root,
            OperatorName::Max | OperatorName::Min | OperatorName::NormInf => 0.0,
            _ => return None,
        };
        if result.dtype != storage_type(ElementType::F32) || count > MOST_RESULTS {
            return None;
        }
        let bytes = client.read_one(result.handle.clone()).ok()?;
        Some(Self { values: f32::from_bytes(&bytes).to_vec(), tolerance })
    }

    fn check(&self, bytes: &[u8]) -> Result<(), MeasureError> {
        let found = f32::from_bytes(bytes);
        let close = |(a, b): (&f32, &f32)| (a - b).abs() <= self.tolerance;
        if found.len() == self.values.len() && found.iter().zip(&self.values).all(close) {
            Ok(())
        } else {
            Err(failed("a wrong result"))
        }
    }
}

fn operation_of(operator: OperatorName) -> Option<ReduceOperationConfig> {
    match operator {
        OperatorName::Sum => Some(ReduceOperationConfig::Sum),
        OperatorName::Prod => Some(ReduceOperationConfig::Prod),
        OperatorName::Mean => Some(ReduceOperationConfig::Mean),
        OperatorName::Max => Some(ReduceOperationConfig::Max),
        OperatorName::Min => Some(ReduceOperationConfig::Min),
        OperatorName::ArgMax => Some(ReduceOperationConfig::ArgMax),
        OperatorName::ArgMin => Some(ReduceOperationConfig::ArgMin),
        OperatorName::NormInf => Some(ReduceOperationConfig::MaxAbs),
        _ => None,
    }
}

/// Every routine that cubek-reduce 0.3 offers, with its name.
fn routines(case: &Case) -> Vec<(String, Routine)> {
    let inferred = [
        ("unit", RoutineStrategy::Unit(BlueprintStrategy::Inferred(UnitStrategy))),
        ("plane, eager", plane(false)),
        ("plane, lazy", plane(true)),
        ("cube", cube(false)),
        ("cube of planes", cube(true)),
    ];
    let mut list = Vec::new();
    for (name, routine) in inferred {
        for parallel_output_vectorization in [false, true] {
            let vectors = if parallel_output_vectorization { ", output vectors" } else { "" };
            let vectorization = VectorizationStrategy { parallel_output_vectorization };
            let strategy = ReduceStrategy {
                routine: routine.clone(),
                vectorization,
                // Every shape is measured on its own.
                autotune_level: AutotuneLevel::Full,
            };
            list.push((format!("{name}{vectors}"), Routine::Strategy(strategy)));
        }
    }
    if case.operator == OperatorName::Sum && case.over == Over::All {
        for cubes in SHARED_SUM_CUBES {
            list.push((format!("shared sum, {cubes} cubes"), Routine::SharedSum(cubes)));
        }
    }
    list
}

fn plane(independent: bool) -> RoutineStrategy {
    RoutineStrategy::Plane(BlueprintStrategy::Inferred(PlaneStrategy { independent }))
}

fn cube(use_planes: bool) -> RoutineStrategy {
    RoutineStrategy::Cube(BlueprintStrategy::Inferred(CubeStrategy { use_planes }))
}

impl<'a> Call<'a> {
    fn of(client: &'a Client, case: &Case) -> Option<Self> {
        let operation = operation_of(case.operator)?;
        let (shape, strides, axis) = match &case.over {
            Over::All => (vec![case.elements()], vec![1], 0),
            Over::Transposed => (case.shape(), case.strides(), 1),
            Over::Axes(axes) => match axes[..] {
                [axis] => (case.shape(), case.strides(), axis),
                _ => return None,
            },
        };
        let element = case.element;
        (element != ElementType::Bool).then_some(Self {
            client,
            operation,
            element,
            shape,
            strides,
            axis,
        })
    }

    /// Seconds of the shorter of two calls, each from its launch to its end.
    fn shortest<'i>(
        &self,
        routine: &Routine,
        next: &mut impl FnMut() -> &'i TensorHandle,
    ) -> Result<f64, MeasureError> {
        let mut once = || -> Result<f64, MeasureError> {
            let start = Instant::now();
            self.launch(routine, next())?;
            wait(self.client)?;
            Ok(start.elapsed().as_secs_f64())
        };
        Ok(once()?.min(once()?))
    }

    /// Enqueues one call; its output.
    fn launch(&self, routine: &Routine, input: &TensorHandle) -> Result<Handle, MeasureError> {
        let element = storage_type(self.element);
        let (shape, strides) = (self.shape.clone(), self.strides.clone());
        let input = TensorHandle::new(input.handle.clone(), shape, strides, element).binding();
        let (output, launched) = match routine {
            Routine::Strategy(strategy) => {
                let index = storage_type(ElementType::U32);
                let types = self.operation.precision(element, Some(index));
                let mut shape = self.shape.clone();
                shape[self.axis] = 1;
                let bytes = shape.iter().product::<usize>() * types.output.size();
                let handle = self.client.empty(bytes);
                let output =
                    TensorHandle::new_contiguous(shape, handle.clone(), types.output).binding();
                let strategy = strategy.clone();
                let (axis, operation) = (self.axis, self.operation);
                (handle, reduce(self.client, input, output, axis, strategy, operation, types))
            }
            Routine::SharedSum(cubes) => {
                // The routine adds to what the output already holds.
                let handle = self.client.create_from_slice(&vec![0; element.size()]);
                let output = TensorHandle::new_contiguous([1], handle.clone(), element).binding();
                (handle, shared_sum(self.client, input, output, *cubes, element))
            }
        };
        launched.map_err(failed)?;
        Ok(output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A routine that skips part of its input must not count as the fastest.
    #[test]
    fn wrong_results_are_found() {
        let expected = Expected { values: vec![10.0, -3.0], tolerance: 0.1 };
        assert!(expected.check(f32::as_bytes(&[10.05, -3.0])).is_ok());
        assert!(expected.check(f32::as_bytes(&[10.0, -2.5])).is_err());
        assert!(expected.check(f32::as_bytes(&[10.0])).is_err());
        assert!(expected.check(f32::as_bytes(&[f32::NAN, -3.0])).is_err());
    }
}
