//! Time per call in a stream of back-to-back calls.

use std::time::Instant;

use reduce_kernels::{
    Each, Operator, OperatorOptions, Plan, ReduceError,
    cubecl::{future, prelude::*, std::tensor::TensorHandle},
    operator::Family,
    reduce, with_operator,
};

use crate::Case;

/// Samples, of which the median counts.
const SAMPLES: usize = 9;

/// Seconds that the calls of one sample should take.
const SAMPLE_SECONDS: f64 = 0.02;

/// Launches one call of a case; a tensor for each result.
pub fn run<R: Runtime>(
    client: &ComputeClient<R>,
    case: &Case,
    input: &TensorHandle<R>,
    plan: Option<Plan>,
) -> Result<Vec<TensorHandle<R>>, ReduceError> {
    fn list<O: Operator, X>(_: O, each: Each<O, X>) -> Vec<X> {
        O::Results::list(each)
    }
    with_operator!(case.operator, OperatorOptions::default(), operator => {
        let reduction = reduce(operator, input).over(case.axes.clone());
        let reduction = match plan {
            Some(plan) => reduction.with_plan(plan),
            None => reduction,
        };
        reduction.run(client).map(|each| list(operator, each))
    })
}

/// Median time per call in microseconds, over rotating inputs, device and host together.
pub fn microseconds_per_call<R: Runtime>(
    client: &ComputeClient<R>,
    case: &Case,
    inputs: &[TensorHandle<R>],
    plan: Option<Plan>,
) -> Result<f64, ReduceError> {
    let wait = || future::block_on(client.sync()).expect("the device answers");
    let mut rotation = inputs.iter().cycle();
    let mut sample = |calls: usize| -> Result<f64, ReduceError> {
        let start = Instant::now();
        for input in rotation.by_ref().take(calls) {
            run(client, case, input, plan)?;
        }
        wait();
        Ok(start.elapsed().as_secs_f64() / calls as f64)
    };
    sample(3)?;
    let once = sample(5)?;
    let calls = ((SAMPLE_SECONDS / once) as usize).clamp(5, 1000);
    let mut seconds = (0..SAMPLES).map(|_| sample(calls)).collect::<Result<Vec<f64>, _>>()?;
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[SAMPLES / 2] * 1e6)
}
