//! The text form of modules, at every stage: what is printed is short, stable and diffable, and reads back to the same module.
//!
//! Invariants:
//! - printing is a function of structure alone: values without a usable name are numbered in order of printing, so that two graphs
//!   that differ only in how their values happen to be numbered print alike;
//! - `parse(print(m))` prints as `m` does and has the same nodes, types, names and places; constraints and known elements come back
//!   from inference, those that inference does not give are printed;
//! - large default values are printed as `external "name"` and come back only through a resolver ([`parse_module_with`]);
//! - the parser knows no op: mnemonics and attributes are read by [`Op::parse`](crate::Op::parse);
//! - no text makes the parser panic, overflow the stack or take more memory than a multiple of its length.
//!
//! The grammar stands in `docs/ir.md`.

mod ast;
mod build;
mod cursor;
mod print;
mod syntax;

pub use build::{External, ExternalKind, parse_graph, parse_module, parse_module_with};

/// Greatest nesting of graphs in text.
pub const MAX_NESTING: usize = crate::eval::MAX_DEPTH;

/// Most elements of a default value that is printed in place.
pub const MAX_INLINE_ELEMS: usize = 16;

/// True for a name that is printed without quotes: a letter or `_`, then letters, digits, `_` and `.`.
fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(cursor::is_identifier_start) && bytes.all(cursor::is_identifier_part)
}

/// A name as text has it: bare if it is an identifier, else quoted.
fn name_text(name: &str) -> String {
    if is_identifier(name) { name.into() } else { crate::attr::quote(name) }
}

#[cfg(test)]
mod tests;
