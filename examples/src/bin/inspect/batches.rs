//! Batches of tensors: read, uploaded and reduced together.

use std::collections::VecDeque;

use reduce_examples::{Array, Number, ResultError, download};
use reduce_kernels::{
    Device, ElementType, ReduceError, confirm,
    cubecl::{bytes::Bytes, prelude::*, std::tensor::TensorHandle},
    list::reduce_list,
    operators::MinMax,
    planner::PlanError,
    storage_type,
};

use safetensors::Dtype;

use crate::{
    checkpoint::{CheckpointError, element_of},
    figures::{Figures, Findings, Total},
    operators::{Census, MeanStd},
    widen::{widened, wider},
};

/// A tensor of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Described {
    pub dtype: Dtype,
    /// Number of its elements.
    pub elements: usize,
}

/// Why a tensor has no figures.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FiguresError {
    /// The library does not reduce the type.
    #[error("tensors of {0} cannot be reduced")]
    Type(Dtype),
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

/// A tensor that the device can take, and that is not empty.
#[derive(Clone, Copy, Debug)]
struct Admitted {
    /// Its number in the file.
    nth: usize,
    element: ElementType,
    /// Its type on the device.
    stored: ElementType,
    elements: usize,
}

impl Admitted {
    /// `None` if there are no elements.
    ///
    /// # Errors
    ///
    /// The library or the device lacks the type, or the device lacks the room.
    fn new(
        client: &Client,
        device: &Device,
        nth: usize,
        tensor: Described,
    ) -> Result<Option<Self>, FiguresError> {
        let Described { dtype, elements } = tensor;
        let element = element_of(dtype).ok_or(FiguresError::Type(dtype))?;
        if elements == 0 {
            return Ok(None);
        }
        let stored = if device.has(element) { element } else { wider(element) };
        if !device.has(stored) {
            let device = device.name.clone();
            return Err(ReduceError::from(PlanError::ElementUnsupported { device, element }).into());
        }
        let admitted = Self { nth, element, stored, elements };
        let (needed, available) = (admitted.bytes(), client.properties().memory.max_page_size);
        if needed > available {
            return Err(FiguresError::TooLarge { needed, available });
        }
        Ok(Some(admitted))
    }

    /// Bytes on the device.
    fn bytes(&self) -> u64 {
        (self.elements as u64).saturating_mul(self.stored.bytes() as u64)
    }

    /// Uploads the bytes of the file.
    fn uploaded(&self, client: &Client, bytes: Vec<u8>) -> TensorHandle {
        let is_stored = self.stored == self.element;
        let bytes = if is_stored { bytes } else { widened(self.element, &bytes) };
        let buffer = client.create(Bytes::from_bytes_vec(bytes));
        // The axis of an element makes no difference here.
        TensorHandle::new_contiguous([self.elements], buffer, storage_type(self.stored))
    }
}

/// Batches of one type on the device and of at most so many bytes, but of at least one tensor.
fn batches(mut tensors: Vec<Admitted>, most_bytes: u64) -> VecDeque<Vec<Admitted>> {
    tensors.sort_by_key(|tensor| tensor.stored as usize);
    let mut batches: VecDeque<Vec<Admitted>> = VecDeque::new();
    let mut bytes = 0u64;
    for tensor in tensors {
        bytes = bytes.saturating_add(tensor.bytes());
        match batches.back_mut() {
            Some(batch) if batch[0].stored == tensor.stored && bytes <= most_bytes => {
                batch.push(tensor);
            }
            _ => {
                bytes = tensor.bytes();
                batches.push_back(vec![tensor]);
            }
        }
    }
    batches
}

