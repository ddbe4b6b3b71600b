//! The rules, one by one.

use super::dim;
use crate::dim::{Atom, Bounds, Dim, DimBinding, DimError, Invalid, Symbol};

#[track_caller]
fn same(text: &str, expected: &str) {
    assert_eq!(dim(text).to_string(), expected, "{text}");
}

#[test]
fn sums_and_products_are_canonical() {
    same("seq*batch*2 - 1 + seq floordiv 4", "2*batch*seq + seq floordiv 4 - 1");
    same("(a + b)*(a - b)", "a^2 - b^2");
    same("a - a", "0");
    same("3*a*0 + 0", "0");
    same("(n + 1)^2", "n^2 + 2*n + 1");
    assert_eq!(Dim::product([Dim::from(2), "n".parse().unwrap(), Dim::from(3)]), dim("6*n"));
    assert_eq!(Dim::sum([Dim::from(2), Dim::symbol("n"), Dim::symbol("n")]), dim("2*n + 2"));
    assert_eq!(Dim::product(Vec::<Dim>::new()), 1);
    assert_eq!(2i64.pow(3), 8 * (Dim::symbol("n") - Dim::symbol("n") + 1).as_const().unwrap());
}

#[test]
fn reshape_inference_cancels_symbols() {
    same("(b*s*384) floordiv (b*s*12)", "32");
    same("batch*seq*384 floordiv (12*batch)", "32*seq");
    same("(b*(s + 1)*(t + 1)) floordiv ((s + 1)*b)", "t + 1");
    same("768*b*((h floordiv 16)*(w floordiv 16) + 1) floordiv (12*b*((h floordiv 16)*(w floordiv 16) + 1))", "64");
    same("(5*b*s) floordiv (2*b)", "2*s + s floordiv 2");
    same("(b*s + b) floordiv (b*t + b)", "(s + 1) floordiv (t + 1)");
    same("(b*s + 3) floordiv b", "s + 3 floordiv b");
    same("(b*s*384) mod (b*s*12)", "0");
    same("(b*s*384) ceildiv (b*s*12)", "32");
}

#[test]
fn division_by_constants() {
    same("n floordiv 1", "n");
    same("n ceildiv 1", "n");
    same("n mod 1", "0");
    same("(4*a + b) floordiv 4", "a + b floordiv 4");
    same("(2*n + 1) floordiv 4", "n floordiv 2");
    same("(n - 1) floordiv 2 + 1", "(n + 1) floordiv 2");
    same("((n - 1) floordiv 2) floordiv 2", "(n + 3) floordiv 4 - 1");
    same("n ceildiv 4", "(n + 3) floordiv 4");
    same("(n + n floordiv 2) floordiv 3", "n floordiv 2");
    same("n floordiv (-2)", "(-n) floordiv 2");
    same("(5*n + 7) mod 4", "(n + 3) mod 4");
    same("(2*n + 1) mod 4", "2*(n mod 2) + 1");
    same("(n mod 4) floordiv 4", "0");
    same("(n mod 4) mod 7", "n mod 4");
    same("-7 floordiv 2", "-4");
    same("(-7) mod 2", "1");
    same("7 mod (-2)", "-1");
    same("(-7) ceildiv 2", "-3");
    same("7 ceildiv (-2)", "-3");
    same("n ceildiv m", "n ceildiv m");
}

#[test]
fn strided_convolution_stack_collapses() {
    let mut size = Dim::symbol("h");
    for _ in 0..5 {
        size = (&size + 2 - 3).floor_div(2) + 1;
    }
    assert_eq!(size, dim("(h + 31) floordiv 32"));
}

#[test]
fn division_by_zero_stays_until_evaluation() {
    for text in ["n floordiv 0", "3 mod 0", "0 ceildiv 0"] {
        let zero = dim(text);
        assert_eq!(zero.eval(&[("n", 3)].into_iter().collect()), Err(DimError::DivisionByZero { dim: zero.clone() }));
    }
    let binding = [("a", 1), ("b", 0)].into_iter().collect::<DimBinding>();
    let error = dim("2*a + (a floordiv b)*3").eval(&binding).unwrap_err();
    assert_eq!(error.to_string(), "division by zero in `a floordiv b`");
}

