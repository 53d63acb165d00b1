//! Statements, one after the other, on a server.

use super::connection::Connection;
use super::families::{Families, Types};
use super::help;
use super::literals::{self, Place as In};
use super::mistake::Mistake;
use super::parser::parse;
use super::printer::{Place, Printer};
use super::screen::Stopped;
use super::statement::{Family, Name, Path, Property, Slice, Statement, Term};
use crate::base::clock::{Clock, SystemClock};
use crate::model::comparator::Comparator;
use crate::thrift::idl::{
    Column, ColumnOrSuperColumn, ColumnParent, ColumnPath, ConsistencyLevel, DescribeKeyspaceArgs,
    Exception, GetArgs, GetCountArgs, GetRangeSlicesArgs, GetSliceArgs, GetStringListPropertyArgs,
    GetStringPropertyArgs, InsertArgs, KeyRange, RemoveArgs, SlicePredicate, SliceRange,
};
use crate::thrift::remote::CallError;
use serde_json::{Map, json};

/// Columns that a slice has at most without a limit, as in the original.
const SLICE_LIMIT: u32 = 1_000_000;

/// Columns, super columns or rows that are fetched at a time.
const PAGE: u32 = 500;
const SUPER_PAGE: u32 = 50;
const ROW_PAGE: u32 = 50;

/// Rows that `list` shows, and columns of each, unless the statement says how many.
const LISTED: u32 = 100;

/// Next step after a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// Printed before.
    Failed,
    Exit,
}

/// Why a statement ended early.
enum Halt {
    Mistake(Mistake),
    /// Nobody wants the rest of the output.
    Stopped,
}

impl<T: Into<Mistake>> From<T> for Halt {
    fn from(mistake: T) -> Self {
        Self::Mistake(mistake.into())
    }
}

impl From<Stopped> for Halt {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

type Done = Result<(), Halt>;

/// A session.
pub(super) struct Session {
    connection: Connection,
    pub(super) families: Families,
    pub(super) printer: Printer,
    level: ConsistencyLevel,
    last_timestamp: i64,
}

impl Session {
    pub(super) fn new(connection: Connection, printer: Printer) -> Self {
        let (families, level) = (Families::default(), ConsistencyLevel::One);
        Self { connection, families, printer, level, last_timestamp: 0 }
    }

    /// Connects to a server and learns what it has; returns the line about it.
    pub(super) fn connect(&mut self, host: &str, port: u16) -> Result<String, Mistake> {
        self.families = Families::new(self.families.keyspace.take());
        let cluster = self.connection.connect(host, port)?;
        Ok(format!("Connected to: \"{cluster}\" on {host}/{port}"))
    }

    /// Learns all column families, for completion.
    pub(super) fn load_families(&mut self) -> Result<(), Mistake> {
        for text in self.keyspaces()? {
            self.families.load(&mut self.connection, &Name { text, span: 0..0 })?;
        }
        Ok(())
    }

    fn keyspaces(&mut self) -> Result<Vec<String>, Mistake> {
        let property = GetStringListPropertyArgs { property: "keyspaces".into() };
        let keyspaces = self.connection.call(&property)?;
        Ok(keyspaces.into_iter().map(|name| name.into_owned()).collect())
    }

    /// Column families for completion, those of `use` without their keyspace as well.
    pub(super) fn names(&self) -> Vec<String> {
        let own = self.families.keyspace.as_deref();
        let all: Vec<String> = self.families.names().collect();
        let short = all.iter().filter_map(|name| name.split_once('.'));
        let short = short.filter(|(keyspace, _)| Some(*keyspace) == own);
        let short: Vec<String> = short.map(|(_, family)| family.to_owned()).collect();
        all.into_iter().chain(short).collect()
    }

    /// Runs a statement, and prints its result or why there is none, after its origin.
    pub(super) fn run(&mut self, source: &str, origin: &str) -> Outcome {
        let done = match parse(source) {
            Ok(None) => return Outcome::Done,
            Ok(Some(Statement::Exit)) => return Outcome::Exit,
            Ok(Some(statement)) => self.execute(statement),
            Err(mistake) => Err(mistake.into()),
        };
        self.printer.screen.end();
        match done {
            Ok(()) => Outcome::Done,
            Err(Halt::Stopped) => Outcome::Done,
            Err(Halt::Mistake(mistake)) => {
                mistake.tell(source, origin, self.printer.layout);
                Outcome::Failed
            }
        }
    }

