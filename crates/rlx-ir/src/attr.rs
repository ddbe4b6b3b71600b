//! Attributes of ops: plain data with a text form.
//!
//! A field of an op is printed as `name = value` and read back from the raw text of its value, so each type knows its own
//! spelling and no value needs a marker of its type.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::dim::{Dim, Symbol};
use crate::dtype::DType;
use crate::types::Type;

/// A float attribute: equal and hashed by bits, printed so that it reads back exactly.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FloatBits(u64);

impl FloatBits {
    /// The bits of a float.
    pub fn new(x: f64) -> Self {
        FloatBits(x.to_bits())
    }

    /// The float.
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl From<f64> for FloatBits {
    fn from(x: f64) -> Self {
        FloatBits::new(x)
    }
}

impl From<f32> for FloatBits {
    fn from(x: f32) -> Self {
        FloatBits::new(f64::from(x))
    }
}

impl fmt::Display for FloatBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print_float(self.get()))
    }
}

impl fmt::Debug for FloatBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The shortest text that reads back to the same f64; NaNs show their bits.
pub fn print_float(x: f64) -> String {
    if x.is_nan() {
        if x.to_bits() == f64::NAN.to_bits() { "nan".into() } else { format!("nan:0x{:x}", x.to_bits()) }
    } else {
        format!("{x:?}")
    }
}

/// Reads what [`print_float`] prints, and plain integers.
pub fn parse_float(s: &str) -> Result<f64, String> {
    if let Some(hex) = s.strip_prefix("nan:0x") {
        return u64::from_str_radix(hex, 16)
            .map(f64::from_bits)
            .ok()
            .filter(|x| x.is_nan())
            .ok_or_else(|| format!("`{s}` is not the bits of a NaN"));
    }
    s.parse().map_err(|_| format!("expected a float, found `{s}`"))
}

/// A value that can be an op's attribute.
pub trait AttrValue: Sized {
    /// The text form.
    fn print(&self) -> String;
    /// Reads the text form.
    fn parse(text: &str) -> Result<Self, String>;
}

impl AttrValue for bool {
    fn print(&self) -> String {
        self.to_string()
    }
    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("expected true or false, found `{text}`"))
    }
}

macro_rules! int_attr {
    ($($t:ty),*) => { $(impl AttrValue for $t {
        fn print(&self) -> String { self.to_string() }
        fn parse(text: &str) -> Result<Self, String> {
            text.parse().map_err(|_| format!("expected an integer ({}), found `{text}`", stringify!($t)))
        }
    })* };
}
int_attr!(i64, usize, u32, u64);

impl AttrValue for FloatBits {
    fn print(&self) -> String {
        self.to_string()
    }
    fn parse(text: &str) -> Result<Self, String> {
        parse_float(text).map(FloatBits::new)
    }
}

impl AttrValue for DType {
    fn print(&self) -> String {
        self.name().into()
    }
    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|e: crate::dtype::UnknownDType| e.to_string())
    }
}

impl AttrValue for Dim {
    fn print(&self) -> String {
        self.to_string()
    }
    fn parse(text: &str) -> Result<Self, String> {
        Dim::parse(text).map_err(|e| e.to_string())
    }
}

impl AttrValue for Symbol {
    fn print(&self) -> String {
        Dim::from(self.clone()).to_string()
    }
    fn parse(text: &str) -> Result<Self, String> {
        let d = Dim::parse(text).map_err(|e| e.to_string())?;
        d.as_symbol().cloned().ok_or_else(|| format!("expected a symbol, found `{text}`"))
    }
}

/// As types are printed everywhere: `f32[n, 4]`, `seq<f32[n]>`, `opt<f32[n]>`.
impl AttrValue for Type {
    fn print(&self) -> String {
        self.to_string()
    }
    fn parse(text: &str) -> Result<Self, String> {
        parse_type(text, 0)
    }
}

/// Deepest nesting of sequences and optionals that is read.
const MAX_TYPE_NESTING: usize = 32;

fn parse_type(text: &str, nesting: usize) -> Result<Type, String> {
    let bad = || format!("expected a type like f32[n, 4], found `{}`", text.chars().take(60).collect::<String>());
    if nesting > MAX_TYPE_NESTING {
        return Err(format!("types nest deeper than {MAX_TYPE_NESTING} levels"));
    }
    for (open, wrap) in [("seq<", Type::Sequence as fn(Box<Type>) -> Type), ("opt<", Type::Optional)] {
        if let Some(inner) = text.strip_prefix(open) {
            let inner = inner.strip_suffix('>').ok_or_else(bad)?.trim();
            return Ok(wrap(Box::new(parse_type(inner, nesting + 1)?)));
        }
    }
    let (dtype, dims) = text.strip_suffix(']').and_then(|t| t.split_once('[')).ok_or_else(bad)?;
    let dims = split_list(dims)?.into_iter().map(<Dim as AttrValue>::parse).collect::<Result<Vec<_>, _>>()?;
    Ok(Type::tensor(<DType as AttrValue>::parse(dtype.trim())?, dims))
}

