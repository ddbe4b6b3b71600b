//! Straight code: registers are given out as it is written. Where none is free, the value whose next use is farthest off
//! leaves its register, to the frame if it lies nowhere else.

use super::asm::{Operand, ymm};
use super::emit::Emit;
use super::nest::Width;
use super::tape::{One, Op, Small, Tape, Two, V};
use iced_x86::{Code, MemoryOperand, Register};
use smallvec::SmallVec;
use std::collections::HashMap;

/// One thing to do.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// Compute a value.
    Compute(V),
    /// The value lies in a port's memory.
    Kept(u16, V),
    /// Put a uniform value to its place in the frame.
    Home(V),
    /// Make a value the partial result of a reduction.
    Partial(u16, V),
    /// Write a value to a port at the index.
    Write(u16, V),
    /// Write a value's first lane to a port.
    Row(u16, V),
}

impl Act {
    /// Values that it reads.
    pub fn reads(&self, tape: &Tape) -> impl Iterator<Item = V> + use<> {
        let list: SmallVec<[V; 3]> = match *self {
            Act::Compute(v) => tape.op(v).args().collect(),
            Act::Kept(..) => SmallVec::new(),
            Act::Home(v) | Act::Partial(_, v) | Act::Write(_, v) | Act::Row(_, v) => SmallVec::from_slice(&[v]),
        };
        list.into_iter()
    }
}

/// Where a block stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Outside of loops.
    Once,
    /// Turn of this number in a loop over whole vectors.
    Whole(i32),
    /// In the loop over what is left, under a mask.
    Rest,
}

const NONE: u8 = u8::MAX;

/// A block of straight code.
pub struct Block<'e, 'a, 'n> {
    e: &'e mut Emit<'n>,
    acts: &'a [Act],
    turn: Turn,
    /// Registers that may be used.
    regs: u16,
    pins: &'a HashMap<V, u8>,
    /// The register of each value.
    place: Vec<u8>,
    /// The value in each register.
    holds: [Option<V>; 16],
    /// Uses still to come, the next last.
    uses: Vec<SmallVec<[u32; 4]>>,
    spilled: Vec<(V, i32)>,
    kept: Vec<(u16, V)>,
    /// The most registers in use.
    pub most: u32,
}

impl<'e, 'a, 'n> Block<'e, 'a, 'n> {
    pub fn new(e: &'e mut Emit<'n>, acts: &'a [Act], turn: Turn, regs: u16, pins: &'a HashMap<V, u8>) -> Self {
        let count = e.nest.tape.ops.len();
        let mut uses = vec![SmallVec::new(); count];
        for (i, act) in acts.iter().enumerate().rev() {
            for v in act.reads(&e.nest.tape) {
                let list: &mut SmallVec<[u32; 4]> = &mut uses[v.0 as usize];
                if list.last() != Some(&(i as u32)) {
                    list.push(i as u32);
                }
            }
        }
        let (place, holds) = (vec![NONE; count], [None; 16]);
        Block { e, acts, turn, regs, pins, place, holds, uses, spilled: Vec::new(), kept: Vec::new(), most: 0 }
    }

    pub fn run(&mut self) {
        for i in 0..self.acts.len() {
            match self.acts[i] {
                Act::Compute(v) => self.compute(v),
                Act::Kept(port, v) => self.kept.push((port, v)),
                Act::Home(v) => {
                    let r = self.register(v, 0);
                    if let Some(home) = self.e.home(v) {
                        let to = self.e.frame(home);
                        self.op(Code::VEX_Vmovups_ymmm256_ymm, [to.into(), ymm(r).into()]);
                    }
                    self.used([v]);
                }
                Act::Partial(reduce, v) => self.partial(reduce, v),
                Act::Write(port, v) if self.e.nest.width(port) != Width::Word => {
                    let r = self.register(v, 0);
                    self.narrow(port, r);
                    self.used([v]);
                }
                Act::Write(port, v) => {
                    let r = self.register(v, 0);
                    let turn = if let Turn::Whole(k) = self.turn { 8 * k } else { 0 };
                    let to = self.e.stream(port, 4, turn);
                    if self.turn == Turn::Rest {
                        self.op(Code::VEX_Vmaskmovps_m256_ymm_ymm, [to.into(), ymm(15).into(), ymm(r).into()]);
                    } else if self.e.past_caches {
                        self.op(Code::VEX_Vmovntps_m256_ymm, [to.into(), ymm(r).into()]);
                    } else {
                        self.op(Code::VEX_Vmovups_ymmm256_ymm, [to.into(), ymm(r).into()]);
                    }
                    self.used([v]);
                }
                Act::Row(port, v) => {
                    let r = self.register(v, 0);
                    let base = self.e.base(port);
                    let low = Register::XMM0 + u32::from(r & 15);
                    self.op(Code::VEX_Vmovss_m32_xmm, [super::asm::at(base, 0).into(), low.into()]);
                    self.used([v]);
                }
            }
        }
    }

