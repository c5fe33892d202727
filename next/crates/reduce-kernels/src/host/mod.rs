//! The path of one call, from the builder to the launch.
//!
//! [`request`] holds what the caller asked for as plain data, and resolves it to a problem.
//! [`prepared`] plans the problem and decides how the plan is launched ([`dispatch`]). [`cache`]
//! keeps the result under the request. [`call`] combines these: it checks the [`buffers`], takes
//! [`scratch`] memory, and passes both to [`launch`]. [`client`] reads what a device can do.
//!
//! [`settings`] holds what the process has set for each device: its profile, stored plans, and
//! recording.
//!
//! [`application`] is the same path for reductions whose results are applied to their elements, and
//! [`cross_entropy`] applies them to one element each.
//!
//! [`list`] is the path of a list of tensors, and [`list_application`] applies its results.
//!
//! [`merge`] merges the partial results of shards, and [`shards`] reduces shards on several
//! devices, which [`connections`] remembers.
//!
//! [`companion`] describes tensors beside the input to kernels: a second input, operands, results.
//!
//! Nothing here is generic over the operator, so Rust compiles it once for each runtime.

pub(crate) mod application;
pub(crate) mod buffers;
pub(crate) mod cache;
pub(crate) mod call;
pub(crate) mod client;
mod companion;
mod connections;
pub(crate) mod cross_entropy;
pub(crate) mod dispatch;
pub(crate) mod launch;
pub(crate) mod list;
pub(crate) mod list_application;
pub(crate) mod merge;
pub(crate) mod prepared;
pub(crate) mod request;
pub(crate) mod scratch;
pub(crate) mod settings;
pub(crate) mod shards;
