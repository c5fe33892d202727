//! The arguments of kernels: the element types, the arrays, and the numbers of a problem.

use core::cell::Cell;

use cubecl::{ir::ElemType, prelude::*};

use super::{
    at_once::AtOnce,
    cache::{CachePolicy, read_vector},
    geometry::CompanionAccess,
};
use crate::operator::{
    A, AccumulatorTypes, Applied, Applied2, Applied3, B, C, Chains, Columns, D, E, ElementIndex,
    HardwareMath, In, Offset, Operand, Operand2, Operand3, Out, Out2, Out3, Real, ResultTypes,
    SameBits, Single, Slice, Stored, Stored2, Wide,
};

/// The element types and the vector width of one kernel. It is the first argument of every kernel,
/// because the types of the others are looked up when they are registered.
pub(crate) struct KernelTypes;

/// The types of one launch, which [`KernelTypes`] registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KernelTypesArg {
    /// Type of the input's elements in memory.
    pub(crate) stored: ElemType,
    /// Type of the second input's elements in memory, if there is one.
    pub(crate) second: Option<ElemType>,
    /// Type of the elements that are pushed.
    pub(crate) value: ElemType,
    /// Types of the accumulator's fields.
    pub(crate) fields: [ElemType; 5],
    /// Types of the results.
    pub(crate) results: [ElemType; 3],
    /// Components of a vector.
    pub(crate) width: usize,
    /// Whether to use the hardware's exponentials and logarithms; see [`HardwareMath`].
    pub(crate) hardware_math: bool,
    /// Whether units may have more elements than one chain takes; see [`Chains`].
    pub(crate) chains: bool,
    /// Whether results must have the same bits on every device; see [`SameBits`].
    pub(crate) same_bits: bool,
    /// Type of the offsets of segments, or of the keys of groups, if there are segments.
    pub(crate) offsets: Option<ElemType>,
    /// Type of the indices of the elements that segments have, if these are not neighbours.
    pub(crate) indices: Option<ElemType>,
    /// Types of the application of results, if they are applied.
    pub(crate) application: Option<ApplicationTypes>,
    /// Which arrays the kernel writes to.
    pub(crate) stores: Stores,
    /// Whether the input is a shard, whose first position is an argument.
    pub(crate) of_shard: bool,
    /// Whether an argument says how the cache treats what the kernel reads.
    ///
    /// Like [`Stores`], it is here for the kernel's name.
    pub(crate) has_policy: bool,
}

/// Which arrays a kernel writes to, of those that it may be given.
///
/// It is among a kernel's types for its name alone. CubeCL 0.11 looks for compiled kernels on the
/// disk by a hash, to which an optional argument adds its content and not whether it is there. So
/// kernels that differ in which of two arrays they take, or in whether they take a number, had one
/// name, and one was loaded in place of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stores {
    /// Those of elements.
    Elements,
    /// Those of vectors, and at the edges of rows those of elements.
    Vectors,
    /// That of an accumulator's words, or that of the words in which tiles publish their parts.
    Words,
}

impl Stores {
    /// Those of vectors, or of elements.
    pub(crate) fn results(in_vectors: bool) -> Self {
        if in_vectors { Stores::Vectors } else { Stores::Elements }
    }
}

/// The types of the application of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ApplicationTypes {
    /// Type in which results are applied.
    pub(crate) real: ElemType,
    /// Types of the outputs' elements in memory. Entries beyond the last output are not used.
    pub(crate) outputs: [ElemType; 3],
    /// Types of the operands' elements in memory. Entries beyond the last operand are not used.
    pub(crate) operands: [ElemType; 3],
}

