//! Scans that go on behind other elements: in pieces on one device, and in shards.

use std::ops::Range;

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_kernels::{
    ArgMax, ElementType, ErrorKind, Max, Mean, MeanVar, ReduceError, Sum, Var, cubecl,
    element_type,
    operator::Arity,
    operators::{ArgMin, LogSumExp, MaxWithIndex, MinMax},
    partials::{Partials, PartialsError, ShardSpec, merge_partials},
    planner::{ProblemError, row_major_strides},
    reduce,
    scan::scan,
};

use crate::{
    operators::Checked,
    run::{capable_device, decode, source, tensor},
    scans::{Square, WAYS, Way, plans},
};

/// Numbers whose sums f32 holds.
pub(crate) fn numbers(shape: &[usize]) -> Vec<f32> {
    (0..shape.iter().product()).map(|i| (i * 37 % 101) as f32 - 40.5).collect()
}

/// The elements of a row-major tensor at some indices of an axis.
pub(crate) fn piece<E: Copy>(
    data: &[E],
    shape: &[usize],
    axis: usize,
    indices: Range<usize>,
) -> Vec<E> {
    let inner: usize = shape[axis + 1..].iter().product();
    part(data, shape[axis], inner, indices)
}

/// The numbers at some indices of an axis that has `extent` of them, each with `inner` numbers.
pub(crate) fn part<E: Copy>(
    data: &[E],
    extent: usize,
    inner: usize,
    indices: Range<usize>,
) -> Vec<E> {
    let rows = data.chunks((extent * inner).max(1));
    let own = indices.start * inner..indices.end * inner;
    rows.flat_map(|row| row[own.clone()].iter().copied()).collect()
}

/// The results of a row-major tensor.
pub(crate) fn values(client: &Client, result: &TensorHandle) -> Vec<f64> {
    let element = element_type(result.dtype).unwrap();
    let bytes = client.read_one(result.handle.clone()).expect("the device answers");
    let len: usize = result.shape().iter().product();
    decode(element, &bytes[..len * element.bytes()])
}

/// Whether results are equal up to rounding. Positions are equal.
pub(crate) fn assert_close(found: &[f64], expected: &[f64], told: &str) {
    assert_eq!(found.len(), expected.len(), "{told}");
    for (nth, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let same = found == expected || (found.is_nan() && expected.is_nan());
        let close = (found - expected).abs() <= 2e-5 * expected.abs().max(1.0);
        assert!(same || close, "{told}: {found} at {nth}, not {expected}");
    }
}

/// A tensor in two pieces along one of the scanned axes.
struct InTwo<'a> {
    shape: &'a [usize],
    axes: &'a [usize],
    /// Where it is cut.
    axis: usize,
    at: usize,
}

