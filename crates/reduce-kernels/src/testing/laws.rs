//! The laws of operators, checked on the device.

use core::fmt;

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::ElementType;

use crate::{
    ReduceError,
    element::storage_type,
    kernels::args::{KernelTypes, KernelTypesArg, ResultArrays, ResultArraysLaunch, output_of},
    operator::{
        Accumulator, Columns, In, Operator, OperatorRef, Parameters, ParametersLaunch, Position,
        ResultTypes, Signature, Single, TypeRequest, finish, identity, merge, push,
    },
};

/// Results per triple of elements.
const FORMS: usize = 7;

/// A law that every schedule relies on; see [`Operator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Law {
    /// `merge(identity(), a)` is `a`.
    LeftIdentity,
    /// `merge(a, identity())` is `a`.
    RightIdentity,
    /// `merge(merge(a, b), c)` is `merge(a, merge(b, c))`, up to rounding.
    Associative,
    /// `merge(a, b)` is `merge(b, a)`, up to rounding.
    Commutative,
    /// Pushing an element is merging what `push` makes of the identity and that element, up to rounding.
    PushIsMerge,
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Law::LeftIdentity => "merge(identity(), a) is not a",
            Law::RightIdentity => "merge(a, identity()) is not a",
            Law::Associative => "merge is not associative",
            Law::Commutative => "merge is not commutative",
            Law::PushIsMerge => "pushing is not merging",
        })
    }
}

/// A law that an operator breaks, with the elements that show it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "{operator}: {law}: result {result} of {elements:?} is {expected} in one form, {found} in another"
)]
#[non_exhaustive]
pub struct BrokenLaw {
    /// Name of the operator.
    pub operator: String,
    /// The law.
    pub law: Law,
    /// Which result differs.
    pub result: usize,
    /// The elements.
    pub elements: [f32; 3],
    /// The result in one form.
    pub expected: f32,
    /// The result in the other.
    pub found: f32,
}

#[cube]
fn one(
    value: In,
    parameters: &Parameters,
    #[comptime] nth: usize,
    #[comptime] operator: OperatorRef,
) -> Accumulator<Single> {
    let position = Position { start: nth.runtime(), step: 0usize };
    let none = identity::<Single>(operator);
    push::<Single>(operator, none, Vector::cast_from(value), position, parameters)
}

#[cube]
fn store(
    accumulator: Accumulator<Single>,
    parameters: &Parameters,
    count: usize,
    results: &mut Columns<ResultTypes, Single>,
    to: usize,
    #[comptime] operator: OperatorRef,
) {
    let result = finish::<Single>(operator, accumulator, count, parameters);
    results.put(to, result);
}

/// The same three elements, reduced in every form that the laws call equal.
#[cube(launch)]
fn reduce_in_every_form(
    _types: &KernelTypes,
    input: &Array<In>,
    results: &mut ResultArrays,
    parameters: &Parameters,
    #[comptime] operator: OperatorRef,
) {
    let output = output_of(results);
    let mut results = output.elements;
    let at = 3 * ABSOLUTE_POS;
    let x = one(input[at], parameters, 0usize, operator);
    let y = one(input[at + 1], parameters, 1usize, operator);
    let z = one(input[at + 2], parameters, 2usize, operator);
    let none = identity::<Single>(operator);

    let to = comptime![FORMS] * ABSOLUTE_POS;
    store(x, parameters, 1usize, &mut results, to, operator);
    let left = merge::<Single>(operator, none, x, parameters);
    store(left, parameters, 1usize, &mut results, to + 1, operator);
    let right = merge::<Single>(operator, x, none, parameters);
    store(right, parameters, 1usize, &mut results, to + 2, operator);

    let xy = merge::<Single>(operator, x, y, parameters);
    let early = merge::<Single>(operator, xy, z, parameters);
    store(early, parameters, 3usize, &mut results, to + 3, operator);
    let yz = merge::<Single>(operator, y, z, parameters);
    let late = merge::<Single>(operator, x, yz, parameters);
    store(late, parameters, 3usize, &mut results, to + 4, operator);
    let second = Position { start: 1usize.runtime(), step: 0usize };
    let third = Position { start: 2usize.runtime(), step: 0usize };
    let pushed = push::<Single>(operator, x, Vector::cast_from(input[at + 1]), second, parameters);
    let pushed =
        push::<Single>(operator, pushed, Vector::cast_from(input[at + 2]), third, parameters);
    store(pushed, parameters, 3usize, &mut results, to + 5, operator);
    let zy = merge::<Single>(operator, z, y, parameters);
    let backwards = merge::<Single>(operator, zy, x, parameters);
    store(backwards, parameters, 3usize, &mut results, to + 6, operator);
}

