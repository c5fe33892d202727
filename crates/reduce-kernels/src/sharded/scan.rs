//! Scans of sharded tensors.

use reduce_planner::{ScanPlan, reduced_axes};

use super::{Sharded, selection::firsts};
use crate::{
    error::ReduceError,
    host::{
        call::Call,
        reduce::request::{ReduceRequest, Wanted},
        scan::request::ScanRequest,
        shards::{
            ShardCall, Transport,
            scan::{BeforeShard, run_scans, scan_exchanged},
        },
    },
    operator::{Arity, One, Operator},
    plan_in_use::PlanInUse,
    reduction::Outputs,
    scan::Scan,
};

/// How a scan runs on several devices.
struct ScanOfShards<'a> {
    scans: Vec<ShardCall<'a, ScanRequest<'a>>>,
    /// `None` if no row is cut: then nothing is exchanged.
    cut: Option<CutRows<'a>>,
}

/// What scans of cut rows need besides.
struct CutRows<'a> {
    /// The reductions to what comes behind each shard.
    reductions: Vec<ShardCall<'a, ReduceRequest<'a>>>,
    before: Vec<BeforeShard>,
    rows: usize,
}

impl<O: Operator<Inputs = One>> Scan<'_, O, Sharded> {
    /// Launches the scan on all devices, into new row-major tensors that are cut as the input is,
    /// and does not wait for them. If the rows are cut, each device reduces what it has, the
    /// devices exchange one accumulator for each row, and each scans its shard behind those before
    /// it, which reads the shard a second time.
    ///
    /// Rows may be cut along the first of their axes that has several indices. Otherwise it is as
    /// [`Reduction::run_sharded`](crate::Reduction::run_sharded), and a plan of
    /// [`with_plan`](Self::with_plan) is that of every shard.
    ///
    /// ```no_run
    /// use reduce_kernels::{ReduceError, Sum, scan::scan, sharded::Sharded};
    ///
    /// # fn example(x: &Sharded) -> Result<(), ReduceError> {
    /// let running: Sharded = scan(Sum, x).over(1).run_sharded()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched on any device, such as
    /// [`ShardsError::CutInside`](super::ShardsError::CutInside): all shards are checked first. What
    /// can go wrong later is told there.
    pub fn run_sharded(self) -> Result<Outputs<O, Sharded>, ReduceError> {
        self.run_over(Transport::Collectives)
    }

    /// Like [`run_sharded`](Self::run_sharded), for backends without collectives: the host reads
    /// partial results from each device and writes them to the others. It waits for all devices if
    /// rows are cut.
    ///
    /// ```no_run
    /// use reduce_kernels::{Mean, ReduceError, scan::scan, sharded::Sharded};
    ///
    /// # fn example(x: &Sharded) -> Result<(), ReduceError> {
    /// let running: Sharded = scan(Mean, x).over(1).run_sharded_through_host()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of
    /// [`Reduction::run_sharded_through_host`](crate::Reduction::run_sharded_through_host).
    pub fn run_sharded_through_host(self) -> Result<Outputs<O, Sharded>, ReduceError> {
        self.run_over(Transport::Host)
    }

    /// The plan of each shard, as [`plan`](Self::plan) gives it for one tensor.
    ///
    /// ```no_run
    /// use reduce_kernels::{ReduceError, Sum, scan::scan, sharded::Sharded};
    ///
    /// # fn example(x: &Sharded) -> Result<(), ReduceError> {
    /// for in_use in scan(Sum, x).over(1).plans()? {
    ///     println!("{}", in_use.plan);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`run_sharded`](Self::run_sharded), apart from those about collectives.
    pub fn plans(&self) -> Result<Vec<PlanInUse<ScanPlan>>, ReduceError> {
        self.of_shards()?.scans.iter().map(ShardCall::plan).collect()
    }

    fn run_over(self, transport: Transport) -> Result<Outputs<O, Sharded>, ReduceError> {
        let ScanOfShards { scans, cut } = self.of_shards()?;
        let results = match cut {
            None => run_scans(&scans)?,
            Some(CutRows { reductions, before, rows }) => {
                scan_exchanged(reductions, &scans, &before, rows, transport)?
            }
        };
        let mut results = self.reduction.input.joined(self.reduction.input.axis(), results)?;
        Ok(O::Results::each(|_| results.next().expect("there is an output for each result")))
    }

    fn of_shards(&self) -> Result<ScanOfShards<'_>, ReduceError> {
        let input = self.reduction.input;
        let whole = self.call(None)?.stated()?;
        let is_scanned = reduced_axes(input.shape.len(), self.reduction.options.axes.as_slice())?;
        let is_cut = input.cut.as_ref().filter(|cut| is_scanned[cut.axis]);
        let firsts = match is_cut.filter(|_| input.shards.len() > 1) {
            None => None,
            Some(cut) => Some(firsts(input, cut, &is_scanned)?),
        };
        let reductions = self.reduction.calls(firsts.is_some())?;
        let shards = reductions.len();
        let Self { exclusive, reverse, plan, .. } = *self;
        let scans = reductions.iter().map(|shard| {
            let reduce = ReduceRequest { wanted: Wanted::Results, ..shard.call.task.clone() };
            // Nothing comes before the first shard, but one kernel does for all.
            let earlier = firsts.as_ref().map(|_| shards);
            let task = ScanRequest { reduce, exclusive, reverse, earlier, output: None, plan };
            let &Call { device, plans, ref parameters, ref apply_parameters, .. } = &shard.call;
            let (parameters, apply_parameters) = (parameters.clone(), apply_parameters.clone());
            let call = Call { task, device, plans, parameters, apply_parameters };
            let &ShardCall { client, device, input, second, .. } = shard;
            ShardCall { client, device, call, input, second }
        });
        let scans = scans.collect();
        let cut = firsts.map(|firsts| {
            let len = whole.problem.len();
            let before = (0..shards).map(|nth| match reverse {
                false => BeforeShard { shards: 0..nth, elements: firsts[nth] as usize },
                true => {
                    let end = firsts.get(nth + 1).map_or(len, |&end| end as usize);
                    BeforeShard { shards: nth + 1..shards, elements: len - end }
                }
            });
            CutRows {
                before: before.collect(),
                rows: whole.problem.problem().outputs(),
                reductions,
            }
        });
        Ok(ScanOfShards { scans, cut })
    }
}
