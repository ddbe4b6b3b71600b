//! States: memory that a context keeps from run to run.
//!
//! A state lies row-major, unless it grows in place: then the axis on which it grows is the outermost, so that what a run appends lies
//! behind what is there, and its memory is doubled when it is full.

use crate::bind::BoundSegment;
use crate::buffers::{Ptr, Sizes, Strides};
use crate::control::{copy, dense};
use crate::frame::{Frame, no_memory, output_bytes};
use crate::program::Program;
use rlx_compile::lir::StatePort;
use rlx_compile::{InputProblem, RunError};
use rlx_driver::AlignedBuffer;
use rlx_ir::{DType, Tensor};
use std::sync::Arc;

/// A state's memory; none until its size is known.
#[derive(Default)]
pub struct State {
    /// Contents, and room behind them.
    pub memory: Option<AlignedBuffer>,
    /// Sizes.
    pub dims: Sizes,
}

/// Steps of a walk in row-major order over memory whose outermost axis is `outer`.
fn strides(dims: &[usize], outer: Option<usize>) -> Strides {
    let Some(outer) = outer.filter(|&a| a < dims.len()) else { return dense(dims) };
    let mut strides: Strides = smallvec::smallvec![1i64; dims.len()];
    let mut step = 1i64;
    for axis in (0..dims.len()).rev().filter(|&a| a != outer).chain([outer]) {
        strides[axis] = step;
        step = step.saturating_mul(dims[axis] as i64);
    }
    strides
}

fn bytes_of(dtype: DType, dims: &[usize]) -> Result<usize, RunError> {
    let numel = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let bytes = numel.and_then(|n| dtype.bytes_for(n)).filter(|&n| n <= isize::MAX as usize / 2);
    bytes.ok_or_else(|| RunError::Memory(format!("a state of sizes {dims:?} is larger than the address space")))
}

impl State {
    /// A state with this value. `outer` is the axis on which it grows in place.
    pub fn of(value: &Tensor, outer: Option<usize>) -> Result<State, RunError> {
        let (dtype, dims) = (value.dtype(), Sizes::from(value.dims()));
        // A tensor's bytes may lie at any address.
        let plain = AlignedBuffer::copy_of(value.bytes()).map_err(no_memory)?;
        if outer.is_none_or(|a| a == 0) {
            return Ok(State { memory: Some(plain), dims });
        }
        let mut memory = AlignedBuffer::zeroed(plain.len()).map_err(no_memory)?;
        let from = (plain.as_ptr(), 0, &dense(&dims)[..]);
        // SAFETY: both have the elements of these sizes, over which both walks go through each once.
        unsafe { copy(dtype, &dims, from, (memory.as_mut_ptr(), 0, &strides(&dims, outer))) };
        Ok(State { memory: Some(memory), dims })
    }

    /// Its value, if it has memory.
    pub fn value(&self, dtype: DType, outer: Option<usize>) -> Result<Option<Tensor>, RunError> {
        let Some(memory) = &self.memory else { return Ok(None) };
        let bytes = bytes_of(dtype, &self.dims)?.min(memory.len());
        let mut out = AlignedBuffer::zeroed(bytes).map_err(no_memory)?;
        // SAFETY: the memory has at least as many bytes, all written by whoever gave the state these sizes; the walks go over as many
        // elements as they hold.
        unsafe {
            if outer.is_some_and(|a| a > 0) {
                let from = (memory.as_ptr(), 0, &strides(&self.dims, outer)[..]);
                copy(dtype, &self.dims, from, (out.as_mut_ptr(), 0, &dense(&self.dims)));
            } else {
                std::ptr::copy_nonoverlapping(memory.as_ptr(), out.as_mut_ptr(), bytes);
            }
        }
        // Kernels write elements narrower than a byte one by one: what pads the last byte is zero.
        let (bits, numel) = (dtype.bits(), self.dims.iter().product::<usize>());
        if bits < 8
            && let (Some(last), over @ 1..) = (out.as_mut_slice().last_mut(), numel % (8 / bits))
        {
            *last &= (1u8 << (bits * over)) - 1;
        }
        let tensor = Tensor::from_source(dtype, &self.dims, Arc::new(out));
        tensor.map(Some).map_err(|e| RunError::Memory(e.to_string()))
    }

    /// A state of its own with the same value.
    pub fn copied(&self, dtype: DType) -> Result<State, RunError> {
        let Some(memory) = &self.memory else { return Ok(State::default()) };
        let used = bytes_of(dtype, &self.dims)?.min(memory.len());
        Ok(State { memory: Some(moved_to(memory, used, used)?), dims: self.dims.clone() })
    }

    /// Bytes that it will have where a run needs `needed`: what it has, if that is enough, and twice that otherwise.
    pub fn room(&self, needed: usize) -> usize {
        match self.memory.as_ref().map_or(0, AlignedBuffer::len) {
            has if has >= needed => has,
            has => needed.max(has.saturating_mul(2)),
        }
    }
}

/// New memory of this length that begins as another does.
fn moved_to(from: &AlignedBuffer, used: usize, length: usize) -> Result<AlignedBuffer, RunError> {
    let mut to = AlignedBuffer::uninit(length).map_err(no_memory)?;
    // SAFETY: both have as many bytes.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), used.min(from.len()).min(length)) };
    Ok(to)
}

