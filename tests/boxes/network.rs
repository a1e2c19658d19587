//! Tests of the network of a box: only named hosts are reached, and each other attempt is reported.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, BufRead as _, Read as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyperlight_mcp::boxes::Report;
use hyperlight_mcp::boxes::border::{Descriptors, MAX_CONNECTIONS};
use hyperlight_mcp::config::{BoxBase, BoxNetwork, BoxSettings};

use super::scene::{ATTACKER, Boxed, Ran, Scene, lines_of};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A host outside of the box, which sends everything back, by TCP and by UDP at the same port.
struct Host {
    port: u16,
    /// Connections that it has accepted.
    accepted: Arc<AtomicUsize>,
}

impl Host {
    fn new() -> Self {
        let (listener, socket) = loop {
            let listener = TcpListener::bind((HERE, 0)).unwrap();
            // The same port may be taken for datagrams.
            if let Ok(socket) = UdpSocket::bind(listener.local_addr().unwrap()) {
                break (listener, socket);
            }
        };
        let (port, accepted) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&accepted);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, Ordering::Relaxed);
                std::thread::spawn(move || send_back(&stream));
            }
        });
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(&buffer[..length], from);
            }
        });
        Self { port, accepted }
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

fn send_back(stream: &TcpStream) {
    let _ = io::copy(&mut &*stream, &mut &*stream);
    let _ = stream.shutdown(Shutdown::Write);
}

/// Returns the attacker in a box with these hosts.
fn attacker<'a>(scene: &'a Scene, hosts: &[String]) -> Boxed<'a> {
    let mut command = scene.command(&ATTACKER, &[]);
    let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
    command.settings = BoxSettings { network: BoxNetwork::Hosts(hosts), ..BoxSettings::of(BoxBase::Standard) };
    command
}

/// Asserts how attempts went: `true` for those that must work.
fn assert_went(ran: &Ran, expected: &[bool]) {
    assert_eq!((&ran.report, ran.status), (&Some(Report::Ready), Some(0)), "{ran:#?}");
    let went: Vec<bool> = ran.output.lines().map(|line| line.starts_with("done\t")).collect();
    assert_eq!(went, expected, "{ran:#?}");
}

/// Without a limit, a server without a cgroup could take some megabytes of the kernel's memory for each connection.
#[test]
fn the_kernel_keeps_little_for_a_connection_in_a_box() {
    let scene = Scene::new();
    let ran = scene.command("/bin/sh", &["-c", "cat /proc/sys/net/ipv4/tcp_rmem /proc/sys/net/ipv4/tcp_wmem"]).run("");
    assert_eq!(ran.output, "4096\t131072\t1048576\n4096\t16384\t262144\n", "{ran:?}");
}

#[test]
fn a_named_host_is_reached_by_tcp_and_udp() {
    let (scene, host) = (Scene::new(), Host::new());
    let port = host.port;
    let mut command = attacker(&scene, &[format!("echo.example:{port}"), format!("*.wild.example:{port}"), format!("127.0.0.1:{port}")]);
    command.names = ["echo.example", "a.b.wild.example"].map(|name| (name, vec![HERE])).into();
    let attempts = [
        // A mebibyte is sent and read at once, and the end of one direction does not end the other.
        ("echo", format!("echo.example:{port} 1048576")),
        ("echo", format!("ECHO.example.:{port} 1")),
        ("echo", format!("a.b.wild.example:{port} 100000")),
        ("echo", format!("127.0.0.1:{port} 100000")),
        ("echo", format!("[::ffff:127.0.0.1]:{port} 9")),
        ("echo datagrams", format!("echo.example:{port}")),
        ("echo datagrams", format!("127.0.0.1:{port}")),
        ("connect often", format!("echo.example:{port} 100")),
        // Any name server is that of the box.
        ("ask another name server", "8.8.8.8:53 echo.example".to_owned()),
    ];
    let running = command.start(&lines_of(&attempts));
    let looked_up = Arc::clone(&running.looked_up);
    let ran = running.finish();
    assert_went(&ran, &[true; 9]);
    assert_eq!(ran.refused, [""; 0]);
    let names: BTreeSet<String> = looked_up.lock().unwrap().iter().cloned().collect();
    assert_eq!(names, ["echo.example", "a.b.wild.example"].map(str::to_owned).into());
}

