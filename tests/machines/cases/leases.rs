//! Each task its own GPU, by a web node as users have it: eight tasks on two simulated GPUs, and one that asks for more
//! than there are.

use crate::kit::cloud::{Cloud, wait};
use crate::kit::task::start_task_with;
use std::time::Duration;

/// GPUs that only this machine has: plain character nodes, two of them with a name of their own.
const GPUS: &str = r#"
for node in nvidia12 nvidia13 nvidiactl nvidia-uvm; do touch /dev/$node; mount --bind /dev/zero /dev/$node; done
mkdir -p /etc/cdi
cat > /etc/cdi/simulated.json <<'SPEC'
{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [
    {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia12"}]}},
    {"name": "1", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia13"}]}}],
    "containerEdits": {"deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}]}}
SPEC
"#;

/// Says which GPU it has, and when it had it, by the machine's own clock.
const WORK: &str = "now() { read up rest < /proc/uptime; echo $up; }; echo has $(cd /dev; echo nvidia1*) $(now); \
    sleep 2; echo until $(now)";

/// Which GPU, from when, until when.
fn had(lines: &[String]) -> Option<(String, f64, f64)> {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let [has, until] = lines else { return None };
    let ([_, gpu, from], [_, until]) = (&words(has)[..], &words(until)[..]) else { return None };
    Some((gpu.clone(), from.parse().ok()?, until.parse().ok()?))
}

#[test]
#[ignore = "needs machines"]
fn machine_eight_tasks_share_two_gpus_two_at_a_time() {
    let cloud = Cloud::with_workers("leases", &[("own", false)]);
    cloud.exec("2", GPUS);
    cloud.juju(&["config", "own", "tag=own", "enable-gpu=true", "gpu-access=exclusive"]);
    cloud.settle();
    cloud.wait_status("own/0", "active: Worker ready (GPU: 2x NVIDIA)");
    let tags = cloud.workers().into_iter().find(|worker| worker.starts_with("own")).unwrap();
    assert!(tags.contains("gpu-access=exclusive"), "{tags}");

    let tasks: Vec<_> = (0..8).map(|_| start_task_with(&cloud, "own", WORK, &["GPU_COUNT=1"])).collect();
    // At once, and not after those in line: that one would wait for ever.
    let said = start_task_with(&cloud, "own", WORK, &["GPU_COUNT=3"]).log();
    let why = "the task asks for GPU_COUNT=3, and only 2 GPUs fit on this worker";
    assert!(said.contains(why), "{said}");

    let mut times = vec![];
    for task in tasks {
        let (well, lines) = task.wait();
        let (gpu, from, until) = had(&lines).filter(|_| well).unwrap_or_else(|| panic!("{lines:?}"));
        assert!(["nvidia12", "nvidia13"].contains(&gpu.as_str()), "{lines:?}");
        times.push((gpu, from, until));
    }
    let overlap = |a: &(String, f64, f64), b: &(String, f64, f64)| a.1 < b.2 && b.1 < a.2;
    let mut together = 0;
    for (at, one) in times.iter().enumerate() {
        for other in times.iter().skip(at + 1).filter(|other| overlap(one, other)) {
            assert_ne!(one.0, other.0, "two have the same GPU at the same time: {times:?}");
            together += 1;
        }
    }
    assert!(together > 0, "both GPUs were never in use at the same time: {times:?}");
    wait("all leases to end", Duration::from_secs(60), || match cloud.run("own/0", &["gpu-info"])["leases"]
        .as_str()
    {
        Some("0 (nvidia-0)    free\n1 (nvidia-1)    free") => Ok(()),
        other => Err(format!("{other:?}")),
    });
}
