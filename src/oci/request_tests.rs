use super::*;
use Access::{Request as Asked, Shared};

fn unit(vendor: Vendor, id: &str, name: &str, model: &str, memory_mib: u64) -> Unit {
    Unit { model: Some(model.into()), memory_mib: Some(memory_mib), ..Unit::new(vendor, id, &[name]) }
}

/// Two NVIDIA GPUs of different kinds, and one of AMD.
fn three() -> Vec<Unit> {
    vec![
        unit(Vendor::Nvidia, "GPU-a", "0", "NVIDIA H200", 143_771),
        unit(Vendor::Nvidia, "GPU-b", "1", "NVIDIA GeForce RTX 4090", 24_564),
        unit(Vendor::Amd, "0000:03:00.0", "0", "AMD Instinct MI300X", 196_288),
    ]
}

/// `image | author`; without `|` there is no border.
fn env(words: &str) -> Vec<(String, String)> {
    let words = words.replace('|', "ATC_EXTERNAL_URL=http://ci");
    let pair = |word: &str| word.split_once('=').map(|(n, v)| (n.to_owned(), v.replace('_', " ")));
    words.split_whitespace().filter_map(pair).collect()
}

fn chosen(access: Access, words: &str, units: &[Unit]) -> String {
    let units: Vec<&Unit> = units.iter().collect();
    match Request::parse(&env(words)).and_then(|request| request.choose(access, &units)) {
        Ok(found) => found.iter().map(|u| u.id.as_str()).collect::<Vec<_>>().join(" "),
        Err(refusal) => format!("! {refusal}"),
    }
}

#[test]
fn a_shared_unit_promises_a_share_of_its_memory() {
    let (units, rules) = (three(), Leases::default());
    let units: Vec<&Unit> = units.iter().collect();
    let would_do = |sharers: u32, words: &str| {
        let request = Request::parse(&env(words)).unwrap().shared_by(sharers);
        let demand = request.demand(&rules, &units);
        demand.map(|demand| demand.unwrap().ask.units.join(" ")).map_err(|why| why.to_string())
    };
    assert_eq!(would_do(1, "| GPU_MEMORY_MIN=20GiB").unwrap(), "GPU-a GPU-b 0000:03:00.0");
    assert_eq!(would_do(2, "| GPU_MEMORY_MIN=20GiB").unwrap(), "GPU-a 0000:03:00.0");
    assert!(would_do(9, "| GPU_MEMORY_MIN=24GiB").unwrap_err().contains("GPU_MEMORY_MIN=24GiB"));
    assert_eq!(would_do(9, "| GPU_COUNT=1").unwrap(), "GPU-a GPU-b 0000:03:00.0");
}

#[test]
fn what_is_out_of_order_stops_only_who_asks_for_it() {
    let units = three();
    let units: Vec<&Unit> = units.iter().collect();
    let rules = Leases { default_count: DefaultCount::Some(4), ..Leases::default() };
    for (words, or_fewer, or_none) in [
        ("|", true, true),
        ("NVIDIA_VISIBLE_DEVICES=all |", true, false),
        ("NVIDIA_VISIBLE_DEVICES=all | GPU_COUNT=all", true, false),
        ("| AMD_VISIBLE_DEVICES=all", true, false),
        ("| GPU_COUNT=all NVIDIA_VISIBLE_DEVICES=0,1", false, false),
        ("| GPU_COUNT=3", false, false),
        ("| GPU_MODEL=h200", false, false),
    ] {
        let demand = Request::parse(&env(words)).unwrap().demand(&rules, &units).unwrap().unwrap();
        assert_eq!((demand.ask.or_fewer, demand.or_none), (or_fewer, or_none), "{words}");
    }
}

#[test]
fn memory_that_nobody_tells_is_said_to_be_the_reason() {
    let mut units = three();
    units[0].memory_mib = None;
    let why = |words: &str| chosen(Asked, words, &units);
    assert_eq!(why("| GPU_MEMORY_MIN=16GiB"), "GPU-b");
    assert_eq!(
        why("| GPU_COUNT=3 GPU_MEMORY_MIN=16GiB"),
        "! the task asks for GPU_COUNT=3 with GPU_MEMORY_MIN=16384MiB, and only 2 GPUs fit on this worker (1 more without \
         GPU_MEMORY_MIN, since the driver does not tell their memory): ask for less in the task's params, or give the \
         step the tags of a worker that has it"
    );
    assert!(!why("| GPU_MODEL=4090 GPU_MEMORY_MIN=99GiB").contains("does not tell"), "another model");
    assert!(!why("| GPU_COUNT=9").contains("does not tell"), "no memory was asked for");
}

