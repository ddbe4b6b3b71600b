use super::*;

#[test]
fn npy_round_trips() {
    for dims in [vec![], vec![0], vec![3], vec![2, 3], vec![1, 1, 5]] {
        let n: usize = dims.iter().product();
        let t = Tensor::from_slice(&dims, &(0..n).map(|i| i as f32 - 1.5).collect::<Vec<_>>()).unwrap();
        assert_eq!(parse_npy(&npy_bytes(&t).unwrap()).unwrap(), t);
    }
}

#[test]
fn broken_npy_is_an_error() {
    let t = Tensor::from_slice(&[4], &[1f32, 2., 3., 4.]).unwrap();
    let bytes = npy_bytes(&t).unwrap();
    for cut in 0..bytes.len() {
        assert!(parse_npy(&bytes[..cut]).is_err(), "cut at {cut}");
    }
}

/// A file as NumPy writes it: version, header padded to `room` bytes, data.
fn npy(version: u8, descr: &str, fortran: bool, shape: &str, room: usize, data: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let mut header = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}");
    let prefix = if version == 1 { 10 } else { 12 };
    while header.len() + 1 < room || !(prefix + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut out = b"\x93NUMPY".to_vec();
    out.extend([version, 0]);
    match version {
        1 => out.extend(u16::try_from(header.len()).unwrap().to_le_bytes()),
        _ => out.extend(u32::try_from(header.len()).unwrap().to_le_bytes()),
    }
    out.extend(header.as_bytes());
    out.extend(data);
    out
}

fn le(v: &[f32]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// What NumPy loads from the same bytes, form by form.
#[test]
fn f5_forms_of_numpy_files() {
    let t = |dims: &[usize], v: &[f32]| Tensor::from_slice(dims, v).unwrap();
    // Columns first: element [i, j] stands at i + 2 j.
    let fortran = npy(1, "'<f4'", true, "(2, 3)", 0, &le(&[1., 4., 2., 5., 3., 6.]));
    assert_eq!(parse_npy(&fortran).unwrap(), t(&[2, 3], &[1., 2., 3., 4., 5., 6.]));
    assert_eq!(parse_npy(&npy(1, "'<f4'", true, "(3,)", 0, &le(&[1., 2., 3.]))).unwrap(), t(&[3], &[1., 2., 3.]));
    assert_eq!(parse_npy(&npy(1, "'<f4'", false, "()", 0, &le(&[7.0]))).unwrap(), t(&[], &[7.0]));
    assert_eq!(parse_npy(&npy(1, "'<f4'", false, "(0, 3)", 0, &[])).unwrap(), t(&[0, 3], &[]));
    let big: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|x| x.to_be_bytes()).collect();
    assert_eq!(parse_npy(&npy(1, "'>f4'", false, "(2,)", 0, &big)).unwrap(), t(&[2], &[1.5, -2.0]));
    let big: Vec<u8> = [1i64, -2].iter().flat_map(|x| x.to_be_bytes()).collect();
    let want = Tensor::from_slice(&[2], &[1i64, -2]).unwrap();
    assert_eq!(parse_npy(&npy(1, "'>i8'", false, "(2,)", 0, &big)).unwrap(), want);
    let bools = Tensor::from_bools(&[3], &[true, false, true]).unwrap();
    assert_eq!(parse_npy(&npy(1, "'|b1'", false, "(3,)", 0, &[1, 0, 1])).unwrap(), bools);
    // A header whose length is negative as a signed 16-bit number, and wider lengths.
    for (version, room) in [(1, 40_000), (2, 0), (2, 70_000), (3, 0)] {
        let bytes = npy(version, "'<f4'", false, "(2,)", room, &le(&[1., 2.]));
        assert_eq!(parse_npy(&bytes).unwrap(), t(&[2], &[1., 2.]), "version {version}, header of {room}");
        for cut in [bytes.len() - 1, bytes.len() - 8, 11, 9, 5] {
            assert!(parse_npy(&bytes[..cut]).is_err(), "version {version} cut at {cut}");
        }
    }
    // Objects could be anything; strings are no numbers; structures have several.
    for descr in ["'|O'", "'<U3'", "'|S3'", "[('a', '<f4'), ('b', '<i4')]", "'<M8[s]'"] {
        assert!(parse_npy(&npy(1, descr, false, "(1,)", 0, &[0; 64])).is_err(), "{descr}");
    }
    // Sizes that no file has.
    for shape in ["(9223372036854775807, 4)", "(4294967296, 4294967296)", "(-1,)"] {
        assert!(parse_npy(&npy(1, "'<f4'", false, shape, 0, &[])).is_err(), "{shape}");
    }
}

#[test]
fn f5_members_of_numpy_archives() {
    let dir = std::env::temp_dir().join(format!("rlx-npz-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("members.npz");
    let mut zip = zip::ZipWriter::new(File::create(&path).unwrap());
    let mut put = |name: &str, method, data: &[f32]| {
        zip.start_file(name, zip::write::SimpleFileOptions::default().compression_method(method)).unwrap();
        zip.write_all(&npy(1, "'<f4'", false, &format!("({},)", data.len()), 0, &le(data))).unwrap();
    };
    put("stored.npy", zip::CompressionMethod::Stored, &[1.0]);
    put("deflated.npy", zip::CompressionMethod::Deflated, &[2.0; 500]);
    put("block/0/weight.npy", zip::CompressionMethod::Stored, &[3.0]);
    put("notes.txt", zip::CompressionMethod::Stored, &[]);
    zip.finish().unwrap();
    let read = read_npz(&path).unwrap();
    let names: Vec<&str> = read.iter().map(|(n, _)| n.as_str()).collect();
    assert_eq!(names, ["block/0/weight", "deflated", "stored"]);
    assert_eq!(read[1].1.as_slice::<f32>().unwrap().to_vec(), vec![2.0; 500]);
    // Cut anywhere it is refused, never empty and right.
    let bytes = std::fs::read(&path).unwrap();
    for cut in (0..bytes.len()).step_by(97) {
        std::fs::write(&path, &bytes[..cut]).unwrap();
        assert!(read_npz(&path).is_err(), "cut at {cut}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
