//! Bytes that are no message, and the limits of memory, time and connections.

use super::*;

#[test]
fn what_is_no_message_closes_the_connection_after_earlier_answers() {
    let server = Running::start(|_| ());
    let bad: [&[u8]; 5] = [
        b"\x80\x02\x00\x01\x00\x00\x00\x03get\x00\x00\x00\x00\x00",
        b"\x80\x01\x00\x01\xFF\xFF\xFF\xFF",
        b"\x80\x01\x00\x01\x00\x01\x00\x00",
        b"\xFF\xFF\xFF\xFF",
        b"\x80\x01\x00\x01\x00\x00\x00\x03get\x00\x00\x00\x00\x0b\x00\x01\xFF\xFF\xFF\xFF",
    ];
    for bytes in bad {
        let mut client = server.connect();
        client.send(bytes);
        assert_eq!(client.wait_for_end(), 0, "{bytes:02X?}");
    }
    for bytes in &bad {
        let mut client = server.connect();
        client.send(&[&call("describe_version", 8, &[0]), *bytes].concat());
        assert_eq!(client.reply().seqid, 8);
        client.wait_for_end();
    }
    server.assert_alive();
}

#[test]
fn garbage_of_every_kind_harms_nobody() {
    let server = Running::start(|_| ());
    let mut steady = server.connect();
    let recorded: Vec<_> = recorded().into_iter().filter(|request| request.len() < 4096).collect();
    let mut rng = fastrand::Rng::with_seed(99);
    for round in 0..300 {
        let mut bytes = match round % 3 {
            0 => (0..rng.usize(1..2000)).map(|_| rng.u8(..)).collect(),
            1 => recorded[rng.usize(..recorded.len())].clone(),
            _ => frame(&recorded[rng.usize(..recorded.len())]),
        };
        for _ in 0..rng.usize(1..6) {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
        let mut client = server.connect();
        // The server may close while the bytes are on their way.
        let _ = client.stream.write_all(&bytes);
        client.end_sending();
        client.wait_for_end();
        assert!(steady.call("insert", &insert_args("k")).is_void());
    }
}

#[test]
fn two_gigabytes_declared_on_many_connections_close_them_at_once() {
    let server = Running::start(|_| ());
    let string = [&call("get", 1, &[11, 0, 1]), [0x7F, 0xFF, 0xFF, 0xFF].as_slice()].concat();
    let mut list = call("multiget", 1, &[15, 0, 2, 10, 0x7F, 0xFF, 0xFF, 0xFF]);
    list.extend_from_slice(&[0; 64]);
    let mut clients: Vec<Client> = (0..500).map(|_| server.connect()).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        let declared: [&[u8]; 3] = [&[0x7F, 0xFF, 0xFF, 0xFF], &string, &list];
        client.send(declared[i % 3]);
    }
    for client in &mut clients {
        assert_eq!(client.wait_for_end(), 0);
    }
    server.assert_alive();
}

#[test]
fn a_declared_length_takes_no_memory_until_its_bytes_arrive() {
    let server = Running::start(|options| options.limits.receive_budget_bytes = 64 << 10);
    let declared = 50 << 20_i32;
    let mut clients: Vec<Client> = (0..500).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(&i32::to_be_bytes(declared));
        client.send(&call("batch_mutate", 1, &[])[..8]);
    }
    server.assert_alive();
    // Each of them holds a few bytes; with what it declared even one would be beyond the budget.
    for client in &clients {
        client.end_sending();
    }
    server.assert_alive();
}

fn small() -> Vec<u8> {
    call("insert", 8, &insert_args("k"))
}

#[test]
fn an_unfinished_request_beyond_the_budget_is_refused_and_its_connection_stays() {
    let server = Running::start(|options| options.limits.receive_budget_bytes = 1 << 20);
    let large = insert_args(&"k".repeat(3 << 20));
    for (number, args) in [large, batch_args(60_000)].into_iter().enumerate() {
        let method = ["insert", "batch_mutate"][number];
        for (framed, request) in forms(method, 7, &args) {
            let mut greedy = server.connect();
            greedy.framed = framed;
            greedy.send(&request);
            let answer = greedy.reply();
            let Some((1, Some(why))) = answer.exception() else { panic!("{answer:?}") };
            assert!(why.contains("at least 2 MB of memory") && why.contains("fewer rows"), "{why}");
            assert!(why.contains("ThriftReceiveBudgetInMB leaves 1 MB"), "{why}");
            greedy.send(&if framed { frame(&small()) } else { small() });
            assert!(greedy.reply().is_void());
        }
    }
    assert_eq!(server.service.inserts.load(Ordering::SeqCst), 8, "only the small ones");
}

