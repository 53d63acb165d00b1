//! How a node ceases to be a member: it leaves, goes to another token, or is removed when it is
//! dead.

use super::Operations;
use super::changes::{Change, Saved};
use crate::repair::error::OperationError;
use crate::repair::host::{Host, Place};
use crate::repair::operation::{Operation, OperationKind};
use crate::repair::plan;
use crate::ring::Token;
use std::sync::Arc;

impl Operations {
    pub(super) async fn decommission(
        &self,
        host: &Arc<dyn Host>,
        operation: &Operation,
    ) -> Result<String, OperationError> {
        self.leave(Saved::departing(), host, operation).await?;
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
        let left = Place::Left(token.clone());
        let departed = self.switch(&left, Saved::departing(), host, &operation).await;
        self.end(&operation, departed, |()| "this node has left the ring".to_owned())
    }

    /// Hands all data over and leaves the ring.
    pub(super) async fn leave(
        &self,
        saved: Saved,
        host: &Arc<dyn Host>,
        operation: &Operation,
    ) -> Result<Token, OperationError> {
        operation.enter("Leaving: waiting until all nodes know");
        let ring = self.settled(None, host).await?.members.ring;
        let own = ring.token(self.steps.local).ok_or(OperationError::NotMember)?.clone();
        let mut after = ring.clone();
        after.remove(self.steps.local);
        let heirs = self.steps.heirs(&ring, &after);
        let (leaving, back) = (Place::Leaving(own.clone()), Place::Normal(own.clone()));
        let change = Change {
            announcement: &leaving,
            back: &back,
            before: &ring,
            heirs: &heirs,
            insists: false,
        };
        self.prepare(change, host, operation).await?;
        self.switch(&Place::Left(own.clone()), saved, host, operation).await?;
        Ok(own)
    }

    /// Leaves the ring and joins it at this token, or at one that halves the load of the busiest
    /// member.
    pub(super) async fn move_to(
        &self,
        to: Option<Token>,
        host: &Arc<dyn Host>,
        operation: &Operation,
    ) -> Result<String, OperationError> {
        let text = |token: &Token| self.steps.partitioner.display_token(token);
        let from = self.leave(Saved::moving(to.as_ref()), host, operation).await?;
        let joined = self.join(to, false, host, operation).await;
        let to = joined.map_err(|error| {
            // Others may change the ring now.
            host.settle();
            OperationError::HalfMoved { from: text(&from), source: Box::new(error) }
        })?;
        Ok(format!("moved from token {} to {}", text(&from), text(&to)))
    }

    pub(super) async fn remove(
        &self,
        token: &Token,
        accepts_loss: bool,
        host: &Arc<dyn Host>,
        operation: &Operation,
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
        let mut heirs = self.steps.heirs(ring, &after);
        // Nodes of 0.6 collect their data when they hear that it is done.
        heirs.retain(|heir, _| !(look.live.contains(heir) && look.is_original(*heir)));
        let mut given_up = 0;
        for (heir, wanted) in heirs.iter_mut().filter(|_| accepts_loss) {
            for wanted in wanted {
                given_up += usize::from(plan::sources(wanted, Some(*heir), &look).is_err());
                wanted.accepts_loss = true;
            }
        }
        let (removing, back) = (Place::Removing(own.clone(), dead), Place::Normal(own.clone()));
        let change = Change {
            announcement: &removing,
            back: &back,
            before: ring,
            heirs: &heirs,
            insists: false,
        };
        self.prepare(change, host, operation).await?;
        let removed = self.steps.tell(host, &Place::Removed(own, token.clone())).await;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gossip::{Members, NodePlace};
    use crate::kit::disk::SimFileSystem;
    use crate::kit::network::{Network, RuntimeClock};
    use crate::repair::host::{Announced, RingLook};
    use crate::repair::tests::network;
    use crate::ring::{Partitioner, TokenMetadata};
    use std::collections::BTreeSet;
    use std::net::IpAddr;
    use std::sync::Mutex;
    use std::time::Duration;

    const LOCAL: [u8; 4] = [10, 0, 0, 1];

    const DEAD: [u8; 4] = [10, 0, 0, 2];

    /// A ring of two nodes. The other one is dead until this one says `returns_at`.
    #[derive(Debug)]
    struct Pair {
        returns_at: Option<fn(&Place) -> bool>,
        look: Mutex<RingLook>,
        said: Mutex<Vec<Place>>,
    }

    impl Host for Pair {
        fn look(&self) -> RingLook {
            self.look.lock().unwrap().clone()
        }

        fn announce(&self, place: &Place) {
            let mut look = self.look.lock().unwrap();
            if self.returns_at.is_some_and(|is_it| is_it(place)) {
                look.live.insert(DEAD.into());
            }
            if matches!(place, Place::Removed(..)) && !look.live.contains(&IpAddr::from(DEAD)) {
                look.members.ring.remove(DEAD.into());
            }
            self.said.lock().unwrap().push(place.clone());
        }

        fn learn(&self, _: &[NodePlace]) {}

        fn be_placed(&self) {}

        fn serve_reads(&self) {}

        fn settle(&self) {}

        fn said(&self) -> Announced {
            Announced { generation: 1, version: 1 }
        }

        fn has_heard(&self, _of: IpAddr, _announced: Announced) -> bool {
            true
        }

        fn turns_away(&self, _from: IpAddr) -> Option<&'static str> {
            None
        }

        fn is_quiet(&self) -> bool {
            true
        }
    }

    /// How a removal ends, and what was said of it last.
    async fn removal(
        returns_at: Option<fn(&Place) -> bool>,
    ) -> (Result<String, OperationError>, Place) {
        let (clock, network) = (RuntimeClock::start(), Arc::new(Network::default()));
        let storage = network::open(&SimFileSystem::new(1), Partitioner::Random, []);
        let messenger = network::messenger(LOCAL.into(), &network, &clock);
        let operations = network::operations(&storage, &messenger, 1, &clock, 1);
        let mut ring = TokenMetadata::default();
        let (own, dead) = (Token::Random(1), Token::Random(2));
        ring.insert(own.clone(), LOCAL.into());
        ring.insert(dead.clone(), DEAD.into());
        let pair = Arc::new(Pair {
            returns_at,
            look: Mutex::new(RingLook {
                members: Members { ring, ..Members::default() },
                live: BTreeSet::from([LOCAL.into()]),
                callable: BTreeSet::from([LOCAL.into()]),
                local: Some(LOCAL.into()),
                ..RingLook::default()
            }),
            said: Mutex::default(),
        });
        let host: Arc<dyn Host> = Arc::clone(&pair) as _;
        let operation = Operation::new(OperationKind::Removetoken, Duration::ZERO);
        let ended = operations.remove(&dead, false, &host, &operation).await;
        let said = pair.said.lock().unwrap().last().unwrap().clone();
        (ended, said)
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_back_while_it_is_removed_is_not_removed() {
        let (own, dead) = (Token::Random(1), Token::Random(2));
        let (ended, said) = removal(None).await;
        assert_eq!(ended.unwrap(), "10.0.0.2 is removed from the ring");
        assert_eq!(said, Place::Removed(own.clone(), dead));
        let moments: [fn(&Place) -> bool; 2] = [
            |place| matches!(place, Place::Removing(..)),
            |place| matches!(place, Place::Removed(..)),
        ];
        for moment in moments {
            let (ended, said) = removal(Some(moment)).await;
            assert!(matches!(ended, Err(OperationError::Alive(it)) if it == IpAddr::from(DEAD)));
            assert_eq!(said, Place::Normal(own.clone()), "others are not to do it later");
        }
    }
}
