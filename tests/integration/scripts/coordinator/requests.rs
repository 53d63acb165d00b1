//! Requests of clients, as work that ends with a line.

use super::text::{self, after};
use alexandra::coordinator::{
    ConsistencyLevel, Coordinator, CoordinatorError, ReplicaCounts, RowQuery, ScanQuery,
};
use alexandra::model::deletion::Deletion;
use alexandra::model::key::RowKey;
use alexandra::model::mutation::{MutationBuilder, RowMutation};
use alexandra::model::schema::{FamilyId, Schema};
use alexandra::model::slice::{RowSlice, Slice};
use alexandra::replica::take_row;
use alexandra::ring::{RowRange, Token, TokenRange};
use std::num::NonZero;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::Arc;
use tokio::time::Instant;

/// A request that is made by a client, and what comes of it.
pub(super) type Work = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

/// Measures how long the request takes, by the time of the runtime.
pub(super) fn timed(
    request: impl Future<Output = Result<String, CoordinatorError>> + Send + 'static,
) -> Work {
    Box::pin(async move {
        let began = Instant::now();
        let done = request.await;
        let after = after(began.elapsed());
        match done {
            Ok(line) => Ok(line + &after),
            Err(CoordinatorError::Failed(error)) => Err(format!("failed: {error}{after}")),
            Err(
                error
                @ (CoordinatorError::Unavailable(counts) | CoordinatorError::TimedOut(counts)),
            ) => {
                let ReplicaCounts { required, present, has_data } = counts;
                let data = if has_data { ", with data" } else { "" };
                Err(format!("{error}: {present} of {required}{data}{after}"))
            }
            Err(error) => Err(error.to_string() + &after),
        }
    })
}

/// A row that gets these columns.
pub(super) fn insert(
    schema: &Schema,
    family: FamilyId,
    key: &str,
    columns: &[(String, String)],
) -> Result<RowMutation, String> {
    let kind = schema.family(family);
    let mut builder = MutationBuilder::new(schema, &kind.keyspace, &text::bytes(key));
    builder.family(family);
    for (name, value) in columns {
        let (group, name) = text::place(kind, name)?;
        let (value, at) = text::stamped(value)?;
        for name in text::keys(name) {
            builder.insert((group.as_bytes(), &text::bytes(&name)), &value, at);
        }
    }
    Ok(builder.finish())
}

/// A row of which a column is deleted, or all.
pub(super) fn deletion(
    schema: &Schema,
    family: FamilyId,
    key: &str,
    column: Option<&str>,
    at: i64,
) -> Result<RowMutation, String> {
    let kind = schema.family(family);
    let mut builder = MutationBuilder::new(schema, &kind.keyspace, key.as_bytes());
    let deletion = Deletion::at(at, 1_600_000_000);
    let row = builder.family(family);
    match column {
        None => row.delete_row(deletion),
        Some(group) if kind.is_super() && !group.contains('/') => {
            row.delete_super_column(group.as_bytes(), deletion)
        }
        Some(name) => {
            let (group, name) = text::place(kind, name)?;
            row.delete_column((group.as_bytes(), name.as_bytes()), deletion)
        }
    };
    Ok(builder.finish())
}

pub(super) fn write(
    coordinator: &Arc<Coordinator>,
    rows: Vec<RowMutation>,
    level: ConsistencyLevel,
    is_each: bool,
) -> Work {
    let coordinator = Arc::clone(coordinator);
    timed(async move {
        let at_a_time = if is_each { 1 } else { rows.len() };
        for batch in rows.chunks(at_a_time) {
            coordinator.write(batch, level).await?;
        }
        Ok("written".to_owned())
    })
}

pub(super) fn read(
    coordinator: &Arc<Coordinator>,
    family: FamilyId,
    keys: Vec<String>,
    slice: Slice,
    level: ConsistencyLevel,
) -> Work {
    let coordinator = Arc::clone(coordinator);
    let row_keys: Vec<RowKey> = keys.iter().map(|key| RowKey::new(key.as_bytes())).collect();
    timed(async move {
        let mut context = coordinator.request();
        if let [key] = &row_keys[..] {
            let row = RowQuery { family, key, slice: &slice };
            let row = coordinator.read(row, level, &mut context).await?;
            return Ok(columns(&row));
        }
        let rows = coordinator.read_many(family, &row_keys, &slice, level, &mut context).await?;
        let lines = keys.iter().zip(&rows).map(|(key, row)| format!("{key}: {}", columns(row)));
        Ok(text::shorten(&lines.collect::<Vec<_>>(), "\n"))
    })
}

pub(super) fn count(
    coordinator: &Arc<Coordinator>,
    family: FamilyId,
    key: &str,
    below: Option<String>,
    level: ConsistencyLevel,
) -> Work {
    let (coordinator, key) = (Arc::clone(coordinator), RowKey::from(key));
    timed(async move {
        let below = below.as_deref().map(str::as_bytes);
        Ok(coordinator.count(family, &key, below, level, &coordinator.request()).await?.to_string())
    })
}

pub(super) fn scan(
    coordinator: &Arc<Coordinator>,
    family: FamilyId,
    range: RowRange,
    slice: Slice,
    rows: usize,
    level: ConsistencyLevel,
) -> Work {
    let coordinator = Arc::clone(coordinator);
    timed(async move {
        let query = ScanQuery { family, slice: &slice, level, max_rows: rows, page_rows: rows };
        let (context, mut rows) = (coordinator.request(), Vec::new());
        let mut scan = coordinator.scan(query, vec![range]);
        while let Some((page, scratch)) = scan.next_page(&context).await? {
            drop(scratch);
            for (key, row) in page {
                take_row(&context, &key, &row.cells)?;
                rows.push((key, row));
            }
        }
        let lines: Vec<String> =
            rows.iter().map(|(key, row)| format!("{key}: {}", columns(row))).collect();
        let is_empty = lines.is_empty();
        Ok(if is_empty { "no rows".to_owned() } else { text::shorten(&lines, "\n") })
    })
}

pub(super) fn splits(coordinator: &Arc<Coordinator>, rows: i32) -> Work {
    let coordinator = Arc::clone(coordinator);
    timed(async move {
        let all = TokenRange { start: Token::Minimum, end: Token::Minimum };
        let tokens = coordinator.splits(all, NonZero::new(rows).unwrap()).await?;
        let tokens = tokens.iter().filter(|token| !token.is_minimum());
        let tokens: Vec<String> =
            tokens.map(|it| coordinator.partitioner().display_token(it)).collect();
        Ok(tokens.join(" "))
    })
}

fn columns(row: &RowSlice) -> String {
    assert!(row.count <= row.cells.len());
    text::columns(&row.cells)
}

/// The rows behind a key, up to a key and with it.
pub(super) fn range(from: Option<&str>, to: Option<&str>) -> RowRange {
    let token = |key: &str| Token::ordered(key.as_bytes().into());
    RowRange {
        start: from.map_or(Bound::Unbounded, |from| Bound::Excluded(token(from))),
        end: to.map_or(Bound::Unbounded, |to| Bound::Included(token(to))),
    }
}
