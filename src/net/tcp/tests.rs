//! Nodes that speak to each other, and to worse, over real sockets of the loopback network. Each
//! test has addresses of its own there.

use super::*;
use crate::kit::clock::ManualClock;
use crate::net::frame::{Frame, FrameReader, put_frame};
use crate::net::message::MessageError;
use crate::net::transport::IncomingFile;
use std::io::{Read, Write};
use std::net::{TcpListener as RawListener, TcpStream as RawStream};
use std::sync::mpsc;

/// Far in the future.
const NEVER: Duration = Duration::MAX;

/// Longer than anything takes: what has not come by then will not come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Notes what arrives.
struct Ear(mpsc::Sender<Vec<u8>>);

impl Inbound for Ear {
    fn receive(&self, payload: &[u8]) -> Result<(), MessageError> {
        // The test may have ended.
        let _ = self.0.send(payload.to_vec());
        Ok(())
    }

    fn receive_file(&self, from: IpAddr, mut file: IncomingFile) -> Doing<'_, ()> {
        Box::pin(async move {
            let (mut bytes, mut room) = (from.to_string().into_bytes(), [0; 1000]);
            while let Ok(count @ 1..) = file.read(&mut room).await {
                bytes.extend_from_slice(&room[..count]);
            }
            let _ = self.0.send(bytes);
        })
    }
}

struct Node {
    transport: TcpTransport,
    clock: Arc<ManualClock>,
    heard: mpsc::Receiver<Vec<u8>>,
}

impl Node {
    fn start(listen: SocketAddr) -> Self {
        Self::with(TcpOptions::new(listen))
    }

    fn with(options: TcpOptions) -> Self {
        let clock = Arc::new(ManualClock::default());
        let transport = TcpTransport::bind(options, Arc::<ManualClock>::clone(&clock)).unwrap();
        let (sender, heard) = mpsc::channel();
        transport.serve(Arc::new(Ear(sender)));
        Self { transport, clock, heard }
    }

    fn ip(&self) -> IpAddr {
        self.transport.address().ip()
    }

    fn send(&self, to: IpAddr, channel: Channel, message: &[u8]) {
        self.transport.send(to, channel, message.into(), NEVER);
    }

    fn hear(&self) -> Vec<u8> {
        self.heard.recv_timeout(PATIENCE).expect("a message arrives")
    }

    fn stats(&self, peer: IpAddr) -> PeerStats {
        let stats = self.transport.stats();
        stats.into_iter().find(|(address, _)| *address == peer).map(|(_, stats)| stats).unwrap()
    }

    /// Waits until nothing is open to a peer on this channel, nor waits.
    fn until_closed(&self, peer: IpAddr, channel: Channel) {
        let peer = self.transport.shared.peers.find(peer).unwrap();
        until(|| peer.queue(channel).is_idle());
    }
}

fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        std::thread::yield_now();
    }
}

/// An address for one test and one node, on a port that the system chooses.
fn address(test: u8, node: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, test, node], 0))
}

/// Two nodes with one port.
fn pair(test: u8) -> (Node, Node) {
    let a = Node::start(address(test, 1));
    let mut other = address(test, 2);
    other.set_port(a.transport.address().port());
    (a, Node::start(other))
}

/// A node, and a peer that is only a listening socket.
fn node_and_socket(test: u8, change: impl FnOnce(&mut TcpOptions)) -> (Node, RawListener) {
    let mut options = TcpOptions::new(address(test, 1));
    change(&mut options);
    let node = Node::with(options);
    let mut other = address(test, 2);
    other.set_port(node.transport.address().port());
    (node, RawListener::bind(other).unwrap())
}

/// Sends a file on a connection of its own.
fn send_file(node: &Node, to: IpAddr, bytes: &[u8]) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connection = node.transport.dial_for_file(to).await?;
        connection.write_all(bytes).await?;
        connection.shutdown().await
    })
}

#[test]
fn a_file_comes_from_the_address_of_its_sender() {
    let (a, b) = pair(40);
    for length in [0, 3, 300_000] {
        let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        send_file(&a, b.ip(), &bytes).unwrap();
        assert_eq!(b.hear(), [a.ip().to_string().as_bytes(), &bytes].concat());
    }
    // Messages are not held up by it.
    a.send(b.ip(), Channel::Command, b"message");
    assert_eq!(b.hear(), b"message");
    assert!(send_file(&a, [127, 0, 40, 9].into(), b"nobody listens there").is_err());
}

