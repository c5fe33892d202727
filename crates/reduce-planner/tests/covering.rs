//! Whatever plan the rules allow loads each element exactly once for its output.

mod support;

use std::{cell::RefCell, collections::BTreeMap};

use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use reduce_planner::{Direction, Plan};
use support::{Bytes, walk::walk_case};

/// Units and elements of the largest walk.
const MOST: u64 = 1 << 14;

/// What kind of walk a plan makes.
fn kind(plan: Plan) -> String {
    let access = plan.access;
    let direction = match access.direction {
        Direction::Along => "along",
        Direction::Across => "across",
    };
    let mut kind = format!("{} {direction}", plan.schedule.kind());
    for (holds, word) in [
        (access.vector > 1, " in vectors"),
        (access.peeled, " peeled"),
        (access.realigned, " realigned"),
        (access.outputs_in_flight > 1, " several outputs"),
    ] {
        kind += if holds { word } else { "" };
    }
    kind
}

/// Random small problems on random devices. The cases are the same in every run. The target `walks`
/// of `fuzz.rs` has others.
#[test]
fn plans_load_each_element_once() {
    let config = Config {
        failure_persistence: None,
        cases: 400,
        max_shrink_iters: 300,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let walked = RefCell::new(BTreeMap::<String, usize>::new());
    let bytes = prop::collection::vec(any::<u8>(), 200..1500);
    let result = runner.run(&bytes, |bytes| {
        walk_case(&mut Bytes(&bytes), MOST, |plan| {
            *walked.borrow_mut().entry(kind(plan)).or_default() += 1;
        });
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let walked = walked.into_inner();
    // Every way that kernels walk was walked.
    for kind in [
        "unit along",
        "unit along in vectors",
        "unit along in vectors peeled",
        "unit along in vectors realigned",
        "unit along in vectors several outputs",
        "unit across",
        "unit across in vectors",
        "unit across in vectors peeled",
        "plane along in vectors",
        "plane along in vectors peeled",
        "plane along in vectors realigned",
        "plane along in vectors several outputs",
        "plane across",
        "plane across in vectors",
        "plane across in vectors peeled",
        "cube along in vectors",
        "cube along in vectors peeled",
        "cube along in vectors realigned",
        "cube across in vectors",
        "cube across in vectors peeled",
        "cube across in vectors realigned",
        "split along in vectors",
        "split along in vectors peeled",
        "split along in vectors realigned",
        "split across in vectors",
        "split across in vectors peeled",
        "split across in vectors realigned",
    ] {
        assert!(walked.contains_key(kind), "{kind}: {walked:#?}");
    }
}
