//! Hashes that reach a hasher in few writes.
//!
//! CubeCL finds a compiled kernel by a hash of everything that it was generated for, and a launch
//! through CUDA looks for it three times. Calls that keep their kernels hash all of it once
//! (`host/kept.rs`), others at each look-up. Each write to the hasher takes some sixty
//! instructions, and `derive(Hash)` writes every field and every variant of its own. For the types
//! of a kernel these were 2600 instructions, half of a look-up.

use core::hash::{Hash, Hasher};

/// A value that is hashed with one write for every 64 bytes of what its own hash writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtOnce<T>(pub(crate) T);

impl<T: Hash> Hash for AtOnce<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut gathered = Gathered { state, bytes: [0; 64], len: 0 };
        self.0.hash(&mut gathered);
        gathered.pass_on();
    }
}

/// Hashes a struct with [`AtOnce`], field by field.
macro_rules! hash_at_once {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl core::hash::Hash for $name {
            fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
                let Self { $($field),* } = self;
                $crate::kernels::at_once::AtOnce(($($field,)*)).hash(state);
            }
        }
    };
}

pub(crate) use hash_at_once;

/// A hasher that gathers bytes, and passes them on to another one.
struct Gathered<'a, H> {
    state: &'a mut H,
    bytes: [u8; 64],
    len: usize,
}

impl<H: Hasher> Gathered<'_, H> {
    fn pass_on(&mut self) {
        if self.len > 0 {
            self.state.write(&self.bytes[..self.len]);
            self.len = 0;
        }
    }
}

impl<H: Hasher> Hasher for Gathered<'_, H> {
    fn write(&mut self, bytes: &[u8]) {
        if bytes.len() > self.bytes.len() - self.len {
            self.pass_on();
        }
        match self.bytes.get_mut(self.len..self.len + bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.len += bytes.len();
            }
            None => self.state.write(bytes),
        }
    }

    /// The number of a variant, nearly always less than 255: in one byte, where others take nine.
    fn write_isize(&mut self, number: isize) {
        match u8::try_from(number) {
            Ok(byte) if byte < u8::MAX => self.write(&[byte]),
            _ => {
                self.write(&[u8::MAX]);
                self.write(&number.to_ne_bytes());
            }
        }
    }

    fn finish(&self) -> u64 {
        unreachable!("only a value's own hash writes here, and it does not ask for the result")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What arrives, write by write.
    #[derive(Default)]
    struct Writes(Vec<Vec<u8>>);

    impl Hasher for Writes {
        fn write(&mut self, bytes: &[u8]) {
            self.0.push(bytes.to_vec());
        }

        fn finish(&self) -> u64 {
            unreachable!()
        }
    }

    fn writes(value: impl Hash) -> Vec<Vec<u8>> {
        let mut writes = Writes::default();
        AtOnce(value).hash(&mut writes);
        writes.0
    }

    /// Fields and variants arrive together, and any two values that differ arrive differently.
    #[test]
    fn a_small_value_is_written_once() {
        let all = [None, Some(1_u32), Some(2)].map(|first| {
            [false, true].map(|second| {
                let writes = writes((first, second, [Some(7_u8); 3]));
                assert_eq!(writes.len(), 1);
                writes
            })
        });
        let all: Vec<_> = all.into_iter().flatten().collect();
        for (nth, one) in all.iter().enumerate() {
            assert!(!all[..nth].contains(one), "{one:?}");
        }
    }

    /// Nothing is lost where the bytes do not fit at once.
    #[test]
    fn a_large_value_is_written_whole() {
        let numbers: [u64; 20] = core::array::from_fn(|n| n as u64 * 0x0102_0304_0506_0708);
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let tuple = (numbers[0], (numbers[1], (numbers[2], (numbers[3], numbers[4]))));
        let rest = (numbers[5], (numbers[6], (numbers[7], (numbers[8], numbers[9]))));
        assert_eq!(writes((tuple, rest)).concat(), bytes[..80]);
        // A slice of integers is one write of its own, behind its length.
        assert!(writes(&numbers[..]).concat().ends_with(&bytes));
    }

    /// The numbers of variants that do not fit a byte are told apart from those that do.
    #[test]
    fn large_variants_are_whole() {
        struct Variant(isize);
        impl Hash for Variant {
            fn hash<H: Hasher>(&self, state: &mut H) {
                state.write_isize(self.0);
            }
        }
        let all: Vec<_> = [0, 1, 254, 255, 256, -1, isize::MAX, isize::MIN]
            .map(|number| writes(Variant(number)).concat())
            .into();
        for (nth, one) in all.iter().enumerate() {
            assert!(!all[..nth].contains(one), "{one:?}");
        }
    }
}
