//! Runs the scripts of the coordinator, with replicas, hints and storage as its world.
//!
//! Nodes are called 1, 2, 3. A prefix says which of them a client asks: `2: read a level=ONE`.
//! A value `600B` has so many bytes, a key `a00..a19` stands for twenty rows, a value `x@5` has the
//! timestamp 5. With the tag `[later]` a request goes on while others begin; `finish` waits for it.

mod command;
mod outsider;
mod requests;
mod text;
mod world;

use crate::kit::disk::{Fault, Operation};
use crate::kit::network::Delivery;
use alexandra::base::context::RequestContext;
use alexandra::coordinator::Coordinator;
use alexandra::model::key::RowKey;
use alexandra::model::mutation::RowMutation;
use alexandra::model::schema::FamilyId;
use alexandra::model::slice::Slice;
use alexandra::model::version::RowVersion;
use alexandra::net::Verb;
use alexandra::replica::Readiness;
use alexandra::ring::{Partitioner, Token};
use alexandra::storage::sstable::Access;
use command::Command;
use goldenscript::Context;
use outsider::Question;
use requests::Work;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use text::{duration, level, shorten};
use tokio::task::JoinHandle;
use world::{Rule, Setup, World};

type Outcome = Result<String, Box<dyn Error>>;

#[test]
fn coordinator() {
    super::run_all("coordinator", |path| {
        goldenscript::run(&mut Runner::default(), path).unwrap();
    });
}

/// Plays a script.
#[derive(Default)]
struct Runner {
    world: Option<World>,
    later: Vec<JoinHandle<String>>,
}

impl goldenscript::Runner for Runner {
    type Command = Command;

    fn run(&mut self, command: &Command, context: &Context) -> Outcome {
        if let Command::Nodes { .. } = command {
            self.later.clear();
            // The one before ends first.
            self.world = None;
            self.world = Some(World::start(setup(command)?));
            return Ok(String::new());
        }
        let world = self.world.as_mut().ok_or("there are no nodes yet")?;
        let client = context.prefix.as_deref().unwrap_or("1").parse()?;
        if let Command::Finish = command {
            let lines: Vec<String> =
                self.later.drain(..).map(|it| world.run(it).unwrap()).collect();
            return Ok(lines.join("\n"));
        }
        if let Command::Ask { .. } = command {
            return world.question(command);
        }
        let Some(work) = world.request(client, command, context)? else {
            return world.change(command)?.map_or_else(|| world.show(command), Ok);
        };
        if context.tags.contains("later") {
            let line = async { work.await.unwrap_or_else(|error| format!("Error: {error}")) };
            self.later.push(world.spawn(line));
            return Ok(String::new());
        }
        Ok(world.run(work)?)
    }
}

/// The cluster that a script wants.
fn setup(command: &Command) -> Result<Setup, Box<dyn Error>> {
    let Command::Nodes {
        count,
        replicas,
        members,
        data_centers,
        by_data_center,
        speculate,
        compare,
        request_bytes,
        message_bytes,
        hint_bytes,
        features,
    } = command
    else {
        return Err("that makes no cluster".into());
    };
    let known = ["threads", "dynamic-snitch", "batch", "unready"];
    if let Some(unknown) = features.iter().find(|it| !known.contains(&it.as_str())) {
        return Err(format!("{unknown} is no feature of a cluster").into());
    }
    let has = |feature: &str| features.iter().any(|it| it == feature);
    let data_centers = match data_centers {
        Some(list) => list.split('.').map(str::parse).collect::<Result<_, _>>()?,
        None => vec![0; *count],
    };
    let factor = |text: &str| {
        let (name, factor) = text.split_once('/').ok_or("a number is missing")?;
        Ok::<_, Box<dyn Error>>((name.to_owned(), factor.parse()?))
    };
    let factors = by_data_center.iter().flat_map(|list| list.split('.')).map(factor);
    Ok(Setup {
        data_centers,
        members: members.unwrap_or(*count),
        replication_factor: replicas.unwrap_or(3),
        by_data_center: factors.collect::<Result<_, _>>()?,
        has_threads: has("threads"),
        is_batch: has("batch"),
        is_ready: !has("unready"),
        request_bytes: request_bytes.unwrap_or(1 << 28),
        message_bytes: message_bytes.unwrap_or(usize::MAX),
        hint_bytes: hint_bytes.unwrap_or(1 << 30),
        speculative_percentile: *speculate,
        repair_chance: compare.unwrap_or(0.0),
        has_dynamic_snitch: has("dynamic-snitch"),
    })
}

