//! The plan of one graph: every value as a walk over a root, every node in a group.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rlx_ir::error::NodeRef;
use rlx_ir::graph::Def;
use rlx_ir::ops::{Contraction, Control, Elementwise, Neural, Op, Reduction, ShapeOp};
use rlx_ir::{DType, Dim, Graph, Loc, Node, NodeId, Symbol, TensorType, Type, ValueId};

use crate::error::CompileError;
use crate::lir::{Literal, Storage};
use crate::options::CompileOptions;
use crate::remark::{Remark, RemarkKind};
use crate::target::Claims;

use super::groups::{Group, GroupId, GroupKind, Item, ItemOp};
use super::roots::{Root, RootId, Source, splat};
use super::scaled::Scaled;
use super::views::Val;

/// A plan being made.
pub(super) struct Planner<'a> {
    pub graph: &'a Graph,
    pub options: &'a CompileOptions,
    pub roots: Vec<Root>,
    pub items: Vec<Item>,
    pub groups: Vec<Group>,
    pub remarks: &'a mut Vec<Remark>,
    vals: Vec<Option<Val>>,
    /// Values that are others widened to f32: each reader that can widens what it loads.
    widened: HashMap<ValueId, Val>,
    now: u32,
    /// For each symbol that a node defines, the position of its group.
    pub defined: Vec<(Symbol, u32)>,
    /// Symbols known when the program starts.
    pub known: HashSet<Symbol>,
    /// Whether contractions take operands that stand for others.
    pub takes_scaled: bool,
    /// The operands of contractions, where they are such.
    pub scaled: HashMap<NodeId, [Scaled; 2]>,
    /// Whether rows have taken instructions out of kernels before them.
    pub sunk: bool,
}

/// Symbols that a node defines.
pub(super) fn defines(node: &Node, graph: &Graph, known: &HashSet<Symbol>) -> Vec<Symbol> {
    match &node.op {
        Op::ShapeOp(ShapeOp::ReadDims(r)) => r.symbols.clone(),
        Op::Control(Control::If(op)) => op.defines.clone(),
        op => {
            // Other definers carry their symbols as attributes; they show in the result types and in no operand's.
            if !may_define(op) {
                return Vec::new();
            }
            let mut out = std::collections::BTreeSet::new();
            node.results.iter().for_each(|&v| graph.ty(v).collect_symbols(&mut out));
            out.into_iter().filter(|s| !known.contains(s)).collect()
        }
    }
}

fn may_define(op: &Op) -> bool {
    matches!(op.name(), "nonzero" | "loop" | "scan" | "call" | "if" | "read_dims")
}

impl<'a> Planner<'a> {
    /// Plans a graph. `known` are symbols of surrounding graphs.
    pub fn plan(
        graph: &'a Graph,
        known: &HashSet<Symbol>,
        claims: &Claims,
        options: &'a CompileOptions,
        remarks: &'a mut Vec<Remark>,
    ) -> Result<Self, CompileError> {
        let mut known = known.clone();
        known.extend(graph.input_symbols());
        let mut p = Planner {
            graph,
            options,
            roots: Vec::with_capacity(graph.num_values()),
            items: Vec::with_capacity(graph.nodes().len()),
            groups: Vec::with_capacity(graph.nodes().len()),
            remarks,
            vals: vec![None; graph.num_values()],
            widened: HashMap::new(),
            now: 0,
            defined: Vec::new(),
            known,
            takes_scaled: claims.scaled_operands,
            scaled: HashMap::new(),
            sunk: false,
        };
        p.check_types()?;
        p.boundary();
        let mut seen = p.known.clone();
        for id in graph.node_ids() {
            p.now = 2 * id.index() as u32 + 1;
            let node = graph.node(id);
            p.node(id, node)?;
            for s in defines(node, graph, &seen) {
                seen.insert(s.clone());
                p.defined.push((s, p.now));
            }
        }
        let next = graph.states().iter().filter_map(|s| s.next);
        for v in graph.outputs().iter().map(|o| o.value).chain(next) {
            let v = p.operand_of(v, false, false, &Loc::none());
            p.use_val(&v?);
        }
        p.drop_unread();
        Ok(p)
    }

