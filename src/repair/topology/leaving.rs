//! Leaving the ring: decommission, move to another token, and removal of a dead node.

use super::changes::Change;
use super::lifecycle::Lifecycle;
use crate::repair::error::{OperationError, Result};
use crate::repair::operation::{OperationKind, OperationRun};
use crate::repair::operations::Operations;
use crate::repair::transfer::plan::sources;
use crate::ring::Token;

impl Operations {
    pub(in crate::repair) async fn decommission(&self, operation: &OperationRun) -> Result<String> {
        self.leave(Lifecycle::Left, operation).await?;
        operation.enter("Decommissioned");
        Ok("this node has left the ring, and can be stopped".to_owned())
    }

    /// Continues the last start, which had handed all data over, and may have announced that it
    /// left this token.
    pub(super) async fn depart(&self, token: &Token) -> Result<()> {
        if self.is_known_at(token).await? {
            return self.stay(token).await;
        }
        let operation = self.enlist(OperationKind::Decommission)?;
        let left = Lifecycle::Left(token.clone());
        let departed = self.switch(&left, &operation).await;
        self.end(&operation, departed.map(|()| "this node has left the ring".to_owned()))
    }

    /// Hands all data over and leaves the ring. `gone` makes the state after that.
    pub(super) async fn leave(
        &self,
        gone: impl FnOnce(Token) -> Lifecycle,
        operation: &OperationRun,
    ) -> Result<Token> {
        operation.enter("Leaving: waiting until all nodes know");
        let ring = self.settled(None).await?.members.ring;
        let own = ring.token(self.node.local()).ok_or(OperationError::NotMember)?.clone();
        let mut after = ring.clone();
        after.remove(self.node.local());
        let change = Change {
            announcement: Lifecycle::Leaving(own.clone()),
            back: Lifecycle::Normal(own.clone()),
            before: &ring,
            receivers: self.receivers(&ring, &after),
            insists: false,
        };
        self.prepare(change, operation).await?;
        self.switch(&gone(own.clone()), operation).await?;
        Ok(own)
    }

    /// Leaves the ring, and joins it at this token or at one that halves the load of the busiest
    /// member.
    pub(in crate::repair) async fn move_to(
        &self,
        to: Option<Token>,
        operation: &OperationRun,
    ) -> Result<String> {
        let text = |token: &Token| self.node.display(token);
        let moving = |from| Lifecycle::Moving { from, to: to.clone() };
        let from = self.leave(moving, operation).await?;
        match self.join(to, false, operation).await {
            Ok(to) => Ok(format!("moved from token {} to {}", text(&from), text(&to))),
            Err(error) => {
                // Others may change the ring now.
                self.node.host()?.settle();
                Err(OperationError::Failed(format!(
                    "this node has handed its data over and left token {}, and has not joined \
                     again: start it anew, and it goes on. {error}",
                    text(&from)
                )))
            }
        }
    }

    pub(in crate::repair) async fn remove(
        &self,
        token: &Token,
        accepts_loss: bool,
        operation: &OperationRun,
    ) -> Result<String> {
        let dead = self.dead_owner(token, &self.node.look()?)?;
        let look = self.settled(Some(dead.endpoint)).await?;
        let ring = &look.members.ring;
        let own = ring.token(self.node.local()).ok_or(OperationError::NotMember)?.clone();
        if self.dead_owner(token, &look)? != dead {
            return Err(OperationError::RingChanged);
        }
        operation.enter(&format!("Removing {}: waiting until all nodes know", dead.endpoint));
        let mut after = ring.clone();
        after.remove(dead.endpoint);
        let endpoint = dead.endpoint;
        let mut receivers = self.receivers(ring, &after);
        // Nodes of 0.6 collect their data when they hear of the removal.
        receivers.retain(|it, _| !(look.live.contains(it) && look.is_legacy(*it)));
        let mut given_up = 0;
        for (receiver, wanted) in receivers.iter_mut().filter(|_| accepts_loss) {
            for wanted in wanted {
                given_up += usize::from(sources(wanted, Some(*receiver), &look).is_none());
                wanted.accepts_loss = true;
            }
        }
        let back = Lifecycle::Normal(own.clone());
        let change = Change {
            announcement: Lifecycle::Removing(own.clone(), dead),
            back: back.clone(),
            before: ring,
            receivers,
            insists: false,
        };
        self.prepare(change, operation).await?;
        let host = self.node.host()?;
        let removed = self.tell(&Lifecycle::Removed(own, token.clone())).await?;
        if host.look().members.ring.token(endpoint) == Some(token) {
            // It came back in this moment.
            host.announce(&back);
            return Err(OperationError::alive(endpoint));
        }
        if let Err(error) = self.be_heard(removed).await {
            // They will hear it later: it stays announced until the next start.
            log::warn!("{error}");
        }
        let lost = match given_up {
            0 => String::new(),
            count => format!(
                ". Ranges with too few live replicas: {count}; what only dead ones had is given up"
            ),
        };
        Ok(format!("{endpoint} is removed from the ring{lost}"))
    }
}
