//! Runs compiled programs on blocks.

use super::code::{Bits, Code, What, int_bits};
use super::io::{self, Block};
use super::loops::Args;
use super::{Work, convert};
use crate::buffers::BindCx;
use crate::simd::Isa;
use rlx_ir::DType;
use smallvec::SmallVec;

/// What is known of a program's values once sizes are.
#[derive(Clone, Debug, Default)]
pub struct Modes {
    /// One element for a whole block (in a row kernel: for a whole row).
    pub uniform: Vec<bool>,
    /// Uniform, but needed as a whole block.
    pub spread: Vec<bool>,
    /// Values of sizes.
    pub sizes: Vec<(u32, Bits)>,
}

impl Modes {
    /// Works out modes. `uniform_source` says of each read, index, accumulator and reduction whether it is uniform.
    pub fn new(code: &Code, cx: &BindCx<'_>, uniform_source: impl Fn(&What) -> bool) -> Modes {
        let n = code.steps.len();
        let mut m = Modes { uniform: vec![false; n], spread: vec![false; n], sizes: Vec::new() };
        for (i, step) in code.steps.iter().enumerate() {
            m.uniform[i] = match step.what {
                What::Const(_) => true,
                What::Size(dim) => {
                    if step.live {
                        m.sizes.push((i as u32, int_bits(cx.value(dim), step.dtype)));
                    }
                    true
                }
                What::Run(_) => step.args.iter().all(|&a| m.uniform[a as usize]),
                ref source => uniform_source(source),
            };
        }
        for (i, step) in code.steps.iter().enumerate().filter(|(_, s)| s.live) {
            let reduces = matches!(step.what, What::Reduce(_));
            if m.uniform[i] && !reduces {
                continue;
            }
            for (k, &a) in step.args.iter().enumerate() {
                if m.uniform[a as usize] && (reduces || step.splat >> k & 1 == 0) {
                    m.spread[a as usize] = true;
                }
            }
        }
        m
    }

    /// Results that are uniform are written as whole blocks.
    pub fn spread_results(&mut self, results: &[u32]) {
        for &r in results {
            self.spread[r as usize] |= self.uniform[r as usize];
        }
    }
}

/// How a block of a read becomes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The operand's memory is the value.
    InPlace,
    /// One element is the value.
    Uniform,
    /// It is gathered or widened into a slot.
    Gather,
}

/// A machine with its working memory. One thread's; made for each task.
pub struct Machine<'a> {
    code: &'a Code,
    modes: &'a Modes,
    isa: Isa,
    /// Each value's slot.
    own: SmallVec<[*mut u8; 24]>,
    /// Where each value lies now.
    ptr: SmallVec<[*mut u8; 24]>,
}

/// Bytes of the working memory that a machine needs.
pub fn scratch_len(code: &Code, slot_count: usize, block: usize) -> usize {
    slot_count * slot_len(code, block)
}

fn slot_len(code: &Code, block: usize) -> usize {
    // An odd number of cache lines, so that slots do not fall into the same sets of the nearest cache.
    (block * code.element).next_multiple_of(64) + 64
}

