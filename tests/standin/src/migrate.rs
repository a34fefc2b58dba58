//! `concourse migrate`: the schema's version, shown and changed.

use crate::db::{self, schema};
use crate::opts::{Opt, Values, one, switch};
use crate::version::{schema_of, version};
use anyhow::{Context, Result, bail};

/// The options of `migrate`; those of the database come on top.
pub const OPTIONS: &[Opt] = &[
    switch("current-db-version"),
    switch("supported-db-version"),
    one("migrate-db-to-version"),
    switch("migrate-to-latest-version"),
    one("encryption-key"),
    one("old-encryption-key"),
];

/// Does one of the four.
pub fn run(values: &Values) -> Result<()> {
    let supported = schema_of(&version());
    let pool = db::Pool::new(values)?;
    if values.on("migrate-to-latest-version")? {
        schema::migrate_to(&pool, supported)
    } else if values.on("current-db-version")? {
        println!(
            "{}",
            schema::current(&pool)?.context("relation \"standin_migrations_history\" does not exist")?
        );
        Ok(())
    } else if values.on("supported-db-version")? {
        println!("{supported}");
        Ok(())
    } else if let Some(version) = values.number::<i64>("migrate-db-to-version")?.filter(|v| *v > 0) {
        if version > supported {
            bail!(
                "could not migrate to version: {version} Reason: this Concourse supports versions up to {supported}"
            );
        }
        schema::migrate_to(&pool, version)
            .with_context(|| format!("could not migrate to version: {version} Reason"))?;
        println!("Successfully migrated to version: {version}");
        Ok(())
    } else {
        bail!(
            "must specify one of `--migrate-to-latest-version`, `--current-db-version`, `--supported-db-version`, `--migrate-db-to-version`, or `--old-encryption-key`"
        )
    }
}
