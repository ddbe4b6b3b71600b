//! What is low, and in which forms each value is needed.

use rlx_ir::graph::Def;
use rlx_ir::op::Effect;
use rlx_ir::ops::{Contraction, Indexing, Neural, Reduction, ShapeOp};
use rlx_ir::{DType, Graph, Node, Op, ValueId};

use crate::options::{OpClass, Otherwise, PrecisionPolicy};
use crate::passes::regions;

/// In which dtype a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// f32.
    Wide,
    /// The low dtype.
    Low,
}

/// How an op is given its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// It computes in f32 and runs in one kernel with what makes or reads its operands: scalar functions, and ops over rows.
    Scalar,
    /// It reads one value elsewhere, unchanged.
    View,
    /// It moves values unchanged: in the form that they are kept in.
    Move,
    /// It has a kernel of its own that takes either dtype and accumulates in f32.
    Typed,
    /// A product, whose result need not have the dtype of its operands.
    Dot,
    /// It takes and gives f32.
    Wide,
}

impl How {
    fn of(op: &Op) -> How {
        match op {
            Op::Elementwise(_) | Op::Reduction(Reduction::Reduce(_)) => How::Scalar,
            Op::Neural(Neural::Softmax(_) | Neural::LayerNorm(_) | Neural::RmsNorm(_)) => How::Scalar,
            Op::Neural(Neural::BatchNorm(_) | Neural::GroupNorm(_)) => How::Scalar,
            Op::ShapeOp(
                ShapeOp::Reshape(_)
                | ShapeOp::Transpose(_)
                | ShapeOp::BroadcastTo(_)
                | ShapeOp::Slice(_)
                | ShapeOp::Reverse(_),
            ) => How::View,
            Op::ShapeOp(ShapeOp::Concat(_) | ShapeOp::Pad(_)) => How::Move,
            // What is added up while it is scattered must not be rounded at each step.
            Op::Indexing(Indexing::ScatterElements(_) | Indexing::ScatterNd(_)) => How::Wide,
            Op::Indexing(_) | Op::Reduction(Reduction::ArgReduce(_) | Reduction::MaxPoolIndices(_)) => How::Move,
            Op::Contraction(Contraction::DotGeneral(_)) => How::Dot,
            Op::Contraction(_) | Op::Neural(_) | Op::Reduction(_) | Op::Signal(_) => How::Typed,
            // What a user's op does with other dtypes than it was given is not known.
            Op::ShapeOp(_) | Op::Control(_) | Op::Random(_) | Op::Custom(_) => How::Wide,
        }
    }
}

/// What a policy says of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Wide,
    Low,
    /// As all operands are.
    Follow,
    /// Low operands, f32 result.
    LowOperands,
}

fn mixed(class: OpClass) -> Choice {
    match class {
        OpClass::Contraction | OpClass::Attention => Choice::Low,
        OpClass::Elementwise | OpClass::Move | OpClass::Pooling => Choice::Follow,
        _ => Choice::Wide,
    }
}

fn conservative(class: OpClass) -> Choice {
    if class == OpClass::Contraction { Choice::LowOperands } else { Choice::Wide }
}

/// What a policy says of a node, and why.
fn choice(policy: &PrecisionPolicy, node: &Node, class: OpClass) -> (Choice, &'static str) {
    let by_class = "its class is f32 under this policy";
    match policy {
        PrecisionPolicy::AlwaysF32 => (Choice::Wide, by_class),
        PrecisionPolicy::AlwaysLow(_) => (Choice::Low, ""),
        PrecisionPolicy::Mixed(_) => (mixed(class), by_class),
        PrecisionPolicy::ConservativeMixed(_) => (conservative(class), by_class),
        PrecisionPolicy::Custom(c) => match (c.decides(&node.op, &node.loc), c.otherwise) {
            (Some(true), _) => (Choice::Low, ""),
            (Some(false), _) => (Choice::Wide, "a rule of the policy says so"),
            (None, Otherwise::F32) => (Choice::Wide, "no rule of the policy is about it"),
            (None, Otherwise::Low) => (Choice::Low, ""),
            (None, Otherwise::Mixed) => (mixed(class), by_class),
            (None, Otherwise::ConservativeMixed) => (conservative(class), by_class),
        },
    }
}

