//! Launches without a plan: one unit for each element, or for each word.

use cubecl::{ir::AddressType, prelude::*};
use reduce_planner::{Device, ProblemError, Role, check_index_span, row_major_strides, span};

use super::arguments;
use crate::error::{Reason, ReduceError};

/// Units of a cube.
const UNITS: u32 = 256;

/// The units of a launch.
pub(super) struct Units {
    cubes: [u32; 3],
    pub(super) address: AddressType,
}

impl Units {
    /// So many units for an output of so many bytes, with indices below `indices`.
    ///
    /// # Errors
    ///
    /// More than the device's indices or launches reach.
    pub(super) fn new(
        client: &Client,
        device: &Device,
        count: usize,
        indices: usize,
        bytes: usize,
    ) -> Result<Self, ReduceError> {
        let wide = check_index_span(indices as u64, device)?;
        let address = if wide { AddressType::U64 } else { AddressType::U32 };
        let cubes = device.grid((count as u64).div_ceil(u64::from(UNITS)));
        let cubes = cubes.ok_or_else(|| Reason::OutputTooLarge {
            needed: bytes as u64,
            available: client.properties().memory.max_page_size,
        })?;
        Ok(Self { cubes, address })
    }

    /// The cubes of the launch.
    pub(super) fn cubes(&self) -> CubeCount {
        arguments::count(self.cubes)
    }

    /// The units of each cube.
    pub(super) fn of_cube() -> CubeDim {
        CubeDim::new_1d(UNITS)
    }
}

/// Elements from the first to the last.
///
/// # Errors
///
/// Not one stride for each axis, and more elements than the host's address width counts.
pub(super) fn spanned(
    tensor: Role,
    shape: &[usize],
    strides: &[usize],
) -> Result<usize, ReduceError> {
    if shape.len() != strides.len() {
        let (dims, strides) = (shape.len(), strides.len());
        return Err(ProblemError::RankMismatch { tensor, dims, strides }.into());
    }
    Ok(span(shape, strides).ok_or_else(|| {
        let (shape, strides) = (shape.to_vec(), strides.to_vec());
        ProblemError::TooLarge { tensor, shape, strides }
    })?)
}

/// Whether a tensor with elements has no gaps and its last axis varies fastest. The strides of axes
/// with one element do not matter.
pub(super) fn is_row_major(shape: &[usize], strides: &[usize]) -> bool {
    let dense = row_major_strides(shape);
    let mut axes = shape.iter().zip(strides.iter().zip(&dense));
    axes.all(|(&extent, (stride, dense))| extent == 1 || stride == dense)
}
