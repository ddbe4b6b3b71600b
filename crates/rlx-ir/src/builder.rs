//! The builder: appends ops to a graph, infers their types, and returns errors.
//!
//! The method of each op stands in the op's own file under `ops/`; here are only the general ones.

use crate::dtype::DType;
use crate::error::{IrError, NodeRef, OpError};
use crate::graph::{Graph, Loc, NodeId, ValueId};
use crate::op::Op;
use crate::tensor::Tensor;
use crate::types::{Shape, TensorType, Type};

/// Builds a graph.
///
/// ```
/// use rlx_ir::{Builder, DType, Dim};
/// let mut b = Builder::new("main");
/// let x = b.input("x", DType::F32, [Dim::symbol("n"), Dim::from(4)])?;
/// let y = b.relu(x)?;
/// b.output("y", y)?;
/// let graph = b.finish();
/// assert_eq!(graph.ty(graph.outputs()[0].value).to_string(), "f32[n, 4]");
/// # Ok::<(), rlx_ir::IrError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Builder {
    graph: Graph,
    loc: Loc,
}

impl Builder {
    /// A builder of an empty graph.
    pub fn new(name: impl Into<String>) -> Self {
        Builder { graph: Graph::new(name), loc: Loc::none() }
    }

    /// A builder that appends to a graph.
    pub fn from_graph(graph: Graph) -> Self {
        Builder { graph, loc: Loc::none() }
    }

    /// The graph so far.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The graph so far, to declare things on.
    pub fn graph_mut(&mut self) -> &mut Graph {
        &mut self.graph
    }

    /// The graph.
    pub fn finish(self) -> Graph {
        self.graph
    }

    /// Nodes added from now on come from this place of the source.
    pub fn set_loc(&mut self, loc: Loc) {
        self.loc = loc;
    }

    /// The place that added nodes come from.
    pub fn loc(&self) -> &Loc {
        &self.loc
    }

    /// Declares an input.
    pub fn input(
        &mut self,
        name: &str,
        dtype: DType,
        shape: impl IntoIterator<Item = impl Into<crate::dim::Dim>>,
    ) -> Result<ValueId, IrError> {
        self.graph.add_input(name, Type::tensor(dtype, Shape::new(shape)))
    }

    /// Declares a parameter without a default.
    pub fn param(
        &mut self,
        name: &str,
        dtype: DType,
        shape: impl IntoIterator<Item = impl Into<crate::dim::Dim>>,
    ) -> Result<ValueId, IrError> {
        self.graph.add_param(name, Type::tensor(dtype, Shape::new(shape)), None)
    }

    /// Declares a parameter that has this value until set.
    pub fn param_with(&mut self, name: &str, value: Tensor) -> Result<ValueId, IrError> {
        let ty = TensorType::new(value.dtype(), Shape::new(value.dims().iter().copied()));
        self.graph.add_param(name, ty, Some(value))
    }

    /// Declares a state: a value kept from run to run, zeros at first. [`set_next`](Self::set_next) says what a run makes of it.
    pub fn state(
        &mut self,
        name: &str,
        dtype: DType,
        shape: impl IntoIterator<Item = impl Into<crate::dim::Dim>>,
    ) -> Result<ValueId, IrError> {
        self.graph.add_state(name, Type::tensor(dtype, Shape::new(shape)), None)
    }

    /// Declares a state with the value that it has before the first run.
    pub fn state_with(&mut self, name: &str, value: Tensor) -> Result<ValueId, IrError> {
        let ty = TensorType::new(value.dtype(), Shape::new(value.dims().iter().copied()));
        self.graph.add_state(name, ty, Some(value))
    }

    /// Declares a state whose length on an axis may change from run to run, and is 0 before the first. A symbol as the size on that axis
    /// is the length when a run starts. Rows that a run appends with [`concat`](Self::concat) are written where the state lies, whose
    /// memory the runtime doubles when it is full.
    ///
    /// ```
    /// use rlx_ir::{Builder, DType, Dim};
    /// let mut b = Builder::new("main");
    /// let row = b.input("row", DType::F32, [Dim::from(1), Dim::from(4)])?;
    /// let rows = b.growing_state("rows", DType::F32, [Dim::symbol("past"), Dim::from(4)], 0)?;
    /// let grown = b.concat(&[rows, row], 0)?;
    /// b.set_next(rows, grown)?;
    /// let mean = b.reduce_mean(grown, &[0], false)?;
    /// b.output("mean", mean)?;
    /// # Ok::<(), rlx_ir::IrError>(())
    /// ```
    pub fn growing_state(
        &mut self,
        name: &str,
        dtype: DType,
        shape: impl IntoIterator<Item = impl Into<crate::dim::Dim>>,
        axis: usize,
    ) -> Result<ValueId, IrError> {
        let value = self.state(name, dtype, shape)?;
        self.graph.set_state_grows(self.graph.states().len() - 1, axis)?;
        Ok(value)
    }

