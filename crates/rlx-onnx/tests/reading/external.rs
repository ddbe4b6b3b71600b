//! Tensor data in other files, and attempts to reach where it must not.

use std::path::Path;

use prost::Message as _;
use rlx_onnx::model::InitialiserContent;
use rlx_onnx::proto::{StringStringEntryProto, TensorProto};
use rlx_onnx::{ExternalProblem, Fault, OnnxError, OnnxFile, OnnxType, ReadOptions, TensorProblem};

use crate::make::*;

fn external(name: &str, dims: &[i64], entries: &[(&str, &str)]) -> TensorProto {
    let entries: Vec<StringStringEntryProto> = entries.iter().map(|(k, v)| entry(k, v)).collect();
    TensorProto {
        name: Some(name.into()),
        dims: dims.to_vec(),
        data_type: Some(OnnxType::Uint8.code()),
        data_location: Some(1),
        external_data: entries,
        ..Default::default()
    }
}

fn open(folder: &Path, tensors: Vec<TensorProto>) -> Result<rlx_onnx::Model, OnnxError> {
    let mut main = graph("x", vec![], "x");
    main.initializer = tensors;
    let path = folder.join("model.onnx");
    std::fs::write(&path, model(main).encode_to_vec()).unwrap();
    OnnxFile::open(&path, &ReadOptions::default())?.into_model()
}

fn problem(folder: &Path, dims: &[i64], entries: &[(&str, &str)]) -> ExternalProblem {
    match open(folder, vec![external("w", dims, entries)]) {
        Err(OnnxError::Invalid(faults)) => match faults.list() {
            [Fault::Tensor { problem: TensorProblem::External(problem), .. }] => problem.clone(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// A model folder with a data file, and a secret beside it.
fn folder(name: &str) -> std::path::PathBuf {
    let outer = scratch(name);
    std::fs::write(outer.join("secret"), b"secretsecret").unwrap();
    let folder = outer.join("model");
    std::fs::create_dir_all(folder.join("sub")).unwrap();
    std::fs::write(folder.join("data"), (0..100).collect::<Vec<u8>>()).unwrap();
    std::fs::write(folder.join("sub/data"), b"abc").unwrap();
    folder
}

#[test]
fn tensors_share_one_file() {
    let folder = folder("share");
    let tensors = vec![
        external("a", &[4], &[("location", "data")]),
        external("b", &[2, 3], &[("location", "data"), ("offset", "94"), ("length", "6")]),
        external("c", &[3], &[("location", "sub/data"), ("checksum", "ignored")]),
        external("d", &[0], &[("location", "data"), ("offset", "100")]),
    ];
    let model = open(&folder, tensors).unwrap();
    let bytes: Vec<Vec<u8>> = model
        .main
        .initialisers
        .iter()
        .map(|i| match &i.content {
            InitialiserContent::Dense(tensor) => tensor.packed().unwrap().to_vec(),
            InitialiserContent::Sparse(_) => panic!(),
        })
        .collect();
    let expected: [&[u8]; 4] = [&[0, 1, 2, 3], &[94, 95, 96, 97, 98, 99], b"abc", b""];
    assert_eq!(bytes, expected);
    // The model, and each data file once.
    assert_eq!(model.sources.files().len(), 3);
}

#[test]
fn nothing_outside_the_folder() {
    let folder = folder("outside");
    let secret = folder.parent().unwrap().join("secret");
    let absolute = secret.to_string_lossy().into_owned();
    for location in ["../secret", "sub/../../secret", "./../secret", &absolute, "/etc/passwd", "sub", "..", "."] {
        let problem = problem(&folder, &[4], &[("location", location)]);
        assert!(matches!(problem, ExternalProblem::Unreadable { .. }), "{location}: {problem}");
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&secret, folder.join("link")).unwrap();
        std::os::unix::fs::symlink(folder.parent().unwrap(), folder.join("up")).unwrap();
        std::os::unix::fs::symlink("data", folder.join("inside")).unwrap();
        for location in ["link", "up/secret"] {
            let problem = problem(&folder, &[4], &[("location", location)]);
            assert!(matches!(problem, ExternalProblem::Unreadable { .. }), "{location}");
            assert!(!problem.to_string().contains("secretsecret"));
        }
        assert!(open(&folder, vec![external("w", &[4], &[("location", "inside")])]).is_ok());
    }
}

#[test]
fn entries_are_checked() {
    let folder = folder("entries");
    let at = |offset: &'static str| [("location", "data"), ("offset", offset)];
    assert_eq!(problem(&folder, &[4], &[]), ExternalProblem::NoLocation);
    assert_eq!(problem(&folder, &[4], &[("location", "")]), ExternalProblem::NoLocation);
    for offset in ["-1", "x", "", "1e3", "99999999999999999999999"] {
        let problem = problem(&folder, &[4], &at(offset));
        assert!(matches!(problem, ExternalProblem::BadNumber { key: "offset", .. }), "{offset}");
    }
    for offset in ["97", "100", "1000", "18446744073709551615", "9223372036854775807"] {
        let problem = problem(&folder, &[4], &at(offset));
        assert!(matches!(problem, ExternalProblem::TooShort { file: 100, .. }), "{problem}");
    }
    let twice = [("location", "data"), ("location", "sub/data")];
    assert!(matches!(problem(&folder, &[4], &twice), ExternalProblem::RepeatedKey { .. }));
    let length = [("location", "data"), ("length", "5")];
    assert_eq!(problem(&folder, &[4], &length), ExternalProblem::WrongLength { declared: 5, needed: 4 });
    let absent = problem(&folder, &[4], &[("location", "absent")]);
    assert!(matches!(absent, ExternalProblem::Unreadable { .. }));
}

#[test]
fn one_fault_for_each_tensor() {
    let folder = folder("each");
    let tensors = (0..3).map(|i| external(&format!("w{i}"), &[4], &[("location", "gone")]));
    let Err(OnnxError::Invalid(faults)) = open(&folder, tensors.collect()) else { panic!() };
    assert_eq!(faults.list().len(), 3);
    assert!(OnnxError::Invalid(faults).hint().unwrap().contains("folder"));
}

#[test]
fn without_a_folder_and_with_two_sources() {
    let mut main = graph("x", vec![], "x");
    main.initializer = vec![external("w", &[4], &[("location", "data")])];
    let lines = fault_lines(&model(main.clone()));
    assert!(lines[0].contains("was not read from a folder"), "{lines:?}");
    main.initializer[0].raw_data = Some(vec![0; 4].into());
    let lines = fault_lines(&model(main));
    assert!(lines[0].contains("external_data, raw_data"), "{lines:?}");
}
