//! Every rung on a device of this machine.

use half::f16;
use indicatif::ProgressBar;
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::cubecl::prelude::*;
use reduce_programs::{Backend, OnDevice, on_device};

use crate::{
    climb::Climber,
    data::{Element, Elements, fill, filled, value},
    full,
    gpu::Gpu,
    matrix::{self, Axis, Matrix},
    numerics::{Found, experiments},
    rank5,
    report::Outcome,
};

/// Does something on a device of the backend that the environment variable `REDUCE_BACKEND` names.
fn on_default(work: impl OnDevice) {
    on_device(None, work).unwrap();
}

/// Of the devices that tests run on, Mesa's software adapter alone reports no plane operations.
fn runs_in_software(gpu: &Gpu<'_>) -> bool {
    gpu.lacks_planes().is_some()
}

fn download<E: Element>(gpu: &Gpu<'_>, elements: &Elements) -> Vec<E> {
    let bytes = gpu.client.read_one(elements.handle.clone()).unwrap();
    E::from_bytes(&bytes)[..elements.length].to_vec()
}

/// Whole numbers small enough that every type but f16 holds all their sums.
fn random(length: usize) -> Vec<i64> {
    let mut random = StdRng::seed_from_u64(length as u64);
    (0..length).map(|_| random.random_range(-100..100)).collect()
}

fn upload<E: Element>(gpu: &Gpu<'_>, values: &[i64]) -> Elements {
    let values: Vec<E> = values.iter().map(|&value| E::of(value)).collect();
    Elements::upload(gpu.client, &values)
}

/// One element, less than a plane, about a plane, about a cube, about a tile, more tiles than one
/// level of recursion holds: whole and not.
const LENGTHS: [usize; 14] =
    [1, 2, 3, 31, 33, 255, 256, 257, 1023, 1024, 1025, 4097, 65_537, 400_003];

/// For GPUs: more than units run side by side with four elements each; three levels of recursion
/// with vectors, and more cubes than one side of a grid holds.
const LONG_LENGTHS: [usize; 2] = [1_100_003, (1 << 24) + 1];

/// The exact sum of any length, whatever the result held before. Plane operations are forced on a
/// device that does not report them: Mesa's software adapter has them.
#[test]
fn every_rung_of_the_full_reduction_is_exact() {
    struct Check;

    fn check<E: Element>(gpu: &Gpu<'_>) {
        let software = runs_in_software(gpu);
        if !gpu.device.has(E::TYPE) {
            return;
        }
        let long = if software { &[][..] } else { &LONG_LENGTHS };
        for &length in LENGTHS.iter().chain(long) {
            let values = random(length);
            let expected = E::of(values.iter().sum());
            for rung in full::Rung::ALL {
                let atomic = matches!(rung, full::Rung::Segmented | full::Rung::OnePass);
                let within = !software || length <= rung.most_in_software();
                if !within || atomic && gpu.lacks_atomic_add(E::TYPE).is_some() {
                    continue;
                }
                let input = upload::<E>(gpu, &values);
                let result = Elements::poisoned::<E>(gpu.client, 1);
                rung.launch::<E>(gpu, &input, &result).unwrap();
                let found = download::<E>(gpu, &result)[0];
                let what =
                    format!("{rung:?} of {length} {} through {}", E::TYPE, gpu.client.name());
                assert!(found == expected, "{what}: {found}, not {expected}");
            }
        }
    }

    impl OnDevice for Check {
        type Output = ();

        fn on(self, client: &Client, _: Backend, _: &str) {
            let gpu = Gpu::new(client);
            check::<i32>(&gpu);
            check::<f32>(&gpu);
            check::<u32>(&gpu);
            check::<i64>(&gpu);
            check::<u64>(&gpu);
            check::<f64>(&gpu);
        }
    }
    on_default(Check);
}

