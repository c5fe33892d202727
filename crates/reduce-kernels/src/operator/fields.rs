//! Accumulators of one to five fields, and what schedules do with them.
//!
//! A schedule moves accumulators between lanes, through shared memory and through global memory
//! without knowing what they mean. [`Fields`] is that: everything but the operator's own four
//! functions. The results of a reduction are fields too, and leave through the same functions.
#![allow(missing_docs, reason = "CubeCL's macros add undocumented items")]

use cubecl::prelude::*;

use super::Types;

/// The accumulator of a family of fields, for the element types `T` and `N` lanes.
pub type FieldsOf<F, T, N> = <F as Fields>::Of<<T as Types>::Accumulator, N>;

/// The results of a family of fields, for the element types `T` and `N` lanes.
pub type ResultsOf<F, T, N> = <F as Fields>::Of<<T as Types>::Results, N>;

mod sealed {
    /// Kernels and signatures know one to five fields.
    pub trait Sealed {}
}

/// The element types of up to five fields.
///
/// Implemented for tuples of five; types beyond the last field stand idle.
pub trait FieldTypes: Copy + Send + Sync + 'static {
    /// Type of the first field.
    type A: Float;
    /// Type of the second field.
    type B: Float;
    /// Type of the third field.
    type C: Float;
    /// Type of the fourth field.
    type D: Float;
    /// Type of the fifth field.
    type E: Float;
}

impl<A: Float, B: Float, C: Float, D: Float, E: Float> FieldTypes for (A, B, C, D, E) {
    type A = A;
    type B = B;
    type C = C;
    type D = D;
    type E = E;
}

