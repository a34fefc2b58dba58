//! Every path that the charm owns (design §2.6).

/// Versions side by side.
pub const VERSIONS: &str = "/opt/concourse/versions";
/// Symlink to the version that the services start.
pub const CURRENT: &str = "/opt/concourse/current";
/// Symlink to the version before it.
pub const PREVIOUS: &str = "/opt/concourse/previous";
/// All of Concourse's programs.
pub const OPT: &str = "/opt/concourse";

/// Settings of web and worker.
pub const ETC: &str = "/etc/concourse";
/// The web node's settings.
pub const WEB_ENV: &str = "/etc/concourse/web.env";
/// CA of the database.
pub const POSTGRES_CA: &str = "/etc/concourse/postgres-ca.pem";

/// The web node's unit.
pub const WEB_UNIT: &str = "/etc/systemd/system/concourse-web.service";

/// What each worker of a unit has for itself.
#[derive(Debug)]
pub struct WorkerPaths {
    /// Its systemd unit.
    pub unit: &'static str,
    /// The part of the unit that differs from machine to machine.
    pub dropin: &'static str,
    /// Its directory, where the operator may have files too.
    pub dropin_dir: &'static str,
    /// Its settings.
    pub env: &'static str,
    /// Containers and volumes.
    pub work_dir: &'static str,
    /// Identity of the work dir; gone when the work dir was emptied.
    pub work_dir_id: &'static str,
    /// How it keeps volumes.
    pub volumes: &'static str,
    /// Where its containerd keeps what runs; the program itself knows it as `/run/containerd`.
    pub containerd: &'static str,
}

/// The worker of every worker unit.
pub const WORKER: WorkerPaths = WorkerPaths {
    unit: "/etc/systemd/system/concourse-worker.service",
    dropin: "/etc/systemd/system/concourse-worker.service.d/10-charm.conf",
    dropin_dir: "/etc/systemd/system/concourse-worker.service.d",
    env: "/etc/concourse/worker.env",
    work_dir: "/var/lib/concourse/worker",
    work_dir_id: "/var/lib/concourse/worker/.concourse-ci-machine",
    volumes: "/var/lib/concourse/charm/volumes",
    containerd: "/run/containerd",
};
/// The second one, without tags.
pub const UNTAGGED: WorkerPaths = WorkerPaths {
    unit: "/etc/systemd/system/concourse-worker-untagged.service",
    dropin: "/etc/systemd/system/concourse-worker-untagged.service.d/10-charm.conf",
    dropin_dir: "/etc/systemd/system/concourse-worker-untagged.service.d",
    env: "/etc/concourse/worker-untagged.env",
    work_dir: "/var/lib/concourse/worker-untagged",
    work_dir_id: "/var/lib/concourse/worker-untagged/.concourse-ci-machine",
    volumes: "/var/lib/concourse/charm/volumes-untagged",
    containerd: "/run/concourse-ci-machine/containerd-untagged",
};

