//! Who gets what: a task's words about GPUs, and the units that it gets for them (PURE).
//!
//! Concourse puts a task's environment together from the image's, then `ATC_EXTERNAL_URL`, then the task's `params`. So
//! what stands before that variable is the image's word and what stands behind it the author's. That is no security
//! boundary (the author chose the image); it keeps an image's habitual `NVIDIA_VISIBLE_DEVICES=all` from asking.

use super::Refusal;
use super::devices::{Unit, Vendor};
use super::lease::Demand;
use super::lease::model::Ask;
use super::policy::{Access, DefaultCount, Leases};

/// Between the image's variables and the author's.
const BORDER: &str = "ATC_EXTERNAL_URL";

/// The variables that choose units of one vendor.
pub const VISIBLE: [(Vendor, &str); 2] =
    [(Vendor::Nvidia, "NVIDIA_VISIBLE_DEVICES"), (Vendor::Amd, "AMD_VISIBLE_DEVICES")];

/// Whether a container with these mount destinations is a task's: `/tmp/build/<8 hex digits>` is among them or above
/// one. Gets and puts have a word there, checks nothing.
pub fn is_task<'a>(destinations: impl IntoIterator<Item = &'a str>) -> bool {
    destinations.into_iter().filter_map(|path| path.strip_prefix("/tmp/build/")).any(|rest| {
        let name = rest.split('/').next().unwrap_or_default();
        name.len() == 8 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Which units a variable chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Choice {
    None,
    All,
    /// Ids or other names.
    Named(Vec<String>),
}

impl Choice {
    /// As NVIDIA reads it: `none`, `void` and nothing at all are no unit.
    fn parse(value: &str) -> Self {
        match value.trim() {
            "" | "none" | "void" => Choice::None,
            "all" => Choice::All,
            names => Choice::Named(
                names.split(',').map(str::trim).filter(|n| !n.is_empty()).map(str::to_owned).collect(),
            ),
        }
    }
}

/// What a task's environment says about GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// By vendor, the author's choice.
    author: Vec<(Vendor, Choice)>,
    /// By vendor, the image's choice, where the author has none.
    image: Vec<(Vendor, Choice)>,
    /// `GPU_COUNT`; `None` inside: all.
    count: Option<Option<usize>>,
    /// `GPU_MODEL`, in lower case.
    model: Option<String>,
    /// `GPU_MEMORY_MIN` in MiB.
    memory_mib: Option<u64>,
    /// How many containers may have a unit at once: each can count on a share of its memory.
    sharers: u64,
    /// The variable by which the author asks: `GPU_COUNT=1`.
    asked: Option<String>,
}

impl Request {
    /// Reads the environment; of a variable that stands twice the last one counts, as in a process.
    ///
    /// # Errors
    /// A value that is none; says what to write.
    pub fn parse(env: &[(String, String)]) -> Result<Self, Refusal> {
        let border = env.iter().position(|(name, _)| name == BORDER);
        let of = |name: &str, author: bool| {
            let is = |at: usize, value: &str| match border {
                Some(border) => (at > border) == author,
                // Without the border only the habitual word counts as the image's; our own names no image has.
                None => (value != "all" || name.starts_with("GPU_")) == author,
            };
            let mut found = env.iter().enumerate().filter(|(at, (n, v))| n == name && is(*at, v));
            found.next_back().map(|(_, (_, value))| value.as_str())
        };
        let mut request = Request {
            author: vec![],
            image: vec![],
            count: None,
            model: of("GPU_MODEL", true).map(str::trim).filter(|v| !v.is_empty()).map(str::to_lowercase),
            memory_mib: of("GPU_MEMORY_MIN", true)
                .filter(|v| !v.trim().is_empty())
                .map(memory)
                .transpose()?,
            sharers: 1,
            asked: None,
        };
        if let Some(value) = of("GPU_COUNT", true).map(str::trim).filter(|v| !v.is_empty()) {
            request.count = Some(match value {
                "all" => None,
                "none" | "void" => Some(0),
                number => Some(number.parse().map_err(|_| {
                    Refusal::new(format!(
                        "GPU_COUNT={number} is no number of GPUs: write 1, 2… or all or none"
                    ))
                })?),
            });
        }
        for (vendor, name) in VISIBLE {
            match (of(name, true), of(name, false)) {
                (Some(value), _) => request.author.push((vendor, Choice::parse(value))),
                (None, Some(value)) => request.image.push((vendor, Choice::parse(value))),
                (None, None) => {}
            }
        }
        let chooses = |vendor| request.author.iter().any(|(v, c)| *v == vendor && *c != Choice::None);
        let visible = VISIBLE.iter().find(|(vendor, _)| chooses(*vendor)).map(|(_, name)| *name);
        let word = match request.count {
            Some(Some(0)) => None,
            Some(_) => Some("GPU_COUNT"),
            None => visible
                .or(request.model.is_some().then_some("GPU_MODEL"))
                .or(request.memory_mib.is_some().then_some("GPU_MEMORY_MIN")),
        };
        request.asked = word.and_then(|name| Some(format!("{name}={}", of(name, true)?.trim())));
        Ok(request)
    }

    /// The variable by which the task's author asks for GPUs: `GPU_COUNT=1`.
    pub fn asked(&self) -> Option<&str> {
        self.asked.as_deref()
    }

    /// Whether the image's own variables hope for GPUs.
    pub fn image_hopes(&self) -> bool {
        self.image.iter().any(|(_, choice)| *choice != Choice::None)
    }

    /// Whether the task may get units at all: it asks, or gets them unasked and does not decline.
    pub fn wants(&self, access: Access) -> bool {
        match access {
            // What a task gets there unasked is for [`Self::demand`] to say.
            Access::Request | Access::Exclusive => self.asked.is_some(),
            Access::Shared => {
                let declines = |(_, c): &(Vendor, Choice)| *c == Choice::None;
                let said = || self.author.iter().chain(&self.image);
                self.count != Some(Some(0))
                    && (self.asked.is_some() || said().next().is_none() || !said().all(declines))
            }
        }
    }

    /// The units for the task, of those that tasks may have here (`units`, in the order in which they are given).
    ///
    /// # Errors
    /// It asks for more than there is, or for a unit that it may not have; says what to change.
    pub fn choose<'a>(&self, access: Access, units: &[&'a Unit]) -> Result<Vec<&'a Unit>, Refusal> {
        if !self.wants(access) {
            return Ok(vec![]);
        }
        let (mut found, count) = self.fitting(access, units)?;
        found.truncate(count.unwrap_or(found.len()));
        Ok(found)
    }

    /// What the task asks for where each has units of its own; `None`: nothing.
    ///
    /// # Errors
    /// As [`Self::choose`].
    pub fn demand(&self, rules: &Leases, units: &[&Unit]) -> Result<Option<Demand>, Refusal> {
        let Some(asked) = &self.asked else {
            if rules.default_count == DefaultCount::None || !self.wants(Access::Shared) {
                return Ok(None);
            }
            let (found, _) = self.fitting(Access::Shared, units)?;
            let count = match rules.default_count {
                DefaultCount::None => 0,
                DefaultCount::All => found.len(),
                DefaultCount::Some(count) => count.min(found.len()),
            };
            let asked = format!("nothing, so for the worker's default of {count}");
            // What is out of order stops nobody who did not ask for it; an image that hopes for GPUs is told.
            let or_none = !self.image_hopes();
            return Ok((count > 0).then(|| Demand { asked, ask: ask(&found, count, true), or_none }));
        };
        let names = |(_, choice): &(Vendor, Choice)| matches!(choice, Choice::Named(_));
        if let Some((vendor, _)) = self.author.iter().find(|own| names(own)).filter(|_| !rules.names) {
            let variable = VISIBLE.iter().find(|(v, _)| v == vendor).map_or("", |(_, name)| name);
            return Err(Refusal::new(format!(
                "{variable} names GPUs, which tasks may not on this worker: ask for a number of them with GPU_COUNT"
            )));
        }
        let (found, count) = self.fitting(Access::Request, units)?;
        // All are those in order; of units that were chosen by name each is meant.
        let or_fewer = count.is_none() && !self.author.iter().any(names);
        let ask = ask(&found, count.unwrap_or(found.len()), or_fewer);
        Ok(Some(Demand { asked: format!("{asked}{}", self.kind()), ask, or_none: false }))
    }

    /// The same where so many containers may have a unit at once.
    pub fn shared_by(self, sharers: u32) -> Self {
        Request { sharers: u64::from(sharers.max(1)), ..self }
    }

    /// The units that would do, and how many of them; `None`: all.
    fn fitting<'a>(
        &self,
        access: Access,
        units: &[&'a Unit],
    ) -> Result<(Vec<&'a Unit>, Option<usize>), Refusal> {
        let mut named = vec![];
        for (vendor, choice) in &self.author {
            named.extend(self.named(*vendor, choice, units)?);
        }
        // Who names units of one vendor and counts nothing asked for those; in shared mode the others stay.
        let others = access == Access::Shared || self.author.iter().all(|(_, c)| *c == Choice::None);
        // An author who asks for a number or a kind of GPU has the last word over the image.
        let counts = self.asked.as_ref().is_some_and(|asked| asked.starts_with("GPU_"));
        let mut found: Vec<&Unit> = units
            .iter()
            .copied()
            .filter(|unit| match self.author.iter().find(|(v, _)| *v == unit.vendor) {
                Some(_) => named.iter().any(|n| n.id == unit.id),
                None => others && (counts || !self.image.contains(&(unit.vendor, Choice::None))),
            })
            .collect();
        let untold = found.iter().filter(|u| u.memory_mib.is_none() && self.is_model(u)).count();
        let untold = if self.memory_mib.is_some() { untold } else { 0 };
        found.retain(|unit| self.fits(unit));
        let Some(asked) = &self.asked else { return Ok((found, None)) };
        let count = match self.count {
            Some(count) => count,
            // A kind of GPU is asked for, and neither how many nor which.
            None if access == Access::Request && named.is_empty() => Some(1),
            None => None,
        };
        if found.is_empty() || count.is_some_and(|count| count > found.len()) {
            return Err(too_few(&format!("{asked}{}", self.kind()), found.len(), untold));
        }
        Ok((found, count))
    }

    fn named<'a>(
        &self,
        vendor: Vendor,
        choice: &Choice,
        units: &[&'a Unit],
    ) -> Result<Vec<&'a Unit>, Refusal> {
        let variable = VISIBLE.iter().find(|(v, _)| *v == vendor).map_or("", |(_, name)| name);
        let own = || units.iter().copied().filter(move |unit| unit.vendor == vendor);
        let names = match choice {
            Choice::None => return Ok(vec![]),
            Choice::All if own().next().is_none() => return Err(too_few(&format!("{variable}=all"), 0, 0)),
            Choice::All => return Ok(own().collect()),
            Choice::Named(names) => names,
        };
        let mut found = vec![];
        for name in names {
            let Some(unit) = own().find(|u| u.id == *name || u.names.contains(name)) else {
                let has: Vec<String> = own().map(shown).collect();
                let has = if has.is_empty() { "none".to_owned() } else { has.join(", ") };
                return Err(Refusal::new(format!(
                    "{variable}={} names {name:?}, which tasks can't have on this worker; they can have: {has}. \
                     Change the variable in the task's params, or ask for a number of them with GPU_COUNT",
                    names.join(",")
                )));
            };
            found.push(unit);
        }
        Ok(found)
    }

    fn is_model(&self, unit: &Unit) -> bool {
        let model =
            |model: &String| unit.model.as_ref().is_some_and(|m| m.to_lowercase().contains(model.as_str()));
        self.model.as_ref().is_none_or(model)
    }

    fn fits(&self, unit: &Unit) -> bool {
        let memory = |wanted: u64| unit.memory_mib.is_some_and(|has| has / self.sharers >= wanted);
        self.is_model(unit) && self.memory_mib.is_none_or(memory)
    }

    /// The conditions besides the first one.
    fn kind(&self) -> String {
        let asked = self.asked.as_deref().unwrap_or_default();
        let model = self.model.as_ref().filter(|_| !asked.starts_with("GPU_MODEL"));
        let memory = self.memory_mib.filter(|_| !asked.starts_with("GPU_MEMORY_MIN"));
        let model = model.map(|m| format!(" with GPU_MODEL={m}")).unwrap_or_default();
        model + &memory.map(|m| format!(" with GPU_MEMORY_MIN={m}MiB")).unwrap_or_default()
    }
}

