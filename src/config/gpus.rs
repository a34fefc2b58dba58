//! Options about GPUs.

use super::choices::one_of;
use super::options::list;
use crate::oci::policy::{Access, DefaultCount, Leases};
use crate::parse::{DriverBranch, Invalid, TimeLimit, shown};

/// Which tasks get GPUs.
pub(super) fn access(text: &str) -> Result<Access, Invalid> {
    one_of(
        text,
        &[("shared", Access::Shared), ("request", Access::Request), ("exclusive", Access::Exclusive)],
    )
}

/// Ids of GPUs; `None`: all.
pub(super) fn gpu_units(text: &str) -> Result<Option<Vec<String>>, Invalid> {
    const LONGEST: usize = 80;
    if text == "all" {
        return Ok(None);
    }
    let id = |part: &str| {
        let fits =
            part.len() <= LONGEST && part.chars().all(|c| c.is_ascii_alphanumeric() || "-:./".contains(c));
        match fits && part != "all" {
            true => Ok(part.to_owned()),
            false => Err(Invalid::new(format!(
                "{} is no id of a GPU; use what gpu-info shows, or all",
                shown(part)
            ))),
        }
    };
    match list(text, id)? {
        ids if ids.is_empty() => Err(Invalid::new("must not be empty; all is the usual choice")),
        ids => Ok(Some(ids)),
    }
}

/// What a task gets that names no count.
pub(super) fn default_count(text: &str) -> Result<DefaultCount, Invalid> {
    match text {
        "none" => Ok(DefaultCount::None),
        "all" => Ok(DefaultCount::All),
        number => number.parse().map(DefaultCount::Some).map_err(|_| {
            Invalid::new(format!("{} is no number of GPUs; use none, all or a number", shown(number)))
        }),
    }
}

/// Leases of one GPU.
pub(super) fn replicas(number: i64) -> Result<u32, Invalid> {
    const MOST: u32 = 64;
    u32::try_from(number)
        .ok()
        .filter(|n| (1..=MOST).contains(n))
        .ok_or_else(|| Invalid::new(format!("{number} is no number of tasks for a GPU; use 1 to {MOST}")))
}

/// How long a task waits for a GPU.
pub(super) fn lease_wait(text: &str) -> Result<TimeLimit, Invalid> {
    let limit: TimeLimit = text.parse()?;
    match limit.duration().as_secs() {
        0..=Leases::MAX_WAIT => Ok(limit),
        _ => {
            let most = Leases::MAX_WAIT;
            Err(Invalid::new(format!(
                "{limit} is longer than Concourse waits for a container; use up to {most}s"
            )))
        }
    }
}

/// A branch of NVIDIA's driver; `None`: the newest for servers.
pub(super) fn driver_branch(text: &str) -> Result<Option<DriverBranch>, Invalid> {
    if text == "auto" { Ok(None) } else { text.parse().map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus() {
        assert_eq!(gpu_units("all"), Ok(None));
        assert_eq!(gpu_units("0, GPU-1a,0:1").unwrap().unwrap(), ["0", "GPU-1a", "0:1"]);
        let why = |text: &str| gpu_units(text).unwrap_err().to_string();
        assert_eq!(why("0,;"), r#"";" is no id of a GPU; use what gpu-info shows, or all"#);
        assert_eq!(why("0,all"), r#""all" is no id of a GPU; use what gpu-info shows, or all"#);
        assert_eq!(why(""), "must not be empty; all is the usual choice");
        assert_eq!(access("request"), Ok(Access::Request));
        let why = access("exclusiv").unwrap_err().to_string();
        assert_eq!(why, r#""exclusiv" is not one of shared, request, exclusive; use exclusive"#);
    }

    #[test]
    fn leases() {
        assert_eq!(default_count("2"), Ok(DefaultCount::Some(2)));
        assert_eq!(
            (default_count("none"), default_count("all")),
            (Ok(DefaultCount::None), Ok(DefaultCount::All))
        );
        let why = default_count("-1").unwrap_err().to_string();
        assert_eq!(why, r#""-1" is no number of GPUs; use none, all or a number"#);
        assert_eq!(replicas(4), Ok(4));
        assert_eq!(replicas(0).unwrap_err().to_string(), "0 is no number of tasks for a GPU; use 1 to 64");
        assert_eq!(lease_wait("3m").unwrap().duration().as_secs(), 180);
        let why = lease_wait("5m").unwrap_err().to_string();
        assert_eq!(why, "5m is longer than Concourse waits for a container; use up to 270s");
    }
}