#[test]
fn arguments_that_take_more_memory_than_is_free_are_refused() {
    let server = Running::start(|options| options.memory = Budget::new(4 << 20));
    for (framed, many) in [(false, batch_args(30_000)), (true, batch_args(30_000))] {
        let mut client = server.connect();
        client.framed = framed;
        for (args, is_refused) in [(batch_args(10), false), (many, true), (batch_args(10), false)] {
            let request = call("batch_mutate", 5, &args);
            client.send(&if framed { frame(&request) } else { request });
            let answer = client.reply();
            assert_eq!(answer.is_void(), !is_refused);
            let why = answer.exception();
            assert_eq!(
                why.is_some_and(|why| why.1.unwrap().contains("MemoryBudgetInMB")),
                is_refused
            );
        }
    }
}

#[test]
fn a_request_for_which_there_is_never_enough_memory_does_not_wait_for_any() {
    let server = Running::start(|options| {
        options.memory = Budget::new(4 << 20);
        options.limits.max_message_bytes = 5 << 19;
        options.limits.memory_wait = Duration::from_hours(1);
    });
    // It has room as it comes, and none beside that when it is decoded.
    for (framed, request) in forms("insert", 7, &insert_args(&"k".repeat(2_300_000))) {
        let mut client = server.connect();
        client.framed = framed;
        client.send(&request);
        let answer = client.reply();
        let Some((1, Some(why))) = answer.exception() else { panic!("{answer:?}") };
        let limits = "at least 5 MB of memory, and MemoryBudgetInMB leaves 4 MB for it: raise that";
        assert!(why.contains(limits), "{why}");
        client.send(&if framed { frame(&small()) } else { small() });
        assert!(client.reply().is_void());
    }
}

#[test]
fn requests_before_it_do_not_make_a_request_too_large() {
    let server = Running::start(|options| {
        options.memory = Budget::new(4 << 20);
        options.limits.max_message_bytes = 5 << 19;
        options.limits.memory_wait = Duration::from_secs(1);
    });
    let insert = call("insert", 7, &insert_args(&"k".repeat(1_500_000)));
    let batch = call("batch_mutate", 8, &batch_args(10_000));
    let mut client = server.connect();
    client.send(&batch);
    assert!(client.reply().is_void(), "it fits");
    for _ in 0..2 {
        client.send(&[&*insert, &batch].concat());
        assert!(client.reply().is_void());
        let answer = client.reply();
        let why = answer.exception().map(|(_, why)| why.unwrap());
        assert!(why.is_none_or(|it| it.contains("try again later")), "{answer:?}");
    }
}

#[test]
fn large_requests_wait_for_the_memory_that_others_hold() {
    const CLIENTS: usize = 8;
    let server = Running::start(|options| {
        options.limits.receive_budget_bytes = 4 << 20;
        options.limits.max_message_bytes = 2 << 20;
        options.limits.memory_wait = Duration::from_mins(1);
    });
    let request = call("insert", 1, &insert_args(&"k".repeat((2 << 20) - 1000)));
    let (first, rest) = request.split_at(1 << 20);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    // Together the halves are more than the budget.
    for client in &mut clients {
        client.send(first);
    }
    server.assert_alive();
    std::thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| {
                client.send(rest);
                assert!(client.reply().is_void());
            });
        }
    });
    assert_eq!(server.service.inserts.load(Ordering::SeqCst), CLIENTS);
}

#[test]
fn a_request_that_is_not_completed_is_given_up() {
    LOG.install();
    let server = Running::start(|options| options.limits.read_stall = Duration::from_millis(50));
    let mut idle = server.connect();
    let mut stalled = server.connect();
    stalled.send(&call("insert", 1, &insert_args("k"))[..30]);
    assert_eq!(stalled.wait_for_end(), 0);
    let [line] = LOG.about(&stalled).try_into().unwrap();
    assert!(line.contains("sent nothing of the rest of its request"), "{line}");
    assert!(idle.call("insert", &insert_args("k")).is_void(), "between requests it may be idle");
}

