//! Solving symbols from sizes, and programs.

use super::dim;
use crate::dim::{Bounds, Dim, DimBinding, DimError, DimProgram, Equation, SolveError, Symbol, solve, unsolved};

fn equations(list: &[(&str, i64, &str)]) -> Vec<Equation> {
    list.iter().map(|(text, value, origin)| Equation::new(dim(text), *value, *origin)).collect()
}

fn solved(list: &[(&str, i64, &str)]) -> Result<String, Vec<String>> {
    solved_from(list, &DimBinding::new(), &Bounds::new())
}

fn solved_from(list: &[(&str, i64, &str)], initial: &DimBinding, bounds: &Bounds) -> Result<String, Vec<String>> {
    match solve(&equations(list), initial, bounds) {
        Ok(binding) => Ok(binding.to_string()),
        Err(errors) => Err(errors.iter().map(SolveError::to_string).collect()),
    }
}

#[test]
fn one_unknown_at_a_time() {
    assert_eq!(solved(&[("2*n + 1", 7, "x")]), Ok("n = 3".into()));
    assert_eq!(solved(&[("batch*seq", 12, "x"), ("batch", 3, "y")]), Ok("batch = 3, seq = 4".into()));
    assert_eq!(solved(&[("a + b + c", 9, ""), ("a + b", 5, ""), ("a", 2, "")]), Ok("a = 2, b = 3, c = 4".into()));
    assert_eq!(solved(&[("a*b + 3*b", 10, ""), ("a", 2, "")]), Ok("a = 2, b = 2".into()));
    assert_eq!(solved(&[("10 - n", 4, "")]), Ok("n = 6".into()));
    assert_eq!(solved(&[("bcast(a, b)", 5, ""), ("a", 1, "")]), Ok("a = 1, b = 5".into()));
    assert_eq!(solved(&[("n", 0, ""), ("n*m", 0, "")]), Ok("n = 0".into()));
    assert_eq!(solved(&[("a*b", 6, "")]), Ok(String::new()));
    assert_eq!(solved(&[("n*n", 9, "")]), Ok(String::new()));
    assert_eq!(solved(&[("3", 3, "")]), Ok(String::new()));
    assert_eq!(solved(&[("n floordiv 2", 3, ""), ("n", 7, "")]), Ok("n = 7".into()));
}

#[test]
fn problems_are_all_reported_with_their_origins() {
    let errors = solved(&[
        ("batch", 2, "input `a` axis 0"),
        ("batch", 3, "input `b` axis 0"),
        ("2*n + 1", 8, "input `c` axis 0"),
        ("m + 5", 3, "input `d` axis 0"),
        ("7", 8, "input `e` axis 1"),
        ("batch*4", 9, "input `f` axis 0"),
        ("batch + k", 5, "input `g` axis 0"),
        ("batch*k", 5, "input `h` axis 0"),
        ("1 floordiv (batch - 2)", 5, "input `i` axis 0"),
    ])
    .unwrap_err();
    assert_eq!(
        errors,
        [
            "symbol `batch` is 2 (from input `a` axis 0) but 3 (from input `b` axis 0)",
            "`2*n + 1` cannot be 8 (from input `c` axis 0) for an integer `n`",
            "symbol `m` would be -2 (from input `d` axis 0), but a size is never negative",
            "input `e` axis 1 is 8, but `7` is 7",
            "input `f` axis 0 is 9, but `4*batch` is 8, where `batch` = 2 (from input `a` axis 0)",
            "input `h` axis 0 is 5, but `batch*k` is 6, where `batch` = 2 (from input `a` axis 0) and `k` = 3 (from input `g` axis 0)",
            "division by zero in `1 floordiv (batch - 2)` (from input `i` axis 0)",
        ]
    );
}

#[test]
fn explicit_bindings_and_bounds() {
    let initial = [("n", 4)].into_iter().collect();
    let none = Bounds::new();
    assert_eq!(solved_from(&[("n*m", 12, "x")], &initial, &none), Ok("m = 3, n = 4".into()));
    assert_eq!(
        solved_from(&[("n", 5, "input `x` axis 0")], &initial, &none),
        Err(vec!["symbol `n` is 4 (from the explicit binding) but 5 (from input `x` axis 0)".into()])
    );
    let bounds = [("n", (1, Some(3))), ("m", (2, None))].into_iter().collect();
    assert_eq!(
        solved_from(&[("m", 1, "input `x` axis 0")], &initial, &bounds),
        Err(vec![
            "symbol `n` is 4 (from the explicit binding), outside its bounds 1..=3".into(),
            "symbol `m` is 1 (from input `x` axis 0), outside its bounds 2..=".into(),
        ])
    );
    let negative = [("n", -1)].into_iter().collect();
    assert_eq!(solved_from(&[("n floordiv 2", 0, "x")], &negative, &none).unwrap_err().len(), 2);
    let missing = unsolved(&[dim("a*b"), dim("min(c, n)"), dim("a")], &initial);
    assert_eq!(missing, [Symbol::new("a"), Symbol::new("b"), Symbol::new("c")]);
}

#[test]
fn extreme_sizes_do_not_panic() {
    for value in [i64::MIN, i64::MAX, -1, 0] {
        for text in ["n - 9223372036854775807", "9223372036854775807*n + 1", "-9223372036854775808*n", "overflow()"] {
            let result = solve(&equations(&[(text, value, "x"), ("n", 3, "y")]), &DimBinding::new(), &Bounds::new());
            assert!(result.is_err(), "{text} = {value}");
        }
    }
}

#[test]
fn programs_share_subexpressions() {
    let shared = dim("(a*b + 1) floordiv c");
    let dims = vec![&shared + 1, &shared * 2, shared.max(Dim::symbol("a")), shared.clone(), Dim::from(9)];
    let program = DimProgram::new(dims.clone());
    assert_eq!(program.symbols().iter().map(Symbol::name).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(program.step_count() <= 9, "{}", program.step_count());
    let mut out = vec![1, 2, 3];
    program.eval_into(&[3, 5, 4], &mut out).unwrap();
    assert_eq!(out, [5, 8, 4, 4, 9]);
    let capacity = out.capacity();
    program.eval_into(&[10, 5, 4], &mut out).unwrap();
    assert_eq!((out.as_slice(), out.capacity()), ([13, 24, 12, 12, 9].as_slice(), capacity));
    assert_eq!(program.eval_into(&[1, 1, 0], &mut out), Err(DimError::DivisionByZero { dim: shared }));
    assert_eq!(program.eval_into(&[1, 1], &mut out), Err(DimError::ValueCount { expected: 3, found: 2 }));
    assert!(matches!(program.eval_into(&[1, -1, 1], &mut out), Err(DimError::Negative { .. })));
    assert!(DimProgram::new([dim("overflow()")]).eval_into(&[], &mut out).is_err());
    assert!(DimProgram::new([]).eval_into(&[], &mut out).is_ok());
    assert!(out.is_empty());
}

#[test]
fn a_thousand_dims_take_few_steps() {
    let dims = (0..1000i64).map(|i| {
        let base = Dim::symbol("batch") * Dim::symbol("seq") * (i + 1);
        if i % 3 == 0 { base.floor_div(Dim::symbol("heads")) } else { base + i }
    });
    let program = DimProgram::new(dims);
    let mut out = Vec::new();
    program.eval_into(&[8, 12, 128], &mut out).unwrap();
    // The shared product is computed once; a dim takes a scaling and a quotient or sum.
    assert!(program.step_count() <= 3 * 1000 + 10, "{}", program.step_count());
    assert_eq!(out[1], 2 * 8 * 128 + 1);
}
