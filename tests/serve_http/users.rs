//! Programs of other users, where no caller needs a token.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

use hyperlight_mcp::serve::http::{HttpOptions, Listen};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::support::*;

const REFUSED: &str = "hyperlight_mcp_http_refusals_total{reason=\"user\"}";

/// Returns the addresses of this machine that are not loopback addresses.
fn own_addresses() -> Vec<IpAddr> {
    let routes = fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let lines: Vec<_> = routes.lines().map(str::trim).collect();
    let v4 = lines.windows(2).filter(|pair| pair[1].starts_with("/32 host LOCAL"));
    let v4 = v4.filter_map(|pair| pair[0].strip_prefix("|-- ")?.parse::<Ipv4Addr>().ok()).map(IpAddr::from);
    let interfaces = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let v6 = interfaces.lines().filter_map(|line| u128::from_str_radix(line.split(' ').next()?, 16).ok()).map(Ipv6Addr::from);
    // An address of one link alone cannot be bound without naming the link.
    let v6 = v6.filter(|address| !address.is_unicast_link_local()).map(IpAddr::from);
    v4.chain(v6).filter(|address| !address.is_loopback()).collect()
}

/// Connects to the server from this address, and sends a request. Does not wait for the server.
fn request_from(own: IpAddr, server: SocketAddr) -> TcpStream {
    let family = if own.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket(family, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::new(own, 0)).unwrap();
    connect(&socket, &server).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    stream
}

// The runtime has one thread, so the server sees the connection of the program only after the program is gone.
#[tokio::test]
async fn a_program_that_is_not_known_to_be_of_this_user_is_refused_whatever_address_it_takes() {
    let own = own_addresses();
    assert!(!own.is_empty(), "this test needs an address of this machine besides loopback");
    for loopback in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
        let sources: Vec<_> = own.iter().filter(|own| own.is_ipv4() == loopback.is_ipv4()).copied().chain([loopback]).collect();
        if loopback.is_ipv6() && std::net::TcpListener::bind((loopback, 0)).is_err() {
            // This machine has no IPv6, so nothing can be served on it.
            continue;
        }
        let server = start(HttpOptions { listen: Listen { host: loopback.to_string(), port: 0 }, ..HttpOptions::default() }).await;
        for (count, source) in (1..).zip(&sources) {
            drop(request_from(*source, server.http.address()));
            until(&format!("{source} is refused at {loopback}"), || server.metric(REFUSED) == count).await;
        }
        assert_eq!(server.metric("hyperlight_mcp_http_requests_total{status=\"200\"}"), 0);
        // A program of this user is served from each of these addresses.
        for source in sources {
            let mut stream = request_from(source, server.http.address());
            let answer = tokio::task::spawn_blocking(move || {
                let mut answer = String::new();
                stream.read_to_string(&mut answer).map(|_| answer)
            });
            let answer = answer.await.unwrap().unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 "), "{source}: {answer}");
        }
    }
}
