mod refusals;

use super::super::ast::{
    AlterTable, AlterType, Arithmetic, Assigned, BatchKind, Condition, ConstantKind, CreateTable,
    Delete, Insert, InsertValues, Modification, Object, Operator, Parsed, Property, QualifiedName,
    Relation, SchemaStatement, Select, Selector, Statement, Subject, Target, TargetPart, Term,
    TypeName, Update,
};
use super::{MAX_DEPTH, memory, parse, without_constants};
use proptest::prelude::*;

/// Statements of every kind.
const STATEMENTS: &[&str] = &[
    "SELECT * FROM ks.t",
    "SELECT JSON DISTINCT k, \"S\" AS s FROM t PER PARTITION LIMIT 2 LIMIT :n ALLOW FILTERING;",
    "SELECT u.f.g, count(*), count(1), count(v), writetime(v), ttl(v), cast(v AS text), \
     ks.f(v, 1, 'x'), token(k), (int)?, -v + 2 * (w - 1) FROM t",
    "SELECT v FROM t WHERE k = 1 AND c IN (1, ?) AND d IN ? AND e IN () AND m['a'] = 2 \
     AND l CONTAINS 3 AND m CONTAINS KEY 'b' AND s LIKE 'x%' AND v IS NOT NULL",
    "SELECT v FROM t WHERE (a, b) = (1, 2) AND (a, b) IN ((1, 2), ?) AND (a) > ? \
     AND token(k, l) > token(1, 2) AND (v != 3) GROUP BY k, c ORDER BY c DESC, d ASC, e",
    "INSERT INTO t (k, v) VALUES ('it''s', $$it's$$) IF NOT EXISTS USING TTL 5 AND TIMESTAMP 6",
    "INSERT INTO t (k, v) VALUES (:k, :\"V\") USING TIMESTAMP ? IF NOT EXISTS",
    "INSERT INTO t JSON '{}' DEFAULT UNSET",
    "INSERT INTO t (a, b, c, d) \
     VALUES ([1, -2.5e3], {'a', 'b'}, {1: now(), 2: null}, {f: (1, {})})",
    "INSERT INTO t (a, b, c, d, e, f) VALUES (0xCAFE, 1h30m, -P1Y2M, NaN, -Infinity, \
     550e8400-e29b-41d4-a716-446655440000)",
    "UPDATE t USING TTL 1 SET a = 1, b = b + {1}, c = [1] + c, d = d - [2], e += 1, f -= 2, \
     m['k'] = 'v', u.x = 3, n = n -1 WHERE k = 1 IF EXISTS",
    "UPDATE t SET a = 1 WHERE k = 1 \
     IF a = 1 AND m['x'] != 2 AND u.f >= 3 AND b IN (4) AND l[0] IN ?",
    "DELETE a, m['k'], u.f FROM t USING TIMESTAMP 1 WHERE k = 1 AND c > 2 IF a < 3",
    "BEGIN UNLOGGED BATCH USING TIMESTAMP 1 INSERT INTO t (k) VALUES (1); UPDATE t SET v = 2 \
     WHERE k = 1 DELETE FROM t WHERE k = 3 IF EXISTS; APPLY BATCH",
    "BEGIN COUNTER BATCH APPLY BATCH;",
    "USE \"Ks\"",
    "TRUNCATE TABLE ks.t",
    "CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {'class': 'SimpleStrategy', \
     'replication_factor': 1} AND durable_writes = true",
    "ALTER SCHEMA ks WITH durable_writes = false",
    "DROP KEYSPACE IF EXISTS ks",
    "CREATE TABLE IF NOT EXISTS ks.t \
     (k int, \"C\" map<text, frozen<list<ks.u>>>, s tuple<int, 'X'> \
     STATIC, PRIMARY KEY ((k, l), c, d),) WITH COMPACT STORAGE AND CLUSTERING ORDER BY (c DESC, \
     d ASC) AND comment = 'x' AND caching = {} AND gc_grace_seconds = 5",
    "ALTER TABLE t ADD (a int static, b set<int>)",
    "ALTER TABLE t DROP (a, b) USING TIMESTAMP 5",
    "ALTER TABLE t DROP COMPACT STORAGE",
    "ALTER COLUMNFAMILY t ALTER a TYPE blob",
    "ALTER TABLE t RENAME a TO b AND c TO d",
    "ALTER TABLE t WITH comment = 'x'",
    "DROP TABLE IF EXISTS ks.t",
    "CREATE TYPE IF NOT EXISTS ks.u (a int, b list<text>)",
    "ALTER TYPE u ADD c int",
    "ALTER TYPE u RENAME a TO b",
    "DROP TYPE u",
    "CREATE CUSTOM INDEX i ON t (v) USING 'x'",
];

