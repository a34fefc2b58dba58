//! Containers of the real runc with a driver from a tree, beside the same as NVIDIA's spec says it: `GPU_IMAGE=DIR
//! NVIDIA_CDI_HOOK=FILE cargo test --test gpu_start -- --ignored`, as root. See tests/README.md.

#![allow(missing_docs)]

#[path = "gpu/kit.rs"]
mod kit;

use kit::{Lab, edits};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const HOOK: &str = env!("CARGO_BIN_EXE_runc-gpu-wrapper");

/// A program of the image's own that opens libraries by name: perl-base is in every Debian.
const PROBE: &str = r#"#!/usr/bin/perl
use DynaLoader;
for (@ARGV) { DynaLoader::dl_load_file($_) or die DynaLoader::dl_error(); print "$_ opened\n"; }
"#;

/// Says everything that a program could notice of the driver.
const LOOK: &str = "set -e
    ldconfig -p | sed 1d | sort
    echo first: $(ldconfig -p | grep -m1 'libcuda.so.1 ')
    for f in $(cat /files); do echo $f $(sha256sum < $f); done
    for l in $(cat /links); do echo $l $(sha256sum < $l); done
    nvidia-smi
    /probe libcuda.so.1 libcuda.so libnvidia-ml.so.1 libvdpau_nvidia.so.1
    find /dev | sort
    cat /etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf; echo";

fn image(lab: &Lab) -> PathBuf {
    // A layer of its own, so that nothing is left in the image that was given.
    let image = lab.at("image");
    fs::create_dir_all(&image).unwrap();
    assert!(Command::new("cp").arg("-aT").arg(&lab.image).arg(&image).status().unwrap().success());
    fs::write(image.join("probe"), PROBE).unwrap();
    fs::set_permissions(image.join("probe"), fs::Permissions::from_mode(0o755)).unwrap();
    image
}