fn framed(message: &[u8], checksummed: bool) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(put_frame(&mut out, message, checksummed));
    out
}

/// Reads messages from a socket until it ends or there are so many.
fn read_messages(stream: &mut RawStream, count: usize) -> Vec<Vec<u8>> {
    let (mut frames, mut messages) = (FrameReader::new(), Vec::new());
    while messages.len() < count {
        let Ok(read @ 1..) = stream.read(frames.space()) else { break };
        frames.filled(read);
        while let Some(frame) = frames.next_frame().unwrap() {
            let Frame::Message(payload) = frame else { panic!("no file was sent") };
            messages.push(payload.to_vec());
        }
    }
    messages
}

#[test]
fn messages_arrive_in_order_on_each_channel() {
    const COUNT: u32 = 5000;
    let (a, b) = pair(1);
    a.transport.set_checksums(b.ip(), true);
    let message = |channel: u8, i: u32| [&[channel][..], &i.to_be_bytes(), &[7; 90]].concat();
    for i in 0..COUNT {
        a.send(b.ip(), Channel::Ack, &message(0, i));
        a.send(b.ip(), Channel::Command, &message(1, i));
    }
    let mut heard: [Vec<Vec<u8>>; 2] = Default::default();
    for _ in 0..2 * COUNT {
        let message = b.hear();
        heard[usize::from(message[0])].push(message);
    }
    for (channel, heard) in (0..).zip(heard) {
        assert!(heard.into_iter().eq((0..COUNT).map(|i| message(channel, i))));
    }
    // And back, on connections of their own.
    b.send(a.ip(), Channel::Ack, b"answer");
    assert_eq!(a.hear(), b"answer");
    until(|| a.stats(b.ip()).sent == u64::from(2 * COUNT));
    until(|| b.stats(a.ip()).received == u64::from(2 * COUNT));
    let (sent, received) = (a.stats(b.ip()), b.stats(a.ip()));
    assert_eq!(sent.sent_bytes, u64::from(2 * COUNT) * (12 + 95 + 4));
    assert_eq!(received.received_bytes, sent.sent_bytes);
    assert_eq!((sent.connects, sent.queued, sent.queued_bytes), (2, 0, 0));
    assert_eq!(sent.dropped_full + sent.dropped_late + sent.dropped_large, 0);
}

#[test]
fn what_several_threads_send_arrives_in_the_order_of_each() {
    const THREADS: u8 = 4;
    const COUNT: u32 = 3000;
    let (a, b) = pair(11);
    // Some are larger than what the system takes at once.
    let message = |thread: u8, i: u32| {
        let length = if i % 500 == 77 { 1 << 20 } else { 50 };
        [&[thread][..], &i.to_be_bytes(), &vec![thread; length]].concat()
    };
    let mut next = [0; THREADS as usize];
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (a, to) = (&a.transport, b.ip());
            scope.spawn(move || {
                for i in 0..COUNT {
                    a.send(to, Channel::Command, message(thread, i).into(), NEVER);
                }
            });
        }
        for _ in 0..u32::from(THREADS) * COUNT {
            let heard = b.hear();
            let i = &mut next[usize::from(heard[0])];
            assert_eq!(heard, message(heard[0], *i));
            *i += 1;
        }
    });
    until(|| a.stats(b.ip()).sent == u64::from(THREADS) * u64::from(COUNT));
    assert_eq!((a.stats(b.ip()).connects, a.stats(b.ip()).queued), (1, 0));
}

#[test]
fn a_peer_that_does_not_read_takes_no_memory_without_bound() {
    const BYTES: usize = 1 << 20;
    let (a, socket) = node_and_socket(2, |options| options.max_queued_bytes = 4 * BYTES);
    let peer = socket.local_addr().unwrap().ip();
    a.send(peer, Channel::Command, &vec![0; BYTES]);
    let (mut stream, _) = socket.accept().unwrap();
    for i in 1..200u8 {
        a.send(peer, Channel::Command, &vec![i; BYTES]);
    }
    let stats = a.stats(peer);
    assert!(stats.queued_bytes <= 4 * BYTES as u64, "{stats:?}");
    assert!(stats.dropped_full > 100, "{stats:?}");
    // Those that were queued come in order, when it reads at last.
    let kept = 200 - stats.dropped_full as usize;
    let read = read_messages(&mut stream, kept);
    let numbers: Vec<u8> = read.iter().map(|message| message[0]).collect();
    assert_eq!(numbers.len(), kept);
    assert!(numbers.is_sorted());
}

