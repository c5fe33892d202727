//! The element types and the vector width of the kernel that is being built.
//!
//! CubeCL generates kernels while the program runs. These types are placeholders for the types of
//! one kernel: the host registers an element type for each of them before it generates the kernel
//! ([`KernelTypes`](crate::kernels::args::KernelTypes)). Rust therefore compiles a function over
//! them once, for every element type.
//!
//! CubeCL's `Float` bound on them says which functions may be called. It does not restrict the
//! data: integers are allowed too.

use cubecl::prelude::*;

macro_rules! elements {
    ($($(#[$doc:meta])* $vis:vis $name:ident by $marker:ident;)*) => {$(
        #[doc = concat!("Identifies [`", stringify!($name), "`].")]
        #[derive(Clone, Copy, Debug)]
        $vis struct $marker;

        $(#[$doc])*
        $vis type $name = DynamicScalar<$marker>;
    )*};
}

elements! {
    /// Type of the input's elements in memory.
    pub(crate) Stored by StoredMarker;
    /// Type of the second input's elements in memory.
    pub(crate) Stored2 by Stored2Marker;
    /// Type of the elements that are pushed, 32 or 64 bits wide. Loads convert to it.
    pub In by InMarker;
    /// Type of an accumulator's first field.
    pub A by AMarker;
    /// Type of an accumulator's second field.
    pub B by BMarker;
    /// Type of an accumulator's third field.
    pub C by CMarker;
    /// Type of an accumulator's fourth field.
    pub D by DMarker;
    /// Type of an accumulator's fifth field.
    pub E by EMarker;
    /// Type of the first result.
    pub Out by OutMarker;
    /// Type of the second result.
    pub Out2 by Out2Marker;
    /// Type of the third result.
    pub Out3 by Out3Marker;
    /// Type in which results are applied to elements, f32 or f64.
    pub Real by RealMarker;
    /// Type of the elements that results were applied to, in memory.
    pub(crate) Applied by AppliedMarker;
    /// Type of an application's second output in memory.
    pub(crate) Applied2 by Applied2Marker;
    /// Type of an application's third output in memory.
    pub(crate) Applied3 by Applied3Marker;
    /// Type of the first operand's elements in memory.
    pub(crate) Operand by OperandMarker;
    /// Type of the second operand's elements in memory.
    pub(crate) Operand2 by Operand2Marker;
    /// Type of the third operand's elements in memory.
    pub(crate) Operand3 by Operand3Marker;
    /// Type of the offsets of segments.
    pub(crate) Offset by OffsetMarker;
    /// Type of the indices of the elements that segments have.
    pub(crate) ElementIndex by ElementIndexMarker;
}

/// Identifies [`Wide`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct WideMarker;

/// The number of components of the kernel's vectors.
pub(crate) type Wide = DynamicSize<WideMarker>;

/// Identifies [`HardwareMath`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct HardwareMathMarker;

/// 2 if NVRTC compiles the kernel and it may use the hardware's exponentials and logarithms of f32
/// where these are exact enough, otherwise 1.
///
/// They are instructions of PTX, which a kernel names. CubeCL 0.11 passes those on to NVRTC, and
/// has no way to LLVM or to another GPU's. What else is written for NVRTC alone asks for it too.
pub(crate) type HardwareMath = DynamicSize<HardwareMathMarker>;

/// Identifies [`Chains`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChainsMarker;

/// 2 if units may have more elements than one chain of pairwise summation takes, otherwise 1.
pub(crate) type Chains = DynamicSize<ChainsMarker>;

/// Identifies [`SameBits`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct SameBitsMarker;

/// 2 if the kernel's results must have the same bits on every device, otherwise 1.
pub(crate) type SameBits = DynamicSize<SameBitsMarker>;

/// One component.
pub(crate) type Single = Const<1>;

/// Neighbouring elements of a column, whose results a scan takes together ([`Running`]). More would
/// save little: of four, a logarithm of sums of exponentials takes five exponentials in place of
/// eight.
///
/// [`Running`]: super::Running
pub(crate) type Strip = Const<ROWS_OF_STRIP>;

pub(crate) const ROWS_OF_STRIP: usize = 4;
