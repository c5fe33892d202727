//! What a thread remembers: devices, and what was prepared for requests. Repeating a request costs
//! one look-up.
//!
//! A kind of request says with [`Remembered`] what is prepared for it. Nothing here knows a kind.

use core::hash::{BuildHasher, Hash};
use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    rc::Rc,
    thread::LocalKey,
};

use cubecl::prelude::*;
use foldhash::fast::RandomState;
use reduce_planner::{Device, PlanError, Planned};

use super::{client::device_of, settings};
use crate::error::ReduceError;

/// Most requests of one kind that a thread caches. A training step has some hundred different
/// reductions.
const MOST_REQUESTS: usize = 1024;

/// Most that a thread caches for one kind of request.
///
/// - Host memory: a list of 1000 tensors holds about half a MiB, and a program has few such lists
///   at a time. The entry of a reduction or of an application holds its kernels and a fixed number
///   of lists with an item for each axis; 1024 of usual ranks stay below 8 MiB.
/// - Device memory: the tables of a list of 1000 tensors have about 72 KiB, so some fifty such
///   lists fit. Only lists have tables.
const MOST_HELD: Held = Held { host: 32 << 20, device: 4 << 20 };

/// Bytes of the host that an axis of a tensor takes in a request and in what was prepared for it:
/// some fifteen lists have an item for each axis, of at most 32 bytes.
const BYTES_OF_AXIS: usize = 512;

/// Bytes of the host that the kernels which an entry keeps take: two of a few hundred bytes, each
/// with a copy of what it was generated for.
const BYTES_OF_KERNELS: usize = 2048;

/// The devices of clients, under the settings of a number.
type Devices = (u64, Vec<(usize, Rc<Device>)>);

thread_local! {
    static DEVICES: RefCell<Devices> = RefCell::default();
}

/// A request for which a thread remembers what was prepared.
pub(crate) trait Remembered: Hash + Eq + Sized + 'static {
    /// What is prepared.
    type Prepared;

    /// What this thread remembers of requests of this kind.
    fn known() -> &'static LocalKey<RefCell<Known<Self>>>;

    /// The memory that an entry holds with this request and what was prepared for it.
    fn held(&self, prepared: &Self::Prepared) -> Held;
}

/// A request as a call has it: a reference to what is remembered, or lists that it has borrowed.
pub(crate) trait Asked: Hash {
    /// The request that is remembered. Its hash is that of this one.
    type Request: Remembered;

    /// Whether it is this request.
    fn is(&self, known: &Self::Request) -> bool;

    /// The request to remember.
    fn to_request(&self) -> Self::Request;
}

/// Bytes of memory, estimated from the lists that an entry has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) host: usize,
    pub(crate) device: usize,
}

impl Held {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { host: self.host + other.host, device: self.device + other.device }
    }

    fn minus(self, other: Self) -> Self {
        Self { host: self.host - other.host, device: self.device - other.device }
    }

    fn is_kept(self) -> bool {
        self.host <= MOST_HELD.host && self.device <= MOST_HELD.device
    }

    /// A request and what was prepared for it, where both have a fixed number of lists with an item
    /// for each axis.
    pub(crate) fn of_axes<K, V>(axes: usize) -> Self {
        let lists = axes.saturating_mul(BYTES_OF_AXIS);
        let host = size_of::<K>() + size_of::<V>() + BYTES_OF_KERNELS + lists;
        Self { host, device: 0 }
    }
}

/// What was prepared for requests of one kind, by the hash of client and request. Looking up a hash
/// copies none of the lists in a request, and allocates nothing.
pub(crate) struct Known<K: Remembered> {
    hasher: RandomState,
    /// The number of the settings under which everything here was prepared.
    generation: u64,
    entries: HashMap<u64, Entry<K>, RandomState>,
    /// For each entry the number of one of its uses, not always the last one, and its hash. The
    /// least comes first.
    oldest: BinaryHeap<Reverse<(u64, u64)>>,
    /// What all entries hold.
    held: Held,
    /// The number of uses of all entries so far.
    uses: u64,
}

struct Entry<K: Remembered> {
    client: usize,
    request: K,
    prepared: Rc<K::Prepared>,
    held: Held,
    /// The number of the last use.
    used: u64,
}

impl<K: Remembered> Default for Known<K> {
    fn default() -> Self {
        Self {
            hasher: RandomState::default(),
            generation: 0,
            entries: HashMap::default(),
            oldest: BinaryHeap::new(),
            held: Held::default(),
            uses: 0,
        }
    }
}

impl<K: Remembered> Known<K> {
    /// What was prepared under the settings of this number. What was prepared under others is
    /// forgotten.
    fn under(&mut self, generation: u64) -> &mut Self {
        if self.generation != generation {
            *self = Self { generation, ..Self::default() };
        }
        self
    }