#[test]
fn a_message_above_the_limit_closes_its_connection() {
    let server = Running::start(|options| options.limits.max_message_bytes = 1 << 20);
    for framed in [false, true] {
        let mut client = server.connect();
        client.framed = framed;
        let request = call("get_string_property", 1, &text_args(&vec![b'x'; (1 << 20) - 100]));
        client.send(&if framed { frame(&request) } else { request });
        assert_eq!(client.reply().seqid, 1);
        let request = call("get_string_property", 1, &text_args(&vec![b'x'; 1 << 20]));
        // The server closes before it has read all.
        let _ = client.stream.write_all(&if framed { frame(&request) } else { request });
        assert_eq!(client.wait_for_end(), 0);
    }
}

#[test]
fn the_log_names_the_peer_and_the_setting_once_per_reason() {
    LOG.install();
    let server = Running::start(|options| options.limits.receive_budget_bytes = 1 << 20);
    let closed_after = |bytes: &[u8]| {
        let mut client = server.connect();
        // The server may close before it has read all.
        let _ = client.stream.write_all(bytes);
        client.wait_for_end();
        client
    };
    let declared = closed_after(&[0x7F, 0xFF, 0xFF, 0xFF]);
    let [line] = LOG.about(&declared).try_into().unwrap();
    assert!(line.contains("2147483647 bytes"), "{line}");
    assert!(line.contains("ThriftMaxMessageInMB allows 64"), "{line}");
    let again = closed_after(&[0x7F, 0xFF, 0xFF, 0xFF]);
    let malformed = closed_after(b"\x80\x02\x00\x01");
    let [line] = LOG.about(&malformed).try_into().unwrap();
    assert!(line.contains("unknown protocol version 0x80020001"), "{line}");
    let mut greedy = server.connect();
    greedy.call("insert", &insert_args(&"k".repeat(3 << 20)));
    let [line] = LOG.about(&greedy).try_into().unwrap();
    assert!(line.contains("ThriftReceiveBudgetInMB leaves 1 MB"), "{line}");
    assert_eq!(LOG.about(&again), Vec::<String>::new(), "one line for a reason in a moment");
}

#[test]
fn a_client_that_never_reads_is_cut_off() {
    LOG.install();
    let server = Running::start(|options| options.limits.write_stall = Duration::from_millis(50));
    let mut deaf = server.connect();
    // More than the kernel buffers for a connection.
    deaf.send(&call("get_slice", 1, &slice_args("k", 40_000)));
    let [line] = LOG.wait_for(&deaf).try_into().unwrap();
    assert!(line.contains("it has read nothing of its reply for 50ms"), "{line}");
    assert!(deaf.wait_for_end() < 40_000 * 1000, "the reply was cut off");
}

#[test]
fn replies_that_nobody_reads_hold_a_bounded_amount_and_hold_up_nobody() {
    let server = Running::start(|options| {
        options.workers = 1;
        options.limits.unsent_budget_bytes = 1 << 20;
    });
    let [mut first, mut second, mut other] = std::array::from_fn(|_| server.connect());
    for deaf in [&mut first, &mut second] {
        deaf.send(&call("get_slice", 1, &slice_args("k", 40_000)));
        // The only worker has begun to write. Before it serves anybody else it comes to the end of
        // the kernel's buffers.
        deaf.stream.peek(&mut [0]).unwrap();
        assert!(other.call("insert", &insert_args("k")).is_void());
    }
    assert!(second.wait_for_end() < 40_000 * 1000, "the first holds the budget already");
    let answer = first.reply();
    let Some(Value::List(columns)) = answer.result() else { panic!("not a list") };
    assert_eq!(columns.len(), 40_000, "it may still read");
}

#[test]
fn a_slow_reader_gets_its_whole_reply() {
    let server = Running::start(|options| options.limits.unsent_budget_bytes = 1);
    let mut slow = server.connect();
    slow.send(&call("get_slice", 1, &slice_args("k", 20_000)));
    let answer = slow.reply();
    let Some(Value::List(columns)) = answer.result() else { panic!("not a list") };
    assert_eq!(columns.len(), 20_000);
    server.assert_alive();
}

