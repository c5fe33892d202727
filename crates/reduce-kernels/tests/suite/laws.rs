//! The laws of operators, checked on the device.

use reduce_kernels::{
    ElementType,
    cubecl::{self, ir::StorageType, prelude::*},
    operator::{
        Columns, Fields, FieldsOf, Operator, Parameters, ParametersLaunch, Position, Signature,
        TypeRequest, Types,
    },
    storage_type,
};

use crate::{
    operators::{Checked, for_each_operator},
    run::{read, tensor},
};

/// Results per triple of elements.
const FORMS: usize = 7;

#[cube]
fn one<O: Operator, T: Types>(
    value: T::In,
    parameters: &Parameters,
    #[comptime] nth: usize,
) -> FieldsOf<O::Fields, T, Const<1>> {
    let position = Position { start: nth.runtime(), step: 0usize };
    let identity = O::identity::<T, Const<1>>();
    O::push::<T, Const<1>>(identity, Vector::cast_from(value), position, parameters)
}

#[cube]
fn store<O: Operator, T: Types>(
    accumulator: FieldsOf<O::Fields, T, Const<1>>,
    parameters: &Parameters,
    count: usize,
    results: &mut Columns<T::Results>,
    to: usize,
) {
    let result = O::finish::<T, Const<1>>(accumulator, count, parameters);
    O::Results::store::<T::Results>(results, to, result);
}

/// The same three elements, reduced in every form that the laws call equal.
#[cube]
fn write_forms<O: Operator, T: Types>(
    input: &Array<T::In>,
    results: &mut Columns<T::Results>,
    parameters: &Parameters,
) {
    let at = 3 * ABSOLUTE_POS;
    let x = one::<O, T>(input[at], parameters, 0usize);
    let y = one::<O, T>(input[at + 1], parameters, 1usize);
    let z = one::<O, T>(input[at + 2], parameters, 2usize);
    let identity = O::identity::<T, Const<1>>();

    let to = comptime![FORMS] * ABSOLUTE_POS;
    store::<O, T>(x, parameters, 1usize, results, to);
    let left = O::merge::<T, Const<1>>(identity, x, parameters);
    store::<O, T>(left, parameters, 1usize, results, to + 1);
    let right = O::merge::<T, Const<1>>(x, identity, parameters);
    store::<O, T>(right, parameters, 1usize, results, to + 2);

    let xy = O::merge::<T, Const<1>>(x, y, parameters);
    let early = O::merge::<T, Const<1>>(xy, z, parameters);
    store::<O, T>(early, parameters, 3usize, results, to + 3);
    let yz = O::merge::<T, Const<1>>(y, z, parameters);
    let late = O::merge::<T, Const<1>>(x, yz, parameters);
    store::<O, T>(late, parameters, 3usize, results, to + 4);
    let second = Position { start: 1usize.runtime(), step: 0usize };
    let third = Position { start: 2usize.runtime(), step: 0usize };
    let pushed = O::push::<T, Const<1>>(x, Vector::cast_from(input[at + 1]), second, parameters);
    let pushed =
        O::push::<T, Const<1>>(pushed, Vector::cast_from(input[at + 2]), third, parameters);
    store::<O, T>(pushed, parameters, 3usize, results, to + 5);
    let zy = O::merge::<T, Const<1>>(z, y, parameters);
    let backwards = O::merge::<T, Const<1>>(zy, x, parameters);
    store::<O, T>(backwards, parameters, 3usize, results, to + 6);
}

#[cube(launch)]
#[allow(clippy::too_many_arguments, reason = "a kernel takes a type per field and result")]
fn forms<
    O: Operator,
    S: Float,
    In: Float,
    A: Float,
    B: Float,
    C: Float,
    D: Float,
    E: Float,
    X: Float,
    Y: Float,
    Z: Float,
