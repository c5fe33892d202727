//! The fields of accumulators and results, by name and by number.
#![allow(
    missing_docs,
    missing_debug_implementations,
    reason = "CubeCL's macros add items without documentation and types without Debug"
)]

use cubecl::prelude::*;

use super::{
    copied::copied_through_references,
    record::{AccumulatorTypes, Field, FieldTypes, Record, ResultTypes},
};

/// The accumulator of an operator whose fields are `F`, with `N` independent components.
pub type AccumulatorOf<F, N> = <F as Fields>::Of<AccumulatorTypes, N>;

/// The results of an operator whose results are `F`, with `N` independent components.
pub type ResultsOf<F, N> = <F as Fields>::Of<ResultTypes, N>;

mod sealed {
    use super::*;

    /// Kernels know one to five fields.
    pub trait Sealed {}

    /// What kernels do with a struct of fields while they are generated.
    pub trait Expanded:
        Copy + Assign + RuntimeAssign<Expand = Self> + IntoMut + DerefExpand<Target = Self>
    {
    }

    impl<T> Expanded for T where
        T: Copy + Assign + RuntimeAssign<Expand = Self> + IntoMut + DerefExpand<Target = Self>
    {
    }
}

/// A number of fields: [`One`], [`Two`], [`Three`], [`Four`] or [`Five`].
#[cube]
pub trait Fields: sealed::Sealed + Copy + Send + Sync + 'static {
    /// A struct of the fields. Each field is a vector of `N` independent components.
    type Of<T: FieldTypes, N: Size>: CubeType<ExpandType: sealed::Expanded> + Clone + Copy;

    /// How many fields there are.
    const COUNT: usize;

    /// Converts the fields to a record, the form in which kernels move them.
    fn pack<T: FieldTypes, N: Size>(fields: Self::Of<T, N>) -> Record<T, N>;

    /// The reverse of [`pack`](Fields::pack).
    fn unpack<T: FieldTypes, N: Size>(record: Record<T, N>) -> Self::Of<T, N>;
}

/// Defines a struct with named fields, and the marker type that stands for their number.
macro_rules! fields {
    ($count:literal: $(#[$number_doc:meta])* $number:ident, $(#[$doc:meta])* $fields:ident $expand:ident,
     { $($field:ident: $type:ident by $get:ident),+ } without { $($absent:ident)* }) => {
        $(#[$number_doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $number;

        $(#[$doc])*
        #[derive(CubeType, CubeTypeMut, Clone, Copy)]
        #[expand(derive(Clone, Copy))]
        pub struct $fields<$($type: Float,)+ N: Size> {
            $(
                pub $field: Vector<$type, N>,
            )+
        }

        copied_through_references!($expand<$($type: Float,)+ N: Size>);

        #[cube]
        impl<$($type: Float,)+ N: Size> $fields<$($type,)+ N> {
            /// These fields.
            pub fn new($($field: Vector<$type, N>),+) -> Self {
                $fields::<$($type,)+ N> { $($field),+ }
            }
        }

        impl sealed::Sealed for $number {}

        #[cube]
        impl Fields for $number {
            type Of<T: FieldTypes, N: Size> = $fields<$(T::$type,)+ N>;

            const COUNT: usize = $count;

            fn pack<T: FieldTypes, N: Size>(fields: Self::Of<T, N>) -> Record<T, N> {
                Record::<T, N>::new(
                    $(Field::<T::$type, N>::some(fields.$field),)+
                    $(Field::<T::$absent, N>::none(),)*
                )
            }

            fn unpack<T: FieldTypes, N: Size>(record: Record<T, N>) -> Self::Of<T, N> {
                $fields::new($(record.$get()),+)
            }
        }
    };
}

fields!(
    1:
    /// One field: [`Value`].
    One,
    /// One field.
    Value ValueExpand, { value: A by a } without { B C D E }
);
fields!(
    2:
    /// Two fields: [`Pair`].
    Two,
    /// Two vectors: the fields of an accumulator, two results, or an element of each of two inputs.
    Pair PairExpand, { first: A by a, second: B by b } without { C D E }
);
fields!(
    3:
    /// Three fields: [`Triple`].
    Three,
    /// Three fields.
    Triple TripleExpand, { first: A by a, second: B by b, third: C by c } without { D E }
);
fields!(
    4:
    /// Four fields: [`Quad`].
    Four,
    /// Four fields.
    Quad QuadExpand, { first: A by a, second: B by b, third: C by c, fourth: D by d } without { E }
);
fields!(
    5:
    /// Five fields: [`Quint`].
    Five,
    /// Five fields.
    Quint QuintExpand, { first: A by a, second: B by b, third: C by c, fourth: D by d, fifth: E by e } without {}
);

/// A number of results or of inputs: [`One`], [`Two`] or [`Three`]. That of results decides whether
/// a reduction returns one tensor or a tuple.
pub trait Arity: Fields {
    /// `X` itself for one, otherwise a tuple with as many `X`.
    type Each<X>;

    /// Makes an `X` for each. `make` is called with the index of each, from 0.
    fn each<X>(make: impl FnMut(usize) -> X) -> Self::Each<X>;

    /// The values as a list.
    fn into_list<X>(each: Self::Each<X>) -> Vec<X>;
}

impl Arity for One {
    type Each<X> = X;

    fn each<X>(mut make: impl FnMut(usize) -> X) -> X {
        make(0)
    }

    fn into_list<X>(value: X) -> Vec<X> {
        vec![value]
    }
}

impl Arity for Two {
    type Each<X> = (X, X);

    fn each<X>(mut make: impl FnMut(usize) -> X) -> (X, X) {
        (make(0), make(1))
    }

    fn into_list<X>((first, second): (X, X)) -> Vec<X> {
        vec![first, second]
    }
}

impl Arity for Three {
    type Each<X> = (X, X, X);

    fn each<X>(mut make: impl FnMut(usize) -> X) -> (X, X, X) {
        (make(0), make(1), make(2))
    }

    fn into_list<X>((first, second, third): (X, X, X)) -> Vec<X> {
        vec![first, second, third]
    }
}
