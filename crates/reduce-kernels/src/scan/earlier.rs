//! Whether partial results are of what comes before a scan.

use core::fmt::Debug;

use reduce_planner::{ShardSpec, reduced_axes};

use crate::{
    error::{PartialsError, ReduceError},
    host::scan::request::ScanRequest,
    operator::TypeRequest,
    partials::{AnyPartials, ShardRange, bits, refuse},
};

/// Checks that partial results fit before a scan, which is of the `shard` that the caller named.
/// Gives the shard that follows them, if they are of one.
///
/// # Errors
///
/// What differs between the two ([`PartialsError::Scan`]); positions without shards; and types that
/// do not hold what all elements may give.
pub(super) fn shard_behind(
    partials: &AnyPartials<'_>,
    task: &ScanRequest<'_>,
    shard: Option<ShardSpec>,
    parameters: &[f64],
) -> Result<Option<ShardSpec>, ReduceError> {
    fn differ<T>(
        what: &'static str,
        partials: impl Debug,
        scan: impl Debug,
    ) -> Result<T, ReduceError> {
        let (partials, scan) = (format!("{partials:?}"), format!("{scan:?}"));
        refuse(PartialsError::Scan { what, partials, scan })
    }

    let (description, reduce) = (partials.description, &task.reduce);
    let (operator, shape) = (reduce.operator.0, &reduce.shape[..]);
    if description.operator != operator.name() {
        return differ("operator", &description.operator, operator.name());
    }
    if bits(partials.parameters) != bits(parameters) {
        return differ("parameters", partials.parameters, parameters);
    }
    let is_scanned = reduced_axes(shape.len(), reduce.axes.as_deref())?;
    let kept = |extents: &[usize]| -> Vec<usize> {
        let kept = extents.iter().zip(&is_scanned).filter(|&(_, scanned)| !scanned);
        kept.map(|(&extent, _)| extent).collect()
    };
    let rows = kept(shape);
    // Reduced axes may have stayed, with one index.
    let ones =
        shape.iter().zip(&is_scanned).map(|(&extent, &scanned)| if scanned { 1 } else { extent });
    if description.shape != rows && !ones.eq(description.shape.iter().copied()) {
        return differ("rows", &description.shape, rows);
    }
    let Some(range) = description.range else {
        if shard.is_some() {
            return differ("shard", description.range, shard);
        }
        if operator.positional {
            let operator = operator.name();
            return refuse(PartialsError::Positional { operator });
        }
        let (request, signature, _) = reduce.typed(&is_scanned)?;
        if signature != *partials.signature {
            return differ("types", partials.signature, signature);
        }
        let count = request.reduction_len.saturating_add(description.count);
        let all = TypeRequest { reduction_len: count, ..request };
        return match (operator.types)(&all) == Some(signature) {
            true => Ok(None),
            false => refuse(PartialsError::TooMany { count }),
        };
    };
    let ShardRange { axis, start, end, of } = range;
    let extent = shape.get(axis).copied().unwrap_or(0);
    let begins = if task.reverse { start.checked_sub(extent) } else { Some(end) };
    let follows = begins.map(|start| ShardSpec { axis, start, of });
    let named = shard.or(follows);
    let Some(follows) = follows.filter(|_| named == follows) else {
        return differ("shard", range, shard);
    };
    let mut reduce = reduce.clone();
    reduce.become_shard(follows);
    let (_, signature, _) = reduce.typed(&is_scanned)?;
    match signature == *partials.signature {
        true => Ok(Some(follows)),
        false => differ("types", partials.signature, signature),
    }
}
