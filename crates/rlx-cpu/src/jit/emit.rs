//! From a nest of loops to AVX2 code.
//!
//! The function takes the address of an argument block (`rdi`): elements a row, rows, the pool of constants, then address
//! and step of each port. `rax` is the element's index, `rcx` the end of whole turns or the place among partial results,
//! `rdx` the pool, `r11` is free; nine registers hold addresses of ports. What is uniform lies in the frame, 32 bytes a
//! value, and constants in the pool: both are memory operands where no register is to spare.

use super::asm::{Asm, Label, Operand, at, indexed, ymm};
use super::nest::{Nest, Pass, Port};
use super::regs::{Act, Block, Turn};
use super::tape::{Op, PARTS, V};
use iced_x86::{Code, MemoryOperand, Register};
use std::collections::HashMap;

/// Bytes of the argument block before its ports, and of a port.
pub const HEAD: i32 = 24;
pub const PORT: i32 = 16;
/// Most bytes of a frame: below a page, so that no guard page is stepped over.
const FRAME: i32 = 3840;
/// Registers for addresses.
const BASES: [Register; 9] = [
    Register::RSI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::RBX,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];
const SAVED: [Register; 6] = [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];
/// How far ahead operands from memory are asked for, in elements.
const AHEAD: i32 = 512;
/// Words of the table of masks in front of the pool: ones, then zeros.
const ONES: i32 = 32;
const MASKS: i32 = ONES + 8;

/// Machine code and its constants.
pub struct Emitted {
    pub code: Vec<u8>,
    /// The pool: words.
    pub pool: Vec<u32>,
}

/// What blocks of straight code share.
pub struct Emit<'a> {
    pub nest: &'a Nest,
    pub asm: Asm,
    /// Where constants lie in the pool.
    consts: HashMap<u32, i32>,
    pool: Vec<u32>,
    /// Where uniform values lie in the frame.
    homes: Vec<Option<i32>>,
    /// Where partial results of each reduction lie.
    parts: Vec<i32>,
    /// Where spilled values may lie, and how far they went.
    spills: i32,
    frame: i32,
    /// Registers of ports in this pass.
    bases: Vec<Option<Register>>,
    /// Whole vectors of results go past the caches; their memory is aligned then.
    pub past_caches: bool,
}

