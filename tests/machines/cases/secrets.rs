//! Passwords and private keys are where they have to be, and nowhere else: marker values, searched for everywhere.

use crate::kit::cloud::Cloud;
use serde_json::Value;

/// Notes each command line that shows on the machine for some milliseconds.
const SAMPLER: &str = r#"cat > /root/sampler.pl <<'END'
$| = 1; $/ = undef; my %seen;
while (1) {
    opendir(my $proc, "/proc");
    for my $pid (grep { /^\d+$/ } readdir $proc) {
        open(my $file, "<", "/proc/$pid/cmdline") or next;
        my $line = <$file>;
        next if !$line || $seen{$line}++;
        $line =~ tr/\0/ /;
        print "$line\n";
    }
    select(undef, undef, undef, 0.001);
}
END
systemd-run --quiet --unit=sampler --property=StandardOutput=file:/root/argv perl /root/sampler.pl"#;

/// A line from the middle of each private key of a machine: whoever shows it shows the key.
const KEY_LINES: &str = "cd /var/lib/concourse/keys; for key in *_key; do sed -n 20p $key; done";

/// Every file with a marker in it, with a `!` before those that anybody on the machine can read.
const SEARCH: &str = r#"cd /; find / /run /tmp /dev/shm -xdev -type f ! -path '/root/*' ! -path '/proc/*' ! -path '/sys/*' -print0 |
    xargs -0 grep -slF -f /root/markers | sort -u | while read -r file; do
        if runuser -u nobody -- test -r "$file"; then echo "!$file"; else echo "$file"; fi
    done"#;

#[test]
#[ignore = "needs machines"]
fn machine_secrets_are_nowhere() {
    let cloud = Cloud::start("nowhere");
    cloud.database();
    let machines = [cloud.machine(false), cloud.machine(false)];
    for machine in &machines {
        cloud.exec(machine, SAMPLER);
    }
    let mut markers = vec![];

    // A life with everything in it that handles secrets.
    let id = cloud.juju(&["add-secret", "creds", "ldap-bind-pw=marker-ldap-one"]);
    cloud.deploy("web", "1", &["deployment-mode=web", &format!("concourse-secrets={}", id.trim())]);
    cloud.deploy("worker", "2", &["deployment-mode=worker"]);
    cloud.juju(&["grant-secret", "creds", "web"]);
    cloud.juju(&["integrate", "web:database", "postgresql:database"]);
    cloud.juju(&["integrate", "web:web-tsa", "worker:worker-tsa"]);
    cloud.settle();
    cloud.wait_active("web/0");
    cloud.wait_active("worker/0");
    let random = cloud.environment("1", "concourse-web")["CONCOURSE_POSTGRES_PASSWORD"].clone();
    markers.extend([random, cloud.password("web/0")]);
    markers.extend(key_lines(&cloud));
    for password in ["marker-database-one", "marker-database-bad\u{7}", "marker-database-two"] {
        cloud.rotate_database_password(password);
    }
    cloud.juju(&["emulate", "fail-tool", "web/0", "secret-get"]);
    cloud.juju(&["update-secret", "creds", "ldap-bind-pw=marker-ldap-two"]);
    cloud.settle();
    cloud.config("web", "log-level=debug");
    cloud.config("worker", "log-level=debug");
    cloud.run("web/0", &["rotate-keys"]);
    cloud.run("worker/0", &["rotate-keys"]);
    cloud.run("web/0", &["run-migrations"]);
    cloud.run("web/0", &["check-status", "verbose=true"]);
    cloud.run("worker/0", &["check-status", "verbose=true"]);
    cloud.settle();
    cloud.wait_active("web/0");
    cloud.wait_active("worker/0");
    markers.extend(key_lines(&cloud));
    for part in ["database-one", "database-bad", "database-two", "ldap-one", "ldap-two"] {
        markers.push(format!("marker-{part}"));
    }
    assert_eq!(markers.len(), 2 + 3 + 3 + 5, "{markers:?}");
    assert!(markers.iter().all(|marker| marker.len() >= 12), "{markers:?}");
    let assert_clean = |place: &str, text: &str| {
        assert!(!text.is_empty(), "{place} is empty: nothing was searched");
        for needle in markers.iter().map(String::as_str).chain(["PRIVATE KEY"]) {
            if let Some(line) = text.lines().find(|line| line.contains(needle)) {
                panic!("{place} shows {needle}: {}", line.chars().take(400).collect::<String>());
            }
        }
    };

    for machine in &machines {
        cloud.exec(machine, "systemctl stop sampler");
        let seen = cloud.exec(machine, "cat /root/argv");
        // Juju's tools come and go too quickly to be seen for sure; what they are given is in the dump.
        for program in ["ssh-keygen ", "systemctl ", "/bin/concourse "] {
            assert!(seen.contains(program), "the sampler has not even seen {program}");
        }
        assert_clean("a command line", &seen);
        assert_clean("the journal", &cloud.exec(machine, "journalctl --no-pager -o cat"));
    }
    assert_clean("juju status", &cloud.juju(&["status", "--relations", "--format", "json"]));
    for unit in ["web/0", "worker/0"] {
        assert_clean("juju show-unit", &cloud.juju(&["show-unit", unit]));
    }
    assert_clean("juju debug-log", &cloud.juju(&["debug-log"]));
    let dump = cloud.dump();
    for part in ["relations", "log", "history", "units"] {
        assert!(!matches!(dump[part], Value::Null), "the dump has no {part}");
        assert_clean(part, &dump[part].to_string());
    }

    let files = [
        ("1", "640 root:concourse /etc/concourse/web.env"),
        ("1", "600 concourse:concourse /var/lib/concourse/keys/tsa_host_key"),
        ("1", "600 concourse:concourse /var/lib/concourse/keys/session_signing_key"),
        ("1", "600 root:root /var/lib/concourse/charm/memory.json"),
        ("2", "600 root:root /etc/concourse/worker.env"),
        ("2", "600 root:root /var/lib/concourse/keys/worker_key"),
        ("2", "600 root:root /var/lib/concourse/charm/memory.json"),
    ];
    for (machine, wanted) in files {
        let path = wanted.rsplit(' ').next().unwrap();
        assert_eq!(cloud.exec(machine, &format!("stat -c '%a %U:%G %n' {path}")).trim(), wanted);
    }
    for (machine, expected) in
        machines.iter().zip(["/etc/concourse/web.env", "/var/lib/concourse/keys/worker_key"])
    {
        let write = format!("umask 077; cat > /root/markers <<'END'\n{}\nEND", markers.join("\n"));
        cloud.exec(machine, &write);
        let found = cloud.exec(machine, SEARCH);
        assert!(
            found.lines().any(|line| line == expected),
            "the search doesn't even find {expected}: {found}"
        );
        assert!(!found.contains('!'), "anybody can read a secret:\n{found}");
    }
}

fn key_lines(cloud: &Cloud) -> Vec<String> {
    let all = cloud.exec("1", KEY_LINES) + &cloud.exec("2", KEY_LINES);
    all.lines().map(str::to_owned).collect()
}
