//! The shape of the code: what is pure stays pure, arrows go one way, files stay short.

#![allow(missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};

/// From the outside in, with a rank: a module may use those of its own rank and of greater ones, and none of a smaller
/// one. `true` ones are pure: they touch nothing.
const LAYERS: [(&str, u8, bool); 23] = [
    ("bin", 0, false),
    ("hook", 1, false),
    ("actions", 2, true),
    ("apply", 2, false),
    ("observe", 3, false),
    ("status", 3, true),
    ("plan", 4, true),
    ("view", 5, true),
    ("render", 6, true),
    ("step", 6, true),
    ("world", 7, true),
    ("juju", 8, false),
    ("gpu", 7, false),
    ("cdi", 8, false),
    ("install", 8, false),
    ("packages", 8, false),
    ("event", 8, true),
    ("host", 9, false),
    ("config", 10, true),
    ("role", 10, true),
    ("oci", 11, false),
    ("parse", 11, true),
    ("paths", 11, true),
];

fn layer(module: &str) -> (u8, bool) {
    let found = LAYERS.iter().find(|(name, ..)| *name == module);
    found.map(|(_, rank, pure)| (*rank, *pure)).unwrap_or_else(|| panic!("{module} has no layer"))
}

/// What a pure module must not name: the world outside.
const OUTSIDE: [&str; 8] = [
    "std::fs::",
    "std::process",
    "std::env",
    "std::net::Tcp",
    "host::cmd",
    "host::http",
    "Instant::now",
    "SystemTime",
];

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}

fn source() -> Vec<(String, PathBuf, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    files(&src)
        .into_iter()
        .filter(|path| !path.ends_with("lib.rs"))
        .map(|path| {
            let inside = path.strip_prefix(&src).unwrap();
            let module = inside.iter().next().unwrap().to_string_lossy().replace(".rs", "");
            // Tests may do what they like.
            let text = fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]").next().unwrap().to_owned();
            (module, path, text)
        })
        .collect()
}

#[test]
fn pure_modules_touch_nothing() {
    for (module, path, text) in source() {
        let pure = layer(&module).1;
        for outside in OUTSIDE.iter().filter(|_| pure) {
            assert!(!text.contains(outside), "{} is pure and names {outside}", path.display());
        }
    }
}

/// In `oci` most files decide and a few act.
#[test]
fn the_wrapper_decides_without_touching() {
    for (module, path, text) in source() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let pure = [
            "able", "args", "choice", "devices", "edit", "exec", "json", "model", "place", "policy",
            "request", "say",
        ]
        .contains(&name.as_str());
        for outside in OUTSIDE.iter().filter(|_| module == "oci" && pure) {
            assert!(!text.contains(outside), "{} is pure and names {outside}", path.display());
        }
    }
}

#[test]
fn imports_go_one_way() {
    for (module, path, text) in source() {
        for used in text.split("crate::").skip(1) {
            let used: String = used.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            if !used.is_empty() {
                assert!(
                    layer(&module).0 <= layer(&used).0,
                    "{} uses {used}, which is further out",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn decisions_use_no_edge() {
    // Data types of edge modules may be named; their functions that act may not.
    for (module, path, text) in source() {
        if ["plan", "status", "view", "render", "actions"].contains(&module.as_str()) {
            for edge in [
                "crate::apply",
                "crate::observe",
                "crate::hook",
                "crate::host::",
                "juju::read",
                "tools::call",
            ] {
                assert!(!text.contains(edge), "{} decides and names {edge}", path.display());
            }
        }
        if module == "apply" || module == "observe" {
            assert!(!text.contains("crate::plan") && !text.contains("crate::status"), "{}", path.display());
        }
        if module == "host" || module == "config" || module == "parse" {
            assert!(!text.contains("crate::juju") && !text.contains("crate::view"), "{}", path.display());
        }
    }
}

#[test]
fn files_are_short() {
    for (_, path, text) in source() {
        let code = text.lines().filter(|l| !l.trim().is_empty() && !l.trim_start().starts_with("//")).count();
        assert!(code <= 300, "{} has {code} lines of code: split it", path.display());
    }
}

#[test]
fn only_one_file_starts_hook_tools() {
    let tools = ["relation-set", "secret-add", "status-set", "config-get"];
    for (_, path, text) in source() {
        for tool in tools {
            let starts =
                text.contains(&format!("cmd(\"{tool}\"")) || text.contains(&format!("call(\"{tool}\""));
            assert!(!starts || path.ends_with("juju/tools.rs"), "{} starts {tool}", path.display());
        }
    }
}