/// Makes states' memory buffers; those that have none yet begin as their initial values. Gives the bytes moved to larger memory.
pub fn place(frame: &mut Frame, program: &Program, bound: &BoundSegment) -> Result<usize, RunError> {
    let mut moved = 0;
    for (state, port) in frame.states.iter_mut().zip(&program.lir.states) {
        let (b, outer) = (port.buffer.index(), port.grows_in_place());
        let dtype = program.lir.buffers[b].dtype;
        let dims = bound.sizes(&port.shape).unwrap_or_default();
        if state.memory.is_none() {
            *state = match &port.init {
                Some(t) if *t.dims() == *dims => State::of(t, outer)?,
                Some(t) => return Err(wrong_size(port, t.dims(), &dims)),
                None => {
                    let memory = AlignedBuffer::zeroed(bytes_of(dtype, &dims)?).map_err(no_memory)?;
                    State { memory: Some(memory), dims }
                }
            };
        } else if state.dims != dims {
            return Err(wrong_size(port, &state.dims, &dims));
        }
        if outer.is_some() {
            moved += grow(state, dtype, output_bytes(program, bound, b)?)?;
        }
        if let Some(m) = &mut state.memory {
            frame.ptrs[b] = Ptr(m.as_mut_ptr());
        }
    }
    Ok(moved)
}

/// Room for as many bytes as a run needs. Gives the bytes moved.
fn grow(state: &mut State, dtype: DType, needed: usize) -> Result<usize, RunError> {
    let Some(memory) = state.memory.as_ref().filter(|m| m.len() < needed) else { return Ok(0) };
    let used = bytes_of(dtype, &state.dims)?.min(memory.len());
    // Where there is no memory for twice as much, there may be for what is needed.
    let larger = moved_to(memory, used, state.room(needed)).or_else(|_| moved_to(memory, used, needed))?;
    state.memory = Some(larger);
    Ok(used)
}

/// Copies successors that do not lie in their states' memory there. Gives the bytes copied.
pub fn replace(frame: &mut Frame, program: &Program, bound: &BoundSegment) -> Result<usize, RunError> {
    let mut moved = 0;
    for (i, port) in program.lir.states.iter().enumerate() {
        let Some(next) = port.next else { continue };
        if next == port.buffer {
            if port.grows_in_place().is_some() {
                frame.states[i].dims = bound.shape(program, next.index()).unwrap_or_default();
            }
            continue;
        }
        let bytes = output_bytes(program, bound, next.index())?;
        let dims = bound.shape(program, next.index()).unwrap_or_default();
        let from = frame.ptrs[next.index()].get();
        let state = &mut frame.states[i];
        if state.memory.as_ref().is_none_or(|m| m.len() != bytes) {
            state.memory = Some(AlignedBuffer::uninit(bytes).map_err(no_memory)?);
        }
        state.dims = dims;
        if let Some(m) = &mut state.memory {
            // SAFETY: the buffer has memory of this size; a new state's memory may be the old one's only if it is the
            // same buffer, which was excluded, but copying allows overlap anyway.
            unsafe { std::ptr::copy(from, m.as_mut_ptr(), bytes) };
            moved += bytes;
        }
    }
    Ok(moved)
}

fn wrong_size(port: &StatePort, has: &[usize], needs: &[usize]) -> RunError {
    RunError::Inputs(vec![InputProblem::Shape {
        kind: "state",
        name: port.name.to_string(),
        expected: format!("{needs:?} in this call"),
        got: has.to_vec(),
        why: "reset the state or keep the sizes of earlier calls".into(),
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_whatever_axis_is_outermost() {
        for (dtype, dims) in [
            (DType::F32, vec![2, 3, 5]),
            (DType::I4, vec![3, 5, 1]),
            (DType::U2, vec![1, 7, 3]),
            (DType::C128, vec![2, 2, 3]),
            (DType::Bool, vec![4, 0, 3]),
        ] {
            let bytes: Vec<u8> = (0..bytes_of(dtype, &dims).unwrap()).map(|i| (i * 37 % 2) as u8).collect();
            let t = Tensor::from_bytes(dtype, &dims, &bytes).unwrap();
            for outer in [None, Some(0), Some(1), Some(2)] {
                let state = State::of(&t, outer).unwrap();
                assert_eq!(state.value(dtype, outer).unwrap().unwrap(), t, "{dtype} {dims:?} {outer:?}");
                let copy = state.copied(dtype).unwrap();
                assert_eq!(copy.value(dtype, outer).unwrap().unwrap(), t, "{dtype} {dims:?} {outer:?}");
            }
        }
    }

    #[test]
    fn the_axis_that_grows_is_outermost_and_memory_doubles() {
        let t = Tensor::from_slice(&[2, 3], &[0f32, 1., 2., 3., 4., 5.]).unwrap();
        let mut state = State::of(&t, Some(1)).unwrap();
        let lies: Vec<f32> = state.memory.as_ref().unwrap().typed::<f32>().unwrap().to_vec();
        assert_eq!(lies, [0., 3., 1., 4., 2., 5.]);
        assert_eq!(grow(&mut state, DType::F32, 24).unwrap(), 0, "there is room");
        assert_eq!(grow(&mut state, DType::F32, 32).unwrap(), 24);
        assert_eq!(state.memory.as_ref().unwrap().len(), 48);
        assert_eq!(state.value(DType::F32, Some(1)).unwrap().unwrap(), t);
    }
}