impl Emit<'_> {
    /// A constant's memory.
    pub fn constant(&mut self, bits: u32) -> MemoryOperand {
        let pool = &mut self.pool;
        let offset = *self.consts.entry(bits).or_insert_with(|| {
            pool.extend([bits; 8]);
            (pool.len() as i32 - 8) * 4
        });
        at(Register::RDX, offset)
    }

    /// The frame's memory at an offset.
    pub fn frame(&self, offset: i32) -> MemoryOperand {
        at(Register::RSP, offset)
    }

    /// Room for spilled value number `n` of a block.
    pub fn spill(&mut self, n: i32) -> i32 {
        let offset = self.spills + 32 * n;
        self.frame = self.frame.max(offset + 32);
        offset
    }

    /// Where a uniform value lies, if it lies in the frame.
    pub fn home(&self, v: V) -> Option<i32> {
        self.homes.get(v.0 as usize).copied().flatten()
    }

    /// A partial result's memory in the frame.
    pub fn part(&self, reduce: u16, part: u8) -> MemoryOperand {
        self.frame(self.parts.get(reduce as usize).copied().unwrap_or(0) + 32 * i32::from(part))
    }

    /// The partial result that the last turns have come to.
    pub fn part_in_turn(&self, reduce: u16) -> MemoryOperand {
        indexed(Register::RSP, Register::RCX, 1, self.parts.get(reduce as usize).copied().unwrap_or(0))
    }

    /// Memory of a port at the index, `turn` elements on.
    pub fn stream(&mut self, port: u16, size: u32, turn: i32) -> MemoryOperand {
        let base = self.bases.get(port as usize).copied().flatten().unwrap_or_else(|| self.base(port));
        indexed(base, Register::RAX, size, turn * size as i32)
    }

    /// Loads a port's address to the free register.
    pub fn base(&mut self, port: u16) -> Register {
        self.asm.op(Code::Mov_r64_rm64, [Register::R11.into(), argument(port).into()]);
        Register::R11
    }

    /// Runs straight code in a block; `regs` may be used.
    fn block(&mut self, acts: &[Act], turn: Turn, regs: u16, pins: &HashMap<V, u8>) -> u32 {
        let mut block = Block::new(self, acts, turn, regs, pins);
        block.run();
        block.most
    }

    /// What is uniform of a stage.
    fn uniforms(&mut self, list: &[V]) {
        let mut acts = Vec::with_capacity(2 * list.len());
        for &v in list {
            acts.push(Act::Compute(v));
            if self.home(v).is_some() {
                acts.push(Act::Home(v));
            }
        }
        self.block(&acts, Turn::Once, 0xffff, &HashMap::new());
    }

    /// A loop over the row.
    fn pass(&mut self, pass: &Pass) {
        if pass.reduces.is_empty() && pass.writes.is_empty() {
            return;
        }
        let (main, tail) = (self.acts(pass, false), self.acts(pass, true));
        self.take_bases(pass, &main);
        let reduces = pass.reduces.len();
        let turns = if reduces > 0 {
            i32::from(PARTS)
        } else if main.len() <= 40 {
            2
        } else {
            1
        };
        // Partial results stay in registers where they fit.
        let held = reduces <= 2;
        let mut regs = 0xffffu16;
        let mut parts: Vec<[u8; PARTS as usize]> = Vec::new();
        if held {
            for r in 0..reduces as u8 {
                parts.push(std::array::from_fn(|k| 15 - (r * PARTS + k as u8)));
            }
            regs >>= reduces * usize::from(PARTS);
        }
        for (i, &r) in pass.reduces.iter().enumerate() {
            let neutral = self.nest.reduces.get(r as usize).map_or(0, |r| r.neutral);
            let neutral = self.constant(neutral);
            for k in 0..PARTS {
                let y = parts.get(i).map_or(0, |p| p[usize::from(k)]);
                if held || k == 0 {
                    self.asm.op(Code::VEX_Vmovups_ymm_ymmm256, [ymm(y).into(), neutral.into()]);
                }
                if !held {
                    let to = self.part(r, k);
                    self.asm.op(Code::VEX_Vmovups_ymmm256_ymm, [to.into(), ymm(y).into()]);
                }
            }
        }
        let holder = |k: i32| -> HashMap<V, u8> {
            let of = |(i, &r): (usize, &u16)| {
                let v = self.nest.tape.ops.iter().position(|&op| op == Op::Partial(r))?;
                Some((V(v as u32), parts.get(i)?[k as usize & 3]))
            };
            pass.reduces.iter().enumerate().filter_map(of).collect()
        };
        let mut pins: Vec<HashMap<V, u8>> = (0..turns).map(holder).collect();
        // A first try shows how many registers are to spare for what every turn reads.
        let kept = std::mem::take(&mut self.asm);
        let most = self.block(&main, Turn::Whole(0), regs, &pins[0]);
        self.asm = kept;
        let spare = regs.count_ones().saturating_sub(most);
        let mut pinned = self.shared(&main);
        pinned.truncate(spare as usize);
        let mut top = regs.count_ones() as u8;
        for &v in &pinned {
            top -= 1;
            regs &= !(1 << top);
            pins.iter_mut().for_each(|p| _ = p.insert(v, top));
        }
        let (rest, again) = (self.asm.label(), self.asm.label());
        self.asm.op(Code::Xor_r32_rm32, [Register::EAX.into(), Register::EAX.into()]);
        self.asm.op(Code::Mov_r64_rm64, [Register::RCX.into(), at(Register::RDI, 0).into()]);
        self.asm.op(Code::Sub_rm64_imm8, [Register::RCX.into(), Operand::I(8 * turns)]);
        self.asm.jump(Code::Jl_rel32_64, rest);
        for v in pinned {
            let to = pins[0].get(&v).copied().unwrap_or(0);
            let from = match self.nest.tape.op(v) {
                Op::Const(bits) => self.constant(bits),
                _ => self.frame(self.home(v).unwrap_or(0)),
            };
            self.asm.op(Code::VEX_Vmovups_ymm_ymmm256, [ymm(to).into(), from.into()]);
        }
        self.asm.place(again);
        if self.past_caches {
            // Two turns take a line of the cache from each operand.
            for v in self.nest.tape.ops.iter().filter_map(|op| if let Op::Stream(p) = op { Some(*p) } else { None }) {
                let ahead = self.stream(v, 4, AHEAD);
                self.asm.op(Code::Prefetcht0_m8, [ahead.into()]);
            }
        }
        for k in 0..turns {
            self.block(&main, Turn::Whole(k), regs, &pins[k as usize]);
        }
        self.asm.op(Code::Add_rm64_imm8, [Register::RAX.into(), Operand::I(8 * turns)]);
        self.asm.op(Code::Cmp_r64_rm64, [Register::RAX.into(), Register::RCX.into()]);
        self.asm.jump(Code::Jle_rel32_64, again);
        self.asm.place(rest);
        for (&r, parts) in pass.reduces.iter().zip(&parts) {
            for (k, &y) in parts.iter().enumerate() {
                let to = self.part(r, k as u8);
                self.asm.op(Code::VEX_Vmovups_ymmm256_ymm, [to.into(), ymm(y).into()]);
            }
        }
        self.tail(&tail);
    }

    /// The last turns, of eight elements or fewer.
    fn tail(&mut self, acts: &[Act]) {
        let (again, done): (Label, Label) = (self.asm.label(), self.asm.label());
        let r11 = Register::R11;
        self.asm.op(Code::Xor_r32_rm32, [Register::ECX.into(), Register::ECX.into()]);
        self.asm.place(again);
        self.asm.op(Code::Mov_r64_rm64, [r11.into(), at(Register::RDI, 0).into()]);
        self.asm.op(Code::Sub_r64_rm64, [r11.into(), Register::RAX.into()]);
        self.asm.jump(Code::Jle_rel32_64, done);
        self.asm.op(Code::Neg_rm64, [r11.into()]);
        let mask = indexed(Register::RDX, r11, 4, 4 * ONES);
        self.asm.op(Code::VEX_Vmovups_ymm_ymmm256, [ymm(15).into(), mask.into()]);
        let tail = self.nest.tape.ops.iter().position(|&op| op == Op::Tail);
        let pins = tail.map(|v| (V(v as u32), 15)).into_iter().collect();
        self.block(acts, Turn::Rest, 0x7fff, &pins);
        self.asm.op(Code::Add_rm64_imm8, [Register::RAX.into(), Operand::I(8)]);
        self.asm.op(Code::Add_rm64_imm8, [Register::RCX.into(), Operand::I(32)]);
        self.asm.jump(Code::Jmp_rel32_64, again);
        self.asm.place(done);
    }

    /// What a turn of a pass does.
    fn acts(&self, pass: &Pass, tail: bool) -> Vec<Act> {
        let roots = self.nest.roots(pass, tail);
        let mut acts: Vec<Act> = self.nest.needed(&roots, &pass.reads).into_iter().map(Act::Compute).collect();
        // Ahead of all else, so that these values are read and not computed.
        acts.splice(0..0, pass.reads.iter().map(|&(port, v)| Act::Kept(port, v)));
        for &r in &pass.reduces {
            if let Some(reduce) = self.nest.reduces.get(r as usize) {
                acts.push(Act::Partial(r, reduce.next[usize::from(tail)]));
            }
        }
        // Writes come last: a result may lie where an operand lies.
        acts.extend(pass.writes.iter().map(|&(port, v)| Act::Write(port, v)));
        acts
    }

    /// Gives the pass's ports registers and loads them.
    fn take_bases(&mut self, pass: &Pass, acts: &[Act]) {
        self.bases = vec![None; self.nest.ports.len()];
        let mut ports: Vec<u16> = pass.reads.iter().chain(&pass.writes).map(|w| w.0).collect();
        for v in acts.iter().flat_map(|a| a.reads(&self.nest.tape)) {
            if let Op::Stream(p) | Op::Mask(p) | Op::Small(p, _) = self.nest.tape.op(v) {
                ports.push(p);
            }
        }
        ports.sort_unstable();
        ports.dedup();
        for (&port, base) in ports.iter().zip(BASES) {
            self.asm.op(Code::Mov_r64_rm64, [base.into(), argument(port).into()]);
            self.bases[port as usize] = Some(base);
        }
    }

    /// Constants and uniform values that a block reads, those read most first.
    fn shared(&self, acts: &[Act]) -> Vec<V> {
        let mut counts: HashMap<V, u32> = HashMap::new();
        for v in acts.iter().flat_map(|a| a.reads(&self.nest.tape)) {
            if matches!(self.nest.tape.op(v), Op::Const(_)) || self.home(v).is_some() {
                *counts.entry(v).or_default() += 1;
            }
        }
        let mut list: Vec<(V, u32)> = counts.into_iter().collect();
        list.sort_by_key(|&(v, n)| (std::cmp::Reverse(n), v));
        list.into_iter().map(|(v, _)| v).collect()
    }
}

