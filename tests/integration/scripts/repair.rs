//! How a ring grows, shrinks and heals: nodes of ours among each other, and with nodes of 0.6.
//!
//! Nodes are known by numbers, which are the ends of their addresses (10.0.0.N). What one says of
//! its place, all know at once: gossip has scripts of its own. Time passes when all wait. Before
//! what a command says stands what happened meanwhile:
//!
//! ```text
//! 1 says: joining at k         what a node of ours says of its place
//! 1 -> 4: StreamRequest Blog   what a node of 0.6 hears
//! => 4: Authors Data with a b  a file that reaches a node of 0.6
//! ```

mod data;
mod host;
mod original;
mod world;

use crate::kit::network::Delivery;
use alexandra::net::Verb;
use alexandra::net::bodies::StreamFile;
use alexandra::repair::{Operation, OperationReport, Received, RepairScope, StartMode};
use alexandra::ring::{Partitioner, Token, TokenRange};
use original::{Original, Sending};
use std::error::Error;
use std::time::Duration;
use tokio::runtime::Runtime;
use world::{Plan, Story, World, address, families, number, spell_token};

#[test]
fn repair() {
    super::run_all("repair", |script| goldenscript::run(&mut Scene::new(), script).unwrap());
}

#[derive(goldenscript::Command)]
enum Command {
    /// Begins with these nodes, each with its token, or with none if it has no place yet.
    Ring {
        #[arg(key)]
        replicas: usize,
        #[arg(key)]
        partitioner: Option<String>,
        /// Those that are of 0.6.
        #[arg(key)]
        original: Option<String>,
        places: Vec<(u8, String)>,
    },
    /// Writes columns of a row at some nodes. The row key is the second argument so many times.
    Write(
        String,
        String,
        #[arg(key = "times")] Option<usize>,
        #[arg(key = "family")] Option<String>,
        #[arg(key = "at")] Option<i64>,
        Vec<(String, String)>,
    ),
    /// Deletes a row, a column, or with a name that ends with a slash a super column.
    Delete(
        String,
        String,
        Option<String>,
        #[arg(key = "family")] Option<String>,
        #[arg(key = "at")] i64,
    ),
    /// Writes many rows at some nodes, spread over the ring.
    Fill(
        String,
        #[arg(key = "rows")] usize,
        #[arg(key = "prefix")] Option<String>,
        #[arg(key = "columns")] Option<usize>,
        #[arg(key = "bytes")] Option<usize>,
    ),
    /// Shows rows of a node and a family.
    Rows(u8, Option<String>, #[arg(key = "key")] Option<String>),
    Keys(u8),
    /// Compares all that nodes have, deletions included.
    Compare(String),
    Flush(String),
    Compact(String),
    /// Lists the files of a folder.
    Ls(u8, String),
    Damage(u8, String),

    Repair(u8, Option<String>, #[arg(key = "scope")] Option<String>),
    /// Begins an operation at a node.
    Begin(u8, String, Option<String>, #[arg(key = "accept_loss", optional)] bool),
    /// Starts a node that has no place.
    Join(u8, Option<String>),
    Replace(u8, String),
    /// Waits for the end of what nodes do.
    Wait(String),
    Members,
    /// The mode of a node, as `nodetool streams` prints it.
    Mode(u8),
    Advance(String),
    Restart(String, #[arg(key = "every")] Option<String>, #[arg(key = "times")] Option<u32>),
    Down(u8),
    Up(u8),
    CutOff(u8),
    Lose(#[arg(key = "one_of")] usize),
    /// Messages take this long.
    Slow(String),
    Heal,
    /// A dead node comes back when a node says something that begins so.
    ComesBack(u8, String),
    /// A node does not hear what others say of their places.
    Deaf(u8),
    /// A node is at a token, or nowhere, without anybody saying so here.
    Place(u8, Option<String>),
    Load(u8, f64),

    /// A node of 0.6 announces files of Authors with these rows.
    Announce(
        u8,
        Vec<String>,
        #[arg(key = "keyspace")] Option<String>,
        #[arg(key = "path")] Option<String>,
        #[arg(key = "length")] Option<u64>,
    ),
    /// It announces that it has nothing of a keyspace.
    AnnounceNothing(u8, Option<String>, #[arg(key = "to")] Option<u8>),
    /// It sends all files that it has announced, or the next one in some way.
    Send(u8, Option<String>, #[arg(key = "by")] Option<u8>),
    Ready(u8),
    /// It confirms the file that has come, wants it again, or confirms another one.
    Finish(u8, Option<String>),
    /// It takes all files that were announced to it.
    Take(u8),
    TakeNone(u8),
    RefuseFiles,
    TakeFiles,
    /// It asks for a range of keyspaces, up to this token.
    Ask(u8, Vec<String>, #[arg(key = "until")] Option<String>),
    AskToken(u8),
    AnswerToken(u8, String),
    AskTree(u8),
    /// It sends the tree of these rows.
    SendTree(u8, Vec<String>),
    /// Whether the tree that it has got last is that of these rows.
    HasTreeOf(u8, Vec<String>),
    /// It says what cannot be read.
    Nonsense(u8, String),
    /// It removes a dead node, and asks nobody before.
    RemoveOriginal(u8, u8),
}

type Said = Result<String, Box<dyn Error>>;

/// The world of a script, and the time in which it lives.
struct Scene {
    story: Story,
    world: Option<World>,
    runtime: Runtime,
}

impl goldenscript::Runner for Scene {
    type Command = Command;

    fn run(&mut self, command: &Command, _context: &goldenscript::Context) -> Said {
        if let Command::Ring { .. } = command {
            // With the runtime, all ends that goes on in the world of before.
            *self = Self::new();
        }
        let Self { story, world, runtime } = self;
        let said = runtime.block_on(async {
            let said = match (command, world) {
                (Command::Ring { .. }, world) => {
                    *world = Some(begin(command, story)?);
                    Ok(String::new())
                }
                (_, Some(world)) => run(world, command).await,
                (_, None) => Err("there is no ring yet".into()),
            };
            // All that can be done now is done before the next timer.
            tokio::time::sleep(Duration::from_millis(1)).await;
            said
        })?;
        let mut lines = story.take();
        lines.extend((!said.is_empty()).then_some(said));
        Ok(lines.join("\n"))
    }
}

impl Scene {
    fn new() -> Self {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        Self { story: Story::default(), world: None, runtime }
    }
}

fn begin(command: &Command, story: &Story) -> Result<World, Box<dyn Error>> {
    let Command::Ring { replicas, partitioner, original, places } = command else {
        return Err("no ring".into());
    };
    let partitioner = match partitioner.as_deref() {
        None => Partitioner::OrderPreserving,
        Some(name) => {
            let known =
                |it: &Partitioner| it.class_name().ends_with(&format!(".{name}Partitioner"));
            Partitioner::ALL.into_iter().find(known).ok_or(format!("no partitioner {name}"))?
        }
    };
    let place = |(node, token): &(u8, String)| {
        (*node, (!token.is_empty()).then(|| World::token(partitioner, token)))
    };
    let plan = Plan {
        partitioner,
        replicas: *replicas,
        places: places.iter().map(place).collect(),
        originals: numbers(original.as_deref().unwrap_or_default())?,
    };
    Ok(World::start(&plan, story))
}

/// Numbers of nodes, as in `1/3`.
fn numbers(text: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let parts = text.split('/').filter(|it| !it.is_empty());
    Ok(parts.map(str::parse).collect::<Result<_, _>>()?)
}

/// A time as in `15ms`, `10s`, `5m` or `2h`.
fn duration(text: &str) -> Result<Duration, Box<dyn Error>> {
    let end = text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len());
    let count: u64 = text[..end].parse()?;
    match &text[end..] {
        "ms" => Ok(Duration::from_millis(count)),
        "s" => Ok(Duration::from_secs(count)),
        "m" => Ok(Duration::from_mins(count)),
        "h" => Ok(Duration::from_hours(count)),
        unit => Err(format!("there is no unit {unit:?}").into()),
    }
}

/// Does what a command says: here what operators do, and restarts.
async fn run(world: &mut World, command: &Command) -> Said {
    let partitioner = world.board.partitioner;
    let token = |text: &String| World::token(partitioner, text);
    match command {
        Command::Repair(node, family, scope) => {
            let scope = match scope.as_deref() {
                None => RepairScope::All,
                Some("primary") => RepairScope::Primary,
                Some(scope) => return Err(format!("there is no scope {scope}").into()),
            };
            let families = families(&world.node(*node)?.storage(), family.as_deref())?;
            match want(world, *node, Operation::Repair(families, scope)) {
                Err(why) => Ok(why),
                Ok(()) => wait(world, *node).await,
            }
        }
        Command::Begin(node, what, argument, accept_loss) => {
            let to = || argument.as_ref().map(token).ok_or("which token?");
            let wish = match what.as_str() {
                "repair" => {
                    let storage = world.node(*node)?.storage();
                    Operation::Repair(families(&storage, argument.as_deref())?, RepairScope::All)
                }
                "decommission" => Operation::Decommission,
                "move" => Operation::Move(to()?),
                "loadbalance" => Operation::Loadbalance,
                "remove" => Operation::Remove { token: to()?, accepts_loss: *accept_loss },
                "cleanup" => Operation::Cleanup(argument.clone()),
                what => return Err(format!("there is no operation {what}").into()),
            };
            Ok(want(world, *node, wish).err().unwrap_or_default())
        }
        Command::Join(node, to) => {
            let token = to.as_ref().map(token);
            let beginning = StartMode::Join { token, is_saved: false, former: None };
            world.node(*node)?.start(beginning);
            Ok(String::new())
        }
        Command::Replace(node, of) => {
            world.node(*node)?.start(StartMode::Replace(token(of)));
            Ok(String::new())
        }
        Command::Wait(nodes) => {
            let mut said = Vec::new();
            for node in numbers(nodes)? {
                said.push(wait(world, node).await?);
            }
            Ok(said.join("\n"))
        }
        Command::Mode(node) => Ok(world.node(*node)?.process().operations.streams().mode),
        Command::Advance(time) => {
            tokio::time::sleep(duration(time)?).await;
            Ok(String::new())
        }
        Command::Restart(nodes, every, times) => {
            let every = every.as_deref().map_or(Ok(Duration::ZERO), duration)?;
            for _ in 0..times.unwrap_or(1) {
                tokio::time::sleep(every).await;
                for node in numbers(nodes)? {
                    world.restart(node).await?;
                }
            }
            Ok(String::new())
        }
        command => stream(world, command).await,
    }
}

/// Has a node do something, which refuses it in words of its own.
fn want(world: &mut World, node: u8, wish: Operation) -> Result<(), String> {
    let node = world.node(node)?;
    let begun = node.process().operations.begin(wish);
    begun.map_err(|error| format!("Error: {error}"))
}

async fn wait(world: &mut World, node: u8) -> Said {
    Ok(match world.node(node)?.end().await {
        Ok(report) => spell(report),
        Err(why) => format!("Error: {why}"),
    })
}

/// How an operation has ended.
fn spell(report: OperationReport) -> String {
    let mut lines = Vec::new();
    for it in report.repaired.iter().filter(|it| it.ranges > 0) {
        let (read, differed) = (it.rows_read, it.rows_differed);
        let got = |it: &Received| format!(", {} gets {}", number(it.address), it.rows);
        let got: String = it.received.iter().map(got).collect();
        lines.push(format!("{}: {read} read, {differed} differed{got}", it.family));
    }
    for (node, it) in report.fetched.iter().filter(|(_, it)| it.rows > 0) {
        lines.push(format!("{} has got {} rows", number(*node), it.rows));
    }
    lines.extend(report.outcome.into_iter().flatten());
    lines.join("\n")
}

/// Files that nodes of 0.6 send and take.
async fn stream(world: &mut World, command: &Command) -> Said {
    match command {
        Command::Announce(from, rows, keyspace, path, length) => {
            world.original(*from)?.announce(1, rows, |file| StreamFile {
                keyspace: keyspace.clone().unwrap_or(file.keyspace),
                path: path.clone().unwrap_or(file.path),
                length: length.unwrap_or(file.length),
            });
        }
        Command::AnnounceNothing(from, keyspace, to) => {
            world.original(*from)?.say_files(to.unwrap_or(1), keyspace.as_deref(), &[]);
        }
        Command::Send(from, None, _) => world.original(*from)?.send_all(world, 1).await,
        Command::Send(from, Some(how), by) => {
            let how = match how.as_str() {
                "one" => Sending::Well,
                "short" => Sending::Short,
                "long" => Sending::Long,
                "garbage" => Sending::Garbage,
                "slowly" => Sending::Slowly,
                "never" => Sending::Never,
                how => return Err(format!("a file cannot be sent {how}").into()),
            };
            world.original(*from)?.send(world, (1, by.unwrap_or(*from)), how).await;
        }
        Command::Ready(from) => {
            world.original(*from)?.say(1, Verb::StreamInitiateDone, Vec::new(), b"");
        }
        Command::Finish(from, how) => match how.as_deref() {
            None => world.original(*from)?.finish(1, true)?,
            Some("again") => world.original(*from)?.finish(1, false)?,
            Some("last") => world.original(*from)?.finish_last(1)?,
            Some(how) => return Err(format!("a file is not finished {how}").into()),
        },
        Command::Take(from) => world.original(*from)?.take_all(1).await?,
        Command::TakeNone(from) => world.original(*from)?.take_none(),
        command => return speak(world, command).await,
    }
    Ok(String::new())
}

/// Other messages of nodes of 0.6.
async fn speak(world: &mut World, command: &Command) -> Said {
    let token = |text: &String| World::token(world.board.partitioner, text);
    match command {
        Command::Ask(from, keyspaces, until) => {
            let end = until.as_ref().map_or(Token::Minimum, token);
            let range = TokenRange { start: Token::Minimum, end };
            world.original(*from)?.ask(1, keyspaces, &range);
        }
        Command::AskToken(from) => {
            world.original(*from)?.say(1, Verb::BootstrapToken, Vec::new(), b"");
        }
        Command::AnswerToken(from, token) => world.original(*from)?.answer_token(token)?,
        Command::AskTree(from) => world.original(*from)?.ask_for_tree(1),
        Command::SendTree(from, rows) => {
            let original = world.original(*from)?;
            let tree = original.tree(world, rows).await;
            original.send_tree(1, &tree);
        }
        Command::HasTreeOf(from, rows) => {
            let original = world.original(*from)?;
            return Ok(original.has_got(&original.tree(world, rows).await).to_string());
        }
        Command::Nonsense(from, verb) => {
            let verbs =
                [Verb::StreamInitiate, Verb::StreamRequest, Verb::TreeRequest, Verb::TreeResponse];
            let said = verbs.into_iter().find(|it| format!("{it:?}") == *verb);
            let said = said.ok_or(format!("it does not say {verb}"))?;
            world.original(*from)?.say(1, said, Vec::new(), b"nothing of the kind");
        }
        command => return change(world, command),
    }
    Ok(String::new())
}

/// Events at nodes, in the ring and in the network.
fn change(world: &mut World, command: &Command) -> Said {
    let partitioner = world.board.partitioner;
    let mut look = world.board.look.lock().unwrap();
    match command {
        Command::Members => {
            let members = look.members.ring.members();
            let text = |(token, it)| format!("{}={}", number(it), spell_token(partitioner, token));
            return Ok(members.map(text).collect::<Vec<_>>().join(" "));
        }
        Command::Down(node) => _ = look.live.remove(&address(*node)),
        Command::Up(node) => _ = look.live.insert(address(*node)),
        Command::CutOff(node) => world.network.cut_off(address(*node)),
        Command::Lose(one_of) => world.network.lose_one_of(*one_of),
        Command::Slow(time) => {
            let time = duration(time)?;
            world.network.rule(move |_| Delivery::After(time));
        }
        Command::Heal => {
            world.network.rule(|_| Delivery::Once);
            world.board.deaf.lock().unwrap().clear();
        }
        Command::ComesBack(node, when) => {
            *world.board.comes_back.lock().unwrap() = Some((*node, when.clone()));
        }
        Command::Deaf(node) => _ = world.board.deaf.lock().unwrap().insert(address(*node)),
        Command::Place(node, Some(token)) => {
            let token = World::token(partitioner, token);
            look.members.ring.insert(token, address(*node));
        }
        Command::Place(node, None) => _ = look.members.ring.remove(address(*node)),
        Command::Load(node, bytes) => _ = look.loads.insert(address(*node), *bytes),
        Command::RefuseFiles => world.network.refuse_files(),
        Command::TakeFiles => Original::take_files(world),
        Command::RemoveOriginal(by, node) => {
            let before = look.members.ring.clone();
            look.members.ring.remove(address(*node));
            let after = look.members.ring.clone();
            drop(look);
            for node in world.nodes.values() {
                let operations = &node.process().operations;
                operations.restore(address(*by), &before, &after);
            }
        }
        command => {
            drop(look);
            return data::run(world, command);
        }
    }
    Ok(String::new())
}
