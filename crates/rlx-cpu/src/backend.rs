//! The CPU as a target of the compiler.

use crate::executable::CpuExecutable;
use crate::library;
use rlx_compile::report::Fallback;
use rlx_compile::target::{Claims, ExecutableGraph, InputStage, Made, Peak, common_fallbacks};
use rlx_compile::{Backend, CompileError, CompileOptions, MatmulPrecision, TargetModule};
use rlx_driver::{Device, Isa, ThreadPool};
use rlx_ir::ops::{Contraction, Custom};
use rlx_ir::{DType, Node, Op, TensorType};

/// The CPU backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuBackend;

/// The kinds of kernels that run here, besides those of [`library`].
const KERNELS: &[&str] =
    &["map", "row", "contract", "conv", "conv_transpose", "window", "attention", "branch", "loop", "scan", "call"];

/// What is not taken of claimed ops.
fn limits(node: &Node, _operands: &[&TensorType]) -> Result<(), String> {
    match &node.op {
        Op::Contraction(Contraction::Conv(op)) if op.lhs_dilation.iter().any(|&d| d != 1) => {
            Err("inputs of convolutions are not dilated".into())
        }
        Op::Custom(Custom::CustomOp(op)) if !library::has_kernel(&op.name) => {
            Err(format!("no kernel is registered for `{}` (`rlx::custom::register_kernel`)", op.name))
        }
        _ => Ok(()),
    }
}

impl Backend for CpuBackend {
    fn claims(&self, _device: Device) -> Claims {
        let mut ops = rlx_compile::lower::ops_of(KERNELS);
        ops.extend(library::OPS.iter().chain(&["read_dims"]).map(|s| s.to_string()));
        Claims {
            ops,
            dtypes: DType::ALL.iter().copied().filter(|&d| d != DType::Str).collect(),
            filter: Some(limits),
            symbolic_shapes: true,
            in_place: true,
            growing_states: true,
            scaled_operands: true,
            // Beside vector units, joining was measured to gain nothing, and to cost a copy of the weights.
            joined_products: crate::gemm::amx::has_tiles(crate::simd::effective(Isa::best())),
            ..Claims::new("cpu", InputStage::Lir)
        }
    }

    fn compile(
        &self,
        input: TargetModule,
        _device: Device,
        options: &CompileOptions,
    ) -> Result<Box<dyn ExecutableGraph>, CompileError> {
        match input {
            TargetModule::Lir(module) => Ok(Box::new(CpuExecutable::new(module, options)?)),
            TargetModule::Mir { .. } => Err(CompileError::Backend("the CPU takes LIR, not graphs".into())),
        }
    }

    fn layouts(&self, _device: Device, options: &CompileOptions) -> String {
        crate::contract::layout(crate::simd::effective(options.isa.unwrap_or_else(Isa::best)))
    }

    fn restore(
        &self,
        input: TargetModule,
        made: Vec<Made>,
        _device: Device,
        options: &CompileOptions,
    ) -> Result<(Box<dyn ExecutableGraph>, Vec<String>), CompileError> {
        match input {
            TargetModule::Lir(module) => {
                let (executable, again) = CpuExecutable::restore(module, made, options)?;
                Ok((Box::new(executable), again))
            }
            TargetModule::Mir { .. } => Err(CompileError::Backend("the CPU takes LIR, not graphs".into())),
        }
    }

    fn fallbacks(&self, device: Device, options: &CompileOptions) -> Vec<Fallback> {
        let mut all = common_fallbacks(options, &self.claims(device));
        let isa = crate::simd::effective(options.isa.unwrap_or_else(Isa::best));
        if crate::jit::supported(isa) {
            all.retain(|f| f.option != "jit");
        }
        // Three bf16 products are what a matrix unit does.
        if crate::gemm::amx::has_tiles(isa) && options.matmul_precision == MatmulPrecision::High {
            all.retain(|f| f.option != "matmul_precision");
        }
        all
    }

    fn peak(&self, _device: Device, threads: usize) -> Option<Peak> {
        let threads = if threads == 0 { ThreadPool::global().threads() } else { threads };
        Some(crate::peak::measure(crate::simd::effective(Isa::best()), threads))
    }
}