fn parsed(text: &str) -> Parsed {
    parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn error(text: &str) -> String {
    match parse(text) {
        Ok(parsed) => panic!("{text} is {parsed:?}"),
        Err(error) => error.to_string(),
    }
}

fn select(text: &str) -> Select {
    match parsed(text).statement {
        Statement::Select(select) => select,
        other => panic!("{other:?}"),
    }
}

fn insert(text: &str) -> Insert {
    match parsed(text).statement {
        Statement::Modification(Modification::Insert(insert)) => insert,
        other => panic!("{other:?}"),
    }
}

fn update(text: &str) -> Update {
    match parsed(text).statement {
        Statement::Modification(Modification::Update(update)) => update,
        other => panic!("{other:?}"),
    }
}

fn delete(text: &str) -> Delete {
    match parsed(text).statement {
        Statement::Modification(Modification::Delete(delete)) => delete,
        other => panic!("{other:?}"),
    }
}

fn schema(text: &str) -> SchemaStatement {
    match parsed(text).statement {
        Statement::Schema(schema) => schema,
        other => panic!("{other:?}"),
    }
}

fn create_table(text: &str) -> CreateTable {
    match schema(text) {
        SchemaStatement::CreateTable(table) => table,
        other => panic!("{other:?}"),
    }
}

fn alter_table(change: &str) -> AlterTable {
    match schema(&format!("ALTER TABLE t {change}")) {
        SchemaStatement::AlterTable(_, change) => change,
        other => panic!("{other:?}"),
    }
}

fn term(text: &str) -> Term {
    match insert(&format!("INSERT INTO t (a) VALUES ({text})")).values {
        InsertValues::Columns(_, mut values) => values.remove(0),
        other @ InsertValues::Json { .. } => panic!("{other:?}"),
    }
}

fn selector(text: &str) -> Selector {
    select(&format!("SELECT {text} FROM t")).items.unwrap().remove(0).selector
}

fn relation(text: &str) -> Relation {
    select(&format!("SELECT * FROM t WHERE {text}")).relations.remove(0)
}

fn of_type(text: &str) -> TypeName {
    create_table(&format!("CREATE TABLE t (a {text})")).columns.remove(0).of_type
}

fn texts(names: &[&str]) -> Vec<String> {
    names.iter().map(|it| (*it).to_owned()).collect()
}

fn here(name: &str) -> QualifiedName {
    QualifiedName { keyspace: None, name: name.to_owned() }
}

fn integer(text: &str) -> Term {
    Term::Constant(ConstantKind::Integer, text.to_owned())
}

fn string(text: &str) -> Term {
    Term::Constant(ConstantKind::String, text.to_owned())
}

fn column(name: &str) -> Selector {
    Selector::Column(name.to_owned())
}

fn named(name: &str) -> TypeName {
    TypeName::Named(None, name.to_owned())
}

#[test]
fn statements_of_every_kind_parse() {
    for text in STATEMENTS {
        parsed(text);
    }
}

#[test]
fn names_fold_to_lower_case_unless_quoted() {
    let table = select("SELECT * FROM Ks.\"My \"\"Table\"\"\"").table;
    assert_eq!(table.keyspace.as_deref(), Some("ks"));
    assert_eq!(table.name, "My \"Table\"");
}

#[test]
fn unreserved_keywords_are_names() {
    for name in [
        "key",
        "as",
        "static",
        "type",
        "timestamp",
        "ttl",
        "values",
        "filtering",
        "count",
        "contains",
        "json",
        "writetime",
        "distinct",
        "cast",
        "int",
        "exists",
        "list",
        "per",
        "group",
    ] {
        let text = format!(
            "SELECT {name}, {name} AS {name} FROM {name}.{name} WHERE {name} = 1 ORDER BY {name}"
        );
        let select = select(&text);
        assert_eq!(select.items.unwrap()[0].selector, column(name), "{text}");
        assert_eq!(select.table.name, name);
        assert_eq!(
            update(&format!("UPDATE t SET {name} = 1 WHERE k = 1 IF {name} = 2")).condition,
            Some(Condition::Relations(vec![relation(&format!("{name} = 2"))]))
        );
        create_table(&format!("CREATE TABLE {name} ({name} int PRIMARY KEY)"));
    }
}

#[test]
fn reserved_keywords_are_names_only_in_quotes() {
    for name in ["select", "table", "SET", "token", "unset", "nan", "true", "null"] {
        assert!(error(&format!("SELECT * FROM {name}")).contains("no viable alternative"));
        assert_eq!(select(&format!("SELECT * FROM \"{name}\"")).table.name, name);
    }
}

#[test]
fn only_columns_of_rows_may_have_an_empty_name() {
    assert_eq!(selector("\"\""), column(""));
    assert_eq!(error("CREATE TYPE \"\" (a int)"), "line 1:12 no viable alternative at input ''");
    error("CREATE TYPE u (\"\" int)");
    error("ALTER TYPE u RENAME a TO \"\"");
    error("CREATE TABLE t (\"\" int PRIMARY KEY)");
}

#[test]
fn constants_have_a_kind_by_their_form() {
    use ConstantKind::{Boolean, Duration, Float, Hex, Integer, String, Uuid};
    for (text, kind, value) in [
        ("'it''s'", String, "it's"),
        ("''", String, ""),
        ("$$it's $1$$", String, "it's $1"),
        ("-12", Integer, "-12"),
        ("1.", Float, "1."),
        ("-1.5E-3", Float, "-1.5E-3"),
        ("1e10", Float, "1e10"),
        ("NaN", Float, "NaN"),
        ("-infinity", Float, "-infinity"),
        ("True", Boolean, "True"),
        ("0xCAfe", Hex, "0xCAfe"),
        ("0x", Hex, "0x"),
        ("550e8400-e29b-41d4-a716-446655440000", Uuid, "550e8400-e29b-41d4-a716-446655440000"),
        ("abcdef12-e29b-41d4-a716-446655440000", Uuid, "abcdef12-e29b-41d4-a716-446655440000"),
        ("1h30m", Duration, "1h30m"),
        ("-1Y2mO3w", Duration, "-1Y2mO3w"),
        ("1ms2us3\u{b5}s4ns", Duration, "1ms2us3\u{b5}s4ns"),
        ("P1Y2M3DT4H5M6S", Duration, "P1Y2M3DT4H5M6S"),
        ("-PT20M", Duration, "-PT20M"),
        ("P2W", Duration, "P2W"),
        ("P0001-02-03T04:05:06", Duration, "P0001-02-03T04:05:06"),
    ] {
        assert_eq!(term(text), Term::Constant(kind, value.to_owned()), "{text}");
    }
}

#[test]
fn what_is_nearly_a_constant_is_refused() {
    for text in [
        "0.5y",
        "1y-2mo",
        "2m12.5s",
        "y",
        "P2Y3W",
        "P0002-00-20",
        "P1y2D",
        "p1Y2D",
        "1abc",
        "P0001-03-00t02:10:00",
        "2012-11-07",
        "550e8400-e29b-41d4-a716-44665544000",
        "foo",
    ] {
        error(&format!("INSERT INTO t (a) VALUES ({text})"));
    }
    assert_eq!(
        error("INSERT INTO t (a) VALUES (1y-2mo)"),
        "line 1:28 mismatched input '-2mo' expecting ')'"
    );
}

#[test]
fn braces_are_a_set_a_map_or_fields() {
    assert_eq!(term("{}"), Term::Set(vec![]));
    assert_eq!(term("{1, 2}"), Term::Set(vec![integer("1"), integer("2")]));
    assert_eq!(term("{'a':1}"), Term::Map(vec![(string("a"), integer("1"))]));
    assert_eq!(
        term("{key: 1, \"B\": {}}"),
        Term::Fields(vec![("key".to_owned(), integer("1")), ("B".to_owned(), Term::Set(vec![]))])
    );
    assert_eq!(
        term("{now(): :a}"),
        Term::Map(vec![(Term::Call(Box::new(here("now")), vec![]), Term::Marker(0))])
    );
    error("INSERT INTO t (a) VALUES ({1: 2, 3})");
    error("INSERT INTO t (a) VALUES ({a: 2, 3})");
}

#[test]
fn parentheses_hold_a_tuple_or_the_type_of_a_term() {
    assert_eq!(term("(1, 'a')"), Term::Tuple(vec![integer("1"), string("a")]));
    assert_eq!(term("(int)1"), Term::Hint(Box::new(named("int")), Box::new(integer("1"))));
    let list = TypeName::List(Box::new(named("int")));
    assert_eq!(term("(list<int>)[]"), Term::Hint(Box::new(list), Box::new(Term::List(vec![]))));
    let user_type = TypeName::Named(Some("ks".to_owned()), "u".to_owned());
    assert_eq!(term("(ks.u)?"), Term::Hint(Box::new(user_type), Box::new(Term::Marker(0))));
    let call = QualifiedName { keyspace: Some("ks".to_owned()), name: "f".to_owned() };
    assert_eq!(term("(ks.f())"), Term::Tuple(vec![Term::Call(Box::new(call), vec![])]));
    error("INSERT INTO t (a) VALUES (())");
}

#[test]
fn products_bind_closer_than_sums() {
    let join = |left, operator, right| Term::Arithmetic(Box::new(left), operator, Box::new(right));
    let product = join(integer("2"), Arithmetic::Multiply, Term::Marker(0));
    let sum = join(integer("1"), Arithmetic::Add, product);
    assert_eq!(term("1 + 2 * ? - -3"), join(sum, Arithmetic::Subtract, integer("-3")));
    assert_eq!(
        term("- f(1)"),
        Term::Negation(Box::new(Term::Call(Box::new(here("f")), vec![integer("1")])))
    );
}

#[test]
fn markers_are_numbered_in_the_order_of_the_text() {
    let parsed = parsed(
        "UPDATE t USING TTL ? SET a = :b, m[?] = :\"B\" WHERE k IN ? AND (c, d) > :b IF a = ?",
    );
    let names = [None, Some("b"), None, Some("B"), None, Some("b"), None];
    assert_eq!(parsed.markers, names.map(|it| it.map(str::to_owned)));
    let Statement::Modification(Modification::Update(update)) = parsed.statement else { panic!() };
    assert_eq!(update.using.ttl, Some(Term::Marker(0)));
    assert_eq!(
        update.assignments[1],
        (
            Target { column: "m".to_owned(), part: Some(TargetPart::Element(Term::Marker(2))) },
            Assigned::Value(Term::Marker(3))
        )
    );
    assert_eq!(update.relations[1].object, Object::Term(Term::Marker(5)));
}

#[test]
fn markers_have_a_limit() {
    let list = |count: usize| format!("INSERT INTO t (a) VALUES ([{}?])", "?,".repeat(count - 1));
    assert_eq!(parsed(&list(65_535)).markers.len(), 65_535);
    assert!(error(&list(65_536)).contains("too many markers"));
}

#[test]
fn selectors_have_the_text_of_their_column() {
    for (text, shown) in [
        ("max( f(a , \"B\") )", "system.max(system.f(a, B))"),
        ("cast(a  as TEXT)", "cast(a as text)"),
        ("u . f /* b */", "u.f"),
        ("(set<int>){1}", "(set<int>){1}"),
    ] {
        assert_eq!(selector(text).to_string(), shown);
    }
}

#[test]
fn selectors_are_columns_functions_and_fields() {
    let one = || Selector::Term(integer("1"));
    assert_eq!(selector("count(*)"), Selector::CountRows);
    assert_eq!(selector("COUNT(1)"), Selector::CountRows);
    assert_eq!(selector("count(v)"), Selector::Call(Box::new(here("count")), vec![column("v")]));
    assert_eq!(selector("WriteTime(v)"), Selector::WriteTime("v".to_owned()));
    assert_eq!(selector("ttl(v)"), Selector::Ttl("v".to_owned()));
    assert_eq!(
        selector("cast(v as text)"),
        Selector::Cast(Box::new(column("v")), Box::new(named("text")))
    );
    assert_eq!(selector("f(v, 1)"), Selector::Call(Box::new(here("f")), vec![column("v"), one()]));
    assert_eq!(
        selector("u.f.g"),
        Selector::Field(
            Box::new(Selector::Field(Box::new(column("u")), "f".to_owned())),
            "g".to_owned()
        )
    );
    assert_eq!(
        selector("-(a + 1)"),
        Selector::Negation(Box::new(Selector::Arithmetic(
            Box::new(column("a")),
            Arithmetic::Add,
            Box::new(one())
        )))
    );
    error("SELECT sum(*) FROM t");
    error("SELECT cast(a as list<int>) FROM t");
    error("SELECT key(a) FROM t");
}

#[test]
fn json_and_distinct_may_be_columns() {
    let json = select("SELECT JSON json, distinct FROM t");
    assert!(json.is_json && !json.is_distinct);
    assert_eq!(json.items.unwrap().len(), 2);
    let distinct = select("SELECT DISTINCT json, k FROM t");
    assert!(distinct.is_distinct && !distinct.is_json);
    assert!(select("SELECT JSON as FROM t").is_json);
    assert!(!select("SELECT json AS x FROM t").is_json);
    assert_eq!(select("SELECT JSON DISTINCT * FROM t").items, None);
}

#[test]
fn relations_have_a_subject_an_operator_and_an_object() {
    let a = || Subject::Column("a".to_owned());
    let columns = |names: &[&str]| Subject::Columns(texts(names));
    let one = || Object::Term(integer("1"));
    let marker = || Object::Term(Term::Marker(0));
    let pair = || Term::Tuple(vec![integer("1"), integer("2")]);
    for (text, subject, operator, object) in [
        ("a = 1", a(), Operator::Equal, one()),
        ("a<=1", a(), Operator::LessOrEqual, one()),
        ("a>-1", a(), Operator::Greater, Object::Term(integer("-1"))),
        ("((a != 1))", a(), Operator::NotEqual, one()),
        ("a IN (1)", a(), Operator::In, Object::List(vec![integer("1")])),
        ("a IN ()", a(), Operator::In, Object::List(vec![])),
        ("a IN ?", a(), Operator::In, marker()),
        ("a CONTAINS 1", a(), Operator::Contains, one()),
        ("a CONTAINS KEY 1", a(), Operator::ContainsKey, one()),
        ("a LIKE 'x%'", a(), Operator::Like, Object::Term(string("x%"))),
        ("a IS NOT NULL", a(), Operator::IsNotNull, Object::Term(Term::Null)),
        ("a['k'] = 1", Subject::Element("a".to_owned(), string("k")), Operator::Equal, one()),
        ("(a, b) = (1, 2)", columns(&["a", "b"]), Operator::Equal, Object::Term(pair())),
        ("(a, b) >= ?", columns(&["a", "b"]), Operator::GreaterOrEqual, marker()),
        ("(a) IN ((1, 2))", columns(&["a"]), Operator::In, Object::List(vec![pair()])),
        ("(a, b) IN (?)", columns(&["a", "b"]), Operator::In, Object::List(vec![Term::Marker(0)])),
        ("(a, b) IN ?", columns(&["a", "b"]), Operator::In, marker()),
        ("(a, b) IN ()", columns(&["a", "b"]), Operator::In, Object::List(vec![])),
        ("token(a, b) < 1", Subject::Token(texts(&["a", "b"])), Operator::Less, one()),
    ] {
        assert_eq!(relation(text), Relation { subject, operator, object }, "{text}");
    }
    for text in [
        "a IN 1",
        "a IN null",
        "a NOT IN (1)",
        "(a, b) = 1",
        "() = ()",
        "(a, b) > ()",
        "(a = 1 AND b = 2)",
        "a['k'] IN (1)",
        "token(a) IN (1)",
        "a = b",
    ] {
        error(&format!("SELECT * FROM t WHERE {text}"));
    }
}

#[test]
fn conditions_take_elements_and_fields() {
    let condition =
        |text: &str| delete(&format!("DELETE FROM t WHERE k = 1 IF {text}")).condition.unwrap();
    let field = Subject::Field("u".to_owned(), "f".to_owned());
    assert_eq!(
        condition("u.f IN (1) AND m[1] = ? AND a CONTAINS 2"),
        Condition::Relations(vec![
            Relation {
                subject: field,
                operator: Operator::In,
                object: Object::List(vec![integer("1")])
            },
            relation("m[1] = ?"),
            relation("a CONTAINS 2"),
        ])
    );
    assert_eq!(condition("EXISTS"), Condition::Exists);
    assert_eq!(condition("exists = 1"), Condition::Relations(vec![relation("exists = 1")]));
    for text in ["u.f CONTAINS 1", "a NOT IN (1)", "NOT EXISTS", "(a, b) = (1, 2)", "a IN 3"] {
        error(&format!("DELETE FROM t WHERE k = 1 IF {text}"));
    }
}

#[test]
fn if_not_exists_may_be_on_either_side_of_using() {
    for text in ["IF NOT EXISTS USING TTL 1 AND TTL 2", "USING TTL 2 IF NOT EXISTS"] {
        let insert = insert(&format!("INSERT INTO t (k) VALUES (1) {text}"));
        assert!(insert.if_not_exists);
        assert_eq!(insert.using.ttl, Some(integer("2")));
    }
    error("INSERT INTO t (k) VALUES (1) USING TTL 1 IF NOT EXISTS USING TTL 2");
    error("DELETE FROM t USING TTL 1 WHERE k = 1");
}

#[test]
fn a_json_document_is_a_string_or_a_marker() {
    let json = |text: &str| insert(&format!("INSERT INTO t JSON {text}")).values;
    let document = string("{\"k\": 1}");
    assert_eq!(
        json("'{\"k\": 1}' DEFAULT NULL"),
        InsertValues::Json { document, default_unset: false }
    );
    assert_eq!(
        json(":doc DEFAULT UNSET"),
        InsertValues::Json { document: Term::Marker(0), default_unset: true }
    );
    error("INSERT INTO t JSON");
    error("INSERT INTO t JSON 1");
}

#[test]
fn assignments_say_how_the_value_changes() {
    let assigned =
        |text: &str| update(&format!("UPDATE t SET {text} WHERE k = 1")).assignments.remove(0).1;
    let list = || Term::List(vec![integer("1")]);
    assert_eq!(assigned("a = [1]"), Assigned::Value(list()));
    assert_eq!(assigned("a = a + [1]"), Assigned::Append(list()));
    assert_eq!(assigned("a += [1]"), Assigned::Append(list()));
    assert_eq!(assigned("a = [1] + A"), Assigned::Prepend(list()));
    assert_eq!(assigned("a = a - [1]"), Assigned::Remove(list()));
    assert_eq!(assigned("a -= [1]"), Assigned::Remove(list()));
    assert_eq!(assigned("a = a -1"), Assigned::Append(integer("-1")));
    assert_eq!(assigned("a=a-1"), Assigned::Append(integer("-1")));
    assert_eq!(assigned("a[0] = 1"), Assigned::Value(integer("1")));
    assert_eq!(assigned("a = f(1) + ks.f(2)"), Assigned::Value(term("f(1) + ks.f(2)")));
    error("UPDATE t SET a[0] += 1 WHERE k = 1");
    error("UPDATE t SET a = b WHERE k = 1");
}

#[test]
fn an_assignment_changes_only_its_own_column() {
    for text in ["a = b + 1", "a = b - 1", "a = b -1", "a = [1] + b"] {
        let error = error(&format!("UPDATE t SET {text} WHERE k = 1"));
        assert!(error.contains("Only expressions of the form X = "), "{error}");
    }
}

#[test]
fn assignments_that_cannot_all_hold_are_refused() {
    let set = |text: &str| parse(&format!("UPDATE t SET {text} WHERE k = 1"));
    for text in [
        "m[1] = 2, m[1] = 3",
        "u.f = 1, u.g = 2",
        "a += 1, a -= 2",
        "a = 1, b = 1",
        "a += 1, a[0] = 1",
        "u.f = 1, v.f = 1",
    ] {
        assert!(set(text).is_ok(), "{text}");
    }
    for text in [
        "a = 1, a = 1",
        "a = 1, a += 1",
        "a[0] = 1, a = 1",
        "u.f = 1, u.f = 2",
        "u.f = 1, u = {}",
        "u = {}, u.f = 1",
        "u.f = 1, u += 1",
    ] {
        let error = set(text).unwrap_err();
        assert!(error.message.starts_with("Multiple incompatible setting of column"), "{text}");
    }
}

#[test]
fn batches_hold_modifications_with_or_without_semicolons() {
    let batch = |text: &str| match parsed(text).statement {
        Statement::Batch(batch) => batch,
        other => panic!("{other:?}"),
    };
    let one = batch(
        "BEGIN BATCH USING TIMESTAMP 9 DELETE FROM t WHERE k = 1 IF EXISTS INSERT INTO t JSON ?; \
         UPDATE t SET a = ? WHERE k = 1; APPLY BATCH",
    );
    assert_eq!((one.kind, one.statements.len()), (BatchKind::Logged, 3));
    assert_eq!(one.using.timestamp, Some(integer("9")));
    assert_eq!(batch("BEGIN UNLOGGED BATCH APPLY BATCH").kind, BatchKind::Unlogged);
    assert_eq!(batch("begin counter batch apply batch;").kind, BatchKind::Counter);
    assert_eq!(
        error("BEGIN BATCH SELECT * FROM t APPLY BATCH"),
        "line 1:12 mismatched input 'SELECT' expecting K_APPLY"
    );
    error("BEGIN BATCH INSERT INTO t (k) VALUES (1);; APPLY BATCH");
}

#[test]
fn a_table_has_columns_keys_and_properties() {
    let table = create_table(
        "CREATE TABLE t (a int PRIMARY KEY, b text static, PRIMARY KEY ((a, c), d, e),, \
         PRIMARY KEY (a),) WITH CLUSTERING ORDER BY (d DESC, e ASC) AND compact = 'x' \
         AND COMPACT STORAGE AND x = timestamp AND y = -1.5 AND z = {'a': 1, 'b': true}",
    );
    assert_eq!(table.columns.len(), 2);
    assert!(table.columns[1].is_static && !table.columns[0].is_static);
    assert_eq!(
        table.primary_keys,
        [
            (texts(&["a"]), vec![]),
            (texts(&["a", "c"]), texts(&["d", "e"])),
            (texts(&["a"]), vec![]),
        ]
    );
    assert!(table.is_compact);
    assert_eq!(table.clustering_order, [("d".to_owned(), true), ("e".to_owned(), false)]);
    let map = [("a", "1"), ("b", "true")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let text = |text: &str| Property::Text(text.to_owned());
    let properties = [("compact", text("x")), ("x", text("timestamp")), ("y", text("-1.5"))]
        .into_iter()
        .chain([("z", Property::Map(map.into()))])
        .map(|(name, value)| (name.to_owned(), value));
    assert_eq!(table.properties, properties.collect::<Vec<_>>());
    for text in [
        "CREATE TABLE t ()",
        "CREATE TABLE t (a int PRIMARY KEY static)",
        "CREATE TABLE t (a int) WITH CLUSTERING ORDER BY (a)",
        "CREATE TABLE t (my-col int)",
        "CREATE TABLE t (a int) WITH x",
        "CREATE TABLE t (a int) WITH x:y = 1",
    ] {
        error(text);
    }
}

#[test]
fn types_hold_types() {
    assert_eq!(of_type("Int"), named("int"));
    assert_eq!(of_type("\"Int\""), named("Int"));
    assert_eq!(of_type("'a.B'"), TypeName::Class("a.B".to_owned()));
    assert_eq!(of_type("ks.u"), TypeName::Named(Some("ks".to_owned()), "u".to_owned()));
    assert_eq!(
        of_type("map<text, frozen<set<tuple<int, list<u>>>>>"),
        TypeName::Map(
            Box::new(named("text")),
            Box::new(TypeName::Frozen(Box::new(TypeName::Set(Box::new(TypeName::Tuple(vec![
                named("int"),
                TypeName::List(Box::new(named("u")))
            ]))))))
        )
    );
    assert_eq!(
        error("CREATE TABLE t (a frozen<int>)"),
        "line 1:25 frozen<> is only allowed on collections, tuples, and user-defined types \
         (got int)"
    );
    assert!(error("CREATE TABLE t (a byte)").contains("Invalid (reserved) user type name byte"));
    error("CREATE TYPE int (a int)");
    error("CREATE TABLE t (a map<int>)");
    error("CREATE TABLE t (a vector<float, 3>)");
}

#[test]
fn tables_and_types_change() {
    assert_eq!(
        alter_table("DROP (a, b) USING TIMESTAMP 5"),
        AlterTable::Drop(texts(&["a", "b"]), Some(integer("5")))
    );
    assert_eq!(alter_table("DROP compact"), AlterTable::Drop(texts(&["compact"]), None));
    assert_eq!(alter_table("DROP COMPACT STORAGE"), AlterTable::DropCompactStorage);
    assert_eq!(alter_table("ALTER a TYPE blob"), AlterTable::Type("a".to_owned(), named("blob")));
    let renaming = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    let renamings = vec![renaming("a", "b"), renaming("C", "d")];
    assert_eq!(alter_table("RENAME a TO b AND \"C\" TO d"), AlterTable::Rename(renamings));
    let AlterTable::Add(added) = alter_table("ADD (a int, b set<int> STATIC)") else { panic!() };
    assert_eq!((added.len(), added[1].is_static), (2, true));
    assert_eq!(
        schema("ALTER TYPE ks.u ALTER a TYPE int"),
        SchemaStatement::AlterType(
            QualifiedName { keyspace: Some("ks".to_owned()), name: "u".to_owned() },
            AlterType::Type("a".to_owned(), named("int"))
        )
    );
    error("ALTER TABLE t DROP a USING TIMESTAMP ?");
    error("ALTER TABLE t");
}

#[test]
fn properties_are_constants_that_are_given_once() {
    let keyspace = |properties: &str| error(&format!("CREATE KEYSPACE k WITH {properties}"));
    assert!(keyspace("a = 1 AND a = 2").contains("Multiple definition for property 'a'"));
    assert!(keyspace("r = {'a': 1, 'a': 2}").contains("Multiple definition for property 'a'"));
    assert_eq!(
        keyspace("r = {'size': null}"),
        "line 1:40 Invalid property value: NULL for property: 'size'"
    );
    assert!(keyspace("r = {?: 1}").contains("bind variables are not supported in DDL queries"));
    error("CREATE KEYSPACE k");
}

#[test]
fn constants_and_comments_are_left_out_of_logs() {
    for (text, shown) in [
        (
            "INSERT INTO t (k, \"V\") -- a comment\n VALUES ('it''s', 0xca) USING TTL 7;",
            "INSERT INTO t (k, \"V\") VALUES (?, ?) USING TTL ?;",
        ),
        (
            "SELECT * FROM k.t WHERE a = ? AND b IN (:b, -1.5)",
            "SELECT * FROM k.t WHERE a = ? AND b IN (:b, ?)",
        ),
        ("SELECT 'without an end", "SELECT"),
    ] {
        assert_eq!(without_constants(text), shown);
    }
}
