//! The laws of operators, checked on the device.

use reduce_kernels::{
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
