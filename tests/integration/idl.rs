//! Holds the tables of the server's macros against `cassandra.thrift`.

use std::collections::BTreeMap;

use alexandra::config::settings::Release;
use alexandra::thrift::METHODS;
use alexandra::thrift::idl::{ConsistencyLevel, Exception, STRUCTS, VERSION};
use alexandra::thrift::schema::{Field, Kind, Requiredness};

/// A field as text: `1: required list<Column> columns`.
type FieldLine = String;

/// Declarations of the IDL, as text.
#[derive(Debug, Default, PartialEq, Eq)]
struct Idl {
    constants: BTreeMap<String, String>,
    enums: BTreeMap<String, Vec<(String, i32)>>,
    structs: BTreeMap<String, Vec<FieldLine>>,
    exceptions: BTreeMap<String, Vec<FieldLine>>,
    methods: BTreeMap<String, MethodLines>,
}

#[derive(Debug, PartialEq, Eq)]
struct MethodLines {
    result: String,
    args: Vec<FieldLine>,
    /// Number and exception.
    throws: Vec<String>,
}

/// Reads the part of the IDL language that the file uses.
struct Parser<'a> {
    tokens: std::iter::Peekable<std::vec::IntoIter<&'a str>>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self { tokens: tokens_of(text).into_iter().peekable() }
    }

    fn next(&mut self) -> &'a str {
        self.tokens.next().expect("the file goes on")
    }

    fn expect(&mut self, token: &str) {
        assert_eq!(self.next(), token);
    }

    fn accept(&mut self, token: &str) -> bool {
        self.tokens.next_if(|next| *next == token).is_some()
    }

    fn idl(mut self) -> Idl {
        let mut idl = Idl::default();
        while let Some(word) = self.tokens.next() {
            match word {
                "namespace" => {
                    let (_language, _name) = (self.next(), self.type_name());
                }
                "const" => {
                    self.expect("string");
                    let name = self.next().to_owned();
                    self.expect("=");
                    idl.constants.insert(name, self.next().trim_matches('"').to_owned());
                }
                "enum" => {
                    let name = self.next().to_owned();
                    idl.enums.insert(name, self.numbers());
                }
                "struct" | "exception" => {
                    let name = self.next().to_owned();
                    self.expect("{");
                    let fields = self.fields("}");
                    let kind =
                        if word == "struct" { &mut idl.structs } else { &mut idl.exceptions };
                    kind.insert(name, fields);
                }
                "service" => {
                    self.expect("Cassandra");
                    self.expect("{");
                    while !self.accept("}") {
                        let (name, method) = self.method();
                        assert!(idl.methods.insert(name, method).is_none());
                    }
                }
                other => panic!("unexpected {other}"),
            }
        }
        idl
    }

    fn numbers(&mut self) -> Vec<(String, i32)> {
        self.expect("{");
        let mut values = vec![];
        while !self.accept("}") {
            let name = self.next().to_owned();
            self.expect("=");
            values.push((name, self.next().parse().expect("a number")));
            self.accept(",");
        }
        values
    }

    fn fields(&mut self, end: &str) -> Vec<FieldLine> {
        let mut fields = vec![];
        while !self.accept(end) {
            let id = self.next();
            self.expect(":");
            let word = ["required ", "optional "].into_iter().find(|w| self.accept(w.trim_end()));
            let declared = format!("{} {}", self.type_name(), self.next());
            let default =
                if self.accept("=") { format!(" = {}", self.next()) } else { String::new() };
            let line = format!("{id}: {}{declared}{default}", word.unwrap_or_default());
            fields.push(line);
            self.accept(",");
        }
        fields
    }

    fn type_name(&mut self) -> String {
        let mut name = self.next().to_owned();
        if self.accept("<") {
            name += "<";
            loop {
                name += &self.type_name();
                if self.accept(">") {
                    return name + ">";
                }
                self.expect(",");
                name += ",";
            }
        }
        name
    }

    fn method(&mut self) -> (String, MethodLines) {
        let result = self.type_name();
        let name = self.next().to_owned();
        self.expect("(");
        let args = self.fields(")");
        let mut throws = vec![];
        if self.accept("throws") {
            self.expect("(");
            // The names of the exceptions' fields never travel.
            throws = self.fields(")").iter().map(|f| without_last_word(f).to_owned()).collect();
        }
        self.accept(",");
        (name, MethodLines { result, args, throws })
    }
}

fn without_last_word(line: &str) -> &str {
    line.rsplit_once(' ').expect("a field has a name").0
}

