//! Values that tools and the client print, with Go's own JSON and YAML spelling.

use serde_json::Value;

/// A value whose maps keep the order in which they were made.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Nothing.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// A text.
    Str(String),
    /// A text that YAML prints without quotes (a time, for example).
    Raw(String),
    /// A list.
    List(Vec<Data>),
    /// A map in the order of its making.
    Map(Vec<(String, Data)>),
}

/// A map value from key and value pairs.
pub fn map<K: Into<String>, const N: usize>(pairs: [(K, Data); N]) -> Data {
    Data::Map(pairs.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

/// A text value.
pub fn text(value: impl Into<String>) -> Data {
    Data::Str(value.into())
}

/// A list of texts.
pub fn texts<S: Into<String>>(values: impl IntoIterator<Item = S>) -> Data {
    Data::List(values.into_iter().map(|value| Data::Str(value.into())).collect())
}

impl Data {
    /// The same value, maps sorted by key, from JSON.
    pub fn from_json(value: &Value) -> Data {
        match value {
            Value::Null => Data::Null,
            Value::Bool(flag) => Data::Bool(*flag),
            Value::Number(number) => match number.as_i64() {
                Some(whole) => Data::Int(whole),
                None => Data::Float(number.as_f64().unwrap_or_default()),
            },
            Value::String(string) => Data::Str(string.clone()),
            Value::Array(items) => Data::List(items.iter().map(Data::from_json).collect()),
            Value::Object(object) => {
                let mut pairs: Vec<_> =
                    object.iter().map(|(key, value)| (key.clone(), Data::from_json(value))).collect();
                pairs.sort_by(|a, b| a.0.cmp(&b.0));
                Data::Map(pairs)
            }
        }
    }

    /// A map of texts.
    pub fn strings<'a>(pairs: impl IntoIterator<Item = (&'a String, &'a String)>) -> Data {
        Data::Map(pairs.into_iter().map(|(key, value)| (key.clone(), text(value))).collect())
    }

    /// Adds a pair to a map.
    pub fn push(&mut self, key: impl Into<String>, value: Data) {
        if let Data::Map(pairs) = self {
            pairs.push((key.into(), value));
        }
    }

    /// One line of JSON as Go writes it (no blanks; `<`, `>` and `&` escaped).
    pub fn json(&self) -> String {
        match self {
            Data::Null => "null".into(),
            Data::Bool(flag) => flag.to_string(),
            Data::Int(number) => number.to_string(),
            Data::Float(number) => number.to_string(),
            Data::Str(string) | Data::Raw(string) => json_string(string),
            Data::List(items) => {
                format!("[{}]", items.iter().map(Data::json).collect::<Vec<_>>().join(","))
            }
            Data::Map(pairs) => {
                let body: Vec<_> = pairs
                    .iter()
                    .map(|(key, value)| format!("{}:{}", json_string(key), value.json()))
                    .collect();
                format!("{{{}}}", body.join(","))
            }
        }
    }

    /// Go's YAML, ending in a newline unless empty.
    pub fn yaml(&self) -> String {
        let mut out = String::new();
        match self {
            Data::Map(pairs) if !pairs.is_empty() => write_map(&mut out, pairs, 0),
            Data::List(items) if !items.is_empty() => write_list(&mut out, items, 0),
            other => out.push_str(&format!("{}\n", scalar(other, 0))),
        }
        out
    }

    /// The `smart` format: bare words, lists one per line, maps as YAML, nothing for nothing.
    pub fn smart(&self) -> String {
        match self {
            Data::Null => String::new(),
            Data::Bool(true) => "True\n".into(),
            Data::Bool(false) => "False\n".into(),
            Data::Str(string) | Data::Raw(string) if string.is_empty() => String::new(),
            Data::Str(string) | Data::Raw(string) => format!("{string}\n"),
            Data::List(items) => items.iter().map(Data::smart).collect(),
            other => other.yaml(),
        }
    }
}

fn json_string(value: &str) -> String {
    let plain = serde_json::to_string(value).unwrap_or_default();
    plain.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn write_map(out: &mut String, pairs: &[(String, Data)], indent: usize) {
    let pad = " ".repeat(indent);
    for (key, value) in pairs {
        out.push_str(&format!("{pad}{}:", yaml_string(key, indent)));
        write_value(out, value, indent);
    }
}

fn write_value(out: &mut String, value: &Data, indent: usize) {
    match value {
        Data::Map(inner) if !inner.is_empty() => {
            out.push('\n');
            write_map(out, inner, indent + 2);
        }
        Data::List(items) if !items.is_empty() => {
            out.push('\n');
            write_list(out, items, indent);
        }
        other => out.push_str(&format!(" {}\n", scalar(other, indent + 2))),
    }
}

fn write_list(out: &mut String, items: &[Data], indent: usize) {
    let pad = " ".repeat(indent);
    for item in items {
        match item {
            Data::Map(pairs) if !pairs.is_empty() => {
                let mut inner = String::new();
                write_map(&mut inner, pairs, indent + 2);
                out.push_str(&format!("{pad}- {}", inner.trim_start()));
            }
            other => out.push_str(&format!("{pad}- {}\n", scalar(other, indent + 2))),
        }
    }
}

fn scalar(value: &Data, indent: usize) -> String {
    match value {
        Data::Str(string) => yaml_string(string, indent),
        Data::Raw(string) => string.clone(),
        Data::Map(_) => "{}".into(),
        Data::List(_) => "[]".into(),
        other => other.json(),
    }
}

/// A text as go-yaml spells it: plain, `"…"` where it would read as another type, `'…'` or a block.
fn yaml_string(value: &str, indent: usize) -> String {
    if value.is_empty() || reads_as_other_type(value) {
        return format!("\"{value}\"");
    }
    if value.chars().any(|c| c.is_control() && c != '\n') {
        return serde_json::to_string(value).unwrap_or_default();
    }
    if value.contains('\n') {
        let pad = " ".repeat(indent);
        let body = value.strip_suffix('\n').unwrap_or(value);
        let chomp = if !value.ends_with('\n') {
            "-"
        } else if body.ends_with('\n') {
            "+"
        } else {
            ""
        };
        let lines: Vec<_> = body
            .split('\n')
            .map(|l| if l.is_empty() { String::new() } else { format!("{pad}{l}") })
            .collect();
        return format!("|{chomp}\n{}", lines.join("\n"));
    }
    let first = value.chars().next().unwrap_or(' ');
    let second = value.chars().nth(1);
    let special = match first {
        '-' | '?' | ':' => second.is_none_or(|c| c == ' '),
        _ => ",[]{}#&*!|>'\"%@`".contains(first),
    };
    let blanks = value.starts_with(' ') || value.ends_with(' ');
    if special || blanks || value.contains(": ") || value.contains(" #") || value.ends_with(':') {
        return format!("'{}'", value.replace('\'', "''"));
    }
    value.into()
}

fn reads_as_other_type(value: &str) -> bool {
    const WORDS: [&str; 14] =
        ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", ".inf", "-.inf", ".nan", "<<"];
    let lower = value.to_lowercase();
    let numeric = value.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
        && value.chars().any(|c| c.is_ascii_digit())
        && (value.replace('_', "").parse::<f64>().is_ok()
            || lower.strip_prefix("0x").is_some_and(|hex| hex.chars().all(|c| c.is_ascii_hexdigit()))
            || looks_like_date(value));
    WORDS.contains(&lower.as_str()) || numeric
}

fn looks_like_date(value: &str) -> bool {
    let bytes = value.as_bytes();
    bytes.len() == 10
        && bytes
            .iter()
            .enumerate()
            .all(|(i, b)| if i == 4 || i == 7 { *b == b'-' } else { b.is_ascii_digit() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_is_spelt_as_go_does() {
        let rows = [
            ("5", "\"5\""),
            ("y", "\"y\""),
            ("", "\"\""),
            ("a b", "a b"),
            ("{\"a\":1}", "'{\"a\":1}'"),
            ("10.98.0.12/32", "10.98.0.12/32"),
            ("1.2.3", "1.2.3"),
            ("secret://x/y", "secret://x/y"),
            ("2026-11-21", "\"2026-11-21\""),
            ("ends:", "'ends:'"),
        ];
        for (value, wanted) in rows {
            assert_eq!(scalar(&text(value), 0), wanted, "{value}");
        }
        let nested = map([("a", Data::List(vec![map([("b", text("c\n")), ("d", Data::List(vec![]))])]))]);
        assert_eq!(nested.yaml(), "a:\n- b: |\n    c\n  d: []\n");
    }
}