impl World {
    fn coordinator(&self, number: usize) -> &Arc<Coordinator> {
        &self.nodes[number - 1].coordinator
    }

    /// The column family of this name in the replicated keyspace, or the one that is not.
    fn family(&self, name: Option<&str>) -> Result<FamilyId, Box<dyn Error>> {
        let (keyspace, name) = match name {
            Some("system") => ("system", "Rows"),
            name => ("Blog", name.unwrap_or("Rows")),
        };
        self.schema.family_id(keyspace, name).ok_or_else(|| format!("there is no {name}").into())
    }

    fn rows(
        &self,
        family: FamilyId,
        keys: &[String],
        columns: &[(String, String)],
    ) -> Result<Vec<RowMutation>, String> {
        let keys = keys.iter().flat_map(|key| text::keys(key));
        keys.map(|key| requests::insert(&self.schema, family, &key, columns)).collect()
    }

    /// The work that a client of a node asks for; `None` if the command is no request.
    fn request(
        &self,
        client: usize,
        command: &Command,
        context: &Context,
    ) -> Result<Option<Work>, Box<dyn Error>> {
        let coordinator = self.coordinator(client);
        Ok(Some(match command {
            Command::Write { keys, level: at, family, columns } => {
                let rows = self.rows(self.family(family.as_deref())?, keys, columns)?;
                let is_each = context.tags.contains("each");
                requests::write(coordinator, rows, level(at)?, is_each)
            }
            Command::Delete { key, column, at, level: wanted, family } => {
                let family = self.family(family.as_deref())?;
                let row = requests::deletion(&self.schema, family, key, column.as_deref(), *at)?;
                requests::write(coordinator, vec![row], level(wanted)?, false)
            }
            Command::Read { keys, level: at, family, from, to, limit, columns } => {
                let family = self.family(family.as_deref())?;
                let (from, to) = (from.as_deref().unwrap_or(""), to.as_deref().unwrap_or(""));
                let slice = match columns {
                    Some(names) => {
                        let names = names.split('.').map(str::as_bytes);
                        Slice::names(self.schema.family(family), None, names)
                    }
                    None => slice(from, to, *limit),
                };
                let keys = keys.iter().flat_map(|key| text::keys(key)).collect();
                requests::read(coordinator, family, keys, slice, level(at)?)
            }
            Command::Count { key, level: at, family, below } => {
                let family = self.family(family.as_deref())?;
                requests::count(coordinator, family, key, below.clone(), level(at)?)
            }
            Command::Scan { level: at, family, rows, from, to, limit } => {
                let range = requests::range(from.as_deref(), to.as_deref());
                let family = self.family(family.as_deref())?;
                let slice = slice("", "", *limit);
                requests::scan(coordinator, family, range, slice, *rows, level(at)?)
            }
            Command::Splits { rows } => requests::splits(coordinator, *rows),
            _ => return Ok(None),
        }))
    }

    /// Changes nodes, network, time or disks. `None` if the command changes nothing.
    fn change(&mut self, command: &Command) -> Result<Option<String>, Box<dyn Error>> {
        let done = self.change_data(command)?
            || self.change_network(command)?
            || self.change_cluster(command)?
            || self.change_disk(command);
        Ok(done.then(String::new))
    }

    fn change_data(&mut self, command: &Command) -> Result<bool, Box<dyn Error>> {
        let family = self.family(None)?;
        let (node, rows) = match command {
            Command::Put { node, keys, columns } => (node, self.rows(family, keys, columns)?),
            Command::Drop { node, key, column, at } => {
                let column = column.as_deref();
                (node, vec![requests::deletion(&self.schema, family, key, column, *at)?])
            }
            _ => return Ok(false),
        };
        self.nodes[node - 1].storage.apply_all(&rows, true)?;
        Ok(true)
    }

    fn change_network(&mut self, command: &Command) -> Result<bool, Box<dyn Error>> {
        let rule = match command {
            Command::Lose { from, to, verb } => (from, to, verb, Delivery::Never),
            Command::Delay { by, from, to, verb } => {
                (from, to, verb, Delivery::After(duration(by)?))
            }
            Command::Repeat { verb } => (&None, &None, verb, Delivery::Twice),
            Command::Heal => {
                self.rules.lock().unwrap().clear();
                return Ok(true);
            }
            Command::Advance { by } => {
                self.advance(duration(by)?);
                return Ok(true);
            }
            _ => return Ok(false),
        };
        let (from, to, verb, delivery) = rule;
        let address = |number: &Option<usize>| number.map(|number| self.address(number));
        let verb = verb.as_deref().map(verb_of);
        let (from, to, verb) = (address(from), address(to), verb.transpose()?);
        self.rules.lock().unwrap().push(Rule { from, to, verb, delivery });
        Ok(true)
    }