    fn execute(&mut self, statement: Statement) -> Done {
        if !matches!(statement, Statement::Help(_) | Statement::Connect { .. }) {
            self.connection.ready()?;
        }
        match statement {
            Statement::Exit => Ok(()),
            Statement::Help(about) => {
                let text = help::text(about.as_ref())?;
                Ok(self.printer.lines(&text, || text.clone().into())?)
            }
            Statement::Connect { host, port } => {
                let line = self.connect(&host, port)?;
                Ok(self.printer.fact("connected", &line)?)
            }
            Statement::Show(property) => self.show(property),
            Statement::DescribeKeyspace(keyspace) => self.describe_keyspace(&keyspace),
            Statement::DescribeFamily(family) => self.describe_family(&family),
            Statement::Use(keyspace) => {
                self.families.load(&mut self.connection, &keyspace)?;
                self.families.keyspace = Some(keyspace.text);
                Ok(())
            }
            Statement::Get(path, slice) => self.get(&path, &slice),
            Statement::List { family, rows } => self.list(&family, &rows),
            Statement::Count(path) => self.count(&path),
            Statement::Set { path, value } => self.set(&path, &value),
            Statement::Del(path) => self.del(&path),
            Statement::Level(level) => {
                self.level = level.unwrap_or(self.level);
                let text = format!("Consistency level is {}.\n", self.level.name());
                let json = || json!({ "consistency_level": self.level.name() });
                Ok(self.printer.lines(&text, json)?)
            }
            Statement::Assume { family, part, type_name } => {
                self.families.assume(&mut self.connection, &family, &part, &type_name)?;
                Ok(self.printer.fact("done", "Assumed for this session.")?)
            }
        }
    }

    fn show(&mut self, property: Property) -> Done {
        let (asked, name) = match property {
            Property::ClusterName => ("cluster name", "cluster_name"),
            Property::ConfigFile => ("config file", "config_file"),
            Property::ApiVersion => ("version", "api_version"),
            Property::Keyspaces => {
                for keyspace in self.keyspaces()? {
                    self.printer.fact("keyspace", &keyspace)?;
                }
                return Ok(());
            }
        };
        let answer = self.connection.call(&GetStringPropertyArgs { property: asked.into() })?;
        Ok(self.printer.fact(name, &answer)?)
    }

    fn describe_keyspace(&mut self, keyspace: &Name) -> Done {
        let arguments = DescribeKeyspaceArgs { keyspace: (&keyspace.text).into() };
        let families = self.connection.call(&arguments).map_err(|error| match error {
            CallError::Declared(Exception::NotFound, _) => {
                let text = format!("Keyspace {} could not be found.", keyspace.text);
                Mistake::at(keyspace.span.clone(), text).on_output()
            }
            other => other.into(),
        })?;
        for (name, properties) in families.iter() {
            let get = |name| properties.get(name).map_or("null", |text| text);
            let text = format!(
                "{}\nColumn Family Type: {}\nColumn Sorted By: {}\nflush period: {} minutes\n\
                 ------\n",
                get("Desc"),
                get("Type"),
                get("CompareWith"),
                get("FlushPeriodInMinutes")
            );
            self.printer.lines(&text, || {
                let properties =
                    properties.iter().map(|(name, it)| (name.to_string(), it.as_ref()));
                let own = [("ColumnFamily".to_owned(), name.as_ref())];
                let all = own.into_iter().chain(properties);
                all.map(|(name, text)| (name, text.into())).collect::<Map<_, _>>().into()
            })?;
        }
        Ok(())
    }

    fn describe_family(&mut self, family: &Family) -> Done {
        let lines = self.families.find(&mut self.connection, family)?.describe();
        let text: Vec<String> = lines.iter().map(|(name, it)| format!("{name}: {it}\n")).collect();
        self.printer.lines(&text.concat(), || {
            let name = |title: &str| title.to_lowercase().replace(' ', "_");
            let fields = lines.iter().map(|(title, it)| (name(title), it.as_str().into()));
            fields.collect::<Map<_, _>>().into()
        })?;
        Ok(())
    }

