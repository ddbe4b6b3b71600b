//! A graph under construction, and the places in it where blocks are applied.

use std::collections::BTreeMap;

use rlx_ir::{Builder, DType, Dim, Graph, IrError, Loc, Module, Shape, Tensor, TensorType, ValueId};

use super::block::{Block, ParamSpec, join};
use super::error::{NnError, WeightProblem};
use super::weights::Weights;

/// A graph under construction with the weights that its parameters take. See the [module's documentation](super).
#[derive(Debug)]
pub struct Net {
    builder: Builder,
    dtype: DType,
    weights: Option<Weights>,
    declared: BTreeMap<String, ValueId>,
    problems: Vec<WeightProblem>,
}

impl Net {
    /// An empty graph whose blocks compute in f32.
    pub fn new(name: &str) -> Self {
        Net {
            builder: Builder::new(name),
            dtype: DType::F32,
            weights: None,
            declared: BTreeMap::new(),
            problems: Vec::new(),
        }
    }

    /// The dtype of parameters declared from now on.
    #[must_use]
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = dtype;
        self
    }

    /// Parameters take the weight of their path as default; one that has none, or one of another type, is an error of
    /// [`finish`](Self::finish).
    #[must_use]
    pub fn with_weights(mut self, weights: Weights) -> Self {
        self.weights = Some(weights);
        self
    }

    /// Declares an input.
    pub fn input(
        &mut self,
        name: &str,
        dtype: DType,
        shape: impl IntoIterator<Item = impl Into<Dim>>,
    ) -> Result<ValueId, NnError> {
        Ok(self.builder.input(name, dtype, shape)?)
    }

    /// Declares an output.
    pub fn output(&mut self, name: &str, value: ValueId) -> Result<(), NnError> {
        Ok(self.builder.output(name, value)?)
    }

    /// The builder, for ops between blocks.
    pub fn builder(&mut self) -> &mut Builder {
        &mut self.builder
    }

    /// The graph so far.
    pub fn graph(&self) -> &Graph {
        self.builder.graph()
    }

    /// The place of a path, to apply a block at: `encoder.layer.0`.
    pub fn at(&mut self, path: impl Into<String>) -> Scope<'_> {
        Scope { net: self, path: path.into() }
    }

    /// Names and types of the parameters declared so far, in order.
    pub fn params(&self) -> impl Iterator<Item = (&str, &TensorType)> {
        let g = self.builder.graph();
        g.params().iter().filter_map(|p| Some((&*p.name, g.tensor_type(p.value)?)))
    }

    /// Names of weights that no parameter has taken.
    pub fn unused_weights(&self) -> Vec<&str> {
        let names = self.weights.iter().flat_map(Weights::names);
        names.filter(|n| !self.declared.contains_key(*n)).collect()
    }

    /// The module, if every parameter has the weight that it should have.
    pub fn finish(self) -> Result<Module, NnError> {
        if self.problems.is_empty() {
            Ok(Module::from_graph(self.builder.finish()))
        } else {
            Err(NnError::Weights(self.problems))
        }
    }

    /// A parameter, declared if its path is new.
    fn param(&mut self, path: &str, ty: TensorType) -> Result<ValueId, NnError> {
        if let Some(&v) = self.declared.get(path) {
            let first = self.builder.tensor_type(v)?.clone();
            if first != ty {
                return Err(NnError::Shared { path: path.into(), first: first.to_string(), second: ty.to_string() });
            }
            return Ok(v);
        }
        let mut default: Option<Tensor> = None;
        if let Some(weights) = &self.weights {
            match weights.get(path) {
                Some(t) => {
                    let got = TensorType::new(t.dtype(), Shape::new(t.dims().iter().copied()));
                    if got == ty {
                        default = Some(t.clone());
                    } else {
                        self.problems.push(WeightProblem::Type { path: path.into(), expected: ty.clone(), got });
                    }
                }
                None => self.problems.push(WeightProblem::Missing { path: path.into(), expected: ty.clone() }),
            }
        }
        let v = self.builder.graph_mut().add_param(path, ty, default)?;
        self.declared.insert(path.into(), v);
        Ok(v)
    }
}

/// A place in a net: blocks applied here have their parameters under its path.
#[derive(Debug)]
pub struct Scope<'n> {
    net: &'n mut Net,
    path: String,
}

impl Scope<'_> {
    /// The place of a part.
    pub fn at(&mut self, part: &str) -> Scope<'_> {
        Scope { path: join(&self.path, part), net: self.net }
    }

    /// The path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The dtype of floats here.
    pub fn dtype(&self) -> DType {
        self.net.dtype
    }

    /// The builder, for ops of one's own.
    pub fn builder(&mut self) -> &mut Builder {
        &mut self.net.builder
    }

    /// The sizes of a value.
    pub fn shape(&self, x: ValueId) -> Result<Shape, NnError> {
        Ok(self.net.builder.shape(x)?)
    }

    /// A parameter of one's own under this path; the same value wherever the path is named again.
    pub fn param(&mut self, spec: &ParamSpec) -> Result<ValueId, NnError> {
        let path = join(&self.path, &spec.name);
        self.net.param(&path, spec.ty.clone())
    }

    /// Declares the parameters of a block that has no parts, in order.
    pub fn declare(&mut self, block: &dyn Block) -> Result<Vec<ValueId>, NnError> {
        let dtype = self.dtype();
        block.params(dtype).iter().map(|p| self.param(p)).collect()
    }

    /// Appends ops of a block on operands. They get the block's path as their place, and so do errors.
    pub fn build<T>(
        &mut self,
        block: &'static str,
        operands: &[ValueId],
        ops: impl FnOnce(&mut Builder) -> Result<T, IrError>,
    ) -> Result<T, NnError> {
        let before = self.net.builder.loc().clone();
        let here = if self.path.is_empty() { before.clone() } else { Loc::new(self.path.as_str()) };
        self.net.builder.set_loc(here);
        let made = ops(&mut self.net.builder);
        self.net.builder.set_loc(before);
        made.map_err(|source| NnError::Block {
            block,
            path: self.path.clone(),
            operands: operands.iter().map(|&v| self.describe(v)).collect(),
            source: Box::new(source),
        })
    }

    /// The error of sizes that do not fit.
    pub fn refuse(&self, block: &'static str, message: impl Into<String>) -> NnError {
        NnError::Sizes { block, path: self.path.clone(), message: message.into() }
    }

    /// Checks that a value's last axis has as many features as a block takes.
    pub fn expect_features(&self, block: &'static str, x: ValueId, features: usize) -> Result<(), NnError> {
        let shape = self.shape(x)?;
        match shape.last().map(|d| d.known_eq(&Dim::from(features))) {
            Some(Some(false)) | None => {
                Err(self.refuse(block, format!("takes {features} features on the last axis, got {}", self.describe(x))))
            }
            _ => Ok(()),
        }
    }

    fn describe(&self, v: ValueId) -> String {
        match self.net.builder.graph().get_value(v) {
            Some(i) => i.ty.to_string(),
            None => format!("{v}: ?"),
        }
    }
}