#[test]
fn min_and_max() {
    same("min(n, n + 1)", "n");
    same("max(n, n + 1, 5 - 5)", "n + 1");
    same("min(n, 0)", "0");
    same("max(n, 0)", "n");
    same("min(a, min(b, a))", "min(a, b)");
    same("max(3, max(a, 4))", "max(4, a)");
    same("min(n floordiv 2, -1)", "-1");
    same("n * min(1, n)", "n");
    same("2 * n * m * min(n, 1) - n * m", "m*n");
    assert_ne!(dim("n * min(1, m)"), dim("n"));
    assert_ne!(dim("n * min(2, n)"), dim("n"));
}

#[test]
fn broadcasts() {
    same("bcast(a, a)", "a");
    same("bcast(a, 1)", "a");
    same("bcast(1, 1)", "1");
    same("bcast(a, 5)", "5");
    same("bcast(a, 0)", "0");
    same("bcast(b, a)", "bcast(a, b)");
    same("bcast(bcast(a, c), bcast(b, a))", "bcast(a, b, c)");
    same("bcast(a, min(a, 32))", "a");
    assert_ne!(dim("bcast(a, min(a, 1))"), dim("a"));
    same("bcast(min(a, b), min(a, b, 2))", "min(a, b)");
    assert_ne!(dim("bcast(b, min(a, 32))"), dim("b"));
    // Wherever the two broadcast, the sizes are equal.
    for a in 0..6 {
        for bound in 2..5 {
            let short = a.min(bound);
            if short == a || short == 1 || a == 1 {
                assert_eq!(short, a);
            }
        }
    }
    let three = dim("bcast(a, b, c)");
    let value = |a: i64, b: i64, c: i64| three.eval(&[("a", a), ("b", b), ("c", c)].into_iter().collect());
    assert_eq!(value(1, 7, 1), Ok(7));
    assert_eq!(value(1, 1, 1), Ok(1));
    assert_eq!(value(0, 1, 0), Ok(0));
    assert_eq!(value(2, 1, 3), Err(DimError::BroadcastMismatch { dim: three.clone(), left: 2, right: 3 }));
}

#[test]
fn accessors() {
    assert_eq!(Dim::from(3usize).as_const(), Some(3));
    assert_eq!(Dim::from(-3i32).as_const(), Some(-3));
    assert_eq!(Dim::symbol("n").as_symbol(), Some(&Symbol::new("n")));
    assert_eq!(dim("n + 1").as_symbol(), None);
    assert_eq!(dim("2*n").as_symbol(), None);
    assert_eq!(dim("n*n").as_symbol(), None);
    assert!(matches!(dim("n mod 2").as_atom(), Some(Atom::Mod(..))));
    let names = dim("a*b + min(c, d mod e) + a").symbols();
    assert_eq!(names.iter().map(Symbol::name).collect::<Vec<_>>(), ["a", "b", "c", "d", "e"]);
}

#[test]
fn constants_that_overflow_poison_the_dim() {
    let big = Dim::from(i64::MAX);
    for sum in [&big + 1, &big * 2, -Dim::from(i64::MIN), &big * (Dim::symbol("n") * 2), dim("overflow() * 0")] {
        assert_eq!(sum.as_invalid(), Some(Invalid::Overflow), "{sum}");
        assert!(matches!(sum.eval(&DimBinding::new()), Err(DimError::Overflow { .. })));
        assert_eq!(sum.known_eq(&sum), None);
        assert_eq!(sum.lower_bound(), None);
    }
    let least = Dim::from(i64::MIN);
    assert_eq!(least.floor_div(-1).as_invalid(), Some(Invalid::Overflow));
    assert_eq!(least.rem_floor(-1), 0);
    let n = Dim::symbol("n");
    for extreme in [i64::MIN, i64::MIN + 1, i64::MAX] {
        let binding = [("n", 5)].into_iter().collect();
        assert_eq!(n.floor_div(extreme).eval(&binding), Ok(if extreme < 0 { -1 } else { 0 }));
        assert_eq!(n.ceil_div(extreme).eval(&binding), Ok(if extreme < 0 { 0 } else { 1 }));
        assert_eq!(n.rem_floor(extreme).eval(&binding), Ok(if extreme < 0 { extreme + 5 } else { 5 }));
    }
    for extreme in [i64::MIN + 1, i64::MAX] {
        assert_eq!((&n * extreme).floor_div(extreme), n);
    }
    let binding = [("n", i64::MAX)].into_iter().collect();
    let error = dim("n + 1").eval(&binding).unwrap_err();
    assert_eq!(error.to_string(), "`n + 1` does not fit in 64 bits");
}

