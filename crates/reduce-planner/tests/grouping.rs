//! Grouping of keys: the digits that passes sort by, and what a plan may not do.

use reduce_planner::{Combine, Device, Digit, GroupingPlan, Illegal, PlanError};

/// The digits of all passes are the bits of the largest key, once each and in order.
#[test]
fn passes_have_each_bit_once() {
    let plan = GroupingPlan::choose(1 << 20, 1000, 4, &Device::h200()).unwrap();
    for digit_bits in 1..=GroupingPlan::MOST_DIGIT_BITS {
        let mut plan = plan;
        plan.digit_bits = digit_bits;
        for groups in [0, 1, 2, 3, 255, 256, 1000, 100_000, (1 << 31) - 1, u32::MAX as usize - 1] {
            let mut next = 0;
            for Digit { shift, bits } in plan.passes(groups) {
                assert_eq!(shift, next);
                assert!((1..=digit_bits).contains(&bits));
                next += bits;
            }
            // The key that stands for all others is the number of groups.
            assert!(next >= 1 && groups >> next == 0 && (next == 1 || groups >> (next - 1) > 0));
        }
    }
}

/// Devices with planes of one size count in them, and others do with what shared memory holds.
#[test]
fn planes_count_where_they_can() {
    let device = Device::h200();
    let plan = GroupingPlan::choose(1 << 26, 100_000, 4, &device).unwrap();
    assert_eq!(plan.combine, Combine::Plane { lanes: 32 });
    let wide = GroupingPlan::choose(1 << 26, 100_000, 8, &device).unwrap();
    assert!(wide.shared_bytes(1 << 26, 8) <= device.shared_memory_bytes);
    let mut without = device.clone();
    without.plane_operations = false;
    let alone = GroupingPlan::choose(1 << 26, 100_000, 4, &without).unwrap();
    assert_eq!(alone.combine, Combine::Shared);
    let mut small = without;
    small.shared_memory_bytes = 16 << 10;
    let smaller = GroupingPlan::choose(1 << 26, 100_000, 4, &small).unwrap();
    assert!(smaller.units_per_cube < alone.units_per_cube);
    assert!(smaller.shared_bytes(1 << 26, 4) <= 16 << 10);
}

/// Every rule that a plan from elsewhere may break.
#[test]
fn hostile_plans_are_refused() {
    let device = Device::h200();
    let plan = GroupingPlan::choose(1 << 20, 1000, 4, &device).unwrap();
    let refused = |change: &dyn Fn(&mut GroupingPlan)| {
        let mut plan = plan;
        change(&mut plan);
        match plan.check(1 << 20, 1000, 4, &device).unwrap_err() {
            PlanError::Unfit { reason, .. } => reason,
            other => panic!("{other}"),
        }
    };
    assert!(matches!(refused(&|plan| plan.digit_bits = 0), Illegal::Grouping { .. }));
    assert!(matches!(refused(&|plan| plan.digit_bits = 13), Illegal::Grouping { .. }));
    assert!(matches!(refused(&|plan| plan.digit_bits = u32::MAX), Illegal::Grouping { .. }));
    assert!(matches!(refused(&|plan| plan.keys_per_unit = 0), Illegal::Grouping { .. }));
    assert!(matches!(refused(&|plan| plan.keys_per_unit = 33), Illegal::Grouping { .. }));
    assert!(matches!(refused(&|plan| plan.units_per_cube = 96), Illegal::NotPowerOfTwo { .. }));
    assert!(matches!(
        refused(&|plan| plan.combine = Combine::Plane { lanes: 16 }),
        Illegal::SegmentPlanes { .. }
    ));
    assert!(matches!(
        refused(&|plan| (plan.digit_bits, plan.units_per_cube) = (12, 1024)),
        Illegal::SharedMemory { .. }
    ));
    let mut narrow = Device::h200();
    narrow.wide_indices = false;
    plan.check(1 << 40, 1000, 4, &narrow).unwrap_err();
}
