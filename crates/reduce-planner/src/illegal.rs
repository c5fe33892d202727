//! Why a plan may not run: the rules of `plan/check.rs`, with the values that break them.

use core::fmt;

use crate::numerics::Numerics;

/// A number in a plan that must be a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Quantity {
    /// Units of one cube.
    UnitsPerCube,
    /// Units that share one output.
    UnitsPerOutput,
    /// Lanes that combine by plane operations.
    Lanes,
    /// Units of one cube of the second launch.
    UnitsPerMergingCube,
    /// Units that merge the partials of one output.
    MergingUnitsPerOutput,
}

/// Why a plan may not run a problem on a device, with the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Illegal {
    /// A number is not a power of two, or is too large.
    #[error("{value} {quantity} is not a power of two up to {max}")]
    NotPowerOfTwo {
        /// Which number.
        quantity: Quantity,
        /// Its value.
        value: u32,
        /// The largest value allowed.
        max: u32,
    },
    /// The plan combines elements in another order than all plans of these numerics do.
    #[error("it combines elements in another order than {numerics} plans for such slices do")]
    OtherBits {
        /// What bits may depend on.
        numerics: Numerics,
    },
    /// The plan promises less than the problem asks for, or is reproducible where the problem is
    /// not.
    #[error("its results are {found}, and the problem asks for {expected} ones")]
    Numerics {
        /// What the bits of the plan's results depend on.
        found: Numerics,
        /// What they may depend on.
        expected: Numerics,
    },
    /// The units of a cube do not divide among its outputs.
    #[error("the units of a cube do not divide among its outputs")]
    UnitsDoNotDivide,
    /// The accumulators of a unit do not divide its loads in flight, or have no use.
    #[error("{accumulators} accumulators do not divide {loads} loads in flight by position")]
    Accumulators {
        /// The accumulators.
        accumulators: usize,
        /// The loads in flight.
        loads: usize,
    },
    /// The loads in flight of one output are none or too many.
    #[error("{loads} loads in flight are not in the range 1 to {max}")]
    LoadsInFlight {
        /// The loads.
        loads: usize,
        /// The most that a plan may ask for.
        max: usize,
    },
    /// The vector is not a power of two, or is longer than the device's vectors.
    #[error("a vector of {vector} elements is not a power of two up to {max}")]
    Vector {
        /// Elements of the vector.
        vector: usize,
        /// Elements of the device's longest vector.
        max: usize,
    },
    /// Loads of single elements have no head or tail to peel.
    #[error("loads of single elements have no head or tail to peel")]
    PeeledElements,
    /// The input has fewer elements than one vector.
    #[error("a vector of {vector} does not fit into an input of {span} elements")]
    InputTooShort {
        /// Elements of the vector.
        vector: usize,
        /// Elements that the input spans.
        span: usize,
    },
    /// A load is wider than the device's widest.
    #[error("a load of {bytes} bytes exceeds the device's {max}")]
    LoadTooWide {
        /// Bytes of the load.
        bytes: usize,
        /// Bytes of the device's widest load.
        max: usize,
    },
    /// The first element is not aligned to a load.
    #[error("loads of {bytes} bytes from an address aligned to {alignment}")]
    Misaligned {
        /// Bytes of the load.
        bytes: usize,
        /// Known alignment of the first element, in bytes.
        alignment: usize,
    },
    /// The innermost dimension has a stride other than 1, and vectors need contiguous elements.
    #[error("vectors of {vector} need a contiguous inner dimension")]
    InnerStride {
        /// Elements of the vector.
        vector: usize,
    },
    /// The inner dimension is not a whole number of vectors, or its rows do not start on a boundary
    /// of vectors, and head and tail are not peeled.
    #[error("rows of {inner_len} elements do not divide into aligned vectors of {vector}")]
    InnerNotWhole {
        /// Elements of the inner dimension.
        inner_len: usize,
        /// Elements of the vector.
        vector: usize,
    },
    /// The inner dimension is so short that it may hold no whole vector.
    #[error("a row of {inner_len} elements may hold no whole vector of {vector}")]
    InnerTooShort {
        /// Elements of the inner dimension.
        inner_len: usize,
        /// Elements of the vector.
        vector: usize,
    },
    /// Across outputs, rows must start on a boundary of vectors.
    #[error("rows do not start on a boundary of {vector} elements")]
    RowsMisaligned {
        /// Elements of the vector.
        vector: usize,
    },
    /// Rows are realigned, but not read in vectors, or peeled as well.
    #[error("only rows that are read in vectors, and not peeled, can be realigned")]
    NothingToRealign,
    /// Realigned rows start less than a vector apart.
    #[error("realigned rows that start {stride} elements apart share vectors of {vector}")]
    RowsOverlap {
        /// Elements from the start of a row to that of the next.
        stride: usize,
        /// Elements of the vector.
        vector: usize,
    },
    /// The rows that one unit reads start at different distances from a boundary of vectors.
    #[error("rows {units} apart do not start at the same place in aligned vectors of {vector}")]
    RowsUnlike {
        /// Units that share an output, over all cubes. A unit's rows are as many apart.
        units: u64,
        /// Elements of the vector.
        vector: usize,
    },
    /// Rows are realigned, and units do not combine in a cube.
    #[error("only the units of cubes realign rows")]
    RealignedOutsideCube,
    /// Rows are realigned, and a cube works on fewer than two output tiles.
    #[error("a cube that realigns rows works on two output tiles or more")]
    RealignedTile,
    /// More output tiles than indices count.
    #[error("{tiles} output tiles are more than {max}")]
    TooManyTiles {
        /// The tiles.
        tiles: u64,
        /// The most that indices count.
        max: u64,
    },
    /// The loads of all outputs in flight together are too many.
    #[error("{outputs} outputs with {loads} loads each exceed {max} loads in flight")]
    OutputsInFlight {
        /// Outputs in flight.
        outputs: usize,
        /// Loads in flight of each.
        loads: usize,
        /// The most loads that a plan may ask for.
        max: usize,
    },
    /// Several outputs are in flight, and the ends of rows are read element by element.
    #[error("outputs whose rows have a head or tail of single elements are read one at a time")]
    SeveralOutputsPeeled,
    /// Several outputs are in flight, and the schedule is neither unit nor plane.
    #[error("only units and planes have several outputs in flight")]
    SeveralOutputsOfCube,
    /// Several outputs are in flight, and they have no elements to load.
    #[error("several outputs are in flight, and they have no elements to load")]
    SeveralOutputsEmpty,
    /// Several outputs are in flight, and each has more loads than are in flight.
    #[error(
        "several outputs are in flight, each with {loads} loads of which {in_flight} are in flight"
    )]
    SeveralOutputsTooLong {
        /// Loads per output.
        loads: u64,
        /// Loads of one output in flight.
        in_flight: u64,
    },
    /// Elements are to be taken in two passes by an operator that has none.
    #[error("the operator takes elements in one pass here")]
    NoPasses,
    /// Elements are to be taken in two passes across outputs, of realigned rows, or by several
    /// cubes.
    #[error("only one cube takes elements in two passes, along the reduction and as they lie")]
    PassesAccess,
    /// Elements are to be taken in two passes, and not all of them are held.
    #[error("an output has {loads} loads, and two passes would hold {in_flight}")]
    PassesNotHeld {
        /// Loads per output.
        loads: u64,
        /// Loads of one output in flight.
        in_flight: u64,
    },
    /// The device reports no plane operations.
    #[error("the device reports no plane operations")]
    NoPlaneOperations,
    /// A cube has fewer units than a plane.
    #[error("{units} units are fewer than a plane")]
    CubeBelowPlane {
        /// Units of the cube.
        units: u32,
    },
    /// A plane schedule with one lane per output.
    #[error("a plane schedule with one lane per output is a unit schedule")]
    OneLane,
    /// Across outputs, lanes need planes of one size.
    #[error("across outputs, lanes need planes of one size")]
    PlaneSizeVaries,
    /// Across outputs, the units of a cube must combine in shared memory.
    #[error("across outputs, the units of a cube combine in shared memory")]
    PlaneAcrossOutputs,
    /// Across outputs, the lanes of those that a cube scans side by side must fill planes of one
    /// size.
    #[error("{lanes} lanes of each of {outputs} outputs do not fill planes of {plane}")]
    LanesBesideOutputs {
        /// Lanes of an output in a plane.
        lanes: u32,
        /// Outputs, or vectors of outputs, of a cube.
        outputs: u32,
        /// Lanes of the smallest plane.
        plane: u32,
    },
    /// The units of an output are fewer than the lanes that combine.
    #[error("{units} units per output do not fill {lanes} lanes")]
    LanesNotFilled {
        /// Units per output.
        units: u32,
        /// Lanes that combine.
        lanes: u32,
    },
    /// A split with fewer than two cubes per output.
    #[error("a split needs at least two cubes per output")]
    OneCube,
    /// No cubes for an output.
    #[error("an output needs at least one cube")]
    NoCubes,
    /// Units that hold a tile hold less than it has.
    #[error("an output tile has {loads} loads, and its units hold {held}")]
    HeldTooLong {
        /// Loads of an output tile.
        loads: u64,
        /// Loads that its units hold.
        held: u64,
    },
    /// Loads are held in shared memory as they are issued: all that are in flight together.
    #[error("{in_shared} loads in shared memory are no multiple of {in_flight} in flight")]
    HeldInParts {
        /// Loads of a unit in shared memory.
        in_shared: usize,
        /// Loads in flight.
        in_flight: usize,
    },
    /// Results are applied where elements are read, which realigned rows across outputs do not
    /// allow.
    #[error("results are not applied to realigned rows across outputs")]
    AppliedRealigned,
    /// Plans for segments are for problems with segments, and others for those without.
    #[error("the plan is for segments and the problem has none, or the other way round")]
    AppliedSegments,
    /// Rows of two inputs are not realigned.
    #[error("rows of two inputs are not realigned")]
    SecondRealigned,
    /// Results are applied to one output tile of a team at a time.
    #[error("results are applied to one output at a time, not to {outputs}")]
    AppliedTogether {
        /// Output tiles in flight.
        outputs: usize,
    },
    /// The device does not say that cubes which have begun make progress while others wait for
    /// them.
    #[error("the device may not run cubes that others wait for")]
    NoForwardProgress,
    /// Cubes wait for others of their tile or for those of earlier tiles, and the tuning forbids it.
    #[error("cubes that wait for others are forbidden")]
    WaitingForbidden,
    /// Cubes wait for others of their tile, and leave too little room for these.
    #[error("{units} units per output tile wait for each other, and {most} may")]
    TooManyWait {
        /// Units of the cubes of a tile.
        units: u64,
        /// The most units that may wait.
        most: u64,
    },
    /// Cubes wait for others of their tile, and the device may not have room for all of them.
    #[error(
        "{cubes} cubes per output tile, with {shared} bytes of shared memory each, wait for each \
         other, and {most} such cubes may"
    )]
    TooManyCubesWait {
        /// Cubes of a tile.
        cubes: u32,
        /// The most such cubes that may wait.
        most: u64,
        /// Shared memory of a cube, in bytes.
        shared: usize,
    },
    /// The units of one cube share the results that they apply.
    #[error("{cubes} cubes per output cannot share its results")]
    AppliedSplit {
        /// Cubes per output.
        cubes: u32,
    },
    /// The units of an output advance by more loads at a time than indices have room for.
    #[error("{cubes} cubes per output advance by more than {max} loads at a time")]
    SplitStride {
        /// Cubes per output.
        cubes: u32,
        /// The most loads at a time.
        max: u64,
    },
    /// More partials than indices count, or than a list may have.
    #[error("{partials} partials are more than {max}")]
    TooManyPartials {
        /// The partials.
        partials: u64,
        /// The most that there may be.
        max: u64,
    },
    /// The last cube merges, and the device has no 64-bit atomics.
    #[error("the device has no 64-bit atomics")]
    NoWideAtomics,
    /// The cube that merges has fewer units than outputs.
    #[error("{units} units cannot merge {outputs} outputs")]
    MergeBelowOutputs {
        /// Units of the cube.
        units: u32,
        /// Outputs that it merges.
        outputs: u64,
    },
    /// The cube that merges has fewer units than a plane.
    #[error("the {units} units that merge do not fill a plane of {plane}")]
    MergeBelowPlane {
        /// Units of the cube.
        units: u32,
        /// Units of the largest plane.
        plane: u32,
    },
    /// The last cube merges, and the grid needs more than one row. Such a grid may hold cubes
    /// without work, which never finish their output.
    #[error("a grid of more than one row may hold cubes without work")]
    SeveralGridRows,
    /// The published partials take more bytes than the tuning allows.
    #[error("{bytes} bytes of published partials are more than {max}")]
    PublishedPartials {
        /// Bytes of the published partials.
        bytes: u64,
        /// Bytes that the tuning allows.
        max: u64,
    },
    /// A cube needs more shared memory than the device has.
    #[error("{bytes} bytes of shared memory are more than the device's {available}")]
    SharedMemory {
        /// Bytes that the cube needs.
        bytes: usize,
        /// Bytes that the device has.
        available: usize,
    },
    /// A launch binds more buffers than the device allows.
    #[error("a launch binds {bindings} buffers, the device allows {available}")]
    Bindings {
        /// Buffers of the launch.
        bindings: usize,
        /// Buffers that the device allows.
        available: u32,
    },
    /// The grid cannot hold the cubes of a launch.
    #[error(
        "{cubes} {}cubes exceed the limits of the grid",
        if *merging { "merging " } else { "" }
    )]
    Grid {
        /// The cubes.
        cubes: u64,
        /// Whether they are those of the second launch of a split.
        merging: bool,
    },
    /// A list is read along the reduction, without peeled or realigned rows, and with one output in
    /// flight.
    #[error(
        "a list is read along the reduction, neither peeled nor realigned, one output at a time"
    )]
    ListAccess,
    /// A tensor of a list is not in exactly one launch, or an empty one is in any.
    #[error("tensor {tensor} is in {times} launches: once is right, or never if it is empty")]
    ListedTimes {
        /// Index of the tensor in the list.
        tensor: usize,
        /// How often it is in a launch.
        times: usize,
    },
    /// A launch of a list has a tensor that the list does not.
    #[error("tensor {tensor} is not in the list, which has {tensors}")]
    NotListed {
        /// Index of the tensor.
        tensor: usize,
        /// Tensors of the list.
        tensors: usize,
    },
    /// A tensor of a list is scanned together with others, and needs launches of its own.
    #[error(
        "tensor {tensor} needs a scan of its own: its rows are split, or it is too large to share"
    )]
    NotShared {
        /// Index of the tensor.
        tensor: usize,
    },
    /// A tensor of a list needs another kernel than the first one of its launch.
    #[error("tensor {tensor} needs another kernel than the first of its launch")]
    OtherKernel {
        /// Index of the tensor.
        tensor: usize,
    },
    /// The results of the tensors of one launch do not fit the buffer that they share.
    #[error("{elements} elements of the tensors of a launch are more than {max}")]
    SharedElements {
        /// Elements that each result of the tensors spans.
        elements: usize,
        /// The most that share a buffer.
        max: usize,
    },
    /// The tensors of one launch differ in type.
    #[error("tensor {tensor} has another type than the first of its launch")]
    ListedTypes {
        /// Index of the tensor whose type is not that of the first of its launch.
        tensor: usize,
    },
    /// A tensor has more dimensions than its launch reads.
    #[error(
        "tensor {tensor} has {found} dimensions beside the inner one, its launch reads {expected}"
    )]
    OuterDims {
        /// Index of the tensor.
        tensor: usize,
        /// Its reduced dimensions but the inner one.
        found: usize,
        /// Those that the launch reads.
        expected: usize,
    },
    /// A launch reads more dimensions than any tensor of the list has.
    #[error(
        "a launch reads {dims} dimensions beside the inner one, and no tensor has more than {most}"
    )]
    TooManyOuterDims {
        /// Dimensions beside the inner one that the launch reads.
        dims: usize,
        /// The most that a tensor has.
        most: usize,
    },
    /// A launch binds fewer buffers than it has tensors, as vectors or as elements.
    #[error(
        "{} buffers and {} of elements are fewer than a launch needs, {} and {}",
        found.0, found.1, needed.0, needed.1
    )]
    ListedBuffers {
        /// Its buffers of vectors, and those of elements.
        found: (usize, usize),
        /// Its tensors, and those that do not fill vectors.
        needed: (usize, usize),
    },
    /// A selection does not read single elements across slices, or vectors along them.
    #[error("a selection reads single elements across slices, or vectors along them")]
    TopKAccess,
    /// Segments are read in plain loads, without realigned rows, several outputs in flight or several
    /// accumulators. Vectors along the axis are peeled.
    #[error("segments are read in plain loads of one output at a time, vectors with edges")]
    SegmentsAccess,
    /// A cube has a power of two of outputs side by side, no more than it has units, and one along
    /// the axis. Its tiles have steps.
    #[error(
        "{cubes} cubes with tiles of {steps} steps, {side_by_side} side by side, cannot read segments"
    )]
    SegmentTiles {
        /// Outputs, or vectors of outputs, of a cube.
        side_by_side: u32,
        /// Cubes.
        cubes: u32,
        /// Steps of a tile.
        steps: u32,
    },
    /// Planes that take steps of their own have a fixed number of lanes, 32 at most, and are one of a
    /// cube if planes cannot wait alone.
    #[error("the device's planes cannot take steps of their own, {lanes} lanes of {units} units")]
    SegmentPlanes {
        /// Units of a cube.
        units: u32,
        /// Lanes of a plane.
        lanes: u32,
    },
    /// A unit takes more elements at a time than a word has bits, which say where segments end.
    #[error("units take {share} elements at a time, which are more than {most}")]
    SegmentShare {
        /// Elements of a share.
        share: usize,
        /// The most elements.
        most: usize,
    },
    /// Keys are grouped by digits of no bits or of too many, or by units without keys or with too many.
    #[error("keys cannot be grouped by digits of {digit_bits} bits, {keys_per_unit} keys a unit")]
    Grouping {
        /// Keys of a unit.
        keys_per_unit: u32,
        /// Bits of a digit.
        digit_bits: u32,
    },
    /// A unit offers more elements to a buffer than it has bits for.
    #[error("units offer {elements} elements at a time, which are more than {max}")]
    Offered {
        /// Elements of all loads in flight.
        elements: usize,
        /// The most elements.
        max: usize,
    },
    /// Units of a slice do not add up the counts of such digits.
    #[error("{units} units do not count by digits of {bits} bits")]
    Digits {
        /// Bits of a digit.
        bits: u32,
        /// Units of a slice.
        units: u32,
    },
    /// A plan has no cubes, or another number than there are runs of single slices.
    #[error("{cubes} cubes per slice do not sort {runs} runs of it, one each")]
    Runs {
        /// Cubes of a slice.
        cubes: u32,
        /// Runs of a slice.
        runs: usize,
    },
    /// The units of a slice do not hold it in registers, or several cubes share it.
    #[error("the registers of one cube hold {elements} elements of a slice, which has {len}")]
    NotInRegisters {
        /// Elements that units hold.
        elements: u64,
        /// Elements of a slice.
        len: usize,
    },
    /// Windows find elements with given numbers, of rows that one cube each reads along itself.
    #[error(
        "windows find some numbers of rows, each read along itself by one cube, not {written} of \
         {k} elements of slices that {cubes} cubes share and of which a cube takes {slices}"
    )]
    Windows {
        /// Elements that are written of each slice.
        written: usize,
        /// Selected elements.
        k: usize,
        /// Cubes that share a slice.
        cubes: u32,
        /// Slices of a cube.
        slices: u32,
    },
    /// Units that hold a slice in registers are fewer than the elements whose probabilities they
    /// compute.
    #[error("{units} units do not hold the probabilities of {k} elements, one each")]
    Probabilities {
        /// Selected elements.
        k: usize,
        /// Units of a slice.
        units: u32,
    },
    /// A buffer holds less than `k` elements need, or more than its units take.
    #[error("a buffer of {entries} entries does not serve {units} units that select {k}")]
    Buffer {
        /// Entries of the buffer.
        entries: u32,
        /// Elements to select.
        k: usize,
        /// Units of a slice.
        units: u32,
    },
    /// Scans read aligned loads, whose number in flight is a power of two.
    #[error(
        "a scan reads vectors of one output at a time where they lie in memory, a power of two of \
         them in flight"
    )]
    ScanAccess,
    /// Rows of a scan that begin or end inside vectors.
    #[error(
        "the rows of a scan may begin and end inside vectors only along one dimension, and where \
         bits may depend on where they begin"
    )]
    PeeledScan,
    /// Units keep loads of a scan in shared memory only while their cube looks back along a row, and
    /// only where the lanes of planes tell each other totals and exchange no elements.
    #[error(
        "{in_shared} loads of a scan in shared memory, which only cubes keep that look back along \
         rows, and whose planes exchange totals alone"
    )]
    ScanInShared {
        /// Loads of a unit in shared memory.
        in_shared: usize,
    },
    /// The cubes of a row that look back form more levels of groups than kernels merge.
    #[error("{cubes} cubes that look back form {levels} levels of groups, of at most {most}")]
    LookBackLevels {
        /// Cubes of a row.
        cubes: u32,
        /// Levels of groups.
        levels: u32,
        /// Most levels.
        most: u32,
    },
    /// The cubes of a row that look back do not have one chunk each.
    #[error("{cubes} cubes that look back have one chunk each, and a row has {chunks}")]
    ChunksOfCubes {
        /// Cubes of a row.
        cubes: u32,
        /// Chunks of a row.
        chunks: u64,
    },
    /// A launch has no tensors, or a tensor no cubes.
    #[error("a launch has no tensors, or a tensor has no cubes")]
    ListedNothing,
    /// The partials of one field take more bytes than a buffer may have.
    #[error("{bytes} bytes of partials are more than a buffer's {available}")]
    PartialsBuffer {
        /// Bytes of the partials.
        bytes: u64,
        /// Bytes that a buffer may have.
        available: u64,
    },
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Quantity::UnitsPerCube => "units per cube",
            Quantity::UnitsPerOutput => "units per output",
            Quantity::Lanes => "lanes",
            Quantity::UnitsPerMergingCube => "units per merging cube",
            Quantity::MergingUnitsPerOutput => "merging units per output",
        })
    }
}
