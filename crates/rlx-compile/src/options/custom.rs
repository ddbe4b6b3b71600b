//! Policies by op class, mnemonic or name of the node.

use std::fmt;

use rlx_ir::ops::elementwise::{Elementwise, Unary};
use rlx_ir::ops::{Control, Neural, Reduction, ShapeOp};
use rlx_ir::{Loc, Module, Node, Op};
use serde::{Deserialize, Serialize};

use super::precision::Precision;

macro_rules! classes {
    ($($(#[$doc:meta])* $class:ident = $name:literal,)*) => {
        /// What precision policies tell apart.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum OpClass {
            $($(#[$doc])* $class,)*
        }

        impl OpClass {
            /// All of them.
            pub const ALL: &'static [OpClass] = &[$(OpClass::$class),*];

            /// The name in reports.
            pub const fn name(self) -> &'static str {
                match self { $(OpClass::$class => $name,)* }
            }
        }
    };
}

classes! {
    /// Matrix products and convolutions.
    Contraction = "contraction",
    /// Scaled dot-product attention as one op.
    Attention = "attention",
    /// Recurrent layers.
    Recurrent = "recurrent",
    /// Layer, RMS, group and batch norms.
    Norm = "norm",
    /// Softmax and its logarithm.
    Softmax = "softmax",
    /// Logarithms, of which losses are made.
    Loss = "loss",
    /// Sums, means, extremes, running sums and Fourier transforms.
    Reduction = "reduction",
    /// Pooling and resampling.
    Pooling = "pooling",
    /// Scalar functions.
    Elementwise = "elementwise",
    /// Views, copies, gathers, sorts: elements go from place to place unchanged.
    Move = "move",
    /// Branches, loops, calls, random numbers: what has no precision of its own.
    Control = "control",
}

impl OpClass {
    /// The class of an op.
    pub fn of(op: &Op) -> OpClass {
        match op {
            Op::Contraction(_) => OpClass::Contraction,
            Op::Neural(n) => match n {
                Neural::Attention(_) => OpClass::Attention,
                Neural::Lstm(_) | Neural::Gru(_) | Neural::Rnn(_) => OpClass::Recurrent,
                Neural::Softmax(_) => OpClass::Softmax,
                Neural::LayerNorm(_) | Neural::RmsNorm(_) | Neural::BatchNorm(_) | Neural::GroupNorm(_) => {
                    OpClass::Norm
                }
                Neural::Resize(_) => OpClass::Pooling,
                Neural::RotaryEmbedding(_) => OpClass::Elementwise,
            },
            Op::Reduction(Reduction::ReduceWindow(_) | Reduction::MaxPoolIndices(_)) => OpClass::Pooling,
            Op::Reduction(_) | Op::Signal(_) => OpClass::Reduction,
            Op::Elementwise(Elementwise::Unary(Unary::Log | Unary::Log1p)) => OpClass::Loss,
            Op::Elementwise(_) => OpClass::Elementwise,
            Op::ShapeOp(ShapeOp::BitcastConvert(_)) | Op::Random(_) | Op::Custom(_) => OpClass::Control,
            Op::Control(Control::If(_) | Control::Loop(_) | Control::Scan(_) | Control::Call(_)) => OpClass::Control,
            Op::ShapeOp(_) | Op::Indexing(_) => OpClass::Move,
        }
    }
}

impl fmt::Display for OpClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Which nodes a rule is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Selector {
    /// Those of a class.
    Class(OpClass),
    /// Those of a mnemonic.
    Op(String),
    /// Those whose name in the source fits a pattern, in which `*` stands for any characters. A node made of several source nodes fits if
    /// one of their names does.
    Name(String),
}

impl Selector {
    /// True if a node is meant.
    pub fn selects(&self, op: &Op, loc: &Loc) -> bool {
        match self {
            Selector::Class(c) => OpClass::of(op) == *c,
            Selector::Op(name) => op.name() == name,
            Selector::Name(pattern) => {
                let Some(name) = loc.name() else { return false };
                fits(pattern, name) || name.split('+').any(|part| fits(pattern, part))
            }
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Class(c) => write!(f, "class {c}"),
            Selector::Op(name) => write!(f, "op {name}"),
            Selector::Name(pattern) => write!(f, "name {pattern:?}"),
        }
    }
}

/// True if a text fits a pattern in which `*` stands for any characters.
fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// A rule: whether the nodes that it is about are low.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PrecisionRule {
    /// Which nodes.
    pub nodes: Selector,
    /// True: in the low precision; false: in f32.
    pub low: bool,
}

/// What holds for nodes that no rule is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Otherwise {
    /// As under [`AlwaysF32`](super::PrecisionPolicy::AlwaysF32).
    F32,
    /// As under [`AlwaysLow`](super::PrecisionPolicy::AlwaysLow).
    Low,
    /// As under [`Mixed`](super::PrecisionPolicy::Mixed).
    #[default]
    Mixed,
    /// As under [`ConservativeMixed`](super::PrecisionPolicy::ConservativeMixed).
    ConservativeMixed,
}