    fn addresses(&self, numbers: &[usize]) -> BTreeSet<IpAddr> {
        numbers.iter().map(|number| self.address(*number)).collect()
    }

    fn change_cluster(&mut self, command: &Command) -> Result<bool, Box<dyn Error>> {
        let token = |text: &str| Token::ordered(text.as_bytes().into());
        match command {
            Command::Alive { nodes } => self.peers.live = self.addresses(nodes),
            Command::Collecting { nodes } => self.peers.incomplete = self.addresses(nodes),
            Command::Unsettled { nodes } => self.peers.unsure = self.addresses(nodes),
            Command::Removed { nodes } => self.peers.removed = self.addresses(nodes),
            Command::Old { nodes } => {
                let old = self.addresses(nodes);
                self.peers.full_digests.retain(|node| !old.contains(node));
                self.peers.refusals.retain(|node| !old.contains(node));
            }
            Command::Joining { node, token: at } => {
                self.ring.begin_bootstrap(token(at), self.address(*node))?;
            }
            Command::Joined { node, token: at } => {
                self.ring.insert(token(at), self.address(*node));
            }
            Command::Leaving { node } => _ = self.ring.begin_leave(self.address(*node)),
            Command::Left { node } => _ = self.ring.remove(self.address(*node)),
            Command::Readiness { node, readiness } => {
                let readiness = match readiness.as_str() {
                    "alone" => Readiness::Alone,
                    "placed" => Readiness::Placed,
                    "complete" => Readiness::Complete,
                    other => return Err(format!("{other} is no readiness").into()),
                };
                self.nodes[node - 1].readiness.raise(readiness);
            }
            Command::RefuseWrites { node } => self.coordinator(*node).refuse_writes(),
            Command::Distrust { node } => self.coordinator(*node).trust_until(Duration::ZERO),
            Command::GiveUp { node } => self.nodes[node - 1].messenger.give_up_all(),
            _ => return Ok(false),
        }
        self.tell_all();
        Ok(true)
    }

    fn change_disk(&mut self, command: &Command) -> bool {
        match command {
            Command::Stall { node } => self.stall(*node),
            Command::StallSyncs { node } => self.stall_syncs(*node),
            Command::GoOn { node } => self.go_on(*node),
            Command::Flush { node } => {
                let storage = &self.nodes[node - 1].storage;
                self.schema.families().for_each(|(family, _)| storage.flush(family).unwrap());
            }
            Command::SyncHints { node } => self.nodes[node - 1].hints.sync().unwrap(),
            Command::BreakReads { node } => {
                let broken = Fault::next(Operation::Read, Errno::IO).on("/data");
                self.nodes[node - 1].disk.inject(Fault { times: u64::MAX, ..broken });
            }
            Command::Fill { node } => self.fill(*node),
            Command::Free { node } => self.nodes[node - 1].disk.set_capacity(None),
            _ => return false,
        }
        true
    }

    /// Prints what a command asks for.
    fn show(&self, command: &Command) -> Outcome {
        Ok(match command {
            Command::Stored { key } => self.stored(key),
            Command::Hints => self.hints(),
            Command::Messages => self.messages(),
            Command::Ring => self.show_ring(),
            Command::Stats { node } => self.stats(*node),
            Command::Drops { node } => {
                let drops = &self.nodes[node - 1].drops;
                let dropped = Verb::all().map(|verb| (verb, drops.total(verb)));
                let dropped = dropped.filter(|(_, count)| *count > 0);
                let lines = dropped.map(|(verb, count)| format!("{count} {verb}"));
                lines.collect::<Vec<_>>().join("\n")
            }
            Command::Latencies { node } => self.latencies(*node),
            Command::Quiet { node } => self.coordinator(*node).is_quiet().to_string(),
            _ => return Err("there is nothing to show".into()),
        })
    }

