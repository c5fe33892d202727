//! The figures of a tensor, computed on a device.

use half::{bf16, f16};
use reduce_examples::{Number, ResultError, download};
use reduce_kernels::{
    Device, ElementType, MinMax, ReduceError,
    cubecl::{bytes::Bytes, prelude::*, std::tensor::TensorHandle},
    planner::PlanError,
    reduce, storage_type,
};
use serde::Serialize;

use crate::{
    checkpoint::CheckpointError,
    operators::{Census, MeanStd},
};

/// The figures of one tensor. Those that are undefined without elements are `None` for an empty
/// tensor.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    pub mean: Option<Number>,
    pub std: Option<Number>,
    pub min: Option<Number>,
    pub max: Option<Number>,
    pub max_magnitude: Option<Number>,
    pub zeros_share: Option<f64>,
    pub nans: u64,
    pub infinities: u64,
}

/// Why a tensor has no figures.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FiguresError {
    /// The tensor does not fit.
    #[error("takes {needed} bytes, a buffer of the device holds {available}")]
    TooLarge {
        /// Bytes of the tensor.
        needed: u64,
        /// Bytes of the largest buffer.
        available: u64,
    },
    /// The elements could not be read.
    #[error(transparent)]
    Read(#[from] CheckpointError),
    /// The reductions failed.
    #[error(transparent)]
    Result(#[from] ResultError),
}

impl From<ReduceError> for FiguresError {
    fn from(error: ReduceError) -> Self {
        Self::Result(error.into())
    }
}

impl Figures {
    /// The figures of no elements.
    fn of_nothing() -> Self {
        Self {
            mean: None,
            std: None,
            min: None,
            max: None,
            max_magnitude: None,
            zeros_share: None,
            nans: 0,
            infinities: 0,
        }
    }

    /// The figures of `elements` elements, whose bytes `read` gets. They are uploaded once and read
    /// three times.
    ///
    /// # Errors
    ///
    /// The device lacks the type or the room, before anything is read; or it fails, or `read` does.
    pub(crate) fn of<R: Runtime>(
        client: &ComputeClient<R>,
        device: &Device,
        element: ElementType,
        elements: usize,
        read: impl FnOnce() -> Result<Vec<u8>, CheckpointError>,
    ) -> Result<Self, FiguresError> {
        if elements == 0 {
            return Ok(Self::of_nothing());
        }
        let stored = if device.has(element) { element } else { wider(element) };
        if !device.has(stored) {
            let device = device.name.clone();
            return Err(ReduceError::from(PlanError::ElementUnsupported { device, element }).into());
        }
        let needed = (elements as u64).saturating_mul(stored.bytes() as u64);
        let available = client.properties().memory.max_page_size;
        if needed > available {
            return Err(FiguresError::TooLarge { needed, available });
        }
        let bytes = read()?;
        let bytes = if stored == element { bytes } else { widened(element, &bytes) };
        let buffer = client.create(Bytes::from_bytes_vec(bytes));
        // The axis of an element makes no difference here.
        let tensor = TensorHandle::new_contiguous([elements], buffer, storage_type(stored));

        let float = if device.has(ElementType::F64) { ElementType::F64 } else { ElementType::F32 };
        let (mean, std) =
            reduce(MeanStd, &tensor).output_type(float).nth_output_type(1, float).run(client)?;
        let (min, max) = reduce(MinMax, &tensor).run(client)?;
        let (nonzeros, nans, infinities) = reduce(Census, &tensor).run(client)?;
        let results = download(client, &[mean, std, min, max, nonzeros, nans, infinities])?;
        let value = |nth: usize| results[nth].values()[0];
        let count = |nth: usize| match value(nth) {
            Number::Unsigned(count) => count,
            other => unreachable!("counters are unsigned, not {other:?}"),
        };
        // A device that was given bools as numbers returns them as numbers.
        let extremum = |nth: usize| match (element, value(nth)) {
            (ElementType::Bool, Number::Unsigned(value)) => Number::Bool(value != 0),
            (_, value) => value,
        };
        let (min, max) = (extremum(2), extremum(3));
        let (nans, infinities) = (count(5), count(6));
        // Some elements are not finite. The mean is then infinite, or NaN if there are infinities
        // of both signs or a NaN. The sum of the extrema is the same. Distances from such a mean
        // are not finite, so the deviation is NaN.
        let (mean, std) = match nans + infinities {
            0 => (value(0), value(1)),
            _ => (Number::Float(min.to_f64() + max.to_f64()), Number::Float(f64::NAN)),
        };
        let most = match (min.magnitude(), max.magnitude()) {
            (Number::Float(low), Number::Float(high)) if low > high => Number::Float(low),
            (Number::Unsigned(low), Number::Unsigned(high)) => Number::Unsigned(low.max(high)),
            (_, high) => high,
        };
        Ok(Self {
            mean: Some(mean),
            std: Some(std),
            min: Some(min),
            max: Some(max),
            max_magnitude: Some(most),
            zeros_share: Some((elements as u64 - count(4)) as f64 / elements as f64),
            nans,
            infinities,
        })
    }
}

/// A type that holds every value of `element` and that every device has, if there is any.
fn wider(element: ElementType) -> ElementType {
    match element {
        ElementType::F16 | ElementType::BF16 => ElementType::F32,
        ElementType::I8 | ElementType::I16 => ElementType::I32,
        ElementType::U8 | ElementType::U16 | ElementType::Bool => ElementType::U32,
        other => other,
    }
}

/// The elements in the type that is [`wider`].
fn widened(element: ElementType, bytes: &[u8]) -> Vec<u8> {
    fn all<T: bytemuck::Pod, W: bytemuck::Pod>(bytes: &[u8], widen: fn(T) -> W) -> Vec<u8> {
        let elements = bytemuck::pod_collect_to_vec::<u8, T>(bytes);
        let elements: Vec<W> = elements.into_iter().map(widen).collect();
        bytemuck::cast_slice(&elements).to_vec()
    }
    match element {
        ElementType::F16 => all(bytes, f16::to_f32),
        ElementType::BF16 => all(bytes, bf16::to_f32),
        ElementType::I8 => all::<i8, i32>(bytes, i32::from),
        ElementType::I16 => all::<i16, i32>(bytes, i32::from),
        ElementType::U8 | ElementType::Bool => all::<u8, u32>(bytes, u32::from),
        ElementType::U16 => all::<u16, u32>(bytes, u32::from),
        _ => bytes.to_vec(),
    }
}

#[cfg(all(test, any(feature = "cuda", feature = "vulkan", feature = "wgpu")))]
mod tests {
    use reduce_kernels::device_of;
    use reduce_programs::{Backend, OnDevice, on_device};

    use super::*;

    /// Tensors of every type on a device that has three.
    struct FewTypes;

    impl OnDevice for FewTypes {
        type Output = ();

        fn on<R: Runtime>(self, client: &ComputeClient<R>, _: Backend, _: &str) {
            let elements = vec![ElementType::F32, ElementType::I32, ElementType::U32];
            let mut device = device_of(client);
            device.elements = elements;
            let figures = |element: ElementType, bytes: &[u8]| {
                let elements = bytes.len() / element.bytes();
                Figures::of(client, &device, element, elements, || Ok(bytes.to_vec()))
            };
            let expect = |element, bytes: &[u8], min, max, mean| {
                let figures = figures(element, bytes).unwrap();
                assert_eq!((figures.min, figures.max), (Some(min), Some(max)), "{element}");
                assert_eq!(figures.mean, Some(Number::Float(mean)), "{element}");
                assert_eq!(figures.zeros_share, Some(0.25), "{element}");
            };
            let halves = [0.0f32, -2.0, 3.5, 0.5];
            let (low, high) = (Number::Float(-2.0), Number::Float(3.5));
            let bytes = halves.map(f16::from_f32);
            expect(ElementType::F16, bytemuck::cast_slice(&bytes), low, high, 0.5);
            let bytes = halves.map(bf16::from_f32);
            expect(ElementType::BF16, bytemuck::cast_slice(&bytes), low, high, 0.5);
            let (low, high) = (Number::Signed(-100), Number::Signed(3));
            let bytes = [0i8, -100, 3, 1];
            expect(ElementType::I8, bytemuck::cast_slice(&bytes), low, high, -24.0);
            let bytes = bytes.map(i16::from);
            expect(ElementType::I16, bytemuck::cast_slice(&bytes), low, high, -24.0);
            let (low, high) = (Number::Unsigned(0), Number::Unsigned(200));
            let bytes = [0u8, 200, 3, 1];
            expect(ElementType::U8, &bytes, low, high, 51.0);
            let bytes = bytes.map(u16::from);
            expect(ElementType::U16, bytemuck::cast_slice(&bytes), low, high, 51.0);
            let (low, high) = (Number::Bool(false), Number::Bool(true));
            expect(ElementType::Bool, &[0, 1, 1, 1], low, high, 0.75);

            for element in [ElementType::F64, ElementType::I64, ElementType::U64] {
                let refused = figures(element, &[0; 16]).unwrap_err().to_string();
                assert!(refused.ends_with(&format!("has no {element}")), "{refused}");
            }
        }
    }

    /// Narrow types come through wider ones unharmed where a device has no others; what no 32 bits
    /// hold is refused by name.
    #[test]
    fn types_are_widened_or_refused() {
        on_device(None, FewTypes).unwrap();
    }
}
