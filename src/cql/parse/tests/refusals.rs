//! Texts that are no statements: their errors, and limits of depth and length.

use super::*;

#[test]
fn what_is_not_here_is_named() {
    for (text, name) in [
        ("CREATE INDEX ON t (a)", "secondary indexes"),
        ("create custom index i on t (a) using 'x'", "secondary indexes"),
        ("DROP INDEX IF EXISTS i", "secondary indexes"),
        ("CREATE MATERIALIZED VIEW v AS SELECT", "materialized views"),
        ("ALTER MATERIALIZED VIEW v WITH x = 1", "materialized views"),
        ("CREATE OR REPLACE FUNCTION f", "user-defined functions"),
        ("DROP AGGREGATE f", "user-defined aggregates"),
        ("CREATE ROLE r", "roles and permissions"),
        ("ALTER USER u", "roles and permissions"),
        ("LIST ROLES", "roles and permissions"),
        ("GRANT SELECT ON t TO r", "roles and permissions"),
        ("REVOKE r FROM s", "roles and permissions"),
        ("CREATE TRIGGER t ON t USING 'x'", "triggers"),
    ] {
        assert_eq!(parsed(text).statement, Statement::Unsupported(name), "{text}");
    }
    error("CREATE OR REPLACE TABLE t (a int PRIMARY KEY)");
    error("CREATE SERVICE LEVEL s");
}

#[test]
fn errors_say_where_and_what() {
    for (text, message) in [
        ("", "line 1:0 no viable alternative at input '<EOF>'"),
        ("SELEC * FROM t", "line 1:0 no viable alternative at input 'SELEC'"),
        ("SELECT * FORM t", "line 1:9 mismatched input 'FORM' expecting K_FROM"),
        ("SELECT * FROM t foo", "line 1:16 mismatched input 'foo' expecting EOF"),
        ("SELECT * FROM t; USE k", "line 1:17 mismatched input 'USE' expecting EOF"),
        ("SELECT *\n  FROM t\n  WHERE é", "line 3:8 no viable alternative at character 'é'"),
        ("USE 'k'", "line 1:4 no viable alternative at input 'k'"),
        ("USE ?", "line 1:4 Bind variables cannot be used for keyspace names"),
        ("SELECT * FROM ?", "line 1:14 Bind variables cannot be used for table names"),
        ("SELECT * FROM t LIMIT", "line 1:21 no viable alternative at input '<EOF>'"),
        ("SELECT * FROM t LIMIT 1.5", "line 1:22 no viable alternative at input '1.5'"),
        ("CREATE KEYSPACE WITH WITH x = 1", "line 1:16 no viable alternative at input 'WITH'"),
        ("CREATE KEYSPACE k WITH WITH x", "line 1:23 no viable alternative at input 'WITH'"),
        ("INSERT INTO t (a) VALUES ('x", "line 1:26 mismatched character '<EOF>' expecting '''"),
        ("USE \"k", "line 1:4 mismatched character '<EOF>' expecting '\"'"),
        ("USE k /* x", "line 1:6 mismatched character '<EOF>' expecting '*/'"),
    ] {
        assert_eq!(error(text), message, "{text}");
    }
}

#[test]
fn errors_quote_only_the_beginning_of_a_long_token() {
    let error = error(&format!("USE '{}'", "é".repeat(1_000)));
    assert!(error.len() < 200 && error.ends_with("...'"), "{error}");
}

#[test]
fn semicolons_may_end_a_statement() {
    assert_eq!(parsed("USE k;; -- done"), parsed("USE k"));
}

#[test]
fn comments_and_line_ends_are_spaces() {
    for text in STATEMENTS {
        let plain = parsed(text);
        for space in ["\n", "\t\r\n ", " -- it's\n", "// \"\n", "/* * / */"] {
            assert_eq!(parsed(&text.replace(' ', space)), plain, "{text}");
        }
    }
}