    /// Writes lanes as what is narrower in memory. In the last turns that may be more than there are elements: there is room.
    fn narrow(&mut self, port: u16, r: u8) {
        let low = |n: u8| Register::XMM0 + u32::from(n & 15);
        let t = self.allocate(1 << r);
        let (from, t) = (low(r), low(t));
        let turn = if let Turn::Whole(k) = self.turn { 8 * k } else { 0 };
        let (width, words, bytes) = match self.e.nest.width(port) {
            Width::Small(Small::U16) => (2, Code::VEX_Vpackusdw_xmm_xmm_xmmm128, None),
            Width::Small(Small::I16) => (2, Code::VEX_Vpackssdw_xmm_xmm_xmmm128, None),
            Width::Small(Small::U8) => {
                (1, Code::VEX_Vpackssdw_xmm_xmm_xmmm128, Some(Code::VEX_Vpackuswb_xmm_xmm_xmmm128))
            }
            Width::Small(Small::I8) | Width::Mask | Width::Word => {
                (1, Code::VEX_Vpackssdw_xmm_xmm_xmmm128, Some(Code::VEX_Vpacksswb_xmm_xmm_xmmm128))
            }
        };
        self.op(Code::VEX_Vextracti128_xmmm128_ymm_imm8, [t.into(), ymm(r).into(), Operand::I(1)]);
        self.op(words, [t.into(), from.into(), t.into()]);
        if let Some(bytes) = bytes {
            self.op(bytes, [t.into(), t.into(), t.into()]);
        }
        if self.e.nest.width(port) == Width::Mask {
            let ones = self.e.constant(0x0101_0101);
            self.op(Code::VEX_Vandps_xmm_xmm_xmmm128, [t.into(), t.into(), ones.into()]);
        }
        let to = self.e.stream(port, width, turn);
        let store = if width == 1 { Code::VEX_Vmovq_xmmm64_xmm } else { Code::VEX_Vmovups_xmmm128_xmm };
        self.op(store, [to.into(), t.into()]);
    }

    fn op<const N: usize>(&mut self, code: Code, operands: [Operand; N]) {
        self.e.asm.op(code, operands);
    }

    fn partial(&mut self, reduce: u16, v: V) {
        let r = self.register(v, 0);
        let tape = &self.e.nest.tape;
        let before = tape.ops.iter().position(|&op| op == Op::Partial(reduce)).map(|i| V(i as u32));
        match before.and_then(|b| self.pins.get(&b)).copied() {
            Some(held) => {
                if held != r {
                    self.op(Code::VEX_Vmovaps_ymm_ymmm256, [ymm(held).into(), ymm(r).into()]);
                }
            }
            None => {
                let to = self.partial_memory(reduce);
                self.op(Code::VEX_Vmovups_ymmm256_ymm, [to.into(), ymm(r).into()]);
            }
        }
        self.used([v]);
    }

    fn partial_memory(&self, reduce: u16) -> MemoryOperand {
        match self.turn {
            Turn::Whole(k) => self.e.part(reduce, k as u8),
            _ => self.e.part_in_turn(reduce),
        }
    }

    /// The register that holds a value now.
    fn held(&self, v: V) -> Option<u8> {
        let place = self.place[v.0 as usize];
        if place != NONE { Some(place) } else { self.pins.get(&v).copied() }
    }

