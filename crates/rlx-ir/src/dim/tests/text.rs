//! Text and serialisation.

use super::dim;
use crate::dim::{Dim, DimBinding, DimProgram, Symbol};

#[test]
fn symbols_that_are_no_identifiers_are_quoted() {
    for (name, text) in [
        ("batch", "batch"),
        ("unk__214", "unk__214"),
        ("_x9", "_x9"),
        ("p2o.DynamicDimension.0", r#""p2o.DynamicDimension.0""#),
        ("mod", r#""mod""#),
        ("min", r#""min""#),
        ("9n", r#""9n""#),
        ("", r#""""#),
        ("a\"b\\c\nd\u{1}", r#""a\"b\\c\nd\u{1}""#),
        ("größe", r#""größe""#),
    ] {
        assert_eq!(Symbol::new(name).to_string(), text);
        assert_eq!(dim(text).as_symbol().map(Symbol::name), Some(name));
        assert_eq!(dim(&format!("2*{text} - 1")), Dim::symbol(name) * 2 - 1);
    }
}

#[test]
fn parentheses_stand_where_needed() {
    for text in [
        "-(n floordiv m)",
        "-n",
        "(-n) floordiv m",
        "2*(n floordiv m)",
        "a*(n mod m) - n ceildiv m",
        "a floordiv (b floordiv (c + 1))",
        "(a mod b) floordiv c",
        "(2*a) floordiv (3*b)",
        "min(a, b)*max(a + 1, b)^2",
        "(a floordiv b)^2",
        "n - 9223372036854775808",
        "-9223372036854775808*n",
        "a - 9223372036854775808*n",
        "-9223372036854775808",
        "9223372036854775807",
        "overflow()",
        "too_large()",
    ] {
        assert_eq!(dim(text).to_string(), text);
        assert_eq!(format!("{:?}", dim(text)), text);
    }
    assert_eq!(dim(" - - n*2 "), dim("2*n"));
    assert_eq!(dim("-n floordiv 2"), dim("(-n) floordiv 2"));
    assert_eq!(dim("a - b floordiv c"), dim("a - (b floordiv c)"));
    assert_eq!(dim("24 floordiv 4 * 2 mod 5"), Dim::from(2));
    assert!(dim("9223372036854775808").as_invalid().is_some());
    assert!(dim("1 - 9223372036854775808 floordiv n").as_invalid().is_some());
}

#[test]
fn prefixes_stop_at_foreign_text() {
    for (text, expected, length) in [
        ("batch, seq]", "batch", 5),
        (" 2*n + 1 ] rest", "2*n + 1", 8),
        ("n -> (f32)", "n", 1),
        ("n - 1 -> (f32)", "n - 1", 5),
        ("n modulo", "n", 1),
        ("min(a, b)]", "min(a, b)", 9),
        ("\"a b\"x", "\"a b\"", 5),
        ("3x4", "3", 1),
    ] {
        let (found, used) = Dim::parse_prefix(text).unwrap();
        assert_eq!((found.to_string().as_str(), used), (expected, length), "{text}");
    }
}

#[test]
fn bad_texts_say_where() {
    for (text, offset) in [
        ("", 0),
        ("n +", 3),
        ("n m", 2),
        ("(n", 2),
        ("min(n", 5),
        ("min()", 4),
        ("floordiv", 0),
        ("n floordiv", 10),
        ("99999999999999999999", 0),
        ("n^99999", 7),
        ("\"n", 0),
        ("\"n\\q\"", 2),
        ("\"\\u{110000}\"", 1),
        ("ü", 0),
        ("n ü", 2),
    ] {
        let error = Dim::parse(text).unwrap_err();
        assert_eq!(error.offset, offset, "{text}: {error}");
    }
}

#[test]
fn hostile_texts_do_not_hang_or_overflow() {
    let deep = 1_000_000;
    assert!(Dim::parse(&"(".repeat(deep)).is_err());
    assert!(Dim::parse(&"min(".repeat(deep)).is_err());
    assert_eq!(dim(&format!("{}n", "-".repeat(deep))), dim("n"));
    let minus = "1 floordiv n floordiv ".repeat(10_000) + "m";
    assert!(dim(&minus).as_invalid().is_some());
    let sum = (0..20_000).map(|i| format!("s{i}")).collect::<Vec<_>>().join(" + ");
    assert!(dim(&sum).as_invalid().is_some());
    let power = "((a + b + c + d + e)^64)^64 * (a + b + c + d + f)^64";
    assert!(dim(power).as_invalid().is_some());
    let list = (0..2000).map(|i| format!("a{i} mod b{i}")).collect::<Vec<_>>().join(", ");
    assert!(dim(&format!("min({list})")).as_invalid().is_some());
}

#[test]
fn serialises_as_text() {
    let expression = dim("2*\"a b\" + seq floordiv 4 - 1");
    let json = serde_json::to_string(&expression).unwrap();
    assert_eq!(
        json,
        r#""seq floordiv 4 + 2*\"a b\" - 1""#
            .replace("seq floordiv 4 + 2*\\\"a b\\\"", "2*\\\"a b\\\" + seq floordiv 4")
    );
    assert_eq!(serde_json::from_str::<Dim>(&json).unwrap(), expression);
    assert!(serde_json::from_str::<Dim>("\"2*\"").is_err());

    let binding = [("seq", 128), ("batch", 2)].into_iter().collect::<DimBinding>();
    assert_eq!(binding.to_string(), "batch = 2, seq = 128");
    let json = serde_json::to_string(&binding).unwrap();
    assert_eq!(json, r#"{"batch":2,"seq":128}"#);
    assert_eq!(serde_json::from_str::<DimBinding>(&json).unwrap(), binding);

    let program = DimProgram::with_symbols([Symbol::new("z"), Symbol::new("seq")], [dim("seq*z + 1"), dim("a")]);
    let json = serde_json::to_string(&program).unwrap();
    let again = serde_json::from_str::<DimProgram>(&json).unwrap();
    assert_eq!(again, program);
    assert_eq!(again.symbols().iter().map(Symbol::name).collect::<Vec<_>>(), ["z", "seq", "a"]);
    let mut out = Vec::new();
    again.eval_into(&[3, 5, 7], &mut out).unwrap();
    assert_eq!(out, [16, 7]);
}