#[test]
fn nesting_has_a_limit() {
    let deep = |count: usize, open: &str, inner: &str, close: &str| {
        format!("{}{inner}{}", open.repeat(count), close.repeat(count))
    };
    let statements = |count: usize| {
        let value = |text: String| format!("INSERT INTO t (a) VALUES ({text})");
        [
            value(deep(count, "[", "1", "]")),
            value(deep(count, "(", "1", ")")),
            value(deep(count, "{1:", "1", "}")),
            value(deep(count, "{a:", "1", "}")),
            value(deep(count, "f(", "1", ")")),
            value(deep(count, "(int)", "1", "")),
            value(deep(count, "1 + ", "1", "")),
            value(deep(count, "(1 * ", "1", ")")),
            value(deep(count, "(", "1", " + 1)")),
            format!("SELECT {} FROM t", deep(count, "f(", "a", ")")),
            format!("SELECT {} FROM t", deep(count, "(", "a + 1", ")")),
            format!("SELECT {} FROM t", deep(count, "cast(", "a", " AS int)")),
            format!("SELECT a{} FROM t", ".f".repeat(count)),
            format!("SELECT * FROM t WHERE {}", deep(count, "(", "a = 1", ")")),
            format!("CREATE TABLE t (a {})", deep(count, "list<", "int", ">")),
        ]
    };
    for text in statements(MAX_DEPTH / 4) {
        parsed(&text);
    }
    for text in statements(MAX_DEPTH + 1).into_iter().chain(statements(100_000)) {
        assert!(error(&text).ends_with("nested too deeply"), "{}", &text[..60]);
    }
}

#[test]
fn wide_statements_are_not_deep() {
    let list = format!("INSERT INTO t (a) VALUES ([{}1])", "1 + 2 * 3, ".repeat(10_000));
    let InsertValues::Columns(_, values) = insert(&list).values else { panic!() };
    let Term::List(items) = &values[0] else { panic!() };
    assert_eq!(items.len(), 10_001);
}

/// A statement with some pieces taken out, put in or swapped.
fn damaged() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just(String::new()),
        proptest::sample::select(STATEMENTS).prop_map(str::to_owned),
        "[-+*/%(){}\\[\\]<>=!:;,.?'\"$a1 ]{1,3}",
        "(in|if|and|token|null|set|list<|0x|P1|1e|--|/\\*|\\$\\$) ?",
    ];
    let cut = (any::<proptest::sample::Index>(), 0_usize..4, piece);
    (proptest::sample::select(STATEMENTS), proptest::collection::vec(cut, 1..5)).prop_map(
        |(text, cuts)| {
            let mut chars: Vec<char> = text.chars().collect();
            for (at, length, piece) in cuts {
                let at = at.index(chars.len() + 1);
                let end = chars.len().min(at + length);
                chars.splice(at..end, piece.chars());
            }
            chars.into_iter().collect()
        },
    )
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,80}") {
        let _ = parse(&text);
    }

    #[test]
    fn no_damaged_statement_makes_it_panic(text in damaged()) {
        if let Err(error) = parse(&text) {
            prop_assert!(error.line <= text.matches('\n').count() + 1);
            prop_assert!(error.column <= text.chars().count());
        }
    }

    #[test]
    fn strings_and_names_come_back_as_they_were(text in "\\PC{1,20}") {
        let string = format!("'{}'", text.replace('\'', "''"));
        prop_assert_eq!(term(&string), Term::Constant(ConstantKind::String, text.clone()));
        let name = format!("\"{}\"", text.replace('"', "\"\""));
        prop_assert_eq!(parsed(&format!("USE {name}")).statement, Statement::Use(text));
    }
}

#[test]
fn a_long_value_takes_little_more_than_its_bytes() {
    let length = 8 << 20;
    let one = format!("INSERT INTO t (k, v) VALUES (1, '{}')", "v".repeat(length));
    assert!((length..8 * length).contains(&memory(&one)));
    let many = format!("SELECT v FROM t WHERE k IN ({}1)", "1,".repeat(length / 2));
    assert!(memory(&many) > 100 * length);
}
