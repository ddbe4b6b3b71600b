//! What is known of a program's sizes before any is: which symbols each segment knows, and the dim program that
//! evaluates what becomes known with them.

use super::symbols::Solver;
use rlx_compile::lir::{Lir, Storage};
use rlx_ir::DimBinding;
use rlx_ir::dim::{Constraint, Dim, DimProgram, Symbol};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// A constraint with the positions of its two dims among its segment's results.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The record in the program's list.
    pub record: usize,
    /// Position of the first dim.
    pub left: usize,
    /// Position of the second dim.
    pub right: usize,
}

/// One segment.
pub struct Segment {
    /// Kernels.
    pub kernels: Range<usize>,
    /// Symbols that its last kernel defines.
    pub defines: Vec<Symbol>,
    /// Number of symbols known at its start.
    pub known: usize,
    /// Dims of the table that become known, in the order of the dim program's first results.
    pub dims: Vec<u32>,
    /// Evaluates `dims`, then the dims of `checks`.
    pub program: DimProgram,
    /// Constraints that become decidable.
    pub checks: Vec<Check>,
    /// Arena buffers that it places.
    pub arena: Vec<u32>,
    /// Output buffers whose sizes become known.
    pub outputs: Vec<u32>,
}

/// All segments.
pub struct Segments {
    /// Symbols: those known at the start, then those that each segment defines.
    pub symbols: Vec<Symbol>,
    /// The segments, at least one; the last defines nothing.
    pub list: Vec<Segment>,
    /// How the first symbols are found.
    pub solver: Solver,
}

impl Segments {
    /// Works out segments.
    pub fn new(lir: &Lir, outer: &[Symbol], given: &DimBinding) -> Result<Segments, String> {
        let mut cuts: Vec<(Range<usize>, Vec<Symbol>)> = lir
            .segments
            .iter()
            .map(|s| (s.kernels.start as usize..s.kernels.end as usize, s.defines.clone()))
            .collect();
        let kernels = lir.kernels.len();
        let covered = cuts.iter().try_fold(0, |at, (r, _)| (r.start == at && r.end >= at).then_some(r.end));
        if cuts.is_empty() {
            cuts.push((0..kernels, Vec::new()));
        } else if covered != Some(kernels) {
            return Err("segments do not cover the kernels in order".into());
        }
        if cuts.last().is_some_and(|(_, d)| !d.is_empty()) {
            cuts.push((kernels..kernels, Vec::new()));
        }
        let defined: BTreeSet<&Symbol> = cuts.iter().flat_map(|(_, d)| d).collect();
        // Known at the start: all that no kernel defines.
        let mut first: BTreeSet<Symbol> = BTreeSet::new();
        let constraint_dims = lir.constraints.iter().flat_map(|c| {
            let (a, b) = c.constraint.dims();
            [a, b]
        });
        for dim in lir.dims.dims().iter().chain(constraint_dims) {
            dim.for_each_symbol(&mut |s| {
                if !defined.contains(s) {
                    first.insert(s.clone());
                }
            });
        }
        let mut symbols: Vec<Symbol> = first.into_iter().collect();
        let start = symbols.len();
        symbols.extend(cuts.iter().flat_map(|(_, d)| d.iter().cloned()));
        let position: HashMap<Symbol, usize> = symbols.iter().cloned().enumerate().map(|(i, s)| (s, i)).collect();
        let mut known = start;
        let starts: Vec<usize> = cuts
            .iter()
            .map(|(_, d)| {
                let k = known;
                known += d.len();
                k
            })
            .collect();
        // The first segment that knows a dim's symbols.
        let segment_of = |dim: &Dim| {
            let mut last = 0;
            dim.for_each_symbol(&mut |s| last = last.max(position.get(s).map_or(0, |&p| p + 1)));
            starts.iter().position(|&k| k >= last).unwrap_or(starts.len() - 1)
        };
        let homes: Vec<usize> = lir.dims.dims().iter().map(segment_of).collect();
        let home = |id: &rlx_compile::lir::DimId| homes.get(id.index()).copied().unwrap_or(0);
        let mut list = Vec::with_capacity(cuts.len());
        for (s, (kernels, defines)) in cuts.iter().enumerate() {
            let dims: Vec<u32> = (0..homes.len()).filter(|&d| homes[d] == s).map(|d| d as u32).collect();
            let mut exprs: Vec<Dim> = dims.iter().map(|&d| lir.dims.dims()[d as usize].clone()).collect();
            let mut checks = Vec::new();
            for (record, c) in lir.constraints.iter().enumerate() {
                let (a, b) = c.constraint.dims();
                if segment_of(a).max(segment_of(b)) == s {
                    checks.push(Check { record, left: exprs.len(), right: exprs.len() + 1 });
                    exprs.extend([a.clone(), b.clone()]);
                }
            }
            let program = DimProgram::with_symbols(symbols[..starts[s]].iter().cloned(), exprs);
            list.push(Segment {
                kernels: kernels.clone(),
                defines: defines.clone(),
                known: starts[s],
                dims,
                program,
                checks,
                arena: Vec::new(),
                outputs: Vec::new(),
            });
        }
        for (i, b) in lir.buffers.iter().enumerate() {
            let sized = b.shape.iter().map(home).max().unwrap_or(0).max(home(&b.numel));
            match b.storage {
                Storage::Arena => {
                    let first = b.live.map_or(0, |(first, _)| first as usize);
                    let used = list.iter().position(|s| s.kernels.contains(&first)).unwrap_or(0);
                    list[sized.max(used)].arena.push(i as u32);
                }
                Storage::Output(_) => list[sized].outputs.push(i as u32),
                _ => {}
            }
        }
        let solver = Solver::new(lir, &symbols[..start], outer, given);
        Ok(Segments { symbols, list, solver })
    }

    /// Symbols that are known when a kernel runs.
    pub fn symbols_at(&self, kernel: usize) -> &[Symbol] {
        let known = self.list.iter().find(|s| s.kernels.contains(&kernel)).map_or(0, |s| s.known);
        self.symbols.get(..known).unwrap_or(&self.symbols)
    }
}

/// Whether a constraint holds for two values.
pub fn holds(c: &Constraint, left: i64, right: i64) -> bool {
    match c {
        Constraint::Eq(..) => left == right,
        Constraint::Broadcastable(..) => left == right || left == 1 || right == 1,
        Constraint::Le(..) => left <= right,
        Constraint::Divisible(..) => {
            if right == 0 {
                left == 0
            } else {
                left.wrapping_rem(right) == 0
            }
        }
    }
}
