//! Plans that Burn's users ask a process for: stored ones, and those that no batch changes.

use std::sync::{Mutex, PoisonError};

use burn_dispatch::DispatchDevice;
use burn_tensor::{Device, Tensor, TensorData};
use reduce_burn::{
    layer_norm, log_softmax, logsumexp, mean, norm_l2,
    plans::{planner_device, use_numerics, use_plans},
    softmax, squeeze, sum, var,
};
use reduce_kernels::{
    ElementType, Sum, TensorDescription,
    cubecl::{CubeElement, std::tensor::TensorHandle},
    planner::{Access, Direction, Plan, Schedule},
    plans::{Numerics, PlanStore, TunedPlan, stop_using_plans},
    reduce, storage_type,
};

/// What these tests ask of the process holds in all of its threads.
static ALONE: Mutex<()> = Mutex::new(());

/// The bits of a row's results and gradients are those that it has alone, in batches of other sizes
/// and in another place of them.
pub(crate) fn in_every_batch(device: &Device) {
    const LEN: usize = 3000;
    let bits = |batch: usize, place: usize| {
        // The rows have other elements, but for the one that is looked at.
        let element = |i: usize| ((i * 7919 % 1009) as f32).sqrt() * 0.1 - 1.5;
        let row = |nth: usize| if nth == place { 0 } else { 1 + nth };
        let data: Vec<f32> =
            (0..batch).flat_map(|nth| (0..LEN).map(move |i| element(row(nth) * 31 + i))).collect();
        let x = Tensor::<2>::from_data(TensorData::new(data, [batch, LEN]), device).require_grad();
        let weight = Tensor::<1>::from_data(
            TensorData::new((0..LEN).map(|i| 0.5 + (i % 7) as f32 * 0.25).collect(), [LEN]),
            device,
        );
        let weight = weight.reshape([1, LEN]);
        let outputs: [Tensor<2>; 8] = [
            softmax(x.clone(), 1),
            log_softmax(x.clone(), 1),
            layer_norm(x.clone(), 1, Some(weight.clone()), None, 1e-5),
            sum(x.clone(), 1),
            mean(x.clone(), 1),
            var(x.clone(), 1, 1.0),
            norm_l2(x.clone(), 1),
            logsumexp(x.clone(), 1),
        ];
        let mut bits: Vec<Vec<u32>> = Vec::new();
        let mut look = |tensor: Tensor<2>| {
            let found = tensor.narrow(0, place, 1).into_data().try_to_vec::<f32>().unwrap();
            bits.push(found.into_iter().map(f32::to_bits).collect());
        };
        for output in outputs {
            let wide = output.dims()[1] == LEN;
            look(output.clone());
            let output = if wide { output * weight.clone() } else { output };
            let gradients = output.sum().backward();
            look(Tensor::from_inner(x.grad(&gradients).expect("the tensor is tracked")));
        }
        bits
    };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    use_numerics(Numerics::BatchInvariant);
    let [alone, few, many] = [(1, 0), (3, 1), (300, 299)].map(|(batch, place)| bits(batch, place));
    use_numerics(Numerics::Deterministic);
    assert_eq!(alone.len(), 16);
    for (nth, alone) in alone.iter().enumerate() {
        assert!(*alone == few[nth] && *alone == many[nth], "result {nth}");
    }
}

/// A sum whose rounding tells one chain of additions from the planner's choice.
pub(crate) fn stored(device: &Device) {
    const LEN: usize = 7919;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let data: Vec<f32> = (0..LEN).map(|i| ((i * 7919 % 1009) as f32).sqrt() - 7.0).collect();
    let DispatchDevice::Cube(cube) = device.clone().inner().as_dispatch().clone() else {
        panic!("expected a device of CubeCL")
    };
    let client = cube.client();
    let handle = client.create_from_slice(f32::as_bytes(&data));
    let x = TensorHandle::new_contiguous([LEN], handle, storage_type(ElementType::F32));
    let one_unit = Plan::new(Access::new(Direction::Along), Schedule::Unit { units_per_cube: 32 });
    let bits = |plan: Option<Plan>| {
        let reduction = reduce(Sum, &x).keep_dims(false);
        let reduction = match plan {
            Some(plan) => reduction.with_plan(plan),
            None => reduction,
        };
        let output = reduction.run(&client).unwrap();
        let bytes = client.read_one(output.handle).expect("the device answers");
        f32::from_bytes(&bytes)[0].to_bits()
    };
    let through_burn = || {
        let x = Tensor::<1>::from_data(TensorData::new(data.clone(), [LEN]), device);
        let total: Tensor<1> = sum(x, squeeze(..));
        total.into_data().try_to_vec::<f32>().unwrap()[0].to_bits()
    };
    let (chosen, as_stored) = (bits(None), bits(Some(one_unit)));
    assert_ne!(chosen, as_stored, "both plans round alike");
    assert_eq!(through_burn(), chosen);

    let planned_for = planner_device(device).expect("there are kernels");
    let mut store = PlanStore::new(&planned_for);
    let described = TensorDescription::row_major(ElementType::F32, [LEN]);
    let problem = reduce(Sum, &described).problem().unwrap();
    store.insert(&problem, &planned_for, TunedPlan::new(one_unit, 1, 2)).unwrap();
    use_plans(device, store).unwrap();
    let found = through_burn();
    stop_using_plans(&client);
    assert_eq!(found, as_stored);
    assert_eq!(through_burn(), chosen);
}
