//! The text of a LIR program, for people: dumps, filetests, reports.

use std::fmt;

use super::{Access, DimId, Kernel, Lir, LirModule, ScalarOp, ScalarProgram, Scaling, Storage, View};

impl fmt::Display for LirModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(p) = &self.prepare {
            write!(f, "prepare {p}")?;
        }
        write!(f, "{}", self.main)
    }
}

impl fmt::Display for Lir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "lir @{} {{", self.name)?;
        for (i, b) in self.buffers.iter().enumerate() {
            let storage = match &b.storage {
                Storage::Input(n) => format!("input {n}"),
                Storage::Param(n) => format!("param {n}"),
                Storage::Const(t) => format!("const {t:?}"),
                Storage::State(n) => format!("state {n}"),
                Storage::Output(n) => format!("output {n}"),
                Storage::Arena => "arena".into(),
            };
            write!(f, "  b{i} = {storage} : {}{}", b.dtype, self.sizes(&b.shape))?;
            if b.order.iter().copied().ne(0..b.order.len()) {
                write!(f, " order {:?}", b.order)?;
            }
            if let Some((first, last)) = b.live {
                write!(f, " live {first}..={last}")?;
            }
            match &b.name {
                Some(n) => writeln!(f, "  // {n}")?,
                None => writeln!(f)?,
            }
        }
        for (i, k) in self.kernels.iter().enumerate() {
            writeln!(f, "  {i}: {}  @{:?}", self.kernel(&k.kernel), k.loc)?;
            if let Some(s) = self.segments.iter().find(|s| s.kernels.end == i as u32 + 1 && !s.defines.is_empty()) {
                writeln!(f, "  -- defines {:?}", s.defines)?;
            }
        }
        for o in &self.outputs {
            writeln!(f, "  output {:?} = b{}", o.name, o.buffer.0)?;
        }
        writeln!(f, "}}")
    }
}

impl Lir {
    fn sizes(&self, dims: &[DimId]) -> String {
        let v: Vec<String> = dims.iter().map(|&d| self.dims.get(d).to_string()).collect();
        format!("[{}]", v.join(", "))
    }

    fn access(&self, a: &Access) -> String {
        let offset = self.dims.get(a.offset);
        let at = if offset.as_const() == Some(0) { String::new() } else { format!("+{offset}") };
        format!("b{}{at}{}", a.buffer.0, self.sizes(&a.strides))
    }

    fn scaling(&self, s: &Scaling) -> String {
        format!("{}{}", self.part("-", &s.zero), self.part("*", &s.scale))
    }

    fn part(&self, sign: &str, a: &Option<Access>) -> String {
        a.as_ref().map_or(String::new(), |a| format!(" {sign} {}", self.access(a)))
    }

    fn accesses(&self, list: &[Access]) -> String {
        list.iter().map(|a| self.access(a)).collect::<Vec<_>>().join(", ")
    }

    fn view(&self, v: &View) -> String {
        format!("{}:{}", self.access(&v.access), self.sizes(&v.sizes))
    }

    fn views(&self, list: &[View]) -> String {
        list.iter().map(|a| self.view(a)).collect::<Vec<_>>().join(", ")
    }

    /// A scalar program on one line.
    pub fn program(&self, p: &ScalarProgram) -> String {
        let mut s = String::new();
        for (i, inst) in p.insts.iter().enumerate() {
            let args = inst.args.iter().map(|a| format!("v{a}")).collect::<Vec<_>>().join(", ");
            let op = match inst.op {
                ScalarOp::Read(n) => format!("read {n}"),
                ScalarOp::Const(l) => format!("{l:?}"),
                ScalarOp::Index(a) => format!("index {a}"),
                ScalarOp::Size(d) => format!("size {}", self.dims.get(d)),
                ScalarOp::Acc => "acc".into(),
                ScalarOp::Apply(e) => format!("{}({args})", rlx_ir::op::OpDef::name(&e)),
                ScalarOp::Reduce(k) => format!("reduce_{}({args})", k.name()),
            };
            s.push_str(&format!("v{i}: {} = {op}; ", inst.dtype));
        }
        let results = p.results.iter().map(|r| format!("v{r}")).collect::<Vec<_>>().join(", ");
        format!("{{ {s}=> {results} }}")
    }

    fn kernel(&self, k: &Kernel) -> String {
        let name = k.kind();
        match k {
            Kernel::Map(m) => format!(
                "{name} {} ({}) {} -> {}",
                self.sizes(&m.space),
                self.accesses(&m.reads),
                self.program(&m.program),
                self.accesses(&m.writes)
            ),
            Kernel::Row(m) => format!(
                "{name} {} x {} ({}) {} -> {}",
                self.sizes(&m.outer),
                self.sizes(&m.reduced),
                self.accesses(&m.reads),
                self.program(&m.program),
                self.accesses(&m.writes)
            ),
            Kernel::Contract(c) => format!(
                "{name} batch{} m{} n{} k{} ({}{}, {}{}) epilogue ({}) {} -> {}",
                self.sizes(&c.batch),
                self.sizes(&c.m),
                self.sizes(&c.n),
                self.sizes(&c.k),
                self.access(&c.lhs),
                self.scaling(&c.lhs_scaling),
                self.access(&c.rhs),
                self.scaling(&c.rhs_scaling),
                self.accesses(&c.epilogue.reads),
                self.program(&c.epilogue.program),
                self.accesses(&c.epilogue.writes)
            ),
            Kernel::Conv(c) => format!(
                "{name} {} groups {} strides {:?} dilations {:?} ({}{}, {}{}) epilogue ({}) {} -> {}",
                self.sizes(&c.window),
                c.groups,
                c.strides,
                c.dilations,
                self.access(&c.input),
                self.part("-", &c.input_zero),
                self.access(&c.weight),
                self.part("-", &c.weight_zero),
                self.accesses(&c.epilogue.reads),
                self.program(&c.epilogue.program),
                self.accesses(&c.epilogue.writes)
            ),
            Kernel::Library(l) => format!("{} ({}) -> {}", l.op, self.views(&l.inputs), self.views(&l.outputs)),
            Kernel::Branch(b) => format!(
                "{name} {} ({}) -> {}\nthen {}else {}",
                self.view(&b.cond),
                self.views(&b.captures),
                self.views(&b.outputs),
                b.then_branch.program,
                b.else_branch.program
            ),
            Kernel::Loop(l) => {
                format!("{name} ({}) -> {}\n{}", self.views(&l.carried), self.views(&l.outputs), l.body.program)
            }
            Kernel::Scan(l) => {
                format!("{name} ({}) -> {}\n{}", self.views(&l.carried), self.views(&l.outputs), l.body.program)
            }
            Kernel::Call(c) => {
                format!("{name} ({}) -> {}\n{}", self.views(&c.inputs), self.views(&c.outputs), c.body.program)
            }
            Kernel::Window(_) | Kernel::Attention(_) => {
                let reads: Vec<String> = k.reads().iter().map(|a| self.access(a)).collect();
                let writes: Vec<String> = k.writes().iter().map(|a| self.access(a)).collect();
                format!("{name} ({}) -> {}", reads.join(", "), writes.join(", "))
            }
        }
    }
}
