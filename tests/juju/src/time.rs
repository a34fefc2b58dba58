//! Clock times as Juju prints them.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970.
pub type Nanos = u128;

/// Now.
pub fn now() -> Nanos {
    SystemTime::now().duration_since(UNIX_EPOCH).map(|since| since.as_nanos()).unwrap_or_default()
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A moment taken apart (UTC).
pub struct Civil {
    year: i64,
    month: usize,
    day: u32,
    hour: u64,
    minute: u64,
    second: u64,
    nanos: u128,
}

/// Takes a moment apart.
pub fn civil(at: Nanos) -> Civil {
    let seconds = (at / 1_000_000_000) as u64;
    let (days, rest) = ((seconds / 86_400) as i64, seconds % 86_400);
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let moved = (5 * of_year + 2) / 153;
    let day = (of_year - (153 * moved + 2) / 5 + 1) as u32;
    let month = if moved < 10 { moved + 3 } else { moved - 9 } as usize;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    Civil {
        year,
        month,
        day,
        hour: rest / 3600,
        minute: rest / 60 % 60,
        second: rest % 60,
        nanos: at % 1_000_000_000,
    }
}

impl Civil {
    /// `21 Nov 2026 08:29:25Z`, as in `juju status`.
    pub fn status(&self) -> String {
        let month = MONTHS[self.month - 1];
        format!("{:02} {month} {} {}Z", self.day, self.year, self.clock())
    }

    /// `08:29:25`.
    pub fn clock(&self) -> String {
        format!("{:02}:{:02}:{:02}", self.hour, self.minute, self.second)
    }

    /// `2026-11-21`.
    pub fn date(&self) -> String {
        format!("{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }

    /// `2026-11-21 08:24:23Z`, as in `goal-state`.
    pub fn goal(&self) -> String {
        format!("{} {}Z", self.date(), self.clock())
    }

    /// `2026-11-21T08:37:28.185156528Z`.
    pub fn rfc3339(&self) -> String {
        format!("{}T{}.{:09}Z", self.date(), self.clock(), self.nanos)
    }

    /// `2026-11-21 08:26:06.175509564 +0000 UTC`, as in action results.
    pub fn go(&self) -> String {
        format!("{} {}.{:09} +0000 UTC", self.date(), self.clock(), self.nanos)
    }

    /// `2026-11-21T08:36`, a resource's revision.
    pub fn minute(&self) -> String {
        format!("{}T{:02}:{:02}", self.date(), self.hour, self.minute)
    }
}

/// A Go duration (`72h`, `1m30s`, `500ms`) in nanoseconds.
pub fn go_duration(value: &str) -> Option<Nanos> {
    let mut rest = value;
    let mut total = 0f64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = match &rest[..end] {
            "ns" => 1.0,
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 6e10,
            "h" => 3.6e12,
            _ => return None,
        };
        total += number * unit;
        rest = &rest[end..];
    }
    Some(total as Nanos)
}

/// `2006-01-02T15:04:05`, with or without `Z`.
pub fn parse_rfc3339(value: &str) -> Option<Nanos> {
    let value = value.strip_suffix('Z').unwrap_or(value);
    let (date, clock) = value.split_once('T')?;
    let numbers: Vec<i64> = date.split('-').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let clock_parts: Vec<f64> = clock.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let ([year, month, day], [hour, minute, second]) = (numbers.as_slice(), clock_parts.as_slice()) else {
        return None;
    };
    let year = if *month <= 2 { year - 1 } else { *year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let moved = (month + 9) % 12;
    let of_year = (153 * moved + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    let seconds = days as f64 * 86_400.0 + hour * 3600.0 + minute * 60.0 + second;
    (seconds >= 0.0).then_some((seconds * 1e9) as Nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_both_ways() {
        let at = parse_rfc3339("2026-11-21T08:37:28Z").unwrap();
        assert_eq!(civil(at).rfc3339(), "2026-11-21T08:37:28.000000000Z");
        assert_eq!(civil(at).status(), "21 Nov 2026 08:37:28Z");
        assert_eq!(go_duration("1m30s"), Some(90_000_000_000));
        assert_eq!(go_duration("2020-01-01"), None);
        assert_eq!(parse_rfc3339("2020-01-01"), None);
    }
}