impl KernelTypesArg {
    fn register(&self, scope: &Scope) {
        let [a, b, c, d, e] = self.fields;
        let [first, second, third] = self.results;
        scope.register_type::<Stored>(self.stored);
        scope.register_type::<Stored2>(self.second.unwrap_or(self.stored));
        scope.register_type::<Offset>(self.offsets.unwrap_or(self.stored));
        scope.register_type::<ElementIndex>(self.indices.unwrap_or(self.stored));
        scope.register_type::<In>(self.value);
        scope.register_type::<A>(a);
        scope.register_type::<B>(b);
        scope.register_type::<C>(c);
        scope.register_type::<D>(d);
        scope.register_type::<E>(e);
        scope.register_type::<Out>(first);
        scope.register_type::<Out2>(second);
        scope.register_type::<Out3>(third);
        scope.register_size::<Wide>(self.width);
        scope.register_size::<HardwareMath>(1 + usize::from(self.hardware_math));
        scope.register_size::<Chains>(1 + usize::from(self.chains));
        scope.register_size::<SameBits>(1 + usize::from(self.same_bits));
        // An operator that asks how exact results need be, and is not applied, has its own.
        let applied = self.application.map_or(first, |application| application.outputs[0]);
        scope.register_type::<Applied>(applied);
        if let Some(ApplicationTypes { real, outputs, operands: [first, second, third] }) =
            self.application
        {
            scope.register_type::<Real>(real);
            scope.register_type::<Applied2>(outputs[1]);
            scope.register_type::<Applied3>(outputs[2]);
            scope.register_type::<Operand>(first);
            scope.register_type::<Operand2>(second);
            scope.register_type::<Operand3>(third);
        }
    }
}

impl CubeType for KernelTypes {
    type ExpandType = ();
}

thread_local! {
    /// The types that the last launch of this thread registered.
    static REGISTERED: Cell<Option<KernelTypesArg>> = const { Cell::new(None) };
}

impl LaunchArg for KernelTypes {
    type RuntimeArg = KernelTypesArg;
    type CompilationArg = AtOnce<KernelTypesArg>;

    /// Registering all types takes 5300 instructions, a fourth of a small launch. CubeCL keeps what
    /// a thread has registered, and no other kernels register these, so they are registered where
    /// they differ from those of the last launch, or where none are. That rests on one scope for
    /// each thread, which CubeCL 0.11 has.
    fn register(types: KernelTypesArg, launcher: &mut KernelLauncher) -> AtOnce<KernelTypesArg> {
        launcher.with_scope(|scope| {
            let is_kept = scope.resolve_type::<Stored>() == Some(types.stored);
            if REGISTERED.get() != Some(types) || !is_kept {
                types.register(scope);
                REGISTERED.set(Some(types));
            }
        });
        AtOnce(types)
    }

    fn expand(AtOnce(types): &AtOnce<KernelTypesArg>, builder: &mut KernelBuilder) {
        types.register(&builder.scope);
    }
}

/// The input as an array of vectors. For peeled and realigned accesses it is bound a second time,
/// as an array of elements.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct InputArrays {
    pub(crate) vectors: Box<[Vector<Stored, Wide>]>,
    pub(crate) elements: ComptimeOption<Box<[Stored]>>,
    /// The second input, if there is one: as vectors, as elements, or as both.
    pub(crate) second: ComptimeOption<Box<[Stored2]>>,
    pub(crate) second_wide: ComptimeOption<Box<[Vector<Stored2, Wide>]>>,
    #[cube(comptime)]
    pub(crate) second_access: CompanionAccess,
    /// The elements of the axis that are read, if these are not all of them in their order.
    pub(crate) indices: ComptimeOption<IndexArray>,
    /// The policy of the cache for what is read, if the kernel names one.
    pub(crate) policy: ComptimeOption<u64>,
}

/// The indices of elements of the one axis of a reduction, as an array.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct IndexArray {
    pub(crate) indices: Box<[ElementIndex]>,
    /// The stride from one index to the next.
    pub(crate) stride: usize,
    /// Number of indices.
    pub(crate) count: usize,
    /// Elements of the axis.
    pub(crate) len: usize,
}

/// An array for each result: of vectors if the results of each tile lie side by side, and of
/// elements if they do not or if some tiles have fewer results.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct ResultArrays {
    first: ComptimeOption<Box<[Vector<Out, Single>]>>,
    second: ComptimeOption<Box<[Vector<Out2, Single>]>>,
    third: ComptimeOption<Box<[Vector<Out3, Single>]>>,
    first_wide: ComptimeOption<Box<[Vector<Out, Wide>]>>,
    second_wide: ComptimeOption<Box<[Vector<Out2, Wide>]>>,
    third_wide: ComptimeOption<Box<[Vector<Out3, Wide>]>>,
}

