//! The registry of backends: which device is served by what. Other crates add to it at any time; the last registration wins.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use rlx_compile::target::Backend;
use rlx_driver::{Availability, Device};

use crate::error::{Error, Result};

type Table = BTreeMap<Device, Arc<dyn Backend>>;

fn table() -> &'static RwLock<Table> {
    static TABLE: OnceLock<RwLock<Table>> = OnceLock::new();
    TABLE.get_or_init(|| {
        #[allow(unused_mut)]
        let mut table = Table::new();
        #[cfg(feature = "cpu")]
        table.insert(Device::Cpu, Arc::new(rlx_cpu::CpuBackend));
        RwLock::new(table)
    })
}

/// Makes a backend serve a device from now on, in place of any other.
pub fn register_backend(device: Device, backend: Arc<dyn Backend>) {
    table().write().unwrap_or_else(PoisonError::into_inner).insert(device, backend);
}

/// The backend of a device, or why there is none.
pub fn backend_for(device: Device) -> Result<Arc<dyn Backend>> {
    let backend = table().read().unwrap_or_else(PoisonError::into_inner).get(&device).cloned();
    backend.ok_or_else(|| Error::Unavailable(availability(device)))
}

/// Devices that have a backend, in order.
pub fn registered_devices() -> Vec<Device> {
    table().read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
}

/// Whether programs can be compiled for a device, and if not, what is missing.
pub fn availability(device: Device) -> Availability {
    let registered = table().read().unwrap_or_else(PoisonError::into_inner).contains_key(&device);
    if registered {
        return Availability::Available { device };
    }
    rlx_driver::host_availability(device).with_registry(false)
}

/// True if programs can be compiled for a device.
pub fn is_available(device: Device) -> bool {
    availability(device).is_available()
}

/// True if this build holds a backend of ours for the device.
pub fn feature_compiled(device: Device) -> bool {
    rlx_driver::feature_compiled(device)
}
