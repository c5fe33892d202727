//! Records: elements, accumulators and results in the form in which kernels move them, without
//! their meaning.
//!
//! An operator names its fields ([`Fields`](super::Fields)). A kernel moves a [`Record`] of up to
//! five fields between components, units and cubes. The kernel's generator knows which fields a
//! record has, so absent fields cost nothing. All operators share this one Rust type, so Rust does
//! not compile the kernels again for each operator.
#![allow(
    missing_docs,
    missing_debug_implementations,
    reason = "CubeCL's macros add items without documentation and types without Debug"
)]

use core::marker::PhantomData;

use cubecl::{frontend::CubeDebug, prelude::*, unexpanded};

use super::{
    copied::copied_through_references,
    elements::{A, B, C, D, E, In, Out, Out2, Out3, Real, Single},
    same_bits::uniform,
    slice::Slice,
};

/// The element types of up to five fields.
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

/// The types of the accumulator's fields.
#[derive(Clone, Copy, Debug)]
pub struct AccumulatorTypes;

impl FieldTypes for AccumulatorTypes {
    type A = A;
    type B = B;
    type C = C;
    type D = D;
    type E = E;
}

/// The types of the results. There are at most three.
#[derive(Clone, Copy, Debug)]
pub struct ResultTypes;

impl FieldTypes for ResultTypes {
    type A = Out;
    type B = Out2;
    type C = Out3;
    type D = Out3;
    type E = Out3;
}

/// The types of the elements that are pushed. There are at most two inputs.
#[derive(Clone, Copy, Debug)]
pub struct InputTypes;

impl FieldTypes for InputTypes {
    type A = In;
    type B = In;
    type C = In;
    type D = In;
    type E = In;
}

/// The types of results when they are applied to elements.
#[derive(Clone, Copy, Debug)]
pub struct RealTypes;

impl FieldTypes for RealTypes {
    type A = Real;
    type B = Real;
    type C = Real;
    type D = Real;
    type E = Real;
}

/// The accumulator of any operator.
pub(crate) type Accumulator<N> = Record<AccumulatorTypes, N>;

/// The results of any operator.
pub(crate) type Results<N> = Record<ResultTypes, N>;

/// [`Accumulator`] at the time when a kernel is generated.
pub(super) type AccumulatorExpand<N> = RecordExpand<AccumulatorTypes, N>;

/// [`Results`] at the time when a kernel is generated.
pub(super) type ResultsExpand<N> = RecordExpand<ResultTypes, N>;

/// Up to five values of each component, of the type in which results are applied.
pub(crate) type Reals<N> = Record<RealTypes, N>;

/// [`Reals`] at the time when a kernel is generated.
pub(super) type RealsExpand<N> = RecordExpand<RealTypes, N>;

/// A field that a record may have or lack.
#[derive(Clone, Copy, Debug)]
pub struct Field<T: Float, N: Size>(PhantomData<(T, N)>);

/// [`Field`] at the time when a kernel is generated.
pub struct FieldExpand<T: Float, N: Size>(Option<NativeExpand<Vector<T, N>>>);

impl<T: Float, N: Size> CubeType for Field<T, N> {
    type ExpandType = FieldExpand<T, N>;
}

impl<T: Float, N: Size> Clone for FieldExpand<T, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Float, N: Size> Copy for FieldExpand<T, N> {}

impl<T: Float, N: Size> CubeDebug for FieldExpand<T, N> {}

impl<T: Float, N: Size> ExpandTypeClone for FieldExpand<T, N> {
    fn clone_unchecked(&self) -> Self {
        *self
    }
}

impl<T: Float, N: Size> IntoExpand for FieldExpand<T, N> {
    type Expand = Self;

    fn into_expand(self, _scope: &Scope) -> Self {
        self
    }
}

impl<T: Float, N: Size> IntoMut for FieldExpand<T, N> {
    fn into_mut(self, scope: &Scope) -> Self {
        Self(self.0.into_mut(scope))
    }
}

