//! The file that systemd reads with `EnvironmentFile=` (PURE).
//!
//! Every value is put in double quotes, where systemd (and a shell) takes everything literally but four
//! characters: `"`, `\`, `` ` `` and `$`, each escaped by a backslash. A line break stays as it is. What systemd would
//! drop or cut, it never sees: rendering refuses it.

use crate::parse::{Invalid, harmless, shown};
use std::collections::BTreeMap;
use std::fmt;

const HEADER: &str = "\
# Written by the charm concourse-ci-machine and replaced as a whole: what is changed here is lost.
# Own lines go into the file beside it that ends in .local.env; that one is read last and wins.
";

/// The kernel's limit for one `NAME=value` with its end, `MAX_ARG_STRLEN`: a longer one stops every exec.
const LONGEST: usize = 128 * 1024;

/// An environment file in the making. Its `Debug` shows no value: many are secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EnvFile {
    variables: BTreeMap<String, String>,
}

impl EnvFile {
    /// A file without variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a variable; of several values for one name the last counts.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) -> &mut Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// The whole file, sorted by name: equal variables give equal text.
    ///
    /// # Errors
    /// A variable that systemd can't hand on byte for byte. The sentence names it and never shows its value.
    pub fn render(&self) -> Result<String, Invalid> {
        let mut text = HEADER.to_owned();
        for (name, value) in &self.variables {
            check(name, value)?;
            text.push_str(name);
            text.push_str("=\"");
            for c in value.chars() {
                if matches!(c, '"' | '\\' | '`' | '$') {
                    text.push('\\');
                }
                text.push(c);
            }
            text.push_str("\"\n");
        }
        Ok(text)
    }
}

impl fmt::Debug for EnvFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

fn check(name: &str, value: &str) -> Result<(), Invalid> {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        let name = shown(name);
        return Err(Invalid::new(format!("{name} is not a variable's name; use A to Z, 0 to 9 and _")));
    }
    if !value.chars().all(carried) {
        return Err(Invalid::new(format!("{name} holds a control character, which systemd can't hand on")));
    }
    if name.len() + value.len() + 2 > LONGEST {
        return Err(Invalid::new(format!("{name} is too long; a variable holds less than 128 KiB")));
    }
    Ok(())
}

