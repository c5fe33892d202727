//! Groups keys in any order: launches the passes of a stable sort.

use cubecl::{prelude::*, server::Handle, std::tensor::TensorHandle};
use reduce_planner::{Device, Digit, ElementType, GroupingPlan, InputSpec, Role, check_index_span};

use super::{
    integers::IntegersSpec,
    keys::{check_keys, offsets_of_sorted_keys},
    lengths::Scan,
};
use crate::{
    element::storage_type,
    error::{Reason, ReduceError},
    host::{
        arguments,
        bound::{Bound, output_bytes},
        types::check_element,
    },
    kernels::segments::{DigitSpec, KeyNumbersLaunch, count_digits, move_keys},
};

/// What keys carried, in the order of groups, and where groups begin among it.
pub(crate) struct Grouped {
    pub(crate) carried: TensorHandle,
    pub(crate) offsets: TensorHandle,
}

/// The plan for keys: a `given` one that is checked, or one that is chosen.
pub(crate) fn plan_of(
    keys: &IntegersSpec,
    groups: usize,
    carried: usize,
    device: &Device,
    given: Option<GroupingPlan>,
) -> Result<GroupingPlan, ReduceError> {
    check_keys(keys.element, groups)?;
    // One number more stands for keys of no group.
    if u32::try_from(groups).is_ok_and(|groups| groups < u32::MAX) {
        check_element(device, keys.element)?;
        match given {
            Some(plan) => plan.check(keys.count, groups, carried, device).map(|()| plan),
            None => GroupingPlan::choose(keys.count, groups, carried, device),
        }
        .map_err(Into::into)
    } else {
        Err(Reason::Groups { groups }.into())
    }
}

/// What keys carry to where those of their group lie.
#[derive(Clone, Copy)]
pub(crate) enum Carried<'a> {
    /// The indices of their elements.
    Indices,
    /// The elements themselves, which lie side by side and have 2, 4 or 8 bytes.
    Elements(&'a TensorHandle, ElementType),
}

/// Groups keys by a plan, a `given` one or one that is chosen.
pub(crate) fn group(
    client: &Client,
    device: &Device,
    keys: &TensorHandle,
    groups: usize,
    given: Option<GroupingPlan>,
    carried: Carried<'_>,
) -> Result<Grouped, ReduceError> {
    let spec = IntegersSpec::of_keys(keys)?;
    let (span, count) = (spec.span(Role::Keys)?, spec.count);
    let index = index_type(count);
    let (bits, element) = match carried {
        Carried::Indices => (index, index),
        Carried::Elements(_, element) => (bits_of(element).unwrap_or(index), element),
    };
    let plan = plan_of(&spec, groups, bits.bytes(), device, given)?;
    let most = span.max(plan.counts(count)).max(groups + 1);
    let wide = check_index_span(most as u64, device)?;
    let address = if wide { AddressType::U64 } else { AddressType::U32 };
    let bound = Bound::check_input(client, Role::Keys, &keys.handle, span, spec.element)?;
    let values = match carried {
        Carried::Indices => None,
        Carried::Elements(values, _) => {
            Some(Bound::check_input(client, Role::Input, &values.handle, count, bits)?)
        }
    };
    check_element(device, bits)?;
    check_element(device, index)?;
    for (len, element) in [(count, bits), (plan.counts(count).saturating_add(1), index)] {
        output_bytes(client, &InputSpec { element, shape: &[len], strides: &[1], alignment: 1 })?;
    }
    let passes = Passes { client, device, plan, address, sums: index, bits, count, groups };
    let (stride, values) = (spec.stride, values.as_ref());
    macro_rules! run {
        ($key:ty, $sum:ty, $bits:ty, $staged:ty) => {
            passes.run::<$key, $sum, $bits, $staged>(&bound, stride, values)
        };
        ($key:ty) => {
            match (index, bits) {
                (ElementType::U32, ElementType::U16) => run!($key, u32, u16, u32),
                (ElementType::U32, ElementType::U32) => run!($key, u32, u32, u32),
                (ElementType::U32, _) => run!($key, u32, u64, u64),
                (_, ElementType::U16) => run!($key, u64, u16, u32),
                (_, ElementType::U32) => run!($key, u64, u32, u32),
                _ => run!($key, u64, u64, u64),
            }
        };
    }
    let Sorted { keys, carried } = match spec.element {
        _ if count == 0 => {
            Sorted { keys: client.empty(size_of::<u32>()), carried: client.empty(bits.bytes()) }
        }
        ElementType::I32 => run!(i32)?,
        ElementType::U32 => run!(u32)?,
        ElementType::I64 => run!(i64)?,
        _ => run!(u64)?,
    };
    let tensor =
        |handle, element| TensorHandle::new_contiguous(vec![count], handle, storage_type(element));
    let offsets = offsets_of_sorted_keys(client, &tensor(keys, ElementType::U32), groups)?;
    Ok(Grouped { carried: tensor(carried, element), offsets })
}