/// Both axes of matrices narrower and wider than tiles, whole numbers of tiles and not, and with
/// rows that are no whole number of vectors; and more cubes than one side of a grid holds.
#[test]
fn every_rung_of_a_matrix_is_exact() {
    struct Check;

    const SHAPES: [(usize, usize); 10] = [
        (524_289, 1),
        (1, 1),
        (1, 37),
        (37, 1),
        (5, 8),
        (32, 32),
        (33, 65),
        (100, 258),
        (300, 64),
        (7, 1000),
    ];

    fn check<E: Element>(gpu: &Gpu<'_>) {
        let software = runs_in_software(gpu);
        for (rows, columns) in SHAPES {
            let matrix = Matrix { rows, columns };
            let values = random(matrix.elements());
            let input = upload::<E>(gpu, &values);
            for axis in Axis::ALL {
                let mut sums = vec![0; matrix.totals(axis)];
                for (index, value) in values.iter().enumerate() {
                    let place = [index % columns, index / columns][axis as usize];
                    sums[place] += value;
                }
                let expected: Vec<E> = sums.into_iter().map(E::of).collect();
                for &rung in matrix::Rung::along(axis) {
                    let length = matrix.elements() / matrix.totals(axis);
                    if software && length > rung.most_in_software() {
                        continue;
                    }
                    let totals = Elements::poisoned::<E>(gpu.client, expected.len());
                    rung.launch::<E>(gpu, &input, matrix, axis, &totals).unwrap();
                    let found = download::<E>(gpu, &totals);
                    let name = gpu.client.name();
                    let what = format!("{rung:?} of {matrix:?} along {axis:?} through {name}");
                    assert!(found == expected, "{what}: {found:?}, not {expected:?}");
                }
            }
        }
    }

    impl OnDevice for Check {
        type Output = ();

        fn on(self, client: &Client, _: Backend, _: &str) {
            let gpu = Gpu::new(client);
            check::<i32>(&gpu);
            check::<f32>(&gpu);
        }
    }
    on_default(Check);
}

/// All sets of axes, each in one launch.
#[test]
fn every_set_of_axes_of_rank_5_is_exact_in_one_launch() {
    struct Check;

    impl OnDevice for Check {
        type Output = ();

        fn on(self, client: &Client, _: Backend, _: &str) {
            let gpu = Gpu::new(client);
            for shape in [[3, 4, 5, 6, 7], [4, 8, 16, 8, 16]] {
                let input = filled::<f32>(client, shape.iter().product(), 0);
                for axes in rank5::RUNGS {
                    let launches = rank5::launches::<f32>(&gpu, &input, shape, axes).unwrap();
                    assert_eq!(launches, 1, "axes {axes:?} of {shape:?}");
                    let expected = rank5::expected(shape, axes).into_iter().map(f32::of);
                    let expected: Vec<f32> = expected.collect();
                    let totals = Elements::poisoned::<f32>(client, expected.len());
                    rank5::launch::<f32>(&gpu, &input, shape, axes, &totals).unwrap();
                    assert_eq!(download::<f32>(&gpu, &totals), expected, "{axes:?} of {shape:?}");
                }
            }
        }
    }
    on_default(Check);
}

/// Against a sum written down by hand: the oracle of rank 5 counts axes from 1 and keeps their
/// order.
#[test]
fn the_oracle_of_rank_5_counts_axes_from_1() {
    let at = |index: usize| value(index, 0);
    let shape = [2, 1, 1, 1, 3];
    assert_eq!(rank5::expected(shape, &[3, 4, 5]), [at(0) + at(1) + at(2), at(3) + at(4) + at(5)]);
    assert_eq!(rank5::expected(shape, &[1, 2]), [at(0) + at(3), at(1) + at(4), at(2) + at(5)]);
}

/// The device and the oracle speak of the same numbers, and these are spread: a rung that takes an
/// element for its neighbour must give another sum.
#[test]
fn host_and_device_make_the_same_numbers() {
    struct Check;

    const LENGTH: usize = 300_000;

    impl OnDevice for Check {
        type Output = ();

        fn on(self, client: &Client, _: Backend, _: &str) {
            let gpu = Gpu::new(client);
            for seed in [0, 3] {
                let elements = Elements::poisoned::<f32>(client, LENGTH);
                fill::<f32>(client, &elements, seed);
                let expected = (0..LENGTH).map(|index| f32::of(value(index, seed)));
                assert!(download::<f32>(&gpu, &elements).into_iter().eq(expected));
            }
        }
    }
    on_default(Check);

    let numbers: Vec<i64> = (0..LENGTH).map(|index| value(index, 0)).collect();
    for odd in (-15..=15).step_by(2) {
        let count = numbers.iter().filter(|&&number| number == odd).count();
        assert!(count.abs_diff(LENGTH / 16) < 600, "{odd}: {count}");
    }
    let tiles: Vec<i64> = numbers.chunks(256).map(|tile| tile.iter().sum()).collect();
    let alike = tiles.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert!(alike < tiles.len() / 20, "{alike} of {} neighbours", tiles.len());
}