/// A port's address in the argument block.
fn argument(port: u16) -> MemoryOperand {
    at(Register::RDI, HEAD + PORT * i32::from(port))
}

/// Writes the code of a nest; with `past_caches` results have to be aligned to 32 bytes. `None` where it would be too large.
pub fn emit(nest: &Nest, past_caches: bool) -> Option<Emitted> {
    let count = nest.tape.ops.len();
    let mut pool = vec![u32::MAX; ONES as usize];
    pool.resize(MASKS as usize, 0);
    let mut e = Emit {
        nest,
        asm: Asm::default(),
        consts: HashMap::new(),
        pool,
        homes: vec![None; count],
        parts: Vec::new(),
        spills: 0,
        frame: 0,
        bases: Vec::new(),
        past_caches,
    };
    let stages = uniform_stages(nest, &mut e.homes);
    let homes = e.homes.iter_mut().flatten();
    e.spills = homes.fold(0, |next, home| {
        *home = next;
        next + 32
    });
    for _ in &nest.reduces {
        e.parts.push(e.spills);
        e.spills += 32 * i32::from(PARTS);
    }
    e.frame = e.spills;
    for r in SAVED {
        e.asm.op(Code::Push_r64, [r.into()]);
    }
    e.asm.op(Code::Mov_r64_rm64, [Register::RBP.into(), Register::RSP.into()]);
    let room = e.asm.reserve();
    e.asm.op(Code::And_rm64_imm8, [Register::RSP.into(), Operand::I(-32)]);
    e.asm.op(Code::Mov_r64_rm64, [Register::RDX.into(), at(Register::RDI, 16).into()]);
    let row = e.asm.label();
    e.asm.place(row);
    for (list, pass) in stages.iter().zip(&nest.passes) {
        e.uniforms(list);
        e.pass(pass);
    }
    let acts: Vec<Act> = nest.row_results.iter().map(|&(port, v)| Act::Row(port, v)).collect();
    e.block(&acts, Turn::Once, 0xffff, &HashMap::new());
    for (i, _) in nest.ports.iter().enumerate().filter(|(_, p)| **p != Port::Kept) {
        let (address, step) = (HEAD + PORT * i as i32, HEAD + PORT * i as i32 + 8);
        e.asm.op(Code::Mov_r64_rm64, [Register::RAX.into(), at(Register::RDI, step).into()]);
        e.asm.op(Code::Add_rm64_r64, [at(Register::RDI, address).into(), Register::RAX.into()]);
    }
    e.asm.op(Code::Dec_rm64, [at(Register::RDI, 8).into()]);
    e.asm.jump(Code::Jne_rel32_64, row);
    if past_caches {
        // Other threads may read the results next.
        e.asm.op(Code::Sfence, []);
    }
    e.asm.op(Code::VEX_Vzeroupper, []);
    e.asm.op(Code::Mov_r64_rm64, [Register::RSP.into(), Register::RBP.into()]);
    for r in SAVED.into_iter().rev() {
        e.asm.op(Code::Pop_r64, [r.into()]);
    }
    e.asm.op(Code::Retnq, []);
    if e.frame > FRAME {
        return None;
    }
    e.asm.put(room, Code::Sub_rm64_imm32, [Register::RSP.into(), Operand::I(e.frame)]);
    Some(Emitted { code: e.asm.encode()?, pool: e.pool })
}

