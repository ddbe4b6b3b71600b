//! BERT written with blocks and as a traced closure, with weights named as PyTorch names them and stored as `[from, to]`.

use rlx::ir::graph::Def;
use rlx::ir::ops::elementwise::Binary;
use rlx::ir::ops::{Contraction, Elementwise};
use rlx::ir::{Op, ValueId};
use rlx::nn::{
    Activation, Attention, AttentionInputs, AttentionMask, Embedding, Layer, LayerNorm, Mlp, Net, NnError, Weights,
};
use rlx::trace::{Trace, TraceError, Traced, Tracer};
use rlx::{DType, Dim, Module};

/// Sizes of a model.
#[derive(Clone, Copy)]
pub struct Bert {
    pub words: usize,
    pub positions: usize,
    pub width: usize,
    pub heads: usize,
    pub hidden: usize,
    pub layers: usize,
    pub eps: f64,
}

/// Weights of an imported model. Its exporter leaves the weights of linear layers without names; the biases that are added to their
/// products have theirs.
pub fn weights_of(module: &Module) -> Weights {
    let g = &module.main;
    let param = |v: ValueId| match g.value(v).def {
        Def::Param(i) => g.params().get(i as usize).map(|p| p.name.to_string()),
        _ => None,
    };
    let mut names = std::collections::BTreeMap::new();
    for node in g.nodes().iter().filter(|n| n.op == Op::Elementwise(Elementwise::Binary(Binary::Add))) {
        let bias = node.operands.iter().filter_map(|&v| param(v)).find(|n| n.ends_with(".bias"));
        let weight = node.operands.iter().filter_map(|&v| g.def_node(v)).find_map(|(_, n)| match n.op {
            Op::Contraction(Contraction::DotGeneral(_)) => n.operands.iter().find_map(|&v| param(v)),
            _ => None,
        });
        if let (Some(bias), Some(weight)) = (bias, weight) {
            names.insert(weight, bias.replace(".bias", ".weight"));
        }
    }
    Weights::of_module(module).renamed(|n| Some(names.get(n).cloned().unwrap_or_else(|| n.to_string())))
}

impl Bert {
    /// With blocks.
    pub fn blocks(&self, weights: Weights) -> Result<Module, NnError> {
        let mut net = Net::new("bert").with_weights(weights);
        let shape = [Dim::symbol("batch"), Dim::symbol("seq")];
        let ids = net.input("input_ids", DType::I64, &shape)?;
        let mask = net.input("attention_mask", DType::I64, &shape)?;
        let types = net.input("token_type_ids", DType::I64, &shape)?;
        let table = |rows| Embedding::new(rows, self.width);
        let norm = LayerNorm::new(self.width).eps(self.eps);
        let words = table(self.words).apply(&mut net.at("embeddings.word_embeddings"), ids)?;
        let types = table(2).apply(&mut net.at("embeddings.token_type_embeddings"), types)?;
        let places = table(self.positions).first(&mut net.at("embeddings.position_embeddings"), &shape[1])?;
        let x = net.builder().add(words, types)?;
        let x = net.builder().add(x, places)?;
        let mut x = norm.apply(&mut net.at("embeddings.LayerNorm"), x)?;
        let seen = net.builder().convert(mask, DType::Bool)?;
        let attention = Attention::new(self.width, self.heads).transposed(true).names([
            "self.query",
            "self.key",
            "self.value",
            "output.dense",
        ]);
        let mlp = Mlp::new(self.width, self.hidden, Activation::Gelu)
            .transposed(true)
            .names(["intermediate.dense", "output.dense"]);
        for n in 0..self.layers {
            let at = format!("encoder.layer.{n}");
            let inputs = AttentionInputs::new(x).mask(AttentionMask::Padding(seen));
            let y = attention.attend(&mut net.at(format!("{at}.attention")), inputs)?;
            let y = net.builder().add(x, y)?;
            x = norm.apply(&mut net.at(format!("{at}.attention.output.LayerNorm")), y)?;
            let y = mlp.apply(&mut net.at(&at), x)?;
            let y = net.builder().add(x, y)?;
            x = norm.apply(&mut net.at(format!("{at}.output.LayerNorm")), y)?;
        }
        net.output("last_hidden_state", x)?;
        net.finish()
    }

    /// As a closure in plain formulas: what they amount to (attention) the compiler recognises.
    pub fn traced(&self, weights: Weights) -> Result<Module, TraceError> {
        let ty = "i64[batch, seq]";
        let inputs = [("input_ids", ty), ("attention_mask", ty), ("token_type_ids", ty)];
        Trace::new("bert").with_weights(weights).run_many(inputs, |t, [ids, mask, types]| {
            let w = self.width;
            let table = |name: &str, rows: usize| {
                t.param(&format!("embeddings.{name}_embeddings.weight"), format!("f32[{rows}, {w}]").as_str())
            };
            let words = table("word", self.words).take(ids, 0);
            let types = table("token_type", 2).take(types, 0);
            let places = table("position", self.positions).take(t.arange(ids.dim(1)), 0);
            let mut x = self.norm(t, words + types + places, "embeddings.LayerNorm");
            let seen = mask.ne(t.constant(rlx::Tensor::scalar(0i64))).expand_dims(&[1, 2]);
            for n in 0..self.layers {
                let at = format!("encoder.layer.{n}");
                let heads = |name: &str| {
                    let y = self.linear(t, x, &format!("{at}.attention.self.{name}"), w, w);
                    y.reshape([x.dim(0), x.dim(1), self.heads.into(), (w / self.heads).into()]).swap_axes(1, 2)
                };
                let (q, k, v) = (heads("query"), heads("key"), heads("value"));
                let scores = q.matmul(k.t()) / ((w / self.heads) as f64).sqrt();
                let hidden = t.constant(rlx::Tensor::scalar(f32::NEG_INFINITY));
                let y = seen.select(scores, hidden).softmax(-1).matmul(v);
                let y = y.swap_axes(1, 2).reshape([x.dim(0), x.dim(1), w.into()]);
                let y = self.linear(t, y, &format!("{at}.attention.output.dense"), w, w);
                x = self.norm(t, x + y, &format!("{at}.attention.output.LayerNorm"));
                let h = self.linear(t, x, &format!("{at}.intermediate.dense"), w, self.hidden).gelu();
                let y = self.linear(t, h, &format!("{at}.output.dense"), self.hidden, w);
                x = self.norm(t, x + y, &format!("{at}.output.LayerNorm"));
            }
            vec![("last_hidden_state", x)]
        })
    }

    fn linear<'t>(&self, t: &'t Tracer, x: Traced<'t>, name: &str, from: usize, to: usize) -> Traced<'t> {
        let w = t.param(&format!("{name}.weight"), format!("f32[{from}, {to}]").as_str());
        x.matmul(w) + t.param(&format!("{name}.bias"), format!("f32[{to}]").as_str())
    }

    fn norm<'t>(&self, t: &'t Tracer, x: Traced<'t>, name: &str) -> Traced<'t> {
        let of = |part: &str| t.param(&format!("{name}.{part}"), format!("f32[{}]", self.width).as_str());
        x.layer_norm(of("weight"), of("bias"), self.eps)
    }
}