    /// Where a value lies in memory that any instruction may read whole.
    fn memory(&mut self, v: V) -> Option<MemoryOperand> {
        if let Some(&(_, at)) = self.spilled.iter().find(|s| s.0 == v) {
            return Some(self.e.frame(at));
        }
        if let Some(port) = self.kept.iter().find(|k| k.1 == v).map(|k| k.0) {
            return self.stream(port);
        }
        if let Some(home) = self.e.home(v) {
            return Some(self.e.frame(home));
        }
        match self.e.nest.tape.op(v) {
            Op::Const(bits) => Some(self.e.constant(bits)),
            Op::Part(r, k) => Some(self.e.part(r, k)),
            Op::Partial(r) => Some(self.partial_memory(r)),
            Op::Stream(port) => self.stream(port),
            _ => None,
        }
    }

    fn stream(&mut self, port: u16) -> Option<MemoryOperand> {
        match self.turn {
            Turn::Whole(k) => Some(self.e.stream(port, 4, 8 * k)),
            _ => None,
        }
    }

    /// True if a value that leaves its register can be found again.
    fn lies_in_memory(&self, v: V) -> bool {
        let source = matches!(
            self.e.nest.tape.op(v),
            Op::Const(_) | Op::Part(..) | Op::Partial(_) | Op::Stream(_) | Op::Mask(_) | Op::Small(..)
        );
        source
            || self.e.home(v).is_some()
            || self.spilled.iter().any(|s| s.0 == v)
            || self.kept.iter().any(|k| k.1 == v)
    }

    /// A free register other than those in `locked`.
    fn allocate(&mut self, locked: u16) -> u8 {
        let in_use = self.holds.iter().filter(|h| h.is_some()).count() as u32;
        self.most = self.most.max(in_use + 1);
        if let Some(r) = (0..16u8).find(|&r| self.regs >> r & 1 == 1 && self.holds[usize::from(r)].is_none()) {
            return r;
        }
        let next = |r: &u8| {
            let v = self.holds[usize::from(*r)].unwrap_or(V(0));
            (self.uses[v.0 as usize].last().copied().unwrap_or(u32::MAX), *r)
        };
        let open = (0..16u8).filter(|&r| self.regs >> r & 1 == 1 && locked >> r & 1 == 0);
        let Some(r) = open.max_by_key(next) else {
            self.e.asm.fail();
            return 0;
        };
        if let Some(v) = self.holds[usize::from(r)].take() {
            if !self.lies_in_memory(v) {
                let at = self.e.spill(self.spilled.len() as i32);
                self.spilled.push((v, at));
                let to = self.e.frame(at);
                self.op(Code::VEX_Vmovups_ymmm256_ymm, [to.into(), ymm(r).into()]);
            }
            self.place[v.0 as usize] = NONE;
        }
        r
    }

    fn hold(&mut self, v: V, r: u8) {
        self.holds[usize::from(r)] = Some(v);
        self.place[v.0 as usize] = r;
    }

    /// A value's register; it is loaded unless it is in one.
    fn register(&mut self, v: V, locked: u16) -> u8 {
        if let Some(r) = self.held(v) {
            return r;
        }
        let r = self.allocate(locked);
        self.hold(v, r);
        self.load(v, r);
        r
    }