#[test]
fn a_disconnected_peer_is_dialled_again_for_what_was_not_written() {
    let (a, socket) = node_and_socket(3, |_| ());
    let peer = socket.local_addr().unwrap().ip();
    let large = vec![1; 32 << 20];
    a.send(peer, Channel::Command, &large);
    a.send(peer, Channel::Command, b"small");
    let (mut first, _) = socket.accept().unwrap();
    // It is being written, and does not fit into the buffers of the system.
    assert_eq!(first.peek(&mut [0; 1]).unwrap(), 1);
    a.transport.disconnect(peer);
    let (mut second, from) = socket.accept().unwrap();
    assert_eq!(from.ip(), a.ip());
    let read = read_messages(&mut second, 2);
    assert!(read.iter().eq([&large[..], b"small"]));
    // The first is closed: there is an end, before that of the message.
    assert!(read_messages(&mut first, 1).is_empty());
    assert_eq!(a.stats(peer).connects, 2);
}

#[test]
fn a_peer_that_restarts_gets_later_messages() {
    let (a, b) = pair(4);
    let at = b.transport.address();
    a.send(at.ip(), Channel::Command, b"before");
    assert_eq!(b.hear(), b"before");
    b.transport.shutdown();
    a.until_closed(at.ip(), Channel::Command);
    // What was sent meanwhile and is late by now.
    a.transport.send(at.ip(), Channel::Command, b"late".as_slice().into(), Duration::from_secs(1));
    a.clock.advance(Duration::from_secs(2));
    until(|| a.stats(at.ip()).dropped_late == 1);
    a.send(at.ip(), Channel::Command, b"after");
    until(|| a.stats(at.ip()).failed_connects > 1);
    let b = Node::start(at);
    assert_eq!(b.hear(), b"after");
    let stats = a.stats(at.ip());
    assert_eq!((stats.connects, stats.dropped_late, stats.queued), (2, 1, 0));
}

#[test]
fn what_is_queued_is_sent_before_the_node_stops() {
    let (a, b) = pair(5);
    for i in 0..1000u32 {
        if i == 1 {
            assert_eq!(b.hear(), 0u32.to_be_bytes());
        }
        a.send(b.ip(), Channel::Command, &i.to_be_bytes());
    }
    a.transport.shutdown();
    for i in 1..1000u32 {
        assert_eq!(b.hear(), i.to_be_bytes());
    }
    // Nobody listens any more, and sending is no harm.
    assert!(RawStream::connect(a.transport.address()).is_err());
    a.send(b.ip(), Channel::Command, b"too late");
}

#[test]
fn whatever_a_stranger_sends_others_are_served() {
    let node = Node::start(address(6, 1));
    let connect = || RawStream::connect(node.transport.address()).unwrap();
    let is_closed = |mut stream: RawStream| !matches!(stream.read(&mut [0; 1]), Ok(1));
    let head = [0xca, 0x55, 0x2d, 0xfa, 0, 0, 1, 0];
    let mut damaged = framed(b"damaged", true);
    damaged[14] ^= 1;
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        [&head[..], &[0x7f, 0xff, 0xff, 0xff]].concat(),
        [&head[..], &[0xff; 4]].concat(),
        damaged,
    ] {
        let mut stream = connect();
        stream.write_all(&bytes).unwrap();
        assert!(is_closed(stream), "{bytes:x?}");
    }
    // Half of a frame that is as large as can be: nothing is taken for it.
    let mut half = connect();
    half.write_all(&[&head[..], &[0x08, 0, 0, 0], &[0; 1000]].concat()).unwrap();
    let mut sound = connect();
    let (one, two) = (framed(b"one", false), framed(b"two", true));
    sound.write_all(&[&one[..], &two[..5]].concat()).unwrap();
    assert_eq!(node.hear(), b"one");
    let received = || node.stats([127, 0, 0, 1].into()).received_bytes;
    until(|| received() >= 1012 + 20);
    let receiving = &node.transport.shared.options.memory;
    assert_eq!(receiving.used(), 0);
    sound.write_all(&two[5..]).unwrap();
    assert_eq!(node.hear(), b"two");
    // Nor is it kept for longer than the message that needed it.
    sound.write_all(&framed(&vec![7; 600_000], false)).unwrap();
    assert_eq!(node.hear().len(), 600_000);
    until(|| receiving.used() == 0);
    drop((half, sound));
    until(|| receiving.used() == 0);
}