fn tokens_of(text: &str) -> Vec<&str> {
    let mut tokens = vec![];
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '#' => {
                rest = rest.split_once('\n').map_or("", |(_, after)| after);
                continue;
            }
            '/' => {
                rest = rest.split_once("*/").expect("the comment ends").1;
                continue;
            }
            '"' => 2 + rest[1..].find('"').expect("the string ends"),
            c if c.is_alphanumeric() || c == '_' => rest
                .find(|c: char| !c.is_alphanumeric() && c != '_' && c != '.')
                .unwrap_or(rest.len()),
            _ => 1,
        };
        let (token, after) = rest.split_at(length);
        if !token.trim().is_empty() {
            tokens.push(token);
        }
        rest = after;
    }
    tokens
}

fn kind_name(kind: Kind) -> String {
    match kind {
        Kind::Void => "void".into(),
        Kind::Bool => "bool".into(),
        Kind::I32 => "i32".into(),
        Kind::I64 => "i64".into(),
        Kind::String => "string".into(),
        Kind::Binary => "binary".into(),
        Kind::Enum(name) | Kind::Struct(name) => name.into(),
        Kind::List(element) => format!("list<{}>", kind_name(*element)),
        Kind::Set(element) => format!("set<{}>", kind_name(*element)),
        Kind::Map(key, value) => format!("map<{},{}>", kind_name(*key), kind_name(*value)),
    }
}

fn lines(fields: &[Field]) -> Vec<FieldLine> {
    let line = |field: &Field| {
        let word = match field.requiredness {
            Requiredness::Required => "required ",
            Requiredness::Optional => "optional ",
            Requiredness::Default => "",
        };
        let default = match field.default {
            None => String::new(),
            // Rust and the IDL spell some values differently.
            Some("false") => " = 0".into(),
            Some("ConsistencyLevel::One") => " = ConsistencyLevel.ONE".into(),
            Some(other) => format!(" = {other}"),
        };
        format!("{}: {word}{} {}{default}", field.id, kind_name(field.kind), field.name)
    };
    fields.iter().map(line).collect()
}

/// Declarations of the server's tables for 0.6.
fn tables() -> Idl {
    let consistency_level = ConsistencyLevel::SCHEMA;
    let values = consistency_level.values.iter().map(|(name, n)| ((*name).to_owned(), *n));
    let methods = METHODS.iter().filter(|method| method.versions.1 == Release::V06);
    Idl {
        constants: [("VERSION".to_owned(), VERSION.to_owned())].into(),
        enums: [(consistency_level.name.to_owned(), values.collect())].into(),
        structs: STRUCTS.iter().map(|s| (s.name.to_owned(), lines(s.fields))).collect(),
        exceptions: Exception::ALL
            .iter()
            .map(|e| (e.schema().name.to_owned(), lines(e.schema().fields)))
            .collect(),
        methods: methods
            .map(|method| {
                assert_eq!(method.args.name, format!("{}_args", method.name));
                let throws = method
                    .throws
                    .iter()
                    .map(|t| format!("{}: {}", t.id, t.exception.schema().name));
                let result = kind_name(method.result);
                let args = lines(method.args.fields);
                (method.name.to_owned(), MethodLines { result, args, throws: throws.collect() })
            })
            .collect(),
    }
}

#[test]
fn the_tables_of_the_server_are_those_of_the_idl() {
    let idl = Parser::new(include_str!("../../cassandra.thrift")).idl();
    let tables = tables();
    assert_eq!(idl.constants, tables.constants);
    assert_eq!(idl.enums, tables.enums);
    assert_eq!(idl.exceptions, tables.exceptions);
    for (name, fields) in &idl.structs {
        assert_eq!(Some(fields), tables.structs.get(name), "struct {name}");
    }
    for (name, method) in &idl.methods {
        assert_eq!(Some(method), tables.methods.get(name), "method {name}");
    }
    assert_eq!(idl, tables, "nothing is only in the tables");
    assert_eq!((idl.structs.len(), idl.methods.len()), (13, 21));
}

#[test]
fn get_key_range_is_the_only_method_that_0_6_lost() {
    let lost = METHODS.iter().filter(|method| method.versions.1 < Release::V06);
    assert_eq!(lost.map(|method| method.name).collect::<Vec<_>>(), ["get_key_range"]);
}

#[test]
fn the_parser_sees_a_changed_declaration() {
    let text = include_str!("../../cassandra.thrift");
    let changes = [
        ("3: required i64 timestamp", "3: required i32 timestamp"),
        ("5: required i32 count = 100", "5: required i32 count"),
        ("4: optional binary super_column", "2: optional binary super_column"),
        ("5: ConsistencyLevel consistency", "5: required ConsistencyLevel consistency"),
        ("DCQUORUM = 3", "DCQUORUM = 4"),
        ("3: UnavailableException ue, 4", "2: UnavailableException ue, 4"),
        ("set<string>", "list<string>"),
    ];
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        assert_ne!(Parser::new(&text.replace(from, to)).idl(), tables(), "{to}");
    }
}
