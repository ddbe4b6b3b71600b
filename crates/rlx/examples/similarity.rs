//! How alike two sentences are, by a sentence encoder such as MiniLM exported to ONNX:
//! `cargo run --release -p rlx --example similarity -- MODEL.onnx TOKENIZER.json "A first sentence." "A second one."`
//!
//! The tokenizer is BERT's WordPiece for text without accents; its vocabulary is read from the `tokenizer.json` beside the model.
#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::error::Error;

use rlx::prelude::*;

/// Words cut into the longest pieces that the vocabulary has.
struct WordPiece(HashMap<String, i64>);

impl WordPiece {
    fn load(path: &str) -> Result<WordPiece, Box<dyn Error>> {
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(path)?)?;
        let vocab = json["model"]["vocab"].as_object().ok_or("the tokenizer has no vocabulary")?;
        Ok(WordPiece(vocab.iter().filter_map(|(piece, id)| Some((piece.clone(), id.as_i64()?))).collect()))
    }

    fn id(&self, piece: &str) -> Result<i64, Box<dyn Error>> {
        self.0.get(piece).copied().ok_or_else(|| format!("the vocabulary has no {piece}").into())
    }

    fn encode(&self, text: &str) -> Result<Vec<i64>, Box<dyn Error>> {
        let mut ids = vec![self.id("[CLS]")?];
        let spaced: String = text
            .to_lowercase()
            .chars()
            .flat_map(|c| if c.is_ascii_punctuation() { [' ', c, ' '] } else { ['\0', c, '\0'] })
            .filter(|&c| c != '\0')
            .collect();
        for word in spaced.split_whitespace() {
            ids.extend(self.word(word)?);
        }
        ids.push(self.id("[SEP]")?);
        Ok(ids)
    }

    fn word(&self, word: &str) -> Result<Vec<i64>, Box<dyn Error>> {
        let (mut rest, mut ids) = (word, Vec::new());
        while !rest.is_empty() {
            let prefix = if ids.is_empty() { "" } else { "##" };
            let ends = rest.char_indices().map(|(i, c)| i + c.len_utf8()).rev();
            let found =
                ends.into_iter().find_map(|end| Some((end, *self.0.get(&format!("{prefix}{}", &rest[..end]))?)));
            let Some((end, id)) = found else { return Ok(vec![self.id("[UNK]")?]) };
            ids.push(id);
            rest = &rest[end..];
        }
        Ok(ids)
    }
}

/// The mean of a sentence's token vectors, of length 1.
fn embed(program: &CompiledGraph, ids: &[i64]) -> Result<Vec<f32>, Box<dyn Error>> {
    let shape = [1, ids.len()];
    let mut inputs = Vec::new();
    for port in program.inputs() {
        // The mask is all ones, types of tokens are all zeros.
        let values: Vec<i64> = match &*port.name {
            "input_ids" => ids.to_vec(),
            name => vec![i64::from(name.contains("mask")); ids.len()],
        };
        inputs.push((port.name.to_string(), Tensor::from_slice(&shape, &values)?));
    }
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let outputs = program.run_tensors(&named)?;
    let tokens = outputs.first().ok_or("the model has no output")?;
    let width = tokens.dims().last().copied().unwrap_or(1).max(1);
    let mut mean = vec![0f32; width];
    for token in tokens.as_slice::<f32>()?.chunks(width) {
        mean.iter_mut().zip(token).for_each(|(m, x)| *m += x);
    }
    let length = mean.iter().map(|x| x * x).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    Ok(mean.iter().map(|x| x / length).collect())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, tokenizer, first, second] = args.as_slice() else {
        return Err("usage: similarity MODEL.onnx TOKENIZER.json SENTENCE SENTENCE".into());
    };
    let words = WordPiece::load(tokenizer)?;
    let model = rlx::onnx::load(model, &rlx::onnx::ImportOptions::default())?;
    let program = Session::new(Device::Cpu)?.compile_hir(&model.module)?;
    let (a, b) = (embed(&program, &words.encode(first)?)?, embed(&program, &words.encode(second)?)?);
    println!("{:.4}", a.iter().zip(&b).map(|(x, y)| x * y).sum::<f32>());
    Ok(())
}
