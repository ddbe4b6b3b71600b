//! A program compiled for this backend: immutable, shared by all contexts.

use crate::bind::{BindCache, Segments};
use crate::buffers::Ptr;
use crate::classes::Classes;
use crate::jit::Cache;
use crate::row::{self, RowCode};
use crate::tile::code::{Code, Scope};
use rlx_compile::MatmulPrecision;
use rlx_compile::lir::{Access, BufId, ConvKernel, DimId, Epilogue, Kernel, Lir, ScalarProgram, Storage, View};
use rlx_driver::{AlignedBuffer, Isa};
use rlx_ir::dim::Symbol;
use rlx_ir::ops::{Indexing, Op};
use rlx_ir::{DType, DimBinding};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock};

/// What a kernel is compiled to.
pub enum KernelCode {
    /// A scalar program (maps and epilogues).
    Scalar(Code),
    /// A row kernel.
    Row(RowCode),
    /// Nested programs: a body, or the two branches.
    Nested(Vec<Program>),
    /// Nothing.
    Plain,
}

/// Where a weight is from: its packed form is kept as long as that stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightSource {
    /// A constant.
    Const,
    /// A parameter of the outermost program.
    Param(u32),
}

/// Where a packed weight is from, with what goes with it.
pub type WeightSources = smallvec::SmallVec<[WeightSource; 1]>;

/// How large a cache of bindings may grow.
#[derive(Clone, Copy, Debug)]
pub struct CacheBounds {
    /// Bindings.
    pub entries: usize,
    /// Bytes, about.
    pub bytes: usize,
}

/// What code is made for.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Instruction set.
    pub isa: Isa,
    /// Whether scalar programs become machine code where they can.
    pub jit: bool,
    /// Whether the program runs once, so that machine code must pay at once.
    pub once: bool,
    /// How exact products of f32 are to be.
    pub matmul: MatmulPrecision,
}

/// Points from which on machine code that runs once takes less time than it takes to make: a tenth of a millisecond, beside some 10 ns a point.
const WORTH_ONCE: usize = 1 << 14;

/// The machine code of a program's kernels: those of equal scalar programs share it.
struct Functions<'a> {
    target: Target,
    known: HashMap<&'a ScalarProgram, Arc<Cache>>,
}

impl<'a> Functions<'a> {
    fn of(&mut self, program: &'a ScalarProgram) -> Option<Arc<Cache>> {
        let least = if self.target.once { WORTH_ONCE } else { 0 };
        let make = || Arc::new(Cache::from_points(least));
        self.target.jit.then(|| self.known.entry(program).or_insert_with(make).clone())
    }
}

/// For sets of outputs, which kernels they need.
type Needed = HashMap<Box<[usize]>, Arc<[bool]>>;

/// A compiled program.
pub struct Program {
    /// Its source.
    pub lir: Lir,
    /// Code of each kernel.
    pub codes: Vec<KernelCode>,
    /// How it is bound.
    pub segments: Segments,
    /// Bindings made before.
    pub cache: Mutex<BindCache>,
    /// Instruction set.
    pub isa: Isa,
    /// How exact products of f32 are.
    pub matmul: MatmulPrecision,
    /// Where constants lie, by buffer.
    pub consts: Vec<(u32, Ptr)>,
    /// Copies of constants whose memory is not aligned.
    _aligned: Vec<AlignedBuffer>,
    /// For each kernel whose weight operand has a fixed shape and stays the same from run to run, where it is from.
    pub weights: Vec<Option<WeightSources>>,
    /// For each parameter, whether all that reads it takes memory of any alignment: weights that are packed, tables that are gathered from.
    pub any_alignment: Vec<bool>,
    /// Which kernels are alike.
    pub classes: Classes,
    /// For each kernel, whether elements that it writes are narrower than a byte: tasks on several threads would write the same bytes.
    pub shares_bytes: Vec<bool>,
    /// Kernels that a set of outputs needs.
    needed: Mutex<Needed>,
    /// Whether all outputs together need all kernels.
    all_needed: OnceLock<bool>,
}

