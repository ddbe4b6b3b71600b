//! The element types of the ONNX format: code, name and width of each.
//!
//! Invariant: `from_code` and `code` are inverse for every type that ONNX 1.23 defines; code 0
//! (`UNDEFINED`) is no type.

use std::fmt;

macro_rules! onnx_types {
    ($($variant:ident = $code:literal, $name:literal, $bits:literal;)+) => {
        /// An element type of the ONNX format (`TensorProto.DataType`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(i32)]
        pub enum OnnxType {
            $(#[doc = concat!("`", $name, "`, code ", stringify!($code), ".")] $variant = $code,)+
        }

        impl OnnxType {
            /// Every type, by code.
            pub const ALL: &'static [OnnxType] = &[$(OnnxType::$variant),+];

            /// The type of a code in a file; `None` for `UNDEFINED` and for unknown codes.
            pub const fn from_code(code: i32) -> Option<OnnxType> {
                match code {
                    $($code => Some(OnnxType::$variant),)+
                    _ => None,
                }
            }

            /// The format's name of the type, in lower case.
            pub const fn name(self) -> &'static str {
                match self { $(OnnxType::$variant => $name,)+ }
            }

            /// Bits of one element in packed data; 0 for strings, which have no packed form.
            pub const fn bits(self) -> usize {
                match self { $(OnnxType::$variant => $bits,)+ }
            }
        }
    };
}

onnx_types! {
    Float = 1, "float", 32;
    Uint8 = 2, "uint8", 8;
    Int8 = 3, "int8", 8;
    Uint16 = 4, "uint16", 16;
    Int16 = 5, "int16", 16;
    Int32 = 6, "int32", 32;
    Int64 = 7, "int64", 64;
    String = 8, "string", 0;
    Bool = 9, "bool", 8;
    Float16 = 10, "float16", 16;
    Double = 11, "double", 64;
    Uint32 = 12, "uint32", 32;
    Uint64 = 13, "uint64", 64;
    Complex64 = 14, "complex64", 64;
    Complex128 = 15, "complex128", 128;
    Bfloat16 = 16, "bfloat16", 16;
    Float8E4M3FN = 17, "float8e4m3fn", 8;
    Float8E4M3FNUZ = 18, "float8e4m3fnuz", 8;
    Float8E5M2 = 19, "float8e5m2", 8;
    Float8E5M2FNUZ = 20, "float8e5m2fnuz", 8;
    Uint4 = 21, "uint4", 4;
    Int4 = 22, "int4", 4;
    Float4E2M1 = 23, "float4e2m1", 4;
    Float8E8M0 = 24, "float8e8m0", 8;
    Uint2 = 25, "uint2", 2;
    Int2 = 26, "int2", 2;
    Float6E2M3 = 27, "float6e2m3", 6;
    Float6E3M2 = 28, "float6e3m2", 6;
}

impl OnnxType {
    /// The code of the type in a file.
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// Bytes of `elements` packed elements, the last one padded; `None` when that overflows.
    pub fn packed_len(self, elements: usize) -> Option<usize> {
        let bits = self.bits();
        if bits.is_multiple_of(8) {
            return elements.checked_mul(bits / 8);
        }
        // Whole groups of eight elements take `bits` bytes; only the rest needs rounding.
        let rest = (elements % 8 * bits).div_ceil(8);
        (elements / 8).checked_mul(bits)?.checked_add(rest)
    }
}

impl fmt::Display for OnnxType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_formats() {
        use crate::proto::tensor_proto::DataType;
        for &t in OnnxType::ALL {
            assert_eq!(OnnxType::from_code(t.code()), Some(t));
            let theirs = DataType::try_from(t.code()).map(|d| d.as_str_name().to_lowercase());
            assert_eq!(theirs.as_deref(), Ok(t.name()));
        }
        assert_eq!(OnnxType::from_code(0), None);
        assert!(DataType::try_from(OnnxType::ALL.len() as i32 + 1).is_err());
    }

    #[test]
    fn packed_lengths_round_up() {
        for (t, n, bytes) in [
            (OnnxType::Int4, 3, 2),
            (OnnxType::Int4, 8, 4),
            (OnnxType::Uint2, 5, 2),
            (OnnxType::Uint2, 0, 0),
            (OnnxType::Float6E2M3, 1, 1),
            (OnnxType::Float6E2M3, 4, 3),
            (OnnxType::Float6E3M2, 9, 7),
            (OnnxType::Complex128, 3, 48),
        ] {
            assert_eq!(t.packed_len(n), Some(bytes), "{t} {n}");
        }
        assert_eq!(OnnxType::Double.packed_len(usize::MAX / 2), None);
    }
}
