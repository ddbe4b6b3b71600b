//! Random well-typed graphs with inputs, for tests that compare two ways of running one graph (feature `testing`).
//!
//! A graph is a function of a seed and a number of nodes: with fewer nodes it is a prefix of the same graph, which is how a failing
//! case shrinks. Shapes have sizes 0, 1, primes and sizes around vector widths, symbolic dims (two symbols of one size included),
//! broadcasts, and slices with negative steps; values have all dtypes. Every graph verifies and evaluates on its inputs.
//!
//! ```
//! use rlx_ir::testing::{GraphOptions, RandomGraph};
//! let g = RandomGraph::generate(7, 12, &GraphOptions::default());
//! let out = rlx_ir::eval::evaluate(&g.module, &g.inputs, Default::default())?;
//! assert_eq!(out.outputs.len(), g.module.main.outputs().len());
//! # Ok::<(), rlx_ir::IrError>(())
//! ```

mod compare;
mod data;
mod generate;
mod makers;

use std::fmt;

use proptest::prelude::{Strategy, any};

use crate::dtype::DType;
use crate::error::IrError;
use crate::eval::EvalInputs;
use crate::graph::{Def, Graph, Loc, Module, ValueId};
use crate::ops::shape::Constant;
use crate::tensor::{Tensor, Value};
use crate::types::Type;

pub use compare::{close, close_all};
pub use data::{Rng, random_tensor};

/// What graphs are like.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphOptions {
    /// Most axes of inputs.
    pub max_rank: usize,
    /// Most elements of a value.
    pub max_elems: usize,
    /// Whether dims may be symbols.
    pub symbols: bool,
    /// Dtypes of inputs and of conversions.
    pub dtypes: Vec<DType>,
    /// Only what is well conditioned: an error of rounding in one node stays one in the outputs, so that two implementations can be
    /// compared with a tolerance. Steps (comparisons, `floor`, float to integer) are then only taken of values that are exact.
    pub tame: bool,
    /// Whether there are ops with kernels of their own, composites, nested graphs and sizes that depend on data; else only what
    /// becomes maps, rows and products.
    pub all_ops: bool,
    /// Whether inputs have infinities, NaNs and extremes. Not with `tame`.
    pub specials: bool,
}

impl Default for GraphOptions {
    /// Tame graphs of all dtypes but strings and complex numbers.
    fn default() -> Self {
        let kept = |d: &DType| *d != DType::Str && !d.is_complex();
        GraphOptions {
            max_rank: 4,
            max_elems: 4096,
            symbols: true,
            dtypes: DType::ALL.iter().copied().filter(kept).collect(),
            tame: true,
            all_ops: true,
            specials: false,
        }
    }
}

impl GraphOptions {
    /// All ops on all dtypes but strings, with infinities, NaNs and extremes: for tests of structure, and of bits where an
    /// implementation promises them.
    pub fn wild() -> Self {
        GraphOptions {
            dtypes: DType::ALL.iter().copied().filter(|d| *d != DType::Str).collect(),
            tame: false,
            specials: true,
            ..Self::default()
        }
    }

    /// The same with these dtypes.
    #[must_use]
    pub fn dtypes(mut self, dtypes: &[DType]) -> Self {
        self.dtypes = dtypes.to_vec();
        self
    }
}

/// A graph and what it is run on.
#[derive(Clone)]
pub struct RandomGraph {
    /// The graph.
    pub module: Module,
    /// Inputs that fit it.
    pub inputs: EvalInputs,
    /// What it is made from.
    pub seed: u64,
}

/// Shows the text form, so that a failing test prints the graph.
impl fmt::Debug for RandomGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}:\n{}on", self.seed, self.module)?;
        for v in &self.inputs.inputs {
            match v.as_tensor() {
                Some(t) => writeln!(f, "  {}", crate::attr::AttrValue::print(t))?,
                None => writeln!(f, "  {v:?}")?,
            }
        }
        Ok(())
    }
}

impl RandomGraph {
    /// The graph of a seed with up to this many nodes.
    pub fn generate(seed: u64, nodes: usize, options: &GraphOptions) -> RandomGraph {
        generate::generate(seed, nodes, options)
    }

