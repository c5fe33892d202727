//! Problems: what is refused, and that equal layouts become equal problems.

use proptest::prelude::*;
use reduce_planner::{
    AppliedProblem, AppliedSpec, Device, Direction, ElementType, InputSpec, KeptDim, OperatorClass,
    OutputSpec, Problem, ProblemError, ReducedDim, Role, ShardSpec, choose, needs_wide_indices,
    row_major_strides,
};

const SUM: OperatorClass = OperatorClass::new("sum", 4);
const ARG: OperatorClass = OperatorClass::new("argmax", 4).positional();
const MAX: OperatorClass = OperatorClass::new("max", 4).undefined_on_empty();

fn strided(
    class: OperatorClass,
    shape: &[usize],
    strides: &[usize],
    axes: Option<&[usize]>,
    output: Option<&[usize]>,
) -> Result<Problem, ProblemError> {
    let element = ElementType::F32;
    Problem::new(
        class,
        &InputSpec { element, shape, strides, alignment: 16 },
        axes,
        &OutputSpec { elements: &[element], strides: output },
    )
}

fn row_major(class: OperatorClass, shape: &[usize], axes: &[usize]) -> Problem {
    strided(class, shape, &row_major_strides(shape), Some(axes), None).unwrap()
}

fn kept(extent: usize, stride: usize, output_stride: usize) -> KeptDim {
    KeptDim { extent, stride, output_stride }
}

fn reduced(extent: usize, stride: usize, position_stride: usize) -> ReducedDim {
    ReducedDim { extent, stride, position_stride }
}

#[test]
fn unit_dims_go_and_neighbours_merge() {
    let problem = row_major(SUM, &[64, 1, 256, 56, 56], &[0, 3, 4]);
    assert_eq!(problem.kept(), [kept(256, 3136, 1)]);
    assert_eq!(problem.reduced(), [reduced(64, 256 * 3136, 0), reduced(3136, 1, 0)]);
    assert_eq!(problem, row_major(SUM, &[64, 256, 3136], &[0, 2]));
    assert_eq!(row_major(SUM, &[2, 3, 4], &[0, 1, 2]).reduced(), [reduced(24, 1, 0)]);
}

/// A transposed view lies in memory as the original does, so it is the same problem.
#[test]
fn permuted_views_are_the_problems_they_lie_as() {
    let transposed = strided(SUM, &[300, 200], &[1, 300], Some(&[1]), None).unwrap();
    assert_eq!(transposed, row_major(SUM, &[200, 300], &[0]));
    assert_eq!(transposed.direction(), Direction::Across);
    // With positions, the order of the reduced axes is part of the problem.
    let plain = row_major(ARG, &[2, 3, 4], &[1, 2]);
    let swapped = strided(ARG, &[2, 4, 3], &[12, 1, 4], Some(&[1, 2]), None).unwrap();
    assert_eq!(plain.reduced(), [reduced(12, 1, 1)]);
    assert_eq!(swapped.reduced(), [reduced(3, 4, 1), reduced(4, 1, 3)]);
}

/// Positions of a shard are those of the whole. Without positions, a shard is a tensor like others.
#[test]
fn positions_of_a_shard_are_those_of_the_whole() {
    let shard_of = |class, shape: &[usize], axes: &[usize], axis, start, of| {
        let element = ElementType::F32;
        let strides = row_major_strides(shape);
        let input = InputSpec { element, shape, strides: &strides, alignment: 16 };
        let output = OutputSpec { elements: &[element], strides: None };
        let shard = Some(ShardSpec { axis, start, of });
        Problem::with_inputs(class, &input, None, shard, Some(axes), &output)
    };
    // Rows 10 to 12 of 100: the two reduced axes still merge.
    let rows = shard_of(ARG, &[2, 5, 4], &[0, 2], 0, 10, 100).unwrap();
    assert_eq!(rows.reduced(), [reduced(2, 20, 4), reduced(4, 1, 1)]);
    assert_eq!((rows.is_shard(), rows.first_position()), (true, 40));
    // Columns 6 to 10 of 50: the positions of two rows are 50 apart.
    let columns = shard_of(ARG, &[3, 4], &[0, 1], 1, 6, 50).unwrap();
    assert_eq!(columns.reduced(), [reduced(3, 4, 50), reduced(4, 1, 1)]);
    assert_eq!(columns.first_position(), 6);
    assert!(columns.to_string().ends_with("| positions from 6 of 150"), "{columns}");
    // Few elements of many still need wide positions.
    let far = shard_of(ARG, &[4], &[0], 0, 1 << 40, 1 << 41).unwrap();
    assert!(needs_wide_indices(&far) && far.index_span() == 1 << 41);

    let sum = shard_of(SUM, &[3, 4], &[0, 1], 1, 6, 50).unwrap();
    assert_eq!(sum, row_major(SUM, &[3, 4], &[0, 1]));

    let shard = |start, extent, is_reduced| {
        Err(ProblemError::Shard { axis: 0, start, extent, of: 8, is_reduced })
    };
    assert_eq!(shard_of(SUM, &[3, 4], &[1], 0, 2, 8), shard(2, 3, false));
    assert_eq!(shard_of(SUM, &[3, 4], &[0], 0, 6, 8), shard(6, 3, true));
    assert_eq!(shard_of(SUM, &[3, 4], &[0], 0, usize::MAX, 8), shard(usize::MAX, 3, true));
    let message = shard_of(SUM, &[3, 4], &[0], 0, 6, 8).unwrap_err().to_string();
    assert_eq!(message, "indices 6..9 of axis 0 are no shard of 8: they reach past its end");
    let rank = shard_of(SUM, &[3, 4], &[0], 2, 0, 8);
    assert_eq!(rank, Err(ProblemError::AxisOutOfRange { axis: 2, rank: 2 }));
    let whole = shard_of(SUM, &[3, 1 << 40], &[0], 0, 0, 1 << 40);
    assert!(matches!(whole, Err(ProblemError::TooLarge { .. })), "{whole:?}");
}

