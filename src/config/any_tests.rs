//! Whatever Juju may hand over.

use super::options;
use super::*;
use proptest::prelude::*;
use serde_json::{Map, Value};

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[a-z0-9:/.,{}@ -]{0,30}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-z]{0,4}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_json_is_taken_or_refused(
        set in proptest::collection::vec(any_json(), options::declared().count()),
    ) {
        let set: Map<_, _> = options::declared().map(str::to_owned).zip(set).collect();
        if let Err(problems) = parse(&set, &ModelProxy::default()) {
            prop_assert!(!problems.is_empty());
            for problem in problems {
                prop_assert!(!problem.to_string().chars().any(char::is_control), "{problem}");
            }
        }
    }
}
