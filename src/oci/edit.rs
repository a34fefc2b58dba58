//! Additions to a bundle's config.json (PURE). Each owns its key: a node its path, a mount its destination, a variable
//! its name. What is there already in the same form stays untouched, so twice is once.

use super::Refusal;
use super::devices::{Hook, Mount, Node};
use super::exec::Equipment;
use super::json::{Tree, WrongType};
use serde_json::{Value, json};
use std::path::{Component, Path};

/// What a container gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Additions {
    /// Device nodes with their rules.
    pub nodes: Vec<Node>,
    /// Bind mounts.
    pub mounts: Vec<Mount>,
    /// Hooks.
    pub hooks: Vec<Hook>,
    /// What each process gets; kept in the bundle for those that come later.
    pub equipment: Option<Equipment>,
}

/// A mount of a bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounted {
    /// Where, as the bundle spells it.
    pub destination: String,
    /// From where; `None`: from nowhere, as proc.
    pub source: Option<String>,
}

impl Mounted {
    /// Where, in the one spelling of [`normal`].
    pub fn place(&self) -> String {
        normal(Path::new(&self.destination))
    }
}

/// What the wrapper has to know of a bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The environment, entries without `=` left out.
    pub env: Vec<(String, String)>,
    /// What is mounted where.
    pub mounts: Vec<Mounted>,
    /// `root.path`
    pub root: Option<String>,
    /// The container has a user namespace of its own.
    pub user_namespace: bool,
}

/// Looks. What is missing or of another type is as if it were not there: runc will say so.
pub fn look(config: &mut Tree<'_>) -> Seen {
    let mut seen = Seen::default();
    if let Some(env) = config.get("process").ok().flatten().and_then(|p| p.get("env").ok().flatten()) {
        seen.env = variables(env);
    }
    if let Ok(Some(mounts)) = config.get("mounts") {
        let mounted = |element: &mut Tree<'_>| {
            let source = text(element, "source");
            text(element, "destination").map(|destination| Mounted { destination, source })
        };
        seen.mounts = mounts.elements().into_iter().flatten().filter_map(mounted).collect();
    }
    if let Ok(Some(root)) = config.get("root") {
        seen.root = root.get("path").ok().flatten().and_then(|path| path.string());
    }
    if let Some(namespaces) =
        config.get("linux").ok().flatten().and_then(|l| l.get("namespaces").ok().flatten())
    {
        seen.user_namespace = strings(namespaces, "type").iter().any(|kind| kind == "user");
    }
    seen
}

/// Adds.
///
/// # Errors
/// The bundle has something else where lists or objects belong.
pub fn add(config: &mut Tree<'_>, seen: &Seen, additions: &Additions) -> Result<(), Refusal> {
    try_add(config, seen, additions).map_err(|WrongType| {
        Refusal::new(
            "the container's config.json is not as the OCI specification has it: nothing can be added",
        )
    })
}

fn try_add(config: &mut Tree<'_>, seen: &Seen, additions: &Additions) -> Result<(), WrongType> {
    // A bind mount of a node needs the host's own: what can't be made under another name in a user namespace
    // (mknod is not allowed there, and runc binds `path` from the host) is bound there.
    let (bound, made): (Vec<&Node>, Vec<&Node>) =
        additions.nodes.iter().partition(|node| seen.user_namespace && node.host != node.path);
    let nodes = bound.iter().map(|node| Mount {
        host: node.host.clone(),
        path: node.path.clone(),
        options: vec!["bind".into(), "rw".into()],
    });
    let mut mounts: Vec<Mount> = additions.mounts.iter().cloned().chain(nodes).collect();
    mounts.sort_by_key(|mount| mount.path.components().count());
    if let Some(equipment) = &additions.equipment {
        equipment.give(config.get_or("process", &json!({}))?)?;
    }
    if !mounts.is_empty() {
        put_mounts(config.get_or("mounts", &json!([]))?, &mounts)?;
    }
    if let Some(equipment) = &additions.equipment {
        equipment.note(config)?;
    }
    for hook in &additions.hooks {
        let list = config.get_or("hooks", &json!({}))?.get_or(&hook.stage, &json!([]))?;
        push_new(list, &hook_value(hook))?;
    }
    for node in &additions.nodes {
        let linux = config.get_or("linux", &json!({}))?;
        let rules = linux.get_or("resources", &json!({}))?.get_or("devices", &json!([]))?;
        push_new(rules, &rule(node))?;
    }
    for node in made {
        put(config.get_or("linux", &json!({}))?.get_or("devices", &json!([]))?, "path", &device(node))?;
    }
    Ok(())
}

/// A path as JSON has it. Those from the policy and the device data are text; nothing here may panic over one that is not.
fn shown(path: &Path) -> Value {
    Value::from(path.to_string_lossy())
}

fn device(node: &Node) -> Value {
    json!({"path": shown(&node.path), "type": node.kind, "major": node.major, "minor": node.minor, "fileMode": node.mode,
        "uid": node.uid, "gid": node.gid})
}

fn rule(node: &Node) -> Value {
    let access = if node.permissions == "none" { "" } else { &node.permissions };
    json!({"allow": true, "type": node.kind, "major": node.major, "minor": node.minor, "access": access})
}