#[test]
fn broadcast_dims_come_first() {
    let problem = strided(SUM, &[5, 7], &[1, 0], Some(&[0, 1]), None).unwrap();
    assert_eq!(problem.reduced(), [reduced(7, 0, 0), reduced(5, 1, 0)]);
    assert_eq!(problem.bytes(), 5 * 4 + 4, "each distinct element is read once");
}

#[test]
fn mistakes_are_named() {
    let error = |result: Result<Problem, ProblemError>| result.unwrap_err();
    let data = (&[2usize, 3][..], &[3usize, 1][..]);
    assert_eq!(
        error(strided(SUM, data.0, data.1, Some(&[2]), None)),
        ProblemError::AxisOutOfRange { axis: 2, rank: 2 }
    );
    assert_eq!(
        error(strided(SUM, data.0, data.1, Some(&[1, 0, 1]), None)),
        ProblemError::AxisRepeated { axis: 1, rank: 2 }
    );
    assert_eq!(
        error(strided(SUM, data.0, &[1], None, None)),
        ProblemError::RankMismatch { tensor: Role::Input, dims: 2, strides: 1 }
    );
    assert!(matches!(
        error(strided(SUM, &[usize::MAX, 2], &[2, 1], None, None)),
        ProblemError::TooLarge { tensor: Role::Input, .. }
    ));
    let huge = usize::MAX / 2;
    for (shape, axes) in [([0, huge, huge], [0]), ([huge, 2, 3], [1]), ([huge, huge, 0], [1])] {
        assert!(matches!(
            error(strided(SUM, &shape, &[0, 0, 0], Some(&axes), None)),
            ProblemError::TooLarge { tensor: Role::Input, .. }
        ));
    }
    let none = strided(SUM, &[2, 3, 0], &[1 << 40, 1 << 35, 1], Some(&[2]), None).unwrap();
    assert_eq!(none, row_major(SUM, &[2, 3, 0], &[2]), "strides of nothing mean nothing");
    let no_outputs = strided(SUM, &[0, huge, 2], &[5, 9, 1], Some(&[2]), None).unwrap();
    assert_eq!(no_outputs, row_major(SUM, &[0, 2], &[1]), "nor does its shape");
    assert!(choose(&no_outputs, &Device::h200()).is_ok());
    assert!(matches!(
        error(strided(MAX, &[4, 0], &[0, 1], Some(&[1]), None)),
        ProblemError::EmptyReduction { operator: "max", .. }
    ));
    assert!(strided(MAX, &[0, 4], &[4, 1], Some(&[1]), None).is_ok(), "no results, no complaint");
    for overlapping in [[0usize, 1], [1, 1], [2, 1]] {
        assert!(matches!(
            error(strided(SUM, &[2, 3, 4], &[12, 4, 1], Some(&[2]), Some(&overlapping))),
            ProblemError::OutputOverlaps { .. }
        ));
    }
}

/// The product of extents overflows where one of them is 0 and the tensor spans nothing.
#[test]
fn applied_shapes_that_overflow_are_refused() {
    let (element, huge) = (ElementType::F32, usize::MAX / 2);
    let shape = [0, huge, huge];
    let input = InputSpec { element, shape: &shape, strides: &[0, 0, 0], alignment: 16 };
    let output =
        AppliedSpec { element, strides: None, second: None, companions: &[], further: &[] };
    for axes in [&[0][..], &[1], &[1, 2]] {
        let error = AppliedProblem::new(SUM, &input, Some(axes), &output).unwrap_err();
        assert!(matches!(error, ProblemError::TooLarge { tensor: Role::Input, .. }), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// Canonical dims keep the number of results and of elements, and lie from large to small.
    #[test]
    fn canonical_dims_keep_what_counts(
        dims in prop::collection::vec((1usize..6, any::<bool>()), 0..7),
    ) {
        let shape: Vec<usize> = dims.iter().map(|dim| dim.0).collect();
        let axes: Vec<usize> = (0..dims.len()).filter(|&axis| dims[axis].1).collect();
        let problem = row_major(SUM, &shape, &axes);
        let len: usize = axes.iter().map(|&axis| shape[axis]).product();
        prop_assert_eq!(problem.reduction_len(), len);
        prop_assert_eq!(problem.outputs(), shape.iter().product::<usize>() / len);
        prop_assert!(problem.kept().is_sorted_by(|a, b| a.stride > b.stride));
        prop_assert!(problem.reduced().is_sorted_by(|a, b| a.stride > b.stride));
        prop_assert!(problem.kept().iter().all(|dim| dim.extent > 1));
    }
}
