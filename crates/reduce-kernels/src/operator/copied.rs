//! Copies of records through references, which CubeCL's `#[derive(CubeType)]` does not write.

/// Lets kernels copy a record through a reference, as `*reference`.
macro_rules! copied_through_references {
    ($expand:ident $(<$($parameter:ident: $bound:path),+ $(,)?>)?) => {
        impl$(<$($parameter: $bound),+>)? DerefExpand for $expand$(<$($parameter),+>)? {
            type Target = Self;

            fn __expand_deref_method(&self, _scope: &Scope) -> Self {
                *self
            }
        }
    };
}

pub(crate) use copied_through_references;
