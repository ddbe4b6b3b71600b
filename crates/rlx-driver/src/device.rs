//! Devices that a program can be compiled for, and whether this build and this host have them.
//!
//! `Device` is a name, not a handle: it says which backend to ask for. What the driver knows of a device (was the
//! feature compiled, was hardware found) is `host_availability`; whether a backend stands ready is known by the
//! registry in `rlx-runtime`, which folds its answer in with [`Availability::with_registry`].
//!
//! Invariant: a device for which this repository has no backend has no cargo feature of ours and is never probed, so
//! nothing here can claim to have looked for it.

use std::fmt;
use std::str::FromStr;

/// A kind of device that a backend can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Device {
    /// The host processor.
    Cpu,
    /// Apple GPUs through Metal.
    Metal,
    /// Apple silicon through the MLX library.
    Mlx,
    /// The Apple Neural Engine, through Core ML.
    Ane,
    /// NVIDIA GPUs.
    Cuda,
    /// AMD GPUs.
    Rocm,
    /// AMD XDNA neural processors.
    Xdna,
    /// A GPU attached from outside the machine.
    Egpu,
    /// Intel GPUs through oneAPI (Level Zero, SYCL).
    OneApi,
    /// Google tensor processors.
    Tpu,
    /// Qualcomm Hexagon neural processors, through QNN.
    Hexagon,
    /// Any GPU, whichever interface reaches it.
    Gpu,
    /// GPUs through Vulkan compute.
    Vulkan,
    /// GPUs through OpenGL compute.
    OpenGl,
    /// GPUs through DirectX 12.
    DirectX,
    /// GPUs through the WebGPU interface.
    WebGpu,
}

impl Device {
    /// Every device, in declaration order.
    pub const ALL: [Device; 16] = [
        Device::Cpu,
        Device::Metal,
        Device::Mlx,
        Device::Ane,
        Device::Cuda,
        Device::Rocm,
        Device::Xdna,
        Device::Egpu,
        Device::OneApi,
        Device::Tpu,
        Device::Hexagon,
        Device::Gpu,
        Device::Vulkan,
        Device::OpenGl,
        Device::DirectX,
        Device::WebGpu,
    ];

    /// The name that `Display` prints and `FromStr` reads: lower case, no separators.
    pub const fn name(self) -> &'static str {
        match self {
            Device::Cpu => "cpu",
            Device::Metal => "metal",
            Device::Mlx => "mlx",
            Device::Ane => "ane",
            Device::Cuda => "cuda",
            Device::Rocm => "rocm",
            Device::Xdna => "xdna",
            Device::Egpu => "egpu",
            Device::OneApi => "oneapi",
            Device::Tpu => "tpu",
            Device::Hexagon => "hexagon",
            Device::Gpu => "gpu",
            Device::Vulkan => "vulkan",
            Device::OpenGl => "opengl",
            Device::DirectX => "directx",
            Device::WebGpu => "webgpu",
        }
    }

    /// Other names that `FromStr` accepts.
    ///
    /// `wgpu` means [`Device::WebGpu`], the interface that library implements, not [`Device::Gpu`]. `npu` is nobody's
    /// alias: four makers ship one, so it parses to an error that lists them.
    pub const fn aliases(self) -> &'static [&'static str] {
        match self {
            Device::Cpu => &["host"],
            Device::Metal => &["mps"],
            Device::Mlx => &[],
            Device::Ane => &["coreml", "neuralengine"],
            Device::Cuda => &["nvidia"],
            Device::Rocm => &["hip", "amdgpu"],
            Device::Xdna => &["ryzenai"],
            Device::Egpu => &[],
            Device::OneApi => &["l0", "levelzero", "sycl", "xpu"],
            Device::Tpu => &[],
            Device::Hexagon => &["qnn", "htp"],
            Device::Gpu => &[],
            Device::Vulkan => &["vk"],
            Device::OpenGl => &["gl"],
            Device::DirectX => &["dx", "dx12", "d3d12", "directx12"],
            Device::WebGpu => &["wgpu"],
        }
    }

    /// The cargo feature that a backend for this device stands behind: the device's name, except `qnn` for Hexagon.
    ///
    /// The name is fixed for all sixteen so that backend crates agree on it; see [`Device::has_own_backend`] for
    /// whether this repository offers the feature.
    pub const fn cargo_feature(self) -> &'static str {
        match self {
            Device::Hexagon => "qnn",
            other => other.name(),
        }
    }

    /// Whether this repository contains a backend for the device (and hence a cargo feature for it).
    pub const fn has_own_backend(self) -> bool {
        matches!(self, Device::Cpu)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no single device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseDeviceError {
    /// No device has this name or alias.
    #[error("unknown device {text:?}; known devices: {}", known_names())]
    Unknown {
        /// The text as given, shortened.
        text: String,
    },
    /// Several devices could be meant.
    #[error("device {text:?} could mean several devices; say one of: ane, xdna, hexagon, tpu")]
    Ambiguous {
        /// The text as given, shortened.
        text: String,
    },
}

fn known_names() -> String {
    Device::ALL.map(Device::name).join(", ")
}

impl FromStr for Device {
    type Err = ParseDeviceError;

    /// Reads a name or an alias, ignoring case, surrounding space and the separators `-`, `_` and space.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let shortened = || text.chars().take(64).collect::<String>();
        let key: String =
            text.trim().chars().filter(|c| !matches!(c, '-' | '_' | ' ')).map(|c| c.to_ascii_lowercase()).collect();
        if key == "npu" {
            return Err(ParseDeviceError::Ambiguous { text: shortened() });
        }
        Device::ALL
            .into_iter()
            .find(|d| d.name() == key || d.aliases().contains(&key.as_str()))
            .ok_or_else(|| ParseDeviceError::Unknown { text: shortened() })
    }
}

