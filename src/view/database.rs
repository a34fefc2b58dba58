//! The web node's database, over either interface.

use crate::juju::tools::Bag;
use crate::parse::HostPort;
use crate::render::web::Postgres;
use crate::world::World;

/// Name of the database that the charm asks for.
pub const NAME: &str = "concourse";

/// What is known of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// No relation.
    None,
    /// Related over both interfaces at once.
    Ambiguous,
    /// The other side has not said everything yet.
    Waiting(&'static str),
    /// The other side said something that can't be used.
    Bad(String),
    /// All that is needed to connect.
    Ready(Box<Postgres>),
}

/// Reads the relation that there is.
pub fn database(world: &World) -> Database {
    let modern = world.memory.one("database");
    let legacy = world.memory.one("postgresql");
    match (modern, legacy) {
        (None, None) => Database::None,
        (Some(_), Some(_)) => Database::Ambiguous,
        (Some((_, relation)), None) => modern_database(world, &relation.app_bag),
        (None, Some((id, relation))) => {
            let asked = world.committed.unit_bags.contains_key(id);
            let unit = world.unit.to_string();
            legacy_database(relation.units.values(), &unit, asked)
        }
    }
}

/// The ids of the secrets that `database` names.
pub fn secret_ids(app_bag: &Bag) -> impl Iterator<Item = &str> {
    ["secret-user", "secret-tls"].into_iter().filter_map(|key| app_bag.get(key)).map(String::as_str)
}

fn modern_database(world: &World, bag: &Bag) -> Database {
    let Some(endpoints) = text(bag, "endpoints") else {
        return Database::Waiting("the database to be created");
    };
    // From secrets; from the bag itself where the other side knows no secrets.
    let from_secret = |key: &str| match bag.get(key) {
        Some(id) => world.memory.secret(id).map(Some),
        None => Some(None),
    };
    let (Some(user), Some(tls)) = (from_secret("secret-user"), from_secret("secret-tls")) else {
        return Database::Waiting("access to the database's secret");
    };
    let (user, tls) = (user.unwrap_or(bag), tls.unwrap_or(bag));
    let (Some(name), Some(password)) = (text(user, "username"), text(user, "password")) else {
        return Database::Waiting("the database's user and password");
    };
    let encrypted = text(tls, "tls").is_some_and(|t| t.eq_ignore_ascii_case("true"));
    finish(
        Postgres {
            hosts: vec![],
            user: name.to_owned(),
            password: password.to_owned(),
            database: text(bag, "database").unwrap_or(NAME).to_owned(),
            ca: text(tls, "tls-ca").filter(|_| encrypted).map(str::to_owned),
            tls: encrypted,
        },
        endpoints,
    )
}

fn legacy_database<'a>(units: impl Iterator<Item = &'a Bag>, unit: &str, asked: bool) -> Database {
    if !asked {
        return Database::Waiting("the database to be asked for");
    }
    let mut units: Vec<&Bag> = units.filter(|bag| text(bag, "host").is_some()).collect();
    // Reads and writes go to the primary.
    units.sort_by_key(|bag| !matches!(text(bag, "state"), Some("master" | "standalone") | None));
    let Some(bag) = units.into_iter().find(|bag| {
        let allowed =
            text(bag, "allowed-units").is_none_or(|list| list.split_whitespace().any(|u| u == unit));
        allowed && text(bag, "database") == Some(NAME)
    }) else {
        return Database::Waiting("the database to be created");
    };
    let (Some(host), Some(user), Some(password)) =
        (text(bag, "host"), text(bag, "user"), text(bag, "password"))
    else {
        return Database::Waiting("the database's user and password");
    };
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let endpoint = format!("{host}:{}", text(bag, "port").unwrap_or("5432"));
    finish(
        Postgres {
            hosts: vec![],
            user: user.to_owned(),
            password: password.to_owned(),
            database: NAME.to_owned(),
            ca: None,
            tls: false,
        },
        &endpoint,
    )
}

fn finish(mut postgres: Postgres, endpoints: &str) -> Database {
    let hosts: Result<Vec<HostPort>, _> = endpoints.split(',').map(|e| e.trim().parse()).collect();
    match hosts {
        Ok(hosts) => postgres.hosts = hosts,
        Err(why) => return Database::Bad(format!("endpoints that are bad: {why}")),
    }
    for (what, value) in
        [("username", &postgres.user), ("password", &postgres.password), ("database", &postgres.database)]
    {
        if value.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
            return Database::Bad(format!("a {what} with a control character, which systemd can't hand on"));
        }
    }
    if postgres.ca.as_ref().is_some_and(|ca| !ca.contains("-----BEGIN CERTIFICATE-----")) {
        return Database::Bad("a tls-ca that is no PEM certificate".to_owned());
    }
    Database::Ready(Box::new(postgres))
}

fn text<'a>(bag: &'a Bag, key: &str) -> Option<&'a str> {
    bag.get(key).map(String::as_str).filter(|value| !value.is_empty())
}
