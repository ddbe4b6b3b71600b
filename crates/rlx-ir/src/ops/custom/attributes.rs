//! Attributes by name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::attr::{AttrValue, FloatBits, split_list};
use crate::op::MapDims;

/// The value of one attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Attribute {
    /// An integer.
    Int(i64),
    /// A float, equal by bits.
    Float(FloatBits),
    /// A string.
    String(String),
    /// Integers.
    Ints(Vec<i64>),
    /// Floats.
    Floats(Vec<FloatBits>),
    /// Strings.
    Strings(Vec<String>),
}

impl From<i64> for Attribute {
    fn from(i: i64) -> Self {
        Attribute::Int(i)
    }
}

impl From<f64> for Attribute {
    fn from(x: f64) -> Self {
        Attribute::Float(x.into())
    }
}

impl From<&str> for Attribute {
    fn from(s: &str) -> Self {
        Attribute::String(s.into())
    }
}

impl From<Vec<i64>> for Attribute {
    fn from(v: Vec<i64>) -> Self {
        Attribute::Ints(v)
    }
}

impl From<Vec<f64>> for Attribute {
    fn from(v: Vec<f64>) -> Self {
        Attribute::Floats(v.into_iter().map(FloatBits::new).collect())
    }
}

/// Attributes by name, printed as `{alpha = 0.5, axes = [0, 1], mode = "fast"}`. A list without elements reads back as integers, which is why
/// [`Attributes::floats`] and [`Attributes::strings`] take that for none of theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attributes(BTreeMap<String, Attribute>);

impl Attributes {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Attribute>) -> Self {
        self.0.insert(name.into(), value.into());
        self
    }

    /// By name.
    pub fn get(&self, name: &str) -> Option<&Attribute> {
        self.0.get(name)
    }

    /// Names and values in order of name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Attribute)> {
        self.0.iter().map(|(n, a)| (n.as_str(), a))
    }

    /// An integer.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.get(name)? {
            Attribute::Int(i) => Some(*i),
            _ => None,
        }
    }

    /// A float.
    pub fn float(&self, name: &str) -> Option<f64> {
        match self.get(name)? {
            Attribute::Float(x) => Some(x.get()),
            _ => None,
        }
    }

    /// A string.
    pub fn string(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Attribute::String(s) => Some(s),
            _ => None,
        }
    }

    /// Integers.
    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        match self.get(name)? {
            Attribute::Ints(v) => Some(v),
            _ => None,
        }
    }

    /// Floats.
    pub fn floats(&self, name: &str) -> Option<Vec<f64>> {
        match self.get(name)? {
            Attribute::Floats(v) => Some(v.iter().map(|x| x.get()).collect()),
            Attribute::Ints(v) if v.is_empty() => Some(Vec::new()),
            _ => None,
        }
    }

    /// Strings.
    pub fn strings(&self, name: &str) -> Option<&[String]> {
        match self.get(name)? {
            Attribute::Strings(v) => Some(v),
            Attribute::Ints(v) if v.is_empty() => Some(&[]),
            _ => None,
        }
    }
}

impl FromIterator<(String, Attribute)> for Attributes {
    fn from_iter<I: IntoIterator<Item = (String, Attribute)>>(list: I) -> Self {
        Attributes(list.into_iter().collect())
    }
}

impl MapDims for Attributes {}

impl AttrValue for Attribute {
    fn print(&self) -> String {
        match self {
            Attribute::Int(i) => i.print(),
            Attribute::Float(x) => x.print(),
            Attribute::String(s) => s.print(),
            Attribute::Ints(v) => v.print(),
            Attribute::Floats(v) => v.print(),
            Attribute::Strings(v) => v.print(),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let one = |t: &str| match t {
            t if t.starts_with('"') => String::parse(t).map(Attribute::String),
            // A float shows a point, an exponent or a name.
            t => i64::parse(t).map(Attribute::Int).or_else(|_| FloatBits::parse(t).map(Attribute::Float)),
        };
        let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) else { return one(text) };
        let items = split_list(inner)?;
        match items.first().map(|t| one(t)).transpose()? {
            None | Some(Attribute::Int(_)) => Vec::parse(text).map(Attribute::Ints),
            Some(Attribute::Float(_)) => Vec::parse(text).map(Attribute::Floats),
            Some(_) => Vec::parse(text).map(Attribute::Strings),
        }
    }
}

impl AttrValue for Attributes {
    fn print(&self) -> String {
        let one = |(n, a): (&str, &Attribute)| {
            // Names that are no words of the text form stand in quotes.
            let word = !n.is_empty() && n.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            format!("{} = {}", if word { n.to_owned() } else { crate::attr::quote(n) }, a.print())
        };
        format!("{{{}}}", self.iter().map(one).collect::<Vec<_>>().join(", "))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let inner = text.strip_prefix('{').and_then(|t| t.strip_suffix('}'));
        let inner = inner.ok_or_else(|| format!("expected attributes in {{ }}, found `{text}`"))?;
        let mut all = BTreeMap::new();
        for item in split_list(inner)? {
            let (name, value) = named(item)?;
            if all.insert(name.clone(), Attribute::parse(value)?).is_some() {
                return Err(format!("attribute `{name}` is given twice"));
            }
        }
        Ok(Attributes(all))
    }
}

/// `name = value` taken apart.
fn named(item: &str) -> Result<(String, &str), String> {
    let bad = || format!("expected `name = value`, found `{item}`");
    if !item.starts_with('"') {
        let (name, value) = item.split_once('=').ok_or_else(bad)?;
        return Ok((name.trim().to_owned(), value.trim()));
    }
    let mut escaped = false;
    for (i, c) in item.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => {
                let (name, rest) = item.split_at(i + 1);
                let value = rest.trim_start().strip_prefix('=').ok_or_else(bad)?;
                return Ok((crate::attr::unquote(name)?, value.trim()));
            }
            _ => {}
        }
    }
    Err(bad())
}
