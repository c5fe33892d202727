//! Checks the laws of operators on the device.

use core::fmt;

use cubecl::{future::block_on, prelude::*, server::Handle, std::tensor::TensorHandle};
use reduce_planner::ElementType;

use super::{EachInput, TestError, Tolerance, decode::decode};
use crate::{
    element::{memory_type, storage_type},
    error::{Reason, ReduceError},
    host::{
        arguments::{parameter_type, result_arrays},
        bound::Bound,
        cache,
        client::has_hardware_math,
        types::check_arithmetic,
    },
    kernels::args::{KernelTypes, KernelTypesArg, ResultArrays, Stores, output_of},
    operator::{
        Accumulator, Arity, Block, BlockTraits, Columns, Erased, Fields, In, Inputs, Operator,
        OperatorRef, Parameters, ParametersLaunch, Position, ResultTypes, Signature, Single,
        TypeRequest, Wide, finish, identity, merge, one_input, push, push_block, two_inputs,
    },
};

/// Results per triple of elements.
const FORMS: usize = 11;

/// The first form in which the elements are a block; see [`BlockForm`].
const FIRST_BLOCK_FORM: usize = 8;

/// How a block holds the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum BlockForm {
    /// The elements of a load belong to one output.
    Along,
    /// The same, with a load that is not inside the block.
    AlongWithMore,
    /// The elements of a load belong to different outputs.
    Across,
}

/// Components of a load of a block.
const WIDTH: usize = 2;

/// Units of a cube.
const UNITS: u32 = 64;

/// The most triples per launch. More triples take several launches, which bounds the memory that
/// they need.
const TRIPLES_PER_LAUNCH: usize = 1 << 14;

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
    /// Pushing an element is merging what `push` makes of the identity and that element, up to
    /// rounding.
    PushIsMerge,
    /// Adding a block is pushing its elements one by one, up to rounding; see
    /// [`Blockwise`](crate::operator::Blockwise).
    BlockIsPushes,
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Law::LeftIdentity => "merge(identity(), a) is not a",
            Law::RightIdentity => "merge(a, identity()) is not a",
            Law::Associative => "merge is not associative",
            Law::Commutative => "merge is not commutative",
            Law::PushIsMerge => "pushing is not merging",
            Law::BlockIsPushes => "adding a block is not pushing its elements",
        })
    }
}

/// Element `nth`, or pair `nth`. The elements of a pair lie side by side.
#[cube]
fn element(elements: &[In], nth: usize, #[comptime] operator: OperatorRef) -> Inputs<Single> {
    if comptime![operator.0.inputs == 2] {
        let first = elements[2 * nth];
        let second = elements[2 * nth + 1];
        two_inputs::<Single>(Vector::cast_from(first), Vector::cast_from(second))
    } else {
        one_input::<Single>(Vector::cast_from(elements[nth]))
    }
}

