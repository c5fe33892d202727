//! Stored plans, as Burn's users pass them on.

use burn_dispatch::DispatchDevice;
use burn_tensor::{Device, Tensor, TensorData};
use reduce_burn::{
    plans::{planner_device, use_plans},
    squeeze, sum,
};
use reduce_kernels::{
    ElementType, Sum, TensorDescription,
    cubecl::{CubeElement, std::tensor::TensorHandle},
    planner::{Access, Direction, Plan, Schedule},
    plans::{PlanStore, TunedPlan, stop_using_plans},
    reduce, storage_type,
};

/// A sum whose rounding tells one chain of additions from the planner's choice.
pub(crate) fn stored(device: &Device) {
    const LEN: usize = 7919;
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
