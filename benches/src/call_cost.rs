//! The cost of a call on the host, compared with CubeCL's own launch.

use reduce_kernels::cubecl::{self, prelude::*, std::tensor::TensorHandle};
use reduce_programs::{MeasureError, microseconds_per_call};

use crate::{Case, inputs, run};

/// Rows of the matrices that are new in each call: small, so that the host sets the time.
const NEW_SHAPES: usize = 60_000;

/// Microseconds per call in a stream of calls that take the device less than the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallCost {
    /// An empty kernel with an input and a new output: CubeCL alone.
    pub bare_launch: f64,
    /// A sum of a shape that was seen before.
    pub seen_shape: f64,
    /// A sum of a shape that was never seen, through a kernel that was compiled before.
    pub new_shape: f64,
}

#[cube(launch_unchecked)]
fn idle(input: &[f32], output: &mut [f32]) {
    if UNIT_POS == 0 {
        output[0] = input[0];
    }
}

impl CallCost {
    /// Measures all three.
    ///
    /// # Errors
    ///
    /// What the library refuses and what the device reports.
    pub fn measure(client: &Client, sample_seconds: f64) -> Result<Self, MeasureError> {
        let case: Case = format!("sum f32 [{NEW_SHAPES}, 32] axis 1").parse().expect("a case");
        let matrix = inputs(client, &case, Some(0)).remove(0);
        let bare_launch = microseconds_per_call(client, sample_seconds, || {
            let output = client.empty(4);
            // SAFETY: both buffers hold the one element that the kernel touches.
            unsafe {
                idle::launch_unchecked(
                    client,
                    CubeCount::new_1d(1),
                    CubeDim::new_1d(32),
                    BufferArg::from_raw_parts(matrix.handle.clone(), 1),
                    BufferArg::from_raw_parts(output, 1),
                );
            }
            Ok(())
        })?;
        let rows = |rows: usize| {
            let case: Case = format!("sum f32 [{rows}, 32] axis 1").parse().expect("a case");
            let handle = matrix.handle.clone();
            (TensorHandle::new_contiguous([rows, 32], handle, matrix.dtype), case)
        };
        let (input, case) = rows(64);
        let seen_shape = microseconds_per_call(client, sample_seconds, || {
            run(client, &case, &input, None)?;
            Ok(())
        })?;
        // Shapes are made beforehand; each is summed once.
        let mut shapes = (64..).map(rows).take(20_000).collect::<Vec<_>>().into_iter().cycle();
        let new_shape = microseconds_per_call(client, sample_seconds, || {
            let (input, case) = shapes.next().expect("there is a shape");
            run(client, &case, &input, None)?;
            Ok(())
        })?;
        Ok(Self { bare_launch, seen_shape, new_shape })
    }
}
