//! The ring as the nodes of a script know it: what one says, all know at once.

use crate::scripts::repair::world::{Story, address, number, spell_token};
use alexandra::gossip::{NodePlace, Plan};
use alexandra::repair::{Announced, Host, Lifecycle, RingSnapshot};
use alexandra::ring::{Partitioner, Token};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

/// The ring and what is known of its nodes.
#[derive(Debug)]
pub(super) struct Board {
    pub(super) partitioner: Partitioner,
    pub(super) story: Story,
    pub(super) look: Mutex<RingSnapshot>,
    /// A dead node that comes back when a node says something that begins so.
    pub(super) comes_back: Mutex<Option<(u8, String)>>,
    /// Nodes that have not heard what others say.
    pub(super) deaf: Mutex<BTreeSet<IpAddr>>,
}

/// A node before the board.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) local: IpAddr,
    pub(super) board: Arc<Board>,
}

impl Board {
    pub(super) fn new(partitioner: Partitioner, story: &Story, look: RingSnapshot) -> Arc<Self> {
        let (story, look) = (story.clone(), Mutex::new(look));
        let (comes_back, deaf) = Default::default();
        Arc::new(Self { partitioner, story, look, comes_back, deaf })
    }

    fn spell(&self, place: &Lifecycle) -> String {
        let token = |token| spell_token(self.partitioner, token);
        match place {
            Lifecycle::Normal(at) => format!("a member at {}", token(at)),
            Lifecycle::First(at) => format!("a first member at {}", token(at)),
            Lifecycle::Again(at) => format!("a member without its data at {}", token(at)),
            Lifecycle::Joining(at) => format!("joining at {}", token(at)),
            Lifecycle::Leaving(at) => format!("leaving {}", token(at)),
            Lifecycle::Left(at) | Lifecycle::Moving { from: at, .. } => {
                format!("gone from {}", token(at))
            }
            Lifecycle::GivenUp(_) => "given up".to_owned(),
            Lifecycle::Replacing(dead) => format!("replacing {}", number(dead.endpoint)),
            Lifecycle::Replaced(dead) => format!("in the place of {}", number(dead.endpoint)),
            Lifecycle::Removing(_, dead) => format!("removing {}", number(dead.endpoint)),
            Lifecycle::Removed(_, at) => format!("done with removing {}", token(at)),
        }
    }
}

/// Changes the ring as a place says that a node takes.
fn follow(look: &mut RingSnapshot, node: IpAddr, place: &Lifecycle) {
    let (members, live) = (&mut look.members, &look.live);
    let own = |token: &Token| NodePlace { endpoint: node, token: token.clone() };
    let mut plan = None;
    match place {
        Lifecycle::Normal(token) | Lifecycle::First(token) | Lifecycle::Again(token) => {
            if matches!(place, Lifecycle::Normal(_)) && !members.is_member(node) {
                plan = Some(Plan::Arrived(own(token)));
            }
            members.ring.insert(token.clone(), node);
            members.bootstrapping.remove(&node);
            members.leaving.remove(&node);
        }
        Lifecycle::Joining(token) => _ = members.bootstrapping.insert(node, token.clone()),
        Lifecycle::Leaving(_) => _ = members.leaving.insert(node),
        Lifecycle::Left(token) | Lifecycle::Moving { from: token, .. } => {
            members.ring.remove(node);
            members.leaving.remove(&node);
            plan = Some(Plan::Gone(own(token)));
        }
        Lifecycle::GivenUp(_) => _ = members.bootstrapping.remove(&node),
        Lifecycle::Replacing(dead) => plan = Some(Plan::Replace(dead.clone())),
        Lifecycle::Replaced(dead) => {
            members.ring.remove(dead.endpoint);
            members.ring.insert(dead.token.clone(), node);
            plan = Some(Plan::Replaced(dead.clone()));
        }
        Lifecycle::Removing(_, dead) => plan = Some(Plan::Remove(dead.clone())),
        Lifecycle::Removed(_, token) => {
            if let Some(owner) = members.ring.owner(token).filter(|it| !live.contains(it)) {
                members.ring.remove(owner);
            }
        }
    }
    members.plans.remove(&node);
    members.plans.extend(plan.map(|plan| (node, plan)));
}

impl Host for Seat {
    fn look(&self) -> RingSnapshot {
        let look = self.board.look.lock().unwrap().clone();
        RingSnapshot { local: Some(self.local), ..look }
    }

    fn announce(&self, place: &Lifecycle) {
        let said = self.board.spell(place);
        self.board.story.tell(format!("{} says: {said}", number(self.local)));
        let mut look = self.board.look.lock().unwrap();
        let mut returns = self.board.comes_back.lock().unwrap();
        if let Some((node, _)) = returns.take_if(|(_, when)| said.starts_with(when.as_str())) {
            self.board.story.tell(format!("{node} is back"));
            look.live.insert(address(node));
        }
        follow(&mut look, self.local, place);
    }

    fn learn(&self, _members: &[NodePlace]) {}

    fn be_placed(&self) {}

    fn serve_reads(&self) {
        self.board.story.tell(format!("{} serves reads", number(self.local)));
    }

    fn settle(&self) {
        let mut look = self.board.look.lock().unwrap();
        look.members.plans.remove(&self.local);
    }

    fn said(&self) -> Announced {
        Announced { generation: 1, version: 1 }
    }

    fn has_heard(&self, _of: IpAddr, _announced: Announced) -> bool {
        !self.board.deaf.lock().unwrap().contains(&self.local)
    }

    fn turns_away(&self, _from: IpAddr) -> Option<&'static str> {
        None
    }

    fn schema(&self) -> u64 {
        0
    }

    fn is_quiet(&self) -> bool {
        true
    }
}