/// What is decided of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decision {
    pub how: How,
    pub class: OpClass,
    /// Whether products read low operands.
    pub low_operands: bool,
    /// Whether its results are low.
    pub low: bool,
    /// Why it is not.
    pub why: &'static str,
}

/// The plan of a graph.
pub(super) struct Plan {
    pub nodes: Vec<Decision>,
    /// The form in which each value is kept.
    pub form: Vec<Form>,
    /// Whether some node reads it in f32, or low.
    pub wide: Vec<bool>,
    pub low: Vec<bool>,
}

/// True for what a policy speaks of.
pub(super) fn is_f32(g: &Graph, v: ValueId) -> bool {
    g.tensor_type(v).is_some_and(|t| t.dtype == DType::F32)
}

/// A value by value list.
fn at(list: &[bool], v: ValueId) -> bool {
    list.get(v.index()).copied().unwrap_or(false)
}

impl Plan {
    /// Plans a graph; `given` says how each input comes.
    pub fn of(g: &Graph, policy: &PrecisionPolicy, given: &dyn Fn(ValueId) -> Form) -> Plan {
        let n = g.num_values();
        // What depends on parameters and literals alone; what is low; what ends up in the kernel of a product.
        let (mut fixed, mut low, mut product) = (vec![false; n], vec![false; n], vec![false; n]);
        for v in g.value_ids() {
            match g.value(v).def {
                Def::Param(_) => fixed[v.index()] = true,
                Def::Input(_) => low[v.index()] = given(v) == Form::Low,
                _ => {}
            }
        }
        let counts = g.use_counts();
        let mut nodes = Vec::with_capacity(g.nodes().len());
        for node in g.nodes() {
            let d = decide(g, node, policy, &fixed, &low);
            let pure = node.regions.is_empty() && node.op.def().traits().effect == Effect::Pure;
            let of_parameters = pure && node.operands.iter().all(|&v| at(&fixed, v));
            let joins = |v: &ValueId| at(&product, *v) && counts.get(v.index()) == Some(&1);
            let in_product = match d.how {
                How::Dot => true,
                How::Typed => d.class == OpClass::Contraction,
                How::View => node.operands.first().is_some_and(joins),
                How::Scalar => matches!(node.op, Op::Elementwise(_)) && node.operands.iter().any(joins),
                _ => false,
            };
            for r in &node.results {
                fixed[r.index()] = of_parameters;
                low[r.index()] = d.low;
                product[r.index()] = in_product;
            }
            nodes.push(d);
        }
        let inner = unstored(g, &nodes, &product);
        let mut plan = Plan { nodes, form: vec![Form::Wide; n], wide: vec![false; n], low: vec![false; n] };
        for v in g.inputs().iter().filter(|&&v| given(v) == Form::Low) {
            plan.form[v.index()] = Form::Low;
        }
        for (node, d) in g.nodes().iter().zip(&plan.nodes) {
            let reads_low = || node.operands.iter().any(|v| is_f32(g, *v) && plan.form[v.index()] == Form::Low);
            let result = match d.how {
                How::View | How::Move => d.low && reads_low(),
                _ => d.low,
            };
            let stays = matches!(d.how, How::Scalar | How::Dot | How::Wide);
            for &r in node.results.iter().filter(|&&r| result && is_f32(g, r)) {
                plan.form[r.index()] = if stays && at(&inner, r) { Form::Wide } else { Form::Low };
            }
        }
        for (i, node) in g.nodes().iter().enumerate() {
            for (k, &v) in node.operands.iter().enumerate().filter(|(_, v)| is_f32(g, **v)) {
                match plan.need(node, i, k) {
                    Form::Wide => plan.wide[v.index()] = true,
                    Form::Low => plan.low[v.index()] = true,
                }
            }
        }
        plan
    }

