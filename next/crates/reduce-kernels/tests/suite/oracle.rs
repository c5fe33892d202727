//! The naive oracle: gather every output's elements in logical order, reduce them one by one.

/// Reduces `data`, seen through `shape` and `strides`, over `axes`; results in row-major order.
pub(crate) fn reduce_naively<T: Copy, U>(
    data: &[T],
    shape: &[usize],
    strides: &[usize],
    axes: &[usize],
    reduce: impl Fn(&[T]) -> U,
) -> Vec<U> {
    let kept: Vec<usize> = (0..shape.len()).filter(|axis| !axes.contains(axis)).collect();
    let mut reduced = axes.to_vec();
    reduced.sort_unstable();
    let offsets = |axes: &[usize]| -> Vec<usize> {
        axes.iter().fold(vec![0], |offsets, &axis| {
            let along = |offset: &usize| {
                let offset = *offset;
                (0..shape[axis]).map(move |i| offset + i * strides[axis])
            };
            offsets.iter().flat_map(along).collect()
        })
    };
    let inner = offsets(&reduced);
    offsets(&kept)
        .iter()
        .map(|outer| reduce(&inner.iter().map(|offset| data[outer + offset]).collect::<Vec<T>>()))
        .collect()
}

/// The oracle against sums known without it.
#[test]
fn the_oracle_knows_known_sums() {
    let data: Vec<i64> = (1..=6).collect();
    let sum = |values: &[i64]| values.iter().sum::<i64>();
    let row_major = [3, 1];
    assert_eq!(reduce_naively(&data, &[2, 3], &row_major, &[0, 1], sum), [21]);
    assert_eq!(reduce_naively(&data, &[2, 3], &row_major, &[0], sum), [5, 7, 9]);
    assert_eq!(reduce_naively(&data, &[2, 3], &row_major, &[1], sum), [6, 15]);
    assert_eq!(reduce_naively(&data, &[3, 2], &[1, 3], &[1], sum), [5, 7, 9]);
    assert_eq!(reduce_naively(&data, &[2, 2], &[3, 2], &[1], sum), [4, 10]);
    assert_eq!(reduce_naively(&data, &[2, 4], &[1, 0], &[1], sum), [4, 8]);
    assert_eq!(reduce_naively(&data, &[2, 0], &[0, 1], &[1], sum), [0, 0]);
    // Gauss: the sum of 1..=100 over both halves.
    let hundred: Vec<i64> = (1..=100).collect();
    assert_eq!(reduce_naively(&hundred, &[100], &[1], &[0], sum), [5050]);
    assert_eq!(reduce_naively(&hundred, &[2, 50], &[50, 1], &[1], sum), [1275, 3775]);
}
