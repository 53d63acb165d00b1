//! One row, asked of several replicas: which replica is asked for data or a digest, and when the
//! answers are enough. Knows no network and no clock; the caller carries requests and answers.
//!
//! ```text
//!   round 1    the data of the closest replica, digests of as many others as are needed
//!                 all alike: done
//!                 a digest differs:
//!   round 2    the data of all who have answered, merged; what a replica lacks is its repair
//!                 too few columns are left of what was cut off at the limit:
//!   round 3…   the same with a greater limit
//! ```
//!
//! Whenever the caller finds that it takes long, one more replica is asked, so that none that is
//! slow shows as long as there are others.

use super::consistency::{ReplicaCounts, Requirement};
use super::quorum::{Question, Request};
use crate::model::schema::ColumnFamilySchema;
use crate::model::slice::Slice;
use crate::model::version::{Digest, RowVersion};
use std::net::IpAddr;
use std::sync::Arc;

/// Kind of the answer that a replica is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    /// The version of the slice.
    Data,
    /// The digest of that.
    Digest,
}

/// The answer of a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// The version of the slice.
    Data(RowVersion),
    /// The digest of that.
    Digest(Digest),
}

/// The question to one replica, and the slice of the row that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowPart {
    pub(super) ask: Ask,
    pub(super) slice: Slice,
}

/// Merged result of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resolved {
    /// Of the slice that was asked for, perhaps with more than its limit.
    pub(super) version: RowVersion,
    /// Replicas that have all of this.
    pub(super) consistent: Vec<IpAddr>,
    /// Replicas that lack something, and the data that they lack.
    pub(super) repairs: Vec<(IpAddr, RowVersion)>,
    /// The second in which it was read: what expires later counts.
    pub(super) now: i64,
}

/// A replica as one round sees it.
#[derive(Debug)]
struct Candidate {
    endpoint: IpAddr,
    /// Whether it understands digests that cover deletions of rows.
    takes_full_digests: bool,
    asked: Option<Ask>,
    data: Option<RowVersion>,
    digest: Option<Digest>,
}

impl Candidate {
    fn has_answered(&self) -> bool {
        self.data.is_some() || self.digest.is_some()
    }
}

/// A read of one row.
#[derive(Debug)]
pub(super) struct RowRead {
    family: Arc<ColumnFamilySchema>,
    wanted: Slice,
    /// The slice of this round.
    slice: Slice,
    requirement: Requirement,
    now: i64,
    /// Closest first.
    candidates: Vec<Candidate>,
    round: u32,
    compares_digests: bool,
    is_best_effort: bool,
    resolved: Option<Resolved>,
}

impl RowRead {
    /// A read in this second that may ask these replicas, the closest first, each with whether it
    /// understands digests that cover deletions of rows.
    pub(super) fn new(
        family: Arc<ColumnFamilySchema>,
        (slice, now): (Slice, i64),
        requirement: Requirement,
        candidates: impl IntoIterator<Item = (IpAddr, bool)>,
    ) -> Self {
        let candidate = |(endpoint, takes_full_digests)| Candidate {
            endpoint,
            takes_full_digests,
            asked: None,
            data: None,
            digest: None,
        };
        let candidates = candidates.into_iter().map(candidate).collect();
        let wanted = slice.clone();
        Self {
            family,
            wanted,
            slice,
            requirement,
            now,
            candidates,
            round: 1,
            compares_digests: true,
            is_best_effort: false,
            resolved: None,
        }
    }

    /// Makes the read compare as many replicas as answer in time.
    pub(super) fn best_effort(mut self) -> Self {
        self.is_best_effort = true;
        self
    }

    fn ask(&mut self, to: IpAddr, ask: Ask) -> Option<Request<RowPart>> {
        let candidate = self.candidates.iter_mut().find(|it| it.endpoint == to)?;
        candidate.asked = Some(ask);
        let what = RowPart { ask, slice: self.slice.clone() };
        Some(Request { to, round: self.round, what })
    }

    fn has_enough(&self) -> bool {
        let counts = |it: &&Candidate| {
            if self.compares_digests { it.has_answered() } else { it.data.is_some() }
        };
        let answered = self.candidates.iter().filter(counts).map(|it| it.endpoint);
        self.requirement.is_met_by(answered) && self.candidates.iter().any(|it| it.data.is_some())
    }

    fn resolve(&mut self) -> Vec<Request<RowPart>> {
        if self.compares_digests && !self.is_alike() {
            self.compares_digests = false;
            return self.next_round();
        }
        let versions: Vec<(IpAddr, &RowVersion)> = self
            .candidates
            .iter()
            .filter_map(|it| Some((it.endpoint, it.data.as_ref()?)))
            .collect();
        if self.compares_digests
            && let Some((_, version)) = versions.first()
        {
            let version = (*version).clone();
            let answered = self.candidates.iter().filter(|it| it.has_answered());
            let consistent = answered.map(|it| it.endpoint).collect();
            let (repairs, now) = (Vec::new(), self.now);
            self.resolved = Some(Resolved { version, consistent, repairs, now });
            return Vec::new();
        }
        let mut merged = RowVersion::merge(&self.family, versions.iter().map(|(_, it)| *it));
        let cut = versions.iter().filter(|(_, it)| it.is_cut(&self.family, &self.slice, self.now));
        let cut: Vec<&RowVersion> = cut.map(|(_, it)| *it).collect();
        for end in &cut {
            merged.truncate_to(&self.family, &self.slice, end);
        }
        let count = || merged.count(&self.family, &self.wanted, self.now);
        let is_short = || count() < self.wanted.limit();
        if !cut.is_empty() && is_short() {
            let limit = self.slice.limit().saturating_mul(2).saturating_add(1);
            self.slice = self.slice.with_limit(limit);
            return self.next_round();
        }
        let (mut consistent, mut repairs) = (Vec::new(), Vec::new());
        for (endpoint, version) in versions {
            match version.lacks(&self.family, &merged) {
                Some(lacking) => repairs.push((endpoint, lacking)),
                None => consistent.push(endpoint),
            }
        }
        self.resolved = Some(Resolved { version: merged, consistent, repairs, now: self.now });
        Vec::new()
    }