    fn load(&mut self, v: V, r: u8) {
        let y = ymm(r);
        let op = self.e.nest.tape.op(v);
        if op == Op::Const(0) {
            self.op(Code::VEX_Vxorps_ymm_ymm_ymmm256, [y.into(), y.into(), y.into()]);
        } else if let Some(m) = self.memory(v) {
            self.op(Code::VEX_Vmovups_ymm_ymmm256, [y.into(), m.into()]);
        } else if let Op::Mask(port) = op {
            let turn = if let Turn::Whole(k) = self.turn { 8 * k } else { 0 };
            let m = self.e.stream(port, 1, turn);
            self.op(Code::VEX_Vpmovzxbd_ymm_xmmm64, [y.into(), m.into()]);
            self.op(Code::VEX_Vpslld_ymm_ymm_imm8, [y.into(), y.into(), Operand::I(31)]);
            self.op(Code::VEX_Vpsrad_ymm_ymm_imm8, [y.into(), y.into(), Operand::I(31)]);
        } else if let Op::Small(port, small) = op {
            let turn = if let Turn::Whole(k) = self.turn { 8 * k } else { 0 };
            let m = self.e.stream(port, small.bytes(), turn);
            let code = match small {
                Small::I8 => Code::VEX_Vpmovsxbd_ymm_xmmm64,
                Small::U8 => Code::VEX_Vpmovzxbd_ymm_xmmm64,
                Small::I16 => Code::VEX_Vpmovsxwd_ymm_xmmm128,
                Small::U16 => Code::VEX_Vpmovzxwd_ymm_xmmm128,
            };
            self.op(code, [y.into(), m.into()]);
        } else {
            let kept = self.kept.iter().find(|k| k.1 == v).map(|k| k.0);
            let port = if let Op::Stream(p) = op { Some(p) } else { None };
            if let Some(port) = kept.or(port) {
                let m = self.e.stream(port, 4, 0);
                self.op(Code::VEX_Vmaskmovps_ymm_ymm_m256, [y.into(), ymm(15).into(), m.into()]);
            }
        }
    }

    /// True if [`Block::as_memory`] would find a memory operand.
    fn may_be_memory(&self, v: V) -> bool {
        let whole = matches!(self.turn, Turn::Whole(_));
        let op = self.e.nest.tape.op(v);
        let streamed = matches!(op, Op::Stream(_)) || self.kept.iter().any(|k| k.1 == v);
        let lies = self.spilled.iter().any(|s| s.0 == v)
            || self.e.home(v).is_some()
            || matches!(op, Op::Const(_) | Op::Part(..) | Op::Partial(_));
        self.held(v).is_none() && if streamed { whole && self.uses[v.0 as usize].len() <= 1 } else { lies }
    }

    /// A memory operand for a value that no register holds, where loading it would gain nothing.
    fn as_memory(&mut self, v: V) -> Option<MemoryOperand> {
        if self.held(v).is_some() {
            return None;
        }
        let streamed = matches!(self.e.nest.tape.op(v), Op::Stream(_)) || self.kept.iter().any(|k| k.1 == v);
        if streamed && self.uses[v.0 as usize].len() > 1 {
            return None;
        }
        self.memory(v)
    }

    /// An operand that may be in memory.
    fn operand(&mut self, v: V, locked: u16) -> Operand {
        match self.as_memory(v) {
            Some(m) => m.into(),
            None => ymm(self.register(v, locked)).into(),
        }
    }

    /// Counts uses at this act; registers of values without another one become free.
    fn used<const N: usize>(&mut self, values: [V; N]) {
        for (i, v) in values.into_iter().enumerate() {
            if values[..i].contains(&v) {
                continue;
            }
            self.uses[v.0 as usize].pop();
            let place = self.place[v.0 as usize];
            if self.uses[v.0 as usize].is_empty() && place != NONE {
                self.holds[usize::from(place)] = None;
                self.place[v.0 as usize] = NONE;
            }
        }
    }

    /// True if a value is in a register that is its own and has no use after this one.
    fn dies(&self, v: V) -> bool {
        self.place[v.0 as usize] != NONE && self.uses[v.0 as usize].len() <= 1
    }

    /// A register for a result.
    fn result(&mut self, v: V) -> Operand {
        let r = self.allocate(0);
        self.hold(v, r);
        ymm(r).into()
    }

    fn compute(&mut self, v: V) {
        let op = self.e.nest.tape.op(v);
        match op {
            Op::Uniform(port) => {
                let d = self.result(v);
                let base = self.e.base(port);
                self.op(Code::VEX_Vbroadcastss_ymm_m32, [d, super::asm::at(base, 0).into()]);
            }
            Op::One(f, a) => self.one(v, f, a),
            Op::Two(f, a, b) => self.two(v, f, a, b),
            Op::Fma(negative, a, b, c) => self.fma(v, negative, a, b, c),
            Op::Select(m, a, b) => {
                let rm = self.register(m, 0);
                let rb = self.register(b, 1 << rm);
                let from = self.operand(a, 1 << rm | 1 << rb);
                self.used([m, a, b]);
                let d = self.result(v);
                let code = Code::VEX_Vblendvps_ymm_ymm_ymmm256_ymm;
                self.op(code, [d, ymm(rb).into(), from, ymm(rm).into()]);
            }
            _ => {}
        }
    }