/// Services often listen at 127.0.0.1 alone, and programs often try `::1` first.
#[test]
fn localhost_is_reached_at_the_address_that_answers() {
    let (scene, host) = (Scene::new(), Host::new());
    let port = host.port;
    let attempts = ["[::1]", "localhost", "127.0.0.1"].map(|name| ("echo", format!("{name}:{port} 1000")));
    assert_went(&attacker(&scene, &[format!("localhost:{port}")]).run(&lines_of(&attempts)), &[true; 3]);
    // An address that was named is reached as itself alone.
    let ran = attacker(&scene, &[format!("[::1]:{port}")]).run(&lines_of(&attempts));
    assert_went(&ran, &[false; 3]);
    assert_eq!(host.accepted(), 3);
}

#[test]
fn nothing_else_is_reached_and_each_attempt_is_told() {
    let (scene, host, other) = (Scene::new(), Host::new(), Host::new());
    let (port, shut) = (host.port, other.port);
    let mut command = attacker(&scene, &[format!("rebound.example:{port}"), format!("half.example:{port}"), format!("2.2.2.2:{port}")]);
    // The names of the list lead to this machine, to the cloud's own service, and to a private network.
    command.names = HashMap::from([
        ("rebound.example", vec![HERE, "169.254.169.254".parse().unwrap(), "::1".parse().unwrap()]),
        ("half.example", vec!["10.0.0.1".parse().unwrap()]),
    ]);
    let attempts = [
        ("echo", format!("rebound.example:{port}"), format!("rebound.example:{port} private-address")),
        ("echo", format!("half.example:{port}"), format!("half.example:{port} private-address")),
        ("echo", format!("rebound.example:{shut}"), format!("rebound.example:{shut} not-allowed")),
        ("echo", format!("127.0.0.1:{port}"), format!("127.0.0.1:{port} not-allowed")),
        ("echo", format!("127.0.0.1:{shut}"), format!("127.0.0.1:{shut} not-allowed")),
        ("echo", format!("[::1]:{port}"), format!("[::1]:{port} not-allowed")),
        ("echo", "1.1.1.1:443".to_owned(), "1.1.1.1:443 not-allowed".to_owned()),
        ("echo", format!("1.1.1.1:{port}"), format!("1.1.1.1:{port} not-allowed")),
        ("echo", format!("2.2.2.2:{shut}"), format!("2.2.2.2:{shut} not-allowed")),
        ("echo", "169.254.169.254:80".to_owned(), "169.254.169.254:80 not-allowed".to_owned()),
        ("echo", "[2606:4700:4700::1111]:443".to_owned(), "[2606:4700:4700::1111]:443 not-allowed".to_owned()),
        ("echo", format!("[2606:4700:4700::1111]:{port}"), format!("[2606:4700:4700::1111]:{port} not-allowed")),
        ("echo", format!("198.18.77.77:{port}"), format!("198.18.77.77, which no name has:{port} not-allowed")),
        ("send", format!("127.0.0.1:{shut}"), String::new()),
        ("send", "1.1.1.1:123".to_owned(), "1.1.1.1:123 not-allowed".to_owned()),
        ("send", "[2606:4700:4700::1111]:123".to_owned(), "[2606:4700:4700::1111]:123 not-allowed".to_owned()),
        ("look up", "unknown.example".to_owned(), "unknown.example not-allowed".to_owned()),
        ("look up", "secret.rebound.example".to_owned(), "secret.rebound.example not-allowed".to_owned()),
        ("ask another name server", "9.9.9.9:53 tunnel.attacker.example".to_owned(), "tunnel.attacker.example not-allowed".to_owned()),
        ("raw socket", String::new(), String::new()),
        ("packet socket", String::new(), String::new()),
        ("add a route", String::new(), String::new()),
    ];
    let given: Vec<_> = attempts.iter().map(|(name, about, _)| (*name, about.clone())).collect();
    let running = command.start(&lines_of(&given));
    let looked_up = Arc::clone(&running.looked_up);
    let ran = running.finish();
    assert_went(&ran, &[false; 22]);
    for (_, _, told) in attempts.iter().filter(|(_, _, told)| !told.is_empty()) {
        assert!(ran.refused.contains(told), "{told}: {:#?}", ran.refused);
    }
    assert_eq!((host.accepted(), other.accepted()), (0, 0));
    // Only allowed names leave the machine.
    let names: BTreeSet<String> = looked_up.lock().unwrap().iter().cloned().collect();
    assert_eq!(names, ["half.example", "rebound.example"].map(str::to_owned).into());
}

