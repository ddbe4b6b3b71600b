//! Which kernels are alike: the same but for the buffers that they work on. Those of one class share a plan, so that
//! binding a model of equal layers takes no longer than binding one layer.

use rlx_compile::lir::{BufId, DimId, Kernel, Lir, Storage};
use rlx_ir::DType;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The buffers that a kernel works on, each once. A plan names them by position: its *slots*.
pub type Slots = SmallVec<[u32; 6]>;

/// Slots and class of each kernel.
pub struct Classes {
    /// Buffers by slot, for each kernel.
    pub slots: Vec<Slots>,
    /// The class of each kernel: the first kernel that is like it.
    pub first: Vec<u32>,
}

/// What a plan may depend on of a buffer.
#[derive(PartialEq, Hash)]
struct Like {
    dtype: DType,
    numel: DimId,
    weight: bool,
}

impl Classes {
    /// Sorts a program's kernels.
    pub fn of(lir: &Lir) -> Classes {
        let mut classes = Classes { slots: Vec::new(), first: Vec::new() };
        let mut seen: HashMap<u64, Vec<(u32, Kernel, Vec<Like>)>> = HashMap::new();
        for (k, node) in lir.kernels.iter().enumerate() {
            let mut kernel = node.kernel.clone();
            let mut slots = Slots::new();
            for access in kernel.accesses_mut() {
                let b = access.buffer.0;
                let slot = slots.iter().position(|&s| s == b).unwrap_or_else(|| {
                    slots.push(b);
                    slots.len() - 1
                });
                access.buffer = BufId(slot as u32);
            }
            let like = |&b: &u32| {
                let b = &lir.buffers[b as usize];
                let weight = matches!(b.storage, Storage::Param(_) | Storage::Const(_));
                Like { dtype: b.dtype, numel: b.numel, weight }
            };
            let likes: Vec<Like> = slots.iter().map(like).collect();
            let mut hasher = DefaultHasher::new();
            (kernel.kind(), &likes).hash(&mut hasher);
            kernel.accesses_mut().iter().for_each(|a| a.hash(&mut hasher));
            classes.slots.push(slots);
            // Programs inside kernels have plans of their own.
            let shares = node.kernel.nested().is_empty();
            let bucket = seen.entry(hasher.finish()).or_default();
            let same = bucket.iter().find(|(_, other, l)| shares && *other == kernel && *l == likes);
            let first = same.map_or(k as u32, |(first, ..)| *first);
            classes.first.push(first);
            if shares && first == k as u32 {
                bucket.push((first, kernel, likes));
            }
        }
        classes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Maker, apply};
    use rlx_compile::lir::MapKernel;
    use rlx_ir::Dim;
    use rlx_ir::ops::Elementwise;
    use rlx_ir::ops::elementwise::Unary;

    #[test]
    fn kernels_that_differ_in_buffers_only_are_alike() {
        let mut m = Maker::new();
        let exp = |m: &mut Maker, width: i64| {
            let shape = [Dim::symbol("n"), Dim::from(width)];
            let (x, y) = (m.input(DType::F32, &shape), m.arena(DType::F32, &shape));
            let kernel = MapKernel {
                space: m.dims(&shape),
                reads: vec![m.dense(x)],
                program: apply(Elementwise::Unary(Unary::Exp), &[DType::F32], DType::F32),
                writes: vec![m.dense(y)],
            };
            m.kernel(Kernel::Map(kernel));
            [x.0, y.0]
        };
        exp(&mut m, 4);
        let second = exp(&mut m, 4);
        exp(&mut m, 8);
        let classes = Classes::of(&m.lir);
        assert_eq!(classes.first, [0, 0, 2]);
        assert_eq!(classes.slots[1].as_slice(), second);
    }
}