#[cube]
fn one(
    inputs: Inputs<Single>,
    parameters: &Parameters,
    #[comptime] nth: usize,
    #[comptime] operator: OperatorRef,
) -> Accumulator<Single> {
    let position = Position { start: nth.runtime(), step: 0usize };
    let none = identity::<Single>(operator);
    push::<Single>(operator, none, inputs, position, parameters)
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

/// Reduces one triple of elements in every form that the laws call equal.
#[cube(launch)]
fn reduce_in_every_form(
    _types: &KernelTypes,
    input: &[In],
    results: &mut ResultArrays,
    parameters: &Parameters,
    #[comptime] operator: OperatorRef,
) {
    let output = output_of(results);
    let mut results = output.elements;
    let at = 3 * ABSOLUTE_POS;
    let first = element(input, at, operator);
    let second = element(input, at + 1, operator);
    let third = element(input, at + 2, operator);
    let x = one(first, parameters, 0usize, operator);
    let y = one(second, parameters, 1usize, operator);
    let z = one(third, parameters, 2usize, operator);
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
    let middle = Position { start: 1usize.runtime(), step: 0usize };
    let last = Position { start: 2usize.runtime(), step: 0usize };
    let pushed = push::<Single>(operator, x, second, middle, parameters);
    let pushed = push::<Single>(operator, pushed, third, last, parameters);
    store(pushed, parameters, 3usize, &mut results, to + 5, operator);
    let zy = merge::<Single>(operator, z, y, parameters);
    let backwards = merge::<Single>(operator, zy, x, parameters);
    store(backwards, parameters, 3usize, &mut results, to + 6, operator);

    let again = Position { start: 3usize.runtime(), step: 0usize };
    let pushed = push::<Single>(operator, pushed, third, again, parameters);
    store(pushed, parameters, 4usize, &mut results, to + 7, operator);
}

/// Reduces one triple of elements of one input as a block, the last element twice.
///
/// Each form is a kernel of its own.
#[cube(launch)]
fn reduce_in_block(
    _types: &KernelTypes,
    input: &[In],
    results: &mut ResultArrays,
    parameters: &Parameters,
    #[comptime] form: BlockForm,
    #[comptime] operator: OperatorRef,
) {
    let output = output_of(results);
    let mut results = output.elements;
    let at = 3 * ABSOLUTE_POS;
    let mut elements = Sequence::<In>::new();
    elements.push(input[at]);
    elements.push(input[at + 1]);
    elements.push(input[at + 2]);
    elements.push(input[at + 2]);
    let total = match comptime![form] {
        BlockForm::Along => along_one_output(&elements, parameters, true, operator),
        BlockForm::AlongWithMore => along_one_output(&elements, parameters, false, operator),
        BlockForm::Across => across_outputs(&elements, parameters, operator),
    };
    let to = comptime![FORMS] * ABSOLUTE_POS + comptime![FIRST_BLOCK_FORM + form as usize];
    store(total, parameters, 4usize, &mut results, to, operator);
}

/// Pushes the elements one by one.
#[cube]
fn one_by_one(
    elements: &Sequence<In>,
    parameters: &Parameters,
    #[comptime] operator: OperatorRef,
) -> Accumulator<Single> {
    let mut total = identity::<Single>(operator);
    #[unroll]
    for nth in 0..elements.len().comptime() {
        let position = Position { start: nth.runtime(), step: 0usize };
        let inputs = one_input::<Single>(Vector::cast_from(*elements.index(nth)));
        total = push::<Single>(operator, total, inputs, position, parameters);
    }
    total
}

/// The accumulator of a block whose loads hold two elements of one output each. If it is not
/// `whole`, a third load is not inside.
#[cube]
fn along_one_output(
    elements: &Sequence<In>,
    parameters: &Parameters,
    #[comptime] whole: bool,
    #[comptime] operator: OperatorRef,
) -> Accumulator<Single> {
    let mut block =
        Block::<Wide>::new(comptime![BlockTraits { whole, ascending: true, starts: false }]);
    let first = vector(*elements.index(0usize), *elements.index(1usize));
    let start = Position { start: 0usize.runtime(), step: 1usize.runtime() };
    block.add(first, start, true.runtime());
    let next = Position { start: 2usize.runtime(), step: 1usize.runtime() };
    block.add(vector(*elements.index(2usize), *elements.index(3usize)), next, true.runtime());
    if comptime![!whole] {
        block.add(first, start, false.runtime());
    }
    let none = identity::<Single>(operator);
    let (total, taken) = push_block::<Single>(operator, none, &block, parameters);
    let mut result = total;
    if !taken.extract(0usize) {
        result = one_by_one(elements, parameters, operator);
    }
    result
}

/// The accumulator of a block whose loads hold an element of two outputs each, and which is known
/// to be the first.
#[cube]
fn across_outputs(
    elements: &Sequence<In>,
    parameters: &Parameters,
    #[comptime] operator: OperatorRef,
) -> Accumulator<Single> {
    let mut block =
        Block::<Wide>::new(comptime![BlockTraits { whole: true, ascending: true, starts: true }]);
    #[unroll]
    for nth in 0..elements.len().comptime() {
        let position = Position { start: nth.runtime(), step: 0usize };
        block.add(vector(*elements.index(nth), *elements.index(nth)), position, true.runtime());
    }
    let none = identity::<Wide>(operator);
    let (total, taken) = push_block::<Wide>(operator, none, &block, parameters);
    let mut result = total.component(1usize);
    if !taken.extract(1usize) {
        result = one_by_one(elements, parameters, operator);
    }
    result
}

#[cube]
fn vector(first: In, second: In) -> Vector<In, Wide> {
    let mut vector = Vector::<In, Wide>::empty();
    vector.insert(0usize, first);
    vector.insert(1usize, second);
    vector
}

/// Checks the laws of an operator on triples of f32, or of pairs of f32, as many as you like, on
/// the device.
///
/// The forms that the laws call equal must be within `tolerance` of each other, whose scale is the
/// sum of the elements' magnitudes, or the magnitude of the result if that is larger.
/// [`Tolerance::FEW_ROUNDINGS`] does for operators that add and multiply. Where an identity takes
/// part, results must be equal whatever the tolerance.
///
/// ```no_run
/// use reduce_kernels::{Sum, cubecl::prelude::*, testing::{TestError, Tolerance, check_laws}};
///
/// # fn example(client: &Client) -> Result<(), TestError> {
/// let triples = [[1.0, 2.0, 3.0], [-0.5, f32::NAN, 4.0]];
/// check_laws(client, Sum, &triples, Tolerance::FEW_ROUNDINGS)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// [`TestError::BrokenLaw`] with the first triple that breaks a law; [`TestError::Reduce`] if the
/// operator takes no f32 or refuses its parameters, or the device fails.
pub fn check_laws<O: Operator>(
    client: &Client,
    operator: O,
    triples: &[[EachInput<O, f32>; 3]],
    tolerance: Tolerance,
) -> Result<(), TestError>
where
    EachInput<O, f32>: Copy,
{
    let name = O::DEFINITION.erased().name();
    let parameters = (O::PARAMETERS)(&operator)
        .map_err(|invalid| ReduceError::parameter(name.clone(), invalid))?;
    let signature = signature(O::DEFINITION.erased())?;
    check_arithmetic(client, O::DEFINITION.erased(), &signature, &cache::device(client))?;
    let has_blocks = O::DEFINITION.erased().blocks.is_some();
    let inputs = <O::Inputs as Fields>::COUNT;
    let of_triple = |triple: &[EachInput<O, f32>; 3]| triple.map(O::Inputs::into_list).concat();
    let elements: Vec<f32> = triples.iter().flat_map(of_triple).collect();
    for elements in elements.chunks(3 * inputs * TRIPLES_PER_LAUNCH) {
        let results = forms(client, O::DEFINITION.erased(), &signature, &parameters, elements)?;
        for (nth, forms) in results.iter().enumerate() {
            for (elements, forms) in elements.chunks(3 * inputs).zip(forms.chunks(FORMS)) {
                if let Some((law, expected, found)) = broken(elements, forms, has_blocks, tolerance)
                {
                    let operator = name.clone();
                    let of_input = |nth| [0, 1, 2].map(|at| elements[inputs * at + nth]);
                    let elements = (0..inputs).map(of_input).collect();
                    let broken =
                        TestError::BrokenLaw { operator, law, nth, elements, expected, found };
                    return Err(broken);
                }
            }
        }
    }
    Ok(())
}

/// The types of an operator of f32: with results of four bytes if it has any such, since not every
/// device has others.
fn signature(operator: &Erased) -> Result<Signature, ReduceError> {
    let plain = TypeRequest::of(ElementType::F32);
    let numbers = TypeRequest { outputs: [Some(ElementType::U32), None, None], ..plain };
    let narrow = |signature: &Signature| signature.results.iter().all(|result| result.bytes() == 4);
    let types = operator.types;
    types(&plain)
        .filter(narrow)
        .or_else(|| types(&numbers))
        .or_else(|| types(&plain))
        .ok_or_else(|| Reason::Types { operator: operator.name(), request: plain }.into())
}

/// Each result of the operator, in every form, for each triple of these elements.
fn forms(
    client: &Client,
    operator: &'static Erased,
    signature: &Signature,
    parameters: &[f64],
    elements: &[f32],
) -> Result<Vec<Vec<f64>>, ReduceError> {
    let units = client.properties().hardware.max_units_per_cube.min(UNITS);
    let of_triple = 3 * operator.inputs;
    let triples = elements.len() / of_triple;
    let cubes = (triples as u32).div_ceil(units);
    // Each unit has a triple; those of the last cube's idle units are zeros.
    let held = (cubes * units) as usize;
    let mut elements = elements.to_vec();
    elements.resize(of_triple * held, 0.0);
    let element = storage_type(ElementType::F32);
    let handle = client.create_from_slice(f32::as_bytes(&elements));
    let input = TensorHandle::new_contiguous([of_triple * held], handle, element);
    let result_types = &signature.results[..operator.results];
    let len = FORMS * held;
    // wgpu wants sizes that are multiples of four bytes.
    let bytes = |of: &ElementType| (len * of.bytes()).next_multiple_of(4);
    // No two forms of a triple begin with the same bytes, so forms that were never written differ.
    let poison = |of: &ElementType| -> Vec<u8> {
        (0..bytes(of)).map(|at| (at / of.bytes() % FORMS) as u8 + 0x51).collect()
    };
    let outputs: Vec<_> =
        result_types.iter().map(|of| client.create_from_slice(&poison(of))).collect();
    let parameter = parameter_type(signature);
    let (count, dim) = (CubeCount::Static(cubes, 1, 1), CubeDim::new_1d(units));
    let types = KernelTypesArg {
        second: None,
        stored: element,
        value: memory_type(signature.value),
        fields: signature.fields.map(memory_type),
        results: signature.results.map(memory_type),
        width: WIDTH,
        hardware_math: has_hardware_math(client),
        chains: false,
        same_bits: false,
        offsets: None,
        indices: None,
        application: None,
        stores: Stores::Elements,
        of_shard: false,
        has_policy: false,
    };
    let bound = |(output, result): (&Handle, &ElementType)| {
        Bound::own(output.clone().binding(), len, result.bytes())
    };
    let bound: Vec<Bound<'static>> = outputs.iter().zip(&signature.results).map(bound).collect();
    let results = || result_arrays(&bound);
    let elements = || input.clone().into_arg().into_buffer_arg();
    let parameters = || ParametersLaunch::of(parameters, storage_type(parameter));
    reduce_in_every_form::launch(
        client,
        count.clone(),
        dim,
        types,
        elements(),
        results(),
        parameters(),
        OperatorRef(operator),
    );
    for form in [BlockForm::Along, BlockForm::AlongWithMore, BlockForm::Across] {
        if operator.blocks.is_some() {
            reduce_in_block::launch(
                client,
                count.clone(),
                dim,
                types,
                elements(),
                results(),
                parameters(),
                form,
                OperatorRef(operator),
            );
        }
    }
    // A kernel that fails to compile is reported here alone.
    block_on(client.sync()).map_err(ReduceError::device)?;
    let read = |(output, &of): (&Handle, &ElementType)| {
        let bytes = client.read_one(output.clone()).map_err(ReduceError::device)?;
        Ok(decode(of, &bytes))
    };
    outputs.iter().zip(result_types).map(read).collect()
}

/// The first law that the forms of a triple break, and the two results that show it.
fn broken(
    elements: &[f32],
    forms: &[f64],
    has_blocks: bool,
    tolerance: Tolerance,
) -> Option<(Law, f64, f64)> {
    let magnitudes: f64 = elements.iter().map(|&x| f64::from(x.abs())).sum();
    let scale = magnitudes.max(forms[3].abs());
    let exact = Tolerance::EXACT;
    let pairs = [
        (Law::LeftIdentity, forms[0], forms[1], exact),
        (Law::RightIdentity, forms[0], forms[2], exact),
        (Law::Associative, forms[3], forms[4], tolerance),
        (Law::PushIsMerge, forms[3], forms[5], tolerance),
        (Law::Commutative, forms[3], forms[6], tolerance),
        (Law::BlockIsPushes, forms[7], forms[8], tolerance),
        (Law::BlockIsPushes, forms[7], forms[9], tolerance),
        (Law::BlockIsPushes, forms[7], forms[10], tolerance),
    ];
    pairs
        .into_iter()
        .filter(|&(law, ..)| has_blocks || law != Law::BlockIsPushes)
        .find(|&(_, expected, found, tolerance)| !tolerance.allows(found, expected, scale))
        .map(|(law, expected, found, _)| (law, expected, found))
}
