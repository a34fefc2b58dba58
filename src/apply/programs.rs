//! Programs that run when no hook does: copied out of the charm, whose directory an upgrade empties.

use crate::host::fs::{self, Root};
use crate::paths;
use anyhow::{Context, Result};
use std::path::Path;

/// Installs the programs in `charm_dir`; the stamp is written last. What runs of an older copy goes on to run.
pub fn install(root: &Root, charm_dir: &Path, stamp: &str) -> Result<()> {
    for program in [paths::WRAPPER, paths::GPU_PROGRAM] {
        let source = charm_dir.join(Path::new(program).file_name().unwrap_or_default());
        let bytes = std::fs::read(&source).with_context(|| format!("failed to read {}", source.display()))?;
        fs::write_atomic(&root.path(program), &bytes, 0o755, None)?;
    }
    for link in [paths::RUNC_LINK, paths::WRAPPER_LINK] {
        let link = root.path(link);
        fs::make_dir(link.parent().unwrap_or(Path::new("/")))?;
        fs::swap_symlink(&link, Path::new(paths::WRAPPER))?;
    }
    fs::write_atomic(&root.path(paths::PROGRAMS_STAMP), stamp.as_bytes(), 0o644, None)
}