fn climber<'a>(client: &'a Client, progress: &'a ProgressBar) -> Climber<'a> {
    Climber {
        gpu: Gpu::new(client),
        software: true,
        read: 1.0,
        sample_seconds: 1e-3,
        longest_seconds: 1e-3,
        progress,
    }
}

/// A wrong result is reported as one, and nothing else is: the check of the program can fail.
#[test]
fn a_wrong_total_is_found() {
    struct Check;

    impl OnDevice for Check {
        type Output = ();

        fn on(self, client: &Client, _: Backend, _: &str) {
            let progress = ProgressBar::hidden();
            let climber = climber(client, &progress);
            let totals = Elements::upload(client, &[1.0f32, 2.0, 3.0]);
            assert!(climber.check::<f32>(&totals, &[1, 2, 3]).is_ok());
            let error = climber.check::<f32>(&totals, &[1, 4, 3]).unwrap_err();
            assert_eq!(error.to_string(), "total 1 is 2, not 4");
        }
    }
    on_default(Check);
}

/// What no device lacks runs, and what it lacks is told: integers have atomics everywhere.
#[test]
fn only_missing_features_make_rungs_unavailable() {
    struct Check;

    impl OnDevice for Check {
        type Output = ();

        fn on(self, client: &Client, _: Backend, _: &str) {
            let progress = ProgressBar::hidden();
            let climber = climber(client, &progress);
            let ladder = climber.full::<i32>(10_000);
            for (entry, rung) in ladder.rungs.iter().zip(full::Rung::ALL) {
                match &entry.outcome {
                    Outcome::Measured(measured) => {
                        assert!(measured.microseconds > 0.0 && measured.elements > 0, "{rung:?}");
                    }
                    Outcome::NotAvailable(reason) => {
                        assert_eq!(Some(reason), climber.gpu.lacks_planes().as_ref(), "{rung:?}");
                    }
                    Outcome::Failed(reason) => panic!("{rung:?}: {reason}"),
                }
            }
        }
    }
    on_default(Check);
}

/// What docs/LADDER.md says of numbers.
#[test]
fn the_experiments_on_numbers_show_what_they_should() {
    struct Check;

    impl OnDevice for Check {
        type Output = ();

        fn on(self, client: &Client, _: Backend, _: &str) {
            let gpu = Gpu::new(client);
            let [order, two, many, runs] =
                <[_; 4]>::try_from(experiments(&gpu).unwrap()).ok().unwrap();
            // From left to right, 1e20 swallows what came before it; the library has its own order.
            assert_eq!(order.sums[0].found, Found::Sum(0.0));
            let Found::Sum(after) = order.sums[2].found else {
                panic!("{:?}", order.sums[2].found)
            };
            assert!((after / order.exact - 1.0).abs() < 1e-6, "{after}");
            assert_eq!(order.sums[1].found, order.sums[3].found);
            if gpu.device.has(f16::TYPE) {
                for (experiment, rounded, tolerance) in [(two, 1000.0, 1e-7), (many, 1010.0, 1e-6)]
                {
                    assert_eq!(experiment.sums[0].found, Found::Sum(1000.0));
                    assert_eq!(experiment.sums[1].found, Found::Sum(rounded));
                    let Found::Sum(in_f32) = experiment.sums[2].found else { panic!() };
                    let error = (in_f32 / experiment.exact - 1.0).abs();
                    assert!(error < tolerance, "{in_f32}, not {}", experiment.exact);
                }
            }
            for attempt in &runs.sums[2..] {
                match attempt.found {
                    Found::Runs { different, .. } => assert_eq!(different, 1, "{}", attempt.how),
                    Found::NotAvailable(_) => {}
                    Found::Sum(_) => panic!("{}", attempt.how),
                }
            }
        }
    }
    on_default(Check);
}