impl<T: Float, N: Size> AsRefExpand for FieldExpand<T, N> {
    fn __expand_ref_method(&self, _scope: &Scope) -> &Self {
        self
    }
}

impl<T: Float, N: Size> AsMutExpand for FieldExpand<T, N> {
    fn __expand_ref_mut_method(&mut self, _scope: &Scope) -> &mut Self {
        self
    }
}

impl<T: Float, N: Size> Assign for FieldExpand<T, N> {
    fn __expand_assign_method(&mut self, scope: &Scope, value: Self) {
        self.0.__expand_assign_method(scope, value.0);
    }
}

impl<T: Float, N: Size> RuntimeAssign for FieldExpand<T, N> {
    fn init_mut(&self, scope: &Scope) -> Self {
        Self(self.0.map(|value| value.init_mut(scope)))
    }
}

impl<T: Float, N: Size> Field<T, N> {
    /// A field with a value.
    pub fn some(_value: Vector<T, N>) -> Self {
        unexpanded!()
    }

    /// An absent field.
    pub fn none() -> Self {
        unexpanded!()
    }

    /// The value of the field, which must be present.
    pub fn get(self) -> Vector<T, N> {
        unexpanded!()
    }

    /// Whether the field is present.
    pub fn is_some(&self) -> bool {
        unexpanded!()
    }

    pub fn __expand_some(_scope: &Scope, value: NativeExpand<Vector<T, N>>) -> FieldExpand<T, N> {
        FieldExpand(Some(value))
    }

    pub fn __expand_none(_scope: &Scope) -> FieldExpand<T, N> {
        FieldExpand(None)
    }
}

impl<T: Float, N: Size> FieldExpand<T, N> {
    pub fn __expand_get_method(self, _scope: &Scope) -> NativeExpand<Vector<T, N>> {
        self.0.expect("kernels read the fields that their operator has")
    }

    pub fn __expand_is_some_method(&self, _scope: &Scope) -> bool {
        self.0.is_some()
    }
}

#[cube]
impl<T: Float, N: Size> Field<T, N> {
    fn component(self, #[comptime] nth: usize) -> Field<T, Single> {
        if self.is_some() {
            Field::<T, Single>::some(Vector::cast_from(self.get().extract(nth)))
        } else {
            Field::<T, Single>::none()
        }
    }

    fn component_at(self, index: u32) -> Field<T, Single> {
        if self.is_some() {
            Field::<T, Single>::some(Vector::cast_from(component_at::<T, N>(self.get(), index)))
        } else {
            Field::<T, Single>::none()
        }
    }

    fn with_component(self, index: u32, component: Field<T, Single>) -> Field<T, N> {
        if self.is_some() {
            let component = component.get().extract(0usize);
            let mut value = self.get();
            #[unroll]
            for nth in 0..N::value().comptime() {
                value.insert(
                    nth,
                    select(index == comptime![nth as u32], component, value.extract(nth)),
                );
            }
            Field::<T, N>::some(value)
        } else {
            Field::<T, N>::none()
        }
    }

    fn or_components_of(self, mask: Vector<bool, N>, others: Field<T, N>) -> Field<T, N> {
        if self.is_some() {
            Field::<T, N>::some(select_many(mask, others.get(), self.get()))
        } else {
            Field::<T, N>::none()
        }
    }

    fn with_first(self, count: u32, others: Field<T, N>) -> Field<T, N> {
        if self.is_some() {
            let others = others.get();
            let mut value = self.get();
            #[unroll]
            for nth in 0..N::value().comptime() {
                let replaced = comptime![nth as u32] < count;
                value.insert(nth, select(replaced, others.extract(nth), value.extract(nth)));
            }
            Field::<T, N>::some(value)
        } else {
            Field::<T, N>::none()
        }
    }

    fn resized<M: Size>(self) -> Field<T, M> {
        if self.is_some() {
            Field::<T, M>::some(Vector::cast_from(self.get()))
        } else {
            Field::<T, M>::none()
        }
    }

