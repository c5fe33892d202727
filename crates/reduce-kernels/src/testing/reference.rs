//! An operator under every plan, compared with a naive reference.

use cubecl::{future::block_on, num_traits::ToPrimitive, prelude::*, std::tensor::TensorHandle};
use reduce_planner::{
    Device, ElementType, Plan, ScheduleKind, choose, force, row_major_strides, span,
};

use super::{
    EachInput, InputTensors, Layout, Random, Run, TestError, Tolerance, decode::decode, every_plan,
};
use crate::{
    element::{element_type, storage_type},
    error::ReduceError,
    operator::{Arity, Fields, Operator},
    reduction::{Outputs, Reduction},
};

/// Every byte of an output that nothing was written to. As f32, this is 1.3e36.
const POISON: u8 = 0x7b;

/// Elements after the end of each output that must keep their poison.
const GUARD: usize = 16;

/// Runs an operator over several layouts under every kind of plan, and compares each result with a
/// naive reference. Returns the plans that ran, for tests that ask for more.
///
/// - `device` says what plans may use: [`device_of(client)`](crate::device_of). Mesa's software
///   adapter reports no plane operations but runs them; set `plane_operations` to test the plane
///   schedule there.
/// - `reduction` starts the reduction, such as `|inputs| inputs.reduce(MeanAngle)`, with maps and
///   types as wanted. The test chooses its axes, its output and its plan.
/// - `sample` draws an element, or a pair of elements for an operator of two inputs. The numbers of
///   [`Random`] are the same in every run.
/// - `reference` computes the results of the elements or pairs of one reduction, which it gets in
///   the order of the reduced axes. Elements of 64 bits beyond 2⁵³ are rounded.
/// - `tolerance` says how close each result must be; its scale is the magnitude of the reference's
///   result.
///
/// Layouts are rows, columns, rows and columns that do not start at vectors, and two axes at a
/// time, of 16,000 elements or more for each output. Plans are those of [`every_plan`], and the
/// planner's own. Outputs are full of poison beforehand, with gaps between their elements.
///
/// ```no_run
/// use reduce_kernels::{
///     Sum, cubecl::prelude::*, device_of,
///     testing::{TestError, Tolerance, check_every_plan},
/// };
///
/// # fn example(client: &Client) -> Result<(), TestError> {
/// let ran = check_every_plan(
///     client,
///     &device_of(client),
///     |inputs| inputs.reduce(Sum),
///     |random| random.integer(-8..=8) as f32,
///     |elements| elements.iter().sum::<f64>(),
///     Tolerance::FEW_ROUNDINGS,
/// )?;
/// println!("{} plans ran", ran.len());
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// The first [`TestError`]: a plan that is refused, a result that is not close, a write outside the
/// output, or a schedule that the device can run and that no plan has.
pub fn check_every_plan<O: Operator, E: CubeElement + ToPrimitive>(
    client: &Client,
    device: &Device,
    reduction: impl for<'a> Fn(&'a InputTensors) -> Reduction<'a, O, TensorHandle>,
    mut sample: impl FnMut(&mut Random) -> EachInput<O, E>,
    reference: impl Fn(&[EachInput<O, f64>]) -> Outputs<O, f64>,
    tolerance: Outputs<O, Tolerance>,
) -> Result<Vec<Plan>, TestError> {
    let operator = O::DEFINITION.erased().name();
    let element = element_type(E::cube_type())?;
    let tolerances = O::Results::into_list(tolerance);
    let mut random = Random::new(0);
    let mut ran = Vec::new();
    for layout in Layout::all(device.max_vector.min(device.load_bytes / element.bytes()).max(1)) {
        let mut data: Vec<Vec<E>> = vec![Vec::new(); <O::Inputs as Fields>::COUNT];
        for _ in 0..layout.span() {
            let drawn = O::Inputs::into_list(sample(&mut random));
            data.iter_mut().zip(drawn).for_each(|(data, element)| data.push(element));
        }
        let of_data = |data: &Vec<E>| {
            tensor(client, element, E::as_bytes(data), &layout.shape, &layout.strides)
        };
        let inputs = InputTensors(data.iter().map(of_data).collect());
        let reduction = reduction(&inputs).over(layout.axes.as_slice()).keep_dims(false);
        let types = O::Results::into_list(reduction.output_types()?);
        let outputs = OutputLayout::of(reduction.output_shape()?);

        let number = |at: usize, nth: usize| data[nth][at].to_f64().unwrap_or(f64::NAN);
        let expected = |offsets: &Vec<usize>| {
            let numbers = offsets.iter().map(|&at| O::Inputs::each(|nth| number(at, nth)));
            O::Results::into_list(reference(&numbers.collect::<Vec<_>>()))
        };
        let expected: Vec<Vec<f64>> = layout.reductions().iter().map(expected).collect();

        let problem = reduction.problem()?;
        let mut plans = every_plan(&problem, device);
        for schedule in ScheduleKind::ALL {
            let is_tried = plans.iter().any(|plan| plan.schedule.kind() == schedule);
            if !is_tried && force(schedule, &problem, device).is_ok() {
                let layout = Box::new(layout);
                return Err(TestError::Untried { operator, schedule, layout });
            }
        }
        let chosen = choose(&problem, device).map_err(ReduceError::from)?.plan;
        if !plans.contains(&chosen) {
            plans.push(chosen);
        }

        for plan in plans {
            let run = Run { operator: operator.clone(), layout: layout.clone(), plan };
            let tensors: Vec<_> = types.iter().map(|&of| outputs.poisoned(client, of)).collect();
            let bindings = O::Results::each(|nth| tensors[nth].clone().binding());
            let reduction = reduction.clone().with_plan(plan).plan_for(device);
            if let Err(error) = reduction.run_into(client, bindings) {
                return Err(TestError::Refused { run: Box::new(run), error: Box::new(error) });
            }
            block_on(client.sync()).map_err(ReduceError::device)?;
            for (nth, tensor) in tensors.into_iter().enumerate() {
                let bytes = client.read_one(tensor.handle).map_err(ReduceError::device)?;
                let expected = expected.iter().map(|results| results[nth]);
                outputs.check(&bytes, types[nth], &run, nth, expected, tolerances[nth])?;
            }
            ran.push(plan);
        }
    }
    Ok(ran)
}