/// Finds the figures of `tensors`, in batches of at most `most_bytes` on the device. A tensor of
/// more bytes is a batch alone.
///
/// `read` gets the bytes of a tensor, and `decide` is told the outcome of each once, in no
/// particular order. The tensors of a batch that fails are read and tried again one by one. The
/// result is the total of the tensors that have figures.
pub(crate) fn inspect(
    client: &Client,
    device: &Device,
    most_bytes: u64,
    tensors: &[Described],
    read: impl Fn(usize) -> Result<Vec<u8>, CheckpointError>,
    mut decide: impl FnMut(usize, Result<Figures, FiguresError>),
) -> Total {
    let (mut types, mut total) = (Vec::new(), None::<Findings>);
    let mut admitted = Vec::new();
    for (nth, &tensor) in tensors.iter().enumerate() {
        match Admitted::new(client, device, nth, tensor) {
            Ok(Some(tensor)) => admitted.push(tensor),
            Ok(None) => {
                types.extend(element_of(tensor.dtype));
                decide(nth, Ok(Figures::of_nothing()));
            }
            Err(error) => decide(nth, Err(error)),
        }
    }
    let mut batches = batches(admitted, most_bytes);
    while let Some(batch) = batches.pop_front() {
        let (mut uploaded, mut handles) = (Vec::new(), Vec::new());
        for tensor in batch {
            match read(tensor.nth) {
                Ok(bytes) => {
                    handles.push(tensor.uploaded(client, bytes));
                    uploaded.push(tensor);
                }
                Err(error) => decide(tensor.nth, Err(error.into())),
            }
        }
        if uploaded.is_empty() {
            continue;
        }
        match reduced(client, device, &uploaded, &handles) {
            Ok((each, all)) => {
                for (tensor, found) in uploaded.iter().zip(each) {
                    types.push(tensor.element);
                    decide(tensor.nth, Ok(found.figures(Some(tensor.element))));
                }
                total = Some(total.map_or(all, |total| total.merged(all)));
            }
            Err(error) => match uploaded[..] {
                [tensor] => decide(tensor.nth, Err(error)),
                _ => batches.extend(uploaded.into_iter().map(|tensor| vec![tensor])),
            },
        }
    }
    Total::new(&types, total)
}

/// What the device finds in each of the tensors, and in all of them.
///
/// # Errors
///
/// The library refuses the reductions, or the device fails.
fn reduced(
    client: &Client,
    device: &Device,
    tensors: &[Admitted],
    handles: &[TensorHandle],
) -> Result<(Vec<Findings>, Findings), FiguresError> {
    let float = if device.has(ElementType::F64) { ElementType::F64 } else { ElementType::F32 };
    let moments = reduce_list(MeanStd, handles).output_type(float).nth_output_type(1, float);
    let moments = moments.run(client)?;
    let extrema = reduce_list(MinMax, handles).run(client)?;
    let census = reduce_list(Census, handles).run(client)?;
    let in_order = |(mean, std), (min, max), (nonzeros, nans, infinities)| {
        [mean, std, min, max, nonzeros, nans, infinities]
    };
    let each = in_order(moments.each, extrema.each, census.each);
    let all = in_order(moments.all, extrema.all, census.all);
    // Where memory runs out, launches do not run, and reading their results is no error.
    confirm(client, handles.iter().chain(&each).chain(&all))?;
    let results = download(client, &[each, all].concat())?;
    let results: Vec<Vec<Number>> = results.iter().map(Array::values).collect();
    let (each, all) = results.split_at(results.len() / 2);
    let findings = |elements: usize, results: &[Vec<Number>], nth: usize| {
        let value = |result: usize| results[result][nth];
        let count = |result: usize| match value(result) {
            Number::Unsigned(count) => count,
            other => unreachable!("counters are unsigned, not {other:?}"),
        };
        Findings {
            elements: elements as u64,
            mean: value(0).to_f64(),
            std: value(1).to_f64(),
            min: value(2),
            max: value(3),
            zeros: elements as u64 - count(4),
            nans: count(5),
            infinities: count(6),
        }
    };
    let elements = tensors.iter().map(|tensor| tensor.elements).sum();
    let of_tensor = |(nth, tensor): (usize, &Admitted)| findings(tensor.elements, each, nth);
    Ok((tensors.iter().enumerate().map(of_tensor).collect(), findings(elements, all, 0)))
}

#[cfg(all(test, any(feature = "cuda", feature = "vulkan", feature = "wgpu")))]
mod tests {
    use half::{bf16, f16};
    use reduce_kernels::device_of;
    use reduce_programs::{Backend, OnDevice, on_device};

    use super::*;

    /// The outcomes in the order of the file, and the total.
    fn outcomes(
        client: &Client,
        device: &Device,
        most_bytes: u64,
        tensors: &[(Dtype, &[u8])],
    ) -> (Vec<Result<Figures, FiguresError>>, Total) {
        let described = tensors.iter().map(|&(dtype, bytes)| {
            let elements = element_of(dtype).map_or(0, |element| bytes.len() / element.bytes());
            Described { dtype, elements }
        });
        let described: Vec<Described> = described.collect();
        let mut outcomes: Vec<_> = described.iter().map(|_| None).collect();
        let read = |nth: usize| Ok(tensors[nth].1.to_vec());
        let decide = |nth: usize, outcome| {
            assert!(outcomes[nth].replace(outcome).is_none(), "{nth} is decided twice");
        };
        let total = inspect(client, device, most_bytes, &described, read, decide);
        (outcomes.into_iter().map(Option::unwrap).collect(), total)
    }

