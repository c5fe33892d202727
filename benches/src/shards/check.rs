//! Whether results are right.

use reduce_kernels::{
    ElementType, ReduceError,
    cubecl::{prelude::*, server::ServerError, std::tensor::TensorHandle},
    element_type,
};

use super::Work;

/// One of the results of a reduction.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Elements of f32.
    Floats(Vec<f32>),
    /// Positions of any width.
    Positions(Vec<u64>),
}

/// Why results cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The tensor has a type that no reduction gives.
    #[error(transparent)]
    Storage(#[from] ReduceError),
    /// The reductions that are timed do not give this type.
    #[error("a result of {0}, where f32, u32 or u64 is expected")]
    Type(ElementType),
    /// What the device reports.
    #[error("the device failed: {0}")]
    Device(#[from] ServerError),
}

/// Results that are wrong.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Mismatch {
    /// Two devices have different results.
    #[error("result {result} differs between device 0 and device {device}")]
    Devices {
        /// Index of the result, counted from 0.
        result: usize,
        /// The other device.
        device: usize,
    },
    /// A result is not that of the whole tensor.
    #[error("output {output} of result {result} is {found}, and of the whole {expected}")]
    Whole {
        /// Index of the result, counted from 0.
        result: usize,
        /// Index of the output.
        output: usize,
        /// What the shards gave.
        found: String,
        /// What the whole gave.
        expected: String,
    },
    /// There are more or fewer outputs than those of the whole tensor.
    #[error("result {result} has other outputs than that of the whole")]
    Outputs {
        /// Index of the result, counted from 0.
        result: usize,
    },
}

/// Reads a row-major result.
///
/// # Errors
///
/// What the device reports, and results of other types than f32, u32 and u64.
pub fn read_values(client: &Client, result: &TensorHandle) -> Result<Values, ReadError> {
    let len: usize = result.shape().iter().product();
    let bytes = client.read_one(result.handle.clone())?;
    match element_type(result.dtype)? {
        ElementType::F32 => Ok(Values::Floats(f32::from_bytes(&bytes)[..len].to_vec())),
        ElementType::U32 => {
            let positions = u32::from_bytes(&bytes)[..len].iter().copied().map(u64::from);
            Ok(Values::Positions(positions.collect()))
        }
        ElementType::U64 => Ok(Values::Positions(u64::from_bytes(&bytes)[..len].to_vec())),
        other => Err(ReadError::Type(other)),
    }
}

/// Largest difference, relative to the result, that the order of rounded operations may make.
/// Extrema and positions have none.
fn tolerance(work: Work) -> f32 {
    match work {
        Work::Max | Work::Argmax => 0.0,
        Work::Logsumexp => 1e-5,
        Work::Sum | Work::MeanVar | Work::MeanAngle => 1e-4,
    }
}

/// Checks that all devices have the same bits. `devices` are the results of each.
///
/// # Errors
///
/// The first difference.
pub fn same_bits(devices: &[Vec<Values>]) -> Result<(), Mismatch> {
    let bits = |values: &Values| -> Vec<u64> {
        match values {
            Values::Floats(floats) => {
                floats.iter().map(|value| u64::from(value.to_bits())).collect()
            }
            Values::Positions(positions) => positions.clone(),
        }
    };
    for (device, other) in devices.iter().enumerate().skip(1) {
        for (result, (first, other)) in devices[0].iter().zip(other).enumerate() {
            if bits(first) != bits(other) {
                return Err(Mismatch::Devices { result, device });
            }
        }
    }
    Ok(())
}

/// Checks results against those of the whole tensor: extrema and positions exactly, others up to
/// rounding.
///
/// # Errors
///
/// The first output that is wrong.
pub fn agree(work: Work, found: &[Values], expected: &[Values]) -> Result<(), Mismatch> {
    let tolerance = tolerance(work);
    let close = |found: f32, expected: f32| {
        // No element is NaN, so no result may be.
        found == expected || (found - expected).abs() <= tolerance * expected.abs()
    };
    for (result, (found, expected)) in found.iter().zip(expected).enumerate() {
        let wrong = match (found, expected) {
            (Values::Floats(found), Values::Floats(expected)) if found.len() == expected.len() => {
                let mut pairs = found.iter().zip(expected);
                let output = pairs.position(|(&found, &expected)| !close(found, expected));
                output.map(|at| (at, found[at].to_string(), expected[at].to_string()))
            }
            (Values::Positions(found), Values::Positions(expected))
                if found.len() == expected.len() =>
            {
                let output = found.iter().zip(expected).position(|(found, other)| found != other);
                output.map(|at| (at, found[at].to_string(), expected[at].to_string()))
            }
            _ => return Err(Mismatch::Outputs { result }),
        };
        if let Some((output, found, expected)) = wrong {
            return Err(Mismatch::Whole { result, output, found, expected });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Vec<Values> {
        vec![Values::Floats(values.to_vec())]
    }

    #[test]
    fn sums_agree_up_to_rounding_and_extrema_exactly() {
        let agrees = |work, found: f32| agree(work, &floats(&[found]), &floats(&[1000.0]));
        assert_eq!(agrees(Work::Sum, 1000.05), Ok(()));
        assert_eq!(agrees(Work::Max, 1000.0), Ok(()));
        for (work, found) in [(Work::Sum, 1001.0), (Work::Max, 1000.05), (Work::Sum, f32::NAN)] {
            let wrong = agrees(work, found).unwrap_err();
            assert!(matches!(wrong, Mismatch::Whole { result: 0, output: 0, .. }), "{wrong}");
        }
        let positions = |at| vec![Values::Positions(vec![3, at])];
        assert_eq!(agree(Work::Argmax, &positions(7), &positions(7)), Ok(()));
        assert_eq!(
            agree(Work::Argmax, &positions(7), &positions(8)).unwrap_err().to_string(),
            "output 1 of result 0 is 7, and of the whole 8"
        );
        assert_eq!(
            agree(Work::Sum, &floats(&[1.0]), &floats(&[1.0, 2.0])),
            Err(Mismatch::Outputs { result: 0 })
        );
    }

    /// 0 and -0 are equal, but not the same bits.
    #[test]
    fn devices_must_have_the_same_bits() {
        let devices = [floats(&[0.0]), floats(&[0.0]), floats(&[-0.0])];
        assert_eq!(same_bits(&devices[..2]), Ok(()));
        assert_eq!(same_bits(&devices), Err(Mismatch::Devices { result: 0, device: 2 }));
    }
}
