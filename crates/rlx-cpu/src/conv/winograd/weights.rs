//! The transformed weights: G g Gᵀ of every 3×3 window, sixteen matrices of input by output channels in panels.
//!
//! They are computed in f64 and rounded once. Input channels are cut into parts with matrices of their own: sums of one part
//! are added to those of the parts before, so that no chain of additions is longer than those of a direct sum. Ahead of them stands whether the weights are fit for it: transformed ones
//! that are huge or not finite would spread over outputs that do not see them.

use crate::buffers::{BoundAccess, Form, Ptr, RunCx};
use crate::contract::operand::{Axes, fingerprint_of};
use crate::gemm::{packed_b_len, panel_width};
use crate::simd::{Isa, Kernel, MAX_TILE_VECTORS, MAX_W, Simd, dispatch};
use crate::tile::{io, scratch};
use rlx_ir::DType;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Elements of a transformed window.
pub const PLANES: usize = 16;
/// Elements ahead of the panels; the first is 0 where the weights are fit.
const AHEAD: usize = 16;
/// What tells this form from others of the same weight.
const LAYOUT: u64 = 0x0077_696e_6f32_7833;
/// Magnitudes from which weights are unfit: with inputs below 2⁶⁴ no sum overflows.
const HUGE: f64 = 4_294_967_296.0;

/// Weights of a convolution, and the form in which they are kept.
#[derive(Debug)]
pub struct Weights {
    access: BoundAccess,
    /// Input and output channels.
    sizes: [usize; 2],
    /// Steps of input channels, output channels, and the axes of the window.
    steps: [i64; 4],
    /// Input channels of a part.
    part: usize,
    /// Elements of one matrix's panels, all parts.
    plane: usize,
    form: Form,
}

/// Most input channels of a part.
const PART: usize = 128;

/// Transformed weights in memory.
#[derive(Clone, Copy, Debug)]
pub struct Transformed {
    data: Ptr,
    plane: usize,
    /// Columns of whole panels.
    width: usize,
}

impl Transformed {
    /// The panels of a part of a matrix: the part that begins with input channel `first`.
    pub fn panels(&self, plane: usize, first: usize) -> *const f32 {
        self.data.get().cast::<f32>().wrapping_add(AHEAD + plane * self.plane + first * self.width)
    }

    /// Whether the weights are fit.
    /// # Safety
    /// The form is all there.
    pub unsafe fn fit(&self) -> bool {
        // SAFETY: the caller's promise.
        unsafe { *self.data.get().cast::<f32>() == 0.0 }
    }
}

impl Weights {
    /// The form of weights of so many input and output channels, whose walk is over output channels, input channels and
    /// the window's axes. `None` where no memory has room for it.
    pub fn new(isa: Isa, weight: &BoundAccess, inputs: usize, outputs: usize) -> Option<Weights> {
        let &[output, input, down, across] = &weight.strides[..] else { return None };
        let plane = packed_b_len(isa, inputs, outputs)?.checked_next_multiple_of(AHEAD)?;
        let bytes = plane.checked_mul(PLANES)?.checked_add(AHEAD)?.checked_mul(size_of::<f32>())?;
        let window = Axes::new(&[3, 3], &[down, across]);
        let (rows, cols) = (Axes::new(&[inputs], &[input]), Axes::new(&[outputs], &[output]));
        let own = fingerprint_of(isa, weight.buffer, weight.offset, [&window, &rows, &cols]);
        Some(Weights {
            access: weight.clone(),
            sizes: [inputs, outputs],
            steps: [input, output, down, across],
            part: inputs.div_ceil(inputs.div_ceil(PART).max(1)).max(1),
            plane,
            form: Form { fingerprint: own ^ LAYOUT, bytes: Some(bytes) },
        })
    }

    /// The kept form, made now if it is not there yet.
    /// # Safety
    /// `run` has the weights' memory.
    pub unsafe fn kept(&self, run: &RunCx<'_>) -> Option<Transformed> {
        // SAFETY: the caller's promise; there is room.
        let data = run.weight?.form(&self.form, |to| unsafe { self.make(run, to) })?;
        Some(self.at(run.isa, data))
    }

    fn at(&self, isa: Isa, data: Ptr) -> Transformed {
        Transformed { data, plane: self.plane, width: self.sizes[1].next_multiple_of(panel_width(isa)) }
    }

    /// The parts of the input channels.
    pub fn parts(&self) -> impl Iterator<Item = Range<usize>> {
        let (all, part) = (self.sizes[0], self.part);
        (0..all).step_by(part).map(move |first| first..all.min(first + part))
    }