/// The runtime wrapper's policy.
pub const POLICY: &str = "/etc/concourse/runtime.json";
/// Programs that run when no hook does.
pub const PROGRAMS: &str = "/usr/local/lib/concourse-ci-machine";
/// The runtime wrapper.
pub const WRAPPER: &str = "/usr/local/lib/concourse-ci-machine/runc-gpu-wrapper";
/// The same where an operator's shell finds it.
pub const WRAPPER_LINK: &str = "/usr/local/bin/runc-gpu-wrapper";
/// The same where containerd's shims find it as their runc.
pub const RUNC_LINK: &str = "/usr/local/lib/concourse-ci-machine/bin/runc";
/// What workers start in containerd's place.
pub const LAUNCHER: &str = "/usr/local/lib/concourse-ci-machine/containerd";
/// Which charm the programs came with.
pub const PROGRAMS_STAMP: &str = "/var/lib/concourse/charm/programs";
/// The real runc: the one that Concourse ships.
pub const RUNC: &str = "/opt/concourse/current/bin/runc";
/// What looks at GPUs.
pub const GPU_PROGRAM: &str = "/usr/local/lib/concourse-ci-machine/concourse-gpu";
/// What the options want of GPUs.
pub const GPU_WANTED: &str = "/etc/concourse/gpu.json";
/// What was seen of GPUs, gone with the boot.
pub const GPU_RUN: &str = "/run/concourse-gpu";
/// For the charm.
pub const GPU_REPORT: &str = "/run/concourse-gpu/inventory.json";
/// For the runtime wrapper.
pub const GPU_DEVICES: &str = "/run/concourse-gpu/devices.json";
/// What the last test of them in a container has seen.
pub const GPU_TEST: &str = "/run/concourse-gpu/test.json";
/// What such a test needs while it runs. Not in /run, from which no program may be started on most machines.
pub const GPU_TEST_DIR: &str = "/var/lib/concourse/gpu-test";
/// Where the first worker's containerd has its bundles.
pub const BUNDLES: &str = "/run/containerd/io.containerd.runtime.v2.task/concourse";
/// The first process of Concourse's containers.
pub const INIT: &str = "/opt/concourse/current/bin/init";
/// Who has which GPUs.
pub const LEASES: &str = "/run/concourse-gpu/leases.json";
/// Looks once.
pub const GPU_SERVICE: &str = "/etc/systemd/system/concourse-gpu.service";
/// Looks when nodes or specs change.
pub const GPU_PATH: &str = "/etc/systemd/system/concourse-gpu.path";
/// Looks when something below changes.
pub const GPU_FOLDERS: &str = "/etc/systemd/system/concourse-gpu-folders.path";
/// Looks from time to time.
pub const GPU_TIMER: &str = "/etc/systemd/system/concourse-gpu.timer";
/// Tells Juju what was seen.
pub const GPU_TELL: &str = "/etc/systemd/system/concourse-gpu-tell.service";
/// What the last hook has seen of GPUs, as far as tags and status tell of it.
pub const GPU_TOLD: &str = "/var/lib/concourse/charm/gpus-told.json";
/// The units that start the look.
pub const GPU_WATCHES: [&str; 3] =
    ["concourse-gpu.path", "concourse-gpu-folders.path", "concourse-gpu.timer"];
/// There while systemd starts them.
pub const GPU_WATCHED: [&str; 3] = [
    "/etc/systemd/system/multi-user.target.wants/concourse-gpu.path",
    "/etc/systemd/system/multi-user.target.wants/concourse-gpu-folders.path",
    "/etc/systemd/system/timers.target.wants/concourse-gpu.timer",
];

/// Folders that steps see.
pub const FOLDERS: &str = "/srv";

/// Home of the user, keys and work.
pub const VAR: &str = "/var/lib/concourse";
/// Keys.
pub const KEYS: &str = "/var/lib/concourse/keys";
/// Key that proves the web node to workers.
pub const HOST_KEY: &str = "/var/lib/concourse/keys/tsa_host_key";
/// Its public half.
pub const HOST_KEY_PUB: &str = "/var/lib/concourse/keys/tsa_host_key.pub";
/// Key that signs sessions of users.
pub const SESSION_KEY: &str = "/var/lib/concourse/keys/session_signing_key";
/// Public keys of workers that may register.
pub const AUTHORIZED_KEYS: &str = "/var/lib/concourse/keys/authorized_worker_keys";
/// Key that proves the workers.
pub const WORKER_KEY: &str = "/var/lib/concourse/keys/worker_key";
/// Its public half.
pub const WORKER_KEY_PUB: &str = "/var/lib/concourse/keys/worker_key.pub";
/// Public host keys of the web nodes that the workers trust.
pub const TSA_KEYS: &str = "/var/lib/concourse/keys/tsa_host_keys.pub";