    /// Tensors of every type on a device that has three.
    struct FewTypes;

    impl OnDevice for FewTypes {
        type Output = ();

        fn on(self, client: &Client, _: Backend, _: &str) {
            let elements = vec![ElementType::F32, ElementType::I32, ElementType::U32];
            let mut device = device_of(client);
            device.elements = elements;
            let figures = |dtype: Dtype, bytes: &[u8]| {
                let (mut outcomes, _) = outcomes(client, &device, 1 << 20, &[(dtype, bytes)]);
                outcomes.remove(0)
            };
            let expect = |dtype, bytes: &[u8], min, max, mean| {
                let figures = figures(dtype, bytes).unwrap();
                assert_eq!((figures.min, figures.max), (Some(min), Some(max)), "{dtype}");
                assert_eq!(figures.mean, Some(Number::Float(mean)), "{dtype}");
                assert_eq!(figures.zeros_share, Some(0.25), "{dtype}");
            };
            let halves = [0.0f32, -2.0, 3.5, 0.5];
            let (low, high) = (Number::Float(-2.0), Number::Float(3.5));
            let bytes = halves.map(f16::from_f32);
            expect(Dtype::F16, bytemuck::cast_slice(&bytes), low, high, 0.5);
            let bytes = halves.map(bf16::from_f32);
            expect(Dtype::BF16, bytemuck::cast_slice(&bytes), low, high, 0.5);
            let (low, high) = (Number::Signed(-100), Number::Signed(3));
            let bytes = [0i8, -100, 3, 1];
            expect(Dtype::I8, bytemuck::cast_slice(&bytes), low, high, -24.0);
            let bytes = bytes.map(i16::from);
            expect(Dtype::I16, bytemuck::cast_slice(&bytes), low, high, -24.0);
            let (low, high) = (Number::Unsigned(0), Number::Unsigned(200));
            let bytes = [0u8, 200, 3, 1];
            expect(Dtype::U8, &bytes, low, high, 51.0);
            let bytes = bytes.map(u16::from);
            expect(Dtype::U16, bytemuck::cast_slice(&bytes), low, high, 51.0);
            let (low, high) = (Number::Bool(false), Number::Bool(true));
            expect(Dtype::BOOL, &[0, 1, 1, 1], low, high, 0.75);

            for (dtype, name) in [(Dtype::F64, "f64"), (Dtype::I64, "i64"), (Dtype::U64, "u64")] {
                let refused = figures(dtype, &[0; 16]).unwrap_err().to_string();
                assert!(refused.ends_with(&format!("has no {name}")), "{refused}");
            }

            // Bools and bytes are in one batch here, and keep their kinds.
            let tensors: [(Dtype, &[u8]); 2] = [(Dtype::BOOL, &[0, 1]), (Dtype::U8, &[7, 9])];
            let (found, total) = outcomes(client, &device, 1 << 20, &tensors);
            assert_eq!(found[0].as_ref().unwrap().max, Some(Number::Bool(true)));
            assert_eq!(found[1].as_ref().unwrap().min, Some(Number::Unsigned(7)));
            assert_eq!(total.figures.max, Some(Number::Float(9.0)));
            let (_, total) = outcomes(client, &device, 1 << 20, &tensors[..1]);
            assert_eq!(total.figures.max, Some(Number::Bool(true)));
        }
    }

    /// Narrow types come through wider ones unharmed where a device has no others; what no 32 bits
    /// hold is refused by name.
    #[test]
    fn types_are_widened_or_refused() {
        on_device(None, FewTypes).unwrap();
    }

    /// Tensors of several types in batches of every size.
    struct SeveralBatches;

    impl OnDevice for SeveralBatches {
        type Output = ();

