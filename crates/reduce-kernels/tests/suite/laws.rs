//! The laws of operators, checked on the device.

use reduce_kernels::{
    by_name::{PairName, PairOptions, with_pair},
    cubecl::prelude::*,
    testing::{Tolerance, check_laws},
};

use crate::operators::{Checked, for_each_operator};

/// Triples with ties, opposite signs, zeros and great ratios.
const TRIPLES: [[f32; 3]; 7] = [
    [1.0, 2.0, 3.0],
    [2.5, 2.5, -2.5],
    [0.0, -0.5, 0.0],
    [1e-3, 1e3, 1.0],
    [-7.0, -7.0, -9.0],
    [1e6, 1.0, -1e6],
    [0.0, 0.0, 0.0],
];

fn check<O: Checked>(client: &Client) {
    check_laws(client, O::operator(), &TRIPLES, Tolerance::FEW_ROUNDINGS)
        .unwrap_or_else(|error| panic!("{error}"));
}

/// Identity, associativity, commutativity, and that pushing is merging.
pub(crate) fn hold(client: &Client) {
    for_each_operator!(O => check::<O>(client));
}

/// Triples of pairs: shares and weights above 0, equal elements, great ratios.
const TRIPLES_OF_PAIRS: [[(f32, f32); 3]; 4] = [
    [(1.0, 2.0), (2.0, 0.5), (3.0, 1.0)],
    [(0.5, 0.5), (2.5, 2.5), (0.5, 0.25)],
    [(1e-3, 1.0), (1e3, 2.0), (1.0, 4.0)],
    [(7.0, 1.0), (7.0, 1.0), (7.0, 1.0)],
];

/// The same of the operators of two inputs.
pub(crate) fn hold_for_pairs(client: &Client) {
    for &pair in PairName::ALL {
        with_pair!(pair, PairOptions::default(), operator => {
            check_laws(client, operator, &TRIPLES_OF_PAIRS, Tolerance::FEW_ROUNDINGS)
                .unwrap_or_else(|error| panic!("{error}"));
        });
    }
}