    /// The same with every input made a parameter that has its value as default, so that everything depends on parameters only.
    pub fn inputs_as_params(&self) -> Result<RandomGraph, IrError> {
        self.with_sources(|g, name, ty, value| g.add_param(name, ty.clone(), value))
    }

    /// The same with every input and parameter made a constant, so that a folder can compute it all. Its dims must be fixed.
    pub fn sources_as_constants(&self) -> Result<RandomGraph, IrError> {
        self.with_sources(|g, name, ty, value| {
            let value = value.ok_or_else(|| IrError::Eval(format!("`{name}` of type {ty} has no value")))?;
            let node = g.add_node(Constant { value }.into(), Vec::new(), Vec::new(), Loc::none())?;
            g.node(node).results.first().copied().ok_or_else(|| IrError::Eval("a constant has no result".into()))
        })
    }

    /// The same graph without inputs: `make` says what stands for each input and parameter, given its name, type and value.
    fn with_sources(
        &self,
        mut make: impl FnMut(&mut Graph, &str, &Type, Option<Tensor>) -> Result<ValueId, IrError>,
    ) -> Result<RandomGraph, IrError> {
        let old = &self.module.main;
        let mut g = Graph::new(old.name());
        *g.bounds_mut() = old.bounds().clone();
        let mut map: Vec<Option<ValueId>> = vec![None; old.num_values()];
        let mut nodes = old.nodes().iter();
        for v in old.value_ids() {
            let info = old.value(v);
            let new = match info.def {
                Def::Input(n) => {
                    let value = self.inputs.inputs.get(n as usize).and_then(Value::as_tensor).cloned();
                    make(&mut g, info.name.as_deref().unwrap_or_default(), &info.ty, value)?
                }
                Def::Param(n) => {
                    let p = old.params().get(n as usize);
                    let default = p.and_then(|p| p.default.clone());
                    make(&mut g, p.map_or("", |p| &p.name), &info.ty, default)?
                }
                Def::State(n) => match old.states().get(n as usize) {
                    Some(s) => {
                        let new = g.add_state(&s.name, info.ty.clone(), s.init.clone())?;
                        if let Some(axis) = s.grows {
                            g.set_state_grows(g.states().len() - 1, axis)?;
                        }
                        new
                    }
                    None => continue,
                },
                // Values of one node stand together, in order of nodes.
                Def::Result(_, 0) => {
                    let Some(n) = nodes.next() else { continue };
                    let operands = n.operands.iter().filter_map(|o| map.get(o.index()).copied().flatten()).collect();
                    let id = g.add_node(n.op.clone(), operands, n.regions.clone(), n.loc.clone())?;
                    for (old, new) in n.results.iter().zip(g.node(id).results.clone()) {
                        if let Some(slot) = map.get_mut(old.index()) {
                            *slot = Some(new);
                        }
                    }
                    continue;
                }
                Def::Result(..) => continue,
            };
            if let Some(slot) = map.get_mut(v.index()) {
                *slot = Some(new);
            }
        }
        for (n, s) in old.states().iter().enumerate() {
            if let Some(next) = s.next.and_then(|v| map.get(v.index()).copied().flatten()) {
                g.set_state_next(n, next)?;
            }
        }
        for o in old.outputs() {
            if let Some(v) = map.get(o.value.index()).copied().flatten() {
                g.add_output(&o.name, v)?;
            }
        }
        let inputs = EvalInputs { inputs: Vec::new(), ..self.inputs.clone() };
        Ok(RandomGraph { module: Module::from_graph(g), inputs, seed: self.seed })
    }
}

/// Random graphs of 1 to `max_nodes` nodes; a failing one shrinks to fewer nodes.
pub fn random_graph(max_nodes: usize, options: GraphOptions) -> impl Strategy<Value = RandomGraph> {
    (any::<u64>().no_shrink(), 1..=max_nodes.max(1)).prop_map(move |(s, n)| RandomGraph::generate(s, n, &options))
}

#[cfg(test)]
mod tests;
