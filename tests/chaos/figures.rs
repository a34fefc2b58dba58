//! What came of a run.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Counted by all at once.
#[derive(Default)]
pub struct Figures {
    /// Containers that were begun: one round each.
    pub rounds: AtomicU64,
    /// Of these, by containerd and its shim.
    pub by_containerd: AtomicU64,
    pub created: AtomicU64,
    /// Tasks, second processes and hijacks that got in.
    pub entered: AtomicU64,
    /// Not let in, for the container's units were another's by then.
    pub lapsed: AtomicU64,
    pub in_vain: AtomicU64,
    /// Failed otherwise: killed from below, deleted.
    pub other: AtomicU64,
    kills: Mutex<BTreeMap<String, u64>>,
}

impl Figures {
    pub fn kill(&self, what: &str) {
        *self.kills.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }

    pub fn kills(&self) -> u64 {
        self.kills.lock().unwrap().values().sum()
    }

    /// One line, to be added up with others.
    pub fn line(&self) -> String {
        let kills = self.kills.lock().unwrap();
        let kills: Vec<String> = kills.iter().map(|(what, n)| format!("{what}={n}")).collect();
        let n = |of: &AtomicU64| of.load(SeqCst);
        format!(
            "rounds={} by_containerd={} created={} entered={} lapsed={} in_vain={} other={} kills: {}",
            n(&self.rounds),
            n(&self.by_containerd),
            n(&self.created),
            n(&self.entered),
            n(&self.lapsed),
            n(&self.in_vain),
            n(&self.other),
            kills.join(" ")
        )
    }
}

pub fn count(of: &AtomicU64) -> u64 {
    of.fetch_add(1, SeqCst)
}

/// Enough to choose by.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
