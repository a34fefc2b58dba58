//! The database's password and place change under a running web node, over both interfaces.

use crate::kit::cloud::Cloud;
use std::time::{Duration, Instant};

/// What a URL, a shell, libpq or systemd would take for something else, and a line break.
const PASSWORD: &str = "@:/%#'\"\\ x$;`é\n=second line";
/// systemd drops a variable with such a character in it, without a word.
const CONTROL: &str = "never\u{7}mind";

/// The web node works as users see it: its status, its API, an old login and a new one.
fn assert_works(cloud: &Cloud, password: &str, token: &str) {
    cloud.wait_active("web/0");
    cloud.wait_workers("1", token, &[]);
    cloud.wait_workers("1", &cloud.login("1", password), &[]);
}

fn environment(cloud: &Cloud, name: &str) -> String {
    cloud.environment("1", "concourse-web")[&format!("CONCOURSE_POSTGRES_{name}")].clone()
}

/// A password that can't work is refused whole and breaks nothing, and the next one is taken.
fn rotate(cloud: &Cloud, password: &str, token: &str) {
    let before = (cloud.pid("1", "concourse-web"), cloud.exec("1", "cat /etc/concourse/web.env"));
    cloud.rotate_database_password(CONTROL);
    let told =
        "blocked: The database relation has a password with a control character, which systemd can't hand on";
    assert_eq!(cloud.status("web/0"), told);
    assert_eq!((cloud.pid("1", "concourse-web"), cloud.exec("1", "cat /etc/concourse/web.env")), before);

    // A web node that waits for a database which refuses it would take its time to stop.
    let start = Instant::now();
    cloud.rotate_database_password(PASSWORD);
    assert!(start.elapsed() < Duration::from_secs(60), "away for {:?}", start.elapsed());
    assert_eq!(environment(cloud, "PASSWORD"), PASSWORD);
    assert_works(cloud, password, token);
}

#[test]
#[ignore = "needs machines"]
fn machine_a_rotated_password_and_a_moved_database() {
    let cloud = Cloud::with_web("moved", &[]);
    cloud.settle();
    cloud.wait_active("web/0");
    let password = cloud.password("web/0");
    let token = cloud.login("1", &password);

    cloud.juju(&["emulate", "calls", "--reset"]);
    rotate(&cloud, &password, &token);
    assert!(cloud.hooks("web/0").contains(&"secret-changed".to_owned()), "{:?}", cloud.hooks("web/0"));

    // The first of several servers is dead: the next one is asked. An address of this network that nobody has.
    let dead = cloud
        .exec("1", "ip -4 -o addr show scope global | awk '{print $4; exit}' | sed -E 's|[0-9]+/.*|251|'");
    cloud.config("postgresql", &format!("endpoints={}:5432,{{}}", dead.trim()));
    assert!(
        environment(&cloud, "HOST").starts_with(&format!("{},", dead.trim())),
        "{}",
        environment(&cloud, "HOST")
    );
    assert_works(&cloud, &password, &token);
    cloud.juju(&["config", "postgresql", "--reset", "endpoints"]);
    cloud.settle();
    assert_works(&cloud, &password, &token);

    // Without a database the operator is told; over the other interface the same data are there again.
    cloud.juju(&["remove-relation", "web:database", "postgresql:database"]);
    cloud.settle();
    assert_eq!(
        cloud.status("web/0"),
        "blocked: PostgreSQL database required: juju integrate web:database postgresql:database"
    );
    cloud.juju(&["relate", "web:postgresql", "postgresql:db"]);
    cloud.settle();
    assert_works(&cloud, &password, &token);
    rotate(&cloud, &password, &token);
}