#[test]
fn tasks_are_told_by_their_mounts() {
    for (path, task) in [
        ("/tmp/build/b5624d5c", true),
        ("/tmp/build/b5624d5c/img", true),
        ("/tmp/build/get", false),
        ("/tmp/build/put/out", false),
        ("/tmp/build/run", false),
        ("/tmp/build/B5624D5C", false),
        ("/tmp/build/b5624d5", false),
        ("/tmp/build/b5624d5cc", false),
        ("/tmp/build", false),
        ("/x/tmp/build/b5624d5c", false),
        ("/scratch", false),
    ] {
        assert_eq!(is_task(["/proc", path]), task, "{path}");
    }
}

#[test]
fn who_asks_gets_what_it_asked_for() {
    for (words, gets) in [
        // The image's word asks for nothing.
        ("NVIDIA_VISIBLE_DEVICES=all |", ""),
        ("NVIDIA_VISIBLE_DEVICES=0 GPU_COUNT=2 |", ""),
        ("NVIDIA_VISIBLE_DEVICES=all", ""),
        ("|", ""),
        ("", ""),
        ("NVIDIA_VISIBLE_DEVICES=all | GPU_COUNT=1", "GPU-a"),
        ("NVIDIA_VISIBLE_DEVICES=void | GPU_COUNT=1", "GPU-a"),
        ("| GPU_COUNT=2", "GPU-a GPU-b"),
        ("| GPU_COUNT=all", "GPU-a GPU-b 0000:03:00.0"),
        ("| GPU_COUNT=0", ""),
        ("| GPU_COUNT=none", ""),
        ("| GPU_COUNT=", ""),
        ("GPU_COUNT=1", "GPU-a"),
        ("| NVIDIA_VISIBLE_DEVICES=all", "GPU-a GPU-b"),
        ("| NVIDIA_VISIBLE_DEVICES=none", ""),
        ("| NVIDIA_VISIBLE_DEVICES=void GPU_COUNT=1", "0000:03:00.0"),
        ("| NVIDIA_VISIBLE_DEVICES=1", "GPU-b"),
        ("NVIDIA_VISIBLE_DEVICES=1", "GPU-b"),
        ("| NVIDIA_VISIBLE_DEVICES=1,GPU-a,1", "GPU-a GPU-b"),
        ("| NVIDIA_VISIBLE_DEVICES=1 GPU_COUNT=1", "GPU-b"),
        ("| NVIDIA_VISIBLE_DEVICES=all GPU_COUNT=1", "GPU-a"),
        ("| AMD_VISIBLE_DEVICES=0", "0000:03:00.0"),
        ("| AMD_VISIBLE_DEVICES=all NVIDIA_VISIBLE_DEVICES=1", "GPU-b 0000:03:00.0"),
        // The last one counts.
        ("| GPU_COUNT=9 GPU_COUNT=1", "GPU-a"),
        ("NVIDIA_VISIBLE_DEVICES=all | NVIDIA_VISIBLE_DEVICES=0 NVIDIA_VISIBLE_DEVICES=none", ""),
        ("| GPU_MODEL=rtx", "GPU-b"),
        ("| GPU_MODEL=nvidia_h200", "GPU-a"),
        ("| GPU_MEMORY_MIN=24GB GPU_COUNT=all", "GPU-a GPU-b 0000:03:00.0"),
        ("| GPU_MEMORY_MIN=24GiB GPU_COUNT=all", "GPU-a 0000:03:00.0"),
        ("| GPU_MEMORY_MIN=150Gi", "0000:03:00.0"),
    ] {
        assert_eq!(chosen(Asked, words, &three()), gets, "{words}");
    }
}

