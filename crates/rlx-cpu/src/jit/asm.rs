//! Instructions in order, with labels; encoded by iced-x86.

use iced_x86::{Code, Encoder, Instruction, MemoryOperand, Register};

/// Vector registers by number.
const YMM: [Register; 16] = [
    Register::YMM0,
    Register::YMM1,
    Register::YMM2,
    Register::YMM3,
    Register::YMM4,
    Register::YMM5,
    Register::YMM6,
    Register::YMM7,
    Register::YMM8,
    Register::YMM9,
    Register::YMM10,
    Register::YMM11,
    Register::YMM12,
    Register::YMM13,
    Register::YMM14,
    Register::YMM15,
];

/// The vector register of this number.
pub fn ymm(n: u8) -> Register {
    YMM[usize::from(n & 15)]
}

/// The memory at `base + disp`.
pub fn at(base: Register, disp: i32) -> MemoryOperand {
    MemoryOperand::with_base_displ_size(base, i64::from(disp), 1)
}

/// The memory at `base + index · scale + disp`.
pub fn indexed(base: Register, index: Register, scale: u32, disp: i32) -> MemoryOperand {
    MemoryOperand::with_base_index_scale_displ_size(base, index, scale, i64::from(disp), 1)
}

/// An operand.
#[derive(Clone, Copy, Debug)]
pub enum Operand {
    R(Register),
    M(MemoryOperand),
    I(i32),
}

impl From<Register> for Operand {
    fn from(r: Register) -> Self {
        Operand::R(r)
    }
}

impl From<MemoryOperand> for Operand {
    fn from(m: MemoryOperand) -> Self {
        Operand::M(m)
    }
}

/// A place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(u32);

#[derive(Debug)]
enum Item {
    Instruction(Instruction),
    Label(u32),
    Jump(Code, u32),
}

/// Code in the making.
#[derive(Debug, Default)]
pub struct Asm {
    items: Vec<Item>,
    labels: u32,
    failed: bool,
}

impl Asm {
    /// Appends an instruction.
    pub fn op<const N: usize>(&mut self, code: Code, operands: [Operand; N]) {
        use Operand::{I, M, R};
        let made = match operands.as_slice() {
            [] => Ok(Instruction::with(code)),
            [R(a)] => Instruction::with1(code, *a),
            [M(a)] => Instruction::with1(code, *a),
            [R(a), R(b)] => Instruction::with2(code, *a, *b),
            [R(a), M(b)] => Instruction::with2(code, *a, *b),
            [M(a), R(b)] => Instruction::with2(code, *a, *b),
            [R(a), I(b)] => Instruction::with2(code, *a, *b),
            [R(a), R(b), R(c)] => Instruction::with3(code, *a, *b, *c),
            [R(a), R(b), M(c)] => Instruction::with3(code, *a, *b, *c),
            [R(a), R(b), I(c)] => Instruction::with3(code, *a, *b, *c),
            [R(a), M(b), I(c)] => Instruction::with3(code, *a, *b, *c),
            [M(a), R(b), R(c)] => Instruction::with3(code, *a, *b, *c),
            [R(a), R(b), R(c), R(d)] => Instruction::with4(code, *a, *b, *c, *d),
            [R(a), R(b), M(c), R(d)] => Instruction::with4(code, *a, *b, *c, *d),
            [R(a), R(b), R(c), I(d)] => Instruction::with4(code, *a, *b, *c, *d),
            [R(a), R(b), M(c), I(d)] => Instruction::with4(code, *a, *b, *c, *d),
            _ => {
                self.failed = true;
                return;
            }
        };
        match made {
            Ok(i) => self.items.push(Item::Instruction(i)),
            Err(_) => self.failed = true,
        }
    }

    /// Gives up: there will be no code.
    pub fn fail(&mut self) {
        self.failed = true;
    }

    /// A label that is yet to be placed.
    pub fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    /// Places a label here.
    pub fn place(&mut self, l: Label) {
        self.items.push(Item::Label(l.0));
    }

    /// A jump with a 32-bit distance.
    pub fn jump(&mut self, code: Code, to: Label) {
        self.items.push(Item::Jump(code, to.0));
    }

    /// Number of instructions so far, and room to put one in later.
    pub fn reserve(&mut self) -> usize {
        self.items.push(Item::Instruction(Instruction::with(Code::Nopd)));
        self.items.len() - 1
    }

    /// Puts an instruction in the room that [`Asm::reserve`] made.
    pub fn put<const N: usize>(&mut self, room: usize, code: Code, operands: [Operand; N]) {
        self.op(code, operands);
        if let Some(item) = self.items.pop()
            && let Some(place) = self.items.get_mut(room)
        {
            *place = item;
        }
    }

    /// The machine code; it does not depend on where it lies. `None` if an instruction does not exist.
    pub fn encode(&self) -> Option<Vec<u8>> {
        if self.failed {
            return None;
        }
        let mut e = Encoder::new(64);
        let mut places: Vec<Option<u64>> = vec![None; self.labels as usize];
        let mut jumps: Vec<(usize, u32)> = Vec::new();
        let mut at = 0u64;
        for item in &self.items {
            at += match item {
                Item::Instruction(i) => e.encode(i, at).ok()? as u64,
                Item::Label(l) => {
                    *places.get_mut(*l as usize)? = Some(at);
                    0
                }
                Item::Jump(code, l) => {
                    let length = e.encode(&Instruction::with_branch(*code, at).ok()?, at).ok()? as u64;
                    jumps.push(((at + length) as usize, *l));
                    length
                }
            };
        }
        let mut bytes = e.take_buffer();
        for (end, l) in jumps {
            let to = places.get(l as usize).copied().flatten()?;
            let distance = i32::try_from(to as i64 - end as i64).ok()?;
            bytes.get_mut(end - 4..end)?.copy_from_slice(&distance.to_le_bytes());
        }
        Some(bytes)
    }
}
