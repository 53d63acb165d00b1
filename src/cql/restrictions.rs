//! WHERE as a whole: which partitions and rows a statement is about, and what is left to filter.

use super::ast::{Operator, Relation};
use super::collections;
use super::error::CqlError;
use super::relations::{Check, Condition, Left, Named, is_slice};
use super::rows;
use super::terms::{Typing, Values};
use super::windows::{Edge, MostlyOne, Prefix, RowSet, Span};
use crate::model::cell::MAX_NAME_LENGTH;
use crate::model::key::RowKey;
use crate::model::table::Table;
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;

/// Most rows or partitions that the lists of a statement may name.
const MAX_PRODUCT: usize = 1 << 16;

/// The refusal of a query that would read more than it returns.
pub(super) const FILTERING: &str = "Cannot execute this query as it might involve data filtering \
    and thus may have unpredictable performance. If you want to execute this query despite the \
    performance unpredictability, use ALLOW FILTERING";

/// Kind of the statement that is restricted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Select { allows_filtering: bool },
    Update,
    Delete,
}

/// The relations of a statement, sorted by their work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Restrictions {
    conditions: Vec<Condition>,
    /// One for each column of the partition key; empty if it is not restricted as a whole.
    key: Vec<usize>,
    /// Those on tokens.
    token: Vec<usize>,
    /// Those that name rows, in the order of the clustering columns. The last ones may be slices.
    clustering: Vec<usize>,
    /// All others: rows are read and looked at.
    filters: Vec<usize>,
}

/// Partitions of a statement.
#[derive(Debug)]
pub(super) enum Keys {
    Several(Vec<RowKey>),
    /// All whose tokens lie between these, in the form of values; an open end is `None`.
    Tokens(Option<(Vec<u8>, bool)>, Option<(Vec<u8>, bool)>),
}

impl Restrictions {
    /// Checks the relations against a table.
    pub(super) fn new(
        relations: &[Relation],
        named: &Named<'_>,
        purpose: Purpose,
        typing: &mut Typing<'_>,
    ) -> Result<Self, CqlError> {
        relations.iter().try_for_each(check_operator)?;
        let conditions = relations.iter().map(|relation| Condition::new(relation, named, typing));
        let conditions: Vec<Condition> = conditions.collect::<Result<_, _>>()?;
        let mut sorted = Self {
            conditions,
            key: Vec::new(),
            token: Vec::new(),
            clustering: Vec::new(),
            filters: Vec::new(),
        };
        sorted.check_repetitions(named)?;
        sorted.sort(named.table);
        sorted.check(named, purpose)?;
        Ok(sorted)
    }

    /// Whether the statement names its partitions.
    pub(super) fn names_keys(&self) -> bool {
        !self.key.is_empty()
    }

    /// Whether rows are looked at one by one.
    pub(super) fn filters(&self) -> bool {
        !self.filters.is_empty()
    }

    /// Whether all clustering columns have values.
    pub(super) fn names_rows(&self, table: &Table) -> bool {
        let is_value = |at: &usize| is_value(self.conditions[*at].operator);
        let named = self.clustering.iter().take_while(|at| is_value(at));
        named.map(|at| self.conditions[*at].columns().len()).sum::<usize>()
            == table.clustering().len()
    }

    /// Whether any row is named, or a range of them.
    pub(super) fn restricts_rows(&self) -> bool {
        !self.clustering.is_empty()
    }

    /// Whether the partition key is restricted by several values.
    pub(super) fn has_key_list(&self) -> bool {
        self.key.iter().any(|at| self.conditions[*at].operator == Operator::In)
    }

    /// Columns that are restricted to one value.
    pub(super) fn equal_columns(&self) -> impl Iterator<Item = usize> {
        let equal = self.conditions.iter().filter(|it| it.operator == Operator::Equal);
        equal.flat_map(|it| it.columns().iter().copied())
    }

    /// For each column of the partition key, the marker that gives its value.
    pub(super) fn key_markers(&self) -> Option<Vec<u16>> {
        use super::relations::Right;
        use super::terms::Expression;
        let marker = |at: &usize| match &self.conditions[*at].right {
            Right::One(Expression::Marker(number, _)) => Some(*number),
            _ => None,
        };
        let markers: Option<Vec<u16>> = self.key.iter().map(marker).collect();
        markers.filter(|markers| !markers.is_empty())
    }

