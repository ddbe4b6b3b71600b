//! Comparisons of two operands of one dtype; the result is boolean. NaN is unordered and unequal to everything.

use serde::{Deserialize, Serialize};

use super::{Domain, Scalar};
use crate::builder::Builder;
use crate::error::IrError;
use crate::graph::ValueId;

macro_rules! compare {
    ($($(#[doc = $doc:literal])+ $variant:ident $method:ident $domain:ident $op:tt;)*) => {
        /// A comparison.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Compare { $($(#[doc = $doc])+ $variant,)* }

        impl Compare {
            /// All of them.
            pub const ALL: &'static [Compare] = &[$(Compare::$variant,)*];

            /// The mnemonic.
            pub const fn name(self) -> &'static str {
                match self { $(Compare::$variant => stringify!($method),)* }
            }

            /// One line of documentation.
            pub const fn doc(self) -> &'static str {
                match self { $(Compare::$variant => concat!($($doc, " "),+),)* }
            }

            /// The dtypes it takes.
            pub const fn domain(self) -> Domain {
                match self { $(Compare::$variant => Domain::$domain,)* }
            }

            /// The comparison's value.
            pub fn value(self, a: Scalar, b: Scalar) -> Option<bool> {
                match (self, a, b) {
                    $((Compare::$variant, Scalar::F(x), Scalar::F(y)) => Some(x $op y),
                    (Compare::$variant, Scalar::I(x), Scalar::I(y)) => Some(x $op y),)*
                    (Compare::Eq, Scalar::C(x), Scalar::C(y)) => Some(x == y),
                    (Compare::Ne, Scalar::C(x), Scalar::C(y)) => Some(x != y),
                    _ => None,
                }
            }
        }

        impl Builder {
            $($(#[doc = $doc])+ pub fn $method(&mut self, a: ValueId, b: ValueId) -> Result<ValueId, IrError> {
                self.op1(Compare::$variant, &[a, b])
            })*
        }
    };
}

compare! {
    /// Equal.
    Eq eq Any ==;
    /// Not equal.
    Ne ne Any !=;
    /// Less.
    Lt lt Number <;
    /// Less or equal.
    Le le Number <=;
    /// Greater.
    Gt gt Number >;
    /// Greater or equal.
    Ge ge Number >=;
}

impl Compare {
    /// By mnemonic.
    pub fn from_name(name: &str) -> Option<Compare> {
        Compare::ALL.iter().copied().find(|u| u.name() == name)
    }
}
