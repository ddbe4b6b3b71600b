//! Folders of test cases.

use prost::Message as _;
use rlx_onnx::model::{TypeDef, ValueDef};
use rlx_onnx::proto::{OptionalProto, SequenceProto, optional_proto, sequence_proto};
use rlx_onnx::{CaseValue, OnnxFile, OnnxType, ReadOptions, TestCase};

use crate::make::*;

fn tensor_type() -> TypeDef {
    TypeDef::Tensor { dtype: Some(OnnxType::Float), shape: None }
}

fn declared(name: &str, ty: TypeDef) -> ValueDef {
    ValueDef { name: name.into(), ty: Some(ty) }
}

#[test]
fn a_folder_of_values() {
    let folder = scratch("case");
    let write = |name: &str, bytes: Vec<u8>| std::fs::write(folder.join(name), bytes).unwrap();
    write("input_0.pb", floats("x", &[2], &[1.0, 2.0]).encode_to_vec());
    let sequence = SequenceProto {
        elem_type: Some(sequence_proto::DataType::Tensor as i32),
        tensor_values: vec![floats("", &[1], &[3.0]), floats("", &[0], &[])],
        ..Default::default()
    };
    write("input_1.pb", sequence.encode_to_vec());
    let optional = OptionalProto {
        elem_type: Some(optional_proto::DataType::Sequence as i32),
        sequence_value: Some(sequence),
        ..Default::default()
    };
    write("output_0.pb", optional.encode_to_vec());
    write("output_1.pb", vec![]);
    let sequence_of = || TypeDef::Sequence(Box::new(tensor_type()));
    let optional_of = || TypeDef::Optional(Box::new(sequence_of()));
    let inputs = [declared("x", tensor_type()), declared("s", sequence_of()), declared("left out", tensor_type())];
    let outputs = [declared("o", optional_of()), declared("none", optional_of())];
    let case = TestCase::read(&folder, &inputs, &outputs, &ReadOptions::default()).unwrap();
    assert_eq!(case.inputs.len(), 2);
    let CaseValue::Tensor(x) = &case.inputs[0].1 else { panic!() };
    assert_eq!(x.packed().unwrap()[..], [1.0f32.to_le_bytes(), 2.0f32.to_le_bytes()].concat());
    let CaseValue::Sequence(items) = &case.inputs[1].1 else { panic!() };
    assert_eq!(items.len(), 2);
    let CaseValue::Optional(Some(inner)) = &case.outputs[0].1 else { panic!() };
    assert_eq!(**inner, case.inputs[1].1);
    assert_eq!(case.outputs[1], ("none".into(), CaseValue::Optional(None)));
}

#[test]
fn bad_folders() {
    let folder = scratch("bad_case");
    let read = |inputs: &[ValueDef], outputs: &[ValueDef]| {
        let case = TestCase::read(&folder, inputs, outputs, &ReadOptions::default());
        case.map(|_| ()).unwrap_err().to_string()
    };
    let y = [declared("y", tensor_type())];
    assert!(read(&[], &y).contains("there is no output_0.pb"));
    std::fs::write(folder.join("output_0.pb"), b"\xff\xff").unwrap();
    assert!(read(&[], &y).contains("truncated"), "{}", read(&[], &y));
    std::fs::write(folder.join("output_0.pb"), floats("", &[2], &[0.0]).encode_to_vec()).unwrap();
    assert!(read(&[], &y).contains("need 2 entries"));
    std::fs::write(folder.join("output_0.pb"), floats("", &[1], &[0.0]).encode_to_vec()).unwrap();
    std::fs::write(folder.join("input_0.pb"), b"").unwrap();
    assert!(read(&[], &y).contains("more inputs than the 0"));
}

/// Reads every case under the folder that `RLX_ONNX_CASES` names: unpacked node cases.
#[test]
fn published_cases() {
    let Some(folder) = std::env::var_os("RLX_ONNX_CASES") else {
        println!("skipped: RLX_ONNX_CASES names no folder of unpacked ONNX cases");
        return;
    };
    let (mut models, mut cases) = (0, 0);
    for case in std::fs::read_dir(folder).unwrap() {
        let path = case.unwrap().path();
        if !path.join("model.onnx").exists() {
            continue;
        }
        let options = ReadOptions::default();
        let model = OnnxFile::open(path.join("model.onnx"), &options)
            .and_then(OnnxFile::into_model)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        models += 1;
        let main = model.main;
        for data in std::fs::read_dir(&path).unwrap() {
            let data = data.unwrap().path();
            if !data.is_dir() {
                continue;
            }
            let case = TestCase::read(&data, &main.inputs, &main.outputs, &options)
                .unwrap_or_else(|error| panic!("{}: {error}", data.display()));
            assert_eq!(case.outputs.len(), main.outputs.len(), "{}", data.display());
            cases += 1;
        }
    }
    println!("{models} models, {cases} cases");
    assert!(models > 0 && cases >= models);
}