    /// A column cannot be restricted twice, unless by two ends of a range.
    fn check_repetitions(&self, named: &Named<'_>) -> Result<(), CqlError> {
        for (at, condition) in self.conditions.iter().enumerate() {
            for before in &self.conditions[..at] {
                check_pair(before, condition, named)?;
            }
        }
        Ok(())
    }

    fn sort(&mut self, table: &Table) {
        let find = |column: usize, conditions: &[Condition]| {
            conditions.iter().position(|it| {
                matches!(it.left, Left::Column(own) if own == column) && is_value(it.operator)
            })
        };
        let key: Option<Vec<usize>> =
            (0..table.key_length()).map(|column| find(column, &self.conditions)).collect();
        self.key = key.unwrap_or_default();
        let mut next = table.clustering().start;
        while next < table.clustering().end {
            let begins = |it: &Condition| {
                !matches!(it.left, Left::Element(..) | Left::Token)
                    && it.columns().first() == Some(&next)
            };
            let here = self.conditions.iter().enumerate().filter(|(_, it)| begins(it));
            let (values, slices): (Vec<_>, Vec<_>) = here
                .filter(|(_, it)| is_value(it.operator) || is_slice(it.operator))
                .partition(|(_, it)| is_value(it.operator));
            if let Some((at, condition)) = values.first() {
                self.clustering.push(*at);
                next += condition.columns().len();
                continue;
            }
            self.clustering.extend(slices.iter().map(|(at, _)| *at));
            break;
        }
        let is_token = |it: &Condition| it.left == Left::Token;
        for (at, condition) in self.conditions.iter().enumerate() {
            if is_token(condition) {
                self.token.push(at);
            } else if !self.key.contains(&at) && !self.clustering.contains(&at) {
                self.filters.push(at);
            }
        }
    }

    fn check(&self, named: &Named<'_>, purpose: Purpose) -> Result<(), CqlError> {
        let table = named.table;
        let key_filter = |at: &&usize| {
            self.conditions[**at].columns().first().is_some_and(|it| *it < table.key_length())
        };
        let clustering = table.clustering();
        let clustering_filter = |at: &&usize| {
            let condition = &self.conditions[**at];
            condition.columns().first().is_some_and(|it| clustering.contains(it))
        };
        let contains = |at: &usize| {
            matches!(self.conditions[*at].operator, Operator::Contains | Operator::ContainsKey)
        };
        if purpose != (Purpose::Select { allows_filtering: true })
            && self.filters.iter().filter(clustering_filter).any(contains)
        {
            return Err(CqlError::invalid(
                "Clustering columns can only be restricted with CONTAINS with a secondary index or \
                 filtering",
            ));
        }
        let Purpose::Select { allows_filtering } = purpose else {
            return self.check_modification(named, purpose);
        };
        let is_list = |it: &&Condition| {
            it.operator == Operator::In && it.columns().first() >= Some(&clustering.end)
        };
        if let Some(condition) = self.conditions.iter().find(is_list) {
            let name = &condition.name;
            let why =
                format!("IN predicates on non-primary-key columns ({name}) is not yet supported");
            return Err(CqlError::invalid(why));
        }
        if allows_filtering {
            return Ok(());
        }
        if self.filters.iter().any(|at| key_filter(&at)) {
            return Err(CqlError::invalid(FILTERING));
        }
        if let Some(at) = self.filters.iter().find(clustering_filter) {
            return Err(self.unreachable_clustering(*at, named));
        }
        let reads_all = !self.names_keys();
        if self.filters() || reads_all && self.restricts_rows() {
            return Err(CqlError::invalid(FILTERING));
        }
        Ok(())
    }

    /// A clustering column is restricted although the one before it is not, or only by a range.
    fn unreachable_clustering(&self, at: usize, named: &Named<'_>) -> CqlError {
        let table = named.table;
        let column = self.conditions[at].columns().first().copied().unwrap_or_default();
        let name = &table.columns[column].name;
        let sliced = self.clustering.iter().find(|it| is_slice(self.conditions[**it].operator));
        if let Some(sliced) = sliced {
            let before = self.conditions[*sliced].columns().first().copied().unwrap_or_default();
            let before = &table.columns[before].name;
            return CqlError::invalid(format!(
                "Clustering column \"{name}\" cannot be restricted (preceding column \"{before}\" \
                 is restricted by a non-EQ relation)"
            ));
        }
        let reached: usize =
            self.clustering.iter().map(|it| self.conditions[*it].columns().len()).sum();
        let before = table.clustering().start + reached;
        let before = &table.columns[before.min(column.saturating_sub(1))].name;
        CqlError::invalid(format!(
            "PRIMARY KEY column \"{name}\" cannot be restricted as preceding column \"{before}\" \
             is not restricted"
        ))
    }

