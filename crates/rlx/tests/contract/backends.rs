//! Backends made of the CPU's, which claim less.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rlx::compile::target::{Backend, Claims, ExecutableGraph, TargetModule};
use rlx::{CompileError, CompileOptions, DType, Device};

/// The CPU under another name, without some ops, or for fixed sizes only.
pub struct Lesser {
    pub name: &'static str,
    pub without: &'static [&'static str],
    pub without_dtypes: &'static [DType],
    pub symbolic: bool,
    pub compiled: AtomicUsize,
}

impl Lesser {
    pub fn new(name: &'static str) -> Lesser {
        Lesser { name, without: &[], without_dtypes: &[], symbolic: true, compiled: AtomicUsize::new(0) }
    }
}

pub fn cpu() -> Arc<dyn Backend> {
    rlx::backend_for(Device::Cpu).unwrap()
}

impl Backend for Lesser {
    fn claims(&self, _: Device) -> Claims {
        let mut claims = cpu().claims(Device::Cpu);
        claims.target = self.name.into();
        claims.ops.retain(|o| !self.without.contains(&o.as_str()));
        claims.dtypes.retain(|d| !self.without_dtypes.contains(d));
        claims.symbolic_shapes = self.symbolic;
        claims
    }

    fn compile(
        &self,
        input: TargetModule,
        _: Device,
        options: &CompileOptions,
    ) -> Result<Box<dyn ExecutableGraph>, CompileError> {
        self.compiled.fetch_add(1, Ordering::Relaxed);
        cpu().compile(input, Device::Cpu, options)
    }
}