    fn one(&mut self, v: V, f: One, a: V) {
        let in_register = matches!(f, One::ShiftLeft(_) | One::ShiftRight(_) | One::SwapHalves);
        let from = if in_register { ymm(self.register(a, 0)).into() } else { self.operand(a, 0) };
        self.used([a]);
        let d = self.result(v);
        let number = |n: u8| Operand::I(i32::from(n));
        match f {
            One::Sqrt => self.op(Code::VEX_Vsqrtps_ymm_ymmm256, [d, from]),
            One::Round(mode) => self.op(Code::VEX_Vroundps_ymm_ymmm256_imm8, [d, from, number(mode)]),
            One::ShiftLeft(n) => self.op(Code::VEX_Vpslld_ymm_ymm_imm8, [d, from, number(n)]),
            One::ShiftRight(n) => self.op(Code::VEX_Vpsrad_ymm_ymm_imm8, [d, from, number(n)]),
            One::ToFloat => self.op(Code::VEX_Vcvtdq2ps_ymm_ymmm256, [d, from]),
            One::ToInt => self.op(Code::VEX_Vcvttps2dq_ymm_ymmm256, [d, from]),
            One::SwapHalves => self.op(Code::VEX_Vperm2f128_ymm_ymm_ymmm256_imm8, [d, from, from, number(1)]),
            One::Shuffle(n) => {
                // The number's sign would be lost on the way to a byte.
                let n = Operand::I(i32::from(n as i8));
                self.op(Code::VEX_Vpermilps_ymm_ymmm256_imm8, [d, from, n]);
            }
        }
    }

    fn two(&mut self, v: V, f: Two, a: V, b: V) {
        let (code, swaps) = match f {
            Two::Add => (Code::VEX_Vaddps_ymm_ymm_ymmm256, true),
            Two::Sub => (Code::VEX_Vsubps_ymm_ymm_ymmm256, false),
            Two::Mul => (Code::VEX_Vmulps_ymm_ymm_ymmm256, true),
            Two::Div => (Code::VEX_Vdivps_ymm_ymm_ymmm256, false),
            Two::Min => (Code::VEX_Vminps_ymm_ymm_ymmm256, false),
            Two::Max => (Code::VEX_Vmaxps_ymm_ymm_ymmm256, false),
            Two::And => (Code::VEX_Vandps_ymm_ymm_ymmm256, true),
            Two::Or => (Code::VEX_Vorps_ymm_ymm_ymmm256, true),
            Two::Xor => (Code::VEX_Vxorps_ymm_ymm_ymmm256, true),
            Two::AddI => (Code::VEX_Vpaddd_ymm_ymm_ymmm256, true),
            Two::SubI => (Code::VEX_Vpsubd_ymm_ymm_ymmm256, false),
            Two::MulI => (Code::VEX_Vpmulld_ymm_ymm_ymmm256, true),
            Two::MinI => (Code::VEX_Vpminsd_ymm_ymm_ymmm256, true),
            Two::MaxI => (Code::VEX_Vpmaxsd_ymm_ymm_ymmm256, true),
            Two::GtI => (Code::VEX_Vpcmpgtd_ymm_ymm_ymmm256, false),
            Two::EqI => (Code::VEX_Vpcmpeqd_ymm_ymm_ymmm256, true),
            Two::Compare(_) => (Code::VEX_Vcmpps_ymm_ymm_ymmm256_imm8, false),
        };
        let (a, b) = if swaps && self.held(a).is_none() && self.held(b).is_some() { (b, a) } else { (a, b) };
        let ra = self.register(a, 0);
        let from = self.operand(b, 1 << ra);
        self.used([a, b]);
        let d = self.result(v);
        match f {
            Two::Compare(p) => self.op(code, [d, ymm(ra).into(), from, Operand::I(i32::from(p))]),
            _ => self.op(code, [d, ymm(ra).into(), from]),
        }
    }

