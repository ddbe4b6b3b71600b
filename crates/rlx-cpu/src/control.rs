//! Kernels that run nested programs: branches, loops, scans, calls.
//!
//! A nested program has a frame of its own inside the parent's. Its inputs point into the parent's memory where they
//! are dense there, and are dense copies otherwise; its outputs are copied to the parent's views, or handed over with the sizes that they define.
//! What is carried from one iteration to the next lies in memory that the frame keeps: a warm loop allocates nothing.

use crate::bind::{BoundSegment, StateSizes};
use crate::buffers::{BindCx, BindError, BoundView, Buffers, Ptr, Sizes, Strides};
use crate::exec::{Env, Input, Outputs, bind_first, run_frame};
use crate::frame::{Frame, Spare, no_memory};
use crate::library::Defined;
use crate::params::WeightSet;
use crate::program::Program;
use crate::space::position;
use crate::tile::io;
use rlx_compile::RunError;
use rlx_compile::lir::{Kernel, Port, View};
use rlx_driver::AlignedBuffer;
use rlx_ir::{DType, Symbol};
use smallvec::SmallVec;
use std::sync::Arc;

/// Where results go.
#[derive(Debug)]
struct Results {
    /// The views, if their sizes are known.
    views: Option<Vec<BoundView>>,
    /// For each symbol that they define: a result and an axis.
    defined: Vec<(usize, usize)>,
}

/// A control kernel at concrete sizes.
#[derive(Debug)]
pub struct ControlPlan {
    kind: Kind,
    results: Results,
}

#[derive(Debug)]
enum Kind {
    Branch { cond: BoundView, captures: Vec<BoundView> },
    Loop { trip_count: Option<BoundView>, cond: Option<BoundView>, carried: Vec<BoundView>, captures: Vec<BoundView> },
    Scan(Scan),
    Call { inputs: Vec<BoundView> },
}

#[derive(Debug)]
struct Scan {
    steps: usize,
    carried: Vec<BoundView>,
    scanned: Vec<(BoundView, usize, bool)>,
    captures: Vec<BoundView>,
    stacked: Vec<(usize, bool)>,
}

/// The views that a kernel of an op or of nested programs writes.
pub fn output_views(kernel: &Kernel) -> Vec<View> {
    match kernel {
        Kernel::Library(k) => k.outputs.clone(),
        Kernel::Branch(k) => k.outputs.clone(),
        Kernel::Loop(k) => k.outputs.clone(),
        Kernel::Scan(k) => k.outputs.iter().cloned().chain(k.stacked.iter().map(|s| s.0.clone())).collect(),
        Kernel::Call(k) => k.outputs.clone(),
        _ => Vec::new(),
    }
}

/// Plans a control kernel; `defines` are the symbols that its results' sizes define.
pub fn plan(kernel: &Kernel, defines: &[Symbol], cx: &BindCx<'_>) -> Result<ControlPlan, BindError> {
    let views = |list: &[View]| list.iter().map(|v| cx.view(v)).collect::<Result<Vec<_>, _>>();
    let maybe = |v: &Option<View>| v.as_ref().map(|v| cx.view(v)).transpose();
    let kind = match kernel {
        Kernel::Branch(k) => Kind::Branch { cond: cx.view(&k.cond)?, captures: views(&k.captures)? },
        Kernel::Loop(k) => Kind::Loop {
            trip_count: maybe(&k.trip_count)?,
            cond: maybe(&k.cond)?,
            carried: views(&k.carried)?,
            captures: views(&k.captures)?,
        },
        Kernel::Scan(k) => Kind::Scan(Scan {
            steps: cx.size(k.steps)?,
            carried: views(&k.carried)?,
            scanned: k.scanned.iter().map(|(v, a, r)| Ok((cx.view(v)?, *a, *r))).collect::<Result<_, BindError>>()?,
            captures: views(&k.captures)?,
            stacked: k.stacked.iter().map(|(_, a, r)| (*a, *r)).collect(),
        }),
        Kernel::Call(k) => Kind::Call { inputs: views(&k.inputs)? },
        other => return Err(format!("`{}` runs no nested program", other.kind())),
    };
    let outputs = output_views(kernel);
    let axis_of = |s: &Symbol| {
        outputs.iter().enumerate().find_map(|(o, v)| {
            v.sizes.iter().position(|&d| cx.lir.dims.get(d).as_symbol() == Some(s)).map(|axis| (o, axis))
        })
    };
    let defined = defines
        .iter()
        .map(|s| axis_of(s).ok_or_else(|| format!("no result has the size `{s}` that the kernel defines")))
        .collect::<Result<Vec<_>, _>>()?;
    let views = if defines.is_empty() { Some(views(&outputs)?) } else { None };
    Ok(ControlPlan { kind, results: Results { views, defined } })
}

