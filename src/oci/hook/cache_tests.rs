use super::*;
use proptest::prelude::*;
use std::process::Command;

fn library(name: &str, path: &str) -> Library {
    Library { name: name.into(), path: path.into(), flags: 0x0303 }
}

fn listed(cache: &Cache) -> Vec<(String, String)> {
    let text = |b: &Vec<u8>| String::from_utf8_lossy(b).into_owned();
    cache.entries.iter().map(|e| (text(&e.name), text(&e.path))).collect()
}

/// As this machine's ldconfig lists a file: `libz.so.1 (libc6,x86-64) => /lib/…/libz.so.1`.
fn ldconfig(file: &[u8]) -> Vec<(String, String)> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    std::fs::write(&path, file).unwrap();
    let out = Command::new("/sbin/ldconfig").args(["-p", "-C"]).arg(&path).output().expect("ldconfig");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    let line = |l: &str| {
        let (name, path) = l.trim().split_once(" => ")?;
        Some((name.split(' ').next()?.to_owned(), path.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

#[test]
fn the_cache_of_this_machine() {
    let file = std::fs::read("/etc/ld.so.cache").expect("a machine with glibc");
    let mut cache = Cache::decode(&file).unwrap();
    assert!(cache.entries.len() > 20);
    assert_eq!(listed(&cache), ldconfig(&file));
    assert!(cache.entries.is_sorted_by(|a, b| order(a, b).is_le()), "the order is ldconfig's own");
    assert_eq!(Cache::decode(&cache.encode()), Some(cache.clone()));
    assert_eq!(ldconfig(&cache.encode()), ldconfig(&file));

    let before = listed(&cache);
    let ours = [library("libcuda.so.1", "/x/libcuda.so.1"), library("libc.so.6", "/x/libc.so.6")];
    cache.add(&ours);
    let after = ldconfig(&cache.encode());
    assert_eq!(after.len(), before.len() + 2);
    let first = |name: &str| after.iter().find(|(n, _)| n == name).unwrap().1.clone();
    assert_eq!(first("libcuda.so.1"), "/x/libcuda.so.1");
    assert_eq!(first("libc.so.6"), "/x/libc.so.6", "before the image's own");
    let once = cache.encode();
    cache.add(&ours);
    assert_eq!(cache.encode(), once, "twice is once");
    let rest: Vec<_> = after.into_iter().filter(|(_, p)| !p.starts_with("/x/")).collect();
    assert_eq!(rest, before, "nothing else moves");
}

#[test]
fn an_image_without_a_cache() {
    let mut cache = Cache::default();
    cache.add(&[library("libcuda.so", "/x/libcuda.so"), library("libcuda.so.1", "/x/libcuda.so.1")]);
    let expected = [("libcuda.so.1", "/x/libcuda.so.1"), ("libcuda.so", "/x/libcuda.so")];
    assert_eq!(ldconfig(&cache.encode()), expected.map(|(n, p)| (n.to_owned(), p.to_owned())));
}

#[test]
fn caches_of_old_and_new_glibc() {
    let mut cache = Cache {
        entries: vec![
            Entry { flags: 0x303, name: "liba.so.10".into(), path: "/l/liba.so.10".into(), os: 7, hwcap: 0 },
            Entry {
                flags: 0x303,
                name: "liba.so.9".into(),
                path: "/l/v3/liba.so.9".into(),
                os: 0,
                hwcap: NAMED_HWCAP,
            },
            Entry { flags: 0x303, name: "liba.so.9".into(), path: "/l/liba.so.9".into(), os: 0, hwcap: 0 },
        ],
        hwcaps: vec!["x86-64-v3".into()],
        generator: "ldconfig (GNU libc) stable release version 2.39".into(),
    };
    let new = cache.encode();
    assert_eq!(Cache::decode(&new), Some(cache.clone()), "names of subdirectories, and who made it");
    // 2.31 and before: the old format in front, here with two entries.
    let mut compat = [OLD_MAGIC.as_slice(), &2u32.to_le_bytes(), &[0; 24]].concat();
    compat.extend(&new);
    assert_eq!(Cache::decode(&compat), Some(cache.clone()));
    cache.add(&[library("liba.so.9", "/ours")]);
    let paths: Vec<String> = listed(&cache).into_iter().map(|(_, p)| p).collect();
    assert_eq!(paths, ["/l/liba.so.10", "/l/v3/liba.so.9", "/ours", "/l/liba.so.9"]);
}

#[test]
fn names_are_ordered_as_ld_so_does() {
    for (a, b) in
        [("liba.so.9", "liba.so.10"), ("liba", "libb"), ("lib", "liba"), ("liba", "lib1"), ("", "a")]
    {
        assert_eq!(names(a.as_bytes(), b.as_bytes()), Ordering::Less, "{a} {b}");
        assert_eq!(names(b.as_bytes(), a.as_bytes()), Ordering::Greater, "{b} {a}");
    }
    assert_eq!(names(b"liba.so.1", b"liba.so.01"), Ordering::Equal);
}

proptest! {
    #[test]
    fn never_panics(
        noise in prop::collection::vec(any::<u8>(), 0..400),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let _ = Cache::decode(&noise);
        let mut file = Cache {
            entries: vec![Entry { flags: 3, name: "liba".into(), path: "/liba".into(), os: 0, hwcap: NAMED_HWCAP }; 4],
            hwcaps: vec!["v3".into()],
            generator: "x".into(),
        }.encode();
        for (at, byte) in flips {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if let Some(mut cache) = Cache::decode(&file) {
            cache.add(&[library("liba", "/ours")]);
            prop_assert_eq!(Cache::decode(&cache.encode()), Some(cache));
        }
    }
}
