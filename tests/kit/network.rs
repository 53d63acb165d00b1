//! A network within the process, which does to messages what a test wants. Every message is encoded
//! and decoded on its way. Time is that of the runtime.

use alexandra::base::clock::Clock;
use alexandra::net::message::Message;
use alexandra::net::{Channel, Doing, FileConnection, Transport, Verb};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fmt, io};
use tokio::io::DuplexStream;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The time of the runtime, which moves only when all wait if a test has paused it. Threads of
/// others see it as well.
#[derive(Debug)]
pub(crate) struct RuntimeClock {
    runtime: Handle,
    started: Instant,
    ahead: Duration,
}

impl RuntimeClock {
    /// A clock at 2020-09-13T12:26:40Z.
    pub(crate) fn start() -> Arc<dyn Clock> {
        Self::since(Instant::now(), Duration::ZERO)
    }

    /// A clock that is this far ahead of one which was at that time when the test started.
    pub(crate) fn since(started: Instant, ahead: Duration) -> Arc<dyn Clock> {
        Arc::new(Self { runtime: Handle::current(), started, ahead })
    }
}

impl Clock for RuntimeClock {
    fn now_micros(&self) -> i64 {
        let since = self.monotonic() + self.ahead;
        1_600_000_000_000_000 + since.as_micros() as i64
    }

    fn monotonic(&self) -> Duration {
        let _runtime = self.runtime.enter();
        self.started.elapsed()
    }
}

/// A message on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) verb: Verb,
}

/// Delivery of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    Once,
    Never,
    After(Duration),
    Twice,
}

type Rule = Box<dyn FnMut(Sent) -> Delivery + Send>;

/// Messages that arrive at a node, in order.
pub(crate) type Arrivals<T> = mpsc::UnboundedReceiver<T>;

/// The network. A transport at every node.
pub(crate) struct Network {
    inboxes: Mutex<BTreeMap<IpAddr, mpsc::UnboundedSender<Arc<[u8]>>>>,
    /// Takes connections for files. Without it they are refused.
    files: Mutex<Option<mpsc::UnboundedSender<(IpAddr, DuplexStream)>>>,
    rule: Mutex<Rule>,
    sent: Mutex<Vec<Sent>>,
    max_body_bytes: usize,
}

impl Default for Network {
    fn default() -> Self {
        Self::with_max_body(usize::MAX)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}

impl Network {
    /// A network on which a longer body is a bug.
    pub(crate) fn with_max_body(bytes: usize) -> Self {
        Self {
            inboxes: Mutex::default(),
            files: Mutex::default(),
            rule: Mutex::new(Box::new(|_| Delivery::Once)),
            sent: Mutex::default(),
            max_body_bytes: bytes,
        }
    }

    /// Messages for these nodes from now on.
    pub(crate) fn messages_to(&self, nodes: &[IpAddr]) -> Arrivals<Arc<[u8]>> {
        let (inbox, arrivals) = mpsc::unbounded_channel();
        self.inboxes.lock().unwrap().extend(nodes.iter().map(|node| (*node, inbox.clone())));
        arrivals
    }

    /// Connections for files from now on, each with the node that it is made to.
    pub(crate) fn take_files(&self) -> Arrivals<(IpAddr, DuplexStream)> {
        let (sender, files) = mpsc::unbounded_channel();
        *self.files.lock().unwrap() = Some(sender);
        files
    }

    pub(crate) fn refuse_files(&self) {
        *self.files.lock().unwrap() = None;
    }

    /// Decides about messages from now on.
    pub(crate) fn rule(&self, rule: impl FnMut(Sent) -> Delivery + Send + 'static) {
        *self.rule.lock().unwrap() = Box::new(rule);
    }

    /// Loses every nth message from now on.
    pub(crate) fn lose_one_of(&self, n: usize) {
        let mut sent = 0_usize;
        self.rule(move |_| {
            sent += 1;
            if sent.is_multiple_of(n) { Delivery::Never } else { Delivery::Once }
        });
    }

    /// Loses all messages to a node from now on.
    pub(crate) fn cut_off(&self, node: IpAddr) {
        self.rule(move |sent| if sent.to == node { Delivery::Never } else { Delivery::Once });
    }

    /// Messages that were sent since the last call.
    pub(crate) fn take_sent(&self) -> Vec<Sent> {
        std::mem::take(&mut self.sent.lock().unwrap())
    }

    fn inbox(&self, node: IpAddr) -> mpsc::UnboundedSender<Arc<[u8]>> {
        self.inboxes.lock().unwrap()[&node].clone()
    }
}

impl Transport for Network {
    fn send(&self, to: IpAddr, channel: Channel, message: Arc<[u8]>, _deadline: Duration) {
        let decoded = Message::decode(&message).unwrap();
        assert!(channel == decoded.verb.channel() || channel == Channel::Bulk, "{decoded:?}");
        assert!(decoded.body.len() <= self.max_body_bytes, "{decoded:?} is too large");
        let sent = Sent { from: decoded.from, to, verb: decoded.verb };
        self.sent.lock().unwrap().push(sent);
        let delivery = self.rule.lock().unwrap()(sent);
        // A node that has ended hears nothing.
        let inbox = self.inbox(to);
        match delivery {
            Delivery::Once => _ = inbox.send(message),
            Delivery::Never => {}
            Delivery::After(delay) => {
                tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    let _ = inbox.send(message);
                });
            }
            Delivery::Twice => {
                let _ = inbox.send(Arc::clone(&message));
                let _ = inbox.send(message);
            }
        }
    }

    fn disconnect(&self, _peer: IpAddr) {}

    fn set_checksums(&self, _peer: IpAddr, _checksums: bool) {}

    fn dial_for_file(&self, to: IpAddr) -> Doing<'_, io::Result<FileConnection>> {
        Box::pin(async move {
            let files = self.files.lock().unwrap();
            let Some(files) = &*files else {
                return Err(io::ErrorKind::ConnectionRefused.into());
            };
            let (ours, theirs) = tokio::io::duplex(4096);
            files.send((to, theirs)).unwrap();
            Ok(Box::pin(ours) as FileConnection)
        })
    }
}
