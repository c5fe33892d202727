//! What a thread remembers between calls: devices and prepared reductions. A seen shape then costs a
//! look-up.

use core::{any::TypeId, hash::BuildHasher};
use std::{
    cell::RefCell,
    collections::{HashMap, hash_map::RandomState},
    rc::Rc,
};

use cubecl::prelude::*;
use reduce_planner::{Device, ElementType, Plan};

use crate::{ReduceError, device::device_of, prepared::Prepared};

/// Reductions that a thread remembers. Programs whose shapes never repeat start over when it is full.
const MOST_REDUCTIONS: usize = 1024;

thread_local! {
    static MEMORY: RefCell<Memory> = RefCell::default();
}

#[derive(Default)]
struct Memory {
    hasher: RandomState,
    reductions: HashMap<u64, Remembered>,
    devices: Vec<(usize, Rc<Device>)>,
}

/// Everything that decides how a reduction is launched, apart from its buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Query<'a> {
    pub(crate) client: usize,
    pub(crate) operator: TypeId,
    pub(crate) element: ElementType,
    pub(crate) shape: &'a [usize],
    pub(crate) strides: &'a [usize],
    pub(crate) axes: Option<&'a [usize]>,
    pub(crate) squeeze: bool,
    pub(crate) accumulator: Option<ElementType>,
    pub(crate) outputs: [Option<ElementType>; 3],
    pub(crate) alignment: usize,
    /// Shape and strides of a supplied output.
    pub(crate) output: Option<(&'a [usize], &'a [usize])>,
    pub(crate) plan: Option<Plan>,
}

/// A query with lists of its own, and its answer.
struct Remembered {
    query: Query<'static>,
    shape: Vec<usize>,
    strides: Vec<usize>,
    axes: Option<Vec<usize>>,
    output: Option<(Vec<usize>, Vec<usize>)>,
    prepared: Rc<Prepared>,
}

impl Remembered {
    fn new(query: &Query<'_>, prepared: Rc<Prepared>) -> Self {
        let output = query.output.map(|(shape, strides)| (shape.to_vec(), strides.to_vec()));
        Self {
            query: Query { shape: &[], strides: &[], axes: None, output: None, ..*query },
            shape: query.shape.to_vec(),
            strides: query.strides.to_vec(),
            axes: query.axes.map(<[usize]>::to_vec),
            output,
            prepared,
        }
    }

    fn answers(&self, query: &Query<'_>) -> bool {
        let output = self.output.as_ref().map(|(shape, strides)| (&shape[..], &strides[..]));
        let remembered = Query {
            shape: &self.shape,
            strides: &self.strides,
            axes: self.axes.as_deref(),
            output,
            ..self.query
        };
        remembered == *query
    }
}

/// A number that tells clients of different devices apart: where the properties lie that the clients of
/// one device share.
pub(crate) fn identity<R: Runtime>(client: &ComputeClient<R>) -> usize {
    core::ptr::from_ref(client.properties()).addr()
}

/// The answer to a query, from memory or from `prepare`.
pub(crate) fn prepared(
    query: &Query<'_>,
    prepare: impl FnOnce() -> Result<Prepared, ReduceError>,
) -> Result<Rc<Prepared>, ReduceError> {
    let (key, known) = MEMORY.with_borrow(|memory| {
        let key = memory.hasher.hash_one(query);
        let found = memory.reductions.get(&key).filter(|found| found.answers(query));
        (key, found.map(|found| Rc::clone(&found.prepared)))
    });
    if let Some(known) = known {
        return Ok(known);
    }
    let prepared = Rc::new(prepare()?);
    MEMORY.with_borrow_mut(|memory| {
        if memory.reductions.len() >= MOST_REDUCTIONS {
            memory.reductions.clear();
        }
        memory.reductions.insert(key, Remembered::new(query, Rc::clone(&prepared)));
    });
    Ok(prepared)
}

/// The device behind a client.
pub(crate) fn device<R: Runtime>(client: &ComputeClient<R>) -> Rc<Device> {
    let identity = identity(client);
    let known = MEMORY.with_borrow(|memory| {
        let found = memory.devices.iter().find(|(client, _)| *client == identity);
        found.map(|(_, device)| Rc::clone(device))
    });
    known.unwrap_or_else(|| {
        let device = Rc::new(device_of(client));
        MEMORY.with_borrow_mut(|memory| memory.devices.push((identity, Rc::clone(&device))));
        device
    })
}
