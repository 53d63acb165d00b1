//! How a node ceases to be a member: it leaves, goes to another token, or is removed when it is
//! dead.

use super::changes::Change;
use super::lifecycle::Lifecycle;
use crate::repair::error::OperationError;
use crate::repair::host::Host;
use crate::repair::operation::{OperationKind, OperationRun};
use crate::repair::operations::Operations;
use crate::repair::transfer::plan::sources;
use crate::ring::Token;
use std::sync::Arc;

impl Operations {
    pub(in crate::repair) async fn decommission(
        &self,
        host: &Arc<dyn Host>,
        operation: &OperationRun,
    ) -> Result<String, OperationError> {
        self.leave(Lifecycle::Left, host, operation).await?;
        operation.enter("Decommissioned");
        Ok("this node has left the ring, and can be stopped".to_owned())
    }

    /// Goes on where the last start ended that had handed all data over, and may or may not have
    /// said that it has left this token.
    pub(super) async fn depart(
        &self,
        token: &Token,
        host: &Arc<dyn Host>,
    ) -> Result<(), OperationError> {
        if self.who_knows_it_at(token, host).await?.is_some() {
            return self.stay(token, host).await;
        }
        let operation = self.enlist(OperationKind::Decommission)?;
        let left = Lifecycle::Left(token.clone());
        let departed = self.switch(&left, host, &operation).await;
        self.end(&operation, departed, |()| "this node has left the ring".to_owned())
    }

    /// Hands all data over and leaves the ring, for `gone`, a state of this node without its token.
    pub(super) async fn leave(
        &self,
        gone: impl FnOnce(Token) -> Lifecycle,
        host: &Arc<dyn Host>,
        operation: &OperationRun,
    ) -> Result<Token, OperationError> {
        operation.enter("Leaving: waiting until all nodes know");
        let ring = self.settled(None, host).await?.members.ring;
        let own = ring.token(self.steps.local).ok_or(OperationError::NotMember)?.clone();
        let mut after = ring.clone();
        after.remove(self.steps.local);
        let receivers = self.steps.receivers(&ring, &after);
        let (leaving, back) = (Lifecycle::Leaving(own.clone()), Lifecycle::Normal(own.clone()));
        let change = Change {
            announcement: &leaving,
            back: &back,
            before: &ring,
            receivers: &receivers,
            insists: false,
        };
        self.prepare(change, host, operation).await?;
        self.switch(&gone(own.clone()), host, operation).await?;
        Ok(own)
    }

    /// Leaves the ring and joins it at this token, or at one that halves the load of the busiest
    /// member.
    pub(in crate::repair) async fn move_to(
        &self,
        to: Option<Token>,
        host: &Arc<dyn Host>,
        operation: &OperationRun,
    ) -> Result<String, OperationError> {
        let text = |token: &Token| self.steps.partitioner.display_token(token);
        let moving = |from| Lifecycle::Moving { from, to: to.clone() };
        let from = self.leave(moving, host, operation).await?;
        let joined = self.join(to, false, host, operation).await;
        let to = joined.map_err(|error| {
            // Others may change the ring now.
            host.settle();
            OperationError::HalfMoved { from: text(&from), source: Box::new(error) }
        })?;
        Ok(format!("moved from token {} to {}", text(&from), text(&to)))
    }

    pub(in crate::repair) async fn remove(
        &self,
        token: &Token,
        accepts_loss: bool,
        host: &Arc<dyn Host>,
        operation: &OperationRun,
    ) -> Result<String, OperationError> {
        let dead = self.dead_owner(token, &host.look())?;
        let look = self.settled(Some(dead.endpoint), host).await?;
        let ring = &look.members.ring;
        let own = ring.token(self.steps.local).ok_or(OperationError::NotMember)?.clone();
        if self.dead_owner(token, &look)? != dead {
            return Err(OperationError::RingChanged);
        }
        operation.enter(&format!("Removing {}: waiting until all nodes know", dead.endpoint));
        let mut after = ring.clone();
        after.remove(dead.endpoint);
        let endpoint = dead.endpoint;
        let mut receivers = self.steps.receivers(ring, &after);
        // Nodes of 0.6 collect their data when they hear that it is done.
        receivers
            .retain(|receiver, _| !(look.live.contains(receiver) && look.is_legacy(*receiver)));
        let mut given_up = 0;
        for (receiver, wanted) in receivers.iter_mut().filter(|_| accepts_loss) {
            for wanted in wanted {
                given_up += usize::from(sources(wanted, Some(*receiver), &look).is_none());
                wanted.accepts_loss = true;
            }
        }
        let (removing, back) =
            (Lifecycle::Removing(own.clone(), dead), Lifecycle::Normal(own.clone()));
        let change = Change {
            announcement: &removing,
            back: &back,
            before: ring,
            receivers: &receivers,
            insists: false,
        };
        self.prepare(change, host, operation).await?;
        let removed = self.steps.tell(host, &Lifecycle::Removed(own, token.clone())).await;
        if host.look().members.ring.token(endpoint) == Some(token) {
            // It has come back in this very moment.
            host.announce(&back);
            return Err(OperationError::Alive(endpoint));
        }
        if let Err(error) = self.steps.be_heard(host, removed).await {
            // They will, sooner or later: it is said until the next start.
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
