//! Tensors that count more than 32 bits do, in real memory.

use reduce_kernels::{
    ArgMax, ElementType, Sum, argmax,
    cubecl::{prelude::*, std::tensor::TensorHandle},
    device_of,
    functions::count_nonzero,
    mean,
    operators::LogSumExp,
    partials::{ShardSpec, merge_partials},
    planner::{Access, Combine, Direction, Plan, PlanError, Schedule},
    reduce, storage_type, sum,
};

use crate::run::{read, source};

/// Two rows of more than 2^31 bytes, more than 2^32 elements in all, reduced along both axes; on
/// devices whose buffers or indices are too small for that, one error before any launch.
pub(crate) fn more_elements_than_32_bits_count(client: &Client) {
    let device = device_of(client);
    let columns = (1usize << 31) + 4099;
    let elements = 2 * columns;
    let fits = client.properties().memory.max_page_size >= elements as u64;
    if !device.has(ElementType::U8) {
        println!("{}: not run, the device has no bytes", client.name());
        return;
    }
    if !fits || !device.wide_indices {
        // A small buffer, repeated: the shape alone is too large.
        let handle = client.create_from_slice(&[1u8; 8]);
        let storage = storage_type(ElementType::U8);
        let input = TensorHandle::new(handle, [2, columns], [0, 0], storage);
        match sum(client, &input, [1]) {
            Ok(output) => assert_eq!(read::<u32>(client, &output, 2), [columns as u32; 2]),
            Err(error) => {
                assert!(matches!(source(&error), Some(PlanError::IndexTooNarrow { .. })), "{error}")
            }
        }
        println!("{}: not run, {elements} bytes pass a buffer or an index", client.name());
        return;
    }
    let mut bytes = vec![0u8; elements];
    let marks = [5usize, 1 << 20, (1 << 31) + 17, columns - 1];
    marks.iter().for_each(|&mark| bytes[mark] = 1);
    let last = [7usize, (1 << 31) + 4000];
    last.iter().for_each(|&mark| bytes[columns + mark] = 2);
    let handle = client.create_from_slice(&bytes);
    drop(bytes);
    let storage = storage_type(ElementType::U8);
    let input = TensorHandle::new_contiguous([2, columns], handle, storage);

    assert_eq!(read::<u32>(client, &sum(client, &input, [1]).unwrap(), 2), [4, 4]);
    assert_eq!(read::<u32>(client, &argmax(client, &input, [1]).unwrap(), 2), [5, 7]);
    let counts = count_nonzero(client, &input, ..).unwrap();
    assert_eq!(counts.dtype, storage_type(ElementType::U64), "2^32 elements need 64 bits");
    assert_eq!(read::<u64>(client, &counts, 1), [6]);
    let place = argmax(client, &input, ..).unwrap();
    assert_eq!(place.dtype, storage_type(ElementType::U64));
    assert_eq!(read::<u64>(client, &place, 1), [(columns + 7) as u64]);
    let means = mean(client, &input, [1]).unwrap();
    assert_eq!(read::<f32>(client, &means, 2), [4.0 / columns as f32; 2]);
    let columns_sum = sum(client, &input, [0]).unwrap();
    let sums = read::<u32>(client, &columns_sum, columns);
    for mark in marks {
        assert_eq!(sums[mark], 1, "column {mark}");
    }
    assert_eq!(sums[(1 << 31) + 4000], 2);
    assert_eq!(sums.iter().map(|&sum| u64::from(sum)).sum::<u64>(), 8);
    // The rows as shards: positions beyond 2^32 in the whole, and more than 2^32 words.
    let shard = |nth: usize| {
        let handle = input.handle.clone().offset_start((nth * columns) as u64);
        let row = TensorHandle::new(handle, [1, columns], [columns, 1], storage);
        (row, ShardSpec { axis: 0, start: nth, of: 2 })
    };
    let places = [0, 1].map(|nth| {
        let (row, spec) = shard(nth);
        reduce(ArgMax, &row).partials_of_shard(client, spec).unwrap()
    });
    let place = merge_partials(&places).run(client).unwrap();
    assert_eq!(read::<u64>(client, &place, 1), [(columns + 7) as u64]);
    let partials = [0, 1].map(|nth| {
        let (row, spec) = shard(nth);
        reduce(ArgMax, &row).over(0).partials_of_shard(client, spec).unwrap()
    });
    assert_eq!(partials[0].words().shape()[..], [1, 2, columns]);
    let rows = merge_partials(&partials).run(client).unwrap();
    drop(partials);
    let mut expected = vec![0u32; columns];
    last.iter().for_each(|&mark| expected[mark] = 1);
    assert!(read::<u32>(client, &rows, columns) == expected, "rows of the largest differ");
    drop((rows, expected));
    // The same bytes as rows of odd length, which cubes realign.
    const ODD: usize = 1023;
    let rows = elements / ODD;
    let odd = TensorHandle::new(input.handle.clone(), [rows, ODD], [ODD, 1], storage);
    let plan = reduce(Sum, &odd).over([0]).choose(client).unwrap().plan;
    assert!(plan.access.realigned, "{plan}");
    let mut expected = vec![0u32; ODD];
    let ones = marks.iter().map(|&mark| (mark, 1));
    for (place, value) in ones.chain(last.iter().map(|&mark| (columns + mark, 2))) {
        assert!(place < rows * ODD);
        expected[place % ODD] += value;
    }
    assert_eq!(read::<u32>(client, &sum(client, &odd, [0]).unwrap(), ODD), expected);
    let narrow = reduce(ArgMax, &input).output_type(ElementType::U32).run(client).unwrap_err();
    assert!(
        narrow.to_string().contains(&format!("`argmax` of {elements} elements of u8")),
        "{narrow}"
    );
}

/// Three rows so far apart that the step from a load of a unit to its next is longer than 32 bits
/// count. The loads past the end of a share stay in the rows: what lies between these is so large
/// that the exponentials of their elements would vanish beside it.
pub(crate) fn rows_far_apart(client: &Client) {
    const COLUMNS: usize = 8;
    let units = device_of(client).max_units_per_cube;
    let stride = (1usize << 32) / units as usize + 1;
    let value = |row: usize, column: usize| (row + 2 * column) as f32 / 4.0;
    let mut elements = vec![1e30f32; 2 * stride + COLUMNS];
    for (row, column) in (0..3).flat_map(|row| (0..COLUMNS).map(move |column| (row, column))) {
        elements[row * stride + column] = value(row, column);
    }
    let handle = client.create_from_slice(f32::as_bytes(&elements));
    let storage = storage_type(ElementType::F32);
    let input = TensorHandle::new(handle, [3, COLUMNS], [stride, 1], storage);
    let access = Access::new(Direction::Across).with_loads_in_flight(4);
    let combine = Combine::Shared;
    let schedule = Schedule::Cube { units_per_output: units, outputs_per_cube: 1, combine };
    let reduction = reduce(LogSumExp, &input).over(0).with_plan(Plan::new(access, schedule));
    let found = read::<f32>(client, &reduction.run(client).unwrap(), COLUMNS);
    for (column, found) in found.into_iter().enumerate() {
        let sum: f64 = (0..3).map(|row| f64::from(value(row, column)).exp()).sum();
        assert!((f64::from(found) - sum.ln()).abs() < 1e-6, "column {column}: {found}");
    }
}
