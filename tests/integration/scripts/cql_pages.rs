//! Random queries of rows with two clustering columns: pages of any size together have the rows
//! that a model finds.

use super::cql::World;
use fastrand::Rng;
use std::fmt::Write;

/// Queries of each table by default; `ALEXANDRA_CASES` says otherwise.
const QUERIES: u64 = 40;

/// Values of a clustering column lie below.
const VALUES: i64 = 5;

/// Larger than any result.
const ONE_PAGE: i32 = 1000;

/// A table of a partition key and two clustering columns.
struct Table {
    name: &'static str,
    columns: [&'static str; 3],
    /// Whether the second clustering column descends.
    is_mixed: bool,
    /// Literals of the values of the second.
    literals: [&'static str; VALUES as usize],
}

const NUMBERS: [&str; VALUES as usize] = ["0", "1", "2", "3", "4"];

/// Partition, and values of the clustering columns.
type Row = (&'static str, i64, i64);

/// A random restriction with the rows that it leaves.
struct Query {
    text: String,
    rows: Vec<Row>,
}

impl Query {
    fn restrict(&mut self, text: &str, holds: impl Fn(&Row) -> bool) {
        self.text.push_str(if self.text.is_empty() { " WHERE " } else { " AND " });
        self.text.push_str(text);
        self.rows.retain(holds);
    }
}

impl Table {
    fn second(&self, value: i64) -> &'static str {
        self.literals[value as usize]
    }

    fn show(&self, (key, first, second): &Row) -> String {
        format!("'{key}' | {first} | {}", self.second(*second))
    }

    /// Rows in the order of the table.
    fn fill(&self, world: &mut World, rng: &mut Rng) -> Vec<Row> {
        let mut rows = Vec::new();
        for key in ["a", "b", "c"] {
            for first in 0..VALUES {
                for at in 0..VALUES {
                    let second = if self.is_mixed { VALUES - 1 - at } else { at };
                    if rng.u8(..3) > 0 {
                        rows.push((key, first, second));
                    }
                }
            }
        }
        for (key, first, second) in &rows {
            let [k, c, d] = self.columns;
            let second = self.second(*second);
            let values = format!("('{key}', {first}, {second}, 0x00)");
            let insert =
                format!("INSERT INTO {} ({k}, {c}, {d}, value) VALUES {values}", self.name);
            assert_eq!(world.query(&insert, None), "");
        }
        rows
    }

    /// Restricts both columns together.
    fn restrict_pairs(&self, query: &mut Query, rng: &mut Rng) {
        let [_, c, d] = self.columns;
        let (first, second) = (rng.i64(0..VALUES), rng.i64(0..VALUES));
        let (operator, allows) = operator(rng);
        let text = format!("({c}, {d}) {operator} ({first}, {})", self.second(second));
        query.restrict(&text, |row| allows((row.1, row.2).cmp(&(first, second))));
    }

    /// Restricts one column after the other.
    fn restrict_each(&self, query: &mut Query, rng: &mut Rng) {
        let [_, c, d] = self.columns;
        let list = some_values(rng);
        match rng.u8(..4) {
            0 => {
                let (operator, allows) = operator(rng);
                let bound = list[0];
                query.restrict(&format!("{c} {operator} {bound}"), |row| allows(row.1.cmp(&bound)));
                return;
            }
            1 => query.restrict(&format!("{c} = {}", list[0]), |row| row.1 == list[0]),
            _ => {
                let text: Vec<String> = list.iter().map(i64::to_string).collect();
                let text = format!("{c} IN ({})", text.join(", "));
                query.restrict(&text, |row| list.contains(&row.1));
            }
        }
        let list = some_values(rng);
        match rng.u8(..3) {
            0 => {}
            1 => {
                let (operator, allows) = operator(rng);
                let text = format!("{d} {operator} {}", self.second(list[0]));
                query.restrict(&text, |row| allows(row.2.cmp(&list[0])));
            }
            _ => {
                let text: Vec<&str> = list.iter().map(|it| self.second(*it)).collect();
                let text = format!("{d} IN ({})", text.join(", "));
                query.restrict(&text, |row| list.contains(&row.2));
            }
        }
    }

    /// A statement, and the rows of its result.
    fn query(&self, rows: &[Row], rng: &mut Rng) -> (String, Vec<String>) {
        let [k, c, d] = self.columns;
        let mut query = Query { text: String::new(), rows: rows.to_vec() };
        let is_scan = rng.u8(..3) == 0;
        if !is_scan {
            let key = rng.choice(["a", "b", "c"]).unwrap();
            query.restrict(&format!("{k} = '{key}'"), |row| row.0 == key);
        }
        match rng.u8(..4) {
            0 => self.restrict_pairs(&mut query, rng),
            _ => self.restrict_each(&mut query, rng),
        }
        let Query { mut text, mut rows } = query;
        if !is_scan && rng.bool() {
            write!(text, " ORDER BY {c} DESC").unwrap();
            rows.reverse();
        }
        if rng.u8(..3) == 0 {
            let limit = rng.usize(1..5);
            write!(text, " PER PARTITION LIMIT {limit}").unwrap();
            let partitions = rows.chunk_by(|a, b| a.0 == b.0);
            rows = partitions.flat_map(|them| them.iter().take(limit).copied()).collect();
        }
        if rng.u8(..3) == 0 {
            let limit = rng.usize(1..9);
            write!(text, " LIMIT {limit}").unwrap();
            rows.truncate(limit);
        }
        let statement = format!("SELECT {k}, {c}, {d} FROM {}{text} ALLOW FILTERING", self.name);
        (statement, rows.iter().map(|row| self.show(row)).collect())
    }
}

/// A few values without repetition, in any order.
fn some_values(rng: &mut Rng) -> Vec<i64> {
    let count = rng.usize(1..5);
    rng.choose_multiple(0..VALUES, count)
}

/// An operator of a range, and whether it holds for an order.
fn operator(rng: &mut Rng) -> (&'static str, fn(std::cmp::Ordering) -> bool) {
    match rng.u8(..4) {
        0 => ("<", |it| it.is_lt()),
        1 => ("<=", |it| it.is_le()),
        2 => (">", |it| it.is_gt()),
        _ => (">=", |it| it.is_ge()),
    }
}

/// The rows of all pages, of which all but the last are full.
fn pages(world: &mut World, statement: &str, page: i32) -> Vec<String> {
    let answer = world.query(statement, Some(page));
    let pages: Vec<Vec<&str>> =
        answer.split("-- next page\n").map(|it| it.lines().skip(1).collect()).collect();
    let (last, full) = pages.split_last().unwrap();
    assert!(full.iter().all(|it| it.len() == page as usize), "{statement}: {pages:?}");
    assert!(last.len() <= page as usize, "{statement}: {pages:?}");
    pages.concat().into_iter().map(str::to_owned).collect()
}

fn with_keyspace() -> World {
    let mut world = World::new();
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    world.query(&format!("CREATE KEYSPACE k WITH replication = {replication}"), None);
    world
}

#[test]
fn pages_of_any_size_have_the_rows_of_a_model() {
    let mut world = with_keyspace();
    for (name, order) in [("plain", "ASC"), ("mixed", "DESC")] {
        let columns = "p text, c int, d int, value blob, PRIMARY KEY (p, c, d)";
        let order = format!("WITH CLUSTERING ORDER BY (c ASC, d {order})");
        let create = format!("CREATE TABLE k.{name} ({columns}) {order}");
        assert_eq!(world.query(&create, None), format!("created table k.{name}\n"));
    }
    let columns = ["p", "c", "d"];
    let plain = Table { name: "k.plain", columns, is_mixed: false, literals: NUMBERS };
    let mixed = Table { name: "k.mixed", is_mixed: true, ..plain };
    let comments = Table {
        name: "\"Keyspace1\".comments",
        columns: ["key", "column1", "column2"],
        is_mixed: false,
        literals: ["'a'", "'b'", "'c'", "'d'", "'e'"],
    };
    let count = std::env::var("ALEXANDRA_CASES").ok().and_then(|it| it.parse().ok());
    for table in [plain, mixed, comments] {
        let rows = table.fill(&mut world, &mut Rng::with_seed(1));
        for seed in 0..count.unwrap_or(QUERIES) {
            let (statement, expected) = table.query(&rows, &mut Rng::with_seed(seed));
            for page in (1..8).chain([ONE_PAGE]) {
                let found = pages(&mut world, &statement, page);
                assert_eq!(found, expected, "seed {seed}, pages of {page}: {statement}");
            }
        }
    }
}

#[test]
fn more_names_than_are_read_at_a_time_have_all_their_rows() {
    let mut world = with_keyspace();
    world.query("CREATE TABLE k.t (p text, c int, PRIMARY KEY (p, c))", None);
    let held = [0, 999, 1000, 1001, 2998, 2999];
    for c in held {
        world.query(&format!("INSERT INTO k.t (p, c) VALUES ('a', {c})"), None);
    }
    let names: Vec<String> = (0..3000).map(|it| it.to_string()).collect();
    let names = format!("c IN ({})", names.join(", "));
    let mut expected = held.map(|it| it.to_string());
    let select = format!("SELECT c FROM k.t WHERE p = 'a' AND {names}");
    let scan = format!("SELECT c FROM k.t WHERE {names} ALLOW FILTERING");
    for page in [1, 2, ONE_PAGE] {
        assert_eq!(pages(&mut world, &select, page), expected);
        assert_eq!(pages(&mut world, &scan, page), expected);
    }
    let count = format!("SELECT count(*) FROM k.t WHERE p = 'a' AND {names}");
    assert_eq!(world.query(&count, None), "count\n6\n");
    expected.reverse();
    assert_eq!(pages(&mut world, &format!("{select} ORDER BY c DESC"), 2), expected);
}
