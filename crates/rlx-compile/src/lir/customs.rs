//! Which custom ops a program has.

use std::collections::BTreeSet;

use rlx_ir::Op;
use rlx_ir::ops::Custom;

use super::{Kernel, Lir, LirModule};

impl LirModule {
    /// Names of the custom ops that have kernels of their own here, in nested programs too.
    pub fn custom_ops(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        self.prepare.iter().chain([&self.main]).for_each(|l| l.collect_customs(&mut names));
        names
    }
}

impl Lir {
    fn collect_customs<'a>(&'a self, names: &mut BTreeSet<&'a str>) {
        for k in &self.kernels {
            if let Kernel::Library(l) = &k.kernel
                && let Op::Custom(Custom::CustomOp(op)) = &l.op
            {
                names.insert(&op.name);
            }
            let programs: &[&Lir] = match &k.kernel {
                Kernel::Branch(b) => &[&b.then_branch.program, &b.else_branch.program],
                Kernel::Loop(l) => &[&l.body.program],
                Kernel::Scan(s) => &[&s.body.program],
                Kernel::Call(c) => &[&c.body.program],
                _ => &[],
            };
            programs.iter().for_each(|p| p.collect_customs(names));
        }
    }
}
