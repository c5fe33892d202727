//! Tensors of integers that say where segments lie: offsets, indices and keys.

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{ElementType, InputSpec, ProblemError, Role};

use crate::{
    error::{Reason, ReduceError},
    host::bound::{Bound, check_span},
    input::Input,
};

/// A tensor of one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct IntegersSpec {
    pub(crate) count: usize,
    pub(crate) element: ElementType,
    pub(crate) stride: usize,
}

impl IntegersSpec {
    /// That of a tensor, if it has one dimension.
    pub(crate) fn of(tensor: &InputSpec<'_>) -> Option<Self> {
        match (tensor.shape, tensor.strides) {
            (&[count], &[stride]) => Some(Self { count, element: tensor.element, stride }),
            _ => None,
        }
    }

    /// That of keys.
    ///
    /// # Errors
    ///
    /// They have another number of dimensions than one, or no type of a tensor.
    pub(crate) fn of_keys<T: Input>(keys: &T) -> Result<Self, ReduceError> {
        let given = keys.spec()?;
        Ok(Self::of(&given).ok_or_else(|| Reason::KeysShape { found: given.shape.to_vec() })?)
    }

    /// One of which the stride was not recorded.
    #[cfg(feature = "serde")]
    pub(crate) fn recorded(count: usize, element: ElementType) -> Self {
        Self { count, element, stride: 1 }
    }

    /// Elements from the first to the last.
    ///
    /// # Errors
    ///
    /// More than the host's address width counts.
    pub(crate) fn span(self, tensor: Role) -> Result<usize, ReduceError> {
        let Some(last) = self.count.checked_sub(1) else { return Ok(0) };
        let span = last.checked_mul(self.stride).and_then(|last| last.checked_add(1));
        Ok(span.ok_or_else(|| {
            let (shape, strides) = (vec![self.count], vec![self.stride]);
            ProblemError::TooLarge { tensor, shape, strides }
        })?)
    }
}

/// The tensors that say which elements segments have.
#[derive(Debug)]
pub(crate) struct Members<'a, T> {
    pub(crate) offsets: &'a T,
    /// The indices of the elements, if segments do not have neighbours.
    pub(crate) indices: Option<&'a T>,
    /// To which segment each element of the axis belongs, if that is known.
    pub(crate) keys: Option<&'a T>,
}

impl<T> Clone for Members<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Members<'_, T> {}

impl<'a, T: Input> Members<'a, T> {
    pub(crate) fn new(offsets: &'a T) -> Self {
        Self { offsets, indices: None, keys: None }
    }

    /// # Errors
    ///
    /// Tensors of another number of dimensions than one, and no offset.
    pub(crate) fn spec(&self) -> Result<MembersSpec, ReduceError> {
        let given = self.offsets.spec()?;
        let offsets = IntegersSpec::of(&given).filter(|offsets| offsets.count > 0);
        let wrong = || Reason::OffsetsShape { found: given.shape.to_vec() };
        let offsets = offsets.ok_or_else(wrong)?;
        let flat = |tensor: &T, wrong: fn(Vec<usize>) -> Reason| -> Result<_, ReduceError> {
            let given = tensor.spec()?;
            Ok(IntegersSpec::of(&given).ok_or_else(|| wrong(given.shape.to_vec()))?)
        };
        let indices = |tensor| flat(tensor, |found| Reason::IndicesShape { found });
        let keys = |tensor| flat(tensor, |found| Reason::KeysShape { found });
        let (indices, keys) = (self.indices.map(indices), self.keys.map(keys));
        Ok(MembersSpec { offsets, indices: indices.transpose()?, keys: keys.transpose()? })
    }

    /// Bytes of the buffers, where they exist.
    pub(crate) fn buffer_bytes(&self) -> [Option<u64>; 3] {
        let bytes = |tensor: Option<&T>| tensor.and_then(|tensor| tensor.buffer_bytes());
        [bytes(Some(self.offsets)), bytes(self.indices), bytes(self.keys)]
    }
}

/// The types and numbers of [`Members`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MembersSpec {
    /// There is one at least.
    pub(crate) offsets: IntegersSpec,
    pub(crate) indices: Option<IntegersSpec>,
    pub(crate) keys: Option<IntegersSpec>,
}

impl MembersSpec {
    /// Number of segments.
    pub(crate) fn segments(self) -> usize {
        self.offsets.count - 1
    }

    fn each(self) -> [(Role, Option<IntegersSpec>); 3] {
        let Self { offsets, indices, keys } = self;
        [(Role::Offsets, Some(offsets)), (Role::Indices, indices), (Role::Keys, keys)]
    }

    /// Most elements from the first to the last of a tensor.
    pub(crate) fn span(self) -> Result<usize, ReduceError> {
        let mut most = 0;
        for (role, spec) in self.each() {
            most = most.max(spec.map_or(Ok(0), |spec| spec.span(role))?);
        }
        Ok(most)
    }

    /// Checks that the last three of these buffers, where they exist, hold the tensors.
    pub(crate) fn check_bytes(self, bytes: &[Option<u64>]) -> Result<(), ReduceError> {
        let first = bytes.len().saturating_sub(3);
        for ((role, spec), &available) in self.each().into_iter().zip(&bytes[first..]) {
            if let (Some(spec), Some(available)) = (spec, available) {
                check_span(role, spec.span(role)?, spec.element, available)?;
            }
        }
        Ok(())
    }

    /// The buffers of the tensors.
    pub(crate) fn bind<'a>(
        self,
        client: &Client,
        members: Members<'a, TensorHandle>,
    ) -> Result<BoundMembers<'a>, ReduceError> {
        let bound = |role, spec: IntegersSpec, tensor: &'a TensorHandle| {
            Bound::check_input(client, role, &tensor.handle, spec.span(role)?, spec.element)
        };
        let with = |role, spec: Option<IntegersSpec>, tensor: Option<&'a TensorHandle>| {
            spec.zip(tensor).map(|(spec, tensor)| bound(role, spec, tensor)).transpose()
        };
        Ok(BoundMembers {
            offsets: bound(Role::Offsets, self.offsets, members.offsets)?,
            indices: with(Role::Indices, self.indices, members.indices)?,
            keys: with(Role::Keys, self.keys, members.keys)?,
        })
    }
}

/// The buffers of [`Members`].
#[derive(Clone, Debug)]
pub(crate) struct BoundMembers<'a> {
    pub(crate) offsets: Bound<'a>,
    pub(crate) indices: Option<Bound<'a>>,
    pub(crate) keys: Option<Bound<'a>>,
}