    fn uniform(self) -> Field<T, N> {
        if self.is_some() {
            Field::<T, N>::some(uniform::<T, N>(self.get()))
        } else {
            Field::<T, N>::none()
        }
    }

    fn converted<U: Float>(self) -> Field<U, N> {
        if self.is_some() {
            Field::<U, N>::some(Vector::cast_from(self.get()))
        } else {
            Field::<U, N>::none()
        }
    }

    fn shuffle_from(self, lane: u32) -> Field<T, N> {
        if self.is_some() {
            Field::<T, N>::some(plane_shuffle(self.get(), lane))
        } else {
            Field::<T, N>::none()
        }
    }

    fn shuffle_up(self, distance: u32) -> Field<T, N> {
        if self.is_some() {
            Field::<T, N>::some(plane_shuffle_up(self.get(), distance))
        } else {
            Field::<T, N>::none()
        }
    }

    fn shuffle_xor(self, mask: u32) -> Field<T, N> {
        if self.is_some() {
            Field::<T, N>::some(plane_shuffle_xor(self.get(), mask))
        } else {
            Field::<T, N>::none()
        }
    }
}

/// Component `index` of a vector. The index is known only when the kernel runs.
#[cube]
pub(crate) fn component_at<T: Scalar, N: Size>(vector: Vector<T, N>, index: u32) -> T {
    let mut component = vector.extract(0usize);
    #[unroll]
    for nth in 1..N::value().comptime() {
        component = select(index == comptime![nth as u32], vector.extract(nth), component);
    }
    component
}

/// The fields of an accumulator or of the results: `N` independent components of each.
#[derive(CubeType, CubeTypeMut, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub struct Record<T: FieldTypes, N: Size> {
    a: Field<T::A, N>,
    b: Field<T::B, N>,
    c: Field<T::C, N>,
    d: Field<T::D, N>,
    e: Field<T::E, N>,
}

copied_through_references!(RecordExpand<T: FieldTypes, N: Size>);

#[cube]
impl<T: FieldTypes, N: Size> Record<T, N> {
    /// A record of these fields.
    pub fn new(
        a: Field<T::A, N>,
        b: Field<T::B, N>,
        c: Field<T::C, N>,
        d: Field<T::D, N>,
        e: Field<T::E, N>,
    ) -> Self {
        Record::<T, N> { a, b, c, d, e }
    }

    pub fn has_a(&self) -> comptime_type!(bool) {
        self.a.is_some()
    }

    pub fn has_b(&self) -> comptime_type!(bool) {
        self.b.is_some()
    }

    pub fn has_c(&self) -> comptime_type!(bool) {
        self.c.is_some()
    }

    /// The first field.
    pub fn a(self) -> Vector<T::A, N> {
        self.a.get()
    }

    /// The second field.
    pub fn b(self) -> Vector<T::B, N> {
        self.b.get()
    }

    /// The third field.
    pub fn c(self) -> Vector<T::C, N> {
        self.c.get()
    }

    /// The fourth field.
    pub fn d(self) -> Vector<T::D, N> {
        self.d.get()
    }

    /// The fifth field.
    pub fn e(self) -> Vector<T::E, N> {
        self.e.get()
    }

    /// One component of all fields.
    pub fn component(self, #[comptime] nth: usize) -> Record<T, Single> {
        Record::<T, Single>::new(
            self.a.component(nth),
            self.b.component(nth),
            self.c.component(nth),
            self.d.component(nth),
            self.e.component(nth),
        )
    }

    /// Component `index` of all fields. The index is known only when the kernel runs.
    pub fn component_at(self, index: u32) -> Record<T, Single> {
        Record::<T, Single>::new(
            self.a.component_at(index),
            self.b.component_at(index),
            self.c.component_at(index),
            self.d.component_at(index),
            self.e.component_at(index),
        )
    }