>(
    input: &Array<In>,
    x: &mut Array<X>,
    y: &mut Array<Y>,
    z: &mut Array<Z>,
    parameters: &Parameters,
    #[define(S, In, A, B, C, D, E, X, Y, Z)] _types: [StorageType; 10],
) {
    let x = ComptimeOption::new_Some(x.to_slice_mut());
    let y = ComptimeOption::new_Some(y.to_slice_mut());
    let z = ComptimeOption::new_Some(z.to_slice_mut());
    let mut results = Columns::new(x, y, z, z, z);
    write_forms::<O, (S, In, A, B, C, D, E, X, Y, Z)>(input, &mut results, parameters);
}

/// Triples with ties, opposite signs, zeros and great ratios.
const TRIPLES: [[f32; 3]; 7] = [
    [1.0, 2.0, 3.0],
    [2.5, 2.5, -2.5],
    [0.0, -0.5, 0.0],
    [1e-3, 1e3, 1.0],
    [-7.0, -7.0, -9.0],
    [1e6, 1.0, -1e6],
    [0.0, 0.0, 0.0],
];

fn check<R: Runtime, O: Checked>(client: &ComputeClient<R>) {
    // Results of four bytes each, and no bools, which not every device has.
    let request = TypeRequest {
        outputs: [(O::NAME == "any" || O::NAME == "all").then_some(ElementType::U32), None, None],
        ..TypeRequest::of(ElementType::F32)
    };
    let Signature { value, fields: [a, b, c, d, e], results: [x, y, z] } =
        (O::TYPES)(&request).unwrap();
    let types = [value, value, a, b, c, d, e, x, y, z].map(storage_type);
    let numbers = (O::PARAMETERS)(&O::operator()).unwrap();
    let data = TRIPLES.concat();
    let input = tensor(client, &data, &[data.len()], &[1]);
    let len = TRIPLES.len() * FORMS;
    let outputs = [(); 3].map(|()| tensor(client, &vec![0u32; len], &[len], &[1]));
    let [first, second, third] = outputs.clone().map(|output| output.into_arg().into_array_arg());
    forms::launch::<O, R>(
        client,
        CubeCount::Static(1, 1, 1),
        CubeDim::new_1d(TRIPLES.len() as u32),
        input.into_arg().into_array_arg(),
        first,
        second,
        third,
        ParametersLaunch::of(&numbers, storage_type(ElementType::F32)),
        types,
    );
    for (nth, output) in outputs.iter().enumerate().take(O::Results::COUNT) {
        let bits: Vec<u32> = read(client, output, len);
        // As numbers, not as bits: a zero of either sign is the same result.
        let value = |bits: u32| match [x, y, z][nth] {
            ElementType::F32 => f32::from_bits(bits),
            _ => bits as f32,
        };
        let same = |left: f32, right: f32| left == right || (left.is_nan() && right.is_nan());
        for (triple, forms) in TRIPLES.iter().zip(bits.chunks(FORMS)) {
            let forms: Vec<f32> = forms.iter().map(|&bits| value(bits)).collect();
            let case = format!("result {nth} of {} of {triple:?}: {forms:?}", O::NAME);
            assert!(same(forms[1], forms[0]), "merge(identity, x) is not x: {case}");
            assert!(same(forms[2], forms[0]), "merge(x, identity) is not x: {case}");
            let totals = &forms[3..];
            let scale: f32 = triple.iter().map(|x| x.abs()).sum::<f32>().max(totals[0].abs());
            let close = |total: f32| (total - totals[0]).abs() <= 8.0 * f32::EPSILON * scale;
            assert!(close(totals[1]), "merge is not associative: {case}");
            assert!(close(totals[2]), "pushing is not merging: {case}");
            assert!(close(totals[3]), "merge is not commutative: {case}");
        }
    }
}

/// Identity, associativity, commutativity, and that pushing is merging.
pub fn hold<R: Runtime>(client: &ComputeClient<R>) {
    for_each_operator!(O => check::<R, O>(client));
}
