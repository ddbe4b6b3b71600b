//! Custom ops: as nodes of their own domain where no rule says what else they are. RLX reads them back where they are registered.

use rlx_ir::ops::custom::{Attribute, CustomOp};

use super::{Failure, Writer, attribute, float, int, ints, string};
use crate::proto::AttributeProto;
use crate::proto::attribute_proto::AttributeType;

impl Writer {
    /// Writes a custom op by its name, whose last part is the operator and what stands before it the domain.
    pub(super) fn custom(&mut self, op: &CustomOp, x: &[&str], results: usize) -> Result<Vec<String>, Failure> {
        let Some((domain, operator)) = op.name.rsplit_once('.').filter(|(d, o)| !d.is_empty() && !o.is_empty()) else {
            return Err(format!("its name `{}` has no domain in front, as in `com.acme.Swirl`", op.name));
        };
        let attributes = op.attributes.iter().map(|(n, a)| written(n, a)).collect::<Result<Vec<_>, _>>()?;
        let names = self.emit_n(operator, x, results, attributes);
        // The standard domain is written as none.
        if domain != "ai.onnx" {
            if let Some(node) = self.nodes.last_mut() {
                node.domain = Some(domain.into());
            }
            self.domains.insert(domain.into());
        }
        Ok(names)
    }
}

fn written(name: &str, a: &Attribute) -> Result<AttributeProto, Failure> {
    let narrow = |x: f64| {
        let y = x as f32;
        let same = f64::from(y) == x || x.is_nan();
        if same { Ok(y) } else { Err(format!("attribute `{name}` holds {x}, and files hold f32")) }
    };
    Ok(match a {
        Attribute::Int(i) => int(name, *i),
        Attribute::Float(x) => float(name, narrow(x.get())?.into()),
        Attribute::String(s) => string(name, s),
        Attribute::Ints(v) => ints(name, v),
        Attribute::Floats(v) => AttributeProto {
            floats: v.iter().map(|x| narrow(x.get())).collect::<Result<_, _>>()?,
            ..attribute(name, AttributeType::Floats)
        },
        Attribute::Strings(v) => AttributeProto {
            strings: v.iter().map(|s| s.as_bytes().to_vec().into()).collect(),
            ..attribute(name, AttributeType::Strings)
        },
    })
}
