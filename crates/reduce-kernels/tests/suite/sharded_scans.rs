//! Scans of tensors in shards.

use reduce_kernels::{
    MeanVar, Sum, cubecl,
    operator::Arity,
    operators::MaxWithIndex,
    planner::row_major_strides,
    scan::scan,
    sharded::{Sharded, ShardsError},
};

use crate::{
    operators::Checked,
    run::{source, tensor},
    scans::{WAYS, Way},
    scans_continued::{assert_close, numbers, piece, values},
    sharded::{Transport, cut},
};

/// A scan of a sharded tensor of this shape over `axes`, cut along `axis`.
#[derive(Clone, Copy, Debug)]
struct Cut {
    shape: &'static [usize],
    axes: &'static [usize],
    axis: usize,
}

/// Along the cut axis and along others, from both ends, into results that are cut as the input is.
pub(crate) fn scans(devices: &[cubecl::Device], transport: Transport) {
    let rows = Cut { shape: &[3, 700], axes: &[1], axis: 1 };
    let columns = Cut { shape: &[600, 9], axes: &[0], axis: 0 };
    check::<Sum>(devices, transport, rows, WAYS[0]);
    check::<Sum>(devices, transport, Cut { axis: 0, ..rows }, WAYS[1]);
    check::<Sum>(devices, transport, columns, WAYS[2]);
    check::<Sum>(
        devices,
        transport,
        Cut { shape: &[1, 30, 17], axes: &[0, 1, 2], axis: 1 },
        WAYS[3],
    );
    check::<MaxWithIndex>(&devices[..2], transport, columns, WAYS[3]);
    check::<MeanVar>(&devices[..2], transport, rows, WAYS[0]);
}

fn check<O: Checked>(devices: &[cubecl::Device], transport: Transport, of: Cut, way: Way) {
    let Cut { shape, axes, axis } = of;
    let data = numbers(shape);
    // The second shard is short.
    let starts: Vec<usize> = (0..devices.len())
        .map(|device| if device == 0 { 0 } else { shape[axis] / 3 + device - 1 })
        .collect();
    let x = cut(devices, &data, shape, axis, &starts);
    let client = devices[0].client();
    let whole = tensor(&client, &data, shape, &row_major_strides(shape));
    let of_whole = way.of(scan(O::operator(), &whole).over(axes)).run(&client).unwrap();
    let scanned = way.of(scan(O::operator(), &x).over(axes));
    assert_eq!(scanned.plans().unwrap().len(), devices.len());
    let results = match transport {
        Transport::Collectives => scanned.run_sharded(),
        Transport::Host => scanned.run_sharded_through_host(),
    };
    let results = O::Results::into_list(results.unwrap());
    for (result, of_whole) in results.iter().zip(O::Results::into_list(of_whole)) {
        assert_eq!((result.shape(), result.axis()), (shape, Some(axis)));
        assert_eq!(result.starts(), x.starts());
        let of_whole = values(&client, &of_whole);
        for (nth, shard) in result.shards().iter().enumerate() {
            let end = starts.get(nth + 1).copied().unwrap_or(shape[axis]);
            let expected = piece(&of_whole, shape, axis, starts[nth]..end);
            let told = format!("{} of {of:?} {way:?}, shard {nth}", O::NAME);
            assert_close(&values(shard.client(), shard.tensor()), &expected, &told);
        }
    }
}

/// Replicas, one shard, no rows, and what no scan of shards does.
pub(crate) fn scans_at_the_edges(devices: &[cubecl::Device]) {
    let data = numbers(&[4, 6]);
    let alone = cut(&devices[..1], &data, &[4, 6], 1, &[0]);
    let scanned = scan(Sum, &alone).over(1).run_sharded().unwrap();
    assert_eq!((scanned.shape(), scanned.axis()), (&[4, 6][..], Some(1)));
    let replicas = devices[..2]
        .iter()
        .map(|device| (device.clone(), tensor(&device.client(), &data, &[4, 6], &[6, 1])));
    let replicas = Sharded::replicated(replicas.collect::<Vec<_>>()).unwrap();
    let scanned = scan(Sum, &replicas).over(0).run_sharded().unwrap();
    let [one, other] = scanned.shards() else { panic!("{scanned:?}") };
    let [one, other] = [one, other].map(|shard| values(shard.client(), shard.tensor()));
    assert_eq!((scanned.axis(), one), (None, other));

    let none = cut::<f32>(&devices[..2], &[], &[0, 6], 1, &[0, 4]);
    let none = scan(Sum, &none).over(1).run_sharded_through_host().unwrap();
    assert_eq!(none.shape(), [0, 6]);

    let x = cut(&devices[..2], &data, &[4, 6], 1, &[0, 4]);
    let inside = scan(Sum, &x).run_sharded_through_host().unwrap_err();
    let expected = Some(&ShardsError::CutInside { axis: 1, outer: 0 });
    assert_eq!(source::<ShardsError>(&inside), expected, "{inside}");
    assert!(!inside.launched(), "{inside}");
}

/// Without collectives, a scan along the cut axis is refused.
pub(crate) fn no_collectives(devices: &[cubecl::Device]) {
    let x = cut(&devices[..2], &numbers(&[8]), &[8], 0, &[0, 5]);
    let error = scan(Sum, &x).run_sharded().unwrap_err();
    let missing = matches!(source(&error), Some(ShardsError::NoCollectives { .. }));
    assert!(missing && !error.launched(), "{error}");
}
