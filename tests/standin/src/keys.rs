//! `concourse generate-key`: RSA keys by ssh-keygen, in the form that the real one writes.

use crate::opts::{Kind, Opt, Values};
use crate::pem;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// The options of `generate-key`.
pub const OPTIONS: &[Opt] = &[
    Opt { name: "type", short: Some('t'), kind: Kind::One, default: Some("rsa") },
    Opt { name: "filename", short: Some('f'), kind: Kind::One, default: None },
    Opt { name: "bits", short: Some('b'), kind: Kind::One, default: Some("4096") },
];

/// Writes a private key, and for `-t ssh` its public half beside it.
pub fn run(values: &Values) -> Result<()> {
    values.choice("type", &["rsa", "ssh"])?;
    let path = PathBuf::from(values.required("filename")?);
    let bits = values.number::<u32>("bits")?.unwrap_or(4096);
    let public = PathBuf::from(format!("{}.pub", path.display()));
    let ssh = values.text("type") == "ssh";
    let scratch = PathBuf::from(format!("{}.new-{}", path.display(), std::process::id()));
    let output = Command::new("ssh-keygen")
        .args(["-q", "-t", "rsa", "-m", "PEM", "-N", "", "-C", "", "-b", &bits.to_string(), "-f"])
        .arg(&scratch)
        .output()
        .context("ssh-keygen (apt install openssh-client)")?;
    if !output.status.success() {
        bail!("failed to create key file: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    pem::head_like_generate_key(&scratch)?;
    let scratch_public = PathBuf::from(format!("{}.pub", scratch.display()));
    std::fs::rename(&scratch, &path).context("failed to create key file")?;
    println!("wrote private key to {}", path.display());
    if ssh {
        let text = std::fs::read_to_string(&scratch_public)?;
        std::fs::write(&public, format!("{}\n", text.trim())).context("failed to create key file")?;
        println!("wrote ssh public key to {}", public.display());
    }
    std::fs::remove_file(scratch_public)?;
    Ok(())
}