impl ControlPlan {
    /// For each input of the nested program, the view that it is made of. `None` for what the kernel makes itself: the number of the
    /// iteration and whether to go on.
    pub fn inputs(&self) -> Vec<Option<BoundView>> {
        let of = |views: &[BoundView]| views.iter().cloned().map(Some).collect::<Vec<_>>();
        match &self.kind {
            Kind::Branch { captures, .. } => of(captures),
            Kind::Loop { carried, captures, .. } => [vec![None, None], of(carried), of(captures)].concat(),
            Kind::Scan(s) => {
                let slice = |(view, axis, _): &(BoundView, usize, bool)| {
                    let mut slice = view.clone();
                    if *axis < slice.sizes.len() && *axis < slice.access.strides.len() {
                        slice.sizes.remove(*axis);
                        slice.access.strides.remove(*axis);
                    }
                    Some(slice)
                };
                [of(&s.carried), s.scanned.iter().map(slice).collect(), of(&s.captures)].concat()
            }
            Kind::Call { inputs } => of(inputs),
        }
    }
}

impl ControlPlan {
    /// Sizes of the inputs of each nested program, as far as they are the same in every iteration: of what is carried, those at first.
    pub fn nested_inputs(&self) -> SmallVec<[Vec<Sizes>; 2]> {
        let sizes = |list: &[BoundView]| list.iter().map(|v| v.sizes.clone()).collect::<Vec<_>>();
        match &self.kind {
            Kind::Branch { captures, .. } => [sizes(captures), sizes(captures)].into_iter().collect(),
            Kind::Call { inputs } => [sizes(inputs)].into_iter().collect(),
            Kind::Loop { carried, captures, .. } => {
                let heads = vec![Sizes::new(), Sizes::new()];
                [[heads, sizes(carried), sizes(captures)].concat()].into_iter().collect()
            }
            Kind::Scan(s) => {
                let slices = s.scanned.iter().map(|(v, axis, _)| {
                    let mut sizes = v.sizes.clone();
                    if *axis < sizes.len() {
                        sizes.remove(*axis);
                    }
                    sizes
                });
                [sizes(&s.carried).into_iter().chain(slices).chain(sizes(&s.captures)).collect()].into_iter().collect()
            }
        }
    }

    /// Which outputs of the nested program are carried to its next run, and the sizes that they must keep: the first one's number.
    pub fn carried(&self) -> Option<(usize, Vec<Sizes>)> {
        let sizes = |list: &[BoundView]| list.iter().map(|v| v.sizes.clone()).collect::<Vec<_>>();
        match &self.kind {
            Kind::Branch { .. } | Kind::Call { .. } => None,
            Kind::Loop { carried, .. } => Some((1, sizes(carried))),
            Kind::Scan(s) => Some((0, sizes(&s.carried))),
        }
    }

    /// Whether nested programs see the symbols around them.
    pub fn sees_symbols(&self) -> bool {
        !matches!(self.kind, Kind::Call { .. })
    }