    fn fma(&mut self, v: V, negative: bool, a: V, b: V, c: V) {
        let codes = if negative {
            [
                Code::VEX_Vfnmadd132ps_ymm_ymm_ymmm256,
                Code::VEX_Vfnmadd213ps_ymm_ymm_ymmm256,
                Code::VEX_Vfnmadd231ps_ymm_ymm_ymmm256,
            ]
        } else {
            [
                Code::VEX_Vfmadd132ps_ymm_ymm_ymmm256,
                Code::VEX_Vfmadd213ps_ymm_ymm_ymmm256,
                Code::VEX_Vfmadd231ps_ymm_ymm_ymmm256,
            ]
        };
        // At most one operand is in memory; the factors may change places.
        let mut locked = 0u16;
        let lock = |o: Operand| match o {
            Operand::R(r) => 1u16 << (r as u32 - Register::YMM0 as u32),
            _ => 0,
        };
        // What registers hold already must not leave them.
        for x in [a, b, c] {
            if let Some(r) = self.held(x) {
                locked |= 1 << r;
            }
        }
        let (a, b) = if self.held(a).is_none() { (b, a) } else { (a, b) };
        // Now `a` is in a register if either factor is.
        let oa: Operand = ymm(self.register(a, locked)).into();
        locked |= lock(oa);
        let summand = self.may_be_memory(c);
        let ob = if summand || b == a { ymm(self.register(b, locked)).into() } else { self.operand(b, locked) };
        locked |= lock(ob);
        // A factor in memory may stand on the free address register: the summand then is in a register.
        let oc = if summand {
            self.operand(c, locked)
        } else if let (Operand::M(_), None) = (ob, self.held(c)) {
            let rc = ymm(self.register(c, locked));
            // Loading may have used that register.
            return self.fma_of(v, codes, [a, b, c], oa, None, rc.into());
        } else {
            ymm(self.register(c, locked)).into()
        };
        self.fma_of(v, codes, [a, b, c], oa, Some(ob), oc);
    }

    /// Writes `oa · ob + oc`; a factor that is in memory is found again if `ob` is not given.
    fn fma_of(&mut self, v: V, codes: [Code; 3], [a, b, c]: [V; 3], oa: Operand, ob: Option<Operand>, oc: Operand) {
        let lock = |o: Operand| match o {
            Operand::R(r) => 1u16 << (r as u32 - Register::YMM0 as u32),
            _ => 0,
        };
        let ob = match ob {
            Some(o) => o,
            None => self.operand(b, lock(oa) | lock(oc)),
        };
        let (dies_a, dies_b, dies_c) = (self.dies(a), self.dies(b), self.dies(c));
        let own = |o: Operand| if let Operand::R(r) = o { (r as u32 - Register::YMM0 as u32) as u8 } else { 0 };
        self.used([a, b, c]);
        let (register, [code, first, second, third]) = match (oc, ob) {
            (Operand::R(_), _) if dies_c => (own(oc), [2, 2, 0, 1].map(|i: usize| i)),
            (_, Operand::R(_)) if dies_a => (own(oa), [1, 0, 1, 2]),
            (_, Operand::R(_)) if dies_b => (own(ob), [1, 1, 0, 2]),
            (_, Operand::M(_)) if dies_a => (own(oa), [0, 0, 2, 1]),
            _ => {
                // None may be overwritten: the summand is copied.
                let d = self.allocate(lock(oa) | lock(ob) | lock(oc));
                let copy = if matches!(oc, Operand::M(_)) {
                    Code::VEX_Vmovups_ymm_ymmm256
                } else {
                    Code::VEX_Vmovaps_ymm_ymmm256
                };
                self.op(copy, [ymm(d).into(), oc]);
                self.hold(v, d);
                self.op(codes[2], [ymm(d).into(), oa, ob]);
                return;
            }
        };
        let all = [oa, ob, oc];
        self.hold(v, register);
        self.op(codes[code], [all[first], all[second], all[third]]);
    }
}
