//! Values as JSON.

use super::*;

fn json_refusal(of_type: &CqlType, json: &str) -> String {
    of_type.from_json(json).unwrap_err().to_string()
}

#[test]
fn json_becomes_values_and_back() {
    let ints = || list(native("int"));
    for (of_type, json, back) in [
        (native("ascii"), r#""a \" b""#, r#""a \" b""#),
        (native("text"), r#""\u2013""#, "\"\u{2013}\""),
        (native("bigint"), "\"123123123123\"", "123123123123"),
        (native("tinyint"), "127", "127"),
        (
            native("varint"),
            "1234567890123456789012345678901234567890",
            "1234567890123456789012345678901234567890",
        ),
        (native("decimal"), "123123.1231230000000000000000001", "123123.1231230000000000000000001"),
        (native("decimal"), "\"-1.23E-12\"", "-1.23E-12"),
        (native("double"), "123123", "123123.0"),
        (native("double"), "\"NaN\"", "null"),
        (native("float"), "\"-Infinity\"", "null"),
        (native("float"), "123.123", "123.123"),
        (native("boolean"), "\"false\"", "false"),
        (native("blob"), "\"0x00FF\"", "\"0x00ff\""),
        (native("blob"), "\"0x\"", "\"0x\""),
        (native("text"), "\"\"", "\"\""),
        (native("int"), "\"\"", "\"\""),
        (native("date"), "\"1987-03-23\"", "\"1987-03-23\""),
        (native("time"), "\"07:35:07.000111222\"", "\"07:35:07.000111222\""),
        (native("timestamp"), "1296705900000", "\"2011-02-03 04:05:00.000Z\""),
        (native("timestamp"), "\"2014-01-01\"", "\"2014-01-01 00:00:00.000Z\""),
        (native("inet"), "\"::1\"", "\"0:0:0:0:0:0:0:1\""),
        (native("duration"), "\"P1Y1M2DT10H5M\"", "\"1y1mo2d10h5m\""),
        (
            native("uuid"),
            "\"6BDDC89A-5644-11E4-97FC-56847AFE9799\"",
            "\"6bddc89a-5644-11e4-97fc-56847afe9799\"",
        ),
        (ints(), " [1,  2,3] ", "[1, 2, 3]"),
        (ints(), "\"[1, 2]\"", "[1, 2]"),
        (set(native("int")), "[3, 1, 2, 1]", "[1, 2, 3]"),
        (
            map(native("int"), native("boolean")),
            r#"{"1": true, "0": false}"#,
            r#"{"0": false, "1": true}"#,
        ),
        (map(ints().frozen(), native("int")), r#"{"[0, 1]": 1}"#, r#"{"[0, 1]": 1}"#),
        (tuple_of(&["int", "text"]), "[1, null]", "[1, null]"),
        (
            map(tuple_of(&["int", "text"]), native("int")),
            r#"{"[1, \"b\"]": 1}"#,
            r#"{"[1, \"b\"]": 1}"#,
        ),
        (user(), r#"{"A": 0, "\"Foo\"": "x"}"#, r#"{"a": 0, "\"Foo\"": "x", "c": null}"#),
        (user(), r#"{"c": [2, 1], "a": null}"#, r#"{"a": null, "\"Foo\"": null, "c": [1, 2]}"#),
    ] {
        let value = of_type.from_json(json).unwrap().unwrap();
        assert_eq!(of_type.validate(&value), Ok(()), "{json}");
        assert_eq!(of_type.to_json(&value), back, "{json}");
    }
    assert_eq!(native("int").from_json("null"), Ok(None));
    let short = tuple::pack(&[Some(0i32.to_be_bytes())]);
    assert_eq!(tuple_of(&["int", "text"]).to_json(&short), "[0, null]");
}

#[test]
fn json_of_another_form_is_refused_with_the_known_texts() {
    let natives = [
        ("ascii", "123", "Expected an ascii string, but got a Integer: 123"),
        ("text", "5", "Expected a UTF-8 string, but got a Integer: 5"),
        (
            "bigint",
            "9223372036854775808",
            "Expected a bigint value, but got a BigInteger: 9223372036854775808",
        ),
        ("bigint", "\"abc\"", "Unable to make long from 'abc'"),
        ("bigint", "[\"abc\"]", "Expected a bigint value, but got a ArrayList: [\"abc\"]"),
        ("int", "1.5", "Expected an int value, but got a Double: 1.5"),
        ("int", "2147483648", "Expected an int value, but got a Long: 2147483648"),
        ("int", "true", "Expected an int value, but got a Boolean: true"),
        ("smallint", "32768", "Unable to make short from '32768'"),
        ("smallint", "true", "Expected a short value, but got a Boolean: true"),
        ("tinyint", "123.456", "Unable to make byte from '123.456'"),
        ("float", "true", "Expected a float value, but got a Boolean: true"),
        ("boolean", "123", "Expected a boolean value, but got a Integer: 123"),
        ("boolean", "\"abc\"", "Unable to make boolean from 'abc'"),
        ("decimal", "true", "Value 'true' is not a valid representation of a decimal value"),
        ("varint", "\"\"", "Value '' is not a valid representation of a varint value"),
        (
            "varint",
            "123123.123",
            "Value '123123.123' is not a valid representation of a varint value",
        ),
        ("date", "123", "Expected a string representation of a date value, but got a Integer: 123"),
        (
            "timestamp",
            "123.456",
            "Expected a long or a datestring representation of a timestamp value, but got a \
             Double: 123.456",
        ),
        ("uuid", "{}", "Expected a string representation of a uuid, but got a LinkedHashMap: {}"),
        (
            "blob",
            "\"123\"",
            "Value '123' is not a valid blob representation: String representation of blob is \
             missing 0x prefix: 123",
        ),
        (
            "blob",
            "\"0x123\"",
            "Value '0x123' is not a valid blob representation: cannot parse '123' as hex bytes",
        ),
    ];
    for (of_type, json, text) in natives {
        assert_eq!(json_refusal(&native(of_type), json), text);
    }
    let pair = tuple_of(&["int", "ascii"]);
    for (of_type, json, text) in [
        (list(native("int")), "123", "Expected a list, but got a Integer: 123"),
        (list(native("int")), "[null]", "Invalid null element in list"),
        (list(native("int")), "[\"abc\"]", "Unable to make int from 'abc'"),
        (
            set(native("int")),
            "{}",
            "Expected a list (representing a set), but got a LinkedHashMap: {}",
        ),
        (map(native("int"), native("int")), r#"{"1": null}"#, "Invalid null value in map"),
        (map(native("int"), native("int")), "\"\\\"a\\\"\"", "Expected a map, but got a String: a"),
        (pair.clone(), "[1, \"a\", 2]", "Tuple contains extra items (expected 2): [1, \"a\", 2]"),
        (pair, "[1]", "Tuple is missing items (expected 2): [1]"),
        (user(), r#"{"foo": 1}"#, "Unknown field 'foo' in value of user defined type Address"),
    ] {
        assert_eq!(json_refusal(&of_type, json), text);
    }
    for json in ["", "[1", "nul", "1 2", "NaN", "\u{38e}"] {
        let text = json_refusal(&list(native("int")), json);
        let known = format!("Could not decode JSON string '{json}'");
        assert!(text.starts_with(&known), "{text}");
    }
}

#[test]
fn documents_name_columns() {
    let json = r#"{"K": 0, "\"Foo\"": [1, 2], "v": null}"#;
    let found: Vec<_> = document(json).unwrap().into_iter().collect();
    let expected = [("Foo", "[1, 2]"), ("k", "0"), ("v", "null")];
    assert_eq!(found, expected.map(|(name, json)| (name.to_owned(), json)));
    let refusal = |json: &str| document(json).unwrap_err().to_string();
    assert_eq!(refusal("null"), "Got null for INSERT JSON values");
    assert!(refusal("12.34").starts_with("Could not decode JSON string as a map: "));
    assert!(refusal("\"a\"").ends_with(". (String was: \"a\")"));
}
