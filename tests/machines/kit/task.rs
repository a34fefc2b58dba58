//! Tasks on workers, through the web node as users run them: by `fly` from the release, or by the stand-in's own client.

use super::cloud::{Cloud, wait};
use std::time::{Duration, Instant};

/// Runs until it is [told](Task::tell) to end, and says a numbered line a second.
pub const UNTIL_TOLD: &str = "trap told=1 USR1; i=0; while [ -z \"$told\" ] && [ $i -lt 900 ]; do echo line $i; i=$((i+1)); sleep 1; done; echo told";

/// `start TAG SCRIPT [NAME=VALUE…]` prints an id; `follow ID` prints all output from its beginning, and ends with the task;
/// `steps TAG SCRIPT` runs a check, a put and a get, in which the script runs (in the real one: [`patched`] steps);
/// `enter ID SCRIPT` runs the script in a running task's container, as a user who hijacks it.
const CLIENT: &str = r#"
set -euo pipefail
mkdir -p /run/task && cd /run/task && export HOME=$PWD
if [ -e /opt/concourse/current/STAND-IN ]; then
    task() { /opt/concourse/current/bin/concourse standin-task --web http://127.0.0.1:8080 --user admin --password-file password "$@"; }
    case $1 in
    start)
        tag=$2 script=$3
        shift 3
        task ${tag:+--tag "$tag"} "${@/#/--param=}" --detach -- sh -c "$script" ;;
    follow)
        code=0
        task --attach "$2" -- true 2>&1 || code=$?
        if [ $code = 0 ]; then echo succeeded; else echo failed; fi ;;
    steps)
        for step in check put get; do task --tag "$2" --step $step -- sh -c "set -- $step; $3"; done ;;
    esac
    exit
fi
[ -x fly ] || tar -xzf /opt/concourse/current/fly-assets/fly-linux-amd64.tgz
case $1 in
start)
    ./fly -t task login -c http://127.0.0.1:8080 -u admin -p "$(cat password)" >/dev/null
    tag=$2 script=$3
    shift 3
    jq -n --arg script "$script" '{platform: "linux", image_resource: {type: "mock", source: {mirror_self: true, initial_version: "1"}},
        params: [$ARGS.positional[] | capture("(?<key>[^=]*)=(?<value>.*)")] | from_entries,
        run: {path: "sh", args: ["-c", $script]}}' --args -- "$@" >task.yml
    # Not by the one in the background, which may come too late: the number of the build before would be read.
    : >out
    ./fly -t task execute -c task.yml ${tag:+--tag "$tag"} >out 2>&1 </dev/null &
    for _ in $(seq 300); do
        id=$(sed -n 's/^executing build \([0-9]*\).*/\1/p' out) && [ -n "$id" ] && break
        sleep 0.1
    done
    # What it started goes on; only an interrupted fly would abort it.
    kill -KILL $!
    echo "${id:?$(cat out)}" ;;
follow) ./fly -t task watch -b "$2" ;;
steps)
    jq -n --arg tag "$2" '{resources: [{name: "it", type: "mock", tags: [$tag], source: {initial_version: "1"}}],
        jobs: [{name: "all", plan: [{put: "it", tags: [$tag], params: {version: "2"}}]}]}' >steps.yml
    ./fly -t task set-pipeline -n -p steps -c steps.yml >/dev/null
    ./fly -t task unpause-pipeline -p steps >/dev/null
    ./fly -t task check-resource -r steps/it </dev/null
    ./fly -t task trigger-job -j steps/all -w </dev/null ;;
enter) ./fly -t task hijack -b "$2" --step-type task -- sh -c "$3" </dev/null ;;
esac
"#;

/// Makes the scripts of the real one's `mock` resource run this one first, with their name as `$1`; before the worker's
/// first build.
const PATCH: &str = r#"
set -euo pipefail
at=/opt/concourse/current/resource-types/mock/rootfs.tgz
dir=$(mktemp -d)
tar -xzf "$at" -C "$dir"
for name in check:check in:get out:put; do
    program=$dir/opt/resource/${name%:*}
    mv "$program" "$program.own"
    printf '#!/bin/sh\n(set -- %s; %s) >&2\nexec /opt/resource/%s.own "$@"\n' "${name#*:}" "$SCRIPT" "${name%:*}" >"$program"
    chmod 0755 "$program"
done
tar -C "$dir" -czf "$at" .
rm -rf "$dir"
"#;

/// Whether the web node on machine 1 is the stand-in.
pub fn stand_in(cloud: &Cloud) -> bool {
    cloud.try_exec("1", "test -e /opt/concourse/current/STAND-IN").status.success()
}

/// Makes a real Concourse's checks, gets and puts on that machine run a script; to be called before its first build.
pub fn patch_steps(cloud: &Cloud, machine: &str, script: &str) {
    if !stand_in(cloud) {
        cloud.exec(machine, &format!("SCRIPT={}\n{PATCH}", quoted(script)));
    }
}

/// Runs a check, a get and a put on a worker with that tag, and what that script (`$1`: the step) has printed in them.
pub fn steps(cloud: &Cloud, tag: &str, script: &str) -> Vec<String> {
    let mut lines: Vec<String> = plain(&client(cloud, &format!("steps '{tag}' {}", quoted(script))))
        .lines()
        .filter(|line| ["check ", "get ", "put "].iter().any(|step| line.starts_with(step)))
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.sort();
    lines.dedup();
    lines
}

