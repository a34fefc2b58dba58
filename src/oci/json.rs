//! A JSON text of which only what is looked at is taken apart (PURE).
//!
//! Everything else stays the text that it was: unknown fields, order, white space, how a number or a string is
//! written, a name that stands twice. A tree of values could not promise that, and would read the 20 KiB of a
//! seccomp profile for nothing.

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// A value: its text, or an object or a list that was opened.
#[derive(Clone, Debug)]
pub struct Tree<'a>(Kind<'a>);

/// The parts, and the text behind the last one; of what has none, the whole text.
#[derive(Clone, Debug)]
enum Kind<'a> {
    Text(Cow<'a, str>),
    Object(Vec<Part<'a>>, &'a str),
    List(Vec<Part<'a>>, &'a str),
}

/// A member or an element. `lead` is the text between the one before and the value: brace, comma, white space, name.
#[derive(Clone, Debug)]
struct Part<'a> {
    lead: Cow<'a, str>,
    name: Cow<'a, str>,
    value: Tree<'a>,
}

/// What was found is of another type than what was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;

impl<'a> Tree<'a> {
    /// Takes a whole document; what is not JSON is refused at once.
    ///
    /// # Errors
    /// Not JSON; the text says where.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        serde_json::from_str::<&RawValue>(text).map_err(|e| e.to_string())?;
        Ok(Tree(Kind::Text(Cow::Borrowed(text))))
    }

    /// The member `name`; `None` where it is missing or null. Where it stands twice, the last one, as in Go.
    ///
    /// # Errors
    /// This is no object.
    pub fn get(&mut self, name: &str) -> Result<Option<&mut Self>, WrongType> {
        let found = self.members()?.iter_mut().rev().find(|part| part.name == name);
        Ok(found.map(|part| &mut part.value).filter(|value| !value.is_null()))
    }

    /// The member `name`, made as `empty` (`{}` or `[]`) where it is missing or null.
    ///
    /// # Errors
    /// This is no object.
    pub fn get_or(&mut self, name: &str, empty: &Value) -> Result<&mut Self, WrongType> {
        let members = self.members()?;
        let at = match members.iter().rposition(|part| part.name == name) {
            Some(at) if members[at].value.is_null() => {
                members[at].value = Tree::new(empty);
                at
            }
            Some(at) => at,
            None => {
                let comma = if members.is_empty() { "{" } else { "," };
                let lead = format!("{comma}{}:", Value::from(name));
                let name = Cow::Owned(name.to_owned());
                members.push(Part { lead: lead.into(), name, value: Tree::new(empty) });
                members.len() - 1
            }
        };
        Ok(&mut members[at].value)
    }

    /// The elements.
    ///
    /// # Errors
    /// This is no list.
    pub fn elements(&mut self) -> Result<impl Iterator<Item = &mut Self>, WrongType> {
        Ok(self.list()?.iter_mut().map(|part| &mut part.value))
    }

    /// Puts `value` before the element `at`, or at the end.
    ///
    /// # Errors
    /// This is no list.
    pub fn insert(&mut self, at: usize, value: &Value) -> Result<(), WrongType> {
        let list = self.list()?;
        let at = at.min(list.len());
        // The first one's lead is the bracket; who is put before it takes it over.
        let lead = match list.get_mut(at) {
            Some(next) if at == 0 => std::mem::replace(&mut next.lead, ",".into()),
            _ if at == 0 => "[".into(),
            _ => ",".into(),
        };
        list.insert(at, Part { lead, name: "".into(), value: Tree::new(value) });
        Ok(())
    }

    /// Puts `value` at the end.
    ///
    /// # Errors
    /// This is no list.
    pub fn push(&mut self, value: &Value) -> Result<(), WrongType> {
        self.insert(usize::MAX, value)
    }

    /// Becomes `value`; the same value in another spelling stays as it is.
    pub fn set(&mut self, value: &Value) {
        if self.value().as_ref() != Some(value) {
            *self = Tree::new(value);
        }
    }

    /// As a value.
    pub fn value(&self) -> Option<Value> {
        serde_json::from_str(&self.to_string()).ok()
    }

    /// As a string, if it is one.
    pub fn string(&self) -> Option<String> {
        match &self.0 {
            Kind::Text(text) => serde_json::from_str(text).ok(),
            _ => None,
        }
    }

    fn new(value: &Value) -> Self {
        Tree(Kind::Text(Cow::Owned(value.to_string())))
    }

    /// The first level of a value of ours.
    fn opened(value: Value) -> Kind<'a> {
        let part = |open: &str, at: usize, name: String, value: &Value| {
            let start = if at == 0 { open } else { "," };
            let lead = if open == "{" {
                format!("{start}{}:", Value::from(name.as_str()))
            } else {
                start.to_owned()
            };
            Part { lead: lead.into(), name: name.into(), value: Tree::new(value) }
        };
        match value {
            Value::Object(map) => {
                let parts =
                    map.into_iter().enumerate().map(|(at, (name, value))| part("{", at, name, &value));
                Kind::Object(parts.collect(), "{}")
            }
            Value::Array(list) => {
                let parts = list.iter().enumerate().map(|(at, value)| part("[", at, String::new(), value));
                Kind::List(parts.collect(), "[]")
            }
            other => Kind::Text(other.to_string().into()),
        }
    }

    fn is_null(&self) -> bool {
        matches!(&self.0, Kind::Text(text) if text.trim() == "null")
    }

    fn members(&mut self) -> Result<&mut Vec<Part<'a>>, WrongType> {
        self.open('{')?;
        match &mut self.0 {
            Kind::Object(members, _) => Ok(members),
            _ => Err(WrongType),
        }
    }

    fn list(&mut self) -> Result<&mut Vec<Part<'a>>, WrongType> {
        self.open('[')?;
        match &mut self.0 {
            Kind::List(list, _) => Ok(list),
            _ => Err(WrongType),
        }
    }

    fn open(&mut self, bracket: char) -> Result<(), WrongType> {
        let text = match &self.0 {
            Kind::Text(Cow::Borrowed(text)) => *text,
            Kind::Text(Cow::Owned(text)) => {
                self.0 = Self::opened(serde_json::from_str(text).map_err(|_| WrongType)?);
                return Ok(());
            }
            Kind::Object(..) | Kind::List(..) => return Ok(()),
        };
        if !text.trim_start().starts_with(bracket) {
            return Err(WrongType);
        }
        let found = serde_json::from_str::<Inside>(text).map_err(|_| WrongType)?.0;
        let mut at = 0;
        let mut parts = Vec::with_capacity(found.len());
        for (name, raw) in found {
            let start = raw.get().as_ptr() as usize - text.as_ptr() as usize;
            parts.push(Part {
                lead: text[at..start].into(),
                name: name.into(),
                value: Tree(Kind::Text(raw.get().into())),
            });
            at = start + raw.get().len();
        }
        let tail = &text[at..];
        self.0 = if bracket == '{' { Kind::Object(parts, tail) } else { Kind::List(parts, tail) };
        Ok(())
    }
}