    /// Only tensors of numbers have kernels.
    fn check_types(&self) -> Result<(), CompileError> {
        let bad = |v: ValueId| match self.graph.ty(v) {
            Type::Tensor(t) if t.dtype != DType::Str => None,
            t => Some(format!("{} is {t}", self.graph.value_name(v))),
        };
        let mut ops: Vec<(NodeRef, String)> = Vec::new();
        for n in self.graph.nodes() {
            if let Some(why) = n.results.iter().copied().find_map(bad) {
                ops.push((self.graph.describe(&n.op, &n.operands, &n.loc), format!("{why}, which has no kernel")));
            }
        }
        if let Some(why) = self.graph.inputs().iter().copied().find_map(bad) {
            return Err(CompileError::Lir(format!("input {why}, which has no kernel")));
        }
        if ops.is_empty() { Ok(()) } else { Err(CompileError::Unsupported { target: "lir".into(), ops }) }
    }

    fn boundary(&mut self) {
        for v in self.graph.value_ids() {
            let info = self.graph.value(v);
            let Some(t) = info.ty.as_tensor() else { continue };
            let storage = match info.def {
                Def::Input(n) => Storage::Input(n),
                Def::Param(n) => Storage::Param(n),
                Def::State(n) => Storage::State(n),
                Def::Result(..) => continue,
            };
            let val = match info.elems.as_deref() {
                Some([d]) => self.size_val(d.clone(), t),
                _ => {
                    let root = self.new_root(Source::Boundary(storage), t.dtype, t.shape.to_vec());
                    Val::whole(root, &t.shape)
                }
            };
            self.set(v, val);
        }
    }

    /// Order of execution of what is planned now.
    pub fn position(&self) -> u32 {
        self.now
    }

    /// A new root.
    pub fn new_root(&mut self, source: Source, dtype: DType, dims: Vec<Dim>) -> RootId {
        let id = RootId(self.roots.len() as u32);
        self.roots.push(Root { source, dtype, dims, name: None, order: None, uses: 0, reshaped: false });
        id
    }

    /// A root of this plan.
    pub fn root(&self, id: RootId) -> &Root {
        &self.roots[id.index()]
    }

    /// Counts a reader outside the value's own kernel; its group is closed.
    pub fn use_val(&mut self, v: &Val) {
        let r = &mut self.roots[v.root.index()];
        r.uses += 1;
        r.reshaped |= v.has_reshape();
        if let Source::Item(i) = r.source {
            let g = self.group_of(i);
            self.groups[g.index()].used = true;
        }
    }

    /// What a value of the graph is.
    pub fn val(&self, v: ValueId) -> Result<Val, CompileError> {
        self.vals
            .get(v.index())
            .cloned()
            .flatten()
            .ok_or_else(|| CompileError::Lir(format!("{} was read before it was lowered", self.graph.value_name(v))))
    }

    /// What a node's operands are.
    pub fn operands(&self, node: &Node) -> Result<Vec<Val>, CompileError> {
        node.operands.iter().map(|&v| self.val(v)).collect()
    }

    /// True for a 16-bit float that lies in memory, or will.
    fn is_half(&self, v: &Val) -> bool {
        let root = self.root(v.root);
        matches!(root.dtype, DType::F16 | DType::BF16) && !root.is_free()
    }