/// Where a reduction leaves its results, or its accumulators if partial results are wanted.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct TargetArrays {
    /// No array is bound if there are words.
    pub(crate) results: ResultArrays,
    /// Accumulators as words of 32 bits: those of one word of all outputs lie side by side.
    pub(crate) words: ComptimeOption<Box<[u32]>>,
}

/// The elements that results were applied to: as vectors where these lie as those of the input do,
/// and as elements where they do not or at the edges of rows.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct AppliedArrays {
    pub(crate) vectors: ComptimeOption<Box<[Vector<Applied, Wide>]>>,
    pub(crate) elements: ComptimeOption<Box<[Applied]>>,
    /// Further outputs, if there are any.
    pub(crate) second: ComptimeOption<Box<[Applied2]>>,
    pub(crate) third: ComptimeOption<Box<[Applied3]>>,
    pub(crate) second_wide: ComptimeOption<Box<[Vector<Applied2, Wide>]>>,
    pub(crate) third_wide: ComptimeOption<Box<[Vector<Applied3, Wide>]>>,
}

/// The operands of an application, as vectors and as elements like its output.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct OperandArrays {
    pub(crate) first: ComptimeOption<Box<[Operand]>>,
    pub(crate) second: ComptimeOption<Box<[Operand2]>>,
    pub(crate) third: ComptimeOption<Box<[Operand3]>>,
    pub(crate) first_wide: ComptimeOption<Box<[Vector<Operand, Wide>]>>,
    pub(crate) second_wide: ComptimeOption<Box<[Vector<Operand2, Wide>]>>,
    pub(crate) third_wide: ComptimeOption<Box<[Vector<Operand3, Wide>]>>,
}

/// An array for each field of the partial results of a split.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct PartialArrays {
    a: ComptimeOption<Box<[Vector<A, Single>]>>,
    b: ComptimeOption<Box<[Vector<B, Single>]>>,
    c: ComptimeOption<Box<[Vector<C, Single>]>>,
    d: ComptimeOption<Box<[Vector<D, Single>]>>,
    e: ComptimeOption<Box<[Vector<E, Single>]>>,
}

/// Tensors of a list as arrays of vectors, and some of them as arrays of elements too.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct ListArrays {
    pub(crate) vectors: Sequence<Box<[Vector<Stored, Wide>]>>,
    pub(crate) elements: Sequence<Box<[Stored]>>,
}

/// Arrays of one type, of which a cube reads one.
#[derive(CubeType, Clone)]
#[expand(derive(Clone))]
pub(super) struct Among<T: CubePrimitive> {
    slices: Sequence<Slice<T>>,
    /// The number of the one that is read.
    nth: u32,
}

#[cube]
impl<T: CubePrimitive> Among<T> {
    fn new(slices: Sequence<Slice<T>>, nth: u32) -> Among<T> {
        Among::<T> { slices, nth }
    }

    /// The first array, which is the one that is read if there is but one.
    pub(super) fn first(&self) -> Slice<T> {
        *self.slices.index(0)
    }

    /// An element of the array that is read.
    pub(super) fn at(&self, index: usize) -> T {
        let count = self.slices.len().comptime();
        at_of::<T>(&self.slices, self.nth, index, 0usize, count)
    }

    /// Elements of the array that is read, which is found once for all of them. Before they are
    /// read, they are `unread`.
    pub(super) fn at_each(&self, indices: &Sequence<usize>, unread: T) -> Sequence<RuntimeCell<T>> {
        let mut values = Sequence::<RuntimeCell<T>>::new();
        #[unroll]
        for _ in 0..indices.len().comptime() {
            values.push(RuntimeCell::new(unread));
        }
        let count = self.slices.len().comptime();
        store_each::<T>(&self.slices, self.nth, indices, &values, 0usize, count);
        values
    }

    /// The number of arrays.
    pub(super) fn count(&self) -> comptime_type!(usize) {
        self.slices.len().comptime()
    }
}

/// [`Among::at_each`] for one of the arrays `from..until`.
#[cube]
fn store_each<T: CubePrimitive>(
    slices: &Sequence<Slice<T>>,
    nth: u32,
    indices: &Sequence<usize>,
    values: &Sequence<RuntimeCell<T>>,
    #[comptime] from: usize,
    #[comptime] until: usize,
) {
    if comptime![until - from == 1] {
        let slice = *slices.index(from);
        #[unroll]
        for k in 0..indices.len().comptime() {
            values.index(k).store(slice[*indices.index(k)]);
        }
    } else {
        let middle = comptime![(from + until) / 2];
        if nth < comptime![middle as u32] {
            store_each::<T>(slices, nth, indices, values, from, middle);
        } else {
            store_each::<T>(slices, nth, indices, values, middle, until);
        }
    }
}

