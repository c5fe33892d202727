//! Selections from sharded tensors.

use reduce_planner::{TopKPlan, reduced_axes};

use super::{Cut, Shard, Sharded, reduction::check_second};
use crate::{
    error::{ReduceError, ShardsError},
    host::{
        shards::{
            ShardCall, Transport,
            selection::{run_selections, select_exchanged},
        },
        top_k::request::{StatedTopK, TopKRequest},
    },
    input::sealed::Layout,
    plan_in_use::PlanInUse,
    top_k::{Selected, TopK},
};

/// How a selection runs on several devices.
struct Selection<'a> {
    /// The selection from the whole.
    whole: StatedTopK,
    calls: Vec<ShardCall<'a, TopKRequest<'a>>>,
    /// Where each shard's positions begin, if slices are cut; otherwise nothing is exchanged.
    firsts: Option<Vec<u64>>,
    /// The axis along which the results are cut.
    axis: Option<usize>,
}

impl TopK<'_, Sharded> {
    /// Launches the selection on all devices, into new row-major tensors, and does not wait for
    /// them. The results are cut as the input is, or the same on all devices if slices are cut:
    /// each device then selects from what it has, and the `k` elements of each slice that a device
    /// gives go to all others.
    ///
    /// Slices may be cut along the first of their axes that has several indices, so that their
    /// parts follow each other in the order of positions.
    ///
    /// Otherwise it is as
    /// [`Reduction::run_sharded`](crate::Reduction::run_sharded).
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched on any device, such as
    /// [`ShardsError::CutInside`]: all shards are checked first. What can go wrong later is told
    /// there.
    pub fn run_sharded(self) -> Result<Selected<Sharded>, ReduceError> {
        self.run_over(Transport::Collectives)
    }

    /// Like [`run_sharded`](Self::run_sharded), for backends without collectives: the host reads
    /// what each device gives and writes it to all. It waits for all devices if slices are cut.
    ///
    /// # Errors
    ///
    /// Those of
    /// [`Reduction::run_sharded_through_host`](crate::Reduction::run_sharded_through_host).
    pub fn run_sharded_through_host(self) -> Result<Selected<Sharded>, ReduceError> {
        self.run_over(Transport::Host)
    }

    /// The plan of each shard, as [`plan`](Self::plan) gives it for one tensor.
    ///
    /// # Errors
    ///
    /// The errors of [`run_sharded`](Self::run_sharded), apart from those about collectives.
    pub fn plans(&self) -> Result<Vec<PlanInUse<TopKPlan>>, ReduceError> {
        self.selection()?.calls.iter().map(ShardCall::plan).collect()
    }

    fn run_over(self, transport: Transport) -> Result<Selected<Sharded>, ReduceError> {
        let Selection { whole, calls, firsts, axis } = self.selection()?;
        let results = match firsts {
            None => run_selections(&calls)?,
            Some(firsts) => {
                let len = whole.problem.slices().reduction_len();
                select_exchanged(calls, &self.in_parts(&whole), &firsts, len, transport)?
            }
        };
        let mut results = self.input.joined(axis, results.into_iter().map(Vec::from).collect())?;
        let mut next = || results.next().expect("there are values and positions");
        Ok(Selected { values: next(), positions: next() })
    }

    fn selection(&self) -> Result<Selection<'_>, ReduceError> {
        let whole = self.stated()?;
        let Self { input, table, .. } = *self;
        if let Some(table) = table {
            check_second(input, table)?;
        }
        let is_reduced = reduced_axes(input.shape.len(), self.axes().as_slice())?;
        let is_cut = input.cut.as_ref().filter(|cut| is_reduced[cut.axis]);
        let firsts = match is_cut.filter(|_| input.shards.len() > 1) {
            None => None,
            Some(cut) => Some(firsts(input, cut, &is_reduced)?),
        };
        let calls = input.shards.iter().enumerate().map(|(nth, shard)| {
            let Shard { client, device, tensor } = shard;
            let second = table.map(|table| &table.shards[nth].tensor);
            let (spec, table) = (tensor.spec()?, second.map(Layout::spec).transpose()?);
            let call = match firsts.is_some() {
                true => self.call_of_part(spec, table, whole.signature.results[1])?,
                false => self.call_of_input(spec, table)?,
            };
            Ok(ShardCall { client, device: device.to_id(), call, input: tensor, second })
        });
        let calls = calls.collect::<Result<_, ReduceError>>()?;
        // Results have the axes of the input that are left, which are those that `whole` has.
        let axis = input.cut.as_ref().filter(|cut| !is_reduced[cut.axis]).map(|cut| {
            let last = is_reduced.iter().rposition(|&reduced| reduced);
            let dropped = |&axis: &usize| is_reduced[axis] && Some(axis) != last;
            match whole.shape.len() == input.shape.len() {
                true => cut.axis,
                false => cut.axis - (0..cut.axis).filter(dropped).count(),
            }
        });
        Ok(Selection { whole, calls, firsts, axis })
    }
}

/// The position of the first element of each shard, whose slices or rows are cut.
///
/// # Errors
///
/// A cut after which parts do not follow each other in the order of positions.
pub(super) fn firsts(
    input: &Sharded,
    cut: &Cut,
    is_reduced: &[bool],
) -> Result<Vec<u64>, ReduceError> {
    let is_outer = |&axis: &usize| is_reduced[axis] && input.shape[axis] != 1;
    if let Some(outer) = (0..cut.axis).find(is_outer) {
        return Err(ShardsError::CutInside { axis: cut.axis, outer }.into());
    }
    let inner = (cut.axis + 1..input.shape.len()).filter(|&axis| is_reduced[axis]);
    let of_index: usize = inner.map(|axis| input.shape[axis]).product();
    Ok(cut.starts.iter().map(|&start| (start * of_index) as u64).collect())
}