    /// Says what a state becomes after a run.
    pub fn set_next(&mut self, state: ValueId, next: ValueId) -> Result<(), IrError> {
        match self.graph.states().iter().position(|s| s.value == state) {
            Some(i) => self.graph.set_state_next(i, next),
            None => Err(IrError::Eval(format!("{} is no state", self.graph.value_name(state)))),
        }
    }

    /// Declares an output.
    pub fn output(&mut self, name: &str, value: ValueId) -> Result<(), IrError> {
        self.graph.add_output(name, value)
    }

    /// Appends a node.
    pub fn node(&mut self, op: impl Into<Op>, operands: &[ValueId], regions: Vec<Graph>) -> Result<NodeId, IrError> {
        self.graph.add_node(op.into(), operands.to_vec(), regions, self.loc.clone())
    }

    /// Appends an op and gives its results.
    pub fn op(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> Result<Vec<ValueId>, IrError> {
        let id = self.node(op, operands, Vec::new())?;
        Ok(self.graph.node(id).results.clone())
    }

    /// Appends an op with nested graphs and gives its results.
    pub fn op_with_regions(
        &mut self,
        op: impl Into<Op>,
        operands: &[ValueId],
        regions: Vec<Graph>,
    ) -> Result<Vec<ValueId>, IrError> {
        let id = self.node(op, operands, regions)?;
        Ok(self.graph.node(id).results.clone())
    }

    /// Appends an op of one result (the first, if it has several).
    pub fn op1(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> Result<ValueId, IrError> {
        let id = self.node(op, operands, Vec::new())?;
        let node = self.graph.node(id);
        node.results.first().copied().ok_or_else(|| IrError::Eval(format!("`{}` has no result", node.op)))
    }

    /// The type of a value.
    pub fn ty(&self, v: ValueId) -> Result<&Type, IrError> {
        self.graph
            .get_value(v)
            .map(|i| &i.ty)
            .ok_or_else(|| IrError::UnknownValue(v.index() as u32, self.graph.name().into()))
    }

    /// The tensor type of a value; an error for sequences and optionals.
    pub fn tensor_type(&self, v: ValueId) -> Result<&TensorType, IrError> {
        let ty = self.ty(v)?;
        ty.as_tensor().ok_or_else(|| IrError::Eval(format!("{} is a {ty}, not a tensor", self.graph.value_name(v))))
    }

    /// The shape of a tensor.
    pub fn shape(&self, v: ValueId) -> Result<Shape, IrError> {
        Ok(self.tensor_type(v)?.shape.clone())
    }

    /// The dtype of a tensor.
    pub fn dtype(&self, v: ValueId) -> Result<DType, IrError> {
        Ok(self.tensor_type(v)?.dtype)
    }

    /// An error about an op that was asked for but could not be stated; it names the operands as the graph's own errors do.
    pub fn refuse(&self, op: &str, operands: &[ValueId], error: impl Into<OpError>) -> IrError {
        let operands = operands
            .iter()
            .map(|&v| match self.graph.get_value(v) {
                Some(i) => format!("{}: {}", self.graph.value_name(v), i.ty),
                None => format!("{v}: ?"),
            })
            .collect();
        let node = NodeRef { op: op.into(), name: self.loc.name().map(Into::into), operands };
        IrError::Op { node: Box::new(node), error: error.into() }
    }

    /// Resolves an axis of `x` that may count from the end.
    pub fn axis(&self, op: &str, x: ValueId, axis: i64) -> Result<usize, IrError> {
        let rank = self.tensor_type(x)?.shape.rank();
        crate::types::normalize_axis(axis, rank)
            .ok_or_else(|| self.refuse(op, &[x], OpError::new(format!("axis {axis} is out of range for rank {rank}"))))
    }

    /// Resolves axes of `x` that may count from the end, in ascending order; one named twice is an error.
    pub fn axes(&self, op: &str, x: ValueId, axes: &[i64]) -> Result<Vec<usize>, IrError> {
        let mut out = axes.iter().map(|&a| self.axis(op, x, a)).collect::<Result<Vec<_>, _>>()?;
        out.sort_unstable();
        if out.windows(2).any(|w| w[0] == w[1]) {
            return Err(self.refuse(op, &[x], OpError::new(format!("axes {axes:?} name an axis twice"))));
        }
        Ok(out)
    }
}
