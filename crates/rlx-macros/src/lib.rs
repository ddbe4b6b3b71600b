//! `include_model!`: a model in a program, with typed inputs and outputs. Use it through `rlx` with its feature `macros`.
#![forbid(unsafe_code)]

mod expand;
mod signature;

use std::path::PathBuf;

use proc_macro::{Delimiter, TokenStream, TokenTree};

/// Embeds a model at build time: a struct whose `run` takes and gives the model's inputs and outputs by name.
///
/// ```ignore
/// rlx::include_model! {
///     /// Tells speech from silence.
///     pub struct Vad = "models/silero_vad/model.onnx";
/// }
/// let mut vad = Vad::new(rlx::Device::Cpu)?;
/// let out = vad.run(&[[0.0f32; 576]], state, 16000)?;
/// ```
///
/// The path is an ONNX file, or a graph in text form (`.rlx`), from the folder of the package's `Cargo.toml`. The program holds the model's
/// bytes: it needs no file when it runs. What cannot be imported, or does not fit together, is an error of compiling that names the nodes.
///
/// An input is a `T` if it has no axes, a reference to nested arrays if all sizes are fixed (`&[[f32; 3]; 2]`), a slice of arrays if the first
/// alone is open (`&[[f32; 576]]`), and else an `rlx::embed::View<T, RANK>`, whose sizes are checked when it runs. Outputs are the same,
/// owned: `T`, `Box` of arrays, `Vec` of arrays, `rlx::embed::Array<T, RANK>`.
#[proc_macro]
pub fn include_model(input: TokenStream) -> TokenStream {
    match parse(input) {
        Ok((head, path)) => {
            let root = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
            let text = expand::expand(&head, &root.join(&path));
            text.and_then(|t| t.parse().map_err(|e| format!("the code that was made does not parse: {e}")))
                .unwrap_or_else(|e| error(&e))
        }
        Err(e) => error(&e),
    }
}

fn error(text: &str) -> TokenStream {
    format!("::core::compile_error!({text:?});").parse().unwrap_or_default()
}

/// What stands before the path, and the path.
fn parse(input: TokenStream) -> Result<(expand::Head, String), String> {
    let wants = || "include_model! wants `[pub] struct Name = \"path\";`".to_string();
    let mut head = expand::Head::default();
    let mut tokens = input.into_iter().peekable();
    // Attributes and visibility go before the struct as they are.
    while let Some(t) = tokens.next() {
        match &t {
            TokenTree::Ident(i) if i.to_string() == "struct" => break,
            TokenTree::Ident(i) if i.to_string() == "pub" => {
                head.visibility.push_str("pub");
                if let Some(TokenTree::Group(g)) = tokens.peek()
                    && g.delimiter() == Delimiter::Parenthesis
                {
                    head.visibility.push_str(&g.to_string());
                    tokens.next();
                }
            }
            TokenTree::Punct(p) if p.as_char() == '#' => {
                let group = tokens.next().ok_or_else(wants)?;
                head.attributes.push_str(&format!("#{group}\n"));
            }
            _ => return Err(wants()),
        }
    }
    let mut next = || tokens.next().ok_or_else(wants);
    head.name = match next()? {
        TokenTree::Ident(i) => i.to_string(),
        _ => return Err(wants()),
    };
    match next()? {
        TokenTree::Punct(p) if p.as_char() == '=' => {}
        _ => return Err(wants()),
    }
    let literal = next()?.to_string();
    let path = literal.strip_prefix('"').and_then(|s| s.strip_suffix('"')).filter(|s| !s.contains('\\'));
    let path = path.ok_or_else(|| format!("{literal} is no path: {}", wants()))?;
    Ok((head, path.to_string()))
}
