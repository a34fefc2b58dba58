//! The model behind a lock, for the daemon and for tests in one process.

use crate::model::Model;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The model and who waits for it to change.
pub struct Shared {
    model: Mutex<Model>,
    changed: Condvar,
}

impl Shared {
    /// A controller around a model.
    pub fn new(model: Model) -> Shared {
        Shared { model: Mutex::new(model), changed: Condvar::new() }
    }

    /// The model, locked.
    pub fn lock(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells all who wait that something changed.
    pub fn kick(&self) {
        self.changed.notify_all();
    }

    /// Waits for a change, but not longer than `most`.
    pub fn wait<'a>(&self, guard: MutexGuard<'a, Model>, most: Duration) -> MutexGuard<'a, Model> {
        let waited = self.changed.wait_timeout(guard, most);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
