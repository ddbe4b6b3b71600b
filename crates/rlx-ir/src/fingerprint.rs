//! Stable fingerprints of modules: equal for equal programs, on every machine and in every version that spells ops alike.
//!
//! What counts is the text form of ops and types, the bytes of constants, how nodes are wired, stage, bounds, constraints, and the
//! names and order of inputs, parameters, states and outputs, by which callers speak of them; so do symbols, which callers bind. Names of
//! other values and places in the source do not count, nor how values are numbered, nor the names of graphs but functions. Contents of
//! parameters count in [`fingerprint_with_contents`] alone, names and places besides in [`fingerprint_exact`], for stores of programs whose
//! reports and errors speak of them.

use std::fmt;

use twox_hash::XxHash3_128;

use crate::dim::Constraint;
use crate::graph::{Graph, Module, Stage, ValueId};
use crate::tensor::Tensor;

/// 128 bits that stand for a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Fingerprint(pub u128);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The fingerprint of the program: parameters and states by name and type alone.
pub fn fingerprint(module: &Module) -> Fingerprint {
    module_fingerprint(module, Rules { contents: None, names: false })
}

/// The fingerprint of the program with the default values of parameters and the first values of states.
pub fn fingerprint_with_contents(module: &Module) -> Fingerprint {
    module_fingerprint(module, Rules { contents: Some(&content_hash), names: false })
}

/// The fingerprint of everything: program, contents, names and places. `hash` gives a tensor's [`content_hash`], which a caller may know.
pub fn fingerprint_exact(module: &Module, hash: &dyn Fn(&Tensor) -> u128) -> Fingerprint {
    module_fingerprint(module, Rules { contents: Some(hash), names: true })
}

/// 128 bits that stand for a tensor's contents, whatever its dtype and shape (XXH3): not proof against forgery, but against chance.
pub fn content_hash(t: &Tensor) -> u128 {
    match t.strings() {
        Some(s) => {
            let mut h = Hasher::new();
            s.iter().for_each(|x| h.text(x));
            h.0
        }
        None => XxHash3_128::oneshot(t.bytes()),
    }
}

/// What counts besides the program itself.
#[derive(Clone, Copy)]
struct Rules<'a> {
    /// Contents of parameters and states, by this hash.
    contents: Option<&'a dyn Fn(&Tensor) -> u128>,
    /// Names of values and graphs, places in the source.
    names: bool,
}

/// FNV-1a with 128 bits, over items that say their own length, so that no two lists of items give the same bytes.
struct Hasher(u128);