#[test]
fn everybody_gets_all_and_may_take_less() {
    let all = "GPU-a GPU-b 0000:03:00.0";
    for (words, gets) in [
        ("|", all),
        ("", all),
        ("NVIDIA_VISIBLE_DEVICES=all |", all),
        ("NVIDIA_VISIBLE_DEVICES=7 |", all),
        ("NVIDIA_VISIBLE_DEVICES=void |", ""),
        ("NVIDIA_VISIBLE_DEVICES=void | GPU_COUNT=1", "GPU-a"),
        ("| NVIDIA_VISIBLE_DEVICES=none", ""),
        ("| NVIDIA_VISIBLE_DEVICES=", ""),
        ("| GPU_COUNT=0", ""),
        ("| GPU_COUNT=2", "GPU-a GPU-b"),
        ("| NVIDIA_VISIBLE_DEVICES=1", "GPU-b 0000:03:00.0"),
        ("| NVIDIA_VISIBLE_DEVICES=1 AMD_VISIBLE_DEVICES=none", "GPU-b"),
        ("| GPU_MODEL=nvidia", "GPU-a GPU-b"),
    ] {
        assert_eq!(chosen(Shared, words, &three()), gets, "{words}");
    }
    assert_eq!(chosen(Shared, "|", &[]), "");
}

#[test]
fn more_than_there_is_is_refused_with_a_sentence() {
    let rest = "on this worker: ask for less in the task's params, or give the step the tags of a worker that has it";
    for access in [Asked, Shared] {
        for (words, text) in [
            ("| GPU_COUNT=4", format!("the task asks for GPU_COUNT=4, and only 3 GPUs fit {rest}")),
            (
                "| GPU_COUNT=2 GPU_MODEL=H200",
                format!("the task asks for GPU_COUNT=2 with GPU_MODEL=h200, and only 1 GPU fits {rest}"),
            ),
            ("| GPU_MODEL=B300", format!("the task asks for GPU_MODEL=B300, and no GPU fits {rest}")),
            (
                "| NVIDIA_VISIBLE_DEVICES=0,2",
                "NVIDIA_VISIBLE_DEVICES=0,2 names \"2\", which tasks can't have on this worker; they can have: 0 (GPU-a), \
                 1 (GPU-b). Change the variable in the task's params, or ask for a number of them with GPU_COUNT"
                    .to_owned(),
            ),
            (
                "| GPU_COUNT=two",
                "GPU_COUNT=two is no number of GPUs: write 1, 2… or all or none".to_owned(),
            ),
            ("| GPU_COUNT=-1", "GPU_COUNT=-1 is no number of GPUs: write 1, 2… or all or none".to_owned()),
            (
                "| GPU_MEMORY_MIN=24",
                "GPU_MEMORY_MIN=24 is no size: write a whole number with a unit, as 24GB or 24GiB".to_owned(),
            ),
        ] {
            assert_eq!(chosen(access, words, &three()), format!("! {text}"), "{words}");
        }
        assert!(
            chosen(access, "| NVIDIA_VISIBLE_DEVICES=all", &three()[2..])
                .starts_with("! the task asks for NV")
        );
        assert!(chosen(access, "| AMD_VISIBLE_DEVICES=0", &three()[..2]).contains("they can have: none"));
    }
}

#[test]
fn what_was_given_asks_for_the_same_again() {
    // `create` may come twice for a bundle; it then reads the variables that it set.
    for access in [Asked, Shared] {
        for words in [
            "|",
            "NVIDIA_VISIBLE_DEVICES=all | GPU_COUNT=1",
            "NVIDIA_VISIBLE_DEVICES=all",
            "| GPU_COUNT=3",
            "| GPU_MODEL=rtx",
            "GPU_COUNT=2",
            "| NVIDIA_VISIBLE_DEVICES=1",
        ] {
            let first = chosen(access, words, &three());
            let mut again = words.to_owned();
            for (vendor, name) in VISIBLE {
                let ids: Vec<&str> = first
                    .split(' ')
                    .filter(|id| (*id).starts_with("GPU-") == (vendor == Vendor::Nvidia))
                    .collect();
                let ids = ids.join(",");
                if !ids.is_empty() {
                    let old: Vec<String> = again.split_whitespace().map(|w| w.to_owned()).collect();
                    let set = |w: String| if w.starts_with(name) { format!("{name}={ids}") } else { w };
                    let there = old.iter().any(|w| w.starts_with(name));
                    again = old.into_iter().map(set).collect::<Vec<_>>().join(" ");
                    if !there {
                        again += &format!(" {name}={ids}");
                    }
                }
            }
            assert_eq!(chosen(access, &again, &three()), first, "{words}, then {again}");
        }
    }
}
