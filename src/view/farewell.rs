//! A worker goes, for a while or for good, and its builds end before it does: what to do by what was seen of it last.

use crate::step::Farewell;
use std::time::Duration;

/// A worker that goes for good and has had no connection for so long has nobody to say farewell to: it was revoked
/// before it left.
const CUT_OFF: Duration = Duration::from_secs(10);
/// A worker that has had none for so long has lost its web nodes. One that was let go closes it and ends in one; one that
/// lost them tries again after five seconds, and ends then, if it has been told to go.
const AWAY: Duration = Duration::from_secs(3);

/// What was seen of a worker.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    /// Its service runs, or is about to.
    pub runs: bool,
    /// How long ago it had a connection to a web node.
    pub unlinked: Duration,
    /// It was told to go.
    pub told: bool,
    /// A step runs in one of its containers.
    pub busy: bool,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Look again.
    Wait,
    /// Tell it to go.
    Tell,
    /// Forget that it was told: its web nodes are away, and may not have heard it.
    Forget,
    /// Start it: it went without being let go, and its builds have not ended.
    Start,
    /// Stop what is left of it.
    Stop,
}

/// The next thing to do for a worker that leaves.
pub fn next(how: Farewell, seen: Leaving) -> Next {
    let away = seen.unlinked > AWAY;
    match how {
        Farewell::Retire if !seen.runs || seen.unlinked > CUT_OFF => Next::Stop,
        Farewell::Retire if !seen.told => Next::Tell,
        Farewell::Land if !seen.runs && away && seen.busy => Next::Start,
        Farewell::Land if !seen.runs => Next::Stop,
        // Nobody would hear it, and the worker would end for that.
        Farewell::Land if away && seen.told => Next::Forget,
        Farewell::Land if seen.unlinked.is_zero() && !seen.told => Next::Tell,
        _ => Next::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_next() {
        let (run, ended, told, untold, busy, idle) = (true, false, true, false, true, false);
        let rows = [
            // It lands: it is told while somebody listens, and waited for.
            (Farewell::Land, run, 0, untold, busy, Next::Tell),
            (Farewell::Land, run, 0, told, busy, Next::Wait),
            (Farewell::Land, run, 1, untold, busy, Next::Wait),
            (Farewell::Land, run, 2, told, busy, Next::Wait),
            // It has landed, whatever its containers still do: a build that nobody waits for, somebody's shell.
            (Farewell::Land, ended, 0, told, busy, Next::Stop),
            (Farewell::Land, ended, 0, told, idle, Next::Stop),
            // Its web nodes are away: it is told again when they are back, with its builds.
            (Farewell::Land, run, 4, told, busy, Next::Forget),
            (Farewell::Land, run, 3600, untold, busy, Next::Wait),
            (Farewell::Land, ended, 6, untold, busy, Next::Start),
            (Farewell::Land, ended, 6, untold, idle, Next::Stop),
            // It retires: at once, and without somebody to hear it not for long.
            (Farewell::Retire, run, 0, untold, busy, Next::Tell),
            (Farewell::Retire, run, 5, untold, busy, Next::Tell),
            (Farewell::Retire, run, 5, told, busy, Next::Wait),
            (Farewell::Retire, run, 11, told, busy, Next::Stop),
            (Farewell::Retire, ended, 0, told, busy, Next::Stop),
        ];
        for (how, runs, unlinked, told, busy, wanted) in rows {
            let seen = Leaving { runs, unlinked: Duration::from_secs(unlinked), told, busy };
            assert_eq!(next(how, seen), wanted, "{how:?} {seen:?}");
        }
    }
}
