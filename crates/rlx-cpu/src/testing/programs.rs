//! Random scalar programs: fused into one kernel they give bit for bit what the tables give step by step.

use super::oracle::{apply, close, get, values};
use super::{Maker, Rng, executable, poisoned, run};
use rlx_compile::lir::{Inst, Kernel, MapKernel, ScalarOp, ScalarProgram};
use rlx_driver::Isa;
use rlx_ir::ops::Elementwise;
use rlx_ir::ops::elementwise::{Binary, Compare, Scalar, Unary};
use rlx_ir::{DType, Dim, Tensor};

const DTYPES: [DType; 12] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F64,
    DType::I8,
    DType::U8,
    DType::I32,
    DType::I64,
    DType::U64,
    DType::Bool,
    DType::I4,
    DType::F8E4M3FN,
];

/// Ops whose values are exact in every dtype.
fn ops() -> Vec<Elementwise> {
    let mut ops = vec![Elementwise::Select, Elementwise::Clamp];
    ops.extend([Unary::Neg, Unary::Abs, Unary::Relu, Unary::Sign, Unary::Not, Unary::Sqrt].map(Elementwise::Unary));
    ops.extend([Binary::Add, Binary::Sub, Binary::Mul, Binary::Min, Binary::Max, Binary::And].map(Elementwise::Binary));
    ops.extend(Compare::ALL.iter().map(|&c| Elementwise::Compare(c)));
    ops.extend(DTYPES.map(|to| Elementwise::Convert { to, saturate: true }));
    ops
}

fn random(rng: &mut Rng, reads: &[DType], length: usize) -> ScalarProgram {
    let mut p = ScalarProgram::default();
    for (i, &d) in reads.iter().enumerate() {
        p.push(ScalarOp::Read(i as u32), vec![], d);
    }
    let ops = ops();
    while p.insts.len() < length {
        let op = ops[rng.below(ops.len())];
        let args: Vec<u32> = (0..op.arity()).map(|_| rng.below(p.insts.len()) as u32).collect();
        let dtypes: Vec<DType> = args.iter().map(|&a| p.insts[a as usize].dtype).collect();
        if let Ok(dtype) = op.result_dtype(&dtypes) {
            p.insts.push(Inst { op: ScalarOp::Apply(op), args, dtype });
        }
    }
    p.results = (0..3).map(|_| (reads.len() + rng.below(length - reads.len())) as u32).collect();
    p
}

#[test]
fn fused_programs_equal_single_steps() {
    let mut rng = Rng(2024);
    for round in 0..60 {
        let reads: Vec<DType> = (0..4).map(|_| DTYPES[rng.below(DTYPES.len())]).collect();
        let program = random(&mut rng, &reads, 24);
        let mut m = Maker::new();
        let n = Dim::symbol("n");
        // The last read is one element for the whole space.
        let inputs: Vec<_> =
            reads.iter().enumerate().map(|(i, &d)| m.input(d, &[if i == 3 { Dim::ONE } else { n.clone() }])).collect();
        let walks = inputs
            .iter()
            .enumerate()
            .map(|(i, &b)| m.access(b, 0, &[if i == 3 { Dim::ZERO } else { Dim::ONE }]))
            .collect();
        let outs: Vec<DType> = program.results.iter().map(|&r| program.insts[r as usize].dtype).collect();
        let writes = outs.iter().enumerate().map(|(i, &d)| (i, d)).collect::<Vec<_>>();
        let writes = writes
            .into_iter()
            .map(|(i, d)| {
                let y = m.output(&format!("y{i}"), d, std::slice::from_ref(&n));
                m.dense(y)
            })
            .collect();
        let space = vec![m.dim(n)];
        m.kernel(Kernel::Map(MapKernel { space, reads: walks, program: program.clone(), writes }));
        let lir = m.finish();
        let size = [1, 7, 257, 513, 1030][round % 5];
        let tensors: Vec<Tensor> =
            reads.iter().enumerate().map(|(i, &d)| values(d, if i == 3 { 1 } else { size }, &mut rng)).collect();
        let elements: Vec<_> = tensors.iter().map(Tensor::elements).collect();
        for isa in Isa::available() {
            let e = executable(lir.clone(), &poisoned(isa, 2));
            let got: Vec<_> = run(&e, &tensors.iter().collect::<Vec<_>>()).iter().map(Tensor::elements).collect();
            for i in 0..size {
                let mut v: Vec<Scalar> = Vec::new();
                for inst in &program.insts {
                    v.push(match inst.op {
                        ScalarOp::Read(n) => get(&elements[n as usize], if n == 3 { 0 } else { i }),
                        ScalarOp::Apply(op) => {
                            let args: Vec<Scalar> = inst.args.iter().map(|&a| v[a as usize]).collect();
                            let dtypes: Vec<DType> =
                                inst.args.iter().map(|&a| program.insts[a as usize].dtype).collect();
                            apply(&op, &dtypes, inst.dtype, &args)
                        }
                        _ => unreachable!(),
                    });
                }
                for (k, &r) in program.results.iter().enumerate() {
                    let (have, want) = (get(&got[k], i), v[r as usize]);
                    assert!(
                        close(outs[k], have, want, 0.0),
                        "round {round} at {isa}, element {i}, result {k}: {have:?}, not {want:?} in {program:#?}"
                    );
                }
            }
        }
    }
}
