//! A machine that is a directory, with a real apt and dpkg, and sources of packages that are as bad as need be.

use concourse_ci_machine::host::fs::Root;
use concourse_ci_machine::install::Proxy;
use concourse_ci_machine::packages::{
    Ledger, Limits, Order, Purpose, Repository, Source, What, install, remove,
};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What the tests need beside apt and dpkg, which every machine of the charm's has.
const TOOLS: [&str; 4] = ["apt-get", "dpkg-deb", "gpg", "gpgv"];

/// Says loudly what is missing, on machines that are no Debian.
pub fn able() -> bool {
    let missing: Vec<&&str> =
        TOOLS.iter().filter(|tool| Command::new(tool).arg("--version").output().is_err()).collect();
    let root = nix::unistd::Uid::effective().is_root();
    if !missing.is_empty() || !root {
        eprintln!("NOT TESTED: packages; it takes root ({root}), and these are not there: {missing:?}");
    }
    missing.is_empty() && root
}

fn run(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|why| panic!("{command:?}: {why}"));
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

pub struct Machine {
    dir: tempfile::TempDir,
    pub limits: Limits,
}

impl Machine {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for path in [
            "etc/apt/apt.conf.d",
            "etc/apt/sources.list.d",
            "etc/apt/preferences.d",
            "etc/apt/trusted.gpg.d",
            "var/lib/apt/lists/partial",
            "var/cache/apt/archives/partial",
            "var/lib/dpkg/info",
            "var/lib/dpkg/updates",
            "var/lib/dpkg/triggers",
            "var/log/apt",
            "var/lib/dpkg/alternatives",
        ] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        fs::write(dir.path().join("var/lib/dpkg/status"), "").unwrap();
        let short = |seconds| Duration::from_secs(seconds);
        let limits = Limits { lock: short(1), stall: short(2), update: short(20), total: short(60) };
        Machine { dir, limits }
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path.trim_start_matches('/'))
    }

    pub fn root(&self) -> Root {
        Root::new(self.dir.path())
    }

    /// A source of the operator's, as a line of sources.list.
    pub fn source(&self, line: &str) {
        fs::write(self.path("/etc/apt/sources.list"), format!("{line}\n")).unwrap();
    }

    pub fn order(&self, what: What, repository: Option<Repository>) -> Result<(), String> {
        let proxy = Proxy::default();
        let order = Order { what, proxy, limits: self.limits.clone(), repository, boot: "boot".into() };
        let mut said = vec![];
        install(&self.root(), &order, &mut |words| said.push(words.to_owned())).unwrap().map_err(|no| no.0)
    }

    pub fn libraries(&self, version: &str) -> Result<(), String> {
        self.order(What::Libraries(version.into()), None)
    }

    pub fn remove(&self, purposes: &[Purpose]) -> Result<(), String> {
        remove(&self.root(), purposes, &self.limits).unwrap().map_err(|no| no.0)
    }

    pub fn ledger(&self) -> Ledger {
        let text =
            fs::read_to_string(self.path("/var/lib/concourse/charm/packages.json")).unwrap_or("{}".into());
        serde_json::from_str(&text).unwrap()
    }

    /// What the machine does every day.
    pub fn update(&self) {
        let dir = format!("Dir={}", self.dir.path().display());
        let status = format!("Dir::State::status={}", self.path("/var/lib/dpkg/status").display());
        let sandbox = "APT::Sandbox::User=root";
        run(Command::new("apt-get").args(["update", "-o", &dir, "-o", &status, "-o", sandbox]));
    }

    /// What the operator installs without apt.
    pub fn dpkg(&self, deb: &Path) {
        run(Command::new("dpkg")
            .arg(format!("--root={}", self.dir.path().display()))
            .arg("--install")
            .arg(deb));
    }

    /// What the operator removes without apt.
    pub fn purge(&self, name: &str) {
        let root = format!("--root={}", self.dir.path().display());
        run(Command::new("dpkg").args([&root, "--force-hold", "--purge", name]));
    }

    /// `name=version`, with a `*` where it is held.
    pub fn installed(&self) -> Vec<String> {
        let admin = format!("--admindir={}", self.path("/var/lib/dpkg").display());
        let format = "--showformat=${db:Status-Abbrev}${Package}=${Version}\n";
        let out = Command::new("dpkg-query").args([&admin, "--show", format]).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let of = |line: &str| {
            let held = if line.starts_with("hi ") { "*" } else { "" };
            let name = line.strip_prefix("hi ").or(line.strip_prefix("ii "))?;
            Some(format!("{name}{held}"))
        };
        text.lines().map(|line| of(line).unwrap_or_else(|| line.to_owned())).collect()
    }

    /// Files of ours in apt's configuration.
    pub fn traces(&self) -> Vec<String> {
        let dirs = ["/etc/apt/sources.list.d", "/etc/apt/keyrings", "/etc/apt/preferences.d"];
        let mut found: Vec<String> = dirs
            .iter()
            .flat_map(|dir| fs::read_dir(self.path(dir)).into_iter().flatten().flatten())
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        found.sort();
        found
    }
}

