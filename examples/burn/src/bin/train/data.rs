//! The digits of `data/digits.bin`; data/README.md tells where they come from.

use burn_tensor::{Device, Int, Tensor, TensorData};

/// Height and width of an image.
pub(crate) const SIDE: usize = 8;

/// Number of digits.
pub(crate) const CLASSES: usize = 10;

const PIXELS: usize = SIDE * SIDE;

/// The value of ink.
const DARKEST: f32 = 16.0;

/// Of so many images, the last is for the test.
const TEST_EVERY: usize = 5;

static BYTES: &[u8] = include_bytes!("../../../data/digits.bin");

/// Images and their digits on the host.
pub(crate) struct Digits(Vec<&'static [u8]>);

impl Digits {
    /// The images to learn from and those for the test.
    pub(crate) fn split() -> (Self, Self) {
        let images = BYTES.chunks_exact(PIXELS + 1).enumerate();
        let (test, learnt): (Vec<_>, Vec<_>) =
            images.partition(|(nth, _)| nth % TEST_EVERY == TEST_EVERY - 1);
        let images = |numbered: Vec<(usize, &'static [u8])>| {
            Self(numbered.into_iter().map(|(_, image)| image).collect())
        };
        (images(learnt), images(test))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// These images on a device.
    pub(crate) fn upload(&self, which: &[usize], device: &Device) -> Batch {
        let images = || which.iter().map(|&nth| self.0[nth]);
        let pixels: Vec<f32> = images()
            .flat_map(|image| &image[..PIXELS])
            .map(|&pixel| f32::from(pixel) / DARKEST)
            .collect();
        let digits: Vec<i32> = images().map(|image| i32::from(image[PIXELS])).collect();
        Batch {
            images: Tensor::from_data(
                TensorData::new(pixels, [which.len(), 1, SIDE, SIDE]),
                device,
            ),
            digits: Tensor::from_data(TensorData::new(digits, [which.len()]), device),
        }
    }

    /// All images on a device.
    pub(crate) fn upload_all(&self, device: &Device) -> Batch {
        self.upload(&(0..self.len()).collect::<Vec<_>>(), device)
    }
}

/// Images and their digits on a device.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// `[batch, 1, height, width]`, from 0 to 1.
    pub images: Tensor<4>,
    /// `[batch]`.
    pub digits: Tensor<1, Int>,
}
