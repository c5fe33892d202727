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

/// Number of reductions that a thread caches. A full cache is cleared, which happens only to
/// programs with very many different shapes.
const MOST_REDUCTIONS: usize = 1024;

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

/// What was prepared, by the hash of client and request. Looking up a hash copies none of the lists
/// in a request.
struct Known<K, V>(HashMap<u64, (usize, K, Rc<V>)>);

impl<K, V> Default for Known<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K, V> Known<K, V> {
    fn find(&self, hash: u64, client: usize, is_same: impl Fn(&K) -> bool) -> Option<Rc<V>> {
        let found = self.0.get(&hash).filter(|found| found.0 == client && is_same(&found.1));
        found.map(|found| Rc::clone(&found.2))
    }

    fn insert(&mut self, hash: u64, client: usize, request: K, prepared: &Rc<V>) {
        if self.0.len() >= MOST_REDUCTIONS {
            self.0.clear();
        }
        self.0.insert(hash, (client, request, Rc::clone(prepared)));
    }
}

/// A number that identifies the device of a client: the address of the properties, which all
/// clients of one device share.
pub(crate) fn identity<R: Runtime>(client: &ComputeClient<R>) -> usize {
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
fn remembered<K: Hash + Eq + Clone, V>(
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
pub(crate) fn device<R: Runtime>(client: &ComputeClient<R>) -> Rc<Device> {
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
