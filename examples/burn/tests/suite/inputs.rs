//! Random tensors in random layouts, the same on two backends.

use burn_tensor::{DType, Device, Element, Slice, Tensor, TensorData, kind::Basic};
use rand::{Rng, SeedableRng, rngs::StdRng};

/// The rank of the random tensors.
pub(crate) const RANK: usize = 4;

/// A source of random cases. The same seed gives the same cases.
pub(crate) struct Cases {
    random: StdRng,
}

/// A random layout: what is done to a row-major tensor, none of which copies it.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The shape in memory.
    stored: [usize; RANK],
    permuted: [usize; RANK],
    /// First and last index along each axis after the permutation.
    sliced: [(usize, usize); RANK],
    /// Axes of one index that are repeated.
    expanded: [usize; RANK],
    /// The reduced axes, some of them counted from the end.
    pub(crate) axes: Vec<i64>,
    pub(crate) keep_dims: bool,
}

impl Cases {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed) }
    }

    pub(crate) fn layout(&mut self) -> Layout {
        let random = &mut self.random;
        let mut permuted = [0, 1, 2, 3];
        for last in (1..RANK).rev() {
            permuted.swap(last, random.random_range(0..=last));
        }
        let mut stored = [0; RANK];
        let mut sliced = [(0, 0); RANK];
        let mut expanded = [1; RANK];
        for (axis, &from) in permuted.iter().enumerate() {
            let extent = [1, 2, 3, 5, 8, 33][random.random_range(0..6)];
            let (first, after) = if random.random_bool(0.3) { (1, 2) } else { (0, 0) };
            stored[from] = first + extent + after;
            sliced[axis] = (first, first + extent);
            if extent == 1 {
                expanded[axis] = random.random_range(1..=4);
            }
        }
        let mut axes: Vec<i64> = (0..RANK as i64).filter(|_| random.random_bool(0.5)).collect();
        for axis in &mut axes {
            if random.random_bool(0.3) {
                *axis -= RANK as i64;
            }
        }
        let keep_dims = random.random_bool(0.5);
        Layout { stored, permuted, sliced, expanded, axes, keep_dims }
    }

    /// Elements for a layout.
    pub(crate) fn data<E: Element>(
        &mut self,
        layout: &Layout,
        mut element: impl FnMut(&mut StdRng) -> E,
    ) -> TensorData {
        let count = layout.stored.iter().product();
        let elements: Vec<E> = (0..count).map(|_| element(&mut self.random)).collect();
        TensorData::new(elements, layout.stored)
    }
}

impl Layout {
    /// The tensor in this layout.
    pub(crate) fn of<K: Basic>(&self, data: &TensorData, device: &Device) -> Tensor<RANK, K> {
        // Burn stores truth values in a type of the device's.
        let stored = match data.dtype() {
            DType::Bool(_) => Tensor::<RANK, K>::from_data(data.clone(), device),
            dtype => Tensor::<RANK, K>::from_data(data.clone(), (device, dtype)),
        };
        self.arranged(stored)
    }

    /// A tensor of the stored shape, in this layout.
    pub(crate) fn arranged<K: Basic>(&self, stored: Tensor<RANK, K>) -> Tensor<RANK, K> {
        let slices =
            self.sliced.map(|(first, end)| Slice::new(first as isize, Some(end as isize), 1));
        let sliced = stored.permute(self.permuted.map(|axis| axis as isize)).slice(slices);
        let shape = sliced.dims();
        let expanded: [usize; RANK] =
            core::array::from_fn(|axis| shape[axis] * self.expanded[axis]);
        if expanded == shape { sliced } else { sliced.expand(expanded) }
    }
}