    fn check_modification(&self, named: &Named<'_>, purpose: Purpose) -> Result<(), CqlError> {
        let table = named.table;
        if !self.token.is_empty() {
            return Err(CqlError::invalid(
                "The token function cannot be used in WHERE clauses for UPDATE and DELETE \
                 statements",
            ));
        }
        for condition in &self.conditions {
            let Some(column) = condition.columns().first() else { continue };
            if *column < table.key_length() && !is_value(condition.operator) {
                return Err(CqlError::invalid(
                    "Only EQ and IN relation are supported on the partition key (unless you use \
                     the token() function)",
                ));
            }
            if *column >= table.clustering().end {
                let name = &table.columns[*column].name;
                return Err(CqlError::invalid(format!(
                    "Non PRIMARY KEY columns found in where clause: {name}"
                )));
            }
        }
        if !self.names_keys() {
            let restricted = |column: &usize| {
                self.conditions.iter().any(|it| it.columns().first() == Some(column))
            };
            let missing: Vec<&str> = (0..table.key_length())
                .filter(|column| !restricted(column))
                .map(|column| table.columns[column].name.as_str())
                .collect();
            let missing = missing.join(", ");
            return Err(CqlError::invalid(format!(
                "Some partition key parts are missing: {missing}"
            )));
        }
        if let Some(at) = self.filters.first() {
            return Err(self.unreachable_clustering(*at, named));
        }
        let is_sliced = self.clustering.iter().any(|it| is_slice(self.conditions[*it].operator));
        if purpose == Purpose::Update && is_sliced {
            let at = self.clustering.iter().find(|it| is_slice(self.conditions[**it].operator));
            let column = at.and_then(|at| self.conditions[*at].columns().first());
            let name = column.map_or("", |it| table.columns[*it].name.as_str());
            return Err(CqlError::invalid(format!(
                "Slice restrictions are not supported on the clustering columns in UPDATE \
                 statements: {name}"
            )));
        }
        Ok(())
    }

    /// Clustering columns that UPDATE and INSERT miss.
    pub(super) fn missing_clustering(&self, table: &Table) -> Vec<String> {
        let reached: usize =
            self.clustering.iter().map(|it| self.conditions[*it].columns().len()).sum();
        let missing = table.clustering().skip(reached);
        missing.map(|column| table.columns[column].name.clone()).collect()
    }

