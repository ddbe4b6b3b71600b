//! Remarks: what a pass did or gave up, with where in the source and why.

use std::cell::RefCell;
use std::fmt;

use rlx_ir::Loc;

/// Whether something was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemarkKind {
    /// It was done.
    Applied,
    /// It was given up.
    Missed,
    /// Something to know.
    Note,
}

/// One remark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The pass.
    pub pass: &'static str,
    /// The source nodes it speaks of.
    pub loc: Loc,
    /// What was done or not, and why.
    pub message: String,
    /// Whether it was done.
    pub kind: RemarkKind,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            RemarkKind::Applied => "",
            RemarkKind::Missed => "missed: ",
            RemarkKind::Note => "note: ",
        };
        write!(f, "{}: {kind}{}", self.pass, self.message)?;
        match self.loc.name() {
            Some(name) => write!(f, " at \"{name}\""),
            None => Ok(()),
        }
    }
}

/// Collects remarks through shared references.
#[derive(Debug, Default)]
pub struct Remarks(RefCell<Vec<Remark>>);

impl Remarks {
    /// Adds a remark.
    pub fn add(&self, pass: &'static str, kind: RemarkKind, loc: &Loc, message: impl Into<String>) {
        self.0.borrow_mut().push(Remark { pass, loc: loc.clone(), message: message.into(), kind });
    }

    /// What was collected, leaving nothing.
    pub fn take(&self) -> Vec<Remark> {
        self.0.take()
    }
}
