//! Tensors that lie in shards on several devices of one kind.
//!
//! A [`Sharded`] tensor is reduced like any other, with
//! [`run_sharded`](crate::Reduction::run_sharded) at the end. Over the axis along which it is cut,
//! the devices exchange one accumulator for each output.
//!
//! ```no_run
//! use reduce_kernels::{ReduceError, Sum, reduce, sharded::Sharded};
//!
//! # fn example(x: &Sharded) -> Result<(), ReduceError> {
//! let rows: Sharded = reduce(Sum, x).over(1).run_sharded()?;
//! for shard in rows.shards() {
//!     println!("{:?} has {:?}", shard.device(), shard.tensor().shape());
//! }
//! # Ok(()) }
//! ```

mod reduction;
mod scan;
mod selection;

use core::fmt;

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{ElementType, InputSpec, ProblemError, Role, row_major_strides};

pub use crate::error::ShardsError;
use crate::{
    error::ReduceError,
    input::{Input, sealed::Layout},
};

/// A tensor that lies on several devices: cut into shards along one axis, or the same on each.
///
/// [`reduce`](crate::reduce) takes it like any other tensor, with all options of the builder, and
/// [`run_sharded`](crate::Reduction::run_sharded) runs it on all devices.
/// Reducing over axes that are not cut needs no exchange, and the result stays in shards. Reducing
/// over the cut axis exchanges partial results, one accumulator for each output and device, through
/// the collectives of the backend. They are merged in the order of the shards and finished on each
/// device, so all devices have the same bits, and so has every run.
///
/// Of CubeCL 0.11's backends, CUDA has collectives: it calls NCCL, which must be installed
/// (`libnccl.so`), and this crate needs its feature `nccl`. All devices belong to one process.
///
/// ```no_run
/// use reduce_kernels::{ArgMax, cubecl, reduce, sharded::Sharded};
///
/// # fn example(
/// #     [first, second]: [cubecl::Device; 2],
/// #     upper: cubecl::std::tensor::TensorHandle,
/// #     lower: cubecl::std::tensor::TensorHandle,
/// # ) -> Result<(), reduce_kernels::ReduceError> {
/// // The upper rows on one GPU, `cubecl::Device::cuda(0)`, the lower ones on another.
/// let x = Sharded::cut(0, [(first, upper), (second, lower)])?;
/// let of_rows = reduce(ArgMax, &x).over(1).run_sharded()?; // in shards as x is, nothing exchanged
/// let of_columns = reduce(ArgMax, &x).over(0).run_sharded()?; // the same on both
/// println!("{:?}", of_columns.shards()[0].tensor().shape());
/// # Ok(()) }
/// ```
pub struct Sharded {
    shards: Vec<Shard>,
    cut: Option<Cut>,
    element: ElementType,
    /// Shape of the whole, and its strides if it were one row-major tensor.
    shape: Vec<usize>,
    strides: Vec<usize>,
}

/// How a tensor is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cut {
    axis: usize,
    /// For each shard, the index of its first element along the axis.
    starts: Vec<usize>,
}

/// What one device has of a [`Sharded`] tensor.
pub struct Shard {
    device: cubecl::Device,
    client: Client,
    tensor: TensorHandle,
}

impl Clone for Shard {
    fn clone(&self) -> Self {
        let Self { device, client, tensor } = self;
        Self { device: device.clone(), client: client.clone(), tensor: tensor.clone() }
    }
}

impl Clone for Sharded {
    fn clone(&self) -> Self {
        Self {
            shards: self.shards.clone(),
            cut: self.cut.clone(),
            element: self.element,
            shape: self.shape.clone(),
            strides: self.strides.clone(),
        }
    }
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard")
            .field("device", &self.device)
            .field("tensor", &self.tensor)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Sharded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharded")
            .field("element", &self.element)
            .field("shape", &self.shape)
            .field("cut", &self.cut)
            .field("shards", &self.shards)
            .finish_non_exhaustive()
    }
}

impl Shard {
    /// The device.
    #[must_use]
    pub fn device(&self) -> &cubecl::Device {
        &self.device
    }

    /// A client of the device.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The tensor.
    #[must_use]
    pub fn tensor(&self) -> &TensorHandle {
        &self.tensor
    }
}

impl Sharded {
    /// A tensor that is cut along `axis`: the concatenation of these tensors, each of which lies on
    /// the device beside it. They may have different extents along the axis, also none, and any
    /// strides.
    ///
    /// # Errors
    ///
    /// No shard, a device given twice, different types, shapes that differ along another axis, or
    /// an axis that is none.
    pub fn cut(
        axis: usize,
        shards: impl IntoIterator<Item = (cubecl::Device, TensorHandle)>,
    ) -> Result<Self, ReduceError> {
        Self::new(Some(axis), shards)
    }