    /// The partitions for these values.
    pub(super) fn keys<'v>(
        &'v self,
        table: &Table,
        values: &'v Values<'v>,
    ) -> Result<Keys, CqlError> {
        if !self.names_keys() {
            return self.tokens(values);
        }
        let mut keys: MostlyOne<Prefix<'v>> = smallvec![Prefix::new()];
        for (column, at) in self.key.iter().enumerate() {
            let check = self.conditions[*at].bind(values, false)?;
            let of_type = &table.columns[column].of_type;
            let mut options = check.values;
            options.sort_by(|a, b| of_type.compare(a, b));
            options.dedup();
            keys = product(keys, options)?;
        }
        let keys = keys.into_iter().map(|parts| {
            let parts: SmallVec<[&[u8]; 2]> = parts.iter().map(|part| &**part).collect();
            row_key(&parts)
        });
        Ok(Keys::Several(keys.collect::<Result<_, _>>()?))
    }

    fn tokens<'v>(&'v self, values: &'v Values<'v>) -> Result<Keys, CqlError> {
        let (mut start, mut end) = (None, None);
        for at in &self.token {
            let check = self.conditions[*at].bind(values, false)?;
            let Some(value) = check.values.first().map(|it| it.to_vec()) else { continue };
            match self.conditions[*at].operator {
                Operator::Greater => start = Some((value, false)),
                Operator::GreaterOrEqual => start = Some((value, true)),
                Operator::Less => end = Some((value, false)),
                Operator::LessOrEqual => end = Some((value, true)),
                _ => {
                    start = Some((value.clone(), true));
                    end = Some((value, true));
                }
            }
        }
        Ok(Keys::Tokens(start, end))
    }

    /// The rows of each partition for these values.
    pub(super) fn rows<'v>(
        &'v self,
        table: &Table,
        values: &'v Values<'v>,
        reads: bool,
    ) -> Result<RowSet<'v>, CqlError> {
        let mut prefixes: MostlyOne<Prefix<'v>> = smallvec![Prefix::new()];
        let (mut start, mut end) = (Edge::OPEN, Edge::OPEN);
        for at in &self.clustering {
            let condition = &self.conditions[*at];
            let check = condition.bind(values, false)?;
            if is_value(condition.operator) {
                prefixes = match &condition.left {
                    Left::Columns(columns) => tuples(&prefixes, table, columns, &check)?,
                    _ => product(prefixes, check.values)?,
                };
                continue;
            }
            let edge = edge(condition, table, check)?;
            match condition.operator {
                Operator::Greater | Operator::GreaterOrEqual => start = edge,
                _ => end = edge,
            }
        }
        if reads {
            // No row has a longer name.
            prefixes.retain(|values| check_length(values).is_ok());
        }
        prefixes.iter().try_for_each(|values| check_length(values))?;
        [&start, &end].into_iter().try_for_each(|edge| check_length(&edge.values))?;
        Ok(RowSet::new(table, prefixes, Span { start, end }))
    }

    /// Whether a range of rows is named.
    pub(super) fn restricts_slice(&self) -> bool {
        self.clustering.iter().any(|at| is_slice(self.conditions[*at].operator))
    }

    /// The relations that name rows.
    pub(super) fn clustering_checks<'v>(
        &'v self,
        values: &'v Values<'v>,
    ) -> Result<Vec<Check<'v>>, CqlError> {
        self.clustering.iter().map(|at| self.conditions[*at].bind(values, true)).collect()
    }

    /// All relations, for rows that are in memory.
    pub(super) fn all_checks<'v>(
        &'v self,
        values: &'v Values<'v>,
    ) -> Result<Vec<Check<'v>>, CqlError> {
        self.conditions.iter().map(|condition| condition.bind(values, true)).collect()
    }

    /// Relations that rows have to be looked at for.
    pub(super) fn checks<'v>(
        &'v self,
        values: &'v Values<'v>,
        rows: &RowSet<'_>,
    ) -> Result<Vec<Check<'v>>, CqlError> {
        let inexact = self.clustering.iter().filter(|_| !rows.is_exact);
        let all = self.filters.iter().chain(inexact);
        all.map(|at| self.conditions[*at].bind(values, true)).collect()
    }
}

/// A key of a partition, checked.
pub(super) fn row_key(parts: &[&[u8]]) -> Result<RowKey, CqlError> {
    let length: usize = parts.iter().map(|part| part.len() + 3).sum();
    if parts.len() > 1 && length > MAX_NAME_LENGTH {
        return Err(too_long_key(length));
    }
    let bytes = match parts {
        [only] => Cow::Borrowed(*only),
        _ => Cow::Owned(rows::partition_key(parts)),
    };
    if bytes.is_empty() {
        return Err(CqlError::invalid("Key may not be empty"));
    }
    if bytes.len() > MAX_NAME_LENGTH {
        return Err(too_long_key(bytes.len()));
    }
    Ok(RowKey::new(&bytes))
}

fn too_long_key(length: usize) -> CqlError {
    let why = format!("Key length of {length} is longer than maximum of {MAX_NAME_LENGTH}");
    CqlError::invalid(why)
}

/// Whether an operator names values.
fn is_value(operator: Operator) -> bool {
    matches!(operator, Operator::Equal | Operator::In)
}

/// Names have at most 65535 bytes, and each component of a composite has three more.
pub(super) fn check_length(values: &[Cow<'_, [u8]>]) -> Result<(), CqlError> {
    let length: usize = values.iter().map(|value| value.len() + 3).sum();
    if length > MAX_NAME_LENGTH { Err(too_long_key(length)) } else { Ok(()) }
}

fn too_many() -> CqlError {
    CqlError::invalid(format!(
        "The lists of IN have more than {MAX_PRODUCT} combinations: ask for fewer at a time"
    ))
}

/// Every list with every option after it.
fn product<'v>(
    mut lists: MostlyOne<Prefix<'v>>,
    mut options: MostlyOne<Cow<'v, [u8]>>,
) -> Result<MostlyOne<Prefix<'v>>, CqlError> {
    if let ([list], 1) = (&mut lists[..], options.len()) {
        list.append(&mut options);
        return Ok(lists);
    }
    if lists.len().saturating_mul(options.len()) > MAX_PRODUCT {
        return Err(too_many());
    }
    let longer = |list: &Prefix<'v>, option: &Cow<'v, [u8]>| {
        let mut longer = list.clone();
        longer.push(option.clone());
        longer
    };
    let all = lists.iter().flat_map(|list| options.iter().map(move |it| longer(list, it)));
    Ok(all.collect())
}