#[test]
fn growth_is_limited() {
    let mut nested = Dim::symbol("n");
    for step in 0..100_000 {
        nested = nested.max(nested.rem_floor(Dim::symbol(format!("m{}", step % 7))) + step);
    }
    assert_eq!(nested.as_invalid(), Some(Invalid::TooLarge));
    let wide = Dim::sum((0..5000).map(|index| Dim::symbol(format!("s{index}"))));
    assert_eq!(wide.as_invalid(), Some(Invalid::TooLarge));
    let mut product = (0..20).map(|index| Dim::symbol(format!("s{index}")) + 1).reduce(|a, b| a * b).unwrap();
    product = &product * &product;
    assert_eq!(product.as_invalid(), Some(Invalid::TooLarge));
    assert_eq!(product.eval(&DimBinding::new()), Err(DimError::TooLarge));
    assert_eq!(Dim::max_of((0..100).map(|i| Dim::symbol(format!("s{i}")))).as_invalid(), Some(Invalid::TooLarge));
}

#[test]
fn known_relations() {
    assert_eq!(dim("n").known_eq(&dim("n")), Some(true));
    assert_eq!(dim("n").known_eq(&dim("n + 1")), Some(false));
    assert_eq!(dim("n").known_eq(&dim("m")), None);
    assert_eq!(dim("n + 3").known_eq(&dim("2")), Some(false));
    assert_eq!(dim("n").known_le(&dim("n + m")), Some(true));
    assert_eq!(dim("n + m + 1").known_le(&dim("n")), Some(false));
    assert_eq!(dim("n").known_le(&dim("m")), None);
    assert_eq!(dim("n mod 8").upper_bound(), Some(7));
    assert_eq!(dim("n mod 8").lower_bound(), Some(0));
    assert_eq!(dim("n").upper_bound(), None);
    let bounds = [("n", (1, Some(512)))].into_iter().collect::<Bounds>();
    assert_eq!(dim("2*n + 1").upper_bound_with(&bounds), Some(1025));
    assert_eq!(dim("n floordiv 4").upper_bound_with(&bounds), Some(128));
    assert_eq!(dim("100 floordiv n").interval_with(&bounds).max(), Some(100));
    assert_eq!(dim("n").known_le_with(&dim("512"), &bounds), Some(true));
    assert_eq!(dim("n").known_eq_with(&dim("0"), &bounds), Some(false));
}

#[test]
fn substitution_simplifies_again() {
    let map = [(Symbol::new("a"), dim("2*n")), (Symbol::new("b"), Dim::from(1))].into_iter().collect();
    assert_eq!(dim("(a + b) floordiv 2").substitute(&map), dim("n"));
    assert_eq!(dim("bcast(a, b)").substitute(&map), dim("2*n"));
    assert_eq!(dim("a*a*c").substitute(&map), dim("4*c*n^2"));
    assert_eq!(dim("overflow()").substitute(&map).as_invalid(), Some(Invalid::Overflow));
}

#[test]
fn evaluation_errors_name_the_symbol() {
    let error = dim("2*batch + 1").eval(&DimBinding::new()).unwrap_err();
    assert!(error.to_string().starts_with("symbol `batch` in `batch` has no value"), "{error}");
    let error = dim("n").eval(&[("n", -2)].into_iter().collect()).unwrap_err();
    assert_eq!(error.to_string(), "symbol `n` is -2, but a size is never negative");
}
