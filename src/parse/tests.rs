//! What holds for every type: one grammar for all ways in, text that comes back, no panic on any text.

use super::*;
use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::{Debug, Display};
use std::str::FromStr;

/// Anything that this module makes from text.
pub(crate) trait Parsed:
    FromStr<Err = Invalid> + Display + Debug + PartialEq + Serialize + DeserializeOwned
{
}
impl<T: FromStr<Err = Invalid> + Display + Debug + PartialEq + Serialize + DeserializeOwned> Parsed for T {}

/// Each row: a text, and the canonical text of the value.
pub(crate) fn accepts<T: Parsed>(rows: &[(&str, &str)]) {
    for (text, canonical) in rows {
        let value: T = text.parse().unwrap_or_else(|why| panic!("{text:?} was refused: {why}"));
        assert_eq!(value.to_string(), *canonical, "of {text:?}");
        same_on_all_ways(&value);
        assert_eq!(serde_json::from_value::<T>((*text).into()).unwrap(), value, "of {text:?} by serde");
    }
}

/// Each row: a text, and the sentence that refuses it.
pub(crate) fn refuses<T: Parsed>(rows: &[(&str, &str)]) {
    for (text, sentence) in rows {
        match text.parse::<T>() {
            Ok(value) => panic!("{text:?} was taken as {value:?}"),
            Err(why) => assert_eq!(why.to_string(), *sentence),
        }
        let by_serde = serde_json::from_value::<T>((*text).into()).unwrap_err();
        assert_eq!(by_serde.to_string(), *sentence, "of {text:?} by serde");
    }
}

fn same_on_all_ways<T: Parsed>(value: &T) {
    let canonical = value.to_string();
    assert_eq!(canonical.parse::<T>().as_ref(), Ok(value), "the canonical text parses to the same value");
    let json = serde_json::to_value(value).unwrap();
    assert_eq!(json, serde_json::Value::from(canonical));
    assert_eq!(&serde_json::from_value::<T>(json).unwrap(), value);
}

fn taken_or_refused_in_one_line<T: Parsed>(text: &str) {
    match text.parse::<T>() {
        Ok(value) => {
            assert!(!value.to_string().chars().any(|c| c.is_control()), "{value:?}");
            same_on_all_ways(&value);
        }
        Err(why) => {
            let sentence = why.to_string();
            assert!(!sentence.is_empty() && sentence.len() < 1000, "{sentence}");
            assert!(!sentence.chars().any(|c| c.is_control()), "{sentence:?}");
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_taken_or_refused(
        text in prop_oneof![
            any::<String>(),
            r"[a-z0-9.:\[\]-]{0,24}",
            r"[a-z]{1,3}[a-z0-9-]{0,5}/[0-9]{1,11}",
            r"[0-9]{1,22}[smh]?",
            r"(secret:)?(//[0-9a-f-]{36}/)?[0-9a-v]{19,21}",
            r"[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}(-rc\.[0-9]+)?",
            r"ssh-(rsa|ed25519) [A-Za-z0-9+/]{0,80}={0,2}",
        ]
    ) {
        taken_or_refused_in_one_line::<HostPort>(&text);
        taken_or_refused_in_one_line::<Host>(&text);
        taken_or_refused_in_one_line::<DnsName>(&text);
        taken_or_refused_in_one_line::<PublicKey>(&text);
        taken_or_refused_in_one_line::<Version>(&text);
        taken_or_refused_in_one_line::<Sha256>(&text);
        taken_or_refused_in_one_line::<Tag>(&text);
        taken_or_refused_in_one_line::<UserName>(&text);
        taken_or_refused_in_one_line::<TimeLimit>(&text);
        taken_or_refused_in_one_line::<UnitName>(&text);
        taken_or_refused_in_one_line::<SecretId>(&text);
    }
}

#[test]
fn a_message_shows_a_value_in_one_short_line() {
    assert_eq!(shown("a\"b\n"), r#""a\"b\n""#);
    assert_eq!(shown(&"x".repeat(61)), format!("\"{}…\"", "x".repeat(60)));
    assert_eq!(shown(&"ü".repeat(60)), format!("\"{}\"", "ü".repeat(60)));
}

#[test]
fn the_nearest_word_is_near() {
    let words = ["debug", "info", "error", "fatal"];
    assert_eq!(nearest("eror", words), Some("error"));
    assert_eq!(nearest("xyz", words), None);
    assert_eq!(nearest("", words), None);
    assert_eq!(nearest(&"error".repeat(100), words), None);
}

#[test]
fn a_secret_shows_only_to_who_asks() {
    let secret = Secret::new("hunter2");
    assert_eq!(format!("{secret} {secret:?} {:?}", Some(&secret)), "*** *** Some(***)");
    assert_eq!(secret.expose(), "hunter2");
}