/// The image with CUDA's forward compatibility libraries for these branches of the driver.
fn with_compat(lab: &Lab, image: &Path, name: &str, drivers: &str) -> PathBuf {
    let (copy, source) = (lab.at(name), lab.at("compat.s"));
    assert!(Command::new("cp").arg("-aT").arg(image).arg(&copy).status().unwrap().success());
    let dir = copy.join("usr/local/cuda-12.8/compat");
    fs::create_dir_all(&dir).unwrap();
    symlink("cuda-12.8", copy.join("usr/local/cuda")).unwrap();
    let note = format!(r#"{{\"Format\":1,\"CUDA Version\":\"12.8\",\"Driver\":{drivers},\"Device\":[1]}}"#);
    let text = format!(
        ".section .note.cuda.fwd_compatibility,\"a\",@note\n.long 19, 2f-1f, 1\n.asciz \"NVIDIA Corporation\"\n\
         .align 4\n1:.ascii \"{note}\"\n2:.align 4\n.section .note.GNU-stack,\"\"\n"
    );
    fs::write(&source, text).unwrap();
    let args = ["-shared", "-nostdlib", "-Wl,-soname,libcuda.so.1", "-o"];
    let file = dir.join("libcuda.so.570.124.06");
    assert!(Command::new("cc").args(args).arg(file).arg(&source).status().unwrap().success());
    copy
}

fn lists(image: &Path, devices: &concourse_ci_machine::oci::devices::Devices) {
    let driver = &devices.vendors[&concourse_ci_machine::oci::devices::Vendor::Nvidia].edits;
    // A library is found by its soname and the names for linkers, which are links: its file is in the tree alone.
    let apart = |m: &&concourse_ci_machine::oci::devices::Mount| {
        m.host.is_file()
            && !["x86_64-linux-gnu", "vdpau"].iter().any(|d| m.path.parent().unwrap().ends_with(d))
    };
    let files = driver.mounts.iter().filter(apart).map(|m| m.path.display().to_string());
    let links = driver
        .hooks
        .iter()
        .flat_map(|h| &h.args)
        .filter_map(|a| a.split_once("::"))
        .map(|(_, l)| l.to_owned());
    fs::write(image.join("files"), files.collect::<Vec<_>>().join("\n")).unwrap();
    fs::write(image.join("links"), links.collect::<Vec<_>>().join("\n")).unwrap();
}

#[test]
#[ignore = "needs root, runc, cc, GPU_IMAGE and NVIDIA_CDI_HOOK"]
fn gpu_tree_is_as_the_plain_spec() {
    let lab = Lab::new(HOOK).unwrap();
    assert!(lab.theirs.is_some(), "NVIDIA_CDI_HOOK names no nvidia-cdi-hook");
    let plain = lab.driver();
    let ours = lab.trees().equip(&plain).unwrap();
    let image = image(&lab);
    lists(&image, &plain);
    let driver = edits(&ours, &[])[0];
    assert_eq!((driver.mounts.len(), driver.hooks.len()), (3, 1), "the tree, two sockets, one hook");
    let compat = |folder: &str, driver: &str| with_compat(&lab, &image, folder, driver);
    let (better, unfit) = (compat("better", "[535,550]"), compat("unfit", "[535,560]"));
    for (image, units) in [(&image, &[0][..]), (&image, &[3, 5]), (&better, &[0]), (&unfit, &[0])] {
        let look = |devices| lab.bundle(image, &edits(devices, units), &["sh", "-c", LOOK], false).run();
        let (theirs, mine) = (look(&plain).unwrap(), look(&ours).unwrap());
        // ldconfig lists what is in /usr/lib under /lib too, which is a link to it; ours some in the tree.
        // And the machine's ldconfig, which theirs runs, is another than the image's: it forgets what old ones noted.
        let alike = |l: &str| {
            let l = l.replace("=> /usr/lib/concourse-gpu", "=> ").replace("=> /lib/", "=> /usr/lib/");
            l.split_once(", OS ABI")
                .map_or(l.clone(), |(l, rest)| format!("{l}{}", &rest[rest.find(')').unwrap()..]))
        };
        let set = |text: &str| {
            text.lines().filter(|l| !l.starts_with("Cache generated by")).map(alike).collect::<BTreeSet<_>>()
        };
        let (theirs, mine) = (set(&theirs), set(&mine));
        assert!(mine.iter().any(|l| l.contains("/usr/lib/x86_64-linux-gnu/libcuda.so.1")));
        let first = mine.iter().find(|l| l.starts_with("first: ")).unwrap();
        assert_eq!(
            first.contains("/usr/local/cuda-12.8/compat/libcuda.so.1"),
            image.ends_with("better"),
            "{first}"
        );
        // Their hook links to cards that this container was not given.
        let only_theirs: Vec<_> = theirs.difference(&mine).filter(|l| !l.ends_with("-card")).collect();
        let only_mine: Vec<_> = mine.difference(&theirs).collect();
        assert_eq!((only_theirs, only_mine), (vec![], vec![]));
    }
}

#[test]
#[ignore = "needs root, runc, cc and GPU_IMAGE"]
fn gpu_tree_in_images_of_all_kinds() {
    let lab = Lab::new(HOOK).unwrap();
    let ours = lab.trees().equip(&lab.driver()).unwrap();
    let full = image(&lab);
    let some = edits(&ours, &[0]);
    let run = |bundle: &kit::Bundle| bundle.run().unwrap_or_else(|e| panic!("{e}"));

    // A task that installs packages runs ldconfig.
    let again = "ldconfig; /probe libcuda.so.1; ldconfig -p | grep -c libcuda.so.1";
    let said = run(&lab.bundle(&full, &some, &["sh", "-c", again], false));
    assert!(said.contains("libcuda.so.1 opened\n"), "{said}");

    // In a user namespace, whose root is nobody to the machine.
    let owned = lab.owned(&full);
    let said = run(&lab.bundle(&owned, &some, &["sh", "-c", "/probe libcuda.so.1; nvidia-smi; id -u"], true));
    assert_eq!(said, "libcuda.so.1 opened\nthis is nvidia-smi\n0\n");

    // Without a cache, as distroless images have it, and without its directory.
    let bare = lab.at("bare");
    assert!(Command::new("cp").arg("-aT").arg(&full).arg(&bare).status().unwrap().success());
    for gone in ["etc/ld.so.cache", "etc/ld.so.conf"] {
        fs::remove_file(bare.join(gone)).unwrap();
    }
    fs::remove_dir_all(bare.join("etc/ld.so.conf.d")).unwrap();
    fs::remove_file(bare.join("sbin/ldconfig")).unwrap();
    let said = run(&lab.bundle(&bare, &some, &["/probe", "libcuda.so.1"], false));
    assert_eq!(said, "libcuda.so.1 opened\n");

    // A static program in an otherwise empty image.
    let (tiny, source) = (lab.at("tiny"), lab.at("tiny.c"));
    fs::create_dir_all(&tiny).unwrap();
    fs::write(&source, "int main(void) { return 0; }").unwrap();
    assert!(
        Command::new("cc")
            .args(["-static", "-o"])
            .arg(tiny.join("true"))
            .arg(&source)
            .status()
            .unwrap()
            .success()
    );
    run(&lab.bundle(&tiny, &some, &["/true"], false));

    // The same root a second time, as after a restart of containerd.
    let bundle = lab.bundle(
        &full,
        &some,
        &["sh", "-c", "ls /etc/ld.so.conf.d; find / -xdev -newer /probe | wc -l"],
        false,
    );
    assert_eq!(run(&bundle), run(&bundle));
}

#[test]
#[ignore = "needs root, runc, cc and GPU_IMAGE"]
fn gpu_tree_in_hostile_images() {
    let lab = Lab::new(HOOK).unwrap();
    let ours = lab.trees().equip(&lab.driver()).unwrap();
    let outside = lab.at("outside");
    fs::create_dir(&outside).unwrap();
    let (source, program) = (lab.at("tiny.c"), lab.at("true"));
    fs::write(&source, "int main(void) { return 0; }").unwrap();
    assert!(
        Command::new("cc").args(["-static", "-o"]).arg(&program).arg(&source).status().unwrap().success()
    );
    let out = outside.display();
    for (number, (path, target)) in [
        ("etc", format!("{out}")),
        ("etc", format!("/proc/1/root{out}")),
        ("etc", format!("/proc/self/root{out}")),
        ("etc", format!("/proc/1/cwd/../../../../../../../../../..{out}")),
        ("etc/ld.so.conf.d", format!("/proc/1/root{out}")),
        ("etc/ld.so.cache", format!("/proc/1/root{out}/cache")),
        ("usr/lib/x86_64-linux-gnu", format!("/proc/1/root{out}")),
        ("usr/bin", format!("{out}")),
    ]
    .into_iter()
    .enumerate()
    {
        let image = lab.at(&format!("hostile-{number}"));
        fs::create_dir_all(image.join(path).parent().unwrap()).unwrap();
        fs::copy(&program, image.join("true")).unwrap();
        symlink(&target, image.join(path)).unwrap();
        let done = lab.bundle(&image, &edits(&ours, &[0]), &["/true"], false).run();
        if let Err(why) = &done {
            assert!(
                why.contains("the GPU's driver could not be added to the container"),
                "{path} {target}: {why}"
            );
        }
        assert!(fs::read_dir(&outside).unwrap().next().is_none(), "{path} -> {target} led out: {done:?}");
    }
}

#[test]
#[ignore = "needs root, runc, cc and GPU_IMAGE"]
fn gpu_tree_stays_while_a_container_has_it() {
    let lab = Lab::new(HOOK).unwrap();
    let trees = lab.trees();
    let ours = trees.equip(&lab.driver()).unwrap();
    let tree = edits(&ours, &[])[0].mounts[0].host.parent().unwrap().to_path_buf();
    let bundle = lab.bundle(&lab.image.clone(), &edits(&ours, &[0]), &["true"], false);
    bundle.create();
    assert_eq!(trees.clean(&[]).unwrap(), Vec::<PathBuf>::new());
    bundle.delete();
    assert_eq!(trees.clean(&[]).unwrap(), [tree]);
}

#[test]
#[ignore = "needs root, runc, cc and GPU_IMAGE"]
fn gpu_tree_covers_files_of_proc() {
    let lab = Lab::new(HOOK).unwrap();
    let ours = lab.trees().equip(&lab.driver()).unwrap();
    let root = edits(&ours, &[])[0].mounts[0].host.clone();
    // Without the driver, another file stands for /proc/driver/nvidia/params.
    let plan = root.parent().unwrap().join("plan.json");
    let text = fs::read_to_string(&plan)
        .unwrap()
        .replace(r#""binds":[]"#, r#""binds":["/proc/uptime","/proc/none"]"#);
    fs::write(&plan, text).unwrap();
    fs::create_dir(root.join("proc")).unwrap();
    fs::write(root.join("proc/uptime"), "covered\n").unwrap();
    for userns in [false, true] {
        let look = "cat /proc/uptime; (echo x > /proc/uptime) 2> /dev/null || echo read-only";
        let image = if userns { lab.owned(&lab.image) } else { lab.image.clone() };
        let bundle = lab.bundle(&image, &edits(&ours, &[]), &["sh", "-c", look], userns);
        let said = bundle.run().unwrap();
        assert!(said.starts_with("covered\n") && said.ends_with("read-only\n"), "{userns}: {said}");
    }
}
