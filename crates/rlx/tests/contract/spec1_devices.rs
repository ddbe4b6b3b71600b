//! Section 1: devices, the registry, backends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rlx::{Availability, Builder, CompileError, DType, Device, Error, Session, backend_for, register_backend};

use crate::backends::Lesser;
use crate::harness::{f32s, two_outputs};

#[test]
fn spec_1_sixteen_devices_display_and_parse_with_aliases() {
    assert_eq!(Device::ALL.len(), 16);
    for d in Device::ALL {
        assert_eq!(d.to_string().parse::<Device>().unwrap(), d);
        assert_eq!(d.cargo_feature(), if d == Device::Hexagon { "qnn".to_string() } else { d.to_string() });
    }
    let aliases = [
        ("mps", Device::Metal),
        ("nvidia", Device::Cuda),
        ("hip", Device::Rocm),
        ("coreml", Device::Ane),
        ("wgpu", Device::WebGpu),
        ("vk", Device::Vulkan),
        ("l0", Device::OneApi),
        ("qnn", Device::Hexagon),
    ];
    for (alias, d) in aliases {
        assert_eq!(alias.parse::<Device>().unwrap(), d);
    }
    let e = "quantum".parse::<Device>().unwrap_err().to_string();
    assert!(Device::ALL.iter().all(|d| e.contains(d.name())), "{e}");
}

#[test]
fn spec_1_availability_tells_four_states_apart() {
    let off = Availability::FeatureOff { device: Device::Cpu }.to_string();
    let none = Availability::NoDevice { device: Device::Cuda, looked_for: "libcuda.so.1".into() }.to_string();
    let unregistered = Availability::NoBackend { device: Device::Cpu }.to_string();
    let there = Availability::Available { device: Device::Cpu }.to_string();
    assert!(off.contains("feature `cpu` is off"), "{off}");
    assert!(none.contains("no such device or no driver") && none.contains("libcuda.so.1"), "{none}");
    assert!(unregistered.contains("register_backend"), "{unregistered}");
    assert!(there.contains("available"), "{there}");
    let mut all = vec![off, none, unregistered, there];
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 4);
}

#[test]
fn spec_1_a_device_without_a_backend_says_how_to_register_one() {
    // Devices that no test registers a backend for.
    for d in [Device::Ane, Device::Cuda, Device::Rocm, Device::Xdna] {
        assert!(!rlx::feature_compiled(d) && !rlx::is_available(d));
        let e = Session::new(d).unwrap_err();
        assert!(matches!(&e, Error::Unavailable(Availability::NoBackend { device }) if *device == d));
        let text = e.to_string();
        assert!(text.contains(&format!("register_backend(Device::{d:?}")) && text.contains("not probed"), "{text}");
    }
}

#[test]
fn spec_1_the_last_registration_wins() {
    register_backend(Device::Egpu, Arc::new(Lesser::new("first")));
    let old = Session::new(Device::Egpu).unwrap();
    register_backend(Device::Egpu, Arc::new(Lesser::new("second")));
    let new = Session::new(Device::Egpu).unwrap();
    let name = |s: &Session| s.compile(two_outputs()).unwrap().report().target.clone();
    // A session keeps what it was made with.
    assert_eq!((name(&old), name(&new)), ("first".to_string(), "second".to_string()));
    assert!(rlx::registered_devices().contains(&Device::Egpu) && rlx::is_available(Device::Egpu));
}

#[test]
fn spec_1_concurrent_registration_is_safe() {
    std::thread::scope(|s| {
        for n in 0..16 {
            s.spawn(move || {
                for _ in 0..200 {
                    register_backend(Device::Tpu, Arc::new(Lesser::new(if n % 2 == 0 { "even" } else { "odd" })));
                    let target = backend_for(Device::Tpu).unwrap().claims(Device::Tpu).target;
                    assert!(target == "even" || target == "odd");
                    assert!(rlx::registered_devices().contains(&Device::Tpu));
                }
            });
        }
    });
    let x = f32s(&[2], &[0.0, 1.0]);
    let out = Session::new(Device::Tpu).unwrap().compile(two_outputs()).unwrap().run_tensors(&[("x", &x)]).unwrap();
    assert_eq!(out.len(), 3);
}

#[test]
fn spec_1_one_backend_serves_several_devices() {
    let backend = Arc::new(Lesser::new("both"));
    register_backend(Device::OpenGl, backend.clone());
    register_backend(Device::DirectX, backend.clone());
    for d in [Device::OpenGl, Device::DirectX] {
        let p = Session::new(d).unwrap().compile(two_outputs()).unwrap();
        assert_eq!(p.device(), d);
    }
    assert_eq!(backend.compiled.load(Ordering::Relaxed), 2);
}

#[test]
fn spec_1_what_is_not_claimed_is_decomposed_before_the_backend_is_called() {
    register_backend(Device::OneApi, Arc::new(Lesser { without: &["softmax"], ..Lesser::new("no softmax") }));
    let p = Session::new(Device::OneApi).unwrap().compile(two_outputs()).unwrap();
    assert_eq!(p.report().count("legalise", "softmax"), 1, "{}", p.report());
    let x = f32s(&[3], &[0.0, 1.0, -2.0]);
    let want = Session::new(Device::Cpu).unwrap().compile(two_outputs()).unwrap().run_tensors(&[("x", &x)]).unwrap();
    crate::harness::same(&want, &p.run_tensors(&[("x", &x)]).unwrap(), "decomposed");
}

#[test]
fn spec_1_what_cannot_be_decomposed_is_one_error_that_lists_every_op() {
    let backend = Lesser { without: &["exp", "sort"], ..Lesser::new("poor") };
    register_backend(Device::Gpu, Arc::new(backend));
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [8]).unwrap();
    let a = b.exp(x).unwrap();
    let (s, _) = b.sort(a, 0, false).unwrap();
    let c = b.exp(s).unwrap();
    b.output("y", c).unwrap();
    match Session::new(Device::Gpu).unwrap().compile(b.finish()) {
        Err(Error::Compile(CompileError::Unsupported { target, ops })) => {
            let names: Vec<&str> = ops.iter().map(|(n, _)| n.op.as_str()).collect();
            assert_eq!((target.as_str(), names.len()), ("poor", 3), "{names:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn spec_1_a_backend_that_claims_nothing_supports_nothing() {
    let mut claims = crate::backends::cpu().claims(Device::Cpu);
    claims.ops.clear();
    let m = rlx::Module::from_graph(two_outputs());
    let e = rlx::compile::compile_module(&m, &claims, &rlx::CompileOptions::new()).unwrap_err();
    assert!(matches!(e, CompileError::Unsupported { .. }), "{e}");
}