/// Whether a program can run on a device, and if not, what is missing. `Display` says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Availability {
    /// This repository has a backend, but the feature that compiles it in is off.
    FeatureOff {
        /// The device asked for.
        device: Device,
    },
    /// The feature is on, but the host has no such device, or no driver for it.
    NoDevice {
        /// The device asked for.
        device: Device,
        /// What was looked for and not found, as the prober puts it.
        looked_for: String,
    },
    /// Nothing stands in the way but that no backend is registered.
    NoBackend {
        /// The device asked for.
        device: Device,
    },
    /// A program can be compiled and run.
    Available {
        /// The device asked for.
        device: Device,
    },
}

impl Availability {
    /// The device this speaks of.
    pub const fn device(&self) -> Device {
        match self {
            Availability::FeatureOff { device }
            | Availability::NoDevice { device, .. }
            | Availability::NoBackend { device }
            | Availability::Available { device } => *device,
        }
    }

    /// True only for [`Availability::Available`].
    pub const fn is_available(&self) -> bool {
        matches!(self, Availability::Available { .. })
    }

    /// Folds in what a backend registry knows.
    ///
    /// A registered backend makes its device available whatever our features are, since it may come from another
    /// crate; without one, a device that the driver has no objection to lacks only a backend.
    pub fn with_registry(self, backend_registered: bool) -> Availability {
        match self {
            known if backend_registered => Availability::Available { device: known.device() },
            Availability::Available { device } => Availability::NoBackend { device },
            other => other,
        }
    }
}

impl fmt::Display for Availability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Availability::FeatureOff { device } => write!(
                f,
                "{device} is not compiled into this build: the cargo feature `{0}` is off; build with `--features {0}`",
                device.cargo_feature()
            ),
            Availability::NoDevice { device, looked_for } => write!(
                f,
                "{device} is compiled in, but this host has no such device or no driver for it ({looked_for}); \
                 install the driver or choose another device"
            ),
            Availability::NoBackend { device } if device.has_own_backend() => write!(
                f,
                "{device} is present, but no backend is registered for it; register one with \
                 `register_backend(Device::{device:?}, ...)` before making a session"
            ),
            Availability::NoBackend { device } => write!(
                f,
                "no backend is registered for {device}, and RLX ships none for it (so it has no cargo feature and the \
                 host was not probed); add a crate that has one and register it with \
                 `register_backend(Device::{device:?}, ...)` before making a session"
            ),
            Availability::Available { device } => write!(f, "{device} is available"),
        }
    }
}

/// Whether a backend of this repository for `device` is compiled into this build.
///
/// Always false for a device without one, whatever other crates register.
pub const fn feature_compiled(device: Device) -> bool {
    cfg!(feature = "cpu") && matches!(device, Device::Cpu)
}