    /// The same fields with another component `index`, which is known only when the kernel runs.
    pub fn with_component(self, index: u32, component: Record<T, Single>) -> Record<T, N> {
        Record::<T, N>::new(
            self.a.with_component(index, component.a),
            self.b.with_component(index, component.b),
            self.c.with_component(index, component.c),
            self.d.with_component(index, component.d),
            self.e.with_component(index, component.e),
        )
    }

    /// The same fields with the first `count` components of `others`. Their number is known only
    /// when the kernel runs.
    pub(crate) fn with_first(self, count: u32, others: Record<T, N>) -> Record<T, N> {
        Record::<T, N>::new(
            self.a.with_first(count, others.a),
            self.b.with_first(count, others.b),
            self.c.with_first(count, others.c),
            self.d.with_first(count, others.d),
            self.e.with_first(count, others.e),
        )
    }

    /// The same fields with the components of `others` where `mask` is true.
    pub(crate) fn or_components_of(
        self,
        mask: Vector<bool, N>,
        others: Record<T, N>,
    ) -> Record<T, N> {
        Record::<T, N>::new(
            self.a.or_components_of(mask, others.a),
            self.b.or_components_of(mask, others.b),
            self.c.or_components_of(mask, others.c),
            self.d.or_components_of(mask, others.d),
            self.e.or_components_of(mask, others.e),
        )
    }

    /// The same fields under another name of their number of components.
    pub fn resized<M: Size>(self) -> Record<T, M> {
        Record::<T, M>::new(
            self.a.resized::<M>(),
            self.b.resized::<M>(),
            self.c.resized::<M>(),
            self.d.resized::<M>(),
            self.e.resized::<M>(),
        )
    }

    /// The fields for the components of a load: the same ones if there are as many, otherwise the
    /// only one in each component.
    pub(crate) fn spread<W: Size>(self) -> Record<T, W> {
        let components = N::value().comptime();
        let width = W::value().comptime();
        if comptime![components == width] {
            self.resized::<W>()
        } else {
            self.component(0usize).repeated::<W>()
        }
    }

    /// The same fields with the bits that all devices store for them; see [`uniform()`].
    pub(crate) fn uniform(self) -> Record<T, N> {
        Record::<T, N>::new(
            self.a.uniform(),
            self.b.uniform(),
            self.c.uniform(),
            self.d.uniform(),
            self.e.uniform(),
        )
    }

    /// The fields of the unit with this index in the plane.
    pub fn shuffle_from(self, lane: u32) -> Record<T, N> {
        Record::<T, N>::new(
            self.a.shuffle_from(lane),
            self.b.shuffle_from(lane),
            self.c.shuffle_from(lane),
            self.d.shuffle_from(lane),
            self.e.shuffle_from(lane),
        )
    }

    /// The fields of the unit that stands `distance` before this one in the plane.
    pub fn shuffle_up(self, distance: u32) -> Record<T, N> {
        Record::<T, N>::new(
            self.a.shuffle_up(distance),
            self.b.shuffle_up(distance),
            self.c.shuffle_up(distance),
            self.d.shuffle_up(distance),
            self.e.shuffle_up(distance),
        )
    }

    /// The fields of the unit whose index in the plane differs by the bits of `mask`.
    pub fn shuffle_xor(self, mask: u32) -> Record<T, N> {
        Record::<T, N>::new(
            self.a.shuffle_xor(mask),
            self.b.shuffle_xor(mask),
            self.c.shuffle_xor(mask),
            self.d.shuffle_xor(mask),
            self.e.shuffle_xor(mask),
        )
    }
}

#[cube]
impl<N: Size> Record<RealTypes, N> {
    /// The fields without the first.
    pub(super) fn behind_first(self) -> Record<RealTypes, N> {
        let none = Field::<Real, N>::none();
        Record::<RealTypes, N>::new(self.b, self.c, self.d, self.e, none)
    }
}

