//! Keys of random numbers in graphs and their nested graphs.

use rlx_ir::ops::elementwise::Binary;
use rlx_ir::{DType, Tensor, ValueId};

use super::scope::{Importer, Turn};
use crate::ops::Failure;

/// An odd number whose multiples lie far apart, so that the turns of a loop have seeds of their own.
const APART: u64 = 0x9E37_79B9_7F4A_7C15;

impl Importer<'_> {
    /// A stream that no other node draws from. Stream 0 is for nodes with a seed of their own.
    pub fn next_stream(&mut self) -> u32 {
        self.streams = self.streams.wrapping_add(1);
        self.streams
    }

    /// The generator's key in the frame at hand: in the body of a loop, another one for each turn.
    pub fn rng_key(&mut self) -> Result<ValueId, Failure> {
        let here = self.frame_index();
        let mut key = self.frames[0].builder.rng_key()?;
        for frame in 1..=here {
            key = match self.frames[frame].rng {
                Some(known) => known,
                None => self.key_inside(frame, key)?,
            };
            self.frames[frame].rng = Some(key);
        }
        Ok(key)
    }

    /// The key in a nested graph, given that of the graph around it.
    fn key_inside(&mut self, frame: usize, outside: ValueId) -> Result<ValueId, Failure> {
        let captured = self.capture(frame, outside)?;
        match self.frames[frame].turn {
            Turn::Once => Ok(captured),
            Turn::Unnumbered => Err(Failure::unsupported("random numbers inside a Scan")),
            Turn::Numbered => {
                let b = &mut self.frames[frame].builder;
                let turn = b.graph().inputs().first().copied();
                let turn = turn.ok_or_else(|| Failure::refused("a loop's body has no inputs"))?;
                // Inner loops take other multiples than outer ones, so that turns of both do not meet.
                let apart = APART.rotate_left(7 * frame as u32) | 1;
                let apart = b.constant(Tensor::from_slice(&[2], &[apart, 0])?)?;
                let turn = b.convert(turn, DType::U64)?;
                let one = b.scalar(DType::U64, 1.0)?;
                let turn = b.add(turn, one)?;
                let moved = b.op1(Binary::Mul, &[apart, turn])?;
                Ok(b.add(captured, moved)?)
            }
        }
    }
}