impl<'a> Machine<'a> {
    /// A machine for blocks of up to `block` elements, with slots as in `slots`. Working memory of
    /// [`scratch_len`] bytes, aligned for every type, must outlive the machine's use.
    pub fn new(
        code: &'a Code,
        modes: &'a Modes,
        slots: &[u32],
        isa: Isa,
        block: usize,
        scratch: &mut [u8],
    ) -> Machine<'a> {
        let len = slot_len(code, block);
        let base = scratch.as_mut_ptr();
        let own: SmallVec<[*mut u8; 24]> = slots.iter().map(|&s| base.wrapping_add(s as usize * len)).collect();
        debug_assert!(slots.iter().all(|&s| (s as usize + 1) * len <= scratch.len()));
        let mut m = Machine { code, modes, isa, ptr: own.clone(), own };
        for (i, step) in code.steps.iter().enumerate().filter(|(_, s)| s.live) {
            if let What::Const(bits) = step.what {
                m.set_constant(i, bits, block);
            }
        }
        for &(i, bits) in &modes.sizes {
            m.set_constant(i as usize, bits, block);
        }
        m
    }

    fn set_constant(&mut self, value: usize, bits: Bits, block: usize) {
        let size = self.code.steps[value].work.size();
        let n = if self.modes.spread[value] { block } else { 1 };
        // SAFETY: the value has a slot of its own of `block` elements; little-endian bits begin with the element.
        unsafe {
            std::ptr::copy_nonoverlapping(bits.as_ptr().cast::<u8>(), self.own[value], size);
            fill(self.own[value], size, n);
        }
    }

    /// Where a value lies.
    pub fn value(&self, value: u32) -> *mut u8 {
        self.ptr[value as usize]
    }

    /// Makes a value lie elsewhere: for results that are computed where they are written.
    pub fn place(&mut self, value: u32, at: *mut u8) {
        self.ptr[value as usize] = at;
    }

    /// Makes a value lie in its slot.
    pub fn unplace(&mut self, value: u32) -> *mut u8 {
        let own = self.own[value as usize];
        self.ptr[value as usize] = own;
        own
    }

    /// Makes a value a block of a walk.
    /// # Safety
    /// The block's elements from `start` on lie in the buffer at `base`, aligned for the dtype, and are at most as
    /// many as the machine was made for.
    pub unsafe fn load(&mut self, value: usize, class: Class, base: *const u8, start: i64, block: Block<'_>) {
        let step = &self.code.steps[value];
        let dtype = step.dtype;
        let at = || base.wrapping_offset(start as isize * (dtype.bits() / 8) as isize).cast_mut();
        // SAFETY: the caller's promise.
        unsafe {
            match class {
                Class::InPlace => self.ptr[value] = at(),
                Class::Gather => {
                    self.ptr[value] = self.own[value];
                    io::load(dtype, base, start, block, self.own[value]);
                }
                Class::Uniform => {
                    if Work::is_storage(dtype) && !self.modes.spread[value] {
                        self.ptr[value] = at();
                        return;
                    }
                    self.ptr[value] = self.own[value];
                    io::load(dtype, base, start, Block { sizes: &[], strides: &[] }, self.own[value]);
                    self.spread(value, block.sizes.iter().product());
                }
            }
        }
    }

    /// Makes a value the indices `start + Σ strides[a]·i_a` of a block.
    /// # Safety
    /// The block has at most as many elements as the machine was made for.
    pub unsafe fn index(&mut self, value: usize, start: i64, block: Block<'_>) {
        let step = &self.code.steps[value];
        let y = self.own[value];
        self.ptr[value] = y;
        let uniform = self.modes.uniform[value];
        let n: usize = if uniform { 1 } else { block.sizes.iter().product() };
        for i in 0..n {
            let at = crate::space::position(i, block.sizes, start, block.strides);
            // SAFETY: i is below the block's length.
            unsafe { write_int(step.work, y, i, at) };
        }
        let x = Args { isa: self.isa, a: [y; 3].map(<*mut u8>::cast_const), splat: [false; 3], y, n };
        // SAFETY: y holds n elements.
        unsafe { convert::round(step.round, &x) };
        if uniform {
            self.spread(value, block.sizes.iter().product());
        }
    }

    /// Computes a value from its operands, over `n` elements, or one where it is uniform.
    /// # Safety
    /// Operands have been computed for this block; the value's place holds `n` elements.
    pub unsafe fn compute(&mut self, value: usize, n: usize) {
        let step = &self.code.steps[value];
        let What::Run(run) = step.what else { return };
        let uniform = self.modes.uniform[value];
        let count = if uniform { 1 } else { n };
        let mut a = [std::ptr::null::<u8>(); 3];
        let mut splat = [false; 3];
        for (k, &arg) in step.args.iter().enumerate().take(3) {
            a[k] = self.ptr[arg as usize].cast_const();
            splat[k] = !uniform && self.modes.uniform[arg as usize] && step.splat >> k & 1 == 1;
        }
        let x = Args { isa: self.isa, a, splat, y: self.ptr[value], n: count };
        // SAFETY: the caller's promise; loops and types were resolved for this step.
        unsafe {
            run.call(&x);
            convert::round(step.round, &x);
        }
        if uniform {
            self.spread(value, n);
        }
    }

    /// Fills the value's slot with its first element, where a whole block of it is needed.
    pub fn spread(&mut self, value: usize, n: usize) {
        if self.modes.spread[value] {
            // SAFETY: the slot holds at least as many elements as any block.
            unsafe { fill(self.ptr[value], self.code.steps[value].work.size(), n) };
        }
    }

    /// Writes a value to a block of a walk.
    /// # Safety
    /// As [`Machine::load`]; no other thread touches the block's memory.
    pub unsafe fn store(&self, value: u32, dtype: DType, base: *mut u8, start: i64, block: Block<'_>) {
        // SAFETY: the caller's promise.
        unsafe { io::store(dtype, base, start, block, self.ptr[value as usize]) }
    }
}

/// Repeats the first element.
/// # Safety
/// `y` holds `n` elements of `size` bytes.
unsafe fn fill(y: *mut u8, size: usize, n: usize) {
    /// # Safety
    /// `y` holds `n` elements.
    unsafe fn typed<T: Copy>(y: *mut T, n: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let v = *y;
            for i in 1..n {
                *y.add(i) = v;
            }
        }
    }
    // SAFETY: the caller's promise; slots are aligned for every type.
    unsafe {
        match size {
            1 => typed(y, n),
            2 => typed(y.cast::<u16>(), n),
            4 => typed(y.cast::<u32>(), n),
            8 => typed(y.cast::<u64>(), n),
            _ => typed(y.cast::<[u64; 2]>(), n),
        }
    }
}

/// # Safety
/// `y` holds more than `i` elements of the type.
unsafe fn write_int(work: Work, y: *mut u8, i: usize, v: i64) {
    // SAFETY: the caller's promise.
    unsafe {
        match work {
            Work::F32 => *y.cast::<f32>().add(i) = v as f32,
            Work::F64 => *y.cast::<f64>().add(i) = v as f64,
            Work::Complex => *y.cast::<[f64; 2]>().add(i) = [v as f64, 0.0],
            Work::I8 | Work::U8 => *y.add(i) = v as u8,
            Work::Bool => *y.add(i) = u8::from(v != 0),
            Work::I16 | Work::U16 => *y.cast::<u16>().add(i) = v as u16,
            Work::I32 | Work::U32 => *y.cast::<u32>().add(i) = v as u32,
            Work::I64 | Work::U64 => *y.cast::<u64>().add(i) = v as u64,
        }
    }
}