/// Whether every systemd takes the character; new ones take more control characters than old ones.
fn carried(c: char) -> bool {
    harmless(c) || matches!(c, '\n' | '\t')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> EnvFile {
        let mut file = EnvFile::new();
        for (name, value) in variables {
            file.set(name, value);
        }
        file
    }

    #[test]
    fn the_whole_file() {
        let text = file([
            ("CONCOURSE_POSTGRES_PASSWORD", r##"a@b:c/d%e#f'g"h\i j$k;l`m!n*"##),
            ("CONCOURSE_EXTERNAL_URL", "https://ci.example.com"),
            ("CONCOURSE_LOG_LEVEL", "debug"),
            ("CONCOURSE_LOG_LEVEL", "info"),
            ("EMPTY", ""),
            ("PEM", "-----BEGIN\n\tx\n"),
        ]);
        insta::assert_snapshot!(text.render().unwrap(), @r#"
        # Written by the charm concourse-ci-machine and replaced as a whole: what is changed here is lost.
        # Own lines go into the file beside it that ends in .local.env; that one is read last and wins.
        CONCOURSE_EXTERNAL_URL="https://ci.example.com"
        CONCOURSE_LOG_LEVEL="info"
        CONCOURSE_POSTGRES_PASSWORD="a@b:c/d%e#f'g\"h\\i j\$k;l\`m!n*"
        EMPTY=""
        PEM="-----BEGIN
        	x
        "
        "#);
    }

    #[test]
    fn what_systemd_would_drop_is_refused_by_name_only() {
        for c in ['\0', '\r', '\u{1b}', '\u{7f}', '\u{85}', '\u{fdd0}', '\u{ffff}', '\u{10fffe}'] {
            let why = file([("TOKEN", format!("hunter2{c}").as_str())]).render().unwrap_err().to_string();
            assert_eq!(why, "TOKEN holds a control character, which systemd can't hand on", "{c:?}");
        }
        for name in ["", "1A", "A-B", "A=B", "A B", "Ä", "A\nB"] {
            let why = file([(name, "hunter2")]).render().unwrap_err().to_string();
            let shown = shown(name);
            assert_eq!(why, format!("{shown} is not a variable's name; use A to Z, 0 to 9 and _"));
        }
        assert!(file([("A", "x".repeat(LONGEST - 3).as_str())]).render().is_ok());
        let why = file([("A", "x".repeat(LONGEST - 2).as_str())]).render().unwrap_err().to_string();
        assert_eq!(why, "A is too long; a variable holds less than 128 KiB");
    }

    #[test]
    fn debug_shows_names_only() {
        assert_eq!(format!("{:?}", file([("TOKEN", "hunter2")])), r#"{"TOKEN"}"#);
    }

    proptest! {
        #[test]
        fn what_is_rendered_arrives(
            variables in proptest::collection::btree_map(
                "[A-Za-z_][A-Za-z0-9_]{0,8}",
                prop_oneof![any::<String>(), r#"[a-c "'\\$`#;=@%!{}\n\t]{0,20}"#],
                0..6,
            )
        ) {
            let file = file(variables.iter().map(|(n, v)| (n.as_str(), v.as_str())));
            match file.render() {
                Ok(text) => prop_assert_eq!(as_systemd_reads(&text), variables),
                Err(_) => prop_assert!(variables.values().any(|v| !v.chars().all(carried))),
            }
        }
    }

    #[test]
    fn the_reader_of_these_tests_follows_systemd() {
        // Rows from systemd.exec(5), "EnvironmentFile=".
        let rows = [
            ("# c\\\nA=1\n; c\n\n  A = 2  \n", "2"),
            ("A='it\\s $x'\n", "it\\s $x"),
            ("A=\"q\\\"b\\\\s\\$d\\`t\\n\"\n", "q\"b\\s$d`t\\n"),
            ("A=\"one \\\ntwo\nthree\"\n", "one two\nthree"),
            ("A=plain\\ \\\n word ; #x  \n", "plain  word ; #x"),
            ("A='a'\"b\"\n", "ab"),
            ("A=\n", ""),
            ("A=no line break", "no line break"),
        ];
        for (text, value) in rows {
            assert_eq!(as_systemd_reads(text), BTreeMap::from([("A".into(), value.into())]), "{text:?}");
        }
    }

    /// Reads an environment file by the rules of systemd.exec(5), without what a value needs no rule for.
    fn as_systemd_reads(text: &str) -> BTreeMap<String, String> {
        let mut variables = BTreeMap::new();
        let mut chars = text.chars().peekable();
        while let Some(first) = chars.peek().copied() {
            if first.is_ascii_whitespace() {
                chars.next();
                continue;
            }
            if matches!(first, '#' | ';') {
                chars.by_ref().find(|c| *c == '\n');
                continue;
            }
            let name: String = chars.by_ref().take_while(|c| *c != '=').collect();
            // `kept`: how much of the value is not unquoted white space at its end.
            let (mut value, mut kept, mut plain) = (String::new(), 0, false);
            while let Some(c) = chars.next() {
                match c {
                    '\n' => break,
                    '\'' if !plain => value.extend(chars.by_ref().take_while(|c| *c != '\'')),
                    '"' if !plain => {
                        while let Some(c) = chars.next().filter(|c| *c != '"') {
                            match (c, chars.peek().copied()) {
                                ('\\', Some('\n')) => _ = chars.next(),
                                ('\\', Some('"' | '\\' | '`' | '$')) => value.extend(chars.next()),
                                _ => value.push(c),
                            }
                        }
                    }
                    '\\' => {
                        plain = true;
                        value.extend(chars.next().filter(|c| *c != '\n'));
                    }
                    c if c.is_ascii_whitespace() => {
                        if plain {
                            value.push(c);
                        }
                        continue;
                    }
                    c => {
                        plain = true;
                        value.push(c);
                    }
                }
                kept = value.len();
            }
            value.truncate(kept);
            variables.insert(name.trim_end().to_owned(), value);
        }
        variables
    }
}
