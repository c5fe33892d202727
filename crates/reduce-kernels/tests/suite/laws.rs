//! The laws of operators, checked on the device.

use reduce_kernels::{
    ElementType, Max, Mean, Min, Operator, Prod, Sum,
    cubecl::{self, ir::StorageType, prelude::*},
    operator::{FieldsOf, Position, Types},
    storage_type,
};

use crate::{
    run::{client, read, tensor},
    user_operator::{FirstMaximum, PeakToPeak, Variance},
};

/// Results per triple of elements.
const FORMS: usize = 6;

#[cube]
fn one<O: Operator, T: Types>(
    value: T::In,
    #[comptime] nth: usize,
) -> FieldsOf<O::Fields, T, Const<1>> {
    let position = Position { start: nth.runtime(), step: 0usize };
    O::push::<T, Const<1>>(O::identity::<T, Const<1>>(), Vector::cast_from(value), position)
}

/// The same three elements, reduced in every form that the laws call equal.
#[cube(launch)]
fn forms<O: Operator, In: Float, A: Float, B: Float, C: Float, Out: Float>(
    input: &Array<In>,
    output: &mut Array<Out>,
    #[define(In, A, B, C, Out)] _types: [StorageType; 5],
) {
    let at = 3 * ABSOLUTE_POS;
    let x = one::<O, (In, A, B, C, Out)>(input[at], 0usize);
    let y = one::<O, (In, A, B, C, Out)>(input[at + 1], 1usize);
    let z = one::<O, (In, A, B, C, Out)>(input[at + 2], 2usize);
    let identity = O::identity::<(In, A, B, C, Out), Const<1>>();

    let to = comptime![FORMS] * ABSOLUTE_POS;
    output[to] = O::finish::<(In, A, B, C, Out), Const<1>>(x, 1usize)[0];
    let left = O::merge::<(In, A, B, C, Out), Const<1>>(identity, x);
    output[to + 1] = O::finish::<(In, A, B, C, Out), Const<1>>(left, 1usize)[0];
    let right = O::merge::<(In, A, B, C, Out), Const<1>>(x, identity);
    output[to + 2] = O::finish::<(In, A, B, C, Out), Const<1>>(right, 1usize)[0];

    let xy = O::merge::<(In, A, B, C, Out), Const<1>>(x, y);
    let early = O::merge::<(In, A, B, C, Out), Const<1>>(xy, z);
    output[to + 3] = O::finish::<(In, A, B, C, Out), Const<1>>(early, 3usize)[0];
    let yz = O::merge::<(In, A, B, C, Out), Const<1>>(y, z);
    let late = O::merge::<(In, A, B, C, Out), Const<1>>(x, yz);
    output[to + 4] = O::finish::<(In, A, B, C, Out), Const<1>>(late, 3usize)[0];
    let second = Position { start: 1usize.runtime(), step: 0usize };
    let third = Position { start: 2usize.runtime(), step: 0usize };
    let pushed =
        O::push::<(In, A, B, C, Out), Const<1>>(x, Vector::cast_from(input[at + 1]), second);
    let pushed =
        O::push::<(In, A, B, C, Out), Const<1>>(pushed, Vector::cast_from(input[at + 2]), third);
    output[to + 5] = O::finish::<(In, A, B, C, Out), Const<1>>(pushed, 3usize)[0];
}

/// Triples with ties, opposite signs, zeros and great ratios.
const TRIPLES: [[f32; 3]; 6] = [
    [1.0, 2.0, 3.0],
    [2.5, 2.5, -2.5],
    [0.0, -0.5, 0.0],
    [1e-3, 1e3, 1.0],
    [-7.0, -7.0, -9.0],
    [1e6, 1.0, -1e6],
];

fn check<R: Runtime, O: Operator>() {
    let client = client::<R>();
    let signature = (O::TYPES)(ElementType::F32, None).unwrap();
    let data = TRIPLES.concat();
    let input = tensor(&client, &data, &[data.len()], &[1]);
    let len = TRIPLES.len() * FORMS;
    // Every output type of these operators has four bytes.
    let output = tensor(&client, &vec![0u32; len], &[len], &[1]);
    let [a, b, c] = signature.fields;
    let types = [ElementType::F32, a, b, c, signature.output].map(storage_type);
    forms::launch::<O, R>(
        &client,
        CubeCount::Static(1, 1, 1),
        CubeDim::new_1d(TRIPLES.len() as u32),
        input.into_arg().into_array_arg(),
        output.clone().into_arg().into_array_arg(),
        types,
    );
    let bits: Vec<u32> = read(&client, &output, len);
    // As numbers, not as bits: a zero of either sign is the same result.
    let value = |bits: u32| match signature.output {
        ElementType::F32 => f32::from_bits(bits),
        _ => bits as f32,
    };
    for (triple, forms) in TRIPLES.iter().zip(bits.chunks(FORMS)) {
        let case = format!("{} of {triple:?}: {forms:x?}", O::NAME);
        assert!(value(forms[1]) == value(forms[0]), "merge(identity, x) is not x: {case}");
        assert!(value(forms[2]) == value(forms[0]), "merge(x, identity) is not x: {case}");
        let totals: Vec<f32> = forms[3..].iter().map(|&bits| value(bits)).collect();
        let scale: f32 = triple.iter().map(|x| x.abs()).sum::<f32>().max(totals[0].abs());
        let close = |total: f32| (total - totals[0]).abs() <= 4.0 * f32::EPSILON * scale;
        assert!(close(totals[1]), "merge is not associative: {case}");
        assert!(close(totals[2]), "pushing is not merging: {case}");
    }
}

/// Identity, associativity, and that pushing is merging: for the crate's operators and a user's.
pub fn hold<R: Runtime>() {
    check::<R, Sum>();
    check::<R, Prod>();
    check::<R, Mean>();
    check::<R, Max>();
    check::<R, Min>();
    check::<R, PeakToPeak>();
    check::<R, FirstMaximum>();
    check::<R, Variance>();
}