    /// Runs `f` with the weights: kept ones, or else transformed for this run.
    /// # Safety
    /// `run` has the weights' memory.
    pub unsafe fn with(&self, run: &RunCx<'_>, f: impl FnOnce(Transformed)) {
        // SAFETY: the caller's promise.
        if let Some(kept) = unsafe { self.kept(run) } {
            return f(kept);
        }
        scratch::with((AHEAD + PLANES * self.plane) * size_of::<f32>(), |memory| {
            let data = Ptr(memory.as_mut_ptr());
            // SAFETY: the caller's promise; the memory has room.
            unsafe { self.make(run, data) };
            f(self.at(run.isa, data));
        });
    }

    /// # Safety
    /// `run` has the weights' memory; `to` has room for the form.
    unsafe fn make(&self, run: &RunCx<'_>, to: Ptr) {
        let unfit = AtomicBool::new(false);
        let panel = panel_width(run.isa);
        let base = Ptr(run.bufs.base(self.access.buffer));
        let panels = Ptr(to.get().cast::<f32>().wrapping_add(AHEAD).cast());
        run.region.parallel_for(self.sizes[1].div_ceil(panel), &|j| {
            let made = Panel { weights: self, base: base.get(), j, to: panels.get().cast() };
            if !dispatch(run.isa, made) {
                unfit.store(true, Ordering::Relaxed);
            }
        });
        let flag = if unfit.into_inner() { 1.0 } else { 0.0 };
        for i in 0..AHEAD {
            // SAFETY: the elements ahead of the panels; none is left without a value, since forms are written to files.
            unsafe { to.get().cast::<f32>().add(i).write(flag) };
        }
        let used = self.sizes[1].next_multiple_of(panel) * self.sizes[0];
        for p in 0..PLANES {
            for i in used..self.plane {
                // SAFETY: what is left between one matrix and the next.
                unsafe { panels.get().cast::<f32>().add(p * self.plane + i).write(0.0) };
            }
        }
    }
}

/// Makes one panel of each matrix; returns whether its weights are fit. The maker answers for the memory.
struct Panel<'a> {
    weights: &'a Weights,
    base: *const u8,
    j: usize,
    to: *mut f32,
}

/// A number for each column of a panel.
type Row = [f64; MAX_TILE_VECTORS * MAX_W];

impl Kernel for Panel<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> bool {
        let nr = S::W * S::TILE_VECTORS;
        let Panel { weights: w, base, j, to } = self;
        let [inputs, outputs] = w.sizes;
        let [input, output, down, across] = w.steps;
        let width = (outputs - j * nr).min(nr);
        let wide = outputs.next_multiple_of(nr);
        let mut fit = true;
        for c in 0..inputs {
            let first = c / w.part * w.part;
            let depth = (inputs - first).min(w.part);
            let to = to.wrapping_add(first * wide + (j * depth + c - first) * nr);
            let mut taps = [[0.0; MAX_TILE_VECTORS * MAX_W]; 9];
            for n in 0..width {
                let at = w.access.offset + c as i64 * input + (j * nr + n) as i64 * output;
                for (t, row) in taps.iter_mut().enumerate() {
                    let at = at + (t / 3) as i64 * down + (t % 3) as i64 * across;
                    // SAFETY: the walk was checked at bind.
                    row[n] = unsafe {
                        match w.access.dtype {
                            DType::F32 => f64::from(*base.cast::<f32>().offset(at as isize)),
                            dtype => io::read_f64(dtype, base, at),
                        }
                    };
                    fit &= row[n].abs() < HUGE;
                }
            }
            // Down the columns of the window, then along its rows.
            for i in 0..4 {
                let mut lines = [[0.0; MAX_TILE_VECTORS * MAX_W]; 3];
                for (x, line) in lines.iter_mut().enumerate() {
                    combine(i, nr, [&taps[x], &taps[3 + x], &taps[6 + x]], line);
                }
                for k in 0..4 {
                    let mut sums = [0.0; MAX_TILE_VECTORS * MAX_W];
                    combine(k, nr, [&lines[0], &lines[1], &lines[2]], &mut sums);
                    let to = to.wrapping_add((4 * i + k) * w.plane);
                    for (n, &sum) in sums.iter().enumerate().take(nr) {
                        // SAFETY: the panel's step lies within the matrix.
                        unsafe { *to.add(n) = sum as f32 };
                    }
                }
            }
        }
        fit
    }
}

/// Row `i` of G times three numbers, for each column.
#[inline(always)]
fn combine(i: usize, nr: usize, [a, b, c]: [&Row; 3], to: &mut Row) {
    for n in 0..nr {
        to[n] = match i {
            0 => a[n],
            1 => (a[n] + c[n] + b[n]) * 0.5,
            2 => (a[n] + c[n] - b[n]) * 0.5,
            _ => c[n],
        };
    }
}
