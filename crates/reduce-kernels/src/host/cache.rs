//! The cache of a thread: devices and prepared reductions. Repeating a request costs one look-up.

use core::hash::{BuildHasher, Hash};
use std::{
    cell::RefCell,
    collections::{HashMap, hash_map::RandomState},
    rc::Rc,
};

use cubecl::prelude::*;
use reduce_planner::Device;

use super::{
    application::{ApplyRequest, PreparedApplication},
    client::device_of,
    list::{ListRequest, PreparedList},
    list_application::{ApplyListRequest, PreparedListApplication},
    prepared::Prepared,
    request::Request,
    settings,
};
use crate::ReduceError;

/// Most requests of one kind that a thread caches. A training step has some hundred different
/// reductions, and finding the entry to forget reads all of them.
const MOST_REQUESTS: usize = 1024;

/// Most that a thread caches for one kind of request.
///
/// - Host memory: a list of 1000 tensors holds about half a MiB, and a program has few such lists
///   at a time. The entry of a reduction or of an application holds a fixed number of lists with an
///   item for each axis; 1024 of usual ranks stay below 8 MiB.
/// - Device memory: the tables of a list of 1000 tensors have about 72 KiB, so some fifty such
///   lists fit. Only lists have tables.
const MOST_HELD: Held = Held { host: 32 << 20, device: 4 << 20 };

/// Bytes of the host that an axis of a tensor takes in a request and in what was prepared for it:
/// some fifteen lists have an item for each axis, of at most 32 bytes.
const BYTES_OF_AXIS: usize = 512;

thread_local! {
    static CACHE: RefCell<Cache> = RefCell::default();
}

#[derive(Default)]
struct Cache {
    hasher: RandomState,
    /// The number of the settings under which everything here was prepared.
    generation: u64,
    reductions: Known<Request<'static>, Prepared>,
    applications: Known<ApplyRequest, PreparedApplication>,
    lists: Known<Rc<ListRequest>, PreparedList>,
    list_applications: Known<ApplyListRequest, PreparedListApplication>,
    devices: Vec<(usize, Rc<Device>)>,
}

impl Cache {
    /// The cache under the settings of this number. What was prepared under others is forgotten.
    fn under(&mut self, generation: u64) -> &mut Self {
        if self.generation != generation {
            let hasher = core::mem::take(&mut self.hasher);
            *self = Self { hasher, generation, ..Self::default() };
        }
        self
    }

    /// The cache, if its settings are still those of this number.
    fn still_under(&mut self, generation: u64) -> Option<&mut Self> {
        (self.generation == generation).then_some(self)
    }
}

/// Bytes of memory, estimated from the lists that an entry has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) host: usize,
    pub(crate) device: usize,
}

impl Held {
    fn plus(self, other: Self) -> Self {
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
    fn of_axes<K, V>(axes: usize) -> Self {
        let host = size_of::<K>() + size_of::<V>() + axes.saturating_mul(BYTES_OF_AXIS);
        Self { host, device: 0 }
    }
}

/// What was prepared for requests of type `K`.
pub(crate) trait Holds<K> {
    /// The memory that the cache holds with this and its request.
    fn held(&self, request: &K) -> Held;
}

impl Holds<Request<'static>> for Prepared {
    fn held(&self, request: &Request<'static>) -> Held {
        Held::of_axes::<Request<'static>, Self>(request.shape.len())
    }
}

impl Holds<ApplyRequest> for PreparedApplication {
    fn held(&self, request: &ApplyRequest) -> Held {
        Held::of_axes::<ApplyRequest, Self>(request.reduction.shape.len())
    }
}

/// What was prepared, by the hash of client and request. Looking up a hash copies none of the lists
/// in a request, and allocates nothing.
struct Known<K, V> {
    entries: HashMap<u64, Entry<K, V>>,
    /// What all entries hold.
    held: Held,
    /// The number of uses of all entries so far.
    uses: u64,
}

struct Entry<K, V> {
    client: usize,
    request: K,
    prepared: Rc<V>,
    held: Held,
    /// The number of the last use.
    used: u64,
}

impl<K, V> Default for Known<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), held: Held::default(), uses: 0 }
    }
}

impl<K, V: Holds<K>> Known<K, V> {
    fn find(&mut self, hash: u64, client: usize, is_same: impl Fn(&K) -> bool) -> Option<Rc<V>> {
        let found = self.entries.get_mut(&hash);
        let found = found.filter(|found| found.client == client && is_same(&found.request))?;
        self.uses += 1;
        found.used = self.uses;
        Some(Rc::clone(&found.prepared))
    }

    /// Keeps an entry, and forgets those that were used least recently until the limits hold. An
    /// entry that is larger than the limits is not kept.
    fn insert(&mut self, hash: u64, client: usize, request: K, prepared: &Rc<V>) {
        let held = prepared.held(&request);
        if !held.is_kept() {
            return;
        }
        self.forget(hash);
        while self.entries.len() >= MOST_REQUESTS || !self.held.plus(held).is_kept() {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
            let Some((&oldest, _)) = oldest else { break };
            self.forget(oldest);
        }
        self.uses += 1;
        self.held = self.held.plus(held);
        let (prepared, used) = (Rc::clone(prepared), self.uses);
        self.entries.insert(hash, Entry { client, request, prepared, held, used });
    }