/// A number of fields: [`One`], [`Two`], [`Three`], [`Four`] or [`Five`].
#[cube]
pub trait Fields: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The fields: `N` independent lanes of each.
    type Of<T: FieldTypes, N: Size>: CubeType<ExpandType: Clone + Assign + IntoMut> + Clone + Copy;
    /// Places for fields that the units of a cube share, or that a unit has to itself: an array each.
    type Slots<T: FieldTypes, N: Size>: CubeType<ExpandType: Clone> + Clone + Copy;

    /// How many fields there are.
    const COUNT: usize;

    /// One lane of all fields.
    fn lane<T: FieldTypes, N: Size>(
        fields: Self::Of<T, N>,
        #[comptime] lane: usize,
    ) -> Self::Of<T, Const<1>>;

    /// The fields of the unit whose index in the plane differs by the bits of `mask`.
    fn shuffle_xor<T: FieldTypes, N: Size>(fields: Self::Of<T, N>, mask: u32) -> Self::Of<T, N>;

    /// Places in shared memory.
    fn shared<T: FieldTypes, N: Size>(#[comptime] slots: usize) -> Self::Slots<T, N>;

    /// Places of the unit's own.
    fn local<T: FieldTypes, N: Size>(#[comptime] slots: usize) -> Self::Slots<T, N>;

    /// Writes to a place.
    fn put<T: FieldTypes, N: Size>(
        slots: &mut Self::Slots<T, N>,
        slot: usize,
        fields: Self::Of<T, N>,
    );

    /// Reads from a place.
    fn at<T: FieldTypes, N: Size>(slots: &Self::Slots<T, N>, slot: usize) -> Self::Of<T, N>;

    /// Writes to global memory.
    fn store<T: FieldTypes>(columns: &mut Columns<T>, index: usize, fields: Self::Of<T, Const<1>>);

    /// Writes to global memory, all lanes of each field at once.
    fn store_lanes<T: FieldTypes, N: Size>(
        columns: &mut VectorColumns<T, N>,
        index: usize,
        fields: Self::Of<T, N>,
    );

    /// Reads what [`store`](Fields::store) wrote.
    fn load<T: FieldTypes>(columns: &Columns<T>, index: usize) -> Self::Of<T, Const<1>>;

    /// How many words of 32 bits [`bits`](Fields::bits) takes.
    fn words<T: FieldTypes>() -> comptime_type!(usize);

    /// The fields' bits, as words of 32 of them.
    fn bits<T: FieldTypes>(fields: Self::Of<T, Const<1>>) -> Sequence<u32>;

    /// The fields whose bits these are.
    fn from_bits<T: FieldTypes>(bits: &Sequence<u32>) -> Self::Of<T, Const<1>>;
}

/// Fields in global memory: an array for each of the first [`COUNT`](Fields::COUNT).
#[derive(CubeType, Clone, Copy)]
pub struct Columns<T: FieldTypes> {
    a: ComptimeOption<SliceMut<T::A>>,
    b: ComptimeOption<SliceMut<T::B>>,
    c: ComptimeOption<SliceMut<T::C>>,
    d: ComptimeOption<SliceMut<T::D>>,
    e: ComptimeOption<SliceMut<T::E>>,
}

#[cube]
impl<T: FieldTypes> Columns<T> {
    /// The arrays of up to five fields.
    pub fn new(
        a: ComptimeOption<SliceMut<T::A>>,
        b: ComptimeOption<SliceMut<T::B>>,
        c: ComptimeOption<SliceMut<T::C>>,
        d: ComptimeOption<SliceMut<T::D>>,
        e: ComptimeOption<SliceMut<T::E>>,
    ) -> Self {
        Columns::<T> { a, b, c, d, e }
    }
}

/// [`Columns`] of vectors.
#[derive(CubeType, Clone, Copy)]
pub struct VectorColumns<T: FieldTypes, N: Size> {
    a: ComptimeOption<SliceMut<Vector<T::A, N>>>,
    b: ComptimeOption<SliceMut<Vector<T::B, N>>>,
    c: ComptimeOption<SliceMut<Vector<T::C, N>>>,
    d: ComptimeOption<SliceMut<Vector<T::D, N>>>,
    e: ComptimeOption<SliceMut<Vector<T::E, N>>>,
}

#[cube]
impl<T: FieldTypes, N: Size> VectorColumns<T, N> {
    /// The arrays of up to five fields.
    pub fn new(
        a: ComptimeOption<SliceMut<Vector<T::A, N>>>,
        b: ComptimeOption<SliceMut<Vector<T::B, N>>>,
        c: ComptimeOption<SliceMut<Vector<T::C, N>>>,
        d: ComptimeOption<SliceMut<Vector<T::D, N>>>,
        e: ComptimeOption<SliceMut<Vector<T::E, N>>>,
    ) -> Self {
        VectorColumns::<T, N> { a, b, c, d, e }
    }

    /// Whether there are any.
    pub fn is_some(&self) -> comptime_type!(bool) {
        self.a.is_some()
    }
}

/// Words of 32 bits that an element of `bytes` bytes takes.
fn words_of(bytes: usize) -> usize {
    bytes.div_ceil(4)
}

/// Appends the bits of a value.
#[cube]
fn append_bits<E: Float>(bits: &mut Sequence<u32>, value: E) {
    let element = storage_type_of::<E>();
    match comptime![element.size()] {
        8 => {
            let wide = u64::reinterpret(value);
            bits.push(u32::cast_from(wide));
            bits.push(u32::cast_from(wide >> 32));
        }
        4 => bits.push(u32::reinterpret(value)),
        2 => bits.push(u32::cast_from(u16::reinterpret(value))),
        _ => bits.push(u32::cast_from(u8::reinterpret(value))),
    }
}

/// The value whose bits stand from word `word` on.
#[cube]
fn value_of_bits<E: Float>(bits: &Sequence<u32>, #[comptime] word: usize) -> E {
    let element = storage_type_of::<E>();
    let low = *bits.index(word);
    match comptime![element.size()] {
        8 => {
            let high = *bits.index(comptime![word + 1]);
            E::reinterpret((u64::cast_from(high) << 32) | u64::cast_from(low))
        }
        4 => E::reinterpret(low),
        2 => E::reinterpret(u16::cast_from(low)),
        _ => E::reinterpret(u8::cast_from(low)),
    }
}

/// Fields with names, the arrays that hold them, and their family.
macro_rules! fields {
    ($count:literal: $(#[$family_doc:meta])* $family:ident, $(#[$doc:meta])* $fields:ident, $slots:ident,
     { $($field:ident: $type:ident in $array:ident),+ }) => {
        $(#[$family_doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $family;

        $(#[$doc])*
        #[derive(CubeType, CubeTypeMut, Clone, Copy)]
        pub struct $fields<$($type: Float,)+ N: Size> {
            $(
                pub $field: Vector<$type, N>,
            )+
        }

        #[cube]
        impl<$($type: Float,)+ N: Size> $fields<$($type,)+ N> {
            /// These fields.
            pub fn new($($field: Vector<$type, N>),+) -> Self {
                $fields::<$($type,)+ N> { $($field),+ }
            }
        }

        #[doc(hidden)]
        #[derive(CubeType, Clone, Copy)]
        pub struct $slots<$($type: Float,)+ N: Size> {
            $($field: SliceMut<Vector<$type, N>>,)+
        }

        impl sealed::Sealed for $family {}

        #[cube]
        impl Fields for $family {
            type Of<T: FieldTypes, N: Size> = $fields<$(T::$type,)+ N>;
            type Slots<T: FieldTypes, N: Size> = $slots<$(T::$type,)+ N>;

            const COUNT: usize = $count;

            fn lane<T: FieldTypes, N: Size>(
                fields: Self::Of<T, N>,
                #[comptime] lane: usize,
            ) -> Self::Of<T, Const<1>> {
                $fields::new($(Vector::<T::$type, Const<1>>::cast_from(fields.$field[lane])),+)
            }

            fn shuffle_xor<T: FieldTypes, N: Size>(
                fields: Self::Of<T, N>,
                mask: u32,
            ) -> Self::Of<T, N> {
                $fields::new($(plane_shuffle_xor(fields.$field, mask)),+)
            }

            fn shared<T: FieldTypes, N: Size>(#[comptime] slots: usize) -> Self::Slots<T, N> {
                $slots::<$(T::$type,)+ N> { $($field: SharedMemory::new(slots).to_slice_mut()),+ }
            }

            fn local<T: FieldTypes, N: Size>(#[comptime] slots: usize) -> Self::Slots<T, N> {
                $slots::<$(T::$type,)+ N> { $($field: Array::new(slots).to_slice_mut()),+ }
            }

            fn put<T: FieldTypes, N: Size>(
                slots: &mut Self::Slots<T, N>,
                slot: usize,
                fields: Self::Of<T, N>,
            ) {
                $(slots.$field[slot] = fields.$field;)+
            }

            fn at<T: FieldTypes, N: Size>(
                slots: &Self::Slots<T, N>,
                slot: usize,
            ) -> Self::Of<T, N> {
                $fields::new($(slots.$field[slot]),+)
            }

            fn store<T: FieldTypes>(
                columns: &mut Columns<T>,
                index: usize,
                fields: Self::Of<T, Const<1>>,
            ) {
                $(
                    let mut $array = columns.$array.unwrap();
                    $array[index] = fields.$field[0];
                )+
            }

            fn store_lanes<T: FieldTypes, N: Size>(
                columns: &mut VectorColumns<T, N>,
                index: usize,
                fields: Self::Of<T, N>,
            ) {
                $(
                    let mut $array = columns.$array.unwrap();
                    $array[index] = fields.$field;
                )+
            }

            fn load<T: FieldTypes>(columns: &Columns<T>, index: usize) -> Self::Of<T, Const<1>> {
                $(let $array = columns.$array.unwrap();)+
                $fields::new($(Vector::<T::$type, Const<1>>::cast_from($array[index])),+)
            }

            fn words<T: FieldTypes>() -> comptime_type!(usize) {
                $(let $field = storage_type_of::<T::$type>();)+
                comptime![0 $(+ words_of($field.size()))+]
            }

            fn bits<T: FieldTypes>(fields: Self::Of<T, Const<1>>) -> Sequence<u32> {
                let mut bits = Sequence::<u32>::new();
                $(append_bits::<T::$type>(&mut bits, fields.$field[0]);)+
                bits
            }

            fn from_bits<T: FieldTypes>(bits: &Sequence<u32>) -> Self::Of<T, Const<1>> {
                let word = comptime![0usize];
                $(
                    let $array = storage_type_of::<T::$type>();
                    let $field = Vector::<T::$type, Const<1>>::cast_from(
                        value_of_bits::<T::$type>(bits, word)
                    );
                    let word = comptime![word + words_of($array.size())];
                )+
                let _ = word;
                $fields::new($($field),+)
            }
        }
    };
}

fields!(
    1:
    /// One field: [`Value`].
    One,
    /// One field.
    Value, ValueSlots, { value: A in a }
);
fields!(
    2:
    /// Two fields: [`Pair`].
    Two,
    /// Two fields.
    Pair, PairSlots, { first: A in a, second: B in b }
);
fields!(
    3:
    /// Three fields: [`Triple`].
    Three,
    /// Three fields.
    Triple, TripleSlots, { first: A in a, second: B in b, third: C in c }
);
fields!(
    4:
    /// Four fields: [`Quad`].
    Four,
    /// Four fields.
    Quad, QuadSlots, { first: A in a, second: B in b, third: C in c, fourth: D in d }
);
fields!(
    5:
    /// Five fields: [`Quint`].
    Five,
    /// Five fields.
    Quint, QuintSlots, { first: A in a, second: B in b, third: C in c, fourth: D in d, fifth: E in e }
);

/// How many results an operator has, and so what the front door returns: one tensor, or a tuple.
pub trait Family: Fields {
    /// `X` itself, or a tuple of as many as there are results.
    type Each<X>;

    /// What `make` makes for each result, by its number.
    fn each<X>(make: impl FnMut(usize) -> X) -> Self::Each<X>;

    /// To a list with an `X` for each result.
    fn list<X>(each: Self::Each<X>) -> Vec<X>;
}

impl Family for One {
    type Each<X> = X;

    fn each<X>(mut make: impl FnMut(usize) -> X) -> X {
        make(0)
    }

    fn list<X>(each: X) -> Vec<X> {
        vec![each]
    }
}

impl Family for Two {
    type Each<X> = (X, X);

    fn each<X>(mut make: impl FnMut(usize) -> X) -> (X, X) {
        (make(0), make(1))
    }

    fn list<X>((first, second): (X, X)) -> Vec<X> {
        vec![first, second]
    }
}

impl Family for Three {
    type Each<X> = (X, X, X);

    fn each<X>(mut make: impl FnMut(usize) -> X) -> (X, X, X) {
        (make(0), make(1), make(2))
    }

    fn list<X>((first, second, third): (X, X, X)) -> Vec<X> {
        vec![first, second, third]
    }
}