#[test]
fn a_thread_that_stands_still_holds_up_few_connections() {
    const CLIENTS: usize = 32;
    let cores = std::thread::available_parallelism().unwrap().get();
    let server = Running::start(|options| {
        options.workers = ServerOptions::new(Arc::<ManualClock>::default()).workers;
    });
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert!(client.call("insert", &insert_args("k")).is_void());
    }
    let stop_sign = server.service.stop_sign.lock().unwrap();
    clients[0].send(&call("insert", 1, &insert_args("stand still")));
    for client in &mut clients[1..] {
        client.send(&call("insert", 2, &insert_args("k")));
    }
    let held = CLIENTS.div_ceil(2 * cores);
    let answered = || clients.iter().filter(|client| client.has_reply()).count();
    for _ in 0..10_000 {
        if answered() >= CLIENTS - held {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(answered() >= CLIENTS - held, "{} of {CLIENTS} are served", answered());
    drop(stop_sign);
    for client in &mut clients {
        assert!(client.reply().is_void());
    }
}

#[test]
fn clients_of_other_protocols_are_answered_in_theirs() {
    LOG.install();
    let answer = |hello: &[u8]| {
        // Each server logs a reason once.
        let server = Running::start(|_| ());
        let mut client = server.connect();
        client.send(hello);
        let mut answer = vec![];
        client.stream.read_to_end(&mut answer).unwrap();
        let [line] = LOG.about(&client).try_into().unwrap();
        (answer, line)
    };
    let (http, line) = answer(b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let http = String::from_utf8(http).unwrap();
    assert!(http.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{http}");
    assert!(http.contains("AdminPort") && line.contains("AdminPort"), "{http}{line}");

    let (tls, line) = answer(b"\x16\x03\x01\x02\x00\x01\x00\x01\xFC\x03\x03unread rest");
    assert_eq!(tls, [21, 3, 1, 0, 2, 2, 40], "a fatal alert: handshake_failure");
    assert!(line.contains("switch TLS off"), "{line}");

    let (cql, line) = answer(b"\x04\x00\x00\x00\x05\x00\x00\x00\x00");
    assert_eq!(cql[..5], [0x84, 0, 0, 0, 0], "an error on the stream of the request");
    let text = String::from_utf8_lossy(&cql);
    assert!(text.contains("speaks Thrift") && line.contains("speaks CQL"), "{text}{line}");

    let get = b"\x82\x21\x01\x03get\x18\x01k\x00";
    for (framed, call) in [(false, get.to_vec()), (true, frame(get))] {
        let (compact, line) = answer(&call);
        assert_eq!(compact[if framed { 4 } else { 0 }..][..2], [0x82, 0x61], "an exception");
        let text = String::from_utf8_lossy(&compact);
        assert!(text.contains("Binary") && line.contains("speaks the Compact protocol"), "{line}");
    }
}

#[test]
fn a_frame_that_begins_no_message_is_not_waited_for() {
    let server = Running::start(|_| ());
    // The second one is of a client of JMX.
    for hello in [b"\x04\x00\x00\x00\x7F\x00\x00\x00\x00".as_slice(), b"JRMI\x00\x02\x4B"] {
        let mut client = server.connect();
        client.send(hello);
        assert_eq!(client.wait_for_end(), 0);
    }
}

#[test]
fn a_new_connection_takes_the_place_of_the_longest_idle_one() {
    LOG.install();
    let clock = Arc::new(ManualClock::default());
    let server = Running::start(|options| {
        options.limits.max_connections = 2;
        options.clock = Arc::<ManualClock>::clone(&clock);
    });
    let (mut silent, mut active) = (server.connect(), server.connect());
    for _ in 0..2 {
        assert!(active.call("insert", &insert_args("k")).is_void());
        clock.advance(Duration::from_secs(5));
    }
    let mut new = server.connect();
    assert!(new.call("insert", &insert_args("k")).is_void());
    assert_eq!(silent.wait_for_end(), 0);
    let [line] = LOG.about(&silent).try_into().unwrap();
    assert!(line.contains("idle for 10 s"), "{line}");
    assert!(line.contains("to make room: ThriftMaxConnections allows 2"), "{line}");
    assert!(active.call("insert", &insert_args("k")).is_void());
}

#[test]
fn a_new_connection_is_closed_if_none_is_idle() {
    LOG.install();
    let server = Running::start(|options| options.limits.max_connections = 1);
    let mut busy = server.connect();
    busy.send(&call("insert", 4, &insert_args("wait")));
    server.wait_for_call();
    let mut new = server.connect();
    assert_eq!(new.wait_for_end(), 0);
    let [line] = LOG.about(&new).try_into().unwrap();
    assert!(line.contains("ThriftMaxConnections allows 1, and none is idle"), "{line}");
    server.service.gate.add_permits(1);
    assert_eq!(busy.reply().seqid, 4);
}

#[test]
fn an_idle_connection_is_closed_after_the_timeout() {
    let clock = Arc::new(ManualClock::default());
    let server = Running::start(|options| {
        options.workers = 1;
        options.limits.idle_timeout = Some(Duration::from_secs(60));
        options.clock = Arc::<ManualClock>::clone(&clock);
    });
    let (mut silent, mut half) = (server.connect(), server.connect());
    let (mut busy, mut active) = (server.connect(), server.connect());
    half.send(&call("insert", 1, &insert_args("k"))[..20]);
    busy.send(&call("insert", 4, &insert_args("wait")));
    server.wait_for_call();
    for seconds in [59, 1] {
        assert!(active.call("insert", &insert_args("k")).is_void());
        clock.advance(Duration::from_secs(seconds));
    }
    assert_eq!((silent.wait_for_end(), half.wait_for_end()), (0, 0));
    assert!(active.call("insert", &insert_args("k")).is_void());
    server.service.gate.add_permits(1);
    assert_eq!(busy.reply().seqid, 4, "a client that waits for its reply is not idle");
}

#[test]
fn a_stopping_server_ends_calls_under_way_and_closes() {
    let mut server = Running::start(|_| ());
    let (mut busy, mut idle, mut half) = (server.connect(), server.connect(), server.connect());
    assert!(idle.call("insert", &insert_args("k")).is_void());
    half.send(&call("insert", 1, &insert_args("k"))[..20]);
    busy.send(&call("insert", 4, &insert_args("wait")));
    server.wait_for_call();
    server.stop.cancel();
    idle.wait_for_end();
    assert_eq!(half.wait_for_end(), 0);
    TcpStream::connect(server.address).expect_err("no listener any more");
    server.service.gate.add_permits(1);
    let answer = busy.reply();
    assert!(answer.is_void() && answer.seqid == 4);
    assert_eq!(busy.wait_for_end(), 0);
    server.join();
}

#[test]
fn a_call_that_never_ends_does_not_hold_up_the_stop() {
    let mut server = Running::start(|options| options.limits.drain = Duration::from_millis(20));
    let mut busy = server.connect();
    busy.send(&call("insert", 4, &insert_args("wait")));
    server.wait_for_call();
    server.stop.cancel();
    server.join();
    assert_eq!(busy.wait_for_end(), 0);
}

#[test]
fn a_call_that_only_asks_is_given_up_when_its_client_leaves() {
    let server = Running::start(|_| ());
    let (mut asking, mut writing) = (server.connect(), server.connect());
    writing.send(&call("insert", 1, &insert_args("wait")));
    server.wait_for_call();
    drop(writing);
    // A request that follows does not hide that the client has left.
    asking.send(&[call("get", 1, &get_args("wait")), call("get", 2, &get_args("k"))].concat());
    server.wait_for_call();
    drop(asking);
    wait_for(&server.service.dropped);
    server.service.gate.add_permits(1);
    wait_for(&server.service.passed);
}

#[test]
fn a_call_that_only_asks_does_not_hold_up_the_stop() {
    let mut server = Running::start(|options| {
        options.limits.drain = Duration::from_hours(1);
        options.limits.drain_reads = Duration::ZERO;
    });
    let mut asking = server.connect();
    asking.send(&call("get", 4, &get_args("wait")));
    server.wait_for_call();
    server.stop.cancel();
    server.join();
    wait_for(&server.service.dropped);
    assert_eq!(asking.wait_for_end(), 0);
}

#[test]
fn a_long_request_leaves_its_thread_to_other_connections() {
    let server = Running::start(|options| options.workers = 1);
    let long = call("insert", 1, &insert_args(&"stand still".repeat(100_000)));
    for framed in [false, true] {
        let (mut busy, mut other) = (server.connect(), server.connect());
        busy.framed = framed;
        let stop_sign = server.service.stop_sign.lock().unwrap();
        let before = server.service.inserts.load(Ordering::SeqCst);
        busy.send(&if framed { frame(&long) } else { long.clone() });
        while server.service.inserts.load(Ordering::SeqCst) == before {
            std::thread::yield_now();
        }
        assert!(other.call("insert", &insert_args("k")).is_void());
        drop(stop_sign);
        assert!(busy.reply().is_void());
    }
}
