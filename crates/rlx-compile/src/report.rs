//! What a compilation says of itself.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::remark::Remark;

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

/// All runs of passes, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompileReport {
    /// The runs.
    pub passes: Vec<PassReport>,
    /// Kernels of the main program by kind, those of nested programs included; empty for targets that take graphs.
    pub kernels: Vec<(String, usize)>,
}

impl CompileReport {
    /// Appends a run.
    pub fn add(&mut self, pass: PassReport) {
        self.passes.push(pass);
    }

    /// All remarks in order.
    pub fn remarks(&self) -> impl Iterator<Item = &Remark> {
        self.passes.iter().flat_map(|p| &p.remarks)
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