impl fmt::Display for Tree<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (parts, tail) = match &self.0 {
            Kind::Text(text) => return f.write_str(text),
            Kind::Object(parts, tail) | Kind::List(parts, tail) => (parts, tail),
        };
        for part in parts {
            f.write_str(&part.lead)?;
            fmt::Display::fmt(&part.value, f)?;
        }
        match parts.is_empty() {
            true => f.write_str(tail),
            // One that was empty has its opening bracket in the tail; the first part brought its own.
            false => f.write_str(tail.rsplit(['{', '[']).next().unwrap_or(tail)),
        }
    }
}

/// Members with their names, or elements without.
struct Inside<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Inside<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Inside<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object or a list")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut found = vec![];
                while let Some(entry) = map.next_entry()? {
                    found.push(entry);
                }
                Ok(Inside(found))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut found = vec![];
                while let Some(value) = seq.next_element()? {
                    found.push((String::new(), value));
                }
                Ok(Inside(found))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn edited(text: &str, edit: impl Fn(&mut Tree<'_>)) -> String {
        let mut tree = Tree::parse(text).unwrap();
        edit(&mut tree);
        tree.to_string()
    }

    #[test]
    fn what_is_looked_at_stays_as_it_is() {
        for text in [
            " { \"a\" : [ 1.50e3 , \"\\u003e\" ] , \"b\":{ } , \"a\" : [ ] , \"c\\n\" : null } \n",
            "{}",
            " { } ",
            "[ ]",
            "[[[]]]",
            "12345678901234567890123456789.000",
        ] {
            let same = edited(text, |tree| {
                for name in ["a", "b", "c\n"] {
                    if let Ok(Some(value)) = tree.get(name) {
                        let _ = value.get("x");
                        let _ = value.elements().map(Iterator::count);
                    }
                }
                let _ = tree.elements().map(|e| {
                    e.for_each(|e| {
                        let _ = e.elements().map(Iterator::count);
                    })
                });
            });
            assert_eq!(same, text);
        }
    }

    #[test]
    fn additions_touch_nothing_else() {
        let push = |tree: &mut Tree<'_>| tree.get_or("l", &json!([])).unwrap().push(&json!(3)).unwrap();
        for (before, after) in [
            ("{}", r#"{"l":[3]}"#),
            (r#"{"l":null, "z":1.0}"#, r#"{"l":[3], "z":1.0}"#),
            (r#"{"l": [ 1.0 ] }"#, r#"{"l": [ 1.0,3 ] }"#),
            (r#"{"l":[ ]}"#, r#"{"l":[3 ]}"#),
            (r#"{ "z" : 1.0 }"#, r#"{ "z" : 1.0,"l":[3] }"#),
            (r#"{"l":[9],"l":[1]}"#, r#"{"l":[9],"l":[1,3]}"#),
        ] {
            assert_eq!(edited(before, push), after);
        }
        assert_eq!(edited("[ 1, 2]", |t| t.insert(0, &json!(0)).unwrap()), "[ 0,1, 2]");
        assert_eq!(edited("[ 1, 2]", |t| t.insert(1, &json!(0)).unwrap()), "[ 1,0, 2]");
    }

    #[test]
    fn other_types_are_said() {
        for text in ["1", "\"{\"", "null", "[]"] {
            assert_eq!(Tree::parse(text).unwrap().get("a").err(), Some(WrongType));
        }
        assert!(Tree::parse("{}").unwrap().elements().is_err());
        assert!(Tree::parse("{} x").is_err());
        // Deep, but no recursion of ours.
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let _ = Tree::parse(&deep);
    }
}
