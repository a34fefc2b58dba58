//! A container's life as a shim would have it, with kill -9 at any point of it.

use crate::figures::{Dice, count};
use crate::stage::{Life, Stage, read_pid};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

/// How long runc makes a container, and enters one, at the longest that is worth a kill: microseconds.
const MAKES: u64 = 60_000;
const ENTERS: u64 = 40_000;

impl Stage {
    /// One container, and now and then a process more in one that was kept.
    pub fn round(&self, number: u64, dice: &mut Dice, kept: &mut VecDeque<Life>) {
        let life = self.life(number, [1, 1, 1, 1, 1, 2, 2, 2, 2, 3][dice.below(10) as usize]);
        let created = self.create(&life);
        let mut entered = false;
        if dice.one_in(4) {
            self.kill_after(created, dice.below(MAKES));
            // As containerd does after its restart: the same container again.
            if dice.one_in(4) && self.done(&life, self.create(&life)) {
                count(&self.figures.created);
                entered = self.start(&life) && self.first(&life, dice);
            }
        } else if self.done(&life, created) {
            count(&self.figures.created);
            // The same, and the first one has come to its end. runc refuses.
            if dice.one_in(16) {
                self.reaper.wait(self.create(&life));
            }
            entered = self.start(&life) && self.first(&life, dice);
        }
        // One that still waits for its first process would keep its units for two minutes.
        match entered {
            true => kept.push_back(life),
            false => self.remove(&life, dice),
        }
        // A hijack into a container that was kept.
        if !kept.is_empty() && dice.one_in(4) {
            let life = &kept[dice.below(kept.len() as u64) as usize];
            let entered = self.exec(life, "hijack", dice.below(40), 0);
            match dice.below(4) {
                0 => self.kill_after(entered, dice.below(ENTERS)),
                _ => drop(self.let_in(life, entered)),
            }
        }
        while kept.len() as u64 > dice.below(3) {
            if let Some(life) = kept.pop_front() {
                self.remove(&life, dice);
            }
        }
    }

    /// Whether its first process got in.
    fn first(&self, life: &Life, dice: &mut Dice) -> bool {
        let child = if dice.one_in(6) { dice.below(40) } else { 0 };
        let entered = self.exec(life, "task", dice.below(40), child);
        if dice.one_in(6) {
            self.kill_after(entered, dice.below(ENTERS));
            return false;
        }
        if !self.let_in(life, entered) {
            return false;
        }
        match dice.below(8) {
            0 => self.kill_file("task", &life.bundle.join("task.pid")),
            1 => self.kill_file("init", &life.bundle.join("init.pid")),
            2 => drop(self.let_in(life, self.exec(life, "second", dice.below(40), 0))),
            _ => {}
        }
        true
    }

    fn let_in(&self, life: &Life, entered: i32) -> bool {
        let done = self.done(life, entered);
        if done {
            count(&self.figures.entered);
        }
        done
    }

    fn kill_after(&self, child: i32, microseconds: u64) {
        std::thread::sleep(Duration::from_micros(microseconds));
        if let Some(program) = self.reaper.kill(child) {
            self.figures.kill(&program);
        }
    }

    pub fn kill_file(&self, what: &str, pid: &Path) {
        if read_pid(pid).is_some_and(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok()) {
            self.figures.kill(what);
        }
    }

    fn remove(&self, life: &Life, dice: &mut Dice) {
        // One that is killed over it is done once more.
        if dice.one_in(16) {
            let deleted = self.reaper.spawn(&mut self.command(&["delete", "--force", &life.id]));
            std::thread::sleep(Duration::from_micros(dice.below(30_000)));
            if self.reaper.kill(deleted).is_some() {
                self.figures.kill("delete");
            }
        }
        self.delete(life);
    }
}