    fn find(
        &mut self,
        hash: u64,
        client: usize,
        is_same: impl Fn(&K) -> bool,
    ) -> Option<Rc<K::Prepared>> {
        let found = self.entries.get_mut(&hash);
        let found = found.filter(|found| found.client == client && is_same(&found.request))?;
        self.uses += 1;
        found.used = self.uses;
        Some(Rc::clone(&found.prepared))
    }

    /// Keeps an entry. Where it passes a limit, those that were used least recently are forgotten
    /// first. An entry that is larger than the limits is not kept.
    fn insert(&mut self, hash: u64, client: usize, request: K, prepared: &Rc<K::Prepared>) {
        let held = request.held(prepared);
        if !held.is_kept() {
            return;
        }
        self.forget(hash);
        while self.entries.len() >= MOST_REQUESTS || !self.held.plus(held).is_kept() {
            self.forget_oldest();
        }
        self.uses += 1;
        self.held = self.held.plus(held);
        let (prepared, used) = (Rc::clone(prepared), self.uses);
        self.entries.insert(hash, Entry { client, request, prepared, held, used });
        self.oldest.push(Reverse((used, hash)));
    }

    /// Forgets the entry that was used least recently. A stream of requests that are never repeated
    /// forgets one with each of them, so that no call pays for many.
    fn forget_oldest(&mut self) {
        while let Some(Reverse((used, hash))) = self.oldest.pop() {
            // An entry that another one took the place of is in the heap twice.
            let Some(entry) = self.entries.get(&hash) else { continue };
            if entry.used == used {
                return self.forget(hash);
            }
            // It was used since: others may be older.
            self.oldest.push(Reverse((entry.used, hash)));
        }
    }

    fn forget(&mut self, hash: u64) {
        if let Some(entry) = self.entries.remove(&hash) {
            self.held = self.held.minus(entry.held);
        }
    }
}

/// Most plans that a thread keeps for problems of one kind with the same slices.
const MOST_MODELS: usize = 512;

/// Plans that serve all problems of one kind with the same slices, by the device of a client and
/// the problem that stands for them.
pub(crate) struct Models<P: Planned> {
    /// The number of the settings under which these plans were chosen.
    generation: u64,
    plans: HashMap<(usize, P), P::Plan, RandomState>,
}

impl<P: Planned> Default for Models<P> {
    fn default() -> Self {
        Self { generation: 0, plans: HashMap::default() }
    }
}

/// The plan of a problem on the device of a client: fitted from the one that serves all problems
/// with the same slices, if there is such a one, and the planner's choice otherwise.
pub(crate) fn chosen<P: Planned + Hash + Eq + 'static>(
    models: &'static LocalKey<RefCell<Models<P>>>,
    client: usize,
    problem: &P,
    device: &Device,
) -> Result<P::Plan, PlanError> {
    let Some(representative) = problem.representative(device) else {
        return Ok(problem.choose(device)?.plan);
    };
    let generation = settings::generation();
    let key = (client, representative);
    let known = models.with_borrow_mut(|models| {
        if models.generation != generation {
            *models = Models { generation, ..Models::default() };
        }
        models.plans.get(&key).cloned()
    });
    let plan = match known {
        Some(plan) => plan,
        None => {
            let plan = key.1.choose(device)?.plan;
            models.with_borrow_mut(|models| {
                // A server has a few widths and operators, so this is rare.
                if models.plans.len() >= MOST_MODELS {
                    models.plans.clear();
                }
                models.plans.insert(key, plan.clone());
            });
            plan
        }
    };
    problem.fitted(&plan, device)
}

/// A number that identifies the device of a client: the address of the properties, which all
/// clients of one device share.
pub(crate) fn identity(client: &Client) -> usize {
    core::ptr::from_ref(client.properties()).addr()
}

/// What is prepared for a request. If it is not remembered, calls `prepare` and remembers what that
/// returns; errors are not remembered. What was prepared under other settings of the process counts
/// as not remembered.
pub(crate) fn prepared<Q: Asked>(
    client: usize,
    asked: &Q,
    prepare: impl FnOnce() -> Result<<Q::Request as Remembered>::Prepared, ReduceError>,
) -> Result<Rc<<Q::Request as Remembered>::Prepared>, ReduceError> {
    // The number is read before the settings are. If they change meanwhile, the request is
    // prepared once more.
    let generation = settings::generation();
    let (hash, found) = Q::Request::known().with_borrow_mut(|known| {
        let known = known.under(generation);
        let hash = known.hasher.hash_one((client, asked));
        (hash, known.find(hash, client, |request| asked.is(request)))
    });
    if let Some(found) = found {
        return Ok(found);
    }
    let prepared = Rc::new(prepare()?);
    Q::Request::known().with_borrow_mut(|known| {
        if known.generation == generation {
            known.insert(hash, client, asked.to_request(), &prepared);
        }
    });
    Ok(prepared)
}

