//! network-get and unit-get.

use super::{Answer, Args, Output, failure, usage};
use crate::context::Context;
use crate::data::{Data, map, text, texts};
use crate::model::{Model, app_of};

impl Model {
    pub(super) fn network_get(&self, context: &Context, args: &Args) -> Answer {
        let Some(binding) = args.at_most(1)? else { return Err(usage("no arguments specified")) };
        if let Some(given) = args.value("relation") {
            self.relation_argument(context, &given)?;
        }
        let known =
            self.applications.get(app_of(&context.unit)).is_some_and(|app| app.charm.has_binding(binding));
        let network = self
            .units
            .get(&context.unit)
            .and_then(|unit| self.machines.get(&unit.machine))
            .and_then(|machine| machine.network.as_ref());
        let (true, Some(network)) = (known, network) else {
            return Err(failure(format!("no network config found for binding {binding:?}")));
        };
        let address = &network.address;
        let egress = format!("{address}/32");
        let mut one = Vec::new();
        if args.flag("bind-address") || args.flag("primary-address") {
            one.push(("bind-address", text(address)));
        }
        if args.flag("egress-subnets") {
            one.push(("egress-subnets", texts([&egress])));
        }
        if args.flag("ingress-address") {
            one.push(("ingress-address", text(address)));
        }
        if one.len() == 1 {
            let (_, value) = one.remove(0);
            let value = if let Data::List(mut items) = value { items.remove(0) } else { value };
            return Ok(Output::Show(value));
        }
        if !one.is_empty() {
            return Ok(Output::Show(Data::Map(
                one.into_iter().map(|(key, value)| (key.into(), value)).collect(),
            )));
        }
        let whole = |legacy: bool| {
            let mut entry =
                map([("hostname", text(address)), ("value", text(address)), ("cidr", text(&network.cidr))]);
            let mut bind =
                map([("mac-address", text(&network.mac)), ("interface-name", text(&network.interface))]);
            if legacy {
                entry.push("address", text(address));
            }
            bind.push("addresses", Data::List(vec![entry]));
            if legacy {
                bind.push("macaddress", text(&network.mac));
                bind.push("interfacename", text(&network.interface));
            }
            map([
                ("bind-addresses", Data::List(vec![bind])),
                ("egress-subnets", texts([&egress])),
                ("ingress-addresses", texts([address])),
            ])
        };
        Ok(Output::Differ { json: whole(false), other: whole(true) })
    }

    pub(super) fn unit_get(&self, context: &Context, args: &Args) -> Answer {
        match args.at_most(1)? {
            None => Err(usage("no setting specified")),
            Some("private-address" | "public-address") => {
                Ok(Output::Show(text(self.unit_address(&context.unit))))
            }
            Some(other) => Err(usage(format!("unknown setting {other:?}"))),
        }
    }
}
