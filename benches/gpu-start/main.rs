//! How much longer `runc create` takes with a GPU: the CDI spec as it stands, and a driver tree. See ../README.md.

#[path = "../../tests/gpu/kit.rs"]
mod kit;

use kit::{Lab, edits};
use std::time::Instant;

const HOOK: &str = env!("CARGO_BIN_EXE_runc-gpu-wrapper");

/// Milliseconds.
fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let rounds = std::env::args().find_map(|a| a.strip_prefix("--rounds=")?.parse().ok()).unwrap_or(40);
    let lab = Lab::new(HOOK).unwrap_or_else(|why| panic!("{why}; see benches/README.md"));
    assert!(lab.theirs.is_some(), "NVIDIA_CDI_HOOK names no nvidia-cdi-hook; see benches/README.md");
    let spec = lab.driver();
    let tree = lab.trees().equip(&spec).unwrap();
    let ways = [("plain", vec![]), ("the spec", edits(&spec, &[0])), ("a tree", edits(&tree, &[0]))];
    let mut times = [vec![], vec![], vec![]];
    for round in 0..rounds {
        // By turns, each time another one first: what the machine does besides hits all alike.
        for at in (0..3).map(|n| (n + round) % 3) {
            let bundle = lab.bundle(&lab.image.clone(), &ways[at].1, &["true"], false);
            let start = Instant::now();
            bundle.create();
            times[at].push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    let [plain, spec, tree] = times.map(|mut t| median(&mut t));
    let count = |at: usize| {
        let (mounts, hooks) =
            ways[at].1.iter().fold((0, 0), |n, e| (n.0 + e.mounts.len(), n.1 + e.hooks.len()));
        format!("{mounts} mounts, {hooks} hooks")
    };
    println!("median ms of {rounds} | create | added | what");
    for (at, time) in [plain, spec, tree].into_iter().enumerate() {
        println!("{:>16} | {time:6.1} | {:5.1} | {}", ways[at].0, time - plain, count(at));
    }
    let share = (tree - plain) / (spec - plain);
    println!("a tree adds 1/{:.1} of what the spec adds (goal: 1/6)", 1.0 / share);
}