/// Uniform values of each stage, and which of them are needed outside of their stage's own straight code.
fn uniform_stages(nest: &Nest, homes: &mut [Option<i32>]) -> Vec<Vec<V>> {
    let n = nest.tape.ops.len();
    let mut need = vec![false; n];
    // What loops and row results take directly.
    for pass in &nest.passes {
        for tail in [false, true] {
            let roots = nest.roots(pass, tail);
            let inner = nest.needed(&roots, &pass.reads);
            let taken = inner.iter().flat_map(|&v| nest.tape.op(v).args()).chain(roots);
            taken.for_each(|v| need[v.0 as usize] |= nest.uniform[v.0 as usize]);
        }
    }
    nest.row_results.iter().for_each(|r| need[r.1.0 as usize] = true);
    let made = |i: usize| !matches!(nest.tape.ops[i], Op::Const(_) | Op::Part(..));
    let set = |homes: &mut [Option<i32>], i: usize| {
        if made(i) {
            homes[i] = Some(0);
        }
    };
    (0..n).filter(|&i| need[i] && nest.uniform[i]).for_each(|i| set(homes, i));
    for i in (0..n).rev() {
        if need[i] && nest.uniform[i] {
            for a in nest.tape.ops[i].args() {
                let a = a.0 as usize;
                need[a] = true;
                if nest.stage[a] != nest.stage[i] {
                    set(homes, a);
                }
            }
        }
    }
    (0..nest.passes.len())
        .map(|s| {
            let of = |i: &usize| need[*i] && nest.uniform[*i] && made(*i) && nest.stage[*i] as usize == s;
            (0..n).filter(of).map(|i| V(i as u32)).collect()
        })
        .collect()
}
