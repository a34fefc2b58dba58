//! open-port, close-port and opened-ports.

use super::{Answer, Args, Output, ToolError, failure, usage};
use crate::context::Context;
use crate::data::texts;
use crate::model::{Model, Port};
use std::collections::{BTreeMap, BTreeSet};

impl Port {
    /// `80/tcp`, `8000-8999/udp` or `icmp`.
    pub fn range(&self) -> String {
        match (self.protocol.as_str(), self.from == self.to) {
            ("icmp", _) => "icmp".into(),
            (protocol, true) => format!("{}/{protocol}", self.from),
            (protocol, false) => format!("{}-{}/{protocol}", self.from, self.to),
        }
    }

    fn conflicts(&self, other: &Port) -> bool {
        self.protocol == other.protocol && self.from <= other.to && other.from <= self.to
    }

    fn order(&self) -> (bool, &str, u32) {
        (self.protocol != "icmp", &self.protocol, self.from)
    }
}

fn parse(word: &str) -> Result<Port, ToolError> {
    if word.eq_ignore_ascii_case("icmp") {
        return Ok(Port { protocol: "icmp".into(), from: 0, to: 0, endpoint: String::new() });
    }
    let (range, protocol) = word.split_once('/').unwrap_or((word, "tcp"));
    let protocol = protocol.to_lowercase();
    let number = |text: &str| {
        text.parse::<i64>().map_err(|_| {
            usage(format!("invalid port {text:?}: strconv.Atoi: parsing {text:?}: invalid syntax"))
        })
    };
    let (from, to) = match range.split_once('-') {
        Some((from, to)) => (number(from)?, number(to)?),
        None => (number(range)?, number(range)?),
    };
    if protocol != "tcp" && protocol != "udp" {
        return Err(usage(format!("invalid protocol {protocol:?}, expected \"tcp\", \"udp\", or \"icmp\"")));
    }
    let bounds = 0..=65_535;
    if !bounds.contains(&from) || !bounds.contains(&to) || from > to {
        if from > to {
            return Err(usage(format!("invalid port range {from}-{to}")));
        }
        return Err(usage(format!("port range bounds must be between 0 and 65535, got {from}-{to}")));
    }
    Ok(Port { protocol, from: from as u32, to: to as u32, endpoint: String::new() })
}

impl Model {
    fn unit_ports(&self, context: &Context) -> BTreeSet<Port> {
        let stored = || self.units.get(&context.unit).map(|unit| unit.ports.clone()).unwrap_or_default();
        context.pending.ports.clone().unwrap_or_else(stored)
    }

    fn named_ports(args: &Args) -> Result<Vec<Port>, ToolError> {
        let Some(word) = args.at_most(1)? else { return Err(usage("no port or range specified")) };
        let port = parse(word)?;
        let endpoints = args.value("endpoints").unwrap_or_default();
        Ok(endpoints
            .split(',')
            .map(|endpoint| Port { endpoint: endpoint.trim().into(), ..port.clone() })
            .collect())
    }

    pub(super) fn open_port(&self, context: &mut Context, args: &Args) -> Answer {
        let mut ports = self.unit_ports(context);
        for port in Self::named_ports(args)? {
            self.check_conflict(context, &ports, &port)?;
            ports.insert(port);
        }
        context.pending.ports = Some(ports);
        Ok(Output::Silent)
    }

    fn check_conflict(&self, context: &Context, own: &BTreeSet<Port>, port: &Port) -> Result<(), ToolError> {
        let unit = &context.unit;
        let refuse = |other: &Port, whose: &str| {
            let (range, taken) = (port.range(), other.range());
            failure(format!(
                "cannot open {range} (unit {unit:?}): port range conflicts with {taken} (unit {whose:?})"
            ))
        };
        if let Some(taken) = own.iter().find(|other| other.conflicts(port) && other.range() != port.range()) {
            return Err(refuse(taken, unit));
        }
        let machine = self.units.get(unit).map(|unit| &unit.machine);
        for other in self.units.values().filter(|u| u.name != *unit && Some(&u.machine) == machine) {
            if let Some(taken) = other.ports.iter().find(|taken| taken.conflicts(port)) {
                return Err(refuse(taken, &other.name));
            }
        }
        Ok(())
    }

    pub(super) fn close_port(&self, context: &mut Context, args: &Args) -> Answer {
        let mut ports = self.unit_ports(context);
        for port in Self::named_ports(args)? {
            ports.retain(|open| {
                open.range() != port.range() || !(port.endpoint.is_empty() || open.endpoint == port.endpoint)
            });
        }
        context.pending.ports = Some(ports);
        Ok(Output::Silent)
    }

    pub(super) fn opened_ports(&self, context: &Context, args: &Args) -> Answer {
        args.at_most(0)?;
        let ports = self.unit_ports(context);
        Ok(Output::Show(texts(listed(&ports, args.flag("endpoints")))))
    }
}

/// Ports in Juju's order, icmp first; with their endpoints if asked.
pub fn listed(ports: &BTreeSet<Port>, endpoints: bool) -> Vec<String> {
    let mut sorted: Vec<&Port> = ports.iter().collect();
    sorted.sort_by_key(|port| port.order());
    let mut by_range: Vec<(String, Vec<&str>)> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for port in sorted {
        let range = port.range();
        let place = *places.entry(range.clone()).or_insert_with(|| {
            by_range.push((range, Vec::new()));
            by_range.len() - 1
        });
        by_range[place].1.push(if port.endpoint.is_empty() { "*" } else { &port.endpoint });
    }
    by_range
        .into_iter()
        .map(|(range, ends)| if endpoints { format!("{range} ({})", ends.join(", ")) } else { range })
        .collect()
}
