//! The macros that define operators: `defined!`, and `derived!` for operators made from others.

/// Makes Rust compile the functions of an operator once, in the crate that implements it. It is the
/// value of [`Operator::DEFINITION`](crate::Operator::DEFINITION) in an implementation that is not
/// generic.
///
/// Without it, each crate that reduces with the operator compiles them again.
#[doc(hidden)]
#[macro_export]
macro_rules! defined {
    ($operator:ty) => {{
        static DEFINITION: $crate::operator::Definition<$operator> =
            $crate::operator::Definition::of();
        &DEFINITION
    }};
}

pub use defined;

/// Implements an operator of `$fields` and `$results` with another operator, `$base`. The two
/// differ in their names and types, and in
///
/// - `before`: a function of `$operator`, which makes what is pushed from an element, or a pair
///   from a pair;
/// - `finish`: a function of `$operator`, which makes the results from the accumulator;
/// - `with`: the rule for the parameters of `finish`;
/// - `in passes`: the operator is [`InPasses`](crate::operator::InPasses);
/// - `of pairs`: the operator and its base take two inputs.
///
/// An operator of one input without parameters is reproducible if its base is. Its functions must
/// then compute with those of [`same_bits`](crate::operator::same_bits).
macro_rules! derived {
    ($operator:ident: $fields:ident -> $results:ident = $base:ident, $name:literal, $types:expr) => {
        derived!(@implement $operator: One, $fields -> $results = $base, $name, $types,
            <$base as crate::operator::Operator>::REPRODUCIBLE,
            crate::operator::parameters::none::<Self>,
            crate::operator::Blocks::of_base(<$base as crate::operator::Operator>::BLOCKS),
            None,
            None,
            [],
            [$base finish]
        );
    };
    ($operator:ident: $fields:ident -> $results:ident = $base:ident, $name:literal, $types:expr,
     before $before:ident) => {
        #[cube]
        impl crate::operator::Blockwise for $operator {
            const MAY_REFUSE: bool = <$base as crate::operator::Blockwise>::MAY_REFUSE;

            fn push_block<M: Size, N: Size>(
                accumulator: crate::operator::AccumulatorOf<crate::operator::$fields, M>,
                block: &crate::operator::Block<N>,
                parameters: &crate::operator::Parameters,
            ) -> (crate::operator::AccumulatorOf<crate::operator::$fields, M>, Vector<bool, M>) {
                let mut mapped = block.like();
                #[unroll]
                for nth in 0..block.load_count() {
                    mapped.add_like($operator::$before::<N>(block.value(nth)), block, nth);
                }
                $base::push_block::<M, N>(accumulator, &mapped, parameters)
            }
        }

        derived!(@implement $operator: One, $fields -> $results = $base, $name, $types,
            <$base as crate::operator::Operator>::REPRODUCIBLE,
            crate::operator::parameters::none::<Self>,
            Some(crate::operator::Blocks::of()),
            None,
            None,
            [$operator $before],
            [$base finish]
        );
    };
    ($operator:ident: $fields:ident -> $results:ident = $base:ident, $name:literal, $types:expr,
     finish $finish:ident) => {
        derived!(@implement $operator: One, $fields -> $results = $base, $name, $types,
            <$base as crate::operator::Operator>::REPRODUCIBLE,
            crate::operator::parameters::none::<Self>,
            crate::operator::Blocks::of_base(<$base as crate::operator::Operator>::BLOCKS),
            None,
            None,
            [],
            [$operator $finish]
        );
    };
    ($operator:ident: $fields:ident -> $results:ident = $base:ident, $name:literal, $types:expr,
     with $rule:expr,
     finish $finish:ident) => {
        derived!(@implement $operator: One, $fields -> $results = $base, $name, $types,
            crate::operator::Reproducible::No,
            $rule,
            crate::operator::Blocks::of_base(<$base as crate::operator::Operator>::BLOCKS),
            None,
            None,
            [],
            [$operator $finish]
        );
    };
    ($operator:ident: $fields:ident -> $results:ident = $base:ident, $name:literal, $types:expr,
     with $rule:expr, in passes,
     finish $finish:ident) => {
        derived!(@implement $operator: One, $fields -> $results = $base, $name, $types,
            crate::operator::Reproducible::No,
            $rule,
            crate::operator::Blocks::of_base(<$base as crate::operator::Operator>::BLOCKS),
            Some(crate::operator::Passes::of()),
            None,
            [],
            [$operator $finish]
        );
    };
    ($operator:ident: $fields:ident -> $results:ident = $base:ident, $name:literal, $types:expr,
     with $rule:expr, in passes, in runs,
     finish $finish:ident) => {
        derived!(@implement $operator: One, $fields -> $results = $base, $name, $types,
            crate::operator::Reproducible::No,
            $rule,
            crate::operator::Blocks::of_base(<$base as crate::operator::Operator>::BLOCKS),
            Some(crate::operator::Passes::of()),
            Some(crate::operator::Runs::of()),
            [],
            [$operator $finish]
        );
    };
    ($operator:ident of pairs: $fields:ident -> $results:ident = $base:ident, $name:literal,
     $types:expr, $(before $before:ident,)? finish $finish:ident) => {
        derived!(@implement $operator: Two, $fields -> $results = $base, $name, $types,
            crate::operator::Reproducible::No,
            crate::operator::parameters::none::<Self>,
            None,
            None,
            None,
            [$($operator $before)?],
            [$operator $finish]
        );
    };
    (@implement $operator:ident: $inputs:ident, $fields:ident -> $results:ident = $base:ident,
     $name:literal, $types:expr, $reproducible:expr, $rule:expr, $blocks:expr, $passes:expr,
     $runs:expr,
     [$($mapping:ident $before:ident)?], [$finishing:ident $finish:ident]) => {
        #[cube]
        impl crate::operator::Operator for $operator {
            type Inputs = crate::operator::$inputs;
            type Fields = crate::operator::$fields;
            type Results = crate::operator::$results;

            const NAME: &'static str = $name;
            const DEFINED_ON_EMPTY: bool =
                <$base as crate::operator::Operator>::DEFINED_ON_EMPTY;
            const TYPES: crate::operator::TypeRule = $types;
            const REPRODUCIBLE: crate::operator::Reproducible = $reproducible;
            const POSITIONAL: bool = <$base as crate::operator::Operator>::POSITIONAL;
            const PAIRWISE: bool = <$base as crate::operator::Operator>::PAIRWISE;
            const TRANSCENDENTAL: bool = <$base as crate::operator::Operator>::TRANSCENDENTAL;
            const POWERS: bool = <$base as crate::operator::Operator>::POWERS;
            const NATIVE_MATH: bool = <$base as crate::operator::Operator>::NATIVE_MATH;
            const PARAMETERS: crate::operator::ParameterRule<Self> = $rule;
            const BLOCKS: Option<crate::operator::Blocks<Self>> = $blocks;
            const PASSES: Option<crate::operator::Passes<Self>> = $passes;
            const RUNS: Option<crate::operator::Runs<Self>> = $runs;
            const DEFINITION: &'static crate::operator::Definition<Self> = crate::defined!($operator);

            fn identity<N: Size>()
            -> crate::operator::AccumulatorOf<crate::operator::$fields, N> {
                $base::identity::<N>()
            }

            fn push<N: Size>(
                accumulator: crate::operator::AccumulatorOf<crate::operator::$fields, N>,
                elements: crate::operator::InputsOf<
                    crate::operator::$inputs,
                    crate::operator::In,
                    N,
                >,
                position: crate::operator::Position,
                parameters: &crate::operator::Parameters,
            ) -> crate::operator::AccumulatorOf<crate::operator::$fields, N> {
                $(let elements = $mapping::$before::<N>(elements);)?
                $base::push::<N>(accumulator, elements, position, parameters)
            }

            fn merge<N: Size>(
                left: crate::operator::AccumulatorOf<crate::operator::$fields, N>,
                right: crate::operator::AccumulatorOf<crate::operator::$fields, N>,
                parameters: &crate::operator::Parameters,
            ) -> crate::operator::AccumulatorOf<crate::operator::$fields, N> {
                $base::merge::<N>(left, right, parameters)
            }

            fn finish<N: Size>(
                accumulator: crate::operator::AccumulatorOf<crate::operator::$fields, N>,
                count: usize,
                parameters: &crate::operator::Parameters,
            ) -> crate::operator::ResultsOf<crate::operator::$results, N> {
                $finishing::$finish::<N>(accumulator, count, parameters)
            }
        }
    };
}

/// Implements [`Blockwise`](crate::operator::Blockwise) with the pushes of an operator whose merges
/// are cheap. A unit then needs fewer registers, because the elements of a block merge before they
/// reach its accumulator.
macro_rules! block_of_pushes {
    ($operator:ty: $fields:ident $(, $($generics:tt)*)?) => {
        #[cube]
        impl$(<$($generics)*>)? crate::operator::Blockwise for $operator {
            const MAY_REFUSE: bool = false;

            fn push_block<N: Size, W: Size>(
                accumulator: crate::operator::AccumulatorOf<crate::operator::$fields, N>,
                block: &crate::operator::Block<W>,
                parameters: &crate::operator::Parameters,
            ) -> (crate::operator::AccumulatorOf<crate::operator::$fields, N>, Vector<bool, N>) {
                let total = crate::operator::block::push_each::<Self, N, W>(
                    accumulator, block, parameters,
                );
                (total, Vector::new(true))
            }
        }
    };
}

pub(super) use block_of_pushes;
pub(super) use derived;
