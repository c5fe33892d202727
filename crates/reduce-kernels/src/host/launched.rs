//! Which kernels were launched, so that a call can be asked whether it would compile one.
//!
//! CubeCL 0.11 compiles a kernel when it is launched for the first time, keeps it as long as the
//! process runs, and does not tell which ones it has. Its own name of a kernel is known only to a
//! launch. So each kind of task lists what its kernels are generated for, and a launch remembers
//! it. Whatever a kernel's arguments are when it is generated belongs into the list: types,
//! constants, the number of dimensions, and which arrays are bound. The tests of `warm_up` compare
//! the lists with what CubeCL launches.

use core::{
    cell::Cell,
    hash::{BuildHasher, Hash, Hasher},
};
use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use cubecl::prelude::*;
use foldhash::fast::FixedState;
use reduce_planner::Problem;

use super::{cache::identity, kept::KeptKernel};

/// The kernels that were launched, by the identity of their client.
static LAUNCHED: Mutex<BTreeSet<(usize, Kernel)>> = Mutex::new(BTreeSet::new());

/// A kernel: the hash of its name and of what it is generated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kernel(u64);

impl Kernel {
    /// The kernel of this name that is `generated_for` these.
    pub(super) fn new(name: &'static str, generated_for: impl Hash) -> Self {
        let mut hasher = FixedState::default().build_hasher();
        name.hash(&mut hasher);
        generated_for.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// What is prepared for a call, as far as its kernels go.
pub(crate) trait Launches {
    /// Calls `each` with every kernel that is launched.
    fn kernels(&self, client: &Client, each: &mut dyn FnMut(Kernel));

    /// Whether one of them was not launched before, in any thread.
    fn has_new_kernels(&self, client: &Client) -> bool {
        let (client_id, mut is_any_new) = (identity(client), false);
        self.kernels(client, &mut |kernel| {
            let launched = LAUNCHED.lock().unwrap_or_else(PoisonError::into_inner);
            is_any_new |= !launched.contains(&(client_id, kernel));
        });
        is_any_new
    }
}

/// What something that was prepared keeps of its first launch for the next ones.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    /// Whether the kernels are remembered. A call that is repeated does not list them again.
    is_remembered: Cell<bool>,
    /// Kernels of the launch. A kind of task has two of its own at most, or keeps more of them
    /// where it keeps their numbers.
    pub(super) first: KeptKernel,
    pub(super) second: KeptKernel,
}

impl Noted {
    /// Remembers the kernels that `list` calls a function with, at the first launch.
    pub(super) fn launch(&self, client: &Client, list: impl FnOnce(&mut dyn FnMut(Kernel))) {
        if self.is_remembered.replace(true) {
            return;
        }
        let client = identity(client);
        list(&mut |kernel| {
            LAUNCHED.lock().unwrap_or_else(PoisonError::into_inner).insert((client, kernel));
        });
    }
}

/// What kernels know of a problem's dimensions when they are generated: how many are kept, and how
/// many are reduced.
pub(super) fn dimensions(problem: &Problem) -> (usize, usize) {
    (problem.kept().len(), problem.reduced().len())
}
