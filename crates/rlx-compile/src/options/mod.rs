//! What a compilation is told. Plain data: the default reads nothing from the environment; [`CompileOptions::from_env`] does when asked.
//!
//! Options know which of them were set: [`CompileOptions::over`] merges two sets, and what the upper one leaves alone stays as the lower one
//! has it, even where the upper one was set to what is the default.

mod custom;
mod env;
mod precision;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::error::CompileError;
use rlx_ir::dim::Bounds;
use rlx_ir::ops::random::RngOptions;
use rlx_ir::{DimBinding, Symbol, Tensor};

pub use env::{EnvError, VARIABLES};
pub use precision::{
    CustomPolicy, MatmulPrecision, OpClass, Otherwise, Precision, PrecisionPolicy, PrecisionRule, ScaledQuant, Selector,
};

/// Which fusions are made.
///
/// Names of fusions: `elementwise` (chains and groups of elementwise ops), `row` (softmax, norms and reductions over one axis), `epilogue` (into
/// contractions and convolutions), `concat` (producers that write their part of a concatenation or padding), `views` (reshapes,
/// transposes and slices without a copy), `scaled` (scales and zero points of integers that products take as they are), `join` (products of
/// one left operand that go to attention: queries, keys and values).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fusion {
    /// All.
    On,
    /// None: one kernel a node.
    Off,
    /// All but those of these names.
    Without(Vec<String>),
}

impl Fusion {
    /// Names of all fusions.
    pub const NAMES: &'static [&'static str] = &["elementwise", "row", "epilogue", "concat", "views", "scaled", "join"];

    /// True if the fusion of this name is to be made.
    pub fn allows(&self, name: &str) -> bool {
        match self {
            Fusion::On => true,
            Fusion::Off => false,
            Fusion::Without(names) => !names.iter().any(|n| n == name),
        }
    }
}

/// How two values of an option become one: the upper replaces the lower, maps are joined.
trait Merge: Clone {
    fn over(&self, _lower: &Self) -> Self {
        self.clone()
    }
}

macro_rules! replaced {
    ($($t:ty),* $(,)?) => { $(impl Merge for $t {})* };
}
replaced!(bool, usize, u64, Precision, PrecisionPolicy, MatmulPrecision, Fusion);

impl<T: Clone> Merge for Option<T> {}

impl Merge for DimBinding {
    fn over(&self, lower: &Self) -> Self {
        let mut all = lower.clone();
        for (s, n) in self.iter() {
            all.set(s.clone(), n);
        }
        all
    }
}

impl Merge for Bounds {
    fn over(&self, lower: &Self) -> Self {
        let mut all = lower.clone();
        for (s, (lo, hi)) in self.iter() {
            all.set(s.clone(), lo, hi);
        }
        all
    }
}

impl Merge for BTreeMap<String, Tensor> {
    fn over(&self, lower: &Self) -> Self {
        let mut all = lower.clone();
        all.extend(self.iter().map(|(n, t)| (n.clone(), t.clone())));
        all
    }
}

macro_rules! options {
    ($($(#[$doc:meta])* $field:ident: $t:ty = $default:expr, $stage:ident, $set:literal;)*) => {
        /// Options of a compilation.
        ///
        /// ```
        /// use rlx_compile::CompileOptions;
        /// let session = CompileOptions::new().threads(1).constant_folding(false);
        /// let call = CompileOptions::new().constant_folding(true);
        /// let both = call.over(&session);
        /// assert_eq!((both.threads, both.constant_folding), (1, true));
        /// ```
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub struct CompileOptions {
            $($(#[$doc])* pub $field: $t,)*
            /// Names of the options that were set.
            explicit: BTreeSet<&'static str>,
        }

        impl Default for CompileOptions {
            fn default() -> Self {
                CompileOptions { $($field: $default,)* explicit: BTreeSet::new() }
            }
        }

        impl CompileOptions {
            /// Names of all options.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($field)),*];

            /// The defaults.
            pub fn new() -> Self {
                Self::default()
            }

            $(#[doc = $set] #[must_use] pub fn $field(mut self, value: $t) -> Self {
                self.$field = value;
                self.explicit.insert(stringify!($field));
                self
            })*

            /// Names of the options that were set, by a method or by assigning what is not the default.
            pub fn explicit(&self) -> Vec<&'static str> {
                let default = Self::default();
                let mut out = Vec::new();
                $(if self.explicit.contains(stringify!($field)) || self.$field != default.$field {
                    out.push(stringify!($field));
                })*
                out
            }

            /// These options over others: those that were set here hold, all else is as `lower` has it. Bindings and bounds are joined.
            #[must_use]
            pub fn over(&self, lower: &CompileOptions) -> CompileOptions {
                let mut out = lower.clone();
                for name in self.explicit() {
                    match name {
                        $(stringify!($field) => out.$field = Merge::over(&self.$field, &lower.$field),)*
                        _ => {}
                    }
                    out.explicit.insert(name);
                }
                out
            }

            /// All options that decide what is compiled, with their values as text: two sets with equal text compile alike. Contents of
            /// tensors are not in the text.
            pub fn of_graphs(&self) -> Vec<(&'static str, String)> {
                let mut out = Vec::new();
                $(if matches!(Needs::$stage, Needs::Graph) {
                    out.push((stringify!($field), format!("{:?}", self.$field)));
                })*
                // A policy that was set to what is the default decides, one that was not does not.
                out.push(("effective_policy", format!("{:?}", self.effective_policy())));
                out
            }

            /// Options that were set but speak of stages that a program of kernels (LIR) has behind it.
            pub fn without_effect_on_lir(&self) -> Vec<&'static str> {
                let graph = |name: &&'static str| match *name {
                    $(stringify!($field) => matches!(Needs::$stage, Needs::Graph),)*
                    _ => false,
                };
                self.explicit().into_iter().filter(graph).collect()
            }
        }
    };
}