/// An element of one of the arrays `from..until`. CubeCL 0.11 has no arrays of arrays, so the
/// kernel bisects the arrays with branches, which all units of a cube take alike.
#[cube]
fn at_of<T: CubePrimitive>(
    slices: &Sequence<Slice<T>>,
    nth: u32,
    index: usize,
    #[comptime] from: usize,
    #[comptime] until: usize,
) -> T {
    if comptime![until - from == 1] {
        let slice = *slices.index(from);
        slice[index]
    } else {
        let middle = comptime![(from + until) / 2];
        if nth < comptime![middle as u32] {
            at_of::<T>(slices, nth, index, from, middle)
        } else {
            at_of::<T>(slices, nth, index, middle, until)
        }
    }
}

/// A tensor beside the input, as kernels read it: as elements, as vectors, as both, or not at all.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct CompanionSlices<E: Float> {
    pub(super) elements: ComptimeOption<Slice<E>>,
    pub(super) vectors: ComptimeOption<Slice<Vector<E, Wide>>>,
}

/// The entire input, as kernels read it.
#[derive(CubeType, Clone)]
#[expand(derive(Clone))]
pub(super) struct Input {
    pub(super) vectors: Among<Vector<Stored, Wide>>,
    /// None, or as many as `vectors`; for lists, those of the tensors that need them.
    pub(super) elements: Among<Stored>,
    pub(super) second: CompanionSlices<Stored2>,
    #[cube(comptime)]
    pub(super) second_access: CompanionAccess,
    pub(super) indices: ComptimeOption<Indices>,
    /// How the cache treats the vectors of both inputs.
    pub(super) policy: CachePolicy,
}

/// The indices of the elements of the axis that are read.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Indices {
    indices: Slice<ElementIndex>,
    stride: usize,
    last: usize,
    last_element: usize,
}

#[cube]
impl Input {
    /// Vector number `index` of the tensor that is read.
    pub(super) fn vector(&self, index: usize) -> Vector<Stored, Wide> {
        if comptime![self.policy.is_none()] {
            self.vectors.at(index)
        } else {
            let vectors = self.vectors.first();
            read_vector::<Stored>(&vectors[index], self.policy)
        }
    }

    /// Whether elements are read in the order of their axis.
    pub(super) fn is_in_order(&self) -> comptime_type!(bool) {
        self.indices.is_none()
    }

    /// The number in its axis of the element that is read as number `nth`. Wrong indices name other
    /// elements of the axis.
    pub(super) fn element(&self, nth: usize) -> usize {
        #[comptime]
        match &self.indices {
            ComptimeOption::Some(of) => {
                let index = of.indices[clamp_max(nth, of.last) * of.stride];
                clamp_max(usize::cast_from(index), of.last_element)
            }
            ComptimeOption::None => nth,
        }
    }
}

/// The entire outputs, as kernels write them.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(crate) struct Output {
    pub(crate) elements: Columns<ResultTypes, Single>,
    pub(super) vectors: Columns<ResultTypes, Wide>,
}

/// The entire operands, as kernels read them.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct OperandSlices {
    pub(super) first: CompanionSlices<Operand>,
    pub(super) second: CompanionSlices<Operand2>,
    pub(super) third: CompanionSlices<Operand3>,
}

#[cube]
pub(super) fn operands_of(arrays: &OperandArrays) -> OperandSlices {
    OperandSlices {
        first: companion_of::<Operand>(&arrays.first, &arrays.first_wide),
        second: companion_of::<Operand2>(&arrays.second, &arrays.second_wide),
        third: companion_of::<Operand3>(&arrays.third, &arrays.third_wide),
    }
}

/// The entire outputs beside the first, as kernels write them.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct FurtherSlices {
    pub(super) second: CompanionSlices<Applied2>,
    pub(super) third: CompanionSlices<Applied3>,
}

