//! Nodes of operators that users bring.

use rlx_ir::ops::custom::{Attribute, Attributes, is_registered};

use super::context::{Failure, NodeCx, Out};
use crate::model::Attr;

/// The name of the custom op that stands for an operator, if one is registered. Those of the standard domain have its long name in front.
pub(crate) fn custom_name(domain: &str, op: &str) -> Option<String> {
    let name = format!("{}.{op}", if domain.is_empty() { "ai.onnx" } else { domain });
    is_registered(&name).then_some(name)
}

/// Imports a node as the custom op of a name.
pub(crate) fn custom(cx: &mut NodeCx<'_, '_>, name: String) -> Out {
    let mut attributes = Vec::new();
    for (name, given) in &cx.node.attributes {
        // In the body of a function it may be one of the call, which may leave it out.
        let value = match given {
            Attr::Reference(of) => cx.imp.scopes.last().and_then(|s| s.attributes.get(of).copied()),
            a => Some(a),
        };
        let value = match value {
            None => continue,
            Some(Attr::Int(i)) => Attribute::Int(*i),
            Some(Attr::Float(x)) => Attribute::Float((*x).into()),
            Some(Attr::String(s)) => Attribute::String(s.clone()),
            Some(Attr::Ints(v)) => Attribute::Ints(v.clone()),
            Some(Attr::Floats(v)) => Attribute::Floats(v.iter().map(|&x| x.into()).collect()),
            Some(Attr::Strings(v)) => Attribute::Strings(v.clone()),
            Some(a) => {
                let name = crate::text::shown(name);
                return Err(Failure::unsupported(format!("attribute `{name}` of a custom op is {}", a.kind())));
            }
        };
        attributes.push((name.clone(), value));
    }
    let operands = cx.inputs_from(0)?;
    Ok(cx.b().custom(name, attributes.into_iter().collect::<Attributes>(), &operands)?)
}
