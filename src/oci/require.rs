//! What an image demands of the driver and the GPU: `NVIDIA_REQUIRE_*` (PURE).
//!
//! The language is NVIDIA's: a value is alternatives between spaces, an alternative is conditions between commas, a
//! condition is a property (`cuda`, `driver`, `arch`, `brand`), an operator and a value. All variables have to be met.
//! An image without `NVIDIA_REQUIRE_CUDA` that has `CUDA_VERSION` demands `cuda>=` its first two numbers.
//!
//! NVIDIA has two readers of it, and they differ. This one does as libnvidia-container's `dsl.c` where it matters for
//! the answer: a fact that isn't known meets every condition, versions have any number of parts, brands and properties
//! are the same in any case. As nvidia-container-toolkit, it passes over properties that it doesn't know and
//! `NVIDIA_REQUIRE_JETPACK*`. Both refuse what isn't a condition. Kinder than both: a `CUDA_VERSION` that is no
//! version demands nothing, since the name isn't NVIDIA's alone.

use super::devices::{Driver, Unit};
use std::cmp::Ordering;

/// Whether the image can run on this driver and unit. The error is a sentence for the author of the pipeline.
/// `env` is the environment of the process; the last of equal names counts.
pub fn check(env: &[(&str, &str)], driver: &Driver, unit: &Unit) -> Result<(), String> {
    let value = |name: &str| env.iter().rev().find(|(n, _)| *n == name).map(|(_, v)| *v);
    if value("NVIDIA_DISABLE_REQUIRE").is_some_and(is_true) {
        return Ok(());
    }
    let facts = Facts { driver, unit };
    for (at, (name, text)) in env.iter().enumerate() {
        let last = !env[at + 1..].iter().any(|(later, _)| later == name);
        if last && name.starts_with("NVIDIA_REQUIRE_") && !name.starts_with("NVIDIA_REQUIRE_JETPACK") {
            facts.meet(name, text)?;
        }
    }
    if value("NVIDIA_REQUIRE_CUDA").unwrap_or("").is_empty() {
        let version = value("CUDA_VERSION").and_then(major_minor);
        return version.map_or(Ok(()), |v| facts.meet("CUDA_VERSION", &format!("cuda>={v}")));
    }
    Ok(())
}

/// As Go reads a boolean: what isn't one is false.
fn is_true(text: &str) -> bool {
    ["1", "t", "T", "TRUE", "true", "True"].contains(&text)
}

fn major_minor(text: &str) -> Option<String> {
    let version = parse_version(text.strip_prefix('v').unwrap_or(text))?;
    Some(format!("{}.{}", version[0], version.get(1).copied().unwrap_or(0)))
}

/// `None`: not digits and dots, or a number that no version has.
fn parse_version(text: &str) -> Option<Vec<u64>> {
    text.split('.').map(|part| part.parse().ok().filter(|_| !part.starts_with('+'))).collect()
}

fn compare(a: &[u64], b: &[u64]) -> Ordering {
    let part = |v: &[u64], at: usize| v.get(at).copied().unwrap_or(0);
    (0..a.len().max(b.len()))
        .map(|at| part(a, at).cmp(&part(b, at)))
        .find(|o| o.is_ne())
        .unwrap_or(Ordering::Equal)
}

struct Facts<'a> {
    driver: &'a Driver,
    unit: &'a Unit,
}

impl Facts<'_> {
    /// All alternatives are read, also those after one that is met: a mistake doesn't hide behind a good worker.
    fn meet(&self, name: &str, text: &str) -> Result<(), String> {
        let (mut any, mut met) = (false, false);
        for alternative in text.split_whitespace() {
            let (mut known, mut all) = (false, true);
            for condition in alternative.split(',').filter(|c| !c.is_empty()) {
                let holds = self.holds(condition).map_err(|why| {
                    format!(
                        "{name} of the image has {condition:?}, {why}; correct the image, \
                         or set NVIDIA_DISABLE_REQUIRE: \"true\" in the task's params"
                    )
                })?;
                known |= holds.is_some();
                all &= holds.unwrap_or(true);
            }
            any |= known;
            met |= known && all;
        }
        if any && !met { Err(self.refusal(name, text)) } else { Ok(()) }
    }

    /// `None` for a property that nobody here knows.
    fn holds(&self, condition: &str) -> Result<Option<bool>, &'static str> {
        let start = condition.find(['<', '>', '=', '!']).ok_or("which is no condition")?;
        let (property, rest) = condition.split_at(start);
        let value = rest.trim_start_matches(['<', '>', '=', '!']);
        let operator = &rest[..rest.len() - value.len()];
        let test: fn(Ordering) -> bool = match operator {
            "=" => Ordering::is_eq,
            "!=" => Ordering::is_ne,
            "<" => Ordering::is_lt,
            "<=" => Ordering::is_le,
            ">" => Ordering::is_gt,
            ">=" => Ordering::is_ge,
            _ => return Err("whose operator is none of = != < <= > >="),
        };
        if value.is_empty() {
            return Err("which compares with nothing");
        }
        let version = |fact: &Option<String>| {
            let wanted = parse_version(value).ok_or("whose value is no version")?;
            // A fact that can't be read is as one that isn't known.
            let fact = fact.as_deref().and_then(parse_version);
            Ok(Some(fact.is_none_or(|fact| test(compare(&fact, &wanted)))))
        };
        match property.to_ascii_lowercase().as_str() {
            "cuda" => version(&self.driver.cuda),
            "driver" => version(&self.driver.version),
            "arch" => version(&self.unit.compute_capability),
            "brand" => match (operator, &self.unit.brand) {
                ("=" | "!=", Some(brand)) => Ok(Some(brand.eq_ignore_ascii_case(value) == (operator == "="))),
                ("=" | "!=", None) => Ok(Some(true)),
                _ => Err("but brands have no order: only = and != fit"),
            },
            _ => Ok(None),
        }
    }

    fn refusal(&self, name: &str, text: &str) -> String {
        let driver = self.driver.version.as_deref().map_or("a driver".into(), |v| format!("driver {v}"));
        let has = match (&self.driver.cuda, &self.unit.model) {
            (Some(cuda), _) => format!("{driver}, which runs CUDA up to {cuda}"),
            (None, Some(model)) => format!("{driver} for {model}"),
            (None, None) => driver,
        };
        // The first alternative is what the image was made for; those after it are exceptions for old drivers.
        let wanted = text.split_whitespace().next().unwrap_or(text);
        match (wanted.strip_prefix("cuda>="), &self.driver.cuda) {
            (Some(wanted), Some(cuda)) if !wanted.contains(',') => format!(
                "the image needs CUDA {wanted} ({name}), and this worker has {has}: use an image for CUDA {cuda} or \
                 older, or a worker with a newer driver; NVIDIA_DISABLE_REQUIRE: \"true\" in the task's params tries \
                 it all the same"
            ),
            _ => format!(
                "the image needs {wanted} ({name}), and this worker has {has}{}: use another image or another worker; \
                 NVIDIA_DISABLE_REQUIRE: \"true\" in the task's params tries it all the same",
                self.about_unit()
            ),
        }
    }

    fn about_unit(&self) -> String {
        let arch = self.unit.compute_capability.as_deref().map(|v| format!("arch {v}"));
        let brand = self.unit.brand.as_deref().map(|v| format!("brand {v}"));
        let known: Vec<String> = [arch, brand].into_iter().flatten().collect();
        if known.is_empty() { String::new() } else { format!(" ({})", known.join(", ")) }
    }
}

#[cfg(test)]
#[path = "require_tests.rs"]
mod tests;