#[cube]
impl<T: Float> Field<T, Single> {
    fn repeated<N: Size>(self) -> Field<T, N> {
        if self.is_some() {
            Field::<T, N>::some(Vector::new(self.get().extract(0usize)))
        } else {
            Field::<T, N>::none()
        }
    }
}

#[cube]
fn empty<T: Float, N: Size>(#[comptime] exists: bool) -> Field<T, N> {
    if comptime![exists] { Field::<T, N>::some(Vector::empty()) } else { Field::<T, N>::none() }
}

#[cube]
impl<T: FieldTypes, N: Size> Record<T, N> {
    /// A record of so many fields, of which each component will be set.
    pub(crate) fn empty(#[comptime] fields: usize) -> Record<T, N> {
        Record::<T, N>::new(
            empty::<T::A, N>(comptime![fields > 0]),
            empty::<T::B, N>(comptime![fields > 1]),
            empty::<T::C, N>(comptime![fields > 2]),
            empty::<T::D, N>(comptime![fields > 3]),
            empty::<T::E, N>(comptime![fields > 4]),
        )
    }

    /// A record without fields.
    pub(crate) fn none() -> Record<T, N> {
        Record::<T, N>::new(
            Field::<T::A, N>::none(),
            Field::<T::B, N>::none(),
            Field::<T::C, N>::none(),
            Field::<T::D, N>::none(),
            Field::<T::E, N>::none(),
        )
    }

    /// The same fields as other types.
    pub(crate) fn converted<U: FieldTypes>(self) -> Record<U, N> {
        Record::<U, N>::new(
            self.a.converted::<U::A>(),
            self.b.converted::<U::B>(),
            self.c.converted::<U::C>(),
            self.d.converted::<U::D>(),
            self.e.converted::<U::E>(),
        )
    }
}

#[cube]
impl<T: FieldTypes> Record<T, Single> {
    /// The same fields in each of `N` components.
    pub(crate) fn repeated<N: Size>(self) -> Record<T, N> {
        Record::<T, N>::new(
            self.a.repeated::<N>(),
            self.b.repeated::<N>(),
            self.c.repeated::<N>(),
            self.d.repeated::<N>(),
            self.e.repeated::<N>(),
        )
    }
}

/// Storage for records in any kind of memory: an array for each field.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(crate) struct Columns<T: FieldTypes, N: Size> {
    a: ComptimeOption<Slice<Vector<T::A, N>>>,
    b: ComptimeOption<Slice<Vector<T::B, N>>>,
    c: ComptimeOption<Slice<Vector<T::C, N>>>,
    d: ComptimeOption<Slice<Vector<T::D, N>>>,
    e: ComptimeOption<Slice<Vector<T::E, N>>>,
}

#[cube]
impl<T: FieldTypes, N: Size> Columns<T, N> {
    /// Storage in these arrays.
    pub(crate) fn new(
        a: ComptimeOption<Slice<Vector<T::A, N>>>,
        b: ComptimeOption<Slice<Vector<T::B, N>>>,
        c: ComptimeOption<Slice<Vector<T::C, N>>>,
        d: ComptimeOption<Slice<Vector<T::D, N>>>,
        e: ComptimeOption<Slice<Vector<T::E, N>>>,
    ) -> Self {
        Columns::<T, N> { a, b, c, d, e }
    }

    /// Storage for `len` records in shared memory.
    pub(crate) fn shared(#[comptime] len: usize, #[comptime] fields: usize) -> Self {
        Columns::<T, N> {
            a: shared::<T::A, N>(len, comptime![fields > 0]),
            b: shared::<T::B, N>(len, comptime![fields > 1]),
            c: shared::<T::C, N>(len, comptime![fields > 2]),
            d: shared::<T::D, N>(len, comptime![fields > 3]),
            e: shared::<T::E, N>(len, comptime![fields > 4]),
        }
    }

