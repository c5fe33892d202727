//! Random inputs. Rotating over them defeats caches, and compilers cannot predict their values.

use reduce_kernels::{
    ElementType,
    cubecl::{self, ir::ElemType, prelude::*, std::tensor::TensorHandle},
    storage_type,
};

use crate::bits::hash;

/// Bytes that one rotation over all inputs reads, unless a single input is larger. They are several
/// times the size of the largest L2 cache.
const ROTATED_BYTES: usize = 1 << 30;

/// Most inputs of one call.
const MOST_INPUTS: usize = 128;

/// Half of the numbers that 32 bits hold.
const HALF_RANGE: f32 = (1u32 << 31) as f32;

/// How random bits become an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Spread {
    /// Evenly over [-1, 1), in 32 random bits, rounded to the type.
    Float,
    /// Evenly over [-1, 1), in 64 random bits.
    WideFloat,
    /// -128 to 127.
    Signed,
    /// 0 to 255.
    Unsigned,
    /// 0 or 1.
    Bit,
}

impl Spread {
    fn of(element: ElementType) -> Self {
        match element {
            ElementType::Bool => Spread::Bit,
            ElementType::F64 => Spread::WideFloat,
            element if element.is_float() => Spread::Float,
            element if element.is_signed() => Spread::Signed,
            _ => Spread::Unsigned,
        }
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn fill<E: Numeric>(
    output: &mut [E],
    seed: u32,
    length: usize,
    #[comptime] spread: Spread,
    #[define(E)] _type: ElemType,
) {
    let step = CUBE_COUNT * CUBE_DIM as usize;
    let mut index = ABSOLUTE_POS;
    while index < length {
        let bits = hash(u32::cast_from(index) + seed * 0x9e37_79b9u32);
        output[index] = match spread {
            Spread::Float => E::cast_from(f32::cast_from(bits) / HALF_RANGE - 1.0f32),
            Spread::WideFloat => {
                let fine = E::cast_from(hash(bits)) / E::cast_from(HALF_RANGE * 2.0f32);
                (E::cast_from(bits) + fine) / E::cast_from(HALF_RANGE) - E::from_int(1)
            }
            Spread::Signed => E::cast_from(i32::cast_from(bits >> 24u32) - 128i32),
            Spread::Unsigned => E::cast_from(bits >> 24u32),
            Spread::Bit => E::cast_from(bits >> 31u32),
        };
        index += step;
    }
}

/// The number of inputs of `bytes` each that hold `rotated` bytes together, or 1 GiB by default.
/// Calls that use them in turn find none in the cache, unless each is small.
pub fn rotated_inputs(bytes: usize, rotated: Option<usize>) -> usize {
    (rotated.unwrap_or(ROTATED_BYTES) / bytes.max(1)).clamp(1, MOST_INPUTS)
}

/// Tensors of one layout without gaps, as many as [`rotated_inputs`] says. Floats lie evenly in
/// [-1, 1) with random mantissas, integers in the range of a byte.
pub fn random_inputs(
    client: &Client,
    element: ElementType,
    shape: &[usize],
    strides: &[usize],
    rotated: Option<usize>,
) -> Vec<TensorHandle> {
    let elements = shape.iter().try_fold(1usize, |all, &extent| all.checked_mul(extent));
    let elements = elements.expect("a buffer has fewer elements");
    let bytes = elements.checked_mul(element.bytes()).expect("a buffer has fewer bytes").max(1);
    // Kernels see bools as bytes.
    let stored = match element {
        ElementType::Bool => ElementType::U8,
        element => element,
    };
    (0..rotated_inputs(bytes, rotated))
        .map(|seed| {
            let handle = client.empty(bytes);
            // SAFETY: the buffer holds `elements` elements, and the kernel writes no others.
            unsafe {
                fill::launch_unchecked(
                    client,
                    CubeCount::new_1d(1024),
                    CubeDim::new_1d(256),
                    AddressType::from_len(elements),
                    BufferArg::from_raw_parts(handle.clone(), elements),
                    seed as u32,
                    elements,
                    Spread::of(element),
                    storage_type(stored),
                );
            }
            TensorHandle::new(handle, shape.to_vec(), strides.to_vec(), storage_type(element))
        })
        .collect()
}

#[cfg(all(test, any(feature = "wgpu", feature = "vulkan")))]
mod tests {
    use reduce_kernels::cubecl::{Device, wgpu::WgpuDevice};

    use super::*;

    fn filled<E: CubeElement>(element: ElementType) -> Vec<E> {
        let client = Device::from(WgpuDevice::default()).client();
        let inputs = random_inputs(&client, element, &[65536], &[1], Some(0));
        let bytes = client.read_one(inputs[0].handle.clone()).unwrap();
        E::from_bytes(&bytes).to_vec()
    }

    /// Ties and short mantissas would flatter some reductions: nearly every value must be its own.
    #[test]
    fn floats_spread_evenly() {
        let mut values: Vec<f32> = filled(ElementType::F32);
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        assert!(mean.abs() < 0.02, "{mean}");
        values.sort_by(f32::total_cmp);
        assert!((-1.0..-0.99).contains(&values[0]), "{}", values[0]);
        assert!((0.99..=1.0).contains(&values[65535]), "{}", values[65535]);
        values.dedup();
        assert!(values.len() > 65000, "{}", values.len());
    }

    /// Integers take all values of a byte, whatever their width and sign.
    #[test]
    fn integers_take_the_values_of_a_byte() {
        let signed: Vec<i32> = filled(ElementType::I32);
        assert_eq!((signed.iter().min(), signed.iter().max()), (Some(&-128), Some(&127)));
        let unsigned: Vec<u32> = filled(ElementType::U32);
        assert_eq!((unsigned.iter().min(), unsigned.iter().max()), (Some(&0), Some(&255)));
    }
}