    /// What an operand is. One that is another value widened is made anew for each reader that `fuses` with it, and put into memory for
    /// others. `rows` says that the reader goes over rows.
    fn operand_of(&mut self, v: ValueId, fuses: bool, rows: bool, loc: &Loc) -> Result<Val, CompileError> {
        let Some(narrow) = self.widened.get(&v).cloned() else { return self.val(v) };
        let convert = ItemOp::Apply(Elementwise::Convert { to: DType::F32, saturate: true });
        let product = |g: GroupId| matches!(self.groups[g.index()].kind, GroupKind::Contract(_) | GroupKind::Conv(_));
        let wide = if self.open_group(narrow.root).is_some_and(|(g, _)| !(rows && product(g))) {
            self.elementwise(convert, std::slice::from_ref(&narrow), DType::F32, &narrow.dims, loc)
        } else {
            let g = self.new_group(GroupKind::Map, narrow.dims.clone(), loc.clone());
            let arg = self.operand(&narrow, &narrow.dims);
            let item = self.push_item(g, convert, vec![arg], DType::F32, crate::lir::Scope::Element);
            let root = self.item_root(item);
            Val::whole(root, &narrow.dims)
        };
        // It runs before what is planned now, which may read it from another group.
        if let Some(item) = self.item_of(wide.root) {
            let g = self.group_of(item);
            self.groups[g.index()].last = self.position().saturating_sub(1);
        }
        if !fuses {
            self.widened.remove(&v);
            self.set(v, wide.clone());
        }
        Ok(wide)
    }

    /// Says what a value is.
    pub fn set(&mut self, v: ValueId, val: Val) {
        let name = self.graph.value(v).name.clone();
        let root = &mut self.roots[val.root.index()];
        if root.name.is_none() && val.steps.is_empty() {
            root.name = name;
        }
        if let Some(slot) = self.vals.get_mut(v.index()) {
            *slot = Some(val);
        }
    }

