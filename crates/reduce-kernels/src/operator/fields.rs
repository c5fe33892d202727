//! Accumulators of one, two or three fields, and what schedules do with them.
//!
//! A schedule moves accumulators between lanes, through shared memory and through global memory
//! without knowing what they mean. [`Fields`] is that: everything but the operator's own four
//! functions.
#![allow(missing_docs, reason = "CubeCL's macros add undocumented items")]

use cubecl::prelude::*;

use super::Types;

/// The accumulator of a family of fields, for the element types `T` and `N` lanes.
pub type FieldsOf<F, T, N> = <F as Fields>::Of<T, N>;

mod sealed {
    /// Kernels and signatures know one, two and three fields.
    pub trait Sealed {}
}

/// A number of accumulator fields: [`One`], [`Two`] or [`Three`].
#[cube]
pub trait Fields: sealed::Sealed + Send + Sync + 'static {
    /// The accumulator: `N` independent lanes of each field.
    type Of<T: Types, N: Size>: CubeType<ExpandType: Clone + Assign + IntoMut> + Clone + Copy;
    /// Accumulators in shared memory, one array per field.
    type Shared<T: Types, N: Size>: CubeType<ExpandType: Clone> + Clone + Copy;

    /// How many fields there are.
    const COUNT: usize;

    /// One lane of an accumulator.
    fn lane<T: Types, N: Size>(
        accumulator: Self::Of<T, N>,
        #[comptime] lane: usize,
    ) -> Self::Of<T, Const<1>>;

    /// The accumulator of the unit whose index in the plane differs by the bits of `mask`.
    fn shuffle_xor<T: Types, N: Size>(accumulator: Self::Of<T, N>, mask: u32) -> Self::Of<T, N>;

    /// Shared memory for `slots` accumulators.
    fn shared<T: Types, N: Size>(#[comptime] slots: usize) -> Self::Shared<T, N>;

    /// Writes an accumulator to shared memory.
    fn share<T: Types, N: Size>(
        shared: &mut Self::Shared<T, N>,
        slot: usize,
        accumulator: Self::Of<T, N>,
    );

    /// Reads an accumulator from shared memory.
    fn shared_at<T: Types, N: Size>(shared: &Self::Shared<T, N>, slot: usize) -> Self::Of<T, N>;

    /// Writes an accumulator to global memory.
    fn store<T: Types>(
        partials: &mut Partials<T>,
        index: usize,
        accumulator: Self::Of<T, Const<1>>,
    );

    /// Reads what [`store`](Fields::store) wrote.
    fn load<T: Types>(partials: &Partials<T>, index: usize) -> Self::Of<T, Const<1>>;
}

/// Accumulators in global memory: one array per field, of which only the first
/// [`COUNT`](Fields::COUNT) are touched.
#[derive(CubeType, Clone, Copy)]
pub struct Partials<T: Types> {
    a: SliceMut<T::A>,
    b: SliceMut<T::B>,
    c: SliceMut<T::C>,
}

#[cube]
impl<T: Types> Partials<T> {
    /// The arrays of the three fields.
    pub(crate) fn new(a: &mut Array<T::A>, b: &mut Array<T::B>, c: &mut Array<T::C>) -> Self {
        Partials::<T> { a: a.to_slice_mut(), b: b.to_slice_mut(), c: c.to_slice_mut() }
    }
}

/// An accumulator type with named fields, the arrays that hold it in shared memory, and its family.
macro_rules! fields {
    ($count:literal: $(#[$family_doc:meta])* $family:ident, $(#[$doc:meta])* $accumulator:ident, $shared:ident,
     { $($field:ident: $slot:ident in $array:ident),+ }) => {
        $(#[$family_doc])*
        pub struct $family;

        $(#[$doc])*
        #[derive(CubeType, CubeTypeMut, Clone, Copy)]
        pub struct $accumulator<$($slot: Float,)+ N: Size> {
            $(
                pub $field: Vector<$slot, N>,
            )+
        }

        #[cube]
        impl<$($slot: Float,)+ N: Size> $accumulator<$($slot,)+ N> {
            /// An accumulator of these fields.
            pub fn new($($field: Vector<$slot, N>),+) -> Self {
                $accumulator::<$($slot,)+ N> { $($field),+ }
            }
        }

        #[doc(hidden)]
        #[derive(CubeType, Clone, Copy)]
        pub struct $shared<$($slot: Float,)+ N: Size> {
            $($field: SharedMemory<Vector<$slot, N>>,)+
        }

        impl sealed::Sealed for $family {}

        #[cube]
        impl Fields for $family {
            type Of<T: Types, N: Size> = $accumulator<$(T::$slot,)+ N>;
            type Shared<T: Types, N: Size> = $shared<$(T::$slot,)+ N>;

            const COUNT: usize = $count;

            fn lane<T: Types, N: Size>(
                accumulator: Self::Of<T, N>,
                #[comptime] lane: usize,
            ) -> Self::Of<T, Const<1>> {
                $accumulator::new(
                    $(Vector::<T::$slot, Const<1>>::cast_from(accumulator.$field[lane])),+
                )
            }

            fn shuffle_xor<T: Types, N: Size>(
                accumulator: Self::Of<T, N>,
                mask: u32,
            ) -> Self::Of<T, N> {
                $accumulator::new($(plane_shuffle_xor(accumulator.$field, mask)),+)
            }

            fn shared<T: Types, N: Size>(#[comptime] slots: usize) -> Self::Shared<T, N> {
                $shared::<$(T::$slot,)+ N> { $($field: SharedMemory::new(slots)),+ }
            }

            fn share<T: Types, N: Size>(
                shared: &mut Self::Shared<T, N>,
                slot: usize,
                accumulator: Self::Of<T, N>,
            ) {
                $(shared.$field[slot] = accumulator.$field;)+
            }

            fn shared_at<T: Types, N: Size>(
                shared: &Self::Shared<T, N>,
                slot: usize,
            ) -> Self::Of<T, N> {
                $accumulator::new($(shared.$field[slot]),+)
            }

            fn store<T: Types>(
                partials: &mut Partials<T>,
                index: usize,
                accumulator: Self::Of<T, Const<1>>,
            ) {
                $(partials.$array[index] = accumulator.$field[0];)+
            }

            fn load<T: Types>(partials: &Partials<T>, index: usize) -> Self::Of<T, Const<1>> {
                $accumulator::new(
                    $(Vector::<T::$slot, Const<1>>::cast_from(partials.$array[index])),+
                )
            }
        }
    };
}

fields!(
    1:
    /// Accumulators of one field: [`Value`].
    One,
    /// An accumulator of one field.
    Value, SharedValue, { value: A in a }
);
fields!(
    2:
    /// Accumulators of two fields: [`Pair`].
    Two,
    /// An accumulator of two fields.
    Pair, SharedPair, { first: A in a, second: B in b }
);
fields!(
    3:
    /// Accumulators of three fields: [`Triple`].
    Three,
    /// An accumulator of three fields.
    Triple, SharedTriple, { first: A in a, second: B in b, third: C in c }
);