/// A directory of packages with a signed list.
pub struct Archive {
    dir: tempfile::TempDir,
    home: PathBuf,
}

impl Archive {
    /// Each package is `name version [dependency]`.
    pub fn new(packages: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let archive = Archive { home: dir.path().join("gnupg"), dir };
        fs::create_dir(&archive.home).unwrap();
        run(Command::new("chmod").arg("700").arg(&archive.home));
        archive.gpg(&["--quick-gen-key", "packages", "ed25519", "sign", "never"]);
        for package in packages {
            archive.deb(package);
        }
        archive.publish();
        archive
    }

    fn gpg(&self, args: &[&str]) -> String {
        let quiet = ["--batch", "--quiet", "--yes", "--passphrase", ""];
        run(Command::new("gpg").env("GNUPGHOME", &self.home).args(quiet).args(args))
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("repository")
    }

    /// Builds a package with one file, and gives its path.
    pub fn deb(&self, package: &str) -> PathBuf {
        let name = package.split(' ').next().unwrap();
        self.deb_with(package, &|tree| {
            let dir = tree.join("usr/share/doc").join(name);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("version"), package).unwrap();
        })
    }

    /// Builds a package whose files something else makes, and gives its path.
    pub fn deb_with(&self, package: &str, fill: &dyn Fn(&Path)) -> PathBuf {
        let mut words = package.splitn(3, ' ');
        let (name, version) = (words.next().unwrap(), words.next().unwrap());
        let depends = words.next().map(|depends| format!("Depends: {depends}\n")).unwrap_or_default();
        let tree = self.dir.path().join("tree");
        let _none = fs::remove_dir_all(&tree);
        fs::create_dir_all(tree.join("DEBIAN")).unwrap();
        fill(&tree);
        let control = format!(
            "Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: Test <test@example.com>\n{depends}Description: test\n"
        );
        fs::write(tree.join("DEBIAN/control"), control).unwrap();
        fs::create_dir_all(self.path()).unwrap();
        let deb = self.path().join(format!("{name}_{version}_all.deb"));
        run(Command::new("dpkg-deb").args(["--root-owner-group", "-Znone", "--build"]).arg(&tree).arg(&deb));
        deb
    }

    /// Writes the list, and signs it.
    pub fn publish(&self) {
        let digest =
            |bytes: &[u8]| -> String { Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect() };
        let mut list = String::new();
        fs::create_dir_all(self.path()).unwrap();
        for entry in fs::read_dir(self.path()).unwrap().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|e| e == "deb") {
                let bytes = fs::read(&path).unwrap();
                let fields = run(Command::new("dpkg-deb").arg("--field").arg(&path));
                let name = entry.file_name().into_string().unwrap();
                list += &format!(
                    "{fields}Filename: ./{name}\nSize: {}\nSHA256: {}\n\n",
                    bytes.len(),
                    digest(&bytes)
                );
            }
        }
        fs::write(self.path().join("Packages"), &list).unwrap();
        let date = run(Command::new("date").args(["-Ru"]));
        let release = format!("Date: {date}SHA256:\n {} {} Packages\n", digest(list.as_bytes()), list.len());
        fs::write(self.path().join("Release"), release).unwrap();
        let at = |name: &str| self.path().join(name).display().to_string();
        self.gpg(&["--clearsign", "--output", &at("InRelease"), &at("Release")]);
        self.gpg(&["--armor", "--output", &at("key.asc"), "--export"]);
        self.gpg(&["--output", &at("key.gpg"), "--export"]);
    }

    /// The line of an operator who trusts it.
    pub fn line(&self) -> String {
        let key = self.path().join("key.gpg");
        format!("deb [signed-by={}] file://{} /", key.display(), self.path().display())
    }

    /// As if it were NVIDIA's.
    pub fn repository(&self) -> Repository {
        let text = self.gpg(&["--with-colons", "--fingerprint"]);
        let fingerprint = text.lines().find_map(|line| line.strip_prefix("fpr:")).unwrap();
        Repository {
            source: Source::Cuda,
            url: format!("file:{}", self.path().display()),
            key_url: format!("file://{}", self.path().join("key.asc").display()),
            fingerprint: fingerprint.trim_matches(':').to_owned(),
        }
    }
}

/// A server that takes requests and never answers.
pub fn silent_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || while stream.read(&mut [0; 512]).is_ok_and(|n| n > 0) {});
        }
    });
    format!("http://{address}")
}
