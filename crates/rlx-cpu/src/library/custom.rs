//! Custom ops: kernels that users register under the ops' names.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::{Defined, Routine};
use crate::buffers::{BindError, BoundView, KernelError, RunCx};
use crate::control::{copy_in, copy_out};
use rlx_driver::AlignedBuffer;
use rlx_ir::DType;
use rlx_ir::ops::custom::{Attributes, CustomOp};

/// An operand: its elements lie row-major, side by side.
#[derive(Clone, Copy, Debug)]
pub struct KernelInput<'a> {
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub dims: &'a [usize],
    /// The elements' bytes, at an address that suits any dtype.
    pub bytes: &'a [u8],
}

/// A result, to be filled whole.
#[derive(Debug)]
pub struct KernelOutput<'a> {
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub dims: &'a [usize],
    /// Room for the elements' bytes, row-major, at an address that suits any dtype. What stands there before is of no meaning.
    pub bytes: &'a mut [u8],
}

/// What a custom op does on the CPU. Runs may be on several threads at once; one run is on one of them.
pub trait CustomKernel: Send + Sync {
    /// Computes the results. An error ends the run.
    fn run(
        &self,
        attributes: &Attributes,
        inputs: &[KernelInput<'_>],
        outputs: &mut [KernelOutput<'_>],
    ) -> Result<(), String>;
}

static KERNELS: RwLock<BTreeMap<String, Arc<dyn CustomKernel>>> = RwLock::new(BTreeMap::new());

/// Registers the kernel of a custom op. Programs that are compiled afterwards use it; the last registration of a name wins.
pub fn register_kernel(name: impl Into<String>, kernel: impl CustomKernel + 'static) {
    KERNELS.write().unwrap_or_else(PoisonError::into_inner).insert(name.into(), Arc::new(kernel));
}

fn kernel(name: &str) -> Option<Arc<dyn CustomKernel>> {
    KERNELS.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
}

/// Whether the CPU has a kernel for a custom op.
pub fn has_kernel(name: &str) -> bool {
    kernel(name).is_some()
}

struct Custom {
    name: String,
    attributes: Attributes,
    kernel: Arc<dyn CustomKernel>,
    inputs: Vec<BoundView>,
    outputs: Vec<BoundView>,
}

impl std::fmt::Debug for Custom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Custom").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Plans a custom op. Its results' sizes are those of its type rule.
pub fn plan(op: &CustomOp, inputs: &[BoundView], outputs: &[BoundView]) -> Result<Box<dyn Routine>, BindError> {
    let kernel = kernel(&op.name).ok_or_else(|| {
        format!(
            "the CPU has no kernel for the custom op `{0}`: register it with `rlx::custom::register_kernel`",
            op.name
        )
    })?;
    let (name, attributes) = (op.name.clone(), op.attributes.clone());
    Ok(Box::new(Custom { name, attributes, kernel, inputs: inputs.to_vec(), outputs: outputs.to_vec() }))
}

fn bytes_of(v: &BoundView) -> Result<usize, KernelError> {
    v.access.dtype.bytes_for(v.numel()).ok_or_else(|| format!("{} elements are too many", v.numel()))
}

impl Routine for Custom {
    unsafe fn run(&self, run: &RunCx<'_>) -> Result<Option<Defined>, KernelError> {
        // Operands are copied: whoever wrote the kernel sees them row-major however they lie, and cannot reach other memory by them.
        let mut copies = Vec::with_capacity(self.inputs.len());
        for v in &self.inputs {
            let mut copy = AlignedBuffer::uninit(bytes_of(v)?).map_err(|e| e.to_string())?;
            // SAFETY: the copy has room for all elements; the view was checked at bind.
            unsafe { copy_out(v, run.bufs, copy.as_mut_ptr()) };
            copies.push(copy);
        }
        let mut results = Vec::with_capacity(self.outputs.len());
        for v in &self.outputs {
            results.push(AlignedBuffer::zeroed(bytes_of(v)?).map_err(|e| e.to_string())?);
        }
        let mut inputs = Vec::with_capacity(copies.len());
        for (v, copy) in self.inputs.iter().zip(&copies) {
            inputs.push(KernelInput { dtype: v.access.dtype, dims: &v.sizes, bytes: &copy.as_slice()[..bytes_of(v)?] });
        }
        let mut outputs = Vec::with_capacity(results.len());
        for (v, room) in self.outputs.iter().zip(&mut results) {
            let n = bytes_of(v)?;
            outputs.push(KernelOutput { dtype: v.access.dtype, dims: &v.sizes, bytes: &mut room.as_mut_slice()[..n] });
        }
        let ran = self.kernel.run(&self.attributes, &inputs, &mut outputs);
        ran.map_err(|e| format!("custom op `{}`: {e}", self.name))?;
        for (v, made) in self.outputs.iter().zip(&results) {
            // SAFETY: the result holds all elements; the view was checked at bind.
            unsafe { copy_in(v, run.bufs, made.as_ptr()) };
        }
        Ok(None)
    }
}
