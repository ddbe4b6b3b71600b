//! Memory of one running program: arenas, outputs, states, and frames of nested programs.

use crate::bind::BoundSegment;
use crate::buffers::{Ptr, Sizes};
use crate::program::{KernelCode, Program};
use crate::states::State;
use rlx_compile::RunError;
use rlx_compile::lir::Storage;
use rlx_driver::AlignedBuffer;

/// Byte that poisoned arenas are filled with: no plausible number in any dtype.
const POISON: u8 = 0xa5;

/// Memory of a program. Grown when a binding needs more, never shrunk.
pub struct Frame {
    /// Where each buffer lies in the present run.
    pub ptrs: Vec<Ptr>,
    /// An arena for each segment.
    arenas: Vec<Option<AlignedBuffer>>,
    /// Memory of output buffers, by buffer.
    pub outputs: Vec<Option<AlignedBuffer>>,
    /// Copies of inputs whose memory is not aligned, by input.
    staging: Vec<Option<AlignedBuffer>>,
    /// States.
    pub states: Vec<State>,
    /// Sizes of the outputs of the latest run that lent them, by output.
    pub lent: Vec<Sizes>,
    /// Where the buffers of the kernel that runs lie, by slot: memory kept from kernel to kernel.
    pub slots: Vec<Ptr>,
    /// Frames of nested programs, by kernel.
    pub nested: Vec<Vec<Frame>>,
    /// Memory of values that the kernel around this program carried from run to run.
    pub spare: Spare,
}

/// Memory that the values of loops use over and over.
#[derive(Default)]
pub struct Spare {
    buffers: Vec<AlignedBuffer>,
    stacks: Vec<Vec<u8>>,
}

impl Spare {
    /// Memory of at least this many bytes, of unspecified contents.
    pub fn take(&mut self, bytes: usize) -> Result<AlignedBuffer, RunError> {
        if let Some(i) = self.buffers.iter().position(|b| b.len() >= bytes) {
            return Ok(self.buffers.swap_remove(i));
        }
        // One that is too small makes room: there are never more than were in use at a time.
        drop(self.buffers.pop());
        AlignedBuffer::uninit(bytes).map_err(no_memory)
    }

    /// Takes memory back.
    pub fn give(&mut self, buffer: AlignedBuffer) {
        self.buffers.push(buffer);
    }

    /// An empty list of bytes.
    pub fn take_stack(&mut self) -> Vec<u8> {
        self.stacks.pop().unwrap_or_default()
    }

    /// Takes a list back.
    pub fn give_stack(&mut self, mut bytes: Vec<u8>) {
        bytes.clear();
        self.stacks.push(bytes);
    }
}

/// A memory error.
pub fn no_memory(e: rlx_driver::BufferError) -> RunError {
    RunError::Memory(e.to_string())
}

impl Frame {
    /// An empty frame.
    pub fn new(program: &Program) -> Frame {
        let lir = &program.lir;
        let nested = program.codes.iter().map(|c| match c {
            KernelCode::Nested(programs) => programs.iter().map(Frame::new).collect(),
            _ => Vec::new(),
        });
        let mut frame = Frame {
            ptrs: vec![Ptr(std::ptr::null_mut()); lir.buffers.len()],
            arenas: program.segments.list.iter().map(|_| None).collect(),
            outputs: lir.buffers.iter().map(|_| None).collect(),
            staging: lir.inputs.iter().map(|_| None).collect(),
            states: lir.states.iter().map(|_| State::default()).collect(),
            lent: vec![Sizes::new(); lir.outputs.len()],
            slots: Vec::new(),
            nested: nested.collect(),
            spare: Spare::default(),
        };
        for &(b, p) in &program.consts {
            frame.ptrs[b as usize] = p;
        }
        frame
    }

    /// Memory for what a segment has given a size: its arena and outputs. `exact` outputs are as long as their
    /// contents, to be handed out as tensors; those in `placed` lie elsewhere.
    pub fn place(
        &mut self,
        program: &Program,
        bound: &BoundSegment,
        align: usize,
        poison: bool,
        exact: bool,
        placed: &[(u32, Ptr)],
    ) -> Result<(), RunError> {
        let slot = &mut self.arenas[bound.segment];
        let mut arena = match slot.take() {
            Some(a) if a.len() >= bound.arena_bytes => a,
            old => {
                // The old memory goes first: the two need not exist at once.
                drop(old);
                AlignedBuffer::uninit_with_align(bound.arena_bytes, align.max(64)).map_err(no_memory)?
            }
        };
        if poison {
            arena.poison(POISON);
        }
        let base = slot.insert(arena).as_mut_ptr();
        for &(b, offset) in &bound.arena {
            self.ptrs[b as usize] = Ptr(base.wrapping_add(offset));
        }
        for &b in &program.segments.list[bound.segment].outputs {
            if let Some((_, p)) = placed.iter().find(|(n, _)| *n == b) {
                self.ptrs[b as usize] = *p;
                continue;
            }
            let bytes = output_bytes(program, bound, b as usize)?;
            let slot = &mut self.outputs[b as usize];
            let fits = slot.as_ref().is_some_and(|m| if exact { m.len() == bytes } else { m.len() >= bytes });
            if !fits {
                *slot = None;
                *slot = Some(AlignedBuffer::uninit(bytes).map_err(no_memory)?);
            }
            if let Some(m) = slot {
                if poison {
                    m.poison(POISON);
                }
                // Kernels write elements narrower than a byte one by one: what pads the last byte is zero.
                if program.lir.buffers[b as usize].dtype.bits() < 8
                    && let Some(last) = bytes.checked_sub(1).and_then(|i| m.as_mut_slice().get_mut(i))
                {
                    *last = 0;
                }
                self.ptrs[b as usize] = Ptr(m.as_mut_ptr());
            }
        }
        Ok(())
    }

    /// Makes an input's bytes a buffer, copied where they are not aligned. Gives the bytes copied. `bytes` must outlive the run.
    pub fn set_input(&mut self, buffer: usize, input: usize, bytes: &[u8], align: usize) -> Result<usize, RunError> {
        let mut copied = 0;
        let mut ptr = bytes.as_ptr();
        if !(ptr as usize).is_multiple_of(align) {
            let slot = &mut self.staging[input];
            if slot.as_ref().is_none_or(|m| m.len() < bytes.len()) {
                *slot = Some(AlignedBuffer::uninit(bytes.len()).map_err(no_memory)?);
            }
            if let Some(m) = slot {
                m.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
                copied = bytes.len();
                ptr = m.as_ptr();
            }
        }
        self.ptrs[buffer] = Ptr(ptr.cast_mut());
        Ok(copied)
    }

    /// Bytes of all arenas.
    pub fn arena_bytes(&self) -> usize {
        self.arenas.iter().flatten().map(AlignedBuffer::len).sum()
    }
}

/// Bytes of a buffer whose size is known.
pub fn output_bytes(program: &Program, bound: &BoundSegment, buffer: usize) -> Result<usize, RunError> {
    let b = &program.lir.buffers[buffer];
    usize::try_from(bound.numels[buffer])
        .ok()
        .and_then(|n| b.dtype.bytes_for(n))
        .filter(|&n| n <= isize::MAX as usize / 2)
        .ok_or_else(|| RunError::Memory(format!("buffer {buffer} is larger than the address space")))
}

/// True if a buffer's memory is the context's own, made for a run.
pub fn is_output(program: &Program, buffer: usize) -> bool {
    matches!(program.lir.buffers[buffer].storage, Storage::Output(_))
}
