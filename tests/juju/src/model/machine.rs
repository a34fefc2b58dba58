//! Machines and their addresses.

use serde::{Deserialize, Serialize};

/// A machine that an agent stands for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Its number.
    pub id: String,
    /// Its host name.
    pub hostname: String,
    /// The boot that the agent last reported.
    pub boot_id: String,
    /// Its network, once known.
    pub network: Option<Network>,
    /// All its addresses: a change of the set fires config-changed.
    pub addresses: Vec<String>,
    /// Whether its agent is connected.
    #[serde(skip)]
    pub connected: bool,
    /// Whether an agent has ever been connected.
    pub started: bool,
    /// The context that runs on it now: one hook at a time.
    pub running: Option<String>,
    /// Where its agent keeps its files (`/var/lib/juju`).
    pub data_dir: String,
    /// Whether a hook asked for a boot.
    pub reboot: bool,
    /// Directories of units that are gone.
    pub removed_units: Vec<String>,
}

/// The interface by which a machine is reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Name of the interface.
    pub interface: String,
    /// Its hardware address.
    pub mac: String,
    /// Its address.
    pub address: String,
    /// The network it is in.
    pub cidr: String,
}

impl Network {
    /// A made-up network for a machine that has no agent.
    pub fn made_up(number: u32) -> Network {
        Network {
            interface: "eth0".into(),
            mac: format!("00:16:3e:00:00:{:02x}", number + 11),
            address: format!("10.0.0.{}", number + 11),
            cidr: "10.0.0.0/24".into(),
        }
    }
}

impl Machine {
    /// Its address, or nothing.
    pub fn address(&self) -> &str {
        self.network.as_ref().map_or("", |network| &network.address)
    }
}
