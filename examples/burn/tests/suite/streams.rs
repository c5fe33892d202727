//! Burn's fused streams: a reduction is recorded without waiting, and runs in its place.

use std::{
    sync::{
        Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use burn_cubecl::CubeBackend;
use burn_dispatch::DispatchDevice;
use burn_fusion::{FusionRuntime, get_client, inspect::FusionInspector, stream::Operation};
use burn_ir::{CustomOpIr, HandleContainer, OperationIr};
use burn_std::ExecutionError;
use burn_tensor::{Device, StreamId, Tensor, TensorData};
use reduce_burn::{max, mean_var, squeeze, sum};

/// An operation that holds up the device's thread until it is let go.
#[derive(Debug)]
struct Gate {
    entered: Mutex<Sender<()>>,
    open: Mutex<Receiver<()>>,
}

impl<R: FusionRuntime> Operation<R> for Gate {
    fn execute(
        &self,
        _handles: &mut HandleContainer<R::FusionHandle>,
    ) -> Result<(), ExecutionError> {
        self.entered.lock().expect("no test panics here").send(()).expect("the test waits");
        // A test that waits for the device's thread fails after this time instead of for ever.
        let _ =
            self.open.lock().expect("no test panics here").recv_timeout(Duration::from_secs(20));
        Ok(())
    }
}

/// While the device's thread is held up, a reduction is recorded and the call returns.
pub(crate) fn recording_does_not_wait(device: &Device) {
    let x = Tensor::<2>::from_data([[1.0f32, 2.0], [3.0, 4.0]], device);
    // The first call of a reduction may ask the device what it can do.
    let _ = mean_var(x.clone(), 1, 1.0).0.into_data();

    let (entered, has_entered) = channel();
    let (open, is_open) = channel();
    let gate = Gate { entered: Mutex::new(entered), open: Mutex::new(is_open) };
    let DispatchDevice::Cube(device) = device.as_dispatch() else {
        panic!("expected a device of CubeCL")
    };
    let client = get_client::<CubeBackend>(device);
    let nothing = CustomOpIr::new("gate", &[], &[]);
    client.register(StreamId::current(), OperationIr::Custom(nothing), gate);
    client.flush_queue();
    has_entered.recv_timeout(Duration::from_secs(20)).expect("the gate is run");

    let (mean, var) = mean_var(x * 2.0, squeeze::<1>(1), 1.0);
    let total = sum(mean + var, 0) + 1.0;
    open.send(()).expect("the gate was still closed when the reductions had been recorded");
    assert_eq!(total.into_data(), TensorData::from([15.0f32]));
}

/// Operations before and after a reduction are fused, see each other's results in order, and leave
/// nothing behind.
pub(crate) fn order_is_kept_between_fused_operations(device: &Device) {
    let run = || {
        let x = Tensor::<2>::ones([64, 32], device);
        let before = (x + 1.0) * 3.0;
        let rows = sum(before.clone(), 1);
        let after = (before - rows) / 2.0 + 4.0;
        let total: Tensor<1> = sum(after, squeeze(..));
        total.into_data()
    };
    let expected = TensorData::from([((6.0 - 192.0) / 2.0 + 4.0) * 2048.0f32]);
    assert_eq!(run(), expected);

    let inspector = FusionInspector::install(StreamId::current());
    device.sync().expect("the device answers");
    inspector.set_baseline();
    assert_eq!(run(), expected);
    device.sync().expect("the device answers");
    let reports = inspector.drain();
    let names: Vec<String> = reports
        .iter()
        .flat_map(|report| report.unfused_blocks())
        .flat_map(|block| &block.operations)
        .filter_map(|operation| match operation {
            OperationIr::Custom(custom) => Some(custom.id.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(names, ["sum", "sum"], "each reduction is one operation");
    let fused = reports.iter().flat_map(|report| report.fused_blocks()).count();
    assert_eq!(fused, 2, "what comes before a reduction is fused, and so is what comes after");
    assert!(inspector.new_handles_since_baseline().is_empty(), "tensors are left behind");
}

/// Threads have streams of their own. A tensor of one is reduced by others, and results go back.
pub(crate) fn threads_share_tensors(device: &Device) {
    const THREADS: usize = 4;
    const TURNS: usize = 10;

    // Long enough for a plan that splits outputs between cubes, which needs memory of its own.
    let x = Tensor::<2>::ones([2, 1 << 17], device);
    let results: Vec<Vec<Tensor<2>>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|nth| {
                let x = x.clone();
                scope.spawn(move || {
                    let mut results = Vec::new();
                    for turn in 0..TURNS {
                        let scaled = x.clone() * (nth * TURNS + turn) as f32;
                        results.push(sum(scaled.clone(), 1));
                        results.push(max(scaled, 1));
                    }
                    results
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("the thread ran")).collect()
    });
    for (nth, results) in results.into_iter().enumerate() {
        for (turn, pair) in results.chunks(2).enumerate() {
            let factor = (nth * TURNS + turn) as f32;
            let [sum, max] = pair else { panic!("two results a turn") };
            let total = factor * (1 << 17) as f32;
            assert_eq!(sum.to_data(), TensorData::from([[total], [total]]));
            assert_eq!(max.to_data(), TensorData::from([[factor], [factor]]));
        }
    }
}
