//! The tensors inside a program, in a fixed order: constants, default values of parameters, first values of states; those of nested
//! programs where their kernel stands. Whoever stores a program keeps them apart from it and puts them back.

use rlx_ir::Tensor;

use super::{Kernel, Lir, LirModule, Storage};

impl LirModule {
    /// Calls `f` on every tensor.
    pub fn for_each_tensor<E>(&mut self, f: &mut impl FnMut(&mut Tensor) -> Result<(), E>) -> Result<(), E> {
        self.prepare.iter_mut().chain([&mut self.main]).try_for_each(|l| l.for_each_tensor(f))
    }
}

impl Lir {
    /// Calls `f` on every tensor.
    pub fn for_each_tensor<E>(&mut self, f: &mut impl FnMut(&mut Tensor) -> Result<(), E>) -> Result<(), E> {
        for b in &mut self.buffers {
            if let Storage::Const(t) = &mut b.storage {
                f(t)?;
            }
        }
        let defaults = self.params.iter_mut().filter_map(|p| p.default.as_mut());
        defaults.chain(self.states.iter_mut().filter_map(|s| s.init.as_mut())).try_for_each(&mut *f)?;
        for k in &mut self.kernels {
            let programs: Vec<&mut Lir> = match &mut k.kernel {
                Kernel::Branch(b) => vec![&mut b.then_branch.program, &mut b.else_branch.program],
                Kernel::Loop(l) => vec![&mut l.body.program],
                Kernel::Scan(s) => vec![&mut s.body.program],
                Kernel::Call(c) => vec![&mut c.body.program],
                _ => Vec::new(),
            };
            programs.into_iter().try_for_each(|p| p.for_each_tensor(f))?;
        }
        Ok(())
    }
}
