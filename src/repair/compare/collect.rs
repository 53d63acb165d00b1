//! Collects single rows from other nodes.

use super::calls::ROWS;
use crate::model::key::RowKey;
use crate::model::position::RowPosition;
use crate::model::schema::FamilyId;
use crate::net::bodies::{PieceReply, RowsCommand};
use crate::repair::host::Host;
use crate::repair::progress::Progress;
use crate::repair::transfer::fetch::{
    ATTEMPTS, FIRST_PIECE, FetchError, Fetcher, MAX_PIECE, MIN_PIECE, PAUSE,
};
use crate::storage::engine::{Ingest, IngestError};
use std::net::IpAddr;
use std::sync::Arc;

/// Most keys of one call, and most bytes of them: the greatest key is as long as that.
const MOST_KEYS: usize = 1024;
const MOST_KEY_BYTES: usize = 64 << 10;

impl Fetcher {
    /// Fetches all that others have of some rows, whose keys are in the order of their tokens for
    /// each source. They are on disk, and read, when this returns.
    pub(in crate::repair) async fn fetch_rows(
        &self,
        family: FamilyId,
        sources: &[(IpAddr, Vec<RowKey>)],
        host: &dyn Host,
        progress: &Progress,
    ) -> Result<(), FetchError> {
        progress.expect(sources.len());
        for (source, keys) in sources {
            let mut ingest = None;
            self.fetch_from(family, *source, keys, &mut ingest, host, progress).await?;
            if let Some(ingest) = ingest {
                self.blocking.run(move || ingest.finish()).await??;
            }
            progress.finish_range();
        }
        Ok(())
    }

    async fn fetch_from(
        &self,
        family: FamilyId,
        source: IpAddr,
        keys: &[RowKey],
        ingest: &mut Option<Ingest>,
        host: &dyn Host,
        progress: &Progress,
    ) -> Result<(), FetchError> {
        let (mut left, mut after) = (keys, None);
        let mut size = FIRST_PIECE;
        while !left.is_empty() {
            let some = first_of(left);
            let command = RowsCommand { family, keys: some.to_vec(), after, max_bytes: size };
            let (reply, bytes) = self.ask_for_rows(source, command, &mut size, host).await?;
            let PieceReply { rows, next } = reply;
            // A row that goes on in the next answer is counted there.
            let open = next.as_ref().filter(|next| next.cell.is_some()).map(|next| &next.key);
            let complete = rows.rows.iter().filter(|(key, _)| Some(key) != open).count();
            progress.add(bytes, complete);
            self.traffic.add(source, family, bytes);
            self.throttle.take(bytes).await;
            left = match &next {
                None => &left[some.len()..],
                Some(RowPosition { key, cell }) => {
                    let Some(at) = some.iter().position(|it| it == key) else {
                        return Err(FetchError::Unasked(source));
                    };
                    &left[at + usize::from(cell.is_none())..]
                }
            };
            after = next.filter(|next| next.cell.is_some());
            let (storage, taken) = (Arc::clone(&self.storage), ingest.take());
            let push = move || {
                let mut ingest = match taken {
                    Some(ingest) => ingest,
                    None => storage.ingest(family)?,
                };
                for (key, version) in &rows.rows {
                    ingest.push(key, version)?;
                }
                Ok::<_, IngestError>(ingest)
            };
            *ingest = Some(self.blocking.run(push).await??);
        }
        Ok(())
    }

    /// Asks until an answer is there. Also says how many bytes it had.
    async fn ask_for_rows(
        &self,
        source: IpAddr,
        mut command: RowsCommand,
        size: &mut u32,
        host: &dyn Host,
    ) -> Result<(PieceReply, usize), FetchError> {
        let schema = self.storage.schema();
        let mut attempts = 0;
        loop {
            command.max_bytes = *size;
            let error = match self.caller.call(source, ROWS, &command.encode(schema)?).await {
                Ok(answer) => {
                    *size = size.saturating_mul(2).min(MAX_PIECE);
                    let reply = PieceReply::decode(&answer, schema.family(command.family));
                    let from = source;
                    let reply = reply.map_err(|source| FetchError::Body { from, source })?;
                    // They come in the order in which they are asked for.
                    let mut wanted = command.keys.iter();
                    if !reply.rows.rows.iter().all(|(key, _)| wanted.any(|it| it == key)) {
                        return Err(FetchError::Unasked(source));
                    }
                    return Ok((reply, answer.len()));
                }
                Err(error) => error,
            };
            attempts += 1;
            if attempts >= ATTEMPTS || !host.look().live.contains(&source) {
                return Err(FetchError::Call(error));
            }
            *size = (*size / 2).max(MIN_PIECE);
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// As many keys as one call may have, at least one.
fn first_of(keys: &[RowKey]) -> &[RowKey] {
    let mut bytes = 0;
    let is_too_much = |key: &RowKey| {
        bytes += key.as_bytes().len();
        bytes > MOST_KEY_BYTES
    };
    let fitting = keys.iter().take(MOST_KEYS).position(is_too_much);
    &keys[..fitting.unwrap_or(keys.len().min(MOST_KEYS)).max(1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_a_bound() {
        let keys: Vec<RowKey> = (0..3000).map(|n| RowKey::from(&*format!("{n}"))).collect();
        assert_eq!(first_of(&keys).len(), MOST_KEYS);
        assert_eq!(first_of(&keys[..5]).len(), 5);
        let key_of = |bytes: usize| RowKey::new(&vec![b'k'; bytes]);
        let wide = vec![key_of(40 << 10); 3];
        assert_eq!(first_of(&wide).len(), 1);
        assert_eq!(first_of(&[key_of(65_535), RowKey::from("kk")]).len(), 1);
    }
}