impl Hasher {
    fn new() -> Self {
        Hasher(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    fn raw(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.0 = (self.0 ^ u128::from(b)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        }
    }

    fn number(&mut self, n: usize) {
        self.raw(&(n as u64).to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.raw(bytes);
    }

    fn text(&mut self, text: impl AsRef<str>) {
        self.bytes(text.as_ref().as_bytes());
    }

    fn tensor(&mut self, t: &Tensor, hash: &dyn Fn(&Tensor) -> u128) {
        self.text(format!("{t:?}"));
        self.raw(&hash(t).to_le_bytes());
    }
}

fn module_fingerprint(module: &Module, rules: Rules<'_>) -> Fingerprint {
    let mut h = Hasher::new();
    match &module.stage {
        Stage::Hir => h.text("hir"),
        Stage::Mir { target, claims } => {
            h.text("mir");
            h.text(target);
            h.number(claims.len());
            claims.iter().for_each(|c| h.text(c));
        }
    }
    graph(&mut h, &module.main, rules);
    h.number(module.functions.len());
    for (name, g) in &module.functions {
        h.text(name);
        graph(&mut h, g, rules);
    }
    Fingerprint(h.0)
}

fn graph(h: &mut Hasher, g: &Graph, rules: Rules<'_>) {
    if rules.names {
        h.text(g.name());
    }
    // Values count by their position in order of definition, not by id.
    let mut position = vec![usize::MAX; g.num_values()];
    let mut next = 0;
    let mut define = |h: &mut Hasher, position: &mut Vec<usize>, v: ValueId| {
        if let Some(p) = position.get_mut(v.index()) {
            *p = next;
        }
        next += 1;
        if let Some(info) = g.get_value(v) {
            h.text(info.ty.to_string());
            h.text(format!("{:?}", info.elems.as_deref()));
            if rules.names {
                h.text(info.name.as_deref().unwrap_or(""));
            }
        }
    };
    let at = |position: &[usize], v: ValueId| position.get(v.index()).copied().unwrap_or(usize::MAX);

    h.number(g.inputs().len());
    for &v in g.inputs() {
        h.text(g.get_value(v).and_then(|i| i.name.as_deref()).unwrap_or(""));
        define(h, &mut position, v);
    }
    type Kept<'a> = Vec<(&'a str, ValueId, &'a Option<Tensor>)>;
    let params: Kept<'_> = g.params().iter().map(|p| (&*p.name, p.value, &p.default)).collect();
    let states: Kept<'_> = g.states().iter().map(|s| (&*s.name, s.value, &s.init)).collect();
    for list in [params, states] {
        h.number(list.len());
        for (name, v, value) in list {
            h.text(name);
            h.text(if value.is_some() { "given" } else { "none" });
            if let (Some(t), Some(hash)) = (value, rules.contents) {
                h.tensor(t, hash);
            }
            define(h, &mut position, v);
        }
    }
    h.number(g.nodes().len());
    for n in g.nodes() {
        match n.op.as_constant() {
            Some(t) => {
                h.text(n.op.name());
                h.tensor(t, &content_hash);
            }
            None => h.text(n.op.to_string()),
        }
        if rules.names {
            h.text(n.loc.name().unwrap_or(""));
        }
        h.number(n.operands.len());
        n.operands.iter().for_each(|&v| h.number(at(&position, v)));
        h.number(n.regions.len());
        n.regions.iter().for_each(|r| graph(h, r, rules));
        h.number(n.results.len());
        n.results.iter().for_each(|&v| define(h, &mut position, v));
    }
    h.number(g.outputs().len());
    for o in g.outputs() {
        h.text(&o.name);
        h.number(at(&position, o.value));
    }
    for s in g.states() {
        h.number(s.next.map_or(usize::MAX, |v| at(&position, v)));
        h.number(s.grows.unwrap_or(usize::MAX));
    }
    let mut bounds = 0;
    for (s, (min, max)) in g.bounds().iter() {
        bounds += 1;
        h.text(format!("{s} {min} {max:?}"));
    }
    h.number(bounds);
    // The order in which constraints were found does not count.
    let mut constraints: Vec<String> = g.constraints().iter().map(|c| constraint_text(&c.constraint)).collect();
    constraints.sort_unstable();
    h.number(constraints.len());
    constraints.iter().for_each(|c| h.text(c));
}

fn constraint_text(c: &Constraint) -> String {
    let kind = match c {
        Constraint::Eq(..) => "eq",
        Constraint::Broadcastable(..) => "broadcastable",
        Constraint::Le(..) => "le",
        Constraint::Divisible(..) => "divisible",
    };
    let (a, b) = c.dims();
    format!("{kind}({a}, {b})")
}

#[cfg(test)]
mod random;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{parse_module, parse_module_with};

    const BASE: &str = "func @main(%x: f32[n, 2]; param %w: f32[2] = f32[2](1.0, 2.0)) -> (y: f32[n, 2]) bounds(n = 1..8) requires(divisible(n, 2)) {
  %c = constant {value = f32[2](1.0, 2.0)} : f32[2]
  %t = transpose(%x) {perm = [0, 1]} : f32[n, 2] @\"t\"
  %a = add(%t, %c) : f32[n, 2]
  %b = mul(%a, %w) : f32[n, 2]
  return %b
}
";

    fn of(text: &str) -> Fingerprint {
        fingerprint(&parse_module(text).unwrap_or_else(|e| panic!("{e}\n{text}")))
    }

    #[test]
    fn known_value_of_the_hash() {
        // FNV-1a 128 of "a", from the reference test vectors.
        let mut h = Hasher::new();
        h.raw(b"a");
        assert_eq!(h.0, 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }

    #[test]
    fn every_change_of_meaning_changes_it() {
        let base = of(BASE);
        for (from, to) in [
            ("f32[2](1.0, 2.0)} ", "f32[2](1.0, 2.0000002)} "),
            ("f32[2](1.0, 2.0)} ", "f32[2](-1.0, 2.0)} "),
            ("add(%t, %c)", "sub(%t, %c)"),
            ("add(%t, %c)", "add(%c, %t)"),
            ("mul(%a, %w)", "mul(%a, %c)"),
            ("bounds(n = 1..8)", "bounds(n = 1..9)"),
            ("bounds(n = 1..8)", ""),
            ("divisible(n, 2)", "divisible(n, 4)"),
            ("return %b", "return %a"),
            ("(y: ", "(z: "),
            ("%w", "%v"),
            (" = f32[2](1.0, 2.0))", ")"),
            ("func", "module {stage = mir, target = \"cpu\", claims = []}\nfunc"),
        ] {
            let text = if from == "%w" { BASE.replace(from, to) } else { BASE.replacen(from, to, 1) };
            assert_ne!(text, BASE);
            assert_ne!(of(&text), base, "{text}");
        }
        let square = BASE.replace("[n, 2]", "[2, 2]").replace("bounds(n = 1..8) requires(divisible(n, 2))", "");
        assert_ne!(of(&square), of(&square.replace("perm = [0, 1]", "perm = [1, 0]")));
        let state = |text: &str| of(&format!("func @main(; state %s: f32[2, 2]{text} -> %s) {{ return %s }}"));
        let all = [state(""), state(" grows 0"), state(" grows 1")];
        assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
    }

    #[test]
    fn names_places_and_defaults_do_not_count() {
        let base = of(BASE);
        assert_eq!(of(&BASE.replace("%a", "%other")), base);
        assert_eq!(of(&BASE.replace("@\"t\"", "@\"u\"")), base);
        let other = BASE.replacen("= f32[2](1.0, 2.0))", "= f32[2](1.0, 3.0))", 1);
        assert_ne!(other, BASE);
        assert_eq!(of(&other), base);
        let contents = |text: &str| fingerprint_with_contents(&parse_module(text).unwrap());
        assert_ne!(contents(&other), contents(BASE));
        let exact = |text: &str| fingerprint_exact(&parse_module(text).unwrap(), &content_hash);
        for changed in
            [BASE.replace("%a", "%other"), BASE.replace("@\"t\"", "@\"u\""), BASE.replace("@main", "@m"), other]
        {
            assert_ne!(exact(&changed), exact(BASE), "{changed}");
        }
    }

    #[test]
    fn every_constant_byte_counts() {
        let text = "func @main() { %0 = constant {value = u8[32](0x0000000000000000000000000000000000000000000000000000000000000000)} return %0 }";
        let mut seen = std::collections::BTreeSet::from([of(text)]);
        for i in 0..32 {
            let mut hex = "00".repeat(32);
            hex.replace_range(2 * i..2 * i + 2, "01");
            assert!(seen.insert(of(&text.replace(&"00".repeat(32), &hex))));
        }
        let m = parse_module_with(text, &mut |_| None).unwrap();
        assert_eq!(fingerprint(&m), of(text));
    }
}