    /// A message of the outsider, and what is answered.
    fn question(&mut self, command: &Command) -> Outcome {
        let Command::Ask { node, verb: name, key, hint, times, deleted_at, features, columns } =
            command
        else {
            return Err("that is no question".into());
        };
        let known = ["digest", "refusals", "full-digests", "cut", "odd-hint"];
        if let Some(unknown) = features.iter().find(|it| !known.contains(&it.as_str())) {
            return Err(format!("{unknown} is nothing that a question can have").into());
        }
        let row = match deleted_at {
            Some(at) => requests::deletion(&self.schema, self.family(None)?, key, None, *at)?,
            None => requests::insert(&self.schema, self.family(None)?, key, columns)?,
        };
        let hints = hint.iter().flat_map(|list| list.split('.'));
        let hints = hints.map(|number| Ok(self.address(number.parse()?)));
        let hints = hints.collect::<Result<_, Box<dyn Error>>>()?;
        let question = Question { verb: verb_of(name)?, row, hints, features };
        self.ask(*node, &question, times.unwrap_or(1))
    }

    /// All that a node has of a row.
    fn version(&self, number: usize, key: &RowKey) -> RowVersion {
        let (family, all) = (self.family(None).unwrap(), Slice::all(None));
        let (context, storage) = (RequestContext::default(), &self.nodes[number - 1].storage);
        let version = self.run(async {
            storage.family(family).read_version(key, &all, &context, Access::Cached)
        });
        version.unwrap()
    }

    fn stored(&self, key: &str) -> String {
        let line =
            |number| format!("{number}: {}\n", text::version(&self.version(number, &key.into())));
        (1..=self.nodes.len()).map(line).collect()
    }

    fn hints(&self) -> String {
        let lines = self.nodes.iter().zip(1..).flat_map(|(node, number)| {
            let line = move |it: alexandra::replica::TargetStats| {
                format!("{number} has {} for {}\n", it.hints, self.number(it.target))
            };
            node.hints.targets().into_iter().map(line)
        });
        let lines: String = lines.collect();
        if lines.is_empty() { "none".to_owned() } else { lines }
    }

    fn messages(&self) -> String {
        let mut lines: Vec<(String, usize)> = Vec::new();
        for sent in self.network.take_sent() {
            let (from, to) = (self.number(sent.from), self.number(sent.to));
            let line = format!("{from} to {to}: {}", sent.verb);
            match lines.iter_mut().find(|(known, _)| *known == line) {
                Some((_, count)) => *count += 1,
                None => lines.push((line, 1)),
            }
        }
        let lines = lines.into_iter().map(|(line, count)| match count {
            1 => line,
            count => format!("{line}, {count} times"),
        });
        let lines: Vec<String> = lines.collect();
        if lines.is_empty() { "none".to_owned() } else { lines.join("\n") }
    }

    fn latencies(&self, number: usize) -> String {
        let snitch = &self.nodes[number - 1].snitch;
        let lines = (1..=self.nodes.len()).map(|replica| {
            let known = snitch.latencies(self.address(replica));
            let known: Vec<String> = known.iter().map(|it| format!("{it:?}")).collect();
            let is_unknown = known.is_empty();
            format!(
                "{replica}: {}\n",
                if is_unknown { "none".into() } else { shorten(&known, " ") }
            )
        });
        lines.collect()
    }

    fn show_ring(&self) -> String {
        let ring = &self.ring;
        let place = |kind: &str, token: &Token, node| {
            let token = Partitioner::OrderPreserving.display_token(token);
            format!("{token}: {} {kind}\n", self.number(node))
        };
        let members = ring.members().map(|(token, node)| {
            let kind = if ring.is_leaving(node) { "leaves" } else { "owns" };
            place(kind, token, node)
        });
        members
            .chain(ring.bootstrapping().map(|(token, node)| place("joins", token, node)))
            .collect()
    }

    fn stats(&self, number: usize) -> String {
        let stats = self.coordinator(number).stats();
        let counts = [
            ("speculations", stats.speculations),
            ("repairs", stats.repairs),
            ("comparisons", stats.comparisons),
            ("missed writes", stats.missed_writes),
        ];
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        let lines: Vec<String> = counts.map(|(name, count)| format!("{name}: {count}")).collect();
        if lines.is_empty() { "nothing".to_owned() } else { shorten(&lines, "\n") }
    }
}

fn verb_of(name: &str) -> Result<Verb, String> {
    let verb = Verb::all().find(|verb| verb.to_string() == *name);
    verb.ok_or_else(|| format!("{name} is no verb"))
}

fn slice(from: &str, to: &str, limit: Option<usize>) -> Slice {
    Slice::range(None, from.as_bytes(), to.as_bytes(), false, limit.unwrap_or(usize::MAX))
}
