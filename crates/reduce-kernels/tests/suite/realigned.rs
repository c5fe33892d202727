//! Rows along the reduction whose vectors are realigned: wherever a row starts, each element goes
//! into its result once, at its position, and the bits do not depend on where it starts.

use reduce_kernels::{
    ArgMax, ElementType, MeanVar, NormL2, Sum,
    cubecl::{self, prelude::*, std::tensor::TensorHandle},
    operator::{A, In, One, Operator, Out, Parameters, Position, TypeRule, Value, rules},
    operators::{LogSumExp, Max, MinWithIndex, Var},
    planner::{Access, Combine, Device, Direction, Merge, Plan, Problem, Schedule, span},
    plans::Numerics,
    reduce,
};

use crate::{
    case::Case,
    operators::Checked,
    run::{Asked, capable_device, check, problem_of, results_of, tensor},
};

/// Defines an operator without block functions, which adds up the positions of its elements, each
/// times the element. A large one takes all loads in one loop.
macro_rules! places {
    ($name:ident, $text:literal, large $large:literal) => {
        #[derive(Clone, Copy, Debug)]
        struct $name;

        #[cube]
        impl Operator for $name {
            type Inputs = One;
            type Fields = One;
            type Results = One;

            const NAME: &'static str = $text;
            const DEFINED_ON_EMPTY: bool = true;
            const TYPES: TypeRule = rules::floating;
            const POSITIONAL: bool = true;
            const PAIRWISE: bool = true;
            const TRANSCENDENTAL: bool = $large;

            fn identity<N: Size>() -> Value<A, N> {
                Value::new(Vector::from_int(0))
            }

            fn push<N: Size>(
                accumulator: Value<A, N>,
                value: Vector<In, N>,
                position: Position,
                _parameters: &Parameters,
            ) -> Value<A, N> {
                let weight = position.components::<A, N>() + Vector::from_int(1);
                Value::new(accumulator.value + Vector::cast_from(value) * weight)
            }

            fn merge<N: Size>(
                left: Value<A, N>,
                right: Value<A, N>,
                _parameters: &Parameters,
            ) -> Value<A, N> {
                Value::new(left.value + right.value)
            }

            fn finish<N: Size>(
                accumulator: Value<A, N>,
                _count: usize,
                _parameters: &Parameters,
            ) -> Value<Out, N> {
                Value::new(Vector::cast_from(accumulator.value))
            }
        }
    };
}

places!(Places, "places", large false);
places!(PlacesInOneLoop, "places_in_one_loop", large true);

/// Elements of the widest vectors of a type.
fn vector_of(element: ElementType, device: &Device) -> usize {
    (device.load_bytes / element.bytes()).min(device.max_vector)
}

/// Plans of all schedules that fit a problem, with rows realigned.
fn plans(problem: &Problem, device: &Device) -> Vec<Plan> {
    let vector = vector_of(problem.input(), device);
    let access = Access::new(Direction::Along).with_vector(vector).with_realigned(true);
    let combine = Combine::Shared;
    let split = |units_per_output: u32, outputs_per_cube: u32, merge: Merge| Schedule::Split {
        cubes_per_output: 3,
        units_per_output,
        outputs_per_cube,
        combine,
        merge,
    };
    let second = Merge::SecondLaunch { units_per_output: 2, outputs_per_cube: 8 };
    let all = [
        (2, Schedule::Unit { units_per_cube: 32 }),
        (1, Schedule::Plane { lanes_per_output: 4, units_per_cube: 32 }),
        (4, Schedule::Cube { units_per_output: 8, outputs_per_cube: 4, combine }),
        (2, split(4, 4, second)),
        (1, split(32, 1, Merge::LastCube)),
    ];
    let all = all.map(|(loads, schedule)| Plan::new(access.with_loads_in_flight(loads), schedule));
    all.into_iter().filter(|plan| plan.check(problem, device).is_ok()).collect()
}

/// A pitch at which rows of a length start at all distances from a boundary of vectors, and have
/// gaps.
fn odd_pitch(len: usize) -> usize {
    (len + 1) | 1
}

/// Lengths around those of one and two vectors of four elements, and ones that give each unit no
/// load, one, and several.
const LENGTHS: [usize; 12] = [7, 8, 9, 10, 11, 12, 13, 31, 33, 130, 601, 4097];