    /// The keyspace of a path, the types of its column family, and its key.
    fn row(&mut self, path: &Path) -> Result<(String, Types, String), Mistake> {
        let types = self.families.find(&mut self.connection, &path.family)?;
        let key = key(&types, &path.key)?;
        Ok((self.families.keyspace_of(&path.family)?, types, key))
    }

    fn get(&mut self, path: &Path, slice: &Slice) -> Done {
        let (keyspace, types, key) = self.row(path)?;
        let is_super = types.sub_names.is_some();
        let super_name = match path.columns.as_slice() {
            [] => None,
            [super_name] if is_super => Some(literals::name(&types.names, super_name, In::Exact)?),
            [.., column] => {
                if *slice != Slice::default() {
                    let text = "this is one column: from, to, limit and forward are for several";
                    return Err(Mistake::at(column.span.clone(), text).into());
                }
                return self.get_column(path, &(keyspace, types, key));
            }
        };
        let is_group = is_super && super_name.is_none();
        let names = if super_name.is_some() { types.column_names() } else { &types.names };
        let mut range = Range::new(names, slice)?;
        let mut left = slice.limit.unwrap_or(SLICE_LIMIT);
        let page = if is_group { SUPER_PAGE } else { PAGE };
        let mut number = 0;
        loop {
            let count = range.count(left, page);
            let arguments = GetSliceArgs {
                keyspace: keyspace.as_str().into(),
                key: key.as_str().into(),
                column_parent: ColumnParent {
                    column_family: path.family.name.text.as_str().into(),
                    super_column: super_name.as_deref(),
                },
                predicate: range.predicate(count),
                consistency_level: self.level,
            };
            let found = self.connection.call(&arguments)?;
            let fresh = range.fresh(&found, |it| name_of(it));
            let fresh = &fresh[..fresh.len().min(left as usize)];
            let place =
                Place { types: &types, key: None, super_name: super_name.as_deref(), is_group };
            print(&mut self.printer, &place, fresh)?;
            number += fresh.len();
            left = left.saturating_sub(fresh.len() as u32);
            let goes_on = found.len() == count as usize && left > 0;
            match fresh.last().filter(|_| goes_on) {
                Some(last) => range.go_on(name_of(last).to_vec()),
                None => return Ok(self.printer.end(number, "results")?),
            }
        }
    }

    fn get_column(&mut self, path: &Path, row: &(String, Types, String)) -> Done {
        let (keyspace, types, key) = row;
        let names = column_path(types, path)?;
        let arguments = GetArgs {
            keyspace: keyspace.into(),
            key: key.into(),
            column_path: names.path(&path.family),
            consistency_level: self.level,
        };
        let found = self.connection.call(&arguments).map_err(|error| match error {
            CallError::Declared(Exception::NotFound, _) => {
                let place = path.columns.last().map_or(0..0, |column| column.span.clone());
                Mistake::from(error).about(place).hinted("no such column")
            }
            other => other.into(),
        })?;
        let columns: Vec<Column<'_>> = found.column.into_iter().collect();
        let super_name = names.super_name.as_deref();
        let place = Place { types, key: None, super_name, is_group: false };
        Ok(self.printer.columns(&place, &columns)?)
    }

    fn list(&mut self, family: &Family, rows: &Slice) -> Done {
        let types = self.families.find(&mut self.connection, family)?;
        let keyspace = self.families.keyspace_of(family)?;
        let bound =
            |term: &Option<Term>| term.as_ref().map_or(Ok(String::new()), |it| key(&types, it));
        let mut range = Range::between(bound(&rows.from)?, bound(&rows.to)?);
        let mut left = rows.limit.unwrap_or(LISTED);
        // Rows that were deleted show up without columns.
        let columns = rows.columns.unwrap_or(LISTED);
        let whole = Range::new(&types.names, &Slice::default())?;
        let mut number = 0;
        while left > 0 {
            let count = range.count(left, ROW_PAGE);
            let arguments = GetRangeSlicesArgs {
                keyspace: keyspace.as_str().into(),
                column_parent: ColumnParent {
                    column_family: family.name.text.as_str().into(),
                    super_column: None,
                },
                predicate: whole.predicate(columns.max(1)),
                range: KeyRange {
                    start_key: Some(range.start.as_str().into()),
                    end_key: Some(range.finish.as_str().into()),
                    start_token: None,
                    end_token: None,
                    count: count as i32,
                },
                consistency_level: self.level,
            };
            let found = self.connection.call(&arguments)?;
            // A page of deleted rows prints nothing.
            self.printer.check()?;
            let fresh = range.fresh(&found, |row| row.key.as_bytes()).iter();
            for row in fresh.filter(|row| !row.columns.is_empty()).take(left as usize) {
                let key = types.keys.show(row.key.as_bytes());
                self.printer.row(&key, columns == 0)?;
                let place =
                    Place { types: &types, key: Some(&key), super_name: None, is_group: false };
                let shown = &row.columns[..row.columns.len().min(columns as usize)];
                print(&mut self.printer, &place, shown)?;
                number += 1;
                left -= 1;
            }
            match found.last().filter(|_| found.len() == count as usize) {
                Some(last) => range.go_on(last.key.to_string()),
                None => break,
            }
        }
        Ok(self.printer.end(number, "rows")?)
    }