impl Program {
    /// Compiles a program. `outer` are symbols of the surrounding program, whose values are known; `sources` are those of
    /// its inputs that stay the same from run to run.
    pub fn compile(
        lir: Lir,
        outer: &[Symbol],
        given: &DimBinding,
        target: Target,
        cache: CacheBounds,
        sources: &[Option<WeightSource>],
    ) -> Result<Program, String> {
        let (isa, matmul) = (target.isa, target.matmul);
        check_buffers(&lir)?;
        let segments = Segments::new(&lir, outer, given)?;
        let mut functions = Functions { target, known: HashMap::new() };
        let codes = lir
            .kernels
            .iter()
            .enumerate()
            .map(|(i, k)| {
                let known = segments.symbols_at(i);
                kernel(&k.kernel, &lir, known, &mut functions, cache, sources)
                    .map_err(|e| format!("{} at {:?}: {e}", k.kernel.kind(), k.loc))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let (mut consts, mut copies) = (Vec::new(), Vec::new());
        for (i, b) in lir.buffers.iter().enumerate() {
            if let Storage::Const(t) = &b.storage {
                let bytes = t.bytes();
                let aligned = (bytes.as_ptr() as usize).is_multiple_of(alignment(b.dtype));
                let ptr = if aligned {
                    bytes.as_ptr()
                } else {
                    let copy = AlignedBuffer::copy_of(bytes).map_err(|e| e.to_string())?;
                    let ptr = copy.as_ptr();
                    copies.push(copy);
                    ptr
                };
                consts.push((i as u32, Ptr(ptr.cast_mut())));
            }
        }
        let weights: Vec<Option<WeightSources>> =
            lir.kernels.iter().map(|k| weight_operand(&k.kernel, &lir, sources)).collect();
        Ok(Program {
            any_alignment: {
                let aligned = reads_of_elements(&lir, &weights);
                lir.params.iter().map(|p| !aligned.contains(&p.buffer)).collect()
            },
            shares_bytes: lir.kernels.iter().map(|k| writes_parts_of_bytes(&k.kernel, &lir)).collect(),
            codes,
            segments,
            cache: Mutex::new(BindCache::new(cache.entries, cache.bytes)),
            isa,
            matmul,
            consts,
            _aligned: copies,
            weights,
            needed: Mutex::new(HashMap::new()),
            all_needed: OnceLock::new(),
            classes: Classes::of(&lir),
            lir,
        })
    }

    /// Functions in machine code that scalar programs have become so far, those of nested programs among them.
    pub fn functions(&self) -> usize {
        let mut seen = HashSet::new();
        let of = |code: &KernelCode| match code {
            KernelCode::Scalar(c) | KernelCode::Row(RowCode { code: c, .. }) => {
                let own = c.jit.as_ref().filter(|j| seen.insert(Arc::as_ptr(j)));
                own.map_or(0, |j| j.functions())
            }
            KernelCode::Nested(programs) => programs.iter().map(Program::functions).sum(),
            KernelCode::Plain => 0,
        };
        self.codes.iter().map(of).sum()
    }

    /// Which kernels have to run for these outputs, for states and for sizes.
    /// `None`: all do.
    pub fn needed(&self, read: &[usize]) -> Option<Arc<[bool]>> {
        let outputs = 0..self.lir.outputs.len();
        if read.iter().copied().eq(outputs.clone())
            && *self.all_needed.get_or_init(|| needed(&self.lir, &outputs.collect::<Vec<_>>()).iter().all(|&n| n))
        {
            return None;
        }
        let mut kept = self.needed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(n) = kept.get(read) {
            return Some(n.clone());
        }
        let run: Arc<[bool]> = needed(&self.lir, read).into();
        // Callers that read ever new sets must not fill memory.
        if kept.len() >= 64 {
            kept.clear();
        }
        kept.insert(read.into(), run.clone());
        Some(run)
    }
}

/// For each kernel, whether it has to run for these outputs, for states or for sizes.
fn needed(lir: &Lir, read: &[usize]) -> Vec<bool> {
    let mut wanted = vec![false; lir.buffers.len()];
    let outputs = read.iter().filter_map(|&o| lir.outputs.get(o)).map(|o| o.buffer);
    outputs.chain(lir.states.iter().filter_map(|s| s.next)).for_each(|b| wanted[b.index()] = true);
    // Where states are written in place, their buffers are wanted too.
    lir.states.iter().for_each(|s| wanted[s.buffer.index()] = true);
    let defining: Vec<usize> = (lir.segments.iter())
        .filter(|s| !s.defines.is_empty())
        .map(|s| (s.kernels.end as usize).saturating_sub(1))
        .collect();
    let mut run = vec![false; lir.kernels.len()];
    for (i, k) in lir.kernels.iter().enumerate().rev() {
        let writes = k.kernel.writes();
        run[i] = defining.contains(&i) || writes.iter().any(|w| wanted[w.buffer.index()]);
        if run[i] {
            k.kernel.reads().iter().for_each(|r| wanted[r.buffer.index()] = true);
        }
    }
    run
}

/// Alignment that kernels rely on for a dtype's memory.
pub fn alignment(dtype: DType) -> usize {
    match dtype {
        DType::C64 => 4,
        DType::C128 => 8,
        d => d.size().unwrap_or(1),
    }
}

fn check_buffers(lir: &Lir) -> Result<(), String> {
    let out_of = |what: &str, i: usize| format!("{what} {i} names a buffer that does not exist");
    let has = |b: rlx_compile::lir::BufId| b.index() < lir.buffers.len();
    for (i, p) in lir.inputs.iter().chain(&lir.outputs).enumerate() {
        if !has(p.buffer) {
            return Err(out_of("port", i));
        }
    }
    for (i, o) in lir.outputs.iter().enumerate() {
        let b = lir.buffer(o.buffer);
        if b.order.iter().copied().ne(0..b.order.len()) {
            return Err(format!("output {i} (`{}`) is not row-major", o.name));
        }
    }
    if lir.params.iter().any(|p| !has(p.buffer)) {
        return Err(out_of("parameter", 0));
    }
    for (i, k) in lir.kernels.iter().enumerate() {
        let accesses = k.kernel.reads().into_iter().chain(k.kernel.writes());
        if accesses.into_iter().any(|a| !has(a.buffer)) {
            return Err(out_of("kernel", i));
        }
    }
    for (i, b) in lir.buffers.iter().enumerate() {
        if b.dtype == DType::Str {
            return Err(format!("buffer {i} holds strings, which no kernel computes with"));
        }
        if let Storage::Const(t) = &b.storage
            && t.dtype() != b.dtype
        {
            return Err(format!("the constant of buffer {i} is {}, not {}", t.dtype(), b.dtype));
        }
    }
    Ok(())
}

fn writes_parts_of_bytes(kernel: &Kernel, lir: &Lir) -> bool {
    kernel.writes().iter().any(|a| lir.buffers.get(a.buffer.index()).is_some_and(|b| b.dtype.bits() < 8))
}

fn dtypes(list: &[Access], lir: &Lir) -> Vec<DType> {
    list.iter().map(|a| lir.buffers.get(a.buffer.index()).map_or(DType::U8, |b| b.dtype)).collect()
}

fn epilogue<'a>(
    e: &'a Epilogue,
    acc: DType,
    rank: usize,
    lir: &Lir,
    functions: &mut Functions<'a>,
) -> Result<KernelCode, String> {
    let (reads, writes) = (dtypes(&e.reads, lir), dtypes(&e.writes, lir));
    let scope = Scope { reads: &reads, writes: &writes, acc: Some(acc), rank, row: false };
    let mut code = Code::compile(&e.program, &scope)?;
    code.jit = functions.of(&e.program);
    Ok(KernelCode::Scalar(code))
}

fn kernel<'a>(
    k: &'a Kernel,
    lir: &'a Lir,
    known: &[Symbol],
    functions: &mut Functions<'a>,
    cache: CacheBounds,
    sources: &[Option<WeightSource>],
) -> Result<KernelCode, String> {
    let target = functions.target;
    // Inputs of nested programs: `first` that change, then the captures.
    let nested = |programs: &[&Lir], outer: &[Symbol], first: usize, captures: &[View]| -> Result<KernelCode, String> {
        let given = DimBinding::new();
        let captured = captures.iter().map(|v| view_source(v, lir, sources));
        let inner: Vec<_> = std::iter::repeat_n(None, first).chain(captured).collect();
        let of = |p: &&Lir| Program::compile((*p).clone(), outer, &given, target, cache, &inner);
        Ok(KernelCode::Nested(programs.iter().map(of).collect::<Result<_, _>>()?))
    };
    match k {
        Kernel::Map(m) => {
            let (reads, writes) = (dtypes(&m.reads, lir), dtypes(&m.writes, lir));
            let scope = Scope { reads: &reads, writes: &writes, acc: None, rank: m.space.len(), row: false };
            let mut code = Code::compile(&m.program, &scope)?;
            code.jit = functions.of(&m.program);
            Ok(KernelCode::Scalar(code))
        }
        Kernel::Row(r) => {
            let mut code = row::compile(r, lir)?;
            code.code.jit = functions.of(&r.program);
            Ok(KernelCode::Row(code))
        }
        Kernel::Contract(c) => epilogue(&c.epilogue, c.acc, c.batch.len() + c.m.len() + c.n.len(), lir, functions),
        Kernel::Conv(c) => epilogue(&c.epilogue, c.acc, 2 + c.out_spatial.len(), lir, functions),
        Kernel::Window(_) | Kernel::Attention(_) | Kernel::Library(_) => Ok(KernelCode::Plain),
        Kernel::Branch(b) => nested(&[&b.then_branch.program, &b.else_branch.program], known, 0, &b.captures),
        Kernel::Loop(l) => nested(&[&l.body.program], known, 2 + l.carried.len(), &l.captures),
        Kernel::Scan(s) => nested(&[&s.body.program], known, s.carried.len() + s.scanned.len(), &s.captures),
        // A function's symbols are its own.
        Kernel::Call(c) => nested(&[&c.body.program], &[], 0, &c.inputs),
    }
}

