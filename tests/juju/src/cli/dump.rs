//! The whole model as JSON, for tests that look for what must not be there.

use crate::model::Model;

impl Model {
    /// The model with bags, secrets, log and history. Secrets' contents stand under `secrets` only,
    /// so that a test can take that key away and search the rest.
    pub(super) fn dump(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
    }
}
