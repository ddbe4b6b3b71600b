//! What a pass is, and what it works with.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use rlx_ir::{IrError, Loc, Module};

use crate::options::CompileOptions;
use crate::remark::{RemarkKind, Remarks};
use crate::target::{Claims, Offender};

/// A part of the pipeline, in order. Compilation can stop after each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// What the options say of sizes is applied.
    Import,
    /// Shape arithmetic is gone, constants are folded, what is double or dead is dropped.
    Canonical,
    /// What exporters broke up is whole again.
    Recognise,
    /// What the options ask of numbers is done: precision.
    Transform,
    /// Only what the target claims is left.
    Legalise,
    /// What depends on parameters only stands in a module of its own.
    Split,
    /// Kernels over buffers.
    Lower,
}

impl Phase {
    /// All phases in order.
    pub const ALL: [Phase; 7] = [
        Phase::Import,
        Phase::Canonical,
        Phase::Recognise,
        Phase::Transform,
        Phase::Legalise,
        Phase::Split,
        Phase::Lower,
    ];

    /// The name in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Import => "import",
            Phase::Canonical => "canonical",
            Phase::Recognise => "recognise",
            Phase::Transform => "transform",
            Phase::Legalise => "legalise",
            Phase::Split => "split",
            Phase::Lower => "lower",
        }
    }
}

/// Why a pass gave no module.
#[derive(Clone, Debug, PartialEq)]
pub enum PassError {
    /// It met or made a graph that is not well formed.
    Ir(IrError),
    /// The target can neither run nor decompose these.
    Unsupported {
        /// The target.
        target: String,
        /// Every offending node, with why.
        ops: Vec<Offender>,
    },
}

impl From<IrError> for PassError {
    fn from(e: IrError) -> Self {
        PassError::Ir(e)
    }
}

static RUNS: AtomicU64 = AtomicU64::new(0);

/// How many passes this process has run, for tests that show that a compiled program needs no more of them.
pub fn runs() -> u64 {
    RUNS.load(Ordering::Relaxed)
}

/// A pass: from one module to another that means the same.
pub struct Pass {
    /// Its name.
    pub name: &'static str,
    /// The phase it first stands in.
    pub phase: Phase,
    /// One line of documentation.
    pub summary: &'static str,
    /// The work. A pass that finds nothing to do gives the module back as it is.
    pub run: fn(Module, &PassCx<'_>) -> Result<Module, PassError>,
}

/// What a pass works with besides the module.
pub struct PassCx<'a> {
    /// Name of the pass at work.
    pub pass: &'static str,
    /// Options of the compilation.
    pub options: &'a CompileOptions,
    /// What the target takes; `None` where no target is known.
    pub claims: Option<&'a Claims>,
    remarks: Remarks,
    counters: RefCell<BTreeMap<&'static str, u64>>,
}

impl<'a> PassCx<'a> {
    /// A context for one run of a pass.
    pub fn new(pass: &'static str, options: &'a CompileOptions, claims: Option<&'a Claims>) -> Self {
        RUNS.fetch_add(1, Ordering::Relaxed);
        PassCx { pass, options, claims, remarks: Remarks::default(), counters: RefCell::default() }
    }

    /// Counts one application of a named rewrite.
    pub fn count(&self, rewrite: &'static str) {
        *self.counters.borrow_mut().entry(rewrite).or_default() += 1;
    }

    /// Remarks on something.
    pub fn remark(&self, kind: RemarkKind, loc: &Loc, message: impl Into<String>) {
        self.remarks.add(self.pass, kind, loc, message);
    }

    /// The remarks so far, leaving none.
    pub fn take_remarks(&self) -> Vec<crate::remark::Remark> {
        self.remarks.take()
    }

    /// How often each rewrite was applied, leaving nothing.
    pub fn take_counters(&self) -> BTreeMap<&'static str, u64> {
        self.counters.take()
    }

    /// How many rewrites were applied so far.
    pub fn total(&self) -> u64 {
        self.counters.borrow().values().sum()
    }
}
