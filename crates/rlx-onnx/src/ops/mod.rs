//! ONNX's ops, one line each in a table of their group: name, operator-set versions, and the function that imports a node.

mod attention;
mod axes;
mod context;
mod control;
mod convolution;
mod custom;
mod elementwise;
mod indexing;
mod linear;
mod losses;
mod microsoft;
mod normalisation;
mod pooling;
mod quantisation;
mod random;
mod recent;
mod recurrent;
mod reduction;
mod resample;
mod resize;
mod sampling;
mod selection;
mod shape;
mod signal;
mod sizes;
mod slicing;
mod text;
mod training;

pub(crate) use context::{Failure, NodeCx, Out};
pub(crate) use custom::{custom, custom_name};
pub(crate) use shape::constant_tensor;

/// The newest operator set of the standard domain that the tables know.
pub(crate) const NEWEST_OPSET: i64 = 28;

/// One op of ONNX.
pub(crate) struct OpEntry {
    /// Its domain; the standard one is empty.
    pub domain: &'static str,
    /// Its name.
    pub name: &'static str,
    /// First operator-set version that is read: before it the op was not there, or meant something else.
    pub since: i64,
    /// Last one; `i64::MAX` while it stands.
    pub until: i64,
    /// Imports a node: gives its results in order.
    pub run: fn(&mut NodeCx<'_, '_>) -> Out,
}

/// An op of the standard domain.
const fn op(name: &'static str, since: i64, run: fn(&mut NodeCx<'_, '_>) -> Out) -> OpEntry {
    OpEntry { domain: "", name, since, until: i64::MAX, run }
}

/// An op of the standard domain that was taken out of it.
const fn old(name: &'static str, since: i64, until: i64, run: fn(&mut NodeCx<'_, '_>) -> Out) -> OpEntry {
    OpEntry { domain: "", name, since, until, run }
}

/// An op of ONNX Runtime's domain.
const fn ms(name: &'static str, run: fn(&mut NodeCx<'_, '_>) -> Out) -> OpEntry {
    OpEntry { domain: "com.microsoft", name, since: 1, until: i64::MAX, run }
}

/// All tables.
fn tables() -> impl Iterator<Item = &'static [OpEntry]> {
    let standard = [
        elementwise::OPS,
        shape::OPS,
        slicing::OPS,
        indexing::OPS,
        reduction::OPS,
        linear::OPS,
        convolution::OPS,
        pooling::OPS,
        normalisation::OPS,
        control::OPS,
        recurrent::OPS,
        resize::OPS,
        attention::OPS,
        quantisation::OPS,
        losses::OPS,
        random::OPS,
        recent::OPS,
        sampling::OPS,
        selection::OPS,
        signal::OPS,
        text::OPS,
        training::OPS,
    ];
    standard.into_iter().chain(microsoft::tables())
}

/// The entry of an op in a version of its operator set.
pub(crate) fn find(domain: &str, name: &str, version: i64) -> Result<&'static OpEntry, Failure> {
    let mut versions = Vec::new();
    for e in tables().flatten().filter(|e| e.domain == domain && e.name == name) {
        if (e.since..=e.until).contains(&version) {
            return Ok(e);
        }
        versions.push(e);
    }
    match versions.first() {
        None => Err(Failure::unsupported("")),
        Some(e) if version < e.since => Err(Failure::unsupported(format!("it exists since operator set {}", e.since))),
        Some(e) => Err(Failure::unsupported(format!("it was taken out after operator set {}", e.until))),
    }
}

/// An operator that the importer reads, for the generated table of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Operator {
    /// Its domain; the standard one is empty.
    pub domain: &'static str,
    /// Its name.
    pub name: &'static str,
    /// First version of the domain's operator set that it is read of.
    pub since: i64,
    /// The last one, if it was taken out.
    pub until: Option<i64>,
}

/// All operators that the importer reads, by domain and name.
pub fn operators() -> Vec<Operator> {
    let until = |e: &OpEntry| Some(e.until).filter(|&u| u != i64::MAX);
    let mut all: Vec<Operator> = tables()
        .flatten()
        .map(|e| Operator { domain: e.domain, name: e.name, since: e.since, until: until(e) })
        .collect();
    all.sort_unstable();
    all
}
