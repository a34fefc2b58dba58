//! What a lease costs: a create that takes one over a create that shares; and, with 64 in line for two units, the time from
//! one runtime's end to the next one's start with the same unit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, dir, wrapper, stub, rounds] = &args[..] else { panic!("usage: leases DIRECTORY WRAPPER STUB ROUNDS") };
    let (dir, rounds): (&Path, usize) = (Path::new(dir), rounds.parse().expect("a number of rounds"));
    let unit = |n: usize| format!(r#"{{"id":"GPU-{n}","names":["{n}"],"vendor":"nvidia","edits":{{}}}}"#);
    let devices = format!(r#"{{"format":1,"vendors":{{}},"units":[{},{}]}}"#, unit(0), unit(1));
    fs::write(dir.join("devices.json"), devices).unwrap();
    for access in ["exclusive", "request"] {
        let d = dir.display();
        let policy = format!(
            r#"{{"format":1,"runc":"{stub}","folders":{{"steps":"none","root":"/srv"}},"gpus":{{"access":"{access}",
               "devices":"{d}/devices.json","leases":{{"dir":"{d}/leases","default_count":"none","wait_s":200}}}}}}"#
        );
        fs::write(dir.join(format!("{access}.json")), policy).unwrap();
    }
    let start = |access: &str, id: &str, hold: bool| -> Child {
        let bundle = dir.join("bundles").join(id);
        fs::create_dir_all(&bundle).unwrap();
        let config = r#"{"process":{"env":["ATC_EXTERNAL_URL=x","GPU_COUNT=1"]},"mounts":[{"destination":"/tmp/build/0123abcd"}]}"#;
        fs::write(bundle.join("config.json"), config).unwrap();
        let mut command = Command::new(wrapper);
        command.args(["create", "--bundle"]).arg(&bundle).arg(id).env("TIMES", dir.join("times"));
        command.env("CONCOURSE_RUNTIME_POLICY", dir.join(format!("{access}.json")));
        if hold {
            command.env("HOLD", "1");
        }
        command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut alone = [vec![], vec![]];
    for round in 0..rounds {
        for (at, access) in ["exclusive", "request"].into_iter().enumerate() {
            let begun = Instant::now();
            assert!(start(access, &format!("{access}{round}"), false).wait().unwrap().success());
            alone[at].push(begun.elapsed().as_secs_f64() * 1e3);
        }
    }
    let [lease, shared] = alone.map(|times| median(times));
    println!("a create with a lease: {lease:.2} ms, without: {shared:.2} ms, the lease: {:.2} ms", lease - shared);
    let (mut gaps, mut overtaken) = (vec![], 0);
    for round in 0..rounds.div_ceil(20) {
        let _ = fs::remove_file(dir.join("times"));
        let holders: Vec<Child> = (0..2).map(|at| start("exclusive", &format!("h{round}-{at}"), true)).collect();
        for at in 0..2 {
            let config = dir.join(format!("bundles/h{round}-{at}/config.json"));
            while !fs::read_to_string(&config).unwrap().contains("VISIBLE") {
                std::thread::yield_now();
            }
        }
        let table: PathBuf = dir.join("leases/leases.json");
        let has = |what: &str, n: usize| fs::read_to_string(&table).is_ok_and(|text| text.matches(what).count() >= n);
        let line: Vec<Child> = (0..64).map(|at| start("exclusive", &format!("w{round}-{at}"), false)).collect();
        while !has("\"ask\"", 64) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let stood = in_line(&fs::read_to_string(&table).unwrap());
        for mut holder in holders {
            holder.kill().unwrap();
            holder.wait().unwrap();
        }
        line.into_iter().for_each(|mut child| assert!(child.wait().unwrap().success()));
        let times = fs::read_to_string(dir.join("times")).unwrap();
        overtaken = overtaken.max(overtaking(&stood, &times));
        gaps.extend(handed_over(&times));
    }
    // The same with `flock`, which knows neither units nor order: what the machine itself takes to wake one and start it.
    let _ = fs::remove_file(dir.join("times"));
    let line: Vec<Child> = (0..64)
        .map(|at| {
            let bundle = dir.join(format!("bundles/f{at}"));
            fs::create_dir_all(&bundle).unwrap();
            fs::write(bundle.join("config.json"), format!("NVIDIA_VISIBLE_DEVICES=GPU-{}", at % 2)).unwrap();
            let mut command = Command::new("flock");
            command.arg(dir.join(format!("lock{}", at % 2))).arg(stub).args(["create", "--bundle"]).arg(&bundle);
            command.env("TIMES", dir.join("times")).spawn().unwrap()
        })
        .collect();
    line.into_iter().for_each(|mut child| assert!(child.wait().unwrap().success()));
    let locks = handed_over(&fs::read_to_string(dir.join("times")).unwrap());
    println!("64 at two locks of flock(1): {:.2} ms from end to start (median)", median(locks));
    let most = gaps.iter().copied().fold(0.0, f64::max);
    println!(
        "64 in line, {} leases handed over: {:.2} ms from end to start (median), {most:.1} ms at most; started {overtaken} \
         places out of line at most",
        gaps.len(),
        median(gaps.clone())
    );
    // One that sleeps through its turn would look for itself after five seconds.
    assert!(most < 2500.0 && overtaken <= 2, "a wake-up was lost, or one was overtaken");
}

/// Ids of those that wait, in order: `"waiters":[{"caller":{"id":"w0-7",…`.
fn in_line(table: &str) -> Vec<String> {
    let waiters = table.split_once("\"waiters\":").expect("a table").1;
    waiters.split("{\"caller\":{\"id\":\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
}

/// By how many places a start was off at the most: two that got their units at the same time may start in either order.
fn overtaking(stood: &[String], times: &str) -> usize {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut starts: Vec<(u64, String)> =
        times.lines().map(words).map(|words| (words[1].parse().unwrap(), words[3].clone())).collect();
    starts.sort();
    let place = |id: &String| stood.iter().position(|stood| stood == id).expect("it stood in line");
    starts.iter().enumerate().map(|(at, (_, id))| place(id).abs_diff(at)).max().unwrap_or(0)
}

/// Lines are `unit begin end id`, in ns. Those of the holders, which were killed, are not there.
fn handed_over(times: &str) -> Vec<f64> {
    let mut runs: Vec<(String, u64, u64)> = vec![];
    for line in times.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        runs.push((words[0].to_owned(), words[1].parse().unwrap(), words[2].parse().unwrap()));
    }
    runs.sort();
    let pairs = runs.windows(2).filter(|two| two[0].0 == two[1].0);
    pairs.map(|two| {
        assert!(two[1].1 > two[0].2, "two had {} at once", two[0].0);
        (two[1].1 - two[0].2) as f64 / 1e6
    }).collect()
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
