//! Slices that are values. CubeCL's own slices are references, which records cannot hold.
#![allow(
    missing_docs,
    missing_debug_implementations,
    reason = "CubeCL's traits need items that have no use outside of kernels"
)]

use core::{
    marker::PhantomData,
    ops::{Index, IndexMut},
};

use cubecl::{
    frontend::{CubeDebug, slice::from_raw_parts},
    ir::{ExpandValue, types::ArrayType},
    prelude::*,
    unexpanded,
};

/// Elements in any kind of memory. A copy is the same memory, and kernels may write through it, as
/// through a pointer.
pub(crate) struct Slice<T: CubePrimitive>(PhantomData<T>);

impl<T: CubePrimitive> Clone for Slice<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: CubePrimitive> Copy for Slice<T> {}

/// [`Slice`] at the time when a kernel is generated.
pub(crate) struct SliceExpand<T: CubePrimitive> {
    /// The slice of CubeCL.
    slice: ExpandValue,
    element: PhantomData<T>,
}

impl<T: CubePrimitive> Slice<T> {
    /// All elements of a slice of CubeCL.
    pub(crate) fn of(_slice: &[T]) -> Self {
        unexpanded!()
    }

    pub(crate) fn __expand_of(_scope: &Scope, slice: &NativeExpand<[T]>) -> SliceExpand<T> {
        SliceExpand { slice: slice.expand, element: PhantomData }
    }

    /// `len` elements of a unit's own memory, without values. CubeCL's `Array` starts as zeros,
    /// which each unit would store before its first load: an array as long as the levels of a tree
    /// does not fit registers, and its zeros cost a sixth of a variance's time.
    pub(crate) fn local(_len: usize) -> Self {
        unexpanded!()
    }

    pub(crate) fn __expand_local(scope: &Scope, len: usize) -> SliceExpand<T> {
        let array = ArrayType::get(scope.ctx(), T::__expand_as_type(scope), len);
        let memory = scope.create_local_mut(array, None);
        let (first, len) = (0usize.into_expand(scope), len.into_expand(scope));
        let slice = from_raw_parts::<T>(scope, memory, first, len);
        SliceExpand { slice: slice.expand, element: PhantomData }
    }
}

impl<T: CubePrimitive> Slice<T> {
    /// The same memory where `U` is another name of the elements' type.
    pub(crate) fn renamed<U: CubePrimitive>(self) -> Slice<U> {
        unexpanded!()
    }
}

impl<T: CubePrimitive> SliceExpand<T> {
    pub(crate) fn __expand_renamed_method<U: CubePrimitive>(self, scope: &Scope) -> SliceExpand<U> {
        assert_eq!(T::__expand_as_type(scope), U::__expand_as_type(scope), "one type of elements");
        SliceExpand { slice: self.slice, element: PhantomData }
    }
}

impl<T: CubePrimitive> Index<usize> for Slice<T> {
    type Output = T;

    fn index(&self, _index: usize) -> &T {
        unexpanded!()
    }
}

impl<T: CubePrimitive> IndexMut<usize> for Slice<T> {
    fn index_mut(&mut self, _index: usize) -> &mut T {
        unexpanded!()
    }
}

impl<T: CubePrimitive> SliceExpand<T> {
    fn native<'a>(&self, scope: &Scope) -> &'a mut NativeExpand<[T]> {
        scope.create_kernel_ref(self.slice.into())
    }
}

impl<T: CubePrimitive> IndexExpand<NativeExpand<usize>> for SliceExpand<T> {
    type Output = T::ExpandType;

    fn __expand_index_method(&self, scope: &Scope, index: NativeExpand<usize>) -> &Self::Output {
        self.native(scope).__expand_index_method(scope, index)
    }
}

impl<T: CubePrimitive> IndexMutExpand<NativeExpand<usize>> for SliceExpand<T> {
    fn __expand_index_mut_method(
        &mut self,
        scope: &Scope,
        index: NativeExpand<usize>,
    ) -> &mut Self::Output {
        self.native(scope).__expand_index_mut_method(scope, index)
    }
}

impl<T: CubePrimitive> CubeType for Slice<T> {
    type ExpandType = SliceExpand<T>;
}

impl<T: CubePrimitive> Clone for SliceExpand<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: CubePrimitive> Copy for SliceExpand<T> {}

impl<T: CubePrimitive> CubeDebug for SliceExpand<T> {}

impl<T: CubePrimitive> ExpandTypeClone for SliceExpand<T> {
    fn clone_unchecked(&self) -> Self {
        *self
    }
}

impl<T: CubePrimitive> IntoExpand for SliceExpand<T> {
    type Expand = Self;

    fn into_expand(self, _scope: &Scope) -> Self {
        self
    }
}

impl<T: CubePrimitive> IntoMut for SliceExpand<T> {
    fn into_mut(self, _scope: &Scope) -> Self {
        self
    }
}

impl<T: CubePrimitive> AsRefExpand for SliceExpand<T> {
    fn __expand_ref_method(&self, _scope: &Scope) -> &Self {
        self
    }
}

impl<T: CubePrimitive> AsMutExpand for SliceExpand<T> {
    fn __expand_ref_mut_method(&mut self, _scope: &Scope) -> &mut Self {
        self
    }
}

impl<T: CubePrimitive> DerefExpand for SliceExpand<T> {
    type Target = Self;

    fn __expand_deref_method(&self, _scope: &Scope) -> Self {
        *self
    }
}