    /// Bytes of results that are put together outside the views that they go to.
    pub fn stacked_bytes(&self) -> u64 {
        // A loop gathers bytes first, and makes a tensor of them when it knows how many there are.
        let (carried, times) = match &self.kind {
            Kind::Scan(s) => (s.carried.len(), 1),
            Kind::Loop { carried, .. } => (carried.len(), 2),
            Kind::Branch { .. } | Kind::Call { .. } => return 0,
        };
        let views = self.results.views.iter().flatten().skip(carried);
        views.map(|v| v.access.dtype.bytes_for(v.numel()).unwrap_or(0) as u64 * times).sum()
    }
}

/// A tensor that a nested program takes or gives, dense.
struct Value {
    dtype: DType,
    dims: Sizes,
    memory: Memory,
}

/// Values of one call; up to 64 take no memory of their own.
type Values = SmallVec<[Value; 64]>;

/// Where a value lies.
enum Memory {
    /// In memory of its own.
    Own(AlignedBuffer),
    /// In the parent's, which does not change while nested programs run: this many bytes from here on.
    Parent(Ptr, usize),
}

impl Memory {
    fn as_ptr(&self) -> *const u8 {
        match self {
            Memory::Own(m) => m.as_ptr(),
            Memory::Parent(p, _) => p.get(),
        }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Memory::Own(m) => m.as_slice(),
            // SAFETY: a view of that many bytes was checked to lie within its buffer, which has memory as long as the
            // control kernel runs, and nothing writes it until results are handed over.
            Memory::Parent(p, n) => unsafe { std::slice::from_raw_parts(p.get(), *n) },
        }
    }
}

impl Value {
    fn new(dtype: DType, dims: Sizes, spare: &mut Spare) -> Result<Value, RunError> {
        let n = dims.iter().try_fold(1usize, |a, &d| a.checked_mul(d));
        let bytes = n.and_then(|n| dtype.bytes_for(n));
        let bytes =
            bytes.ok_or_else(|| RunError::Memory(format!("{dtype}{dims:?} is larger than the address space")))?;
        let mut memory = spare.take(bytes)?;
        // Elements narrower than a byte are written one by one: what pads the last byte is zero.
        if dtype.bits() < 8
            && let Some(last) = bytes.checked_sub(1).and_then(|i| memory.as_mut_slice().get_mut(i))
        {
            *last = 0;
        }
        Ok(Value { dtype, dims, memory: Memory::Own(memory) })
    }

    /// The bytes of its elements; its memory may be longer.
    fn bytes(&self) -> &[u8] {
        let n: usize = self.dims.iter().product();
        let bytes = self.dtype.bytes_for(n).unwrap_or(0);
        self.memory.as_slice().get(..bytes).unwrap_or(&[])
    }

    /// Gives memory of its own back.
    fn recycle(self, spare: &mut Spare) {
        if let Memory::Own(m) = self.memory {
            spare.give(m);
        }
    }

    /// Memory of its own that is as long as its elements.
    fn into_exact(self) -> Result<AlignedBuffer, RunError> {
        let bytes = self.bytes().len();
        match self.memory {
            Memory::Own(m) if m.len() == bytes => Ok(m),
            m => AlignedBuffer::copy_of(m.as_slice().get(..bytes).unwrap_or(&[])).map_err(no_memory),
        }
    }

    /// The first byte of memory of its own.
    fn as_mut_ptr(&mut self) -> *mut u8 {
        match &mut self.memory {
            Memory::Own(m) => m.as_mut_ptr(),
            Memory::Parent(..) => std::ptr::null_mut(),
        }
    }

    fn of(view: &BoundView, bufs: Buffers<'_>, spare: &mut Spare) -> Result<Value, RunError> {
        let (dtype, dims) = (view.access.dtype, view.sizes.clone());
        let base = bufs.base(view.access.buffer);
        if dtype.bits() >= 8 && view.is_dense() && !base.is_null() && view.numel() > 0 {
            let bytes = view.numel() * (dtype.bits() / 8);
            return Ok(Value { dtype, dims, memory: Memory::Parent(Ptr(bufs.at(&view.access)), bytes) });
        }
        let mut v = Value::new(dtype, dims, spare)?;
        // SAFETY: the view lies within its buffer; the memory is its own and holds as many elements.
        unsafe { copy_out(view, bufs, v.as_mut_ptr()) };
        Ok(v)
    }

