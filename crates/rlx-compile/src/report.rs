//! What a compilation says of itself.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::lir::Lir;
use crate::remark::{Remark, RemarkKind};

/// One run of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassReport {
    /// The pass.
    pub name: &'static str,
    /// Time it took, verification not counted.
    pub time: Duration,
    /// Nodes before, those of nested graphs included.
    pub nodes_before: usize,
    /// Nodes after.
    pub nodes_after: usize,
    /// How often each of its rewrites was applied.
    pub rewrites: BTreeMap<&'static str, u64>,
    /// What it remarked.
    pub remarks: Vec<Remark>,
}

/// Something that is done otherwise than an option asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The option.
    pub option: &'static str,
    /// What it asked for.
    pub asked: String,
    /// What is done.
    pub got: String,
    /// Why.
    pub why: String,
}

impl Fallback {
    /// A fallback.
    pub fn new(option: &'static str, asked: impl ToString, got: impl ToString, why: impl Into<String>) -> Self {
        Fallback { option, asked: asked.to_string(), got: got.to_string(), why: why.into() }
    }
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "option `{}` asked for {}, got {}: {}", self.option, self.asked, self.got, self.why)
    }
}

/// A kernel of a compiled program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelReport {
    /// Its kind.
    pub kind: &'static str,
    /// Names of the source nodes that it computes.
    pub loc: Arc<str>,
    /// Programs around it: 0 in the main program, 1 in a branch or body there, …
    pub depth: usize,
}

/// What was fused and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FusionReport {
    /// What was fused.
    pub fused: Vec<Remark>,
    /// What was not, and why.
    pub missed: Vec<Remark>,
}

/// All runs of passes, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompileReport {
    /// The runs.
    pub passes: Vec<PassReport>,
    /// What is done otherwise than options asked.
    pub fallbacks: Vec<Fallback>,
    /// Name of the target that everything is placed on.
    pub target: String,
    /// Kernels of the main program in order, those of nested programs after the one that runs them; empty for targets that take graphs.
    pub placement: Vec<KernelReport>,
    /// Kernels of the main program by kind, those of nested programs included; empty for targets that take graphs.
    pub kernels: Vec<(String, usize)>,
}

impl CompileReport {
    /// Appends a run.
    pub fn add(&mut self, pass: PassReport) {
        self.passes.push(pass);
    }

    /// Lists a program's kernels.
    pub(crate) fn place(&mut self, main: &Lir) {
        main.count_kernels(&mut self.kernels);
        list(main, 0, &mut self.placement);
    }

    /// All remarks in order.
    pub fn remarks(&self) -> impl Iterator<Item = &Remark> {
        self.passes.iter().flat_map(|p| &p.remarks)
    }

    /// What lowering fused, and what it did not and why. Empty if remarks are off.
    pub fn fusion(&self) -> FusionReport {
        let of = |wanted: &dyn Fn(RemarkKind) -> bool| {
            let lower = self.passes.iter().filter(|p| p.name == "lower").flat_map(|p| &p.remarks);
            lower.filter(|r| wanted(r.kind)).cloned().collect()
        };
        FusionReport { fused: of(&|k| k == RemarkKind::Applied), missed: of(&|k| k != RemarkKind::Applied) }
    }

    /// How often a rewrite of a pass was applied in all.
    pub fn count(&self, pass: &str, rewrite: &str) -> u64 {
        self.passes.iter().filter(|p| p.name == pass).filter_map(|p| p.rewrites.get(rewrite)).sum()
    }

    /// Time of all passes together.
    pub fn time(&self) -> Duration {
        self.passes.iter().map(|p| p.time).sum()
    }
}

fn list(lir: &Lir, depth: usize, out: &mut Vec<KernelReport>) {
    for k in &lir.kernels {
        out.push(KernelReport { kind: k.kernel.kind(), loc: k.loc.clone(), depth });
        k.kernel.nested().iter().for_each(|sub| list(&sub.program, depth + 1, out));
    }
}

/// A table: time, nodes, name, rewrites.
impl fmt::Display for CompileReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for p in &self.passes {
            let ms = p.time.as_secs_f64() * 1e3;
            write!(f, "{ms:9.3} ms  {:5} -> {:5}  {}", p.nodes_before, p.nodes_after, p.name)?;
            let list: Vec<String> = p.rewrites.iter().map(|(name, n)| format!("{name} {n}")).collect();
            if !list.is_empty() {
                write!(f, " ({})", list.join(", "))?;
            }
            writeln!(f)?;
        }
        writeln!(f, "{:9.3} ms  in all", self.time().as_secs_f64() * 1e3)
    }
}