    fn count(&mut self, path: &Path) -> Done {
        let (keyspace, types, key) = self.row(path)?;
        if let [_, column, ..] = path.columns.as_slice() {
            let text = "columns are counted in a row or a super column";
            return Err(Mistake::at(column.span.clone(), text).into());
        }
        let super_name = path.columns.first();
        let super_name = super_name.map(|it| literals::name(&types.names, it, In::Exact));
        let super_name = super_name.transpose()?;
        let arguments = GetCountArgs {
            keyspace: keyspace.into(),
            key: key.into(),
            column_parent: ColumnParent {
                column_family: path.family.name.text.as_str().into(),
                super_column: super_name.as_deref(),
            },
            consistency_level: self.level,
        };
        let count = self.connection.call(&arguments)?;
        Ok(self.printer.count(count, "columns")?)
    }

    fn set(&mut self, path: &Path, value: &Term) -> Done {
        if path.columns.is_empty() {
            let text = "No column name specified, (type 'help' or '?' for help on syntax).";
            return Err(Mistake::new(text).into());
        }
        let (keyspace, types, key) = self.row(path)?;
        let names = column_path(&types, path)?;
        let of_type = names.column.as_deref().and_then(|column| types.value_type(column));
        let value = literals::value(of_type, value)?;
        let arguments = InsertArgs {
            keyspace: keyspace.into(),
            key: key.into(),
            column_path: names.path(&path.family),
            value: &value,
            timestamp: self.timestamp(),
            consistency_level: self.level,
        };
        self.connection.call(&arguments)?;
        Ok(self.printer.fact("done", "Value inserted.")?)
    }

    fn del(&mut self, path: &Path) -> Done {
        let (keyspace, types, key) = self.row(path)?;
        let names = column_path(&types, path)?;
        let arguments = RemoveArgs {
            keyspace: keyspace.into(),
            key: key.into(),
            column_path: names.path(&path.family),
            timestamp: self.timestamp(),
            consistency_level: self.level,
        };
        self.connection.call(&arguments)?;
        let removed = if path.columns.is_empty() { "row removed." } else { "column removed." };
        Ok(self.printer.fact("done", removed)?)
    }

    /// The time in microseconds, later than that of the statement before: a value that is set
    /// after a deletion stays.
    fn timestamp(&mut self) -> i64 {
        self.last_timestamp = SystemClock::new().now_micros().max(self.last_timestamp + 1);
        self.last_timestamp
    }
}

/// The key that a term stands for. Thrift knows only those that are text.
fn key(types: &Types, term: &Term) -> Result<String, Mistake> {
    String::from_utf8(literals::value(Some(&types.keys), term)?).map_err(|_| {
        Mistake::at(term.span.clone(), "Thrift cannot name this key: it is no text")
            .hinted("CQL can")
    })
}

/// Names in a path, as bytes.
struct Names {
    super_name: Option<Vec<u8>>,
    column: Option<Vec<u8>>,
}

impl Names {
    fn path<'a>(&'a self, family: &'a Family) -> ColumnPath<'a> {
        ColumnPath {
            column_family: family.name.text.as_str().into(),
            super_column: self.super_name.as_deref(),
            column: self.column.as_deref(),
        }
    }
}

fn column_path(types: &Types, path: &Path) -> Result<Names, Mistake> {
    let outer = |term| literals::name(&types.names, term, In::Exact);
    Ok(match path.columns.as_slice() {
        [] => Names { super_name: None, column: None },
        [column] if types.sub_names.is_none() => {
            Names { super_name: None, column: Some(outer(column)?) }
        }
        [super_name] => Names { super_name: Some(outer(super_name)?), column: None },
        [super_name, column, ..] => {
            let column = literals::name(types.column_names(), column, In::Exact)?;
            Names { super_name: Some(outer(super_name)?), column: Some(column) }
        }
    })
}

/// Columns or rows that are read page by page, between two names or keys.
struct Range<N> {
    start: N,
    finish: N,
    is_reversed: bool,
    /// Whether the element that it starts with was read with the page before.
    is_next: bool,
}

impl<N: AsRef<[u8]>> Range<N> {
    fn between(start: N, finish: N) -> Self {
        Self { start, finish, is_reversed: false, is_next: false }
    }

