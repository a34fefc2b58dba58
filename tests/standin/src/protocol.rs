//! What worker and web say to each other over the ssh connection: one JSON object per line, both ways.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// A worker as it describes itself; field names as in the real API.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Worker {
    /// Its name.
    pub name: String,
    /// The team it belongs to, or empty.
    pub team: String,
    /// Its tags, in the order given.
    pub tags: Vec<String>,
    /// Always `linux`.
    pub platform: String,
    /// The compatibility version.
    pub version: String,
    /// When it started.
    pub start_time: i64,
    /// Whether it is forgotten when it stalls.
    pub ephemeral: bool,
    /// What it can check and fetch.
    pub resource_types: Vec<Value>,
    /// How many containers it has.
    pub active_containers: i32,
    /// How many volumes it has.
    pub active_volumes: i32,
}

/// Everything a worker (or `land-worker`) may send.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum FromWorker {
    /// Stay connected and be given work.
    ForwardWorker {
        /// Who it is.
        worker: Worker,
    },
    /// Finish what runs, take nothing new.
    LandWorker {
        /// Whom it is about.
        worker: Worker,
    },
    /// Finish what runs, then be forgotten.
    RetireWorker {
        /// Whom it is about.
        worker: Worker,
    },
    /// Be forgotten at once.
    DeleteWorker {
        /// Whom it is about.
        worker: Worker,
    },
    /// The tasks it still knows; the first thing after `Registered`.
    Known {
        /// Their numbers.
        tasks: Vec<i64>,
    },
    /// The answer to `Ping`.
    Pong {
        /// How many containers it has.
        containers: i32,
        /// How many volumes it has.
        volumes: i32,
    },
    /// The task's process runs.
    Started {
        /// Its number.
        task: i64,
    },
    /// A piece of the task's output.
    Output {
        /// Its number.
        task: i64,
        /// Where the piece begins.
        offset: i64,
        /// The bytes, base64.
        data: String,
    },
    /// The task is over and all its output has been sent.
    Ended {
        /// Its number.
        task: i64,
        /// The exit code, when the process had one.
        exit_code: Option<i32>,
        /// Why there is none.
        error: Option<String>,
    },
}

/// Everything the web may send.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum FromWeb {
    /// The worker is in the database.
    Registered,
    /// The worker's life was extended.
    Heartbeated,
    /// Are you there?
    Ping,
    /// Run this.
    Run {
        /// What.
        task: Task,
    },
    /// Send the task's output from here on.
    Resume {
        /// Its number.
        task: i64,
        /// Where to begin.
        offset: i64,
    },
    /// The end of the task is in the database; its container may go.
    Forget {
        /// Its number.
        task: i64,
    },
    /// The command is over, as a remote process would be.
    Exit {
        /// 0, or 1 with a reason.
        status: i32,
        /// The reason.
        message: String,
    },
}

/// One task to run in a container.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Task {
    /// Its number in the database.
    pub id: i64,
    /// The command.
    pub cmd: Vec<String>,
    /// The author's environment (`params`), sorted as the real one does.
    pub params: BTreeMap<String, String>,
    /// The image's own environment.
    pub image_env: Vec<String>,
    /// Folders of the worker's machine that make the image; empty: a small one of the stand-in's own.
    pub image_rootfs: Vec<String>,
    /// task, get, put or check: decides mounts and the process's name.
    pub step: String,
    /// Run with all rights and without a user namespace.
    pub privileged: bool,
    /// The web's address, which the real one puts into each task's environment.
    pub external_url: String,
}