/// The values of a tuple for these columns.
fn fields<'v>(
    tuple: &[u8],
    table: &Table,
    columns: &[usize],
) -> Result<Vec<Cow<'v, [u8]>>, CqlError> {
    let fields = collections::fields(tuple)?;
    let value = |(at, column): (usize, &usize)| {
        let field = fields.get(at).copied().flatten();
        let name = &table.columns[*column].name;
        let why = || format!("Invalid null value in condition for column {name}");
        field.map(|it| Cow::Owned(it.to_vec())).ok_or_else(|| CqlError::invalid(why()))
    };
    columns.iter().enumerate().map(value).collect()
}

fn tuples<'v>(
    prefixes: &[Prefix<'v>],
    table: &Table,
    columns: &[usize],
    check: &Check<'v>,
) -> Result<MostlyOne<Prefix<'v>>, CqlError> {
    let mut all = MostlyOne::new();
    for tuple in &check.values {
        let values = fields(tuple, table, columns)?;
        let longer = |prefix: &Prefix<'v>| prefix.iter().chain(&values).cloned().collect();
        all.extend(prefixes.iter().map(longer));
    }
    if all.len() > MAX_PRODUCT {
        return Err(too_many());
    }
    Ok(all)
}

/// One end of a range of rows.
fn edge<'v>(condition: &Condition, table: &Table, check: Check<'v>) -> Result<Edge<'v>, CqlError> {
    let is_inclusive =
        matches!(condition.operator, Operator::GreaterOrEqual | Operator::LessOrEqual);
    let first = check.values.into_iter().next().unwrap_or_default();
    let values = match &condition.left {
        Left::Columns(columns) => fields(&first, table, columns)?,
        _ => vec![first],
    };
    Ok(Edge { values, is_inclusive })
}

/// Operators that are for conditions, indexes and views.
fn check_operator(relation: &Relation) -> Result<(), CqlError> {
    Err(CqlError::invalid(match relation.operator {
        Operator::NotEqual => format!("Unsupported \"!=\" relation: {relation}"),
        Operator::IsNotNull => format!("Unsupported restriction: {relation}"),
        Operator::Like => format!(
            "LIKE restriction is only supported on properly indexed columns. {relation} is not \
             valid."
        ),
        _ => return Ok(()),
    }))
}

/// Two relations that concern one column.
fn check_pair(one: &Condition, other: &Condition, named: &Named<'_>) -> Result<(), CqlError> {
    let table = named.table;
    if one.left == Left::Token || other.left == Left::Token {
        if one.left == other.left && (is_value(one.operator) || is_value(other.operator)) {
            return Err(CqlError::invalid(
                "Columns of the partition key cannot be restricted by more than one relation if it \
                 includes an Equal",
            ));
        }
        return Ok(());
    }
    let shared = one.columns().iter().find(|it| other.columns().contains(it));
    let Some(column) = shared else { return Ok(()) };
    let name = &table.columns[*column].name;
    let contains = |it: &Condition| {
        matches!(it.operator, Operator::Contains | Operator::ContainsKey)
            || matches!(it.left, Left::Element(..))
    };
    if contains(one) || contains(other) {
        return if contains(one) && contains(other) {
            Ok(())
        } else {
            Err(CqlError::invalid(format!(
                "Collection column {name} can only be restricted by CONTAINS, CONTAINS KEY, or \
                 map-entry equality"
            )))
        };
    }
    let all: Vec<&str> = one.columns().iter().map(|it| table.columns[*it].name.as_str()).collect();
    let shown = if all.len() > 1 { format!("({})", all.join(", ")) } else { name.clone() };
    if one.operator == Operator::Equal || other.operator == Operator::Equal {
        return Err(CqlError::invalid(format!(
            "{shown} cannot be restricted by more than one relation if it includes an Equal"
        )));
    }
    if one.operator == Operator::In || other.operator == Operator::In {
        return Err(CqlError::invalid(format!(
            "{shown} cannot be restricted by more than one relation if it includes a IN"
        )));
    }
    let is_start =
        |it: &Condition| matches!(it.operator, Operator::Greater | Operator::GreaterOrEqual);
    if is_start(one) == is_start(other) {
        let end = if is_start(one) { "start" } else { "end" };
        return Err(CqlError::invalid(format!(
            "More than one restriction was found for the {end} bound on {shown}"
        )));
    }
    Ok(())
}