    /// The form in which a node reads operand `k`.
    pub fn need(&self, node: &Node, i: usize, k: usize) -> Form {
        let (Some(d), Some(v)) = (self.nodes.get(i), node.operands.get(k)) else { return Form::Wide };
        let own = || self.form.get(v.index()).copied().unwrap_or(Form::Wide);
        let low = |yes: bool| if yes { Form::Low } else { Form::Wide };
        match d.how {
            How::Scalar => Form::Wide,
            How::View | How::Move => {
                let results = node.results.iter().filter_map(|r| self.form.get(r.index()));
                // An op that gives indices alone reads what is there.
                match results.copied().find(|&f| f == Form::Low) {
                    Some(f) => f,
                    None if node.operands.len() == 1 => match &node.op {
                        Op::Reduction(_) => own(),
                        _ => Form::Wide,
                    },
                    None => Form::Wide,
                }
            }
            How::Typed if matches!(node.op, Op::Neural(Neural::RotaryEmbedding(_))) => low(d.low && k == 0),
            How::Typed | How::Dot => low(d.low || d.low_operands),
            How::Wide => {
                let captured = node.operands.len() - regions::captures(node);
                if k >= captured { own() } else { Form::Wide }
            }
        }
    }
}

fn decide(g: &Graph, node: &Node, policy: &PrecisionPolicy, fixed: &[bool], low: &[bool]) -> Decision {
    let class = OpClass::of(&node.op);
    let how = How::of(&node.op);
    let (choice, why) = choice(policy, node, class);
    let mut d = Decision { how, class, low_operands: false, low: false, why };
    if !node.results.iter().any(|&r| is_f32(g, r)) || class == OpClass::Control || how == How::Wide {
        return d;
    }
    // In another dtype all of a state would be made anew in each run.
    let appended = |r: &ValueId| g.states().iter().any(|s| s.grows.is_some() && s.next == Some(*r));
    if how == How::Move && node.results.iter().any(appended) {
        d.why = "a state grows by it";
        return d;
    }
    let operands = || node.operands.iter().filter(|&&v| is_f32(g, v));
    let varying = || operands().filter(|&&v| !at(fixed, v));
    if varying().next().is_none() && node.operands.iter().all(|&v| at(fixed, v)) {
        d.why = "it depends on parameters alone";
        return d;
    }
    match choice {
        Choice::Wide => {}
        Choice::Low => d.low = true,
        Choice::Follow => {
            d.low = varying().next().is_some() && varying().all(|&v| at(low, v));
            d.why = if d.low { "" } else { "it reads f32" };
        }
        Choice::LowOperands => d.low_operands = true,
    }
    if let Op::Contraction(Contraction::DotGeneral(op)) = &node.op
        && (op.accumulate.is_some_and(|a| a != DType::F32) || operands().count() < 2)
    {
        d = Decision { low: false, low_operands: false, why: "its operands are not f32, or its sums wider", ..d };
    }
    d
}

/// Which values need no memory: the only op that reads them runs in the kernel that makes them.
fn unstored(g: &Graph, nodes: &[Decision], product: &[bool]) -> Vec<bool> {
    let counts = g.use_counts();
    let mut inner = vec![false; g.num_values()];
    for (node, d) in g.nodes().iter().zip(nodes).rev() {
        for &v in node.operands.iter().filter(|v| counts.get(v.index()) == Some(&1)) {
            inner[v.index()] = match d.how {
                // Rows do not run in a product's kernel.
                How::Scalar => matches!(node.op, Op::Elementwise(_)) || !at(product, v),
                How::View => node.results.iter().all(|&r| at(&inner, r)),
                _ => false,
            };
        }
    }
    inner
}
