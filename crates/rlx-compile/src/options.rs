//! What a compilation is told. Plain data: the default reads nothing from the environment.

use std::path::PathBuf;

use rlx_ir::dim::Bounds;
use rlx_ir::{DimBinding, Symbol};

/// Numbers that activations and weights are kept in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// As the model says.
    #[default]
    F32,
    /// IEEE half.
    F16,
    /// bfloat16.
    BF16,
}

/// How exact f32 contractions are, in the field's terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MatmulPrecision {
    /// f32 accuracy.
    #[default]
    Highest,
    /// Three bf16 products.
    High,
    /// bf16 inputs, f32 accumulation.
    Medium,
}

/// Which fusions are made.
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
    /// True if the fusion of this name is to be made.
    pub fn allows(&self, name: &str) -> bool {
        match self {
            Fusion::On => true,
            Fusion::Off => false,
            Fusion::Without(names) => !names.iter().any(|n| n == name),
        }
    }
}

/// Options of a compilation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CompileOptions {
    /// Numbers kept.
    pub precision: Precision,
    /// Exactness of f32 contractions.
    pub matmul_precision: MatmulPrecision,
    /// Drop what no output needs.
    pub dce: bool,
    /// Compute at compile time what is constant.
    pub constant_folding: bool,
    /// Recognise composites in exported graphs.
    pub recognise: bool,
    /// Fuse kernels.
    pub fusion: Fusion,
    /// Split off what depends on parameters only, to run once.
    pub cache_param_invariant: bool,
    /// Alignment of arena buffers, bytes; a power of two.
    pub arena_alignment: usize,
    /// Sizes of symbols known at compile time.
    pub dim_bindings: DimBinding,
    /// Bounds of symbols.
    pub dim_bounds: Bounds,
    /// Verify after every pass.
    pub verify: bool,
    /// Write the module after every pass to this folder.
    pub dump: Option<PathBuf>,
    /// Threads of a run; 0 is all that the process may use.
    pub threads: usize,
    /// Kernels of at most this instruction set (`portable`, `avx2`, …); the best there is if `None`.
    pub isa: Option<rlx_driver::Isa>,
    /// How many bound shapes are kept.
    pub bind_cache: usize,
    /// Fill arenas with a pattern before each run, to show reads of what was not written.
    pub poison: bool,
}

impl Default for CompileOptions {
    fn default() -> Self {
        CompileOptions {
            precision: Precision::F32,
            matmul_precision: MatmulPrecision::Highest,
            dce: true,
            constant_folding: true,
            recognise: true,
            fusion: Fusion::On,
            cache_param_invariant: true,
            arena_alignment: 64,
            dim_bindings: DimBinding::new(),
            dim_bounds: Bounds::default(),
            verify: cfg!(debug_assertions),
            dump: None,
            threads: 0,
            isa: None,
            bind_cache: 64,
            poison: false,
        }
    }
}

macro_rules! with {
    ($($(#[$doc:meta])* $field:ident: $t:ty),* $(,)?) => {
        impl CompileOptions {
            /// The defaults.
            pub fn new() -> Self {
                Self::default()
            }

            $($(#[$doc])* #[must_use] pub fn $field(mut self, value: $t) -> Self {
                self.$field = value;
                self
            })*
        }
    };
}

with! {
    /// Sets the numbers kept.
    precision: Precision,
    /// Sets the exactness of f32 contractions.
    matmul_precision: MatmulPrecision,
    /// Turns dead-code elimination on or off.
    dce: bool,
    /// Turns constant folding on or off.
    constant_folding: bool,
    /// Turns recognition of composites on or off.
    recognise: bool,
    /// Sets which fusions are made.
    fusion: Fusion,
    /// Turns the prepare/main split on or off.
    cache_param_invariant: bool,
    /// Sets the alignment of arena buffers.
    arena_alignment: usize,
    /// Turns verification after every pass on or off.
    verify: bool,
    /// Sets the folder of dumps.
    dump: Option<PathBuf>,
    /// Sets the number of threads.
    threads: usize,
    /// Sets the instruction set.
    isa: Option<rlx_driver::Isa>,
    /// Sets how many bound shapes are kept.
    bind_cache: usize,
    /// Turns poisoning of arenas on or off.
    poison: bool,
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

    /// Without optimisation: nothing recognised, folded, shared or fused. For comparing.
    #[must_use]
    pub fn unoptimised(self) -> Self {
        self.recognise(false).constant_folding(false).fusion(Fusion::Off).cache_param_invariant(false)
    }
}