fn ask(units: &[&Unit], count: usize, or_fewer: bool) -> Ask {
    Ask { units: units.iter().map(|unit| unit.id.clone()).collect(), count, or_fewer }
}

/// `untold`: units that would do, if only their drivers told how much memory they have.
fn too_few(asked: &str, fit: usize, untold: usize) -> Refusal {
    let untold = match untold {
        0 => String::new(),
        n => format!(" ({n} more without GPU_MEMORY_MIN, since the driver does not tell their memory)"),
    };
    let fit = match fit {
        0 => "no GPU fits".to_owned(),
        1 => "only 1 GPU fits".to_owned(),
        n => format!("only {n} GPUs fit"),
    };
    Refusal::new(format!(
        "the task asks for {asked}, and {fit} on this worker{untold}: ask for less in the task's params, or give the step the tags \
         of a worker that has it"
    ))
}

fn shown(unit: &Unit) -> String {
    match unit.names.first() {
        Some(name) => format!("{name} ({})", unit.id),
        None => unit.id.clone(),
    }
}

/// MiB of `24GB` (10^9 bytes, as on the box) or `24GiB`.
fn memory(value: &str) -> Result<u64, Refusal> {
    let value = value.trim();
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = value.split_at(digits);
    let bytes: Option<u64> = match unit.trim_start().to_ascii_lowercase().as_str() {
        "gb" | "g" => Some(1_000_000_000),
        "mb" | "m" => Some(1_000_000),
        "gib" | "gi" => Some(1 << 30),
        "mib" | "mi" => Some(1 << 20),
        _ => None,
    };
    let total = number.parse::<u64>().ok().zip(bytes).and_then(|(number, bytes)| number.checked_mul(bytes));
    total.map(|bytes| bytes.div_ceil(1 << 20)).ok_or_else(|| {
        Refusal::new(format!(
            "GPU_MEMORY_MIN={value} is no size: write a whole number with a unit, as 24GB or 24GiB"
        ))
    })
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
