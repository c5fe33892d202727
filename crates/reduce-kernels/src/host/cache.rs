//! What a thread remembers between calls: devices and prepared reductions. A seen shape then costs a
//! look-up.

use core::hash::BuildHasher;
use std::{
    cell::RefCell,
    collections::{HashMap, hash_map::RandomState},
    rc::Rc,
};

use cubecl::prelude::*;
use reduce_planner::Device;

use super::{client::device_of, prepared::Prepared, request::Request};
use crate::ReduceError;

/// Reductions that a thread remembers. Programs whose shapes never repeat start over when it is full.
const MOST_REDUCTIONS: usize = 1024;

thread_local! {
    static CACHE: RefCell<Cache> = RefCell::default();
}

#[derive(Default)]
struct Cache {
    hasher: RandomState,
    /// Prepared reductions by the hash of client and request: a look-up copies no list.
    reductions: HashMap<u64, (usize, Request<'static>, Rc<Prepared>)>,
    devices: Vec<(usize, Rc<Device>)>,
}

/// A number that tells clients of different devices apart: where the properties lie that the clients of
/// one device share.
pub(crate) fn identity<R: Runtime>(client: &ComputeClient<R>) -> usize {
    core::ptr::from_ref(client.properties()).addr()
}

/// What a request was prepared to, from the cache or by `prepare`.
pub(crate) fn prepared(
    client: usize,
    request: Request<'_>,
    prepare: impl FnOnce(&Request<'_>) -> Result<Prepared, ReduceError>,
) -> Result<Rc<Prepared>, ReduceError> {
    let (key, known) = CACHE.with_borrow(|cache| {
        let key = cache.hasher.hash_one((client, &request));
        let found = cache.reductions.get(&key);
        let found = found.filter(|found| found.0 == client && found.1 == request);
        (key, found.map(|found| Rc::clone(&found.2)))
    });
    if let Some(known) = known {
        return Ok(known);
    }
    let prepared = Rc::new(prepare(&request)?);
    CACHE.with_borrow_mut(|cache| {
        if cache.reductions.len() >= MOST_REDUCTIONS {
            cache.reductions.clear();
        }
        cache.reductions.insert(key, (client, request.into_owned(), Rc::clone(&prepared)));
    });
    Ok(prepared)
}

/// The device behind a client.
pub(crate) fn device<R: Runtime>(client: &ComputeClient<R>) -> Rc<Device> {
    let identity = identity(client);
    let known = CACHE.with_borrow(|cache| {
        let found = cache.devices.iter().find(|(client, _)| *client == identity);
        found.map(|(_, device)| Rc::clone(device))
    });
    known.unwrap_or_else(|| {
        let device = Rc::new(device_of(client));
        CACHE.with_borrow_mut(|cache| cache.devices.push((identity, Rc::clone(&device))));
        device
    })
}
