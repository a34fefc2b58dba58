//! Options that are one word of a few.

use super::options::list;
use crate::parse::{Invalid, nearest, shown};
use std::fmt;
use std::str::FromStr;

macro_rules! choice {
    ($(#[$doc:meta])* $kind:ident { $($(#[$word_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $kind {
            $($(#[$word_doc])* $variant),+
        }

        impl $kind {
            const ALL: &[(&str, Self)] = &[$(($word, Self::$variant)),+];

            /// The word in the option, which is also Concourse's word where Concourse has one.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $kind {
            type Err = Invalid;
            fn from_str(text: &str) -> Result<Self, Invalid> {
                one_of(text, Self::ALL)
            }
        }
    };
}

choice! {
    /// What the units of the application are.
    DeploymentMode {
        /// The leader is the web node, the others are workers.
        Auto = "auto",
        /// Every unit is both.
        All = "all",
        /// Every unit is a web node.
        Web = "web",
        /// Every unit is a worker.
        Worker = "worker",
    }
}

choice! {
    /// How much Concourse logs.
    LogLevel {
        /// Everything.
        Debug = "debug",
        /// What happens.
        Info = "info",
        /// What fails.
        Error = "error",
        /// What ends the process.
        Fatal = "fatal",
    }
}

choice! {
    /// Which steps see the worker's folders.
    FolderMounts {
        /// No step.
        None = "none",
        /// Tasks.
        Tasks = "tasks",
        /// All steps.
        All = "all",
    }
}

choice! {
    /// Whose GPUs are used.
    ComputeRuntime {
        /// Nobody's.
        None = "none",
        /// Whatever is there.
        Auto = "auto",
        /// NVIDIA's.
        Cuda = "cuda",
        /// AMD's.
        Rocm = "rocm",
        /// Intel's.
        Intel = "intel",
    }
}

choice! {
    /// How a worker keeps volumes.
    VolumeDriver {
        /// The best that works on the machine.
        Auto = "auto",
        /// Overlay mounts.
        Overlay = "overlay",
        /// Btrfs subvolumes.
        Btrfs = "btrfs",
        /// Copies.
        Naive = "naive",
    }
}

choice! {
    /// How the web node picks a worker for a step.
    Placement {
        /// Where most of the inputs are.
        VolumeLocality = "volume-locality",
        /// Any.
        Random = "random",
        /// Where the fewest containers of builds are.
        FewestBuildContainers = "fewest-build-containers",
        /// None with CONCOURSE_MAX_ACTIVE_TASKS_PER_WORKER tasks.
        LimitActiveTasks = "limit-active-tasks",
        /// None with CONCOURSE_MAX_ACTIVE_CONTAINERS_PER_WORKER containers.
        LimitActiveContainers = "limit-active-containers",
        /// None with CONCOURSE_MAX_ACTIVE_VOLUMES_PER_WORKER volumes.
        LimitActiveVolumes = "limit-active-volumes",
    }
}

/// The strategies, which Concourse applies one after the other.
pub(super) fn placement(text: &str) -> Result<Vec<Placement>, Invalid> {
    let strategies = list(text, str::parse)?;
    if strategies.is_empty() {
        return Err(Invalid::new("must not be empty; volume-locality is the usual strategy"));
    }
    // It picks one worker, so what came after it would have no say; Concourse's help rules it out as well.
    if strategies.len() > 1 && strategies.contains(&Placement::Random) {
        return Err(Invalid::new("random goes with no other strategy; use it alone or leave it out"));
    }
    Ok(strategies)
}

pub(super) fn one_of<T: Copy>(text: &str, all: &[(&str, T)]) -> Result<T, Invalid> {
    let words = || all.iter().map(|(word, _)| *word);
    if let Some((_, value)) = all.iter().find(|(word, _)| *word == text) {
        return Ok(*value);
    }
    // What others call it; Concourse has no level between info and error.
    let other_name = match text {
        "warn" | "warning" => words().find(|w| *w == "error"),
        "trace" => words().find(|w| *w == "debug"),
        _ => None,
    };
    let hint = match other_name.or_else(|| nearest(&text.to_ascii_lowercase(), words())) {
        Some(word) => format!("; use {word}"),
        None => String::new(),
    };
    let words = words().collect::<Vec<_>>().join(", ");
    Err(Invalid::new(format!("{} is not one of {words}{hint}", shown(text))))
}