    /// Elements of a page.
    fn count(&self, left: u32, page: u32) -> u32 {
        left.min(page) + u32::from(self.is_next)
    }

    /// The elements that the previous page lacked; its last one may be deleted by now.
    fn fresh<'a, T>(&self, found: &'a [T], name_of: impl Fn(&T) -> &[u8]) -> &'a [T] {
        let is_known = |first: &T| self.is_next && name_of(first) == self.start.as_ref();
        &found[usize::from(found.first().is_some_and(is_known))..]
    }

    /// Continues after a name.
    fn go_on(&mut self, last: N) {
        (self.start, self.is_next) = (last, true);
    }
}

impl Range<Vec<u8>> {
    fn new(names: &Comparator, slice: &Slice) -> Result<Self, Mistake> {
        let bound = |term: &Option<Term>, place| {
            term.as_ref().map_or(Ok(Vec::new()), |term| literals::name(names, term, place))
        };
        let (from, to) = (bound(&slice.from, In::From)?, bound(&slice.to, In::To)?);
        let is_reversed = !slice.is_forward;
        let (start, finish) = if is_reversed { (to, from) } else { (from, to) };
        Ok(Self { is_reversed, ..Self::between(start, finish) })
    }

    fn predicate(&self, count: u32) -> SlicePredicate<'_> {
        let range = SliceRange {
            start: &self.start,
            finish: &self.finish,
            reversed: self.is_reversed,
            count: i32::try_from(count).unwrap_or(i32::MAX),
        };
        SlicePredicate { column_names: None, slice_range: Some(range) }
    }
}

fn name_of<'a>(element: &ColumnOrSuperColumn<'a>) -> &'a [u8] {
    let column = element.column.as_ref().map(|column| column.name);
    column.or(element.super_column.as_ref().map(|it| it.name)).unwrap_or_default()
}

/// Prints columns or super columns of a row.
fn print(
    printer: &mut Printer,
    place: &Place<'_>,
    elements: &[ColumnOrSuperColumn<'_>],
) -> Result<(), Stopped> {
    for element in elements {
        if let Some(it) = &element.super_column {
            let place = Place { super_name: Some(it.name), is_group: true, ..*place };
            printer.columns(&place, &it.columns)?;
        }
        if let Some(column) = &element.column {
            printer.columns(place, std::slice::from_ref(column))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thrift::idl;

    #[test]
    fn a_page_begins_after_the_last_column_of_the_one_before_also_if_that_is_gone() {
        let columns: Vec<_> = [b"a", b"b", b"c"]
            .map(|name| ColumnOrSuperColumn {
                column: Some(idl::Column { name, value: b"", timestamp: 1 }),
                super_column: None,
            })
            .into();
        let fresh = |start: &[u8], is_next| -> Vec<u8> {
            let range = Range { is_next, ..Range::between(start, &b""[..]) };
            range.fresh(&columns, |it| name_of(it)).iter().map(|it| name_of(it)[0]).collect()
        };
        assert_eq!(fresh(b"", false), b"abc");
        assert_eq!(fresh(b"a", true), b"bc");
        assert_eq!(fresh(b"0", true), b"abc", "0 was deleted meanwhile");
        let next = Range { is_next: true, ..Range::between("a", "") };
        assert!(next.fresh(&[], |it| name_of(it)).is_empty());
    }
}