    /// Storage for `len` records in local memory.
    pub(crate) fn local(#[comptime] len: usize, #[comptime] fields: usize) -> Self {
        Columns::<T, N> {
            a: local::<T::A, N>(len, comptime![fields > 0]),
            b: local::<T::B, N>(len, comptime![fields > 1]),
            c: local::<T::C, N>(len, comptime![fields > 2]),
            d: local::<T::D, N>(len, comptime![fields > 3]),
            e: local::<T::E, N>(len, comptime![fields > 4]),
        }
    }

    /// Whether there is any storage.
    pub(crate) fn is_some(&self) -> comptime_type!(bool) {
        self.a.is_some()
    }

    /// Writes a record to a place.
    pub(crate) fn put(&mut self, index: usize, record: Record<T, N>) {
        put::<T::A, N>(&mut self.a, index, record.a);
        put::<T::B, N>(&mut self.b, index, record.b);
        put::<T::C, N>(&mut self.c, index, record.c);
        put::<T::D, N>(&mut self.d, index, record.d);
        put::<T::E, N>(&mut self.e, index, record.e);
    }

    /// Reads the record in a place.
    pub(crate) fn at(&self, index: usize) -> Record<T, N> {
        Record::<T, N>::new(
            at::<T::A, N>(&self.a, index),
            at::<T::B, N>(&self.b, index),
            at::<T::C, N>(&self.c, index),
            at::<T::D, N>(&self.d, index),
            at::<T::E, N>(&self.e, index),
        )
    }
}

#[cube]
impl<T: FieldTypes> Columns<T, Single> {
    /// The records from place `first` on, as the components of one.
    pub(crate) fn neighbours<N: Size>(&self, first: usize) -> Record<T, N> {
        let mut together = self.at(first).repeated::<N>();
        #[unroll]
        for nth in 1..N::value().comptime() {
            let next = self.at(first + nth);
            together = together.with_component(comptime![nth as u32].runtime(), next);
        }
        together
    }
}

/// An array of vectors in shared memory, if it `exists`.
#[cube]
pub(crate) fn shared<T: Float, N: Size>(
    #[comptime] len: usize,
    #[comptime] exists: bool,
) -> ComptimeOption<Slice<Vector<T, N>>> {
    if comptime![exists] {
        ComptimeOption::new_Some(Slice::of(&Shared::<[Vector<T, N>]>::new_slice(len)))
    } else {
        ComptimeOption::new_None()
    }
}

#[cube]
fn local<T: Float, N: Size>(
    #[comptime] len: usize,
    #[comptime] exists: bool,
) -> ComptimeOption<Slice<Vector<T, N>>> {
    if comptime![exists] {
        ComptimeOption::new_Some(Slice::<Vector<T, N>>::local(len))
    } else {
        ComptimeOption::new_None()
    }
}

#[cube]
fn put<T: Float, N: Size>(
    column: &mut ComptimeOption<Slice<Vector<T, N>>>,
    index: usize,
    field: Field<T, N>,
) {
    if field.is_some() {
        let mut column = column.unwrap();
        column[index] = field.get();
    }
}

#[cube]
fn at<T: Float, N: Size>(
    column: &ComptimeOption<Slice<Vector<T, N>>>,
    index: usize,
) -> Field<T, N> {
    #[comptime]
    match column {
        ComptimeOption::Some(column) => Field::<T, N>::some(column[index]),
        ComptimeOption::None => Field::<T, N>::none(),
    }
}

/// How many words of 32 bits the first `fields` fields of a record take.
#[cube]
pub(crate) fn word_count<T: FieldTypes>(#[comptime] fields: usize) -> comptime_type!(usize) {
    let a = elem_type_of::<T::A>();
    let b = elem_type_of::<T::B>();
    let c = elem_type_of::<T::C>();
    let d = elem_type_of::<T::D>();
    let e = elem_type_of::<T::E>();
    comptime![[a, b, c, d, e][..fields].iter().map(|field| words_of(field.size())).sum::<usize>()]
}

