//! Random expressions against a plain tree that is evaluated in 128 bits without any simplification.

use proptest::prelude::*;

use crate::dim::{Bounds, Dim, DimBinding, DimError, DimProgram, Symbol};

const NAMES: [&str; 4] = ["a", "b", "batch", "x.1"];

#[derive(Debug, Clone)]
enum Tree {
    Number(i64),
    Name(usize),
    Binary(Op, Box<Tree>, Box<Tree>),
}

#[derive(Debug, Clone, Copy)]
enum Op {
    Add,
    Sub,
    Mul,
    FloorDiv,
    CeilDiv,
    Mod,
    Min,
    Max,
    Bcast,
}

fn floor(a: i128, b: i128) -> i128 {
    let mut quotient = a / b;
    while quotient * b > a && b > 0 || quotient * b < a && b < 0 {
        quotient -= 1;
    }
    quotient
}

impl Tree {
    /// None where something has no value.
    fn value(&self, symbols: &[i64; 4]) -> Option<i128> {
        let (op, a, b) = match self {
            Tree::Number(value) => return Some((*value).into()),
            Tree::Name(index) => return Some(symbols[*index].into()),
            Tree::Binary(op, a, b) => (op, a.value(symbols)?, b.value(symbols)?),
        };
        let value = match op {
            Op::Add => a + b,
            Op::Sub => a - b,
            Op::Mul => a.checked_mul(b)?,
            Op::FloorDiv | Op::CeilDiv | Op::Mod if b == 0 => return None,
            Op::FloorDiv => floor(a, b),
            Op::CeilDiv => -floor(-a, b),
            Op::Mod => a - b * floor(a, b),
            Op::Min => a.min(b),
            Op::Max => a.max(b),
            Op::Bcast if a == 1 => b,
            Op::Bcast if b == 1 || a == b => a,
            Op::Bcast => return None,
        };
        (value.abs() < 1 << 100).then_some(value)
    }

    fn dim(&self) -> Dim {
        match self {
            Tree::Number(value) => Dim::from(*value),
            Tree::Name(index) => Dim::symbol(NAMES[*index]),
            Tree::Binary(op, a, b) => {
                let (a, b) = (a.dim(), b.dim());
                match op {
                    Op::Add => a + b,
                    Op::Sub => a - b,
                    Op::Mul => a * b,
                    Op::FloorDiv => a.floor_div(b),
                    Op::CeilDiv => a.ceil_div(b),
                    Op::Mod => a.rem_floor(b),
                    Op::Min => a.min(b),
                    Op::Max => a.max(b),
                    Op::Bcast => a.bcast(b),
                }
            }
        }
    }
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        3 => (-6i64..13).prop_map(Tree::Number),
        5 => (0..NAMES.len()).prop_map(Tree::Name),
    ];
    let op = prop_oneof![
        4 => Just(Op::Add),
        2 => Just(Op::Sub),
        4 => Just(Op::Mul),
        4 => Just(Op::FloorDiv),
        2 => Just(Op::CeilDiv),
        3 => Just(Op::Mod),
        1 => Just(Op::Min),
        1 => Just(Op::Max),
        1 => Just(Op::Bcast),
    ];
    leaf.prop_recursive(5, 24, 2, move |inner| {
        (op.clone(), inner.clone(), inner).prop_map(|(op, a, b)| Tree::Binary(op, Box::new(a), Box::new(b)))
    })
}

fn values() -> impl Strategy<Value = [i64; 4]> {
    prop::array::uniform4(prop_oneof![0i64..4, 0i64..40])
}

fn binding(values: &[i64; 4]) -> DimBinding {
    NAMES.iter().copied().zip(values.iter().copied()).collect()
}