impl AttrValue for String {
    fn print(&self) -> String {
        quote(self)
    }
    fn parse(text: &str) -> Result<Self, String> {
        unquote(text)
    }
}

impl<T: AttrValue> AttrValue for Option<T> {
    fn print(&self) -> String {
        self.as_ref().map_or_else(|| "none".into(), AttrValue::print)
    }
    fn parse(text: &str) -> Result<Self, String> {
        if text == "none" { Ok(None) } else { T::parse(text).map(Some) }
    }
}

impl<T: AttrValue> AttrValue for Vec<T> {
    fn print(&self) -> String {
        let items: Vec<String> = self.iter().map(AttrValue::print).collect();
        format!("[{}]", items.join(", "))
    }
    fn parse(text: &str) -> Result<Self, String> {
        let inner = text
            .strip_prefix('[')
            .and_then(|t| t.strip_suffix(']'))
            .ok_or_else(|| format!("expected a list in [ ], found `{text}`"))?;
        split_list(inner)?.into_iter().map(T::parse).collect()
    }
}

/// A string in double quotes, with `"`, `\` and control characters escaped.
pub fn quote(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 2);
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => out.push_str(&format!("\\u{{{:x}}}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Reads what [`quote`] prints.
pub fn unquote(text: &str) -> Result<String, String> {
    let inner = text
        .strip_prefix('"')
        .and_then(|t| t.strip_suffix('"'))
        .filter(|_| text.len() >= 2)
        .ok_or_else(|| format!("expected a string in double quotes, found `{text}`"))?;
    let mut out = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('u') => {
                let hex: String = chars.by_ref().skip(1).take_while(|&c| c != '}').collect();
                let c = u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32);
                out.push(c.ok_or_else(|| format!("`\\u{{{hex}}}` is no character"))?);
            }
            Some(c @ ('"' | '\\')) => out.push(c),
            other => return Err(format!("unknown escape `\\{}`", other.unwrap_or(' '))),
        }
    }
    Ok(out)
}

/// Splits at top-level commas, honouring brackets and quotes; an empty text is no item.
pub fn split_list(text: &str) -> Result<Vec<&str>, String> {
    let mut items = Vec::new();
    let (mut depth, mut start, mut quoted, mut escaped) = (0i32, 0, false, false);
    for (i, c) in text.char_indices() {
        if quoted {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => quoted = false,
                _ => {}
            }
            continue;
        }
        match c {
            '"' => quoted = true,
            '[' | '(' | '{' => depth += 1,
            ']' | ')' | '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(text.get(start..i).unwrap_or("").trim());
                start = i + 1;
            }
            _ => {}
        }
        if depth < 0 {
            return Err(format!("unbalanced brackets in `{text}`"));
        }
    }
    if quoted || depth != 0 {
        return Err(format!("unbalanced brackets or quotes in `{text}`"));
    }
    let last = text.get(start..).unwrap_or("").trim();
    if !last.is_empty() || !items.is_empty() {
        items.push(last);
    }
    Ok(items)
}

/// Attributes being printed, in order.
#[derive(Default)]
pub struct AttrWriter(Vec<(&'static str, String)>);

impl AttrWriter {
    /// Adds one attribute.
    pub fn put<T: AttrValue>(&mut self, name: &'static str, value: &T) {
        self.0.push((name, value.print()));
    }

    /// Name and text of each.
    pub fn entries(&self) -> &[(&'static str, String)] {
        &self.0
    }
}

/// Attributes being read. What nobody takes is an error.
pub struct AttrReader(Vec<(String, String)>);

impl AttrReader {
    /// From names and raw texts.
    pub fn new(entries: Vec<(String, String)>) -> Self {
        AttrReader(entries)
    }

    /// Takes an attribute by name.
    pub fn take<T: AttrValue>(&mut self, name: &str) -> Result<T, String> {
        let at = self.0.iter().position(|(n, _)| n == name).ok_or_else(|| format!("attribute `{name}` is missing"))?;
        let (_, text) = self.0.remove(at);
        T::parse(&text).map_err(|e| format!("attribute `{name}`: {e}"))
    }

    /// Errors if any attribute is left.
    pub fn finish(self) -> Result<(), String> {
        match self.0.first() {
            None => Ok(()),
            Some((n, _)) => Err(format!("unknown attribute `{n}`")),
        }
    }
}

/// Declares an enum of plain words that can be an attribute: `attr_enum! { /// doc pub enum Mode { /// doc Edge = "edge" } }`.
#[macro_export]
macro_rules! attr_enum {
    ($(#[$doc:meta])* pub enum $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every variant, in order of declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
            /// The word in text form.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }

        impl $crate::op::MapDims for $name {}

        impl $crate::attr::AttrValue for $name {
            fn print(&self) -> String { self.name().into() }
            fn parse(text: &str) -> Result<Self, String> {
                match text {
                    $($text => Ok($name::$variant),)*
                    _ => Err(format!("expected one of {:?}, found `{text}`", [$($text),*])),
                }
            }
        }
    };
}