#[test]
fn what_belongs_to_the_start_ends_with_it() {
    let (scene, host) = (Scene::new(), Host::new());
    let port = host.port;
    let mut command = attacker(&scene, &[]);
    command.start_hosts = [format!("registry.example:{port}").parse().unwrap()].into();
    command.names = HashMap::from([("registry.example", vec![HERE])]);
    let mut running = command.start("");
    let mut lines = running.output().lines().map(Result::unwrap);
    assert!(lines.next().unwrap().contains("ready"));
    let attempt = format!("echo\tregistry.example:{port} 1000\n");
    running.tell(&attempt);
    assert!(lines.next().unwrap().starts_with("done\t"));
    running.border().started();
    running.tell(&attempt);
    assert!(lines.next().unwrap().starts_with("refused\t"));
    assert_eq!(host.accepted(), 1);
}

#[test]
fn a_box_that_wants_too_much_is_held_up_and_another_is_not() {
    let (scene, other, host) = (Scene::new(), Scene::new(), Host::new());
    let port = host.port;
    let hosts = [format!("127.0.0.1:{port}")];
    let flooding = attacker(&scene, &hosts);
    let attempts = [
        ("connect often", format!("127.0.0.1:{port} {}", MAX_CONNECTIONS + 1)),
        ("flood with datagrams", format!("127.0.0.1:{port}")),
        ("flood with questions", "127.0.0.1:53".to_owned()),
        ("flood with connections", "1.1.1.1".to_owned()),
        ("echo", format!("127.0.0.1:{port} 100000")),
    ];
    let flood = flooding.start(&lines_of(&attempts));
    let ran = attacker(&other, &hosts).run(&lines_of(&vec![("echo", format!("127.0.0.1:{port} 100000")); 20]));
    assert_went(&ran, &[true; 20]);
    let ran = flood.finish();
    assert_went(&ran, &[false, true, true, false, true]);
    assert!(ran.refused.len() <= 60, "{}", ran.refused.len());
    assert!(ran.refused.iter().any(|told| told.ends_with("too-many")), "{:?}", ran.refused);
}

/// No box can take the descriptors of the gateway's process that other boxes need.
#[test]
fn a_box_that_takes_all_connections_leaves_some_for_others() {
    let (scene, other, host) = (Scene::new(), Scene::new(), Host::new());
    let address = format!("127.0.0.1:{}", host.port);
    let descriptors = Descriptors::new(200);
    let mut greedy = attacker(&scene, std::slice::from_ref(&address));
    greedy.descriptors = Arc::clone(&descriptors);
    let mut holding = greedy.start(&format!("hold many\t{address} 150\n"));
    let held = holding.output().lines().map(Result::unwrap).nth(1).unwrap();
    let held: usize = held.strip_prefix("held ").unwrap().parse().unwrap();
    assert!((20..50).contains(&held), "{held}");
    let mut modest = attacker(&other, std::slice::from_ref(&address));
    modest.descriptors = descriptors;
    let ran = modest.run(&lines_of(&vec![("echo", format!("{address} 1000")); 5]));
    assert_went(&ran, &[true; 5]);
    // What is free again can be used again.
    drop(holding);
    let ran = greedy.run(&lines_of(&[("echo", format!("{address} 1000"))]));
    assert_went(&ran, &[true]);
}