/// Where the contents of a buffer are from, if they stay the same from run to run.
fn source(buffer: BufId, lir: &Lir, sources: &[Option<WeightSource>]) -> Option<WeightSource> {
    match lir.buffers.get(buffer.index())?.storage {
        Storage::Param(n) => Some(WeightSource::Param(n)),
        Storage::Const(_) => Some(WeightSource::Const),
        Storage::Input(n) => sources.get(n as usize).copied().flatten(),
        _ => None,
    }
}

/// As [`source`], of a view whose walk never changes.
fn view_source(v: &View, lir: &Lir, sources: &[Option<WeightSource>]) -> Option<WeightSource> {
    let dims = v.sizes.iter().chain(&v.access.strides).chain([&v.access.offset]);
    let fixed = dims.into_iter().all(|&d| lir.dims.dims().get(d.index()).is_some_and(|d| d.is_const()));
    source(v.access.buffer, lir, sources).filter(|_| fixed)
}

/// Whether a convolution reads its weights once, to pack them. One that transforms them may read them again, for data that transforms do not
/// bear.
fn packs_once(c: &ConvKernel, lir: &Lir) -> bool {
    let f32s = |b: BufId| lir.buffers.get(b.index()).is_some_and(|b| b.dtype == DType::F32);
    let three = |d: &DimId| lir.dims.get(*d).as_const() == Some(3);
    let transforms = c.groups == 1 && c.window.len() == 2 && c.window.iter().all(three);
    c.acc == DType::F32 && f32s(c.weight.buffer) && f32s(c.input.buffer) && !transforms
}

