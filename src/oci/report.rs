//! Telling: the author of a pipeline, through runc's log, which containerd reads; the operator, through the journal.

use super::args::Call;
use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::time::{SystemTime, UNIX_EPOCH};

/// Where journald takes entries, unless [`JOURNAL_VARIABLE`] says otherwise.
const JOURNAL: &str = "/run/systemd/journal/socket";
/// Names another socket, for tests.
pub const JOURNAL_VARIABLE: &str = "CONCOURSE_RUNTIME_JOURNAL";

/// Tells why a container does not start, as runc would: in its log, in its format, and on stderr.
pub fn refusal(call: &Call, text: &str) {
    let line = log_line(text, call.json, SystemTime::now());
    if let Some(log) = &call.log {
        let opened = OpenOptions::new().create(true).append(true).mode(0o644).open(log);
        // With no log to write to, stderr is what is left.
        let _ = opened.and_then(|mut file| file.write_all(line.as_bytes()));
        let _ = writeln!(std::io::stderr(), "{text}");
    } else {
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

/// Tells the operator. A shim's stderr leads nowhere, so this goes straight to the journal; where there is none (or it
/// is full), nothing waits for it.
pub fn journal(text: &str) {
    let path = env::var_os(JOURNAL_VARIABLE).unwrap_or_else(|| JOURNAL.into());
    let entry =
        format!("SYSLOG_IDENTIFIER=runc-gpu-wrapper\nPRIORITY=4\nMESSAGE={}\n", text.replace('\n', " "));
    if let Ok(socket) = UnixDatagram::unbound() {
        let _ = socket.set_nonblocking(true);
        let _ = socket.send_to(entry.as_bytes(), path);
    }
}

/// A line of runc's log. containerd drops a whole log in which one time is not RFC 3339.
fn log_line(text: &str, json: bool, now: SystemTime) -> String {
    let time = rfc3339(now.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()));
    let text = serde_json::Value::from(text);
    match json {
        true => format!("{{\"level\":\"error\",\"msg\":{text},\"time\":\"{time}\"}}\n"),
        false => format!("time=\"{time}\" level=error msg={text}\n"),
    }
}

/// Seconds since 1970 as `2026-01-02T03:04:05Z`; days to a date after Howard Hinnant's `civil_from_days`.
pub fn rfc3339(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_767_323_045, "2026-01-02T03:04:05Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }

    #[test]
    fn lines_are_what_runc_writes() {
        let at = UNIX_EPOCH + Duration::from_secs(1_767_323_045);
        assert_eq!(
            log_line("a \"b\"", true, at),
            "{\"level\":\"error\",\"msg\":\"a \\\"b\\\"\",\"time\":\"2026-01-02T03:04:05Z\"}\n"
        );
        assert_eq!(
            log_line("a \"b\"", false, at),
            "time=\"2026-01-02T03:04:05Z\" level=error msg=\"a \\\"b\\\"\"\n"
        );
    }
}