    fn scalar(dtype: DType, bytes: &[u8], spare: &mut Spare) -> Result<Value, RunError> {
        let mut v = Value::new(dtype, Sizes::new(), spare)?;
        if let Memory::Own(m) = &mut v.memory
            && let Some(to) = m.as_mut_slice().get_mut(..bytes.len())
        {
            to.copy_from_slice(bytes);
        }
        Ok(v)
    }

    fn input(&self) -> Input<'_> {
        Input { dtype: self.dtype, dims: &self.dims, bytes: self.bytes() }
    }

    fn truth(&self) -> bool {
        self.memory.as_slice().first().is_some_and(|&b| b != 0)
    }
}

/// Strides of a dense tensor.
pub fn dense(sizes: &[usize]) -> Strides {
    let mut strides: Strides = smallvec::smallvec![1i64; sizes.len()];
    for a in (1..sizes.len()).rev() {
        strides[a - 1] = strides[a] * sizes[a] as i64;
    }
    strides
}

/// Copies between two walks of one dtype over a space.
/// # Safety
/// Both walks lie within their memory over the space.
pub unsafe fn copy(dtype: DType, sizes: &[usize], from: (*const u8, i64, &[i64]), to: (*mut u8, i64, &[i64])) {
    let points: usize = sizes.iter().product();
    if points == 0 {
        return;
    }
    let plain = dtype.bits() >= 8;
    let dense_strides = dense(sizes);
    if plain && from.2 == dense_strides.as_slice() && to.2 == dense_strides.as_slice() {
        let size = dtype.bits() / 8;
        // SAFETY: both walks are dense.
        unsafe {
            let (x, y) = (from.0.offset(from.1 as isize * size as isize), to.0.offset(to.1 as isize * size as isize));
            std::ptr::copy(x, y, points * size);
        }
        return;
    }
    // Bits are moved as integers of the same width, so that nothing is changed on the way.
    let carrier = match dtype.bits() {
        2 => DType::U2,
        4 => DType::U4,
        8 => DType::U8,
        16 => DType::U16,
        32 => DType::U32,
        64 => DType::U64,
        _ => DType::C128,
    };
    let mut slot = [0u64; 2];
    let s = slot.as_mut_ptr().cast::<u8>();
    let one = io::Block { sizes: &[], strides: &[] };
    for i in 0..points {
        // SAFETY: positions lie within both walks; the slot holds an element.
        unsafe {
            io::load(carrier, from.0, position(i, sizes, from.1, from.2), one, s);
            io::store(carrier, to.0, position(i, sizes, to.1, to.2), one, s);
        }
    }
}

/// Copies a view to dense memory.
/// # Safety
/// The view's buffer has memory, `to` has room for its elements.
pub unsafe fn copy_out(view: &BoundView, bufs: Buffers<'_>, to: *mut u8) {
    let a = &view.access;
    let strides = dense(&view.sizes);
    // SAFETY: the caller's promise; views were checked at bind.
    unsafe { copy(a.dtype, &view.sizes, (bufs.base(a.buffer), a.offset, &a.strides), (to, 0, &strides)) }
}

/// Copies dense memory to a view.
/// # Safety
/// The view's buffer has memory, `from` holds its elements.
pub unsafe fn copy_in(view: &BoundView, bufs: Buffers<'_>, from: *const u8) {
    let a = &view.access;
    let strides = dense(&view.sizes);
    // SAFETY: the caller's promise; views were checked at bind.
    unsafe { copy(a.dtype, &view.sizes, (from, 0, &strides), (bufs.base(a.buffer), a.offset, &a.strides)) }
}

type Failed<'a> = &'a dyn Fn(String) -> RunError;