/// The stage that an option works on.
enum Needs {
    /// Graphs.
    Graph,
    /// Kernels, or how they run.
    Kernels,
}

options! {
    /// Numbers that activations and weights are kept in. A `policy` that is set decides instead.
    precision: Precision = Precision::F32, Graph, "Sets the numbers kept.";
    /// Which ops compute in low precision.
    policy: PrecisionPolicy = PrecisionPolicy::AlwaysF32, Graph, "Sets which ops compute in low precision.";
    /// Exactness of f32 contractions.
    matmul_precision: MatmulPrecision = MatmulPrecision::Highest, Graph, "Sets the exactness of f32 contractions.";
    /// Drop what no output needs.
    dce: bool = true, Graph, "Turns dead-code elimination on or off.";
    /// Compute at compile time what is constant; simplify; share what is equal.
    constant_folding: bool = true, Graph, "Turns constant folding, simplification and sharing on or off.";
    /// Recognise composites in exported graphs.
    recognise: bool = true, Graph, "Turns recognition of composites on or off.";
    /// Fuse kernels.
    fusion: Fusion = Fusion::On, Graph, "Sets which fusions are made.";
    /// Split off what depends on parameters only, to run once.
    cache_param_invariant: bool = true, Graph, "Turns the prepare/main split on or off.";
    /// Quantise contractions to this format at run time.
    scaled_quant: Option<ScaledQuant> = None, Graph, "Sets the format that contractions are quantised to.";
    /// Quantise the operands of attention too.
    scaled_quant_attention: bool = false, Graph, "Sets whether the operands of attention are quantised to that format too.";
    /// Where the random generator starts; as the graph says if `None`.
    rng: Option<RngOptions> = None, Kernels, "Sets where the random generator starts.";
    /// Alignment of arena buffers, bytes; a power of two from 64 to 2 MiB.
    arena_alignment: usize = 64, Kernels, "Sets the alignment of arena buffers, in bytes: a power of two from 64 to 2 MiB.";
    /// Sizes of symbols known at compile time.
    dim_bindings: DimBinding = DimBinding::new(), Graph, "Fixes sizes of symbols.";
    /// Bounds of symbols.
    dim_bounds: Bounds = Bounds::default(), Graph, "Bounds symbols.";
    /// Values of parameters known at compile time: they become constants, and no longer are parameters of the program.
    param_bindings: BTreeMap<String, Tensor> = BTreeMap::new(), Graph, "Fixes values of parameters.";
    /// Keep programs compiled from graphs in this folder, and take them from there; nothing is kept if `None`.
    cache_dir: Option<PathBuf> = None, Graph, "Sets the folder in which compiled programs are kept.";
    /// Bytes that the folder of programs may hold: those not used for longest go first.
    cache_bytes: u64 = 4 << 30, Graph, "Sets how many bytes the folder of compiled programs may hold.";
    /// Verify after every pass. What comes in is always verified.
    verify: bool = cfg!(debug_assertions), Kernels, "Turns verification after every pass on or off.";
    /// Write the module after every pass to this folder.
    dump: Option<PathBuf> = None, Kernels, "Sets the folder of dumps.";
    /// Keep what passes remark (what was fused and what was not, and why) in the report.
    remarks: bool = true, Graph, "Turns remarks in the report on or off.";
    /// Threads of a run; 0 is all that the process may use.
    threads: usize = 0, Kernels, "Sets the number of threads; 0 is all that the process may use.";
    /// Kernels of at most this instruction set (`portable`, `avx2`, …); the best there is if `None`.
    isa: Option<rlx_driver::Isa> = None, Kernels, "Sets the instruction set.";
    /// Compile scalar programs to machine code where the backend can.
    jit: bool = true, Kernels, "Turns compilation of scalar programs to machine code on or off.";
    /// How many bound shapes are kept.
    bind_cache: usize = 64, Kernels, "Sets how many bound shapes are kept; at least one.";
    /// How many bytes bound shapes may take, about; the one in use stays in any case.
    bind_cache_bytes: u64 = 64 << 20, Kernels, "Sets how many bytes bound shapes may take, about.";
    /// Bytes that the program may allocate for itself: arena, outputs, states, prepared and packed parameters. A run that needs more is
    /// refused before it starts.
    memory_limit: Option<u64> = None, Kernels, "Sets how many bytes the program may allocate.";
    /// Fill arenas with a pattern before each run, to show reads of what was not written.
    poison: bool = false, Kernels, "Turns poisoning of arenas on or off.";
}

