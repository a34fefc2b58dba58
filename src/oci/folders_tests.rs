use super::*;

fn entry(name: &str, kind: Kind) -> Entry {
    Entry { name: name.into(), kind }
}

#[test]
fn what_is_a_folder_and_what_is_not() {
    let link = |to: &str| Kind::Link(to.into());
    let found = choose(
        Path::new("/srv"),
        &[
            entry("out_rw", Kind::Directory),
            entry("cache_writable", Kind::Directory),
            entry("data", Kind::Directory),
            entry("rw", Kind::Directory),
            entry("latest", link("/srv/data")),
            entry("bare", link("./data/")),
            entry("twice", link("latest")),
            entry("away", link("/etc")),
            entry("deep", link("/srv/out_rw/x")),
            entry("up", link("/srv")),
            entry("gone", link("nothing")),
            entry("note", link("file")),
            // To a folder, but on a way that a task could turn another way.
            entry("round", link("out_rw/../data")),
            entry("through", link("/srv/out_rw/link-to-data")),
            entry("a", link("b")),
            entry("b", link("a")),
            entry("file", Kind::Other),
            entry(".hidden", Kind::Directory),
            entry("lost+found", Kind::Directory),
        ],
    );
    let folder =
        |f: &Folder| format!("{} < {} {:?}", f.path.display(), f.source.display(), f.mount().options);
    assert_eq!(
        found.folders.iter().map(folder).collect::<Vec<_>>(),
        [
            r#"/srv/bare < /srv/data ["rbind", "ro"]"#,
            r#"/srv/cache_writable < /srv/cache_writable ["rbind", "rw"]"#,
            r#"/srv/data < /srv/data ["rbind", "ro"]"#,
            r#"/srv/latest < /srv/data ["rbind", "ro"]"#,
            r#"/srv/out_rw < /srv/out_rw ["rbind", "rw"]"#,
            r#"/srv/rw < /srv/rw ["rbind", "ro"]"#,
            r#"/srv/twice < /srv/data ["rbind", "ro"]"#,
        ]
    );
    let told = |path: &str| found.skipped.iter().any(|s| s.starts_with(&format!("{path} ")));
    let skipped = ["away", "deep", "up", "gone", "note", "round", "through", "a", "b"];
    assert!(skipped.iter().all(|name| told(&format!("/srv/{name}"))), "{found:?}");
    assert_eq!(found.skipped.len(), skipped.len());
}

#[test]
fn a_scan_of_real_directories() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    assert_eq!(scan(&root.join("none")).unwrap(), Found::default());
    fs::create_dir(root.join("a")).unwrap();
    fs::write(root.join("file"), "").unwrap();
    std::os::unix::fs::symlink("a", root.join("b_rw")).unwrap();
    std::os::unix::fs::symlink("/etc", root.join("etc")).unwrap();
    // As a task leaves it that may write to the one folder: where it leads now is not where it will.
    std::os::unix::fs::symlink("../a", root.join("a/link")).unwrap();
    std::os::unix::fs::symlink("a/link", root.join("c")).unwrap();
    let found = scan(&root).unwrap();
    assert_eq!(found.folders.len(), 2);
    assert_eq!((&found.folders[1].source, found.folders[1].writable), (&root.join("a"), true));
    assert_eq!(found.skipped.len(), 2, "{found:?}");
}

#[test]
fn what_cant_be_mounted() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    let folders = scan(dir.path()).unwrap().folders;
    assert!(broken(&folders).is_none());
    fs::remove_dir(dir.path().join("b")).unwrap();
    let (folder, why) = broken(&folders).unwrap();
    assert_eq!((folder, why.kind()), (&folders[1], io::ErrorKind::NotFound));
    fs::write(dir.path().join("b"), "").unwrap();
    assert_eq!(broken(&folders).unwrap().1.kind(), io::ErrorKind::NotADirectory);
}

#[test]
fn what_a_step_has_in_the_same_place() {
    let folders = choose(
        Path::new("/srv"),
        &[entry("data", Kind::Directory), entry("latest", Kind::Link("/srv/data".into()))],
    )
    .folders;
    let taken = |destination: &str, source: Option<&str>| {
        let mount = Mounted { destination: destination.into(), source: source.map(str::to_owned) };
        taken(&[mount], Path::new("/srv"), &folders).map(|(_, path)| path.display().to_string())
    };
    let volume = Some("/var/lib/concourse/volumes/live/x/volume");
    for place in ["/srv/data", "/srv//data/", "srv/data", "/srv/a/../data"] {
        assert_eq!(taken(place, volume).as_deref(), Some("/srv/data"), "{place}");
        assert_eq!(taken(place, Some("/srv/data")), None, "our own, from before");
    }
    assert_eq!(taken("/srv/latest", Some("/srv/latest")).as_deref(), Some("/srv/latest"));
    assert_eq!(taken("/srv/latest", Some("/srv/data")), None);
    assert_eq!(taken("/srv/data", None).as_deref(), Some("/srv/data"), "a tmpfs");
    assert_eq!(taken("/srv", volume).as_deref(), Some("/srv"));
    assert_eq!(taken("/srv", Some("tmpfs")), None);
    for other in ["/", "/srv/database", "/srv/data/model", "/sr", "/tmp/build/0123abcd/srv/data"] {
        assert_eq!(taken(other, volume), None, "{other}");
    }
}

#[test]
fn what_an_image_has_in_the_same_place() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path();
    let folders = ["full", "empty", "file", "away"].map(|n| Folder {
        path: Path::new("/srv").join(n),
        source: "/".into(),
        writable: false,
        above_mounts: false,
    });
    let hidden = |image: &Path| hidden(image, Path::new("/srv"), &folders);
    assert_eq!(hidden(&image.join("none")).unwrap(), Vec::<PathBuf>::new());
    assert_eq!(hidden(image).unwrap(), Vec::<PathBuf>::new());
    fs::create_dir_all(image.join("var/srv/full/x")).unwrap();
    fs::create_dir_all(image.join("var/srv/empty")).unwrap();
    fs::write(image.join("var/srv/file"), "").unwrap();
    // As some images have it: absolute, but inside of the image.
    std::os::unix::fs::symlink("/var/srv", image.join("srv")).unwrap();
    assert_eq!(hidden(image).unwrap(), [Path::new("/srv/full"), Path::new("/srv/file")]);
    // Not as if it had nothing there.
    fs::remove_file(image.join("srv")).unwrap();
    std::os::unix::fs::symlink("srv", image.join("srv")).unwrap();
    let raw = |e: io::Error| e.raw_os_error().map(nix::errno::Errno::from_raw);
    assert_eq!(hidden(image).map_err(raw), Err(Some(nix::errno::Errno::ELOOP)));
}