/// Runs a nested program; its outputs lie in its frame.
fn enter(
    program: &Program,
    frame: &mut Frame,
    weights: Option<&WeightSet>,
    inputs: &[&Value],
    outer: &[i64],
    env: &Env<'_>,
    failed: Failed<'_>,
) -> Result<Arc<BoundSegment>, RunError> {
    let inputs: SmallVec<[Input<'_>; 64]> = inputs.iter().map(|v| v.input()).collect();
    let inside = |e: RunError| match e {
        RunError::Inputs(_) => failed(format!("in `{}`: {e}", program.lir.name)),
        e => e,
    };
    crate::exec::check_inputs(program, &inputs).map_err(inside)?;
    let shapes: SmallVec<[&[usize]; 64]> = inputs.iter().map(|i| i.dims).collect();
    let first = bind_first(program, &shapes, None, &StateSizes::new(), outer, env).map_err(inside)?;
    run_frame(program, frame, &inputs, None, weights, first, None, Outputs::default(), env).map_err(inside)
}

/// Runs a nested program once and copies its outputs straight to the views that they are declared as.
#[allow(clippy::too_many_arguments)]
fn call_into(
    program: &Program,
    frame: &mut Frame,
    weights: Option<&WeightSet>,
    inputs: &[&Value],
    outer: &[i64],
    views: &[BoundView],
    bufs: Buffers<'_>,
    env: &Env<'_>,
    failed: Failed<'_>,
) -> Result<(), RunError> {
    let bound = enter(program, frame, weights, inputs, outer, env, failed)?;
    for (i, (port, view)) in program.lir.outputs.iter().zip(views).enumerate() {
        let (b, dtype, dims) = output_of(program, &bound, port, failed)?;
        check_result(i, dtype, &dims, view, failed)?;
        // SAFETY: views were checked at bind; the buffer has memory of as many elements after the run, in the nested frame or where
        // an input lies, which no result overlaps.
        unsafe { copy_in(view, bufs, frame.ptrs[b].get()) };
    }
    Ok(())
}

/// The buffer, dtype and sizes of an output of a nested program that has run.
fn output_of(
    program: &Program,
    bound: &BoundSegment,
    port: &Port,
    failed: Failed<'_>,
) -> Result<(usize, DType, Sizes), RunError> {
    let b = port.buffer.index();
    let dims = bound.shape(program, b).ok_or_else(|| failed(format!("output `{}` has no size", port.name)))?;
    Ok((b, program.lir.buffers[b].dtype, dims))
}

/// Errors unless a result is what its view was declared as.
fn check_result(i: usize, dtype: DType, dims: &[usize], view: &BoundView, failed: Failed<'_>) -> Result<(), RunError> {
    if view.sizes.as_slice() == dims && view.access.dtype == dtype {
        return Ok(());
    }
    let (declared, sizes) = (view.access.dtype, &view.sizes);
    Err(failed(format!("result {i} is {dtype}{dims:?}, declared as {declared}{sizes:?}")))
}

/// Runs a nested program and copies its outputs.
#[allow(clippy::too_many_arguments)]
fn call(
    program: &Program,
    frame: &mut Frame,
    weights: Option<&WeightSet>,
    inputs: &[&Value],
    outer: &[i64],
    env: &Env<'_>,
    spare: &mut Spare,
    failed: Failed<'_>,
) -> Result<Values, RunError> {
    let bound = enter(program, frame, weights, inputs, outer, env, failed)?;
    let mut values = Values::new();
    for port in &program.lir.outputs {
        let (b, dtype, dims) = output_of(program, &bound, port, failed)?;
        let mut v = Value::new(dtype, dims, spare)?;
        let bytes = v.bytes().len();
        // SAFETY: the buffer has memory of this size after the run; the value's is its own.
        unsafe { std::ptr::copy_nonoverlapping(frame.ptrs[b].get(), v.as_mut_ptr(), bytes) };
        values.push(v);
    }
    Ok(values)
}

/// Runs a control kernel.
#[allow(clippy::too_many_arguments)]
pub fn run(
    plan: &ControlPlan,
    programs: &[Program],
    frames: &mut [Frame],
    weights: &[WeightSet],
    bufs: Buffers<'_>,
    symbols: &[i64],
    env: &Env<'_>,
    failed: Failed<'_>,
) -> Result<Option<Defined>, RunError> {
    let mut spare = frames.first_mut().map(|f| std::mem::take(&mut f.spare)).unwrap_or_default();
    let mut run = Run { plan, programs, frames, weights, bufs, env, spare: &mut spare, failed };
    let result = run.values(symbols).and_then(|values| values.map_or(Ok(None), |v| run.hand_over(v)));
    if let Some(f) = frames.first_mut() {
        f.spare = spare;
    }
    result
}

/// A control kernel that runs.
struct Run<'a, 'b> {
    plan: &'a ControlPlan,
    programs: &'a [Program],
    frames: &'a mut [Frame],
    weights: &'a [WeightSet],
    bufs: Buffers<'b>,
    env: &'a Env<'b>,
    spare: &'a mut Spare,
    failed: Failed<'a>,
}

impl Run<'_, '_> {
    fn of(&mut self, views: &[BoundView]) -> Result<Values, RunError> {
        views.iter().map(|v| Value::of(v, self.bufs, self.spare)).collect()
    }

    fn recycle(&mut self, values: impl IntoIterator<Item = Value>) {
        values.into_iter().for_each(|v| v.recycle(self.spare));
    }

    /// Runs a nested program.
    fn nested<'v>(
        &mut self,
        which: usize,
        inputs: impl IntoIterator<Item = &'v Value>,
        outer: &[i64],
    ) -> Result<Values, RunError> {
        let inputs: SmallVec<[&Value; 64]> = inputs.into_iter().collect();
        match (self.programs.get(which), self.frames.get_mut(which)) {
            (Some(p), Some(f)) => {
                call(p, f, self.weights.get(which), &inputs, outer, self.env, self.spare, self.failed)
            }
            _ => Err((self.failed)("a nested program is missing".into())),
        }
    }

    /// Runs a nested program once; `None` if its outputs lie in the results' views already.
    fn once(&mut self, which: usize, views: &[BoundView], outer: &[i64]) -> Result<Option<Values>, RunError> {
        let held = self.of(views)?;
        let result = match (&self.plan.results.views, self.programs.get(which), self.frames.get_mut(which)) {
            (Some(views), Some(p), Some(f)) => {
                let weights = self.weights.get(which);
                let inputs: SmallVec<[&Value; 64]> = held.iter().collect();
                call_into(p, f, weights, &inputs, outer, views, self.bufs, self.env, self.failed)?;
                None
            }
            _ => Some(self.nested(which, &held, outer)?),
        };
        self.recycle(held);
        Ok(result)
    }

    /// The results, unless they lie where they belong.
    fn values(&mut self, symbols: &[i64]) -> Result<Option<Values>, RunError> {
        match &self.plan.kind {
            Kind::Branch { cond, captures } => {
                let cond = Value::of(cond, self.bufs, self.spare)?;
                let which = usize::from(!cond.truth());
                cond.recycle(self.spare);
                self.once(which, captures, symbols)
            }
            Kind::Call { inputs } => self.once(0, inputs, &[]),
            Kind::Loop { trip_count, cond, carried, captures } => {
                let limit = match trip_count {
                    // SAFETY: a scalar view of integers within its buffer.
                    Some(v) => unsafe {
                        io::read_i128(v.access.dtype, self.bufs.base(v.access.buffer), v.access.offset)
                    },
                    None => i128::MAX,
                };
                self.repeat(limit, cond.as_ref(), carried, captures, symbols).map(Some)
            }
            Kind::Scan(scan) => self.scan(scan, symbols).map(Some),
        }
    }

    fn repeat(
        &mut self,
        limit: i128,
        cond: Option<&BoundView>,
        carried: &[BoundView],
        captures: &[BoundView],
        symbols: &[i64],
    ) -> Result<Values, RunError> {
        let failed = self.failed;
        let mut go = match cond {
            Some(c) => Value::of(c, self.bufs, self.spare)?,
            None => Value::scalar(DType::Bool, &[1], self.spare)?,
        };
        let (captures, mut now) = (self.of(captures)?, self.of(carried)?);
        let mut stacks: SmallVec<[Stack; 8]> = SmallVec::new();
        if let Some(p) = self.programs.first() {
            for port in p.lir.outputs.iter().skip(1 + now.len()) {
                stacks.push(Stack::new(p.lir.buffers[port.buffer.index()].dtype, self.spare.take_stack()));
            }
        }
        let mut i = 0i64;
        while i128::from(i) < limit && go.truth() {
            let iteration = Value::scalar(DType::I64, &i.to_le_bytes(), self.spare)?;
            let inputs = [&iteration, &go].into_iter().chain(&now).chain(&captures);
            let mut results = self.nested(0, inputs, symbols)?.into_iter();
            let next = results.next().ok_or_else(|| failed("its body gives no condition".into()))?;
            let after: Values = results.by_ref().take(now.len()).collect();
            for (stack, v) in stacks.iter_mut().zip(results) {
                stack.push(&v, failed)?;
                v.recycle(self.spare);
            }
            let before = (std::mem::replace(&mut go, next), std::mem::replace(&mut now, after));
            self.recycle([iteration, before.0].into_iter().chain(before.1));
            i += 1;
        }
        self.recycle([go].into_iter().chain(captures));
        let first = now.len();
        for (k, stack) in stacks.into_iter().enumerate() {
            let view = self.plan.results.views.as_ref().and_then(|v| v.get(first + k));
            now.push(stack.finish(view.map(|v| v.sizes.clone()), self.spare)?);
        }
        Ok(now)
    }

    fn scan(&mut self, scan: &Scan, symbols: &[i64]) -> Result<Values, RunError> {
        let failed = self.failed;
        let (mut now, captures) = (self.of(&scan.carried)?, self.of(&scan.captures)?);
        let carried = now.len();
        let mut stacked: SmallVec<[Option<Value>; 16]> = scan.stacked.iter().map(|_| None).collect();
        for step in 0..scan.steps {
            let mut slices = Values::new();
            for (view, axis, reverse) in &scan.scanned {
                let n = view.sizes.get(*axis).copied().unwrap_or(0);
                if n != scan.steps {
                    return Err(failed(format!("a scanned input has {n} slices where there are {} steps", scan.steps)));
                }
                let at = if *reverse { n - 1 - step } else { step };
                let mut slice = view.clone();
                slice.access.offset += at as i64 * slice.access.strides[*axis];
                slice.sizes.remove(*axis);
                slice.access.strides.remove(*axis);
                slices.push(Value::of(&slice, self.bufs, self.spare)?);
            }
            let mut outputs = self.nested(0, now.iter().chain(&slices).chain(&captures), symbols)?.into_iter();
            let after: Values = outputs.by_ref().take(carried).collect();
            for ((whole, v), (axis, reverse)) in stacked.iter_mut().zip(outputs).zip(&scan.stacked) {
                let axis = (*axis).min(v.dims.len());
                let mut dims = v.dims.clone();
                dims.insert(axis, scan.steps);
                let whole = match whole {
                    Some(w) if w.dims == dims => w,
                    Some(w) => {
                        return Err(failed(format!("a scan output is {dims:?} where it was {:?} before", w.dims)));
                    }
                    none => none.insert(Value::new(v.dtype, dims, self.spare)?),
                };
                let mut strides = dense(&whole.dims);
                let at = if *reverse { scan.steps - 1 - step } else { step };
                let offset = at as i64 * strides.remove(axis);
                let from = dense(&v.dims);
                // SAFETY: the slice lies within the whole, whose other sizes are the value's.
                unsafe {
                    let (x, y) = (v.memory.as_ptr(), whole.as_mut_ptr());
                    copy(v.dtype, &v.dims, (x, 0, &from), (y, offset, &strides));
                }
                v.recycle(self.spare);
            }
            let before = std::mem::replace(&mut now, after);
            self.recycle(before.into_iter().chain(slices));
        }
        self.recycle(captures);
        for (k, w) in stacked.into_iter().enumerate() {
            let view = self.plan.results.views.as_ref().and_then(|v| v.get(carried + k));
            match (w, view) {
                (Some(w), _) => now.push(w),
                (None, Some(v)) => now.push(Value::new(v.access.dtype, v.sizes.clone(), self.spare)?),
                (None, None) => return Err(failed("a scan of no steps has results of unknown size".into())),
            }
        }
        Ok(now)
    }

    fn hand_over(&mut self, values: Values) -> Result<Option<Defined>, RunError> {
        let (results, failed) = (&self.plan.results, self.failed);
        let Some(views) = &results.views else {
            let symbols = results
                .defined
                .iter()
                .map(|&(o, axis)| {
                    let n = values.get(o).and_then(|v| v.dims.get(axis)).and_then(|&n| i64::try_from(n).ok());
                    n.ok_or_else(|| failed(format!("result {o} has no axis {axis}")))
                })
                .collect::<Result<Vec<_>, _>>()?;
            let outputs = values.into_iter().map(Value::into_exact).collect::<Result<_, _>>()?;
            return Ok(Some(Defined { symbols, outputs }));
        };
        for (i, (view, v)) in views.iter().zip(&values).enumerate() {
            check_result(i, v.dtype, &v.dims, view, failed)?;
            // SAFETY: views were checked at bind; the value has as many elements.
            unsafe { copy_in(view, self.bufs, v.memory.as_ptr()) };
        }
        self.recycle(values);
        Ok(None)
    }
}