/// The buffers whose elements some kernel reads where they lie: it neither copies them as bytes nor reads them once to pack them.
fn reads_of_elements(lir: &Lir, weights: &[Option<WeightSources>]) -> HashSet<BufId> {
    let mut found = HashSet::new();
    for (k, weight) in lir.kernels.iter().zip(weights) {
        let as_bytes = match &k.kernel {
            Kernel::Contract(c) if weight.is_some() => Some(c.rhs.buffer),
            Kernel::Conv(c) if weight.is_some() && packs_once(c, lir) => Some(c.weight.buffer),
            Kernel::Library(l) if matches!(&l.op, Op::Indexing(Indexing::Gather(_))) => {
                l.inputs.first().map(|x| x.access.buffer)
            }
            _ => None,
        };
        let reads = k.kernel.reads();
        let times = |buffer| reads.iter().filter(|r| r.buffer == buffer).count();
        let own = reads.iter().map(|r| r.buffer).filter(|&b| as_bytes != Some(b) || times(b) > 1);
        found.extend(own);
    }
    found
}

/// The buffer of a kernel's weight operand.
pub fn weight_buffer(k: &Kernel) -> Option<BufId> {
    match k {
        Kernel::Contract(c) => Some(c.rhs.buffer),
        Kernel::Conv(c) => Some(c.weight.buffer),
        _ => None,
    }
}

fn weight_operand(k: &Kernel, lir: &Lir, sources: &[Option<WeightSource>]) -> Option<WeightSources> {
    let of = |buffer: BufId| {
        let b = lir.buffers.get(buffer.index())?;
        let fixed = b.shape.iter().all(|&d| lir.dims.dims().get(d.index()).is_some_and(|d| d.is_const()));
        source(buffer, lir, sources).filter(|_| fixed)
    };
    match k {
        // With what says what the operand's elements stand for.
        Kernel::Contract(c) => {
            let scaling = c.rhs_scaling.accesses().map(|a| a.buffer);
            [c.rhs.buffer].into_iter().chain(scaling).map(of).collect()
        }
        Kernel::Conv(c) => {
            let zero = c.weight_zero.iter().map(|a| a.buffer);
            [c.weight.buffer].into_iter().chain(zero).map(of).collect()
        }
        _ => None,
    }
}
