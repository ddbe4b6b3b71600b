//! Tensor data in all its forms.

use prost::Message as _;
use rlx_onnx::model::InitialiserContent;
use rlx_onnx::proto::{SparseTensorProto, TensorProto};
use rlx_onnx::{Fault, OnnxType, RawTensor, TensorData};

use crate::make::*;

fn tensor(mut proto: TensorProto) -> Result<RawTensor, String> {
    proto.name = Some("t".into());
    let mut main = graph("x", vec![], "x");
    main.initializer.push(proto);
    let file = model(main);
    match read(&file) {
        Ok(mut model) => match model.main.initialisers.remove(0).content {
            InitialiserContent::Dense(tensor) => Ok(tensor),
            InitialiserContent::Sparse(_) => panic!(),
        },
        Err(_) => {
            let [Fault::Tensor { problem, .. }] = &faults(&file)[..] else { panic!() };
            Err(problem.to_string())
        }
    }
}

fn of(dtype: OnnxType, dims: &[i64]) -> TensorProto {
    TensorProto { dims: dims.to_vec(), data_type: Some(dtype.code()), ..Default::default() }
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn typed_fields_and_raw_data_agree() {
    let mut seen = Vec::new();
    for line in include_str!("typed.txt").lines().filter(|l| !l.starts_with('#')) {
        let [name, message, raw] = line.split(' ').collect::<Vec<_>>()[..] else { panic!() };
        let proto = TensorProto::decode(&hex(message)[..]).unwrap();
        let raw = hex(raw);
        let dtype = OnnxType::from_code(proto.data_type.unwrap()).unwrap();
        assert_eq!(dtype.name(), name);
        let from_typed = tensor(proto).unwrap();
        assert_eq!(from_typed.dims, [7]);
        assert_eq!(from_typed.packed().unwrap()[..], raw[..], "{name}");
        let mut proto = of(dtype, &[7]);
        proto.raw_data = Some(raw.into());
        assert_eq!(tensor(proto).unwrap(), from_typed, "{name}");
        seen.push(dtype);
    }
    let all: Vec<_> = OnnxType::ALL.iter().filter(|t| **t != OnnxType::String).collect();
    assert_eq!(seen.iter().collect::<Vec<_>>(), all);
}

#[test]
fn strings() {
    let mut proto = of(OnnxType::String, &[2]);
    proto.string_data = vec!["grüße".into(), "".into()];
    let expected = TensorData::Strings(vec!["grüße".into(), String::new()]);
    assert_eq!(tensor(proto.clone()).unwrap().data, expected);
    proto.string_data[1] = vec![0x80].into();
    assert_eq!(tensor(proto).unwrap_err(), "string 1 is not UTF-8");
    let mut proto = of(OnnxType::String, &[1]);
    proto.raw_data = Some(b"a".to_vec().into());
    assert!(tensor(proto).unwrap_err().contains("cannot stand in raw_data"));
}

#[test]
fn empty_and_scalar_tensors() {
    let t = tensor(of(OnnxType::Float, &[0, 3])).unwrap();
    assert_eq!((t.elements(), t.packed().unwrap().len()), (0, 0));
    assert_eq!(tensor(of(OnnxType::String, &[0])).unwrap().data, TensorData::Strings(vec![]));
    let mut scalar = of(OnnxType::Int64, &[]);
    scalar.int64_data = vec![-5];
    let t = tensor(scalar).unwrap();
    assert_eq!((t.elements(), &t.packed().unwrap()[..]), (1, &(-5i64).to_le_bytes()[..]));
    assert!(tensor(of(OnnxType::Int64, &[])).unwrap_err().contains("need 1 entries"));
}

#[test]
fn absurd_dims() {
    for dims in [
        &[1i64 << 40, 1 << 40][..],
        &[i64::MAX],
        &[i64::MAX, i64::MAX, i64::MAX],
        &[0, 1 << 40, 1 << 40],
        &[1 << 32, 1 << 31],
    ] {
        for dtype in [OnnxType::Float, OnnxType::Int4, OnnxType::Complex128, OnnxType::String] {
            let error = tensor(of(dtype, dims)).unwrap_err();
            assert!(error.contains("exceed the limit") || error.contains("need"), "{error}");
        }
    }
    assert!(tensor(of(OnnxType::Float, &[2, -1])).unwrap_err().contains("dim 1 is -1"));
    assert!(tensor(of(OnnxType::Float, &[i64::MIN])).unwrap_err().contains("negative"));
    let error = tensor(of(OnnxType::Float, &[1; 100_000])).unwrap_err();
    assert!(error.contains("100000 dims"), "{error}");
    // Many elements that need no bytes still need none from the machine.
    assert!(tensor(of(OnnxType::Float, &[1 << 30])).unwrap_err().contains("the file has 0"));
}

#[test]
fn lengths_must_fit() {
    for (dtype, dims, len, ok) in [
        (OnnxType::Float, 3, 12, true),
        (OnnxType::Float, 3, 11, false),
        (OnnxType::Float, 3, 16, false),
        (OnnxType::Int4, 3, 2, true),
        (OnnxType::Int4, 3, 3, false),
        (OnnxType::Uint2, 5, 2, true),
        (OnnxType::Float6E3M2, 5, 4, true),
        (OnnxType::Float6E3M2, 5, 5, false),
    ] {
        let mut proto = of(dtype, &[dims]);
        proto.raw_data = Some(vec![0; len].into());
        let result = tensor(proto);
        assert_eq!(result.is_ok(), ok, "{dtype} {result:?}");
    }
    let mut proto = of(OnnxType::Complex64, &[2]);
    proto.float_data = vec![1.0; 2];
    assert!(tensor(proto).unwrap_err().contains("need 4 entries of data, the file has 2"));
}

#[test]
fn numbers_must_fit() {
    for (dtype, value, ok) in [
        (OnnxType::Int8, -128, true),
        (OnnxType::Int8, 256, false),
        (OnnxType::Uint8, 256, false),
        (OnnxType::Uint16, 65_535, true),
        (OnnxType::Float16, 65_536, false),
        (OnnxType::Bfloat16, 65_535, true),
        (OnnxType::Float6E2M3, 64, false),
        (OnnxType::Int16, i32::MIN, false),
    ] {
        let mut proto = of(dtype, &[1]);
        proto.int32_data = vec![value];
        assert_eq!(tensor(proto).is_ok(), ok, "{dtype} {value}");
    }
    let mut proto = of(OnnxType::Uint32, &[1]);
    proto.uint64_data = vec![1 << 32];
    assert_eq!(tensor(proto).unwrap_err(), "element 0 is 4294967296, which uint32 cannot hold");
}

#[test]
fn booleans_are_zero_or_one() {
    let mut proto = of(OnnxType::Bool, &[4]);
    proto.raw_data = Some(vec![0, 1, 2, 255].into());
    assert_eq!(tensor(proto).unwrap().packed().unwrap()[..], [0, 1, 1, 1]);
}

#[test]
fn one_field_only() {
    let mut proto = floats("", &[1], &[1.0]);
    proto.raw_data = Some(vec![0; 4].into());
    assert_eq!(tensor(proto).unwrap_err(), "its data is given more than once: raw_data, float_data");
    let mut proto = of(OnnxType::Float, &[1]);
    proto.int64_data = vec![1];
    assert_eq!(tensor(proto).unwrap_err(), "data of type float cannot stand in int64_data");
    // Some writers set an empty raw_data beside the field that holds the data.
    let mut proto = floats("", &[1], &[1.0]);
    proto.raw_data = Some(Default::default());
    assert!(tensor(proto).is_ok());
}

#[test]
fn unknown_codes() {
    let mut proto = of(OnnxType::Float, &[0]);
    for code in [0, 29, -1, i32::MAX] {
        proto.data_type = Some(code);
        assert_eq!(tensor(proto.clone()).unwrap_err(), format!("data type {code} is unknown"));
    }
    proto.data_type = Some(1);
    proto.data_location = Some(2);
    assert_eq!(tensor(proto.clone()).unwrap_err(), "data location 2 is unknown");
    proto.data_location = None;
    proto.segment = Some(Default::default());
    assert!(tensor(proto).unwrap_err().contains("segment"));
}

fn sparse(indices: &[i64], dims: &[i64], of: &[i64]) -> Result<(), String> {
    let mut positions =
        TensorProto { dims: dims.to_vec(), data_type: Some(OnnxType::Int64.code()), ..Default::default() };
    positions.int64_data = indices.to_vec();
    let mut main = graph("x", vec![], "x");
    main.sparse_initializer.push(SparseTensorProto {
        values: Some(floats("s", &[2], &[1.0, 2.0])),
        indices: Some(positions),
        dims: of.to_vec(),
    });
    let file = model(main);
    match read(&file) {
        Ok(model) => {
            assert!(matches!(model.main.initialisers[0].content, InitialiserContent::Sparse(_)));
            Ok(())
        }
        Err(_) => Err(fault_lines(&file).join("\n")),
    }
}

#[test]
fn sparse_tensors() {
    assert_eq!(sparse(&[0, 5], &[2], &[2, 3]), Ok(()));
    assert_eq!(sparse(&[0, 1, 1, 2], &[2, 2], &[2, 3]), Ok(()));
    assert!(sparse(&[0, 6], &[2], &[2, 3]).unwrap_err().contains("index 6 is outside of 0..6"));
    assert!(sparse(&[0, -1], &[2], &[2, 3]).unwrap_err().contains("-1 is outside"));
    assert!(sparse(&[0, 1, 1, 3], &[2, 2], &[2, 3]).unwrap_err().contains("3 is outside of 0..3"));
    assert!(sparse(&[0, 1, 2], &[3], &[2, 3]).unwrap_err().contains("for 2 values"));
    assert!(sparse(&[0, 1], &[2], &[1 << 40, 1 << 40]).unwrap_err().contains("limit"));
}
