//! The state of a graph that grows, and what every maker of nodes needs.

use std::collections::BTreeMap;

use super::data::{BOUND, Rng, random_tensor};
use super::{GraphOptions, RandomGraph, makers};
use crate::builder::Builder;
use crate::dim::{Dim, DimBinding, Symbol};
use crate::dtype::DType;
use crate::eval::EvalInputs;
use crate::graph::{Loc, Module, ValueId};
use crate::op::Op;
use crate::ops::shape::Constant;
use crate::tensor::Value;
use crate::types::Type;

/// Sizes that find mistakes: none, one, primes, around vector widths.
const SIZES: [usize; 13] = [0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17];

/// Largest magnitude that tame floats may reach: inside f16.
const TAME_BOUND: f64 = 3e4;

/// Attempts to add a node before the graph is left as it is.
const TRIES: usize = 200;

/// A value at hand.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub id: ValueId,
    pub dtype: DType,
    pub dims: Vec<Dim>,
    pub sizes: Vec<usize>,
    /// Any right implementation computes the same bits.
    pub exact: bool,
    /// Floats are at most this large, as far as that is bounded.
    pub bound: f64,
}

/// A node to be added.
pub(super) struct Plan {
    pub op: Op,
    pub operands: Vec<Known>,
    /// Exact if the operands are.
    pub exact: bool,
    /// Bound of the results.
    pub bound: f64,
}

impl Plan {
    /// A node that only moves elements.
    pub fn moves(op: impl Into<Op>, operands: Vec<Known>) -> Plan {
        let bound = operands.iter().fold(0.0, |b: f64, k| b.max(k.bound));
        Plan { op: op.into(), operands, exact: true, bound }
    }
}

/// Nodes that a maker has added itself.
pub(super) struct Built {
    pub results: Vec<ValueId>,
    /// Sizes that the results will have. They give symbols that the nodes define their values.
    pub sizes: Vec<Vec<usize>>,
    pub exact: bool,
    /// Bound of the results.
    pub bound: f64,
}

pub(super) struct Gen<'o> {
    pub rng: Rng,
    pub options: &'o GraphOptions,
    pub b: Builder,
    symbols: Vec<(Symbol, usize)>,
    binding: DimBinding,
    values: Vec<Known>,
    inputs: Vec<Value>,
}

impl Gen<'_> {
    /// A size, as a constant or as a symbol.
    pub fn dim(&mut self) -> (Dim, usize) {
        if self.options.symbols && self.rng.chance(40) {
            if self.symbols.len() < 4 && self.rng.chance(50) {
                let size = SIZES[self.rng.below(SIZES.len())];
                let symbol = Symbol::new(format!("n{}", self.symbols.len()));
                self.binding.set(symbol.clone(), size as i64);
                self.symbols.push((symbol, size));
            }
            if let Some((s, size)) = self.rng.pick(&self.symbols) {
                return (Dim::from(s), *size);
            }
        }
        let size = SIZES[self.rng.below(SIZES.len())];
        (Dim::from(size), size)
    }

    /// A dim that a new source may have: symbols that nodes define and expressions become constants.
    pub fn plain(&self, d: &Dim, n: usize) -> Dim {
        let known = d.as_symbol().is_some_and(|s| self.symbols.iter().any(|(k, _)| k == s));
        if known { d.clone() } else { Dim::from(n) }
    }

    /// A name that no symbol has.
    pub fn fresh_symbol(&self) -> Symbol {
        Symbol::new(format!("d{}", self.values.len()))
    }

    /// A dtype of the options that fits.
    pub fn dtype(&mut self, fits: impl Fn(DType) -> bool) -> Option<DType> {
        let list: Vec<DType> = self.options.dtypes.iter().copied().filter(|&d| fits(d)).collect();
        self.rng.pick(&list).copied()
    }

    /// A new input, parameter or constant.
    pub fn source(&mut self, dtype: DType, dims: Vec<Dim>, sizes: Vec<usize>) -> Option<Known> {
        let specials = self.options.specials && !self.options.tame;
        let tensor = random_tensor(&mut self.rng, dtype, &sizes, specials).ok()?;
        self.source_of(dims, tensor)
    }

    /// A new input, parameter or constant with these contents.
    pub fn source_of(&mut self, dims: Vec<Dim>, tensor: crate::tensor::Tensor) -> Option<Known> {
        let (dtype, sizes) = (tensor.dtype(), tensor.dims().to_vec());
        let ty = Type::tensor(dtype, dims.clone());
        let fixed = dims.iter().all(Dim::is_const);
        let n = self.values.len();
        let id = match self.rng.below(10) {
            0 | 1 => self.b.graph_mut().add_param(&format!("w{n}"), ty, Some(tensor)).ok()?,
            2 if fixed && tensor.numel() <= 64 => self.b.op1(Constant { value: tensor }, &[]).ok()?,
            _ => {
                let id = self.b.graph_mut().add_input(&format!("x{n}"), ty).ok()?;
                self.inputs.push(tensor.into());
                id
            }
        };
        let known = Known { id, dtype, dims, sizes, exact: true, bound: BOUND };
        self.values.push(known.clone());
        Some(known)
    }

    /// A new source of any shape.
    pub fn any_source(&mut self, dtype: DType) -> Option<Known> {
        let rank = self.rng.below(self.options.max_rank + 1);
        let (mut dims, mut sizes) = (Vec::new(), Vec::new());
        for _ in 0..rank {
            let (d, n) = self.dim();
            if sizes.iter().product::<usize>().saturating_mul(n) > self.options.max_elems {
                break;
            }
            dims.push(d);
            sizes.push(n);
        }
        self.source(dtype, dims, sizes)
    }

    /// A value that fits: often the newest, sometimes a new one.
    pub fn pick(&mut self, fits: impl Fn(&Known) -> bool) -> Option<Known> {
        let list: Vec<&Known> = self.values.iter().filter(|k| fits(k)).collect();
        let at = if self.rng.chance(50) { list.len().checked_sub(1)? } else { self.rng.below(list.len()) };
        list.get(at).map(|&k| k.clone())
    }

    /// A value of a dtype that broadcasts with `x`: one at hand, or a new one with some axes missing, 1, or of another symbol.
    pub fn partner(&mut self, x: &Known, dtype: DType) -> Option<Known> {
        if self.rng.chance(50) {
            let fits = |k: &Known| k.dtype == dtype && broadcasts(&k.sizes, &x.sizes);
            if let Some(k) = self.pick(fits) {
                return Some(k);
            }
        }
        let skip = if self.rng.chance(25) { self.rng.below(x.dims.len() + 1) } else { 0 };
        let (mut dims, mut sizes) = (Vec::new(), Vec::new());
        for (d, &n) in x.dims.iter().zip(&x.sizes).skip(skip) {
            let same: Vec<Symbol> = self.symbols.iter().filter(|s| s.1 == n).map(|s| s.0.clone()).collect();
            let roll = self.rng.below(10);
            let (d, n) = match self.rng.pick(&same) {
                _ if roll < 3 => (Dim::ONE, 1),
                Some(s) if roll < 5 => (Dim::from(s), n),
                _ => (self.plain(d, n), n),
            };
            dims.push(d);
            sizes.push(n);
        }
        self.source(dtype, dims, sizes)
    }

    /// Adds the node if it is well typed, holds for the inputs' sizes, and its results are small and tame; its first result.
    pub fn add(&mut self, plan: Plan) -> Option<()> {
        let ids: Vec<ValueId> = plan.operands.iter().map(|k| k.id).collect();
        let (results, constraints) = self.b.graph().infer(&plan.op, &ids, &[], &Loc::none()).ok()?;
        // Operands may each fit one other and not all fit together.
        if constraints.iter().any(|c| c.check(&self.binding).is_err()) {
            return None;
        }
        let mut shapes = Vec::new();
        for r in &results {
            let t = r.ty.as_tensor()?;
            let sizes = t.shape.eval(&self.binding).ok()?;
            let sizes = sizes.into_iter().map(|n| usize::try_from(n).ok()).collect::<Option<Vec<_>>>()?;
            if sizes.iter().try_fold(1usize, |a, &n| a.checked_mul(n))? > self.options.max_elems {
                return None;
            }
            if self.options.tame && t.dtype.is_float() && plan.bound > TAME_BOUND {
                return None;
            }
            shapes.push((t.clone(), sizes));
        }
        let exact = plan.exact && plan.operands.iter().all(|k| k.exact);
        let ids = self.b.op(plan.op, &ids).ok()?;
        for (id, (t, sizes)) in ids.into_iter().zip(shapes) {
            let dims = t.shape.into_dims();
            self.values.push(Known { id, dtype: t.dtype, dims, sizes, exact, bound: plan.bound });
        }
        Some(())
    }
}