    /// A tensor that is the same on each of the devices.
    ///
    /// # Errors
    ///
    /// Those of [`cut`](Self::cut), and shapes that differ. Whether the elements are the same is
    /// not checked.
    pub fn replicated(
        shards: impl IntoIterator<Item = (cubecl::Device, TensorHandle)>,
    ) -> Result<Self, ReduceError> {
        Self::new(None, shards)
    }

    fn new(
        axis: Option<usize>,
        shards: impl IntoIterator<Item = (cubecl::Device, TensorHandle)>,
    ) -> Result<Self, ReduceError> {
        let shards: Vec<_> = shards.into_iter().collect();
        let Some((_, first)) = shards.first() else { return Err(ShardsError::None.into()) };
        let element = first.spec()?.element;
        let mut shape = first.shape().to_vec();
        if let Some(axis) = axis.filter(|&axis| axis >= shape.len()) {
            return Err(ProblemError::AxisOutOfRange { axis, rank: shape.len() }.into());
        }
        let mut starts = Vec::new();
        let mut end = 0usize;
        for (nth, (device, tensor)) in shards.iter().enumerate() {
            let same = |(earlier, _): &(cubecl::Device, _)| earlier.to_id() == device.to_id();
            if let Some(first) = shards[..nth].iter().position(same) {
                let device = format!("{device:?}");
                return Err(ShardsError::SameDevice { first, second: nth, device }.into());
            }
            let other = tensor.spec()?.element;
            if other != element {
                return Err(ShardsError::Types { nth, first: element, other }.into());
            }
            let fits = tensor.shape().len() == shape.len()
                && (0..shape.len()).all(|at| Some(at) == axis || tensor.shape()[at] == shape[at]);
            if !fits {
                let (first, other) = (first.shape().to_vec(), tensor.shape().to_vec());
                return Err(ShardsError::Shapes { nth, cut: axis, first, other }.into());
            }
            starts.push(end);
            let extent = axis.map_or(0, |axis| tensor.shape()[axis]);
            end = end.checked_add(extent).ok_or_else(|| ProblemError::TooLarge {
                tensor: Role::Input,
                shape: vec![end, extent],
                strides: Vec::new(),
            })?;
        }
        if let Some(axis) = axis {
            shape[axis] = end;
        }
        let shards = shards.into_iter().map(|(device, tensor)| Shard {
            client: device.client(),
            device,
            tensor,
        });
        Ok(Self {
            shards: shards.collect(),
            cut: axis.map(|axis| Cut { axis, starts }),
            element,
            strides: row_major_strides(&shape),
            shape,
        })
    }

    /// Tensors on the devices of this one, which have the results of each: one tensor for each
    /// result, cut along `axis`.
    fn joined(
        &self,
        axis: Option<usize>,
        of_devices: Vec<Vec<TensorHandle>>,
    ) -> Result<impl Iterator<Item = Self> + use<>, ReduceError> {
        let count = of_devices.first().map_or(0, Vec::len);
        let mut of_devices: Vec<_> = of_devices.into_iter().map(Vec::into_iter).collect();
        let joined = (0..count).map(|_| {
            let tensors = of_devices.iter_mut().filter_map(Iterator::next);
            let devices = self.shards.iter().map(|shard| shard.device.clone());
            Self::new(axis, devices.zip(tensors).collect::<Vec<_>>())
        });
        let joined = joined.collect::<Result<Vec<_>, _>>().map_err(ReduceError::after_launch)?;
        Ok(joined.into_iter())
    }

    /// What each device has, in the order of the cut.
    #[must_use]
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// The tensors and their devices.
    #[must_use]
    pub fn into_shards(self) -> Vec<(cubecl::Device, TensorHandle)> {
        self.shards.into_iter().map(|shard| (shard.device, shard.tensor)).collect()
    }

    /// The axis along which the tensor is cut; `None` if it is the same on all devices.
    #[must_use]
    pub fn axis(&self) -> Option<usize> {
        self.cut.as_ref().map(|cut| cut.axis)
    }

    /// For each shard, the index of its first element along the cut axis.
    #[must_use]
    pub fn starts(&self) -> Option<&[usize]> {
        self.cut.as_ref().map(|cut| &cut.starts[..])
    }

    /// Shape of the whole tensor.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Type of the elements.
    #[must_use]
    pub fn element(&self) -> ElementType {
        self.element
    }
}

impl Input for Sharded {}

impl Layout for Sharded {
    fn spec(&self) -> Result<InputSpec<'_>, ReduceError> {
        Ok(InputSpec {
            element: self.element,
            shape: &self.shape,
            strides: &self.strides,
            alignment: self.element.bytes(),
        })
    }

    fn buffer_bytes(&self) -> Option<u64> {
        None
    }
}
