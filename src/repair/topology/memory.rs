//! Memory of other nodes of the address of this one.

use super::agreement::other_ring;
use crate::repair::calls::WHERE_IS;
use crate::repair::error::{OperationError, Result};
use crate::repair::host::RingSnapshot;
use crate::repair::operations::Operations;
use crate::ring::Token;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// Most rounds of questions to nodes that do not answer, and the pause between them.
const MAX_ROUNDS: u32 = 20;
const POLL: Duration = Duration::from_millis(500);

impl Operations {
    /// Whether a live node takes this one for the owner of this token.
    pub(super) async fn is_known_at(&self, token: &Token) -> Result<bool> {
        Ok(self.find_memory().await?.is_some_and(|(_, known)| known == *token))
    }

    /// A live node that takes this one for a member that stays, and at which token. All of them are
    /// asked until they have answered.
    pub(super) async fn find_memory(&self) -> Result<Option<(IpAddr, Token)>> {
        let local = self.node.local();
        let mut asked = BTreeSet::from([local]);
        let mut rounds = 0;
        loop {
            let look = self.node.look()?;
            let others = look.live.intersection(&look.callable).filter(|it| !asked.contains(*it));
            let answers = join_all(others.map(async |endpoint| {
                let answer = self.service.ask::<(Option<Token>, bool)>(*endpoint, WHERE_IS, &local);
                (*endpoint, answer.await)
            }));
            let answers = answers.await;
            if answers.is_empty() {
                break;
            }
            let mut silent = None;
            for (endpoint, answer) in answers {
                match answer {
                    // It is not about to leave.
                    Ok((Some(token), false)) => return Ok(Some((endpoint, token))),
                    Ok(_) => _ = asked.insert(endpoint),
                    Err(error) => silent = Some((endpoint, error)),
                }
            }
            let Some((by, error)) = silent else { continue };
            if rounds == MAX_ROUNDS {
                log::warn!("{error}");
                return Err(other_ring(by, &[local]));
            }
            rounds += 1;
            tokio::time::sleep(POLL).await;
        }
        if asked.len() > 1 {
            return Ok(None);
        }
        // Nodes of 0.6 cannot be asked. They do not forget a node that was replaced elsewhere.
        let RingSnapshot { remembered, members, live, .. } = self.node.look()?;
        let has_member = live.iter().any(|it| *it != local && members.is_member(*it));
        match remembered.filter(|(_, token)| members.ring.owner(token).is_none()) {
            None if !has_member => Err(OperationError::NobodySeen),
            remembered => Ok(remembered),
        }
    }

    /// Why a node without data does not become a member: it would make the ring believe that its
    /// former data are elsewhere.
    pub(super) fn known_at(&self, by: IpAddr, token: &Token) -> OperationError {
        let token = self.node.display(token);
        OperationError::Failed(format!(
            "{by} knows this address as the owner of token {token}, whose data are not here: start \
             it with -Dcassandra.replace_token={token} to collect them from the other replicas, or \
             have the token removed first by `nodetool removetoken`. If they are given up for \
             good, AutoBootstrap false and -Dcassandra.accept_data_loss=true start it without them"
        ))
    }
}
