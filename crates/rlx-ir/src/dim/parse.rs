//! Reader of dim expressions, also as part of a larger text.
//!
//! ```text
//! dim     = product { ("+" | "-") product }
//! product = unary { ("*" | "floordiv" | "ceildiv" | "mod") unary }      left to right
//! unary   = { "-" } primary [ "^" integer ]
//! primary = integer | name | '"' text '"' | "(" dim ")" | ("min" | "max" | "bcast") "(" dim { "," dim } ")"
//!         | "overflow" "(" ")" | "too_large" "(" ")"
//! ```
//!
//! Nesting is bounded, so that no text overflows the stack.

use super::monomial::MAX_DEGREE;
use super::print::{RESERVED, is_identifier_part, is_identifier_start};
use super::{Dim, DimParseError, Invalid, MAX_DEPTH};

/// Deepest nesting of parentheses. Printing puts at most two around one level of atoms.
const MAX_NESTING: u32 = 2 * MAX_DEPTH + 8;

/// Magnitude of the least `i64`, which has no positive counterpart.
const MIN_MAGNITUDE: u64 = i64::MIN.unsigned_abs();

impl Dim {
    /// Reads a text that is one dim expression.
    pub fn parse(text: &str) -> Result<Self, DimParseError> {
        let mut parser = Parser { text, at: 0, nesting: 0 };
        let dim = parser.dim()?;
        parser.skip_space();
        if parser.at < text.len() {
            return Err(parser.error("unexpected text after the dim expression"));
        }
        Ok(dim)
    }

    /// Reads the longest dim expression that the text starts with, and says how many bytes it takes. White space before
    /// the expression counts, white space behind it does not. An arrow `->` ends an expression.
    pub fn parse_prefix(text: &str) -> Result<(Self, usize), DimParseError> {
        let mut parser = Parser { text, at: 0, nesting: 0 };
        let dim = parser.dim()?;
        Ok((dim, parser.at))
    }
}

impl std::str::FromStr for Dim {
    type Err = DimParseError;