#[test]
fn connections_and_their_memory_are_bounded() {
    let mut options = TcpOptions::new(address(7, 1));
    // Three of four pieces are for what has arrived in part.
    (options.max_inbound, options.memory) = (2, Budget::new(4 * (64 << 10)));
    let node = Node::with(options);
    let connect = || RawStream::connect(node.transport.address()).unwrap();
    let (mut a, mut b) = (connect(), connect());
    for stream in [&mut a, &mut b] {
        stream.write_all(&framed(b"hello", false)).unwrap();
        assert_eq!(node.hear(), b"hello");
    }
    assert!(!matches!(connect().read(&mut [0; 1]), Ok(1)));
    // The first may have one more piece of memory, and no two.
    let large = framed(&vec![7; 100_000], false);
    a.write_all(&large).unwrap();
    assert_eq!(node.hear().len(), 100_000);
    // Its end may not be writable any more.
    let _ = b.write_all(&framed(&vec![7; 1 << 20], false));
    assert!(!matches!(b.read(&mut [0; 1]), Ok(1)));
    a.write_all(&framed(b"still here", false)).unwrap();
    assert_eq!(node.hear(), b"still here");
}

#[test]
fn too_many_peers_make_room_for_others() {
    let mut options = TcpOptions::new(address(8, 1));
    options.max_peers = 2;
    let node = Node::with(options);
    let peer = |i: u8| IpAddr::from([127, 0, 8, 100 + i]);
    // Nobody listens there.
    for i in 0..5 {
        node.transport.send(peer(i), Channel::Ack, [1].into(), NEVER);
    }
    assert_eq!(node.transport.stats().len(), 2);
    for i in 0..2 {
        let peer = node.transport.shared.peers.find(peer(i)).unwrap();
        assert_eq!(peer.queue(Channel::Ack).take(Duration::ZERO).0.len(), 1);
    }
    node.transport.send(peer(5), Channel::Ack, [1].into(), NEVER);
    let peers: Vec<IpAddr> = node.transport.stats().into_iter().map(|(peer, _)| peer).collect();
    assert_eq!(peers, [peer(5)]);
}

#[test]
fn an_address_that_is_taken_is_told() {
    let node = Node::start(address(9, 1));
    let at = node.transport.address();
    let error = TcpTransport::bind(TcpOptions::new(at), Arc::<ManualClock>::default()).unwrap_err();
    let text = error.to_string();
    let start = format!("cannot listen for other nodes on {at} (ListenAddress and StoragePort): ");
    assert!(text.starts_with(&start), "{text}");
}

#[test]
fn a_message_that_no_frame_holds_is_dropped() {
    let node = Node::start(address(10, 1));
    let peer = IpAddr::from([127, 0, 10, 2]);
    node.send(peer, Channel::Command, &vec![0; 128 << 20]);
    let stats = node.stats(peer);
    assert_eq!((stats.dropped_large, stats.queued), (1, 0));
}

/// A connection from an address of the loopback network.
fn dial_from(from: [u8; 4], to: SocketAddr) -> RawStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((from, 0)))?;
        socket.connect(to).await?.into_std()
    });
    let stream = stream.unwrap();
    stream.set_nonblocking(false).unwrap();
    stream
}

#[test]
fn only_the_networks_of_the_list_may_connect() {
    let mut options = TcpOptions::new(address(11, 1));
    options.peer_networks = PeerNetworks(vec!["127.0.12.0/24".parse().unwrap()]);
    let node = Node::with(options);
    let at = node.transport.address();
    let mut stranger = dial_from([127, 0, 13, 1], at);
    assert!(!matches!(stranger.read(&mut [0; 1]), Ok(1)));
    for from in [[127, 0, 12, 9], [127, 0, 11, 1]] {
        dial_from(from, at).write_all(&framed(b"hello", false)).unwrap();
        assert_eq!(node.hear(), b"hello", "from {from:?}");
    }
}

#[test]
fn many_connections_of_one_address_shut_no_other_out() {
    let mut options = TcpOptions::new(address(14, 1));
    options.max_inbound = 20;
    let node = Node::with(options);
    let at = node.transport.address();
    let mut member = dial_from([127, 0, 14, 2], at);
    member.write_all(&framed(b"first", false)).unwrap();
    assert_eq!(node.hear(), b"first");
    let _crowd: Vec<_> = (0..40).map(|_| dial_from([127, 0, 14, 3], at)).collect();
    let mut other = dial_from([127, 0, 14, 4], at);
    for member in [&mut member, &mut other] {
        member.write_all(&framed(b"hello", false)).unwrap();
        assert_eq!(node.hear(), b"hello");
    }
}
