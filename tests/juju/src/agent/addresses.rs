//! The machine's own addresses.

use crate::model::Network;
use nix::ifaddrs::getifaddrs;
use std::net::{IpAddr, Ipv4Addr};

/// The network of the address by which the controller is reached, and all addresses of the machine.
pub fn look(reached_by: IpAddr) -> (Network, Vec<String>) {
    let mut network = Network { address: reached_by.to_string(), ..Network::default() };
    let mut all = Vec::new();
    let interfaces: Vec<_> = getifaddrs().map(Iterator::collect).unwrap_or_default();
    for interface in &interfaces {
        let Some(address) = interface.address.as_ref().and_then(|a| a.as_sockaddr_in()).map(|a| a.ip())
        else {
            continue;
        };
        if !address.is_loopback() {
            all.push(address.to_string());
        }
        if IpAddr::V4(address) == reached_by {
            network.interface = interface.interface_name.clone();
            let mask =
                interface.netmask.as_ref().and_then(|mask| mask.as_sockaddr_in()).map(|mask| mask.ip());
            network.cidr = cidr(address, mask.unwrap_or(Ipv4Addr::BROADCAST));
        }
    }
    let own = |name: &str| {
        interfaces
            .iter()
            .find(|i| i.interface_name == name && i.address.is_some_and(|a| a.as_link_addr().is_some()))
    };
    let mac = own(&network.interface).and_then(|i| i.address?.as_link_addr()?.addr());
    if let Some(bytes) = mac {
        network.mac = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":");
    }
    all.sort();
    (network, all)
}

fn cidr(address: Ipv4Addr, mask: Ipv4Addr) -> String {
    let bits = u32::from(mask);
    format!("{}/{}", Ipv4Addr::from(u32::from(address) & bits), bits.count_ones())
}

/// What differs after each boot: the kernel's own mark, and when PID 1 began (a container shares the mark).
pub fn boot_id() -> String {
    let mark = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let stat = std::fs::read_to_string("/proc/1/stat").unwrap_or_default();
    let began = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19)).unwrap_or_default();
    format!("{}-{began}", mark.trim())
}
