use crate::ops::testing::{arange, fails, run_static, run1, t};

#[test]
fn gather_takes_slices() {
    let i = t(&[2, 1], &[-1i32, 0]);
    let y = run1(&[arange(&[2, 3]), i], |b, x| b.gather(x[0], x[1], 1));
    assert_eq!(y, t(&[2, 2, 1], &[2f32, 0., 5., 3.]));
    assert_eq!(run1(&[arange(&[2, 3]), t(&[0], &[0i64; 0])], |b, x| b.gather(x[0], x[1], 0)).dims(), &[0, 3]);
}

#[test]
fn gather_refuses_indices_out_of_range() {
    for i in [3i64, -4, i64::MIN, i64::MAX] {
        let e = fails(&[arange(&[3]), t(&[1], &[i])], |b, x| b.gather(x[0], x[1], 0));
        assert!(e.contains("out of range") && e.contains("gather"), "{e}");
        // Constant indices of a constant axis are refused when the graph is built.
        let e = run_static(&[arange(&[3])], |b, x| {
            let c = b.constant(t(&[1], &[i]))?;
            let built = b.gather(x[0], c, 0);
            assert!(built.is_err());
            built.map(|v| vec![v])
        });
        assert!(e.unwrap_err().to_string().contains("out of range"));
    }
}