/// Checks the laws of an operator of f32 on triples of elements, on the device.
///
/// The forms that the laws call equal may differ by `8 · 2⁻²³` times the sum of the elements'
/// magnitudes, and by nothing where an identity takes part.
///
/// # Errors
///
/// `Ok(Err(_))` is the first law that is broken. The outer error says that the operator takes no f32 or
/// refuses its parameters, or that the device failed.
pub fn check_laws<R: Runtime, O: Operator>(
    client: &ComputeClient<R>,
    operator: O,
    triples: &[[f32; 3]],
) -> Result<Result<(), BrokenLaw>, ReduceError> {
    let definition = O::DEFINITION;
    let name = definition.name();
    // Results of four bytes each, and no bools, which not every device has.
    let plain = TypeRequest::of(ElementType::F32);
    let numbers = TypeRequest { outputs: [Some(ElementType::U32), None, None], ..plain };
    let narrow = |signature: &Signature| signature.results.iter().all(|result| result.bytes() == 4);
    let signature = (O::TYPES)(&plain).filter(narrow).or_else(|| (O::TYPES)(&numbers));
    let signature =
        signature.ok_or_else(|| ReduceError::Types { operator: name.clone(), request: plain })?;
    let parameters = (O::PARAMETERS)(&operator)
        .map_err(|invalid| ReduceError::Parameter { operator: name.clone(), invalid })?;
    let len = triples.len() * FORMS;
    let element = storage_type(ElementType::F32);
    let handle = client.create_from_slice(f32::as_bytes(&triples.concat()));
    let input = TensorHandle::<R>::new_contiguous([triples.len() * 3], handle, element);
    let outputs: Vec<_> =
        (0..definition.results).map(|_| client.create_from_slice(&vec![0; len * 4])).collect();
    let array = |nth: usize| {
        // SAFETY: each buffer has been made with this length.
        outputs.get(nth).map(|output| unsafe { ArrayArg::from_raw_parts(output.clone(), len) })
    };
    reduce_in_every_form::launch::<R>(
        client,
        CubeCount::Static(1, 1, 1),
        CubeDim::new_1d(triples.len() as u32),
        KernelTypesArg {
            stored: element,
            value: storage_type(signature.value),
            fields: signature.fields.map(storage_type),
            results: signature.results.map(storage_type),
            width: 1,
        },
        input.into_arg().into_array_arg(),
        ResultArraysLaunch::new(
            array(0).into(),
            array(1).into(),
            array(2).into(),
            None.into(),
            None.into(),
            None.into(),
        ),
        ParametersLaunch::of(&parameters, element),
        OperatorRef(definition),
    );
    for (result, output) in outputs.iter().enumerate() {
        let bytes = client
            .read_one(output.clone())
            .map_err(|error| ReduceError::Device { reason: error.to_string() })?;
        // As numbers, not as bits: a zero of either sign is the same result.
        let value = |bits: &u32| match signature.results[result] {
            ElementType::F32 => f32::from_bits(*bits),
            _ => *bits as f32,
        };
        let found: Vec<f32> = u32::from_bytes(&bytes).iter().map(value).collect();
        for (&elements, forms) in triples.iter().zip(found.chunks(FORMS)) {
            if let Some((law, expected, found)) = broken(&elements, forms) {
                let operator = name.clone();
                return Ok(Err(BrokenLaw { operator, law, result, elements, expected, found }));
            }
        }
    }
    Ok(Ok(()))
}

/// The first law that the forms of a triple break, and the two results that show it.
fn broken(elements: &[f32; 3], forms: &[f32]) -> Option<(Law, f32, f32)> {
    let same = |left: f32, right: f32| left == right || (left.is_nan() && right.is_nan());
    let scale: f32 = elements.iter().map(|x| x.abs()).sum::<f32>().max(forms[3].abs());
    let close = |left: f32, right: f32| {
        same(left, right) || (left - right).abs() <= 8.0 * f32::EPSILON * scale
    };
    let pairs = [
        (Law::LeftIdentity, forms[0], forms[1], same(forms[0], forms[1])),
        (Law::RightIdentity, forms[0], forms[2], same(forms[0], forms[2])),
        (Law::Associative, forms[3], forms[4], close(forms[3], forms[4])),
        (Law::PushIsMerge, forms[3], forms[5], close(forms[3], forms[5])),
        (Law::Commutative, forms[3], forms[6], close(forms[3], forms[6])),
    ];
    pairs.into_iter().find(|pair| !pair.3).map(|(law, left, right, _)| (law, left, right))
}
