//! The model on disk, so that the controller may be restarted.

use crate::model::Model;
use crate::shared::Shared;
use anyhow::{Context as _, Result};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(2);

/// The model of an earlier run, if any.
pub fn load(folder: &Path) -> Result<Option<Model>> {
    match fs::read(folder.join("model.json")) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).context("cannot read the saved model"),
        Err(_) => Ok(None),
    }
}

/// Saves the model now and then, for ever.
pub fn keep(shared: &Shared, folder: &Path) {
    let mut saved = Vec::new();
    loop {
        thread::sleep(EVERY);
        let Ok(bytes) = serde_json::to_vec(&*shared.lock()) else { continue };
        if bytes == saved {
            continue;
        }
        match write(folder, &bytes) {
            Ok(()) => saved = bytes,
            Err(error) => eprintln!("juju-controller: cannot save the model: {error}"),
        }
    }
}

fn write(folder: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let new = folder.join("model.json.new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    fs::rename(new, folder.join("model.json"))
}