/// What the charm itself keeps on the machine.
pub const STATE: &str = "/var/lib/concourse/charm";
/// What was read from Juju.
pub const MEMORY: &str = "/var/lib/concourse/charm/memory.json";
/// Which unit the machine belongs to.
pub const CLAIM: &str = "/var/lib/concourse/charm/unit";
/// There while an operator wants the workers away.
pub const DRAINED: &str = "/var/lib/concourse/charm/drained";
/// The version that did not come up.
pub const FAILED: &str = "/var/lib/concourse/charm/failed-version.json";
/// The version that an action asked for.
pub const OVERRIDE: &str = "/var/lib/concourse/charm/wanted-version.json";
/// Packages that the charm has added.
pub const PACKAGES: &str = "/var/lib/concourse/charm/packages.json";
/// Which versions apt takes while it installs them.
pub const APT_PREFERENCES: &str = "/var/lib/concourse/charm/apt-preferences";
/// NVIDIA's repository of drivers: list, key, rank.
pub const CUDA_SOURCE: [&str; 3] = [
    "/etc/apt/sources.list.d/concourse-ci-machine-cuda.sources",
    "/etc/apt/keyrings/concourse-ci-machine-cuda.gpg",
    "/etc/apt/preferences.d/concourse-ci-machine-cuda",
];
/// NVIDIA's repository of the container toolkit: list and key.
pub const TOOLKIT_SOURCE: [&str; 2] = [
    "/etc/apt/sources.list.d/concourse-ci-machine-toolkit.sources",
    "/etc/apt/keyrings/concourse-ci-machine-toolkit.gpg",
];
/// Why NVIDIA's toolkit, which is not needed, can't be had; gone with the boot.
pub const NO_TOOLKIT: &str = "/run/concourse-ci-machine/no-toolkit.json";
/// What `gpu-persistence-mode` has changed, gone with the boot as the mode itself is.
pub const GPU_PERSISTENCE: &str = "/run/concourse-gpu/persistence.json";
/// The version that was seen working last.
pub const PROVEN: &str = "/var/lib/concourse/charm/proven-version";

/// Written by the units themselves when they start.
pub const RUN: &str = "/run/concourse-ci-machine";

/// There while a web node restarts: workers wait in their starts, so long at most as their units say.
pub const PAUSE: &str = "/run/concourse-ci-machine/pause";

/// The first worker's [`WorkerPaths::containerd`], as the second one sees it.
pub const MAIN_CONTAINERD: &str = "/run/concourse-ci-machine/containerd-main";

/// The slice of the second worker's unit and so of its containers.
pub const UNTAGGED_SLICE: &str = "system-concourse_untagged.slice";

/// Files that the plan may write or remove; `observe` reads them all.
pub const MANAGED: [&str; 28] = [
    WEB_ENV,
    WORKER.env,
    UNTAGGED.env,
    POSTGRES_CA,
    WEB_UNIT,
    WORKER.unit,
    WORKER.dropin,
    UNTAGGED.unit,
    UNTAGGED.dropin,
    HOST_KEY,
    HOST_KEY_PUB,
    SESSION_KEY,
    AUTHORIZED_KEYS,
    WORKER_KEY,
    WORKER_KEY_PUB,
    TSA_KEYS,
    DRAINED,
    PAUSE,
    PROVEN,
    POLICY,
    LAUNCHER,
    GPU_WANTED,
    GPU_SERVICE,
    GPU_PATH,
    GPU_FOLDERS,
    GPU_TIMER,
    GPU_TELL,
    GPU_TOLD,
];

/// Directories in which the operator may have files too.
pub const SHARED_DIRS: [&str; 4] =
    [ETC, "/etc/systemd/system/concourse-web.service.d", WORKER.dropin_dir, UNTAGGED.dropin_dir];

/// Directories in which a killed hook may leave what it had not yet moved into its place.
pub const WRITTEN: [&str; 6] = [OPT, ETC, KEYS, STATE, PROGRAMS, RUN];

/// All that the charm may leave on a machine; `observe` tells which of it is there.
pub const OURS: [&str; 27] = [
    WEB_UNIT,
    WORKER.dropin,
    WORKER.unit,
    UNTAGGED.dropin,
    UNTAGGED.unit,
    WEB_ENV,
    WORKER.env,
    UNTAGGED.env,
    POSTGRES_CA,
    GPU_SERVICE,
    GPU_PATH,
    GPU_FOLDERS,
    GPU_TIMER,
    GPU_TELL,
    GPU_WANTED,
    GPU_RUN,
    CUDA_SOURCE[0],
    CUDA_SOURCE[1],
    CUDA_SOURCE[2],
    TOOLKIT_SOURCE[0],
    TOOLKIT_SOURCE[1],
    POLICY,
    WRAPPER_LINK,
    PROGRAMS,
    OPT,
    RUN,
    VAR,
];