    /// Whether all answers of this round say the same.
    fn is_alike(&self) -> bool {
        let mut data = self.candidates.iter().filter_map(|it| it.data.as_ref());
        let Some(first) = data.next() else { return false };
        let (plain, full) = (first.digest(&self.family), first.full_digest(&self.family));
        let same_digest = |it: &Candidate| {
            it.digest
                .is_none_or(|digest| digest == if it.takes_full_digests { full } else { plain })
        };
        data.all(|other| other == first) && self.candidates.iter().all(same_digest)
    }

    /// Asks the replicas that have answered for their data, before any others.
    fn next_round(&mut self) -> Vec<Request<RowPart>> {
        self.round += 1;
        self.candidates.sort_by_key(|it| !it.has_answered());
        let mut to = Vec::new();
        for candidate in &mut self.candidates {
            if candidate.has_answered() {
                to.push(candidate.endpoint);
            }
            (candidate.asked, candidate.data, candidate.digest) = (None, None, None);
        }
        to.into_iter().filter_map(|to| self.ask(to, Ask::Data)).collect()
    }
}

impl Question for RowRead {
    type What = RowPart;
    type Reply = Reply;
    type Answer = Resolved;

    fn begin(&mut self) -> Vec<Request<RowPart>> {
        let endpoints: Vec<IpAddr> = self.candidates.iter().map(|it| it.endpoint).collect();
        let chosen = self.requirement.choose(&endpoints);
        let ask = |place| if place == 0 { Ask::Data } else { Ask::Digest };
        let asks: Vec<_> =
            chosen.into_iter().enumerate().map(|(place, to)| (to, ask(place))).collect();
        asks.into_iter().filter_map(|(to, ask)| self.ask(to, ask)).collect()
    }

    fn on_reply(&mut self, from: IpAddr, reply: Reply) -> Vec<Request<RowPart>> {
        if self.resolved.is_some() {
            return Vec::new();
        }
        let Some(candidate) = self.candidates.iter_mut().find(|it| it.endpoint == from) else {
            return Vec::new();
        };
        match reply {
            Reply::Data(version) => candidate.data = Some(version),
            Reply::Digest(digest) => candidate.digest = Some(digest),
        }
        if self.has_enough() { self.resolve() } else { Vec::new() }
    }

    fn on_slow(&mut self) -> Vec<Request<RowPart>> {
        if self.resolved.is_some() {
            return Vec::new();
        }
        let has_data = self.candidates.iter().any(|it| it.data.is_some());
        let ask = if self.compares_digests && has_data { Ask::Digest } else { Ask::Data };
        let unasked = self.candidates.iter().find(|it| it.asked.is_none());
        // The one that was asked for the data may be the one that is slow.
        let with_digest_only =
            || self.candidates.iter().find(|it| it.asked == Some(Ask::Digest) && ask == Ask::Data);
        let next = unasked.or_else(with_digest_only).map(|it| it.endpoint);
        next.and_then(|to| self.ask(to, ask)).into_iter().collect()
    }

    fn on_failure(&mut self, _from: IpAddr) -> Option<Vec<Request<RowPart>>> {
        (self.candidates.len() > 1).then(|| self.on_slow())
    }

    fn on_deadline(&mut self) -> Option<Vec<Request<RowPart>>> {
        if !self.is_best_effort {
            return None;
        }
        self.candidates.retain(Candidate::has_answered);
        if self.candidates.len() < 2 {
            return None;
        }
        self.requirement = Requirement::any(self.candidates.len());
        if self.has_enough() {
            return Some(self.resolve());
        }
        // All answers so far are digests.
        self.compares_digests = false;
        Some(self.next_round())
    }

    fn round(&self) -> u32 {
        self.round
    }

    fn counts(&self) -> ReplicaCounts {
        let answered = self.candidates.iter().filter(|it| it.has_answered());
        let counts = self.requirement.check(answered.map(|it| it.endpoint));
        let counts = counts.err().unwrap_or(ReplicaCounts::NONE);
        if self.round > 1 {
            // All have answered, if not alike.
            return ReplicaCounts { present: counts.required - 1, has_data: true, ..counts };
        }
        let has_data = self.candidates.iter().any(|it| it.data.is_some());
        ReplicaCounts { has_data, ..counts }
    }

    fn take_answer(&mut self) -> Option<Resolved> {
        self.resolved.take()
    }
}

#[cfg(test)]
mod tests;