impl InTwo<'_> {
    fn tensor(&self, client: &Client, data: &[f32], indices: Range<usize>) -> TensorHandle {
        let mut shape = self.shape.to_vec();
        shape[self.axis] = indices.len();
        let own = piece(data, self.shape, self.axis, indices);
        tensor(client, &own, &shape, &row_major_strides(&shape))
    }

    /// Scans both pieces, the second one behind the partial results of the first, by every plan
    /// whose number in the list `which` picks. Compares with a scan of the whole.
    fn check<O: Checked>(&self, client: &Client, way: Way, which: impl Fn(usize) -> bool) {
        let &Self { shape, axes, axis, at } = self;
        let data = numbers(shape);
        let whole = tensor(client, &data, shape, &row_major_strides(shape));
        let of_whole = way.of(scan(O::operator(), &whole).over(axes)).run(client).unwrap();
        let of_whole = O::Results::into_list(of_whole);
        let [first, second] = match way.reverse {
            false => [0..at, at..shape[axis]],
            true => [at..shape[axis], 0..at],
        };
        let shard = |range: &Range<usize>| ShardSpec { axis, start: range.start, of: shape[axis] };
        let (own, behind) =
            (self.tensor(client, &data, first.clone()), self.tensor(client, &data, second.clone()));
        let reduction = || reduce(O::operator(), &own).over(axes);
        let of_shard = reduction().partials_of_shard(client, shard(&first)).unwrap();
        let mut partials = vec![of_shard];
        if !O::POSITIONAL {
            partials.push(reduction().keep_dims(false).partials(client).unwrap());
        }
        let compare = |results, range: &Range<usize>, told: &str| {
            let results = O::Results::into_list(results);
            for (nth, (result, of_whole)) in results.iter().zip(&of_whole).enumerate() {
                let expected = piece(&values(client, of_whole), shape, axis, range.clone());
                let told = format!("{}: result {nth}, {shape:?} {axes:?} {way:?} {told}", O::NAME);
                assert_close(&values(client, result), &expected, &told);
            }
        };
        let alone = way.of(scan(O::operator(), &own).over(axes)).of_shard(shard(&first));
        compare(alone.run(client).unwrap(), &first, "the first piece");
        let device = capable_device(client);
        for earlier in &partials {
            let continued = way.of(scan(O::operator(), &behind).over(axes)).after(earlier);
            compare(continued.clone().run(client).unwrap(), &second, "as chosen");
            let plans = plans(&continued.problem().unwrap(), &device).into_iter().enumerate();
            for (_, plan) in plans.filter(|&(nth, _)| which(nth)) {
                let forced = continued.clone().plan_for(&device).with_plan(plan);
                compare(forced.run(client).unwrap(), &second, &plan.to_string());
            }
        }
    }
}

/// Pieces of rows and of columns, in plans of every shape.
pub(crate) fn by_every_plan(client: &Client) {
    let rows = InTwo { shape: &[3, 1500], axes: &[1], axis: 1, at: 464 };
    let columns = InTwo { shape: &[700, 12], axes: &[0], axis: 0, at: 200 };
    for pieces in [rows, columns] {
        pieces.check::<Sum>(client, WAYS[0], |_| true);
        pieces.check::<MaxWithIndex>(client, WAYS[2], |nth| nth % 3 == 0);
        pieces.check::<MeanVar>(client, WAYS[3], |nth| nth % 4 == 1);
    }
}

/// Operators of every kind, from both ends, and rows that lie anywhere among others.
pub(crate) fn in_pieces(client: &Client) {
    let layouts = [
        InTwo { shape: &[5, 60, 7], axes: &[1], axis: 1, at: 33 },
        InTwo { shape: &[2, 9, 40], axes: &[1, 2], axis: 1, at: 4 },
        InTwo { shape: &[6, 4, 10], axes: &[0, 2], axis: 0, at: 5 },
        InTwo { shape: &[130], axes: &[0], axis: 0, at: 130 },
    ];
    for (nth, pieces) in layouts.iter().enumerate() {
        let way = WAYS[nth];
        pieces.check::<Sum>(client, way, |_| false);
        pieces.check::<Mean>(client, way, |_| false);
        pieces.check::<ArgMin>(client, way, |_| false);
        pieces.check::<MinMax>(client, way, |_| false);
        pieces.check::<LogSumExp>(client, way, |_| false);
    }
}

/// A stream of pieces, of which each is merged to what came before it.
pub(crate) fn a_stream(client: &Client) {
    let (shape, data) = ([2, 90], numbers(&[2, 90]));
    let whole = tensor(client, &data, &shape, &[90, 1]);
    let expected = values(client, &scan(Sum, &whole).over(1).run(client).unwrap());
    let mut before: Option<Partials<Sum>> = None;
    for range in [0..20, 20..21, 21..21, 21..90] {
        let own = piece(&data, &shape, 1, range.clone());
        let x = tensor(client, &own, &[2, range.len()], &[range.len(), 1]);
        let scanned = scan(Sum, &x).over(1);
        let scanned = match &before {
            Some(before) => scanned.after(before),
            None => scanned,
        };
        scanned.check(client).unwrap();
        // In place of the elements.
        scanned.run_into(client, x.clone().binding()).unwrap();
        assert_close(&values(client, &x), &piece(&expected, &shape, 1, range.clone()), "stream");
        let x = tensor(client, &own, &[2, range.len()], &[range.len(), 1]);
        let own = reduce(Sum, &x).over(1).partials(client).unwrap();
        before = Some(match before {
            Some(before) => merge_partials(&[before, own]).partials(client).unwrap(),
            None => own,
        });
    }
}