/// The type of indices of so many keys, and of sums of their counts.
pub(crate) fn index_type(count: usize) -> ElementType {
    if u32::try_from(count).is_ok() { ElementType::U32 } else { ElementType::U64 }
}

/// The type as which elements are carried, if keys can carry them.
pub(crate) fn bits_of(element: ElementType) -> Option<ElementType> {
    match element.bytes() {
        2 => Some(ElementType::U16),
        4 => Some(ElementType::U32),
        8 => Some(ElementType::U64),
        _ => None,
    }
}

/// Keys in the order of groups, and what they carried.
struct Sorted {
    keys: Handle,
    carried: Handle,
}

/// What all passes have in common.
struct Passes<'a> {
    client: &'a Client,
    device: &'a Device,
    plan: GroupingPlan,
    address: AddressType,
    /// Type of sums of counts.
    sums: ElementType,
    /// Type of what keys carry.
    bits: ElementType,
    count: usize,
    groups: usize,
}

impl Passes<'_> {
    /// Sorts keys, of which there is one at least. They carry `values`, or their positions.
    fn run<K: Numeric, I: Int, P: Int, S: Int>(
        &self,
        keys: &Bound<'_>,
        stride: usize,
        values: Option<&Bound<'_>>,
    ) -> Result<Sorted, ReduceError> {
        let mut digits = self.plan.passes(self.groups);
        let spec = |digit: Digit| DigitSpec {
            units: self.plan.units_per_cube,
            keys_per_unit: self.plan.keys_per_unit,
            crew: self.plan.crew(),
            shift: digit.shift,
            bits: digit.bits,
        };
        let first = spec(digits.next().expect("keys have a bit at least"));
        let mut sorted = self.pass::<K, I, P, S>(keys, values, stride, first)?;
        for digit in digits {
            let keys = Bound::own(sorted.keys.binding(), self.count, size_of::<u32>());
            let carried = Bound::own(sorted.carried.binding(), self.count, self.bits.bytes());
            sorted = self.pass::<u32, I, P, S>(&keys, Some(&carried), 1, spec(digit))?;
        }
        Ok(sorted)
    }

    /// Sorts by one digit. Keys carry their positions if nothing else is `carried`.
    fn pass<K: Numeric, I: Int, P: Int, S: Int>(
        &self,
        keys: &Bound<'_>,
        carried: Option<&Bound<'_>>,
        stride: usize,
        spec: DigitSpec,
    ) -> Result<Sorted, ReduceError> {
        let Self { client, device, plan, address, sums, bits, count, groups } = *self;
        let tiles = plan.tiles(count);
        let grid = device.grid(tiles as u64).ok_or(Reason::Groups { groups })?;
        let units = CubeDim::new_1d(spec.units);
        let counted = tiles << spec.bits;
        let numbers = || KeyNumbersLaunch::new(count, stride, groups as u32, tiles);
        let counts = client.empty(counted * sums.bytes());
        let counts = Bound::own(counts.binding(), counted, sums.bytes());
        // SAFETY: the buffer of keys holds `count` of them, `stride` elements apart, that of
        // counts one for each digit and tile, and the kernel takes no others.
        unsafe {
            count_digits::launch_unchecked::<K, I>(
                client,
                arguments::count(grid),
                units,
                address,
                keys.elements(),
                counts.elements(),
                numbers(),
                spec,
            );
        }
        let begins = Scan::new(client, device, sums, address).run::<I>(&counts, counted, 1)?;
        let begins = Bound::own(begins.binding(), counted + 1, sums.bytes());
        let sorted = Sorted {
            keys: client.empty(count * size_of::<u32>()),
            carried: client.empty(count * bits.bytes()),
        };
        let moved_keys = Bound::own(sorted.keys.clone().binding(), count, size_of::<u32>());
        let moved = Bound::own(sorted.carried.clone().binding(), count, bits.bytes());
        // SAFETY: as above, and what is carried has an element for each key. The counts of both
        // kernels are of the same keys, so that each key has a place of its own among `count`.
        // The sums stand for what is carried where positions are, and nothing is read of them.
        unsafe {
            move_keys::launch_unchecked::<K, I, P, S>(
                client,
                arguments::count(grid),
                units,
                address,
                keys.elements(),
                carried.unwrap_or(&begins).elements(),
                begins.elements(),
                moved_keys.elements(),
                moved.elements(),
                numbers(),
                carried.is_none(),
                spec,
            );
        }
        Ok(sorted)
    }
}
