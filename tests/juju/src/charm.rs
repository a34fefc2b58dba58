//! Reading a charm: an archive (`.charm`) or a directory.

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// What a charm declares.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Charm {
    /// Its name.
    pub name: String,
    /// Whether it goes on another unit's machine.
    pub subordinate: bool,
    /// Endpoints by name.
    pub endpoints: BTreeMap<String, CharmEndpoint>,
    /// Further bindings.
    pub bindings: Vec<String>,
    /// Options by name.
    pub options: BTreeMap<String, CharmOption>,
    /// Actions by name: a JSON schema with `description`.
    pub actions: BTreeMap<String, Value>,
    /// Resources: file name by name.
    pub resources: BTreeMap<String, String>,
    /// `ubuntu@24.04` for each base.
    pub bases: Vec<String>,
    /// Architectures of all bases.
    pub architectures: Vec<String>,
    /// The LXD profile, if there is one.
    pub lxd_profile: Value,
    /// Conditions on the Juju that deploys it.
    pub assumes: Value,
}

/// An endpoint of a charm.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CharmEndpoint {
    /// `provides`, `requires` or `peers`.
    pub role: String,
    /// Its interface.
    pub interface: String,
    /// Whether it is for the same machine only.
    pub container: bool,
    /// How many relations at most; 0 for no limit.
    pub limit: u64,
}

/// An option of a charm.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CharmOption {
    /// string, int, float, boolean or secret.
    pub kind: String,
    /// `null` for none.
    pub default: Value,
    /// What it is for.
    pub description: String,
}

/// Where a charm's files are.
enum Source<'a> {
    Archive(Box<zip::ZipArchive<File>>),
    Directory(&'a Path),
}

impl Source<'_> {
    fn open(path: &Path) -> Result<Source<'_>> {
        if path.is_dir() {
            return Ok(Source::Directory(path));
        }
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let archive =
            zip::ZipArchive::new(file).with_context(|| format!("{} is no archive", path.display()))?;
        Ok(Source::Archive(Box::new(archive)))
    }

    fn read(&mut self, name: &str) -> Option<String> {
        let mut text = String::new();
        match self {
            Source::Directory(path) => return fs::read_to_string(path.join(name)).ok(),
            Source::Archive(zip) => zip.by_name(name).ok()?.read_to_string(&mut text).ok()?,
        };
        Some(text)
    }

    fn has_code(&mut self) -> bool {
        match self {
            Source::Directory(path) => path.join("dispatch").exists() || path.join("hooks").is_dir(),
            Source::Archive(zip) => {
                zip.file_names().any(|name| name == "dispatch" || name.starts_with("hooks/"))
            }
        }
    }

    fn yaml(&mut self, name: &str) -> Result<Value> {
        match self.read(name) {
            Some(text) if !text.trim().is_empty() => {
                serde_yaml::from_str(&text).with_context(|| format!("cannot parse {name}"))
            }
            _ => Ok(Value::Null),
        }
    }
}

impl Charm {
    /// Reads and checks a charm as `juju deploy` does.
    pub fn load(path: &Path) -> Result<Charm> {
        let mut source = Source::open(path)?;
        let metadata = source.yaml("metadata.yaml")?;
        let mut charm = Charm::from_metadata(&metadata)?;
        charm.read_options(&source.yaml("config.yaml")?)?;
        if let Some(text) = source.read("actions.yaml") {
            crate::validate::boolean_keys(&text)?;
        }
        charm.read_actions(&source.yaml("actions.yaml")?);
        charm.read_manifest(&source.yaml("manifest.yaml")?);
        charm.lxd_profile = source.yaml("lxd-profile.yaml")?;
        if !source.has_code() {
            bail!("invalid charm {:?}: has no hooks nor dispatch file", charm.name);
        }
        crate::validate::charm(&charm)?;
        Ok(charm)
    }

    fn from_metadata(metadata: &Value) -> Result<Charm> {
        let Some(name) = metadata["name"].as_str() else {
            bail!("metadata: name: expected string, got nothing");
        };
        let mut charm = Charm {
            name: name.into(),
            subordinate: metadata["subordinate"].as_bool().unwrap_or_default(),
            assumes: metadata["assumes"].clone(),
            ..Charm::default()
        };
        for role in ["provides", "requires", "peers"] {
            for (name, declared) in entries(&metadata[role]) {
                if charm.endpoints.contains_key(name) {
                    bail!("charm {:?} using a duplicated relation name: {name:?}", charm.name);
                }
                let interface = declared.as_str().or(declared["interface"].as_str()).unwrap_or_default();
                let endpoint = CharmEndpoint {
                    role: role.into(),
                    interface: interface.into(),
                    container: declared["scope"] == "container",
                    limit: declared["limit"].as_u64().unwrap_or_default(),
                };
                charm.endpoints.insert(name.clone(), endpoint);
            }
        }
        charm.bindings = entries(&metadata["extra-bindings"]).map(|(name, _)| name.clone()).collect();
        for (name, declared) in entries(&metadata["resources"]) {
            charm.resources.insert(name.clone(), declared["filename"].as_str().unwrap_or_default().into());
        }
        Ok(charm)
    }

    fn read_options(&mut self, config: &Value) -> Result<()> {
        for (name, declared) in entries(&config["options"]) {
            let kind = declared["type"].as_str().unwrap_or("string");
            let default = crate::validate::option_default(name, kind, &declared["default"])?;
            let description = declared["description"].as_str().unwrap_or_default().into();
            self.options.insert(name.clone(), CharmOption { kind: kind.into(), default, description });
        }
        Ok(())
    }

    fn read_actions(&mut self, actions: &Value) {
        for (name, declared) in entries(actions) {
            self.actions.insert(name.clone(), declared.clone());
        }
    }

    fn read_manifest(&mut self, manifest: &Value) {
        for base in manifest["bases"].as_array().into_iter().flatten() {
            let name = base["name"].as_str().unwrap_or_default();
            let channel = base["channel"].as_str().unwrap_or_default();
            self.bases.push(format!("{name}@{}", channel.split('/').next().unwrap_or(channel)));
            for architecture in base["architectures"].as_array().into_iter().flatten() {
                self.architectures.extend(architecture.as_str().map(String::from));
            }
        }
    }

    /// Whether `name` can be asked of network-get.
    pub fn has_binding(&self, name: &str) -> bool {
        name == "juju-info" || self.endpoints.contains_key(name) || self.bindings.iter().any(|b| b == name)
    }
}

/// The pairs of a map, none for anything else.
pub fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// Unpacks a charm archive, modes kept, into an empty directory.
pub fn unpack(archive: &Path, target: &Path) -> Result<()> {
    let mut zip = zip::ZipArchive::new(File::open(archive)?)?;
    fs::create_dir_all(target)?;
    zip.extract(target).with_context(|| format!("cannot unpack {}", archive.display()))
}