fn failed_by_limit(error: &DimError) -> bool {
    matches!(error, DimError::Overflow { .. } | DimError::TooLarge)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn simplifying_keeps_the_value(tree in tree(), samples in prop::collection::vec(values(), 8)) {
        let dim = tree.dim();
        for sample in samples {
            if let Some(expected) = tree.value(&sample) {
                match dim.eval(&binding(&sample)) {
                    Ok(found) => prop_assert_eq!(i128::from(found), expected, "{} at {:?}", dim, sample),
                    Err(error) => prop_assert!(failed_by_limit(&error), "{} at {:?}: {}", dim, sample, error),
                }
            }
        }
    }

    #[test]
    fn printing_and_parsing_is_the_identity(tree in tree()) {
        let dim = tree.dim();
        let text = dim.to_string();
        let again = Dim::parse(&text);
        prop_assert_eq!(again.as_ref(), Ok(&dim), "{}", &text);
        let longer = format!("{text}] , n");
        prop_assert_eq!(Dim::parse_prefix(&longer), Ok((dim, text.len())));
    }

    #[test]
    fn substituting_agrees_with_evaluating(tree in tree(), replacement in tree(), sample in values()) {
        let (dim, inner) = (tree.dim(), replacement.dim());
        let mut full = sample;
        if let Ok(value) = inner.eval(&binding(&sample)) && value >= 0 {
            full[0] = value;
            let map = [(Symbol::new(NAMES[0]), inner)].into_iter().collect();
            let replaced = dim.substitute(&map);
            if let Ok(expected) = dim.eval(&binding(&full)) {
                match replaced.eval(&binding(&sample)) {
                    Ok(found) => prop_assert_eq!(found, expected, "{} from {}", replaced, dim),
                    Err(error) => prop_assert!(failed_by_limit(&error), "{}: {}", replaced, error),
                }
            }
            let numbers = NAMES.iter().zip(full).map(|(name, value)| (Symbol::new(name), Dim::from(value))).collect();
            if let (Ok(expected), Some(found)) = (dim.eval(&binding(&full)), dim.substitute(&numbers).as_const()) {
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn programs_agree_with_evaluating(trees in prop::collection::vec(tree(), 1..5), sample in values()) {
        let dims = trees.iter().map(Tree::dim).collect::<Vec<_>>();
        let program = DimProgram::with_symbols(NAMES.map(Symbol::new), dims.clone());
        let mut out = Vec::new();
        let found = program.eval_into(&sample, &mut out).map(|()| out);
        let expected = dims.iter().map(|dim| dim.eval(&binding(&sample))).collect::<Result<Vec<_>, _>>();
        match (found, expected) {
            (Ok(found), Ok(expected)) => prop_assert_eq!(found, expected),
            (found, expected) => prop_assert!(found.is_err() && expected.is_err(), "{:?} {:?}", found, expected),
        }
    }

    #[test]
    fn bounds_hold(tree in tree(), other in tree(), low in values(), extra in values(), at in values()) {
        let (dim, other) = (tree.dim(), other.dim());
        let mut bounds = Bounds::new();
        let mut sample = low;
        for (index, name) in NAMES.iter().enumerate() {
            bounds.set(*name, low[index], Some(low[index] + extra[index]));
            sample[index] = low[index] + at[index].min(extra[index]);
        }
        let (left, right) = (dim.eval(&binding(&sample)), other.eval(&binding(&sample)));
        if let Ok(value) = left {
            for interval in [dim.interval(), dim.interval_with(&bounds)] {
                prop_assert!(interval.contains(value), "{} = {} outside {:?}", dim, value, interval);
            }
        }
        if let (Ok(left), Ok(right)) = (left, right) {
            for known in [dim.known_eq(&other), dim.known_eq_with(&other, &bounds)].into_iter().flatten() {
                prop_assert_eq!(known, left == right);
            }
            for known in [dim.known_le(&other), dim.known_le_with(&other, &bounds)].into_iter().flatten() {
                prop_assert_eq!(known, left <= right);
            }
        }
    }

    #[test]
    fn any_text_parses_or_fails(text in "[ab0-9 +*()^,\"\\\\-]{0,40}|(min|mod|floordiv|ceildiv|bcast|[(), n-]){0,20}") {
        if let Ok((dim, used)) = Dim::parse_prefix(&text) {
            prop_assert!(used <= text.len() && text.is_char_boundary(used));
            prop_assert_eq!(Dim::parse(&dim.to_string()), Ok(dim));
        }
    }
}