    /// The type of a value, which is a tensor.
    pub fn ty(&self, v: ValueId) -> Result<&'a TensorType, CompileError> {
        self.graph.tensor_type(v).ok_or_else(|| CompileError::Lir(format!("{} is no tensor", self.graph.value_name(v))))
    }

    /// The node's only result.
    pub fn result(&self, node: &Node) -> Result<ValueId, CompileError> {
        node.results.first().copied().ok_or_else(|| CompileError::Lir(format!("`{}` has no result", node.op)))
    }

    /// Remarks that something was fused.
    pub fn applied(&mut self, loc: &Loc, message: String) {
        self.remark(RemarkKind::Applied, loc, message);
    }

    /// Remarks that something could not be fused.
    pub fn missed(&mut self, loc: &Loc, message: String) {
        self.remark(RemarkKind::Missed, loc, message);
    }

    /// Adds a remark.
    pub fn remark(&mut self, kind: RemarkKind, loc: &Loc, message: String) {
        self.remarks.push(Remark { pass: "lower", loc: loc.clone(), message, kind });
    }

    fn size_val(&mut self, d: Dim, t: &TensorType) -> Val {
        let source = match d.as_const() {
            Some(c) => Source::Literal(Literal::Int(i128::from(c))),
            None => Source::Size(d),
        };
        let root = self.new_root(source, t.dtype, t.shape.to_vec());
        Val::whole(root, &t.shape)
    }

    /// A value that reads as it is from memory: one made by readers is put there first.
    pub fn stored(&mut self, v: &Val, loc: &Loc) -> Val {
        if !self.root(v.root).is_free() {
            return v.clone();
        }
        let g = self.new_group(GroupKind::Map, v.dims.clone(), loc.clone());
        let dtype = self.root(v.root).dtype;
        let arg = self.operand(v, &v.dims);
        let item = self.push_item(g, ItemOp::Copy, vec![arg], dtype, crate::lir::Scope::Element);
        self.groups[g.index()].last = self.now.saturating_sub(1);
        let root = self.item_root(item);
        Val::whole(root, &v.dims)
    }

    /// A kernel of the node's own, whose results are roots.
    pub fn single(&mut self, id: NodeId, node: &Node, operands: &[Val]) -> Result<GroupId, CompileError> {
        for v in operands {
            self.use_val(v);
        }
        let g = self.new_group(GroupKind::Single(id), Vec::new(), node.loc.clone());
        for &r in &node.results {
            let t = self.ty(r)?;
            let root = self.new_root(Source::Node(id), t.dtype, t.shape.to_vec());
            self.set(r, Val::whole(root, &t.shape));
        }
        Ok(g)
    }

    fn node(&mut self, id: NodeId, node: &Node) -> Result<(), CompileError> {
        if !matches!(node.op, Op::Control(_) | Op::ShapeOp(ShapeOp::ReadDims(_))) && self.known_elements(node)? {
            return Ok(());
        }
        let fuses = matches!(
            node.op,
            Op::Elementwise(_)
                | Op::Reduction(Reduction::Reduce(_))
                | Op::Neural(Neural::Softmax(_) | Neural::LayerNorm(_) | Neural::RmsNorm(_))
        );
        // Rows do not run in the kernel of a product.
        let rows = fuses && !matches!(node.op, Op::Elementwise(_));
        let args = node.operands.iter().map(|&v| self.operand_of(v, fuses, rows, &node.loc));
        let args = args.collect::<Result<Vec<_>, _>>()?;
        match &node.op {
            Op::Elementwise(Elementwise::Convert { to: DType::F32, .. })
                if self.options.fusion.allows("elementwise") && args.first().is_some_and(|v| self.is_half(v)) =>
            {
                self.widened.extend(self.result(node).ok().zip(args.into_iter().next()));
            }
            Op::Elementwise(e) => {
                let r = self.result(node)?;
                let t = self.ty(r)?;
                let v = self.elementwise(ItemOp::Apply(*e), &args, t.dtype, &t.shape, &node.loc);
                self.set(r, v);
            }
            Op::ShapeOp(op) => self.shape_op(id, node, op, args)?,
            Op::Contraction(Contraction::DotGeneral(_)) => self.dot_general(id, node, &args)?,
            Op::Contraction(Contraction::Conv(op)) if op.lhs_dilation.iter().all(|&d| d == 1) => {
                self.conv(id, node, &args)?;
            }
            Op::Contraction(Contraction::ConvTranspose(_)) => self.conv(id, node, &args)?,
            Op::Reduction(Reduction::Reduce(op)) => self.reduce(node, op, &args)?,
            Op::Neural(Neural::Softmax(op)) => self.softmax(node, op, &args)?,
            Op::Neural(Neural::LayerNorm(op)) => self.layer_norm(node, op, &args)?,
            Op::Neural(Neural::RmsNorm(op)) => self.rms_norm(node, op, &args)?,
            _ => {
                self.single(id, node, &args)?;
            }
        }
        Ok(())
    }

    /// Results whose elements are known from shapes need no kernel.
    pub fn known_elements(&mut self, node: &Node) -> Result<bool, CompileError> {
        if node.results.is_empty() || node.results.iter().any(|&r| self.graph.elems(r).is_none()) {
            return Ok(false);
        }
        for &r in &node.results {
            let t = self.ty(r)?;
            let elems = self.graph.elems(r).unwrap_or_default();
            let val = match elems {
                [d] => self.size_val(d.clone(), t),
                _ => {
                    let source = match node.op.as_constant() {
                        Some(c) => Source::Const(c.clone()),
                        None => Source::Sizes(elems.to_vec()),
                    };
                    let root = self.new_root(source, t.dtype, t.shape.to_vec());
                    Val::whole(root, &t.shape)
                }
            };
            self.set(r, val);
        }
        Ok(true)
    }

    /// A literal as a value.
    pub fn constant(&mut self, t: &rlx_ir::Tensor) -> Val {
        let source = splat(t).map_or_else(|| Source::Const(t.clone()), Source::Literal);
        let dims: Vec<Dim> = t.dims().iter().map(|&d| Dim::from(d)).collect();
        let root = self.new_root(source, t.dtype(), dims.clone());
        Val::whole(root, &dims)
    }

    /// Text of a node for reports.
    pub fn loc_name(loc: &Loc, op: &str) -> Arc<str> {
        loc.name().unwrap_or(op).into()
    }
}