/// Partial results that are not of what comes before a scan, which are refused before anything is
/// launched.
pub(crate) fn refused(client: &Client) {
    let data = numbers(&[4, 6]);
    let x = tensor(client, &data, &[4, 6], &[6, 1]);
    fn told<T: std::fmt::Debug>(result: Result<T, ReduceError>) -> PartialsError {
        let error = result.unwrap_err();
        assert!(error.kind() == ErrorKind::Partials && !error.launched(), "{error}");
        source::<PartialsError>(&error).unwrap_or_else(|| panic!("{error}")).clone()
    }
    let differs = |error: PartialsError| match error {
        PartialsError::Scan { what, .. } => what,
        other => panic!("{other}"),
    };
    let sums = reduce(Sum, &x).over(1).partials(client).unwrap();
    let over_rows = scan(Sum, &x).over(0).after(&sums);
    assert_eq!(differs(told(over_rows.clone().run(client))), "rows");
    assert_eq!(differs(told(over_rows.plan(client).map(|_| ()))), "rows");
    let mapped = scan(Sum, &x).over(1).after(&sums).mapped(Square);
    assert_eq!(differs(told(mapped.run(client))), "operator");
    let wide = scan(Sum, &x).over(1).accumulate_in(ElementType::F64).after(&sums);
    if capable_device(client).has(ElementType::F64) {
        assert_eq!(differs(told(wide.run(client))), "types");
    }
    let variances = reduce(Var { correction: 0.0 }, &x).over(1).partials(client).unwrap();
    let unbiased = scan(Var { correction: 1.0 }, &x).over(1).after(&variances);
    assert_eq!(differs(told(unbiased.run(client))), "parameters");
    let shard = ShardSpec { axis: 1, start: 0, of: 6 };
    let named = scan(Sum, &x).over(1).of_shard(shard).after(&sums);
    assert_eq!(differs(told(named.run(client))), "shard");

    let of = |start| ShardSpec { axis: 1, start, of: 20 };
    let shard = reduce(ArgMax, &x).over(1).partials_of_shard(client, of(3)).unwrap();
    let after = || scan(ArgMax, &x).over(1).after(&shard);
    assert_eq!(after().problem().unwrap().problem().first_position(), 9);
    assert_eq!(differs(told(after().of_shard(of(8)).run(client))), "shard");
    // Of a reverse scan, the elements would begin before the whole.
    assert_eq!(differs(told(after().reverse().run(client))), "shard");
    let end = reduce(ArgMax, &x).over(1).partials_of_shard(client, of(14)).unwrap();
    let past = scan(ArgMax, &x).over(1).after(&end).run(client).unwrap_err();
    assert!(matches!(source(&past), Some(ProblemError::Shard { .. })), "{past}");
    let inside = scan(Sum, &x).of_shard(of(0)).run(client).unwrap_err();
    let expected = Some(&ProblemError::ShardInside { axis: 1, outer: 0 });
    assert_eq!(source::<ProblemError>(&inside), expected, "{inside}");

    let alone = reduce(ArgMax, &x).over(1).partials(client).unwrap();
    let positions = told(scan(ArgMax, &x).over(1).after(&alone).run(client));
    assert!(matches!(positions, PartialsError::Positional { .. }), "{positions}");

    // A plan is checked as that of any scan.
    let mut unfit = scan(Max, &x).over(1).choose(client).unwrap().plan;
    unfit.version += 1;
    assert!(scan(Max, &x).over(1).with_plan(unfit).run(client).is_err());
}