#[test]
fn the_end_of_the_gateway_ends_all_connections() {
    let (scene, host) = (Scene::new(), Host::new());
    let address = format!("127.0.0.1:{}", host.port);
    let mut running = attacker(&scene, std::slice::from_ref(&address)).start(&format!("hold\t{address}\n"));
    let mut lines = running.output().lines().map(Result::unwrap);
    assert!(lines.next().unwrap().contains("ready"));
    assert_eq!(lines.next().unwrap(), "held");
    running.end_border();
    // The connection that was open is reset, and no other is made.
    assert!(lines.next().unwrap().starts_with("refused\t"));
    running.tell(&format!("echo\t{address}\n"));
    assert!(lines.next().unwrap().starts_with("refused\t"));
}

#[test]
fn a_server_has_no_descriptor_of_its_border() {
    let scene = Scene::new();
    let mut command = attacker(&scene, &["a.example".to_owned()]);
    command.names = HashMap::new();
    let ran = command.run("list\t/proc/self/fd\nread inherited descriptors\t\n");
    let listed = ran.output.lines().next().unwrap();
    assert!(ran.output.lines().nth(1).unwrap().starts_with("refused\t"), "{listed} {}", ran.output);
}

/// Programs find names by the C library, whatever the machine's own configuration is.
#[test]
fn the_names_of_a_box_are_found_by_programs() {
    let scene = Scene::new();
    let mut command =
        scene.command("/bin/sh", &["-c", "getent ahosts a.example; getent hosts localhost; getent hosts b.example || echo none"]);
    command.settings.network = BoxNetwork::Hosts(["a.example".parse().unwrap()].into());
    let ran = command.run("");
    assert!(ran.output.starts_with("198.18.1.0 ") && ran.output.ends_with("none\n"), "{ran:?}");
    assert!(ran.output.contains("localhost"), "{ran:?}");
    assert_eq!(ran.refused, ["b.example not-allowed"]);
}

/// Data for a slow reader does not fill the gateway's memory: the writer must wait.
#[test]
fn a_slow_reader_holds_up_its_writer() {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let scene = Scene::new();
    let mut running = attacker(&scene, std::slice::from_ref(&address)).start(&format!("push\t{address}\n"));
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut [0; 1000]).unwrap();
    let line = running.output().lines().map(Result::unwrap).nth(1).unwrap();
    assert!(line.starts_with("refused\t") && line.contains("held up"), "{line}");
}

/// The kernel would load its parts for seldom used protocols, which have had many faults, when a socket asks for one.
#[test]
fn sockets_of_seldom_used_protocols_are_refused_before_the_kernel_looks_for_them() {
    let attempts = ["socket of SCTP", "socket of SCTP by its type", "socket of DCCP", "socket of DCCP by its type", "socket of UDP-Lite"];
    for (scene, can) in [(Scene::new(), true), (Scene::bare(), false)] {
        let attempts = attempts.iter().copied().chain(["sockets of usual protocols"]).map(|name| (name, String::new()));
        let ran = scene.command(&ATTACKER, &[]).run(&lines_of(&attempts.collect::<Vec<_>>()));
        if ran.report != Some(Report::Ready) {
            // Where Landlock cannot hold a box alone, nothing is started.
            assert!(!can && !super::holds_alone(), "{ran:?}");
            continue;
        }
        let lines: Vec<&str> = ran.output.lines().collect();
        assert!(lines[..5].iter().all(|line| line.contains("Operation not permitted")), "{lines:?}");
        assert_eq!(lines[5].starts_with("done\t"), can, "{lines:?}");
    }
}
