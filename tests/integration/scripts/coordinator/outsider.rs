//! A node that is no part of the cluster and sends single messages, as those of 0.6 might.

use super::text;
use super::world::World;
use alexandra::model::mutation::RowMutation;
use alexandra::model::slice::Slice;
use alexandra::net::Verb;
use alexandra::net::bodies::{
    self, RangeCommand, RangeReply, ReadCommand, ReadReply, WriteResponse,
};
use alexandra::net::extensions::{FULL_DIGEST, REFUSED, TAKES_REFUSAL};
use alexandra::net::message::{HINT, Header, Message};
use alexandra::ring::{Partitioner, RowRange};
use std::borrow::Cow;
use std::error::Error;
use std::net::IpAddr;

/// The address of the outsider.
pub(super) const OUTSIDER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 9, 0, 9));

/// Request of the outsider.
pub(super) struct Question<'a> {
    pub(super) verb: Verb,
    pub(super) row: RowMutation,
    /// Nodes for which the receiver shall keep a hint.
    pub(super) hints: Vec<IpAddr>,
    /// `digest`, `refusals`, `full-digests`, `cut`, `odd-hint`.
    pub(super) features: &'a [String],
}

impl Question<'_> {
    fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|it| it == feature)
    }
}

impl World {
    /// Sends the question so many times to a node. Returns the answers.
    pub(super) fn ask(
        &mut self,
        node: usize,
        question: &Question<'_>,
        times: u64,
    ) -> Result<String, Box<dyn Error>> {
        let mut body = self.body(question)?;
        if question.has("cut") {
            body.pop();
        }
        let hints = bodies::encode_hint(&question.hints);
        let value = if question.has("odd-hint") { &hints[1..] } else { &hints[..] };
        let name = Cow::Borrowed(HINT);
        let hint = (!question.hints.is_empty()).then_some(Header { name, value });
        let refusal = question.has("refusals").then_some(TAKES_REFUSAL);
        let digest = question.has("full-digests").then_some(FULL_DIGEST);
        let headers: Vec<Header<'_>> = hint.into_iter().chain(refusal).chain(digest).collect();
        for id in 0..times {
            let headers = headers.clone();
            let message =
                Message { headers, ..Message::new(id.into(), OUTSIDER, question.verb, &body) };
            let responder = self.nodes[node - 1].responder.clone();
            if !self.run(async { responder.receive(&message) }) {
                return Ok("this is no verb for a replica".to_owned());
            }
        }
        self.replies(node, question)
    }

    fn body(&self, question: &Question<'_>) -> Result<Vec<u8>, Box<dyn Error>> {
        let (family, slice) = (self.schema.family_id("Blog", "Rows").unwrap(), Slice::all(None));
        Ok(match question.verb {
            Verb::Read => {
                let (key, digest_only) = (question.row.key.clone(), question.has("digest"));
                ReadCommand { family, key, slice, digest_only }.encode(&self.schema)?
            }
            Verb::RangeSlice => RangeCommand { family, slice, range: RowRange::all(), max_rows: 9 }
                .encode(&self.schema, Partitioner::OrderPreserving)?,
            _ => bodies::encode_mutation(&question.row, &self.schema)?,
        })
    }

    /// Messages that have arrived at the outsider since the last time.
    fn replies(&mut self, node: usize, question: &Question<'_>) -> Result<String, Box<dyn Error>> {
        let mut lines = Vec::new();
        while let Ok(payload) = self.outsider.try_recv() {
            let message = Message::decode(&payload)?;
            assert_eq!(message.verb, Verb::ReadResponse);
            lines.push(self.answer(node, question, &message)?);
        }
        Ok(if lines.is_empty() { "no answer".to_owned() } else { text::shorten(&lines, "\n") })
    }

    /// An answer to the question, or to a write before it.
    fn answer(
        &self,
        node: usize,
        question: &Question<'_>,
        message: &Message<'_>,
    ) -> Result<String, Box<dyn Error>> {
        let family = self.schema.family(self.schema.family_id("Blog", "Rows").unwrap());
        if let Some(why) = message.header(REFUSED) {
            return Ok(format!("refused: {}", String::from_utf8_lossy(why)));
        }
        if let Ok(WriteResponse { keyspace, key }) = WriteResponse::decode(message.body) {
            return Ok(format!("acknowledged: row {key} of {keyspace}"));
        }
        if question.verb == Verb::RangeSlice {
            let rows = RangeReply::decode(message.body, family)?.rows;
            let row = |(key, row)| format!("{key}: {}", text::version(&row));
            return Ok(rows.into_iter().map(row).collect::<Vec<_>>().join("\n"));
        }
        let digest = match ReadReply::decode(message.body, family)? {
            ReadReply::Data { version, .. } => return Ok(text::version(&version)),
            ReadReply::Digest(digest) => digest,
        };
        let stored = self.version(node, &question.row.key);
        let (of_old, is_full) =
            (digest == stored.digest(family), digest == stored.full_digest(family));
        let named = match (of_old, is_full) {
            (true, false) => "digest as of 0.6",
            (false, true) => "full digest",
            (true, true) => "digest",
            (false, false) => "digest of another row",
        };
        Ok(named.to_owned())
    }
}
