//! Which steps of a build see a worker's simulated GPUs: a part of the case in `gpu.rs`.

use crate::kit::cloud::Cloud;
use crate::kit::task::{UNTIL_TOLD, patch_steps, start_task_with, steps};

const LOOK: &str = "echo $1 sees $(ls /dev | grep nvidia)";

/// To be called before the first build on that machine.
pub fn patch(cloud: &Cloud, machine: &str) {
    patch_steps(cloud, machine, LOOK);
}

/// Two GPUs are there, and a task has to ask for them.
pub fn only_tasks_see_gpus(cloud: &Cloud, app: &str, machine: &str) {
    cloud.config(app, "gpu-access=shared");
    assert_eq!(steps(cloud, app, LOOK), ["check sees", "get sees", "put sees"]);

    // Who enters a task's container is where the task is.
    let task = start_task_with(cloud, app, UNTIL_TOLD, &["GPU_COUNT=1"]);
    task.more();
    let inside = task.enter(machine, "ls /dev | grep nvidia; echo visible: $NVIDIA_VISIBLE_DEVICES");
    assert_eq!(inside, ["nvidia-uvm", "nvidia14", "nvidiactl", "visible: nvidia-0"]);
    task.tell(machine);
    assert!(task.wait().0);

    // What the image demands of the driver: of one that runs CUDA up to 12.4.
    let devices = "/run/concourse-gpu/devices.json";
    let edit = |what: &str| {
        cloud.exec(machine, &format!("jq '{what}' {devices} > {devices}.new && mv {devices}.new {devices}"))
    };
    edit(r#".vendors.nvidia.cuda = "12.4""#);
    let said = start_task_with(cloud, app, "echo started", &["NVIDIA_REQUIRE_CUDA=cuda\\>=12.6"]).log();
    let reason = "the image needs CUDA 12.6 (NVIDIA_REQUIRE_CUDA), and this worker has a driver, which runs CUDA up to 12.4";
    assert!(said.contains(reason) && !said.contains("succeeded"), "{said}");
    let met = start_task_with(cloud, app, "echo started", &["NVIDIA_REQUIRE_CUDA=cuda\\>=12.4"]).wait();
    assert_eq!(met, (true, vec!["started".to_owned()]));
    edit("del(.vendors.nvidia.cuda)");
    cloud.config(app, "gpu-access=request");
}
