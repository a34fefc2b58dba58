//! Parameters of actions: the part of JSON Schema that Juju checks.

use crate::charm::entries;
use crate::data::Data;
use serde_json::Value;

/// What is wrong with parameters, if anything. 4.0 allows no others than the declared ones by default.
pub fn check(action: &Value, params: &Value, additional_by_default: bool) -> Option<String> {
    let mut wrong = Vec::new();
    let given = Data::from_json(params).json();
    for name in action["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if params.get(name).is_none() {
            wrong.push(format!("(root) : {name:?} property is missing and required, given {given}"));
        }
    }
    let additional = action["additionalProperties"].as_bool().unwrap_or(additional_by_default);
    for (name, value) in entries(params) {
        match action["params"].get(name) {
            None if !additional => {
                wrong.push(format!("(root) : additional property {name:?} is not allowed, given {given}"));
            }
            None => {}
            Some(schema) => check_value(&format!("(root).{name}"), schema, value, &mut wrong),
        }
    }
    (!wrong.is_empty()).then(|| format!("validation failed: {}", wrong.join("; ")))
}

fn check_value(place: &str, schema: &Value, value: &Value, wrong: &mut Vec<String>) {
    let given = Data::from_json(value).json();
    if let Some(kind) = schema["type"].as_str() {
        let fits = match kind {
            "string" => value.is_string(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            "object" => value.is_object(),
            "array" => value.is_array(),
            _ => value.is_null(),
        };
        if !fits {
            wrong.push(format!("{place} : must be of type {kind}, given {given}"));
            return;
        }
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        wrong.push(format!(
            "{place} : must match one of the enum values {}, given {given}",
            Data::from_json(&schema["enum"]).json()
        ));
    }
    let number = value.as_f64();
    let beyond = |key: &str, worse: fn(f64, f64) -> bool| {
        number
            .zip(schema[key].as_f64())
            .filter(|(value, limit)| worse(*value, *limit))
            .map(|(_, limit)| limit)
    };
    if let Some(limit) = beyond("minimum", |value, limit| value < limit) {
        wrong.push(format!("{place} : must be greater than or equal to {limit}, given {given}"));
    }
    if let Some(limit) = beyond("maximum", |value, limit| value > limit) {
        wrong.push(format!("{place} : must be less than or equal to {limit}, given {given}"));
    }
}

/// Parameters with the defaults of those that were not given.
pub fn with_defaults(action: &Value, mut params: Value) -> Value {
    if let Some(object) = params.as_object_mut() {
        for (name, schema) in entries(&action["params"]) {
            if !schema["default"].is_null() {
                object.entry(name.clone()).or_insert_with(|| schema["default"].clone());
            }
        }
    }
    params
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parameters_are_judged_as_juju_does() {
        let action = json!({"params": {"msg": {"type": "string", "default": "d"}, "cnt": {"type": "integer"}}, "required": ["msg"]});
        let rows = [
            (
                json!({}),
                Some("validation failed: (root) : \"msg\" property is missing and required, given {}"),
            ),
            (
                json!({"msg": "a", "cnt": "abc"}),
                Some("validation failed: (root).cnt : must be of type integer, given \"abc\""),
            ),
            (
                json!({"msg": "a", "no": 1}),
                Some(
                    "validation failed: (root) : additional property \"no\" is not allowed, given {\"msg\":\"a\",\"no\":1}",
                ),
            ),
            (json!({"msg": "a", "cnt": 1}), None),
        ];
        for (params, wanted) in rows {
            assert_eq!(check(&action, &params, false).as_deref(), wanted);
        }
        assert_eq!(with_defaults(&action, json!({"cnt": 1})), json!({"cnt": 1, "msg": "d"}));
    }
}