/// Each element is pushed once, with its position, by operators that take elements one by one. The
/// gaps between rows hold NaN, which is loaded and must not count. Chains are ended within a unit's
/// loads and within the ends of its rows.
pub(crate) fn positions(client: &Client) {
    fn check<O: Operator<Inputs = One, Results = One>>(client: &Client, operator: O) {
        let device = capable_device(client);
        let rows = LENGTHS.map(|len| Case::pitched(&[9, len], odd_pitch(len), &[1]));
        let several = [
            // One outer reduced dimension, and two.
            Case::pitched(&[5, 6, 9], 11, &[0, 2]),
            Case::pitched(&[5, 6, 34], 35, &[0, 2]),
            Case::pitched(&[3, 4, 2, 14], 17, &[0, 2, 3]),
            // More rows and more ends of rows than one chain of a unit takes.
            Case::pitched(&[1100, 2, 9], 9, &[0, 2]),
        ];
        let mut runs = 0;
        for case in rows.into_iter().chain(several) {
            let Case { shape, strides, axes } = &case;
            // Positions of the elements that are 1 add up to what f32 holds exactly.
            let every = case.reduction_len().div_ceil(400).max(2);
            let is_one = |output: usize, position: usize| (position + output).is_multiple_of(every);
            let kept = case.kept_shape();
            let outputs: usize = kept.iter().product();
            let mut data = vec![f32::NAN; span(shape, strides).unwrap()];
            let mut expected = vec![0.0f64; outputs];
            for index in 0..shape.iter().product::<usize>() {
                let (mut rest, mut at, mut output, mut position) = (index, 0, 0, 0);
                let (mut of_output, mut of_position) = (1, 1);
                for axis in (0..shape.len()).rev() {
                    let coordinate = rest % shape[axis];
                    rest /= shape[axis];
                    at += coordinate * strides[axis];
                    let (number, each) = match axes.contains(&axis) {
                        true => (&mut position, &mut of_position),
                        false => (&mut output, &mut of_output),
                    };
                    *number += coordinate * *each;
                    *each *= shape[axis];
                }
                let one = is_one(output, position);
                data[at] = f32::from(u8::from(one));
                expected[output] += if one { (position + 1) as f64 } else { 0.0 };
            }
            let x = tensor(client, &data, shape, strides);
            let problem = reduce(operator, &x).over(axes.as_slice()).problem().unwrap();
            let plans = plans(&problem, &device);
            assert!(plans.len() >= 4, "{problem}");
            for plan in plans {
                let found: Vec<f32> = results_of(client, operator, &x, axes, Some(plan));
                let found: Vec<f64> = found.into_iter().map(f64::from).collect();
                assert_eq!(found, expected, "{} of {case:?}, {plan}", O::NAME);
                runs += 1;
            }
        }
        println!("{}: {runs} runs", client.name());
    }
    check(client, Places);
    check(client, PlacesInOneLoop);
}

/// Operators of all families and types of all widths have right results, for rows of all lengths
/// that start anywhere.
pub(crate) fn lengths(client: &Client) {
    fn all<O: Checked>(client: &Client, element: ElementType, lengths: &[usize]) {
        let device = capable_device(client);
        if !device.has(element) {
            println!("{}: not run, the device has no {element}", client.name());
            return;
        }
        for (nth, &len) in lengths.iter().enumerate() {
            let rows = Case::pitched(&[17, len], odd_pitch(len), &[1]);
            let dims = Case::pitched(&[3, 4, len], odd_pitch(len), &[0, 2]);
            for case in [rows, dims] {
                let problem = problem_of::<O>(client, &case, element, Asked::default()).unwrap();
                let plans = plans(&problem, &device);
                // The schedules take turns.
                let vector = vector_of(element, &device);
                assert_eq!(plans.is_empty(), len < 2 * vector - 1, "{problem}");
                if let Some(&plan) = plans.get(nth % plans.len().max(1)) {
                    check::<O>(client, &case, element, Some(plan), nth as u64).unwrap();
                }
            }
        }
    }
    let f32 = ElementType::F32;
    all::<Sum>(client, f32, &LENGTHS);
    all::<ArgMax>(client, f32, &LENGTHS);
    all::<MinWithIndex>(client, f32, &LENGTHS);
    all::<MeanVar>(client, f32, &LENGTHS);
    all::<LogSumExp>(client, f32, &LENGTHS);
    all::<NormL2>(client, f32, &LENGTHS);
    let device = capable_device(client);
    let of_width = |element: ElementType| -> Vec<usize> {
        let vector = vector_of(element, &device);
        let around = [2 * vector - 1, 2 * vector, 2 * vector + 1, 3 * vector - 1, 3 * vector];
        around.into_iter().chain([2 * vector - 2, 131, 4097]).collect()
    };
    use ElementType::*;
    for element in [F64, F16, BF16, I8, U8, I16, U16, I32, I64] {
        all::<Max>(client, element, &of_width(element));
        all::<Sum>(client, element, &of_width(element));
    }
    for element in [F64, F16, BF16] {
        all::<Var>(client, element, &of_width(element));
    }
}

/// The bits of a row do not depend on where it starts, on its number, nor on how many others lie
/// beside it, whatever their gaps hold: in realigned rows, and for exact operators in peeled ones.
pub(crate) fn bits(client: &Client) {
    fn same<O: Checked>(client: &Client, len: usize, peeled: bool) {
        let device = capable_device(client);
        let row: Vec<f32> = (0..len).map(|i| ((i * 37) % 101) as f32 * 0.37 - 15.1).collect();
        let bits_of = |rows: usize, pitch: usize, gap: f32| {
            let mut data = vec![gap; (rows - 1) * pitch + len];
            (0..rows).for_each(|nth| data[nth * pitch..][..len].copy_from_slice(&row));
            let x: TensorHandle = tensor(client, &data, &[rows, len], &[pitch, 1]);
            let reduction = reduce(O::operator(), &x)
                .over(1)
                .numerics(Numerics::BatchInvariant)
                .plan_for(&device);
            let plan = reduction.plan(client).unwrap().plan;
            let Access { vector, peeled: is_peeled, realigned, .. } = plan.access;
            assert_eq!((vector, is_peeled, realigned), (4, peeled, !peeled), "{plan}");
            let found: Vec<f32> = results_of(client, O::operator(), &x, &[1], Some(plan));
            let known = found[0].to_bits();
            assert!(found.iter().all(|found| found.to_bits() == known), "{} {found:?}", O::NAME);
            known
        };
        let alone = bits_of(1, len, 0.0);
        for (rows, pitch, gap) in [(9, len, 0.0), (9, odd_pitch(len), f32::NAN), (130, len, 0.0)] {
            let bits = bits_of(rows, pitch, gap);
            assert_eq!(bits, alone, "{} of {rows} rows of {len}", O::NAME);
        }
    }
    for len in [33, 777, 4099, 9999, 70_001] {
        same::<Sum>(client, len, false);
        same::<LogSumExp>(client, len, false);
        same::<NormL2>(client, len, false);
        same::<Max>(client, len, true);
    }
}