    fn from_str(text: &str) -> Result<Self, DimParseError> {
        Self::parse(text)
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    nesting: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operator {
    Times,
    FloorDiv,
    CeilDiv,
    Mod,
}

impl<'t> Parser<'t> {
    fn error(&self, message: impl Into<String>) -> DimParseError {
        DimParseError { offset: self.at, message: message.into() }
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    /// Skips space and the byte where it comes next; else stays.
    fn eat(&mut self, byte: u8) -> bool {
        let start = self.at;
        self.skip_space();
        if self.peek() == Some(byte) {
            self.at += 1;
            return true;
        }
        self.at = start;
        false
    }

    fn expect(&mut self, byte: u8) -> Result<(), DimParseError> {
        if self.eat(byte) {
            return Ok(());
        }
        self.skip_space();
        Err(self.error(format!("expected `{}`", char::from(byte))))
    }

    /// The identifier that starts here.
    fn word(&self) -> &'t str {
        let rest = self.rest();
        if !rest.bytes().next().is_some_and(is_identifier_start) {
            return "";
        }
        let end = rest.bytes().position(|byte| !is_identifier_part(byte)).unwrap_or(rest.len());
        rest.get(..end).unwrap_or("")
    }

    fn dim(&mut self) -> Result<Dim, DimParseError> {
        if self.nesting >= MAX_NESTING {
            return Err(self.error(format!("dim expression nests deeper than {MAX_NESTING} levels")));
        }
        self.nesting += 1;
        let mut total = self.product(false)?;
        loop {
            let start = self.at;
            if self.eat(b'+') {
                total += self.product(false)?;
            } else if self.eat(b'-') {
                if self.peek() == Some(b'>') {
                    self.at = start;
                    break;
                }
                total += self.product(true)?;
            } else {
                break;
            }
        }
        self.nesting -= 1;
        Ok(total)
    }

    fn operator(&mut self) -> Option<Operator> {
        if self.eat(b'*') {
            return Some(Operator::Times);
        }
        let start = self.at;
        self.skip_space();
        let word = self.word();
        let operator = match word {
            "floordiv" => Operator::FloorDiv,
            "ceildiv" => Operator::CeilDiv,
            "mod" => Operator::Mod,
            _ => {
                self.at = start;
                return None;
            }
        };
        self.at += word.len();
        Some(operator)
    }

    /// A product, negated where a minus stands before it.
    fn product(&mut self, negated: bool) -> Result<Dim, DimParseError> {
        let (mut result, sign_taken) = self.unary(negated)?;
        while let Some(operator) = self.operator() {
            let (operand, _) = self.unary(false)?;
            if sign_taken && operator != Operator::Times {
                // The minus before the product was needed to represent its first number.
                result = Dim::invalid(Invalid::Overflow);
            }
            result = match operator {
                Operator::Times => result * operand,
                Operator::FloorDiv => result.floor_div(operand),
                Operator::CeilDiv => result.ceil_div(operand),
                Operator::Mod => result.rem_floor(operand),
            };
        }
        Ok(if negated && !sign_taken { -result } else { result })
    }

    /// A factor, and whether it took in the minus that stands before its product. Only the least `i64` does, as it
    /// cannot be written without a sign.
    fn unary(&mut self, negated: bool) -> Result<(Dim, bool), DimParseError> {
        let mut minus = false;
        while self.eat(b'-') {
            minus = !minus;
        }
        self.skip_space();
        let number = self.integer()?;
        if number == Some(MIN_MAGNITUDE) && minus != negated {
            return Ok((Dim::constant(i64::MIN), negated));
        }
        let mut dim = match number {
            Some(value) => i64::try_from(value).map_or(Dim::invalid(Invalid::Overflow), Dim::constant),
            None => self.primary()?,
        };
        if self.eat(b'^') {
            self.skip_space();
            let exponent = self.integer()?.and_then(|value| u32::try_from(value).ok());
            match exponent.filter(|value| *value <= MAX_DEGREE) {
                Some(exponent) => dim = dim.power(exponent),
                None => return Err(self.error(format!("expected a power from 0 to {MAX_DEGREE}"))),
            }
        }
        Ok((if minus { -dim } else { dim }, false))
    }

    fn integer(&mut self) -> Result<Option<u64>, DimParseError> {
        let rest = self.rest();
        let length = rest.bytes().take_while(u8::is_ascii_digit).count();
        let digits = rest.get(..length).unwrap_or("");
        if digits.is_empty() {
            return Ok(None);
        }
        let value = digits.parse::<u64>().ok().filter(|value| *value <= MIN_MAGNITUDE);
        let value = value.ok_or_else(|| self.error("number does not fit in 64 bits"))?;
        self.at += length;
        Ok(Some(value))
    }

    fn primary(&mut self) -> Result<Dim, DimParseError> {
        if self.eat(b'(') {
            let dim = self.dim()?;
            self.expect(b')')?;
            return Ok(dim);
        }
        if self.peek() == Some(b'"') {
            return Ok(Dim::symbol(self.quoted()?));
        }
        let word = self.word();
        if word.is_empty() {
            return Err(self.error("expected a number, a symbol, `(`, `min`, `max` or `bcast`"));
        }
        let fold: fn(Vec<Dim>) -> Dim = match word {
            "min" => |list| Dim::min_of(list),
            "max" => |list| Dim::max_of(list),
            "bcast" => |list| Dim::bcast_of(list),
            "overflow" | "too_large" => {
                let reason = if word == "overflow" { Invalid::Overflow } else { Invalid::TooLarge };
                self.at += word.len();
                self.expect(b'(')?;
                self.expect(b')')?;
                return Ok(Dim::invalid(reason));
            }
            _ if RESERVED.contains(&word) => {
                return Err(self.error(format!("`{word}` is an operator; quote it to name a symbol")));
            }
            _ => {
                self.at += word.len();
                return Ok(Dim::symbol(word));
            }
        };
        self.at += word.len();
        self.expect(b'(')?;
        let mut list = vec![self.dim()?];
        while self.eat(b',') {
            list.push(self.dim()?);
        }
        self.expect(b')')?;
        Ok(fold(list))
    }

    /// A quoted name with the escapes `\"`, `\\`, `\n` and `\u{hex}`.
    fn quoted(&mut self) -> Result<String, DimParseError> {
        let start = self.at;
        let mut name = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((offset, c)) = chars.next() {
            match c {
                '"' => {
                    self.at = start + offset + 1;
                    return Ok(name);
                }
                '\\' => {
                    let escaped = match chars.next().map(|(_, c)| c) {
                        Some(c @ ('"' | '\\')) => Some(c),
                        Some('n') => Some('\n'),
                        Some('u') => {
                            let code = chars.by_ref().map(|(_, c)| c).take_while(|c| *c != '}').take(8);
                            let code = code.collect::<String>();
                            let hex = code.strip_prefix('{').unwrap_or("");
                            u32::from_str_radix(hex, 16).ok().and_then(char::from_u32)
                        }
                        _ => None,
                    };
                    self.at = start + offset;
                    name.push(escaped.ok_or_else(|| self.error("unknown escape in a quoted symbol"))?);
                }
                c => name.push(c),
            }
        }
        self.at = start;
        Err(self.error("quoted symbol has no closing quote"))
    }
}
