//! Whom hints are for, as nodes move and leave.

use super::Handoff;
use crate::replica::TargetStats;
use crate::ring::TokenMetadata;
use std::net::IpAddr;

impl Handoff {
    /// Takes up the ring as it was saved. The owners of hints may be of a moment when it was
    /// not saved yet that a target was back.
    pub(in crate::node) fn start(&self, ring: &TokenMetadata) {
        let hints = &self.options.hints;
        for (_, endpoint) in ring.members() {
            hints.clear_owner(endpoint);
        }
        self.lock().ring = ring.clone();
        for TargetStats { target, bytes, .. } in hints.targets() {
            match hints.recipient(target) {
                owner if owner != target => {
                    log::info!("there are hints for {target}: {bytes} bytes, which {owner} gets");
                }
                _ => log::info!("there are hints for {target}: {bytes} bytes"),
            }
        }
        if let Some(line) = self.strangers(ring) {
            log::warn!("{line}");
        }
    }

    /// What there is for nodes that have no place on the ring, as a line for the log.
    pub(super) fn strangers(&self, ring: &TokenMetadata) -> Option<String> {
        let hints = &self.options.hints;
        let targets = hints.targets().into_iter().filter(|it| {
            let recipient = hints.recipient(it.target);
            ring.token(recipient).is_none()
        });
        let strangers: Vec<String> = targets
            .map(|it| format!("{} ({} hints, {} bytes)", it.target, it.hints, it.bytes))
            .collect();
        let list = strangers.join(", ");
        (!strangers.is_empty()).then(|| {
            format!(
                "there are hints for nodes that are not in the ring: {list}. They are delivered if \
                 these come back, and kept until they are too old (HintMaxAgeHours)"
            )
        })
    }

    /// The ring is like this now. Who has taken the place of another gets its hints.
    pub(in crate::node) fn follow(&self, ring: &TokenMetadata) {
        let before = {
            let mut state = self.lock();
            if state.ring == *ring {
                return;
            }
            std::mem::replace(&mut state.ring, ring.clone())
        };
        let hints = &self.options.hints;
        for (from, to) in departures(&before, ring) {
            let count = self.count_for(from);
            if let Some(to) = to {
                if count > 0 {
                    log::info!("{to} has taken the place of {from} and gets its {count} hints");
                }
                hints.set_owner(from, to);
                self.interrupt(from);
                self.hasten(from);
            } else if count > 0 {
                log::info!(
                    "{from} has left the ring: {count} hints for it are delivered if it comes \
                     back, and kept until they are too old (HintMaxAgeHours)"
                );
            }
        }
        for (_, endpoint) in ring.members() {
            if hints.clear_owner(endpoint) {
                log::info!("{endpoint} has a place of its own and gets its hints");
            }
        }
    }

    /// About how many hints a node is to get.
    fn count_for(&self, recipient: IpAddr) -> u64 {
        let hints = &self.options.hints;
        let targets = hints.targets().into_iter();
        targets.filter(|it| hints.recipient(it.target) == recipient).map(|it| it.hints).sum()
    }
}

/// Who has no place any more, and who has it now.
fn departures(before: &TokenMetadata, now: &TokenMetadata) -> Vec<(IpAddr, Option<IpAddr>)> {
    let gone = before.members().filter(|(_, endpoint)| now.token(*endpoint).is_none());
    gone.map(|(token, endpoint)| (endpoint, now.owner(token))).collect()
}