impl Gen<'_> {
    /// Keeps what a maker has built, if it is small and tame; otherwise its nodes are dead.
    pub fn keep(&mut self, built: Built) -> Option<()> {
        let mut kept = Vec::new();
        for (&id, sizes) in built.results.iter().zip(&built.sizes) {
            let t = self.b.tensor_type(id).ok()?.clone();
            for (d, &n) in t.shape.iter().zip(sizes) {
                if let Some(s) = d.as_symbol().filter(|s| self.binding.get(s).is_none()) {
                    self.binding.set(s.clone(), n as i64);
                }
            }
            let wild = self.options.tame && t.dtype.is_float() && built.bound > TAME_BOUND;
            if wild || sizes.iter().product::<usize>() > self.options.max_elems {
                return None;
            }
            kept.push(Known {
                id,
                dtype: t.dtype,
                dims: t.shape.into_dims(),
                sizes: sizes.clone(),
                exact: built.exact,
                bound: built.bound,
            });
        }
        self.values.extend(kept);
        Some(())
    }
}

fn broadcasts(a: &[usize], b: &[usize]) -> bool {
    a.iter().rev().zip(b.iter().rev()).all(|(&a, &b)| a == b || a == 1 || b == 1)
}

pub(super) fn generate(seed: u64, nodes: usize, options: &GraphOptions) -> RandomGraph {
    let mut g = Gen {
        rng: Rng::new(seed),
        options,
        b: Builder::new("main"),
        symbols: Vec::new(),
        binding: DimBinding::new(),
        values: Vec::new(),
        inputs: Vec::new(),
    };
    let first = g.dtype(|_| true).unwrap_or(DType::F32);
    let _ = g.any_source(first);
    let (mut added, mut tries) = (0, 0);
    // Attempts count per node, so that a longer graph starts with the shorter one of its seed.
    while added < nodes && tries < TRIES {
        if g.rng.chance(10)
            && let Some(d) = g.dtype(|_| true)
        {
            let _ = g.any_source(d);
        }
        match makers::add(&mut g) {
            Some(()) => (added, tries) = (added + 1, 0),
            None => tries += 1,
        }
    }
    let counts = g.b.graph().use_counts();
    let mut b = g.b;
    for (i, k) in g.values.iter().filter(|k| counts.get(k.id.index()) == Some(&0)).enumerate() {
        let _ = b.output(&format!("y{i}"), k.id);
    }
    let inputs =
        EvalInputs { inputs: g.inputs, params: BTreeMap::new(), states: BTreeMap::new(), binding: DimBinding::new() };
    RandomGraph { module: Module::from_graph(b.finish()), inputs, seed }
}
