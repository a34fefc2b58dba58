//! `/etc/concourse/gpu.json`: what the options say about GPUs. One type for the charm, which writes it, and
//! `concourse-gpu`, which reads it (PURE).

use crate::oci::devices::Vendor;
use crate::oci::policy::Access;
use serde::{Deserialize, Serialize};

/// Where it is.
pub const PATH: &str = "/etc/concourse/gpu.json";

/// In the order in which they are told.
pub const VENDORS: [Vendor; 3] = [Vendor::Nvidia, Vendor::Amd, Vendor::Intel];

/// The whole file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Whose GPUs are used: of `enable-gpu` and `compute-runtime`. Empty: nobody's.
    pub vendors: Vec<Vendor>,
    /// `gpu-device-ids`, as they were given; `None`: all.
    #[serde(default)]
    pub units: Option<Vec<String>>,
    /// `gpu-access`, a tag.
    pub access: Access,
    /// `gpu-persistence-mode`: NVIDIA's driver stays loaded between tasks.
    #[serde(default)]
    pub persistence: bool,
}

impl Wanted {
    /// What a worker without GPUs wants.
    pub fn nothing() -> Self {
        Self { vendors: vec![], units: None, access: Access::Shared, persistence: false }
    }

    /// Whether GPUs of this vendor are used.
    pub fn has(&self, vendor: Vendor) -> bool {
        self.vendors.contains(&vendor)
    }
}