/// How the bits of an element become words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Carrier {
    /// Two words, the low half first.
    Halves,
    /// The bits as they are.
    Same,
    /// As f32, which holds every f16 and bf16. WGSL has no integers of 16 bits.
    AsF32,
    /// The bits of an integer of 16 bits.
    Short,
    /// The bits of a byte.
    Byte,
}

impl Carrier {
    fn of(element: cubecl::ir::ElemType) -> Self {
        match (element.size(), element.is_float()) {
            (8, _) => Self::Halves,
            (4, _) => Self::Same,
            (2, true) => Self::AsF32,
            (2, false) => Self::Short,
            _ => Self::Byte,
        }
    }
}

/// Words of 32 bits that an element of `bytes` bytes takes.
fn words_of(bytes: usize) -> usize {
    bytes.div_ceil(4)
}

#[cube]
impl<T: FieldTypes> Record<T, Single> {
    /// The bits of all fields, in words of 32 bits. Fields of less than 32 bits take a word each.
    pub(crate) fn bits(self) -> Sequence<u32> {
        let mut bits = Sequence::<u32>::new();
        append_bits::<T::A>(&mut bits, self.a);
        append_bits::<T::B>(&mut bits, self.b);
        append_bits::<T::C>(&mut bits, self.c);
        append_bits::<T::D>(&mut bits, self.d);
        append_bits::<T::E>(&mut bits, self.e);
        bits
    }

    /// The first `fields` fields, from the bits that [`bits`](Self::bits) gave.
    pub(crate) fn from_bits(bits: &Sequence<u32>, #[comptime] fields: usize) -> Self {
        let second = word_count::<T>(1usize);
        let third = word_count::<T>(2usize);
        let fourth = word_count::<T>(3usize);
        let fifth = word_count::<T>(4usize);
        Record::<T, Single>::new(
            field_of_bits::<T::A>(bits, 0usize, comptime![fields > 0]),
            field_of_bits::<T::B>(bits, second, comptime![fields > 1]),
            field_of_bits::<T::C>(bits, third, comptime![fields > 2]),
            field_of_bits::<T::D>(bits, fourth, comptime![fields > 3]),
            field_of_bits::<T::E>(bits, fifth, comptime![fields > 4]),
        )
    }
}

/// Appends the bits of a field.
#[cube]
fn append_bits<T: Float>(bits: &mut Sequence<u32>, field: Field<T, Single>) {
    if field.is_some() {
        let value = field.get().extract(0usize);
        let element = elem_type_of::<T>();
        match comptime![Carrier::of(element)] {
            Carrier::Halves => {
                let wide = u64::reinterpret(value);
                bits.push(u32::cast_from(wide));
                bits.push(u32::cast_from(wide >> 32));
            }
            Carrier::Same => bits.push(u32::reinterpret(value)),
            Carrier::AsF32 => bits.push(u32::reinterpret(f32::cast_from(value))),
            Carrier::Short => bits.push(u32::cast_from(u16::reinterpret(value))),
            Carrier::Byte => bits.push(u32::cast_from(u8::reinterpret(value))),
        }
    }
}

/// The field whose first word is word `word`.
#[cube]
fn field_of_bits<T: Float>(
    bits: &Sequence<u32>,
    #[comptime] word: usize,
    #[comptime] exists: bool,
) -> Field<T, Single> {
    if comptime![exists] {
        let element = elem_type_of::<T>();
        let low = *bits.index(word);
        let value = match comptime![Carrier::of(element)] {
            Carrier::Halves => {
                let high = *bits.index(comptime![word + 1]);
                T::reinterpret((u64::cast_from(high) << 32) | u64::cast_from(low))
            }
            Carrier::Same => T::reinterpret(low),
            Carrier::AsF32 => T::cast_from(f32::reinterpret(low)),
            Carrier::Short => T::reinterpret(u16::cast_from(low)),
            Carrier::Byte => T::reinterpret(u8::cast_from(low)),
        };
        Field::<T, Single>::some(Vector::cast_from(value))
    } else {
        Field::<T, Single>::none()
    }
}