        fn on(self, client: &Client, _: Backend, _: &str) {
            let device = device_of(client);
            let floats: Vec<f32> = (0..1000).map(|nth| nth as f32 - 300.0).collect();
            let integers = [-5i32, 0, 2_000_000];
            let float =
                |range: std::ops::Range<usize>| (Dtype::F32, bytemuck::cast_slice(&floats[range]));
            let tensors: [(Dtype, &[u8]); 9] = [
                float(0..10),
                (Dtype::I32, bytemuck::cast_slice(&integers[..2])),
                float(10..500),
                (Dtype::F8_E8M0, &[1, 2]),
                float(500..500),
                (Dtype::I32, bytemuck::cast_slice(&integers[2..])),
                float(500..503),
                float(503..999),
                float(999..1000),
            ];
            let (whole, whole_total) = outcomes(client, &device, u64::MAX, &tensors);
            for most_bytes in [0, 16, 2000] {
                let (found, total) = outcomes(client, &device, most_bytes, &tensors);
                for (nth, (found, whole)) in found.iter().zip(&whole).enumerate() {
                    let [found, whole] = [found, whole].map(|outcome| format!("{outcome:?}"));
                    assert_eq!(found, whole, "tensor {nth} in batches of {most_bytes} bytes");
                }
                let close = |found: Option<Number>, wanted: Option<Number>| {
                    let [found, wanted] = [found, wanted].map(|number| number.unwrap().to_f64());
                    assert!((found - wanted).abs() <= 1e-5 * wanted.abs(), "{found}: {wanted}");
                };
                close(total.figures.mean, whole_total.figures.mean);
                close(total.figures.std, whole_total.figures.std);
                let counted = |total: &Total| {
                    let Figures { min, max, zeros_share, .. } = total.figures;
                    (total.tensors, total.elements, min, max, zeros_share)
                };
                assert_eq!(counted(&total), counted(&whole_total));
            }
            assert!(whole[3].is_err());
            assert_eq!(whole_total.elements, 1003);
            assert_eq!(whole_total.tensors, 8);
            assert_eq!(whole_total.dtype, None);
            assert_eq!(whole_total.figures.min, Some(Number::Float(-300.0)));
            assert_eq!(whole_total.figures.max, Some(Number::Float(2e6)));
            assert_eq!(whole_total.figures.zeros_share, Some(2.0 / 1003.0));
        }
    }

    /// The size of batches changes no tensor's figures, and no total by more than rounding.
    #[test]
    fn batches_of_any_size_give_the_same() {
        on_device(None, SeveralBatches).unwrap();
    }

    /// Two tensors that fail in a batch of four: one cannot be read, the other has too few bytes,
    /// which the reductions refuse.
    struct Failing;

    impl OnDevice for Failing {
        type Output = ();

        fn on(self, client: &Client, _: Backend, _: &str) {
            let read = |nth: usize| match nth {
                1 => Err(CheckpointError::NotSafetensors {
                    path: "model".into(),
                    reason: "it is gone".into(),
                }),
                2 => Ok(vec![0; 4]),
                _ => Ok(vec![0; 4096]),
            };
            let tensors = [Described { dtype: Dtype::F32, elements: 1024 }; 4];
            let mut outcomes: Vec<(usize, Option<String>)> = Vec::new();
            let decide = |nth, outcome: Result<Figures, FiguresError>| {
                outcomes.push((nth, outcome.err().map(|error| error.to_string())));
            };
            let total = inspect(client, &device_of(client), 1 << 20, &tensors, read, decide);
            outcomes.sort_unstable();
            let failed: Vec<bool> = outcomes.iter().map(|(_, error)| error.is_some()).collect();
            assert_eq!(failed, [false, true, true, false], "{outcomes:?}");
            assert!(outcomes[1].1.as_ref().unwrap().ends_with("it is gone"), "{outcomes:?}");
            assert_eq!((total.tensors, total.elements), (2, 2048));
            assert_eq!(total.figures.zeros_share, Some(1.0));
        }
    }

    /// A tensor that fails does not spoil its batch.
    #[test]
    fn batches_go_on_without_what_fails() {
        on_device(None, Failing).unwrap();
    }

    /// A batch ends where the type changes and where the bytes are full; a tensor of more bytes is
    /// alone.
    #[test]
    fn batches_have_one_type_and_fit() {
        use ElementType::{F16, F32};
        let tensor =
            |nth: usize, stored, elements| Admitted { nth, element: stored, stored, elements };
        let tensors = vec![
            tensor(0, F32, 2),
            tensor(1, F16, 4),
            tensor(2, F32, 2),
            tensor(3, F32, 1),
            tensor(4, F32, 100),
            tensor(5, F32, 1),
            tensor(6, F16, 1),
        ];
        let found = batches(tensors, 16);
        let mut found: Vec<Vec<usize>> =
            found.iter().map(|batch| batch.iter().map(|tensor| tensor.nth).collect()).collect();
        found.sort();
        assert_eq!(found, [vec![0, 2], vec![1, 6], vec![3], vec![4], vec![5]]);
    }
}
