//! What the runtime wrapper adds to a call: wall time over that of a runc that does nothing, by turns in random order.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

struct Row {
    name: String,
    program: PathBuf,
    folders: usize,
    call: &'static [&'static str],
    times: Vec<f64>,
}

const CREATE: &[&str] = &["create", "--bundle", "@", "--pid-file", "@/init.pid", "--no-new-keyring", "b1"];
const START: &[&str] = &["start", "b1"];
const EXEC: &[&str] = &["exec", "--process", "@/process.json", "--detach", "--pid-file", "@/x.pid", "b1"];

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, dir, wrapper, peers, bundle, rounds] = &args[..] else {
        panic!("usage: bench DIRECTORY WRAPPER PEERS BUNDLE ROUNDS");
    };
    let (dir, bundle) = (Path::new(dir), Path::new(bundle));
    let rounds: usize = rounds.parse().expect("a number of rounds");
    let stub = dir.join("stub");
    let config = fs::read_to_string(bundle.join("config.json")).expect("a bundle");
    let process = fs::read_to_string(bundle.join("process.json")).expect("a process");
    for folders in [0, 3, 20, 100] {
        let srv = dir.join(format!("{folders}/srv"));
        (0..folders)
            .for_each(|n| fs::create_dir_all(srv.join(format!("folder{n}{}", ["", "_rw"][n % 2]))).unwrap());
        fs::create_dir_all(&srv).unwrap();
        fs::create_dir_all(dir.join(format!("{folders}/b1"))).unwrap();
        let at = dir.join(folders.to_string()).display().to_string();
        let gpu = |path: &str, host: &str, minor: u32| {
            format!(
                r#"{{"path":"{path}","host":"{host}","type":"c","major":195,"minor":{minor},"mode":438,"uid":0,"gid":0,"permissions":"rwm"}}"#
            )
        };
        let devices = format!(
            r#"{{"format":1,"vendors":{{"nvidia":{{"edits":{{"nodes":[{},{}],"mounts":[{{"host":"/usr","path":"/usr/lib/driver","options":["rbind","ro"]}}]}}}}}},
               "units":[{{"id":"GPU-a","names":["1"],"vendor":"nvidia","edits":{{"nodes":[{}]}}}}]}}"#,
            gpu("/dev/nvidiactl", "/dev/null", 255),
            gpu("/dev/nvidia-uvm", "/dev/full", 0),
            gpu("/dev/nvidia0", "/dev/zero", 0)
        );
        fs::write(format!("{at}/devices.json"), devices).unwrap();
        fs::copy(&stub, format!("{at}/stub")).unwrap();
        let policy = format!(
            r#"{{"format":1,"runc":"{at}/stub","folders":{{"steps":"tasks","root":"{at}/srv"}},"gpus":{{"access":"shared","devices":"{at}/devices.json"}}}}"#
        );
        fs::write(format!("{at}/policy.json"), policy).unwrap();
    }
    let row = |name: &str, program: &Path, folders, call| Row {
        name: name.to_owned(),
        program: program.to_owned(),
        folders,
        call,
        times: vec![],
    };
    let wrapper = Path::new(wrapper);
    let (one, each) = (Path::new(peers).join("bash-jq"), Path::new(peers).join("bash-jq-loop"));
    let mut rows = vec![
        row("nothing", &stub, 3, CREATE),
        row("create, 3 folders + 1 GPU", wrapper, 3, CREATE),
        row("the same by bash, a jq for each folder", &each, 3, CREATE),
        row("the same by bash, one jq for everything", &one, 3, CREATE),
        row("create, 0 folders + 1 GPU", wrapper, 0, CREATE),
        row("create, 20 folders + 1 GPU", wrapper, 20, CREATE),
        row("create, 100 folders + 1 GPU", wrapper, 100, CREATE),
        row("start", wrapper, 3, START),
        row("exec in a container without GPUs", wrapper, 3, EXEC),
        row("start by bash", &one, 3, START),
    ];
    let mut seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    // The first round warms up.
    for round in 0..=rounds {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        for at in (1..order.len()).rev() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            order.swap(at, (seed >> 33) as usize % (at + 1));
        }
        for at in order {
            let time = measure(dir, &rows[at], &config, &process);
            if round > 0 {
                rows[at].times.push(time);
            }
        }
    }
    let bare = quantiles(&mut rows[0].times);
    println!(
        "a runc that does nothing: {:.2} ms (median of {rounds}; {:.2} in the quickest tenth)\n",
        bare[0], bare[1]
    );
    println!("| what | adds, ms | in the quickest tenth |\n|---|---|---|");
    let mut added = vec![];
    for row in &mut rows[1..] {
        let times = quantiles(&mut row.times);
        added.push([times[0] - bare[0], times[1] - bare[1]]);
        println!("| {} | {:.2} | {:.2} |", row.name, times[0] - bare[0], times[1] - bare[1]);
    }
    let [three, each, one, none, _, hundred, start, exec, _] = added[..] else { unreachable!("nine rows") };
    println!("\n| goal | median | quickest tenth |\n|---|---|---|");
    let goal = |what: &str, result: [f64; 2], ok: fn(f64) -> bool| {
        let cell = |r: f64| format!("{r:.2}: {}", if ok(r) { "ok" } else { "missed" });
        println!("| {what} | {} | {} |", cell(result[0]), cell(result[1]));
    };
    let ratio = |a: [f64; 2], b: [f64; 2]| [a[0] / b[0], a[1] / b[1]];
    goal("create adds at most 1.5 ms", three, |r| r <= 1.5);
    goal("at least 60 times less than bash with a jq for each folder", ratio(each, three), |r| r >= 60.0);
    goal("at least 60 times less than bash with one jq", ratio(one, three), |r| r >= 60.0);
    goal("100 folders at most twice 0", ratio(hundred, none), |r| r <= 2.0);
    goal("other subcommands add at most 0.6 ms", start, |r| r <= 0.6);
    goal("exec without GPUs adds at most 0.6 ms", exec, |r| r <= 0.6);
}

/// Milliseconds of one call on a fresh bundle.
fn measure(dir: &Path, row: &Row, config: &str, process: &str) -> f64 {
    let at = dir.join(row.folders.to_string());
    let bundle = at.join("b1");
    fs::write(bundle.join("config.json"), config).unwrap();
    fs::write(bundle.join("process.json"), process).unwrap();
    let call = row.call.iter().map(|arg| arg.replace('@', bundle.to_str().unwrap()));
    let mut command = Command::new(&row.program);
    command
        .args(["--root", "/run/x", "--log", "/dev/null", "--log-format", "json"])
        .args(call)
        .current_dir(&bundle)
        .env("BENCH", &at)
        .env("CONCOURSE_RUNTIME_POLICY", at.join("policy.json"))
        .stdin(Stdio::null());
    let start = Instant::now();
    let status = command.status().expect("a program that starts");
    let time = start.elapsed().as_secs_f64() * 1e3;
    assert!(status.success(), "{}: {status}", row.name);
    let edited = fs::read_to_string(bundle.join("config.json")).unwrap() != config;
    let edits = row.call[0] == "create" && row.program != dir.join("stub");
    assert_eq!(edited, edits, "{}: not what is to be measured", row.name);
    time
}

/// The median, and what the quickest tenth stays below: on a busy machine that is nearer to a machine at rest.
fn quantiles(times: &mut [f64]) -> [f64; 2] {
    times.sort_by(f64::total_cmp);
    [times[times.len() / 2], times[times.len() / 10]]
}
