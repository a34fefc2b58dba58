//! Who listens where, and which port is left for the web node.

use crate::parse::Invalid;
use std::collections::BTreeMap;

/// Where workers register: the port of the TSA, which no option changes.
pub const TSA_PORT: u16 = 2222;
/// Where the web node shows its metrics, if they are enabled.
pub const METRICS_PORT: u16 = 9391;
/// Where a web node and its TSA show how they are doing, and Concourse's default.
const WEB_PORTS: [(&str, u16); 2] =
    [("CONCOURSE_DEBUG_BIND_PORT", 8079), ("CONCOURSE_TSA_DEBUG_BIND_PORT", 2221)];
/// What a worker listens on, and Concourse's default.
pub const WORKER_PORTS: [(&str, u16); 5] = [
    ("CONCOURSE_BIND_PORT", 7777),
    ("CONCOURSE_BAGGAGECLAIM_BIND_PORT", 7788),
    ("CONCOURSE_HEALTHCHECK_BIND_PORT", 8888),
    ("CONCOURSE_DEBUG_BIND_PORT", 7776),
    ("CONCOURSE_BAGGAGECLAIM_DEBUG_BIND_PORT", 7787),
];
/// From a port of the first worker to that of the second.
pub const APART: u16 = 10_000;

/// A port that a web node can have, whatever else runs.
pub(super) fn usable_port(port: i64, metrics: Option<bool>) -> Result<u16, Invalid> {
    match u16::try_from(port) {
        Ok(TSA_PORT) => {
            Err(Invalid::new(format!("{port} is where workers register; use another port, such as 8080")))
        }
        Ok(METRICS_PORT) if metrics == Some(true) => Err(Invalid::new(format!(
            "{port} is where metrics are shown; use another port, or set enable-metrics=false"
        ))),
        Ok(port @ 1..) => Ok(port),
        _ => Err(Invalid::new(format!("{port} is not a port; use 1 to 65535"))),
    }
}

/// Neither the web node's other ports nor those of a worker beside it, where the operator has not moved them.
pub(super) fn free_port(port: u16, env: &BTreeMap<String, String>, workers: &[u16]) -> Result<u16, Invalid> {
    let at =
        |(name, usual): &(&str, u16)| env.get(*name).and_then(|port| port.parse().ok()).unwrap_or(*usual);
    let of_workers =
        workers.iter().flat_map(|apart| WORKER_PORTS.iter().map(move |own| at(own).saturating_add(*apart)));
    if WEB_PORTS.iter().map(at).chain(of_workers).any(|taken| taken == port) {
        return Err(Invalid::new(format!(
            "{port} is a port of Concourse's own; use another port, such as 8080"
        )));
    }
    Ok(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_web_port_beside_a_worker_is_none_of_its_ports() {
        let clash = |port: u16, env: &[(&str, &str)], workers: &[u16]| {
            let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            free_port(port, &env, workers).is_err()
        };
        let moved = &[("CONCOURSE_HEALTHCHECK_BIND_PORT", "9999")];
        assert!(clash(8888, &[], &[0]));
        assert!(!clash(8888, &[], &[]), "no worker is there");
        assert!(!clash(8888, moved, &[0]));
        assert!(clash(9999, moved, &[0]));
        assert!(!clash(18888, &[], &[0]), "no second worker is there");
        assert!(clash(18888, &[], &[0, APART]));
        assert!(clash(8079, &[], &[]) && clash(2221, &[], &[]));
        assert!(!clash(8079, &[("CONCOURSE_DEBUG_BIND_PORT", "8078")], &[]));
    }
}