/// Values of equal shape one after another.
struct Stack {
    dtype: DType,
    dims: Option<Sizes>,
    bytes: Vec<u8>,
    count: usize,
    /// Elements so far; of dtypes narrower than a byte several share one.
    elements: usize,
}

impl Stack {
    /// An empty one; `bytes` is empty and lends its memory.
    fn new(dtype: DType, bytes: Vec<u8>) -> Stack {
        Stack { dtype, dims: None, bytes, count: 0, elements: 0 }
    }

    fn push(&mut self, v: &Value, failed: Failed<'_>) -> Result<(), RunError> {
        if self.dims.as_ref().is_some_and(|d| *d != v.dims) {
            return Err(failed(format!("a scan output is {:?} where it was {:?} before", v.dims, self.dims)));
        }
        self.dims = Some(v.dims.clone());
        let bytes = v.input().bytes;
        self.bytes.try_reserve(bytes.len()).map_err(|e| RunError::Memory(e.to_string()))?;
        let (bits, n) = (self.dtype.bits(), v.dims.iter().product::<usize>());
        if bits < 8 {
            let (per, mask) = (8 / bits, (1u8 << bits) - 1);
            for i in 0..n {
                let element = bytes.get(i / per).map_or(0, |b| b >> (bits * (i % per)) & mask);
                let at = self.elements + i;
                if at.is_multiple_of(per) {
                    self.bytes.push(0);
                }
                if let Some(b) = self.bytes.last_mut() {
                    *b |= element << (bits * (at % per));
                }
            }
        } else {
            self.bytes.extend_from_slice(bytes);
        }
        self.elements += n;
        self.count += 1;
        Ok(())
    }

    /// The stack as a tensor with a leading axis; without any value its other sizes are the declared ones, or 0.
    fn finish(self, declared: Option<Sizes>, spare: &mut Spare) -> Result<Value, RunError> {
        let mut dims: Sizes = smallvec::smallvec![self.count];
        match self.dims {
            Some(d) => dims.extend(d),
            None => dims.extend(declared.unwrap_or_default().into_iter().skip(1)),
        }
        let mut v = Value::new(self.dtype, dims, spare)?;
        if let Memory::Own(m) = &mut v.memory
            && let Some(to) = m.as_mut_slice().get_mut(..self.bytes.len())
        {
            to.copy_from_slice(&self.bytes);
        }
        spare.give_stack(self.bytes);
        Ok(v)
    }
}