impl Cloud {
    /// Lets the TSA of a machine take `delete-worker`: the stand-in's needs a shell for it, the real one is its own.
    pub fn tsa_takes_commands(&self, machine: &str) {
        if stand_in(self) {
            self.exec(machine, "usermod --shell /bin/sh concourse");
        }
    }
}

/// A task that was started.
pub struct Task<'a> {
    cloud: &'a Cloud,
    id: String,
    began: Instant,
}

/// Starts a script on a worker with that tag, or without tags for an empty one; the web node is on machine 1.
pub fn start_task<'a>(cloud: &'a Cloud, tag: &str, script: &str) -> Task<'a> {
    let task = start_task_with(cloud, tag, script, &[]);
    wait(&format!("the first output of task {}", task.id), Duration::from_secs(200), || {
        if task.seen().is_empty() { Err("nothing".to_owned()) } else { Ok(()) }
    });
    task
}

/// Starts it with params, `NAME=VALUE`, and does not wait for anything to come of it.
pub fn start_task_with<'a>(cloud: &'a Cloud, tag: &str, script: &str, params: &[&str]) -> Task<'a> {
    let password = cloud.password("web/0");
    cloud.exec("1", &format!("mkdir -p /run/task; umask 077; printf %s '{password}' > /run/task/password"));
    let began = Instant::now();
    let id = client(cloud, &format!("start '{tag}' '{script}' {}", params.join(" ")));
    Task { cloud, id: id.trim().to_owned(), began }
}

impl Task<'_> {
    /// Waits for a line that was printed after this call: [`UNTIL_TOLD`] runs, and the web node listens to it.
    pub fn more(&self) {
        // At a line a second it can't have printed this number yet; while its web node restarts it prints none.
        let later = self.began.elapsed().as_secs() + 1;
        wait(&format!("line {later} of task {}", self.id), Duration::from_secs(200), || {
            let lines = self.seen();
            let last = lines.iter().rev().find_map(|line| line.strip_prefix("line ")?.parse::<u64>().ok());
            if last.is_some_and(|last| last >= later) { Ok(()) } else { Err(format!("line {last:?}")) }
        });
    }

    /// What the web node has of its output; the last of it may be missing when this machine is slow.
    pub fn seen(&self) -> Vec<String> {
        let follow = script(&format!("follow {}", self.id));
        let out = self.cloud.try_exec("1", &format!("timeout 2 bash -c {}", quoted(&follow)));
        output(&String::from_utf8_lossy(&out.stdout))
    }

    /// What a script prints that a user runs in its container, which runs on that machine.
    pub fn enter(&self, machine: &str, script: &str) -> Vec<String> {
        let said = if stand_in(self.cloud) {
            let ctr = "/opt/concourse/current/bin/ctr -n concourse";
            let id = format!("id=$({ctr} containers ls -q | head -1)");
            self.cloud.exec(
                machine,
                &format!("{id}; {ctr} tasks exec --exec-id entered $id /bin/sh -c {}", quoted(script)),
            )
        } else {
            client(self.cloud, &format!("enter {} {}", self.id, quoted(script)))
        };
        plain(&said).lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// Tells a task that runs [`UNTIL_TOLD`] on that machine to end.
    pub fn tell(&self, machine: &str) {
        self.cloud.exec(machine, "pkill -USR1 -f '[t]rap told=1'");
    }

    /// Waits for its end: whether it succeeded, and every line that it has printed.
    pub fn wait(self) -> (bool, Vec<String>) {
        let all = self.log();
        (verdict(&all) == Some("succeeded"), output(&all))
    }

    /// Waits for its end; all that a user reads about it, the reason why it did not start included.
    pub fn log(self) -> String {
        let mut all = String::new();
        wait(&format!("the end of task {}", self.id), Duration::from_secs(120), || {
            let follow = script(&format!("follow {}", self.id));
            let out = self.cloud.try_exec("1", &format!("timeout 100 bash -c {}", quoted(&follow)));
            all = plain(&String::from_utf8_lossy(&out.stdout));
            if verdict(&all).is_some() { Ok(()) } else { Err(all.clone()) }
        });
        all
    }
}

/// The last line tells how it ended.
fn verdict(all: &str) -> Option<&str> {
    all.lines().last().filter(|last| ["succeeded", "failed", "errored", "aborted"].contains(last))
}

/// What the script itself has printed: not fly's words before it, which come again when a new web node takes over.
fn output(all: &str) -> Vec<String> {
    let all = plain(all);
    let mut about_worker = false;
    let mut lines: Vec<String> = vec![];
    for line in all.lines() {
        about_worker |= line == "initializing";
        if !about_worker {
            lines.push(line.to_owned());
        }
        about_worker &= !line.starts_with("running sh -c ");
    }
    if verdict(&all).is_some() {
        lines.pop();
    }
    lines
}

/// Without colours.
fn plain(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.split_once('m').map_or(part, |(_, rest)| rest))
}

fn client(cloud: &Cloud, args: &str) -> String {
    cloud.exec("1", &script(args))
}

fn script(args: &str) -> String {
    format!("set -- {args}\n{CLIENT}")
}

/// As one word of a shell's.
pub fn quoted(script: &str) -> String {
    format!("'{}'", script.replace('\'', r"'\''"))
}
