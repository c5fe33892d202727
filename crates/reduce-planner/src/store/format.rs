//! The text of a store: its header, and the plans under the lines of their problems.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, MapAccess, Visitor},
};

use super::{DeviceSignature, StoreError, TunedPlan};
use crate::{plan::Plan, planned::AnyPlan};

/// The format that this planner reads and writes. Another section, or another line of a problem,
/// makes another format. Format 1 had plans of reductions alone.
const FORMAT: u64 = 2;

/// Version of this crate. Kernels change with it, and so does what is fastest.
const PLANNER: &str = env!("CARGO_PKG_VERSION");

/// Most bytes of a store: some hundred thousand plans.
pub(super) const MOST_BYTES: u64 = 256 << 20;

/// The plans by the lines of their problems, in the order of these lines.
pub(super) type Plans = BTreeMap<String, TunedPlan<AnyPlan>>;

/// The field of every format.
#[derive(Deserialize)]
struct AnyFormat {
    format: u64,
}

/// The versions in a store of this format.
#[derive(Deserialize)]
struct Versions {
    planner: String,
    plan_version: u32,
}

/// A store as a file has it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Store {
    format: u64,
    planner: String,
    plan_version: u32,
    device: DeviceSignature,
    #[serde(deserialize_with = "unique")]
    plans: Plans,
}

/// The text of a store with these plans.
///
/// # Errors
///
/// The text is longer than a store may be.
pub(super) fn write(device: &DeviceSignature, plans: &Plans) -> Result<String, StoreError> {
    let store = Store {
        format: FORMAT,
        planner: PLANNER.to_owned(),
        plan_version: Plan::VERSION,
        device: device.clone(),
        plans: plans.clone(),
    };
    let mut text = serde_json::to_string_pretty(&store)?;
    text.push('\n');
    check_length(&text)?;
    Ok(text)
}

/// The plans of a store that was written on a device like this.
///
/// # Errors
///
/// The text is damaged, or another version or another device wrote it. Versions come first: a store
/// of another format is not damaged.
pub(super) fn parse(text: &str, device: &DeviceSignature) -> Result<Plans, StoreError> {
    check_length(text)?;
    let AnyFormat { format } = serde_json::from_str(text)?;
    if format != FORMAT {
        return Err(StoreError::Format { found: format, expected: FORMAT });
    }
    let Versions { planner, plan_version } = serde_json::from_str(text)?;
    if planner != PLANNER {
        return Err(StoreError::Planner { found: planner, expected: PLANNER });
    }
    check_plan_version(plan_version, Plan::VERSION)?;
    let Store { device: stored, plans, .. } = serde_json::from_str(text)?;
    device.check(&stored)?;
    for TunedPlan { plan, .. } in plans.values() {
        check_plan_version(plan.version(), plan.expected_version())?;
    }
    Ok(plans)
}

fn check_length(text: &str) -> Result<(), StoreError> {
    if text.len() as u64 > MOST_BYTES {
        return Err(StoreError::TooLong { max: MOST_BYTES });
    }
    Ok(())
}

fn check_plan_version(found: u32, expected: u32) -> Result<(), StoreError> {
    if found != expected {
        return Err(StoreError::PlanVersion { found, expected });
    }
    Ok(())
}

/// Reads plans, of which no two are for one problem. A file that was merged by hand may have such.
fn unique<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Plans, D::Error> {
    struct Unique;

    impl<'de> Visitor<'de> for Unique {
        type Value = Plans;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("plans by problem")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Plans, A::Error> {
            let mut plans = Plans::new();
            while let Some((problem, tuned)) = map.next_entry::<String, TunedPlan<AnyPlan>>()? {
                if plans.contains_key(&problem) {
                    return Err(A::Error::custom(format_args!("two plans for `{problem}`")));
                }
                plans.insert(problem, tuned);
            }
            Ok(plans)
        }
    }

    deserializer.deserialize_map(Unique)
}