fn hook_value(hook: &Hook) -> Value {
    let mut value = json!({"path": shown(&hook.path), "args": hook.args});
    if !hook.env.is_empty() {
        value["env"] = json!(hook.env);
    }
    if let Some(timeout) = hook.timeout {
        value["timeout"] = json!(timeout);
    }
    value
}

/// Replaces mounts at the same place. A new one comes before those that lie inside of it, which it would hide.
fn put_mounts(list: &mut Tree<'_>, mounts: &[Mount]) -> Result<(), WrongType> {
    let place = |element: &mut Tree<'_>| text(element, "destination").map(|path| normal(Path::new(&path)));
    let mut places: Vec<Option<String>> = list.elements()?.map(place).collect();
    for mount in mounts {
        let value = json!({"destination": shown(&mount.path), "type": "bind", "source": shown(&mount.host),
            "options": mount.options});
        let own = normal(&mount.path);
        let inside = |place: &Option<String>| {
            place
                .as_ref()
                .is_some_and(|place| place.strip_prefix(&own).is_some_and(|rest| rest.starts_with('/')))
        };
        match places.iter().rposition(|place| place.as_ref() == Some(&own)) {
            Some(at) => list.elements()?.nth(at).into_iter().for_each(|element| element.set(&value)),
            None => {
                let at = places.iter().position(inside).unwrap_or(places.len());
                list.insert(at, &value)?;
                places.insert(at, Some(own));
            }
        }
    }
    Ok(())
}

/// Puts `value` in the place of the elements with the same `key`, or at the end.
fn put(list: &mut Tree<'_>, key: &str, value: &Value) -> Result<(), WrongType> {
    let mut found = false;
    for element in list.elements()? {
        if text(element, key).as_deref() == value[key].as_str() {
            element.set(value);
            found = true;
        }
    }
    if found { Ok(()) } else { list.push(value) }
}

/// Puts `value` at the end of a list that does not have it.
pub fn push_new(list: &mut Tree<'_>, value: &Value) -> Result<(), WrongType> {
    let found = list.elements()?.any(|element| element.value().as_ref() == Some(value));
    if found { Ok(()) } else { list.push(value) }
}

/// The entries of an environment that are `NAME=value`.
pub fn variables(env: &mut Tree<'_>) -> Vec<(String, String)> {
    let entries = env.elements().into_iter().flatten();
    let pair = |entry: String| entry.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    entries.filter_map(|entry| entry.string().and_then(pair)).collect()
}

fn strings(list: &mut Tree<'_>, name: &str) -> Vec<String> {
    list.elements().into_iter().flatten().filter_map(|element| text(element, name)).collect()
}

fn text(element: &mut Tree<'_>, name: &str) -> Option<String> {
    element.get(name).ok().flatten().and_then(|value| value.string())
}

/// One spelling for each place: `/srv//a/`, `srv/a` and `/srv/b/../a` are `/srv/a`; the root is nothing at all.
pub fn normal(path: &Path) -> String {
    let mut parts = vec![];
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part.to_string_lossy()),
            Component::ParentDir => drop(parts.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    parts.iter().map(|part| format!("/{part}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(host: &str, path: &str) -> Mount {
        Mount { host: host.into(), path: path.into(), options: vec!["rbind".into(), "ro".into()] }
    }

    fn mounted(before: &str, mounts: Vec<Mount>) -> Vec<String> {
        let text = format!("{{\"mounts\":{before}}}");
        let mut config = Tree::parse(&text).unwrap();
        let seen = look(&mut config);
        add(&mut config, &seen, &Additions { mounts, ..Additions::default() }).unwrap();
        let after: Value = serde_json::from_str(&config.to_string()).unwrap();
        let shown = |m: &Value| {
            format!("{} < {}", m["destination"].as_str().unwrap(), m["source"].as_str().unwrap_or(""))
        };
        after["mounts"].as_array().unwrap().iter().map(shown).collect()
    }

    #[test]
    fn a_mount_hides_none_that_is_inside_of_it() {
        let before = r#"[{"destination":"/proc"},{"destination":"/srv/a/x"},{"destination":"/srv/ab"}]"#;
        let ours = vec![mount("/1", "/srv/a/x/y"), mount("/2", "/srv/a"), mount("/3", "/srv/c")];
        assert_eq!(
            mounted(before, ours),
            ["/proc < ", "/srv/a < /2", "/srv/a/x < ", "/srv/ab < ", "/srv/c < /3", "/srv/a/x/y < /1"]
        );
    }

    #[test]
    fn a_mount_takes_the_place_of_one_there() {
        for place in ["/srv//a/", "srv/./a", "/srv/b/../a", "/../srv/a"] {
            let before = format!(r#"[{{"destination":"{place}","source":"/old"}},{{"destination":"/b"}}]"#);
            assert_eq!(mounted(&before, vec![mount("/new", "/srv/a")]), ["/srv/a < /new", "/b < "]);
        }
        assert_eq!(mounted("null", vec![mount("/1", "/a"), mount("/2", "/a")]), ["/a < /2"]);
    }

    #[test]
    fn what_is_no_bundle_is_said() {
        for text in [r#"{"mounts":{}}"#, r#"{"mounts":7}"#, "[]"] {
            let mut config = Tree::parse(text).unwrap();
            let seen = look(&mut config);
            let additions = Additions { mounts: vec![mount("/1", "/a")], ..Additions::default() };
            assert!(add(&mut config, &seen, &additions).is_err(), "{text}");
        }
    }
}
