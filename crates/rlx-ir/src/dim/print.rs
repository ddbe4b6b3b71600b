//! Text of dims: `2*batch*seq + seq floordiv 4 - 1`. [`Dim::parse`](super::Dim::parse) reads it back to the same dim.

use std::fmt::{self, Write};

use super::{Atom, Dim, Invalid, Term};

/// Words of the grammar, which a symbol of that name must not be mistaken for.
pub(super) const RESERVED: [&str; 8] = ["floordiv", "ceildiv", "mod", "min", "max", "bcast", "overflow", "too_large"];

/// True for a name that stands without quotes.
pub(super) fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(is_identifier_start) && bytes.all(is_identifier_part) && !RESERVED.contains(&name)
}

pub(super) fn is_identifier_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

pub(super) fn is_identifier_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

pub(super) fn write_symbol(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    if is_identifier(name) {
        return f.write_str(name);
    }
    f.write_char('"')?;
    for c in name.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            '\n' => f.write_str("\\n")?,
            c if c.is_control() => write!(f, "\\u{{{:x}}}", u32::from(c))?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_invalid() {
            Some(Invalid::Overflow) => return f.write_str("overflow()"),
            Some(Invalid::TooLarge) => return f.write_str("too_large()"),
            None => {}
        }
        let constant = self.constant_term();
        if self.terms().is_empty() {
            return write!(f, "{constant}");
        }
        for (index, term) in self.terms().iter().enumerate() {
            let negative = term.coefficient() < 0;
            f.write_str(match (index, negative) {
                (0, false) => "",
                (0, true) => "-",
                (_, false) => " + ",
                (_, true) => " - ",
            })?;
            // A leading minus binds to the operand of a division, so the division stands in parentheses.
            write_term(f, term, index == 0 && negative)?;
        }
        match constant {
            0 => Ok(()),
            c if c < 0 => write!(f, " - {}", c.unsigned_abs()),
            c => write!(f, " + {c}"),
        }
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Dim::from_parts(vec![self.clone()], 0), f)
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Symbol(symbol) => fmt::Display::fmt(symbol, f),
            Self::FloorDiv(a, b) => write_binary(f, a, "floordiv", b),
            Self::CeilDiv(a, b) => write_binary(f, a, "ceildiv", b),
            Self::Mod(a, b) => write_binary(f, a, "mod", b),
            Self::Min(list) => write_call(f, "min", list),
            Self::Max(list) => write_call(f, "max", list),
            Self::Bcast(list) => write_call(f, "bcast", list),
        }
    }
}

impl fmt::Debug for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A term without its sign.
fn write_term(f: &mut fmt::Formatter<'_>, term: &Term, protect: bool) -> fmt::Result {
    let magnitude = term.coefficient().unsigned_abs();
    let alone = magnitude == 1 && term.factors().len() == 1 && !protect;
    if magnitude != 1 {
        write!(f, "{magnitude}*")?;
    }
    for (index, (atom, power)) in term.factors().iter().enumerate() {
        if index > 0 {
            f.write_char('*')?;
        }
        if is_binary(atom) && !(alone && *power == 1) {
            write!(f, "({atom})")?;
        } else {
            write!(f, "{atom}")?;
        }
        if *power > 1 {
            write!(f, "^{power}")?;
        }
    }
    Ok(())
}

fn is_binary(atom: &Atom) -> bool {
    matches!(atom, Atom::FloorDiv(..) | Atom::CeilDiv(..) | Atom::Mod(..))
}

fn write_binary(f: &mut fmt::Formatter<'_>, a: &Dim, word: &str, b: &Dim) -> fmt::Result {
    write_operand(f, a)?;
    write!(f, " {word} ")?;
    write_operand(f, b)
}

fn write_operand(f: &mut fmt::Formatter<'_>, dim: &Dim) -> fmt::Result {
    let simple = dim.as_const().is_some_and(|value| value >= 0) || dim.as_atom().is_some_and(|atom| !is_binary(atom));
    if simple { write!(f, "{dim}") } else { write!(f, "({dim})") }
}

fn write_call(f: &mut fmt::Formatter<'_>, name: &str, list: &[Dim]) -> fmt::Result {
    write!(f, "{name}(")?;
    for (index, dim) in list.iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        write!(f, "{separator}{dim}")?;
    }
    f.write_char(')')
}
