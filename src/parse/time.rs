//! How long an action may take, and when something was.

use super::{Invalid, from_text, shown};
use std::fmt;
use std::time::Duration;

/// A time limit of 1 s to 24 h: `90s`, `10m`, `2h`, or a plain number of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeLimit(u64);

impl TimeLimit {
    /// A day.
    pub const LONGEST: Duration = Duration::from_secs(86_400);

    fn parse(text: &str) -> Result<Self, Invalid> {
        let (number, unit) = match text.chars().next_back() {
            Some('s') => (&text[..text.len() - 1], 1),
            Some('m') => (&text[..text.len() - 1], 60),
            Some('h') => (&text[..text.len() - 1], 60 * 60),
            _ => (text, 1),
        };
        // Digits only: the standard library would take a sign as well.
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
            return Err(Invalid::new(format!("{} is not a time; write 90s, 10m or 2h", shown(text))));
        }
        match number.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)) {
            Some(seconds @ 1..=86_400) => Ok(Self(seconds)),
            _ => Err(Invalid::new(format!("{} is out of range; use 1s to 24h", shown(text)))),
        }
    }

    /// The limit.
    pub fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            s if s.is_multiple_of(3600) => write!(f, "{}h", s / 3600),
            s if s.is_multiple_of(60) => write!(f, "{}m", s / 60),
            s => write!(f, "{s}s"),
        }
    }
}

/// A moment, in seconds since 1970.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// From a clock, or by parsing.
    pub fn new(seconds: u64) -> Self {
        Self(seconds)
    }

    fn parse(text: &str) -> Result<Self, Invalid> {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let seconds = digits.then(|| text.parse().ok()).flatten();
        seconds.map(Self).ok_or_else(|| {
            Invalid::new(format!("{} is no moment; write the seconds since 1970", shown(text)))
        })
    }

    /// So much later.
    pub fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time.as_secs()))
    }

    /// How long ago `earlier` was; `None` if it is yet to come, as after a clock was set back.
    pub fn since(self, earlier: Self) -> Option<Duration> {
        self.0.checked_sub(earlier.0).map(Duration::from_secs)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

from_text!(TimeLimit, Moment);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::tests::{accepts, refuses};

    #[test]
    fn time_limits() {
        accepts::<TimeLimit>(&[
            ("90s", "90s"),
            ("90", "90s"),
            ("600", "10m"),
            ("10m", "10m"),
            ("2h", "2h"),
            ("1440m", "24h"),
            ("1", "1s"),
        ]);
        refuses::<TimeLimit>(&[
            ("", r#""" is not a time; write 90s, 10m or 2h"#),
            ("m", r#""m" is not a time; write 90s, 10m or 2h"#),
            ("-5s", r#""-5s" is not a time; write 90s, 10m or 2h"#),
            ("+5s", r#""+5s" is not a time; write 90s, 10m or 2h"#),
            ("1.5h", r#""1.5h" is not a time; write 90s, 10m or 2h"#),
            ("1h30m", r#""1h30m" is not a time; write 90s, 10m or 2h"#),
            ("10 m", r#""10 m" is not a time; write 90s, 10m or 2h"#),
            ("5ü", r#""5ü" is not a time; write 90s, 10m or 2h"#),
            ("0", r#""0" is out of range; use 1s to 24h"#),
            ("25h", r#""25h" is out of range; use 1s to 24h"#),
            ("99999999999999999999h", r#""99999999999999999999h" is out of range; use 1s to 24h"#),
        ]);
        assert_eq!(TimeLimit::parse("2h").unwrap().duration(), Duration::from_secs(7200));
    }

    #[test]
    fn moments() {
        accepts::<Moment>(&[("0", "0"), ("1763740000", "1763740000"), ("007", "7")]);
        refuses::<Moment>(&[
            ("", r#""" is no moment; write the seconds since 1970"#),
            ("-1", r#""-1" is no moment; write the seconds since 1970"#),
            ("now", r#""now" is no moment; write the seconds since 1970"#),
            ("99999999999999999999", r#""99999999999999999999" is no moment; write the seconds since 1970"#),
        ]);
        let (early, late) = (Moment::new(10), Moment::new(40));
        assert_eq!(late.since(early), Some(Duration::from_secs(30)));
        assert_eq!(early.since(late), None);
        assert_eq!(early.after(Duration::from_secs(30)), late);
    }
}