/// A policy of rules. The first rule that is about a node decides.
///
/// ```
/// use rlx_compile::options::{CustomPolicy, OpClass, Otherwise, Precision, PrecisionPolicy};
/// let policy = CustomPolicy::new(Precision::BF16)
///     .keep_named("*/lm_head/*")
///     .lower_class(OpClass::Contraction)
///     .otherwise(Otherwise::F32);
/// assert_eq!(PrecisionPolicy::from(policy).low(), Some(Precision::BF16));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CustomPolicy {
    /// The low precision.
    pub low: Precision,
    /// Rules; the first that is about a node decides.
    pub rules: Vec<PrecisionRule>,
    /// What holds for all other nodes.
    pub otherwise: Otherwise,
}

impl CustomPolicy {
    /// A policy without rules: mixed.
    pub fn new(low: Precision) -> Self {
        CustomPolicy { low, rules: Vec::new(), otherwise: Otherwise::default() }
    }

    /// Appends a rule.
    #[must_use]
    pub fn rule(mut self, nodes: Selector, low: bool) -> Self {
        self.rules.push(PrecisionRule { nodes, low });
        self
    }

    /// Nodes of a class compute low.
    #[must_use]
    pub fn lower_class(self, class: OpClass) -> Self {
        self.rule(Selector::Class(class), true)
    }

    /// Nodes of a class compute in f32.
    #[must_use]
    pub fn keep_class(self, class: OpClass) -> Self {
        self.rule(Selector::Class(class), false)
    }

    /// Nodes whose names fit a pattern compute low.
    #[must_use]
    pub fn lower_named(self, pattern: impl Into<String>) -> Self {
        self.rule(Selector::Name(pattern.into()), true)
    }

    /// Nodes whose names fit a pattern compute in f32.
    #[must_use]
    pub fn keep_named(self, pattern: impl Into<String>) -> Self {
        self.rule(Selector::Name(pattern.into()), false)
    }

    /// What holds for nodes that no rule is about.
    #[must_use]
    pub fn otherwise(mut self, otherwise: Otherwise) -> Self {
        self.otherwise = otherwise;
        self
    }

    /// Asks a predicate about each named node of a module, and keeps its answers as rules: `Some(true)` is low, `Some(false)` f32. So a
    /// policy stays data that options can be compared by, whatever the predicate does.
    ///
    /// ```
    /// use rlx_compile::options::{CustomPolicy, Precision};
    /// use rlx_ir::{Builder, DType, Loc, Module};
    /// let mut b = Builder::new("main");
    /// let x = b.input("x", DType::F32, [4i64])?;
    /// b.set_loc(Loc::new("block.7/gelu"));
    /// let y = b.relu(x)?;
    /// b.output("y", y)?;
    /// let module = Module::from_graph(b.finish());
    /// let policy = CustomPolicy::new(Precision::F16).by_predicate(&module, |name, _| name.starts_with("block.7").then_some(false));
    /// assert_eq!(policy.rules.len(), 1);
    /// # Ok::<(), rlx_ir::IrError>(())
    /// ```
    #[must_use]
    pub fn by_predicate(mut self, module: &Module, mut low: impl FnMut(&str, OpClass) -> Option<bool>) -> Self {
        let mut all: Vec<&Node> = Vec::new();
        let mut graphs: Vec<&rlx_ir::Graph> = module.functions.values().chain([&module.main]).collect();
        while let Some(g) = graphs.pop() {
            all.extend(g.nodes());
            graphs.extend(g.nodes().iter().flat_map(|n| &n.regions));
        }
        let mut asked = std::collections::BTreeSet::new();
        for node in all {
            let Some(name) = node.loc.name().filter(|n| asked.insert(n.to_string())) else { continue };
            if let Some(low) = low(name, OpClass::of(&node.op)) {
                self.rules.push(PrecisionRule { nodes: Selector::Name(name.into()), low });
            }
        }
        self
    }

    /// What the first rule that is about a node says.
    pub fn decides(&self, op: &Op, loc: &Loc) -> Option<bool> {
        self.rules.iter().find(|r| r.nodes.selects(op, loc)).map(|r| r.low)
    }
}

impl From<CustomPolicy> for super::PrecisionPolicy {
    fn from(c: CustomPolicy) -> Self {
        super::PrecisionPolicy::Custom(c)
    }
}

impl fmt::Display for CustomPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let otherwise = match self.otherwise {
            Otherwise::F32 => "f32",
            Otherwise::Low => "low",
            Otherwise::Mixed => "mixed",
            Otherwise::ConservativeMixed => "conservative mixed",
        };
        write!(f, "custom {}: ", self.low)?;
        for r in &self.rules {
            write!(f, "{} {}, ", r.nodes, if r.low { "low" } else { "f32" })?;
        }
        write!(f, "otherwise {otherwise}")
    }
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn patterns() {
        for (pattern, text, yes) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a*c", "abc", true),
            ("a*c", "ab", false),
            ("*b*", "abc", true),
            ("ab*ba", "aba", false),
            ("layer.*/attn/*", "layer.3/attn/q", true),
            ("layer.3", "layer.31", false),
            ("*é", "né", true),
        ] {
            assert_eq!(fits(pattern, text), yes, "{pattern:?} {text:?}");
        }
    }
}