#[cube]
pub(super) fn further_of(arrays: &AppliedArrays) -> FurtherSlices {
    FurtherSlices {
        second: companion_of::<Applied2>(&arrays.second, &arrays.second_wide),
        third: companion_of::<Applied3>(&arrays.third, &arrays.third_wide),
    }
}

#[cube]
pub(super) fn input_of(arrays: &InputArrays) -> Input {
    // One tensor is a list of one, so that all kernels load in the same way. A choice among one
    // array is no branch.
    let mut vectors = Sequence::new();
    vectors.push(whole(&arrays.vectors));
    let mut elements = Sequence::new();
    #[comptime]
    match &arrays.elements {
        ComptimeOption::Some(array) => elements.push(whole(array)),
        ComptimeOption::None => {}
    }
    Input {
        vectors: Among::new(vectors, 0u32),
        elements: Among::new(elements, 0u32),
        second: companion_of::<Stored2>(&arrays.second, &arrays.second_wide),
        second_access: comptime![arrays.second_access],
        indices: arrays.indices.as_ref().map(|of| Indices {
            indices: whole(&of.indices),
            stride: of.stride,
            last: clamp_min(of.count, 1usize) - 1,
            last_element: clamp_min(of.len, 1usize) - 1,
        }),
        policy: arrays.policy.as_ref().map(|policy| *policy),
    }
}

/// Tensor number `nth` of a list, and number `nth_of_elements` of those that are also bound as
/// elements.
#[cube]
pub(super) fn input_of_list(arrays: &ListArrays, nth: u32, nth_of_elements: u32) -> Input {
    let mut vectors = Sequence::new();
    #[unroll]
    for slot in 0..arrays.vectors.len().comptime() {
        vectors.push(whole(arrays.vectors.index(slot)));
    }
    let mut elements = Sequence::new();
    #[unroll]
    for slot in 0..arrays.elements.len().comptime() {
        elements.push(whole(arrays.elements.index(slot)));
    }
    Input {
        vectors: Among::new(vectors, nth),
        elements: Among::new(elements, nth_of_elements),
        second: CompanionSlices::<Stored2> {
            elements: ComptimeOption::new_None(),
            vectors: ComptimeOption::new_None(),
        },
        second_access: comptime![CompanionAccess::None],
        indices: ComptimeOption::new_None(),
        policy: ComptimeOption::new_None(),
    }
}

#[cube]
pub(crate) fn output_of(arrays: &mut ResultArrays) -> Output {
    Output {
        elements: Columns::new(
            whole_if_any(&arrays.first),
            whole_if_any(&arrays.second),
            whole_if_any(&arrays.third),
            ComptimeOption::new_None(),
            ComptimeOption::new_None(),
        ),
        vectors: Columns::new(
            whole_if_any(&arrays.first_wide),
            whole_if_any(&arrays.second_wide),
            whole_if_any(&arrays.third_wide),
            ComptimeOption::new_None(),
            ComptimeOption::new_None(),
        ),
    }
}

#[cube]
pub(super) fn partials_of(arrays: &mut PartialArrays) -> Columns<AccumulatorTypes, Single> {
    Columns::new(
        whole_if_any(&arrays.a),
        whole_if_any(&arrays.b),
        whole_if_any(&arrays.c),
        whole_if_any(&arrays.d),
        whole_if_any(&arrays.e),
    )
}

/// The entire arrays of a tensor beside the input.
#[cube]
fn companion_of<E: Float>(
    elements: &ComptimeOption<Box<[E]>>,
    vectors: &ComptimeOption<Box<[Vector<E, Wide>]>>,
) -> CompanionSlices<E> {
    CompanionSlices::<E> { elements: whole_if_any(elements), vectors: whole_if_any(vectors) }
}

/// The entire array.
#[cube]
fn whole<T: CubePrimitive>(array: &[T]) -> Slice<T> {
    Slice::of(array)
}

/// The entire array, if there is one.
#[cube]
pub(super) fn whole_if_any<T: CubePrimitive>(
    array: &ComptimeOption<Box<[T]>>,
) -> ComptimeOption<Slice<T>> {
    #[comptime]
    match array {
        ComptimeOption::Some(array) => ComptimeOption::new_Some(whole(array)),
        ComptimeOption::None => ComptimeOption::new_None(),
    }
}