/// What this build and this host say of `device`, before any registry is asked.
pub fn host_availability(device: Device) -> Availability {
    if !device.has_own_backend() {
        Availability::NoBackend { device }
    } else if !feature_compiled(device) {
        Availability::FeatureOff { device }
    } else {
        // The host processor needs no probe: this code runs on it.
        Availability::Available { device }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_device_prints_and_parses_back() {
        assert_eq!(Device::ALL.iter().collect::<HashSet<_>>().len(), 16);
        for device in Device::ALL {
            assert_eq!(device.to_string().parse::<Device>(), Ok(device));
            assert_eq!(format!("{device:?}").parse::<Device>(), Ok(device));
            assert_eq!(device.to_string(), device.to_string().to_lowercase());
            assert_eq!(device.cargo_feature().parse::<Device>(), Ok(device));
        }
    }

    #[test]
    fn aliases_name_one_device_each() {
        let mut seen = HashSet::new();
        for device in Device::ALL {
            assert!(seen.insert(device.name()));
            for alias in device.aliases() {
                assert!(seen.insert(alias), "{alias} names two devices");
                assert_eq!(alias.parse::<Device>(), Ok(device));
            }
        }
        for (text, device) in [
            ("mps", Device::Metal),
            ("NVIDIA", Device::Cuda),
            ("hip", Device::Rocm),
            ("amdgpu", Device::Rocm),
            ("CoreML", Device::Ane),
            ("wgpu", Device::WebGpu),
            ("vk", Device::Vulkan),
            ("l0", Device::OneApi),
            ("level-zero", Device::OneApi),
            ("one_api", Device::OneApi),
            ("sycl", Device::OneApi),
            ("qnn", Device::Hexagon),
            ("d3d12", Device::DirectX),
            ("dx12", Device::DirectX),
            (" gl ", Device::OpenGl),
            ("Web-GPU", Device::WebGpu),
        ] {
            assert_eq!(text.parse::<Device>(), Ok(device), "{text}");
        }
    }

    #[test]
    fn texts_that_name_no_device_say_what_does() {
        for text in ["", "cpu:0", "quantum", "gpü"] {
            let message = text.parse::<Device>().unwrap_err().to_string();
            assert!(message.contains("webgpu") && message.contains(text), "{message}");
        }
        let message = "NPU".parse::<Device>().unwrap_err().to_string();
        assert!(message.contains("xdna"), "{message}");
        let long = "x".repeat(1 << 20).parse::<Device>().unwrap_err();
        assert!(long.to_string().len() < 400);
    }

    #[test]
    fn only_hexagon_has_a_feature_of_another_name() {
        for device in Device::ALL {
            let same = device.cargo_feature() == device.name();
            assert_eq!(same, device != Device::Hexagon);
        }
        assert_eq!(Device::Hexagon.cargo_feature(), "qnn");
    }

    #[test]
    fn host_availability_never_claims_a_probe() {
        for device in Device::ALL {
            let found = host_availability(device);
            assert_eq!(found.device(), device);
            if device == Device::Cpu {
                assert_eq!(found.is_available(), feature_compiled(device));
            } else {
                assert!(!feature_compiled(device));
                assert_eq!(found, Availability::NoBackend { device });
            }
        }
    }

    #[test]
    fn the_registry_decides_the_last_step() {
        let cuda = host_availability(Device::Cuda);
        assert!(cuda.clone().with_registry(true).is_available());
        assert_eq!(cuda.clone().with_registry(false), cuda);
        let cpu = Availability::Available { device: Device::Cpu };
        assert!(cpu.clone().with_registry(true).is_available());
        assert_eq!(cpu.with_registry(false), Availability::NoBackend { device: Device::Cpu });
        let off = Availability::FeatureOff { device: Device::Cpu };
        assert_eq!(off.clone().with_registry(false), off);
    }

    #[test]
    fn the_four_states_say_what_to_do() {
        let text = |a: Availability| a.to_string();
        let off = text(Availability::FeatureOff { device: Device::Cpu });
        assert!(off.contains("--features cpu"), "{off}");
        let none = text(Availability::NoDevice { device: Device::Cuda, looked_for: "libcuda.so.1".into() });
        assert!(none.contains("libcuda.so.1") && none.contains("driver"), "{none}");
        for device in Device::ALL {
            let free = text(Availability::NoBackend { device });
            assert!(free.contains(&format!("register_backend(Device::{device:?}")), "{free}");
            assert_eq!(free.contains("ships none"), device != Device::Cpu, "{free}");
        }
        let ok = text(Availability::Available { device: Device::Cpu });
        assert_eq!(ok, "cpu is available");
    }
}
