//! The path of one call, from the builder to the launch.
//!
//! [`call`] is the path, which all kinds of task share: a task is stated as a problem, the problem
//! gets a plan, the plan becomes launches, and [`cache`] keeps them under the task. A kind of task
//! is a folder here: [`reduce`], [`apply`], [`list`], [`scan`], [`segments`] and [`top_k`]. Each
//! holds its request as plain data, says how the request is stated and launched, and launches it
//! with [`bound`] buffers and [`scratch`] memory. A task that launches another one holds it as it
//! was prepared.
//!
//! [`settings`] holds what the process has set for each device: its profile, stored plans, and
//! recording. [`client`] reads what a device can do, and [`types`] says which types it computes
//! with. [`arguments`] and [`companion`] describe problems and tensors to kernels.
//!
//! [`masks`] writes masks, [`nibbles`] packs integers of 4 bits, and [`compact`] writes what a scan
//! has counted. None of them needs a plan: [`elementwise`] says how their units are launched.
//!
//! [`shards`] reduces shards on several devices.
//!
//! Nothing here is generic over the operator, so Rust compiles it once.

pub(crate) mod apply;
pub(crate) mod arguments;
pub(crate) mod bound;
pub(crate) mod cache;
pub(crate) mod call;
pub(crate) mod client;
pub(crate) mod compact;
mod companion;
mod elementwise;
pub(crate) mod kept;
pub(crate) mod launched;
pub(crate) mod list;
pub(crate) mod masks;
pub(crate) mod nibbles;
pub(crate) mod reduce;
pub(crate) mod scan;
pub(crate) mod scratch;
pub(crate) mod segments;
pub(crate) mod settings;
pub(crate) mod shards;
pub(crate) mod top_k;
pub(crate) mod types;