impl CompileOptions {
    /// Fixes the size of a symbol.
    #[must_use]
    pub fn bind_dim(mut self, symbol: impl Into<Symbol>, size: i64) -> Self {
        self.dim_bindings.set(symbol, size);
        self
    }

    /// Bounds a symbol.
    #[must_use]
    pub fn bound_dim(mut self, symbol: impl Into<Symbol>, min: i64, max: Option<i64>) -> Self {
        self.dim_bounds.set(symbol, min, max);
        self
    }

    /// Fixes the value of a parameter.
    #[must_use]
    pub fn bind_param(mut self, name: impl Into<String>, value: Tensor) -> Self {
        self.param_bindings.insert(name.into(), value);
        self
    }

    /// The policy that holds: the one that was set, or else that of the precision, in which [`Precision::BF16`] and [`Precision::F16`] are
    /// [`AlwaysLow`](PrecisionPolicy::AlwaysLow).
    pub fn effective_policy(&self) -> PrecisionPolicy {
        let set = self.policy != PrecisionPolicy::AlwaysF32 || self.explicit.contains("policy");
        match self.precision {
            _ if set => self.policy.clone(),
            Precision::F32 => PrecisionPolicy::AlwaysF32,
            low => PrecisionPolicy::AlwaysLow(low),
        }
    }

    /// Everything that these options ask for and that does not exist.
    pub fn check(&self) -> Result<(), CompileError> {
        let mut wrong = Vec::new();
        let align = self.arena_alignment;
        if !align.is_power_of_two() || !(64..=rlx_driver::HUGE_PAGE).contains(&align) {
            wrong.push(format!(
                "`arena_alignment` is {align}: it takes powers of two from 64 to {}",
                rlx_driver::HUGE_PAGE
            ));
        }
        if let Fusion::Without(names) = &self.fusion {
            for name in names.iter().filter(|n| !Fusion::NAMES.contains(&n.as_str())) {
                wrong.push(format!("`fusion` names `{name}`; there are: {}", Fusion::NAMES.join(", ")));
            }
        }
        for (s, n) in self.dim_bindings.iter().filter(|(_, n)| *n < 0) {
            wrong.push(format!("`dim_bindings` fixes `{s}` at {n}: sizes are not negative"));
        }
        if wrong.is_empty() { Ok(()) } else { Err(CompileError::Options(wrong)) }
    }

    /// Without optimisation: nothing recognised, folded, shared or fused. For comparing.
    #[must_use]
    pub fn unoptimised(self) -> Self {
        self.recognise(false).constant_folding(false).fusion(Fusion::Off).cache_param_invariant(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_wins_even_where_it_is_the_default() {
        let lower = CompileOptions::new().threads(3).dce(false).bind_dim("n", 1).bind_dim("m", 2);
        let upper = CompileOptions::new().dce(true).bind_dim("n", 5);
        let both = upper.over(&lower);
        assert_eq!((both.threads, both.dce), (3, true));
        assert_eq!((both.dim_bindings.get(&"n".into()), both.dim_bindings.get(&"m".into())), (Some(5), Some(2)));
        assert_eq!(both.explicit(), ["dce", "dim_bindings", "threads"]);
        assert_eq!(CompileOptions::new().over(&lower), lower);
    }

    #[test]
    fn assigned_fields_count_as_set() {
        let mut upper = CompileOptions::new();
        upper.threads = 2;
        assert_eq!(upper.over(&CompileOptions::new().threads(7)).threads, 2);
    }

    #[test]
    fn every_option_has_a_name() {
        assert!(CompileOptions::NAMES.len() >= 20);
        assert!(CompileOptions::NAMES.contains(&"memory_limit"));
    }
}