    fn forget(&mut self, hash: u64) {
        if let Some(entry) = self.entries.remove(&hash) {
            self.held = self.held.minus(entry.held);
        }
    }
}

/// A number that identifies the device of a client: the address of the properties, which all
/// clients of one device share.
pub(crate) fn identity(client: &Client) -> usize {
    core::ptr::from_ref(client.properties()).addr()
}

/// Looks up how a request was prepared. If it is not cached, calls `prepare` and caches what it
/// returns; errors are not cached. What was prepared under other settings of the process counts as
/// not cached.
pub(crate) fn prepared(
    client: usize,
    request: Request<'_>,
    prepare: impl FnOnce(&Request<'_>) -> Result<Prepared, ReduceError>,
) -> Result<Rc<Prepared>, ReduceError> {
    // The number is read before the settings are. If they change meanwhile, the reduction is
    // prepared once more.
    let generation = settings::generation();
    let (hash, known) = CACHE.with_borrow_mut(|cache| {
        let cache = cache.under(generation);
        let hash = cache.hasher.hash_one((client, &request));
        (hash, cache.reductions.find(hash, client, |known| *known == request))
    });
    if let Some(known) = known {
        return Ok(known);
    }
    let prepared = Rc::new(prepare(&request)?);
    CACHE.with_borrow_mut(|cache| {
        if let Some(cache) = cache.still_under(generation) {
            cache.reductions.insert(hash, client, request.into_owned(), &prepared);
        }
    });
    Ok(prepared)
}

/// [`prepared`] for reductions whose results are applied.
pub(crate) fn prepared_application(
    client: usize,
    request: &ApplyRequest,
    prepare: impl FnOnce(&ApplyRequest) -> Result<PreparedApplication, ReduceError>,
) -> Result<Rc<PreparedApplication>, ReduceError> {
    remembered(|cache| &mut cache.applications, client, request, prepare)
}

/// [`prepared`] for lists of tensors.
pub(crate) fn prepared_list(
    client: usize,
    request: &Rc<ListRequest>,
    prepare: impl FnOnce(&Rc<ListRequest>) -> Result<PreparedList, ReduceError>,
) -> Result<Rc<PreparedList>, ReduceError> {
    remembered(|cache| &mut cache.lists, client, request, prepare)
}

/// [`prepared`] for applications of the results of lists.
pub(crate) fn prepared_list_application(
    client: usize,
    request: &ApplyListRequest,
    prepare: impl FnOnce(&ApplyListRequest) -> Result<PreparedListApplication, ReduceError>,
) -> Result<Rc<PreparedListApplication>, ReduceError> {
    remembered(|cache| &mut cache.list_applications, client, request, prepare)
}

/// Looks a request up among those of its kind, and prepares and caches it if it is not there.
fn remembered<K: Hash + Eq + Clone, V: Holds<K>>(
    of_kind: impl Fn(&mut Cache) -> &mut Known<K, V>,
    client: usize,
    request: &K,
    prepare: impl FnOnce(&K) -> Result<V, ReduceError>,
) -> Result<Rc<V>, ReduceError> {
    let generation = settings::generation();
    let (hash, known) = CACHE.with_borrow_mut(|cache| {
        let cache = cache.under(generation);
        let hash = cache.hasher.hash_one((client, request));
        (hash, of_kind(cache).find(hash, client, |known| known == request))
    });
    if let Some(known) = known {
        return Ok(known);
    }
    let prepared = Rc::new(prepare(request)?);
    CACHE.with_borrow_mut(|cache| {
        if let Some(cache) = cache.still_under(generation) {
            of_kind(cache).insert(hash, client, request.clone(), &prepared);
        }
    });
    Ok(prepared)
}

/// The device behind a client, as the process plans for it.
pub(crate) fn device(client: &Client) -> Rc<Device> {
    let identity = identity(client);
    let generation = settings::generation();
    let known = CACHE.with_borrow_mut(|cache| {
        let mut devices = cache.under(generation).devices.iter();
        devices.find(|(client, _)| *client == identity).map(|(_, device)| Rc::clone(device))
    });
    known.unwrap_or_else(|| {
        let mut device = device_of(client);
        settings::apply_to(&mut device, identity);
        let device = Rc::new(device);
        CACHE.with_borrow_mut(|cache| {
            if let Some(cache) = cache.still_under(generation) {
                cache.devices.push((identity, Rc::clone(&device)));
            }
        });
        device
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry that says what it holds.
    struct Stated(Held);

    impl Holds<u64> for Stated {
        fn held(&self, _: &u64) -> Held {
            self.0
        }
    }

    fn insert(known: &mut Known<u64, Stated>, request: u64, host: usize, device: usize) {
        known.insert(request, 0, request, &Rc::new(Stated(Held { host, device })));
    }

    fn find(known: &mut Known<u64, Stated>, request: u64) -> Option<Rc<Stated>> {
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
        known.insert(1, 0, 2, &Rc::new(Stated(Held { host: 500, device: 0 })));
        assert_eq!(known.held, Held { host: 500, device: 0 });
        assert!(find(&mut known, 1).is_none());
    }
}