/// An output with a gap of one element after each of its elements.
struct OutputLayout {
    shape: Vec<usize>,
    strides: Vec<usize>,
}

impl OutputLayout {
    fn of(shape: Vec<usize>) -> Self {
        let strides = row_major_strides(&shape).iter().map(|stride| 2 * stride).collect();
        Self { shape, strides }
    }

    fn poisoned(&self, client: &Client, element: ElementType) -> TensorHandle {
        let held = span(&self.shape, &self.strides).expect("layouts are small") + GUARD;
        tensor(client, element, &vec![POISON; held * element.bytes()], &self.shape, &self.strides)
    }

    /// Compares the buffer of result `nth` with what is expected of each output, and checks that
    /// nothing else was written.
    fn check(
        &self,
        bytes: &[u8],
        element: ElementType,
        run: &Run,
        nth: usize,
        expected: impl Iterator<Item = f64>,
        tolerance: Tolerance,
    ) -> Result<(), TestError> {
        let run = || Box::new(run.clone());
        let found = decode(element, bytes).into_iter().step_by(2);
        for (output, (found, expected)) in found.zip(expected).enumerate() {
            if !tolerance.allows(found, expected, expected.abs()) {
                let run = run();
                return Err(TestError::WrongResult {
                    run,
                    nth,
                    output,
                    found,
                    expected,
                    tolerance,
                });
            }
        }
        let outputs: usize = self.shape.iter().product();
        let is_output = |at: usize| at.is_multiple_of(2) && at < 2 * outputs;
        for (at, bytes) in bytes.chunks(element.bytes()).enumerate() {
            if !is_output(at) && bytes.iter().any(|&byte| byte != POISON) {
                return Err(TestError::StrayWrite { run: run(), nth, element: at });
            }
        }
        Ok(())
    }
}

/// A tensor in a new buffer, whose size wgpu wants to be a multiple of four bytes.
fn tensor(
    client: &Client,
    element: ElementType,
    bytes: &[u8],
    shape: &[usize],
    strides: &[usize],
) -> TensorHandle {
    let mut held = bytes.to_vec();
    held.resize(bytes.len().next_multiple_of(8), POISON);
    TensorHandle::new(client.create_from_slice(&held), shape, strides, storage_type(element))
}
