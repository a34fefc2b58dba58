//! Steps that are being started when their worker restarts.

use crate::kit::cloud::Cloud;
use std::time::{Duration, Instant};

#[test]
#[ignore = "needs machines"]
fn machine_steps_start_while_their_worker_restarts() {
    let cloud = Cloud::with_workers("starting", &[("worker", false)]);
    let password = cloud.password("web/0");
    cloud.exec("1", &format!("mkdir -p /run/task; umask 077; printf %s '{password}' > /run/task/password"));
    cloud.exec("1", r#"cd /run/task; export HOME=$PWD; [ -x fly ] || tar -xzf /opt/concourse/current/fly-assets/fly-linux-amd64.tgz
    ./fly -t task login -c http://127.0.0.1:8080 -u admin -p "$(cat password)" >/dev/null
    echo '{"platform": "linux", "image_resource": {"type": "mock", "source": {"mirror_self": true, "initial_version": "1"}}, "run": {"path": "sh", "args": ["-c", "echo it runs; sleep 1; echo it ends"]}}' >task.yml
    cat >many.sh <<'S'
cd /run/task; export HOME=$PWD
end=$(( $(date +%s) + 90 )); i=0
while [ $(date +%s) -lt $end ]; do
  i=$((i+1))
  (./fly -t task execute -c task.yml >log.$i 2>&1 </dev/null; echo "exit $?" >>log.$i) &
  sleep ${GAP:-1.7}
done
wait
touch all-done
S
    systemd-run --setenv=GAP=GAPVALUE bash many.sh; sleep 4"#.replace("GAPVALUE", &std::env::var("GAP").unwrap_or("1.7".into())).as_str());
    let begin = Instant::now();
    let mut n = 0;
    while begin.elapsed() < Duration::from_secs(86) {
        n += 1;
        cloud.config("worker", ["log-level=debug", "log-level=info"][n % 2]);
    }
    eprintln!("{n} restarts");
    cloud.exec("1", "for _ in $(seq 100); do [ -e /run/task/all-done ] && break; sleep 1; done");
    eprintln!("{}", cloud.exec("1", "cd /run/task; grep -h '^exit' log.* | sort | uniq -c; grep -L 'exit 0' log.* | xargs -r tail -n 6; grep -L 'it ends' log.*; true"));
    eprintln!("{}", cloud.juju(&["debug-log", "--limit", "400"]));
}
