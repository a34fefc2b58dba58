//! CDI files, with what they name.

use super::Look;
use crate::cdi::read::{DIRECTORIES, sources};
use crate::cdi::spec::{self, ContainerEdits, Spec};
use crate::gpu::facts::Cdi;
use std::path::{Path, PathBuf};

pub fn files(look: &Look) -> Vec<Cdi> {
    let directories = DIRECTORIES.map(|d| look.path(d));
    let mut found = vec![];
    for mut source in sources(&directories) {
        let inside = source.path.strip_prefix(&look.root).unwrap_or(&source.path);
        source.path = Path::new("/").join(inside);
        let spec = source.text.as_deref().ok().and_then(|text| spec::parse(text).ok());
        let edits = spec.as_ref().map(edits).unwrap_or_default();
        let nodes = edits.iter().flat_map(|e| &e.device_nodes);
        let mounts = edits.iter().flat_map(|e| &e.mounts).map(|m| m.host_path.clone());
        found.push(Cdi {
            nodes: unique(nodes.map(|n| n.host_path.clone().unwrap_or(n.path.clone()))),
            gone: unique(mounts.filter(|p| !look.exists(p))),
            kind: spec.as_ref().map(|s| s.kind.clone()),
            devices: spec.iter().flat_map(|s| &s.devices).map(|d| d.name.clone()).collect(),
            source,
        });
    }
    found
}

fn edits(spec: &Spec) -> Vec<&ContainerEdits> {
    spec.devices.iter().map(|d| &d.container_edits).chain([&spec.container_edits]).collect()
}

fn unique(paths: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = paths.collect();
    paths.sort();
    paths.dedup();
    paths
}