/// The device behind a client, as the process plans for it.
pub(crate) fn device(client: &Client) -> Rc<Device> {
    let identity = identity(client);
    let generation = settings::generation();
    let known = DEVICES.with_borrow_mut(|(under, devices)| {
        if *under != generation {
            *under = generation;
            devices.clear();
        }
        devices.iter().find(|(client, _)| *client == identity).map(|(_, device)| Rc::clone(device))
    });
    known.unwrap_or_else(|| {
        let mut device = device_of(client);
        settings::apply_to(&mut device, identity);
        let device = Rc::new(device);
        DEVICES.with_borrow_mut(|(under, devices)| {
            if *under == generation {
                devices.push((identity, Rc::clone(&device)));
            }
        });
        device
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static KNOWN: RefCell<Known<u64>> = RefCell::default();
    }

    /// What is prepared for a number is what it holds.
    impl Remembered for u64 {
        type Prepared = Held;

        fn known() -> &'static LocalKey<RefCell<Known<Self>>> {
            &KNOWN
        }

        fn held(&self, prepared: &Held) -> Held {
            *prepared
        }
    }

    fn insert(known: &mut Known<u64>, request: u64, host: usize, device: usize) {
        known.insert(request, 0, request, &Rc::new(Held { host, device }));
    }

    fn find(known: &mut Known<u64>, request: u64) -> Option<Rc<Held>> {
        known.find(request, 0, |found| *found == request)
    }

    /// Bytes of the host, bytes of the device and the number of entries: none passes its limit,
    /// however many different requests come, and the account is that of the entries.
    #[test]
    fn thousands_of_requests_hold_bounded_memory() {
        for (host, device) in [(1 << 20, 0), (1000, 100 << 10), (1000, 0)] {
            let mut known = Known::default();
            for request in 0..5000 {
                insert(&mut known, request, host, device);
                assert!(known.held.is_kept(), "{:?} after {request}", known.held);
                assert!(known.entries.len() <= MOST_REQUESTS);
                // An entry that is used meanwhile stays.
                assert!(find(&mut known, 0).is_some(), "{request}");
                assert!(find(&mut known, request).is_some());
            }
            let sum =
                known.entries.values().fold(Held::default(), |sum, entry| sum.plus(entry.held));
            assert_eq!(known.held, sum);
            // Not much less than the limits allow is kept.
            assert!(known.entries.len() >= 30, "{}", known.entries.len());
        }
    }

    /// The entries that go are those that were used least recently, one for each that comes.
    #[test]
    fn the_oldest_goes_first() {
        let mut known = Known::default();
        let insert = |known: &mut Known<u64>, request| insert(known, request, 1000, 0);
        (0..MOST_REQUESTS as u64).for_each(|request| insert(&mut known, request));
        for used in [0, 5, 3, 5] {
            assert!(find(&mut known, used).is_some());
        }
        let gone = |known: &mut Known<u64>| {
            (0..9).filter(|request| !known.entries.contains_key(request)).collect::<Vec<u64>>()
        };
        let mut new = MOST_REQUESTS as u64..;
        for expected in [&[1][..], &[1, 2], &[1, 2, 4], &[1, 2, 4, 6]] {
            insert(&mut known, new.next().unwrap());
            assert_eq!(gone(&mut known), expected);
            assert_eq!(known.entries.len(), MOST_REQUESTS);
        }
        // Those that were used go last, in the order of their uses.
        new.by_ref().take(MOST_REQUESTS - 7).for_each(|request| insert(&mut known, request));
        assert_eq!(gone(&mut known), [1, 2, 4, 6, 7, 8]);
        for expected in [0, 3, 5] {
            assert!(known.entries.contains_key(&expected));
            insert(&mut known, new.next().unwrap());
            assert!(!known.entries.contains_key(&expected), "{expected}");
        }
        assert_eq!(known.oldest.len(), MOST_REQUESTS);
    }

    /// An entry larger than the limits is not kept, and drives out no other.
    #[test]
    fn an_entry_that_is_too_large_is_not_kept() {
        let mut known = Known::default();
        insert(&mut known, 1, 1000, 1000);
        insert(&mut known, 2, MOST_HELD.host + 1, 0);
        insert(&mut known, 3, 0, MOST_HELD.device + 1);
        assert!(find(&mut known, 1).is_some());
        assert!(find(&mut known, 2).is_none() && find(&mut known, 3).is_none());
    }

    /// A request whose hash another one has takes its place, and the account forgets that one.
    #[test]
    fn a_hash_that_two_requests_have_is_counted_once() {
        let mut known = Known::default();
        insert(&mut known, 1, 1000, 1000);
        known.insert(1, 0, 2, &Rc::new(Held { host: 500, device: 0 }));
        assert_eq!(known.held, Held { host: 500, device: 0 });
        assert!(find(&mut known, 1).is_none());
    }
}
